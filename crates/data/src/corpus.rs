//! Metadata and index together: everything about the clips but their sound.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tandem_audio::{MelSettings, probe};
use tandem_text::{Encoded, Language, Normaliser, Tokenizer};

use crate::cache::{Cache, CacheMode};
use crate::fault::{ClipFault, FaultReport, Tolerance};
use crate::index::{Index, IndexEntry, file_identity, hash_parts, work_folder};
use crate::metadata::{Metadata, MetadataError, Speakers, parse_row};
use crate::plan::{ClipSize, order};

/// Endings tried for a clip, in this order; the last means that the id has its ending itself.
const ENDINGS: [&str; 9] = [".wav", ".flac", ".mp3", ".ogg", ".WAV", ".FLAC", ".MP3", ".OGG", ""];
const LANGUAGES: [Language; 2] = [Language::English, Language::Persian];
/// Faults that an error lists.
const LISTED: usize = 10;
/// Changing what an index entry means changes this.
const INDEX_VERSION: u64 = 4;

/// How a corpus is read.
#[derive(Clone, Debug, PartialEq)]
pub struct CorpusSettings {
    /// The features to be made of it.
    pub mel: MelSettings,
    /// The folder with the audio files.
    pub audio_folder: String,
    /// The language of the texts; guessed for each text when not given.
    pub language: Option<Language>,
    /// Texts are taken as they are (their characters looked up in this vocabulary) instead of normalised.
    pub raw_text: Option<Tokenizer>,
    /// Clips with more frames are left out.
    pub max_frames: Option<u64>,
    /// Clips with more tokens are left out.
    pub max_tokens: Option<u64>,
    /// Opens even when not one clip can be used, to say why.
    pub allow_empty: bool,
}

impl Default for CorpusSettings {
    fn default() -> Self {
        CorpusSettings {
            mel: MelSettings::default(),
            audio_folder: "wavs".to_owned(),
            language: None,
            raw_text: None,
            max_frames: None,
            max_tokens: None,
            allow_empty: false,
        }
    }
}

/// Why a corpus cannot be opened.
#[derive(Debug)]
pub enum CorpusError {
    /// Its metadata cannot be used.
    Metadata(MetadataError),
    /// Not one clip can be used; these are the first reasons.
    NothingUsable(Vec<FaultReport>),
    /// More clips are left out than is tolerated.
    TooMany {
        /// How many.
        faults: usize,
        /// Of how many.
        rows: usize,
        /// The first of them.
        first: Vec<FaultReport>,
    },
    /// Stopped by the user.
    Stopped,
}

impl fmt::Display for CorpusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CorpusError::Metadata(error) => write!(f, "{error}"),
            CorpusError::NothingUsable(reports) => {
                write!(f, "none of the clips can be used")?;
                list(f, reports)
            }
            CorpusError::TooMany { faults, rows, first } => {
                write!(f, "{faults} of {rows} clips cannot be used, more than is tolerated")?;
                list(f, first)
            }
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
            _ => None,
        }
    }
}

impl From<MetadataError> for CorpusError {
    fn from(error: MetadataError) -> Self {
        CorpusError::Metadata(error)
    }
}

/// A folder of clips and transcripts. Clips that can be used are numbered from 0 to [`Corpus::len`] - 1; methods that are
/// asked about another number panic.
#[derive(Debug)]
pub struct Corpus {
    folder: PathBuf,
    work_folder: PathBuf,
    settings: CorpusSettings,
    metadata: Metadata,
    speakers: Vec<String>,
    tokenizer: Tokenizer,
    index: Index,
    /// Rows that can be used, in the order of the metadata.
    good: Vec<u32>,
}

impl Corpus {
    /// Opens a folder and brings its index up to date. Of a large corpus that takes a while the first time: see
    /// [`Corpus::open_with`].
    ///
    /// # Errors
    ///
    /// [`CorpusError`] if its metadata cannot be used, or not one clip. That some clips cannot is no error here: see
    /// [`Corpus::check`].
    pub fn open(folder: &Path, settings: CorpusSettings) -> Result<Corpus, CorpusError> {
        Corpus::open_with(folder, settings, |_, _| {}, &AtomicBool::new(false))
    }

    /// The same; `progress(done, all)` hears how far it is, and it ends early when `stop` is set. What was done by then is
    /// kept in the index.
    ///
    /// # Errors
    ///
    /// As [`Corpus::open`], and [`CorpusError::Stopped`].
    pub fn open_with(
        folder: &Path,
        settings: CorpusSettings,
        progress: impl Fn(u32, u32) + Sync,
        stop: &AtomicBool,
    ) -> Result<Corpus, CorpusError> {
        let metadata = Metadata::open(folder)?;
        Corpus::with_metadata(folder, metadata, settings, progress, stop)
    }

    /// The same for a metadata file of one's own choice.
    ///
    /// # Errors
    ///
    /// As [`Corpus::open_with`].
    pub fn with_metadata(
        folder: &Path,
        metadata: Metadata,
        settings: CorpusSettings,
        progress: impl Fn(u32, u32) + Sync,
        stop: &AtomicBool,
    ) -> Result<Corpus, CorpusError> {
        let audio = folder.join(&settings.audio_folder);
        if !audio.is_dir() && !settings.allow_empty {
            return Err(MetadataError::NoAudioFolder(audio).into());
        }
        let speakers = Speakers::open(folder)?;
        let work_folder = work_folder(folder);
        let tokenizer = settings.raw_text.clone().unwrap_or_else(|| Tokenizer::for_language(Language::Persian));
        let tokens_of = tokenizer.to_json();
        let language = settings.language.map_or(9, language_number);
        let key = hash_parts(&[
            &INDEX_VERSION.to_le_bytes(),
            settings.audio_folder.as_bytes(),
            tokens_of.as_bytes(),
            &[u8::from(settings.raw_text.is_some()), language],
            &tandem_text::NORMALISER_VERSION.to_le_bytes(),
            metadata.path().file_name().unwrap_or_default().as_encoded_bytes(),
        ]);
        let path = work_folder.join(format!("index-{key:016x}"));
        // Without an index, or with a damaged one, everything is measured.
        let known = std::fs::read(&path).ok().and_then(|bytes| Index::parse(&bytes, key).ok()).unwrap_or_default();

        let rows = metadata.len() as u32;
        let mut corpus = Corpus {
            folder: folder.to_owned(),
            work_folder,
            settings,
            metadata,
            speakers: Vec::new(),
            tokenizer,
            index: Index::default(),
            good: Vec::new(),
        };
        let built = Index::build(
            rows,
            &known,
            |row| corpus.identify(row, &speakers),
            |row| corpus.measure(row, &speakers),
            |done| progress(done, rows),
            stop,
        );
        corpus.index = built;
        corpus.speakers = speakers.names;
        if corpus.index.measured > 0 || known.len() != rows as usize {
            // Not being able to keep it only costs time at the next start.
            let _ = corpus.index.save(&path, key);
        }
        if stop.load(Ordering::Relaxed) {
            return Err(CorpusError::Stopped);
        }
        drop(known);
        corpus.find_duplicates();
        corpus.apply_limits();
        corpus.good = (0..rows).filter(|&row| corpus.index.entries[row as usize].is_good()).collect();
        if corpus.good.is_empty() && !corpus.settings.allow_empty {
            return Err(CorpusError::NothingUsable(corpus.fault_reports_up_to(LISTED)));
        }
        Ok(corpus)
    }

    /// SPEC S4: whether enough clips are left. Limits that the user set do not count.
    ///
    /// # Errors
    ///
    /// [`CorpusError::TooMany`] when more clips are left out than is tolerated.
    pub fn check(&self, tolerance: Tolerance) -> Result<(), CorpusError> {
        let (faults, rows) = (self.faults(), self.rows());
        if tolerance.is_exceeded(faults as u64, rows as u64) {
            return Err(CorpusError::TooMany { faults, rows, first: self.fault_reports_up_to(LISTED) });
        }
        Ok(())
    }

    /// How many clips are left out because something is wrong with them.
    pub fn faults(&self) -> usize {
        self.index.faults.iter().filter(|(_, fault)| !fault.is_limit()).count()
    }

    fn identify(&self, row: u32, speakers: &Speakers) -> Result<(u64, u64), ClipFault> {
        let mut buffer = Vec::new();
        let line = self.metadata.read(row, &mut buffer)?;
        let record = parse_row(line)?;
        let (path, _) = self.find_file(&record.id)?;
        let (size, date) =
            file_identity(&path).map_err(|error| ClipFault::from(tandem_audio::AudioError::Io(error)))?;
        let (speaker, language) = speakers.of(&record.id)?;
        let identity = hash_parts(&[
            record.text.as_bytes(),
            path.file_name().unwrap_or_default().as_encoded_bytes(),
            &size.to_le_bytes(),
            &date.to_le_bytes(),
            &speaker.to_le_bytes(),
            language.unwrap_or_default().as_bytes(),
        ]);
        Ok((hash_parts(&[record.id.as_bytes()]), identity))
    }

    fn measure(&self, row: u32, speakers: &Speakers) -> Result<IndexEntry, ClipFault> {
        let mut buffer = Vec::new();
        let line = self.metadata.read(row, &mut buffer)?;
        let record = parse_row(line)?;
        let (speaker, code) = speakers.of(&record.id)?;
        let language = (self.settings.language)
            .or_else(|| code.and_then(Language::from_code))
            .or_else(|| Language::guess(&record.text))
            .unwrap_or(Language::English);
        let tokens = self.tokens(&record.text, language)?.len() as u32;
        let (path, ending) = self.find_file(&record.id)?;
        let shape = probe(&path)?;
        Ok(IndexEntry {
            samples: shape.samples,
            rate: shape.rate,
            channels: shape.channels,
            tokens,
            speaker,
            ending,
            language: language_number(language),
            ..IndexEntry::default()
        })
    }

    /// The ids of a text, or why it has none.
    fn tokens(&self, text: &str, language: Language) -> Result<Vec<u32>, ClipFault> {
        if text.trim().is_empty() {
            return Err(ClipFault::EmptyText);
        }
        let ids = self.encode(text, language).ids;
        // What counts are the letters that are left: a text in a script nobody taught us has none.
        if !self.tokenizer.decode(&ids).chars().any(char::is_alphanumeric) {
            return Err(ClipFault::NoWords);
        }
        Ok(ids)
    }

    fn encode(&self, text: &str, language: Language) -> Encoded {
        match &self.settings.raw_text {
            Some(tokenizer) => tokenizer.encode(text),
            None => self.tokenizer.encode(&Normaliser::new(language).normalise(text)),
        }
    }

    /// Characters of a clip's text that the vocabulary does not know; they are not said.
    pub fn unknown(&self, clip: u32) -> BTreeSet<char> {
        let language = self.language(clip);
        self.text(clip).map(|text| self.encode(&text, language).unknown).unwrap_or_default()
    }

    fn language(&self, clip: u32) -> Language {
        LANGUAGES.get(usize::from(self.entry(clip).language)).copied().unwrap_or(Language::English)
    }

    fn find_file(&self, id: &str) -> Result<(PathBuf, u8), ClipFault> {
        let folder = self.folder.join(&self.settings.audio_folder);
        for (number, ending) in ENDINGS.iter().enumerate() {
            let path = folder.join(format!("{id}{ending}"));
            match path.symlink_metadata() {
                Ok(_) => return Ok((path, number as u8)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(ClipFault::Audio(error.into())),
            }
        }
        Err(ClipFault::Missing)
    }

    fn find_duplicates(&mut self) {
        let mut first: HashMap<u64, u32> = HashMap::with_capacity(self.index.entries.len());
        for row in 0..self.index.entries.len() as u32 {
            let entry = self.index.entries[row as usize];
            if !entry.is_good() {
                continue;
            }
            if let Some(&earlier) = first.get(&entry.id_hash) {
                let line = self.metadata.line(earlier);
                self.leave_out(row, ClipFault::DuplicateId(line));
            } else {
                first.insert(entry.id_hash, row);
            }
        }
    }

    fn apply_limits(&mut self) {
        for row in 0..self.index.entries.len() as u32 {
            if !self.index.entries[row as usize].is_good() {
                continue;
            }
            let entry = self.index.entries[row as usize];
            let rate = self.settings.mel.sample_rate;
            let samples = entry.samples * u64::from(rate) / u64::from(entry.rate.max(1));
            if samples < self.settings.mel.hop_length as u64 {
                self.leave_out(row, ClipFault::TooShort(entry.samples));
                continue;
            }
            let size = self.row_size(row);
            let (frames, tokens) = (u64::from(size.frames), u64::from(size.tokens));
            match (self.settings.max_frames, self.settings.max_tokens) {
                (Some(limit), _) if frames > limit => self.leave_out(row, ClipFault::TooLong { frames, limit }),
                (_, Some(limit)) if tokens > limit => self.leave_out(row, ClipFault::TextTooLong { tokens, limit }),
                _ => {}
            }
        }
    }

    fn leave_out(&mut self, row: u32, fault: ClipFault) {
        self.index.entries[row as usize].samples = 0;
        self.index.faults.push((row, fault));
    }

    fn row_size(&self, row: u32) -> ClipSize {
        let entry = self.index.entries[row as usize];
        let rate = self.settings.mel.sample_rate;
        let samples = if entry.rate == rate || entry.rate == 0 {
            entry.samples
        } else {
            (entry.samples * u64::from(rate)).div_ceil(u64::from(entry.rate))
        };
        ClipSize { frames: self.settings.mel.frames(samples as usize) as u32, tokens: entry.tokens }
    }

    /// The folder it was opened from.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where its index and cache are.
    pub fn work_folder(&self) -> &Path {
        &self.work_folder
    }

    /// A cache for its features, of at most `limit_bytes`: in memory, or on disk beside its index.
    pub fn cache(&self, mode: CacheMode, limit_bytes: u64) -> Cache {
        Cache::new(mode, &self.work_folder, limit_bytes, &self.settings.mel)
    }

    /// How it is read.
    pub fn settings(&self) -> &CorpusSettings {
        &self.settings
    }

    /// Its vocabulary.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Its speakers; a corpus without `speakers.csv` has one without a name.
    pub fn speakers(&self) -> &[String] {
        &self.speakers
    }

    /// How many rows the metadata has.
    pub fn rows(&self) -> usize {
        self.metadata.len()
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
        self.index.entries[self.good[clip as usize] as usize]
    }

    /// The sizes of all usable clips.
    pub fn sizes(&self) -> Vec<ClipSize> {
        self.good.iter().map(|&row| self.row_size(row)).collect()
    }

    /// Seconds of audio in all usable clips.
    pub fn seconds(&self) -> f64 {
        (0..self.len() as u32)
            .map(|clip| self.entry(clip))
            .map(|entry| entry.samples as f64 / f64::from(entry.rate))
            .sum()
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

    /// A clip's id, file and token ids, read from the metadata; `buffer` is scratch space.
    ///
    /// # Errors
    ///
    /// [`ClipFault`] if the metadata has changed since the corpus was opened, or cannot be read any more.
    pub fn clip(&self, clip: u32, buffer: &mut Vec<u8>) -> Result<(String, PathBuf, Vec<u32>), ClipFault> {
        let entry = self.entry(clip);
        let line = self.metadata.read(self.good[clip as usize], buffer)?;
        let record = parse_row(line)?;
        let tokens = self.tokens(&record.text, self.language(clip))?;
        let ending = ENDINGS[usize::from(entry.ending).min(ENDINGS.len() - 1)];
        let path = self.folder.join(&self.settings.audio_folder).join(format!("{}{ending}", record.id));
        Ok((record.id.into_owned(), path, tokens))
    }

    /// A clip's text as it is in the metadata; `None` if that cannot be read any more.
    pub fn text(&self, clip: u32) -> Option<String> {
        let mut buffer = Vec::new();
        let line = self.metadata.read(self.good[clip as usize], &mut buffer).ok()?;
        parse_row(line).ok().map(|record| record.text.into_owned())
    }

    /// A clip's id and file, for messages; if the metadata cannot be read any more, its line.
    pub fn name(&self, clip: u32) -> (String, Option<PathBuf>) {
        match self.clip(clip, &mut Vec::new()) {
            Ok((id, path, _)) => (id, Some(path)),
            Err(_) => (format!("line {}", self.metadata.line(self.good[clip as usize])), None),
        }
    }

    /// The clips left out, with their reasons, in the order of the metadata.
    pub fn fault_reports(&self) -> Vec<FaultReport> {
        self.fault_reports_up_to(usize::MAX)
    }

    fn fault_reports_up_to(&self, count: usize) -> Vec<FaultReport> {
        let mut buffer = Vec::new();
        let mut faults: Vec<&(u32, ClipFault)> = self.index.faults.iter().collect();
        faults.sort_by_key(|(row, _)| *row);
        faults
            .into_iter()
            .take(count)
            .map(|(row, fault)| {
                let id = self.metadata.read(*row, &mut buffer).ok().and_then(|line| parse_row(line).ok());
                let id = id.map(|record| record.id.into_owned());
                let path = id.as_ref().map(|id| match self.find_file(id) {
                    Ok((path, _)) => path,
                    Err(_) => self.folder.join(&self.settings.audio_folder).join(format!("{id}.wav")),
                });
                FaultReport {
                    id: id.unwrap_or_else(|| format!("line {}", self.metadata.line(*row))),
                    path,
                    kind: fault.kind(),
                    reason: fault.to_string(),
                    limit: fault.is_limit(),
                }
            })
            .collect()
    }
}

fn language_number(language: Language) -> u8 {
    LANGUAGES.iter().position(|known| *known == language).unwrap_or(0) as u8
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
