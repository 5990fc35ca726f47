//! Text to waveform with a trained voice, on any device. What `synth`, `demo`, `evaluate` and training samples call.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `sampler.rs` | [`sample_mel`]: durations, then the flow from noise to mel (Euler or midpoint) |
//! | `synthesizer.rs` | [`Synthesizer`]: tokens to waveform; speakers from reference audio or by name |
//! | `sentences.rs` | [`sentences`]: long texts in pieces; [`join`]: their waveforms without clicks |
//! | `evaluate.rs` | [`evaluate`]: mel, duration and boundary errors on held-out clips |
//! | `validation.rs` | [`validation_losses`]: the loss on clips that are not trained on |

#![forbid(unsafe_code)]

mod evaluate;
mod sampler;
mod sentences;
mod synthesizer;
mod validation;

pub use evaluate::{ClipScore, Evaluation, HeldOutBatch, alignment_of, evaluate};
pub use sampler::{SampledMel, Solver, SynthesisSettings, sample_mel};
pub use sentences::{join, sentences};
pub use synthesizer::{Bundle, Speech, SynthesisError, Synthesizer};
pub use validation::validation_losses;
