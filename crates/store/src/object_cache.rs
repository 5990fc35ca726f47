//! What was read of buckets, on the local disk, up to a number of bytes for all processes together. Entries are checked when they are
//! used, appear by a rename, and the ones that were used longest ago make room.
//!
//! ```text
//! objects/total         how many bytes there are; locked while it is changed
//! objects/xx/yyyy…      header (magic, key, checksum of the body), body
//! ```

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tandem_data::MetadataError;
use tandem_data::files::{FORGOTTEN, remove_leftovers};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

const MAGIC: &[u8; 8] = b"TNDMOBJ1";
const HEADER_BYTES: usize = 40;
/// What sets the limit.
const VARIABLE: &str = "TANDEM_BUCKET_CACHE";
/// Unless something else is said: some two hundred hours of 22 kHz speech.
const DEFAULT_LIMIT: u64 = 20_000_000_000;
/// An entry that is used again is marked so, at most this often.
const MARKED: Duration = Duration::from_secs(60);
/// Making room makes some more than is needed, so that it is not looked for at every entry.
const SPARE: u64 = 16;

/// Entries of one directory, which other processes use as well.
#[derive(Debug)]
pub(crate) struct ObjectCache {
    dir: PathBuf,
    limit_bytes: u64,
}

impl ObjectCache {
    /// The cache in a directory, as large as the environment says.
    pub(crate) fn open(dir: &Path) -> Result<ObjectCache, MetadataError> {
        let limit_bytes = match std::env::var(VARIABLE) {
            Ok(size) => parse_size(&size).ok_or(MetadataError::BucketCache(size))?,
            Err(_) => DEFAULT_LIMIT,
        };
        Ok(ObjectCache::new(dir, limit_bytes))
    }

    fn new(dir: &Path, limit_bytes: u64) -> ObjectCache {
        ObjectCache { dir: dir.to_owned(), limit_bytes }
    }

    /// The key of what a text names.
    pub(crate) fn key(&self, name: &str) -> u128 {
        xxh3_128(name.as_bytes())
    }

    fn path(&self, key: u128) -> PathBuf {
        let name = format!("{key:032x}");
        self.dir.join(&name[..2]).join(&name[2..])
    }

    /// An entry, if it is there and every byte is as it was written.
    pub(crate) fn load(&self, key: u128) -> Option<Vec<u8>> {
        let path = self.path(key);
        let mut file = File::open(&path).ok()?;
        let (mut header, mut body) = ([0; HEADER_BYTES], Vec::new());
        let read = file.read_exact(&mut header).and_then(|()| file.read_to_end(&mut body));
        if read.is_err() || header != header_of(key, &body) {
            let _ = fs::remove_file(&path);
            return None;
        }
        let used = file.metadata().and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::now());
        if used.elapsed().is_ok_and(|age| age > MARKED) {
            let _ = File::options().write(true).open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        }
        Some(body)
    }

    /// Keeps an entry, if it may. One that cannot be kept is read again, which is slower, not wrong.
    pub(crate) fn store(&self, key: u128, body: &[u8]) {
        let bytes = (HEADER_BYTES + body.len()) as u64;
        if bytes <= self.limit_bytes && self.make_room(bytes).is_ok() {
            let _ = self.write(key, body);
        }
    }

    fn write(&self, key: u128, body: &[u8]) -> io::Result<()> {
        let path = self.path(key);
        let dir = path.parent().unwrap_or(&self.dir);
        fs::create_dir_all(dir)?;
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.write_all(&header_of(key, body))?;
        file.write_all(body)?;
        file.persist(&path).map_err(|error| error.error)?;
        Ok(())
    }

    /// Counts bytes in before they are written, for all processes: what is killed in between counts too much, never too little, until
    /// the next time room is made.
    fn make_room(&self, bytes: u64) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let path = self.dir.join("total");
        let mut file = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
        file.lock()?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let known: Option<u64> = text.trim().parse().ok();
        let total = match known {
            Some(total) if total + bytes <= self.limit_bytes => total,
            _ => self.evict(self.limit_bytes - bytes),
        };
        file.rewind()?;
        // As wide as any number, so that a shorter one leaves nothing of a longer one behind.
        write!(file, "{:20}", total + bytes)
    }

    /// Removes what was used longest ago until at most so many bytes are left, and some more; how many are.
    fn evict(&self, most: u64) -> u64 {
        let mut entries = Vec::new();
        for part in fs::read_dir(&self.dir).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
            remove_leftovers(&part.path(), FORGOTTEN);
            for entry in fs::read_dir(part.path()).into_iter().flatten().flatten() {
                let Ok(metadata) = entry.metadata() else { continue };
                entries.push((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), metadata.len(), entry.path()));
            }
        }
        entries.sort_unstable();
        let mut total: u64 = entries.iter().map(|(_, bytes, _)| bytes).sum();
        if total <= most {
            return total;
        }
        let wanted = most - most.min(self.limit_bytes / SPARE);
        for (_, bytes, path) in entries {
            if total <= wanted {
                break;
            }
            if fs::remove_file(path).is_ok() {
                total -= bytes;
            }
        }
        total
    }
}

/// What stands before an entry.
fn header_of(key: u128, body: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..24].copy_from_slice(&key.to_le_bytes());
    header[24..32].copy_from_slice(&(body.len() as u64).to_le_bytes());
    header[32..].copy_from_slice(&xxh3_64(body).to_le_bytes());
    header
}

/// `20GB`, `500MB`, `0` or a number of bytes.
fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let letters = text.trim_start_matches(|letter: char| letter.is_ascii_digit()).trim();
    let number: u64 = text[..text.len() - letters.len()].trim().parse().ok()?;
    let unit = match letters.to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(dir: &Path) -> u64 {
        let parts = fs::read_dir(dir).expect("there").flatten().filter(|part| part.path().is_dir());
        parts
            .flat_map(|part| fs::read_dir(part.path()).expect("there").flatten())
            .map(|entry| entry.metadata().map_or(0, |metadata| metadata.len()))
            .sum()
    }

    #[test]
    fn a_damaged_entry_is_noticed_at_every_byte_and_read_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = ObjectCache::new(dir.path(), 1 << 20);
        let key = cache.key("a");
        assert_eq!(cache.load(key), None);
        cache.store(key, b"hello");
        assert_eq!(cache.load(key).as_deref(), Some(&b"hello"[..]));
        let whole = fs::read(cache.path(key)).expect("written");
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            for bytes in [&damaged[..], &whole[..at]] {
                fs::write(cache.path(key), bytes).expect("writable");
                assert_eq!(cache.load(key), None, "byte {at}");
                assert!(!cache.path(key).exists(), "and it does not stay");
            }
        }
        fs::write(cache.path(cache.key("b")).with_file_name("x"), &whole).ok();
        assert_eq!(cache.load(cache.key("b")), None);
    }

    #[test]
    fn it_never_has_more_bytes_than_it_may_and_keeps_what_was_used_last() {
        let dir = tempfile::tempdir().expect("a folder");
        let limit = 10 * (HEADER_BYTES as u64 + 100);
        // Two that do not know of each other, as two processes do.
        let caches = [ObjectCache::new(dir.path(), limit), ObjectCache::new(dir.path(), limit)];
        for n in 0..50u8 {
            let cache = &caches[usize::from(n % 2)];
            let key = cache.key(&n.to_string());
            cache.store(key, &[n; 100]);
            // Files of one moment have one date; here each is a second younger than the one before.
            let date = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 + u64::from(n));
            let file = File::options().write(true).open(cache.path(key)).expect("written");
            file.set_modified(date).expect("writable");
            assert!(bytes_of(dir.path()) <= limit, "after {n}");
        }
        assert_eq!(caches[0].load(caches[0].key("49")), Some(vec![49; 100]), "the last one is there");
        assert_eq!(caches[0].load(caches[0].key("3")), None, "an old one is not");
        caches[0].store(caches[0].key("large"), &vec![1; limit as usize]);
        assert_eq!(caches[0].load(caches[0].key("large")), None, "what is larger than all of it is not kept");
        assert!(caches[0].load(caches[0].key("49")).is_some(), "and nothing had to go for it");
    }

    #[test]
    fn a_count_that_a_kill_left_wrong_is_corrected() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = ObjectCache::new(dir.path(), 1000);
        for wrong in ["999", "", "nonsense"] {
            fs::write(dir.path().join("total"), wrong).expect("writable");
            cache.store(cache.key(wrong), &[1; 10]);
            assert!(cache.load(cache.key(wrong)).is_some(), "{wrong}");
        }
        let total = fs::read_to_string(dir.path().join("total")).expect("there");
        assert_eq!(total.trim().parse::<u64>().ok(), Some(bytes_of(dir.path())));
    }

    #[test]
    fn sizes_are_written_as_people_write_them() {
        for (text, wanted) in [
            ("0", Some(0)),
            ("500MB", Some(500_000_000)),
            ("20 GB", Some(20_000_000_000)),
            ("1tb", Some(1_000_000_000_000)),
            ("17", Some(17)),
            ("much", None),
            ("-1", None),
            ("5XB", None),
            ("99999999999999TB", None),
        ] {
            assert_eq!(parse_size(text), wanted, "{text}");
        }
    }
}
