//! [`CorpusError`]: why a corpus cannot be opened.

use std::fmt;

use tandem_text::FrontendError;

use crate::fault::FaultReport;
use crate::remote::RemoteError;
use crate::sources::MetadataError;

/// Why a corpus cannot be opened.
#[derive(Debug)]
pub enum CorpusError {
    /// Its metadata cannot be used.
    Metadata(MetadataError),
    /// Its texts cannot be turned into symbols.
    Frontend(FrontendError),
    /// Not one clip can be used; these are the first reasons.
    NothingUsable(Vec<FaultReport>),
    /// More clips are skipped than is tolerated.
    TooMany {
        /// How many.
        faults: usize,
        /// Of how many.
        rows: usize,
        /// The first of them.
        first: Vec<FaultReport>,
    },
    /// A bucket cannot be read; what was measured is kept.
    Remote(RemoteError),
    /// Stopped by the user.
    Stopped,
}

impl fmt::Display for CorpusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CorpusError::Metadata(error) => write!(f, "{error}"),
            CorpusError::Frontend(error) => write!(f, "{error}"),
            CorpusError::NothingUsable(reports) => {
                write!(f, "none of the clips can be used")?;
                list(f, reports)
            }
            CorpusError::TooMany { faults, rows, first } => {
                write!(f, "{faults} of {rows} clips cannot be used, more than is tolerated")?;
                list(f, first)
            }
            CorpusError::Remote(error) => write!(f, "{error}"),
            CorpusError::Stopped => write!(f, "stopped"),
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, reports: &[FaultReport]) -> fmt::Result {
    for report in reports {
        write!(f, "\n  {}: {}", report.id, report.reason)?;
    }
    Ok(())
}

impl std::error::Error for CorpusError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CorpusError::Metadata(error) => Some(error),
            CorpusError::Frontend(error) => Some(error),
            CorpusError::Remote(error) => Some(error),
            _ => None,
        }
    }
}

impl From<FrontendError> for CorpusError {
    fn from(error: FrontendError) -> Self {
        CorpusError::Frontend(error)
    }
}

impl From<MetadataError> for CorpusError {
    fn from(error: MetadataError) -> Self {
        CorpusError::Metadata(error)
    }
}
