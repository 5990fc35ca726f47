//! The same for the vocoder: segments of the size that a run trains on.

use std::path::Path;
use std::time::Instant;

use serde_json::json;
use tandem_audio::{MelSettings, mel_filters};
use tandem_flow::{Cursor, Random};
use tandem_model::burn::tensor::Tensor;
use tandem_model::kernels::Stft;
use tandem_model::weights::{self, HostTensor, Tensors};
use tandem_model::{
    AdversarialLosses, Device, DiscriminatorConfig, HostVocoderInputs, MelLoss, NeuralVocoder, Size, VocoderConfig,
    VocoderLosses,
};
use tandem_train::task::Vocoder;
use tandem_train::{Grads, Learner, Ready, StepRecord, TrainConfig, memory};

const ROWS: usize = 16;
const FRAMES: usize = 64;

fn config(size: Size) -> VocoderConfig {
    let mel = MelSettings::default();
    VocoderConfig::new(size, mel.n_mels, Stft { n_fft: mel.n_fft, hop: mel.hop_length, win_length: mel.win_length })
}

/// Noise with the shapes of segments; two of them are shorter than the others.
fn batch() -> HostVocoderInputs {
    let (config, mut random) = (config(Size::Tiny), Random::new(7));
    let (stft, width) = (config.stft(), config.n_mels + 2);
    let mut inputs = HostVocoderInputs { rows: ROWS, frames: FRAMES, ..HostVocoderInputs::default() };
    inputs.lengths = (0..ROWS).map(|row| if row < 2 { FRAMES - 20 } else { FRAMES }).collect();
    let mut padded = |width: usize, scale: f32| {
        let mut values = vec![0.0; ROWS * FRAMES * width];
        for (row, values) in values.chunks_mut(FRAMES * width).enumerate() {
            random.fill_normal(&mut values[..inputs.lengths[row] * width]);
        }
        values.iter_mut().for_each(|value| *value *= scale);
        values
    };
    (inputs.features, inputs.harmonic, inputs.noise) =
        (padded(width, 1.0), padded(2 * stft.bins(), 1.0), padded(2 * stft.bins(), 0.5));
    inputs.waveform = vec![0.0; ROWS * stft.samples(FRAMES)];
    random.fill_normal(&mut inputs.waveform);
    inputs.waveform.iter_mut().for_each(|value| *value *= 0.1);
    inputs
}

fn mel_loss() -> MelLoss {
    let mel = MelSettings::default();
    let mut filters = vec![0.0; (mel.n_fft / 2 + 1) * mel.n_mels];
    for (band, (first, weights)) in mel_filters(&mel).into_iter().enumerate() {
        for (bin, weight) in weights.into_iter().enumerate() {
            filters[(first + bin) * mel.n_mels + band] = weight;
        }
    }
    MelLoss { filters, floor: mel.floor, power: mel.power }
}

/// A network that says something: an untrained one has zeros in its last layer, and no gradient passes those.
fn model(config: &VocoderConfig, device: &Device) -> NeuralVocoder {
    let model = NeuralVocoder::new(config, 1, device);
    let mut tensors = weights::export(&model);
    let output = tensors.get_mut("output.weight").expect("a layer");
    Random::new(3).fill_normal(&mut output.values);
    output.values.iter_mut().for_each(|value| *value *= 0.02);
    // Nor should what silence makes of a discriminator's layers lie where their activation has no slope.
    for (n, (_, bias)) in (0..).zip(tensors.iter_mut().filter(|(name, _)| name.ends_with("bias"))) {
        Random::new(n).fill_normal(&mut bias.values);
        bias.values.iter_mut().for_each(|value| *value *= 0.05);
    }
    weights::import(model, &tensors).expect("its own names")
}

/// Weights, a batch, its losses and gradients, as files; of stage 2 with discriminators.
pub(crate) fn export(dir: &Path, size: Size, adversarial: bool) {
    std::fs::create_dir_all(dir).expect("a folder that can be made");
    let put = |name: &str, bytes: &[u8]| std::fs::write(dir.join(name), bytes).expect("writable");
    let device = Device::flex().autodiff();
    let config = VocoderConfig { discriminators: adversarial.then(|| DiscriminatorConfig::new(size)), ..config(size) };
    let (model, inputs, mel) = (model(&config, &device), batch(), mel_loss());
    put("model.safetensors", &weights::to_bytes(&weights::export(&model)).expect("tensors"));
    put("config.json", serde_json::to_string_pretty(&config).expect("plain data").as_bytes());
    let tensor = |shape: &[usize], values: &[f32]| HostTensor { shape: shape.to_vec(), values: values.to_vec() };
    let spectra = |values: &[f32]| tensor(&[ROWS, FRAMES, values.len() / (ROWS * FRAMES)], values);
    let lengths: Vec<f32> = inputs.lengths.iter().map(|&length| length as f32).collect();
    let batch = Tensors::from([
        ("features".to_owned(), spectra(&inputs.features)),
        ("harmonic".to_owned(), spectra(&inputs.harmonic)),
        ("noise".to_owned(), spectra(&inputs.noise)),
        ("waveform".to_owned(), tensor(&[ROWS, inputs.waveform.len() / ROWS], &inputs.waveform)),
        ("lengths".to_owned(), tensor(&[ROWS], &lengths)),
        ("filters".to_owned(), tensor(&[mel.filters.len() / 80, 80], &mel.filters)),
        ("floor".to_owned(), tensor(&[1], &[mel.floor])),
    ]);
    put("batch.safetensors", &weights::to_bytes(&batch).expect("tensors"));
    let inputs = inputs.upload(&device);
    let (names, terms) = match adversarial {
        true => (&AdversarialLosses::NAMES[..], model.adversarial_losses(&inputs, &mel, ROWS).terms()),
        false => (&VocoderLosses::NAMES[..], model.losses(&inputs, &mel, ROWS).terms()),
    };
    let value = |term: &Tensor<1>| term.clone().into_data().try_into_vec::<f32>().expect("single precision")[0];
    let named: serde_json::Map<_, _> =
        names.iter().zip(&terms).map(|(name, term)| ((*name).to_owned(), json!(value(term)))).collect();
    let total = terms.into_iter().reduce(|sum, term| sum + term).expect("terms");
    put("losses.json", serde_json::Value::Object(named).to_string().as_bytes());
    let grads = Grads::new(total.backward(), &model).export(&model);
    put("grads.safetensors", &weights::to_bytes(&grads).expect("tensors"));
    println!("RESULT {}", json!({"exported": dir, "parameters": weights::export(&model).len()}));
}

/// Times steps.
pub(crate) fn run(size: Size, steps: usize) {
    let mut settings = TrainConfig::default();
    settings.model.size = size;
    let task: Vocoder = Vocoder::of(config(size), &MelSettings::default()).expect("valid");
    let mut learner = Learner::with_task(task, &settings, &Device::flex());
    learner.warm_start(&weights::export(&model(&config(size), &Device::flex()))).expect("its own names");
    let inputs = batch();
    let mut step = || {
        let inputs = inputs.clone().upload(learner.device());
        let ready = Ready { cursor: Cursor::START, clips: Vec::new(), seconds: 0.0, inputs };
        let started = Instant::now();
        let values = StepRecord::read(&[learner.step(ready)]);
        (started.elapsed().as_secs_f64(), values[0].loss)
    };
    step(); // the first one warms up
    let times: Vec<(f64, f64)> = (0..steps).map(|_| step()).collect();
    let mut seconds: Vec<f64> = times.iter().map(|(seconds, _)| *seconds).collect();
    seconds.sort_by(f64::total_cmp);
    println!(
        "RESULT {}",
        json!({"who": "tandem", "size": format!("vocoder-{size}"), "steps": steps, "median_ms": 1e3 * seconds[steps / 2],
            "min_ms": 1e3 * seconds[0], "peak_bytes": memory::peak_bytes(),
            "last_loss": times.last().map(|(_, loss)| loss)})
    );
}
