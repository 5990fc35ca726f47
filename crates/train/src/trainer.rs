//! A run, from the first batch to the final report: the folder, the data lane, the model, the steps, the report.

mod saving;
mod steps;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use tandem_audio::MelStats;
use tandem_data::{FoundFault, Loader, Shard};
use tandem_device::memory::MemoryLimitExceeded;
use tandem_device::probes::CpuMeter;
use tandem_device::{FeaturesOn, Lanes};
use tandem_flow::{Context, Cursor, Error, Fault, Flow, Place, Stage, Stop};
use tandem_model::Device;
use tandem_model::burn::module::Module;
use tandem_model::weights;

use self::steps::{Overflows, StepLoop, caught};
use crate::checkpoint::{self, Checkpoint, CheckpointError, State};
use crate::data::{Data, DataError};
use crate::events::{Event, Outcome, Report, TrainError};
use crate::fault_injection::LaneFault;
use crate::features::{Ready, measure_mel_stats};
use crate::feed::{Budgets, Feed};
use crate::guard::{Guard, guards};
use crate::memory;
use crate::monitor::{Monitor, SPANS};
use crate::preflight::preflight;
use crate::reduce::{RankFacts, Reduce, Vote, facts};
use crate::run::{Log, RunDir};
use crate::settings::TrainConfig;
use crate::step::{Injection, Learner, Stepped, learning_device};
use crate::task::{Acoustic, Adversarial, PartConfig, SpeechTask, TrainedPart, Vocoder};
use crate::warm_start::{Donor, match_weights};
use crate::window::{Window, lane_busy, share};
use tandem_data::files::write_atomically;

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

    /// Builds the model on the model lane's device, new or as the checkpoint has it, and sees that all of it is there.
    fn build(&mut self, guard: &mut Guard, on_event: OnEvent<'_>) -> Result<(), TrainError> {
        // Its values are made on the host: nothing is on the device before it is known to fit.
        let host = Learner::with_task(self.task.clone(), &self.settings, &Device::flex());
        let on_host = self.lanes.model == Device::flex();
        let parameters = weights::parameters(host.model()).iter().map(|info| info.count).sum();
        guard.admit_model(parameters).map_err(too_much)?;
        let mut learner = match self.start.take() {
            None if on_host => host,
            None => Learner::with_task(self.task.clone(), &self.settings, &self.lanes.model),
            Some(Start { checkpoint, path }) => {
                let foreign = |error: weights::WeightsError| {
                    TrainError::Checkpoint(CheckpointError::Mismatch(path.clone(), vec![error.to_string()]))
                };
                let mut learner = Learner::with_task(self.task.clone(), &self.settings, &self.lanes.model);
                learner.restore(&checkpoint).map_err(foreign)?;
                learner
            }
        };
        if let Some((donor, path)) = self.donor.take() {
            let vocabulary = &self.data.corpus.frontend().vocabulary;
            let (weights, tensors) = match_weights(weights::export(learner.model()), vocabulary, &donor);
            learner.warm_start(&weights).expect("names and shapes are the model's own");
            on_event(Event::WarmStart { path: &path, step: donor.step, tensors: &tensors });
        }
        let frozen = self.settings.model.frozen();
        if !frozen.is_empty() {
            learner.freeze(&frozen);
        }
        if let Some(reduce) = self.reduce.take() {
            learner.join(reduce);
            let seconds = self.settings.pipeline.stall_timeout;
            learner.set_stall_timeout((seconds > 0.0).then(|| Duration::from_secs_f64(seconds)));
        }
        learner.injection = self.injection;
        let misplaced = learner.misplaced();
        if !misplaced.is_empty() {
            return Err(TrainError::Misplaced(misplaced));
        }
        self.learner = Some(Arc::new(Mutex::new(learner)));
        Ok(())
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

    /// Makes the folder the run's own: nobody else writes to it, and nothing in it is of another history.
    fn take_dir(&self, first_step: u64, on_event: OnEvent<'_>) -> Result<(), TrainError> {
        let io = |path: PathBuf| move |error| TrainError::Io(path, error);
        if !self.writes() {
            return Ok(());
        }
        self.run.create().map_err(io(self.run.path().to_owned()))?;
        if !self.run.take().map_err(io(self.run.path().join("lock")))? {
            return Err(TrainError::Locked(self.run.path().to_owned()));
        }
        // That of an earlier start says nothing about this one.
        let _ = std::fs::remove_file(self.run.report_path());
        let checkpoints = self.run.checkpoints();
        self.run.sweep();
        // What came after the start, or is of the same step and another history, is not part of this run any more.
        let later = |step: &u64| *step > first_step || (*step == first_step && self.state.saved.is_none());
        for step in checkpoints.steps().into_iter().filter(later) {
            let to = checkpoints.archive(step)?;
            on_event(Event::Archived { step, path: &to });
        }
        checkpoints.correct_best(self.state.best.map(|(_, step)| step))?;
        if self.task.reference_frames().is_some() && (first_step == 0 || !self.run.voices_path().exists()) {
            let voices = self.data.voices(&self.loader, &self.stats, MOST_VOICES);
            let bytes = weights::to_bytes(&voices).expect("plain tensors");
            write_atomically(&self.run.voices_path(), &bytes).map_err(io(self.run.voices_path()))?;
        }
        Ok(())
    }

    /// Starts the data lane, builds the model while it works, and waits until it is ahead.
    fn get_ready(
        &mut self,
        context: &Context,
        asked: Stop,
        started: Instant,
        first_step: u64,
        start: Cursor,
        on_event: OnEvent<'_>,
    ) -> Result<(StepLoop<T>, Flow<Stepped>), TrainError> {
        if let (Some(predictor), Some(path)) = (self.task.predictor(), &self.settings.model.predicted_by) {
            let from = self.settings.model.predictions_from;
            on_event(Event::Predictions { path, step: predictor.step, from });
        }
        // The data lane first: batches are made while the model gets ready.
        let (settings, lanes) = (&self.settings, &self.lanes);
        let budgets = Budgets::new(settings.memory.host_limit, settings.memory.data_limit, settings.memory.model_limit);
        let device = learning_device(&lanes.model, settings);
        let task = self.task.clone();
        let mut feed = Feed::with_loader(
            &self.loader,
            &self.data,
            settings,
            &self.stats,
            task,
            lanes,
            &device,
            &budgets,
            self.shard,
        )?;
        feed.fail(self.lane_fault);
        let (data_guard, mut model_guard) = guards(&feed, settings, lanes, &budgets);
        let (longest_host, longest_data) = feed.longest_bytes();
        data_guard.check_against(0, longest_data, "the longest batch").map_err(too_much)?;
        let batches = feed.batches();
        let steps = self.total_steps(batches);
        let feeding = feed.flow(context, start, self.settings.run.epochs);
        let lane_started = context.clock.now();
        on_event(Event::DataLane {
            buffer_bytes: (feed.buffer_size() * longest_host).min(settings.memory.host_limit) as u64,
        });

        // Then the model.
        on_event(Event::Placing);
        self.build(&mut model_guard, on_event)?;
        self.save(started, on_event)?;
        let log = match self.writes() {
            true => Log::open(&self.run.log_path(), first_step),
            false => Ok(Log::nowhere()),
        };
        let log = log.map_err(|error| TrainError::Io(self.run.log_path(), error))?;
        let parts = parameter_parts(self.lock().model());
        let at = &self.lanes.placement.model;
        on_event(Event::Model { parts: &parts, device: format!("{} ({}, {})", at.label(), at.name, at.backend) });
        let wishes = Wishes::default();
        let flow = self.train_stage(context, feeding, asked, wishes.clone());
        let validation = feed.validation(&self.data, &self.settings, VALIDATION_CLIPS)?;
        if first_step < steps {
            // On memory of its own the longest batch is tried while the data lane gets ahead; otherwise after that, so
            // that what it takes can be distinguished from what the data lane takes.
            if model_guard.shares_host() {
                self.warm_up(context, lane_started, &feed, on_event)?;
                if model_guard.limit().is_some() {
                    wait_until_quiet(context);
                }
                self.preflight(&feed, &data_guard, &mut model_guard, on_event)?;
            } else {
                self.preflight(&feed, &data_guard, &mut model_guard, on_event)?;
                self.warm_up(context, lane_started, &feed, on_event)?;
            }
            data_guard.check_now("the first batches").map_err(too_much)?;
            if context.stop.reason().is_none() {
                let seconds = (context.clock.now() - lane_started).as_secs_f64();
                on_event(Event::Starting { ready: waiting_in(context, Place::Host), of: feed.buffer_size(), seconds });
            }
            feed.open_prefetch_buffer();
        }
        let steps_loop = StepLoop {
            started,
            first_step,
            steps,
            batches: batches as u64,
            expected: start,
            parameters: parts.iter().map(|(_, count)| count).sum(),
            tuner: feed.autotune(context),
            feed,
            data_guard,
            model_guard,
            log,
            validation,
            cpu: CpuMeter::new(),
            memory: Vec::new(),
            pending: Vec::new(),
            window: Window::new(context),
            monitor: Monitor::new(self.writes().then_some(&self.run), first_step),
            wishes,
            micro_batches: self.lock().micro_batches(),
            last_loss: None,
            validated: None,
            readings: 0,
        };
        Ok((steps_loop, flow))
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

    /// Sees that the longest batch fits, in micro-batches if need be.
    fn preflight(
        &self,
        feed: &Feed<T>,
        data_guard: &Guard,
        guard: &mut Guard,
        on_event: OnEvent<'_>,
    ) -> Result<(), TrainError> {
        let Some(longest) = feed.longest() else { return Ok(()) };
        data_guard.check_now("the longest batch").map_err(too_much)?;
        let mut learner = self.lock();
        let before = learner.micro_batches();
        let (preflight, _) = caught(|| preflight(&longest, &mut learner, guard))?;
        // Also when an earlier start had to split them.
        if learner.micro_batches() > self.settings.optimizer.grad_accum {
            let (step, micro_batches) = (learner.steps() + 1, learner.micro_batches());
            on_event(Event::Split { step, micro_batches, kept: micro_batches == before });
        }
        on_event(Event::Preflight(&preflight));
        Ok(())
    }

    /// SPEC M6: the model starts when the data lane is ahead, at the latest after a while, and never without a batch
    /// (for that its first step waits by itself).
    fn warm_up(
        &self,
        context: &Context,
        since: Duration,
        feed: &Feed<T>,
        on_event: OnEvent<'_>,
    ) -> Result<(), TrainError> {
        let (of, delay) = (feed.buffer_size(), self.settings.pipeline.model_start_delay);
        let ready = || waiting_in(context, Place::Host);
        let waited = || (context.clock.now() - since).as_secs_f64();
        if waited() < delay && ready() < of {
            on_event(Event::Warming { seconds: delay - waited(), ready: ready(), of });
        }
        let patience = context.stall_timeout.map_or(f64::INFINITY, |timeout| timeout.as_secs_f64());
        while context.stop.reason().is_none() {
            let queues = context.queues();
            // Without a queue the first step makes its batch itself.
            let first_is_there = (queues.iter().find(|queue| *queue.name == Place::Model))
                .is_none_or(|queue| queue.items > 0 || queue.closed);
            // There may be less than a queue full, or nothing: all that was left may be bad.
            let is_all = queues.iter().any(|queue| *queue.name == Place::Host && queue.closed);
            if first_is_there && (ready() >= of || is_all || waited() >= delay) {
                break;
            }
            if !first_is_there && waited() >= delay.max(patience) {
                return Err(TrainError::Stage(context.stalled(Duration::from_secs_f64(waited()))));
            }
            context.clock.sleep(Duration::from_millis(5));
        }
        Ok(())
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

/// Batches that wait in a queue.
fn waiting_in(context: &Context, place: Place) -> usize {
    context.queues().iter().find(|queue| *queue.name == place).map_or(0, |queue| queue.items)
}

/// Waits until the data lane has filled its queues and rests, but not long: a slow one never does.
fn wait_until_quiet(context: &Context) {
    const LOOK: Duration = Duration::from_millis(40);
    let pushed = || context.queues().iter().map(|queue| queue.pushed).sum::<u64>();
    let mut before = pushed();
    for _ in 0..50 {
        context.clock.sleep(LOOK);
        let now = pushed();
        if now == before {
            return;
        }
        before = now;
    }
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
