//! `tandem watch`: runs in a browser, live. Reads the folders of runs and nothing else.

mod page;
mod runs;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Method;
use hyper::body::{Bytes, Frame};
use hyper::header::{HeaderValue, SET_COOKIE};
use serde_json::{Value, json};
use tandem_observe::{Direction, Line, Side, escape};
use tandem_train::RunRecord;
use tokio::sync::mpsc;

use crate::connections::{self, ConnectionLimits, Connections};
use crate::errors::ApiError;
use crate::guard::{self, COOKIE, Guard};
use crate::http::{self, Body, Query, Request, Response};
use crate::pages;
use page::Parts;
use runs::Runs;

/// How often files are looked at.
const EVERY: Duration = Duration::from_secs(1);
/// Something is sent at least this often, so that a browser that is gone is noticed.
const KEEP_ALIVE: u32 = 15;
/// Runs that are compared, at most.
const MOST_COMPARED: usize = 8;

/// Where texts come from.
pub trait Texts: Send + Sync {
    /// A text of the catalog.
    fn text(&self, direction: Direction, id: &str, values: &[(&str, &dyn Display)]) -> String;

    /// A sentence whose English is in the code, such as the source of a setting.
    fn sentence(&self, direction: Direction, english: &str) -> String;

    /// What a run that has snapshots did, as its report shows it.
    fn side(&self, direction: Direction, name: &str, record: &RunRecord) -> Side;
}

/// What is watched, and where it is shown.
#[derive(Clone, Debug)]
pub struct WatchSettings {
    /// Runs, or directories with runs in them.
    pub dirs: Vec<PathBuf>,
    /// Where to listen.
    pub listen: SocketAddr,
    /// What browsers must know; none lets everybody in.
    pub token: Option<String>,
    /// The language of a page whose address names none.
    pub direction: Direction,
}

struct Shared {
    runs: Runs,
    texts: Box<dyn Texts>,
    direction: Direction,
    token: Option<String>,
    stop: Arc<AtomicBool>,
}

/// Shows runs until `stop` is set. `on_listening` hears the address.
///
/// # Errors
///
/// If the address cannot be listened to.
pub fn watch(
    settings: WatchSettings,
    texts: Box<dyn Texts>,
    stop: Arc<AtomicBool>,
    on_listening: impl FnOnce(SocketAddr),
) -> io::Result<()> {
    crate::runtime()?.block_on(async {
        let listener = tokio::net::TcpListener::bind(settings.listen).await?;
        let address = listener.local_addr()?;
        on_listening(address);
        let guard =
            Guard { token: settings.token.clone(), open: is_open, form: true, loopback: address.ip().is_loopback() };
        let shared = Arc::new(Shared {
            runs: Runs::new(settings.dirs),
            texts,
            direction: settings.direction,
            token: settings.token,
            stop: stop.clone(),
        });
        let patience = Duration::from_secs(30);
        let limits = ConnectionLimits { most: 256, head_timeout: patience, write_timeout: patience };
        let guard = Arc::new(guard);
        let handler: http::Handler = Arc::new(move |request| Box::pin(answer(shared.clone(), guard.clone(), request)));
        connections::serve(listener, handler, limits, Arc::new(Connections::default()), stop, || ()).await;
        Ok(())
    })
}

/// Whoever knows no token gets the form that asks for one.
fn is_open(path: &str) -> bool {
    path == "/enter" || path == "/healthz" || pages::WATCH.iter().any(|asset| asset.path == path)
}

async fn answer(shared: Arc<Shared>, guard: Arc<Guard>, request: Request) -> Response {
    let mut response = match guard.refusal(&request) {
        Some(refusal) => refusal,
        None => route(shared, request).await.unwrap_or_else(|error| error.response()),
    };
    guard::dress(&mut response);
    response
}

async fn route(shared: Arc<Shared>, request: Request) -> Result<Response, ApiError> {
    let asked = Query::of(request.uri().query(), MOST_COMPARED);
    if request.method() != Method::GET {
        return Err(ApiError::new(405, "wrong_method", "only GET"));
    }
    match request.uri().path() {
        "/" => table(shared, Query { runs: Vec::new(), ..asked }).await,
        "/run" => run(shared, asked).await,
        "/events" => Ok(events(shared, asked)),
        "/sample" => sample(shared, asked).await,
        "/enter" => Ok(enter(&shared, &asked)),
        "/healthz" => Ok(http::respond(200, "text/plain", "ok\n")),
        path => pages::find(pages::WATCH, path).ok_or_else(|| ApiError::new(404, "unknown_path", "nothing is here")),
    }
}

impl Shared {
    fn direction(&self, asked: &Query) -> Direction {
        match asked.get("lang") {
            Some("en") => Direction::LeftToRight,
            Some("fa") => Direction::RightToLeft,
            _ => self.direction,
        }
    }

    /// The parts of a page: of these runs, or the table of all.
    fn parts(&self, asked: &Query) -> Parts {
        let direction = self.direction(asked);
        match asked.runs.is_empty() {
            true => page::table(&self.runs.all(), direction, &*self.texts),
            false => page::runs(&self.runs.named(&asked.runs), direction, &*self.texts),
        }
    }
}

/// Reads files away from the network's thread.
async fn made<T: Send + 'static>(make: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(make).await.map_err(|error| ApiError::new(500, "page_failed", error.to_string()))
}

fn html(text: String) -> Response {
    http::respond(200, "text/html; charset=utf-8", text)
}

async fn table(shared: Arc<Shared>, asked: Query) -> Result<Response, ApiError> {
    let text = made(move || {
        let direction = shared.direction(&asked);
        let title = shared.texts.text(direction, "watch-title", &[]);
        page::page(&title, &shared.parts(&asked), direction, &*shared.texts, "")
    });
    Ok(html(text.await?))
}

async fn run(shared: Arc<Shared>, asked: Query) -> Result<Response, ApiError> {
    if asked.runs.is_empty() {
        // Nothing was chosen in the table.
        return Ok(http::redirect("/"));
    }
    let answer = made(move || {
        let known = shared.runs.named(&asked.runs);
        if known.is_empty() {
            let all = shared.runs.all();
            let names: Vec<String> = all.iter().map(|run| run.id.clone()).collect();
            return Err(ApiError::unknown("run", &asked.runs[0], &names));
        }
        let direction = shared.direction(&asked);
        let title = known.iter().map(|run| run.id.as_str()).collect::<Vec<_>>().join(", ");
        let names: Vec<String> = asked.runs.iter().map(|run| format!("run={}", http::encoded(run))).collect();
        Ok(page::page(&title, &shared.parts(&asked), direction, &*shared.texts, &names.join("&")))
    });
    Ok(html(answer.await??))
}

/// A sound or an image of a run.
async fn sample(shared: Arc<Shared>, asked: Query) -> Result<Response, ApiError> {
    let (run, file) =
        (asked.runs.first().cloned().unwrap_or_default(), asked.get("file").unwrap_or_default().to_owned());
    let kind = if file.ends_with(".png") { "image/png" } else { "audio/wav" };
    let bytes = made(move || shared.runs.sample(&run, &file).and_then(|path| std::fs::read(path).ok())).await?;
    let bytes = bytes.ok_or_else(|| ApiError::new(404, "unknown_sample", "no such sample"))?;
    Ok(http::respond(200, kind, bytes))
}

/// The token, from the form: kept as a cookie that scripts cannot read and other sites do not send.
fn enter(shared: &Shared, asked: &Query) -> Response {
    let given = asked.get("token").unwrap_or_default();
    let right = shared.token.as_deref().is_none_or(|token| guard::same(given.as_bytes(), token.as_bytes()));
    if right && !given.is_empty() {
        let cookie = format!("{COOKIE}={}; HttpOnly; SameSite=Strict; Path=/", http::encoded(given));
        let mut response = http::redirect("/");
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().insert(SET_COOKIE, cookie);
        }
        return response;
    }
    let direction = shared.direction(asked);
    let text = |id: &str| escape(&shared.texts.text(direction, id, &[]));
    let form = format!(
        "<form action=\"/enter\" method=\"get\" class=\"card\"><label>{} <input name=\"token\" type=\"password\" \
         autocomplete=\"off\" required></label> <button>{}</button></form>",
        text("watch-token"),
        text("watch-enter")
    );
    let title = shared.texts.text(direction, "watch-title", &[]);
    html(page::page(&title, &vec![("enter".to_owned(), form)], direction, &*shared.texts, ""))
}

/// Server-sent events: the parts of a page that have changed, as they change.
fn events(shared: Arc<Shared>, asked: Query) -> Response {
    let (sender, receiver) = mpsc::channel::<String>(4);
    tokio::spawn(send_changes(shared, Arc::new(asked), sender));
    http::respond(200, "text/event-stream", Body::made(Events(receiver)))
}

async fn send_changes(shared: Arc<Shared>, asked: Arc<Query>, sender: mpsc::Sender<String>) {
    let mut sent: BTreeMap<String, String> = BTreeMap::new();
    let mut quiet = 0;
    let mut every = tokio::time::interval(EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        if shared.stop.load(Ordering::SeqCst) || sender.is_closed() {
            return;
        }
        let (reader, about) = (shared.clone(), asked.clone());
        let Ok(parts) = made(move || reader.parts(&about)).await else { return };
        let mut changed = serde_json::Map::new();
        for (id, part) in parts {
            if sent.get(&id) != Some(&part) {
                changed.insert(id.clone(), Value::String(part.clone()));
                sent.insert(id, part);
            }
        }
        quiet += 1;
        let text = match changed.is_empty() {
            false => format!("data: {}\n\n", json!({"parts": changed})),
            true if quiet >= KEEP_ALIVE => ": still here\n\n".to_owned(),
            true => continue,
        };
        quiet = 0;
        if sender.send(text).await.is_err() {
            return;
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

/// Losses of a log, for a run without snapshots.
fn losses(log: &[Value]) -> Vec<Line> {
    let point = |line: &Value| Some((line["step"].as_f64()?, line["loss"].as_f64()?));
    vec![Line { name: "loss".to_owned(), limit: None, points: log.iter().filter_map(point).collect() }]
}
