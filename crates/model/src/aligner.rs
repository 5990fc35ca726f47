//! Which frames belong to which token: the sound that is expected of each token, and a search on the host for the
//! monotonic alignment that fits it best.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use burn::module::Module;
use burn::tensor::{Int, Tensor};
use rayon::prelude::*;

use crate::config::ModelConfig;
use crate::kernels::gelu;
use crate::nn::{Conv1d, Embedding, Init, Linear};

/// Predicts the mean sound of each token from the token, its two neighbours and the voice: nothing more. An encoder
/// that sees the whole text explains every frame by every token, and alignments drift (measured: 70 ms instead of
/// under 20 ms).
#[derive(Module, Debug)]
pub struct MeanPredictor {
    /// A vector for each character.
    pub embedding: Embedding,
    /// Over neighbours.
    pub conv: Conv1d,
    /// The voice, added to every token.
    pub style: Linear,
    /// To a frame.
    pub output: Linear,
}

impl MeanPredictor {
    pub(crate) fn new(init: Init<'_>, config: &ModelConfig) -> MeanPredictor {
        let width = config.text.width;
        MeanPredictor {
            embedding: Embedding::new(init.at("embedding"), config.vocabulary, width),
            conv: Conv1d::new(init.at("conv"), width, width, 3),
            style: Linear::new(init.at("style"), config.speaker.width, width),
            output: Linear::new(init.at("output"), width, config.n_mels),
        }
    }

    /// `[rows, tokens, n_mels]`.
    pub(crate) fn forward(&self, ids: Tensor<2, Int>, mask: Tensor<3>, style: Tensor<2>) -> Tensor<3> {
        let x = crate::kernels::embedding(self.embedding.weight.val(), ids) * mask;
        let style = self.style.forward(style).unsqueeze_dim::<3>(1);
        self.output.forward(gelu(self.conv.forward(x) + style))
    }
}

/// How strongly alignments are drawn to the diagonal at the start of training.
const PRIOR: f32 = 400.0;

/// The best monotonic alignment of each row: how many frames each token gets, at least one.
///
/// `scores` is `[rows, frames, tokens]` (how well a token explains a frame); `prior` from 1 to 0 is how much
/// alignments near the diagonal are preferred. A row with fewer frames than tokens gets its frames one by one, and
/// none for the last tokens.
pub fn align(
    scores: &[f32],
    frames: usize,
    tokens: usize,
    frame_lengths: &[usize],
    token_lengths: &[usize],
    prior: f32,
) -> Vec<Vec<u32>> {
    let started = Instant::now();
    let durations = (scores.par_chunks(frames * tokens).zip(frame_lengths).zip(token_lengths))
        .map(|((scores, &true_frames), &true_tokens)| align_row(scores, tokens, true_frames, true_tokens, prior))
        .collect();
    SEARCH_NS.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
    durations
}

static SEARCH_NS: AtomicU64 = AtomicU64::new(0);

/// Seconds that this process has spent in [`align`] so far.
pub fn alignment_seconds() -> f64 {
    SEARCH_NS.load(Ordering::Relaxed) as f64 / 1e9
}

fn align_row(scores: &[f32], stride: usize, frames: usize, tokens: usize, prior: f32) -> Vec<u32> {
    let mut durations = vec![0u32; tokens];
    if frames <= tokens {
        durations[..frames].fill(1);
        return durations;
    }
    // best[t]: the best sum of a path that ends at token t in this frame. `moved` remembers where it came from.
    let mut best = vec![f32::NEG_INFINITY; tokens + 1];
    let mut next = best.clone();
    let mut moved = vec![false; frames * tokens];
    let slope = tokens as f32 / frames as f32;
    for frame in 0..frames {
        let row = &scores[frame * stride..frame * stride + tokens];
        // A path must start at the first token and end at the last, one step at a time.
        let low = tokens.saturating_sub(frames - frame);
        let high = (frame + 1).min(tokens);
        let moved = &mut moved[frame * tokens..(frame + 1) * tokens];
        let middle = (frame as f32 + 0.5) * slope;
        let weight = prior * PRIOR / (tokens * tokens) as f32;
        // next[t + 1] belongs to token t; next[0] stays impossible.
        next.fill(f32::NEG_INFINITY);
        if frame == 0 {
            next[1] = row[0];
        } else {
            for token in low..high {
                let (stay, step) = (best[token + 1], best[token]);
                let off = token as f32 + 0.5 - middle;
                moved[token] = step > stay;
                next[token + 1] = stay.max(step) + row[token] - weight * off * off;
            }
        }
        std::mem::swap(&mut best, &mut next);
    }
    let mut token = tokens - 1;
    for frame in (0..frames).rev() {
        durations[token] += 1;
        if frame > 0 && moved[frame * tokens + token] {
            token -= 1;
        }
    }
    durations
}

/// For each position of a row, the token it belongs to, `rows * positions`; the rest belongs to the last token.
/// `every` frames make a position.
pub(crate) fn token_of_position(durations: &[Vec<u32>], tokens: usize, positions: usize, every: usize) -> Vec<i32> {
    let mut index = Vec::with_capacity(durations.len() * positions);
    for (row, durations) in durations.iter().enumerate() {
        let first = row * tokens;
        let (mut token, mut end) = (0, durations.first().copied().unwrap_or(0) as usize);
        for position in 0..positions {
            while position * every >= end && token + 1 < durations.len() {
                token += 1;
                end += durations[token] as usize;
            }
            index.push((first + token) as i32);
        }
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every alignment there is.
    fn all(frames: usize, tokens: usize) -> Vec<Vec<u32>> {
        if tokens == 1 {
            return vec![vec![frames as u32]];
        }
        (1..=frames - (tokens - 1))
            .flat_map(|first| {
                all(frames - first, tokens - 1).into_iter().map(move |rest| [vec![first as u32], rest].concat())
            })
            .collect()
    }

    fn value(scores: &[f32], stride: usize, durations: &[u32]) -> f32 {
        let tokens = durations.iter().enumerate().flat_map(|(t, &n)| std::iter::repeat_n(t, n as usize));
        tokens.enumerate().map(|(frame, token)| scores[frame * stride + token]).sum()
    }

    proptest! {
        #[test]
        fn no_alignment_is_better(
            tokens in 1usize..5,
            more in 0usize..5,
            padding in 0usize..3,
            seed in any::<u64>(),
        ) {
            let frames = tokens + more;
            let (stride, height) = (tokens + padding, frames + padding);
            let mut scores = vec![0.0; stride * height];
            tandem_flow::Random::new(seed).fill_normal(&mut scores);
            let found = &align(&scores, height, stride, &[frames], &[tokens], 0.0)[0];
            prop_assert_eq!(found.iter().sum::<u32>() as usize, frames);
            prop_assert!(found.iter().all(|&n| n >= 1));
            let best = all(frames, tokens).iter().map(|path| value(&scores, stride, path)).fold(f32::MIN, f32::max);
            prop_assert!((value(&scores, stride, found) - best).abs() < 1e-4);
        }
    }

    #[test]
    fn the_prior_prefers_the_diagonal() {
        let scores = vec![0.0; 40 * 8];
        let found = &align(&scores, 40, 8, &[40], &[8], 1.0)[0];
        assert!(found.iter().all(|&n| n == 5), "{found:?}");
    }

    #[test]
    fn more_text_than_sound_does_not_panic() {
        assert_eq!(align(&[0.0; 12], 3, 4, &[3], &[4], 0.0), [vec![1, 1, 1, 0]]);
    }

    #[test]
    fn positions_follow_durations() {
        assert_eq!(
            token_of_position(&[vec![2, 1, 3], vec![1, 1, 0]], 3, 7, 1),
            [0, 0, 1, 2, 2, 2, 2, 3, 4, 5, 5, 5, 5, 5]
        );
        assert_eq!(token_of_position(&[vec![3, 3]], 2, 4, 2), [0, 0, 1, 1]);
    }
}
