//! Shuttle runs the queue, the budget and whole flows under many thread schedules: no deadlock, no lost wake-up,
//! no lost or reordered batch. Run with `--features shuttle`; a failing schedule is printed and can be replayed.

use shuttle::thread;
use tandem_flow::{Budget, Clock, Closed, Context, Cursor, Fault, Flow, Knob, Oversize, Queue};

/// Random schedules, then schedules with few but badly placed preemptions (PCT).
fn explore(test: fn()) {
    let scale: usize = std::env::var("TANDEM_SCHEDULES").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    shuttle::check_random(test, scale);
    shuttle::check_pct(test, scale, 3);
}

#[test]
fn a_queue_hands_everything_over_in_order_while_it_is_resized() {
    explore(|| {
        let context = Context::new(Clock::real());
        let depth = Knob::new("depth", 1, 1..=3);
        let queue = Queue::new(&context, "q", &depth);
        let (filled, resized) = (queue.clone(), depth.clone());
        let producer = thread::spawn(move || {
            for n in 0..4 {
                filled.push(n, 1).expect("not closed");
            }
            filled.close();
        });
        let resizer = thread::spawn(move || {
            resized.set(3);
            resized.set(1);
        });
        let mut seen = Vec::new();
        while let Some(n) = queue.pop() {
            seen.push(n);
        }
        assert_eq!(seen, [0, 1, 2, 3]);
        producer.join().expect("no panic");
        resizer.join().expect("no panic");
    });
}

#[test]
fn closing_a_queue_wakes_a_producer_that_waits_for_room() {
    explore(|| {
        let context = Context::new(Clock::real());
        let queue = Queue::new(&context, "q", &Knob::fixed("depth", 1));
        let filled = queue.clone();
        let producer = thread::spawn(move || (0..9).find_map(|n| filled.push(n, 1).err()));
        queue.pop();
        queue.close();
        assert!(matches!(producer.join().expect("no panic"), Some(Closed(_))));
    });
}

#[test]
fn a_budget_never_gives_more_than_it_has_and_nobody_waits_forever() {
    explore(|| {
        let budget = Budget::new("host", 3, Oversize::Alone);
        let takers: Vec<_> = [2usize, 3, 1, 5]
            .into_iter()
            .map(|bytes| {
                let budget = budget.clone();
                thread::spawn(move || {
                    let lease = budget.lease(&Clock::real(), bytes).expect("passes");
                    assert!(budget.used_bytes() <= 3 || lease.bytes() == 5);
                })
            })
            .collect();
        for taker in takers {
            taker.join().expect("no panic");
        }
        assert_eq!(budget.used_bytes(), 0);
        assert_eq!(budget.high_water_bytes(), 5);
    });
}

fn chain(budget: &Budget, workers: usize, fail_at: u64) -> Flow<u64> {
    let context = Context::new(Clock::real());
    Flow::source(&context, "plan", Cursor::START, 2, |_| 0..3u64)
        .lease(budget, |_| 1)
        .par_stage("load", &Knob::fixed("workers", workers), move |n| {
            thread::yield_now();
            if n == fail_at { Err(Fault::new("bad").fatal()) } else { Ok(n) }
        })
        .prefetch("host", &Knob::fixed("depth", 1))
        .stage("preprocess", Ok)
        .prefetch("data", &Knob::fixed("depth", 2))
}

#[test]
fn a_flow_delivers_every_batch_in_order_within_its_budget() {
    explore(|| {
        let budget = Budget::new("host", 2, Oversize::Alone);
        let values: Vec<u64> = chain(&budget, 2, u64::MAX).map(|item| item.expect("no stage fails").value).collect();
        assert_eq!(values, [0, 1, 2, 0, 1, 2]);
        assert!(budget.high_water_bytes() <= 2);
        assert_eq!(budget.used_bytes(), 0);
    });
}

#[test]
fn a_flow_left_early_or_failing_joins_its_threads() {
    explore(|| {
        let budget = Budget::new("host", 2, Oversize::Alone);
        assert_eq!(chain(&budget, 2, u64::MAX).take(2).count(), 2);
        assert_eq!(budget.used_bytes(), 0);
        let outcomes: Vec<bool> = chain(&budget, 2, 1).map(|item| item.is_ok()).collect();
        assert_eq!(outcomes, [true, false]);
        assert_eq!(budget.used_bytes(), 0);
    });
}

#[test]
fn turning_the_workers_knob_while_the_flow_runs_loses_nothing() {
    explore(|| {
        let context = Context::new(Clock::real());
        let workers = Knob::new("workers", 1, 1..=3);
        let turned = workers.clone();
        let flow = Flow::source(&context, "plan", Cursor::START, 1, |_| 0..5u64)
            .par_stage("load", &workers, |n| {
                thread::yield_now();
                Ok(n)
            })
            .prefetch("host", &Knob::fixed("depth", 1));
        let tuner = thread::spawn(move || {
            turned.set(3);
            turned.set(1);
            turned.set(2);
        });
        assert_eq!(flow.map(|item| item.expect("fine").value).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        tuner.join().expect("no panic");
    });
}
