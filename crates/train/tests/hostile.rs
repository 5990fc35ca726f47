//! Checkpoints whose checksums are right and whose content is not: made by another program, or to do harm. Each is an error
//! or a voice, never a panic, and never takes much more memory than the file.
//!
//! `TANDEM_MUTATIONS` says how many are tried; the seed is fixed, so that what fails fails again.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tandem_audio::{MelSettings, MelStats};
use tandem_flow::Random;
use tandem_model::{Device, ModelConfig, Size, Voice, weights};
use tandem_train::checkpoint::{self, CursorState, FORMAT};
use tandem_train::task::PartConfig;
use tandem_train::{Checkpoint, Checkpoints, DataIdentity, State, TrainConfig};
use xxhash_rust::xxh3::xxh3_128;

fn mutations() -> usize {
    std::env::var("TANDEM_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(400)
}

/// A voice as small as can be.
fn small() -> Checkpoint {
    let mut model = ModelConfig::new(Size::Smoke, 5, 8, true);
    (model.text.width, model.text.blocks, model.text.convolutions) = (8, 1, 1);
    (model.speaker.width, model.speaker.latents, model.duration_width) = (8, 2, 8);
    (model.decoder.width, model.decoder.hidden, model.decoder.blocks, model.decoder.mean_blocks) = (8, 8, 1, 1);
    let voice = weights::export(&Voice::new(&model, 1, &Device::flex()));
    Checkpoint {
        state: State {
            format: FORMAT,
            version: "0".to_owned(),
            step: 1,
            next: CursorState { epoch: 0, batch: 1 },
            seconds: 1.0,
            audio_seconds: 1.0,
            clips: 4,
            best: Some((1.0, 1)),
            validations_without_progress: 0,
            loss_scale: Some([2.0, 1.0]),
            micro_batches: 1,
            settings: TrainConfig::default(),
            mel: MelSettings { n_mels: model.n_mels, ..MelSettings::default() },
            stats: MelStats { mean: vec![0.0; model.n_mels], std: vec![1.0; model.n_mels] },
            model: PartConfig::Acoustic(model),
            frontend: tandem_text::Frontend::default(),
            data: DataIdentity {
                dir: "x".to_owned(),
                validation_dir: None,
                audio_dir: "wavs".to_owned(),
                clips: 4,
                validation_clips: 1,
                speakers: 1,
                hash: "0".to_owned(),
            },
            predictor: None,
        },
        weights: voice.clone(),
        ema: voice,
        optimizer: BTreeMap::new(),
    }
}

/// Puts bytes in the place of a file, with the checksum that belongs to them.
fn replace(dir: &Path, name: &str, bytes: &[u8]) {
    fs::write(dir.join(name), bytes).expect("written");
    let path = dir.join("checksums.json");
    let mut sums: BTreeMap<String, String> = serde_json::from_slice(&fs::read(&path).expect("there")).expect("JSON");
    sums.insert(name.to_owned(), format!("{:032x}", xxh3_128(bytes)));
    fs::write(path, serde_json::to_vec(&sums).expect("plain data")).expect("written");
}

/// Everything that reads a checkpoint. What comes of it does not matter.
fn look(dir: &Path) -> bool {
    let whole = checkpoint::read(dir).is_ok() && checkpoint::read_state(dir).is_ok();
    whole & checkpoint::open_voice(dir, &Device::flex()).is_ok()
}

/// Every value below this one that is no list and no object.
fn leaves<'a>(value: &'a mut Value, found: &mut Vec<&'a mut Value>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| leaves(item, found)),
        Value::Object(fields) => fields.iter_mut().for_each(|(_, item)| leaves(item, found)),
        _ => found.push(value),
    }
}

fn hostile(random: &mut Random) -> Value {
    let values = [
        json!(null),
        json!(0),
        json!(1),
        json!(2),
        json!(3),
        json!(-1),
        json!(65_537),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1e308),
        json!(-0.5),
        json!(true),
        json!(""),
        json!("\u{0}"),
        json!("x".repeat(10_000)),
        json!([]),
        json!({}),
        json!([[[[]]]]),
    ];
    values[random.below(values.len())].clone()
}

/// Some bytes of it changed, cut out, doubled or cut off.
fn mutate(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut new = bytes.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(new.len().max(1));
        match random.below(6) {
            0 => new.truncate(at),
            1 => new.splice(at.min(new.len())..at.min(new.len()), [0xFF; 9]).for_each(drop),
            2 if at + 8 <= new.len() => new[at..at + 8].copy_from_slice(&random.next().to_le_bytes()),
            3 if at < 4096.min(new.len()) => new[at] = b"0123456789[]{},:\"-"[random.below(18)],
            4 => {
                let end = (at + random.below(64)).min(new.len());
                let some = new[at.min(end)..end].to_vec();
                new.splice(end..end, some).for_each(drop);
            }
            _ if at < new.len() => new[at] ^= 1 << random.below(8),
            _ => {}
        }
    }
    new
}

#[test]
fn no_state_and_no_tensors_crash_what_reads_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = Checkpoints::new(dir.path().join("checkpoints")).write(&small()).expect("written");
    assert!(look(&path), "as it is, it is a voice");
    let names = ["state.json", "model.safetensors", "ema.safetensors", "optimizer.safetensors"];
    let files = names.map(|name| fs::read(path.join(name)).expect("there"));
    let (mut voices, mut errors) = (0, 0);
    for number in 0..mutations() {
        let mut random = Random::at(&[7, number as u64]);
        let file = random.below(files.len());
        let bytes = if file == 0 && random.below(4) > 0 {
            let mut state: Value = serde_json::from_slice(&files[0]).expect("JSON");
            for _ in 0..=random.below(2) {
                let mut found = Vec::new();
                leaves(&mut state, &mut found);
                let at = random.below(found.len());
                *found.swap_remove(at) = hostile(&mut random);
            }
            serde_json::to_vec(&state).expect("plain data")
        } else {
            mutate(&files[file], &mut random)
        };
        replace(&path, names[file], &bytes);
        println!("mutation {number} of {}", names[file]);
        if look(&path) {
            voices += 1
        } else {
            errors += 1
        }
        replace(&path, names[file], &files[file]);
    }
    assert!(voices > 0 && errors > 0, "{voices} {errors}: nothing was tried");
}

/// The fuzzer begins with valid files: seeds that are refused would leave it at the door.
#[test]
fn seeds_of_the_fuzzer_are_checkpoints() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = Checkpoints::new(folder.path().to_owned()).write(&small()).expect("written");
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/checkpoint");
    for (name, vocoder) in [("acoustic.json", false), ("vocoder.json", true)] {
        replace(&dir, "state.json", &fs::read(seeds.join(name)).expect("a seed"));
        let state = checkpoint::read_state(&dir).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(state.model.vocoder().is_some(), vocoder, "{name}");
    }
    let tensors = weights::from_bytes(&fs::read(seeds.join("tensors.safetensors")).expect("a seed")).expect("tensors");
    assert_eq!(tensors.len(), 2);
}

/// An infinite number cannot be written again: the next checkpoint of such a run could not be read.
#[test]
fn a_number_that_is_too_large_for_its_type_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = Checkpoints::new(folder.path().to_owned()).write(&small()).expect("written");
    let state: Value = serde_json::from_slice(&fs::read(dir.join("state.json")).expect("there")).expect("JSON");
    for (place, value) in [("/stats/mean/0", json!(1e39)), ("/best/0", json!(-1e300)), ("/loss_scale/0", json!(1e200))]
    {
        let mut changed = state.clone();
        *changed.pointer_mut(place).expect(place) = value;
        replace(&dir, "state.json", &serde_json::to_vec(&changed).expect("plain data"));
        let error = checkpoint::read_state(&dir).expect_err(place).to_string();
        assert!(error.contains("is damaged: state.json: a number that is too large"), "{place}: {error}");
    }
}
