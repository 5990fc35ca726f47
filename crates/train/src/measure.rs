//! A few batches and steps of a run, to see what it would take: nothing is written, nothing is kept.

use std::time::Instant;

use tandem_audio::MelStats;
use tandem_data::CacheMode;
use tandem_device::Lanes;
use tandem_device::memory::Footprint;
use tandem_flow::{Context, Cursor, Stage};
use tandem_model::weights;
use tandem_observe::Paces;

use crate::data::{Data, DataError};
use crate::events::{Preflight, TrainError};
use crate::features::measure_mel_stats;
use crate::feed::{Budgets, Feed};
use crate::guard::guards;
use crate::preflight::preflight;
use crate::settings::TrainConfig;
use crate::step::{Learner, StepRecord, learning_device};
use crate::task::{Acoustic, SpeechTask};

/// What the model alone takes.
#[derive(Clone, Debug)]
pub struct MeasuredModel {
    /// Milliseconds of a step.
    pub step_ms: f64,
    /// Parameters of the model.
    pub parameters: usize,
    /// Bytes of the largest batch on the model's device.
    pub batch_bytes: u64,
    /// What the longest batch showed.
    pub preflight: Preflight,
    /// What a run takes on the model's device.
    pub footprint: Footprint,
}

/// What is needed for a feed.
pub(crate) struct Stand {
    pub(crate) settings: TrainConfig,
    pub(crate) task: Acoustic,
    stats: MelStats,
    pub(crate) budgets: Budgets,
}

impl Stand {
    pub(crate) fn new(data: &Data, settings: &TrainConfig) -> Result<Stand, TrainError> {
        let mut settings = settings.clone();
        settings.pipeline.autotune = false;
        let loader = data.loader(&settings, false)?;
        let stats = measure_mel_stats(&loader).ok_or(DataError::NoStatistics)?;
        let task = Acoustic::new(&settings, data, None)?;
        let budgets = Budgets::new(settings.memory.host_limit, settings.memory.data_limit, settings.memory.model_limit);
        Ok(Stand { settings, task, stats, budgets })
    }

    pub(crate) fn feed(&self, data: &Data, lanes: &Lanes) -> Result<Feed, TrainError> {
        let device = learning_device(&lanes.model, &self.settings);
        let Stand { settings, stats, budgets, .. } = self;
        Ok(Feed::new(data, settings, stats, self.task.clone(), lanes, &device, budgets)?)
    }
}

/// Whether to continue; called after each batch and step.
pub type KeepGoing<'a> = &'a mut dyn FnMut() -> bool;

/// The same settings as in a first epoch: nothing comes from a cache.
fn uncached(settings: &TrainConfig) -> TrainConfig {
    let mut settings = settings.clone();
    settings.pipeline.cache = CacheMode::Off;
    settings
}

/// What the pipeline delivers when the model takes everything at once: the mean of `batches` batches after one that
/// warms up, without a cache, as the first epoch is. `step_ms` is left 0. None when `keep_going` says so.
pub fn measure_data(
    data: &Data,
    settings: &TrainConfig,
    lanes: &Lanes,
    batches: usize,
    keep_going: KeepGoing<'_>,
) -> Result<Option<Paces>, TrainError> {
    let stand = Stand::new(data, &uncached(settings))?;
    let context = Context::default();
    let mut flow = stand.feed(data, lanes)?.flow(&context, Cursor::START, u64::MAX);
    for _ in 0..=batches {
        match flow.next() {
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(TrainError::Stage(error)),
            None => break,
        }
        if !keep_going() {
            return Ok(None);
        }
    }
    drop(flow);
    let mean_ms = |stage: Stage| mean_without_first(&context.recent(stage));
    Ok(Some(Paces {
        load_ms: mean_ms(Stage::Load) / stand.settings.pipeline.workers.max(1) as f64,
        preprocess_ms: mean_ms(Stage::Preprocess),
        transfer_ms: mean_ms(Stage::Transfer),
        step_ms: 0.0,
    }))
}

/// What `steps` steps take after one that warms up, and what the longest batch takes. None when `keep_going` says so.
pub fn measure_model(
    data: &Data,
    settings: &TrainConfig,
    lanes: &Lanes,
    steps: usize,
    keep_going: KeepGoing<'_>,
) -> Result<Option<MeasuredModel>, TrainError> {
    let stand = Stand::new(data, &uncached(settings))?;
    let feed = stand.feed(data, lanes)?;
    let mut learner = Learner::with_task(stand.task.clone(), &stand.settings, &lanes.model);
    let parameters = weights::parameters(learner.model()).iter().map(|info| info.count).sum();
    let (_, mut guard) = guards(&feed, &stand.settings, lanes, &stand.budgets);
    let too_much = |error| TrainError::Memory(error, Vec::new());
    guard.admit_model(parameters).map_err(too_much)?;
    let longest = feed.longest().ok_or(DataError::NoLongestBatch)?;
    let batch_bytes = stand.task.input_bytes(&longest.inputs);
    let (preflight, footprint) = preflight(&longest, &mut learner, &mut guard)?;
    drop(longest);
    if !keep_going() {
        return Ok(None);
    }
    let context = Context::default();
    let mut seconds = Vec::new();
    for batch in feed.flow(&context, Cursor::START, u64::MAX).take(steps + 1) {
        let batch = batch.map_err(TrainError::Stage)?.value;
        let started = Instant::now();
        StepRecord::read(&[learner.step(batch)]);
        seconds.push(started.elapsed().as_secs_f64());
        if !keep_going() {
            return Ok(None);
        }
    }
    let step_ms = mean_without_first(&seconds);
    Ok(Some(MeasuredModel { step_ms, parameters, batch_bytes, preflight, footprint }))
}

/// Milliseconds of seconds; the first one warms up.
fn mean_without_first(seconds: &[f64]) -> f64 {
    let kept = if seconds.len() > 1 { &seconds[1..] } else { seconds };
    1e3 * kept.iter().sum::<f64>() / kept.len().max(1) as f64
}
