//! F0 of speech on the grid of the mel: Boersma's autocorrelation (1993) with a Viterbi search over its peaks.
//!
//! A frame is a Hann window of three periods of the lowest pitch, at a decimated rate. Its autocorrelation, divided by the
//! window's own, has peaks at the periods it may have; a path through the frames' peaks, or through "unvoiced", is chosen
//! for strong peaks and few jumps. Nothing is allocated for a frame, and the same samples always give the same values.

#[cfg(test)]
mod tests;

use std::f32::consts::{PI, TAU};
use std::fmt;
use std::sync::Arc;

use realfft::num_complex::Complex32;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

/// Lowest and highest pitch that is looked for, in Hz: from a low man's voice to a child's.
const RANGE_HZ: [f32; 2] = [65.0, 500.0];
/// The rate that samples are decimated to is at least this: harmonics up to 3.5 kHz are left.
const RATE: u32 = 7000;
/// Peaks kept of a frame.
const PEAKS: usize = 6;
/// Strength that a peak needs to be voiced rather than not (Praat: 0.45). Ours are stronger, because what is above
/// 2 kHz, where voices are half noise, hardly counts.
const VOICING: f32 = 0.50;
/// A frame this much quieter than the loudest (amplitudes) is probably silence.
const SILENCE: f32 = 0.01;
/// Advantage of a period over one twice as long, whose peak is as high.
const OCTAVE_COST: f32 = 0.02;
/// Cost of a jump of an octave from one frame to the next, if frames were 10 ms apart.
const JUMP_COST: f32 = 0.35;
/// Cost of a change between voiced and unvoiced, likewise.
const CHANGE_COST: f32 = 0.14;

/// F0 of speech, frame by frame, on the grid of the mel: peaks of the autocorrelation and a Viterbi search over them.
/// Keeps its buffers: make one for each thread.
///
/// ```
/// let tone: Vec<f32> = (0..22_050).map(|n| (n as f32 * 200.0 * std::f32::consts::TAU / 22_050.0).sin()).collect();
/// let pitch = tandem_audio::PitchTracker::new(22_050, 256).track(&tone, 87);
/// assert_eq!(pitch.len(), 87);
/// assert!((pitch[40] - 200.0).abs() < 0.5);
/// ```
pub struct PitchTracker {
    /// Samples of the clip for one of `signal`.
    factor: usize,
    hop_length: usize,
    /// Of `signal`, in Hz.
    rate: f32,
    /// Shortest and longest period, in samples of `signal`.
    lags: [usize; 2],
    low_pass: Vec<f32>,
    window: Vec<f32>,
    /// The window's autocorrelation at each lag, inverted.
    window_lags: Vec<f32>,
    /// How much each bin of the power spectrum counts.
    weights: Vec<f32>,
    forward: Arc<dyn RealToComplex<f32>>,
    inverse: Arc<dyn ComplexToReal<f32>>,
    costs: Costs,
    buffers: Buffers,
}

/// Costs of a step between two frames.
#[derive(Clone, Copy)]
struct Costs {
    jump: f32,
    change: f32,
}

/// Reused from clip to clip.
#[derive(Default)]
struct Buffers {
    clip: Vec<f32>,
    signal: Vec<f32>,
    block: Vec<f32>,
    spectrum: Vec<Complex32>,
    scratch: Vec<Complex32>,
    correlation: Vec<f32>,
    frames: Vec<Frame>,
}

/// A period that a frame may have.
#[derive(Clone, Copy, Default)]
struct Peak {
    /// In octaves above 1 Hz.
    octave: f32,
    strength: f32,
}

/// What is known about a frame: its peaks, the strongest first, and the best way to each of them.
#[derive(Clone, Copy, Default)]
struct Frame {
    amplitude: f32,
    peaks: [Peak; PEAKS],
    count: usize,
    /// The peak before, for each peak and last for "unvoiced"; `PEAKS` is "unvoiced".
    from: [u8; PEAKS + 1],
}

impl PitchTracker {
    /// For samples of this rate and frames this many samples apart. Looks for 65 to 500 Hz.
    pub fn new(sample_rate: u32, hop_length: usize) -> PitchTracker {
        let factor = (sample_rate / RATE).max(1) as usize;
        let rate = sample_rate.max(1) as f32 / factor as f32;
        let lags = [(rate / RANGE_HZ[1]).floor().max(2.0) as usize, (rate / RANGE_HZ[0]).ceil() as usize];
        // Odd, so that a frame has a sample in its middle.
        let length = (3 * lags[1]) | 1;
        let window: Vec<f32> =
            (0..length).map(|n| 0.5 - 0.5 * (TAU * (n + 1) as f32 / (length + 1) as f32).cos()).collect();
        let correlate = |lag: usize| window.iter().zip(&window[lag.min(length)..]).map(|(a, b)| a * b).sum::<f32>();
        let energy = correlate(0);
        let window_lags = (0..=lags[1] + 1).map(|lag| energy / correlate(lag).max(f32::MIN_POSITIVE)).collect();
        let size = transform_size(length + lags[1] + 2);
        let mut planner = RealFftPlanner::new();
        let (forward, inverse) = (planner.plan_fft_forward(size), planner.plan_fft_inverse(size));
        let weights = (0..=size / 2).map(|bin| weight(bin as f32 * rate / size as f32)).collect();
        let seconds = hop_length.max(1) as f32 / sample_rate.max(1) as f32;
        let buffers = Buffers {
            block: forward.make_input_vec(),
            spectrum: forward.make_output_vec(),
            scratch: vec![Complex32::default(); forward.get_scratch_len().max(inverse.get_scratch_len())],
            correlation: inverse.make_output_vec(),
            ..Buffers::default()
        };
        PitchTracker {
            factor,
            hop_length: hop_length.max(1),
            rate,
            lags,
            low_pass: low_pass(factor),
            window,
            window_lags,
            weights,
            forward,
            inverse,
            costs: Costs { jump: JUMP_COST * 0.01 / seconds, change: CHANGE_COST * 0.01 / seconds },
            buffers,
        }
    }

    /// Hz of each of `frames` frames (frame `n` is centered on sample `n * hop_length`), 0.0 where unvoiced. Values that are
    /// not finite count as silence, and so does what is beyond the end.
    pub fn track(&mut self, samples: &[f32], frames: usize) -> Vec<f32> {
        let mut buffers = std::mem::take(&mut self.buffers);
        self.decimate(samples, &mut buffers);
        buffers.frames.clear();
        for frame in 0..frames {
            let center = (frame * self.hop_length + self.factor / 2) / self.factor;
            let found = self.peaks(center, &mut buffers);
            buffers.frames.push(found);
        }
        let pitch = best_path(&mut buffers.frames, self.costs);
        self.buffers = buffers;
        pitch
    }

    /// The clip without its mean, at its peak's level, through the low-pass, one sample of `factor`; half a window of silence
    /// before and after it.
    fn decimate(&self, samples: &[f32], buffers: &mut Buffers) {
        let finite = |&x: &f32| if x.is_finite() { x } else { 0.0 };
        let mean = samples.iter().map(|x| f64::from(finite(x))).sum::<f64>() / samples.len().max(1) as f64;
        let level = samples.iter().map(|x| (f64::from(finite(x)) - mean).abs()).fold(0.0, f64::max);
        let scale = if level > 0.0 { 1.0 / level } else { 0.0 };
        let (around, margin) = (self.low_pass.len() / 2, self.window.len() / 2);
        buffers.clip.clear();
        buffers.clip.resize(around, 0.0);
        buffers.clip.extend(samples.iter().map(|x| ((f64::from(finite(x)) - mean) * scale) as f32));
        buffers.clip.resize(buffers.clip.len() + around, 0.0);
        buffers.signal.clear();
        buffers.signal.resize(margin, 0.0);
        if self.factor == 1 {
            buffers.signal.extend_from_slice(&buffers.clip[around..around + samples.len()]);
        } else {
            let windows = (0..samples.len()).step_by(self.factor).map(|n| &buffers.clip[n..n + self.low_pass.len()]);
            buffers.signal.extend(windows.map(|window| dot(window, &self.low_pass)));
        }
        buffers.signal.resize(buffers.signal.len() + margin, 0.0);
    }

    /// Peaks of the autocorrelation of the frame in whose middle sample `center` of the decimated clip is.
    fn peaks(&self, center: usize, buffers: &mut Buffers) -> Frame {
        let mut found = Frame::default();
        let Some(samples) = buffers.signal.get(center..center + self.window.len()) else { return found };
        let Buffers { block, spectrum, scratch, correlation, .. } = buffers;
        for (value, (sample, weight)) in block.iter_mut().zip(samples.iter().zip(&self.window)) {
            *value = sample * weight;
        }
        block[samples.len()..].fill(0.0);
        self.forward.process_with_scratch(block, spectrum, scratch).expect("buffers of the planned length");
        for (bin, weight) in spectrum.iter_mut().zip(&self.weights) {
            *bin = Complex32::new(bin.norm_sqr() * weight, 0.0);
        }
        self.inverse.process_with_scratch(spectrum, correlation, scratch).expect("buffers of the planned length");
        let energy = correlation[0];
        // Below -120 dB of the clip's peak there is nothing but rounding.
        let silent = 1e-12 * (block.len() * samples.len()) as f32;
        if energy.is_nan() || energy <= silent {
            return found;
        }
        found.amplitude = energy.sqrt();
        for (value, window) in correlation.iter_mut().zip(&self.window_lags) {
            *value *= window / energy;
        }
        for lag in self.lags[0]..=self.lags[1] {
            let [before, here, after] = [correlation[lag - 1], correlation[lag], correlation[lag + 1]];
            if here > 0.3 * VOICING && here > before && here >= after {
                // The parabola through the three.
                let (slope, curve) = (0.5 * (after - before), 2.0 * here - before - after);
                let period = lag as f32 + slope / curve;
                let octave = (self.rate / period).log2();
                let height = (here + 0.5 * slope * slope / curve).min(1.0);
                found.keep(Peak { octave, strength: height + OCTAVE_COST * (octave - RANGE_HZ[0].log2()) });
            }
        }
        found
    }
}

impl fmt::Debug for PitchTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PitchTracker")
            .field("factor", &self.factor)
            .field("hop_length", &self.hop_length)
            .field("rate", &self.rate)
            .finish_non_exhaustive()
    }
}

impl Frame {
    /// Keeps a peak if it is among the strongest; the first of equal ones stays first.
    fn keep(&mut self, peak: Peak) {
        let place =
            self.peaks[..self.count].iter().position(|other| other.strength < peak.strength).unwrap_or(self.count);
        if place < PEAKS {
            self.peaks[place..].rotate_right(1);
            self.peaks[place] = peak;
            self.count = (self.count + 1).min(PEAKS);
        }
    }
}

/// The strongest path through the peaks of the frames, in Hz, 0.0 where it is unvoiced.
fn best_path(frames: &mut [Frame], costs: Costs) -> Vec<f32> {
    let loudest = frames.iter().map(|frame| frame.amplitude).fold(0.0, f32::max);
    let mut before: Option<(Frame, [f32; PEAKS + 1])> = None;
    for frame in frames.iter_mut() {
        // Quiet frames need more than strong peaks to be voiced.
        let quiet = 2.0 - frame.amplitude / (loudest * SILENCE).max(f32::MIN_POSITIVE);
        let mut scores = [f32::NEG_INFINITY; PEAKS + 1];
        scores[PEAKS] = VOICING + quiet.max(0.0);
        for (score, peak) in scores.iter_mut().zip(&frame.peaks[..frame.count]) {
            *score = peak.strength;
        }
        if let Some((last, totals)) = before {
            for to in (0..frame.count).chain([PEAKS]) {
                let (mut best, mut from) = (f32::NEG_INFINITY, PEAKS);
                for way in (0..last.count).chain([PEAKS]) {
                    let cost = match (way == PEAKS, to == PEAKS) {
                        (true, true) => 0.0,
                        (false, false) => costs.jump * (last.peaks[way].octave - frame.peaks[to].octave).abs(),
                        _ => costs.change,
                    };
                    if totals[way] - cost > best {
                        (best, from) = (totals[way] - cost, way);
                    }
                }
                scores[to] += best;
                frame.from[to] = from as u8;
            }
        }
        // Totals stay small however long the clip is.
        let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        before = Some((*frame, scores.map(|score| score - highest)));
    }
    let Some((_, totals)) = before else { return Vec::new() };
    let mut at = (0..=PEAKS).rev().max_by(|&a, &b| totals[a].total_cmp(&totals[b])).unwrap_or(PEAKS);
    let mut pitch = vec![0.0; frames.len()];
    for (hz, frame) in pitch.iter_mut().zip(frames.iter()).rev() {
        if at < PEAKS {
            *hz = frame.peaks[at].octave.exp2().clamp(RANGE_HZ[0], RANGE_HZ[1]);
        }
        at = usize::from(frame.from[at]);
    }
    pitch
}

/// How much of the power at a frequency counts: no hum, all up to 1.5 kHz, nothing from 3.5 kHz on. Above, voices are noisy, and
/// peaks of the autocorrelation would be narrower than a parabola through three samples can follow.
fn weight(hz: f32) -> f32 {
    let ramp = |from: f32, to: f32| 0.5 - 0.5 * (PI * ((hz - from) / (to - from)).clamp(0.0, 1.0)).cos();
    ramp(30.0, 60.0) * (1.0 - ramp(1500.0, 3500.0))
}

/// A windowed sinc that lets pass what the decimated rate can hold, 12 samples of that rate long.
fn low_pass(factor: usize) -> Vec<f32> {
    if factor == 1 {
        return vec![1.0];
    }
    let around = (6 * factor) as isize;
    let tap = |n: isize| {
        let x = 0.9 * PI * n as f32 / factor as f32;
        let sinc = if n == 0 { 1.0 } else { x.sin() / x };
        sinc * (0.5 + 0.5 * (PI * n as f32 / (around + 1) as f32).cos())
    };
    let sum: f32 = (-around..=around).map(tap).sum();
    (-around..=around).map(|n| tap(n) / sum).collect()
}

/// The smallest length from here on whose transform is fast: a power of two, or three of them.
fn transform_size(at_least: usize) -> usize {
    let two = at_least.next_power_of_two().max(16);
    if 3 * two / 4 >= at_least { 3 * two / 4 } else { two }
}

/// Eight sums side by side, which the compiler turns into vectors.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = a8.remainder().iter().zip(b8.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in a8.zip(b8) {
        for lane in 0..8 {
            sums[lane] += x[lane] * y[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}
