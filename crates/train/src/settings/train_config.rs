//! [`TrainConfig`]: every setting of a run, in groups. It is saved in each checkpoint, so that a run is resumed as it
//! was started.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tandem_audio::{MelSettings, Processing};
use tandem_data::{Balance, CacheMode, CorpusSettings, Format};
use tandem_device::{FeaturesOn, Placement};
use tandem_model::Size;
use tandem_observe::Knobs;
use tandem_text::{Frontend, Language, Units};

use crate::optim::{AdamWSettings, LearningRate, OptimizationLevel, OptimizerKind};
use crate::task::TrainedPart;

/// What to do when the loss or a gradient is NaN or infinite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NanPolicy {
    /// Name the batch and end the run. The step changed nothing.
    Stop,
    /// Name the batch and resume with the next one.
    Skip,
}

/// Every setting of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// What learns.
    pub model: ModelSettings,
    /// What it learns from.
    pub data: DataSettings,
    /// How batches get to the model.
    pub pipeline: PipelineSettings,
    /// What may be taken of the memory of host and devices.
    pub memory: MemorySettings,
    /// How weights change in a step.
    pub optimizer: OptimizerSettings,
    /// How long the run is, and what it writes on the way.
    pub run: RunSettings,
}

/// What learns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSettings {
    /// The part of a voice.
    #[serde(default)]
    pub part: TrainedPart,
    /// Size of the model.
    pub size: Size,
    /// Whether there is a flow-matching decoder on top of the mean decoder; runs that do not say have one.
    #[serde(default = "yes")]
    pub flow: bool,
    /// Steps over which the diagonal prior of the alignment is annealed to zero.
    pub prior_steps: u64,
    /// Recomputes activations in the backward pass instead of keeping them.
    pub gradient_checkpointing: bool,
    /// Matmuls in half precision, everything else in single precision.
    pub mixed_precision: bool,
    /// Run whose weights this one started with (warm start).
    pub init_from: Option<PathBuf>,
    /// Parts that do not learn, separated by commas.
    pub freeze: Option<String>,
    /// A vocoder learns beside discriminators (stage 2).
    #[serde(default)]
    pub adversarial: bool,
    /// Acoustic run whose predictions a vocoder learns from in the end.
    #[serde(default)]
    pub predicted_by: Option<PathBuf>,
    /// The first step that does.
    #[serde(default)]
    pub predictions_from: u64,
}

fn yes() -> bool {
    true
}

/// Steps over which the diagonal prior of the alignment is annealed, from scratch.
const PRIOR_STEPS: u64 = 250;

impl ModelSettings {
    /// [`ModelSettings::prior_steps`] unless something else is requested: a model that can align already needs no prior.
    pub(super) fn default_prior_steps(&self) -> u64 {
        if self.init_from.is_some() { 0 } else { PRIOR_STEPS }
    }

    /// The parts that do not learn.
    pub fn frozen(&self) -> Vec<&str> {
        let parts = self.freeze.as_deref().unwrap_or_default().split(',').map(str::trim);
        parts.filter(|part| !part.is_empty()).collect()
    }
}

impl Default for ModelSettings {
    fn default() -> Self {
        ModelSettings {
            part: TrainedPart::Acoustic,
            size: Size::Tiny,
            flow: false,
            prior_steps: PRIOR_STEPS,
            gradient_checkpointing: false,
            mixed_precision: false,
            init_from: None,
            freeze: None,
            adversarial: false,
            predicted_by: None,
            predictions_from: 0,
        }
    }
}

/// What it learns from. All of it must stay the same when a run is resumed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSettings {
    /// Clips of a step: the effective batch, all micro-batches together.
    pub batch_size: usize,
    /// Batches are padded to few shapes.
    pub static_shapes: bool,
    /// Whose clips an epoch has.
    #[serde(default)]
    pub balance: Balance,
    /// Language of the texts; none: guessed for each text.
    pub language: Option<Language>,
    /// What the model reads. The whole front end, lexicon and vocabulary included, is in the checkpoint.
    pub units: Units,
    /// Layout of the corpus; none: it is found out.
    pub format: Option<Format>,
    /// Names of the speakers whose clips are used, separated by commas; none: all.
    pub speakers: Option<String>,
    /// Short vowels of Persian that are written are characters too.
    #[serde(default)]
    pub diacritics: bool,
    /// Directory of the audio files below that of the corpus.
    pub audio_dir: String,
    /// Clips with more mel frames are skipped.
    pub max_frames: Option<u64>,
    /// Clips with more tokens are skipped.
    pub max_tokens: Option<u64>,
    /// What a mel frame is.
    pub mel: MelSettings,
    /// Directory of alignments that were made before; clips without one are aligned by search.
    #[serde(default)]
    pub alignments: Option<PathBuf>,
    /// Silence beyond 0.1 s at both ends of a clip is cut.
    #[serde(default)]
    pub trim_silence: bool,
    /// Level that the speech of each clip is brought to, in dBFS; none: as it is.
    #[serde(default)]
    pub loudness: Option<f64>,
}

impl Default for DataSettings {
    fn default() -> Self {
        let CorpusSettings { mel, processing, format, audio_dir, frontend, max_frames, max_tokens, .. } =
            CorpusSettings::default();
        DataSettings {
            batch_size: 8,
            static_shapes: false,
            balance: Balance::Off,
            language: frontend.language,
            units: frontend.units,
            format,
            speakers: None,
            diacritics: frontend.diacritics,
            audio_dir,
            max_frames,
            max_tokens,
            mel,
            alignments: None,
            trim_silence: processing.trim_silence,
            loudness: processing.loudness_db,
        }
    }
}

impl DataSettings {
    /// How a corpus is read with these settings.
    pub fn corpus(&self) -> CorpusSettings {
        CorpusSettings {
            mel: self.mel.clone(),
            processing: self.processing(),
            format: self.format,
            speakers: self.speaker_names(),
            audio_dir: self.audio_dir.clone(),
            frontend: Frontend {
                language: self.language.clone(),
                units: self.units,
                diacritics: self.diacritics,
                ..Frontend::default()
            },
            max_frames: self.max_frames,
            max_tokens: self.max_tokens,
            ..CorpusSettings::default()
        }
    }

    /// What is done to samples before features are made of them.
    pub fn processing(&self) -> Processing {
        Processing { trim_silence: self.trim_silence, loudness_db: self.loudness }
    }

    /// The speakers whose clips are used; none: all.
    pub fn speaker_names(&self) -> Vec<String> {
        let names = self.speakers.as_deref().unwrap_or_default().split(',').map(str::trim);
        names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }
}

/// How batches get to the model. Each queue has the name of its flag.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineSettings {
    /// Batches made at once; 0: none, the pulling thread makes them.
    pub workers: usize,
    /// Workers that tuning may go up to.
    pub max_workers: usize,
    /// Workers and queues are tuned during the run.
    pub autotune: bool,
    /// The host queue: batches kept ready in host memory.
    pub buffer_size: usize,
    /// Batches under way on the data lane: 2 is triple buffering, 1 double buffering. The data queue holds one less.
    pub pipeline_depth: usize,
    /// The model queue: batches kept ready on the model's device.
    pub prefetch_buffer_size: usize,
    /// Seconds that the model waits for a full host queue before its first step, at most.
    pub model_start_delay: f64,
    /// Seconds without a batch after which the run is given up; 0: never.
    pub stall_timeout: f64,
    /// Where features are kept between epochs.
    pub cache: CacheMode,
    /// Bytes that the cache may take.
    pub cache_limit: u64,
}

impl Default for PipelineSettings {
    fn default() -> Self {
        PipelineSettings {
            workers: 2,
            max_workers: 2,
            autotune: true,
            buffer_size: 50,
            pipeline_depth: 2,
            prefetch_buffer_size: prefetch_buffer_size(DataSettings::default().batch_size),
            model_start_delay: 2.0,
            stall_timeout: 300.0,
            cache: CacheMode::Ram,
            cache_limit: 2_000_000_000,
        }
    }
}

/// SPEC F17: the model queue for a batch size.
pub fn prefetch_buffer_size(batch_size: usize) -> usize {
    (64 / batch_size.max(1)).clamp(2, 8)
}

/// SPEC F17: batches that validation keeps ready on the model's device.
pub(crate) fn validation_queue(prefetch_buffer_size: usize) -> usize {
    (prefetch_buffer_size / 2).max(2)
}

/// What may be taken of the memory of host and devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySettings {
    /// Bytes that batches may take of the host's memory.
    pub host_limit: usize,
    /// Bytes that the data lane may take of its device; none: all of it.
    pub data_limit: Option<u64>,
    /// Bytes that the model lane may take of its device; none: all of it.
    pub model_limit: Option<u64>,
    /// The limits were requested; otherwise they are what the devices have.
    pub isolated: bool,
}

impl Default for MemorySettings {
    fn default() -> Self {
        MemorySettings { host_limit: 512_000_000, data_limit: None, model_limit: None, isolated: false }
    }
}

/// How weights change in a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimizerSettings {
    /// Micro-batches of a step, one after the other on the device.
    pub grad_accum: usize,
    /// Learning rate, warmup and schedule.
    pub lr: LearningRate,
    /// The global norm that gradients are clipped to.
    pub max_grad_norm: f64,
    /// Which optimizer.
    pub kind: OptimizerKind,
    /// Hyperparameters of AdamW.
    pub adam: AdamWSettings,
    /// Decay of the moving average of the weights (EMA) that validation, samples and synthesis use.
    pub ema_decay: f64,
}

impl Default for OptimizerSettings {
    fn default() -> Self {
        let ModelSettings { part, size, .. } = ModelSettings::default();
        let (lr, max_grad_norm) = OptimizationLevel::Basic.values(part, size, None);
        OptimizerSettings {
            kind: OptimizerKind::AdamW,
            grad_accum: 1,
            lr,
            max_grad_norm,
            adam: AdamWSettings::default(),
            ema_decay: 0.999,
        }
    }
}

/// How long the run is, and what it writes on the way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSettings {
    /// Decides initial weights, order of clips, noise.
    pub seed: u64,
    /// Times over the data.
    pub epochs: u64,
    /// Steps at most, all starts together; none: all epochs.
    pub max_steps: Option<u64>,
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
    /// Early stopping: validations without progress until the run ends; 0: never.
    pub patience: u64,
    /// What to do when the loss is not a number.
    pub nan: NanPolicy,
}

impl Default for RunSettings {
    fn default() -> Self {
        RunSettings {
            seed: 1,
            epochs: 500,
            max_steps: None,
            log_every: 10,
            validate_every: None,
            checkpoint_every: 500,
            keep: 5,
            sample_every: 1000,
            patience: 0,
            nan: NanPolicy::Stop,
        }
    }
}

impl TrainConfig {
    /// What a verdict is made from.
    pub fn knobs(&self, placement: &Placement) -> Knobs {
        Knobs {
            workers: self.pipeline.workers,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            load_cpu_percent: 100,
            buffer: self.pipeline.buffer_size,
            device_queue: self.pipeline.prefetch_buffer_size,
            depth: self.pipeline.pipeline_depth,
            batch_size: self.data.batch_size,
            features_on_data: placement.features == FeaturesOn::Data,
            cached: self.pipeline.cache != CacheMode::Off,
            memory_limit_mb: self.memory.host_limit as u64 / 1_000_000,
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_model_queue_by_batch_size() {
        for (batch, queue) in [(8, 8), (16, 4), (24, 2), (32, 2), (64, 2), (1, 8)] {
            assert_eq!(super::prefetch_buffer_size(batch), queue, "batch {batch}");
            assert_eq!(super::validation_queue(queue), (queue / 2).max(2));
        }
    }
}
