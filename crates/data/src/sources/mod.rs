//! Where clips come from. A corpus format is one file here, an implementation of [`Source`], and a line of [`open`], which is
//! the only place that knows the formats.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `ljspeech.rs` | [`LjSpeech`]: a directory of audio files, `metadata.csv` and `speakers.csv` |
//! | `metadata.rs` | [`Metadata`]: rows by their place in the file, not in memory |

mod ljspeech;
mod metadata;

use std::fmt;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tandem_text::Language;

use crate::corpus::CorpusSettings;
use crate::fault::ClipFault;

pub use ljspeech::LjSpeech;
pub(crate) use metadata::read_at;
pub use metadata::{Metadata, MetadataError, Row, parse_row};

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
pub(crate) fn open(
    dir: &Path,
    part: Part,
    settings: &CorpusSettings,
) -> Result<Option<Arc<dyn Source>>, MetadataError> {
    // Another format is recognized by its files here.
    let source = LjSpeech::open_part(dir, part, &settings.audio_dir, !settings.allow_empty)?;
    Ok(source.map(|source| Arc::new(source) as Arc<dyn Source>))
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

    /// The directory that it lies in, if it does.
    fn dir(&self) -> Option<&Path> {
        None
    }

    /// Distinguishes the sources of one directory: what is kept of one must not be taken for another's.
    fn key(&self) -> String;
}
