//! How long each token is, from the features of the text.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::config::ModelConfig;
use crate::inputs::{TextInputs, dropout};
use crate::kernels::gelu;
use crate::nn::{Conv1d, Init, LayerNorm, Linear};

/// Share of what is dropped while learning.
const DROPPED: f32 = 0.3;

/// Predicts the logarithm of each token's number of frames.
#[derive(Module, Debug)]
pub struct DurationPredictor {
    /// The voice, added to every token.
    pub style: Linear,
    /// Features to channels.
    pub first: Conv1d,
    /// After the first convolution.
    pub first_norm: LayerNorm,
    /// Channels to channels.
    pub second: Conv1d,
    /// After the second convolution.
    pub second_norm: LayerNorm,
    /// To one value.
    pub output: Linear,
}

impl DurationPredictor {
    pub(crate) fn new(init: Init<'_>, config: &ModelConfig) -> DurationPredictor {
        let width = config.duration_width;
        DurationPredictor {
            style: Linear::new(init.at("style"), config.speaker.width, config.text.width),
            first: Conv1d::new(init.at("first"), config.text.width, width, 3),
            first_norm: LayerNorm::new(init.at("first_norm"), width),
            second: Conv1d::new(init.at("second"), width, width, 3),
            second_norm: LayerNorm::new(init.at("second_norm"), width),
            output: Linear::scaled(init.at("output"), width, 1, 0.1),
        }
    }

    /// `[rows, tokens, 1]`. With `seeds`, of each row, it learns: a part of what it sees is dropped, or it would know
    /// by heart how long the sounds of each clip are.
    pub(crate) fn forward(
        &self,
        features: Tensor<3>,
        style: Tensor<2>,
        text: &TextInputs,
        seeds: Option<&[u64]>,
    ) -> Tensor<3> {
        let mask = text.mask.clone();
        let drop = |x: Tensor<3>, place: u64| -> Tensor<3> {
            let [_, time, channels] = x.dims();
            match seeds {
                Some(seeds) => {
                    let kept = dropout(seeds, place, &text.lengths, [time, channels], DROPPED, &x.device());
                    x * kept
                }
                None => x,
            }
        };
        let style = self.style.forward(style).unsqueeze_dim::<3>(1);
        let x = drop((features + style) * mask.clone(), 0);
        let x = drop(self.first_norm.forward(gelu(self.first.forward(x))) * mask.clone(), 1);
        let x = self.second_norm.forward(gelu(self.second.forward(x))) * mask.clone();
        // Most characters last a handful of frames: start there.
        (self.output.forward(x) + 1.6) * mask
    }
}
