//! AdamW on the model's device: clips by the global norm, and skips the update when a gradient is not finite. Nothing is
//! read back: a step does not wait for the device.

use burn::tensor::Tensor;
use tandem_model::kernels::{Adam, adam_update};

use super::{AdamWSettings, Optimizer, StepInfo};

/// AdamW and its state.
#[derive(Debug)]
pub struct AdamW {
    settings: AdamWSettings,
    /// First and second moments, in the model's order.
    moments: Vec<Option<[Tensor<2>; 2]>>,
}

impl AdamW {
    /// Without state.
    pub fn new(settings: AdamWSettings) -> AdamW {
        AdamW { settings, moments: Vec::new() }
    }

    fn slot(&mut self, index: usize) -> &mut Option<[Tensor<2>; 2]> {
        if self.moments.len() <= index {
            self.moments.resize_with(index + 1, || None);
        }
        &mut self.moments[index]
    }
}

impl Optimizer for AdamW {
    fn update(&mut self, index: usize, value: Tensor<2>, grad: Tensor<2>, decays: bool, info: &StepInfo) -> Tensor<2> {
        let settings = self.settings;
        let correction = |beta: f64| 1.0 - beta.powi(info.step.min(1_000_000) as i32);
        let adam = Adam {
            beta1: settings.beta1 as f32,
            beta2: settings.beta2 as f32,
            epsilon: settings.epsilon as f32,
            lr: info.lr as f32,
            weight_decay: if decays { (info.lr * settings.weight_decay) as f32 } else { 0.0 },
            bias_correction1: correction(settings.beta1) as f32,
            bias_correction2: correction(settings.beta2) as f32,
            max_grad_norm: info.max_grad_norm as f32,
        };
        let slot = self.slot(index);
        let [mean, square] = slot.take().unwrap_or_else(|| [value.zeros_like(), value.zeros_like()]);
        let (value, mean, square) = adam_update(value, grad, mean, square, info.norm.clone(), adam);
        *slot = Some([mean, square]);
        value
    }

    fn state_names(&self) -> &'static [&'static str] {
        &["mean", "square"]
    }

    fn state(&self, index: usize) -> Option<Vec<Tensor<2>>> {
        Some(self.moments.get(index)?.as_ref()?.to_vec())
    }

    fn restore(&mut self, index: usize, state: Vec<Tensor<2>>) {
        *self.slot(index) = state.try_into().ok();
    }
}
