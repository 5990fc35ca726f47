//! Alignment of mel frames to tokens: the mean mel that each token predicts, and monotonic alignment search (MAS) on the
//! host.

use std::sync::atomic::{AtomicU64, Ordering as Memory};
use std::time::Instant;

use burn::module::Module;
use burn::tensor::{Int, Tensor};
use rayon::prelude::*;

use crate::config::ModelConfig;
use crate::decoder::PLACE_FEATURES;
use crate::inputs::{indices, to_device};
use crate::kernels::{gelu, tapped};
use crate::nn::{Conv1d, Embedding, Init, Linear};

/// States of a token, in order, each with a mean mel of its own and at least one frame: how it begins and how it ends, as in the hidden
/// Markov models of speech recognition. A stop is a closure and a burst, a diphthong two vowels, and neighbors change the two ends of a
/// vowel in different ways. With one mean for a whole token, its frames were often explained better by its neighbor: 19 % of the phonemes
/// of a real speaker were left with the fewest frames there may be. Words that were not understood: 17.7 % with one state, 10.7 % with two,
/// 8.9 % with three (1,000 steps, 121 sentences, one seed); boundaries of the demo's sounds are 15.9, 14.9 and 22.8 ms off (700 steps):
/// with three, what lies between two sounds may belong to either of them (`benches/results/quality.md`).
pub const STATES: usize = 2;

/// Predicts the mean mel of each state of each token from the token, the neighbor on its side and the speaker: nothing more. An encoder that
/// sees the whole text explains every frame by every token, and alignments drift (measured: boundaries 70 ms off instead
/// of under 20 ms). And if both states saw both neighbors, the states of a token could as well be the end of it and the beginning of the next one: all
/// boundaries half a token late, and nothing in the loss against it (measured: Persian, one of two seeds 52 ms off, the other one 14 ms).
#[derive(Module, Debug)]
pub struct MeanPredictor {
    /// A vector for each token.
    pub embedding: Embedding,
    /// Conv over three tokens: the first state sees the one before, the last state the one after.
    pub conv: Conv1d,
    /// Projection of the speaker embedding, added to every token.
    pub speaker: Linear,
    /// To a mel frame for each state.
    pub output: Linear,
}

impl MeanPredictor {
    pub(crate) fn new(init: Init<'_>, config: &ModelConfig) -> MeanPredictor {
        let width = config.text.width;
        MeanPredictor {
            embedding: Embedding::new(init.at("embedding"), config.vocabulary, width),
            conv: Conv1d::new(init.at("conv"), width, width, 3),
            speaker: Linear::new(init.at("speaker"), config.speaker.width, width),
            output: Linear::new(init.at("output"), width, STATES * config.n_mels),
        }
    }

    /// `[rows, tokens * STATES, n_mels]`.
    pub(crate) fn forward(&self, ids: Tensor<2, Int>, mask: Tensor<3>, speaker: Tensor<2>) -> Tensor<3> {
        let [rows, tokens] = ids.dims();
        let x = crate::kernels::embedding(self.embedding.weight.val(), ids) * mask;
        let speaker = self.speaker.forward(speaker).unsqueeze_dim::<3>(1);
        let n_mels = self.output.weight.dims()[0] / STATES;
        let state = |state: usize| {
            let hidden = gelu(self.conv.forward_taps(x.clone(), state..state + 2) + speaker.clone());
            let rows = state * n_mels..(state + 1) * n_mels;
            let (weight, bias) = (tapped(&self.output.weight, &hidden), tapped(&self.output.bias, &hidden));
            let (weight, bias) = (weight.slice([rows.clone()]), bias.slice([rows]));
            crate::kernels::linear(hidden, weight, bias)
        };
        Tensor::cat((0..STATES).map(state).collect(), 2).reshape([rows, tokens * STATES, n_mels])
    }
}

impl MeanPredictor {
    /// How far each frame of `mel` `[rows, frames, n_mels]` is from the nearest state of any symbol, each said alone: the squared
    /// distance, `[rows, frames, 1]`.
    pub(crate) fn nearest_symbol(&self, mel: Tensor<3>, speaker: Tensor<2>) -> Tensor<3> {
        let [rows, _, n_mels] = mel.dims();
        let symbols = self.embedding.weight.dims()[0] - 1;
        // A text of all symbols with nothing between them that the conv could see.
        let ids = (1..=symbols as i32).flat_map(|id| [id, 0]).collect();
        let mask = (0..symbols).flat_map(|_| [1.0, 0.0]).collect();
        let ids: Tensor<2, Int> = indices(ids, &mel.device()).reshape([1, 2 * symbols]).repeat_dim(0, rows);
        let mask = to_device(mask, [1, 2 * symbols, 1], &mel.device()).repeat_dim(0, rows);
        let mean = self.forward(ids, mask, speaker).reshape([rows, symbols, 2 * STATES * n_mels]);
        let mean = mean.narrow(2, 0, STATES * n_mels).reshape([rows, symbols * STATES, n_mels]);
        let own = mean.clone().square().sum_dim(2).swap_dims(1, 2);
        let nearest = (own - mel.clone().matmul(mean.swap_dims(1, 2)).mul_scalar(2.0)).min_dim(2);
        (nearest + mel.square().sum_dim(2)).clamp_min(0.0)
    }
}

/// Weight of the diagonal prior at the start of training. Measured on the demo's corpus, which begins and ends with silence,
/// after 500 steps (seed 1): boundaries 40 ms off with 100, 31 ms with 400, 15.8 ms with 3000; the mean mel's error falls
/// from 26 % of the baseline to 18.7 %.
const PRIOR: f32 = 3000.0;

/// The best monotonic alignment of each row: how many frames each state of each token gets, `tokens * STATES` of them, at least one
/// each if there are enough frames.
///
/// `scores` is `[rows, frames, tokens * STATES]` (how well a state explains a frame); `prior` from 1 to 0 is how much
/// alignments near the diagonal are preferred. In a row that is too short for all states tokens have fewer of them; one with fewer
/// frames than tokens gets its frames one by one, and none for the last tokens.
pub fn align(
    scores: &[f32],
    frames: usize,
    tokens: usize,
    frame_lengths: &[usize],
    token_lengths: &[usize],
    prior: f32,
) -> Vec<Vec<u32>> {
    let started = Instant::now();
    let durations = (scores.par_chunks(frames * tokens * STATES).zip(frame_lengths).zip(token_lengths))
        .map(|((scores, &true_frames), &true_tokens)| {
            align_row(scores, tokens * STATES, true_frames, true_tokens, prior)
        })
        .collect();
    SEARCH_NS.fetch_add(started.elapsed().as_nanos() as u64, Memory::Relaxed);
    durations
}

static SEARCH_NS: AtomicU64 = AtomicU64::new(0);

/// Seconds that this process has spent in [`align`] so far.
pub fn alignment_seconds() -> f64 {
    SEARCH_NS.load(Memory::Relaxed) as f64 / 1e9
}

/// Frames of each token, of frames of each state.
pub(crate) fn token_durations(of_states: &[Vec<u32>]) -> Vec<Vec<u32>> {
    of_states.iter().map(|row| row.chunks(STATES).map(|states| states.iter().sum()).collect()).collect()
}

/// Frames of each state when only those of each token are known: equally many, the first ones more if that cannot be.
pub(crate) fn state_durations(of_tokens: &[u32]) -> Vec<u32> {
    let states = STATES as u32;
    of_tokens.iter().flat_map(|&frames| (0..states).map(move |state| (frames + states - 1 - state) / states)).collect()
}

/// Frames that a token gets at least, where there are enough of them. A phoneme of one frame (12 ms) is not heard, and the
/// decoder, which sees the text once per group of two frames, may miss it altogether.
pub const MIN_FRAMES: usize = STATES;

/// What it costs a path to leave a state after a single frame, in the unit of scores (half of a squared distance, over all bands): sounds
/// last longer than that as a rule, and neighbors that explain their frames a little better must not take them. Words that were not understood
/// (a real speaker, 1,000 steps, 121 sentences, seed 1): 9.6 % with 0, 7.5 % with 10. Boundaries of generated speech with known times, 400 steps: English
/// 14.1 ms off with 0, 14.9 with 10, 15.2 with 30; Persian 12.4, 13.3, 13.4; but the mean mel is nearer (`benches/results/quality.md`).
const SHORT_STATE: f32 = 10.0;

fn align_row(scores: &[f32], stride: usize, frames: usize, tokens: usize, prior: f32) -> Vec<u32> {
    let mut durations = vec![0u32; tokens * STATES];
    if frames <= tokens {
        durations.iter_mut().step_by(STATES).take(frames).for_each(|frames| *frames = 1);
        return durations;
    }
    // The states that there are frames for: the first ones of each token.
    let each = (frames / tokens).min(STATES);
    let columns: Vec<usize> = (0..tokens * STATES).filter(|column| column % STATES < each).collect();
    let slope = columns.len() as f32 / frames as f32;
    let weight = prior * PRIOR / (columns.len() * columns.len()) as f32;
    let score = |frame: usize, state: usize| {
        let off = state as f32 + 0.5 - (frame as f32 + 0.5) * slope;
        scores[frame * stride + columns[state]] - weight * off * off
    };
    // Best sums of paths that are in each state now: in its first frame, or in a later one. Which of the two a path was in before is
    // remembered for both.
    let states = columns.len();
    let (mut first, mut later) = (vec![f32::NEG_INFINITY; states], vec![f32::NEG_INFINITY; states]);
    let mut was_later = vec![[false; 2]; frames * states];
    for frame in 0..frames {
        // Every state before needs a frame, and so does every state after. From the last: each needs the one before as it was.
        let low = states.saturating_sub(frames - frame);
        let high = (frame + 1).min(states);
        for state in (low..high).rev() {
            let (stay, stay_later) = better(first[state], later[state]);
            let (begin, begin_later) = match (state, frame) {
                (0, 0) => (0.0, false),
                (0, _) | (_, 0) => (f32::NEG_INFINITY, false),
                _ => better(first[state - 1] - SHORT_STATE, later[state - 1]),
            };
            was_later[frame * states + state] = [begin_later, stay_later];
            let score = score(frame, state);
            (first[state], later[state]) = (begin + score, stay + score);
        }
        first[..low].fill(f32::NEG_INFINITY);
        later[..low].fill(f32::NEG_INFINITY);
    }
    let mut state = states - 1;
    let mut is_later = better(first[state] - SHORT_STATE, later[state]).1;
    for frame in (0..frames).rev() {
        durations[columns[state]] += 1;
        let [begin_later, stay_later] = was_later[frame * states + state];
        if is_later {
            is_later = stay_later;
        } else if state == 0 {
            break;
        } else {
            (state, is_later) = (state - 1, begin_later);
        }
    }
    durations
}

/// The better of two sums, and whether it is the second. Scores that are not numbers must not lead beyond the first frame: what cannot be
/// compared is in its first frame.
fn better(first: f32, later: f32) -> (f32, bool) {
    if later > first { (later, true) } else { (first, false) }
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

    /// Every alignment there is in which each state has a frame.
    fn all(frames: usize, states: usize) -> Vec<Vec<u32>> {
        if states == 1 {
            return vec![vec![frames as u32]];
        }
        (1..=frames - (states - 1))
            .flat_map(|first| {
                let rest = all(frames - first, states - 1).into_iter();
                rest.map(move |rest| [vec![first as u32], rest].concat())
            })
            .collect()
    }

    fn value(scores: &[f32], stride: usize, durations: &[u32]) -> f32 {
        let states = durations.iter().enumerate().flat_map(|(state, &n)| std::iter::repeat_n(state, n as usize));
        let explained: f32 = states.enumerate().map(|(frame, state)| scores[frame * stride + state]).sum();
        explained - SHORT_STATE * durations.iter().filter(|&&frames| frames == 1).count() as f32
    }

    /// Otherwise the states of a token may be its end and the beginning of the next one, or the end of the one before and its beginning.
    #[test]
    fn a_state_sees_the_neighbor_on_its_side_alone() {
        use crate::Device;
        let (device, width, n_mels) = (Device::flex(), 8, 3);
        let init = Init::new(&device, 7);
        let predictor = MeanPredictor {
            embedding: Embedding::new(init.at("embedding"), 9, width),
            conv: Conv1d::new(init.at("conv"), width, width, 3),
            speaker: Linear::new(init.at("speaker"), 4, width),
            output: Linear::new(init.at("output"), width, STATES * n_mels),
        };
        let means = |ids: [i32; 5]| -> Vec<Vec<f32>> {
            let ids: Tensor<2, Int> = indices(ids.to_vec(), &device).reshape([1, 5]);
            let mean = predictor.forward(ids, Tensor::ones([1, 5, 1], &device), Tensor::ones([1, 4], &device));
            let values = mean.into_data().try_into_vec::<f32>().expect("single precision");
            values.chunks(n_mels).map(<[f32]>::to_vec).collect()
        };
        let before = means([1, 2, 3, 4, 5]);
        let after = means([1, 2, 8, 4, 5]);
        let changed: Vec<usize> = (0..5 * STATES).filter(|&state| before[state] != after[state]).collect();
        // The end of the token before, the token itself, the beginning of the one after.
        assert_eq!(changed, [3, 4, 5, 6]);
    }

    proptest! {
        #[test]
        fn no_alignment_is_better(
            tokens in 1usize..4,
            more in 0usize..8,
            padding in 0usize..3,
            seed in any::<u64>(),
        ) {
            let frames = tokens * STATES + more;
            let (stride, height) = ((tokens + padding) * STATES, frames + padding);
            let mut scores = vec![0.0; stride * height];
            tandem_flow::Random::new(seed).fill_normal(&mut scores);
            // Large enough that both matter: how well frames are explained, and short states.
            scores.iter_mut().for_each(|score| *score *= SHORT_STATE);
            let found = &align(&scores, height, tokens + padding, &[frames], &[tokens], 0.0)[0];
            prop_assert_eq!(found.iter().sum::<u32>() as usize, frames);
            prop_assert!(found.iter().all(|&n| n >= 1));
            let values = all(frames, tokens * STATES).into_iter().map(|path| value(&scores, stride, &path));
            let best = values.max_by(f32::total_cmp).expect("a path");
            prop_assert!((value(&scores, stride, found) - best).abs() < 1e-4 * best.abs().max(1.0));
        }

        #[test]
        fn every_frame_has_a_state_and_every_token_a_frame_if_there_are_enough(
            tokens in 1usize..6,
            frames in 1usize..20,
            seed in any::<u64>(),
        ) {
            let mut scores = vec![0.0; tokens * STATES * frames];
            tandem_flow::Random::new(seed).fill_normal(&mut scores);
            let found = &token_durations(&align(&scores, frames, tokens, &[frames], &[tokens], 0.0))[0];
            prop_assert_eq!(found.iter().sum::<u32>() as usize, frames);
            prop_assert_eq!(found.iter().filter(|&&n| n > 0).count(), tokens.min(frames));
            prop_assert_eq!(token_durations(&[state_durations(found)]), vec![found.clone()]);
        }
    }

    #[test]
    fn the_prior_prefers_the_diagonal() {
        let scores = vec![0.0; 48 * 8 * STATES];
        let found = &token_durations(&align(&scores, 48, 8, &[48], &[8], 1.0))[0];
        assert!(found.iter().all(|&n| n == 6), "{found:?}");
    }

    #[test]
    fn scores_that_are_not_numbers_do_not_panic() {
        for bad in 0..40 * 8 * STATES {
            let mut scores = vec![0.0; 40 * 8 * STATES];
            scores[bad..].fill(f32::NAN);
            let found = &align(&scores, 40, 8, &[40], &[8], 0.0)[0];
            assert!(found.iter().sum::<u32>() <= 40, "{found:?}");
        }
    }

    #[test]
    fn more_text_than_sound_does_not_panic() {
        let found = align(&[0.0; 3 * 4 * STATES], 3, 4, &[3], &[4], 0.0);
        assert_eq!(token_durations(&found), [vec![1, 1, 1, 0]]);
    }

    #[test]
    fn frames_follow_durations() {
        assert_eq!(token_of_frame(&[vec![2, 1, 3], vec![1, 1, 0]], 3, 7), [0, 0, 1, 2, 2, 2, 2, 3, 4, 5, 5, 5, 5, 5]);
        let places = place_in_token(&[vec![4, 2]], 4, 2);
        let passed: Vec<f32> = places.chunks(PLACE_FEATURES).map(|place| (place[0] + 1.0) / 2.0).collect();
        assert_eq!(passed, [0.25, 0.75, 0.5, 1.0], "two positions of four frames, one of two, padding at the end");
    }
}
