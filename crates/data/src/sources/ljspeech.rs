//! The LJSpeech layout: `metadata.csv` with rows `id|text` or `id|text|normalized text`, `wavs/ID.wav` (or .flac, .mp3,
//! .ogg), and `speakers.csv` if there are several.

use std::borrow::Cow;

use super::fields::{Fields, is_file_name, split_piped, trimmed, utf8};
use super::listed::{NAMED, Rows};
use crate::fault::ClipFault;

/// Rows `id|text` or `id|text|normalized text`.
#[derive(Debug)]
pub(super) struct LjSpeech;

impl Rows for LjSpeech {
    fn fields<'a>(&self, row: &'a [u8]) -> Result<Fields<'a>, ClipFault> {
        let (id, mut rest) = split(row)?;
        let last = rest.pop().unwrap_or_default();
        let text = match rest.pop() {
            // An empty normalized column falls back to the text.
            Some(text) if last.trim().is_empty() => text,
            _ => last,
        };
        Ok(Fields { audio: id.clone(), id, text, ..Fields::default() })
    }

    fn name_speakers(&self) -> bool {
        false
    }

    fn extensions(&self) -> &'static [&'static str] {
        NAMED
    }
}

/// The id of a row that begins with one, and the one or two columns behind it.
pub(super) fn split(row: &[u8]) -> Result<(Cow<'_, str>, Vec<Cow<'_, str>>), ClipFault> {
    let mut fields = split_piped(utf8(row)?, 3);
    if !(2..=3).contains(&fields.len()) {
        return Err(ClipFault::Columns(fields.len()));
    }
    let id = trimmed(fields.remove(0));
    if !is_file_name(&id) {
        return Err(ClipFault::BadId);
    }
    Ok((id, fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str) -> Result<(String, String), &'static str> {
        let row = LjSpeech.fields(line.as_bytes()).map_err(|fault| fault.kind())?;
        Ok((row.id.into_owned(), row.text.into_owned()))
    }

    fn row(id: &str, text: &str) -> Result<(String, String), &'static str> {
        Ok((id.to_owned(), text.to_owned()))
    }

    #[test]
    fn rows_are_read_as_people_write_them() {
        assert_eq!(fields("a|Hello 2|hello two\n"), row("a", "hello two"));
        assert_eq!(fields("a|Hello\r\n"), row("a", "Hello"));
        assert_eq!(fields("\u{FEFF}a|x"), row("a", "x"));
        assert_eq!(fields("a|Hello|"), row("a", "Hello"), "an empty normalized column falls back to the text");
        assert_eq!(fields("a||"), row("a", ""));
        assert_eq!(fields(" a |\"quoted\" and more"), row("a", "\"quoted\" and more"));
        assert_eq!(fields("a|\"one | two\"|\"one or \"\"two\"\"\""), row("a", "one or \"two\""));
        assert_eq!(fields("a|\"one | two | three\""), row("a", "one | two | three"));
        assert_eq!(fields("a|\"one | two\""), row("a", "one | two"));
        assert_eq!(fields("a|\"6 inches\" is 6\"|six"), row("a", "six"));
        assert_eq!(fields("a|\"Open|open"), row("a", "open"), "a lone quote is a character");
    }

    #[test]
    fn rows_that_are_none_say_why() {
        assert_eq!(fields("a"), Err("columns"));
        assert_eq!(fields("a|b|c|d"), Err("columns"));
        assert_eq!(fields("|text"), Err("bad-id"));
        assert_eq!(fields("../../etc/passwd|text"), Err("bad-id"));
        assert_eq!(LjSpeech.fields(b"a|\xFF").map_err(|fault| fault.kind()), Err("not-utf8"));
    }
}
