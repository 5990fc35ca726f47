//! Source and filter: what a trained vocoder starts from. The source is what excites a voice of a known pitch (harmonics,
//! and noise); the filter is the envelope that the mel shows. Their product is already speech, if a buzzing one; a network
//! then corrects how loud harmonics and noise are in each bin.

use std::fmt;
use std::sync::Arc;

use realfft::num_complex::Complex32;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

use super::excitation::Excitation;
use super::stream::SourceStream;
use crate::mel::{MelSettings, SettingsError, hann_window, mel_filters};

/// Share of noise in a voiced frame at 0 Hz and far above [`BREATHY_HZ`] (amplitudes), before anything is learned.
const NOISE_SHARE: [f32; 2] = [0.05, 0.8];
/// Where voiced frames become more noise than voice.
const BREATHY_HZ: f32 = 5000.0;
/// How gradually they do.
const BREATHY_WIDTH_HZ: f32 = 1000.0;

/// The loudest that a band is taken for: a mel from elsewhere may say anything, and its exponential must stay finite.
pub const MOST_LOG_MEL: f32 = 30.0;

/// The most that one correction changes a band by, as a logarithm.
const MOST_CORRECTION: f32 = 2.0;

/// The spectra of harmonics and noise, each shaped by the envelope: `[frames][2][bins]`, real parts before imaginary ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prior {
    /// Of the harmonics; nothing where there is no pitch.
    pub harmonic: Vec<f32>,
    /// Of the noise.
    pub noise: Vec<f32>,
}

/// How a [`SourceFilter`] makes an envelope of a log-mel, as tables; what they do is said where they are used.
#[derive(Clone, Debug)]
pub struct SourceTables {
    /// Share of each band in the logarithm of each bin, `[n_mels][bins]`.
    pub interpolation: Vec<f32>,
    /// Logarithm of the sum of each filter's weights, subtracted from its band first.
    pub areas: Vec<f32>,
    /// Share of noise in each bin of a voiced frame; it is 1 in the others.
    pub noise_share: Vec<f32>,
    /// Share of the harmonics in each bin.
    pub harmonic_share: Vec<f32>,
}

/// Makes the [`Prior`] of log-mel frames whose pitch is known.
pub struct SourceFilter {
    settings: MelSettings,
    /// For each bin the band below it, and how much of the next one there is in it.
    places: Vec<(usize, f32)>,
    filters: Vec<(usize, Vec<f32>)>,
    /// Logarithm of the sum of each filter's weights.
    areas: Vec<f32>,
    /// Share of noise in each bin of a voiced frame.
    noise_share: Vec<f32>,
    window: Vec<f32>,
    /// Makes the mean magnitude of noise 1.
    noise_scale: f32,
    forward: Arc<dyn RealToComplex<f32>>,
    inverse: Arc<dyn ComplexToReal<f32>>,
}

impl fmt::Debug for SourceFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SourceFilter").field(&self.settings).finish()
    }
}

impl SourceFilter {
    /// For frames made with these settings.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if they contradict themselves.
    pub fn new(settings: &MelSettings) -> Result<SourceFilter, SettingsError> {
        settings.check()?;
        let (window, bins) = (hann_window(settings), settings.n_fft / 2 + 1);
        let mut planner = RealFftPlanner::new();
        let bin_hz = settings.sample_rate as f32 / settings.n_fft as f32;
        let filters = mel_filters(settings);
        let center = |(first, weights): &(usize, Vec<f32>)| {
            let sum: f32 = weights.iter().sum();
            let moment: f32 = weights.iter().enumerate().map(|(n, weight)| (first + n) as f32 * weight).sum();
            if sum > 0.0 { moment / sum } else { *first as f32 }
        };
        let centers: Vec<f32> = filters.iter().map(center).collect();
        let place = |bin: usize| {
            let bin = bin as f32;
            let next = centers.partition_point(|center| *center <= bin);
            match next {
                // Beyond the outermost bands: as they are.
                0 => (0, 0.0),
                next if next == centers.len() => (next - 1, 0.0),
                next => (next - 1, (bin - centers[next - 1]) / (centers[next] - centers[next - 1])),
            }
        };
        let power: f32 = window.iter().map(|w| w * w).sum();
        let breath = |bin: usize| {
            let above = 1.0 / (1.0 + (-(bin as f32 * bin_hz - BREATHY_HZ) / BREATHY_WIDTH_HZ).exp());
            NOISE_SHARE[0] + (NOISE_SHARE[1] - NOISE_SHARE[0]) * above
        };
        Ok(SourceFilter {
            settings: settings.clone(),
            places: (0..bins).map(place).collect(),
            areas: filters.iter().map(|(_, weights)| weights.iter().sum::<f32>().max(1e-12).ln()).collect(),
            filters,
            noise_share: (0..bins).map(breath).collect(),
            // Magnitudes of noise are Rayleigh distributed; uniform noise from -1 to 1 has a variance of 1/3.
            noise_scale: (3.0 / (power * std::f32::consts::FRAC_PI_4)).sqrt(),
            window,
            forward: planner.plan_fft_forward(settings.n_fft),
            inverse: planner.plan_fft_inverse(settings.n_fft),
        })
    }

    /// What its frames are.
    pub fn mel(&self) -> &MelSettings {
        &self.settings
    }

    /// Bins of a spectrum.
    pub fn bins(&self) -> usize {
        self.places.len()
    }

    /// Source and filter of a log-mel, `[n_mels][frames]`, whose frames have this pitch (Hz, 0 where there is none). The noise
    /// depends on the seed alone.
    ///
    /// # Panics
    ///
    /// If there are fewer values than that.
    pub fn prior(&self, log_mel: &[f32], pitch: &[f32], seed: u64) -> Prior {
        let (harmonics, noise) = self.excitation(pitch, seed);
        self.filter(log_mel, pitch, &harmonics, &noise)
    }

    /// Samples of what excites frames of this pitch: harmonics and noise, with the padding of the frames.
    pub fn excitation(&self, pitch: &[f32], seed: u64) -> (Vec<f32>, Vec<f32>) {
        let length = self.settings.signal_samples(pitch.len());
        let mut excitation = Excitation::new(&self.settings, self.noise_scale, seed);
        let at = |frame: usize| pitch.get(frame.min(pitch.len().saturating_sub(1))).copied().unwrap_or(0.0);
        let (mut harmonics, mut noise) = (Vec::with_capacity(length), Vec::with_capacity(length));
        excitation.extend(length, at, &mut harmonics, &mut noise);
        (harmonics, noise)
    }

    /// How a log-mel becomes an envelope, for those who compute it elsewhere (on a device).
    pub fn tables(&self) -> SourceTables {
        let (n_mels, bins) = (self.settings.n_mels, self.bins());
        let mut interpolation = vec![0.0; n_mels * bins];
        for (bin, &(band, part)) in self.places.iter().enumerate() {
            interpolation[band * bins + bin] = 1.0 - part;
            if part > 0.0 {
                interpolation[(band + 1) * bins + bin] = part;
            }
        }
        SourceTables {
            interpolation,
            areas: self.areas.clone(),
            noise_share: self.noise_share.clone(),
            harmonic_share: self.noise_share.iter().map(|share| (1.0 - share.powi(2)).sqrt()).collect(),
        }
    }

    /// Bins to both sides that the envelope of a frame of this pitch is averaged over.
    pub fn reach(&self, hz: f32) -> usize {
        (0.5 * hz * self.settings.n_fft as f32 / self.settings.sample_rate as f32).round() as usize
    }

    /// A source that is made in pieces; the noise depends on the seed alone.
    pub fn stream(&self, seed: u64) -> SourceStream {
        SourceStream::new(Excitation::new(&self.settings, self.noise_scale, seed))
    }

    /// The envelope of each frame times what excites it.
    pub(super) fn filter(&self, log_mel: &[f32], pitch: &[f32], harmonics: &[f32], noise: &[f32]) -> Prior {
        let (frames, bins) = (pitch.len(), self.bins());
        let mut prior = Prior { harmonic: vec![0.0; frames * 2 * bins], noise: vec![0.0; frames * 2 * bins] };
        let mut envelope = vec![0.0; bins];
        let (mut sums, mut input) = (Vec::new(), vec![0.0; self.settings.n_fft]);
        let mut spectrum = self.forward.make_output_vec();
        let mut scratch = self.forward.make_scratch_vec();
        for (frame, &hz) in pitch.iter().enumerate() {
            self.envelope(log_mel, frames, frame, hz, &mut envelope, &mut sums);
            for (source, out, is_noise) in [(harmonics, &mut prior.harmonic, false), (noise, &mut prior.noise, true)] {
                let source = &source[frame * self.settings.hop_length..];
                for ((value, sample), weight) in input.iter_mut().zip(source).zip(&self.window) {
                    *value = sample * weight;
                }
                self.forward
                    .process_with_scratch(&mut input, &mut spectrum, &mut scratch)
                    .expect("buffers of the planned length");
                let (real, imaginary) = out[frame * 2 * bins..(frame + 1) * 2 * bins].split_at_mut(bins);
                for (bin, z) in spectrum.iter().enumerate() {
                    let share = match (is_noise, hz > 0.0) {
                        (true, true) => self.noise_share[bin],
                        (true, false) => 1.0,
                        (false, _) => (1.0 - self.noise_share[bin].powi(2)).sqrt(),
                    };
                    let Complex32 { re, im } = z * (envelope[bin] * share);
                    (real[bin], imaginary[bin]) = (re, im);
                }
            }
        }
        prior
    }

    /// Makes a waveform, with the padding of its frames, more like the mel of a recording: whatever made it, its bands are not exactly
    /// those that were measured. Each time all frames are corrected and put together again. Measured on 50 clips of a real speaker
    /// (`benches/results/vocoder.md`): Griffin-Lim, four times, PESQ-WB 3.04 to 3.38 and DNSMOS 2.69 to 2.87. Not for a mel that a
    /// model predicted: that one is smooth, and noise that is made as smooth becomes a choir of faint tones (DNSMOS 2.34 instead of
    /// 2.88).
    ///
    /// # Panics
    ///
    /// If there are fewer samples than [`MelSettings::signal_samples`], or fewer values than `[n_mels][frames]`.
    pub fn refine(&self, mut signal: Vec<f32>, log_mel: &[f32], frames: usize, times: usize) -> Vec<f32> {
        let (n_fft, hop) = (self.settings.n_fft, self.settings.hop_length);
        let (mut input, mut spectrum) = (vec![0.0; n_fft], self.forward.make_output_vec());
        let mut scratch =
            vec![Complex32::default(); self.forward.get_scratch_len().max(self.inverse.get_scratch_len())];
        let mut gains = vec![0.0; self.bins()];
        let mut weights = vec![0.0f32; signal.len()];
        for frame in 0..frames {
            for (weight, w) in weights[frame * hop..].iter_mut().zip(&self.window) {
                *weight += w * w;
            }
        }
        for _ in 0..times {
            let mut corrected = vec![0.0; signal.len()];
            for frame in 0..frames {
                for ((value, sample), w) in input.iter_mut().zip(&signal[frame * hop..]).zip(&self.window) {
                    *value = sample * w;
                }
                let forward = self.forward.process_with_scratch(&mut input, &mut spectrum, &mut scratch);
                forward.expect("buffers of the planned length");
                gains.iter_mut().zip(&spectrum).for_each(|(gain, z)| *gain = z.norm_sqr().sqrt());
                self.missing_gains(|n| log_mel[n * frames + frame], &mut gains);
                spectrum.iter_mut().zip(&gains).for_each(|(z, gain)| *z *= gain / n_fft as f32);
                let last = spectrum.len() - 1;
                (spectrum[0].im, spectrum[last].im) = (0.0, 0.0); // a real signal has none there
                let inverse = self.inverse.process_with_scratch(&mut spectrum, &mut input, &mut scratch);
                inverse.expect("buffers of the planned length");
                for ((out, value), w) in corrected[frame * hop..].iter_mut().zip(&input).zip(&self.window) {
                    *out += value * w;
                }
            }
            corrected.iter_mut().zip(&weights).for_each(|(sample, weight)| *sample /= weight.max(1e-3));
            signal = corrected;
        }
        signal
    }

    /// What the magnitudes of a frame must be multiplied by to be more like a mel, in their place.
    fn missing_gains(&self, log_mel: impl Fn(usize) -> f32, magnitudes: &mut [f32]) {
        let power = self.settings.power;
        let missing: Vec<f32> = (self.filters.iter().enumerate())
            .map(|(n, (first, weights))| {
                let of = |x: &f32| if power { x * x } else { *x };
                let sum: f32 = magnitudes[*first..].iter().zip(weights).map(|(x, w)| of(x) * w).sum();
                let missing = log_mel(n).min(MOST_LOG_MEL) - sum.max(self.settings.floor).ln();
                (if power { 0.5 * missing } else { missing }).clamp(-MOST_CORRECTION, MOST_CORRECTION)
            })
            .collect();
        for (value, &(band, part)) in magnitudes.iter_mut().zip(&self.places) {
            let low = missing[band];
            *value = if part > 0.0 { low + (missing[band + 1] - low) * part } else { low }.exp();
        }
    }

    /// The mean magnitude around each bin: bands interpolated (in logarithms), and averaged over a period of the harmonics, so
    /// that none of them is left in it.
    fn envelope(
        &self,
        log_mel: &[f32],
        frames: usize,
        frame: usize,
        hz: f32,
        envelope: &mut [f32],
        sums: &mut Vec<f64>,
    ) {
        let scale = if self.settings.power { 0.5 } else { 1.0 };
        let band = |n: usize| scale * (log_mel[n * frames + frame].min(MOST_LOG_MEL) - self.areas[n]);
        for (value, &(first, part)) in envelope.iter_mut().zip(&self.places) {
            let low = band(first);
            *value = if part > 0.0 { low + (band(first + 1) - low) * part } else { low }.exp();
        }
        let reach = self.reach(hz);
        if reach == 0 {
            return;
        }
        sums.clear();
        sums.push(0.0);
        // In double precision: differences of sums that loud bins are in, too.
        let mut sum = 0.0;
        sums.extend(envelope.iter().map(|value| {
            sum += f64::from(*value);
            sum
        }));
        let bins = envelope.len();
        for (bin, value) in envelope.iter_mut().enumerate() {
            let (first, end) = (bin.saturating_sub(reach), (bin + reach + 1).min(bins));
            *value = ((sums[end] - sums[first]) / (end - first) as f64) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::noise::Noise;
    use super::*;

    fn magnitudes(spectra: &[f32], bins: usize) -> Vec<f32> {
        let frame = |row: &[f32]| (0..bins).map(|bin| row[bin].hypot(row[bins + bin])).collect::<Vec<f32>>();
        spectra.chunks(2 * bins).flat_map(frame).collect()
    }

    /// Logarithms of a band in each frame.
    fn bands(source: &SourceFilter, magnitudes: &[f32], n: usize) -> Vec<f32> {
        let (first, weights) = &source.filters[n];
        let band = |frame: &[f32]| frame[*first..].iter().zip(weights).map(|(x, w)| x * w).sum::<f32>().ln();
        magnitudes.chunks(source.bins()).map(band).collect()
    }

    fn mean(values: &[f32]) -> f32 {
        values.iter().sum::<f32>() / values.len() as f32
    }

    /// A mel that says "a magnitude of 1 everywhere" gives spectra that have it on average, whatever the pitch; and noise stays as
    /// uneven as noise is, however smooth the mel.
    #[test]
    fn sources_have_the_magnitude_that_the_mel_says() {
        let settings = MelSettings::default();
        let source = SourceFilter::new(&settings).expect("valid");
        let (frames, bins) = (40, source.bins());
        let flat: Vec<f32> = (source.areas.iter()).flat_map(|area| std::iter::repeat_n(*area, frames)).collect();
        let whisper = source.prior(&flat, &vec![0.0; frames], 3);
        assert!((mean(&magnitudes(&whisper.noise, bins)) - 1.0).abs() < 0.03);
        assert!(whisper.harmonic.iter().all(|value| *value == 0.0));
        for hz in [90.0, 200.0, 350.0] {
            let voiced = source.prior(&flat, &vec![hz; frames], 3);
            assert!(mean(&magnitudes(&voiced.harmonic, bins)) > 0.5 * mean(&magnitudes(&voiced.noise, bins)), "{hz}");
            let sum: Vec<f32> = voiced.harmonic.iter().zip(&voiced.noise).map(|(a, b)| a + b).collect();
            // Narrower bands may lie between two harmonics, and have what leaks into them.
            for n in 70..settings.n_mels {
                let off = mean(&bands(&source, &magnitudes(&sum, bins), n)) - source.areas[n];
                assert!(off.abs() < 0.5, "{hz}: band {n} {off}");
            }
        }
        let uneven = bands(&source, &magnitudes(&whisper.noise, bins), 40);
        let off = uneven.iter().map(|value| (value - mean(&uneven)).abs()).sum::<f32>() / frames as f32;
        assert!(off > 0.1, "noise is as smooth as its mel: {off}");
    }

    #[test]
    fn a_refined_waveform_has_more_of_the_mel() {
        let settings = MelSettings::default();
        let source = SourceFilter::new(&settings).expect("valid");
        let mut log_mel = crate::mel::LogMel::new(&settings).expect("valid");
        let mut random = Noise::seeded(1);
        let truth: Vec<f32> = (0..8192).map(|n| 0.3 * (n as f32 * 0.05).sin() + 0.05 * random.next()).collect();
        let (mel, frames) = (log_mel.compute(&truth), settings.frames(truth.len()));
        let noise: Vec<f32> = (0..settings.signal_samples(frames)).map(|_| 0.1 * random.next()).collect();
        let mut distance = |signal: &[f32]| {
            let again = log_mel.compute(&signal[512..512 + truth.len()]);
            again.iter().zip(&mel).map(|(a, b)| (a - b).abs()).sum::<f32>() / mel.len() as f32
        };
        let (before, after) = (distance(&noise), distance(&source.refine(noise.clone(), &mel, frames, 3)));
        assert!(after < 0.5 * before, "{before} {after}");
        assert_eq!(source.refine(noise.clone(), &mel, frames, 0), noise);
    }

    #[test]
    fn noise_depends_on_the_seed_alone() {
        let source = SourceFilter::new(&MelSettings::default()).expect("valid");
        let mel = vec![-3.0; 80 * 5];
        let of = |seed| source.prior(&mel, &[0.0, 120.0, 121.0, 0.0, 0.0], seed);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1).noise, of(2).noise);
    }
}
