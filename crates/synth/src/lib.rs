//! Text to waveform with a trained voice, on any device. What `synth`, `demo`, `evaluate` and training samples call.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `sampler.rs` | [`sample_mel`]: durations, then the flow from noise to mel (Euler or midpoint) |
//! | `synthesizer.rs` | [`Synthesizer`]: tokens to waveform; speakers from reference audio or by name |
//! | `neural_vocoder.rs` | [`TrainedVocoder`]: a trained vocoder, mel to waveform |
//! | `sentences.rs` | [`sentences`]: a long text in pieces |
//! | `speaking.rs` | [`Sentences`] (encoded) and [`Speaking`] (spoken, in batches): iterators over a text of any length |
//! | `join.rs` | [`Joiner`]: the waveforms of sentences one after the other, without clicks |
//! | `evaluate.rs` | [`evaluate`]: mel, duration and boundary errors on held-out clips |
//! | `evaluate/measures.rs` | [`Measures`]: mel-cepstral distortion, F0, voicing, durations beside the copy-synthesis |
//! | `misfit.rs` | [`odd_misfits`]: clips whose text does not fit their audio |
//! | `validation.rs` | [`validation_losses`]: the loss on clips that are not trained on |

#![forbid(unsafe_code)]

mod evaluate;
mod join;
mod misfit;
mod neural_vocoder;
mod sampler;
mod sentences;
mod speaking;
mod synthesizer;
mod validation;

pub use evaluate::{
    ClipFigures, ClipMeasures, ClipScore, Distance, Evaluation, HeldOutBatch, MeasureError, Measures, SpokenClip,
    alignment_of, evaluate, read_recording, speak_batch,
};
pub use join::{Joined, Joiner};
pub use misfit::{Misfit, misfit_reason, misfits, odd_misfits};
pub use neural_vocoder::{TrainedVocoder, vocoder_row};
pub use sampler::{SampledMel, Solver, SynthesisSettings, Take, sample_mel};
pub use sentences::sentences;
pub use speaking::{MOST_TOKENS, Sentence, Sentences, Speaking, Utterance};
pub use synthesizer::{Bundle, Row, Speech, SynthesisError, Synthesizer};
pub use validation::validation_losses;
