//! No busy waiting: an idle pipeline is not even scheduled. Alone in its program, because it looks at all threads.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;

use tandem_flow::{Context, Cursor, Flow, Knob};

/// How often each of this process's other threads was put on a core, by thread id.
fn schedules() -> BTreeMap<String, u64> {
    let me = std::fs::read_link("/proc/thread-self").expect("Linux");
    let me = me.file_name().expect("a thread id").to_string_lossy().into_owned();
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    tasks
        .filter_map(|task| {
            let task = task.ok()?;
            let id = task.file_name().to_string_lossy().into_owned();
            // schedstat: time on a core, time waiting for one, number of time slices
            let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            (id != me).then_some((id, stat.split_whitespace().nth(2)?.parse().ok()?))
        })
        .collect()
}

#[test]
fn an_idle_pipeline_does_not_run() {
    let context = Context::default();
    let mut flow = Flow::source(&context, "plan", Cursor::START, 1, |_| 0..1000u64)
        .par_stage("load", &Knob::fixed("workers", 8), Ok)
        .prefetch("host", &Knob::fixed("depth", 8))
        .stage("preprocess", Ok)
        .prefetch("data", &Knob::fixed("depth", 2));
    assert!(flow.next().is_some());
    // It is idle once two readings in a row see no thread move; a busy wait would never get there.
    let mut before = schedules();
    let idle = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let now = schedules();
        std::mem::replace(&mut before, now.clone()) == now
    });
    assert!(idle, "some thread keeps running: {before:?}");
    assert!(before.len() >= 3, "the pipeline's threads are there: {before:?}");
}
