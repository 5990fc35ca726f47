//! A run of one process: every sum is its own.

use std::time::{Duration, Instant};

use burn::tensor::Tensor;
use tandem_model::Device;

use super::{Activity, Reduce, ReduceError, Summed, Summing, Vote};
use crate::optim::Grads;

/// Gradients that nobody adds anything to.
#[derive(Debug)]
struct Own(Vec<Option<Tensor<2>>>);

impl Summing for Own {
    fn add(&mut self, index: usize, grad: Tensor<2>) {
        self.0[index] = Some(grad);
    }

    fn finish(self: Box<Self>, values: Tensor<1>, rest: Grads) -> Result<Summed, ReduceError> {
        let grads = self.0.into_iter().zip(rest.into_inner()).map(|(early, late)| early.or(late)).collect();
        Ok(Summed { values, grads: Grads::of(grads), since: Instant::now() })
    }
}

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

    fn begin(&mut self, _: usize, shapes: Vec<Option<[usize; 2]>>, _: &[usize], _: &Device) -> Box<dyn Summing> {
        Box::new(Own(shapes.iter().map(|_| None).collect()))
    }

    fn note(&self, _: Activity, _: u64) {}

    fn set_stall_timeout(&self, _: Option<Duration>) {}
}
