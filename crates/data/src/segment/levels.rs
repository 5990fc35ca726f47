//! How loud a recording is every ten milliseconds: all that is remembered of hours of sound, 0.36 MB an hour.

use std::f64::consts::{PI, SQRT_2};

/// Frames a second.
pub(super) const FRAMES_PER_SECOND: f64 = 100.0;
/// Below this there is hum, rumble and wind, and little of a voice.
const LOWEST_HZ: f64 = 120.0;
/// The level of the value 0; a step is half a decibel.
const LOWEST_DB: f64 = -110.0;
const STEPS_PER_DB: f64 = 2.0;

/// Levels in half decibels, from -110 dBFS on, a byte for each frame of ten milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Levels(Vec<u8>);

impl Levels {
    /// From values of [`Levels::steps`].
    pub fn from_steps(steps: Vec<u8>) -> Levels {
        Levels(steps)
    }

    /// The steps, for counting.
    pub fn steps(&self) -> &[u8] {
        &self.0
    }

    /// Frames.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their length.
    pub fn seconds(&self) -> f64 {
        self.0.len() as f64 / FRAMES_PER_SECOND
    }
}

/// Steps of a level in dBFS.
pub(super) fn steps_of(db: f64) -> u8 {
    // Conversions saturate.
    ((db - LOWEST_DB) * STEPS_PER_DB).round() as u8
}

/// A level in dBFS.
pub(super) fn db_of(steps: f64) -> f64 {
    steps / STEPS_PER_DB + LOWEST_DB
}

/// Steps of so many decibels.
pub(super) const fn difference(db: f64) -> f64 {
    db * STEPS_PER_DB
}

/// The frame that a time is in.
pub(super) fn frame(seconds: f64) -> usize {
    (seconds * FRAMES_PER_SECOND).round().max(0.0) as usize
}

/// The time at which a frame begins.
pub(super) fn time(frame: usize) -> f64 {
    frame as f64 / FRAMES_PER_SECOND
}

/// Measures [`Levels`] of samples that come piece by piece.
#[derive(Debug)]
pub struct LevelMeter {
    rate: u32,
    levels: Vec<u8>,
    samples: u64,
    /// Where the frame that is being filled ends.
    frame_end: u64,
    frame_start: u64,
    power: f64,
    /// High-pass: coefficients and memory (direct form 2, transposed).
    b: [f64; 3],
    a: [f64; 2],
    z: [f64; 2],
}

impl LevelMeter {
    /// For samples of this rate.
    pub fn new(rate: u32) -> LevelMeter {
        // Butterworth, second order, by the bilinear transform.
        let k = (PI * LOWEST_HZ / f64::from(rate.max(1000))).tan();
        let norm = 1.0 / (1.0 + SQRT_2 * k + k * k);
        let mut meter = LevelMeter {
            rate: rate.max(1),
            levels: Vec::new(),
            samples: 0,
            frame_end: 0,
            frame_start: 0,
            power: 0.0,
            b: [norm, -2.0 * norm, norm],
            a: [2.0 * (k * k - 1.0) * norm, (1.0 - SQRT_2 * k + k * k) * norm],
            z: [0.0; 2],
        };
        meter.frame_end = meter.end_of(1);
        meter
    }

    /// The first sample after so many frames.
    fn end_of(&self, frames: u64) -> u64 {
        (frames * u64::from(self.rate)).div_ceil(FRAMES_PER_SECOND as u64)
    }

    /// Adds samples.
    pub fn push(&mut self, samples: &[f32]) {
        for &sample in samples {
            let x = f64::from(sample);
            let y = self.b[0] * x + self.z[0];
            self.z[0] = self.b[1] * x - self.a[0] * y + self.z[1];
            self.z[1] = self.b[2] * x - self.a[1] * y;
            self.power += y * y;
            self.samples += 1;
            if self.samples >= self.frame_end {
                self.close();
            }
        }
    }

    fn close(&mut self) {
        let count = self.samples - self.frame_start;
        let power = self.power / count.max(1) as f64;
        self.levels.push(steps_of(10.0 * power.max(1e-12).log10()));
        (self.frame_start, self.power) = (self.samples, 0.0);
        self.frame_end = self.end_of(self.levels.len() as u64 + 1);
    }

    /// What was measured.
    pub fn finish(mut self) -> Levels {
        if self.samples > self.frame_start {
            self.close();
        }
        Levels(self.levels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(hz: f64, rate: u32, seconds: f64) -> Vec<f32> {
        (0..(seconds * f64::from(rate)) as usize)
            .map(|n| (0.5 * (2.0 * PI * hz * n as f64 / f64::from(rate)).sin()) as f32)
            .collect()
    }

    #[test]
    fn frames_are_ten_milliseconds_at_any_rate_and_in_pieces_of_any_size() {
        for rate in [8000, 11_025, 22_050, 44_100, 48_000] {
            let samples = tone(1000.0, rate, 7.3);
            let mut whole = LevelMeter::new(rate);
            whole.push(&samples);
            let whole = whole.finish();
            assert!((whole.seconds() - 7.3).abs() < 0.011, "{rate}");
            let mut pieces = LevelMeter::new(rate);
            samples.chunks(317).for_each(|piece| pieces.push(piece));
            assert_eq!(pieces.finish(), whole);
            // A sine of amplitude 0.5 is -9.03 dBFS.
            assert!((db_of(f64::from(whole.steps()[300])) + 9.03).abs() < 0.5);
        }
    }

    #[test]
    fn hum_counts_little() {
        let level = |hz| {
            let mut meter = LevelMeter::new(22_050);
            meter.push(&tone(hz, 22_050, 2.0));
            db_of(f64::from(meter.finish().steps()[100]))
        };
        assert!(level(300.0) - level(50.0) > 13.0, "{} {}", level(300.0), level(50.0));
    }
}
