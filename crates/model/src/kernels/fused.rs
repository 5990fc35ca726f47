//! The fused operations as operations of Burn's CPU back end; their gradients are in `gradients.rs`.

mod gradients;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Flex, backend_extension};
use burn::tensor::TensorData;
use burn_flex::FlexTensor;

use super::attention::{Rotation, Shape};
use super::cpu::{self, Depthwise, Modulation};
use super::stft::{self, Stft};
use super::unfold::Unfold;

/// Operations that Burn does not have in one piece.
#[allow(unreachable_pub)] // the macro writes it so
#[backend_extension(Flex, Autodiff)]
pub trait FusedOps: Backend {
    /// `x Wᵀ + b`.
    fn fused_dense(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self>;

    /// `residual + x Wᵀ + b`.
    fn fused_dense_add(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        residual: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// GELU, tanh approximation.
    fn fused_gelu(x: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Normalises the last dimension.
    fn fused_norm(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Normalises the last dimension of `[batch, time, channels]`, then scales and shifts by `[batch, channels]`.
    fn fused_modulated_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// A convolution over time of each channel by itself; positions beyond a row's length count as 0.
    fn fused_depthwise(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        dilation: usize,
        lengths: Vec<usize>,
    ) -> FloatTensor<Self>;

    /// Neighbors side by side: `[batch, time, channels]` to `[batch, length, taps * channels]`.
    fn fused_unfold(x: FloatTensor<Self>, shape: Unfold) -> FloatTensor<Self>;

    /// Rotary position embedding of `[batch, time, heads * channels]`; tables are `[1, 1, time, channels]` and constant.
    fn fused_rotate(
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        heads: usize,
    ) -> FloatTensor<Self>;

    /// Attention of `heads` heads, `[batch, time, heads * channels]` each; `bias`, `[batch, 1, 1, keys]`, is constant.
    fn fused_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        heads: usize,
    ) -> FloatTensor<Self>;

    /// Magnitudes `[rows, frames, bins]` of waveforms `[rows, samples]`.
    fn fused_stft_magnitudes(x: FloatTensor<Self>, shape: Stft) -> FloatTensor<Self>;

    /// Waveforms `[rows, samples]` of spectra `[rows, frames, 2 bins]`.
    fn fused_inverse_stft(spectra: FloatTensor<Self>, shape: Stft) -> FloatTensor<Self>;
}

/// The values of a tensor, one after the other.
struct Values(FlexTensor);

impl Values {
    fn of(tensor: &FlexTensor) -> Values {
        let contiguous = tensor.as_slice::<f32>().is_some();
        Values(if contiguous { tensor.clone() } else { tensor.to_contiguous() })
    }
}

impl std::ops::Deref for Values {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.0.as_slice::<f32>().expect("single precision, one after the other")
    }
}

fn tensor(values: Vec<f32>, shape: &[usize]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape.to_vec()))
}

fn shape_of(tensor: &FlexTensor) -> Vec<usize> {
    tensor.layout().shape().to_vec()
}

fn like(values: Vec<f32>, other: &FlexTensor) -> FlexTensor {
    tensor(values, &shape_of(other))
}

fn dense(x: &FlexTensor, weight: &FlexTensor, bias: &FlexTensor, residual: Option<&FlexTensor>) -> FlexTensor {
    let residual = residual.map(Values::of);
    let y = cpu::dense(&Values::of(x), &Values::of(weight), &Values::of(bias), residual.as_deref());
    let mut shape = shape_of(x);
    if let Some(last) = shape.last_mut() {
        *last = shape_of(bias)[0];
    }
    tensor(y, &shape)
}

fn modulated(
    x: &FlexTensor,
    weight: &FlexTensor,
    bias: &FlexTensor,
    scale: &FlexTensor,
    shift: &FlexTensor,
) -> FlexTensor {
    let (scale, shift) = (Values::of(scale), Values::of(shift));
    let modulation = Modulation { scale: &scale, shift: &shift, time: shape_of(x)[1] };
    like(cpu::norm(&Values::of(x), &Values::of(weight), &Values::of(bias), Some(modulation)), x)
}

fn depthwise_shape<'a>(x: &FlexTensor, weight: &FlexTensor, dilation: usize, lengths: &'a [usize]) -> Depthwise<'a> {
    let (x, weight) = (shape_of(x), shape_of(weight));
    Depthwise { time: x[1], channels: x[2], kernel_size: weight[0], dilation, lengths }
}

fn unfold(x: &FlexTensor, shape: Unfold) -> FlexTensor {
    let [batch, time, channels] = three(x);
    tensor(shape.forward(&Values::of(x), time, channels), &[batch, shape.length(time), shape.taps * channels])
}

fn three(tensor: &FlexTensor) -> [usize; 3] {
    let shape = shape_of(tensor);
    [shape[0], shape[1], shape[2]]
}

fn rotate(x: &FlexTensor, cos: &FlexTensor, sin: &FlexTensor, heads: usize, backward: bool) -> FlexTensor {
    let (cos, sin, channels) = (Values::of(cos), Values::of(sin), three(x)[2] / heads);
    let rotation = Rotation { cos: &cos, sin: &sin, channels };
    let x_values = Values::of(x);
    like(if backward { rotation.backward(&x_values, heads) } else { rotation.forward(&x_values, heads) }, x)
}

fn attention_shape(query: &FlexTensor, key: &FlexTensor, heads: usize) -> Shape {
    let ([_, queries, width], [_, keys, _]) = (three(query), three(key));
    Shape { heads, channels: width / heads, queries, keys }
}

fn attention(inputs: [&FlexTensor; 4], heads: usize) -> FlexTensor {
    let [query, key, value, bias] = inputs.map(Values::of);
    like(attention_shape(inputs[0], inputs[1], heads).forward([&query, &key, &value, &bias]), inputs[0])
}

impl FusedOps for Flex {
    fn fused_dense(x: FlexTensor, weight: FlexTensor, bias: FlexTensor) -> FlexTensor {
        dense(&x, &weight, &bias, None)
    }

    fn fused_dense_add(x: FlexTensor, weight: FlexTensor, bias: FlexTensor, residual: FlexTensor) -> FlexTensor {
        dense(&x, &weight, &bias, Some(&residual))
    }

    fn fused_gelu(x: FlexTensor) -> FlexTensor {
        like(cpu::gelu(&Values::of(&x)), &x)
    }

    fn fused_norm(x: FlexTensor, weight: FlexTensor, bias: FlexTensor) -> FlexTensor {
        like(cpu::norm(&Values::of(&x), &Values::of(&weight), &Values::of(&bias), None), &x)
    }

    fn fused_modulated_norm(
        x: FlexTensor,
        weight: FlexTensor,
        bias: FlexTensor,
        scale: FlexTensor,
        shift: FlexTensor,
    ) -> FlexTensor {
        modulated(&x, &weight, &bias, &scale, &shift)
    }

    fn fused_depthwise(
        x: FlexTensor,
        weight: FlexTensor,
        bias: FlexTensor,
        dilation: usize,
        lengths: Vec<usize>,
    ) -> FlexTensor {
        let shape = depthwise_shape(&x, &weight, dilation, &lengths);
        like(shape.forward(&Values::of(&x), &Values::of(&weight), &Values::of(&bias)), &x)
    }

    fn fused_unfold(x: FlexTensor, shape: Unfold) -> FlexTensor {
        unfold(&x, shape)
    }

    fn fused_rotate(x: FlexTensor, cos: FlexTensor, sin: FlexTensor, heads: usize) -> FlexTensor {
        rotate(&x, &cos, &sin, heads, false)
    }

    fn fused_attention(
        query: FlexTensor,
        key: FlexTensor,
        value: FlexTensor,
        bias: FlexTensor,
        heads: usize,
    ) -> FlexTensor {
        attention([&query, &key, &value, &bias], heads)
    }

    fn fused_stft_magnitudes(x: FlexTensor, shape: Stft) -> FlexTensor {
        let (rows, samples) = (shape_of(&x)[0], shape_of(&x)[1]);
        let values = stft::magnitudes(&shape, &Values::of(&x), samples);
        tensor(values, &[rows, shape.frames(samples), shape.bins()])
    }

    fn fused_inverse_stft(spectra: FlexTensor, shape: Stft) -> FlexTensor {
        let (rows, frames) = (shape_of(&spectra)[0], shape_of(&spectra)[1]);
        tensor(stft::inverse(&shape, &Values::of(&spectra), frames), &[rows, shape.samples(frames)])
    }
}

/// One step of AdamW on tensors that are nobody else's; see [`super::adam_update`].
pub(super) fn adam(
    mut value: FlexTensor,
    grad: &FlexTensor,
    mut mean: FlexTensor,
    mut square: FlexTensor,
    norm: &FlexTensor,
    settings: &super::Adam,
) -> (FlexTensor, FlexTensor, FlexTensor) {
    let norm = Values::of(norm)[0];
    if norm.is_finite() {
        let factor = settings.max_grad_norm / norm.max(settings.max_grad_norm);
        // storage_mut copies when somebody else holds the tensor.
        let (value, mean, square) =
            (value.storage_mut::<f32>(), mean.storage_mut::<f32>(), square.storage_mut::<f32>());
        cpu::adam(value, &Values::of(grad), mean, square, factor, settings);
    }
    (value, mean, square)
}

/// One step of an exponential moving average; see [`super::ema_update`].
pub(super) fn ema(mut average: FlexTensor, value: &FlexTensor, decay: f64) -> FlexTensor {
    cpu::ema(average.storage_mut::<f32>(), &Values::of(value), decay as f32, (1.0 - decay) as f32);
    average
}

/// The sum of squares, as a tensor of one value.
pub(super) fn square_sum(x: &FlexTensor) -> FlexTensor {
    tensor(vec![cpu::square_sum(&Values::of(x))], &[1])
}
