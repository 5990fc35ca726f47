//! A run of one process: every sum is its own.

use burn::tensor::Tensor;

use super::{Activity, Reduce, ReduceError, Vote};
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

    fn agree(&mut self, own: &Vote) -> Result<Vec<Vote>, ReduceError> {
        Ok(vec![own.clone()])
    }

    fn gather(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, ReduceError> {
        Ok(vec![own.to_vec()])
    }

    fn sum(
        &mut self,
        values: Tensor<1>,
        grads: Grads,
        _: &[Option<[usize; 2]>],
    ) -> Result<(Tensor<1>, Grads), ReduceError> {
        Ok((values, grads))
    }

    fn note(&self, _: Activity, _: u64) {}
}
