//! The directory of a run: everything needed to resume, to reproduce it, and to see what happened.
//!
//! ```text
//! RUN/
//!     manifest.json     requested settings, their values and sources; one entry for each start
//!     log.jsonl         the losses of every step, validations, checkpoints: one JSON object a line
//!     monitor.jsonl     snapshots of the last hundred steps, the fewer the longer it runs: one JSON object a line
//!     lanes.json        who worked when in the last steps before the last snapshot
//!     report.json       totals, written when the run ends
//!     voices.safetensors  some seconds of each speaker, found by name
//!     checkpoints/      see checkpoint.rs
//!     samples/          speech and spectrograms made on the way
//! ```

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use tandem_data::files::{remove_leftovers, write_atomically};

use crate::checkpoint::Checkpoints;
use crate::settings::ResolvedSetting;

/// The number of the format of a run's files; another one is not read.
pub const RUN_FORMAT: u64 = 2;

/// Whoever only looks whether somebody trains (`watch`, `report`) holds the lock for some microseconds: it is tried again.
const TAKE_TRIES: usize = 5;
const TAKE_PAUSE: Duration = Duration::from_millis(20);

/// A run's folder.
#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
    /// Held by this value and its clones, once it was taken.
    lock: Arc<Mutex<Option<fs::File>>>,
}

impl RunDir {
    /// A folder, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> RunDir {
        RunDir { path: path.into(), lock: Arc::default() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its checkpoints.
    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints::new(self.path.join("checkpoints"))
    }

    /// Where samples go.
    pub fn samples(&self) -> PathBuf {
        self.path.join("samples")
    }

    /// Some seconds of each speaker's speech.
    pub fn voices_path(&self) -> PathBuf {
        self.path.join("voices.safetensors")
    }

    /// Its log.
    pub fn log_path(&self) -> PathBuf {
        self.path.join("log.jsonl")
    }

    /// Its final report.
    pub fn report_path(&self) -> PathBuf {
        self.path.join("report.json")
    }

    /// Snapshots of the last steps.
    pub fn monitor_path(&self) -> PathBuf {
        self.path.join("monitor.jsonl")
    }

    /// Who worked when in the last steps.
    pub fn lanes_path(&self) -> PathBuf {
        self.path.join("lanes.json")
    }

    /// Whether a run has begun here.
    pub fn has_run(&self) -> bool {
        self.path.join("manifest.json").exists() || !self.checkpoints().steps().is_empty()
    }

    /// Takes the folder: nobody else may train in it as long as this value or a clone of it lives. False when somebody does.
    pub fn take(&self) -> io::Result<bool> {
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            return Ok(true);
        }
        let file = fs::File::create(self.path.join("lock"))?;
        for _ in 0..TAKE_TRIES {
            match file.try_lock() {
                // A file system without locks: as before there were any.
                Ok(()) | Err(fs::TryLockError::Error(_)) => {
                    *held = Some(file);
                    return Ok(true);
                }
                Err(fs::TryLockError::WouldBlock) => std::thread::sleep(TAKE_PAUSE),
            }
        }
        Ok(false)
    }

    /// Makes the folder and proves that it can be written to.
    pub fn create(&self) -> io::Result<()> {
        fs::create_dir_all(&self.path)?;
        tempfile::NamedTempFile::new_in(&self.path)?;
        Ok(())
    }

    /// Takes away what a killed run left half-written. The folder must be taken.
    pub fn sweep(&self) {
        for dir in [&self.path, &self.samples()] {
            remove_leftovers(dir, Duration::ZERO);
        }
        self.checkpoints().sweep();
    }

    /// Moves a run out of the way: `RUN` becomes `RUN.1`, `RUN.2`, …, whichever is free. What was taken has moved with it.
    pub fn archive(&self) -> io::Result<PathBuf> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let aside = (1..).map(|n| self.path.with_file_name(format!("{name}.{n}"))).find(|path| !path.exists());
        let aside = aside.expect("numbers do not end");
        // Windows does not move a folder with an open file in it.
        #[cfg(windows)]
        self.release();
        fs::rename(&self.path, &aside)?;
        self.release();
        Ok(aside)
    }

    fn release(&self) {
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Adds an entry to the manifest.
    pub fn add_to_manifest(&self, settings: &[ResolvedSetting], facts: Value) -> io::Result<()> {
        let path = self.path.join("manifest.json");
        let mut manifest: Value = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
            Err(_) => json!({"starts": []}),
        };
        if !manifest.get("starts").is_some_and(Value::is_array) {
            // Not one of ours, or damaged: kept, but not added to.
            fs::rename(&path, path.with_extension("json.damaged"))?;
            manifest = json!({"starts": []});
        }
        let version = env!("CARGO_PKG_VERSION");
        let entry = json!({"format": RUN_FORMAT, "version": version, "settings": settings, "facts": facts});
        if let Some(starts) = manifest["starts"].as_array_mut() {
            starts.push(entry);
        }
        write_atomically(&path, &serde_json::to_vec_pretty(&manifest)?)
    }

    /// Writes the final report.
    pub fn write_report(&self, report: &impl Serialize) -> io::Result<()> {
        write_atomically(&self.report_path(), &serde_json::to_vec_pretty(report)?)
    }
}

/// The log of a run.
#[derive(Debug)]
pub struct Log {
    /// None: what is added goes nowhere.
    file: Option<fs::File>,
    /// Lines that could not be written so far.
    unwritten: Vec<u8>,
}

impl Log {
    /// Opens the log to resume after `step`: what a killed run wrote beyond that is taken away, it will be done again.
    pub fn open(path: &Path, step: u64) -> io::Result<Log> {
        if let Ok(text) = fs::read(path) {
            let mut kept = Vec::new();
            for line in text.split_inclusive(|&byte| byte == b'\n') {
                let done = serde_json::from_slice::<Value>(line).ok().and_then(|value| value["step"].as_u64());
                if line.ends_with(b"\n") && done.is_some_and(|done| done <= step) {
                    kept.extend_from_slice(line);
                }
            }
            write_atomically(path, &kept)?;
        }
        let file = fs::OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Log { file: Some(file), unwritten: Vec::new() })
    }

    /// A log that keeps nothing, for a rank that does not write.
    pub fn nowhere() -> Log {
        Log { file: None, unwritten: Vec::new() }
    }

    /// Adds lines; they must have a `step`. When they cannot be written they are kept, and written before the next ones.
    pub fn add(&mut self, lines: &[Value]) -> io::Result<()> {
        lines.iter().for_each(|line| self.unwritten.extend(format!("{line}\n").bytes()));
        self.catch_up()
    }

    /// Whether lines could not be written so far.
    pub fn is_behind(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Writes what could not be written before.
    pub fn catch_up(&mut self) -> io::Result<()> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        if let Some(file) = &mut self.file {
            let before = file.metadata()?.len();
            file.write_all(&self.unwritten).inspect_err(|_| {
                // Half a line would spoil the next one.
                let _ = file.set_len(before);
            })?;
        }
        self.unwritten.clear();
        Ok(())
    }
}

/// The lines of a log that are whole, whatever state it is in.
pub fn read_log(path: &Path) -> io::Result<Vec<Value>> {
    let text = fs::read(path)?;
    Ok(text.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn lines_that_could_not_be_written_are_written_before_the_next_ones() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("log.jsonl");
        let mut log = Log::open(&path, 0).expect("made");
        log.add(&[json!({"step": 1})]).expect("there is room");
        // A device that is always full.
        let full = fs::OpenOptions::new().append(true).open("/dev/full").expect("Linux has it");
        let good = log.file.replace(full);
        for step in 2..=3 {
            let error = log.add(&[json!({"step": step})]).expect_err("no room");
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            assert!(log.is_behind());
        }
        log.file = good;
        log.catch_up().expect("there is room again");
        log.add(&[json!({"step": 4})]).expect("there is room");
        assert!(!log.is_behind());
        let steps: Vec<Value> = read_log(&path).expect("there").iter().map(|line| line["step"].clone()).collect();
        assert_eq!(steps, [1, 2, 3, 4]);
    }

    #[test]
    fn what_a_kill_left_half_written_is_taken_away() {
        let dir = tempfile::tempdir().expect("a folder");
        let run = RunDir::new(dir.path());
        fs::create_dir_all(run.samples()).expect("made");
        fs::create_dir_all(dir.path().join("checkpoints")).expect("made");
        for name in [
            ".tmpA",
            "samples/.tmpB",
            "checkpoints/.tmpC",
            "checkpoints/best",
            "log.jsonl",
            "samples/step-00000001.wav",
        ] {
            fs::write(dir.path().join(name), "x").expect("written");
        }
        run.sweep();
        let left = |dir: &Path| fs::read_dir(dir).expect("there").count();
        assert_eq!((left(dir.path()), left(&run.samples()), left(&dir.path().join("checkpoints"))), (3, 1, 1));
    }
}
