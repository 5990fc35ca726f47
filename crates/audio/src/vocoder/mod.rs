//! Log-mel to waveform. A vocoder is one file here, or in a crate that has a model: an implementation of [`Vocoder`].
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `griffin_lim.rs` | [`GriffinLim`]: no training, sounds metallic |
//! | `source.rs` | [`SourceFilter`]: excitation and envelope, what a trained vocoder starts from |
//! | `noise.rs` | noise by seed |

mod griffin_lim;
mod noise;
mod source;

use std::fmt;

use crate::mel::{MelSettings, SettingsError};

pub use griffin_lim::GriffinLim;
pub use source::{Prior, SourceFilter};

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
    /// where there is none) is known.
    ///
    /// # Panics
    ///
    /// If `log_mel` has fewer values than that, or `pitch` fewer than `frames`.
    fn synthesize(&self, log_mel: &[f32], frames: usize, pitch: Option<&[f32]>) -> Vec<f32>;
}
