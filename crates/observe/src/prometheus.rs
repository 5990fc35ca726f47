//! The metrics of a run for Prometheus: a snapshot as text, and a small server for it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::metrics::{Kind, METRICS, Sample};
use crate::snapshot::Snapshot;

const PATIENCE: Duration = Duration::from_secs(2);
const LONGEST_REQUEST: usize = 8 * 1024;
const MOST_CLIENTS: usize = 16;
const HINT: &str = "Tandem: the metrics are at /metrics\n";

/// Serves text at `/metrics` until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    text: Arc<Text>,
    thread: Option<JoinHandle<()>>,
}

/// What is served; nothing once the server is to end.
type Text = Mutex<Option<Arc<str>>>;

impl MetricsServer {
    /// Listens at `address`; port 0 takes a free one.
    pub fn serve(address: SocketAddr) -> io::Result<MetricsServer> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let text: Arc<Text> = Arc::new(Mutex::new(Some("".into())));
        let served = text.clone();
        let thread = thread::Builder::new().name("metrics".into()).spawn(move || accept(&listener, &served))?;
        Ok(MetricsServer { address, text, thread: Some(thread) })
    }

    /// Replaces what is served.
    pub fn set(&self, text: String) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.into());
    }

    /// Where it listens, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Each client has a thread of its own, so that a silent one keeps nobody waiting; too many are turned away.
fn accept(listener: &TcpListener, text: &Text) {
    let clients = Arc::new(());
    let current = || text.lock().unwrap_or_else(PoisonError::into_inner).clone();
    while let Some(text) = current() {
        let Ok((stream, _)) = listener.accept() else {
            // Nobody there, or no more files may be opened: both pass.
            thread::park_timeout(Duration::from_millis(50));
            continue;
        };
        if Arc::strong_count(&clients) <= MOST_CLIENTS {
            let client = clients.clone();
            let work = move || (answer(stream, &text), drop(client));
            let _ = thread::Builder::new().name("metrics client".into()).spawn(work);
        }
    }
}

fn answer(mut stream: TcpStream, text: &str) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = read_request(&mut stream, deadline)?;
    stream.write_all(&response(&request, text))?;
    // Closing with something unread would reset the connection, and the client might lose the answer.
    stream.shutdown(Shutdown::Write)?;
    while read_some(&mut stream, deadline, &mut [0; 1024])? > 0 {}
    Ok(())
}

/// Up to the empty line, the end or the limit, whichever is first.
fn read_request(stream: &mut TcpStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let (mut request, mut buffer) = (Vec::new(), [0; 1024]);
    while request.len() < LONGEST_REQUEST && !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match read_some(stream, deadline, &mut buffer)? {
            0 => break,
            size => request.extend(&buffer[..size]),
        }
    }
    Ok(request)
}

fn read_some(stream: &mut TcpStream, deadline: Instant, buffer: &mut [u8]) -> io::Result<usize> {
    // A timeout of zero is an error, as it should be here.
    stream.set_read_timeout(Some(deadline.saturating_duration_since(Instant::now())))?;
    stream.read(buffer)
}

fn response(request: &[u8], text: &str) -> Vec<u8> {
    let line = String::from_utf8_lossy(request.split(|&byte| byte == b'\r').next().unwrap_or_default());
    let (method, path) = match line.split(' ').collect::<Vec<_>>()[..] {
        [method, target, version] if version.starts_with("HTTP/1.") => (method, target.split('?').next()),
        _ => ("", None),
    };
    let (status, body) = match (method, path) {
        _ if request.len() >= LONGEST_REQUEST => ("431 Request Header Fields Too Large", "too long\n"),
        (_, None) => ("400 Bad Request", "not understood\n"),
        ("GET" | "HEAD", Some("/metrics")) => ("200 OK", text),
        ("GET" | "HEAD", Some("/")) => ("200 OK", HINT),
        (_, Some("/metrics" | "/")) => ("405 Method Not Allowed\r\nAllow: GET, HEAD", "only GET and HEAD\n"),
        _ => ("404 Not Found", HINT),
    };
    let (kind, size) = ("text/plain; version=0.0.4; charset=utf-8\r\nConnection: close", body.len());
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n\r\n");
    [head.as_bytes(), if method == "HEAD" { b"" } else { body.as_bytes() }].concat()
}

/// The snapshot in Prometheus' text format.
pub fn exposition(snapshot: &Snapshot) -> String {
    METRICS.iter().map(|metric| family(metric.name, metric.kind, metric.help, metric.samples(snapshot))).collect()
}

fn family(name: &str, kind: Kind, help: &str, samples: Vec<Sample>) -> String {
    let kind = match kind {
        Kind::Gauge => "gauge",
        Kind::Counter => "counter",
    };
    // A map, because Prometheus takes no series twice.
    let samples: BTreeMap<String, f64> = samples.iter().map(|sample| (labels(&sample.labels), sample.value)).collect();
    let mut text = String::new();
    if !samples.is_empty() {
        let _ = write!(text, "# HELP tandem_{name} {help}\n# TYPE tandem_{name} {kind}\n");
    }
    for (labels, value) in samples {
        let value = value.to_string().replace("inf", if value > 0.0 { "+Inf" } else { "Inf" });
        let _ = writeln!(text, "tandem_{name}{labels} {value}");
    }
    text
}

fn labels(pairs: &[(&str, String)]) -> String {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &[u8] = b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n";

    fn ask(metrics: &MetricsServer, request: &[u8]) -> io::Result<String> {
        let mut stream = TcpStream::connect(metrics.address())?;
        stream.write_all(request)?;
        io::read_to_string(stream)
    }

    #[test]
    fn answers_as_http_asks() -> io::Result<()> {
        let metrics = MetricsServer::serve(([127, 0, 0, 1], 0).into())?;
        metrics.set("a 1\n".into());
        let get = ask(&metrics, GET)?;
        assert!(get.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
        assert!(get.ends_with("Connection: close\r\nContent-Length: 4\r\n\r\na 1\n"));
        assert_eq!(ask(&metrics, b"HEAD /metrics HTTP/1.0\r\n\r\n")?, get.trim_end_matches("a 1\n"));
        assert!(ask(&metrics, b"GET / HTTP/1.1\r\n\r\n")?.ends_with(HINT));
        let status = |request: &[u8]| ask(&metrics, request).map(|answer| answer[9..12].to_owned());
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")?, "405");
        assert_eq!(status(b"GET /other HTTP/1.1\r\n\r\n")?, "404");
        assert_eq!(status(b"\xff\x00\r\n\r\n")?, "400");
        assert_eq!(status(&[b'x'; 20_000])?, "431");
        Ok(())
    }

    #[test]
    fn silent_clients_stop_nobody_and_drop_frees_the_port() -> io::Result<()> {
        let start = Instant::now();
        let metrics = MetricsServer::serve(([127, 0, 0, 1], 0).into())?;
        metrics.set("a 1\n".into());
        let address = metrics.address();
        let _silent = [(); 8].map(|()| TcpStream::connect(address));
        let get = || ask(&metrics, GET).is_ok_and(|answer| answer.ends_with("\r\n\r\na 1\n"));
        let both = thread::scope(|scope| [scope.spawn(get), scope.spawn(get)].map(|client| client.join().ok()));
        assert_eq!(both, [Some(true); 2]);
        assert_eq!(MetricsServer::serve(address).map_err(|error| error.kind()).err(), Some(io::ErrorKind::AddrInUse));
        drop(metrics);
        assert!(start.elapsed() < PATIENCE);
        MetricsServer::serve(address).map(drop)
    }

    #[test]
    fn text_is_escaped_and_no_series_comes_twice() {
        let sample = |labels: &[(&'static str, &str)], value| Sample {
            labels: labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
            value,
        };
        let odd = [("a", "\"\\\n"), ("b", "ü")];
        let twice = vec![sample(&odd, 1.0), sample(&odd, f64::NAN), sample(&[], f64::INFINITY)];
        let text = family("x", Kind::Gauge, "Help.", twice)
            + &family("x_total", Kind::Counter, "Help.", vec![sample(&[], f64::NEG_INFINITY)])
            + &family("none", Kind::Gauge, "Help.", Vec::new());
        let x =
            "# HELP tandem_x Help.\n# TYPE tandem_x gauge\ntandem_x +Inf\ntandem_x{a=\"\\\"\\\\\\n\",b=\"ü\"} NaN\n";
        let total = "# HELP tandem_x_total Help.\n# TYPE tandem_x_total counter\ntandem_x_total -Inf\n";
        assert_eq!(text, [x, total].concat());
    }
}
