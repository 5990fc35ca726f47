//! What the stages of a run did with their time once it had warmed up: pure functions of its spans.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tandem_flow::{Cursor, Span, Stage};

use crate::intervals::{busy, union};

/// The name of the time in which the model had nothing to do.
pub const GAPS: &str = "gaps";

/// One stage, per batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageProfile {
    /// The name of a [`Stage`], or [`GAPS`].
    pub name: String,
    /// Mean milliseconds of a batch.
    pub mean_ms: f64,
    /// Their standard deviation.
    pub std_ms: f64,
    /// The same at equal work: that longer batches take longer is not in it.
    #[serde(default)]
    pub jitter_ms: f64,
    /// Its share of the sum of all means.
    pub share: f64,
}

/// What a run did with its time, without the warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Steps that count.
    pub steps: usize,
    /// Steps of the warm-up, which do not count.
    pub warm_up: usize,
    /// Milliseconds of a step and of waiting for its batch; what lies between steps (validation) is not in it.
    pub period_ms: f64,
    /// Steps per second.
    pub steps_per_s: f64,
    /// The timed stages from source to sink, with several ranks what of a step is waiting for others, then the gaps between steps.
    pub stages: Vec<StageProfile>,
    /// Share of the time that the data lane worked (preprocess and transfer, at least one of them).
    pub data_busy: f64,
    /// Share of the time that the model lane worked.
    pub model_busy: f64,
    /// Share of the time that the model had no batch.
    pub starved: f64,
    /// Standard deviation of the time from step to step, over its mean: of steps of equal work. That longer batches take
    /// longer is not in it.
    pub variation: f64,
    /// The stage whose time varies with it.
    pub varies_with: Option<Stage>,
}

impl Profile {
    /// Of these spans, without the first `warm_up` steps; none if fewer than two are left.
    pub fn new(spans: &[Span], warm_up: usize) -> Option<Profile> {
        let steps = steps(spans);
        let counted = steps.get(warm_up..)?;
        let (first, last) = (counted.first()?, counted.last()?);
        if counted.len() < 2 {
            return None;
        }
        let window = (first.start.saturating_sub(first.waited), last.end);
        let periods: Vec<f64> = counted.iter().map(|step| period(step)).collect();
        let gaps: Vec<f64> = counted.iter().map(|step| ms(step.waited)).collect();
        let all_ms = periods.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        let by_stage: BTreeMap<Stage, BTreeMap<Cursor, f64>> = Stage::TIMED
            .into_iter()
            .map(|stage| {
                let of_stage = spans.iter().filter(|span| span.is(stage));
                (stage, of_stage.map(|span| (span.cursor, ms(span.end - span.start))).collect())
            })
            .collect();
        let of_counted = |stage: Stage| -> Vec<f64> {
            counted.iter().filter_map(|step| by_stage[&stage].get(&step.cursor).copied()).collect()
        };
        let jitter_of = |stage: Stage| -> f64 {
            let of_step = |step: &&Span| Some((by_stage[&stage].get(&step.cursor).copied()?, step.bytes as f64));
            let (times, works): (Vec<f64>, Vec<f64>) = counted.iter().filter_map(of_step).unzip();
            mean_and_std(&at_equal_work(&times, &works)).1
        };
        let mut rows: Vec<(&str, f64, f64, f64)> = Stage::TIMED
            .into_iter()
            .map(|stage| {
                let (mean, std) = mean_and_std(&of_counted(stage));
                (stage.name(), mean, std, jitter_of(stage))
            })
            .collect();
        let waits = waits_for_ranks(spans, counted);
        if waits.iter().any(|wait| *wait > 0.0) {
            // A part of the step, which is not training.
            let (mean, std) = mean_and_std(&waits);
            let train = rows.iter_mut().find(|(name, ..)| *name == Stage::Train.name());
            train.expect("a timed stage").1 -= mean;
            rows.push((Stage::Reduce.name(), mean, std, std));
        }
        let (gap, gap_std) = mean_and_std(&gaps);
        rows.push((GAPS, gap, gap_std, gap_std));
        let all: f64 = rows.iter().map(|(_, mean, ..)| mean).sum();
        let stages = rows.iter().map(|&(name, mean_ms, std_ms, jitter_ms)| StageProfile {
            name: name.to_owned(),
            mean_ms,
            std_ms,
            jitter_ms,
            share: if all > 0.0 { mean_ms / all } else { 0.0 },
        });
        let (period_ms, _) = mean_and_std(&periods);
        let works: Vec<f64> = counted.iter().map(|step| step.bytes as f64).collect();
        let periods = at_equal_work(&periods, &works);
        let (_, period_std) = mean_and_std(&periods);
        let varies_with = Stage::TIMED
            .into_iter()
            .map(|stage| (stage, correlation(&of_counted(stage), &periods)))
            .filter(|(_, together)| *together > 0.3)
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(stage, _)| stage);
        Some(Profile {
            steps: counted.len(),
            warm_up: steps.len() - counted.len(),
            period_ms,
            steps_per_s: 1e3 * counted.len() as f64 / all_ms,
            stages: stages.collect(),
            data_busy: busy(&union(spans, &Stage::DATA_LANE), window),
            model_busy: 1.0 - gaps.iter().sum::<f64>() / all_ms,
            starved: gaps.iter().sum::<f64>() / all_ms,
            variation: if period_ms > 0.0 { period_std / period_ms } else { 0.0 },
            varies_with,
        })
    }

    /// The shares of the stages in percent, rounded so that they add up to 100.0.
    pub fn percentages(&self) -> Vec<String> {
        let tenths: Vec<f64> = self.stages.iter().map(|stage| 1000.0 * stage.share).collect();
        let mut rounded: Vec<i64> = tenths.iter().map(|tenth| tenth.floor() as i64).collect();
        let missing = (tenths.iter().sum::<f64>().round() as i64 - rounded.iter().sum::<i64>()).max(0);
        let mut by_rest: Vec<usize> = (0..tenths.len()).collect();
        by_rest.sort_by(|&a, &b| tenths[b].fract().total_cmp(&tenths[a].fract()));
        for &at in by_rest.iter().take(missing as usize) {
            rounded[at] += 1;
        }
        rounded.iter().map(|tenth| format!("{:.1}", *tenth as f64 / 10.0)).collect()
    }

    /// One stage.
    pub fn stage(&self, stage: Stage) -> &StageProfile {
        self.row(stage.name()).expect("every profile has every timed stage")
    }

    /// Share of the time that went by waiting for other ranks.
    pub fn exposed(&self) -> f64 {
        self.row(Stage::Reduce.name()).map_or(0.0, |row| row.mean_ms / self.period_ms.max(f64::MIN_POSITIVE))
    }

    /// The row of this name: a stage, or [`GAPS`].
    pub fn row(&self, name: &str) -> Option<&StageProfile> {
        self.stages.iter().find(|row| row.name == name)
    }
}

/// Milliseconds of each of these steps that went by waiting for other ranks.
fn waits_for_ranks(spans: &[Span], steps: &[&Span]) -> Vec<f64> {
    let mut waits: BTreeMap<Cursor, f64> = BTreeMap::new();
    for span in spans.iter().filter(|span| span.is(Stage::Reduce)) {
        *waits.entry(span.cursor).or_default() += ms(span.end - span.start);
    }
    steps.iter().map(|step| waits.get(&step.cursor).copied().unwrap_or(0.0)).collect()
}

/// The steps in order.
fn steps(spans: &[Span]) -> Vec<&Span> {
    let mut steps: Vec<&Span> = spans.iter().filter(|span| span.is(Stage::Train)).collect();
    steps.sort_by_key(|span| span.start);
    steps
}

/// Milliseconds of a step and of waiting for its batch.
fn period(step: &Span) -> f64 {
    ms(step.waited + (step.end - step.start))
}

/// Milliseconds of each step with its wait, without the first `warm_up`.
pub fn step_times(spans: &[Span], warm_up: usize) -> Vec<f64> {
    steps(spans).into_iter().skip(warm_up).map(period).collect()
}

/// The last steps of `spans`, at most this many, and what their batches took before.
pub fn last_steps(spans: &[Span], most: usize) -> Vec<Span> {
    let steps = steps(spans);
    let kept: BTreeSet<Cursor> = steps.iter().rev().take(most).map(|step| step.cursor).collect();
    spans.iter().filter(|span| kept.contains(&span.cursor)).cloned().collect()
}

fn ms(duration: Duration) -> f64 {
    1e3 * duration.as_secs_f64()
}

fn mean_and_std(values: &[f64]) -> (f64, f64) {
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
    (mean, variance.sqrt())
}

/// The times as they would be if all steps had as much work as the mean one: without what rises in proportion to it.
fn at_equal_work(times: &[f64], works: &[f64]) -> Vec<f64> {
    let ((mean_time, time_std), (mean_work, work_std)) = (mean_and_std(times), mean_and_std(works));
    // More work never takes less time: what looks like it is chance.
    let slope = correlation(works, times).max(0.0) * time_std / work_std.max(f64::MIN_POSITIVE);
    // Not more than all of the time for all of the work.
    let slope = slope.min(mean_time / mean_work.max(f64::MIN_POSITIVE));
    times.iter().zip(works).map(|(time, work)| time - slope * (work - mean_work)).collect()
}

/// How much two series rise and fall together, from -1 to 1; 0 for those that do not.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let ((mean_a, std_a), (mean_b, std_b)) = (mean_and_std(a), mean_and_std(b));
    if a.len() != b.len() || std_a == 0.0 || std_b == 0.0 {
        return 0.0;
    }
    let together = a.iter().zip(b).map(|(a, b)| (a - mean_a) * (b - mean_b)).sum::<f64>() / a.len() as f64;
    together / (std_a * std_b)
}

#[cfg(test)]
mod rank_tests {
    use super::*;

    #[test]
    fn waiting_for_other_ranks_is_a_row_of_its_own_and_not_training() {
        let span = |stage: Stage, batch: u64, start: u64, end: u64| Span {
            stage: stage.name().into(),
            thread: "t".into(),
            cursor: Cursor { epoch: 0, batch },
            bytes: 0,
            start: Duration::from_millis(start),
            end: Duration::from_millis(end),
            waited: Duration::ZERO,
            cpu: None,
        };
        let step = |batch: u64| {
            let at = 100 * batch;
            // A vote at its beginning and a sum near its end.
            let waits = [span(Stage::Reduce, batch, at, at + 4), span(Stage::Reduce, batch, at + 70, at + 86)];
            [span(Stage::Train, batch, at, at + 100)].into_iter().chain(waits)
        };
        let spans: Vec<Span> = (0..6).flat_map(step).collect();
        let profile = Profile::new(&spans, 1).expect("enough steps");
        let mean = |stage: Stage| profile.row(stage.name()).map(|row| row.mean_ms.round());
        assert_eq!((mean(Stage::Train), mean(Stage::Reduce)), (Some(80.0), Some(20.0)));
        assert!((profile.exposed() - 0.2).abs() < 1e-9 && (profile.period_ms - 100.0).abs() < 1e-9);
        let alone: Vec<Span> = spans.into_iter().filter(|span| !span.is(Stage::Reduce)).collect();
        let profile = Profile::new(&alone, 1).expect("enough steps");
        assert!(profile.row(Stage::Reduce.name()).is_none() && profile.exposed() == 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of so many bytes that take so many milliseconds after a wait of so many.
    fn profile(steps: &[(usize, f64, f64)]) -> Profile {
        let (mut now, mut spans) = (Duration::ZERO, Vec::new());
        let of = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        for (batch, &(bytes, ms, waited)) in (0..).zip(steps) {
            let (start, waited) = (now + of(waited), of(waited));
            now = start + of(ms);
            let (stage, thread, cursor) = (Stage::Train.name().into(), "t".into(), Cursor { epoch: 0, batch });
            spans.push(Span { stage, thread, cursor, bytes, start, end: now, waited, cpu: None });
        }
        Profile::new(&spans, 0).expect("enough steps")
    }

    #[test]
    fn batches_of_other_lengths_are_no_variation_and_what_varies_beside_them_is() {
        let lengths = [100, 400, 250, 900, 150, 700, 300, 1000, 200, 500];
        let by_length: Vec<_> = lengths.iter().map(|&bytes| (bytes, 5.0 + 0.1 * bytes as f64, 0.0)).collect();
        let found = profile(&by_length);
        assert!(found.variation < 1e-6, "{}", found.variation);
        // A fixed part makes long batches cheaper by the byte, never dearer.
        let fixed: Vec<_> = lengths.iter().map(|&bytes| (bytes, 50.0, 0.0)).collect();
        assert!(profile(&fixed).variation < 1e-6);
        // Every third step waits or takes three times as long, whatever its length.
        let hiccup = |n: usize| if n.is_multiple_of(3) { 110.0 } else { 0.0 };
        let waits: Vec<_> = by_length.iter().enumerate().map(|(n, &(bytes, ms, _))| (bytes, ms, hiccup(n))).collect();
        let slow: Vec<_> =
            by_length.iter().enumerate().map(|(n, &(bytes, ms, _))| (bytes, ms + hiccup(n), 0.0)).collect();
        for steps in [waits, slow] {
            let found = profile(&steps);
            assert!(found.variation > crate::verdict::thresholds::VARIATION, "{}", found.variation);
        }
        // Stages by themselves: their times rise with the length, too, and only what is left of them varies.
        let train = found.stage(Stage::Train);
        assert!(train.jitter_ms < 1e-6 && train.std_ms > 0.3 * train.mean_ms, "{train:?}");
        // Equal batches, or batches of unknown size: all of it counts.
        let uneven: Vec<_> = (0..10).map(|n| (0, if n % 2 == 0 { 50.0 } else { 150.0 }, 0.0)).collect();
        let uneven = profile(&uneven);
        assert!((uneven.variation - 0.5).abs() < 1e-6 && (uneven.stage(Stage::Train).jitter_ms - 50.0).abs() < 1e-6);
    }
}
