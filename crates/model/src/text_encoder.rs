//! Text to features: embedding, convolutions, transformer blocks with rotary positions.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::config::TextConfig;
use crate::inputs::{TextInputs, attention_bias};
use crate::kernels::gelu;
use crate::nn::{Attention, Conv1d, Embedding, FeedForward, Init, LayerNorm, Rotary};

/// Reads a text in the voice that the prefix describes.
#[derive(Module, Debug)]
pub struct TextEncoder {
    /// A vector for each character.
    pub embedding: Embedding,
    /// Neighbours, before attention.
    pub prenet: Vec<ConvLayer>,
    /// Transformer blocks.
    pub blocks: Vec<Block>,
    /// At the end.
    pub norm: LayerNorm,
    head_width: usize,
}

/// Norm and convolution.
#[derive(Module, Debug)]
pub struct ConvLayer {
    /// Before the convolution.
    pub norm: LayerNorm,
    /// Over neighbours.
    pub conv: Conv1d,
}

/// A pre-norm transformer block.
#[derive(Module, Debug)]
pub struct Block {
    /// Before attention.
    pub attention_norm: LayerNorm,
    /// Looks at the whole text and the voice.
    pub attention: Attention,
    /// Before the feed-forward part.
    pub feed_forward_norm: LayerNorm,
    /// Each position by itself.
    pub feed_forward: FeedForward,
}

impl Block {
    pub(crate) fn new(init: Init<'_>, width: usize, heads: usize) -> Block {
        Block {
            attention_norm: LayerNorm::new(init.at("attention_norm"), width),
            attention: Attention::new(init.at("attention"), width, heads),
            feed_forward_norm: LayerNorm::new(init.at("feed_forward_norm"), width),
            feed_forward: FeedForward::new(init.at("feed_forward"), width, 4 * width),
        }
    }

    fn forward(&self, x: Tensor<3>, bias: Tensor<4>, rotary: &Rotary) -> Tensor<3> {
        let y = self.attention_norm.forward(x.clone());
        let x = x + self.attention.forward(y.clone(), y, bias, Some(rotary));
        self.feed_forward.forward_add(self.feed_forward_norm.forward(x.clone()), x)
    }
}

impl TextEncoder {
    pub(crate) fn new(init: Init<'_>, config: &TextConfig, vocabulary: usize) -> TextEncoder {
        let width = config.width;
        let layer = |n: usize| ConvLayer {
            norm: LayerNorm::new(init.at(format_args!("prenet.{n}.norm")), width),
            conv: Conv1d::new(init.at(format_args!("prenet.{n}.conv")), width, width, 5),
        };
        TextEncoder {
            embedding: Embedding::new(init.at("embedding"), vocabulary, width),
            prenet: (0..config.convolutions).map(layer).collect(),
            blocks: (0..config.blocks)
                .map(|n| Block::new(init.at(format_args!("blocks.{n}")), width, config.heads))
                .collect(),
            norm: LayerNorm::new(init.at("norm"), width),
            head_width: width / config.heads,
        }
    }

    /// Features of each token, `[rows, tokens, width]`; `prefix` is `[rows, latents, width]`.
    pub(crate) fn forward(&self, text: &TextInputs, prefix: Tensor<3>) -> Tensor<3> {
        let [_, tokens] = text.ids.dims();
        let [_, latents, _] = prefix.dims();
        let device = prefix.device();
        let mut x = crate::kernels::embedding(self.embedding.weight.val(), text.ids.clone()) * text.mask.clone();
        for layer in &self.prenet {
            let y = gelu(layer.conv.forward(layer.norm.forward(x.clone()) * text.mask.clone()));
            x = (x + y) * text.mask.clone();
        }
        let bias = attention_bias(latents, &text.lengths, tokens, &device);
        let rotary = Rotary::new(latents, tokens, self.head_width, &device);
        let mut x = Tensor::cat(vec![prefix, x], 1);
        for block in &self.blocks {
            x = block.forward(x, bias.clone(), &rotary);
        }
        self.norm.forward(x.narrow(1, latents, tokens)) * text.mask.clone()
    }
}
