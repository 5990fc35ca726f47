//! Arguments of the commands that train, speak and measure.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use tandem_device::FaultPlan;
use tandem_model::Size;
use tandem_train::{Injection, LaneFault};

use super::{CacheKind, LaneArgs, ReadArgs, TextLanguage};
use crate::config::Given;

#[derive(Debug, clap::Args)]
#[command(after_help = "Ctrl-C keeps what is done; the same command goes on from there.

Examples:
  tandem demo
  tandem demo --folder /tmp/demo --steps 300 --speakers 1")]
pub(crate) struct DemoArgs {
    /// Where everything goes
    #[arg(long, value_name = "DIR", default_value = "tandem-demo")]
    pub(crate) folder: PathBuf,
    /// Steps of training
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) steps: u64,
    /// Clips of the corpus
    #[arg(long, value_name = "N", default_value_t = 240, value_parser = clap::value_parser!(u64).range(10..=100_000))]
    pub(crate) clips: u64,
    /// Speakers of the corpus
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=4))]
    pub(crate) speakers: u64,
    /// Print one JSON object a line instead of the report
    #[arg(long)]
    pub(crate) json: bool,
}

/// Sizes of the model.
pub(crate) fn parse_size(text: &str) -> Result<Size, String> {
    text.parse().map_err(|_| "smoke, tiny, small, normal (or base) or big".to_owned())
}

/// SPEC F13.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Level {
    /// A learning rate that falls slowly
    Basic,
    /// Falls like a cosine, with restarts that grow longer
    Enhanced,
    /// Short restarts of a high rate
    PlateauBreaker,
}

/// How the learning rate changes after it has risen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScheduleKind {
    /// Stays
    Constant,
    /// Falls as one over the square root of the step
    Noam,
    /// Falls like a cosine and starts anew
    Cosine,
    /// Halves again and again
    Exponential,
}

/// What to do when the loss is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NanKind {
    /// Name the batch and end the run; nothing is lost
    Stop,
    /// Name the batch and go on without it
    Skip,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A run goes on by itself when --checkpoint-dir has one. Settings that are not given are then those of the run,
but for --num-workers, --max-steps and the devices; --audio-folder and the features must be given again.
Ctrl-C (or SIGTERM) finishes the step, writes a checkpoint and ends with exit code 0; the same command goes on exactly there.
A second Ctrl-C ends at once; what came after the last checkpoint is lost.

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
    /// Corpus in the LJSpeech layout: metadata.csv (or metadata_train.csv) and wavs/
    #[arg(long, value_name = "DIR", help_heading = "Data")]
    pub(crate) train_data: PathBuf,
    /// Corpus to validate on; without it, metadata_eval.csv (or metadata_val.csv) of --train-data, else a tenth of its clips
    #[arg(long, value_name = "DIR", help_heading = "Data")]
    pub(crate) val_data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) read: ReadArgs,

    /// Read settings from a file (see `tandem config init`); what is typed wins
    #[arg(long, value_name = "FILE", help_heading = "Run")]
    pub(crate) config: Option<PathBuf>,
    /// Print every setting, its value and where it comes from, and end
    #[arg(long, help_heading = "Run")]
    pub(crate) print_config: bool,
    /// Where values were given: by flag or in a file.
    #[arg(skip)]
    pub(crate) given: Given,
    /// Folder of the run; without it, runs/NAME of --train-data
    #[arg(long, value_name = "DIR", help_heading = "Run")]
    pub(crate) checkpoint_dir: Option<PathBuf>,
    /// Where to go on: `last`, `last-good` (an older one when the last is damaged), `best`, or the folder of a checkpoint
    #[arg(long, value_name = "WHICH", conflicts_with = "reset_training", help_heading = "Run")]
    pub(crate) resume: Option<String>,
    /// Start anew; a run that is there is kept beside it as DIR.1, DIR.2, …
    #[arg(long, help_heading = "Run")]
    pub(crate) reset_training: bool,
    /// Times over the data [default: 500]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Run")]
    pub(crate) epochs: Option<u64>,
    /// Stop after so many steps, all sessions together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Run")]
    pub(crate) max_steps: Option<u64>,
    /// Seed of initial values, order of clips and noise [default: 1]
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub(crate) seed: Option<u64>,

    /// Size of the model: smoke, tiny, small, normal (= base) or big [default: tiny]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Model")]
    pub(crate) model_size: Option<Size>,
    /// Recompute instead of remembering: less memory, the same gradients
    #[arg(long, help_heading = "Model")]
    pub(crate) enable_gradient_checkpointing: bool,
    /// Half precision; an error where the device has none
    #[arg(long, help_heading = "Model")]
    pub(crate) mixed_precision: bool,

    #[command(flatten)]
    pub(crate) lanes: LaneArgs,
    /// Hard limits for the memory of each lane; going over one is an error, never a crash at hour nine
    #[arg(long, help_heading = "Devices")]
    pub(crate) enable_memory_isolation: bool,
    /// What the data lane may take, in MB; needs --enable-memory-isolation; without it, by the memory of the device [8192 if that is unknown]
    #[arg(long, value_name = "MB", value_parser = parse_megabytes, allow_hyphen_values = true, help_heading = "Devices")]
    pub(crate) data_gpu_memory: Option<u64>,
    /// What the model lane may take, in MB; needs --enable-memory-isolation; without it, by the memory of the device [16384 if that is unknown]
    #[arg(long, value_name = "MB", value_parser = parse_megabytes, allow_hyphen_values = true, help_heading = "Devices")]
    pub(crate) model_gpu_memory: Option<u64>,

    /// Clips in a batch; without it, by the memory of the device
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65_536), help_heading = "Learning")]
    pub(crate) batch_size: Option<u64>,
    /// Batches that make a step, one after the other on the device: the same step as with a batch N times as large
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096), help_heading = "Learning")]
    pub(crate) grad_accum: Option<u64>,
    /// Preset of learning rate, schedule and clip; flags of their own win [default: basic]
    #[arg(long, value_enum, value_name = "LEVEL", help_heading = "Learning")]
    pub(crate) optimization_level: Option<Level>,
    /// Highest learning rate
    #[arg(long, value_name = "RATE", value_parser = parse_positive, help_heading = "Learning")]
    pub(crate) lr: Option<f64>,
    /// Steps over which the learning rate rises
    #[arg(long, value_name = "N", help_heading = "Learning")]
    pub(crate) warmup: Option<u64>,
    /// How the learning rate then changes
    #[arg(long, value_enum, value_name = "KIND", help_heading = "Learning")]
    pub(crate) schedule: Option<ScheduleKind>,
    /// Norm that gradients are clipped to
    #[arg(long, value_name = "NORM", value_parser = parse_positive, help_heading = "Learning")]
    pub(crate) clip: Option<f64>,
    /// End after so many validations without progress; 0 = never [default: 0]
    #[arg(long, value_name = "N", help_heading = "Learning")]
    pub(crate) patience: Option<u64>,
    /// What to do when the loss is not a number [default: stop]
    #[arg(long, value_enum, value_name = "POLICY", help_heading = "Learning")]
    pub(crate) nan: Option<NanKind>,

    /// Workers: batches made at once; 0 = none, the model's own thread does it; without it, one for each core, at first at most 4
    #[arg(long, visible_alias = "workers", value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1024), help_heading = "Pipeline")]
    pub(crate) num_workers: Option<u64>,
    /// Batches kept ready on the host [default: 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000), help_heading = "Pipeline")]
    pub(crate) buffer_size: Option<u64>,
    /// Batches kept ready on the model's device [default: by the batch size, 2 to 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024), help_heading = "Pipeline")]
    pub(crate) prefetch_buffer_size: Option<u64>,
    /// Seconds that the model waits for the data lane to get ahead, at most [default: 2.0]
    #[arg(long, value_name = "S", value_parser = parse_seconds, allow_hyphen_values = true, help_heading = "Pipeline")]
    pub(crate) model_start_delay: Option<f64>,
    /// Leave workers and queues as they are
    #[arg(long, help_heading = "Pipeline")]
    pub(crate) no_autotune: bool,
    /// Give up when no batch came for so many seconds; 0 = never [default: 300]
    #[arg(long, value_name = "S", value_parser = parse_seconds, allow_hyphen_values = true, help_heading = "Pipeline")]
    pub(crate) stall_timeout: Option<f64>,
    /// Batches under way before the model: 2 is triple buffering, 1 double buffering [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024), help_heading = "Pipeline")]
    pub(crate) pipeline_depth: Option<u64>,
    /// Host memory that all batches together may take, in MB [default: 512]
    #[arg(long, value_name = "MB", value_parser = parse_decimal_megabytes, help_heading = "Pipeline")]
    pub(crate) memory_limit: Option<u64>,
    /// Pad batches to a few shapes that never change
    #[arg(long, overrides_with = "disable_static_shapes", help_heading = "Pipeline")]
    pub(crate) enable_static_shapes: bool,
    /// Pad each batch to its longest clip (the default)
    #[arg(long, help_heading = "Pipeline")]
    pub(crate) disable_static_shapes: bool,
    /// Where features are kept between epochs [default: ram]
    #[arg(long, value_enum, help_heading = "Pipeline")]
    pub(crate) cache: Option<CacheKind>,
    /// The most that the cache may take, in MB [default: 2000]
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(0..=1_000_000_000), help_heading = "Pipeline")]
    pub(crate) cache_limit: Option<u64>,

    /// Steps between two readings of the loss [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000), help_heading = "Output")]
    pub(crate) log_every: Option<u64>,
    /// Steps between two validations [default: an epoch, but at least 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Output")]
    pub(crate) validate_every: Option<u64>,
    /// Steps between two checkpoints [default: 500]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Output")]
    pub(crate) checkpoint_every: Option<u64>,
    /// Checkpoints kept besides the best [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000), help_heading = "Output")]
    pub(crate) keep: Option<u64>,
    /// Steps between two samples of speech; 0 = none [default: 1000]
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub(crate) sample_every: Option<u64>,
    /// Print one JSON object a line instead of the report
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// Show lanes, queues, losses and memory as a dashboard that fills the terminal
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    pub(crate) tui: bool,
    /// Write who worked when, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) trace: Option<PathBuf>,
    /// Write losses, figures, samples and spectrograms for TensorBoard
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(crate) tensorboard_log_dir: Option<PathBuf>,
    /// Serve figures for Prometheus on a port (9100) or an address (0.0.0.0:9100); a port alone only for this machine
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address, help_heading = "Output")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Make things go wrong, for tests: nan@STEP, oom@STEP:CLIPS, leak@BYTES, data:hang@BATCH (or error, panic, oom, slowSECONDS)
    #[arg(long, value_name = "FAULT", hide = true, value_parser = parse_trouble)]
    pub(crate) inject: Vec<Trouble>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tandem synth \"The winter garden.\" --checkpoint runs/my-voice -o garden.wav
  tandem synth \"سلام دنیا.\" --checkpoint runs/my-voice --speaker sara --speed 0.9 -o salam.wav
  tandem synth \"Hello.\" --checkpoint runs/my-voice --speaker someone.wav -o hello.wav")]
pub(crate) struct SynthArgs {
    /// What to say
    pub(crate) text: String,
    /// Run (its best checkpoint) or checkpoint
    #[arg(long, value_name = "RUN")]
    pub(crate) checkpoint: PathBuf,
    /// Whose voice: the name of a speaker of the corpus, or an audio file of at least a second; without it, the first speaker
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) speaker: Option<String>,
    /// Speed of speech: 2 is twice as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_speed)]
    pub(crate) speed: f64,
    /// Language of the text; without it, guessed
    #[arg(long, value_enum)]
    pub(crate) language: Option<TextLanguage>,
    /// Steps from noise to sound: more is finer and slower
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) steps: u64,
    /// How lively: 0 is flat, 1 as varied as the corpus
    #[arg(long, value_name = "T", default_value_t = 0.667, value_parser = parse_temperature)]
    pub(crate) temperature: f64,
    /// Seed of the noise: another one gives another take
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// WAV file to write
    #[arg(short, long, value_name = "FILE", default_value = "speech.wav")]
    pub(crate) output: PathBuf,
    /// Draw the spectrogram, with lines between the characters (PNG)
    #[arg(long, value_name = "FILE")]
    pub(crate) picture: Option<PathBuf>,
    /// Print one JSON object instead of the report
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "boundary_error_ms_median needs times that are known (timings/ID.csv in the corpus, as the demo has them).

Examples:
  tandem evaluate runs/my-voice
  tandem evaluate runs/my-voice --data my-other-voice --json"
)]
pub(crate) struct EvaluateArgs {
    /// Run (its best checkpoint) or checkpoint
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Another corpus, of which all clips are used; without it, the validation clips of the run
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Clips at most
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) clips: u64,
    /// Speak the texts into this folder: ID.wav (spoken), ID.true.wav (the true spectrogram through the same vocoder) and texts.csv
    #[arg(long, value_name = "DIR")]
    pub(crate) speak: Option<PathBuf>,
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

fn parse_positive(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err("it must be greater than 0".to_owned()) }
}

fn parse_speed(text: &str) -> Result<f64, String> {
    parse_positive(text).and_then(|speed| {
        if (0.1..=10.0).contains(&speed) { Ok(speed) } else { Err("it must be from 0.1 to 10".to_owned()) }
    })
}

fn parse_temperature(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=2.0).contains(&value) { Ok(value) } else { Err("it must be from 0 to 2".to_owned()) }
}

/// `512`, `512MB` or `8GB`, in MB as they are written on the package.
pub(super) fn parse_decimal_megabytes(text: &str) -> Result<u64, String> {
    let (number, factor) = match text.trim().strip_suffix("GB") {
        Some(number) => (number, 1000),
        None => (text.trim().strip_suffix("MB").unwrap_or(text.trim()), 1),
    };
    let megabytes = number.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    megabytes
        .filter(|&megabytes| (1..=1_000_000_000).contains(&megabytes))
        .ok_or_else(|| "write a number of MB that is not 0, or for example 8GB".to_owned())
}

/// `8192`, `8192MB` or `8GB`, in MB.
fn parse_megabytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (number, factor) = match (text.strip_suffix("GB"), text.strip_suffix("MB")) {
        (Some(number), _) => (number, 1024),
        (None, Some(number)) => (number, 1),
        (None, None) => (text, 1),
    };
    let megabytes = number.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    megabytes
        .filter(|&megabytes| (1..=10_000_000).contains(&megabytes))
        .ok_or_else(|| "write a number of MB, or for example 8GB".to_owned())
}

/// `2`, `2s`, `1500ms` or `5m`, in seconds.
fn parse_seconds(text: &str) -> Result<f64, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("", 1.0)];
    let read = |(unit, factor): (&str, f64)| Some(text.trim().strip_suffix(unit)?.trim().parse::<f64>().ok()? * factor);
    let seconds =
        units.into_iter().find_map(read).ok_or_else(|| "not a number of seconds, such as 2 or 2s".to_owned())?;
    if (0.0..=1e6).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("it must be 0 or more, and at most 1000000".to_owned())
    }
}

/// What goes wrong on purpose.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// In the step.
    Step(Injection),
    /// In the data lane.
    Data(LaneFault),
}

pub(super) fn parse_trouble(text: &str) -> Result<Trouble, String> {
    match text.parse::<FaultPlan>().ok().as_ref().and_then(LaneFault::of) {
        Some(fault) => Ok(Trouble::Data(fault)),
        None => parse_injection(text).map(Trouble::Step),
    }
}

fn parse_injection(text: &str) -> Result<Injection, String> {
    let wrong = || "nan@STEP, oom@STEP:CLIPS, leak@BYTES, data:KIND@BATCH or load:slowSECONDS@0".to_owned();
    let (kind, rest) = text.split_once('@').ok_or_else(wrong)?;
    match (kind, rest.split_once(':')) {
        ("nan", None) => Ok(Injection { nan_at: Some(rest.parse().map_err(|_| wrong())?), ..Injection::default() }),
        ("leak", None) => Ok(Injection { leak: Some(rest.parse().map_err(|_| wrong())?), ..Injection::default() }),
        ("oom", Some((step, clips))) => {
            let fault = (step.parse().map_err(|_| wrong())?, clips.parse().map_err(|_| wrong())?);
            Ok(Injection { out_of_memory: Some(fault), ..Injection::default() })
        }
        _ => Err(wrong()),
    }
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let whole =
        if text.bytes().all(|byte| byte.is_ascii_digit()) { format!("127.0.0.1:{text}") } else { text.to_owned() };
    whole
        .replace("localhost:", "127.0.0.1:")
        .parse()
        .map_err(|_| format!("`{text}` is not an address, write for example 9100, 127.0.0.1:9100 or 0.0.0.0:9100"))
}
