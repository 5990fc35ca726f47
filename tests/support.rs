//! Running the program as a user does.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output};

use serde_json::Value;
use tandem_data::DemoCorpus;
use tempfile::TempDir;

/// The program, in English and without color, whatever the machine's locale.
pub(crate) fn tandem() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
    command.env("LC_ALL", "C.UTF-8").env("NO_COLOR", "1").env_remove("LC_MESSAGES").env_remove("LANG");
    command
}

/// Runs it with arguments separated by blanks.
pub(crate) fn run(arguments: &str) -> Output {
    tandem().args(arguments.split_whitespace()).output().expect("the program starts")
}

/// Ctrl-C, once the program catches it: before that it makes no sense to send it.
#[cfg(target_os = "linux")]
pub(crate) fn interrupt(child: &Child) {
    let id = child.id().to_string();
    let catches_interrupts = || {
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim();
        u64::from_str_radix(caught, 16).is_ok_and(|caught| caught & 2 != 0)
    };
    while !catches_interrupts() {
        std::thread::yield_now();
    }
    let sent = Command::new("kill").args(["-INT", &id]).status().expect("kill exists");
    assert!(sent.success());
}

/// What a run prints after its first event of this name.
pub(crate) fn after_the_first(child: &mut Child, event: &str) -> BufReader<ChildStdout> {
    let mut reader = BufReader::new(child.stdout.take().expect("piped"));
    let (mut line, event) = (String::new(), format!("{{\"event\":\"{event}\""));
    while !line.starts_with(&event) {
        line.clear();
        assert!(reader.read_line(&mut line).expect("output") > 0, "it ended");
    }
    reader
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// The JSON object on the last line.
pub(crate) fn last_json(output: &Output) -> serde_json::Value {
    let text = stdout(output);
    let line = text.lines().last().unwrap_or_else(|| panic!("no output; stderr: {}", stderr(output)));
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// A talking corpus and room for runs, gone with the value.
pub(crate) struct Workplace {
    dir: TempDir,
}

impl Workplace {
    pub(crate) fn new(clips: usize, speakers: usize) -> Workplace {
        let dir = TempDir::new().expect("a folder");
        DemoCorpus { clips, speakers, seed: 3 }.write(&dir.path().join("corpus")).expect("written");
        Workplace { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The arguments of a small training run in folder `name`.
    pub(crate) fn arguments(&self, name: &str, more: &str) -> Vec<String> {
        let (corpus, run) = (self.path("corpus"), self.path(name));
        let fixed = format!(
            // Its sounds are its letters; and the same run on every machine, with espeak-ng or without.
            "train --train-data {} --checkpoint-dir {} --model-size smoke --sample-every 0 --units characters --json {more}",
            corpus.display(),
            run.display()
        );
        fixed.split_whitespace().map(str::to_owned).collect()
    }

    pub(crate) fn train(&self, name: &str, more: &str) -> Output {
        tandem().args(self.arguments(name, more)).output().expect("it starts")
    }

    pub(crate) fn trained(&self, name: &str, more: &str) -> Value {
        let output = self.train(name, more);
        assert!(output.status.success(), "{}", stderr(&output));
        last_json(&output)["report"].clone()
    }

    /// The losses of every step, as they are in the log.
    pub(crate) fn losses(&self, name: &str) -> Vec<(u64, String)> {
        let log = fs::read_to_string(self.path(name).join("log.jsonl")).expect("a log");
        (log.lines())
            .map(|line| serde_json::from_str::<Value>(line).expect("whole lines"))
            .filter(|line| line["validation"].is_null())
            .map(|line| (line["step"].as_u64().expect("a step"), line.to_string()))
            .collect()
    }

    pub(crate) fn weights(&self, name: &str, step: u64) -> Vec<u8> {
        let dir = self.path(name).join(format!("checkpoints/step-{step:08}"));
        ["model", "ema", "optimizer"]
            .map(|name| fs::read(dir.join(format!("{name}.safetensors"))))
            .into_iter()
            .flat_map(|bytes| bytes.expect("a checkpoint"))
            .collect()
    }
}

/// Losses of two runs, largest relative difference.
pub(crate) fn difference(work: &Workplace, a: &str, b: &str) -> f64 {
    let loss = |line: &String| serde_json::from_str::<Value>(line).expect("JSON")["loss"].as_f64().expect("a loss");
    let (a, b) = (work.losses(a), work.losses(b));
    assert!(!a.is_empty() && a.len() == b.len());
    let off = a.iter().zip(&b).map(|((_, a), (_, b))| (loss(a) - loss(b)).abs() / loss(b));
    // What is not a number is the largest of all here; `max` would pass it over.
    off.max_by(f64::total_cmp).expect("losses")
}

/// Where espeak-ng is. CI installs it and sets `TANDEM_NEEDS_ESPEAK`, so that there nothing is skipped.
pub(crate) fn espeak() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("espeak-ng")).find(|file| file.is_file());
    if found.is_none() {
        assert!(std::env::var_os("TANDEM_NEEDS_ESPEAK").is_none(), "no espeak-ng, and this machine must have it");
        eprintln!("skipped: espeak-ng is not installed");
    }
    found
}

/// Manifests of software Vulkan drivers, as `VK_ICD_FILENAMES` wants them: lavapipe, lavapipe again under another name
/// (which is another device), and SwiftShader when there is one.
pub(crate) struct SoftwareGpus {
    _dir: TempDir,
    lavapipe: [PathBuf; 2],
    swift_shader: Option<PathBuf>,
}

impl SoftwareGpus {
    /// Where they are installed. CI installs them and sets `TANDEM_NEEDS_VULKAN`, so that there nothing is skipped.
    pub(crate) fn find() -> Option<SoftwareGpus> {
        let dir = TempDir::new().expect("a folder");
        let installed =
            fs::read_dir("/usr/share/vulkan/icd.d").into_iter().flatten().flatten().map(|entry| entry.path());
        let is_lavapipe =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("lvp_icd"));
        let Some(lavapipe) = installed.into_iter().find(is_lavapipe) else {
            assert!(
                std::env::var_os("TANDEM_NEEDS_VULKAN").is_none(),
                "no Vulkan device, and this machine must have one"
            );
            eprintln!("skipped: no Vulkan device");
            return None;
        };
        let copy = dir.path().join("second.json");
        fs::copy(&lavapipe, &copy).expect("copied");
        let swift_shader = std::env::var_os("TANDEM_SWIFTSHADER").map(PathBuf::from);
        let swift_shader = swift_shader.unwrap_or_else(|| "/usr/lib/chromium/vk_swiftshader_icd.json".into());
        let swift_shader = swift_shader.is_file().then_some(swift_shader);
        Some(SoftwareGpus { _dir: dir, lavapipe: [lavapipe, copy], swift_shader })
    }

    /// The program with these devices: `count` times lavapipe, then SwiftShader if asked for.
    pub(crate) fn tandem(&self, count: usize, swift_shader: bool) -> Option<Command> {
        let mut manifests: Vec<&Path> = self.lavapipe.iter().take(count).map(PathBuf::as_path).collect();
        if swift_shader {
            let Some(manifest) = &self.swift_shader else {
                assert!(
                    std::env::var_os("TANDEM_NEEDS_VULKAN").is_none(),
                    "no SwiftShader, and this machine must have it"
                );
                eprintln!("skipped: no second Vulkan driver (SwiftShader)");
                return None;
            };
            manifests.push(manifest);
        }
        let all: Vec<String> = manifests.iter().map(|manifest| manifest.display().to_string()).collect();
        let mut command = tandem();
        command.env("VK_ICD_FILENAMES", all.join(":")).env_remove("VK_DRIVER_FILES");
        Some(command)
    }
}

/// The lines of JSON that a run printed.
pub(crate) fn events(output: &Output) -> Vec<Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).expect("JSON lines")).collect()
}

pub(crate) fn position(events: &[Value], name: &str) -> usize {
    events.iter().position(|event| event["event"] == name).unwrap_or_else(|| panic!("no event {name}: {events:?}"))
}

/// What the manifest says about the last start.
pub(crate) fn manifest(work: &Workplace, name: &str) -> Value {
    let text = fs::read_to_string(work.path(name).join("manifest.json")).expect("a manifest");
    let manifest: Value = serde_json::from_str(&text).expect("JSON");
    manifest["starts"].as_array().expect("starts").last().expect("one").clone()
}

/// What it says about devices.
pub(crate) fn facts(work: &Workplace, name: &str) -> Value {
    manifest(work, name)["facts"].clone()
}

/// For each stage: the spans (start, end, thread) of a trace, in microseconds.
pub(crate) fn spans(path: &Path) -> BTreeMap<String, Vec<(f64, f64, u64)>> {
    let trace: Value = serde_json::from_str(&fs::read_to_string(path).expect("a trace")).expect("JSON");
    let mut all: BTreeMap<String, Vec<(f64, f64, u64)>> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().expect("events").iter().filter(|event| event["ph"] == "X") {
        let (start, length) = (event["ts"].as_f64().expect("ts"), event["dur"].as_f64().expect("dur"));
        // Times of waiting have none.
        let Some(stage) = event["args"]["stage"].as_str().map(str::to_owned) else { continue };
        all.entry(stage).or_default().push((start, start + length, event["tid"].as_u64().expect("a thread")));
    }
    all
}

/// The step of a run's last checkpoint.
pub(crate) fn last_step(run: &Path) -> Option<u64> {
    let names = fs::read_dir(run.join("checkpoints")).ok()?.flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.strip_prefix("step-")?.parse().ok()).max()
}
