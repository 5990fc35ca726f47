//! The only place where the engine measures: stages and queues.
//!
//! For a stage, time from being asked for a batch to having one to work on is `wait_in`, working is `busy`, and time
//! from handing a batch on to being asked again is `wait_out`. For a queue, how full it was and for how long.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{Clock, thread_label};
use crate::envelope::Cursor;
use crate::sync::{Mutex, lock};
use crate::trace::{Span, Trace};

/// How many of the last values percentiles are taken from (SPEC R1).
const WINDOW: usize = 100;

/// A series of measurements: true totals over all, spread and percentiles over the last hundred (SPEC R1).
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    count: u64,
    total: f64,
    mean: f64,
    /// Sum of squared deviations (Welford), which stays exact where a sum of squares does not.
    deviations: f64,
    last: VecDeque<f64>,
}

impl Series {
    /// Adds a value.
    pub(crate) fn add(&mut self, value: f64) {
        self.count += 1;
        self.total += value;
        let delta = value - self.mean;
        self.mean += delta / self.count as f64;
        self.deviations += delta * (value - self.mean);
        if self.last.len() == WINDOW {
            self.last.pop_front();
        }
        self.last.push_back(value);
    }

    /// The last hundred values, oldest first.
    pub(crate) fn last(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.last.iter().copied()
    }

    /// Mean, spread and percentiles.
    pub(crate) fn summary(&self) -> Summary {
        let mut sorted: Vec<f64> = self.last().collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len() as f64;
        let mean = if sorted.is_empty() { 0.0 } else { sorted.iter().sum::<f64>() / count };
        let deviations: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
        let std = |deviations: f64, count: f64| if count < 2.0 { 0.0 } else { (deviations / (count - 1.0)).sqrt() };
        // The nearest-rank percentile: a value that really occurred.
        let percentile = |p: f64| match sorted.len() {
            0 => 0.0,
            n => sorted[((p * n as f64).ceil() as usize).clamp(1, n) - 1],
        };
        Summary {
            count: self.count,
            total: self.total,
            overall_mean: self.mean,
            overall_std: std(self.deviations, self.count as f64),
            mean,
            std: std(deviations, count),
            min: sorted.first().copied().unwrap_or(0.0),
            max: sorted.last().copied().unwrap_or(0.0),
            p50: percentile(0.50),
            p95: percentile(0.95),
            p99: percentile(0.99),
        }
    }
}

/// What a series of measurements says: true totals over all, spread and percentiles over the last hundred. Times are in
/// seconds; without a value, everything is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of values.
    pub count: u64,
    /// Their sum.
    pub total: f64,
    /// The mean of all of them.
    pub overall_mean: f64,
    /// The standard deviation of all of them.
    pub overall_std: f64,
    /// The mean of the last hundred.
    pub mean: f64,
    /// The standard deviation of the last hundred.
    pub std: f64,
    /// The smallest of the last hundred.
    pub min: f64,
    /// The largest of the last hundred.
    pub max: f64,
    /// The median of the last hundred.
    pub p50: f64,
    /// 95 % of the last hundred are not above it.
    pub p95: f64,
    /// 99 % of the last hundred are not above it.
    pub p99: f64,
}

impl Summary {
    /// Of these values, oldest first.
    pub fn of(values: &[f64]) -> Summary {
        let mut series = Series::default();
        values.iter().for_each(|&value| series.add(value));
        series.summary()
    }
}

/// What one stage did. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageStats {
    /// The stage.
    pub name: String,
    /// Batches done.
    pub items: u64,
    /// Their bytes, as far as stages said them.
    pub bytes: u64,
    /// Batches that failed.
    pub errors: u64,
    /// Work per batch, summed over all workers.
    pub busy: Summary,
    /// Waiting for a batch to work on.
    pub wait_in: Summary,
    /// Waiting to be asked for the next.
    pub wait_out: Summary,
}

#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) name: Arc<str>,
    clock: Clock,
    trace: Trace,
    state: Mutex<MeterState>,
}

#[derive(Debug, Default)]
struct MeterState {
    items: u64,
    bytes: u64,
    errors: u64,
    busy: Series,
    wait_in: Series,
    wait_out: Series,
    at_work: Vec<(Duration, Cursor)>,
}

impl Meter {
    pub(crate) fn new(name: &str, clock: Clock, trace: Trace) -> Meter {
        Meter { name: name.into(), clock, trace, state: Mutex::default() }
    }

    pub(crate) fn wait_in(&self, waited: Duration) {
        lock(&self.state).wait_in.add(waited.as_secs_f64());
    }

    pub(crate) fn wait_out(&self, waited: Duration) {
        lock(&self.state).wait_out.add(waited.as_secs_f64());
    }

    /// Runs one piece of work and records it. Returns the result and when it ended.
    pub(crate) fn work<R>(
        &self,
        cursor: Cursor,
        bytes: usize,
        waited: Duration,
        work: impl FnOnce() -> Result<R, crate::Error>,
    ) -> (Result<R, crate::Error>, Duration) {
        let cpu = self.trace.cpu_time();
        let start = self.clock.now();
        lock(&self.state).at_work.push((start, cursor));
        let result = work();
        let end = self.clock.now();
        {
            let mut state = lock(&self.state);
            if let Some(index) = state.at_work.iter().position(|&(_, at)| at == cursor) {
                state.at_work.swap_remove(index);
            }
            state.busy.add((end - start).as_secs_f64());
            match &result {
                Ok(_) => {
                    state.items += 1;
                    state.bytes += bytes as u64;
                }
                Err(_) => state.errors += 1,
            }
        }
        let cpu = cpu.zip(self.trace.cpu_time()).map(|(before, after)| after.saturating_sub(before));
        self.trace.span(|| {
            let (stage, thread) = (self.name.clone(), thread_label());
            Span { stage, thread, cursor, bytes, start, end, waited, cpu }
        });
        (result, end)
    }

    /// Records a piece of work that somebody else timed.
    pub(crate) fn record(&self, cursor: Cursor, start: Duration, end: Duration) {
        {
            let mut state = lock(&self.state);
            state.busy.add(end.saturating_sub(start).as_secs_f64());
            state.items += 1;
        }
        self.trace.span(|| {
            let (stage, thread) = (self.name.clone(), thread_label());
            Span { stage, thread, cursor, bytes: 0, start, end, waited: Duration::ZERO, cpu: None }
        });
    }

    pub(crate) fn oldest_work(&self) -> Option<(Duration, Cursor)> {
        lock(&self.state).at_work.iter().min().copied()
    }

    pub(crate) fn recent(&self) -> Vec<f64> {
        lock(&self.state).busy.last().collect()
    }

    pub(crate) fn stats(&self) -> StageStats {
        let state = lock(&self.state);
        StageStats {
            name: self.name.to_string(),
            items: state.items,
            bytes: state.bytes,
            errors: state.errors,
            busy: state.busy.summary(),
            wait_in: state.wait_in.summary(),
            wait_out: state.wait_out.summary(),
        }
    }
}

/// How one queue was used. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueStats {
    /// The queue.
    pub name: String,
    /// Batches put in.
    pub pushed: u64,
    /// Batches taken out.
    pub popped: u64,
    /// In it now.
    pub items: usize,
    /// Bytes in it now.
    pub bytes: usize,
    /// Its capacity now.
    pub capacity: usize,
    /// The most batches ever in it.
    pub high_water_items: usize,
    /// The most bytes ever in it.
    pub high_water_bytes: usize,
    /// Mean number of batches in it over time.
    pub mean_items: f64,
    /// Time it was empty.
    pub empty_s: f64,
    /// Time it was full.
    pub full_s: f64,
    /// Time its producer waited for room.
    pub push_wait_s: f64,
    /// Time its consumer waited for a batch.
    pub pop_wait_s: f64,
    /// How often it went from full to empty: the sign that more depth would help.
    pub full_then_empty: u64,
    /// Nothing more comes in: its producer is at its end.
    #[serde(default)]
    pub closed: bool,
}

#[derive(Debug)]
pub(crate) struct QueueMeter {
    pub(crate) name: Arc<str>,
    state: Mutex<QueueMeterState>,
}

#[derive(Debug)]
struct QueueMeterState {
    since: Duration,
    changed: Duration,
    items_seconds: f64,
    was_full: bool,
    push_blocked: Option<Duration>,
    pop_blocked: Option<Duration>,
    stats: QueueStats,
}

impl QueueMeter {
    pub(crate) fn new(name: &str, now: Duration, capacity: usize) -> QueueMeter {
        let stats = QueueStats {
            name: name.to_owned(),
            pushed: 0,
            popped: 0,
            items: 0,
            bytes: 0,
            capacity,
            high_water_items: 0,
            high_water_bytes: 0,
            mean_items: 0.0,
            empty_s: 0.0,
            full_s: 0.0,
            push_wait_s: 0.0,
            pop_wait_s: 0.0,
            full_then_empty: 0,
            closed: false,
        };
        let state = QueueMeterState {
            since: now,
            changed: now,
            items_seconds: 0.0,
            was_full: false,
            push_blocked: None,
            pop_blocked: None,
            stats,
        };
        QueueMeter { name: name.into(), state: Mutex::new(state) }
    }

    pub(crate) fn push_blocked(&self, now: Duration) {
        let mut state = lock(&self.state);
        state.push_blocked.get_or_insert(now);
        state.was_full = true; // also when the bytes are what fills it
    }

    pub(crate) fn closed(&self) {
        lock(&self.state).stats.closed = true;
    }

    pub(crate) fn pop_blocked(&self, now: Duration) {
        lock(&self.state).pop_blocked.get_or_insert(now);
    }

    pub(crate) fn pushed(&self, now: Duration, items: usize, bytes: usize, capacity: usize) {
        let mut state = lock(&self.state);
        if let Some(since) = state.push_blocked.take() {
            state.stats.push_wait_s += (now - since).as_secs_f64();
        }
        state.stats.pushed += 1;
        state.change(now, items, bytes, capacity);
    }

    pub(crate) fn popped(&self, now: Duration, items: usize, bytes: usize, capacity: usize) {
        let mut state = lock(&self.state);
        if let Some(since) = state.pop_blocked.take() {
            state.stats.pop_wait_s += (now - since).as_secs_f64();
        }
        state.stats.popped += 1;
        state.change(now, items, bytes, capacity);
    }

    pub(crate) fn stats(&self, now: Duration) -> QueueStats {
        let mut state = lock(&self.state);
        let (items, bytes, capacity) = (state.stats.items, state.stats.bytes, state.stats.capacity);
        state.change(now, items, bytes, capacity);
        state.stats.clone()
    }
}

impl QueueMeterState {
    fn change(&mut self, now: Duration, items: usize, bytes: usize, capacity: usize) {
        let stats = &mut self.stats;
        let lasted = now.saturating_sub(self.changed).as_secs_f64();
        self.items_seconds += lasted * stats.items as f64;
        if stats.items == 0 {
            stats.empty_s += lasted;
        } else if stats.items >= stats.capacity || self.push_blocked.is_some() {
            stats.full_s += lasted;
        }
        if items >= capacity {
            self.was_full = true;
        } else if items == 0 && std::mem::take(&mut self.was_full) {
            stats.full_then_empty += 1;
        }
        self.changed = now.max(self.changed);
        (stats.items, stats.bytes, stats.capacity) = (items, bytes, capacity);
        stats.high_water_items = stats.high_water_items.max(items);
        stats.high_water_bytes = stats.high_water_bytes.max(bytes);
        let lived = (self.changed - self.since).as_secs_f64();
        stats.mean_items = if lived > 0.0 { self.items_seconds / lived } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_of_all_and_the_rest_of_the_last_hundred() {
        let mut series = Series::default();
        series.add(60.0); // a slow first step must not color the figures for ever
        for n in 1..=100 {
            series.add(f64::from(n));
        }
        let summary = series.summary();
        assert_eq!((summary.count, summary.total), (101, 5110.0));
        assert_eq!((summary.min, summary.max, summary.mean), (1.0, 100.0, 50.5));
        assert_eq!((summary.p50, summary.p95, summary.p99), (50.0, 95.0, 99.0));
        assert!((summary.std - 29.011).abs() < 1e-3 && (summary.overall_mean - 50.594).abs() < 1e-3);
        assert_eq!(Series::default().summary(), Summary::default());
    }
}
