//! What happened since the last report of progress, from the records of the pipeline.

use std::time::{Duration, Instant};

use tandem_flow::{Context, Stage};
use tandem_observe::Progress;

use crate::memory;
use crate::settings::TrainConfig;
use crate::step::{StepRecord, StepValues};

/// The share of the time that the busiest of these stages was at work.
pub(crate) fn lane_busy(context: &Context, stages: &[Stage], seconds: f64) -> f64 {
    let busy = |stage: &Stage| context.stage(stage).map_or(0.0, |stage| stage.busy.total);
    let most = stages.iter().map(busy).fold(0.0, f64::max);
    if seconds > 0.0 { (most / seconds).min(1.0) } else { 0.0 }
}

/// One of two parts.
pub(crate) fn share(part: f64, rest: f64) -> f64 {
    if part + rest > 0.0 { part / (part + rest) } else { 0.0 }
}

/// What happened since the last report of progress.
pub(crate) struct Window {
    started: Instant,
    steps: u64,
    clips: u64,
    audio: f64,
    waited: f64,
    busy: f64,
    /// Seconds of waiting for other ranks, if there are any.
    reduced: Option<f64>,
}

impl Window {
    pub(crate) fn new(context: &Context) -> Window {
        let (waited, busy) = Window::meters(context);
        Window { started: Instant::now(), steps: 0, clips: 0, audio: 0.0, waited, busy, reduced: None }
    }

    fn meters(context: &Context) -> (f64, f64) {
        context.stage(Stage::Train).map_or((0.0, 0.0), |train| (train.wait_in.total, train.busy.total))
    }

    pub(crate) fn add(&mut self, record: &StepRecord) {
        self.steps += 1;
        self.clips += record.all_clips;
        self.audio += record.seconds;
        for (start, end) in &record.waits {
            *self.reduced.get_or_insert(0.0) += (*end - *start).as_secs_f64();
        }
    }

    pub(crate) fn close(
        &mut self,
        context: &Context,
        step: u64,
        steps: u64,
        epoch: u64,
        (names, values): (&[&str], &StepValues),
        settings: &TrainConfig,
    ) -> Progress {
        let seconds = self.started.elapsed().max(Duration::from_micros(1)).as_secs_f64();
        let (waited, busy) = Window::meters(context);
        let steps_per_s = self.steps as f64 / seconds;
        let progress = Progress {
            step,
            steps,
            epoch,
            loss: values.loss,
            terms: names.iter().map(|name| (*name).to_owned()).zip(values.terms.iter().copied()).collect(),
            grad_norm: values.norm,
            lr: settings.optimizer.lr.at(step),
            steps_per_s,
            clips_per_s: self.clips as f64 / seconds,
            audio_per_s: self.audio / seconds,
            starved: share(waited - self.waited, busy - self.busy),
            reduce: self.reduced.map(|reduced| (reduced / (busy - self.busy).max(1e-9)).min(1.0)),
            eta_s: (steps - step) as f64 / steps_per_s.max(1e-9),
            memory_bytes: memory::resident_bytes(),
        };
        *self = Window { started: Instant::now(), steps: 0, clips: 0, audio: 0.0, waited, busy, reduced: None };
        progress
    }
}
