//! Where the training thread of this rank is. Another thread sends signs of life: without this, a rank whose driver never returns would
//! be alive for the others until the end of time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::reduce::Activity;

/// However short the timeout is: a stretch this many times as long as the longest one so far is no slow step.
const TIMES_THE_LONGEST: u32 = 10;
/// A step, once there were some, is given up after so long at the latest, whatever the timeout is: SPEC K6 has 30 s from a hang to the end of the job.
const STEP: Duration = Duration::from_secs(20);
/// Steps of this process after which that holds: a first one compiles kernels, for minutes on some devices, and how long others take has to be seen.
const WARM_UP: u64 = 3;
/// Looks that are further apart than this are those of a process that was stopped.
const STOPPED: Duration = Duration::from_secs(5);

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
    /// The longest stretch without a word that came to an end, after the first step of this process.
    longest: Duration,
    /// The step that this process began with.
    first: Option<u64>,
    timeout: Option<Duration>,
    /// When somebody last looked.
    looked: Option<Instant>,
}

impl Default for Here {
    fn default() -> Here {
        Here(Mutex::new(State {
            activity: Activity::Start,
            step: 0,
            moved: Instant::now(),
            waits: false,
            longest: Duration::ZERO,
            first: None,
            timeout: None,
            looked: None,
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
            if activity == Activity::Train {
                state.first.get_or_insert(step);
            }
        });
    }

    pub(super) fn waits(&self, waits: bool) {
        self.with(|state| {
            state.moved(Instant::now());
            state.waits = waits;
        });
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.with(|state| state.waits)
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
        self.with(|state| {
            state.look(now);
            state.stuck(now)
        })
    }
}

impl State {
    fn moved(&mut self, now: Instant) {
        if self.is_watched() && self.steps() > 0 {
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

    /// Who did not look for long was stopped, and so was the training thread: that is not its fault.
    fn look(&mut self, now: Instant) {
        let since = self.looked.replace(now).map_or(Duration::ZERO, |looked| now.saturating_duration_since(looked));
        if since > STOPPED {
            self.moved = (self.moved + since).min(now);
        }
    }

    /// Steps that this process has done.
    fn steps(&self) -> u64 {
        self.first.map_or(0, |first| self.step.saturating_sub(first))
    }

    fn stuck(&self, now: Instant) -> Option<Duration> {
        let still = now.saturating_duration_since(self.moved);
        let steps = matches!(self.activity, Activity::Train | Activity::Reduce) && self.steps() >= WARM_UP;
        let timeout = if steps { self.timeout?.min(STEP) } else { self.timeout? };
        let most = timeout.max(TIMES_THE_LONGEST * self.longest);
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
        let state = |activity, waits, step, longest, timeout: Option<u64>| State {
            activity,
            step,
            moved: start,
            waits,
            longest: seconds(longest),
            first: Some(100),
            timeout: timeout.map(seconds),
            looked: None,
        };
        for (activity, waits, step, longest, timeout, still, expected) in [
            // The first steps may compile.
            (Activity::Train, false, 102, 1, Some(300), 299, false),
            (Activity::Train, false, 102, 1, Some(300), 301, true),
            // Later ones do not take half a minute, unless others did nearly.
            (Activity::Train, false, 103, 1, Some(300), 19, false),
            (Activity::Train, false, 103, 1, Some(300), 21, true),
            (Activity::Train, false, 103, 1, Some(6), 7, false),
            (Activity::Train, false, 103, 0, Some(6), 7, true),
            (Activity::Train, false, 103, 60, Some(300), 599, false),
            (Activity::Train, false, 103, 60, Some(300), 601, true),
            // Disks may be slow, and validation long.
            (Activity::Validate, false, 103, 1, Some(300), 299, false),
            (Activity::Validate, false, 103, 1, Some(300), 301, true),
            (Activity::Checkpoint, false, 103, 1, Some(300), 299, false),
            (Activity::Checkpoint, false, 103, 1, Some(300), 301, true),
            // Copies of gradients, and then the sums of others.
            (Activity::Reduce, false, 103, 1, Some(300), 21, true),
            (Activity::Reduce, true, 103, 1, Some(300), 9999, false),
            // An index, a batch, the end: these have patience of their own.
            (Activity::Start, false, 103, 1, Some(300), 9999, false),
            (Activity::Load, false, 103, 1, Some(300), 9999, false),
            (Activity::End, false, 103, 1, Some(300), 9999, false),
            (Activity::Train, false, 103, 1, None, 9999, false),
        ] {
            let found = state(activity, waits, step, longest, timeout).stuck(start + seconds(still));
            assert_eq!(
                found.is_some(),
                expected,
                "{activity}, waits: {waits}, step {step}, {longest} s, {timeout:?}, {still} s"
            );
        }
    }

    #[test]
    fn a_process_that_was_stopped_as_a_whole_is_not_stuck() {
        let (here, start) = (Here::default(), Instant::now());
        here.set_stall_timeout(Some(Duration::from_secs(300)));
        here.note(Activity::Train, 0);
        here.note(Activity::Train, WARM_UP);
        let at = |seconds| here.stuck(start + Duration::from_secs(seconds)).is_some();
        assert!(!at(1) && !at(61), "nobody looked for a minute");
        assert!(!at(65) && !at(70) && !at(75) && !at(79) && at(82), "then it is watched as before");
    }

    #[test]
    fn only_stretches_of_work_after_the_first_step_count_as_the_longest() {
        let here = Here::default();
        here.set_stall_timeout(Some(Duration::from_secs(5)));
        let later = |seconds| here.with(|state| state.moved -= Duration::from_secs(seconds));
        later(100);
        here.note(Activity::Train, 7);
        later(50);
        here.note(Activity::Train, 8);
        assert_eq!(
            here.with(|state| state.longest),
            Duration::ZERO,
            "the start is no step, the first one is not like others"
        );
        later(2);
        here.note(Activity::Reduce, 8);
        here.waits(true);
        later(1000);
        here.waits(false);
        let longest = here.with(|state| state.longest).as_secs();
        assert_eq!((longest, here.place()), (2, (Activity::Reduce, 8)), "waiting for others is not work");
    }
}
