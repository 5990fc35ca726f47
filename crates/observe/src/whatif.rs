//! What another setup would give (SPEC R7): the real engine on simulated lanes, with what batches really took.
//!
//! Batches are measured one after the other with nothing beside them, so that what they take does not depend on the
//! setup; how they get in each other's way on the cores of the machine is part of the simulation.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tandem_flow::{Clock, Cursor, Random, Span, Stage, Stop};

use crate::simulate::{Simulation, simulate};
use crate::stage_profile::Profile;

/// Steps of a simulation that do not count, and those that do.
const STEPS: (usize, usize) = (20, 60);
/// Simulations with other draws of the batches, for the interval.
const DRAWS: u64 = 8;
/// Pieces of a step after which the shares of the cores are computed again.
const SLICES: u32 = 40;

/// What batches take in each stage when nothing else runs, and how many cores they keep busy meanwhile.
#[derive(Clone, Debug, PartialEq)]
pub struct Alone {
    batches: Vec<[Duration; 4]>,
    /// Cores that each of [`Stage::TIMED`] keeps busy.
    pub threads: [f64; 4],
}

impl Alone {
    /// From the spans of a synchronous run, without the first `warm_up` steps; none when nothing is left.
    pub fn new(spans: &[Span], warm_up: usize) -> Option<Alone> {
        let mut by_batch: BTreeMap<Cursor, [Option<&Span>; 4]> = BTreeMap::new();
        for span in spans {
            if let Some(stage) = Stage::TIMED.iter().position(|&stage| span.is(stage)) {
                by_batch.entry(span.cursor).or_default()[stage] = Some(span);
            }
        }
        let whole = by_batch.values().filter_map(|stages| stages.iter().copied().collect::<Option<Vec<_>>>());
        let kept: Vec<Vec<&Span>> = whole.skip(warm_up).collect();
        let batches = kept.iter().map(|stages| std::array::from_fn(|n| stages[n].end - stages[n].start)).collect();
        let threads = std::array::from_fn(|n| {
            let wall: Duration = kept.iter().map(|stages| stages[n].end - stages[n].start).sum();
            let on_cores: Duration = kept.iter().filter_map(|stages| stages[n].cpu).sum();
            if wall.is_zero() { 1.0 } else { on_cores.as_secs_f64() / wall.as_secs_f64() }
        });
        (!kept.is_empty()).then_some(Alone { batches, threads })
    }

    /// These batches and those.
    pub fn join(mut self, other: Alone) -> Alone {
        let (mine, others) = (self.batches.len() as f64, other.batches.len() as f64);
        for (threads, of_others) in self.threads.iter_mut().zip(other.threads) {
            *threads = (*threads * mine + of_others * others) / (mine + others);
        }
        self.batches.extend(other.batches);
        self
    }

    /// The same, with what `other` says about the last stage: steps that a change does not touch.
    pub fn with_steps_of(mut self, other: &Alone) -> Alone {
        for (number, batch) in (0..).zip(&mut self.batches) {
            batch[3] = other.time(number, 3);
        }
        self.threads[3] = other.threads[3];
        self
    }

    /// The same, with steps that take so much longer: what ranks wait for each other.
    pub fn with_longer_steps(mut self, by: Duration) -> Alone {
        self.batches.iter_mut().for_each(|batch| batch[3] += by);
        self
    }

    /// Milliseconds of a batch in each of [`Stage::TIMED`].
    pub fn mean_ms(&self) -> [f64; 4] {
        let mean = |stage: usize| self.batches.iter().map(|batch| batch[stage].as_secs_f64()).sum::<f64>();
        std::array::from_fn(|stage| 1e3 * mean(stage) / self.batches.len() as f64)
    }

    /// How much of its time loading keeps a core busy, in percent.
    pub fn load_cpu_percent(&self) -> usize {
        (100.0 * self.threads[0]).round().clamp(1.0, 100.0) as usize
    }

    /// What batch `number` takes in a stage; after the last one they begin again.
    pub(crate) fn time(&self, number: u64, stage: usize) -> Duration {
        self.batches[(number % self.batches.len() as u64) as usize][stage]
    }

    pub(crate) fn slice(&self) -> Duration {
        let longest = self.mean_ms().into_iter().fold(0.0, f64::max);
        Duration::from_secs_f64(longest / 1e3) / SLICES
    }

    /// As many of the same batches, drawn again.
    fn drawn(&self, seed: u64) -> Alone {
        let mut random = Random::at(&[seed, self.batches.len() as u64]);
        let count = self.batches.len();
        let draw = |_| self.batches[((random.unit() * count as f64) as usize).min(count - 1)];
        Alone { batches: (0..count).map(draw).collect(), threads: self.threads }
    }
}

/// What a setup would give, in steps per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// Most likely.
    pub steps_per_s: f64,
    /// Hardly less.
    pub low: f64,
    /// Hardly more.
    pub high: f64,
}

/// What `after` would give where `before` was measured to give `measured` steps per second, with this relative error.
///
/// Only the ratio of two simulations counts: what both get wrong in the same way does not matter.
pub fn predict(measured: f64, error: f64, before: (&Alone, &Simulation), after: (&Alone, &Simulation)) -> Predicted {
    let ratio = |before_alone: &Alone, after_alone: &Alone| {
        rate(after_alone, after.1) / rate(before_alone, before.1).max(f64::MIN_POSITIVE)
    };
    let steps_per_s = measured * ratio(before.0, after.0);
    let drawn: Vec<f64> =
        (1..=DRAWS).map(|seed| measured * ratio(&before.0.drawn(seed), &after.0.drawn(seed))).collect();
    let low = drawn.iter().copied().fold(steps_per_s, f64::min);
    let high = drawn.iter().copied().fold(steps_per_s, f64::max);
    Predicted { steps_per_s, low: low * (1.0 - 2.0 * error).max(0.0), high: high * (1.0 + 2.0 * error) }
}

/// Steps per second of a simulated setup in which batches take what they took.
pub fn rate(alone: &Alone, setup: &Simulation) -> f64 {
    let simulation = Simulation {
        measured: Some(alone.clone()),
        steps: (STEPS.0 + STEPS.1) as u64,
        max_workers: setup.workers,
        stall_timeout: Duration::from_secs(3600),
        ..setup.clone()
    };
    let run = simulate(&simulation, Clock::virtual_time(), Stop::new(), |_| {});
    Profile::new(&run.trace.spans(), STEPS.0).map_or(0.0, |profile| profile.steps_per_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(ms: [u64; 4], threads: [f64; 4]) -> Alone {
        Alone { batches: vec![ms.map(Duration::from_millis); 3], threads }
    }

    fn setup() -> Simulation {
        Simulation {
            workers: 1,
            cores: 4,
            buffer: 8,
            depth: 1,
            device_queue: 2,
            batch_bytes: 1,
            memory_limit: 1 << 20,
            ..Simulation::default()
        }
    }

    #[test]
    fn a_gpu_waits_for_its_slowest_stage_and_more_workers_help() {
        let times = alone([200, 10, 10, 100], [1.0, 1.0, 1.0, 0.0]);
        let near = |rate: f64, wanted: f64| assert!((rate / wanted - 1.0).abs() < 0.02, "{rate} {wanted}");
        near(rate(&times, &setup()), 5.0);
        near(rate(&times, &Simulation { workers: 2, ..setup() }), 10.0);
        near(rate(&times, &Simulation { workers: 0, buffer: 0, depth: 0, device_queue: 0, ..setup() }), 1.0 / 0.32);
        let predicted = predict(4.5, 0.01, (&times, &setup()), (&times, &Simulation { workers: 2, ..setup() }));
        near(predicted.steps_per_s, 9.0);
        assert!(predicted.low < 9.0 && predicted.high > 9.0 && predicted.high < 9.5, "{predicted:?}");
    }

    #[test]
    fn on_shared_cores_loading_slows_the_steps_down() {
        // A step on both cores and 60 ms of loading, which take 90 ms beside it; meanwhile the step does 45 of its 100 ms.
        let times = alone([60, 0, 0, 100], [1.0, 1.0, 1.0, 2.0]);
        let rate = rate(&times, &Simulation { workers: 1, cores: 2, ..setup() });
        assert!((rate * 0.145 - 1.0).abs() < 0.05, "{rate}");
    }

    #[test]
    fn memory_for_one_batch_lets_only_the_model_overlap() {
        // On the host a batch needs memory until it is copied.
        let times = alone([50, 10, 10, 50], [1.0, 1.0, 1.0, 0.0]);
        let rate = rate(&times, &Simulation { memory_limit: 1, ..setup() });
        assert!((rate * 0.070 - 1.0).abs() < 0.05, "{rate}");
    }
}
