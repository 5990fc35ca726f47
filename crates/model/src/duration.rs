//! The duration predictor: how many frames each token lasts.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::config::ModelConfig;
use crate::inputs::TextInputs;
use crate::kernels::gelu;
use crate::nn::{Conv1d, Init, LayerNorm, Linear};

/// Most tokens last a handful of frames: the bias that predictions start from, as a logarithm.
const FIRST_GUESS: f64 = 1.6;

/// Two convs over the text features; predicts the logarithm of each token's number of frames.
#[derive(Module, Debug)]
pub struct DurationPredictor {
    /// Projection of the speaker embedding, added to every token.
    pub speaker: Linear,
    /// Conv 1.
    pub first: Conv1d,
    /// Norm after conv 1.
    pub first_norm: LayerNorm,
    /// Conv 2.
    pub second: Conv1d,
    /// Norm after conv 2.
    pub second_norm: LayerNorm,
    /// To one value.
    pub output: Linear,
}

impl DurationPredictor {
    pub(crate) fn new(init: Init<'_>, config: &ModelConfig) -> DurationPredictor {
        let width = config.duration_width;
        DurationPredictor {
            speaker: Linear::new(init.at("speaker"), config.speaker.width, config.text.width),
            first: Conv1d::new(init.at("first"), config.text.width, width, 3),
            first_norm: LayerNorm::new(init.at("first_norm"), width),
            second: Conv1d::new(init.at("second"), width, width, 3),
            second_norm: LayerNorm::new(init.at("second_norm"), width),
            output: Linear::scaled(init.at("output"), width, 1, 0.1),
        }
    }

    /// Log durations, `[rows, tokens, 1]`. While training, `dropout` masks both convs' inputs: without it the predictor
    /// memorizes the durations of each training clip.
    pub(crate) fn forward(
        &self,
        features: Tensor<3>,
        speaker: Tensor<2>,
        text: &TextInputs,
        dropout: Option<&[Tensor<3>; 2]>,
    ) -> Tensor<3> {
        let mask = text.mask.clone();
        let drop = |x: Tensor<3>, place: usize| match dropout {
            Some(masks) => x * masks[place].clone(),
            None => x,
        };
        let speaker = self.speaker.forward(speaker).unsqueeze_dim::<3>(1);
        let x = drop((features + speaker) * mask.clone(), 0);
        let x = drop(self.first_norm.forward(gelu(self.first.forward(x))) * mask.clone(), 1);
        let x = self.second_norm.forward(gelu(self.second.forward(x))) * mask.clone();
        (self.output.forward(x) + FIRST_GUESS) * mask
    }
}
