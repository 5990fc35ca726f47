//! Finished features, in memory or on disk.
//!
//! An entry is keyed by the identity of the clip's audio (name, size and date of a file), the audio settings (features, trimming, loudness) and this format's version, and it is
//! checked before it is used: what does not match or is damaged is made again. Entries appear whole (a file is written
//! under another name and renamed), so two runs may share a cache. The cache has a limit; when it is reached, entries of
//! other settings go first; then what is inside stays and the rest is computed each time: an epoch visits every clip
//! once, so throwing out the oldest would throw out exactly what comes next.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tandem_audio::{MelSettings, MelStats, Processing};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::files::{FORGOTTEN, remove_leftovers};

const MAGIC: &[u8; 8] = b"TNDMMEL1";
const HEADER_BYTES: usize = 48;
/// Changing how keys are made changes this.
const KEY_VERSION: u32 = 2;

/// Where features are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheMode {
    /// Nowhere.
    Off,
    /// In memory, for this run.
    Ram,
    /// On disk, for this run and others.
    Disk,
}

/// What the cache did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheStats {
    /// Entries used.
    pub hits: u64,
    /// Entries that were not there.
    pub misses: u64,
    /// Entries that were there, but damaged or of something else; they were made again.
    pub rebuilt: u64,
    /// Entries written.
    pub stored: u64,
    /// Entries not written because the cache is full.
    pub full: u64,
    /// Entries not written because writing failed (the disk is full, say).
    pub failed: u64,
    /// Bytes in it.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    rebuilt: AtomicU64,
    stored: AtomicU64,
    full: AtomicU64,
    failed: AtomicU64,
}

/// What became of an entry that was to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It is there.
    Stored,
    /// There was no room.
    Full,
    /// It could not be written.
    Failed,
}

/// A clip's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(u128);

/// Features of clips, from [`Corpus::cache`](crate::Corpus::cache). Shared by all workers.
#[derive(Debug)]
pub struct Cache {
    mode: CacheMode,
    /// Entries of all settings, each in a folder of its own.
    root: PathBuf,
    dir: PathBuf,
    limit_bytes: u64,
    settings: String,
    memory: Mutex<HashMap<Key, Arc<[f32]>>>,
    /// Bytes in it. Room is made under this lock, so that nothing is counted twice.
    bytes: Mutex<u64>,
    counters: Counters,
}

impl Cache {
    /// A cache of features made with these settings; on disk below `dir`.
    pub(crate) fn new(
        mode: CacheMode,
        dir: &Path,
        limit_bytes: u64,
        settings: &MelSettings,
        processing: &Processing,
    ) -> Cache {
        let mut settings = format!("{} {KEY_VERSION}", serde_json::to_string(settings).expect("plain data"));
        if !processing.is_off() {
            settings += &serde_json::to_string(processing).expect("plain data");
        }
        let root = dir.join("mel");
        let dir = root.join(format!("{:016x}", xxh3_64(settings.as_bytes())));
        let mut bytes = 0;
        if mode == CacheMode::Disk {
            // A young one may belong to a run that is at work.
            entries(&dir).for_each(|part| remove_leftovers(&part.path(), FORGOTTEN));
            bytes = size_of_dir(&root);
        }
        let (bytes, counters) = (Mutex::new(bytes), Counters::default());
        Cache { mode, root, dir, limit_bytes, settings, memory: Mutex::default(), bytes, counters }
    }

    /// Where features are kept.
    pub fn mode(&self) -> CacheMode {
        self.mode
    }

    /// The same place for samples instead of log-mel: other keys, another folder.
    pub(crate) fn of_signals(mut self) -> Cache {
        self.settings += " signal";
        self.dir = self.root.join(format!("{:016x}", xxh3_64(self.settings.as_bytes())));
        self
    }

    /// What it did so far.
    pub fn stats(&self) -> CacheStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheStats {
            hits: get(&self.counters.hits),
            misses: get(&self.counters.misses),
            rebuilt: get(&self.counters.rebuilt),
            stored: get(&self.counters.stored),
            full: get(&self.counters.full),
            failed: get(&self.counters.failed),
            bytes: *self.bytes.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// The key of a clip's audio as it is now ([`Source::identity`](crate::Source::identity)).
    pub(crate) fn key(&self, identity: u64) -> Key {
        let mut text = Vec::with_capacity(256);
        text.extend_from_slice(MAGIC);
        text.extend_from_slice(&identity.to_le_bytes());
        text.extend_from_slice(self.settings.as_bytes());
        Key(xxh3_128(&text))
    }

    /// The key of the pitch of a clip whose features have this key.
    pub(crate) fn pitch_key(key: Key) -> Key {
        Key(xxh3_128(&[&key.0.to_le_bytes()[..], b"pitch"].concat()))
    }

    /// Writes an entry of log-mel, normalized, as `[frames][bands]` to `out`. Returns whether it was there. `bytes` and
    /// `values` are scratch space.
    pub(crate) fn load_frames(
        &self,
        key: Key,
        (bands, frames): (usize, usize),
        stats: &MelStats,
        out: &mut [f32],
        bytes: &mut Vec<u8>,
        values: &mut Vec<f32>,
    ) -> bool {
        if self.mode == CacheMode::Ram {
            let entry = self.lock().get(&key).cloned().filter(|values| values.len() == bands * frames);
            count(if entry.is_some() { &self.counters.hits } else { &self.counters.misses });
            return entry.map(|values| stats.normalize(&values, frames, frames, out)).is_some();
        }
        values.resize(bands * frames, 0.0);
        let found = self.load(key, bands, frames, values, frames, bytes);
        if found {
            stats.normalize(values, frames, frames, out);
        }
        found
    }

    /// Copies an entry of `rows` rows of `frames` values to `out`, row `r` to `r * stride`. Returns whether it was
    /// there. `buffer` is scratch space.
    pub(crate) fn load(
        &self,
        key: Key,
        rows: usize,
        frames: usize,
        out: &mut [f32],
        stride: usize,
        buffer: &mut Vec<u8>,
    ) -> bool {
        let found = self.find(key, rows, frames, out, stride, buffer);
        count(if found { &self.counters.hits } else { &self.counters.misses });
        found
    }

    /// [`Cache::load`], not counted: for what belongs to an entry that is.
    pub(crate) fn find(
        &self,
        key: Key,
        rows: usize,
        frames: usize,
        out: &mut [f32],
        stride: usize,
        buffer: &mut Vec<u8>,
    ) -> bool {
        let found = match self.mode {
            CacheMode::Off => return false,
            CacheMode::Ram => {
                let entry = self.lock().get(&key).cloned();
                entry.filter(|values| values.len() == rows * frames).map(|values| {
                    for (row, values) in values.chunks_exact(frames).enumerate() {
                        out[row * stride..row * stride + frames].copy_from_slice(values);
                    }
                })
            }
            CacheMode::Disk => match self.read(key, buffer) {
                Err(_) => None,
                Ok(()) => match read_cache_entry(buffer, Some(key.0)) {
                    Some((there_rows, there_frames, body)) if (there_rows, there_frames) == (rows, frames) => {
                        for (row, values) in body.chunks_exact(4 * frames).enumerate() {
                            let out = &mut out[row * stride..row * stride + frames];
                            for (value, bytes) in out.iter_mut().zip(values.chunks_exact(4)) {
                                *value = f32::from_le_bytes(bytes.try_into().expect("four bytes"));
                            }
                        }
                        Some(())
                    }
                    _ => {
                        count(&self.counters.rebuilt);
                        None
                    }
                },
            },
        };
        found.is_some()
    }

    /// Keeps an entry, if there is room.
    pub(crate) fn store(&self, key: Key, rows: usize, frames: usize, values: &[f32], stride: usize) {
        if self.mode != CacheMode::Off {
            count(match self.keep(key, rows, frames, values, stride) {
                Kept::Stored => &self.counters.stored,
                Kept::Full => &self.counters.full,
                Kept::Failed => &self.counters.failed,
            });
        }
    }

    /// [`Cache::store`], not counted: for what belongs to an entry that is.
    pub(crate) fn keep(&self, key: Key, rows: usize, frames: usize, values: &[f32], stride: usize) -> Kept {
        let bytes = (HEADER_BYTES + 4 * rows * frames) as u64;
        if !self.make_room(key, bytes) {
            return Kept::Full;
        }
        let row = |row: usize| &values[row * stride..row * stride + frames];
        match self.mode {
            CacheMode::Off => Kept::Full,
            CacheMode::Ram => {
                let values: Vec<f32> = (0..rows).flat_map(row).copied().collect();
                self.lock().insert(key, values.into());
                Kept::Stored
            }
            CacheMode::Disk => {
                let mut body = Vec::with_capacity(4 * rows * frames);
                for value in (0..rows).flat_map(row) {
                    body.extend_from_slice(&value.to_le_bytes());
                }
                match self.write(key, rows, frames, &body) {
                    Ok(()) => Kept::Stored,
                    // A cache that cannot be written is slower, not wrong.
                    Err(_) => {
                        let mut used = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
                        *used = used.saturating_sub(bytes);
                        Kept::Failed
                    }
                }
            }
        }
    }

    /// Whether an entry of this name is there (it is checked only when it is used).
    pub(crate) fn has(&self, key: Key) -> bool {
        match self.mode {
            CacheMode::Off => false,
            CacheMode::Ram => self.lock().contains_key(&key),
            CacheMode::Disk => self.path(key).is_file(),
        }
    }

    /// Counts an entry in, if it fits; entries of other settings, which can be made again, go first.
    fn make_room(&self, key: Key, bytes: u64) -> bool {
        let mut used = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if self.mode == CacheMode::Disk {
            let replaced = std::fs::metadata(self.path(key)).map_or(0, |damaged| damaged.len());
            *used = used.saturating_sub(replaced);
            if *used + bytes > self.limit_bytes {
                for other in entries(&self.root).map(|other| other.path()).filter(|path| *path != self.dir) {
                    let size = size_of_settings(&other);
                    if std::fs::remove_dir_all(&other).is_ok() {
                        *used = used.saturating_sub(size);
                    }
                }
            }
        }
        let fits = *used + bytes <= self.limit_bytes;
        *used += if fits { bytes } else { 0 };
        fits
    }

    fn path(&self, key: Key) -> PathBuf {
        let name = format!("{:032x}", key.0);
        self.dir.join(&name[..2]).join(&name[2..])
    }

    fn read(&self, key: Key, buffer: &mut Vec<u8>) -> io::Result<()> {
        let mut file = std::fs::File::open(self.path(key))?;
        buffer.clear();
        file.read_to_end(buffer)?;
        Ok(())
    }

    fn write(&self, key: Key, rows: usize, frames: usize, body: &[u8]) -> io::Result<()> {
        let path = self.path(key);
        let dir = path.parent().expect("it has one");
        std::fs::create_dir_all(dir)?;
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        let mut header = [0u8; HEADER_BYTES];
        header[..8].copy_from_slice(MAGIC);
        header[8..24].copy_from_slice(&key.0.to_le_bytes());
        header[24..28].copy_from_slice(&(rows as u32).to_le_bytes());
        header[28..32].copy_from_slice(&(frames as u32).to_le_bytes());
        header[32..40].copy_from_slice(&xxh3_64(body).to_le_bytes());
        let check = xxh3_64(&header[..40]);
        header[40..48].copy_from_slice(&check.to_le_bytes());
        file.write_all(&header)?;
        file.write_all(body)?;
        file.persist(&path).map_err(|error| error.error)?;
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Arc<[f32]>>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Rows, frames and values (little-endian `f32`) of an entry; `None` unless every byte is as it was written, and under
/// this key if one is given. Public for the fuzzer.
pub fn read_cache_entry(bytes: &[u8], key: Option<u128>) -> Option<(usize, usize, &[u8])> {
    let (header, body) = bytes.split_at_checked(HEADER_BYTES)?;
    let u64_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let u32_at = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes")) as usize;
    if &header[..8] != MAGIC || u64_at(40) != xxh3_64(&header[..40]) {
        return None;
    }
    if key.is_some_and(|key| key.to_le_bytes() != header[8..24]) {
        return None;
    }
    let (rows, frames) = (u32_at(24), u32_at(28));
    let length = rows.checked_mul(frames)?.checked_mul(4)?;
    (body.len() == length && frames > 0 && u64_at(32) == xxh3_64(body)).then_some((rows, frames, body))
}

fn entries(dir: &Path) -> impl Iterator<Item = std::fs::DirEntry> + use<> {
    std::fs::read_dir(dir).into_iter().flatten().flatten()
}

fn size_of_dir(root: &Path) -> u64 {
    entries(root).map(|settings| size_of_settings(&settings.path())).sum()
}

fn size_of_settings(dir: &Path) -> u64 {
    entries(dir)
        .flat_map(|part| entries(&part.path()))
        .filter_map(|entry| entry.metadata().ok())
        .map(|metadata| metadata.len())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The identity of some clip's audio.
    const CLIP: u64 = 5;

    fn values() -> Vec<f32> {
        (0..12).map(|n| n as f32 * 0.5 - 2.0).collect()
    }

    /// Loads a 3 x 4 entry into a wider batch.
    fn load(cache: &Cache, key: Key) -> Option<Vec<f32>> {
        let mut out = vec![9.0; 3 * 6];
        cache.load(key, 3, 4, &mut out, 6, &mut Vec::new()).then(|| {
            assert!((0..3).all(|row| out[row * 6 + 4..row * 6 + 6] == [9.0, 9.0]), "what is beside it is untouched");
            (0..3).flat_map(|row| out[row * 6..row * 6 + 4].to_vec()).collect()
        })
    }

    #[test]
    fn what_is_stored_is_loaded_and_other_settings_or_files_are_not() {
        for mode in [CacheMode::Ram, CacheMode::Disk] {
            let dir = tempfile::tempdir().expect("a folder");
            let settings = MelSettings::default();
            let of =
                |mel: &MelSettings, processing: &Processing| Cache::new(mode, dir.path(), 1 << 20, mel, processing);
            let (as_is, mel) = (Processing::default(), MelSettings { n_mels: 64, ..settings.clone() });
            let cache = of(&settings, &as_is);
            let key = cache.key(CLIP);
            assert_eq!(load(&cache, key), None);
            cache.store(key, 3, 4, &values(), 4);
            assert_eq!(load(&cache, key), Some(values()));
            let trimmed = Processing { trim_silence: true, ..as_is };
            let louder = |db| Processing { loudness_db: Some(db), ..as_is };
            let others = [
                of(&mel, &as_is),
                of(&settings, &trimmed),
                of(&settings, &louder(-20.0)),
                of(&settings, &louder(-23.0)),
            ];
            let mut keys: Vec<u128> = others.iter().map(|other| other.key(CLIP).0).chain([key.0]).collect();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), 5, "other settings");
            assert!(others.iter().all(|other| load(other, other.key(CLIP)).is_none()));
            assert_ne!(cache.key(6), key, "another file");
            assert_eq!((cache.stats().hits, cache.stats().misses, cache.stats().stored), (1, 1, 1));
        }
    }

    #[test]
    fn a_damaged_entry_is_noticed_at_every_byte_and_rebuilt() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::new(CacheMode::Disk, dir.path(), 1 << 20, &MelSettings::default(), &Processing::default());
        let key = cache.key(CLIP);
        cache.store(key, 3, 4, &values(), 4);
        let path = cache.path(key);
        let bytes = std::fs::read(&path).expect("written");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            std::fs::write(&path, &damaged).expect("writable");
            assert_eq!(load(&cache, key), None, "byte {at}");
            std::fs::write(&path, &bytes[..at]).expect("writable");
            assert_eq!(load(&cache, key), None, "cut at {at}");
        }
        assert_eq!(cache.stats().rebuilt, 2 * bytes.len() as u64);
        cache.store(key, 3, 4, &values(), 4);
        assert_eq!(load(&cache, key), Some(values()));
    }

    #[test]
    fn entries_of_other_settings_make_room() {
        let dir = tempfile::tempdir().expect("a folder");
        let with = |n_mels| {
            let mel = MelSettings { n_mels, ..MelSettings::default() };
            Cache::new(CacheMode::Disk, dir.path(), 150, &mel, &Processing::default())
        };
        let old = with(64);
        old.store(old.key(CLIP), 3, 4, &values(), 4);
        let new = with(80);
        let key = new.key(CLIP);
        new.store(key, 3, 4, &values(), 4);
        assert_eq!((load(&new, key), new.stats().full), (Some(values()), 0));
        assert_eq!(load(&old, old.key(CLIP)), None, "gone, and only slower for it");
    }

    #[test]
    fn a_full_cache_keeps_what_it_has() {
        let dir = tempfile::tempdir().expect("a folder");
        for mode in [CacheMode::Ram, CacheMode::Disk] {
            let cache = Cache::new(mode, dir.path(), 150, &MelSettings::default(), &Processing::default());
            let (first, second) = (cache.key(CLIP), Key(7));
            cache.store(first, 3, 4, &values(), 4);
            cache.store(second, 3, 4, &values(), 4);
            assert!(load(&cache, first).is_some() && load(&cache, second).is_none());
            assert_eq!((cache.stats().stored, cache.stats().full), (1, 1));
            assert!(cache.stats().bytes <= 150);
        }
    }
}
