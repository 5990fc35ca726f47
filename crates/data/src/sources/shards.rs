//! WebDataset shards: tar files whose members `KEY.wav`, `KEY.txt` and `KEY.json` are one clip.
//!
//! Clips are read at random by an index of our own: a line for each clip with shard, offset, length and text. `pack` writes it
//! beside the shards, with checksums; for shards of others the headers are read once and it is kept in the work directory.

use std::fs::File;
use std::io::{self, BufWriter, Cursor, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tandem_audio::AudioError;
use xxhash_rust::xxh3::xxh3_64;

use super::detect::HELD_OUT;
use super::error::MetadataError;
use super::fields::{Fields, LANGUAGE, SPEAKER, TEXT, is_audio_extension, utf8};
use super::json_lines::find;
use super::listed::{List, Rows};
use super::metadata::{Metadata, read_at};
use super::speakers::{Numbering, Speakers};
use super::{AudioBytes, Part, Reading, Record, Source};
use crate::fault::ClipFault;
use crate::files::{file_identity, hash_parts};
use crate::remote::{Files, RemoteError};

/// Changing what an index means changes this.
const VERSION: u32 = 1;
/// A longer member is not a transcript.
const LONGEST_TEXT: u64 = 1 << 20;

/// The first line of an index.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Header {
    /// [`VERSION`].
    #[serde(rename = "tandem-shards")]
    pub(crate) version: u32,
    /// What the shards were packed from.
    pub(crate) plan: Option<String>,
    pub(crate) shards: Vec<Shard>,
}

impl Header {
    pub(crate) fn new(plan: Option<String>, shards: Vec<Shard>) -> Header {
        Header { version: VERSION, plan, shards }
    }
}

/// A tar file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shard {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// Of an index that was made of what was there.
    pub(crate) date: Option<u64>,
}

/// A clip in an index.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ShardRow {
    pub(crate) key: String,
    pub(crate) shard: String,
    pub(crate) extension: String,
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) xxh3: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) speaker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) language: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault: Option<ShardFault>,
}

impl ShardRow {
    /// The same, if nothing is wrong with it.
    pub(super) fn usable(self) -> Result<ShardRow, ClipFault> {
        match (self.fault, self.bytes, &self.text) {
            (Some(ShardFault::Truncated), ..) => Err(ClipFault::TruncatedShard),
            (Some(ShardFault::Twice), ..) => Err(ClipFault::DuplicateMember),
            (None, 0, _) => Err(ClipFault::NoPartner("audio")),
            (None, _, None) => Err(ClipFault::NoPartner("text")),
            (None, _, Some(_)) => Ok(self),
        }
    }

    /// Where its audio is in the shard.
    fn range(&self) -> Result<Range<u64>, ClipFault> {
        Ok(self.at..self.at.checked_add(self.bytes).ok_or(ClipFault::TruncatedShard)?)
    }

    /// Bytes that were read, if they are those that were packed.
    fn checked(&self, bytes: Vec<u8>) -> Result<Vec<u8>, ClipFault> {
        match &self.xxh3 {
            Some(wanted) if *wanted != checksum(&bytes) => Err(ClipFault::Checksum),
            _ => Ok(bytes),
        }
    }
}

/// What is wrong with a clip of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ShardFault {
    /// The same member twice.
    Twice,
    /// The shard ends before it should.
    Truncated,
}

#[derive(Debug)]
pub(super) struct ShardRows;

impl ShardRows {
    pub(super) fn row(bytes: &[u8]) -> Result<ShardRow, ClipFault> {
        serde_json::from_slice(bytes).map_err(|error| ClipFault::NotJson(error.to_string()))
    }
}

impl Rows for ShardRows {
    fn fields<'a>(&self, row: &'a [u8]) -> Result<Fields<'a>, ClipFault> {
        let row = ShardRows::row(row)?.usable()?;
        Ok(Fields {
            id: row.key.into(),
            audio: row.shard.into(),
            text: row.text.unwrap_or_default().into(),
            speaker: row.speaker.map(Into::into),
            language: row.language.map(Into::into),
        })
    }

    fn name_speakers(&self) -> bool {
        true
    }
}

/// The clips of a directory of shards.
#[derive(Debug)]
pub(super) struct Shards {
    files: Files,
    reading: Reading,
    part: Part,
    metadata: Metadata,
    speakers: Speakers,
}

impl Shards {
    /// Some of the clips of a directory, if it has shards of them.
    pub(super) fn open(files: &Files, part: Part, reading: Reading) -> Result<Option<Shards>, MetadataError> {
        let dir = files.dir();
        let held_out = part == Part::Validation;
        if names(dir, held_out)?.is_empty() {
            return if held_out { Ok(None) } else { Err(MetadataError::NoMetadata(dir.to_owned())) };
        }
        // One numbering for training and validation.
        let mut numbering = Numbering::default();
        if held_out && !names(dir, false)?.is_empty() {
            numbering.read(&index(files, false)?, &ShardRows, None)?;
        }
        let metadata = index(files, held_out)?;
        let list = List { metadata, rows: Box::new(ShardRows), audio_dir: String::new() };
        let speakers = numbering.finish(&list, dir)?;
        Ok(Some(Shards { files: files.clone(), reading, part, metadata: list.metadata, speakers }))
    }

    fn row(&self, clip: u32) -> Result<ShardRow, ClipFault> {
        let mut buffer = Vec::new();
        ShardRows::row(self.metadata.read(clip, &mut buffer)?)
    }

    /// The row of a clip that has no fault, and its shard.
    fn good(&self, clip: u32) -> Result<(ShardRow, PathBuf), ClipFault> {
        let row = self.row(clip)?.usable()?;
        let path = self.files.dir().join(&row.shard);
        Ok((row, path))
    }
}

/// Tar files of a directory, by name: those for validation are called so.
pub(crate) fn names(dir: &Path, held_out: bool) -> Result<Vec<String>, MetadataError> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|error| MetadataError::Io(dir.to_owned(), error))?.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if [".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2"].iter().any(|end| name.ends_with(end)) {
            return Err(MetadataError::CompressedShard(dir.join(name)));
        }
        let first = name.split(['-', '_', '.']).next().unwrap_or_default();
        if name.ends_with(".tar") && !name.starts_with('.') && HELD_OUT.contains(&first) == held_out {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The name of the index that `pack` writes.
pub(crate) fn index_name(held_out: bool) -> &'static str {
    if held_out { "index-validation.jsonl" } else { "index.jsonl" }
}

/// The index of the shards that are there: the one beside them, or one that is made.
fn index(files: &Files, held_out: bool) -> Result<Metadata, MetadataError> {
    let dir = files.dir();
    let names = names(dir, held_out)?;
    let packed = dir.join(index_name(held_out));
    if header(&packed).is_some_and(|header| header.shards.iter().map(|shard| &shard.name).eq(&names)) {
        return Metadata::open_file(&packed)?.without_header();
    }
    let fail = |error| MetadataError::Io(dir.to_owned(), error);
    let there = names.iter().map(|name| {
        let (bytes, date) = file_identity(&dir.join(name))?;
        Ok(Shard { name: name.clone(), bytes, date: Some(date) })
    });
    let there = there.collect::<io::Result<Vec<Shard>>>().map_err(fail)?;
    let work_dir = files.work_dir();
    let made = work_dir.join(format!("shards-{}", index_name(held_out)));
    if !header(&made).is_some_and(|header| header.shards == there) {
        std::fs::create_dir_all(&work_dir).map_err(fail)?;
        let mut file = tempfile::NamedTempFile::new_in(&work_dir).map_err(fail)?;
        let mut writer = BufWriter::new(file.as_file_mut());
        let names: Vec<String> = there.iter().map(|shard| shard.name.clone()).collect();
        write_line(&mut writer, &Header::new(None, there)).map_err(fail)?;
        for name in names {
            scan(files, &name, &mut writer).map_err(|error| MetadataError::Io(dir.join(&name), error))?;
        }
        writer.flush().map_err(fail)?;
        drop(writer);
        file.persist(&made).map_err(|error| fail(error.error))?;
    }
    Metadata::open_file(&made)?.without_header()
}

/// The header of an index; none if there is none that is understood.
pub(crate) fn header(path: &Path) -> Option<Header> {
    let mut line = String::new();
    io::BufRead::read_line(&mut io::BufReader::new(File::open(path).ok()?), &mut line).ok()?;
    serde_json::from_str(&line).ok().filter(|header: &Header| header.version == VERSION)
}

pub(crate) fn write_line(writer: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *writer, value)?;
    writer.write_all(b"\n")
}

/// Reads the headers of a shard, and its texts, and writes a row for each clip.
fn scan(files: &Files, name: &str, writer: &mut impl Write) -> io::Result<()> {
    let path = files.dir().join(name);
    let length = path.metadata()?.len();
    let mut file = files.reader(&path)?;
    let mut archive = tar::Archive::new(&mut file);
    let mut clip: Option<ShardRow> = None;
    let cut = |key: &str| ShardRow {
        key: key.to_owned(),
        shard: name.to_owned(),
        fault: Some(ShardFault::Truncated),
        ..ShardRow::default()
    };
    let mut whole = true;
    for entry in archive.entries_with_seek()? {
        let mut entry = match entry {
            // A bucket that cannot be read says nothing about the shard.
            Err(error) if error.get_ref().is_some_and(|inner| inner.is::<RemoteError>()) => return Err(error),
            Err(_) => {
                whole = false;
                break;
            }
            Ok(entry) => entry,
        };
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let Some(path) = std::str::from_utf8(&entry.path_bytes()).ok().map(str::to_owned) else { continue };
        let (at, bytes) = (entry.raw_file_position(), entry.size());
        let (key, extension) = split_key(&path);
        if clip.as_ref().is_none_or(|clip| clip.key != key) {
            write_clip(writer, clip.take())?;
            clip = Some(ShardRow { key: key.to_owned(), shard: name.to_owned(), ..ShardRow::default() });
        }
        let Some(row) = &mut clip else { continue };
        if at.saturating_add(bytes) > length {
            *row = cut(key);
            whole = false;
            break;
        }
        let mut text = || -> io::Result<Option<String>> {
            let mut content = Vec::new();
            entry.by_ref().take(LONGEST_TEXT).read_to_end(&mut content)?;
            Ok(utf8(&content).ok().map(|text| text.trim().to_owned()))
        };
        if is_audio_extension(extension) {
            if row.bytes > 0 {
                row.fault = Some(ShardFault::Twice);
            }
            (row.at, row.bytes, row.extension) = (at, bytes, extension.to_lowercase());
        } else if ["txt", "text", "transcript"].contains(&extension) {
            row.text = text()?;
        } else if extension == "json" {
            let object: Option<Map<String, Value>> = text()?.and_then(|text| serde_json::from_str(&text).ok());
            let object = object.unwrap_or_default();
            row.text = row.text.take().or_else(|| find(&object, TEXT));
            row.speaker = find(&object, SPEAKER);
            row.language = find(&object, LANGUAGE);
        }
    }
    let last = clip.as_ref().map(|row| row.key.clone()).unwrap_or_default();
    let named = clip.as_ref().is_some_and(|row| row.fault == Some(ShardFault::Truncated));
    write_clip(writer, clip)?;
    // A tar file ends with two empty blocks; without them the rest of it is missing.
    let mut end = [1; 1024];
    let read = length >= 1024 && file.seek(SeekFrom::End(-1024)).is_ok() && file.read_exact(&mut end).is_ok();
    let complete = whole && read && end.iter().all(|&byte| byte == 0);
    if !complete && !named {
        write_line(writer, &cut(&format!("{last}, and what follows")))?;
    }
    Ok(())
}

/// Writes the row of a clip; what has neither audio nor text is none.
fn write_clip(writer: &mut impl Write, clip: Option<ShardRow>) -> io::Result<()> {
    match clip.filter(|row| row.bytes > 0 || row.text.is_some() || row.fault.is_some()) {
        Some(row) => write_line(writer, &row),
        None => Ok(()),
    }
}

/// The bytes of a member, read where they are asked for.
struct Member {
    file: File,
    start: u64,
    length: u64,
    at: u64,
}

impl Read for Member {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (buffer.len() as u64).min(self.length.saturating_sub(self.at)) as usize;
        read_at(&self.file, &mut buffer[..count], self.start + self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Member {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.length.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// WebDataset's key and extension: a name up to its first dot, and what is behind it.
fn split_key(path: &str) -> (&str, &str) {
    let path = path.trim_start_matches("./");
    let name = path.rfind('/').map_or(0, |at| at + 1);
    match path[name..].find('.') {
        Some(dot) => (&path[..name + dot], &path[name + dot + 1..]),
        None => (path, ""),
    }
}

/// The checksum of a member, as an index has it.
pub(crate) fn checksum(bytes: &[u8]) -> String {
    format!("{:016x}", xxh3_64(bytes))
}

impl Source for Shards {
    fn len(&self) -> usize {
        self.metadata.len()
    }

    fn record(&self, clip: u32) -> Result<Record, ClipFault> {
        let (row, _) = self.good(clip)?;
        let (speaker, language) = (self.speakers.of(clip)?, self.speakers.language(clip).cloned());
        Ok(Record { id: row.key, text: row.text.unwrap_or_default(), speaker, language })
    }

    fn audio(&self, clip: u32) -> Result<Box<dyn AudioBytes + '_>, ClipFault> {
        let (row, path) = self.good(clip)?;
        let bytes = match self.files.read(&path, Some(row.range()?))? {
            Some(bytes) => bytes,
            None => {
                let file = File::open(&path).map_err(|error| ClipFault::from(AudioError::Io(error)))?;
                let mut bytes = vec![0; usize::try_from(row.bytes).map_err(|_| ClipFault::TruncatedShard)?];
                read_at(&file, &mut bytes, row.at).map_err(|error| match error.kind() {
                    io::ErrorKind::UnexpectedEof => ClipFault::TruncatedShard,
                    _ => ClipFault::Audio(error.into()),
                })?;
                bytes
            }
        };
        Ok(Box::new(Cursor::new(row.checked(bytes)?)))
    }

    fn is_remote(&self) -> bool {
        self.files.is_remote()
    }

    fn fetch(&self, clips: &[u32]) -> Vec<(u32, Result<Vec<u8>, ClipFault>)> {
        let (mut rows, mut pieces) = (Vec::new(), Vec::new());
        for &clip in clips {
            let Ok((row, path)) = self.good(clip) else { continue };
            let Ok(Some(piece)) = row.range().and_then(|range| self.files.piece(&path, Some(range))) else { continue };
            rows.push((clip, row));
            pieces.push(piece);
        }
        let read = rows.into_iter().zip(self.files.read_all(&pieces));
        read.map(|((clip, row), bytes)| (clip, bytes.and_then(|bytes| row.checked(bytes)))).collect()
    }

    fn header(&self, clip: u32) -> Result<Box<dyn AudioBytes + '_>, ClipFault> {
        if self.files.is_remote() {
            return self.audio(clip);
        }
        let (row, path) = self.good(clip)?;
        let file = File::open(&path).map_err(|error| ClipFault::from(AudioError::Io(error)))?;
        Ok(Box::new(Member { file, start: row.at, length: row.bytes, at: 0 }))
    }

    fn identity(&self, clip: u32) -> Result<u64, ClipFault> {
        let (row, path) = self.good(clip)?;
        let (size, date) = file_identity(&path).map_err(|error| ClipFault::from(AudioError::Io(error)))?;
        if row.at.saturating_add(row.bytes) > size {
            return Err(ClipFault::TruncatedShard);
        }
        // With a checksum the content is known; without it, size and date of the shard stand for it.
        let content = row.xxh3.unwrap_or_else(|| format!("{} {size} {date}", row.shard));
        Ok(hash_parts(&[content.as_bytes(), &row.at.to_le_bytes(), &row.bytes.to_le_bytes()]))
    }

    fn speakers(&self) -> &[String] {
        &self.speakers.names
    }

    fn speaker(&self, clip: u32) -> Result<u16, ClipFault> {
        self.speakers.of(clip)
    }

    fn id(&self, clip: u32) -> Option<String> {
        self.row(clip).ok().map(|row| row.key)
    }

    fn line(&self, clip: u32) -> u64 {
        self.metadata.line(clip)
    }

    /// The shard and the member in it.
    fn path(&self, clip: u32) -> Option<PathBuf> {
        let row = self.row(clip).ok()?;
        let member = if row.extension.is_empty() { row.key } else { format!("{}.{}", row.key, row.extension) };
        Some(self.files.shown(&self.files.dir().join(row.shard).join(member)))
    }

    fn extension(&self, clip: u32) -> Option<String> {
        self.row(clip).ok().map(|row| row.extension).filter(|extension| !extension.is_empty())
    }

    fn dir(&self) -> Option<&Path> {
        Some(self.files.name())
    }

    fn reading(&self) -> Option<&Reading> {
        Some(&self.reading)
    }

    fn key(&self) -> String {
        format!("shards {}", index_name(self.part == Part::Validation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_end_at_the_first_dot_of_the_name() {
        for (path, wanted) in [("a.wav", ("a", "wav")), ("./d.x/a.b.txt", ("d.x/a", "b.txt")), ("noext", ("noext", ""))]
        {
            assert_eq!(split_key(path), wanted);
        }
    }
}
