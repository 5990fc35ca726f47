//! Promises about checkpoints: which are kept, what is refused and why, going back.

use std::fs;

use serde_json::Value;
use tandem_train::Checkpoints;

use crate::support::{Workplace, last_step, run, stderr, stdout, tandem};

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
