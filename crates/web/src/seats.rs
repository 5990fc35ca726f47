//! Who is connected, and what each of them does: one that waits can make room for another, one that is answered cannot.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Waits for a request, since then.
    Waiting(Instant),
    /// Makes an answer.
    Answering,
    /// The answer is made, but not all of it has left yet.
    Sending,
    /// Has given its place to another one, and ends.
    Ending,
}

/// A connection, as the others see it.
#[derive(Debug)]
pub(crate) struct Seat {
    doing: Mutex<Doing>,
    close: Notify,
}

impl Seat {
    fn new() -> Seat {
        Seat { doing: Mutex::new(Doing::Waiting(Instant::now())), close: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Doing> {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request has come; whether it can be answered.
    pub(crate) fn begin(&self) -> bool {
        let mut doing = self.lock();
        let fine = *doing != Doing::Ending;
        if fine {
            *doing = Doing::Answering;
        }
        fine
    }

    /// The answer is made.
    pub(crate) fn made(&self) {
        let mut doing = self.lock();
        if *doing == Doing::Answering {
            *doing = Doing::Sending;
        }
    }

    /// Everything that was written has left.
    pub(crate) fn sent(&self) {
        let mut doing = self.lock();
        if *doing == Doing::Sending {
            *doing = Doing::Waiting(Instant::now());
        }
    }

    fn waiting_since(&self) -> Option<Instant> {
        match *self.lock() {
            Doing::Waiting(since) => Some(since),
            _ => None,
        }
    }

    /// Ends it if it waits.
    fn evict(&self) -> bool {
        let mut doing = self.lock();
        let waits = matches!(*doing, Doing::Waiting(_));
        if waits {
            *doing = Doing::Ending;
            self.close.notify_one();
        }
        waits
    }

    /// Its place is needed.
    pub(crate) async fn evicted(&self) {
        self.close.notified().await;
    }
}

/// All open connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    seats: Mutex<BTreeMap<u64, Arc<Seat>>>,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Seat>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// A place for a connection, if need be that of the one that is idle longest.
    pub(crate) fn take(&self, number: u64, most: usize) -> Option<Arc<Seat>> {
        let mut seats = self.lock();
        if seats.len() >= most {
            let oldest = seats.iter().filter_map(|(number, seat)| Some((seat.waiting_since()?, *number))).min()?.1;
            // A request may have come meanwhile; then there is no room this time.
            if !seats.get(&oldest)?.evict() {
                return None;
            }
            seats.remove(&oldest);
        }
        let seat = Arc::new(Seat::new());
        seats.insert(number, seat.clone());
        Some(seat)
    }

    pub(crate) fn release(&self, number: u64) {
        self.lock().remove(&number);
    }

    /// Ends all that wait.
    pub(crate) fn evict_idle(&self) {
        for seat in self.lock().values() {
            seat.evict();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_is_idle_longest_makes_room() {
        let connections = Connections::default();
        let seats: Vec<Arc<Seat>> = (1..=3).map(|number| connections.take(number, 3).expect("room")).collect();
        assert!(seats[0].begin());
        connections.take(4, 3).expect("the second made room");
        assert_eq!(connections.lock().keys().copied().collect::<Vec<_>>(), [1, 3, 4]);
        assert!(!seats[1].begin(), "a request that comes too late is told so");
        for seat in connections.lock().values() {
            seat.begin();
        }
        assert!(connections.take(5, 3).is_none(), "all are busy");
        connections.release(3);
        assert!(connections.take(5, 3).is_some());
    }

    #[test]
    fn an_answer_is_over_when_all_of_it_has_left() {
        let seat = Seat::new();
        assert!(seat.begin());
        seat.sent();
        assert!(!seat.evict(), "a flush in the middle of an answer is not its end");
        seat.made();
        assert!(!seat.evict(), "it is made, not sent");
        seat.sent();
        assert!(seat.evict());
    }
}
