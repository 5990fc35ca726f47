//! As in the crate, what needs no Burn.

#[path = "../../crates/train/src/optim/hyperparameters.rs"]
mod hyperparameters;
#[path = "../../crates/train/src/optim/schedule.rs"]
mod schedule;

pub use hyperparameters::{AdamWSettings, OptimizerKind};
pub use schedule::{LearningRate, OptimizationLevel, Schedule};
