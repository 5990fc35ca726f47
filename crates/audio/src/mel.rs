//! Samples to log-mel frames, equal to librosa's.

use std::fmt;
use std::sync::Arc;

use realfft::num_complex::Complex32;
use realfft::{RealFftPlanner, RealToComplex};
use serde::{Deserialize, Serialize};

use crate::simd::{Scratch, Wide};

/// What a mel spectrogram is made of. The defaults are those of most English voices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MelSettings {
    /// Samples per second.
    pub sample_rate: u32,
    /// Length of a transform.
    pub n_fft: usize,
    /// Samples between two frames.
    pub hop_length: usize,
    /// Length of the Hann window, centred in the transform.
    pub win_length: usize,
    /// Number of mel filters.
    pub n_mels: usize,
    /// Lowest frequency.
    pub fmin: f32,
    /// Highest frequency.
    pub fmax: f32,
    /// Squares the magnitudes before the filters.
    pub power: bool,
    /// Values below this count as this before the logarithm.
    pub floor: f32,
    /// What lies beyond the ends of a clip.
    pub padding: Padding,
}

/// What lies beyond the ends of a clip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Padding {
    /// Its mirror image.
    #[default]
    Reflect,
    /// Silence.
    Zero,
}

impl Default for MelSettings {
    fn default() -> Self {
        MelSettings {
            sample_rate: 22_050,
            n_fft: 1024,
            hop_length: 256,
            win_length: 1024,
            n_mels: 80,
            fmin: 0.0,
            fmax: 8000.0,
            power: false,
            floor: 1e-5,
            padding: Padding::Reflect,
        }
    }
}

impl MelSettings {
    /// Frames of a clip of this many samples.
    ///
    /// # Panics
    ///
    /// If `hop_length` is 0, which [`MelSettings::check`] refuses.
    pub fn frames(&self, samples: usize) -> usize {
        1 + samples / self.hop_length
    }

    /// Samples that a clip's buffer must have room for before the clip (see [`LogMel::compute_into`]).
    pub fn padding_samples(&self) -> usize {
        self.n_fft / 2
    }

    /// Samples that this many frames are made of, the padding at both ends included.
    pub fn signal_samples(&self, frames: usize) -> usize {
        frames.checked_sub(1).map_or(0, |last| last * self.hop_length + self.n_fft)
    }

    /// Pads the clip that begins at [`MelSettings::padding_samples`] of `buffer` as its frames need it.
    ///
    /// # Panics
    ///
    /// If `buffer` is shorter than that.
    pub fn pad(&self, buffer: &mut Vec<f32>) {
        pad(buffer, self.padding_samples(), self.padding);
    }

    /// Whether features can be made with them. [`LogMel::new`] asks too.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] says what contradicts what.
    pub fn check(&self) -> Result<(), SettingsError> {
        let fail = |what| Err(SettingsError(what));
        if self.sample_rate == 0 || self.hop_length == 0 || self.n_mels == 0 {
            return fail("sample_rate, hop_length and n_mels must be at least 1");
        }
        if self.n_fft < 16 || self.n_fft % 2 == 1 || self.n_fft > 1 << 20 {
            return fail("n_fft must be even and from 16 to 1048576");
        }
        if self.win_length == 0 || self.win_length > self.n_fft {
            return fail("win_length must be from 1 to n_fft");
        }
        if !(self.fmin >= 0.0 && self.fmin < self.fmax && self.fmax <= self.sample_rate as f32 / 2.0) {
            return fail("0 <= fmin < fmax <= sample_rate / 2 must hold");
        }
        if !(self.floor.is_normal() && self.floor > 0.0) {
            return fail("floor must be a positive number");
        }
        Ok(())
    }
}

/// Settings that contradict themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingsError(&'static str);

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl std::error::Error for SettingsError {}

/// Triangular filters on Slaney's mel scale with Slaney's normalization (librosa's default): for each, its first
/// bin and its weights. Of settings that [`MelSettings::check`] accepts; of others they mean nothing.
pub fn mel_filters(settings: &MelSettings) -> Vec<(usize, Vec<f32>)> {
    // Linear below 1 kHz, logarithmic above.
    const LINEAR: f64 = 200.0 / 3.0;
    const KNEE_HZ: f64 = 1000.0;
    const KNEE_MEL: f64 = KNEE_HZ / LINEAR;
    let log_step = 6.4f64.ln() / 27.0;
    let to_mel = |hz: f64| if hz < KNEE_HZ { hz / LINEAR } else { KNEE_MEL + (hz / KNEE_HZ).ln() / log_step };
    let to_hz = |mel: f64| if mel < KNEE_MEL { mel * LINEAR } else { KNEE_HZ * ((mel - KNEE_MEL) * log_step).exp() };
    let (low, high) = (to_mel(f64::from(settings.fmin)), to_mel(f64::from(settings.fmax)));
    let edges: Vec<f64> =
        (0..settings.n_mels + 2).map(|n| to_hz(low + (high - low) * n as f64 / (settings.n_mels + 1) as f64)).collect();
    let bin_hz = f64::from(settings.sample_rate) / settings.n_fft as f64;
    edges
        .windows(3)
        .map(|edge| {
            let weight = |bin: usize| {
                let hz = bin as f64 * bin_hz;
                let up = (hz - edge[0]) / (edge[1] - edge[0]);
                let down = (edge[2] - hz) / (edge[2] - edge[1]);
                (up.min(down).max(0.0) * 2.0 / (edge[2] - edge[0])) as f32
            };
            let weights: Vec<f32> = (0..=settings.n_fft / 2).map(weight).collect();
            // A filter narrower than a bin may be empty.
            let first = weights.iter().position(|&w| w > 0.0).unwrap_or(0);
            let last = weights.iter().rposition(|&w| w > 0.0).map_or(first, |last| last + 1);
            (first, weights[first..last].to_vec())
        })
        .collect()
}

/// The periodic Hann window, centred in `n_fft` samples.
///
/// # Panics
///
/// If `win_length` is above `n_fft`, which [`MelSettings::check`] refuses.
pub fn hann_window(settings: &MelSettings) -> Vec<f32> {
    let mut window = vec![0.0; settings.n_fft];
    let start = (settings.n_fft - settings.win_length) / 2;
    for (n, value) in window[start..start + settings.win_length].iter_mut().enumerate() {
        let phase = std::f64::consts::TAU * n as f64 / settings.win_length as f64;
        *value = (0.5 - 0.5 * phase.cos()) as f32;
    }
    window
}

/// Computes log-mel spectrograms of one kind. Keeps its buffers: make one for each thread.
pub struct LogMel {
    settings: MelSettings,
    transform: Transform,
    padded: Vec<f32>,
}

enum Transform {
    /// Lengths that are powers of two.
    Wide { wide: Arc<Wide>, scratch: Scratch, exact: Arc<Exact> },
    /// All others.
    Any { fft: Arc<dyn RealToComplex<f32>>, window: Vec<f32>, filters: Vec<(usize, Vec<f32>)> },
}

impl LogMel {
    /// For these settings.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if they contradict themselves.
    pub fn new(settings: &MelSettings) -> Result<LogMel, SettingsError> {
        settings.check()?;
        let (window, filters) = (hann_window(settings), mel_filters(settings));
        let transform = if settings.n_fft.is_power_of_two() && settings.n_fft >= 32 {
            let wide = Wide::new(settings.n_fft, settings.hop_length, window, filters, settings.power, settings.floor);
            Transform::Wide { scratch: wide.scratch(), wide: Arc::new(wide), exact: Arc::new(Exact::new(settings)) }
        } else {
            Transform::Any { fft: RealFftPlanner::new().plan_fft_forward(settings.n_fft), window, filters }
        };
        Ok(LogMel { settings: settings.clone(), transform, padded: Vec::new() })
    }

    /// The settings it was made for.
    pub fn settings(&self) -> &MelSettings {
        &self.settings
    }

    /// Another one for another thread; tables are shared.
    #[must_use]
    pub fn another(&self) -> LogMel {
        let transform = match &self.transform {
            Transform::Wide { wide, exact, .. } => {
                Transform::Wide { wide: wide.clone(), scratch: wide.scratch(), exact: exact.clone() }
            }
            Transform::Any { fft, window, filters } => {
                Transform::Any { fft: fft.clone(), window: window.clone(), filters: filters.clone() }
            }
        };
        LogMel { settings: self.settings.clone(), transform, padded: Vec::new() }
    }

    /// The log-mel of a clip: `n_mels` rows of [`MelSettings::frames`] values.
    pub fn compute(&mut self, samples: &[f32]) -> Vec<f32> {
        let frames = self.settings.frames(samples.len());
        let mut out = vec![0.0; self.settings.n_mels * frames];
        let mut padded = std::mem::take(&mut self.padded);
        padded.clear();
        padded.resize(self.settings.padding_samples(), 0.0);
        padded.extend_from_slice(samples);
        self.compute_into(&mut padded, &mut out, frames);
        self.padded = padded;
        out
    }

    /// The log-mel of the clip that begins at [`MelSettings::padding_samples`] of `buffer`; value `m` of frame `t` goes
    /// to `out[m * stride + t]`. The room before the clip and after it is filled here. Returns the number of frames.
    ///
    /// # Panics
    ///
    /// If `buffer` is shorter than the padding, or `out` too small for the frames.
    pub fn compute_into(&mut self, buffer: &mut Vec<f32>, out: &mut [f32], stride: usize) -> usize {
        let frames = self.settings.frames(buffer.len().saturating_sub(self.settings.padding_samples()));
        self.settings.pad(buffer);
        self.compute_padded(buffer, frames, out, stride);
        frames
    }

    /// The log-mel of the first `frames` frames of samples that are padded already ([`MelSettings::signal_samples`]), such as a
    /// segment of a clip; value `m` of frame `t` goes to `out[m * stride + t]`.
    ///
    /// # Panics
    ///
    /// If there are fewer samples, or `out` is too small for the frames.
    pub fn compute_padded(&mut self, buffer: &[f32], frames: usize, out: &mut [f32], stride: usize) {
        match &mut self.transform {
            Transform::Wide { wide, scratch, exact } => {
                wide.run(buffer, frames, out, stride, scratch);
                exact.repair(buffer, &scratch.doubtful, out, stride);
            }
            Transform::Any { fft, window, filters } => {
                let mut input = vec![0.0; window.len()];
                let mut spectrum = vec![Complex32::default(); window.len() / 2 + 1];
                for frame in 0..frames {
                    let signal = &buffer[frame * self.settings.hop_length..];
                    for (value, (s, w)) in input.iter_mut().zip(signal.iter().zip(window.iter())) {
                        *value = s * w;
                    }
                    fft.process(&mut input, &mut spectrum).expect("buffers of the planned length");
                    for (filter, (first, weights)) in filters.iter().enumerate() {
                        let size = |z: &Complex32| if self.settings.power { z.norm_sqr() } else { z.norm() };
                        let sum: f32 = spectrum[*first..].iter().zip(weights).map(|(z, w)| w * size(z)).sum();
                        out[filter * stride + frame] = sum.max(self.settings.floor).ln();
                    }
                }
            }
        }
    }
}

impl fmt::Debug for LogMel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogMel").field(&self.settings).finish()
    }
}

/// The same in double precision, for the few frames that need it: recordings have noise, but synthetic and
/// compressed speech has bands so far below the loudest that single precision loses them.
struct Exact {
    settings: MelSettings,
    window: Vec<f64>,
    filters: Vec<(usize, Vec<f32>)>,
    fft: Arc<dyn RealToComplex<f64>>,
}

impl Exact {
    fn new(settings: &MelSettings) -> Exact {
        Exact {
            settings: settings.clone(),
            window: hann_window(settings).into_iter().map(f64::from).collect(),
            filters: mel_filters(settings),
            fft: RealFftPlanner::new().plan_fft_forward(settings.n_fft),
        }
    }

    fn repair(&self, buffer: &[f32], frames: &[usize], out: &mut [f32], stride: usize) {
        if frames.is_empty() {
            return;
        }
        let (mut input, mut spectrum) = (self.fft.make_input_vec(), self.fft.make_output_vec());
        let mut scratch = self.fft.make_scratch_vec();
        for &frame in frames {
            let signal = &buffer[frame * self.settings.hop_length..];
            for (value, (sample, weight)) in input.iter_mut().zip(signal.iter().zip(&self.window)) {
                *value = f64::from(*sample) * weight;
            }
            self.fft
                .process_with_scratch(&mut input, &mut spectrum, &mut scratch)
                .expect("buffers of the planned length");
            for (filter, (first, weights)) in self.filters.iter().enumerate() {
                let sum: f64 = (spectrum[*first..].iter().zip(weights))
                    .map(|(z, &w)| f64::from(w) * if self.settings.power { z.norm_sqr() } else { z.norm() })
                    .sum();
                out[filter * stride + frame] = sum.max(f64::from(self.settings.floor)).ln() as f32;
            }
        }
    }
}

/// Fills the `padding` samples before the clip and appends as many after it.
fn pad(buffer: &mut Vec<f32>, padding: usize, kind: Padding) {
    assert!(buffer.len() >= padding, "a buffer of {} samples has no room for {padding} before the clip", buffer.len());
    let samples = buffer.len() - padding;
    buffer.resize(buffer.len() + padding, 0.0);
    match kind {
        Padding::Zero => buffer[..padding].fill(0.0),
        // A clip shorter than the padding is mirrored again and again, as numpy does it.
        Padding::Reflect if samples > padding => {
            for n in 0..padding {
                buffer[padding - 1 - n] = buffer[padding + 1 + n];
                buffer[padding + samples + n] = buffer[padding + samples - 2 - n];
            }
        }
        Padding::Reflect if samples <= 1 => {
            let only = buffer[padding..padding + samples].first().copied().unwrap_or(0.0);
            buffer.fill(only);
        }
        Padding::Reflect => {
            let period = 2 * (samples - 1);
            let mirrored = |at: isize| {
                let n = at.rem_euclid(period as isize) as usize;
                if n < samples { n } else { period - n }
            };
            for n in 0..padding {
                buffer[n] = buffer[padding + mirrored(n as isize - padding as isize)];
                buffer[padding + samples + n] = buffer[padding + mirrored((samples + n) as isize)];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_numpys_reflect() {
        let padded = |clip: &[f32], padding: usize| {
            let mut buffer = vec![0.0; padding];
            buffer.extend_from_slice(clip);
            pad(&mut buffer, padding, Padding::Reflect);
            buffer
        };
        assert_eq!(padded(&[1.0, 2.0, 3.0, 4.0], 2), [3.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 2.0]);
        // numpy.pad([1, 2, 3], 5, "reflect")
        let expected = [2.0, 1.0, 2.0, 3.0, 2.0, 1.0, 2.0, 3.0, 2.0, 1.0, 2.0, 3.0, 2.0];
        assert_eq!(padded(&[1.0, 2.0, 3.0], 5), expected);
        assert_eq!(padded(&[7.0], 2), [7.0; 5]);
        assert_eq!(padded(&[], 2), [0.0; 4]);
    }

    #[test]
    #[should_panic = "a buffer of 3 samples has no room for 512 before the clip"]
    fn a_buffer_without_room_for_the_padding_is_named() {
        let settings = MelSettings::default();
        let mut out = vec![0.0; settings.n_mels];
        LogMel::new(&settings).expect("valid").compute_into(&mut vec![0.0; 3], &mut out, 1);
    }

    #[test]
    fn filters_and_values_are_those_of_librosa() {
        // librosa 0.11: filters.mel(sr=22050, n_fft=1024, n_mels=80, fmin=0, fmax=8000); (filter, first bin, bins, peak, weight)
        let filters = mel_filters(&MelSettings::default());
        for (filter, first, bins, peak, weight) in [
            (0, 1, 3, 2, 2.265_139e-2f32),
            (1, 2, 4, 3, 1.972_975e-2),
            (20, 35, 4, 36, 2.192_963e-2),
            (40, 77, 7, 80, 1.489_547e-2),
            (60, 166, 14, 172, 6.637_413e-3),
            (79, 345, 27, 358, 3.265_993e-3),
        ] {
            let (start, weights) = &filters[filter];
            assert_eq!((*start, weights.len()), (first, bins), "filter {filter}");
            assert!((weights[peak - first] / weight - 1.0).abs() < 1e-5, "filter {filter}");
        }
        // log(max(filters @ abs(stft(y, 1024, 256, pad_mode="reflect")), 1e-5)) of two tones; (filter, frame, value)
        let samples: Vec<f32> = (0..4096)
            .map(|n| ((f64::from(n) * 0.1).sin() * 0.5 + (f64::from(n) * 0.731).sin() * 0.05) as f32)
            .collect();
        let mel = LogMel::new(&MelSettings::default()).expect("valid").compute(&samples);
        for (filter, frame, value) in [
            (0, 0, -0.763_451f32),
            (5, 3, -4.826_451),
            (12, 8, -4.941_78),
            (40, 10, -11.512_925),
            (60, 16, -5.722_394),
            (79, 5, -11.512_925),
        ] {
            let got = mel[filter * 17 + frame];
            assert!((got - value).abs() < 5e-4, "filter {filter}, frame {frame}: {got} instead of {value}");
        }
    }

    #[test]
    fn both_transforms_agree() {
        let settings = MelSettings { n_fft: 1024, ..MelSettings::default() };
        let samples: Vec<f32> = (0..5000).map(|n| ((n * 7919 % 1009) as f32 / 1009.0 - 0.5) * 0.3).collect();
        let mut wide = LogMel::new(&settings).expect("valid");
        let fast = wide.compute(&samples);
        let mut other = LogMel::new(&settings).expect("valid");
        other.transform = Transform::Any {
            fft: RealFftPlanner::new().plan_fft_forward(1024),
            window: hann_window(&settings),
            filters: mel_filters(&settings),
        };
        let slow = other.compute(&samples);
        assert_eq!(fast.len(), slow.len());
        let worst = fast.iter().zip(&slow).map(|(a, b)| (a - b).abs()).max_by(f32::total_cmp).expect("frames");
        assert!(worst < 1e-4, "{worst}");
        assert_eq!(wide.another().compute(&samples), fast);
    }

    #[test]
    fn bands_far_below_the_loudest_are_exact_too() {
        // A pure low tone: everything above it is eight orders of magnitude below.
        let settings = MelSettings::default();
        let samples: Vec<f32> = (0..9000).map(|n| 0.9 * (n as f32 * 0.05).sin()).collect();
        let fast = LogMel::new(&settings).expect("valid").compute(&samples);
        let exact = Exact::new(&settings);
        let frames = settings.frames(samples.len());
        let mut slow = vec![0.0; fast.len()];
        let mut buffer = vec![0.0; settings.padding_samples()];
        buffer.extend_from_slice(&samples);
        pad(&mut buffer, settings.padding_samples(), settings.padding);
        exact.repair(&buffer, &(0..frames).collect::<Vec<_>>(), &mut slow, frames);
        assert_eq!(fast.len(), slow.len());
        let worst = fast.iter().zip(&slow).map(|(a, b)| (a - b).abs()).max_by(f32::total_cmp).expect("frames");
        assert!(worst < 5e-4, "{worst}");
    }

    #[test]
    fn clips_shorter_than_a_frame_and_odd_sizes_work() {
        for n_fft in [400, 1024, 62] {
            let settings = MelSettings { n_fft, win_length: n_fft, n_mels: 20, ..MelSettings::default() };
            let mut log_mel = LogMel::new(&settings).expect("valid");
            for samples in [0, 1, 2, 100, 255, 256, 257, 4096, 70_000] {
                let mel = log_mel.compute(&vec![0.25; samples]);
                assert_eq!(mel.len(), 20 * settings.frames(samples));
                assert!(mel.iter().all(|value| value.is_finite()));
            }
        }
    }

    #[test]
    fn settings_that_contradict_themselves_are_refused() {
        let refused = |change: fn(&mut MelSettings)| {
            let mut settings = MelSettings::default();
            change(&mut settings);
            LogMel::new(&settings).is_err()
        };
        assert!(refused(|s| s.fmax = 20_000.0));
        assert!(refused(|s| s.fmin = 9000.0));
        assert!(refused(|s| s.win_length = 2048));
        assert!(refused(|s| s.hop_length = 0));
        assert!(refused(|s| s.n_fft = 1023));
        assert!(refused(|s| s.floor = 0.0));
        assert!(refused(|s| s.fmin = f32::NAN));
    }
}
