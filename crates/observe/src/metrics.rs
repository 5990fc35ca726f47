//! What Prometheus may ask of a run: a snapshot as text, and a small server for it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::monitor::Snapshot;
use crate::verdict::Bottleneck::{Load, Memory, Preprocess, Train, Transfer, Variation};

const PATIENCE: Duration = Duration::from_secs(2);
const LONGEST_REQUEST: usize = 8 * 1024;
const MOST_CLIENTS: usize = 16;
const HINT: &str = "Tandem: the metrics are at /metrics\n";

/// Serves text at `/metrics` until it is dropped.
#[derive(Debug)]
pub struct Metrics {
    address: SocketAddr,
    text: Arc<Text>,
    thread: Option<JoinHandle<()>>,
}

/// What is served; nothing once the server is to end.
type Text = Mutex<Option<Arc<str>>>;

impl Metrics {
    /// Listens at `address`; port 0 takes a free one.
    pub fn serve(address: SocketAddr) -> io::Result<Metrics> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let text: Arc<Text> = Arc::new(Mutex::new(Some("".into())));
        let served = text.clone();
        let thread = thread::Builder::new().name("metrics".into()).spawn(move || accept(&listener, &served))?;
        Ok(Metrics { address, text, thread: Some(thread) })
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

impl Drop for Metrics {
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
    let Snapshot { profile, verdict, .. } = snapshot;
    let text = &mut String::new();
    let mut one = |name: &str, help: &str, value: f64| family(text, name, help, [(String::new(), value)]);
    one("step", "Step the run is at.", snapshot.step as f64);
    one("steps_planned", "Steps after which the run ends.", snapshot.steps as f64);
    one("steps_total", "Steps done since the very start of the run.", snapshot.step as f64);
    one("clips_total", "Clips trained on since the very start of the run.", snapshot.total_clips as f64);
    one("audio_seconds_total", "Audio trained on since the very start of the run.", snapshot.total_audio_s);
    one("run_seconds_total", "Time trained since the very start of the run.", snapshot.total_s);
    one("epoch", "Epoch the run is in.", snapshot.epoch as f64);
    one("loss", "Loss of the last steps.", snapshot.loss);
    one("learning_rate", "Learning rate.", snapshot.rate);
    one("gradient_norm", "Norm of the gradients.", snapshot.norm);
    one("steps_per_second", "Steps per second.", snapshot.steps_per_s);
    one("clips_per_second", "Clips per second.", snapshot.clips_per_s);
    one("audio_seconds_per_second", "Seconds of audio trained on per second.", snapshot.audio_per_s);
    one("starved_ratio", "Share of the time in which the model waited for data.", profile.starved);
    one("headroom_ratio", "What infinitely fast data would add to the speed: 0.44 is 44 % more.", snapshot.headroom);
    one("simulated", "1 if the devices are simulated.", f64::from(snapshot.simulated));

    let optional = |value: Option<f64>| value.map(|value| (String::new(), value));
    family(text, "validation_loss", "Loss on clips not trained on.", optional(snapshot.validation));
    family(text, "cpu_ratio", "Use of the processor.", optional(snapshot.cpu_percent.map(|percent| percent / 100.0)));
    let terms = snapshot.terms.iter().map(|(term, value)| (labels([("term", term)]), *value));
    family(text, "loss_term", "Terms of the loss.", terms);
    let stages = profile.stages.iter().map(|stage| (labels([("stage", &stage.name)]), stage));
    family(text, "stage_mean_seconds", "Time of a stage, mean.", stages.clone().map(|(l, s)| (l, s.mean_ms / 1e3)));
    family(text, "stage_std_seconds", "Time of a stage, standard deviation.", stages.map(|(l, s)| (l, s.std_ms / 1e3)));
    let lanes = [("data", profile.data_busy), ("model", profile.model_busy)];
    let lanes = lanes.map(|(lane, busy)| (labels([("lane", lane)]), busy));
    family(text, "lane_busy_ratio", "Share of the time in which a lane worked.", lanes);
    let queues = snapshot.queues.iter().map(|queue| (labels([("queue", &queue.name)]), queue));
    family(text, "queue_items", "Batches in a queue.", queues.clone().map(|(l, q)| (l, q.items as f64)));
    family(text, "queue_capacity", "Batches a queue can hold.", queues.map(|(l, q)| (l, q.capacity as f64)));
    let memory = snapshot.memory.iter().map(|m| (labels([("name", &m.name), ("device", &m.device)]), m));
    family(text, "memory_used_bytes", "Memory in use.", memory.clone().map(|(l, m)| (l, m.used_bytes as f64)));
    let limits = memory.filter_map(|(l, m)| Some((l, m.limit_bytes? as f64)));
    family(text, "memory_limit_bytes", "Memory that may be used.", limits);
    let states = [Load, Preprocess, Transfer, Train, Variation, Memory];
    let states = states.map(|state| (labels([("stage", &state.to_string())]), f64::from(state == verdict.bottleneck)));
    family(text, "bottleneck", "1 for what limits the speed; train is healthy.", states);
    std::mem::take(text)
}

fn family(text: &mut String, name: &str, help: &str, samples: impl IntoIterator<Item = (String, f64)>) {
    let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
    // A map, because Prometheus takes no series twice.
    let samples: BTreeMap<String, f64> = samples.into_iter().collect();
    if !samples.is_empty() {
        let _ = write!(text, "# HELP tandem_{name} {help}\n# TYPE tandem_{name} {kind}\n");
    }
    for (labels, value) in samples {
        let value = value.to_string().replace("inf", if value > 0.0 { "+Inf" } else { "Inf" });
        let _ = writeln!(text, "tandem_{name}{labels} {value}");
    }
}

fn labels<const N: usize>(pairs: [(&str, &str); N]) -> String {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{{{}}}", pairs.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &[u8] = b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n";

    fn ask(metrics: &Metrics, request: &[u8]) -> io::Result<String> {
        let mut stream = TcpStream::connect(metrics.address())?;
        stream.write_all(request)?;
        io::read_to_string(stream)
    }

    #[test]
    fn answers_as_http_asks() -> io::Result<()> {
        let metrics = Metrics::serve(([127, 0, 0, 1], 0).into())?;
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
        let metrics = Metrics::serve(([127, 0, 0, 1], 0).into())?;
        metrics.set("a 1\n".into());
        let address = metrics.address();
        let _silent = [(); 8].map(|()| TcpStream::connect(address));
        let get = || ask(&metrics, GET).is_ok_and(|answer| answer.ends_with("\r\n\r\na 1\n"));
        let both = thread::scope(|scope| [scope.spawn(get), scope.spawn(get)].map(|client| client.join().ok()));
        assert_eq!(both, [Some(true); 2]);
        assert_eq!(Metrics::serve(address).map_err(|error| error.kind()).err(), Some(io::ErrorKind::AddrInUse));
        drop(metrics);
        assert!(start.elapsed() < PATIENCE);
        Metrics::serve(address).map(drop)
    }

    #[test]
    fn text_is_escaped_and_no_series_comes_twice() {
        let (mut text, odd) = (String::new(), labels([("a", "\"\\\n"), ("b", "ü")]));
        family(&mut text, "x", "Help.", [(odd.clone(), 1.0), (odd, f64::NAN), ("".into(), f64::INFINITY)]);
        family(&mut text, "x_total", "Help.", [("".into(), f64::NEG_INFINITY)]);
        family(&mut text, "none", "Help.", []);
        let x =
            "# HELP tandem_x Help.\n# TYPE tandem_x gauge\ntandem_x +Inf\ntandem_x{a=\"\\\"\\\\\\n\",b=\"ü\"} NaN\n";
        let total = "# HELP tandem_x_total Help.\n# TYPE tandem_x_total counter\ntandem_x_total -Inf\n";
        assert_eq!(text, [x, total].concat());
    }
}
