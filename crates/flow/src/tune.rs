//! Pure rules that turn what was measured into knob moves, each with its reason.
//!
//! Two rules, after the one that keeps memory in bounds: widen the slowest stage until it is faster than the step
//! of the sink; deepen a queue only when it was seen full and later empty, which is what jitter does. A wider stage is
//! checked at the next observation: if it is not faster, the move is taken back and not tried again.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Below this share of time without a batch the sink counts as not starved.
const STARVED: f64 = 0.01;
/// A wider stage must be faster by this much, or the cores are what limits it.
const WORTHWHILE: f64 = 0.05;
/// A stage should be faster than the sink by this much, so that jitter does not starve it.
const MARGIN: f64 = 0.9;

/// What was seen since the last observation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Observation {
    /// Trimmed mean of the sink's work per batch, in ms.
    pub(crate) step_ms: f64,
    /// Share of the sink's time without a batch.
    pub(crate) starved: f64,
    /// The stages before the sink, from the source on.
    pub(crate) stages: Vec<StageView>,
    /// The queues, from the source on.
    pub(crate) queues: Vec<QueueView>,
    /// The memory that batches may take, if it is bounded.
    pub(crate) memory: Option<MemoryView>,
}

/// One stage.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StageView {
    /// Its name.
    pub(crate) name: String,
    /// Mean work per batch, in ms.
    pub(crate) busy_ms: f64,
    /// Time per batch that the stage as a whole really took, in ms, waits included.
    pub(crate) pace_ms: f64,
    /// Batches worked on at once.
    pub(crate) width: usize,
    /// The most that `width` may become; equal to it when the stage cannot be widened.
    pub(crate) max_width: usize,
}

impl StageView {
    /// Time between two batches when nothing else limits it, neither its neighbors nor the cores.
    fn interval_ms(&self) -> f64 {
        self.busy_ms / self.width.max(1) as f64
    }
}

/// One queue.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QueueView {
    /// Its name.
    pub(crate) name: String,
    /// Its capacity in batches.
    pub(crate) depth: usize,
    /// The least and the most that `depth` may become.
    pub(crate) min_depth: usize,
    /// See `min_depth`.
    pub(crate) max_depth: usize,
    /// It was full and later empty.
    pub(crate) full_then_empty: bool,
    /// Mean size of a batch in it.
    pub(crate) item_bytes: usize,
}

/// The memory that batches may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MemoryView {
    /// What may be leased.
    pub(crate) limit_bytes: usize,
    /// What is leased.
    pub(crate) used_bytes: usize,
}

/// A move, or the decision to rest, with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The stage or queue; empty when nothing moves.
    pub knob: String,
    /// The value before.
    pub from: usize,
    /// The value after.
    pub to: usize,
    /// Why.
    pub reason: String,
}

impl Decision {
    /// Whether a knob moves.
    pub fn is_move(&self) -> bool {
        self.from != self.to
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_move() {
            write!(f, "{} {} -> {}: {}", self.knob, self.from, self.to, self.reason)
        } else {
            write!(f, "no change: {}", self.reason)
        }
    }
}

/// Remembers what was tried.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tuner {
    /// The widening that is to be judged at the next observation.
    trial: Option<Trial>,
    /// Stages that more width does not help, with the reason.
    exhausted: BTreeMap<String, String>,
    last_rest: Option<String>,
}

/// A stage as it was before it was widened.
#[derive(Clone, Debug)]
struct Trial {
    name: String,
    width: usize,
    interval_ms: f64,
    pace_ms: f64,
}

impl Tuner {
    /// Nothing tried yet.
    pub(crate) fn new() -> Tuner {
        Tuner::default()
    }

    /// One observation: at most one move. `None` when it rests for the same reason as before.
    pub(crate) fn decide(&mut self, seen: &Observation) -> Option<Decision> {
        let decision = self.choose(seen);
        if decision.is_move() {
            self.last_rest = None;
        } else if self.last_rest.as_deref() == Some(&decision.reason) {
            return None;
        } else {
            self.last_rest = Some(decision.reason.clone());
        }
        Some(decision)
    }

    fn choose(&mut self, seen: &Observation) -> Decision {
        if let Some(decision) = self.review(seen) {
            return decision;
        }
        if let Some(decision) = give_back(seen) {
            return decision;
        }
        if seen.starved <= STARVED {
            return rest("not starved".to_owned());
        }
        self.widen(seen).or_else(|| deepen(seen)).unwrap_or_else(|| self.explain(seen))
    }

    /// Takes back a move that brought nothing.
    fn review(&mut self, seen: &Observation) -> Option<Decision> {
        let Trial { name, width: width_before, interval_ms, pace_ms: pace_before } = self.trial.take()?;
        let stage = seen.stages.iter().find(|stage| stage.name == name)?;
        // With cores to spare, twice the workers halve the interval; half of that gain is enough to believe it. The
        // pace is bounded by the neighbors too, so it can acquit the move but not condemn it.
        let ideal_gain = 1.0 - width_before.max(1) as f64 / stage.width.max(1) as f64;
        let faster = stage.interval_ms() <= interval_ms * (1.0 - 0.5 * ideal_gain);
        let fast_enough = stage.interval_ms() <= seen.step_ms * MARGIN;
        if faster || fast_enough || stage.pace_ms <= pace_before * (1.0 - WORTHWHILE) {
            return None;
        }
        let reason = format!(
            "{name} takes {:.1} ms per batch with {} workers and took {pace_before:.1} with {width_before}: \
             the cores are the limit",
            stage.pace_ms, stage.width
        );
        self.exhausted.insert(name.clone(), reason.clone());
        Some(Decision { knob: name, from: stage.width, to: width_before, reason })
    }

    fn widen(&mut self, seen: &Observation) -> Option<Decision> {
        let stage = (seen.stages.iter())
            .filter(|stage| stage.interval_ms() > seen.step_ms * MARGIN)
            .filter(|stage| stage.width < stage.max_width && !self.exhausted.contains_key(&stage.name))
            .max_by(|a, b| a.interval_ms().total_cmp(&b.interval_ms()))?;
        // As many as the ratio asks for, but at most twice as many at a time: a guess is checked before the next.
        let wanted = (stage.busy_ms / (seen.step_ms * MARGIN).max(1e-6)).ceil() as usize;
        let to = wanted.clamp(stage.width + 1, (2 * stage.width).max(1)).min(stage.max_width).max(stage.width + 1);
        self.trial = Some(Trial {
            name: stage.name.clone(),
            width: stage.width,
            interval_ms: stage.interval_ms(),
            pace_ms: stage.pace_ms,
        });
        Some(Decision {
            knob: stage.name.clone(),
            from: stage.width,
            to,
            reason: format!(
                "{} takes {:.1} ms per batch, the step {:.1}; starved {:.0} %",
                stage.name,
                stage.interval_ms(),
                seen.step_ms,
                100.0 * seen.starved
            ),
        })
    }

    /// Why nothing more can be done.
    fn explain(&self, seen: &Observation) -> Decision {
        let slowest = (seen.stages.iter())
            .filter(|stage| stage.interval_ms() > seen.step_ms * MARGIN)
            .max_by(|a, b| a.interval_ms().total_cmp(&b.interval_ms()));
        let blocked_queue = seen.queues.iter().find(|queue| queue.full_then_empty);
        rest(match (slowest, blocked_queue) {
            (Some(stage), _) => match self.exhausted.get(&stage.name) {
                Some(reason) => reason.clone(),
                None => format!(
                    "{} takes longer per batch than the step and cannot be widened beyond {}",
                    stage.name, stage.width
                ),
            },
            (None, Some(queue)) => {
                format!("{} runs empty now and then, but a deeper queue exceeds its limit or the memory", queue.name)
            }
            (None, None) => "every stage is faster than the step".to_owned(),
        })
    }
}

fn rest(reason: String) -> Decision {
    Decision { knob: String::new(), from: 0, to: 0, reason }
}

/// What the queues would hold when full.
fn planned_bytes(seen: &Observation) -> usize {
    seen.queues.iter().map(|queue| queue.depth.saturating_mul(queue.item_bytes)).fold(0, usize::saturating_add)
}

fn give_back(seen: &Observation) -> Option<Decision> {
    let memory = seen.memory?;
    let planned = planned_bytes(seen);
    if planned <= memory.limit_bytes && memory.used_bytes <= memory.limit_bytes {
        return None;
    }
    let queue = (seen.queues.iter())
        .filter(|queue| queue.depth > queue.min_depth.max(1))
        .max_by_key(|queue| queue.depth.saturating_mul(queue.item_bytes.max(1)))?;
    Some(Decision {
        knob: queue.name.clone(),
        from: queue.depth,
        to: (queue.depth / 2).max(queue.min_depth).max(1),
        reason: format!(
            "memory: the queues may hold {:.1} MB and {:.1} MB are in use, the limit is {:.1} MB",
            megabytes(planned),
            megabytes(memory.used_bytes),
            megabytes(memory.limit_bytes)
        ),
    })
}

fn deepen(seen: &Observation) -> Option<Decision> {
    // A queue evens out what varies; it does not make a stage faster that is too slow on average.
    if seen.stages.iter().any(|stage| stage.interval_ms() > seen.step_ms) {
        return None;
    }
    let allowed = seen.memory.map_or(usize::MAX, |memory| memory.limit_bytes);
    let queue = (seen.queues.iter())
        .filter(|queue| queue.full_then_empty && queue.depth < queue.max_depth)
        .find(|queue| planned_bytes(seen).saturating_add(queue.depth.saturating_mul(queue.item_bytes)) <= allowed)?;
    Some(Decision {
        knob: queue.name.clone(),
        from: queue.depth,
        to: (2 * queue.depth).min(queue.max_depth),
        reason: format!("{} was full and later empty; starved {:.0} %", queue.name, 100.0 * seen.starved),
    })
}

fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(name: &str, busy_ms: f64, width: usize, max_width: usize) -> StageView {
        StageView { name: name.into(), busy_ms, pace_ms: busy_ms / width as f64, width, max_width }
    }

    fn queue(name: &str, depth: usize, full_then_empty: bool, item_bytes: usize) -> QueueView {
        QueueView { name: name.into(), depth, min_depth: 1, max_depth: 64, full_then_empty, item_bytes }
    }

    fn moved(decision: Option<Decision>) -> (String, usize, usize) {
        let decision = decision.expect("a decision");
        (decision.knob, decision.from, decision.to)
    }

    #[test]
    fn rests_when_not_starved_and_says_so_once() {
        let mut tuner = Tuner::new();
        let seen = Observation {
            step_ms: 100.0,
            starved: 0.005,
            stages: vec![stage("load", 900.0, 1, 8)],
            ..Default::default()
        };
        assert_eq!(tuner.decide(&seen).expect("said once").reason, "not starved");
        assert_eq!(tuner.decide(&seen), None);
    }

    #[test]
    fn widens_the_slowest_stage_and_doubles_at_most() {
        let seen = |width, busy| Observation {
            step_ms: 100.0,
            starved: 0.5,
            stages: vec![stage("load", busy, width, 16), stage("preprocess", 110.0, 1, 1)],
            ..Default::default()
        };
        let mut tuner = Tuner::new();
        assert_eq!(moved(tuner.decide(&seen(1, 700.0))), ("load".into(), 1, 2));
        assert_eq!(moved(tuner.decide(&seen(2, 700.0))), ("load".into(), 2, 4));
        assert_eq!(moved(tuner.decide(&seen(4, 700.0))), ("load".into(), 4, 8));
        let rest = tuner.decide(&seen(8, 700.0)).expect("a reason");
        assert!(!rest.is_move() && rest.reason.starts_with("preprocess"), "{rest}");
    }

    #[test]
    fn takes_a_useless_move_back_and_blames_the_cores() {
        let mut tuner = Tuner::new();
        let seen = |width: usize, busy| Observation {
            step_ms: 10.0,
            starved: 0.5,
            stages: vec![stage("load", busy, width, 16)],
            ..Default::default()
        };
        assert_eq!(moved(tuner.decide(&seen(2, 40.0))), ("load".into(), 2, 4));
        assert_eq!(moved(tuner.decide(&seen(4, 80.0))), ("load".into(), 4, 2));
        let rest = tuner.decide(&seen(2, 40.0)).expect("a reason");
        assert!(!rest.is_move() && rest.reason.contains("cores"), "{rest}");
        assert_eq!(tuner.decide(&seen(2, 40.0)), None, "it says so once");
    }

    #[test]
    fn deepens_only_a_queue_that_was_full_and_then_empty_and_only_within_memory() {
        let seen = |full_then_empty, limit_bytes| Observation {
            step_ms: 10.0,
            starved: 0.1,
            queues: vec![queue("host", 4, full_then_empty, 100)],
            memory: Some(MemoryView { limit_bytes, used_bytes: 0 }),
            ..Default::default()
        };
        assert_eq!(moved(Tuner::new().decide(&seen(true, 800))), ("host".into(), 4, 8));
        assert!(!Tuner::new().decide(&seen(true, 799)).expect("a reason").is_move());
        assert!(!Tuner::new().decide(&seen(false, 800)).expect("a reason").is_move());
    }

    #[test]
    fn gives_memory_back_under_pressure_even_when_starved() {
        let seen = |depth, used_bytes| Observation {
            step_ms: 10.0,
            starved: 0.5,
            queues: vec![queue("host", depth, true, 100), queue("data", 2, true, 100)],
            memory: Some(MemoryView { limit_bytes: 500, used_bytes }),
            ..Default::default()
        };
        assert_eq!(moved(Tuner::new().decide(&seen(16, 0))), ("host".into(), 16, 8));
        assert_eq!(moved(Tuner::new().decide(&seen(3, 600))), ("host".into(), 3, 1));
    }

    #[test]
    fn a_move_that_a_slow_neighbor_hides_is_not_taken_back() {
        // Two stages of 102 and 100 ms before a step of 50: the pace hardly changes until both are wider.
        let seen = |a: usize, b: usize, pace| {
            let mut stages = vec![stage("a", 102.0, a, 8), stage("b", 100.0, b, 8)];
            stages.iter_mut().for_each(|stage| stage.pace_ms = pace);
            Observation { step_ms: 50.0, starved: 0.5, stages, ..Default::default() }
        };
        let mut tuner = Tuner::new();
        assert_eq!(moved(tuner.decide(&seen(1, 1, 102.0))), ("a".into(), 1, 2));
        assert_eq!(moved(tuner.decide(&seen(2, 1, 100.0))), ("b".into(), 1, 2));
        assert_eq!(moved(tuner.decide(&seen(2, 2, 51.0))), ("a".into(), 2, 3));
    }

    #[test]
    fn a_queue_at_its_least_depth_is_left_alone() {
        let mut small = queue("host", 2, true, 100);
        small.min_depth = 2;
        let memory = Some(MemoryView { limit_bytes: 150, used_bytes: 0 });
        let seen = Observation { step_ms: 10.0, starved: 0.0, queues: vec![small], memory, ..Default::default() };
        assert!(!Tuner::new().decide(&seen).expect("a reason").is_move());
    }
}
