//! What an acoustic run makes of the clips of its corpus: mels that are aligned with the recordings, and so can take the place of
//! the true ones when a vocoder learns (SPEC N5). What a voice predicts is smoother than speech; a vocoder that has never seen it
//! is not prepared for it.
//!
//! Each clip is predicted by itself, with the durations that the run's aligner finds and the pitch of the recording, so that a
//! prediction depends on nothing but the run and the clip: it may be kept, or made again.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tandem_data::CacheMode;
use tandem_model::{Device, HostInputs, HostReference, REFERENCE_FRAMES};
use tandem_synth::{SampledMel, Synthesizer};

use crate::checkpoint::{self, State, VoiceError};
use crate::data::Data;
use crate::events::TrainError;
use crate::settings::TrainConfig;
use crate::task::PredictorIdentity;

/// The part of the cache's memory that predictions may take.
const CACHE_SHARE: u64 = 4;

/// A clip as the acoustic run says it.
#[derive(Debug)]
pub(super) struct Predicted {
    /// Log-mel, `[bands][frames]`.
    pub mel: Vec<f32>,
    /// Pitch of each frame in Hz, as a vocoder gets it in synthesis.
    pub pitch: Vec<f32>,
}

impl Predicted {
    fn bytes(&self) -> u64 {
        4 * (self.mel.len() + self.pitch.len()) as u64
    }
}

/// An acoustic run that predicts the clips of its corpus. On the host, as everything that a vocoder's batches are made of.
#[derive(Debug)]
pub(super) struct Predictor {
    voice: Synthesizer,
    identity: PredictorIdentity,
    kept: Mutex<Kept>,
    limit: u64,
}

/// Predictions by clip: as many as there is room for, the others are made again.
#[derive(Debug, Default)]
struct Kept {
    clips: HashMap<u32, Arc<Predicted>>,
    bytes: u64,
}

/// A clip of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clip<'a> {
    pub clip: u32,
    /// Its tokens.
    pub ids: &'a [i32],
    /// Its log-mel, `[bands][frames]`.
    pub mel: &'a [f32],
    /// Pitch of each frame in Hz.
    pub pitch: &'a [f32],
}

/// Bytes that predictions may take, and bytes that are left for everything else that is cached.
pub(crate) fn shared_cache(settings: &TrainConfig) -> (u64, u64) {
    let limit = settings.pipeline.cache_limit;
    match settings.model.predicted_by.is_some() && settings.pipeline.cache != CacheMode::Off {
        true => (limit / CACHE_SHARE, limit - limit / CACHE_SHARE),
        false => (0, limit),
    }
}

impl Predictor {
    /// The last checkpoint of an acoustic run, or the one that a vocoder began with (`known`).
    ///
    /// # Errors
    ///
    /// If there is none, if it was trained on other features or clips, or if it is not the one that is known.
    pub(super) fn open(
        path: &Path,
        known: Option<&PredictorIdentity>,
        data: &Data,
        settings: &TrainConfig,
    ) -> Result<Predictor, TrainError> {
        let of_run = |known: &PredictorIdentity| crate::run::RunDir::new(path).checkpoints().path(known.step);
        let dir = match known.map(of_run).filter(|dir| dir.is_dir()) {
            Some(dir) => dir,
            None => checkpoint::find(path)?,
        };
        let (voice, state) = checkpoint::open_voice(&dir, &Device::flex()).map_err(|error| match error {
            VoiceError::Checkpoint(error) => TrainError::Checkpoint(error),
            VoiceError::Synthesis(error) => {
                TrainError::Checkpoint(checkpoint::CheckpointError::Damaged(dir.clone(), error.to_string()))
            }
        })?;
        let identity = PredictorIdentity { step: state.step, weights: checkpoint::averaged_sum(&dir)? };
        let mut lines = differences(data, &state);
        if let Some(known) = known.filter(|known| **known != identity) {
            lines.push(format!(
                "weights: step {} ({}) here, step {} ({}) when the vocoder began",
                identity.step, identity.weights, known.step, known.weights
            ));
        }
        if !lines.is_empty() {
            return Err(TrainError::OtherClips(path.to_owned(), lines));
        }
        Ok(Predictor { voice, identity, kept: Mutex::default(), limit: shared_cache(settings).0 })
    }

    pub(super) fn identity(&self) -> &PredictorIdentity {
        &self.identity
    }

    /// Bytes that are kept.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }

    /// What the run makes of a clip.
    pub(super) fn predict(&self, clip: Clip<'_>) -> Arc<Predicted> {
        if let Some(kept) = self.kept.lock().unwrap_or_else(PoisonError::into_inner).clips.get(&clip.clip) {
            return kept.clone();
        }
        let predicted = Arc::new(self.compute(clip));
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.bytes + predicted.bytes() <= self.limit {
            kept.bytes += predicted.bytes();
            kept.clips.insert(clip.clip, predicted.clone());
        }
        predicted
    }

    fn compute(&self, clip: Clip<'_>) -> Predicted {
        let bundle = self.voice.bundle();
        let (n_mels, frames, shape) = (bundle.mel.n_mels, clip.pitch.len(), self.voice.input_shape());
        let padded = frames.next_multiple_of(shape.group);
        let mut mel = vec![0.0; padded * n_mels];
        bundle.stats.normalize(clip.mel, frames, frames, &mut mel);
        // The clip is its own reference: who speaks in it is known then as well as can be.
        let heard = frames.min(REFERENCE_FRAMES);
        let reference = self.voice.has_speakers().then(|| HostReference {
            frames: heard,
            mel: mel[..heard * n_mels].to_vec(),
            lengths: vec![heard],
        });
        let inputs = HostInputs {
            rows: 1,
            tokens: clip.ids.len(),
            frames: padded,
            n_mels,
            ids: clip.ids.to_vec(),
            id_lengths: vec![clip.ids.len()],
            noise: vec![0.0; mel.len()],
            mel,
            mel_lengths: vec![frames],
            pitch: clip.pitch.iter().copied().chain(std::iter::repeat_n(0.0, padded - frames)).collect(),
            durations: Vec::new(),
            timesteps: vec![0.0],
            seeds: vec![0],
            reference,
        };
        let SampledMel { mel, pitch, .. } = self.voice.mels_as_recorded(&inputs.upload(&shape, self.voice.device()));
        Predicted { mel: bundle.stats.restore(&mel, frames), pitch: pitch[..frames].to_vec() }
    }
}

/// What of its corpus is not that of a vocoder's, one line each: only for the same clips is a prediction aligned.
fn differences(data: &Data, state: &State) -> Vec<String> {
    let corpus = data.corpus.settings();
    let mut lines = checkpoint::mel_differences(&corpus.mel, &state.mel);
    let (here, there) = (corpus.processing, state.settings.data.processing());
    let loudness = |level: Option<f64>| level.map_or("none".to_owned(), |level| level.to_string());
    for (name, here, there) in [
        ("trim_silence", here.trim_silence.to_string(), there.trim_silence.to_string()),
        ("loudness", loudness(here.loudness_db), loudness(there.loudness_db)),
    ] {
        if here != there {
            lines.push(format!("{name}: {here} here, {there} there"));
        }
    }
    let of_checkpoint = |line: String| line.replace("in the checkpoint", "there");
    lines.extend(
        checkpoint::frontend_differences(data.corpus.frontend(), &state.frontend).into_iter().map(of_checkpoint),
    );
    lines.extend(data.identity().differences(&state.data).into_iter().map(of_checkpoint));
    lines
}
