//! Normalization of log-mels: mean and standard deviation of each band.

use serde::{Deserialize, Serialize};

/// A band that hardly varies (above the recording's bandwidth, say) is not blown up to noise.
const MIN_STD: f64 = 0.25;

/// Mean and standard deviation of each mel band.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MelStats {
    /// Mean of each band.
    pub mean: Vec<f32>,
    /// Standard deviation of each band.
    pub std: Vec<f32>,
}

impl MelStats {
    /// From each band's sum and sum of squares over `frames` frames; `None` without a frame.
    pub fn from_sums(sums: &[f64], squares: &[f64], frames: usize) -> Option<MelStats> {
        if frames == 0 {
            return None;
        }
        let mean: Vec<f64> = sums.iter().map(|sum| sum / frames as f64).collect();
        let std = (squares.iter().zip(&mean))
            .map(|(square, mean)| (square / frames as f64 - mean * mean).max(0.0).sqrt().max(MIN_STD) as f32)
            .collect();
        Some(MelStats { mean: mean.into_iter().map(|mean| mean as f32).collect(), std })
    }

    /// `[bands][stride]` to normalized `[frames][bands]`, for the first `length` frames.
    pub fn normalize(&self, mel: &[f32], stride: usize, length: usize, out: &mut [f32]) {
        /// Frames at a time, so that what is written stays in the nearest cache.
        const TILE: usize = 16;
        let bands = self.mean.len();
        for (tile, out) in out[..length * bands].chunks_mut(TILE * bands).enumerate() {
            for (band, values) in mel.chunks(stride).enumerate() {
                let (mean, scale) = (self.mean[band], 1.0 / self.std[band]);
                for (frame, value) in values[tile * TILE..length].iter().take(TILE).enumerate() {
                    out[frame * bands + band] = (value - mean) * scale;
                }
            }
        }
    }

    /// Normalized `[frames][bands]` back to log-mel `[bands][frames]`.
    pub fn restore(&self, normalized: &[f32], frames: usize) -> Vec<f32> {
        let bands = self.mean.len();
        let mut mel = vec![0.0; frames * bands];
        for (frame, values) in normalized.chunks(bands).take(frames).enumerate() {
            for (band, value) in values.iter().enumerate() {
                mel[band * frames + frame] = value * self.std[band] + self.mean[band];
            }
        }
        mel
    }
}
