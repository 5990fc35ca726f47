//! The whole model: what is trained, and what speaks.

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::aligner::{MeanPredictor, align, token_of_position};
use crate::config::ModelConfig;
use crate::decoder::Decoder;
use crate::duration::DurationPredictor;
use crate::inputs::{Inputs, ReferenceInputs, TextInputs};
use crate::nn::{Init, Linear};
use crate::speaker::{Speaker, VoiceVectors};
use crate::text_encoder::TextEncoder;

/// The path of the flow is this wide at its end.
const SIGMA: f64 = 1e-4;

/// In deviations of a band from its mean. Measured on the demo's corpus after 500 steps: boundaries are 16.9 ms off with
/// -0.5, 18.9 ms with -0.9, over 21 ms without it.
const AUDIBLE: f64 = -0.5;

/// A voice.
#[derive(Module, Debug)]
pub struct Voice {
    /// Text to features.
    pub text: TextEncoder,
    /// The mean sound of each token, which alignments are found with.
    pub aligner: MeanPredictor,
    /// Features to what the decoder gets.
    pub bridge: Linear,
    /// Who speaks.
    pub speaker: Speaker,
    /// How long.
    pub duration: DurationPredictor,
    /// Noise to sound.
    pub decoder: Decoder,
    group: usize,
}

/// How a loss is made comparable: what its sums are divided by. Those of a whole batch, however it is split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Totals {
    /// True frames.
    pub frames: usize,
    /// True tokens.
    pub tokens: usize,
    /// Clips.
    pub clips: usize,
}

impl Totals {
    /// Of these lengths.
    pub fn new(frames: &[usize], tokens: &[usize]) -> Totals {
        let clips = tokens.iter().filter(|&&length| length > 0).count();
        Totals {
            frames: frames.iter().sum::<usize>().max(1),
            tokens: tokens.iter().sum::<usize>().max(1),
            clips: clips.max(1),
        }
    }
}

/// The terms of the loss, each one value on the device.
#[derive(Clone, Debug)]
pub struct Losses {
    /// How far the mean spectrogram is from the sound.
    pub prior: Tensor<1>,
    /// How far the durations are from those found, as logarithms.
    pub duration: Tensor<1>,
    /// How far the velocities are from those wanted.
    pub flow: Tensor<1>,
}

impl Losses {
    /// What is minimised.
    pub fn total(&self) -> Tensor<1> {
        self.prior.clone() + self.duration.clone() + self.flow.clone()
    }

    /// The names of the terms, in the order of [`Losses::values`].
    pub const NAMES: [&'static str; 3] = ["prior", "duration", "flow"];

    /// The terms side by side, without their history.
    pub fn values(&self) -> Tensor<1> {
        Tensor::cat(vec![self.prior.clone().detach(), self.duration.clone().detach(), self.flow.clone().detach()], 0)
    }
}

/// The features of a text in a voice.
struct Encoded {
    features: Tensor<3>,
    mean: Tensor<3>,
    voice: VoiceVectors,
}

/// What was said with which timing.
#[derive(Clone, Debug)]
pub struct Spoken {
    /// Normalised log-mel, `rows * frames * n_mels`.
    pub mel: Vec<f32>,
    /// Frames of each row, padding included.
    pub frames: usize,
    /// Frames of each token, for each row.
    pub durations: Vec<Vec<u32>>,
}

/// How to speak.
#[derive(Clone, Copy, Debug)]
pub struct SpeakSettings {
    /// Steps from noise to sound.
    pub steps: usize,
    /// How loud the noise is that the flow starts from.
    pub temperature: f32,
    /// 2 is twice as fast.
    pub speed: f32,
    /// Another seed gives another take.
    pub seed: u64,
}

impl Default for SpeakSettings {
    fn default() -> Self {
        SpeakSettings { steps: 10, temperature: 0.667, speed: 1.0, seed: 1 }
    }
}

impl Voice {
    /// A model that has learned nothing yet. The same seed gives the same values on every device.
    pub fn new(config: &ModelConfig, seed: u64, device: &Device) -> Voice {
        let init = Init::new(device, seed);
        Voice {
            text: TextEncoder::new(init.at("text"), &config.text, config.vocabulary),
            aligner: MeanPredictor::new(init.at("aligner"), config),
            bridge: Linear::new(init.at("bridge"), config.text.width, config.decoder.width),
            speaker: Speaker::new(init.at("speaker"), config),
            duration: DurationPredictor::new(init.at("duration"), config),
            decoder: Decoder::new(init.at("decoder"), config),
            group: config.decoder.group,
        }
    }

    fn encode(&self, text: &TextInputs, reference: Option<&ReferenceInputs>) -> Encoded {
        let voice = self.speaker.forward(reference, text.lengths.len());
        let features = self.text.forward(text, voice.prefix.clone());
        let mean = self.aligner.forward(text.ids.clone(), text.mask.clone(), voice.style.clone());
        Encoded { features, mean, voice }
    }

    /// Which frames belong to which token. `prior` as in [`align`].
    fn find_alignment(&self, mean: &Tensor<3>, inputs: &Inputs, prior: f32) -> Vec<Vec<u32>> {
        let [_, tokens, _] = mean.dims();
        let [_, frames, _] = inputs.sound.mel.dims();
        // log N(mel; mean, 1) up to what is the same for all tokens. Alone on the device, so one wait for one answer.
        let (mean, mel) = (mean.clone().detach().inner(), audible(inputs.sound.mel.clone()).inner());
        let half = mean.clone().square().sum_dim(2).mul_scalar(0.5).swap_dims(1, 2);
        let scores = mel.matmul(mean.swap_dims(1, 2)) - half;
        let scores = scores.into_data().try_into_vec::<f32>().expect("scores are single precision");
        align(&scores, frames, tokens, &inputs.sound.lengths, &inputs.text.lengths, prior)
    }

    /// The loss of a batch whose sums are divided by `totals`, and the alignment that was found.
    ///
    /// While `learning`, what is dropped at random is.
    pub fn losses(&self, inputs: &Inputs, totals: Totals, prior: f32, learning: bool) -> (Losses, Vec<Vec<u32>>) {
        let seeds = learning.then_some(&inputs.seeds[..]);
        let Encoded { features, mean, voice } = self.encode(&inputs.text, inputs.reference.as_ref());
        let durations = self.find_alignment(&mean, inputs, prior);
        let device = mean.device();
        let [rows, frames, n_mels] = inputs.sound.mel.dims();
        let [_, tokens, width] = features.dims();
        let positions = frames / self.group;
        let sound = &inputs.sound;

        let by_frame = index(token_of_position(&durations, tokens, frames, 1), &device);
        let mean = mean.reshape([rows * tokens, n_mels]).select(0, by_frame).reshape([rows, frames, n_mels]);
        let prior_loss = masked_square(audible(sound.mel.clone()) - mean.clone(), sound.mask.clone())
            .div_scalar((totals.frames * n_mels) as f64);

        let by_position = index(token_of_position(&durations, tokens, positions, self.group), &device);
        let text = self.bridge.forward(features.clone().reshape([rows * tokens, width])).select(0, by_position);
        let [_, decoder_width] = text.dims();
        let text = text.reshape([rows, positions, decoder_width]);

        // The straight path from noise to sound, and its velocity.
        let times = inputs.times.clone().unsqueeze_dim::<3>(2);
        let state = inputs.noise.clone() * (times.clone().mul_scalar(SIGMA - 1.0) + 1.0) + sound.mel.clone() * times;
        let wanted = sound.mel.clone() - inputs.noise.clone().mul_scalar(1.0 - SIGMA);
        let lengths: Vec<usize> = sound.lengths.iter().map(|length| length.div_ceil(self.group)).collect();
        let velocity = self.decoder.forward(state, mean, text, &lengths, inputs.times.clone(), voice.style.clone());
        let flow_loss =
            masked_square(velocity - wanted, sound.mask.clone()).div_scalar((totals.frames * n_mels) as f64);

        let predicted = self.duration.forward(features.detach(), voice.style.detach(), &inputs.text, seeds);
        let duration_loss = duration_loss(predicted, &durations, &inputs.text, totals);
        (Losses { prior: prior_loss, duration: duration_loss, flow: flow_loss }, durations)
    }

    /// The alignment of sound to text, nothing else.
    pub fn alignment(&self, inputs: &Inputs) -> Vec<Vec<u32>> {
        let encoded = self.encode(&inputs.text, inputs.reference.as_ref());
        self.find_alignment(&encoded.mean, inputs, 0.0)
    }

    /// Speaks texts. With `durations`, each token lasts as long as given; without, as long as predicted.
    pub fn speak(
        &self,
        text: &TextInputs,
        reference: Option<&ReferenceInputs>,
        durations: Option<Vec<Vec<u32>>>,
        settings: SpeakSettings,
    ) -> Spoken {
        let Encoded { features, mean, voice } = self.encode(text, reference);
        let device = mean.device();
        let [rows, tokens, width] = features.dims();
        let n_mels = mean.dims()[2];
        let durations = durations.unwrap_or_else(|| {
            let predicted = self.duration.forward(features.clone(), voice.style.clone(), text, None);
            let predicted = predicted.into_data().try_into_vec::<f32>().expect("durations are single precision");
            round_durations(&predicted, &text.lengths, tokens, settings.speed)
        });
        let lengths: Vec<usize> = durations.iter().map(|row| row.iter().sum::<u32>() as usize).collect();
        let frames = lengths.iter().copied().max().unwrap_or(0).max(1).next_multiple_of(self.group);
        let positions = frames / self.group;

        let by_frame = index(token_of_position(&durations, tokens, frames, 1), &device);
        let mean = mean.reshape([rows * tokens, n_mels]).select(0, by_frame).reshape([rows, frames, n_mels]);
        let by_position = index(token_of_position(&durations, tokens, positions, self.group), &device);
        let text = self.bridge.forward(features.reshape([rows * tokens, width])).select(0, by_position);
        let [_, decoder_width] = text.dims();
        let text = text.reshape([rows, positions, decoder_width]);
        let position_lengths: Vec<usize> = lengths.iter().map(|length| length.div_ceil(self.group)).collect();
        let mut noise = vec![0.0; rows * frames * n_mels];
        for (row, noise) in noise.chunks_mut(frames * n_mels).enumerate() {
            tandem_flow::Random::at(&[settings.seed, row as u64]).fill_normal(noise);
            noise.iter_mut().for_each(|value| *value *= settings.temperature);
        }
        let mut state = Tensor::from_data(TensorData::new(noise, [rows, frames, n_mels]), &device);
        for step in 0..settings.steps {
            let time = vec![step as f32 / settings.steps as f32; rows];
            let times = Tensor::from_data(TensorData::new(time, [rows, 1]), &device);
            let velocity = self.decoder.forward(
                state.clone(),
                mean.clone(),
                text.clone(),
                &position_lengths,
                times,
                voice.style.clone(),
            );
            state = state + velocity.div_scalar(settings.steps as f64);
        }
        let mel = state.into_data().try_into_vec::<f32>().expect("sound is single precision");
        Spoken { mel, frames, durations }
    }
}

/// Rounds so that errors do not add up: each token ends where the true sum of what came before says.
fn round_durations(predicted: &[f32], lengths: &[usize], tokens: usize, speed: f32) -> Vec<Vec<u32>> {
    (predicted.chunks(tokens).zip(lengths))
        .map(|(row, &length)| {
            let (mut sum, mut given) = (0.0f64, 0u32);
            row[..length]
                .iter()
                .map(|&value| {
                    sum += f64::from(value.clamp(-5.0, 7.0)).exp() / f64::from(speed);
                    let frames = ((sum - f64::from(given)).round() as u32).max(1);
                    given += frames;
                    frames
                })
                .collect()
        })
        .collect()
}

fn index(values: Vec<i32>, device: &Device) -> Tensor<1, Int> {
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), device)
}

/// What alignments are found with: silence is no quieter than a pause in a room. A window of 46 ms smears a loud sound
/// over the silence beside it, and with all of the logarithm's depth the middle of the smear would be the boundary.
fn audible(mel: Tensor<3>) -> Tensor<3> {
    mel.clamp_min(AUDIBLE)
}

/// The sum of squares where the mask is 1. Row by row: the order of additions must not depend on threads.
fn masked_square(difference: Tensor<3>, mask: Tensor<3>) -> Tensor<1> {
    let [rows, time, channels] = difference.dims();
    let squares = (difference * mask).square();
    squares.reshape([rows * time, channels]).sum_dim(1).reshape([rows, time]).sum_dim(1).sum()
}

/// Each token's error, and the whole clip's: the mean of logarithms alone makes speech too short.
fn duration_loss(predicted: Tensor<3>, durations: &[Vec<u32>], text: &TextInputs, totals: Totals) -> Tensor<1> {
    let [rows, tokens, _] = predicted.dims();
    let device = predicted.device();
    let mut wanted = vec![0.0f32; rows * tokens];
    let mut length = vec![0.0f32; rows];
    for (row, durations) in durations.iter().enumerate() {
        for (to, &frames) in wanted[row * tokens..].iter_mut().zip(durations) {
            *to = (frames.max(1) as f32).ln();
        }
        length[row] = (durations.iter().sum::<u32>().max(1) as f32).ln();
    }
    let wanted = Tensor::<2>::from_data(TensorData::new(wanted, [rows, tokens]), &device);
    let length = Tensor::<2>::from_data(TensorData::new(length, [rows, 1]), &device);
    let present: Vec<f32> = text.lengths.iter().map(|&length| f32::from(u8::from(length > 0))).collect();
    let present = Tensor::<2>::from_data(TensorData::new(present, [rows, 1]), &device);
    let token_mask: Tensor<2> = text.mask.clone().reshape([rows, tokens]);
    let predicted: Tensor<2> = predicted.reshape([rows, tokens]);
    let each = ((predicted.clone() - wanted) * token_mask.clone()).square().sum_dim(1).sum();
    // Empty rows would take the logarithm of nothing.
    let sum = (predicted.exp() * token_mask).sum_dim(1) + (present.clone().mul_scalar(-1.0) + 1.0);
    let whole = ((sum.log() - length) * present).square().sum();
    each.div_scalar(totals.tokens as f64) + whole.div_scalar(totals.clips as f64)
}
