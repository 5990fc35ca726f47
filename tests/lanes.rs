//! Promises about devices: two lanes, in the right order, on the right devices, within their memory, and never silently
//! somewhere else.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use tandem_data::DemoCorpus;

use crate::support::{Workplace, difference, events, facts, last_json, position, run, spans, stderr, stdout, tandem};

/// Every command line of SPEC section X, on simulated devices.
#[test]
fn the_command_lines_of_the_earlier_system_run() {
    let work = Workplace::new(24, 2);
    DemoCorpus { clips: 6, speakers: 2, seed: 9 }.write(&work.path("validation")).expect("written");
    let small = "--model-size smoke --max-steps 2 --sample-every 0";
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
    // The words of SPEC T1 to T5, as they were looked at.
    let is_promised = |line: &&str| {
        let begins = ["🚀", "🎯", "✅", "   - ", "   Set visible", "   (Original", "Creating model"];
        begins.iter().any(|begin| line.starts_with(begin))
    };
    let mut golden = String::new();
    for (number, line) in lines.iter().enumerate() {
        let name = format!("run{number}");
        let small =
            if line.contains("--model-size") { small.replace("--model-size smoke ", "") } else { small.to_owned() };
        let all =
            format!("train {data} {line} {small} --simulate-devices 4 --checkpoint-dir {}", work.path(&name).display());
        let output = run(&all);
        assert!(output.status.success(), "{all}: {}", stderr(&output));
        // SPEC F8: more workers than cores is a note.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let is_noted = stderr(&output).contains(&format!("16 workers on {cores} cores"));
        assert_eq!(is_noted, line.contains("--num-workers 16") && cores < 16, "{all}: {}", stderr(&output));
        let report = fs::read_to_string(work.path(&name).join("report.json")).expect("a report");
        assert_eq!(serde_json::from_str::<Value>(&report).expect("JSON")["step"], 2, "{all}");
        let text = stdout(&output);
        golden += &format!("$ tandem train {line}\n");
        // How full the queue was, and after how many seconds, is another matter.
        let steady = |line: &str| match line.split_once(" now (") {
            Some((before, _)) => format!("{before} now\n"),
            None => format!("{line}\n"),
        };
        golden.extend(text.lines().filter(is_promised).map(steady));
        let lanes = &facts(&work, &name)["lanes"];
        let (mode, backend) = match line.contains("--data-gpu") {
            true => ("multi-gpu", "simulated"),
            false => ("single-gpu-buffered", "simulated"),
        };
        assert_eq!((&lanes["mode"], &lanes["model"]["backend"]), (&mode.into(), &backend.into()), "{all}");
    }
    insta::assert_snapshot!("command-lines", golden);
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
        ("hang", "no batch arrived for 5.0 s"),
    ] {
        // Longer than any batch takes on a busy machine; only what hangs has to wait for it.
        let more = format!(
            "--batch-size 2 --buffer-size 2 --prefetch-buffer-size 1 --checkpoint-every 1000 --stall-timeout 5 \
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
        // What was trained before the fault is there, and the run resumes from it.
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
