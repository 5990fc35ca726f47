//! Promises about the profiler: it runs the real pipeline, and says what limits it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{last_json, run, stderr, stdout};

/// SPEC R4, R6, R8 and the line of section X (on a made-up corpus and pretended devices).
#[test]
fn a_profile_says_where_the_time_goes() {
    let output = run(
        "profile --synthetic --model-size smoke --batch-size 16 --num-steps 12 --warmup 4 --data-gpu 0 --model-gpu 1 \
         --simulate-devices 2 --json",
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let json = last_json(&output);
    assert_eq!((&json["verdict"], &json["bottleneck"]), (&"healthy".into(), &"train".into()), "{json}");
    assert_eq!((&json["steps"], &json["warm_up"], &json["simulated"]), (&12.into(), &4.into(), &true.into()));
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("a number: {json}"));
    let shares: f64 = ["load", "preprocess", "transfer", "train", "gaps"]
        .iter()
        .map(|stage| {
            let figures = &json["stages"][stage];
            assert!(number(&figures["mean_ms"]) >= 0.0 && number(&figures["std_ms"]) >= 0.0);
            number(&figures["share"])
        })
        .sum();
    assert!((shares - 1.0).abs() < 1e-9);
    assert!(number(&json["lanes"]["model_busy"]) > 0.5 && number(&json["starved"]) < 0.05);
    let (starved, headroom) = (number(&json["starved"]), number(&json["headroom"]));
    assert!(
        (0.0..=starved / (1.0 - starved) + 1e-9).contains(&headroom),
        "not more than it waits for: {headroom} {starved}"
    );
    assert!(number(&json["replay_ms"]) > 0.0);
    assert!(json["recommendations"].is_array() && json["lanes"]["memory"].is_array());
}

#[test]
fn a_profile_without_data_says_what_to_give() {
    let output = run("profile");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--train-data") && stderr(&output).contains("--synthetic"), "{}", stderr(&output));
    let output = run("profile --synthetic --num-steps 1");
    assert_eq!(output.status.code(), Some(2));
    let text = run("profile --synthetic --model-size smoke --num-steps 3 --warmup 1 --backend cpu");
    for words in ["TIMING BREAKDOWN", "GPU UTILIZATION", "headroom"] {
        assert!(stdout(&text).contains(words), "{words}: {}", stdout(&text));
    }
}

/// The keys of docs/reference/profile-json.md are those that are printed.
#[test]
fn the_json_of_a_profile_is_as_documented() {
    let root = std::path::PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("run by cargo")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/reference/profile-json.md")).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let documented: BTreeSet<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    let output = run("profile --synthetic --model-size smoke --batch-size 8 --num-steps 4 --backend cpu --json");
    assert!(output.status.success(), "{}", stderr(&output));
    let json = last_json(&output);
    let printed: BTreeSet<&str> = json.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(documented, printed);
}

/// `--verify` tries the best recommendation; `--assert-healthy` fails when there is a bottleneck.
#[test]
fn the_best_recommendation_is_verified() {
    let slow = "profile --synthetic --model-size smoke --batch-size 4 --num-steps 8 --warmup 2 --backend cpu \
                --inject data:slow0.6@0";
    let output = run(&format!("{slow} --assert-healthy"));
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stdout(&output).contains("limited by: preprocess"), "{}", stdout(&output));
    assert!(stderr(&output).contains("not healthy: limited by preprocess"), "{}", stderr(&output));
    let output = run(&format!("{slow} --what-if depth=1 --verify --json"));
    let json = last_json(&output);
    assert_eq!((&json["verdict"], &json["bottleneck"]), (&"limited".into(), &"preprocess".into()), "{json}");
    let number = |key: &str| json[key].as_f64().expect("a number");
    assert!(number("headroom") > 0.3, "{json}");
    assert!(number("headroom") <= number("starved") / (1.0 - number("starved")) + 1e-9, "{json}");
    assert!(json["predictions"][0]["measured"].as_f64().expect("a number") > 0.0, "{json}");
}

/// SPEC K7: ranks are a change like any other; a slow link takes what they would bring.
#[test]
fn ranks_are_predicted_with_what_they_wait_for() {
    // A link that is slow beside any step, also one of a machine that is busy with other things.
    let output =
        run("profile --synthetic --model-size smoke --batch-size 4 --num-steps 8 --warmup 2 --backend cpu --json \
                      --what-if world=4,link=100GB/s,latency=1us --what-if world=4,link=100KB/s,latency=1ms --verify");
    let json = last_json(&output);
    let gain = |at: usize| json["predictions"][at]["gain"].as_f64().unwrap_or_else(|| panic!("{json}"));
    // Four times the clips, less what ranks wait for the slowest of them: on a busy machine that is a lot.
    assert!((1.0..4.6).contains(&gain(0)), "more clips: {}", gain(0));
    assert!(gain(1) < 0.5 * gain(0), "{} and {}", gain(0), gain(1));
    assert_eq!(json["predictions"][0]["change"], "--world 4 --link 100GB/s --latency 1us");
    assert!(json["predictions"][0]["measured"].is_null(), "one process cannot try it");
    assert!(stderr(&output).contains("several ranks are predicted, not tried"), "{}", stderr(&output));
}

#[test]
fn bad_input_is_named() {
    for (arguments, words) in [
        ("--num-steps 5 --warmup 10", "5 steps are fewer than the 10 of the warm-up"),
        ("--what-if speed=2", "`speed` cannot be changed here"),
        ("--what-if workers=x", "--num-workers"),
        ("--what-if world=2,link=fast", "write for example `10GB/s`"),
        ("--html /nowhere/report.html", "/nowhere"),
    ] {
        let output = run(&format!("profile --synthetic {arguments}"));
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(stderr(&output).contains(words), "{arguments}: {}", stderr(&output));
    }
}
