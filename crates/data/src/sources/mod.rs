//! Where clips come from. A corpus format is one file here and a line of [`open_list`]; `detect.rs` says how it is recognized.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `format.rs` | [`Format`]: the formats and their names |
//! | `detect.rs`, `evidence.rs` | which format a directory is in, by evidence; two that fit are an error |
//! | `listed.rs` | the [`Source`] of all formats that list clips; a format says what a row means |
//! | `ljspeech.rs`, `piper.rs`, `coqui.rs`, `vctk.rs`, `common_voice.rs`, `json_lines.rs`, `audio_folder.rs` | a format each |
//! | `shards.rs` | WebDataset's tar files, read at random by an index |
//! | `parquet.rs` | Hugging Face's parquet files, by an index of the same kind |
//! | `chosen.rs` | the clips of some speakers, whatever the source |
//! | `metadata.rs` | [`Metadata`]: rows by their place in the file, not in memory |
//! | `fields.rs` | [`Fields`]: splitting rows, names of columns, which paths may be named |
//! | `speakers.rs` | who speaks which clip, and in which language |
//! | `error.rs` | [`MetadataError`] |

mod audio_folder;
mod chosen;
mod common_voice;
mod coqui;
mod detect;
mod error;
mod evidence;
mod fields;
mod format;
mod json_lines;
mod listed;
mod ljspeech;
mod metadata;
mod parquet;
mod piper;
pub(crate) mod shards;
mod speakers;
mod vctk;

use std::fmt;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tandem_text::Language;

use crate::corpus::CorpusSettings;
use crate::fault::ClipFault;
use crate::remote::Files;

use detect::Found;
pub use detect::{Evidence, Reading};
pub use error::{Ambiguity, MetadataError, Preview, PreviewClip};
pub use fields::Fields;
pub use format::Format;
use listed::{List, Listed, Rows};
pub use metadata::Metadata;
pub(crate) use metadata::read_at;
pub use parquet::{ParquetColumns, ParquetFile, ParquetRow};

/// Which clips of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All that it lists first, whatever they are for.
    All,
    /// Those to train on: without those for validation, if it lists them apart.
    Training,
    /// Those for validation, if it lists any.
    Validation,
}

/// The clips of a directory, in whichever format it is. None: it lists no such part, which only [`Part::Validation`] may be.
///
/// # Errors
///
/// [`MetadataError`] if it is no corpus.
pub fn open_source(
    dir: &Path,
    part: Part,
    settings: &CorpusSettings,
) -> Result<Option<Arc<dyn Source>>, MetadataError> {
    open_files(&Files::open(dir, settings)?, part, settings)
}

/// The same for files that were found.
pub(crate) fn open_files(
    files: &Files,
    part: Part,
    settings: &CorpusSettings,
) -> Result<Option<Arc<dyn Source>>, MetadataError> {
    open_found(files, part, settings).map_err(|error| error.named_by(files))
}

fn open_found(files: &Files, part: Part, settings: &CorpusSettings) -> Result<Option<Arc<dyn Source>>, MetadataError> {
    let dir = files.dir();
    let audio_dir = audio_dir(dir, &settings.audio_dir);
    let found = detect::detect(dir, settings.format, audio_dir)?;
    let source: Option<Arc<dyn Source>> = match found.reading.format {
        Format::Shards => shards::Shards::open(files, part, found.reading)?.map(|source| Arc::new(source) as _),
        Format::Parquet => {
            let not_built = || MetadataError::NotBuilt(files.name().display().to_string(), "parquet");
            let extension = settings.extensions.0.as_ref().ok_or_else(not_built)?;
            parquet::Parquet::open(files, part, found.reading, extension)?.map(|source| Arc::new(source) as _)
        }
        _ => Listed::open(files, part, found, audio_dir, !settings.allow_empty)?.map(|source| Arc::new(source) as _),
    };
    match source {
        Some(source) if !settings.speakers.is_empty() => {
            chosen::Chosen::of(source, &settings.speakers, part, files.name())
        }
        source => Ok(source),
    }
}

/// Where audio files are that are named by id: Piper also calls it `wav`.
fn audio_dir<'a>(dir: &Path, requested: &'a str) -> &'a str {
    match requested == "wavs" && !dir.join("wavs").is_dir() && dir.join("wav").is_dir() {
        true => "wav",
        false => requested,
    }
}

/// A list in a format.
fn open_list(format: Format, dir: &Path, path: &Path, audio_dir: &str) -> Result<List, MetadataError> {
    let named =
        |rows: Box<dyn Rows>| Ok(List { metadata: Metadata::open_file(path)?, rows, audio_dir: audio_dir.to_owned() });
    match format {
        Format::LjSpeech => named(Box::new(ljspeech::LjSpeech)),
        Format::Piper => named(Box::new(piper::Piper)),
        Format::Coqui => coqui::open(dir, path, audio_dir),
        Format::Vctk => vctk::open(dir, path),
        Format::CommonVoice => common_voice::open(path),
        Format::JsonLines => json_lines::open(dir, path, audio_dir),
        Format::AudioFolder => audio_folder::open(dir, path, audio_dir),
        // Has no list of its own; its index is made.
        Format::Shards | Format::Parquet => Err(MetadataError::NotInFormat(dir.to_owned(), format)),
    }
}

/// What a row of a list without a header means in a format; none for formats that need a header or have no list.
///
/// # Errors
///
/// [`ClipFault`] if it is not a row.
pub fn parse_row(format: Format, row: &[u8]) -> Option<Result<Fields<'_>, ClipFault>> {
    let (dir, audio_dir) = (PathBuf::new(), String::new());
    match format {
        Format::LjSpeech => Some(ljspeech::LjSpeech.fields(row)),
        Format::Piper => Some(piper::Piper.fields(row)),
        Format::Coqui => Some(coqui::Coqui { dir, audio_dir, header: None, language: None }.fields(row)),
        Format::JsonLines => Some(json_lines::JsonLines { dir, audio_dir }.fields(row)),
        _ => None,
    }
}

/// Bytes of an audio file, wherever they are.
pub trait AudioBytes: Read + Seek + Send {}

impl<T: Read + Seek + Send> AudioBytes for T {}

/// What is known of a clip without its audio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Unique in the corpus.
    pub id: String,
    /// What is said.
    pub text: String,
    /// Who speaks: an index of [`Source::speakers`]; 0 when nobody is named.
    pub speaker: u16,
    /// The language of the text, if it is known.
    pub language: Option<Language>,
}

/// A collection of clips with texts. Clips are numbered from 0 in an order that does not change; all methods may be
/// called from many threads at once. [`Corpus::from_source`](crate::Corpus::from_source) makes a corpus of it.
pub trait Source: fmt::Debug + Send + Sync {
    /// How many clips there are.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A clip's text and speaker.
    ///
    /// # Errors
    ///
    /// [`ClipFault`] if the clip cannot be used.
    fn record(&self, clip: u32) -> Result<Record, ClipFault>;

    /// A clip's audio file: WAV, FLAC, OGG or MP3.
    ///
    /// # Errors
    ///
    /// [`ClipFault`] if there is none.
    fn audio(&self, clip: u32) -> Result<Box<dyn AudioBytes + '_>, ClipFault>;

    /// The same for a look at its header alone: bytes need not be read or checked before they are asked for.
    ///
    /// # Errors
    ///
    /// [`ClipFault`] if there is none.
    fn header(&self, clip: u32) -> Result<Box<dyn AudioBytes + '_>, ClipFault> {
        self.audio(clip)
    }

    /// Whether audio comes from far away, so that it pays to ask for several clips at once ([`Source::fetch`]).
    fn is_remote(&self) -> bool {
        false
    }

    /// The audio files of several clips, waited for together; nothing where that is no faster than one after the other.
    fn fetch(&self, _clips: &[u32]) -> Vec<(u32, Result<Vec<u8>, ClipFault>)> {
        Vec::new()
    }

    /// A hash that changes when the clip's audio changes, found without reading it (name, size and date, say): what is
    /// kept of a clip is kept as long as this stays the same.
    ///
    /// # Errors
    ///
    /// [`ClipFault`] if the clip has no audio.
    fn identity(&self, clip: u32) -> Result<u64, ClipFault>;

    /// The names of the speakers; empty when nobody is named.
    fn speakers(&self) -> &[String] {
        &[]
    }

    /// Who speaks a clip, as in its record.
    ///
    /// # Errors
    ///
    /// [`ClipFault`] if that is not known.
    fn speaker(&self, clip: u32) -> Result<u16, ClipFault> {
        self.record(clip).map(|record| record.speaker)
    }

    /// A clip's id, even of one that cannot be used.
    fn id(&self, clip: u32) -> Option<String> {
        self.record(clip).ok().map(|record| record.id)
    }

    /// Where a clip stands in the list of clips, counted from one, for messages.
    fn line(&self, clip: u32) -> u64 {
        u64::from(clip) + 1
    }

    /// A clip's file, for messages.
    fn path(&self, _clip: u32) -> Option<PathBuf> {
        None
    }

    /// The extension of a clip's audio file, without the dot.
    fn extension(&self, clip: u32) -> Option<String> {
        Some(self.path(clip)?.extension()?.to_str()?.to_owned())
    }

    /// The directory that it lies in, if it does.
    fn dir(&self) -> Option<&Path> {
        None
    }

    /// Which format it was read in, and why, if it is a directory.
    fn reading(&self) -> Option<&Reading> {
        None
    }

    /// Distinguishes the sources of one directory: what is kept of one must not be taken for another's.
    fn key(&self) -> String;
}
