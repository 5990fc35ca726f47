//! The Common Voice layout: `train.tsv`, `dev.tsv` and `test.tsv` (or `validated.tsv`) with a header, audio files in `clips/`.

use std::borrow::Cow;
use std::path::Path;

use super::error::MetadataError;
use super::fields::{Columns, Fields, check_path, utf8, without_extension};
use super::listed::{List, Rows};
use super::metadata::Metadata;
use crate::fault::ClipFault;

/// Early releases name clips without the extension.
const EXTENSIONS: &[&str] = &["", ".mp3", ".wav", ".flac", ".ogg"];

/// Rows separated by tabs, as the header says.
#[derive(Debug)]
struct CommonVoice(Columns);

/// The columns of a list.
pub(super) fn header(metadata: &Metadata) -> Vec<String> {
    let mut buffer = Vec::new();
    let row = metadata.read(0, &mut buffer).ok().and_then(|row| utf8(row).ok()).unwrap_or_default();
    row.split('\t').map(|name| name.trim().to_owned()).collect()
}

/// Opens a list.
pub(super) fn open(path: &Path) -> Result<List, MetadataError> {
    let metadata = Metadata::open_file(path)?;
    let names = header(&metadata);
    let columns = Columns::of(&names).map_err(|kind| MetadataError::NoColumn(path.to_owned(), kind, names))?;
    Ok(List {
        metadata: metadata.without_header()?,
        rows: Box::new(CommonVoice(columns)),
        audio_dir: "clips".to_owned(),
    })
}

impl Rows for CommonVoice {
    fn fields<'a>(&self, row: &'a [u8]) -> Result<Fields<'a>, ClipFault> {
        // Texts have quotes that nobody closes; a field is only quoted when all of it is.
        let row = utf8(row)?.split('\t').map(unquoted).collect();
        let mut fields = self.0.fields(row)?;
        check_path(&fields.audio, false)?;
        fields.id = Cow::Owned(without_extension(&fields.audio).to_owned());
        Ok(fields)
    }

    fn name_speakers(&self) -> bool {
        self.0.name_speakers()
    }

    fn extensions(&self) -> &'static [&'static str] {
        EXTENSIONS
    }
}

/// A field without the quotes around it, if it was written with quotes: those inside are doubled.
fn unquoted(field: &str) -> Cow<'_, str> {
    match field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) if !inner.replace("\"\"", "").contains('"') => Cow::Owned(inner.replace("\"\"", "\"")),
        _ => Cow::Borrowed(field),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_that_nobody_closes_are_characters() {
        for (field, wanted) in [
            ("plain", "plain"),
            ("\"Hello\"", "Hello"),
            ("\"She said \"\"hi\"\".\"", "She said \"hi\"."),
            ("\"Hello\" she said", "\"Hello\" she said"),
            ("\"Hello\" and \"bye\"", "\"Hello\" and \"bye\""),
            ("\"Open", "\"Open"),
            ("\"", "\""),
        ] {
            assert_eq!(unquoted(field), wanted, "{field}");
        }
    }
}
