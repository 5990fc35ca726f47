//! [`Speakers`]: who speaks which clip, as two bytes a row, and in which language, as one.

use std::collections::HashMap;
use std::path::Path;

use tandem_text::Language;
use xxhash_rust::xxh3::xxh3_64;

use super::error::MetadataError;
use super::listed::{List, Rows};
use super::metadata::Metadata;
use crate::fault::ClipFault;

/// The row does not say who speaks.
const NOBODY: u16 = u16::MAX;
/// The row does not say which language it is.
const NO_LANGUAGE: u8 = u8::MAX;

/// Who speaks which clip.
#[derive(Debug, Default)]
pub(super) struct Speakers {
    /// In the order in which they come up; empty when nobody is named.
    pub(super) names: Vec<String>,
    /// Of each row; empty when nobody is named.
    numbers: Vec<u16>,
    languages: Vec<Language>,
    /// Of each row; empty when no language is named.
    language_numbers: Vec<u8>,
}

impl Speakers {
    /// Who speaks a clip; everybody is speaker 0 when nobody is named.
    pub(super) fn of(&self, clip: u32) -> Result<u16, ClipFault> {
        match self.numbers.get(clip as usize) {
            None => Ok(0),
            Some(&NOBODY) => Err(ClipFault::NoSpeaker),
            Some(&number) => Ok(number),
        }
    }

    /// The language of a clip, if it is named.
    pub(super) fn language(&self, clip: u32) -> Option<&Language> {
        let number = *self.language_numbers.get(clip as usize)?;
        self.languages.get(usize::from(number))
    }
}

/// Numbers for names, in the order in which they come up.
#[derive(Debug, Default)]
pub(super) struct Numbering {
    names: Vec<String>,
    numbers: HashMap<String, u16>,
    languages: Vec<Language>,
    language_numbers: HashMap<String, u8>,
}

impl Numbering {
    fn speaker(&mut self, name: &str, list: &Path) -> Result<u16, MetadataError> {
        if let Some(&number) = self.numbers.get(name) {
            return Ok(number);
        }
        let number = u16::try_from(self.names.len()).ok().filter(|&number| number != NOBODY);
        let number = number.ok_or_else(|| MetadataError::TooManySpeakers(list.to_owned()))?;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        Ok(number)
    }

    /// A code that is none, or the 256th language, is no language.
    fn language(&mut self, code: &str) -> u8 {
        if let Some(&number) = self.language_numbers.get(code) {
            return number;
        }
        let (language, next) = (code.parse::<Language>(), self.languages.len() as u8);
        let number = match language {
            Ok(language) if next != NO_LANGUAGE => {
                self.languages.push(language);
                next
            }
            _ => NO_LANGUAGE,
        };
        self.language_numbers.insert(code.to_owned(), number);
        number
    }

    /// Numbers whoever the rows of a list name, and keeps the numbers of the rows if asked for.
    pub(super) fn read(
        &mut self,
        metadata: &Metadata,
        rows: &dyn Rows,
        mut kept: Option<&mut Vec<(u16, u8)>>,
    ) -> Result<(), MetadataError> {
        let mut buffer = Vec::new();
        for row in 0..metadata.len() as u32 {
            // What cannot be read is a fault of its clip, later.
            let fields = metadata.read(row, &mut buffer).and_then(|bytes| rows.fields(bytes)).unwrap_or_default();
            let speaker = match &fields.speaker {
                Some(name) => self.speaker(name, metadata.path())?,
                None => NOBODY,
            };
            let language = fields.language.as_deref().map_or(NO_LANGUAGE, |code| self.language(code));
            if let Some(kept) = &mut kept {
                kept.push((speaker, language));
            }
        }
        Ok(())
    }

    /// The speakers of a list: as its rows say it, or else as `speakers.csv` does.
    pub(super) fn finish(mut self, list: &List, dir: &Path) -> Result<Speakers, MetadataError> {
        let mut rows = Vec::new();
        if list.rows.name_speakers() {
            self.read(&list.metadata, &*list.rows, Some(&mut rows))?;
        }
        if self.names.is_empty() {
            self.read_table(list, dir, &mut rows)?;
        }
        let named = !self.names.is_empty();
        let numbers = if named { rows.iter().map(|&(speaker, _)| speaker).collect() } else { Vec::new() };
        let language_numbers = match self.languages.is_empty() {
            true => Vec::new(),
            false => rows.iter().map(|&(_, language)| language).collect(),
        };
        Ok(Speakers { names: self.names, numbers, languages: self.languages, language_numbers })
    }

    /// `speakers.csv`: `id|speaker` or `id|speaker|language`.
    fn read_table(&mut self, list: &List, dir: &Path, rows: &mut Vec<(u16, u8)>) -> Result<(), MetadataError> {
        let path = dir.join("speakers.csv");
        if !path.is_file() {
            return Ok(());
        }
        let table = Metadata::open_file(&path)?;
        let (mut by_id, mut buffer) = (HashMap::with_capacity(table.len()), Vec::new());
        for row in 0..table.len() as u32 {
            let line = table.line(row) as usize;
            let wrong = || MetadataError::SpeakerRow(path.clone(), line);
            let bytes = table.read(row, &mut buffer).map_err(|_| wrong())?;
            let text = super::fields::utf8(bytes).map_err(|_| wrong())?;
            let mut fields = text.split('|').map(str::trim);
            let (Some(id), Some(name)) = (fields.next(), fields.next().filter(|name| !name.is_empty())) else {
                return Err(wrong());
            };
            if row == 0 && id == "id" {
                continue; // a heading
            }
            let number = self.speaker(name, &path)?;
            let language = fields.next().map_or(NO_LANGUAGE, |code| self.language(code));
            by_id.insert(xxh3_64(id.as_bytes()), (number, language));
        }
        let known: Vec<u8> = rows.iter().map(|&(_, language)| language).collect();
        rows.clear();
        for row in 0..list.metadata.len() as u32 {
            let id = list.metadata.read(row, &mut buffer).and_then(|bytes| list.rows.fields(bytes));
            let found = id.ok().and_then(|fields| by_id.get(&xxh3_64(fields.id.as_bytes())).copied());
            let (number, language) = found.unwrap_or((NOBODY, NO_LANGUAGE));
            // A language that the list itself has wins.
            let own = known.get(row as usize).copied().filter(|&own| own != NO_LANGUAGE);
            rows.push((number, own.unwrap_or(language)));
        }
        Ok(())
    }
}
