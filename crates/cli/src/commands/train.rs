//! `tandem train`: a voice from a folder of speech.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tandem_data::{AlignmentsError, CorpusSettings, Part};
use tandem_device::memory::Lane;
use tandem_device::{Inventory, Lanes};
use tandem_flow::{Context, ErrorKind, Stage, Trace};
use tandem_observe::write_chrome_trace;
use tandem_train::checkpoint::{self, CheckpointError};
use tandem_train::task::TrainedPart;
use tandem_train::{
    Data, DataError, Injection, LaneFault, Outcome, Report, Requested, ResolvedSetting, RunDir, Start, TrainConfig,
    TrainError, Trainer, corpus_settings, resolve,
};

use crate::args::{InjectedFault, LaneArgs, TrainArgs};
use crate::commands::{corpus, watch};
use crate::config_file;
use crate::failure::{FAILED, Failure, INTERRUPTED, USAGE};
use crate::interrupt::{self, Interrupt};
use crate::listeners::{self, Board, Listeners};
use crate::messages::Messages;
use crate::open_lanes;
use crate::ranks::{self, Ranks};
use crate::run_facts;
use crate::ui::output::{Output, print};
use crate::ui::training::{Screen, final_report, ladder};

/// Enough for the first some ten thousand steps; a viewer does not open more.
const TRACE_SPANS: usize = 200_000;

pub(crate) fn run(args: &TrainArgs, messages: &Messages) -> Result<(), Failure> {
    let ranks = Ranks::join(args.quiet_ranks == "yes", messages)?;
    match ranks.work(|| run_rank(args, &ranks, messages)).and_then(|()| ranks.leave()) {
        Ok(()) => Ok(()),
        Err(failure) => Err(ranks.end(failure, args.requested.is_on("json"), messages)),
    }
}

/// The run as one of its ranks sees it; usually the only one.
fn run_rank(args: &TrainArgs, ranks: &Ranks, messages: &Messages) -> Result<(), Failure> {
    let requested: &Requested = &args.requested;
    let (json, from_scratch) = (requested.is_on("json"), requested.is_on("reset-training"));
    let lane_args = ranks.lanes(LaneArgs::of(requested), messages)?;
    let inventory = open_lanes::inventory(&lane_args);
    let lane_args = ranks.pair(lane_args, &inventory);
    let placement = open_lanes::place(&lane_args, &inventory, messages)?;
    let interrupt = interrupt::catch();
    let _ = interrupt.notice.set(messages.get("interrupted-first"));
    let train_data = requested.path("train-data").unwrap_or(Path::new("")).to_owned();
    let run = RunDir::new(
        requested.path("checkpoint-dir").map_or_else(|| default_run(&train_data, requested), Path::to_owned),
    );
    // Before anything is read of it: a run that is about to end would leave a later checkpoint than was found.
    if ranks.is_first() && run.has_run() && run.take().is_ok_and(|taken| !taken) {
        return Err(is_locked(&run, messages));
    }
    // Nothing is written before everything that was given has been found good.
    let start = if from_scratch { None } else { find_start(&run, requested.word("resume"), messages)? };
    let state = start.as_ref().map(|start| &start.checkpoint.state);
    let saved = state.map(|state| &state.settings);
    let path = start.as_ref().map(|start| start.path.as_path());
    let wrong = |error| run_facts::failure(error, path, messages);
    let read = corpus_settings(requested, state).map_err(|error| run_facts::corpus_failure(error, path, messages))?;
    // What is not given is that of the run.
    let of_run = state.and_then(|state| state.data.validation_dir.as_ref());
    let validation = requested.path("val-data").map(Path::to_owned).or(of_run.map(PathBuf::from));
    let mut data = ranks.first_alone(|| open_data(&train_data, validation.as_deref(), read, &interrupt, messages))?;
    let alignments = requested.path("alignments").or(saved.and_then(|saved| saved.data.alignments.as_deref()));
    if let Some(dir) = alignments {
        data = data.with_alignments(dir).map_err(|error| data_failure(&error, messages))?;
    }
    if !json && !args.print_config {
        if let Some(line) = ranks.describe(messages) {
            print(&format!("{line}\n"))?;
        }
        print(&corpus::describe(&data.corpus, messages))?;
        if let Some(dir) = alignments {
            let values: &[(&str, &dyn std::fmt::Display)] =
                &[("count", &data.durations.len()), ("clips", &data.clips.len()), ("folder", &dir.display())];
            print(&format!("{}\n", messages.with("train-alignments", values)))?;
        }
    }
    let trace = requested
        .path("trace")
        .filter(|_| ranks.is_first())
        .map(|path| Output::create_for(path, messages))
        .transpose()?;
    let mut listeners = Listeners::default();
    let word = |name: &str| requested.word(name).filter(|_| ranks.is_first());
    if let Some(address) = word("metrics").and_then(|address| address.parse().ok()) {
        listeners.metrics = Some(listeners::serve(address, messages)?);
    }
    if let Some(address) = word("web").and_then(|address| address.parse().ok()) {
        watch::beside(run.path(), address, messages)?;
    }
    let screen = Screen::new(json, messages);
    screen.configuring(&placement).map_err(|error| closed(&error))?;
    let mut lanes = open_lanes::open(&inventory, placement, lane_args.allow_fallback, messages)?;
    screen.configured(&lanes.placement).map_err(|error| closed(&error))?;
    let facts = run_facts::facts(&data, &lanes, requested, saved);
    let (config, resolved) = resolve(requested, saved, &facts).map_err(wrong)?;
    run_facts::report_fallbacks(&resolved, &facts, &mut lanes, messages);
    if config.pipeline.workers > facts.cores {
        // SPEC F8.
        let values: &[(&str, &dyn std::fmt::Display)] =
            &[("workers", &config.pipeline.workers), ("cores", &facts.cores)];
        eprintln!("{}", messages.with("train-many-workers", values));
    }
    if args.print_config {
        return print(&config_file::print(requested, &resolved, messages));
    }
    if let Some(dir) = requested.path("tensorboard-log-dir").filter(|_| ranks.is_first()) {
        let step = start.as_ref().map(|start| start.checkpoint.state.step);
        let board = Board::open(dir, step, &resolved).map_err(|error| cannot_write(dir, &error, messages))?;
        listeners.board = Some(board);
    }
    let (mut injection, mut lane_fault) = (Injection::default(), None);
    for injected in &args.inject {
        match injected {
            InjectedFault::Data(fault) => lane_fault = Some(*fault),
            InjectedFault::Step(fault) => {
                injection.nan_at = injection.nan_at.or(fault.nan_at);
                injection.out_of_memory = injection.out_of_memory.or(fault.out_of_memory);
                injection.leak = injection.leak.or(fault.leak);
                injection.hang_at = injection.hang_at.or(fault.hang_at);
            }
        }
    }
    let replaced = replaced(&resolved, messages);
    let (dashboard, dir) = (requested.is_on("tui") && ranks.is_first(), run.path().to_owned());
    let session = Session {
        data,
        config,
        resolved,
        run,
        from_scratch,
        start,
        lanes,
        injection,
        lane_fault,
        trace,
        listeners,
        dashboard,
    };
    let report = session.train(screen, &interrupt, ranks, messages)?;
    if json {
        print(&format!("{}\n", json!({"event": "end", "report": report})))?;
    } else {
        print(&(final_report(&report, messages) + &replaced + &next_step(requested, &report, &dir, messages)))?;
    }
    Ok(())
}

/// What a user does after a run that is over.
fn next_step(requested: &Requested, report: &Report, run: &Path, messages: &Messages) -> String {
    if !matches!(report.outcome, Outcome::Finished | Outcome::EarlyStopped) {
        return String::new();
    }
    let mut text = String::new();
    if report.steps == 0 {
        text += &format!("{}\n", messages.with("train-nothing-to-do", &[("step", &report.step)]));
    } else if let Some(most) =
        requested.number("max-steps").filter(|most| report.outcome == Outcome::Finished && report.step < *most)
    {
        text += &format!("{}\n", messages.with("train-epochs-done", &[("step", &report.step), ("most", &most)]));
    }
    // By itself and as it is typed: to be copied.
    text += &format!("{}\n", messages.get("train-hear-it"));
    text + &match is_vocoder(requested) {
        true => format!("  tandem synth \"…\" --checkpoint RUN --vocoder {} -o hello.wav\n", quoted(run)),
        false => format!("  tandem synth \"…\" --checkpoint {} -o hello.wav\n", quoted(run)),
    }
}

/// A path as it is typed in a shell.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    if text.contains(char::is_whitespace) { format!("'{text}'") } else { text }
}

/// What was requested and could not be had (SPEC R9).
fn replaced(resolved: &[ResolvedSetting], messages: &Messages) -> String {
    let replaced = resolved.iter().filter(|one| one.is_fallback()).filter_map(|one| {
        let requested = one.requested.as_deref()?;
        let values: &[(&str, &dyn std::fmt::Display)] =
            &[("requested", &requested), ("value", &one.value), ("source", &one.source)];
        Some(format!("{}: {}\n", one.name, messages.with("report-replaced", values)))
    });
    replaced.collect()
}

/// `runs/NAME`, or `runs/NAME-vocoder`.
fn default_run(data: &Path, requested: &Requested) -> PathBuf {
    let full = data.canonicalize().unwrap_or_else(|_| data.to_owned());
    let mut name = full.file_name().unwrap_or("voice".as_ref()).to_owned();
    if is_vocoder(requested) {
        name.push("-vocoder");
    }
    Path::new("runs").join(name)
}

fn is_vocoder(requested: &Requested) -> bool {
    requested.word("part") == Some(TrainedPart::Vocoder.name())
}

/// The clips to train and to validate on.
pub(crate) fn open_data(
    dir: &Path,
    validation: Option<&Path>,
    settings: CorpusSettings,
    interrupt: &Interrupt,
    messages: &Messages,
) -> Result<Data, Failure> {
    let open = |dir: &Path, part, settings| {
        let opened = corpus::open_part(dir, part, settings, &interrupt.flag, messages)?;
        opened.iter().try_for_each(|opened| corpus::check(opened, messages))?;
        Ok::<_, Failure>(opened)
    };
    let training = if validation.is_some() { Part::All } else { Part::Training };
    let train = open(dir, training, settings)?.expect("a directory lists clips, or is an error");
    let settings = train.settings_for_another_part();
    let validation = match validation {
        None => open(dir, Part::Validation, settings)?,
        Some(other) => match open(other, Part::Validation, settings.clone())? {
            None => open(other, Part::All, settings)?,
            listed => listed,
        },
    };
    let data = Data::new(train, validation).map_err(|error| data_failure(&error, messages))?;
    if !data.too_fast.is_empty() {
        let names: Vec<String> = data.too_fast.iter().take(5).map(|&clip| data.corpus.name(clip).0).collect();
        let (count, names) = (data.too_fast.len(), names.join(", "));
        eprintln!("{}", messages.with("train-too-fast", &[("count", &count), ("clips", &names)]));
    }
    Ok(data)
}

/// Why there is nothing to train on, and what to do about it.
pub(crate) fn data_failure(error: &DataError, messages: &Messages) -> Failure {
    let failure = Failure::of(USAGE, error);
    match error {
        DataError::OneClip => failure.hint(messages.get("train-hint-val-data")),
        DataError::Alignments(AlignmentsError::Misfit { .. }) => failure.hint(messages.get("train-hint-alignments")),
        DataError::Alignments(_) => failure.hint(messages.get("train-hint-align")),
        _ => failure,
    }
}

fn cannot_write(path: &Path, error: &std::io::Error, messages: &Messages) -> Failure {
    Failure::usage(messages.with("cannot-write", &[("path", &path.display()), ("reason", error)]))
        .hint_about(error, messages)
}

/// Takes the directory of a run, or says that another process has it.
fn take(run: &RunDir, messages: &Messages) -> Result<(), Failure> {
    let path = run.path();
    match run.take().map_err(|error| cannot_write(&path.join("lock"), &error, messages))? {
        true => Ok(()),
        false => Err(is_locked(run, messages)),
    }
}

fn is_locked(run: &RunDir, messages: &Messages) -> Failure {
    Failure::usage(messages.with("train-locked", &[("path", &run.path().display())]))
}

/// The checkpoint to resume from, if the run has one.
fn find_start(run: &RunDir, resume: Option<&str>, messages: &Messages) -> Result<Option<Start>, Failure> {
    let checkpoints = run.checkpoints();
    let steps = checkpoints.steps();
    let usage = |error: CheckpointError| {
        let failure = Failure::of(USAGE, &error);
        match error {
            CheckpointError::Damaged(..) => failure.hint(messages.get("train-hint-last-good")),
            CheckpointError::Format(..) | CheckpointError::State(..) => {
                failure.hint(messages.get("train-hint-version"))
            }
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
    pub(crate) config: TrainConfig,
    pub(crate) resolved: Vec<ResolvedSetting>,
    pub(crate) run: RunDir,
    /// A run that is in the directory is moved out of the way.
    pub(crate) from_scratch: bool,
    pub(crate) start: Option<Start>,
    pub(crate) lanes: Lanes,
    pub(crate) injection: Injection,
    pub(crate) lane_fault: Option<LaneFault>,
    pub(crate) trace: Option<Output>,
    pub(crate) listeners: Listeners,
    /// Shown as a dashboard.
    pub(crate) dashboard: bool,
}

/// Makes the directory of a run, or moves what is there out of the way, and notes how it begins.
fn take_dir(
    run: &RunDir,
    from_scratch: bool,
    resolved: &[ResolvedSetting],
    facts: Value,
    screen: &Screen<'_>,
    messages: &Messages,
) -> Result<(), Failure> {
    if from_scratch && run.has_run() {
        // Another start may have taken it while this one read its corpus.
        take(run, messages)?;
        let aside = run.archive().map_err(|error| cannot_write(run.path(), &error, messages))?;
        screen.warn(&messages.with("train-set-aside", &[("path", &aside.display())]));
    }
    run.create().map_err(|error| cannot_write(run.path(), &error, messages))?;
    take(run, messages)?;
    run.add_to_manifest(resolved, facts)
        .map_err(|error| cannot_write(&run.path().join("manifest.json"), &error, messages))
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
        ranks: &Ranks,
        messages: &Messages,
    ) -> Result<Report, Failure> {
        let json = screen.json;
        let resumed = self.start.as_ref().map(|start| (start.checkpoint.state.step, start.checkpoint.state.next));
        let dir = self.run.path().display().to_string();
        let settings = self.config.clone();
        let identity = self.data.identity();
        let speakers = self.data.speaker_shares();
        let placement = self.lanes.placement.clone();
        let mut trainer = Trainer::new(self.data, self.config, self.run.clone(), self.lanes, self.start)
            .map_err(|error| failure(&error, messages))?;
        trainer.inject(self.injection, self.lane_fault);
        let joined = match ranks.reduce() {
            Some((reduce, host)) => trainer.join(reduce, host).map_err(|error| failure(&error, messages))?,
            None => Vec::new(),
        };
        // Asked to stop before anything was begun. Several ranks agree on it before their first step.
        if joined.is_empty() && interrupt.stop.reason().is_some() {
            return Err(Failure::new(INTERRUPTED, messages.get("advise-stopped")));
        }
        // Everything that was given is good: now a folder may be made, or moved out of the way.
        if ranks.is_first() {
            let mut facts = json!({"device": placement.model.label(), "lanes": placement, "opened": Inventory::opened(), "data": identity, "speakers": speakers, "model": trainer.config(), "resumed_from": resumed.map(|(step, _)| step)});
            if let Some(ranks) = ranks.manifest(&joined) {
                facts["mpi"] = ranks;
            }
            take_dir(&self.run, self.from_scratch, &self.resolved, facts, &screen, messages)?;
        }
        let resumed = resumed.map(|(step, next)| (step, next.epoch, next.batch));
        screen.start(&dir, &settings, &identity, resumed, &placement).map_err(|error| closed(&error))?;
        let mut context = Context::default();
        context.stop = interrupt.stop.clone();
        if self.trace.is_some() {
            context.trace = Trace::with_limit(TRACE_SPANS);
        }
        if self.dashboard {
            screen.open_dashboard(&dir, interrupt);
        }
        let mut broken = None;
        let mut listeners = self.listeners;
        let report = trainer.run(&context, &mut |event| {
            if let Some((dir, error)) = listeners.hear(&event) {
                screen.warn(&messages.with("tensorboard-failed", &[("path", &dir.display()), ("reason", &error)]));
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
            let mut failure = memory_hints(&error, settings.memory.isolated, failure(&error, messages), messages);
            if is_about_data(&error) {
                failure = failure.hint(messages.with("train-hint-corpus", &[("path", &identity.dir)]));
            }
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
        if report.outcome == Outcome::Stopped && !json {
            print(&(messages.with("train-stopped", &[("step", &report.step)]) + "\n"))?;
        }
        Ok(report)
    }
}

pub(crate) fn failure(error: &TrainError, messages: &Messages) -> Failure {
    match error {
        TrainError::Checkpoint(CheckpointError::Mismatch(..)) => {
            Failure::of(USAGE, error).hint(messages.get("train-hint-foreign"))
        }
        // Written while it runs; anything else of a checkpoint is found before it starts.
        TrainError::Checkpoint(CheckpointError::Io(_, reason)) | TrainError::Io(_, reason) => {
            Failure::of(FAILED, error).hint_about(reason, messages)
        }
        TrainError::Checkpoint(_)
        | TrainError::Data(_)
        | TrainError::Locked(_)
        | TrainError::OtherFeatures(..)
        | TrainError::OtherClips(..) => Failure::of(USAGE, error),
        TrainError::Stage(stage) if matches!(stage.kind, ErrorKind::Stalled(_)) => {
            Failure::of(FAILED, error).hint(messages.get("lanes-hint-stall"))
        }
        TrainError::NotFinite(..) => Failure::of(FAILED, error).hint(messages.get("train-hint-nan")),
        TrainError::Ranks(_) => Failure::of(USAGE, error),
        TrainError::Reduce(error) => ranks::reduce_failure(error),
        _ => Failure::of(FAILED, error),
    }
}

/// Whether the clips may be to blame.
fn is_about_data(error: &TrainError) -> bool {
    let TrainError::Stage(stage) = error else { return false };
    let data_lane = Stage::named(&stage.stage).is_none_or(|stage| stage.lane() == Lane::Data);
    data_lane && matches!(stage.kind, ErrorKind::Fatal(_) | ErrorKind::TooManyFaults { .. })
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
    write_chrome_trace(trace, what, output.writer())?;
    output.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Lang;

    /// It had no run yet when this start looked, and has one when the corpus is read.
    #[test]
    fn a_directory_that_another_start_took_meanwhile_is_not_moved_away() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("run");
        let (first, second) = (RunDir::new(path.clone()), RunDir::new(path.clone()));
        first.create().expect("made");
        assert!(first.take().expect("a lock"));
        first.add_to_manifest(&[], json!({})).expect("written");
        let messages = Messages::for_user(Some(Lang::En));
        let screen = Screen::new(true, &messages);
        let refused = take_dir(&second, true, &[], json!({}), &screen, &messages).expect_err("it is not ours");
        assert_eq!(refused.code, USAGE);
        let left: Vec<_> =
            std::fs::read_dir(dir.path()).expect("there").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["run"]);
        // Once nobody has it any more it is moved, and a new one begins.
        drop(first);
        assert!(take_dir(&second, true, &[], json!({}), &screen, &messages).is_ok());
        assert!(dir.path().join("run.1/manifest.json").exists() && path.join("manifest.json").exists());
    }
}
