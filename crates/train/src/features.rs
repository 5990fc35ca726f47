//! From a batch of the loader to what the model wants: normalised frames, noise, moments of the flow.

use serde::{Deserialize, Serialize};
use tandem_data::{Batch, Loader};
use tandem_flow::{Cursor, Random};
use tandem_model::{HostInputs, HostReference};

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
                    batch.mel[row * n_mels * batch.frames..(row + 1) * n_mels * batch.frames].chunks(batch.frames);
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

/// A batch, ready for the model's device.
#[derive(Debug)]
pub struct Prepared {
    /// Its place in the run.
    pub cursor: Cursor,
    /// Its clips.
    pub clips: Vec<u32>,
    /// Seconds of audio.
    pub seconds: f64,
    /// What the model gets.
    pub inputs: HostInputs,
}

/// Normalises a batch and draws what is random about it: by seed, epoch and clip alone, so that neither threads nor
/// the company of other clips nor a kill changes anything.
pub fn prepare(batch: &Batch, stats: &MelStats, seed: u64, group: usize) -> Prepared {
    let (rows, n_mels) = (batch.rows, batch.n_mels);
    let frames = batch.frames.next_multiple_of(group);
    let size = frames * n_mels;
    let mut mel = vec![0.0; rows * size];
    let mut noise = vec![0.0; rows * size];
    let mut times = vec![0.0; rows];
    let mut seeds = vec![0; rows];
    for (row, &clip) in batch.clips.iter().enumerate() {
        let from = &batch.mel[row * n_mels * batch.frames..(row + 1) * n_mels * batch.frames];
        stats.normalise(from, batch.frames, batch.mel_lengths[row], &mut mel[row * size..(row + 1) * size]);
        let place = [seed, batch.cursor.epoch, u64::from(clip)];
        // As many as the clip has frames: the same whatever it is padded to.
        let own = batch.mel_lengths[row] * n_mels;
        Random::at(&[place[0], place[1], place[2], 2]).fill_normal(&mut noise[row * size..row * size + own]);
        times[row] = Random::at(&[place[0], place[1], place[2], 3]).unit() as f32;
        seeds[row] = Random::at(&[place[0], place[1], place[2], 4]).next();
    }
    let reference = batch.reference.as_ref().map(|reference| {
        let size = reference.frames * n_mels;
        let mut out = vec![0.0; rows * size];
        for (row, &length) in reference.lengths.iter().enumerate() {
            let from = &reference.mel[row * size..(row + 1) * size];
            stats.normalise(from, reference.frames, length, &mut out[row * size..(row + 1) * size]);
        }
        HostReference { frames: reference.frames, mel: out, lengths: reference.lengths.clone() }
    });
    Prepared {
        cursor: batch.cursor,
        clips: batch.clips.clone(),
        seconds: batch.seconds,
        inputs: HostInputs {
            rows,
            tokens: batch.tokens,
            frames,
            n_mels,
            ids: batch.ids.clone(),
            id_lengths: batch.id_lengths.clone(),
            mel,
            mel_lengths: batch.mel_lengths.clone(),
            noise,
            times,
            seeds,
            reference,
        },
    }
}
