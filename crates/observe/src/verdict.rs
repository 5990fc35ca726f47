//! What limits a run, and what to change. Pure: a profile and the settings in, a verdict out.

use std::fmt;

use serde::Serialize;

use crate::profile::Profile;

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
    /// Training takes less than this share: the device is under-used.
    pub const TRAINING_LOW: f64 = 0.50;
    /// Training takes more than this share: healthy.
    pub const TRAINING_HEALTHY: f64 = 0.70;
    /// The time from step to step varies by more than this share of its mean.
    pub const VARIATION: f64 = 0.30;
    /// A stage whose pace is this near to that of the steps sets it.
    pub const SETS_THE_PACE: f64 = 0.85;
}
use thresholds::*;

/// How the run is set up, as far as it can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Knobs {
    /// Batches loaded at once.
    pub workers: usize,
    /// Cores of the machine.
    pub cores: usize,
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

/// What sets the pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
        f.write_str(match self {
            Bottleneck::Load => "load",
            Bottleneck::Preprocess => "preprocess",
            Bottleneck::Transfer => "transfer",
            Bottleneck::Train => "train",
            Bottleneck::Variation => "variation",
            Bottleneck::Memory => "memory",
        })
    }
}

/// A threshold that was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
}

/// One change: the value now, the value to try, what it would bring, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// The flag.
    pub flag: String,
    /// Its value now.
    pub now: String,
    /// The value to try.
    pub to: String,
    /// Times as fast, by the paces that were measured.
    pub gain: f64,
    /// Why.
    pub why: String,
}

/// What limits a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
pub fn verdict(profile: &Profile, knobs: &Knobs) -> Verdict {
    let bottleneck = bottleneck(profile, knobs);
    Verdict {
        healthy: bottleneck == Bottleneck::Train,
        bottleneck,
        findings: findings(profile),
        recommendations: recommendations(profile, knobs, bottleneck),
    }
}

/// Milliseconds from one batch to the next that a stage could keep up by itself.
fn pace(profile: &Profile, knobs: &Knobs, stage: &str) -> f64 {
    let width = if stage == "load" { knobs.workers.clamp(1, knobs.cores.max(1)) } else { 1 };
    profile.stage(stage).mean_ms / width as f64
}

fn bottleneck(profile: &Profile, knobs: &Knobs) -> Bottleneck {
    if profile.starved < STARVED {
        return Bottleneck::Train;
    }
    let mut stages = [
        (Bottleneck::Load, pace(profile, knobs, "load")),
        (Bottleneck::Preprocess, pace(profile, knobs, "preprocess")),
        (Bottleneck::Transfer, pace(profile, knobs, "transfer")),
    ];
    stages.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (slowest, ms) = stages[0];
    if ms >= SETS_THE_PACE * profile.period_ms {
        return slowest;
    }
    // With everything in line the stages add up, and the longest is the one to begin with.
    if knobs.workers == 0 {
        return slowest;
    }
    let varies = |stage: &str| profile.stage(stage).std_ms > VARIATION * profile.stage(stage).mean_ms;
    if ["load", "preprocess", "transfer", "train"].into_iter().any(varies) {
        Bottleneck::Variation
    } else {
        Bottleneck::Memory
    }
}

fn findings(profile: &Profile) -> Vec<Finding> {
    let share = |stage: &str| profile.stage(stage).share;
    [
        (Finding::LoadShare, share("load") > LOAD),
        (Finding::TransferShare, share("transfer") > TRANSFER),
        (Finding::DataLaneBusy, profile.data_busy > DATA_LANE),
        (Finding::ModelLaneIdle, profile.model_busy < MODEL_LANE),
        (Finding::TrainingLow, share("train") < TRAINING_LOW),
        (Finding::Variation, profile.variation > VARIATION),
    ]
    .into_iter()
    .filter_map(|(finding, holds)| holds.then_some(finding))
    .collect()
}

fn recommendations(profile: &Profile, knobs: &Knobs, bottleneck: Bottleneck) -> Vec<Recommendation> {
    let step = profile.stage("train").mean_ms;
    // What the run would take if this stage had another pace.
    let gain = |stage: &str, new_pace: f64| {
        let others = ["load", "preprocess", "transfer"].into_iter().filter(|other| *other != stage);
        let slowest = others.map(|other| pace(profile, knobs, other)).fold(step.max(new_pace), f64::max);
        (profile.period_ms / slowest.max(f64::MIN_POSITIVE)).max(1.0)
    };
    let mut all = Vec::new();
    let mut add = |flag: &str, now: String, to: String, gain: f64, why: String| {
        all.push(Recommendation { flag: flag.to_owned(), now, to, gain, why });
    };
    let load = profile.stage("load").mean_ms;
    match bottleneck {
        Bottleneck::Load => {
            let needed = ((1.1 * load / step.max(f64::MIN_POSITIVE)).ceil() as usize).clamp(1, knobs.cores.max(1));
            if needed > knobs.workers {
                let why = format!("a batch takes {load:.1} ms to load, a step {step:.1} ms");
                add(
                    "--num-workers",
                    knobs.workers.to_string(),
                    needed.to_string(),
                    gain("load", load / needed as f64),
                    why,
                );
            }
            if !knobs.cached {
                let why = "from the second epoch on nothing is decoded again".to_owned();
                add("--cache", "off".to_owned(), "disk".to_owned(), gain("load", 0.0), why);
            }
            if all.is_empty() {
                let why = format!("all {} cores load already; larger steps hide it better", knobs.cores);
                let (now, to) = (knobs.batch_size.to_string(), (2 * knobs.batch_size).to_string());
                all.push(Recommendation { flag: "--batch-size".to_owned(), now, to, gain: 1.0, why });
            }
        }
        Bottleneck::Preprocess => {
            if knobs.features_on_data {
                let why = "the data lane's device is slower than the workers would be".to_owned();
                add("--features-on", "data".to_owned(), "cpu".to_owned(), gain("preprocess", 0.0), why);
            } else {
                let why = "another device can compute the features".to_owned();
                add("--features-on", "cpu".to_owned(), "data".to_owned(), gain("preprocess", 0.0), why);
            }
        }
        Bottleneck::Transfer => {
            let why = "preparing and copying take turns on one thread".to_owned();
            if knobs.depth < 2 {
                add("--pipeline-depth", knobs.depth.to_string(), "2".to_owned(), gain("transfer", 0.0), why);
            } else {
                let why = "the link sets the pace; `tandem devices --bench` measures it".to_owned();
                add(
                    "--model-gpu",
                    "this one".to_owned(),
                    "one nearer to the data lane".to_owned(),
                    gain("transfer", 0.0),
                    why,
                );
            }
        }
        Bottleneck::Variation => {
            let why = "queues even out what varies; these ran empty".to_owned();
            let gain = profile.period_ms / step.max(f64::MIN_POSITIVE);
            let to = (2 * knobs.buffer).max(50);
            add("--buffer-size", knobs.buffer.to_string(), to.to_string(), gain, why.clone());
            add(
                "--prefetch-buffer-size",
                knobs.device_queue.to_string(),
                (2 * knobs.device_queue).to_string(),
                gain,
                why,
            );
        }
        Bottleneck::Memory => {
            let why = "batches wait for memory".to_owned();
            let gain = profile.period_ms / step.max(f64::MIN_POSITIVE);
            let (now, to) = (knobs.memory_limit_mb, 2 * knobs.memory_limit_mb);
            add("--memory-limit", now.to_string(), to.to_string(), gain, why);
        }
        Bottleneck::Train => {}
    }
    all.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    all
}
