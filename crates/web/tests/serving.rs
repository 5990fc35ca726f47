//! Promises of `tandem serve` over real connections (SPEC W1, W2, W5): orders and counts, no times.

mod support;

use std::fs;
use std::io::{BufReader, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use support::{Answer, LONG, Server, ask, read_chunk, read_head, text, voice};
use tandem_audio::Decoder;
use tandem_web::{ServeEvent, ServeSettings};

const JSON: (&str, &str) = ("content-type", "application/json");

fn samples(bytes: &[u8]) -> Vec<f32> {
    let mut out = Vec::new();
    Decoder::new().decode(&mut std::io::Cursor::new(bytes), &mut out).expect("audio");
    out
}

#[test]
fn the_first_sentence_is_sent_before_the_second_is_synthesized() {
    let server = Server::single(ServeSettings::default());
    server.gate.allow(1);
    let mut request = ask(&text(20));
    request["stream"] = json!(true);
    request["response_format"] = json!("wav");
    let mut reader = BufReader::new(server.send_speech(&request));
    let (status, headers) = read_head(&mut reader);
    assert_eq!((status, headers["content-type"].as_str()), (200, "audio/wav"));
    let first = read_chunk(&mut reader).expect("a chunk");
    assert!(first.len() > 44 + 2000 && &first[..4] == b"RIFF", "{} bytes", first.len());
    // The second batch is held: what came cannot be of it.
    server.gate.wait_for(2);
    let plans = server.gate.plans();
    assert_eq!((plans.len(), plans[0].requests.len(), plans[1].requests.len()), (2, 1, 2), "1, 2, 4, … sentences");
    server.gate.open();
    let mut streamed = first;
    loop {
        let chunk = read_chunk(&mut reader).expect("a chunk");
        if chunk.is_empty() {
            break;
        }
        streamed.extend(chunk);
    }
    let spoken: usize = server.gate.plans().iter().map(|plan| plan.requests.len()).sum();
    assert_eq!(spoken, 20, "every sentence once");
    // The same as at once, whatever the batches were.
    let whole = server.speech(&ask(&text(20)));
    assert_eq!(whole.headers["content-length"], whole.body.len().to_string());
    assert_eq!(whole.body.len(), streamed.len());
    let furthest = whole.body[44..].chunks(2).zip(streamed[44..].chunks(2)).map(|(a, b)| {
        let value = |pair: &[u8]| i32::from(i16::from_le_bytes([pair[0], pair[1]]));
        (value(a) - value(b)).abs()
    });
    assert!(furthest.max().unwrap_or(0) < 40, "batches make no difference that is heard");
}

#[test]
fn clients_that_wait_share_a_batch_whoever_they_speak_as() {
    let speakers = ["anna", "ben", "cleo"];
    let server = Server::start(vec![("/runs/many".into(), voice(&speakers, 7))], ServeSettings::default());
    let asks = |n: usize| json!({"input": "A metal basket.", "voice": speakers[n % 3], "speed": 1.0 + 0.1 * (n % 2) as f64, "seed": n});
    let alone: Vec<Answer> = (0..7).map(|n| server.speech(&asks(n))).collect();
    let before = server.gate.plans().len();
    server.gate.allow(before);
    let first = server.send_speech(&ask("A lamp."));
    server.gate.wait_for(before + 1);
    let rest: Vec<_> = (0..7).map(|n| server.send_speech(&asks(n))).collect();
    server.wait_for("pending_sentences", 7.0);
    server.gate.open();
    assert_eq!(Answer::read(first).status, 200);
    for (n, (stream, alone)) in rest.into_iter().zip(alone).enumerate() {
        let answer = Answer::read(stream);
        assert_eq!((answer.status, answer.body.len()), (200, alone.body.len()), "{n}");
        let off =
            samples(&answer.body).iter().zip(samples(&alone.body)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 2e-3, "{n} sounds the same in company: {off}");
    }
    let plans = server.gate.plans();
    assert_eq!(
        plans[before + 1..].iter().map(|plan| plan.requests.len()).collect::<Vec<_>>(),
        [7],
        "one batch for all"
    );
}

#[test]
fn one_request_too_many_is_told_to_come_back() {
    let server = Server::single(ServeSettings { most_requests: 2, ..ServeSettings::default() });
    server.gate.allow(0);
    let taken = [server.send_speech(&ask("One lamp.")), server.send_speech(&ask("One more."))];
    server.wait_for("requests", 2.0);
    let refused = server.speech(&ask("Too many."));
    assert_eq!(refused.error(), (429, "too_many_requests".to_owned()));
    assert!(refused.headers["retry-after"].parse::<u64>().is_ok_and(|seconds| seconds >= 1));
    assert_eq!(server.get("/healthz").status, 200, "the others are still answered");
    server.gate.open();
    for stream in taken {
        assert_eq!(Answer::read(stream).status, 200);
    }
    server.wait_for("requests", 0.0);
    assert_eq!(server.speech(&ask("Room again.")).status, 200);
}

#[test]
fn who_leaves_costs_nothing_more() {
    let server = Server::single(ServeSettings::default());
    server.gate.allow(0);
    let stays = server.send_speech(&ask("One lamp."));
    server.gate.wait_for(1);
    let leaves = server.send_speech(&ask(&text(20)));
    server.wait_for("pending_sentences", 20.0);
    // Its own connection is one more.
    server.wait_for("connections", 3.0);
    drop(leaves);
    server.wait_for("connections", 2.0);
    server.gate.open();
    assert_eq!(Answer::read(stays).status, 200);
    server.wait_for("requests", 0.0);
    assert_eq!(server.metric("abandoned_sentences_total"), 20.0);
    let sentences: usize = server.gate.plans().iter().map(|plan| plan.requests.len()).sum();
    assert_eq!(sentences, 1, "only that of the one who stayed");
}

#[test]
fn who_leaves_in_the_middle_frees_the_rest() {
    let server = Server::single(ServeSettings::default());
    server.gate.allow(1);
    let mut request = ask(&text(30));
    request["stream"] = json!(true);
    let mut reader = BufReader::new(server.send_speech(&request));
    read_head(&mut reader);
    assert!(!read_chunk(&mut reader).expect("a chunk").is_empty());
    drop(reader);
    server.wait_for("connections", 1.0);
    server.gate.open();
    server.wait_for("requests", 0.0);
    assert!(server.metric("abandoned_sentences_total") >= 27.0);
    assert!(server.metric("sentences_total") <= 3.0);
}

#[test]
fn formats_have_the_same_samples() {
    let server = Server::single(ServeSettings::default());
    let get = |format: &str, stream: bool| {
        let answer =
            server.speech(&json!({"input": "A metal basket. A lamp.", "response_format": format, "stream": stream}));
        assert_eq!((answer.status, answer.whole), (200, true), "{format}");
        assert_eq!(answer.headers["content-type"], format!("audio/{format}"));
        assert_eq!(answer.headers.contains_key("transfer-encoding"), stream, "{format}");
        answer.body
    };
    let wanted = samples(&get("wav", false));
    assert!(wanted.len() > 5000);
    for stream in [false, true] {
        assert_eq!(samples(&get("flac", stream)), wanted, "flac, streamed: {stream}");
        let pcm = get("pcm", stream);
        assert_eq!(pcm, get("wav", stream)[44..], "pcm, streamed: {stream}");
    }
}

#[test]
fn events_carry_sentences_mels_and_tokens() {
    let server = Server::single(ServeSettings::default());
    let request =
        json!({"input": "A lamp. The rain.", "response_format": "pcm", "stream_format": "sse", "details": true});
    let answer = server.speech(&request);
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    let text = answer.text();
    let events: Vec<Value> =
        text.split("\n\n").filter_map(|event| serde_json::from_str(event.strip_prefix("data: ")?).ok()).collect();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(kinds, ["speech.audio.delta", "speech.audio.delta", "speech.audio.done"]);
    for (event, sentence) in events.iter().zip(["A lamp.", "The rain."]) {
        let details = &event["details"];
        assert_eq!(details["sentence"], sentence);
        let durations: Vec<u64> =
            details["durations"].as_array().expect("a list").iter().filter_map(Value::as_u64).collect();
        assert_eq!(durations.iter().sum::<u64>(), details["frames"].as_u64().expect("frames"));
        assert_eq!(details["tokens"].as_array().expect("a list").len(), durations.len());
        let shades = details["mel"].as_str().expect("base64").len() as u64 * 3 / 4;
        assert!(
            shades.abs_diff(details["frames"].as_u64().expect("frames") * details["bands"].as_u64().expect("bands"))
                < 3
        );
    }
    assert!(events[2]["usage"]["total_tokens"].as_u64().is_some_and(|tokens| tokens > 10));
}

#[test]
fn what_is_wrong_is_said_with_a_status_and_a_code() {
    let server = Server::start(vec![("/runs/many".into(), voice(&["anna", "ben"], 7))], ServeSettings::default());
    let speech = "/v1/audio/speech";
    let long = json!({"input": "x".repeat(20_001)}).to_string();
    let bomb = format!("{{\"input\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let huge = vec![b' '; 2 << 20];
    let chunked = [
        b"100000\r\n".to_vec(),
        vec![b' '; 1 << 20],
        b"\r\n10\r\n".to_vec(),
        vec![b' '; 16],
        b"\r\n0\r\n\r\n".to_vec(),
    ]
    .concat();
    let table: Vec<(&str, &str, Vec<(&str, &str)>, &[u8], u16, &str)> = vec![
        ("POST", speech, vec![JSON], b"{\"input\": \"caf\xc3\xa9 \xe2\x98\x83\"}", 400, "unknown_characters"),
        ("POST", speech, vec![JSON], br#"{"input": "a", "voice": "nobody"}"#, 404, "unknown_voice"),
        ("POST", speech, vec![JSON], br#"{"input": "a", "model": "nothing"}"#, 404, "unknown_model"),
        ("POST", speech, vec![JSON], br#"{"input": "a", "language": "?!"}"#, 400, "invalid_value"),
        ("POST", speech, vec![JSON], br#"{"input": " ... "}"#, 400, "empty_text"),
        ("POST", speech, vec![JSON], b"\xff\xfe", 400, "invalid_json"),
        ("POST", speech, vec![JSON], bomb.as_bytes(), 400, "invalid_json"),
        ("POST", speech, vec![JSON], long.as_bytes(), 400, "text_too_long"),
        ("POST", speech, vec![JSON], &huge, 413, "body_too_large"),
        ("POST", speech, vec![JSON, ("transfer-encoding", "chunked")], &chunked, 413, "body_too_large"),
        ("POST", speech, vec![("content-type", "text/plain")], b"{}", 415, "wrong_content_type"),
        ("POST", speech, vec![], b"{}", 415, "wrong_content_type"),
        ("GET", speech, vec![], b"", 405, "wrong_method"),
        ("GET", "/v2/nothing", vec![], b"", 404, "unknown_path"),
        ("GET", "/../../../etc/passwd", vec![], b"", 404, "unknown_path"),
        ("GET", "/%2e%2e/%2e%2e/etc/passwd", vec![], b"", 404, "unknown_path"),
        ("GET", "/speak.js/../../Cargo.toml", vec![], b"", 404, "unknown_path"),
        ("DELETE", "/v1/voices/..%2f..%2fetc", vec![], b"", 404, "unknown_voice"),
        ("GET", "/v1/models", vec![("host", "evil.example")], b"", 403, "wrong_host"),
        ("GET", "/v1/models", vec![("origin", "http://evil.example")], b"", 403, "wrong_origin"),
    ];
    for (method, path, headers, body, status, code) in table {
        let answer = server.ask(method, path, &headers, body);
        assert_eq!(answer.error(), (status, code.to_owned()), "{method} {path} {:?}", &body[..body.len().min(60)]);
        assert!(answer.headers["content-security-policy"].contains("default-src 'none'"), "{path}");
        assert!(!answer.headers.contains_key("access-control-allow-origin"), "{path}");
    }
    let unknown = server.speech(&ask("жук ☃")).json();
    assert_eq!(unknown["error"]["known"], json!(["ж", "к", "у", "☃"]));
    assert!(unknown["error"]["message"].as_str().is_some_and(|text| text.contains("U+2603")));
    let voices = server.speech(&json!({"input": "a", "voice": "nobody"})).json();
    assert_eq!(voices["error"]["known"], json!(["anna", "ben"]));
    assert_eq!(server.gate.plans().len(), 0, "nothing was synthesized for any of them");
    assert_eq!(server.speech(&ask("A lamp.")).status, 200);
    server.wait_for("requests", 0.0);
}

#[test]
fn heads_that_are_no_http_are_answered_or_closed() {
    let server = Server::single(ServeSettings::default());
    let heads: [&[u8]; 5] = [
        b"\0\0\0\0\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/audio/speech HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/audio/speech HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\nx",
        &[b'A'; 100_000],
    ];
    for head in heads {
        let mut stream = server.connect();
        let _ = stream.write_all(head);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || text.starts_with("HTTP/1.1 4") || text.starts_with("HTTP/1.0 4"), "{text}");
    }
    assert_eq!(server.get("/healthz").status, 200);
}

#[test]
fn who_is_too_slow_is_let_go() {
    let server = Server::single(ServeSettings { patience: Duration::from_secs(1), ..ServeSettings::default() });
    let head = "POST /v1/audio/speech HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n";
    let until_the_end = |begin: &str| {
        let mut stream = server.connect();
        stream.write_all(begin.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("closed by the server");
        String::from_utf8_lossy(&answer).into_owned()
    };
    assert_eq!(until_the_end(""), "", "who says nothing");
    let half = until_the_end("POST /v1/audio/speech HTTP/1.1\r\nhost: 127");
    assert!(half.is_empty() || half.starts_with("HTTP/1.1 408"), "half a head: {half}");
    let slow = until_the_end(&format!("{head}content-length: 100\r\n\r\n{{\"input\""));
    assert!(slow.starts_with("HTTP/1.1 408") && slow.contains("body_too_slow"), "half a body: {slow}");
    assert_eq!(server.speech(&ask("A lamp.")).status, 200);
    server.wait_for("requests", 0.0);
}

#[test]
fn idle_connections_make_room_for_those_who_ask() {
    let server = Server::single(ServeSettings { most_connections: 16, ..ServeSettings::default() });
    let idle: Vec<_> = (0..300).map(|_| server.connect()).collect();
    for _ in 0..3 {
        assert_eq!(server.speech(&ask("A lamp.")).status, 200);
    }
    assert!(server.metric("connections") <= 16.0);
    // Connections that are being answered are not closed; then newcomers are turned away.
    let before = server.gate.plans().len();
    server.gate.allow(before);
    let mut busy = Vec::new();
    for asked in 1..=15 {
        busy.push(server.send_speech(&ask("One more.")));
        server.wait_for("requests", f64::from(asked));
    }
    let mut last = Vec::new();
    let refused = loop {
        // One that has not asked yet is idle, and may have to go.
        last.push(server.send_speech(&ask("One more.")));
        let answer = server.get("/healthz");
        if answer.status == 503 {
            break answer;
        }
    };
    assert_eq!(refused.error().1, "too_many_connections");
    assert_eq!(refused.headers["retry-after"], "5");
    server.gate.open();
    assert!(busy.into_iter().map(Answer::read).all(|answer| answer.status == 200));
    drop(idle);
}

#[test]
fn ending_finishes_what_is_under_way() {
    let mut server = Server::single(ServeSettings::default());
    server.gate.allow(1);
    let mut request = ask(&text(6));
    request["stream"] = json!(true);
    let mut reader = BufReader::new(server.send_speech(&request));
    read_head(&mut reader);
    let _idle = server.connect();
    server.gate.wait_for(2);
    server.stop.store(true, Ordering::SeqCst);
    // It has heard it when nobody can connect any more.
    while std::net::TcpStream::connect(server.address).is_ok() {
        std::thread::yield_now();
    }
    server.gate.open();
    let mut chunks = 0;
    while read_chunk(&mut reader).expect("not broken off").len() > 2 {
        chunks += 1;
    }
    assert_eq!(chunks, 6, "every sentence");
    server.end();
}

#[test]
fn a_token_is_asked_for_where_there_is_one() {
    let server = Server::single(ServeSettings { token: Some("secret".to_owned()), ..ServeSettings::default() });
    let refused = server.speech(&ask("A lamp."));
    assert_eq!(
        (refused.error(), refused.headers["www-authenticate"].as_str()),
        ((401, "wrong_token".to_owned()), "Bearer")
    );
    for (path, status) in [("/", 200), ("/speak.js", 200), ("/healthz", 200), ("/metrics", 401), ("/v1/voices", 401)] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
    let right = [JSON, ("authorization", "Bearer secret")];
    assert_eq!(server.ask("POST", "/v1/audio/speech", &right, br#"{"input": "A lamp."}"#).status, 200);
}

fn recording(seconds: f64) -> Vec<u8> {
    let wave: Vec<f32> = (0..(16_000.0 * seconds) as usize).map(|n| 0.4 * (n as f32 * 0.06).sin()).collect();
    let mut bytes = Vec::new();
    tandem_audio::write_wav(&wave, 16_000, &mut bytes).expect("memory");
    bytes
}

#[test]
fn a_recording_becomes_a_voice_until_it_is_forgotten() {
    let server = Server::start(
        vec![("/runs/many".into(), voice(&["anna"], 7)), ("/runs/one".into(), voice(&[], 7))],
        ServeSettings::default(),
    );
    let post = |path: &str, kind: &str, body: &[u8]| server.ask("POST", path, &[("content-type", kind)], body);
    let added = post("/v1/voices?name=sara", "audio/wav", &recording(2.0));
    assert_eq!((added.status, added.json()["id"].clone()), (201, json!("sara")));
    let table: Vec<(&str, &str, Vec<u8>, (u16, &str))> = vec![
        ("/v1/voices?name=x", "audio/wav", b"no audio at all".to_vec(), (400, "not_audio")),
        ("/v1/voices?name=x", "audio/wav", recording(2.0)[..200].to_vec(), (400, "not_audio")),
        ("/v1/voices?name=x", "audio/wav", Vec::new(), (400, "not_audio")),
        ("/v1/voices?name=x", "audio/wav", recording(0.3), (400, "recording_too_short")),
        ("/v1/voices?name=x", "audio/wav", vec![0; 11 << 20], (413, "body_too_large")),
        ("/v1/voices?name=x", "multipart/form-data", recording(2.0), (415, "wrong_content_type")),
        ("/v1/voices?name=..%2Fx", "audio/wav", recording(2.0), (400, "invalid_value")),
        ("/v1/voices", "audio/wav", recording(2.0), (400, "invalid_value")),
        ("/v1/voices?name=anna", "audio/wav", recording(2.0), (409, "name_taken")),
        ("/v1/voices?name=x&model=one", "audio/wav", recording(2.0), (409, "one_speaker")),
        ("/v1/voices?name=x&model=none", "audio/wav", recording(2.0), (404, "unknown_model")),
    ];
    for (path, kind, body, (status, code)) in table {
        assert_eq!(post(path, kind, &body).error(), (status, code.to_owned()), "{path}");
    }
    let names = || {
        server.get("/v1/voices").json()["data"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|voice| voice["id"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(), ["anna", "sara", "default"]);
    let speak = |voice: &str| server.speech(&json!({"input": "A metal basket.", "voice": voice}));
    let (sara, anna) = (speak("sara"), speak("anna"));
    assert_eq!((sara.status, anna.status), (200, 200));
    assert_ne!(sara.body, anna.body);
    assert_eq!(server.ask("DELETE", "/v1/voices/sara", &[], b"").status, 200);
    assert_eq!(speak("sara").error(), (404, "unknown_voice".to_owned()));
}

#[test]
fn a_later_checkpoint_takes_the_place_of_the_one_that_speaks() {
    let dir = tempfile::tempdir().expect("a folder");
    let save = |step: u64| -> PathBuf {
        let path = dir.path().join(format!("checkpoints/step-{step:08}"));
        fs::create_dir_all(&path).expect("made");
        fs::write(path.join("state.json"), "{}").expect("written");
        path
    };
    let first = tandem_web::LoadedVoice { checkpoint: save(1), ..voice(&[], 1) };
    let server =
        Server::start(vec![(dir.path().to_owned(), first)], ServeSettings { follow: true, ..ServeSettings::default() });
    let step = || server.get("/v1/models").json()["data"][0]["step"].clone();
    assert_eq!(step(), 1);
    server.gate.allow(1);
    let mut request = ask(&text(6));
    request["stream"] = json!(true);
    let mut reader = BufReader::new(server.send_speech(&request));
    read_head(&mut reader);
    server.gate.wait_for(2);
    // One that cannot be loaded changes nothing.
    save(13);
    assert!(matches!(server.events.recv_timeout(LONG).expect("an event"), ServeEvent::ReloadFailed { .. }));
    assert_eq!(step(), 1);
    save(20);
    assert!(matches!(server.events.recv_timeout(LONG).expect("an event"), ServeEvent::Reloaded { step: 20, .. }));
    assert_eq!(step(), 20);
    server.gate.open();
    let mut chunks = 0;
    while !read_chunk(&mut reader).expect("not broken off").is_empty() {
        chunks += 1;
    }
    assert_eq!(chunks, 6, "the request that was under way lost nothing");
    assert_eq!(server.speech(&ask("A lamp.")).status, 200);
}

#[test]
fn the_page_and_the_description_are_there() {
    let server = Server::single(ServeSettings::default());
    let page = server.get("/");
    assert_eq!((page.status, page.headers["content-type"].as_str()), (200, "text/html; charset=utf-8"));
    assert!(page.text().contains("<script src=\"/speak.js\""));
    let csp = &page.headers["content-security-policy"];
    assert!(csp.contains("script-src 'self';") && !csp.contains("unsafe"), "{csp}");
    assert_eq!(server.get("/openapi.json").json()["openapi"], "3.1.0");
    assert_eq!(server.get("/readyz").json()["status"], "ready");
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("tandem_serve_responses_total{path=\"/\",status=\"200\"} 1"), "{metrics}");
}
