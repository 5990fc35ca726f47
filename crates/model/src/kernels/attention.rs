//! Attention on the CPU, a row of the batch at a time: its heads lie side by side in memory and are never transposed as a whole.
//!
//! The weights of the keys are computed again for the gradient; they are as large as the square of the text.

use rayon::prelude::*;

use super::cpu::{Matrix, exp, lanes_sum, multiply, vectorised, vectorised_once};
use super::unwritten::in_blocks;

/// Queries `[batch, queries, heads * channels]`, keys and values `[batch, keys, heads * channels]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) heads: usize,
    pub(super) channels: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
}

/// One row of the batch; `bias` is added to the scores of each key.
struct Row<'a> {
    query: &'a [f32],
    key: &'a [f32],
    value: &'a [f32],
    bias: &'a [f32],
}

/// Gradients of queries, keys and values.
pub(super) type Grads = [Vec<f32>; 3];

impl Shape {
    fn width(self) -> usize {
        self.heads * self.channels
    }

    fn row<'a>(self, n: usize, [query, key, value, bias]: [&'a [f32]; 4]) -> Row<'a> {
        let of = |values: &'a [f32], size: usize| &values[n * size..(n + 1) * size];
        let (queries, keys) = (self.queries * self.width(), self.keys * self.width());
        Row { query: of(query, queries), key: of(key, keys), value: of(value, keys), bias: of(bias, self.keys) }
    }

    /// `softmax(q kᵀ / sqrt(channels) + bias) v` of each head. Inputs are queries, keys, values and bias `[batch, keys]`.
    pub(super) fn forward(self, inputs: [&[f32]; 4]) -> Vec<f32> {
        let size = self.queries * self.width();
        in_blocks(inputs[0].len(), size, |n, out| {
            let (row, mut mixed) = (self.row(n, inputs), vec![0.0; size]);
            for head in 0..self.heads {
                let [query, key, value] = self.head(&row, head);
                let weights = self.weights(&query, &key, row.bias);
                self.put(&mut mixed, head, &self.product([self.queries, self.keys], &weights, &value));
            }
            out.copy_of(&mixed)
        })
    }

    pub(super) fn backward(self, inputs: [&[f32]; 4], grad: &[f32]) -> Grads {
        let [query, key, value, _] = inputs;
        let mut grads = [query, key, value].map(|values| vec![0.0; values.len()]);
        let [query, key, value] = &mut grads;
        let (queries, keys) = (self.queries * self.width(), self.keys * self.width());
        let rows = query.par_chunks_mut(queries).zip(key.par_chunks_mut(keys)).zip(value.par_chunks_mut(keys));
        rows.zip(grad.par_chunks(queries)).enumerate().for_each(|(n, (((query, key), value), grad))| {
            let row = self.row(n, inputs);
            for head in 0..self.heads {
                let [grad_query, grad_key, grad_value] = self.head_backward(&row, grad, head);
                self.put(query, head, &grad_query);
                self.put(key, head, &grad_key);
                self.put(value, head, &grad_value);
            }
        });
        grads
    }

    fn head_backward(self, row: &Row<'_>, grad: &[f32], head: usize) -> Grads {
        let Shape { channels, queries, keys, .. } = self;
        let [query, key, value] = self.head(row, head);
        let grad = self.take(grad, head);
        let weights = self.weights(&query, &key, row.bias);
        let transposed = |values| Matrix::new(values, keys).transposed();
        let grad_value = multiply([keys, queries, channels], transposed(&weights), Matrix::new(&grad, channels));
        let mut grad_scores = multiply(
            [queries, channels, keys],
            Matrix::new(&grad, channels),
            Matrix::new(&value, channels).transposed(),
        );
        let scale = 1.0 / (channels as f32).sqrt();
        vectorised(
            #[inline(always)]
            || {
                for (grads, weights) in grad_scores.chunks_exact_mut(keys).zip(weights.chunks_exact(keys)) {
                    for (grad, weight) in grads.iter_mut().zip(weights) {
                        *grad *= weight;
                    }
                    let sum = lanes_sum(grads, |grad| grad);
                    for (grad, weight) in grads.iter_mut().zip(weights) {
                        *grad = scale * weight.mul_add(-sum, *grad);
                    }
                }
            },
        );
        let grad_query = self.product([queries, keys], &grad_scores, &key);
        let grad_key = multiply([keys, queries, channels], transposed(&grad_scores), Matrix::new(&query, channels));
        [grad_query, grad_key, grad_value]
    }

    /// `[m, k]` times `[k, channels]`.
    fn product(self, [m, k]: [usize; 2], a: &[f32], b: &[f32]) -> Vec<f32> {
        multiply([m, k, self.channels], Matrix::new(a, k), Matrix::new(b, self.channels))
    }

    /// How much each query takes of each key.
    fn weights(self, query: &[f32], key: &[f32], bias: &[f32]) -> Vec<f32> {
        let Shape { channels, queries, keys, .. } = self;
        let key = Matrix::new(key, channels).transposed();
        let mut weights = multiply([queries, channels, keys], Matrix::new(query, channels), key);
        let scale = 1.0 / (channels as f32).sqrt();
        vectorised(
            #[inline(always)]
            || {
                for scores in weights.chunks_exact_mut(keys) {
                    let mut most = f32::NEG_INFINITY;
                    for (score, bias) in scores.iter_mut().zip(bias) {
                        *score = score.mul_add(scale, *bias);
                        most = if *score > most { *score } else { most };
                    }
                    // What is far below the largest is nothing, not a denormal number.
                    scores
                        .iter_mut()
                        .for_each(|score| *score = if *score - most < -80.0 { 0.0 } else { exp(*score - most) });
                    let sum = 1.0 / lanes_sum(scores, |score| score);
                    scores.iter_mut().for_each(|score| *score *= sum);
                }
            },
        );
        weights
    }

    fn head(self, row: &Row<'_>, head: usize) -> [Vec<f32>; 3] {
        [row.query, row.key, row.value].map(|values| self.take(values, head))
    }

    /// The channels of one head, `[time, channels]`.
    fn take(self, values: &[f32], head: usize) -> Vec<f32> {
        let own = head * self.channels..(head + 1) * self.channels;
        values.chunks_exact(self.width()).flat_map(|values| &values[own.clone()]).copied().collect()
    }

    /// Puts the channels of one head where they belong.
    fn put(self, values: &mut [f32], head: usize, of_head: &[f32]) {
        let own = head * self.channels..(head + 1) * self.channels;
        for (values, of_head) in values.chunks_exact_mut(self.width()).zip(of_head.chunks_exact(self.channels)) {
            values[own.clone()].copy_from_slice(of_head);
        }
    }
}

/// Tables of a rotary position embedding, `[time, channels]` of a head.
#[derive(Clone, Copy)]
pub(super) struct Rotation<'a> {
    pub(super) cos: &'a [f32],
    pub(super) sin: &'a [f32],
    pub(super) channels: usize,
}

impl Rotation<'_> {
    /// `x cos + swap(x) sin`, where `swap` exchanges the halves of each head. `x` is `[batch, time, heads * channels]`.
    pub(super) fn forward(self, x: &[f32], heads: usize) -> Vec<f32> {
        self.turned(x, heads, false)
    }

    /// The gradient: `grad cos + swap(grad sin)`.
    pub(super) fn backward(self, grad: &[f32], heads: usize) -> Vec<f32> {
        self.turned(grad, heads, true)
    }

    fn turned(self, x: &[f32], heads: usize, backward: bool) -> Vec<f32> {
        let (half, size) = (self.channels / 2, self.cos.len() * heads);
        in_blocks(x.len(), size, |n, out| {
            let x = &x[n * size..(n + 1) * size];
            vectorised_once(
                #[inline(always)]
                || {
                    out.blocks(
                        half,
                        #[inline(always)]
                        |at, out| {
                            // Halves of heads, one after the other: the other half of the same head is its neighbor.
                            let (own, other) = (&x[at * half..][..half], &x[(at ^ 1) * half..][..half]);
                            let (first, which) = (at / (2 * heads) * self.channels, at % 2);
                            let of_sin = if backward { 1 - which } else { which };
                            let cos = &self.cos[first + which * half..][..half];
                            let sin = &self.sin[first + of_sin * half..][..half];
                            out.each(
                                #[inline(always)]
                                |c| own[c].mul_add(cos[c], other[c] * sin[c]),
                            )
                        },
                    )
                },
            )
        })
    }
}
