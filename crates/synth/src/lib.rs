//! Text to waveform with a trained voice, on any device. What `synth`, `demo`, `evaluate` and training samples call.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `sampler.rs` | [`sample_mel`]: durations, then the flow from noise to mel (Euler or midpoint) |
//! | `synthesizer.rs` | [`Synthesizer`]: tokens to waveform; speakers from reference audio or by name |
//! | `sentences.rs` | [`sentences`]: long texts in pieces; [`join`]: their waveforms without clicks |
//! | `evaluate.rs` | [`evaluate`]: mel, duration and boundary errors on held-out clips |
//! | `evaluate/measures.rs` | [`Measures`]: mel-cepstral distortion, F0, voicing, durations beside the copy-synthesis |
//! | `misfit.rs` | [`odd_misfits`]: clips whose text does not fit their audio |
//! | `validation.rs` | [`validation_losses`]: the loss on clips that are not trained on |

mod evaluate;
mod misfit;
mod sampler;
mod sentences;
mod synthesizer;
mod validation;

pub use evaluate::{
    ClipFigures, ClipMeasures, ClipScore, Distance, Evaluation, HeldOutBatch, MeasureError, Measures, SpokenClip,
    alignment_of, evaluate, speak_batch,
};
pub use misfit::{Misfit, misfit_reason, misfits, odd_misfits};
pub use sampler::{SampledMel, Solver, SynthesisSettings, sample_mel};
pub use sentences::{join, sentences};
pub use synthesizer::{Bundle, Speech, SynthesisError, Synthesizer};
pub use validation::validation_losses;
