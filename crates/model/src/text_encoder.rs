//! The text encoder: embedding, conv prenet, pre-norm transformer blocks with RoPE.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::config::TextConfig;
use crate::inputs::TextInputs;
use crate::kernels::gelu;
use crate::nn::{Attention, Conv1d, Embedding, Init, LayerNorm, Mlp, Rope};

/// Encodes a text, with the speaker's latents as a prefix.
#[derive(Module, Debug)]
pub struct TextEncoder {
    /// A vector for each token.
    pub embedding: Embedding,
    /// Convs before attention.
    pub prenet: Vec<ConvLayer>,
    /// Transformer blocks.
    pub blocks: Vec<Block>,
    /// Final norm.
    pub norm: LayerNorm,
}

/// Norm and convolution.
#[derive(Module, Debug)]
pub struct ConvLayer {
    /// Before the convolution.
    pub norm: LayerNorm,
    /// Conv over time.
    pub conv: Conv1d,
}

/// A pre-norm transformer block.
#[derive(Module, Debug)]
pub struct Block {
    /// Before attention.
    pub attention_norm: LayerNorm,
    /// Self-attention over text and speaker latents.
    pub attention: Attention,
    /// Before the MLP.
    pub mlp_norm: LayerNorm,
    /// MLP of each position.
    pub mlp: Mlp,
}

impl Block {
    pub(crate) fn new(init: Init<'_>, width: usize, heads: usize) -> Block {
        Block {
            attention_norm: LayerNorm::new(init.at("attention_norm"), width),
            attention: Attention::new(init.at("attention"), width, heads),
            mlp_norm: LayerNorm::new(init.at("mlp_norm"), width),
            mlp: Mlp::new(init.at("mlp"), width, 4 * width),
        }
    }

    /// With dropout masks of what attention adds and of what the MLP sees.
    fn forward(&self, x: Tensor<3>, bias: Tensor<4>, rope: &Rope, dropout: Option<&[Tensor<3>]>) -> Tensor<3> {
        let y = self.attention_norm.forward(x.clone());
        let attended = self.attention.forward(y.clone(), y, bias, Some(rope));
        let x = x + drop_tokens(attended, dropout.map(|masks| &masks[0]));
        let y = drop_tokens(self.mlp_norm.forward(x.clone()), dropout.map(|masks| &masks[1]));
        self.mlp.forward_add(y, x)
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
        }
    }

    /// Features of each token, `[rows, tokens, width]`; `prefix` is `[rows, latents, width]`.
    /// `dropout` has a mask for the embedding, each conv, and two for each block.
    pub(crate) fn forward(&self, text: &TextInputs, prefix: Tensor<3>, dropout: Option<&[Tensor<3>]>) -> Tensor<3> {
        let [_, tokens] = text.ids.dims();
        let [_, latents, _] = prefix.dims();
        let convs = self.prenet.len();
        let x = crate::kernels::embedding(self.embedding.weight.val(), text.ids.clone()) * text.mask.clone();
        let mut x = drop_tokens(x, dropout.map(|masks| &masks[0]));
        for (n, layer) in self.prenet.iter().enumerate() {
            let y = gelu(layer.conv.forward(layer.norm.forward(x.clone()) * text.mask.clone()));
            let y = drop_tokens(y, dropout.map(|masks| &masks[1 + n]));
            x = (x + y) * text.mask.clone();
        }
        let mut x = Tensor::cat(vec![prefix, x], 1);
        for (n, block) in self.blocks.iter().enumerate() {
            let masks = dropout.map(|masks| &masks[1 + convs + 2 * n..]);
            x = block.forward(x, text.attention_bias.clone(), &text.rope, masks);
        }
        self.norm.forward(x.narrow(1, latents, tokens)) * text.mask.clone()
    }
}

/// Applies a dropout mask of the tokens to `[rows, prefix + tokens, width]`; the prefix stays.
fn drop_tokens(x: Tensor<3>, mask: Option<&Tensor<3>>) -> Tensor<3> {
    let Some(mask) = mask else { return x };
    let (all, tokens) = (x.dims()[1], mask.dims()[1]);
    if all == tokens {
        return x * mask.clone();
    }
    let prefix = x.clone().narrow(1, 0, all - tokens);
    Tensor::cat(vec![prefix, x.narrow(1, all - tokens, tokens) * mask.clone()], 1)
}
