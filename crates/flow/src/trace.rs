//! Spans: which thread worked on which batch, in which stage, from when to when.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::envelope::Cursor;
use crate::stage::Stage;
use crate::sync::{Mutex, lock};

/// One piece of work, measured by the stage that did it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The stage.
    pub stage: Arc<str>,
    /// The thread that worked.
    pub thread: Arc<str>,
    /// The batch.
    pub cursor: Cursor,
    /// Its bytes, as far as stages said them: how much work it is.
    pub bytes: usize,
    /// When it began, on the run's clock.
    pub start: Duration,
    /// When it ended.
    pub end: Duration,
    /// How long the stage had waited for the batch; zero in a pool, whose workers wait for each other's.
    pub waited: Duration,
    /// CPU time of the whole program meanwhile, where the trace measures it.
    pub cpu: Option<Duration>,
}

impl Span {
    /// Whether it is work of this stage.
    pub fn is(&self, stage: Stage) -> bool {
        *self.stage == stage
    }
}

/// Something else worth seeing on the time line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// How full a queue was after a change.
    Fill {
        /// The queue.
        queue: Arc<str>,
        /// When.
        at: Duration,
        /// Batches in it.
        items: usize,
        /// Bytes in it.
        bytes: usize,
    },
    /// A decision or a message.
    Note {
        /// When.
        at: Duration,
        /// What.
        text: String,
    },
}

/// Collects spans and events, up to a limit: a forgotten trace must not eat the memory of a week's run.
/// Clones share it; a disabled one costs nothing.
#[derive(Clone, Debug, Default)]
pub struct Trace(Option<Arc<Buffer>>);

#[derive(Debug)]
struct Buffer {
    limit: usize,
    window: AtomicUsize,
    cpu: Option<fn() -> Duration>,
    records: Mutex<Records>,
}

#[derive(Debug, Default)]
struct Records {
    spans: Vec<Span>,
    /// The last ones, whatever the limit.
    recent: VecDeque<Span>,
    events: Vec<TraceEvent>,
    dropped: u64,
}

impl Trace {
    /// Records nothing.
    pub fn off() -> Trace {
        Trace(None)
    }

    /// Records at most `limit` spans and as many events; what comes after is only counted.
    pub fn with_limit(limit: usize) -> Trace {
        Trace::new(limit, 0, None)
    }

    /// The same, and every span also says what this clock of CPU time did meanwhile.
    pub fn with_cpu_time(limit: usize, clock: fn() -> Duration) -> Trace {
        Trace::new(limit, 0, Some(clock))
    }

    /// Keeps the last `window` spans too, however long the run is: for snapshots while it runs.
    pub fn keep_recent(&mut self, window: usize) {
        match &self.0 {
            Some(buffer) => buffer.window.store(window, Relaxed),
            None => *self = Trace::new(0, window, None),
        }
    }

    fn new(limit: usize, window: usize, cpu: Option<fn() -> Duration>) -> Trace {
        Trace(Some(Arc::new(Buffer { limit, window: window.into(), cpu, records: Mutex::default() })))
    }

    /// All spans so far, in the order in which they ended.
    pub fn spans(&self) -> Vec<Span> {
        self.0.as_ref().map(|buffer| lock(&buffer.records).spans.clone()).unwrap_or_default()
    }

    /// The last spans, as many as the window has, in the order in which they ended.
    pub fn recent(&self) -> Vec<Span> {
        self.0.as_ref().map(|buffer| lock(&buffer.records).recent.iter().cloned().collect()).unwrap_or_default()
    }

    /// All events so far.
    pub fn events(&self) -> Vec<TraceEvent> {
        self.0.as_ref().map(|buffer| lock(&buffer.records).events.clone()).unwrap_or_default()
    }

    /// How many records were dropped because of the limit.
    pub fn dropped(&self) -> u64 {
        self.0.as_ref().map_or(0, |buffer| lock(&buffer.records).dropped)
    }

    /// Puts a message on the time line.
    pub fn note(&self, at: Duration, text: String) {
        // Few and telling: the limit, which is there for spans and fills, does not apply.
        if let Some(buffer) = &self.0 {
            lock(&buffer.records).events.push(TraceEvent::Note { at, text });
        }
    }

    pub(crate) fn span(&self, span: impl FnOnce() -> Span) {
        if let Some(buffer) = &self.0 {
            let span = span();
            let mut records = lock(&buffer.records);
            let window = buffer.window.load(Relaxed);
            if window > 0 {
                if records.recent.len() >= window {
                    records.recent.pop_front();
                }
                records.recent.push_back(span.clone());
            }
            if records.spans.len() < buffer.limit { records.spans.push(span) } else { records.dropped += 1 }
        }
    }

    /// The clock of CPU time, now.
    pub(crate) fn cpu_time(&self) -> Option<Duration> {
        self.0.as_ref().and_then(|buffer| buffer.cpu).map(|clock| clock())
    }

    pub(crate) fn event(&self, event: impl FnOnce() -> TraceEvent) {
        if let Some(buffer) = &self.0 {
            let mut records = lock(&buffer.records);
            if records.events.len() < buffer.limit { records.events.push(event()) } else { records.dropped += 1 }
        }
    }
}
