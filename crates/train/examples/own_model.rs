//! Someone else's model on this pipeline: workers read, decode and make log-mel frames, a stage puts them on the device
//! ahead of time, and an autoencoder of Burn's own layers learns from them with Burn's own optimizer (`burn::nn` and
//! `burn::optim` for those who name `burn` itself).
//!
//!     cargo run --release -p tandem-train --no-default-features --example own_model

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData, activation::relu};
use burn_nn::{Linear, LinearConfig};
use burn_optim::{AdamWConfig, GradientsParams};
use tandem_data::{CacheMode, Corpus, CorpusSettings, DemoCorpus, LoadSettings, Loader, PlanSettings};
use tandem_flow::{Budget, Context, Cursor, Knob, Oversize, Place};
use tandem_train::{measure_mel_stats, prepare};

#[derive(Module, Debug)]
struct Autoencoder {
    encode: Linear,
    decode: Linear,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    DemoCorpus { clips: 64, speakers: 2, seed: 1 }.write(dir.path())?;
    let corpus = Corpus::open(dir.path(), CorpusSettings::default())?;
    let (clips, bands) = ((0..corpus.len() as u32).collect(), corpus.settings().mel.n_mels);
    let plan = PlanSettings { batch_size: 8, ..PlanSettings::default() };
    let settings = LoadSettings { plan, ..LoadSettings::default() };
    let cache = corpus.cache(CacheMode::Ram, 100_000_000);
    let loader = Loader::new(Arc::new(corpus), clips, settings, cache)?;
    let stats = measure_mel_stats(&loader).ok_or("not one clip can be read")?;

    let device = Device::flex().autodiff();
    let (encode, decode) = (LinearConfig::new(bands, 16), LinearConfig::new(16, bands));
    let mut model = Autoencoder { encode: encode.init(&device), decode: decode.init(&device) };
    let mut optimizer = AdamWConfig::new().init();

    let (context, host) = (Context::default(), Budget::new(Place::Host, 64_000_000, Oversize::Alone));
    let (workers, buffer, depth) = (Knob::fixed("workers", 2), Knob::fixed("buffer", 8), Knob::fixed("depth", 2));
    let batches = loader.flow(&context, Cursor::START, 20, &workers, &buffer, &host);
    // A stage of one's own gets the `Batch` itself; this one normalizes it and keeps mel and mask.
    let on_device = batches.stage("upload", move |batch| {
        let inputs = prepare(batch, &stats, 1, 1, false).inputs;
        let (rows, frames) = (inputs.rows, inputs.frames);
        let inside = |row: usize, frame: usize| f32::from(u8::from(frame < inputs.mel_lengths[row]));
        let mask = (0..rows * frames).map(|at| inside(at / frames, at % frames)).collect();
        let tensor =
            |values: Vec<f32>, bands| Tensor::<3>::from_data(TensorData::new(values, [rows, frames, bands]), &device);
        Ok((tensor(inputs.mel.clone(), bands), tensor(mask, 1)))
    });
    let mut losses = Vec::new();
    for batch in on_device.release(&host).prefetch("ready", &depth) {
        let batch = batch?;
        let (mel, mask) = batch.value;
        let again = model.decode.forward(relu(model.encode.forward(mel.clone())));
        let loss = ((again - mel) * mask.clone()).square().mean_dim(2).sum() / mask.sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(5e-3, model, gradients);
        if batch.cursor.batch == 0 {
            losses.push(loss.inner().into_scalar::<f32>());
            println!("{}: loss {:.4}", batch.cursor, losses[losses.len() - 1]);
        }
    }
    let waited = context.queues().iter().find(|queue| queue.name == "ready").map_or(0.0, |queue| queue.pop_wait_s);
    println!("the model waited {waited:.2} s for batches, of {:.2} s in all", context.clock.now().as_secs_f64());
    assert!(losses[losses.len() - 1] < 0.5 * losses[0], "it learns: {losses:?}");
    Ok(())
}
