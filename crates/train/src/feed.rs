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

use tandem_data::{CacheMode, Corpus, FaultReport, LoadSettings, Loader, PlanSettings, PlannedBatch, Tolerance, split};
use tandem_device::{FeaturesOn, Lanes};
use tandem_flow::{Autotune, Budget, Context, Cursor, Fault, Flow, Knob, Oversize};
use tandem_model::weights::{HostTensor, Tensors};
use tandem_model::{Device, REFERENCE_FRAMES};
use xxhash_rust::xxh3::Xxh3;

use crate::checkpoint::DataIdentity;
use crate::fault::LaneFault;
use crate::features::{MelStats, Prepared, Ready, prepare};
use crate::lane::{DataLane, Gauge};
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
            stats.normalise(&batch.sound, batch.frames, kept, &mut values);
            let name = self.corpus.speakers().get(usize::from(speaker)).cloned().unwrap_or_default();
            voices.insert(name, HostTensor { shape: vec![kept, n_mels], values });
        }
        Ok(voices)
    }

    /// A loader of the training clips.
    pub(crate) fn loader(&self, settings: &TrainSettings, reference: Option<usize>) -> Result<Arc<Loader>, String> {
        loader(&self.corpus, &self.clips, settings, settings.batch_size, reference, false)
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
    as_signal: bool,
) -> Result<Arc<Loader>, String> {
    let mode = match settings.cache {
        CachePlace::Ram => CacheMode::Ram,
        CachePlace::Disk => CacheMode::Disk,
        CachePlace::Off => CacheMode::Off,
    };
    let cache = corpus.cache(mode, settings.cache_limit);
    let plan =
        PlanSettings { batch_size, seed: settings.seed, static_shapes: settings.static_shapes, plain_order: false };
    let settings = LoadSettings { plan, tolerance: Tolerance::default(), reference_frames: reference, as_signal };
    Loader::new(corpus.clone(), clips.to_vec(), settings, cache).map_err(|error| error.to_string())
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
            host: Budget::new("host", host_bytes, Oversize::Alone),
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
    group: usize,
    reference: Option<usize>,
    workers: Knob,
    buffer: Knob,
    ahead: Knob,
    depth: Knob,
    budgets: Budgets,
    fault: Option<LaneFault>,
}

impl Feed {
    /// For these data and settings, on these devices; batches arrive on `model`, the model's device as it learns.
    pub fn new(
        data: &Data,
        settings: &TrainSettings,
        stats: &MelStats,
        (group, reference): (usize, Option<usize>),
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
            if settings.autotune { Knob::new(name, value, 1..=most.max(value)) } else { Knob::fixed(name, value) }
        };
        let make = |as_signal| loader(&data.corpus, &data.clips, settings, settings.batch_size, reference, as_signal);
        let from_files = make(lane.is_some())?;
        Ok(Feed {
            on_host: if lane.is_some() { make(false)? } else { from_files.clone() },
            loader: from_files,
            lane,
            model: model.clone(),
            stats: Arc::new(stats.clone()),
            seed: settings.seed,
            group,
            reference,
            // In line is not a number of workers to begin from.
            workers: match settings.workers {
                0 => Knob::fixed("workers", 0),
                workers => knob("workers", workers, settings.most_workers),
            },
            buffer: knob("buffer", settings.buffer, settings.buffer),
            ahead: Knob::fixed("ahead", settings.depth.saturating_sub(1)),
            depth: match settings.device_queue {
                0 => Knob::fixed("depth", 0),
                queue => Knob::new("depth", 1, 1..=queue),
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
        let (stats, seed, group, lane) = (self.stats.clone(), self.seed, self.group, self.lane.clone());
        let (sizer, device, fault, surroundings) = (lane.clone(), self.model.clone(), self.fault, context.clone());
        let reference = self.reference.unwrap_or(0);
        self.loader
            .flow(context, start, epochs, &self.workers, &self.buffer, host)
            .lease(data, move |batch| {
                sizer.as_ref().map_or(0, |lane| lane.batch_bytes(batch.rows, batch.frames, reference))
            })
            .stage("preprocess", move |batch| {
                if let Some(fault) = fault {
                    fault.strike(batch.cursor, &surroundings)?;
                }
                let mut prepared = prepare(batch, &stats, seed, group);
                let sound = match &lane {
                    None => None,
                    Some(lane) => lane.features(&mut prepared).map_err(|why| Fault::new(why).fatal())?,
                };
                Ok((prepared, sound))
            })
            .prefetch("data", &self.ahead)
            .lease(model, |(prepared, _)| prepared.inputs.device_bytes())
            .stage("transfer", move |(prepared, sound)| Ok(prepared.upload(sound, &device)))
            .release(host)
            .release(data)
            .prefetch("model", &self.depth)
    }

    /// Batches of the first epoch as far as the host makes them: afterwards the cache, if there is one, is full.
    pub(crate) fn first_epoch(&self, context: &Context) -> Flow<tandem_data::Batch> {
        let workers = Knob::fixed("workers", std::thread::available_parallelism().map_or(1, usize::from));
        self.loader.flow(context, Cursor::START, 1, &workers, &Knob::fixed("buffer", 2), &self.budgets.host)
    }

    /// Turns the knobs that may be turned, for the stage `train`.
    pub fn autotune(&self, context: &Context) -> Autotune {
        let mut tuner = Autotune::new(context, "train").budget(&self.budgets.host);
        for (of, knob, is_width) in [("load", &self.workers, true), ("host", &self.buffer, false)] {
            if knob.range().start() < knob.range().end() {
                tuner = if is_width { tuner.workers(of, knob) } else { tuner.depth(of, knob) };
            }
        }
        tuner
    }

    /// Batches that may be ready on the host.
    pub fn buffer(&self) -> usize {
        self.buffer.get()
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
        Some(prepare(batch, &self.stats, self.seed, self.group).upload(None, &self.model))
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
    pub fn open_device_queue(&self) {
        self.depth.set(*self.depth.range().end());
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
    let loader = loader(&data.validation, &clips, &settings, settings.batch_size.min(16), reference, false)?;
    let batches = loader.plan(0).into_iter().map(|planned| loader.load(&planned));
    let prepared: Vec<Prepared> =
        batches.filter(|batch| !batch.clips.is_empty()).map(|batch| prepare(batch, stats, 0, group)).collect();
    if prepared.is_empty() {
        return Err("not one validation clip can be read".to_owned());
    }
    Ok(prepared)
}
