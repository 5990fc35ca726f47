//! How training looks: a live line in a terminal, plain lines elsewhere, JSON when asked for.

use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::time::Instant;

use indicatif::ProgressBar;
use serde_json::json;
use tandem_model::Losses;
use tandem_train::{DataIdentity, Ending, Event, NanPolicy, Progress, Report, TrainSettings};

use crate::commands::corpus::MB;
use crate::messages::Messages;
use crate::ui::progress;

/// How a run is shown: a live line in a terminal, plain lines elsewhere, JSON when asked for.
pub(crate) struct Screen<'a> {
    messages: &'a Messages,
    json: bool,
    live: bool,
    pub(crate) bar: ProgressBar,
    plain_since: Option<Instant>,
}

impl Screen<'_> {
    pub(crate) fn new(json: bool, messages: &Messages) -> Screen<'_> {
        let live = !json && stderr().is_terminal();
        let bar = progress::training(live);
        bar.set_message(messages.get("train-warming"));
        Screen { messages, json, live, bar, plain_since: None }
    }

    /// To standard error; a run does not end because nobody reads it.
    fn warn(&self, text: &str) {
        self.bar.suspend(|| {
            let _ = writeln!(stderr(), "{text}");
        });
    }

    fn line(&self, text: &str) -> io::Result<()> {
        let write = || {
            let mut out = stdout().lock();
            out.write_all(format!("{text}\n").as_bytes()).and_then(|()| out.flush())
        };
        if self.live { self.bar.suspend(write) } else { write() }
    }

    pub(crate) fn start(
        &self,
        folder: &str,
        settings: &TrainSettings,
        data: &DataIdentity,
        resumed: Option<(u64, u64, u64)>,
    ) -> io::Result<()> {
        if self.json {
            let resumed = resumed.map(|(step, _, _)| step);
            return self.line(
                &json!({"event": "start", "run": folder, "settings": settings, "data": data, "resumed_from": resumed})
                    .to_string(),
            );
        }
        self.line(&self.messages.with(
            "train-data",
            &[("clips", &data.clips), ("validation", &data.validation_clips), ("speakers", &data.speakers)],
        ))?;
        let part = settings.batch_size.div_ceil(settings.accumulate);
        self.line(&self.messages.with(
            "train-settings",
            &[
                ("size", &settings.size),
                ("batch", &part),
                ("accumulate", &settings.accumulate),
                ("workers", &settings.workers),
                ("rate", &settings.rate.peak),
            ],
        ))?;
        match resumed {
            Some((step, epoch, batch)) => {
                self.line(&self.messages.with(
                    "train-resumed",
                    &[("step", &step), ("epoch", &epoch), ("batch", &batch), ("folder", &folder)],
                ))
            }
            None => self.line(&self.messages.with("train-new", &[("folder", &folder)])),
        }
    }

    pub(crate) fn show(&mut self, event: &Event<'_>) -> io::Result<()> {
        if self.json {
            return self.line(&event_json(event).to_string());
        }
        let messages = self.messages;
        match event {
            Event::Model { parts, .. } => {
                let all: usize = parts.iter().map(|(_, count)| count).sum();
                let parts: Vec<String> =
                    parts.iter().map(|(name, count)| format!("{name} {}", millions(*count))).collect();
                self.line(
                    &messages.with("train-model", &[("parameters", &millions(all)), ("parts", &parts.join(", "))]),
                )
            }
            Event::Preflight(preflight) => {
                let peak = preflight.peak_bytes.map_or("?".to_owned(), |bytes| (bytes / MB).to_string());
                let seconds = format!("{:.2}", preflight.seconds);
                self.line(&messages.with(
                    "train-preflight",
                    &[
                        ("rows", &preflight.rows),
                        ("frames", &preflight.frames),
                        ("seconds", &seconds),
                        ("megabytes", &peak),
                    ],
                ))
            }
            Event::Progress(progress) => self.progress(progress),
            Event::Validation { step, loss, terms, best } => {
                let mark = if *best { messages.get("train-best") } else { String::new() };
                let (loss, terms) = (format!("{loss:.4}"), named(terms));
                self.line(
                    &messages.with(
                        "train-validation",
                        &[("step", step), ("loss", &loss), ("terms", &terms), ("best", &mark)],
                    ),
                )
            }
            Event::SetAside { step, path } => {
                self.warn(&messages.with("train-later", &[("step", step), ("to", &path.display())]));
                Ok(())
            }
            Event::Checkpoint { step, path } => {
                self.line(&messages.with("train-checkpoint", &[("step", step), ("path", &path.display())]))
            }
            Event::CheckpointFailed { step, error } => {
                self.warn(&messages.with("train-checkpoint-failed", &[("step", step), ("reason", error)]));
                Ok(())
            }
            Event::Sample { step, path } => {
                self.line(&messages.with("train-sample", &[("step", step), ("path", &path.display())]))
            }
            Event::SampleFailed { step, error } => {
                self.warn(&messages.with("train-sample-failed", &[("step", step), ("reason", error)]));
                Ok(())
            }
            Event::NotFinite { step, clips, policy } => {
                if *policy == NanPolicy::Skip {
                    let clips = clips.join(", ");
                    self.warn(&messages.with("train-nan-skipped", &[("step", step), ("clips", &clips)]));
                }
                Ok(())
            }
            Event::Split { step, parts } => {
                self.warn(&messages.with("train-split", &[("step", step), ("parts", parts)]));
                Ok(())
            }
        }
    }

    fn progress(&mut self, progress: &Progress) -> io::Result<()> {
        let text = self.messages.with(
            "train-progress",
            &[
                ("step", &progress.step),
                ("steps", &progress.steps),
                ("loss", &format!("{:.3}", progress.loss)),
                ("terms", &named(&progress.terms)),
                ("rate", &format!("{:.2}", progress.steps_per_s)),
                ("audio", &format!("{:.0}", progress.audio_per_s)),
                ("starved", &format!("{:.1}", 100.0 * progress.starved)),
                ("eta", &duration(progress.eta_s)),
            ],
        );
        if self.live {
            self.bar.set_length(progress.steps);
            self.bar.set_position(progress.step);
            self.bar.set_message(text);
            return Ok(());
        }
        // A log need not have more than a line every two seconds.
        let due = self.plain_since.is_none_or(|since| since.elapsed().as_secs_f64() >= 2.0);
        if due || progress.step == progress.steps {
            self.plain_since = Some(Instant::now());
            return self.line(&text);
        }
        Ok(())
    }
}

fn named(terms: &[f64; 3]) -> String {
    Losses::NAMES.iter().zip(terms).map(|(name, value)| format!("{name} {value:.3}")).collect::<Vec<_>>().join(" ")
}

pub(crate) fn millions(count: usize) -> String {
    if count >= 100_000 { format!("{:.2} M", count as f64 / 1e6) } else { count.to_string() }
}

/// `1 h 02 m 03 s`, as far as it goes.
pub(crate) fn duration(seconds: f64) -> String {
    let all = seconds.max(0.0).round() as u64;
    let (hours, minutes, seconds) = (all / 3600, all / 60 % 60, all % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds} s"),
        (0, _) => format!("{minutes} m {seconds:02} s"),
        _ => format!("{hours} h {minutes:02} m {seconds:02} s"),
    }
}

fn event_json(event: &Event<'_>) -> serde_json::Value {
    match event {
        Event::Model { parts, device } => {
            let parameters: usize = parts.iter().map(|(_, count)| count).sum();
            let parts: serde_json::Map<String, serde_json::Value> =
                parts.iter().map(|(name, count)| (name.clone(), json!(count))).collect();
            json!({"event": "model", "parameters": parameters, "parts": parts, "device": device})
        }
        Event::Preflight(preflight) => json!({"event": "preflight", "preflight": preflight}),
        Event::Progress(progress) => json!({"event": "progress", "progress": progress}),
        Event::Validation { step, loss, terms, best } => {
            json!({"event": "validation", "step": step, "loss": loss, "terms": terms, "best": best})
        }
        Event::SetAside { step, path } => json!({"event": "set_aside", "step": step, "path": path}),
        Event::Checkpoint { step, path } => json!({"event": "checkpoint", "step": step, "path": path}),
        Event::CheckpointFailed { step, error } => {
            json!({"event": "checkpoint_failed", "step": step, "error": error.to_string()})
        }
        Event::Sample { step, path } => json!({"event": "sample", "step": step, "path": path}),
        Event::SampleFailed { step, error } => json!({"event": "sample_failed", "step": step, "error": error}),
        Event::NotFinite { step, clips, policy } => {
            json!({"event": "not_finite", "step": step, "clips": clips, "policy": policy})
        }
        Event::Split { step, parts } => json!({"event": "split", "step": step, "parts": parts}),
    }
}

/// SPEC R9.
pub(crate) fn final_report(report: &Report, messages: &Messages) -> String {
    let ending = messages.get(match report.ending {
        Ending::Finished => "train-end-finished",
        Ending::Stale => "train-end-stale",
        Ending::Stopped => "train-end-stopped",
    });
    let steps_per_s = if report.seconds > 0.0 { report.steps as f64 / report.seconds } else { 0.0 };
    let mut text = messages.with(
        "train-report",
        &[
            ("ending", &ending),
            ("steps", &report.steps),
            ("step", &report.step),
            ("time", &duration(report.seconds)),
            ("total", &duration(report.total_seconds)),
            ("rate", &format!("{steps_per_s:.2}")),
            ("hours", &format!("{:.2}", report.audio_seconds / 3600.0)),
            ("starved", &format!("{:.2}", 100.0 * report.starved)),
            ("alignment", &format!("{:.2}", 100.0 * report.alignment_share)),
            ("memory", &report.peak_bytes.map_or("?".to_owned(), |bytes| (bytes / MB).to_string())),
        ],
    );
    text.push('\n');
    if let Some((loss, step)) = report.best {
        text += &messages.with("train-report-best", &[("loss", &format!("{loss:.4}")), ("step", &step)]);
        text.push('\n');
    }
    for bad in &report.left_out {
        text += &messages.with("load-bad", &[("id", &bad.id), ("reason", &bad.reason)]);
        text.push('\n');
    }
    text
}
