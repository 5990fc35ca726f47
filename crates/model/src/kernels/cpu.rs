//! Fused operations on the CPU: plain loops over slices, cut into blocks that all cores share.
//!
//! Blocks have a fixed size and their sums are added in a fixed order, so that results do not depend on the number of
//! cores that happened to be free. The loops are compiled for the vector units there are (`pulp`) and chosen at run time.

#![allow(clippy::type_complexity)] // what parallel iterators zip together

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::Adam;
use super::unwritten::{in_blocks, in_blocks_with};

/// Rows that one core works on at a time.
const BLOCK: usize = 128;
/// Multiplications below which one core is faster than several.
const ALONE: usize = 96 * 96 * 96;
const EPSILON: f32 = 1e-5;

/// Does `work`, compiled for the widest vectors of this machine. It must be an `#[inline(always)]` closure that changes
/// something it holds: only then is its body, and not a call to it, what is compiled for them.
#[inline(always)]
pub(super) fn vectorised<R>(work: impl FnMut() -> R) -> R {
    struct Work<F>(F);
    impl<R, F: FnMut() -> R> WithSimd for Work<F> {
        type Output = R;

        #[inline(always)]
        fn with_simd<S: Simd>(mut self, _: S) -> R {
            (self.0)()
        }
    }
    Arch::new().dispatch(Work(work))
}

/// The same for a closure that gives back what it was given.
#[inline(always)]
pub(super) fn vectorised_once<R>(work: impl FnOnce() -> R) -> R {
    struct Work<F>(F);
    impl<R, F: FnOnce() -> R> WithSimd for Work<F> {
        type Output = R;

        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> R {
            (self.0)()
        }
    }
    Arch::new().dispatch(Work(work))
}

/// The vector units that loops use on this machine, if it has any that are used. (Naming them here sees to it that `pulp` is built with
/// them: otherwise each multiply-add is a call, and a step takes four times as long.)
pub(super) fn vectors() -> Option<&'static str> {
    match Arch::new() {
        #[cfg(target_arch = "x86_64")]
        Arch::V4(_) => Some("AVX-512"),
        #[cfg(target_arch = "x86_64")]
        Arch::V3(_) => Some("AVX2"),
        #[cfg(target_arch = "aarch64")]
        Arch::Neon(_) => Some("NEON"),
        _ => None,
    }
}

/// A matrix in memory: where it starts and how far apart its rows and columns are.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    values: &'a [f32],
    row: isize,
    column: isize,
}

impl<'a> Matrix<'a> {
    pub(super) fn new(values: &'a [f32], columns: usize) -> Matrix<'a> {
        Matrix { values, row: columns as isize, column: 1 }
    }

    pub(super) fn transposed(self) -> Matrix<'a> {
        Matrix { values: self.values, row: self.column, column: self.row }
    }
}

/// `out + a b`, where `out` is `[m, n]`, row by row, and `a` is `[m, k]`.
fn multiply_add(out: &mut [f32], shape @ [m, _, n]: [usize; 3], a: Matrix<'_>, b: Matrix<'_>) {
    assert_eq!(out.len(), m * n);
    // SAFETY: there is room for the result, and values to add it to.
    unsafe { gemm(out.as_mut_ptr(), shape, a, b, true) }
}

/// `a b`, `[m, n]`, row by row; `a` is `[m, k]`.
pub(super) fn multiply(shape @ [m, k, n]: [usize; 3], a: Matrix<'_>, b: Matrix<'_>) -> Vec<f32> {
    if k == 0 {
        return vec![0.0; m * n];
    }
    let mut out = Vec::with_capacity(m * n);
    // SAFETY: there is room for the result, and what is there is not read.
    unsafe { gemm(out.as_mut_ptr(), shape, a, b, false) };
    // SAFETY: all values are those of the product, whose sums have at least one term.
    unsafe { out.set_len(m * n) };
    out
}

/// `[out +] a b`.
///
/// # Safety
///
/// `out` must be valid for writing `m n` values, and they must have been written before when they are added to.
unsafe fn gemm(out: *mut f32, [m, k, n]: [usize; 3], a: Matrix<'_>, b: Matrix<'_>, add: bool) {
    assert!(a.values.len() == m * k && b.values.len() == k * n);
    if m == 0 || n == 0 || k == 0 {
        return;
    }
    let parallelism = if m * k * n < ALONE { gemm::Parallelism::None } else { gemm::Parallelism::Rayon(0) };
    // SAFETY: the sizes were checked above or are promised by the caller, and the strides are those of dense matrices of
    // these sizes. Without `add` nothing is read from `out`.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out,
            1,
            n as isize,
            add,
            a.values.as_ptr(),
            a.column,
            a.row,
            b.values.as_ptr(),
            b.column,
            b.row,
            1.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// `y = [residual +] x Wᵀ + b`: `x` is `[rows, input]`, `weight` `[output, input]`.
pub(super) fn dense(x: &[f32], weight: &[f32], bias: &[f32], residual: Option<&[f32]>) -> Vec<f32> {
    let output = bias.len();
    let input = weight.len() / output;
    let rows = x.len() / input;
    let mut y = in_blocks(rows * output, BLOCK * output, |block, y| {
        vectorised_once(
            #[inline(always)]
            || match residual {
                None => y.blocks(output, |_, y| y.copy_of(bias)),
                Some(residual) => y.blocks(
                    output,
                    #[inline(always)]
                    |row, y| {
                        let residual = &residual[(block * BLOCK + row) * output..][..y.len()];
                        let bias = &bias[..y.len()];
                        y.each(|n| residual[n] + bias[n])
                    },
                ),
            },
        )
    });
    multiply_add(&mut y, [rows, input, output], Matrix::new(x, input), Matrix::new(weight, input).transposed());
    y
}

/// Gradients of [`dense`]: of `x`, the weight and the bias.
pub(super) fn dense_backward(x: &[f32], weight: &[f32], grad: &[f32], output: usize) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    let input = weight.len() / output;
    let rows = x.len() / input;
    let grad_x = multiply([rows, output, input], Matrix::new(grad, output), Matrix::new(weight, input));
    let transposed = Matrix::new(grad, output).transposed();
    let grad_weight = multiply([output, rows, input], transposed, Matrix::new(x, input));
    let grad_bias = sum_rows(grad.par_chunks(BLOCK * output).map(|grad| {
        let mut sum = vec![0.0; output];
        vectorised(
            #[inline(always)]
            || grad.chunks_exact(output).for_each(|row| add(&mut sum, row)),
        );
        sum
    }));
    (grad_x, grad_weight, grad_bias)
}

#[inline(always)]
fn add(sum: &mut [f32], row: &[f32]) {
    for (sum, value) in sum.iter_mut().zip(row) {
        *sum += value;
    }
}

/// Adds up what blocks found, in their order.
fn sum_rows(parts: impl IndexedParallelIterator<Item = Vec<f32>>) -> Vec<f32> {
    let parts: Vec<Vec<f32>> = parts.collect();
    let mut parts = parts.into_iter();
    let mut sum = parts.next().unwrap_or_default();
    parts.for_each(|part| add(&mut sum, &part));
    sum
}

/// e^x, within a few units in the last place.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to a whole number
    let x = x.clamp(-87.0, 88.0);
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-0.693_359_4, x);
    let r = n.mul_add(2.121_944_4e-4, r);
    let mut p = 1.987_569_1e-4f32;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_6e-1, 0.5] {
        p = p.mul_add(r, c);
    }
    let p = p.mul_add(r * r, r) + 1.0;
    let power = f32::from_bits(((shifted.to_bits() as i32) << 23).wrapping_add(0x3F80_0000) as u32);
    p * power
}

const CUBE: f32 = 0.044_715;
/// 2 sqrt(2 / π)
const SLOPE: f32 = 1.595_769;

/// GELU (tanh approximation): `x · sigmoid(1.6 (x + 0.045 x³))`.
#[inline(always)]
fn gelu_value(x: f32) -> f32 {
    let z = SLOPE * x * (CUBE * x).mul_add(x, 1.0);
    x / (1.0 + exp(-z))
}

#[inline(always)]
fn gelu_grad(x: f32) -> f32 {
    let z = SLOPE * x * (CUBE * x).mul_add(x, 1.0);
    let s = 1.0 / (1.0 + exp(-z));
    let dz = SLOPE * (3.0 * CUBE * x).mul_add(x, 1.0);
    s + x * s * (1.0 - s) * dz
}

/// Elements that one core works on at a time.
const ELEMENTS: usize = 16_384;

pub(super) fn gelu(x: &[f32]) -> Vec<f32> {
    in_blocks(x.len(), ELEMENTS, |block, y| {
        vectorised_once(
            #[inline(always)]
            || {
                // Cut here, where the compiler sees that no index is beyond it.
                let x = &x[block * ELEMENTS..][..y.len()];
                y.each(
                    #[inline(always)]
                    |n| gelu_value(x[n]),
                )
            },
        )
    })
}

pub(super) fn gelu_backward(x: &[f32], grad: &[f32]) -> Vec<f32> {
    in_blocks(x.len(), ELEMENTS, |block, out| {
        vectorised_once(
            #[inline(always)]
            || {
                let (x, grad) = (&x[block * ELEMENTS..][..out.len()], &grad[block * ELEMENTS..][..out.len()]);
                out.each(
                    #[inline(always)]
                    |n| grad[n] * gelu_grad(x[n]),
                )
            },
        )
    })
}

/// Mean and the inverse of the deviation of a row.
#[inline(always)]
fn moments(row: &[f32]) -> (f32, f32) {
    let count = row.len() as f32;
    let mean = lanes_sum(row, |x| x) / count;
    let variance = lanes_sum(row, |x| (x - mean) * (x - mean)) / count;
    (mean, 1.0 / (variance + EPSILON).sqrt())
}

/// A sum in sixteen lanes, which the compiler turns into vectors.
#[inline(always)]
pub(super) fn lanes_sum(row: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; 16];
    let chunks = row.chunks_exact(16);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += of(*x);
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().map(|x| of(*x)).sum::<f32>()
}

/// Scale and shift of each batch row, `[batch, channels]` each, for `time` positions each.
#[derive(Clone, Copy)]
pub(super) struct Modulation<'a> {
    pub(super) scale: &'a [f32],
    pub(super) shift: &'a [f32],
    pub(super) time: usize,
}

/// `y = norm(x) w + b`, and then `y (1 + scale) + shift`.
pub(super) fn norm(x: &[f32], weight: &[f32], bias: &[f32], modulation: Option<Modulation<'_>>) -> Vec<f32> {
    let channels = weight.len();
    in_blocks(x.len(), BLOCK * channels, |block, y| {
        vectorised_once(
            #[inline(always)]
            || {
                y.blocks(
                    channels,
                    #[inline(always)]
                    |n, y| {
                        let row = block * BLOCK + n;
                        let x = &x[row * channels..][..y.len()];
                        let (weight, bias) = (&weight[..y.len()], &bias[..y.len()]);
                        let (mean, inverse) = moments(x);
                        let y = y.each(
                            #[inline(always)]
                            |c| ((x[c] - mean) * inverse).mul_add(weight[c], bias[c]),
                        );
                        if let Some(Modulation { scale, shift, time }) = modulation {
                            let first = row / time * channels;
                            let (scale, shift) = (&scale[first..first + channels], &shift[first..first + channels]);
                            for ((y, scale), shift) in y.iter_mut().zip(scale).zip(shift) {
                                *y = y.mul_add(1.0 + scale, *shift);
                            }
                        }
                        y
                    },
                )
            },
        )
    })
}

/// Gradients of [`norm`]: of `x`, weight, bias, and of scale and shift when there is a modulation.
pub(super) struct NormGrads {
    pub(super) x: Vec<f32>,
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
    pub(super) scale: Vec<f32>,
    pub(super) shift: Vec<f32>,
}

pub(super) fn norm_backward(
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    modulation: Option<Modulation<'_>>,
    grad: &[f32],
) -> NormGrads {
    let channels = weight.len();
    let rows = x.len() / channels;
    // One block for each batch row: the sums of scale and shift are then its own.
    let block = modulation.map_or(BLOCK, |modulation| modulation.time).max(1);
    let (grad_x, parts) = in_blocks_with(x.len(), block * channels, |n, out| {
        let mut sums = [vec![0.0f32; channels], vec![0.0f32; channels], vec![0.0f32; channels], vec![0.0f32; channels]];
        let mut inner = vec![0.0f32; channels];
        let scale = modulation.map(|m| &m.scale[n * channels..(n + 1) * channels]);
        let out = vectorised_once(
            #[inline(always)]
            || {
                let [sum_weight, sum_bias, sum_scale, sum_shift] = &mut sums;
                out.blocks(
                    channels,
                    #[inline(always)]
                    |row, out| {
                        let first = (n * block + row) * channels;
                        let (x, grad) = (&x[first..first + channels], &grad[first..first + channels]);
                        let (mean, inverse) = moments(x);
                        match scale {
                            None => inner.copy_from_slice(grad),
                            Some(scale) => {
                                add(sum_shift, grad);
                                for c in 0..channels {
                                    let normal = ((x[c] - mean) * inverse).mul_add(weight[c], bias[c]);
                                    sum_scale[c] = grad[c].mul_add(normal, sum_scale[c]);
                                    inner[c] = grad[c] * (1.0 + scale[c]);
                                }
                            }
                        }
                        add(sum_bias, &inner);
                        // out holds the normalized value for a moment.
                        let out = out.each(
                            #[inline(always)]
                            |c| (x[c] - mean) * inverse,
                        );
                        for c in 0..channels {
                            sum_weight[c] = inner[c].mul_add(out[c], sum_weight[c]);
                            inner[c] *= weight[c];
                        }
                        let count = channels as f32;
                        let mean_grad = lanes_sum(&inner, |g| g) / count;
                        let mut lanes = [0.0f32; 16];
                        for (g, v) in inner.chunks(16).zip(out.chunks(16)) {
                            for ((lane, g), v) in lanes.iter_mut().zip(g).zip(v) {
                                *lane = g.mul_add(*v, *lane);
                            }
                        }
                        let mean_product = lanes.iter().sum::<f32>() / count;
                        for (out, g) in out.iter_mut().zip(&inner) {
                            *out = inverse * (g - mean_grad - *out * mean_product);
                        }
                        out
                    },
                )
            },
        );
        (out, sums)
    });
    let (mut weight_sum, mut bias_sum) = (vec![0.0; channels], vec![0.0; channels]);
    let (mut scale, mut shift) = (Vec::new(), Vec::new());
    for [part_weight, part_bias, part_scale, part_shift] in parts {
        add(&mut weight_sum, &part_weight);
        add(&mut bias_sum, &part_bias);
        if modulation.is_some() {
            scale.extend(part_scale);
            shift.extend(part_shift);
        }
    }
    debug_assert_eq!(rows * channels, x.len());
    NormGrads { x: grad_x, weight: weight_sum, bias: bias_sum, scale, shift }
}

/// Shape of a convolution that looks at each channel by itself.
#[derive(Clone, Copy)]
pub(super) struct Depthwise<'a> {
    pub(super) time: usize,
    pub(super) channels: usize,
    pub(super) kernel_size: usize,
    pub(super) dilation: usize,
    /// Positions of each batch row that count; what is beyond is taken for 0.
    pub(super) lengths: &'a [usize],
}

impl Depthwise<'_> {
    /// The positions that tap `tap` adds to position `at`, if any of this row.
    #[inline(always)]
    fn source(&self, at: usize, tap: usize, length: usize) -> Option<usize> {
        let source = (at + tap * self.dilation).checked_sub(self.kernel_size / 2 * self.dilation)?;
        (source < length).then_some(source)
    }

    pub(super) fn forward(&self, x: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f32> {
        let channels = self.channels;
        let size = self.time * channels;
        in_blocks(x.len(), size, |n, y| {
            let (x, length) = (&x[n * size..(n + 1) * size], self.lengths[n]);
            vectorised_once(
                #[inline(always)]
                || {
                    y.blocks(
                        channels,
                        #[inline(always)]
                        |at, y| {
                            let y = y.copy_of(bias);
                            for (tap, weight) in weight.chunks_exact(channels).enumerate() {
                                let Some(source) = self.source(at, tap, length) else { continue };
                                let x = &x[source * channels..(source + 1) * channels];
                                for ((y, x), w) in y.iter_mut().zip(x).zip(weight) {
                                    *y = x.mul_add(*w, *y);
                                }
                            }
                            y
                        },
                    )
                },
            )
        })
    }

    /// Gradients of `x`, weight and bias.
    pub(super) fn backward(&self, x: &[f32], weight: &[f32], grad: &[f32]) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
        let channels = self.channels;
        let mut grad_x = vec![0.0; x.len()];
        let size = self.time * channels;
        let work = |(((out, x), grad), &length): (((&mut [f32], &[f32]), &[f32]), &usize)| {
            let mut sum_weight = vec![0.0f32; self.kernel_size * channels];
            let mut sum_bias = vec![0.0f32; channels];
            vectorised(
                #[inline(always)]
                || {
                    for (at, grad) in grad.chunks_exact(channels).enumerate() {
                        add(&mut sum_bias, grad);
                        for tap in 0..self.kernel_size {
                            let Some(source) = self.source(at, tap, length) else { continue };
                            let weight = &weight[tap * channels..(tap + 1) * channels];
                            let sum = &mut sum_weight[tap * channels..(tap + 1) * channels];
                            let x = &x[source * channels..(source + 1) * channels];
                            let out = &mut out[source * channels..(source + 1) * channels];
                            for ((((out, x), g), w), sum) in out.iter_mut().zip(x).zip(grad).zip(weight).zip(sum) {
                                *out = g.mul_add(*w, *out);
                                *sum = g.mul_add(*x, *sum);
                            }
                        }
                    }
                },
            );
            (sum_weight, sum_bias)
        };
        let parts: Vec<(Vec<f32>, Vec<f32>)> =
            (grad_x.par_chunks_mut(size).zip(x.par_chunks(size)).zip(grad.par_chunks(size)).zip(self.lengths))
                .map(work)
                .collect();
        let (mut grad_weight, mut grad_bias) = (vec![0.0; self.kernel_size * channels], vec![0.0; channels]);
        for (weight, bias) in parts {
            add(&mut grad_weight, &weight);
            add(&mut grad_bias, &bias);
        }
        (grad_x, grad_weight, grad_bias)
    }
}

/// `decay * average + (1 - decay) * value`, in place.
pub(super) fn ema(average: &mut [f32], value: &[f32], decay: f32, rest: f32) {
    average.par_chunks_mut(ELEMENTS).zip(value.par_chunks(ELEMENTS)).for_each(|(average, value)| {
        vectorised(
            #[inline(always)]
            || average.iter_mut().zip(value).for_each(|(average, value)| *average = *average * decay + value * rest),
        );
    });
}

/// The sum of squares.
pub(super) fn square_sum(x: &[f32]) -> f32 {
    let parts: Vec<f32> = (x.par_chunks(ELEMENTS))
        .map(|x| {
            let mut sum = 0.0;
            vectorised(
                #[inline(always)]
                || sum = lanes_sum(x, |x| x * x),
            );
            sum
        })
        .collect();
    parts.iter().sum()
}

/// One step of AdamW, in place; `factor` is what the gradient is multiplied by.
pub(super) fn adam(value: &mut [f32], grad: &[f32], mean: &mut [f32], square: &mut [f32], factor: f32, adam: &Adam) {
    let work = |(((value, grad), mean), square): (((&mut [f32], &[f32]), &mut [f32]), &mut [f32])| {
        vectorised(
            #[inline(always)]
            || {
                let (one1, one2) = (1.0 - adam.beta1, 1.0 - adam.beta2);
                for (((value, grad), mean), square) in
                    value.iter_mut().zip(grad).zip(mean.iter_mut()).zip(square.iter_mut())
                {
                    let grad = grad * factor;
                    *mean = mean.mul_add(adam.beta1, grad * one1);
                    *square = square.mul_add(adam.beta2, grad * grad * one2);
                    let root = (*square / adam.bias_correction2).sqrt() + adam.epsilon;
                    *value =
                        value.mul_add(1.0 - adam.weight_decay, -(adam.lr * (*mean / adam.bias_correction1) / root));
                }
            },
        );
    };
    (value.par_chunks_mut(ELEMENTS).zip(grad.par_chunks(ELEMENTS)).zip(mean.par_chunks_mut(ELEMENTS)))
        .zip(square.par_chunks_mut(ELEMENTS))
        .for_each(work);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn loops_are_compiled_for_the_vectors_of_this_machine() {
        use std::is_x86_feature_detected as has;
        let avx2 = has!("avx2") && has!("fma") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("popcnt");
        assert_eq!(vectors().is_some(), avx2, "{:?}", vectors());
    }

    #[test]
    fn exp_is_exp() {
        for n in -8000..8000 {
            let x = n as f32 / 100.0;
            let (found, wanted) = (exp(x), x.exp());
            assert!((found - wanted).abs() <= 1e-6 * wanted, "{x}: {found} {wanted}");
        }
    }
}
