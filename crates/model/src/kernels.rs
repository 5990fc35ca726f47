//! The operations where most of a step is spent.

use burn::tensor::{Int, Tensor};

const EPSILON: f64 = 1e-5;

/// `y = x Wᵀ + b` with `W` `[out, in]`.
pub(crate) fn linear<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Tensor<1>) -> Tensor<D> {
    let mut shape = x.dims();
    let [output, input] = weight.dims();
    let rows = shape.iter().product::<usize>() / input;
    let y = x.reshape([rows, input]).matmul(weight.transpose()) + bias.unsqueeze::<2>();
    shape[D - 1] = output;
    y.reshape(shape)
}

/// Normalises over the last dimension.
pub(crate) fn layer_norm<const D: usize>(x: Tensor<D>, weight: Tensor<1>, bias: Tensor<1>) -> Tensor<D> {
    burn::tensor::module::layer_norm(x, weight, Some(bias), EPSILON)
}

/// Each channel by itself over time, `[batch, time, channels]`, zeros beyond the ends; weights `[taps, channels]`.
pub(crate) fn depthwise_conv(x: Tensor<3>, weight: Tensor<2>, bias: Tensor<1>, dilation: usize) -> Tensor<3> {
    let [batch, time, channels] = x.dims();
    let taps = weight.dims()[0];
    let reach = dilation * (taps / 2);
    let zeros = Tensor::<3>::zeros([batch, reach, channels], &x.device());
    let padded = Tensor::cat(vec![zeros.clone(), x, zeros], 1);
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

/// The sum of squares. Row by row: the order of additions must not depend on threads.
pub fn square_sum(x: Tensor<2>) -> Tensor<1> {
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
    let [rows, columns] = value.dims();
    let scale = norm.clone().clamp_min(adam.clip).recip().mul_scalar(adam.clip).reshape([1, 1]);
    let grad = grad * scale;
    let new_mean = mean.clone().mul_scalar(adam.beta1) + grad.clone().mul_scalar(1.0 - adam.beta1);
    let new_square = square.clone().mul_scalar(adam.beta2) + grad.square().mul_scalar(1.0 - adam.beta2);
    let root = new_square.clone().div_scalar(adam.correction2).sqrt().add_scalar(adam.epsilon);
    let step = new_mean.clone().div_scalar(adam.correction1).div(root).mul_scalar(adam.rate);
    let new_value = value.clone().mul_scalar(1.0 - adam.decay) - step;
    let keep = norm.is_finite().bool_not().reshape([1, 1]).expand([rows, columns]);
    (new_value.mask_where(keep.clone(), value), new_mean.mask_where(keep.clone(), mean), new_square.mask_where(keep, square))
}
