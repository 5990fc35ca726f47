//! Arguments of `tandem profile`.

use std::path::PathBuf;
use std::str::FromStr;

use tandem_train::{Setting, find_setting};

use super::{InjectedFault, PROFILE, SettingArgs, parse_fault};

#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Runs the real pipeline and the real model for some steps; nothing is written, nothing is learned for good.
With a cache, an epoch after the first is profiled.

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
    #[command(flatten)]
    pub(crate) requested: SettingArgs<PROFILE>,
    /// A small made-up corpus, where there is no data yet
    #[arg(long, conflicts_with = "train-data", help_heading = "Data")]
    pub(crate) synthetic: bool,
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
    #[arg(long, value_name = "FAULT", hide = true, value_parser = parse_fault)]
    pub(crate) inject: Option<InjectedFault>,
    /// Print one JSON object instead of the report (see docs/reference/profile-json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

/// Other values for some settings.
#[derive(Clone, Debug)]
pub(crate) struct WhatIf(Vec<(&'static Setting, String)>);

/// Settings that can be changed, by their short names; their own names are taken too.
const CHANGES: [(&str, &str); 10] = [
    ("workers", "num-workers"),
    ("buffer", "buffer-size"),
    ("prefetch", "prefetch-buffer-size"),
    ("depth", "pipeline-depth"),
    ("batch", "batch-size"),
    ("cache", "cache"),
    ("features", "features-on"),
    ("memory-limit", "memory-limit"),
    ("data-gpu", "data-gpu"),
    ("model-gpu", "model-gpu"),
];

impl FromStr for WhatIf {
    type Err = String;

    fn from_str(text: &str) -> Result<WhatIf, String> {
        let mut changes = Vec::new();
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is not KEY=VALUE"))?;
            let (name, value) = (name.trim().trim_start_matches("--").replace('_', "-"), value.trim());
            let known = CHANGES.iter().find(|(short, flag)| [short, flag].contains(&&name.as_str()));
            let (setting, _) = known.and_then(|(_, flag)| find_setting(flag)).ok_or_else(|| {
                let names: Vec<&str> = CHANGES.iter().map(|(short, _)| *short).collect();
                format!("`{name}` cannot be changed here, only {}", names.join(", "))
            })?;
            let invalid =
                |why| format!("invalid value '{value}' for '{} <{}>': {why}", setting.name(), setting.value_name);
            setting.kind.parse(value).map_err(invalid)?;
            changes.push((setting, value.to_owned()));
        }
        Ok(WhatIf(changes))
    }
}

impl std::fmt::Display for WhatIf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let flags: Vec<String> = self.0.iter().map(|(setting, value)| format!("{} {value}", setting.name())).collect();
        f.write_str(&flags.join(" "))
    }
}

impl WhatIf {
    /// One change; none when it is not one of those that can be tried.
    pub(crate) fn one(flag: &str, value: &str) -> Option<WhatIf> {
        format!("{}={value}", flag.trim_start_matches("--")).parse().ok()
    }

    /// The same command with these values.
    pub(crate) fn apply(&self, args: &ProfileArgs) -> ProfileArgs {
        let mut changed = args.clone();
        for (setting, text) in &self.0 {
            // Read before.
            if let Ok(value) = setting.kind.parse(text) {
                changed.requested.give(setting, value, "--what-if");
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    #[command(no_binary_name = true)]
    struct Flags {
        #[command(flatten)]
        args: ProfileArgs,
    }

    #[test]
    fn every_change_is_read_and_applied() {
        for ((short, flag), value) in CHANGES.iter().zip(["7", "7", "7", "7", "7", "disk", "data", "7", "7", "7"]) {
            for name in [short, flag] {
                let what_if: WhatIf = format!("{name}={value}").parse().expect("a change");
                assert_eq!(what_if.to_string(), format!("--{flag} {value}"));
                let none = Flags::try_parse_from([""; 0]).map(|flags| flags.args).expect("nothing needs to be given");
                assert_ne!(what_if.apply(&none).requested, none.requested, "{name}");
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
