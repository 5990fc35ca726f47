//! Metadata and index together: everything about the clips but their audio.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io::Cursor;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tandem_audio::{AudioError, Decoder, MelSettings, Processing, Shape, probe, speech_range};
use tandem_text::{Encoder, Frontend, FrontendError, Language, Rules, Vocabulary};

use crate::alignment::FrameTimes;
use crate::cache::{Cache, CacheMode};
use crate::choice::{Choice, Open};
use crate::fault::{ClipFault, FaultReport, Tolerance};
use crate::index::{Index, IndexEntry, Measured, hash_parts};
use crate::plan::{ClipSize, order};
use crate::remote::{Extensions, Files, RemoteError};
use crate::sources::{self, AudioBytes, Format, MetadataError, Part, Reading, Record, Source};

/// Faults that an error lists.
const LISTED: usize = 10;
/// Clips that are brought here at once while they are measured.
const FETCHED: usize = 64;
/// Changing what an index entry means changes this.
const INDEX_VERSION: u64 = 8;

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

/// Why a corpus cannot be opened.
#[derive(Debug)]
pub enum CorpusError {
    /// Its metadata cannot be used.
    Metadata(MetadataError),
    /// Its texts cannot be turned into symbols.
    Frontend(FrontendError),
    /// Not one clip can be used; these are the first reasons.
    NothingUsable(Vec<FaultReport>),
    /// More clips are skipped than is tolerated.
    TooMany {
        /// How many.
        faults: usize,
        /// Of how many.
        rows: usize,
        /// The first of them.
        first: Vec<FaultReport>,
    },
    /// A bucket cannot be read; what was measured is kept.
    Remote(RemoteError),
    /// Stopped by the user.
    Stopped,
}

impl fmt::Display for CorpusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CorpusError::Metadata(error) => write!(f, "{error}"),
            CorpusError::Frontend(error) => write!(f, "{error}"),
            CorpusError::NothingUsable(reports) => {
                write!(f, "none of the clips can be used")?;
                list(f, reports)
            }
            CorpusError::TooMany { faults, rows, first } => {
                write!(f, "{faults} of {rows} clips cannot be used, more than is tolerated")?;
                list(f, first)
            }
            CorpusError::Remote(error) => write!(f, "{error}"),
            CorpusError::Stopped => write!(f, "stopped"),
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, reports: &[FaultReport]) -> fmt::Result {
    for report in reports {
        write!(f, "\n  {}: {}", report.id, report.reason)?;
    }
    Ok(())
}

impl std::error::Error for CorpusError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CorpusError::Metadata(error) => Some(error),
            CorpusError::Frontend(error) => Some(error),
            CorpusError::Remote(error) => Some(error),
            _ => None,
        }
    }
}

impl From<FrontendError> for CorpusError {
    fn from(error: FrontendError) -> Self {
        CorpusError::Frontend(error)
    }
}

impl From<MetadataError> for CorpusError {
    fn from(error: MetadataError) -> Self {
        CorpusError::Metadata(error)
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
    /// Opens a folder and brings its index up to date. Of a large corpus that takes a while the first time: see
    /// [`Corpus::open_with`].
    ///
    /// # Errors
    ///
    /// [`CorpusError`] if its metadata cannot be used, or not one clip. That some clips cannot is no error here: see
    /// [`Corpus::check`].
    pub fn open(dir: &Path, settings: CorpusSettings) -> Result<Corpus, CorpusError> {
        Corpus::open_with(dir, settings, |_, _| {}, &AtomicBool::new(false))
    }

    /// The same; `progress(done, all)` hears how far it is, and it ends early when `stop` is set. What was done by then is
    /// kept in the index.
    ///
    /// # Errors
    ///
    /// As [`Corpus::open`], and [`CorpusError::Stopped`].
    pub fn open_with(
        dir: &Path,
        settings: CorpusSettings,
        progress: impl Fn(u32, u32) + Sync,
        stop: &AtomicBool,
    ) -> Result<Corpus, CorpusError> {
        let corpus = Corpus::open_part(dir, Part::All, settings, progress, stop)?;
        Ok(corpus.expect("a directory lists clips, or is an error"))
    }

    /// The same for some of its clips; none if it does not list any for validation.
    ///
    /// # Errors
    ///
    /// As [`Corpus::open_with`].
    pub fn open_part(
        dir: &Path,
        part: Part,
        settings: CorpusSettings,
        progress: impl Fn(u32, u32) + Sync,
        stop: &AtomicBool,
    ) -> Result<Option<Corpus>, CorpusError> {
        let files = Files::open(dir, &settings)?;
        let Some(source) = sources::open_files(&files, part, &settings)? else { return Ok(None) };
        // What cannot work is said before anything is written.
        if !settings.open.units {
            settings.frontend.key()?;
        }
        if !files.is_known() {
            settings.open.check(&settings.frontend)?;
        }
        Corpus::from_source_with(source, settings, &files.work_dir(), progress, stop).map(Some)
    }

    /// The clips of a source of one's own; its index and its cache are kept in `work_dir`.
    ///
    /// # Errors
    ///
    /// As [`Corpus::open`].
    pub fn from_source(
        source: Arc<dyn Source>,
        settings: CorpusSettings,
        work_dir: &Path,
    ) -> Result<Corpus, CorpusError> {
        Corpus::from_source_with(source, settings, work_dir, |_, _| {}, &AtomicBool::new(false))
    }

    /// The same with progress, as [`Corpus::open_with`].
    ///
    /// # Errors
    ///
    /// As [`Corpus::open_with`].
    pub fn from_source_with(
        source: Arc<dyn Source>,
        settings: CorpusSettings,
        work_dir: &Path,
        progress: impl Fn(u32, u32) + Sync,
        stop: &AtomicBool,
    ) -> Result<Corpus, CorpusError> {
        let key_of = |frontend: &Frontend| -> Result<u64, FrontendError> {
            let (version, source) = (INDEX_VERSION.to_le_bytes(), source.key());
            let frontend = frontend.key()?;
            let mut parts = vec![&version[..], source.as_bytes(), frontend.as_bytes()];
            // Lengths depend on it; on loudness nothing does.
            if settings.processing.trim_silence {
                parts.push(b"trim-silence");
            }
            Ok(hash_parts(&parts))
        };
        // Phonemes of these texts that were made before: nobody has to be asked whether they can be made.
        let is_known = |frontend: &Frontend| key_of(frontend).is_ok_and(|key| Index::is_there(work_dir, key));
        let mut frontend = settings.frontend.clone();
        let choice = settings.open.choose(&*source, &mut frontend, is_known)?;
        let key = key_of(&frontend)?;
        let known = Index::open(work_dir, key);
        let rows = source.len() as u32;
        let known_rows = known.entries.len();
        let settings = CorpusSettings { frontend: frontend.clone(), ..settings };
        let encoder = frontend.encoder();
        if known_rows == 0 {
            encoder.check()?;
        }
        let processing = settings.processing;
        let unreachable = Mutex::new(None);
        let reader = Reader {
            encoder: &encoder,
            frontend: &frontend,
            source: &*source,
            processing,
            unreachable: &unreachable,
            stop,
        };
        let failed = Mutex::new(None);
        let mut index = known.update(
            work_dir,
            rows,
            |row| reader.identify(row),
            |rows, on_clip| {
                reader.measure(rows, on_clip).unwrap_or_else(|error| {
                    failed.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(error);
                    rows.iter().map(|_| Err(ClipFault::NoWords)).collect()
                })
            },
            |done| progress(done, rows),
            stop,
        );
        // An interrupt also ends the program that makes phonemes.
        let failed = failed.into_inner().unwrap_or_else(|e| e.into_inner());
        if let Some(error) = failed.filter(|_| !stop.load(Ordering::Relaxed)) {
            return Err(CorpusError::Frontend(error));
        }
        if index.measured > 0 || known_rows != rows as usize {
            // Not being able to keep it only costs time at the next start.
            let _ = index.save(work_dir, key);
        }
        if stop.load(Ordering::Relaxed) {
            return Err(CorpusError::Stopped);
        }
        if let Some(error) = unreachable.into_inner().unwrap_or_else(|e| e.into_inner()) {
            return Err(CorpusError::Remote(error));
        }
        find_duplicates(&mut index, &*source);
        apply_limits(&mut index, &settings);
        let good = (0..rows).filter(|&row| index.entries[row as usize].is_good()).collect();
        let choice = Arc::new(choice);
        let mut corpus = Corpus {
            source,
            work_dir: work_dir.to_owned(),
            settings,
            index: Arc::new(index),
            good,
            frontend: Arc::default(),
            choice,
            ids: Arc::default(),
            token_counts: None,
        };
        if corpus.good.is_empty() && !corpus.settings.allow_empty {
            return Err(CorpusError::NothingUsable(corpus.fault_reports_up_to(LISTED)));
        }
        // A text that this voice is given later is in one of the languages that there are.
        let languages = match frontend.language {
            Some(_) => Vec::new(),
            None => corpus.languages().into_iter().map(|(language, ..)| language).collect(),
        };
        corpus.frontend = Arc::new(Frontend { languages, ..frontend.clone() });
        let vocabulary = match corpus.frontend.vocabulary.is_empty() {
            true => corpus.vocabulary_of(0..corpus.len() as u32),
            false => corpus.frontend.vocabulary.clone(),
        };
        Ok(corpus.with_vocabulary(vocabulary))
    }

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

/// Reads the rows of a corpus that is being opened.
struct Reader<'a> {
    encoder: &'a Encoder<'a>,
    frontend: &'a Frontend,
    source: &'a dyn Source,
    processing: Processing,
    /// Why the bucket cannot be read, once that is so: no clip is to blame.
    unreachable: &'a Mutex<Option<RemoteError>>,
    stop: &'a AtomicBool,
}

impl Reader<'_> {
    fn identify(&self, row: u32) -> Result<(u64, u64), ClipFault> {
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
    fn measure(&self, rows: &[u32], on_clip: &dyn Fn()) -> Result<Vec<Measured>, FrontendError> {
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

fn find_duplicates(index: &mut Index, source: &dyn Source) {
    for (row, earlier) in index.duplicates() {
        skip(index, row, ClipFault::DuplicateId(source.line(earlier)));
    }
}

fn apply_limits(index: &mut Index, settings: &CorpusSettings) {
    for row in 0..index.entries.len() as u32 {
        let entry = index.entries[row as usize];
        if !entry.is_good() {
            continue;
        }
        let rate = settings.mel.sample_rate;
        let samples = u64::from(entry.samples) * u64::from(rate) / u64::from(entry.rate.max(1));
        if samples < settings.mel.hop_length as u64 {
            skip(index, row, ClipFault::TooShort(entry.samples.into()));
            continue;
        }
        let size = size_of(&entry, &settings.mel);
        let (frames, tokens) = (u64::from(size.frames), u64::from(size.tokens));
        match (settings.max_frames, settings.max_tokens) {
            (Some(limit), _) if frames > limit => skip(index, row, ClipFault::TooLong { frames, limit }),
            (_, Some(limit)) if tokens > limit => skip(index, row, ClipFault::TextTooLong { tokens, limit }),
            _ => {}
        }
    }
}

fn skip(index: &mut Index, row: u32, fault: ClipFault) {
    index.entries[row as usize].samples = 0;
    index.faults.push((row, fault));
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

/// Whether a text has letters that English or Persian does not have: perhaps it is another language.
fn has_foreign_letters(text: &str, language: &Language) -> bool {
    let own = |c: char| match language.rules() {
        Rules::English => c.is_ascii(),
        Rules::Persian => c.is_ascii() || ('\u{0600}'..='\u{06FF}').contains(&c),
        Rules::Plain => true,
    };
    text.chars().any(|c| c.is_alphabetic() && !own(c))
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
