//! Promises about training: it learns, it loses nothing, it resumes exactly.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tandem_flow::Random;
use tandem_train::Checkpoints;
use tempfile::TempDir;

use crate::support::{
    Workplace, after_the_first, difference, events, last_json, position, run, stderr, stdout, tandem,
};

#[test]
fn a_killed_run_resumes_bit_for_bit() {
    // SPEC A4. scripts/kills runs it with 50.
    let kills: u64 = std::env::var("TANDEM_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    let work = Workplace::new(22, 2);
    let steps = 14 + kills;
    work.trained("whole", &format!("--batch-size 4 --max-steps {steps} --checkpoint-every 5"));
    let mut random = Random::new(std::process::id().into());
    let mut killed = 0;
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
        if killed < kills {
            std::thread::sleep(Duration::from_millis(150 + random.below(900) as u64));
            // SIGKILL: nothing can be tidied up.
            child.kill().expect("it runs, or has just ended");
            killed += 1;
        }
        let output = child.wait_with_output().expect("it ends");
        let ended = output.status.success();
        assert!(ended || output.status.code().is_none(), "not killed, and failed: {}", stderr(&output));
        if work.path("killed/checkpoints").exists() && last_step(&work.path("killed")).is_some() {
            let look = run(&format!("inspect {}", work.path("killed").display()));
            assert!(look.status.success(), "after kill {killed}: {}", stderr(&look));
        }
        if ended && killed >= kills {
            break;
        }
    }
    assert_eq!(work.losses("killed"), work.losses("whole"), "loss for loss");
    assert_eq!(work.weights("killed", steps), work.weights("whole", steps), "weights and optimizer");
    let left: Vec<_> = fs::read_dir(work.path("killed/checkpoints"))
        .expect("a folder")
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

fn last_step(run: &Path) -> Option<u64> {
    let names = fs::read_dir(run.join("checkpoints")).ok()?.flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.strip_prefix("step-")?.parse().ok()).max()
}

#[cfg(unix)]
#[test]
fn a_full_disk_costs_steps_but_never_a_checkpoint() {
    let work = Workplace::new(16, 1);
    let settings = |steps: u64| format!("--batch-size 4 --max-steps {steps} --checkpoint-every 2");
    work.trained("whole", &settings(8));
    work.trained("full", &settings(4));
    // Files may not grow beyond 1 MB: weights do not fit, like on a disk that is full.
    let arguments = work.arguments("full", &settings(8)).join(" ");
    let program = env!("CARGO_BIN_EXE_tandem");
    let output = Command::new("bash")
        .args(["-c", &format!("trap '' XFSZ; ulimit -f 1024; exec {program} {arguments}")])
        .env("LC_ALL", "C.UTF-8")
        .output()
        .expect("bash");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("step-00000008"), "{}", stderr(&output));
    assert!(stderr(&output).contains("what was learned up to step 4 is saved"), "{}", stderr(&output));
    assert!(stdout(&output).contains("checkpoint_failed"));
    assert_eq!(last_step(&work.path("full")), Some(4));
    assert!(run(&format!("inspect {}", work.path("full").display())).status.success());
    work.trained("full", &settings(8));
    assert_eq!(work.losses("full"), work.losses("whole"));
    assert_eq!(work.weights("full", 8), work.weights("whole", 8));
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

#[cfg(unix)]
#[test]
fn an_interrupted_run_says_how_to_resume_and_resumes_exactly() {
    let work = Workplace::new(16, 1);
    let settings = format!("--batch-size 4 --max-steps {HELD_STEPS} --checkpoint-every 1000 --log-every 1");
    let whole = work.train("whole", &settings);
    assert!(whole.status.success(), "{}", stderr(&whole));
    assert_held(&whole);
    for (name, signal) in [("int", "INT"), ("term", "TERM"), ("hup", "HUP")] {
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

/// SPEC P7: the losses of a step stay on the device until the log needs them.
#[test]
fn losses_are_read_back_when_the_log_needs_them_and_not_after_every_step() {
    let work = Workplace::new(24, 1);
    let report = work.trained("tens", "--batch-size 2 --max-steps 20 --log-every 10 --validate-every 20");
    assert_eq!((&report["steps"], &report["readings"]), (&20.into(), &2.into()));
    let report = work.trained("each", "--batch-size 2 --max-steps 20 --log-every 1 --validate-every 20");
    assert_eq!((&report["steps"], &report["readings"]), (&20.into(), &20.into()));
}

#[test]
fn a_loss_that_is_not_a_number_is_named_with_its_clips() {
    let work = Workplace::new(16, 1);
    let settings = "--batch-size 5 --max-steps 6 --log-every 1";
    let output = work.train("stop", &format!("{settings} --inject nan@3"));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the loss of step 3 is not a number; its clips: demo_"), "{}", stderr(&output));
    let error = stderr(&output).lines().find(|line| line.starts_with("error:")).expect("an error").to_owned();
    let named = error.matches("demo_").count();
    assert_eq!(named, 5, "all clips of the batch: {}", stderr(&output));
    // Nothing is lost: the step changed nothing, and the same command resumes.
    let report = work.trained("stop", settings);
    assert_eq!(report["step"], 6);
    let output = work.train("skip", &format!("{settings} --inject nan@3 --nan skip"));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("\"not_finite\""));
    assert_eq!(last_json(&output)["report"]["step"], 6);
    assert!(last_json(&output)["report"]["loss"].is_number());
    let look = run(&format!("inspect {}", work.path("skip").display()));
    assert!(look.status.success());
}

#[test]
fn accumulated_and_split_batches_make_the_same_steps() {
    let work = Workplace::new(24, 2);
    work.trained("large", "--batch-size 8 --max-steps 6");
    work.trained("parts", "--batch-size 2 --grad-accum 4 --max-steps 6");
    let off = difference(&work, "parts", "large");
    assert!(off < 1e-5, "SPEC F11: {off}");
    // SPEC G6: from step 3 on only three clips fit at once.
    let output = work.train("split", "--batch-size 8 --max-steps 6 --inject oom@3:3");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("{\"event\":\"split\",\"step\":3,\"parts\":4,"), "{}", stdout(&output));
    let off = difference(&work, "split", "large");
    assert!(off < 1e-5, "{off}");
}

/// On a device that does not tell how much memory it has, the longest batch is tried whole and then in halves.
#[test]
fn a_device_of_unknown_memory_that_runs_out_before_the_first_step_splits_batches() {
    let work = Workplace::new(24, 2);
    work.trained("large", "--batch-size 8 --max-steps 6");
    let output = work.train("split", "--batch-size 8 --max-steps 6 --inject oom@1:3");
    assert!(output.status.success(), "{}", stderr(&output));
    let all = events(&output);
    assert!(all[position(&all, "preflight")]["preflight"]["limit_bytes"].is_null(), "nobody told");
    let split = &all[position(&all, "split")];
    assert_eq!((&split["step"], &split["parts"]), (&1.into(), &4.into()), "{split}");
    let off = difference(&work, "split", "large");
    assert!(off < 1e-5, "{off}");
    // Not even one clip.
    let output = work.train("none", "--batch-size 8 --max-steps 6 --inject oom@1:0");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("memory"), "{}", stderr(&output));
}

/// A clip that only loading finds to be bad is a batch less, and the run ends with its epochs all the same.
#[test]
fn batches_without_a_good_clip_shorten_a_run_and_do_not_stall_the_next_start() {
    let work = Workplace::new(12, 1);
    let corpus = work.path("corpus");
    // Sound that is not a number: its length is fine, so the index has nothing against it.
    let mut metadata = fs::read_to_string(corpus.join("metadata.csv")).expect("there");
    let silence: Vec<u8> = f32::NAN.to_le_bytes().repeat(22_050);
    for name in ["bad0", "bad1", "bad2", "bad3"] {
        let bytes = crate::corpus::wav_of(3, 1, 32, 22_050, &silence);
        fs::write(corpus.join(format!("wavs/{name}.wav")), bytes).expect("written");
        metadata += &format!("{name}|banana.|banana.\n");
    }
    fs::write(corpus.join("metadata.csv"), metadata).expect("written");
    let settings = "--batch-size 1 --epochs 2 --stall-timeout 3 --model-start-delay 0";
    let report = work.trained("run", settings);
    let (steps, skipped) = (report["step"].as_u64().expect("a step"), report["left_out"].as_array().expect("a list"));
    assert_eq!(report["ending"], "finished");
    assert!(!skipped.is_empty() && skipped.iter().all(|clip| clip["kind"] == "not-finite"), "{skipped:?}");
    // Nothing is left to do, and that is found out without a batch.
    for more in [settings, "--batch-size 1 --epochs 2 --stall-timeout 0"] {
        let again = work.trained("run", more);
        assert_eq!((&again["ending"], &again["step"], &again["steps"]), (&"finished".into(), &steps.into(), &0.into()));
    }
}

#[test]
fn gradient_checkpointing_learns_the_same_in_less_memory() {
    let work = Workplace::new(40, 1);
    let settings = "--model-size tiny --batch-size 32 --max-steps 2 --cache off --buffer-size 1";
    let run = |name: &str, more: &str| {
        // The size given last counts.
        let mut arguments = work.arguments(name, &format!("{settings} {more}"));
        arguments.retain(|argument| argument != "smoke");
        let at = arguments.iter().position(|argument| argument == "--model-size").expect("there");
        arguments.remove(at);
        let output = tandem().args(arguments).output().expect("it starts");
        assert!(output.status.success(), "{}", stderr(&output));
        last_json(&output)["report"].clone()
    };
    let plain = run("plain", "");
    let less = run("less", "--enable-gradient-checkpointing");
    assert_eq!(work.losses("plain"), work.losses("less"), "to the bit");
    let (plain, less) = (plain["peak_bytes"].as_u64(), less["peak_bytes"].as_u64());
    let (plain, less) = (plain.expect("Linux says"), less.expect("Linux says"));
    assert!(less < plain, "{less} of {plain}");
}

#[test]
fn early_stopping_ends_a_run_that_does_not_get_better() {
    let work = Workplace::new(16, 1);
    // A rate at which nothing is learned.
    let report = work.trained("stale", "--batch-size 4 --lr 1e-12 --validate-every 1 --patience 3 --max-steps 50");
    assert_eq!(report["ending"], "stale");
    let steps = report["step"].as_u64().expect("a step");
    assert!((4..50).contains(&steps), "{steps}");
}

#[test]
fn checkpoints_are_kept_and_pruned_and_the_manifest_says_why() {
    let work = Workplace::new(16, 1);
    let settings = "--batch-size 4 --max-steps 9 --checkpoint-every 1 --validate-every 3 --keep 2";
    let mut arguments = work.arguments("run", settings);
    let samples = arguments.iter().position(|argument| argument == "--sample-every").expect("there") + 1;
    arguments[samples] = "4".to_owned();
    assert!(tandem().args(arguments).output().expect("it starts").status.success());
    for file in ["step-00000004.wav", "step-00000004.png", "step-00000008.wav", "step-00000008.png"] {
        assert!(work.path("run/samples").join(file).exists(), "SPEC A7: {file}");
    }
    let steps: Vec<u64> = {
        let names = fs::read_dir(work.path("run/checkpoints")).expect("a folder").flatten();
        let mut steps: Vec<u64> =
            names.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("step-")?.parse().ok()).collect();
        steps.sort_unstable();
        steps
    };
    let best: u64 = fs::read_to_string(work.path("run/checkpoints/best"))
        .expect("a best one")
        .trim()
        .trim_start_matches("step-")
        .parse()
        .expect("a step");
    assert!(steps.contains(&best) && steps.contains(&8) && steps.contains(&9), "{steps:?}, best {best}");
    assert!(steps.len() <= 3, "{steps:?}");
    let manifest: Value =
        serde_json::from_slice(&fs::read(work.path("run/manifest.json")).expect("a manifest")).expect("JSON");
    let settings = manifest["starts"][0]["settings"].as_array().expect("settings").clone();
    let find = |name: &str| settings.iter().find(|setting| setting["name"] == name).expect("it is listed").clone();
    assert_eq!(find("--batch-size")["requested"], "4");
    assert_eq!(find("--batch-size")["source"], "flag");
    assert_eq!(find("--lr")["requested"], Value::Null);
    assert_eq!(find("--lr")["source"], "preset Basic");
    // Settings that are not given are those of the run; those that decide what is learned must not change.
    work.trained("run", "--max-steps 10");
    let output = work.train("run", "--batch-size 5 --seed 2 --max-steps 11");
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("--batch-size x --grad-accum: 5 here, 4 in the checkpoint"), "{text}");
    assert!(text.contains("--seed: 2 here, 1 in the checkpoint"), "{text}");
    assert!(text.contains("--reset-training"), "{text}");
    // Starting from scratch keeps the old run.
    work.trained("run", "--batch-size 5 --max-steps 2 --reset-training");
    assert_eq!(last_step(&work.path("run")), Some(2));
    assert_eq!(last_step(&work.path("run.1")), Some(10));
}

#[test]
fn a_damaged_checkpoint_is_named_and_passed_over_only_when_asked() {
    let work = Workplace::new(16, 1);
    work.trained("run", "--batch-size 4 --max-steps 4 --checkpoint-every 2");
    let path = work.path("run/checkpoints/step-00000004/model.safetensors");
    let mut bytes = fs::read(&path).expect("weights");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).expect("writable");
    let output = work.train("run", "--max-steps 6");
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("step-00000004 is damaged: model.safetensors is not what was written"), "{text}");
    assert!(text.contains("--resume last-good"), "{text}");
    assert_eq!(run(&format!("inspect {}", work.path("run").display())).status.code(), Some(1));
    let output = work.train("run", "--max-steps 6 --resume last-good");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("passed over"), "{}", stderr(&output));
    assert!(stdout(&output).contains("\"resumed_from\":2"), "{}", stdout(&output));
    // Other kinds of damage.
    let state = work.path("run/checkpoints/step-00000006/state.json");
    let text = fs::read_to_string(&state).expect("a state");
    for (damage, message) in [("", "is damaged"), (&text[..text.len() / 2], "is damaged")] {
        fs::write(&state, damage).expect("writable");
        let output = work.train("run", "--max-steps 8");
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
    fs::remove_file(&state).expect("there");
    let output = work.train("run", "--max-steps 8");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("state.json"), "{}", stderr(&output));
}

#[test]
fn a_run_of_an_earlier_format_is_refused_and_can_be_started_from_scratch_beside_it() {
    let work = Workplace::new(16, 1);
    work.trained("run", "--batch-size 4 --max-steps 2");
    let checkpoints = Checkpoints::new(work.path("run/checkpoints"));
    let mut earlier = checkpoints.read(2).expect("a checkpoint");
    earlier.state.format = 1;
    checkpoints.write(&earlier).expect("written");
    for (lang, words) in [("en", "has format 1, this version of Tandem reads format"), ("fa", "قالب")] {
        let output = work.train("run", &format!("--max-steps 4 --lang {lang}"));
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(words) && stderr(&output).contains("--reset-training"), "{}", stderr(&output));
    }
    let output = work.train("run", "--batch-size 4 --max-steps 1 --reset-training");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!((last_step(&work.path("run")), last_step(&work.path("run.1"))), (Some(1), Some(2)));
}

#[test]
fn a_checkpoint_of_other_data_or_another_model_says_what_differs() {
    let (work, other) = (Workplace::new(16, 1), Workplace::new(18, 2));
    work.trained("run", "--batch-size 4 --max-steps 2");
    fs::rename(work.path("run"), other.path("run")).expect("movable");
    let output = other.train("run", "--max-steps 4");
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("training clips: 17 here, 15 in the checkpoint"), "{text}");
    assert!(text.contains("speakers: 2 here, 1 in the checkpoint"), "{text}");
    let mut arguments = other.arguments("run", "--max-steps 4");
    let size = arguments.iter().position(|argument| argument == "smoke").expect("there");
    arguments[size] = "tiny".to_owned();
    let output = tandem().args(arguments).output().expect("it starts");
    assert!(stderr(&output).contains("--model-size: tiny here, smoke in the checkpoint"), "{}", stderr(&output));
}

#[test]
fn bad_input_is_refused_with_its_name_and_what_to_do() {
    let work = Workplace::new(12, 2);
    let refused = |arguments: &str, words: &[&str]| {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {}", stderr(&output));
        for word in words {
            assert!(stderr(&output).contains(word), "{arguments}: {}", stderr(&output));
        }
    };
    let corpus = work.path("corpus").display().to_string();
    let train = |data: &str, more: &str| {
        format!("train --train-data {data} --checkpoint-dir {} {more}", work.path("new").display())
    };
    refused(&train(&work.path("nothing").display().to_string(), ""), &["is not a folder"]);
    let empty = work.path("empty");
    fs::create_dir_all(empty.join("wavs")).expect("a folder");
    refused(&train(&empty.display().to_string(), ""), &["has neither metadata.csv nor metadata_train.csv", "hint"]);
    // One clip; a text that is too long; a clip shorter than a frame; all rejected.
    let one = work.path("one");
    fs::create_dir_all(one.join("wavs")).expect("a folder");
    fs::copy(work.path("corpus/wavs/demo_0000.wav"), one.join("wavs/a.wav")).expect("copied");
    fs::write(one.join("metadata.csv"), "a|banana piano.\n").expect("written");
    refused(&train(&one.display().to_string(), ""), &["one clip is too few", "--val-data"]);
    refused(&train(&corpus, "--max-text-length 3"), &["none of the clips can be used", "the limit is 3"]);
    let short = work.path("short");
    fs::create_dir_all(short.join("wavs")).expect("a folder");
    fs::write(short.join("wavs/a.wav"), crate::corpus::wav(&[0.1; 40])).expect("written");
    fs::write(short.join("metadata.csv"), "a|banana.\n").expect("written");
    refused(&train(&short.display().to_string(), ""), &["shorter than one frame"]);
    fs::write(work.path("file"), "").expect("written");
    refused(
        &format!("train --train-data {corpus} --checkpoint-dir {}", work.path("file").display()),
        &["cannot write", "file"],
    );
    refused(&train(&corpus, "--mixed-precision"), &["--mixed-precision: CPU", "Vulkan"]);
    refused(&train(&corpus, "--resume last"), &["does not exist"]);
    assert!(!work.path("new").exists(), "what is refused leaves nothing behind");

    work.trained("run", "--batch-size 4 --max-steps 2");
    let out = work.path("x.wav");
    let synth = |text: &str, more: &[&str]| -> Output {
        let run = work.path("run");
        let mut command = tandem();
        command.args(["synth", text, "--checkpoint"]).arg(&run).args(more).arg("-o").arg(&out);
        command.output().expect("it starts")
    };
    let check = |output: Output, words: &[&str]| {
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        for word in words {
            assert!(stderr(&output).contains(word), "{}", stderr(&output));
        }
    };
    check(synth("", &[]), &["the text is empty"]);
    check(synth("…", &[]), &["no words"]);
    check(synth("привет", &[]), &["was never trained on these symbols", "`п` (U+043F)"]);
    check(synth("banana", &["--speaker", "nobody"]), &["no speaker `nobody`", "ali, sara"]);
    let second = work.path("second.wav");
    fs::write(&second, crate::corpus::wav(&vec![0.1; 11_025])).expect("written");
    check(synth("banana", &["--speaker", &second.display().to_string()]), &["0.50 s of reference are too few"]);
    check(synth("banana", &["--speaker", "missing.wav"]), &["missing.wav"]);
    check(synth("banana", &["--speed", "0"]), &["greater than 0"]);
    assert!(!out.exists(), "nothing was written");
    refused(&format!("synth banana --checkpoint {}", work.path("nowhere").display()), &["does not exist"]);
    let said = synth("banana piano", &["--speaker", "sara"]);
    assert!(said.status.success(), "{}", stderr(&said));
    assert!(fs::metadata(&out).expect("a file").len() > 1000);
}

#[test]
fn the_demo_learns_to_speak() {
    // SPEC A1, with the figures that the demo must reach: all of it in a minute or two of CPU.
    let dir = TempDir::new().expect("a folder");
    let demo = dir.path().join("demo");
    let output = run(&format!("demo --folder {} --steps 700 --vocoder-steps 60 --json", demo.display()));
    assert!(output.status.success(), "{}", stderr(&output));
    let shown = last_json(&output);
    let found = &shown["evaluation"];
    let number = |key: &str| found[key].as_f64().unwrap_or_else(|| panic!("{key}: {found}"));
    println!("{found}");
    assert!(number("boundary_error_ms_median") <= 20.0, "{found}");
    assert!(number("boundary_error_ms_median") < 0.6 * number("boundary_error_ms_uniform"), "{found}");
    assert!(number("length_error") <= 0.08, "{found}");
    assert!(number("mel_l1") <= 0.6 * number("mel_l1_baseline"), "{found}");
    assert!(number("loss_wrong_speaker") > 1.1 * number("loss"), "the voice follows the reference: {found}");
    assert!(shown["report"]["starved"].as_f64().expect("a share") <= 0.01, "{}", shown["report"]);
    assert!(shown["report"]["alignment_share"].as_f64().expect("a share") <= 0.03, "{}", shown["report"]);
    let images = ["curves.svg", "alignment.png", "mel-spoken.png", "mel-true.png"];
    let sides = ["recording", "griffin-lim", "neural"].map(|side| [format!("{side}.wav"), format!("{side}.png")]);
    let sides: Vec<&str> = sides.iter().flatten().map(String::as_str).collect();
    let page = fs::read_to_string(demo.join("index.html")).expect("a page");
    assert!(sides.iter().all(|side| page.contains(&format!("src=\"{side}\""))), "{page}");
    let heard = |name: &str| fs::read(demo.join(name)).expect("written");
    assert_eq!(heard("speech.wav"), heard("neural.wav"), "the trained vocoder is what is heard");
    assert_ne!(heard("neural.wav"), heard("griffin-lim.wav"));
    assert_eq!(shown["vocoder_report"]["step"], 60);
    for file in ["index.html", "speech.wav"].iter().chain(&images).chain(&sides) {
        assert!(fs::metadata(demo.join(file)).is_ok_and(|file| file.len() > 200), "{file}");
    }
    // The rate falls to the end: what is heard is not what a step that restarts has spoiled.
    let log = fs::read_to_string(demo.join("run/log.jsonl")).expect("a log");
    let rates: Vec<f64> =
        (log.lines()).filter_map(|line| serde_json::from_str::<Value>(line).expect("JSON")["rate"].as_f64()).collect();
    assert!(rates.len() == 700 && rates[699] <= rates[600] && rates[600] < rates[60], "{:?}", &rates[690..]);
    // The evaluation that anyone can run says the same.
    let page = dir.path().join("page.html");
    let checkpoint = demo.join("run/checkpoints/step-00000700");
    let again = run(&format!("evaluate {} --json --html {}", checkpoint.display(), page.display()));
    assert!(again.status.success(), "{}", stderr(&again));
    let again = last_json(&again);
    assert_eq!(again["mel_l1"], found["mel_l1"]);
    the_synthesis_is_between_the_copy_synthesis_and_nothing(&again["measures"]);
    let page = fs::read_to_string(page).expect("a page");
    assert_eq!(page.matches("<article>").count(), 10);
    assert_eq!((page.matches("data:audio/wav;base64,UklGR").count(), page.matches("data:image/png").count()), (30, 30));
    texts_of_other_clips_are_found(&demo.join("corpus"), &checkpoint);
    // And it says something else, as somebody else, at another speed.
    let wav = dir.path().join("x.wav");
    let seconds = |more: &str| {
        let synth =
            format!("synth tomatosalad --checkpoint {} -o {} --json {more}", demo.join("run").display(), wav.display());
        let output = run(&synth);
        assert!(output.status.success(), "{}", stderr(&output));
        last_json(&output)["seconds"].as_f64().expect("seconds")
    };
    let (normal, slow) = (seconds("--speaker omid"), seconds("--speaker omid --speed 0.5"));
    assert!((1.7..2.3).contains(&(slow / normal)), "{normal} {slow}");
}

/// SPEC V6 on the demo's voice: each measure is there, and what the vocoder costs is a part of what the voice costs.
fn the_synthesis_is_between_the_copy_synthesis_and_nothing(measures: &Value) {
    let number =
        |side: &str, key: &str| measures[side][key].as_f64().unwrap_or_else(|| panic!("{side} {key}: {measures}"));
    assert!(number("copy_synthesis", "mcd_db") > 0.5 && number("synthesis", "mcd_db") < 15.0, "{measures}");
    assert!(number("copy_synthesis", "mcd_db") < number("synthesis", "mcd_db"), "{measures}");
    assert!(number("copy_synthesis", "f0_cents_median") < 30.0, "{measures}");
    assert!(number("copy_synthesis", "f0_cents_median") < number("synthesis", "f0_cents_median"), "{measures}");
    assert!(number("copy_synthesis", "voiced_f1") > 0.85 && number("synthesis", "voiced_f1") > 0.6, "{measures}");
    let other = measures["spectrum_cosine_of_other_speakers"].as_f64().expect("several speakers");
    assert!(other < number("copy_synthesis", "spectrum_cosine") && other < number("synthesis", "spectrum_cosine"));
    let token = measures["token_duration_error_ms"].as_f64().expect("a number");
    assert!((1.0..60.0).contains(&token), "{measures}");
    let worst = measures["worst"].as_array().expect("clips");
    let first = |n: usize| worst[n]["synthesis"]["mcd_db"].as_f64().expect("a number");
    assert!(worst.len() >= 10 && first(0) >= first(1) && first(1) >= first(9), "{measures}");
}

/// Two clips exchange their texts: the voice hears it, and hears nothing where all is right.
fn texts_of_other_clips_are_found(corpus: &Path, checkpoint: &Path) {
    let misfits = || {
        let output = run(&format!("doctor {} --with {} --json", corpus.display(), checkpoint.display()));
        let found = last_json(&output);
        let all = found["findings"].as_array().expect("findings").clone();
        let of_kind = all.iter().filter(|finding| finding["kind"] == "text-misfit");
        of_kind.map(|finding| finding["id"].as_str().expect("an id").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(misfits(), Vec::<String>::new());
    let path = corpus.join("metadata.csv");
    let text = fs::read_to_string(&path).expect("metadata");
    let mut rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('|').collect()).collect();
    let (first, second) = (rows[3].clone(), rows[11].clone());
    rows[3][1..].copy_from_slice(&second[1..]);
    rows[11][1..].copy_from_slice(&first[1..]);
    let changed: Vec<String> = rows.iter().map(|row| row.join("|") + "\n").collect();
    fs::write(&path, changed.concat()).expect("written");
    let mut found = misfits();
    found.sort();
    assert_eq!(found, [first[0], second[0]]);
}

#[test]
fn going_back_keeps_what_came_later_and_the_best_is_always_the_best() {
    let work = Workplace::new(16, 1);
    work.trained("run", "--batch-size 4 --max-steps 6 --checkpoint-every 2 --validate-every 2 --keep 9");
    let checkpoints = work.path("run/checkpoints");
    let best = fs::read_to_string(checkpoints.join("best")).expect("a best one");
    // A kill between the checkpoint and the note of it.
    fs::remove_file(checkpoints.join("best")).expect("there");
    work.trained("run", "--max-steps 6");
    assert_eq!(fs::read_to_string(checkpoints.join("best")).expect("noted again"), best);
    // Refused: nothing moves.
    let foreign = Workplace::new(18, 1);
    foreign.trained("run", "--batch-size 4 --max-steps 1");
    let other = foreign.path("run/checkpoints/step-00000001");
    let output = work.train("run", &format!("--resume {}", other.display()));
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains(&other.display().to_string()), "{}", stderr(&output));
    assert_eq!(last_step(&work.path("run")), Some(6));
    // Twice back to step 2: what came later is kept each time.
    for aside in 1..=2 {
        let step = checkpoints.join("step-00000002");
        work.trained("run", &format!("--resume {} --max-steps 4", step.display()));
        assert_eq!(last_step(&work.path("run")), Some(4));
        assert!(checkpoints.join(format!("set-aside-{aside}-step-00000004")).exists());
    }
    assert!(fs::read_to_string(checkpoints.join("best")).is_ok_and(|best| { checkpoints.join(best.trim()).exists() }));
    // From the checkpoint of another folder: it is this run's own at once.
    let step = checkpoints.join("step-00000004");
    work.trained("elsewhere", &format!("--batch-size 4 --resume {} --max-steps 4", step.display()));
    assert_eq!(last_step(&work.path("elsewhere")), Some(4));
    assert_eq!(work.weights("elsewhere", 4), work.weights("run", 4));
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

#[cfg(unix)]
#[test]
fn a_full_disk_is_named_with_the_file_that_was_asked_for() {
    let work = Workplace::new(12, 1);
    work.trained("run", "--batch-size 4 --max-steps 1");
    let (out, picture) = (work.path("said.wav"), work.path("said.png"));
    // Files may not grow beyond 1 kB, like on a disk that is full.
    for (more, named) in [(String::new(), &out), (format!("--picture {}", picture.display()), &out)] {
        let synth = format!(
            "trap '' XFSZ; ulimit -f 1; exec {} synth banana --checkpoint {} -o {} {more}",
            env!("CARGO_BIN_EXE_tandem"),
            work.path("run").display(),
            out.display()
        );
        let output = Command::new("bash").args(["-c", &synth]).env("LC_ALL", "C.UTF-8").output().expect("bash");
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let text = stderr(&output);
        assert!(text.contains(&named.display().to_string()) && !text.contains(".tandem-"), "{text}");
        assert!(!out.exists() && !picture.exists(), "nothing half-written");
    }
}

/// Known times are in samples of the files, whatever rate the features have.
#[test]
fn known_times_do_not_depend_on_the_rate_of_the_features() {
    let work = Workplace::new(12, 1);
    let uniform = |name: &str, more: &str| {
        work.trained(name, &format!("--batch-size 4 --max-steps 1 {more}"));
        let output = run(&format!("evaluate {} --json", work.path(name).display()));
        assert!(output.status.success(), "{}", stderr(&output));
        let found = last_json(&output);
        assert!(found["boundaries"].as_u64().expect("a number") > 0, "{found}");
        // Of clips cut into equal parts: no model has a say in it.
        found["boundary_error_ms_uniform"].as_f64().expect("known times")
    };
    let (files, features) = (uniform("files", ""), uniform("features", "--sample-rate 16000"));
    assert!((files / features - 1.0).abs() < 1e-9, "{files} {features}");
}

/// Training on a disk that is full ends in an error that names the file and what to do, and goes on when there is room.
#[cfg(unix)]
#[test]
fn a_run_on_a_full_disk_says_what_to_do_and_resumes() {
    let work = Workplace::new(12, 1);
    let settings = "--batch-size 4 --max-steps 4 --checkpoint-every 2 --log-every 1 --backend cpu";
    work.trained("whole", settings);
    // Files may not grow beyond 64 kB, like on a disk that is full: the log fits, no checkpoint does.
    let arguments = work.arguments("run", settings).join(" ");
    let train = format!("trap '' XFSZ; ulimit -f 64; exec {} {arguments}", env!("CARGO_BIN_EXE_tandem"));
    let output = Command::new("bash").args(["-c", &train]).env("LC_ALL", "C.UTF-8").output().expect("bash");
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let place = work.path("run/checkpoints/step-00000004").display().to_string();
    assert!(text.contains(&place) && text.contains("hint: make room on that disk"), "{text}");
    assert!(stdout(&output).contains("\"checkpoint_failed\""), "said as soon as it was known");
    work.trained("run", settings);
    assert_eq!(work.losses("run"), work.losses("whole"));
    assert_eq!(work.weights("run", 4), work.weights("whole", 4));
}
