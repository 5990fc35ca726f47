//! [`SegmentError`].

use std::fmt;
use std::io;
use std::path::PathBuf;

use tandem_audio::AudioError;

use super::SkippedSpeech;
use super::captions::CaptionsError;

/// Why recordings were not cut. Nothing that was there before has changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum SegmentError {
    /// A directory without WAV, FLAC, MP3 or OGG files.
    NoRecordings(PathBuf),
    /// A recording cannot be read to its end.
    Recording(PathBuf, AudioError),
    /// Two recordings would give clips of the same names.
    SameName(PathBuf, PathBuf),
    /// A file has no captions.
    Captions(PathBuf, CaptionsError),
    /// Several files could be the captions of a recording.
    SeveralCaptions(PathBuf, Vec<PathBuf>),
    /// One file of captions for several recordings.
    OneCaptions(PathBuf, usize),
    /// Another number of texts than of clips without captions.
    TextCount {
        /// The file of the texts.
        path: PathBuf,
        /// Lines that are not empty.
        texts: usize,
        /// Clips.
        clips: usize,
    },
    /// A file of texts is neither UTF-8 nor UTF-16, first in this line.
    TextEncoding(PathBuf, usize),
    /// The shortest clip is more than half as long as the longest.
    Lengths(f64, f64),
    /// Nothing was found that could be a clip; the first reasons.
    NothingToCut(Vec<SkippedSpeech>),
    /// There is something else already.
    NotEmpty(PathBuf),
    /// Another process writes there.
    Locked(PathBuf),
    /// Something cannot be read or written.
    Io(PathBuf, io::Error),
    /// It was stopped; the same call resumes.
    Stopped,
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SegmentError::NoRecordings(path) => {
                write!(f, "`{}` has no WAV, FLAC, MP3 or OGG file", path.display())
            }
            SegmentError::Recording(path, error) => write!(f, "{}: {error}", path.display()),
            SegmentError::SameName(first, second) => {
                let (first, second) = (first.display(), second.display());
                write!(f, "the clips of `{first}` and `{second}` would have the same names")
            }
            SegmentError::Captions(path, error) => write!(f, "{}: {error}", path.display()),
            SegmentError::SeveralCaptions(path, found) => {
                write!(f, "several files could be the captions of `{}`", path.display())?;
                found.iter().try_for_each(|found| write!(f, "\n  {}", found.display()))
            }
            SegmentError::OneCaptions(path, recordings) => {
                write!(f, "`{}` is one file of captions, but there are {recordings} recordings", path.display())
            }
            SegmentError::TextCount { path, texts, clips } => {
                write!(f, "`{}` has {texts} texts, but there are {clips} clips without captions", path.display())
            }
            SegmentError::TextEncoding(path, line) => {
                write!(f, "{}: line {line} is neither UTF-8 nor UTF-16", path.display())
            }
            SegmentError::Lengths(least, most) => {
                write!(f, "clips of {least} to {most} s: the longest must be at least twice as long as the shortest")
            }
            SegmentError::NothingToCut(first) => {
                write!(f, "there is nothing that could be a clip")?;
                (first.iter()).try_for_each(|it| write!(f, "\n  {}, {}: {}", it.path.display(), it.place, it.reason))
            }
            SegmentError::NotEmpty(path) => {
                write!(f, "`{}` is there already and was not begun with this command", path.display())
            }
            SegmentError::Locked(path) => write!(f, "another process writes to `{}`", path.display()),
            SegmentError::Io(path, error) => write!(f, "cannot write `{}`: {error}", path.display()),
            SegmentError::Stopped => write!(f, "stopped"),
        }
    }
}

impl std::error::Error for SegmentError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SegmentError::Recording(_, error) => Some(error),
            SegmentError::Captions(_, error) => Some(error),
            SegmentError::Io(_, error) => Some(error),
            _ => None,
        }
    }
}
