//! Some steps of the real pipeline, to see where the time goes: nothing is written, nothing is kept.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tandem_device::Lanes;
use tandem_device::memory::LaneMemory;
use tandem_device::probes::CpuMeter;
use tandem_flow::{Context, Cursor, ErrorKind, QueueStats, Trace};
use tandem_model::{Inputs, weights};

use crate::events::TrainError;
use crate::features::Ready;
use crate::feed::Data;
use crate::guard::guards;
use crate::measure::{GoOn, Stand};
use crate::settings::TrainSettings;
use crate::step::{Learner, StepRecord};

/// Steps that are done again on batches that are there already, for the headroom.
const REPLAYED: usize = 8;

/// What some steps of the pipeline did.
#[derive(Clone, Debug)]
pub struct Profiled {
    /// Who worked when.
    pub trace: Trace,
    /// What the queues did.
    pub queues: Vec<QueueStats>,
    /// What the lanes take of their devices.
    pub lanes: Vec<LaneMemory>,
    /// Load of the processor by this program, in percent of one core, where it is known.
    pub cpu_percent: Option<f64>,
    /// Parameters of the model.
    pub parameters: usize,
    /// Milliseconds of a step on a batch that is already there (SPEC R6).
    pub replay_ms: f64,
}

/// Runs `steps` steps, the cache as `settings` have it. None when `go_on` says so.
pub fn profile_steps(
    data: &Data,
    settings: &TrainSettings,
    lanes: &Lanes,
    steps: usize,
    go_on: GoOn<'_>,
) -> Result<Option<Profiled>, TrainError> {
    let stand = Stand::new(data, settings)?;
    let feed = stand.feed(data, lanes)?;
    let mut context = Context::default();
    context.trace = Trace::with_limit(16 * (steps + 64));
    context.stall_timeout = Some(Duration::from_secs_f64(stand.settings.stall_timeout.max(1.0)));
    let flow = feed.flow(&context, Cursor::START, u64::MAX);
    feed.open_device_queue();
    let learner = Learner::new(&stand.config, &stand.settings, &lanes.model);
    let parameters = weights::parameters(learner.model()).iter().map(|info| info.count).sum();
    let (mut data_guard, mut model_guard) = guards(&feed, &stand.settings, lanes, &stand.budgets);
    let too_much = |error| TrainError::Memory(error, Vec::new());
    model_guard.admit_model(parameters).map_err(too_much)?;
    let mut cpu = CpuMeter::new();
    // The last batches stay, to be trained on again.
    let (shared, kept) = (Arc::new(Mutex::new(learner)), Arc::new(Mutex::new(VecDeque::<Inputs>::new())));
    let (trainer, keeper) = (shared.clone(), kept.clone());
    let flow = flow.stage("train", move |ready: Ready| {
        let mut kept = lock(&keeper);
        kept.push_back(ready.inputs.clone());
        if kept.len() > REPLAYED {
            kept.pop_front();
        }
        // A step is over when its numbers are there: a profile tells what a user waits for.
        StepRecord::read(&[lock(&trainer).step(ready)]);
        Ok(())
    });
    for step in flow.take(steps) {
        match step {
            Ok(_) => {}
            Err(error) if matches!(error.kind, ErrorKind::Stopped(_)) => return Ok(None),
            Err(error) => return Err(TrainError::Stage(error)),
        }
        if !go_on() {
            return Ok(None);
        }
    }
    let cpu_percent = cpu.read().process.value().copied();
    let queues = context.queues();
    let lanes = vec![data_guard.look(1).map_err(too_much)?.0, model_guard.look(1).map_err(too_much)?.0];
    let mut seconds = 0.0;
    let replayed = std::mem::take(&mut *lock(&kept));
    for (batch, inputs) in replayed.iter().enumerate() {
        let cursor = Cursor { epoch: 0, batch: batch as u64 };
        let ready = Ready { cursor, clips: Vec::new(), seconds: 0.0, inputs: inputs.clone() };
        let started = Instant::now();
        StepRecord::read(&[lock(&shared).step(ready)]);
        seconds += started.elapsed().as_secs_f64();
    }
    let replay_ms = 1e3 * seconds / replayed.len().max(1) as f64;
    Ok(Some(Profiled { trace: context.trace.clone(), queues, lanes, cpu_percent, parameters, replay_ms }))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
