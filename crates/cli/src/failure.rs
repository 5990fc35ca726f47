//! How a command fails: an exit code, what went wrong, and what to do about it.

use crate::errors::{Explain, Text};
use crate::messages::Messages;

/// The command line or the input is wrong: nothing was done.
pub(crate) const USAGE: u8 = 2;
/// The work itself failed.
pub(crate) const FAILED: u8 = 1;
/// Interrupted by the user (128 + SIGINT), after everything worth keeping was written.
pub(crate) const INTERRUPTED: u8 = 130;

/// Every exit code, and the message that says what it means.
pub(crate) const CODES: [(u8, &str); 4] =
    [(0, "code-done"), (FAILED, "code-failed"), (USAGE, "code-usage"), (INTERRUPTED, "code-interrupted")];

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// For scripts, in English.
    message: String,
    /// For people, where it is more than a text that is looked up by its English.
    text: Option<Text>,
    hints: Vec<String>,
    /// Another rank of the run failed: the one that reports it, besides that one itself.
    pub(crate) reported_by: Option<usize>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), text: None, hints: Vec::new(), reported_by: None }
    }

    /// An error of a library.
    pub(crate) fn of(code: u8, error: &impl Explain) -> Failure {
        Failure { text: Some(error.text()), ..Failure::new(code, error.to_string()) }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(USAGE, message)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hints.push(hint.into());
        self
    }

    /// The same about another rank of the run: not every rank need report it.
    pub(crate) fn reported_by(mut self, rank: usize) -> Failure {
        self.reported_by = Some(rank);
        self
    }

    /// What to do about an error of the system, where something was to be written.
    pub(crate) fn hint_about(self, error: &std::io::Error, messages: &Messages) -> Failure {
        use std::io::ErrorKind::*;
        self.hint(messages.get(match error.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => "hint-disk-full",
            ReadOnlyFilesystem | PermissionDenied => "hint-not-writable",
            NotFound | NotADirectory | AlreadyExists | IsADirectory => "hint-no-folder",
            _ => "hint-disk-failed",
        }))
    }

    /// The same, with the place where it went wrong.
    pub(crate) fn at(mut self, place: &dyn std::fmt::Display) -> Failure {
        self.message = format!("{place}: {}", self.message);
        self.text = self.text.map(|text| {
            let place = Text::Verbatim(place.to_string());
            Text::Message("error-at", vec![("path", place), ("reason", text)])
        });
        self
    }

    /// What went wrong, in English.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// For scripts.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::json!({"event": "error", "code": self.code, "message": self.message, "hints": self.hints})
    }

    pub(crate) fn render(&self, messages: &Messages, terminal: bool) -> String {
        let message = self.text.as_ref().map(|text| text.render(messages));
        let message = message.unwrap_or_else(|| messages.text(self.message.clone()));
        let color = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let (red, blue, plain) = if color { ("\x1b[1;31m", "\x1b[1;34m", "\x1b[0m") } else { ("", "", "") };
        let mut text = format!("{red}{}{plain}: {}", messages.get("error"), message);
        for hint in &self.hints {
            text += &format!("\n{blue}{}{plain}: {}", messages.get("hint"), messages.text(hint.clone()));
        }
        text
    }
}
