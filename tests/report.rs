//! Promises about what a run reports while it trains and afterwards.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::{Workplace, after_the_first, events, last_json, run, stderr, stdout, tandem};

fn named<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == name).collect()
}

/// SPEC R1, R2, R3, M11: a data lane that is slow on purpose is named, with the flag to change, once.
#[test]
fn a_run_names_what_limits_it_when_that_changes() {
    let work = Workplace::new(40, 1);
    let output = work.train(
        "slow",
        "--batch-size 2 --max-steps 40 --no-autotune --log-every 5 --inject data:slow0.4@0 --model-start-delay 0 \
         --buffer-size 2 --prefetch-buffer-size 1",
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let events = events(&output);
    let limits = named(&events, "limit");
    assert_eq!(limits.len(), 1, "reported once: {limits:?}");
    assert_eq!(limits[0]["bottleneck"], "preprocess", "{limits:?}");
    assert!(limits[0]["starved"].as_f64().expect("a share") > 0.05 && limits[0]["change"]["flag"] == "--features-on");
    let snapshots = named(&events, "snapshot");
    let last = &snapshots.last().expect("snapshots")["snapshot"];
    assert_eq!((&last["step"], &last["total_clips"]), (&40.into(), &80.into()), "totals are true totals");
    for figure in ["mean", "std", "min", "max", "p50", "p95", "p99"] {
        assert!(last["step_ms"][figure].as_f64().expect(figure) > 0.0);
    }
    let step = &last["step_ms"];
    let value = |name: &str| step[name].as_f64().expect(name);
    assert!(value("min") <= value("p50") && value("p50") <= value("p95") && value("p99") <= value("max"), "{step}");
    assert_eq!(last["queues"].as_array().map(Vec::len), Some(3));
    assert!(last["memory"][0]["used_bytes"].as_u64().expect("bytes") > 0);
    // The same in words.
    let text = tandem()
        .args(work.arguments("words", "").iter().filter(|word| *word != "--json"))
        .args("--batch-size 2 --max-steps 40 --no-autotune --log-every 5 --inject data:slow0.4@0".split(' '))
        .args("--model-start-delay 0 --buffer-size 2 --prefetch-buffer-size 1".split(' '))
        .output()
        .expect("it starts");
    let words = stderr(&text);
    assert!(words.contains("limited by: preprocess (starved "), "{words}");
    assert!(words.contains("; try --features-on "), "{words}");
    assert!(stdout(&text).contains("limited by: preprocess"), "also at the end: {}", stdout(&text));
}

/// A report from a finished run's folder, from damaged files, and from what is none.
#[test]
fn a_report_shows_what_is_there_and_says_what_is_not() {
    let work = Workplace::new(40, 1);
    work.trained("run", "--batch-size 2 --max-steps 40 --log-every 5");
    let dir = work.path("run");
    let report = |more: &str| run(&format!("report {} {more}", dir.display()));
    let text = report("");
    for words in ["TIMING BREAKDOWN", "GPU UTILIZATION", "state: finished", "steps: 40 / 40"] {
        assert!(stdout(&text).contains(words), "{words}: {}{}", stdout(&text), stderr(&text));
    }
    let json = last_json(&report("--json"));
    let side = &json["sides"][0];
    assert_eq!(side["losses"][0]["points"].as_array().map(Vec::len), Some(40), "every step is in the log");
    assert!(side["lanes"].as_array().is_some_and(|lanes| lanes.len() > 20), "{}", side["lanes"]);
    let page = work.path("report.html");
    assert!(report(&format!("--html {}", page.display())).status.success());
    let html = fs::read_to_string(&page).expect("a page");
    for plot in ["plot-lanes", "plot-steps", "plot-queues", "plot-memory", "plot-losses"] {
        assert!(html.contains(plot), "{plot}");
    }
    assert!(!html.contains("http://") && !html.contains("https://") || html.contains("www.w3.org"), "self-contained");

    // A log that is cut off.
    for name in ["monitor.jsonl", "log.jsonl"] {
        let path = dir.join(name);
        let whole = fs::read(&path).expect("a log");
        fs::write(&path, &whole[..whole.len() - 20]).expect("written");
    }
    let cut = report("");
    assert!(cut.status.success());
    assert!(stderr(&cut).matches("cut off or damaged").count() == 2, "{}", stderr(&cut));
    assert!(stdout(&cut).contains("TIMING BREAKDOWN"));

    // A run of another version, and what is none.
    let manifest = fs::read_to_string(dir.join("manifest.json")).expect("a manifest");
    let format = format!("\"format\": {}", tandem_train::RUN_FORMAT);
    fs::write(dir.join("manifest.json"), manifest.replace(&format, "\"format\": 77")).expect("written");
    let other = report("");
    assert_eq!(other.status.code(), Some(2));
    assert!(stderr(&other).contains("was written by tandem") && stderr(&other).contains("hint"), "{}", stderr(&other));
    let none = run(&format!("report {}", work.path("corpus").display()));
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).contains("is not the folder of a run"), "{}", stderr(&none));
}

#[test]
fn two_runs_are_compared() {
    let work = Workplace::new(40, 1);
    work.trained("a", "--batch-size 2 --max-steps 30 --log-every 5 --buffer-size 2");
    work.trained("b", "--batch-size 4 --max-steps 30 --log-every 5 --buffer-size 2");
    let output = run(&format!("report {} {}", work.path("a").display(), work.path("b").display()));
    let text = stdout(&output);
    for words in ["COMPARISON", "steps/s", "SETTINGS THAT DIFFER", "--batch-size: 2 → 4"] {
        assert!(text.contains(words), "{words}: {text}{}", stderr(&output));
    }
    assert!(!text.contains("--buffer-size"), "only what differs: {text}");
}

/// A run that is training, ended with the value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// SPEC R3 for Prometheus, a report of a run that is training, and a port that is taken.
#[test]
fn a_running_run_can_be_looked_at() {
    let work = Workplace::new(40, 1);
    // It cannot end by itself: there is always another step, and nobody reads what it prints after its first snapshot.
    let more = "--batch-size 2 --epochs 1000000 --max-steps 10000000 --log-every 5 --metrics 0";
    let mut child = (tandem().args(work.arguments("live", more)).stdout(Stdio::piped()).stderr(Stdio::piped()))
        .spawn()
        .expect("it starts");
    let mut said = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut running = Running(child);
    let address =
        said.find_map(|line| Some(line.expect("UTF-8").split_once("http://")?.1.split_once("/metrics")?.0.to_owned()));
    let address = address.expect("it says where");
    assert!(address.starts_with("127.0.0.1:"), "loopback unless something else is requested: {address}");
    let _unread = after_the_first(&mut running.0, "snapshot");
    let metrics = get(&address, "/metrics").expect("an answer");
    assert!(metrics.contains("tandem_step "), "{metrics}");
    for line in ["# TYPE tandem_loss gauge", "tandem_queue_items{queue=\"host\"}", "tandem_bottleneck{stage=\"load\"}"]
    {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let output = run(&format!("report {}", work.path("live").display()));
    assert!(output.status.success(), "{}", stderr(&output));
    let report = stdout(&output);
    assert!(report.contains("state: running"), "{report}");
    // The port is taken, and nothing was begun.
    let output = work.train("second", &format!("--max-steps 2 --metrics {address}"));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains(&address) && stderr(&output).contains("another program uses the port"));
    assert!(!work.path("second").exists(), "nothing was begun");
}

/// SPEC F20, as far as it can be seen without TensorBoard; `scripts/oracles/tensorboard.py` reads such files with it.
#[test]
fn a_run_can_be_watched_in_tensorboard() {
    let work = Workplace::new(40, 1);
    let board = work.path("board");
    let more = format!("--batch-size 2 --log-every 5 --tensorboard-log-dir {}", board.display());
    work.trained("run", &format!("--max-steps 20 {more}"));
    work.trained("run", &format!("--max-steps 30 {more}"));
    let files: Vec<_> = fs::read_dir(&board).expect("a folder").flatten().map(|entry| entry.path()).collect();
    assert_eq!(files.len(), 2, "a run that is resumed has a file of its own: {files:?}");
    for file in files {
        assert!(file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("events.out.tfevents.")));
        let bytes = fs::read(&file).expect("a file");
        let has = |tag: &str| bytes.windows(tag.len()).any(|window| window == tag.as_bytes());
        for tag in ["brain.Event:2", "loss/train", "lanes/starved", "settings", "--batch-size"] {
            assert!(has(tag), "{tag} in {}", file.display());
        }
    }
    // A place that cannot be written is found before anything is begun.
    let file = work.path("corpus/metadata.csv");
    let output = work.train("none", &format!("--max-steps 2 --tensorboard-log-dir {}", file.display()));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("metadata.csv"), "{}", stderr(&output));
}

/// A start of a few steps has no snapshot of its own; how the run stands is known all the same.
#[test]
fn a_report_says_where_the_run_is_and_not_where_the_last_snapshot_was() {
    let work = Workplace::new(16, 1);
    work.trained("run", "--batch-size 4 --max-steps 30 --log-every 5");
    work.trained("run", "--batch-size 4 --max-steps 32 --log-every 5");
    let text = stdout(&run(&format!("report {}", work.path("run").display())));
    assert!(text.contains("32 / 32"), "{text}");
    let nothing = work.arguments("run", "--batch-size 4 --max-steps 32");
    let output = tandem().args(nothing.iter().filter(|word| *word != "--json")).output().expect("it starts");
    assert!(stdout(&output).contains("nothing to do: the run has its 32 steps"), "{}", stdout(&output));
    assert!(stdout(&output).contains("tandem synth"), "{}", stdout(&output));
}

/// A counter that starts from zero again would look like a new run to Prometheus.
#[test]
fn totals_of_a_resumed_run_are_from_the_very_start() {
    let work = Workplace::new(20, 1);
    let total = |steps: u64| {
        let output = work.train("run", &format!("--batch-size 3 --max-steps {steps} --log-every 1"));
        assert!(output.status.success(), "{}", stderr(&output));
        let events = events(&output);
        let last = named(&events, "snapshot").pop().expect("enough steps")["snapshot"].clone();
        (last["total_clips"].as_u64().expect("a number"), last["total_audio_s"].as_f64().expect("a number"))
    };
    let (first, resumed) = (total(18), total(36));
    // Eighteen clips in threes: every batch is full.
    assert_eq!((first.0, resumed.0), (18 * 3, 36 * 3));
    assert!((resumed.1 / first.1 - 2.0).abs() < 1e-9, "{first:?} {resumed:?}");
}
