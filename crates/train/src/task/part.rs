//! Which part of a voice a run trains, as checkpoints say it: data, without Burn.

use std::fmt;

use serde::{Deserialize, Serialize};
use tandem_model::{ModelConfig, VocoderConfig};

/// Which part of a voice a run trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrainedPart {
    /// The acoustic model: text to mel.
    #[default]
    Acoustic,
    /// The vocoder: mel to waveform.
    Vocoder,
}

impl TrainedPart {
    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            TrainedPart::Acoustic => "acoustic",
            TrainedPart::Vocoder => "vocoder",
        }
    }
}

impl fmt::Display for TrainedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The shapes of what a run trains. Its form in files says which part it is: no field of one is a field of the other's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PartConfig {
    /// Of an acoustic model.
    Acoustic(ModelConfig),
    /// Of a vocoder.
    Vocoder(VocoderConfig),
}

impl PartConfig {
    /// Which part.
    pub fn part(&self) -> TrainedPart {
        match self {
            PartConfig::Acoustic(_) => TrainedPart::Acoustic,
            PartConfig::Vocoder(_) => TrainedPart::Vocoder,
        }
    }

    /// The shapes of an acoustic model, if it is one.
    pub fn acoustic(&self) -> Option<&ModelConfig> {
        if let PartConfig::Acoustic(config) = self { Some(config) } else { None }
    }

    /// The shapes of a vocoder, if it is one.
    pub fn vocoder(&self) -> Option<&VocoderConfig> {
        if let PartConfig::Vocoder(config) = self { Some(config) } else { None }
    }

    /// Mel bands.
    pub fn n_mels(&self) -> usize {
        match self {
            PartConfig::Acoustic(config) => config.n_mels,
            PartConfig::Vocoder(config) => config.n_mels,
        }
    }

    /// Whether a model can have these shapes: a file may say anything.
    ///
    /// # Errors
    ///
    /// The first number that cannot be.
    pub fn check(&self) -> Result<(), String> {
        match self {
            PartConfig::Acoustic(config) => config.check(),
            PartConfig::Vocoder(config) => config.check(),
        }
    }

    /// Says what differs from another configuration, one line for each difference.
    pub fn differences(&self, other: &PartConfig) -> Vec<String> {
        match (self, other) {
            (PartConfig::Acoustic(mine), PartConfig::Acoustic(theirs)) => mine.differences(theirs),
            (mine, theirs) if mine == theirs => Vec::new(),
            (PartConfig::Vocoder(mine), PartConfig::Vocoder(theirs)) => {
                vec![format!("shapes: {mine:?} here, {theirs:?} there")]
            }
            (mine, theirs) => vec![format!("part: {} here, {} there", mine.part(), theirs.part())],
        }
    }
}

/// Which weights predict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PredictorIdentity {
    /// Steps of the acoustic run.
    pub step: u64,
    /// Checksum of its averaged weights.
    pub weights: String,
}
