//! Promises of `tandem serve` over real connections (SPEC W1, W2, W5): orders and counts, no times.

mod clients;
mod limits;
mod support;
mod voices;

use std::io::BufReader;

use serde_json::{Value, json};
use support::{Answer, Server, ask, read_chunk, read_head, text, voice};
use tandem_audio::Decoder;
use tandem_web::ServeSettings;

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
        let off = samples(&answer.body)
            .iter()
            .zip(samples(&alone.body))
            .map(|(a, b)| (a - b).abs())
            .max_by(f32::total_cmp)
            .expect("values");
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
