//! Shapes of a vocoder and of its discriminators, as data. Without Burn, so that the fuzz targets can read them.

use serde::{Deserialize, Serialize};

use crate::config::{BlocksConfig, Size};
use crate::kernels::Stft;

/// Frames that a convolution sees.
pub(super) const KERNEL_SIZE: usize = 7;

/// Shapes of a vocoder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VocoderConfig {
    /// Mel bands.
    pub n_mels: usize,
    /// Samples of a frame.
    pub n_fft: usize,
    /// Samples from one frame to the next.
    pub hop_length: usize,
    /// Samples of the window.
    pub win_length: usize,
    /// The trunk.
    pub trunk: BlocksConfig,
    /// The discriminators beside it, in stage 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discriminators: Option<DiscriminatorConfig>,
}

impl VocoderConfig {
    /// The parts of a vocoder: what the names of parameters begin with.
    pub const PARTS: [&'static str; 5] = ["input", "blocks", "norm", "output", "discriminators"];

    /// The shapes of a size, for frames of this transform.
    pub fn new(size: Size, n_mels: usize, stft: Stft) -> VocoderConfig {
        let (width, hidden, blocks) = match size {
            Size::Smoke => (128, 384, 4),
            Size::Tiny => (256, 768, 6),
            Size::Small => (384, 1152, 6),
            Size::Normal => (512, 1536, 8),
            Size::Big => (768, 2304, 8),
        };
        VocoderConfig {
            n_mels,
            n_fft: stft.n_fft,
            hop_length: stft.hop,
            win_length: stft.win_length,
            trunk: BlocksConfig { width, blocks, hidden },
            discriminators: None,
        }
    }

    /// The transform of its frames.
    pub fn stft(&self) -> Stft {
        Stft { n_fft: self.n_fft, hop: self.hop_length, win_length: self.win_length }
    }

    /// Whether a vocoder can have these shapes: a file may say anything.
    ///
    /// # Errors
    ///
    /// What cannot be.
    pub fn check(&self) -> Result<(), String> {
        const MOST: usize = 1 << 20;
        let BlocksConfig { width, blocks, hidden } = self.trunk;
        let sizes = [
            ("n_mels", self.n_mels),
            ("n_fft", self.n_fft),
            ("hop_length", self.hop_length),
            ("win_length", self.win_length),
            ("trunk.width", width),
            ("trunk.blocks", blocks),
            ("trunk.hidden", hidden),
            ("discriminators.width", self.discriminators.map_or(1, |config| config.width)),
        ];
        if let Some((name, size)) = sizes.iter().find(|(_, size)| *size == 0 || *size > MOST) {
            return Err(format!("no vocoder has {name} = {size}"));
        }
        if self.n_fft % 2 == 1 || self.win_length > self.n_fft {
            return Err(format!("no vocoder has n_fft = {} with win_length = {}", self.n_fft, self.win_length));
        }
        Ok(())
    }

    /// Whether a vocoder of these shapes can have so few values. A file of a few bytes must not make a model of many gigabytes.
    pub fn can_have(&self, values: usize) -> bool {
        let BlocksConfig { width, blocks, hidden } = self.trunk;
        let at_least = [[width, self.n_fft, 1], [width, hidden, blocks], [width, self.n_mels, KERNEL_SIZE]];
        (at_least.iter())
            .all(|sizes| sizes.iter().try_fold(1usize, |a, &b| a.checked_mul(b)).is_some_and(|n| n <= values))
    }
}

/// Shapes of the discriminators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiscriminatorConfig {
    /// Channels of the first layer; 32 in HiFi-GAN and UnivNet.
    pub width: usize,
}

impl DiscriminatorConfig {
    /// For a vocoder of a size: half as wide as usual, less for the size that tests use.
    pub fn new(size: Size) -> DiscriminatorConfig {
        DiscriminatorConfig { width: if size == Size::Smoke { 4 } else { 16 } }
    }
}
