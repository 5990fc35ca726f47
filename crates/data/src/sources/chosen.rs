//! [`Chosen`]: the clips of some speakers, numbered from 0 again, whatever the source.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::MetadataError;
use super::{AudioBytes, Part, Reading, Record, Source};
use crate::fault::ClipFault;

/// Speakers that an error lists.
const LISTED: usize = 20;

/// The clips of some speakers.
#[derive(Debug)]
pub(super) struct Chosen {
    source: Arc<dyn Source>,
    names: Vec<String>,
    /// The new number of a speaker.
    numbers: HashMap<u16, u16>,
    /// The rows of the source that are theirs.
    rows: Vec<u32>,
}

impl Chosen {
    /// The clips of these speakers, in their order; none if they have no clips for validation.
    pub(super) fn of(
        source: Arc<dyn Source>,
        names: &[String],
        part: Part,
        dir: &Path,
    ) -> Result<Option<Arc<dyn Source>>, MetadataError> {
        let mut numbers = HashMap::new();
        for (new, name) in (0u16..).zip(names) {
            match source.speakers().iter().position(|known| known == name) {
                Some(old) => {
                    numbers.insert(old as u16, new);
                }
                // A speaker may have no clips for validation.
                None if part == Part::Validation => {}
                None => {
                    let known = source.speakers().iter().take(LISTED).cloned().collect();
                    return Err(MetadataError::NoSuchSpeaker(dir.to_owned(), name.clone(), known));
                }
            }
        }
        let theirs = |row: &u32| source.speaker(*row).is_ok_and(|number| numbers.contains_key(&number));
        let rows: Vec<u32> = (0..source.len() as u32).filter(theirs).collect();
        if rows.is_empty() && part == Part::Validation {
            return Ok(None);
        }
        Ok(Some(Arc::new(Chosen { source, names: names.to_vec(), numbers, rows })))
    }
}

impl Source for Chosen {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn record(&self, clip: u32) -> Result<Record, ClipFault> {
        let record = self.source.record(self.rows[clip as usize])?;
        let speaker = self.numbers.get(&record.speaker).copied().ok_or(ClipFault::Changed)?;
        Ok(Record { speaker, ..record })
    }

    fn audio(&self, clip: u32) -> Result<Box<dyn AudioBytes + '_>, ClipFault> {
        self.source.audio(self.rows[clip as usize])
    }

    fn header(&self, clip: u32) -> Result<Box<dyn AudioBytes + '_>, ClipFault> {
        self.source.header(self.rows[clip as usize])
    }

    fn is_remote(&self) -> bool {
        self.source.is_remote()
    }

    fn fetch(&self, clips: &[u32]) -> Vec<(u32, Result<Vec<u8>, ClipFault>)> {
        let rows: Vec<u32> = clips.iter().map(|&clip| self.rows[clip as usize]).collect();
        let of_row: HashMap<u32, u32> = rows.iter().copied().zip(clips.iter().copied()).collect();
        self.source.fetch(&rows).into_iter().map(|(row, bytes)| (of_row[&row], bytes)).collect()
    }

    fn identity(&self, clip: u32) -> Result<u64, ClipFault> {
        self.source.identity(self.rows[clip as usize])
    }

    fn speakers(&self) -> &[String] {
        &self.names
    }

    fn id(&self, clip: u32) -> Option<String> {
        self.source.id(self.rows[clip as usize])
    }

    fn line(&self, clip: u32) -> u64 {
        self.source.line(self.rows[clip as usize])
    }

    fn path(&self, clip: u32) -> Option<PathBuf> {
        self.source.path(self.rows[clip as usize])
    }

    fn extension(&self, clip: u32) -> Option<String> {
        self.source.extension(self.rows[clip as usize])
    }

    fn dir(&self) -> Option<&Path> {
        self.source.dir()
    }

    fn reading(&self) -> Option<&Reading> {
        self.source.reading()
    }

    fn key(&self) -> String {
        format!("{} of {}", self.source.key(), self.names.join(","))
    }
}
