//! A server of untrained voices whose synthesis can be held, and a client that speaks plain HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use tandem_audio::{MelSettings, MelStats, Processing};
use tandem_model::{Device, HostReference, ModelConfig, Size, Voice};
use tandem_synth::{Bundle, Synthesizer};
use tandem_text::{Frontend, Vocabulary};
use tandem_web::{BatchPlan, LoadedVoice, ServeEvent, ServeSettings};

/// Nothing here takes that long; whoever waits longer waits forever.
pub(crate) const LONG: Duration = Duration::from_secs(120);
/// Between two looks.
pub(crate) const MOMENT: Duration = Duration::from_millis(5);

/// A voice that was never trained: what is tested does not depend on what was learned.
pub(crate) fn voice(speakers: &[&str], step: u64) -> LoadedVoice {
    let letters = "abcdefghijklmnopqrstuvwxyz ,.;:!?'-".chars().map(String::from);
    let frontend = Frontend::default().with_vocabulary(Vocabulary::of(letters.collect::<BTreeSet<_>>()));
    let (mel, device) = (MelSettings::default(), Device::flex());
    let config = ModelConfig::new(Size::Smoke, frontend.vocabulary.size(), mel.n_mels, !speakers.is_empty());
    let stats = MelStats { mean: vec![-5.0; mel.n_mels], std: vec![2.0; mel.n_mels] };
    let reference = |seed: usize| {
        let frames = 60 + 40 * seed;
        let mel = (0..frames * mel.n_mels).map(|n| ((n * (seed + 1)) as f32 * 0.37).sin()).collect();
        Arc::new(HostReference { frames, mel, lengths: vec![frames] })
    };
    let speakers = speakers.iter().enumerate().map(|(n, name)| ((*name).to_owned(), reference(n))).collect();
    let bundle = Bundle { config: config.clone(), mel: mel.clone(), processing: Processing::default(), stats };
    let synthesizer = Synthesizer::new(Voice::new(&config, 3, &device), bundle, &device);
    LoadedVoice { synthesizer, frontend, step, checkpoint: PathBuf::new(), speakers }
}

/// Holds the synthesis thread before a batch, and knows what was in all of them.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<(Vec<BatchPlan>, usize)>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self, plan: &BatchPlan) {
        let mut state = self.state.lock().expect("whole");
        state.0.push(plan.clone());
        self.changed.notify_all();
        while state.0.len() > state.1 {
            state = self.changed.wait(state).expect("whole");
        }
    }

    /// Lets so many batches pass, from the start.
    pub(crate) fn allow(&self, batches: usize) {
        self.state.lock().expect("whole").1 = batches;
        self.changed.notify_all();
    }

    pub(crate) fn open(&self) {
        self.allow(usize::MAX);
    }

    pub(crate) fn plans(&self) -> Vec<BatchPlan> {
        self.state.lock().expect("whole").0.clone()
    }

    /// Waits until so many batches were planned.
    pub(crate) fn wait_for(&self, batches: usize) {
        let state = self.state.lock().expect("whole");
        let (state, late) =
            self.changed.wait_timeout_while(state, LONG, |state| state.0.len() < batches).expect("whole");
        drop(state);
        assert!(!late.timed_out(), "batch {batches} was never planned");
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) gate: Arc<Gate>,
    pub(crate) stop: Arc<AtomicBool>,
    events: Mutex<mpsc::Receiver<ServeEvent>>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Server {
    pub(crate) fn start(voices: Vec<(PathBuf, LoadedVoice)>, settings: ServeSettings) -> Server {
        let (gate, stop) = (Arc::new(Gate::default()), Arc::new(AtomicBool::new(false)));
        gate.open();
        let (sender, events) = mpsc::channel();
        let (hook, ended) = (gate.clone(), stop.clone());
        let settings = ServeSettings {
            listen: "127.0.0.1:0".parse().expect("an address"),
            batch_hook: Some(Arc::new(move |plan: &BatchPlan| hook.pass(plan))),
            ..settings
        };
        let load = Arc::new(|path: &Path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let step: u64 = name.trim_start_matches("step-").parse().map_err(|_| format!("no step: {name}"))?;
            if step == 13 {
                Err("an unlucky one".to_owned())
            } else {
                Ok(LoadedVoice { checkpoint: path.to_owned(), ..voice(&[], step) })
            }
        });
        let on_event = Arc::new(move |event: ServeEvent| {
            let _ = sender.send(event);
        });
        let thread = std::thread::spawn(move || tandem_web::serve(voices, load, settings, ended, on_event));
        let ServeEvent::Listening(address) = events.recv_timeout(LONG).expect("it listens") else {
            panic!("listens first")
        };
        Server { address, gate, stop, events: Mutex::new(events), thread: Some(thread) }
    }

    /// One voice of one speaker.
    pub(crate) fn single(settings: ServeSettings) -> Server {
        Server::start(vec![("/runs/anna".into(), voice(&[], 7))], settings)
    }

    /// What happens next.
    pub(crate) fn event(&self) -> ServeEvent {
        self.events.lock().expect("whole").recv_timeout(LONG).expect("an event")
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(LONG)).expect("set");
        stream
    }

    /// Sends a request and does not wait for its answer.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> TcpStream {
        let mut stream = self.connect();
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "host") {
            head += "host: 127.0.0.1\r\n";
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !headers.iter().any(|(name, _)| *name == "transfer-encoding" || *name == "content-length") {
            head += &format!("content-length: {}\r\n", body.len());
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).expect("sent");
        // A server may answer before it has read a body that it does not want.
        let _ = stream.write_all(body);
        stream
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        Answer::read(self.send(method, path, headers, body))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }

    pub(crate) fn send_speech(&self, body: &Value) -> TcpStream {
        self.send("POST", "/v1/audio/speech", &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    pub(crate) fn speech(&self, body: &Value) -> Answer {
        Answer::read(self.send_speech(body))
    }

    /// A value of `/metrics`.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("tandem_serve_{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
    }

    /// Asks until a value is as wanted.
    pub(crate) fn wait_for(&self, name: &str, wanted: f64) {
        let began = std::time::Instant::now();
        while self.metric(name) != wanted {
            assert!(began.elapsed() < LONG, "{name} is {}, not {wanted}", self.metric(name));
            std::thread::sleep(MOMENT);
        }
    }

    /// Ends the server and waits for it.
    pub(crate) fn end(&mut self) {
        self.gate.open();
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic").expect("no error");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

/// An answer, whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// The body ended as it should.
    pub(crate) whole: bool,
}

/// Status and headers.
pub(crate) fn read_head(reader: &mut impl BufRead) -> (u16, BTreeMap<String, String>) {
    let mut line = String::new();
    reader.read_line(&mut line).expect("a head");
    let status =
        line.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no status: {line:?}"));
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).expect("a head");
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_owned(), value.to_owned()),
            None => return (status, headers),
        };
    }
}

/// The next chunk of a body that is sent in chunks; empty at its end, none if it broke off.
pub(crate) fn read_chunk(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let length = usize::from_str_radix(line.trim(), 16).ok()?;
    let mut chunk = vec![0; length + 2];
    reader.read_exact(&mut chunk).ok()?;
    chunk.truncate(length);
    Some(chunk)
}

impl Answer {
    pub(crate) fn read(stream: TcpStream) -> Answer {
        let mut reader = BufReader::new(stream);
        let (status, headers) = read_head(&mut reader);
        let (mut body, mut whole) = (Vec::new(), true);
        if headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked") {
            loop {
                match read_chunk(&mut reader) {
                    Some(chunk) if chunk.is_empty() => break,
                    Some(chunk) => body.extend(chunk),
                    None => {
                        whole = false;
                        break;
                    }
                }
            }
        } else {
            reader.read_to_end(&mut body).expect("a body and the end");
            let length = headers.get("content-length").and_then(|length| length.parse().ok());
            assert_eq!(length, Some(body.len()), "all of it");
        }
        Answer { status, headers, body, whole }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("UTF-8")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// Status and code of an error.
    pub(crate) fn error(&self) -> (u16, String) {
        let error = &self.json()["error"];
        assert!(error["message"].is_string() && error["type"].is_string() && error.get("param").is_some(), "{error}");
        (self.status, error["code"].as_str().unwrap_or_default().to_owned())
    }
}

/// A text of so many sentences, each different.
pub(crate) fn text(sentences: usize) -> String {
    let names = ["a lamp", "the rain", "my basket", "one street", "no door"];
    (0..sentences).map(|n| format!("I saw {} and {}. ", names[n % 5], names[(n / 5) % 5])).collect()
}

pub(crate) fn ask(input: &str) -> Value {
    json!({"input": input})
}
