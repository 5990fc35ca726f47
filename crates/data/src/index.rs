//! The length of every clip, the symbols of its text, and what is wrong with it, kept on disk.
//!
//! Opening a corpus again costs one look at each file's size and date. What changed is measured again; an index that is
//! damaged or of other settings is made again, never trusted. Texts are normalized, phonemized and tokenized here and
//! nowhere else: an epoch reads numbers. Two files:
//!
//! ```text
//! index-KEY     header, an entry for each row, a place for each row, the symbols that texts consist of and their languages (JSON)
//! tokens-KEY    for each text the numbers of its symbols (u16, little-endian)
//! ```
//!
//! A corpus may have ten million rows. Twenty bytes of each are in memory (the entry: what plans and reports need); the place (hashes,
//! and where its tokens are) is read from the file when a clip is, and while an index is made, places and tokens are in temporary files.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::UNIX_EPOCH;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::fault::ClipFault;
use crate::files::{FORGOTTEN, remove_leftovers};
use crate::remote::user_cache;
use crate::sources::read_at;

const MAGIC: &[u8; 8] = b"TNDMIDX6";
const ENTRY_BYTES: usize = 20;
const PLACE_BYTES: usize = 24;
const HEADER_BYTES: usize = 64;
/// Marks the place of tokens that were made just now and are in no file yet.
const FRESH: u64 = 1 << 63;
/// In the last byte of an entry, beside the channels.
const OTHER_LETTERS: u8 = 1 << 7;
/// Rows that are read or written at once.
const ROWS_AT_ONCE: usize = 1 << 12;

/// Bytes of tokens that are read at once where texts follow each other.
const TOKENS_AT_ONCE: usize = 1 << 16;

/// What is known of a clip. A clip with zero samples has a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexEntry {
    /// Samples per channel that are used, at the file's own sample rate.
    pub samples: u32,
    /// Samples before them that are not: silence that is trimmed.
    pub start: u32,
    /// The file's sample rate.
    pub rate: u32,
    /// Tokens of its text.
    pub tokens: u32,
    /// Who speaks.
    pub speaker: u16,
    /// The language of its text, a number in the index's list.
    pub language: u8,
    /// Channels, and [`OTHER_LETTERS`].
    pub(crate) flags: u8,
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

    /// Channels of the file; more than anybody has are 127.
    pub fn channels(&self) -> u16 {
        u16::from(self.flags & !OTHER_LETTERS)
    }

    /// Whether its text has letters that the language does not have.
    pub fn has_other_letters(&self) -> bool {
        self.flags & OTHER_LETTERS != 0
    }

    /// The same with channels and letters of its own.
    pub(crate) fn with(self, channels: u16, other_letters: bool) -> IndexEntry {
        let channels = channels.min(u16::from(OTHER_LETTERS - 1)) as u8;
        IndexEntry { flags: channels | if other_letters { OTHER_LETTERS } else { 0 }, ..self }
    }

    fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[0..4].copy_from_slice(&self.samples.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.start.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.rate.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.tokens.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.speaker.to_le_bytes());
        bytes[18] = self.language;
        bytes[19] = self.flags;
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> IndexEntry {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        IndexEntry {
            samples: u32_at(0),
            start: u32_at(4),
            rate: u32_at(8),
            tokens: u32_at(12),
            speaker: u16::from_le_bytes([bytes[16], bytes[17]]),
            language: bytes[18],
            flags: bytes[19],
        }
    }
}

/// What of a row is needed only when its clip is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowPlace {
    /// A hash of its id.
    pub(crate) id_hash: u64,
    /// A hash of its text and of its file's path, size and date.
    identity: u64,
    /// Where its tokens begin among all tokens.
    tokens_at: u64,
}

impl RowPlace {
    fn to_bytes(self) -> [u8; PLACE_BYTES] {
        let mut bytes = [0; PLACE_BYTES];
        for (bytes, number) in bytes.chunks_exact_mut(8).zip([self.id_hash, self.identity, self.tokens_at]) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> RowPlace {
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        RowPlace { id_hash: u64_at(0), identity: u64_at(8), tokens_at: u64_at(16) }
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

/// Bytes that are read at any place: of a file, or in memory where none can be written.
#[derive(Debug)]
enum Stored {
    File(File),
    Memory(Vec<u8>),
}

impl Stored {
    /// A temporary file that has no name, in this directory.
    fn temporary(dir: &Path) -> Stored {
        let file = std::fs::create_dir_all(dir).and_then(|()| tempfile::tempfile_in(dir));
        file.map_or_else(|_| Stored::Memory(Vec::new()), Stored::File)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        match self {
            Stored::File(file) => read_at(file, buffer, at),
            Stored::Memory(bytes) => {
                let there = bytes.get(at as usize..).and_then(|rest| rest.get(..buffer.len()));
                buffer.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }

    /// Writes bytes, behind the end too. A disk that is full turns a file into memory.
    fn write_at(&mut self, bytes: &[u8], at: u64) {
        if let Stored::File(file) = self {
            let written = file.seek(io::SeekFrom::Start(at)).and_then(|_| file.write_all(bytes));
            if written.is_ok() {
                return;
            }
            let mut there = Vec::new();
            // What cannot be read either is noticed as tokens of no text, and measured again.
            let _ = file.rewind().and_then(|()| file.read_to_end(&mut there));
            *self = Stored::Memory(there);
        }
        let Stored::Memory(there) = self else { return };
        let end = at as usize + bytes.len();
        if there.len() < end {
            there.resize(end, 0);
        }
        there[at as usize..end].copy_from_slice(bytes);
    }

    /// Copies the first bytes to a writer.
    fn copy_to(&self, length: u64, writer: &mut impl Write) -> io::Result<()> {
        let (mut at, mut buffer) = (0, vec![0; 1 << 18]);
        while at < length {
            let count = (length - at).min(buffer.len() as u64) as usize;
            self.read_at(&mut buffer[..count], at)?;
            writer.write_all(&buffer[..count])?;
            at += count as u64;
        }
        Ok(())
    }
}

/// The places of all rows, from somewhere in a file on.
#[derive(Debug)]
struct Places {
    stored: Stored,
    from: u64,
}

impl Places {
    fn read(&self, rows: Range<u32>) -> io::Result<Vec<RowPlace>> {
        let mut bytes = vec![0; rows.len() * PLACE_BYTES];
        self.stored.read_at(&mut bytes, self.from + u64::from(rows.start) * PLACE_BYTES as u64)?;
        Ok(bytes.chunks_exact(PLACE_BYTES).map(RowPlace::from_bytes).collect())
    }
}

/// The tokens of all texts: those that are in the file of the index, and those that were made since.
#[derive(Debug)]
struct Tokens {
    kept: Stored,
    /// Tokens in it.
    kept_count: u64,
    fresh: Stored,
    fresh_count: u64,
}

impl Default for Tokens {
    fn default() -> Self {
        let none = || Stored::Memory(Vec::new());
        Tokens { kept: none(), kept_count: 0, fresh: none(), fresh_count: 0 }
    }
}

impl Tokens {
    /// Appends the tokens of one text to `out`.
    fn read(&self, at: u64, count: u32, out: &mut Vec<u16>) -> io::Result<()> {
        let mut bytes = vec![0; 2 * count as usize];
        let stored = if at & FRESH != 0 { &self.fresh } else { &self.kept };
        stored.read_at(&mut bytes, 2 * (at & !FRESH))?;
        out.extend(bytes.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]])));
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
        Ok(Tokens { kept: Stored::File(file), kept_count: index.tokens, ..Tokens::default() })
    }
}

/// The entries of all rows, the tokens of their texts, and the faults of those that have one.
#[derive(Debug)]
pub struct Index {
    /// One for each row of the metadata.
    pub(crate) entries: Vec<IndexEntry>,
    places: Places,
    /// The symbols that tokens are numbers of.
    pub(crate) symbols: Vec<String>,
    /// The languages that texts are in, by their codes.
    pub(crate) languages: Vec<String>,
    tokens: Tokens,
    /// Rows with a fault.
    pub(crate) faults: Vec<(u32, ClipFault)>,
    /// How many clips had to be looked at (the others were known).
    pub(crate) measured: usize,
    /// Whether it is not what the files say.
    changed: bool,
}

impl Default for Index {
    fn default() -> Self {
        Index {
            entries: Vec::new(),
            places: Places { stored: Stored::Memory(Vec::new()), from: 0 },
            symbols: Vec::new(),
            languages: Vec::new(),
            tokens: Tokens::default(),
            faults: Vec::new(),
            measured: 0,
            changed: false,
        }
    }
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

/// What threads put together while an index is made.
struct Made {
    entries: Vec<IndexEntry>,
    places: Stored,
    /// Which parts were written to `places`.
    written: HashSet<u32>,
    tokens: Tokens,
    faults: Vec<(u32, ClipFault)>,
    symbols: Interner,
    languages: Interner,
}

impl Index {
    /// Reads the index of a corpus; without one, or with a damaged one, nothing is known.
    pub(crate) fn open(dir: &Path, settings: u64) -> Index {
        let read = || {
            let file = File::open(index_path(dir, settings)).ok()?;
            let length = file.metadata().ok()?.len();
            let found = read_index(BufReader::with_capacity(1 << 18, &file), length, settings).ok()?;
            let tokens = Tokens::open(&tokens_path(dir, settings), &found).ok()?;
            let from = (HEADER_BYTES + found.entries.len() * ENTRY_BYTES) as u64;
            let IndexFile { entries, symbols, languages, .. } = found;
            let places = Places { stored: Stored::File(file), from };
            Some(Index { entries, places, symbols, languages, tokens, ..Index::default() })
        };
        read().unwrap_or_default()
    }

    /// Whether there seems to be one with rows, by its header alone.
    pub(crate) fn is_there(dir: &Path, settings: u64) -> bool {
        let mut header = [0; HEADER_BYTES];
        let read = File::open(index_path(dir, settings)).and_then(|mut file| file.read_exact(&mut header));
        read.is_ok() && Header::parse(&header, settings).is_ok_and(|header| header.rows > 0)
    }

    /// Brings the index up to date with `rows` rows. `identify` says cheaply what a row is (its id's and its identity's
    /// hash), `measure` looks at the clips of some rows and calls back after each; rows whose identity is known are not measured
    /// again. `progress` hears how many rows are done. When `stop` says so it ends early; what was done can be kept. Temporary
    /// files are made in `dir`.
    pub(crate) fn update(
        self,
        dir: &Path,
        rows: u32,
        identify: impl Fn(u32) -> Result<(u64, u64), ClipFault> + Sync,
        measure: impl Fn(&[u32], &dyn Fn()) -> Vec<Measured> + Sync,
        progress: impl Fn(u32) + Sync,
        stop: &AtomicBool,
    ) -> Index {
        let Index { entries: known, places: known_places, symbols, languages, tokens, .. } = self;
        // Usually the rows are the same as before: then row n is entry n and no table is needed.
        let same_rows = known.len() == rows as usize;
        let by_id = if same_rows { Vec::new() } else { rows_by_id(&known_places, known.len() as u32) };
        let find = |id_hash: u64| {
            let at = by_id.partition_point(|&(other, _)| other < id_hash);
            by_id.get(at).filter(|(other, _)| *other == id_hash).map(|&(_, row)| row)
        };
        let (known, entries) = match same_rows {
            true => (Vec::new(), known),
            false => (known, vec![IndexEntry::default(); rows as usize]),
        };
        let (next, done, measured) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        let made = Mutex::new(Made {
            entries,
            places: Stored::temporary(dir),
            written: HashSet::new(),
            tokens: Tokens { fresh: Stored::temporary(dir), fresh_count: 0, ..tokens },
            faults: Vec::new(),
            symbols: Interner::new(symbols),
            languages: Interner::new(languages),
        });
        let lock = || made.lock().unwrap_or_else(|e| e.into_inner());
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        // Texts of a part go to one process that makes phonemes: few parts, but enough for all threads.
        let part_rows = rows.div_ceil(4 * threads as u32).clamp(256, ROWS_AT_ONCE as u32);
        let work = || {
            loop {
                let start = next.fetch_add(part_rows, Ordering::Relaxed);
                if start >= rows || stop.load(Ordering::Relaxed) {
                    return;
                }
                let end = rows.min(start + part_rows);
                let count = (end - start) as usize;
                let advance = |rows: u32| progress(done.fetch_add(rows, Ordering::Relaxed) + rows);
                // What was known of these rows, if they are the same ones.
                let (before, places_before) = match same_rows {
                    true => (lock().entries[start as usize..][..count].to_vec(), known_places.read(start..end).ok()),
                    false => (Vec::new(), None),
                };
                let mut entries = vec![IndexEntry::default(); count];
                let mut places = vec![RowPlace::default(); count];
                let (mut unknown, mut faults) = (Vec::new(), Vec::new());
                for row in start..end {
                    let n = (row - start) as usize;
                    let (id_hash, identity) = match identify(row) {
                        Ok(hashes) => hashes,
                        Err(why) => {
                            faults.push((row, why));
                            continue;
                        }
                    };
                    let found = match &places_before {
                        Some(places) => Some((before[n], places[n])),
                        None => find(id_hash)
                            .and_then(|at| Some((known[at as usize], *known_places.read(at..at + 1).ok()?.first()?))),
                    };
                    match found.filter(|(entry, place)| place.identity == identity && entry.is_good()) {
                        Some(found) => (entries[n], places[n]) = found,
                        None => {
                            unknown.push(row);
                            places[n] = RowPlace { id_hash, identity, tokens_at: 0 };
                        }
                    }
                }
                measured.fetch_add(unknown.len() as u32, Ordering::Relaxed);
                advance(count as u32 - unknown.len() as u32);
                let found = measure(&unknown, &|| advance(1));
                let mut made = lock();
                let (mut fresh, fresh_from) = (Vec::new(), made.tokens.fresh_count);
                for (row, found) in unknown.iter().zip(found) {
                    let n = (row - start) as usize;
                    match found {
                        Err(why) => {
                            faults.push((*row, why));
                            places[n] = RowPlace::default();
                        }
                        Ok((entry, symbols, language)) => {
                            let at = fresh.len();
                            fresh.extend(symbols.into_iter().filter_map(|symbol| made.symbols.number(symbol)));
                            // Nobody speaks more than 256.
                            let language =
                                made.languages.number(language).map_or(u8::MAX, |number| number.min(255) as u8);
                            entries[n] = IndexEntry { tokens: (fresh.len() - at) as u32, language, ..entry };
                            places[n].tokens_at = FRESH | (fresh_from + at as u64);
                        }
                    }
                }
                made.faults.extend(faults);
                // A part that is as it was stays where it is.
                if entries == before && places_before.as_ref() == Some(&places) {
                    continue;
                }
                let bytes: Vec<u8> = fresh.iter().flat_map(|token| token.to_le_bytes()).collect();
                made.tokens.fresh.write_at(&bytes, 2 * fresh_from);
                made.tokens.fresh_count += fresh.len() as u64;
                let bytes: Vec<u8> = places.iter().flat_map(|place| place.to_bytes()).collect();
                made.places.write_at(&bytes, u64::from(start) * PLACE_BYTES as u64);
                made.entries[start as usize..][..count].copy_from_slice(&entries);
                made.written.insert(start);
            }
        };
        let threads = threads.min(rows.div_ceil(part_rows) as usize);
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        let made = made.into_inner().unwrap_or_else(|e| e.into_inner());
        let Made { entries, places, written, tokens, mut faults, symbols, languages } = made;
        faults.sort_by_key(|(row, _)| *row);
        let measured = measured.into_inner() as usize;
        let (symbols, languages) = (symbols.symbols, languages.symbols);
        let changed = !same_rows || !written.is_empty();
        let places = match changed {
            false => known_places,
            true => with_the_rest(places, &written, rows, part_rows, same_rows.then_some(&known_places)),
        };
        Index { entries, places, symbols, languages, tokens, faults, measured, changed }
    }

    /// Appends the tokens of a row to `out`.
    pub(crate) fn read_tokens(&self, row: u32, out: &mut Vec<u16>) -> io::Result<()> {
        let place = self.place(row)?;
        self.tokens.read(place.tokens_at, self.entries[row as usize].tokens, out)
    }

    /// Which symbols the texts of these rows have; read in large pieces where rows follow each other.
    pub(crate) fn symbols_of(&self, rows: impl Iterator<Item = u32>) -> Vec<bool> {
        let mut seen = vec![false; self.symbols.len()];
        let (mut places, mut from) = (Vec::new(), 0);
        let (mut window, mut window_at) = (Vec::<u8>::new(), 0);
        for row in rows {
            if !(from..from + places.len() as u32).contains(&row) {
                let end = (self.entries.len() as u32).min(row + ROWS_AT_ONCE as u32);
                (places, from) = (self.places.read(row..end).unwrap_or_default(), row);
            }
            let Some(place) = places.get((row - from) as usize) else { continue };
            let (at, bytes) = (place.tokens_at, 2 * self.entries[row as usize].tokens as usize);
            let inside = at & FRESH == 0 && at >= window_at && 2 * (at - window_at) as usize + bytes <= window.len();
            if !inside {
                let stored = if at & FRESH != 0 { &self.tokens.fresh } else { &self.tokens.kept };
                let whole = bytes.max(TOKENS_AT_ONCE);
                window.resize(whole, 0);
                // The last tokens of a file are fewer than that. What cannot be read fails again, with a name, when its clip is loaded.
                if stored.read_at(&mut window, 2 * (at & !FRESH)).is_err() {
                    window.resize(bytes, 0);
                    if stored.read_at(&mut window, 2 * (at & !FRESH)).is_err() {
                        window.clear();
                        continue;
                    }
                }
                window_at = at;
            }
            let start = 2 * (at - window_at) as usize;
            for two in window[start..start + bytes].chunks_exact(2) {
                seen[usize::from(u16::from_le_bytes([two[0], two[1]]))] = true;
            }
        }
        seen
    }

    /// What is needed of a row when its clip is.
    pub(crate) fn place(&self, row: u32) -> io::Result<RowPlace> {
        Ok(self.places.read(row..row + 1)?[0])
    }

    /// Rows that can be used whose id an earlier one has, with that one; in the order of the rows. Eight bytes a row while it looks.
    pub(crate) fn duplicates(&self) -> Vec<(u32, u32)> {
        let each = |then: &mut dyn FnMut(u32, u64)| {
            let rows = self.entries.len() as u32;
            for start in (0..rows).step_by(ROWS_AT_ONCE) {
                let part = start..rows.min(start + ROWS_AT_ONCE as u32);
                for (row, place) in part.clone().zip(self.places.read(part).unwrap_or_default()) {
                    if self.entries[row as usize].is_good() {
                        then(row, place.id_hash);
                    }
                }
            }
        };
        let mut hashes = Vec::with_capacity(self.entries.len());
        each(&mut |_, hash| hashes.push(hash));
        hashes.sort_unstable();
        let twice: HashSet<u64> = hashes.windows(2).filter(|two| two[0] == two[1]).map(|two| two[0]).collect();
        drop(hashes);
        let (mut first, mut found) = (HashMap::new(), Vec::new());
        if !twice.is_empty() {
            each(&mut |row, hash| {
                if twice.contains(&hash) {
                    match first.get(&hash) {
                        Some(&earlier) => found.push((row, earlier)),
                        None => drop(first.insert(hash, row)),
                    }
                }
            });
        }
        found
    }

    /// Writes the index, whole or not at all; from then on places and tokens are read from its files.
    pub(crate) fn save(&mut self, dir: &Path, settings: u64) -> io::Result<()> {
        if !self.changed {
            return Ok(());
        }
        std::fs::create_dir_all(dir)?;
        remove_leftovers(dir, FORGOTTEN);
        let mut tokens_file = Hashed::new(tempfile::NamedTempFile::new_in(dir)?);
        let mut index_file = Hashed::new(tempfile::NamedTempFile::new_in(dir)?);
        index_file.file.write_all(&[0; HEADER_BYTES])?;
        for some in self.entries.chunks(ROWS_AT_ONCE) {
            index_file.write_all(&some.iter().flat_map(|entry| entry.to_bytes()).collect::<Vec<u8>>())?;
        }
        let Tokens { kept, kept_count, fresh, fresh_count } = &self.tokens;
        let used: u64 = self.entries.iter().map(|entry| u64::from(entry.tokens)).sum();
        // Tokens of texts that are gone stay until they are the greater part.
        let gather = kept_count + fresh_count > 2 * used;
        let mut tokens_count = 0;
        if !gather {
            kept.copy_to(2 * kept_count, &mut tokens_file)?;
            fresh.copy_to(2 * fresh_count, &mut tokens_file)?;
            tokens_count = kept_count + fresh_count;
        }
        let rows = self.entries.len() as u32;
        for start in (0..rows).step_by(ROWS_AT_ONCE) {
            let mut places = self.places.read(start..rows.min(start + ROWS_AT_ONCE as u32))?;
            for (entry, place) in self.entries[start as usize..].iter().zip(&mut places) {
                if gather {
                    let mut tokens = Vec::new();
                    self.tokens.read(place.tokens_at, entry.tokens, &mut tokens)?;
                    tokens_file.write_all(&tokens.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>())?;
                    place.tokens_at = tokens_count;
                    tokens_count += u64::from(entry.tokens);
                } else if place.tokens_at & FRESH != 0 {
                    place.tokens_at = kept_count + (place.tokens_at & !FRESH);
                }
            }
            index_file.write_all(&places.iter().flat_map(|place| place.to_bytes()).collect::<Vec<u8>>())?;
        }
        let symbols = serde_json::to_vec(&(&self.symbols, &self.languages)).expect("plain data");
        index_file.write_all(&symbols)?;
        let (tokens_file, tokens_hash) = tokens_file.finish()?;
        let (mut index_file, body_hash) = index_file.finish()?;
        let numbers = [settings, u64::from(rows), symbols.len() as u64, tokens_count, tokens_hash, body_hash];
        let mut header = MAGIC.to_vec();
        numbers.iter().for_each(|number| header.extend_from_slice(&number.to_le_bytes()));
        header.extend_from_slice(&xxh3_64(&header).to_le_bytes());
        index_file.rewind()?;
        index_file.write_all(&header)?;
        let (index_path, tokens_path) = (index_path(dir, settings), tokens_path(dir, settings));
        tokens_file.persist(&tokens_path).map_err(|error| error.error)?;
        index_file.persist(&index_path).map_err(|error| error.error)?;
        let (index_file, tokens_file) = (File::open(index_path)?, File::open(tokens_path)?);
        let from = (HEADER_BYTES + self.entries.len() * ENTRY_BYTES) as u64;
        self.places = Places { stored: Stored::File(index_file), from };
        self.tokens = Tokens { kept: Stored::File(tokens_file), kept_count: tokens_count, ..Tokens::default() };
        self.changed = false;
        Ok(())
    }

    /// Reads what [`Corpus`](crate::Corpus) keeps of its clips, made with the same settings. Public for the fuzzer.
    ///
    /// # Errors
    ///
    /// [`IndexError`] unless every byte is as it was written, with these settings.
    pub fn parse(bytes: &[u8], settings: u64) -> Result<IndexFile, IndexError> {
        read_index(bytes, bytes.len() as u64, settings)
    }
}

/// Ids and rows, in the order of the ids.
fn rows_by_id(places: &Places, rows: u32) -> Vec<(u64, u32)> {
    let mut by_id = Vec::with_capacity(rows as usize);
    for start in (0..rows).step_by(ROWS_AT_ONCE) {
        let part = start..rows.min(start + ROWS_AT_ONCE as u32);
        by_id.extend(places.read(part.clone()).unwrap_or_default().iter().map(|place| place.id_hash).zip(part));
    }
    by_id.sort_unstable();
    by_id
}

/// The places that were written, and for the other parts those that were known: rows that were not reached keep what was known of them.
fn with_the_rest(
    mut places: Stored,
    written: &HashSet<u32>,
    rows: u32,
    part_rows: u32,
    known: Option<&Places>,
) -> Places {
    for start in (0..rows).step_by(part_rows as usize).filter(|start| !written.contains(start)) {
        let part = start..rows.min(start + part_rows);
        let none = || vec![RowPlace::default(); part.len()];
        let there = known.and_then(|known| known.read(part.clone()).ok()).unwrap_or_else(none);
        let bytes: Vec<u8> = there.iter().flat_map(|place| place.to_bytes()).collect();
        places.write_at(&bytes, u64::from(start) * PLACE_BYTES as u64);
    }
    Places { stored: places, from: 0 }
}

/// The first bytes of an index.
struct Header {
    rows: u64,
    symbols_bytes: u64,
    tokens: u64,
    tokens_hash: u64,
    body_hash: u64,
}

impl Header {
    fn parse(header: &[u8; HEADER_BYTES], settings: u64) -> Result<Header, IndexError> {
        let u64_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        if &header[..8] != MAGIC || u64_at(56) != xxh3_64(&header[..56]) {
            return Err(IndexError::Damaged);
        }
        if u64_at(8) != settings {
            return Err(IndexError::OtherSettings);
        }
        let (rows, symbols_bytes, tokens) = (u64_at(16), u64_at(24), u64_at(32));
        Ok(Header { rows, symbols_bytes, tokens, tokens_hash: u64_at(40), body_hash: u64_at(48) })
    }
}

/// Reads an index of so many bytes, a part at a time.
fn read_index(mut reader: impl Read, length: u64, settings: u64) -> Result<IndexFile, IndexError> {
    let damaged = |_| IndexError::Damaged;
    let mut header = [0; HEADER_BYTES];
    reader.read_exact(&mut header).map_err(damaged)?;
    let header = Header::parse(&header, settings)?;
    // Before anything is made that is as large as it says.
    let rows_bytes = header.rows.checked_mul((ENTRY_BYTES + PLACE_BYTES) as u64);
    let wanted = rows_bytes.and_then(|bytes| bytes.checked_add(header.symbols_bytes)?.checked_add(HEADER_BYTES as u64));
    let rows = usize::try_from(header.rows).ok().filter(|_| wanted == Some(length)).ok_or(IndexError::Damaged)?;
    let (mut hash, mut entries, mut buffer) = (Xxh3::new(), Vec::with_capacity(rows), Vec::new());
    for start in (0..rows).step_by(ROWS_AT_ONCE) {
        buffer.resize(ROWS_AT_ONCE.min(rows - start) * ENTRY_BYTES, 0);
        reader.read_exact(&mut buffer).map_err(damaged)?;
        hash.update(&buffer);
        entries.extend(buffer.chunks_exact(ENTRY_BYTES).map(IndexEntry::from_bytes));
    }
    for start in (0..rows).step_by(ROWS_AT_ONCE) {
        buffer.resize(ROWS_AT_ONCE.min(rows - start) * PLACE_BYTES, 0);
        reader.read_exact(&mut buffer).map_err(damaged)?;
        hash.update(&buffer);
        let inside = |(entry, bytes): (&IndexEntry, &[u8])| {
            let end = RowPlace::from_bytes(bytes).tokens_at.checked_add(u64::from(entry.tokens));
            end.is_some_and(|end| end <= header.tokens)
        };
        if !entries[start..].iter().zip(buffer.chunks_exact(PLACE_BYTES)).all(inside) {
            return Err(IndexError::Damaged);
        }
    }
    buffer.clear();
    reader.take(header.symbols_bytes).read_to_end(&mut buffer).map_err(damaged)?;
    hash.update(&buffer);
    if hash.digest() != header.body_hash {
        return Err(IndexError::Damaged);
    }
    let (symbols, languages): (Vec<String>, Vec<String>) =
        serde_json::from_slice(&buffer).map_err(|_| IndexError::Damaged)?;
    if symbols.len() > usize::from(u16::MAX) + 1 {
        return Err(IndexError::Damaged);
    }
    Ok(IndexFile { entries, symbols, languages, tokens: header.tokens, tokens_hash: header.tokens_hash })
}

/// A file whose content is hashed while it is written.
struct Hashed {
    file: BufWriter<tempfile::NamedTempFile>,
    hash: Xxh3,
}

impl Hashed {
    fn new(file: tempfile::NamedTempFile) -> Hashed {
        Hashed { file: BufWriter::with_capacity(1 << 18, file), hash: Xxh3::new() }
    }

    fn finish(self) -> io::Result<(tempfile::NamedTempFile, u64)> {
        Ok((self.file.into_inner().map_err(|error| error.into_error())?, self.hash.digest()))
    }
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
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
        let entry =
            IndexEntry { samples: 1000 * (row + 1), start: row, rate: 22_050, speaker: 3, ..IndexEntry::default() };
        let entry = entry.with(2, true);
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
        let dir = tempfile::tempdir().expect("a folder");
        let index = known.update(dir.path(), rows, identify, measure, progress, &AtomicBool::new(false));
        assert_eq!(done.into_inner(), rows, "every row is heard of");
        assert!(calls.into_inner() as usize > index.measured, "clip by clip");
        index
    }

    fn usual(row: u32) -> u64 {
        (u64::from(row) + 1) * 7
    }

    fn symbols(index: &Index, row: usize) -> Vec<&str> {
        let mut tokens = Vec::new();
        index.read_tokens(row as u32, &mut tokens).expect("there");
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

    #[test]
    fn an_entry_is_twenty_bytes_and_keeps_what_it_is_told() {
        assert_eq!(size_of::<IndexEntry>(), ENTRY_BYTES, "SPEC I5: at most 64 bytes a row, of which this is one part");
        for (channels, letters, wanted) in [(2, true, 2), (1, false, 1), (500, true, 127), (0, false, 0)] {
            let entry = IndexEntry { samples: 7, ..IndexEntry::default() }.with(channels, letters);
            let entry = IndexEntry::from_bytes(&entry.to_bytes());
            assert_eq!((entry.samples, entry.channels(), entry.has_other_letters()), (7, wanted, letters));
        }
    }

    #[test]
    fn ids_that_are_there_twice_are_found_in_the_order_of_the_rows() {
        let identify = |row: u32| Ok((u64::from(row % 15), usual(row)));
        let measure = |rows: &[u32], _: &dyn Fn()| rows.iter().map(|&row| Ok(measured(row))).collect();
        let dir = tempfile::tempdir().expect("a folder");
        let index = Index::default().update(dir.path(), 19, identify, measure, |_| {}, &AtomicBool::new(false));
        assert_eq!(index.duplicates(), [(15, 0), (16, 1), (17, 2), (18, 3)]);
        assert_eq!(update(Index::default(), 19, usual).duplicates(), []);
    }

    #[test]
    fn tokens_of_texts_that_are_gone_do_not_stay_for_ever() {
        let dir = tempfile::tempdir().expect("a folder");
        let length = || std::fs::metadata(tokens_path(dir.path(), 1)).expect("there").len();
        update(Index::default(), 19, usual).save(dir.path(), 1).expect("writable");
        let first = length();
        let rounds: [fn(u32) -> u64; 4] = [|row| u64::from(row) + 100, usual, |row| u64::from(row) + 200, usual];
        for identity in rounds {
            let mut changed = update(Index::open(dir.path(), 1), 19, identity);
            assert_eq!((changed.measured, symbols(&changed, 4)), (19, vec!["a", "b", "<4>"]), "before it is saved");
            changed.save(dir.path(), 1).expect("writable");
            assert_eq!(symbols(&changed, 4), ["a", "b", "<4>"], "and after");
            assert!(length() <= 2 * first, "{} of {first}", length());
        }
        assert_eq!(update(Index::open(dir.path(), 1), 19, usual).measured, 0);
    }
}
