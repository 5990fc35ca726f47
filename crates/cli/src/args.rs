//! What was typed. Each command turns its arguments into what is valid.

mod config;
mod convert;
mod devices;
mod from_table;
mod profile;
mod report;
mod segment;
mod serve;
mod simulate;
mod synth;
mod train;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use tandem_data::CacheMode;
use tandem_train::Kind;

use crate::commands::Command;
use crate::messages::Lang;

pub(crate) use config::*;
pub(crate) use convert::*;
pub(crate) use devices::*;
pub(crate) use from_table::*;
pub(crate) use profile::*;
pub(crate) use report::*;
pub(crate) use segment::*;
pub(crate) use serve::*;
pub(crate) use simulate::*;
pub(crate) use synth::*;
pub(crate) use train::*;

/// Train a voice and keep the GPU busy.
#[derive(Debug, Parser)]
#[command(name = "tandem", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Examples:
  tandem demo                                      make a corpus, train a voice, hear it
  tandem train --train-data my-voice               train a voice of your own
  tandem synth \"Hello.\" --checkpoint runs/my-voice -o hello.wav
  tandem serve runs/my-voice                       speak to browsers and programs
  tandem watch runs                                see runs in a browser, live
  tandem devices                                   which GPUs there are
  tandem advise --train-data my-voice              one GPU or two, and why
  tandem profile --train-data my-voice             what limits it, and what to change
  tandem report runs/my-voice                      what a run did with its time
  tandem config init config.yaml                   a file with every setting
  tandem doctor my-voice                           what is wrong with a corpus
  tandem prepare my-voice                          index and features, once
  tandem segment lecture.mp3 new-voice             clips out of long recordings
  tandem convert my-voice --to piper other         the same corpus in another layout
  tandem pack my-voice --shards my-shards          the same corpus in tar files
  tandem load my-voice --epochs 2                  how fast it loads
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

/// A folder of clips and how to read it.
#[derive(Debug, clap::Args)]
pub(crate) struct CorpusArgs {
    /// Corpus: a folder of speech in any layout that --format lists
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) read: SettingArgs<CORPUS>,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 every clip can be used (limits that you set do not count), 2 wrong arguments or no corpus, 130 interrupted,
1 some are skipped (or, with --strict, anything is odd).

Examples:
  tandem doctor my-voice
  tandem doctor my-voice --plot lengths.svg --quarantine bad.txt
  tandem doctor my-voice --with runs/my-voice      also: which texts do not fit their audio
  tandem doctor my-voice --json | jq '.findings[] | select(.kind == \"clipped\")'"
)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) corpus: CorpusArgs,
    /// Run whose voice listens: clips whose text does not fit their audio are named, the worst first
    #[arg(long, value_name = "RUN")]
    pub(crate) with: Option<PathBuf>,
    /// Write the clips that are skipped, one `id|kind|reason` a line
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) quarantine: Option<PathBuf>,
    /// Draw durations and speaking rates (SVG)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) plot: Option<PathBuf>,
    /// Findings of each kind that are listed
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "Output")]
    pub(crate) list: usize,
    /// End with exit code 1 also when clips are only odd
    #[arg(long, help_heading = "Output")]
    pub(crate) strict: bool,
    /// Print one JSON object instead of the report
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Ctrl-C keeps what is done; the same command resumes from there.
Exit code: 0 done, 1 too many bad clips or a cache that cannot be written, 2 wrong arguments, no corpus or no usable clip, 130 interrupted.

Examples:
  tandem prepare my-voice
  tandem prepare my-voice --n-mels 100 --cache-limit 20000")]
pub(crate) struct PrepareArgs {
    #[command(flatten)]
    pub(crate) corpus: CorpusArgs,
    /// The most that the cache may take on disk, in MB
    #[arg(long, value_name = "MB", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000), help_heading = "Cache")]
    pub(crate) cache_limit: u64,
    /// Print one JSON object instead of the report
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// The folders of the benchmark's corpus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Variant {
    /// wavs/
    Wav,
    /// flacs/
    Flac,
    /// wavs44/ (44.1 kHz)
    Wav44,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tandem load my-voice --epochs 2
  tandem load my-voice --epochs 3 --cache disk --workers 8
  tandem load data --bench --epochs 2 --variant flac      (the RESULT line of the benchmark of other loaders)")]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    pub(crate) corpus: CorpusArgs,
    /// Times over the corpus
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000), help_heading = "Pipeline")]
    pub(crate) epochs: u64,
    /// Clips in a batch
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=65_536), help_heading = "Pipeline")]
    pub(crate) batch_size: u64,
    /// Workers: batches made at once; 0 = none; without it, one for each core
    #[arg(long, visible_alias = "num-workers", value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1024), help_heading = "Pipeline")]
    pub(crate) workers: Option<u64>,
    /// Batches kept ready
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100_000), help_heading = "Pipeline")]
    pub(crate) buffer_size: u64,
    /// Memory that all batches together may take, in MB
    #[arg(long, value_name = "MB", default_value_t = 64, value_parser = parse_decimal_megabytes, help_heading = "Pipeline")]
    pub(crate) memory_limit: u64,
    /// Seed of the order: the same gives the same batches
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Pipeline")]
    pub(crate) seed: u64,
    /// Pad batches to a few shapes that never change
    #[arg(long, overrides_with = "disable_static_shapes", help_heading = "Pipeline")]
    pub(crate) enable_static_shapes: bool,
    /// Pad each batch to its longest clip (the default)
    #[arg(long, help_heading = "Pipeline")]
    pub(crate) disable_static_shapes: bool,
    /// Where features are kept between epochs
    #[arg(long, value_name = "CACHE", value_parser = cache_mode(), default_value = "off", help_heading = "Cache")]
    pub(crate) cache: CacheMode,
    /// The most that the cache may take, in MB
    #[arg(long, value_name = "MB", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000), help_heading = "Cache")]
    pub(crate) cache_limit: u64,
    /// Stop after so many batches of each epoch
    #[arg(long, value_name = "N", conflicts_with = "bench", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Pipeline")]
    pub(crate) max_batches: Option<u64>,
    /// Do the work of the benchmark of other loaders and print its RESULT line
    #[arg(long, help_heading = "Output")]
    pub(crate) bench: bool,
    /// Which of the benchmark's folders
    #[arg(long, value_enum, requires = "bench", help_heading = "Output")]
    pub(crate) variant: Option<Variant>,
    /// Print one JSON object instead of the report
    #[arg(long, conflicts_with = "bench", help_heading = "Output")]
    pub(crate) json: bool,
}

/// `512`, `512MB` or `8GB`, in MB as they are written on the package.
fn parse_decimal_megabytes(text: &str) -> Result<u64, String> {
    Kind::Megabytes(1).parse(text).map(|value| value.number().unwrap_or_default())
}
