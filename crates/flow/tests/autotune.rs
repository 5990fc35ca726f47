//! M11: knobs move while the flow runs, memory goes back under pressure, and nothing is lost meanwhile.

use std::time::Duration;

use tandem_flow::{Autotune, Budget, Clock, Context, Cursor, Flow, Knob, Oversize};

#[test]
fn a_lowered_limit_makes_the_queues_shrink_and_the_memory_go_back() {
    const BATCH: usize = 100;
    let context = Context::new(Clock::virtual_time());
    let budget = Budget::new("host", 64 * BATCH, Oversize::Alone);
    let depth = Knob::new("depth", 32, 1..=64);
    let (workers, clock) = (Knob::new("workers", 2, 1..=4), context.clock.clone());
    let mut tuner = Autotune::new(&context, "train").workers("load", &workers).depth("host", &depth).budget(&budget);
    let time = context.clock.clone();
    let flow = Flow::source(&context, "plan", Cursor::START, 1, |_| 0..400u64)
        .lease(&budget, |_| BATCH)
        .par_stage("load", &workers, move |n| {
            clock.sleep(Duration::from_millis(5));
            Ok(n)
        })
        .prefetch("host", &depth)
        .stage("train", move |n| {
            time.sleep(Duration::from_millis(10));
            Ok(n)
        });
    let (mut seen, mut moves) = (Vec::new(), Vec::new());
    for item in flow {
        seen.push(item.expect("no stage fails").value);
        if seen.len() == 100 {
            assert!(budget.used_bytes() > 30 * BATCH, "the buffer is full: {budget:?}");
            budget.set_limit(8 * BATCH); // somebody else needs the memory
        }
        moves.extend(tuner.step().filter(|decision| decision.is_move()));
        if seen.len() == 300 {
            assert!(budget.used_bytes() <= 8 * BATCH, "{budget:?}");
        }
    }
    assert_eq!(seen, (0..400).collect::<Vec<_>>(), "nothing is lost on the way");
    assert!(depth.get() <= 8, "{depth:?}");
    assert!(!moves.is_empty() && moves.iter().all(|decision| decision.reason.starts_with("memory")), "{moves:?}");
    let train = context.stage("train").expect("it ran");
    assert!(train.wait_in.total < 0.02 * train.busy.total, "the model lane is still fed");
}
