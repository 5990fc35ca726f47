//! What a run reports about itself: while it runs, and at its end.

use std::fmt;

use serde::Serialize;
use tandem_device::OpenError;
use tandem_device::memory::{LaneMemory, Leak, MemoryLimitExceeded, Rung};
use tandem_flow::Stage;
use tandem_observe::{Notice, Progress, Snapshot};

use crate::checkpoint::CheckpointError;
use crate::data::DataError;
use crate::reduce::{RanksError, ReduceError};
use crate::settings::NanPolicy;
use crate::warm_start::WarmStart;

/// What happens during a run, for whoever shows it.
#[derive(Debug)]
pub enum Event<'a> {
    /// The data lane is at work.
    DataLane {
        /// Bytes that a full queue on the host takes, at most.
        buffer_bytes: u64,
    },
    /// The model is about to be made, on the model lane's device.
    Placing,
    /// The model is made.
    Model {
        /// Parameters of each part.
        parts: &'a [(String, usize)],
        /// The device.
        device: String,
    },
    /// The model starts with the weights of another run.
    WarmStart {
        /// Where they come from.
        path: &'a std::path::Path,
        /// Steps that the other run was trained for.
        step: u64,
        /// What became of each tensor.
        tensors: &'a WarmStart,
    },
    /// From a step on, half of what the vocoder learns from is predicted by an acoustic run.
    Predictions {
        /// The acoustic run.
        path: &'a std::path::Path,
        /// Steps that it was trained for.
        step: u64,
        /// The step.
        from: u64,
    },
    /// The model waits for the data lane to get ahead.
    Warming {
        /// Seconds at most.
        seconds: f64,
        /// Batches ready.
        ready: usize,
        /// Batches that there may be.
        of: usize,
    },
    /// The first step begins.
    Starting {
        /// Batches ready.
        ready: usize,
        /// Batches that there may be.
        of: usize,
        /// Seconds since the data lane started.
        seconds: f64,
    },
    /// Workers or a queue were changed, or not, and why.
    Tuned(&'a tandem_flow::Decision),
    /// What the lanes take of their devices.
    Memory {
        /// After this step.
        step: u64,
        /// Each lane.
        lanes: &'a [LaneMemory],
    },
    /// A lane's memory grows and grows.
    Leak {
        /// After this step.
        step: u64,
        /// The lane's device.
        device: String,
        /// How much, over how long.
        leak: &'a Leak,
    },
    /// The longest batch went through the device, to see that it fits.
    Preflight(&'a Preflight),
    /// Some steps were done.
    Progress(&'a Progress),
    /// The run as it is now, with the profile of its last hundred steps.
    Snapshot(&'a Snapshot),
    /// Something worth reporting about them.
    Notice {
        /// After this step.
        step: u64,
        /// What.
        notice: &'a Notice,
    },
    /// Validated.
    Validation {
        /// After this step.
        step: u64,
        /// The loss.
        loss: f64,
        /// The names of its terms.
        names: &'static [&'static str],
        /// Its terms.
        terms: Vec<f64>,
        /// Whether it is the best so far.
        best: bool,
    },
    /// A checkpoint that is not part of this run any more was moved out of the way.
    Archived {
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
    /// A checkpoint could not be written, or that it is the best could not be noted; the run continues.
    CheckpointFailed {
        /// Of this step.
        step: u64,
        /// Why.
        error: &'a CheckpointError,
    },
    /// The losses could not be written to the log; it is tried again, the run continues.
    LogFailed {
        /// The log.
        path: &'a std::path::Path,
        /// Why.
        error: &'a std::io::Error,
    },
    /// Speech was made.
    Sample {
        /// After this step.
        step: u64,
        /// The WAV file.
        path: &'a std::path::Path,
    },
    /// A sample could not be made or written; the run continues.
    SampleFailed {
        /// After this step.
        step: u64,
        /// Why.
        error: String,
    },
    /// The run has fewer steps than planned: of some batches no clip could be used.
    Short {
        /// The last step.
        step: u64,
        /// Steps that were planned.
        planned: u64,
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
    /// A step in half precision overflowed and was skipped.
    Overflow {
        /// The step.
        step: u64,
    },
    /// Batches are split from now on, because the device's memory is too small.
    Split {
        /// From this step on.
        step: u64,
        /// In so many micro-batches.
        micro_batches: usize,
        /// Because an earlier start of the run had to.
        kept: bool,
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
    /// What the batch takes on the model's device, and what would fit if it does not.
    pub ladder: Vec<Rung>,
    /// Bytes that the model lane may take, if that is known.
    pub limit_bytes: Option<u64>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All epochs or steps are done.
    Finished,
    /// Early stopping: validation did not get better any more.
    #[serde(rename = "stale")]
    EarlyStopped,
    /// Asked to.
    Stopped,
    /// Something went wrong; the report says what.
    Failed,
}

/// What a run did.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// How it ended.
    #[serde(rename = "ending")]
    pub outcome: Outcome,
    /// What went wrong, if something did.
    pub error: Option<String>,
    /// Steps done, from the very start.
    pub step: u64,
    /// Steps that it has when it is finished, unless no clip of some batches can be used.
    pub planned: u64,
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
    /// How often losses were read from the device (SPEC P7).
    pub readings: u64,
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
    /// Share of the time that the busiest stage of the data lane (load, preprocess, transfer) worked.
    pub data_busy: f64,
    /// Share of the time that the model lane worked.
    pub model_busy: f64,
    /// CPU load by this run, in percent of one core, where it is known.
    pub cpu_percent: Option<f64>,
    /// Bytes and seconds of the copies to the model's device.
    pub transferred_bytes: u64,
    /// Seconds that those copies took.
    pub transfer_seconds: f64,
    /// What each lane takes of its device.
    pub lanes: Vec<LaneMemory>,
    /// What each stage did.
    pub stages: Vec<tandem_flow::StageStats>,
    /// What limited it, at the last snapshot.
    pub verdict: Option<tandem_observe::Verdict>,
    /// What each queue did.
    pub queues: Vec<tandem_flow::QueueStats>,
    /// Clips skipped while loading.
    #[serde(rename = "left_out")]
    pub skipped: Vec<tandem_data::FaultReport>,
}

/// Why a run failed.
#[derive(Debug)]
pub enum TrainError {
    /// There are no batches.
    Data(DataError),
    /// A lane's device cannot be opened.
    Open(OpenError),
    /// A stage failed; what was learned is in a checkpoint if there is one.
    Stage(tandem_flow::Error),
    /// The checkpoint.
    Checkpoint(CheckpointError),
    /// The run to start from has other features: what differs, one line each.
    OtherFeatures(std::path::PathBuf, Vec<String>),
    /// The run that predicts mels was trained on other features or clips: what differs, one line each.
    OtherClips(std::path::PathBuf, Vec<String>),
    /// The run's folder.
    Io(std::path::PathBuf, std::io::Error),
    /// Another process trains in this folder.
    Locked(std::path::PathBuf),
    /// A lane would take more of its device than it may; what would fit instead.
    Memory(MemoryLimitExceeded, Vec<Rung>),
    /// The device ran out of memory with this many clips of this many frames.
    OutOfMemory {
        /// Clips.
        rows: usize,
        /// Frames of each.
        frames: usize,
    },
    /// Something outside of the pipeline panicked.
    Panicked(String),
    /// Tensors on a device where they do not belong.
    Misplaced(Vec<String>),
    /// The loss was not a number at this step, with these clips.
    NotFinite(u64, Vec<String>),
    /// The ranks of a run do not fit together.
    Ranks(RanksError),
    /// A rank is missing.
    Reduce(ReduceError),
}

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrainError::Data(error) => write!(f, "{error}"),
            TrainError::Open(error) => write!(f, "{error}"),
            TrainError::Stage(error) => match Stage::named(&error.stage) {
                Some(stage) => write!(f, "{}: {error}", stage.lane()),
                None => write!(f, "{error}"),
            },
            TrainError::Memory(error, _) => write!(f, "{error}"),
            TrainError::OutOfMemory { rows, frames } => {
                write!(f, "the model lane's device is out of memory with {rows} clip(s) of {frames} frames")
            }
            TrainError::Panicked(message) => write!(f, "{message}"),
            TrainError::Misplaced(names) => {
                write!(f, "tensors on a device where they do not belong: {}", names.join(", "))
            }
            TrainError::Checkpoint(error) => write!(f, "{error}"),
            TrainError::OtherFeatures(path, lines) => {
                write!(f, "{}: a run with other features cannot be started from", path.display())?;
                lines.iter().try_for_each(|line| write!(f, "\n  {line}"))
            }
            TrainError::OtherClips(path, lines) => {
                write!(f, "{} cannot predict these clips: it was trained on others", path.display())?;
                lines.iter().try_for_each(|line| write!(f, "\n  {line}"))
            }
            TrainError::Locked(path) => write!(f, "another process is training in {}", path.display()),
            TrainError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            TrainError::Ranks(error) => write!(f, "{error}"),
            TrainError::Reduce(error) => write!(f, "{error}"),
            TrainError::NotFinite(step, clips) => {
                write!(f, "the loss of step {step} is not a number; its clips: {}", clips.join(", "))
            }
        }
    }
}

impl std::error::Error for TrainError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TrainError::Data(error) => Some(error),
            TrainError::Open(error) => Some(error),
            TrainError::Stage(error) => Some(error),
            TrainError::Checkpoint(error) => Some(error),
            TrainError::Io(_, error) => Some(error),
            TrainError::Memory(error, _) => Some(error),
            TrainError::Ranks(error) => Some(error),
            TrainError::Reduce(error) => Some(error),
            _ => None,
        }
    }
}

impl From<DataError> for TrainError {
    fn from(error: DataError) -> Self {
        TrainError::Data(error)
    }
}

impl From<CheckpointError> for TrainError {
    fn from(error: CheckpointError) -> Self {
        TrainError::Checkpoint(error)
    }
}
