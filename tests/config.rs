//! Promises about the file of settings: every flag is a key, and every key does something.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use tandem_data::DemoCorpus;
use tandem_flow::Random;

use crate::support::{Workplace, espeak, run, stderr, stdout, tandem};

/// What `--print-config` says with this file and these flags: value and origin of each key, by its path.
fn printed(work: &Workplace, file: &str, flags: &str) -> BTreeMap<String, (String, String)> {
    tried(work, file, flags).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Each key's value and where it comes from.
type Values = BTreeMap<String, (String, String)>;

fn tried(work: &Workplace, file: &str, flags: &str) -> Result<Values, String> {
    let path = work.path("config.yaml");
    fs::write(&path, file).expect("written");
    let output = tandem()
        .args(["train", "--config"])
        .arg(&path)
        .args(["--checkpoint-dir"])
        .arg(work.path("none"))
        .args(flags.split_whitespace())
        .arg("--print-config")
        .output()
        .expect("it starts");
    if !output.status.success() {
        return Err(stderr(&output));
    }
    assert!(!work.path("none").exists(), "nothing is begun");
    let (mut section, mut values) = (String::new(), BTreeMap::new());
    for line in stdout(&output).lines() {
        match line.strip_prefix("  ").and_then(|line| line.split_once(": ")) {
            None => section = line.trim_end_matches(':').to_owned(),
            Some((name, rest)) => {
                let (value, origin) = rest.split_once('#').expect("an origin");
                values.insert(format!("{section}.{name}"), (value.trim().to_owned(), origin.trim().to_owned()));
            }
        }
    }
    Ok(values)
}

/// The keys there are, by their path, with their schema.
fn schema() -> BTreeMap<String, Value> {
    let schema: Value = serde_json::from_str(&stdout(&run("config schema"))).expect("JSON");
    let sections = schema["properties"].as_object().expect("sections");
    let keys = sections.iter().flat_map(|(section, about)| {
        let names = about["properties"].as_object().expect("keys");
        names.iter().map(move |(name, about)| (format!("{section}.{name}"), about.clone()))
    });
    keys.collect()
}

fn as_yaml(path: &str, value: &str) -> String {
    let (section, name) = path.split_once('.').expect("a section");
    format!("{section}:\n  {name}: {value}\n")
}

/// A value that is not the default.
fn another(path: &str, about: &Value, work: &Workplace) -> String {
    let name = path.rsplit('.').next().expect("a name");
    match name {
        "train_data" => work.path("corpus").display().to_string(),
        "val_data" => work.path("other").display().to_string(),
        "checkpoint_dir" | "tensorboard_log_dir" => work.path("elsewhere").display().to_string(),
        "trace" => work.path("trace.json").display().to_string(),
        "language" => "fa".to_owned(),
        "lexicon" => work.path("lexicon.txt").display().to_string(),
        "audio_folder" => "sound".to_owned(),
        "format" => "ljspeech".to_owned(),
        "schedule" => "noam".to_owned(),
        "resume" => "last".to_owned(),
        "metrics" => "0".to_owned(),
        "data_gpu" | "model_gpu" => "cpu".to_owned(),
        "simulate_devices" => "2".to_owned(),
        "model_size" => "smoke".to_owned(),
        "lr" => "1e-4".to_owned(),
        "ema_decay" => "0.5".to_owned(),
        "freeze" => "aligner, duration".to_owned(),
        "data_gpu_memory" | "model_gpu_memory" => "1GB".to_owned(),
        "stall_timeout" | "model_start_delay" => "3s".to_owned(),
        "sample_rate" => "16000".to_owned(),
        "fmax" => "7000".to_owned(),
        "loudness" => "-23".to_owned(),
        "max_mel_frames" | "max_text_length" => "5000".to_owned(),
        "n_fft" | "win_length" => "512".to_owned(),
        "hop_length" => "200".to_owned(),
        _ => match (about["type"].as_str(), about["enum"].as_array()) {
            (Some("boolean"), _) => (about["default"] != true).to_string(),
            (_, Some(values)) => {
                let default = about["default"].as_str().unwrap_or_default();
                let other = values.iter().filter_map(Value::as_str).rfind(|value| *value != default);
                other.expect("another value").to_owned()
            }
            _ => "7".to_owned(),
        },
    }
}

/// What a key needs besides, so that it is allowed.
fn besides(path: &str) -> &'static str {
    match path.rsplit('.').next().expect("a name") {
        "data_gpu" => "--model-gpu 0 --simulate-devices 2",
        "model_gpu" => "--data-gpu 0 --simulate-devices 2 --allow-fallback",
        "data_gpu_memory" | "model_gpu_memory" => "--enable-memory-isolation",
        "backend" | "mixed_precision" | "features_on" => "--allow-fallback",
        "lexicon" => "--units phonemes",
        "for" | "adversarial" => "--part vocoder",
        _ => "",
    }
}

#[test]
fn every_key_is_read_and_does_something() {
    let work = Workplace::new(12, 1);
    DemoCorpus { clips: 6, speakers: 1, seed: 9 }.write(&work.path("other")).expect("written");
    fs::write(work.path("lexicon.txt"), "banana bənˈænə\n").expect("written");
    let (wavs, sound) = (work.path("corpus/wavs"), work.path("corpus/sound"));
    fs::create_dir(&sound).expect("a folder");
    for file in fs::read_dir(&wavs).expect("clips").flatten() {
        fs::copy(file.path(), sound.join(file.file_name())).expect("copied");
    }
    let keys = schema();
    assert!(keys.len() > 45, "{}", keys.len());
    let data = format!("--train-data {}", work.path("corpus").display());
    let mut without_effect = Vec::new();
    for (path, about) in &keys {
        let name = path.rsplit('.').next().expect("a name");
        // These depend on devices, speakers or another run, or do something at once; they have tests of their own.
        const ELSEWHERE: [&str; 10] = [
            "alignments",
            "backend",
            "checkpoint_dir",
            "data_gpu",
            "metrics",
            "mixed_precision",
            "model_gpu",
            "resume",
            "speakers",
            "tensorboard_log_dir",
        ];
        // Without espeak-ng there is nothing but characters, and no lexicon.
        if ELSEWHERE.contains(&name) || (["units", "lexicon"].contains(&name) && espeak().is_none()) {
            continue;
        }
        let data = if name == "train_data" { "" } else { data.as_str() };
        let flags = format!("{data} {}", besides(path));
        let before = if name == "train_data" { BTreeMap::new() } else { printed(&work, "", &flags) };
        let after = match tried(&work, &as_yaml(path, &another(path, about, &work)), &flags) {
            Ok(after) => after,
            Err(error) => {
                without_effect.push(format!("{path}: {error}"));
                continue;
            }
        };
        let (value, origin) = &after[path];
        if !origin.contains("config.yaml:2") || before.get(path).is_some_and(|(before, _)| before == value) {
            without_effect.push(format!("{path}: {value} # {origin}"));
        }
    }
    assert!(without_effect.is_empty(), "{without_effect:#?}");
}

/// Flag over file over preset over default.
#[test]
fn what_is_typed_wins_then_the_file_then_the_preset() {
    let work = Workplace::new(12, 1);
    let data = format!("--train-data {}", work.path("corpus").display());
    let lr = |file: &str, flags: &str| printed(&work, file, &format!("{data} {flags}"))["learning.lr"].clone();
    let default = lr("", "");
    let preset = lr("", "--optimization-level plateau_breaker");
    assert_ne!(default.0, preset.0, "a preset changes it");
    let from_file = lr("learning:\n  lr: 1e-4\n  optimization_level: plateau_breaker\n", "");
    assert_eq!((from_file.0.as_str(), from_file.1.ends_with("config.yaml:2")), ("0.0001", true), "1e-4 is a number");
    let typed = lr("learning:\n  lr: 1e-4\n", "--lr 0.5");
    assert_eq!(typed, ("0.5".to_owned(), "flag".to_owned()));
    // What is printed can be read again.
    let again = |values: &Values| {
        let lines = values.iter().map(|(path, (value, _))| as_yaml(path, value));
        let mut sections: BTreeMap<String, String> = BTreeMap::new();
        for line in lines {
            let (section, rest) = line.split_once(":\n").expect("a section");
            *sections.entry(section.to_owned()).or_default() += rest;
        }
        sections.iter().map(|(section, keys)| format!("{section}:\n{keys}")).collect::<String>()
    };
    let first = printed(&work, "learning:\n  lr: 1e-4\n", &data);
    let second = printed(&work, &again(&first), "");
    for (path, (value, _)) in &first {
        assert_eq!(value, &second[path].0, "{path}");
    }
    // A switch of the file can be typed away.
    let file = "pipeline:\n  enable_static_shapes: true\n";
    let shapes = printed(&work, file, &format!("{data} --disable-static-shapes"));
    assert_eq!(shapes["pipeline.enable_static_shapes"].0, "false", "{:?}", shapes["pipeline.enable_static_shapes"]);
}

#[test]
fn a_file_that_is_not_right_is_named_with_its_line() {
    let work = Workplace::new(12, 1);
    let path = work.path("bad.yaml");
    let check = |text: &str| {
        fs::write(&path, text).expect("written");
        run(&format!("config check {}", path.display()))
    };
    for (text, words) in [
        ("learning:\n  batchsize: 8\n", "line 2: there is no key `learning.batchsize`"),
        ("learning:\n  batch_size: many\n", "line 2: invalid value 'many' for '--batch-size"),
        ("learning:\n  batch_size: [1, 2]\n", "line 2: `learning.batch_size` is not a single value"),
        ("pipeline:\n  enable_static_shapes: 7\n", "is true or false, not `7`"),
        ("- a\n- b\n", "line 1: KEY: VALUE is expected here"),
        ("learning: {batch_size: 8\n", "bad.yaml, line"),
    ] {
        let output = check(text);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(stderr(&output).contains(words), "{text}: {}", stderr(&output));
    }
    assert!(stderr(&check("learning:\n  batchsize: 8\n")).contains("did you mean `learning.batch_size`?"));
    let missing = run("train --config /nowhere/config.yaml");
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("/nowhere/config.yaml: cannot be read"), "{}", stderr(&missing));
}

#[test]
fn keys_of_the_earlier_system_are_read_or_explained() {
    let work = Workplace::new(12, 1);
    let path = work.path("earlier.yaml");
    let text = "data:\n  batch_size: 4\n  num_workers: 1\n  prefetch_buffer_size: 3\n  prefetch_to_gpu: true\n  \
                enable_caching: false\n  use_tf_native_loading: true\n  enable_parallel_batch: true\n  \
                enable_map_fusion: true\n  pipeline_buffer_size: 9\n  model_start_delay: 1.5\nmodel:\n  \
                enable_gradient_checkpointing: true\n";
    fs::write(&path, text).expect("written");
    let output = run(&format!("config check {}", path.display()));
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    for words in ["`data.batch_size` is `learning.batch_size` here", "`data.prefetch_to_gpu` does nothing here"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let values = printed(&work, text, &format!("--train-data {}", work.path("corpus").display()));
    for (key, value) in [
        ("learning.batch_size", "4"),
        ("pipeline.num_workers", "1"),
        ("pipeline.prefetch_buffer_size", "3"),
        ("pipeline.buffer_size", "9"),
        ("pipeline.model_start_delay", "1.5"),
        ("pipeline.cache", "off"),
        ("model.enable_gradient_checkpointing", "true"),
    ] {
        assert!(values[key].0.eq_ignore_ascii_case(value), "{key}: {:?}", values[key]);
    }
    let explained = stdout(&run("config explain data.enable_map_fusion"));
    assert!(explained.contains("nothing to fuse"), "{explained}");
}

#[test]
fn a_new_file_is_good_and_keys_are_explained() {
    let work = Workplace::new(12, 1);
    let path = work.path("config.yaml");
    assert!(run(&format!("config init {}", path.display())).status.success());
    assert!(run(&format!("config check {}", path.display())).status.success());
    let again = run(&format!("config init {}", path.display()));
    assert_eq!(again.status.code(), Some(2), "it is not overwritten");
    // With every remark taken away that has a value, it is still good.
    let text = fs::read_to_string(&path).expect("a file");
    for key in schema().keys() {
        let name = key.rsplit('.').next().expect("a name");
        assert!(text.contains(&format!("  # {name}:")), "{key}");
    }
    assert!(stdout(&run("config explain batch_size")).contains("learning.batch_size (--batch-size N)"));
    let unknown = run("config explain bach_size");
    assert!(stderr(&unknown).contains("did you mean `learning.batch_size`?"), "{}", stderr(&unknown));
}

#[test]
fn completions_and_man_pages_are_made() {
    let work = Workplace::new(12, 1);
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = stdout(&run(&format!("completions {shell}")));
        assert!(script.contains("tandem") && script.contains("batch-size"), "{shell}");
    }
    let dir = work.path("man");
    assert!(run(&format!("man {}", dir.display())).status.success());
    let page = fs::read_to_string(dir.join("tandem-train.1")).expect("a page");
    assert!(page.contains("batch") && page.contains(".SH"), "a man page");
}

/// What `tandem train` would refuse, `tandem config check` refuses too, and before a corpus is read.
#[test]
fn limits_without_isolation_are_refused_before_anything_is_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("config.yaml");
    std::fs::write(&file, "devices:\n  model_gpu_memory: 4GB\n").expect("written");
    let check = run(&format!("config check {}", file.display()));
    let train = run(&format!("train --train-data /nowhere --config {}", file.display()));
    for output in [check, train] {
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("--enable-memory-isolation"), "{}", stderr(&output));
    }
    std::fs::write(&file, "devices:\n  model_gpu_memory: 4GB\n  enable_memory_isolation: true\n").expect("written");
    assert!(run(&format!("config check {}", file.display())).status.success());
}

/// What a frame is belongs to the run; switches can be turned off.
#[test]
fn features_are_kept_in_a_run_and_switches_can_be_turned_off() {
    let work = Workplace::new(12, 1);
    let first =
        "--batch-size 4 --max-steps 1 --sample-rate 16000 --n-mels 40 --fmax 7000 --enable-gradient-checkpointing";
    work.trained("run", first);
    work.trained("run", "--max-steps 2");
    work.trained("run", "--max-steps 3 --sample-rate 16000 --disable-gradient-checkpointing");
    let manifest: Value =
        serde_json::from_slice(&fs::read(work.path("run/manifest.json")).expect("a manifest")).expect("JSON");
    let at = |start: usize, name: &str| {
        let settings = manifest["starts"][start]["settings"].as_array().expect("settings");
        let found = settings.iter().find(|one| one["name"] == name).expect("it is listed");
        (found["value"].clone(), found["source"].clone())
    };
    assert_eq!(at(1, "--sample-rate"), ("16000".into(), "the resumed run".into()));
    assert_eq!(at(1, "--enable-gradient-checkpointing"), ("true".into(), "the resumed run".into()));
    assert_eq!(at(2, "--sample-rate"), ("16000".into(), "flag".into()));
    assert_eq!(at(2, "--enable-gradient-checkpointing"), ("false".into(), "flag".into()));
    let output = work.train("run", "--max-steps 4 --sample-rate 22050");
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("--sample-rate: 22050 here, 16000 in the checkpoint"), "{text}");
    assert!(text.contains("--reset-training"), "{text}");
}

/// A file of settings may be anything: it is read, or refused with exit code 2. `TANDEM_MUTATIONS` says how many are tried.
#[test]
fn no_config_file_crashes_the_program() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("config.yaml");
    let init = run(&format!("config init {}", path.display()));
    assert!(init.status.success(), "{}", stderr(&init));
    let valid = fs::read(&path).expect("written");
    let tried: usize = std::env::var("TANDEM_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    let bomb: String =
        ('b'..='j').map(|c| format!("{c}: &{c} [{}]\n", format!("*{},", (c as u8 - 1) as char).repeat(9))).collect();
    let mut files = vec![format!("a: &a [x,x,x,x]\n{bomb}").into_bytes(), b"[".repeat(50_000), b"{a: ".repeat(50_000)];
    let pieces =
        [": ", "- ", "[", "{", "'", "\"", "&a ", "*a", "\t", "\n", "!!int ", "99999999999999999999", "\u{0}", "%"];
    for number in 0..tried {
        let (mut random, mut bytes) = (Random::at(&[11, number as u64]), valid.clone());
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len() + 1);
            match random.below(4) {
                0 => bytes.truncate(at),
                1 if at < bytes.len() => bytes[at] = random.below(256) as u8,
                2 => bytes.splice(at..at, pieces[random.below(pieces.len())].bytes()).for_each(drop),
                // A key that is only a comment in the file becomes one.
                _ => bytes = String::from_utf8_lossy(&bytes).replacen("# ", "", 1 + random.below(9)).into_bytes(),
            }
        }
        files.push(bytes);
    }
    for (number, bytes) in files.iter().enumerate() {
        fs::write(&path, bytes).expect("written");
        let output = run(&format!("config check {}", path.display()));
        let text = stderr(&output);
        assert!(matches!(output.status.code(), Some(0 | 2)) && !text.contains("panicked"), "file {number}: {text}");
        assert!(output.status.success() || text.contains("config.yaml"), "file {number}: {text}");
    }
}

/// The fuzzer begins with valid files: seeds that are refused would leave it at the door.
#[test]
fn seeds_of_the_fuzzer_are_good() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/config");
    for name in ["all.yaml", "some.yaml"] {
        let output = run(&format!("config check {}", seeds.join(name).display()));
        assert!(output.status.success(), "{}", stderr(&output));
    }
}
