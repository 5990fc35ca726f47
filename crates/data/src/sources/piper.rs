//! The Piper layout: as LJSpeech's, but three columns are `id|speaker|text`.

use super::fields::{Fields, trimmed};
use super::listed::{NAMED, Rows};
use super::ljspeech::split;
use crate::fault::ClipFault;

/// Rows `id|text` or `id|speaker|text`.
#[derive(Debug)]
pub(super) struct Piper;

impl Rows for Piper {
    fn fields<'a>(&self, row: &'a [u8]) -> Result<Fields<'a>, ClipFault> {
        let (id, mut rest) = split(row)?;
        let text = rest.pop().unwrap_or_default();
        let speaker = rest.pop().map(trimmed).filter(|name| !name.is_empty());
        Ok(Fields { audio: id.clone(), id, text, speaker, language: None })
    }

    fn name_speakers(&self) -> bool {
        true
    }

    fn extensions(&self) -> &'static [&'static str] {
        NAMED
    }
}
