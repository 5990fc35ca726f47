//! `tandem convert` and `tandem pack`: a corpus in another layout, or in tar shards; audio is never decoded.

use std::io::{IsTerminal, stderr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use indicatif::ProgressBar;
use tandem_data::{ConvertError, FaultReport, Part, Source, convert, open_source, pack};

use crate::args::{ConvertArgs, PackArgs, SourceArgs};
use crate::commands::corpus::{self, MB};
use crate::failure::{FAILED, Failure, INTERRUPTED, USAGE};
use crate::interrupt;
use crate::messages::Messages;
use crate::ui::{output::print, progress};

/// Skipped clips that are named.
const NAMED: usize = 10;

pub(crate) fn run(args: &ConvertArgs, messages: &Messages) -> Result<(), Failure> {
    let (stop, (training, validation)) = open(&args.source, messages)?;
    let bar = bar(messages);
    let made = convert(&*training, validation.as_deref(), args.to, &args.out, advance(&bar), &stop);
    bar.finish_and_clear();
    let made = made.map_err(|error| failure(&error, messages))?;
    if args.json {
        return print(&format!("{}\n", serde_json::to_string(&made).expect("plain data")));
    }
    let path = args.out.display();
    let values: &[(&str, &dyn std::fmt::Display)] =
        &[("clips", &made.clips), ("linked", &made.linked), ("copied", &made.copied), ("path", &path)];
    report(messages.with("convert-done", values), &made.skipped, messages)
}

/// `tandem pack`.
pub(crate) fn run_pack(args: &PackArgs, messages: &Messages) -> Result<(), Failure> {
    let (stop, (training, validation)) = open(&args.source, messages)?;
    let bar = bar(messages);
    let made = pack(&*training, validation.as_deref(), &args.shards, args.shard_clips, advance(&bar), &stop);
    bar.finish_and_clear();
    let made = made.map_err(|error| match error {
        ConvertError::Stopped => Failure::new(INTERRUPTED, messages.get("pack-stopped")),
        error => failure(&error, messages),
    })?;
    if args.json {
        return print(&format!("{}\n", serde_json::to_string(&made).expect("plain data")));
    }
    let (megabytes, path) = (made.bytes.div_ceil(MB), args.shards.display());
    let values: &[(&str, &dyn std::fmt::Display)] = &[
        ("clips", &made.clips),
        ("shards", &made.shards),
        ("written", &made.written),
        ("megabytes", &megabytes),
        ("path", &path),
    ];
    report(messages.with("pack-done", values), &made.skipped, messages)
}

type Parts = (Arc<dyn Source>, Option<Arc<dyn Source>>);

/// The clips to train and to validate on.
fn open(args: &SourceArgs, messages: &Messages) -> Result<(Arc<AtomicBool>, Parts), Failure> {
    let settings = corpus::with_extensions(args.settings());
    let part = |part| open_source(&args.dir, part, &settings).map_err(|error| corpus::list_failure(&error, messages));
    let validation = part(Part::Validation)?;
    let training = part(Part::Training)?.expect("a directory lists clips, or is an error");
    Ok((interrupt::catch().flag, (training, validation)))
}

fn bar(messages: &Messages) -> ProgressBar {
    let bar = progress::bar(0, stderr().is_terminal());
    bar.set_message(messages.get("convert-writing"));
    bar
}

fn advance(bar: &ProgressBar) -> impl Fn(usize, usize) + Sync {
    move |done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    }
}

fn failure(error: &ConvertError, messages: &Messages) -> Failure {
    match error {
        ConvertError::Stopped => Failure::new(INTERRUPTED, messages.get("convert-stopped")),
        ConvertError::NotEmpty(_) => Failure::of(USAGE, error).hint(messages.get("convert-hint-out")),
        ConvertError::NothingUsable(_) => Failure::of(USAGE, error),
        error => Failure::of(FAILED, error),
    }
}

fn report(done: String, skipped: &[FaultReport], messages: &Messages) -> Result<(), Failure> {
    if !skipped.is_empty() {
        eprintln!("{}", messages.with("convert-skipped", &[("count", &skipped.len())]));
    }
    for FaultReport { id, reason, .. } in skipped.iter().take(NAMED) {
        eprintln!("  {}: {}", messages.isolated(id), messages.text(reason.clone()));
    }
    print(&format!("{done}\n"))
}
