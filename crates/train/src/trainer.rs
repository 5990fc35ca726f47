//! A run, from the first batch to the final report: the folder, the data lane, the model, the steps, the report.

mod saving;
mod start;
mod steps;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use tandem_audio::MelStats;
use tandem_data::{FoundFault, Loader, Shard};
use tandem_device::memory::MemoryLimitExceeded;
use tandem_device::{FeaturesOn, Lanes};
use tandem_flow::{Context, Cursor, Error, Fault, Flow, Stage, Stop};
use tandem_model::burn::module::Module;
use tandem_model::weights;

use self::steps::{Overflows, StepLoop, caught};
use crate::checkpoint::{self, Checkpoint, CheckpointError, State};
use crate::data::{Data, DataError};
use crate::events::{Event, Outcome, Report, TrainError};
use crate::fault_injection::LaneFault;
use crate::features::{Ready, measure_mel_stats};
use crate::memory;
use crate::monitor::SPANS;
use crate::reduce::{RankFacts, Reduce, Vote, facts};
use crate::run::RunDir;
use crate::settings::TrainConfig;
use crate::step::{Injection, Learner, Stepped};
use crate::task::{Acoustic, Adversarial, PartConfig, SpeechTask, TrainedPart, Vocoder};
use crate::warm_start::Donor;
use crate::window::{lane_busy, share};

/// Speakers that can be requested by name, at most.
const MOST_VOICES: usize = 256;
/// Clips that a validation looks at, at most.
const VALIDATION_CLIPS: usize = 64;

/// Hears what happens.
type OnEvent<'a> = &'a mut dyn FnMut(Event<'_>);

/// A checkpoint that a run resumes from, and where it lies.
#[derive(Clone, Debug)]
pub struct Start {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Its folder.
    pub path: PathBuf,
}

fn same_place(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

/// A run that is about to start or to resume: of the acoustic model or of the vocoder, as its settings say.
pub struct Trainer(Run);

/// The one place that knows which parts there are.
enum Run {
    Acoustic(Box<TaskTrainer<Acoustic>>),
    Vocoder(Box<TaskTrainer<Vocoder>>),
    AdversarialVocoder(Box<TaskTrainer<Vocoder<Adversarial>>>),
}

impl Trainer {
    /// A new run, or one that resumes from `start`.
    pub fn new(
        data: Data,
        settings: TrainConfig,
        run: RunDir,
        lanes: Lanes,
        start: Option<Start>,
    ) -> Result<Trainer, TrainError> {
        Ok(Trainer(match settings.model.part {
            TrainedPart::Acoustic => Run::Acoustic(Box::new(TaskTrainer::new(data, settings, run, lanes, start)?)),
            TrainedPart::Vocoder if settings.model.adversarial => {
                Run::AdversarialVocoder(Box::new(TaskTrainer::new(data, settings, run, lanes, start)?))
            }
            TrainedPart::Vocoder => Run::Vocoder(Box::new(TaskTrainer::new(data, settings, run, lanes, start)?)),
        }))
    }

    /// Makes things go wrong, for tests.
    pub fn inject(&mut self, injection: Injection, lane_fault: Option<LaneFault>) {
        match &mut self.0 {
            Run::Acoustic(trainer) => trainer.inject(injection, lane_fault),
            Run::Vocoder(trainer) => trainer.inject(injection, lane_fault),
            Run::AdversarialVocoder(trainer) => trainer.inject(injection, lane_fault),
        }
    }

    /// Trains as one of several ranks, each with its rows of every batch (SPEC K). Only rank 0 writes to the run's folder.
    /// Returns who they are, by rank.
    ///
    /// # Errors
    ///
    /// On every rank the same: [`TrainError::Ranks`] if they would not train the same, [`TrainError::Reduce`] if one is missing.
    pub fn join(&mut self, reduce: Box<dyn Reduce>, host: &str) -> Result<Vec<RankFacts>, TrainError> {
        match &mut self.0 {
            Run::Acoustic(trainer) => trainer.join(reduce, host),
            Run::Vocoder(trainer) => trainer.join(reduce, host),
            Run::AdversarialVocoder(trainer) => trainer.join(reduce, host),
        }
    }

    /// The model's shapes.
    pub fn config(&self) -> PartConfig {
        match &self.0 {
            Run::Acoustic(trainer) => trainer.task.config(),
            Run::Vocoder(trainer) => trainer.task.config(),
            Run::AdversarialVocoder(trainer) => trainer.task.config(),
        }
    }

    /// Trains until the end, or until `context` is asked to stop. Whatever the reason, what was learned is saved.
    ///
    /// Steps are done by the calling thread. On the CPU it should have called [`tandem_model::kernels::compute_here`] before: the same
    /// steps, faster.
    pub fn run(&mut self, context: &Context, on_event: OnEvent<'_>) -> Result<Report, TrainError> {
        match &mut self.0 {
            Run::Acoustic(trainer) => trainer.run(context, on_event),
            Run::Vocoder(trainer) => trainer.run(context, on_event),
            Run::AdversarialVocoder(trainer) => trainer.run(context, on_event),
        }
    }
}

/// A run of one task.
struct TaskTrainer<T: SpeechTask> {
    task: T,
    settings: TrainConfig,
    data: Data,
    /// Of the training clips; everything that the run reads of them is a view of it.
    loader: Arc<Loader>,
    run: RunDir,
    lanes: Lanes,
    stats: MelStats,
    start: Option<Start>,
    /// Made once the data lane is at work.
    learner: Option<Arc<Mutex<Learner<T>>>>,
    injection: Injection,
    lane_fault: Option<LaneFault>,
    /// The other ranks; the learner has it once there is one.
    reduce: Option<Box<dyn Reduce>>,
    shard: Shard,
    /// Whose weights a run from scratch starts with, and where they come from.
    donor: Option<(Donor, PathBuf)>,
    state: Ongoing,
}

/// What changes from step to step besides the model.
#[derive(Clone, Debug, Default)]
struct Ongoing {
    /// The best validation loss of a step that has a checkpoint, and the step.
    best: Option<(f32, u64)>,
    /// A better one whose checkpoint is still to be written: if that fails, `best` stays.
    better: Option<(f32, u64)>,
    validations_without_progress: u64,
    seconds_before: f64,
    audio_seconds: f64,
    clips: u64,
    saved: Option<u64>,
    overflows: Overflows,
}

impl<T: SpeechTask> TaskTrainer<T> {
    fn new(
        data: Data,
        settings: TrainConfig,
        run: RunDir,
        lanes: Lanes,
        start: Option<Start>,
    ) -> Result<TaskTrainer<T>, TrainError> {
        let corpus = data.corpus.clone();
        let task = T::new(&settings, &data, start.as_ref().map(|start| &start.checkpoint.state))?;
        let donor = match &settings.model.init_from {
            Some(path) if start.is_none() => Some((Donor::open(path, T::PART, &corpus.settings().mel)?, path.clone())),
            _ => None,
        };
        let loader = data.loader(&settings, T::OF_SAMPLES || lanes.placement.features == FeaturesOn::Data)?;
        let (stats, state) = match &start {
            Some(Start { checkpoint, path }) => {
                let start_is_here = same_place(path, &run.checkpoints().path(checkpoint.state.step));
                check_same_run(&checkpoint.state, &settings, &task.config(), &data, path)?;
                let state = Ongoing {
                    best: checkpoint.state.best,
                    better: None,
                    validations_without_progress: checkpoint.state.validations_without_progress,
                    seconds_before: checkpoint.state.seconds,
                    audio_seconds: checkpoint.state.audio_seconds,
                    clips: checkpoint.state.clips,
                    // A checkpoint of another folder is not yet one of this run.
                    saved: start_is_here.then_some(checkpoint.state.step),
                    overflows: Overflows::default(),
                };
                (checkpoint.state.stats.clone(), state)
            }
            None => {
                let stats = measure_mel_stats(&loader).ok_or(DataError::NoStatistics)?;
                (stats, Ongoing::default())
            }
        };
        let (learner, injection, lane_fault) = (None, Injection::default(), None);
        Ok(TaskTrainer {
            task,
            settings,
            data,
            loader,
            run,
            lanes,
            stats,
            start,
            learner,
            injection,
            lane_fault,
            reduce: None,
            shard: Shard::default(),
            donor,
            state,
        })
    }

    /// Whether this is the rank that writes.
    fn writes(&self) -> bool {
        self.shard.rank == 0
    }

    fn join(&mut self, mut reduce: Box<dyn Reduce>, host: &str) -> Result<Vec<RankFacts>, TrainError> {
        let start = self.start.as_ref().map(|start| &start.checkpoint);
        let placement = &self.lanes.placement;
        let lanes = [&placement.data, &placement.model];
        let own = RankFacts {
            rank: reduce.rank(),
            host: host.to_owned(),
            data_device: placement.data.label(),
            model_device: placement.model.label(),
            gpus: lanes.iter().filter_map(|lane| lane.physical).collect(),
            same: facts::same(&self.settings, &self.data.identity(), start, &self.stats),
        };
        let gathered = reduce.gather(&serde_json::to_vec(&own).expect("plain values")).map_err(TrainError::Reduce)?;
        let ranks: Vec<RankFacts> = gathered.iter().filter_map(|bytes| serde_json::from_slice(bytes).ok()).collect();
        facts::check(&ranks, reduce.world(), self.settings.data.batch_size).map_err(TrainError::Ranks)?;
        self.shard = Shard { rank: reduce.rank(), world: reduce.world() };
        self.reduce = Some(reduce);
        Ok(ranks)
    }

    fn inject(&mut self, injection: Injection, lane_fault: Option<LaneFault>) {
        (self.injection, self.lane_fault) = (injection, lane_fault);
    }

    /// Steps that the run has when it is finished.
    fn total_steps(&self, batches: usize) -> u64 {
        let all = self.settings.run.epochs.saturating_mul(batches as u64);
        self.settings.run.max_steps.map_or(all, |most| most.min(all))
    }

    fn lock(&self) -> MutexGuard<'_, Learner<T>> {
        let learner = self.learner.as_ref().expect("made before the first step");
        learner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&mut self, context: &Context, on_event: OnEvent<'_>) -> Result<Report, TrainError> {
        let mut reported = false;
        let result = self.run_and_report(context, on_event, &mut reported);
        if let Err(error) = &result
            && !reported
            && self.writes()
            && !matches!(error, TrainError::Locked(_))
        {
            // It failed before its first step; there is nothing else to report.
            let _ = self.run.write_report(&json!({"ending": Outcome::Failed, "error": error.to_string()}));
        }
        result
    }

    fn run_and_report(
        &mut self,
        context: &Context,
        on_event: OnEvent<'_>,
        reported: &mut bool,
    ) -> Result<Report, TrainError> {
        let started = Instant::now();
        let (first_step, start) = match &self.start {
            Some(Start { checkpoint, .. }) => (checkpoint.state.step, checkpoint.state.next.into()),
            None => (0, Cursor::START),
        };
        self.take_dir(first_step, on_event)?;
        let mut context = context.clone();
        let asked = context.stop.clone();
        if self.shard.world > 1 {
            // Ranks stop together: that one was asked to is agreed on before the next step.
            context.stop = Stop::new();
        }
        if self.settings.pipeline.stall_timeout > 0.0 {
            context.stall_timeout = Some(Duration::from_secs_f64(self.settings.pipeline.stall_timeout));
        }
        context.trace.keep_recent(SPANS);
        let (mut steps_loop, mut flow) = self.get_ready(&context, asked, started, first_step, start, on_event)?;
        let mut trained = self.train(&context, &mut flow, &mut steps_loop, on_event);
        // What was learned is safe before a lane that may hang is waited for.
        if trained.is_err() {
            let _ = self.save(started, on_event);
        }
        steps_loop.monitor.write(&context);
        drop(flow);
        let flushed = caught(|| self.flush(&mut steps_loop, on_event))
            .and_then(|_| steps_loop.log.catch_up().map_err(|error| TrainError::Io(self.run.log_path(), error)));
        // What went wrong first is what is reported.
        trained = trained.and_then(|ending| flushed.map(|()| ending));
        let saved = self.save(started, on_event);
        let report = self.report(&context, &mut steps_loop, &trained);
        let written = match self.writes() {
            true => self.run.write_report(&report).map_err(|error| TrainError::Io(self.run.report_path(), error)),
            false => Ok(()),
        };
        *reported = true;
        trained?;
        written?;
        saved?;
        Ok(report)
    }

    /// What the run was, when it is over.
    fn report(&self, context: &Context, steps_loop: &mut StepLoop<T>, trained: &Result<Outcome, TrainError>) -> Report {
        let step = self.lock().steps();
        let seconds = steps_loop.started.elapsed().as_secs_f64();
        let (train, transfer) = (context.stage(Stage::Train), context.stage(Stage::Transfer));
        Report {
            outcome: *trained.as_ref().unwrap_or(&Outcome::Failed),
            error: trained.as_ref().err().map(ToString::to_string),
            step,
            planned: steps_loop.steps,
            steps: step - steps_loop.first_step,
            seconds,
            total_seconds: self.state.seconds_before + seconds,
            audio_seconds: self.state.audio_seconds,
            loss: steps_loop.last_loss,
            readings: steps_loop.readings,
            best: self.state.best,
            parameters: steps_loop.parameters,
            starved: train.as_ref().map_or(0.0, |train| share(train.wait_in.total, train.busy.total)),
            peak_bytes: memory::peak_bytes(),
            alignment_share: train.as_ref().map_or(0.0, |train| {
                // Of the whole process; a vocoder searches for nothing.
                let searches = T::PART == TrainedPart::Acoustic;
                let search = if searches { tandem_model::alignment_seconds() } else { 0.0 };
                if train.busy.total > 0.0 { search / train.busy.total } else { 0.0 }
            }),
            data_busy: lane_busy(context, &Stage::PREPARING, seconds),
            model_busy: lane_busy(context, &[Stage::Train], seconds),
            cpu_percent: steps_loop.cpu.read().process.value().copied(),
            transferred_bytes: transfer.as_ref().map_or(0, |transfer| transfer.bytes),
            transfer_seconds: transfer.as_ref().map_or(0.0, |transfer| transfer.busy.total),
            lanes: std::mem::take(&mut steps_loop.memory),
            stages: context.stages(),
            verdict: steps_loop.monitor.last.as_ref().map(|last| last.verdict.clone()),
            queues: context.queues(),
            skipped: steps_loop.feed.skipped(),
        }
    }

    fn train_stage(
        &self,
        context: &Context,
        feed: Flow<Ready<T::Inputs>>,
        asked: Stop,
        wishes: Wishes,
    ) -> Flow<Stepped> {
        let context = context.clone();
        let learner = self.learner.clone().expect("made before its first batch");
        let loader = self.loader.clone();
        feed.stage(Stage::Train, move |ready| {
            let mut learner = learner.lock().unwrap_or_else(PoisonError::into_inner);
            // One process has no need to ask itself: it stops in the loop that pulls.
            let together = learner.world() > 1;
            let wish = Vote {
                stop: together && asked.reason().is_some(),
                early_stop: together && wishes.early_stop.load(Ordering::Relaxed),
                new_faults: if together { loader.ledger().untold() as u64 } else { 0 },
                ..Vote::default()
            };
            let cursor = ready.cursor;
            let stepped = learner.step_together(ready, wish).map_err(TrainError::Reduce);
            let stepped = stepped.and_then(|stepped| share_faults(&mut learner, &loader, cursor).map(|()| stepped));
            let stepped = stepped.map_err(|error| {
                let fault = Fault::new(error.to_string()).fatal();
                *wishes.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                fault
            })?;
            if let Stepped::Done(record) = &stepped {
                let (now, here) = (context.clock.now(), Instant::now());
                let on_clock = |at: &Instant| now.saturating_sub(here - *at);
                for (start, end) in &record.waits {
                    context.record(Stage::Reduce, record.cursor, on_clock(start), on_clock(end));
                }
            }
            Ok(stepped)
        })
    }
}

/// What the loop that pulls and the step that it pulls say to each other.
#[derive(Clone, Debug, Default)]
struct Wishes {
    /// Validation does not get better any more.
    early_stop: Arc<AtomicBool>,
    /// Why ranks cannot go on together, or what they found together.
    failed: Arc<Mutex<Option<TrainError>>>,
}

/// Tells all ranks which clips this one found to be bad, and hears of theirs: too many are too many wherever they were found. Only when
/// there are new ones is there a message.
fn share_faults<T: SpeechTask>(learner: &mut Learner<T>, loader: &Loader, cursor: Cursor) -> Result<(), TrainError> {
    let own = || serde_json::to_vec(&loader.ledger().tell()).expect("plain values");
    for found in learner.share_faults(own).map_err(TrainError::Reduce)? {
        // All ranks are of one version (`facts.rs`).
        let found: Vec<FoundFault> = serde_json::from_slice(&found).unwrap_or_default();
        loader.hear(&found).map_err(|fault| too_many(fault, cursor))?;
    }
    Ok(())
}

/// More clips are bad than is tolerated.
fn too_many(fault: Fault, cursor: Cursor) -> TrainError {
    TrainError::Stage(Error::from_fault(&Stage::Count.name().into(), cursor, fault))
}

fn too_much(error: MemoryLimitExceeded) -> TrainError {
    TrainError::Memory(error, Vec::new())
}

fn check_same_run(
    state: &State,
    settings: &TrainConfig,
    config: &PartConfig,
    data: &Data,
    path: &Path,
) -> Result<(), TrainError> {
    let mut lines = settings.differences(&state.settings);
    lines.extend(data.identity().differences(&state.data));
    lines.extend(checkpoint::frontend_differences(data.corpus.frontend(), &state.frontend));
    if state.mel != data.corpus.settings().mel {
        lines.push("features: other mel settings here than in the checkpoint".to_owned());
    }
    if lines.is_empty() {
        lines.extend(config.differences(&state.model));
    }
    if lines.is_empty() {
        return Ok(());
    }
    Err(CheckpointError::Mismatch(path.to_owned(), lines).into())
}

/// Parameters of each part of the model.
pub fn parameter_parts(model: &impl Module) -> Vec<(String, usize)> {
    let mut parts: Vec<(String, usize)> = Vec::new();
    for info in weights::parameters(model) {
        let part = info.name.split('.').next().unwrap_or_default().to_owned();
        match parts.iter_mut().find(|(name, _)| *name == part) {
            Some((_, count)) => *count += info.count,
            None => parts.push((part, info.count)),
        }
    }
    parts
}
