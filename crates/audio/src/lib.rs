//! Speech audio: decoding, trimming, resampling, log-mel, pitch, mel-cepstra, Griffin-Lim. Pure functions on samples, buffers reused.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `wav.rs` | WAV: a header parser of our own, PCM and float straight to `f32`, damage named |
//! | `decode.rs` | any file to mono samples: WAV by `wav.rs`; FLAC, MP3 and OGG by symphonia; lengths from headers |
//! | `recording.rs` | [`Recording`]: a file of any length, decoded block by block |
//! | `processing.rs` | [`Processing`]: silence at both ends cut, loudness normalized, by what is heard in a clip |
//! | `resample.rs` | to another rate, whole clips |
//! | `mel.rs` | [`MelSettings`], Slaney filters, and [`LogMel`]: samples to log-mel frames, equal to librosa's |
//! | `simd/` | the transform behind it: eight frames at a time, compiled for the machine's vector unit |
//! | `pitch.rs` | [`PitchTracker`]: F0 on the grid of the mel, by autocorrelation |
//! | `cepstrum/` | [`mel_cepstra`], [`distortion`]: mel-cepstral distortion, equal to `pymcd`'s |
//! | `vocoder/` | [`Vocoder`]: log-mel to waveform; [`GriffinLim`] (it sounds metallic) |
//! | `mel_stats.rs` | [`MelStats`]: normalization of each band |
//! | `write.rs`, `flac.rs` | samples to a 16-bit WAV or FLAC file |
//! | `formant.rs` | [`formant`]: a small synthesizer whose sounds have known times, for tests and the demo |
//!
//! ```
//! use tandem_audio::{LogMel, MelSettings};
//!
//! let settings = MelSettings::default();
//! let mut log_mel = LogMel::new(&settings)?;
//! let tone: Vec<f32> = (0..22_050).map(|n| (n as f32 * 0.1).sin()).collect();
//! let mel = log_mel.compute(&tone);
//! assert_eq!(mel.len(), settings.n_mels * settings.frames(tone.len()));
//! # Ok::<(), tandem_audio::SettingsError>(())
//! ```

#![forbid(unsafe_code)]

mod cepstrum;
mod decode;
mod flac;
pub mod formant;
mod mel;
mod mel_stats;
mod pitch;
mod processing;
mod recording;
mod resample;
mod simd;
mod vocoder;
mod wav;
mod write;

pub use cepstrum::{CEPSTRUM_PERIOD, MelCepstrum, distortion, mel_cepstra, warp_cepstra};
pub use decode::{AudioError, Decoder, SampleFault, Shape, open_audio, probe};
pub use flac::{FlacEncoder, write_flac};
pub use mel::{LogMel, MelSettings, Padding, SettingsError, hann_window, mel_filters};
pub use mel_stats::MelStats;
pub use pitch::PitchTracker;
pub use processing::{Levels, Processing, loudness_gain, speech_range};
pub use recording::Recording;
pub use resample::Resampler;
pub use vocoder::{
    GriffinLim, MOST_LOG_MEL, Prior, SourceFilter, SourceStream, SourceTables, Vocoder, WaveformStream, open_vocoder,
};
pub use wav::parse_wav;
pub use write::{WavWriter, write_wav};
