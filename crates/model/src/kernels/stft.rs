//! Short-time Fourier transforms with gradients: magnitudes of a waveform (what spectral losses compare), and the inverse.
//! Here are their shapes and the fast transforms of the CPU; `composed.rs` has both as matrix products.
//!
//! Both are linear up to the magnitude, so that a gradient is the adjoint transform: no result is kept for it.

use std::sync::Arc;

use rayon::prelude::*;
use realfft::num_complex::Complex32;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

/// Added to squared magnitudes: gradients stay finite in silence, and what is below a thousandth does not count in logarithms.
pub(super) const SQUARED_FLOOR: f32 = 1e-6;
/// Overlapping windows sum to at least this before they are divided by; less is only at the ends, which are padding.
const LEAST_WEIGHT: f32 = 1e-3;

/// Frames of a short-time Fourier transform: `n_fft` samples with a Hann window of `win_length` in their middle, every `hop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stft {
    /// Samples of a frame; even.
    pub n_fft: usize,
    /// Samples from one frame to the next.
    pub hop: usize,
    /// Samples of the window.
    pub win_length: usize,
}

impl Stft {
    /// Bins of a frame.
    pub fn bins(&self) -> usize {
        self.n_fft / 2 + 1
    }

    /// Whole frames of so many samples.
    pub fn frames(&self, samples: usize) -> usize {
        samples.checked_sub(self.n_fft).map_or(0, |rest| 1 + rest / self.hop)
    }

    /// Samples of so many frames.
    pub fn samples(&self, frames: usize) -> usize {
        frames.checked_sub(1).map_or(0, |last| last * self.hop + self.n_fft)
    }

    pub(super) fn window(&self) -> Vec<f32> {
        let mut window = vec![0.0; self.n_fft];
        let start = (self.n_fft - self.win_length) / 2;
        for (n, value) in window[start..start + self.win_length].iter_mut().enumerate() {
            *value = (0.5 - 0.5 * (std::f64::consts::TAU * n as f64 / self.win_length as f64).cos()) as f32;
        }
        window
    }

    /// What the inverse multiplies each sample by: one over the sum of the squared windows that overlap there.
    pub(super) fn inverse_weights(&self, frames: usize) -> Vec<f32> {
        let window = self.window();
        let mut weights = vec![0.0f32; self.samples(frames)];
        for frame in 0..frames {
            for (weight, w) in weights[frame * self.hop..].iter_mut().zip(&window) {
                *weight += w * w;
            }
        }
        weights.iter_mut().for_each(|weight| *weight = 1.0 / weight.max(LEAST_WEIGHT));
        weights
    }

    fn forward(&self) -> (Arc<dyn RealToComplex<f32>>, Vec<f32>) {
        (RealFftPlanner::new().plan_fft_forward(self.n_fft), self.window())
    }

    fn backward(&self) -> (Arc<dyn ComplexToReal<f32>>, Vec<f32>) {
        (RealFftPlanner::new().plan_fft_inverse(self.n_fft), self.window())
    }
}

/// Buffers of one frame.
struct Frame {
    samples: Vec<f32>,
    spectrum: Vec<Complex32>,
    scratch: Vec<Complex32>,
}

impl Frame {
    fn new(shape: &Stft, scratch: usize) -> Frame {
        Frame {
            samples: vec![0.0; shape.n_fft],
            spectrum: vec![Complex32::default(); shape.bins()],
            scratch: vec![Complex32::default(); scratch],
        }
    }

    /// The spectrum of windowed samples.
    fn transform(&mut self, fft: &dyn RealToComplex<f32>, samples: &[f32], window: &[f32]) {
        for ((value, sample), weight) in self.samples.iter_mut().zip(samples).zip(window) {
            *value = sample * weight;
        }
        fft.process_with_scratch(&mut self.samples, &mut self.spectrum, &mut self.scratch)
            .expect("buffers of the planned length");
    }

    /// The samples of the spectrum, not divided by anything.
    fn inverse(&mut self, fft: &dyn ComplexToReal<f32>) {
        let last = self.spectrum.len() - 1;
        (self.spectrum[0].im, self.spectrum[last].im) = (0.0, 0.0);
        fft.process_with_scratch(&mut self.spectrum, &mut self.samples, &mut self.scratch)
            .expect("buffers of the planned length");
    }

    /// Adds the windowed samples to a waveform.
    fn add_to(&self, out: &mut [f32], window: &[f32], scale: f32) {
        for ((out, value), weight) in out.iter_mut().zip(&self.samples).zip(window) {
            *out += scale * value * weight;
        }
    }
}

fn magnitude(z: Complex32) -> f32 {
    (z.norm_sqr() + SQUARED_FLOOR).sqrt()
}

/// Magnitudes `[rows, frames, bins]` of waveforms `[rows, samples]`.
pub(super) fn magnitudes(shape: &Stft, x: &[f32], samples: usize) -> Vec<f32> {
    let (fft, window) = shape.forward();
    let (frames, bins) = (shape.frames(samples), shape.bins());
    let mut out = vec![0.0; x.len() / samples.max(1) * frames * bins];
    out.par_chunks_mut((frames * bins).max(1)).zip(x.par_chunks(samples.max(1))).for_each(|(out, x)| {
        let mut frame = Frame::new(shape, fft.get_scratch_len());
        for (n, out) in out.chunks_exact_mut(bins).enumerate() {
            frame.transform(&*fft, &x[n * shape.hop..], &window);
            out.iter_mut().zip(&frame.spectrum).for_each(|(out, z)| *out = magnitude(*z));
        }
    });
    out
}

/// Gradient of [`magnitudes`] for the waveforms.
pub(super) fn magnitudes_backward(shape: &Stft, x: &[f32], samples: usize, grad: &[f32]) -> Vec<f32> {
    let ((fft, window), (inverse, _)) = (shape.forward(), shape.backward());
    let (frames, bins) = (shape.frames(samples), shape.bins());
    let mut out = vec![0.0; x.len()];
    let rows = grad.par_chunks((frames * bins).max(1)).zip(x.par_chunks(samples.max(1)));
    out.par_chunks_mut(samples.max(1)).zip(rows).for_each(|(out, (grad, x))| {
        let mut frame = Frame::new(shape, fft.get_scratch_len().max(inverse.get_scratch_len()));
        for (n, grad) in grad.chunks_exact(bins).enumerate() {
            frame.transform(&*fft, &x[n * shape.hop..], &window);
            for (bin, (z, grad)) in frame.spectrum.iter_mut().zip(grad).enumerate() {
                // The inverse transform counts each bin but the first and the last twice, the adjoint does not.
                let twice = if bin == 0 || bin == bins - 1 { 1.0 } else { 0.5 };
                *z *= twice * grad / magnitude(*z);
            }
            frame.inverse(&*inverse);
            frame.add_to(&mut out[n * shape.hop..], &window, 1.0);
        }
    });
    out
}

/// Waveforms `[rows, samples]` of spectra `[rows, frames, 2 bins]`, real parts before imaginary ones.
pub(super) fn inverse(shape: &Stft, spectra: &[f32], frames: usize) -> Vec<f32> {
    let (fft, window) = shape.backward();
    let (bins, samples) = (shape.bins(), shape.samples(frames));
    let weights = shape.inverse_weights(frames);
    let row = (frames * 2 * bins).max(1);
    let mut out = vec![0.0; spectra.len() / row * samples];
    out.par_chunks_mut(samples.max(1)).zip(spectra.par_chunks(row)).for_each(|(out, spectra)| {
        let mut frame = Frame::new(shape, fft.get_scratch_len());
        for (n, spectrum) in spectra.chunks_exact(2 * bins).enumerate() {
            for (z, (re, im)) in frame.spectrum.iter_mut().zip(spectrum[..bins].iter().zip(&spectrum[bins..])) {
                *z = Complex32::new(*re, *im);
            }
            frame.inverse(&*fft);
            frame.add_to(&mut out[n * shape.hop..], &window, 1.0 / shape.n_fft as f32);
        }
        out.iter_mut().zip(&weights).for_each(|(out, weight)| *out *= weight);
    });
    out
}

/// Gradient of [`inverse`] for the spectra.
pub(super) fn inverse_backward(shape: &Stft, grad: &[f32], frames: usize) -> Vec<f32> {
    let (fft, window) = shape.forward();
    let (bins, samples) = (shape.bins(), shape.samples(frames));
    let weights = shape.inverse_weights(frames);
    let row = frames * 2 * bins;
    let mut out = vec![0.0; grad.len() / samples.max(1) * row];
    out.par_chunks_mut(row.max(1)).zip(grad.par_chunks(samples.max(1))).for_each(|(out, grad)| {
        let mut frame = Frame::new(shape, fft.get_scratch_len());
        let grad: Vec<f32> = grad.iter().zip(&weights).map(|(grad, weight)| grad * weight).collect();
        for (n, out) in out.chunks_exact_mut(2 * bins).enumerate() {
            frame.transform(&*fft, &grad[n * shape.hop..], &window);
            let (real, imaginary) = out.split_at_mut(bins);
            for (bin, z) in frame.spectrum.iter().enumerate() {
                let edge = bin == 0 || bin == bins - 1;
                let scale = if edge { 1.0 } else { 2.0 } / shape.n_fft as f32;
                real[bin] = scale * z.re;
                // A real signal has none there.
                imaginary[bin] = if edge { 0.0 } else { scale * z.im };
            }
        }
    });
    out
}
