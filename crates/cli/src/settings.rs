//! From flags to settings: for each what was asked for, what the run had, what is the default, and why.

use tandem_data::CorpusSettings;
use tandem_device::memory::{self, DeviceMemory, optimal_limits};
use tandem_device::{Backend, Fallback, Kind, LaneDevice, Lanes, Placement, half_test};
use tandem_model::Size;
use tandem_model::burn::tensor::FloatDType;
use tandem_train::{CachePlace, Choice, Data, LearningRate, NanPolicy, OptimizationLevel, Schedule, TrainSettings};

use crate::args::{CacheKind, Level, NanKind, ScheduleKind, TrainArgs};
use crate::commands::corpus::MB;
use crate::failure::Failure;
use crate::lanes;
use crate::messages::Messages;

/// More clips at once only make a step of a CPU longer.
const MOST_ON_CPU: usize = 16;
/// What half precision is asked for with.
const HALF: &str = "--mixed-precision";
/// Notes for every setting what was asked for, what it is, and why.
pub(crate) struct Chooser {
    pub(crate) choices: Vec<Choice>,
    pub(crate) resumed: bool,
}

impl Chooser {
    /// Which devices were asked for, and which work.
    pub(crate) fn placement(&mut self, args: &TrainArgs, placement: &Placement) {
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
    pub(crate) fn note(&mut self, name: &str, asked: Option<bool>, got: bool, why_not: &str) {
        let why = match asked {
            None => "default",
            Some(asked) if asked == got => "flag",
            Some(_) => why_not,
        };
        let (name, why) = (name.to_owned(), why.to_owned());
        self.choices.push(Choice { name, asked: asked.map(|asked| asked.to_string()), got: got.to_string(), why });
    }

    /// The first that there is: the flag, the run that goes on, the default with its reason.
    pub(crate) fn pick<T: Clone + std::fmt::Debug>(
        &mut self,
        name: &str,
        asked: Option<T>,
        saved: Option<T>,
        default: T,
        why: &str,
    ) -> T {
        let text = |value: &T| {
            let text = format!("{value:?}");
            let inner = text.strip_prefix("Some(").and_then(|rest| rest.strip_suffix(')')).unwrap_or(&text);
            inner.trim_matches('"').to_owned()
        };
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

pub(crate) fn choose(
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
    let cores = cores();
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
pub(crate) fn half_precision(
    asked: bool,
    allow_fallback: bool,
    lanes: &mut Lanes,
    messages: &Messages,
) -> Result<bool, Failure> {
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

/// Cores that this program may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A limit without `--enable-memory-isolation` would do nothing.
pub(crate) fn limits_are_asked_for(args: &TrainArgs, isolated: bool, messages: &Messages) -> Result<(), Failure> {
    if !isolated && (args.data_gpu_memory.is_some() || args.model_gpu_memory.is_some()) {
        return Err(Failure::usage(messages.get("lanes-needs-isolation")));
    }
    Ok(())
}

/// SPEC F14 to F16, G4: hard limits when they are asked for; else the memory that a GPU has.
pub(crate) fn limit_memory(
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
    limits_are_asked_for(args, settings.isolated, messages)?;
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
