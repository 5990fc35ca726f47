//! A trained vocoder as a [`Vocoder`]: log-mel and pitch to waveform on any device.

use std::fmt;

use tandem_audio::{MelSettings, MelStats, Prior, SourceFilter, SourceStream, Vocoder, WaveformStream};
use tandem_model::weights::{self, Tensors, WeightsError};
use tandem_model::{Device, HostVocoderInputs, NeuralVocoder, VocoderConfig, pitch_features};

use crate::synthesizer::SynthesisError;

/// Times that the waveform is made more like the mel of a recording ([`SourceFilter::refine`]).
const REFINEMENTS: usize = 9;
/// Seed of the noise: the same for the same mel, whatever was synthesized before.
const SEED: u64 = 0;

/// A trained vocoder on a device.
pub struct TrainedVocoder {
    model: NeuralVocoder,
    source: SourceFilter,
    stats: MelStats,
    device: Device,
}

impl fmt::Debug for TrainedVocoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrainedVocoder").field("mel", self.source.mel()).field("device", &self.device).finish()
    }
}

impl TrainedVocoder {
    /// Puts weights on a device.
    ///
    /// # Errors
    ///
    /// If the weights are not of these shapes, or the settings contradict themselves.
    pub fn from_weights(
        config: &VocoderConfig,
        mel: &MelSettings,
        stats: MelStats,
        tensors: &Tensors,
        device: &Device,
    ) -> Result<TrainedVocoder, SynthesisError> {
        let values = tensors.values().map(|tensor| tensor.values.len()).sum();
        if !config.can_have(values) {
            return Err(SynthesisError::Weights(WeightsError::Different(Vec::new())));
        }
        // Discriminators only learn.
        let config = &VocoderConfig { discriminators: None, ..config.clone() };
        let mut tensors = tensors.clone();
        tensors.retain(|name, _| !name.starts_with("discriminators."));
        let model = NeuralVocoder::new(config, 0, device);
        let model = weights::import(model, &tensors).map_err(SynthesisError::Weights)?;
        let source = SourceFilter::new(mel).map_err(SynthesisError::Settings)?;
        Ok(TrainedVocoder { model, source, stats, device: device.clone() })
    }

    /// The waveform of one row, with the padding of its frames.
    fn waveform(&self, inputs: HostVocoderInputs) -> Vec<f32> {
        let waveform = self.model.synthesize(&inputs.upload(&self.device));
        waveform.into_data().try_into_vec::<f32>().expect("waveforms are single precision")
    }

    /// The waveform of a log-mel, made more like it so many times. Without a pitch everything is whispered.
    fn refined(&self, log_mel: &[f32], frames: usize, pitch: Option<&[f32]>, times: usize) -> Vec<f32> {
        if frames < 2 {
            return Vec::new();
        }
        let unvoiced = vec![0.0; frames];
        let pitch = pitch.map_or(&unvoiced[..], |pitch| &pitch[..frames]);
        let samples = self.waveform(vocoder_row(&self.source, &self.stats, log_mel, pitch, SEED));
        let samples = self.source.refine(samples, log_mel, frames, times);
        let (first, length) = (self.mel().padding_samples(), (frames - 1) * self.mel().hop_length);
        samples[first..first + length].to_vec()
    }
}

impl Vocoder for TrainedVocoder {
    fn mel(&self) -> &MelSettings {
        self.source.mel()
    }

    fn synthesize(&self, log_mel: &[f32], frames: usize, pitch: Option<&[f32]>) -> Vec<f32> {
        self.refined(log_mel, frames, pitch, 0)
    }

    fn resynthesize(&self, log_mel: &[f32], frames: usize, pitch: Option<&[f32]>) -> Vec<f32> {
        self.refined(log_mel, frames, pitch, REFINEMENTS)
    }

    fn stream(&self, chunk: usize) -> Box<dyn WaveformStream + '_> {
        Box::new(Stream { vocoder: self, source: self.source.stream(SEED), chunk: chunk.max(1), done: 0 })
    }
}

/// A waveform in pieces. Each is made of its own frames and of those around them that it depends on; nothing else is remembered but
/// where the excitation was.
struct Stream<'a> {
    vocoder: &'a TrainedVocoder,
    source: SourceStream,
    /// Frames of a piece, at least.
    chunk: usize,
    /// Frames whose samples were handed out.
    done: usize,
}

impl Stream<'_> {
    /// Frames around a piece that it depends on: the network's, and those that overlap with it.
    fn context(&self) -> usize {
        let mel = self.vocoder.source.mel();
        self.vocoder.model.reach() + mel.n_fft.div_ceil(mel.hop_length)
    }

    /// The samples of the frames that are not done, up to frame `until`, made of the frames before `end`.
    fn make(&mut self, end: usize, until: usize) -> Vec<f32> {
        let (hop, padding) = (self.vocoder.mel().hop_length, self.vocoder.mel().padding_samples());
        let (log_mel, pitch, prior) = self.source.prior(&self.vocoder.source, end);
        let inputs = row(&self.vocoder.stats, &log_mel, &pitch, prior);
        let samples = self.vocoder.waveform(inputs);
        let first = self.source.first();
        let piece = samples[padding + (self.done - first) * hop..padding + (until - first) * hop].to_vec();
        self.done = until;
        self.source.forget(&self.vocoder.source, until.saturating_sub(self.context()));
        piece
    }
}

impl WaveformStream for Stream<'_> {
    fn push(&mut self, log_mel: &[f32], pitch: &[f32]) -> Vec<f32> {
        self.source.push(log_mel, pitch);
        let end = self.source.ready(&self.vocoder.source);
        let until = end.saturating_sub(self.context());
        if until < self.done + self.chunk { Vec::new() } else { self.make(end, until) }
    }

    fn finish(mut self: Box<Self>) -> Vec<f32> {
        let end = self.source.frames();
        if end < 2 { Vec::new() } else { self.make(end, end - 1) }
    }
}

/// What a vocoder takes for one log-mel, `[n_mels][frames]`, with this pitch; without a waveform to learn.
pub fn vocoder_row(
    source: &SourceFilter,
    stats: &MelStats,
    log_mel: &[f32],
    pitch: &[f32],
    seed: u64,
) -> HostVocoderInputs {
    row(stats, log_mel, pitch, source.prior(log_mel, pitch, seed))
}

fn row(stats: &MelStats, log_mel: &[f32], pitch: &[f32], prior: Prior) -> HostVocoderInputs {
    let (frames, n_mels) = (pitch.len(), stats.mean.len());
    let mut normalized = vec![0.0; frames * n_mels];
    stats.normalize(&log_mel[..n_mels * frames], frames, frames, &mut normalized);
    let features = (normalized.chunks(n_mels).zip(pitch))
        .flat_map(|(bands, &hz)| bands.iter().copied().chain(pitch_features(hz)))
        .collect();
    let Prior { harmonic, noise } = prior;
    HostVocoderInputs { rows: 1, frames, lengths: vec![frames], features, harmonic, noise, waveform: Vec::new() }
}

#[cfg(test)]
mod tests {
    use tandem_flow::Random;
    use tandem_model::Size;
    use tandem_model::kernels::Stft;

    use super::*;

    /// One whose network says something: trained ones begin with zeros.
    fn vocoder() -> TrainedVocoder {
        let mel = MelSettings::default();
        let stft = Stft { n_fft: mel.n_fft, hop: mel.hop_length, win_length: mel.win_length };
        let (config, device) = (VocoderConfig::new(Size::Smoke, mel.n_mels, stft), Device::flex());
        let mut tensors = weights::export(&NeuralVocoder::new(&config, 1, &device));
        let output = tensors.get_mut("output.weight").expect("a layer");
        Random::new(3).fill_normal(&mut output.values);
        output.values.iter_mut().for_each(|value| *value *= 0.03);
        let stats = MelStats { mean: vec![-4.0; mel.n_mels], std: vec![2.0; mel.n_mels] };
        TrainedVocoder::from_weights(&config, &mel, stats, &tensors, &device).expect("its own weights")
    }

    /// A log-mel that moves, with a pitch that rises and pauses.
    fn frames(count: usize) -> (Vec<f32>, Vec<f32>) {
        let band = |band: usize| {
            (0..count).map(move |frame| -4.0 + 2.0 * ((frame * (band + 3)) as f32 * 0.013).sin() - band as f32 * 0.03)
        };
        let pitch = (0..count).map(|frame| if frame % 70 < 50 { 110.0 + (frame % 70) as f32 } else { 0.0 });
        ((0..80).flat_map(band).collect(), pitch.collect())
    }

    fn part(log_mel: &[f32], frames: usize, range: std::ops::Range<usize>) -> Vec<f32> {
        log_mel.chunks(frames).flat_map(|band| band[range.clone()].iter().copied()).collect()
    }

    #[test]
    fn pieces_of_a_waveform_are_those_of_one_pass() {
        let vocoder = vocoder();
        let (log_mel, pitch) = frames(400);
        let whole = vocoder.synthesize(&log_mel, 400, Some(&pitch));
        let loudest = whole.iter().map(|sample| sample.abs()).max_by(f32::total_cmp).expect("values");
        assert!(loudest > 1e-2 && loudest.is_finite(), "there is something to compare: {loudest}");
        // Frames depend on those around them: by themselves they are not what they are in the whole.
        let alone = vocoder.synthesize(&part(&log_mel, 400, 100..200), 100, Some(&pitch[100..200]));
        let off =
            alone.iter().zip(&whole[100 * 256..]).map(|(a, b)| (a - b).abs()).max_by(f32::total_cmp).expect("values");
        assert!(off > 1e-2 * loudest && off.is_finite(), "{off} of {loudest}");
        for (step, chunk) in [(1, 40), (37, 1), (150, 100)] {
            let mut stream = vocoder.stream(chunk);
            let (mut pieces, mut first) = (Vec::new(), None);
            for start in (0..400).step_by(step) {
                let range = start..(start + step).min(400);
                let piece = stream.push(&part(&log_mel, 400, range.clone()), &pitch[range.clone()]);
                assert!(piece.is_empty() || piece.len() >= chunk * 256, "no smaller pieces than asked for");
                if !piece.is_empty() {
                    first.get_or_insert(range.end);
                }
                pieces.push(piece);
            }
            assert!(first.is_some_and(|frames| frames < 300), "the first piece does not wait for the end: {first:?}");
            pieces.push(stream.finish());
            let pieces = pieces.concat();
            assert_eq!(pieces.len(), whole.len());
            let off = pieces.iter().zip(&whole).map(|(a, b)| (a - b).abs()).max_by(f32::total_cmp).expect("values");
            println!("{step} frames at a time, pieces of {chunk}: {off} off");
            assert!(off < 1e-4 * loudest.max(1.0), "{step}, {chunk}: {off}");
        }
    }

    #[test]
    fn a_vocoder_without_pieces_makes_all_of_it_at_the_end() {
        let vocoder = tandem_audio::open_vocoder(&MelSettings::default()).expect("valid");
        let (log_mel, pitch) = frames(60);
        let mut stream = vocoder.stream(1);
        for range in [0..25, 25..60] {
            assert!(stream.push(&part(&log_mel, 60, range.clone()), &pitch[range]).is_empty());
        }
        assert_eq!(stream.finish(), vocoder.synthesize(&log_mel, 60, Some(&pitch)));
        assert!(self::vocoder().stream(1).finish().is_empty(), "nothing came");
    }
}
