//! A batch as the model wants it: made on the host, then put on the model's device.

use burn::tensor::{Device, Int, Tensor, TensorData};
use tandem_flow::Random;

/// A number that no softmax lets through, yet far from overflow.
const NEVER: f32 = -1e9;

/// A batch on the host. Rows are `[time, channels]`; what is beyond a row's length is 0.
#[derive(Clone, Debug, Default)]
pub struct HostInputs {
    /// Rows.
    pub rows: usize,
    /// Tokens of each row, padding included.
    pub tokens: usize,
    /// Frames of each row, padding included; a multiple of the decoder's group.
    pub frames: usize,
    /// Values of each frame.
    pub n_mels: usize,
    /// Token ids, `rows * tokens`.
    pub ids: Vec<i32>,
    /// True numbers of tokens.
    pub id_lengths: Vec<usize>,
    /// Normalised log-mel, `rows * frames * n_mels`.
    pub mel: Vec<f32>,
    /// True numbers of frames.
    pub mel_lengths: Vec<usize>,
    /// What the flow starts from, `rows * frames * n_mels`.
    pub noise: Vec<f32>,
    /// The moment of the flow that each row is trained on, 0 to 1.
    pub times: Vec<f32>,
    /// What else is random about each row.
    pub seeds: Vec<u64>,
    /// Another crop of the same speaker, for each row.
    pub reference: Option<HostReference>,
}

/// Reference audio on the host.
#[derive(Clone, Debug, Default)]
pub struct HostReference {
    /// Frames of each row, padding included.
    pub frames: usize,
    /// Normalised log-mel, `rows * frames * n_mels`.
    pub mel: Vec<f32>,
    /// True numbers of frames.
    pub lengths: Vec<usize>,
}

/// A batch on the model's device.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The text.
    pub text: TextInputs,
    /// The sound.
    pub sound: SoundInputs,
    /// `[rows, frames, n_mels]`.
    pub noise: Tensor<3>,
    /// `[rows, 1]`.
    pub times: Tensor<2>,
    /// What else is random about each row.
    pub seeds: Vec<u64>,
    /// Another crop of the same speaker.
    pub reference: Option<ReferenceInputs>,
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
}

/// Sound on the device.
#[derive(Clone, Debug)]
pub struct SoundInputs {
    /// `[rows, frames, n_mels]`.
    pub mel: Tensor<3>,
    /// True lengths.
    pub lengths: Vec<usize>,
    /// 1 where there is a frame, `[rows, frames, 1]`.
    pub mask: Tensor<3>,
}

/// Reference audio on the device.
#[derive(Clone, Debug)]
pub struct ReferenceInputs {
    /// `[rows, frames, n_mels]`.
    pub mel: Tensor<3>,
    /// True lengths.
    pub lengths: Vec<usize>,
}

impl HostInputs {
    /// Puts the batch on a device.
    pub fn upload(self, device: &Device) -> Inputs {
        let sound = [self.rows, self.frames, self.n_mels];
        Inputs {
            text: TextInputs::new(self.ids, self.id_lengths, self.rows, self.tokens, device),
            sound: SoundInputs {
                mask: mask(&self.mel_lengths, self.frames, device),
                mel: Tensor::from_data(TensorData::new(self.mel, sound), device),
                lengths: self.mel_lengths,
            },
            noise: Tensor::from_data(TensorData::new(self.noise, sound), device),
            times: Tensor::from_data(TensorData::new(self.times, [self.rows, 1]), device),
            seeds: self.seeds,
            reference: self.reference.map(|reference| reference.upload(self.rows, self.n_mels, device)),
        }
    }

    /// Some of the rows, with no more padding than before.
    pub fn rows(&self, rows: std::ops::Range<usize>) -> HostInputs {
        let (text, sound) = (self.tokens, self.frames * self.n_mels);
        HostInputs {
            rows: rows.len(),
            tokens: self.tokens,
            frames: self.frames,
            n_mels: self.n_mels,
            ids: self.ids[rows.start * text..rows.end * text].to_vec(),
            id_lengths: self.id_lengths[rows.clone()].to_vec(),
            mel: self.mel[rows.start * sound..rows.end * sound].to_vec(),
            mel_lengths: self.mel_lengths[rows.clone()].to_vec(),
            noise: self.noise[rows.start * sound..rows.end * sound].to_vec(),
            times: self.times[rows.clone()].to_vec(),
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

impl HostReference {
    /// Puts reference audio on a device.
    pub fn upload(self, rows: usize, n_mels: usize, device: &Device) -> ReferenceInputs {
        ReferenceInputs {
            mel: Tensor::from_data(TensorData::new(self.mel, [rows, self.frames, n_mels]), device),
            lengths: self.lengths,
        }
    }
}

impl TextInputs {
    /// Puts texts on a device.
    pub fn new(ids: Vec<i32>, lengths: Vec<usize>, rows: usize, tokens: usize, device: &Device) -> TextInputs {
        TextInputs {
            ids: Tensor::from_data(TensorData::new(ids, [rows, tokens]), device),
            mask: mask(&lengths, tokens, device),
            lengths,
        }
    }
}

/// 1 below a row's length, `[rows, time, 1]`.
pub(crate) fn mask(lengths: &[usize], time: usize, device: &Device) -> Tensor<3> {
    let values = per_position(lengths, time, |inside| f32::from(u8::from(inside)));
    Tensor::from_data(TensorData::new(values, [lengths.len(), time, 1]), device)
}

/// Lets attention look below a row's length and at `always` keys before it, `[rows, 1, 1, always + time]`.
pub(crate) fn attention_bias(always: usize, lengths: &[usize], time: usize, device: &Device) -> Tensor<4> {
    let shifted: Vec<usize> = lengths.iter().map(|length| always + length).collect();
    let values = per_position(&shifted, always + time, |inside| if inside { 0.0 } else { NEVER });
    Tensor::from_data(TensorData::new(values, [lengths.len(), 1, 1, always + time]), device)
}

fn per_position(lengths: &[usize], time: usize, value: impl Fn(bool) -> f32) -> Vec<f32> {
    lengths.iter().flat_map(|&length| (0..time).map(move |at| at < length)).map(value).collect()
}

/// Keeps most values and drops the others, `[rows, time, channels]`: drawn on the host by row, so that it is the same on
/// every device and however a batch is split. A row draws as much as it is long.
pub(crate) fn dropout(
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
    Tensor::from_data(TensorData::new(values, [seeds.len(), time, channels]), device)
}
