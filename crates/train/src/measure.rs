//! A few batches and steps of a run, to see what it would take: nothing is written, nothing is kept.

use std::time::Instant;

use tandem_device::Lanes;
use tandem_device::memory::{Footprint, Lane};
use tandem_flow::{Context, Cursor};
use tandem_model::{ModelConfig, REFERENCE_FRAMES, weights};
use tandem_observe::Paces;

use crate::events::{Preflight, TrainError};
use crate::features::MelStats;
use crate::feed::{Budgets, Data, Feed};
use crate::guard::Guard;
use crate::preflight::preflight;
use crate::settings::{CachePlace, TrainSettings};
use crate::step::{Learner, StepRecord, learning_device};

/// What a few batches and steps took.
#[derive(Clone, Debug)]
pub struct Measured {
    /// A batch through each stage.
    pub paces: Paces,
    /// Workers that loaded.
    pub workers: usize,
    /// Parameters of the model.
    pub parameters: usize,
    /// Bytes of the largest batch on the model's device.
    pub batch_bytes: u64,
    /// What the longest batch showed.
    pub preflight: Preflight,
    /// What a run takes on the model's device.
    pub footprint: Footprint,
}

/// Measures `steps` batches and steps after one that warms up, without a cache: as the first epoch is. `progress` hears
/// how much is done.
pub fn measure(
    data: &Data,
    settings: &TrainSettings,
    lanes: &Lanes,
    steps: usize,
    mut progress: impl FnMut(usize, usize),
) -> Result<Measured, TrainError> {
    let settings = TrainSettings { cache: CachePlace::Off, autotune: false, ..settings.clone() };
    let loader = data.loader(&settings, None).map_err(TrainError::Data)?;
    let stats = MelStats::measure(&loader)
        .ok_or_else(|| TrainError::Data("not one of the first clips can be read".to_owned()))?;
    let reference = data.corpus.speakers().len() > 1;
    let mel = &data.corpus.settings().mel;
    let config = ModelConfig::new(settings.size, data.corpus.tokenizer().size(), mel.n_mels, reference);
    let device = learning_device(&lanes.model, &settings);
    let budgets = Budgets::new(settings.memory_limit);
    let shape = (config.decoder.group, reference.then_some(REFERENCE_FRAMES));
    let feed = Feed::new(data, &settings, &stats, shape, lanes, &device, &budgets).map_err(TrainError::Data)?;
    let mut guard = Guard::new(Lane::Model, &lanes.model, &lanes.placement.model, settings.model_limit, &budgets.model);

    // The pipeline alone: what it can deliver when the model takes everything at once.
    let context = Context::default();
    let mut flow = feed.flow(&context, Cursor::START, u64::MAX);
    let mut ready = Vec::new();
    let all = 2 * (steps + 1);
    for done in 0..=steps {
        progress(done, all);
        match flow.next() {
            Some(Ok(envelope)) => ready.push(envelope.value),
            Some(Err(error)) => return Err(TrainError::from_flow(error)),
            None => break,
        }
    }
    drop(flow);
    let mean_ms = |name: &str| context.stage(name).map_or(0.0, |stage| 1e3 * stage.busy.mean);
    let workers = settings.workers.max(1);

    // The model alone.
    let mut learner = Learner::new(&config, &settings, &lanes.model);
    let parameters = weights::parameters(learner.model()).iter().map(|info| info.count).sum();
    guard.admit_model(parameters).map_err(|error| TrainError::Memory(error, Vec::new()))?;
    let longest = feed.longest().ok_or_else(|| TrainError::Data("the longest batch cannot be read".to_owned()))?;
    let batch_bytes = longest.inputs.bytes();
    let (preflight, footprint) = preflight(&longest, &mut learner, &mut guard)?;
    drop(longest);
    let mut times = Vec::new();
    for (done, batch) in ready.into_iter().enumerate() {
        progress(steps + 1 + done, all);
        let started = Instant::now();
        let record = learner.step(batch);
        StepRecord::read(&[record]);
        times.push(1e3 * started.elapsed().as_secs_f64());
    }
    // The first one warms up.
    let kept = if times.len() > 1 { &times[1..] } else { &times[..] };
    let paces = Paces {
        load_ms: mean_ms("load") / workers as f64,
        preprocess_ms: mean_ms("preprocess"),
        transfer_ms: mean_ms("transfer"),
        step_ms: kept.iter().sum::<f64>() / kept.len().max(1) as f64,
    };
    Ok(Measured { paces, workers: settings.workers, parameters, batch_bytes, preflight, footprint })
}
