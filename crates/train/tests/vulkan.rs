//! The GPU code on real Vulkan devices, played by the processor: what is learned is the same as on the CPU.
//!
//! Without a Vulkan device these checks are skipped by name; CI installs two and sets `TANDEM_NEEDS_VULKAN=2`, so that
//! there they are never skipped.

use std::time::Instant;

use tandem_device::{Inventory, Kind};
use tandem_flow::{Cursor, Random};
use tandem_model::{Device, HostInputs, HostReference, ModelConfig, Size};
use tandem_train::{Learner, Ready, StepRecord, TrainSettings};

const N_MELS: usize = 20;
const VOCABULARY: usize = 12;

/// Rows of these lengths (tokens, frames), padded by `padding` more than the longest.
fn inputs(rows: &[(usize, usize)], padding: usize, reference: bool) -> HostInputs {
    let tokens = rows.iter().map(|row| row.0).max().expect("rows") + padding;
    let frames = (rows.iter().map(|row| row.1).max().expect("rows") + padding).next_multiple_of(2);
    let mut inputs = HostInputs {
        rows: rows.len(),
        tokens,
        frames,
        n_mels: N_MELS,
        ids: vec![0; rows.len() * tokens],
        mel: vec![0.0; rows.len() * frames * N_MELS],
        noise: vec![0.0; rows.len() * frames * N_MELS],
        ..HostInputs::default()
    };
    let heard = 30 + padding;
    let mut heard_mel = vec![0.0; rows.len() * heard * N_MELS];
    for (row, &(row_tokens, row_frames)) in rows.iter().enumerate() {
        let mut random = Random::at(&[5, row_tokens as u64, row_frames as u64]);
        for id in &mut inputs.ids[row * tokens..row * tokens + row_tokens] {
            *id = 1 + random.below(VOCABULARY - 1) as i32;
        }
        random.fill_normal(&mut inputs.mel[row * frames * N_MELS..(row * frames + row_frames) * N_MELS]);
        random.fill_normal(&mut inputs.noise[row * frames * N_MELS..(row * frames + row_frames) * N_MELS]);
        random.fill_normal(&mut heard_mel[row * heard * N_MELS..(row * heard + 26) * N_MELS]);
        inputs.id_lengths.push(row_tokens);
        inputs.mel_lengths.push(row_frames);
        inputs.times.push(random.unit() as f32);
        inputs.seeds.push(random.next());
    }
    inputs.reference =
        reference.then(|| HostReference { frames: heard, mel: heard_mel, lengths: vec![26; rows.len()] });
    inputs
}

fn config(reference: bool) -> ModelConfig {
    ModelConfig::new(Size::Smoke, VOCABULARY, N_MELS, reference)
}

fn steps(device: &Device, count: u64) -> Vec<f64> {
    let mut learner = Learner::new(&config(true), &TrainSettings::default(), device);
    let records: Vec<StepRecord> = (0..count)
        .map(|batch| {
            let started = Instant::now();
            let record = learner.step(Ready {
                cursor: Cursor { epoch: 0, batch },
                clips: vec![0, 1],
                seconds: 1.0,
                inputs: inputs(&[(7, 40), (12, 60)], 0, true).upload(learner.device()),
            });
            eprintln!("step {batch}: {:?}", started.elapsed());
            record
        })
        .collect();
    StepRecord::read(&records).iter().map(|values| values.loss).collect()
}

#[test]
fn a_software_gpu_learns_what_the_cpu_learns() {
    let inventory = Inventory::scan();
    eprintln!("{inventory:?}");
    let cpu = steps(&Device::flex(), 4);
    for gpu in inventory.gpus.iter().filter(|gpu| gpu.kind == Kind::Software) {
        let device = inventory.open(gpu).expect("opens");
        let started = Instant::now();
        let losses = steps(&device, 4);
        eprintln!("{}: {losses:?}, cpu {cpu:?}, {:?}, {:?}", gpu.name, started.elapsed(), device.memory_pool_usage());
        for (gpu, cpu) in losses.iter().zip(&cpu) {
            assert!((gpu - cpu).abs() < 1e-3 * cpu.abs(), "{gpu} {cpu}");
        }
    }
}
