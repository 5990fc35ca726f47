//! The layers that the model is made of. All work on `[batch, time, channels]`, with parameters in the layout that
//! PyTorch uses for the same layer, and with initial values that depend on the seed and the parameter's name alone, so
//! that a model is the same on every device.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData, activation};
use tandem_flow::Random;

use crate::kernels::{gelu, product};

/// Where initial values come from.
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

    pub(crate) fn normal<const D: usize>(&self, shape: [usize; D], deviation: f32) -> Param<Tensor<D>> {
        let mut values = vec![0.0; shape.iter().product()];
        Random::named(self.seed, &self.path).fill_normal(&mut values);
        values.iter_mut().for_each(|value| *value *= deviation);
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
        crate::kernels::linear(x, self.weight.val(), self.bias.val())
    }
}

/// Normalises the channels of each position.
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
        crate::kernels::layer_norm(x, self.weight.val(), self.bias.val())
    }
}

/// A convolution over time that keeps the length.
#[derive(Module, Debug)]
pub struct Conv1d {
    /// `[out, taps, in]`; in files `[out, in, taps]`.
    pub weight: Param<Tensor<3>>,
    /// `[out]`.
    pub bias: Param<Tensor<1>>,
}

impl Conv1d {
    pub(crate) fn new(init: Init<'_>, input: usize, output: usize, taps: usize) -> Conv1d {
        let bound = (3.0 / (input * taps) as f64).sqrt();
        Conv1d { weight: init.at("weight").uniform([output, taps, input], bound), bias: init.constant([output], 0.0) }
    }

    pub(crate) fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let [output, taps, input] = self.weight.dims();
        let columns = unfold(x, taps, 1);
        crate::kernels::linear(columns, self.weight.val().reshape([output, taps * input]), self.bias.val())
    }

    /// Every second position: half as long, rounded up.
    pub(crate) fn forward_half(&self, x: Tensor<3>) -> Tensor<3> {
        let [output, taps, input] = self.weight.dims();
        let [batch, time, _] = x.dims();
        let half = time.div_ceil(2);
        let columns = unfold(pad_time(x, 2 * half), taps, 1);
        let columns = columns.reshape([batch, half, 2 * taps * input]).narrow(2, 0, taps * input);
        crate::kernels::linear(columns, self.weight.val().reshape([output, taps * input]), self.bias.val())
    }
}

/// The neighbours of each position side by side: `[batch, time, taps * channels]`, zeros beyond the ends.
fn unfold(x: Tensor<3>, taps: usize, dilation: usize) -> Tensor<3> {
    let [batch, time, channels] = x.dims();
    let reach = dilation * (taps / 2);
    let zeros = Tensor::<3>::zeros([batch, reach, channels], &x.device());
    let padded = Tensor::cat(vec![zeros.clone(), x, zeros], 1);
    Tensor::cat((0..taps).map(|tap| padded.clone().narrow(1, tap * dilation, time)).collect(), 2)
}

/// Zeros at the end, up to a length.
pub(crate) fn pad_time(x: Tensor<3>, length: usize) -> Tensor<3> {
    let [batch, time, channels] = x.dims();
    if time == length {
        return x;
    }
    let zeros = Tensor::<3>::zeros([batch, length - time, channels], &x.device());
    Tensor::cat(vec![x, zeros], 1)
}

/// A convolution over time, each channel by itself.
#[derive(Module, Debug)]
pub struct DepthwiseConv1d {
    /// `[taps, channels]`; in files `[channels, 1, taps]`.
    pub weight: Param<Tensor<2>>,
    /// `[channels]`.
    pub bias: Param<Tensor<1>>,
}

impl DepthwiseConv1d {
    pub(crate) fn new(init: Init<'_>, channels: usize, taps: usize) -> DepthwiseConv1d {
        let bound = (1.0 / taps as f64).sqrt();
        let weight = init.at("weight").uniform([taps, channels], bound);
        DepthwiseConv1d { weight, bias: init.constant([channels], 0.0) }
    }

    /// Positions beyond a row's length count as 0.
    pub(crate) fn forward(&self, x: Tensor<3>, dilation: usize, lengths: &[usize]) -> Tensor<3> {
        crate::kernels::depthwise_conv(x, self.weight.val(), self.bias.val(), dilation, lengths)
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

/// What attention may look at: 0 where it may, a large negative number where it may not, `[batch, 1, 1, keys]`.
pub(crate) type Bias = Tensor<4>;

/// Where time positions turn: cosines and sines, `[1, 1, time, channels of a head]`.
#[derive(Clone, Debug)]
pub(crate) struct Rotary {
    cos: Tensor<4>,
    sin: Tensor<4>,
}

impl Rotary {
    /// Turns for positions `first`, `first + 1`, …; those before position 0 do not turn (they have no place in time).
    pub(crate) fn new(still: usize, time: usize, channels: usize, device: &Device) -> Rotary {
        let half = channels / 2;
        let mut cos = Vec::with_capacity((still + time) * channels);
        let mut sin = Vec::with_capacity((still + time) * channels);
        for position in 0..still + time {
            let at = position.saturating_sub(still) as f64;
            for channel in 0..channels {
                let angle =
                    if position < still { 0.0 } else { at * 10_000f64.powf(-((channel % half) as f64) / half as f64) };
                cos.push(angle.cos() as f32);
                // The first half is turned by minus the second.
                sin.push(if channel < half { -angle.sin() as f32 } else { angle.sin() as f32 });
            }
        }
        let tensor = |values| Tensor::from_data(TensorData::new(values, [1, 1, still + time, channels]), device);
        Rotary { cos: tensor(cos), sin: tensor(sin) }
    }

    fn turn(&self, x: Tensor<4>) -> Tensor<4> {
        let half = x.dims()[3] / 2;
        let swapped = Tensor::cat(vec![x.clone().narrow(3, half, half), x.clone().narrow(3, 0, half)], 3);
        x * self.cos.clone() + swapped * self.sin.clone()
    }
}

/// Attention of several heads.
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

    pub(crate) fn forward(&self, x: Tensor<3>, context: Tensor<3>, bias: Bias, rotary: Option<&Rotary>) -> Tensor<3> {
        let [batch, time, width] = x.dims();
        let channels = width / self.heads;
        let split = |x: Tensor<3>| -> Tensor<4> {
            let length = x.dims()[1];
            x.reshape([batch, length, self.heads, channels]).swap_dims(1, 2)
        };
        let mut query = split(self.query.forward(x));
        let mut key = split(self.key.forward(context.clone()));
        let value = split(self.value.forward(context));
        if let Some(rotary) = rotary {
            (query, key) = (rotary.turn(query), rotary.turn(key));
        }
        let scores = product(query, key.swap_dims(2, 3)).div_scalar((channels as f64).sqrt()) + bias;
        let mixed = product(activation::softmax(scores, 3), value);
        self.output.forward(mixed.swap_dims(1, 2).reshape([batch, time, width]))
    }
}

/// Two layers with a bend between them.
#[derive(Module, Debug)]
pub struct FeedForward {
    /// In.
    pub up: Linear,
    /// Out.
    pub down: Linear,
}

impl FeedForward {
    pub(crate) fn new(init: Init<'_>, width: usize, hidden: usize) -> FeedForward {
        FeedForward {
            up: Linear::new(init.at("up"), width, hidden),
            down: Linear::scaled(init.at("down"), hidden, width, 0.5),
        }
    }

    /// Its result is added to `residual`.
    pub(crate) fn forward_add(&self, x: Tensor<3>, residual: Tensor<3>) -> Tensor<3> {
        let hidden = gelu(self.up.forward(x));
        crate::kernels::linear_add(hidden, self.down.weight.val(), self.down.bias.val(), residual)
    }
}
