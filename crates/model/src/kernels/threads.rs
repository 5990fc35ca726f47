//! Who computes on the CPU.

use std::cell::RefCell;

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

thread_local! {
    /// The threads that share this one's loops; they end with it.
    static OTHERS: RefCell<Option<ThreadPool>> = const { RefCell::new(None) };
}

/// Makes the calling thread one of those that share its loops, for as long as it lives: for a thread that trains or synthesizes on the
/// CPU. Otherwise each of the thousand loops of a step puts it to sleep, wakes others, and wakes it again at the end (a
/// sixth of a step at size tiny, on two cores of a shared machine). What is computed is the same to the bit.
///
/// The others are its own: as many threads compute as there are cores (or as `RAYON_NUM_THREADS` says). It is for the one thread of a
/// process that computes, not for several at once, and for one whose work ends before it returns: what it gives to `rayon::spawn` may
/// wait until it computes again.
///
/// # Errors
///
/// If the others cannot be started; then this thread does its loops alone.
pub fn compute_here() -> Result<(), ThreadPoolBuildError> {
    if rayon::current_thread_index().is_none() {
        let others = ThreadPoolBuilder::new().thread_name(|n| format!("compute {n}")).use_current_thread().build()?;
        OTHERS.set(Some(others));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    #[test]
    fn a_thread_that_computes_here_takes_part_in_its_loops_and_its_helpers_end_with_it() {
        let outside = || (0..1000u64).into_par_iter().map(|n| n * n).sum::<u64>();
        let expected = outside();
        let cores = rayon::current_num_threads();
        std::thread::spawn(move || {
            assert_eq!(rayon::current_thread_index(), None);
            for _ in 0..2 {
                compute_here().expect("threads can be started");
                assert_eq!((rayon::current_thread_index(), rayon::current_num_threads()), (Some(0), cores));
                assert_eq!(outside(), expected);
            }
            // Nobody else has to be awake for it: what is not stolen is done here.
            let here = std::thread::current().id();
            assert_eq!(rayon::join(|| std::thread::current().id(), || ()).0, here);
        })
        .join()
        .expect("no panic");
        #[cfg(target_os = "linux")]
        {
            let helpers = || {
                let tasks = std::fs::read_dir("/proc/self/task").expect("tasks").flatten();
                let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
                names.filter(|name| name.starts_with("compute ")).count()
            };
            // They hear of it when the thread ends; a test that hangs here has found that they stay.
            while helpers() > 0 {
                std::thread::yield_now();
            }
        }
    }
}
