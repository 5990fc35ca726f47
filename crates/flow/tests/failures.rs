//! P9: an error or a panic arrives at its place, nothing hangs, every thread is joined.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tandem_flow::{Budget, Clock, Context, Cursor, Envelope, Error, ErrorKind, Fault, Flow, Knob, Oversize};

/// Counts how many of its clones are alive: a stage that owns one has ended when the count is back at one.
#[derive(Clone, Default)]
struct Alive(Arc<()>);

impl Alive {
    fn others(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

fn outcome(flow: Flow<u64>) -> (Vec<u64>, Option<Error>) {
    let mut values = Vec::new();
    for item in flow {
        match item {
            Ok(Envelope { value, .. }) => values.push(value),
            Err(error) => return (values, Some(error)),
        }
    }
    (values, None)
}

fn at(batch: u64) -> Option<Cursor> {
    Some(Cursor { epoch: 0, batch })
}

#[test]
fn an_error_arrives_in_order_with_stage_cursor_sample_and_path() {
    for workers in [0, 1, 2, 7] {
        for depth in [0, 1, 3] {
            let context = Context::new(Clock::virtual_time());
            let clock = context.clock.clone();
            let flow = Flow::source(&context, "plan", Cursor::START, 1, |_| 0..20u64)
                .par_stage("load", &Knob::fixed("workers", workers), move |n| {
                    clock.sleep(Duration::from_millis(if n == 7 { 1 } else { 30 })); // the bad one is ready early
                    if n == 7 {
                        return Err(Fault::new("no data chunk").sample("LJ001-0007").path("wavs/LJ001-0007.wav"));
                    }
                    Ok(n)
                })
                .prefetch("host", &Knob::fixed("depth", depth));
            let (values, error) = outcome(flow);
            assert_eq!(values, (0..7).collect::<Vec<_>>());
            let error = error.expect("the fault");
            assert_eq!((&*error.stage, error.cursor), ("load", at(7)));
            assert_eq!(
                error.to_string(),
                "load, epoch 0 batch 7, sample `LJ001-0007`, file `wavs/LJ001-0007.wav`: no data chunk"
            );
        }
    }
}

#[test]
fn a_panic_in_a_stage_in_the_pool_or_in_the_source_is_an_error_and_never_the_end() {
    for (place, stage) in [("source", "plan"), ("pool", "load"), ("stage", "preprocess")] {
        for depth in [0, 2] {
            let context = Context::new(Clock::virtual_time());
            let panic_in = move |here: &str, n: u64| {
                if here == place && n == 5 {
                    panic!("broken on purpose");
                }
                n
            };
            let flow = Flow::source(&context, "plan", Cursor::START, 1, move |_| {
                (0..20u64).map(move |n| panic_in("source", n))
            })
            .par_stage("load", &Knob::fixed("workers", 3), move |n| Ok(panic_in("pool", n)))
            .prefetch("host", &Knob::fixed("depth", depth))
            .stage("preprocess", move |n| Ok(panic_in("stage", n)))
            .prefetch("data", &Knob::fixed("depth", depth));
            let (values, error) = outcome(flow);
            assert_eq!(values, [0, 1, 2, 3, 4], "{place}");
            let error = error.expect("a panic is not the end of the data");
            assert_eq!((&*error.stage, error.cursor), (stage, at(5)));
            assert!(matches!(&error.kind, ErrorKind::Panicked(message) if message == "broken on purpose"));
        }
    }
}

#[test]
fn a_panic_while_planning_an_epoch_is_an_error() {
    let context = Context::new(Clock::virtual_time());
    let flow = Flow::source(&context, "plan", Cursor::START, 3, |epoch| {
        assert!(epoch < 1, "no such epoch");
        0..3u64
    });
    let (values, error) = outcome(flow.prefetch("host", &Knob::fixed("depth", 2)));
    assert_eq!(values.len(), 3);
    assert_eq!(error.expect("a panic").cursor, Some(Cursor { epoch: 1, batch: 0 }));
}

#[test]
fn after_a_fault_the_flow_goes_on_if_the_consumer_does() {
    let context = Context::new(Clock::virtual_time());
    let flow = Flow::source(&context, "plan", Cursor::START, 1, |_| 0..10u64)
        .par_stage("load", &Knob::fixed("workers", 2), |n| if n % 3 == 0 { Err(Fault::new("bad")) } else { Ok(n) })
        .prefetch("host", &Knob::fixed("depth", 2));
    let (good, bad): (Vec<_>, Vec<_>) = flow.partition(Result::is_ok);
    assert_eq!((good.len(), bad.len()), (6, 4));
}

#[test]
fn tolerate_skips_a_few_and_stops_at_too_many() {
    let run = |every: u64, allowed: u64| {
        let context = Context::new(Clock::virtual_time());
        let reported = Arc::new(AtomicUsize::new(0));
        let count = reported.clone();
        let flow = Flow::source(&context, "plan", Cursor::START, 1, |_| 0..100u64)
            .stage("load", move |n| if n % every == 0 { Err(Fault::new("bad")) } else { Ok(n) })
            .tolerate(
                move |failed, _seen| failed <= allowed,
                move |_| {
                    count.fetch_add(1, Ordering::Relaxed);
                },
            );
        let (values, error) = outcome(flow);
        (values.len(), error, reported.load(Ordering::Relaxed))
    };
    let (values, error, reported) = run(50, 2);
    assert!(error.is_none());
    assert_eq!((values, reported), (98, 2));
    let (_, error, reported) = run(10, 2);
    let error = error.expect("too many");
    assert!(matches!(error.kind, ErrorKind::TooManyFaults { faults: 3, seen: 21, .. }), "{error}");
    assert_eq!((error.cursor, reported), (at(20), 3));
}

#[test]
fn tolerate_never_swallows_a_panic_a_limit_or_a_fatal_fault() {
    let context = Context::new(Clock::virtual_time());
    let flow = Flow::source(&context, "plan", Cursor::START, 1, |_| 0..9u64)
        .stage("load", |n| if n == 4 { Err(Fault::new("the disk is gone").fatal()) } else { Ok(n) })
        .tolerate(|_, _| true, |_| {});
    assert!(matches!(outcome(flow).1.expect("fatal").kind, ErrorKind::Fatal(_)));

    let limit = Budget::new("model", 10, Oversize::Refuse);
    let flow = Flow::source(&context, "plan", Cursor::START, 1, |_| [3usize, 4, 11, 2])
        .lease(&limit, |&bytes| bytes)
        .stage("load", |n| Ok(n as u64))
        .tolerate(|_, _| true, |_| {});
    let (values, error) = outcome(flow);
    assert_eq!(values, [3, 4]);
    match &error.expect("over the limit").kind {
        ErrorKind::OverLimit(over) => {
            assert_eq!((over.limit_bytes, over.requested_bytes, over.budget.as_str()), (10, 11, "model"))
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(limit.used_bytes(), 0);
}

#[test]
fn leaving_at_any_point_joins_every_thread_and_gives_all_memory_back() {
    for clock in [Clock::virtual_time as fn() -> Clock, Clock::real] {
        for leave_after in 0..14 {
            for depth in [0, 1, 4] {
                let context = Context::new(clock());
                let alive = Alive::default();
                let budget = Budget::new("host", 5, Oversize::Alone);
                let (in_load, in_stage, time) = (alive.clone(), alive.clone(), context.clock.clone());
                let flow = Flow::source(&context, "plan", Cursor::START, 1, |_| 0..12u64)
                    .lease(&budget, |_| 1)
                    .par_stage("load", &Knob::fixed("workers", 3), move |n| {
                        let _in_use = &in_load;
                        time.sleep(Duration::from_micros(200));
                        Ok(n)
                    })
                    .prefetch("host", &Knob::fixed("depth", depth))
                    .stage("preprocess", move |n| {
                        let _in_use = &in_stage;
                        Ok(n)
                    })
                    .prefetch("data", &Knob::fixed("depth", depth));
                assert_eq!(flow.take(leave_after).filter(Result::is_ok).count(), leave_after.min(12));
                assert_eq!(alive.others(), 0, "a stage outlived its flow");
                assert_eq!(budget.used_bytes(), 0);
            }
        }
    }
}

#[test]
fn a_hung_stage_is_named_within_the_timeout_and_left_behind() {
    let context = Context::new(Clock::virtual_time()).with_stall_timeout(Duration::from_secs(30));
    let (clock, stop) = (context.clock.clone(), context.stop.clone());
    let flow = Flow::source(&context, "plan", Cursor::START, 1, |_| 0..12u64)
        .stage("preprocess", move |n| {
            if n == 4 {
                stop.wait(&clock); // a device that answers only when the run is given up
                return Err(Fault::new("given up"));
            }
            Ok(n)
        })
        .prefetch("data", &Knob::fixed("depth", 2));
    let (values, error) = outcome(flow);
    let error = error.expect("a stall");
    assert_eq!(values, [0, 1, 2, 3]);
    assert_eq!((&*error.stage, error.cursor), ("preprocess", at(4)));
    assert!(matches!(error.kind, ErrorKind::Stalled(_)));
    assert_eq!(context.clock.now(), Duration::from_secs(30));
    assert!(context.abandoned().is_empty());
}

#[test]
fn a_stage_that_never_returns_does_not_keep_the_run_from_ending() {
    let context = Context::default().with_stall_timeout(Duration::from_millis(50));
    let flow = Flow::source(&context, "plan", Cursor::START, 1, |_| 0..3u64)
        .stage("preprocess", |n| {
            loop {
                std::thread::park();
                std::hint::black_box(n);
            }
        })
        .prefetch("data", &Knob::fixed("depth", 2));
    let (_, error) = outcome(flow);
    assert!(matches!(error.expect("a stall").kind, ErrorKind::Stalled(_)));
    assert_eq!(context.abandoned(), ["data"]);
}

#[test]
fn a_stop_wakes_a_waiting_consumer_and_is_not_taken_for_the_end() {
    let context = Context::new(Clock::virtual_time());
    let (clock, stop) = (context.clock.clone(), context.stop.clone());
    let asker = context.clock.spawn("asker", move || {
        clock.sleep(Duration::from_millis(35));
        stop.request("interrupted");
    });
    let clock = context.clock.clone();
    let flow = Flow::source(&context, "plan", Cursor::START, 1, |_| 0..1000u64)
        .stage("load", move |n| {
            clock.sleep(Duration::from_millis(10));
            Ok(n)
        })
        .prefetch("host", &Knob::fixed("depth", 1));
    let (values, error) = outcome(flow);
    assert!(values.len() <= 4, "{values:?}");
    assert!(matches!(&error.expect("a stop").kind, ErrorKind::Stopped(reason) if &**reason == "interrupted"));
    assert!(asker.join(None));
}

#[test]
fn a_deadlock_on_the_virtual_clock_is_a_panic_with_the_names_of_the_waiters() {
    let message = std::thread::spawn(|| {
        let context = Context::new(Clock::virtual_time());
        let budget = Budget::new("host", 1, Oversize::Refuse);
        let _held = budget.try_lease(1).expect("free");
        let _ = budget.lease(&context.clock, 1); // nobody can give it back
    })
    .join()
    .expect_err("a deadlock");
    let message = message.downcast::<String>().expect("a message");
    assert!(message.contains("deadlock") && message.contains("main"), "{message}");
}

#[test]
fn a_faults_latency_does_not_depend_on_the_batches_behind_it() {
    // SPEC P9: the consumer hears of an error when it gets there, not after the pool has worked on all the rest.
    let context = Context::new(Clock::virtual_time());
    let clock = context.clock.clone();
    let flow = Flow::source(&context, "plan", Cursor::START, 1, |_| 0..u64::MAX)
        .par_stage("load", &Knob::fixed("workers", 4), move |n| {
            clock.sleep(Duration::from_millis(20));
            if n == 0 { Err(Fault::new("bad").fatal()) } else { Ok(n) }
        })
        .prefetch("host", &Knob::fixed("depth", 50));
    assert!(outcome(flow).1.is_some());
    assert!(context.clock.now() <= Duration::from_millis(60), "{:?}", context.clock.now());
}

#[test]
fn a_hung_worker_does_not_keep_a_failed_flow_from_ending() {
    // The consumer hears of batch 1 while another worker hangs on batch 2; leaving must not wait for that one.
    let context = Context::new(Clock::virtual_time()).with_stall_timeout(Duration::from_secs(5));
    let (clock, stop) = (context.clock.clone(), context.stop.clone());
    let flow = Flow::source(&context, "plan", Cursor::START, 1, |_| 0..9u64)
        .par_stage("load", &Knob::fixed("workers", 3), move |n| match n {
            1 => Err(Fault::new("bad").fatal()),
            2 => {
                stop.wait(&clock);
                Ok(n)
            }
            _ => Ok(n),
        })
        .prefetch("host", &Knob::fixed("depth", 2));
    let (values, error) = outcome(flow);
    assert_eq!((values, error.expect("the fault").cursor), (vec![0], at(1)));
    let abandoned = context.abandoned();
    assert!(abandoned.len() == 1 && abandoned[0].starts_with("load-"), "the one that hangs: {abandoned:?}");
    context.stop.request("the test is over");
}

#[test]
fn leaving_frees_finished_batches_for_a_worker_that_waits_for_their_memory() {
    let context = Context::new(Clock::virtual_time());
    let memory = Budget::new("pinned", 3, Oversize::Refuse);
    let (clock, shared) = (context.clock.clone(), memory.clone());
    let flow = Flow::source(&context, "plan", Cursor::START, 1, |_| 0..9u64)
        .par_stage("load", &Knob::fixed("workers", 2), move |_| Ok(shared.lease(&clock, 1)?))
        .prefetch("host", &Knob::fixed("depth", 2));
    assert_eq!(flow.take(1).filter(Result::is_ok).count(), 1);
    assert_eq!(memory.used_bytes(), 0);
}

#[test]
fn a_panic_in_a_closure_that_is_not_a_stage_is_an_error_too() {
    for depth in [0, 2] {
        let context = Context::new(Clock::virtual_time());
        let budget = Budget::new("host", 10, Oversize::Alone);
        let flow = Flow::source(&context, "plan", Cursor::START, 1, |_| 0..9u64)
            .lease(&budget, |&n| if n == 3 { panic!("no size") } else { 1 })
            .prefetch("host", &Knob::fixed("depth", depth));
        let (values, error) = outcome(flow);
        assert_eq!(values, [0, 1, 2]);
        assert!(matches!(&error.expect("a panic").kind, ErrorKind::Panicked(words) if words == "no size"));
    }
}

#[test]
fn an_endless_plan_without_batches_is_an_error() {
    let context = Context::new(Clock::virtual_time());
    let flow = Flow::source(&context, "plan", Cursor::START, u64::MAX, |_| 0..0u64);
    assert!(matches!(outcome(flow).1.expect("an error").kind, ErrorKind::Fatal(_)));
}

#[test]
fn a_stop_ends_a_flow_that_only_skips() {
    let context = Context::new(Clock::virtual_time());
    let stop = context.stop.clone();
    let flow = Flow::source(&context, "plan", Cursor::START, 1, |_| 0..u64::MAX)
        .stage("load", move |n| {
            if n == 1000 {
                stop.request("enough");
            }
            Err::<u64, _>(Fault::new("bad"))
        })
        .tolerate(|_, _| true, |_| {});
    assert!(matches!(outcome(flow).1.expect("a stop").kind, ErrorKind::Stopped(_)));
}

#[test]
fn workers_turned_to_zero_and_back_lose_nothing() {
    let context = Context::new(Clock::virtual_time());
    let workers = Knob::new("workers", 3, 0..=3);
    let clock = context.clock.clone();
    let flow = Flow::source(&context, "plan", Cursor::START, 1, |_| 0..60u64).par_stage("load", &workers, move |n| {
        clock.sleep(Duration::from_millis(1 + n % 3));
        Ok(n)
    });
    let mut seen = Vec::new();
    for item in flow {
        seen.push(item.expect("no stage fails").value);
        workers.set([3, 0, 2, 0, 1][seen.len() / 10 % 5]);
    }
    assert_eq!(seen, (0..60).collect::<Vec<_>>());
}
