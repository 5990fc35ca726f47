//! From a batch of the loader to what the model wants: normalised frames, noise, moments of the flow; then to its
//! device.

use serde::{Deserialize, Serialize};
use tandem_data::{Batch, Buffer, Loader};
use tandem_flow::{Cursor, Random};
use tandem_model::{Device, DeviceSound, HostInputs, HostReference, Inputs};

/// Clips that are measured for [`MelStats`].
const MEASURED_CLIPS: usize = 256;
/// A band that hardly varies (above the range of the recording, say) is not blown up to noise.
const LEAST_DEVIATION: f64 = 0.25;

/// Mean and deviation of each band.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MelStats {
    /// Of each band.
    pub mean: Vec<f32>,
    /// Of each band.
    pub deviation: Vec<f32>,
}

impl MelStats {
    /// Measures the first clips of epoch 0. None when not one can be read.
    pub fn measure(loader: &Loader) -> Option<MelStats> {
        let n_mels = loader.corpus().settings().mel.n_mels;
        let (mut sums, mut squares, mut frames, mut clips) = (vec![0f64; n_mels], vec![0f64; n_mels], 0usize, 0usize);
        for planned in loader.plan(0) {
            let batch = loader.load(&planned);
            for (row, &length) in batch.mel_lengths.iter().enumerate() {
                let rows =
                    batch.sound[row * n_mels * batch.frames..(row + 1) * n_mels * batch.frames].chunks(batch.frames);
                for (band, values) in rows.enumerate() {
                    for &value in &values[..length] {
                        sums[band] += f64::from(value);
                        squares[band] += f64::from(value).powi(2);
                    }
                }
                frames += length;
            }
            clips += batch.clips.len();
            if clips >= MEASURED_CLIPS {
                break;
            }
        }
        if frames == 0 {
            return None;
        }
        let mean: Vec<f64> = sums.iter().map(|sum| sum / frames as f64).collect();
        let deviation = (squares.iter().zip(&mean))
            .map(|(square, mean)| (square / frames as f64 - mean * mean).max(0.0).sqrt().max(LEAST_DEVIATION) as f32)
            .collect();
        Some(MelStats { mean: mean.into_iter().map(|mean| mean as f32).collect(), deviation })
    }

    /// `[bands][stride]` to normalised `[frames][bands]`, for the first `length` frames.
    pub fn normalise(&self, mel: &[f32], stride: usize, length: usize, out: &mut [f32]) {
        let bands = self.mean.len();
        for (band, values) in mel.chunks(stride).enumerate() {
            let (mean, scale) = (self.mean[band], 1.0 / self.deviation[band]);
            for (frame, value) in values[..length].iter().enumerate() {
                out[frame * bands + band] = (value - mean) * scale;
            }
        }
    }

    /// Normalised `[frames][bands]` back to log-mel `[bands][frames]`.
    pub fn restore(&self, normalised: &[f32], frames: usize) -> Vec<f32> {
        let bands = self.mean.len();
        let mut mel = vec![0.0; frames * bands];
        for (frame, values) in normalised.chunks(bands).take(frames).enumerate() {
            for (band, value) in values.iter().enumerate() {
                mel[band * frames + frame] = value * self.deviation[band] + self.mean[band];
            }
        }
        mel
    }
}

/// A batch whose random parts are drawn. Its sound is normalised log-mel, or samples that features are still to be
/// made of.
#[derive(Debug)]
pub struct Prepared {
    /// Its place in the run.
    pub cursor: Cursor,
    /// Its clips.
    pub clips: Vec<u32>,
    /// Seconds of audio.
    pub seconds: f64,
    /// What the model gets; without sound when there is a signal.
    pub inputs: HostInputs,
    /// Samples.
    pub signal: Option<Signal>,
}

/// The samples of a batch, rows one after the other.
#[derive(Debug)]
pub struct Signal {
    /// Of the clips.
    pub samples: Buffer,
    /// Of the references, if there are any.
    pub reference: Option<Vec<f32>>,
}

/// A batch on the model's device.
#[derive(Debug)]
pub struct Ready {
    /// Its place in the run.
    pub cursor: Cursor,
    /// Its clips.
    pub clips: Vec<u32>,
    /// Seconds of audio.
    pub seconds: f64,
    /// What the model gets.
    pub inputs: Inputs,
}

impl Prepared {
    /// Puts the batch on the model's device, with the sound that the data lane made of it if there is any.
    pub fn upload(self, sound: Option<DeviceSound>, device: &Device) -> Ready {
        let inputs = self.inputs.upload_with(sound, device);
        Ready { cursor: self.cursor, clips: self.clips, seconds: self.seconds, inputs }
    }
}

/// Normalises a batch and draws what is random about it: by seed, epoch and clip alone, so that neither threads nor
/// the company of other clips nor a kill changes anything.
pub fn prepare(batch: Batch, stats: &MelStats, seed: u64, group: usize) -> Prepared {
    let (rows, n_mels, is_mel) = (batch.rows, batch.n_mels, batch.form.step == 1);
    let frames = batch.frames.next_multiple_of(group);
    let size = frames * n_mels;
    let mut mel = vec![0.0; if is_mel { rows * size } else { 0 }];
    let mut noise = vec![0.0; rows * size];
    let mut times = vec![0.0; rows];
    let mut seeds = vec![0; rows];
    for (row, &clip) in batch.clips.iter().enumerate() {
        if is_mel {
            let from = &batch.sound[row * n_mels * batch.frames..(row + 1) * n_mels * batch.frames];
            stats.normalise(from, batch.frames, batch.mel_lengths[row], &mut mel[row * size..(row + 1) * size]);
        }
        let place = [seed, batch.cursor.epoch, u64::from(clip)];
        // As many as the clip has frames: the same whatever it is padded to.
        let own = batch.mel_lengths[row] * n_mels;
        Random::at(&[place[0], place[1], place[2], 2]).fill_normal(&mut noise[row * size..row * size + own]);
        times[row] = Random::at(&[place[0], place[1], place[2], 3]).unit() as f32;
        seeds[row] = Random::at(&[place[0], place[1], place[2], 4]).next();
    }
    let (mut heard, mut reference_signal) = (None, None);
    if let Some(reference) = batch.reference {
        let size = reference.frames * n_mels;
        let mut out = vec![0.0; if is_mel { rows * size } else { 0 }];
        for (row, &length) in reference.lengths.iter().enumerate().filter(|_| is_mel) {
            let from = &reference.sound[row * size..(row + 1) * size];
            stats.normalise(from, reference.frames, length, &mut out[row * size..(row + 1) * size]);
        }
        heard = Some(HostReference { frames: reference.frames, mel: out, lengths: reference.lengths });
        reference_signal = Some(reference.sound);
    }
    let signal = (!is_mel).then_some(Signal { samples: batch.sound, reference: reference_signal });
    Prepared {
        cursor: batch.cursor,
        clips: batch.clips,
        seconds: batch.seconds,
        inputs: HostInputs {
            rows,
            tokens: batch.tokens,
            frames,
            n_mels,
            ids: batch.ids,
            id_lengths: batch.id_lengths,
            mel,
            mel_lengths: batch.mel_lengths,
            noise,
            times,
            seeds,
            reference: heard,
        },
        signal,
    }
}
