//! `state.json` of a checkpoint: what it knows besides tensors. Without Burn, so that the fuzz targets can read it as the
//! program does: a file may say anything.

use std::fmt;

use serde::{Deserialize, Serialize};
use tandem_audio::{MelSettings, MelStats};
use tandem_flow::Cursor;
use tandem_text::Frontend;

use crate::settings::TrainConfig;
use crate::task::{PartConfig, PredictorIdentity};

/// Changing what the files mean changes this.
pub const FORMAT: u32 = 6;

/// Why bytes are not the state of a run.
#[derive(Debug)]
pub(super) enum StateError {
    /// Of another format than [`FORMAT`]; none: it does not say which.
    Format(Option<u64>),
    /// The format is known, and what is in it is not.
    Json(serde_json::Error),
    /// Numbers that no run has.
    Impossible(String),
}

/// What a checkpoint knows besides tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Version of the format.
    pub format: u32,
    /// Version of the program that wrote it.
    pub version: String,
    /// Steps done.
    pub step: u64,
    /// The next batch.
    pub next: CursorState,
    /// Seconds of training so far.
    pub seconds: f64,
    /// Seconds of audio trained on so far.
    pub audio_seconds: f64,
    /// Clips trained on so far.
    #[serde(default)]
    pub clips: u64,
    /// The best validation loss so far, and its step.
    pub best: Option<(f32, u64)>,
    /// Validations since then.
    pub validations_without_progress: u64,
    /// Factor of the loss in half precision, and good steps since it changed.
    #[serde(default)]
    pub loss_scale: Option<[f32; 2]>,
    /// Micro-batches that a batch goes through the device in; more than requested when its memory was too small.
    pub micro_batches: usize,
    /// How the run was set up.
    pub settings: TrainConfig,
    /// Shapes of the model.
    pub model: PartConfig,
    /// What a frame is.
    pub mel: MelSettings,
    /// How frames are normalized.
    pub stats: MelStats,
    /// How text becomes ids, with the vocabulary.
    pub frontend: Frontend,
    /// The data.
    pub data: DataIdentity,
    /// Which weights predict mels for a vocoder, if any do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predictor: Option<PredictorIdentity>,
}

impl State {
    /// Reads and checks it.
    pub(super) fn parse(bytes: &[u8]) -> Result<State, StateError> {
        let format = serde_json::from_slice::<serde_json::Value>(bytes).ok().and_then(|value| value["format"].as_u64());
        if format != Some(u64::from(FORMAT)) {
            return Err(StateError::Format(format));
        }
        let state: State = serde_json::from_slice(bytes).map_err(StateError::Json)?;
        state.model.check().map_err(StateError::Impossible)?;
        state.mel.check().map_err(|error| StateError::Impossible(error.to_string()))?;
        if let PartConfig::Vocoder(vocoder) = &state.model
            && [vocoder.n_fft, vocoder.hop_length, vocoder.win_length]
                != [state.mel.n_fft, state.mel.hop_length, state.mel.win_length]
        {
            return Err(StateError::Impossible("frames of the vocoder that are not those of its features".to_owned()));
        }
        let (bands, stats) = (state.model.n_mels(), &state.stats);
        if [state.mel.n_mels, stats.mean.len(), stats.std.len()] != [bands; 3] {
            let what = format!("{bands} mel bands of the model, other numbers of its features");
            return Err(StateError::Impossible(what));
        }
        // A number that is too large for its type becomes infinite, which no file can say: such a state could not be written again.
        let again = serde_json::to_value(&state).and_then(serde_json::from_value::<State>);
        if again.ok().as_ref() != Some(&state) {
            return Err(StateError::Impossible("a number that is too large".to_owned()));
        }
        Ok(state)
    }
}

/// A [`Cursor`] on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CursorState {
    /// Epoch.
    pub epoch: u64,
    /// Batch of the epoch.
    pub batch: u64,
}

impl From<Cursor> for CursorState {
    fn from(cursor: Cursor) -> Self {
        CursorState { epoch: cursor.epoch, batch: cursor.batch }
    }
}

impl From<CursorState> for Cursor {
    fn from(cursor: CursorState) -> Self {
        Cursor { epoch: cursor.epoch, batch: cursor.batch }
    }
}

/// Which clips a run was trained on, wherever they lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataIdentity {
    /// The folder; where it lies does not matter.
    #[serde(rename = "folder")]
    pub dir: String,
    /// The folder of the validation clips, when they come from another one.
    #[serde(rename = "validation_folder")]
    pub validation_dir: Option<String>,
    /// The folder of the audio files below it.
    #[serde(rename = "audio_folder")]
    pub audio_dir: String,
    /// Clips to train on.
    pub clips: usize,
    /// Clips to validate on.
    pub validation_clips: usize,
    /// Speakers.
    pub speakers: usize,
    /// A hash of every clip's length, text length and speaker.
    pub hash: String,
}

impl DataIdentity {
    /// What differs, apart from the folder; one line each.
    pub fn differences(&self, other: &DataIdentity) -> Vec<String> {
        let mut lines = Vec::new();
        let mut compare = |name: &str, mine: &dyn fmt::Display, theirs: &dyn fmt::Display| {
            if mine.to_string() != theirs.to_string() {
                lines.push(format!("{name}: {mine} here, {theirs} in the checkpoint"));
            }
        };
        compare("training clips", &self.clips, &other.clips);
        compare("validation clips", &self.validation_clips, &other.validation_clips);
        compare("speakers", &self.speakers, &other.speakers);
        compare("lengths and texts (hash)", &self.hash, &other.hash);
        lines
    }
}
