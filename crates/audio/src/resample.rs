//! Whole clips to another rate.

use rubato::audioadapter_buffers::direct::SequentialSlice;
use rubato::{Fft, FixedSync, Resampler as _, WindowFunction};

use crate::decode::AudioError;

/// About how many input samples go into a transform: enough for speed, few enough for little memory.
const CHUNK: usize = 2048;

/// Resamples whole clips from one rate to another; keeps its state and buffers for the next clip.
pub struct Resampler {
    from: u32,
    to: u32,
    fft: Fft<f32>,
    output: Vec<f32>,
}

impl Resampler {
    /// From one rate to another. The smallest exchange of whole samples must fit a transform: rates without a common
    /// factor need as much memory as they are high.
    ///
    /// # Errors
    ///
    /// [`AudioError::Rate`] if a rate is 0, or if the two have no workable ratio.
    pub fn new(from: u32, to: u32) -> Result<Resampler, AudioError> {
        if from == 0 || to == 0 {
            return Err(AudioError::Rate(0));
        }
        // The library's delay is half the output of a transform, rounded down: with an odd output every sample would
        // come half a sample late. So the transform holds an even number of the smallest exchange of whole samples.
        let smallest = from as usize / gcd(from, to) as usize;
        let chunk = smallest * (CHUNK / smallest).max(1).next_multiple_of(2);
        let window = WindowFunction::BlackmanHarris2;
        let fft = Fft::new_custom(from as usize, to as usize, chunk, 1, 1, window, FixedSync::Both)
            .map_err(|_| AudioError::Rate(from))?;
        Ok(Resampler { from, to, fft, output: Vec::new() })
    }

    /// The rates it was made for: from, to.
    pub fn rates(&self) -> (u32, u32) {
        (self.from, self.to)
    }

    /// Replaces the samples from `start` on by their resampled form, `ceil(n * to / from)` long.
    ///
    /// # Panics
    ///
    /// If `start` is beyond the end of `samples`.
    pub fn resample(&mut self, samples: &mut Vec<f32>, start: usize) {
        let length = samples.len() - start;
        self.fft.reset();
        self.output.resize(self.fft.process_all_needed_output_len(length), 0.0);
        let produced = {
            let input = SequentialSlice::new(&samples[start..], 1, length).expect("one channel of this length");
            let room = self.output.len();
            let mut output = SequentialSlice::new_mut(&mut self.output, 1, room).expect("one channel of this length");
            let (_, produced) = self
                .fft
                .process_all_into_buffer(&input, &mut output, length, None)
                .expect("buffers of the needed size");
            produced
        };
        // The library rounds the product of two floats; whole numbers say exactly how long it is.
        let exact = (length as u64 * u64::from(self.to)).div_ceil(u64::from(self.from)) as usize;
        samples.truncate(start);
        samples.extend_from_slice(&self.output[..produced.min(exact)]);
        samples.resize(start + exact, 0.0);
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl std::fmt::Debug for Resampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Resampler({} -> {})", self.from, self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(rate: u32, hertz: f64, seconds: f64) -> Vec<f32> {
        let step = std::f64::consts::TAU * hertz / f64::from(rate);
        (0..(seconds * f64::from(rate)) as usize).map(|n| (0.5 * (n as f64 * step).sin()) as f32).collect()
    }

    #[test]
    fn a_tone_stays_the_same_tone_in_place_and_length() {
        for (from, to) in [(44_100, 22_050), (48_000, 22_050), (16_000, 22_050), (8_000, 22_050), (22_050, 16_000)] {
            let mut resampler = Resampler::new(from, to).expect("a ratio");
            for _ in 0..2 {
                let input = tone(from, 440.0, 0.7);
                let mut samples = vec![9.0; 3];
                samples.extend_from_slice(&input);
                resampler.resample(&mut samples, 3);
                assert_eq!(samples[..3], [9.0; 3], "what is before stays");
                let expected = tone(to, 440.0, 0.7);
                assert_eq!(samples.len() - 3, (input.len() as u64 * u64::from(to)).div_ceil(u64::from(from)) as usize);
                let worst = (samples[3..].iter().zip(&expected).skip(500).take(expected.len() - 1000))
                    .map(|(a, b)| (a - b).abs())
                    .max_by(f32::total_cmp)
                    .expect("samples");
                assert!(worst < 1e-3, "{from} -> {to}: {worst}");
            }
        }
    }

    #[test]
    fn a_rate_of_zero_is_refused() {
        for (from, to) in [(0, 22_050), (22_050, 0), (0, 0)] {
            assert!(matches!(Resampler::new(from, to), Err(AudioError::Rate(0))), "{from} -> {to}");
        }
        let mut nothing = Vec::new();
        Resampler::new(44_100, 22_050).expect("a ratio").resample(&mut nothing, 0);
        assert!(nothing.is_empty());
    }

    #[test]
    fn a_tone_above_the_new_limit_is_removed() {
        let mut samples = tone(44_100, 15_000.0, 0.5);
        Resampler::new(44_100, 22_050).expect("a ratio").resample(&mut samples, 0);
        let loudest = samples[500..samples.len() - 500].iter().map(|x| x.abs()).max_by(f32::total_cmp);
        let loudest = loudest.expect("samples");
        assert!(loudest < 2e-3, "{loudest}");
    }
}
