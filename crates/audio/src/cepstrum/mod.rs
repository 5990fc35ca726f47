//! Mel-cepstral distortion, as `pymcd` (PyPI) defines it: spectral envelopes of WORLD every 5 ms at 22,050 Hz, 14 mel-cepstral
//! coefficients, FastDTW, mean distance along the path in dB.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `world_pitch.rs` | the pitch that the envelopes are adapted to: DIO and StoneMask |
//! | `envelope.rs` | CheapTrick: the spectral envelope of a frame |
//! | `warp.rs` | FastDTW: which frames of two clips belong together |
//!
//! DIO, StoneMask and CheapTrick are written after the papers of M. Morise; where these leave a choice (edges, rounding), the choice is
//! that of his WORLD, so that the figures are the same. `scripts/oracles/mcd.py` compares with `pymcd`.

mod envelope;
mod warp;
mod world_pitch;

use realfft::RealFftPlanner;
use realfft::num_complex::Complex64;

use crate::decode::AudioError;
use crate::resample::Resampler;

use envelope::{BINS, Envelope, SIZE};

/// Samples per second that cepstra are computed at.
const RATE: u32 = 22_050;
/// Seconds between two mel-cepstra.
pub const CEPSTRUM_PERIOD: f64 = 0.005;
/// The same in milliseconds.
const PERIOD_MS: f64 = 5.0;
/// Coefficients of a frame: the loudness and thirteen of its shape.
const COEFFICIENTS: usize = 14;
/// How much the frequency axis is bent: about mel at this rate.
const ALPHA: f64 = 0.65;
/// Added to what the logarithm is taken of.
const FLOOR: f64 = 1e-8;

/// Mel-cepstral coefficients of a frame.
pub type MelCepstrum = [f64; COEFFICIENTS];

/// Mel-cepstra of a clip, one for every 5 ms; none of an empty clip.
///
/// # Errors
///
/// [`AudioError::Rate`] if the clip cannot be resampled to 22,050 Hz.
pub fn mel_cepstra(samples: &[f32], sample_rate: u32) -> Result<Vec<MelCepstrum>, AudioError> {
    let mut samples = samples.to_vec();
    if sample_rate != RATE {
        Resampler::new(sample_rate, RATE)?.resample(&mut samples, 0);
    }
    if samples.is_empty() {
        return Ok(Vec::new());
    }
    let samples: Vec<f64> = samples.iter().map(|&x| if x.is_finite() { f64::from(x) } else { 0.0 }).collect();
    let rate = f64::from(RATE);
    let pitch = world_pitch::refine(&samples, rate, &world_pitch::estimate(&samples, rate));
    let mut envelope = Envelope::new(rate);
    let inverse = RealFftPlanner::<f64>::new().plan_fft_inverse(SIZE);
    let (mut spectrum, mut cepstrum) = (inverse.make_input_vec(), inverse.make_output_vec());
    let mel = frequency_transform();
    let frames = pitch.iter().enumerate().map(|(frame, &hz)| {
        let power = envelope.compute(&samples, time(frame), hz);
        for (value, power) in spectrum.iter_mut().zip(power) {
            // pymcd hands powers to a function that takes amplitudes; so does everybody who compares with it.
            *value = Complex64::new((power * power + FLOOR).ln() / SIZE as f64, 0.0);
        }
        inverse.process(&mut spectrum, &mut cepstrum).expect("buffers of the planned length");
        (cepstrum[0], cepstrum[BINS - 1]) = (0.5 * cepstrum[0], 0.5 * cepstrum[BINS - 1]);
        mel.each_ref().map(|row| row.iter().zip(&cepstrum).map(|(a, b)| a * b).sum())
    });
    Ok(frames.collect())
}

/// Which frames of two clips belong together (FastDTW), from the first of both to the last of both; none if one is empty.
pub fn warp_cepstra(a: &[MelCepstrum], b: &[MelCepstrum]) -> Vec<(usize, usize)> {
    // Loudness does not decide which frames belong together.
    let shape = |frames: &[MelCepstrum]| frames.iter().map(|frame| frame[1..].to_vec()).collect::<Vec<_>>();
    warp::warp(&shape(a), &shape(b))
}

/// Mel-cepstral distortion of two clips in dB, the mean along the path of [`warp_cepstra`]; none if that is empty.
///
/// # Panics
///
/// If the path is one of other clips.
pub fn distortion(a: &[MelCepstrum], b: &[MelCepstrum], path: &[(usize, usize)]) -> Option<f64> {
    let sum: f64 = path.iter().map(|&(i, j)| warp::distance(&a[i], &b[j])).sum();
    (!path.is_empty()).then(|| 10.0 / std::f64::consts::LN_10 * std::f64::consts::SQRT_2 * sum / path.len() as f64)
}

/// When a frame is, in seconds; computed as in the original, to the last bit.
fn time(frame: usize) -> f64 {
    frame as f64 * PERIOD_MS / 1000.0
}

/// The linear map from a cepstrum to a mel-cepstrum: the recursion of Oppenheim and Johnson, for each unit vector.
fn frequency_transform() -> [Vec<f64>; COEFFICIENTS] {
    let mut rows = [const { Vec::new() }; COEFFICIENTS];
    // A coefficient that comes n steps before the last one goes through the recursion n times more.
    let mut column = [0.0; COEFFICIENTS];
    column[0] = 1.0;
    for _ in 0..BINS {
        for (row, value) in rows.iter_mut().zip(column) {
            row.push(value);
        }
        let before = column;
        column[0] = ALPHA * before[0];
        column[1] = (1.0 - ALPHA * ALPHA) * before[0] + ALPHA * before[1];
        for n in 2..COEFFICIENTS {
            column[n] = before[n - 1] + ALPHA * (before[n] - column[n - 1]);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voice(seconds: f64, hz: f64, formant: f64) -> Vec<f32> {
        let pulse = |phase: f64| (1..20).map(|k| (phase * f64::from(k)).cos() / f64::from(k)).sum::<f64>();
        (0..(seconds * 22_050.0) as usize)
            .map(|n| {
                let time = n as f64 / 22_050.0;
                let wobble = 1.0 + 0.5 * (time * 9.0).sin();
                (0.1 * wobble * pulse(std::f64::consts::TAU * hz * time) + 0.05 * (time * formant).sin()) as f32
            })
            .collect()
    }

    fn distance(a: &[MelCepstrum], b: &[MelCepstrum]) -> Option<f64> {
        distortion(a, b, &warp_cepstra(a, b))
    }

    #[test]
    fn a_clip_has_no_distortion_from_itself_and_little_from_itself_slower() {
        let cepstra = |samples: &[f32]| mel_cepstra(samples, 22_050).expect("its own rate");
        let clip = cepstra(&voice(1.0, 180.0, 9000.0));
        assert_eq!(clip.len(), 201);
        assert_eq!(distance(&clip, &clip), Some(0.0));
        let other = cepstra(&voice(1.0, 180.0, 30_000.0));
        let different = distance(&clip, &other).expect("frames");
        let stretched: Vec<MelCepstrum> = clip.iter().flat_map(|frame| [*frame; 2]).collect();
        assert_eq!(distance(&clip, &stretched), Some(0.0));
        assert!(different > 1.0, "{different}");
    }

    #[test]
    fn any_clip_has_finite_cepstra() {
        let mut noisy = voice(0.3, 90.0, 8000.0);
        noisy[100] = f32::NAN;
        for clip in [vec![], vec![0.5], vec![0.0; 2], vec![0.0; 5000], vec![1.0; 3000], noisy] {
            let cepstra = mel_cepstra(&clip, 22_050).expect("its own rate");
            assert_eq!(cepstra.is_empty(), clip.is_empty());
            assert!(cepstra.iter().flatten().all(|value| value.is_finite()));
            assert_eq!(distance(&cepstra, &cepstra), (!clip.is_empty()).then_some(0.0));
        }
        assert_eq!(distance(&[], &[[0.0; COEFFICIENTS]]), None);
        assert_eq!(mel_cepstra(&vec![0.1; 16_000], 16_000).expect("a ratio").len(), 201);
    }
}
