//! Cores that several simulated lanes share: more threads at work than cores make all of them slower.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tandem_flow::Clock;

/// Cores of a simulated machine. Clones are the same machine.
#[derive(Clone, Debug)]
pub struct SharedCores {
    clock: Clock,
    count: f64,
    /// How long a share holds before it is looked at again.
    slice: Duration,
    at_work: Arc<Mutex<f64>>,
}

impl SharedCores {
    /// So many cores; shares are reckoned anew after each `slice`.
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

    /// How fast work with so many threads goes: a thread's share of a core, for that part of it that needs one.
    fn share(&self, threads: f64) -> f64 {
        let at_work = *self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
        let of_a_core = (self.count / at_work.max(f64::MIN_POSITIVE)).min(1.0);
        // Half a thread waits for something else half of the time; that half does not get slower.
        let on_cores = threads.clamp(0.0, 1.0);
        1.0 / (on_cores / of_a_core + 1.0 - on_cores)
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
            let _ = thread.join();
        }
        let ends = ends.lock().expect("whole").clone();
        ends.into_iter().map(f64::round).collect()
    }

    #[test]
    fn what_fits_takes_as_long_as_alone_and_what_does_not_takes_longer() {
        assert_eq!(ends(2, &[(100, 1.0), (60, 1.0)]), [100.0, 60.0]);
        // Three on two cores: all at two thirds, until the shortest is done.
        assert_eq!(ends(2, &[(100, 1.0), (100, 1.0), (100, 1.0)]), [150.0; 3]);
        // A step on both cores beside one worker: two thirds each, then the step alone again.
        assert_eq!(ends(2, &[(100, 2.0), (50, 1.0)]), [125.0, 75.0]);
        // A GPU's step does not mind.
        assert_eq!(ends(1, &[(100, 0.0), (50, 1.0), (50, 1.0)]), [100.0, 100.0, 100.0]);
    }
}
