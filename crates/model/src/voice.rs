//! The acoustic model: text to mel. What is trained ([`Voice::losses`]), and the parts that synthesis calls
//! ([`Voice::encode`], [`Voice::log_durations`], [`Voice::expand`], [`Voice::denoise`]).

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};

use crate::aligner::{MeanPredictor, STATES, align, place_in_token, state_durations, token_durations, token_of_frame};
use crate::config::ModelConfig;
use crate::decoder::{Conditioning, Decoder, PLACE_FEATURES, Regressor};
use crate::duration::DurationPredictor;
use crate::inputs::{Dropout, Inputs, ReferenceInputs, TextInputs, indices, mask, timestep_features, to_device};
use crate::nn::{Init, Linear};
use crate::pitch::{self, Pitch, PitchInputs};
use crate::speaker::{Speaker, SpeakerCondition};
use crate::text_encoder::TextEncoder;

/// Width of the OT-CFM path at `t = 1`: `x_t = (1 - (1 - SIGMA_MIN) t) x0 + t x1`.
pub const SIGMA_MIN: f64 = 1e-4;

/// Floor of the mel that alignments are found with, in standard deviations of a band from its mean. A window of 46 ms
/// smears a loud sound over the silence beside it; with all of the logarithm's depth the middle of the smear would be the
/// boundary. Measured on the demo's corpus after 500 steps: boundaries 16.9 ms off with -0.5, 18.9 ms with -0.9, over
/// 21 ms without it.
const AUDIBLE: f64 = -0.5;

/// The acoustic model.
#[derive(Module, Debug)]
pub struct Voice {
    /// Text encoder.
    pub text: TextEncoder,
    /// Mean mel of each token from its neighborhood alone: what alignments are found with.
    pub aligner: MeanPredictor,
    /// Mean mel of each frame from the whole text and the pitch: what the decoder starts from.
    pub mean: Regressor,
    /// Projection of text features to the decoder's width.
    pub projection: Linear,
    /// Speaker conditioning.
    pub speaker: Speaker,
    /// Duration predictor.
    pub duration: DurationPredictor,
    /// Pitch predictor and embedding.
    pub pitch: Pitch,
    /// Flow-matching decoder, if there is one.
    pub decoder: Option<Decoder>,
    group: usize,
}

/// What the sums of a loss are divided by: the totals of a whole batch, however it is split.
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
    /// Squared error of the aligner's mean mel.
    pub prior: Tensor<1>,
    /// Squared error of the mean decoder's mel.
    pub mean: Tensor<1>,
    /// Squared error of log durations, of each token and of each clip's sum.
    pub duration: Tensor<1>,
    /// Squared error of the predicted pitch and voicing.
    pub pitch: Tensor<1>,
    /// Flow matching: squared error of `x1`; 0 without a flow-matching decoder.
    pub flow: Tensor<1>,
}

/// The terms of a loss as numbers, in the order of [`Losses::NAMES`].
pub type LossTerms = [f64; Losses::NAMES.len()];

impl Losses {
    /// The names of the terms, in the order of [`Losses::values`].
    pub const NAMES: [&'static str; 5] = ["prior", "mean", "duration", "pitch", "flow"];

    fn terms(&self) -> [Tensor<1>; Losses::NAMES.len()] {
        [self.prior.clone(), self.mean.clone(), self.duration.clone(), self.pitch.clone(), self.flow.clone()]
    }

    /// What is minimized.
    pub fn total(&self) -> Tensor<1> {
        let [first, rest @ ..] = self.terms();
        rest.into_iter().fold(first, |sum, term| sum + term)
    }

    /// The terms side by side, without autodiff history.
    pub fn values(&self) -> Tensor<1> {
        Tensor::cat(self.terms().map(Tensor::detach).to_vec(), 0)
    }
}

/// A text as one speaker says it, token by token.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// Text features, `[rows, tokens, text width]`.
    pub features: Tensor<3>,
    /// Who speaks.
    pub speaker: SpeakerCondition,
}

/// Text features at the rate of decoder positions.
struct Timed {
    /// `[rows, positions, decoder width]`.
    text: Tensor<3>,
    /// `[rows, positions, width of the pitch predictor]`.
    text_of_pitch: Tensor<3>,
    /// As in [`Conditioning`].
    place: Tensor<3>,
    speaker: Tensor<2>,
    lengths: Vec<usize>,
    mask: Tensor<3>,
}

impl Voice {
    /// An untrained model. The same seed gives the same values on every device.
    pub fn new(config: &ModelConfig, seed: u64, device: &Device) -> Voice {
        let init = Init::new(device, seed);
        Voice {
            text: TextEncoder::new(init.at("text"), &config.text, config.vocabulary),
            aligner: MeanPredictor::new(init.at("aligner"), config),
            mean: Regressor::new(
                init.at("mean"),
                &config.decoder.mean(),
                config.speaker.width,
                config.n_mels * config.decoder.group,
                0.5,
            ),
            projection: Linear::new(init.at("projection"), config.text.width, config.decoder.width),
            speaker: Speaker::new(init.at("speaker"), config),
            duration: DurationPredictor::new(init.at("duration"), config),
            pitch: Pitch::new(init.at("pitch"), config),
            decoder: config.has_flow().then(|| Decoder::new(init.at("decoder"), config)),
            group: config.decoder.group,
        }
    }

    /// Encodes texts in the voice of a reference.
    pub fn encode(&self, text: &TextInputs, reference: Option<&ReferenceInputs>) -> Encoded {
        self.encode_with(text, reference, None)
    }

    fn encode_with(
        &self,
        text: &TextInputs,
        reference: Option<&ReferenceInputs>,
        dropout: Option<&Dropout>,
    ) -> Encoded {
        let speaker = self.speaker.forward(reference, text.lengths.len());
        let dropout = dropout.map(|dropout| &dropout.text[..]);
        let features = self.text.forward(text, speaker.prefix.clone(), dropout);
        Encoded { features, speaker }
    }

    /// The predicted logarithm of each token's number of frames, `[rows, tokens, 1]`.
    pub fn log_durations(&self, encoded: &Encoded, text: &TextInputs) -> Tensor<3> {
        self.duration.forward(encoded.features.clone(), encoded.speaker.embedding.clone(), text, None)
    }

    /// What the decoder is conditioned on when each token lasts as many frames as `durations` says, with this pitch or, without
    /// it, the one that is predicted. All rows are padded to `frames`, a multiple of the decoder's group.
    pub fn expand(
        &self,
        encoded: &Encoded,
        durations: &[Vec<u32>],
        pitch: Option<&PitchInputs>,
        frames: usize,
    ) -> Conditioning {
        let device = encoded.features.device();
        let tokens = encoded.features.dims()[1];
        let lengths: Vec<usize> =
            durations.iter().map(|row| (row.iter().sum::<u32>() as usize).div_ceil(self.group)).collect();
        let by_frame = indices(token_of_frame(durations, tokens, frames), &device);
        let position_mask = mask(&lengths, frames / self.group, &device);
        let timed = self.time(encoded, durations, by_frame, lengths, position_mask, None);
        let pitch = match pitch {
            Some(pitch) => pitch.positions(frames / self.group),
            None => PitchInputs::new(&pitch::decode(self.predict_pitch(&timed)), durations.len(), &device),
        };
        self.condition(timed, pitch)
    }

    /// Text features at the rate of decoder positions.
    fn time(
        &self,
        encoded: &Encoded,
        durations: &[Vec<u32>],
        by_frame: Tensor<1, Int>,
        lengths: Vec<usize>,
        mask: Tensor<3>,
        dropout: Option<&Dropout>,
    ) -> Timed {
        let [rows, tokens, width] = encoded.features.dims();
        let positions = by_frame.dims()[0] / rows / self.group;
        let by_position = by_frame.reshape([rows * positions, self.group]).narrow(1, 0, 1);
        let by_position = by_position.reshape([rows * positions]);
        let expand = |projection: &Linear, features: Tensor<3>| -> Tensor<3> {
            let text = projection.forward(features.reshape([rows * tokens, width]));
            let width = text.dims()[1];
            text.select(0, by_position.clone()).reshape([rows, positions, width])
        };
        let place = place_in_token(durations, positions, self.group);
        // As with durations: what a predictor can learn of the clips by heart must not shape the text features, and without
        // dropout it does just that (the pitch's validation loss was lowest at step 400).
        let of_pitch = encoded.features.clone().detach();
        let of_pitch =
            dropout.map_or_else(|| of_pitch.clone(), |dropout| of_pitch.clone() * dropout.duration[0].clone());
        Timed {
            text: expand(&self.projection, encoded.features.clone()),
            text_of_pitch: expand(&self.pitch.projection, of_pitch),
            place: to_device(place, [rows, positions, PLACE_FEATURES], &encoded.features.device()),
            speaker: encoded.speaker.embedding.clone(),
            lengths,
            mask,
        }
    }

    /// Pitch and voicing, `[rows, positions, 2]`.
    fn predict_pitch(&self, on: &Timed) -> Tensor<3> {
        let (place, speaker) = (on.place.clone(), on.speaker.clone());
        self.pitch.predictor.forward(on.text_of_pitch.clone(), place, speaker, &on.lengths, &on.mask)
    }

    /// Adds the pitch, and the mean mel that follows from it.
    fn condition(&self, on: Timed, pitch: PitchInputs) -> Conditioning {
        let Timed { text, place, speaker, lengths, mask, .. } = on;
        let text = text + self.pitch.embed(&pitch);
        let mean = self.mean.forward(text.clone(), place.clone(), speaker.clone(), &lengths, &mask);
        let [rows, positions, values] = mean.dims();
        let mean = mean.reshape([rows, positions * self.group, values / self.group]);
        Conditioning { mean, text, place, pitch, speaker, lengths, mask }
    }

    /// The clean mel `x1` that the flow-matching decoder sees behind `x_t` `[rows, frames, n_mels]` at timestep `t`. Without that decoder
    /// it is the mean mel, whatever `x_t` is.
    pub fn denoise(&self, x_t: Tensor<3>, t: f32, on: &Conditioning) -> Tensor<3> {
        let Some(decoder) = &self.decoder else { return on.mean.clone() };
        let features = timestep_features(&vec![t; x_t.dims()[0]], &x_t.device());
        decoder.forward(x_t, features, on)
    }

    /// Mel frames per decoder position: mels are padded to a multiple of it.
    pub fn group(&self) -> usize {
        self.group
    }

    /// How many frames each state of each token has; `mean` is the aligner's. `prior` as in [`align`].
    fn find_alignment(&self, mean: &Tensor<3>, inputs: &Inputs, prior: f32) -> Vec<Vec<u32>> {
        if let Some(known) = inputs.known_alignment() {
            return known.iter().map(|row| state_durations(row)).collect();
        }
        let tokens = mean.dims()[1] / STATES;
        let [_, frames, _] = inputs.mel.values.dims();
        // log N(mel; mean, 1) up to what is the same for all tokens. One read-back for the whole batch.
        let (mean, mel) = (mean.clone().detach().inner(), audible(inputs.mel.values.clone()).inner());
        let half = mean.clone().square().sum_dim(2).mul_scalar(0.5).swap_dims(1, 2);
        let scores = mel.matmul(mean.swap_dims(1, 2)) - half;
        let scores = scores.into_data().try_into_vec::<f32>().expect("scores are single precision");
        inputs.keep_known(align(&scores, frames, tokens, &inputs.mel.lengths, &inputs.text.lengths, prior))
    }

    fn aligner_mean(&self, text: &TextInputs, speaker: &SpeakerCondition) -> Tensor<3> {
        self.aligner.forward(text.ids.clone(), text.mask.clone(), speaker.embedding.clone())
    }

    /// The aligner's mean mel of each frame, `by_frame` being the state that each frame belongs to.
    fn expand_mean(mean: Tensor<3>, by_frame: Tensor<1, Int>) -> Tensor<3> {
        let [rows, states, n_mels] = mean.dims();
        let frames = by_frame.dims()[0] / rows;
        mean.reshape([rows * states, n_mels]).select(0, by_frame).reshape([rows, frames, n_mels])
    }

    /// The loss of a batch whose sums are divided by `totals`, and the alignment that was found. With `training`, dropout
    /// is on.
    pub fn losses(&self, inputs: &Inputs, totals: Totals, prior: f32, training: bool) -> (Losses, Vec<Vec<u32>>) {
        let dropout = training.then_some(&inputs.dropout);
        let encoded = self.encode_with(&inputs.text, inputs.reference.as_ref(), dropout);
        let aligner_mean = self.aligner_mean(&inputs.text, &encoded.speaker);
        let of_states = self.find_alignment(&aligner_mean, inputs, prior);
        let durations = token_durations(&of_states);
        let mel = &inputs.mel;
        let [_, frames, n_mels] = mel.values.dims();
        let tokens = encoded.features.dims()[1];
        let values = (totals.frames * n_mels) as f64;

        let by_state = indices(token_of_frame(&of_states, tokens * STATES, frames), &aligner_mean.device());
        // States are numbered token by token: the token of a frame needs no upload of its own.
        let by_frame = by_state.clone().div_scalar(STATES as i32);
        let prior_error = audible(mel.values.clone()) - Self::expand_mean(aligner_mean, by_state);
        let prior_loss = masked_square(prior_error, mel.mask.clone()).div_scalar(values);

        let positions = mel.lengths.iter().map(|length| length.div_ceil(self.group)).collect();
        let timed = self.time(&encoded, &durations, by_frame, positions, mel.position_mask.clone(), dropout);
        let pitch_loss = pitch_loss(self.predict_pitch(&timed), &inputs.pitch, mel.position_mask.clone());
        let pitch_loss = pitch_loss.mul_scalar(self.group as f64 / totals.frames as f64);
        let on = self.condition(timed, inputs.pitch.clone());
        let mean_loss = masked_absolute(mel.values.clone() - on.mean.clone(), mel.mask.clone()).div_scalar(values);

        let flow_loss = self.flow_loss(inputs, on).div_scalar(values);

        let (features, speaker) = (encoded.features.detach(), encoded.speaker.embedding.detach());
        let predicted =
            self.duration.forward(features, speaker, &inputs.text, dropout.map(|dropout| &dropout.duration));
        let duration_loss = duration_loss(predicted, &durations, &inputs.text, totals);
        let losses =
            Losses { prior: prior_loss, mean: mean_loss, duration: duration_loss, pitch: pitch_loss, flow: flow_loss };
        (losses, durations)
    }

    /// Flow matching: the sum of squared errors of the clean mel.
    fn flow_loss(&self, inputs: &Inputs, mut on: Conditioning) -> Tensor<1> {
        let mel = &inputs.mel;
        let (Some(decoder), Some(flow)) = (&self.decoder, &inputs.flow) else {
            return Tensor::zeros([1], &mel.values.device());
        };
        // The straight path from noise to mel; the decoder sees a point of it and predicts its end. It takes the mean as
        // it is: what makes denoising easier must not make the mean worse.
        on.mean = on.mean.detach();
        let t = flow.timesteps.clone().unsqueeze_dim::<3>(2);
        let x_t = flow.noise.clone() * (t.clone().mul_scalar(SIGMA_MIN - 1.0) + 1.0) + mel.values.clone() * t;
        let x1 = decoder.forward(x_t, flow.timestep_features.clone(), &on);
        // The error of x1, not of the velocity: that would weigh timesteps near 1 by 1 / (1 - t)^2, where next to nothing
        // depends on the text any more (measured after 1,000 steps on a real speaker: WER 38 % with it, 33 % without).
        masked_square(x1 - mel.values.clone(), mel.mask.clone())
    }

    /// The alignment of mel to text, nothing else.
    pub fn alignment(&self, inputs: &Inputs) -> Vec<Vec<u32>> {
        let speaker = self.speaker.forward(inputs.reference.as_ref(), inputs.rows());
        token_durations(&self.find_alignment(&self.aligner_mean(&inputs.text, &speaker), inputs, 0.0))
    }

    /// How badly the mel of each row fits its text: the mean squared distance of its frames from what the aligner expects of
    /// their tokens, in a ratio to that from the nearest symbol of all. High where the text is not what is said; noise and another
    /// microphone raise both distances.
    pub fn misfits(&self, inputs: &Inputs) -> Vec<f64> {
        let speaker = self.speaker.forward(inputs.reference.as_ref(), inputs.rows());
        let mean = self.aligner_mean(&inputs.text, &speaker);
        let mel = audible(inputs.mel.values.clone());
        let nearest = self.aligner.nearest_symbol(mel.clone(), speaker.embedding) * inputs.mel.mask.clone();
        let of_states = self.find_alignment(&mean, inputs, 0.0);
        let [rows, frames, n_mels] = inputs.mel.values.dims();
        let by_state = indices(token_of_frame(&of_states, mean.dims()[1], frames), &mean.device());
        let error = (mel - Self::expand_mean(mean, by_state)) * inputs.mel.mask.clone();
        let sums = error.square().reshape([rows, frames * n_mels]).sum_dim(1);
        let sums = Tensor::cat(vec![sums, nearest.reshape([rows, frames]).sum_dim(1)], 1);
        let sums = sums.into_data().try_into_vec::<f32>().expect("errors are single precision");
        sums.chunks_exact(2).map(|sums| f64::from(sums[0]) / f64::from(sums[1]).max(f64::MIN_POSITIVE)).collect()
    }
}

fn audible(mel: Tensor<3>) -> Tensor<3> {
    mel.clamp_min(AUDIBLE)
}

/// The sum of squares where the mask is 1.
fn masked_square(difference: Tensor<3>, mask: Tensor<3>) -> Tensor<1> {
    sum_by_row((difference * mask).square())
}

/// The sum of absolute values where the mask is 1.
fn masked_absolute(difference: Tensor<3>, mask: Tensor<3>) -> Tensor<1> {
    sum_by_row((difference * mask).abs())
}

/// Row by row: the order of additions must not depend on threads.
fn sum_by_row(values: Tensor<3>) -> Tensor<1> {
    let [rows, time, channels] = values.dims();
    values.reshape([rows * time, channels]).sum_dim(1).reshape([rows, time]).sum_dim(1).sum()
}

/// Squared errors: of the pitch where there is one, of voicing (0 or 1) everywhere.
fn pitch_loss(predicted: Tensor<3>, pitch: &PitchInputs, mask: Tensor<3>) -> Tensor<1> {
    let voiced = pitch.targets.clone().narrow(2, 1, 1) * mask.clone();
    masked_square(predicted - pitch.targets.clone(), Tensor::cat(vec![voiced, mask], 2))
}

/// Each token's error, and the whole clip's: the mean of logarithms alone makes speech too short.
fn duration_loss(predicted: Tensor<3>, durations: &[Vec<u32>], text: &TextInputs, totals: Totals) -> Tensor<1> {
    let [rows, tokens, _] = predicted.dims();
    let mut wanted = vec![0.0f32; rows * tokens];
    for (row, durations) in durations.iter().enumerate() {
        for (to, &frames) in wanted[row * tokens..].iter_mut().zip(durations) {
            *to = (frames.max(1) as f32).ln();
        }
    }
    let wanted: Tensor<2> = to_device(wanted, [rows, tokens], &predicted.device());
    let token_mask: Tensor<2> = text.mask.clone().reshape([rows, tokens]);
    let predicted: Tensor<2> = predicted.reshape([rows, tokens]);
    let each = ((predicted.clone() - wanted.clone()) * token_mask.clone()).square().sum_dim(1).sum();
    // Empty rows have no first token; they would take the logarithm of nothing.
    let present = token_mask.clone().narrow(1, 0, 1);
    let absent = present.clone().mul_scalar(-1.0) + 1.0;
    let log_sum = |logs: Tensor<2>| ((logs.exp() * token_mask.clone()).sum_dim(1) + absent.clone()).log();
    let whole = ((log_sum(predicted) - log_sum(wanted)) * present).square().sum();
    each.div_scalar(totals.tokens as f64) + whole.div_scalar(totals.clips as f64)
}
