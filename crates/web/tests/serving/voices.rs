//! Voices that come and go: uploaded recordings, later checkpoints.

use std::fs;
use std::io::{BufReader, Write};
use std::path::PathBuf;

use serde_json::json;
use tandem_web::{ServeEvent, ServeSettings};

use crate::support::{Answer, Server, ask, read_chunk, read_head, text, voice};

fn recording(seconds: f64) -> Vec<u8> {
    recording_at(16_000, seconds)
}

fn recording_at(rate: u32, seconds: f64) -> Vec<u8> {
    let wave: Vec<f32> = (0..(f64::from(rate) * seconds) as usize).map(|n| 0.4 * (n as f32 * 0.06).sin()).collect();
    let mut bytes = Vec::new();
    tandem_audio::write_wav(&wave, rate, &mut bytes).expect("memory");
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
        ("/v1/voices?name=x", "audio/wav", recording(61.0), (400, "recording_too_long")),
        ("/v1/voices?name=x", "audio/wav", recording_at(384_000, 2.0), (400, "not_audio")),
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
    assert_eq!(speak("default").body, anna.body, "the first speaker");
    assert_eq!(server.ask("DELETE", "/v1/voices/sara", &[], b"").status, 200);
    assert_eq!(speak("sara").error(), (404, "unknown_voice".to_owned()));
}

#[test]
fn recordings_are_admitted_a_few_at_a_time() {
    let server = Server::start(vec![("/runs/many".into(), voice(&["anna"], 7))], ServeSettings::default());
    let head = |length: usize| {
        format!(
            "POST /v1/voices?name=x HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: audio/wav\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let begin = || {
        let mut stream = server.connect();
        stream.write_all(head(1 << 20).as_bytes()).expect("sent");
        stream
    };
    let uploads: Vec<_> = (0..4).map(|_| begin()).collect();
    server.wait_for("uploads", 4.0);
    let refused = Answer::read(begin());
    assert_eq!(refused.error(), (429, "too_many_uploads".to_owned()));
    assert!(refused.headers.contains_key("retry-after"));
    drop(uploads);
    server.wait_for("uploads", 0.0);
    let post = |body: &[u8]| server.ask("POST", "/v1/voices?name=sara", &[("content-type", "audio/wav")], body);
    assert_eq!(post(&recording(2.0)).status, 201);
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
    assert!(matches!(server.event(), ServeEvent::ReloadFailed { .. }));
    assert_eq!(step(), 1);
    save(20);
    assert!(matches!(server.event(), ServeEvent::Reloaded { step: 20, .. }));
    assert_eq!(step(), 20);
    server.gate.open();
    let mut chunks = 0;
    while !read_chunk(&mut reader).expect("not broken off").is_empty() {
        chunks += 1;
    }
    assert_eq!(chunks, 6, "the request that was under way lost nothing");
    assert_eq!(server.speech(&ask("A lamp.")).status, 200);
}
