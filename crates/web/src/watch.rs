//! `tandem watch`: runs in a browser, live. Reads the folders of runs and nothing else.

mod live;
mod page;
mod runs;

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hyper::Method;
use hyper::header::{ACCEPT_RANGES, CONTENT_RANGE, HeaderValue, RANGE, SET_COOKIE};
use serde_json::Value;
use tandem_observe::{Direction, Line, Side, escape};
use tandem_train::RunRecord;

use crate::body;
use crate::connections::{self, ConnectionLimits};
use crate::errors::ApiError;
use crate::guard::{self, COOKIE, Guard};
use crate::http::{self, Query, Request, Response};
use crate::pages;
use crate::seats::Connections;
use live::Live;
use page::Parts;
use runs::Runs;

/// Runs that are compared, at most.
const MOST_COMPARED: usize = 8;
/// Bytes of the form that asks for the token, at most.
const MOST_FORM_BYTES: usize = 4096;
/// How long a browser may take to send or to take something.
const PATIENCE: Duration = Duration::from_secs(30);

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
    /// Other names of this server, as a proxy before it may have.
    pub hosts: Vec<String>,
    /// The language of a page whose address names none.
    pub direction: Direction,
}

struct Shared {
    runs: Runs,
    texts: Box<dyn Texts>,
    direction: Direction,
    token: Option<String>,
    live: Live,
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
        let listener = connections::listen(settings.listen)?;
        let address = listener.local_addr()?;
        on_listening(address);
        let guard = Guard {
            token: settings.token.clone(),
            open: is_open,
            pages: &["/", "/run"],
            loopback: address.ip().is_loopback(),
            hosts: settings.hosts,
        };
        let shared = Arc::new(Shared {
            runs: Runs::new(settings.dirs),
            texts,
            direction: settings.direction,
            token: settings.token,
            live: Live::default(),
            stop: stop.clone(),
        });
        let limits = ConnectionLimits { most: 256, head_timeout: PATIENCE, write_timeout: PATIENCE };
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
    match (http::method(&request), request.uri().path()) {
        (Method::POST, "/enter") => return enter(&shared, &asked, &request).await,
        (Method::GET, _) => {}
        (_, path) => {
            return Err(ApiError::wrong_method(if path == "/enter" { "GET, HEAD, POST" } else { "GET, HEAD" }));
        }
    }
    match request.uri().path() {
        "/" => table(shared, Query { runs: Vec::new(), ..asked }).await,
        "/run" => run(shared, asked).await,
        "/events" => Ok(live::events(shared, asked)),
        "/sample" => sample(shared, asked, http::header(request.headers(), RANGE)).await,
        "/enter" => Ok(form(&shared, &asked, false)),
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

/// A sound or an image of a run, or a part of it: players ask for parts to find their way in a sound.
async fn sample(shared: Arc<Shared>, asked: Query, range: Option<&str>) -> Result<Response, ApiError> {
    let (run, file) =
        (asked.runs.first().cloned().unwrap_or_default(), asked.get("file").unwrap_or_default().to_owned());
    let kind = if file.ends_with(".png") { "image/png" } else { "audio/wav" };
    let bytes = made(move || shared.runs.sample(&run, &file).and_then(|path| std::fs::read(path).ok())).await?;
    let bytes = bytes.ok_or_else(|| ApiError::new(404, "unknown_sample", "no such sample"))?;
    let mut response = match range.and_then(|range| http::range(range, bytes.len())) {
        None => http::respond(200, kind, bytes),
        Some(part) => {
            let about = format!("bytes {}-{}/{}", part.start, part.end - 1, bytes.len());
            let mut response = http::respond(206, kind, bytes[part].to_vec());
            response.headers_mut().insert(CONTENT_RANGE, HeaderValue::from_str(&about).expect("digits"));
            response
        }
    };
    response.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    Ok(response)
}

/// The token, from the form: kept as a cookie that scripts cannot read and other sites do not send.
async fn enter(shared: &Shared, asked: &Query, request: &Request) -> Result<Response, ApiError> {
    let sent = body::read(request.body(), MOST_FORM_BYTES, PATIENCE).await?;
    let sent = Query::of(Some(&String::from_utf8_lossy(&sent)), 0);
    let given = sent.get("token").unwrap_or_default();
    let right = shared.token.as_deref().is_none_or(|token| guard::same(given.as_bytes(), token.as_bytes()));
    if !right {
        return Ok(form(shared, asked, true));
    }
    let cookie = format!("{COOKIE}={}; HttpOnly; SameSite=Strict; Path=/", http::encoded(given));
    let mut response = http::redirect(&format!("/?lang={}", shared.direction(asked).lang()));
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    Ok(response)
}

/// The form that asks for the token; again, if what was given is not the one.
fn form(shared: &Shared, asked: &Query, again: bool) -> Response {
    let direction = shared.direction(asked);
    let text = |id: &str| escape(&shared.texts.text(direction, id, &[]));
    let wrong = if again { format!("<p class=\"bad\">{}</p>", text("watch-wrong-token")) } else { String::new() };
    let form = format!(
        "<form action=\"/enter?lang={}\" method=\"post\" class=\"card\"><label>{} <input name=\"token\" type=\"password\" \
         autocomplete=\"off\" required></label> <button>{}</button>{wrong}</form>",
        direction.lang(),
        text("watch-token"),
        text("watch-enter")
    );
    let title = shared.texts.text(direction, "watch-title", &[]);
    let page = page::page(&title, &vec![("enter".to_owned(), form)], direction, &*shared.texts, "");
    http::respond(if again { 403 } else { 200 }, "text/html; charset=utf-8", page)
}

/// Losses of a log, for a run without snapshots.
fn losses(log: &[Value]) -> Vec<Line> {
    let point = |line: &Value| Some((line["step"].as_f64()?, line["loss"].as_f64()?));
    vec![Line { name: "loss".to_owned(), limit: None, points: log.iter().filter_map(point).collect() }]
}
