//! A queue between two threads: bounded in items and in bytes, resizable while it runs, closable.
//!
//! Invariant: it never holds more items than its capacity, nor more bytes than its limit, except that an item
//! larger than the byte limit passes when the queue is empty. After [`Queue::close`] nothing goes in, what is
//! inside can still be taken out, and every waiter is woken.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::Poll;

use crate::clock::Clock;
use crate::context::Context;
use crate::knob::Knob;
use crate::stats::{QueueMeter, QueueStats};
use crate::sync::{Mutex, lock};
use crate::trace::{Trace, TraceEvent};
use crate::wait::{WaitSet, Waker};

/// How much a queue may hold.
#[derive(Clone, Debug)]
pub struct QueueLimits {
    /// Batches; may change while it runs. Zero counts as one.
    pub items: Knob,
    /// Bytes. A batch that is larger passes alone.
    pub bytes: usize,
}

impl From<&Knob> for QueueLimits {
    /// Bounded in items only.
    fn from(items: &Knob) -> Self {
        QueueLimits { items: items.clone(), bytes: usize::MAX }
    }
}

/// The queue was closed; the item that did not go in comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed<T>(pub T);

impl<T> fmt::Display for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the queue is closed")
    }
}

impl<T: fmt::Debug> std::error::Error for Closed<T> {}

/// A bounded queue. Clones share it.
pub struct Queue<T>(Arc<Inner<T>>);

struct Inner<T> {
    clock: Clock,
    trace: Trace,
    limits: QueueLimits,
    meter: Arc<QueueMeter>,
    state: Mutex<State<T>>,
}

struct State<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    closed: bool,
    pushers: WaitSet,
    poppers: WaitSet,
}

impl<T> Queue<T> {
    /// An empty queue whose record appears in `context`.
    pub fn new(context: &Context, name: &str, limits: impl Into<QueueLimits>) -> Queue<T> {
        let limits = limits.into();
        Queue(Arc::new(Inner {
            clock: context.clock.clone(),
            trace: context.trace.clone(),
            meter: context.add_queue(name, limits.items.get().max(1)),
            limits,
            state: Mutex::new(State {
                items: VecDeque::new(),
                bytes: 0,
                closed: false,
                pushers: WaitSet::default(),
                poppers: WaitSet::default(),
            }),
        }))
    }

    /// Puts an item in, waiting for room.
    ///
    /// # Errors
    ///
    /// [`Closed`] with the item if the queue is closed, before or while waiting.
    pub fn push(&self, item: T, bytes: usize) -> Result<(), Closed<T>> {
        let waker = self.0.clock.waker();
        let mut item = Some(item);
        loop {
            match self.poll_push(&mut item, bytes, &waker) {
                Poll::Ready(Ok(())) => return Ok(()),
                Poll::Ready(Err(_)) => return Err(Closed(item.expect("a refused item stays"))),
                Poll::Pending => self.0.clock.park(None),
            }
        }
    }

    /// Takes the oldest item out, waiting for one; `None` when the queue is closed and empty.
    pub fn pop(&self) -> Option<T> {
        let waker = self.0.clock.waker();
        loop {
            match self.poll_pop(&waker) {
                Poll::Ready(item) => return item,
                Poll::Pending => self.0.clock.park(None),
            }
        }
    }

    /// Lets nothing more in and wakes everybody.
    pub fn close(&self) {
        let mut state = lock(&self.0.state);
        state.closed = true;
        self.0.meter.closed();
        state.pushers.wake_all();
        state.poppers.wake_all();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        lock(&self.0.state).closed
    }

    /// How many items are in it.
    pub fn len(&self) -> usize {
        lock(&self.0.state).items.len()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How it was used so far.
    pub fn stats(&self) -> QueueStats {
        self.0.meter.stats(self.0.clock.now())
    }

    /// Takes the item out of `item` if there is room.
    pub(crate) fn poll_push(&self, item: &mut Option<T>, bytes: usize, waker: &Waker) -> Poll<Result<(), ()>> {
        let inner = &*self.0;
        // Watch the capacity before looking at the fill: a change in between leaves a wake-up.
        let capacity = inner.limits.items.watch(waker).max(1);
        let mut state = lock(&inner.state);
        if state.closed {
            return Poll::Ready(Err(()));
        }
        let fits = state.bytes.saturating_add(bytes) <= inner.limits.bytes || state.items.is_empty();
        if state.items.len() >= capacity || !fits {
            state.pushers.register(waker);
            inner.meter.push_blocked(inner.clock.now());
            return Poll::Pending;
        }
        if let Some(item) = item.take() {
            state.items.push_back((item, bytes));
            state.bytes += bytes;
            let now = inner.clock.now();
            inner.meter.pushed(now, state.items.len(), state.bytes, capacity);
            self.record_fill(&state, now);
            state.poppers.wake_all();
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_pop(&self, waker: &Waker) -> Poll<Option<T>> {
        let inner = &*self.0;
        let capacity = inner.limits.items.get().max(1);
        let mut state = lock(&inner.state);
        match state.items.pop_front() {
            Some((item, bytes)) => {
                state.bytes -= bytes;
                let now = inner.clock.now();
                inner.meter.popped(now, state.items.len(), state.bytes, capacity);
                self.record_fill(&state, now);
                state.pushers.wake_all();
                Poll::Ready(Some(item))
            }
            None if state.closed => Poll::Ready(None),
            None => {
                inner.meter.pop_blocked(inner.clock.now());
                state.poppers.register(waker);
                Poll::Pending
            }
        }
    }

    fn record_fill(&self, state: &State<T>, at: std::time::Duration) {
        let (items, bytes) = (state.items.len(), state.bytes);
        self.0.trace.event(|| TraceEvent::Fill { queue: self.0.meter.name.clone(), at, items, bytes });
    }
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Queue(self.0.clone())
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({}: {} of {})", self.0.meter.name, self.len(), self.0.limits.items.get())
    }
}
