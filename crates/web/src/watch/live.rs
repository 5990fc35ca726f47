//! Server-sent events: the parts of a page that have changed, as they change. Files are read and a page is made once for all who
//! look at it, not once for each of them.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::page::Parts;
use super::{Shared, made};
use crate::http::{self, Body, Query, Response};

/// How long files are not looked at after a page was made.
const EVERY: Duration = Duration::from_secs(1);
/// Something is sent at least this often, so that a browser that is gone is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Runs and language of a page.
type Key = (Vec<String>, &'static str);

/// Pages that somebody looks at, as they are now.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pages: Mutex<BTreeMap<Key, watch::Receiver<Arc<Parts>>>>,
}

impl Live {
    /// The page as it changes; made from now on if nobody looks at it yet.
    fn page(&self, shared: &Arc<Shared>, asked: Query) -> watch::Receiver<Arc<Parts>> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever made it has ended when the sender is gone.
        pages.retain(|_, page| page.has_changed().is_ok());
        let key = (asked.runs.clone(), shared.direction(&asked).lang());
        let page = pages.entry(key).or_insert_with(|| {
            let (sender, page) = watch::channel(Arc::default());
            tokio::spawn(make(shared.clone(), Arc::new(asked), sender));
            page
        });
        page.clone()
    }
}

/// Makes a page again and again, until nobody looks at it.
async fn make(shared: Arc<Shared>, asked: Arc<Query>, sender: watch::Sender<Arc<Parts>>) {
    // The one in the list is one.
    while sender.receiver_count() > 1 && !shared.stop.load(Ordering::SeqCst) {
        let (reader, about) = (shared.clone(), asked.clone());
        let Ok(parts) = made(move || reader.parts(&about)).await else { return };
        sender.send_if_modified(|page| {
            let changed = **page != parts;
            if changed {
                *page = Arc::new(parts);
            }
            changed
        });
        tokio::time::sleep(EVERY).await;
    }
}

/// The events of a page.
pub(crate) fn events(shared: Arc<Shared>, asked: Query) -> Response {
    let (sender, receiver) = mpsc::channel::<String>(4);
    let page = shared.live.page(&shared, asked);
    tokio::spawn(send_changes(page, sender));
    http::respond(200, "text/event-stream", Body::made(Events(receiver)))
}

async fn send_changes(mut page: watch::Receiver<Arc<Parts>>, sender: mpsc::Sender<String>) {
    let mut sent: BTreeMap<String, String> = BTreeMap::new();
    loop {
        let parts = page.borrow_and_update().clone();
        let mut changed = serde_json::Map::new();
        for (id, part) in parts.iter() {
            if sent.get(id) != Some(part) {
                changed.insert(id.clone(), Value::String(part.clone()));
                sent.insert(id.clone(), part.clone());
            }
        }
        if !changed.is_empty() && sender.send(format!("data: {}\n\n", json!({"parts": changed}))).await.is_err() {
            return;
        }
        tokio::select! {
            () = sender.closed() => return,
            new = page.changed() => if new.is_err() { return },
            () = tokio::time::sleep(KEEP_ALIVE) => {
                if sender.send(": still here\n\n".to_owned()).await.is_err() {
                    return;
                }
            }
        }
    }
}

struct Events(mpsc::Receiver<String>);

impl hyper::body::Body for Events {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(context).map(|text| text.map(|text| Ok(Frame::data(Bytes::from(text)))))
    }
}
