//! Hugging Face's parquet files: `audio` (a struct of `bytes` and `path`) and `text` (`transcription`, `sentence`), and if known the
//! speaker and the language. Decoding them is an [`Extension`](crate::Extension)'s business; here is the rest: which files, an index of
//! all rows that is kept like that of shards, and the [`Source`] of them.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufWriter, Cursor, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tandem_audio::AudioError;

use super::detect::parquet_files;
use super::error::MetadataError;
use super::fields::{LANGUAGE, SPEAKER, TEXT, is_audio_extension, without_extension};
use super::listed::List;
use super::metadata::Metadata;
use super::shards::{Header, Shard, ShardRow, ShardRows, header, write_line};
use super::speakers::{Numbering, Speakers};
use super::{AudioBytes, Part, Reading, Record, Source};
use crate::fault::ClipFault;
use crate::files::{file_identity, hash_parts};
use crate::remote::{Extension, Files};

/// Names of the column with the audio, the likeliest first.
const AUDIO: &[&str] = &["audio", "wav", "speech", "file"];

/// A parquet file that is opened. May be asked from many threads at once.
pub trait ParquetFile: fmt::Debug + Send + Sync {
    /// Hands over everything but the audio of every row, in order.
    ///
    /// # Errors
    ///
    /// [`MetadataError`] if they cannot be decoded.
    fn rows(&self, each: &mut dyn FnMut(ParquetRow) -> std::io::Result<()>) -> Result<(), MetadataError>;

    /// The audio of a row; none if the row has none.
    ///
    /// # Errors
    ///
    /// [`ClipFault`] if it cannot be decoded.
    fn audio(&self, group: u32, row: u32) -> Result<Option<Vec<u8>>, ClipFault>;
}

/// What a row says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParquetRow {
    /// Its row group.
    pub group: u32,
    /// Which row of the group it is.
    pub row: u32,
    /// The name of its audio file.
    pub path: Option<String>,
    /// What is said.
    pub text: Option<String>,
    /// Who speaks.
    pub speaker: Option<String>,
    /// The code of the language.
    pub language: Option<String>,
}

/// Which of the columns of a file is what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParquetColumns {
    /// The bytes of an audio file.
    pub audio: usize,
    /// Its name.
    pub path: Option<usize>,
    /// What is said.
    pub text: usize,
    /// Who speaks.
    pub speaker: Option<usize>,
    /// The language.
    pub language: Option<usize>,
}

impl ParquetColumns {
    /// By the names of all columns, those inside structs with a dot (`audio.bytes`).
    ///
    /// # Errors
    ///
    /// The kind that is missing.
    pub fn of(names: &[String]) -> Result<ParquetColumns, &'static str> {
        let at = |wanted: &str| names.iter().position(|name| name.eq_ignore_ascii_case(wanted));
        let find = |wanted: &[&str]| wanted.iter().find_map(|name| at(name));
        let audio = AUDIO.iter().find_map(|name| Some((*name, at(&format!("{name}.bytes")).or_else(|| at(name))?)));
        let (name, audio) = audio.ok_or("audio")?;
        Ok(ParquetColumns {
            audio,
            path: at(&format!("{name}.path")),
            text: find(TEXT).ok_or("text")?,
            speaker: find(SPEAKER),
            language: find(LANGUAGE),
        })
    }
}

/// The clips of a directory of parquet files.
#[derive(Debug)]
pub(super) struct Parquet {
    files: Files,
    reading: Reading,
    part: Part,
    metadata: Metadata,
    speakers: Speakers,
    extension: Arc<dyn Extension>,
    opened: Mutex<HashMap<String, Arc<dyn ParquetFile>>>,
}

impl Parquet {
    /// Some of the clips of a directory, if it has files of them.
    pub(super) fn open(
        files: &Files,
        part: Part,
        reading: Reading,
        extension: &Arc<dyn Extension>,
    ) -> Result<Option<Parquet>, MetadataError> {
        let dir = files.dir();
        let is_there = |held_out| !parquet_files(dir, held_out).is_empty();
        // A directory of a test set alone is what there is to train on.
        let held_out = part == Part::Validation;
        if held_out && !(is_there(true) && is_there(false)) {
            return Ok(None);
        }
        let held_out = held_out || !is_there(false);
        // An index that is there was perhaps made by a program with the code for these files: this one may have none.
        if let Some(path) = parquet_files(dir, held_out).first() {
            extension.open_parquet(files, path)?;
        }
        let mut numbering = Numbering::default();
        if part == Part::Validation {
            numbering.read(&index(files, false, &**extension)?, &ShardRows, None)?;
        }
        let metadata = index(files, held_out, &**extension)?;
        let list = List { metadata, rows: Box::new(ShardRows), audio_dir: String::new() };
        let speakers = numbering.finish(&list, dir)?;
        Ok(Some(Parquet {
            files: files.clone(),
            reading,
            part,
            metadata: list.metadata,
            speakers,
            extension: extension.clone(),
            opened: Mutex::default(),
        }))
    }

    fn row(&self, clip: u32) -> Result<ShardRow, ClipFault> {
        let mut buffer = Vec::new();
        ShardRows::row(self.metadata.read(clip, &mut buffer)?)
    }

    /// The row of a clip that has a text.
    fn good(&self, clip: u32) -> Result<ShardRow, ClipFault> {
        self.row(clip)?.usable()
    }

    /// A file, opened once.
    fn file(&self, name: &str) -> Result<Arc<dyn ParquetFile>, ClipFault> {
        let lock = || self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = lock().get(name) {
            return Ok(file.clone());
        }
        let file =
            self.extension.open_parquet(&self.files, &self.files.dir().join(name)).map_err(|error| match error {
                MetadataError::Remote(error) => error.into(),
                MetadataError::Io(_, error) => AudioError::Io(error).into(),
                error => ClipFault::Parquet(error.to_string()),
            })?;
        lock().insert(name.to_owned(), file.clone());
        Ok(file)
    }
}

/// The index of the files that are there; made once.
fn index(files: &Files, held_out: bool, extension: &dyn Extension) -> Result<Metadata, MetadataError> {
    let dir = files.dir();
    let fail = |error| MetadataError::Io(dir.to_owned(), error);
    let mut there = Vec::new();
    for path in parquet_files(dir, held_out) {
        let (bytes, date) = file_identity(&path).map_err(fail)?;
        let name = path.strip_prefix(dir).unwrap_or(&path).to_string_lossy().into_owned();
        there.push(Shard { name, bytes, date: Some(date) });
    }
    let work_dir = files.work_dir();
    let made = work_dir.join(if held_out { "parquet-validation.jsonl" } else { "parquet.jsonl" });
    if !header(&made).is_some_and(|header| header.shards == there) {
        std::fs::create_dir_all(&work_dir).map_err(fail)?;
        let mut file = tempfile::NamedTempFile::new_in(&work_dir).map_err(fail)?;
        let mut writer = BufWriter::new(file.as_file_mut());
        let names: Vec<String> = there.iter().map(|shard| shard.name.clone()).collect();
        write_line(&mut writer, &Header::new(None, there)).map_err(fail)?;
        for name in names {
            let mut number = 0;
            extension.open_parquet(files, &dir.join(&name))?.rows(&mut |row| {
                number += 1;
                write_line(&mut writer, &shard_row(&name, number, row))
            })?;
        }
        writer.flush().map_err(fail)?;
        drop(writer);
        file.persist(&made).map_err(|error| fail(error.error))?;
    }
    Metadata::open_file(&made)?.without_header()
}

/// A row as the index of shards has it: its place is the group and the row in it.
fn shard_row(file: &str, number: u64, row: ParquetRow) -> ShardRow {
    let name = row.path.as_deref().and_then(|path| Path::new(path).file_name()?.to_str());
    let extension = name.and_then(|name| Path::new(name).extension()?.to_str());
    let key = name.map(|name| without_extension(name).to_owned()).filter(|key| !key.is_empty());
    let given = |word: Option<String>| word.filter(|word| !word.trim().is_empty());
    ShardRow {
        key: key.unwrap_or_else(|| format!("{}-{number:06}", file.trim_end_matches(".parquet").replace('/', "-"))),
        shard: file.to_owned(),
        extension: extension.filter(|word| is_audio_extension(word)).map_or("wav".to_owned(), str::to_lowercase),
        at: u64::from(row.group) << 32 | u64::from(row.row),
        // How many it has is not known without reading it; none would mean that there is no audio.
        bytes: 1,
        text: row.text,
        speaker: given(row.speaker),
        language: given(row.language),
        ..ShardRow::default()
    }
}

impl Source for Parquet {
    fn len(&self) -> usize {
        self.metadata.len()
    }

    fn record(&self, clip: u32) -> Result<Record, ClipFault> {
        let row = self.good(clip)?;
        let (speaker, language) = (self.speakers.of(clip)?, self.speakers.language(clip).cloned());
        Ok(Record { id: row.key, text: row.text.unwrap_or_default(), speaker, language })
    }

    fn audio(&self, clip: u32) -> Result<Box<dyn AudioBytes + '_>, ClipFault> {
        let row = self.good(clip)?;
        let bytes = self.file(&row.shard)?.audio((row.at >> 32) as u32, row.at as u32)?;
        Ok(Box::new(Cursor::new(bytes.ok_or(ClipFault::NoPartner("audio"))?)))
    }

    fn identity(&self, clip: u32) -> Result<u64, ClipFault> {
        let row = self.good(clip)?;
        let path = self.files.dir().join(&row.shard);
        let (size, date) = file_identity(&path).map_err(|error| ClipFault::from(AudioError::Io(error)))?;
        Ok(hash_parts(&[row.shard.as_bytes(), &size.to_le_bytes(), &date.to_le_bytes(), &row.at.to_le_bytes()]))
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

    /// The file and the clip in it.
    fn path(&self, clip: u32) -> Option<PathBuf> {
        let row = self.row(clip).ok()?;
        Some(self.files.shown(&self.files.dir().join(row.shard).join(format!("{}.{}", row.key, row.extension))))
    }

    fn extension(&self, clip: u32) -> Option<String> {
        self.row(clip).ok().map(|row| row.extension)
    }

    fn dir(&self) -> Option<&Path> {
        Some(self.files.name())
    }

    fn reading(&self) -> Option<&Reading> {
        Some(&self.reading)
    }

    fn key(&self) -> String {
        format!("parquet {}", if self.part == Part::Validation { "validation" } else { "training" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(names: &[&str]) -> Result<ParquetColumns, &'static str> {
        ParquetColumns::of(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn columns_are_found_by_the_names_that_people_give_them() {
        let all = columns(&["audio.bytes", "audio.path", "sentence", "client_id", "locale", "up_votes"]);
        let wanted = ParquetColumns { audio: 0, path: Some(1), text: 2, speaker: Some(3), language: Some(4) };
        assert_eq!(all, Ok(wanted));
        let plain = ParquetColumns { audio: 1, path: None, text: 0, speaker: None, language: None };
        assert_eq!(columns(&["Text", "audio"]), Ok(plain));
        assert_eq!(columns(&["image.bytes", "text"]), Err("audio"));
        assert_eq!(columns(&["audio.bytes", "label"]), Err("text"));
    }

    #[test]
    fn a_clip_is_called_as_its_file_or_by_its_place() {
        let path = |path: &str| ParquetRow { group: 2, row: 7, path: Some(path.to_owned()), ..ParquetRow::default() };
        let row = shard_row("data/train-0.parquet", 9, path("wavs/a.b.FLAC"));
        assert_eq!((row.key.as_str(), row.extension.as_str(), row.at), ("a.b", "flac", 2 << 32 | 7));
        assert_eq!(shard_row("data/train-0.parquet", 9, ParquetRow::default()).key, "data-train-0-000009");
    }
}
