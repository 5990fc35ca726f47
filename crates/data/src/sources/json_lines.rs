//! A JSON object a line, as NeMo's manifests: `audio_filepath`, `text`, and if known `speaker` and `lang`. Paths are relative
//! to the list, or absolute.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::error::MetadataError;
use super::fields::{AUDIO, Fields, LANGUAGE, SPEAKER, TEXT, check_path, id_of_path, utf8};
use super::listed::{List, Rows};
use super::metadata::Metadata;
use crate::fault::ClipFault;

/// Rows that are JSON objects.
#[derive(Debug)]
pub(super) struct JsonLines {
    pub(super) dir: PathBuf,
    pub(super) audio_dir: String,
}

/// Opens a list; its paths are relative to where it lies.
pub(super) fn open(dir: &Path, path: &Path, audio_dir: &str) -> Result<List, MetadataError> {
    let metadata = Metadata::open_file(path)?;
    let below = below(dir, path);
    let rows = Box::new(JsonLines { dir: dir.join(&below), audio_dir: audio_dir.to_owned() });
    Ok(List { metadata, rows, audio_dir: below })
}

/// The directory of a list, as a path below that of the corpus.
pub(super) fn below(dir: &Path, list: &Path) -> String {
    let parent = list.parent().and_then(|parent| parent.strip_prefix(dir).ok());
    parent.and_then(Path::to_str).unwrap_or_default().to_owned()
}

/// Whether the first row of a list is an object that names audio and text.
pub(super) fn is_list(path: &Path) -> bool {
    first_object(path).is_some_and(|object| find(&object, AUDIO).is_some() && find(&object, TEXT).is_some())
}

/// The first row.
pub(super) fn first_object(path: &Path) -> Option<Map<String, Value>> {
    // A JSON file of another kind may be large: only its first line is looked at.
    let mut line = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    let mut reader = std::io::BufReader::new(std::io::Read::take(file, 1 << 20));
    std::io::BufRead::read_until(&mut reader, b'\n', &mut line).ok()?;
    serde_json::from_str(utf8(&line).ok()?).ok()
}

/// The value of the first of these keys that is there.
pub(super) fn find(object: &Map<String, Value>, keys: &[&str]) -> Option<String> {
    let word = |value: &Value| match value {
        Value::String(word) => Some(word.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    keys.iter().find_map(|key| object.get(*key).and_then(word))
}

impl Rows for JsonLines {
    fn fields<'a>(&self, row: &'a [u8]) -> Result<Fields<'a>, ClipFault> {
        let object: Map<String, Value> =
            serde_json::from_str(utf8(row)?).map_err(|error| ClipFault::NotJson(error.to_string()))?;
        let given = |keys| find(&object, keys).filter(|word| !word.trim().is_empty()).map(Cow::Owned);
        let audio = find(&object, AUDIO).ok_or(ClipFault::NoField("audio_filepath"))?;
        let text = find(&object, TEXT).ok_or(ClipFault::NoField("text"))?;
        check_path(&audio, true)?;
        if let Some(start) = object.get("offset").and_then(Value::as_f64).filter(|&start| start > 0.0) {
            return Err(ClipFault::Segment { start_ms: (start * 1000.0) as u64 });
        }
        Ok(Fields {
            id: Cow::Owned(id_of_path(&audio, &self.dir, &self.audio_dir)),
            audio: Cow::Owned(audio),
            text: Cow::Owned(text),
            speaker: given(SPEAKER),
            language: given(LANGUAGE),
        })
    }

    fn name_speakers(&self) -> bool {
        true
    }
}
