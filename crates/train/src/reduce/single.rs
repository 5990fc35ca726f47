//! A run of one process: every sum is its own.

use burn::tensor::Tensor;

use super::{Flags, Reduce};
use crate::optim::Grads;

/// The only process of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleProcess;

impl Reduce for SingleProcess {
    fn world(&self) -> usize {
        1
    }

    fn rank(&self) -> usize {
        0
    }

    fn sum(&mut self, values: Tensor<1>, grads: Grads) -> (Tensor<1>, Grads) {
        (values, grads)
    }

    fn agree(&mut self, flags: Flags) -> Flags {
        flags
    }
}
