//! A voice that learns to speak: XTTS-style conditioning on a flow-matching core.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `config.rs` | [`Size`], [`ModelConfig`]: sizes as data |
//! | `inputs.rs` | [`HostInputs`], [`Inputs`]: a batch on the host and on the device |
//! | `nn.rs` | the layers |
//! | `kernels.rs` | the operations where most of a step is spent |
//! | `text_encoder.rs` | text to features |
//! | `speaker.rs` | reference audio to a voice |
//! | `aligner.rs` | [`align`]: which frames belong to which token, on the host |
//! | `duration.rs` | how long each token is |
//! | `decoder.rs` | noise to sound |
//! | `voice.rs` | [`Voice`]: all of it; losses and speech |
//! | `weights.rs` | parameters by name, safetensors |
//!
//! Nothing here assumes a device: a model and its inputs live on the [`Device`] they are made on.

mod aligner;
mod config;
mod decoder;
mod duration;
mod inputs;
pub mod kernels;
mod nn;
mod speaker;
mod text_encoder;
mod voice;
pub mod weights;

pub use aligner::{MeanPredictor, align, alignment_seconds};
pub use burn;
pub use burn::tensor::Device;
pub use config::{DecoderConfig, ModelConfig, REFERENCE_FRAMES, Size, SpeakerConfig, TextConfig};
pub use decoder::{Condition, Decoder, DecoderBlock};
pub use duration::DurationPredictor;
pub use inputs::{
    DeviceSound, HostInputs, HostReference, Inputs, ReferenceInputs, SoundInputs, TextInputs, batch_bytes,
};
pub use nn::{Attention, Conv1d, DepthwiseConv1d, Embedding, FeedForward, LayerNorm, Linear};
pub use speaker::{Resampler, ResamplerBlock, Speaker, VoiceVectors};
pub use text_encoder::{Block, ConvLayer, TextEncoder};
pub use voice::{Losses, SpeakSettings, Spoken, Totals, Voice};
