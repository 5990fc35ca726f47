//! Batches on their way to the model: the pipeline in code.
//!
//! ```text
//!            host memory                data lane's device            model lane's device
//! plan ─► load (pool) ─►[ host ]─► preprocess ─►[ data ]─► transfer ─►[ model ]─► train
//!         decode, text,   --buffer-size  features,   --pipeline-depth  copy   --prefetch-buffer-size
//!         cache (, mel)                  normalize, noise
//! ```
//!
//! There is one chain. Which devices the lanes have, and where features are computed, is data ([`Lanes`]).

use std::sync::Arc;

use tandem_audio::MelStats;
use tandem_data::{CacheMode, Corpus, FaultReport, LoadSettings, Loader, PlanSettings, Shard};
use tandem_device::{FeaturesOn, Lanes};
use tandem_flow::{Autotune, Budget, Context, Cursor, Flow, Knob, Oversize, Place, Stage};
use tandem_model::Device;
use tandem_synth::HeldOutBatch;

use crate::data::{Data, DataError};
use crate::fault_injection::LaneFault;
use crate::features::{Ready, prepare};
use crate::lane::{DataLane, Gauge};
use crate::settings::TrainConfig;
use crate::task::{Acoustic, SpeechTask};

/// How batches are formed.
pub(crate) fn load_settings(settings: &TrainConfig, batch_size: usize) -> LoadSettings {
    let (seed, static_shapes, balance) = (settings.run.seed, settings.data.static_shapes, settings.data.balance);
    let plan = PlanSettings { batch_size, seed, static_shapes, balance, ..PlanSettings::default() };
    LoadSettings { plan, pitch: true, ..LoadSettings::default() }
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
pub struct Feed<T: SpeechTask = Acoustic> {
    task: T,
    loader: Arc<Loader>,
    /// The same batches with features from the CPU.
    on_host: Arc<Loader>,
    lane: Option<Arc<DataLane>>,
    model: Device,
    stats: Arc<MelStats>,
    seed: u64,
    workers: Knob,
    buffer_size: Knob,
    data_queue: Knob,
    prefetch_buffer_size: Knob,
    budgets: Budgets,
    fault: Option<LaneFault>,
}

impl<T: SpeechTask> Feed<T> {
    /// For these data and settings, on these devices; batches arrive on `model`, the model's device as it learns.
    pub fn new(
        data: &Data,
        settings: &TrainConfig,
        stats: &MelStats,
        task: T,
        lanes: &Lanes,
        model: &Device,
        budgets: &Budgets,
    ) -> Result<Feed<T>, DataError> {
        let loader = data.loader(settings, T::OF_SAMPLES || lanes.placement.features == FeaturesOn::Data)?;
        Feed::with_loader(&loader, data, settings, stats, task, lanes, model, budgets, Shard::default())
    }

    /// The same for some rows of each batch, with a loader of the run, whose cache may hold clips already.
    #[expect(clippy::too_many_arguments, reason = "what a run consists of")]
    pub(crate) fn with_loader(
        loader: &Arc<Loader>,
        data: &Data,
        settings: &TrainConfig,
        stats: &MelStats,
        task: T,
        lanes: &Lanes,
        model: &Device,
        budgets: &Budgets,
        shard: Shard,
    ) -> Result<Feed<T>, DataError> {
        let lane = match lanes.placement.features {
            FeaturesOn::Cpu => None,
            FeaturesOn::Data => {
                let lane = task.equip(DataLane::new(&data.corpus.settings().mel, stats, &lanes.data)?);
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
        let make = |on_data_lane: bool| {
            let durations = data.durations.clone();
            let plain = LoadSettings { durations, shard, ..load_settings(settings, settings.data.batch_size) };
            loader.view(data.clips.clone(), task.load_settings(plain, &stats, on_data_lane))
        };
        let from_files = make(lane.is_some());
        Ok(Feed {
            on_host: if lane.is_some() { make(false) } else { from_files.clone() },
            loader: from_files,
            lane,
            model: model.clone(),
            stats,
            seed: settings.run.seed,
            task,
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
    pub fn flow(&self, context: &Context, start: Cursor, epochs: u64) -> Flow<Ready<T::Inputs>> {
        let Budgets { host, data, model } = &self.budgets;
        let (stats, seed, lane) = (self.stats.clone(), self.seed, self.lane.clone());
        let (preparer, counter, uploader) = (self.task.clone(), self.task.clone(), self.task.clone());
        let (sizer, device, fault, surroundings) = (lane.clone(), self.model.clone(), self.fault, context.clone());
        let (leaser, batches) = (self.task.clone(), self.batches() as u64);
        self.loader
            .flow(context, start, epochs, &self.workers, &self.buffer_size, host)
            .lease(data, move |batch| {
                sizer.as_ref().map_or(0, |lane| leaser.lane_bytes(lane, batch.rows, batch.frames))
            })
            .stage(Stage::Preprocess, move |batch| {
                if let Some(fault) = fault {
                    fault.inject(batch.cursor, &surroundings)?;
                }
                let place = batch.cursor.epoch * batches + batch.cursor.batch;
                preparer.prepare(batch, place, &stats, seed, lane.as_deref())
            })
            .prefetch(Place::Data, &self.data_queue)
            .lease(model, move |prepared| counter.prepared_bytes(prepared))
            .stage(Stage::Transfer, move |prepared| Ok(uploader.upload(prepared, &device)))
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
    pub fn longest(&self) -> Option<Ready<T::Inputs>> {
        let planned = self.loader.largest()?;
        // Made on the host in any case: the data lane's device keeps memory for every thread that uses it.
        let batch = self.on_host.load(&planned);
        if batch.clips.is_empty() {
            // Of the longest clips this rank has none: it has as much padding as they are long.
            return None;
        }
        let prepared = self.task.prepare(batch, 0, &self.stats, self.seed, None).ok()?;
        Some(self.task.upload(prepared, &self.model))
    }

    /// Bytes that the largest batch takes on the host and on the data lane's device.
    pub fn longest_bytes(&self) -> (usize, u64) {
        let Some(largest) = self.loader.largest() else { return (0, 0) };
        let data = |lane: &Arc<DataLane>| self.task.lane_bytes(lane, largest.rows, largest.frames) as u64;
        (self.loader.batch_bytes(&largest), self.lane.as_ref().map_or(0, data))
    }

    /// Lets as many batches wait on the model's device as was requested. Until then it is one: what the model itself
    /// takes is not known yet.
    pub fn open_prefetch_buffer(&self) {
        self.prefetch_buffer_size.set(*self.prefetch_buffer_size.range().end());
    }

    /// What the host holds for the data lane: batches that are leased, and features that are kept.
    pub fn host_meter(&self) -> Box<dyn Fn() -> u64> {
        let (loader, host, task) = (self.loader.clone(), self.budgets.host.clone(), self.task.clone());
        Box::new(move || {
            let kept = if loader.cache().mode() == CacheMode::Ram { loader.cache().stats().bytes } else { 0 };
            host.used_bytes() as u64 + kept + task.kept_bytes()
        })
    }

    /// What the allocator of the data lane's device holds, as the lane saw it last.
    pub(crate) fn lane_gauge(&self) -> Option<Arc<Gauge>> {
        self.lane.as_ref().map(|lane| lane.gauge())
    }

    /// Clips that turned out to be bad.
    pub fn skipped(&self) -> Vec<FaultReport> {
        self.loader.ledger().reports()
    }

    /// Up to `most` validation clips, always the same, with always the same noise.
    pub fn validation(&self, data: &Data, settings: &TrainConfig, most: usize) -> Result<Vec<T::HeldOut>, DataError> {
        let plain =
            LoadSettings { durations: data.validation_durations.clone(), ..plain_validation_settings(settings) };
        let settings = self.task.load_settings(plain, &self.stats, false);
        let clips = validation_clips(data, most);
        let loader = match Arc::ptr_eq(&data.corpus, &data.validation) {
            true => self.on_host.view(clips, settings),
            false => {
                let cache = data.validation.cache(CacheMode::Off, 0);
                Loader::new(data.validation.clone(), clips, settings, cache).map_err(DataError::Features)?
            }
        };
        let batches = loader.plan(0).into_iter().map(|planned| loader.load(&planned));
        let held_out: Vec<T::HeldOut> = (batches.filter(|batch| !batch.clips.is_empty()))
            .map(|batch| self.task.held_out(batch, &self.stats))
            .collect();
        if held_out.is_empty() { Err(DataError::NoValidation) } else { Ok(held_out) }
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
) -> Result<Vec<HeldOutBatch>, DataError> {
    let loader = validation_loader(data, settings, stats, group, reference, most)?;
    held_out(&loader, stats, group)
}

/// The same one by one, for those who need no more than one at a time.
///
/// # Errors
///
/// [`DataError::Features`] if the settings of the features contradict themselves.
pub fn each_validation_batch(
    data: &Data,
    settings: &TrainConfig,
    stats: &MelStats,
    group: usize,
    reference: Option<usize>,
) -> Result<impl Iterator<Item = HeldOutBatch>, DataError> {
    let loader = validation_loader(data, settings, stats, group, reference, usize::MAX)?;
    let stats = stats.clone();
    let batches = loader.plan(0).into_iter().map(move |planned| loader.load(&planned));
    Ok(batches.filter(|batch| !batch.clips.is_empty()).map(move |batch| {
        let prepared = prepare(batch, &stats, 0, group, true);
        HeldOutBatch { clips: prepared.clips, inputs: prepared.inputs }
    }))
}

fn validation_loader(
    data: &Data,
    settings: &TrainConfig,
    stats: &MelStats,
    group: usize,
    reference: Option<usize>,
    most: usize,
) -> Result<Arc<Loader>, DataError> {
    let durations = data.validation_durations.clone();
    let settings = LoadSettings { durations, ..validation_settings(settings, stats, group, reference) };
    let cache = data.validation.cache(CacheMode::Off, 0);
    Loader::new(data.validation.clone(), validation_clips(data, most), settings, cache).map_err(DataError::Features)
}

/// All clips of a corpus in batches of up to 16, made one after the other: they need not fit in memory together.
pub fn clip_batches(
    corpus: &Arc<Corpus>,
    settings: &TrainConfig,
    stats: &MelStats,
    group: usize,
    reference: Option<usize>,
) -> Result<impl Iterator<Item = HeldOutBatch> + use<>, DataError> {
    let settings = validation_settings(settings, stats, group, reference);
    let clips = (0..corpus.len() as u32).collect();
    let loader = Loader::new(corpus.clone(), clips, settings, corpus.cache(CacheMode::Off, 0));
    let (loader, stats) = (loader.map_err(DataError::Features)?, stats.clone());
    let batches = loader.plan(0).into_iter().map(move |planned| loader.load(&planned));
    Ok(batches.filter(|batch| !batch.clips.is_empty()).map(move |batch| {
        let prepared = prepare(batch, &stats, 0, group, true);
        HeldOutBatch { clips: prepared.clips, inputs: prepared.inputs }
    }))
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
    LoadSettings {
        reference_frames: reference,
        normalize: Some(Arc::new(stats.clone())),
        group,
        noise: true,
        ..plain_validation_settings(settings)
    }
}

fn plain_validation_settings(settings: &TrainConfig) -> LoadSettings {
    let batch_size = settings.data.batch_size.min(16);
    let plan = PlanSettings { batch_size, seed: 0, ..PlanSettings::default() };
    LoadSettings { plan, pitch: true, ..LoadSettings::default() }
}

fn held_out(loader: &Loader, stats: &MelStats, group: usize) -> Result<Vec<HeldOutBatch>, DataError> {
    let batches = loader.plan(0).into_iter().map(|planned| loader.load(&planned));
    let prepared: Vec<HeldOutBatch> = (batches.filter(|batch| !batch.clips.is_empty()))
        .map(|batch| prepare(batch, stats, 0, group, true))
        .map(|prepared| HeldOutBatch { clips: prepared.clips, inputs: prepared.inputs })
        .collect();
    if prepared.is_empty() {
        return Err(DataError::NoValidation);
    }
    Ok(prepared)
}
