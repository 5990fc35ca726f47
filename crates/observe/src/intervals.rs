//! Pure functions of spans: how busy a lane was, whether two lanes overlapped.

use std::collections::BTreeMap;
use std::time::Duration;

use tandem_flow::{Cursor, Span, Stage};

/// A half-open interval of time.
pub type Interval = (Duration, Duration);

/// The times in which at least one span of these stages was at work, merged and in order.
pub fn union<'a>(spans: impl IntoIterator<Item = &'a Span>, stages: &[Stage]) -> Vec<Interval> {
    let of_stages = spans.into_iter().filter(|span| stages.iter().any(|&stage| span.is(stage)));
    let mut all: Vec<Interval> = of_stages.map(|span| (span.start, span.end)).collect();
    all.sort();
    let mut merged: Vec<Interval> = Vec::with_capacity(all.len());
    for (start, end) in all {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

/// The share of `window` that these merged intervals cover.
pub fn busy(intervals: &[Interval], window: Interval) -> f64 {
    let length = window.1.saturating_sub(window.0);
    let covered: Duration =
        intervals.iter().map(|&(start, end)| end.min(window.1).saturating_sub(start.max(window.0))).sum();
    if length.is_zero() { 0.0 } else { covered.as_secs_f64() / length.as_secs_f64() }
}

/// SPEC P2: the share of steps during which a later batch was being prepared.
///
/// Steps that began when everything was prepared already have nothing to overlap with and do not count.
pub fn overlapped_steps(spans: &[Span]) -> f64 {
    // For each batch, from when to when it was prepared; then, from the last batch backwards, what came later.
    let mut prepared: BTreeMap<Cursor, Vec<Interval>> = BTreeMap::new();
    for span in spans.iter().filter(|span| Stage::PREPARING.iter().any(|&stage| span.is(stage))) {
        prepared.entry(span.cursor).or_default().push((span.start, span.end));
    }
    let Some(all_prepared) = prepared.values().flatten().map(|&(_, end)| end).max() else { return 0.0 };
    let (mut steps, mut overlapped) = (0u64, 0u64);
    for step in spans.iter().filter(|span| span.is(Stage::Train) && span.start < all_prepared) {
        steps += 1;
        let later = prepared.range(step.cursor.next()..).flat_map(|(_, intervals)| intervals);
        overlapped += later.into_iter().any(|&(start, end)| start < step.end && end > step.start) as u64;
    }
    if steps == 0 { 0.0 } else { overlapped as f64 / steps as f64 }
}

/// A lane's work over `window` as a line of `columns` blocks, from a blank (idle) to a full block (busy).
pub fn strip(intervals: &[Interval], window: Interval, columns: usize) -> String {
    const BLOCKS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let length = window.1.saturating_sub(window.0);
    (0..columns as u32)
        .map(|column| {
            let at = |n: u32| window.0 + length * n / columns.max(1) as u32;
            let share = busy(intervals, (at(column), at(column + 1)));
            BLOCKS[(share * 8.0).round() as usize]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn span(stage: Stage, batch: u64, start: u32, end: u32) -> Span {
        let cursor = Cursor { epoch: 0, batch };
        Span {
            stage: stage.name().into(),
            thread: "t".into(),
            cursor,
            bytes: 0,
            start: start * MS,
            end: end * MS,
            waited: Duration::ZERO,
            cpu: None,
        }
    }

    #[test]
    fn two_workers_at_once_count_once() {
        let spans = [
            span(Stage::Load, 0, 0, 10),
            span(Stage::Load, 1, 5, 20),
            span(Stage::Load, 2, 30, 40),
            span(Stage::Train, 0, 0, 99),
        ];
        let merged = union(&spans, &[Stage::Load]);
        assert_eq!(merged, [(Duration::ZERO, 20 * MS), (30 * MS, 40 * MS)]);
        assert_eq!(busy(&merged, (Duration::ZERO, 40 * MS)), 0.75);
        assert_eq!(busy(&merged, (20 * MS, 30 * MS)), 0.0);
        assert_eq!(busy(&merged, (5 * MS, 5 * MS)), 0.0);
    }

    #[test]
    fn serial_work_does_not_overlap_and_pipelined_work_does() {
        let serial: Vec<Span> = (0..4u64)
            .flat_map(|n| {
                let at = 20 * n as u32;
                [span(Stage::Load, n, at, at + 10), span(Stage::Train, n, at + 10, at + 20)]
            })
            .collect();
        assert_eq!(overlapped_steps(&serial), 0.0);
        let pipelined: Vec<Span> = (0..4u64)
            .flat_map(|n| {
                let at = 10 * n as u32;
                [span(Stage::Load, n, at, at + 10), span(Stage::Train, n, at + 10, at + 20)]
            })
            .collect();
        assert_eq!(overlapped_steps(&pipelined), 1.0, "the last step has nothing to overlap with");
    }

    #[test]
    fn preparing_the_same_or_an_earlier_batch_is_not_overlap() {
        let spans = [span(Stage::Load, 0, 0, 30), span(Stage::Train, 0, 10, 20), span(Stage::Load, 1, 40, 50)];
        assert_eq!(overlapped_steps(&spans), 0.0);
    }

    #[test]
    fn a_strip_shows_idle_and_busy() {
        assert_eq!(strip(&[(Duration::ZERO, 10 * MS)], (Duration::ZERO, 40 * MS), 8), "██······");
        assert_eq!(strip(&[(Duration::ZERO, 5 * MS)], (Duration::ZERO, 10 * MS), 1), "▄");
    }
}
