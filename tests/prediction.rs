//! The promise about predictions, in a program of its own: other tests beside it would disturb what it measures.

#[path = "support.rs"]
#[allow(dead_code)]
mod support;

use serde_json::Value;

use crate::support::{last_json, run, stderr};

/// SPEC R7: what a change would give is predicted from what was measured, and then it is tried. The real pipeline reads
/// from a disk that takes its time, so that waiting decides, which takes equally long on every machine; what a change of
/// the work itself brings (batch size, cache, …) is in benches/results.
#[test]
fn a_prediction_is_checked_against_a_real_run() {
    let command = "profile --synthetic --model-size smoke --batch-size 4 --num-steps 16 --warmup 4 --backend cpu \
                   --cache off --num-workers 1 --inject load:slow0.4@0 --what-if workers=2 --verify --json";
    let mut errors = Vec::new();
    // Other programs on this machine disturb a measurement, not all of several.
    for _ in 0..3 {
        let output = run(command);
        assert!(output.status.success(), "{}", stderr(&output));
        let json = last_json(&output);
        assert_eq!(json["bottleneck"], "load", "{json}");
        let predictions = json["predictions"].as_array().expect("predictions");
        assert_eq!(predictions.len(), 1, "{json}");
        let one = &predictions[0];
        let number = |key: &str| one.get(key).and_then(Value::as_f64).unwrap_or_else(|| panic!("{key}: {one}"));
        let (now, low, predicted, high) = (number("now"), number("low"), number("predicted"), number("high"));
        assert!(0.0 < low && low <= predicted && predicted <= high, "{one}");
        // Otherwise "no change" would be a good prediction too.
        assert!(predicted > 1.2 * now, "{one}");
        let error = predicted / number("measured") - 1.0;
        assert!((number("error") - error).abs() < 1e-9, "{one}");
        if error.abs() <= 0.10 {
            return;
        }
        errors.push(error);
    }
    panic!("never within 10 %: {errors:?}");
}
