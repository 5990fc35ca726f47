//! How a run is set up.

use serde::{Deserialize, Serialize};
use tandem_device::{FeaturesOn, Placement};
use tandem_model::Size;
use tandem_observe::Knobs;

use crate::optimiser::AdamWSettings;
use crate::schedule::{LearningRate, OptimizationLevel};

/// What to do when the loss or a gradient is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NanPolicy {
    /// Name the batch and end the run. The step changed nothing.
    Stop,
    /// Name the batch and go on without it.
    Skip,
}

/// Where features are kept between epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CachePlace {
    /// In memory.
    Ram,
    /// On disk.
    Disk,
    /// Nowhere.
    Off,
}

/// How a run is set up. The first part decides what is learned and must not change when a run goes on; the second
/// part may.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainSettings {
    /// Size of the model.
    pub size: Size,
    /// Clips of a step, all parts together.
    pub batch_size: usize,
    /// Decides initial values, order, noise.
    pub seed: u64,
    /// Batches come in few shapes.
    pub static_shapes: bool,
    /// Steps over which alignments are drawn to the diagonal.
    pub prior_steps: u64,
    /// Clips with more frames are left out.
    pub max_frames: Option<u64>,
    /// Clips with more tokens are left out.
    pub max_tokens: Option<u64>,

    /// Parts that a batch is split into, one after the other on the device.
    pub accumulate: usize,
    /// Learning rate.
    pub rate: LearningRate,
    /// The norm that gradients are clipped to.
    pub clip: f64,
    /// Optimiser.
    pub adam: AdamWSettings,
    /// Recomputes instead of remembering.
    pub gradient_checkpointing: bool,
    /// Products in half precision, everything else in single precision.
    #[serde(default)]
    pub mixed_precision: bool,
    /// Times over the data.
    pub epochs: u64,
    /// Steps at most.
    pub max_steps: Option<u64>,
    /// Batches made at once.
    pub workers: usize,
    /// Batches kept ready on the host.
    pub buffer: usize,
    /// Workers that tuning may go up to.
    #[serde(default)]
    pub most_workers: usize,
    /// Workers and queues are tuned while the run goes on.
    #[serde(default)]
    pub autotune: bool,
    /// Batches under way before the model: 2 is triple buffering, 1 double buffering.
    pub depth: usize,
    /// Batches kept ready on the model's device.
    #[serde(default = "default_device_queue")]
    pub device_queue: usize,
    /// Seconds that the model waits for a full queue before its first step, at most.
    #[serde(default)]
    pub start_delay: f64,
    /// Bytes that the data lane may take of its device; none: all of it.
    #[serde(default)]
    pub data_limit: Option<u64>,
    /// Bytes that the model lane may take of its device; none: all of it.
    #[serde(default)]
    pub model_limit: Option<u64>,
    /// The limits were asked for; otherwise they are what the devices have.
    #[serde(default)]
    pub isolated: bool,
    /// Seconds without a batch after which the run is given up.
    #[serde(default)]
    pub stall_timeout: f64,
    /// Bytes that batches on the host may take.
    pub memory_limit: usize,
    /// Where features are kept between epochs.
    pub cache: CachePlace,
    /// Bytes that the cache may take.
    pub cache_limit: u64,
    /// Steps between two readings of the loss.
    pub log_every: u64,
    /// Steps between two validations; none: after every epoch.
    pub validate_every: Option<u64>,
    /// Steps between two checkpoints.
    pub checkpoint_every: u64,
    /// Checkpoints kept, besides the best.
    pub keep: usize,
    /// Steps between two samples of speech; 0: none.
    pub sample_every: u64,
    /// Validations without progress until the run ends; 0: never.
    pub patience: u64,
    /// What to do when the loss is not a number.
    pub nan_policy: NanPolicy,
}

fn default_device_queue() -> usize {
    device_queue(8)
}

/// SPEC F17: batches kept ready on the model's device.
pub fn device_queue(batch_size: usize) -> usize {
    (64 / batch_size.max(1)).clamp(2, 8)
}

/// SPEC F17: batches that validation keeps ready on the model's device.
pub(crate) fn validation_queue(device_queue: usize) -> usize {
    (device_queue / 2).max(2)
}

impl Default for TrainSettings {
    fn default() -> Self {
        let (rate, clip) = OptimizationLevel::Basic.values();
        TrainSettings {
            size: Size::Tiny,
            batch_size: 8,
            seed: 1,
            static_shapes: false,
            prior_steps: 250,
            max_frames: None,
            max_tokens: None,
            accumulate: 1,
            rate,
            clip,
            adam: AdamWSettings::default(),
            gradient_checkpointing: false,
            mixed_precision: false,
            epochs: 500,
            max_steps: None,
            workers: 2,
            buffer: 50,
            most_workers: 2,
            autotune: true,
            depth: 2,
            device_queue: default_device_queue(),
            start_delay: 2.0,
            data_limit: None,
            model_limit: None,
            isolated: false,
            stall_timeout: 300.0,
            memory_limit: 512_000_000,
            cache: CachePlace::Ram,
            cache_limit: 2_000_000_000,
            log_every: 10,
            validate_every: None,
            checkpoint_every: 500,
            keep: 5,
            sample_every: 1000,
            patience: 0,
            nan_policy: NanPolicy::Stop,
        }
    }
}

impl TrainSettings {
    /// What a verdict looks at.
    pub fn knobs(&self, placement: &Placement) -> Knobs {
        Knobs {
            workers: self.workers,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            load_cpu_percent: 100,
            buffer: self.buffer,
            device_queue: self.device_queue,
            depth: self.depth,
            batch_size: self.batch_size,
            features_on_data: placement.features == FeaturesOn::Data,
            cached: self.cache != CachePlace::Off,
            memory_limit_mb: self.memory_limit as u64 / 1_000_000,
        }
    }

    /// What differs among the settings that decide what is learned; one line each.
    pub fn differences(&self, other: &TrainSettings) -> Vec<String> {
        let mut lines = Vec::new();
        let mut compare = |name: &str, mine: String, theirs: String| {
            if mine != theirs {
                lines.push(format!("{name}: {mine} here, {theirs} in the checkpoint"));
            }
        };
        let limit = |limit: Option<u64>| limit.map_or("none".to_owned(), |limit| limit.to_string());
        compare("--model-size", self.size.to_string(), other.size.to_string());
        compare("--batch-size x --grad-accum", self.batch_size.to_string(), other.batch_size.to_string());
        compare("--seed", self.seed.to_string(), other.seed.to_string());
        compare("--enable-static-shapes", self.static_shapes.to_string(), other.static_shapes.to_string());
        compare("alignment prior steps", self.prior_steps.to_string(), other.prior_steps.to_string());
        compare("--max-mel-frames", limit(self.max_frames), limit(other.max_frames));
        compare("--max-text-length", limit(self.max_tokens), limit(other.max_tokens));
        lines
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_device_queue_by_batch_size() {
        for (batch, queue) in [(8, 8), (16, 4), (24, 2), (32, 2), (64, 2), (1, 8)] {
            assert_eq!(super::device_queue(batch), queue, "batch {batch}");
            assert_eq!(super::validation_queue(queue), (queue / 2).max(2));
        }
    }
}
