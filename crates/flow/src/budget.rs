//! Memory is admitted before work starts.
//!
//! Invariant: the sum of all leases never exceeds the limit, except that with [`Oversize::Alone`] one single lease
//! may, when nothing else is leased: a batch larger than the budget passes alone instead of waiting forever.
//! Use one place of admission for a budget: between several, none is promised a turn.

use std::fmt;
use std::sync::Arc;
use std::task::Poll;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::sync::{Mutex, lock};
use crate::wait::{WaitSet, Waker};

/// What happens to a request that is larger than the whole budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Oversize {
    /// It passes when nothing else is leased (host memory: better slow than never).
    Alone,
    /// It is an error (a device's hard limit).
    Refuse,
}

/// A request that a hard limit refuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverLimit {
    /// The name of the budget.
    pub budget: String,
    /// Its limit.
    pub limit_bytes: usize,
    /// What was leased at that moment.
    pub used_bytes: usize,
    /// What was requested.
    #[serde(rename = "asked_bytes")]
    pub requested_bytes: usize,
}

impl fmt::Display for OverLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "memory limit of `{}` exceeded: limit {} bytes, used {}, asked {}",
            self.budget, self.limit_bytes, self.used_bytes, self.requested_bytes
        )
    }
}

impl std::error::Error for OverLimit {}

/// An amount of memory from which batches lease. Clones share it.
#[derive(Clone)]
pub struct Budget(Arc<Inner>);

struct Inner {
    name: Box<str>,
    oversize: Oversize,
    state: Mutex<State>,
}

struct State {
    limit: usize,
    used: usize,
    high_water: usize,
    waiters: WaitSet,
}

impl Budget {
    /// A budget of `limit_bytes`.
    pub fn new(name: impl AsRef<str>, limit_bytes: usize, oversize: Oversize) -> Budget {
        let state = Mutex::new(State { limit: limit_bytes, used: 0, high_water: 0, waiters: WaitSet::default() });
        Budget(Arc::new(Inner { name: name.as_ref().into(), oversize, state }))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The limit now.
    pub fn limit_bytes(&self) -> usize {
        lock(&self.0.state).limit
    }

    /// What is leased now.
    pub fn used_bytes(&self) -> usize {
        lock(&self.0.state).used
    }

    /// The most that was ever leased at once.
    pub fn high_water_bytes(&self) -> usize {
        lock(&self.0.state).high_water
    }

    /// Changes the limit. Lowering it takes nothing away: no new lease is given until enough came back.
    pub fn set_limit(&self, limit_bytes: usize) {
        let mut state = lock(&self.0.state);
        state.limit = limit_bytes;
        state.waiters.wake_all();
    }

    /// Leases at once or not at all.
    ///
    /// # Errors
    ///
    /// [`OverLimit`] if so much is not free now.
    pub fn try_lease(&self, bytes: usize) -> Result<Lease, OverLimit> {
        let mut state = lock(&self.0.state);
        if self.fits(&state, bytes) { Ok(self.grant(&mut state, bytes)) } else { Err(self.over(&state, bytes)) }
    }

    /// Leases, waiting for memory to come back.
    ///
    /// # Errors
    ///
    /// [`OverLimit`] if more is asked for than the whole budget and it has [`Oversize::Refuse`].
    pub fn lease(&self, clock: &Clock, bytes: usize) -> Result<Lease, OverLimit> {
        let waker = clock.waker();
        loop {
            match self.poll_lease(bytes, &waker) {
                Poll::Ready(result) => return result,
                Poll::Pending => clock.park(None),
            }
        }
    }

    pub(crate) fn poll_lease(&self, bytes: usize, waker: &Waker) -> Poll<Result<Lease, OverLimit>> {
        let mut state = lock(&self.0.state);
        if self.fits(&state, bytes) {
            Poll::Ready(Ok(self.grant(&mut state, bytes)))
        } else if bytes > state.limit && self.0.oversize == Oversize::Refuse {
            Poll::Ready(Err(self.over(&state, bytes)))
        } else {
            state.waiters.register(waker);
            Poll::Pending
        }
    }

    fn fits(&self, state: &State, bytes: usize) -> bool {
        state.used.saturating_add(bytes) <= state.limit || (state.used == 0 && self.0.oversize == Oversize::Alone)
    }

    fn grant(&self, state: &mut State, bytes: usize) -> Lease {
        state.used += bytes;
        state.high_water = state.high_water.max(state.used);
        Lease { budget: self.clone(), bytes }
    }

    fn over(&self, state: &State, bytes: usize) -> OverLimit {
        OverLimit {
            budget: self.name().to_owned(),
            limit_bytes: state.limit,
            used_bytes: state.used,
            requested_bytes: bytes,
        }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.0.state);
        write!(f, "Budget({}: {} of {} bytes)", self.0.name, state.used, state.limit)
    }
}

/// Memory that one batch may use. Dropping it gives the memory back.
#[derive(Debug)]
#[must_use = "dropping it gives the memory back"]
pub struct Lease {
    budget: Budget,
    bytes: usize,
}

impl Lease {
    /// How much.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_from(&self, budget: &Budget) -> bool {
        Arc::ptr_eq(&self.budget.0, &budget.0)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = lock(&self.budget.0.state);
        state.used -= self.bytes;
        state.waiters.wake_all();
    }
}
