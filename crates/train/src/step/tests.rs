//! What a step does, and what of it leaves for other ranks before it ends.

use std::sync::{Arc, Mutex};

use tandem_flow::Random;
use tandem_model::{HostInputs, Size};

use super::*;
use crate::reduce::Summing;

const N_MELS: usize = 20;

/// Another rank that has no rows: sums are this one's own. Notes what left before the end of the backward pass.
#[derive(Clone, Debug, Default)]
struct Other {
    early: Arc<Mutex<Vec<usize>>>,
    expected: Arc<Mutex<Vec<usize>>>,
}

#[derive(Debug)]
struct Kept(Other, Vec<Option<Tensor<2>>>);

impl Summing for Kept {
    fn add(&mut self, index: usize, grad: Tensor<2>) {
        self.0.early.lock().expect("not poisoned").push(index);
        self.1[index] = Some(grad);
    }

    fn finish(self: Box<Self>, values: Tensor<1>, rest: Grads) -> Result<Summed, ReduceError> {
        let grads = self.1.into_iter().zip(rest.into_inner()).map(|(early, late)| early.or(late)).collect();
        Ok(Summed { values, grads: Grads::of(grads), since: Instant::now() })
    }
}

impl Reduce for Other {
    fn world(&self) -> usize {
        2
    }

    fn rank(&self) -> usize {
        0
    }

    fn agree(&mut self, own: &Vote) -> Result<Vec<Vote>, ReduceError> {
        let none = Vote { clips: 0, seconds: 0.0, counts: [0; 3], ..own.clone() };
        Ok(vec![own.clone(), none])
    }

    fn gather(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, ReduceError> {
        Ok(vec![own.to_vec(), Vec::new()])
    }

    fn begin(&mut self, _: usize, shapes: Vec<Option<[usize; 2]>>, order: &[usize], _: &Device) -> Box<dyn Summing> {
        *self.expected.lock().expect("not poisoned") = order.to_vec();
        Box::new(Kept(self.clone(), shapes.iter().map(|_| None).collect()))
    }

    fn note(&self, _: Activity, _: u64) {}

    fn set_stall_timeout(&self, _: Option<Duration>) {}
}

fn batch(learner: &Learner, batch: u64) -> Ready<<Acoustic as Task>::Inputs> {
    let (rows, tokens, frames) = (4, 7, 40);
    let mut random = Random::at(&[batch]);
    let mut inputs = HostInputs {
        rows,
        tokens,
        frames,
        n_mels: N_MELS,
        ids: (0..rows * tokens).map(|_| 1 + random.below(11) as i32).collect(),
        id_lengths: vec![tokens; rows],
        mel: vec![0.0; rows * frames * N_MELS],
        mel_lengths: vec![frames; rows],
        pitch: vec![150.0; rows * frames],
        noise: vec![0.0; rows * frames * N_MELS],
        timesteps: vec![0.5; rows],
        seeds: (0..rows as u64).collect(),
        ..HostInputs::default()
    };
    random.fill_normal(&mut inputs.mel);
    let inputs = inputs.upload(&learner.input_shape(), learner.device());
    Ready { cursor: Cursor { epoch: 0, batch }, clips: (0..4).collect(), seconds: 2.0, inputs }
}

#[test]
fn gradients_leave_while_the_backward_pass_goes_on_and_the_step_is_the_same_to_the_bit() {
    let config = ModelConfig::new(Size::Smoke, 12, N_MELS, false);
    // Micro-batches of all ranks: one, and two, of this one.
    for (alone, together) in [(1, 2), (2, 4)] {
        let learner = |micro_batches| {
            let mut settings = TrainConfig::default();
            settings.optimizer.grad_accum = micro_batches;
            Learner::new(&config, &settings, &Device::flex())
        };
        let (mut one, mut two) = (learner(alone), learner(together));
        let other = Other::default();
        two.join(Box::new(other.clone()));
        let parameters = weights::parameters(one.model());
        for number in 0..3 {
            other.early.lock().expect("not poisoned").clear();
            let records = [one.step(batch(&one, number)), two.step(batch(&two, number))];
            let [a, b] = records.map(|record| StepRecord::read(&[record]));
            assert_eq!(a, b, "{alone} micro-batches, step {number}");
            let early = other.early.lock().expect("not poisoned").clone();
            let values: usize = early.iter().map(|index| parameters[*index].count).sum();
            let all: usize = parameters.iter().map(|parameter| parameter.count).sum();
            assert!(10 * values > 9 * all, "{values} of {all} values left early");
            let expected = other.expected.lock().expect("not poisoned").clone();
            // Known after the first step.
            assert_eq!(expected, if number == 0 { Vec::new() } else { early.clone() }, "step {number}");
            let place = |name: &str| {
                let index = parameters.iter().position(|info| info.name == name).expect("a parameter");
                early.iter().position(|one| *one == index).expect("it left early")
            };
            assert!(place("mean.output.weight") < place("text.norm.weight"), "the last layers first");
        }
        assert_eq!(weights::export(one.model()), weights::export(two.model()));
    }
}
