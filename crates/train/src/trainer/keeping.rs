//! What a run keeps: checkpoints and samples.

use std::time::Instant;

use tandem_model::weights;
use tandem_observe::spectrogram_png;

use super::{OnEvent, Trainer};
use crate::checkpoint::{Checkpoint, CheckpointError, FORMAT, State, write_atomically};
use crate::events::Event;
use crate::features::Prepared;
use crate::speech::Speech;
use crate::step::Learner;
use crate::validation::plain;

impl Trainer {
    /// Writes a checkpoint, unless this step has one.
    pub(super) fn save(&mut self, started: Instant, on_event: OnEvent<'_>) -> Result<(), CheckpointError> {
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

    pub(super) fn sample(&self, validation: &[Prepared], step: u64, on_event: OnEvent<'_>) {
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
