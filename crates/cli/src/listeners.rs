//! Who else a run reports to: TensorBoard, Prometheus.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tandem_observe::{EventFile, METRICS, Metric, MetricsServer, Read, Sample, exposition};
use tandem_train::{Event, ResolvedSetting};

use crate::failure::Failure;
use crate::messages::Messages;

/// Writes what happens for TensorBoard (SPEC F20).
pub(crate) struct Board {
    file: EventFile,
    dir: PathBuf,
}

impl Board {
    /// In this folder, for a run that begins, or is resumed after `step`, with these settings.
    pub(crate) fn open(dir: &Path, step: Option<u64>, settings: &[ResolvedSetting]) -> io::Result<Board> {
        let mut file = match step {
            Some(step) => EventFile::resume(dir, step + 1)?,
            None => EventFile::create(dir)?,
        };
        let row = |one: &ResolvedSetting| format!("| `{}` | {} | {} |\n", one.name, one.value, one.source);
        let rows: String = settings.iter().map(row).collect();
        file.text(step.unwrap_or(0), "settings", &format!("| flag | value | source |\n|---|---|---|\n{rows}"))?;
        file.flush()?;
        Ok(Board { file, dir: dir.to_owned() })
    }

    pub(crate) fn hear(&mut self, event: &Event<'_>) -> io::Result<()> {
        let file = &mut self.file;
        match event {
            Event::Progress(progress) => {
                for metric in METRICS {
                    if let Read::Progress(read) = metric.read {
                        curves(file, progress.step, metric, &read(progress))?;
                    }
                }
            }
            Event::Snapshot(snapshot) => {
                for metric in METRICS.iter().filter(|metric| !matches!(metric.read, Read::Progress(_))) {
                    curves(file, snapshot.progress.step, metric, &metric.samples(snapshot))?;
                }
            }
            Event::Validation { step, loss, names, terms, .. } => {
                file.scalar(*step, "validation/loss", *loss)?;
                for (name, value) in names.iter().zip(terms) {
                    file.scalar(*step, &format!("validation/{name}"), *value)?;
                }
            }
            Event::Sample { step, path } => {
                let shape = tandem_audio::open_audio(path)
                    .and_then(|mut file| tandem_audio::probe(&mut file))
                    .map_err(|error| io::Error::other(error.to_string()))?;
                file.audio(*step, "sample", &std::fs::read(path)?, shape.rate, shape.samples)?;
                let image = std::fs::read(path.with_extension("png"))?;
                let (width, height) = png_size(&image).unwrap_or((0, 0));
                file.image(*step, "sample/mel", &image, width, height)?;
            }
            _ => return Ok(()),
        }
        file.flush()
    }
}

fn curves(file: &mut EventFile, step: u64, metric: &Metric, samples: &[Sample]) -> io::Result<()> {
    samples.iter().filter_map(|sample| metric.point(sample)).try_for_each(|(tag, value)| file.scalar(step, &tag, value))
}

/// Width and height, which a PNG file begins with.
fn png_size(image: &[u8]) -> Option<(u32, u32)> {
    let number = |at: usize| Some(u32::from_be_bytes(image.get(at..at + 4)?.try_into().ok()?));
    Some((number(16)?, number(20)?))
}

/// Serves the last snapshot to Prometheus.
pub(crate) fn serve(address: SocketAddr, messages: &Messages) -> Result<MetricsServer, Failure> {
    let metrics = MetricsServer::serve(address).map_err(|error| {
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
    pub(crate) metrics: Option<MetricsServer>,
}

impl Listeners {
    /// Tells them; the folder that one of them cannot write to any more is returned once, and the run continues without it.
    pub(crate) fn hear(&mut self, event: &Event<'_>) -> Option<(PathBuf, io::Error)> {
        if let (Some(metrics), Event::Snapshot(snapshot)) = (&self.metrics, event) {
            metrics.set(exposition(snapshot));
        }
        let error = self.board.as_mut().and_then(|board| board.hear(event).err())?;
        self.board.take().map(|board| (board.dir, error))
    }
}
