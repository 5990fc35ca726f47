//! The stages that make batches: read, decode, resample, features, text, collate.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use tandem_audio::{Decoder, LogMel, Resampler, SettingsError};
use tandem_flow::{Budget, Context, Cursor, Fault, Flow, Knob, QueueLimits, Random};

use crate::batch::{Batch, Form, Recycler, Reference};
use crate::cache::Cache;
use crate::corpus::Corpus;
use crate::fault::{ClipFault, FaultReport, Ledger, Tolerance};
use crate::plan::{ClipSize, PlanSettings, PlannedBatch, plan};

/// How a corpus is loaded. By default log-mel, without references.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadSettings {
    /// How batches are formed.
    pub plan: PlanSettings,
    /// How many bad clips are fine.
    pub tolerance: Tolerance,
    /// Adds to each clip a crop of so many frames of another clip of its speaker.
    pub reference_frames: Option<usize>,
    /// Hands out the sound as samples instead of log-mel: features are computed later, on a device.
    pub as_signal: bool,
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
    /// Seconds spent on log-mel features.
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

/// Makes batches of a corpus.
#[derive(Debug)]
pub struct Loader {
    corpus: Arc<Corpus>,
    settings: LoadSettings,
    sizes: Arc<Vec<ClipSize>>,
    subset: Arc<Vec<u32>>,
    /// The clips of each speaker, when references are asked for.
    by_speaker: HashMap<u16, Vec<u32>>,
    cache: Arc<Cache>,
    ledger: Arc<Ledger>,
    template: LogMel,
    form: Form,
    recycler: Recycler,
    counters: Counters,
    /// How much longer reading a batch takes, on purpose.
    delay: OnceLock<Duration>,
    /// Tells the loaders of one process apart, so that a thread never uses another's tables.
    number: u64,
}

thread_local!(static WORKSPACE: RefCell<Option<Workspace>> = const { RefCell::new(None) });
static LOADERS: AtomicU64 = AtomicU64::new(0);

/// What one thread works in. Kept from batch to batch.
struct Workspace {
    owner: u64,
    decoder: Decoder,
    log_mel: LogMel,
    resamplers: Vec<Resampler>,
    samples: Vec<f32>,
    bytes: Vec<u8>,
    row: Vec<u8>,
}

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
        let mel = template.settings();
        let form = if settings.as_signal { Form::signal(mel) } else { Form::log_mel(mel) };
        let cache = if settings.as_signal { cache.of_signals() } else { cache };
        let mut by_speaker: HashMap<u16, Vec<u32>> = HashMap::new();
        if settings.reference_frames.is_some() {
            for &clip in &subset {
                by_speaker.entry(corpus.entry(clip).speaker).or_default().push(clip);
            }
        }
        Ok(Arc::new(Loader {
            sizes: Arc::new(corpus.sizes()),
            ledger: Arc::new(Ledger::new(settings.tolerance, corpus.rows() as u64, corpus.faults() as u64)),
            subset: Arc::new(subset),
            by_speaker,
            cache: Arc::new(cache),
            corpus,
            settings,
            template,
            form,
            recycler: Recycler::default(),
            counters: Counters::default(),
            delay: OnceLock::new(),
            number: LOADERS.fetch_add(1, Ordering::Relaxed),
        }))
    }

    /// The batches of an epoch.
    pub fn plan(&self, epoch: u64) -> Vec<PlannedBatch> {
        plan(&self.settings.plan, epoch, &self.sizes, &self.subset)
    }

    /// A batch at least as large as any of any epoch: the longest clips together. `None` without a clip.
    pub fn largest(&self) -> Option<PlannedBatch> {
        let mut clips = self.subset.to_vec();
        clips.sort_by_key(|&clip| std::cmp::Reverse(self.sizes[clip as usize].frames));
        clips.truncate(self.settings.plan.batch_size.max(1));
        let (first, planned) = (*clips.first()?, self.plan(0));
        let most = |of: fn(&PlannedBatch) -> usize| planned.iter().map(of).max().unwrap_or(0);
        let tokens = self.subset.iter().map(|&clip| self.sizes[clip as usize].tokens as usize).max()?;
        Some(PlannedBatch {
            cursor: Cursor::START,
            rows: clips.len().max(most(|batch| batch.rows)),
            frames: (self.sizes[first as usize].frames as usize).max(most(|batch| batch.frames)),
            tokens: tokens.max(most(|batch| batch.tokens)),
            clips,
        })
    }

    /// The corpus behind it.
    pub fn corpus(&self) -> &Corpus {
        &self.corpus
    }

    /// The clips that turned out to be bad while loading.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// What loading did so far.
    pub fn counters(&self) -> LoadCounters {
        let seconds = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64 / 1e9;
        LoadCounters {
            decoded: self.counters.decoded.load(Ordering::Relaxed),
            decode_s: seconds(&self.counters.decode_ns),
            resample_s: seconds(&self.counters.resample_ns),
            features_s: seconds(&self.counters.features_ns),
            cache_s: seconds(&self.counters.cache_ns),
            text_s: seconds(&self.counters.text_ns),
        }
    }

    /// Bytes that a batch takes on the host.
    pub fn batch_bytes(&self, batch: &PlannedBatch) -> usize {
        let values = |frames: usize| self.form.row_values(frames);
        let sound = values(batch.frames) + values(self.settings.reference_frames.unwrap_or(0));
        4 * batch.rows * (sound + batch.tokens)
    }

    /// The stages as a flow, from `start` to the end of epoch `epochs - 1`: memory is leased from `budget`, `workers`
    /// batches are made at once and kept ready in the queue `host`. Batches without one good clip are skipped.
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
        Flow::source(context, "plan", start, epochs, move |epoch| planner.plan(epoch))
            .lease(budget, move |batch| sizer.batch_bytes(batch))
            .par_stage("load", workers, move |batch| {
                if let Some(delay) = loader.delay.get() {
                    clock.sleep(*delay);
                }
                Ok(loader.load(&batch))
            })
            // Bad clips are counted in the order of the batches, so that a run ends at the same place however many
            // workers it has.
            .stage("count", move |batch| counter.count(batch))
            .tolerate(|_, _| true, |_| {})
            .prefetch("host", buffer)
    }

    /// From now on every batch of a flow takes this much longer to read, as from a slow disk: for tests, and to see what
    /// such a disk would do. Only the first call counts.
    pub fn slow_down(&self, delay: Duration) {
        self.delay.get_or_init(|| delay);
    }

    /// Makes one batch, which must be of this loader's own plan. Bad clips are left out; all of them may be.
    pub fn load(&self, planned: &PlannedBatch) -> Batch {
        self.with_workspace(|workspace| self.load_with(planned, workspace))
    }

    fn load_with(&self, planned: &PlannedBatch, workspace: &mut Workspace) -> Batch {
        let n_mels = self.template.settings().n_mels;
        let (rows, frames, tokens) = (planned.rows, planned.frames, planned.tokens);
        let row_values = self.form.row_values(frames);
        let mut batch = Batch {
            cursor: planned.cursor,
            clips: Vec::with_capacity(rows),
            speakers: Vec::with_capacity(rows),
            rows,
            tokens,
            frames,
            n_mels,
            ids: vec![0; rows * tokens],
            id_lengths: vec![0; rows],
            form: self.form,
            sound: self.recycler.take(rows * row_values),
            mel_lengths: vec![0; rows],
            seconds: 0.0,
            reference: None,
            faults: Vec::new(),
        };
        for &clip in planned.clips.iter().filter(|&&clip| !self.ledger.contains(clip)) {
            let row = batch.clips.len();
            let out = &mut batch.sound[row * row_values..(row + 1) * row_values];
            match self.load_clip(clip, out, self.form.columns(frames), workspace) {
                Ok(ids) => {
                    for (to, id) in batch.ids[row * tokens..(row + 1) * tokens].iter_mut().zip(&ids) {
                        *to = *id as i32;
                    }
                    let (entry, length) = (self.corpus.entry(clip), self.sizes[clip as usize].frames as usize);
                    let columns = self.form.columns(length);
                    out.chunks_exact_mut(self.form.columns(frames)).for_each(|line| line[columns..].fill(0.0));
                    (batch.id_lengths[row], batch.mel_lengths[row]) = (ids.len(), length);
                    batch.seconds += entry.samples as f64 / f64::from(entry.rate);
                    batch.clips.push(clip);
                    batch.speakers.push(entry.speaker);
                }
                Err(fault) => batch.faults.push((clip, self.report(clip, &fault))),
            }
        }
        let filled = batch.clips.len();
        batch.sound[filled * row_values..].fill(0.0);
        batch.reference = (self.settings.reference_frames).map(|frames| self.references(&batch, frames, workspace));
        batch
    }

    /// For each clip a crop of another clip of the same speaker: one of this batch if there is one (it is at hand),
    /// otherwise any other; a speaker's only clip is its own reference.
    fn references(&self, batch: &Batch, frames: usize, workspace: &mut Workspace) -> Reference {
        let form = self.form;
        let row_values = form.row_values(frames);
        let mut reference =
            Reference { frames, sound: vec![0.0; batch.rows * row_values], lengths: vec![0; batch.rows] };
        let seed = self.settings.plan.seed;
        for (row, (&clip, &speaker)) in batch.clips.iter().zip(&batch.speakers).enumerate() {
            let mut random = Random::at(&[seed, batch.cursor.epoch, u64::from(clip), 1]);
            let mates: Vec<usize> =
                (0..batch.clips.len()).filter(|&mate| mate != row && batch.speakers[mate] == speaker).collect();
            let out = &mut reference.sound[row * row_values..(row + 1) * row_values];
            let others = self.by_speaker.get(&speaker).map_or(&[][..], Vec::as_slice);
            let from_batch = |row: usize| {
                let size = form.row_values(batch.frames);
                (&batch.sound[row * size..(row + 1) * size], form.columns(batch.frames), batch.mel_lengths[row])
            };
            let mut loaded = None;
            if mates.is_empty() && others.len() > 1 {
                let at = random.below(others.len() - 1);
                let other = if others[at] == clip { others[others.len() - 1] } else { others[at] };
                let length = self.sizes[other as usize].frames as usize;
                let mut sound = self.recycler.take(form.row_values(length));
                let read = self.load_clip(other, &mut sound, form.columns(length), workspace);
                loaded = read.ok().map(|_| (sound, length));
            }
            let (sound, stride, length) = match &loaded {
                Some((sound, length)) => (&sound[..], form.columns(*length), *length),
                None if mates.is_empty() => from_batch(row),
                None => from_batch(mates[random.below(mates.len())]),
            };
            let kept = length.min(frames);
            let start = random.below(length - kept + 1);
            let (from, size) = (start * form.step, form.columns(kept));
            for (to, line) in out.chunks_exact_mut(form.columns(frames)).zip(sound.chunks_exact(stride)) {
                to[..size].copy_from_slice(&line[from..from + size]);
            }
            reference.lengths[row] = kept;
        }
        reference
    }

    /// The sound of a clip into its place in the batch; returns the ids of its text.
    fn load_clip(
        &self,
        clip: u32,
        out: &mut [f32],
        stride: usize,
        workspace: &mut Workspace,
    ) -> Result<Vec<u32>, ClipFault> {
        let (_, path, ids) = Counters::time(&self.counters.text_ns, || self.corpus.clip(clip, &mut workspace.row))?;
        let settings = self.template.settings();
        let size = self.sizes[clip as usize];
        if ids.len() != size.tokens as usize {
            return Err(ClipFault::Changed);
        }
        let frames = size.frames as usize;
        let (bands, columns) = (self.form.bands, self.form.columns(frames));
        let key = self.cache.key(&path);
        if let Some(key) = key {
            let found = Counters::time(&self.counters.cache_ns, || {
                self.cache.load(key, bands, columns, out, stride, &mut workspace.bytes)
            });
            if found {
                return Ok(ids);
            }
        }
        self.counters.decoded.fetch_add(1, Ordering::Relaxed);
        let padding = settings.padding_samples();
        workspace.samples.clear();
        workspace.samples.resize(padding, 0.0);
        let shape =
            Counters::time(&self.counters.decode_ns, || workspace.decoder.decode(&path, &mut workspace.samples))?;
        if shape.rate != settings.sample_rate {
            Counters::time(&self.counters.resample_ns, || {
                workspace.resample(shape.rate, settings.sample_rate, padding)
            })?;
        }
        if settings.frames(workspace.samples.len() - padding) != frames {
            return Err(ClipFault::Changed);
        }
        Counters::time(&self.counters.features_ns, || {
            if self.settings.as_signal {
                settings.pad(&mut workspace.samples);
                out[..columns].copy_from_slice(&workspace.samples[..columns]);
            } else {
                workspace.log_mel.compute_into(&mut workspace.samples, out, stride);
            }
        });
        if let Some(key) = key {
            Counters::time(&self.counters.cache_ns, || self.cache.store(key, bands, columns, out, stride));
        }
        Ok(ids)
    }

    /// Puts a clip's features into the cache, if they are not there. Returns whether work was done.
    ///
    /// # Errors
    ///
    /// [`ClipFault`] if the clip cannot be used any more.
    ///
    /// # Panics
    ///
    /// If `clip` is not below [`Corpus::len`].
    pub fn prepare(&self, clip: u32) -> Result<bool, ClipFault> {
        let (_, path) = self.corpus.name(clip);
        let key = path.and_then(|path: PathBuf| self.cache.key(&path));
        if key.is_some_and(|key| self.cache.has(key)) {
            return Ok(false);
        }
        let frames = self.sizes[clip as usize].frames as usize;
        let mut out = self.recycler.take(self.form.row_values(frames));
        self.with_workspace(|workspace| self.load_clip(clip, &mut out, self.form.columns(frames), workspace))?;
        Ok(true)
    }

    /// This thread's workspace, made for this loader when it is first used.
    fn with_workspace<R>(&self, work: impl FnOnce(&mut Workspace) -> R) -> R {
        WORKSPACE.with_borrow_mut(|slot| {
            let mine = slot.take().filter(|workspace| workspace.owner == self.number);
            let workspace = slot.insert(mine.unwrap_or_else(|| Workspace {
                owner: self.number,
                decoder: Decoder::new(),
                log_mel: self.template.another(),
                resamplers: Vec::new(),
                samples: Vec::new(),
                bytes: Vec::new(),
                row: Vec::new(),
            }));
            work(workspace)
        })
    }

    fn report(&self, clip: u32, fault: &ClipFault) -> FaultReport {
        let (id, path) = self.corpus.name(clip);
        FaultReport { id, path, kind: fault.kind(), reason: fault.to_string(), limit: false }
    }

    /// Notes the bad clips of a batch; an error when there are too many, or when nothing is left of the batch.
    fn count(&self, mut batch: Batch) -> Result<Batch, Fault> {
        for (clip, report) in batch.faults.drain(..) {
            let (id, path) = (report.id.clone(), report.path.clone());
            if !self.ledger.note(clip, report) {
                continue;
            }
            let reports = self.ledger.reports();
            let bad = self.corpus.faults() + reports.len();
            let mut text = format!("{bad} of {} clips cannot be used, more than is tolerated", self.corpus.rows());
            for report in reports.iter().take(10) {
                text += &format!("\n  {}: {}", report.id, report.reason);
            }
            let fault = Fault::new(text).fatal().sample(id);
            return Err(match path {
                Some(path) => fault.path(path),
                None => fault,
            });
        }
        if batch.clips.is_empty() {
            return Err(Fault::new("none of its clips can be used"));
        }
        Ok(batch)
    }
}

impl Workspace {
    fn resample(&mut self, from: u32, to: u32, start: usize) -> Result<(), ClipFault> {
        let known = self.resamplers.iter().position(|resampler| resampler.rates() == (from, to));
        let at = match known {
            Some(at) => at,
            None => {
                // Each takes a transform's memory; a corpus of many rates makes them anew now and then.
                self.resamplers.truncate(3);
                self.resamplers.push(Resampler::new(from, to)?);
                self.resamplers.len() - 1
            }
        };
        self.resamplers[at].resample(&mut self.samples, start);
        Ok(())
    }
}
