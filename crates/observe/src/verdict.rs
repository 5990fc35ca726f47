//! What limits a run, and what to change. Pure: a profile and the settings in, a verdict out.

use std::fmt;

use serde::{Deserialize, Serialize};
use tandem_flow::{Place, QueueStats, Stage};

use crate::stage_profile::{GAPS, Profile};

/// The thresholds of SPEC R5, in one place.
pub mod thresholds {
    /// Waiting more than this share is a bottleneck.
    pub const STARVED: f64 = 0.05;
    /// Loading takes more than this share of a batch.
    pub const LOAD: f64 = 0.20;
    /// Copying takes more than this share of a batch.
    pub const TRANSFER: f64 = 0.15;
    /// The data lane works more than this share of the time.
    pub const DATA_LANE: f64 = 0.80;
    /// The model lane works less than this share of the time.
    pub const MODEL_LANE: f64 = 0.70;
    /// Waiting for other ranks takes more than this share of the time.
    pub const EXPOSED: f64 = 0.05;
    /// Training takes less than this share: the device is under-used.
    pub const TRAINING_LOW: f64 = 0.50;
    /// Training takes more than this share: healthy.
    pub const TRAINING_HEALTHY: f64 = 0.70;
    /// The time from step to step varies by more than this share of its mean.
    pub const VARIATION: f64 = 0.30;
    /// A stage whose pace is this near to that of the steps sets it.
    pub const SETS_THE_PACE: f64 = 0.85;
    /// Batches took more than this share of the memory that they may take.
    pub const MEMORY: f64 = 0.90;
    /// A queue that is fuller than this on average is mostly full.
    pub const QUEUE_FULL: f64 = 0.50;
}
use thresholds::*;

/// How the run is set up, as far as it can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knobs {
    /// Batches loaded at once.
    pub workers: usize,
    /// Cores of the machine.
    pub cores: usize,
    /// How much of its time loading keeps a core busy, in percent; the rest it waits for a disk or a network.
    pub load_cpu_percent: usize,
    /// Batches ready on the host.
    pub buffer: usize,
    /// Batches ready on the model's device.
    pub device_queue: usize,
    /// Batches under way before the model.
    pub depth: usize,
    /// Clips of a batch.
    pub batch_size: usize,
    /// Features are computed on the data lane's device.
    pub features_on_data: bool,
    /// Features are kept between epochs.
    pub cached: bool,
    /// Host memory for batches, in MB.
    pub memory_limit_mb: u64,
}

impl Knobs {
    /// Whether nothing works beside the model: neither workers nor the threads that keep queues full.
    fn are_synchronous(&self) -> bool {
        self.workers == 0 && self.buffer == 0 && self.device_queue == 0 && self.depth <= 1
    }

    /// Batches that can be loaded at once before the cores are the limit.
    fn most_workers(&self) -> usize {
        (100 * self.cores.max(1)).div_ceil(self.load_cpu_percent.clamp(100 / MOST_PER_CORE, 100))
    }
}

/// Workers for each core that are worth a try, however little they do.
const MOST_PER_CORE: usize = 16;

/// What sets the pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bottleneck {
    /// Reading and decoding.
    Load,
    /// The data lane.
    Preprocess,
    /// Copying to the model's device.
    Transfer,
    /// The model itself: as it should be.
    Train,
    /// No stage is slow, but they vary more than the queues can even out.
    Variation,
    /// No stage is slow, but too little memory lets them work.
    Memory,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Bottleneck {
    /// All of them.
    pub const ALL: [Bottleneck; 6] = [
        Bottleneck::Load,
        Bottleneck::Preprocess,
        Bottleneck::Transfer,
        Bottleneck::Train,
        Bottleneck::Variation,
        Bottleneck::Memory,
    ];

    /// Its name: that of the stage, if it is one.
    pub const fn name(self) -> &'static str {
        match self {
            Bottleneck::Load => Stage::Load.name(),
            Bottleneck::Preprocess => Stage::Preprocess.name(),
            Bottleneck::Transfer => Stage::Transfer.name(),
            Bottleneck::Train => Stage::Train.name(),
            Bottleneck::Variation => "variation",
            Bottleneck::Memory => "memory",
        }
    }

    /// That of a slow stage. The stages beside the timed ones take no time.
    fn of(stage: Stage) -> Bottleneck {
        match stage {
            Stage::Plan | Stage::Load | Stage::Count => Bottleneck::Load,
            Stage::Preprocess => Bottleneck::Preprocess,
            Stage::Transfer => Bottleneck::Transfer,
            Stage::Train | Stage::Reduce => Bottleneck::Train,
        }
    }
}

/// What may be named as taking the time: the rows of a profile and what limits a run. Each has the text `stage-NAME`.
pub const STAGE_TEXTS: [&str; 8] = [
    Stage::Load.name(),
    Stage::Preprocess.name(),
    Stage::Transfer.name(),
    Stage::Train.name(),
    Stage::Reduce.name(),
    GAPS,
    Bottleneck::Variation.name(),
    Bottleneck::Memory.name(),
];

/// How much of the work is training (SPEC R5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Training {
    /// The smaller part: the device is under-used.
    UnderUsed,
    /// Neither.
    Fair,
    /// Most of it: as it should be.
    Healthy,
}

impl Profile {
    /// How much of the work is training.
    pub fn training(&self) -> Training {
        match self.stage(Stage::Train).share {
            share if share > TRAINING_HEALTHY => Training::Healthy,
            share if share < TRAINING_LOW => Training::UnderUsed,
            _ => Training::Fair,
        }
    }
}

/// What the queues and the memory of a run were like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    /// Mean fill of the queues, from source to sink, as a share of their capacity; empty if unknown.
    pub queues: Vec<(String, f64)>,
    /// Memory that batches took, as a share of what they may.
    pub memory: f64,
}

impl Pressure {
    /// From the records of the queues, and the share of their memory that batches took.
    pub fn new(queues: &[QueueStats], memory: f64) -> Pressure {
        let fill = |queue: &QueueStats| (queue.name.clone(), queue.mean_items / queue.capacity.max(1) as f64);
        Pressure { queues: queues.iter().map(fill).collect(), memory }
    }

    /// The first stage whose queue is mostly empty although the one before it is mostly full.
    fn slow_stage(&self) -> Option<Bottleneck> {
        let (first_empty, _) = self.queues.iter().find(|(_, fill)| *fill < QUEUE_FULL)?;
        let place = Place::named(first_empty)?;
        // Without a queue between them, preparing and copying are one; the longer one is found by its time.
        let apart = place != Place::Model || self.queues.iter().any(|(name, _)| **name == Place::Data);
        apart.then(|| Bottleneck::of(place.filled_by()))
    }
}

/// A threshold that was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// Loading takes a large share of a batch.
    LoadShare,
    /// Copying takes a large share of a batch.
    TransferShare,
    /// The data lane is busy nearly all the time.
    DataLaneBusy,
    /// The model lane is idle much of the time.
    ModelLaneIdle,
    /// Training is the smaller part of the work.
    TrainingLow,
    /// Steps vary.
    Variation,
    /// Waiting for other ranks takes a large share of the time.
    Communication,
}

/// One change: the value now, the value to try, what it would bring, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The flag.
    pub flag: String,
    /// Its value now.
    pub now: String,
    /// The value to try.
    pub to: String,
    /// Times as fast: by the paces that were measured, or as simulated.
    pub gain: f64,
    /// Why, for programs.
    pub reason: Reason,
    /// Why, in words.
    pub why: String,
}

/// Why a change would help.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Loading takes longer than a step.
    SlowLoad {
        /// Milliseconds of a batch.
        load_ms: f64,
        /// Milliseconds of a step.
        step_ms: f64,
    },
    /// What is kept need not be decoded again.
    Decoding,
    /// There are no more cores.
    NoMoreCores,
    /// The data lane's device is slow.
    SlowDevice,
    /// Another device could do it.
    OtherDevice,
    /// Preparing and copying take turns.
    TakeTurns,
    /// The link between the devices is slow.
    SlowLink,
    /// Queues run empty because stages vary.
    EmptyQueues,
    /// Batches wait for memory.
    NoMemory,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Reason::SlowLoad { load_ms, step_ms } => {
                return write!(f, "a batch takes {load_ms:.1} ms to load, a step {step_ms:.1} ms");
            }
            Reason::Decoding => "from the second epoch on nothing is decoded again",
            Reason::NoMoreCores => "all cores load already; larger steps hide it better",
            Reason::SlowDevice => "the data lane's device is slower than the workers would be",
            Reason::OtherDevice => "another device can compute the features",
            Reason::TakeTurns => "preparing and copying take turns on one thread",
            Reason::SlowLink => "the link sets the pace; `tandem devices --bench` measures it",
            Reason::EmptyQueues => "queues even out what varies; these ran empty",
            Reason::NoMemory => "batches wait for memory",
        };
        f.write_str(text)
    }
}

/// What limits a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether the model's device is kept busy.
    pub healthy: bool,
    /// What sets the pace.
    pub bottleneck: Bottleneck,
    /// Thresholds that were passed.
    pub findings: Vec<Finding>,
    /// What to change, the best first.
    pub recommendations: Vec<Recommendation>,
}

/// The verdict on a run.
pub fn verdict(profile: &Profile, knobs: &Knobs, pressure: &Pressure) -> Verdict {
    let bottleneck = bottleneck(profile, knobs, pressure);
    Verdict {
        healthy: bottleneck == Bottleneck::Train,
        bottleneck,
        findings: findings(profile),
        recommendations: recommendations(profile, knobs, bottleneck),
    }
}

/// Milliseconds from one batch to the next that a stage could keep up by itself.
fn pace(profile: &Profile, knobs: &Knobs, stage: Stage) -> f64 {
    let width = if stage == Stage::Load { knobs.workers.clamp(1, knobs.most_workers()) } else { 1 };
    profile.stage(stage).mean_ms / width as f64
}

fn bottleneck(profile: &Profile, knobs: &Knobs, pressure: &Pressure) -> Bottleneck {
    if profile.starved < STARVED {
        return Bottleneck::Train;
    }
    let mut stages = Stage::PREPARING.map(|stage| (Bottleneck::of(stage), pace(profile, knobs, stage)));
    stages.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (slowest, ms) = stages[0];
    if ms >= SETS_THE_PACE * profile.period_ms {
        return slowest;
    }
    // When everything is synchronous the stages add up, and the longest is the one to begin with.
    if knobs.are_synchronous() {
        return slowest;
    }
    if pressure.memory > MEMORY {
        return Bottleneck::Memory;
    }
    let varies = |stage: Stage| profile.stage(stage).jitter_ms > VARIATION * profile.stage(stage).mean_ms;
    if Stage::TIMED.into_iter().any(varies) {
        return Bottleneck::Variation;
    }
    pressure.slow_stage().unwrap_or(slowest)
}

fn findings(profile: &Profile) -> Vec<Finding> {
    let share = |stage: Stage| profile.stage(stage).share;
    [
        (Finding::LoadShare, share(Stage::Load) > LOAD),
        (Finding::TransferShare, share(Stage::Transfer) > TRANSFER),
        (Finding::DataLaneBusy, profile.data_busy > DATA_LANE),
        (Finding::ModelLaneIdle, profile.model_busy < MODEL_LANE),
        (Finding::TrainingLow, profile.training() == Training::UnderUsed),
        (Finding::Variation, profile.variation > VARIATION),
        (Finding::Communication, profile.exposed() > EXPOSED),
    ]
    .into_iter()
    .filter_map(|(finding, holds)| holds.then_some(finding))
    .collect()
}

fn recommendations(profile: &Profile, knobs: &Knobs, bottleneck: Bottleneck) -> Vec<Recommendation> {
    let step = profile.stage(Stage::Train).mean_ms;
    // What the run would take if this stage had another pace.
    let gain = |stage: Stage, new_pace: f64| {
        let others = Stage::PREPARING.into_iter().filter(|other| *other != stage);
        let slowest = others.map(|other| pace(profile, knobs, other)).fold(step.max(new_pace), f64::max);
        (profile.period_ms / slowest.max(f64::MIN_POSITIVE)).max(1.0)
    };
    let mut all = Vec::new();
    let mut add = |flag: &str, now: String, to: String, gain: f64, reason: Reason| {
        all.push(Recommendation { flag: flag.to_owned(), now, to, gain, reason, why: reason.to_string() });
    };
    let load = profile.stage(Stage::Load).mean_ms;
    // What nothing would be gained by waiting any more.
    let all_of_it = profile.period_ms / step.max(f64::MIN_POSITIVE);
    match bottleneck {
        Bottleneck::Load => {
            let most = knobs.most_workers();
            let needed = ((1.1 * load / step.max(f64::MIN_POSITIVE)).ceil() as usize).clamp(1, most);
            let workers = knobs.workers;
            if needed > workers {
                let reason = Reason::SlowLoad { load_ms: load, step_ms: step };
                let gain = gain(Stage::Load, load / needed as f64);
                add("--num-workers", workers.to_string(), needed.to_string(), gain, reason);
            }
            if !knobs.cached {
                add("--cache", "off".to_owned(), "ram".to_owned(), gain(Stage::Load, 0.0), Reason::Decoding);
            }
            if workers >= most {
                let (now, to) = (knobs.batch_size.to_string(), (2 * knobs.batch_size).to_string());
                add("--batch-size", now, to, 1.0, Reason::NoMoreCores);
            }
        }
        Bottleneck::Preprocess => {
            let (now, to, reason) = match knobs.features_on_data {
                true => ("data", "cpu", Reason::SlowDevice),
                false => ("cpu", "data", Reason::OtherDevice),
            };
            add("--features-on", now.to_owned(), to.to_owned(), gain(Stage::Preprocess, 0.0), reason);
        }
        Bottleneck::Transfer if knobs.depth < 2 => {
            let gain = gain(Stage::Transfer, 0.0);
            add("--pipeline-depth", knobs.depth.to_string(), "2".to_owned(), gain, Reason::TakeTurns);
        }
        Bottleneck::Transfer => {
            let gain = gain(Stage::Transfer, 0.0);
            add("--model-gpu", "this one".to_owned(), "one nearer to the data lane".to_owned(), gain, Reason::SlowLink);
        }
        Bottleneck::Variation => {
            let to = (2 * knobs.buffer).max(50);
            add("--buffer-size", knobs.buffer.to_string(), to.to_string(), all_of_it, Reason::EmptyQueues);
            let (now, to) = (knobs.device_queue, 2 * knobs.device_queue);
            add("--prefetch-buffer-size", now.to_string(), to.to_string(), all_of_it, Reason::EmptyQueues);
        }
        Bottleneck::Memory => {
            let (now, to) = (knobs.memory_limit_mb, 2 * knobs.memory_limit_mb);
            add("--memory-limit", now.to_string(), to.to_string(), all_of_it, Reason::NoMemory);
        }
        Bottleneck::Train => {}
    }
    all.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    all
}
