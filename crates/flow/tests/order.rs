//! P6, P10, M9: the same batches in the same order for any width and depth, exact resume, bounded memory.

use std::time::Duration;

use proptest::prelude::*;
use tandem_flow::{Budget, Clock, Context, Cursor, Envelope, Flow, Knob, Oversize, QueueLimits};

/// Work whose time depends on the batch, so that workers overtake each other.
fn uneven(clock: &Clock, n: u64) {
    clock.sleep(Duration::from_micros(100 + (n.wrapping_mul(2654435761) >> 7) % 900));
}

const BATCHES: u64 = 23;

/// Epoch e holds numbers that depend on e, like a shuffle does.
fn plan(epoch: u64) -> Vec<u64> {
    (0..BATCHES).map(|n| (n * 7 + epoch * 3) % BATCHES + 100 * epoch).collect()
}

fn flow(context: &Context, start: Cursor, epochs: u64, workers: usize, depth: usize) -> Flow<u64> {
    let (a, b) = (context.clock.clone(), context.clock.clone());
    Flow::source(context, "plan", start, epochs, plan)
        .par_stage("load", &Knob::fixed("workers", workers), move |n| {
            uneven(&a, n);
            Ok(n)
        })
        .prefetch("host", &Knob::fixed("depth", depth))
        .stage("preprocess", move |n| {
            uneven(&b, n + 1);
            Ok(n * 2)
        })
        .prefetch("data", &Knob::fixed("depth", depth))
}

fn collect(flow: Flow<u64>) -> Vec<(Cursor, u64)> {
    flow.map(|item| item.expect("no stage fails")).map(|Envelope { value, cursor, .. }| (cursor, value)).collect()
}

#[test]
fn same_batches_and_same_totals_for_any_width_and_depth() {
    let reference = collect(flow(&Context::new(Clock::virtual_time()), Cursor::START, 3, 0, 0));
    assert_eq!(reference.len() as u64, 3 * BATCHES);
    for workers in [1, 2, 7, 64] {
        for depth in [1, 3, 50] {
            let context = Context::new(Clock::virtual_time());
            let got = collect(flow(&context, Cursor::START, 3, workers, depth));
            assert_eq!(got, reference, "workers {workers}, depth {depth}");
            let totals: Vec<_> = context.stages().into_iter().map(|s| (s.name, s.items, s.errors)).collect();
            let all = 3 * BATCHES;
            assert_eq!(totals, [("load".to_owned(), all, 0), ("preprocess".to_owned(), all, 0)]);
            for queue in context.queues() {
                assert!(queue.high_water_items <= depth, "{queue:?}");
                assert_eq!((queue.pushed, queue.popped, queue.items), (all, all, 0), "{queue:?}");
            }
        }
    }
}

#[test]
fn same_batches_on_the_real_clock() {
    let reference = collect(flow(&Context::new(Clock::virtual_time()), Cursor::START, 2, 0, 0));
    for (workers, depth) in [(0, 0), (1, 1), (3, 2), (7, 50)] {
        assert_eq!(collect(flow(&Context::default(), Cursor::START, 2, workers, depth)), reference);
    }
}

#[test]
fn a_virtual_run_is_repeatable_to_the_nanosecond() {
    let end = || {
        let context = Context::new(Clock::virtual_time());
        collect(flow(&context, Cursor::START, 2, 3, 2));
        context.clock.now()
    };
    let first = end();
    assert!(first > Duration::ZERO);
    assert_eq!(first, end());
}

#[test]
fn the_next_epochs_first_batch_is_ready_before_the_last_step_of_this_one_ends() {
    let context = Context::new(Clock::virtual_time()).with_trace(tandem_flow::Trace::with_limit(10_000));
    let clock = context.clock.clone();
    let trained = flow(&context, Cursor::START, 2, 2, 2).stage("train", move |n| {
        clock.sleep(Duration::from_millis(3));
        Ok(n)
    });
    collect(trained);
    let spans = context.trace.spans();
    let end = |stage: &str, epoch, batch| {
        let cursor = Cursor { epoch, batch };
        spans.iter().find(|span| &*span.stage == stage && span.cursor == cursor).expect("recorded").end
    };
    assert!(end("preprocess", 1, 0) < end("train", 0, BATCHES - 1));
    // And the model lane never waits there: the first step of epoch 1 starts when the last of epoch 0 ends.
    let start = |epoch, batch| end("train", epoch, batch) - Duration::from_millis(3);
    assert_eq!(start(1, 0), end("train", 0, BATCHES - 1));
}

#[test]
fn a_queue_is_bounded_in_bytes_too_and_a_large_item_passes_alone() {
    let context = Context::new(Clock::virtual_time());
    let budget = Budget::new("host", usize::MAX, Oversize::Alone);
    let limits = QueueLimits { items: Knob::fixed("depth", 50), bytes: 100 };
    let clock = context.clock.clone();
    let flow = Flow::source(&context, "plan", Cursor::START, 1, |_| [30usize, 40, 20, 500, 10, 90, 60])
        .lease(&budget, |&bytes| bytes)
        .prefetch("host", limits)
        .stage("train", move |bytes| {
            clock.sleep(Duration::from_millis(1));
            Ok(bytes)
        });
    assert_eq!(flow.map(|item| item.expect("fine").value).collect::<Vec<_>>(), [30, 40, 20, 500, 10, 90, 60]);
    let queue = &context.queues()[0];
    assert_eq!(queue.high_water_bytes, 500, "the large one, alone");
    assert!(queue.high_water_items <= 3, "{queue:?}");
    assert_eq!(budget.used_bytes(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn resuming_at_any_cursor_gives_the_rest(at in 0u64..2 * BATCHES, workers in 0usize..9, depth in 0usize..6) {
        let reference = collect(flow(&Context::new(Clock::virtual_time()), Cursor::START, 2, 2, 2));
        let start = reference[at as usize].0;
        let rest = collect(flow(&Context::new(Clock::virtual_time()), start, 2, workers, depth));
        prop_assert_eq!(&rest[..], &reference[at as usize..]);
    }

    #[test]
    fn resuming_after_the_last_batch_of_an_epoch_goes_on_with_the_next(workers in 0usize..4) {
        let done = Cursor { epoch: 0, batch: BATCHES - 1 };
        let rest = collect(flow(&Context::new(Clock::virtual_time()), done.next(), 2, workers, 1));
        prop_assert_eq!(rest[0].0, Cursor { epoch: 1, batch: 0 });
    }

    #[test]
    fn leases_never_exceed_the_budget_and_all_come_back(
        sizes in prop::collection::vec(1usize..120, 1..40),
        limit in 1usize..150,
        workers in 0usize..5,
        depth in 0usize..5,
        leave_after in 0usize..40,
    ) {
        let context = Context::new(Clock::virtual_time());
        let budget = Budget::new("host", limit, Oversize::Alone);
        let device = Budget::new("data", limit, Oversize::Alone);
        let (largest, total) = (*sizes.iter().max().expect("not empty"), sizes.len());
        let clock = context.clock.clone();
        let flow = Flow::source(&context, "plan", Cursor::START, 1, move |_| sizes.clone())
            .lease(&budget, |&bytes| bytes)
            .par_stage("load", &Knob::fixed("workers", workers), move |n| {
                uneven(&clock, n as u64);
                Ok(n)
            })
            .prefetch("host", &Knob::fixed("depth", depth))
            .lease(&device, |&bytes| bytes)
            .stage("upload", Ok)
            .release(&budget)
            .prefetch("data", &Knob::fixed("depth", depth));
        // The consumer holds one batch at a time, and may leave early.
        let seen = flow.take(leave_after).inspect(|item| assert!(item.is_ok())).count();
        prop_assert_eq!(seen, leave_after.min(total));
        for budget in [budget, device] {
            prop_assert!(budget.high_water_bytes() <= limit.max(largest));
            prop_assert_eq!(budget.used_bytes(), 0);
        }
    }
}
