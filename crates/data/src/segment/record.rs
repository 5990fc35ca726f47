//! What is known of recordings, beside the clips: a kill loses nothing, and the same command listens to nothing twice.
//!
//! ```text
//! OUT/.segment/plan          the settings, before anything else
//! OUT/.segment/NAME.jsonl    the cuts of a recording, once they are decided
//! OUT/.segment/done          of which recordings the lists are, before metadata.csv
//! ```

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::cuts::Cut;
use super::error::SegmentError;
use super::files::CaptionFile;
use super::{ClipAudio, SegmentSettings, SkippedSpeech, clip_id};
use crate::files::{remove_leftovers, write_atomically};

/// Changes when the same settings would cut elsewhere.
const VERSION: u32 = 1;
const RECORDS: &str = ".segment";

/// What is known of a recording.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Known {
    pub(super) identity: String,
    pub(super) seconds: f64,
    pub(super) cuts: Vec<Cut>,
    /// To draw each of them.
    pub(super) strips: Vec<String>,
    pub(super) skipped: Vec<SkippedSpeech>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    identity: String,
    seconds: f64,
    cuts: usize,
    skipped: Vec<SkippedSpeech>,
}

#[derive(Serialize, Deserialize)]
struct Row {
    #[serde(flatten)]
    cut: Cut,
    strip: String,
}

/// Changes with a recording, its captions and what decides the cuts.
pub(super) fn identity(
    path: &Path,
    captions: Option<&CaptionFile>,
    settings: &SegmentSettings,
) -> Result<String, SegmentError> {
    let fail = |error: std::io::Error| SegmentError::Recording(path.to_owned(), error.into());
    let metadata = fs::metadata(path).map_err(fail)?;
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let mut hash = Xxh3::new();
    hash.update(&VERSION.to_le_bytes());
    hash.update(path.file_name().unwrap_or_default().as_encoded_bytes());
    hash.update(&metadata.len().to_le_bytes());
    hash.update(&modified.as_nanos().to_le_bytes());
    hash.update(&captions.map_or(0, |file| file.hash).to_le_bytes());
    hash.update(format!("{:?}", settings.cuts).as_bytes());
    Ok(format!("{:016x}", hash.digest()))
}

/// Changes with everything that the lists are made of.
pub(super) fn identity_of_all(known: &[Known], settings: &SegmentSettings) -> Result<String, SegmentError> {
    let texts = match &settings.texts {
        Some(path) => fs::read(path).map_err(|error| SegmentError::Io(path.clone(), error))?,
        None => Vec::new(),
    };
    let all: String = known.iter().map(|known| known.identity.as_str()).collect();
    Ok(format!("{all}{:016x}", xxh3_64(&texts)))
}

/// The directory that clips are written to.
pub(super) struct OutDir {
    path: PathBuf,
    /// Nobody else writes there as long as this is open.
    _lock: File,
}

impl OutDir {
    /// Makes it, or takes it up again.
    pub(super) fn begin(path: &Path, settings: &SegmentSettings) -> Result<OutDir, SegmentError> {
        let plan = format!("{VERSION} {:?} {:?}\n", settings.cuts, settings.audio);
        let records = path.join(RECORDS);
        let empty = fs::read_dir(path).map_or(path.symlink_metadata().is_err(), |mut entries| entries.next().is_none());
        let known = fs::read_to_string(records.join("plan")).ok();
        // A kill may have come before the plan was written: then there is nothing but an empty directory and its lock.
        let begun = known.as_deref() == Some(plan.as_str()) || known.is_none() && holds_nothing_else(path, &records);
        if !empty && !begun {
            return Err(SegmentError::NotEmpty(path.to_owned()));
        }
        let fail = |error| SegmentError::Io(path.to_owned(), error);
        fs::create_dir_all(&records).map_err(fail)?;
        fs::create_dir_all(path.join("wavs")).map_err(fail)?;
        let lock = File::options().create(true).append(true).open(records.join("lock")).map_err(fail)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(SegmentError::Locked(path.to_owned())),
            // Some network disks have no locks.
            Err(fs::TryLockError::Error(_)) => {}
        }
        for dir in [path, &records, &path.join("wavs")] {
            remove_leftovers(dir, std::time::Duration::ZERO);
        }
        write_atomically(&records.join("plan"), plan.as_bytes()).map_err(fail)?;
        Ok(OutDir { path: path.to_owned(), _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file of a clip.
    pub(super) fn clip(&self, id: &str, audio: ClipAudio) -> PathBuf {
        self.path.join("wavs").join(format!("{id}.{}", audio.extension()))
    }

    fn record(&self, name: &str) -> PathBuf {
        self.path.join(RECORDS).join(format!("{name}.jsonl"))
    }

    /// What was found out about a recording earlier, if it is still that recording.
    pub(super) fn remembered(&self, name: &str, identity: &str) -> Option<Known> {
        let text = fs::read_to_string(self.record(name)).ok()?;
        let mut lines = text.lines();
        let header: Header = serde_json::from_str(lines.next()?).ok()?;
        let rows: Vec<Row> = lines.map(serde_json::from_str).collect::<Result<_, _>>().ok()?;
        if header.identity != identity || header.cuts != rows.len() {
            return None;
        }
        let (cuts, strips) = rows.into_iter().map(|row| (row.cut, row.strip)).unzip();
        Some(Known { identity: header.identity, seconds: header.seconds, cuts, strips, skipped: header.skipped })
    }

    /// Keeps what was found out about a recording.
    pub(super) fn remember(&self, name: &str, known: &Known) -> Result<(), SegmentError> {
        let path = self.record(name);
        let fail = |error| SegmentError::Io(path.clone(), error);
        // Clips of another recording of this name, or of other cuts, are not those of this one.
        let old = fs::read_to_string(&path).ok().map(|text| text.lines().count().saturating_sub(1));
        for number in 1..=old.unwrap_or(0) {
            for audio in [ClipAudio::Wav, ClipAudio::Flac] {
                match fs::remove_file(self.clip(&clip_id(name, number), audio)) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(fail(error)),
                    _ => {}
                }
            }
        }
        let Known { identity, seconds, cuts, strips, skipped } = known.clone();
        let header = Header { identity, seconds, cuts: cuts.len(), skipped };
        let rows = cuts.into_iter().zip(strips).map(|(cut, strip)| json_line(&Row { cut, strip }));
        let text: String = std::iter::once(json_line(&header)).chain(rows).collect();
        write_atomically(&path, text.as_bytes()).map_err(fail)
    }

    /// Whether the corpus is there. Nothing is written to it any more.
    pub(super) fn has_lists(&self) -> bool {
        self.path.join("metadata.csv").symlink_metadata().is_ok()
    }

    /// Whether the lists were made of just these recordings; lists of others are never overwritten.
    pub(super) fn is_done(&self, identity: &str) -> Result<bool, SegmentError> {
        if !self.has_lists() {
            return Ok(false);
        }
        match fs::read_to_string(self.path.join(RECORDS).join("done")) {
            Ok(done) if done == identity => Ok(true),
            _ => Err(SegmentError::NotEmpty(self.path.clone())),
        }
    }

    /// Says of which recordings the lists are that are about to be written.
    pub(super) fn note(&self, identity: &str) -> Result<(), SegmentError> {
        let path = self.path.join(RECORDS).join("done");
        write_atomically(&path, identity.as_bytes()).map_err(|error| SegmentError::Io(path, error))
    }
}

/// Whether a directory has only what is made before the plan.
fn holds_nothing_else(path: &Path, records: &Path) -> bool {
    let names = |dir: &Path| -> Vec<std::ffi::OsString> {
        fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect()
    };
    let ours = |name: &std::ffi::OsString| name == RECORDS || name == "wavs";
    let of_records = |name: &std::ffi::OsString| name == "lock" || name.as_encoded_bytes().starts_with(b".tmp");
    records.is_dir()
        && names(path).iter().all(ours)
        && names(&path.join("wavs")).is_empty()
        && names(records).iter().all(of_records)
}

fn json_line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data") + "\n"
}
