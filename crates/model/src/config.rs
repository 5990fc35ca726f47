//! Sizes of the model, as data.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How large a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// About a million parameters: learns the demo's corpus in minutes on a CPU.
    Smoke,
    /// About 4 million.
    Tiny,
    /// About 18 million.
    Small,
    /// About 45 million.
    Normal,
    /// About 120 million.
    Big,
}

impl Size {
    /// All sizes, the smallest first.
    pub const ALL: [Size; 5] = [Size::Smoke, Size::Tiny, Size::Small, Size::Normal, Size::Big];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Size::Smoke => "smoke",
            Size::Tiny => "tiny",
            Size::Small => "small",
            Size::Normal => "normal",
            Size::Big => "big",
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let name = if text == "base" { "normal" } else { text };
        Size::ALL.into_iter().find(|size| size.name() == name).ok_or_else(|| format!("no model size `{text}`"))
    }
}

/// Everything that decides the shapes of the parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Ids of the vocabulary, the padding included.
    pub vocabulary: usize,
    /// Values of a frame.
    pub n_mels: usize,
    /// Whether the voice is taken from reference audio; otherwise there is one voice, which is learned.
    pub reference: bool,
    /// The text encoder.
    pub text: TextConfig,
    /// The speaker path.
    pub speaker: SpeakerConfig,
    /// Channels of the duration predictor.
    pub duration_width: usize,
    /// The pitch predictor.
    pub pitch: BlocksConfig,
    /// The decoder.
    pub decoder: DecoderConfig,
}

/// Shapes of a stack of ConvNeXt-like blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlocksConfig {
    /// Channels.
    pub width: usize,
    /// Blocks.
    pub blocks: usize,
    /// Channels inside a block.
    pub hidden: usize,
}

/// Shapes of the text encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextConfig {
    /// Channels.
    pub width: usize,
    /// Convolutions before the blocks.
    pub convolutions: usize,
    /// Transformer blocks.
    pub blocks: usize,
    /// Attention heads.
    pub heads: usize,
}

/// Shapes of the speaker path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeakerConfig {
    /// Channels.
    pub width: usize,
    /// Blocks of the Perceiver resampler.
    pub blocks: usize,
    /// Attention heads.
    pub heads: usize,
    /// Latents that a reference is condensed to.
    pub latents: usize,
}

/// Shapes of the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecoderConfig {
    /// Channels.
    pub width: usize,
    /// Blocks of the mean decoder.
    pub mean_blocks: usize,
    /// Blocks of the flow-matching decoder; 0: there is none, and the mean mel is all that is heard.
    pub blocks: usize,
    /// Channels inside a block.
    pub hidden: usize,
    /// Frames that are one position.
    pub group: usize,
}

impl DecoderConfig {
    /// The blocks of the mean decoder.
    pub(crate) fn mean(&self) -> BlocksConfig {
        BlocksConfig { width: self.width, blocks: self.mean_blocks, hidden: self.hidden }
    }

    /// The blocks of the flow-matching decoder.
    pub(crate) fn flow(&self) -> BlocksConfig {
        BlocksConfig { width: self.width, blocks: self.blocks, hidden: self.hidden }
    }
}

/// Frames of reference audio that the speaker path hears at once (about three seconds).
pub const REFERENCE_FRAMES: usize = 256;

impl ModelConfig {
    /// The parts of a model: what the names of parameters begin with.
    pub const PARTS: [&'static str; 8] =
        ["text", "aligner", "mean", "projection", "speaker", "duration", "pitch", "decoder"];

    /// The shapes of a size.
    pub fn new(size: Size, vocabulary: usize, n_mels: usize, reference: bool) -> ModelConfig {
        // text: width, convolutions, blocks, heads; speaker: width, blocks, heads, latents; duration; decoder: width,
        // mean blocks, blocks, hidden.
        let (text, speaker, duration_width, decoder) = match size {
            Size::Smoke => ((96, 2, 2, 2), (64, 1, 2, 32), 96, (128, 3, 3, 256)),
            Size::Tiny => ((160, 2, 3, 2), (96, 2, 2, 32), 160, (256, 3, 3, 512)),
            Size::Small => ((288, 3, 5, 4), (192, 2, 4, 32), 256, (416, 4, 4, 1024)),
            Size::Normal => ((384, 3, 8, 6), (256, 2, 4, 32), 320, (576, 5, 5, 1536)),
            Size::Big => ((576, 3, 10, 9), (384, 3, 6, 32), 448, (896, 6, 6, 2304)),
        };
        ModelConfig {
            vocabulary,
            n_mels,
            reference,
            text: TextConfig { width: text.0, convolutions: text.1, blocks: text.2, heads: text.3 },
            speaker: SpeakerConfig { width: speaker.0, blocks: speaker.1, heads: speaker.2, latents: speaker.3 },
            duration_width,
            pitch: BlocksConfig { width: decoder.0 / 2, blocks: 2, hidden: decoder.3 / 2 },
            decoder: DecoderConfig {
                width: decoder.0,
                mean_blocks: decoder.1,
                blocks: decoder.2,
                hidden: decoder.3,
                group: 2,
            },
        }
    }

    /// The same without the flow-matching decoder.
    pub fn without_flow(mut self) -> ModelConfig {
        self.decoder.blocks = 0;
        self
    }

    /// Whether there is a flow-matching decoder.
    pub fn has_flow(&self) -> bool {
        self.decoder.blocks > 0
    }

    /// Whether a model can have these shapes: a file may say anything.
    ///
    /// # Errors
    ///
    /// The first number that cannot be.
    pub fn check(&self) -> Result<(), String> {
        const MOST: u64 = 1 << 16;
        let mut lines = Vec::new();
        flatten("", &serde_json::to_value(self).unwrap_or_default(), &mut lines);
        let sizes = lines.iter().filter_map(|(name, value)| Some((name, value.parse::<u64>().ok()?)));
        for (name, size) in sizes {
            if size > MOST || (size == 0 && !name.ends_with("blocks") && !name.ends_with("convolutions")) {
                return Err(format!("no model has {name} = {size}"));
            }
        }
        for (name, width, heads) in
            [("text", self.text.width, self.text.heads), ("speaker", self.speaker.width, self.speaker.heads)]
        {
            if width % (2 * heads) != 0 {
                return Err(format!("{name}.width cannot be {width} with {heads} heads"));
            }
        }
        Ok(())
    }

    /// Whether a model of these shapes can have so few values. A file of a few bytes must not make a model of many gigabytes.
    pub fn can_have(&self, values: usize) -> bool {
        let TextConfig { width: text, blocks, convolutions, .. } = self.text;
        let speaker = if self.reference { self.speaker.width } else { 0 };
        let DecoderConfig { width, hidden, blocks: flow_blocks, mean_blocks, group } = self.decoder;
        let at_least = [
            [self.vocabulary, text, 1],
            [text, text, blocks],
            [text, text, convolutions],
            [text, self.speaker.width, 1],
            [speaker, speaker, self.speaker.blocks],
            [speaker, self.speaker.latents, 1],
            [self.duration_width, self.duration_width, 1],
            [width, hidden, flow_blocks],
            [width, hidden, mean_blocks],
            [width, self.n_mels, group],
        ];
        at_least
            .iter()
            .all(|sizes| sizes.iter().try_fold(1usize, |a, &b| a.checked_mul(b)).is_some_and(|n| n <= values))
    }

    /// Says what differs from another configuration, one line for each difference.
    pub fn differences(&self, other: &ModelConfig) -> Vec<String> {
        let flat = |config: &ModelConfig| -> Vec<(String, String)> {
            let value = serde_json::to_value(config).unwrap_or_default();
            let mut lines = Vec::new();
            flatten("", &value, &mut lines);
            lines
        };
        let (mine, theirs) = (flat(self), flat(other));
        mine.iter()
            .zip(&theirs)
            .filter(|(a, b)| a != b)
            .map(|((name, mine), (_, theirs))| format!("{name}: {mine} here, {theirs} there"))
            .collect()
    }
}

fn flatten(prefix: &str, value: &serde_json::Value, lines: &mut Vec<(String, String)>) {
    match value.as_object() {
        Some(object) => {
            for (key, value) in object {
                let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&name, value, lines);
            }
        }
        None => lines.push((prefix.to_owned(), value.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Voice, weights};

    #[test]
    fn every_size_is_believed_and_shapes_that_no_file_can_fill_are_not() {
        for reference in [false, true] {
            for size in Size::ALL {
                assert_eq!(ModelConfig::new(size, 60, 80, reference).check(), Ok(()), "{size}");
            }
            let config = ModelConfig::new(Size::Smoke, 60, 80, reference);
            let tensors = weights::export(&Voice::new(&config, 1, &Device::flex()));
            let values = tensors.values().map(|tensor| tensor.values.len()).sum();
            assert!(config.can_have(values));
            let changes: [(&str, fn(&mut ModelConfig)); 6] = [
                ("vocabulary", |config| config.vocabulary = 1 << 16),
                ("text", |config| config.text.width = 1 << 14),
                ("convolutions", |config| config.text.convolutions = 1 << 16),
                ("speaker", |config| config.speaker.width = 1 << 16),
                ("duration", |config| config.duration_width = 1 << 16),
                ("decoder", |config| config.decoder.hidden = 1 << 16),
            ];
            for (name, change) in changes {
                let mut config = config.clone();
                change(&mut config);
                assert!(!config.can_have(values), "{name}");
            }
        }
        let mut wrong = ModelConfig::new(Size::Smoke, 60, 80, true);
        wrong.text.heads = 0;
        assert_eq!(wrong.check(), Err("no model has text.heads = 0".to_owned()));
        wrong.text.heads = 5;
        assert_eq!(wrong.check(), Err("text.width cannot be 96 with 5 heads".to_owned()));
    }
}
