//! The stages that make batches: read, decode, trim, resample, features, text, collate.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use tandem_audio::{Decoder, LogMel, MelStats, PitchTracker, Resampler, SettingsError};
use tandem_flow::{Budget, Context, Cursor, Fault, Flow, Knob, Place, QueueLimits, Random, Stage};

use crate::batch::{Batch, Buffer, Form, Layout, Recycler, Reference};
use crate::cache::{Cache, CacheMode};
use crate::corpus::Corpus;
use crate::durations::Durations;
use crate::fault::{ClipFault, FaultReport, FoundFault, Ledger, Tolerance, UNREACHABLE};
use crate::plan::{Balance, ClipSize, Padding, PlanSettings, PlannedBatch, Shard, balanced, padding, plan, plan_drawn};

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

thread_local!(static WORKSPACE: RefCell<Option<Workspace>> = const { RefCell::new(None) });
static LOADERS: AtomicU64 = AtomicU64::new(0);

/// What one thread works in. Kept from batch to batch.
struct Workspace {
    owner: u64,
    decoder: Decoder,
    log_mel: LogMel,
    tracker: PitchTracker,
    resamplers: Vec<Resampler>,
    samples: Vec<f32>,
    mel: Vec<f32>,
    bytes: Vec<u8>,
    /// Audio files of the batch that came from far away and are not decoded yet.
    fetched: HashMap<u32, Result<Vec<u8>, ClipFault>>,
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
            clips,
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

    /// Makes one batch, which must be of this loader's own plan. Bad clips are skipped; all of them may be.
    pub fn load(&self, planned: &PlannedBatch) -> Batch {
        self.with_workspace(|workspace| self.load_with(planned, workspace))
    }

    fn load_with(&self, planned: &PlannedBatch, workspace: &mut Workspace) -> Batch {
        let n_mels = self.shared.template.settings().n_mels;
        let own = self.settings.shard.rows(planned.rows);
        let filled = planned.clips.len();
        let clips = &planned.clips[own.start.min(filled)..own.end.min(filled)];
        let (rows, frames, tokens) = (own.len().max(1), self.frames(planned), planned.tokens);
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
            audio: self.shared.recycler.take(rows * row_values),
            pitch: self.settings.pitch.then(|| vec![0.0; rows * frames]),
            durations: Vec::new(),
            noise: None,
            mel_lengths: vec![0; rows],
            seconds: 0.0,
            reference: None,
            faults: Vec::new(),
        };
        workspace.fetched = self.fetch(clips);
        for &clip in clips.iter().filter(|&&clip| !self.shared.ledger.contains(clip)) {
            let row = batch.clips.len();
            let out = &mut batch.audio[row * row_values..(row + 1) * row_values];
            let pitch = batch.pitch.as_mut().map(|pitch| &mut pitch[row * frames..(row + 1) * frames]);
            match self.load_clip(clip, out, self.form.columns(frames), pitch, workspace) {
                Ok(ids) => {
                    for (to, id) in batch.ids[row * tokens..(row + 1) * tokens].iter_mut().zip(&ids) {
                        *to = *id as i32;
                    }
                    let (entry, length) =
                        (self.shared.corpus.entry(clip), self.shared.sizes[clip as usize].frames as usize);
                    let columns = self.form.columns(length);
                    out.chunks_exact_mut(self.form.columns(frames)).for_each(|line| line[columns..].fill(0.0));
                    (batch.id_lengths[row], batch.mel_lengths[row]) = (ids.len(), length);
                    batch.seconds += entry.seconds();
                    batch.clips.push(clip);
                    batch.speakers.push(entry.speaker);
                }
                Err(fault) => batch.faults.push((clip, self.report(clip, &fault))),
            }
        }
        let filled = batch.clips.len();
        if !self.settings.durations.is_empty() {
            let of = |clip: &u32| self.settings.durations.of(*clip).map(<[u32]>::to_vec);
            // A row without a clip has no token that could be aligned.
            let empty = std::iter::repeat_n(Some(Vec::new()), rows - filled);
            batch.durations = batch.clips.iter().map(of).chain(empty).collect();
        }
        batch.audio[filled * row_values..].fill(0.0);
        batch.noise = self.settings.noise.then(|| self.noise(&batch, self.noise_values(planned)));
        batch.reference =
            (self.settings.reference_frames).map(|frames| self.references(&batch, planned, frames, workspace));
        batch
    }

    /// The audio files of a batch that are neither here nor in the cache, waited for together.
    fn fetch(&self, clips: &[u32]) -> HashMap<u32, Result<Vec<u8>, ClipFault>> {
        let corpus = &self.shared.corpus;
        if !corpus.is_remote() {
            return HashMap::new();
        }
        let is_cached = |clip: u32| {
            let key = corpus.audio_identity(clip).map(|identity| self.cache.key(identity));
            key.is_ok_and(|key| self.cache.has(key))
        };
        let needed = |clip: &u32| !self.shared.ledger.contains(*clip) && !is_cached(*clip);
        let needed: Vec<u32> = clips.iter().copied().filter(needed).collect();
        Counters::time(&self.shared.counters.decode_ns, || corpus.fetch(&needed))
    }

    /// As much noise for each row as its clip has frames: the same whatever it is padded to.
    fn noise(&self, batch: &Batch, row_values: usize) -> Buffer {
        let mut noise = self.shared.recycler.take(batch.rows * row_values);
        for (row, out) in noise.chunks_exact_mut(row_values.max(1)).enumerate() {
            let own = batch.mel_lengths[row] * batch.n_mels;
            if let Some(&clip) = batch.clips.get(row) {
                let place = [self.settings.plan.seed, batch.cursor.epoch, u64::from(clip), 2];
                Random::at(&place).fill_normal(&mut out[..own]);
            }
            out[own..].fill(0.0);
        }
        noise
    }

    /// For each clip a crop of another clip of the same speaker: one of the whole batch as it was planned if there is one (unless it is
    /// in another process' rows it is at hand), otherwise any other; a speaker's only clip, or one whose choice turns out to be bad, is
    /// its own reference. So the choice depends neither on ranks nor on what is known to be bad.
    fn references(&self, batch: &Batch, planned: &PlannedBatch, frames: usize, workspace: &mut Workspace) -> Reference {
        let form = self.form;
        let row_values = form.row_values(frames);
        let mut audio = self.shared.recycler.take(batch.rows * row_values);
        audio.fill(0.0);
        let mut reference = Reference { frames, audio, lengths: vec![0; batch.rows] };
        let seed = self.settings.plan.seed;
        for (row, (&clip, &speaker)) in batch.clips.iter().zip(&batch.speakers).enumerate() {
            let mut random = Random::at(&[seed, batch.cursor.epoch, u64::from(clip), 1]);
            let is_mate = |mate: &u32| *mate != clip && self.shared.corpus.entry(*mate).speaker == speaker;
            let mates: Vec<u32> = planned.clips.iter().copied().filter(is_mate).collect();
            let out = &mut reference.audio[row * row_values..(row + 1) * row_values];
            let others = self.by_speaker.get(&speaker).map_or(&[][..], Vec::as_slice);
            let from_batch = |row: usize| {
                let size = form.row_values(batch.frames);
                (&batch.audio[row * size..(row + 1) * size], form.columns(batch.frames), batch.mel_lengths[row])
            };
            let other = match mates.is_empty() {
                false => Some(mates[random.below(mates.len())]),
                true if others.len() > 1 => {
                    let at = random.below(others.len() - 1);
                    Some(if others[at] == clip { others[others.len() - 1] } else { others[at] })
                }
                true => None,
            };
            let at_hand = other.and_then(|other| batch.clips.iter().position(|&clip| clip == other));
            let mut loaded = None;
            if let (Some(other), None) = (other, at_hand) {
                let length = self.shared.sizes[other as usize].frames as usize;
                let mut audio = self.shared.recycler.take(form.row_values(length));
                let read = self.load_clip(other, &mut audio, form.columns(length), None, workspace);
                loaded = read.ok().map(|_| (audio, length));
            }
            let (audio, stride, length) = match &loaded {
                Some((audio, length)) => (&audio[..], form.columns(*length), *length),
                None => from_batch(at_hand.unwrap_or(row)),
            };
            let kept = length.min(frames);
            let start = random.below(length - kept + 1);
            let (from, size) = (start * form.step, form.columns(kept));
            for (to, line) in out.chunks_exact_mut(form.columns(frames)).zip(audio.chunks_exact(stride)) {
                to[..size].copy_from_slice(&line[from..from + size]);
            }
            reference.lengths[row] = kept;
        }
        reference
    }

    /// The audio of a clip (and its pitch) into its place in the batch, in the batch's form; returns the ids of its text.
    fn load_clip(
        &self,
        clip: u32,
        out: &mut [f32],
        stride: usize,
        mut pitch: Option<&mut [f32]>,
        workspace: &mut Workspace,
    ) -> Result<Vec<u32>, ClipFault> {
        let corpus = &self.shared.corpus;
        let ids = Counters::time(&self.shared.counters.text_ns, || corpus.token_ids(clip))
            .map_err(|error| ClipFault::Audio(error.into()))?;
        let settings = self.shared.template.settings();
        let frames = self.shared.sizes[clip as usize].frames as usize;
        let form = if self.form.layout == Layout::Frames { Form::log_mel(settings) } else { self.form };
        let (bands, columns) = (form.bands, form.columns(frames));
        let Workspace { samples, mel, bytes, .. } = workspace;
        let key = match self.cache.mode() {
            CacheMode::Off => None,
            _ => Some(self.cache.key(corpus.audio_identity(clip)?)),
        };
        if let Some(key) = key {
            let found = Counters::time(&self.shared.counters.cache_ns, || match &self.settings.normalize {
                Some(stats) if !self.settings.as_signal => {
                    self.cache.load_frames(key, (bands, columns), stats, out, bytes, mel)
                }
                _ => self.cache.load(key, bands, columns, out, stride, bytes),
            });
            let pitch_found = pitch
                .as_deref_mut()
                .is_none_or(|pitch| self.cache.find(Cache::pitch_key(key), 1, frames, pitch, frames, bytes));
            if found && pitch_found {
                return Ok(ids);
            }
        }
        self.shared.counters.decoded.fetch_add(1, Ordering::Relaxed);
        let padding = settings.padding_samples();
        samples.clear();
        samples.resize(padding, 0.0);
        let fetched = workspace.fetched.remove(&clip);
        let shape = Counters::time(&self.shared.counters.decode_ns, || {
            corpus.decode_fetched(clip, fetched, &mut workspace.decoder, samples)
        })?;
        if shape.rate != settings.sample_rate {
            Counters::time(&self.shared.counters.resample_ns, || {
                workspace.resample(shape.rate, settings.sample_rate, padding)
            })?;
        }
        let Workspace { samples, mel, log_mel, tracker, .. } = workspace;
        if settings.frames(samples.len() - padding) != frames {
            return Err(ClipFault::Changed);
        }
        if let Some(pitch) = pitch {
            let track = || pitch[..frames].copy_from_slice(&tracker.track(&samples[padding..], frames));
            Counters::time(&self.shared.counters.features_ns, track);
            if let Some(key) = key {
                self.cache.keep(Cache::pitch_key(key), 1, frames, pitch, frames);
            }
        }
        // Normalized frames are made of log-mel that is at hand for the cache.
        let normalize = self.settings.normalize.as_ref().filter(|_| !self.settings.as_signal);
        if normalize.is_some() {
            mel.resize(bands * columns, 0.0);
        }
        Counters::time(&self.shared.counters.features_ns, || match normalize {
            _ if self.settings.as_signal => {
                settings.pad(samples);
                out[..columns].copy_from_slice(&samples[..columns]);
            }
            None => {
                log_mel.compute_into(samples, out, stride);
            }
            Some(stats) => {
                log_mel.compute_into(samples, mel, columns);
                stats.normalize(mel, columns, columns, out);
            }
        });
        if let Some(key) = key {
            let (values, stride) = if normalize.is_some() { (&mel[..], columns) } else { (&*out, stride) };
            Counters::time(&self.shared.counters.cache_ns, || self.cache.store(key, bands, columns, values, stride));
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
        let key = self.cache.key(self.shared.corpus.audio_identity(clip)?);
        if self.cache.has(key) && (!self.settings.pitch || self.cache.has(Cache::pitch_key(key))) {
            return Ok(false);
        }
        let frames = self.shared.sizes[clip as usize].frames as usize;
        let mut out = self.shared.recycler.take(self.form.row_values(frames));
        let mut pitch = self.settings.pitch.then(|| vec![0.0; frames]);
        self.with_workspace(|workspace| {
            self.load_clip(clip, &mut out, self.form.columns(frames), pitch.as_deref_mut(), workspace)
        })?;
        Ok(true)
    }

    /// This thread's workspace, made for this loader when it is first used.
    fn with_workspace<R>(&self, work: impl FnOnce(&mut Workspace) -> R) -> R {
        let mel = self.shared.template.settings();
        WORKSPACE.with_borrow_mut(|slot| {
            let mine = slot.take().filter(|workspace| workspace.owner == self.shared.number);
            let workspace = slot.insert(mine.unwrap_or_else(|| Workspace {
                owner: self.shared.number,
                decoder: Decoder::new(),
                log_mel: self.shared.template.another(),
                tracker: PitchTracker::new(mel.sample_rate, mel.hop_length),
                resamplers: Vec::new(),
                samples: Vec::new(),
                mel: Vec::new(),
                bytes: Vec::new(),
                fetched: HashMap::new(),
            }));
            work(workspace)
        })
    }

    fn report(&self, clip: u32, fault: &ClipFault) -> FaultReport {
        let (id, path) = self.shared.corpus.name(clip);
        FaultReport { id, path, kind: fault.kind().into(), reason: fault.to_string(), limit: false }
    }

    /// Notes the bad clips of a batch; an error when there are too many, or when nothing is left of the batch.
    fn count(&self, mut batch: Batch, lost: &mut Lost) -> Result<Batch, Fault> {
        for (clip, report) in batch.faults.drain(..) {
            let (id, path) = (report.id.clone(), report.path.clone());
            // Nothing is wrong with the clip: to go on without it would train something else.
            if report.kind == UNREACHABLE {
                return Err(Fault::new(report.reason).sample(id).fatal());
            }
            if !self.shared.ledger.note(clip, report) {
                continue;
            }
            let fault = self.too_many().sample(id);
            return Err(match path {
                Some(path) => fault.path(path),
                None => fault,
            });
        }
        // Other processes may have clips of it: they decide together whether there is a step.
        if !batch.clips.is_empty() || self.settings.shard.world > 1 {
            lost.in_a_row = 0;
            return Ok(batch);
        }
        lost.in_a_row += 1;
        // However few clips there are: to look for one good clip in epoch after epoch would never end.
        if lost.in_a_row >= *lost.batches.get_or_insert_with(|| self.plan(0).len()) {
            return Err(self.too_many());
        }
        Err(Fault::new("none of its clips can be used"))
    }

    /// Notes bad clips that other processes of the run found.
    ///
    /// # Errors
    ///
    /// A fatal fault if there are too many now: those of all processes count together.
    pub fn hear(&self, found: &[FoundFault]) -> Result<(), Fault> {
        let mut exceeded = false;
        for FoundFault { clip, kind, reason } in
            found.iter().filter(|fault| (fault.clip as usize) < self.shared.corpus.len())
        {
            let (id, path) = self.shared.corpus.name(*clip);
            let report = FaultReport { id, path, kind: kind.clone().into(), reason: reason.clone(), limit: false };
            exceeded |= self.shared.ledger.note_told(*clip, report);
        }
        if exceeded { Err(self.too_many()) } else { Ok(()) }
    }

    /// More clips are bad than is tolerated.
    pub fn too_many(&self) -> Fault {
        let reports = self.shared.ledger.reports();
        let bad = self.shared.corpus.faults() + reports.len();
        let mut text = format!("{bad} of {} clips cannot be used, more than is tolerated", self.shared.corpus.rows());
        for report in reports.iter().take(10) {
            text += &format!("\n  {}: {}", report.id, report.reason);
        }
        Fault::new(text).fatal()
    }
}

/// Batches of which nothing was left.
#[derive(Debug, Default)]
struct Lost {
    in_a_row: usize,
    /// Batches of an epoch, once that matters.
    batches: Option<usize>,
}

impl Workspace {
    fn resample(&mut self, from: u32, to: u32, start: usize) -> Result<(), ClipFault> {
        let known = self.resamplers.iter().position(|resampler| resampler.rates() == (from, to));
        let at = match known {
            Some(at) => at,
            None => {
                // Each takes a transform's memory; a corpus of many rates makes them again now and then.
                self.resamplers.truncate(3);
                self.resamplers.push(Resampler::new(from, to)?);
                self.resamplers.len() - 1
            }
        };
        self.resamplers[at].resample(&mut self.samples, start);
        Ok(())
    }
}
