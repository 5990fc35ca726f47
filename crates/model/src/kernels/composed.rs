//! The same operations put together from what Burn has, for every device but the CPU.

use burn::tensor::{Tensor, activation, module};

use super::{Adam, matmul};

const EPSILON: f64 = 1e-5;

pub(super) fn linear<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Tensor<1>) -> Tensor<D> {
    let mut shape = x.dims();
    let [output, input] = weight.dims();
    let rows = shape.iter().product::<usize>() / input;
    let y = matmul(x.reshape([rows, input]), weight.transpose()) + bias.unsqueeze::<2>();
    shape[D - 1] = output;
    y.reshape(shape)
}

pub(super) fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    activation::gelu_approximate(x)
}

pub(super) fn layer_norm<const D: usize>(x: Tensor<D>, weight: Tensor<1>, bias: Tensor<1>) -> Tensor<D> {
    module::layer_norm(x, weight, Some(bias), EPSILON)
}

pub(super) fn modulated_norm(
    x: Tensor<3>,
    weight: Tensor<1>,
    bias: Tensor<1>,
    scale: Tensor<2>,
    shift: Tensor<2>,
) -> Tensor<3> {
    layer_norm(x, weight, bias) * (scale.unsqueeze_dim::<3>(1) + 1.0) + shift.unsqueeze_dim::<3>(1)
}

pub(super) fn depthwise_conv(
    x: Tensor<3>,
    weight: Tensor<2>,
    bias: Tensor<1>,
    dilation: usize,
    mask: &Tensor<3>,
) -> Tensor<3> {
    let device = x.device();
    let [batch, time, channels] = x.dims();
    let kernel_size = weight.dims()[0];
    let zeros = Tensor::<3>::zeros([batch, dilation * (kernel_size / 2), channels], &device);
    let padded = Tensor::cat(vec![zeros.clone(), x * mask.clone(), zeros], 1);
    let mut y = bias.reshape([1, 1, channels]).expand([batch, time, channels]);
    for tap in 0..kernel_size {
        let tap_weight = weight.clone().narrow(0, tap, 1).reshape([1, 1, channels]);
        y = y + padded.clone().narrow(1, tap * dilation, time) * tap_weight;
    }
    y
}

/// Row by row: the order of additions must not depend on threads.
pub(super) fn square_sum(x: Tensor<2>) -> Tensor<1> {
    x.square().sum_dim(1).sum()
}

pub(super) fn adam_update(
    value: Tensor<2>,
    grad: Tensor<2>,
    mean: Tensor<2>,
    square: Tensor<2>,
    norm: Tensor<1>,
    adam: Adam,
) -> (Tensor<2>, Tensor<2>, Tensor<2>) {
    let [rows, columns] = value.dims();
    let scale = norm.clone().clamp_min(adam.max_grad_norm).recip().mul_scalar(adam.max_grad_norm).reshape([1, 1]);
    let grad = grad * scale;
    let new_mean = mean.clone().mul_scalar(adam.beta1) + grad.clone().mul_scalar(1.0 - adam.beta1);
    let new_square = square.clone().mul_scalar(adam.beta2) + grad.square().mul_scalar(1.0 - adam.beta2);
    let root = new_square.clone().div_scalar(adam.bias_correction2).sqrt().add_scalar(adam.epsilon);
    let step = new_mean.clone().div_scalar(adam.bias_correction1).div(root).mul_scalar(adam.lr);
    let new_value = value.clone().mul_scalar(1.0 - adam.weight_decay) - step;
    let keep = norm.is_finite().bool_not().reshape([1, 1]).expand([rows, columns]);
    (
        new_value.mask_where(keep.clone(), value),
        new_mean.mask_where(keep.clone(), mean),
        new_square.mask_where(keep, square),
    )
}
