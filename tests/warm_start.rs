//! Promises about `--init-from` and `--freeze` [V5].

use std::fs;

use serde_json::Value;
use tandem_model::weights::{self, Tensors};

use crate::support::{Workplace, events, stderr};

fn tensors(work: &Workplace, run: &str, step: u64, file: &str) -> Tensors {
    let path = work.path(run).join(format!("checkpoints/step-{step:08}/{file}.safetensors"));
    weights::from_bytes(&fs::read(path).expect("a checkpoint")).expect("safetensors")
}

fn first_loss(work: &Workplace, run: &str) -> f64 {
    let (_, line) = work.losses(run).into_iter().next().expect("a step");
    serde_json::from_str::<Value>(&line).expect("JSON")["loss"].as_f64().expect("a loss")
}

#[test]
fn a_warm_start_has_the_weights_of_the_other_run_and_says_what_became_of_each_tensor() {
    let work = Workplace::new(24, 1);
    let short = "--batch-size 4 --log-every 1";
    work.trained("donor", &format!("{short} --max-steps 40"));
    work.trained("scratch", &format!("{short} --max-steps 1 --seed 2"));
    let from = format!("--init-from {}", work.path("donor").display());
    let output = work.train("warm", &format!("{short} --max-steps 1 --seed 2 {from}"));
    assert!(output.status.success(), "{}", stderr(&output));
    let started: Vec<Value> = events(&output).into_iter().filter(|event| event["event"] == "warm_start").collect();
    let [started] = &started[..] else { panic!("{started:?}") };
    let count = |what: &str| started["tensors"][what].as_array().expect("a list").len();
    assert!(count("loaded") > 100 && count("matched") == 2, "{started}");
    assert_eq!((count("new"), count("skipped")), (0, 0), "the same shapes: {started}");
    assert!(first_loss(&work, "warm") < 0.7 * first_loss(&work, "scratch"), "it knows something already");

    // The same command resumes, and does not start with the other run's weights again.
    let whole = work.trained("whole", &format!("{short} --max-steps 6 {from}"));
    work.trained("halves", &format!("{short} --max-steps 3 {from}"));
    let halves = work.trained("halves", &format!("{short} --max-steps 6 {from}"));
    assert_eq!((&whole["step"], &halves["step"]), (&Value::from(6), &Value::from(6)));
    assert_eq!(work.losses("halves"), work.losses("whole"), "loss for loss");
}

#[test]
fn frozen_parts_stay_as_they_were_and_the_others_learn() {
    let work = Workplace::new(16, 1);
    work.trained("donor", "--batch-size 4 --max-steps 3");
    let more =
        format!("--batch-size 4 --max-steps 2 --freeze text,aligner --init-from {}", work.path("donor").display());
    work.trained("frozen", &more);
    work.trained("frozen", &more.replace("--max-steps 2", "--max-steps 4"));
    let (before, after) = (tensors(&work, "donor", 3, "ema"), tensors(&work, "frozen", 4, "model"));
    for (name, tensor) in &after {
        let is_frozen = name.starts_with("text.") || name.starts_with("aligner.");
        assert_eq!(is_frozen, *tensor == before[name], "{name}");
    }
}

#[test]
fn what_cannot_be_started_from_is_an_error_before_anything_is_written() {
    let work = Workplace::new(16, 1);
    work.trained("donor", "--batch-size 4 --max-steps 1");
    let donor = work.path("donor").display().to_string();
    for (flags, words) in [
        (format!("--init-from {donor} --n-mels 40"), "n_mels: 40 here, 80 there"),
        ("--init-from no/such/run".to_owned(), "no/such/run"),
        (format!("--init-from {donor} --freeze txt"), "invalid value `txt` for `--freeze`: text, aligner"),
    ] {
        let output = work.train("refused", &format!("--batch-size 4 --max-steps 1 {flags}"));
        assert_eq!(output.status.code(), Some(2), "{flags}: {}", stderr(&output));
        let all = stderr(&output) + &String::from_utf8_lossy(&output.stdout);
        assert!(all.contains(words), "{flags}: {all}");
        assert!(!work.path("refused").exists(), "{flags}: nothing is written");
    }
}
