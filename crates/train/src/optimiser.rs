//! AdamW on the model's device: clips by the global norm, and leaves everything as it was when a gradient is not
//! finite. Nothing is read back: a step does not wait for the device.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use serde::{Deserialize, Serialize};
use tandem_model::kernels::{Adam, adam_update, square_sum};
use tandem_model::weights::{self, Parameter, ParameterInfo, Tensors, WeightsError};
use tandem_model::{Device, Voice};

/// Numbers of AdamW.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdamWSettings {
    /// Memory of the mean gradient.
    pub beta1: f64,
    /// Memory of the mean square.
    pub beta2: f64,
    /// Keeps divisions finite.
    pub epsilon: f64,
    /// Share of a matrix that vanishes with each step, times the learning rate.
    pub weight_decay: f64,
}

impl Default for AdamWSettings {
    fn default() -> Self {
        AdamWSettings { beta1: 0.9, beta2: 0.98, epsilon: 1e-8, weight_decay: 0.01 }
    }
}

/// Gradients of all parameters, in the model's order; each as a matrix, whatever the parameter's shape.
pub struct Grads(Vec<Option<Tensor<2>>>);

impl Grads {
    /// Takes the gradients of `model` out of a backward pass.
    pub fn new(mut grads: GradientsParams, model: &Voice) -> Grads {
        struct Visitor<'a>(&'a mut GradientsParams, Vec<Option<Tensor<2>>>);
        impl ModuleVisitor for Visitor<'_> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                self.1.push(self.0.remove::<D>(param.id).map(as_matrix));
            }
        }
        let mut visitor = Visitor(&mut grads, Vec::new());
        model.visit(&mut visitor);
        Grads(visitor.1)
    }

    /// Adds those of another part of the same batch.
    pub fn plus(self, other: Grads) -> Grads {
        let sum = |pair| match pair {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        Grads(self.0.into_iter().zip(other.0).map(sum).collect())
    }

    /// The square of the norm of all of them, one value on the device.
    fn square_norm(&self) -> Option<Tensor<1>> {
        let sums: Vec<Tensor<1>> = self.0.iter().flatten().cloned().map(square_sum).collect();
        (!sums.is_empty()).then(|| Tensor::cat(sums, 0).sum())
    }

    /// Divides all by a factor, one value on the device.
    pub fn divided_by(self, factor: &Tensor<1>) -> Grads {
        let share = factor.clone().recip().reshape([1, 1]);
        Grads(self.0.into_iter().map(|grad| grad.map(|grad| grad * share.clone())).collect())
    }

    /// Where they are.
    pub fn devices(&self) -> impl Iterator<Item = Device> {
        self.0.iter().flatten().map(|grad| grad.device().inner())
    }

    /// Those of each parameter that has one, by name, for tests and reports.
    pub fn export(&self, model: &Voice) -> Tensors {
        named(&self.0, model)
    }
}

fn as_matrix<const D: usize>(tensor: Tensor<D>) -> Tensor<2> {
    let shape = tensor.dims();
    let (rows, all) = (if D == 1 { 1 } else { shape[0] }, shape.iter().product::<usize>());
    tensor.reshape([rows, all / rows.max(1)])
}

/// Matrices in the model's order, as tensors with its names and layouts.
fn named(matrices: &[Option<Tensor<2>>], model: &Voice) -> Tensors {
    let (mut matrices, mut tensors) = (matrices.iter(), Tensors::new());
    weights::walk(model, |Parameter { name, layout, shape, .. }| {
        if let Some(Some(matrix)) = matrices.next() {
            let values = matrix.clone().into_data().try_into_vec::<f32>().expect("single precision");
            tensors.insert(name, layout.export(shape, &values));
        }
    });
    tensors
}

/// AdamW's memory of the gradients.
pub struct AdamW {
    settings: AdamWSettings,
    /// Mean and mean square, in the model's order.
    moments: Vec<Option<(Tensor<2>, Tensor<2>)>>,
}

impl AdamW {
    /// Without any memory.
    pub fn new(settings: AdamWSettings) -> AdamW {
        AdamW { settings, moments: Vec::new() }
    }

    /// Makes room for the memory of all parameters, as the first step does.
    pub fn prepare(&mut self, model: &Voice) {
        struct Visitor(Vec<(Tensor<2>, Tensor<2>)>);
        impl ModuleVisitor for Visitor {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let zeros = || as_matrix(param.val().inner()).zeros_like();
                self.0.push((zeros(), zeros()));
            }
        }
        let mut visitor = Visitor(Vec::new());
        model.visit(&mut visitor);
        self.moments.resize_with(visitor.0.len(), || None);
        for (moments, zeros) in self.moments.iter_mut().zip(visitor.0) {
            moments.get_or_insert(zeros);
        }
    }

    /// One step with gradients clipped to `clip`. Returns the model and the norm of the gradients, on the device.
    pub fn step(&mut self, model: Voice, grads: Grads, step: u64, rate: f64, clip: f64) -> (Voice, Tensor<1>) {
        let norm = grads.square_norm().expect("a model has gradients").sqrt();
        let settings = &self.settings;
        let correction = |beta: f64| 1.0 - beta.powi(step.min(1_000_000) as i32);
        let adam = Adam {
            beta1: settings.beta1 as f32,
            beta2: settings.beta2 as f32,
            epsilon: settings.epsilon as f32,
            rate: rate as f32,
            decay: (rate * settings.weight_decay) as f32,
            correction1: correction(settings.beta1) as f32,
            correction2: correction(settings.beta2) as f32,
            clip: clip as f32,
        };
        self.moments.resize_with(grads.0.len(), || None);
        let mut mapper =
            Mapper { grads: grads.0.into_iter(), moments: self.moments.iter_mut(), norm: norm.clone(), adam };
        (model.map(&mut mapper), norm)
    }

    /// Where the memory is.
    pub fn devices(&self) -> impl Iterator<Item = Device> {
        self.moments.iter().flatten().flat_map(|(mean, square)| [mean.device().inner(), square.device().inner()])
    }

    /// The memory, named after the parameters.
    pub fn export(&self, model: &Voice) -> Tensors {
        let of = |part: fn(&(Tensor<2>, Tensor<2>)) -> &Tensor<2>| -> Vec<Option<Tensor<2>>> {
            self.moments.iter().map(|moments| moments.as_ref().map(|moments| part(moments).clone())).collect()
        };
        let mut tensors = Tensors::new();
        for (kind, matrices) in [("mean", of(|moments| &moments.0)), ("square", of(|moments| &moments.1))] {
            tensors.extend(named(&matrices, model).into_iter().map(|(name, t)| (format!("{kind}.{name}"), t)));
        }
        tensors
    }

    /// Takes the memory back; an error when it is not that of this model.
    pub fn import(
        settings: AdamWSettings,
        model: &Voice,
        tensors: &Tensors,
        device: &Device,
    ) -> Result<AdamW, WeightsError> {
        let of =
            |kind: &str, info: &ParameterInfo| ParameterInfo { name: format!("{kind}.{}", info.name), ..info.clone() };
        let expected: Vec<ParameterInfo> =
            weights::parameters(model).iter().flat_map(|info| [of("mean", info), of("square", info)]).collect();
        weights::check_against(&expected, tensors)?;
        let mut moments = Vec::new();
        weights::walk(model, |Parameter { name, layout, .. }| {
            let [mean, square] = ["mean", "square"].map(|kind| {
                let (shape, values) = layout.import(&tensors[&format!("{kind}.{name}")]);
                let rows = if shape.len() == 1 { 1 } else { shape[0] };
                let columns = values.len() / rows.max(1);
                Tensor::from_data(TensorData::new(values, [rows, columns]), device)
            });
            moments.push(Some((mean, square)));
        });
        Ok(AdamW { settings, moments })
    }
}

struct Mapper<'a, G: Iterator<Item = Option<Tensor<2>>>> {
    grads: G,
    moments: std::slice::IterMut<'a, Option<(Tensor<2>, Tensor<2>)>>,
    norm: Tensor<1>,
    adam: Adam,
}

impl<G: Iterator<Item = Option<Tensor<2>>>> ModuleMapper for Mapper<'_, G> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (Some(grad), Some(moments)) = (self.grads.next().flatten(), self.moments.next()) else { return param };
        let (id, value, mapper): (ParamId, _, _) = param.consume();
        let (shape, strategy) = (value.dims(), value.gradient_checkpointing_strategy());
        let value = as_matrix(value.inner());
        let (mean, square) = moments.take().unwrap_or_else(|| (value.zeros_like(), value.zeros_like()));
        // Biases and norms do not decay.
        let adam = Adam { decay: if D > 1 { self.adam.decay } else { 0.0 }, ..self.adam };
        let (value, mean, square) = adam_update(value, grad, mean, square, self.norm.clone(), adam);
        *moments = Some((mean, square));
        let mut value = Tensor::from_inner(value.reshape(shape));
        if let Some(strategy) = strategy {
            value = value.with_gradient_checkpointing_strategy(strategy);
        }
        let value = value.require_grad();
        Param::from_mapped_value(id, value, mapper)
    }
}
