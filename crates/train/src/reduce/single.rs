//! A run of one process: every sum is its own.

use std::time::{Duration, Instant};

use burn::tensor::Tensor;

use super::{Activity, Reduce, ReduceError, Summed, Vote};
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

    fn sum(&mut self, values: Tensor<1>, grads: Grads, _: &[Option<[usize; 2]>]) -> Result<Summed, ReduceError> {
        Ok(Summed { values, grads, since: Instant::now() })
    }

    fn note(&self, _: Activity, _: u64) {}

    fn set_stall_timeout(&self, _: Option<Duration>) {}
}
