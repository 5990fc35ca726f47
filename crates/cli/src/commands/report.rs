//! `tandem report`: what a finished or running run did with its time, or two of them side by side.

use serde_json::{Value, json};
use tandem_device::memory::MB as MIB;
use tandem_flow::Place;
use tandem_observe::{Document, Line, MemoryUse, QueueFill, Side, Snapshot};
use tandem_train::{RecordError, RunRecord};

use crate::args::ReportArgs;
use crate::failure::{Failure, USAGE};
use crate::messages::Messages;
use crate::ui::output::{Output, print};
use crate::ui::timing_report;
use crate::ui::training::duration;

/// Points of a line: more cannot be seen.
const POINTS: usize = 1000;

pub(crate) fn run(args: &ReportArgs, messages: &Messages) -> Result<(), Failure> {
    let html = args.html.as_deref().map(|path| Output::create_for(path, messages)).transpose()?;
    let mut notes = Vec::new();
    let mut sides = Vec::new();
    for path in [Some(&args.run), args.other.as_ref()].into_iter().flatten() {
        let record = RunRecord::read(path).map_err(|error| refused(&error, messages))?;
        for (file, lines) in &record.damaged {
            notes.push(messages.with("report-damaged", &[("path", &file.display()), ("lines", lines)]));
        }
        sides.push(side(&path.display().to_string(), &record, messages));
    }
    let names: Vec<&str> = sides.iter().map(|side| side.name.as_str()).collect();
    let document = Document {
        title: messages.with("report-document", &[("runs", &names.join(", "))]),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sides,
        predictions: Vec::new(),
        notes,
    };
    for note in &document.notes {
        eprintln!("{note}");
    }
    if let Some(output) = html {
        timing_report::write_html(&document, output, messages)?;
    }
    print(&if args.json { format!("{}\n", json!(document)) } else { text(&document, messages) })
}

fn refused(error: &RecordError, messages: &Messages) -> Failure {
    let failure = Failure::of(USAGE, error);
    match error {
        RecordError::NotARun(_) => failure.hint(messages.get("report-hint-run")),
        RecordError::OtherVersion { .. } => failure.hint(messages.get("report-hint-version")),
        RecordError::NoSnapshots(_) => failure.hint(messages.get("report-hint-early")),
        RecordError::Damaged(..) => failure,
    }
}

fn text(document: &Document, messages: &Messages) -> String {
    match &document.sides[..] {
        [a, b] => {
            let changed = timing_report::differences(a, b);
            let changed = if changed.is_empty() { messages.get("compare-same") + "\n" } else { changed };
            let limits = [a, b].map(|side| {
                let limit =
                    timing_report::limit(&side.verdict, side.profile.starved, side.headroom.unwrap_or(0.0), messages);
                format!("{}: {limit}\n", side.name)
            });
            let title = messages.get("compare-settings");
            format!("{}\n{title}\n{changed}\n{}", timing_report::comparison(a, b, messages), limits.concat())
        }
        sides => sides.iter().map(|side| timing_report::side(side, messages)).collect(),
    }
}

/// What a run that has snapshots did, for a report or a live page.
pub(crate) fn side(name: &str, record: &RunRecord, messages: &Messages) -> Side {
    let last = record.last();
    let mut verdict = last.verdict.clone();
    timing_report::localize(&mut verdict, messages);
    Side {
        name: name.to_owned(),
        settings: record.settings.iter().map(|one| (one.name.clone(), one.value.clone())).collect(),
        profile: last.profile.clone(),
        verdict,
        knobs: None,
        headroom: Some(last.headroom),
        lanes: record.timeline.clone(),
        step_ms: record.step_ms(),
        queues: lines(
            &record.snapshots,
            |snapshot| &snapshot.queues,
            |queue: &QueueFill| (queue.name.clone(), queue.items as f64, Some(queue.capacity as f64)),
        ),
        memory: lines(
            &record.snapshots,
            |snapshot| &snapshot.memory,
            |memory: &MemoryUse| {
                let megabytes = |bytes: u64| bytes as f64 / MIB as f64;
                // All memory of the machine would make every line flat.
                let limit = memory.limit_bytes.filter(|_| *memory.name != Place::Host).map(megabytes);
                (memory.name.clone(), megabytes(memory.used_bytes), limit)
            },
        ),
        losses: losses(&record.log),
        rates: rates(&record.snapshots, messages),
        facts: facts(record, messages),
        simulated: last.simulated,
    }
}

/// A line for each of several things that every snapshot has.
fn lines<T>(
    snapshots: &[Snapshot],
    all: impl Fn(&Snapshot) -> &Vec<T>,
    point: impl Fn(&T) -> (String, f64, Option<f64>),
) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for snapshot in thinned(snapshots) {
        for one in all(snapshot) {
            let (name, value, limit) = point(one);
            let at = (snapshot.total_s, value);
            match lines.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(at),
                None => lines.push(Line { name, limit, points: vec![at] }),
            }
        }
    }
    lines
}

fn thinned<T>(all: &[T]) -> impl Iterator<Item = &T> {
    all.iter().step_by(all.len().div_ceil(POINTS).max(1))
}

fn rates(snapshots: &[Snapshot], messages: &Messages) -> Vec<Line> {
    let point = |snapshot: &Snapshot| (snapshot.progress.step as f64, snapshot.progress.lr);
    let points = thinned(snapshots).map(point).collect();
    vec![Line { name: messages.get("metric-learning_rate"), limit: None, points }]
}

pub(crate) fn losses(log: &[Value]) -> Vec<Line> {
    ["loss", "validation"]
        .into_iter()
        .map(|name| {
            let point = |line: &Value| Some((line["step"].as_f64()?, line[name].as_f64()?));
            let points: Vec<(f64, f64)> = log.iter().filter_map(point).collect();
            Line { name: name.to_owned(), limit: None, points: thinned(&points).copied().collect() }
        })
        .filter(|line| !line.points.is_empty())
        .collect()
}

/// SPEC R9, from the files.
fn facts(record: &RunRecord, messages: &Messages) -> Vec<(String, String)> {
    let last = record.last();
    let outcome = match (&record.report, record.running) {
        (_, true) => messages.get("report-running"),
        (Some(report), false) => match report["ending"].as_str() {
            Some(outcome @ ("finished" | "stale" | "stopped" | "failed")) => {
                messages.get(&format!("train-end-{outcome}"))
            }
            other => other.unwrap_or("?").to_owned(),
        },
        (None, false) => messages.get("report-cut-off"),
    };
    // A snapshot is taken every now and then; the report of a run that is over knows how it ended.
    let over = record.report.as_ref().filter(|_| !record.running);
    let number = |key: &str, else_: f64| over.and_then(|report| report[key].as_f64()).unwrap_or(else_);
    let step = number("step", last.progress.step as f64) as u64;
    let is_finished = over.is_some_and(|report| report["ending"] == "finished");
    let steps = format!("{step} / {}", if is_finished { step } else { last.progress.steps.max(step) });
    let devices = format!("{} → {}", last.data_device, last.model_device);
    let hours = messages
        .with("report-hours", &[("hours", &format!("{:.2}", number("audio_seconds", last.total_audio_s) / 3600.0))]);
    let mut facts = vec![
        ("report-state", outcome),
        ("report-steps", steps),
        ("report-loss", format!("{:.4}", number("loss", last.progress.loss))),
        ("report-time", duration(number("total_seconds", last.total_s))),
        ("report-audio", hours),
        ("report-devices", devices),
        ("report-version", record.version.clone()),
    ];
    if let Some(speakers) = speakers(&record.facts["speakers"], messages) {
        facts.push(("report-speakers", speakers));
    }
    if step != last.progress.step {
        facts.push(("report-snapshot", last.progress.step.to_string()));
    }
    if let Some(error) = record.report.as_ref().and_then(|report| report["error"].as_str()) {
        facts.push(("report-error", messages.text(error.to_owned())));
    }
    let named = facts.into_iter().map(|(id, value)| (messages.get(id), value));
    let replaced = record.settings.iter().filter(|one| one.is_fallback()).filter_map(|one| {
        let requested = one.requested.as_ref()?;
        let values: &[(&str, &dyn std::fmt::Display)] =
            &[("requested", requested), ("value", &one.value), ("source", &one.source)];
        Some((one.name.clone(), messages.with("report-replaced", values)))
    });
    named.chain(replaced).collect()
}

/// Speakers that are listed, those with the most clips first.
const SPEAKERS: usize = 10;

/// Clips and hours of each speaker, if several are named.
fn speakers(shares: &Value, messages: &Messages) -> Option<String> {
    let mut shares: Vec<(&str, u64, f64)> = (shares.as_array()?.iter())
        .filter_map(|share| Some((share["name"].as_str()?, share["clips"].as_u64()?, share["seconds"].as_f64()?)))
        .collect();
    shares.sort_by_key(|&(_, clips, _)| std::cmp::Reverse(clips));
    let mut listed: Vec<String> = (shares.iter().take(SPEAKERS))
        .map(|(name, clips, seconds)| format!("{} {clips} ({:.2} h)", messages.isolated(name), seconds / 3600.0))
        .collect();
    if shares.len() > SPEAKERS {
        listed.push("…".to_owned());
    }
    (shares.len() > 1).then(|| listed.join(", "))
}
