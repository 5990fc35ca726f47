//! A pool that loads, a stage that prepares, a consumer that is slower than both; memory is leased before work starts
//! and bounded queues lie between. With a path, who worked when is written there, for <https://ui.perfetto.dev>.
//!
//!     cargo run --release -p tandem-flow --example pipeline -- [TRACE.json]

use std::collections::BTreeSet;
use std::time::Duration;

use tandem_flow::{Budget, Context, Cursor, Fault, Flow, Knob, Oversize, Span, Trace};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let context = Context::default().with_trace(Trace::with_limit(1000));
    let (workers, depth) = (Knob::fixed("workers", 4), Knob::fixed("depth", 4));
    let memory = Budget::new("host", 12_000_000, Oversize::Alone);
    let work = |ms: u64| {
        move |batch: u64| {
            std::thread::sleep(Duration::from_millis(ms));
            Ok::<u64, Fault>(batch)
        }
    };
    // Two epochs of thirty batches. Four workers of 20 ms are faster than steps of 8 ms, so the model hardly waits.
    let flow = Flow::source(&context, "plan", Cursor::START, 2, |_epoch| 0..30u64)
        .lease(&memory, |_| 1_000_000)
        .par_stage("load", &workers, work(20))
        .prefetch("loaded", &depth)
        .stage("prepare", work(3))
        .prefetch("ready", &depth)
        .stage("train", work(8));
    for batch in flow {
        let batch = batch?;
        assert_eq!(batch.value, batch.cursor.batch, "in the order of the plan");
    }
    println!("stage    batches  work ms  waits for a batch ms  waits to be asked ms");
    for stage in context.stages() {
        let [busy, input, output] = [stage.busy, stage.wait_in, stage.wait_out].map(|series| 1e3 * series.overall_mean);
        println!("{:8} {:7} {busy:8.1} {input:21.1} {output:21.1}", stage.name, stage.items);
    }
    for queue in context.queues() {
        println!("queue {}: {:.1} of {} batches on average", queue.name, queue.mean_items, queue.capacity);
    }
    println!("memory: at most {} of {} bytes leased", memory.high_water_bytes(), memory.limit_bytes());
    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(&path, chrome_trace(&context.trace.spans()))?;
        println!("trace: {path}");
    }
    Ok(())
}

/// The least of Chrome's format; `write_chrome_trace` of `tandem-observe` adds names of lanes, queues and colors.
fn chrome_trace(spans: &[Span]) -> String {
    let threads: BTreeSet<&str> = spans.iter().map(|span| &*span.thread).collect();
    let event = |span: &Span| {
        let lane = threads.iter().position(|thread| **thread == *span.thread).unwrap_or_default();
        let (start, took) = (span.start.as_micros(), (span.end - span.start).as_micros());
        let (name, batch) = (&span.stage, span.cursor.batch);
        format!(r#"{{"ph":"X","pid":1,"tid":{lane},"ts":{start},"dur":{took},"name":"{name} {batch}"}}"#)
    };
    format!("[{}]\n", spans.iter().map(event).collect::<Vec<_>>().join(",\n"))
}
