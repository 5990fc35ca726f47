//! From a batch of the loader to what the model wants: normalized frames, noise, timesteps; then to its
//! device.

use tandem_audio::MelStats;
use tandem_data::{Batch, Buffer, Layout, Loader};
use tandem_flow::{Cursor, Random};
use tandem_model::{Device, DeviceMel, HostInputs, HostReference, InputShape, Inputs};

/// Clips that [`MelStats`] are measured on.
const MEASURED_CLIPS: usize = 256;

/// Mean and standard deviation of each band over the first clips of epoch 0. `None` when not one can be read.
/// They are read with the loader's cache, so that the first epoch finds them there.
pub fn measure_mel_stats(loader: &Loader) -> Option<MelStats> {
    let loader = loader.log_mel();
    let n_mels = loader.corpus().settings().mel.n_mels;
    let (mut sums, mut squares, mut frames, mut clips) = (vec![0f64; n_mels], vec![0f64; n_mels], 0usize, 0usize);
    for planned in loader.plan(0) {
        let batch = loader.load(&planned);
        for (row, &length) in batch.mel_lengths.iter().enumerate() {
            let rows = batch.audio[row * n_mels * batch.frames..(row + 1) * n_mels * batch.frames].chunks(batch.frames);
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
    MelStats::from_sums(&sums, &squares, frames)
}

/// A batch whose random parts are drawn. Its audio is normalized log-mel, or samples that features are still to be
/// made of.
#[derive(Debug)]
pub struct Prepared {
    /// Its place in the run.
    pub cursor: Cursor,
    /// Its clips.
    pub clips: Vec<u32>,
    /// Seconds of audio.
    pub seconds: f64,
    /// What the model gets; without mels when there is a signal.
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
    pub reference: Option<Buffer>,
}

/// A batch on the model's device.
#[derive(Debug)]
pub struct Ready<I = Inputs> {
    /// Its place in the run.
    pub cursor: Cursor,
    /// Its clips.
    pub clips: Vec<u32>,
    /// Seconds of audio.
    pub seconds: f64,
    /// What the model gets.
    pub inputs: I,
}

impl Prepared {
    /// Puts the batch on the model's device, with the mel that the data lane made of it if there is any.
    pub fn upload(self, mel: Option<DeviceMel>, shape: &InputShape, device: &Device) -> Ready {
        let inputs = self.inputs.upload_with(mel, shape, device);
        Ready { cursor: self.cursor, clips: self.clips, seconds: self.seconds, inputs }
    }
}

/// Makes the model's inputs of a batch. What is random about them (noise, timestep, dropout seed) depends on seed, epoch
/// and clip alone, so that neither threads nor the company of other clips nor a kill changes anything. Workers of a run
/// have normalized the mels and drawn the noise already; then nothing is copied here. Without `flow` there is no noise.
pub fn prepare(batch: Batch, stats: &MelStats, seed: u64, group: usize, flow: bool) -> Prepared {
    let (rows, n_mels, layout) = (batch.rows, batch.n_mels, batch.form.layout);
    let frames = batch.frames.next_multiple_of(group);
    let size = frames * n_mels;
    let random = |clip: u32, what: u64| Random::at(&[seed, batch.cursor.epoch, u64::from(clip), what]);
    let (mut timesteps, mut seeds) = (vec![0.0; rows], vec![0; rows]);
    for (row, &clip) in batch.clips.iter().enumerate() {
        timesteps[row] = random(clip, 3).unit() as f32;
        seeds[row] = random(clip, 4).next();
    }
    let noise = batch.noise.map(Buffer::into_vec).unwrap_or_else(|| {
        let mut noise = vec![0.0; if flow { rows * size } else { 0 }];
        for (row, &clip) in batch.clips.iter().enumerate().filter(|_| flow) {
            // As many as the clip has frames: the same whatever it is padded to.
            let own = batch.mel_lengths[row] * n_mels;
            random(clip, 2).fill_normal(&mut noise[row * size..row * size + own]);
        }
        noise
    });
    let normalized = |from: Buffer, stride: usize, frames: usize, lengths: &[usize]| match layout {
        Layout::Frames => from.into_vec(),
        Layout::Signal => Vec::new(),
        Layout::LogMel => {
            let (from_size, size) = (stride * n_mels, frames * n_mels);
            let mut mel = vec![0.0; rows * size];
            for (row, &length) in lengths.iter().enumerate() {
                let from = &from[row * from_size..(row + 1) * from_size];
                stats.normalize(from, stride, length, &mut mel[row * size..(row + 1) * size]);
            }
            mel
        }
    };
    let pitch = batch.pitch.map_or_else(Vec::new, |pitch| padded(pitch, batch.frames, frames));
    let (mut signal, mut reference) = (None, None);
    let heard = batch.reference.map(|heard| (heard.frames, heard.lengths, heard.audio));
    let mel = match layout {
        Layout::Signal => {
            let samples = batch.audio;
            let heard = heard.map(|(frames, lengths, audio)| {
                reference = Some(HostReference { frames, mel: Vec::new(), lengths });
                audio
            });
            signal = Some(Signal { samples, reference: heard });
            Vec::new()
        }
        Layout::LogMel | Layout::Frames => {
            reference = heard.map(|(frames, lengths, audio)| {
                let mel = normalized(audio, frames, frames, &lengths);
                HostReference { frames, mel, lengths }
            });
            normalized(batch.audio, batch.frames, frames, &batch.mel_lengths)
        }
    };
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
            pitch,
            durations: batch.durations,
            noise,
            timesteps,
            seeds,
            reference,
        },
        signal,
    }
}

/// Rows of `from` values as rows of `to`, which are not fewer.
fn padded(values: Vec<f32>, from: usize, to: usize) -> Vec<f32> {
    if from == to {
        return values;
    }
    values.chunks(from).flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(0.0, to - from))).collect()
}
