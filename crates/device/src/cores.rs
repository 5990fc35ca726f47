//! Cores that several simulated lanes share: more threads at work than cores make all of them slower.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tandem_flow::Clock;

/// Cores of a simulated machine. Clones are the same machine.
#[derive(Clone, Debug)]
pub struct SharedCores {
    clock: Clock,
    count: f64,
    /// How long a share holds before it is computed again.
    slice: Duration,
    at_work: Arc<Mutex<f64>>,
}

impl SharedCores {
    /// So many cores; shares are computed again after each `slice`.
    pub fn new(clock: &Clock, count: usize, slice: Duration) -> SharedCores {
        SharedCores {
            clock: clock.clone(),
            count: count.max(1) as f64,
            slice: slice.max(Duration::from_micros(1)),
            at_work: Arc::default(),
        }
    }

    /// Does what takes `duration` on an idle machine and keeps `threads` cores busy; work on a device keeps none busy.
    pub fn work(&self, duration: Duration, threads: f64) {
        self.add(threads);
        let mut left = duration;
        while !left.is_zero() {
            let share = self.share(threads);
            let needed = left.div_f64(share);
            let slept = needed.min(self.slice);
            self.clock.sleep(slept);
            left = if slept == needed { Duration::ZERO } else { left.saturating_sub(slept.mul_f64(share)) };
        }
        self.add(-threads);
    }

    fn add(&self, threads: f64) {
        *self.at_work.lock().unwrap_or_else(PoisonError::into_inner) += threads;
    }

    /// How fast work with so many threads on average goes, by 1 for alone.
    fn share(&self, threads: f64) -> f64 {
        let others = *self.at_work.lock().unwrap_or_else(PoisonError::into_inner) - threads;
        // One thread gets its part of a core. Half a thread waits for something else half of the time; that half does not
        // get slower.
        let alone = ((1.0 + others) / self.count).max(1.0);
        if threads <= 1.0 {
            return 1.0 / (threads * alone + 1.0 - threads);
        }
        // Several threads that wait for each other are as fast as the slowest of them: the one that shares its core. An
        // average between one and two threads is one for a part of the time, and two for the rest.
        let gang = threads.ceil();
        let together = (threads - 1.0) / (gang - 1.0);
        // Others that work now and then are in the way now and then.
        let beside = |others: f64| ((gang + others) / self.count).ceil().max(1.0);
        let (some, often) = (others.max(0.0).floor(), others.max(0.0).fract());
        let slowest = (1.0 - often) * beside(some) + often * beside(some + 1.0);
        1.0 / (together * slowest + (1.0 - together) * alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When each of these pieces of work is done, in milliseconds, if all start at once on so many cores.
    fn ends(cores: usize, work: &[(u64, f64)]) -> Vec<f64> {
        let clock = Clock::virtual_time();
        let shared = SharedCores::new(&clock, cores, Duration::from_millis(1));
        let ends: Arc<Mutex<Vec<f64>>> = Arc::new(Mutex::new(vec![0.0; work.len()]));
        let threads: Vec<_> = (work.iter().enumerate())
            .map(|(n, &(ms, threads))| {
                let (shared, clock, ends) = (shared.clone(), clock.clone(), ends.clone());
                let name = format!("t{n}");
                shared.clock.clone().spawn(&name, move || {
                    shared.work(Duration::from_millis(ms), threads);
                    ends.lock().expect("whole")[n] = 1e3 * clock.now().as_secs_f64();
                })
            })
            .collect();
        for thread in threads {
            let _ = thread.join(None);
        }
        std::mem::take(&mut *ends.lock().expect("whole"))
    }

    /// Within the slices after which shares are computed again.
    fn near(ends: Vec<f64>, wanted: &[f64]) {
        let close = ends.iter().zip(wanted).all(|(end, wanted)| (end - wanted).abs() <= 2.0);
        assert!(close && ends.len() == wanted.len(), "{ends:?} {wanted:?}");
    }

    #[test]
    fn what_fits_takes_as_long_as_alone_and_what_does_not_takes_longer() {
        near(ends(2, &[(100, 1.0), (60, 1.0)]), &[100.0, 60.0]);
        // Three on two cores: all at two thirds, until the shortest is done.
        near(ends(2, &[(100, 1.0), (100, 1.0), (100, 1.0)]), &[150.0; 3]);
        // A step on both cores beside one worker: its threads wait for the one that shares a core, then it is alone again.
        near(ends(2, &[(100, 2.0), (50, 1.0)]), &[137.5, 75.0]);
        // A worker that waits for its disk most of the time is hardly in the way.
        near(ends(2, &[(100, 2.0), (1000, 0.02)]), &[102.0, 1002.0]);
        // On more cores than that nobody waits.
        near(ends(3, &[(100, 2.0), (50, 1.0)]), &[100.0, 50.0]);
        // A GPU's step does not mind.
        near(ends(1, &[(100, 0.0), (50, 1.0), (50, 1.0)]), &[100.0, 100.0, 100.0]);
    }
}
