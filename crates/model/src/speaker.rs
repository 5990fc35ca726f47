//! Who speaks: reference audio condensed to a few latents, or one voice that is learned.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use crate::config::ModelConfig;
use crate::inputs::{ReferenceInputs, attention_bias, mask};
use crate::kernels::gelu;
use crate::nn::{Attention, Conv1d, FeedForward, Init, LayerNorm, Linear};

/// Makes the voice that everything else is conditioned on.
#[derive(Module, Debug)]
pub struct Speaker {
    /// Hears reference audio; absent when there is one voice.
    pub resampler: Option<Resampler>,
    /// The one voice, `[1, 1, width]`.
    pub voice: Option<Param<Tensor<3>>>,
    /// To the width of the text encoder.
    pub prefix: Linear,
    /// To the vector that the decoder and the duration predictor get.
    pub style: Linear,
}

/// A voice.
#[derive(Clone, Debug)]
pub struct VoiceVectors {
    /// Latents before the text, `[rows, latents, text width]`.
    pub prefix: Tensor<3>,
    /// One vector, `[rows, speaker width]`.
    pub style: Tensor<2>,
}

/// Perceiver resampler: latents look at the reference.
#[derive(Module, Debug)]
pub struct Resampler {
    /// Frames to features, half as many.
    pub first: Conv1d,
    /// Half as many again.
    pub second: Conv1d,
    /// What looks, `[latents, width]`.
    pub latents: Param<Tensor<2>>,
    /// One after the other.
    pub blocks: Vec<ResamplerBlock>,
    /// At the end.
    pub norm: LayerNorm,
}

/// Latents look at the audio and at each other.
#[derive(Module, Debug)]
pub struct ResamplerBlock {
    /// Before attention, of the latents.
    pub query_norm: LayerNorm,
    /// Before attention, of the audio.
    pub context_norm: LayerNorm,
    /// Looks.
    pub attention: Attention,
    /// Before the feed-forward part.
    pub feed_forward_norm: LayerNorm,
    /// Each latent by itself.
    pub feed_forward: FeedForward,
}

impl Speaker {
    pub(crate) fn new(init: Init<'_>, config: &ModelConfig) -> Speaker {
        let width = config.speaker.width;
        Speaker {
            resampler: config.reference.then(|| Resampler::new(init.at("resampler"), config)),
            voice: (!config.reference).then(|| init.at("voice").normal([1, 1, width], 1.0)),
            prefix: Linear::new(init.at("prefix"), width, config.text.width),
            style: Linear::new(init.at("style"), width, width),
        }
    }

    /// The voices of a batch of `rows`. A model of one voice does not listen to the reference.
    pub(crate) fn forward(&self, reference: Option<&ReferenceInputs>, rows: usize) -> VoiceVectors {
        let latents = match (&self.resampler, reference, &self.voice) {
            (Some(resampler), Some(reference), _) => resampler.forward(reference),
            (_, _, Some(voice)) => voice.val().repeat_dim(0, rows),
            _ => panic!("a model of many voices needs reference audio"),
        };
        let [rows, _, width] = latents.dims();
        let pooled: Tensor<2> = latents.clone().mean_dim(1).reshape([rows, width]);
        VoiceVectors { prefix: self.prefix.forward(latents), style: self.style.forward(pooled) }
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
                feed_forward_norm: LayerNorm::new(init.at("feed_forward_norm"), width),
                feed_forward: FeedForward::new(init.at("feed_forward"), width, 4 * width),
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
        let device = reference.mel.device();
        let half = gelu(self.first.forward_half(reference.mel.clone()));
        // What the first convolution makes of the padding must not reach the second.
        let halves: Vec<usize> = reference.lengths.iter().map(|length| length.div_ceil(2)).collect();
        let half = half.clone() * mask(&halves, half.dims()[1], &device);
        let audio = gelu(self.second.forward_half(half));
        let heard = audio.dims()[1];
        let lengths: Vec<usize> = reference.lengths.iter().map(|length| length.div_ceil(4).min(heard)).collect();
        let bias = attention_bias(latents, &lengths, heard, &device);
        let mut x = self.latents.val().reshape([1, latents, width]).repeat_dim(0, rows);
        for block in &self.blocks {
            let query = block.query_norm.forward(x.clone());
            let context = Tensor::cat(vec![query.clone(), block.context_norm.forward(audio.clone())], 1);
            x = x + block.attention.forward(query, context, bias.clone(), None);
            x = block.feed_forward.forward_add(block.feed_forward_norm.forward(x.clone()), x);
        }
        self.norm.forward(x)
    }
}
