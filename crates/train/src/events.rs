//! What a run tells about itself: while it runs, and at its end.

use std::fmt;

use serde::Serialize;

use crate::checkpoint::CheckpointError;
use crate::settings::NanPolicy;

/// What happens during a run, for whoever shows it.
#[derive(Debug)]
pub enum Event<'a> {
    /// The model is made.
    Model {
        /// Parameters of each part.
        parts: &'a [(String, usize)],
        /// The device.
        device: String,
    },
    /// The longest batch went through the device, to see that it fits.
    Preflight(&'a Preflight),
    /// Some steps were done.
    Progress(&'a Progress),
    /// Validated.
    Validation {
        /// After this step.
        step: u64,
        /// The loss.
        loss: f64,
        /// Its terms.
        terms: [f64; 3],
        /// Whether it is the best so far.
        best: bool,
    },
    /// A checkpoint that is not part of this run any more was moved out of the way.
    SetAside {
        /// Its step.
        step: u64,
        /// Where it is now.
        path: &'a std::path::Path,
    },
    /// A checkpoint is on the disk.
    Checkpoint {
        /// Of this step.
        step: u64,
        /// Where.
        path: &'a std::path::Path,
    },
    /// A checkpoint could not be written; the run goes on.
    CheckpointFailed {
        /// Of this step.
        step: u64,
        /// Why.
        error: &'a CheckpointError,
    },
    /// Speech was made.
    Sample {
        /// After this step.
        step: u64,
        /// The WAV file.
        path: &'a std::path::Path,
    },
    /// A sample could not be made or written; the run goes on.
    SampleFailed {
        /// After this step.
        step: u64,
        /// Why.
        error: String,
    },
    /// The loss of a step was not a number.
    NotFinite {
        /// The step.
        step: u64,
        /// The ids of its clips.
        clips: &'a [String],
        /// What is done about it.
        policy: NanPolicy,
    },
    /// Batches are split from now on, because the device's memory is too small.
    Split {
        /// From this step on.
        step: u64,
        /// In so many parts.
        parts: usize,
    },
}

/// What the longest batch took.
#[derive(Clone, Debug, Serialize)]
pub struct Preflight {
    /// Clips.
    pub rows: usize,
    /// Frames of each.
    pub frames: usize,
    /// Tokens of each.
    pub tokens: usize,
    /// Seconds.
    pub seconds: f64,
    /// Peak memory of the process afterwards, in bytes, where it is known.
    pub peak_bytes: Option<u64>,
}

/// How far a run is.
#[derive(Clone, Debug, Serialize)]
pub struct Progress {
    /// Steps done.
    pub step: u64,
    /// Steps there will be.
    pub steps: u64,
    /// Epoch, counted from 0.
    pub epoch: u64,
    /// Mean loss since the last time.
    pub loss: f64,
    /// Its terms.
    pub terms: [f64; 3],
    /// Norm of the last gradient.
    pub norm: f64,
    /// Learning rate.
    pub rate: f64,
    /// Steps per second since the last time.
    pub steps_per_s: f64,
    /// Seconds of audio per second since the last time.
    pub audio_per_s: f64,
    /// Share of the time that the model waited for data since the last time.
    pub starved: f64,
    /// Seconds until the end.
    pub eta_s: f64,
    /// Memory of the process, in bytes, where it is known.
    pub memory_bytes: Option<u64>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// All epochs or steps are done.
    Finished,
    /// Validation did not get better any more.
    Stale,
    /// Asked to.
    Stopped,
}

/// What a run did.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Why it ended.
    pub ending: Ending,
    /// Steps done, from the very start.
    pub step: u64,
    /// Steps done this time.
    pub steps: u64,
    /// Seconds this time.
    pub seconds: f64,
    /// Seconds of training from the very start.
    pub total_seconds: f64,
    /// Seconds of audio trained on, from the very start.
    pub audio_seconds: f64,
    /// The last loss.
    pub loss: Option<f64>,
    /// The best validation loss and its step.
    pub best: Option<(f32, u64)>,
    /// Parameters.
    pub parameters: usize,
    /// Share of the time that the model waited for data.
    pub starved: f64,
    /// Peak memory of the process, in bytes, where it is known.
    pub peak_bytes: Option<u64>,
    /// Share of the step that searched alignments.
    pub alignment_share: f64,
    /// What each stage did.
    pub stages: Vec<tandem_flow::StageStats>,
    /// What each queue did.
    pub queues: Vec<tandem_flow::QueueStats>,
    /// Clips left out while loading.
    pub left_out: Vec<tandem_data::FaultReport>,
}

/// Why a run failed.
#[derive(Debug)]
pub enum TrainError {
    /// The data.
    Data(String),
    /// A stage failed; what was learned is in a checkpoint if there is one.
    Stage(tandem_flow::Error),
    /// The checkpoint.
    Checkpoint(CheckpointError),
    /// The run's folder.
    Io(std::path::PathBuf, std::io::Error),
    /// Another process trains in this folder.
    Locked(std::path::PathBuf),
    /// The loss was not a number at this step, with these clips.
    NotFinite(u64, Vec<String>),
}

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrainError::Data(message) => write!(f, "{message}"),
            TrainError::Stage(error) => write!(f, "{error}"),
            TrainError::Checkpoint(error) => write!(f, "{error}"),
            TrainError::Locked(path) => write!(f, "another process is training in {}", path.display()),
            TrainError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            TrainError::NotFinite(step, clips) => {
                write!(f, "the loss of step {step} is not a number; its clips: {}", clips.join(", "))
            }
        }
    }
}

impl std::error::Error for TrainError {}

impl From<CheckpointError> for TrainError {
    fn from(error: CheckpointError) -> Self {
        TrainError::Checkpoint(error)
    }
}
