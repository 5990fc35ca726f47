//! The same operations put together from what Burn has, for every device but the CPU.

use burn::tensor::{Device, Tensor, TensorData, activation, module};

use super::stft::SQUARED_FLOOR;
use super::{Adam, Stft, Unfold, matmul};

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

pub(super) fn unfold(x: Tensor<3>, shape: Unfold) -> Tensor<3> {
    let [batch, time, channels] = x.dims();
    let (length, reach) = (shape.length(time), shape.kernel_size / 2);
    let zeros = |count: usize| Tensor::<3>::zeros([batch, count, channels], &x.device());
    // Up to the next multiple of the stride: what is beyond the results is not looked at.
    let padded = Tensor::cat(vec![zeros(reach), x.clone(), zeros(reach + length * shape.stride - time)], 1);
    let tap = |tap: usize| {
        let seen = padded.clone().narrow(1, shape.first + tap, length * shape.stride);
        seen.reshape([batch, length, shape.stride * channels]).narrow(2, 0, channels)
    };
    Tensor::cat((0..shape.taps).map(tap).collect(), 2)
}

/// `x` is `[batch, time, heads * channels]`, tables are `[1, 1, time, channels]`.
pub(super) fn rotate(x: Tensor<3>, cos: Tensor<4>, sin: Tensor<4>, heads: usize) -> Tensor<3> {
    let [batch, time, width] = x.dims();
    let half = width / heads / 2;
    let x = x.reshape([batch, time, heads, 2 * half]);
    let swapped = Tensor::cat(vec![x.clone().narrow(3, half, half), x.clone().narrow(3, 0, half)], 3);
    let y = x * cos.swap_dims(1, 2) + swapped * sin.swap_dims(1, 2);
    y.reshape([batch, time, width])
}

pub(super) fn attention(
    query: Tensor<3>,
    key: Tensor<3>,
    value: Tensor<3>,
    bias: Tensor<4>,
    heads: usize,
) -> Tensor<3> {
    let [batch, time, width] = query.dims();
    let channels = width / heads;
    let split = |x: Tensor<3>| -> Tensor<4> {
        let length = x.dims()[1];
        x.reshape([batch, length, heads, channels]).swap_dims(1, 2)
    };
    let scores = matmul(split(query), split(key).swap_dims(2, 3)).div_scalar((channels as f64).sqrt()) + bias;
    matmul(activation::softmax(scores, 3), split(value)).swap_dims(1, 2).reshape([batch, time, width])
}

/// Cosines and minus sines of each bin, times the window, `[rounded n_fft, 2 bins]`; frames are rounded up to whole hops, and
/// what is beyond `n_fft` counts nothing.
fn dft(shape: Stft, scale: impl Fn(usize) -> [f64; 2], device: &Device) -> Tensor<2> {
    let (bins, window, rounded) = (shape.bins(), shape.window(), shape.n_fft.next_multiple_of(shape.hop));
    let mut values = vec![0.0; rounded * 2 * bins];
    for (n, row) in values.chunks_mut(2 * bins).take(shape.n_fft).enumerate() {
        for bin in 0..bins {
            let angle = std::f64::consts::TAU * ((n * bin) % shape.n_fft) as f64 / shape.n_fft as f64;
            let [real, imaginary] = scale(bin);
            row[bin] = window[n] * (real * angle.cos()) as f32;
            row[bins + bin] = -window[n] * (imaginary * angle.sin()) as f32;
        }
    }
    Tensor::from_data(TensorData::new(values, [rounded, 2 * bins]), device)
}

/// Frames side by side, in blocks of a hop, then a matmul with the transform's matrix.
pub(super) fn stft_magnitudes(x: Tensor<2>, shape: Stft) -> Tensor<3> {
    let device = x.device();
    let [rows, samples] = x.dims();
    let (frames, bins, blocks) = (shape.frames(samples), shape.bins(), shape.n_fft.div_ceil(shape.hop));
    let needed = (frames + blocks - 1) * shape.hop;
    let x = match needed.checked_sub(samples) {
        Some(missing) if missing > 0 => Tensor::cat(vec![x, Tensor::zeros([rows, missing], &device)], 1),
        _ => x.narrow(1, 0, needed),
    };
    let x = x.reshape([rows, frames + blocks - 1, shape.hop]);
    let framed = Tensor::cat((0..blocks).map(|n| x.clone().narrow(1, n, frames)).collect(), 2);
    let matrix = dft(shape, |_| [1.0, 1.0], &device);
    let spectra = matmul(framed.reshape([rows * frames, blocks * shape.hop]), matrix);
    let (real, imaginary) = (spectra.clone().narrow(1, 0, bins), spectra.narrow(1, bins, bins));
    (real.square() + imaginary.square() + SQUARED_FLOOR).sqrt().reshape([rows, frames, bins])
}

pub(super) fn inverse_stft(spectra: Tensor<3>, shape: Stft) -> Tensor<2> {
    let device = spectra.device();
    let [rows, frames, values] = spectra.dims();
    let (bins, blocks, hop) = (shape.bins(), shape.n_fft.div_ceil(shape.hop), shape.hop);
    let scale = |bin: usize| {
        let edge = bin == 0 || bin == bins - 1;
        // A real signal has no imaginary part there.
        if edge { [1.0 / shape.n_fft as f64, 0.0] } else { [2.0 / shape.n_fft as f64; 2] }
    };
    let matrix = dft(shape, scale, &device).transpose();
    let framed = matmul(spectra.reshape([rows * frames, values]), matrix).reshape([rows, frames, blocks, hop]);
    let zeros = |count: usize| Tensor::<3>::zeros([rows, count, hop], &device);
    let shifted = |n: usize| {
        let block = framed.clone().narrow(2, n, 1).reshape([rows, frames, hop]);
        Tensor::cat(vec![zeros(n), block, zeros(blocks - 1 - n)].into_iter().filter(|x| x.dims()[1] > 0).collect(), 1)
    };
    let sum = (1..blocks).fold(shifted(0), |sum, n| sum + shifted(n));
    let samples = shape.samples(frames);
    let weights = TensorData::new(shape.inverse_weights(frames), [1, samples]);
    let waveform = sum.reshape([rows, (frames + blocks - 1) * hop]).narrow(1, 0, samples);
    waveform * Tensor::from_data(weights, &device)
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

pub(super) fn ema_update(average: Tensor<2>, value: Tensor<2>, decay: f64) -> Tensor<2> {
    average.mul_scalar(decay) + value.mul_scalar(1.0 - decay)
}
