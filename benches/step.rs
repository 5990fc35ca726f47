//! One training step of the model, by itself: how long it takes, and what it computes.
//!
//! ```text
//! cargo bench -p tandem-cli --bench step -- export DIR SIZE    weights, a batch, its losses and gradients, as files
//! cargo bench -p tandem-cli --bench step -- run SIZE STEPS     prints RESULT and a JSON object
//! ```
//! SIZE is that of the acoustic model, or `vocoder-SIZE`; `export` also takes `adversarial-SIZE`, the vocoder's stage 2.
//! `benches/step.py` does the same with the same model in PyTorch, compares, and alternates the two.

#[path = "step/vocoder.rs"]
mod vocoder;

use std::path::Path;
use std::time::Instant;

use serde_json::json;
use tandem_flow::{Cursor, Random};
use tandem_model::kernels;
use tandem_model::weights::{self, HostTensor, Tensors};
use tandem_model::{
    Device, HostInputs, HostReference, InputShape, Losses, ModelConfig, REFERENCE_FRAMES, Size, Totals, Voice,
};
use tandem_train::{Grads, Learner, Ready, StepRecord, TrainConfig, memory};

const ROWS: usize = 16;
const TOKENS: usize = 64;
const FRAMES: usize = 400;
const N_MELS: usize = 80;
const VOCABULARY: usize = 81;

fn main() {
    memory::keep_freed_blocks();
    kernels::compute_here().expect("threads can be started");
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["export", dir, size] => match size.rsplit_once('-') {
            Some((stage, size)) => {
                vocoder::export(Path::new(dir), size.parse().expect("a size"), stage == "adversarial")
            }
            None => export(Path::new(dir), size.parse().expect("a size")),
        },
        ["run", size, steps] => match size.strip_prefix("vocoder-") {
            Some(size) => vocoder::run(size.parse().expect("a size"), steps.parse().expect("a number")),
            None => run(size.parse().expect("a size"), steps.parse().expect("a number")),
        },
        [] => run(Size::Smoke, 5),
        _ => panic!("export DIR SIZE, or run SIZE STEPS"),
    }
}

/// A batch with the shapes of speech: lengths that differ, sounds that last several frames.
fn batch() -> HostInputs {
    let mut random = Random::new(7);
    let mut inputs = HostInputs {
        rows: ROWS,
        tokens: TOKENS,
        frames: FRAMES,
        n_mels: N_MELS,
        ids: vec![0; ROWS * TOKENS],
        mel: vec![0.0; ROWS * FRAMES * N_MELS],
        pitch: vec![0.0; ROWS * FRAMES],
        noise: vec![0.0; ROWS * FRAMES * N_MELS],
        reference: Some(HostReference {
            frames: REFERENCE_FRAMES,
            mel: vec![0.0; ROWS * REFERENCE_FRAMES * N_MELS],
            lengths: Vec::new(),
        }),
        ..HostInputs::default()
    };
    let reference = inputs.reference.as_mut().expect("just made");
    for row in 0..ROWS {
        let (tokens, frames) = (TOKENS - row, FRAMES - 6 * row);
        for id in &mut inputs.ids[row * TOKENS..row * TOKENS + tokens] {
            *id = 1 + random.below(VOCABULARY - 1) as i32;
        }
        let mut sound = vec![0.0; N_MELS];
        for (frame, values) in inputs.mel[row * FRAMES * N_MELS..].chunks_mut(N_MELS).take(frames).enumerate() {
            if frame % 6 == 0 {
                random.fill_normal(&mut sound);
            }
            values.copy_from_slice(&sound);
            // Three of four sounds are voiced.
            if frame / 6 % 4 != 0 {
                inputs.pitch[row * FRAMES + frame] = 120.0 + 2.0 * (row * 7 + frame % 60) as f32;
            }
        }
        random.fill_normal(&mut inputs.noise[row * FRAMES * N_MELS..(row * FRAMES + frames) * N_MELS]);
        let heard = REFERENCE_FRAMES - 5 * row;
        let size = REFERENCE_FRAMES * N_MELS;
        random.fill_normal(&mut reference.mel[row * size..row * size + heard * N_MELS]);
        reference.lengths.push(heard);
        inputs.id_lengths.push(tokens);
        inputs.mel_lengths.push(frames);
        inputs.timesteps.push(random.unit() as f32);
        inputs.seeds.push(random.next());
    }
    inputs
}

/// As `tandem train` makes it; with TANDEM_FLOW the flow-matching decoder too (`--flow`).
fn config(size: Size) -> ModelConfig {
    let config = ModelConfig::new(size, VOCABULARY, N_MELS, true);
    if std::env::var_os("TANDEM_FLOW").is_some() { config } else { config.without_flow() }
}

fn export(dir: &Path, size: Size) {
    std::fs::create_dir_all(dir).expect("a folder that can be made");
    let put = |name: &str, bytes: &[u8]| std::fs::write(dir.join(name), bytes).expect("writable");
    let device = Device::flex().autodiff();
    let voice = Voice::new(&config(size), 1, &device);
    put("model.safetensors", &weights::to_bytes(&weights::export(&voice)).expect("tensors"));
    put("config.json", serde_json::to_string_pretty(&config(size)).expect("plain data").as_bytes());
    let mut inputs = batch();
    let shape = InputShape::new(&config(size));
    // The search is not compared: both get the durations that it finds, and share them equally among the states of a token.
    let durations = voice.alignment(&inputs.clone().upload(&shape, &device));
    inputs.durations = durations.iter().cloned().map(Some).collect();
    let tensor = |shape: &[usize], values: Vec<f32>| HostTensor { shape: shape.to_vec(), values };
    let lengths = |lengths: &[usize]| tensor(&[ROWS], lengths.iter().map(|&length| length as f32).collect());
    let reference = inputs.reference.clone().expect("there is one");
    let totals = Totals::new(&inputs.mel_lengths, &inputs.id_lengths);
    // Nothing is dropped: what is dropped at random could not be compared.
    let (losses, _) = voice.losses(&inputs.clone().upload(&shape, &device), totals, 0.0, false);
    let mut all_durations = vec![0.0; ROWS * TOKENS];
    for (row, durations) in durations.iter().enumerate() {
        for (to, &frames) in all_durations[row * TOKENS..].iter_mut().zip(durations) {
            *to = frames as f32;
        }
    }
    let batch = Tensors::from([
        ("ids".to_owned(), tensor(&[ROWS, TOKENS], inputs.ids.iter().map(|&id| id as f32).collect())),
        ("id_lengths".to_owned(), lengths(&inputs.id_lengths)),
        ("mel".to_owned(), tensor(&[ROWS, FRAMES, N_MELS], inputs.mel.clone())),
        ("mel_lengths".to_owned(), lengths(&inputs.mel_lengths)),
        ("pitch".to_owned(), tensor(&[ROWS, FRAMES], inputs.pitch.clone())),
        ("noise".to_owned(), tensor(&[ROWS, FRAMES, N_MELS], inputs.noise.clone())),
        ("timesteps".to_owned(), tensor(&[ROWS, 1], inputs.timesteps.clone())),
        ("reference".to_owned(), tensor(&[ROWS, REFERENCE_FRAMES, N_MELS], reference.mel)),
        ("reference_lengths".to_owned(), lengths(&reference.lengths)),
        ("durations".to_owned(), tensor(&[ROWS, TOKENS], all_durations)),
    ]);
    put("batch.safetensors", &weights::to_bytes(&batch).expect("tensors"));
    let values = losses.values().into_data().try_into_vec::<f32>().expect("single precision");
    let named: serde_json::Map<_, _> =
        Losses::NAMES.iter().zip(values).map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    put("losses.json", serde_json::Value::Object(named).to_string().as_bytes());
    let grads = Grads::new(losses.total().backward(), &voice).export(&voice);
    put("grads.safetensors", &weights::to_bytes(&grads).expect("tensors"));
    println!("RESULT {}", json!({"exported": dir, "parameters": weights::export(&voice).len()}));
}

fn run(size: Size, steps: usize) {
    let mut settings = TrainConfig::default();
    settings.model.size = size;
    let mut learner = Learner::new(&config(size), &settings, &Device::flex());
    let inputs = batch();
    let mut step = || {
        let inputs = inputs.clone().upload(&learner.input_shape(), learner.device());
        let ready = Ready { cursor: Cursor::START, clips: Vec::new(), seconds: 0.0, inputs };
        let started = Instant::now();
        let record = learner.step(ready);
        let values = StepRecord::read(&[record]);
        (started.elapsed().as_secs_f64(), values[0].loss)
    };
    step(); // the first one warms up
    let search = tandem_model::alignment_seconds();
    let times: Vec<(f64, f64)> = (0..steps).map(|_| step()).collect();
    let mut seconds: Vec<f64> = times.iter().map(|(seconds, _)| *seconds).collect();
    seconds.sort_by(f64::total_cmp);
    let total: f64 = seconds.iter().sum();
    let share = (tandem_model::alignment_seconds() - search) / total;
    println!(
        "RESULT {}",
        json!({"who": "tandem", "size": size, "steps": steps, "median_ms": 1e3 * seconds[steps / 2],
            "min_ms": 1e3 * seconds[0], "alignment_share": share, "peak_bytes": memory::peak_bytes(),
            "last_loss": times.last().map(|(_, loss)| loss)})
    );
}
