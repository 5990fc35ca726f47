//! Batches of noise for the tests of steps. Each test uses what it needs.
#![allow(dead_code)]

use tandem_device::{Inventory, Kind};
use tandem_flow::Random;
use tandem_model::{Device, HostInputs, HostReference, ModelConfig, Size};

pub(crate) const N_MELS: usize = 20;
pub(crate) const VOCABULARY: usize = 12;

/// Rows of these lengths (tokens, frames), padded by `padding` more than the longest.
pub(crate) fn inputs(rows: &[(usize, usize)], padding: usize, reference: bool) -> HostInputs {
    let tokens = rows.iter().map(|row| row.0).max().expect("rows") + padding;
    let frames = (rows.iter().map(|row| row.1).max().expect("rows") + padding).next_multiple_of(2);
    let mut inputs = HostInputs {
        rows: rows.len(),
        tokens,
        frames,
        n_mels: N_MELS,
        ids: vec![0; rows.len() * tokens],
        mel: vec![0.0; rows.len() * frames * N_MELS],
        pitch: vec![0.0; rows.len() * frames],
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
        for (frame, hz) in inputs.pitch[row * frames..row * frames + row_frames].iter_mut().enumerate() {
            *hz = if frame % 9 < 6 { 90.0 + 8.0 * (frame % 50) as f32 } else { 0.0 };
        }
        random.fill_normal(&mut heard_mel[row * heard * N_MELS..(row * heard + 26) * N_MELS]);
        inputs.id_lengths.push(row_tokens);
        inputs.mel_lengths.push(row_frames);
        inputs.timesteps.push(random.unit() as f32);
        inputs.seeds.push(random.next());
    }
    inputs.reference =
        reference.then(|| HostReference { frames: heard, mel: heard_mel, lengths: vec![26; rows.len()] });
    inputs
}

/// The smallest model.
pub(crate) fn config(reference: bool) -> ModelConfig {
    ModelConfig::new(Size::Smoke, VOCABULARY, N_MELS, reference)
}

/// The software Vulkan devices of this machine, open. Without one the check is skipped by name; CI installs two and sets
/// `TANDEM_NEEDS_VULKAN`, so that there it never is.
pub(crate) fn software_gpus() -> Vec<(String, Device)> {
    let inventory = Inventory::scan();
    let gpus = inventory.gpus.iter().filter(|gpu| gpu.kind == Kind::Software);
    let open: Vec<(String, Device)> =
        gpus.map(|gpu| (gpu.name.clone(), inventory.open(gpu).expect("a software device opens"))).collect();
    if open.is_empty() {
        assert!(std::env::var_os("TANDEM_NEEDS_VULKAN").is_none(), "no Vulkan device, and this machine must have one");
        eprintln!("skipped: no Vulkan device");
    }
    open
}
