//! The steps of a run. Reads top to bottom: feed → step → record.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use serde_json::json;
use tandem_device::memory::LaneMemory;
use tandem_device::probes::CpuMeter;
use tandem_flow::{Autotune, Context, Error, ErrorKind, Flow};

use super::{OnEvent, Trainer, too_much};
use crate::events::{Ending, Event, TrainError};
use crate::features::Prepared;
use crate::feed::{DATA_LANE, Feed, MODEL_LANE};
use crate::guard::Guard;
use crate::monitor::{Monitor, Surroundings};
use crate::run::Log;
use crate::settings::{NanPolicy, validation_queue};
use crate::step::{StepRecord, StepValues};
use crate::validation::{plain, validation_losses};
use crate::window::Window;

/// A loss scale that was halved so often is as small as it gets: it is not the scale.
const MOST_OVERFLOWS: u32 = 40;
/// SPEC T9: steps between two looks at the lanes' memory that are told.
const MEMORY_EVERY: u64 = 100;
/// Steps whose losses are read at once, at most.
const MOST_PENDING: usize = 1000;

/// What a run has at hand from its first step to its last.
pub(super) struct Round {
    pub(super) started: Instant,
    pub(super) first_step: u64,
    /// Steps that the run has when it is finished.
    pub(super) steps: u64,
    /// Batches of an epoch.
    pub(super) batches: u64,
    /// Parameters of the model.
    pub(super) parameters: usize,
    pub(super) feed: Feed,
    pub(super) data_guard: Guard,
    pub(super) model_guard: Guard,
    pub(super) log: Log,
    pub(super) validation: Vec<Prepared>,
    pub(super) tuner: Autotune,
    pub(super) cpu: CpuMeter,
    /// Memory of the lanes after the last step.
    pub(super) memory: Vec<LaneMemory>,
    /// Steps whose losses are still on the device.
    pub(super) pending: Vec<StepRecord>,
    pub(super) window: Window,
    pub(super) monitor: Monitor,
    /// Parts of a step.
    pub(super) parts: usize,
    pub(super) last_loss: Option<f64>,
    /// How often losses were read from the device.
    pub(super) readings: u64,
}

impl Round {
    /// A lane's own memory error, where a stage found that there is too little.
    fn failure(&self, error: Error) -> TrainError {
        match (&error.kind, &*error.stage) {
            (ErrorKind::OverLimit(over), MODEL_LANE) => too_much(self.model_guard.refused(over)),
            (ErrorKind::OverLimit(over), DATA_LANE) => too_much(self.data_guard.refused(over)),
            _ => TrainError::Stage(error),
        }
    }

    /// Looks at the memory of both lanes, also when one has too much.
    fn look_at_memory(&mut self, step: u64, on_event: OnEvent<'_>) -> Result<(), TrainError> {
        self.memory.clear();
        let mut looked = Ok(());
        for guard in [&mut self.data_guard, &mut self.model_guard] {
            match guard.look(step) {
                Ok((reading, leak)) => {
                    if let Some(leak) = leak {
                        on_event(Event::Leak { step, device: guard.label().to_owned(), leak: &leak });
                    }
                    self.memory.push(reading);
                }
                Err(error) => looked = looked.and(Err(too_much(error))),
            }
        }
        if looked.is_ok() && step.is_multiple_of(MEMORY_EVERY) {
            on_event(Event::Memory { step, lanes: &self.memory });
        }
        looked
    }
}

impl Trainer {
    /// Step after step, until the last one or until something ends it.
    pub(super) fn train(
        &mut self,
        context: &Context,
        flow: &mut Flow<StepRecord>,
        round: &mut Round,
        on_event: OnEvent<'_>,
    ) -> Result<Ending, TrainError> {
        while !self.is_stale() && self.lock().steps() < round.steps {
            let record = match flow.next() {
                None => break,
                Some(Ok(record)) => record.value,
                Some(Err(error)) if matches!(error.kind, ErrorKind::Stopped(_)) => return Ok(Ending::Stopped),
                Some(Err(error)) => return Err(round.failure(error)),
            };
            self.record(context, record, round, on_event)?;
            if context.stop.reason().is_some() {
                return Ok(Ending::Stopped);
            }
        }
        Ok(if self.is_stale() { Ending::Stale } else { Ending::Finished })
    }

    fn is_stale(&self) -> bool {
        self.settings.patience > 0 && self.state.stale >= self.settings.patience
    }

    /// What follows a step: memory, tuning, and what is due, such as the log, a validation or a checkpoint.
    fn record(
        &mut self,
        context: &Context,
        record: StepRecord,
        round: &mut Round,
        on_event: OnEvent<'_>,
    ) -> Result<(), TrainError> {
        let (step, epoch) = (record.step, record.cursor.epoch);
        let end_of_epoch = record.cursor.batch + 1 >= round.batches;
        self.state.audio_seconds += record.seconds;
        round.window.add(&record);
        round.monitor.add_clips(record.clips.len());
        if record.parts != round.parts {
            round.parts = record.parts;
            on_event(Event::Split { step, parts: round.parts, kept: false });
        }
        round.pending.push(record);
        round.look_at_memory(step, on_event)?;
        if self.settings.autotune
            && let Some(decision) = round.tuner.step()
            && decision.is_move()
        {
            on_event(Event::Tuned(&decision));
        }
        let due = |every: u64| every > 0 && step.is_multiple_of(every);
        let validate = self.settings.validate_every.map_or(end_of_epoch, due) || step == round.steps;
        let save = due(self.settings.checkpoint_every) || step == round.steps;
        let sample = due(self.settings.sample_every);
        if (due(self.settings.log_every) || validate || save || round.pending.len() >= MOST_PENDING)
            && let Some(values) = caught(|| self.flush(round, on_event))?
        {
            self.tell(context, step, epoch, &values, round, on_event);
        }
        if validate {
            round.monitor.validation = Some(caught(|| self.validate(round, step, on_event))?);
        }
        if save || (validate && self.state.best.is_some_and(|(_, best)| best == step)) {
            // A failure was told; the next checkpoint may succeed.
            let _ = self.save(round.started, on_event);
        }
        if sample {
            // A sample that cannot be made is told; the run goes on.
            let made = caught(|| {
                self.sample(&round.validation, step, on_event);
                Ok(())
            });
            if let Err(error) = made {
                on_event(Event::SampleFailed { step, error: error.to_string() });
            }
        }
        Ok(())
    }

    /// Progress, and what limits it.
    fn tell(
        &self,
        context: &Context,
        step: u64,
        epoch: u64,
        values: &StepValues,
        round: &mut Round,
        on_event: OnEvent<'_>,
    ) {
        let progress = round.window.close(context, step, round.steps, epoch, values, &self.settings);
        on_event(Event::Progress(&progress));
        let around = Surroundings {
            feed: &round.feed,
            settings: &self.settings,
            placement: &self.lanes.placement,
            lanes: &round.memory,
            audio_seconds: self.state.audio_seconds,
            seconds_before: self.state.seconds_before,
            done: step - round.first_step,
        };
        let notices = round.monitor.look(context, &progress, &around);
        if let Some(snapshot) = &round.monitor.last {
            on_event(Event::Look(snapshot));
        }
        for notice in &notices {
            on_event(Event::Notice { step, notice });
        }
    }

    /// Reads the losses of the steps since the last time and writes them down; returns their mean.
    pub(super) fn flush(&mut self, round: &mut Round, on_event: OnEvent<'_>) -> Result<Option<StepValues>, TrainError> {
        if round.pending.is_empty() {
            return Ok(None);
        }
        let pending = std::mem::take(&mut round.pending);
        let values = StepRecord::read(&pending);
        round.readings += 1;
        let lines: Vec<_> = (pending.iter().zip(&values))
            .map(|(record, values)| {
                json!({"step": record.step, "epoch": record.cursor.epoch, "batch": record.cursor.batch,
                    "loss": values.loss, "prior": values.terms[0], "duration": values.terms[1], "flow": values.terms[2],
                    "norm": values.norm, "rate": record.rate})
            })
            .collect();
        round.log.add(&lines).map_err(|error| TrainError::Io(self.run.log_path(), error))?;
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
        if values.iter().any(StepValues::is_finite) {
            self.state.overflows = 0;
        }
        let good: Vec<&StepValues> = values.iter().filter(|values| values.is_finite()).collect();
        if let Some(failure) = failure {
            return Err(failure);
        }
        let mean = good.last().map(|last| {
            let mean = |of: &dyn Fn(&StepValues) -> f64| good.iter().map(|v| of(v)).sum::<f64>() / good.len() as f64;
            StepValues {
                loss: mean(&|values| values.loss),
                terms: std::array::from_fn(|n| mean(&|values| values.terms[n])),
                norm: last.norm,
            }
        });
        round.last_loss = mean.as_ref().map(|mean| mean.loss).or(round.last_loss);
        Ok(mean)
    }

    fn validate(&mut self, round: &mut Round, step: u64, on_event: OnEvent<'_>) -> Result<f64, TrainError> {
        let model = plain(self.lock().model());
        // No more at once than a step has, of batches that are smaller than those of training.
        let rows = self.settings.batch_size.div_ceil(self.lock().parts()).max(1);
        let ahead = validation_queue(self.settings.device_queue);
        let terms = validation_losses(&model, &round.validation, &self.lanes.model, rows, ahead);
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
        round.log.add(&[line]).map_err(|error| TrainError::Io(self.run.log_path(), error))?;
        on_event(Event::Validation { step, loss, terms, best });
        Ok(loss)
    }
}

/// A panic of a driver or of a bug becomes an error, so that what was learned can still be saved.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T, TrainError>) -> Result<T, TrainError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(TrainError::Panicked(text.unwrap_or_else(|| "a panic without a message".to_owned())))
    })
}
