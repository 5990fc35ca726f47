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
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `entry.rs` | [`IndexEntry`]: what is kept of a row in memory, and what is read when its clip is |
//! | `stored.rs` | places and tokens, in files |
//! | `format.rs` | the files: header, checksums, reading |
//! | `update.rs` | [`Index::update`]: what changed is measured, by all cores |

mod entry;
mod format;
mod stored;
mod update;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::fault::ClipFault;
use crate::files::{FORGOTTEN, remove_leftovers};

use entry::ENTRY_BYTES;
pub use entry::IndexEntry;
use entry::RowPlace;
use format::{HEADER_BYTES, Hashed, Header, MAGIC, index_path, read_index, tokens_path};
pub use format::{IndexError, IndexFile};
use stored::{FRESH, Places, Stored, Tokens};
pub(crate) use update::Measured;

/// Rows that are read or written at once.
const ROWS_AT_ONCE: usize = 1 << 12;
/// Bytes of tokens that are read at once where texts follow each other.
const TOKENS_AT_ONCE: usize = 1 << 16;

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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

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
