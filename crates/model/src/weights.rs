//! Parameters by name, in the layouts that PyTorch uses: from a model to tensors of files (`tensors.rs`) and back.

use std::collections::BTreeSet;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor, TensorData};

pub use crate::tensors::{HostTensor, Tensors, WeightsError, from_bytes, to_bytes};

/// How a parameter lies in memory compared with its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The same.
    Same,
    /// `[out, kernel_size, in]` here, `[out, in, kernel_size]` there.
    Conv,
    /// `[kernel_size, channels]` here, `[channels, 1, kernel_size]` there.
    Depthwise,
}

impl Layout {
    /// The shape in files of what has this shape here.
    pub fn file_shape(self, shape: &[usize]) -> Vec<usize> {
        match (self, shape) {
            (Layout::Conv, &[out, kernel_size, input]) => vec![out, input, kernel_size],
            (Layout::Depthwise, &[kernel_size, channels]) => vec![channels, 1, kernel_size],
            _ => shape.to_vec(),
        }
    }

    /// To the shape and order of files.
    pub fn export(self, shape: &[usize], values: &[f32]) -> HostTensor {
        let values = match (self, shape) {
            (Layout::Conv, &[_, kernel_size, input]) => {
                values.chunks(kernel_size * input).flat_map(|plane| transposed(plane, kernel_size, input)).collect()
            }
            (Layout::Depthwise, &[kernel_size, channels]) => transposed(values, kernel_size, channels),
            _ => values.to_vec(),
        };
        HostTensor { shape: self.file_shape(shape), values }
    }

    /// From the shape and order of files.
    pub fn import(self, tensor: &HostTensor) -> (Vec<usize>, Vec<f32>) {
        match (self, &tensor.shape[..]) {
            (Layout::Conv, &[out, input, kernel_size]) => (
                vec![out, kernel_size, input],
                tensor
                    .values
                    .chunks(kernel_size * input)
                    .flat_map(|plane| transposed(plane, input, kernel_size))
                    .collect(),
            ),
            (Layout::Depthwise, &[channels, _, kernel_size]) => {
                (vec![kernel_size, channels], transposed(&tensor.values, channels, kernel_size))
            }
            _ => (tensor.shape.clone(), tensor.values.clone()),
        }
    }
}

fn transposed(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|column| (0..rows).map(move |row| values[row * columns + column])).collect()
}

/// Where in the module tree a visit is.
#[derive(Clone, Debug, Default)]
pub struct Path {
    names: Vec<String>,
    kinds: Vec<String>,
}

impl Path {
    /// Steps into a field.
    pub fn enter(&mut self, name: &str, kind: &str) {
        self.names.push(name.to_owned());
        self.kinds.push(kind.to_owned());
    }

    /// Steps out again.
    pub fn leave(&mut self) {
        self.names.pop();
        self.kinds.pop();
    }

    /// The name of what is here, `text.blocks.0.attention.query.weight`.
    pub fn name(&self) -> String {
        self.names.join(".")
    }

    /// How the parameter here lies in memory.
    pub fn layout(&self) -> Layout {
        let is = |kind: &str| self.kinds.last().is_some_and(|last| last == kind);
        match self.names.last().map(String::as_str) {
            Some("weight") if is("Struct:Conv1d") => Layout::Conv,
            Some("weight") if is("Struct:DepthwiseConv1d") => Layout::Depthwise,
            _ => Layout::Same,
        }
    }
}

/// A parameter's name, shape and size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterInfo {
    /// Its name.
    pub name: String,
    /// Its shape, as in files.
    pub shape: Vec<usize>,
    /// How many values.
    pub count: usize,
}

/// One parameter on a walk through a model.
pub struct Parameter<'a> {
    /// Its name in files.
    pub name: String,
    /// How it lies in files.
    pub layout: Layout,
    /// Its shape here.
    pub shape: &'a [usize],
    /// Where it is.
    pub device: Device,
    values: &'a dyn Fn() -> Vec<f32>,
}

impl Parameter<'_> {
    /// Its values, read from the device.
    pub fn values(&self) -> Vec<f32> {
        (self.values)()
    }
}

/// Walks through the parameters of a model in its own order.
pub fn walk(model: &impl Module, each: impl FnMut(Parameter<'_>)) {
    struct Visitor<F>(Path, F);
    impl<F: FnMut(Parameter<'_>)> ModuleVisitor for Visitor<F> {
        fn enter_module(&mut self, name: &str, kind: &str) {
            self.0.enter(name, kind);
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.0.leave();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let values = || param.val().into_data().try_into_vec::<f32>().expect("parameters are single precision");
            let device = param.val().device().inner();
            let (name, layout) = (self.0.name(), self.0.layout());
            (self.1)(Parameter { name, layout, shape: &param.dims(), device, values: &values });
        }
    }
    model.visit(&mut Visitor(Path::default(), each));
}

/// The parameters of a model, in its own order.
pub fn parameters(model: &impl Module) -> Vec<ParameterInfo> {
    let mut infos = Vec::new();
    walk(model, |Parameter { name, layout, shape, .. }| {
        infos.push(ParameterInfo { name, shape: layout.file_shape(shape), count: shape.iter().product() });
    });
    infos
}

/// The values of all parameters.
pub fn export(model: &impl Module) -> Tensors {
    let mut tensors = Tensors::new();
    walk(model, |parameter| {
        let tensor = parameter.layout.export(parameter.shape, &parameter.values());
        tensors.insert(parameter.name, tensor);
    });
    tensors
}

/// Says what is missing, too much or of another shape.
pub fn check(model: &impl Module, tensors: &Tensors) -> Result<(), WeightsError> {
    check_against(&parameters(model), tensors)
}

/// The same for tensors that are named and shaped otherwise.
pub fn check_against(expected: &[ParameterInfo], tensors: &Tensors) -> Result<(), WeightsError> {
    let names: BTreeSet<&str> = expected.iter().map(|info| info.name.as_str()).collect();
    let mut lines = Vec::new();
    for info in expected {
        match tensors.get(&info.name) {
            None => lines.push(format!("{} is missing", info.name)),
            Some(tensor) if tensor.shape != info.shape => {
                lines.push(format!("{} is {:?}, not {:?}", info.name, tensor.shape, info.shape));
            }
            Some(_) => {}
        }
    }
    lines.extend(
        tensors.keys().filter(|name| !names.contains(name.as_str())).map(|name| format!("{name} is not known")),
    );
    if lines.is_empty() { Ok(()) } else { Err(WeightsError::Different(lines)) }
}

/// Gives a model these values.
pub fn import<M: Module>(model: M, tensors: &Tensors) -> Result<M, WeightsError> {
    check(&model, tensors)?;
    struct Mapper<'a>(Path, &'a Tensors);
    impl ModuleMapper for Mapper<'_> {
        fn enter_module(&mut self, name: &str, kind: &str) {
            self.0.enter(name, kind);
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.0.leave();
        }
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let (shape, values) = self.0.layout().import(&self.1[&self.0.name()]);
            param.map(|old| {
                let tensor = Tensor::from_data(TensorData::new(values, shape), &old.device());
                tensor.set_require_grad(old.is_require_grad())
            })
        }
    }
    Ok(model.map(&mut Mapper(Path::default(), tensors)))
}
