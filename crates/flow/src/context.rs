//! What all parts of one run share: clock, stop, trace, and the meters of its stages and queues.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::stats::{Meter, QueueMeter, QueueStats, StageStats};
use crate::stop::Stop;
use crate::sync::{Mutex, lock};
use crate::trace::Trace;

/// The surroundings of a run, passed to [`Flow::source`](crate::Flow::source). Clones share everything.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// Time and threads.
    pub clock: Clock,
    /// How the run is asked to end.
    pub stop: Stop,
    /// Where spans go.
    pub trace: Trace,
    /// A consumer that waits longer than this gets [`ErrorKind::Stalled`](crate::ErrorKind::Stalled).
    pub stall_timeout: Option<Duration>,
    records: Arc<Records>,
}

#[derive(Debug, Default)]
struct Records {
    stages: Mutex<Vec<Arc<Meter>>>,
    queues: Mutex<Vec<Arc<QueueMeter>>>,
    /// Threads left behind because their stage never came back.
    abandoned: Mutex<Vec<String>>,
    /// When a stall was reported: from then on no thread is waited for without end.
    stalled_at: Mutex<Option<Duration>>,
}

impl Context {
    /// On this clock, with nothing recorded yet.
    pub fn new(clock: Clock) -> Context {
        Context { clock, ..Context::default() }
    }

    /// Records spans into `trace`.
    #[must_use]
    pub fn with_trace(mut self, trace: Trace) -> Context {
        self.trace = trace;
        self
    }

    /// Reports a stall after `timeout` without a batch.
    #[must_use]
    pub fn with_stall_timeout(mut self, timeout: Duration) -> Context {
        self.stall_timeout = Some(timeout);
        self
    }

    /// The records of all stages, from source to sink.
    pub fn stages(&self) -> Vec<StageStats> {
        lock(&self.records.stages).iter().map(|meter| meter.stats()).collect()
    }

    /// The record of one stage; `None` if no flow on this context has one of that name.
    pub fn stage(&self, name: impl AsRef<str>) -> Option<StageStats> {
        let name = name.as_ref();
        lock(&self.records.stages).iter().find(|meter| &*meter.name == name).map(|meter| meter.stats())
    }

    /// The seconds that the last batches (at most a hundred) took in one stage, oldest first; empty without such a stage.
    pub fn recent(&self, name: impl AsRef<str>) -> Vec<f64> {
        let name = name.as_ref();
        lock(&self.records.stages).iter().find(|meter| &*meter.name == name).map_or(Vec::new(), |meter| meter.recent())
    }

    /// The records of all queues, from source to sink.
    pub fn queues(&self) -> Vec<QueueStats> {
        lock(&self.records.queues).iter().map(|meter| meter.stats(self.clock.now())).collect()
    }

    /// Threads that were left behind after a stall because their stage never returned.
    pub fn abandoned(&self) -> Vec<String> {
        lock(&self.records.abandoned).clone()
    }

    /// Records a piece of work that is part of another stage's, such as waiting for others in the middle of it.
    pub fn record(&self, name: impl AsRef<str>, cursor: crate::Cursor, start: Duration, end: Duration) {
        let known = lock(&self.records.stages).iter().find(|meter| &*meter.name == name.as_ref()).cloned();
        known.unwrap_or_else(|| self.add_stage(name.as_ref())).record(cursor, start, end);
    }

    pub(crate) fn add_stage(&self, name: &str) -> Arc<Meter> {
        let meter = Arc::new(Meter::new(name, self.clock.clone(), self.trace.clone()));
        // A later flow on the same context takes the place of an earlier one's record of that name.
        let mut stages = lock(&self.records.stages);
        stages.retain(|known| known.name != meter.name);
        stages.push(meter.clone());
        meter
    }

    pub(crate) fn add_queue(&self, name: &str, capacity: usize) -> Arc<QueueMeter> {
        let meter = Arc::new(QueueMeter::new(name, self.clock.now(), capacity));
        let mut queues = lock(&self.records.queues);
        queues.retain(|known| known.name != meter.name);
        queues.push(meter.clone());
        meter
    }

    /// The stage that has been at work longest, with the batch it works on.
    pub(crate) fn oldest_work(&self) -> Option<(Arc<str>, crate::Cursor)> {
        (lock(&self.records.stages).iter())
            .filter_map(|meter| meter.oldest_work().map(|(since, cursor)| (since, meter.name.clone(), cursor)))
            .min_by_key(|(since, ..)| *since)
            .map(|(_, name, cursor)| (name, cursor))
    }

    /// Ends the run because nothing arrived for `waited`; the stage that has been at work longest is to blame. For a
    /// consumer that waits outside of [`Flow`](crate::Flow)'s iterator.
    pub fn stalled(&self, waited: Duration) -> Error {
        lock(&self.records.stalled_at).get_or_insert(self.clock.now());
        let (stage, cursor) = self.oldest_work().unzip();
        let stage = stage.unwrap_or_else(|| "flow".into());
        self.stop.request(&format!("{stage} stalled"));
        Error::new(&stage, cursor, ErrorKind::Stalled(waited))
    }

    /// How many queues lie before the part that is being added: how far its threads are from the source.
    pub(crate) fn level(&self) -> u32 {
        lock(&self.records.queues).len() as u32
    }

    /// Joins a thread. A stage that hangs never returns, so with a stall timeout the wait ends: that long after an
    /// ordinary end, shortly after a reported stall. Threads nearer to the sink, which wait for those before them,
    /// are given a little longer, so that the one that hangs is the one that is named.
    pub(crate) fn join(&self, thread: crate::Thread, level: u32) {
        const GRACE: Duration = Duration::from_secs(2);
        const SLACK: Duration = Duration::from_millis(250);
        let patience = match (*lock(&self.records.stalled_at), self.stall_timeout) {
            (Some(stalled_at), _) => Some((stalled_at + GRACE).saturating_sub(self.clock.now())),
            (None, timeout) => timeout,
        };
        let name = thread.name().to_owned();
        if !thread.join(patience.map(|patience| patience + SLACK * level)) {
            lock(&self.records.abandoned).push(name);
        }
    }
}
