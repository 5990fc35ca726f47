//! `tandem profile`: where the time goes, what limits the run, and what to change.

use std::io::{IsTerminal, stderr};

use serde_json::{Map, Value, json};
use tandem_data::DemoCorpus;
use tandem_device::memory::MB as MIB;
use tandem_device::{FeaturesOn, Placement};
use tandem_observe::{Finding, Knobs, Profile, Verdict, verdict};
use tandem_train::{CachePlace, Profiled, TrainSettings, device_queue, profile_steps};

use crate::args::{CacheKind, ProfileArgs};
use crate::commands::corpus::{self, MB};
use crate::commands::train::{failure, memory_hints, open_data, write_trace};
use crate::failure::{FAILED, Failure, INTERRUPTED};
use crate::interrupt;
use crate::lanes;
use crate::messages::Messages;
use crate::settings::batch_by_memory;
use crate::ui::output::{Output, print};
use crate::ui::progress;
use crate::ui::table::Table;

/// Clips of the made-up corpus.
const SYNTHETIC_CLIPS: usize = 120;

pub(crate) fn run(args: &ProfileArgs, messages: &Messages) -> Result<(), Failure> {
    let failed = |text: String| Failure::new(FAILED, text);
    if args.train_data.is_none() && !args.synthetic {
        return Err(Failure::usage(messages.get("profile-no-data")).hint(messages.get("profile-hint-synthetic")));
    }
    let inventory = lanes::inventory(&args.lanes);
    let placement = lanes::place(&args.lanes, &inventory, messages)?;
    let trace = args.trace.as_deref().map(|path| Output::create_for(path, messages)).transpose()?;
    let interrupt = interrupt::catch();
    let made_up = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
    let folder = match &args.train_data {
        Some(folder) => folder.clone(),
        None => {
            let folder = made_up.path().join("synthetic");
            let corpus = DemoCorpus { clips: SYNTHETIC_CLIPS, speakers: 1, seed: 1 };
            corpus.write(&folder).map_err(|error| failed(error.to_string()))?;
            folder
        }
    };
    let data = open_data(&folder, None, corpus::settings(&args.read)?, &interrupt, messages)?;
    let settings = settings(args, &placement, data.clips.len());
    let lanes = lanes::open(&inventory, placement, args.lanes.allow_fallback, messages)?;
    let all = (args.warmup + args.num_steps) as usize;
    let bar = progress::bar(all as u64, stderr().is_terminal() && !args.json);
    let profiled = profile_steps(&data, &settings, &lanes, all, &mut || {
        bar.inc(1);
        interrupt.stop.reason().is_none()
    });
    bar.finish_and_clear();
    let profiled = profiled.map_err(|error| memory_hints(&error, false, failure(&error, messages), messages))?;
    let Some(profiled) = profiled else {
        return Err(Failure::new(INTERRUPTED, messages.get("advise-stopped")));
    };
    let profile = Profile::new(&profiled.trace.spans(), args.warmup as usize);
    let profile = profile.ok_or_else(|| failed(messages.get("profile-too-few")))?;
    let knobs = Knobs {
        workers: settings.workers,
        cores: cores(),
        buffer: settings.buffer,
        device_queue: settings.device_queue,
        depth: settings.depth,
        batch_size: settings.batch_size,
        features_on_data: lanes.placement.features == FeaturesOn::Data,
        cached: settings.cache != CachePlace::Off,
        memory_limit_mb: settings.memory_limit as u64 / MB,
    };
    if let Some(output) = trace {
        let what = format!("tandem profile ({})", lanes.placement.mode);
        let path = write_trace(&profiled.trace, &what, output)
            .map_err(|error| failed(format!("the trace was not written: {error}")))?;
        eprintln!("{}", messages.with("sim-trace-written", &[("path", &path.display())]));
    }
    let report = Report {
        verdict: verdict(&profile, &knobs),
        // What infinitely fast data would give (SPEC R6).
        headroom: (profile.period_ms / profiled.replay_ms.max(f64::MIN_POSITIVE) - 1.0).max(0.0),
        profile,
        knobs,
        profiled,
        placement: lanes.placement,
    };
    print(&if args.json { format!("{}\n", report.json()) } else { report.text(messages) })?;
    if args.assert_healthy && !report.verdict.healthy {
        return Err(failed(messages.with("profile-not-healthy", &[("stage", &report.verdict.bottleneck)])));
    }
    Ok(())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn settings(args: &ProfileArgs, placement: &Placement, clips: usize) -> TrainSettings {
    let (by_memory, _) = batch_by_memory(&placement.model, clips);
    let batch_size = args.batch_size.map_or(by_memory, |batch| batch as usize);
    let workers = args.num_workers.map_or(cores().min(4), |workers| workers as usize);
    TrainSettings {
        size: args.model_size,
        batch_size,
        workers,
        most_workers: workers,
        buffer: args.buffer_size as usize,
        depth: args.pipeline_depth as usize,
        device_queue: args.prefetch_buffer_size.map_or(device_queue(batch_size), |queue| queue as usize),
        cache: match args.cache {
            CacheKind::Ram => CachePlace::Ram,
            CacheKind::Disk => CachePlace::Disk,
            CacheKind::Off => CachePlace::Off,
        },
        model_limit: placement.model.memory_bytes.filter(|_| placement.model.physical.is_some()),
        data_limit: placement.data.memory_bytes.filter(|_| placement.data.physical.is_some()),
        ..TrainSettings::default()
    }
}

struct Report {
    profile: Profile,
    verdict: Verdict,
    knobs: Knobs,
    profiled: Profiled,
    headroom: f64,
    placement: Placement,
}

impl Report {
    fn is_simulated(&self) -> bool {
        self.placement.model.backend == tandem_device::Backend::Simulated
    }

    fn json(&self) -> Value {
        let Report { profile, verdict, profiled, .. } = self;
        let stages: Map<String, Value> = (profile.stages.iter())
            .map(|stage| {
                let figures = json!({"mean_ms": stage.mean_ms, "std_ms": stage.std_ms, "share": stage.share});
                (stage.name.clone(), figures)
            })
            .collect();
        json!({"verdict": if verdict.healthy { "healthy" } else { "limited" }, "bottleneck": verdict.bottleneck,
            "findings": verdict.findings, "recommendations": verdict.recommendations, "stages": stages,
            "lanes": {"data_busy": profile.data_busy, "model_busy": profile.model_busy,
                "placement": self.placement, "memory": profiled.lanes},
            "starved": profile.starved, "headroom": self.headroom, "variation": profile.variation,
            "varies_with": profile.varies_with, "steps": profile.steps, "warm_up": profile.warm_up,
            "period_ms": profile.period_ms, "steps_per_s": profile.steps_per_s, "replay_ms": profiled.replay_ms,
            "cpu_percent": profiled.cpu_percent, "parameters": profiled.parameters, "queues": profiled.queues,
            "knobs": self.knobs, "simulated": self.is_simulated()})
    }

    fn text(&self, messages: &Messages) -> String {
        let Report { profile, verdict, profiled, .. } = self;
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        let mut text = String::new();
        let mut line = |of: String| text += &(of + "\n");
        line(messages.with("profile-title", &[("steps", &profile.steps), ("warmup", &profile.warm_up)]));
        let mut table = Table::new(["stage", "mean", "std", "share"].map(|id| messages.get(&format!("profile-{id}"))));
        let shares = profile.percentages();
        for (stage, share) in profile.stages.iter().zip(&shares) {
            table.row([
                stage.name.clone(),
                format!("{:.1} ms", stage.mean_ms),
                format!("± {:.1} ms", stage.std_ms),
                format!("{share} %"),
            ]);
        }
        line(table.render());
        line(messages.get("profile-utilization"));
        line(messages.with(
            "profile-lanes",
            &[
                ("data", &percent(profile.data_busy)),
                ("model", &percent(profile.model_busy)),
                ("starved", &percent(profile.starved)),
                ("rate", &format!("{:.2}", profile.steps_per_s)),
            ],
        ));
        for lane in &profiled.lanes {
            let used = lane.used_bytes().div_ceil(MIB);
            let values: &[(&str, &dyn std::fmt::Display)] =
                &[("lane", &lane.lane), ("device", &lane.device), ("used", &used), ("source", &lane.source)];
            line(messages.with("profile-memory", values));
        }
        if self.is_simulated() {
            line(messages.get("lanes-simulated"));
        }
        line(String::new());
        if verdict.healthy {
            line(messages.get("profile-healthy"));
            line(messages.get("profile-balanced"));
            let train = profile.stages.iter().position(|stage| stage.name == "train").unwrap_or_default();
            line(messages.with("profile-training", &[("share", &shares[train])]));
        } else {
            let starved = percent(profile.starved);
            line(messages.with("profile-limited", &[("stage", &verdict.bottleneck), ("starved", &starved)]));
        }
        if verdict.findings.contains(&Finding::Variation) {
            let stage = profile.varies_with.as_deref().unwrap_or("-");
            let variation = percent(profile.variation);
            line(messages.with("profile-variation", &[("variation", &variation), ("stage", &stage)]));
        }
        line(messages.with("profile-headroom", &[("gain", &format!("{:.0}", 100.0 * self.headroom))]));
        if !verdict.recommendations.is_empty() {
            line(messages.get("profile-recommendations"));
        }
        for change in &verdict.recommendations {
            let gain = format!("{:.0}", 100.0 * (change.gain - 1.0));
            let values: &[(&str, &dyn std::fmt::Display)] = &[
                ("flag", &change.flag),
                ("now", &change.now),
                ("to", &change.to),
                ("gain", &gain),
                ("why", &change.why),
            ];
            line(format!("  {}", messages.with("profile-change", values)));
        }
        text
    }
}
