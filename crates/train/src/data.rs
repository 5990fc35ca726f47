//! [`Data`]: which clips a voice is trained and validated on.

use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tandem_audio::{MelStats, SettingsError};
use tandem_data::{AlignmentsError, Corpus, Durations, LoadSettings, Loader, PlannedBatch, SpeakerShare, split};
use tandem_flow::Cursor;
use tandem_model::REFERENCE_FRAMES;
use tandem_model::weights::{HostTensor, Tensors};
use xxhash_rust::xxh3::Xxh3;

use crate::checkpoint::DataIdentity;
use crate::feed::load_settings;
use crate::lane::LaneError;
use crate::settings::TrainConfig;
use crate::task::shared_cache;

/// What clips are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To train on.
    Training,
    /// To validate on.
    Validation,
}

/// Why a run has no batches.
#[derive(Debug)]
pub enum DataError {
    /// One clip cannot be split into training and validation.
    OneClip,
    /// Every clip is among those for validation.
    AllForValidation,
    /// Every clip for this purpose has more tokens than frames.
    AllTooFast(Purpose),
    /// Not one of the clips that statistics are measured on can be read.
    NoStatistics,
    /// Not one of the clips for validation can be read.
    NoValidation,
    /// The longest batch cannot be read.
    NoLongestBatch,
    /// The settings of the features.
    Features(SettingsError),
    /// Alignments that were made before.
    Alignments(AlignmentsError),
    /// The data lane's device.
    Lane(LaneError),
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataError::OneClip => f.write_str("one clip is too few: a tenth of the clips is kept for validation"),
            DataError::AllForValidation => f.write_str("all clips are for validation, none is left to train on"),
            DataError::AllTooFast(Purpose::Training) => {
                f.write_str("no clip is left to train on: all have more tokens than frames")
            }
            DataError::AllTooFast(Purpose::Validation) => {
                f.write_str("no clip is left to validate on: all have more tokens than frames")
            }
            DataError::NoStatistics => f.write_str("not one of the first clips can be read"),
            DataError::NoValidation => f.write_str("not one validation clip can be read"),
            DataError::NoLongestBatch => f.write_str("the longest batch cannot be read"),
            DataError::Features(error) => write!(f, "{error}"),
            DataError::Alignments(error) => write!(f, "{error}"),
            DataError::Lane(error) => write!(f, "{error}"),
        }
    }
}

impl Error for DataError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            DataError::Features(error) => Some(error),
            DataError::Alignments(error) => Some(error),
            DataError::Lane(error) => Some(error),
            _ => None,
        }
    }
}

impl From<LaneError> for DataError {
    fn from(error: LaneError) -> Self {
        DataError::Lane(error)
    }
}

/// What a voice is trained and validated on.
#[derive(Clone, Debug)]
pub struct Data {
    /// Clips to train on.
    pub corpus: Arc<Corpus>,
    /// Which of them.
    pub clips: Vec<u32>,
    /// Clips to validate on.
    pub validation: Arc<Corpus>,
    /// Which of them.
    pub validation_clips: Vec<u32>,
    /// Clips that are skipped because they have fewer frames than tokens: nobody speaks so fast.
    pub too_fast: Vec<u32>,
    /// Clips to train on that were aligned before.
    pub durations: Arc<Durations>,
    /// Clips to validate on that were aligned before.
    pub validation_durations: Arc<Durations>,
}

/// The seed of the split into training and validation; the same for every run on a corpus.
const SPLIT_SEED: u64 = 20_260_101;

impl Data {
    /// The clips of `corpus`, validated on `validation` or, without it, on a tenth of them.
    pub fn new(corpus: Arc<Corpus>, validation: Option<Arc<Corpus>>) -> Result<Data, DataError> {
        let all = |corpus: &Corpus| (0..corpus.len() as u32).collect::<Vec<u32>>();
        let (clips, validation, validation_clips) = match validation {
            Some(validation) => (all(&corpus), validation.clone(), all(&validation)),
            None => {
                if corpus.len() < 2 {
                    return Err(DataError::OneClip);
                }
                let (clips, kept) = split(corpus.len() as u32, SPLIT_SEED);
                (clips, corpus.clone(), kept)
            }
        };
        // Rows that are in both are for validation.
        let clips = if full(&corpus) == full(&validation) && !Arc::ptr_eq(&corpus, &validation) {
            let kept: HashSet<String> = validation_clips.iter().map(|&clip| validation.name(clip).0).collect();
            let clips: Vec<u32> = clips.into_iter().filter(|&clip| !kept.contains(&corpus.name(clip).0)).collect();
            if clips.is_empty() {
                return Err(DataError::AllForValidation);
            }
            clips
        } else {
            clips
        };
        let speakable = |corpus: &Corpus, clips: Vec<u32>| -> (Vec<u32>, Vec<u32>) {
            let sizes = corpus.sizes();
            let has_text = |clip: u32| corpus.entry(clip).tokens > 2;
            clips
                .into_iter()
                .partition(|&clip| sizes[clip as usize].frames >= sizes[clip as usize].tokens && has_text(clip))
        };
        // A voice knows the symbols that it was trained on; what else the validation texts have is skipped.
        let vocabulary = match corpus.settings().frontend.vocabulary.is_empty() {
            true => corpus.vocabulary_of(clips.iter().copied()),
            false => corpus.frontend().vocabulary.clone(),
        };
        let same = Arc::ptr_eq(&corpus, &validation);
        let corpus = Arc::new(corpus.with_vocabulary(vocabulary.clone()));
        let validation = if same { corpus.clone() } else { Arc::new(validation.with_vocabulary(vocabulary)) };
        let (clips, too_fast) = speakable(&corpus, clips);
        let (validation_clips, _) = speakable(&validation, validation_clips);
        match (clips.is_empty(), validation_clips.is_empty()) {
            (true, _) => return Err(DataError::AllTooFast(Purpose::Training)),
            (_, true) => return Err(DataError::AllTooFast(Purpose::Validation)),
            _ => {}
        }
        let (durations, validation_durations) = (Arc::default(), Arc::default());
        Ok(Data { corpus, clips, validation, validation_clips, too_fast, durations, validation_durations })
    }

    /// The same with the durations of clips that have a TextGrid in this directory, as `tandem align` writes them.
    ///
    /// # Errors
    ///
    /// [`DataError::Alignments`] if one does not fit its clip, or no clip to train on has one.
    pub fn with_alignments(self, dir: &Path) -> Result<Data, DataError> {
        let read = |corpus: &Corpus, clips: &[u32]| Durations::read(dir, corpus, clips).map_err(DataError::Alignments);
        let durations = read(&self.corpus, &self.clips)?;
        if durations.is_empty() {
            return Err(DataError::Alignments(AlignmentsError::NoneThere(dir.to_owned())));
        }
        let validation_durations = Arc::new(read(&self.validation, &self.validation_clips)?);
        Ok(Data { durations: Arc::new(durations), validation_durations, ..self })
    }

    /// Which clips these are, wherever they lie.
    pub fn identity(&self) -> DataIdentity {
        let mut hash = Xxh3::new();
        for (corpus, clips) in [(&self.corpus, &self.clips), (&self.validation, &self.validation_clips)] {
            for &clip in clips {
                let entry = corpus.entry(clip);
                hash.update(&u64::from(entry.samples).to_le_bytes());
                hash.update(&entry.rate.to_le_bytes());
                hash.update(&entry.tokens.to_le_bytes());
                hash.update(&entry.speaker.to_le_bytes());
            }
        }
        DataIdentity {
            dir: full(&self.corpus).display().to_string(),
            validation_dir: (full(&self.validation) != full(&self.corpus))
                .then(|| full(&self.validation).display().to_string()),
            audio_dir: self.corpus.settings().audio_dir.clone(),
            clips: self.clips.len(),
            validation_clips: self.validation_clips.len(),
            speakers: self.corpus.speakers().len().max(1),
            hash: format!("{:016x}", hash.digest()),
        }
    }

    /// What there is to train on of each speaker, by name; empty when nobody is named.
    pub fn speaker_shares(&self) -> Vec<SpeakerShare> {
        let share = |name: &String| SpeakerShare { name: name.clone(), clips: 0, seconds: 0.0 };
        let mut shares: Vec<SpeakerShare> = self.corpus.speakers().iter().map(share).collect();
        for entry in self.clips.iter().map(|&clip| self.corpus.entry(clip)) {
            if let Some(share) = shares.get_mut(usize::from(entry.speaker)) {
                share.clips += 1;
                share.seconds += entry.seconds();
            }
        }
        shares
    }

    /// Reference audio of each speaker, by name: normalized frames of one of their clips.
    pub(crate) fn voices(&self, loader: &Loader, stats: &MelStats, most: usize) -> Tensors {
        let (loader, sizes) = (loader.log_mel(), self.corpus.sizes());
        let mut chosen: BTreeMap<u16, u32> = BTreeMap::new();
        for &clip in &self.clips {
            let size = |clip: u32| (sizes[clip as usize].frames as usize).min(REFERENCE_FRAMES);
            let best = chosen.entry(self.corpus.entry(clip).speaker).or_insert(clip);
            if size(clip) > size(*best) {
                *best = clip;
            }
        }
        let n_mels = self.corpus.settings().mel.n_mels;
        let mut voices = Tensors::new();
        for (speaker, clip) in chosen.into_iter().take(most) {
            let size = sizes[clip as usize];
            let planned = PlannedBatch {
                cursor: Cursor::START,
                clips: vec![clip].into(),
                rows: 1,
                frames: size.frames as usize,
                tokens: size.tokens as usize,
            };
            let batch = loader.load(&planned);
            if batch.clips.is_empty() {
                continue;
            }
            let kept = batch.mel_lengths[0].min(REFERENCE_FRAMES);
            let mut values = vec![0.0; kept * n_mels];
            stats.normalize(&batch.audio, batch.frames, kept, &mut values);
            let name = self.corpus.speakers().get(usize::from(speaker)).cloned().unwrap_or_default();
            voices.insert(name, HostTensor { shape: vec![kept, n_mels], values });
        }
        voices
    }

    /// The loader of a run: the training clips, with a cache for what the data lane reads of them. Everything else that the run reads of
    /// this corpus is a view of it.
    pub(crate) fn loader(&self, settings: &TrainConfig, as_signal: bool) -> Result<Arc<Loader>, DataError> {
        let cache = self.corpus.cache(settings.pipeline.cache, shared_cache(settings).1);
        let durations = self.durations.clone();
        let settings = LoadSettings { as_signal, durations, ..load_settings(settings, settings.data.batch_size) };
        Loader::new(self.corpus.clone(), self.clips.clone(), settings, cache).map_err(DataError::Features)
    }
}

/// Where a corpus really is, however it was named.
fn full(corpus: &Corpus) -> PathBuf {
    corpus.dir().canonicalize().unwrap_or_else(|_| corpus.dir().to_owned())
}
