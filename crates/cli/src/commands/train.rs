//! `tandem train`: a voice from a folder of speech.

use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::ProgressBar;
use serde_json::json;
use tandem_data::{CorpusSettings, Metadata};
use tandem_flow::Context;
use tandem_model::{Device, Losses, Size};
use tandem_text::Language;
use tandem_train::checkpoint::{self, CheckpointError};
use tandem_train::{
    CachePlace, Checkpoint, Choice, Data, Ending, Event, Injection, LearningRate, NanPolicy, OptimizationLevel,
    Progress, Report, RunFolder, Schedule, TrainError, TrainSettings, Trainer, memory,
};

use crate::args::{CacheKind, Level, NanKind, ScheduleKind, TrainArgs};
use crate::commands::corpus::{self, MB};
use crate::failure::{FAILED, Failure};
use crate::interrupt::{self, Interrupt};
use crate::messages::Messages;
use crate::ui::{output::print, progress};

/// More clips at once only make a step of a CPU longer.
const MOST_ON_CPU: usize = 16;

pub(crate) fn run(args: &TrainArgs, messages: &Messages) -> Result<(), Failure> {
    if args.mixed_precision {
        // SPEC M13: no silent fallback.
        return Err(Failure::usage(messages.get("train-no-mixed-precision")));
    }
    let interrupt = interrupt::catch();
    let mut read = corpus::settings(&args.read)?;
    let run = RunFolder::new(args.checkpoint_dir.clone().unwrap_or_else(|| default_run(&args.train_data)));
    if args.reset_training && run.has_run() {
        let aside = run.set_aside().map_err(|error| cannot_write(run.path(), &error, messages))?;
        eprintln!("{}", messages.with("train-set-aside", &[("path", &aside.display())]));
    }
    run.create().map_err(|error| cannot_write(run.path(), &error, messages))?;
    let start = find_start(&run, args.resume.as_deref(), messages)?;
    let mut validation = args.val_data.clone();
    if let Some(state) = start.as_ref().map(|start| &start.state) {
        // What is not given is that of the run.
        read.max_frames = read.max_frames.or(state.settings.max_frames);
        read.max_tokens = read.max_tokens.or(state.settings.max_tokens);
        read.language = read.language.or(state.data.language.as_deref().and_then(Language::from_code));
        validation = validation.or(state.data.validation_folder.as_ref().map(PathBuf::from));
    }
    let data = open_data(&args.train_data, validation.as_deref(), read.clone(), &interrupt, messages)?;
    if !args.json {
        print(&corpus::describe(&data.corpus, messages))?;
    }
    let mut chooser = Chooser { choices: Vec::new(), resumed: start.is_some() };
    let settings = choose(args, &data, &read, start.as_ref().map(|start| &start.state.settings), &mut chooser);
    let mut injection = Injection::default();
    for fault in &args.inject {
        injection.nan_at = injection.nan_at.or(fault.nan_at);
        injection.out_of_memory = injection.out_of_memory.or(fault.out_of_memory);
    }
    let session = Session { data, settings, choices: chooser.choices, run, start, injection };
    let report = session.train(&interrupt, args.json, messages)?;
    if args.json {
        print(&format!("{}\n", json!({"event": "end", "report": report})))?;
    } else {
        print(&final_report(&report, messages))?;
    }
    Ok(())
}

/// `runs/NAME`.
fn default_run(data: &Path) -> PathBuf {
    let full = data.canonicalize().unwrap_or_else(|_| data.to_owned());
    Path::new("runs").join(full.file_name().unwrap_or("voice".as_ref()))
}

/// The clips to train and to validate on.
pub(crate) fn open_data(
    folder: &Path,
    validation: Option<&Path>,
    settings: CorpusSettings,
    interrupt: &Interrupt,
    messages: &Messages,
) -> Result<Data, Failure> {
    let open = |folder: &Path, metadata| {
        let opened = corpus::open_rows(folder, metadata, settings.clone(), &interrupt.flag, messages)?;
        corpus::check(&opened, messages)?;
        Ok::<_, Failure>(opened)
    };
    let training = match validation {
        None => Metadata::open_training(folder),
        Some(_) => Metadata::open(folder),
    };
    let train = open(folder, training)?;
    let validation = match (validation, Metadata::open_validation(folder)) {
        (Some(other), _) => {
            let rows = Metadata::open_validation(other).unwrap_or_else(|| Metadata::open(other));
            Some(open(other, rows)?)
        }
        (None, Some(rows)) => Some(open(folder, rows)?),
        (None, None) => None,
    };
    let data = Data::new(train, validation).map_err(Failure::usage)?;
    if !data.too_fast.is_empty() {
        let names: Vec<String> = data.too_fast.iter().take(5).map(|&clip| data.corpus.name(clip).0).collect();
        let (count, names) = (data.too_fast.len(), names.join(", "));
        eprintln!("{}", messages.with("train-too-fast", &[("count", &count), ("clips", &names)]));
    }
    Ok(data)
}

fn cannot_write(path: &Path, error: &std::io::Error, messages: &Messages) -> Failure {
    Failure::usage(messages.with("cannot-write", &[("path", &path.display()), ("reason", error)]))
}

/// The checkpoint to go on from, if the run has one.
fn find_start(run: &RunFolder, resume: Option<&str>, messages: &Messages) -> Result<Option<Checkpoint>, Failure> {
    let checkpoints = run.checkpoints();
    let steps = checkpoints.steps();
    let usage = |error: CheckpointError| {
        let failure = Failure::usage(error.to_string());
        match error {
            CheckpointError::Damaged(..) => failure.hint(messages.get("train-hint-last-good")),
            _ => failure,
        }
    };
    let none = || usage(CheckpointError::None(run.path().to_owned()));
    let found = match resume {
        None | Some("last") if steps.is_empty() => {
            return if resume.is_some() { Err(none()) } else { Ok(None) };
        }
        None | Some("last") => {
            let last = steps.last().copied().unwrap_or_default();
            checkpoint::read(&checkpoints.path(last)).map_err(usage)?
        }
        Some("best") => checkpoints.read(checkpoints.best().ok_or_else(none)?).map_err(usage)?,
        Some("last-good") => {
            let mut found = None;
            for &step in steps.iter().rev() {
                match checkpoints.read(step) {
                    Ok(checkpoint) => {
                        found = Some(checkpoint);
                        break;
                    }
                    Err(error) => eprintln!("{}", messages.with("train-damaged", &[("reason", &error)])),
                }
            }
            found.ok_or_else(none)?
        }
        Some(path) => checkpoint::read(Path::new(path)).map_err(usage)?,
    };
    // What came after it belongs to another history now.
    let later: Vec<u64> = steps.into_iter().filter(|&step| step > found.state.step).collect();
    for step in later {
        let from = checkpoints.path(step);
        let to = from.with_file_name(format!("set-aside-step-{step:08}"));
        std::fs::rename(&from, &to).map_err(|error| cannot_write(&from, &error, messages))?;
        eprintln!("{}", messages.with("train-later", &[("from", &from.display()), ("to", &to.display())]));
    }
    Ok(Some(found))
}

/// Notes for every setting what was asked for, what it is, and why.
struct Chooser {
    choices: Vec<Choice>,
    resumed: bool,
}

impl Chooser {
    /// The first that there is: the flag, the run that goes on, the default with its reason.
    fn pick<T: Clone + std::fmt::Debug>(
        &mut self,
        name: &str,
        asked: Option<T>,
        saved: Option<T>,
        default: T,
        why: &str,
    ) -> T {
        let text = |value: &T| format!("{value:?}").trim_matches('"').to_owned();
        let (got, why) = match (&asked, saved) {
            (Some(asked), _) => (asked.clone(), "flag".to_owned()),
            (None, Some(saved)) => (saved, "the run that goes on".to_owned()),
            (None, None) => (default, why.to_owned()),
        };
        debug_assert!(self.resumed || why != "the run that goes on");
        self.choices.push(Choice { name: name.to_owned(), asked: asked.as_ref().map(text), got: text(&got), why });
        got
    }
}

fn choose(
    args: &TrainArgs,
    data: &Data,
    read: &CorpusSettings,
    saved: Option<&TrainSettings>,
    chooser: &mut Chooser,
) -> TrainSettings {
    let default = TrainSettings::default();
    let size = chooser.pick("--model-size", args.model_size, saved.map(|s| s.size), Size::Tiny, "default");
    let accumulate =
        chooser.pick("--grad-accum", args.grad_accum.map(|n| n as usize), saved.map(|s| s.accumulate), 1, "default");
    let (by_memory, why) = batch_by_memory(memory::total_bytes(), data.clips.len());
    // Saved is the whole step; what is asked for is one part of it.
    let part = chooser.pick(
        "--batch-size",
        args.batch_size.map(|n| n as usize),
        saved.map(|s| s.batch_size.div_ceil(accumulate)),
        by_memory,
        &why,
    );
    let batch_size = match (args.batch_size, saved) {
        (None, Some(saved)) => saved.batch_size,
        _ => part * accumulate,
    };
    let level = args.optimization_level.map(|level| match level {
        Level::Basic => OptimizationLevel::Basic,
        Level::Enhanced => OptimizationLevel::Enhanced,
        Level::PlateauBreaker => OptimizationLevel::PlateauBreaker,
    });
    // A preset that is asked for wins over what the run had, flags of their own over both.
    let saved_rate = if level.is_some() { None } else { saved };
    let level = chooser.pick("--optimization-level", level, None, OptimizationLevel::Basic, "default");
    let (preset, preset_clip) = level.values();
    let preset_name = format!("preset {level:?}");
    let peak = chooser.pick("--lr", args.lr, saved_rate.map(|s| s.rate.peak), preset.peak, &preset_name);
    let warmup = chooser.pick("--warmup", args.warmup, saved_rate.map(|s| s.rate.warmup), preset.warmup, &preset_name);
    let schedule = args.schedule.map(|kind| match kind {
        ScheduleKind::Constant => Schedule::Constant,
        ScheduleKind::Noam => Schedule::Noam,
        ScheduleKind::Cosine => Schedule::Cosine { period: 4000, growth: 2 },
        ScheduleKind::Exponential => Schedule::Exponential { half_life: 20_000 },
    });
    let schedule =
        chooser.pick("--schedule", schedule, saved_rate.map(|s| s.rate.schedule), preset.schedule, &preset_name);
    let clip = chooser.pick("--clip", args.clip, saved_rate.map(|s| s.clip), preset_clip, &preset_name);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let static_shapes = match (args.enable_static_shapes, args.disable_static_shapes) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
    };
    let cache = args.cache.map(|cache| match cache {
        CacheKind::Ram => CachePlace::Ram,
        CacheKind::Disk => CachePlace::Disk,
        CacheKind::Off => CachePlace::Off,
    });
    let nan = args.nan.map(|nan| match nan {
        NanKind::Stop => NanPolicy::Stop,
        NanKind::Skip => NanPolicy::Skip,
    });
    let batches = data.clips.len().div_ceil(batch_size) as u64;
    let checkpointing = args.enable_gradient_checkpointing.then_some(true);
    let mut pick_number = |name: &str, asked: Option<u64>, saved: Option<u64>, default: u64| {
        chooser.pick(name, asked, saved, default, "default")
    };
    let seed = pick_number("--seed", args.seed, saved.map(|s| s.seed), 1);
    let epochs = pick_number("--epochs", args.epochs, saved.map(|s| s.epochs), default.epochs);
    let buffer = pick_number("--buffer-size", args.buffer_size, saved.map(|s| s.buffer as u64), 50);
    let depth = pick_number("--pipeline-depth", args.pipeline_depth, saved.map(|s| s.depth as u64), 2);
    let memory_limit = pick_number("--memory-limit", args.memory_limit, saved.map(|s| s.memory_limit as u64 / MB), 512);
    let cache_limit = pick_number("--cache-limit", args.cache_limit, saved.map(|s| s.cache_limit / MB), 2000);
    let log_every = pick_number("--log-every", args.log_every, saved.map(|s| s.log_every), default.log_every);
    let checkpoint_every =
        pick_number("--checkpoint-every", args.checkpoint_every, saved.map(|s| s.checkpoint_every), 500);
    let keep = pick_number("--keep", args.keep, saved.map(|s| s.keep as u64), 5);
    let sample_every = pick_number("--sample-every", args.sample_every, saved.map(|s| s.sample_every), 1000);
    let patience = pick_number("--patience", args.patience, saved.map(|s| s.patience), 0);
    let every_epoch = chooser.pick(
        "--validate-every",
        args.validate_every,
        saved.and_then(|s| s.validate_every),
        batches.max(100),
        "every epoch, but at least 100 steps",
    );
    TrainSettings {
        size,
        batch_size,
        seed,
        static_shapes: chooser.pick(
            "--enable-static-shapes",
            static_shapes,
            saved.map(|s| s.static_shapes),
            false,
            "default",
        ),
        prior_steps: saved.map_or(default.prior_steps, |s| s.prior_steps),
        max_frames: read.max_frames,
        max_tokens: read.max_tokens,
        accumulate,
        rate: LearningRate { peak, warmup, schedule },
        clip,
        adam: saved.map_or(default.adam, |s| s.adam),
        gradient_checkpointing: chooser.pick(
            "--enable-gradient-checkpointing",
            checkpointing,
            saved.map(|s| s.gradient_checkpointing),
            false,
            "default",
        ),
        epochs,
        max_steps: chooser.pick("--max-steps", args.max_steps.map(Some), None, None, "default: all epochs"),
        workers: chooser.pick(
            "--num-workers",
            args.num_workers.map(|n| n as usize),
            None,
            cores.min(4),
            &format!("{cores} cores"),
        ),
        buffer: buffer as usize,
        depth: depth as usize,
        memory_limit: (memory_limit * MB) as usize,
        cache: chooser.pick("--cache", cache, saved.map(|s| s.cache), CachePlace::Ram, "default"),
        cache_limit: cache_limit * MB,
        log_every,
        validate_every: Some(every_epoch),
        checkpoint_every,
        keep: keep as usize,
        sample_every,
        patience,
        nan_policy: chooser.pick("--nan", nan, saved.map(|s| s.nan_policy), NanPolicy::Stop, "default"),
    }
}

/// SPEC F7, and no more than the data and a CPU make sense of.
fn batch_by_memory(bytes: Option<u64>, clips: usize) -> (usize, String) {
    let Some(bytes) = bytes else { return (8, "the memory of the device is not known".to_owned()) };
    let gigabytes = bytes as f64 / 1e9;
    let by_memory = match gigabytes {
        20.0.. => 48,
        12.0..20.0 => 32,
        8.0..12.0 => 16,
        _ => 8,
    };
    let chosen = by_memory.min(MOST_ON_CPU).min((clips / 4).max(1));
    let why = format!(
        "{by_memory} by {gigabytes:.0} GB of memory, at most {MOST_ON_CPU} on a CPU and a quarter of the clips"
    );
    (chosen, why)
}

/// A run that is about to begin.
pub(crate) struct Session {
    pub(crate) data: Data,
    pub(crate) settings: TrainSettings,
    pub(crate) choices: Vec<Choice>,
    pub(crate) run: RunFolder,
    pub(crate) start: Option<Checkpoint>,
    pub(crate) injection: Injection,
}

impl Session {
    /// Trains, and shows how it goes.
    pub(crate) fn train(self, interrupt: &Interrupt, json: bool, messages: &Messages) -> Result<Report, Failure> {
        let device = Device::flex();
        let resumed = self.start.as_ref().map(|start| (start.state.step, start.state.next));
        let folder = self.run.path().display().to_string();
        let settings = self.settings.clone();
        let identity = self.data.identity();
        let mut trainer = Trainer::new(self.data, self.settings, self.run.clone(), &device, self.start)
            .map_err(|error| failure(&error, messages))?;
        trainer.inject(self.injection);
        let facts = json!({"device": "CPU", "data": identity, "model": trainer.config(), "resumed_from": resumed.map(|(step, _)| step)});
        self.run
            .add_to_manifest(&self.choices, facts)
            .map_err(|error| cannot_write(&self.run.path().join("manifest.json"), &error, messages))?;
        let mut screen = Screen::new(json, messages);
        screen.start(&folder, &settings, &identity, resumed.map(|(step, next)| (step, next.epoch, next.batch)))?;
        let mut context = Context::default();
        context.stop = interrupt.stop.clone();
        let mut broken = None;
        let report = trainer.run(&context, &mut |event| {
            if let Err(failure) = screen.show(&event) {
                broken.get_or_insert(failure);
            }
        });
        screen.bar.finish_and_clear();
        let report = report.map_err(|error| {
            let failure = failure(&error, messages);
            let steps = self.run.checkpoints().steps();
            match steps.last() {
                Some(step) => failure.hint(messages.with("train-hint-saved", &[("step", step)])),
                None => failure,
            }
        })?;
        if let Some(failure) = broken {
            return Err(failure);
        }
        if report.ending == Ending::Stopped && !json {
            print(&(messages.with("train-stopped", &[("step", &report.step)]) + "\n"))?;
        }
        Ok(report)
    }
}

fn failure(error: &TrainError, messages: &Messages) -> Failure {
    match error {
        TrainError::Checkpoint(CheckpointError::Foreign(..)) => {
            Failure::usage(error.to_string()).hint(messages.get("train-hint-foreign"))
        }
        TrainError::Data(_) => Failure::usage(error.to_string()),
        TrainError::NotFinite(..) => Failure::new(FAILED, error.to_string()).hint(messages.get("train-hint-nan")),
        _ => Failure::new(FAILED, error.to_string()),
    }
}

/// How a run is shown: a live line in a terminal, plain lines elsewhere, JSON when asked for.
struct Screen<'a> {
    messages: &'a Messages,
    json: bool,
    live: bool,
    bar: ProgressBar,
    plain_since: Option<Instant>,
}

impl Screen<'_> {
    fn new(json: bool, messages: &Messages) -> Screen<'_> {
        let live = !json && stderr().is_terminal();
        Screen { messages, json, live, bar: progress::training(live), plain_since: None }
    }

    fn line(&self, text: &str) -> Result<(), Failure> {
        if self.live { self.bar.suspend(|| print(&format!("{text}\n"))) } else { print(&format!("{text}\n")) }
    }

    fn start(
        &self,
        folder: &str,
        settings: &TrainSettings,
        data: &tandem_train::DataIdentity,
        resumed: Option<(u64, u64, u64)>,
    ) -> Result<(), Failure> {
        if self.json {
            let resumed = resumed.map(|(step, _, _)| step);
            return self.line(
                &json!({"event": "start", "run": folder, "settings": settings, "data": data, "resumed_from": resumed})
                    .to_string(),
            );
        }
        self.line(&self.messages.with(
            "train-data",
            &[("clips", &data.clips), ("validation", &data.validation_clips), ("speakers", &data.speakers)],
        ))?;
        let part = settings.batch_size.div_ceil(settings.accumulate);
        self.line(&self.messages.with(
            "train-settings",
            &[
                ("size", &settings.size),
                ("batch", &part),
                ("accumulate", &settings.accumulate),
                ("workers", &settings.workers),
                ("rate", &settings.rate.peak),
            ],
        ))?;
        match resumed {
            Some((step, epoch, batch)) => {
                self.line(&self.messages.with(
                    "train-resumed",
                    &[("step", &step), ("epoch", &epoch), ("batch", &batch), ("folder", &folder)],
                ))
            }
            None => self.line(&self.messages.with("train-new", &[("folder", &folder)])),
        }
    }

    fn show(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        if self.json {
            return self.line(&event_json(event).to_string());
        }
        let messages = self.messages;
        match event {
            Event::Model { parts, .. } => {
                let all: usize = parts.iter().map(|(_, count)| count).sum();
                let parts: Vec<String> =
                    parts.iter().map(|(name, count)| format!("{name} {}", millions(*count))).collect();
                self.line(
                    &messages.with("train-model", &[("parameters", &millions(all)), ("parts", &parts.join(", "))]),
                )
            }
            Event::Preflight(preflight) => {
                let peak = preflight.peak_bytes.map_or("?".to_owned(), |bytes| (bytes / MB).to_string());
                let seconds = format!("{:.2}", preflight.seconds);
                self.line(&messages.with(
                    "train-preflight",
                    &[
                        ("rows", &preflight.rows),
                        ("frames", &preflight.frames),
                        ("seconds", &seconds),
                        ("megabytes", &peak),
                    ],
                ))
            }
            Event::Progress(progress) => self.progress(progress),
            Event::Validation { step, loss, terms, best } => {
                let mark = if *best { messages.get("train-best") } else { String::new() };
                let (loss, terms) = (format!("{loss:.4}"), named(terms));
                self.line(
                    &messages.with(
                        "train-validation",
                        &[("step", step), ("loss", &loss), ("terms", &terms), ("best", &mark)],
                    ),
                )
            }
            Event::Checkpoint { step, path } => {
                self.line(&messages.with("train-checkpoint", &[("step", step), ("path", &path.display())]))
            }
            Event::CheckpointFailed { step, error } => {
                eprintln!("{}", messages.with("train-checkpoint-failed", &[("step", step), ("reason", error)]));
                Ok(())
            }
            Event::Sample { step, path } => {
                self.line(&messages.with("train-sample", &[("step", step), ("path", &path.display())]))
            }
            Event::SampleFailed { step, error } => {
                eprintln!("{}", messages.with("train-sample-failed", &[("step", step), ("reason", error)]));
                Ok(())
            }
            Event::NotFinite { step, clips, policy } => {
                if *policy == NanPolicy::Skip {
                    let clips = clips.join(", ");
                    eprintln!("{}", messages.with("train-nan-skipped", &[("step", step), ("clips", &clips)]));
                }
                Ok(())
            }
            Event::Split { step, parts } => {
                eprintln!("{}", messages.with("train-split", &[("step", step), ("parts", parts)]));
                Ok(())
            }
        }
    }

    fn progress(&mut self, progress: &Progress) -> Result<(), Failure> {
        let text = self.messages.with(
            "train-progress",
            &[
                ("step", &progress.step),
                ("steps", &progress.steps),
                ("loss", &format!("{:.3}", progress.loss)),
                ("terms", &named(&progress.terms)),
                ("rate", &format!("{:.2}", progress.steps_per_s)),
                ("audio", &format!("{:.0}", progress.audio_per_s)),
                ("starved", &format!("{:.1}", 100.0 * progress.starved)),
                ("eta", &duration(progress.eta_s)),
            ],
        );
        if self.live {
            self.bar.set_length(progress.steps);
            self.bar.set_position(progress.step);
            self.bar.set_message(text);
            return Ok(());
        }
        // A log need not have more than a line every two seconds.
        let due = self.plain_since.is_none_or(|since| since.elapsed().as_secs_f64() >= 2.0);
        if due || progress.step == progress.steps {
            self.plain_since = Some(Instant::now());
            return self.line(&text);
        }
        Ok(())
    }
}

fn named(terms: &[f64; 3]) -> String {
    Losses::NAMES.iter().zip(terms).map(|(name, value)| format!("{name} {value:.3}")).collect::<Vec<_>>().join(" ")
}

pub(crate) fn millions(count: usize) -> String {
    if count >= 100_000 { format!("{:.2} M", count as f64 / 1e6) } else { count.to_string() }
}

/// `1 h 02 m 03 s`, as far as it goes.
pub(crate) fn duration(seconds: f64) -> String {
    let all = seconds.max(0.0).round() as u64;
    let (hours, minutes, seconds) = (all / 3600, all / 60 % 60, all % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds} s"),
        (0, _) => format!("{minutes} m {seconds:02} s"),
        _ => format!("{hours} h {minutes:02} m {seconds:02} s"),
    }
}

fn event_json(event: &Event<'_>) -> serde_json::Value {
    match event {
        Event::Model { parts, device } => {
            let parameters: usize = parts.iter().map(|(_, count)| count).sum();
            let parts: serde_json::Map<String, serde_json::Value> =
                parts.iter().map(|(name, count)| (name.clone(), json!(count))).collect();
            json!({"event": "model", "parameters": parameters, "parts": parts, "device": device})
        }
        Event::Preflight(preflight) => json!({"event": "preflight", "preflight": preflight}),
        Event::Progress(progress) => json!({"event": "progress", "progress": progress}),
        Event::Validation { step, loss, terms, best } => {
            json!({"event": "validation", "step": step, "loss": loss, "terms": terms, "best": best})
        }
        Event::Checkpoint { step, path } => json!({"event": "checkpoint", "step": step, "path": path}),
        Event::CheckpointFailed { step, error } => {
            json!({"event": "checkpoint_failed", "step": step, "error": error.to_string()})
        }
        Event::Sample { step, path } => json!({"event": "sample", "step": step, "path": path}),
        Event::SampleFailed { step, error } => json!({"event": "sample_failed", "step": step, "error": error}),
        Event::NotFinite { step, clips, policy } => {
            json!({"event": "not_finite", "step": step, "clips": clips, "policy": policy})
        }
        Event::Split { step, parts } => json!({"event": "split", "step": step, "parts": parts}),
    }
}

/// SPEC R9.
pub(crate) fn final_report(report: &Report, messages: &Messages) -> String {
    let ending = messages.get(match report.ending {
        Ending::Finished => "train-end-finished",
        Ending::Stale => "train-end-stale",
        Ending::Stopped => "train-end-stopped",
    });
    let steps_per_s = if report.seconds > 0.0 { report.steps as f64 / report.seconds } else { 0.0 };
    let mut text = messages.with(
        "train-report",
        &[
            ("ending", &ending),
            ("steps", &report.steps),
            ("step", &report.step),
            ("time", &duration(report.seconds)),
            ("total", &duration(report.total_seconds)),
            ("rate", &format!("{steps_per_s:.2}")),
            ("hours", &format!("{:.2}", report.audio_seconds / 3600.0)),
            ("starved", &format!("{:.2}", 100.0 * report.starved)),
            ("alignment", &format!("{:.2}", 100.0 * report.alignment_share)),
            ("memory", &report.peak_bytes.map_or("?".to_owned(), |bytes| (bytes / MB).to_string())),
        ],
    );
    text.push('\n');
    if let Some((loss, step)) = report.best {
        text += &messages.with("train-report-best", &[("loss", &format!("{loss:.4}")), ("step", &step)]);
        text.push('\n');
    }
    for bad in &report.left_out {
        text += &messages.with("load-bad", &[("id", &bad.id), ("reason", &bad.reason)]);
        text.push('\n');
    }
    text
}
