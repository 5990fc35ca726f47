//! `metadata.csv` in the LJSpeech layout, and `speakers.csv`.
//!
//! A corpus may have a million rows, so rows are kept as places in the file (sixteen bytes each) and read when they
//! are needed.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::fault::ClipFault;

/// Tried in this order.
const NAMES: [&str; 2] = ["metadata.csv", "metadata_train.csv"];
/// A line longer than this is not a transcript.
const LONGEST_LINE: u32 = 1 << 20;

/// Why a folder is not a corpus.
#[derive(Debug)]
#[non_exhaustive]
pub enum MetadataError {
    /// The folder does not exist or is not one.
    NotADir(PathBuf),
    /// No metadata file in it.
    NoMetadata(PathBuf),
    /// It cannot be read.
    Io(PathBuf, io::Error),
    /// It has no rows.
    Empty(PathBuf),
    /// More speakers than can be distinguished.
    TooManySpeakers(PathBuf),
    /// A row of the speakers' list is not `id|speaker`.
    SpeakerRow(PathBuf, usize),
    /// The folder with the audio files is not there.
    NoAudioDir(PathBuf),
}

impl fmt::Display for MetadataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetadataError::NotADir(path) => write!(f, "`{}` is not a folder", path.display()),
            MetadataError::NoMetadata(path) => {
                write!(f, "`{}` has neither metadata.csv nor metadata_train.csv", path.display())
            }
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

/// A row: what belongs to one clip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// The clip's id: its file name without the extension.
    pub id: Cow<'a, str>,
    /// The text to say: the normalized column if there is one, else the text.
    pub text: Cow<'a, str>,
}

/// Splits a row `id|text` or `id|text|normalized text`; the end of the line may be there.
///
/// # Errors
///
/// [`ClipFault`] if it is not UTF-8, has other columns, or its id is not a file name.
pub fn parse_row(line: &[u8]) -> Result<Row<'_>, ClipFault> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    let line = std::str::from_utf8(line).map_err(|_| ClipFault::NotUtf8)?;
    // Quotes are ordinary characters (as in LJSpeech itself), unless only they can explain the number of columns.
    let mut fields: Vec<Cow<'_, str>> = line.split('|').map(Cow::Borrowed).collect();
    let opens = |field: &Cow<'_, str>| field.starts_with('"') && field.matches('"').count() % 2 == 1;
    if fields.len() > 3 || fields.iter().any(opens) {
        // A lone quote, as in `6" pipe`, closes nowhere; then it is an ordinary character after all.
        fields = split_quoted(line).unwrap_or(fields);
    }
    let columns = fields.len();
    if !(2..=3).contains(&columns) {
        return Err(ClipFault::Columns(columns));
    }
    let normalized = fields.pop().filter(|text| columns == 2 || !text.trim().is_empty());
    let text = if columns == 3 { fields.pop() } else { None };
    let text = normalized.or(text).unwrap_or_default();
    let id = fields.pop().unwrap_or_default();
    let id = match id {
        Cow::Borrowed(id) => Cow::Borrowed(id.trim()),
        Cow::Owned(id) => Cow::Owned(id.trim().to_owned()),
    };
    if !is_file_name(&id) {
        return Err(ClipFault::BadId);
    }
    Ok(Row { id, text })
}

/// Fields separated by `|`, of which some are in double quotes (doubled inside); `None` if a quote stays open.
fn split_quoted(line: &str) -> Option<Vec<Cow<'_, str>>> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut field = String::new();
            let mut chars = quoted.char_indices().peekable();
            let mut after = None;
            while let Some((at, c)) = chars.next() {
                if c != '"' {
                    field.push(c);
                } else if chars.peek().is_some_and(|&(_, next)| next == '"') {
                    chars.next();
                    field.push('"');
                } else {
                    after = Some(at + 1);
                    break;
                }
            }
            fields.push(Cow::Owned(field));
            match quoted[after?..].split_once('|') {
                Some((_, next)) => rest = next,
                None => return Some(fields),
            }
        } else {
            match rest.split_once('|') {
                Some((field, next)) => {
                    fields.push(Cow::Borrowed(field));
                    rest = next;
                }
                None => {
                    fields.push(Cow::Borrowed(rest));
                    return Some(fields);
                }
            }
        }
    }
}

/// No path, no reference to another folder, nothing that a file system refuses.
fn is_file_name(id: &str) -> bool {
    !id.is_empty() && id.len() <= 240 && id != "." && id != ".." && !id.contains(['/', '\\', '\0'])
}

/// Where a row is in the file.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u64,
    length: u32,
    line: u32,
}

/// The rows of a metadata file.
#[derive(Debug)]
pub struct Metadata {
    path: PathBuf,
    file: File,
    rows: Vec<Place>,
}

impl Metadata {
    /// Finds the metadata file of a corpus and where its rows are.
    ///
    /// # Errors
    ///
    /// [`MetadataError`] if there is no such folder or file, or if it cannot be read or has no rows.
    pub fn open(dir: &Path) -> Result<Metadata, MetadataError> {
        if !dir.is_dir() {
            return Err(MetadataError::NotADir(dir.to_owned()));
        }
        let path = NAMES.iter().map(|name| dir.join(name)).find(|path| path.is_file());
        Metadata::open_file(&path.ok_or_else(|| MetadataError::NoMetadata(dir.to_owned()))?)
    }

    /// The rows to train on: `metadata_train.csv` when the corpus comes with validation rows of its own, so that none
    /// of them is among them.
    ///
    /// # Errors
    ///
    /// As [`Metadata::open`].
    pub fn open_training(dir: &Path) -> Result<Metadata, MetadataError> {
        let training = dir.join("metadata_train.csv");
        if Metadata::open_validation(dir).is_some() && training.is_file() {
            return Metadata::open_file(&training);
        }
        Metadata::open(dir)
    }

    /// The validation rows of a corpus, if it comes with any: `metadata_eval.csv` or `metadata_val.csv`.
    pub fn open_validation(dir: &Path) -> Option<Result<Metadata, MetadataError>> {
        let path =
            ["metadata_eval.csv", "metadata_val.csv"].iter().map(|name| dir.join(name)).find(|path| path.is_file())?;
        Some(Metadata::open_file(&path))
    }

    /// This file, for [`LjSpeech::with_metadata`](crate::LjSpeech::with_metadata).
    ///
    /// # Errors
    ///
    /// [`MetadataError`] if it cannot be read or has no rows.
    pub fn open_file(path: &Path) -> Result<Metadata, MetadataError> {
        let fail = |error| MetadataError::Io(path.to_owned(), error);
        let file = File::open(path).map_err(fail)?;
        let mut reader = BufReader::with_capacity(1 << 16, &file);
        let (mut rows, mut offset) = (Vec::new(), 0u64);
        for number in 1u32.. {
            let (length, blank) = skip_line(&mut reader).map_err(fail)?;
            if length == 0 {
                break;
            }
            if !blank {
                rows.push(Place { offset, length: u32::try_from(length).unwrap_or(u32::MAX), line: number });
            }
            offset += length;
        }
        rows.shrink_to_fit();
        if rows.is_empty() {
            return Err(MetadataError::Empty(path.to_owned()));
        }
        Ok(Metadata { path: path.to_owned(), file, rows })
    }

    /// The file itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Never: a file without rows does not open.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The line a row is on, counted from one.
    ///
    /// # Panics
    ///
    /// If `row` is not below [`Metadata::len`].
    pub fn line(&self, row: u32) -> u64 {
        u64::from(self.rows[row as usize].line)
    }

    /// Reads a row into `buffer`, for [`parse_row`].
    ///
    /// # Errors
    ///
    /// [`ClipFault`] if the row is longer than a transcript can be, or cannot be read any more.
    ///
    /// # Panics
    ///
    /// If `row` is not below [`Metadata::len`].
    pub fn read<'a>(&self, row: u32, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], ClipFault> {
        let row = self.rows[row as usize];
        if row.length > LONGEST_LINE {
            return Err(ClipFault::RowTooLong(row.length));
        }
        buffer.resize(row.length as usize, 0);
        read_at(&self.file, buffer, row.offset).map_err(|error| ClipFault::Audio(error.into()))?;
        Ok(buffer)
    }
}

/// The length of the next line and whether it is blank, without holding it: a file may be one line of gigabytes.
fn skip_line(reader: &mut impl BufRead) -> io::Result<(u64, bool)> {
    let (mut length, mut blank) = (0, true);
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok((length, blank));
        }
        let end = bytes.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
        let part = &bytes[..end.unwrap_or(bytes.len())];
        blank &= part.iter().all(u8::is_ascii_whitespace);
        let taken = part.len();
        length += taken as u64;
        reader.consume(taken);
        if end.is_some() {
            return Ok((length, blank));
        }
    }
}

#[cfg(unix)]
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(windows)]
pub(crate) fn read_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        let read = std::os::windows::fs::FileExt::seek_read(file, buffer, offset)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer = &mut buffer[read..];
        offset += read as u64;
    }
    Ok(())
}

/// Who speaks which clip, from `speakers.csv` (`id|speaker` or `id|speaker|language`).
#[derive(Debug, Default)]
pub(crate) struct Speakers {
    pub(crate) names: Vec<String>,
    by_id: HashMap<String, (u16, Option<String>)>,
}

impl Speakers {
    pub(crate) fn open(dir: &Path) -> Result<Speakers, MetadataError> {
        let path = dir.join("speakers.csv");
        let mut speakers = Speakers::default();
        if !path.is_file() {
            return Ok(speakers);
        }
        let text = std::fs::read_to_string(&path).map_err(|error| MetadataError::Io(path.clone(), error))?;
        let mut numbers: HashMap<&str, u16> = HashMap::new();
        for (line, row) in text.trim_start_matches('\u{FEFF}').lines().enumerate() {
            let mut fields = row.split('|').map(str::trim);
            if row.trim().is_empty() {
                continue;
            }
            let (Some(id), Some(name)) = (fields.next(), fields.next().filter(|name| !name.is_empty())) else {
                return Err(MetadataError::SpeakerRow(path, line + 1));
            };
            if line == 0 && id == "id" {
                continue; // a heading
            }
            let number = match numbers.get(name) {
                Some(&number) => number,
                None => {
                    let number = u16::try_from(speakers.names.len())
                        .map_err(|_| MetadataError::TooManySpeakers(path.clone()))?;
                    speakers.names.push(name.to_owned());
                    numbers.insert(name, number);
                    number
                }
            };
            speakers.by_id.insert(id.to_owned(), (number, fields.next().map(str::to_owned)));
        }
        Ok(speakers)
    }

    /// The speaker and the language of a clip. Without `speakers.csv` everybody is speaker 0.
    pub(crate) fn of(&self, id: &str) -> Result<(u16, Option<&str>), ClipFault> {
        match self.by_id.get(id) {
            Some((speaker, language)) => Ok((*speaker, language.as_deref())),
            None if self.names.is_empty() => Ok((0, None)),
            None => Err(ClipFault::NoSpeaker),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str) -> Result<(String, String), &'static str> {
        parse_row(line.as_bytes())
            .map(|record| (record.id.into_owned(), record.text.into_owned()))
            .map_err(|fault| fault.kind())
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
        assert_eq!(parse_row(b"a|\xFF").map_err(|fault| fault.kind()), Err("not-utf8"));
    }
}
