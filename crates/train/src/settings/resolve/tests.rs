//! Precedence, resume, limits and fallbacks, as tables.

use tandem_audio::Processing;
use tandem_device::{Inventory, Lanes, Request, Selector, WrongResult};

use super::*;

fn cpu() -> Facts {
    Facts { cores: 8, ..Facts::new(400, &Lanes::cpu().placement) }
}

/// Two simulated GPUs of so many GB.
fn two_gpus(gigabytes: u64) -> Facts {
    let inventory = Inventory::simulated(format!("2x{gigabytes}GB").parse().expect("a simulation"));
    let request = Request { data: Some(Selector::Index(0)), model: Some(Selector::Index(1)), ..Request::default() };
    let placement = tandem_device::resolve(&request, &inventory.gpus, &inventory.cpu).expect("two GPUs");
    Facts { placement, ..cpu() }
}

/// `flag=text` words, separated by spaces; a word `file:flag=text` is given in a file.
fn requested(words: &str) -> Requested {
    let mut requested = Requested::new();
    for word in words.split_whitespace() {
        let (name, text) = word.split_once('=').unwrap_or((word, "true"));
        let (name, source) = name.strip_prefix("file:").map_or((name, "flag"), |name| (name, "config.yaml:2"));
        requested.set(name, text, source).expect(word);
    }
    requested
}

fn one(resolved: &[ResolvedSetting], name: &str) -> (String, String) {
    let found = resolved.iter().find(|one| one.name == format!("--{name}"));
    found.map(|one| (one.value.clone(), one.source.clone())).unwrap_or_else(|| panic!("{name} is listed"))
}

/// Flag over file (the last that was given), over preset, over default; the run between file and preset.
#[test]
fn flag_over_file_over_run_over_preset_over_default() {
    let run = resolve(&requested("lr=5e-4 buffer-size=9 max-steps=7"), None, &cpu()).expect("settings").0;
    let was = Some(&run);
    for (words, saved, name, value, source) in [
        ("", None, "lr", "0.001", "preset Basic"),
        ("optimization-level=plateau_breaker", None, "lr", "0.002", "preset PlateauBreaker"),
        ("file:lr=1e-4 optimization-level=plateau_breaker", None, "lr", "0.0001", "config.yaml:2"),
        ("file:lr=1e-4 lr=0.5", None, "lr", "0.5", "flag"),
        ("", was, "lr", "0.0005", RESUMED),
        ("optimization-level=enhanced", was, "max-grad-norm", "0.5", "preset Enhanced"),
        ("optimization-level=enhanced", was, "lr", "0.001", "preset Enhanced"),
        ("optimization-level=enhanced lr=3", was, "lr", "3.0", "flag"),
        ("clip=3", None, "max-grad-norm", "3.0", "flag"),
        ("", None, "buffer-size", "50", "default"),
        ("", was, "buffer-size", "9", RESUMED),
        ("buffer-size=3", was, "buffer-size", "3", "flag"),
        ("", None, "max-steps", "none", "default: all epochs"),
        ("", was, "max-steps", "none", "default: all epochs"),
        ("", None, "num-workers", "4", "8 cores"),
        ("", None, "schedule", "exponential", "preset Basic"),
        ("schedule=cosine:500:1", None, "schedule", "cosine:500:1", "flag"),
        ("max-steps=500", None, "lr", "0.002", "preset Basic"),
        ("max-steps=500", None, "schedule", "cosine:401:1", "preset Basic"),
        ("max-steps=500 model-size=big", None, "lr", "0.0006", "preset Basic"),
        ("max-steps=500 part=vocoder", None, "lr", "0.001", "preset Basic"),
        ("max-steps=500", was, "schedule", "cosine:1:1", RESUMED),
        ("autotune", None, "autotune", "true", "flag"),
        ("no-autotune", None, "autotune", "false", "flag"),
        ("batch-size=32", None, "prefetch-buffer-size", "2", "default"),
        ("", None, "validate-every", "100", "every epoch, but at least 100 steps"),
        ("batch-size=1", None, "validate-every", "400", "every epoch, but at least 100 steps"),
        ("n-fft=512", None, "win-length", "512", "default"),
    ] {
        let (_, resolved) = resolve(&requested(words), saved, &cpu()).expect(words);
        assert_eq!(one(&resolved, name), (value.to_owned(), source.to_owned()), "{words}: {name}");
    }
}

/// What decides what is learned is kept, need not be given again, and must match when it is.
#[test]
fn what_is_learned_is_that_of_the_resumed_run() {
    let first = "batch-size=4 grad-accum=2 sample-rate=16000 n-mels=40 fmax=7000 audio-folder=sound seed=3 \
                 max-mel-frames=900 model-size=smoke trim-silence loudness=-23";
    let (run, _) = resolve(&requested(first), None, &cpu()).expect("settings");
    assert_eq!((run.data.batch_size, run.data.mel.sample_rate, run.data.mel.n_mels), (8, 16_000, 40));
    let (again, resolved) = resolve(&Requested::new(), Some(&run), &cpu()).expect("nothing is given again");
    assert_eq!(again, run);
    assert_eq!(one(&resolved, "sample-rate"), ("16000".to_owned(), RESUMED.to_owned()));
    let corpus = resolve_corpus(&Requested::new(), Some(&run)).expect("nothing is given again");
    assert_eq!((corpus.mel.sample_rate, corpus.audio_dir.as_str()), (16_000, "sound"));
    assert_eq!(corpus.processing, Processing { trim_silence: true, loudness_db: Some(-23.0) });
    // The same batch in other micro-batches.
    let (parts, resolved) = resolve(&requested("grad-accum=4"), Some(&run), &cpu()).expect("the same batch");
    assert_eq!((parts.data.batch_size, parts.optimizer.grad_accum), (8, 4));
    assert_eq!(one(&resolved, "batch-size").0, "2");
    for (words, line) in [
        ("sample-rate=22050", "--sample-rate: 22050 here, 16000 in the checkpoint"),
        ("fmax=8000", "--fmax: 8000.0 here, 7000.0 in the checkpoint"),
        ("no-trim-silence", "--trim-silence: false here, true in the checkpoint"),
        ("loudness=-20", "--loudness: -20.0 here, -23.0 in the checkpoint"),
        ("loudness=off", "--loudness: off here, -23.0 in the checkpoint"),
        ("audio-folder=wavs", "--audio-folder: wavs here, sound in the checkpoint"),
        ("batch-size=5", "--batch-size x --grad-accum: 10 here, 8 in the checkpoint"),
        ("seed=4", "--seed: 4 here, 3 in the checkpoint"),
        ("max-text-length=7", "--max-text-length: 7 here, none in the checkpoint"),
        ("enable-static-shapes", "--enable-static-shapes: true here, false in the checkpoint"),
        ("model-size=tiny", "--model-size: tiny here, smoke in the checkpoint"),
    ] {
        let error = Err(SettingsError::Mismatch(vec![line.to_owned()]));
        assert_eq!(resolve(&requested(words), Some(&run), &cpu()).map(|_| ()), error, "{words}");
        assert_eq!(resolve_corpus(&requested(words), Some(&run)).map(|_| ()), error, "{words}, before a clip is read");
    }
    // The same values may be given again.
    assert_eq!(resolve(&requested(first), Some(&run), &cpu()).expect("the same").0, run);
}

/// A switch that a run had on can be turned off, and the other way round.
#[test]
fn switches_are_turned_off_on_resume() {
    type Field = fn(&TrainConfig) -> bool;
    let switches: [(&str, &str, Field); 4] = [
        ("enable-gradient-checkpointing", "disable-gradient-checkpointing", |c| c.model.gradient_checkpointing),
        ("mixed-precision", "no-mixed-precision", |c| c.model.mixed_precision),
        ("enable-memory-isolation", "disable-memory-isolation", |c| c.memory.isolated),
        ("autotune", "no-autotune", |c| c.pipeline.autotune),
    ];
    let facts = Facts { half_precision: HalfPrecision::Works, ..cpu() };
    for (on, off, field) in switches {
        let run = |words: &str, saved| resolve(&requested(words), saved, &facts).expect(words).0;
        let (with, without) = (run(on, None), run(off, None));
        assert_eq!((field(&with), field(&without)), (true, false), "{on}");
        assert_eq!((field(&run("", Some(&with))), field(&run("", Some(&without)))), (true, false), "{on} is kept");
        assert_eq!((field(&run(off, Some(&with))), field(&run(on, Some(&without)))), (false, true), "{on} is changed");
        assert!(!field(&run(&format!("{on}=false"), Some(&with))), "{on}: false, as in a file");
    }
}

#[test]
fn limits_of_the_lanes() {
    let facts = two_gpus(24);
    let (plain, resolved) = resolve(&Requested::new(), None, &facts).expect("settings");
    assert_eq!((plain.memory.data_limit, plain.memory.model_limit), (Some(24 << 30), Some(24 << 30)));
    assert!(!resolved.iter().any(|one| one.name == "--model-gpu-memory"), "no limits");
    let isolated = "enable-memory-isolation model-gpu-memory=4GB";
    let (run, _) = resolve(&requested(isolated), None, &facts).expect("settings");
    assert_eq!(run.memory.model_limit, Some(4 << 30));
    assert!(run.memory.data_limit.is_some_and(|limit| limit < 24 << 30), "by a rule");
    // Limits are those of the run until others are given, and as long as the device has so much.
    let (again, _) = resolve(&Requested::new(), Some(&run), &facts).expect("settings");
    assert_eq!(again.memory, run.memory);
    let (smaller, resolved) = resolve(&Requested::new(), Some(&run), &two_gpus(2)).expect("settings");
    assert!(smaller.memory.model_limit.is_some_and(|limit| limit <= 2 << 30), "{:?}", smaller.memory);
    assert_ne!(one(&resolved, "model-gpu-memory").1, RESUMED);
    let error = resolve(&requested("model-gpu-memory=4GB"), None, &facts).expect_err("without isolation");
    assert_eq!(error, SettingsError::NotIsolated);
    let (name, device) = ("--model-gpu-memory".to_owned(), "GPU 1".to_owned());
    let error = resolve(&requested(isolated), None, &two_gpus(2)).expect_err("too much");
    assert_eq!(error, SettingsError::TooMuchMemory { name, requested_mb: 4096, device, has_mb: 2048 });
    let allowed = requested(&format!("{isolated} allow-fallback"));
    let (config, resolved) = resolve(&allowed, None, &two_gpus(2)).expect("a fallback");
    assert_eq!(config.memory.model_limit, Some(2 << 30));
    let found = resolved.iter().find(|one| one.name == "--model-gpu-memory").expect("listed");
    assert!(found.is_fallback() && found.requested.as_deref() == Some("4096"), "{found:?}");
}

#[test]
fn half_precision_where_the_device_can() {
    let half = requested("mixed-precision");
    let off = WrongResult { operation: "half precision", error: 0.5 };
    for (half_precision, wrong) in
        [(HalfPrecision::Missing, None), (HalfPrecision::Wrong(off.clone()), Some(off.clone()))]
    {
        let facts = Facts { half_precision, ..cpu() };
        let error = resolve(&half, None, &facts).expect_err("it cannot");
        assert!(matches!(error, SettingsError::NoHalfPrecision { wrong: found, .. } if found == wrong));
        let (config, resolved) = resolve(&requested("mixed-precision allow-fallback"), None, &facts).expect("allowed");
        assert!(!config.model.mixed_precision && one(&resolved, "mixed-precision").1.starts_with(FALLBACK));
    }
    let facts = Facts { half_precision: HalfPrecision::Works, ..cpu() };
    assert!(resolve(&half, None, &facts).expect("it can").0.model.mixed_precision);
}

#[test]
fn wrong_settings_are_named() {
    let mut requested = Requested::new();
    assert_eq!(requested.set("speed", "2", "flag"), Err(SettingsError::Unknown("speed".to_owned())));
    let error = requested.set("buffer_size", "0", "flag").expect_err("too few");
    assert_eq!(error.to_string(), "invalid value `0` for `--buffer-size`: 0 is not in 1..=100000");
    let error = resolve_corpus(&Requested::new().with("fmin", "9000").expect("a number"), None);
    assert!(matches!(error, Err(SettingsError::Features(_))), "{error:?}");
}
