//! Arguments of the commands that train, synthesize and measure.

use std::path::PathBuf;

use tandem_device::FaultPlan;
use tandem_train::{Injection, LaneFault};

use super::{DeviceArgs, SettingArgs, TRAIN};

#[derive(Debug, clap::Args)]
#[command(after_help = "Ctrl-C keeps what is done; the same command resumes from there.

Examples:
  tandem demo
  tandem demo --folder /tmp/demo --steps 300 --speakers 1")]
pub(crate) struct DemoArgs {
    /// Where everything goes
    #[arg(long = "folder", value_name = "DIR", default_value = "tandem-demo")]
    pub(crate) dir: PathBuf,
    /// Steps of training
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) steps: u64,
    /// Steps of training of the vocoder; 0 = none is trained, the sound is made with Griffin-Lim
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub(crate) vocoder_steps: u64,
    /// Clips of the corpus
    #[arg(long, value_name = "N", default_value_t = 240, value_parser = clap::value_parser!(u64).range(10..=100_000))]
    pub(crate) clips: u64,
    /// Speakers of the corpus
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=4))]
    pub(crate) speakers: u64,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Print one JSON object a line instead of the report
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A run is resumed by itself when --checkpoint-dir has one. Settings that are not given are then those of the run,
but for --num-workers, --max-steps and the devices; what decides what is learned must be the same when it is given.
Ctrl-C (or SIGTERM) finishes the step, writes a checkpoint and ends with exit code 0; the same command resumes exactly there.
A second Ctrl-C after two seconds ends at once; what came after the last checkpoint is lost.

Exit code: 0 done or stopped with a checkpoint, 1 failed (what was learned is saved), 2 wrong arguments, data or checkpoint,
130 a second Ctrl-C, or one while the corpus was read.

Examples:
  tandem train --train-data my-voice
  tandem train --train-data my-voice --val-data my-voice-held-out --model-size small --batch-size 16
  tandem train --train-data my-voice --batch-size 8 --grad-accum 4      (the same as --batch-size 32, in less memory)
  tandem train --train-data my-voice --data-gpu 0 --model-gpu 1         (one GPU prepares, the other trains)
  tandem train --train-data my-voice --data-gpu cpu --model-gpu 1       (this GPU alone)
  tandem train --train-data my-voice --data-gpu 0 --model-gpu 1 --enable-memory-isolation --model-gpu-memory 16384
  tandem train --config config.yaml --print-config
  tandem train --train-data my-voice --max-steps 2000 --json > events.jsonl"
)]
pub(crate) struct TrainArgs {
    #[command(flatten)]
    pub(crate) requested: SettingArgs<TRAIN>,
    /// Read settings from a file (see `tandem config init`); what is typed wins
    #[arg(long, value_name = "FILE", help_heading = "Run")]
    pub(crate) config: Option<PathBuf>,
    /// Print every setting, its value and where it comes from, and end
    #[arg(long, help_heading = "Run")]
    pub(crate) print_config: bool,
    /// Only the first of several ranks prints; the others say nothing but what they fail of
    #[arg(long, value_name = "yes|no", default_value = "yes", value_parser = ["yes", "no"], help_heading = "Run", hide_possible_values = true)]
    pub(crate) quiet_ranks: String,
    /// Make things go wrong, for tests: nan@STEP, oom@STEP:CLIPS, leak@BYTES, data:hang@BATCH (or error, panic, oom, slowSECONDS)
    #[arg(long, value_name = "FAULT", hide = true, value_parser = parse_fault)]
    pub(crate) inject: Vec<InjectedFault>,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Synthesis and copy-synthesis (the true mel through the same vocoder) are compared with the recording. MCD is that of pymcd.
boundary_error_ms_median needs times that are known (timings/ID.csv in the corpus, as the demo has them).

Examples:
  tandem evaluate runs/my-voice
  tandem evaluate runs/my-voice --html evaluation.html
  tandem evaluate runs/my-voice --data my-other-voice --json"
)]
pub(crate) struct EvaluateArgs {
    /// Run (its last checkpoint) or checkpoint, such as RUN/checkpoints/best
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Another corpus, of which all clips are used; without it, the validation clips of the run
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Clips at most
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) clips: u64,
    /// Write the texts and WAVs for other judges: DIR/synthesis, DIR/true-durations (timed as the recordings) and DIR/copy-synthesis (the true mels through the same vocoder)
    #[arg(long, value_name = "DIR", alias = "speak")]
    pub(crate) export: Option<PathBuf>,
    /// Write a page with the worst clips first: figures, spectrograms and sound of recording, copy-synthesis and synthesis
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// What makes sound of the mel: a run of `train --part vocoder` (or a checkpoint), or `griffin-lim`; without it, RUN-vocoder if there is one, else Griffin-Lim
    #[arg(long, value_name = "RUN|griffin-lim")]
    pub(crate) vocoder: Option<String>,
    /// Steps from noise to sound
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) steps: u64,
    /// How lively: 0 is flat, 1 as varied as the corpus
    #[arg(long, value_name = "T", default_value_t = 0.0, value_parser = parse_temperature)]
    pub(crate) temperature: f64,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Print one JSON object instead of the report
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Exit code: 0 whole, 1 damaged, 2 wrong arguments, or there is no run.

Examples:
  tandem inspect runs/my-voice
  tandem inspect runs/my-voice --json")]
pub(crate) struct InspectArgs {
    /// Run or checkpoint
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// List every parameter
    #[arg(long)]
    pub(crate) parameters: bool,
    /// Print one JSON object instead of the report
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) fn parse_temperature(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err("it must be from 0 to 1".to_owned()) }
}

/// What goes wrong on purpose.
#[derive(Clone, Debug)]
pub(crate) enum InjectedFault {
    /// In the step.
    Step(Injection),
    /// In the data lane.
    Data(LaneFault),
}

pub(super) fn parse_fault(text: &str) -> Result<InjectedFault, String> {
    match text.parse::<FaultPlan>().ok().as_ref().and_then(LaneFault::of) {
        Some(fault) => Ok(InjectedFault::Data(fault)),
        None => parse_injection(text).map(InjectedFault::Step),
    }
}

fn parse_injection(text: &str) -> Result<Injection, String> {
    let wrong = || "nan@STEP, oom@STEP:CLIPS, leak@BYTES, hang@STEP, data:KIND@BATCH or load:slowSECONDS@0".to_owned();
    let (kind, rest) = text.split_once('@').ok_or_else(wrong)?;
    match (kind, rest.split_once(':')) {
        ("nan", None) => Ok(Injection { nan_at: Some(rest.parse().map_err(|_| wrong())?), ..Injection::default() }),
        ("hang", None) => Ok(Injection { hang_at: Some(rest.parse().map_err(|_| wrong())?), ..Injection::default() }),
        ("leak", None) => Ok(Injection { leak: Some(rest.parse().map_err(|_| wrong())?), ..Injection::default() }),
        ("oom", Some((step, clips))) => {
            let fault = (step.parse().map_err(|_| wrong())?, clips.parse().map_err(|_| wrong())?);
            Ok(Injection { out_of_memory: Some(fault), ..Injection::default() })
        }
        _ => Err(wrong()),
    }
}
