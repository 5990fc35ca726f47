//! The stages that make batches: read, decode, trim, resample, features, text, collate.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `assemble.rs` | a batch of its clips, with noise and references |
//! | `clip.rs` | one clip, from its file or the cache |
//! | `count.rs` | bad clips, and how many are too many |

mod assemble;
mod clip;
mod count;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use tandem_audio::{LogMel, MelStats, SettingsError};
use tandem_flow::{Budget, Context, Cursor, Flow, Knob, Place, QueueLimits, Stage};

use crate::batch::{Batch, Form, Layout, Recycler};
use crate::cache::{Cache, CacheMode};
use crate::corpus::Corpus;
use crate::durations::Durations;
use crate::fault::{Ledger, Tolerance};
use crate::plan::{Balance, ClipSize, Padding, PlanSettings, PlannedBatch, Shard, balanced, padding, plan, plan_drawn};

use count::Lost;

/// How a corpus is loaded. By default log-mel, without references.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadSettings {
    /// How batches are formed.
    pub plan: PlanSettings,
    /// How many bad clips are fine.
    pub tolerance: Tolerance,
    /// Adds to each clip a crop of so many frames of another clip of its speaker.
    pub reference_frames: Option<usize>,
    /// Hands out the audio as samples instead of log-mel: features are computed later, on a device.
    pub as_signal: bool,
    /// Hands out log-mel normalized with these statistics, as `[frames][bands]`: what a model's device takes.
    pub normalize: Option<Arc<MelStats>>,
    /// Normalized frames and noise are padded to a multiple of so many frames; 0 is 1.
    pub group: usize,
    /// Draws noise for each row, by seed, epoch and clip alone.
    pub noise: bool,
    /// Finds the pitch of each frame.
    pub pitch: bool,
    /// Hands these out with their clips.
    pub durations: Arc<Durations>,
    /// Of each batch only these rows are loaded, padded to the shape of the whole. A process without rows gets one that is empty.
    pub shard: Shard,
}

/// What loading did, and where its time went (summed over all workers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LoadCounters {
    /// Files decoded.
    pub decoded: u64,
    /// Seconds spent reading and decoding files.
    pub decode_s: f64,
    /// Seconds spent resampling.
    pub resample_s: f64,
    /// Seconds spent on log-mel features and pitch.
    pub features_s: f64,
    /// Seconds spent reading from and writing to the cache.
    pub cache_s: f64,
    /// Seconds spent on texts.
    pub text_s: f64,
}

#[derive(Debug, Default)]
struct Counters {
    decoded: AtomicU64,
    decode_ns: AtomicU64,
    resample_ns: AtomicU64,
    features_ns: AtomicU64,
    cache_ns: AtomicU64,
    text_ns: AtomicU64,
}

impl Counters {
    fn time<R>(counter: &AtomicU64, work: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = work();
        counter.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }
}

/// Makes batches of a corpus. Views of it ([`Loader::view`]) make other batches of the same clips, with the same cache.
#[derive(Debug)]
pub struct Loader {
    settings: LoadSettings,
    subset: Arc<Vec<u32>>,
    /// The clips of each speaker, when references are asked for.
    by_speaker: HashMap<u16, Vec<u32>>,
    form: Form,
    /// That of the corpus, unless this view hands out something else than what it holds.
    cache: Arc<Cache>,
    shared: Arc<Shared>,
}

/// What a loader and its views have in common.
#[derive(Debug)]
struct Shared {
    corpus: Arc<Corpus>,
    sizes: Arc<Vec<ClipSize>>,
    cache: Arc<Cache>,
    /// Whether the cache holds samples instead of log-mel.
    signals: bool,
    ledger: Arc<Ledger>,
    template: LogMel,
    recycler: Recycler,
    counters: Counters,
    /// How much longer reading a batch takes, on purpose.
    delay: OnceLock<Duration>,
    /// Tells the loaders of one process apart, so that a thread never uses another's tables.
    number: u64,
}

static LOADERS: AtomicU64 = AtomicU64::new(0);

impl Loader {
    /// Makes batches of the clips `subset` of a corpus: all of them are `0..corpus.len()`. Give it a cache of the same
    /// corpus ([`Corpus::cache`]).
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if no features can be made with the corpus' settings.
    ///
    /// # Panics
    ///
    /// Here or with the first plan, if a number of `subset` is not below [`Corpus::len`].
    pub fn new(
        corpus: Arc<Corpus>,
        subset: Vec<u32>,
        settings: LoadSettings,
        cache: Cache,
    ) -> Result<Arc<Loader>, SettingsError> {
        let template = LogMel::new(&corpus.settings().mel)?;
        let cache = Arc::new(if settings.as_signal { cache.of_signals() } else { cache });
        let shared = Shared {
            sizes: Arc::new(corpus.sizes()),
            ledger: Arc::new(Ledger::new(settings.tolerance, corpus.rows() as u64, corpus.faults() as u64)),
            cache,
            signals: settings.as_signal,
            corpus,
            template,
            recycler: Recycler::default(),
            counters: Counters::default(),
            delay: OnceLock::new(),
            number: LOADERS.fetch_add(1, Ordering::Relaxed),
        };
        Ok(Loader::of(Arc::new(shared), subset, settings))
    }

    /// Other batches of the same corpus: the cache, what is known of bad clips, and the counters are shared. A view that
    /// hands out samples where the cache holds log-mel (or the other way round) has no cache.
    pub fn view(&self, subset: Vec<u32>, settings: LoadSettings) -> Arc<Loader> {
        Loader::of(self.shared.clone(), subset, settings)
    }

    /// The same batches as log-mel, without references and noise; with the pitch if this one has it, so that a clip that is read
    /// for the one is in the cache for the other.
    pub fn log_mel(&self) -> Arc<Loader> {
        let LoadSettings { plan, tolerance, pitch, .. } = self.settings.clone();
        self.view(self.subset.to_vec(), LoadSettings { plan, tolerance, pitch, ..LoadSettings::default() })
    }

    fn of(shared: Arc<Shared>, subset: Vec<u32>, settings: LoadSettings) -> Arc<Loader> {
        let mel = shared.template.settings();
        let form = match (settings.as_signal, &settings.normalize) {
            (true, _) => Form::signal(mel),
            (false, Some(_)) => Form::frames(mel),
            (false, None) => Form::log_mel(mel),
        };
        let cache = match settings.as_signal == shared.signals {
            true => shared.cache.clone(),
            false => Arc::new(shared.corpus.cache(CacheMode::Off, 0)),
        };
        let mut by_speaker: HashMap<u16, Vec<u32>> = HashMap::new();
        if settings.reference_frames.is_some() {
            for &clip in &subset {
                by_speaker.entry(shared.corpus.entry(clip).speaker).or_default().push(clip);
            }
        }
        Arc::new(Loader { settings, subset: Arc::new(subset), by_speaker, form, cache, shared })
    }

    /// The batches of an epoch.
    pub fn plan(&self, epoch: u64) -> Vec<PlannedBatch> {
        let (settings, sizes) = (&self.settings.plan, &self.shared.sizes);
        match settings.balance {
            Balance::Off => plan(settings, epoch, sizes, &self.subset),
            Balance::Speaker => {
                let speaker = |clip: u32| self.shared.corpus.entry(clip).speaker;
                let drawn = balanced(settings.seed, epoch, &self.subset, speaker);
                plan_drawn(settings, epoch, sizes, &self.subset, &drawn)
            }
        }
    }

    /// How much of these batches is padding.
    pub fn padding(&self, batches: &[PlannedBatch]) -> Padding {
        padding(batches, &self.shared.sizes)
    }

    /// A batch at least as large as any of any epoch: the longest clips together. `None` without a clip.
    pub fn largest(&self) -> Option<PlannedBatch> {
        let mut clips = self.subset.to_vec();
        clips.sort_by_key(|&clip| std::cmp::Reverse(self.shared.sizes[clip as usize].frames));
        clips.truncate(self.settings.plan.batch_size.max(1));
        let (first, planned) = (*clips.first()?, self.plan(0));
        let most = |of: fn(&PlannedBatch) -> usize| planned.iter().map(of).max().unwrap_or(0);
        let tokens = self.subset.iter().map(|&clip| self.shared.sizes[clip as usize].tokens as usize).max()?;
        Some(PlannedBatch {
            cursor: Cursor::START,
            rows: clips.len().max(most(|batch| batch.rows)),
            frames: (self.shared.sizes[first as usize].frames as usize).max(most(|batch| batch.frames)),
            tokens: tokens.max(most(|batch| batch.tokens)),
            clips: clips.into(),
        })
    }

    /// The corpus behind it.
    pub fn corpus(&self) -> &Corpus {
        &self.shared.corpus
    }

    /// The clips that turned out to be bad while loading.
    pub fn ledger(&self) -> &Ledger {
        &self.shared.ledger
    }

    /// The cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// What loading did so far.
    pub fn counters(&self) -> LoadCounters {
        let seconds = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64 / 1e9;
        LoadCounters {
            decoded: self.shared.counters.decoded.load(Ordering::Relaxed),
            decode_s: seconds(&self.shared.counters.decode_ns),
            resample_s: seconds(&self.shared.counters.resample_ns),
            features_s: seconds(&self.shared.counters.features_ns),
            cache_s: seconds(&self.shared.counters.cache_ns),
            text_s: seconds(&self.shared.counters.text_ns),
        }
    }

    /// Bytes that a batch takes on the host.
    pub fn batch_bytes(&self, batch: &PlannedBatch) -> usize {
        let values = |frames: usize| self.form.row_values(frames);
        let audio = values(self.frames(batch)) + values(self.settings.reference_frames.unwrap_or(0));
        let pitch = if self.settings.pitch { self.frames(batch) } else { 0 };
        let rows = self.settings.shard.rows(batch.rows).len().max(1);
        4 * rows * (audio + self.noise_values(batch) + pitch + batch.tokens)
    }

    /// Frames of each row of a batch, padding included.
    fn frames(&self, planned: &PlannedBatch) -> usize {
        match self.form.layout {
            Layout::Frames => planned.frames.next_multiple_of(self.settings.group.max(1)),
            Layout::LogMel | Layout::Signal => planned.frames,
        }
    }

    /// Noise of each row.
    fn noise_values(&self, planned: &PlannedBatch) -> usize {
        let frames = planned.frames.next_multiple_of(self.settings.group.max(1));
        if self.settings.noise { frames * self.shared.template.settings().n_mels } else { 0 }
    }

    /// The stages as a flow, from `start` to the end of epoch `epochs - 1`: memory is leased from `budget`, `workers`
    /// batches are made at once and kept ready in the queue `host`. Batches without one good clip are skipped; an epoch of them
    /// is an error.
    pub fn flow(
        self: &Arc<Loader>,
        context: &Context,
        start: Cursor,
        epochs: u64,
        workers: &Knob,
        buffer: impl Into<QueueLimits>,
        budget: &Budget,
    ) -> Flow<Batch> {
        let (planner, sizer, loader, counter) = (self.clone(), self.clone(), self.clone(), self.clone());
        let clock = context.clock.clone();
        let mut lost = Lost::default();
        Flow::source(context, Stage::Plan, start, epochs, move |epoch| planner.plan(epoch))
            .lease(budget, move |batch| sizer.batch_bytes(batch))
            .par_stage(Stage::Load, workers, move |batch| {
                if let Some(delay) = loader.shared.delay.get() {
                    clock.sleep(*delay);
                }
                Ok(loader.load(&batch))
            })
            // Bad clips are counted in the order of the batches, so that a run ends at the same place however many
            // workers it has.
            .stage(Stage::Count, move |batch| counter.count(batch, &mut lost))
            .tolerate(|_, _| true, |_| {})
            .prefetch(Place::Host, buffer)
    }

    /// From now on every batch of a flow takes this much longer to read, as from a slow disk: for tests, and to see what
    /// such a disk would do. Only the first call counts.
    pub fn slow_down(&self, delay: Duration) {
        self.shared.delay.get_or_init(|| delay);
    }
}
