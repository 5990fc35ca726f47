//! How a run gets ready: its folder, the data lane, the model, the longest batch, a head start for the data lane.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tandem_data::files::write_atomically;
use tandem_device::probes::CpuMeter;
use tandem_flow::{Context, Cursor, Flow, Place, Stop};
use tandem_model::{Device, weights};

use super::steps::{StepLoop, caught};
use super::{MOST_VOICES, OnEvent, Start, TaskTrainer, VALIDATION_CLIPS, Wishes, parameter_parts, too_much};
use crate::checkpoint::CheckpointError;
use crate::events::{Event, TrainError};
use crate::feed::{Budgets, Feed};
use crate::guard::{Guard, guards};
use crate::monitor::Monitor;
use crate::preflight::preflight;
use crate::run::Log;
use crate::step::{Learner, Stepped, learning_device};
use crate::task::SpeechTask;
use crate::warm_start::match_weights;
use crate::window::Window;

impl<T: SpeechTask> TaskTrainer<T> {
    /// Makes the folder the run's own: nobody else writes to it, and nothing in it is of another history.
    pub(super) fn take_dir(&self, first_step: u64, on_event: OnEvent<'_>) -> Result<(), TrainError> {
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
    pub(super) fn get_ready(
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
        let flow = self.train_stage(context, feeding, asked.clone(), wishes.clone());
        let validation = feed.validation(&self.data, &self.settings, VALIDATION_CLIPS)?;
        if first_step < steps {
            // On memory of its own the longest batch is tried while the data lane gets ahead; otherwise after that, so
            // that what it takes can be distinguished from what the data lane takes.
            if model_guard.shares_host() {
                self.warm_up(context, &asked, lane_started, &feed, on_event)?;
                if model_guard.limit().is_some() {
                    wait_until_quiet(context);
                }
                self.preflight(&feed, &data_guard, &mut model_guard, on_event)?;
            } else {
                self.preflight(&feed, &data_guard, &mut model_guard, on_event)?;
                self.warm_up(context, &asked, lane_started, &feed, on_event)?;
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
        asked: &Stop,
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
        // Ranks agree to stop before their first step.
        while context.stop.reason().is_none() && asked.reason().is_none() {
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
