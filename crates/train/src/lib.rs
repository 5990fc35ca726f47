//! Trains a voice: the loop, exact resume, checkpoints.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `settings/` | [`SETTINGS`]: one row for each setting; [`resolve`]: from [`Requested`] to [`TrainConfig`] |
//! | `launch.rs` | [`Run`]: from a directory of clips to a report in a few lines |
//! | `feed.rs` | [`Feed`]: batches on their way to the model; read this first |
//! | `data.rs` | [`Data`]: the clips to train and to validate on |
//! | `features.rs` | [`prepare`]: normalized frames, noise, timesteps |
//! | `lane.rs`, `lane/segments.rs` | [`DataLane`]: features on the data lane's device |
//! | `preflight.rs` | the longest batch before the first step |
//! | `guard.rs` | what each lane takes of its device, and that it stays below its limit |
//! | `step.rs`, `step/gradients.rs` | [`Learner`]: one step, its gradients |
//! | `task/` | what is trained: [`task::Task`], the acoustic model, the vocoder |
//! | `optim/` | [`Optimizer`], [`AdamW`], [`LearningRate`], [`LossScale`], [`Ema`] |
//! | `reduce/` | sums and agreements over the processes of a run; one process |
//! | `trainer.rs` | [`Trainer`]: a run, from the first batch to the report |
//! | `trainer/` | how it gets ready (`start.rs`), its steps (`steps.rs`), what it keeps (`saving.rs`) |
//! | `warm_start.rs` | [`match_weights`]: the weights of another run where names, shapes and symbols match |
//! | `window.rs` | what happened since the last report of progress |
//! | `monitor.rs` | snapshots of the last hundred steps, and what is worth reporting |
//! | `events.rs` | [`Event`], [`Report`]: what a run reports about itself |
//! | `checkpoint.rs` | [`Checkpoints`]: atomic, checksummed |
//! | `run.rs` | [`RunDir`]: manifest, log, report |
//! | `record.rs` | [`RunRecord`]: what the directory of a run says |
//! | `profile_run.rs` | [`profile_steps`]: some steps of the real pipeline, to see where the time goes |
//! | `measure.rs` | [`measure_data`], [`measure_model`]: a few batches and steps, to see what a run would take |
//! | `memory.rs` | the memory of this process |

pub mod checkpoint;
mod data;
mod events;
mod fault_injection;
mod features;
mod feed;
mod guard;
mod lane;
mod launch;
mod measure;
pub mod memory;
mod monitor;
pub mod optim;
mod preflight;
mod profile_run;
mod record;
pub mod reduce;
mod run;
mod settings;
mod step;
pub mod task;
mod trainer;
mod warm_start;
mod window;

pub use checkpoint::{Checkpoint, CheckpointError, Checkpoints, DataIdentity, State, VoiceError};
pub use data::{Data, DataError, Purpose};
pub use events::{Event, Outcome, Preflight, Report, TrainError};
pub use fault_injection::LaneFault;
pub use features::{Prepared, Ready, Signal, measure_mel_stats, prepare};
pub use feed::{Budgets, Feed, clip_batches, each_validation_batch, validation_batches};
pub use lane::{DataLane, Gauge, LaneError, RawSegments};
pub use launch::{Run, RunError, corpus_settings};
pub use measure::{KeepGoing, MeasuredModel, measure_data, measure_model};
pub use optim::{
    AdamW, AdamWSettings, Ema, Grads, LearningRate, LossScale, OptimizationLevel, Optimizer, OptimizerKind, Schedule,
};
pub use profile_run::{Profiled, REPLAYED, Setup, measure_alone, profile_steps};
pub use record::{RecordError, RunRecord, is_training};
pub use run::{Log, RUN_FORMAT, RunDir, read_log};
pub use settings::{
    DataSettings, DefaultValue, Facts, Field, HalfPrecision, Kind, MemorySettings, ModelSettings, NanPolicy, Off,
    OnResume, OptimizerSettings, PipelineSettings, Requested, ResolvedSetting, RunSettings, SETTINGS, Scope, Setting,
    SettingsError, TrainConfig, Value, Word, find_setting, limits_need_isolation, prefetch_buffer_size, resolve,
    resolve_corpus,
};
pub use step::{Injection, Learner, StepRecord, StepValues, Stepped};
pub use trainer::{Start, Trainer, parameter_parts};
pub use warm_start::{Donor, WarmStart, match_weights};
