//! A number that may change while the flow runs: workers, depths.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::sync::{Mutex, lock};
use crate::wait::{WaitSet, Waker};

/// A named number within a range. Clones share the value; whoever waits because of it is woken when it changes.
#[derive(Clone)]
pub struct Knob(Arc<Inner>);

struct Inner {
    name: Box<str>,
    range: RangeInclusive<usize>,
    state: Mutex<State>,
}

struct State {
    value: usize,
    watchers: WaitSet,
}

impl Knob {
    /// A knob at `value`, which is brought into `range`.
    ///
    /// # Panics
    ///
    /// If `range` is empty.
    pub fn new(name: &str, value: usize, range: RangeInclusive<usize>) -> Knob {
        assert!(!range.is_empty(), "the range {range:?} of the knob `{name}` is empty");
        let value = value.clamp(*range.start(), *range.end());
        let state = Mutex::new(State { value, watchers: WaitSet::default() });
        Knob(Arc::new(Inner { name: name.into(), range, state }))
    }

    /// A knob that cannot be turned.
    pub fn fixed(name: &str, value: usize) -> Knob {
        Knob::new(name, value, value..=value)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The values it can take.
    pub fn range(&self) -> RangeInclusive<usize> {
        self.0.range.clone()
    }

    /// The present value.
    pub fn get(&self) -> usize {
        lock(&self.0.state).value
    }

    /// Sets the value, brought into the range, and wakes whoever waits because of it. Returns what was set.
    pub fn set(&self, value: usize) -> usize {
        let mut state = lock(&self.0.state);
        state.value = value.clamp(*self.0.range.start(), *self.0.range.end());
        state.watchers.wake_all();
        state.value
    }

    /// Wakes that thread no more.
    pub(crate) fn forget(&self, waker: &Waker) {
        lock(&self.0.state).watchers.forget(waker);
    }

    /// The present value, and a wake-up when it changes.
    pub(crate) fn watch(&self, waker: &Waker) -> usize {
        let mut state = lock(&self.0.state);
        state.watchers.register(waker);
        state.value
    }
}

impl fmt::Debug for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Knob({}={} of {:?})", self.name(), self.get(), self.0.range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_brought_into_the_range() {
        let knob = Knob::new("depth", 9, 1..=4);
        assert_eq!((knob.get(), knob.set(0), knob.set(3), knob.get()), (4, 1, 3, 3));
    }

    #[test]
    #[should_panic = "the range 4..=1 of the knob `depth` is empty"]
    #[allow(clippy::reversed_empty_ranges)] // that is the mistake
    fn an_empty_range_is_named() {
        Knob::new("depth", 2, 4..=1);
    }
}
