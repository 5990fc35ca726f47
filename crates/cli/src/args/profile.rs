//! Arguments of `tandem profile`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tandem_train::{Setting, find_setting};

use super::{InjectedFault, PROFILE, SettingArgs, parse_fault, parse_latency, parse_speed_of_copies};

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
  tandem profile --train-data my-voice --what-if world=4,link=10GB/s,latency=20us
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
    /// Keys: workers, buffer, prefetch, depth, batch-size, cache, features-on, memory-limit, data-gpu, model-gpu; and world, link, latency for ranks
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

/// Other values for some settings, or several ranks.
#[derive(Clone, Debug)]
pub(crate) struct WhatIf {
    changes: Vec<(&'static Setting, String)>,
    pub(crate) ranks: Option<RanksChange>,
}

/// So many ranks, each with as many clips as are measured, and what is between them.
#[derive(Clone, Debug)]
pub(crate) struct RanksChange {
    pub(crate) world: usize,
    /// Bytes per second.
    pub(crate) link: f64,
    pub(crate) latency: Duration,
    /// As it was written.
    text: String,
}

/// What can be said about ranks, with the values that are taken if it is not.
const RANKS: [(&str, &str); 3] = [("world", "1"), ("link", "10GB/s"), ("latency", "20us")];

impl RanksChange {
    /// None if nothing is said about ranks.
    fn parse(given: &[(String, String)]) -> Result<Option<RanksChange>, String> {
        if given.is_empty() {
            return Ok(None);
        }
        let value = |wanted: &str, otherwise: &str| {
            given.iter().rev().find(|(name, _)| name == wanted).map_or(otherwise.to_owned(), |(_, value)| value.clone())
        };
        let [world, link, latency] = RANKS.map(|(name, otherwise)| value(name, otherwise));
        let count = world.parse().ok().filter(|count| (1..=65_536).contains(count));
        Ok(Some(RanksChange {
            world: count.ok_or_else(|| format!("invalid value '{world}' for 'world': it must be from 1 to 65536"))?,
            link: parse_speed_of_copies(&link)?,
            latency: parse_latency(&latency)?,
            text: format!("--world {world} --link {link} --latency {latency}"),
        }))
    }
}

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
        let (mut changes, mut about_ranks) = (Vec::new(), Vec::new());
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is not KEY=VALUE"))?;
            let (name, value) = (name.trim().trim_start_matches("--").replace('_', "-"), value.trim());
            if RANKS.iter().any(|(key, _)| *key == name) {
                about_ranks.push((name, value.to_owned()));
                continue;
            }
            let known = CHANGES.iter().find(|(short, flag)| [short, flag].contains(&&name.as_str()));
            let (setting, _) = known.and_then(|(_, flag)| find_setting(flag)).ok_or_else(|| {
                let names: Vec<&str> = CHANGES.iter().chain(&RANKS).map(|(short, _)| *short).collect();
                format!("`{name}` cannot be changed here, only {}", names.join(", "))
            })?;
            let invalid =
                |why| format!("invalid value '{value}' for '{} <{}>': {why}", setting.name(), setting.value_name);
            setting.kind.parse(value).map_err(invalid)?;
            changes.push((setting, value.to_owned()));
        }
        Ok(WhatIf { changes, ranks: RanksChange::parse(&about_ranks)? })
    }
}

impl std::fmt::Display for WhatIf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let flags = self.changes.iter().map(|(setting, value)| format!("{} {value}", setting.name()));
        let flags: Vec<String> = flags.chain(self.ranks.iter().map(|ranks| ranks.text.clone())).collect();
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
        for (setting, text) in &self.changes {
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
    fn ranks_are_a_change_with_a_link_of_their_own() {
        let what_if: WhatIf = "workers=4,world=8,latency=5us".parse().expect("a change");
        assert_eq!(what_if.to_string(), "--num-workers 4 --world 8 --link 10GB/s --latency 5us");
        let ranks = what_if.ranks.expect("ranks");
        assert_eq!((ranks.world, ranks.link, ranks.latency), (8, 1e10, Duration::from_micros(5)));
        assert!("workers=4".parse::<WhatIf>().expect("a change").ranks.is_none());
    }

    #[test]
    fn a_change_that_is_none_says_why() {
        for (text, word) in [
            ("workers", "KEY=VALUE"),
            ("speed=2", "only workers, buffer"),
            ("workers=many", "many"),
            ("buffer=0", "0 is not in 1..=100000"),
            ("cache=tape", "tape"),
            ("world=0", "from 1 to 65536"),
            ("world=2,link=10", "10GB/s"),
        ] {
            let error = text.parse::<WhatIf>().expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
