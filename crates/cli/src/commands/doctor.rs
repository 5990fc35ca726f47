//! `tandem doctor`: everything that is odd about a corpus, before a single step.

use std::io::{IsTerminal, Write, stderr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tandem_data::{ClipFinding, Corpus, Evidence, Examination, Part, Severity, Tolerance, examine};
use tandem_model::Device;
use tandem_synth::{Misfit, Synthesizer, misfit_reason, misfits, odd_misfits};
use tandem_train::{State, clip_batches};

use crate::args::DoctorArgs;
use crate::commands::{corpus, synth};
use crate::failure::{FAILED, Failure, INTERRUPTED};
use crate::interrupt;
use crate::messages::Messages;
use crate::ui::{
    histogram,
    output::{Output, print},
    progress,
    table::Table,
};

/// Speakers that are listed, those with the most clips first.
const SPEAKERS: usize = 10;

pub(crate) fn run(args: DoctorArgs, messages: &Messages) -> Result<(), Failure> {
    let mut settings = corpus::settings(&args.corpus.read)?;
    settings.allow_empty = true; // the worst corpora need it most
    let create = |path: &Option<std::path::PathBuf>| {
        let Some(path) = path.as_deref() else { return Ok(None) };
        if is_part_of(path, &args.corpus.dir, &settings.audio_dir) {
            return Err(Failure::usage(messages.with("doctor-overwrite", &[("path", &path.display())])));
        }
        Output::create_for(path, messages).map(Some)
    };
    let (mut quarantine, mut plot) = (create(&args.quarantine)?, create(&args.plot)?);
    // A run that cannot be opened is found before the work.
    let voice = args.with.as_deref().map(|run| synth::open(run, &Device::flex(), messages)).transpose()?;
    let stop = interrupt::catch().flag;
    let corpus = corpus::open(&args.corpus.dir, settings, &stop, messages)?;
    let listen = |corpus: &Corpus| {
        let bar = progress::bar(corpus.len() as u64, stderr().is_terminal());
        bar.set_message(messages.get("doctor-listening"));
        let found = examine(corpus, |done, _| bar.set_position(u64::from(done)), &stop);
        bar.finish_and_clear();
        found.ok_or_else(|| Failure::new(INTERRUPTED, messages.get("doctor-stopped")))
    };
    let mut found = listen(&corpus)?;
    let part = corpus.settings_for_another_part();
    let validation = corpus::open_part(&args.corpus.dir, Part::Validation, part, &stop, messages)?;
    if let Some(validation) = validation {
        found.add(listen(&validation)?);
    }
    if let Some((synthesizer, state, _)) = &voice {
        found.findings.extend(compare_texts(&args.corpus.dir, synthesizer, state, &stop, messages)?);
    }

    let failed = |error: std::io::Error| Failure::new(FAILED, error.to_string());
    if let Some(mut file) = quarantine.take() {
        let writer = file.writer();
        for finding in found.findings.iter().filter(|finding| finding.severity == Severity::Error) {
            writeln!(writer, "{}|{}|{}", finding.id, finding.kind, finding.reason).map_err(failed)?;
        }
        let path = file.finish().map_err(failed)?;
        let count = found.errors();
        eprintln!("{}", messages.with("doctor-quarantined", &[("count", &count), ("path", &path.display())]));
    }
    if let Some(mut file) = plot.take() {
        let svg = histogram::page(&[
            (messages.get("doctor-plot-durations"), &found.durations),
            (messages.get("doctor-plot-rates"), &found.speaking_rates),
        ]);
        file.writer().write_all(svg.as_bytes()).map_err(failed)?;
        let path = file.finish().map_err(failed)?;
        eprintln!("{}", messages.with("doctor-plotted", &[("path", &path.display())]));
    }

    if args.json {
        print(&format!("{}\n", serde_json::to_string(&found).expect("plain data")))?;
    } else {
        print(&(report(&found, args.list, messages) + &corpus::texts(&corpus, messages)))?;
    }
    let errors = found.errors();
    if Tolerance::default().is_exceeded(errors as u64, found.rows as u64) {
        let message = messages.with("doctor-too-many", &[("count", &errors), ("rows", &found.rows)]);
        return Err(Failure::new(FAILED, message).hint(messages.get(advice(&found))));
    }
    if errors > 0 || found.usable == 0 || (args.strict && !found.findings.is_empty()) {
        let failure = Failure::new(FAILED, messages.with("doctor-not-clean", &[("count", &found.findings.len())]));
        let usable = messages.with("doctor-hint-usable", &[("usable", &found.usable)]);
        return Err(failure.hint(if found.usable == 0 { messages.get(advice(&found)) } else { usable }));
    }
    Ok(())
}

/// Clips whose text does not fit their audio, as a trained voice hears it; the worst first.
fn compare_texts(
    dir: &Path,
    synthesizer: &Synthesizer,
    state: &State,
    stop: &AtomicBool,
    messages: &Messages,
) -> Result<Vec<ClipFinding>, Failure> {
    // Read as the voice reads it, whatever else was asked for.
    let settings = corpus::with_extensions(state.corpus_settings());
    let (group, reference) = state.batch_shape();
    let mut all: Vec<(Arc<Corpus>, Vec<Misfit>)> = Vec::new();
    for part in [Part::All, Part::Validation] {
        let Some(corpus) = corpus::open_part(dir, part, settings.clone(), stop, messages)? else { continue };
        let bar = progress::bar(corpus.len() as u64, stderr().is_terminal());
        bar.set_message(messages.get("doctor-comparing"));
        let batches = clip_batches(&corpus, &state.settings, &state.stats, group, reference);
        let mut found = Vec::new();
        for batch in batches.map_err(|error| Failure::of(FAILED, &error))? {
            if stop.load(Ordering::Relaxed) {
                return Err(Failure::new(INTERRUPTED, messages.get("doctor-stopped")));
            }
            found.extend(misfits(synthesizer, &batch));
            bar.set_position(found.len() as u64);
        }
        bar.finish_and_clear();
        all.push((corpus, found));
    }
    // What is usual is usual in both parts.
    let values = all.iter().enumerate().flat_map(|(part, (_, found))| found.iter().map(move |misfit| (part, *misfit)));
    let values: Vec<(usize, Misfit)> = values.collect();
    let numbered = values.iter().zip(0..).map(|(&(_, misfit), clip)| Misfit { clip, ..misfit }).collect();
    let finding = |misfit: Misfit| {
        let (part, Misfit { clip, .. }) = values[misfit.clip as usize];
        let (id, path) = all[part].0.name(clip);
        ClipFinding { severity: Severity::Warning, kind: "text-misfit", id, path, reason: misfit_reason(&misfit) }
    };
    Ok(odd_misfits(numbered).into_iter().map(finding).collect())
}

/// What to do about a corpus most of whose clips cannot be used: one mistake may be behind all of them.
fn advice(found: &Examination) -> &'static str {
    let all = |wanted: &str| found.counts().iter().any(|(_, kind, count)| *kind == wanted && *count == found.rows);
    match (all("columns"), all("missing")) {
        (true, _) => "doctor-hint-columns",
        (_, true) => "doctor-hint-missing",
        _ => "doctor-hint-too-many",
    }
}

fn report(found: &Examination, list: usize, messages: &Messages) -> String {
    let mut text = String::new();
    let mut line = |content: String| {
        text += &content;
        text.push('\n');
    };
    line(messages.with(
        "doctor-summary",
        &[
            ("usable", &found.usable),
            ("rows", &found.rows),
            ("hours", &format!("{:.2}", found.seconds / 3600.0)),
            ("speakers", &found.speakers),
        ],
    ));
    if let Some(reading) = &found.reading {
        line(messages.with("doctor-format", &[("format", &reading.format), ("why", &why(&reading.why, messages))]));
    }
    let mut speakers: Vec<_> = found.by_speaker.iter().collect();
    speakers.sort_by_key(|speaker| std::cmp::Reverse(speaker.clips));
    let mut shares: Vec<String> = (speakers.iter().take(SPEAKERS))
        .map(|speaker| {
            format!("{} {} ({:.2} h)", messages.isolated(&speaker.name), speaker.clips, speaker.seconds / 3600.0)
        })
        .collect();
    if speakers.len() > SPEAKERS {
        shares.push("…".to_owned());
    }
    if !shares.is_empty() {
        line(messages.with("doctor-speakers", &[("speakers", &shares.join(", "))]));
    }
    let rates: Vec<String> = found.rates.iter().map(|(rate, count)| format!("{rate} Hz ({count})")).collect();
    line(messages.with("doctor-rates", &[("rates", &rates.join(", "))]));
    if !found.durations.is_empty() {
        let (low, middle, high) = spread(&found.durations);
        line(messages.with(
            "doctor-durations",
            &[("low", &format!("{low:.1}")), ("middle", &format!("{middle:.1}")), ("high", &format!("{high:.1}"))],
        ));
    }
    if found.findings.is_empty() {
        line(String::new());
        line(messages.get("doctor-clean"));
        return text;
    }
    line(String::new());
    let mut table = Table::new(["doctor-kind", "doctor-count", "doctor-effect"].map(|id| messages.get(id)));
    for (severity, kind, count) in found.counts() {
        let effect = match severity {
            Severity::Error => "doctor-left-out",
            Severity::Limit => "doctor-limit",
            Severity::Warning => "doctor-used",
        };
        table.row([kind.to_owned(), count.to_string(), messages.get(effect)]);
    }
    line(table.render());
    for (_, kind, count) in found.counts() {
        let of_kind: Vec<&ClipFinding> = found.findings.iter().filter(|finding| finding.kind == kind).collect();
        for finding in of_kind.iter().take(list) {
            let place = finding.path.as_ref().map_or(finding.id.clone(), |path| path.display().to_string());
            line(format!("  {}: {}", messages.isolated(&place), messages.text(finding.reason.clone())));
        }
        if count > list {
            line(format!("  {}", messages.with("doctor-more", &[("count", &(count - list)), ("kind", &kind)])));
        }
    }
    text
}

/// What a format was recognized by.
fn why(evidence: &Evidence, messages: &Messages) -> String {
    match evidence {
        Evidence::Given => messages.get("doctor-why-given"),
        Evidence::FileName(list) => messages.with("doctor-why-file-name", &[("list", list)]),
        Evidence::PathAndSentence(list) => messages.with("doctor-why-sentence", &[("list", list)]),
        Evidence::Objects(list) => messages.with("doctor-why-objects", &[("list", list)]),
        Evidence::Directories => messages.get("doctor-why-directories"),
        Evidence::Header => messages.get("doctor-why-header"),
        Evidence::IdAndText => messages.get("doctor-why-id-text"),
        Evidence::Normalized => messages.get("doctor-why-normalized"),
        Evidence::Repeats { speakers, rows } => {
            messages.with("doctor-why-repeats", &[("speakers", speakers), ("rows", rows)])
        }
        Evidence::Path => messages.get("doctor-why-path"),
        Evidence::OnlyTar => messages.get("doctor-why-tar"),
        Evidence::OnlyParquet => messages.get("doctor-why-parquet"),
    }
}

/// Whether a file to be written is one that the corpus consists of.
fn is_part_of(path: &Path, corpus: &Path, audio_dir: &str) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let inside = |dir: &Path| dir.canonicalize().is_ok_and(|dir| path.parent() == Some(&dir));
    let list = |extension: &std::ffi::OsStr| {
        ["csv", "tsv", "json", "jsonl", "tar", "parquet"].iter().any(|known| extension == *known)
    };
    let listed = path.extension().is_some_and(list) && inside(corpus);
    listed || inside(&corpus.join(audio_dir))
}

fn spread(values: &[f32]) -> (f32, f32, f32) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f32::total_cmp);
    (sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1])
}
