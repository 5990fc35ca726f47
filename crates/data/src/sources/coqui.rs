//! The layout of Coqui and of the XTTS demo: `metadata.csv` or `metadata_train.csv` and `metadata_eval.csv` with rows
//! `wavs/x.wav|text` or `wavs/x.wav|text|speaker`, with or without a header `audio_file|text|speaker_name`; `lang.txt` has
//! the language, if it is there.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::error::MetadataError;
use super::fields::{AUDIO, Columns, Fields, TEXT, check_path, id_of_path, split_piped, trimmed, utf8};
use super::listed::{List, Rows};
use super::metadata::Metadata;
use crate::fault::ClipFault;

/// Rows `path|text|speaker`, or as a header says.
#[derive(Debug)]
pub(super) struct Coqui {
    pub(super) dir: PathBuf,
    pub(super) audio_dir: String,
    pub(super) header: Option<Columns>,
    pub(super) language: Option<String>,
}

/// Opens a list.
pub(super) fn open(dir: &Path, path: &Path, audio_dir: &str) -> Result<List, MetadataError> {
    let mut metadata = Metadata::open_file(path)?;
    let header = header(&metadata);
    if header.is_some() {
        metadata = metadata.without_header()?;
    }
    let language = std::fs::read_to_string(dir.join("lang.txt")).ok().map(|text| text.trim().to_owned());
    let language = language.filter(|code| !code.is_empty());
    let rows = Box::new(Coqui { dir: dir.to_owned(), audio_dir: audio_dir.to_owned(), header, language });
    Ok(List { metadata, rows, audio_dir: String::new() })
}

/// The columns, if the first row names them.
pub(super) fn header(metadata: &Metadata) -> Option<Columns> {
    let mut buffer = Vec::new();
    let row = utf8(metadata.read(0, &mut buffer).ok()?).ok()?;
    let names: Vec<String> = row.split('|').map(|name| name.trim().to_lowercase()).collect();
    let has = |known: &[&str]| names.iter().any(|name| known.contains(&name.as_str()));
    if has(AUDIO) && has(TEXT) { Columns::of(&names).ok() } else { None }
}

impl Rows for Coqui {
    fn fields<'a>(&self, row: &'a [u8]) -> Result<Fields<'a>, ClipFault> {
        let most = self.header.as_ref().map_or(3, |columns| columns.count);
        let mut row = split_piped(utf8(row)?, most);
        let mut fields = match (&self.header, row.len()) {
            (Some(columns), _) => columns.fields(row)?,
            (None, 2 | 3) => {
                let speaker = (row.len() == 3).then(|| row.pop().map(trimmed)).flatten();
                let text = row.pop().unwrap_or_default();
                let audio = row.pop().map(trimmed).unwrap_or_default();
                let speaker = speaker.filter(|name| !name.is_empty());
                Fields { audio, text, speaker, ..Fields::default() }
            }
            (None, found) => return Err(ClipFault::Columns(found)),
        };
        check_path(&fields.audio, true)?;
        fields.id = Cow::Owned(id_of_path(&fields.audio, &self.dir, &self.audio_dir));
        if fields.language.is_none() {
            fields.language = self.language.clone().map(Cow::Owned);
        }
        Ok(fields)
    }

    fn name_speakers(&self) -> bool {
        true
    }
}
