//! What the processes (ranks) of a run agree on and add up in each step. A run of one process has nobody to ask.
//!
//! Losses are divided by the totals of the *whole* batch before gradients are summed, so a sum over processes is the
//! gradient of the batch, however its rows are spread.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `mod.rs` | [`Reduce`]: what a run asks of its ranks; [`Summing`]; [`ReduceError`] |
//! | `single.rs` | [`SingleProcess`] |
//! | `vote.rs` | [`Vote`]: the one small message of each step |
//! | `buckets.rs` | gradients as a few large vectors and back |
//! | `launcher.rs` | [`Launched`]: what the environment says about other processes |
//! | `facts.rs` | [`RankFacts`]: what ranks compare before they start |
//! | `mpi/` | [`mpi::Session`]: the ranks of an MPI job |

pub(crate) mod buckets;
pub(crate) mod facts;
mod launcher;
#[cfg(unix)]
pub mod mpi;
mod single;
mod vote;

use std::fmt::{self, Debug};
use std::time::{Duration, Instant};

use burn::tensor::Tensor;
use tandem_model::Device;

use crate::optim::Grads;

pub use facts::{RankFacts, RanksError};
pub use launcher::{Launched, Launcher};
pub use single::SingleProcess;
pub use vote::{Agreed, Vote};

/// Where in a run a rank is, for reports about one that is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activity {
    /// Before its first step.
    #[default]
    Start,
    /// Waits for a batch.
    Load,
    /// Computes gradients.
    Train,
    /// Adds gradients up with the others.
    Reduce,
    /// Computes the loss on clips that are not trained on.
    Validate,
    /// Writes a checkpoint.
    Checkpoint,
    /// After its last step.
    End,
}

impl Activity {
    const ALL: [Activity; 7] = [
        Activity::Start,
        Activity::Load,
        Activity::Train,
        Activity::Reduce,
        Activity::Validate,
        Activity::Checkpoint,
        Activity::End,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Activity::Start => "start",
            Activity::Load => "load",
            Activity::Train => "train",
            Activity::Reduce => "reduce",
            Activity::Validate => "validate",
            Activity::Checkpoint => "checkpoint",
            Activity::End => "end",
        }
    }

    pub(crate) fn number(self) -> u8 {
        Activity::ALL.iter().position(|one| *one == self).unwrap_or_default() as u8
    }

    pub(crate) fn numbered(number: u8) -> Activity {
        Activity::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A rank, where it runs and what it did when it was last heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastHeard {
    /// The rank.
    pub rank: usize,
    /// Its host.
    pub host: String,
    /// What it did.
    pub activity: Activity,
    /// Steps that it had done.
    pub step: u64,
}

impl fmt::Display for LastHeard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LastHeard { rank, host, activity, step } = self;
        write!(f, "rank {rank} on {host} (stage `{activity}`, after step {step})")
    }
}

/// Why ranks cannot continue together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReduceError {
    /// A rank is gone.
    Gone(LastHeard),
    /// Nothing was heard of a rank for so many seconds.
    Silent(LastHeard, u64),
    /// A rank failed, and said why; and the exit code.
    Failed(LastHeard, String, u8),
    /// Ranks are at different places of the run: this one and the one that differs.
    Apart(String, String),
    /// The MPI library reports an error.
    Library(String),
}

impl fmt::Display for ReduceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReduceError::Gone(who) => write!(f, "{who} is gone: killed, or its host is"),
            ReduceError::Silent(who, seconds) => write!(f, "{who} has not been heard of for {seconds} s"),
            ReduceError::Failed(who, why, _) => write!(f, "{who} failed: {why}"),
            ReduceError::Apart(mine, theirs) => write!(f, "ranks are not at the same place: {mine}, {theirs}"),
            ReduceError::Library(text) => write!(f, "MPI: {text}"),
        }
    }
}

impl std::error::Error for ReduceError {}

impl ReduceError {
    /// The rank that it is about, if it is one.
    pub fn rank(&self) -> Option<usize> {
        match self {
            ReduceError::Gone(who) | ReduceError::Silent(who, _) | ReduceError::Failed(who, ..) => Some(who.rank),
            ReduceError::Apart(..) | ReduceError::Library(_) => None,
        }
    }
}

/// Sums over all ranks.
#[derive(Debug)]
pub struct Summed {
    /// Loss terms.
    pub values: Tensor<1>,
    /// Gradients.
    pub grads: Grads,
    /// Since when the device had nothing to do but wait for them: its own gradients were there.
    pub since: Instant,
}

/// Loss terms and gradients of the whole batch, from those of this rank's rows: on their way to other ranks as soon as they are there.
pub trait Summing: Debug {
    /// The whole gradient of this rank for a parameter. Another one for the same parameter takes its place, if the first has not left yet.
    fn add(&mut self, index: usize, grad: Tensor<2>);

    /// The sums, with loss terms and gradients that were not known before: a rank without rows has no gradients, and others may lack some.
    ///
    /// # Errors
    ///
    /// [`ReduceError`] if a rank is missing.
    fn finish(self: Box<Self>, terms: Tensor<1>, rest: Grads) -> Result<Summed, ReduceError>;
}

/// Sums and agreements over the ranks of a run. Every rank makes the same calls in the same order.
pub trait Reduce: Debug + Send {
    /// Ranks of the run.
    fn world(&self) -> usize;

    /// This rank, from 0.
    fn rank(&self) -> usize;

    /// What every rank says about the step that is to come, by rank.
    ///
    /// # Errors
    ///
    /// [`ReduceError`] if a rank is missing.
    fn agree(&mut self, own: &Vote) -> Result<Vec<Vote>, ReduceError>;

    /// Bytes of every rank, by rank.
    ///
    /// # Errors
    ///
    /// [`ReduceError`] if a rank is missing.
    fn gather(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, ReduceError>;

    /// Begins to add up so many loss terms and the gradients of parameters of these shapes, in the model's order; those without one do not learn.
    /// `order` is that in which gradients are expected, on all ranks the same.
    fn begin(
        &mut self,
        terms: usize,
        shapes: Vec<Option<[usize; 2]>>,
        order: &[usize],
        device: &Device,
    ) -> Box<dyn Summing>;

    /// Notes where in the run this rank is: others say so when it goes missing.
    fn note(&self, activity: Activity, step: u64);

    /// A rank whose training thread does nothing for so long, and does not wait for others, has failed; none: never.
    fn set_stall_timeout(&self, timeout: Option<Duration>);
}
