//! `tandem prepare`: the index and the feature cache of a corpus, interruptible and resumable.

use std::io::{IsTerminal, stderr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use serde_json::json;
use tandem_data::{CacheMode, ClipFault, LoadSettings, Loader, PlanSettings};

use crate::args::PrepareArgs;
use crate::commands::corpus::{self, MB};
use crate::failure::{FAILED, Failure, INTERRUPTED};
use crate::interrupt;
use crate::messages::Messages;
use crate::ui::{output::print, progress};

pub(crate) fn run(args: PrepareArgs, messages: &Messages) -> Result<(), Failure> {
    let settings = corpus::settings(&args.corpus.read)?;
    let stop = interrupt::catch().flag;
    let corpus = corpus::open(&args.corpus.dir, settings, &stop, messages)?;
    corpus::check(&corpus, messages)?;
    if !args.json {
        print(&corpus::describe(&corpus, messages))?;
    }
    let clips = corpus.len() as u32;
    let cache = corpus.cache(CacheMode::Disk, args.cache_limit * MB);
    let plan = PlanSettings { batch_size: 1, seed: 0, ..PlanSettings::default() };
    let settings = LoadSettings { plan, pitch: true, ..LoadSettings::default() };
    let loader = Loader::new(corpus.clone(), (0..clips).collect(), settings, cache)
        .map_err(|error| Failure::usage(error.to_string()))?;

    let bar = progress::bar(u64::from(clips), stderr().is_terminal());
    bar.set_message(messages.get("prepare-features"));
    let (next, made, ready) = (AtomicU32::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let bad: Mutex<Vec<(u32, ClipFault)>> = Mutex::default();
    let work = || {
        loop {
            let clip = next.fetch_add(1, Ordering::Relaxed);
            if clip >= clips || stop.load(Ordering::Relaxed) {
                return;
            }
            match loader.prepare(clip) {
                Ok(worked) => {
                    made.fetch_add(u64::from(worked), Ordering::Relaxed);
                    ready.fetch_add(1, Ordering::Relaxed);
                }
                Err(fault) => bad.lock().unwrap_or_else(|e| e.into_inner()).push((clip, fault)),
            }
            bar.inc(1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..crate::run_facts::cores() {
            scope.spawn(work);
        }
        work();
    });
    bar.finish_and_clear();
    let mut bad = bad.into_inner().unwrap_or_else(|e| e.into_inner());
    bad.sort_by_key(|(clip, _)| *clip);
    for (clip, fault) in &bad {
        eprintln!("{}: {fault}", corpus.name(*clip).0);
    }
    let stats = loader.cache().stats();
    // What did not fit or could not be written was computed, but is not ready.
    let lost = stats.full + stats.failed;
    let (made, done) = (made.into_inner() - lost, ready.into_inner() - lost);
    if args.json {
        let object = json!({"clips": clips, "ready": done, "made": made, "bad": bad.len(), "left_out": corpus.rows() - corpus.len(), "cache": stats,
            "folder": corpus.work_dir()});
        print(&format!("{object}\n"))?;
    } else {
        let line = format!(
            "{}\n",
            messages.with(
                "prepare-done",
                &[
                    ("ready", &done),
                    ("made", &made),
                    ("megabytes", &(stats.bytes / MB)),
                    ("folder", &corpus.work_dir().display()),
                ],
            )
        );
        print(&line)?;
    }
    if stats.full > 0 {
        eprintln!("{}", messages.with("prepare-full", &[("count", &stats.full), ("limit", &args.cache_limit)]));
    }
    if stats.failed > 0 {
        return Err(Failure::new(
            FAILED,
            messages.with("prepare-failed", &[("count", &stats.failed), ("folder", &corpus.work_dir().display())]),
        ));
    }
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::new(INTERRUPTED, messages.with("prepare-stopped", &[("ready", &done)])));
    }
    Ok(())
}
