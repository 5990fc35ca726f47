//! CheapTrick (Morise 2015): a spectral envelope without traces of the pitch. A window of three periods, the power spectrum smoothed
//! over two thirds of the pitch, and liftering that takes back what the smoothing blurred.

use std::f64::consts::{PI, TAU};
use std::sync::Arc;

use realfft::num_complex::Complex64;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

/// Length of a transform.
pub(super) const SIZE: usize = 512;
/// Values of an envelope.
pub(super) const BINS: usize = SIZE / 2 + 1;
/// Pitch that unvoiced frames are taken to have.
const UNVOICED_HZ: f64 = 500.0;
/// Strength of the recovery, tuned by its author.
const RECOVERY: f64 = -0.15;

/// Computes envelopes; keeps its buffers.
pub(super) struct Envelope {
    rate: f64,
    forward: Arc<dyn RealToComplex<f64>>,
    inverse: Arc<dyn ComplexToReal<f64>>,
    block: Vec<f64>,
    spectrum: Vec<Complex64>,
    power: Vec<f64>,
}

impl Envelope {
    pub(super) fn new(rate: f64) -> Envelope {
        let mut planner = RealFftPlanner::new();
        let (forward, inverse) = (planner.plan_fft_forward(SIZE), planner.plan_fft_inverse(SIZE));
        let (block, spectrum) = (forward.make_input_vec(), forward.make_output_vec());
        Envelope { rate, forward, inverse, block, spectrum, power: vec![0.0; BINS] }
    }

    /// The envelope, as powers, at `seconds` of a clip whose pitch is `pitch` there.
    pub(super) fn compute(&mut self, samples: &[f64], seconds: f64, pitch: f64) -> &[f64] {
        // Below this, three periods are longer than the transform.
        let lowest = 3.0 * self.rate / (SIZE as f64 - 3.0);
        let hz = if pitch <= lowest { UNVOICED_HZ } else { pitch };
        self.window(samples, seconds, hz);
        self.forward.process(&mut self.block, &mut self.spectrum).expect("buffers of the planned length");
        for (power, bin) in self.power.iter_mut().zip(&self.spectrum) {
            *power = bin.norm_sqr();
        }
        self.fill_below(hz);
        self.smooth(hz * 2.0 / 3.0);
        self.lifter(hz);
        &self.power
    }

    /// Three periods around a moment, of unit energy and without mean.
    fn window(&mut self, samples: &[f64], seconds: f64, hz: f64) {
        let half = (1.5 * self.rate / hz).round() as isize;
        let middle = (seconds * self.rate + 0.001).round() as isize;
        let shape = |n: isize| 0.5 + 0.5 * (PI * n as f64 / 1.5 / self.rate * hz).cos();
        let energy = (-half..=half).map(|n| shape(n) * shape(n)).sum::<f64>().sqrt();
        let at = |n: isize| samples[(middle + n).clamp(0, samples.len() as isize - 1) as usize];
        let (mut sum, mut weight) = (0.0, 0.0);
        self.block.fill(0.0);
        for (value, n) in self.block.iter_mut().zip(-half..=half) {
            *value = at(n) * shape(n) / energy;
            sum += *value;
            weight += shape(n) / energy;
        }
        for (value, n) in self.block.iter_mut().zip(-half..=half) {
            *value -= shape(n) / energy * sum / weight;
        }
    }

    /// Below the pitch there is no harmonic: the mirror image of what is above is added.
    fn fill_below(&mut self, hz: f64) {
        let position = hz * SIZE as f64 / self.rate;
        let mirrored: Vec<f64> =
            (0..=position as usize).map(|bin| interpolate(&self.power, position - bin as f64)).collect();
        self.power.iter_mut().zip(mirrored).for_each(|(power, other)| *power += other);
    }

    /// Means over a width, by differences of a running sum; mirrored at both ends.
    fn smooth(&mut self, width_hz: f64) {
        let step = self.rate / SIZE as f64;
        let width = width_hz / step;
        let margin = width as usize + 1;
        let mut total = 0.0;
        let sums: Vec<f64> = (0..BINS + 2 * margin)
            .map(|n| {
                let bin = n.abs_diff(margin);
                total += self.power[if bin < BINS { bin } else { 2 * (BINS - 1) - bin }];
                total
            })
            .collect();
        for (bin, power) in self.power.iter_mut().enumerate() {
            let low = bin as f64 - width / 2.0 + margin as f64 - 0.5;
            *power = (interpolate(&sums, low + width) - interpolate(&sums, low)) / width;
        }
    }

    /// Smooths the logarithm and recovers the harmonics' levels.
    fn lifter(&mut self, hz: f64) {
        for (bin, power) in self.power.iter().enumerate() {
            // Rounding may leave a difference of running sums at zero or just below.
            let value = (power.max(0.0) + f64::EPSILON).ln();
            self.block[bin] = value;
            self.block[(SIZE - bin) % SIZE] = value;
        }
        self.forward.process(&mut self.block, &mut self.spectrum).expect("buffers of the planned length");
        for (n, value) in self.spectrum.iter_mut().enumerate() {
            let phase = PI * hz * n as f64 / self.rate;
            let smoothing = if n == 0 { 1.0 } else { phase.sin() / phase };
            let recovery = 1.0 - 2.0 * RECOVERY + 2.0 * RECOVERY * (2.0 * phase).cos();
            *value = Complex64::new(value.re * smoothing * recovery / SIZE as f64, 0.0);
        }
        self.inverse.process(&mut self.spectrum, &mut self.block).expect("buffers of the planned length");
        self.power.iter_mut().zip(&self.block).for_each(|(power, log)| *power = log.exp());
    }
}

/// The value between two of a list.
fn interpolate(values: &[f64], position: f64) -> f64 {
    let base = position as usize;
    values[base] + (values[base + 1] - values[base]) * (position - base as f64)
}

/// Used by the pitch as well: the Nuttall window.
pub(super) fn nuttall(length: usize) -> impl Iterator<Item = f64> {
    (0..length).map(move |n| {
        let phase = TAU * n as f64 / (length as f64 - 1.0);
        0.355768 - 0.487396 * phase.cos() + 0.144232 * (2.0 * phase).cos() - 0.012604 * (3.0 * phase).cos()
    })
}
