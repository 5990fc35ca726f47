//! A thread of its own that keeps batches ready in a bounded queue.
//!
//! Invariant: the thread says that it is complete before it closes the queue. A queue closed without that word is
//! reported as [`ErrorKind::Lost`], never taken for the end of the data.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Poll, ready};

use crate::clock::Thread;
use crate::context::Context;
use crate::error::{Error, ErrorKind, panic_message};
use crate::flow::{Item, Pull};
use crate::queue::{Queue, QueueLimits};
use crate::sync::{Mutex, lock};
use crate::wait::Waker;

pub(crate) struct Prefetch<T> {
    context: Context,
    name: Arc<str>,
    queue: Queue<Item<T>>,
    complete: Arc<Mutex<bool>>,
    thread: Option<Thread>,
    level: u32,
    ended: bool,
}

impl<T: Send + 'static> Prefetch<T> {
    pub(crate) fn new(
        mut upstream: Box<dyn Pull<T>>,
        context: &Context,
        name: &str,
        limits: QueueLimits,
    ) -> Prefetch<T> {
        let capacity = limits.items.clone();
        let queue = Queue::new(context, name, limits);
        let level = context.level(); // counts this queue: its thread waits for those of the pools before it
        let complete = Arc::new(Mutex::new(false));
        let label: Arc<str> = name.into();
        let (clock, filled, completed) = (context.clock.clone(), queue.clone(), complete.clone());
        let thread = context.clock.spawn(name, move || {
            // Closed on every way out, so that the consumer never waits for a thread that is gone.
            let _close = CloseOnDrop(&filled);
            let waker = clock.waker();
            while !filled.is_closed() {
                let polled = catch_unwind(AssertUnwindSafe(|| upstream.poll(&waker)));
                let item = match polled {
                    Ok(Poll::Ready(item)) => item,
                    // Checked again because a stage may have parked, and so used up the wake-up that closing sent.
                    Ok(Poll::Pending) if filled.is_closed() => break,
                    Ok(Poll::Pending) => {
                        clock.park(None);
                        continue;
                    }
                    Err(payload) => Some(Err(Error::new(&label, None, ErrorKind::Panicked(panic_message(payload))))),
                };
                let Some(item) = item else {
                    *lock(&completed) = true;
                    break;
                };
                let last = item.as_ref().is_err_and(|error| !error.is_skippable());
                let bytes = item.as_ref().map_or(0, |envelope| envelope.bytes);
                if filled.push(item, bytes).is_err() || last {
                    break;
                }
            }
            drop(upstream); // joins the threads before it, while this one still exists
            capacity.forget(&waker);
        });
        Prefetch {
            context: context.clone(),
            name: name.into(),
            queue,
            complete,
            thread: Some(thread),
            level,
            ended: false,
        }
    }
}

impl<T: Send> Pull<T> for Prefetch<T> {
    fn poll(&mut self, waker: &Waker) -> Poll<Option<Item<T>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(self.queue.poll_pop(waker)) {
            Some(item) => {
                self.ended = item.as_ref().is_err_and(|error| !error.is_skippable());
                Some(item)
            }
            None => {
                self.ended = true;
                let lost = !*lock(&self.complete);
                lost.then(|| Err(Error::new(&self.name, None, ErrorKind::Lost)))
            }
        })
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        self.queue.close();
        // What was ready but never taken goes now, with its leases: the thread may be waiting for that memory.
        while self.queue.pop().is_some() {}
        if let Some(thread) = self.thread.take() {
            thread.wake(); // it may wait for its upstream instead of the queue
            self.context.join(thread, self.level);
        }
    }
}

struct CloseOnDrop<'a, T>(&'a Queue<T>);

impl<T> Drop for CloseOnDrop<'_, T> {
    fn drop(&mut self) {
        self.0.close();
    }
}
