//! `tandem train`: a voice from a folder of speech.

use std::path::{Path, PathBuf};

use serde_json::json;
use tandem_data::{CorpusSettings, Metadata};
use tandem_device::memory::Lane;
use tandem_device::{Inventory, Lanes};
use tandem_flow::{Context, ErrorKind, Trace};
use tandem_observe::write_chrome_trace;
use tandem_text::Language;
use tandem_train::checkpoint::{self, CheckpointError};
use tandem_train::{
    Choice, Data, Ending, Injection, LaneFault, Report, RunFolder, Start, TrainError, TrainSettings, Trainer,
};

use crate::args::{TrainArgs, Trouble};
use crate::commands::corpus;
use crate::failure::{FAILED, Failure};
use crate::interrupt::{self, Interrupt};
use crate::lanes;
use crate::listeners::{self, Board, Listeners};
use crate::messages::Messages;
use crate::settings::{Chooser, choose, cores, half_precision, limit_memory, limits_are_asked_for};
use crate::ui::output::{Output, print};
use crate::ui::training::{Screen, final_report, ladder};

/// Enough for the first some ten thousand steps; a viewer does not open more.
const TRACE_SPANS: usize = 200_000;

pub(crate) fn run(args: &TrainArgs, messages: &Messages) -> Result<(), Failure> {
    let inventory = lanes::inventory(&args.lanes);
    let placement = lanes::place(&args.lanes, &inventory, messages)?;
    let interrupt = interrupt::catch();
    let _ = interrupt.notice.set(messages.get("interrupted-first"));
    let mut read = corpus::settings(&args.read)?;
    let run = RunFolder::new(args.checkpoint_dir.clone().unwrap_or_else(|| default_run(&args.train_data)));
    // Nothing is written before everything that was given has been found good.
    let start = if args.reset_training { None } else { find_start(&run, args.resume.as_deref(), messages)? };
    let was_isolated = start.as_ref().is_some_and(|start| start.checkpoint.state.settings.isolated);
    limits_are_asked_for(args, args.enable_memory_isolation || was_isolated, messages)?;
    let mut validation = args.val_data.clone();
    if let Some(state) = start.as_ref().map(|start| &start.checkpoint.state) {
        // What is not given is that of the run.
        read.max_frames = read.max_frames.or(state.settings.max_frames);
        read.max_tokens = read.max_tokens.or(state.settings.max_tokens);
        read.language = read.language.or(state.data.language.as_deref().and_then(Language::from_code));
        validation = validation.or(state.data.validation_folder.as_ref().map(PathBuf::from));
    }
    let data = open_data(&args.train_data, validation.as_deref(), read.clone(), &interrupt, messages)?;
    if !args.json && !args.print_config {
        print(&corpus::describe(&data.corpus, messages))?;
    }
    if run.has_run() && run.lock().is_ok_and(|lock| lock.is_none()) {
        return Err(Failure::usage(messages.with("train-locked", &[("path", &run.path().display())])));
    }
    let trace = args.trace.as_deref().map(|path| Output::create_for(path, messages)).transpose()?;
    let mut listeners = Listeners::default();
    if let Some(address) = args.metrics {
        listeners.metrics = Some(listeners::serve(address, messages)?);
    }
    let screen = Screen::new(args.json, messages);
    screen.configuring(&placement).map_err(|error| closed(&error))?;
    let mut lanes = lanes::open(&inventory, placement, args.lanes.allow_fallback, messages)?;
    screen.configured(&lanes.placement).map_err(|error| closed(&error))?;
    let saved = start.as_ref().map(|start| &start.checkpoint.state.settings);
    let was_half = saved.is_some_and(|saved| saved.mixed_precision);
    let half = half_precision(args.mixed_precision || was_half, args.lanes.allow_fallback, &mut lanes, messages)?;
    let mut chooser = Chooser { choices: Vec::new(), resumed: start.is_some() };
    let mut settings = choose(args, &data, &read, saved, &lanes.placement, &mut chooser);
    settings.mixed_precision = half;
    if settings.workers > cores() {
        // SPEC F8.
        let values: &[(&str, &dyn std::fmt::Display)] = &[("workers", &settings.workers), ("cores", &cores())];
        eprintln!("{}", messages.with("train-many-workers", values));
    }
    let asked = (args.mixed_precision || was_half).then_some(true);
    chooser.note("--mixed-precision", asked, half, "FALLBACK: no 16-bit floats");
    limit_memory(args, saved, &lanes.placement, &mut settings, &mut chooser, messages)?;
    let mut choices = chooser.choices;
    for choice in choices.iter_mut().filter(|choice| choice.why == "flag") {
        // It may have come from a file.
        choice.why = args.given.origin(&choice.name).unwrap_or("flag").to_owned();
    }
    if args.print_config {
        return print(&args.given.print(&choices, messages));
    }
    if let Some(folder) = &args.tensorboard_log_dir {
        let step = start.as_ref().map(|start| start.checkpoint.state.step);
        let board = Board::open(folder, step, &choices).map_err(|error| cannot_write(folder, &error, messages))?;
        listeners.board = Some(board);
    }
    // Everything that was given is good: now a folder may be made, or moved out of the way.
    if args.reset_training && run.has_run() {
        let aside = run.set_aside().map_err(|error| cannot_write(run.path(), &error, messages))?;
        eprintln!("{}", messages.with("train-set-aside", &[("path", &aside.display())]));
    }
    run.create().map_err(|error| cannot_write(run.path(), &error, messages))?;
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
    let replaced = replaced(&choices, messages);
    let (dashboard, folder) = (args.tui, run.path().to_owned());
    let session =
        Session { data, settings, choices, run, start, lanes, injection, lane_fault, trace, listeners, dashboard };
    let report = session.train(screen, &interrupt, messages)?;
    if args.json {
        print(&format!("{}\n", json!({"event": "end", "report": report})))?;
    } else {
        print(&(final_report(&report, messages) + &replaced + &next_step(args, &report, &folder, messages)))?;
    }
    Ok(())
}

/// What a user does after a run that is over.
fn next_step(args: &TrainArgs, report: &Report, run: &Path, messages: &Messages) -> String {
    if !matches!(report.ending, Ending::Finished | Ending::Stale) {
        return String::new();
    }
    let mut text = String::new();
    if report.steps == 0 {
        text += &format!("{}\n", messages.with("train-nothing-to-do", &[("step", &report.step)]));
    } else if let Some(most) = args.max_steps.filter(|most| report.ending == Ending::Finished && report.step < *most) {
        text += &format!("{}\n", messages.with("train-epochs-done", &[("step", &report.step), ("most", &most)]));
    }
    // By itself and as it is typed: to be copied.
    text += &format!("{}\n", messages.get("train-hear-it"));
    text + &format!("  tandem synth \"…\" --checkpoint {} -o hello.wav\n", quoted(run))
}

/// A path as it is typed in a shell.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    if text.contains(char::is_whitespace) { format!("'{text}'") } else { text }
}

/// What was asked for and could not be had (SPEC R9).
fn replaced(choices: &[Choice], messages: &Messages) -> String {
    let differs = |choice: &&Choice| choice.asked.as_ref().is_some_and(|asked| *asked != choice.got);
    (choices.iter().filter(differs))
        .map(|choice| {
            let asked = choice.asked.as_deref().unwrap_or_default();
            let values: &[(&str, &dyn std::fmt::Display)] =
                &[("asked", &asked), ("got", &choice.got), ("why", &choice.why)];
            format!("{}: {}\n", choice.name, messages.with("report-replaced", values))
        })
        .collect()
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
    pub(crate) listeners: Listeners,
    /// Shown as a dashboard.
    pub(crate) dashboard: bool,
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
        if self.dashboard {
            screen.open_dashboard(&folder, interrupt);
        }
        let mut broken = None;
        let mut listeners = self.listeners;
        let report = trainer.run(&context, &mut |event| {
            if let Some(error) = listeners.hear(&event) {
                screen.warn(&messages.with("tensorboard-failed", &[("reason", &error)]));
            }
            if let Err(error) = screen.show(&event) {
                // Nobody listens any more: end as if asked to, with a checkpoint.
                context.stop.request("output closed");
                broken.get_or_insert(error);
            }
        });
        screen.close();
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
