//! The chain of stages, pulled by its consumer.
//!
//! Every part of the chain answers one question: "do you have the next batch?" ([`Pull::poll`]). A part that has to
//! wait registers the asking thread wherever its answer may change and says so; only two places ever park: the
//! consumer's [`Flow::next`] and the thread of a [`Flow::prefetch`]. So nothing waits while it holds a finished batch.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use crate::budget::Budget;
use crate::context::Context;
use crate::envelope::{Cursor, Envelope};
use crate::error::{Error, ErrorKind, Fault, panic_message};
use crate::knob::Knob;
use crate::pool::ParStage;
use crate::prefetch::Prefetch;
use crate::queue::QueueLimits;
use crate::stats::Meter;
use crate::wait::Waker;

pub(crate) type Item<T> = Result<Envelope<T>, Error>;

/// One part of the chain.
pub(crate) trait Pull<T>: Send {
    /// The next item, the end, or a promise that `waker` is woken when it is worth asking again.
    fn poll(&mut self, waker: &Waker) -> Poll<Option<Item<T>>>;
}

/// An ordered, fallible iterator of batches. Dropping it closes its queues and joins its threads.
///
/// After a fault of one batch it continues, unless its consumer stops; after any other [`Error`] it gives `None`.
#[must_use = "it is an iterator: nothing reaches its end unless somebody pulls"]
pub struct Flow<T> {
    context: Context,
    chain: Box<dyn Pull<T>>,
    ended: bool,
}

impl<T: Send + 'static> Flow<T> {
    /// Batches of the epochs from `start` up to (not including) epoch `epochs`; `plan` says what an epoch holds.
    ///
    /// The plan must give the same batches each time it is asked for the same epoch: then a flow that starts at
    /// cursor *c* gives exactly what another one gives from *c* on. An epoch without any batch is a fatal error.
    pub fn source<I>(
        context: &Context,
        name: impl AsRef<str>,
        start: Cursor,
        epochs: u64,
        mut plan: impl FnMut(u64) -> I + Send + 'static,
    ) -> Flow<T>
    where
        I: IntoIterator<Item = T>,
        I::IntoIter: Send + 'static,
    {
        let plan = move |epoch| Box::new(plan(epoch).into_iter()) as Box<dyn Iterator<Item = T> + Send>;
        let source = Source { name: name.as_ref().into(), plan, epochs, at: start, skip: start.batch, current: None };
        Flow { context: context.clone(), chain: Box::new(source), ended: false }
    }

    /// Does `work` on each batch, on the thread that pulls. A fault or a panic of it arrives in the place of the batch.
    pub fn stage<U: Send + 'static>(
        self,
        name: impl AsRef<str>,
        work: impl FnMut(T) -> Result<U, Fault> + Send + 'static,
    ) -> Flow<U> {
        let meter = self.context.add_stage(name.as_ref());
        self.with(|upstream, context| SerialStage { upstream, work, timer: StageTimer::new(context, meter) })
    }

    /// Does `work` on up to `workers` batches at once (zero: on the thread that pulls). The order stays.
    pub fn par_stage<U: Send + 'static>(
        self,
        name: impl AsRef<str>,
        workers: &Knob,
        work: impl Fn(T) -> Result<U, Fault> + Send + Sync + 'static,
    ) -> Flow<U> {
        let workers = workers.clone();
        let name = name.as_ref().to_owned();
        self.with(|upstream, context| ParStage::new(upstream, context, &name, workers, work))
    }

    /// Keeps up to `limits` batches ready, made by a thread of its own that starts now.
    /// A depth of zero adds neither queue nor thread: the part before then is synchronous with the part after it.
    pub fn prefetch(self, name: impl AsRef<str>, limits: impl Into<QueueLimits>) -> Flow<T> {
        let limits = limits.into();
        if limits.items.get() == 0 {
            return self;
        }
        let name = name.as_ref().to_owned();
        self.with(|upstream, context| Prefetch::new(upstream, context, &name, limits))
    }

    /// Leases memory for each batch before the next part may work on it, and notes its size. A batch that a budget with
    /// [`Oversize::Refuse`](crate::Oversize::Refuse) can never hold is an error in its place.
    pub fn lease(self, budget: &Budget, bytes: impl Fn(&T) -> usize + Send + 'static) -> Flow<T> {
        let budget = budget.clone();
        let name: Arc<str> = budget.name().into();
        self.with(|upstream, _| LeaseStage { upstream, budget, name, bytes, waiting: None })
    }

    /// Gives back what each batch leased from `budget`: it has left that memory.
    pub fn release(self, budget: &Budget) -> Flow<T> {
        let budget = budget.clone();
        self.with(|upstream, _| Release { upstream, budget })
    }

    /// Skips batches that failed, as long as `allow(failed, seen)` says that so few of so many are fine; `report`
    /// hears of each. Panics, memory limits and fatal faults are never skipped.
    pub fn tolerate(
        self,
        allow: impl Fn(u64, u64) -> bool + Send + 'static,
        report: impl FnMut(&Error) + Send + 'static,
    ) -> Flow<T> {
        self.with(|upstream, _| Tolerate { upstream, allow, report, faults: 0, seen: 0 })
    }

    fn with<U, P: Pull<U> + 'static>(self, part: impl FnOnce(Box<dyn Pull<T>>, &Context) -> P) -> Flow<U> {
        Flow { chain: Box::new(part(self.chain, &self.context)), context: self.context, ended: self.ended }
    }

    fn fail(&mut self, stage: &Arc<str>, cursor: Option<Cursor>, kind: ErrorKind) -> Option<Item<T>> {
        self.ended = true;
        Some(Err(Error::new(stage, cursor, kind)))
    }
}

impl<T: Send + 'static> Iterator for Flow<T> {
    type Item = Result<Envelope<T>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let clock = self.context.clock.clone();
        let waker = clock.waker();
        let mut deadline = None;
        loop {
            if let Some(reason) = self.context.stop.watch(&waker) {
                return self.fail(&"flow".into(), None, ErrorKind::Stopped(reason));
            }
            let polled = catch_unwind(AssertUnwindSafe(|| self.chain.poll(&waker))).unwrap_or_else(|payload| {
                let kind = ErrorKind::Panicked(panic_message(payload));
                Poll::Ready(Some(Err(Error::new(&"flow".into(), None, kind))))
            });
            if let Poll::Ready(item) = polled {
                match &item {
                    None => self.ended = true,
                    Some(Err(error)) if !error.is_skippable() => self.ended = true,
                    _ => {}
                }
                return item;
            }
            if let Some(timeout) = self.context.stall_timeout {
                let now = clock.now();
                if now >= *deadline.get_or_insert(now + timeout) {
                    self.ended = true;
                    return Some(Err(self.context.stalled(timeout)));
                }
            }
            // Checked again because a stage may have parked, and so used up the wake-up that a stop sent.
            if self.context.stop.reason().is_none() {
                clock.park(deadline);
            }
        }
    }
}

impl<T> fmt::Debug for Flow<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("ended", &self.ended).finish_non_exhaustive()
    }
}

/// Walks the plan. A panic in it is delivered as an error, never as the end of the data.
struct Source<T, P> {
    name: Arc<str>,
    plan: P,
    epochs: u64,
    at: Cursor,
    skip: u64,
    current: Option<Box<dyn Iterator<Item = T> + Send>>,
}

impl<T, P> Source<T, P>
where
    P: FnMut(u64) -> Box<dyn Iterator<Item = T> + Send>,
{
    fn next(&mut self) -> Result<Option<(T, Cursor)>, Fault> {
        while self.at.epoch < self.epochs {
            let (plan, epoch, skip) = (&mut self.plan, self.at.epoch, &mut self.skip);
            let batches = self.current.get_or_insert_with(|| {
                let mut batches = plan(epoch);
                // Resuming: what was trained already is passed over without being made.
                if let Some(last) = std::mem::take(skip).checked_sub(1) {
                    batches.nth(usize::try_from(last).unwrap_or(usize::MAX));
                }
                batches
            });
            if let Some(value) = batches.next() {
                let cursor = self.at;
                self.at = cursor.next();
                return Ok(Some((value, cursor)));
            }
            if self.at.batch == 0 {
                // Continuing with the next epoch might never end.
                return Err(Fault::new("the plan has no batch for this epoch").fatal());
            }
            self.current = None;
            self.at = Cursor { epoch: epoch + 1, batch: 0 };
        }
        Ok(None)
    }
}

impl<T: Send, P> Pull<T> for Source<T, P>
where
    P: FnMut(u64) -> Box<dyn Iterator<Item = T> + Send> + Send,
{
    fn poll(&mut self, _: &Waker) -> Poll<Option<Item<T>>> {
        let next = catch_unwind(AssertUnwindSafe(|| self.next()));
        Poll::Ready(match next {
            Ok(Ok(next)) => next.map(|(value, cursor)| Ok(Envelope::new(value, cursor))),
            Ok(Err(fault)) => {
                let at = self.at;
                self.at.epoch = self.epochs;
                Some(Err(Error::from_fault(&self.name, at, fault)))
            }
            Err(payload) => {
                let at = self.at;
                self.at.epoch = self.epochs; // nothing more can be said about its order
                Some(Err(Error::new(&self.name, Some(at), ErrorKind::Panicked(panic_message(payload)))))
            }
        })
    }
}

/// Divides a pulled stage's time into waiting for input, working, and waiting to be asked.
pub(crate) struct StageTimer {
    context: Context,
    pub(crate) meter: Arc<Meter>,
    asked: Option<Duration>,
    handed_on: Option<Duration>,
}

impl StageTimer {
    pub(crate) fn new(context: &Context, meter: Arc<Meter>) -> StageTimer {
        StageTimer { context: context.clone(), meter, asked: None, handed_on: None }
    }

    pub(crate) fn asked(&mut self) {
        if self.asked.is_none() {
            let now = self.context.clock.now();
            if let Some(since) = self.handed_on.take() {
                self.meter.wait_out(now - since);
            }
            self.asked = Some(now);
        }
    }

    /// How long it took.
    pub(crate) fn arrived(&mut self) -> Duration {
        let Some(since) = self.asked.take() else { return Duration::ZERO };
        let waited = self.context.clock.now() - since;
        self.meter.wait_in(waited);
        waited
    }

    /// A batch was handed on that did not arrive through [`StageTimer::arrived`].
    pub(crate) fn served(&mut self) {
        self.asked = None;
    }

    pub(crate) fn handed_on(&mut self, now: Duration) {
        self.handed_on = Some(now);
    }
}

/// Runs a stage's work on one envelope: catches a panic, keeps the leases, gives a fault its place.
pub(crate) fn run<T, U>(
    meter: &Meter,
    envelope: Envelope<T>,
    waited: Duration,
    work: impl FnOnce(T) -> Result<U, Fault>,
) -> (Item<U>, Duration) {
    let (value, shell) = envelope.split();
    let cursor = shell.cursor;
    meter.work(cursor, shell.bytes, waited, || match catch_unwind(AssertUnwindSafe(|| work(value))) {
        Ok(Ok(value)) => Ok(shell.map(|()| value)),
        Ok(Err(fault)) => Err(Error::from_fault(&meter.name, cursor, fault)),
        Err(payload) => Err(Error::new(&meter.name, Some(cursor), ErrorKind::Panicked(panic_message(payload)))),
    })
}

struct SerialStage<T, F> {
    upstream: Box<dyn Pull<T>>,
    work: F,
    timer: StageTimer,
}

impl<T: Send, U, F: FnMut(T) -> Result<U, Fault> + Send> Pull<U> for SerialStage<T, F> {
    fn poll(&mut self, waker: &Waker) -> Poll<Option<Item<U>>> {
        self.timer.asked();
        let item = ready!(self.upstream.poll(waker));
        let waited = self.timer.arrived();
        Poll::Ready(item.map(|item| {
            let (item, ended) = run(&self.timer.meter, item?, waited, &mut self.work);
            self.timer.handed_on(ended);
            item
        }))
    }
}

struct LeaseStage<T, F> {
    upstream: Box<dyn Pull<T>>,
    budget: Budget,
    name: Arc<str>,
    bytes: F,
    waiting: Option<Envelope<T>>,
}

impl<T: Send, F: Fn(&T) -> usize + Send> Pull<T> for LeaseStage<T, F> {
    fn poll(&mut self, waker: &Waker) -> Poll<Option<Item<T>>> {
        if self.waiting.is_none() {
            match ready!(self.upstream.poll(waker)) {
                Some(Ok(envelope)) => self.waiting = Some(envelope),
                other => return Poll::Ready(other),
            }
        }
        let mut envelope = self.waiting.take().expect("just filled");
        let bytes = (self.bytes)(&envelope.value);
        Poll::Ready(Some(match self.budget.poll_lease(bytes, waker) {
            Poll::Pending => {
                self.waiting = Some(envelope);
                return Poll::Pending;
            }
            Poll::Ready(Ok(lease)) => {
                envelope.bytes = bytes;
                envelope.leases.push(lease);
                Ok(envelope)
            }
            Poll::Ready(Err(over)) => Err(Error::new(&self.name, Some(envelope.cursor), ErrorKind::OverLimit(over))),
        }))
    }
}

struct Release<T> {
    upstream: Box<dyn Pull<T>>,
    budget: Budget,
}

impl<T: Send> Pull<T> for Release<T> {
    fn poll(&mut self, waker: &Waker) -> Poll<Option<Item<T>>> {
        let mut item = ready!(self.upstream.poll(waker));
        if let Some(Ok(envelope)) = &mut item {
            envelope.release(&self.budget);
        }
        Poll::Ready(item)
    }
}

struct Tolerate<T, A, R> {
    upstream: Box<dyn Pull<T>>,
    allow: A,
    report: R,
    faults: u64,
    seen: u64,
}

impl<T: Send, A, R> Pull<T> for Tolerate<T, A, R>
where
    A: Fn(u64, u64) -> bool + Send,
    R: FnMut(&Error) + Send,
{
    fn poll(&mut self, waker: &Waker) -> Poll<Option<Item<T>>> {
        let item = ready!(self.upstream.poll(waker));
        self.seen += item.is_some() as u64;
        match item {
            Some(Err(error)) if error.is_skippable() => {
                self.faults += 1;
                (self.report)(&error);
                if !(self.allow)(self.faults, self.seen) {
                    let (stage, cursor) = (error.stage.clone(), error.cursor);
                    let (faults, seen) = (self.faults, self.seen);
                    let kind = ErrorKind::TooManyFaults { faults, seen, last: error };
                    return Poll::Ready(Some(Err(Error::new(&stage, cursor, kind))));
                }
                // Skipped: ask again, but let whoever pulls see first whether the run is to end.
                waker.wake();
                Poll::Pending
            }
            item => Poll::Ready(item),
        }
    }
}
