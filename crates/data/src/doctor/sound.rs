//! What one clip sounds like: its peak, clipping, silence at both ends, loudness and noise.

use tandem_audio::{Decoder, Levels};
use xxhash_rust::xxh3::xxh3_64;

use crate::corpus::Corpus;
use crate::fault::ClipFault;

/// Louder than this counts as full scale.
const FULL_SCALE: f32 = 0.999;
/// So many full-scale samples in a row are clipping and not a peak.
const CLIPPED_RUN: usize = 3;
/// So near to the peak is at the peak.
const FLAT: f32 = 1.0 - 2e-4;
/// Quieter than this (-60 dB) all along is silence.
pub(super) const SILENT: f32 = 1e-3;

/// What one clip sounds like.
#[derive(Clone, Copy, Default)]
pub(super) struct Sound {
    pub(super) content: u64,
    pub(super) peak: f32,
    pub(super) clipped_runs: usize,
    /// The share of samples in runs at the peak.
    pub(super) flat_share: f64,
    /// Of speech, in decibels of full scale.
    pub(super) loudness_db: f64,
    /// Of pauses.
    pub(super) noise_db: f64,
    pub(super) leading_s: f64,
    pub(super) trailing_s: f64,
    pub(super) seconds: f64,
    pub(super) unequal: bool,
}

/// Decodes a clip and listens to it: to clipping as it was recorded, to everything else as it is trained on.
pub(super) fn listen(
    corpus: &Corpus,
    clip: u32,
    decoder: &mut Decoder,
    samples: &mut Vec<f32>,
) -> Result<Sound, ClipFault> {
    samples.clear();
    let shape = decoder.decode(&mut *corpus.audio(clip)?, samples)?;
    let rate = f64::from(shape.rate);
    let peak = samples.iter().fold(0.0, |peak: f32, sample| sample.abs().max(peak));
    let (runs, _) = runs_at(samples, FULL_SCALE);
    let (_, flat) = runs_at(samples, peak * FLAT);
    let flat_share = flat as f64 / samples.len().max(1) as f64;
    corpus.settings().processing.apply(samples, 0, shape.rate);
    let peak = samples.iter().fold(0.0, |peak: f32, sample| sample.abs().max(peak));
    let quiet = |sample: &&f32| sample.abs() < SILENT;
    let Levels { speech_db, noise_db } = Levels::of(samples, shape.rate);
    let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    Ok(Sound {
        content: xxh3_64(&bytes),
        peak,
        clipped_runs: runs,
        flat_share,
        loudness_db: speech_db,
        noise_db,
        leading_s: samples.iter().take_while(quiet).count() as f64 / rate,
        trailing_s: samples.iter().rev().take_while(quiet).count() as f64 / rate,
        seconds: samples.len() as f64 / rate,
        unequal: samples.len() != corpus.entry(clip).samples as usize,
    })
}

/// Runs of at least [`CLIPPED_RUN`] samples of one sign that are at least so loud, and the samples in them.
fn runs_at(samples: &[f32], level: f32) -> (usize, usize) {
    let (mut runs, mut inside, mut run, mut above) = (0, 0, 0, false);
    for &sample in samples {
        run = match sample.abs() >= level {
            true if run > 0 && (sample > 0.0) == above => run + 1,
            true => 1,
            false => 0,
        };
        above = sample > 0.0;
        match run.cmp(&CLIPPED_RUN) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => (runs, inside) = (runs + 1, inside + CLIPPED_RUN),
            std::cmp::Ordering::Greater => inside += 1,
        }
    }
    (runs, inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_square_wave_is_clipped_however_loud_and_a_sine_is_not() {
        let share = |wave: &[f32]| {
            let peak = wave.iter().fold(0.0, |peak: f32, sample| sample.abs().max(peak));
            runs_at(wave, peak * FLAT).1 as f64 / wave.len() as f64
        };
        let sine = |hz: f32| (0..22_050).map(|n| 0.9 * (n as f32 * hz * 0.000_285).sin()).collect::<Vec<f32>>();
        for hz in [20.0, 110.0, 1000.0] {
            assert!(share(&sine(hz)) < 0.025, "{hz}: {}", share(&sine(hz)));
            let square: Vec<f32> = sine(hz).iter().map(|x| 0.5 * x.signum()).collect();
            assert!(share(&square) > 0.9, "{hz}: {}", share(&square));
        }
        let square: Vec<f32> = sine(100.0).iter().map(|x| x.signum()).collect();
        assert!(runs_at(&square, FULL_SCALE).0 > 150, "each half wave is a place");
    }
}
