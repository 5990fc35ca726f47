//! Promises about the profiler: it runs the real pipeline, and says what limits it.

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
    assert!(number(&json["headroom"]) >= 0.0 && number(&json["replay_ms"]) > 0.0);
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
