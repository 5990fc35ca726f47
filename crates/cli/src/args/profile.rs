//! Arguments of `tandem profile`.

use std::path::PathBuf;

use super::{CacheKind, LaneArgs, ReadArgs, parse_size};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Runs the real pipeline and the real model for some steps; nothing is written, nothing is learned for good.

Exit code: 0 done, 1 failed, or not healthy with --assert-healthy, 2 wrong arguments or data.

Examples:
  tandem profile --train-data my-voice
  tandem profile --train-data my-voice --data-gpu 0 --model-gpu 1 --batch-size 16 --num-steps 100
  tandem profile --synthetic --json
  tandem profile --train-data my-voice --assert-healthy --trace trace.json"
)]
pub(crate) struct ProfileArgs {
    /// Corpus in the LJSpeech layout
    #[arg(long, value_name = "DIR", help_heading = "Data")]
    pub(crate) train_data: Option<PathBuf>,
    /// A small made-up corpus, where there is no data yet
    #[arg(long, conflicts_with = "train_data", help_heading = "Data")]
    pub(crate) synthetic: bool,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
    #[command(flatten)]
    pub(crate) lanes: LaneArgs,
    /// smoke, tiny, small, normal (= base) or big
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "tiny", help_heading = "Model")]
    pub(crate) model_size: tandem_model::Size,
    /// Clips in a batch; without it, by the memory of the device
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65_536), help_heading = "Model")]
    pub(crate) batch_size: Option<u64>,
    /// Batches made at once; 0 = in line; without it, by the number of cores
    #[arg(long, visible_alias = "workers", value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1024), help_heading = "Pipeline")]
    pub(crate) num_workers: Option<u64>,
    /// Batches kept ready on the host
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100_000), help_heading = "Pipeline")]
    pub(crate) buffer_size: u64,
    /// Batches kept ready on the model's device [default: by the batch size, 2 to 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024), help_heading = "Pipeline")]
    pub(crate) prefetch_buffer_size: Option<u64>,
    /// Batches under way before the model
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1024), help_heading = "Pipeline")]
    pub(crate) pipeline_depth: u64,
    /// Where features are kept between epochs
    #[arg(long, value_enum, default_value = "ram", help_heading = "Pipeline")]
    pub(crate) cache: CacheKind,
    /// Steps that count
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    pub(crate) num_steps: u64,
    /// Steps before them, which do not
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) warmup: u64,
    /// End with exit code 1 when the model's device is not kept busy
    #[arg(long)]
    pub(crate) assert_healthy: bool,
    /// Write who worked when, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Print one JSON object instead of the report
    #[arg(long)]
    pub(crate) json: bool,
}
