//! From text features at the rate of frames to mel, in two steps: a [`Regressor`] of the mean mel, and the
//! [`Decoder`] of the flow-matching model (OT-CFM), which takes the noisy mel `x_t` to the clean mel `x1`, conditioned on
//! the mean, text, durations, speaker and timestep.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::config::{BlocksConfig, ModelConfig};
use crate::inputs::TIMESTEP_FEATURES;
use crate::kernels::{gelu, modulated_norm, tapped};
use crate::nn::{DepthwiseConv1d, Init, LayerNorm, Linear, Mlp};
use crate::pitch::PitchInputs;

const KERNEL_SIZE: usize = 7;
/// Features of where in its token a position lies.
pub(crate) const PLACE_FEATURES: usize = 4;

/// Predicts the clean mel `x1` from `x_t`. Not the velocity: that contains the noise, and a width of 128 cannot carry the
/// noise of 2 x 80 bands from input to output (seen: speckle without harmonics, mel error 42 % instead of 24 %).
#[derive(Module, Debug)]
pub struct Decoder {
    /// `x_t`, the text's mean mel and the place in the token, a group of frames per position.
    pub input: Linear,
    /// Timestep and speaker.
    pub condition: Condition,
    /// ConvNeXt-like blocks.
    pub blocks: Vec<DecoderBlock>,
    /// Final norm.
    pub norm: LayerNorm,
    /// To a group of frames, added to the mean mel.
    pub output: Linear,
    group: usize,
}

/// Regresses values of each position from text, durations and speaker: the mean mel, and (smaller) the pitch. Every step
/// trains it, whatever the timestep: the flow is left with what text does not say (measured on a real speaker, see
/// `benches/results/quality.md`).
#[derive(Module, Debug)]
pub struct Regressor {
    /// Projection of the place in the token, added to the text features.
    pub place: Linear,
    /// Projection of the speaker embedding: what modulates every block.
    pub speaker: Linear,
    /// ConvNeXt-like blocks.
    pub blocks: Vec<DecoderBlock>,
    /// Final norm.
    pub norm: LayerNorm,
    /// To the values of a position.
    pub output: Linear,
}

/// Timestep and speaker embedding to the vector that modulates every block.
#[derive(Module, Debug)]
pub struct Condition {
    /// Projection of the timestep's sinusoidal features.
    pub timestep: Linear,
    /// Projection of the speaker embedding.
    pub speaker: Linear,
    /// Projection of their sum.
    pub output: Linear,
}

/// Depthwise conv, AdaLN from timestep and speaker, MLP, residual.
#[derive(Module, Debug)]
pub struct DecoderBlock {
    /// Depthwise conv over time.
    pub conv: DepthwiseConv1d,
    /// The norm that is modulated.
    pub norm: LayerNorm,
    /// AdaLN: scale and shift of the norm, from the condition.
    pub modulation: Linear,
    /// MLP of each position.
    pub mlp: Mlp,
}

/// What the decoder is conditioned on, at the rate of mel frames.
#[derive(Clone, Debug)]
pub struct Conditioning {
    /// Mean mel of each frame, `[rows, frames, n_mels]`.
    pub mean: Tensor<3>,
    /// Text features and pitch, `[rows, positions, decoder width]`; a position is a group of frames.
    pub text: Tensor<3>,
    /// Where in its token each position lies, `[rows, positions, 4]`.
    pub place: Tensor<3>,
    /// Pitch of each position.
    pub pitch: PitchInputs,
    /// Speaker embedding, `[rows, speaker width]`.
    pub speaker: Tensor<2>,
    /// Positions of each row that count.
    pub lengths: Vec<usize>,
    /// The same as a mask, `[rows, positions, 1]`.
    pub mask: Tensor<3>,
}

impl Decoder {
    pub(crate) fn new(init: Init<'_>, config: &ModelConfig) -> Decoder {
        let decoder = &config.decoder;
        let (width, frame) = (decoder.width, config.n_mels * decoder.group);
        Decoder {
            input: Linear::new(init.at("input"), 2 * frame + PLACE_FEATURES, width),
            condition: Condition {
                timestep: Linear::new(init.at("condition.timestep"), TIMESTEP_FEATURES, width),
                speaker: Linear::new(init.at("condition.speaker"), config.speaker.width, width),
                output: Linear::new(init.at("condition.output"), width, width),
            },
            blocks: blocks(&init, &decoder.flow()),
            norm: LayerNorm::new(init.at("norm"), width),
            output: Linear::scaled(init.at("output"), width, frame, 0.1),
            group: decoder.group,
        }
    }

    /// The clean mel `x1` for `x_t` `[rows, frames, n_mels]` and the features of its timesteps. What comes out beyond a
    /// row's length means nothing.
    pub(crate) fn forward(&self, x_t: Tensor<3>, timestep_features: Tensor<2>, on: &Conditioning) -> Tensor<3> {
        let [rows, frames, n_mels] = x_t.dims();
        let positions = frames / self.group;
        let grouped = |x: Tensor<3>| -> Tensor<3> { x.reshape([rows, positions, self.group * n_mels]) };
        let condition = self.condition.forward(timestep_features, on.speaker.clone());
        let inputs = Tensor::cat(vec![grouped(x_t), grouped(on.mean.clone()), on.place.clone()], 2);
        let x = self.input.forward_add(inputs, on.text.clone());
        let x = forward_blocks(&self.blocks, x, &condition, &on.lengths, &on.mask);
        let residual = self.output.forward(self.norm.forward(x)).reshape([rows, frames, n_mels]);
        on.mean.clone() + residual
    }
}

impl Regressor {
    pub(crate) fn new(
        init: Init<'_>,
        shape: &BlocksConfig,
        speaker_width: usize,
        values: usize,
        output_scale: f64,
    ) -> Regressor {
        Regressor {
            place: Linear::new(init.at("place"), PLACE_FEATURES, shape.width),
            speaker: Linear::new(init.at("speaker"), speaker_width, shape.width),
            blocks: blocks(&init, shape),
            norm: LayerNorm::new(init.at("norm"), shape.width),
            output: Linear::scaled(init.at("output"), shape.width, values, output_scale),
        }
    }

    /// The values `[rows, positions, values]` of text features `[rows, positions, width]`.
    pub(crate) fn forward(
        &self,
        text: Tensor<3>,
        place: Tensor<3>,
        speaker: Tensor<2>,
        lengths: &[usize],
        mask: &Tensor<3>,
    ) -> Tensor<3> {
        let condition = gelu(self.speaker.forward(speaker));
        let x = self.place.forward_add(place, text);
        let x = forward_blocks(&self.blocks, x, &condition, lengths, mask);
        self.output.forward(self.norm.forward(x))
    }
}

fn blocks(init: &Init<'_>, shape: &BlocksConfig) -> Vec<DecoderBlock> {
    let width = shape.width;
    let block = |n: usize| {
        let init = init.at(format_args!("blocks.{n}"));
        DecoderBlock {
            conv: DepthwiseConv1d::new(init.at("conv"), width, KERNEL_SIZE),
            norm: LayerNorm::new(init.at("norm"), width),
            modulation: Linear::scaled(init.at("modulation"), width, 2 * width, 0.1),
            mlp: Mlp::new(init.at("mlp"), width, shape.hidden),
        }
    };
    (0..shape.blocks).map(block).collect()
}

fn forward_blocks(
    blocks: &[DecoderBlock],
    x: Tensor<3>,
    condition: &Tensor<2>,
    lengths: &[usize],
    mask: &Tensor<3>,
) -> Tensor<3> {
    // Dilations 1, 2, 4 in turn: a second of context after three blocks.
    blocks.iter().enumerate().fold(x, |x, (n, block)| block.forward(x, condition.clone(), lengths, mask, 1 << (n % 3)))
}

impl Condition {
    fn forward(&self, timestep_features: Tensor<2>, speaker: Tensor<2>) -> Tensor<2> {
        let x = gelu(self.timestep.forward(timestep_features) + self.speaker.forward(speaker));
        gelu(self.output.forward(x))
    }
}

impl DecoderBlock {
    fn forward(
        &self,
        x: Tensor<3>,
        condition: Tensor<2>,
        lengths: &[usize],
        mask: &Tensor<3>,
        dilation: usize,
    ) -> Tensor<3> {
        let [_, _, width] = x.dims();
        let modulation = self.modulation.forward_beside(condition, &x);
        let (scale, shift) = (modulation.clone().narrow(1, 0, width), modulation.narrow(1, width, width));
        let y = self.conv.forward(x.clone(), dilation, lengths, mask);
        let (weight, bias) = (tapped(&self.norm.weight, &y), tapped(&self.norm.bias, &y));
        let y = modulated_norm(y, weight, bias, scale, shift);
        self.mlp.forward_add(y, x)
    }
}
