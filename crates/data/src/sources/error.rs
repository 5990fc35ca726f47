//! [`MetadataError`]: why a directory is not a corpus.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::Format;
use crate::remote::{Files, RemoteError};

/// Why a directory is not a corpus.
#[derive(Debug)]
#[non_exhaustive]
pub enum MetadataError {
    /// The directory does not exist or is not one.
    NotADir(PathBuf),
    /// No list of clips in it.
    NoMetadata(PathBuf),
    /// It is not in the format that was given.
    NotInFormat(PathBuf, Format),
    /// It fits two formats.
    TwoFormats(Box<Ambiguity>),
    /// A list has no column of this kind (`audio`, `text`); these are its columns.
    NoColumn(PathBuf, &'static str, Vec<String>),
    /// A shard that is compressed.
    CompressedShard(PathBuf),
    /// It cannot be read.
    Io(PathBuf, io::Error),
    /// It has no rows.
    Empty(PathBuf),
    /// More speakers than can be distinguished.
    TooManySpeakers(PathBuf),
    /// A row of the speakers' list is not `id|speaker`.
    SpeakerRow(PathBuf, usize),
    /// Nobody of this name speaks in it; some of those who do.
    NoSuchSpeaker(PathBuf, String, Vec<String>),
    /// The directory with the audio files is not there.
    NoAudioDir(PathBuf),
    /// The program was built without this feature.
    NotBuilt(String, &'static str),
    /// Not the address of a bucket.
    NotAnAddress(String),
    /// An address with a password or a signature.
    SecretInAddress(String),
    /// A bucket cannot be read.
    Remote(RemoteError),
    /// The size of the cache for buckets is not one.
    BucketCache(String),
    /// A server that cannot list files does not have this.
    NoPackedIndex(String),
    /// A parquet file without a column of this kind; these are its columns.
    ParquetColumns(PathBuf, &'static str, Vec<String>),
    /// A parquet file cannot be read; why.
    Parquet(PathBuf, String),
}

/// A directory that fits two formats: what the first clips would be in each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ambiguity {
    /// The list that can be read in two ways, or the directory that has two lists.
    pub path: PathBuf,
    /// The first clips in each reading.
    pub previews: [Preview; 2],
}

/// The first clips of a list, read in a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The format.
    pub format: Format,
    /// The clips.
    pub clips: Vec<PreviewClip>,
}

/// A clip as a format has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviewClip {
    /// Its audio.
    pub audio: String,
    /// Who speaks, if that is said.
    pub speaker: Option<String>,
    /// What is said.
    pub text: String,
}

impl MetadataError {
    /// The same with the names that the user knows files by.
    pub(super) fn named_by(self, files: &Files) -> MetadataError {
        if !files.is_remote() {
            return self;
        }
        match self {
            MetadataError::NotADir(path) => MetadataError::NotADir(files.shown(&path)),
            MetadataError::NoMetadata(path) => MetadataError::NoMetadata(files.shown(&path)),
            MetadataError::NotInFormat(path, format) => MetadataError::NotInFormat(files.shown(&path), format),
            MetadataError::TwoFormats(mut found) => {
                found.path = files.shown(&found.path);
                MetadataError::TwoFormats(found)
            }
            MetadataError::NoColumn(path, kind, columns) => MetadataError::NoColumn(files.shown(&path), kind, columns),
            MetadataError::CompressedShard(path) => MetadataError::CompressedShard(files.shown(&path)),
            MetadataError::Empty(path) => MetadataError::Empty(files.shown(&path)),
            MetadataError::TooManySpeakers(path) => MetadataError::TooManySpeakers(files.shown(&path)),
            MetadataError::SpeakerRow(path, line) => MetadataError::SpeakerRow(files.shown(&path), line),
            MetadataError::NoAudioDir(path) => MetadataError::NoAudioDir(files.shown(&path)),
            MetadataError::Io(path, error) => match error.downcast::<RemoteError>() {
                Ok(error) => MetadataError::Remote(error),
                Err(error) => MetadataError::Io(files.shown(&path), error),
            },
            other => other,
        }
    }
}

impl fmt::Display for MetadataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetadataError::NotADir(path) => write!(f, "`{}` is not a folder", path.display()),
            MetadataError::NoMetadata(path) => write!(
                f,
                "`{}` has neither metadata.csv nor metadata_train.csv, nor the files of another known format",
                path.display()
            ),
            MetadataError::NotInFormat(path, format) => {
                write!(f, "`{}` is not in the format {format}, which has {}", path.display(), format.files())
            }
            MetadataError::TwoFormats(found) => {
                write!(f, "`{}` can be read in two ways:", found.path.display())?;
                for Preview { format, clips } in &found.previews {
                    for clip in clips {
                        match &clip.speaker {
                            Some(speaker) => {
                                write!(f, "\n  {format}: {}, speaker `{speaker}`: {}", clip.audio, clip.text)?
                            }
                            None => write!(f, "\n  {format}: {}, one speaker: {}", clip.audio, clip.text)?,
                        }
                    }
                }
                Ok(())
            }
            MetadataError::NoColumn(path, kind, columns) => {
                write!(f, "no column of `{}` is known as {kind}, they are: {}", path.display(), columns.join(", "))
            }
            MetadataError::CompressedShard(path) => write!(
                f,
                "`{}` is compressed, so that no clip can be read without all before it: unpack it to a .tar file",
                path.display()
            ),
            MetadataError::Io(path, error) => write!(f, "cannot read `{}`: {error}", path.display()),
            MetadataError::SpeakerRow(path, line) => {
                write!(f, "line {line} of `{}` is not `id|speaker` or `id|speaker|language`", path.display())
            }
            MetadataError::NoAudioDir(path) => {
                write!(f, "`{}`, where the audio should be, is not a folder", path.display())
            }
            MetadataError::TooManySpeakers(path) => {
                write!(f, "`{}` has more than {} speakers", path.display(), u16::MAX)
            }
            MetadataError::NoSuchSpeaker(path, name, known) if known.is_empty() => {
                write!(f, "`{}` names no speakers, so that there is no `{name}`", path.display())
            }
            MetadataError::NoSuchSpeaker(path, name, known) => {
                write!(f, "`{}` has no speaker `{name}`, there are: {}", path.display(), known.join(", "))
            }
            MetadataError::Empty(path) => write!(f, "`{}` has no rows", path.display()),
            MetadataError::NotBuilt(what, feature) => {
                write!(f, "`{what}` cannot be read by this program: build it with --features {feature}")
            }
            MetadataError::NotAnAddress(url) => write!(
                f,
                "`{url}` is not an address that is known: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or https://HOST/PATH"
            ),
            MetadataError::SecretInAddress(url) => write!(
                f,
                "the address `{url}…` has a password or a signature in it: credentials belong into the environment"
            ),
            MetadataError::Remote(error) => write!(f, "{error}"),
            MetadataError::BucketCache(size) => {
                write!(f, "TANDEM_BUCKET_CACHE is `{size}`, which is not a size as 20GB, 500MB or 0")
            }
            MetadataError::NoPackedIndex(url) => {
                write!(f, "`{url}` has no index.jsonl: over https only shards that `tandem pack` wrote are read")
            }
            MetadataError::ParquetColumns(path, kind, columns) => write!(
                f,
                "no column of `{}` is known as {kind}, wanted are audio (bytes, path) and text, found are: {}",
                path.display(),
                columns.join(", ")
            ),
            MetadataError::Parquet(path, why) => {
                write!(f, "`{}` is not a parquet file that can be read: {why}", path.display())
            }
        }
    }
}

impl std::error::Error for MetadataError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            MetadataError::Io(_, error) => Some(error),
            MetadataError::Remote(error) => Some(error),
            _ => None,
        }
    }
}
