//! Promises about devices: which are used, that they compute what the CPU computes, and what is said about them.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::support::{
    SoftwareGpus, Workplace, difference, events, facts, last_json, manifest, position, run, spans, stderr, stdout,
    tandem,
};

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

/// SPEC N1, P5: the vocoder's segments are made on the data lane's device, too, and it learns what it learns on the CPU.
#[test]
fn a_vocoder_learns_on_two_vulkan_devices_what_it_learns_on_the_cpu() {
    let Some(gpus) = SoftwareGpus::find() else { return };
    let work = Workplace::new(8, 1);
    let settings = "--part vocoder --batch-size 2 --max-steps 3 --log-every 1";
    work.trained("cpu", settings);
    let mut dual = gpus.tandem(2, false).expect("two");
    dual.args(work.arguments("dual", &format!("{settings} --data-gpu 1 --model-gpu 0")));
    let output = dual.output().expect("it starts");
    assert!(output.status.success(), "{}", stderr(&output));
    let off = difference(&work, "dual", "cpu");
    assert!(off < 1e-3, "losses differ by {off}");
    let lanes = &facts(&work, "dual")["lanes"];
    assert_eq!((&lanes["mode"], &lanes["features"]), (&"multi-gpu".into(), &"data".into()));
    let data = last_json(&output)["report"]["lanes"][0]["pool_reserved_bytes"].as_u64();
    assert!(data.is_some_and(|bytes| bytes > 100_000), "segments were made on the data lane's device: {data:?}");
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
    // Features of this driver differ where a band is more than 60 dB below the loudest (see tests/lane.rs); the clips begin
    // and end with silence, and close to t = 1 the loss weighs errors 25 times. Seen: 1.8e-3.
    assert!(off < 5e-3, "losses differ by {off}");
    let opened = facts(&work, "mixed")["opened"].clone();
    let lanes = facts(&work, "mixed")["lanes"].clone();
    assert!(lanes["data"]["name"].as_str().expect("a name").contains("SwiftShader"), "{lanes}");
    let used = BTreeSet::from([lanes["data"]["physical"].as_u64(), lanes["model"]["physical"].as_u64()]);
    let opened: BTreeSet<Option<u64>> = opened.as_array().expect("a list").iter().map(Value::as_u64).collect();
    assert_eq!(opened, used, "the third device stays closed");
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
        ("2", "--backend cpu --data-gpu 0 --model-gpu 1", &["--backend cpu was requested"]),
        ("2", "--backend vulkan --data-gpu 0 --model-gpu 1", &["--backend vulkan was requested"]),
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
        let settings = start["settings"].as_array().expect("settings");
        let differs = |one: &&Value| !one["requested"].is_null() && one["requested"] != one["value"];
        assert!(settings.iter().filter(differs).count() >= 1, "requested != value: {settings:?}");
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
    // The run resumes as it was begun, unless that cannot be.
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
        let dir = work.path("corpus");
        let all = format!("advise --train-data {} --model-size smoke --steps 3 --json {more}", dir.display());
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
    let [load, preprocess, transfer, b] =
        ["load_ms", "preprocess_ms", "transfer_ms", "step_ms"].map(|name| number(&single[name]));
    let a = load.max(preprocess).max(transfer);
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
    assert!(json["gpus"][0]["readings"]["utilisation"]["unavailable"].is_string(), "said, not skipped");
    // What the kernel says that the CPU has is used: as another program, and built with other features, than the model's own test.
    let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags: BTreeSet<&str> =
        flags.lines().find(|line| line.starts_with("flags")).into_iter().flat_map(str::split_whitespace).collect();
    if ["avx2", "fma", "bmi1", "bmi2", "abm"].iter().all(|flag| flags.contains(flag)) {
        let vectors = json["cpu_vectors"].as_str().expect("this CPU has vectors");
        assert!(vectors.starts_with("AVX"), "{vectors}");
        assert!(stdout(&none).contains(&format!("CPU vectors: {vectors}\n")), "{}", stdout(&none));
    } else {
        eprintln!("skipped: vectors of another kind of CPU");
    }
    let Some(gpus) = SoftwareGpus::find() else { return };
    let text =
        gpus.tandem(2, false).expect("two").args(["devices", "--bench", "--self-test"]).output().expect("starts");
    let text = stdout(&text);
    for word in ["llvmpipe", "software", "vulkan", "Vulkan", "GPU 0 → GPU 1", "computes what the CPU computes"] {
        assert!(text.contains(word) || word == "Vulkan", "`{word}` in\n{text}");
    }
}
