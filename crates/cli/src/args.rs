//! What was typed. Each command turns its arguments into what is valid.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use tandem_device::{Cost, FaultPlan};

use crate::messages::Lang;

/// Train a voice and keep the GPU busy.
#[derive(Debug, Parser)]
#[command(name = "tandem", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Examples:
  tandem simulate                                  what overlap does for a typical run (simulated)
  tandem simulate --serial                         the same work without overlap
  tandem simulate --load 400ms --workers 1 --autotune --clock virtual")]
pub(crate) struct Args {
    /// Language of the messages; without it, that of the locale
    #[arg(long, global = true, value_enum)]
    pub(crate) lang: Option<Lang>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the real pipeline on simulated lanes: see what overlap, workers and depths do, without a GPU
    Simulate(SimulateArgs),
}

/// How time passes in a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClockKind {
    /// Threads really wait: the engine's own cost is in the figures
    Real,
    /// Time jumps to the next event: hours take milliseconds, and a run repeats exactly
    Virtual,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Durations: 12.3ms, 12.3ms±2.1 (mean ± standard deviation), 12.3ms+-500us. Units: ns, us, ms, s.
Faults: STAGE:KIND@BATCH; KIND is error, panic, hang, oom or slowFACTOR, for example preprocess:hang@17.

Exit code: 0 done, 1 a stage failed, 2 wrong arguments, 130 interrupted (what was done is reported).

Examples:
  tandem simulate --serial
  tandem simulate --load 12.3ms±2.1 --preprocess 5.1ms±0.8 --transfer 8.7ms±1.2 --train 123.4ms±5.2 --trace out.json
  tandem simulate --load 400ms±50 --workers 1 --pipeline-depth 1 --autotune --clock virtual
  tandem simulate --fault preprocess:hang@17 --clock virtual"
)]
pub(crate) struct SimulateArgs {
    /// Time to load one batch (host, one worker)
    #[arg(long, value_name = "TIME", default_value = "12.3ms±2.1", help_heading = "Lanes", allow_hyphen_values = true)]
    pub(crate) load: Cost,
    /// Time to preprocess one batch (data lane)
    #[arg(long, value_name = "TIME", default_value = "5.1ms±0.8", help_heading = "Lanes", allow_hyphen_values = true)]
    pub(crate) preprocess: Cost,
    /// Time to copy one batch to the model lane
    #[arg(long, value_name = "TIME", default_value = "8.7ms±1.2", help_heading = "Lanes", allow_hyphen_values = true)]
    pub(crate) transfer: Cost,
    /// Time of one training step (model lane)
    #[arg(
        long,
        value_name = "TIME",
        default_value = "123.4ms±5.2",
        help_heading = "Lanes",
        allow_hyphen_values = true
    )]
    pub(crate) train: Cost,
    /// Cores of the simulated host; loading waits for one
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=4096), help_heading = "Lanes")]
    pub(crate) cores: u64,

    /// Batches to train on
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=10_000_000), help_heading = "Pipeline")]
    pub(crate) steps: u64,
    /// Batches loaded at once; 0 = in line
    #[arg(long, visible_alias = "num-workers", value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(0..=1024), help_heading = "Pipeline")]
    pub(crate) workers: u64,
    /// Batches kept ready on the host
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100_000), help_heading = "Pipeline")]
    pub(crate) buffer_size: u64,
    /// Batches kept ready before transfer and before the model
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1024), help_heading = "Pipeline")]
    pub(crate) pipeline_depth: u64,
    /// Size of one batch in MB
    #[arg(long, value_name = "MB", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1_000_000), help_heading = "Pipeline")]
    pub(crate) batch_mb: u64,
    /// Host memory that all batches together may take, in MB
    #[arg(long, value_name = "MB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=100_000_000), help_heading = "Pipeline")]
    pub(crate) memory_limit: u64,
    /// No overlap: one thread does everything, one after the other
    #[arg(long, conflicts_with = "autotune", help_heading = "Pipeline")]
    pub(crate) serial: bool,
    /// Tune workers and depths from measured starvation; --workers and the depths are where it starts
    #[arg(long, overrides_with = "no_autotune", help_heading = "Pipeline")]
    pub(crate) autotune: bool,
    /// Leave workers and depths alone (the default here)
    #[arg(long, help_heading = "Pipeline")]
    pub(crate) no_autotune: bool,

    /// How time passes
    #[arg(long, value_enum, default_value_t = ClockKind::Real, help_heading = "Run")]
    pub(crate) clock: ClockKind,
    /// Another seed gives other jitter
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Run")]
    pub(crate) seed: u64,
    /// Make a lane misbehave (may be given several times)
    #[arg(long, value_name = "FAULT", help_heading = "Run")]
    pub(crate) fault: Vec<FaultPlan>,
    /// Give up when no batch arrives for this long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration, help_heading = "Run")]
    pub(crate) stall_timeout: Duration,

    /// Write a trace for Perfetto (ui.perfetto.dev) or chrome://tracing
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) trace: Option<PathBuf>,
    /// Print one JSON object, on the last line, instead of the report
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let cost: Cost = text.parse().map_err(|error: tandem_device::CostError| error.to_string())?;
    if cost.mean.is_zero() { Err("it must be longer than 0".to_owned()) } else { Ok(cost.mean) }
}
