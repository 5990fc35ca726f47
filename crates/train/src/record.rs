//! What the directory of a run says, while it trains or afterwards, whatever state its files are in.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;
use tandem_observe::{Snapshot, TimelineSpan};

use crate::run::{RUN_FORMAT, RunDir};
use crate::settings::ResolvedSetting;

/// What a run's directory says.
#[derive(Clone, Debug)]
pub struct RunRecord {
    /// Version of the program that started it last.
    pub version: String,
    /// Each setting as requested, its value and where that comes from, at the last start.
    pub settings: Vec<ResolvedSetting>,
    /// What was known at the last start: devices, data, model.
    pub facts: Value,
    /// Snapshots of it, oldest first.
    pub snapshots: Vec<Snapshot>,
    /// Losses of steps and of validations, as they were logged.
    pub log: Vec<Value>,
    /// Who worked when in the last steps before the last snapshot.
    pub timeline: Vec<TimelineSpan>,
    /// Totals, once it has ended.
    pub report: Option<Value>,
    /// How often it was started: more than once means that it was resumed.
    pub starts: usize,
    /// It is training now.
    pub running: bool,
    /// Files that are cut off or damaged, and how many of their lines could not be read.
    pub damaged: Vec<(PathBuf, usize)>,
}

/// Why a folder cannot be read as a run.
#[derive(Debug)]
pub enum RecordError {
    /// It is none.
    NotARun(PathBuf),
    /// Its manifest cannot be read.
    Damaged(PathBuf, String),
    /// A version wrote it whose files are of another kind.
    OtherVersion {
        /// The folder.
        path: PathBuf,
        /// The version.
        version: String,
    },
    /// It has done too few steps for a snapshot.
    NoSnapshots(PathBuf),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::NotARun(path) => write!(f, "`{}` is not the folder of a run", path.display()),
            RecordError::Damaged(path, why) => write!(f, "`{}` cannot be read: {why}", path.display()),
            RecordError::OtherVersion { path, version } => {
                let here = env!("CARGO_PKG_VERSION");
                write!(f, "`{}` was written by tandem {version}, whose files tandem {here} cannot read", path.display())
            }
            RecordError::NoSnapshots(path) => write!(f, "the run in `{}` has done too few steps yet", path.display()),
        }
    }
}

impl std::error::Error for RecordError {}

impl RunRecord {
    /// Reads the folder of a run that has snapshots; nothing in it is changed.
    pub fn read(path: &Path) -> Result<RunRecord, RecordError> {
        let record = RunRecord::read_any(path)?;
        if record.snapshots.is_empty() {
            return Err(RecordError::NoSnapshots(path.to_owned()));
        }
        Ok(record)
    }

    /// The same for a run that may have just begun: there may be no snapshots.
    pub fn read_any(path: &Path) -> Result<RunRecord, RecordError> {
        let run = RunDir::new(path);
        let manifest = path.join("manifest.json");
        let bytes = fs::read(&manifest).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => RecordError::NotARun(path.to_owned()),
            _ => RecordError::Damaged(manifest.clone(), error.to_string()),
        })?;
        let all: Value = serde_json::from_slice(&bytes)
            .map_err(|error| RecordError::Damaged(manifest.clone(), error.to_string()))?;
        let all_starts = all["starts"].as_array().cloned().unwrap_or_default();
        let (starts, last) = (all_starts.len(), all_starts.last().cloned().unwrap_or_default());
        let version = last["version"].as_str().unwrap_or("of an unknown version").to_owned();
        if last["format"].as_u64() != Some(RUN_FORMAT) {
            return Err(RecordError::OtherVersion { path: path.to_owned(), version });
        }
        let mut damaged = Vec::new();
        let snapshots: Vec<Snapshot> = lines(&run.monitor_path(), &mut damaged);
        let log = lines(&run.log_path(), &mut damaged);
        let json = |path: PathBuf| fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        let running = is_training(path);
        Ok(RunRecord {
            version,
            settings: serde_json::from_value(last["settings"].clone()).unwrap_or_default(),
            facts: last["facts"].clone(),
            snapshots,
            log,
            timeline: json(run.lanes_path()).and_then(|lanes| serde_json::from_value(lanes).ok()).unwrap_or_default(),
            report: json(run.report_path()),
            starts,
            running,
            damaged,
        })
    }

    /// The last snapshot.
    ///
    /// # Panics
    ///
    /// If there is none, which only [`RunRecord::read_any`] allows.
    pub fn last(&self) -> &Snapshot {
        self.snapshots.last().expect("there is at least one")
    }

    /// Milliseconds of steps: those of snapshots that do not overlap.
    pub fn step_ms(&self) -> Vec<f64> {
        let (mut all, mut until) = (Vec::new(), 0);
        for snapshot in &self.snapshots {
            let step = snapshot.progress.step;
            if step >= until + snapshot.recent_ms.len() as u64 {
                all.extend(&snapshot.recent_ms);
                until = step;
            }
        }
        // A short run has only snapshots that do.
        if all.is_empty() { self.last().recent_ms.clone() } else { all }
    }
}

/// The lines of a file that can be read. A last line without an end is being written, or was cut off.
fn lines<T: DeserializeOwned>(path: &Path, damaged: &mut Vec<(PathBuf, usize)>) -> Vec<T> {
    let bytes = fs::read(path).unwrap_or_default();
    let lines = bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let read: Vec<Option<T>> = lines.map(|line| serde_json::from_slice(line).ok()).collect();
    let bad = read.iter().filter(|line| line.is_none()).count();
    if bad > 0 {
        damaged.push((path.to_owned(), bad));
    }
    read.into_iter().flatten().collect()
}

/// Whether somebody trains in this folder.
pub fn is_training(path: &Path) -> bool {
    fs::File::open(path.join("lock"))
        .is_ok_and(|file| matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_cut_off_says_what_is_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("log.jsonl");
        fs::write(&path, "{\"step\":1}\n{\"step\":2}\n{\"st").expect("written");
        let mut damaged = Vec::new();
        let read: Vec<Value> = lines(&path, &mut damaged);
        assert_eq!((read.len(), damaged), (2, vec![(path, 1)]));
    }

    #[test]
    fn what_is_not_a_run_of_this_version_is_refused_by_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let read = || RunRecord::read(dir.path()).map(|_| ()).map_err(|error| error.to_string());
        let write = |text: &str| fs::write(dir.path().join("manifest.json"), text).expect("written");
        let refused = |word: &str| {
            let error = read().expect_err(word);
            assert!(error.contains(word) && error.contains(&dir.path().display().to_string()), "{error}");
        };
        refused("not the folder of a run");
        write("{");
        refused("cannot be read");
        write(r#"{"starts": [{"version": "9.9.9", "format": 99}]}"#);
        refused("tandem 9.9.9");
        write(&format!(r#"{{"starts": [{{"version": "0.1.0", "format": {RUN_FORMAT}}}]}}"#));
        refused("too few steps");
    }
}
