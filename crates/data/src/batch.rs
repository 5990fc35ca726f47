//! A padded batch with true lengths.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use tandem_audio::MelSettings;
use tandem_flow::Cursor;
use xxhash_rust::xxh3::Xxh3;

use crate::fault::FaultReport;

/// Clips padded to one shape. Dropping it gives its large buffer back for the next batch.
#[derive(Debug)]
pub struct Batch {
    /// Its place in the run.
    pub cursor: Cursor,
    /// Which clips, by number in the corpus; one for each row that has a clip.
    pub clips: Vec<u32>,
    /// Who speaks, for each clip.
    pub speakers: Vec<u16>,
    /// Rows; those after the clips are empty.
    pub rows: usize,
    /// Tokens of each row, padding included.
    pub tokens: usize,
    /// Frames of each row, padding included.
    pub frames: usize,
    /// Values of each frame.
    pub n_mels: usize,
    /// Token ids, `rows * tokens`, padded with 0.
    pub ids: Vec<i32>,
    /// True numbers of tokens, one for each row.
    pub id_lengths: Vec<usize>,
    /// What the audio is given as.
    pub form: Form,
    /// The audio: for each row `form.row_values(frames)`, padded with 0.
    pub audio: Buffer,
    /// Pitch of each frame in Hz, `[rows][frames]`, when asked for; 0 where there is none.
    pub pitch: Option<Vec<f32>>,
    /// Frames of each token, for the rows whose clips were aligned before; empty when no clip was.
    pub durations: Vec<Option<Vec<u32>>>,
    /// Noise `x0` for flow matching, `[rows][frames][n_mels]`, when asked for; 0 beyond a row's true length.
    pub noise: Option<Buffer>,
    /// True numbers of frames, one for each row.
    pub mel_lengths: Vec<usize>,
    /// Seconds of audio in it.
    pub seconds: f64,
    /// Another crop of the same speaker for each row, when asked for.
    pub reference: Option<Reference>,
    /// Clips that turned out to be bad, and are therefore not in it.
    pub(crate) faults: Vec<(u32, FaultReport)>,
}

impl Batch {
    /// A hash of its clips, texts and audio: equal batches have equal ones, wherever the corpus lies.
    pub fn digest(&self) -> u64 {
        let mut hash = Xxh3::new();
        let mut bytes = Vec::with_capacity(4 << 12);
        for values in self.audio.chunks(1 << 12) {
            bytes.clear();
            values.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
            hash.update(&bytes);
        }
        self.clips.iter().for_each(|clip| hash.update(&clip.to_le_bytes()));
        self.speakers.iter().for_each(|speaker| hash.update(&speaker.to_le_bytes()));
        self.ids.iter().for_each(|id| hash.update(&id.to_le_bytes()));
        hash.digest()
    }
}

/// What the audio of a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Log-mel, `[bands][frames]`.
    LogMel,
    /// Normalized log-mel, `[frames][bands]`: what the model's device takes.
    Frames,
    /// Samples, for features that are computed on a device.
    Signal,
}

/// How a row of audio lies in memory: `bands` lines (time last), where frame `n` begins at value `n * step` of each
/// line and needs `window` values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// What the values are.
    pub layout: Layout,
    /// Lines.
    pub bands: usize,
    /// Values from one frame to the next.
    pub step: usize,
    /// Values that a frame needs.
    pub window: usize,
}

impl Form {
    /// Log-mel frames.
    pub fn log_mel(settings: &MelSettings) -> Form {
        Form { layout: Layout::LogMel, bands: settings.n_mels, step: 1, window: 1 }
    }

    /// Normalized frames, each with all its bands: one line.
    pub fn frames(settings: &MelSettings) -> Form {
        Form { layout: Layout::Frames, bands: 1, step: settings.n_mels, window: settings.n_mels }
    }

    /// Samples, padded at both ends as the frames need it: for features that are computed later.
    pub fn signal(settings: &MelSettings) -> Form {
        Form { layout: Layout::Signal, bands: 1, step: settings.hop_length, window: settings.n_fft }
    }

    /// Values of a line that has this many frames.
    pub fn columns(&self, frames: usize) -> usize {
        frames.checked_sub(1).map_or(0, |last| last * self.step + self.window)
    }

    /// Values of a row that has this many frames.
    pub fn row_values(&self, frames: usize) -> usize {
        self.bands * self.columns(frames)
    }
}

/// Crops of other clips of the same speakers.
#[derive(Debug)]
pub struct Reference {
    /// Frames of each row, padding included.
    pub frames: usize,
    /// The audio, in the form of the batch, padded with 0.
    pub audio: Buffer,
    /// True numbers of frames, one for each row.
    pub lengths: Vec<usize>,
}

/// Where large buffers wait to be used again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recycler(Arc<Mutex<Vec<Vec<f32>>>>);

impl Recycler {
    /// A buffer of this length with any content.
    pub(crate) fn take(&self, length: usize) -> Buffer {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut values = kept.unwrap_or_default();
        if values.capacity() < length {
            // A reserve of its own choice would double what is needed; batches are of nearly one size.
            values = vec![0.0; length];
        }
        values.resize(length, 0.0);
        Buffer { values, home: self.clone() }
    }
}

/// A buffer that goes back where it came from.
#[derive(Debug)]
pub struct Buffer {
    values: Vec<f32>,
    home: Recycler,
}

impl Buffer {
    /// The values themselves; they do not go back.
    pub fn into_vec(mut self) -> Vec<f32> {
        std::mem::take(&mut self.values)
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.values
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut home = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A few suffice: those that are in use come back one by one.
        if home.len() < 4 && self.values.capacity() > 0 {
            home.push(std::mem::take(&mut self.values));
        }
    }
}
