//! Some steps of the real pipeline, to see where the time goes: nothing is written, nothing is kept.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tandem_data::CacheMode;
use tandem_device::Lanes;
use tandem_device::memory::LaneMemory;
use tandem_device::probes::CpuMeter;
use tandem_flow::{Context, Cursor, Error, ErrorKind, Flow, QueueStats, Stage, Trace};
use tandem_model::{Inputs, weights};
use tandem_observe::{Alone, Pressure};

use crate::data::Data;
use crate::events::TrainError;
use crate::fault_injection::LaneFault;
use crate::features::Ready;
use crate::feed::Feed;
use crate::guard::guards;
use crate::measure::{KeepGoing, Stand};
use crate::memory;
use crate::settings::TrainConfig;
use crate::step::{Learner, StepRecord};

/// Steps that are done again on batches that are there already, at most.
pub const REPLAYED: usize = 12;

/// What some steps of the pipeline did.
#[derive(Clone, Debug)]
pub struct Profiled {
    /// Who worked when.
    pub trace: Trace,
    /// What the queues did.
    pub queues: Vec<QueueStats>,
    /// How the queues and the memory of batches were used.
    pub pressure: Pressure,
    /// Bytes of a batch on the host, on average.
    pub batch_bytes: usize,
    /// What the lanes take of their devices.
    pub lanes: Vec<LaneMemory>,
    /// After each step: seconds since the start, bytes of the process, bytes of each lane.
    pub memory: Vec<(f64, Option<u64>, Vec<u64>)>,
    /// CPU load by this program, in percent of one core, where it is known.
    pub cpu_percent: Option<f64>,
    /// Parameters of the model.
    pub parameters: usize,
    /// Milliseconds of a step on a batch that is already there, with nothing beside it: of the last batches of the profile.
    pub replay_ms: f64,
}

/// A setup to be measured.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// What is trained on.
    pub data: &'a Data,
    /// How.
    pub settings: TrainConfig,
    /// Where.
    pub lanes: &'a Lanes,
    /// What goes wrong on purpose.
    pub fault: Option<LaneFault>,
}

/// The parts of a setup, ready to run.
struct Bench {
    stand: Stand,
    feed: Feed,
    /// Where it begins: with a cache after the first epoch, as nearly all of a run does.
    start: Cursor,
}

impl Bench {
    /// For about so many steps. None when `keep_going` says so.
    fn new(setup: &Setup<'_>, steps: usize, keep_going: KeepGoing<'_>) -> Result<Option<Bench>, TrainError> {
        let Setup { data, settings, lanes, fault } = setup;
        let cached = settings.pipeline.cache != CacheMode::Off;
        let data = if cached { some_of(data, steps * settings.data.batch_size) } else { (*data).clone() };
        let stand = Stand::new(&data, settings)?;
        let mut feed = stand.feed(&data, lanes)?;
        feed.fail(*fault);
        let mut start = Cursor::START;
        if cached {
            start = Cursor { epoch: 1, batch: 0 };
            for batch in feed.first_epoch(&Context::default()) {
                batch.map_err(TrainError::Stage)?;
                if !keep_going() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(Bench { stand, feed, start }))
    }

    fn flow(&self, context: &Context) -> Flow<Ready> {
        let flow = self.feed.flow(context, self.start, u64::MAX);
        self.feed.open_prefetch_buffer();
        flow
    }
}

/// The same data with no more clips than this, taken evenly.
fn some_of(data: &Data, most: usize) -> Data {
    let every = data.clips.len().div_ceil(most.max(1)).max(1);
    Data { clips: data.clips.iter().copied().step_by(every).collect(), ..data.clone() }
}

/// Runs `steps` steps of the real pipeline. With a cache, those of an epoch after the first. None when `keep_going`, which is
/// asked after each batch and step, says so.
pub fn profile_steps(
    setup: &Setup<'_>,
    steps: usize,
    keep_going: KeepGoing<'_>,
) -> Result<Option<Profiled>, TrainError> {
    let Some(bench) = Bench::new(setup, steps, &mut *keep_going)? else { return Ok(None) };
    let lanes = setup.lanes;
    let Bench { stand, feed, .. } = &bench;
    let mut context = Context::default();
    context.trace = Trace::with_limit(16 * (steps + 64));
    context.stall_timeout = Some(Duration::from_secs_f64(stand.settings.pipeline.stall_timeout.max(1.0)));
    let flow = bench.flow(&context);
    let learner = Learner::with_task(stand.task.clone(), &stand.settings, &lanes.model);
    let parameters = weights::parameters(learner.model()).iter().map(|info| info.count).sum();
    let (mut data_guard, mut model_guard) = guards(feed, &stand.settings, lanes, &stand.budgets);
    let too_much = |error| TrainError::Memory(error, Vec::new());
    model_guard.admit_model(parameters).map_err(too_much)?;
    let mut cpu = CpuMeter::new();
    // The last batches stay, to be trained on again.
    let (shared, kept) = (Arc::new(Mutex::new(learner)), Arc::new(Mutex::new(VecDeque::<(Cursor, Inputs)>::new())));
    let (trainer, keeper) = (shared.clone(), kept.clone());
    let flow = flow.stage(Stage::Train, move |ready: Ready| {
        let mut kept = lock(&keeper);
        kept.push_back((ready.cursor, ready.inputs.clone()));
        if kept.len() > REPLAYED {
            kept.pop_front();
        }
        step_to_the_end(&trainer, ready);
        Ok(())
    });
    let (mut memory, mut readings) = (Vec::new(), Vec::new());
    for (number, step) in (1..).zip(flow.take(steps)) {
        if let Some(error) = failure(step.err()) {
            return error.map(|()| None);
        }
        readings = vec![data_guard.read(number).map_err(too_much)?.0, model_guard.read(number).map_err(too_much)?.0];
        let used = readings.iter().map(LaneMemory::used_bytes).collect();
        memory.push((context.clock.now().as_secs_f64(), memory::resident_bytes(), used));
        if !keep_going() {
            return Ok(None);
        }
    }
    let cpu_percent = cpu.read().process.value().copied();
    let queues = context.queues();
    let (loaded, host) = (context.stage(Stage::Load), &stand.budgets.host);
    let replayed = std::mem::take(&mut *lock(&kept));
    let mut alone_s = 0.0;
    for (cursor, inputs) in &replayed {
        let ready = Ready { cursor: *cursor, clips: Vec::new(), seconds: 0.0, inputs: inputs.clone() };
        let started = Instant::now();
        step_to_the_end(&shared, ready);
        alone_s += started.elapsed().as_secs_f64();
        if !keep_going() {
            return Ok(None);
        }
    }
    Ok(Some(Profiled {
        trace: context.trace.clone(),
        pressure: Pressure::new(&queues, share(host.high_water_bytes(), host.limit_bytes())),
        queues,
        batch_bytes: loaded.map_or(0, |load| load.bytes / load.items.max(1)) as usize,
        lanes: readings,
        memory,
        cpu_percent,
        parameters,
        replay_ms: 1e3 * alone_s / replayed.len().max(1) as f64,
    }))
}

/// What `batches` batches take in each stage with nothing beside them, for predictions. None when `keep_going` says so.
pub fn measure_alone(
    setup: &Setup<'_>,
    batches: usize,
    keep_going: KeepGoing<'_>,
) -> Result<Option<Alone>, TrainError> {
    /// Batches that do not count.
    const WARM_UP: usize = 2;
    let mut settings = setup.settings.clone();
    let pipeline = &mut settings.pipeline;
    (pipeline.workers, pipeline.buffer_size, pipeline.pipeline_depth, pipeline.prefetch_buffer_size) = (0, 0, 1, 0);
    let synchronous = Setup { settings, ..setup.clone() };
    let steps = batches + WARM_UP;
    let Some(bench) = Bench::new(&synchronous, steps, &mut *keep_going)? else { return Ok(None) };
    let mut context = Context::default();
    context.trace = Trace::with_cpu_time(16 * (steps + 64), memory::cpu_time);
    let trainer = Mutex::new(Learner::with_task(bench.stand.task.clone(), &bench.stand.settings, &setup.lanes.model));
    let flow = bench.flow(&context).stage(Stage::Train, move |ready: Ready| {
        step_to_the_end(&trainer, ready);
        Ok(())
    });
    for step in flow.take(steps) {
        if let Some(error) = failure(step.err()) {
            return error.map(|()| None);
        }
        if !keep_going() {
            return Ok(None);
        }
    }
    Ok(Alone::new(&context.trace.spans(), WARM_UP))
}

/// A step is over when its numbers are there: a profile shows what a user waits for.
fn step_to_the_end(learner: &Mutex<Learner>, ready: Ready) {
    StepRecord::read(&[lock(learner).step(ready)]);
}

/// A stage's error as one of the run; to be stopped is none.
fn failure(error: Option<Error>) -> Option<Result<(), TrainError>> {
    error.map(|error| match error.kind {
        ErrorKind::Stopped(_) => Ok(()),
        _ => Err(TrainError::Stage(error)),
    })
}

fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
