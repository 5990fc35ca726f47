//! [`Bucket`]: objects read by range, many at once, with retries. The only place with an async runtime: one thread drives it, and
//! whoever asks waits on a channel.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path as Key;
use object_store::{ClientOptions, GetOptions, GetRange, ObjectMeta, ObjectStore, RetryConfig};
use tandem_data::{Files, MetadataError, Piece, Remote, RemoteError, RemoteFault, user_cache};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, oneshot};
use xxhash_rust::xxh3::xxh3_64;

use crate::fault::{is_passing, reason};
use crate::object_cache::ObjectCache;
use crate::sketch;

/// How often something is asked for. With the pauses between them that is some six seconds: a server that restarts, not one that is
/// gone.
const ATTEMPTS: u32 = 6;
/// The pause before the second attempt; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Requests under way at once: enough for a batch of clips to cost about one round trip.
const AT_ONCE: usize = 32;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Without a byte for so long a request has failed.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Buckets that were opened, so that the parts of a corpus share one.
#[derive(Debug, Default)]
pub(crate) struct Opened(Mutex<HashMap<String, Files>>);

impl Opened {
    pub(crate) fn open(&self, url: &str) -> Result<Files, MetadataError> {
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(files) = opened.get(url) {
            return Ok(files.clone());
        }
        let kept = user_cache().join(format!("{:016x}", xxh3_64(url.as_bytes())));
        let dir = kept.join("files");
        let bucket = Bucket::new(url, &dir)?;
        sketch::update(&bucket, &dir)?;
        let files = Files::remote(dir, kept, Arc::new(bucket));
        opened.insert(url.to_owned(), files.clone());
        Ok(files)
    }
}

/// A prefix of a bucket, or a path of a server.
pub(crate) struct Bucket {
    url: String,
    /// Before the names of objects; empty for a whole bucket.
    prefix: String,
    /// A web server has no lists of its files.
    pub(crate) can_list: bool,
    /// The stand-ins: their size and date say which version of an object is meant.
    dir: PathBuf,
    store: Arc<dyn ObjectStore>,
    cache: ObjectCache,
    runtime: Runtime,
    slots: Arc<Semaphore>,
}

impl fmt::Debug for Bucket {
    /// Only the address: what the store was built with has secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("url", &self.url).finish_non_exhaustive()
    }
}

/// A thread that drives requests.
struct Runtime {
    handle: Handle,
    /// Dropping it ends the thread.
    _stop: oneshot::Sender<()>,
}

impl Runtime {
    fn start() -> std::io::Result<Runtime> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, (stop, stopped)) = (runtime.handle().clone(), oneshot::channel::<()>());
        std::thread::Builder::new().name("store".to_owned()).spawn(move || {
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Runtime { handle, _stop: stop })
    }
}

impl Bucket {
    /// Connects to nothing yet. Credentials come from the environment, as the tools of each provider read them.
    fn new(url: &str, dir: &Path) -> Result<Bucket, MetadataError> {
        let fail = |error| MetadataError::Io(dir.to_owned(), error);
        let (store, can_list) = connect(url).map_err(|_| {
            MetadataError::Remote(RemoteError { url: url.to_owned(), attempts: 0, reason: RemoteFault::Address })
        })?;
        let (_, rest) = url.split_once("://").unwrap_or_default();
        // A web server's path is part of its address.
        let prefix = if can_list { rest.split_once('/').map_or("", |(_, prefix)| prefix) } else { "" };
        Ok(Bucket {
            url: url.to_owned(),
            prefix: prefix.to_owned(),
            can_list,
            dir: dir.to_owned(),
            store,
            cache: ObjectCache::open(&user_cache().join("objects"))?,
            runtime: Runtime::start().map_err(fail)?,
            slots: Arc::new(Semaphore::new(AT_ONCE)),
        })
    }

    fn key(&self, name: &str) -> Key {
        let full = if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) };
        Key::parse(&full).unwrap_or_else(|_| Key::from(full))
    }

    /// All objects below the prefix, by their names from there.
    pub(crate) fn list(&self) -> Result<Vec<(String, ObjectMeta)>, RemoteError> {
        let (store, top) = (self.store.clone(), self.key(""));
        let url = self.url.clone();
        let listed = self.wait(async move {
            let (mut objects, mut below) = (Vec::new(), vec![top]);
            while let Some(prefix) = below.pop() {
                let list = || {
                    let (store, prefix) = (store.clone(), prefix.clone());
                    async move { store.list_with_delimiter(Some(&prefix)).await }
                };
                let found = retried(&url, list).await?;
                below.extend(found.common_prefixes);
                objects.extend(found.objects);
            }
            Ok(objects)
        })?;
        let prefix = format!("{}/", self.prefix);
        let prefix = if self.prefix.is_empty() { "" } else { &prefix };
        let name = |object: ObjectMeta| {
            let name = object.location.as_ref().strip_prefix(prefix)?.to_owned();
            Some((name, object))
        };
        Ok(listed.into_iter().filter_map(name).collect())
    }

    /// Bytes of an object, past the cache.
    pub(crate) fn get(&self, piece: &Piece) -> Result<Vec<u8>, RemoteError> {
        self.wait(self.request(piece))
    }

    /// The request for some bytes.
    fn request(&self, (name, range): &Piece) -> impl Future<Output = Result<Vec<u8>, RemoteError>> + Send + use<> {
        let (store, slots, key, range) = (self.store.clone(), self.slots.clone(), self.key(name), range.clone());
        let url = format!("{}/{name}", self.url);
        async move {
            let _slot = slots.acquire_owned().await;
            let wanted = range.as_ref().map(|range| range.end - range.start);
            // A request for no bytes is not a request.
            if wanted == Some(0) {
                return Ok(Vec::new());
            }
            let get = || {
                let options = GetOptions { range: range.clone().map(GetRange::Bounded), ..GetOptions::default() };
                let (store, key) = (store.clone(), key.clone());
                async move { store.get_opts(&key, options).await?.bytes().await }
            };
            let bytes = retried(&url, get).await?;
            match wanted.is_none_or(|wanted| wanted == bytes.len() as u64) {
                true => Ok(bytes.to_vec()),
                false => Err(RemoteError { url, attempts: 1, reason: RemoteFault::Length }),
            }
        }
    }

    /// Runs a request on the thread for it, and waits.
    fn wait<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, RemoteError>> + Send + 'static,
    ) -> Result<T, RemoteError> {
        let (send, receive) = mpsc::channel();
        self.runtime.handle.spawn(async move {
            let _ = send.send(request.await);
        });
        receive.recv().unwrap_or_else(|_| Err(self.lost("")))
    }

    /// A request that ended without an answer.
    fn lost(&self, name: &str) -> RemoteError {
        let url = format!("{}/{name}", self.url).trim_end_matches('/').to_owned();
        RemoteError { url, attempts: 1, reason: RemoteFault::Other }
    }

    /// What an object's bytes are kept by: address, version and place.
    fn cache_key(&self, (name, range): &Piece) -> u128 {
        let version = self.dir.join(name).metadata().ok();
        let date = version.as_ref().and_then(|version| version.modified().ok());
        self.cache.key(&format!("{} {name} {range:?} {:?} {date:?}", self.url, version.map(|version| version.len())))
    }
}

impl Remote for Bucket {
    fn url(&self) -> &str {
        &self.url
    }

    fn read(&self, piece: &Piece) -> Result<Vec<u8>, RemoteError> {
        let read = self.read_all(std::slice::from_ref(piece)).pop();
        read.unwrap_or_else(|| Err(self.lost(&piece.0)))
    }

    fn read_all(&self, pieces: &[Piece]) -> Vec<Result<Vec<u8>, RemoteError>> {
        let (send, receive) = mpsc::channel();
        let mut read: Vec<Option<Result<Vec<u8>, RemoteError>>> = pieces.iter().map(|_| None).collect();
        let keys: Vec<u128> = pieces.iter().map(|piece| self.cache_key(piece)).collect();
        for (n, piece) in pieces.iter().enumerate() {
            if let Some(bytes) = self.cache.load(keys[n]) {
                read[n] = Some(Ok(bytes));
                continue;
            }
            let (request, send) = (self.request(piece), send.clone());
            self.runtime.handle.spawn(async move {
                let _ = send.send((n, request.await));
            });
        }
        drop(send);
        for (n, bytes) in receive {
            if let Ok(bytes) = &bytes {
                self.cache.store(keys[n], bytes);
            }
            read[n] = Some(bytes);
        }
        let lost = |(read, piece): (Option<_>, &Piece)| read.unwrap_or_else(|| Err(self.lost(&piece.0)));
        read.into_iter().zip(pieces).map(lost).collect()
    }
}

/// Asks until there is an answer, or one that will not change.
async fn retried<T, F>(url: &str, ask: impl Fn() -> F) -> Result<T, RemoteError>
where
    F: Future<Output = object_store::Result<T>>,
{
    let mut attempts = 1;
    loop {
        let reason = match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) => reason(&error),
        };
        if attempts == ATTEMPTS || !is_passing(&reason) {
            return Err(RemoteError { url: url.to_owned(), attempts, reason });
        }
        tokio::time::sleep(pause(url, attempts)).await;
        attempts += 1;
    }
}

/// Doubles with each attempt, and is spread by up to half of it, so that requests that failed together do not come back together.
fn pause(url: &str, attempts: u32) -> Duration {
    let whole = FIRST_PAUSE * 2u32.pow(attempts - 1);
    let share = xxh3_64(format!("{url} {attempts}").as_bytes()) % 512;
    whole.mul_f64(0.75 + share as f64 / 1024.0)
}

/// A client for an address, and whether it can list.
fn connect(url: &str) -> object_store::Result<(Arc<dyn ObjectStore>, bool)> {
    // One provider for all clients; a second call changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Retries are counted here, and named.
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let client = ClientOptions::default()
        .with_timeout_disabled()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_read_timeout(READ_TIMEOUT)
        .with_pool_max_idle_per_host(AT_ONCE);
    let allow_http = |name: &str| std::env::var(name).is_ok_and(|value| value.eq_ignore_ascii_case("true"));
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    Ok(match scheme {
        "s3" => {
            let client = client.with_allow_http(allow_http("AWS_ALLOW_HTTP"));
            let builder = AmazonS3Builder::from_env().with_url(url).with_retry(retry).with_client_options(client);
            (Arc::new(builder.build()?), true)
        }
        "gs" => {
            let client = client.with_allow_http(allow_http("GOOGLE_ALLOW_HTTP"));
            let builder = GoogleCloudStorageBuilder::from_env().with_url(url).with_retry(retry);
            (Arc::new(builder.with_client_options(client).build()?), true)
        }
        "az" => {
            let client = client.with_allow_http(allow_http("AZURE_ALLOW_HTTP"));
            let builder = MicrosoftAzureBuilder::from_env().with_url(url).with_retry(retry);
            (Arc::new(builder.with_client_options(client).build()?), true)
        }
        _ => {
            let client = client.with_allow_http(scheme == "http");
            let builder = HttpBuilder::new().with_url(url).with_retry(retry).with_client_options(client);
            (Arc::new(builder.build()?), false)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_stay_within_some_seconds() {
        let pauses: Vec<Duration> = (1..ATTEMPTS).map(|attempt| pause("s3://b/k", attempt)).collect();
        for (n, pause) in pauses.iter().enumerate() {
            let whole = FIRST_PAUSE * 2u32.pow(n as u32);
            assert!(*pause >= whole.mul_f64(0.75) && *pause <= whole.mul_f64(1.25), "{pause:?}");
        }
        assert!(pauses.iter().sum::<Duration>() < Duration::from_secs(8));
        assert_ne!(pause("s3://b/k", 1), pause("s3://b/l", 1), "not all at once");
    }
}
