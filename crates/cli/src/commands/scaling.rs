//! `tandem simulate --world`: what more ranks would give, and where the times of stages come from.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tandem_device::{Cost, SimulatedLink};
use tandem_flow::Stage;
use tandem_observe::{BUCKET_BYTES, Communication, Profile, Scaled, ScalingKind, Simulation, scaling, worlds_up_to};
use tandem_train::RunRecord;

use crate::args::SimulateArgs;
use crate::failure::Failure;
use crate::messages::Messages;
use crate::ui::output::print;
use crate::ui::table::Table;

/// Gradients of which nothing is known.
const GRADIENT_BYTES: f64 = 16e6;
/// Bytes of a gradient.
const PARAMETER_BYTES: f64 = 4.0;
/// From here on, waiting for ranks is worth a line: that of the verdict.
const EXPOSED: f64 = tandem_observe::thresholds::EXPOSED;

/// What a run or a profile measured of one rank.
pub(super) struct Measured {
    pub(super) costs: [Cost; 4],
    pub(super) workers: usize,
    pub(super) cores: usize,
    pub(super) buffer: usize,
    pub(super) depth: usize,
    pub(super) device_queue: usize,
    parameters: Option<f64>,
}

impl Measured {
    /// Of a run's folder, or of a file that `tandem profile --json` printed.
    pub(super) fn read(path: &Path, messages: &Messages) -> Result<Measured, Failure> {
        if path.is_dir() {
            let record = RunRecord::read(path).map_err(|error| Failure::of(crate::failure::USAGE, &error))?;
            return Ok(Measured::of_run(&record));
        }
        let not_a_profile = |why: &dyn std::fmt::Display| {
            let values: &[(&str, &dyn std::fmt::Display)] = &[("path", &path.display()), ("reason", why)];
            Failure::usage(messages.with("sim-from-wrong", values)).hint(messages.get("sim-from-hint"))
        };
        let bytes = std::fs::read(path).map_err(|error| not_a_profile(&error))?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|error| not_a_profile(&error))?;
        Measured::of_profile(&value)
            .map_err(|missing| not_a_profile(&messages.with("sim-from-missing", &[("key", &missing)])))
    }

    fn of_run(record: &RunRecord) -> Measured {
        let profile: &Profile = &record.last().profile;
        let number = |flag: &str| {
            let setting = record.settings.iter().find(|setting| setting.name == flag);
            setting.and_then(|setting| setting.value.parse::<usize>().ok())
        };
        let stage = |stage: Stage| {
            let row = profile.stage(stage);
            (row.mean_ms, row.std_ms)
        };
        let workers = number("--num-workers").unwrap_or(1);
        Measured {
            costs: costs(Stage::TIMED.map(stage), profile.variation * profile.period_ms),
            workers,
            cores: workers.max(1),
            buffer: number("--buffer-size").unwrap_or(1),
            depth: number("--pipeline-depth").unwrap_or(1),
            device_queue: number("--prefetch-buffer-size").unwrap_or(1),
            parameters: record.report.as_ref().and_then(|report| report["parameters"].as_f64()),
        }
    }

    /// The name of what is missing, if something is.
    fn of_profile(profile: &Value) -> Result<Measured, String> {
        let number = |value: &Value, name: &str| value.as_f64().filter(|number| *number >= 0.0).ok_or(name.to_owned());
        let mut stages = [(0.0, 0.0); 4];
        for (of_stage, stage) in stages.iter_mut().zip(Stage::TIMED) {
            let figures = &profile["stages"][stage.name()];
            let name = |figure: &str| format!("stages.{stage}.{figure}");
            *of_stage = (number(&figures["mean_ms"], &name("mean_ms"))?, number(&figures["std_ms"], &name("std_ms"))?);
        }
        let variation = number(&profile["variation"], "variation")? * number(&profile["period_ms"], "period_ms")?;
        let knob = |name: &str| number(&profile["knobs"][name], &format!("knobs.{name}")).map(|value| value as usize);
        Ok(Measured {
            costs: costs(stages, variation),
            workers: knob("workers")?,
            cores: knob("cores")?,
            buffer: knob("buffer")?,
            depth: knob("depth")?,
            device_queue: knob("device_queue")?,
            parameters: profile["parameters"].as_f64(),
        })
    }
}

/// Costs of the stages, from their means and standard deviations in milliseconds. That longer batches take longer does not make one rank
/// wait for another: all have the same shape. So a step varies by no more than steps of equal work do.
fn costs(stages: [(f64, f64); 4], step_std_ms: f64) -> [Cost; 4] {
    let of = |ms: f64| Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default();
    let mut costs = stages.map(|(mean, std)| Cost { mean: of(mean), spread: of(std) });
    let step = &mut costs[3];
    step.spread = step.spread.min(of(step_std_ms));
    costs
}

/// Prints the two tables.
pub(super) fn run(
    args: &SimulateArgs,
    simulation: &Simulation,
    measured: Option<&Measured>,
    messages: &Messages,
) -> Result<(), Failure> {
    let parameters = measured.and_then(|measured| measured.parameters);
    if let (Some(_), None, None) = (measured, parameters, args.gradients) {
        let failure = Failure::usage(messages.get("sim-no-parameters"));
        return Err(failure.hint(messages.get("sim-no-parameters-hint")));
    }
    let gradients = args.gradients.or(parameters.map(|count| PARAMETER_BYTES * count)).unwrap_or(GRADIENT_BYTES);
    let communication = Communication {
        link: SimulatedLink { bandwidth: args.link, latency: args.latency },
        gradient_bytes: gradients as u64,
        bucket_bytes: BUCKET_BYTES,
        copy_speed: args.copies,
        backward: args.backward,
        ranks_per_host: args.ranks_per_host as usize,
        cores: simulation.cores.max(1),
    };
    let worlds = worlds_up_to(args.world.unwrap_or(1) as usize);
    let tables =
        [ScalingKind::Weak, ScalingKind::Strong].map(|kind| (kind, scaling(simulation, &communication, &worlds, kind)));
    print(&match args.json {
        true => format!("{}\n", to_json(simulation, &communication, &tables)),
        false => text(args, &communication, &tables, messages),
    })
}

fn to_json(simulation: &Simulation, communication: &Communication, tables: &[(ScalingKind, Vec<Scaled>); 2]) -> Value {
    let stages: Map<String, Value> = (Stage::TIMED.iter().zip(&simulation.costs))
        .map(|(stage, cost)| {
            let ms = |time: Duration| 1e3 * time.as_secs_f64();
            (stage.to_string(), json!({"mean_ms": ms(cost.mean), "std_ms": ms(cost.spread)}))
        })
        .collect();
    let [(_, weak), (_, strong)] = tables;
    json!({"simulated": true, "stages": stages, "gradient_bytes": communication.gradient_bytes,
        "bucket_bytes": communication.bucket_bytes, "link_bytes_per_s": communication.link.bandwidth,
        "latency_us": 1e6 * communication.link.latency.as_secs_f64(), "copy_bytes_per_s": communication.copy_speed,
        "weak": weak, "strong": strong})
}

fn text(
    args: &SimulateArgs,
    communication: &Communication,
    tables: &[(ScalingKind, Vec<Scaled>); 2],
    messages: &Messages,
) -> String {
    let megabytes = |bytes: f64| format!("{:.1}", bytes / 1e6);
    let gigabytes = |bytes: f64| format!("{:.2}", bytes / 1e9);
    let values: &[(&str, &dyn std::fmt::Display)] = &[
        ("gradients", &megabytes(communication.gradient_bytes as f64)),
        ("link", &gigabytes(args.link)),
        ("latency", &format!("{:.0}", 1e6 * args.latency.as_secs_f64())),
        ("copies", &gigabytes(args.copies)),
    ];
    let mut text = format!("{}\n", messages.with("sim-world-title", values));
    for (kind, rows) in tables {
        let title = if *kind == ScalingKind::Weak { "sim-world-weak" } else { "sim-world-strong" };
        text += &format!("\n{}\n", messages.get(title));
        let head = ["ranks", "step", "reduce", "exposed", "speedup", "efficiency"];
        let mut table = Table::new(head.map(|name| messages.get(&format!("sim-world-{name}"))));
        for row in rows {
            table.row([
                row.world.to_string(),
                format!("{:.1} ms", row.period_ms),
                format!("{:.1} ms", row.reduce_ms),
                format!("{:.1} %", 100.0 * row.exposed),
                format!("{:.2}", row.speedup),
                format!("{:.0} %", 100.0 * row.efficiency),
            ]);
        }
        text += &table.render();
        if let Some(first) = rows.iter().find(|row| row.exposed > EXPOSED) {
            let share = format!("{:.1}", 100.0 * first.exposed);
            text += &messages.with("sim-world-mostly", &[("world", &first.world), ("share", &share)]);
            text.push('\n');
        }
        if let Some(first) = rows.iter().find(|row| row.starved > tandem_observe::thresholds::STARVED) {
            let share = format!("{:.1}", 100.0 * first.starved);
            text += &messages.with("sim-world-starved", &[("world", &first.world), ("share", &share)]);
            text.push('\n');
        }
    }
    text
}
