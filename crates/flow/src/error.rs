//! Failures: what a stage reports, and what arrives at the consumer.

use std::error::Error as StdError;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::budget::OverLimit;
use crate::envelope::Cursor;

type Cause = Box<dyn StdError + Send + Sync>;

/// What a stage returns when a batch cannot be made. An error type converts into it with `?`, a boxed error or a
/// message through [`Fault::new`].
#[derive(Debug)]
#[must_use = "a fault counts only when a stage returns it"]
pub struct Fault {
    /// The cause.
    pub cause: Cause,
    /// The sample at fault, if one is known.
    pub sample: Option<String>,
    /// The file at fault, if one is known.
    pub path: Option<PathBuf>,
    /// Must end the flow even if [`Flow::tolerate`](crate::Flow::tolerate) is asked to skip bad batches.
    pub fatal: bool,
}

impl Fault {
    /// A fault with a message or an error as its cause.
    pub fn new(cause: impl Into<Cause>) -> Fault {
        Fault { cause: cause.into(), sample: None, path: None, fatal: false }
    }

    /// Names the sample at fault.
    pub fn sample(mut self, sample: impl Into<String>) -> Fault {
        self.sample = Some(sample.into());
        self
    }

    /// Names the file at fault.
    pub fn path(mut self, path: impl Into<PathBuf>) -> Fault {
        self.path = Some(path.into());
        self
    }

    /// Marks the fault as one that no tolerance may skip.
    pub fn fatal(mut self) -> Fault {
        self.fatal = true;
        self
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Fault {
    fn from(error: E) -> Fault {
        Fault::new(error)
    }
}

/// A failure at its place in the order of batches. Boxed, because every item of a flow carries room for one.
#[derive(Debug)]
pub struct Error(Box<ErrorDetails>);

/// What an [`Error`] says; reached by dereferencing it.
#[derive(Debug)]
pub struct ErrorDetails {
    /// The stage, queue or source where it happened.
    pub stage: Arc<str>,
    /// The batch, if it happened to one.
    pub cursor: Option<Cursor>,
    /// The sample at fault, if the stage named it.
    pub sample: Option<String>,
    /// The file at fault, if the stage named it.
    pub path: Option<PathBuf>,
    /// What happened.
    pub kind: ErrorKind,
}

/// What happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The stage returned a fault that concerns one batch.
    Failed(Cause),
    /// The stage returned a fault that ends the flow.
    Fatal(Cause),
    /// The stage or the source panicked, with this message.
    Panicked(String),
    /// A batch needs more memory than its lane's hard limit.
    OverLimit(OverLimit),
    /// More batches failed than are tolerated.
    TooManyFaults {
        /// Failed batches so far.
        faults: u64,
        /// Batches seen so far.
        seen: u64,
        /// The last failure.
        last: Error,
    },
    /// Nothing arrived for this long; the stage named is the one that has been at work longest.
    Stalled(Duration),
    /// A thread ended without saying why: a bug in the engine, reported rather than taken for the end of data.
    Lost,
    /// The run was asked to stop, for this reason.
    Stopped(Arc<str>),
}

impl Error {
    pub(crate) fn new(stage: &Arc<str>, cursor: Option<Cursor>, kind: ErrorKind) -> Error {
        Error(Box::new(ErrorDetails { stage: stage.clone(), cursor, sample: None, path: None, kind }))
    }

    /// What a stage of this name reports about a batch.
    pub fn from_fault(stage: &Arc<str>, cursor: Cursor, fault: Fault) -> Error {
        let kind = if fault.fatal { ErrorKind::Fatal(fault.cause) } else { ErrorKind::Failed(fault.cause) };
        let (sample, path) = (fault.sample, fault.path);
        Error(Box::new(ErrorDetails { stage: stage.clone(), cursor: Some(cursor), sample, path, kind }))
    }

    /// Whether the flow can continue after it (only a stage's ordinary fault is of that kind).
    pub fn is_skippable(&self) -> bool {
        matches!(self.kind, ErrorKind::Failed(_))
    }
}

impl std::ops::Deref for Error {
    type Target = ErrorDetails;

    fn deref(&self) -> &ErrorDetails {
        &self.0
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.stage)?;
        if let Some(cursor) = self.cursor {
            write!(f, ", {cursor}")?;
        }
        if let Some(sample) = &self.sample {
            write!(f, ", sample `{sample}`")?;
        }
        if let Some(path) = &self.path {
            write!(f, ", file `{}`", path.display())?;
        }
        write!(f, ": ")?;
        match &self.kind {
            ErrorKind::Failed(cause) | ErrorKind::Fatal(cause) => write!(f, "{cause}"),
            ErrorKind::Panicked(message) => write!(f, "panicked: {message}"),
            ErrorKind::OverLimit(over) => write!(f, "{over}"),
            ErrorKind::TooManyFaults { faults, seen, last } => {
                write!(f, "{faults} of {seen} batches failed, more than is tolerated; the last: {last}")
            }
            ErrorKind::Stalled(waited) => write!(f, "no batch arrived for {:.1} s", waited.as_secs_f64()),
            ErrorKind::Lost => write!(f, "its thread ended without a word"),
            ErrorKind::Stopped(reason) => write!(f, "stopped: {reason}"),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.kind {
            ErrorKind::Failed(cause) | ErrorKind::Fatal(cause) => Some(cause.as_ref()),
            ErrorKind::TooManyFaults { last, .. } => Some(last),
            ErrorKind::OverLimit(over) => Some(over),
            _ => None,
        }
    }
}

/// The words of a caught panic.
pub(crate) fn panic_message(payload: Box<dyn std::any::Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => match payload.downcast::<&'static str>() {
            Ok(message) => (*message).to_owned(),
            Err(_) => "no message".to_owned(),
        },
    }
}
