//! Runs below a directory, and what state each is in, from their files alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tandem_train::{RecordError, RunDir, RunRecord, is_training};

/// How deep below a directory runs are looked for.
const DEPTH: usize = 4;
/// Runs that are listed, at most.
const MOST_RUNS: usize = 500;
/// Directories that are looked into, at most: `tandem watch /` must not hang.
const MOST_DIRS: usize = 5000;

/// How a run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunState {
    /// It trains, and has done too few steps for a snapshot.
    Starting,
    /// It trains.
    Going,
    /// All steps are done.
    Finished,
    /// Validation did not get better any more.
    EarlyStopped,
    /// It was asked to stop, and saved what it had.
    Stopped,
    /// It ended with an error.
    Failed,
    /// It ended without a word.
    Killed,
    /// Its files cannot be read.
    Unreadable,
}

impl RunState {
    #[cfg(test)]
    pub(crate) const ALL: [RunState; 8] = [
        RunState::Starting,
        RunState::Going,
        RunState::Finished,
        RunState::EarlyStopped,
        RunState::Stopped,
        RunState::Failed,
        RunState::Killed,
        RunState::Unreadable,
    ];

    /// Its word in texts and in the style.
    pub(crate) fn word(self) -> &'static str {
        match self {
            RunState::Starting => "starting",
            RunState::Going => "going",
            RunState::Finished => "finished",
            RunState::EarlyStopped => "early-stopped",
            RunState::Stopped => "stopped",
            RunState::Failed => "failed",
            RunState::Killed => "killed",
            RunState::Unreadable => "unreadable",
        }
    }

    fn of(record: &RunRecord) -> RunState {
        let ending = record.report.as_ref().and_then(|report| report["ending"].as_str());
        match (record.running, ending) {
            (true, _) if record.snapshots.is_empty() => RunState::Starting,
            (true, _) => RunState::Going,
            (false, Some("finished")) => RunState::Finished,
            (false, Some("stale")) => RunState::EarlyStopped,
            (false, Some("stopped")) => RunState::Stopped,
            (false, Some(_)) => RunState::Failed,
            (false, None) => RunState::Killed,
        }
    }
}

/// A run that was read.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// Its name: its path below the directory that is watched.
    pub(crate) id: String,
    pub(crate) path: PathBuf,
    pub(crate) state: RunState,
    /// Or why it cannot be read.
    pub(crate) record: Result<RunRecord, String>,
    /// Names of the files in `samples/`, the last first.
    pub(crate) samples: Vec<String>,
}

/// What tells that files have changed.
type Stamp = Vec<Option<(SystemTime, u64)>>;

/// Reads runs, and again only when their files have changed.
#[derive(Debug)]
pub(crate) struct Runs {
    dirs: Vec<PathBuf>,
    read: Mutex<BTreeMap<PathBuf, (Stamp, Arc<Reading>)>>,
}

impl Runs {
    pub(crate) fn new(dirs: Vec<PathBuf>) -> Runs {
        Runs { dirs, read: Mutex::default() }
    }

    /// All runs there are now, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Reading>> {
        let found = find(&self.dirs);
        let readings: Vec<Arc<Reading>> = found.iter().map(|(id, path)| self.reading(id, path)).collect();
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.retain(|path, _| found.iter().any(|(_, other)| other == path));
        readings
    }

    /// The runs of these names, in their order; unknown ones are left out.
    pub(crate) fn named(&self, ids: &[String]) -> Vec<Arc<Reading>> {
        let found = find(&self.dirs);
        let path = |id: &String| found.iter().find(|(name, _)| name == id);
        ids.iter().filter_map(path).map(|(id, path)| self.reading(id, path)).collect()
    }

    /// A file of a run's samples, by names that are listed only.
    pub(crate) fn sample(&self, id: &str, file: &str) -> Option<PathBuf> {
        let (_, path) = find(&self.dirs).into_iter().find(|(name, _)| name == id)?;
        let dir = RunDir::new(path).samples();
        samples(&dir).into_iter().find(|name| name == file).map(|name| dir.join(name))
    }

    fn reading(&self, id: &str, path: &Path) -> Arc<Reading> {
        let stamp = stamp(path);
        // Nothing outside of the run is shown: what only leads somewhere else is not read, and a pipe would not end.
        let odd = files(path).into_iter().find(|file| fs::symlink_metadata(file).is_ok_and(|about| !about.is_file()));
        let lock = || self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, reading)) = lock().get(path)
            && *known == stamp
        {
            return reading.clone();
        }
        let record = match odd {
            Some(odd) => Err(format!("{}: not a regular file", odd.display())),
            None => RunRecord::read_any(path).map_err(|error: RecordError| error.to_string()),
        };
        let state = match &record {
            Ok(record) => RunState::of(record),
            Err(_) => RunState::Unreadable,
        };
        let samples = samples(&RunDir::new(path).samples());
        let reading = Arc::new(Reading { id: id.to_owned(), path: path.to_owned(), state, record, samples });
        lock().insert(path.to_owned(), (stamp, reading.clone()));
        reading
    }
}

/// The files that are read of a run.
fn files(path: &Path) -> [PathBuf; 5] {
    let run = RunDir::new(path);
    [path.join("manifest.json"), run.monitor_path(), run.log_path(), run.lanes_path(), run.report_path()]
}

/// Sizes and times of the files of a run, and whether somebody trains in it.
fn stamp(path: &Path) -> Stamp {
    let files = files(path).into_iter().chain([RunDir::new(path).samples()]);
    let of = |path: PathBuf| {
        let metadata = fs::symlink_metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    let mut stamp: Stamp = files.map(of).collect();
    stamp.push(is_training(path).then_some((SystemTime::UNIX_EPOCH, 0)));
    stamp
}

/// Sounds of a run's samples, the last first. Only files that are there themselves: a link may lead anywhere.
fn samples(dir: &Path) -> Vec<String> {
    let is_dir = fs::symlink_metadata(dir).is_ok_and(|about| about.is_dir());
    let entries = is_dir.then(|| fs::read_dir(dir)).into_iter().flatten().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let names = files.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".wav") || name.ends_with(".png")).collect();
    names.sort_unstable_by(|a, b| b.cmp(a));
    names
}

/// Runs in or below directories, with names that differ.
fn find(dirs: &[PathBuf]) -> Vec<(String, PathBuf)> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    let mut looked = 0;
    for dir in dirs {
        let mut open = vec![(dir.clone(), 0)];
        while let Some((path, depth)) = open.pop() {
            looked += 1;
            if looked > MOST_DIRS || found.len() >= MOST_RUNS {
                break;
            }
            if path.join("manifest.json").is_file() {
                let below = path.strip_prefix(dir).ok().filter(|below| below.components().next().is_some());
                let name = below.map(|below| below.to_string_lossy().into_owned()).unwrap_or_else(|| {
                    let full = path.canonicalize().unwrap_or_else(|_| path.clone());
                    full.file_name().map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned())
                });
                found.push((name, path));
                continue;
            }
            if depth < DEPTH {
                let entries = fs::read_dir(&path).into_iter().flatten().flatten();
                let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
                let hidden = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
                open.extend(
                    entries.filter(|entry| is_dir(entry) && !hidden(entry)).map(|entry| (entry.path(), depth + 1)),
                );
            }
        }
    }
    found.sort();
    found.dedup();
    // Two directories may have runs of one name.
    for at in 1..found.len() {
        let same = found[..at].iter().filter(|(name, _)| *name == found[at].0).count();
        if same > 0 {
            found[at].0 = format!("{} ({})", found[at].0, same + 1);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(dir: &Path, name: &str) -> PathBuf {
        let path = dir.join(name);
        fs::create_dir_all(path.join("samples")).expect("made");
        let manifest = r#"{"starts": [{"version": "0.1.0", "format": 2, "settings": [], "facts": {}}]}"#;
        fs::write(path.join("manifest.json"), manifest).expect("written");
        path
    }

    #[test]
    fn runs_are_found_by_their_manifest_and_states_by_their_files() {
        let dir = tempfile::tempdir().expect("a folder");
        let (one, two) = (run(dir.path(), "one"), run(dir.path(), "deep/er/two"));
        fs::create_dir_all(dir.path().join("nothing")).expect("made");
        let runs = Runs::new(vec![dir.path().to_owned()]);
        let state = |at: usize| (runs.all()[at].id.clone(), runs.all()[at].state);
        assert_eq!(
            (runs.all().len(), state(0), state(1)),
            (2, ("deep/er/two".to_owned(), RunState::Killed), ("one".to_owned(), RunState::Killed))
        );
        let lock = RunDir::new(&two);
        assert!(lock.take().expect("a lock"));
        assert_eq!(state(0).1, RunState::Starting);
        drop(lock);
        for (ending, wanted) in [
            ("finished", RunState::Finished),
            ("stale", RunState::EarlyStopped),
            ("stopped", RunState::Stopped),
            ("failed", RunState::Failed),
        ] {
            fs::write(one.join("report.json"), format!("{{\"ending\": \"{ending}\", \"x\": {}}}", ending.len()))
                .expect("written");
            assert_eq!(state(1).1, wanted);
        }
        fs::write(two.join("manifest.json"), "{").expect("written");
        assert_eq!(state(0).1, RunState::Unreadable);
    }

    #[test]
    fn only_files_that_are_listed_are_given_out() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = run(dir.path(), "one");
        fs::write(path.join("samples/step-00000001.wav"), "x").expect("written");
        fs::write(path.join("samples/secret.txt"), "x").expect("written");
        let runs = Runs::new(vec![dir.path().to_owned()]);
        assert!(runs.sample("one", "step-00000001.wav").is_some());
        for (id, file) in [
            ("one", "../manifest.json"),
            ("one", "secret.txt"),
            ("one", ""),
            ("one", "."),
            ("..", "step-00000001.wav"),
            ("", "step-00000001.wav"),
            ("one/samples", "step-00000001.wav"),
        ] {
            assert!(runs.sample(id, file).is_none(), "{id} {file}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_leads_out_of_a_run_is_not_shown() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().expect("a folder");
        let (one, two, three) = (run(dir.path(), "one"), run(dir.path(), "two"), run(dir.path(), "three"));
        let secret = dir.path().join("secret");
        fs::write(&secret, "x").expect("written");
        symlink(&secret, one.join("samples/step-00000001.wav")).expect("linked");
        fs::write(one.join("samples/step-00000002.wav"), "x").expect("written");
        // The samples of another run, and a log that is none.
        fs::remove_dir(two.join("samples")).expect("empty");
        symlink(one.join("samples"), two.join("samples")).expect("linked");
        symlink(&secret, RunDir::new(&three).log_path()).expect("linked");
        let runs = Runs::new(vec![dir.path().to_owned()]);
        let (of_one, of_three, of_two) = (&runs.all()[0], &runs.all()[1], &runs.all()[2]);
        assert_eq!(of_one.samples, ["step-00000002.wav"]);
        assert!(runs.sample("one", "step-00000001.wav").is_none());
        assert!(of_two.samples.is_empty() && runs.sample("two", "step-00000002.wav").is_none());
        assert_eq!(of_three.state, RunState::Unreadable);
    }

    #[test]
    fn runs_of_one_name_are_told_apart() {
        let dir = tempfile::tempdir().expect("a folder");
        let dirs = ["a", "b"].map(|name| dir.path().join(name));
        for dir in &dirs {
            run(dir, "voice");
        }
        let names: Vec<String> = Runs::new(dirs.to_vec()).all().iter().map(|run| run.id.clone()).collect();
        assert_eq!(names, ["voice", "voice (2)"]);
    }
}
