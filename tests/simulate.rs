//! `tandem simulate` (SPEC M8, M9, M11, P2, P9, D11, R8).

use std::collections::BTreeMap;
use std::io::Read;
use std::process::Stdio;

use crate::support::{Workplace, interrupt, last_json, run, stderr, stdout, tandem};

const EXAMPLE: &str = "simulate --load 12.3ms±2.1 --preprocess 5.1ms±0.8 --transfer 8.7ms±1.2 --train 123.4ms±5.2 \
                       --steps 200 --workers 4 --pipeline-depth 2 --clock virtual";

fn number(value: &serde_json::Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("`{key}` is a number: {value}"))
}

#[test]
fn the_model_lane_is_busy_and_the_lanes_overlap() {
    let json = last_json(&run(&format!("{EXAMPLE} --json")));
    assert!(number(&json, "model_busy") >= 0.99);
    assert!(number(&json, "overlap") > 0.95);
    assert!(number(&json, "starved") < 0.01);
    assert!(
        number(&json, "wall_s") <= 1.01 * 200.0 * number(&json["stages"][3], "mean_ms") / 1e3 + number(&json, "fill_s")
    );
    assert!(number(&json, "ideal_s") <= number(&json, "wall_s") * 1.000001);
    assert!(number(&json, "serial_s") > 1.2 * number(&json, "wall_s"));
    assert!((0.0..=1.0).contains(&number(&json, "data_busy")));
    assert_eq!(json["simulated"], true);
}

#[test]
fn without_overlap_the_model_lane_swings() {
    let json = last_json(&run(&format!("{EXAMPLE} --serial --json")));
    assert!((0.81..0.84).contains(&number(&json, "model_busy")));
    assert_eq!(number(&json, "overlap"), 0.0);
    assert!((0.16..0.19).contains(&number(&json, "starved")));
}

#[test]
fn on_the_real_clock_the_engine_really_overlaps() {
    let arguments = "simulate --load 4ms --preprocess 30ms --transfer 2ms --train 30ms --steps 20 --json";
    let mut tried = Vec::new();
    // Beside other work a thread may wait for a core longer than for its neighbor; an engine that does not overlap never does.
    let overlaps = (0..3).any(|_| {
        let piped = last_json(&run(arguments));
        let serial = last_json(&run(&format!("{arguments} --serial")));
        assert_eq!(piped["clock"], "real");
        // A ratio of two runs of the same program; the bound for two equal stages is 2 (here 66/30).
        let faster = number(&serial, "wall_s") > 1.3 * number(&piped, "wall_s");
        let overlap = number(&piped, "overlap") > 0.95;
        tried.push([serial, piped]);
        faster && overlap
    });
    assert!(overlaps, "{tried:#?}");
}

#[test]
fn the_report_reads_as_shown_in_the_documents() {
    insta::assert_snapshot!("pipelined", stdout(&run(EXAMPLE)));
    insta::assert_snapshot!("serial", stdout(&run(&format!("{EXAMPLE} --serial"))));
    let tuned = "simulate --load 400ms±60 --workers 1 --pipeline-depth 1 --buffer-size 1 --steps 300 --autotune \
                 --clock virtual";
    insta::assert_snapshot!("autotune", stdout(&run(tuned)));
    insta::assert_snapshot!("persian", stdout(&run(&format!("--lang fa {EXAMPLE}"))));
}

#[test]
fn the_language_follows_the_locale_unless_it_is_given() {
    let with = |locale: &str, arguments: &str| {
        let mut command = tandem();
        let output = command.env("LC_ALL", locale).args(arguments.split_whitespace()).output().expect("it starts");
        stdout(&output).contains("گام")
    };
    let quick = "simulate --clock virtual --steps 5";
    assert!(with("fa_IR.UTF-8", quick));
    assert!(!with("en_US.UTF-8", quick));
    assert!(!with("fa_IR.UTF-8", &format!("{quick} --lang en")));
}

#[test]
fn the_trace_has_a_row_per_thread_and_a_color_per_batch() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("out.json");
    let output = run(&format!("{EXAMPLE} --trace {}", path.display()));
    assert!(output.status.success(), "{}", stderr(&output));
    let trace: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&path).expect("written")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    let lanes: BTreeMap<u64, &str> = (events.iter())
        .filter(|event| event["name"] == "thread_name")
        .map(|event| (event["tid"].as_u64().expect("a number"), event["args"]["name"].as_str().expect("a name")))
        .collect();
    let names: Vec<&str> = lanes.values().copied().collect();
    assert_eq!(names[names.len() - 3..], ["data: preprocess", "model: transfer", "main: train"]);
    assert!(names.iter().filter(|name| name.starts_with("load-")).count() >= 2, "{names:?}");

    let slices: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(slices.len(), 4 * 200);
    // Every batch has one color in all four rows, and its neighbor another.
    let mut colors: BTreeMap<u64, &serde_json::Value> = BTreeMap::new();
    for slice in &slices {
        let batch = slice["args"]["batch"].as_u64().expect("a number");
        assert_eq!(*colors.entry(batch).or_insert(&slice["cname"]), &slice["cname"]);
    }
    assert!((1..200).all(|batch| colors[&batch] != colors[&(batch - 1)]));
    // Within a lane slices do not overlap: each lane is one thread.
    for lane in lanes.keys() {
        let whole = |slice: &serde_json::Value, key: &str| slice[key].as_u64().expect("whole microseconds");
        let mut times: Vec<(u64, u64)> = (slices.iter())
            .filter(|slice| slice["tid"].as_u64() == Some(*lane))
            .map(|slice| (whole(slice, "ts"), whole(slice, "ts") + whole(slice, "dur")))
            .collect();
        times.sort_unstable();
        assert!(times.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    }
    assert!(events.iter().any(|event| event["ph"] == "C" && event["name"] == "queue host"));
    assert!(trace["traceEvents"][0]["args"]["name"].as_str().is_some_and(|name| name.contains("simulated")));
}

#[test]
fn bad_input_is_an_error_with_exit_code_2_and_leaves_nothing_behind() {
    for (arguments, words) in [
        ("--steps 0", "0 is not in 1.."),
        ("--load -5ms", "negative"),
        ("--load 5", "has no unit"),
        ("--train 5parsecs", "unknown unit `parsecs`"),
        ("--train 99999s", "not a sensible duration"),
        ("--load NaNms", "not a"),
        ("--pipeline-depth 0", "0 is not in 1.."),
        ("--buffer-size 0", "0 is not in 1.."),
        ("--workers -1", "unexpected argument"),
        ("--fault load:explode@3", "is not a fault"),
        ("--fault lode:error@3", "unknown stage `lode`"),
        ("--fault load:error@200", "there are only 200 steps"),
        ("--stall-timeout 0s", "longer than 0"),
        ("--batch-mb 2000", "larger than --memory-limit 1024"),
        ("--serial --autotune", "cannot be used with"),
        ("--trace /nonexistent/out.json", "cannot write `/nonexistent/out.json`"),
        ("--frobnicate", "unexpected argument '--frobnicate'"),
    ] {
        let output = run(&format!("simulate --clock virtual {arguments}"));
        assert_eq!(output.status.code(), Some(2), "{arguments}: {}", stderr(&output));
        assert!(stderr(&output).contains(words), "{arguments}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{arguments}");
    }
    let dir = tempfile::tempdir().expect("a folder");
    let output = run(&format!("simulate --clock virtual --trace {}", dir.path().display()));
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 0, "nothing half-written");
}

#[test]
fn a_failing_lane_is_named_and_what_was_done_is_still_reported() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("out.json");
    for (fault, words) in [
        ("preprocess:hang@17", "preprocess, epoch 0 batch 17: no batch arrived for 60.0 s"),
        ("load:panic@17", "load, epoch 0 batch 17: panicked: simulated panic"),
        ("transfer:oom@17", "transfer, epoch 0 batch 17: simulated out of memory on device `link`"),
    ] {
        let output = run(&format!("{EXAMPLE} --fault {fault} --json --trace {}", path.display()));
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
        assert_eq!(last_json(&output)["steps"], 17);
        assert!(path.exists());
    }
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_ends_the_run_and_loses_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("out.json");
    let mut child = tandem()
        .args(["simulate", "--train", "20ms", "--steps", "100000", "--json", "--trace"])
        .arg(&path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    interrupt(&child);
    let mut text = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut text).expect("UTF-8");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let json: serde_json::Value = serde_json::from_str(text.lines().last().expect("a report")).expect("JSON");
    assert!(json["steps"].as_u64().is_some_and(|steps| steps < 100_000), "{json}");
    assert!(path.exists(), "the trace is there");
}

/// SPEC K9.
#[test]
fn what_more_ranks_would_give_is_predicted_from_times_that_are_given() {
    let predicted = |more: &str| last_json(&run(&format!("simulate --world 8 --train 50ms --load 10ms --json {more}")));
    let row = |json: &serde_json::Value, kind: &str, world: u64| {
        let rows = json[kind].as_array().expect("rows").clone();
        rows.into_iter().find(|row| row["world"] == world).unwrap_or_else(|| panic!("{world} ranks: {json}"))
    };
    let fast = predicted("--link 10GB/s --latency 20us --gradients 16MB");
    assert_eq!(fast["simulated"], true);
    assert_eq!(fast["weak"].as_array().map(Vec::len), Some(4), "1, 2, 4 and 8 ranks");
    let two = row(&fast, "weak", 2);
    // 16 MB at 10 GB/s, latencies, and two copies of a bucket that nothing hides: some three milliseconds.
    assert!((2.0..5.0).contains(&number(&two, "reduce_ms")), "{two}");
    assert!((number(&two, "period_ms") - 50.0 - number(&two, "reduce_ms")).abs() < 0.5, "{two}");
    assert!((1.8..1.97).contains(&number(&two, "speedup")), "{two}");
    let slow = predicted("--link 100MB/s --latency 20us --gradients 16MB");
    assert!(number(&row(&slow, "weak", 2), "exposed") > 0.7, "{slow}");
    for (kind, world) in [("weak", 8), ("strong", 2), ("strong", 8)] {
        let (fast, slow) = (row(&fast, kind, world), row(&slow, kind, world));
        assert!(number(&fast, "efficiency") > 2.0 * number(&slow, "efficiency"), "{kind} {world}: {fast} {slow}");
    }
    assert!(number(&row(&fast, "strong", 8), "efficiency") < number(&row(&fast, "weak", 8), "efficiency"));
    let text = "simulate --world 8 --train 50ms --load 10ms --link 1GB/s --latency 20us";
    insta::assert_snapshot!("ranks", stdout(&run(text)));
    insta::assert_snapshot!("ranks_persian", stdout(&run(&format!("--lang fa {text}"))));
}

#[test]
fn what_more_ranks_would_give_is_predicted_from_a_profile_and_from_a_run() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("profile.json");
    let stage = |ms: f64| serde_json::json!({"mean_ms": ms, "std_ms": 9.0, "share": 0.1});
    let mut profile = serde_json::json!({
        "stages": {"load": stage(30.0), "preprocess": stage(1.0), "transfer": stage(1.0), "train": stage(80.0)},
        "variation": 0.0, "period_ms": 80.0, "parameters": 2_500_000,
        "knobs": {"workers": 2, "cores": 4, "buffer": 8, "depth": 2, "device_queue": 2},
    });
    std::fs::write(&path, profile.to_string()).expect("written");
    let json = last_json(&run(&format!("simulate --world 4 --from {} --json", path.display())));
    assert_eq!((&json["gradient_bytes"], number(&json["stages"]["train"], "mean_ms")), (&10_000_000.into(), 80.0));
    // Steps of other lengths are as long on all ranks: without variation at equal work nobody waits for the slowest.
    assert_eq!(number(&json["stages"]["train"], "std_ms"), 0.0);
    profile["knobs"].as_object_mut().expect("an object").remove("depth");
    std::fs::write(&path, profile.to_string()).expect("written");
    for (from, words) in [
        (path.display().to_string(), "it has no `knobs.depth`"),
        (dir.path().join("nothing.json").display().to_string(), "is neither the folder of a run nor a profile"),
        (dir.path().display().to_string(), "is not the folder of a run"),
    ] {
        let output = run(&format!("simulate --world 4 --from {from}"));
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
    let work = Workplace::new(40, 1);
    let report = work.trained("run", "--batch-size 2 --max-steps 40 --log-every 5");
    let run_dir = work.path("run");
    let json = last_json(&run(&format!("simulate --world 2 --from {} --json", run_dir.display())));
    assert_eq!(json["gradient_bytes"].as_u64(), report["parameters"].as_u64().map(|count| 4 * count));
    assert!(number(&json["stages"]["train"], "mean_ms") > 0.0 && number(&json["weak"][1], "exposed") > 0.0, "{json}");
}

#[test]
fn ranks_that_make_no_sense_are_refused() {
    for (arguments, words) in [
        ("--world 0", "0 is not in 1..=65536"),
        ("--world 2 --link 10", "write for example `10GB/s`"),
        ("--world 2 --gradients many", "write for example `16MB`"),
        ("--world 2 --latency 20", "has no unit"),
        ("--world 2 --serial", "--serial"),
        ("--world 2 --from x --train 10ms", "--train"),
    ] {
        let output = run(&format!("simulate {arguments}"));
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(stderr(&output).contains(words), "{arguments}: {}", stderr(&output));
    }
}
