//! How a thread waits: it registers its [`Waker`] wherever something may happen, then parks.
//!
//! Invariant: a waker is registered under the lock of the state it waits for, so a change between the check
//! and the park leaves a permit and the park returns at once. A wake-up may be spurious; whoever parks checks again.

use crate::sync::thread;
use crate::virtual_time::Seat;

/// Wakes one thread.
#[derive(Clone, Debug)]
pub(crate) enum Waker {
    Real(thread::Thread),
    Virtual(Seat),
}

impl Waker {
    pub(crate) fn wake(&self) {
        match self {
            Waker::Real(thread) => thread.unpark(),
            Waker::Virtual(seat) => seat.unpark(),
        }
    }

    fn is_same(&self, other: &Waker) -> bool {
        match (self, other) {
            (Waker::Real(a), Waker::Real(b)) => a.id() == b.id(),
            (Waker::Virtual(a), Waker::Virtual(b)) => a.is_same(b),
            _ => false,
        }
    }
}

/// The threads that wait for one thing. Lives inside the mutex that guards the thing.
#[derive(Default, Debug)]
pub(crate) struct WaitSet(Vec<Waker>);

impl WaitSet {
    pub(crate) fn register(&mut self, waker: &Waker) {
        if !self.0.iter().any(|known| known.is_same(waker)) {
            self.0.push(waker.clone());
        }
    }

    pub(crate) fn forget(&mut self, waker: &Waker) {
        self.0.retain(|known| !known.is_same(waker));
    }

    pub(crate) fn wake_all(&mut self) {
        for waker in self.0.drain(..) {
            waker.wake();
        }
    }

    /// Only for waiters that wait for nothing else: a waiter that walks away would take the wake-up with it.
    pub(crate) fn wake_one(&mut self) {
        if !self.0.is_empty() {
            self.0.remove(0).wake();
        }
    }
}
