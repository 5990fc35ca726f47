//! From gradients to new weights.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `mod.rs` | [`Optimizer`]: what an optimizer is; [`Grads`]; [`step`]: one update of a whole model |
//! | `adamw.rs` | [`AdamW`] |
//! | `hyperparameters.rs` | [`OptimizerKind`], [`AdamWSettings`]: what checkpoints say about an optimizer |
//! | `schedule.rs` | the learning rate, a pure function of the step |
//! | `loss_scale.rs` | loss scaling for mixed precision |
//! | `ema.rs` | moving average of the weights |
//!
//! Another optimizer is a file here, a variant of [`OptimizerKind`] and its row in the table of settings.

mod adamw;
mod ema;
mod hyperparameters;
mod loss_scale;
mod schedule;

use std::collections::HashMap;
use std::fmt::Debug;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Gradients, Tensor, TensorData};
use tandem_model::Device;
use tandem_model::kernels::square_sum;
use tandem_model::weights::{self, Parameter, ParameterInfo, Tensors, WeightsError};

pub use adamw::AdamW;
pub use ema::Ema;
pub use hyperparameters::{AdamWSettings, OptimizerKind};
pub use loss_scale::LossScale;
pub use schedule::{LearningRate, OptimizationLevel, Schedule};

impl OptimizerKind {
    /// An optimizer without state.
    pub fn build(self, adam: AdamWSettings) -> Box<dyn Optimizer> {
        match self {
            OptimizerKind::AdamW => Box::new(AdamW::new(adam)),
        }
    }
}

/// What every parameter's update of one step has in common.
#[derive(Clone, Debug)]
pub struct StepInfo {
    /// Which step, counted from 1.
    pub step: u64,
    /// The learning rate.
    pub lr: f64,
    /// Gradients are clipped to this global norm.
    pub max_grad_norm: f64,
    /// The global norm of the gradients, on the device. When it is not finite, nothing must change.
    pub norm: Tensor<1>,
}

/// Updates parameters one by one; each is given as a matrix, whatever its shape, and known by its place in the model.
pub trait Optimizer: Debug + Send {
    /// The new value of parameter `index`.
    fn update(&mut self, index: usize, value: Tensor<2>, grad: Tensor<2>, decays: bool, info: &StepInfo) -> Tensor<2>;

    /// The names of the state tensors that each parameter has, for checkpoints.
    fn state_names(&self) -> &'static [&'static str];

    /// The state of parameter `index`, in the order of [`Optimizer::state_names`]; `None` before its first update.
    fn state(&self, index: usize) -> Option<Vec<Tensor<2>>>;

    /// Sets the state of parameter `index`.
    fn restore(&mut self, index: usize, state: Vec<Tensor<2>>);
}

/// One step of all parameters. Returns the model and the global norm of the gradients, on the device.
pub fn step<M: Module>(
    optimizer: &mut dyn Optimizer,
    model: M,
    grads: Grads,
    step: u64,
    lr: f64,
    max_grad_norm: f64,
) -> (M, Tensor<1>) {
    let norm = grads.square_norm().expect("a model has gradients").sqrt();
    let info = StepInfo { step, lr, max_grad_norm, norm: norm.clone() };
    let mut mapper = Mapper { grads: grads.0.into_iter().enumerate(), optimizer, info };
    (model.map(&mut mapper), norm)
}

/// Allocates the state of all parameters, as the first step does.
pub fn allocate<M: Module>(optimizer: &mut dyn Optimizer, model: &M) {
    let names = optimizer.state_names().len();
    for (index, value) in matrices(model).iter().enumerate() {
        if optimizer.state(index).is_none() {
            optimizer.restore(index, (0..names).map(|_| value.zeros_like()).collect());
        }
    }
}

/// Where the state of the first `parameters` parameters is.
pub fn state_devices(optimizer: &dyn Optimizer, parameters: usize) -> Vec<Device> {
    let states = (0..parameters).filter_map(|index| optimizer.state(index));
    states.flatten().map(|tensor| tensor.device().inner()).collect()
}

/// The optimizer state by name: `STATE.PARAMETER`.
pub fn export_state<M: Module>(optimizer: &dyn Optimizer, model: &M) -> Tensors {
    let count = weights::parameters(model).len();
    let states: Vec<_> = (0..count).map(|index| optimizer.state(index)).collect();
    let mut tensors = Tensors::new();
    for (n, kind) in optimizer.state_names().iter().enumerate() {
        let matrices: Vec<Option<Tensor<2>>> =
            states.iter().map(|state| state.as_ref().map(|state| state[n].clone())).collect();
        tensors.extend(named(&matrices, model).into_iter().map(|(name, tensor)| (format!("{kind}.{name}"), tensor)));
    }
    tensors
}

/// Restores the state; an error when it is not that of this model.
pub fn import_state<M: Module>(
    optimizer: &mut dyn Optimizer,
    model: &M,
    tensors: &Tensors,
    device: &Device,
) -> Result<(), WeightsError> {
    let names = optimizer.state_names();
    let of = |kind: &str, info: &ParameterInfo| ParameterInfo { name: format!("{kind}.{}", info.name), ..info.clone() };
    let parameters = weights::parameters(model);
    let expected: Vec<ParameterInfo> =
        parameters.iter().flat_map(|info| names.iter().map(|kind| of(kind, info))).collect();
    weights::check_against(&expected, tensors)?;
    let mut index = 0;
    weights::walk(model, |Parameter { name, layout, .. }| {
        let state = names.iter().map(|kind| {
            let (shape, values) = layout.import(&tensors[&format!("{kind}.{name}")]);
            let rows = if shape.len() == 1 { 1 } else { shape[0] };
            let columns = values.len() / rows.max(1);
            Tensor::from_data(TensorData::new(values, [rows, columns]), device)
        });
        optimizer.restore(index, state.collect());
        index += 1;
    });
    Ok(())
}

/// Gradients of all parameters, in the model's order; each as a matrix, whatever the parameter's shape.
#[derive(Debug)]
pub struct Grads(Vec<Option<Tensor<2>>>);

impl Grads {
    /// Takes the gradients of `model` out of a backward pass.
    pub fn new<M: Module>(grads: Gradients, model: &M) -> Grads {
        struct Visitor(Gradients, Vec<Option<Tensor<2>>>);
        impl ModuleVisitor for Visitor {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                // One that is not trained has no node to look for.
                let grad = param.is_require_grad().then(|| param.val().grad_remove(&mut self.0)).flatten();
                self.1.push(grad.map(as_matrix));
            }
        }
        let mut visitor = Visitor(grads, Vec::new());
        model.visit(&mut visitor);
        Grads(visitor.1)
    }

    /// Of these matrices, in the model's order.
    pub fn of(grads: Vec<Option<Tensor<2>>>) -> Grads {
        Grads(grads)
    }

    /// The matrices.
    pub fn into_inner(self) -> Vec<Option<Tensor<2>>> {
        self.0
    }

    /// Adds those of another micro-batch.
    pub fn plus(self, other: Grads) -> Grads {
        let sum = |pair| match pair {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        Grads(self.0.into_iter().zip(other.0).map(sum).collect())
    }

    /// Those of frozen parameters are dropped, so that nothing changes them; they do not count for the norm either.
    pub fn without(self, frozen: &[bool]) -> Grads {
        let is_frozen = |index: usize| frozen.get(index).copied().unwrap_or(false);
        Grads(self.0.into_iter().enumerate().map(|(index, grad)| grad.filter(|_| !is_frozen(index))).collect())
    }

    /// The square of the norm of all of them, one value on the device.
    fn square_norm(&self) -> Option<Tensor<1>> {
        let sums: Vec<Tensor<1>> = self.0.iter().flatten().cloned().map(square_sum).collect();
        (!sums.is_empty()).then(|| Tensor::cat(sums, 0).sum())
    }

    /// Divides all by a factor, one value on the device.
    pub fn divided_by(self, factor: &Tensor<1>) -> Grads {
        let share = reciprocal(factor);
        Grads(self.0.into_iter().map(|grad| grad.map(|grad| grad * share.clone())).collect())
    }

    /// Where they are.
    pub fn devices(&self) -> impl Iterator<Item = Device> {
        self.0.iter().flatten().map(|grad| grad.device().inner())
    }

    /// Those of each parameter that has one, by name, for tests and reports.
    pub fn export<M: Module>(&self, model: &M) -> Tensors {
        named(&self.0, model)
    }
}

/// What gradients are multiplied by to be divided by a factor, one value on the device.
pub(crate) fn reciprocal(factor: &Tensor<1>) -> Tensor<2> {
    factor.clone().recip().reshape([1, 1])
}

fn as_matrix<const D: usize>(tensor: Tensor<D>) -> Tensor<2> {
    let shape = tensor.dims();
    let (rows, all) = (if D == 1 { 1 } else { shape[0] }, shape.iter().product::<usize>());
    tensor.reshape([rows, all / rows.max(1)])
}

/// The shapes of the gradients, in the model's order; none for those that are frozen.
pub(crate) fn shapes<M: Module>(model: &M, frozen: &[bool]) -> Vec<Option<[usize; 2]>> {
    let is_frozen = |index: usize| frozen.get(index).copied().unwrap_or(false);
    matrices(model).iter().enumerate().map(|(index, matrix)| (!is_frozen(index)).then(|| matrix.dims())).collect()
}

/// The place of each parameter in the model.
pub(crate) fn places<M: Module>(model: &M) -> HashMap<ParamId, usize> {
    struct Visitor(HashMap<ParamId, usize>);
    impl ModuleVisitor for Visitor {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let place = self.0.len();
            self.0.insert(param.id, place);
        }
    }
    let mut visitor = Visitor(HashMap::new());
    model.visit(&mut visitor);
    visitor.0
}

/// The weights as matrices, in the model's order, without autodiff.
fn matrices<M: Module>(model: &M) -> Vec<Tensor<2>> {
    struct Visitor(Vec<Tensor<2>>);
    impl ModuleVisitor for Visitor {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.push(as_matrix(param.val().inner()));
        }
    }
    let mut visitor = Visitor(Vec::new());
    model.visit(&mut visitor);
    visitor.0
}

/// Matrices in the model's order, as tensors with its names and layouts.
fn named<M: Module>(matrices: &[Option<Tensor<2>>], model: &M) -> Tensors {
    let (mut matrices, mut tensors) = (matrices.iter(), Tensors::new());
    weights::walk(model, |Parameter { name, layout, shape, .. }| {
        if let Some(Some(matrix)) = matrices.next() {
            let values = matrix.clone().into_data().try_into_vec::<f32>().expect("single precision");
            tensors.insert(name, layout.export(shape, &values));
        }
    });
    tensors
}

struct Mapper<'a, G: Iterator<Item = (usize, Option<Tensor<2>>)>> {
    grads: G,
    optimizer: &'a mut dyn Optimizer,
    info: StepInfo,
}

impl<G: Iterator<Item = (usize, Option<Tensor<2>>)>> ModuleMapper for Mapper<'_, G> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some((index, Some(grad))) = self.grads.next() else { return param };
        let (id, value, mapper): (ParamId, _, _) = param.consume();
        let (shape, strategy) = (value.dims(), value.gradient_checkpointing_strategy());
        // Biases and norms do not decay.
        let value = self.optimizer.update(index, as_matrix(value.inner()), grad, D > 1, &self.info);
        let mut value = Tensor::from_inner(value.reshape(shape));
        if let Some(strategy) = strategy {
            value = value.with_gradient_checkpointing_strategy(strategy);
        }
        Param::from_mapped_value(id, value.require_grad(), mapper)
    }
}
