//! Exponential moving average (EMA) of the weights: what validation, samples and synthesis use.

use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::tensor::Tensor;
use tandem_model::Device;
use tandem_model::kernels::ema_update;
use tandem_model::weights::{self, Tensors, WeightsError};

use super::{as_matrix, matrices};

/// An averaged copy of a model, without autodiff, on the model's device.
#[derive(Debug)]
pub struct Ema<M> {
    average: M,
    decay: f64,
}

impl<M: Module> Ema<M> {
    /// Starts at the model's weights.
    pub fn new(model: &M, decay: f64) -> Ema<M> {
        Ema { average: model.valid(), decay }
    }

    /// Resumes from saved weights.
    pub fn import(model: &M, decay: f64, tensors: &Tensors) -> Result<Ema<M>, WeightsError> {
        Ok(Ema { average: weights::import(model.valid(), tensors)?, decay })
    }

    /// The averaged model.
    pub fn model(&self) -> &M {
        &self.average
    }

    /// The averaged weights by name.
    pub fn export(&self) -> Tensors {
        weights::export(&self.average)
    }

    /// Takes in the weights after a step. The first steps count for more, so that nothing of the random start is left:
    /// the decay is `(1 + step) / (10 + step)` until that exceeds the one that was requested.
    pub fn update(&mut self, model: &M, step: u64) {
        let decay = self.decay.min((1 + step) as f64 / (10 + step) as f64);
        let mut mapper = Mapper { values: matrices(model).into_iter(), decay };
        let average = std::mem::replace(&mut self.average, model.valid());
        self.average = average.map(&mut mapper);
    }

    /// Where the average is.
    pub fn devices(&self) -> Vec<Device> {
        let mut devices = Vec::new();
        weights::walk(&self.average, |parameter| devices.push(parameter.device));
        devices
    }
}

struct Mapper<V: Iterator<Item = Tensor<2>>> {
    values: V,
    decay: f64,
}

impl<V: Iterator<Item = Tensor<2>>> ModuleMapper for Mapper<V> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(value) = self.values.next() else { return param };
        let (id, average, mapper): (ParamId, _, _) = param.consume();
        let shape = average.dims();
        let average = ema_update(as_matrix(average), value, self.decay).reshape(shape);
        Param::from_mapped_value(id, average, mapper)
    }
}
