//! The length of every clip and what is wrong with it, kept on disk.
//!
//! Opening a corpus again costs one look at each file's size and date. What changed is measured again; a damaged or
//! foreign index is made anew, never trusted.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::UNIX_EPOCH;

use xxhash_rust::xxh3::xxh3_64;

use crate::fault::ClipFault;

const MAGIC: &[u8; 8] = b"TNDMIDX2";
const ENTRY_BYTES: usize = 40;
const HEADER_BYTES: usize = 40;

/// What is known of a clip. A clip with zero samples has a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexEntry {
    /// A hash of its id.
    pub id_hash: u64,
    /// A hash of its text and of its file's path, size and date.
    pub identity: u64,
    /// Samples per channel at the file's own rate.
    pub samples: u64,
    /// The file's rate.
    pub rate: u32,
    /// Tokens of its text.
    pub tokens: u32,
    /// Who speaks.
    pub speaker: u16,
    /// Channels of the file.
    pub channels: u16,
    /// Which of the possible endings the file has.
    pub ending: u8,
    /// The language of its text (see the corpus' list).
    pub language: u8,
}

impl IndexEntry {
    /// Whether it can be used.
    pub fn is_good(&self) -> bool {
        self.samples > 0
    }

    fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[0..8].copy_from_slice(&self.id_hash.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.identity.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.samples.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.rate.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.tokens.to_le_bytes());
        bytes[32..34].copy_from_slice(&self.speaker.to_le_bytes());
        bytes[34..36].copy_from_slice(&self.channels.to_le_bytes());
        bytes[36] = self.ending;
        bytes[37] = self.language;
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> IndexEntry {
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u16_at = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"));
        IndexEntry {
            id_hash: u64_at(0),
            identity: u64_at(8),
            samples: u64_at(16),
            rate: u32_at(24),
            tokens: u32_at(28),
            speaker: u16_at(32),
            channels: u16_at(34),
            ending: bytes[36],
            language: bytes[37],
        }
    }
}

/// Why a file is not an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexError {
    /// Shorter than it says, or not an index at all.
    Damaged,
    /// Made with other settings.
    Foreign,
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IndexError::Damaged => write!(f, "the index is damaged"),
            IndexError::Foreign => write!(f, "the index was made with other settings"),
        }
    }
}

impl std::error::Error for IndexError {}

/// The entries of all rows, and the faults of those that have one.
#[derive(Debug, Default)]
pub struct Index {
    /// One for each row of the metadata.
    pub(crate) entries: Vec<IndexEntry>,
    /// Rows with a fault.
    pub(crate) faults: Vec<(u32, ClipFault)>,
    /// How many clips had to be looked at (the others were known).
    pub(crate) measured: usize,
}

impl Index {
    /// Makes the index of `rows` rows. `identify` says cheaply what a row is (its id's and its identity's hash),
    /// `measure` looks at the clip itself; rows whose identity is in `known` are not measured again. When `stop`
    /// says so it ends early; what was done can be kept.
    pub(crate) fn build(
        rows: u32,
        known: &[IndexEntry],
        identify: impl Fn(u32) -> Result<(u64, u64), ClipFault> + Sync,
        measure: impl Fn(u32) -> Result<IndexEntry, ClipFault> + Sync,
        progress: impl Fn(u32) + Sync,
        stop: &AtomicBool,
    ) -> Index {
        // Usually the rows are the same as before: then row n is entry n and no table is needed.
        let same_rows = known.len() == rows as usize;
        let by_id: HashMap<u64, usize> = if same_rows {
            HashMap::new()
        } else {
            known.iter().enumerate().map(|(at, entry)| (entry.id_hash, at)).collect()
        };
        let (next, done, measured) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        let parts: Mutex<Vec<(u32, Vec<IndexEntry>)>> = Mutex::default();
        let faults: Mutex<Vec<(u32, ClipFault)>> = Mutex::default();
        const PART: u32 = 256;
        let work = || {
            loop {
                let start = next.fetch_add(PART, Ordering::Relaxed);
                if start >= rows || stop.load(Ordering::Relaxed) {
                    return;
                }
                let mut entries = Vec::with_capacity(PART as usize);
                for row in start..rows.min(start + PART) {
                    let entry = identify(row).and_then(|(id_hash, identity)| {
                        let at = if same_rows { Some(row as usize) } else { by_id.get(&id_hash).copied() };
                        match at.map(|at| known[at]).filter(|entry| entry.identity == identity && entry.is_good()) {
                            Some(entry) => Ok(entry),
                            None => {
                                measured.fetch_add(1, Ordering::Relaxed);
                                measure(row).map(|entry| IndexEntry { id_hash, identity, ..entry })
                            }
                        }
                    });
                    entries.push(entry.unwrap_or_else(|fault| {
                        faults.lock().unwrap_or_else(|e| e.into_inner()).push((row, fault));
                        IndexEntry::default()
                    }));
                }
                progress(done.fetch_add(entries.len() as u32, Ordering::Relaxed) + entries.len() as u32);
                parts.lock().unwrap_or_else(|e| e.into_inner()).push((start, entries));
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(rows.div_ceil(PART) as usize);
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        // Rows that were not reached keep what was known of them.
        let mut entries = if same_rows { known.to_vec() } else { vec![IndexEntry::default(); rows as usize] };
        for (start, part) in parts.into_inner().unwrap_or_else(|e| e.into_inner()) {
            entries[start as usize..start as usize + part.len()].copy_from_slice(&part);
        }
        let mut faults = faults.into_inner().unwrap_or_else(|e| e.into_inner());
        faults.sort_by_key(|(row, _)| *row);
        Index { entries, faults, measured: measured.into_inner() as usize }
    }

    /// Writes the entries, whole or not at all.
    pub(crate) fn save(&self, path: &Path, settings: u64) -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        let mut body = Vec::with_capacity(self.entries.len() * ENTRY_BYTES);
        for entry in &self.entries {
            body.extend_from_slice(&entry.to_bytes());
        }
        let mut header = [0u8; HEADER_BYTES];
        header[..8].copy_from_slice(MAGIC);
        header[8..16].copy_from_slice(&settings.to_le_bytes());
        header[16..24].copy_from_slice(&(self.entries.len() as u64).to_le_bytes());
        header[24..32].copy_from_slice(&xxh3_64(&body).to_le_bytes());
        let check = xxh3_64(&header[..32]);
        header[32..40].copy_from_slice(&check.to_le_bytes());
        file.write_all(&header)?;
        file.write_all(&body)?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    }

    /// Reads entries made with the same settings. Public for the fuzzer; [`Corpus`](crate::Corpus) keeps the index.
    ///
    /// # Errors
    ///
    /// [`IndexError`] unless every byte is as it was written, with these settings.
    pub fn parse(bytes: &[u8], settings: u64) -> Result<Vec<IndexEntry>, IndexError> {
        let (header, body) = bytes.split_at_checked(HEADER_BYTES).ok_or(IndexError::Damaged)?;
        let u64_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        if &header[..8] != MAGIC || u64_at(32) != xxh3_64(&header[..32]) {
            return Err(IndexError::Damaged);
        }
        if u64_at(8) != settings {
            return Err(IndexError::Foreign);
        }
        if (u64_at(16) as usize).checked_mul(ENTRY_BYTES) != Some(body.len()) || u64_at(24) != xxh3_64(body) {
            return Err(IndexError::Damaged);
        }
        Ok(body.chunks_exact(ENTRY_BYTES).map(IndexEntry::from_bytes).collect())
    }
}

/// A file's size and date as one number, and whether it is there at all.
pub(crate) fn file_identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::metadata(path)?;
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Ok((metadata.len(), modified.map_or(0, |time| time.as_nanos() as u64)))
}

/// A stable hash of several parts.
pub(crate) fn hash_parts(parts: &[&[u8]]) -> u64 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.digest()
}

/// Where a corpus keeps its index and cache: beside the data if that can be written, else in the user's cache.
pub(crate) fn work_folder(corpus: &Path) -> PathBuf {
    let beside = corpus.join(".tandem");
    let writable = std::fs::create_dir_all(&beside).is_ok() && tempfile::tempfile_in(&beside).is_ok();
    if writable {
        return beside;
    }
    let absolute = std::fs::canonicalize(corpus).unwrap_or_else(|_| corpus.to_owned());
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let base = base.unwrap_or_else(std::env::temp_dir);
    base.join("tandem").join(format!("{:016x}", hash_parts(&[absolute.as_os_str().as_encoded_bytes()])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        let entry = |n: u64| IndexEntry {
            id_hash: n,
            identity: n * 7,
            samples: n * 1000,
            rate: 22_050,
            tokens: 9,
            speaker: 3,
            channels: 2,
            ending: 1,
            language: 1,
        };
        Index { entries: (1..20).map(entry).collect(), faults: Vec::new(), measured: 0 }
    }

    #[test]
    fn an_index_survives_saving_and_damage_is_noticed_at_every_byte() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sub/index");
        let index = index();
        index.save(&path, 42).expect("writable");
        let bytes = std::fs::read(&path).expect("written");
        assert_eq!(Index::parse(&bytes, 42), Ok(index.entries));
        assert_eq!(Index::parse(&bytes, 43), Err(IndexError::Foreign));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Index::parse(&damaged, 42).is_err(), "byte {at}");
            assert!(Index::parse(&bytes[..at], 42).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn only_what_changed_is_measured_again() {
        let known = index().entries;
        let build = |rows: u32, identity: fn(u32) -> u64| {
            let identify = |row: u32| Ok((u64::from(row) + 1, identity(row)));
            let measure = |_| Ok(IndexEntry { samples: 5, ..IndexEntry::default() });
            Index::build(rows, &known, identify, measure, |_| {}, &AtomicBool::new(false))
        };
        assert_eq!(build(19, |row| (u64::from(row) + 1) * 7).measured, 0);
        let changed = build(19, |row| if row == 4 { 0 } else { (u64::from(row) + 1) * 7 });
        assert_eq!((changed.measured, changed.entries[4].samples, changed.entries[5].samples), (1, 5, 6000));
        // Two rows more: the others are found by their ids.
        assert_eq!(build(21, |row| (u64::from(row) + 1) * 7).measured, 2);
    }
}
