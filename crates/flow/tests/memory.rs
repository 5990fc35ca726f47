//! P8: memory stays flat. Alone in its program, because it measures the whole process.
#![cfg(target_os = "linux")]

use tandem_flow::{Budget, Context, Cursor, Flow, Knob, Oversize};

/// Resident bytes of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    let kilobytes: usize = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    1024 * kilobytes
}

#[test]
fn resident_memory_grows_less_than_one_percent_over_the_last_100_of_500_batches() {
    const BATCH: usize = 1 << 20;
    let context = Context::default();
    let budget = Budget::new("host", 24 * BATCH, Oversize::Alone);
    let flow = Flow::source(&context, "plan", Cursor::START, 1, |_| 0..500usize)
        .lease(&budget, |_| BATCH)
        .par_stage("load", &Knob::fixed("workers", 4), |n| Ok(vec![n as u8 | 1; BATCH]))
        .prefetch("host", &Knob::fixed("depth", 50))
        .stage("preprocess", |batch: Vec<u8>| Ok(batch))
        .prefetch("data", &Knob::fixed("depth", 2));
    let mut at_400 = 0;
    for (n, batch) in flow.enumerate() {
        assert!(batch.expect("no stage fails").value.iter().all(|&byte| byte > 0));
        if n == 400 {
            at_400 = resident();
        }
    }
    let grown = resident() as f64 / at_400 as f64 - 1.0;
    assert!(grown < 0.01, "grew by {:.2} % from {at_400}", 100.0 * grown);
    assert!(budget.high_water_bytes() <= 24 * BATCH);
}
