//! A batch as the model takes it: built on the host, uploaded by the transfer stage. Everything that does not depend on
//! the weights comes with the batch (masks, attention bias, RoPE tables, dropout masks, timestep features), so that a
//! step uploads only what it finds itself: the alignment and its durations.

use std::sync::atomic::{AtomicU64, Ordering};

use burn::tensor::{Device, Int, Tensor, TensorData};
use tandem_flow::Random;

use crate::aligner::state_durations;
use crate::config::ModelConfig;
use crate::nn::Rope;
use crate::pitch::{PITCH_VALUES, PitchInputs};

/// Attention bias of a key that must not be attended to: no softmax lets it through, yet it is far from overflow.
const MASKED: f32 = -1e9;
/// Sinusoidal features of a timestep.
pub(crate) const TIMESTEP_FEATURES: usize = 64;
/// Dropout of the duration predictor.
const DURATION_DROPOUT: f32 = 0.3;
/// Dropout of the text encoder.
const TEXT_DROPOUT: f32 = 0.1;

/// What of a model's configuration decides the tensors of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputShape {
    /// Mel frames per decoder position.
    pub group: usize,
    /// Speaker latents before the text.
    pub latents: usize,
    /// Channels of an attention head of the text encoder.
    pub head_width: usize,
    /// Channels of the text encoder.
    pub text_width: usize,
    /// Dropout masks of the text encoder: the embedding's, one for each conv, two for each block.
    pub text_dropouts: usize,
    /// Channels of the duration predictor.
    pub duration_width: usize,
    /// Whether there is a flow-matching decoder: it needs noise and timesteps.
    pub flow: bool,
}

impl InputShape {
    /// Of a model.
    pub fn new(config: &ModelConfig) -> InputShape {
        InputShape {
            group: config.decoder.group,
            latents: if config.reference { config.speaker.latents } else { 1 },
            head_width: config.text.width / config.text.heads,
            text_width: config.text.width,
            text_dropouts: 1 + config.text.convolutions + 2 * config.text.blocks,
            duration_width: config.duration_width,
            flow: config.has_flow(),
        }
    }
}

/// A batch on the host. Rows are `[time, channels]`; what is beyond a row's length is 0.
#[derive(Clone, Debug, Default)]
pub struct HostInputs {
    /// Rows.
    pub rows: usize,
    /// Tokens of each row, padding included.
    pub tokens: usize,
    /// Frames of each row, padding included; a multiple of the decoder's group.
    pub frames: usize,
    /// Mel bands.
    pub n_mels: usize,
    /// Token ids, `rows * tokens`.
    pub ids: Vec<i32>,
    /// True numbers of tokens.
    pub id_lengths: Vec<usize>,
    /// Normalized log-mel, `rows * frames * n_mels`.
    pub mel: Vec<f32>,
    /// True numbers of frames.
    pub mel_lengths: Vec<usize>,
    /// Pitch of each frame in Hz, `rows * frames`, 0 where there is none; empty: nowhere.
    pub pitch: Vec<f32>,
    /// Frames of each token, for the rows that were aligned before; empty when none was.
    pub durations: Vec<Option<Vec<u32>>>,
    /// The noise `x0`, `rows * frames * n_mels`; empty without a flow-matching decoder.
    pub noise: Vec<f32>,
    /// The timestep `t` of each row, 0 (noise) to 1 (mel).
    pub timesteps: Vec<f32>,
    /// Seeds of each row's dropout.
    pub seeds: Vec<u64>,
    /// Another crop of the same speaker, for each row.
    pub reference: Option<HostReference>,
}

/// Reference audio on the host.
#[derive(Clone, Debug, Default)]
pub struct HostReference {
    /// Frames of each row, padding included.
    pub frames: usize,
    /// Normalized log-mel, `rows * frames * n_mels`.
    pub mel: Vec<f32>,
    /// True numbers of frames.
    pub lengths: Vec<usize>,
}

/// A batch on the model's device.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The texts.
    pub text: TextInputs,
    /// The mels.
    pub mel: MelInputs,
    /// Their pitch.
    pub pitch: PitchInputs,
    /// Frames of each token, for the rows that were aligned before; empty when none was.
    pub durations: Vec<Option<Vec<u32>>>,
    /// What the flow-matching decoder learns from, if there is one.
    pub flow: Option<FlowInputs>,
    /// Dropout masks, for training.
    pub dropout: Dropout,
    /// Another crop of the same speaker.
    pub reference: Option<ReferenceInputs>,
}

/// A point of the path from noise to mel, for each row.
#[derive(Clone, Debug)]
pub struct FlowInputs {
    /// The noise `x0`, `[rows, frames, n_mels]`.
    pub noise: Tensor<3>,
    /// The timesteps, `[rows, 1]`.
    pub timesteps: Tensor<2>,
    /// Their sinusoidal features, `[rows, 64]`.
    pub timestep_features: Tensor<2>,
}

/// Dropout masks, `[rows, tokens, channels]` each, drawn on the host by clip: the same on every device and however a batch
/// is split.
#[derive(Clone, Debug)]
pub struct Dropout {
    /// Of the text encoder: the embedding's, each conv's, each block's attention and MLP.
    pub text: Vec<Tensor<3>>,
    /// Of the duration predictor's two inputs.
    pub duration: [Tensor<3>; 2],
}

/// Texts on the device.
#[derive(Clone, Debug)]
pub struct TextInputs {
    /// `[rows, tokens]`.
    pub ids: Tensor<2, Int>,
    /// True lengths.
    pub lengths: Vec<usize>,
    /// 1 where there is a token, `[rows, tokens, 1]`.
    pub mask: Tensor<3>,
    /// Keys that may be attended to: the speaker's latents and the row's tokens, `[rows, 1, 1, latents + tokens]`.
    pub attention_bias: Tensor<4>,
    /// Rotary positions of the tokens.
    pub rope: Rope,
}

/// Mels on the device.
#[derive(Clone, Debug)]
pub struct MelInputs {
    /// Normalized log-mel, `[rows, frames, n_mels]`.
    pub values: Tensor<3>,
    /// True lengths.
    pub lengths: Vec<usize>,
    /// 1 where there is a frame, `[rows, frames, 1]`.
    pub mask: Tensor<3>,
    /// 1 where there is a decoder position, `[rows, frames / group, 1]`.
    pub position_mask: Tensor<3>,
}

/// Reference audio on the device.
#[derive(Clone, Debug)]
pub struct ReferenceInputs {
    /// `[rows, frames, n_mels]`.
    pub mel: Tensor<3>,
    /// True lengths.
    pub lengths: Vec<usize>,
    /// 1 where there is a frame after the first stride-2 conv, `[rows, frames / 2, 1]`.
    pub half_mask: Tensor<3>,
    /// Keys that may be attended to after both convs, `[rows, 1, 1, latents + frames / 4]`.
    pub attention_bias: Tensor<4>,
}

/// Bytes that a batch of this shape takes on a device: mel, noise, pitch and masks; the reference; ids with mask, bias and dropout.
pub fn batch_bytes(
    rows: usize,
    frames: usize,
    reference_frames: usize,
    tokens: usize,
    n_mels: usize,
    shape: &InputShape,
) -> usize {
    let positions = frames.div_ceil(shape.group);
    // Two bins, the fraction between them, targets.
    let pitch = positions * (3 + PITCH_VALUES);
    let (noise, timestep) = if shape.flow { (frames * n_mels, 1 + TIMESTEP_FEATURES) } else { (0, 0) };
    let mel = frames * n_mels + noise + frames + positions + pitch;
    let reference = if reference_frames == 0 {
        0
    } else {
        reference_frames * n_mels + reference_frames.div_ceil(2) + shape.latents + reference_frames.div_ceil(4)
    };
    let dropout = (shape.text_dropouts + 1) * shape.text_width + shape.duration_width;
    let text = tokens * (3 + dropout) + shape.latents;
    let rope = 2 * (shape.latents + tokens) * shape.head_width;
    4 * (rows * (mel + reference + text + timestep) + rope)
}

/// Mels that were computed on another device: normalized log-mel, `[rows, frames, n_mels]` each.
#[derive(Clone, Debug)]
pub struct DeviceMel {
    /// Of the clips.
    pub mel: Tensor<3>,
    /// Of the references, if there are any.
    pub reference: Option<Tensor<3>>,
}

impl DeviceMel {
    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        let size = |tensor: &Tensor<3>| 4 * tensor.dims().iter().product::<usize>();
        size(&self.mel) + self.reference.as_ref().map_or(0, size)
    }
}

impl HostInputs {
    /// Bytes that the batch takes on a device.
    pub fn device_bytes(&self, shape: &InputShape) -> usize {
        let reference = self.reference.as_ref().map_or(0, |reference| reference.frames);
        batch_bytes(self.rows, self.frames, reference, self.tokens, self.n_mels, shape)
    }

    /// Uploads the batch to a device.
    pub fn upload(self, shape: &InputShape, device: &Device) -> Inputs {
        self.upload_with(None, shape, device)
    }

    /// Uploads the batch to a device, with mels that were computed on another one if there are any.
    pub fn upload_with(self, computed: Option<DeviceMel>, shape: &InputShape, device: &Device) -> Inputs {
        let mel_shape = [self.rows, self.frames, self.n_mels];
        let (mel, computed_reference) = match computed {
            Some(computed) => {
                (bring(computed.mel, device), computed.reference.map(|reference| bring(reference, device)))
            }
            None => (to_device(self.mel, mel_shape, device), None),
        };
        let positions: Vec<usize> = self.mel_lengths.iter().map(|length| length.div_ceil(shape.group)).collect();
        let drop = |place: usize, channels: usize, share: f32| {
            dropout(&self.seeds, place as u64, &self.id_lengths, [self.tokens, channels], share, device)
        };
        let dropout = Dropout {
            duration: [drop(0, shape.text_width, DURATION_DROPOUT), drop(1, shape.duration_width, DURATION_DROPOUT)],
            text: (0..shape.text_dropouts).map(|n| drop(2 + n, shape.text_width, TEXT_DROPOUT)).collect(),
        };
        Inputs {
            text: TextInputs::new(self.ids, self.id_lengths, self.rows, self.tokens, shape, device),
            mel: MelInputs {
                mask: mask(&self.mel_lengths, self.frames, device),
                position_mask: mask(&positions, self.frames / shape.group, device),
                values: mel,
                lengths: self.mel_lengths,
            },
            pitch: PitchInputs::of_frames(&self.pitch, self.rows, self.frames, shape.group, device),
            durations: self.durations,
            flow: (shape.flow && !self.noise.is_empty()).then(|| FlowInputs {
                noise: to_device(self.noise, mel_shape, device),
                timestep_features: timestep_features(&self.timesteps, device),
                timesteps: to_device(self.timesteps, [self.rows, 1], device),
            }),
            dropout,
            reference: self.reference.map(|reference| {
                let mel = computed_reference
                    .unwrap_or_else(|| to_device(reference.mel, [self.rows, reference.frames, self.n_mels], device));
                ReferenceInputs::new(mel, reference.lengths, shape)
            }),
        }
    }

    /// Some of the rows, with no more padding than before.
    pub fn rows(&self, rows: std::ops::Range<usize>) -> HostInputs {
        let (text, mel) = (self.tokens, self.frames * self.n_mels);
        HostInputs {
            rows: rows.len(),
            tokens: self.tokens,
            frames: self.frames,
            n_mels: self.n_mels,
            ids: self.ids[rows.start * text..rows.end * text].to_vec(),
            id_lengths: self.id_lengths[rows.clone()].to_vec(),
            mel: self.mel[rows.start * mel..rows.end * mel].to_vec(),
            mel_lengths: self.mel_lengths[rows.clone()].to_vec(),
            pitch: match self.pitch.is_empty() {
                true => Vec::new(),
                false => self.pitch[rows.start * self.frames..rows.end * self.frames].to_vec(),
            },
            durations: some_rows(&self.durations, &rows),
            noise: some_rows(&self.noise, &(rows.start * mel..rows.end * mel)),
            timesteps: self.timesteps[rows.clone()].to_vec(),
            seeds: self.seeds[rows.clone()].to_vec(),
            reference: self.reference.as_ref().map(|reference| {
                let size = reference.frames * self.n_mels;
                HostReference {
                    frames: reference.frames,
                    mel: reference.mel[rows.start * size..rows.end * size].to_vec(),
                    lengths: reference.lengths[rows.clone()].to_vec(),
                }
            }),
        }
    }
}

/// Some rows of what may be there for no row.
fn some_rows<T: Clone>(all: &[T], rows: &std::ops::Range<usize>) -> Vec<T> {
    all.get(rows.clone()).map_or_else(Vec::new, <[T]>::to_vec)
}

impl Inputs {
    /// The alignment, if every row was aligned before.
    pub(crate) fn known_alignment(&self) -> Option<Vec<Vec<u32>>> {
        if self.durations.is_empty() { None } else { self.durations.iter().cloned().collect() }
    }

    /// Frames of each state, with those of the rows that were aligned before in place of what was found for them.
    pub(crate) fn keep_known(&self, mut found: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
        for (found, known) in found.iter_mut().zip(&self.durations) {
            if let Some(known) = known {
                *found = state_durations(known);
            }
        }
        found
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.text.lengths.len()
    }

    /// Bytes that it takes.
    pub fn bytes(&self, shape: &InputShape) -> u64 {
        let [rows, frames, n_mels] = self.mel.values.dims();
        let reference = self.reference.as_ref().map_or(0, |reference| reference.mel.dims()[1]);
        batch_bytes(rows, frames, reference, self.text.ids.dims()[1], n_mels, shape) as u64
    }

    /// A micro-batch: some of the rows, with no more padding than before.
    pub fn micro_batch(&self, rows: std::ops::Range<usize>) -> Inputs {
        if rows == (0..self.rows()) {
            return self.clone();
        }
        let cut = |tensor: &Tensor<3>| tensor.clone().slice([rows.clone()]);
        let cut2 = |tensor: &Tensor<2>| tensor.clone().slice([rows.clone()]);
        let cut4 = |tensor: &Tensor<4>| tensor.clone().slice([rows.clone()]);
        Inputs {
            text: TextInputs {
                ids: self.text.ids.clone().slice([rows.clone()]),
                lengths: self.text.lengths[rows.clone()].to_vec(),
                mask: cut(&self.text.mask),
                attention_bias: cut4(&self.text.attention_bias),
                rope: self.text.rope.clone(),
            },
            mel: MelInputs {
                values: cut(&self.mel.values),
                lengths: self.mel.lengths[rows.clone()].to_vec(),
                mask: cut(&self.mel.mask),
                position_mask: cut(&self.mel.position_mask),
            },
            pitch: self.pitch.rows(rows.clone()),
            durations: some_rows(&self.durations, &rows),
            flow: self.flow.as_ref().map(|flow| FlowInputs {
                noise: cut(&flow.noise),
                timesteps: cut2(&flow.timesteps),
                timestep_features: cut2(&flow.timestep_features),
            }),
            dropout: Dropout {
                text: self.dropout.text.iter().map(cut).collect(),
                duration: [cut(&self.dropout.duration[0]), cut(&self.dropout.duration[1])],
            },
            reference: self.reference.as_ref().map(|reference| ReferenceInputs {
                mel: cut(&reference.mel),
                lengths: reference.lengths[rows.clone()].to_vec(),
                half_mask: cut(&reference.half_mask),
                attention_bias: cut4(&reference.attention_bias),
            }),
        }
    }

    /// The devices that its tensors are on, which should all be one.
    pub fn devices(&self) -> Vec<Device> {
        let mut all = vec![
            self.text.ids.device(),
            self.text.mask.device(),
            self.text.attention_bias.device(),
            self.text.rope.device(),
            self.mel.values.device(),
            self.mel.mask.device(),
            self.mel.position_mask.device(),
        ];
        if let Some(FlowInputs { noise, timesteps, timestep_features }) = &self.flow {
            all.extend([noise.device(), timesteps.device(), timestep_features.device()]);
        }
        all.extend(self.pitch.devices());
        all.extend(self.dropout.text.iter().chain(&self.dropout.duration).map(Tensor::device));
        if let Some(reference) = &self.reference {
            all.extend([reference.mel.device(), reference.half_mask.device(), reference.attention_bias.device()]);
        }
        all.into_iter().map(Device::inner).collect()
    }
}

/// Copies a tensor to a device, with that device's autodiff settings.
pub(crate) fn bring(tensor: Tensor<3>, device: &Device) -> Tensor<3> {
    let tensor = tensor.to_device(&device.clone().inner());
    if !device.is_autodiff() {
        return tensor;
    }
    let tensor = tensor.autodiff();
    match device.gradient_checkpointing_strategy() {
        Some(strategy) => tensor.with_gradient_checkpointing_strategy(strategy),
        None => tensor,
    }
}

impl HostReference {
    /// Uploads reference audio to a device.
    pub fn upload(self, rows: usize, n_mels: usize, shape: &InputShape, device: &Device) -> ReferenceInputs {
        let mel = to_device(self.mel, [rows, self.frames, n_mels], device);
        ReferenceInputs::new(mel, self.lengths, shape)
    }
}

impl ReferenceInputs {
    fn new(mel: Tensor<3>, lengths: Vec<usize>, shape: &InputShape) -> ReferenceInputs {
        let (device, half) = (mel.device(), mel.dims()[1].div_ceil(2));
        let quarter = half.div_ceil(2);
        let halves: Vec<usize> = lengths.iter().map(|length| length.div_ceil(2)).collect();
        let quarters: Vec<usize> = lengths.iter().map(|length| length.div_ceil(4).min(quarter)).collect();
        ReferenceInputs {
            half_mask: mask(&halves, half, &device),
            attention_bias: attention_bias(shape.latents, &quarters, quarter, &device),
            mel,
            lengths,
        }
    }
}

impl TextInputs {
    /// Uploads texts to a device.
    pub fn new(
        ids: Vec<i32>,
        lengths: Vec<usize>,
        rows: usize,
        tokens: usize,
        shape: &InputShape,
        device: &Device,
    ) -> TextInputs {
        count_upload();
        TextInputs {
            ids: Tensor::from_data(TensorData::new(ids, [rows, tokens]), device),
            mask: mask(&lengths, tokens, device),
            attention_bias: attention_bias(shape.latents, &lengths, tokens, device),
            rope: Rope::new(shape.latents, tokens, shape.head_width, device),
            lengths,
        }
    }
}

static UPLOADS: AtomicU64 = AtomicU64::new(0);

pub(crate) fn count_upload() {
    UPLOADS.fetch_add(1, Ordering::Relaxed);
}

/// Tensors that this process has uploaded to devices so far, for tests and benchmarks.
pub fn uploads() -> u64 {
    UPLOADS.load(Ordering::Relaxed)
}

/// Uploads values.
pub(crate) fn to_device<const D: usize>(values: Vec<f32>, shape: [usize; D], device: &Device) -> Tensor<D> {
    count_upload();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Uploads indices.
pub(crate) fn indices(values: Vec<i32>, device: &Device) -> Tensor<1, Int> {
    count_upload();
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), device)
}

/// Sinusoidal features of timesteps, `[rows, 64]`.
pub(crate) fn timestep_features(timesteps: &[f32], device: &Device) -> Tensor<2> {
    let half = TIMESTEP_FEATURES / 2;
    let mut values = Vec::with_capacity(timesteps.len() * TIMESTEP_FEATURES);
    for &t in timesteps {
        let angles = (0..half).map(|n| t * 1000f32.powf(n as f32 / (half - 1) as f32));
        values.extend(angles.clone().map(f32::sin).chain(angles.map(f32::cos)));
    }
    to_device(values, [timesteps.len(), TIMESTEP_FEATURES], device)
}

/// 1 below a row's length, `[rows, time, 1]`.
pub(crate) fn mask(lengths: &[usize], time: usize, device: &Device) -> Tensor<3> {
    let values = per_position(lengths, time, |inside| f32::from(u8::from(inside)));
    to_device(values, [lengths.len(), time, 1], device)
}

/// Lets attention see what is below a row's length and `always` keys before it, `[rows, 1, 1, always + time]`.
fn attention_bias(always: usize, lengths: &[usize], time: usize, device: &Device) -> Tensor<4> {
    let shifted: Vec<usize> = lengths.iter().map(|length| always + length).collect();
    let values = per_position(&shifted, always + time, |inside| if inside { 0.0 } else { MASKED });
    to_device(values, [lengths.len(), 1, 1, always + time], device)
}

fn per_position(lengths: &[usize], time: usize, value: impl Fn(bool) -> f32) -> Vec<f32> {
    lengths.iter().flat_map(|&length| (0..time).map(move |at| at < length)).map(value).collect()
}

/// A dropout mask, `[rows, time, channels]`: drawn on the host by row, so that it is the same on every device and however
/// a batch is split. A row draws as much as it is long.
fn dropout(
    seeds: &[u64],
    place: u64,
    lengths: &[usize],
    [time, channels]: [usize; 2],
    share: f32,
    device: &Device,
) -> Tensor<3> {
    let mut values = vec![0.0; seeds.len() * time * channels];
    let bound = (f64::from(share) * u64::MAX as f64) as u64;
    for ((row, &seed), &length) in values.chunks_mut(time * channels).zip(seeds).zip(lengths) {
        let mut random = Random::at(&[seed, place]);
        for value in &mut row[..length * channels] {
            *value = if random.next() < bound { 0.0 } else { 1.0 / (1.0 - share) };
        }
    }
    to_device(values, [seeds.len(), time, channels], device)
}
