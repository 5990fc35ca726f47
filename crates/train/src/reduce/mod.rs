//! What the processes of a run agree on in each step. A run of one process has nobody to ask.
//!
//! Losses are divided by the totals of the *whole* batch before gradients are summed, so a sum over processes is the
//! gradient of the batch, however its rows are spread.

mod single;

use std::fmt::Debug;

use burn::tensor::Tensor;

use crate::optim::Grads;

pub use single::SingleProcess;

/// What a process says to all others in each step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// It was asked to stop.
    pub stop: bool,
    /// It has failed.
    pub fault: bool,
}

/// Sums and agreements over the processes of a run.
pub trait Reduce: Debug + Send {
    /// Processes of the run.
    fn world(&self) -> usize;

    /// This process, from 0.
    fn rank(&self) -> usize;

    /// Loss terms and gradients of the whole batch, from those of this process' rows.
    fn sum(&mut self, values: Tensor<1>, grads: Grads) -> (Tensor<1>, Grads);

    /// Whether any process raised a flag.
    fn agree(&mut self, flags: Flags) -> Flags;
}
