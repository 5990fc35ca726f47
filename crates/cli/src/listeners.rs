//! Who else hears of a run: TensorBoard, Prometheus.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use tandem_model::Losses;
use tandem_observe::{EventFile, Metrics, exposition};
use tandem_train::{Choice, Event};

use crate::failure::Failure;
use crate::messages::Messages;

/// Writes what happens for TensorBoard (SPEC F20).
pub(crate) struct Board {
    file: EventFile,
}

impl Board {
    /// In this folder, for a run that begins or goes on after `step` with these settings.
    pub(crate) fn open(folder: &Path, step: Option<u64>, choices: &[Choice]) -> io::Result<Board> {
        let mut file = match step {
            Some(step) => EventFile::resume(folder, step + 1)?,
            None => EventFile::create(folder)?,
        };
        let rows: String =
            choices.iter().map(|choice| format!("| `{}` | {} | {} |\n", choice.name, choice.got, choice.why)).collect();
        file.text(step.unwrap_or(0), "settings", &format!("| flag | value | why |\n|---|---|---|\n{rows}"))?;
        file.flush()?;
        Ok(Board { file })
    }

    pub(crate) fn hear(&mut self, event: &Event<'_>) -> io::Result<()> {
        let file = &mut self.file;
        match event {
            Event::Progress(progress) => {
                let step = progress.step;
                file.scalar(step, "loss/train", progress.loss)?;
                for (name, value) in Losses::NAMES.iter().zip(progress.terms) {
                    file.scalar(step, &format!("loss/{name}"), value)?;
                }
                file.scalar(step, "optimiser/rate", progress.rate)?;
                file.scalar(step, "optimiser/norm", progress.norm)?;
                file.scalar(step, "speed/steps_per_s", progress.steps_per_s)?;
                file.scalar(step, "speed/clips_per_s", progress.clips_per_s)?;
                file.scalar(step, "speed/audio_per_s", progress.audio_per_s)?;
                file.scalar(step, "lanes/starved", progress.starved)?;
            }
            Event::Look(look) => {
                file.scalar(look.step, "lanes/data_busy", look.profile.data_busy)?;
                file.scalar(look.step, "lanes/model_busy", look.profile.model_busy)?;
                for stage in &look.profile.stages {
                    file.scalar(look.step, &format!("stages/{}_ms", stage.name), stage.mean_ms)?;
                }
                for queue in &look.queues {
                    file.scalar(look.step, &format!("queues/{}", queue.name), queue.items as f64)?;
                }
                for memory in &look.memory {
                    file.scalar(look.step, &format!("memory/{}_bytes", memory.name), memory.used_bytes as f64)?;
                }
            }
            Event::Validation { step, loss, terms, .. } => {
                file.scalar(*step, "validation/loss", *loss)?;
                for (name, value) in Losses::NAMES.iter().zip(terms) {
                    file.scalar(*step, &format!("validation/{name}"), *value)?;
                }
            }
            Event::Sample { step, path } => {
                let shape = tandem_audio::probe(path).map_err(|error| io::Error::other(error.to_string()))?;
                file.audio(*step, "sample", &std::fs::read(path)?, shape.rate, shape.samples)?;
                let picture = std::fs::read(path.with_extension("png"))?;
                let (width, height) = png_size(&picture).unwrap_or((0, 0));
                file.image(*step, "sample/mel", &picture, width, height)?;
            }
            _ => return Ok(()),
        }
        file.flush()
    }
}

/// Width and height, which a PNG file begins with.
fn png_size(picture: &[u8]) -> Option<(u32, u32)> {
    let number = |at: usize| Some(u32::from_be_bytes(picture.get(at..at + 4)?.try_into().ok()?));
    Some((number(16)?, number(20)?))
}

/// Serves the last look to Prometheus.
pub(crate) fn serve(address: SocketAddr, messages: &Messages) -> Result<Metrics, Failure> {
    let metrics = Metrics::serve(address).map_err(|error| {
        let failure = Failure::usage(messages.with("metrics-failed", &[("address", &address), ("reason", &error)]));
        match error.kind() {
            io::ErrorKind::AddrInUse => failure.hint(messages.get("metrics-hint-port")),
            _ => failure,
        }
    })?;
    let url = format!("http://{}/metrics", metrics.address());
    let mut stderr = io::stderr().lock();
    let _ = writeln!(stderr, "{}", messages.with("metrics-serving", &[("url", &url)]));
    if !address.ip().is_loopback() {
        let _ = writeln!(stderr, "{}", messages.with("metrics-open", &[("address", &metrics.address())]));
    }
    Ok(metrics)
}

/// Everybody who hears of a run.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) board: Option<Board>,
    pub(crate) metrics: Option<Metrics>,
}

impl Listeners {
    /// Tells them; what one of them cannot write any more is returned once, and the run goes on without it.
    pub(crate) fn hear(&mut self, event: &Event<'_>) -> Option<io::Error> {
        if let (Some(metrics), Event::Look(look)) = (&self.metrics, event) {
            metrics.set(exposition(look));
        }
        let failed = self.board.as_mut().and_then(|board| board.hear(event).err());
        if failed.is_some() {
            self.board = None;
        }
        failed
    }
}
