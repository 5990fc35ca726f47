//! [`Listed`]: clips that a list names, whatever its layout. A layout says what a row means ([`Rows`]); finding the audio,
//! numbering the speakers and reading rows when they are needed is the same for all.

use std::fmt;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

use tandem_audio::{AudioError, open_audio};

use super::fields::Fields;
use super::metadata::Metadata;
use super::speakers::{Numbering, Speakers};
use super::{AudioBytes, Found, MetadataError, Part, Reading, Record, Source};
use crate::fault::ClipFault;
use crate::files::{file_identity, hash_parts};
use crate::remote::Files;

/// Extensions tried for a clip that is named without one, in this order; the last means that the name has it itself.
pub(super) const NAMED: &[&str] = &[".wav", ".flac", ".mp3", ".ogg", ".WAV", ".FLAC", ".MP3", ".OGG", ""];
/// For a path that is whole.
pub(super) const WHOLE: &[&str] = &[""];
/// Not looked for yet.
const UNKNOWN: u8 = u8::MAX;

/// What the rows of a layout mean.
pub(super) trait Rows: fmt::Debug + Send + Sync {
    /// Splits a row.
    fn fields<'a>(&self, row: &'a [u8]) -> Result<Fields<'a>, ClipFault>;

    /// The text of a clip, when it is not in the row.
    fn text(&self, fields: Fields<'_>) -> Result<String, ClipFault> {
        Ok(fields.text.into_owned())
    }

    /// Whether rows may say who speaks, or in which language: then all of them are read when the list is opened.
    fn name_speakers(&self) -> bool;

    /// The extensions that are tried for an audio file.
    fn extensions(&self) -> &'static [&'static str] {
        WHOLE
    }
}

/// An opened list: its rows, what they mean, and the directory that audio files are named from.
pub(super) struct List {
    pub(super) metadata: Metadata,
    pub(super) rows: Box<dyn Rows>,
    /// Below the directory of the corpus; empty: that directory itself.
    pub(super) audio_dir: String,
}

/// The clips of a list.
#[derive(Debug)]
pub(super) struct Listed {
    files: Files,
    reading: Reading,
    audio_dir: String,
    metadata: Metadata,
    rows: Box<dyn Rows>,
    speakers: Speakers,
    /// Which of the extensions the file of each clip has.
    extensions: Vec<AtomicU8>,
}

impl Listed {
    /// Some of the clips of a directory, if it lists them; the directory of the audio files must exist if `needs_audio`.
    pub(super) fn open(
        files: &Files,
        part: Part,
        found: Found,
        audio_dir: &str,
        needs_audio: bool,
    ) -> Result<Option<Listed>, MetadataError> {
        let (dir, lists) = (files.dir(), &found.lists);
        let path = match part {
            Part::All => &lists.all,
            Part::Training => &lists.training,
            Part::Validation => match &lists.validation {
                Some(path) => path,
                None => return Ok(None),
            },
        };
        let open = |path: &Path| super::open_list(found.reading.format, dir, path, audio_dir);
        let list = open(path)?;
        let audio = dir.join(&list.audio_dir);
        if needs_audio && !audio.is_dir() {
            return Err(MetadataError::NoAudioDir(audio));
        }
        // One numbering for training and validation: a speaker of both has one number.
        let mut numbering = Numbering::default();
        for other in [Some(&lists.training), lists.validation.as_ref()].into_iter().flatten() {
            if other == path {
                break;
            }
            if list.rows.name_speakers() {
                let other = open(other)?;
                numbering.read(&other.metadata, &*other.rows, None)?;
            }
        }
        let speakers = numbering.finish(&list, dir)?;
        let extensions = (0..list.metadata.len()).map(|_| AtomicU8::new(UNKNOWN)).collect();
        let List { metadata, rows, audio_dir } = list;
        Ok(Some(Listed {
            files: files.clone(),
            reading: found.reading,
            audio_dir,
            metadata,
            rows,
            speakers,
            extensions,
        }))
    }

    /// What the row of a clip says.
    fn read<T>(&self, clip: u32, then: impl FnOnce(Fields<'_>) -> T) -> Result<T, ClipFault> {
        let mut buffer = Vec::new();
        Ok(then(self.rows.fields(self.metadata.read(clip, &mut buffer)?)?))
    }

    /// The file of a clip and its name in the list: looked for once, then its extension is known.
    fn file(&self, clip: u32) -> Result<(PathBuf, String), ClipFault> {
        let audio = self.read(clip, |fields| fields.audio.into_owned())?;
        let at = |extension: &str| {
            let name = format!("{audio}{extension}");
            (self.files.dir().join(&self.audio_dir).join(&name), name)
        };
        let extensions = self.rows.extensions();
        let known = self.extensions[clip as usize].load(Ordering::Relaxed);
        if let Some(extension) = extensions.get(usize::from(known)) {
            return Ok(at(extension));
        }
        for (number, extension) in extensions.iter().enumerate() {
            let (path, name) = at(extension);
            match path.symlink_metadata() {
                Ok(_) => {
                    self.extensions[clip as usize].store(number as u8, Ordering::Relaxed);
                    return Ok((path, name));
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(ClipFault::Audio(error.into())),
            }
        }
        Err(ClipFault::Missing)
    }
}

impl Source for Listed {
    fn len(&self) -> usize {
        self.metadata.len()
    }

    fn record(&self, clip: u32) -> Result<Record, ClipFault> {
        let (id, text) = self.read(clip, |fields| (fields.id.clone().into_owned(), self.rows.text(fields)))?;
        let speaker = self.speakers.of(clip)?;
        Ok(Record { id, text: text?, speaker, language: self.speakers.language(clip).cloned() })
    }

    fn audio(&self, clip: u32) -> Result<Box<dyn AudioBytes + '_>, ClipFault> {
        let (path, _) = self.file(clip)?;
        match self.files.read(&path, None)? {
            Some(bytes) => Ok(Box::new(Cursor::new(bytes))),
            None => Ok(Box::new(open_audio(&path)?)),
        }
    }

    fn is_remote(&self) -> bool {
        self.files.is_remote()
    }

    fn fetch(&self, clips: &[u32]) -> Vec<(u32, Result<Vec<u8>, ClipFault>)> {
        let piece = |clip: &u32| Some((*clip, self.files.piece(&self.file(*clip).ok()?.0, None).ok()??));
        let (clips, pieces): (Vec<u32>, Vec<_>) = clips.iter().filter_map(piece).unzip();
        clips.into_iter().zip(self.files.read_all(&pieces)).collect()
    }

    fn identity(&self, clip: u32) -> Result<u64, ClipFault> {
        let (path, name) = self.file(clip)?;
        let (size, date) = file_identity(&path).map_err(|error| ClipFault::from(AudioError::Io(error)))?;
        // The names alone: the corpus may be reached by another path next time.
        Ok(hash_parts(&[name.as_bytes(), self.audio_dir.as_bytes(), &size.to_le_bytes(), &date.to_le_bytes()]))
    }

    fn speakers(&self) -> &[String] {
        &self.speakers.names
    }

    fn speaker(&self, clip: u32) -> Result<u16, ClipFault> {
        self.speakers.of(clip)
    }

    fn id(&self, clip: u32) -> Option<String> {
        self.read(clip, |fields| fields.id.into_owned()).ok()
    }

    fn line(&self, clip: u32) -> u64 {
        self.metadata.line(clip)
    }

    fn path(&self, clip: u32) -> Option<PathBuf> {
        if let Ok((path, _)) = self.file(clip) {
            return Some(self.files.shown(&path));
        }
        let (likely, dir) = (self.rows.extensions()[0], self.files.dir().join(&self.audio_dir));
        let path = self.read(clip, |fields| dir.join(format!("{}{likely}", fields.audio))).ok()?;
        Some(self.files.shown(&path))
    }

    fn dir(&self) -> Option<&Path> {
        Some(self.files.name())
    }

    fn reading(&self) -> Option<&Reading> {
        Some(&self.reading)
    }

    fn key(&self) -> String {
        let list = self.metadata.path();
        let list = list.strip_prefix(self.files.dir()).unwrap_or(list).to_string_lossy();
        format!("{} {list} {}", self.reading.format, self.audio_dir)
    }
}
