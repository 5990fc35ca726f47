//! A thread of its own that keeps batches ready in a bounded queue.
//!
//! Invariant: the thread says that it is complete before it closes the queue. A queue closed without that word is
//! reported as [`ErrorKind::Lost`], never taken for the end of the data.

use std::sync::Arc;
use std::task::{Poll, ready};

use crate::clock::Thread;
use crate::context::Context;
use crate::error::{Error, ErrorKind};
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
    ended: bool,
}

impl<T: Send + 'static> Prefetch<T> {
    pub(crate) fn new(
        mut upstream: Box<dyn Pull<T>>,
        context: &Context,
        name: &str,
        limits: QueueLimits,
    ) -> Prefetch<T> {
        let queue = Queue::new(context, name, limits);
        let complete = Arc::new(Mutex::new(false));
        let (clock, filled, completed) = (context.clock.clone(), queue.clone(), complete.clone());
        let thread = context.clock.spawn(name, move || {
            // Closed on every way out, so that the consumer never waits for a thread that is gone.
            let _close = CloseOnDrop(&filled);
            let waker = clock.waker();
            while !filled.is_closed() {
                let Poll::Ready(item) = upstream.poll(&waker) else {
                    clock.park(None);
                    continue;
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
        });
        Prefetch { context: context.clone(), name: name.into(), queue, complete, thread: Some(thread), ended: false }
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
        if let Some(thread) = self.thread.take() {
            thread.wake(); // it may wait for its upstream instead of the queue
            self.context.join(thread);
        }
        // What was ready but never taken goes now, with its leases.
        while self.queue.pop().is_some() {}
    }
}

struct CloseOnDrop<'a, T>(&'a Queue<T>);

impl<T> Drop for CloseOnDrop<'_, T> {
    fn drop(&mut self) {
        self.0.close();
    }
}
