//! Promises about memory: limits hold, batches are split, leaks are named.

use std::fs;

use serde_json::Value;

use crate::support::{SoftwareGpus, Workplace, difference, events, last_json, position, stderr, stdout};

#[test]
fn limits_hold_on_a_real_device_and_the_other_lane_is_named_apart() {
    // SPEC G1, G5.
    let Some(gpus) = SoftwareGpus::find() else { return };
    let work = Workplace::new(10, 1);
    let train = |name: &str, more: &str| {
        let steps = if more.contains("--max-steps") { "" } else { "--max-steps 2" };
        let all = format!("--batch-size 4 {steps} --data-gpu 0 --model-gpu 1 --enable-memory-isolation {more}");
        gpus.tandem(2, false).expect("two").args(work.arguments(name, &all)).output().expect("it starts")
    };
    // The model alone takes more than that: an error before anything is on the device.
    let output = train("model", "--model-gpu-memory 8");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(text.contains("memory limit of the model lane exceeded: limit 8 MB, used 0"), "{text}");
    assert!(text.contains("--model-gpu-memory"), "says what to change: {text}");
    assert!(!stdout(&output).contains("\"event\":\"model\""), "nothing was built");
    let report = fs::read_to_string(work.path("model").join("report.json")).expect("a report all the same");
    assert!(report.contains("\"failed\"") && report.contains("model lane"), "{report}");
    let output = train("data", "--data-gpu-memory 1");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(text.contains("memory limit of the data lane exceeded: limit 1 MB"), "{text}");
    assert!(text.contains("--features-on cpu"), "{text}");
    // What a batch takes, and then less: it is split, and the lane stays below its limit, by its allocator's own count.
    let output = train("whole", "--model-gpu-memory 1000 --max-steps 1");
    assert!(output.status.success(), "{}", stderr(&output));
    let events = events(&output);
    let needs = events[position(&events, "preflight")]["preflight"]["ladder"][0]["bytes"].as_u64().expect("bytes");
    let limit = (needs * 85 / 100) >> 20;
    let output = train("split", &format!("--model-gpu-memory {limit} --log-every 1"));
    if output.status.success() {
        assert!(stdout(&output).contains("\"event\":\"split\""), "{}", stdout(&output));
        let held = last_json(&output)["report"]["lanes"][1]["pool_reserved_bytes"].as_u64().expect("counted");
        assert!(held <= limit << 20, "{held} of {limit} MB");
    } else {
        // Pages of many sizes may take more than their sum: then it shows before the first step.
        assert!(stderr(&output).contains("memory limit of the model lane exceeded"), "{}", stderr(&output));
        assert!(!stdout(&output).contains("\"event\":\"starting\""), "not in the middle of a run: {}", stdout(&output));
    }
}

/// Batches of later epochs may be larger than those of the first; a run resumes at any of them.
#[test]
fn a_limited_run_goes_on_in_every_epoch() {
    let work = Workplace::new(24, 1);
    for steps in (3..=18).step_by(3) {
        let more = format!(
            "--batch-size 5 --max-steps {steps} --simulate-devices 2 --data-gpu 0 --model-gpu 1 --model-start-delay 0"
        );
        let report = work.trained("run", &more);
        assert_eq!(report["step"], steps);
    }
}

/// SPEC G3, T9: memory that grows with every step is reported; a run without a leak is not.
#[test]
fn a_leak_is_reported_by_its_trend() {
    let work = Workplace::new(10, 1);
    let train = |name: &str, more: &str| {
        let all = format!("--batch-size 1 --max-steps 330 --log-every 50 --validate-every 1000 {more}");
        let output = work.train(name, &all);
        assert!(output.status.success(), "{}", stderr(&output));
        events(&output).into_iter().filter(|event| event["event"] == "leak").collect::<Vec<Value>>()
    };
    let leaks = train("leak", "--inject leak@2097152");
    assert_eq!(leaks.len(), 1, "once: {leaks:?}");
    assert!(leaks[0]["step"].as_u64().expect("a step") < 300, "{leaks:?}");
    let rate = leaks[0]["leak"]["bytes_per_step"].as_f64().expect("a rate");
    assert!((1.8e6..2.6e6).contains(&rate), "{rate}");
    assert_eq!(train("none", ""), [Value::Null; 0]);
}

#[test]
fn limits_split_batches_and_say_what_would_fit() {
    // SPEC G5, G6: on the CPU, whose memory is that of the process.
    let work = Workplace::new(24, 2);
    let settings = "--batch-size 16 --max-steps 3 --log-every 1 --simulate-devices 2 --data-gpu 0 --model-gpu 1";
    let output = work.train("plain", settings);
    let needs = {
        let events = self::events(&output);
        let rung = events[position(&events, "preflight")]["preflight"]["ladder"][0].clone();
        assert_eq!(rung["fits"], true, "24 GB are enough: {rung}");
        rung["bytes"].as_u64().expect("bytes")
    };
    let limited = |limit: u64| format!("{settings} --enable-memory-isolation --model-gpu-memory {limit}");
    let output = work.train("small", &limited((needs * 7 / 10) >> 20));
    assert!(output.status.success(), "{}", stderr(&output));
    let events = self::events(&output);
    let split = events.iter().find(|event| event["event"] == "split").expect("split");
    assert!(split["parts"].as_u64().expect("parts") >= 2);
    let ladder = &events[position(&events, "preflight")]["preflight"]["ladder"];
    assert_eq!(ladder[0]["fits"], false, "what was asked for: {ladder}");
    assert!(ladder.as_array().expect("a ladder").iter().any(|rung| rung["fits"] == true), "{ladder}");
    let off = difference(&work, "small", "plain");
    assert!(off < 1e-5, "the same steps in parts: {off}");
    // Limits are those of the run until others are given.
    let output = work.train("small", &settings.replace("--max-steps 3", "--max-steps 4"));
    assert!(output.status.success(), "{}", stderr(&output));
    let start = serde_json::from_str::<Value>(stdout(&output).lines().next().expect("a line")).expect("JSON");
    assert_eq!(
        (&start["settings"]["memory"]["isolated"], &start["settings"]["memory"]["model_limit"]),
        (&true.into(), &(((needs * 7 / 10) >> 20) << 20).into())
    );
    // What was seen to fit is enough, on the CPU as well, whose memory is that of the process.
    let cpu = "--batch-size 8 --max-steps 12 --backend cpu --enable-memory-isolation --model-gpu-memory";
    let output = work.train("cpu", &format!("{cpu} 20000"));
    assert!(output.status.success(), "{}", stderr(&output));
    let needs = {
        let events = self::events(&output);
        events[position(&events, "preflight")]["preflight"]["ladder"][0]["bytes"].as_u64().expect("bytes")
    };
    let output = work.train("cpu-limited", &format!("{cpu} {}", (needs * 3 / 2) >> 20));
    assert!(output.status.success(), "{}", stderr(&output));
    // Accumulation is tried as it will run: four clips at once.
    let output =
        work.train("parts", "--batch-size 4 --grad-accum 4 --max-steps 1 --inject oom@1:2 --simulate-devices 1");
    assert!(output.status.success(), "{}", stderr(&output));
    let events = self::events(&output);
    assert!(position(&events, "split") < position(&events, "preflight"), "before the first step");
    // Less than a clip and the model need: an error that says so, before the first step.
    let output = work.train("tiny", &limited(22));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("memory limit of the model lane exceeded: limit 22 MB"), "{}", stderr(&output));
}
