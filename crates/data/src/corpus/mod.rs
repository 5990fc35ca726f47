//! Metadata and index together: everything about the clips but their audio.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `open.rs` | opening: index, faults, limits, vocabulary |
//! | `reader.rs` | what rows and clips are, while the index is made |
//! | `error.rs` | [`CorpusError`] |

mod error;
mod open;
mod reader;

use std::collections::{BTreeSet, HashMap};
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tandem_audio::{Decoder, MelSettings, Processing, Shape, probe};
use tandem_text::{Frontend, Language, Vocabulary};

use crate::alignment::FrameTimes;
use crate::cache::{Cache, CacheMode};
use crate::choice::{Choice, Open};
use crate::fault::{ClipFault, FaultReport, Tolerance};
use crate::files::hash_parts;
use crate::index::{Index, IndexEntry};
use crate::plan::{ClipSize, order};
use crate::remote::Extensions;
use crate::sources::{AudioBytes, Format, Reading, Source};

pub use error::CorpusError;

/// Faults that an error lists.
const LISTED: usize = 10;

/// How a corpus is read.
#[derive(Clone, Debug, PartialEq)]
pub struct CorpusSettings {
    /// The features to be made of it.
    pub mel: MelSettings,
    /// What is done to samples before.
    pub processing: Processing,
    /// The format of the directory; none: it is found out.
    pub format: Option<Format>,
    /// The speakers whose clips are used, in the order of their numbers; empty: all.
    pub speakers: Vec<String>,
    /// The folder with the audio files, where they are named by id.
    pub audio_dir: String,
    /// How texts become ids. Without a vocabulary, it gets one of all symbols that the usable clips have.
    pub frontend: Frontend,
    /// What of the front end is not fixed but chosen by the texts and by what is installed.
    pub open: Open,
    /// Clips with more frames are skipped.
    pub max_frames: Option<u64>,
    /// Clips with more tokens are skipped.
    pub max_tokens: Option<u64>,
    /// Opens even when not one clip can be used, to say why.
    pub allow_empty: bool,
    /// What reads buckets and other things that this crate has no code for.
    pub extensions: Extensions,
}

impl Default for CorpusSettings {
    fn default() -> Self {
        CorpusSettings {
            mel: MelSettings::default(),
            processing: Processing::default(),
            format: None,
            speakers: Vec::new(),
            audio_dir: "wavs".to_owned(),
            frontend: Frontend::default(),
            open: Open::default(),
            max_frames: None,
            max_tokens: None,
            allow_empty: false,
            extensions: Extensions::default(),
        }
    }
}

/// Clips and transcripts of a [`Source`]. Clips that can be used are numbered from 0 to [`Corpus::len`] - 1; methods that are
/// asked about another number panic. A clone shares everything with the original.
#[derive(Clone, Debug)]
pub struct Corpus {
    source: Arc<dyn Source>,
    work_dir: PathBuf,
    settings: CorpusSettings,
    index: Arc<Index>,
    /// Rows that can be used, in the order of the metadata.
    good: Arc<[u32]>,
    frontend: Arc<Frontend>,
    choice: Arc<Choice>,
    /// The id of each symbol of the index; 0 if the vocabulary does not have it.
    ids: Arc<[u32]>,
    /// The number of tokens of each clip, when the vocabulary lacks symbols of the index.
    token_counts: Option<Arc<[u32]>>,
}

impl Corpus {
    /// The symbols that some clips have: what a voice that is trained on them can know.
    pub fn vocabulary_of(&self, clips: impl IntoIterator<Item = u32>) -> Vocabulary {
        let seen = self.index.symbols_of(clips.into_iter().map(|clip| self.good[clip as usize]));
        let symbols = self.index.symbols.iter().zip(seen).filter(|(_, seen)| *seen);
        Vocabulary::of(symbols.map(|(symbol, _)| symbol.clone()).collect())
    }

    /// The same clips with the ids of another vocabulary. Symbols that it does not have are skipped.
    pub fn with_vocabulary(&self, vocabulary: Vocabulary) -> Corpus {
        let ids: Arc<[u32]> = self.index.symbols.iter().map(|symbol| vocabulary.id(symbol).unwrap_or(0)).collect();
        let frontend = Arc::new(self.frontend.with_vocabulary(vocabulary));
        let mut corpus = Corpus { frontend, token_counts: None, ids, ..self.clone() };
        if corpus.ids.contains(&0) {
            let count = |clip| corpus.token_ids(clip).map_or(0, |ids| ids.len() as u32);
            corpus.token_counts = Some((0..corpus.len() as u32).map(count).collect());
        }
        corpus
    }

    /// SPEC S4: whether enough clips can be used. Limits that the user set do not count.
    ///
    /// # Errors
    ///
    /// [`CorpusError::TooMany`] when more clips are skipped than is tolerated.
    pub fn check(&self, tolerance: Tolerance) -> Result<(), CorpusError> {
        let (faults, rows) = (self.faults(), self.rows());
        if tolerance.is_exceeded(faults as u64, rows as u64) {
            return Err(CorpusError::TooMany { faults, rows, first: self.fault_reports_up_to(LISTED) });
        }
        Ok(())
    }

    /// How many clips are skipped because something is wrong with them.
    pub fn faults(&self) -> usize {
        self.index.faults.iter().filter(|(_, fault)| !fault.is_limit()).count()
    }

    /// Symbols of a clip's text that it is trained without: those that the vocabulary does not have, and characters
    /// that its language does not have.
    pub fn unknown(&self, clip: u32) -> BTreeSet<String> {
        let mut tokens = Vec::new();
        let _ = self.index.read_tokens(self.good[clip as usize], &mut tokens);
        let missing = tokens.iter().map(|&token| usize::from(token)).filter(|&token| self.ids[token] == 0);
        let mut unknown: BTreeSet<String> = missing.map(|token| self.index.symbols[token].clone()).collect();
        if !self.frontend.raw {
            let text = self.text(clip).unwrap_or_default();
            let language = self.language(&self.row(clip));
            unknown.extend(self.frontend.skipped(&text, language.as_ref()).iter().map(char::to_string));
        }
        unknown
    }

    /// How many texts are in which language, in the order of their codes, and how many of them have letters that the
    /// language does not have.
    pub fn languages(&self) -> Vec<(Language, usize, usize)> {
        let mut counts = [(0, 0); 256];
        for &row in self.good.iter() {
            let entry = self.index.entries[row as usize];
            let count = &mut counts[usize::from(entry.language)];
            *count = (count.0 + 1, count.1 + usize::from(entry.has_other_letters()));
        }
        let of_code = |(code, (count, other_letters)): (&String, (usize, usize))| {
            Some((code.parse().ok()?, count, other_letters))
        };
        let mut languages: Vec<(Language, usize, usize)> =
            self.index.languages.iter().zip(counts).filter(|(_, (count, _))| *count > 0).filter_map(of_code).collect();
        languages.sort_unstable();
        languages
    }

    fn language(&self, entry: &IndexEntry) -> Option<Language> {
        self.index.languages.get(usize::from(entry.language))?.parse().ok()
    }

    /// What was chosen for its texts when it was opened, and why.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// How another part of it is read: as this one, with nothing left to choose.
    pub fn settings_for_another_part(&self) -> CorpusSettings {
        let frontend = self.frontend.with_vocabulary(self.settings.frontend.vocabulary.clone());
        CorpusSettings { frontend, open: Open::default(), ..self.settings.clone() }
    }

    /// A clip's token ids, from the index.
    ///
    /// # Errors
    ///
    /// If the index cannot be read any more.
    pub fn token_ids(&self, clip: u32) -> std::io::Result<Vec<u32>> {
        let mut tokens = Vec::new();
        self.index.read_tokens(self.good[clip as usize], &mut tokens)?;
        Ok(tokens.into_iter().map(|token| self.ids[usize::from(token)]).filter(|&id| id > 0).collect())
    }

    /// The entry of a clip as it is in the index, with all its tokens.
    fn row(&self, clip: u32) -> IndexEntry {
        self.index.entries[self.good[clip as usize] as usize]
    }

    /// The folder it was opened from; of a source that has none, where its index is.
    pub fn dir(&self) -> &Path {
        self.source.dir().unwrap_or(&self.work_dir)
    }

    /// Which format it was read in, and why, if it is a directory.
    pub fn reading(&self) -> Option<&Reading> {
        self.source.reading()
    }

    /// Where its clips come from.
    pub fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// Where its index and cache are.
    pub fn work_dir(&self) -> &Path {
        &self.work_dir
    }

    /// A cache for its features, of at most `limit_bytes`: in memory, or on disk beside its index.
    pub fn cache(&self, mode: CacheMode, limit_bytes: u64) -> Cache {
        Cache::new(mode, &self.work_dir, limit_bytes, &self.settings.mel, &self.settings.processing)
    }

    /// How it is read.
    pub fn settings(&self) -> &CorpusSettings {
        &self.settings
    }

    /// How its texts become ids, with its vocabulary.
    pub fn frontend(&self) -> &Frontend {
        &self.frontend
    }

    /// Its speakers; none when nobody is named.
    pub fn speakers(&self) -> &[String] {
        self.source.speakers()
    }

    /// How many rows the metadata has.
    pub fn rows(&self) -> usize {
        self.source.len()
    }

    /// How many clips can be used.
    pub fn len(&self) -> usize {
        self.good.len()
    }

    /// Only with `allow_empty`: otherwise a corpus without a usable clip does not open.
    pub fn is_empty(&self) -> bool {
        self.good.is_empty()
    }

    /// How many clips had to be measured when it was opened (the others were in the index).
    pub fn measured(&self) -> usize {
        self.index.measured
    }

    /// What is known of clip `clip` (counted among the usable ones).
    pub fn entry(&self, clip: u32) -> IndexEntry {
        let entry = self.row(clip);
        let tokens = self.token_counts.as_ref().map_or(entry.tokens, |counts| counts[clip as usize]);
        IndexEntry { tokens, ..entry }
    }

    /// The sizes of all usable clips.
    pub fn sizes(&self) -> Vec<ClipSize> {
        (0..self.len() as u32).map(|clip| size_of(&self.entry(clip), &self.settings.mel)).collect()
    }

    /// Seconds of audio in all usable clips.
    pub fn seconds(&self) -> f64 {
        (0..self.len() as u32).map(|clip| self.entry(clip)).map(|entry| entry.seconds()).sum()
    }

    /// How often each sample rate occurs, the commonest first.
    pub fn rates(&self) -> Vec<(u32, usize)> {
        let mut rates: HashMap<u32, usize> = HashMap::new();
        for clip in 0..self.len() as u32 {
            *rates.entry(self.entry(clip).rate).or_default() += 1;
        }
        let mut rates: Vec<_> = rates.into_iter().collect();
        rates.sort_by_key(|&(rate, count)| (std::cmp::Reverse(count), rate));
        rates
    }

    /// A clip's audio file.
    ///
    /// # Errors
    ///
    /// [`ClipFault`] if the list of clips has changed since the corpus was opened, or the audio cannot be read any more.
    pub fn audio(&self, clip: u32) -> Result<Box<dyn AudioBytes + '_>, ClipFault> {
        let row = self.good[clip as usize];
        if !self.is_same(clip) {
            return Err(ClipFault::Changed);
        }
        self.source.audio(row)
    }

    /// Whether the list still has the clip where it was.
    fn is_same(&self, clip: u32) -> bool {
        let row = self.good[clip as usize];
        let (id, place) = (self.source.id(row), self.index.place(row));
        id.zip(place.ok()).is_some_and(|(id, place)| hash_parts(&[id.as_bytes()]) == place.id_hash)
    }

    /// The audio files of several clips, waited for together, if they come from far away.
    pub(crate) fn fetch(&self, clips: &[u32]) -> HashMap<u32, Result<Vec<u8>, ClipFault>> {
        if !self.source.is_remote() {
            return HashMap::new();
        }
        // What has changed since it was opened is found out by `audio`.
        let clips: Vec<u32> = clips.iter().copied().filter(|&clip| self.is_same(clip)).collect();
        let rows: Vec<u32> = clips.iter().map(|&clip| self.good[clip as usize]).collect();
        let of_row: HashMap<u32, u32> = rows.iter().copied().zip(clips).collect();
        self.source.fetch(&rows).into_iter().map(|(row, bytes)| (of_row[&row], bytes)).collect()
    }

    /// Whether audio comes from far away.
    pub(crate) fn is_remote(&self) -> bool {
        self.source.is_remote()
    }

    /// [`Corpus::decode`] of bytes that were fetched, if they were.
    pub(crate) fn decode_fetched(
        &self,
        clip: u32,
        fetched: Option<Result<Vec<u8>, ClipFault>>,
        decoder: &mut Decoder,
        out: &mut Vec<f32>,
    ) -> Result<Shape, ClipFault> {
        let Some(bytes) = fetched else { return self.decode(clip, decoder, out) };
        let from = out.len();
        let shape = decoder.decode(&mut Cursor::new(bytes?), out)?;
        self.settings.processing.apply(out, from, shape.rate);
        Ok(Shape { samples: (out.len() - from) as u64, ..shape })
    }

    /// Appends a clip's samples to `out`, at the file's own sample rate and processed as the settings say: what features are made of.
    ///
    /// # Errors
    ///
    /// [`ClipFault`] if the audio cannot be used any more.
    pub fn decode(&self, clip: u32, decoder: &mut Decoder, out: &mut Vec<f32>) -> Result<Shape, ClipFault> {
        let from = out.len();
        let shape = decoder.decode(&mut *self.audio(clip)?, out)?;
        self.settings.processing.apply(out, from, shape.rate);
        Ok(Shape { samples: (out.len() - from) as u64, ..shape })
    }

    /// Where the frames of a clip lie in its recording, whatever of that is used.
    ///
    /// # Errors
    ///
    /// [`ClipFault`] if the audio cannot be used any more.
    pub fn frame_times(&self, clip: u32) -> Result<FrameTimes, ClipFault> {
        let (entry, mel) = (self.entry(clip), &self.settings.mel);
        let seconds = match self.settings.processing.trim_silence {
            true => probe(&mut *self.audio(clip)?)?.seconds(),
            false => entry.seconds(),
        };
        Ok(FrameTimes {
            hop_seconds: mel.hop_length as f64 / f64::from(mel.sample_rate),
            start_seconds: f64::from(entry.start) / f64::from(entry.rate.max(1)),
            seconds,
        })
    }

    /// A hash that changes when a clip's audio does.
    ///
    /// # Errors
    ///
    /// [`ClipFault`] if the audio is not there any more.
    pub fn audio_identity(&self, clip: u32) -> Result<u64, ClipFault> {
        self.source.identity(self.good[clip as usize])
    }

    /// A clip's text as it was written; `None` if that cannot be read any more.
    pub fn text(&self, clip: u32) -> Option<String> {
        self.source.record(self.good[clip as usize]).ok().map(|record| record.text)
    }

    /// A clip's id and file, for messages; if they cannot be read any more, its line.
    pub fn name(&self, clip: u32) -> (String, Option<PathBuf>) {
        let row = self.good[clip as usize];
        match self.source.id(row) {
            Some(id) => (id, self.source.path(row)),
            None => (format!("line {}", self.source.line(row)), None),
        }
    }

    /// The clips that are skipped, with their reasons, in the order of the metadata.
    pub fn fault_reports(&self) -> Vec<FaultReport> {
        self.fault_reports_up_to(usize::MAX)
    }

    fn fault_reports_up_to(&self, count: usize) -> Vec<FaultReport> {
        let mut faults: Vec<&(u32, ClipFault)> = self.index.faults.iter().collect();
        faults.sort_by_key(|(row, _)| *row);
        let report = |&&(row, ref fault): &&(u32, ClipFault)| FaultReport {
            id: self.source.id(row).unwrap_or_else(|| format!("line {}", self.source.line(row))),
            path: self.source.path(row),
            kind: fault.kind().into(),
            reason: fault.to_string(),
            limit: fault.is_limit(),
        };
        faults.iter().take(count).map(report).collect()
    }
}

fn size_of(entry: &IndexEntry, mel: &MelSettings) -> ClipSize {
    let rate = mel.sample_rate;
    let samples = if entry.rate == rate || entry.rate == 0 {
        entry.samples.into()
    } else {
        (u64::from(entry.samples) * u64::from(rate)).div_ceil(u64::from(entry.rate))
    };
    ClipSize { frames: mel.frames(samples as usize) as u32, tokens: entry.tokens }
}

/// SPEC F2: splits `clips` clips 0.9 to 0.1 into training and validation, the same way for the same seed; both in
/// order. A corpus of one clip is used for both.
pub fn split(clips: u32, seed: u64) -> (Vec<u32>, Vec<u32>) {
    if clips < 2 {
        return ((0..clips).collect(), (0..clips).collect());
    }
    let mut shuffled = order(clips as usize, seed);
    let validation = (clips as usize / 10).max(1);
    let mut kept: Vec<u32> = shuffled.split_off(validation);
    kept.sort_unstable();
    shuffled.sort_unstable();
    (kept, shuffled)
}
