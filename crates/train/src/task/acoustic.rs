//! The acoustic model as a task: text to mel.

use std::ops::Range;

use burn::tensor::Tensor;
use tandem_model::{Device, Inputs, Losses, ModelConfig, Totals, Voice};

use super::{Task, TaskLoss};

/// Trains a [`Voice`].
#[derive(Clone, Debug)]
pub struct Acoustic {
    /// Shapes of the model.
    pub config: ModelConfig,
    /// Steps over which the diagonal prior of the alignment fades.
    pub prior_steps: u64,
}

impl Task for Acoustic {
    type Model = Voice;
    type Inputs = Inputs;
    type Totals = Totals;

    const TERMS: &'static [&'static str] = &Losses::NAMES;

    fn build(&self, seed: u64, device: &Device) -> Voice {
        Voice::new(&self.config, seed, device)
    }

    fn rows(inputs: &Inputs) -> usize {
        inputs.rows()
    }

    fn micro_batch(inputs: &Inputs, rows: Range<usize>) -> Inputs {
        inputs.micro_batch(rows)
    }

    fn totals(inputs: &Inputs) -> Totals {
        Totals::new(&inputs.mel.lengths, &inputs.text.lengths)
    }

    fn devices(inputs: &Inputs) -> Vec<Device> {
        inputs.devices()
    }

    fn poison(mut inputs: Inputs) -> Inputs {
        inputs.mel.values = inputs.mel.values * f32::NAN;
        inputs
    }

    fn loss(&self, model: &Voice, inputs: &Inputs, totals: Totals, step: u64) -> TaskLoss {
        let prior = 1.0 - step as f32 / self.prior_steps.max(1) as f32;
        let (losses, _) = model.losses(inputs, totals, prior.max(0.0), true);
        TaskLoss { total: losses.total(), terms: Tensor::inner(losses.values()) }
    }
}
