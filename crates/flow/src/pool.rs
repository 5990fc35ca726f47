//! The workers behind [`Flow::par_stage`](crate::Flow::par_stage): many batches at once, handed on in order.
//!
//! Invariant: a batch taken from upstream gets the next number; results are handed on by number. At most `workers`
//! batches are worked on at a time, and at most twice as many are between upstream and downstream, so that a slow
//! batch at the head does not leave the others idle.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use crate::clock::Thread;
use crate::context::Context;
use crate::envelope::Envelope;
use crate::error::Fault;
use crate::flow::{Item, Pull, StageTimer, run};
use crate::knob::Knob;
use crate::stats::Meter;
use crate::sync::{Mutex, lock};
use crate::wait::{WaitSet, Waker};

type Work<T, U> = dyn Fn(T) -> Result<U, Fault> + Send + Sync;

pub(crate) struct ParStage<T, U> {
    upstream: Box<dyn Pull<T>>,
    upstream_ended: bool,
    context: Context,
    timer: StageTimer,
    /// Since when a worker has nothing to do because upstream has nothing.
    hungry: Option<Duration>,
    workers: Knob,
    shared: Arc<Shared<T, U>>,
    threads: Vec<Thread>,
    level: u32,
    /// The number the next batch from upstream gets.
    next: u64,
    /// The number that goes downstream next.
    head: u64,
}

struct Shared<T, U> {
    work: Box<Work<T, U>>,
    meter: Arc<Meter>,
    state: Mutex<State<T, U>>,
}

struct State<T, U> {
    jobs: VecDeque<(u64, Envelope<T>)>,
    done: BTreeMap<u64, Item<U>>,
    running: usize,
    width: usize,
    /// What the consumer waits for.
    wanted: u64,
    closed: bool,
    idle: WaitSet,
    consumer: WaitSet,
}

impl<T: Send + 'static, U: Send + 'static> ParStage<T, U> {
    pub(crate) fn new(
        upstream: Box<dyn Pull<T>>,
        context: &Context,
        name: &str,
        workers: Knob,
        work: impl Fn(T) -> Result<U, Fault> + Send + Sync + 'static,
    ) -> ParStage<T, U> {
        let meter = context.add_stage(name);
        let state = State {
            jobs: VecDeque::new(),
            done: BTreeMap::new(),
            running: 0,
            width: workers.get(),
            wanted: 0,
            closed: false,
            idle: WaitSet::default(),
            consumer: WaitSet::default(),
        };
        ParStage {
            upstream,
            upstream_ended: false,
            context: context.clone(),
            timer: StageTimer::new(context, meter.clone()),
            hungry: None,
            workers,
            shared: Arc::new(Shared { work: Box::new(work), meter, state: Mutex::new(state) }),
            threads: Vec::new(),
            level: context.level(),
            next: 0,
            head: 0,
        }
    }

    /// Takes batches from upstream as far as it has any and the window allows.
    fn fill(&mut self, width: usize, waker: &Waker) {
        while !self.upstream_ended && self.next - self.head < 2 * width as u64 {
            // With every worker supplied, a finished head goes first: upstream may be slow.
            if self.next - self.head > width as u64 && lock(&self.shared.state).done.contains_key(&self.head) {
                return;
            }
            // Only with an idle worker is this a wait for input; otherwise it is looking ahead.
            let now = self.context.clock.now();
            let idle_worker = self.next - self.head < width as u64;
            let hungry = self.hungry.take().or(idle_worker.then_some(now));
            match self.upstream.poll(waker) {
                Poll::Pending => {
                    self.hungry = hungry;
                    return;
                }
                Poll::Ready(None) => self.upstream_ended = true,
                Poll::Ready(Some(item)) => {
                    let waited = hungry.map_or(Duration::ZERO, |since| self.context.clock.now() - since);
                    self.shared.meter.wait_in(waited);
                    self.submit(item, width);
                }
            }
        }
    }

    fn submit(&mut self, item: Item<T>, width: usize) {
        let number = self.next;
        self.next += 1;
        let mut state = lock(&self.shared.state);
        match item {
            Err(error) => {
                state.done.insert(number, Err(error));
            }
            Ok(envelope) => {
                state.jobs.push_back((number, envelope));
                state.idle.wake_one();
                // Threads are started as they are needed: a width of 64 costs nothing when two suffice.
                let needed = state.running + state.jobs.len();
                drop(state);
                if self.threads.len() < needed.min(width) {
                    self.start_worker();
                }
            }
        }
    }

    fn start_worker(&mut self) {
        let name = format!("{}-{}", self.shared.meter.name, self.threads.len() + 1);
        let (shared, clock) = (self.shared.clone(), self.context.clock.clone());
        self.threads.push(self.context.clock.spawn(&name, move || {
            let waker = clock.waker();
            while let Some(job) = shared.take_job(&waker, || clock.park(None)) {
                shared.finish(job);
            }
        }));
    }

    fn head_of_line(&mut self, waker: &Waker) -> Poll<Option<Item<U>>> {
        let mut state = lock(&self.shared.state);
        state.wanted = self.head;
        if let Some(item) = state.done.remove(&self.head) {
            self.head += 1;
            return Poll::Ready(Some(item));
        }
        if self.upstream_ended && self.next == self.head {
            return Poll::Ready(None);
        }
        state.consumer.register(waker);
        Poll::Pending
    }

    fn synchronous(&mut self, waker: &Waker) -> Poll<Option<Item<U>>> {
        let item = ready!(self.upstream.poll(waker));
        let waited = self.timer.arrived();
        Poll::Ready(item.map(|item| {
            let (item, ended) = run(&self.shared.meter, item?, waited, &self.shared.work);
            self.timer.handed_on(ended);
            item
        }))
    }
}

impl<T: Send + 'static, U: Send + 'static> Pull<U> for ParStage<T, U> {
    fn poll(&mut self, waker: &Waker) -> Poll<Option<Item<U>>> {
        self.timer.asked();
        let width = self.workers.watch(waker);
        if width == 0 && self.next == self.head {
            return self.synchronous(waker);
        }
        {
            let mut state = lock(&self.shared.state);
            if state.width != width {
                state.width = width;
                state.idle.wake_all();
            }
        }
        if width > 0 {
            self.fill(width, waker);
        } // else what is in hand is finished first, then the work is done synchronously
        let item = ready!(self.head_of_line(waker));
        self.timer.served();
        self.hungry = None; // what passes until the next question is not a wait for input
        self.timer.handed_on(self.context.clock.now());
        Poll::Ready(item)
    }
}

impl<T, U> Shared<T, U> {
    /// Drops what waits and what is finished, with their leases.
    fn clear(&self) {
        let mut state = lock(&self.state);
        let taken = (std::mem::take(&mut state.jobs), std::mem::take(&mut state.done));
        drop(state);
        drop(taken);
    }

    fn take_job(&self, waker: &Waker, park: impl Fn()) -> Option<(u64, Envelope<T>)> {
        loop {
            {
                let mut state = lock(&self.state);
                if state.closed {
                    return None;
                }
                if state.running < state.width.max(1)
                    && let Some(job) = state.jobs.pop_front()
                {
                    state.running += 1;
                    state.idle.forget(waker);
                    return Some(job);
                }
                state.idle.register(waker);
            }
            park();
        }
    }

    fn finish(&self, (number, envelope): (u64, Envelope<T>)) {
        let (item, _) = run(&self.meter, envelope, Duration::ZERO, &self.work);
        let mut state = lock(&self.state);
        state.running -= 1;
        state.done.insert(number, item);
        if number == state.wanted {
            state.consumer.wake_all();
        }
    }
}

impl<T, U> Drop for ParStage<T, U> {
    fn drop(&mut self) {
        {
            let mut state = lock(&self.shared.state);
            state.closed = true;
            state.idle.wake_all();
        }
        self.shared.clear(); // a worker may be waiting for the memory of what is finished
        for thread in self.threads.drain(..) {
            thread.wake();
            self.context.join(thread, self.level);
        }
        self.shared.clear();
        self.workers.forget(&self.context.clock.waker());
    }
}
