//! Log-mel to waveform. A vocoder is one file here, or in a crate that has a model: an implementation of [`Vocoder`].
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `griffin_lim.rs` | [`GriffinLim`]: no training, sounds metallic |
//! | `source.rs` | [`SourceFilter`]: excitation and envelope, what a trained vocoder starts from |
//! | `excitation.rs` | pulses of a pitch, and noise, sample by sample |
//! | `stream.rs` | [`SourceStream`]: a source that is made in pieces |
//! | `noise.rs` | noise by seed |

mod excitation;
mod griffin_lim;
mod noise;
mod source;
mod stream;

use std::fmt;

use crate::mel::{MelSettings, SettingsError};

pub use griffin_lim::GriffinLim;
pub use source::{MOST_LOG_MEL, Prior, SourceFilter, SourceTables};
pub use stream::SourceStream;

/// The vocoder for frames of these settings. The one place that chooses: what synthesizes knows only [`Vocoder`].
///
/// # Errors
///
/// [`SettingsError`] if they contradict themselves.
pub fn open_vocoder(settings: &MelSettings) -> Result<Box<dyn Vocoder>, SettingsError> {
    Ok(Box::new(GriffinLim::new(settings)?))
}

/// Makes a waveform of log-mel frames.
pub trait Vocoder: fmt::Debug + Send + Sync {
    /// What its frames are; mels made with other settings are not for it.
    fn mel(&self) -> &MelSettings;

    /// The waveform of `[n_mels][frames]`, at the sample rate of [`Vocoder::mel`]; better if the pitch of each frame (Hz, 0
    /// where there is none) is known. The mel is one that a model predicted: it says what is to be expected of a frame, not what was
    /// measured. So the waveform has it on average, and noise may be as uneven as noise is.
    ///
    /// # Panics
    ///
    /// If `log_mel` has fewer values than that, or `pitch` fewer than `frames`.
    fn synthesize(&self, log_mel: &[f32], frames: usize, pitch: Option<&[f32]>) -> Vec<f32>;

    /// The same for the mel of a recording (copy-synthesis): every frame was measured, so the waveform is to have exactly that.
    ///
    /// # Panics
    ///
    /// As [`Vocoder::synthesize`].
    fn resynthesize(&self, log_mel: &[f32], frames: usize, pitch: Option<&[f32]>) -> Vec<f32> {
        self.synthesize(log_mel, frames, pitch)
    }

    /// The same for frames that arrive one after the other, at least `chunk` of them at a time. A vocoder that cannot make a waveform
    /// in pieces makes all of it at the end.
    fn stream(&self, _chunk: usize) -> Box<dyn WaveformStream + '_> {
        Box::new(Whole { vocoder: self, mel: Vec::new(), pitch: Vec::new() })
    }
}

/// A waveform that is made while its frames arrive. All pieces together are what [`Vocoder::synthesize`] makes of all frames, up to
/// rounding.
pub trait WaveformStream: Send {
    /// The next frames, `[n_mels][frames]`, with the pitch of each (Hz, 0 where there is none); returns the samples that do not depend on
    /// what is still to come.
    fn push(&mut self, log_mel: &[f32], pitch: &[f32]) -> Vec<f32>;

    /// The samples that are left, when no more frames will come.
    fn finish(self: Box<Self>) -> Vec<f32>;
}

/// All frames, until the last one is there.
struct Whole<'a, V: ?Sized> {
    vocoder: &'a V,
    /// Frame by frame.
    mel: Vec<Vec<f32>>,
    pitch: Vec<f32>,
}

impl<V: Vocoder + ?Sized> WaveformStream for Whole<'_, V> {
    fn push(&mut self, log_mel: &[f32], pitch: &[f32]) -> Vec<f32> {
        self.mel.extend(stream::by_frame(log_mel, pitch.len()));
        self.pitch.extend_from_slice(pitch);
        Vec::new()
    }

    fn finish(self: Box<Self>) -> Vec<f32> {
        let log_mel = stream::by_band(&self.mel, self.vocoder.mel().n_mels);
        self.vocoder.synthesize(&log_mel, self.mel.len(), Some(&self.pitch))
    }
}
