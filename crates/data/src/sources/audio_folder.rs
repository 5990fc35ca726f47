//! Hugging Face's audiofolder: `metadata.csv` or `metadata.jsonl` with a column `file_name`, beside the audio files, for all
//! clips or in a directory for each split (`train/`, `validation/`, `test/`).

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::error::MetadataError;
use super::fields::{Columns, Fields, check_path, id_of_path, split_quoted, utf8};
use super::json_lines;
use super::listed::{List, Rows};
use super::metadata::Metadata;
use crate::fault::ClipFault;

/// Rows separated by commas, some fields in quotes, as the header says.
#[derive(Debug)]
struct AudioFolder {
    columns: Columns,
    dir: PathBuf,
    audio_dir: String,
}

/// Opens a list; its paths are relative to where it lies.
pub(super) fn open(dir: &Path, path: &Path, audio_dir: &str) -> Result<List, MetadataError> {
    if path.extension().is_some_and(|extension| extension == "jsonl") {
        return json_lines::open(dir, path, audio_dir);
    }
    let metadata = Metadata::open_quoted(path, b',')?;
    let mut buffer = Vec::new();
    let names: Vec<String> = {
        let row = metadata.read(0, &mut buffer).ok().and_then(|row| utf8(row).ok()).unwrap_or_default();
        header(row)
    };
    let columns = Columns::of(&names).map_err(|kind| MetadataError::NoColumn(path.to_owned(), kind, names))?;
    let below = json_lines::below(dir, path);
    let rows = Box::new(AudioFolder { columns, dir: dir.join(&below), audio_dir: audio_dir.to_owned() });
    Ok(List { metadata: metadata.without_header()?, rows, audio_dir: below })
}

fn header(row: &str) -> Vec<String> {
    let names = split_quoted(row, ',').unwrap_or_default();
    names.iter().map(|name| name.trim().to_owned()).collect()
}

/// Whether a list names `file_name`.
pub(super) fn is_list(path: &Path) -> bool {
    if path.extension().is_some_and(|extension| extension == "jsonl") {
        return json_lines::first_object(path).is_some_and(|object| object.contains_key("file_name"));
    }
    let mut line = Vec::new();
    let Ok(file) = std::fs::File::open(path) else { return false };
    let mut reader = std::io::BufReader::new(std::io::Read::take(file, 1 << 16));
    let read = std::io::BufRead::read_until(&mut reader, b'\n', &mut line);
    read.is_ok() && utf8(&line).is_ok_and(|row| header(row).iter().any(|name| name == "file_name"))
}

impl Rows for AudioFolder {
    fn fields<'a>(&self, row: &'a [u8]) -> Result<Fields<'a>, ClipFault> {
        let row = split_quoted(utf8(row)?, ',').ok_or(ClipFault::OpenQuote)?;
        let mut fields = self.columns.fields(row)?;
        check_path(&fields.audio, false)?;
        fields.id = Cow::Owned(id_of_path(&fields.audio, &self.dir, &self.audio_dir));
        Ok(fields)
    }

    fn name_speakers(&self) -> bool {
        self.columns.name_speakers()
    }
}
