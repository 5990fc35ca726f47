//! The names of Tandem's own pipeline, each written once: its stages, the places where batches wait, its two lanes.
//!
//! A stage's name is also that of its thread, its metric, its row in a trace and its text (`stage-load`). The engine does
//! not depend on these names: every adapter of [`Flow`](crate::Flow) takes any text for a name.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A stage of the pipeline, from source to sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The source: which clips form a batch.
    Plan,
    /// Reads, decodes and tokenizes, in a pool of workers.
    Load,
    /// Counts bad clips and decides whether so many are tolerated.
    Count,
    /// Computes or normalizes features, on the data lane's device.
    Preprocess,
    /// Copies a batch to the model lane's device.
    Transfer,
    /// One optimizer step.
    Train,
    /// The part of a step that waits for other ranks: time that nothing hides.
    Reduce,
}

impl Stage {
    /// All of them.
    pub const ALL: [Stage; 7] =
        [Stage::Plan, Stage::Load, Stage::Count, Stage::Preprocess, Stage::Transfer, Stage::Train, Stage::Reduce];
    /// Those that take time in every run: profiles, verdicts and simulations are about these four.
    pub const TIMED: [Stage; 4] = [Stage::Load, Stage::Preprocess, Stage::Transfer, Stage::Train];
    /// What happens to a batch before the step.
    pub const PREPARING: [Stage; 3] = [Stage::Load, Stage::Preprocess, Stage::Transfer];
    /// What the data lane's own thread does; the workers of [`Stage::Load`] are on the host.
    pub const DATA_LANE: [Stage; 2] = [Stage::Preprocess, Stage::Transfer];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Plan => "plan",
            Stage::Load => "load",
            Stage::Count => "count",
            Stage::Preprocess => "preprocess",
            Stage::Transfer => "transfer",
            Stage::Train => "train",
            Stage::Reduce => "reduce",
        }
    }

    /// The stage of this name.
    pub fn named(name: &str) -> Option<Stage> {
        Stage::ALL.into_iter().find(|stage| stage.name() == name)
    }

    /// Who works in it.
    pub const fn lane(self) -> Lane {
        match self {
            Stage::Plan | Stage::Load | Stage::Count | Stage::Preprocess | Stage::Transfer => Lane::Data,
            Stage::Train | Stage::Reduce => Lane::Model,
        }
    }
}

/// Where batches wait for the next stage. The queue there, the budget that its batches lease from and the reading of
/// that memory have this one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// Memory of the host; its queue lies between load and preprocess.
    Host,
    /// The data lane's device; its queue lies between preprocess and transfer.
    Data,
    /// The model lane's device; its queue lies between transfer and train.
    Model,
}

impl Place {
    /// All of them, from source to sink.
    pub const ALL: [Place; 3] = [Place::Host, Place::Data, Place::Model];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Place::Host => "host",
            Place::Data => Lane::Data.name(),
            Place::Model => Lane::Model.name(),
        }
    }

    /// The place of this name.
    pub fn named(name: &str) -> Option<Place> {
        Place::ALL.into_iter().find(|place| place.name() == name)
    }

    /// The stage that fills its queue: the slow one when the queue is empty and those before it are full.
    pub const fn filled_by(self) -> Stage {
        match self {
            Place::Host => Stage::Load,
            Place::Data => Stage::Preprocess,
            Place::Model => Stage::Transfer,
        }
    }
}

/// One of the two lanes of a run: a device with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// Prepares the batches.
    Data,
    /// Trains on them.
    Model,
}

impl Lane {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Lane::Data => "data",
            Lane::Model => "model",
        }
    }

    /// The memory of its device.
    pub const fn place(self) -> Place {
        match self {
            Lane::Data => Place::Data,
            Lane::Model => Place::Model,
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lane::Data => "data lane",
            Lane::Model => "model lane",
        })
    }
}

impl AsRef<str> for Stage {
    fn as_ref(&self) -> &str {
        self.name()
    }
}

impl AsRef<str> for Place {
    fn as_ref(&self) -> &str {
        self.name()
    }
}

/// Records keep names as text, because a flow of somebody else has other stages.
impl PartialEq<Stage> for str {
    fn eq(&self, stage: &Stage) -> bool {
        self == stage.name()
    }
}

impl PartialEq<Place> for str {
    fn eq(&self, place: &Place) -> bool {
        self == place.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again_and_are_those_of_the_files() {
        for stage in Stage::ALL {
            assert_eq!(Stage::named(stage.name()), Some(stage));
        }
        for place in Place::ALL {
            assert_eq!(Place::named(place.name()), Some(place));
        }
        assert_eq!((Stage::named("gaps"), Place::named("disk")), (None, None));
        assert_eq!(format!("{:10}|{}", Stage::Load, Place::Data), "load      |data");
    }
}
