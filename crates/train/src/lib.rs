//! Trains a voice: the loop, exact resume, checkpoints, evaluation and speech.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `settings.rs` | [`TrainSettings`]: how a run is set up |
//! | `feed.rs` | [`Data`], [`Feed`]: batches on their way to the model; read this first |
//! | `features.rs` | [`prepare`]: normalised frames and noise; [`MelStats`] |
//! | `lane.rs` | [`DataLane`]: features on the data lane's device |
//! | `preflight.rs` | the longest batch before the first step |
//! | `guard.rs` | what each lane takes of its device, and that it stays below its limit |
//! | `step.rs` | [`Learner`]: one step |
//! | `optimiser.rs` | [`AdamW`] on the device |
//! | `scale.rs` | [`LossScale`]: half precision without overflow |
//! | `schedule.rs` | [`LearningRate`]: a pure function of the step |
//! | `trainer.rs` | [`Trainer`]: a run, from the first batch to the report |
//! | `validation.rs` | [`validation_losses`]: on clips that it does not learn from |
//! | `window.rs` | what happened since the last progress |
//! | `monitor.rs` | looks at the last hundred steps, and what is worth telling |
//! | `events.rs` | [`Event`], [`Report`]: what a run tells about itself |
//! | `checkpoint.rs` | [`Checkpoints`]: atomic, checksummed |
//! | `run.rs` | [`RunFolder`]: manifest, log, report |
//! | `record.rs` | [`RunRecord`]: what the folder of a run tells |
//! | `speech.rs` | [`Speech`]: a voice that speaks |
//! | `evaluate.rs` | [`evaluate`]: how well it has learned |
//! | `profile.rs` | [`profile_steps`]: some steps of the real pipeline, to see where the time goes |
//! | `measure.rs` | [`measure_data`], [`measure_model`]: a few batches and steps, to see what a run would take |
//! | `memory.rs` | the memory of this process |

pub mod checkpoint;
mod evaluate;
mod events;
mod fault;
mod features;
mod feed;
mod guard;
mod lane;
mod measure;
pub mod memory;
mod monitor;
mod optimiser;
mod preflight;
mod profile;
mod record;
mod run;
mod scale;
mod schedule;
mod settings;
mod speech;
mod step;
mod trainer;
mod validation;
mod window;

pub use checkpoint::{Checkpoint, CheckpointError, Checkpoints, DataIdentity, State};
pub use evaluate::{ClipScore, Evaluation, alignment_of, evaluate};
pub use events::{Ending, Event, Preflight, Progress, Report, TrainError};
pub use fault::LaneFault;
pub use features::{MelStats, Prepared, Ready, Signal, prepare};
pub use feed::{Budgets, Data, Feed, validation_batches};
pub use lane::{DataLane, Gauge};
pub use measure::{GoOn, MeasuredModel, measure_data, measure_model};
pub use optimiser::{AdamW, AdamWSettings, Grads};
pub use profile::{Profiled, Setup, measure_alone, profile_steps};
pub use record::{RecordError, RunRecord};
pub use run::{Choice, Log, RUN_FORMAT, RunFolder, read_log};
pub use scale::LossScale;
pub use schedule::{LearningRate, OptimizationLevel, Schedule};
pub use settings::{CachePlace, NanPolicy, TrainSettings, device_queue};
pub use speech::{Said, Speech, SpeechError};
pub use step::{Injection, Learner, StepRecord, StepValues};
pub use trainer::{Start, Trainer, parameter_parts};
pub use validation::validation_losses;
