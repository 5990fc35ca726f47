//! Spans as a file for Perfetto and chrome://tracing: one row per thread, one color per batch.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};
use tandem_flow::{Trace, TraceEvent};

/// Perfetto colors a slice by its name without digits, chrome://tracing by `cname`. So a batch's slices carry the
/// same word in every row, neighbors get different words, and both viewers show one color per batch.
const COLORS: [(&str, &str); 8] = [
    ("amber", "thread_state_iowait"),
    ("teal", "thread_state_running"),
    ("violet", "thread_state_unknown"),
    ("rose", "bad"),
    ("lime", "good"),
    ("azure", "rail_animation"),
    ("coral", "terrible"),
    ("slate", "grey"),
];

/// Writes everything in `trace` in Chrome's JSON trace format. `process` is the title of the rows.
pub fn write_chrome_trace(trace: &Trace, process: &str, out: &mut impl Write) -> io::Result<()> {
    let spans = trace.spans();
    // Rows in the order in which they first worked: from the source to the sink.
    let mut rows: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut by_start: Vec<_> = spans.iter().collect();
    by_start.sort_by_key(|span| span.start);
    for span in &by_start {
        match rows.iter_mut().find(|(thread, _)| *thread == &*span.thread) {
            None => rows.push((&span.thread, vec![&span.stage])),
            Some((_, stages)) if !stages.contains(&&*span.stage) => stages.push(&span.stage),
            Some(_) => {}
        }
    }
    let numbers: BTreeMap<_, u64> = by_start
        .iter()
        .map(|span| span.cursor)
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .zip(0..)
        .collect();

    write!(out, "{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    write!(out, "{}", json!({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": process}}))?;
    let mut event = |value: Value| write!(out, ",\n{value}");
    for (row, (thread, stages)) in rows.iter().enumerate() {
        let name =
            if stages.contains(thread) { (*thread).to_owned() } else { format!("{thread}: {}", stages.join(", ")) };
        event(json!({"ph": "M", "pid": 1, "tid": row + 1, "name": "thread_name", "args": {"name": name}}))?;
        event(json!({"ph": "M", "pid": 1, "tid": row + 1, "name": "thread_sort_index", "args": {"sort_index": row}}))?;
    }
    for span in by_start {
        let row = rows.iter().position(|(thread, _)| *thread == &*span.thread).expect("collected above");
        let (word, cname) = COLORS[(numbers[&span.cursor] % COLORS.len() as u64) as usize];
        let args = json!({"stage": &*span.stage, "epoch": span.cursor.epoch, "batch": span.cursor.batch});
        let (ts, dur) = (micros(span.start), micros(span.end) - micros(span.start));
        event(json!({"ph": "X", "pid": 1, "tid": row + 1, "ts": ts, "dur": dur, "cat": &*span.stage,
            "name": format!("batch {} {word}", span.cursor.batch), "cname": cname, "args": args}))?;
        if rows[row].1.len() > 1 {
            // Several stages share this thread: a slice inside says which one it is.
            event(
                json!({"ph": "X", "pid": 1, "tid": row + 1, "ts": ts, "dur": dur, "cat": "stage", "name": &*span.stage}),
            )?;
        }
    }
    for record in trace.events() {
        event(match record {
            TraceEvent::Fill { queue, at, items, .. } => {
                json!({"ph": "C", "pid": 1, "ts": micros(at), "name": format!("queue {queue}"), "args": {"batches": items}})
            }
            TraceEvent::Note { at, text } => {
                json!({"ph": "i", "pid": 1, "tid": 0, "s": "p", "ts": micros(at), "name": text})
            }
        })?;
    }
    writeln!(out, "\n]}}")
}

/// Whole microseconds: with fractions, a start plus a duration may come out a hair after the next start, and viewers take
/// the two slices for nested (seen in speedscope).
fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}
