//! Opening: the index is brought up to date, what cannot be used is noted, and the texts get their vocabulary.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tandem_text::{Frontend, FrontendError};

use super::reader::Reader;
use super::{Corpus, CorpusError, CorpusSettings, LISTED, size_of};
use crate::fault::ClipFault;
use crate::files::hash_parts;
use crate::index::Index;
use crate::remote::Files;
use crate::sources::{self, Part, Source};

/// Changing what an index entry means changes this.
const INDEX_VERSION: u64 = 8;

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
