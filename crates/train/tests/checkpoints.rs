//! Checkpoints that are damaged in any way are found out, and never crash the program.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use tandem_audio::MelSettings;
use tandem_audio::MelStats;
use tandem_model::weights::{HostTensor, Tensors};
use tandem_model::{ModelConfig, Size};
use tandem_train::checkpoint::{self, CursorState, FORMAT};
use tandem_train::task::PartConfig;
use tandem_train::{Checkpoint, CheckpointError, Checkpoints, DataIdentity, State, TrainConfig};

fn checkpoint_of(step: u64) -> Checkpoint {
    let tensor = |n: usize| HostTensor { shape: vec![n], values: (0..n).map(|x| x as f32 + step as f32).collect() };
    let tensors = || Tensors::from([("a.weight".to_owned(), tensor(7)), ("b".to_owned(), tensor(3))]);
    Checkpoint {
        state: State {
            format: FORMAT,
            version: "0".to_owned(),
            step,
            next: CursorState { epoch: 1, batch: 2 },
            seconds: 0.1 + 0.2,
            audio_seconds: 1e-17,
            clips: 77,
            best: Some((1.0 / 3.0, 1)),
            validations_without_progress: 0,
            loss_scale: None,
            micro_batches: 1,
            settings: TrainConfig::default(),
            model: PartConfig::Acoustic(ModelConfig::new(Size::Smoke, 10, 80, true)),
            mel: MelSettings::default(),
            stats: MelStats { mean: vec![0.1; 80], std: vec![1.0 / 3.0; 80] },
            frontend: tandem_text::Frontend::default(),
            data: DataIdentity {
                dir: "x".to_owned(),
                validation_dir: None,
                audio_dir: "wavs".to_owned(),
                clips: 1,
                validation_clips: 1,
                speakers: 1,
                hash: "0".to_owned(),
            },
            predictor: None,
        },
        weights: tensors(),
        ema: tensors(),
        optimizer: tensors(),
    }
}

fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir).expect("a folder").flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

#[test]
fn what_is_written_is_read_back_to_the_bit() {
    let dir = tempfile::tempdir().expect("a folder");
    let checkpoints = Checkpoints::new(dir.path().join("checkpoints"));
    let written = checkpoint_of(5);
    checkpoints.write(&written).expect("written");
    let read = checkpoints.read(5).expect("whole");
    assert_eq!(read.state, written.state);
    assert_eq!((read.weights, read.ema, read.optimizer), (written.weights, written.ema, written.optimizer));
    // The same step again replaces it.
    checkpoints.write(&checkpoint_of(5)).expect("written");
    assert_eq!(checkpoints.steps(), [5]);
    // What a kill left behind does not count and is swept away.
    fs::create_dir(dir.path().join("checkpoints/.writing-x")).expect("made");
    assert_eq!(checkpoints.steps(), [5]);
    checkpoints.sweep();
    assert!(!dir.path().join("checkpoints/.writing-x").exists());
    assert!(matches!(checkpoints.read(6), Err(CheckpointError::None(_))));
}

#[test]
fn another_format_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let checkpoints = Checkpoints::new(dir.path().to_owned());
    let mut foreign = checkpoint_of(1);
    foreign.state.format = 99;
    checkpoints.write(&foreign).expect("written");
    let error = checkpoints.read(1).expect_err("another format").to_string();
    assert!(error.contains("format 99"), "{error}");
}

/// What the tree before format 3 wrote (commit aa99804): no averaged weights, the optimizer state under another name, a
/// flat `state.json` of format 1.
fn write_format_1(dir: &Path) {
    let state = r#"{"format": 1, "version": "0.1.0", "step": 4, "next": {"epoch": 0, "batch": 4}, "seconds": 1.0,
        "audio_seconds": 20.0, "best": null, "stale": 0, "parts": 1, "settings": {"size": "smoke", "batch_size": 4,
        "seed": 0, "rate": {"schedule": "constant"}, "clip": 1.0}, "vocabulary": "abc"}"#;
    let tensors = tandem_model::weights::to_bytes(&checkpoint_of(4).weights).expect("plain tensors");
    let files =
        [("model.safetensors", &tensors[..]), ("optimiser.safetensors", &tensors), ("state.json", state.as_bytes())];
    fs::create_dir_all(dir).expect("made");
    let sums = files.map(|(name, bytes)| {
        fs::write(dir.join(name), bytes).expect("written");
        format!("\"{name}\": \"{:032x}\"", xxhash_rust::xxh3::xxh3_128(bytes))
    });
    fs::write(dir.join("checksums.json"), format!("{{{}}}", sums.join(", "))).expect("written");
}

#[test]
fn a_run_of_format_1_is_refused_with_one_sentence_that_says_what_to_do() {
    let dir = tempfile::tempdir().expect("a folder");
    let checkpoints = Checkpoints::new(dir.path().join("checkpoints"));
    let path = checkpoints.path(4);
    write_format_1(&path);
    assert_eq!(checkpoints.steps(), [4]);
    let before: Vec<Vec<u8>> = files(&path).iter().map(|file| fs::read(file).expect("readable")).collect();
    let sentence = format!(
        "{} has format 1, this version of Tandem reads format {FORMAT}: train from scratch, or use the version that wrote it",
        path.display()
    );
    for error in [
        checkpoint::read(&path).map(|_| ()),
        checkpoint::read_state(&path).map(|_| ()),
        checkpoint::read_averaged(&path).map(|_| ()),
    ] {
        let error = error.expect_err("another format");
        assert!(matches!(&error, CheckpointError::Format(_, Some(1))), "{error:?}");
        assert_eq!(error.to_string(), sentence);
    }
    let after: Vec<Vec<u8>> = files(&path).iter().map(|file| fs::read(file).expect("readable")).collect();
    assert_eq!(before, after, "it stays as it was");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn any_damage_is_found_out(file in 0usize..4, place in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<bool>()) {
        let dir = tempfile::tempdir().expect("a folder");
        let checkpoints = Checkpoints::new(dir.path().to_owned());
        let path = checkpoints.write(&checkpoint_of(3)).expect("written");
        let victim = &files(&path)[file];
        let mut bytes = fs::read(victim).expect("readable");
        let at = place.index(bytes.len());
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << bit;
        }
        fs::write(victim, &bytes).expect("writable");
        let read = checkpoint::read(&path);
        // Blanks in the list of checksums may change; nothing that matters then has.
        if let Ok(read) = read {
            prop_assert_eq!(read.state, checkpoint_of(3).state);
            prop_assert_eq!(read.weights, checkpoint_of(3).weights);
            prop_assert!(victim.ends_with("checksums.json"));
        }
    }
}
