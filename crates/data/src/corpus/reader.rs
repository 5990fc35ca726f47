//! [`Reader`]: what a row is, and what its clip and its text measure, while a corpus is opened.

use std::collections::HashMap;
use std::io::Cursor;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tandem_audio::{AudioError, Decoder, Processing, Shape, probe, speech_range};
use tandem_text::{Encoder, Frontend, FrontendError, Language, Rules};

use crate::fault::ClipFault;
use crate::files::hash_parts;
use crate::index::{IndexEntry, Measured};
use crate::remote::RemoteError;
use crate::sources::{AudioBytes, Record, Source};

/// Clips that are brought here at once while they are measured.
const FETCHED: usize = 64;

/// Reads the rows of a corpus that is being opened.
pub(super) struct Reader<'a> {
    pub(super) encoder: &'a Encoder<'a>,
    pub(super) frontend: &'a Frontend,
    pub(super) source: &'a dyn Source,
    pub(super) processing: Processing,
    /// Why the bucket cannot be read, once that is so: no clip is to blame.
    pub(super) unreachable: &'a Mutex<Option<RemoteError>>,
    pub(super) stop: &'a AtomicBool,
}

impl Reader<'_> {
    pub(super) fn identify(&self, row: u32) -> Result<(u64, u64), ClipFault> {
        let record = self.source.record(row)?;
        let identity = hash_parts(&[
            record.text.as_bytes(),
            &self.source.identity(row)?.to_le_bytes(),
            &record.speaker.to_le_bytes(),
            record.language.as_ref().map_or("", Language::code).as_bytes(),
        ]);
        Ok((hash_parts(&[record.id.as_bytes()]), identity))
    }

    /// Looks at some clips: their texts together, so that a program that makes phonemes runs once. Without the rest, when it
    /// is to stop: those clips are measured the next time.
    pub(super) fn measure(&self, rows: &[u32], on_clip: &dyn Fn()) -> Result<Vec<Measured>, FrontendError> {
        let record = |row: &u32| match self.source.record(*row) {
            Ok(record) if record.text.trim().is_empty() => Err(ClipFault::EmptyText),
            other => other,
        };
        let records: Vec<Result<Record, ClipFault>> = rows.iter().map(record).collect();
        let good = records.iter().flatten().map(|record| (record.text.as_str(), record.language.as_ref()));
        let mut symbols = self.encoder.symbols(&good.collect::<Vec<_>>())?.into_iter();
        let (mut decoder, mut samples) = (Decoder::new(), Vec::new());
        let mut fetched = HashMap::new();
        let measured = rows.iter().zip(records).enumerate().map(|(n, (&row, record))| {
            on_clip();
            if self.source.is_remote() && n.is_multiple_of(FETCHED) && !self.is_unreachable() {
                fetched = self.source.fetch(&rows[n..rows.len().min(n + FETCHED)]).into_iter().collect();
            }
            let record = record?;
            let symbols = symbols.next().unwrap_or_default();
            if !symbols.has_words() {
                return Err(ClipFault::NoWords);
            }
            let language = self.frontend.language_of(&record.text, record.language.as_ref());
            if self.stop.load(Ordering::Relaxed) || self.is_unreachable() {
                return Err(ClipFault::Changed);
            }
            let audio = fetched.remove(&row);
            let (shape, used) = self.measure_audio(row, audio, &mut decoder, &mut samples).inspect_err(|fault| {
                if let ClipFault::Unreachable(error) = fault {
                    self.unreachable.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(error.clone());
                }
            })?;
            // Nothing is as long as that: decoding would have refused it.
            let count = |samples: u64| u32::try_from(samples).map_err(|_| ClipFault::Audio(AudioError::TooLong));
            let entry = IndexEntry {
                samples: count(used.end - used.start)?,
                start: count(used.start)?,
                rate: shape.rate,
                speaker: record.speaker,
                ..IndexEntry::default()
            };
            let entry = entry.with(shape.channels, has_foreign_letters(&record.text, &language));
            Ok((entry, symbols.symbols, language.to_string()))
        });
        Ok(measured.collect())
    }

    fn is_unreachable(&self) -> bool {
        self.unreachable.lock().unwrap_or_else(|e| e.into_inner()).is_some()
    }

    /// The shape of a clip's file, and the samples of it that are used. By its header if that says it; where speech begins only
    /// its samples say.
    fn measure_audio(
        &self,
        row: u32,
        fetched: Option<Result<Vec<u8>, ClipFault>>,
        decoder: &mut Decoder,
        samples: &mut Vec<f32>,
    ) -> Result<(Shape, Range<u64>), ClipFault> {
        let here = fetched.transpose()?.map(|bytes| Box::new(Cursor::new(bytes)) as Box<dyn AudioBytes>);
        if !self.processing.trim_silence {
            let mut header = here.map_or_else(|| self.source.header(row), Ok)?;
            let shape = probe(&mut *header)?;
            return Ok((shape, 0..shape.samples));
        }
        samples.clear();
        let mut audio = here.map_or_else(|| self.source.audio(row), Ok)?;
        let shape = decoder.decode(&mut *audio, samples)?;
        let used = speech_range(samples, shape.rate);
        Ok((shape, used.start as u64..used.end as u64))
    }
}

/// Whether a text has letters that English or Persian does not have: perhaps it is another language.
fn has_foreign_letters(text: &str, language: &Language) -> bool {
    let own = |c: char| match language.rules() {
        Rules::English => c.is_ascii(),
        Rules::Persian => c.is_ascii() || ('\u{0600}'..='\u{06FF}').contains(&c),
        Rules::Plain => true,
    };
    text.chars().any(|c| c.is_alphabetic() && !own(c))
}
