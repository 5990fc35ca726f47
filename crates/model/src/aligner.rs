//! Alignment of mel frames to tokens: the mean mel that each token predicts, and monotonic alignment search (MAS) on the
//! host.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, Ordering as Memory};
use std::time::Instant;

use burn::module::Module;
use burn::tensor::{Int, Tensor};
use rayon::prelude::*;

use crate::config::ModelConfig;
use crate::decoder::PLACE_FEATURES;
use crate::inputs::{indices, to_device};
use crate::kernels::gelu;
use crate::nn::{Conv1d, Embedding, Init, Linear};

/// Predicts the mean mel of each token from the token, its two neighbors and the speaker: nothing more. An encoder that
/// sees the whole text explains every frame by every token, and alignments drift (measured: boundaries 70 ms off instead
/// of under 20 ms).
#[derive(Module, Debug)]
pub struct MeanPredictor {
    /// A vector for each token.
    pub embedding: Embedding,
    /// Conv over three tokens.
    pub conv: Conv1d,
    /// Projection of the speaker embedding, added to every token.
    pub speaker: Linear,
    /// To a mel frame.
    pub output: Linear,
}

impl MeanPredictor {
    pub(crate) fn new(init: Init<'_>, config: &ModelConfig) -> MeanPredictor {
        let width = config.text.width;
        MeanPredictor {
            embedding: Embedding::new(init.at("embedding"), config.vocabulary, width),
            conv: Conv1d::new(init.at("conv"), width, width, 3),
            speaker: Linear::new(init.at("speaker"), config.speaker.width, width),
            output: Linear::new(init.at("output"), width, config.n_mels),
        }
    }

    /// `[rows, tokens, n_mels]`.
    pub(crate) fn forward(&self, ids: Tensor<2, Int>, mask: Tensor<3>, speaker: Tensor<2>) -> Tensor<3> {
        let x = crate::kernels::embedding(self.embedding.weight.val(), ids) * mask;
        let speaker = self.speaker.forward(speaker).unsqueeze_dim::<3>(1);
        self.output.forward(gelu(self.conv.forward(x) + speaker))
    }
}

impl MeanPredictor {
    /// How far each frame of `mel` `[rows, frames, n_mels]` is from the nearest symbol of all, each said alone: the squared
    /// distance, `[rows, frames, 1]`.
    pub(crate) fn nearest_symbol(&self, mel: Tensor<3>, speaker: Tensor<2>) -> Tensor<3> {
        let [rows, _, n_mels] = mel.dims();
        let symbols = self.embedding.weight.dims()[0] - 1;
        // A text of all symbols with nothing between them that the conv could see.
        let ids = (1..=symbols as i32).flat_map(|id| [id, 0]).collect();
        let mask = (0..symbols).flat_map(|_| [1.0, 0.0]).collect();
        let ids: Tensor<2, Int> = indices(ids, &mel.device()).reshape([1, 2 * symbols]).repeat_dim(0, rows);
        let mask = to_device(mask, [1, 2 * symbols, 1], &mel.device()).repeat_dim(0, rows);
        let mean = self.forward(ids, mask, speaker).reshape([rows, symbols, 2 * n_mels]).narrow(2, 0, n_mels);
        let own = mean.clone().square().sum_dim(2).swap_dims(1, 2);
        let nearest = (own - mel.clone().matmul(mean.swap_dims(1, 2)).mul_scalar(2.0)).min_dim(2);
        (nearest + mel.square().sum_dim(2)).clamp_min(0.0)
    }
}

/// Weight of the diagonal prior at the start of training. Measured on the demo's corpus, which begins and ends with silence,
/// after 500 steps (seed 1): boundaries 40 ms off with 100, 31 ms with 400, 15.8 ms with 3000; the mean mel's error falls
/// from 26 % of the baseline to 18.7 %.
const PRIOR: f32 = 3000.0;

/// The best monotonic alignment of each row: how many frames each token gets, at least [`MIN_FRAMES`] if there are enough,
/// else at least one.
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
    SEARCH_NS.fetch_add(started.elapsed().as_nanos() as u64, Memory::Relaxed);
    durations
}

static SEARCH_NS: AtomicU64 = AtomicU64::new(0);

/// Seconds that this process has spent in [`align`] so far.
pub fn alignment_seconds() -> f64 {
    SEARCH_NS.load(Memory::Relaxed) as f64 / 1e9
}

/// Frames that a token gets at least, where there are enough of them. A phoneme of one frame (12 ms) is not heard, and the
/// decoder, which sees the text once per group of two frames, may miss it altogether.
pub const MIN_FRAMES: usize = 2;

fn align_row(scores: &[f32], stride: usize, frames: usize, tokens: usize, prior: f32) -> Vec<u32> {
    let mut durations = vec![0u32; tokens];
    if frames <= tokens {
        durations[..frames].fill(1);
        return durations;
    }
    let shortest = if frames >= MIN_FRAMES * tokens { MIN_FRAMES } else { 1 };
    let slope = tokens as f32 / frames as f32;
    let weight = prior * PRIOR / (tokens * tokens) as f32;
    let score = |frame: usize, token: usize| {
        let off = token as f32 + 0.5 - (frame as f32 + 0.5) * slope;
        scores[frame * stride + token] - weight * off * off
    };
    // Row f % (shortest + 1), column t + 1: the best sum of a path whose token t has at least `shortest` frames and ends
    // with frame f. `began` remembers whether it began `shortest` frames ago.
    let rows = shortest + 1;
    let mut best = vec![f32::NEG_INFINITY; rows * (tokens + 1)];
    let mut began = vec![false; frames * tokens];
    for frame in 0..frames {
        let at = (frame % rows) * (tokens + 1);
        best[at..at + tokens + 1].fill(f32::NEG_INFINITY);
        // Every token before needs its frames, and so does every token after.
        let low = tokens.saturating_sub(1 + (frames - 1 - frame) / shortest);
        let high = ((frame + 1) / shortest).min(tokens);
        for token in low..high {
            let stay =
                if frame == 0 { f32::NEG_INFINITY } else { best[((frame - 1) % rows) * (tokens + 1) + token + 1] };
            let before = match (frame + 1 == shortest, frame.checked_sub(shortest)) {
                (true, _) if token == 0 => 0.0,
                (false, Some(before)) => best[(before % rows) * (tokens + 1) + token],
                _ => f32::NEG_INFINITY,
            };
            let begin = before + (1..shortest).map(|back| score(frame - back, token)).sum::<f32>();
            // Scores that are not numbers must not lead beyond the first frame: what cannot be compared begins.
            began[frame * tokens + token] = begin.partial_cmp(&stay).is_none_or(Ordering::is_gt);
            best[at + token + 1] = begin.max(stay) + score(frame, token);
        }
    }
    let (mut token, mut frame) = (tokens - 1, frames - 1);
    loop {
        if began[frame * tokens + token] {
            durations[token] += shortest as u32;
            if token == 0 {
                break;
            }
            token -= 1;
            frame -= shortest;
        } else {
            durations[token] += 1;
            frame -= 1;
        }
    }
    durations
}

/// For each frame of a row, the token it belongs to, `rows * frames`; frames beyond the end belong to the last token.
pub(crate) fn token_of_frame(durations: &[Vec<u32>], tokens: usize, frames: usize) -> Vec<i32> {
    let mut index = Vec::with_capacity(durations.len() * frames);
    for (row, durations) in durations.iter().enumerate() {
        let first = row * tokens;
        let (mut token, mut end) = (0, durations.first().copied().unwrap_or(0) as usize);
        for frame in 0..frames {
            while frame >= end && token + 1 < durations.len() {
                token += 1;
                end += durations[token] as usize;
            }
            index.push((first + token) as i32);
        }
    }
    index
}

/// Where in its token each position of `group` frames lies: the fraction of the token that has passed, how near its
/// middle that is, and how long the token is. Text features are constant within a token; this distinguishes onset from
/// release. `rows * positions * PLACE_FEATURES`.
pub(crate) fn place_in_token(durations: &[Vec<u32>], positions: usize, group: usize) -> Vec<f32> {
    let mut places = Vec::with_capacity(durations.len() * positions * PLACE_FEATURES);
    for durations in durations {
        let (mut token, mut start) = (0, 0u32);
        let length = |token: usize| durations.get(token).copied().unwrap_or(0);
        for position in 0..positions {
            let frame = (position * group) as u32;
            while frame >= start + length(token) && token + 1 < durations.len() {
                start += length(token);
                token += 1;
            }
            let frames = length(token).max(1) as f32;
            let passed = (((frame - start) as f32 + 0.5 * group as f32) / frames).min(1.0);
            places.extend([2.0 * passed - 1.0, 4.0 * passed * (1.0 - passed), frames.ln() - 1.6, 1.0 / frames]);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every alignment there is in which each token has at least `shortest` frames.
    fn all(frames: usize, tokens: usize, shortest: usize) -> Vec<Vec<u32>> {
        if tokens == 1 {
            return vec![vec![frames as u32]];
        }
        (shortest..=frames - shortest * (tokens - 1))
            .flat_map(|first| {
                let rest = all(frames - first, tokens - 1, shortest).into_iter();
                rest.map(move |rest| [vec![first as u32], rest].concat())
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
            more in 0usize..8,
            padding in 0usize..3,
            seed in any::<u64>(),
        ) {
            let frames = tokens + more;
            let (stride, height) = (tokens + padding, frames + padding);
            let mut scores = vec![0.0; stride * height];
            tandem_flow::Random::new(seed).fill_normal(&mut scores);
            let found = &align(&scores, height, stride, &[frames], &[tokens], 0.0)[0];
            prop_assert_eq!(found.iter().sum::<u32>() as usize, frames);
            let shortest = if frames >= MIN_FRAMES * tokens { MIN_FRAMES } else { 1 };
            prop_assert!(found.iter().all(|&n| n as usize >= shortest));
            let best = all(frames, tokens, shortest).iter().map(|path| value(&scores, stride, path)).fold(f32::MIN, f32::max);
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
    fn scores_that_are_not_numbers_do_not_panic() {
        for bad in 0..40 * 8 {
            let mut scores = vec![0.0; 40 * 8];
            scores[bad..].fill(f32::NAN);
            let found = &align(&scores, 40, 8, &[40], &[8], 0.0)[0];
            assert!(found.iter().sum::<u32>() <= 40, "{found:?}");
        }
    }

    #[test]
    fn more_text_than_sound_does_not_panic() {
        assert_eq!(align(&[0.0; 12], 3, 4, &[3], &[4], 0.0), [vec![1, 1, 1, 0]]);
    }

    #[test]
    fn frames_follow_durations() {
        assert_eq!(token_of_frame(&[vec![2, 1, 3], vec![1, 1, 0]], 3, 7), [0, 0, 1, 2, 2, 2, 2, 3, 4, 5, 5, 5, 5, 5]);
        let places = place_in_token(&[vec![4, 2]], 4, 2);
        let passed: Vec<f32> = places.chunks(PLACE_FEATURES).map(|place| (place[0] + 1.0) / 2.0).collect();
        assert_eq!(passed, [0.25, 0.75, 0.5, 1.0], "two positions of four frames, one of two, padding at the end");
    }
}
