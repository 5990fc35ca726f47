//! Asking a run to end.

use std::fmt;
use std::sync::Arc;

use crate::sync::{Mutex, lock};
use crate::wait::{WaitSet, Waker};

/// A request to end, shared by everything in a run. Once made it stays; the first reason counts.
#[derive(Clone, Default)]
pub struct Stop(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    reason: Option<Arc<str>>,
    waiters: WaitSet,
}

impl Stop {
    /// Nothing requested yet.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Asks the run to end and wakes whoever waits for a batch.
    pub fn request(&self, reason: &str) {
        let mut state = lock(&self.0);
        state.reason.get_or_insert_with(|| reason.into());
        state.waiters.wake_all();
    }

    /// Why the run is to end, if it is.
    pub fn reason(&self) -> Option<Arc<str>> {
        lock(&self.0).reason.clone()
    }

    /// Waits until the run is asked to end. Returns why.
    pub fn wait(&self, clock: &crate::Clock) -> Arc<str> {
        let waker = clock.waker();
        loop {
            match self.watch(&waker) {
                Some(reason) => return reason,
                None => clock.park(None),
            }
        }
    }

    pub(crate) fn watch(&self, waker: &Waker) -> Option<Arc<str>> {
        let mut state = lock(&self.0);
        if state.reason.is_none() {
            state.waiters.register(waker);
        }
        state.reason.clone()
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stop({:?})", self.reason())
    }
}
