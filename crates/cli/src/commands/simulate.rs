//! `tandem simulate`: the real engine on simulated lanes.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use tandem_flow::{Clock, ErrorKind, Stage, Trace};
use tandem_observe::{Run, Simulation, SimulationReport, WORKS_IN, simulate, strip, union, write_chrome_trace};

use crate::args::{ClockKind, SimulateArgs};
use crate::commands::scaling::{self, Measured};
use crate::failure::{FAILED, Failure, INTERRUPTED};
use crate::interrupt;
use crate::messages::Messages;
use crate::ui::{
    output::{Output, print},
    progress,
    table::Table,
    timing_report,
};

/// A megabyte, as it is written on the package.
const MB: usize = 1_000_000;
/// Columns of the lanes' strips: fits a terminal of 80 with its labels.
const STRIP: usize = 60;
/// Steps shown in it.
const STRIP_STEPS: u64 = 6;

pub(crate) fn run(args: SimulateArgs, messages: &Messages) -> Result<(), Failure> {
    let measured = args.from.as_deref().map(|path| Measured::read(path, messages)).transpose()?;
    let simulation = settings(&args, measured.as_ref(), messages)?;
    if args.world.is_some() {
        return scaling::run(&args, &simulation, measured.as_ref(), messages);
    }
    let mut trace_file = args.trace.as_deref().map(|path| Output::create_for(path, messages)).transpose()?;
    let stop = interrupt::catch().stop;

    let clock = if args.clock == ClockKind::Virtual { Clock::virtual_time() } else { Clock::real() };
    let bar = progress::bar(simulation.steps, args.clock == ClockKind::Real && stderr().is_terminal());
    let Run { outcome, trace, error } = simulate(&simulation, clock, stop, |step| bar.set_position(step));
    bar.finish_and_clear();

    if args.json {
        print(&format!("{}\n", serde_json::to_string(&outcome).expect("plain data")))?;
    } else {
        print(&report(&simulation, &outcome, &trace, args.serial, messages))?;
    }
    if let Some(mut output) = trace_file.take() {
        let written = write_trace(&trace, &mut output).and_then(|()| output.finish());
        let path = written.map_err(|error| Failure::new(FAILED, error.to_string()))?;
        eprintln!("{}", messages.with("sim-trace-written", &[("path", &path.display())]));
    }
    match error {
        None => Ok(()),
        Some(error) if matches!(error.kind, ErrorKind::Stopped(_)) => {
            Err(Failure::new(INTERRUPTED, messages.with("sim-interrupted", &[("steps", &outcome.steps)])))
        }
        Some(error) => Err(Failure::new(FAILED, error.to_string())),
    }
}

fn settings(args: &SimulateArgs, measured: Option<&Measured>, messages: &Messages) -> Result<Simulation, Failure> {
    if args.batch_mb > args.memory_limit {
        let values: [(&str, &dyn std::fmt::Display); 2] = [("batch", &args.batch_mb), ("limit", &args.memory_limit)];
        return Err(Failure::usage(messages.with("sim-batch-too-large", &values)));
    }
    let costs = [args.load, args.preprocess, args.transfer, args.train];
    for (fault, at) in args.fault.iter().map(|fault| (fault, fault.at)) {
        if !Stage::TIMED.iter().any(|stage| stage.name() == fault.stage) {
            let stages = Stage::TIMED.map(Stage::name).join(", ");
            return Err(Failure::usage(format!("unknown stage `{}` in --fault", fault.stage))
                .hint(format!("the stages are {stages}")));
        }
        if at >= args.steps {
            return Err(Failure::usage(format!(
                "--fault strikes at batch {at}, but there are only {} steps",
                args.steps
            )));
        }
    }
    let simulation = Simulation {
        costs,
        steps: args.steps,
        workers: args.workers as usize,
        max_workers: args.cores.max(args.workers) as usize,
        cores: args.cores as usize,
        buffer: args.buffer_size as usize,
        depth: args.pipeline_depth as usize,
        device_queue: args.pipeline_depth as usize,
        batch_bytes: args.batch_mb as usize * MB,
        memory_limit: args.memory_limit as usize * MB,
        autotune: args.autotune && !args.no_autotune,
        seed: args.seed,
        faults: args.fault.clone(),
        stall_timeout: args.stall_timeout,
        measured: None,
    };
    let simulation = match measured {
        None => simulation,
        Some(measured) => Simulation {
            costs: measured.costs,
            workers: measured.workers,
            max_workers: measured.cores.max(measured.workers),
            cores: measured.cores,
            buffer: measured.buffer,
            depth: measured.depth.saturating_sub(1),
            device_queue: measured.device_queue,
            ..simulation
        },
    };
    Ok(if args.serial { simulation.serial() } else { simulation })
}

fn write_trace(trace: &Trace, output: &mut Output) -> std::io::Result<()> {
    write_chrome_trace(trace, "tandem simulate (simulated)", output.writer())
}

fn report(
    simulation: &Simulation,
    outcome: &SimulationReport,
    trace: &Trace,
    serial: bool,
    messages: &Messages,
) -> String {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let mut text = String::new();
    let mut line = |content: String| {
        text += &content;
        text.push('\n');
    };
    let mode = messages.get(if serial { "sim-mode-serial" } else { "sim-mode-pipelined" });
    let clock = messages.get(if outcome.clock == "virtual" { "sim-clock-virtual" } else { "sim-clock-real" });
    line(messages.with("sim-title", &[("steps", &outcome.steps), ("mode", &mode), ("clock", &clock)]));
    if !serial {
        let values: [(&str, &dyn std::fmt::Display); 3] =
            [("workers", &outcome.workers), ("buffer", &simulation.buffer), ("depth", &simulation.depth)];
        line(messages.with("sim-settings", &values));
    }

    line(String::new());
    line(messages.get("sim-breakdown"));
    let head = ["sim-stage", "sim-mean", "sim-std", "sim-p95", "sim-share"].map(|id| messages.get(id));
    let mut table = Table::new(head);
    for stage in &outcome.stages {
        let ms = |value: f64| format!("{value:.1} ms");
        table.row([
            timing_report::stage_name(&stage.name, messages),
            ms(stage.mean_ms),
            format!("± {}", ms(stage.std_ms)),
            ms(stage.p95_ms),
            percent(stage.share),
        ]);
    }
    line(table.render());

    line(messages.get("sim-lanes"));
    let spans = trace.spans();
    let window = strip_window(&spans);
    let shares = [outcome.host_busy, outcome.data_busy, outcome.link_busy, outcome.model_busy];
    for ((name, stage), share) in WORKS_IN.into_iter().zip(Stage::TIMED).zip(shares) {
        let blocks = strip(&union(&spans, &[stage]), window, STRIP);
        line(format!("  {name:5} {:>7}  {blocks}", percent(share)));
    }
    line(format!("  {}", messages.with("sim-strip", &[("steps", &STRIP_STEPS.min(outcome.steps))])));
    line(format!("  {}", messages.with("sim-starved", &[("share", &format!("{:.1}", 100.0 * outcome.starved))])));
    line(format!("  {}", messages.with("sim-overlap", &[("share", &format!("{:.1}", 100.0 * outcome.overlap))])));

    if !outcome.queues.is_empty() {
        line(String::new());
        line(messages.get("sim-queues"));
        let mut table =
            Table::new(["sim-queue", "sim-fill", "sim-most", "sim-capacity", "sim-empty"].map(|id| messages.get(id)));
        for queue in &outcome.queues {
            let empty = if outcome.elapsed_s > 0.0 { queue.empty_s / outcome.elapsed_s } else { 0.0 };
            table.row([
                queue.name.clone(),
                format!("{:.1}", queue.mean_items),
                queue.high_water_items.to_string(),
                queue.capacity.to_string(),
                percent(empty),
            ]);
        }
        line(table.render().trim_end().to_owned());
        let memory = format!("{:.0}", outcome.memory_high_water_bytes as f64 / MB as f64);
        let limit = simulation.memory_limit / MB;
        line(format!("  {}", messages.with("sim-memory", &[("used", &memory), ("limit", &limit)])));
    }

    if !outcome.decisions.is_empty() {
        line(String::new());
        line(messages.get("sim-decisions"));
        for decision in &outcome.decisions {
            line(format!("  {}", messages.text(decision.to_string())));
        }
    }

    line(String::new());
    let seconds = |value: f64| format!("{value:.2}");
    line(messages.with(
        "sim-wall",
        &[("wall", &seconds(outcome.wall_s)), ("fill", &seconds(outcome.fill_s)), ("ideal", &seconds(outcome.ideal_s))],
    ));
    let id = if serial { "sim-serial-self" } else { "sim-serial" };
    line(messages.with(id, &[("serial", &seconds(outcome.serial_s)), ("speedup", &format!("{:.2}", outcome.speedup))]));
    text
}

/// The last few steps, whole.
fn strip_window(spans: &[tandem_flow::Span]) -> (Duration, Duration) {
    let mut steps: Vec<_> = spans.iter().filter(|span| span.is(Stage::Train)).collect();
    // Not the very last ones: by then everything is prepared and only the model works.
    let end = (steps.len() * 3 / 4).max(STRIP_STEPS as usize).min(steps.len());
    steps.truncate(end);
    let first = steps.len().saturating_sub(STRIP_STEPS as usize + 1);
    match (steps.get(first), steps.last()) {
        (Some(first), Some(last)) => {
            (if steps.len() as u64 > STRIP_STEPS { first.end } else { Duration::ZERO }, last.end)
        }
        _ => (Duration::ZERO, Duration::ZERO),
    }
}
