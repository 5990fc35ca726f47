//! The files of an index: their names, their header, and reading them without trusting a byte.

use std::fmt;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::ROWS_AT_ONCE;
use super::entry::{ENTRY_BYTES, IndexEntry, PLACE_BYTES, RowPlace};

pub(super) const MAGIC: &[u8; 8] = b"TNDMIDX6";
pub(super) const HEADER_BYTES: usize = 64;

/// Why a file is not an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexError {
    /// Shorter than it says, or not an index at all.
    Damaged,
    /// Made with other settings.
    OtherSettings,
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IndexError::Damaged => write!(f, "the index is damaged"),
            IndexError::OtherSettings => write!(f, "the index was made with other settings"),
        }
    }
}

impl std::error::Error for IndexError {}

/// What the file of an index holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexFile {
    /// One for each row of the metadata.
    pub entries: Vec<IndexEntry>,
    /// The symbols that tokens are numbers of.
    pub symbols: Vec<String>,
    /// The languages that texts are in, by their codes.
    pub languages: Vec<String>,
    /// How many tokens there are.
    pub tokens: u64,
    /// The checksum of the tokens' file.
    pub tokens_hash: u64,
}

/// The first bytes of an index.
pub(super) struct Header {
    pub(super) rows: u64,
    symbols_bytes: u64,
    tokens: u64,
    tokens_hash: u64,
    body_hash: u64,
}

impl Header {
    pub(super) fn parse(header: &[u8; HEADER_BYTES], settings: u64) -> Result<Header, IndexError> {
        let u64_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        if &header[..8] != MAGIC || u64_at(56) != xxh3_64(&header[..56]) {
            return Err(IndexError::Damaged);
        }
        if u64_at(8) != settings {
            return Err(IndexError::OtherSettings);
        }
        let (rows, symbols_bytes, tokens) = (u64_at(16), u64_at(24), u64_at(32));
        Ok(Header { rows, symbols_bytes, tokens, tokens_hash: u64_at(40), body_hash: u64_at(48) })
    }
}

/// Reads an index of so many bytes, a part at a time.
pub(super) fn read_index(mut reader: impl Read, length: u64, settings: u64) -> Result<IndexFile, IndexError> {
    let damaged = |_| IndexError::Damaged;
    let mut header = [0; HEADER_BYTES];
    reader.read_exact(&mut header).map_err(damaged)?;
    let header = Header::parse(&header, settings)?;
    // Before anything is made that is as large as it says.
    let rows_bytes = header.rows.checked_mul((ENTRY_BYTES + PLACE_BYTES) as u64);
    let wanted = rows_bytes.and_then(|bytes| bytes.checked_add(header.symbols_bytes)?.checked_add(HEADER_BYTES as u64));
    let rows = usize::try_from(header.rows).ok().filter(|_| wanted == Some(length)).ok_or(IndexError::Damaged)?;
    let (mut hash, mut entries, mut buffer) = (Xxh3::new(), Vec::with_capacity(rows), Vec::new());
    for start in (0..rows).step_by(ROWS_AT_ONCE) {
        buffer.resize(ROWS_AT_ONCE.min(rows - start) * ENTRY_BYTES, 0);
        reader.read_exact(&mut buffer).map_err(damaged)?;
        hash.update(&buffer);
        entries.extend(buffer.chunks_exact(ENTRY_BYTES).map(IndexEntry::from_bytes));
    }
    for start in (0..rows).step_by(ROWS_AT_ONCE) {
        buffer.resize(ROWS_AT_ONCE.min(rows - start) * PLACE_BYTES, 0);
        reader.read_exact(&mut buffer).map_err(damaged)?;
        hash.update(&buffer);
        let inside = |(entry, bytes): (&IndexEntry, &[u8])| {
            let end = RowPlace::from_bytes(bytes).tokens_at.checked_add(u64::from(entry.tokens));
            end.is_some_and(|end| end <= header.tokens)
        };
        if !entries[start..].iter().zip(buffer.chunks_exact(PLACE_BYTES)).all(inside) {
            return Err(IndexError::Damaged);
        }
    }
    buffer.clear();
    reader.take(header.symbols_bytes).read_to_end(&mut buffer).map_err(damaged)?;
    hash.update(&buffer);
    if hash.digest() != header.body_hash {
        return Err(IndexError::Damaged);
    }
    let (symbols, languages): (Vec<String>, Vec<String>) =
        serde_json::from_slice(&buffer).map_err(|_| IndexError::Damaged)?;
    if symbols.len() > usize::from(u16::MAX) + 1 {
        return Err(IndexError::Damaged);
    }
    Ok(IndexFile { entries, symbols, languages, tokens: header.tokens, tokens_hash: header.tokens_hash })
}

/// A file whose content is hashed while it is written.
pub(super) struct Hashed {
    pub(super) file: BufWriter<tempfile::NamedTempFile>,
    hash: Xxh3,
}

impl Hashed {
    pub(super) fn new(file: tempfile::NamedTempFile) -> Hashed {
        Hashed { file: BufWriter::with_capacity(1 << 18, file), hash: Xxh3::new() }
    }

    pub(super) fn finish(self) -> io::Result<(tempfile::NamedTempFile, u64)> {
        Ok((self.file.into_inner().map_err(|error| error.into_error())?, self.hash.digest()))
    }
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

pub(super) fn index_path(dir: &Path, settings: u64) -> PathBuf {
    dir.join(format!("index-{settings:016x}"))
}

pub(super) fn tokens_path(dir: &Path, settings: u64) -> PathBuf {
    dir.join(format!("tokens-{settings:016x}"))
}
