//! A run as it is now: how far it is, what its last hundred steps did, and true totals (SPEC R1, R3).

use serde::{Deserialize, Serialize};
use tandem_flow::{Span, Summary};

use crate::metrics::Progress;
use crate::stage_profile::{Profile, last_steps, step_times};
use crate::verdict::{Verdict, thresholds};

/// Steps that a snapshot goes back.
pub const WINDOW: usize = 100;
/// The first steps of a start are not like the others: kernels are compiled, memory is found.
const FIRST: usize = 3;
/// Steps without which a profile says nothing.
const ENOUGH: usize = 10;

/// How full a queue is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueFill {
    /// The queue.
    pub name: String,
    /// Batches in it.
    pub items: usize,
    /// Batches that there may be.
    pub capacity: usize,
}

/// What is used of a memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// The name of a [`Place`](tandem_flow::Place).
    pub name: String,
    /// The device.
    pub device: String,
    /// What is used.
    pub used_bytes: u64,
    /// What there may be, if that is known.
    pub limit_bytes: Option<u64>,
}

/// A run as it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// How far it is.
    #[serde(flatten)]
    pub progress: Progress,
    /// Seconds since this start of the run.
    pub seconds: f64,
    /// The last validation loss.
    pub validation: Option<f64>,
    /// Clips trained on, from the very start.
    pub total_clips: u64,
    /// Seconds of audio trained on, from the very start.
    pub total_audio_s: f64,
    /// Seconds of training, from the very start.
    pub total_s: f64,
    /// What the stages did in the last hundred steps.
    pub profile: Profile,
    /// Milliseconds of a step, with its wait.
    pub step_ms: Summary,
    /// The last of them, oldest first.
    pub recent_ms: Vec<f64>,
    /// What limits the run.
    pub verdict: Verdict,
    /// What infinitely fast data would give at most: 0.44 is 44 % more steps.
    pub headroom: f64,
    /// The queues, from source to sink.
    pub queues: Vec<QueueFill>,
    /// Memory of the host and of the lanes.
    pub memory: Vec<MemoryUse>,
    /// CPU load by this program, in percent of one core, where it is known.
    pub cpu_percent: Option<f64>,
    /// The data lane's device.
    pub data_device: String,
    /// The model lane's device.
    pub model_device: String,
    /// The devices are simulated.
    pub simulated: bool,
}

/// The profile and the step times (in ms) of the last steps, or none when there are too few; `done` steps were done since
/// the start.
pub fn recent_profile(spans: &[Span], done: usize) -> Option<(Profile, Vec<f64>)> {
    let most = WINDOW.min(done.saturating_sub(FIRST));
    if most < ENOUGH {
        return None;
    }
    let last = last_steps(spans, most);
    Some((Profile::new(&last, 0)?, step_times(&last, 0)))
}

/// What infinitely fast data would give at most (SPEC R6): without a wait, the same steps take `1 - starved` of the time. The
/// only definition, for a profile, a run and its report.
pub fn headroom(starved: f64) -> f64 {
    if starved < thresholds::STARVED / 10.0 { 0.0 } else { starved / (1.0 - starved).max(1e-3) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_never_waits_gains_nothing() {
        for (starved, gain) in [(0.0, 0.0), (0.001, 0.0), (0.2, 0.25), (0.5, 1.0), (0.75, 3.0)] {
            assert!((headroom(starved) - gain).abs() < 1e-9, "{starved}: {}", headroom(starved));
        }
        assert!(headroom(1.0).is_finite());
    }
}
