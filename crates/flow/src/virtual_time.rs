//! Virtual time: a baton that exactly one thread holds, and a clock that jumps when nobody can run.
//!
//! A thread gives the baton up only by waiting (or ending). It goes to the thread that became ready first; when
//! none is ready, time jumps to the earliest deadline. When there is no deadline either, all threads wait for
//! each other: that is a deadlock, and it is reported as a panic with their names instead of a hang.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

thread_local! {
    /// The calling thread's seats, one for each virtual clock it belongs to (in practice one).
    static SEATS: RefCell<Vec<Seat>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone)]
pub(crate) struct VirtualTime(Arc<Table>);

struct Table {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: Duration,
    /// Orders equal deadlines by arrival, so that a run is repeatable.
    arrivals: u64,
    ready: VecDeque<usize>,
    timers: BTreeMap<(Duration, u64), usize>,
    seats: Vec<Place>,
    deadlock: Option<String>,
}

struct Place {
    name: Box<str>,
    turn: Arc<Condvar>,
    /// Parked, and neither woken nor timed out yet.
    waiting: bool,
    timer: Option<(Duration, u64)>,
    permit: bool,
    /// Holds the baton: may run.
    go: bool,
    left: bool,
}

/// One thread's place at one virtual clock.
#[derive(Clone)]
pub(crate) struct Seat {
    table: Arc<Table>,
    index: usize,
    turn: Arc<Condvar>,
}

impl VirtualTime {
    pub(crate) fn new() -> VirtualTime {
        let time = VirtualTime(Arc::new(Table { state: Mutex::new(State::default()) }));
        let seat = time.enrol("main");
        {
            let mut state = seat.state();
            state.ready.clear();
            state.seats[seat.index].go = true;
        }
        SEATS.with_borrow_mut(|seats| {
            // Seats of clocks that nobody else holds any more are gone for good.
            seats.retain(|seat| Arc::strong_count(&seat.table) > 1);
            seats.push(seat);
        });
        time
    }

    pub(crate) fn now(&self) -> Duration {
        self.0.lock().now
    }

    /// A seat for a thread about to start; it is ready to run from now on.
    pub(crate) fn enrol(&self, name: &str) -> Seat {
        let turn = Arc::new(Condvar::new());
        let mut state = self.0.lock();
        let index = state.seats.len();
        state.seats.push(Place {
            name: name.into(),
            turn: turn.clone(),
            waiting: false,
            timer: None,
            permit: false,
            go: false,
            left: false,
        });
        state.ready.push_back(index);
        Seat { table: self.0.clone(), index, turn }
    }

    pub(crate) fn current_seat(&self) -> Seat {
        SEATS.with_borrow(|seats| {
            seats
                .iter()
                .find(|seat| Arc::ptr_eq(&seat.table, &self.0))
                .cloned()
                .expect("only the thread that made a virtual clock and those from Clock::spawn may wait on it")
        })
    }

    pub(crate) fn sleep(&self, duration: Duration) {
        let deadline = self.now() + duration;
        let seat = self.current_seat();
        // A sleep is not ended by a wake-up meant for something else: keep it for the next park.
        let mut woken = false;
        loop {
            let state = seat.state();
            if state.now >= deadline {
                break;
            }
            woken |= seat.wait(state, Some(deadline));
        }
        seat.state().seats[seat.index].permit |= woken;
    }

    pub(crate) fn park(&self, deadline: Option<Duration>) {
        let seat = self.current_seat();
        let mut state = seat.state();
        if std::mem::take(&mut state.seats[seat.index].permit) {
            return;
        }
        seat.wait(state, deadline);
    }
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    fn state(&self) -> MutexGuard<'_, State> {
        self.table.lock()
    }

    pub(crate) fn is_same(&self, other: &Seat) -> bool {
        self.index == other.index && Arc::ptr_eq(&self.table, &other.table)
    }

    /// Called first by the seat's own thread: waits for the baton. The guard gives the seat up when dropped.
    pub(crate) fn enter(&self) -> Leave {
        SEATS.with_borrow_mut(|seats| seats.push(self.clone()));
        let mut state = self.state();
        while !state.seats[self.index].go {
            state = self.turn.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Leave(self.clone())
    }

    pub(crate) fn unpark(&self) {
        let mut state = self.state();
        let place = &mut state.seats[self.index];
        if place.waiting {
            if let Some(timer) = place.timer.take() {
                state.timers.remove(&timer);
            }
            state.seats[self.index].waiting = false;
            // `permit` here tells the waiter that it was woken rather than timed out.
            state.seats[self.index].permit = true;
            state.ready.push_back(self.index);
        } else {
            place.permit = true;
        }
    }

    /// Gives the baton away and waits for it. Returns whether the thread was woken (and not timed out).
    fn wait(&self, mut state: MutexGuard<'_, State>, deadline: Option<Duration>) -> bool {
        let timer = deadline.map(|deadline| {
            state.arrivals += 1;
            (deadline.max(state.now), state.arrivals)
        });
        if let Some(timer) = timer {
            state.timers.insert(timer, self.index);
        }
        let place = &mut state.seats[self.index];
        place.waiting = true;
        place.timer = timer;
        place.go = false;
        state.pass_on();
        while !state.seats[self.index].go {
            if let Some(report) = state.deadlock.clone() {
                drop(state);
                panic!("{report}");
            }
            state = self.turn.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let place = &mut state.seats[self.index];
        place.waiting = false;
        std::mem::take(&mut place.permit)
    }
}

impl State {
    /// Chooses who runs next.
    fn pass_on(&mut self) {
        let next = match self.ready.pop_front() {
            Some(index) => index,
            None => match self.timers.pop_first() {
                Some(((deadline, _), index)) => {
                    self.now = deadline;
                    self.seats[index].timer = None;
                    index
                }
                None => {
                    let waiting: Vec<&str> =
                        (self.seats.iter()).filter(|place| !place.left).map(|place| &*place.name).collect();
                    if !waiting.is_empty() {
                        self.deadlock = Some(format!(
                            "deadlock at {:?}: every thread of the virtual clock waits: {}",
                            self.now,
                            waiting.join(", ")
                        ));
                        for place in &self.seats {
                            place.turn.notify_all();
                        }
                    }
                    return;
                }
            },
        };
        self.seats[next].waiting = false;
        self.seats[next].go = true;
        self.seats[next].turn.notify_all();
    }
}

/// Gives the seat up and the baton on.
pub(crate) struct Leave(Seat);

impl Drop for Leave {
    fn drop(&mut self) {
        SEATS.with_borrow_mut(|seats| seats.retain(|seat| !seat.is_same(&self.0)));
        let mut state = self.0.state();
        let place = &mut state.seats[self.0.index];
        place.left = true;
        place.go = false;
        state.pass_on();
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seat({})", self.index)
    }
}
