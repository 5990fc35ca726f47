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

/// Bytes that a batch of this shape takes on a device: mel, noise, their mask; the reference; ids with their mask.
pub fn batch_bytes(rows: usize, frames: usize, reference_frames: usize, tokens: usize, n_mels: usize) -> usize {
    4 * rows * ((2 * frames + reference_frames) * n_mels + frames + 2 * tokens + 1)
}

/// Sound that was made on another device: normalised log-mel, `[rows, frames, n_mels]` each.
#[derive(Clone, Debug)]
pub struct DeviceSound {
    /// Of the clips.
    pub mel: Tensor<3>,
    /// Of the references, if there are any.
    pub reference: Option<Tensor<3>>,
}

impl DeviceSound {
    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        let size = |tensor: &Tensor<3>| 4 * tensor.dims().iter().product::<usize>();
        size(&self.mel) + self.reference.as_ref().map_or(0, size)
    }
}

impl HostInputs {
    /// Bytes that the batch takes on a device.
    pub fn device_bytes(&self) -> usize {
        let reference = self.reference.as_ref().map_or(0, |reference| reference.frames);
        batch_bytes(self.rows, self.frames, reference, self.tokens, self.n_mels)
    }

    /// Puts the batch on a device.
    pub fn upload(self, device: &Device) -> Inputs {
        self.upload_with(None, device)
    }

    /// Puts the batch on a device, with sound that was made on another one if there is any.
    pub fn upload_with(self, made: Option<DeviceSound>, device: &Device) -> Inputs {
        let sound = [self.rows, self.frames, self.n_mels];
        let (mel, made_reference) = match made {
            Some(made) => (bring(made.mel, device), made.reference.map(|reference| bring(reference, device))),
            None => (Tensor::from_data(TensorData::new(self.mel, sound), device), None),
        };
        Inputs {
            text: TextInputs::new(self.ids, self.id_lengths, self.rows, self.tokens, device),
            sound: SoundInputs { mask: mask(&self.mel_lengths, self.frames, device), mel, lengths: self.mel_lengths },
            noise: Tensor::from_data(TensorData::new(self.noise, sound), device),
            times: Tensor::from_data(TensorData::new(self.times, [self.rows, 1]), device),
            seeds: self.seeds,
            reference: self.reference.map(|reference| match made_reference {
                Some(mel) => ReferenceInputs { mel, lengths: reference.lengths },
                None => reference.upload(self.rows, self.n_mels, device),
            }),
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

impl Inputs {
    /// Rows.
    pub fn rows(&self) -> usize {
        self.text.lengths.len()
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        let [rows, frames, n_mels] = self.sound.mel.dims();
        let reference = self.reference.as_ref().map_or(0, |reference| reference.mel.dims()[1]);
        batch_bytes(rows, frames, reference, self.text.ids.dims()[1], n_mels) as u64
    }

    /// Some of the rows, with no more padding than before.
    pub fn part(&self, rows: std::ops::Range<usize>) -> Inputs {
        if rows == (0..self.rows()) {
            return self.clone();
        }
        let cut = |tensor: &Tensor<3>| tensor.clone().slice([rows.clone()]);
        Inputs {
            text: TextInputs {
                ids: self.text.ids.clone().slice([rows.clone()]),
                lengths: self.text.lengths[rows.clone()].to_vec(),
                mask: cut(&self.text.mask),
            },
            sound: SoundInputs {
                mel: cut(&self.sound.mel),
                lengths: self.sound.lengths[rows.clone()].to_vec(),
                mask: cut(&self.sound.mask),
            },
            noise: cut(&self.noise),
            times: self.times.clone().slice([rows.clone()]),
            seeds: self.seeds[rows.clone()].to_vec(),
            reference: self.reference.as_ref().map(|reference| ReferenceInputs {
                mel: cut(&reference.mel),
                lengths: reference.lengths[rows.clone()].to_vec(),
            }),
        }
    }

    /// The devices that its tensors are on, which should all be one.
    pub fn devices(&self) -> Vec<Device> {
        let mut all = vec![
            self.text.ids.device(),
            self.text.mask.device(),
            self.sound.mel.device(),
            self.sound.mask.device(),
            self.noise.device(),
            self.times.device(),
        ];
        all.extend(self.reference.as_ref().map(|reference| reference.mel.device()));
        all.into_iter().map(Device::inner).collect()
    }
}

/// Copies a tensor to a device, to be learned from as that device does it.
fn bring(tensor: Tensor<3>, device: &Device) -> Tensor<3> {
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
