//! Decodes parquet files. A row's audio is read without those before it: whole pages are passed over by their headers, and only the
//! page that has it is decompressed.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, Length, RowGroupReader, SerializedFileReader};
use tandem_data::{ClipFault, Files, MetadataError, ParquetColumns, ParquetFile, ParquetRow, RemoteError};

/// Bytes that are read at once where headers are looked for.
const BLOCK: u64 = 8 << 10;

/// A file, read at any place by any thread: the library's own reader of files shares one place among all.
#[derive(Clone, Debug)]
struct Chunks {
    files: Files,
    path: PathBuf,
    length: u64,
}

impl Chunks {
    fn bytes(&self, start: u64, length: u64) -> io::Result<Vec<u8>> {
        let end = start.checked_add(length).filter(|&end| end <= self.length).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.files.bytes(&self.path, start..end)
    }
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for Chunks {
    type T = io::BufReader<Section>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        let section = Section { chunks: self.clone(), at: start };
        Ok(io::BufReader::with_capacity(BLOCK as usize, section))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        Ok(self.bytes(start, length as u64)?.into())
    }
}

/// The rest of a file.
struct Section {
    chunks: Chunks,
    at: u64,
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (buffer.len() as u64).min(self.chunks.length.saturating_sub(self.at));
        let bytes = if count == 0 { Vec::new() } else { self.chunks.bytes(self.at, count)? };
        buffer[..bytes.len()].copy_from_slice(&bytes);
        self.at += count;
        Ok(bytes.len())
    }
}

/// A file with its columns found.
struct Opened {
    path: PathBuf,
    reader: SerializedFileReader<Chunks>,
    columns: ParquetColumns,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Opens a file and finds its columns.
pub(crate) fn open(files: &Files, path: &Path) -> Result<Arc<dyn ParquetFile>, MetadataError> {
    let shown = files.shown(path);
    let length = path.metadata().map_err(|error| MetadataError::Io(shown.clone(), error))?.len();
    let chunks = Chunks { files: files.clone(), path: path.to_owned(), length };
    let reader = SerializedFileReader::new(chunks).map_err(|error| failure(&shown, error))?;
    let schema = reader.metadata().file_metadata().schema_descr();
    // A column inside a list has no row of its own.
    let flat = |n: usize| schema.column(n).max_rep_level() == 0;
    let name = |n: usize| if flat(n) { schema.column(n).path().string() } else { String::new() };
    let names: Vec<String> = (0..schema.num_columns()).map(name).collect();
    let columns = ParquetColumns::of(&names).map_err(|kind| {
        let found = (0..schema.num_columns()).map(|n| schema.column(n).path().string()).collect();
        MetadataError::ParquetColumns(shown.clone(), kind, found)
    })?;
    Ok(Arc::new(Opened { path: shown, reader, columns }))
}

/// An error of the library: one of a bucket if it was that.
fn failure(path: &Path, error: ParquetError) -> MetadataError {
    match remote(&error) {
        Some(error) => MetadataError::Remote(error),
        None => MetadataError::Parquet(path.to_owned(), error.to_string()),
    }
}

fn remote(error: &ParquetError) -> Option<RemoteError> {
    let ParquetError::External(inner) = error else { return None };
    let inner = inner.downcast_ref::<io::Error>()?.get_ref()?;
    inner.downcast_ref::<RemoteError>().cloned()
}

impl ParquetFile for Opened {
    fn rows(&self, each: &mut dyn FnMut(ParquetRow) -> io::Result<()>) -> Result<(), MetadataError> {
        let fail = |error| failure(&self.path, error);
        let columns = &self.columns;
        for group in 0..self.reader.num_row_groups() {
            let rows = self.reader.get_row_group(group).map_err(fail)?;
            let count = usize::try_from(rows.metadata().num_rows()).unwrap_or(0);
            let words = |column: Option<usize>| match column {
                Some(column) => words(&*rows, column, count).map_err(fail),
                None => Ok(vec![None; count]),
            };
            let (paths, texts) = (words(columns.path)?, words(Some(columns.text))?);
            let (speakers, languages) = (words(columns.speaker)?, words(columns.language)?);
            let zipped = paths.into_iter().zip(texts).zip(speakers).zip(languages);
            for (row, (((path, text), speaker), language)) in zipped.enumerate() {
                let row = ParquetRow { group: group as u32, row: row as u32, path, text, speaker, language };
                each(row).map_err(|error| MetadataError::Io(self.path.clone(), error))?;
            }
        }
        Ok(())
    }

    fn audio(&self, group: u32, row: u32) -> Result<Option<Vec<u8>>, ClipFault> {
        self.audio_of(group as usize, row as usize).map_err(|error| match remote(&error) {
            Some(error) => error.into(),
            None => ClipFault::Parquet(error.to_string()),
        })
    }
}

impl Opened {
    fn audio_of(&self, group: usize, row: usize) -> parquet::errors::Result<Option<Vec<u8>>> {
        if group >= self.reader.num_row_groups() {
            return Err(ParquetError::EOF(String::new()));
        }
        let rows = self.reader.get_row_group(group)?;
        let ColumnReader::ByteArrayColumnReader(mut reader) = rows.get_column_reader(self.columns.audio)? else {
            return Ok(None);
        };
        if reader.skip_records(row)? != row {
            return Err(ParquetError::EOF(String::new()));
        }
        let (mut levels, mut values) = (Vec::new(), Vec::<ByteArray>::new());
        reader.read_records(1, Some(&mut levels), None, &mut values)?;
        Ok(values.pop().map(|value| value.data().to_vec()))
    }
}

/// A column of texts or numbers as texts; none where a row has nothing.
fn words(rows: &dyn RowGroupReader, column: usize, count: usize) -> parquet::errors::Result<Vec<Option<String>>> {
    let level = rows.metadata().column(column).column_descr().max_def_level();
    match rows.get_column_reader(column)? {
        ColumnReader::ByteArrayColumnReader(reader) => {
            values(reader, count, level, |value| String::from_utf8(value.data().to_vec()).ok())
        }
        ColumnReader::Int32ColumnReader(reader) => values(reader, count, level, |value| Some(value.to_string())),
        ColumnReader::Int64ColumnReader(reader) => values(reader, count, level, |value| Some(value.to_string())),
        _ => Ok(vec![None; count]),
    }
}

/// The values of a column, with the rows that have none in their places.
fn values<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    count: usize,
    level: i16,
    word: impl Fn(&T::T) -> Option<String>,
) -> parquet::errors::Result<Vec<Option<String>>> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let (read, ..) = reader.read_records(count, Some(&mut levels), None, &mut values)?;
    if read != count {
        return Err(ParquetError::EOF(String::new()));
    }
    let mut values = values.iter();
    let mut next = |is_there: bool| if is_there { values.next().and_then(&word) } else { None };
    Ok(match level {
        0 => (0..count).map(|_| next(true)).collect(),
        _ => levels.iter().map(|&found| next(found == level)).collect(),
    })
}
