//! The real engine on simulated lanes, and its outcome.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tandem_device::{Cost, FaultPlan, SharedCores, SimulatedDevice};
use tandem_flow::{
    Autotune, Budget, Clock, Context, Cursor, Decision, Error, Flow, Knob, Lane, Oversize, Place, QueueStats, Stage,
    StageStats, Stop, Trace,
};

use crate::intervals::{Interval, busy, overlapped_steps, union};
use crate::whatif::Alone;

/// What works in each of [`Stage::TIMED`]: the cores of the host, the data lane, the link between the devices, the model
/// lane.
pub const WORKS_IN: [&str; 4] = [Place::Host.name(), Lane::Data.name(), "link", Lane::Model.name()];

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// The cost of each of [`Stage::TIMED`].
    pub costs: [Cost; 4],
    /// What batches really took, instead of the costs.
    pub measured: Option<Alone>,
    /// How many batches to train on.
    pub steps: u64,
    /// Batches loaded at once; zero: synchronous.
    pub workers: usize,
    /// The most that autotune may make of it.
    pub max_workers: usize,
    /// Cores of the simulated host that loads.
    pub cores: usize,
    /// Depth of the host queue; zero: synchronous.
    pub buffer: usize,
    /// Depth of the queue before transfer; zero: synchronous.
    pub depth: usize,
    /// Depth of the queue before train; zero: synchronous.
    pub device_queue: usize,
    /// Size of a batch.
    pub batch_bytes: usize,
    /// Host memory that batches may take.
    pub memory_limit: usize,
    /// Turns workers and depths while it runs.
    pub autotune: bool,
    /// For the jitter.
    pub seed: u64,
    /// What goes wrong.
    pub faults: Vec<FaultPlan>,
    /// How long the sink waits for a batch before the run is given up.
    pub stall_timeout: Duration,
}

impl Default for Simulation {
    fn default() -> Self {
        Simulation {
            costs: [Cost::fixed(Duration::ZERO); 4],
            measured: None,
            steps: 100,
            workers: 2,
            max_workers: 2,
            cores: 8,
            buffer: 50,
            depth: 2,
            device_queue: 2,
            batch_bytes: 1 << 20,
            memory_limit: 1 << 30,
            autotune: false,
            seed: 1,
            faults: Vec::new(),
            stall_timeout: Duration::from_secs(60),
        }
    }
}

impl Simulation {
    /// Everything on one thread, one after the other.
    pub fn serial(self) -> Simulation {
        Simulation { workers: 0, buffer: 0, depth: 0, device_queue: 0, autotune: false, ..self }
    }
}

/// One stage of an [`SimulationReport`].
#[derive(Clone, Debug, Serialize)]
pub struct StageReport {
    /// Its name.
    pub name: String,
    /// Milliseconds per batch.
    pub mean_ms: f64,
    /// Their standard deviation.
    pub std_ms: f64,
    /// 95 % of the last hundred are not above it.
    pub p95_ms: f64,
    /// Its share of the sum of all stages' means.
    pub share: f64,
    /// The engine's own record.
    pub stats: StageStats,
}

/// The outcome of a simulation.
#[derive(Clone, Debug, Serialize)]
pub struct SimulationReport {
    /// Always true: these are not measurements of a device.
    pub simulated: bool,
    /// `real` or `virtual`.
    pub clock: &'static str,
    /// Steps done.
    pub steps: u64,
    /// Share of the time since the first step in which the model lane worked.
    pub model_busy: f64,
    /// The same for the data lane (preprocess).
    pub data_busy: f64,
    /// The same for the host (load; all workers together count once).
    pub host_busy: f64,
    /// The same for the link (transfer).
    pub link_busy: f64,
    /// Share of that time in which the model lane had no batch.
    pub starved: f64,
    /// Share of steps during which a later batch was being prepared.
    pub overlap: f64,
    /// From the start to the end of the last step.
    pub wall_s: f64,
    /// From the start until the run ended; longer than `wall_s` when it failed.
    pub elapsed_s: f64,
    /// From the start to the first step.
    pub fill_s: f64,
    /// What a perfect overlap would take: fill, then only the slowest lane.
    pub ideal_s: f64,
    /// What the same work takes one after the other.
    pub serial_s: f64,
    /// `serial_s / wall_s`.
    pub speedup: f64,
    /// The stages, from source to sink.
    pub stages: Vec<StageReport>,
    /// The queues, from source to sink.
    pub queues: Vec<QueueStats>,
    /// The most host memory that batches held.
    pub memory_high_water_bytes: usize,
    /// What autotune did, and why.
    pub decisions: Vec<Decision>,
    /// Workers at the end.
    pub workers: usize,
    /// Seconds without a batch in the last twenty steps, as a share: whether autotune arrived.
    pub starved_at_end: f64,
}

/// A simulation that ended: its outcome, also when it failed half-way.
#[derive(Debug)]
pub struct Run {
    /// The figures, of all steps that were done.
    pub outcome: SimulationReport,
    /// The spans behind them.
    pub trace: Trace,
    /// Why it ended early, if it did.
    pub error: Option<Error>,
}

/// Runs it until it is done, fails or `stop` is requested. `on_step` hears of each step; every span is kept.
pub fn simulate(simulation: &Simulation, clock: Clock, stop: Stop, mut on_step: impl FnMut(u64)) -> Run {
    // Room for every span of the four stages, twice: nothing is skipped.
    let trace = Trace::with_limit(8 * simulation.steps as usize + 1000);
    let mut context = Context::new(clock).with_trace(trace.clone()).with_stall_timeout(simulation.stall_timeout);
    context.stop = stop;
    let workers = Knob::new("workers", simulation.workers, 0..=simulation.max_workers.max(simulation.workers));
    let buffer = Knob::new("buffer", simulation.buffer, 0..=simulation.buffer.max(64));
    let depth = |name, depth: usize| Knob::new(name, depth, 0..=depth.max(16));
    let (data_depth, model_depth) = (depth("depth", simulation.depth), depth("device queue", simulation.device_queue));
    let memory = Budget::new(Place::Host, simulation.memory_limit, Oversize::Alone);

    let mut tuner = simulation.autotune.then(|| {
        Autotune::new(&context, Stage::Train)
            .workers(Stage::Load, &workers)
            .depth(Place::Host, &buffer)
            .depth(Place::Data, &data_depth)
            .depth(Place::Model, &model_depth)
            .budget(&memory)
    });
    let device = |at: usize| {
        let slots = if Stage::TIMED[at] == Stage::Load { simulation.cores } else { 1 };
        SimulatedDevice::new(&context, WORKS_IN[at])
            .slots(slots)
            .seed(simulation.seed)
            .faults(simulation.faults.clone())
    };
    let lanes = [0, 1, 2, 3].map(device);
    let measured = simulation.measured.clone().map(|alone| {
        let cores = SharedCores::new(&context.clock, simulation.cores, alone.slice());
        Arc::new((alone, cores))
    });
    let work = |index: usize| {
        let (lane, cost, measured) = (lanes[index].clone(), simulation.costs[index], measured.clone());
        move |number: u64| {
            match measured.as_deref() {
                Some((alone, cores)) => cores.work(alone.time(number, index), alone.threads[index]),
                None => lane.work(Stage::TIMED[index].name(), number, &cost)?,
            }
            Ok(number)
        }
    };
    let (steps, batch_bytes) = (simulation.steps, simulation.batch_bytes);
    // What was measured continues after the last step that counts.
    let batches = if measured.is_some() { u64::MAX } else { steps };
    let flow = Flow::source(&context, Stage::Plan, Cursor::START, 1, move |_| 0..batches)
        .lease(&memory, move |_| batch_bytes)
        .par_stage(Stage::Load, &workers, work(0))
        .prefetch(Place::Host, &buffer)
        .stage(Stage::Preprocess, work(1))
        .prefetch(Place::Data, &data_depth)
        .stage(Stage::Transfer, work(2))
        .release(&memory)
        .prefetch(Place::Model, &model_depth)
        .stage(Stage::Train, work(3));

    let mut decisions = Vec::new();
    let mut error = None;
    for (done, item) in (1..=steps).zip(flow) {
        if let Err(failure) = item {
            // A lane that hangs meanwhile must not keep the others from ending.
            context.stop.request("another lane failed");
            error = Some(failure);
            break;
        }
        decisions.extend(tuner.as_mut().and_then(Autotune::step));
        on_step(done);
    }
    let outcome = evaluate(simulation, &context, &memory, decisions, workers.get());
    Run { outcome, trace, error }
}

fn evaluate(
    simulation: &Simulation,
    context: &Context,
    memory: &Budget,
    decisions: Vec<Decision>,
    workers: usize,
) -> SimulationReport {
    let spans = context.trace.spans();
    let steps: Vec<Interval> = union_of_steps(&spans);
    let fill = steps.first().map_or(Duration::ZERO, |step| step.0);
    let end = steps.last().map_or(Duration::ZERO, |step| step.1);
    let window = (fill, end);
    let lane = |stage: Stage| busy(&union(&spans, &[stage]), window);
    let stats: Vec<StageStats> = Stage::TIMED.iter().filter_map(|stage| context.stage(stage)).collect();
    let means: f64 = stats.iter().map(|stage| stage.busy.overall_mean).sum();
    // Only the work on batches that were trained on: a run that ended early had prepared more.
    let trained: BTreeSet<Cursor> = spans.iter().filter(|span| span.is(Stage::Train)).map(|span| span.cursor).collect();
    let total = |stage: Stage| -> f64 {
        let own = spans.iter().filter(|span| span.is(stage) && trained.contains(&span.cursor));
        own.map(|span| (span.end - span.start).as_secs_f64()).sum()
    };
    let lanes_of = |stage: Stage| if stage == Stage::Load { workers.clamp(1, simulation.cores) as f64 } else { 1.0 };
    let slowest = Stage::TIMED.into_iter().map(|stage| total(stage) / lanes_of(stage)).fold(0.0, f64::max);
    let wall_s = end.as_secs_f64();
    let serial_s: f64 = Stage::TIMED.into_iter().map(total).sum();
    let tail = &steps[steps.len().saturating_sub(20)..];
    SimulationReport {
        simulated: true,
        clock: if context.clock.is_virtual() { "virtual" } else { "real" },
        steps: steps.len() as u64,
        model_busy: lane(Stage::Train),
        data_busy: lane(Stage::Preprocess),
        host_busy: lane(Stage::Load),
        link_busy: lane(Stage::Transfer),
        starved: starved(&steps),
        overlap: overlapped_steps(&spans),
        wall_s,
        elapsed_s: context.clock.now().as_secs_f64(),
        fill_s: fill.as_secs_f64(),
        ideal_s: fill.as_secs_f64() + slowest,
        serial_s,
        speedup: if wall_s > 0.0 { serial_s / wall_s } else { 0.0 },
        stages: (stats.into_iter())
            .map(|stats| StageReport {
                name: stats.name.clone(),
                mean_ms: 1e3 * stats.busy.overall_mean,
                std_ms: 1e3 * stats.busy.overall_std,
                p95_ms: 1e3 * stats.busy.p95,
                share: if means > 0.0 { stats.busy.overall_mean / means } else { 0.0 },
                stats,
            })
            .collect(),
        queues: context.queues(),
        memory_high_water_bytes: memory.high_water_bytes(),
        decisions,
        workers,
        starved_at_end: starved(tail),
    }
}

/// The steps in order, unmerged.
fn union_of_steps(spans: &[tandem_flow::Span]) -> Vec<Interval> {
    spans.iter().filter(|span| span.is(Stage::Train)).map(|span| (span.start, span.end)).collect()
}

/// The share of the time between the first and the last step that lies between steps.
fn starved(steps: &[Interval]) -> f64 {
    let gaps: Duration = steps.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].1)).sum();
    match (steps.first(), steps.last()) {
        (Some(first), Some(last)) if last.1 > first.0 => gaps.as_secs_f64() / (last.1 - first.0).as_secs_f64(),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1e3)
    }

    fn cost(mean: f64, spread: f64) -> Cost {
        Cost { mean: ms(mean), spread: ms(spread) }
    }

    fn example() -> Simulation {
        Simulation {
            costs: [cost(12.3, 2.1), cost(5.1, 0.8), cost(8.7, 1.2), cost(123.4, 5.2)],
            steps: 200,
            workers: 4,
            max_workers: 8,
            cores: 8,
            ..Simulation::default()
        }
    }

    fn run(simulation: &Simulation) -> SimulationReport {
        let run = simulate(simulation, Clock::virtual_time(), Stop::new(), |_| {});
        assert!(run.error.is_none(), "{:?}", run.error);
        run.outcome
    }

    #[test]
    fn the_model_lane_is_busy_and_the_wall_time_is_that_of_the_slowest_lane() {
        let outcome = run(&example());
        let mean_s = outcome.stages[3].mean_ms / 1e3;
        assert!(outcome.model_busy >= 0.99, "{}", outcome.model_busy);
        assert!(outcome.wall_s <= 1.01 * 200.0 * mean_s + outcome.fill_s, "{outcome:?}");
        assert!(outcome.overlap > 0.95, "{}", outcome.overlap);
        assert!(outcome.starved < 0.01);
        assert_eq!(outcome.steps, 200);
    }

    #[test]
    fn the_same_work_in_series_shows_the_oscillation() {
        let serial = run(&example().serial());
        assert_eq!(serial.overlap, 0.0);
        assert!((serial.model_busy - 0.826).abs() < 0.01, "{}", serial.model_busy);
        assert!((serial.wall_s - serial.serial_s).abs() < 1e-6);
        // Every draw depends only on seed, stage and batch: the pipelined run did the very same work.
        assert!((run(&example()).serial_s - serial.serial_s).abs() < 1e-9);
    }

    #[test]
    fn two_equal_stages_take_hardly_longer_than_one() {
        let simulation = Simulation {
            costs: [cost(0.0, 0.0), cost(50.0, 0.0), cost(0.0, 0.0), cost(50.0, 0.0)],
            steps: 40,
            depth: 1,
            device_queue: 1,
            ..example()
        };
        let outcome = run(&simulation);
        assert!(outcome.wall_s <= 1.05 * 40.0 * 0.05 + outcome.fill_s, "{}", outcome.wall_s);
        assert!(outcome.overlap > 0.95);
    }

    #[test]
    fn autotune_goes_from_one_worker_and_depth_one_to_not_starved() {
        for (load, jitter) in [(400.0, 10.0), (700.0, 300.0), (130.0, 60.0)] {
            let mut start = example();
            start.costs[0] = cost(load, jitter);
            (start.workers, start.buffer, start.depth, start.device_queue, start.steps) = (1, 1, 1, 1, 800);
            let frozen = run(&start);
            assert!(frozen.starved > 0.05, "{}", frozen.starved);
            assert_eq!((frozen.workers, frozen.decisions.len()), (1, 0), "off means off");
            start.autotune = true;
            let tuned = run(&start);
            assert!(tuned.starved_at_end <= 0.01, "{load}: {} {:#?}", tuned.starved_at_end, tuned.decisions);
            assert!(tuned.decisions.iter().all(|decision| !decision.reason.is_empty()));
            assert_eq!(tuned.decisions.last().expect("it says why it stops").reason, "not starved");
        }
    }

    #[test]
    fn autotune_arrives_whenever_the_cores_allow_it() {
        for seed in 0..40u64 {
            let mut start = example();
            let draw = |name, low: f64, high: f64| {
                let unit = Cost { mean: ms(500.0), spread: ms(1.0) }.draw(seed, name, 0).as_nanos() % 1000;
                low + (high - low) * unit as f64 / 1000.0
            };
            let step = draw("step", 20.0, 200.0);
            // Up to 70 % of what eight cores can do beside this step, with up to 30 % jitter.
            let load = step * draw(Stage::Load.name(), 0.5, 5.6);
            start.costs[3] = cost(step, 0.05 * step);
            start.costs[0] = cost(load, load * draw("jitter", 0.0, 0.3));
            (start.costs[1], start.costs[2]) = (cost(0.2 * step, 0.0), cost(0.3 * step, 0.0));
            (start.workers, start.buffer, start.depth, start.device_queue) = (1, 1, 1, 1);
            (start.steps, start.seed, start.autotune) = (1000, seed, true);
            let tuned = run(&start);
            assert!(
                tuned.starved_at_end <= 0.02,
                "seed {seed}, load {load:.0}, step {step:.0}: {} {:#?}",
                tuned.starved_at_end,
                tuned.decisions
            );
        }
    }

    #[test]
    fn autotune_stops_and_blames_the_cores_when_they_are_the_limit() {
        let mut simulation = example();
        simulation.costs[0] = cost(600.0, 0.0);
        (simulation.workers, simulation.cores, simulation.autotune, simulation.steps) = (1, 2, true, 400);
        let outcome = run(&simulation);
        assert!(outcome.starved_at_end > 0.3);
        let last = outcome.decisions.last().expect("a reason");
        assert!(!last.is_move() && last.reason.contains("cores"), "{:#?}", outcome.decisions);
        assert!(outcome.workers <= 3, "it does not pile up useless workers: {}", outcome.workers);
    }

    #[test]
    fn autotune_gives_memory_back_when_the_limit_is_lower_than_the_queues() {
        let mut simulation = example();
        (simulation.autotune, simulation.memory_limit) = (true, 12 << 20);
        let outcome = run(&simulation);
        assert!(outcome.memory_high_water_bytes <= 12 << 20);
        let host = outcome.queues.iter().find(|queue| *queue.name == Place::Host).expect("it exists");
        assert!(host.capacity < 12, "{host:?}");
        assert!(outcome.decisions.iter().any(|decision| decision.reason.starts_with("memory")));
    }

    #[test]
    fn a_failing_lane_ends_the_run_in_its_place_and_names_itself() {
        for (fault, word) in [
            ("preprocess:error@17", "simulated error of device `data`"),
            ("load:panic@17", "simulated panic of host in load"),
            ("transfer:oom@17", "simulated out of memory on device `link`"),
            ("preprocess:hang@17", "no batch arrived for 60.0 s"),
            ("load:error@17 load:hang@18", "simulated error of device `host`"),
        ] {
            let faults: Vec<FaultPlan> = fault.split(' ').map(|fault| fault.parse().expect("valid")).collect();
            let stage = faults[0].stage.clone();
            let simulation = Simulation { faults, ..example() };
            let run = simulate(&simulation, Clock::virtual_time(), Stop::new(), |_| {});
            let error = run.error.expect("a planned fault");
            assert_eq!((run.outcome.steps, &*error.stage), (17, stage.as_str()), "{error}");
            assert!(error.to_string().contains(word), "{error}");
            assert!(run.outcome.speedup < 1.3, "only what was trained on counts: {}", run.outcome.speedup);
        }
    }
}
