//! Alignments that are exported from one voice and imported into the training of another.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use tandem_audio::Processing;
use tandem_data::{Alignment, Corpus, CorpusSettings, DemoCorpus, text_grid_path};
use tandem_model::{Device, InputShape, ModelConfig, Size, Totals, Voice};
use tandem_train::{Data, DataError, TrainConfig, each_validation_batch, measure_mel_stats};

const SETTINGS: fn() -> TrainConfig = TrainConfig::default;

fn data(dir: &Path, trim_silence: bool) -> Data {
    let processing = Processing { trim_silence, ..Processing::default() };
    let corpus = Corpus::open(dir, CorpusSettings { processing, ..CorpusSettings::default() }).expect("a corpus");
    let corpus = Arc::new(corpus);
    // All clips on both sides, as `tandem align` reads them.
    Data::new(corpus.clone(), Some(corpus)).expect("clips")
}

/// The durations that a voice is trained with, by clip; and whether all of a batch's rows together give those of its parts.
fn durations_used(data: &Data, seed: u64) -> HashMap<u32, Vec<u32>> {
    let (corpus, device) = (&data.validation, Device::flex());
    let loader = tandem_data::Loader::new(
        corpus.clone(),
        data.validation_clips.clone(),
        tandem_data::LoadSettings::default(),
        corpus.cache(tandem_data::CacheMode::Off, 0),
    );
    let stats = measure_mel_stats(&loader.expect("valid settings")).expect("clips");
    let config = ModelConfig::new(Size::Smoke, corpus.frontend().vocabulary.size(), stats.mean.len(), false);
    let (voice, shape) = (Voice::new(&config, seed, &device), InputShape::new(&config));
    let mut used = HashMap::new();
    let group = config.decoder.group;
    for batch in each_validation_batch(data, &SETTINGS(), &stats, group, None).expect("batches") {
        let totals = Totals::new(&batch.inputs.mel_lengths, &batch.inputs.id_lengths);
        let rows = batch.inputs.rows;
        let inputs = batch.inputs.clone().upload(&shape, &device);
        let (_, durations) = voice.losses(&inputs, totals, 0.0, true);
        if rows > 1 {
            let part = |rows| voice.losses(&inputs.micro_batch(rows), totals, 0.0, true).1;
            assert_eq!([part(0..rows / 2), part(rows / 2..rows)].concat(), durations);
        }
        let cut = batch.inputs.rows(0..1).upload(&shape, &device);
        assert_eq!(voice.losses(&cut, totals, 0.0, false).1[0], durations[0]);
        used.extend(batch.clips.iter().copied().zip(durations));
    }
    used
}

fn export(data: &Data, durations: &HashMap<u32, Vec<u32>>, dir: &Path) {
    std::fs::create_dir_all(dir).expect("writable");
    for (&clip, durations) in durations {
        let corpus = &data.validation;
        let ids = corpus.token_ids(clip).expect("tokens");
        let symbols = corpus.frontend().vocabulary.decode(&ids);
        let times = corpus.frame_times(clip).expect("it is there");
        let grid = Alignment::new("text".to_owned(), symbols, durations, &times).to_text_grid();
        std::fs::write(text_grid_path(dir, &corpus.name(clip).0), grid).expect("writable");
    }
}

/// How many frames the boundaries of a trimmed clip are off, at most; what is beyond its ends has one frame for each token.
fn most_off(whole: &[u32], trimmed: &[u32], shift: i64) -> i64 {
    let (tokens, frames) = (trimmed.len() as i64, i64::from(trimmed.iter().sum::<u32>()));
    let mut at = (0i64, 0i64);
    let boundary = |(n, (&a, &b)): (i64, (&u32, &u32))| {
        at = (at.0 + i64::from(a), at.1 + i64::from(b));
        ((at.0 - shift).clamp(n + 1, frames - (tokens - 1 - n)) - at.1).abs()
    };
    (0..).zip(whole.iter().zip(trimmed)).map(boundary).max().unwrap_or(0)
}

#[test]
fn durations_of_another_voice_are_used_instead_of_a_search() {
    let work = tempfile::tempdir().expect("a folder");
    let (corpus, grids) = (work.path().join("corpus"), work.path().join("grids"));
    DemoCorpus { clips: 9, speakers: 1, seed: 3 }.write(&corpus).expect("written");
    let whole = data(&corpus, false);
    let exported = durations_used(&whole, 1);
    assert_ne!(durations_used(&whole, 2), exported, "another voice finds another alignment");
    export(&whole, &exported, &grids);
    // All of them: nothing is searched for.
    let imported = data(&corpus, false).with_alignments(&grids).expect("they fit");
    assert_eq!((imported.durations.len(), imported.validation_durations.len()), (9, 9));
    assert_eq!(durations_used(&imported, 2), exported);
    // Some of them: the others are searched for.
    for clip in [2, 5] {
        std::fs::remove_file(text_grid_path(&grids, &whole.validation.name(clip).0)).expect("it was there");
    }
    let (some, searched) = (data(&corpus, false).with_alignments(&grids).expect("they fit"), durations_used(&whole, 2));
    for (clip, durations) in durations_used(&some, 2) {
        let expected = if [2, 5].contains(&clip) { &searched[&clip] } else { &exported[&clip] };
        assert_eq!(&durations, expected, "clip {clip}");
    }
}

/// Times in a TextGrid are those of the recording, whatever is trimmed of it.
#[test]
fn alignments_of_whole_clips_fit_trimmed_ones_within_a_frame() {
    let work = tempfile::tempdir().expect("a folder");
    let (corpus, grids) = (work.path().join("corpus"), work.path().join("grids"));
    DemoCorpus { clips: 6, speakers: 1, seed: 3 }.write(&corpus).expect("written");
    let (whole, trimmed) = (data(&corpus, false), data(&corpus, true));
    let hop = f64::from(256) / 22_050.0;
    // Each letter as long as the others.
    let even = |&clip: &u32| {
        let size = whole.validation.sizes()[clip as usize];
        let durations = (0..size.tokens).map(|n| (n + 1) * size.frames / size.tokens - n * size.frames / size.tokens);
        (clip, durations.collect::<Vec<u32>>())
    };
    let exported: HashMap<u32, Vec<u32>> = whole.validation_clips.iter().map(even).collect();
    export(&whole, &exported, &grids);
    let imported = trimmed.clone().with_alignments(&grids).expect("they fit");
    let used = durations_used(&imported, 2);
    let mut shorter = 0;
    for (clip, durations) in &used {
        let entry = trimmed.validation.entry(*clip);
        let frames: u32 = durations.iter().sum();
        assert_eq!(frames, trimmed.validation.sizes()[*clip as usize].frames);
        shorter += exported[clip].iter().sum::<u32>() - frames;
        let shift = (f64::from(entry.start) / f64::from(entry.rate) / hop).round() as i64;
        let off = most_off(&exported[clip], durations, shift);
        assert!(off <= 1, "clip {clip}: {off} frames, {:?} {durations:?}", exported[clip]);
    }
    assert!(shorter > 0, "something was trimmed");
    // And back: exported from the trimmed corpus, imported into the whole one.
    let back = work.path().join("back");
    export(&trimmed, &used, &back);
    for (clip, durations) in durations_used(&whole.with_alignments(&back).expect("they fit"), 1) {
        let entry = trimmed.validation.entry(clip);
        let shift = (f64::from(entry.start) / f64::from(entry.rate) / hop).round() as i64;
        assert!(most_off(&durations, &used[&clip], shift) <= 1, "clip {clip}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let work = tempfile::tempdir().expect("a folder");
    let (corpus, grids) = (work.path().join("corpus"), work.path().join("grids"));
    DemoCorpus { clips: 6, speakers: 1, seed: 3 }.write(&corpus).expect("written");
    let whole = data(&corpus, false);
    let message = |dir: &Path| match data(&corpus, false).with_alignments(dir) {
        Err(error @ DataError::Alignments(_)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(message(&grids).starts_with("cannot read `"), "{}", message(&grids));
    std::fs::create_dir_all(&grids).expect("writable");
    assert!(message(&grids).contains("has no TextGrid of any clip"), "{}", message(&grids));
    export(&whole, &durations_used(&whole, 1), &grids);
    let path = text_grid_path(&grids, &whole.validation.name(3).0);
    let other = std::fs::read(text_grid_path(&grids, &whole.validation.name(4).0)).expect("written");
    std::fs::write(&path, other).expect("writable");
    let text = message(&grids);
    assert!(text.starts_with("1 of 6 alignments do not fit their clips; the first is `"), "{text}");
    assert!(text.contains(&path.display().to_string()) && text.contains("token"), "{text}");
}
