//! Arguments of `tandem simulate`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use tandem_device::{Cost, FaultPlan};
use tandem_flow::Stage;
use tandem_observe::BACKWARD;

use super::parse_decimal_megabytes;

/// How time passes in a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClockKind {
    /// Threads really wait: the engine's own cost is in the figures
    Real,
    /// Time jumps to the next event: hours take milliseconds
    Virtual,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Durations: 12.3ms, 12.3ms±2.1 (mean ± standard deviation), 12.3ms+-500us. Units: ns, us, ms, s.
Faults: STAGE:KIND@BATCH; STAGE is load, preprocess, transfer or train; KIND is error, panic, hang, oom or slowFACTOR.

Exit code: 0 done, 1 a stage failed, 2 wrong arguments, 130 interrupted (what was done is reported).

Examples:
  tandem simulate --serial
  tandem simulate --load 12.3ms±2.1 --preprocess 5.1ms±0.8 --transfer 8.7ms±1.2 --train 123.4ms±5.2 --trace out.json
  tandem simulate --load 400ms±50 --workers 1 --pipeline-depth 1 --autotune --clock virtual
  tandem simulate --fault preprocess:hang@17 --clock virtual
  tandem simulate --world 64 --link 10GB/s --latency 20us        what 2, 4, … 64 ranks would give
  tandem simulate --world 8 --from runs/my-voice                 the same with what a run measured"
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
    /// Workers: batches loaded at once; 0 = none
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
    #[arg(long, value_name = "MB", default_value_t = 1024, value_parser = parse_decimal_megabytes, help_heading = "Pipeline")]
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
    /// Seed of the jitter
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Run")]
    pub(crate) seed: u64,
    /// Make a lane misbehave (may be given several times)
    #[arg(long, value_name = "FAULT", help_heading = "Run")]
    pub(crate) fault: Vec<FaultPlan>,
    /// Give up when no batch arrives for this long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration, help_heading = "Run")]
    pub(crate) stall_timeout: Duration,

    /// Predict what ranks (processes with a device each) would give: 1, 2, 4, … up to so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65_536), conflicts_with_all = ["trace", "fault", "serial", "autotune"], help_heading = "Ranks")]
    pub(crate) world: Option<u64>,
    /// Speed of the link between two ranks
    #[arg(long, value_name = "SPEED", default_value = "10GB/s", value_parser = parse_speed_of_copies, help_heading = "Ranks")]
    pub(crate) link: f64,
    /// Latency of the link
    #[arg(long, value_name = "TIME", default_value = "20us", value_parser = parse_latency, help_heading = "Ranks")]
    pub(crate) latency: Duration,
    /// Bytes of all gradients; with --from, four for each parameter of the model [default: 16MB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Ranks")]
    pub(crate) gradients: Option<f64>,
    /// Speed of copies between a device and the host
    #[arg(long, value_name = "SPEED", default_value = "8GB/s", value_parser = parse_speed_of_copies, help_heading = "Ranks")]
    pub(crate) copies: f64,
    /// Ranks that share a host and its --cores
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=4096), help_heading = "Ranks")]
    pub(crate) ranks_per_host: u64,
    /// Share of a step over which gradients become available, at its end; 0 = all of them when it is over
    #[arg(long, value_name = "SHARE", default_value_t = BACKWARD, value_parser = parse_share, help_heading = "Ranks")]
    pub(crate) backward: f64,
    /// Take the times of stages, workers and queues from a run, or from what `tandem profile --json` printed
    #[arg(long, value_name = "RUN|FILE", conflicts_with_all = measured_by_a_run(), help_heading = "Lanes")]
    pub(crate) from: Option<PathBuf>,

    /// Write who worked when, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) trace: Option<PathBuf>,
    /// Print one JSON object instead of the report
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// What `--from` says.
fn measured_by_a_run() -> Vec<&'static str> {
    let others = ["workers", "buffer_size", "pipeline_depth"];
    Stage::TIMED.iter().map(|stage| stage.name()).chain(others).collect()
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let cost: Cost = text.parse().map_err(|error: tandem_device::CostError| error.to_string())?;
    if cost.mean.is_zero() { Err("it must be longer than 0".to_owned()) } else { Ok(cost.mean) }
}

pub(super) fn parse_latency(text: &str) -> Result<Duration, String> {
    text.parse().map(|cost: Cost| cost.mean).map_err(|error: tandem_device::CostError| error.to_string())
}

/// From 0 to 1.
fn parse_share(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    number.ok_or_else(|| format!("`{text}` is not a share, write a number from 0 to 1"))
}

/// `16MB`, `1.5GB` or `4096`, in bytes.
fn parse_size(text: &str) -> Result<f64, String> {
    let units = [("GB", 1e9), ("MB", 1e6), ("KB", 1e3), ("kB", 1e3), ("B", 1.0), ("", 1.0)];
    number_with(text, &units).ok_or_else(|| format!("`{text}` is not a size, write for example `16MB`"))
}

/// `10GB/s` or `100Gbit/s`, in bytes per second.
pub(super) fn parse_speed_of_copies(text: &str) -> Result<f64, String> {
    let units = [("Gbit/s", 1e9 / 8.0), ("Mbit/s", 1e6 / 8.0), ("GB/s", 1e9), ("MB/s", 1e6), ("KB/s", 1e3)];
    let wrong = || format!("`{text}` is not a speed, write for example `10GB/s` or `100Gbit/s`");
    number_with(text, &units).ok_or_else(wrong)
}

/// A number above 0 with one of these units, times what that stands for.
fn number_with(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    units.iter().find_map(|(unit, factor)| {
        let number: f64 = text.trim().strip_suffix(unit)?.trim_end().parse().ok()?;
        (number.is_finite() && number > 0.0).then_some(number * factor)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_speeds_are_read_with_their_units() {
        for (text, expected) in [
            ("16MB", Some(16e6)),
            ("1.5 GB", Some(1.5e9)),
            ("4096", Some(4096.0)),
            ("0", None),
            ("-1MB", None),
            ("MB", None),
        ] {
            assert_eq!(parse_size(text).ok(), expected, "{text}");
        }
        for (text, expected) in [
            ("10GB/s", Some(1e10)),
            ("100Gbit/s", Some(12.5e9)),
            ("250MB/s", Some(2.5e8)),
            ("10", None),
            ("10GB", None),
            ("0GB/s", None),
            ("infGB/s", None),
        ] {
            assert_eq!(parse_speed_of_copies(text).ok(), expected, "{text}");
        }
    }
}
