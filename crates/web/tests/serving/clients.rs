//! Connections: rude, slow, idle, in bursts, and the end of the server (SPEC W5).

use std::io::{BufReader, ErrorKind, Read, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tandem_web::ServeSettings;

use crate::support::{Answer, MOMENT, Server, ask, read_chunk, read_head, text};

#[test]
fn heads_that_are_no_http_are_answered_and_closed() {
    let server = Server::single(ServeSettings::default());
    let heads: [&[u8]; 4] = [
        b"\0\0\0\0\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/audio/speech HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/audio/speech HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\nx",
    ];
    for head in heads {
        let mut stream = server.connect();
        stream.write_all(head).expect("sent");
        // Nobody waits for more of it.
        stream.shutdown(std::net::Shutdown::Write).expect("half closed");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer, and the end");
        let text = String::from_utf8_lossy(&answer);
        assert!(text.starts_with("HTTP/1.1 4"), "{:?}: {text}", String::from_utf8_lossy(head));
    }
    // A head without an end is not kept; what was still under way may take the answer with it.
    let mut stream = server.connect();
    let _ = stream.write_all(&[b'A'; 200_000]);
    let ended = stream.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
    assert!(!matches!(ended, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)), "{ended:?}");
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
    assert_eq!(until_the_end("POST /v1/audio/speech HTTP/1.1\r\nhost: 127"), "", "half a head");
    let slow = until_the_end(&format!("{head}content-length: 100\r\n\r\n{{\"input\""));
    assert!(slow.starts_with("HTTP/1.1 408") && slow.contains("body_too_slow"), "half a body: {slow}");
    server.wait_for("requests", 0.0);
}

/// Much more than the system keeps for a client that does not read: silence between sentences.
fn large() -> Value {
    json!({"input": text(40), "pause": 10})
}

#[test]
fn an_answer_that_is_still_being_read_is_under_way() {
    let mut server = Server::single(ServeSettings { most_connections: 2, ..ServeSettings::default() });
    let mut reader = BufReader::with_capacity(1, server.send_speech(&large()));
    let (status, headers) = read_head(&mut reader);
    assert_eq!(status, 200);
    let length: usize = headers["content-length"].parse().expect("a length");
    let mut body = vec![0; 1];
    reader.read_exact(&mut body).expect("a first byte");
    // Neither others who come make it go, nor the end of the server.
    for _ in 0..4 {
        assert_eq!(server.get("/healthz").status, 200);
    }
    server.stop.store(true, Ordering::SeqCst);
    while std::net::TcpStream::connect(server.address).is_ok() {
        std::thread::sleep(MOMENT);
    }
    // Longer than somebody who is sent away is listened to.
    std::thread::sleep(Duration::from_secs(2));
    let mut reader = BufReader::new(reader.into_inner());
    reader.read_to_end(&mut body).expect("the rest");
    assert_eq!(body.len(), length, "all of {length} bytes");
    server.end();
}

#[test]
fn everybody_in_a_burst_gets_an_answer() {
    let server = Server::single(ServeSettings { most_connections: 4, ..ServeSettings::default() });
    for _ in 0..20 {
        let burst: Vec<_> = (0..40).map(|_| server.send("GET", "/healthz", &[], b"")).collect();
        let statuses: Vec<u16> = burst.into_iter().map(|stream| Answer::read(stream).status).collect();
        assert!(statuses.iter().all(|status| matches!(status, 200 | 503)), "{statuses:?}");
        assert!(statuses.contains(&200), "{statuses:?}");
    }
}

#[test]
fn idle_connections_make_room_for_those_who_ask() {
    let server = Server::single(ServeSettings { most_connections: 16, ..ServeSettings::default() });
    let idle: Vec<_> = (0..300).map(|_| server.connect()).collect();
    for _ in 0..3 {
        assert_eq!(server.speech(&ask("A lamp.")).status, 200);
    }
    // Connections that are being answered are not closed; then newcomers are turned away.
    let before = server.gate.plans().len();
    server.gate.allow(before);
    let busy: Vec<_> = (0..15).map(|_| server.send_speech(&ask(&text(6)))).collect();
    server.wait_for("requests", 15.0);
    let mut last = ask(&text(6));
    last["stream"] = json!(true);
    let mut last = BufReader::new(server.send_speech(&last));
    // Everybody has a first sentence by then, and nobody all of them.
    server.gate.allow(before + 4);
    assert_eq!(read_head(&mut last).0, 200);
    assert!(!read_chunk(&mut last).expect("a chunk").is_empty());
    let refused = server.get("/healthz");
    assert_eq!(refused.error(), (503, "too_many_connections".to_owned()));
    assert_eq!(refused.headers["retry-after"], "5");
    server.gate.open();
    assert!(busy.into_iter().map(Answer::read).all(|answer| answer.status == 200));
    drop(idle);
}

#[test]
fn a_refusal_does_not_end_the_connection() {
    let server = Server::single(ServeSettings::default());
    let mut stream = server.connect();
    let head = "POST /v1/audio/speech HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: text/plain\r\ncontent-length: 40000\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(&[b'x'; 20_000]).expect("sent");
    std::thread::sleep(MOMENT);
    stream.write_all(&[b'x'; 20_000]).expect("sent");
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").expect("sent");
    let mut reader = BufReader::new(stream);
    let mut answer = || {
        let (status, headers) = read_head(&mut reader);
        let mut body = vec![0; headers["content-length"].parse().expect("a length")];
        reader.read_exact(&mut body).expect("a body");
        status
    };
    assert_eq!((answer(), answer()), (415, 200));
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
        std::thread::sleep(MOMENT);
    }
    server.gate.open();
    let mut chunks = 0;
    while read_chunk(&mut reader).expect("not broken off").len() > 2 {
        chunks += 1;
    }
    assert_eq!(chunks, 6, "every sentence");
    server.end();
}
