//! What a run keeps: checkpoints and samples.

use std::time::Instant;

use tandem_data::files::write_atomically;
use tandem_model::weights;
use tandem_observe::spectrogram_png;

use super::{OnEvent, TaskTrainer};
use crate::checkpoint::{Checkpoint, CheckpointError, FORMAT, State};
use crate::events::Event;
use crate::reduce::Activity;
use crate::step::Learner;
use crate::task::SpeechTask;

impl<T: SpeechTask> TaskTrainer<T> {
    /// Writes a checkpoint, unless this step has one.
    pub(super) fn save(&mut self, started: Instant, on_event: OnEvent<'_>) -> Result<(), CheckpointError> {
        if !self.writes() {
            // What is best is for rank 0 to say, which also decides about early stopping.
            self.state.best = self.state.better.or(self.state.best);
            return Ok(());
        }
        let checkpoint = {
            let learner = self.lock();
            // After a step that failed half way there is no model to save; the last checkpoint holds.
            if learner.steps() == 0 || self.state.saved == Some(learner.steps()) || !learner.is_whole() {
                return Ok(());
            }
            learner.note(Activity::Checkpoint);
            self.checkpoint(&learner, started)
        };
        let (step, checkpoints) = (checkpoint.state.step, self.run.checkpoints());
        match checkpoints.write(&checkpoint) {
            Ok(path) => {
                self.state.saved = Some(step);
                self.state.best = checkpoint.state.best;
                // Noted before others are deleted; when it cannot be, nothing is, and the next checkpoint tries again.
                let noted = checkpoints.correct_best(self.state.best.map(|(_, step)| step));
                if noted.is_ok() {
                    checkpoints.prune(self.settings.run.keep);
                }
                on_event(Event::Checkpoint { step, path: &path });
                if let Err(error) = &noted {
                    on_event(Event::CheckpointFailed { step, error });
                }
                Ok(())
            }
            Err(error) => {
                on_event(Event::CheckpointFailed { step, error: &error });
                Err(error)
            }
        }
    }

    fn checkpoint(&self, learner: &Learner<T>, started: Instant) -> Checkpoint {
        Checkpoint {
            weights: weights::export(learner.model()),
            ema: learner.ema().export(),
            optimizer: learner.optimizer_state(),
            state: State {
                format: FORMAT,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                step: learner.steps(),
                next: learner.next().into(),
                seconds: self.state.seconds_before + started.elapsed().as_secs_f64(),
                audio_seconds: self.state.audio_seconds,
                clips: self.state.clips,
                best: self.state.better.filter(|(_, step)| *step == learner.steps()).or(self.state.best),
                validations_without_progress: self.state.validations_without_progress,
                loss_scale: learner.loss_scale(),
                micro_batches: learner.micro_batches(),
                settings: self.settings.clone(),
                model: self.task.config(),
                mel: self.data.corpus.settings().mel.clone(),
                stats: self.stats.clone(),
                frontend: self.data.corpus.frontend().clone(),
                data: self.data.identity(),
                predictor: self.task.predictor().cloned(),
            },
        }
    }

    pub(super) fn sample(&self, validation: &[T::HeldOut], step: u64, on_event: OnEvent<'_>) {
        let Some(batch) = validation.first().filter(|_| self.writes()) else { return };
        let model = self.lock().ema().model().clone();
        let features = (self.data.corpus.settings(), &self.stats);
        let path = self.run.samples().join(format!("step-{step:08}.wav"));
        let at = |error: std::io::Error| format!("{}: {error}", path.display());
        let made = std::fs::create_dir_all(self.run.samples())
            .map_err(at)
            .and_then(|()| self.task.sample(model, batch, features, &self.lanes.model))
            .and_then(|speech| {
                let image = spectrogram_png(&speech.mel, speech.frames, &[], 4);
                speech.write(&path).and_then(|()| write_atomically(&path.with_extension("png"), &image)).map_err(at)
            });
        match made {
            Ok(()) => on_event(Event::Sample { step, path: &path }),
            Err(error) => on_event(Event::SampleFailed { step, error }),
        }
    }
}
