//! Reads the meters, asks the [`Tuner`], turns the knobs.

use std::time::Duration;

use crate::budget::Budget;
use crate::context::Context;
use crate::knob::Knob;
use crate::stats::{QueueStats, StageStats};
use crate::tune::{Decision, MemoryView, Observation, QueueView, StageView, Tuner};

/// How many steps lie between two observations: enough for a mean, few enough to converge within some hundred steps.
const STEPS_PER_OBSERVATION: u64 = 16;

/// Turns the knobs of a running flow. Call [`Autotune::step`] after each step of the sink.
#[derive(Debug)]
#[must_use = "nothing is tuned until `step` is called"]
pub struct Autotune {
    context: Context,
    sink: String,
    workers: Vec<(String, Knob)>,
    depths: Vec<(String, Knob)>,
    budget: Option<Budget>,
    tuner: Tuner,
    steps: u64,
    /// The next observation only takes the totals: what came before it was made under the old settings (at the start, by
    /// an empty pipeline), and a mixture of both would praise a useless move.
    settling: bool,
    before: Totals,
}

/// The totals at an observation, from which the next one takes the difference.
#[derive(Debug, Default)]
struct Totals {
    at: Duration,
    stages: Vec<StageStats>,
    queues: Vec<QueueStats>,
}

impl Autotune {
    /// Tunes for the stage `sink`. Knobs are given with the name of their stage or queue.
    pub fn new(context: &Context, sink: impl AsRef<str>) -> Autotune {
        Autotune {
            context: context.clone(),
            sink: sink.as_ref().to_owned(),
            workers: Vec::new(),
            depths: Vec::new(),
            budget: None,
            tuner: Tuner::new(),
            steps: 0,
            settling: true,
            before: Totals::default(),
        }
    }

    /// May widen this stage.
    pub fn workers(mut self, stage: impl AsRef<str>, knob: &Knob) -> Autotune {
        self.workers.push((stage.as_ref().to_owned(), knob.clone()));
        self
    }

    /// May deepen this queue.
    pub fn depth(mut self, queue: impl AsRef<str>, knob: &Knob) -> Autotune {
        self.depths.push((queue.as_ref().to_owned(), knob.clone()));
        self
    }

    /// Stays within this budget.
    pub fn budget(mut self, budget: &Budget) -> Autotune {
        self.budget = Some(budget.clone());
        self
    }

    /// To be called after each step; observes every sixteen. What is decided is done, noted in the trace, and returned.
    ///
    /// # Panics
    ///
    /// If no stage of the context has the sink's name.
    pub fn step(&mut self) -> Option<Decision> {
        self.steps += 1;
        if !self.steps.is_multiple_of(STEPS_PER_OBSERVATION) {
            return None;
        }
        assert!(self.context.stage(&self.sink).is_some(), "no stage is called `{}`", self.sink);
        let now = Totals { at: self.context.clock.now(), stages: self.context.stages(), queues: self.context.queues() };
        let seen = self.observe(&now);
        self.before = now;
        if std::mem::take(&mut self.settling) {
            return None;
        }
        let decision = self.tuner.decide(&seen)?;
        if decision.is_move() {
            let knobs = self.workers.iter().chain(&self.depths);
            for (_, knob) in knobs.filter(|(name, _)| *name == decision.knob) {
                knob.set(decision.to);
            }
            self.settling = true;
        }
        self.context.trace.note(self.context.clock.now(), decision.to_string());
        Some(decision)
    }

    fn observe(&self, now: &Totals) -> Observation {
        let delta = |name: &str, value: fn(&StageStats) -> f64| {
            let of = |totals: &Totals| totals.stages.iter().find(|stage| stage.name == name).map_or(0.0, value);
            of(now) - of(&self.before)
        };
        let (waited, worked) = (delta(&self.sink, |s| s.wait_in.total), delta(&self.sink, |s| s.busy.total));
        let stages = now.stages.iter().take_while(|stage| stage.name != self.sink).map(|stage| {
            let done = delta(&stage.name, |s| s.busy.count as f64).max(1.0);
            let knob = self.workers.iter().find(|(name, _)| *name == stage.name).map(|(_, knob)| knob);
            StageView {
                name: stage.name.clone(),
                pace_ms: 1e3 * (now.at - self.before.at).as_secs_f64() / done,
                busy_ms: 1e3 * delta(&stage.name, |s| s.busy.total) / done,
                width: knob.map_or(1, Knob::get),
                max_width: knob.map_or(1, |knob| *knob.range().end()),
            }
        });
        let queues = now.queues.iter().filter_map(|queue| {
            let (_, knob) = self.depths.iter().find(|(name, _)| *name == queue.name)?;
            let before = self.before.queues.iter().find(|before| before.name == queue.name);
            Some(QueueView {
                name: queue.name.clone(),
                depth: knob.get(),
                min_depth: *knob.range().start(),
                max_depth: *knob.range().end(),
                full_then_empty: queue.full_then_empty > before.map_or(0, |before| before.full_then_empty),
                item_bytes: queue.high_water_bytes / queue.high_water_items.max(1),
            })
        });
        Observation {
            step_ms: 1e3 * trimmed_mean(&self.context.recent(&self.sink), STEPS_PER_OBSERVATION as usize),
            starved: if waited + worked > 0.0 { waited / (waited + worked) } else { 0.0 },
            stages: stages.collect(),
            queues: queues.collect(),
            memory: (self.budget.as_ref())
                .map(|budget| MemoryView { limit_bytes: budget.limit_bytes(), used_bytes: budget.used_bytes() }),
        }
    }
}

/// The mean of the last `count` values without the smallest and largest tenth.
fn trimmed_mean(values: &[f64], count: usize) -> f64 {
    let mut last = values[values.len().saturating_sub(count)..].to_vec();
    last.sort_by(f64::total_cmp);
    let trim = last.len() / 10;
    let kept = &last[trim..last.len() - trim];
    if kept.is_empty() { 0.0 } else { kept.iter().sum::<f64>() / kept.len() as f64 }
}

#[cfg(test)]
mod tests {
    use super::trimmed_mean;

    #[test]
    fn one_outlier_does_not_move_the_step_time() {
        let mut steps = vec![10.0; 9];
        steps.push(1000.0);
        assert_eq!(trimmed_mean(&steps, 10), 10.0);
        assert_eq!(trimmed_mean(&[], 10), 0.0);
    }
}
