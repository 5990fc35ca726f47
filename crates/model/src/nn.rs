//! The layers that the model is made of. All work on `[batch, time, channels]`, with parameters in the layout that
//! PyTorch uses for the same layer, and with initial values that depend on the seed and the parameter's name alone, so
//! that a model is the same on every device.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use tandem_flow::Random;

use crate::inputs::to_device;
use crate::kernels::{Unfold, attention, gelu, tapped, unfold};

/// Source of initial values, keyed by seed and parameter name.
#[derive(Clone, Debug)]
pub(crate) struct Init<'a> {
    device: &'a Device,
    seed: u64,
    path: String,
}

impl<'a> Init<'a> {
    /// Initial values of a seed, on a device.
    pub(crate) fn new(device: &'a Device, seed: u64) -> Init<'a> {
        Init { device, seed, path: String::new() }
    }

    /// The values of a part of the model.
    pub(crate) fn at(&self, name: impl std::fmt::Display) -> Init<'a> {
        Init { path: format!("{}.{name}", self.path), ..self.clone() }
    }

    pub(crate) fn constant<const D: usize>(&self, shape: [usize; D], value: f32) -> Param<Tensor<D>> {
        let count = shape.iter().product();
        Param::from_data(TensorData::new(vec![value; count], shape), self.device)
    }

    pub(crate) fn uniform<const D: usize>(&self, shape: [usize; D], bound: f64) -> Param<Tensor<D>> {
        let mut random = Random::named(self.seed, &self.path);
        let count = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|_| (bound * random.signed()) as f32).collect();
        Param::from_data(TensorData::new(values, shape), self.device)
    }

    pub(crate) fn normal<const D: usize>(&self, shape: [usize; D], std: f32) -> Param<Tensor<D>> {
        let mut values = vec![0.0; shape.iter().product()];
        Random::named(self.seed, &self.path).fill_normal(&mut values);
        values.iter_mut().for_each(|value| *value *= std);
        Param::from_data(TensorData::new(values, shape), self.device)
    }
}

/// `y = x Wᵀ + b`.
#[derive(Module, Debug)]
pub struct Linear {
    /// `[out, in]`.
    pub weight: Param<Tensor<2>>,
    /// `[out]`.
    pub bias: Param<Tensor<1>>,
}

impl Linear {
    pub(crate) fn new(init: Init<'_>, input: usize, output: usize) -> Linear {
        Linear::scaled(init, input, output, 1.0)
    }

    /// With weights that start smaller than usual.
    pub(crate) fn scaled(init: Init<'_>, input: usize, output: usize, scale: f64) -> Linear {
        let bound = scale * (3.0 / input as f64).sqrt();
        Linear { weight: init.at("weight").uniform([output, input], bound), bias: init.constant([output], 0.0) }
    }

    pub(crate) fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let (weight, bias) = (tapped(&self.weight, &x), tapped(&self.bias, &x));
        crate::kernels::linear(x, weight, bias)
    }

    /// The same for an `x` that comes from the beginning of a model, and is needed beside a tensor that does not: its gradients are then computed with
    /// those of that tensor, not with those of `x`.
    pub(crate) fn forward_beside<const D: usize, const E: usize>(&self, x: Tensor<D>, beside: &Tensor<E>) -> Tensor<D> {
        let (weight, bias) = (tapped(&self.weight, beside), tapped(&self.bias, beside));
        crate::kernels::linear(x, weight, bias)
    }

    /// `residual + x Wᵀ + b`.
    pub(crate) fn forward_add<const D: usize>(&self, x: Tensor<D>, residual: Tensor<D>) -> Tensor<D> {
        let (weight, bias) = (tapped(&self.weight, &x), tapped(&self.bias, &x));
        crate::kernels::linear_add(x, weight, bias, residual)
    }
}

/// LayerNorm over the channels of each position.
#[derive(Module, Debug)]
pub struct LayerNorm {
    /// `[channels]`.
    pub weight: Param<Tensor<1>>,
    /// `[channels]`.
    pub bias: Param<Tensor<1>>,
}

impl LayerNorm {
    pub(crate) fn new(init: Init<'_>, channels: usize) -> LayerNorm {
        LayerNorm { weight: init.constant([channels], 1.0), bias: init.constant([channels], 0.0) }
    }

    pub(crate) fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let (weight, bias) = (tapped(&self.weight, &x), tapped(&self.bias, &x));
        crate::kernels::layer_norm(x, weight, bias)
    }
}

/// Conv over time, same padding.
#[derive(Module, Debug)]
pub struct Conv1d {
    /// `[out, kernel_size, in]`; in files `[out, in, kernel_size]`.
    pub weight: Param<Tensor<3>>,
    /// `[out]`.
    pub bias: Param<Tensor<1>>,
}

impl Conv1d {
    pub(crate) fn new(init: Init<'_>, input: usize, output: usize, kernel_size: usize) -> Conv1d {
        let bound = (3.0 / (input * kernel_size) as f64).sqrt();
        Conv1d {
            weight: init.at("weight").uniform([output, kernel_size, input], bound),
            bias: init.constant([output], 0.0),
        }
    }

    pub(crate) fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let [output, kernel_size, input] = self.weight.dims();
        let (weight, bias) = (tapped(&self.weight, &x), tapped(&self.bias, &x));
        let columns = unfold(x, Unfold { kernel_size, first: 0, taps: kernel_size, stride: 1 });
        crate::kernels::linear(columns, weight.reshape([output, kernel_size * input]), bias)
    }

    /// With some of its taps alone, as if the others were zero.
    pub(crate) fn forward_taps(&self, x: Tensor<3>, taps: std::ops::Range<usize>) -> Tensor<3> {
        let [output, kernel_size, input] = self.weight.dims();
        let (weight, bias) = (tapped(&self.weight, &x), tapped(&self.bias, &x));
        let columns = unfold(x, Unfold { kernel_size, first: taps.start, taps: taps.len(), stride: 1 });
        let weight = weight.narrow(1, taps.start, taps.len()).reshape([output, taps.len() * input]);
        crate::kernels::linear(columns, weight, bias)
    }

    /// Stride 2: half as long, rounded up.
    pub(crate) fn forward_stride2(&self, x: Tensor<3>) -> Tensor<3> {
        let [output, kernel_size, input] = self.weight.dims();
        let (weight, bias) = (tapped(&self.weight, &x), tapped(&self.bias, &x));
        let columns = unfold(x, Unfold { kernel_size, first: 0, taps: kernel_size, stride: 2 });
        crate::kernels::linear(columns, weight.reshape([output, kernel_size * input]), bias)
    }
}

/// Depthwise conv over time, same padding.
#[derive(Module, Debug)]
pub struct DepthwiseConv1d {
    /// `[kernel_size, channels]`; in files `[channels, 1, kernel_size]`.
    pub weight: Param<Tensor<2>>,
    /// `[channels]`.
    pub bias: Param<Tensor<1>>,
}

impl DepthwiseConv1d {
    pub(crate) fn new(init: Init<'_>, channels: usize, kernel_size: usize) -> DepthwiseConv1d {
        let bound = (1.0 / kernel_size as f64).sqrt();
        let weight = init.at("weight").uniform([kernel_size, channels], bound);
        DepthwiseConv1d { weight, bias: init.constant([channels], 0.0) }
    }

    /// Positions beyond a row's length count as 0; `mask` says the same as `lengths`, `[rows, time, 1]`.
    pub(crate) fn forward(&self, x: Tensor<3>, dilation: usize, lengths: &[usize], mask: &Tensor<3>) -> Tensor<3> {
        let (weight, bias) = (tapped(&self.weight, &x), tapped(&self.bias, &x));
        crate::kernels::depthwise_conv(x, weight, bias, dilation, lengths, mask)
    }
}

/// A vector for each id.
#[derive(Module, Debug)]
pub struct Embedding {
    /// `[ids, channels]`.
    pub weight: Param<Tensor<2>>,
}

impl Embedding {
    pub(crate) fn new(init: Init<'_>, ids: usize, channels: usize) -> Embedding {
        Embedding { weight: init.at("weight").normal([ids, channels], 1.0) }
    }
}

/// Added to attention scores: 0 where a key may be attended to, a large negative number where not, `[batch, 1, 1, keys]`.
pub(crate) type AttentionBias = Tensor<4>;

/// Rotary position embedding (RoPE): cosines and sines, `[1, 1, time, head width]`.
#[derive(Clone, Debug)]
pub struct Rope {
    cos: Tensor<4>,
    sin: Tensor<4>,
}

impl Rope {
    /// For `prefix` positions without a place in time, which are not rotated, and `time` positions after them.
    pub(crate) fn new(prefix: usize, time: usize, head_width: usize, device: &Device) -> Rope {
        let half = head_width / 2;
        let mut cos = Vec::with_capacity((prefix + time) * head_width);
        let mut sin = Vec::with_capacity((prefix + time) * head_width);
        for position in 0..prefix + time {
            let at = position.saturating_sub(prefix) as f64;
            for channel in 0..head_width {
                let angle =
                    if position < prefix { 0.0 } else { at * 10_000f64.powf(-((channel % half) as f64) / half as f64) };
                cos.push(angle.cos() as f32);
                // The first half is rotated by minus the second.
                sin.push(if channel < half { -angle.sin() as f32 } else { angle.sin() as f32 });
            }
        }
        let tensor = |values| to_device(values, [1, 1, prefix + time, head_width], device);
        Rope { cos: tensor(cos), sin: tensor(sin) }
    }

    /// Where its tables are.
    pub(crate) fn device(&self) -> Device {
        self.cos.device()
    }

    /// `x` is `[batch, time, heads * head width]`.
    fn rotate(&self, x: Tensor<3>, heads: usize) -> Tensor<3> {
        crate::kernels::rotate(x, self.cos.clone(), self.sin.clone(), heads)
    }
}

/// Multi-head attention.
#[derive(Module, Debug)]
pub struct Attention {
    /// Queries.
    pub query: Linear,
    /// Keys.
    pub key: Linear,
    /// Values.
    pub value: Linear,
    /// Output.
    pub output: Linear,
    heads: usize,
}

impl Attention {
    pub(crate) fn new(init: Init<'_>, width: usize, heads: usize) -> Attention {
        Attention {
            query: Linear::new(init.at("query"), width, width),
            key: Linear::new(init.at("key"), width, width),
            value: Linear::new(init.at("value"), width, width),
            output: Linear::scaled(init.at("output"), width, width, 0.5),
            heads,
        }
    }

    pub(crate) fn forward(
        &self,
        x: Tensor<3>,
        context: Tensor<3>,
        bias: AttentionBias,
        rope: Option<&Rope>,
    ) -> Tensor<3> {
        let mut query = self.query.forward(x);
        let mut key = self.key.forward(context.clone());
        let value = self.value.forward(context);
        if let Some(rope) = rope {
            (query, key) = (rope.rotate(query, self.heads), rope.rotate(key, self.heads));
        }
        self.output.forward(attention(query, key, value, bias, self.heads))
    }
}

/// Linear, GELU, linear.
#[derive(Module, Debug)]
pub struct Mlp {
    /// To the hidden width.
    pub up: Linear,
    /// Back.
    pub down: Linear,
}

impl Mlp {
    pub(crate) fn new(init: Init<'_>, width: usize, hidden: usize) -> Mlp {
        Mlp { up: Linear::new(init.at("up"), width, hidden), down: Linear::scaled(init.at("down"), hidden, width, 0.5) }
    }

    /// `residual + MLP(x)`.
    pub(crate) fn forward_add(&self, x: Tensor<3>, residual: Tensor<3>) -> Tensor<3> {
        let hidden = gelu(self.up.forward(x));
        self.down.forward_add(hidden, residual)
    }
}
