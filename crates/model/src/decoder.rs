//! From noise to a mel spectrogram: the velocity of a flow that is conditioned on text, durations and voice.

use burn::module::Module;
use burn::tensor::{Tensor, TensorData};

use crate::config::ModelConfig;
use crate::kernels::{gelu, linear_add, modulated_norm};
use crate::nn::{DepthwiseConv1d, FeedForward, Init, LayerNorm, Linear};

const TAPS: usize = 7;
/// Numbers that describe a moment of the flow.
const TIME_WIDTH: usize = 64;

/// Predicts velocities.
#[derive(Module, Debug)]
pub struct Decoder {
    /// The state of the flow and the mean spectrogram of the text, a group of frames at a time.
    pub input: Linear,
    /// The moment and the voice.
    pub condition: Condition,
    /// Convolutional blocks.
    pub blocks: Vec<DecoderBlock>,
    /// At the end.
    pub norm: LayerNorm,
    /// To a group of frames.
    pub output: Linear,
    group: usize,
}

/// The moment of the flow and the voice, as one vector.
#[derive(Module, Debug)]
pub struct Condition {
    /// The moment.
    pub time: Linear,
    /// The voice.
    pub style: Linear,
    /// Both.
    pub output: Linear,
}

/// Neighbours, then each position by itself, bent by the condition.
#[derive(Module, Debug)]
pub struct DecoderBlock {
    /// Over neighbours.
    pub conv: DepthwiseConv1d,
    /// After the convolution.
    pub norm: LayerNorm,
    /// Scale and shift of the norm, from the condition.
    pub modulation: Linear,
    /// Each position by itself.
    pub feed_forward: FeedForward,
}

impl Decoder {
    pub(crate) fn new(init: Init<'_>, config: &ModelConfig) -> Decoder {
        let decoder = &config.decoder;
        let (width, frame) = (decoder.width, config.n_mels * decoder.group);
        let block = |n: usize| {
            let init = init.at(format_args!("blocks.{n}"));
            DecoderBlock {
                conv: DepthwiseConv1d::new(init.at("conv"), width, TAPS),
                norm: LayerNorm::new(init.at("norm"), width),
                modulation: Linear::scaled(init.at("modulation"), width, 2 * width, 0.1),
                feed_forward: FeedForward::new(init.at("feed_forward"), width, decoder.hidden),
            }
        };
        Decoder {
            input: Linear::new(init.at("input"), 2 * frame, width),
            condition: Condition {
                time: Linear::new(init.at("condition.time"), TIME_WIDTH, width),
                style: Linear::new(init.at("condition.style"), config.speaker.width, width),
                output: Linear::new(init.at("condition.output"), width, width),
            },
            blocks: (0..decoder.blocks).map(block).collect(),
            norm: LayerNorm::new(init.at("norm"), width),
            output: Linear::scaled(init.at("output"), width, frame, 0.5),
            group: decoder.group,
        }
    }

    /// The velocity at `state` `[rows, frames, n_mels]`. `mean` has the same shape; `text` is `[rows, positions, width]`
    /// with one position for each group of frames; `lengths` are the positions of each row that count; `times` is
    /// `[rows, 1]`. What comes out beyond the lengths means nothing.
    pub(crate) fn forward(
        &self,
        state: Tensor<3>,
        mean: Tensor<3>,
        text: Tensor<3>,
        lengths: &[usize],
        times: Tensor<2>,
        style: Tensor<2>,
    ) -> Tensor<3> {
        let [rows, frames, n_mels] = state.dims();
        let positions = frames / self.group;
        let grouped = |x: Tensor<3>| -> Tensor<3> { x.reshape([rows, positions, self.group * n_mels]) };
        let condition = self.condition.forward(times, style);
        let inputs = Tensor::cat(vec![grouped(state), grouped(mean)], 2);
        let mut x = linear_add(inputs, self.input.weight.val(), self.input.bias.val(), text);
        for (n, block) in self.blocks.iter().enumerate() {
            // Near and far neighbours in turn: a second of context after three blocks.
            x = block.forward(x, condition.clone(), lengths, 1 << (n % 3));
        }
        self.output.forward(self.norm.forward(x)).reshape([rows, frames, n_mels])
    }
}

impl Condition {
    fn forward(&self, times: Tensor<2>, style: Tensor<2>) -> Tensor<2> {
        let device = times.device();
        let half = TIME_WIDTH / 2;
        let frequencies: Vec<f32> = (0..half).map(|n| 1000f32.powf(n as f32 / (half - 1) as f32)).collect();
        let angles = times.matmul(Tensor::from_data(TensorData::new(frequencies, [1, half]), &device));
        let waves = Tensor::cat(vec![angles.clone().sin(), angles.cos()], 1);
        let x = gelu(self.time.forward(waves) + self.style.forward(style));
        gelu(self.output.forward(x))
    }
}

impl DecoderBlock {
    fn forward(&self, x: Tensor<3>, condition: Tensor<2>, lengths: &[usize], dilation: usize) -> Tensor<3> {
        let [_, _, width] = x.dims();
        let modulation = self.modulation.forward(condition);
        let (scale, shift) = (modulation.clone().narrow(1, 0, width), modulation.narrow(1, width, width));
        let y = self.conv.forward(x.clone(), dilation, lengths);
        let y = modulated_norm(y, self.norm.weight.val(), self.norm.bias.val(), scale, shift);
        self.feed_forward.forward_add(y, x)
    }
}
