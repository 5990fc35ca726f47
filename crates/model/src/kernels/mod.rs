//! The operations where most of a step is spent. On the CPU they are done in one piece (`cpu.rs`, made known to Burn in
//! `fused.rs`); on other devices they are put together from what Burn has. Both give the same, up to rounding.

mod cpu;
mod fused;

use burn::backend::{Dispatch, DispatchDevice, Flex};
use burn::tensor::{Device, Int, Tensor, activation, module};

use fused::FusedOps;

const EPSILON: f64 = 1e-5;

fn is_cpu(device: &Device) -> bool {
    matches!(device.clone().inner().as_dispatch(), DispatchDevice::Flex(_))
}

/// `y = x Wᵀ + b` with `W` `[out, in]`.
pub(crate) fn linear<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Tensor<1>) -> Tensor<D> {
    if is_cpu(&x.device()) {
        let y = Dispatch::fused_dense(x.into_dispatch(), weight.into_dispatch(), bias.into_dispatch());
        return Tensor::from_dispatch(y);
    }
    let mut shape = x.dims();
    let [output, input] = weight.dims();
    let rows = shape.iter().product::<usize>() / input;
    let y = x.reshape([rows, input]).matmul(weight.transpose()) + bias.unsqueeze::<2>();
    shape[D - 1] = output;
    y.reshape(shape)
}

/// `residual + x Wᵀ + b`.
pub(crate) fn linear_add<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Tensor<1>,
    residual: Tensor<D>,
) -> Tensor<D> {
    if is_cpu(&x.device()) {
        return Tensor::from_dispatch(Dispatch::fused_dense_add(
            x.into_dispatch(),
            weight.into_dispatch(),
            bias.into_dispatch(),
            residual.into_dispatch(),
        ));
    }
    residual + linear(x, weight, bias)
}

/// The bend of GELU, in its usual approximation.
pub(crate) fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    if is_cpu(&x.device()) {
        return Tensor::from_dispatch(Dispatch::fused_gelu(x.into_dispatch()));
    }
    activation::gelu_approximate(x)
}

/// Normalises over the last dimension.
pub(crate) fn layer_norm<const D: usize>(x: Tensor<D>, weight: Tensor<1>, bias: Tensor<1>) -> Tensor<D> {
    if is_cpu(&x.device()) {
        let y = Dispatch::fused_norm(x.into_dispatch(), weight.into_dispatch(), bias.into_dispatch());
        return Tensor::from_dispatch(y);
    }
    module::layer_norm(x, weight, Some(bias), EPSILON)
}

/// Normalises the last dimension of `[batch, time, channels]`, then `y (1 + scale) + shift` with `[batch, channels]`.
pub(crate) fn modulated_norm(
    x: Tensor<3>,
    weight: Tensor<1>,
    bias: Tensor<1>,
    scale: Tensor<2>,
    shift: Tensor<2>,
) -> Tensor<3> {
    if is_cpu(&x.device()) {
        return Tensor::from_dispatch(Dispatch::fused_modulated_norm(
            x.into_dispatch(),
            weight.into_dispatch(),
            bias.into_dispatch(),
            scale.into_dispatch(),
            shift.into_dispatch(),
        ));
    }
    layer_norm(x, weight, bias) * (scale.unsqueeze_dim::<3>(1) + 1.0) + shift.unsqueeze_dim::<3>(1)
}

/// Each channel by itself over time, `[batch, time, channels]`; weights are `[taps, channels]`. What is beyond a row's
/// length counts as 0.
pub(crate) fn depthwise_conv(
    x: Tensor<3>,
    weight: Tensor<2>,
    bias: Tensor<1>,
    dilation: usize,
    lengths: &[usize],
) -> Tensor<3> {
    let device = x.device();
    if is_cpu(&device) {
        return Tensor::from_dispatch(Dispatch::fused_depthwise(
            x.into_dispatch(),
            weight.into_dispatch(),
            bias.into_dispatch(),
            dilation,
            lengths.to_vec(),
        ));
    }
    let [batch, time, channels] = x.dims();
    let taps = weight.dims()[0];
    let zeros = Tensor::<3>::zeros([batch, dilation * (taps / 2), channels], &device);
    let padded = Tensor::cat(vec![zeros.clone(), x * crate::inputs::mask(lengths, time, &device), zeros], 1);
    let mut y = bias.reshape([1, 1, channels]).expand([batch, time, channels]);
    for tap in 0..taps {
        let tap_weight = weight.clone().narrow(0, tap, 1).reshape([1, 1, channels]);
        y = y + padded.clone().narrow(1, tap * dilation, time) * tap_weight;
    }
    y
}

/// The rows of `weight` that `ids` names, `[batch, time, channels]`.
pub(crate) fn embedding(weight: Tensor<2>, ids: Tensor<2, Int>) -> Tensor<3> {
    let [batch, time] = ids.dims();
    let channels = weight.dims()[1];
    weight.select(0, ids.reshape([batch * time])).reshape([batch, time, channels])
}

/// The numbers of one AdamW step.
#[derive(Clone, Copy, Debug)]
pub struct Adam {
    /// Memory of the mean gradient.
    pub beta1: f32,
    /// Memory of the mean square.
    pub beta2: f32,
    /// Keeps divisions finite.
    pub epsilon: f32,
    /// Learning rate.
    pub rate: f32,
    /// Share of the parameter that vanishes.
    pub decay: f32,
    /// `1 - beta1^step`.
    pub correction1: f32,
    /// `1 - beta2^step`.
    pub correction2: f32,
    /// The norm that gradients are clipped to.
    pub clip: f32,
}

/// The sum of squares. The order of additions does not depend on threads.
pub fn square_sum(x: Tensor<2>) -> Tensor<1> {
    if is_cpu(&x.device())
        && let Ok(x) = x.clone().try_into_primitive::<Flex>()
    {
        return Tensor::from_primitive::<Flex>(fused::square_sum(&x));
    }
    x.square().sum_dim(1).sum()
}

/// One AdamW step of a parameter: its new value, mean and mean square. When `norm`, that of all gradients, is not
/// finite, nothing changes.
pub fn adam_update(
    value: Tensor<2>,
    grad: Tensor<2>,
    mean: Tensor<2>,
    square: Tensor<2>,
    norm: Tensor<1>,
    adam: Adam,
) -> (Tensor<2>, Tensor<2>, Tensor<2>) {
    if is_cpu(&value.device()) {
        let plain = |tensor: Tensor<2>| tensor.try_into_primitive::<Flex>().expect("on the CPU, without history");
        let norm = norm.try_into_primitive::<Flex>().expect("on the CPU, without history");
        let (value, mean, square) = fused::adam(plain(value), &plain(grad), plain(mean), plain(square), &norm, &adam);
        return (
            Tensor::from_primitive::<Flex>(value),
            Tensor::from_primitive::<Flex>(mean),
            Tensor::from_primitive::<Flex>(square),
        );
    }
    adam_composed(value, grad, mean, square, norm, adam)
}

fn adam_composed(
    value: Tensor<2>,
    grad: Tensor<2>,
    mean: Tensor<2>,
    square: Tensor<2>,
    norm: Tensor<1>,
    adam: Adam,
) -> (Tensor<2>, Tensor<2>, Tensor<2>) {
    let [rows, columns] = value.dims();
    let scale = norm.clone().clamp_min(adam.clip).recip().mul_scalar(adam.clip).reshape([1, 1]);
    let grad = grad * scale;
    let new_mean = mean.clone().mul_scalar(adam.beta1) + grad.clone().mul_scalar(1.0 - adam.beta1);
    let new_square = square.clone().mul_scalar(adam.beta2) + grad.square().mul_scalar(1.0 - adam.beta2);
    let root = new_square.clone().div_scalar(adam.correction2).sqrt().add_scalar(adam.epsilon);
    let step = new_mean.clone().div_scalar(adam.correction1).div(root).mul_scalar(adam.rate);
    let new_value = value.clone().mul_scalar(1.0 - adam.decay) - step;
    let keep = norm.is_finite().bool_not().reshape([1, 1]).expand([rows, columns]);
    (
        new_value.mask_where(keep.clone(), value),
        new_mean.mask_where(keep.clone(), mean),
        new_square.mask_where(keep, square),
    )
}
