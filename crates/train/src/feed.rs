//! Batches on their way to the model: the picture of the pipeline in code.
//!
//! ```text
//! plan ─► load (pool) ─►[ host ]─► prepare ─►[ model ]─► train
//!         decode, mel,    --buffer-size   normalise,  --pipeline-depth
//!         text, cache                     noise
//! ```

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use tandem_data::{
    Cache, CacheMode, Corpus, FaultReport, LoadSettings, Loader, PlanSettings, PlannedBatch, Tolerance, split,
};
use tandem_flow::{Budget, Context, Cursor, Flow, Knob, Oversize};
use tandem_model::REFERENCE_FRAMES;
use tandem_model::weights::{HostTensor, Tensors};
use xxhash_rust::xxh3::Xxh3;

use crate::checkpoint::DataIdentity;
use crate::features::{MelStats, Prepared, prepare};
use crate::settings::{CachePlace, TrainSettings};

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
    /// Clips left out because they have fewer frames than characters: nobody speaks so fast.
    pub too_fast: Vec<u32>,
}

/// The seed of the split into training and validation; the same for every run on a corpus.
const SPLIT_SEED: u64 = 20_260_101;

impl Data {
    /// The clips of `corpus`, validated on `validation` or, without it, on a tenth of them.
    pub fn new(corpus: Arc<Corpus>, validation: Option<Arc<Corpus>>) -> Result<Data, String> {
        let all = |corpus: &Corpus| (0..corpus.len() as u32).collect::<Vec<u32>>();
        let (clips, validation, validation_clips) = match validation {
            Some(validation) => (all(&corpus), validation.clone(), all(&validation)),
            None => {
                if corpus.len() < 2 {
                    return Err(
                        "one clip is too few: a tenth of the clips is kept for validation (or give --val-data)"
                            .to_owned(),
                    );
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
                return Err("all clips are for validation, none is left to train on".to_owned());
            }
            clips
        } else {
            clips
        };
        let speakable = |corpus: &Corpus, clips: Vec<u32>| -> (Vec<u32>, Vec<u32>) {
            let sizes = corpus.sizes();
            clips.into_iter().partition(|&clip| sizes[clip as usize].frames >= sizes[clip as usize].tokens)
        };
        let (clips, too_fast) = speakable(&corpus, clips);
        let (validation_clips, _) = speakable(&validation, validation_clips);
        if clips.is_empty() || validation_clips.is_empty() {
            let what = if clips.is_empty() { "train" } else { "validate" };
            return Err(format!("no clip is left to {what} on: all have more characters than frames"));
        }
        Ok(Data { corpus, clips, validation, validation_clips, too_fast })
    }

    /// Which clips these are, wherever they lie.
    pub fn identity(&self) -> DataIdentity {
        let mut hash = Xxh3::new();
        for (corpus, clips) in [(&self.corpus, &self.clips), (&self.validation, &self.validation_clips)] {
            for &clip in clips {
                let entry = corpus.entry(clip);
                hash.update(&entry.samples.to_le_bytes());
                hash.update(&entry.rate.to_le_bytes());
                hash.update(&entry.tokens.to_le_bytes());
                hash.update(&entry.speaker.to_le_bytes());
            }
        }
        DataIdentity {
            folder: full(&self.corpus).display().to_string(),
            validation_folder: (full(&self.validation) != full(&self.corpus))
                .then(|| full(&self.validation).display().to_string()),
            audio_folder: self.corpus.settings().audio_folder.clone(),
            language: self.corpus.settings().language.map(|language| language.code().to_owned()),
            clips: self.clips.len(),
            validation_clips: self.validation_clips.len(),
            speakers: self.corpus.speakers().len().max(1),
            hash: format!("{:016x}", hash.digest()),
        }
    }

    /// A stretch of each speaker's speech, by name, normalised: what a voice is asked for by name with.
    pub(crate) fn voices(&self, settings: &TrainSettings, stats: &MelStats, most: usize) -> Result<Tensors, String> {
        let loader = self.loader(settings, None)?;
        let sizes = self.corpus.sizes();
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
                clips: vec![clip],
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
            stats.normalise(&batch.mel, batch.frames, kept, &mut values);
            let name = self.corpus.speakers().get(usize::from(speaker)).cloned().unwrap_or_default();
            voices.insert(name, HostTensor { shape: vec![kept, n_mels], values });
        }
        Ok(voices)
    }

    /// A loader of the training clips.
    pub(crate) fn loader(&self, settings: &TrainSettings, reference: Option<usize>) -> Result<Arc<Loader>, String> {
        loader(&self.corpus, &self.clips, settings, settings.batch_size, reference)
    }
}

/// Where a corpus really is, however it was named.
fn full(corpus: &Corpus) -> PathBuf {
    corpus.folder().canonicalize().unwrap_or_else(|_| corpus.folder().to_owned())
}

fn loader(
    corpus: &Arc<Corpus>,
    clips: &[u32],
    settings: &TrainSettings,
    batch_size: usize,
    reference: Option<usize>,
) -> Result<Arc<Loader>, String> {
    let mode = match settings.cache {
        CachePlace::Ram => CacheMode::Ram,
        CachePlace::Disk => CacheMode::Disk,
        CachePlace::Off => CacheMode::Off,
    };
    let cache = Cache::new(mode, corpus.work_folder(), settings.cache_limit, &corpus.settings().mel);
    let plan =
        PlanSettings { batch_size, seed: settings.seed, static_shapes: settings.static_shapes, plain_order: false };
    let settings = LoadSettings { plan, tolerance: Tolerance::default(), reference_frames: reference };
    Loader::new(corpus.clone(), clips.to_vec(), settings, cache).map_err(|error| error.to_string())
}

/// Makes the batches of a run.
pub struct Feed {
    loader: Arc<Loader>,
    stats: Arc<MelStats>,
    seed: u64,
    group: usize,
    workers: Knob,
    buffer: Knob,
    depth: Knob,
    budget: Budget,
}

impl Feed {
    /// For these data and settings.
    pub fn new(
        data: &Data,
        settings: &TrainSettings,
        stats: &MelStats,
        group: usize,
        reference: Option<usize>,
    ) -> Result<Feed, String> {
        Ok(Feed {
            loader: data.loader(settings, reference)?,
            stats: Arc::new(stats.clone()),
            seed: settings.seed,
            group,
            workers: Knob::fixed("workers", settings.workers),
            buffer: Knob::fixed("buffer", settings.buffer),
            depth: Knob::fixed("depth", settings.depth),
            budget: Budget::new("host", settings.memory_limit, Oversize::Alone),
        })
    }

    /// The pipeline up to the model, from `start` on.
    pub fn flow(&self, context: &Context, start: Cursor, epochs: u64) -> Flow<Prepared> {
        let (stats, seed, group) = (self.stats.clone(), self.seed, self.group);
        self.loader
            .flow(context, start, epochs, &self.workers, &self.buffer, &self.budget)
            .stage("prepare", move |batch| Ok(prepare(&batch, &stats, seed, group)))
            .prefetch("model", &self.depth)
    }

    /// Batches of an epoch; every epoch has as many.
    pub fn batches(&self) -> usize {
        self.loader.plan(0).len()
    }

    /// The batch of epoch 0 that takes the most memory.
    pub fn longest(&self) -> Option<Prepared> {
        let planned = self.loader.plan(0).into_iter().max_by_key(|batch| batch.rows * batch.frames)?;
        let batch = self.loader.load(&planned);
        (!batch.clips.is_empty()).then(|| prepare(&batch, &self.stats, self.seed, self.group))
    }

    /// Clips that turned out to be bad.
    pub fn left_out(&self) -> Vec<FaultReport> {
        self.loader.ledger().reports()
    }

    /// Up to `most` validation clips, always the same, with always the same noise.
    pub fn validation(
        &self,
        data: &Data,
        settings: &TrainSettings,
        reference: Option<usize>,
        most: usize,
    ) -> Result<Vec<Prepared>, String> {
        validation_batches(data, settings, &self.stats, self.group, reference, most)
    }
}

/// Up to `most` validation clips, always the same, with always the same noise, in batches of up to 16.
pub fn validation_batches(
    data: &Data,
    settings: &TrainSettings,
    stats: &MelStats,
    group: usize,
    reference: Option<usize>,
    most: usize,
) -> Result<Vec<Prepared>, String> {
    let settings = TrainSettings { static_shapes: false, seed: 0, cache: CachePlace::Off, ..settings.clone() };
    let clips: Vec<u32> = data.validation_clips.iter().copied().take(most).collect();
    let loader = loader(&data.validation, &clips, &settings, settings.batch_size.min(16), reference)?;
    let batches = loader.plan(0).into_iter().map(|planned| loader.load(&planned));
    let prepared: Vec<Prepared> =
        batches.filter(|batch| !batch.clips.is_empty()).map(|batch| prepare(&batch, stats, 0, group)).collect();
    if prepared.is_empty() {
        return Err("not one validation clip can be read".to_owned());
    }
    Ok(prepared)
}
