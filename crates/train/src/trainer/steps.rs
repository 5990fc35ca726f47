//! The steps of a run. Reads top to bottom: feed → step → record.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::{Value, json};
use tandem_device::memory::LaneMemory;
use tandem_device::probes::CpuMeter;
use tandem_flow::{Autotune, Context, Cursor, Error, ErrorKind, Flow};

use super::{OnEvent, TaskTrainer, Wishes, too_many, too_much};
use crate::events::{Event, Outcome, TrainError};
use crate::feed::{DATA_LANE, Feed, MODEL_LANE};
use crate::guard::Guard;
use crate::monitor::{Monitor, Surroundings};
use crate::reduce::Activity;
use crate::run::Log;
use crate::settings::{NanPolicy, validation_queue};
use crate::step::{StepRecord, StepValues, Stepped};
use crate::task::SpeechTask;
use crate::window::Window;

/// SPEC T9: steps between two readings of the lanes' memory that are reported.
const MEMORY_EVERY: u64 = 100;
/// Steps whose losses are read at once, at most.
const MOST_PENDING: usize = 1000;

/// Steps in a row that half precision could not do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overflows(u32);

impl Overflows {
    /// A loss scale that was halved so often is as small as it gets: it is not the scale.
    const MOST: u32 = 40;

    /// Counts a step, in the order of the steps; whether it overflowed.
    fn note(&mut self, values: &StepValues) -> bool {
        self.0 = if values.is_finite() { 0 } else { self.0 + 1 };
        self.0 > 0
    }

    fn are_too_many(self) -> bool {
        self.0 > Overflows::MOST
    }
}

/// What a run has at hand from its first step to its last.
pub(super) struct StepLoop<T: SpeechTask> {
    pub(super) started: Instant,
    pub(super) first_step: u64,
    /// Steps that the run has when it is finished.
    pub(super) steps: u64,
    /// Batches of an epoch.
    pub(super) batches: u64,
    /// The batch after the last one that was trained.
    pub(super) expected: Cursor,
    /// Parameters of the model.
    pub(super) parameters: usize,
    pub(super) feed: Feed<T>,
    pub(super) data_guard: Guard,
    pub(super) model_guard: Guard,
    pub(super) log: Log,
    pub(super) validation: Vec<T::HeldOut>,
    pub(super) tuner: Autotune,
    pub(super) cpu: CpuMeter,
    /// Memory of the lanes after the last step.
    pub(super) memory: Vec<LaneMemory>,
    /// Steps whose losses are still on the device.
    pub(super) pending: Vec<StepRecord>,
    pub(super) window: Window,
    pub(super) monitor: Monitor,
    /// What the step hears of the loop.
    pub(super) wishes: Wishes,
    /// Parts of a step.
    pub(super) micro_batches: usize,
    pub(super) last_loss: Option<f64>,
    /// The last step after which there was a validation.
    pub(super) validated: Option<u64>,
    /// How often losses were read from the device.
    pub(super) readings: u64,
}

impl<T: SpeechTask> StepLoop<T> {
    /// A lane's own memory error, where a stage found that there is too little.
    fn failure(&self, error: Error) -> TrainError {
        if let Some(error) = self.wishes.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return error;
        }
        match (&error.kind, &*error.stage) {
            (ErrorKind::OverLimit(over), MODEL_LANE) => too_much(self.model_guard.refused(over)),
            (ErrorKind::OverLimit(over), DATA_LANE) => too_much(self.data_guard.refused(over)),
            _ => TrainError::Stage(error),
        }
    }

    /// Reads the memory of both lanes, also when one has too much.
    fn read_memory(&mut self, step: u64, on_event: OnEvent<'_>) -> Result<(), TrainError> {
        self.memory.clear();
        let mut checked = Ok(());
        for guard in [&mut self.data_guard, &mut self.model_guard] {
            match guard.read(step) {
                Ok((reading, leak)) => {
                    if let Some(leak) = leak {
                        on_event(Event::Leak { step, device: guard.label().to_owned(), leak: &leak });
                    }
                    self.memory.push(reading);
                }
                Err(error) => checked = checked.and(Err(too_much(error))),
            }
        }
        if checked.is_ok() && step.is_multiple_of(MEMORY_EVERY) {
            on_event(Event::Memory { step, lanes: &self.memory });
        }
        checked
    }
}

impl<T: SpeechTask> TaskTrainer<T> {
    /// Step after step, until the last one or until something ends it.
    pub(super) fn train(
        &mut self,
        context: &Context,
        flow: &mut Flow<Stepped>,
        steps_loop: &mut StepLoop<T>,
        on_event: OnEvent<'_>,
    ) -> Result<Outcome, TrainError> {
        // Batches of which no rank had a clip, in a row.
        let mut skipped = 0;
        while self.has_another_step(steps_loop) {
            let record = match flow.next().map(|stepped| stepped.map(|stepped| stepped.value)) {
                None => {
                    self.end_short(steps_loop, on_event)?;
                    break;
                }
                Some(Ok(Stepped::Done(record))) => *record,
                Some(Ok(Stepped::Skipped)) => {
                    skipped += 1;
                    // As in one process: to look for one good clip in epoch after epoch would never end.
                    if skipped < steps_loop.batches {
                        continue;
                    }
                    return Err(too_many(self.loader.too_many(), self.lock().next()));
                }
                Some(Ok(Stepped::Stopped)) => return Ok(Outcome::Stopped),
                Some(Ok(Stepped::EarlyStopped)) => return Ok(Outcome::EarlyStopped),
                Some(Err(error)) if matches!(error.kind, ErrorKind::Stopped(_)) => return Ok(Outcome::Stopped),
                Some(Err(error)) => return Err(steps_loop.failure(error)),
            };
            skipped = 0;
            self.record(context, record, steps_loop, on_event)?;
            self.lock().note(Activity::Load);
            if context.stop.reason().is_some() {
                return Ok(Outcome::Stopped);
            }
        }
        Ok(if self.stops_early() && self.shard.world == 1 { Outcome::EarlyStopped } else { Outcome::Finished })
    }

    /// The batches are over before the last step: of some of them no clip could be used. What the last step has is done after the last one
    /// that there was.
    fn end_short(&mut self, steps_loop: &mut StepLoop<T>, on_event: OnEvent<'_>) -> Result<(), TrainError> {
        let (step, planned) = (self.lock().steps(), steps_loop.steps);
        if step >= planned {
            return Ok(());
        }
        on_event(Event::Short { step, planned });
        if step > steps_loop.first_step && steps_loop.validated != Some(step) {
            caught(|| self.flush(steps_loop, on_event))?;
            steps_loop.monitor.validation = Some(caught(|| self.validate(steps_loop, step, on_event))?);
        }
        Ok(())
    }

    /// Whether the run goes on as far as this rank can say. With other ranks, early stopping is agreed on before the next step.
    fn has_another_step(&self, steps_loop: &StepLoop<T>) -> bool {
        let early_stop = self.stops_early();
        steps_loop.wishes.early_stop.store(early_stop, Ordering::Relaxed);
        (self.shard.world > 1 || !early_stop) && self.lock().steps() < steps_loop.steps
    }

    fn stops_early(&self) -> bool {
        self.settings.run.patience > 0 && self.state.validations_without_progress >= self.settings.run.patience
    }

    /// What follows a step: memory, tuning, and what is due, such as the log, a validation or a checkpoint.
    fn record(
        &mut self,
        context: &Context,
        record: StepRecord,
        steps_loop: &mut StepLoop<T>,
        on_event: OnEvent<'_>,
    ) -> Result<(), TrainError> {
        let (step, epoch) = (record.step, record.cursor.epoch);
        let end_of_epoch = ends_epoch(steps_loop.expected, record.cursor, steps_loop.batches);
        steps_loop.expected = record.cursor.next();
        self.state.audio_seconds += record.seconds;
        steps_loop.window.add(&record);
        self.state.clips += record.all_clips;
        if record.micro_batches != steps_loop.micro_batches {
            steps_loop.micro_batches = record.micro_batches;
            on_event(Event::Split { step, micro_batches: steps_loop.micro_batches, kept: false });
        }
        steps_loop.pending.push(record);
        steps_loop.read_memory(step, on_event)?;
        if self.settings.pipeline.autotune
            && let Some(decision) = steps_loop.tuner.step()
            && decision.is_move()
        {
            on_event(Event::Tuned(&decision));
        }
        let due = |every: u64| every > 0 && step.is_multiple_of(every);
        let validate = self.settings.run.validate_every.map_or(end_of_epoch, due) || step == steps_loop.steps;
        let save = due(self.settings.run.checkpoint_every) || step == steps_loop.steps;
        let sample = due(self.settings.run.sample_every);
        if (due(self.settings.run.log_every) || validate || save || steps_loop.pending.len() >= MOST_PENDING)
            && let Some(values) = caught(|| self.flush(steps_loop, on_event))?
        {
            self.tell(context, step, epoch, &values, steps_loop, on_event);
        }
        if validate {
            steps_loop.monitor.validation = Some(caught(|| self.validate(steps_loop, step, on_event))?);
        }
        if save || (validate && self.state.better.is_some_and(|(_, better)| better == step)) {
            // A failure was reported; the next checkpoint may succeed.
            let _ = self.save(steps_loop.started, on_event);
        }
        if sample {
            // A sample that cannot be made is reported; the run continues.
            let made = caught(|| {
                self.sample(&steps_loop.validation, step, on_event);
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
        steps_loop: &mut StepLoop<T>,
        on_event: OnEvent<'_>,
    ) {
        let progress = steps_loop.window.close(
            context,
            step,
            steps_loop.steps,
            epoch,
            (self.task.terms(), values),
            &self.settings,
        );
        on_event(Event::Progress(&progress));
        let around = Surroundings {
            memory_share: steps_loop.feed.memory_share(),
            workers: steps_loop.feed.workers(),
            buffer_size: steps_loop.feed.buffer_size(),
            settings: &self.settings,
            placement: &self.lanes.placement,
            lanes: &steps_loop.memory,
            audio_seconds: self.state.audio_seconds,
            clips: self.state.clips,
            seconds_before: self.state.seconds_before,
            done: step - steps_loop.first_step,
        };
        let notices = steps_loop.monitor.snapshot(context, &progress, &around);
        if let Some(snapshot) = &steps_loop.monitor.last {
            on_event(Event::Snapshot(snapshot));
        }
        for notice in &notices {
            on_event(Event::Notice { step, notice });
        }
    }

    /// Reads the losses of the steps since the last time and writes them down; returns their mean.
    pub(super) fn flush(
        &mut self,
        steps_loop: &mut StepLoop<T>,
        on_event: OnEvent<'_>,
    ) -> Result<Option<StepValues>, TrainError> {
        if steps_loop.pending.is_empty() {
            return Ok(None);
        }
        let pending = std::mem::take(&mut steps_loop.pending);
        let values = StepRecord::read(&pending);
        steps_loop.readings += 1;
        let lines: Vec<_> = (pending.iter().zip(&values))
            .map(|(record, values)| {
                let line = json!({"step": record.step, "epoch": record.cursor.epoch, "batch": record.cursor.batch,
                    "loss": values.loss, "norm": values.norm, "rate": record.lr});
                with_terms(line, self.task.terms(), &values.terms)
            })
            .collect();
        self.log(steps_loop, &lines, on_event);
        let mut failure = None;
        for (record, values) in pending.iter().zip(&values) {
            if !self.state.overflows.note(values) {
                continue;
            }
            if self.settings.model.mixed_precision && values.loss.is_finite() && !self.state.overflows.are_too_many() {
                // Sixteen bits were not enough: nothing was changed, the next step has a smaller scale.
                on_event(Event::Overflow { step: record.step });
                continue;
            }
            let clips = self.clip_names(record);
            on_event(Event::NotFinite { step: record.step, clips: &clips, policy: self.settings.run.nan });
            if self.settings.run.nan == NanPolicy::Stop {
                failure.get_or_insert(TrainError::NotFinite(record.step, clips));
            }
        }
        let good: Vec<&StepValues> = values.iter().filter(|values| values.is_finite()).collect();
        if let Some(failure) = failure {
            return Err(failure);
        }
        let mean = good.last().map(|last| {
            let mean = |of: &dyn Fn(&StepValues) -> f64| good.iter().map(|v| of(v)).sum::<f64>() / good.len() as f64;
            StepValues {
                loss: mean(&|values| values.loss),
                terms: (0..last.terms.len()).map(|n| mean(&|values| values.terms[n])).collect(),
                norm: last.norm,
            }
        });
        steps_loop.last_loss = mean.as_ref().map(|mean| mean.loss).or(steps_loop.last_loss);
        Ok(mean)
    }

    /// Writes lines to the log. What cannot be written is tried again with the next lines; that it failed is said once.
    fn log(&self, steps_loop: &mut StepLoop<T>, lines: &[Value], on_event: OnEvent<'_>) {
        let known = steps_loop.log.is_behind();
        if let Err(error) = steps_loop.log.add(lines)
            && !known
        {
            on_event(Event::LogFailed { path: &self.run.log_path(), error: &error });
        }
    }

    /// The clips of a step, those of all ranks.
    fn clip_names(&self, record: &StepRecord) -> Vec<String> {
        let planned = (self.shard.world > 1).then(|| self.loader.plan(record.cursor.epoch));
        let planned = planned.and_then(|planned| planned.into_iter().find(|batch| batch.cursor == record.cursor));
        let clips = planned.map_or_else(|| record.clips.clone(), |planned| planned.clips.to_vec());
        clips.iter().map(|&clip| self.data.corpus.name(clip).0).collect()
    }

    fn validate(&mut self, steps_loop: &mut StepLoop<T>, step: u64, on_event: OnEvent<'_>) -> Result<f64, TrainError> {
        let (model, micro_batches) = {
            let learner = self.lock();
            learner.note(Activity::Validate);
            (learner.ema().model().clone(), learner.micro_batches())
        };
        // No more at once than a step has, of batches that are smaller than those of training.
        let rows = self.settings.data.batch_size.div_ceil(micro_batches).max(1);
        let ahead = validation_queue(self.settings.pipeline.prefetch_buffer_size);
        let terms = self.task.validate(&model, &steps_loop.validation, &self.lanes.model, (rows, ahead), self.shard);
        let terms = self.lock().add_up(&terms).map_err(TrainError::Reduce)?;
        let loss = terms.iter().sum::<f64>();
        steps_loop.validated = Some(step);
        // As it is kept in checkpoints, so that a resumed run decides the same.
        let kept = loss as f32;
        let best = kept.is_finite() && self.state.best.is_none_or(|(best, _)| kept < best);
        if best {
            self.state.better = Some((kept, step));
            self.state.validations_without_progress = 0;
        } else {
            self.state.validations_without_progress += 1;
        }
        let line = with_terms(json!({"step": step, "validation": loss}), self.task.terms(), &terms);
        self.log(steps_loop, &[line], on_event);
        on_event(Event::Validation { step, loss, names: self.task.terms(), terms, best });
        Ok(loss)
    }
}

/// Whether an epoch is over with the batch that was just trained: its own, or the one before if the last batches of that had no usable
/// clip. Nobody hears of those, so it is noticed one step late.
fn ends_epoch(expected: Cursor, trained: Cursor, batches: u64) -> bool {
    let cut_short = expected.epoch < trained.epoch && (1..batches).contains(&expected.batch);
    trained.batch + 1 >= batches || cut_short
}

/// A line of the log with the terms of the loss by name.
fn with_terms(mut line: Value, names: &[&str], terms: &[f64]) -> Value {
    for (name, value) in names.iter().zip(terms) {
        line[*name] = json!(value);
    }
    line
}

/// A panic of a driver or of a bug becomes an error, so that what was learned can still be saved.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T, TrainError>) -> Result<T, TrainError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(TrainError::Panicked(text.unwrap_or_else(|| "a panic without a message".to_owned())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_ends_with_its_last_batch_or_with_the_next_one_that_there_is() {
        let at = |epoch, batch| Cursor { epoch, batch };
        for (expected, trained, ends) in [
            (at(0, 0), at(0, 0), false),
            (at(0, 3), at(0, 3), true),
            // The last batch was trained: that epoch is over already.
            (at(0, 4), at(1, 0), false),
            // Batches in the middle or at the beginning are missing.
            (at(0, 1), at(0, 2), false),
            (at(0, 4), at(1, 2), false),
            // The last one is missing, or the last ones and the next first one.
            (at(0, 3), at(1, 0), true),
            (at(0, 1), at(1, 1), true),
            // A whole epoch without a step, after one that was over or was not.
            (at(0, 4), at(2, 0), false),
            (at(0, 2), at(2, 0), true),
        ] {
            assert_eq!(ends_epoch(expected, trained, 4), ends, "{trained} where {expected} was expected");
        }
    }

    #[test]
    fn overflows_are_in_a_row_only_if_no_step_between_them_succeeds() {
        let step = |norm: f64| StepValues { loss: 1.0, terms: vec![1.0], norm };
        let (fine, over) = (step(1.0), step(f64::INFINITY));
        // As one reading of the losses of many steps has them.
        let mut overflows = Overflows::default();
        for _ in 0..Overflows::MOST {
            assert!(overflows.note(&over) && !overflows.are_too_many());
            assert!(!overflows.note(&fine));
        }
        for _ in 0..Overflows::MOST {
            assert!(overflows.note(&over) && !overflows.are_too_many());
        }
        assert!(overflows.note(&over) && overflows.are_too_many());
    }
}
