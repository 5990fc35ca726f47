//! Speaker conditioning: reference audio condensed to a few latents (Perceiver resampler), or one learned speaker.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use crate::config::ModelConfig;
use crate::inputs::ReferenceInputs;
use crate::kernels::gelu;
use crate::nn::{Attention, Conv1d, Init, LayerNorm, Linear, Mlp};

/// Makes what everything else is conditioned on.
#[derive(Module, Debug)]
pub struct Speaker {
    /// Encodes reference audio; absent when there is one speaker.
    pub resampler: Option<Resampler>,
    /// The one speaker, `[1, 1, width]`.
    pub single: Option<Param<Tensor<3>>>,
    /// To the width of the text encoder.
    pub prefix: Linear,
    /// To the speaker embedding that aligner, decoder and duration predictor get.
    pub embedding: Linear,
}

/// A speaker, for each row of a batch.
#[derive(Clone, Debug)]
pub struct SpeakerCondition {
    /// Latents before the text, `[rows, latents, text width]`.
    pub prefix: Tensor<3>,
    /// Speaker embedding, `[rows, speaker width]`.
    pub embedding: Tensor<2>,
}

/// Perceiver resampler: learned latents attend to the reference.
#[derive(Module, Debug)]
pub struct Resampler {
    /// Stride-2 conv of the mel.
    pub first: Conv1d,
    /// Stride-2 conv again.
    pub second: Conv1d,
    /// Learned queries, `[latents, width]`.
    pub latents: Param<Tensor<2>>,
    /// Blocks.
    pub blocks: Vec<ResamplerBlock>,
    /// At the end.
    pub norm: LayerNorm,
}

/// Cross-attention of latents to audio and latents, MLP.
#[derive(Module, Debug)]
pub struct ResamplerBlock {
    /// Before attention, of the latents.
    pub query_norm: LayerNorm,
    /// Before attention, of the audio.
    pub context_norm: LayerNorm,
    /// Cross-attention.
    pub attention: Attention,
    /// Before the MLP.
    pub mlp_norm: LayerNorm,
    /// MLP of each latent.
    pub mlp: Mlp,
}

impl Speaker {
    pub(crate) fn new(init: Init<'_>, config: &ModelConfig) -> Speaker {
        let width = config.speaker.width;
        Speaker {
            resampler: config.reference.then(|| Resampler::new(init.at("resampler"), config)),
            single: (!config.reference).then(|| init.at("single").normal([1, 1, width], 1.0)),
            prefix: Linear::new(init.at("prefix"), width, config.text.width),
            embedding: Linear::new(init.at("embedding"), width, width),
        }
    }

    /// The speakers of a batch of `rows`. A model of one speaker ignores the reference.
    pub(crate) fn forward(&self, reference: Option<&ReferenceInputs>, rows: usize) -> SpeakerCondition {
        let latents = match (&self.resampler, reference, &self.single) {
            (Some(resampler), Some(reference), _) => resampler.forward(reference),
            (_, _, Some(single)) => single.val().repeat_dim(0, rows),
            _ => panic!("a model of many speakers needs reference audio"),
        };
        let [rows, _, width] = latents.dims();
        let pooled: Tensor<2> = latents.clone().mean_dim(1).reshape([rows, width]);
        SpeakerCondition { prefix: self.prefix.forward(latents), embedding: self.embedding.forward(pooled) }
    }
}

impl Resampler {
    fn new(init: Init<'_>, config: &ModelConfig) -> Resampler {
        let speaker = &config.speaker;
        let width = speaker.width;
        let block = |n: usize| {
            let init = init.at(format_args!("blocks.{n}"));
            ResamplerBlock {
                query_norm: LayerNorm::new(init.at("query_norm"), width),
                context_norm: LayerNorm::new(init.at("context_norm"), width),
                attention: Attention::new(init.at("attention"), width, speaker.heads),
                mlp_norm: LayerNorm::new(init.at("mlp_norm"), width),
                mlp: Mlp::new(init.at("mlp"), width, 4 * width),
            }
        };
        Resampler {
            first: Conv1d::new(init.at("first"), config.n_mels, width, 3),
            second: Conv1d::new(init.at("second"), width, width, 3),
            latents: init.at("latents").normal([speaker.latents, width], 1.0),
            blocks: (0..speaker.blocks).map(block).collect(),
            norm: LayerNorm::new(init.at("norm"), width),
        }
    }

    fn forward(&self, reference: &ReferenceInputs) -> Tensor<3> {
        let [rows, _, _] = reference.mel.dims();
        let [latents, width] = self.latents.dims();
        let half = gelu(self.first.forward_stride2(reference.mel.clone()));
        // What the first conv makes of the padding must not reach the second.
        let audio = gelu(self.second.forward_stride2(half * reference.half_mask.clone()));
        let mut x = self.latents.val().reshape([1, latents, width]).repeat_dim(0, rows);
        for block in &self.blocks {
            let query = block.query_norm.forward(x.clone());
            let context = Tensor::cat(vec![query.clone(), block.context_norm.forward(audio.clone())], 1);
            x = x + block.attention.forward(query, context, reference.attention_bias.clone(), None);
            x = block.mlp.forward_add(block.mlp_norm.forward(x.clone()), x);
        }
        self.norm.forward(x)
    }
}
