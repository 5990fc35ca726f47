//! The directory that stands for a bucket. Lists and texts are copies; audio, shards and parquet files are stand-ins: sparse files with
//! the size of the object and a date that changes with it. Opening a bucket again costs its list and nothing else, and whatever was
//! changed or removed there is changed or removed here.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Component, Path};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use tandem_data::files::{FORGOTTEN, remove_leftovers};
use tandem_data::{MetadataError, RemoteError};
use xxhash_rust::xxh3::xxh3_64;

use crate::bucket::Bucket;

/// What lists and texts end with.
const COPIED: [&str; 6] = ["csv", "tsv", "txt", "json", "jsonl", "text"];
/// What is read where it lies.
const STOOD_FOR: [&str; 6] = ["wav", "flac", "mp3", "ogg", "tar", "parquet"];
/// Compressed shards are refused by their name.
const COMPRESSED: [&str; 5] = [".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2"];
/// Bytes of a list that are asked for at once.
const PART: u64 = 8 << 20;

/// A file of the bucket.
struct Entry {
    name: String,
    bytes: u64,
    date: SystemTime,
}

/// Makes the directory what the bucket is.
pub(crate) fn update(bucket: &Bucket, dir: &Path) -> Result<(), MetadataError> {
    let fail = |error| MetadataError::Io(dir.to_owned(), error);
    fs::create_dir_all(dir).map_err(fail)?;
    remove_leftovers(dir, FORGOTTEN);
    let entries = match bucket.can_list {
        true => listed(bucket)?,
        false => packed(bucket, dir)?,
    };
    for entry in &entries {
        put(bucket, dir, entry).map_err(|error| match error.downcast::<RemoteError>() {
            Ok(error) => MetadataError::Remote(error),
            Err(error) => fail(error),
        })?;
    }
    let names: HashSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    remove_others(dir, dir, &names);
    Ok(())
}

/// The files of a bucket that matter.
fn listed(bucket: &Bucket) -> Result<Vec<Entry>, MetadataError> {
    let objects = bucket.list().map_err(MetadataError::Remote)?;
    let entries = objects.into_iter().filter(|(name, _)| is_plain(name) && (is_copied(name) || is_stood_for(name)));
    let entry = |(name, object): (String, object_store::ObjectMeta)| {
        let seconds = u64::try_from(object.last_modified.timestamp()).unwrap_or(0);
        let tag = object.e_tag.unwrap_or_default();
        Entry { name, bytes: object.size, date: date(seconds, &tag) }
    };
    Ok(entries.map(entry).collect())
}

/// What a web server has, by the indexes that `pack` wrote: it cannot list.
fn packed(bucket: &Bucket, dir: &Path) -> Result<Vec<Entry>, MetadataError> {
    #[derive(Deserialize)]
    struct Header {
        shards: Vec<Shard>,
    }
    #[derive(Deserialize)]
    struct Shard {
        name: String,
        bytes: u64,
    }
    let mut entries = Vec::new();
    for name in ["index.jsonl", "index-validation.jsonl"] {
        let index = match bucket.get(&(name.to_owned(), None)) {
            Ok(index) => index,
            Err(error) if error.is_missing() && name != "index.jsonl" => continue,
            Err(error) if error.is_missing() => {
                return Err(MetadataError::NoPackedIndex(tandem_data::Remote::url(bucket).to_owned()));
            }
            Err(error) => return Err(MetadataError::Remote(error)),
        };
        let line = index.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let Ok(header) = serde_json::from_slice::<Header>(line) else {
            return Err(MetadataError::NoPackedIndex(tandem_data::Remote::url(bucket).to_owned()));
        };
        // A packed index has the checksums of all clips: its own hash is the version of everything.
        let version = format!("{:016x}", xxh3_64(&index));
        let shards = header.shards.into_iter().filter(|shard| is_plain(&shard.name) && is_stood_for(&shard.name));
        entries.extend(shards.map(|shard| Entry { name: shard.name, bytes: shard.bytes, date: date(1, &version) }));
        let entry = Entry { name: name.to_owned(), bytes: index.len() as u64, date: date(1, &version) };
        write(&dir.join(name), &entry, |file| file.write_all(&index))
            .map_err(|error| MetadataError::Io(dir.join(name), error))?;
        entries.push(entry);
    }
    Ok(entries)
}

/// Writes a copy or a stand-in, unless it is there.
fn put(bucket: &Bucket, dir: &Path, entry: &Entry) -> io::Result<()> {
    let path = dir.join(&entry.name);
    let is_same = |there: &fs::Metadata| there.len() == entry.bytes && there.modified().ok() == Some(entry.date);
    if path.metadata().as_ref().is_ok_and(is_same) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    write(&path, entry, |file| {
        if !is_copied(&entry.name) {
            return file.set_len(entry.bytes);
        }
        let mut at = 0;
        while at < entry.bytes {
            let range = at..entry.bytes.min(at + PART);
            at = range.end;
            file.write_all(&bucket.get(&(entry.name.clone(), Some(range))).map_err(io::Error::other)?)?;
        }
        Ok(())
    })
}

/// A file that is there whole, with its date, or not at all.
fn write(path: &Path, entry: &Entry, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    fill(file.as_file_mut())?;
    file.as_file().set_modified(entry.date)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Removes what the bucket does not have any more.
fn remove_others(top: &Path, dir: &Path, names: &HashSet<&str>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            remove_others(top, &path, names);
            let _ = fs::remove_dir(&path); // an empty one
        } else if path.strip_prefix(top).ok().and_then(Path::to_str).is_some_and(|name| !names.contains(name)) {
            // One that is being written belongs to another process.
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".tmp");
            if !hidden {
                let _ = fs::remove_file(&path);
            }
        }
    }
}

/// The date of a stand-in: that of the object, and below the second a number that changes with its tag.
fn date(seconds: u64, tag: &str) -> SystemTime {
    let nanoseconds = (xxh3_64(tag.as_bytes()) % 1_000_000_000) as u32;
    UNIX_EPOCH + Duration::new(seconds, nanoseconds)
}

/// A name that stays inside the directory, and is no marker of a folder.
fn is_plain(name: &str) -> bool {
    let normal = |component: Component<'_>| matches!(component, Component::Normal(_));
    !name.is_empty() && !name.contains(['\\', '\0']) && Path::new(name).components().all(normal)
}

fn is_copied(name: &str) -> bool {
    has_extension(name, &COPIED)
}

fn is_stood_for(name: &str) -> bool {
    has_extension(name, &STOOD_FOR) || COMPRESSED.iter().any(|end| name.ends_with(end))
}

fn has_extension(name: &str, known: &[&str]) -> bool {
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| known.iter().any(|known| known.eq_ignore_ascii_case(extension)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside_and_what_is_not_a_corpus_is_left_alone() {
        for (name, plain) in [
            ("wavs/a.wav", true),
            ("../a.wav", false),
            ("a/../../b.wav", false),
            ("/etc/passwd", false),
            ("a\\b.wav", false),
            ("", false),
        ] {
            assert_eq!(is_plain(name), plain, "{name}");
        }
        assert!(
            is_copied("metadata.csv") && is_copied("txt/p1/a.txt") && !is_copied("a.wav") && !is_copied("model.bin")
        );
        assert!(is_stood_for("A.WAV") && is_stood_for("x.tar.gz") && is_stood_for("x.tar") && !is_stood_for("x.gz"));
    }

    #[test]
    fn a_date_changes_with_the_object() {
        assert_eq!(date(5, "a"), date(5, "a"));
        assert!(date(5, "a") != date(5, "b") && date(5, "a") != date(6, "a"));
    }
}
