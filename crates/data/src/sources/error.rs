//! [`MetadataError`]: why a directory is not a corpus.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::Format;

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
        }
    }
}

impl std::error::Error for MetadataError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            MetadataError::Io(_, error) => Some(error),
            _ => None,
        }
    }
}
