//! A run, from the first batch to the final report. Reads top to bottom: feed → step → record.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use tandem_device::Lanes;
use tandem_device::memory::{LaneMemory, MemoryLimitExceeded};
use tandem_device::probes::CpuMeter;
use tandem_flow::{Context, Cursor, ErrorKind, Flow};
use tandem_model::weights;
use tandem_model::{Device, ModelConfig, REFERENCE_FRAMES, Voice};
use tandem_observe::spectrogram_png;

use crate::checkpoint::{Checkpoint, CheckpointError, FORMAT, State, write_atomically};
use crate::events::{Ending, Event, Report, TrainError};
use crate::fault::LaneFault;
use crate::features::{MelStats, Prepared, Ready};
use crate::feed::{Budgets, DATA_LANE, Data, Feed, MODEL_LANE};
use crate::guard::{Guard, guards};
use crate::memory;
use crate::monitor::{Monitor, SPANS, Surroundings};
use crate::preflight::preflight;
use crate::run::{Log, RunFolder};
use crate::settings::{NanPolicy, TrainSettings, validation_queue};
use crate::speech::Speech;
use crate::step::{Injection, Learner, StepRecord, StepValues, learning_device};
use crate::validation::{plain, validation_losses};
use crate::window::{Window, lane_busy, share};

/// Speakers that can be asked for by name, at most.
const MOST_VOICES: usize = 256;
/// A loss scale that was halved so often is as small as it gets: it is not the scale.
const MOST_OVERFLOWS: u32 = 40;
/// SPEC T9: steps between two looks at the lanes' memory that are told.
const MEMORY_EVERY: u64 = 100;
/// Clips that a validation looks at, at most.
const VALIDATION_CLIPS: usize = 64;

/// A checkpoint that a run goes on from, and where it lies.
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

/// A run that is about to begin, or to go on.
pub struct Trainer {
    settings: TrainSettings,
    data: Data,
    run: RunFolder,
    lanes: Lanes,
    config: ModelConfig,
    stats: MelStats,
    start: Option<Start>,
    /// Made once the data lane is at work.
    learner: Option<Arc<Mutex<Learner>>>,
    injection: Injection,
    lane_fault: Option<LaneFault>,
    state: Ongoing,
}

/// What changes from step to step besides the model.
#[derive(Clone, Debug, Default)]
struct Ongoing {
    best: Option<(f32, u64)>,
    stale: u64,
    seconds_before: f64,
    audio_seconds: f64,
    saved: Option<u64>,
    /// Steps in a row that half precision could not do.
    overflows: u32,
}

impl Trainer {
    /// A new run, or one that goes on from `start`.
    pub fn new(
        data: Data,
        settings: TrainSettings,
        run: RunFolder,
        lanes: Lanes,
        start: Option<Start>,
    ) -> Result<Trainer, TrainError> {
        let corpus = data.corpus.clone();
        let reference = corpus.speakers().len() > 1;
        let config =
            ModelConfig::new(settings.size, corpus.tokenizer().size(), corpus.settings().mel.n_mels, reference);
        let (stats, state) = match &start {
            Some(Start { checkpoint, path }) => {
                let start_is_here = same_place(path, &run.checkpoints().path(checkpoint.state.step));
                check_same_run(&checkpoint.state, &settings, &config, &data, path)?;
                let state = Ongoing {
                    best: checkpoint.state.best,
                    stale: checkpoint.state.stale,
                    seconds_before: checkpoint.state.seconds,
                    audio_seconds: checkpoint.state.audio_seconds,
                    // A checkpoint of another folder is not yet one of this run.
                    saved: start_is_here.then_some(checkpoint.state.step),
                    overflows: 0,
                };
                (checkpoint.state.stats.clone(), state)
            }
            None => {
                let loader = data.loader(&settings, None).map_err(TrainError::Data)?;
                let stats = MelStats::measure(&loader)
                    .ok_or_else(|| TrainError::Data("not one of the first clips can be read".to_owned()))?;
                (stats, Ongoing::default())
            }
        };
        let (learner, injection, lane_fault) = (None, Injection::default(), None);
        Ok(Trainer { settings, data, run, lanes, config, stats, start, learner, injection, lane_fault, state })
    }

    /// Makes things go wrong, for tests.
    pub fn inject(&mut self, injection: Injection, lane_fault: Option<LaneFault>) {
        (self.injection, self.lane_fault) = (injection, lane_fault);
    }

    /// The model's shapes.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Steps that the run has when it is finished.
    pub fn total_steps(&self, batches: usize) -> u64 {
        let all = self.settings.epochs.saturating_mul(batches as u64);
        self.settings.max_steps.map_or(all, |most| most.min(all))
    }

    fn lock(&self) -> MutexGuard<'_, Learner> {
        let learner = self.learner.as_ref().expect("made before the first step");
        learner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Builds the model on the model lane's device, new or as the checkpoint has it, and sees that all of it is there.
    fn build(&mut self, guard: &mut Guard) -> Result<(), TrainError> {
        // Its values are made on the host: nothing is on the device before it is known to fit.
        let host = Learner::new(&self.config, &self.settings, &Device::flex());
        let on_host = self.lanes.model == Device::flex();
        let parameters = weights::parameters(host.model()).iter().map(|info| info.count).sum();
        guard.admit_model(parameters).map_err(|error| TrainError::Memory(error, Vec::new()))?;
        let mut learner = match self.start.take() {
            None if on_host => host,
            None => Learner::new(&self.config, &self.settings, &self.lanes.model),
            Some(Start { checkpoint, path }) => {
                let foreign = |error: weights::WeightsError| {
                    TrainError::Checkpoint(CheckpointError::Foreign(path.clone(), vec![error.to_string()]))
                };
                Learner::resume(&checkpoint, &self.settings, &self.lanes.model).map_err(foreign)?
            }
        };
        learner.injection = self.injection;
        let misplaced = learner.misplaced();
        if !misplaced.is_empty() {
            return Err(TrainError::Misplaced(misplaced));
        }
        self.learner = Some(Arc::new(Mutex::new(learner)));
        Ok(())
    }

    /// Trains until the end, or until `context` is asked to stop. Whatever the reason, what was learned is saved.
    pub fn run(&mut self, context: &Context, on_event: &mut dyn FnMut(Event<'_>)) -> Result<Report, TrainError> {
        let mut reported = false;
        let result = self.run_and_report(context, on_event, &mut reported);
        if let Err(error) = &result
            && !reported
            && !matches!(error, TrainError::Locked(_))
        {
            // It failed before its first step; there is nothing else to tell.
            let _ = self.run.write_report(&json!({"ending": Ending::Failed, "error": error.to_string()}));
        }
        result
    }

    fn run_and_report(
        &mut self,
        context: &Context,
        on_event: &mut dyn FnMut(Event<'_>),
        reported: &mut bool,
    ) -> Result<Report, TrainError> {
        let started = Instant::now();
        let (first_step, start) = match &self.start {
            Some(Start { checkpoint, .. }) => (checkpoint.state.step, checkpoint.state.next.into()),
            None => (0, Cursor::START),
        };
        let io = |path: std::path::PathBuf| move |error| TrainError::Io(path, error);
        self.run.create().map_err(io(self.run.path().to_owned()))?;
        let lock = self.run.lock().map_err(io(self.run.path().join("lock")))?;
        let Some(_lock) = lock else { return Err(TrainError::Locked(self.run.path().to_owned())) };
        // That of an earlier start does not tell about this one.
        let _ = std::fs::remove_file(self.run.report_path());
        let checkpoints = self.run.checkpoints();
        checkpoints.sweep();
        // What came after the start, or is of the same step and another history, is not part of this run any more.
        let later = |step: &u64| *step > first_step || (*step == first_step && self.state.saved.is_none());
        for step in checkpoints.steps().into_iter().filter(later) {
            let to = checkpoints.set_aside(step)?;
            on_event(Event::SetAside { step, path: &to });
        }
        checkpoints.correct_best(self.state.best.map(|(_, step)| step))?;
        if self.config.reference && (first_step == 0 || !self.run.voices_path().exists()) {
            let voices = self.data.voices(&self.settings, &self.stats, MOST_VOICES).map_err(TrainError::Data)?;
            let bytes = weights::to_bytes(&voices).expect("plain tensors");
            write_atomically(&self.run.voices_path(), &bytes).map_err(io(self.run.voices_path()))?;
        }

        // The data lane first: batches are made while the model gets ready.
        let mut context = context.clone();
        if self.settings.stall_timeout > 0.0 {
            context.stall_timeout = Some(Duration::from_secs_f64(self.settings.stall_timeout));
        }
        context.trace.keep_recent(SPANS);
        let context = &context;
        let (settings, lanes) = (&self.settings, &self.lanes);
        let budgets = Budgets::new(settings.memory_limit, settings.data_limit, settings.model_limit);
        let reference = self.config.reference.then_some(REFERENCE_FRAMES);
        let device = learning_device(&lanes.model, settings);
        let shape = (self.config.decoder.group, reference);
        let mut feed =
            Feed::new(&self.data, settings, &self.stats, shape, lanes, &device, &budgets).map_err(TrainError::Data)?;
        feed.fail(self.lane_fault);
        let (mut data_guard, mut model_guard) = guards(&feed, settings, lanes, &budgets);
        let too_much = |error: MemoryLimitExceeded| TrainError::Memory(error, Vec::new());
        let (longest_host, longest_data) = feed.longest_bytes();
        data_guard.check_against(0, longest_data, "the longest batch").map_err(too_much)?;
        let batches = feed.batches();
        let steps = self.total_steps(batches);
        let feeding = feed.flow(context, start, self.settings.epochs);
        let lane_started = context.clock.now();
        on_event(Event::DataLane { buffer_bytes: (feed.buffer() * longest_host).min(settings.memory_limit) as u64 });

        // Then the model.
        on_event(Event::Placing);
        self.build(&mut model_guard)?;
        self.save(started, on_event)?;
        let mut log = Log::open(&self.run.log_path(), first_step).map_err(io(self.run.log_path()))?;
        let parts = parameter_parts(self.lock().model());
        let parameters = parts.iter().map(|(_, count)| count).sum();
        let at = &self.lanes.placement.model;
        on_event(Event::Model { parts: &parts, device: format!("{} ({}, {})", at.label(), at.name, at.backend) });
        let mut flow = self.train_stage(feeding);
        let validation =
            feed.validation(&self.data, &self.settings, reference, VALIDATION_CLIPS).map_err(TrainError::Data)?;
        if first_step < steps {
            // On memory of its own the longest batch is tried while the data lane gets ahead; otherwise after that, so
            // that what it takes can be told from what the data lane takes.
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
                on_event(Event::Starting { ready: waiting_in(context, "host"), of: feed.buffer(), seconds });
            }
            feed.open_device_queue();
        }
        let mut tuner = feed.autotune(context);
        let mut cpu = CpuMeter::new();
        let mut memory_readings: Vec<LaneMemory> = Vec::new();

        let mut pending: Vec<StepRecord> = Vec::new();
        let mut window = Window::new(context);
        let mut monitor = Monitor::new(&self.run, first_step);
        let mut parts_now = self.lock().parts();
        let mut last_loss = None;
        let is_stale = self.settings.patience > 0 && self.state.stale >= self.settings.patience;
        let mut ending = if is_stale { Ending::Stale } else { Ending::Finished };
        let mut failure = None;
        while ending == Ending::Finished && self.lock().steps() < steps {
            // feed → step
            let record = match flow.next() {
                None => break,
                Some(Ok(record)) => record.value,
                Some(Err(error)) if matches!(error.kind, ErrorKind::Stopped(_)) => {
                    ending = Ending::Stopped;
                    break;
                }
                Some(Err(error)) => {
                    failure = Some(match (&error.kind, &*error.stage) {
                        (ErrorKind::OverLimit(over), MODEL_LANE) => too_much(model_guard.refused(over)),
                        (ErrorKind::OverLimit(over), DATA_LANE) => too_much(data_guard.refused(over)),
                        _ => TrainError::Stage(error),
                    });
                    break;
                }
            };
            // → record
            let (step, epoch) = (record.step, record.cursor.epoch);
            let end_of_epoch = record.cursor.batch + 1 >= batches as u64;
            self.state.audio_seconds += record.seconds;
            window.add(&record);
            monitor.add_clips(record.clips.len());
            if record.parts != parts_now {
                parts_now = record.parts;
                on_event(Event::Split { step, parts: parts_now, kept: false });
            }
            pending.push(record);
            memory_readings.clear();
            for guard in [&mut data_guard, &mut model_guard] {
                match guard.look(step) {
                    Ok((reading, leak)) => {
                        if let Some(leak) = leak {
                            on_event(Event::Leak { step, device: guard.label().to_owned(), leak: &leak });
                        }
                        memory_readings.push(reading);
                    }
                    Err(error) => failure = failure.or(Some(TrainError::Memory(error, Vec::new()))),
                }
            }
            if failure.is_some() {
                break;
            }
            if step.is_multiple_of(MEMORY_EVERY) {
                on_event(Event::Memory { step, lanes: &memory_readings });
            }
            if self.settings.autotune
                && let Some(decision) = tuner.step()
                && decision.is_move()
            {
                on_event(Event::Tuned(&decision));
            }
            let due = |every: u64| every > 0 && step.is_multiple_of(every);
            let validate = self.settings.validate_every.map_or(end_of_epoch, due) || step == steps;
            let save = due(self.settings.checkpoint_every) || step == steps;
            if due(self.settings.log_every) || validate || save || pending.len() >= 1000 {
                match caught(|| self.flush(&mut pending, &mut log, on_event)) {
                    Ok(Some(values)) => {
                        last_loss = Some(values.loss);
                        let progress = window.close(context, step, steps, epoch, &values, &self.settings);
                        on_event(Event::Progress(&progress));
                        let around = Surroundings {
                            feed: &feed,
                            settings: &self.settings,
                            placement: &self.lanes.placement,
                            lanes: &memory_readings,
                            audio_seconds: self.state.audio_seconds,
                            seconds_before: self.state.seconds_before,
                            done: step - first_step,
                        };
                        let notices = monitor.look(context, &progress, &around);
                        if let Some(snapshot) = &monitor.last {
                            on_event(Event::Look(snapshot));
                        }
                        for notice in &notices {
                            on_event(Event::Notice { step, notice });
                        }
                    }
                    Ok(None) => {}
                    Err(error) => failure = Some(error),
                }
            }
            if failure.is_some() {
                break;
            }
            if validate {
                match caught(|| self.validate(&validation, step, &mut log, on_event)) {
                    Ok(loss) => monitor.validation = Some(loss),
                    Err(error) => {
                        failure = Some(error);
                        break;
                    }
                }
            }
            if save || (validate && self.state.best.is_some_and(|(_, best)| best == step)) {
                // A failure was told; the next checkpoint may succeed.
                let _ = self.save(started, on_event);
            }
            if due(self.settings.sample_every) {
                // A sample that cannot be made is told; the run goes on.
                let made = caught(|| {
                    self.sample(&validation, step, on_event);
                    Ok(())
                });
                if let Err(error) = made {
                    on_event(Event::SampleFailed { step, error: error.to_string() });
                }
            }
            if self.settings.patience > 0 && self.state.stale >= self.settings.patience {
                ending = Ending::Stale;
            }
            if context.stop.reason().is_some() {
                ending = Ending::Stopped;
                break;
            }
        }
        // What was learned is safe before a lane that may hang is waited for.
        if failure.is_some() {
            let _ = self.save(started, on_event);
        }
        monitor.write(context);
        drop(flow);
        let flushed = caught(|| self.flush(&mut pending, &mut log, on_event));
        if let Ok(Some(values)) = &flushed {
            last_loss = Some(values.loss);
        }
        failure = failure.or(flushed.err());
        let saved = self.save(started, on_event);
        let step = self.lock().steps();
        let seconds = started.elapsed().as_secs_f64();
        let train = context.stage("train");
        let report = Report {
            ending: if failure.is_some() { Ending::Failed } else { ending },
            error: failure.as_ref().map(ToString::to_string),
            step,
            steps: step - first_step,
            seconds,
            total_seconds: self.state.seconds_before + seconds,
            audio_seconds: self.state.audio_seconds,
            loss: last_loss,
            best: self.state.best,
            parameters,
            starved: train.as_ref().map_or(0.0, |train| share(train.wait_in.total, train.busy.total)),
            peak_bytes: memory::peak_bytes(),
            alignment_share: train.as_ref().map_or(0.0, |train| {
                let search = tandem_model::alignment_seconds();
                if train.busy.total > 0.0 { search / train.busy.total } else { 0.0 }
            }),
            data_busy: lane_busy(context, &["load", "preprocess", "transfer"], seconds),
            model_busy: lane_busy(context, &["train"], seconds),
            cpu_percent: cpu.read().process.value().copied(),
            transferred_bytes: context.stage("transfer").map_or(0, |transfer| transfer.bytes),
            transfer_seconds: context.stage("transfer").map_or(0.0, |transfer| transfer.busy.total),
            lanes: memory_readings,
            stages: context.stages(),
            verdict: monitor.last.as_ref().map(|last| last.verdict.clone()),
            queues: context.queues(),
            left_out: feed.left_out(),
        };
        // What went wrong first is what is told.
        failure = failure.or(self.run.write_report(&report).err().map(io(self.run.report_path())));
        *reported = true;
        match (failure, saved) {
            (Some(failure), _) => Err(failure),
            (None, Err(error)) => Err(error.into()),
            (None, Ok(())) => Ok(report),
        }
    }

    fn train_stage(&self, feed: Flow<Ready>) -> Flow<StepRecord> {
        let learner = self.learner.clone().expect("made before its first batch");
        feed.stage("train", move |ready| Ok(learner.lock().unwrap_or_else(PoisonError::into_inner).step(ready)))
    }

    /// Sees that the longest batch fits, in parts if need be.
    fn preflight(
        &self,
        feed: &Feed,
        data_guard: &Guard,
        guard: &mut Guard,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), TrainError> {
        let Some(longest) = feed.longest() else { return Ok(()) };
        data_guard.check_now("the longest batch").map_err(|error| TrainError::Memory(error, Vec::new()))?;
        let mut learner = self.lock();
        let before = learner.parts();
        let (preflight, _) = caught(|| preflight(&longest, &mut learner, guard))?;
        // Also when an earlier start had to split them.
        if learner.parts() > self.settings.accumulate {
            let (step, parts) = (learner.steps() + 1, learner.parts());
            on_event(Event::Split { step, parts, kept: parts == before });
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
        feed: &Feed,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), TrainError> {
        let (of, delay) = (feed.buffer(), self.settings.start_delay);
        let ready = || waiting_in(context, "host");
        let waited = || (context.clock.now() - since).as_secs_f64();
        if waited() < delay && ready() < of {
            on_event(Event::Warming { seconds: delay - waited(), ready: ready(), of });
        }
        let patience = context.stall_timeout.map_or(f64::INFINITY, |timeout| timeout.as_secs_f64());
        while context.stop.reason().is_none() {
            let first_is_there = waiting_in(context, "model") > 0;
            if first_is_there && (ready() >= of || waited() >= delay) {
                break;
            }
            if !first_is_there && waited() >= delay.max(patience) {
                return Err(TrainError::Stage(context.stalled(Duration::from_secs_f64(waited()))));
            }
            context.clock.sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Reads the losses of the steps since the last time and writes them down; returns their mean.
    fn flush(
        &mut self,
        pending: &mut Vec<StepRecord>,
        log: &mut Log,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Option<StepValues>, TrainError> {
        if pending.is_empty() {
            return Ok(None);
        }
        let values = StepRecord::read(pending);
        let lines: Vec<_> = (pending.iter().zip(&values))
            .map(|(record, values)| {
                json!({"step": record.step, "epoch": record.cursor.epoch, "batch": record.cursor.batch,
                    "loss": values.loss, "prior": values.terms[0], "duration": values.terms[1], "flow": values.terms[2],
                    "norm": values.norm, "rate": record.rate})
            })
            .collect();
        log.add(&lines).map_err(|error| TrainError::Io(self.run.log_path(), error))?;
        let mut failure = None;
        for (record, values) in pending.iter().zip(&values).filter(|(_, values)| !values.is_finite()) {
            self.state.overflows += 1;
            if self.settings.mixed_precision && values.loss.is_finite() && self.state.overflows <= MOST_OVERFLOWS {
                // Sixteen bits were not enough: nothing was changed, the next step has a smaller scale.
                on_event(Event::Overflow { step: record.step });
                continue;
            }
            let clips: Vec<String> = record.clips.iter().map(|&clip| self.data.corpus.name(clip).0).collect();
            on_event(Event::NotFinite { step: record.step, clips: &clips, policy: self.settings.nan_policy });
            if self.settings.nan_policy == NanPolicy::Stop {
                failure.get_or_insert(TrainError::NotFinite(record.step, clips));
            }
        }
        pending.clear();
        if values.iter().any(StepValues::is_finite) {
            self.state.overflows = 0;
        }
        let good: Vec<&StepValues> = values.iter().filter(|values| values.is_finite()).collect();
        if let Some(failure) = failure {
            return Err(failure);
        }
        Ok(good.last().map(|last| {
            let mean = |of: &dyn Fn(&StepValues) -> f64| good.iter().map(|v| of(v)).sum::<f64>() / good.len() as f64;
            StepValues {
                loss: mean(&|values| values.loss),
                terms: std::array::from_fn(|n| mean(&|values| values.terms[n])),
                norm: last.norm,
            }
        }))
    }

    fn validate(
        &mut self,
        batches: &[Prepared],
        step: u64,
        log: &mut Log,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<f64, TrainError> {
        let model = plain(self.lock().model());
        // No more at once than a step has, of batches that are smaller than those of training.
        let rows = self.settings.batch_size.div_ceil(self.lock().parts()).max(1);
        let ahead = validation_queue(self.settings.device_queue);
        let terms = validation_losses(&model, batches, &self.lanes.model, rows, ahead);
        let loss = terms.iter().sum::<f64>();
        // As it is kept in checkpoints, so that a run that went on decides the same.
        let kept = loss as f32;
        let best = loss.is_finite() && self.state.best.is_none_or(|(best, _)| kept < best);
        if best {
            self.state.best = Some((kept, step));
            self.state.stale = 0;
        } else {
            self.state.stale += 1;
        }
        let line = json!({"step": step, "validation": loss, "prior": terms[0], "duration": terms[1], "flow": terms[2]});
        log.add(&[line]).map_err(|error| TrainError::Io(self.run.log_path(), error))?;
        on_event(Event::Validation { step, loss, terms, best });
        Ok(loss)
    }

    /// Writes a checkpoint, unless this step has one.
    fn save(&mut self, started: Instant, on_event: &mut dyn FnMut(Event<'_>)) -> Result<(), CheckpointError> {
        let checkpoint = {
            let learner = self.lock();
            // After a step that failed half way there is no model to save; the last checkpoint holds.
            if learner.steps() == 0 || self.state.saved == Some(learner.steps()) || !learner.is_whole() {
                return Ok(());
            }
            self.checkpoint(&learner, started)
        };
        let (step, checkpoints) = (checkpoint.state.step, self.run.checkpoints());
        match checkpoints.write(&checkpoint) {
            Ok(path) => {
                self.state.saved = Some(step);
                // Noted before others are deleted; when it cannot be, nothing is.
                if checkpoints.correct_best(self.state.best.map(|(_, step)| step)).is_ok() {
                    checkpoints.prune(self.settings.keep);
                }
                on_event(Event::Checkpoint { step, path: &path });
                Ok(())
            }
            Err(error) => {
                on_event(Event::CheckpointFailed { step, error: &error });
                Err(error)
            }
        }
    }

    fn checkpoint(&self, learner: &Learner, started: Instant) -> Checkpoint {
        Checkpoint {
            weights: weights::export(learner.model()),
            optimiser: learner.optimiser().export(learner.model()),
            state: State {
                format: FORMAT,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                step: learner.steps(),
                next: learner.next().into(),
                seconds: self.state.seconds_before + started.elapsed().as_secs_f64(),
                audio_seconds: self.state.audio_seconds,
                best: self.state.best,
                stale: self.state.stale,
                loss_scale: learner.loss_scale(),
                parts: learner.parts(),
                settings: self.settings.clone(),
                model: self.config.clone(),
                mel: self.data.corpus.settings().mel.clone(),
                stats: self.stats.clone(),
                vocabulary: self.data.corpus.tokenizer().to_json(),
                data: self.data.identity(),
            },
        }
    }

    fn sample(&self, validation: &[Prepared], step: u64, on_event: &mut dyn FnMut(Event<'_>)) {
        let Some(batch) = validation.first() else { return };
        let model = plain(self.lock().model());
        let speech = Speech::new(model, &self.config, &self.data.corpus.settings().mel, &self.stats, &self.lanes.model);
        let path = self.run.samples().join(format!("step-{step:08}.wav"));
        let made = std::fs::create_dir_all(self.run.samples())
            .map_err(|error| error.to_string())
            .and_then(|()| speech.say_row(&batch.inputs, 0).map_err(|error| error.to_string()))
            .and_then(|said| {
                let picture = spectrogram_png(&said.mel, said.frames, &[], 4);
                said.write(&path)
                    .and_then(|()| write_atomically(&path.with_extension("png"), &picture))
                    .map_err(|error| error.to_string())
            });
        match made {
            Ok(()) => on_event(Event::Sample { step, path: &path }),
            Err(error) => on_event(Event::SampleFailed { step, error }),
        }
    }
}

/// A panic of a driver or of a bug becomes an error, so that what was learned can still be saved.
fn caught<T>(work: impl FnOnce() -> Result<T, TrainError>) -> Result<T, TrainError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(TrainError::Panicked(text.unwrap_or_else(|| "a panic without a message".to_owned())))
    })
}

/// Batches that wait in a queue.
fn waiting_in(context: &Context, name: &str) -> usize {
    context.queues().iter().find(|queue| queue.name == name).map_or(0, |queue| queue.items)
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
    settings: &TrainSettings,
    config: &ModelConfig,
    data: &Data,
    path: &Path,
) -> Result<(), TrainError> {
    let mut lines = settings.differences(&state.settings);
    lines.extend(data.identity().differences(&state.data));
    if state.vocabulary != data.corpus.tokenizer().to_json() {
        lines.push("vocabulary: other characters here than in the checkpoint".to_owned());
    }
    if state.mel != data.corpus.settings().mel {
        lines.push("features: other mel settings here than in the checkpoint".to_owned());
    }
    if lines.is_empty() {
        lines.extend(config.differences(&state.model));
    }
    if lines.is_empty() {
        return Ok(());
    }
    Err(CheckpointError::Foreign(path.to_owned(), lines).into())
}

/// Parameters of each part of the model.
pub fn parameter_parts(model: &Voice) -> Vec<(String, usize)> {
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
