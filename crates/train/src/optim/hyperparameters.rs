//! Which optimizer, and its hyperparameters: as data, without Burn.

use serde::{Deserialize, Serialize};

/// The optimizers there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Adam with decoupled weight decay.
    #[default]
    AdamW,
}

/// Hyperparameters of AdamW.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdamWSettings {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Keeps divisions finite.
    pub epsilon: f64,
    /// Decoupled weight decay of matrices; biases and norms do not decay.
    pub weight_decay: f64,
}

impl Default for AdamWSettings {
    fn default() -> Self {
        AdamWSettings { beta1: 0.9, beta2: 0.98, epsilon: 1e-8, weight_decay: 0.01 }
    }
}
