//! What flows, and where in the data it is.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::budget::{Budget, Lease};

/// A position in the data: batch `batch` of epoch `epoch`, both counted from zero. It is all that resuming needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cursor {
    /// Which pass over the data.
    pub epoch: u64,
    /// Which batch of that pass.
    pub batch: u64,
}

impl Cursor {
    /// The very first batch.
    pub const START: Cursor = Cursor { epoch: 0, batch: 0 };

    /// The position after this one within the same epoch: where to resume once this batch is done.
    #[must_use]
    pub fn next(self) -> Cursor {
        Cursor { epoch: self.epoch, batch: self.batch + 1 }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {} batch {}", self.epoch, self.batch)
    }
}

/// One batch on its way, with its position and the memory leased for it. Dropping it gives the memory back.
#[derive(Debug)]
pub struct Envelope<T> {
    /// The batch itself.
    pub value: T,
    /// Where in the data it is.
    pub cursor: Cursor,
    /// Its size, for queues that are bounded in bytes; zero when no stage has said it.
    pub bytes: usize,
    pub(crate) leases: Vec<Lease>,
}

impl<T> Envelope<T> {
    pub(crate) fn new(value: T, cursor: Cursor) -> Self {
        Envelope { value, cursor, bytes: 0, leases: Vec::new() }
    }

    /// The same envelope around another value.
    #[must_use]
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Envelope<U> {
        Envelope { value: change(self.value), cursor: self.cursor, bytes: self.bytes, leases: self.leases }
    }

    /// Splits the value off; the rest keeps the leases.
    pub(crate) fn split(self) -> (T, Envelope<()>) {
        (self.value, Envelope { value: (), cursor: self.cursor, bytes: self.bytes, leases: self.leases })
    }

    /// Gives back what was leased from `budget`; nothing if nothing was.
    pub fn release(&mut self, budget: &Budget) {
        self.leases.retain(|lease| !lease.is_from(budget));
    }
}
