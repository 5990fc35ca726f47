//! Takes snapshots of a run while it trains, reports what is worth reporting, and writes the snapshots to `monitor.jsonl`.

use std::path::PathBuf;
use std::time::Instant;

use serde_json::json;
use tandem_device::memory::LaneMemory;
use tandem_device::probes::CpuMeter;
use tandem_device::{Backend, Placement};
use tandem_flow::{Context, Place, Summary};
use tandem_observe::{
    Knobs, MemoryUse, Notice, Notices, Pressure, Progress, QueueFill, Snapshot, headroom, recent_profile, timeline,
    verdict,
};

use crate::memory;
use crate::run::{Log, RunDir};
use crate::settings::TrainConfig;
use tandem_data::files::write_atomically;

/// Spans that a snapshot goes back: a hundred steps, and what their batches took before.
pub(crate) const SPANS: usize = 2048;
/// Steps that `lanes.json` shows.
const LANES: usize = 12;
/// Seconds between two snapshots that are written, at least.
const EVERY: f64 = 2.0;
/// Of a run of any length about so many, and a few more for each doubling, are written.
const WRITTEN: f64 = 500.0;

/// Watches a run.
pub(crate) struct Monitor {
    started: Instant,
    notices: Notices,
    cpu: CpuMeter,
    lanes_path: Option<PathBuf>,
    log: Option<Log>,
    written: Option<f64>,
    /// The last snapshot.
    pub(crate) last: Option<Snapshot>,
    pub(crate) validation: Option<f64>,
}

/// What a snapshot needs to know besides the records of the pipeline.
pub(crate) struct Surroundings<'a> {
    /// Memory of the host that batches take, as a share of what they may.
    pub(crate) memory_share: f64,
    pub(crate) workers: usize,
    pub(crate) buffer_size: usize,
    pub(crate) settings: &'a TrainConfig,
    pub(crate) placement: &'a Placement,
    pub(crate) lanes: &'a [LaneMemory],
    pub(crate) audio_seconds: f64,
    pub(crate) clips: u64,
    pub(crate) seconds_before: f64,
    /// Steps done since this start.
    pub(crate) done: u64,
}

impl Monitor {
    /// Writes to the folder of a run, if there is one.
    pub(crate) fn new(run: Option<&RunDir>, first_step: u64) -> Monitor {
        Monitor {
            started: Instant::now(),
            notices: Notices::default(),
            cpu: CpuMeter::new(),
            lanes_path: run.map(RunDir::lanes_path),
            // A run does not end because its snapshots cannot be written.
            log: run.and_then(|run| Log::open(&run.monitor_path(), first_step).ok()),
            written: None,
            last: None,
            validation: None,
        }
    }

    /// Takes a snapshot, and says what is worth reporting. Nothing before there are enough steps.
    pub(crate) fn snapshot(
        &mut self,
        context: &Context,
        progress: &Progress,
        around: &Surroundings<'_>,
    ) -> Vec<Notice> {
        let spans = context.trace.recent();
        let Some((profile, recent_ms)) = recent_profile(&spans, around.done as usize) else { return Vec::new() };
        let queues = context.queues();
        let pressure = Pressure::new(&queues, around.memory_share);
        // As tuning has them now.
        let (workers, buffer) = (around.workers, around.buffer_size);
        let knobs = Knobs { workers, buffer, ..around.settings.knobs(around.placement) };
        let verdict = verdict(&profile, &knobs, &pressure);
        let headroom = headroom(profile.starved);
        let notices = self.notices.update(progress.step, &profile, &verdict, headroom);
        let seconds = self.started.elapsed().as_secs_f64();
        let rounded = |ms: &f64| (100.0 * ms).round() / 100.0;
        let placement = around.placement;
        self.last = Some(Snapshot {
            progress: progress.clone(),
            seconds,
            validation: self.validation,
            total_clips: around.clips,
            total_audio_s: around.audio_seconds,
            total_s: around.seconds_before + seconds,
            step_ms: Summary::of(&recent_ms),
            recent_ms: recent_ms.iter().map(rounded).collect(),
            profile,
            verdict,
            headroom,
            queues: (queues.iter())
                .map(|queue| QueueFill { name: queue.name.clone(), items: queue.items, capacity: queue.capacity })
                .collect(),
            memory: memory_use(around.lanes),
            cpu_percent: self.cpu.read().process.value().copied(),
            data_device: placement.data.label(),
            model_device: placement.model.label(),
            simulated: placement.model.backend == Backend::Simulated,
        });
        let due = self.written.is_none_or(|written| seconds - written >= EVERY.max(seconds / WRITTEN));
        if due {
            self.write(context);
        }
        notices
    }

    /// Writes the last snapshot.
    pub(crate) fn write(&mut self, context: &Context) {
        let (Some(log), Some(last), Some(path)) = (&mut self.log, &self.last, &self.lanes_path) else { return };
        if self.written == Some(last.seconds) {
            return;
        }
        self.written = Some(last.seconds);
        let lanes = timeline(&context.trace.recent(), LANES);
        // What cannot be written here, the log of the losses will complain about.
        let _ = log.add(&[json!(last)]);
        let _ = write_atomically(path, json!(lanes).to_string().as_bytes());
    }
}

fn memory_use(lanes: &[LaneMemory]) -> Vec<MemoryUse> {
    let host = memory::resident_bytes().map(|used_bytes| MemoryUse {
        name: Place::Host.to_string(),
        device: "CPU".to_owned(),
        used_bytes,
        limit_bytes: memory::total_bytes(),
    });
    let of_lane = |lane: &LaneMemory| MemoryUse {
        name: lane.lane.place().to_string(),
        device: lane.device.clone(),
        used_bytes: lane.used_bytes(),
        limit_bytes: lane.total_bytes(),
    };
    host.into_iter().chain(lanes.iter().map(of_lane)).collect()
}
