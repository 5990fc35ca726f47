//! A padded batch with true lengths.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use tandem_flow::Cursor;

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
    /// Log-mel, `rows * n_mels * frames` (time last), padded with 0.
    pub mel: Buffer,
    /// True numbers of frames, one for each row.
    pub mel_lengths: Vec<usize>,
    /// Seconds of audio in it.
    pub seconds: f64,
    /// Another crop of the same speaker for each row, when asked for.
    pub reference: Option<Reference>,
    /// Clips that turned out to be bad, and are therefore not in it.
    pub(crate) faults: Vec<(u32, FaultReport)>,
}

/// Crops of other clips of the same speakers.
#[derive(Debug)]
pub struct Reference {
    /// Frames of each row, padding included.
    pub frames: usize,
    /// Log-mel, `rows * n_mels * frames` (time last), padded with 0.
    pub mel: Vec<f32>,
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
            values = Vec::with_capacity(length);
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
        if home.len() < 2 {
            home.push(std::mem::take(&mut self.values));
        }
    }
}
