//! Promises about runs that somebody ends: kills, signals, terminals that close, two starts in one directory.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tandem_flow::Random;

use crate::support::{Workplace, after_the_first, last_step, run, stderr, tandem};

#[test]
fn a_killed_run_resumes_bit_for_bit() {
    // SPEC A4. scripts/kills runs it with 50.
    let kills: u64 = std::env::var("TANDEM_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    let work = Workplace::new(22, 2);
    let steps = 14 + kills;
    work.trained("whole", &format!("--batch-size 4 --max-steps {steps} --checkpoint-every 5"));
    let mut random = Random::new(std::process::id().into());
    let (mut tries, mut killed) = (0, 0);
    for attempt in 0.. {
        // A checkpoint after every step: many kills fall into the writing of one. Any number of workers.
        let workers = attempt % 4;
        let settings =
            format!("--batch-size 4 --max-steps {steps} --checkpoint-every 1 --keep 2 --num-workers {workers}");
        let mut child = (tandem().args(work.arguments("killed", &settings)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        if tries < kills {
            std::thread::sleep(Duration::from_millis(150 + random.below(900) as u64));
            // SIGKILL: nothing can be tidied up.
            child.kill().expect("it runs, or has just ended");
            tries += 1;
        }
        let output = child.wait_with_output().expect("it ends");
        let ended = output.status.success();
        // It may have been over before.
        killed += u64::from(output.status.code().is_none());
        assert!(ended || output.status.code().is_none(), "not killed, and failed: {}", stderr(&output));
        if work.path("killed/checkpoints").exists() && last_step(&work.path("killed")).is_some() {
            let look = run(&format!("inspect {}", work.path("killed").display()));
            assert!(look.status.success(), "after try {tries}: {}", stderr(&look));
        }
        if ended && tries >= kills {
            break;
        }
    }
    assert!(killed > 0, "nothing was killed");
    assert_eq!(work.losses("killed"), work.losses("whole"), "loss for loss");
    assert_eq!(work.weights("killed", steps), work.weights("whole", steps), "weights and optimizer");
    let left: Vec<_> = fs::read_dir(work.path("killed/checkpoints"))
        .expect("a folder")
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// What a run prints from its first step on.
fn after_the_first_step(child: &mut Child) -> BufReader<ChildStdout> {
    after_the_first(child, "progress")
}

/// Steps of a run that cannot end by itself as long as nobody reads its output: with `--log-every 1` it prints more than
/// a pipe and our reader hold, so it waits in the middle however long a busy machine takes to send it a signal.
const HELD_STEPS: u64 = 160;

/// That it does print so much: without that, tests would race the run.
fn assert_held(output: &Output) {
    const PIPE: usize = 65_536;
    const READER: usize = 8192;
    assert!(output.stdout.len() > 2 * (PIPE + READER), "a run of {} bytes does not wait", output.stdout.len());
}

/// Sends signals, and waits until the program has heard one: its thread for signals may be late on a busy machine.
#[cfg(unix)]
fn signals_heard(child: &mut Child, signals: &[&str]) {
    for signal in signals {
        let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
        assert!(sent.expect("kill").success());
    }
    let mut errors = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("stopping after this step") {
        line.clear();
        assert!(errors.read_line(&mut line).expect("output") > 0, "it ended without a word about the signal");
    }
    // Nobody else reads it; what little follows fits into the pipe, which must stay open.
    child.stderr = Some(errors.into_inner());
}

/// Reads what is left, once the run may end.
fn last_of(mut reader: BufReader<ChildStdout>) -> Value {
    let mut rest = String::new();
    reader.read_to_string(&mut rest).expect("output");
    serde_json::from_str(rest.lines().last().expect("a line")).expect("JSON")
}

/// Whether these tests were started under `nohup`: then no run of theirs hears of a terminal that closes, as it should be.
#[cfg(unix)]
fn hangups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_says_how_to_resume_and_resumes_exactly() {
    let work = Workplace::new(16, 1);
    let settings = format!("--batch-size 4 --max-steps {HELD_STEPS} --checkpoint-every 1000 --log-every 1");
    let whole = work.train("whole", &settings);
    assert!(whole.status.success(), "{}", stderr(&whole));
    assert_held(&whole);
    for (name, signal) in [("int", "INT"), ("term", "TERM"), ("hup", "HUP")] {
        if signal == "HUP" && hangups_are_ignored() {
            eprintln!("SKIPPED: SIGHUP, which this test and what it starts ignore (nohup)");
            continue;
        }
        let mut command = tandem();
        command.args(work.arguments(name, &settings)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let reader = after_the_first_step(&mut child);
        signals_heard(&mut child, &[signal]);
        let end = last_of(reader);
        let status = child.wait().expect("it ends");
        assert_eq!(status.code(), Some(0), "SPEC A6: {end}");
        assert_eq!(end["report"]["ending"], "stopped");
        let reached = end["report"]["step"].as_u64().expect("a step");
        assert!(reached < HELD_STEPS, "it was asked to stop");
        assert_eq!(last_step(&work.path(name)), Some(reached));
        work.trained(name, &settings);
        assert_eq!(work.losses(name), work.losses("whole"));
        assert_eq!(work.weights(name, HELD_STEPS), work.weights("whole", HELD_STEPS));
    }
}

/// Under `nohup` a terminal that closes does not end a run.
#[cfg(unix)]
#[test]
fn a_run_under_nohup_continues_when_the_terminal_closes() {
    let work = Workplace::new(16, 1);
    let settings = format!("--batch-size 4 --max-steps {HELD_STEPS} --log-every 1");
    assert_held(&work.train("whole", &settings));
    let mut child = Command::new("sh")
        .args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_tandem")])
        .args(work.arguments("run", &settings))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let reader = after_the_first_step(&mut child);
    let sent = Command::new("kill").args(["-HUP", &child.id().to_string()]).status();
    assert!(sent.expect("kill").success());
    let end = last_of(reader);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert_eq!((&end["report"]["ending"], &end["report"]["step"]), (&"finished".into(), &HELD_STEPS.into()));
}

#[test]
fn two_processes_do_not_train_in_one_directory_and_a_closed_output_saves() {
    let work = Workplace::new(16, 1);
    let mut first = tandem()
        .args(work.arguments("run", "--batch-size 4 --max-steps 100000 --log-every 1"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let reader = after_the_first_step(&mut first);
    for more in ["--batch-size 4", "--batch-size 4 --reset-training"] {
        let second = work.train("run", more);
        assert_eq!(second.status.code(), Some(2), "{}", stderr(&second));
        assert!(stderr(&second).contains("another process is training in"), "{}", stderr(&second));
    }
    // Nobody reads any more, as with `| head`.
    drop(reader);
    let status = first.wait().expect("it ends");
    assert_eq!(status.code(), Some(0));
    assert!(last_step(&work.path("run")).is_some_and(|step| step >= 1), "with a checkpoint");
}

/// Another start was faster by less than it takes to read a corpus: it has the folder, and nothing else is there yet.
#[test]
fn of_two_starts_at_once_the_second_changes_nothing() {
    let work = Workplace::new(12, 1);
    fs::create_dir(work.path("run")).expect("made");
    let first = fs::File::create(work.path("run/lock")).expect("made");
    first.lock().expect("nobody has it");
    for more in ["--max-steps 2", "--max-steps 2 --reset-training"] {
        let second = work.train("run", &format!("--batch-size 4 {more}"));
        assert_eq!(second.status.code(), Some(2), "{}", stderr(&second));
        assert!(stderr(&second).contains("another process is training in"), "{}", stderr(&second));
        let left: Vec<_> =
            fs::read_dir(work.path("run")).expect("there").flatten().map(|file| file.file_name()).collect();
        assert_eq!(left, ["lock"], "{more}");
        assert!(!work.path("run.1").exists(), "{more}");
    }
    drop(first);
    work.trained("run", "--batch-size 4 --max-steps 2");
}

#[test]
fn a_start_that_is_refused_leaves_no_folder() {
    let work = Workplace::new(4, 1);
    let corpus = work.path("corpus");
    // Sound that is not a number: that is found when the first clips are read for the statistics.
    let none = crate::corpus::wav_of(3, 1, 32, 22_050, &f32::NAN.to_le_bytes().repeat(22_050));
    for entry in fs::read_dir(corpus.join("wavs")).expect("there").flatten() {
        fs::write(entry.path(), &none).expect("written");
    }
    let output = work.train("refused", "--batch-size 2 --max-steps 2");
    assert!(!output.status.success());
    assert!(stderr(&output).contains("not one of the first clips can be read"), "{}", stderr(&output));
    assert!(!work.path("refused").exists(), "nothing was begun");
}

/// Two signals at once, as a terminal and a service manager send them, are one request: the step is finished and saved.
#[cfg(unix)]
#[test]
fn a_second_signal_at_once_costs_nothing() {
    let work = Workplace::new(16, 1);
    let settings = format!("--batch-size 4 --max-steps {HELD_STEPS} --checkpoint-every 1000 --log-every 1");
    let mut command = tandem();
    command.args(work.arguments("run", &settings)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let reader = after_the_first_step(&mut child);
    // While it is stopped both wait for it, so that they arrive together however busy the machine is.
    signals_heard(&mut child, &["STOP", "INT", "TERM", "CONT"]);
    let end = last_of(reader);
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{end}");
    assert_eq!(end["report"]["ending"], "stopped");
    assert_eq!(last_step(&work.path("run")), end["report"]["step"].as_u64());
}
