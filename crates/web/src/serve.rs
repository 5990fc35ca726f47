//! `tandem serve`: voices behind OpenAI's interface, and a page to try them.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::Method;
use serde_json::json;
use tandem_synth::SynthesisSettings;
use tokio::sync::Semaphore;

use crate::body;
use crate::connections::{self, ConnectionLimits};
use crate::counters::{Counters, Gauges};
use crate::engine::{BatchHook, Engine};
use crate::errors::ApiError;
use crate::follow;
use crate::guard::{self, Guard};
use crate::http::{self, Query, Request, Response};
use crate::pages;
use crate::request::voice_name;
use crate::seats::Connections;
use crate::speech;
use crate::voices::{LoadVoice, LoadedVoice, Voices};
use crate::workers::Workers;

/// Bytes of an uploaded recording, at most: some minutes of FLAC, half a minute of WAV of the best kind.
const MOST_UPLOAD_BYTES: usize = 10 << 20;
/// Recordings that are uploaded at once: each may be as large as that.
const MOST_UPLOADS: usize = 4;
/// Texts and recordings that are read at once.
const WORKERS: usize = 2;

/// How voices are served.
#[derive(Clone)]
pub struct ServeSettings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// What clients must know; none lets everybody in.
    pub token: Option<String>,
    /// Characters of a text, at most.
    pub most_characters: usize,
    /// Requests for speech that are admitted at once.
    pub most_requests: usize,
    /// Connections at once.
    pub most_connections: usize,
    /// Seconds of speech of an answer that is not streamed, at most: it is in memory until it is whole.
    pub most_seconds: u64,
    /// Other names of this server, as a proxy before it may have.
    pub hosts: Vec<String>,
    /// Sentences that are synthesized at once.
    pub batch_size: usize,
    /// How the flow is integrated; speed and seed are those of each request.
    pub synthesis: SynthesisSettings,
    /// Load later checkpoints of the runs as they appear.
    pub follow: bool,
    /// How long a client may take for the head of a request, for its body, or to take what is sent to it.
    pub patience: Duration,
    /// Called before each batch.
    pub batch_hook: Option<BatchHook>,
}

impl Default for ServeSettings {
    fn default() -> ServeSettings {
        ServeSettings {
            listen: SocketAddr::from(([127, 0, 0, 1], 7860)),
            token: None,
            most_characters: 20_000,
            most_requests: 64,
            most_connections: 256,
            most_seconds: 1800,
            hosts: Vec::new(),
            batch_size: 8,
            synthesis: SynthesisSettings::default(),
            follow: false,
            patience: Duration::from_secs(30),
            batch_hook: None,
        }
    }
}

/// What happens while voices are served.
#[derive(Clone, Debug)]
pub enum ServeEvent {
    /// It listens here.
    Listening(SocketAddr),
    /// A later checkpoint of a run is used from now on.
    Reloaded {
        /// The run's name.
        model: String,
        /// Its step.
        step: u64,
    },
    /// A later checkpoint of a run cannot be used; what was loaded before stays.
    ReloadFailed {
        /// The run's name.
        model: String,
        /// Why.
        reason: String,
    },
}

/// Hears what happens.
pub type OnEvent = Arc<dyn Fn(ServeEvent) + Send + Sync>;

pub(crate) struct Limits {
    pub(crate) most_characters: usize,
    pub(crate) most_seconds: u64,
    pub(crate) body_timeout: Duration,
}

/// What handlers share.
pub(crate) struct Shared {
    pub(crate) voices: Voices,
    pub(crate) engine: Arc<Engine>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) limits: Limits,
    pub(crate) workers: Workers,
    uploads: Semaphore,
    connections: Arc<Connections>,
    stop: Arc<AtomicBool>,
}

/// Serves voices until `stop` is set, then finishes what is under way. `load` opens a checkpoint again for `follow`.
///
/// # Errors
///
/// If the address cannot be listened to.
pub fn serve(
    voices: Vec<(PathBuf, LoadedVoice)>,
    load: LoadVoice,
    settings: ServeSettings,
    stop: Arc<AtomicBool>,
    on_event: OnEvent,
) -> io::Result<()> {
    let runtime = crate::runtime()?;
    runtime.block_on(async {
        let listener = connections::listen(settings.listen)?;
        let address = listener.local_addr()?;
        let counters = Arc::new(Counters::default());
        let (engine, thread) = Engine::start(
            settings.most_requests,
            settings.batch_size,
            settings.synthesis,
            settings.batch_hook.clone(),
            counters.clone(),
        );
        let shared = Arc::new(Shared {
            voices: Voices::new(voices),
            engine: engine.clone(),
            counters,
            limits: Limits {
                most_characters: settings.most_characters,
                most_seconds: settings.most_seconds,
                body_timeout: settings.patience,
            },
            workers: Workers::new(WORKERS),
            uploads: Semaphore::new(MOST_UPLOADS),
            connections: Arc::new(Connections::default()),
            stop: stop.clone(),
        });
        let follower = settings.follow.then(|| follow::start(shared.clone(), load, stop.clone(), on_event.clone()));
        let guard = Guard {
            token: settings.token.clone(),
            open: is_open,
            pages: &[],
            loopback: address.ip().is_loopback(),
            hosts: settings.hosts.clone(),
        };
        let limits = ConnectionLimits {
            most: settings.most_connections,
            head_timeout: settings.patience,
            write_timeout: settings.patience,
        };
        on_event(ServeEvent::Listening(address));
        let (connections, refusals) = (shared.connections.clone(), shared.clone());
        let refused = move || refusals.counters.refused_connection();
        let guard = Arc::new(guard);
        let handler: http::Handler = Arc::new(move |request| Box::pin(answer(shared.clone(), guard.clone(), request)));
        connections::serve(listener, handler, limits, connections, stop, refused).await;
        engine.stop();
        let _ = thread.join();
        if let Some(follower) = follower {
            let _ = follower.join();
        }
        Ok(())
    })
}

/// Paths that need no token: they tell nothing.
fn is_open(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/openapi.json") || pages::SERVE.iter().any(|asset| asset.path == path)
}

/// Every path and its methods; `openapi.json` describes those below `/v1` (a test compares).
pub(crate) const PATHS: [(&str, &str); 9] = [
    ("/v1/audio/speech", "POST"),
    ("/v1/models", "GET, HEAD"),
    ("/v1/voices", "GET, HEAD, POST"),
    ("/v1/voices/{name}", "DELETE"),
    ("/healthz", "GET, HEAD"),
    ("/readyz", "GET, HEAD"),
    ("/metrics", "GET, HEAD"),
    ("/openapi.json", "GET, HEAD"),
    ("/", "GET, HEAD"),
];

/// The description of the interface.
pub const OPENAPI: &str = include_str!("../assets/openapi.json");

async fn answer(shared: Arc<Shared>, guard: Arc<Guard>, request: Request) -> Response {
    let label = label(request.uri().path());
    let mut response = match guard.refusal(&request) {
        Some(refusal) => refusal,
        None => route(shared.clone(), request).await.unwrap_or_else(|error| error.response()),
    };
    guard::dress(&mut response);
    shared.counters.response(label, response.status().as_u16());
    response
}

/// The name of a path in counters: of those there are, not of what is asked for, so that there are never more of them.
fn label(path: &str) -> &'static str {
    known(path).map_or("other", |(label, _)| label)
}

/// The path among [`PATHS`].
fn known(path: &str) -> Option<(&'static str, &'static str)> {
    let of_voice = path.strip_prefix(VOICES).is_some_and(|name| !name.is_empty());
    let path = if of_voice { "/v1/voices/{name}" } else { path };
    PATHS.into_iter().find(|(known, _)| *known == path)
}

/// The path of an uploaded voice, without its name.
const VOICES: &str = "/v1/voices/";

async fn route(shared: Arc<Shared>, request: Request) -> Result<Response, ApiError> {
    let (method, path) = (http::method(&request), request.uri().path().to_owned());
    match (&method, path.as_str()) {
        (&Method::POST, "/v1/audio/speech") => speech::speak(shared, request).await,
        (&Method::GET, "/v1/models") => Ok(http::json(200, &shared.voices.models())),
        (&Method::GET, "/v1/voices") => Ok(http::json(200, &shared.voices.voices())),
        (&Method::POST, "/v1/voices") => upload(shared, request).await,
        (&Method::DELETE, path) if label(path) == "/v1/voices/{name}" => {
            let query = Query::of(request.uri().query(), 0);
            let name = http::decoded(path.trim_start_matches(VOICES));
            Ok(http::json(200, &shared.voices.forget(query.get("model"), &name)?))
        }
        (&Method::GET, "/healthz") => Ok(http::json(200, &json!({"status": "ok"}))),
        (&Method::GET, "/readyz") => ready(&shared),
        (&Method::GET, "/metrics") => {
            let (requests, pending) = shared.engine.load();
            let uploads = MOST_UPLOADS - shared.uploads.available_permits();
            let gauges = Gauges { requests, pending, uploads, connections: shared.connections.count() };
            let text = shared.counters.exposition(gauges);
            Ok(http::respond(200, "text/plain; version=0.0.4", text))
        }
        (&Method::GET, "/openapi.json") => Ok(http::respond(200, "application/json", OPENAPI)),
        (&Method::GET, path) if pages::find(pages::SERVE, path).is_some() => {
            Ok(pages::find(pages::SERVE, path).expect("just found"))
        }
        (_, path) => Err(match known(path) {
            Some((_, methods)) => ApiError::wrong_method(methods),
            None => ApiError::new(404, "unknown_path", "nothing is here; see /openapi.json"),
        }),
    }
}

fn ready(shared: &Shared) -> Result<Response, ApiError> {
    if shared.stop.load(Ordering::SeqCst) {
        return Err(ApiError::new(503, "stopping", "the server is ending"));
    }
    Ok(http::json(200, &json!({"status": "ready", "models": shared.voices.loaded().len()})))
}

/// A reference recording: the body is the audio file itself.
async fn upload(shared: Arc<Shared>, request: Request) -> Result<Response, ApiError> {
    let is_audio = |kind: &str| kind.starts_with("audio/") || kind == "application/octet-stream";
    body::expect_type(&request, is_audio, "audio/wav, audio/flac, audio/mpeg, audio/ogg or application/octet-stream")?;
    let query = Query::of(request.uri().query(), 0);
    let name = voice_name(query.get("name").unwrap_or_default())?;
    let _place = shared.uploads.try_acquire().map_err(|_| {
        let message = "other recordings are being uploaded; try again later";
        ApiError::new(429, "too_many_uploads", message).retry_after(5)
    })?;
    let audio = body::read(request.body(), MOST_UPLOAD_BYTES, shared.limits.body_timeout).await?;
    let worker = shared.clone();
    let added = shared.workers.run(move |_| worker.voices.upload(query.get("model"), &name, audio)).await??;
    Ok(http::json(201, &added))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_has_every_path_and_no_other() {
        let openapi: serde_json::Value = serde_json::from_str(OPENAPI).expect("JSON");
        let described: Vec<&String> = openapi["paths"].as_object().expect("paths").keys().collect();
        assert_eq!(described, PATHS.iter().map(|(path, _)| path).filter(|path| **path != "/").collect::<Vec<_>>());
        assert_eq!(openapi["info"]["version"], env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn pages_need_no_token_and_speech_does() {
        assert!(is_open("/") && is_open("/healthz") && is_open("/speak.js"));
        assert!(!is_open("/v1/audio/speech") && !is_open("/metrics") && !is_open("/v1/voices"));
    }
}
