//! What is trained: a model, its batches, and the loss of a micro-batch. The step, the optimizer, checkpoints and resume
//! know nothing else of it.

mod acoustic;

use std::fmt::Debug;
use std::ops::Range;

use burn::module::Module;
use burn::tensor::Tensor;
use tandem_model::Device;

pub use acoustic::Acoustic;

/// The loss of a micro-batch, on the device.
#[derive(Clone, Debug)]
pub struct TaskLoss {
    /// What is minimized.
    pub total: Tensor<1>,
    /// Its terms side by side, without autodiff history, in the order of [`Task::TERMS`].
    pub terms: Tensor<1>,
}

/// A model that can be trained.
pub trait Task: Clone + Debug + Send + 'static {
    /// The model.
    type Model: Module;
    /// A batch on the model's device.
    type Inputs: Clone + Debug + Send;
    /// What the sums of a loss are divided by: totals of the whole batch.
    type Totals: Copy + Debug + Send;

    /// The names of the loss terms.
    const TERMS: &'static [&'static str];

    /// An untrained model. The same seed gives the same values on every device.
    fn build(&self, seed: u64, device: &Device) -> Self::Model;

    /// Rows of a batch.
    fn rows(inputs: &Self::Inputs) -> usize;

    /// Some rows of a batch, with no more padding than before.
    fn micro_batch(inputs: &Self::Inputs, rows: Range<usize>) -> Self::Inputs;

    /// The totals of a batch.
    fn totals(inputs: &Self::Inputs) -> Self::Totals;

    /// The devices that a batch's tensors are on.
    fn devices(inputs: &Self::Inputs) -> Vec<Device>;

    /// Makes a batch not finite, for fault injection.
    fn poison(inputs: Self::Inputs) -> Self::Inputs;

    /// The loss of some rows while training, in step `step` (counted from 0).
    fn loss(&self, model: &Self::Model, inputs: &Self::Inputs, totals: Self::Totals, step: u64) -> TaskLoss;
}
