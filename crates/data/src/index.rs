//! The length of every clip, the symbols of its text, and what is wrong with it, kept on disk.
//!
//! Opening a corpus again costs one look at each file's size and date. What changed is measured again; an index that is
//! damaged or of other settings is made again, never trusted. Texts are normalized, phonemized and tokenized here and
//! nowhere else: an epoch reads numbers. Two files:
//!
//! ```text
//! index-KEY     header, an entry for each row, the symbols that texts consist of and their languages (JSON)
//! tokens-KEY    for each text, one after the other, the numbers of its symbols (u16, little-endian)
//! ```

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::UNIX_EPOCH;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::fault::ClipFault;
use crate::files::{FORGOTTEN, remove_leftovers};
use crate::remote::user_cache;
use crate::sources::read_at;

const MAGIC: &[u8; 8] = b"TNDMIDX5";
const ENTRY_BYTES: usize = 48;
const HEADER_BYTES: usize = 64;
/// Marks the place of tokens that were made just now and are in no file yet.
const FRESH: u64 = 1 << 63;

/// What is known of a clip. A clip with zero samples has a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexEntry {
    /// A hash of its id.
    pub id_hash: u64,
    /// A hash of its text and of its file's path, size and date.
    pub identity: u64,
    /// Samples per channel that are used, at the file's own sample rate.
    pub samples: u32,
    /// Samples before them that are not: silence that is trimmed.
    pub start: u32,
    /// The file's sample rate.
    pub rate: u32,
    /// Tokens of its text.
    pub tokens: u32,
    /// Where they begin among all tokens.
    pub(crate) tokens_at: u64,
    /// Who speaks.
    pub speaker: u16,
    /// Channels of the file.
    pub channels: u16,
    /// The language of its text, a number in the index's list.
    pub language: u8,
    /// Whether its text has letters that the language does not have.
    pub other_letters: bool,
}

impl IndexEntry {
    /// Seconds of audio that are used.
    pub fn seconds(&self) -> f64 {
        f64::from(self.samples) / f64::from(self.rate.max(1))
    }

    /// Whether it can be used.
    pub fn is_good(&self) -> bool {
        self.samples > 0
    }

    fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[0..8].copy_from_slice(&self.id_hash.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.identity.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.samples.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.start.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.rate.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.tokens.to_le_bytes());
        bytes[32..34].copy_from_slice(&self.speaker.to_le_bytes());
        bytes[34..36].copy_from_slice(&self.channels.to_le_bytes());
        bytes[37] = self.language;
        bytes[38] = u8::from(self.other_letters);
        bytes[40..48].copy_from_slice(&self.tokens_at.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> IndexEntry {
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u16_at = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"));
        IndexEntry {
            id_hash: u64_at(0),
            identity: u64_at(8),
            samples: u32_at(16),
            start: u32_at(20),
            rate: u32_at(24),
            tokens: u32_at(28),
            speaker: u16_at(32),
            channels: u16_at(34),
            language: bytes[37],
            other_letters: bytes[38] != 0,
            tokens_at: u64_at(40),
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
    OtherSettings,
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IndexError::Damaged => write!(f, "the index is damaged"),
            IndexError::OtherSettings => write!(f, "the index was made with other settings"),
        }
    }
}

impl std::error::Error for IndexError {}

/// What the file of an index holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexFile {
    /// One for each row of the metadata.
    pub entries: Vec<IndexEntry>,
    /// The symbols that tokens are numbers of.
    pub symbols: Vec<String>,
    /// The languages that texts are in, by their codes.
    pub languages: Vec<String>,
    /// How many tokens there are.
    pub tokens: u64,
    /// The checksum of the tokens' file.
    pub tokens_hash: u64,
}

/// The tokens of all texts.
#[derive(Debug)]
pub(crate) enum Tokens {
    /// When they could not be written.
    Memory(Vec<u16>),
    /// A million texts have hundreds of megabytes of them.
    File(File),
}

impl Default for Tokens {
    fn default() -> Self {
        Tokens::Memory(Vec::new())
    }
}

impl Tokens {
    /// Appends the tokens of one text to `out`.
    pub(crate) fn read(&self, entry: &IndexEntry, out: &mut Vec<u16>) -> io::Result<()> {
        let (at, count) = (entry.tokens_at as usize, entry.tokens as usize);
        match self {
            Tokens::Memory(tokens) => {
                out.extend_from_slice(tokens.get(at..at + count).ok_or(io::ErrorKind::UnexpectedEof)?);
            }
            Tokens::File(file) => {
                let mut bytes = vec![0; 2 * count];
                read_at(file, &mut bytes, 2 * at as u64)?;
                out.extend(bytes.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]])));
            }
        }
        Ok(())
    }

    /// Opens a file of tokens; an error unless every byte is as it was written.
    fn open(path: &Path, index: &IndexFile) -> io::Result<Tokens> {
        let mut file = File::open(path)?;
        let (mut hash, mut buffer, mut length) = (Xxh3::new(), vec![0; 1 << 18], 0);
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                read => {
                    hash.update(&buffer[..read]);
                    length += read as u64;
                }
            }
        }
        if length != 2 * index.tokens || hash.digest() != index.tokens_hash {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Tokens::File(file))
    }
}

/// The entries of all rows, the tokens of their texts, and the faults of those that have one.
#[derive(Debug, Default)]
pub struct Index {
    /// One for each row of the metadata.
    pub(crate) entries: Vec<IndexEntry>,
    /// The symbols that tokens are numbers of.
    pub(crate) symbols: Vec<String>,
    /// The languages that texts are in, by their codes.
    pub(crate) languages: Vec<String>,
    /// Tokens of all rows.
    pub(crate) tokens: Tokens,
    /// Rows with a fault.
    pub(crate) faults: Vec<(u32, ClipFault)>,
    /// How many clips had to be looked at (the others were known).
    pub(crate) measured: usize,
}

/// What looking at a clip gives: its entry, the symbols of its text and the code of its language.
pub(crate) type Measured = Result<(IndexEntry, Vec<String>, String), ClipFault>;

/// Numbers for symbols, in the order in which they come up.
struct Interner {
    numbers: HashMap<String, u16>,
    symbols: Vec<String>,
}

impl Interner {
    fn new(symbols: Vec<String>) -> Interner {
        Interner { numbers: (0..).zip(&symbols).map(|(number, symbol)| (symbol.clone(), number)).collect(), symbols }
    }

    /// None for a symbol too many; no script has so many.
    fn number(&mut self, symbol: String) -> Option<u16> {
        if let Some(&number) = self.numbers.get(&symbol) {
            return Some(number);
        }
        let number = u16::try_from(self.symbols.len()).ok()?;
        self.symbols.push(symbol.clone());
        self.numbers.insert(symbol, number);
        Some(number)
    }
}

/// Some rows that one thread worked on.
struct Part {
    start: u32,
    entries: Vec<IndexEntry>,
    /// Tokens of those that were measured.
    tokens: Vec<u16>,
}

impl Index {
    /// Reads the index of a corpus; without one, or with a damaged one, nothing is known.
    pub(crate) fn open(dir: &Path, settings: u64) -> Index {
        let read = || {
            let bytes = std::fs::read(index_path(dir, settings)).ok()?;
            let IndexFile { entries, symbols, languages, tokens, tokens_hash } = Index::parse(&bytes, settings).ok()?;
            let file = IndexFile { tokens, tokens_hash, ..IndexFile::default() };
            let tokens = Tokens::open(&tokens_path(dir, settings), &file).ok()?;
            Some(Index { entries, symbols, languages, tokens, ..Index::default() })
        };
        read().unwrap_or_default()
    }

    /// Brings the index up to date with `rows` rows. `identify` says cheaply what a row is (its id's and its identity's
    /// hash), `measure` looks at the clips of some rows and calls back after each; rows whose identity is known are not measured
    /// again. `progress` hears how many rows are done. When `stop` says so it ends early; what was done can be kept.
    pub(crate) fn update(
        self,
        rows: u32,
        identify: impl Fn(u32) -> Result<(u64, u64), ClipFault> + Sync,
        measure: impl Fn(&[u32], &dyn Fn()) -> Vec<Measured> + Sync,
        progress: impl Fn(u32) + Sync,
        stop: &AtomicBool,
    ) -> Index {
        let known = &self.entries;
        // Usually the rows are the same as before: then row n is entry n and no table is needed.
        let same_rows = known.len() == rows as usize;
        let by_id: HashMap<u64, usize> = if same_rows {
            HashMap::new()
        } else {
            known.iter().enumerate().map(|(at, entry)| (entry.id_hash, at)).collect()
        };
        let (next, done, measured) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        let parts: Mutex<Vec<Part>> = Mutex::default();
        let faults: Mutex<Vec<(u32, ClipFault)>> = Mutex::default();
        let interner = Mutex::new((Interner::new(self.symbols), Interner::new(self.languages)));
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        // Texts of a part go to one process that makes phonemes: few parts, but enough for all threads.
        let part_rows = rows.div_ceil(4 * threads as u32).clamp(256, 4096);
        let work = || {
            loop {
                let start = next.fetch_add(part_rows, Ordering::Relaxed);
                if start >= rows || stop.load(Ordering::Relaxed) {
                    return;
                }
                let end = rows.min(start + part_rows);
                let mut part =
                    Part { start, entries: vec![IndexEntry::default(); (end - start) as usize], tokens: vec![] };
                let fault = |row, fault| faults.lock().unwrap_or_else(|e| e.into_inner()).push((row, fault));
                let advance = |rows: u32| progress(done.fetch_add(rows, Ordering::Relaxed) + rows);
                let (mut unknown, mut identities) = (Vec::new(), Vec::new());
                for row in start..end {
                    match identify(row) {
                        Err(why) => fault(row, why),
                        Ok((id_hash, identity)) => {
                            let at = if same_rows { Some(row as usize) } else { by_id.get(&id_hash).copied() };
                            let entry = at.map(|at| known[at]);
                            match entry.filter(|entry| entry.identity == identity && entry.is_good()) {
                                Some(entry) => part.entries[(row - start) as usize] = entry,
                                None => {
                                    unknown.push(row);
                                    identities.push((id_hash, identity));
                                }
                            }
                        }
                    }
                }
                measured.fetch_add(unknown.len() as u32, Ordering::Relaxed);
                advance(end - start - unknown.len() as u32);
                let found = measure(&unknown, &|| advance(1));
                for ((row, found), (id_hash, identity)) in unknown.iter().zip(found).zip(identities) {
                    match found {
                        Err(why) => fault(*row, why),
                        Ok((entry, symbols, language)) => {
                            let before = part.tokens.len();
                            let mut interner = interner.lock().unwrap_or_else(|e| e.into_inner());
                            part.tokens.extend(symbols.into_iter().filter_map(|symbol| interner.0.number(symbol)));
                            // Nobody speaks more than 256.
                            let language = interner.1.number(language).map_or(u8::MAX, |number| number.min(255) as u8);
                            let tokens = (part.tokens.len() - before) as u32;
                            let tokens_at = FRESH | before as u64;
                            part.entries[(row - start) as usize] =
                                IndexEntry { id_hash, identity, tokens, tokens_at, language, ..entry };
                        }
                    }
                }
                parts.lock().unwrap_or_else(|e| e.into_inner()).push(part);
            }
        };
        let threads = threads.min(rows.div_ceil(part_rows) as usize);
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        // Rows that were not reached keep what was known of them.
        let mut entries = if same_rows { known.clone() } else { vec![IndexEntry::default(); rows as usize] };
        let mut fresh = Vec::new();
        for part in parts.into_inner().unwrap_or_else(|e| e.into_inner()) {
            let places = &mut entries[part.start as usize..][..part.entries.len()];
            for (place, mut entry) in places.iter_mut().zip(part.entries) {
                entry.tokens_at += if entry.tokens_at & FRESH != 0 { fresh.len() as u64 } else { 0 };
                *place = entry;
            }
            fresh.extend(part.tokens);
        }
        let mut faults = faults.into_inner().unwrap_or_else(|e| e.into_inner());
        faults.sort_by_key(|(row, _)| *row);
        let measured = measured.into_inner() as usize;
        let (symbols, languages) = interner.into_inner().unwrap_or_else(|e| e.into_inner());
        let (symbols, languages) = (symbols.symbols, languages.symbols);
        let mut index = Index { entries, symbols, languages, tokens: self.tokens, faults, measured };
        if measured > 0 || !same_rows {
            index.gather(&fresh);
        }
        index
    }

    /// Puts the tokens of all rows, known and fresh, one after the other.
    fn gather(&mut self, fresh: &[u16]) {
        let mut tokens = Vec::with_capacity(self.entries.iter().map(|entry| entry.tokens as usize).sum());
        for entry in &mut self.entries {
            let at = tokens.len() as u64;
            if entry.tokens_at & FRESH != 0 {
                let from = (entry.tokens_at & !FRESH) as usize;
                tokens.extend_from_slice(&fresh[from..from + entry.tokens as usize]);
            } else if self.tokens.read(entry, &mut tokens).is_err() {
                // Gone since it was checked: as if it had never been known.
                tokens.truncate(at as usize);
                *entry = IndexEntry::default();
            }
            entry.tokens_at = at;
        }
        self.tokens = Tokens::Memory(tokens);
    }

    /// Writes the index, whole or not at all; from then on tokens are read from the file.
    pub(crate) fn save(&mut self, dir: &Path, settings: u64) -> io::Result<()> {
        let Tokens::Memory(tokens) = &self.tokens else { return Ok(()) };
        std::fs::create_dir_all(dir)?;
        remove_leftovers(dir, FORGOTTEN);
        let (mut hash, mut file) = (Xxh3::new(), tempfile::NamedTempFile::new_in(dir)?);
        for some in tokens.chunks(1 << 16) {
            let bytes: Vec<u8> = some.iter().flat_map(|token| token.to_le_bytes()).collect();
            hash.update(&bytes);
            file.write_all(&bytes)?;
        }
        let path = tokens_path(dir, settings);
        file.persist(&path).map_err(|error| error.error)?;
        let symbols = serde_json::to_vec(&(&self.symbols, &self.languages)).expect("plain data");
        let mut body = Vec::with_capacity(self.entries.len() * ENTRY_BYTES + symbols.len());
        for entry in &self.entries {
            body.extend_from_slice(&entry.to_bytes());
        }
        body.extend_from_slice(&symbols);
        let numbers = [
            settings,
            self.entries.len() as u64,
            symbols.len() as u64,
            tokens.len() as u64,
            hash.digest(),
            xxh3_64(&body),
        ];
        let mut header = MAGIC.to_vec();
        numbers.iter().for_each(|number| header.extend_from_slice(&number.to_le_bytes()));
        header.extend_from_slice(&xxh3_64(&header).to_le_bytes());
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.write_all(&header)?;
        file.write_all(&body)?;
        file.persist(index_path(dir, settings)).map_err(|error| error.error)?;
        self.tokens = Tokens::File(File::open(path)?);
        Ok(())
    }

    /// Reads what [`Corpus`](crate::Corpus) keeps of its clips, made with the same settings. Public for the fuzzer.
    ///
    /// # Errors
    ///
    /// [`IndexError`] unless every byte is as it was written, with these settings.
    pub fn parse(bytes: &[u8], settings: u64) -> Result<IndexFile, IndexError> {
        let (header, body) = bytes.split_at_checked(HEADER_BYTES).ok_or(IndexError::Damaged)?;
        let u64_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        if &header[..8] != MAGIC || u64_at(56) != xxh3_64(&header[..56]) {
            return Err(IndexError::Damaged);
        }
        if u64_at(8) != settings {
            return Err(IndexError::OtherSettings);
        }
        let length = (u64_at(16) as usize).checked_mul(ENTRY_BYTES);
        let (entries, symbols) = length.and_then(|at| body.split_at_checked(at)).ok_or(IndexError::Damaged)?;
        if symbols.len() as u64 != u64_at(24) || u64_at(48) != xxh3_64(body) {
            return Err(IndexError::Damaged);
        }
        let entries: Vec<IndexEntry> = entries.chunks_exact(ENTRY_BYTES).map(IndexEntry::from_bytes).collect();
        let (tokens, inside) = (u64_at(32), |entry: &IndexEntry| {
            entry.tokens_at.checked_add(u64::from(entry.tokens)).is_some_and(|end| end <= u64_at(32))
        });
        let (symbols, languages): (Vec<String>, Vec<String>) =
            serde_json::from_slice(symbols).map_err(|_| IndexError::Damaged)?;
        if !entries.iter().all(inside) || symbols.len() > usize::from(u16::MAX) + 1 {
            return Err(IndexError::Damaged);
        }
        Ok(IndexFile { entries, symbols, languages, tokens, tokens_hash: u64_at(40) })
    }
}

fn index_path(dir: &Path, settings: u64) -> PathBuf {
    dir.join(format!("index-{settings:016x}"))
}

fn tokens_path(dir: &Path, settings: u64) -> PathBuf {
    dir.join(format!("tokens-{settings:016x}"))
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

/// The folder of index and cache beside the data.
pub(crate) const WORK_DIR: &str = ".tandem";

/// Where a corpus keeps its index and cache: beside the data if that can be written, else in the user's cache.
pub(crate) fn work_dir(corpus: &Path) -> PathBuf {
    let beside = corpus.join(WORK_DIR);
    let writable = std::fs::create_dir_all(&beside).is_ok() && tempfile::tempfile_in(&beside).is_ok();
    if writable {
        return beside;
    }
    let absolute = std::fs::canonicalize(corpus).unwrap_or_else(|_| corpus.to_owned());
    user_cache().join(format!("{:016x}", hash_parts(&[absolute.as_os_str().as_encoded_bytes()])))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nineteen rows whose texts are `a b` and a symbol of their own.
    fn measured(row: u32) -> (IndexEntry, Vec<String>, String) {
        let entry = IndexEntry {
            samples: 1000 * (row + 1),
            start: row,
            rate: 22_050,
            speaker: 3,
            channels: 2,
            other_letters: true,
            ..IndexEntry::default()
        };
        let language = if row.is_multiple_of(2) { "fa" } else { "en" };
        (entry, vec!["a".to_owned(), "b".to_owned(), format!("<{row}>")], language.to_owned())
    }

    fn update(known: Index, rows: u32, identity: fn(u32) -> u64) -> Index {
        let identify = |row: u32| Ok((u64::from(row) + 1, identity(row)));
        let (done, calls) = (AtomicU32::new(0), AtomicU32::new(0));
        let measure = |rows: &[u32], on_clip: &dyn Fn()| {
            rows.iter().inspect(|_| on_clip()).map(|&row| Ok(measured(row))).collect()
        };
        let progress = |rows: u32| {
            done.fetch_max(rows, Ordering::Relaxed);
            calls.fetch_add(1, Ordering::Relaxed);
        };
        let index = known.update(rows, identify, measure, progress, &AtomicBool::new(false));
        assert_eq!(done.into_inner(), rows, "every row is heard of");
        assert!(calls.into_inner() as usize > index.measured, "clip by clip");
        index
    }

    fn usual(row: u32) -> u64 {
        (u64::from(row) + 1) * 7
    }

    fn symbols(index: &Index, row: usize) -> Vec<&str> {
        let mut tokens = Vec::new();
        index.tokens.read(&index.entries[row], &mut tokens).expect("there");
        tokens.iter().map(|&token| index.symbols[usize::from(token)].as_str()).collect()
    }

    #[test]
    fn an_index_survives_saving_and_damage_is_noticed_at_every_byte() {
        let dir = tempfile::tempdir().expect("a folder");
        let dir = dir.path().join("sub");
        let mut index = update(Index::default(), 19, usual);
        index.save(&dir, 42).expect("writable");
        let (index_path, tokens_path) = (index_path(&dir, 42), tokens_path(&dir, 42));
        let bytes = std::fs::read(&index_path).expect("written");
        let parsed = Index::parse(&bytes, 42).expect("whole");
        assert_eq!((parsed.entries, parsed.symbols.len()), (index.entries.clone(), 21));
        assert_eq!(
            (parsed.languages[usize::from(index.entries[3].language)].as_str(), index.languages.len()),
            ("en", 2)
        );
        assert_eq!(Index::parse(&bytes, 43), Err(IndexError::OtherSettings));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Index::parse(&damaged, 42).is_err(), "byte {at}");
            assert!(Index::parse(&bytes[..at], 42).is_err(), "cut at {at}");
        }
        let again = Index::open(&dir, 42);
        assert_eq!((again.entries.len(), symbols(&again, 7)), (19, vec!["a", "b", "<7>"]));
        let tokens = std::fs::read(&tokens_path).expect("written");
        for at in 0..tokens.len() {
            let mut damaged = tokens.clone();
            damaged[at] ^= 1;
            std::fs::write(&tokens_path, damaged).expect("writable");
            assert!(Index::open(&dir, 42).entries.is_empty(), "byte {at}");
            std::fs::write(&tokens_path, &tokens[..at]).expect("writable");
            assert!(Index::open(&dir, 42).entries.is_empty(), "cut at {at}");
        }
    }

    #[test]
    fn only_what_changed_is_measured_again() {
        let dir = tempfile::tempdir().expect("a folder");
        update(Index::default(), 19, usual).save(dir.path(), 1).expect("writable");
        let known = || Index::open(dir.path(), 1);
        assert_eq!(update(known(), 19, usual).measured, 0);
        let changed = update(known(), 19, |row| if row == 4 { 0 } else { usual(row) });
        assert_eq!((changed.measured, changed.entries[4].samples, changed.entries[5].samples), (1, 5000, 6000));
        assert_eq!((symbols(&changed, 4), symbols(&changed, 5)), (vec!["a", "b", "<4>"], vec!["a", "b", "<5>"]));
        // Two rows more: the others are found by their ids.
        let more = update(known(), 21, usual);
        assert_eq!(
            (more.measured, symbols(&more, 20), symbols(&more, 0)),
            (2, vec!["a", "b", "<20>"], vec!["a", "b", "<0>"])
        );
    }
}
