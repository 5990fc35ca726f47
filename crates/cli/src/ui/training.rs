//! How training is shown: a live line in a terminal, plain lines elsewhere, JSON when requested.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::sync::Arc;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::json;
use tandem_device::memory::{self, Lane, LaneMemory, Rung};
use tandem_device::{Backend, FeaturesOn, Mode, Placement};
use tandem_observe::{Bottleneck, Metric, Notice, Progress, Read, Surface, Unit, Verdict, headroom, shown_on};
use tandem_train::{DataIdentity, Event, NanPolicy, Outcome, Report, TrainConfig};

use crate::commands::corpus::MB;
use crate::errors::Explain;
use crate::interrupt::Interrupt;
use crate::messages::Messages;
use crate::ui::dashboard::{self, Dashboard, LiveDashboard};
use crate::ui::table::Table;
use crate::ui::{progress, timing_report};

/// How a run is shown: a live line in a terminal, plain lines elsewhere, JSON when requested.
pub(crate) struct Screen<'a> {
    messages: &'a Messages,
    pub(crate) json: bool,
    live: bool,
    bar: ProgressBar,
    plain_since: Option<Instant>,
    placement: Option<Placement>,
    dashboard: Option<LiveDashboard>,
}

/// Whether another program reads it. What that one writes to the terminal (`| tee`) comes whenever it likes: beside a live line
/// the two would share a line.
fn is_piped(stream: &io::Stdout) -> bool {
    #[cfg(unix)]
    {
        use std::os::fd::AsFd;
        use std::os::unix::fs::FileTypeExt;
        let file = stream.as_fd().try_clone_to_owned().map(std::fs::File::from);
        file.and_then(|file| file.metadata()).is_ok_and(|data| data.file_type().is_fifo())
    }
    #[cfg(not(unix))]
    !stream.is_terminal()
}

impl Screen<'_> {
    pub(crate) fn new(json: bool, messages: &Messages) -> Screen<'_> {
        let live = !json && stderr().is_terminal() && !is_piped(&stdout());
        let bar = progress::training(live);
        bar.set_message(messages.get("train-warming"));
        Screen { messages, json, live, bar, plain_since: None, placement: None, dashboard: None }
    }

    /// Fills the terminal with a dashboard from now on; without a terminal, plain lines stay.
    pub(crate) fn open_dashboard(&mut self, dir: &str, interrupt: &Interrupt) {
        let labels: HashMap<String, String> =
            dashboard::labels().into_iter().map(|id| (id.clone(), self.messages.get(&id))).collect();
        let label = move |id: &str| labels.get(id).cloned().unwrap_or_default();
        let color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let asked = interrupt.clone();
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
        match LiveDashboard::new(Dashboard::new(dir, color), Arc::new(label), Box::new(move || asked.ask())) {
            Ok(dashboard) => self.dashboard = Some(dashboard),
            Err(_) => self.warn(&self.messages.get("dashboard-no-terminal")),
        }
    }

    /// Gives the terminal back, with what was said meanwhile.
    pub(crate) fn close(&mut self) {
        self.bar.finish_and_clear();
        let said = self.dashboard.take().map(LiveDashboard::finish).unwrap_or_default();
        for line in said {
            let _ = self.line(&line);
        }
    }

    fn shown_dashboard(&self) -> Option<&LiveDashboard> {
        self.dashboard.as_ref().filter(|dashboard| dashboard.is_shown())
    }

    /// To standard error; a run does not end because nobody reads it.
    pub(crate) fn warn(&self, text: &str) {
        if let Some(dashboard) = self.shown_dashboard() {
            return dashboard.message(text);
        }
        self.bar.suspend(|| {
            let _ = writeln!(stderr(), "{text}");
        });
    }

    fn line(&self, text: &str) -> io::Result<()> {
        if let Some(dashboard) = self.shown_dashboard() {
            dashboard.message(text);
            return Ok(());
        }
        let write = || {
            let mut out = stdout().lock();
            out.write_all(format!("{text}\n").as_bytes()).and_then(|()| out.flush())
        };
        if self.live { self.bar.suspend(write) } else { write() }
    }

    /// SPEC T3: before the devices are opened.
    pub(crate) fn configuring(&self, placement: &Placement) -> io::Result<()> {
        let (Some(data), Some(model)) = (placement.data.physical, placement.model.physical) else { return Ok(()) };
        if self.json || placement.mode != Mode::MultiGpu {
            return Ok(());
        }
        self.line(&self.messages.get("lanes-configuring"))?;
        self.line(&format!("   {}", self.messages.with("lanes-visible", &[("data", &data), ("model", &model)])))
    }

    /// SPEC T3: when they are open.
    pub(crate) fn configured(&self, placement: &Placement) -> io::Result<()> {
        if self.json || placement.mode != Mode::MultiGpu {
            return Ok(());
        }
        self.line(&self.messages.get("lanes-configured"))
    }

    /// SPEC T1, T2: what the lanes are.
    fn banner(&self, settings: &TrainConfig, placement: &Placement) -> io::Result<()> {
        let messages = self.messages;
        let item = |text: String| self.line(&format!("   {text}"));
        let to = match placement.mode {
            Mode::MultiGpu => {
                self.line(&messages.get("lanes-multi"))?;
                for (id, lane) in [("lanes-data", &placement.data), ("lanes-model", &placement.model)] {
                    let gpu = lane.physical.map_or("-".to_owned(), |index| index.to_string());
                    item(messages.with(id, &[("gpu", &gpu), ("name", &lane.name)]))?;
                }
                &placement.data
            }
            Mode::SingleBuffered => {
                self.line(&messages.get("lanes-single"))?;
                item(messages.with("lanes-buffer", &[("size", &settings.pipeline.buffer_size)]))?;
                item(messages.get(if settings.pipeline.autotune { "lanes-smart-on" } else { "lanes-smart-off" }))?;
                &placement.model
            }
        };
        item(messages.with("lanes-prefetch", &[("device", &to.logical), ("size", &settings.pipeline.buffer_size)]))?;
        if placement.mode == Mode::SingleBuffered {
            let (device, name) = (placement.model.label(), &placement.model.name);
            item(messages.with("lanes-device", &[("device", &device), ("name", name)]))?;
        }
        item(match placement.features {
            FeaturesOn::Data => messages.with("lanes-features-data", &[("device", &placement.data.name)]),
            FeaturesOn::Cpu => messages.get("lanes-features-cpu"),
        })?;
        if placement.model.backend == Backend::Simulated {
            self.line(&messages.get("lanes-simulated"))?;
        }
        if settings.model.mixed_precision {
            item(messages.get("lanes-half"))?;
        }
        if let (Some(data), Some(model)) = (settings.memory.data_limit, settings.memory.model_limit) {
            let why = &messages.get(if settings.memory.isolated { "lanes-hard" } else { "lanes-whole" });
            let (data, model) = (data / memory::MB, model / memory::MB);
            self.line(&messages.with("lanes-limits", &[("data", &data), ("model", &model), ("why", why)]))?;
        }
        Ok(())
    }

    pub(crate) fn start(
        &mut self,
        dir: &str,
        settings: &TrainConfig,
        data: &DataIdentity,
        resumed: Option<(u64, u64, u64)>,
        placement: &Placement,
    ) -> io::Result<()> {
        self.placement = Some(placement.clone());
        if self.json {
            let resumed = resumed.map(|(step, _, _)| step);
            let object = json!({"event": "start", "run": dir, "settings": settings, "data": data,
                "lanes": placement, "resumed_from": resumed});
            return self.line(&object.to_string());
        }
        self.banner(settings, placement)?;
        self.line(&self.messages.with(
            "train-data",
            &[("clips", &data.clips), ("validation", &data.validation_clips), ("speakers", &data.speakers)],
        ))?;
        let part = settings.data.batch_size.div_ceil(settings.optimizer.grad_accum);
        self.line(&self.messages.with(
            "train-settings",
            &[
                ("size", &settings.model.size),
                ("batch", &part),
                ("accumulate", &settings.optimizer.grad_accum),
                ("workers", &settings.pipeline.workers),
                ("rate", &settings.optimizer.lr.peak),
            ],
        ))?;
        match resumed {
            Some((step, epoch, batch)) => self.line(
                &self
                    .messages
                    .with("train-resumed", &[("step", &step), ("epoch", &epoch), ("batch", &batch), ("folder", &dir)]),
            ),
            None => self.line(&self.messages.with("train-new", &[("folder", &dir)])),
        }
    }

    pub(crate) fn show(&mut self, event: &Event<'_>) -> io::Result<()> {
        if self.json {
            return self.line(&event_json(event).to_string());
        }
        let messages = self.messages;
        match event {
            Event::DataLane { buffer_bytes } => {
                self.line(&messages.with("lanes-buffer-bytes", &[("megabytes", &buffer_bytes.div_ceil(MB))]))
            }
            Event::Placing => {
                let Some(placement) = &self.placement else { return Ok(()) };
                let device = &placement.model.logical;
                if placement.mode == Mode::MultiGpu {
                    self.line(&messages.with("lanes-placed", &[("device", device)]))?;
                    if let Some(gpu) = placement.model.physical.filter(|&index| index != 1) {
                        self.line(&format!("   {}", messages.with("lanes-mapped", &[("gpu", &gpu)])))?;
                    }
                }
                self.line(&messages.with("lanes-creating", &[("device", device)]))
            }
            Event::Warming { seconds, ready, of } => {
                let mode = self.placement.as_ref().map_or(String::new(), |placement| placement.mode.to_string());
                let seconds = format!("{seconds:.1}");
                self.line(
                    &messages
                        .with("lanes-waiting", &[("mode", &mode), ("seconds", &seconds), ("ready", ready), ("of", of)]),
                )
            }
            Event::Starting { ready, of, seconds } => {
                let seconds = format!("{seconds:.1}");
                self.line(&messages.with("lanes-starting", &[("ready", ready), ("of", of), ("seconds", &seconds)]))
            }
            Event::Tuned(decision) => self.line(&messages.with("lanes-tuned", &[("decision", decision)])),
            Event::Memory { step, lanes } => lanes.iter().try_for_each(|lane| self.memory(*step, lane)),
            Event::Leak { step: _, device, leak } => {
                let megabytes = leak.grown_bytes / memory::MB;
                let rate = format!("{:.2}", leak.bytes_per_step / memory::MB as f64);
                self.warn(&messages.with(
                    "lanes-leak",
                    &[("device", device), ("megabytes", &megabytes), ("steps", &leak.steps), ("rate", &rate)],
                ));
                Ok(())
            }
            Event::Model { parts, .. } => {
                let all: usize = parts.iter().map(|(_, count)| count).sum();
                let parts: Vec<String> =
                    parts.iter().map(|(name, count)| format!("{name} {}", millions(*count))).collect();
                self.line(
                    &messages.with("train-model", &[("parameters", &millions(all)), ("parts", &parts.join(", "))]),
                )
            }
            Event::Predictions { path, step, from } => {
                let values: &[(&str, &dyn std::fmt::Display)] =
                    &[("path", &path.display()), ("step", step), ("from", from)];
                self.line(&messages.with("train-predictions", values))
            }
            Event::WarmStart { path, step, tensors } => {
                let rows: usize = tensors.matched.iter().map(|(_, rows, _)| rows).sum();
                let all: usize = tensors.matched.iter().map(|(_, _, all)| all).sum();
                let values: &[(&str, &dyn std::fmt::Display)] = &[
                    ("path", &path.display()),
                    ("step", step),
                    ("loaded", &tensors.loaded.len()),
                    ("rows", &rows),
                    ("all", &all),
                    ("new", &tensors.new.len()),
                    ("skipped", &tensors.skipped.len()),
                ];
                self.line(&messages.with("train-warm-start", values))?;
                for (id, names) in [("train-warm-new", &tensors.new), ("train-warm-skipped", &tensors.skipped)] {
                    if !names.is_empty() {
                        self.line(&messages.with(id, &[("names", &names.join(", "))]))?;
                    }
                }
                Ok(())
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
                ))?;
                match (preflight.limit_bytes, preflight.ladder.first()) {
                    (Some(limit), Some(asked)) if !asked.fits => self.line(&ladder(&preflight.ladder, limit, messages)),
                    _ => Ok(()),
                }
            }
            Event::Progress(progress) => self.progress(progress),
            Event::Snapshot(snapshot) => {
                if let Some(dashboard) = &self.dashboard {
                    dashboard.update((*snapshot).clone());
                }
                Ok(())
            }
            Event::Notice { notice, .. } => {
                self.warn(&reported(notice, messages));
                Ok(())
            }
            Event::Validation { step, loss, names, terms, best } => {
                let mark = if *best { messages.get("train-best") } else { String::new() };
                let (loss, terms) = (format!("{loss:.4}"), named(names, terms));
                self.line(
                    &messages.with(
                        "train-validation",
                        &[("step", step), ("loss", &loss), ("terms", &terms), ("best", &mark)],
                    ),
                )
            }
            Event::Archived { step, path } => {
                self.warn(&messages.with("train-later", &[("step", step), ("to", &path.display())]));
                Ok(())
            }
            Event::Checkpoint { step, path } => {
                self.line(&messages.with("train-checkpoint", &[("step", step), ("path", &path.display())]))
            }
            Event::CheckpointFailed { step, error } => {
                self.warn(
                    &messages
                        .with("train-checkpoint-failed", &[("step", step), ("reason", &error.text().render(messages))]),
                );
                Ok(())
            }
            Event::LogFailed { path, error } => {
                self.warn(&messages.with("train-log-failed", &[("path", &path.display()), ("reason", error)]));
                Ok(())
            }
            Event::Sample { step, path } => {
                self.line(&messages.with("train-sample", &[("step", step), ("path", &path.display())]))
            }
            Event::SampleFailed { step, error } => {
                self.warn(&messages.with("train-sample-failed", &[("step", step), ("reason", error)]));
                Ok(())
            }
            Event::Short { step, planned } => {
                self.warn(&messages.with("train-short", &[("step", step), ("planned", planned)]));
                Ok(())
            }
            Event::NotFinite { step, clips, policy } => {
                if *policy == NanPolicy::Skip {
                    let clips = clips.join(", ");
                    self.warn(&messages.with("train-nan-skipped", &[("step", step), ("clips", &clips)]));
                }
                Ok(())
            }
            Event::Overflow { step } => {
                self.warn(&messages.with("train-overflow", &[("step", step)]));
                Ok(())
            }
            Event::Split { step, micro_batches, kept } => {
                let id = if *kept { "train-split-kept" } else { "train-split" };
                self.warn(&messages.with(id, &[("step", step), ("parts", micro_batches)]));
                Ok(())
            }
        }
    }

    /// SPEC T9.
    fn memory(&self, step: u64, lane: &LaneMemory) -> io::Result<()> {
        let role = match lane.lane {
            Lane::Data => "Data",
            Lane::Model => "Model",
        };
        let megabytes = |bytes: u64| bytes.div_ceil(memory::MB);
        let used = megabytes(lane.used_bytes());
        let text = match lane.total_bytes().zip(lane.utilization()) {
            Some((total, share)) => self.messages.with(
                "lanes-memory",
                &[
                    ("step", &step),
                    ("role", &role),
                    ("device", &lane.device),
                    ("used", &used),
                    ("total", &megabytes(total)),
                    ("share", &format!("{:.1}", 100.0 * share)),
                ],
            ),
            None => self.messages.with(
                "lanes-memory-bare",
                &[("step", &step), ("role", &role), ("device", &lane.device), ("used", &used)],
            ),
        };
        self.line(&text)
    }

    fn progress(&mut self, progress: &Progress) -> io::Result<()> {
        if self.shown_dashboard().is_some() {
            return Ok(());
        }
        let text = progress_line(progress, self.messages);
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

/// How far the run is: every metric of [`Surface::Line`], then the terms of the loss.
fn progress_line(progress: &Progress, messages: &Messages) -> String {
    let figure = |metric: &Metric| {
        let Read::Progress(read) = metric.read else { return None };
        let value = read(progress).first()?.value;
        let (scale, decimals, _) = metric.unit.format();
        let value = match metric.unit {
            Unit::Duration => duration(value),
            _ => format!("{:.decimals$}", scale * value),
        };
        Some(messages.with(&format!("line-{}", metric.name), &[("value", &value)]))
    };
    let figures: Vec<String> = shown_on(Surface::Line).into_iter().filter_map(figure).collect();
    let step = messages.with("train-progress", &[("step", &progress.step), ("steps", &progress.steps)]);
    let terms: Vec<String> = progress.terms.iter().map(|(name, value)| format!("{name} {value:.3}")).collect();
    format!("{step} {} ({})", messages.list(&figures), messages.isolated(&terms.join(" ")))
}

/// A notice in words.
fn reported(notice: &Notice, messages: &Messages) -> String {
    match notice {
        Notice::Limit { bottleneck, starved, headroom, change } => {
            let verdict = Verdict {
                healthy: *bottleneck == Bottleneck::Train,
                bottleneck: *bottleneck,
                findings: Vec::new(),
                recommendations: change.iter().cloned().collect(),
            };
            timing_report::limit(&verdict, *starved, *headroom, messages)
        }
        Notice::Variation { variation, stage } => timing_report::variation(*variation, *stage, messages),
    }
}

fn named(names: &[&str], terms: &[f64]) -> String {
    names.iter().zip(terms).map(|(name, value)| format!("{name} {value:.3}")).collect::<Vec<_>>().join(" ")
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
        Event::DataLane { buffer_bytes } => json!({"event": "data_lane", "buffer_bytes": buffer_bytes}),
        Event::Placing => json!({"event": "placing"}),
        Event::Warming { seconds, ready, of } => {
            json!({"event": "warming", "seconds": seconds, "ready": ready, "of": of})
        }
        Event::Starting { ready, of, seconds } => {
            json!({"event": "starting", "ready": ready, "of": of, "seconds": seconds})
        }
        Event::Tuned(decision) => json!({"event": "tuned", "decision": decision}),
        Event::Memory { step, lanes } => json!({"event": "memory", "step": step, "lanes": lanes}),
        Event::Leak { step, device, leak } => {
            json!({"event": "leak", "step": step, "device": device, "leak": leak})
        }
        Event::Model { parts, device } => {
            let parameters: usize = parts.iter().map(|(_, count)| count).sum();
            let parts: serde_json::Map<String, serde_json::Value> =
                parts.iter().map(|(name, count)| (name.clone(), json!(count))).collect();
            json!({"event": "model", "parameters": parameters, "parts": parts, "device": device})
        }
        Event::Predictions { path, step, from } => {
            json!({"event": "predictions", "path": path, "step": step, "from": from})
        }
        Event::WarmStart { path, step, tensors } => {
            json!({"event": "warm_start", "path": path, "step": step, "tensors": tensors})
        }
        Event::Preflight(preflight) => json!({"event": "preflight", "preflight": preflight}),
        Event::Progress(progress) => json!({"event": "progress", "progress": progress}),
        Event::Snapshot(snapshot) => json!({"event": "snapshot", "snapshot": snapshot}),
        Event::Notice { step, notice: Notice::Limit { bottleneck, starved, headroom, change } } => {
            json!({"event": "limit", "step": step, "bottleneck": bottleneck, "starved": starved, "headroom": headroom,
                "change": change})
        }
        Event::Notice { step, notice: Notice::Variation { variation, stage } } => {
            json!({"event": "variation", "step": step, "variation": variation, "stage": stage})
        }
        Event::Validation { step, loss, terms, best, .. } => {
            json!({"event": "validation", "step": step, "loss": loss, "terms": terms, "best": best})
        }
        Event::Archived { step, path } => json!({"event": "set_aside", "step": step, "path": path}),
        Event::Checkpoint { step, path } => json!({"event": "checkpoint", "step": step, "path": path}),
        Event::CheckpointFailed { step, error } => {
            json!({"event": "checkpoint_failed", "step": step, "error": error.to_string()})
        }
        Event::LogFailed { path, error } => json!({"event": "log_failed", "path": path, "error": error.to_string()}),
        Event::Sample { step, path } => json!({"event": "sample", "step": step, "path": path}),
        Event::SampleFailed { step, error } => json!({"event": "sample_failed", "step": step, "error": error}),
        Event::Short { step, planned } => json!({"event": "short", "step": step, "planned": planned}),
        Event::NotFinite { step, clips, policy } => {
            json!({"event": "not_finite", "step": step, "clips": clips, "policy": policy})
        }
        Event::Overflow { step } => json!({"event": "overflow", "step": step}),
        Event::Split { step, micro_batches, kept } => {
            json!({"event": "split", "step": step, "parts": micro_batches, "kept": kept})
        }
    }
}

/// SPEC G5: what was requested, and what would fit.
pub(crate) fn ladder(rungs: &[Rung], limit: u64, messages: &Messages) -> String {
    let heading = ["batch", "parts", "checkpointing", "bytes", "fits"]
        .map(|column| messages.get(&format!("lanes-ladder-{column}")));
    let mut table = Table::new(heading);
    for rung in rungs {
        let mark = |yes: bool| if yes { "✓" } else { "-" }.to_owned();
        let bytes = rung.bytes.div_ceil(memory::MB).to_string();
        table.row([
            rung.batch.div_ceil(rung.micro_batches).to_string(),
            rung.micro_batches.to_string(),
            mark(rung.checkpointing),
            bytes,
            mark(rung.fits),
        ]);
    }
    let title = messages.with("lanes-ladder", &[("limit", &(limit / memory::MB))]);
    format!("{title}\n{}", table.render().trim_end())
}

/// SPEC R9.
pub(crate) fn final_report(report: &Report, messages: &Messages) -> String {
    let outcome = messages.get(match report.outcome {
        Outcome::Finished => "train-end-finished",
        Outcome::EarlyStopped => "train-end-stale",
        Outcome::Stopped => "train-end-stopped",
        Outcome::Failed => "train-end-failed",
    });
    let steps_per_s = if report.seconds > 0.0 { report.steps as f64 / report.seconds } else { 0.0 };
    let mut text = messages.with(
        "train-report",
        &[
            ("ending", &outcome),
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
    if let Some(verdict) = &report.verdict {
        let starved = report.starved;
        text += &timing_report::limit(verdict, starved, headroom(starved), messages);
        text.push('\n');
    }
    for bad in &report.skipped {
        text += &messages.with("load-bad", &[("id", &bad.id), ("reason", &bad.reason)]);
        text.push('\n');
    }
    text
}
