//! Requests that are too many, too large, wrong, or whose client leaves (SPEC W5).

use std::io::BufReader;

use serde_json::json;
use tandem_web::ServeSettings;

use crate::JSON;
use crate::support::{Answer, Server, ask, read_chunk, read_head, text, voice};

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

#[test]
fn a_text_that_is_never_ending_speech_is_to_be_streamed() {
    let server = Server::single(ServeSettings { most_seconds: 20, ..ServeSettings::default() });
    let pauses = json!({"input": "A.\n".repeat(500), "pause": 10});
    assert_eq!(server.speech(&pauses).error(), (400, "too_long_use_stream".to_owned()));
    assert_eq!(server.gate.plans().len(), 0, "nothing was synthesized");
    let words = json!({"input": text(60), "speed": 0.25, "pause": 0});
    assert_eq!(server.speech(&words).error(), (400, "too_long_use_stream".to_owned()));
    assert!(server.metric("abandoned_sentences_total") > 10.0, "the rest was not made");
    let streamed = json!({"input": text(3), "pause": 10, "response_format": "pcm"});
    let answer = server.speech(&streamed);
    assert!(answer.whole && answer.body.len() > 2 * 20 * 22_050, "{}", answer.body.len());
}

#[test]
fn a_long_text_has_its_turn_however_many_come() {
    let server = Server::single(ServeSettings { batch_size: 1, ..ServeSettings::default() });
    server.gate.allow(0);
    let long = server.send_speech(&ask(&text(3)));
    let mut others = Vec::new();
    for batch in 1..6 {
        // Somebody new is there whenever a batch is planned.
        server.gate.wait_for(batch);
        let before = server.metric("pending_sentences");
        others.push(server.send_speech(&ask("One lamp.")));
        server.wait_for("pending_sentences", before + 1.0);
        server.gate.allow(batch);
    }
    server.gate.open();
    assert_eq!(Answer::read(long).status, 200);
    let plans: Vec<u64> = server.gate.plans().iter().map(|plan| plan.requests[0]).collect();
    let turns: Vec<usize> = (0..plans.len()).filter(|&at| plans[at] == plans[0]).collect();
    assert!(turns.windows(2).all(|pair| pair[1] - pair[0] <= 3), "its turns were {turns:?} of {plans:?}");
    assert!(others.into_iter().map(Answer::read).all(|answer| answer.status == 200));
}

#[test]
fn a_sentence_that_fails_is_the_fault_of_nobody_else() {
    let mut voice = voice(&["anna", "broken"], 7);
    // Not what it says it is: synthesis panics.
    let broken = tandem_model::HostReference { frames: 10, mel: vec![0.0; 1_000_000], lengths: vec![10] };
    voice.speakers.insert("broken".to_owned(), broken.into());
    let server = Server::start(vec![("/runs/many".into(), voice)], ServeSettings::default());
    server.gate.allow(0);
    let first = server.send_speech(&ask("A lamp."));
    server.gate.wait_for(1);
    let others: Vec<_> = (["anna", "broken", "anna"].iter())
        .map(|voice| server.send_speech(&json!({"input": "A metal basket.", "voice": voice})))
        .collect();
    server.wait_for("pending_sentences", 3.0);
    server.gate.open();
    assert_eq!(Answer::read(first).status, 200);
    let statuses: Vec<u16> = others.into_iter().map(|stream| Answer::read(stream).status).collect();
    assert_eq!(server.gate.plans()[1].requests.len(), 3, "they shared a batch");
    assert_eq!(statuses, [200, 500, 200]);
}
