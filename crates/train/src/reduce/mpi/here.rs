//! Where the training thread of this rank is. Another thread sends signs of life: without this, a rank whose driver never returns would
//! be alive for the others until the end of time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::reduce::Activity;

/// However short the timeout is: a stretch this many times as long as the longest one so far is no slow step.
const TIMES_THE_LONGEST: u32 = 10;

/// Where this rank is, as its training thread says.
#[derive(Debug)]
pub(super) struct Here(Mutex<State>);

#[derive(Clone, Copy, Debug)]
struct State {
    activity: Activity,
    step: u64,
    /// When it last said something.
    moved: Instant,
    /// It waits for other ranks.
    waits: bool,
    /// The longest stretch without a word that came to an end.
    longest: Duration,
    timeout: Option<Duration>,
}

impl Default for Here {
    fn default() -> Here {
        Here(Mutex::new(State {
            activity: Activity::Start,
            step: 0,
            moved: Instant::now(),
            waits: false,
            longest: Duration::ZERO,
            timeout: None,
        }))
    }
}

impl Here {
    fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn note(&self, activity: Activity, step: u64) {
        self.with(|state| {
            state.moved(Instant::now());
            (state.activity, state.step) = (activity, step);
        });
    }

    pub(super) fn waits(&self, waits: bool) {
        self.with(|state| {
            state.moved(Instant::now());
            state.waits = waits;
        });
    }

    pub(super) fn set_stall_timeout(&self, timeout: Option<Duration>) {
        self.with(|state| state.timeout = timeout);
    }

    /// What it does, and after which step.
    pub(super) fn place(&self) -> (Activity, u64) {
        self.with(|state| (state.activity, state.step))
    }

    /// For how long it has not moved, if that is too long.
    pub(super) fn stuck(&self, now: Instant) -> Option<Duration> {
        self.with(|state| state.stuck(now))
    }
}

impl State {
    fn moved(&mut self, now: Instant) {
        if self.is_watched() {
            self.longest = self.longest.max(now.saturating_duration_since(self.moved));
        }
        self.moved = now;
    }

    /// Whether what it does comes to an end by itself. Before the first step an index may take hours, and a flow notices by itself
    /// that no batch comes.
    fn is_watched(&self) -> bool {
        let works =
            matches!(self.activity, Activity::Train | Activity::Reduce | Activity::Validate | Activity::Checkpoint);
        works && !self.waits
    }

    fn stuck(&self, now: Instant) -> Option<Duration> {
        let still = now.saturating_duration_since(self.moved);
        let most = self.timeout?.max(TIMES_THE_LONGEST * self.longest);
        (self.is_watched() && still > most).then_some(still)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_stuck_when_it_works_for_longer_than_the_timeout_and_than_ten_of_its_longest_stretches() {
        let start = Instant::now();
        let seconds = Duration::from_secs;
        let state = |activity, waits, longest, timeout: Option<u64>| State {
            activity,
            step: 3,
            moved: start,
            waits,
            longest: seconds(longest),
            timeout: timeout.map(seconds),
        };
        for (activity, waits, longest, timeout, still, expected) in [
            (Activity::Train, false, 1, Some(300), 299, false),
            (Activity::Train, false, 1, Some(300), 301, true),
            (Activity::Validate, false, 1, Some(300), 301, true),
            (Activity::Checkpoint, false, 1, Some(300), 301, true),
            // A step of a minute: five minutes may be a slow one.
            (Activity::Train, false, 60, Some(300), 301, false),
            (Activity::Train, false, 60, Some(300), 601, true),
            // Copies of gradients, and then the sums of others.
            (Activity::Reduce, false, 1, Some(300), 301, true),
            (Activity::Reduce, true, 1, Some(300), 9999, false),
            // An index, a batch, the end: these have patience of their own.
            (Activity::Start, false, 1, Some(300), 9999, false),
            (Activity::Load, false, 1, Some(300), 9999, false),
            (Activity::End, false, 1, Some(300), 9999, false),
            (Activity::Train, false, 1, None, 9999, false),
        ] {
            let found = state(activity, waits, longest, timeout).stuck(start + seconds(still));
            assert_eq!(found.is_some(), expected, "{activity}, waits: {waits}, {longest} s, {timeout:?}, {still} s");
        }
    }

    #[test]
    fn only_stretches_of_work_count_as_the_longest() {
        let here = Here::default();
        here.set_stall_timeout(Some(Duration::from_secs(5)));
        let later = |seconds| here.with(|state| state.moved -= Duration::from_secs(seconds));
        later(100);
        here.note(Activity::Train, 0);
        assert_eq!(here.with(|state| state.longest), Duration::ZERO, "the start is no step");
        later(2);
        here.note(Activity::Reduce, 0);
        here.waits(true);
        later(1000);
        here.waits(false);
        let longest = here.with(|state| state.longest).as_secs();
        assert_eq!((longest, here.place()), (2, (Activity::Reduce, 0)), "waiting for others is not work");
    }
}
