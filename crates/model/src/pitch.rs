//! Pitch: F0 as the decoders get it, and the predictor that says it at synthesis.
//!
//! The mean of speech of many pitches has no harmonics: a decoder that only sees text blurs them, and the voice is flat.
//! Given the pitch of each position (FastPitch), it puts them where they belong; in the logarithm of a spectrum they are
//! added to what the sound itself is, so an embedding that is added to the text features says all of it.

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::config::ModelConfig;
use crate::decoder::Regressor;
use crate::inputs::{count_upload, to_device};
use crate::kernels::embedding;
use crate::nn::{Embedding, Init, Linear};

/// Lowest and highest pitch that is distinguished, Hz: what the tracker of `tandem-audio` looks for.
const RANGE_HZ: (f32, f32) = (65.0, 500.0);
/// Bins between them, 37 cents each; what lies between two bins is interpolated, so this is not the resolution.
const BINS: usize = 96;
/// Values of a target: the pitch and whether there is one.
pub(crate) const PITCH_VALUES: usize = 2;

/// Pitch conditioning: a predictor, and an embedding of (given or predicted) pitch.
#[derive(Module, Debug)]
pub struct Pitch {
    /// Projection of text features to the predictor's width.
    pub projection: Linear,
    /// Predicts pitch and voicing of each position.
    pub predictor: Regressor,
    /// A vector for each bin; the first is for positions without a pitch.
    pub embedding: Embedding,
}

/// The pitch of each decoder position, on the device.
#[derive(Clone, Debug)]
pub struct PitchInputs {
    /// The bin at or below the pitch, `[rows, positions]`; 0 without a pitch.
    pub lower: Tensor<2, Int>,
    /// The bin above it.
    pub upper: Tensor<2, Int>,
    /// How far it is from the one to the other, `[rows, positions, 1]`.
    pub fraction: Tensor<3>,
    /// What is predicted, `[rows, positions, 2]`: the pitch in quarters of an octave from 200 Hz (0 without one), and 1 where there is one.
    pub targets: Tensor<3>,
}

/// Pitch on the scale that is predicted: four units an octave, 0 at 200 Hz.
fn scaled(hz: f32) -> f32 {
    4.0 * (hz / 200.0).log2()
}

/// The inverse of [`scaled`], within the range of the bins.
fn hz_of(scaled: f32) -> f32 {
    (200.0 * (scaled / 4.0).exp2()).clamp(RANGE_HZ.0, RANGE_HZ.1)
}

impl PitchInputs {
    /// Of pitches in Hz, one for each position, 0 without a pitch.
    pub(crate) fn new(hz: &[f32], rows: usize, device: &Device) -> PitchInputs {
        let positions = hz.len() / rows.max(1);
        let (mut lower, mut upper) = (Vec::with_capacity(hz.len()), Vec::with_capacity(hz.len()));
        let (mut fraction, mut targets) = (Vec::with_capacity(hz.len()), Vec::with_capacity(PITCH_VALUES * hz.len()));
        let octaves = (RANGE_HZ.1 / RANGE_HZ.0).log2();
        for &hz in hz {
            if hz <= 0.0 {
                lower.push(0);
                upper.push(0);
                fraction.push(0.0);
                targets.extend([0.0, 0.0]);
                continue;
            }
            let hz = hz.clamp(RANGE_HZ.0, RANGE_HZ.1);
            let place = (hz / RANGE_HZ.0).log2() / octaves * (BINS - 1) as f32;
            let bin = (place as usize).min(BINS - 2);
            lower.push(1 + bin as i32);
            upper.push(2 + bin as i32);
            fraction.push(place - bin as f32);
            targets.extend([scaled(hz), 1.0]);
        }
        let bins = |values: Vec<i32>| {
            count_upload();
            Tensor::from_data(TensorData::new(values, [rows, positions]), device)
        };
        PitchInputs {
            lower: bins(lower),
            upper: bins(upper),
            fraction: to_device(fraction, [rows, positions, 1], device),
            targets: to_device(targets, [rows, positions, PITCH_VALUES], device),
        }
    }

    /// Of pitches in Hz, one for each frame (`rows * frames`; empty: none has a pitch). A position has the mean of its frames
    /// with a pitch, if they are at least half of them.
    pub(crate) fn of_frames(hz: &[f32], rows: usize, frames: usize, group: usize, device: &Device) -> PitchInputs {
        let by_position = |group: &[f32]| {
            let voiced = group.iter().filter(|&&hz| hz > 0.0).count();
            if voiced * 2 < group.len() || voiced == 0 { 0.0 } else { group.iter().sum::<f32>() / voiced as f32 }
        };
        let hz = match hz.is_empty() {
            true => vec![0.0; rows * frames / group],
            false => hz.chunks(group).map(by_position).collect(),
        };
        PitchInputs::new(&hz, rows, device)
    }

    /// Pitches in Hz, `rows * positions`, 0 where there is none.
    pub fn hz(&self) -> Vec<f32> {
        decode(self.targets.clone())
    }

    /// The first positions of each row.
    pub(crate) fn positions(&self, count: usize) -> PitchInputs {
        PitchInputs {
            lower: self.lower.clone().narrow(1, 0, count),
            upper: self.upper.clone().narrow(1, 0, count),
            fraction: self.fraction.clone().narrow(1, 0, count),
            targets: self.targets.clone().narrow(1, 0, count),
        }
    }

    /// Some of the rows.
    pub(crate) fn rows(&self, rows: std::ops::Range<usize>) -> PitchInputs {
        PitchInputs {
            lower: self.lower.clone().slice([rows.clone()]),
            upper: self.upper.clone().slice([rows.clone()]),
            fraction: self.fraction.clone().slice([rows.clone()]),
            targets: self.targets.clone().slice([rows]),
        }
    }

    /// Where its tensors are.
    pub(crate) fn devices(&self) -> [Device; 4] {
        [self.lower.device(), self.upper.device(), self.fraction.device(), self.targets.device()]
    }
}

impl Pitch {
    pub(crate) fn new(init: Init<'_>, config: &ModelConfig) -> Pitch {
        let pitch = &config.pitch;
        // Beside text features of unit size, small at first.
        let weight = init.at("embedding.weight").normal([1 + BINS, config.decoder.width], 0.1);
        Pitch {
            projection: Linear::new(init.at("projection"), config.text.width, pitch.width),
            predictor: Regressor::new(init.at("predictor"), pitch, config.speaker.width, PITCH_VALUES, 0.1),
            embedding: Embedding { weight },
        }
    }

    /// The vectors of pitches, `[rows, positions, decoder width]`.
    pub(crate) fn embed(&self, pitch: &PitchInputs) -> Tensor<3> {
        let weight = self.embedding.weight.val();
        let lower = embedding(weight.clone(), pitch.lower.clone());
        let upper = embedding(weight, pitch.upper.clone());
        lower.clone() + (upper - lower) * pitch.fraction.clone()
    }
}

/// Pitches in Hz of predictions `[rows, positions, 2]`, 0 where there is none.
pub(crate) fn decode(predicted: Tensor<3>) -> Vec<f32> {
    let values = predicted.into_data().try_into_vec::<f32>().expect("pitch is single precision");
    let hz = |values: &[f32]| if values[1] >= 0.5 { hz_of(values[0]) } else { 0.0 };
    values.chunks(PITCH_VALUES).map(hz).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pitch_is_between_its_bins_and_decodes_to_itself() {
        let device = Device::flex();
        let hz = [0.0, 65.0, 100.0, 200.0, 333.0, 500.0, 900.0, 20.0];
        let inputs = PitchInputs::new(&hz, 2, &device);
        let [lower, upper] =
            [inputs.lower, inputs.upper].map(|bins| bins.into_data().iter::<i32>().collect::<Vec<_>>());
        let fraction = inputs.fraction.into_data().iter::<f32>().collect::<Vec<_>>();
        for (n, &hz) in hz.iter().enumerate().skip(1) {
            let place = lower[n] as f32 - 1.0 + fraction[n];
            let there = 65.0 * (500.0f32 / 65.0).powf(place / (BINS - 1) as f32);
            assert!((there / hz.clamp(65.0, 500.0) - 1.0).abs() < 1e-4, "{hz}: {there}");
            assert!(upper[n] == lower[n] + 1 && upper[n] as usize <= BINS && lower[n] >= 1);
        }
        assert_eq!((lower[0], upper[0], fraction[0]), (0, 0, 0.0), "no pitch has a vector of its own");
        let back = decode(inputs.targets);
        for (back, hz) in back.iter().zip(hz) {
            let true_hz = if hz > 0.0 { hz.clamp(65.0, 500.0) } else { 0.0 };
            assert!((back - true_hz).abs() < 0.1, "{back} {true_hz}");
        }
    }

    #[test]
    fn a_position_has_the_pitch_of_its_frames() {
        let device = Device::flex();
        let inputs = PitchInputs::of_frames(&[100.0, 0.0, 0.0, 0.0, 200.0, 220.0], 1, 6, 2, &device);
        let hz = decode(inputs.targets);
        assert!((hz[0] - 100.0).abs() < 0.1 && hz[1] == 0.0 && (hz[2] - 210.0).abs() < 0.1, "{hz:?}");
        let none = PitchInputs::of_frames(&[], 2, 6, 2, &device);
        assert_eq!(decode(none.targets), vec![0.0; 6]);
    }
}
