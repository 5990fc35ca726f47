//! Arguments of `tandem profile`.

use std::path::PathBuf;
use std::str::FromStr;

use super::{CacheKind, LaneArgs, ReadArgs, Trouble, parse_decimal_megabytes, parse_size, parse_trouble};

#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Runs the real pipeline and the real model for some steps; nothing is written, nothing is learned for good.

Exit code: 0 done, 1 failed, or not healthy with --assert-healthy, 2 wrong arguments or data, 130 interrupted.

Examples:
  tandem profile --train-data my-voice
  tandem profile --train-data my-voice --data-gpu 0 --model-gpu 1 --batch-size 16 --num-steps 100
  tandem profile --train-data my-voice --verify                  try the best change, and see whether it helps
  tandem profile --train-data my-voice --what-if workers=8,buffer=100 --what-if cache=disk
  tandem profile --train-data my-voice --html report.html
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
    /// Size of the model: smoke, tiny, small, normal (= base) or big
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "tiny", help_heading = "Model")]
    pub(crate) model_size: tandem_model::Size,
    /// Clips in a batch; without it, by the memory of the device
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65_536), help_heading = "Model")]
    pub(crate) batch_size: Option<u64>,
    /// Workers: batches made at once; 0 = none, the model's own thread does it; without it, one for each core, at most 4
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
    /// Host memory that all batches together may take, in MB
    #[arg(long, value_name = "MB", default_value_t = 512, value_parser = parse_decimal_megabytes, help_heading = "Pipeline")]
    pub(crate) memory_limit: u64,
    /// Where features are kept between epochs; with a cache, an epoch after the first is profiled
    #[arg(long, value_enum, default_value = "ram", help_heading = "Pipeline")]
    pub(crate) cache: CacheKind,
    /// Predict what other values would give: KEY=VALUE,…; may be given several times.
    /// Keys: workers, buffer, prefetch, depth, batch-size, cache, features-on, memory-limit, data-gpu, model-gpu
    #[arg(long, value_name = "CHANGES", help_heading = "What if")]
    pub(crate) what_if: Vec<WhatIf>,
    /// Try what is predicted (--what-if, else the best recommendation), and show both figures
    #[arg(long, help_heading = "What if")]
    pub(crate) verify: bool,
    /// Read settings from a file of `tandem train`; what is typed wins
    #[arg(long, value_name = "FILE", help_heading = "Data")]
    pub(crate) config: Option<PathBuf>,
    /// Steps that count
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    pub(crate) num_steps: u64,
    /// Steps of the warm-up, which do not [default: 10, or --num-steps if that is less]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) warmup: Option<u64>,
    /// End with exit code 1 when the model's device is not kept busy
    #[arg(long)]
    pub(crate) assert_healthy: bool,
    /// Write who worked when, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Write the report with plots as one HTML file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Make the data lane go wrong, for tests: load:slowSECONDS@0 (a slow disk), data:slowSECONDS@BATCH, …
    #[arg(long, value_name = "FAULT", hide = true, value_parser = parse_trouble)]
    pub(crate) inject: Option<Trouble>,
    /// Print one JSON object instead of the report (see docs/reference/profile-json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// Other values for some flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WhatIf(Vec<(&'static str, String)>);

/// Names of what can be changed, and the flags that they stand for.
const CHANGES: [(&[&str], &str); 10] = [
    (&["workers", "num-workers"], "--num-workers"),
    (&["buffer", "buffer-size"], "--buffer-size"),
    (&["prefetch", "prefetch-buffer-size"], "--prefetch-buffer-size"),
    (&["depth", "pipeline-depth"], "--pipeline-depth"),
    (&["batch", "batch-size"], "--batch-size"),
    (&["cache"], "--cache"),
    (&["features", "features-on"], "--features-on"),
    (&["memory-limit"], "--memory-limit"),
    (&["data-gpu"], "--data-gpu"),
    (&["model-gpu"], "--model-gpu"),
];

impl FromStr for WhatIf {
    type Err = String;

    fn from_str(text: &str) -> Result<WhatIf, String> {
        let mut changes = Vec::new();
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is not KEY=VALUE"))?;
            let name = name.trim().trim_start_matches("--").replace('_', "-");
            let known = CHANGES.iter().find(|(names, _)| names.contains(&name.as_str()));
            let (_, flag) = known.ok_or_else(|| {
                let names: Vec<&str> = CHANGES.iter().map(|(names, _)| names[0]).collect();
                format!("`{name}` cannot be changed here, only {}", names.join(", "))
            })?;
            changes.push((*flag, value.trim().to_owned()));
        }
        let changes = WhatIf(changes);
        changes.parsed().map_err(|error| {
            // Only the first line: the rest is about the whole command.
            let text = error.to_string();
            text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
        })?;
        Ok(changes)
    }
}

impl std::fmt::Display for WhatIf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let flags: Vec<String> = self.0.iter().map(|(flag, value)| format!("{flag} {value}")).collect();
        f.write_str(&flags.join(" "))
    }
}

impl WhatIf {
    /// One change; none when it is not one of those that can be tried.
    pub(crate) fn one(flag: &str, value: &str) -> Option<WhatIf> {
        format!("{}={value}", flag.trim_start_matches("--")).parse().ok()
    }

    /// The flags, read as they are on the command line.
    fn parsed(&self) -> Result<ProfileArgs, clap::Error> {
        #[derive(clap::Parser)]
        #[command(no_binary_name = true)]
        struct Flags {
            #[command(flatten)]
            args: ProfileArgs,
        }
        let flags = self.0.iter().flat_map(|(flag, value)| [(*flag).to_owned(), value.clone()]);
        <Flags as clap::Parser>::try_parse_from(flags).map(|flags| flags.args)
    }

    /// The same command with these values.
    pub(crate) fn apply(&self, args: &ProfileArgs) -> ProfileArgs {
        let (mut changed, read) = (args.clone(), self.parsed().expect("read before"));
        for (flag, _) in &self.0 {
            match *flag {
                "--num-workers" => changed.num_workers = read.num_workers,
                "--buffer-size" => changed.buffer_size = read.buffer_size,
                "--prefetch-buffer-size" => changed.prefetch_buffer_size = read.prefetch_buffer_size,
                "--pipeline-depth" => changed.pipeline_depth = read.pipeline_depth,
                "--batch-size" => changed.batch_size = read.batch_size,
                "--cache" => changed.cache = read.cache,
                "--features-on" => changed.lanes.features_on = read.lanes.features_on,
                "--memory-limit" => changed.memory_limit = read.memory_limit,
                "--data-gpu" => changed.lanes.data_gpu = read.lanes.data_gpu.clone(),
                "--model-gpu" => changed.lanes.model_gpu = read.lanes.model_gpu.clone(),
                _ => unreachable!("one of CHANGES"),
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_read_and_applied() {
        for ((names, flag), value) in CHANGES.iter().zip(["7", "7", "7", "7", "7", "disk", "data", "7", "7", "7"]) {
            for name in *names {
                let what_if: WhatIf = format!("{name}={value}").parse().expect("a change");
                assert_eq!(what_if.to_string(), format!("{flag} {value}"));
                let none = WhatIf(Vec::new()).parsed().expect("nothing needs to be given");
                assert_ne!(format!("{:?}", what_if.apply(&none)), format!("{none:?}"), "{name}");
            }
        }
    }

    #[test]
    fn a_change_that_is_none_says_why() {
        for (text, word) in [
            ("workers", "KEY=VALUE"),
            ("speed=2", "only workers, buffer"),
            ("workers=many", "many"),
            ("buffer=0", "0 is not in 1..=100000"),
            ("cache=tape", "tape"),
        ] {
            let error = text.parse::<WhatIf>().expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
