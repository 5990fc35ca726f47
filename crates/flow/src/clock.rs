//! Time and threads, passed in: the real ones, or virtual time for tests and what-if.
//!
//! On the virtual clock exactly one thread runs at a time and time moves only when all wait, so a run is
//! repeatable to the nanosecond, costs no waiting, and a deadlock is a panic that names the threads.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sync::{Mutex, lock, thread};
use crate::virtual_time::VirtualTime;
use crate::wait::{WaitSet, Waker};

thread_local!(static LABEL: RefCell<Option<Arc<str>>> = const { RefCell::new(None) });

/// The name under which the current thread's spans are recorded.
pub(crate) fn thread_label() -> Arc<str> {
    LABEL.with_borrow_mut(|label| label.get_or_insert_with(|| "main".into()).clone())
}

/// A source of time and of threads. Cheap to clone.
#[derive(Clone)]
pub struct Clock(Kind);

#[derive(Clone)]
enum Kind {
    Real(Instant),
    Virtual(VirtualTime),
}

impl Clock {
    /// The machine's monotonic clock, starting at zero now.
    pub fn real() -> Clock {
        Clock(Kind::Real(Instant::now()))
    }

    /// Virtual time, starting at zero. The calling thread and those made by [`Clock::spawn`] belong to it;
    /// any other thread that waits on it panics.
    pub fn virtual_time() -> Clock {
        Clock(Kind::Virtual(VirtualTime::new()))
    }

    /// Whether this is virtual time.
    pub fn is_virtual(&self) -> bool {
        matches!(self.0, Kind::Virtual(_))
    }

    /// Time since the clock was made.
    pub fn now(&self) -> Duration {
        match &self.0 {
            Kind::Real(start) => start.elapsed(),
            Kind::Virtual(time) => time.now(),
        }
    }

    /// Waits for `duration`.
    ///
    /// # Panics
    ///
    /// On virtual time, in a thread that does not belong to it; and when all its threads wait for each other.
    pub fn sleep(&self, duration: Duration) {
        match &self.0 {
            Kind::Real(_) => thread::sleep(duration),
            Kind::Virtual(time) => time.sleep(duration),
        }
    }

    /// Starts a named thread that belongs to this clock.
    ///
    /// # Panics
    ///
    /// If the system cannot start another thread.
    pub fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> Thread {
        let label: Arc<str> = name.into();
        let finished = Arc::new(Mutex::new(Finished::default()));
        let signal = Signal(finished.clone());
        let seat = match &self.0 {
            Kind::Real(_) => None,
            Kind::Virtual(time) => Some(time.enrol(name)),
        };
        let inner_seat = seat.clone();
        let handle = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                LABEL.set(Some(label));
                let leave = inner_seat.as_ref().map(|seat| seat.enter());
                // Dropped in this order, also on a panic: say that the thread is done, then give up the seat.
                let _order = (signal, leave);
                body();
            })
            .expect("the system can start a thread");
        let waker = match seat {
            None => Waker::Real(handle.thread().clone()),
            Some(seat) => Waker::Virtual(seat),
        };
        Thread { name: name.into(), handle: Some(handle), finished, waker, clock: self.clone() }
    }

    /// A waker for the calling thread.
    pub(crate) fn waker(&self) -> Waker {
        match &self.0 {
            Kind::Real(_) => Waker::Real(thread::current()),
            Kind::Virtual(time) => Waker::Virtual(time.current_seat()),
        }
    }

    /// Waits until the calling thread is woken or, at the latest, until `deadline`. May return early.
    pub(crate) fn park(&self, deadline: Option<Duration>) {
        match &self.0 {
            Kind::Virtual(time) => time.park(deadline),
            #[cfg(feature = "shuttle")] // shuttle has no time: a deadline never comes
            Kind::Real(_) => thread::park(),
            #[cfg(not(feature = "shuttle"))]
            Kind::Real(start) => match deadline {
                None => thread::park(),
                Some(deadline) => thread::park_timeout(deadline.saturating_sub(start.elapsed())),
            },
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Clock::real()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_virtual() { "virtual" } else { "real" };
        write!(f, "Clock({kind}, {:?})", self.now())
    }
}

#[derive(Default)]
struct Finished {
    done: bool,
    waiters: WaitSet,
}

/// Marks the thread as finished when dropped, on a normal return and on a panic alike.
struct Signal(Arc<Mutex<Finished>>);

impl Drop for Signal {
    fn drop(&mut self) {
        let mut finished = lock(&self.0);
        finished.done = true;
        finished.waiters.wake_all();
    }
}

/// A thread of a [`Clock`]. Dropping it without [`Thread::join`] lets it run on.
pub struct Thread {
    name: Box<str>,
    handle: Option<thread::JoinHandle<()>>,
    finished: Arc<Mutex<Finished>>,
    waker: Waker,
    clock: Clock,
}

impl Thread {
    /// The name given to [`Clock::spawn`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the thread to end, by returning or by a panic; with a `patience`, no longer than that. Returns
    /// whether it has ended.
    pub fn join(mut self, patience: Option<Duration>) -> bool {
        let deadline = patience.map(|patience| self.clock.now() + patience);
        let waker = self.clock.waker();
        loop {
            {
                let mut finished = lock(&self.finished);
                if finished.done {
                    break;
                }
                finished.waiters.register(&waker);
            }
            if deadline.is_some_and(|deadline| self.clock.now() >= deadline) {
                return false;
            }
            self.clock.park(deadline);
        }
        if let Some(handle) = self.handle.take() {
            let _ = handle.join(); // a panic was caught and delivered where it belongs
        }
        true
    }

    pub(crate) fn wake(&self) {
        self.waker.wake();
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Thread({})", self.name)
    }
}
