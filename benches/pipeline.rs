//! The engine's own figures on the real clock: overlap, overhead, idleness.
//!
//!     cargo bench -p tandem-cli --bench pipeline [-- ROUNDS]
//!
//! Prints one Markdown table. Simulated lanes are labeled; the overhead is that of empty stages on this machine.

use std::fs;
use std::time::{Duration, Instant};

use tandem_device::Cost;
use tandem_flow::{Clock, Context, Cursor, Flow, Knob, Place, Stage, Stop, Trace};
use tandem_observe::{Knobs, Pressure, Simulation, SimulationReport, recent_profile, simulate, verdict};

fn main() {
    let rounds: usize = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(3);
    println!("machine: {} cores, {}; {rounds} rounds, median (min .. max)\n", cores(), cpu_model());
    println!("| what | target | measured |\n|---|---|---|");

    let runs = repeat(rounds, || run(&example()));
    row("example: model lane busy (simulated lanes)", ">= 99 %", &each(&runs, |o| 100.0 * o.model_busy), "%");
    row(
        "example: wall / (steps x mean train + fill)",
        "<= 1.01",
        &each(&runs, |o| o.wall_s / (o.steps as f64 * o.stages[3].mean_ms / 1e3 + o.fill_s)),
        "",
    );
    row("example: steps that overlap", "> 95 %", &each(&runs, |o| 100.0 * o.overlap), "%");
    let serial = repeat(rounds, || run(&example().serial()));
    row("example with --serial: model lane busy", "it oscillates", &each(&serial, |o| 100.0 * o.model_busy), "%");
    row(
        "example with --serial: wall / pipelined wall",
        "",
        &serial.iter().zip(&runs).map(|(a, b)| a.wall_s / b.wall_s).collect::<Vec<_>>(),
        "",
    );

    let equal = repeat(rounds, || {
        let (zero, fifty) = (Cost::fixed(Duration::ZERO), Cost::fixed(Duration::from_millis(50)));
        run(&Simulation { costs: [zero, fifty, zero, fifty], steps: 40, depth: 1, device_queue: 1, ..example() })
    });
    row(
        "two equal stages of 50 ms: wall / (40 x 50 ms + fill)",
        "<= 1.05",
        &each(&equal, |o| o.wall_s / (2.0 + o.fill_s)),
        "",
    );

    for (name, workers, depth, trace) in [
        ("synchronous", 0, 0, false),
        ("4 workers, depth 2", 4, 2, false),
        ("4 workers, depth 50", 4, 50, false),
        ("4 workers, depth 50, trace on", 4, 50, true),
    ] {
        let watch = if trace { Watch::Trace } else { Watch::Off };
        let (wall, cpu): (Vec<f64>, Vec<f64>) = (0..rounds).map(|_| overhead(workers, depth, watch)).unzip();
        row(&format!("overhead per batch and stage, empty stages, {name}: wall"), "< 10 µs", &wall, "µs");
        row(&format!("the same, CPU time of all threads, {name}"), "", &cpu, "µs");
    }
    // In turn: what a step pays for being watched, as a share of a short step.
    let in_turn: Vec<[f64; 3]> = (0..5 * rounds)
        .map(|_| [Watch::Off, Watch::Snapshots, Watch::Trace].map(|watch| 4.0 * overhead(0, 0, watch).0))
        .collect();
    for (name, at, target) in [("monitoring", 1, "<= 0.5 %"), ("tracing", 2, "<= 2 %")] {
        let added: Vec<f64> = in_turn.iter().map(|times| times[at] - times[0]).collect();
        row(&format!("a step pays for {name}"), "", &added, "µs");
        let shares: Vec<f64> = added.iter().map(|micros| 100.0 * micros / 1e6 / SHORT_STEP.as_secs_f64()).collect();
        row(&format!("{name} / a step of {} ms", SHORT_STEP.as_millis()), target, &shares, "%");
    }
    let idle: Vec<f64> = (0..rounds).map(|_| idle_cpu()).collect();
    row("CPU time of an idle pipeline / wall time", "~ 0", &idle, "%");
}

const KNOBS: Knobs = Knobs {
    workers: 4,
    cores: 2,
    load_cpu_percent: 100,
    buffer: 50,
    device_queue: 2,
    depth: 2,
    batch_size: 8,
    features_on_data: false,
    cached: true,
    memory_limit_mb: 512,
};

fn example() -> Simulation {
    let cost = |text: &str| text.parse().expect("valid");
    Simulation {
        costs: [cost("12.3ms±2.1"), cost("5.1ms±0.8"), cost("8.7ms±1.2"), cost("123.4ms±5.2")],
        steps: 200,
        workers: 4,
        max_workers: 4,
        ..Simulation::default()
    }
}

fn run(simulation: &Simulation) -> SimulationReport {
    simulate(simulation, Clock::real(), Stop::new(), |_| {}).outcome
}

/// How a run is watched.
#[derive(Clone, Copy, PartialEq)]
enum Watch {
    /// Not at all.
    Off,
    /// As in training: the last spans are kept, and a snapshot is taken every ten steps.
    Snapshots,
    /// Every span is kept.
    Trace,
}

/// A step that is short for a real model.
const SHORT_STEP: Duration = Duration::from_millis(20);

/// Microseconds per batch and stage with four empty stages: wall, and CPU of all threads.
fn overhead(workers: usize, depth: usize, watch: Watch) -> (f64, f64) {
    const BATCHES: u64 = 200_000;
    let mut trace = if watch == Watch::Trace { Trace::with_limit(8 * BATCHES as usize) } else { Trace::off() };
    if watch == Watch::Snapshots {
        trace.keep_recent(2048);
    }
    let context = Context::new(Clock::real()).with_trace(trace);
    let depth = Knob::fixed("depth", depth);
    let (start, cpu) = (Instant::now(), cpu_time());
    let flow = Flow::source(&context, Stage::Plan, Cursor::START, 1, |_| 0..BATCHES)
        .par_stage(Stage::Load, &Knob::fixed("workers", workers), Ok)
        .prefetch(Place::Host, &depth)
        .stage(Stage::Preprocess, Ok)
        .prefetch(Place::Data, &depth)
        .stage(Stage::Transfer, Ok)
        .prefetch(Place::Model, &depth)
        .stage(Stage::Train, Ok);
    let mut steps = 0;
    for item in flow {
        assert!(item.is_ok());
        steps += 1;
        if watch == Watch::Snapshots && steps % 10 == 0 {
            let (profile, _) = recent_profile(&context.trace.recent(), steps).unzip();
            std::hint::black_box(profile.map(|profile| verdict(&profile, &KNOBS, &Pressure::default())));
        }
    }
    assert_eq!(steps as u64, BATCHES);
    let per = 1e6 / (4.0 * BATCHES as f64);
    (start.elapsed().as_secs_f64() * per, (cpu_time() - cpu) * per)
}

/// Percent of a core that a pipeline takes while its consumer does nothing and every queue is full.
fn idle_cpu() -> f64 {
    let context = Context::default();
    let mut flow = Flow::source(&context, Stage::Plan, Cursor::START, 1, |_| 0..1000u64)
        .par_stage(Stage::Load, &Knob::fixed("workers", 8), Ok)
        .prefetch(Place::Host, &Knob::fixed("depth", 8))
        .stage(Stage::Preprocess, Ok)
        .prefetch(Place::Data, &Knob::fixed("depth", 2));
    assert!(flow.next().is_some());
    std::thread::sleep(Duration::from_millis(200));
    let (start, cpu) = (Instant::now(), cpu_time());
    std::thread::sleep(Duration::from_secs(2));
    100.0 * (cpu_time() - cpu) / start.elapsed().as_secs_f64()
}

fn repeat<T>(rounds: usize, mut once: impl FnMut() -> T) -> Vec<T> {
    (0..rounds).map(|_| once()).collect()
}

fn each(runs: &[SimulationReport], value: impl Fn(&SimulationReport) -> f64) -> Vec<f64> {
    runs.iter().map(value).collect()
}

fn row(what: &str, target: &str, values: &[f64], unit: &str) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (min, median, max) = (sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1]);
    println!("| {what} | {target} | {median:.3} {unit} ({min:.3} .. {max:.3}) |");
}

/// User and system time of this process in seconds, from the scheduler's nanosecond counters of all live threads
/// and the (coarser) total of those that ended.
fn cpu_time() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1).map(str::to_owned));
    model.unwrap_or_else(|| "unknown CPU".to_owned())
}
