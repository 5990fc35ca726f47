//! [`Places`] and [`Tokens`]: what of an index is not in memory but in its files, or in temporary ones while it is made.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::ops::Range;
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use super::entry::{PLACE_BYTES, RowPlace};
use super::format::IndexFile;
use crate::sources::read_at;

/// Marks the place of tokens that were made just now and are in no file yet.
pub(super) const FRESH: u64 = 1 << 63;

/// Bytes that are read at any place: of a file, or in memory where none can be written.
#[derive(Debug)]
pub(super) enum Stored {
    File(File),
    Memory(Vec<u8>),
}

impl Stored {
    /// A temporary file that has no name, in this directory.
    pub(super) fn temporary(dir: &Path) -> Stored {
        let file = std::fs::create_dir_all(dir).and_then(|()| tempfile::tempfile_in(dir));
        file.map_or_else(|_| Stored::Memory(Vec::new()), Stored::File)
    }

    pub(super) fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        match self {
            Stored::File(file) => read_at(file, buffer, at),
            Stored::Memory(bytes) => {
                let there = bytes.get(at as usize..).and_then(|rest| rest.get(..buffer.len()));
                buffer.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }

    /// Writes bytes, behind the end too. A disk that is full turns a file into memory.
    pub(super) fn write_at(&mut self, bytes: &[u8], at: u64) {
        if let Stored::File(file) = self {
            let written = file.seek(io::SeekFrom::Start(at)).and_then(|_| file.write_all(bytes));
            if written.is_ok() {
                return;
            }
            let mut there = Vec::new();
            // What cannot be read either is noticed as tokens of no text, and measured again.
            let _ = file.rewind().and_then(|()| file.read_to_end(&mut there));
            *self = Stored::Memory(there);
        }
        let Stored::Memory(there) = self else { return };
        let end = at as usize + bytes.len();
        if there.len() < end {
            there.resize(end, 0);
        }
        there[at as usize..end].copy_from_slice(bytes);
    }

    /// Copies the first bytes to a writer.
    pub(super) fn copy_to(&self, length: u64, writer: &mut impl Write) -> io::Result<()> {
        let (mut at, mut buffer) = (0, vec![0; 1 << 18]);
        while at < length {
            let count = (length - at).min(buffer.len() as u64) as usize;
            self.read_at(&mut buffer[..count], at)?;
            writer.write_all(&buffer[..count])?;
            at += count as u64;
        }
        Ok(())
    }
}

/// The places of all rows, from somewhere in a file on.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) stored: Stored,
    pub(super) from: u64,
}

impl Places {
    pub(super) fn read(&self, rows: Range<u32>) -> io::Result<Vec<RowPlace>> {
        let mut bytes = vec![0; rows.len() * PLACE_BYTES];
        self.stored.read_at(&mut bytes, self.from + u64::from(rows.start) * PLACE_BYTES as u64)?;
        Ok(bytes.chunks_exact(PLACE_BYTES).map(RowPlace::from_bytes).collect())
    }
}

/// The tokens of all texts: those that are in the file of the index, and those that were made since.
#[derive(Debug)]
pub(super) struct Tokens {
    pub(super) kept: Stored,
    /// Tokens in it.
    pub(super) kept_count: u64,
    pub(super) fresh: Stored,
    pub(super) fresh_count: u64,
}

impl Default for Tokens {
    fn default() -> Self {
        let none = || Stored::Memory(Vec::new());
        Tokens { kept: none(), kept_count: 0, fresh: none(), fresh_count: 0 }
    }
}

impl Tokens {
    /// Appends the tokens of one text to `out`.
    pub(super) fn read(&self, at: u64, count: u32, out: &mut Vec<u16>) -> io::Result<()> {
        let mut bytes = vec![0; 2 * count as usize];
        let stored = if at & FRESH != 0 { &self.fresh } else { &self.kept };
        stored.read_at(&mut bytes, 2 * (at & !FRESH))?;
        out.extend(bytes.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]])));
        Ok(())
    }

    /// Opens a file of tokens; an error unless every byte is as it was written.
    pub(super) fn open(path: &Path, index: &IndexFile) -> io::Result<Tokens> {
        let mut file = File::open(path)?;
        let (mut hash, mut buffer, mut length) = (Xxh3::new(), vec![0; 1 << 18], 0);
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                read => {
                    hash.update(&buffer[..read]);
                    length += read as u64;
                }
            }
        }
        if length != 2 * index.tokens || hash.digest() != index.tokens_hash {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Tokens { kept: Stored::File(file), kept_count: index.tokens, ..Tokens::default() })
    }
}
