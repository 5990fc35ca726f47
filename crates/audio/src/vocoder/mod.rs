//! Log-mel to waveform. A vocoder is one file here, or in a crate that has a model: an implementation of [`Vocoder`].
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `griffin_lim.rs` | [`GriffinLim`]: no training, sounds metallic |

mod griffin_lim;

use std::fmt;

use crate::mel::MelSettings;

pub use griffin_lim::GriffinLim;

/// Makes a waveform of log-mel frames.
pub trait Vocoder: fmt::Debug + Send + Sync {
    /// What its frames are; mels made with other settings are not for it.
    fn mel(&self) -> &MelSettings;

    /// The waveform of `[n_mels][frames]`, at the sample rate of [`Vocoder::mel`].
    ///
    /// # Panics
    ///
    /// If `log_mel` has fewer values than that.
    fn synthesize(&self, log_mel: &[f32], frames: usize) -> Vec<f32>;
}
