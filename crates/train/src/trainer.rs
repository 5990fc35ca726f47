//! A run, from the first batch to the final report. Reads top to bottom: feed → step → record.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;
use tandem_flow::{Context, Cursor, ErrorKind, Flow};
use tandem_model::weights;
use tandem_model::{Device, Losses, ModelConfig, REFERENCE_FRAMES, Totals, Voice};

use crate::checkpoint::{Checkpoint, CheckpointError, FORMAT, State, write_atomically};
use crate::features::{MelStats, Prepared};
use crate::feed::{Data, Feed};
use crate::memory;
use crate::run::{Log, RunFolder};
use crate::settings::{NanPolicy, TrainSettings};
use crate::speech::Speech;
use crate::step::{Injection, Learner, StepRecord, StepValues};

/// Speakers that can be asked for by name, at most.
const MOST_VOICES: usize = 256;
/// Clips that a validation looks at, at most.
const VALIDATION_CLIPS: usize = 64;

/// What happens during a run, for whoever shows it.
#[derive(Debug)]
pub enum Event<'a> {
    /// The model is made.
    Model {
        /// Parameters of each part.
        parts: &'a [(String, usize)],
        /// The device.
        device: String,
    },
    /// The longest batch went through the device, to see that it fits.
    Preflight(&'a Preflight),
    /// Some steps were done.
    Progress(&'a Progress),
    /// Validated.
    Validation {
        /// After this step.
        step: u64,
        /// The loss.
        loss: f64,
        /// Its terms.
        terms: [f64; 3],
        /// Whether it is the best so far.
        best: bool,
    },
    /// A checkpoint is on the disk.
    Checkpoint {
        /// Of this step.
        step: u64,
        /// Where.
        path: &'a std::path::Path,
    },
    /// A checkpoint could not be written; the run goes on.
    CheckpointFailed {
        /// Of this step.
        step: u64,
        /// Why.
        error: &'a CheckpointError,
    },
    /// Speech was made.
    Sample {
        /// After this step.
        step: u64,
        /// The WAV file.
        path: &'a std::path::Path,
    },
    /// A sample could not be made or written; the run goes on.
    SampleFailed {
        /// After this step.
        step: u64,
        /// Why.
        error: String,
    },
    /// The loss of a step was not a number.
    NotFinite {
        /// The step.
        step: u64,
        /// The ids of its clips.
        clips: &'a [String],
        /// What is done about it.
        policy: NanPolicy,
    },
    /// Batches are split from now on, because the device's memory is too small.
    Split {
        /// From this step on.
        step: u64,
        /// In so many parts.
        parts: usize,
    },
}

/// What the longest batch took.
#[derive(Clone, Debug, Serialize)]
pub struct Preflight {
    /// Clips.
    pub rows: usize,
    /// Frames of each.
    pub frames: usize,
    /// Tokens of each.
    pub tokens: usize,
    /// Seconds.
    pub seconds: f64,
    /// Peak memory of the process afterwards, in bytes, where it is known.
    pub peak_bytes: Option<u64>,
}

/// How far a run is.
#[derive(Clone, Debug, Serialize)]
pub struct Progress {
    /// Steps done.
    pub step: u64,
    /// Steps there will be.
    pub steps: u64,
    /// Epoch, counted from 0.
    pub epoch: u64,
    /// Mean loss since the last time.
    pub loss: f64,
    /// Its terms.
    pub terms: [f64; 3],
    /// Norm of the last gradient.
    pub norm: f64,
    /// Learning rate.
    pub rate: f64,
    /// Steps per second since the last time.
    pub steps_per_s: f64,
    /// Seconds of audio per second since the last time.
    pub audio_per_s: f64,
    /// Share of the time that the model waited for data since the last time.
    pub starved: f64,
    /// Seconds until the end.
    pub eta_s: f64,
    /// Memory of the process, in bytes, where it is known.
    pub memory_bytes: Option<u64>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// All epochs or steps are done.
    Finished,
    /// Validation did not get better any more.
    Stale,
    /// Asked to.
    Stopped,
}

/// What a run did.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Why it ended.
    pub ending: Ending,
    /// Steps done, from the very start.
    pub step: u64,
    /// Steps done this time.
    pub steps: u64,
    /// Seconds this time.
    pub seconds: f64,
    /// Seconds of training from the very start.
    pub total_seconds: f64,
    /// Seconds of audio trained on, from the very start.
    pub audio_seconds: f64,
    /// The last loss.
    pub loss: Option<f64>,
    /// The best validation loss and its step.
    pub best: Option<(f64, u64)>,
    /// Parameters.
    pub parameters: usize,
    /// Share of the time that the model waited for data.
    pub starved: f64,
    /// Peak memory of the process, in bytes, where it is known.
    pub peak_bytes: Option<u64>,
    /// Share of the step that searched alignments.
    pub alignment_share: f64,
    /// What each stage did.
    pub stages: Vec<tandem_flow::StageStats>,
    /// What each queue did.
    pub queues: Vec<tandem_flow::QueueStats>,
    /// Clips left out while loading.
    pub left_out: Vec<tandem_data::FaultReport>,
}

/// Why a run failed.
#[derive(Debug)]
pub enum TrainError {
    /// The data.
    Data(String),
    /// A stage failed; what was learned is in a checkpoint if there is one.
    Stage(tandem_flow::Error),
    /// The checkpoint.
    Checkpoint(CheckpointError),
    /// The run's folder.
    Io(std::path::PathBuf, std::io::Error),
    /// The loss was not a number at this step, with these clips.
    NotFinite(u64, Vec<String>),
}

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrainError::Data(message) => write!(f, "{message}"),
            TrainError::Stage(error) => write!(f, "{error}"),
            TrainError::Checkpoint(error) => write!(f, "{error}"),
            TrainError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            TrainError::NotFinite(step, clips) => {
                write!(f, "the loss of step {step} is not a number; its clips: {}", clips.join(", "))
            }
        }
    }
}

impl std::error::Error for TrainError {}

impl From<CheckpointError> for TrainError {
    fn from(error: CheckpointError) -> Self {
        TrainError::Checkpoint(error)
    }
}

/// A run that is about to begin, or to go on.
pub struct Trainer {
    settings: TrainSettings,
    data: Data,
    run: RunFolder,
    device: Device,
    config: ModelConfig,
    stats: MelStats,
    learner: Arc<Mutex<Learner>>,
    state: Ongoing,
}

/// What changes from step to step besides the model.
#[derive(Clone, Debug, Default)]
struct Ongoing {
    best: Option<(f64, u64)>,
    stale: u64,
    seconds_before: f64,
    audio_seconds: f64,
    saved: Option<u64>,
}

impl Trainer {
    /// A new run, or one that goes on from `start`.
    pub fn new(
        data: Data,
        settings: TrainSettings,
        run: RunFolder,
        device: &Device,
        start: Option<Checkpoint>,
    ) -> Result<Trainer, TrainError> {
        let corpus = data.corpus.clone();
        let reference = corpus.speakers().len() > 1;
        let config =
            ModelConfig::new(settings.size, corpus.tokenizer().size(), corpus.settings().mel.n_mels, reference);
        let (learner, stats, state) = match start {
            Some(checkpoint) => {
                check_same_run(&checkpoint.state, &settings, &config, &data, &run)?;
                let foreign = |error: weights::WeightsError| {
                    let path = run.checkpoints().path(checkpoint.state.step);
                    TrainError::Checkpoint(CheckpointError::Foreign(path, vec![error.to_string()]))
                };
                let learner = Learner::resume(&checkpoint, &settings, device).map_err(foreign)?;
                let state = Ongoing {
                    best: checkpoint.state.best,
                    stale: checkpoint.state.stale,
                    seconds_before: checkpoint.state.seconds,
                    audio_seconds: checkpoint.state.audio_seconds,
                    saved: Some(checkpoint.state.step),
                };
                (learner, checkpoint.state.stats, state)
            }
            None => {
                let loader = data.loader(&settings, None).map_err(TrainError::Data)?;
                let stats = MelStats::measure(&loader)
                    .ok_or_else(|| TrainError::Data("not one of the first clips can be read".to_owned()))?;
                (Learner::new(&config, &settings, device), stats, Ongoing::default())
            }
        };
        Ok(Trainer {
            settings,
            data,
            run,
            device: device.clone(),
            config,
            stats,
            learner: Arc::new(Mutex::new(learner)),
            state,
        })
    }

    /// Makes things go wrong, for tests.
    pub fn inject(&mut self, injection: Injection) {
        self.lock().injection = injection;
    }

    /// The model's shapes.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Steps that the run has when it is finished.
    pub fn total_steps(&self, batches: usize) -> u64 {
        let all = self.settings.epochs.saturating_mul(batches as u64);
        self.settings.max_steps.map_or(all, |most| most.min(all))
    }

    fn lock(&self) -> MutexGuard<'_, Learner> {
        self.learner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Trains until the end, or until `context` is asked to stop. Whatever the reason, what was learned is saved.
    pub fn run(&mut self, context: &Context, on_event: &mut dyn FnMut(Event<'_>)) -> Result<Report, TrainError> {
        let started = Instant::now();
        let first_step = self.lock().steps();
        let io = |path: std::path::PathBuf| move |error| TrainError::Io(path, error);
        self.run.create().map_err(io(self.run.path().to_owned()))?;
        self.run.checkpoints().sweep();
        let mut log = Log::open(&self.run.log_path(), first_step).map_err(io(self.run.log_path()))?;
        let parts = parameter_parts(self.lock().model());
        let parameters = parts.iter().map(|(_, count)| count).sum();
        on_event(Event::Model { parts: &parts, device: format!("{:?}", self.device) });

        if self.config.reference && first_step == 0 {
            let voices = self.data.voices(&self.settings, &self.stats, MOST_VOICES).map_err(TrainError::Data)?;
            let bytes = weights::to_bytes(&voices).expect("plain tensors");
            write_atomically(&self.run.voices_path(), &bytes).map_err(io(self.run.voices_path()))?;
        }

        // The data lane first: batches are made while the model gets ready.
        let reference = self.config.reference.then_some(REFERENCE_FRAMES);
        let feed = Feed::new(&self.data, &self.settings, &self.stats, self.config.decoder.group, reference)
            .map_err(TrainError::Data)?;
        let batches = feed.batches();
        let steps = self.total_steps(batches);
        let start = self.lock().next();
        let mut flow = self.train_stage(feed.flow(context, start, self.settings.epochs));
        let validation =
            feed.validation(&self.data, &self.settings, reference, VALIDATION_CLIPS).map_err(TrainError::Data)?;
        if first_step < steps {
            self.preflight(&feed, on_event);
        }

        let mut pending: Vec<StepRecord> = Vec::new();
        let mut window = Window::new(context);
        let mut parts_now = self.settings.accumulate.max(1);
        let mut last_loss = None;
        let mut ending = Ending::Finished;
        let mut failure = None;
        while self.lock().steps() < steps {
            // feed → step
            let record = match flow.next() {
                None => break,
                Some(Ok(record)) => record.value,
                Some(Err(error)) if matches!(error.kind, ErrorKind::Stopped(_)) => {
                    ending = Ending::Stopped;
                    break;
                }
                Some(Err(error)) => {
                    failure = Some(TrainError::Stage(error));
                    break;
                }
            };
            // → record
            let (step, epoch) = (record.step, record.cursor.epoch);
            let end_of_epoch = record.cursor.batch + 1 >= batches as u64;
            self.state.audio_seconds += record.seconds;
            window.add(&record);
            if record.parts != parts_now {
                parts_now = record.parts;
                on_event(Event::Split { step, parts: parts_now });
            }
            pending.push(record);
            let due = |every: u64| every > 0 && step.is_multiple_of(every);
            let validate = self.settings.validate_every.map_or(end_of_epoch, due) || step == steps;
            let save = due(self.settings.checkpoint_every) || step == steps;
            if due(self.settings.log_every) || validate || save || pending.len() >= 1000 {
                match self.flush(&mut pending, &mut log, on_event) {
                    Ok(Some(values)) => {
                        last_loss = Some(values.loss);
                        on_event(Event::Progress(&window.close(context, step, steps, epoch, &values, &self.settings)));
                    }
                    Ok(None) => {}
                    Err(error) => failure = Some(error),
                }
            }
            if failure.is_some() {
                break;
            }
            if validate {
                self.validate(&validation, step, &mut log, on_event)?;
            }
            if save || (validate && self.state.best.is_some_and(|(_, best)| best == step)) {
                // A failure was told; the next checkpoint may succeed.
                let _ = self.save(started, on_event);
            }
            if due(self.settings.sample_every) {
                self.sample(&validation, step, on_event);
            }
            if self.settings.patience > 0 && self.state.stale >= self.settings.patience {
                ending = Ending::Stale;
                break;
            }
            if context.stop.reason().is_some() {
                ending = Ending::Stopped;
                break;
            }
        }
        drop(flow);
        let flushed = self.flush(&mut pending, &mut log, on_event);
        if let Ok(Some(values)) = &flushed {
            last_loss = Some(values.loss);
        }
        failure = failure.or(flushed.err());
        let saved = self.save(started, on_event);
        let step = self.lock().steps();
        let seconds = started.elapsed().as_secs_f64();
        let train = context.stage("train");
        let report = Report {
            ending,
            step,
            steps: step - first_step,
            seconds,
            total_seconds: self.state.seconds_before + seconds,
            audio_seconds: self.state.audio_seconds,
            loss: last_loss,
            best: self.state.best,
            parameters,
            starved: train.as_ref().map_or(0.0, |train| share(train.wait_in.total, train.busy.total)),
            peak_bytes: memory::peak_bytes(),
            alignment_share: train.as_ref().map_or(0.0, |train| {
                let search = tandem_model::alignment_seconds();
                if train.busy.total > 0.0 { search / train.busy.total } else { 0.0 }
            }),
            stages: context.stages(),
            queues: context.queues(),
            left_out: feed.left_out(),
        };
        self.run.write_report(&report).map_err(io(self.run.path().join("report.json")))?;
        match (failure, saved) {
            (Some(failure), _) => Err(failure),
            (None, Err(error)) => Err(error.into()),
            (None, Ok(())) => Ok(report),
        }
    }

    fn train_stage(&self, feed: Flow<Prepared>) -> Flow<StepRecord> {
        let learner = self.learner.clone();
        feed.stage("train", move |prepared| Ok(learner.lock().unwrap_or_else(PoisonError::into_inner).step(prepared)))
    }

    /// SPEC G5: the longest batch first, so that too little memory shows now and not at hour nine.
    fn preflight(&self, feed: &Feed, on_event: &mut dyn FnMut(Event<'_>)) {
        let started = Instant::now();
        let Some(longest) = feed.longest() else { return };
        let (rows, frames, tokens) = (longest.inputs.rows, longest.inputs.frames, longest.inputs.tokens);
        let parts = self.settings.accumulate.max(1);
        let (values, _) = self.lock().gradients(&longest.inputs, parts);
        let _ = values.into_data();
        let seconds = started.elapsed().as_secs_f64();
        on_event(Event::Preflight(&Preflight { rows, frames, tokens, seconds, peak_bytes: memory::peak_bytes() }));
    }

    /// Reads the losses of the steps since the last time and writes them down; returns their mean.
    fn flush(
        &self,
        pending: &mut Vec<StepRecord>,
        log: &mut Log,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Option<StepValues>, TrainError> {
        if pending.is_empty() {
            return Ok(None);
        }
        let values = StepRecord::read(pending);
        let lines: Vec<_> = (pending.iter().zip(&values))
            .map(|(record, values)| {
                json!({"step": record.step, "epoch": record.cursor.epoch, "batch": record.cursor.batch,
                    "loss": values.loss, "prior": values.terms[0], "duration": values.terms[1], "flow": values.terms[2],
                    "norm": values.norm, "rate": record.rate})
            })
            .collect();
        log.add(&lines).map_err(|error| TrainError::Io(self.run.log_path(), error))?;
        let mut failure = None;
        for (record, _) in pending.iter().zip(&values).filter(|(_, values)| !values.is_finite()) {
            let clips: Vec<String> = record.clips.iter().map(|&clip| self.data.corpus.name(clip).0).collect();
            on_event(Event::NotFinite { step: record.step, clips: &clips, policy: self.settings.nan_policy });
            if self.settings.nan_policy == NanPolicy::Stop {
                failure.get_or_insert(TrainError::NotFinite(record.step, clips));
            }
        }
        pending.clear();
        let good: Vec<&StepValues> = values.iter().filter(|values| values.is_finite()).collect();
        if let Some(failure) = failure {
            return Err(failure);
        }
        Ok(good.last().map(|last| {
            let mean = |of: &dyn Fn(&StepValues) -> f64| good.iter().map(|v| of(v)).sum::<f64>() / good.len() as f64;
            StepValues {
                loss: mean(&|values| values.loss),
                terms: std::array::from_fn(|n| mean(&|values| values.terms[n])),
                norm: last.norm,
            }
        }))
    }

    fn validate(
        &mut self,
        batches: &[Prepared],
        step: u64,
        log: &mut Log,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), TrainError> {
        let model = plain(self.lock().model());
        let terms = validation_losses(&model, batches, &self.device);
        let loss = terms.iter().sum::<f64>();
        let best = loss.is_finite() && self.state.best.is_none_or(|(best, _)| loss < best);
        if best {
            self.state.best = Some((loss, step));
            self.state.stale = 0;
        } else {
            self.state.stale += 1;
        }
        let line = json!({"step": step, "validation": loss, "prior": terms[0], "duration": terms[1], "flow": terms[2]});
        log.add(&[line]).map_err(|error| TrainError::Io(self.run.log_path(), error))?;
        on_event(Event::Validation { step, loss, terms, best });
        Ok(())
    }

    /// Writes a checkpoint, unless this step has one.
    fn save(&mut self, started: Instant, on_event: &mut dyn FnMut(Event<'_>)) -> Result<(), CheckpointError> {
        let checkpoint = {
            let learner = self.lock();
            if learner.steps() == 0 || self.state.saved == Some(learner.steps()) {
                return Ok(());
            }
            self.checkpoint(&learner, started)
        };
        let (step, checkpoints) = (checkpoint.state.step, self.run.checkpoints());
        let written = checkpoints.write(&checkpoint).and_then(|path| {
            if self.state.best.is_some_and(|(_, best)| best == step) {
                checkpoints.note_best(step)?;
            }
            Ok(path)
        });
        match written {
            Ok(path) => {
                checkpoints.prune(self.settings.keep);
                self.state.saved = Some(step);
                on_event(Event::Checkpoint { step, path: &path });
                Ok(())
            }
            Err(error) => {
                on_event(Event::CheckpointFailed { step, error: &error });
                Err(error)
            }
        }
    }

    fn checkpoint(&self, learner: &Learner, started: Instant) -> Checkpoint {
        Checkpoint {
            weights: weights::export(learner.model()),
            optimiser: learner.optimiser().export(learner.model()),
            state: State {
                format: FORMAT,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                step: learner.steps(),
                next: learner.next().into(),
                seconds: self.state.seconds_before + started.elapsed().as_secs_f64(),
                audio_seconds: self.state.audio_seconds,
                best: self.state.best,
                stale: self.state.stale,
                settings: self.settings.clone(),
                model: self.config.clone(),
                mel: self.data.corpus.settings().mel.clone(),
                stats: self.stats.clone(),
                vocabulary: self.data.corpus.tokenizer().to_json(),
                data: self.data.identity(),
            },
        }
    }

    fn sample(&self, validation: &[Prepared], step: u64, on_event: &mut dyn FnMut(Event<'_>)) {
        let Some(batch) = validation.first() else { return };
        let model = plain(self.lock().model());
        let speech = Speech::new(model, &self.config, &self.data.corpus.settings().mel, &self.stats, &self.device);
        let path = self.run.samples().join(format!("step-{step:08}.wav"));
        let made = std::fs::create_dir_all(self.run.samples())
            .map_err(|error| error.to_string())
            .and_then(|()| speech.say_row(&batch.inputs, 0).map_err(|error| error.to_string()))
            .and_then(|said| said.write(&path).map_err(|error| error.to_string()));
        match made {
            Ok(()) => on_event(Event::Sample { step, path: &path }),
            Err(error) => on_event(Event::SampleFailed { step, error }),
        }
    }
}

/// A copy of the model that does not remember how its results came about.
pub(crate) fn plain(model: &Voice) -> Voice {
    use burn::module::Module;
    model.valid()
}

/// The terms of the loss over some batches, each clip's frames weighing the same.
pub fn validation_losses(model: &Voice, batches: &[Prepared], device: &Device) -> [f64; 3] {
    let frames: Vec<usize> = batches.iter().flat_map(|batch| batch.inputs.mel_lengths.clone()).collect();
    let tokens: Vec<usize> = batches.iter().flat_map(|batch| batch.inputs.id_lengths.clone()).collect();
    let totals = Totals::new(&frames, &tokens);
    let mut sums = [0f64; 3];
    for batch in batches {
        let (losses, _) = model.losses(&batch.inputs.clone().upload(device), totals, 0.0, false);
        let values = Losses::values(&losses).into_data().try_into_vec::<f32>().expect("losses are single precision");
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(value));
    }
    sums
}

fn check_same_run(
    state: &State,
    settings: &TrainSettings,
    config: &ModelConfig,
    data: &Data,
    run: &RunFolder,
) -> Result<(), TrainError> {
    let mut lines = settings.differences(&state.settings);
    lines.extend(data.identity().differences(&state.data));
    if state.vocabulary != data.corpus.tokenizer().to_json() {
        lines.push("vocabulary: other characters here than in the checkpoint".to_owned());
    }
    if state.mel != data.corpus.settings().mel {
        lines.push("features: other mel settings here than in the checkpoint".to_owned());
    }
    if lines.is_empty() {
        lines.extend(config.differences(&state.model));
    }
    if lines.is_empty() {
        return Ok(());
    }
    Err(CheckpointError::Foreign(run.checkpoints().path(state.step), lines).into())
}

/// Parameters of each part of the model.
pub fn parameter_parts(model: &Voice) -> Vec<(String, usize)> {
    let mut parts: Vec<(String, usize)> = Vec::new();
    for info in weights::parameters(model) {
        let part = info.name.split('.').next().unwrap_or_default().to_owned();
        match parts.iter_mut().find(|(name, _)| *name == part) {
            Some((_, count)) => *count += info.count,
            None => parts.push((part, info.count)),
        }
    }
    parts
}

fn share(part: f64, rest: f64) -> f64 {
    if part + rest > 0.0 { part / (part + rest) } else { 0.0 }
}

/// What happened since the last progress.
struct Window {
    started: Instant,
    steps: u64,
    audio: f64,
    waited: f64,
    busy: f64,
}

impl Window {
    fn new(context: &Context) -> Window {
        let (waited, busy) = Window::meters(context);
        Window { started: Instant::now(), steps: 0, audio: 0.0, waited, busy }
    }

    fn meters(context: &Context) -> (f64, f64) {
        context.stage("train").map_or((0.0, 0.0), |train| (train.wait_in.total, train.busy.total))
    }

    fn add(&mut self, record: &StepRecord) {
        self.steps += 1;
        self.audio += record.seconds;
    }

    fn close(
        &mut self,
        context: &Context,
        step: u64,
        steps: u64,
        epoch: u64,
        values: &StepValues,
        settings: &TrainSettings,
    ) -> Progress {
        let seconds = self.started.elapsed().max(Duration::from_micros(1)).as_secs_f64();
        let (waited, busy) = Window::meters(context);
        let steps_per_s = self.steps as f64 / seconds;
        let progress = Progress {
            step,
            steps,
            epoch,
            loss: values.loss,
            terms: values.terms,
            norm: values.norm,
            rate: settings.rate.at(step),
            steps_per_s,
            audio_per_s: self.audio / seconds,
            starved: share(waited - self.waited, busy - self.busy),
            eta_s: (steps - step) as f64 / steps_per_s.max(1e-9),
            memory_bytes: memory::resident_bytes(),
        };
        *self = Window { started: Instant::now(), steps: 0, audio: 0.0, waited, busy };
        progress
    }
}

/// For whoever wants the position without a trainer.
pub fn position(state: &State) -> Cursor {
    state.next.into()
}
