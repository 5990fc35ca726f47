//! Batches on their way to the model: the picture of the pipeline in code.
//!
//! ```text
//!            host memory                data lane's device            model lane's device
//! plan ─► load (pool) ─►[ host ]─► preprocess ─►[ data ]─► transfer ─►[ model ]─► train
//!         decode, text,   --buffer-size  features,   --pipeline-depth  copy   --prefetch-buffer-size
//!         cache (, mel)                  normalise, noise
//! ```
//!
//! There is one chain. Which devices the lanes have, and where features are computed, is data ([`Lanes`]).

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use tandem_audio::MelStats;
use tandem_data::{CacheMode, Corpus, FaultReport, LoadSettings, Loader, PlanSettings, PlannedBatch, split};
use tandem_device::{FeaturesOn, Lanes};
use tandem_flow::{Autotune, Budget, Context, Cursor, Fault, Flow, Knob, Oversize, Place, Stage};
use tandem_model::weights::{HostTensor, Tensors};
use tandem_model::{Device, InputShape, REFERENCE_FRAMES};
use tandem_synth::HeldOutBatch;
use xxhash_rust::xxh3::Xxh3;

use crate::checkpoint::DataIdentity;
use crate::fault::LaneFault;
use crate::features::{Ready, prepare};
use crate::lane::{DataLane, Gauge};
use crate::settings::TrainConfig;

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
        if clips.is_empty() || validation_clips.is_empty() {
            let what = if clips.is_empty() { "train" } else { "validate" };
            return Err(format!("no clip is left to {what} on: all have more tokens than frames"));
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
            clips: self.clips.len(),
            validation_clips: self.validation_clips.len(),
            speakers: self.corpus.speakers().len().max(1),
            hash: format!("{:016x}", hash.digest()),
        }
    }

    /// A stretch of each speaker's speech, by name, normalised: what a voice is asked for by name with.
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
            stats.normalize(&batch.sound, batch.frames, kept, &mut values);
            let name = self.corpus.speakers().get(usize::from(speaker)).cloned().unwrap_or_default();
            voices.insert(name, HostTensor { shape: vec![kept, n_mels], values });
        }
        voices
    }

    /// The loader of a run: the training clips, with a cache for what the data lane reads of them. Everything else that the run reads of
    /// this corpus is a view of it.
    pub(crate) fn loader(&self, settings: &TrainConfig, features: FeaturesOn) -> Result<Arc<Loader>, String> {
        let cache = self.corpus.cache(settings.pipeline.cache, settings.pipeline.cache_limit);
        let as_signal = features == FeaturesOn::Data;
        let settings = LoadSettings { as_signal, ..load_settings(settings, settings.data.batch_size) };
        Loader::new(self.corpus.clone(), self.clips.clone(), settings, cache).map_err(|error| error.to_string())
    }
}

/// Where a corpus really is, however it was named.
fn full(corpus: &Corpus) -> PathBuf {
    corpus.folder().canonicalize().unwrap_or_else(|_| corpus.folder().to_owned())
}

/// How batches are formed.
fn load_settings(settings: &TrainConfig, batch_size: usize) -> LoadSettings {
    let (seed, static_shapes) = (settings.run.seed, settings.data.static_shapes);
    let plan = PlanSettings { batch_size, seed, static_shapes, plain_order: false };
    LoadSettings { plan, ..LoadSettings::default() }
}

/// Memory that batches lease before work on them starts: on the host, and on the device of each lane.
#[derive(Clone, Debug)]
pub struct Budgets {
    /// The host's.
    pub host: Budget,
    /// The data lane's.
    pub data: Budget,
    /// The model lane's, after the model itself.
    pub model: Budget,
}

impl Budgets {
    /// So much on the host, and on the devices if that is limited.
    pub fn new(host_bytes: usize, data_limit: Option<u64>, model_limit: Option<u64>) -> Budgets {
        let bytes = |limit: Option<u64>| limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        Budgets {
            host: Budget::new(Place::Host, host_bytes, Oversize::Alone),
            data: Budget::new(DATA_LANE, bytes(data_limit), Oversize::Refuse),
            model: Budget::new(MODEL_LANE, bytes(model_limit), Oversize::Refuse),
        }
    }
}

/// What the data lane's memory is called.
pub(crate) const DATA_LANE: &str = "data lane";
/// What the model lane's memory is called.
pub(crate) const MODEL_LANE: &str = "model lane";

/// Makes the batches of a run.
pub struct Feed {
    loader: Arc<Loader>,
    /// The same batches with features from the CPU.
    on_host: Arc<Loader>,
    lane: Option<Arc<DataLane>>,
    model: Device,
    stats: Arc<MelStats>,
    seed: u64,
    shape: InputShape,
    reference: Option<usize>,
    workers: Knob,
    buffer_size: Knob,
    data_queue: Knob,
    prefetch_buffer_size: Knob,
    budgets: Budgets,
    fault: Option<LaneFault>,
}

impl Feed {
    /// For these data and settings, on these devices; batches arrive on `model`, the model's device as it learns.
    pub fn new(
        data: &Data,
        settings: &TrainConfig,
        stats: &MelStats,
        (shape, reference): (InputShape, Option<usize>),
        lanes: &Lanes,
        model: &Device,
        budgets: &Budgets,
    ) -> Result<Feed, String> {
        let loader = data.loader(settings, lanes.placement.features)?;
        Feed::with_loader(&loader, data, settings, stats, (shape, reference), lanes, model, budgets)
    }

    /// The same with a loader of the run, whose cache may hold clips already.
    #[expect(clippy::too_many_arguments, reason = "what a run consists of")]
    pub(crate) fn with_loader(
        loader: &Arc<Loader>,
        data: &Data,
        settings: &TrainConfig,
        stats: &MelStats,
        (shape, reference): (InputShape, Option<usize>),
        lanes: &Lanes,
        model: &Device,
        budgets: &Budgets,
    ) -> Result<Feed, String> {
        let lane = match lanes.placement.features {
            FeaturesOn::Cpu => None,
            FeaturesOn::Data => {
                let lane = DataLane::new(&data.corpus.settings().mel, stats, &lanes.data)?;
                Some(Arc::new(lane.piece_bytes(budgets.data.limit_bytes() / 4)))
            }
        };
        let knob = |name: &str, value: usize, most: usize| {
            // None is not a depth, or a number of workers, to begin from.
            if settings.pipeline.autotune && value > 0 {
                Knob::new(name, value, 1..=most.max(value))
            } else {
                Knob::fixed(name, value)
            }
        };
        let stats = Arc::new(stats.clone());
        let make = |as_signal: bool| {
            let settings = LoadSettings {
                reference_frames: reference,
                as_signal,
                normalize: (!as_signal).then(|| stats.clone()),
                group: shape.group,
                noise: true,
                ..load_settings(settings, settings.data.batch_size)
            };
            loader.view(data.clips.clone(), settings)
        };
        let from_files = make(lane.is_some());
        Ok(Feed {
            on_host: if lane.is_some() { make(false) } else { from_files.clone() },
            loader: from_files,
            lane,
            model: model.clone(),
            stats,
            seed: settings.run.seed,
            shape,
            reference,
            workers: knob("workers", settings.pipeline.workers, settings.pipeline.max_workers),
            buffer_size: knob("buffer", settings.pipeline.buffer_size, settings.pipeline.buffer_size),
            // One of the batches under way is the one that is prepared.
            data_queue: Knob::fixed("pipeline-depth", settings.pipeline.pipeline_depth.saturating_sub(1)),
            prefetch_buffer_size: match settings.pipeline.prefetch_buffer_size {
                0 => Knob::fixed("prefetch-buffer-size", 0),
                queue => Knob::new("prefetch-buffer-size", 1, 1..=queue),
            },
            budgets: budgets.clone(),
            fault: None,
        })
    }

    /// Makes the data lane slow or fail on purpose.
    pub fn fail(&mut self, fault: Option<LaneFault>) {
        if let Some(delay) = fault.and_then(LaneFault::disk_delay) {
            self.loader.slow_down(delay);
        }
        self.fault = fault;
    }

    /// The pipeline up to the model, from `start` on. Its threads live as long as the run: no stall between epochs.
    pub fn flow(&self, context: &Context, start: Cursor, epochs: u64) -> Flow<Ready> {
        let Budgets { host, data, model } = &self.budgets;
        let (stats, seed, shape, lane) = (self.stats.clone(), self.seed, self.shape, self.lane.clone());
        let (sizer, device, fault, surroundings) = (lane.clone(), self.model.clone(), self.fault, context.clone());
        let reference = self.reference.unwrap_or(0);
        self.loader
            .flow(context, start, epochs, &self.workers, &self.buffer_size, host)
            .lease(data, move |batch| {
                sizer.as_ref().map_or(0, |lane| lane.batch_bytes(batch.rows, batch.frames, reference))
            })
            .stage(Stage::Preprocess, move |batch| {
                if let Some(fault) = fault {
                    fault.strike(batch.cursor, &surroundings)?;
                }
                let mut prepared = prepare(batch, &stats, seed, shape.group);
                let sound = match &lane {
                    None => None,
                    Some(lane) => lane.features(&mut prepared).map_err(|why| Fault::new(why).fatal())?,
                };
                Ok((prepared, sound))
            })
            .prefetch(Place::Data, &self.data_queue)
            .lease(model, move |(prepared, _)| prepared.inputs.device_bytes(&shape))
            .stage(Stage::Transfer, move |(prepared, sound)| Ok(prepared.upload(sound, &shape, &device)))
            .release(host)
            .release(data)
            .prefetch(Place::Model, &self.prefetch_buffer_size)
    }

    /// Batches of the first epoch as far as the host makes them: afterwards the cache, if there is one, is full.
    pub(crate) fn first_epoch(&self, context: &Context) -> Flow<tandem_data::Batch> {
        let workers = Knob::fixed("workers", std::thread::available_parallelism().map_or(1, usize::from));
        self.loader.flow(context, Cursor::START, 1, &workers, &Knob::fixed("buffer", 2), &self.budgets.host)
    }

    /// Turns the knobs that may be turned, for the stage `train`.
    pub fn autotune(&self, context: &Context) -> Autotune {
        let mut tuner = Autotune::new(context, Stage::Train).budget(&self.budgets.host);
        let turns = |knob: &Knob| knob.range().start() < knob.range().end();
        if turns(&self.workers) {
            tuner = tuner.workers(Stage::Load, &self.workers);
        }
        if turns(&self.buffer_size) {
            tuner = tuner.depth(Place::Host, &self.buffer_size);
        }
        tuner
    }

    /// Batches that may be ready on the host.
    pub fn buffer_size(&self) -> usize {
        self.buffer_size.get()
    }

    /// Batches that are made at once.
    pub fn workers(&self) -> usize {
        self.workers.get()
    }

    /// Memory of the host that batches take now, as a share of what they may.
    pub fn memory_share(&self) -> f64 {
        self.budgets.host.used_bytes() as f64 / self.budgets.host.limit_bytes().max(1) as f64
    }

    /// Batches of an epoch; every epoch has as many.
    pub fn batches(&self) -> usize {
        self.loader.plan(0).len()
    }

    /// A batch that takes at least as much memory as any of any epoch.
    pub fn longest(&self) -> Option<Ready> {
        let planned = self.loader.largest()?;
        // Made on the host in any case: the data lane's device keeps memory for every thread that uses it.
        let batch = self.on_host.load(&planned);
        if batch.clips.is_empty() {
            return None;
        }
        Some(prepare(batch, &self.stats, self.seed, self.shape.group).upload(None, &self.shape, &self.model))
    }

    /// Bytes that the largest batch takes on the host and on the data lane's device.
    pub fn longest_bytes(&self) -> (usize, u64) {
        let Some(largest) = self.loader.largest() else { return (0, 0) };
        let data =
            |lane: &Arc<DataLane>| lane.batch_bytes(largest.rows, largest.frames, self.reference.unwrap_or(0)) as u64;
        (self.loader.batch_bytes(&largest), self.lane.as_ref().map_or(0, data))
    }

    /// Lets as many batches wait on the model's device as was asked for. Until then it is one: what the model itself
    /// takes is not known yet.
    pub fn open_prefetch_buffer(&self) {
        self.prefetch_buffer_size.set(*self.prefetch_buffer_size.range().end());
    }

    /// Tells what the host holds for the data lane: batches that are leased, and features that are kept.
    pub fn host_meter(&self) -> Box<dyn Fn() -> u64> {
        let (loader, host) = (self.loader.clone(), self.budgets.host.clone());
        Box::new(move || {
            let kept = if loader.cache().mode() == CacheMode::Ram { loader.cache().stats().bytes } else { 0 };
            host.used_bytes() as u64 + kept
        })
    }

    /// What the allocator of the data lane's device holds, as the lane saw it last.
    pub(crate) fn lane_gauge(&self) -> Option<Arc<Gauge>> {
        self.lane.as_ref().map(|lane| lane.gauge())
    }

    /// Clips that turned out to be bad.
    pub fn left_out(&self) -> Vec<FaultReport> {
        self.loader.ledger().reports()
    }

    /// Up to `most` validation clips, always the same, with always the same noise.
    pub fn validation(
        &self,
        data: &Data,
        settings: &TrainConfig,
        reference: Option<usize>,
        most: usize,
    ) -> Result<Vec<HeldOutBatch>, String> {
        if !Arc::ptr_eq(&data.corpus, &data.validation) {
            return validation_batches(data, settings, &self.stats, self.shape.group, reference, most);
        }
        let settings = validation_settings(settings, &self.stats, self.shape.group, reference);
        held_out(&self.on_host.view(validation_clips(data, most), settings), &self.stats, self.shape.group)
    }
}

/// Up to `most` validation clips, always the same, with always the same noise, in batches of up to 16.
pub fn validation_batches(
    data: &Data,
    settings: &TrainConfig,
    stats: &MelStats,
    group: usize,
    reference: Option<usize>,
    most: usize,
) -> Result<Vec<HeldOutBatch>, String> {
    let settings = validation_settings(settings, stats, group, reference);
    let cache = data.validation.cache(CacheMode::Off, 0);
    let loader = Loader::new(data.validation.clone(), validation_clips(data, most), settings, cache);
    let loader = loader.map_err(|error| error.to_string())?;
    held_out(&loader, stats, group)
}

fn validation_clips(data: &Data, most: usize) -> Vec<u32> {
    data.validation_clips.iter().copied().take(most).collect()
}

fn validation_settings(
    settings: &TrainConfig,
    stats: &MelStats,
    group: usize,
    reference: Option<usize>,
) -> LoadSettings {
    let batch_size = settings.data.batch_size.min(16);
    LoadSettings {
        plan: PlanSettings { batch_size, seed: 0, static_shapes: false, plain_order: false },
        reference_frames: reference,
        normalize: Some(Arc::new(stats.clone())),
        group,
        noise: true,
        ..LoadSettings::default()
    }
}

fn held_out(loader: &Loader, stats: &MelStats, group: usize) -> Result<Vec<HeldOutBatch>, String> {
    let batches = loader.plan(0).into_iter().map(|planned| loader.load(&planned));
    let prepared: Vec<HeldOutBatch> = (batches.filter(|batch| !batch.clips.is_empty()))
        .map(|batch| prepare(batch, stats, 0, group))
        .map(|prepared| HeldOutBatch { clips: prepared.clips, inputs: prepared.inputs })
        .collect();
    if prepared.is_empty() {
        return Err("not one validation clip can be read".to_owned());
    }
    Ok(prepared)
}
