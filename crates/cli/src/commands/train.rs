//! `tandem train`: a voice from a folder of speech.

use std::path::{Path, PathBuf};

use serde_json::json;
use tandem_data::{CorpusSettings, Metadata};
use tandem_device::memory::{self, DeviceMemory, Lane, optimal_limits};
use tandem_device::{Backend, Fallback, Inventory, Kind, LaneDevice, Lanes, Placement, half_test};
use tandem_flow::{Context, ErrorKind, Trace};
use tandem_model::Size;
use tandem_model::burn::tensor::FloatDType;
use tandem_observe::write_chrome_trace;
use tandem_text::Language;
use tandem_train::checkpoint::{self, CheckpointError};
use tandem_train::{
    CachePlace, Choice, Data, Ending, Injection, LaneFault, LearningRate, NanPolicy, OptimizationLevel, Report,
    RunFolder, Schedule, Start, TrainError, TrainSettings, Trainer,
};

use crate::args::{CacheKind, Level, NanKind, ScheduleKind, TrainArgs, Trouble};
use crate::commands::corpus::{self, MB};
use crate::failure::{FAILED, Failure};
use crate::interrupt::{self, Interrupt};
use crate::lanes;
use crate::messages::Messages;
use crate::ui::output::{Output, print};
use crate::ui::training::{Screen, final_report, ladder};

/// Enough for the first some ten thousand steps; a viewer does not open more.
const TRACE_SPANS: usize = 200_000;
/// What half precision is asked for with.
const HALF: &str = "--mixed-precision";
/// More clips at once only make a step of a CPU longer.
const MOST_ON_CPU: usize = 16;

pub(crate) fn run(args: &TrainArgs, messages: &Messages) -> Result<(), Failure> {
    let inventory = lanes::inventory(&args.lanes);
    let placement = lanes::place(&args.lanes, &inventory, messages)?;
    let interrupt = interrupt::catch();
    let _ = interrupt.notice.set(messages.get("interrupted-first"));
    let mut read = corpus::settings(&args.read)?;
    let run = RunFolder::new(args.checkpoint_dir.clone().unwrap_or_else(|| default_run(&args.train_data)));
    // Nothing is written before everything that was given has been found good.
    let start = if args.reset_training { None } else { find_start(&run, args.resume.as_deref(), messages)? };
    let mut validation = args.val_data.clone();
    if let Some(state) = start.as_ref().map(|start| &start.checkpoint.state) {
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
    if run.has_run() && run.lock().is_ok_and(|lock| lock.is_none()) {
        return Err(Failure::usage(messages.with("train-locked", &[("path", &run.path().display())])));
    }
    if args.reset_training && run.has_run() {
        let aside = run.set_aside().map_err(|error| cannot_write(run.path(), &error, messages))?;
        eprintln!("{}", messages.with("train-set-aside", &[("path", &aside.display())]));
    }
    let trace = args.trace.as_deref().map(|path| Output::create_for(path, messages)).transpose()?;
    let screen = Screen::new(args.json, messages);
    screen.configuring(&placement).map_err(|error| closed(&error))?;
    let mut lanes = lanes::open(&inventory, placement, args.lanes.allow_fallback, messages)?;
    screen.configured(&lanes.placement).map_err(|error| closed(&error))?;
    let saved = start.as_ref().map(|start| &start.checkpoint.state.settings);
    let was_half = saved.is_some_and(|saved| saved.mixed_precision);
    let half = half_precision(args.mixed_precision || was_half, args.lanes.allow_fallback, &mut lanes, messages)?;
    run.create().map_err(|error| cannot_write(run.path(), &error, messages))?;
    let mut chooser = Chooser { choices: Vec::new(), resumed: start.is_some() };
    let mut settings = choose(args, &data, &read, saved, &lanes.placement, &mut chooser);
    settings.mixed_precision = half;
    let asked = (args.mixed_precision || was_half).then_some(true);
    chooser.note("--mixed-precision", asked, half, "FALLBACK: no 16-bit floats");
    limit_memory(args, saved, &lanes.placement, &mut settings, &mut chooser, messages)?;
    let (mut injection, mut lane_fault) = (Injection::default(), None);
    for trouble in &args.inject {
        match trouble {
            Trouble::Data(fault) => lane_fault = Some(*fault),
            Trouble::Step(fault) => {
                injection.nan_at = injection.nan_at.or(fault.nan_at);
                injection.out_of_memory = injection.out_of_memory.or(fault.out_of_memory);
                injection.leak = injection.leak.or(fault.leak);
            }
        }
    }
    let choices = chooser.choices;
    let session = Session { data, settings, choices, run, start, lanes, injection, lane_fault, trace };
    let report = session.train(screen, &interrupt, messages)?;
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
fn find_start(run: &RunFolder, resume: Option<&str>, messages: &Messages) -> Result<Option<Start>, Failure> {
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
    let read = |path: PathBuf| match checkpoint::read(&path) {
        Ok(checkpoint) => Ok(Start { checkpoint, path }),
        Err(error) => Err(usage(error)),
    };
    let found = match resume {
        None if steps.is_empty() => return Ok(None),
        None | Some("last") => read(checkpoints.path(*steps.last().ok_or_else(none)?))?,
        Some("best") => read(checkpoints.path(checkpoints.best().ok_or_else(none)?))?,
        Some("last-good") => {
            let whole = steps.iter().rev().find_map(|&step| {
                let path = checkpoints.path(step);
                match checkpoint::read(&path) {
                    Ok(checkpoint) => Some(Start { checkpoint, path }),
                    Err(error) => {
                        eprintln!("{}", messages.with("train-damaged", &[("reason", &error)]));
                        None
                    }
                }
            });
            whole.ok_or_else(none)?
        }
        Some(path) => read(PathBuf::from(path))?,
    };
    Ok(Some(found))
}

/// Notes for every setting what was asked for, what it is, and why.
struct Chooser {
    choices: Vec<Choice>,
    resumed: bool,
}

impl Chooser {
    /// Which devices were asked for, and which work.
    fn placement(&mut self, args: &TrainArgs, placement: &Placement) {
        let is_about_devices = |fallback: &&Fallback| fallback.asked != HALF;
        let why =
            placement.fallbacks.iter().find(is_about_devices).map(|fallback| format!("FALLBACK: {}", fallback.why));
        let asked = |selector: &Option<tandem_device::Selector>| selector.as_ref().map(ToString::to_string);
        for (name, asked, lane) in [
            ("--data-gpu", asked(&args.lanes.data_gpu), &placement.data),
            ("--model-gpu", asked(&args.lanes.model_gpu), &placement.model),
        ] {
            let got = lane.physical.map_or("CPU".to_owned(), |index| index.to_string());
            let backend = args.lanes.backend.filter(|_| lane.physical.is_some() || name == "--model-gpu");
            let default = match (&asked, backend) {
                (Some(_), _) => "flag",
                (None, Some(_)) => "--backend",
                (None, None) => "default",
            };
            let why = why.clone().unwrap_or_else(|| default.to_owned());
            self.choices.push(Choice { name: name.to_owned(), asked, got, why });
        }
        let text = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
        let backend = args.lanes.backend.map(|backend| text(&backend));
        let features = args.lanes.features_on.map(|features| text(&features));
        for (name, asked, got) in [
            ("--backend", backend, placement.model.backend.to_string()),
            ("--features-on", features, text(&placement.features)),
        ] {
            let why = match &asked {
                Some(asked) if *asked == got || asked == "auto" => "flag".to_owned(),
                Some(_) => why.clone().unwrap_or_else(|| "flag".to_owned()),
                None => "default".to_owned(),
            };
            self.choices.push(Choice { name: name.to_owned(), asked, got, why });
        }
        let allowed = args.lanes.allow_fallback;
        self.note("--allow-fallback", allowed.then_some(true), allowed, "");
    }

    /// What was asked for, what it is, and why if they differ.
    fn note(&mut self, name: &str, asked: Option<bool>, got: bool, why_not: &str) {
        let why = match asked {
            None => "default",
            Some(asked) if asked == got => "flag",
            Some(_) => why_not,
        };
        let (name, why) = (name.to_owned(), why.to_owned());
        self.choices.push(Choice { name, asked: asked.map(|asked| asked.to_string()), got: got.to_string(), why });
    }

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
    placement: &Placement,
    chooser: &mut Chooser,
) -> TrainSettings {
    let default = TrainSettings::default();
    let size = chooser.pick("--model-size", args.model_size, saved.map(|s| s.size), Size::Tiny, "default");
    let accumulate =
        chooser.pick("--grad-accum", args.grad_accum.map(|n| n as usize), saved.map(|s| s.accumulate), 1, "default");
    chooser.placement(args, placement);
    let (by_memory, why) = batch_by_memory(&placement.model, data.clips.len());
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
    let device_queue = pick_number(
        "--prefetch-buffer-size",
        args.prefetch_buffer_size,
        saved.map(|s| s.device_queue as u64),
        tandem_train::device_queue(batch_size.div_ceil(accumulate)) as u64,
    );
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
        // A number that was asked for stays; one that we chose may be tuned.
        most_workers: args.num_workers.map_or((2 * cores).min(16), |n| n as usize),
        autotune: chooser.pick(
            "autotune (--no-autotune)",
            args.no_autotune.then_some(false),
            saved.map(|s| s.autotune),
            true,
            "default",
        ),
        buffer: buffer as usize,
        depth: depth as usize,
        device_queue: device_queue as usize,
        start_delay: chooser.pick(
            "--model-start-delay",
            args.model_start_delay,
            saved.map(|s| s.start_delay),
            default.start_delay,
            "default",
        ),
        stall_timeout: chooser.pick(
            "--stall-timeout",
            args.stall_timeout,
            saved.map(|s| s.stall_timeout),
            default.stall_timeout,
            "default",
        ),
        isolated: false,
        mixed_precision: false,
        data_limit: None,
        model_limit: None,
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

/// SPEC F12: half precision if it was asked for (now, or by the run that goes on), and the model's device can.
fn half_precision(asked: bool, allow_fallback: bool, lanes: &mut Lanes, messages: &Messages) -> Result<bool, Failure> {
    if !asked {
        return Ok(false);
    }
    let model = &lanes.placement.model;
    // The CPU could, but its kernels are made for single precision: it would only be slower.
    let can = model.backend != Backend::Cpu && lanes.model.supports_dtype(FloatDType::F16);
    let tried = if can { half_test(&lanes.model) } else { Ok(()) };
    if can && tried.is_ok() {
        return Ok(true);
    }
    let (device, name, backend) = (model.label(), &model.name, model.backend);
    let values: &[(&str, &dyn std::fmt::Display)] = &[("device", &device), ("name", name), ("backend", &backend)];
    let why = match tried {
        Ok(()) => messages.with("train-no-mixed-precision", values),
        Err(wrong) => format!("{HALF}: {device} ({name}): {wrong}"),
    };
    if !allow_fallback {
        return Err(Failure::usage(why).hint(messages.get("place-hint-fallback")));
    }
    let fallback = Fallback { asked: HALF.to_owned(), got: "single precision".to_owned(), why };
    lanes::tell_fallback(&fallback, messages);
    lanes.placement.fallbacks.push(fallback);
    Ok(false)
}

/// SPEC F14 to F16, G4: hard limits when they are asked for; else the memory that a GPU has.
fn limit_memory(
    args: &TrainArgs,
    saved: Option<&TrainSettings>,
    placement: &Placement,
    settings: &mut TrainSettings,
    chooser: &mut Chooser,
    messages: &Messages,
) -> Result<(), Failure> {
    let of_gpu = |lane: &LaneDevice| lane.memory_bytes.filter(|_| lane.physical.is_some());
    let saved = saved.filter(|saved| saved.isolated);
    let asked = args.enable_memory_isolation.then_some(true);
    settings.isolated =
        chooser.pick("--enable-memory-isolation", asked, saved.map(|saved| saved.isolated), false, "default");
    if !settings.isolated && (args.data_gpu_memory.is_some() || args.model_gpu_memory.is_some()) {
        return Err(Failure::usage(messages.get("lanes-needs-isolation")));
    }
    if !settings.isolated {
        (settings.data_limit, settings.model_limit) = (of_gpu(&placement.data), of_gpu(&placement.model));
        return Ok(());
    }
    fn device(lane: &LaneDevice) -> DeviceMemory<'_> {
        DeviceMemory { name: &lane.name, total_bytes: lane.memory_bytes }
    }
    let best = optimal_limits(device(&placement.data), device(&placement.model));
    let mut pick = |name: &str, asked: Option<u64>, saved: Option<u64>, best_bytes: u64, lane: &LaneDevice| {
        // What the run had on another device may be more than this one has; then the best for this one.
        let fits = |bytes: &u64| lane.memory_bytes.is_none_or(|has| *bytes <= has);
        let saved = saved.filter(fits).map(|bytes| bytes / memory::MB);
        let megabytes = chooser.pick(name, asked, saved, best_bytes / memory::MB, &best.why);
        let Some(has) = lane.memory_bytes.map(|bytes| bytes / memory::MB).filter(|&has| megabytes > has) else {
            return Ok(megabytes * memory::MB);
        };
        // More than there is cannot be given.
        let device = lane.label();
        let values: &[(&str, &dyn std::fmt::Display)] =
            &[("flag", &name), ("asked", &megabytes), ("device", &device), ("has", &has)];
        let why = messages.with("lanes-too-much", values);
        if !args.lanes.allow_fallback {
            return Err(Failure::usage(why).hint(messages.get("place-hint-fallback")));
        }
        let fallback = Fallback { asked: format!("{name} {megabytes}"), got: format!("{has} MB"), why };
        lanes::tell_fallback(&fallback, messages);
        if let Some(choice) = chooser.choices.last_mut() {
            (choice.got, choice.why) = (has.to_string(), "FALLBACK: all that the device has".to_owned());
        }
        Ok(has * memory::MB)
    };
    let (data, model) = (saved.and_then(|saved| saved.data_limit), saved.and_then(|saved| saved.model_limit));
    let data = pick("--data-gpu-memory", args.data_gpu_memory, data, best.data_bytes, &placement.data)?;
    let model = pick("--model-gpu-memory", args.model_gpu_memory, model, best.model_bytes, &placement.model)?;
    (settings.data_limit, settings.model_limit) = (Some(data), Some(model));
    Ok(())
}

/// SPEC F7, and no more than the data and a CPU make sense of.
pub(crate) fn batch_by_memory(device: &LaneDevice, clips: usize) -> (usize, String) {
    let Some(bytes) = device.memory_bytes else { return (8, "the memory of the device is not known".to_owned()) };
    let gigabytes = bytes as f64 / 1e9;
    let by_memory = match gigabytes {
        20.0.. => 48,
        12.0..20.0 => 32,
        8.0..12.0 => 16,
        _ => 8,
    };
    let on_cpu = matches!(device.kind, Kind::Cpu | Kind::Software);
    let most = if on_cpu { MOST_ON_CPU } else { by_memory };
    let at_most = if on_cpu { format!("at most {MOST_ON_CPU} on a CPU and") } else { "at most".to_owned() };
    let why = format!("{by_memory} by {gigabytes:.0} GB of memory, {at_most} a quarter of the clips");
    (by_memory.min(most).min((clips / 4).max(1)), why)
}

/// A run that is about to begin.
pub(crate) struct Session {
    pub(crate) data: Data,
    pub(crate) settings: TrainSettings,
    pub(crate) choices: Vec<Choice>,
    pub(crate) run: RunFolder,
    pub(crate) start: Option<Start>,
    pub(crate) lanes: Lanes,
    pub(crate) injection: Injection,
    pub(crate) lane_fault: Option<LaneFault>,
    pub(crate) trace: Option<Output>,
}

/// A reader that has seen enough (`| head`) before anything was begun ends the program without a word.
fn closed(error: &std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    Failure::new(FAILED, format!("cannot write to standard output: {error}"))
}

impl Session {
    /// Trains, and shows how it goes.
    pub(crate) fn train(
        self,
        mut screen: Screen<'_>,
        interrupt: &Interrupt,
        messages: &Messages,
    ) -> Result<Report, Failure> {
        let json = screen.json;
        let resumed = self.start.as_ref().map(|start| (start.checkpoint.state.step, start.checkpoint.state.next));
        let folder = self.run.path().display().to_string();
        let settings = self.settings.clone();
        let identity = self.data.identity();
        let placement = self.lanes.placement.clone();
        let mut trainer = Trainer::new(self.data, self.settings, self.run.clone(), self.lanes, self.start)
            .map_err(|error| failure(&error, messages))?;
        trainer.inject(self.injection, self.lane_fault);
        let facts = json!({"device": placement.model.label(), "lanes": placement, "opened": Inventory::opened(), "data": identity, "model": trainer.config(), "resumed_from": resumed.map(|(step, _)| step)});
        self.run
            .add_to_manifest(&self.choices, facts)
            .map_err(|error| cannot_write(&self.run.path().join("manifest.json"), &error, messages))?;
        let resumed = resumed.map(|(step, next)| (step, next.epoch, next.batch));
        screen.start(&folder, &settings, &identity, resumed, &placement).map_err(|error| closed(&error))?;
        let mut context = Context::default();
        context.stop = interrupt.stop.clone();
        if self.trace.is_some() {
            context.trace = Trace::with_limit(TRACE_SPANS);
        }
        let mut broken = None;
        let report = trainer.run(&context, &mut |event| {
            if let Err(error) = screen.show(&event) {
                // Nobody listens any more: end as if asked to, with a checkpoint.
                context.stop.request("output closed");
                broken.get_or_insert(error);
            }
        });
        screen.bar.finish_and_clear();
        if let Some(output) = self.trace {
            let what = format!("tandem train ({})", placement.mode);
            let written = write_trace(&context.trace, &what, output);
            let path = written.map_err(|error| Failure::new(FAILED, format!("the trace was not written: {error}")))?;
            screen.warn(&messages.with("sim-trace-written", &[("path", &path.display())]));
        }
        let report = report.map_err(|error| {
            let failure = memory_hints(&error, settings.isolated, failure(&error, messages), messages);
            let steps = self.run.checkpoints().steps();
            match steps.last() {
                Some(step) if matches!(error, TrainError::Memory(..)) => {
                    failure.hint(messages.with("train-hint-kept", &[("step", step)]))
                }
                Some(step) => failure.hint(messages.with("train-hint-saved", &[("step", step)])),
                None => failure,
            }
        })?;
        if let Some(error) = broken {
            return match error.kind() {
                std::io::ErrorKind::BrokenPipe => Ok(report),
                _ => Err(Failure::new(FAILED, format!("cannot write to standard output: {error}"))),
            };
        }
        if report.ending == Ending::Stopped && !json {
            print(&(messages.with("train-stopped", &[("step", &report.step)]) + "\n"))?;
        }
        Ok(report)
    }
}

pub(crate) fn failure(error: &TrainError, messages: &Messages) -> Failure {
    match error {
        TrainError::Checkpoint(CheckpointError::Foreign(..)) => {
            Failure::usage(error.to_string()).hint(messages.get("train-hint-foreign"))
        }
        TrainError::Data(_) | TrainError::Locked(_) => Failure::usage(error.to_string()),
        TrainError::Stage(stage) if matches!(stage.kind, ErrorKind::Stalled(_)) => {
            Failure::new(FAILED, error.to_string()).hint(messages.get("lanes-hint-stall"))
        }
        TrainError::NotFinite(..) => Failure::new(FAILED, error.to_string()).hint(messages.get("train-hint-nan")),
        _ => Failure::new(FAILED, error.to_string()),
    }
}

/// What to do when a lane has too little memory.
pub(crate) fn memory_hints(error: &TrainError, isolated: bool, mut failure: Failure, messages: &Messages) -> Failure {
    let TrainError::Memory(exceeded, rungs) = error else { return failure };
    if isolated {
        let flag = match exceeded.lane {
            Lane::Model => "--model-gpu-memory",
            Lane::Data => "--data-gpu-memory",
        };
        failure = failure.hint(messages.with("lanes-hint-raise", &[("flag", &flag)]));
    }
    let id = match exceeded.lane {
        Lane::Data => "lanes-hint-data-memory",
        Lane::Model if exceeded.used_bytes == 0 => "lanes-hint-model",
        Lane::Model => "lanes-hint-memory",
    };
    failure = failure.hint(messages.get(id));
    if rungs.iter().any(|rung| rung.fits) {
        failure = failure.hint(ladder(rungs, exceeded.limit_bytes, messages));
    }
    failure
}

pub(crate) fn write_trace(trace: &Trace, what: &str, mut output: Output) -> std::io::Result<PathBuf> {
    use std::io::Write;
    {
        let mut writer = output.writer();
        write_chrome_trace(trace, what, &mut writer)?;
        writer.flush()?;
    }
    output.finish()
}
