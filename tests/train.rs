//! Promises about training: it learns, its steps are right, bad input is named.

use std::fs;
use std::process::Output;

use crate::support::{Workplace, difference, events, last_json, position, run, stderr, stdout, tandem};

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
    let settings = "--batch-size 1 --epochs 2 --stall-timeout 20 --model-start-delay 0";
    let report = work.trained("run", settings);
    let (steps, skipped) = (report["step"].as_u64().expect("a step"), report["left_out"].as_array().expect("a list"));
    assert_eq!(report["ending"], "finished");
    // Said, and the last step there was is validated as the last one that was planned would have been.
    let planned = report["planned"].as_u64().expect("a number");
    assert!(steps < planned, "{steps} of {planned}");
    let log = fs::read_to_string(work.path("run/log.jsonl")).expect("a log");
    let last = log.lines().rfind(|line| line.contains("\"validation\"")).expect("a validation");
    assert_eq!(serde_json::from_str::<serde_json::Value>(last).expect("JSON")["step"], steps, "{last}");
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
