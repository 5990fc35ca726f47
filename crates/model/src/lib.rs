//! The acoustic model: XTTS-style speaker conditioning on a flow-matching core (OT-CFM), text to mel; and the neural vocoder.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `config.rs` | [`Size`], [`ModelConfig`]: sizes as data |
//! | `inputs.rs` | [`HostInputs`], [`Inputs`]: a batch on the host and on the device |
//! | `nn.rs` | layers: linear, conv, norm, attention, RoPE, MLP |
//! | `kernels/` | the operations where most of a step is spent, fused on the CPU |
//! | `text_encoder.rs` | text encoder |
//! | `speaker.rs` | speaker conditioning: Perceiver resampler over reference audio |
//! | `aligner.rs` | [`align`]: monotonic alignment search (MAS), on the host |
//! | `duration.rs` | duration predictor |
//! | `pitch.rs` | pitch conditioning: predictor and embedding |
//! | `decoder.rs` | mean decoder, and flow-matching decoder: `x_t` to the clean mel `x1` |
//! | `voice.rs` | [`Voice`]: all of it; losses, and the parts that synthesis calls |
//! | `vocoder.rs` | [`NeuralVocoder`]: mel and pitch to waveform, and its losses |
//! | `vocoder/config.rs` | [`VocoderConfig`]: its shapes |
//! | `vocoder/inputs.rs` | [`VocoderInputs`]: its batches |
//! | `discriminator.rs` | [`Discriminators`]: what tells a vocoder's waveforms from recordings |
//! | `weights.rs` | parameters by name, in the layouts of files |
//! | `tensors.rs` | tensors of files: safetensors |
//!
//! Nothing here assumes a device: a model and its inputs live on the [`Device`] they are made on.

mod aligner;
mod config;
mod decoder;
mod discriminator;
mod duration;
mod inputs;
pub mod kernels;
mod nn;
mod pitch;
mod speaker;
mod tensors;
mod text_encoder;
mod vocoder;
mod voice;
pub mod weights;

pub use aligner::{MIN_FRAMES, MeanPredictor, STATES, align, alignment_seconds};
pub use burn;
pub use burn::tensor::Device;
pub use config::{BlocksConfig, DecoderConfig, ModelConfig, REFERENCE_FRAMES, Size, SpeakerConfig, TextConfig};
pub use decoder::{Condition, Conditioning, Decoder, DecoderBlock, Regressor};
pub use discriminator::{Conv2d, Discriminators, Judge, Judgement};
pub use duration::DurationPredictor;
pub use inputs::{
    DeviceMel, Dropout, FlowInputs, HostInputs, HostReference, InputShape, Inputs, MelInputs, ReferenceInputs,
    TextInputs, batch_bytes, uploads,
};
pub use nn::{Attention, Conv1d, DepthwiseConv1d, Embedding, LayerNorm, Linear, Mlp, Rope};
pub use pitch::{Pitch, PitchInputs};
pub use speaker::{Resampler, ResamplerBlock, Speaker, SpeakerCondition};
pub use text_encoder::{Block, ConvLayer, TextEncoder};
pub use vocoder::{
    AdversarialLosses, DeviceSpectra, DiscriminatorConfig, HostVocoderInputs, MelLoss, NeuralVocoder, VocoderBlock,
    VocoderConfig, VocoderInputs, VocoderLosses, pitch_features,
};
pub use voice::{Encoded, LossTerms, Losses, SIGMA_MIN, Totals, Voice};
