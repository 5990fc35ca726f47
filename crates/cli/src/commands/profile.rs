//! `tandem profile`: where the time goes, what limits the run, what to change, and whether that helps.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::{Map, Value, json};
use tandem_data::DemoCorpus;
use tandem_device::memory::MB as MIB;
use tandem_device::{Backend, Cost, Inventory, Lanes, Placement, SimulatedLink};
use tandem_flow::{Place, Stage};
use tandem_observe::{
    Alone, BACKWARD, BUCKET_BYTES, Communication, Document, Knobs, Line, Prediction, Profile, Recommendation, Side,
    Simulation, Verdict, headroom, predict, queue_lines, step_is_longer_by, step_times, timeline, verdict,
};
use tandem_train::{
    Data, Facts, LaneFault, Profiled, REPLAYED, SETTINGS, Scope, Setup, TrainConfig, TrainError, measure_alone,
    profile_steps, resolve as resolve_settings,
};

use crate::args::{InjectedFault, LaneArgs, ProfileArgs, RanksChange, WhatIf};
use crate::commands::corpus;
use crate::commands::train::{failure, memory_hints, open_data, write_trace};
use crate::failure::{FAILED, Failure, INTERRUPTED};
use crate::interrupt::{self, Interrupt};
use crate::messages::Messages;
use crate::open_lanes;
use crate::run_facts::{self, cores};
use crate::ui::output::{Output, print};
use crate::ui::{progress, timing_report};

/// Clips of the made-up corpus.
const SYNTHETIC_CLIPS: usize = 120;
/// Steps that do not count, if there are enough.
const WARM_UP: u64 = 10;
/// Steps that the strip of the lanes shows.
const PICTURED: usize = 12;
/// Clips that are measured one batch after the other, for predictions, and batches of them at least; more than the steps
/// of the profile only if those are very few.
const ALONE: (usize, usize) = (256, 16);
/// How often a setup and another are measured in turn.
const TURNS: usize = 4;
/// A change that would give less is not worth a line.
const WORTH_IT: f64 = 1.02;
/// Bytes of a parameter's gradient.
const PARAMETER_BYTES: u64 = 4;
/// Speed of copies between a device and the host that ranks are predicted with: that of `tandem simulate --copies`.
const COPY_SPEED: f64 = 8e9;

pub(crate) fn run(args: &ProfileArgs, messages: &Messages) -> Result<(), Failure> {
    if args.requested.path("train-data").is_none() && !args.synthetic {
        return Err(Failure::usage(messages.get("profile-no-data")).hint(messages.get("profile-hint-synthetic")));
    }
    if args.warmup.is_some_and(|warm_up| warm_up > args.num_steps) {
        let values: &[(&str, &dyn std::fmt::Display)] = &[("steps", &args.num_steps), ("warmup", &warm_up(args))];
        return Err(Failure::usage(messages.with("profile-few-steps", values)));
    }
    let trace = args.trace.as_deref().map(|path| Output::create_for(path, messages)).transpose()?;
    let html = args.html.as_deref().map(|path| Output::create_for(path, messages)).transpose()?;
    let made_up = tempfile::tempdir().map_err(|error| Failure::new(FAILED, error.to_string()))?;
    let bench = Bench::open(args, made_up.path(), messages)?;
    let placement = resolve(args, &bench.inventory, messages)?;
    let lanes = open_lanes::open(&bench.inventory, placement, args.requested.is_on("allow-fallback"), messages)?;
    let before = bench.measure(args, lanes)?;
    if let Some(output) = trace {
        let what = format!("tandem profile ({})", before.lanes.placement.mode);
        let path = write_trace(&before.profiled.trace, &what, output)
            .map_err(|error| Failure::new(FAILED, format!("the trace was not written: {error}")))?;
        eprintln!("{}", messages.with("sim-trace-written", &[("path", &path.display())]));
    }
    let Predictions { verdict, alone, predictions, after } = bench.predict(args, &before)?;
    let healthy = verdict.healthy;
    let sides = match &after {
        None => vec![before.side(&messages.get("side-now"), verdict, messages)],
        Some(after) => {
            let mut verdict_after = after.verdict.clone();
            timing_report::localize(&mut verdict_after, messages);
            vec![
                before.side(&messages.get("side-before"), verdict, messages),
                after.side(&messages.get("side-after"), verdict_after, messages),
            ]
        }
    };
    let document = Document {
        title: messages.get("profile-document"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sides,
        predictions,
        notes: Vec::new(),
    };
    if let Some(output) = html {
        timing_report::write_html(&document, output, messages)?;
    }
    print(&if args.json {
        format!("{}\n", before.json(&document, alone.as_ref()))
    } else {
        text(&document, messages)
    })?;
    if args.assert_healthy && !healthy {
        let stage = document.sides[0].verdict.bottleneck;
        return Err(Failure::new(FAILED, messages.with("profile-not-healthy", &[("stage", &stage)])));
    }
    Ok(())
}

fn text(document: &Document, messages: &Messages) -> String {
    let mut text = timing_report::side(&document.sides[0], messages);
    text += &timing_report::predictions(&document.predictions, messages);
    if let [before, after] = &document.sides[..] {
        text += &format!("\n{}", timing_report::comparison(before, after, messages));
    }
    text
}

fn warm_up(args: &ProfileArgs) -> u64 {
    args.warmup.unwrap_or(WARM_UP.min(args.num_steps))
}

/// What is said about the future.
struct Predictions {
    /// With simulated gains.
    verdict: Verdict,
    alone: Option<Alone>,
    predictions: Vec<Prediction>,
    /// The last change that was tried.
    after: Option<Measured>,
}

/// What measuring needs: the data, the devices, and the user.
struct Bench<'a> {
    data: Data,
    inventory: Inventory,
    interrupt: Interrupt,
    messages: &'a Messages,
    quiet: bool,
    steps: usize,
    fault: Option<LaneFault>,
}

impl<'a> Bench<'a> {
    fn open(args: &ProfileArgs, dir: &std::path::Path, messages: &'a Messages) -> Result<Bench<'a>, Failure> {
        let lane_args = LaneArgs::of(&args.requested);
        let inventory = open_lanes::inventory(&lane_args);
        // What cannot be had is said before anything is read.
        open_lanes::place(&lane_args, &inventory, messages)?;
        let interrupt = interrupt::catch();
        let dir = match args.requested.path("train-data") {
            Some(dir) => dir.to_owned(),
            None => {
                let dir = dir.join("synthetic");
                let corpus = DemoCorpus { clips: SYNTHETIC_CLIPS, speakers: 1, seed: 1 };
                corpus.write(&dir).map_err(|error| Failure::new(FAILED, error.to_string()))?;
                dir
            }
        };
        let data = open_data(&dir, None, corpus::settings(&args.requested)?, &interrupt, messages)?;
        let quiet = args.json || !stderr().is_terminal();
        let fault = args.inject.as_ref().and_then(|injected| match injected {
            InjectedFault::Data(fault) => Some(*fault),
            InjectedFault::Step(_) => None,
        });
        Ok(Bench { data, inventory, interrupt, messages, quiet, steps: args.num_steps as usize, fault })
    }

    /// The devices for changed arguments; those that are open already are trusted.
    fn lanes(&self, args: &ProfileArgs, before: &Measured) -> Result<Lanes, Failure> {
        let placement = resolve(args, &self.inventory, self.messages)?;
        let open = (before.lanes.placement.data.physical, before.lanes.placement.model.physical);
        if (placement.data.physical, placement.model.physical) == open {
            return Ok(Lanes { placement, ..before.lanes.clone() });
        }
        open_lanes::open_also(&self.inventory, placement, self.messages)
    }

    fn bar(&self, id: &str, total: usize) -> ProgressBar {
        let bar = progress::bar(total as u64, !self.quiet);
        bar.set_message(self.messages.get(id));
        bar
    }

    /// What was measured, if the user did not say stop.
    fn done<T>(&self, result: Result<Option<T>, TrainError>) -> Result<T, Failure> {
        let messages = self.messages;
        let result = result.map_err(|error| memory_hints(&error, false, failure(&error, messages), messages))?;
        result.ok_or_else(|| Failure::new(INTERRUPTED, messages.get("advise-stopped")))
    }

    fn settings(&self, args: &ProfileArgs, placement: &Placement) -> Result<TrainConfig, Failure> {
        let facts = Facts::new(self.data.clips.len(), placement).with_texts(&self.data.corpus);
        let resolved = resolve_settings(&args.requested, None, &facts);
        resolved.map(|(config, _)| config).map_err(|error| run_facts::failure(error, None, self.messages))
    }

    fn setup<'s>(&'s self, settings: &TrainConfig, lanes: &'s Lanes) -> Setup<'s> {
        Setup { data: &self.data, settings: settings.clone(), lanes, fault: self.fault }
    }

    /// Some steps of the real pipeline with these arguments.
    fn measure(&self, args: &ProfileArgs, lanes: Lanes) -> Result<Measured, Failure> {
        let settings = self.settings(args, &lanes.placement)?;
        let steps = (warm_up(args) + args.num_steps) as usize;
        let bar = self.bar("profile-running", steps + steps.min(REPLAYED));
        let profiled = profile_steps(&self.setup(&settings, &lanes), steps, &mut || {
            bar.inc(1);
            self.interrupt.stop.reason().is_none()
        });
        bar.finish_and_clear();
        let profiled = self.done(profiled)?;
        let spans = profiled.trace.spans();
        let profile = Profile::new(&spans, warm_up(args) as usize)
            .ok_or_else(|| Failure::new(FAILED, self.messages.get("profile-too-few")))?;
        let knobs = settings.knobs(&lanes.placement);
        let verdict = verdict(&profile, &knobs, &profiled.pressure);
        let step_ms = step_times(&spans, profile.warm_up);
        Ok(Measured { settings, lanes, profiled, profile, knobs, verdict, step_ms })
    }

    /// What batches take alone, as many clips of them as `share` of what there should be.
    fn alone(&self, settings: &TrainConfig, lanes: &Lanes, share: usize) -> Result<Alone, Failure> {
        let batches = ALONE.0.div_ceil(settings.data.batch_size).min(self.steps).max(ALONE.1).div_ceil(share);
        let bar = self.bar("profile-alone", batches);
        let alone = measure_alone(&self.setup(settings, lanes), batches, &mut || {
            bar.inc(1);
            self.interrupt.stop.reason().is_none()
        });
        bar.finish_and_clear();
        self.done(alone)
    }

    /// What batches take alone before and after a change, measured in turn: a machine is not always as fast.
    fn alone_in_turn(
        &self,
        before: (&TrainConfig, &Lanes),
        after: (&TrainConfig, &Lanes),
    ) -> Result<(Alone, Alone), Failure> {
        let mut both: Option<(Alone, Alone)> = None;
        for turn in 0..TURNS {
            let first = |(settings, lanes): (&TrainConfig, &Lanes)| self.alone(settings, lanes, TURNS);
            let now = if turn % 2 == 0 {
                let of_before = first(before)?;
                (of_before, first(after)?)
            } else {
                let of_after = first(after)?;
                (first(before)?, of_after)
            };
            both = Some(match both {
                None => now,
                Some((before, after)) => (before.join(now.0), after.join(now.1)),
            });
        }
        Ok(both.expect("at least one turn"))
    }

    /// How many times as many steps per second a change gives, measured in turn, and the last of it.
    fn try_in_turn(&self, args: &ProfileArgs, before: &Measured, what_if: &WhatIf) -> Result<(f64, Measured), Failure> {
        let turns = TURNS as u64;
        let short = |args: &ProfileArgs| ProfileArgs {
            warmup: Some(warm_up(args).div_ceil(turns)),
            num_steps: args.num_steps.div_ceil(turns).max(2),
            ..args.clone()
        };
        let (args, changed) = (short(args), short(&what_if.apply(args)));
        let (mut before_ms, mut after_ms, mut last) = (0.0, 0.0, None);
        // Before, after, after, before, …: what drifts evenly does not matter.
        for turn in 0..2 * turns {
            if matches!(turn % 4, 0 | 3) {
                before_ms += self.measure(&args, before.lanes.clone())?.profile.period_ms;
            } else {
                let after = self.measure(&changed, self.lanes(&changed, before)?)?;
                after_ms += after.profile.period_ms;
                last = Some(after);
            }
        }
        Ok((before_ms / after_ms, last.expect("at least one turn")))
    }

    /// The verdict with simulated gains, what was asked to be predicted, and the last of it that was tried.
    fn predict(&self, args: &ProfileArgs, before: &Measured) -> Result<Predictions, Failure> {
        let mut verdict = before.verdict.clone();
        timing_report::localize(&mut verdict, self.messages);
        if args.what_if.is_empty() && verdict.recommendations.is_empty() {
            if args.verify {
                eprintln!("{}", self.messages.get("profile-nothing-to-verify"));
            }
            return Ok(Predictions { verdict, alone: None, predictions: Vec::new(), after: None });
        }
        let alone = self.alone(&before.settings, &before.lanes, 1)?;
        // Now it is known whether loading works or waits.
        let knobs = Knobs { load_cpu_percent: alone.load_cpu_percent(), ..before.knobs };
        verdict = tandem_observe::verdict(&before.profile, &knobs, &before.profiled.pressure);
        timing_report::localize(&mut verdict, self.messages);
        let spinner = self.bar("profile-simulating", 1);
        let mut recommended = Vec::new();
        for change in std::mem::take(&mut verdict.recommendations) {
            let predicted = match WhatIf::one(&change.flag, &change.to) {
                Some(what_if) => self.predict_one(args, before, &alone, &what_if).ok().map(|one| (one, what_if)),
                None => None,
            };
            if self.interrupt.stop.reason().is_some() {
                return Err(Failure::new(INTERRUPTED, self.messages.get("advise-stopped")));
            }
            let gain = predicted.as_ref().map_or(change.gain, |(one, _)| one.gain());
            recommended.push((Recommendation { gain, ..change }, predicted));
        }
        // What cannot be simulated stays; what would bring nothing goes.
        recommended.retain(|(change, predicted)| predicted.is_none() || change.gain >= WORTH_IT);
        recommended.sort_by(|a, b| b.0.gain.total_cmp(&a.0.gain));
        let mut tried = Vec::new();
        for what_if in &args.what_if {
            tried.push((self.predict_one(args, before, &alone, what_if)?, what_if.clone()));
        }
        spinner.finish_and_clear();
        if args.what_if.is_empty() {
            tried.extend(recommended.iter().filter_map(|(_, predicted)| predicted.clone()).take(1));
        }
        verdict.recommendations = recommended.into_iter().map(|(change, _)| change).collect();
        let mut after = None;
        if args.verify {
            if tried.is_empty() {
                eprintln!("{}", self.messages.get("profile-nothing-to-verify"));
            }
            if tried.iter().any(|(_, what_if)| what_if.ranks.is_some()) {
                eprintln!("{}", self.messages.get("profile-ranks-not-tried"));
            }
            for (prediction, what_if) in tried.iter_mut().filter(|(_, what_if)| what_if.ranks.is_none()) {
                let (times, measured) = self.try_in_turn(args, before, what_if)?;
                prediction.measured = Some(times * prediction.now);
                after = Some(measured);
            }
        }
        let predictions = tried.into_iter().map(|(prediction, _)| prediction).collect();
        Ok(Predictions { verdict, alone: Some(alone), predictions, after })
    }

    fn predict_one(
        &self,
        args: &ProfileArgs,
        before: &Measured,
        alone: &Alone,
        what_if: &WhatIf,
    ) -> Result<Prediction, Failure> {
        let changed = what_if.apply(args);
        let placement = resolve(&changed, &self.inventory, self.messages)?;
        let after = self.settings(&changed, &placement)?;
        // Workers and queues change when something is done; these change what is done.
        let same_work = after.data.batch_size == before.settings.data.batch_size
            && after.pipeline.cache == before.settings.pipeline.cache
            && placement == before.lanes.placement;
        let (alone_before, alone_after) = if same_work {
            (alone.clone(), alone.clone())
        } else {
            let lanes = self.lanes(&changed, before)?;
            let (of_before, of_after) = self.alone_in_turn((&before.settings, &before.lanes), (&after, &lanes))?;
            let same_steps = after.data.batch_size == before.settings.data.batch_size
                && placement.model == before.lanes.placement.model;
            if same_steps {
                let of_after = of_after.with_steps_of(&of_before);
                (of_before, of_after)
            } else {
                (of_before, of_after)
            }
        };
        let mut work = after.data.batch_size as f64 / before.settings.data.batch_size as f64;
        let mut alone_after = alone_after;
        if let Some(ranks) = &what_if.ranks {
            // Each rank has a batch like this one: the step has as many times its clips.
            alone_after = alone_after.with_longer_steps(before.waits_of(ranks));
        }
        let (was, will_be) = (before.setup(&before.settings, 1.0), before.setup(&after, work));
        let now = before.profile.steps_per_s;
        // Twice the standard error of the mean: what another such measurement may well say.
        let error = before.profile.variation / (before.profile.steps as f64).sqrt();
        let predicted = predict(now, error, (&alone_before, &was), (&alone_after, &will_be));
        work *= what_if.ranks.as_ref().map_or(1.0, |ranks| ranks.world as f64);
        Ok(Prediction {
            change: what_if.to_string(),
            now,
            predicted: predicted.steps_per_s,
            low: predicted.low,
            high: predicted.high,
            work,
            measured: None,
        })
    }
}

/// The placement, without saying again what was said when the command began.
fn resolve(args: &ProfileArgs, inventory: &Inventory, messages: &Messages) -> Result<Placement, Failure> {
    tandem_device::resolve(&LaneArgs::of(&args.requested).request(), &inventory.gpus, &inventory.cpu)
        .map_err(|error| open_lanes::failure(&error, inventory, messages))
}

/// One setup that was measured.
struct Measured {
    settings: TrainConfig,
    lanes: Lanes,
    profiled: Profiled,
    profile: Profile,
    knobs: Knobs,
    verdict: Verdict,
    step_ms: Vec<f64>,
}

impl Measured {
    /// These settings for a simulation, with batches of `work` times the size.
    fn setup(&self, settings: &TrainConfig, work: f64) -> Simulation {
        Simulation {
            workers: settings.pipeline.workers,
            cores: cores(),
            buffer: settings.pipeline.buffer_size,
            depth: settings.pipeline.pipeline_depth.saturating_sub(1),
            device_queue: settings.pipeline.prefetch_buffer_size,
            batch_bytes: (self.profiled.batch_bytes as f64 * work) as usize,
            memory_limit: settings.memory.host_limit,
            ..Simulation::default()
        }
    }

    /// How much longer a step of so many ranks would be.
    fn waits_of(&self, ranks: &RanksChange) -> Duration {
        let of = |ms: f64| Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default();
        let step = self.profile.stage(Stage::Train);
        let spread = of(step.std_ms.min(self.profile.variation * self.profile.period_ms));
        let communication = Communication {
            link: SimulatedLink { bandwidth: ranks.link, latency: ranks.latency },
            gradient_bytes: PARAMETER_BYTES * self.profiled.parameters as u64,
            bucket_bytes: BUCKET_BYTES,
            copy_speed: COPY_SPEED,
            backward: BACKWARD,
            ranks_per_host: 1,
            cores: cores(),
        };
        step_is_longer_by(&communication, ranks.world, &Cost { mean: of(step.mean_ms), spread })
    }

    fn is_simulated(&self) -> bool {
        self.lanes.placement.model.backend == Backend::Simulated
    }

    fn side(&self, name: &str, verdict: Verdict, messages: &Messages) -> Side {
        let Measured { settings, profiled, .. } = self;
        let spans = profiled.trace.spans();
        let features =
            ("--features-on".to_owned(), if self.knobs.features_on_data { "data" } else { "cpu" }.to_owned());
        let shown = SETTINGS.iter().filter(|row| matches!(row.scope, Scope::Advise | Scope::Profile));
        let shown = shown.filter_map(|row| Some((row.name(), row.value(settings)?.to_string())));
        let capacities: Vec<(String, usize)> =
            profiled.queues.iter().map(|queue| (queue.name.clone(), queue.capacity)).collect();
        let memory_facts = profiled.lanes.iter().map(|lane| {
            let used = lane.used_bytes().div_ceil(MIB);
            let name = messages.with("profile-memory-of", &[("lane", &lane.lane), ("device", &lane.device)]);
            (name, messages.with("profile-memory-used", &[("used", &used), ("source", &lane.source)]))
        });
        let device = (messages.get("report-device"), self.lanes.placement.model.name.clone());
        Side {
            name: name.to_owned(),
            settings: shown.chain([features]).collect(),
            lanes: timeline(&spans, PICTURED),
            queues: queue_lines(&profiled.trace, &capacities),
            memory: memory_lines(profiled),
            losses: Vec::new(),
            rates: Vec::new(),
            facts: [device].into_iter().chain(memory_facts).collect(),
            profile: self.profile.clone(),
            verdict,
            knobs: Some(self.knobs),
            headroom: Some(headroom(self.profile.starved)),
            step_ms: self.step_ms.clone(),
            simulated: self.is_simulated(),
        }
    }

    /// See docs/reference/profile-json.md.
    fn json(&self, document: &Document, alone: Option<&Alone>) -> Value {
        let Measured { profile, profiled, .. } = self;
        let verdict = &document.sides[0].verdict;
        let stages: Map<String, Value> = (profile.stages.iter())
            .map(|stage| {
                let figures = json!({"mean_ms": stage.mean_ms, "std_ms": stage.std_ms, "jitter_ms": stage.jitter_ms, "share": stage.share});
                (stage.name.clone(), figures)
            })
            .collect();
        let alone = alone.map(|alone| {
            let figures = alone.mean_ms().into_iter().zip(alone.threads);
            let stages = Stage::TIMED.iter().zip(figures);
            stages
                .map(|(stage, (ms, cores))| (stage.to_string(), json!({"mean_ms": ms, "cores": cores})))
                .collect::<Map<_, _>>()
        });
        let predictions: Vec<Value> = (document.predictions.iter())
            .map(|one| {
                json!({"change": one.change, "now": one.now, "predicted": one.predicted, "low": one.low,
                    "high": one.high, "gain": one.gain(), "measured": one.measured,
                    "measured_gain": one.measured_gain(), "error": one.error()})
            })
            .collect();
        json!({"verdict": if verdict.healthy { "healthy" } else { "limited" }, "bottleneck": verdict.bottleneck,
            "findings": verdict.findings, "training": profile.training(), "recommendations": verdict.recommendations, "stages": stages,
            "lanes": {"data_busy": profile.data_busy, "model_busy": profile.model_busy,
                "placement": self.lanes.placement, "memory": profiled.lanes},
            "starved": profile.starved, "headroom": headroom(profile.starved), "variation": profile.variation,
            "varies_with": profile.varies_with, "steps": profile.steps, "warm_up": profile.warm_up,
            "period_ms": profile.period_ms, "steps_per_s": profile.steps_per_s, "replay_ms": profiled.replay_ms,
            "cpu_percent": profiled.cpu_percent, "parameters": profiled.parameters, "queues": profiled.queues,
            "predictions": predictions, "alone": alone, "knobs": self.knobs, "simulated": self.is_simulated()})
    }
}

/// Memory of the process and of the lanes over the seconds of a profile.
fn memory_lines(profiled: &Profiled) -> Vec<Line> {
    let megabytes = |bytes: u64| bytes as f64 / MIB as f64;
    let host = profiled.memory.iter().filter_map(|(at, bytes, _)| bytes.map(|bytes| (*at, megabytes(bytes))));
    let mut lines = vec![Line { name: Place::Host.to_string(), limit: None, points: host.collect() }];
    for (n, lane) in profiled.lanes.iter().enumerate() {
        let used = |(at, _, lanes): &(f64, Option<u64>, Vec<u64>)| lanes.get(n).map(|&bytes| (*at, megabytes(bytes)));
        let points = profiled.memory.iter().filter_map(used).collect();
        lines.push(Line { name: lane.lane.to_string(), limit: lane.limit_bytes.map(megabytes), points });
    }
    lines
}
