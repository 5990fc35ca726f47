//! A trained vocoder as a [`Vocoder`]: log-mel and pitch to waveform on any device.

use std::fmt;

use tandem_audio::{MelSettings, MelStats, Prior, SourceFilter, Vocoder};
use tandem_model::weights::{self, Tensors, WeightsError};
use tandem_model::{Device, HostVocoderInputs, NeuralVocoder, VocoderConfig, pitch_features};

use crate::synthesizer::SynthesisError;

/// Times that a waveform is made more like its mel.
const REFINEMENTS: usize = 6;

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
        let model = NeuralVocoder::new(config, 0, device);
        let model = weights::import(model, tensors).map_err(SynthesisError::Weights)?;
        let source = SourceFilter::new(mel).map_err(SynthesisError::Settings)?;
        Ok(TrainedVocoder { model, source, stats, device: device.clone() })
    }
}

impl Vocoder for TrainedVocoder {
    fn mel(&self) -> &MelSettings {
        self.source.mel()
    }

    /// Without a pitch everything is whispered.
    fn synthesize(&self, log_mel: &[f32], frames: usize, pitch: Option<&[f32]>) -> Vec<f32> {
        let settings = self.source.mel();
        if frames < 2 {
            return Vec::new();
        }
        let unvoiced = vec![0.0; frames];
        let pitch = pitch.map_or(&unvoiced[..], |pitch| &pitch[..frames]);
        // The same noise for the same mel, whatever was synthesized before.
        let inputs = vocoder_row(&self.source, &self.stats, log_mel, pitch, 0);
        let waveform = self.model.synthesize(&inputs.upload(&self.device));
        let samples = waveform.into_data().try_into_vec::<f32>().expect("waveforms are single precision");
        let samples = self.source.refine(samples, log_mel, frames, REFINEMENTS);
        let (first, length) = (settings.padding_samples(), (frames - 1) * settings.hop_length);
        samples[first..first + length].to_vec()
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
    let (frames, n_mels) = (pitch.len(), stats.mean.len());
    let mut normalized = vec![0.0; frames * n_mels];
    stats.normalize(&log_mel[..n_mels * frames], frames, frames, &mut normalized);
    let features = (normalized.chunks(n_mels).zip(pitch))
        .flat_map(|(bands, &hz)| bands.iter().copied().chain(pitch_features(hz)))
        .collect();
    let Prior { harmonic, noise } = source.prior(log_mel, pitch, seed);
    HostVocoderInputs { rows: 1, frames, lengths: vec![frames], features, harmonic, noise, waveform: Vec::new() }
}
