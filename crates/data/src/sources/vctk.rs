//! The VCTK layout: `txt/SPEAKER/ID.txt`, and `wav48/SPEAKER/ID.wav` or `wav48_silence_trimmed/SPEAKER/ID_mic2.flac`. There is
//! no list: the texts that are there make one.

use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::error::MetadataError;
use super::fields::{Fields, utf8};
use super::listed::{List, Rows};
use super::metadata::Metadata;
use crate::fault::ClipFault;

/// The second microphone has less noise at low frequencies; two speakers have only the first.
const EXTENSIONS: &[&str] = &["_mic2.flac", "_mic1.flac", ".wav", ".flac", ".mp3", ".ogg", "_mic2.wav", "_mic1.wav"];
/// A longer file is not a transcript.
const LONGEST_TEXT: u64 = 1 << 20;

/// Rows `SPEAKER/ID`.
#[derive(Debug)]
struct Vctk {
    texts: PathBuf,
}

/// The directory of the audio files, the trimmed ones first.
pub(super) fn audio_dir(dir: &Path) -> Option<String> {
    let names = std::fs::read_dir(dir).ok()?.flatten().filter(|entry| entry.path().is_dir());
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with("wav48")).max()
}

/// Lists the texts that are there.
pub(super) fn open(dir: &Path, texts: &Path) -> Result<List, MetadataError> {
    let mut list = Vec::new();
    for speaker in names(texts)? {
        let below = texts.join(&speaker);
        if !below.is_dir() || speaker.contains('\n') {
            continue;
        }
        for file in names(&below)? {
            if let Some(id) = file.strip_suffix(".txt").filter(|id| !id.contains('\n')) {
                list.extend_from_slice(format!("{speaker}/{id}\n").as_bytes());
            }
        }
    }
    let metadata = Metadata::in_memory(texts, list)?;
    let audio_dir = audio_dir(dir).unwrap_or_else(|| "wav48".to_owned());
    Ok(List { metadata, rows: Box::new(Vctk { texts: texts.to_owned() }), audio_dir })
}

/// What is in a directory, in an order that does not change.
fn names(dir: &Path) -> Result<Vec<String>, MetadataError> {
    let fail = |error| MetadataError::Io(dir.to_owned(), error);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        names.extend(entry.map_err(fail)?.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

impl Rows for Vctk {
    fn fields<'a>(&self, row: &'a [u8]) -> Result<Fields<'a>, ClipFault> {
        let row = utf8(row)?;
        let (speaker, name) = row.split_once('/').ok_or(ClipFault::BadId)?;
        // `p225_001` says who speaks; `001` alone would not be unique.
        let id = if name.starts_with(speaker) { name } else { row };
        Ok(Fields {
            id: Cow::Borrowed(id),
            audio: Cow::Borrowed(row),
            text: Cow::default(),
            speaker: Some(Cow::Borrowed(speaker)),
            language: None,
        })
    }

    fn text(&self, fields: Fields<'_>) -> Result<String, ClipFault> {
        let unreadable = |error: std::io::Error| ClipFault::Audio(error.into());
        let file = std::fs::File::open(self.texts.join(format!("{}.txt", fields.audio))).map_err(unreadable)?;
        let mut bytes = Vec::new();
        file.take(LONGEST_TEXT).read_to_end(&mut bytes).map_err(unreadable)?;
        Ok(utf8(&bytes)?.trim().to_owned())
    }

    fn name_speakers(&self) -> bool {
        true
    }

    fn extensions(&self) -> &'static [&'static str] {
        EXTENSIONS
    }
}
