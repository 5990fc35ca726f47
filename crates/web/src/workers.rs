//! Work that takes its time, away from the network's thread: a few at once, and none for clients that have left.

use std::sync::{Arc, Weak};

use tokio::sync::Semaphore;

use crate::errors::ApiError;

/// Threads for texts and recordings.
#[derive(Debug)]
pub(crate) struct Workers(Arc<Semaphore>);

/// Whoever work is done for.
#[derive(Debug)]
pub(crate) struct Client(Weak<()>);

impl Client {
    /// Nobody waits for the work any more.
    pub(crate) fn has_left(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl Workers {
    pub(crate) fn new(count: usize) -> Workers {
        Workers(Arc::new(Semaphore::new(count)))
    }

    /// Does it when a thread is free. Who drops this future has left; the thread is free again when the work has seen it.
    pub(crate) async fn run<T, F>(&self, work: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&Client) -> T + Send + 'static,
    {
        let permit = self.0.clone().acquire_owned().await;
        let here = Arc::new(());
        let client = Client(Arc::downgrade(&here));
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&client)
        });
        done.await.map_err(|error| ApiError::new(500, "work_failed", error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_leaves_ends_the_work_and_its_thread_is_taken_until_then() {
        let runtime = crate::runtime().expect("a runtime");
        let workers = Workers::new(1);
        let (began, begun) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let (ended, end) = mpsc::channel();
        let work = move |client: &Client| {
            began.send(client.has_left()).expect("heard");
            wait.recv().expect("told");
            ended.send(client.has_left()).expect("heard");
        };
        runtime.block_on(async {
            // Long enough to begin; it does not end by itself.
            assert!(tokio::time::timeout(Duration::from_millis(100), workers.run(work)).await.is_err());
        });
        let long = Duration::from_secs(60);
        assert_eq!(begun.recv_timeout(long), Ok(false));
        assert_eq!(workers.0.available_permits(), 0, "the thread still works");
        go.send(()).expect("it waits");
        assert_eq!(end.recv_timeout(long), Ok(true));
        assert!(runtime.block_on(workers.run(|_| 7)).is_ok_and(|done| done == 7), "the thread is free again");
    }
}
