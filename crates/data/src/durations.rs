//! [`Durations`]: the frames that each token of a clip has, where somebody aligned it before.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::alignment::{Alignment, TextGridError};
use crate::corpus::Corpus;
use crate::fault::ClipFault;

/// The frames that each token of a clip has, for the clips of a corpus that were aligned before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations(HashMap<u32, Vec<u32>>);

/// Why alignments cannot be used.
#[derive(Debug)]
pub enum AlignmentsError {
    /// The directory or a file in it cannot be read.
    Io(PathBuf, io::Error),
    /// The directory has no TextGrid of any clip.
    NoneThere(PathBuf),
    /// A TextGrid is not of its clip.
    Misfit {
        /// The first one.
        path: PathBuf,
        /// What is wrong with it.
        error: TextGridError,
        /// How many do not fit.
        wrong: usize,
        /// Of how many.
        found: usize,
    },
    /// The audio of a clip cannot be read.
    Audio(String, ClipFault),
}

impl fmt::Display for AlignmentsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AlignmentsError::Io(path, error) => write!(f, "cannot read `{}`: {error}", path.display()),
            AlignmentsError::NoneThere(dir) => {
                write!(f, "`{}` has no TextGrid of any clip: they are called ID.TextGrid", dir.display())
            }
            AlignmentsError::Misfit { path, error, wrong, found } => {
                write!(f, "{wrong} of {found} alignments do not fit their clips; the first is `{}`", path.display())?;
                write!(f, "\n  {error}")
            }
            AlignmentsError::Audio(id, fault) => write!(f, "{id}: {fault}"),
        }
    }
}

impl std::error::Error for AlignmentsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AlignmentsError::Io(_, error) => Some(error),
            AlignmentsError::Misfit { error, .. } => Some(error),
            AlignmentsError::Audio(_, fault) => Some(fault),
            AlignmentsError::NoneThere(_) => None,
        }
    }
}

/// Where the TextGrid of a clip is.
pub fn text_grid_path(dir: &Path, id: &str) -> PathBuf {
    dir.join(format!("{id}.TextGrid"))
}

impl Durations {
    /// From the TextGrids of a directory, for those of `clips` that have one.
    ///
    /// # Errors
    ///
    /// [`AlignmentsError`] if one cannot be read or does not fit its clip.
    pub fn read(dir: &Path, corpus: &Corpus, clips: &[u32]) -> Result<Durations, AlignmentsError> {
        // Else a wrong name would look like a directory without alignments.
        std::fs::read_dir(dir).map_err(|error| AlignmentsError::Io(dir.to_owned(), error))?;
        let (sizes, vocabulary) = (corpus.sizes(), &corpus.frontend().vocabulary);
        let (mut durations, mut first, mut wrong) = (HashMap::new(), None, 0);
        for &clip in clips {
            let (id, _) = corpus.name(clip);
            let path = text_grid_path(dir, &id);
            let unreadable = |error| AlignmentsError::Io(path.clone(), error);
            let bytes = match std::fs::read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(unreadable)?,
            };
            let times = corpus.frame_times(clip).map_err(|fault| AlignmentsError::Audio(id, fault))?;
            let ids = corpus.token_ids(clip).map_err(unreadable)?;
            let symbols: Vec<&str> = vocabulary.decode(&ids).collect();
            let read = Alignment::from_text_grid(&bytes)
                .and_then(|alignment| alignment.durations(&symbols, &times, sizes[clip as usize].frames));
            match read {
                Ok(read) => {
                    durations.insert(clip, read);
                }
                Err(error) => {
                    wrong += 1;
                    first.get_or_insert((path, error));
                }
            }
        }
        match first {
            Some((path, error)) => Err(AlignmentsError::Misfit { path, error, wrong, found: wrong + durations.len() }),
            None => Ok(Durations(durations)),
        }
    }

    /// The frames of each token of a clip, if that was aligned.
    pub fn of(&self, clip: u32) -> Option<&[u32]> {
        self.0.get(&clip).map(Vec::as_slice)
    }

    /// How many clips were aligned.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no clip was.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
