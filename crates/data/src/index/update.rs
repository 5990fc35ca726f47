//! [`Index::update`]: the rows that changed are measured, by all cores, and the others keep what was known of them.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::entry::{IndexEntry, PLACE_BYTES, RowPlace};
use super::stored::{FRESH, Places, Stored, Tokens};
use super::{Index, ROWS_AT_ONCE};
use crate::fault::ClipFault;

/// Rows that a thread measures at once. Enough that starting the program that makes their phonemes costs little, and few enough that their
/// symbols, each a string until it is numbered, are a megabyte a thread.
const PART_ROWS: u32 = 1 << 8;

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
        let work = || {
            loop {
                let start = next.fetch_add(PART_ROWS, Ordering::Relaxed);
                if start >= rows || stop.load(Ordering::Relaxed) {
                    return;
                }
                let end = rows.min(start + PART_ROWS);
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
        let threads = threads.min(rows.div_ceil(PART_ROWS) as usize);
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
            true => with_the_rest(places, &written, rows, same_rows.then_some(&known_places)),
        };
        Index { entries, places, symbols, languages, tokens, faults, measured, changed }
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
fn with_the_rest(mut places: Stored, written: &HashSet<u32>, rows: u32, known: Option<&Places>) -> Places {
    for start in (0..rows).step_by(PART_ROWS as usize).filter(|start| !written.contains(start)) {
        let part = start..rows.min(start + PART_ROWS);
        let none = || vec![RowPlace::default(); part.len()];
        let there = known.and_then(|known| known.read(part.clone()).ok()).unwrap_or_else(none);
        let bytes: Vec<u8> = there.iter().flat_map(|place| place.to_bytes()).collect();
        places.write_at(&bytes, u64::from(start) * PLACE_BYTES as u64);
    }
    Places { stored: places, from: 0 }
}
