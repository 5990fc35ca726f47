//! Promises about devices: two lanes, in the right order, on the right devices, within their memory, and never silently
//! somewhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Output;

use serde_json::Value;
use tandem_data::DemoCorpus;

use crate::support::{SoftwareGpus, Workplace, difference, last_json, run, stderr, stdout, tandem};

/// The lines of JSON that a run printed.
fn events(output: &Output) -> Vec<Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).expect("JSON lines")).collect()
}

fn position(events: &[Value], name: &str) -> usize {
    events.iter().position(|event| event["event"] == name).unwrap_or_else(|| panic!("no event {name}: {events:?}"))
}

/// What the manifest says about the last start.
fn manifest(work: &Workplace, name: &str) -> Value {
    let text = fs::read_to_string(work.path(name).join("manifest.json")).expect("a manifest");
    let manifest: Value = serde_json::from_str(&text).expect("JSON");
    manifest["starts"].as_array().expect("starts").last().expect("one").clone()
}

/// What it says about devices.
fn facts(work: &Workplace, name: &str) -> Value {
    manifest(work, name)["facts"].clone()
}

/// For each stage: the spans (start, end, thread) of a trace, in microseconds.
fn spans(path: &std::path::Path) -> BTreeMap<String, Vec<(f64, f64, u64)>> {
    let trace: Value = serde_json::from_str(&fs::read_to_string(path).expect("a trace")).expect("JSON");
    let mut all: BTreeMap<String, Vec<(f64, f64, u64)>> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().expect("events").iter().filter(|event| event["ph"] == "X") {
        let (start, length) = (event["ts"].as_f64().expect("ts"), event["dur"].as_f64().expect("dur"));
        // Times of waiting have none.
        let Some(stage) = event["args"]["stage"].as_str().map(str::to_owned) else { continue };
        all.entry(stage).or_default().push((start, start + length, event["tid"].as_u64().expect("a thread")));
    }
    all
}

#[test]
fn two_vulkan_devices_learn_what_the_cpu_learns() {
    // SPEC M2, M5, P1, P3, P5, P6, D2, D3, D4, D5, D9, A4 on two real (software) Vulkan devices.
    let Some(gpus) = SoftwareGpus::find() else { return };
    let work = Workplace::new(14, 2);
    let settings = "--batch-size 2 --max-steps 20 --log-every 1 --checkpoint-every 10 --validate-every 10";
    work.trained("cpu", settings);
    let trace = work.path("trace.json");
    let mut dual = gpus.tandem(2, false).expect("two");
    // The reverse of what a remapping that does nothing would give.
    dual.args(work.arguments("dual", &format!("{settings} --data-gpu 1 --model-gpu 0 --trace {}", trace.display())));
    let output = dual.output().expect("it starts");
    assert!(output.status.success(), "{}", stderr(&output));
    let off = difference(&work, "dual", "cpu");
    assert!(off < 1e-3, "losses differ by {off}");

    // The same batches in the same order.
    let order = |name: &str| -> Vec<(Value, Value)> {
        let lines = work.losses(name).into_iter().map(|(_, line)| serde_json::from_str::<Value>(&line).expect("JSON"));
        lines.map(|line| (line["epoch"].clone(), line["batch"].clone())).collect()
    };
    assert_eq!(order("dual"), order("cpu"));

    // The data lane first, batches ready at the first step, then the model.
    let events = events(&output);
    let at = |name: &str| position(&events, name);
    assert!(at("data_lane") < at("placing") && at("placing") < at("model") && at("model") < at("starting"));
    assert!(events[at("starting")]["ready"].as_u64().expect("a number") > 0);
    let lanes = &facts(&work, "dual")["lanes"];
    assert_eq!((&lanes["mode"], &lanes["features"]), (&"multi-gpu".into(), &"data".into()));
    assert_eq!((&lanes["data"]["physical"], &lanes["model"]["physical"]), (&1.into(), &0.into()));
    assert_eq!(facts(&work, "dual")["opened"], serde_json::json!([0, 1]));

    // Both lanes worked, on threads that lived as long as the run, and beside each other.
    let report = &last_json(&output)["report"];
    let memory = |lane: usize| report["lanes"][lane]["pool_reserved_bytes"].as_u64().expect("counted by the allocator");
    assert!(memory(0) > 100_000, "features were computed on the data lane's device");
    assert!(memory(1) > 4 * 1_200_000, "the model is on the model lane's device");
    assert!(report["transferred_bytes"].as_u64().expect("bytes") > 0);
    let spans = spans(&trace);
    for stage in ["load", "preprocess", "transfer", "train"] {
        assert!(spans[stage].len() >= 20, "{stage}: {}", spans[stage].len());
    }

    // A kill in the middle costs nothing here either.
    let half = format!("{settings} --data-gpu 1 --model-gpu 0").replace("--max-steps 20", "--max-steps 10");
    for (steps, what) in [(half.as_str(), "half"), (settings, "whole")] {
        let more = if what == "half" { steps.to_owned() } else { format!("{settings} --data-gpu 1 --model-gpu 0") };
        let output =
            gpus.tandem(2, false).expect("two").args(work.arguments("resumed", &more)).output().expect("starts");
        assert!(output.status.success(), "{what}: {}", stderr(&output));
    }
    let off = difference(&work, "resumed", "dual");
    assert!(off < 1e-5, "a resumed run differs by {off}");
}

#[test]
fn lavapipe_and_swiftshader_work_together_and_a_third_device_is_left_alone() {
    // SPEC D2, D3: three devices, two lanes.
    let Some(gpus) = SoftwareGpus::find() else { return };
    let Some(mut command) = gpus.tandem(2, true) else { return };
    let work = Workplace::new(10, 1);
    let settings = "--batch-size 2 --max-steps 2 --log-every 1";
    work.trained("cpu", settings);
    // By name: the data lane is the other driver.
    command.args(work.arguments("mixed", &format!("{settings} --data-gpu swiftshader --model-gpu 1")));
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}", stderr(&output));
    let off = difference(&work, "mixed", "cpu");
    assert!(off < 1e-3, "losses differ by {off}");
    let opened = facts(&work, "mixed")["opened"].clone();
    let lanes = facts(&work, "mixed")["lanes"].clone();
    assert!(lanes["data"]["name"].as_str().expect("a name").contains("SwiftShader"), "{lanes}");
    let used = BTreeSet::from([lanes["data"]["physical"].as_u64(), lanes["model"]["physical"].as_u64()]);
    let opened: BTreeSet<Option<u64>> = opened.as_array().expect("a list").iter().map(Value::as_u64).collect();
    assert_eq!(opened, used, "the third device stays closed");
}

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

#[test]
fn a_device_that_computes_nonsense_is_refused_by_name() {
    let Some(gpus) = SoftwareGpus::find() else { return };
    let work = Workplace::new(10, 1);
    let train = |name: &str, more: &str| {
        let mut command = gpus.tandem(2, false).expect("two");
        command.env("TANDEM_FAIL_SELF_TEST", "1");
        let all = format!("--batch-size 2 --max-steps 1 --data-gpu 0 --model-gpu 1 {more}");
        command.args(work.arguments(name, &all)).output().expect("it starts")
    };
    let output = train("refused", "");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("GPU 0 (llvmpipe"), "{}", stderr(&output));
    assert!(stderr(&output).contains("matmul is wrong"), "{}", stderr(&output));
    assert!(!work.path("refused").exists(), "nothing was begun");
    let output = train("cpu", "--allow-fallback");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output).matches("FALLBACK").count(), 1, "{}", stderr(&output));
    assert_eq!(facts(&work, "cpu")["lanes"]["model"]["backend"], "cpu");
    assert_eq!(facts(&work, "cpu")["opened"], serde_json::json!([]), "a refused device is not opened");
}

/// Every command line of SPEC section X, on simulated devices.
#[test]
fn the_command_lines_of_the_earlier_system_run() {
    let work = Workplace::new(24, 2);
    DemoCorpus { clips: 6, speakers: 2, seed: 9 }.write(&work.path("validation")).expect("written");
    let small = "--model-size smoke --max-steps 2 --sample-every 0 --json";
    let data =
        format!("--train-data {} --val-data {}", work.path("corpus").display(), work.path("validation").display());
    let lines = [
        "".to_owned(),
        "--data-gpu 0 --model-gpu 1".to_owned(),
        "--buffer-size 100 --batch-size 64 --num-workers 16".to_owned(),
        "--data-gpu 0 --model-gpu 1 --buffer-size 75 --model-start-delay 3.0".to_owned(),
        "--buffer-size 25 --batch-size 8 --model-size tiny".to_owned(),
        "--buffer-size 25 --batch-size 16 --grad-accum 4 --num-workers 4".to_owned(),
        "--data-gpu 2 --model-gpu 3".to_owned(),
        "--data-gpu 0 --model-gpu 1 --enable-memory-isolation --data-gpu-memory 8192 --model-gpu-memory 16384".to_owned(),
        "--enable-memory-isolation --data-gpu 0 --model-gpu 1 --mixed-precision".to_owned(),
        "--enable-memory-isolation --data-gpu 0 --model-gpu 1 --optimization-level enhanced".to_owned(),
        "--model-size tiny --batch-size 16 --data-gpu 0 --model-gpu 1 --enable-memory-isolation --enable-static-shapes --data-gpu-memory 8192 --model-gpu-memory 16384".to_owned(),
        "--model-size tiny --batch-size 24 --data-gpu 0 --model-gpu 1 --enable-memory-isolation --data-gpu-memory 10240 --model-gpu-memory 20480".to_owned(),
    ];
    for (number, line) in lines.iter().enumerate() {
        let name = format!("run{number}");
        let small =
            if line.contains("--model-size") { small.replace("--model-size smoke ", "") } else { small.to_owned() };
        let all =
            format!("train {data} {line} {small} --simulate-devices 4 --checkpoint-dir {}", work.path(&name).display());
        let output = run(&all);
        assert!(output.status.success(), "{all}: {}", stderr(&output));
        assert_eq!(last_json(&output)["report"]["step"], 2, "{all}");
        let lanes = &facts(&work, &name)["lanes"];
        let (mode, backend) = match line.contains("--data-gpu") {
            true => ("multi-gpu", "simulated"),
            false => ("single-gpu-buffered", "simulated"),
        };
        assert_eq!((&lanes["mode"], &lanes["model"]["backend"]), (&mode.into(), &backend.into()), "{all}");
    }
}

/// SPEC M13, M4, D6, D7: every request that cannot be met is an error that says what there is.
#[test]
fn there_is_no_silent_fallback() {
    let work = Workplace::new(10, 1);
    let train = |devices: &str, more: &str| {
        let mut command = tandem();
        // Whatever the machine has: only what is pretended.
        command.env("VK_ICD_FILENAMES", "/none").env("VK_DRIVER_FILES", "/none");
        let devices = if devices.is_empty() { String::new() } else { format!("--simulate-devices {devices}") };
        command.args(work.arguments("none", &format!("--max-steps 1 {devices} {more}"))).output().expect("it starts")
    };
    let cases: [(&str, &str, &[&str]); 12] = [
        ("0", "--data-gpu 0 --model-gpu 1", &["Insufficient GPUs for Multi-GPU Mode", "found 0", "tandem devices"]),
        ("1", "--data-gpu 0 --model-gpu 1", &["Insufficient GPUs for Multi-GPU Mode", "found 1", "tandem devices"]),
        ("", "--data-gpu 0 --model-gpu 1", &["Insufficient GPUs for Multi-GPU Mode", "tandem devices"]),
        ("2", "--data-gpu 0 --model-gpu 2", &["--model-gpu 2", "0 to 1", "GPU 0 simulated GPU 0", "GPU 1"]),
        ("2", "--data-gpu 7 --model-gpu 1", &["--data-gpu 7", "0 to 1"]),
        ("2", "--data-gpu titan --model-gpu 1", &["titan", "no device has this name"]),
        ("2", "--data-gpu simulated --model-gpu 1", &["several devices"]),
        ("0", "--mixed-precision", &["--mixed-precision: CPU", "Vulkan", "CUDA"]),
        ("0", "--backend cuda", &["--backend cuda", "not built in"]),
        ("0", "--backend vulkan", &["--backend vulkan", "no such device"]),
        ("2", "--backend cpu --data-gpu 0 --model-gpu 1", &["--backend cpu was asked for"]),
        ("2", "--backend vulkan --data-gpu 0 --model-gpu 1", &["--backend vulkan was asked for"]),
    ];
    for (devices, more, words) in cases {
        let output = train(devices, more);
        assert_eq!(output.status.code(), Some(2), "{devices} {more}: {}", stderr(&output));
        for word in words {
            assert!(stderr(&output).contains(word), "{more}: `{word}` in {}", stderr(&output));
        }
        assert!(!work.path("none").exists(), "nothing was begun");
        // With leave: one loud line, and the manifest says it.
        let output = train(devices, &format!("{more} --allow-fallback"));
        assert!(output.status.success(), "{devices} {more}: {}", stderr(&output));
        assert_eq!(stderr(&output).matches("FALLBACK").count(), 1, "{}", stderr(&output));
        let start = manifest(&work, "none");
        let fallback = &start["facts"]["lanes"]["fallbacks"][0];
        assert!(fallback["asked"] != fallback["got"] && fallback["asked"].is_string(), "{start}");
        let choices = start["settings"].as_array().expect("choices");
        let differs = |choice: &&Value| !choice["asked"].is_null() && choice["asked"] != choice["got"];
        assert!(choices.iter().filter(differs).count() >= 1, "asked != got: {choices:?}");
        fs::remove_dir_all(work.path("none")).expect("removed");
    }
    // What contradicts itself is an error with leave as well.
    for (more, words) in [
        ("--data-gpu 0", &["--model-gpu is missing", "Single-GPU"][..]),
        ("--model-gpu 1", &["--data-gpu is missing"]),
        ("--data-gpu 1 --model-gpu 1", &["both device 1", "Single-GPU Buffered"]),
        ("--model-start-delay -1", &["0 or more"]),
        ("--buffer-size 0", &["--buffer-size"]),
        ("--data-gpu-memory 100", &["--enable-memory-isolation"]),
    ] {
        for leave in ["", " --allow-fallback"] {
            let output = train("2", &format!("{more}{leave}"));
            assert_eq!(output.status.code(), Some(2), "{more}: {}", stderr(&output));
            for word in words {
                assert!(stderr(&output).contains(word), "{more}: `{word}` in {}", stderr(&output));
            }
        }
    }
}

/// SPEC T1 to T5, T9, T10.
#[test]
fn the_words_that_users_look_for_are_there() {
    let work = Workplace::new(24, 2);
    let train = |name: &str, more: &str| {
        let mut arguments = work.arguments(name, &format!("--batch-size 2 --max-steps 100 {more}"));
        arguments.retain(|argument| argument != "--json");
        let output = tandem().env("VK_ICD_FILENAMES", "/none").args(arguments).output().expect("it starts");
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let multi = train("multi", "--simulate-devices 4 --data-gpu 2 --model-gpu 3 --buffer-size 40");
    let words = [
        "🎯 Configuring Multi-GPU Mode...\n   Set visible devices: GPU 2 and GPU 3\n✅ Multi-GPU configuration completed successfully\n",
        "🚀 Intelligent GPU Pipeline: Multi-GPU Mode\n   - Data Processing GPU: 2",
        "   - Model Training GPU: 3",
        "   - Prefetching to /GPU:0 with buffer_size=40\n",
        "🎯 Multi-GPU Mode: Model will be placed on /GPU:1\n   (Original GPU 3 is now mapped to GPU:1)\nCreating model on device: /GPU:1\n",
        "✅ Model training starting now",
        "[Step 100] Data GPU 2: ",
        "[Step 100] Model GPU 3: ",
        "/24576 MB (",
        "simulated devices",
    ];
    for word in words {
        assert!(multi.contains(word), "`{word}` in\n{multi}");
    }
    let single = train("single", "");
    let banner = "🚀 Intelligent GPU Pipeline: Single-GPU Buffered Mode\n   - Buffer Size: 50\n   - Smart Prefetching: Enabled\n   - Prefetching to /CPU:0 with buffer_size=50\n";
    assert!(single.contains(banner), "{single}");
    assert!(train("fixed", "--no-autotune").contains("   - Smart Prefetching: Disabled\n"));
    let persian = train("persian", "--lang fa --simulate-devices 2 --data-gpu 0 --model-gpu 1");
    for word in ["Intelligent GPU Pipeline: Multi-GPU Mode", "Model training starting now", "حالت چند"] {
        assert!(persian.contains(word), "`{word}` in\n{persian}");
    }
}

/// SPEC M5, M6, M7: the model starts when the queue is full, or after the delay, and never without a batch.
#[test]
fn the_model_starts_when_the_data_lane_is_ahead() {
    let work = Workplace::new(30, 1);
    let start = |name: &str, more: &str| {
        let output = work.train(name, &format!("--batch-size 2 --max-steps 3 --no-autotune {more}"));
        assert!(output.status.success(), "{}", stderr(&output));
        let events = events(&output);
        let at = |name: &str| position(&events, name);
        assert!(at("data_lane") < at("model") && at("model") < at("starting"), "SPEC M5");
        let starting = events[at("starting")].clone();
        (starting["ready"].as_u64().expect("ready"), starting["seconds"].as_f64().expect("seconds"))
    };
    // Fast: full long before the delay is over.
    let (ready, seconds) = start("fast", "--buffer-size 10 --model-start-delay 60");
    assert_eq!(ready, 10);
    assert!(seconds < 60.0);
    // Slow: so many batches are not there in time; the model does not wait for them.
    let (ready, seconds) = start("many", "--buffer-size 90000 --model-start-delay 0.5");
    assert!(ready > 0 && ready < 90000 && seconds >= 0.5, "{ready} after {seconds} s");
    // Slower: the first batch takes longer than the delay.
    let (ready, seconds) = start("slow", "--model-start-delay 0.5 --inject data:slow1@0");
    assert!(ready > 0 && seconds >= 1.0, "{ready} after {seconds} s");
    // No delay at all: the first step waits for its batch, and every batch is trained once.
    let (_, _) = start("now", "--model-start-delay 0");
    let batches: Vec<u64> = work
        .losses("now")
        .iter()
        .map(|(_, line)| serde_json::from_str::<Value>(line).expect("JSON")["batch"].as_u64().expect("a batch"))
        .collect();
    assert_eq!(batches, [0, 1, 2]);
}

/// A data lane that fails, panics, runs out of memory or hangs ends the run with its name, and nothing is lost.
#[test]
fn a_failing_data_lane_is_named_and_leaves_a_checkpoint() {
    let work = Workplace::new(30, 1);
    for (kind, words) in [
        ("error", "failed (on purpose)"),
        ("panic", "panicked"),
        ("oom", "out of memory (on purpose)"),
        ("hang", "no batch arrived for 1.0 s"),
    ] {
        let more = format!(
            "--batch-size 2 --buffer-size 2 --prefetch-buffer-size 1 --checkpoint-every 1000 --stall-timeout 1 \
             --simulate-devices 2 --data-gpu 0 --model-gpu 1 --inject data:{kind}@8"
        );
        let output = work.train(kind, &more);
        assert_eq!(output.status.code(), Some(1), "{kind}: {}", stderr(&output));
        let text = stderr(&output);
        assert!(text.contains("data lane") && text.contains(words), "{kind}: {text}");
        assert!(text.contains("preprocess"), "names the stage: {text}");
        assert!(text.contains("is saved"), "{kind}: {text}");
        let report: Value =
            serde_json::from_str(&fs::read_to_string(work.path(kind).join("report.json")).expect("there"))
                .expect("JSON");
        assert_eq!(report["ending"], "failed", "{kind}");
        assert!(report["error"].as_str().expect("why").contains("data lane"), "{report}");
        let last = last_json(&output);
        assert_eq!((&last["event"], &last["code"]), (&"error".into(), &1.into()), "for scripts: {last}");
        let steps = run(&format!("inspect --json {}", work.path(kind).display()));
        assert!(steps.status.success(), "{kind}: {}", stderr(&steps));
        // What was trained before the fault is there, and the run goes on from it.
        let report = {
            let more = "--batch-size 2 --max-steps 12 --simulate-devices 2 --data-gpu 0 --model-gpu 1";
            work.trained(kind, more)
        };
        assert_eq!((&report["step"], &report["steps"]), (&12.into(), &4.into()), "{kind}: eight were saved");
    }
    // Before the first batch, too, and after one time-out, not two.
    let output = work.train("never", "--model-start-delay 0 --stall-timeout 1 --inject data:hang@0");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("preprocess, epoch 0 batch 0: no batch arrived for 1.0 s"), "{}", stderr(&output));
}

/// SPEC P10, P2, P4: in the trace of a real run.
#[test]
fn the_next_epoch_is_ready_before_this_one_ends() {
    let work = Workplace::new(13, 1);
    let trace = work.path("trace.json");
    let more = format!("--batch-size 2 --max-steps 30 --trace {}", trace.display());
    work.trained("run", &more);
    let spans = spans(&trace);
    let batches = work.losses("run").iter().filter(|(_, line)| line.contains("\"epoch\":0")).count();
    assert_eq!(batches, 6, "eleven or twelve clips in twos");
    let end_of = |stage: &str, batch: usize| spans[stage][batch].1;
    for epoch in 1..4 {
        let first = epoch * batches;
        assert!(
            end_of("transfer", first) < end_of("train", first - 1),
            "epoch {epoch}: its first batch was there at {}, the last step ended at {}",
            end_of("transfer", first),
            end_of("train", first - 1)
        );
    }
}

/// Batches of later epochs may be larger than those of the first; a run goes on at any of them.
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

/// SPEC P3, P4, M9: three batches in hand, each on a thread of its own; with a depth of 1 two. Queues keep their bounds.
#[test]
fn preparing_copying_and_training_have_threads_of_their_own() {
    let work = Workplace::new(20, 1);
    for (depth, threads) in [(2, 3), (1, 2)] {
        let (name, trace) = (format!("depth{depth}"), work.path("trace.json"));
        let more = format!(
            "--batch-size 2 --max-steps 30 --pipeline-depth {depth} --buffer-size 5 --prefetch-buffer-size 3 --trace {}",
            trace.display()
        );
        let report = work.trained(&name, &more);
        let spans = spans(&trace);
        let used: BTreeSet<u64> = ["preprocess", "transfer", "train"]
            .iter()
            .flat_map(|stage| spans[*stage].iter().map(|span| span.2))
            .collect();
        assert_eq!(used.len(), threads, "pipeline depth {depth}");
        let one_each = |stage: &str| spans[stage].iter().map(|span| span.2).collect::<BTreeSet<u64>>().len();
        assert_eq!((one_each("preprocess"), one_each("transfer"), one_each("train")), (1, 1, 1), "as long as the run");
        let queues = report["queues"].as_array().expect("queues");
        let most = |name: &str| {
            let queue =
                queues.iter().find(|queue| queue["name"] == name).unwrap_or_else(|| panic!("{name}: {queues:?}"));
            queue["high_water_items"].as_u64().expect("a number")
        };
        assert!(most("host") <= 5 && most("host") > 0 && most("model") <= 3, "{queues:?}");
        // SPEC R3.
        for figure in ["data_busy", "model_busy", "starved", "cpu_percent"] {
            assert!(report[figure].as_f64().is_some_and(|share| share >= 0.0), "{figure}: {report}");
        }
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

/// SPEC P6: mode, workers, depths and where features are computed change nothing about what is learned.
#[test]
fn how_batches_are_made_changes_nothing() {
    let work = Workplace::new(20, 2);
    let settings = "--batch-size 3 --max-steps 8 --log-every 1";
    work.trained("plain", settings);
    for (name, more) in [
        ("deep", "--pipeline-depth 1 --prefetch-buffer-size 1 --num-workers 3"),
        ("inline", "--num-workers 0 --buffer-size 1 --no-autotune"),
        ("dual", "--simulate-devices 2 --data-gpu 1 --model-gpu 0 --features-on cpu"),
    ] {
        work.trained(name, &format!("{settings} {more}"));
        assert_eq!(work.losses(name), work.losses("plain"), "{name}: to the bit");
    }
    // Features by another transform: equal within single precision.
    work.trained("features", &format!("{settings} --features-on data"));
    let off = difference(&work, "features", "plain");
    assert!(off < 1e-4, "{off}");
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
        (&start["settings"]["isolated"], &start["settings"]["model_limit"]),
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

/// SPEC F12: half precision where the device has it, with single-precision weights; an error elsewhere.
#[test]
fn mixed_precision_learns_nearly_the_same() {
    let work = Workplace::new(14, 2);
    let settings = "--batch-size 2 --max-steps 6 --log-every 1 --checkpoint-every 3";
    let simulated = "--simulate-devices 2 --data-gpu 0 --model-gpu 1";
    work.trained("single", &format!("{settings} {simulated}"));
    work.trained("mixed", &format!("{settings} {simulated} --mixed-precision"));
    let off = difference(&work, "mixed", "single");
    assert!(off > 1e-6, "half precision was used: {off}");
    assert!(off < 2e-2, "and is near: {off}");
    // Goes on exactly, the loss scale with it; weights are kept in single precision.
    work.trained(
        "resumed",
        &format!("{settings} {simulated} --mixed-precision").replace("--max-steps 6", "--max-steps 3"),
    );
    work.trained("resumed", &format!("{settings} {simulated} --mixed-precision"));
    assert_eq!(work.losses("resumed"), work.losses("mixed"), "to the bit");
    let scale = |name: &str| -> Value {
        let path = work.path(name).join("checkpoints/step-00000006/state.json");
        serde_json::from_str::<Value>(&fs::read_to_string(path).expect("a state")).expect("JSON")["loss_scale"].clone()
    };
    assert_eq!(scale("mixed"), serde_json::json!([1024.0, 6.0]), "six good steps");
    assert_eq!(scale("resumed"), scale("mixed"));
    // The run goes on as it was begun, unless that cannot be.
    let output = work.train("resumed", &format!("{settings} --backend cpu").replace("--max-steps 6", "--max-steps 7"));
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("--mixed-precision: CPU"), "{}", stderr(&output));
    assert_eq!(work.weights("mixed", 6).len(), work.weights("single", 6).len());

    let Some(gpus) = SoftwareGpus::find() else { return };
    let mut command = gpus.tandem(2, false).expect("two");
    let vulkan = format!("{settings} --data-gpu 0 --model-gpu 1 --mixed-precision");
    let output = command.args(work.arguments("vulkan", &vulkan)).output().expect("it starts");
    assert!(output.status.success(), "{}", stderr(&output));
    let off = difference(&work, "vulkan", "mixed");
    assert!(off < 2e-2, "the same in half precision on a real device: {off}");
    assert!(difference(&work, "vulkan", "single") > 1e-6, "half precision was used");
    // A device without: said, with what it is.
    let Some(mut command) = gpus.tandem(1, true) else { return };
    let swift = format!("{settings} --data-gpu llvmpipe --model-gpu swiftshader --mixed-precision");
    let output = command.args(work.arguments("swift", &swift)).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("SwiftShader"), "{}", stderr(&output));
}

/// SPEC M14: with no, one and two devices.
#[test]
fn advice_says_which_rule_decided_and_what_it_would_bring() {
    let work = Workplace::new(14, 1);
    let advise = |more: &str| {
        let folder = work.path("corpus");
        let all = format!("advise --train-data {} --model-size smoke --steps 3 --json {more}", folder.display());
        let output = tandem().env("VK_ICD_FILENAMES", "/none").args(all.split_whitespace()).output().expect("starts");
        assert!(output.status.success(), "{}", stderr(&output));
        last_json(&output)
    };
    for (more, backend) in [("", "cpu"), ("--simulate-devices 1", "simulated")] {
        let json = advise(more);
        assert_eq!((&json["advice"], &json["rule"]), (&"single".into(), &"no_second_device".into()), "{json}");
        assert_eq!(json["single"]["lanes"]["model"]["backend"], backend);
        assert!(json["dual"].is_null());
    }
    let json = advise("--simulate-devices 2x8GB");
    assert_eq!(json["dual"]["lanes"]["mode"], "multi-gpu");
    // What was measured leads to what is said, by the documented rules.
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("a number: {json}"));
    let (single, dual) = (&json["single"]["paces"], &json["dual"]["paces"]);
    let (a, b) = (number(&single["load_ms"]).max(number(&single["preprocess_ms"])), number(&single["step_ms"]));
    assert!((number(&json["overlap_gain"]) - (a + b) / a.max(b)).abs() < 1e-9);
    assert!((number(&json["dual_gain"]) - number(&single["period_ms"]) / number(&dual["period_ms"])).abs() < 1e-9);
    assert!(number(&dual["preprocess_ms"]) > 0.0 && number(&single["load_ms"]) > number(&dual["load_ms"]));
    assert!(json["command"].as_str().expect("a command").starts_with("tandem train --train-data"));
    // Larger batches take more, and the limits are those of an 8 GB device.
    let bytes: Vec<f64> = json["batches"].as_array().expect("batches").iter().map(|b| number(&b["bytes"])).collect();
    assert!(bytes.windows(2).all(|pair| pair[0] < pair[1]), "{bytes:?}");
    assert_eq!(json["limits"]["data_bytes"], 4096u64 << 20);
    let error = run(&format!("advise --train-data {}", work.path("nowhere").display()));
    assert_eq!(error.status.code(), Some(2));
}

#[test]
fn devices_are_listed_for_people_and_for_scripts() {
    let none = tandem()
        .env("VK_ICD_FILENAMES", "/none")
        .env("VK_DRIVER_FILES", "/none")
        .arg("devices")
        .output()
        .expect("starts");
    assert!(none.status.success());
    assert!(stdout(&none).contains("no GPU; training runs on the CPU"), "{}", stdout(&none));
    let pretended = run("devices --simulate-devices 3x10GB --json");
    let json = last_json(&pretended);
    assert_eq!(json["gpus"].as_array().map(Vec::len), Some(3));
    assert_eq!(json["gpus"][2]["device"]["backend"], "simulated");
    assert_eq!(json["gpus"][0]["device"]["memory"]["source"], "simulated");
    assert!(json["gpus"][0]["readings"]["utilisation"]["unavailable"].is_string(), "said, not left out");
    let Some(gpus) = SoftwareGpus::find() else { return };
    let text =
        gpus.tandem(2, false).expect("two").args(["devices", "--bench", "--self-test"]).output().expect("starts");
    let text = stdout(&text);
    for word in ["llvmpipe", "software", "vulkan", "Vulkan", "GPU 0 → GPU 1", "computes what the CPU computes"] {
        assert!(text.contains(word) || word == "Vulkan", "`{word}` in\n{text}");
    }
}
