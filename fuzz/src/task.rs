//! As in the crate, what needs no Burn.

#[path = "../../crates/train/src/task/part.rs"]
mod part;

pub use part::{PartConfig, PredictorIdentity, TrainedPart};
