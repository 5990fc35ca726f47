//! [`Run`]: a run as a library user starts it, from a directory of clips to a report.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use tandem_data::{Corpus, CorpusError, CorpusSettings, Open};
use tandem_device::Lanes;
use tandem_flow::Context;
use tandem_text::{Frontend, Lexicon, LexiconError, Vocabulary};

use crate::checkpoint::{self, State};
use crate::data::Data;
use crate::events::{Event, Report, TrainError};
use crate::run::RunDir;
use crate::settings::{Facts, Requested, SettingsError, resolve, resolve_corpus};
use crate::trainer::{Start, Trainer};

/// A run that is about to start: a corpus, the directory of the run, and the settings that were given. The thread that trains on the CPU
/// calls [`compute_here`](tandem_model::kernels::compute_here) first: the same steps, faster.
#[derive(Debug)]
pub struct Run {
    corpus: PathBuf,
    dir: RunDir,
    requested: Requested,
    lanes: Option<Lanes>,
    context: Context,
}

/// Why a run cannot start, or how it failed.
#[derive(Debug)]
pub enum RunError {
    /// A setting is wrong, or not that of the run in the directory.
    Settings(SettingsError),
    /// The lexicon cannot be read.
    Lexicon(LexiconError),
    /// The corpus cannot be read.
    Corpus(CorpusError),
    /// Everything else.
    Train(TrainError),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Settings(error) => error.fmt(f),
            RunError::Lexicon(error) => error.fmt(f),
            RunError::Corpus(error) => error.fmt(f),
            RunError::Train(error) => error.fmt(f),
        }
    }
}

impl Error for RunError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(match self {
            RunError::Settings(error) => error,
            RunError::Lexicon(error) => error,
            RunError::Corpus(error) => error,
            RunError::Train(error) => error,
        })
    }
}

/// How the corpus of a run is read, lexicon included: what is requested, else what the resumed run had.
pub fn corpus_settings(requested: &Requested, state: Option<&State>) -> Result<CorpusSettings, RunError> {
    let settings = resolve_corpus(requested, state.map(|state| &state.settings)).map_err(RunError::Settings)?;
    // The vocabulary is made from the corpus.
    let saved = state.map(|state| state.frontend.with_vocabulary(Vocabulary::default())).unwrap_or_default();
    let lexicon = match requested.path("lexicon") {
        Some(path) => Lexicon::read(path).map_err(RunError::Lexicon)?,
        None => saved.lexicon,
    };
    let Frontend { units, language, diacritics, .. } = settings.frontend;
    // A run keeps what was chosen when it began.
    let is_new = state.is_none();
    let open = Open { languages: is_new && language.is_none(), units: is_new && !requested.names("units") };
    Ok(CorpusSettings { frontend: Frontend { units, language, diacritics, lexicon, ..saved }, open, ..settings })
}

impl Run {
    /// Trains on the corpus in one directory and keeps the run in another; on the CPU, unless [`Run::on`] says
    /// otherwise.
    pub fn new(corpus: impl Into<PathBuf>, dir: impl Into<PathBuf>) -> Run {
        Run {
            corpus: corpus.into(),
            dir: RunDir::new(dir),
            requested: Requested::new(),
            lanes: None,
            context: Context::default(),
        }
    }

    /// The same with a setting, named and written as on the command line: `with("max-steps", "2000")`.
    pub fn with(mut self, name: &str, text: &str) -> Result<Run, RunError> {
        self.requested = self.requested.with(name, text).map_err(RunError::Settings)?;
        Ok(self)
    }

    /// The same on other devices.
    pub fn on(mut self, lanes: Lanes) -> Run {
        self.lanes = Some(lanes);
        self
    }

    /// The same with this clock, trace and stop switch.
    pub fn within(mut self, context: Context) -> Run {
        self.context = context;
        self
    }

    /// Trains to the end, from scratch or from the last checkpoint in the directory of the run.
    pub fn train(self, on_event: &mut dyn FnMut(Event<'_>)) -> Result<Report, RunError> {
        let train = |error: TrainError| RunError::Train(error);
        let cannot_write = |error| train(checkpoint::CheckpointError::Io(self.dir.path().to_owned(), error).into());
        let take = || match self.dir.take().map_err(cannot_write)? {
            true => Ok(()),
            false => Err(train(TrainError::Locked(self.dir.path().to_owned()))),
        };
        // Before anything is read of it: what somebody else is about to write would be missed.
        if self.dir.has_run() {
            take()?;
        }
        let start = self.last_checkpoint().map_err(train)?;
        let state = start.as_ref().map(|start| &start.checkpoint.state);
        let saved = state.map(|state| &state.settings);
        let read = corpus_settings(&self.requested, state)?;
        let corpus = Corpus::open(&self.corpus, read).map_err(RunError::Corpus)?;
        let mut data = Data::new(Arc::new(corpus), None).map_err(|error| train(error.into()))?;
        let of_run = saved.and_then(|saved| saved.data.alignments.as_deref());
        if let Some(dir) = self.requested.path("alignments").or(of_run) {
            data = data.with_alignments(dir).map_err(|error| train(error.into()))?;
        }
        let lanes = self.lanes.unwrap_or_else(Lanes::cpu);
        let facts = Facts::new(data.clips.len(), &lanes.placement).with_texts(&data.corpus);
        let (config, resolved) = resolve(&self.requested, saved, &facts).map_err(RunError::Settings)?;
        let facts = json!({"lanes": lanes.placement, "data": data.identity(), "speakers": data.speaker_shares()});
        let mut trainer = Trainer::new(data, config, self.dir.clone(), lanes, start).map_err(train)?;
        // Nothing refuses this start any more but another one that was faster.
        self.dir.create().map_err(cannot_write)?;
        take()?;
        self.dir.add_to_manifest(&resolved, facts).map_err(cannot_write)?;
        trainer.run(&self.context, on_event).map_err(train)
    }

    fn last_checkpoint(&self) -> Result<Option<Start>, TrainError> {
        let checkpoints = self.dir.checkpoints();
        let Some(&last) = checkpoints.steps().last() else { return Ok(None) };
        let path = checkpoints.path(last);
        Ok(Some(Start { checkpoint: checkpoint::read(&path)?, path }))
    }
}
