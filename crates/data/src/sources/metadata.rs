//! [`Metadata`]: the rows of a list of clips.
//!
//! A corpus may have millions of rows, so a row is kept as its place in the file (eight bytes) and read when it is needed.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::error::MetadataError;
use crate::fault::ClipFault;

/// A row longer than this is not a transcript.
const LONGEST_ROW: u64 = 1 << 20;

/// Where the bytes of a list are.
#[derive(Debug)]
enum Bytes {
    File(File),
    /// A list that was made, of file names say.
    Memory(Vec<u8>),
}

/// The rows of a list of clips.
#[derive(Debug)]
pub struct Metadata {
    path: PathBuf,
    bytes: Bytes,
    /// Where each row begins, and where the last one ends.
    starts: Vec<u64>,
    /// Rows before which lines are blank or belong to a longer row, and how many of those there are up to there: few.
    extra_lines: Vec<(u32, u32)>,
    /// The separator, if fields may be in quotes and go over several lines.
    quoted: Option<u8>,
}

impl Metadata {
    /// A file with one row a line.
    ///
    /// # Errors
    ///
    /// [`MetadataError`] if it cannot be read or has no rows.
    pub fn open_file(path: &Path) -> Result<Metadata, MetadataError> {
        Metadata::open_rows(path, None)
    }

    /// A file whose fields are separated by `separator`; those in double quotes may contain ends of lines.
    pub(super) fn open_quoted(path: &Path, separator: u8) -> Result<Metadata, MetadataError> {
        Metadata::open_rows(path, Some(separator))
    }

    fn open_rows(path: &Path, quoted: Option<u8>) -> Result<Metadata, MetadataError> {
        let fail = |error| MetadataError::Io(path.to_owned(), error);
        let file = File::open(path).map_err(fail)?;
        let reader = BufReader::with_capacity(1 << 16, &file);
        let (starts, extra_lines) = find_rows(reader, quoted).map_err(fail)?;
        Metadata::checked(path, Bytes::File(file), starts, extra_lines, quoted)
    }

    /// A list that was made; `path` is what messages name.
    pub(super) fn in_memory(path: &Path, bytes: Vec<u8>) -> Result<Metadata, MetadataError> {
        let fail = |error| MetadataError::Io(path.to_owned(), error);
        let (starts, extra_lines) = find_rows(&bytes[..], None).map_err(fail)?;
        Metadata::checked(path, Bytes::Memory(bytes), starts, extra_lines, None)
    }

    fn checked(
        path: &Path,
        bytes: Bytes,
        starts: Vec<u64>,
        extra_lines: Vec<(u32, u32)>,
        quoted: Option<u8>,
    ) -> Result<Metadata, MetadataError> {
        if starts.len() < 2 {
            return Err(MetadataError::Empty(path.to_owned()));
        }
        Ok(Metadata { path: path.to_owned(), bytes, starts, extra_lines, quoted })
    }

    /// The same without its first row, a header.
    pub(super) fn without_header(mut self) -> Result<Metadata, MetadataError> {
        self.starts.remove(0);
        // Row n was row n + 1: one line more is passed over.
        for (row, lines) in &mut self.extra_lines {
            (*row, *lines) = (row.saturating_sub(1), *lines + 1);
        }
        if self.extra_lines.first().is_none_or(|&(row, _)| row > 0) {
            self.extra_lines.insert(0, (0, 1));
        }
        Metadata::checked(&self.path, self.bytes, self.starts, self.extra_lines, self.quoted)
    }

    /// The file itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Never: a list without rows does not open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What its rows take in memory: eight bytes each, unless lines between them are blank.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&self.starts[..]) + size_of_val(&self.extra_lines[..])
    }

    /// The line a row begins on, counted from one.
    pub fn line(&self, row: u32) -> u64 {
        let before = self.extra_lines.partition_point(|&(other, _)| other <= row);
        let extra = before.checked_sub(1).map_or(0, |at| self.extra_lines[at].1);
        u64::from(row) + u64::from(extra) + 1
    }

    /// Reads a row into `buffer`, without the end of its line.
    ///
    /// # Errors
    ///
    /// [`ClipFault`] if the row is longer than a transcript can be, or cannot be read any more.
    ///
    /// # Panics
    ///
    /// If `row` is not below [`Metadata::len`].
    pub fn read<'a>(&self, row: u32, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], ClipFault> {
        let (start, end) = (self.starts[row as usize], self.starts[row as usize + 1]);
        let length = end - start;
        buffer.resize(length.min(LONGEST_ROW) as usize, 0);
        match &self.bytes {
            Bytes::File(file) => read_at(file, buffer, start).map_err(|error| ClipFault::Audio(error.into()))?,
            Bytes::Memory(bytes) => {
                let length = buffer.len();
                buffer.copy_from_slice(&bytes[start as usize..][..length]);
            }
        }
        // Blank lines behind a row belong to its place in the file.
        let kept = match self.quoted {
            Some(_) => buffer.trim_ascii_end().len(),
            None => buffer.iter().position(|&byte| byte == b'\n').unwrap_or(buffer.len()),
        };
        if length > LONGEST_ROW && kept == buffer.len() {
            return Err(ClipFault::RowTooLong(u32::try_from(length).unwrap_or(u32::MAX)));
        }
        let row = &buffer[..kept];
        Ok(row.strip_suffix(b"\r").unwrap_or(row))
    }
}

/// Where rows begin and the last one ends, and the rows before which lines are passed over.
fn find_rows(mut reader: impl BufRead, quoted: Option<u8>) -> io::Result<(Vec<u64>, Vec<(u32, u32)>)> {
    let (mut starts, mut extra_lines) = (Vec::new(), Vec::new());
    let (mut offset, mut extra, mut noted) = (0u64, 0u32, 0u32);
    loop {
        let (length, blank, lines) = skip_row(&mut reader, quoted)?;
        if length == 0 {
            break;
        }
        if blank {
            extra = extra.saturating_add(lines);
        } else {
            if extra > noted {
                extra_lines.push((starts.len() as u32, extra));
                noted = extra;
            }
            starts.push(offset);
            extra = extra.saturating_add(lines - 1);
        }
        offset += length;
    }
    starts.push(offset);
    starts.shrink_to_fit();
    Ok((starts, extra_lines))
}

/// Where a reader of quoted fields is.
#[derive(Clone, Copy, PartialEq)]
enum Quotes {
    FieldStart,
    Plain,
    Inside,
    /// A quote inside quotes: the end of them, or the first of two.
    Closing,
}

/// The length of the next row, whether it is blank, and its lines, without holding it: a file may be one row of gigabytes.
fn skip_row(reader: &mut impl BufRead, quoted: Option<u8>) -> io::Result<(u64, bool, u32)> {
    let (mut length, mut blank, mut lines, mut quotes) = (0, true, 0u32, Quotes::FieldStart);
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok((length, blank, lines.max(1)));
        }
        let mut end = None;
        match quoted {
            None => end = bytes.iter().position(|&byte| byte == b'\n').map(|at| at + 1),
            Some(separator) => {
                for (at, &byte) in bytes.iter().enumerate() {
                    quotes = match (quotes, byte) {
                        (Quotes::Inside, b'"') => Quotes::Closing,
                        (Quotes::FieldStart | Quotes::Closing, b'"') | (Quotes::Inside, _) => Quotes::Inside,
                        (_, byte) if byte == separator || byte == b'\n' => Quotes::FieldStart,
                        _ => Quotes::Plain,
                    };
                    lines = lines.saturating_add(u32::from(byte == b'\n'));
                    if byte == b'\n' && quotes != Quotes::Inside {
                        end = Some(at + 1);
                        break;
                    }
                }
            }
        }
        let part = &bytes[..end.unwrap_or(bytes.len())];
        blank &= part.iter().all(u8::is_ascii_whitespace);
        let taken = part.len();
        length += taken as u64;
        reader.consume(taken);
        if end.is_some() {
            return Ok((length, blank, lines.max(1)));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(metadata: &Metadata) -> Vec<(u64, String)> {
        let mut buffer = Vec::new();
        let mut row = |row| String::from_utf8_lossy(metadata.read(row, &mut buffer).expect("a row")).into_owned();
        (0..metadata.len() as u32).map(|n| (metadata.line(n), row(n))).collect()
    }

    #[test]
    fn rows_are_found_with_their_lines() {
        let list = |text: &str| Metadata::in_memory(Path::new("list"), text.into()).expect("rows");
        let wanted = [(1, "a"), (3, "b"), (6, "c")].map(|(line, row)| (line, row.to_owned()));
        assert_eq!(rows(&list("a\r\n\nb\n \n\nc\n\n")), wanted);
        assert_eq!(rows(&list("a\n\nb\n\n\nc").without_header().expect("rows")), wanted[1..]);
        let lines = |text: &str| {
            rows(&list(text).without_header().expect("rows")).iter().map(|row| row.0).collect::<Vec<u64>>()
        };
        assert_eq!(lines("h\na\nb"), [2, 3]);
        assert!(Metadata::in_memory(Path::new("list"), b"\n  \n".to_vec()).is_err());
        assert!(list("h\n").without_header().is_err());
    }

    #[test]
    fn quoted_rows_may_go_over_lines() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("list.csv");
        let text = "a,\"one\ntwo \"\"x\"\",\n\",z\n\nb,6\" pipe,\"c\"\nc,\"d\"\n";
        std::fs::write(&path, text).expect("writable");
        let found = rows(&Metadata::open_quoted(&path, b',').expect("rows"));
        let wanted = [(1, "a,\"one\ntwo \"\"x\"\",\n\",z"), (5, "b,6\" pipe,\"c\""), (6, "c,\"d\"")];
        assert_eq!(found, wanted.map(|(line, row)| (line, row.to_owned())));
    }
}
