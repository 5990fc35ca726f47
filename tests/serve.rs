//! Promises of `tandem serve` and `tandem watch` as programs (SPEC W1, W4, W5); what they answer is tested in `crates/web/tests`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use crate::support::{Workplace, interrupt, run, stderr, tandem};

/// The program once it listens, its address, and what else it says until its end.
fn listening(program: &mut Command) -> (Child, String, JoinHandle<String>) {
    let mut child = program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut lines = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("http://") {
        line.clear();
        assert!(lines.read_line(&mut line).expect("output") > 0, "it ended");
    }
    let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address").to_owned();
    // Read as it comes: a pipe that is full would hold the program.
    let rest = std::thread::spawn(move || {
        let mut rest = String::new();
        lines.read_to_string(&mut rest).expect("output");
        rest
    });
    (child, address, rest)
}

fn get(address: &str, path: &str) -> String {
    ask(address, "GET", path, &[("host", address)], "")
}

fn ask(address: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n");
    stream.write_all((head + body).as_bytes()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn an_address_that_others_reach_needs_a_decision() {
    for command in ["serve runs/none", "watch ."] {
        let output = run(&format!("{command} --listen 0.0.0.0:0"));
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains("--token") && stderr(&output).contains("--no-auth"), "{}", stderr(&output));
    }
    let output = run("watch /nowhere/at/all");
    assert!(output.status.code() == Some(2) && stderr(&output).contains("not a folder"), "{}", stderr(&output));
}

#[test]
fn a_trained_voice_is_served_and_its_run_is_watched() {
    let work = Workplace::new(10, 1);
    work.trained("run", "--batch-size 2 --max-steps 16 --log-every 1");
    let dir = work.path("run");
    let (mut server, address, rest) = listening(tandem().args(["serve", "--listen", "127.0.0.1:0"]).arg(&dir));
    let models = get(&address, "/v1/models");
    assert!(models.starts_with("HTTP/1.1 200") && models.contains("\"id\":\"run\""), "{models}");
    interrupt(&server);
    assert_eq!(server.wait().expect("it ends").code(), Some(0), "Ctrl-C is how it ends");
    let rest = rest.join().expect("output");
    assert!(rest.contains("under way"), "{rest}");
    let refused = tandem().args(["serve", "--temperature", "0.5"]).arg(&dir).output().expect("it runs");
    assert!(refused.status.code() == Some(2) && stderr(&refused).contains("--flow"), "{}", stderr(&refused));

    let (mut watcher, address, _lines) =
        listening(tandem().args(["watch", "--listen", "127.0.0.1:0"]).arg(work.path(".")));
    let table = get(&address, "/");
    assert!(table.contains("class=\"state finished\"") && table.contains("/run?run=run&amp;lang=en"), "{table}");
    for (lang, word) in [("en", "Losses"), ("fa", "dir=\"rtl\"")] {
        let page = get(&address, &format!("/run?run=run&lang={lang}"));
        for part in [word, "id=\"plot-losses\"", "id=\"plot-lanes\"", "id=\"plot-rates\"", "--batch-size", "16 / 16"] {
            assert!(page.contains(part), "{lang}: {part} in {page}");
        }
    }
    assert!(get(&address, "/run?run=nothing").starts_with("HTTP/1.1 404"));
    assert!(get(&address, "/sample?run=run&file=../manifest.json").starts_with("HTTP/1.1 404"));
    // Players ask for a part of a sound; events come at once.
    std::fs::create_dir_all(dir.join("samples")).expect("made");
    std::fs::write(dir.join("samples/step-00000016.wav"), "0123456789").expect("written");
    let sample = "/sample?run=run&file=step-00000016.wav";
    let part = ask(&address, "GET", sample, &[("host", &address), ("range", "bytes=2-4")], "");
    assert!(
        part.starts_with("HTTP/1.1 206") && part.contains("bytes 2-4/10") && part.ends_with("\r\n\r\n234"),
        "{part}"
    );
    let mut events = TcpStream::connect(&address).expect("it listens");
    let head = format!("GET /events?run=run&lang=en HTTP/1.1\r\nhost: {address}\r\n\r\n");
    events.write_all(head.as_bytes()).expect("sent");
    let mut lines = BufReader::new(events).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("data: ") && line.contains("plot-losses")), "an event");
    interrupt(&watcher);
    assert_eq!(watcher.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_browser_is_asked_for_the_token_once() {
    let work = Workplace::new(10, 1);
    let arguments = ["watch", "--listen", "127.0.0.1:0", "--token", "se&cret", "--host", "runs.example"];
    let (mut watcher, address, _rest) = listening(tandem().args(arguments).arg(work.path(".")));
    let ours = [("host", address.as_str())];
    for page in ["/", "/run?run=x"] {
        let asked = ask(&address, "GET", page, &ours, "");
        assert!(asked.starts_with("HTTP/1.1 303") && asked.contains("location: /enter"), "{asked}");
    }
    for path in ["/events", "/sample?run=x&file=y"] {
        assert!(ask(&address, "GET", path, &ours, "").starts_with("HTTP/1.1 401"), "{path}");
    }
    let form = ask(&address, "GET", "/enter?lang=fa", &ours, "");
    assert!(form.contains("method=\"post\"") && form.contains("dir=\"rtl\""), "{form}");
    assert!(ask(&address, "POST", "/enter", &ours, "token=secret").starts_with("HTTP/1.1 403"));
    let entered = ask(&address, "POST", "/enter?lang=fa", &ours, "token=se%26cret");
    assert!(entered.starts_with("HTTP/1.1 303") && entered.contains("location: /?lang=fa"), "{entered}");
    let cookie = entered.split("set-cookie: ").nth(1).and_then(|rest| rest.split(';').next()).expect("a cookie");
    let known = [("host", "runs.example"), ("cookie", cookie)];
    assert!(ask(&address, "GET", "/", &known, "").starts_with("HTTP/1.1 200"));
    assert!(ask(&address, "GET", "/", &[("host", "evil.example"), ("cookie", cookie)], "").starts_with("HTTP/1.1 403"));
    assert!(ask(&address, "HEAD", "/", &known, "").starts_with("HTTP/1.1 200"));
    assert!(ask(&address, "PUT", "/", &known, "").contains("allow: GET, HEAD"));
    interrupt(&watcher);
    assert_eq!(watcher.wait().expect("it ends").code(), Some(0));
}

/// `train --web`: the page is there while the run trains, and shows that it does.
#[cfg(target_os = "linux")]
#[test]
fn a_run_can_be_watched_from_its_first_step_on() {
    let work = Workplace::new(10, 1);
    let more = "--batch-size 2 --epochs 1000000 --max-steps 10000000 --log-every 1 --web 0";
    let (mut child, address, _lines) = listening(tandem().args(work.arguments("run", more)));
    let page = loop {
        let page = get(&address, "/");
        if page.contains("class=\"state going\"") {
            break page;
        }
        assert!(child.try_wait().expect("a child").is_none(), "it ended: {page}");
    };
    assert!(page.contains("000000</span>"), "how many steps there will be: {page}");
    interrupt(&child);
    assert!(child.wait().expect("it ends").success());
    let refused = work.train("other", "--max-steps 1 --web 0.0.0.0:0");
    assert!(refused.status.code() == Some(2) && stderr(&refused).contains("tandem watch"), "{}", stderr(&refused));
}
