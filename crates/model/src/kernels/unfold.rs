//! The neighbors of each position side by side, so that a convolution over time is a matmul.

use super::unwritten::in_blocks;

/// A convolution over time with same padding, zeros beyond the ends.
#[derive(Clone, Copy, Debug)]
#[allow(unreachable_pub)] // part of a trait that a macro makes public
pub struct Unfold {
    pub(crate) kernel_size: usize,
    /// The first tap that counts, and how many.
    pub(crate) first: usize,
    pub(crate) taps: usize,
    /// Positions between two results.
    pub(crate) stride: usize,
}

/// Positions that one core works on at a time.
const BLOCK: usize = 128;

impl Unfold {
    /// Results of so many positions.
    pub(crate) fn length(&self, time: usize) -> usize {
        time.div_ceil(self.stride)
    }

    /// What a tap of result `at` sees.
    fn source(&self, at: usize, tap: usize, time: usize) -> Option<usize> {
        (at * self.stride + self.first + tap).checked_sub(self.kernel_size / 2).filter(|source| *source < time)
    }

    /// `[batch, time, channels]` to `[batch, length, taps * channels]`.
    pub(super) fn forward(&self, x: &[f32], time: usize, channels: usize) -> Vec<f32> {
        let (length, width) = (self.length(time), self.taps * channels);
        let rows = x.len() / (time * channels).max(1) * length;
        in_blocks(rows * width, BLOCK * width, |block, out| {
            out.blocks(channels, |n, out| {
                let (row, tap) = (block * BLOCK + n / self.taps, n % self.taps);
                let (batch, at) = (row / length, row % length);
                match self.source(at, tap, time) {
                    Some(source) => out.copy_of(&x[(batch * time + source) * channels..][..channels]),
                    None => out.each(|_| 0.0),
                }
            })
        })
    }

    /// The gradient of `x`.
    pub(super) fn backward(&self, grad: &[f32], time: usize, channels: usize) -> Vec<f32> {
        let (length, width) = (self.length(time), self.taps * channels);
        let rows = grad.len() / (length * width).max(1) * time;
        in_blocks(rows * channels, BLOCK * channels, |block, out| {
            out.blocks(channels, |n, out| {
                let (batch, at) = ((block * BLOCK + n) / time, (block * BLOCK + n) % time);
                let out = out.each(|_| 0.0);
                for tap in 0..self.taps {
                    // The result whose tap saw this position.
                    let Some(from) = (at + self.kernel_size / 2).checked_sub(self.first + tap) else { continue };
                    if !from.is_multiple_of(self.stride) || from / self.stride >= length {
                        continue;
                    }
                    let first = (batch * length + from / self.stride) * width + tap * channels;
                    for (out, grad) in out.iter_mut().zip(&grad[first..first + channels]) {
                        *out += grad;
                    }
                }
                out
            })
        })
    }
}
