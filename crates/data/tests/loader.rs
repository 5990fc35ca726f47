//! P6, S6, M10: the same batches for any number of workers and any cache, exact resume, true lengths, bounded memory.

use std::path::Path;
use std::sync::Arc;

use tandem_audio::{Levels, LogMel, MelStats, PitchTracker, Processing, write_wav};
use tandem_data::{
    AudioBytes, Balance, Batch, CacheMode, ClipFault, Corpus, CorpusSettings, LoadSettings, Loader, PlanSettings,
    Record, Source, examine,
};
use tandem_flow::{Budget, Context, Cursor, Knob, Oversize, Place, Random};
use xxhash_rust::xxh3::xxh3_64;

fn sound(n: usize) -> Vec<f32> {
    let length = 6_000 + n * 1_709 % 20_000;
    (0..length).map(|at| ((at * (n + 3)) as f32 * 0.01).sin() * 0.3).collect()
}

fn corpus(dir: &Path, clips: usize) -> Arc<Corpus> {
    std::fs::create_dir_all(dir.join("wavs")).expect("writable");
    let mut rows = String::new();
    for n in 0..clips {
        let mut file = std::fs::File::create(dir.join(format!("wavs/c{n}.wav"))).expect("writable");
        write_wav(&sound(n), 22_050, &mut file).expect("writable");
        rows += &format!("c{n}|clip number {n} of the corpus\n");
    }
    std::fs::write(dir.join("metadata.csv"), rows).expect("writable");
    Arc::new(Corpus::open(dir, CorpusSettings::default()).expect("a corpus"))
}

fn loader(corpus: &Arc<Corpus>, mode: CacheMode, static_shapes: bool) -> Arc<Loader> {
    let plan = PlanSettings { batch_size: 5, seed: 11, static_shapes, ..PlanSettings::default() };
    let cache = corpus.cache(mode, 1 << 30);
    let settings = LoadSettings { plan, ..LoadSettings::default() };
    Loader::new(corpus.clone(), (0..corpus.len() as u32).collect(), settings, cache).expect("valid settings")
}

/// Everything in a batch as one number.
fn digest(batch: &Batch) -> u64 {
    let mut bytes = Vec::new();
    bytes.extend(batch.clips.iter().flat_map(|clip| clip.to_le_bytes()));
    bytes.extend(batch.ids.iter().flat_map(|id| id.to_le_bytes()));
    bytes.extend(batch.audio.iter().flat_map(|value| value.to_le_bytes()));
    bytes.extend(batch.id_lengths.iter().chain(&batch.mel_lengths).flat_map(|length| length.to_le_bytes()));
    xxh3_64(&bytes)
}

fn run(loader: &Arc<Loader>, start: Cursor, workers: usize, depth: usize, limit: usize) -> Vec<(Cursor, u64)> {
    let budget = Budget::new(Place::Host, limit, Oversize::Alone);
    let context = Context::default();
    let (workers, depth) = (Knob::fixed("workers", workers), Knob::fixed("depth", depth));
    let flow = loader.flow(&context, start, 3, &workers, &depth, &budget);
    let batches =
        flow.map(|item| item.expect("no clip is bad")).map(|item| (item.cursor, digest(&item.value))).collect();
    assert_eq!(budget.used_bytes(), 0);
    batches
}

#[test]
fn same_batches_for_any_workers_depth_memory_and_cache_and_exact_resume() {
    let dir = tempfile::tempdir().expect("a folder");
    let corpus = corpus(dir.path(), 23);
    let reference = run(&loader(&corpus, CacheMode::Off, false), Cursor::START, 0, 0, usize::MAX);
    assert_eq!(reference.len(), 3 * 5);
    for (workers, depth, limit) in [(1, 1, usize::MAX), (2, 3, 1), (7, 50, 3_000_000)] {
        for mode in [CacheMode::Off, CacheMode::Ram, CacheMode::Disk] {
            let loader = loader(&corpus, mode, false);
            assert_eq!(run(&loader, Cursor::START, workers, depth, limit), reference, "{workers} {depth} {mode:?}");
            for at in [1, 4, 5, 9, 14] {
                assert_eq!(run(&loader, reference[at].0, workers, depth, limit), reference[at..], "from {at}");
            }
        }
    }
}

#[test]
fn balanced_speakers_are_the_same_batches_for_any_workers_and_resume_exactly() {
    let dir = tempfile::tempdir().expect("a folder");
    corpus(dir.path(), 23);
    // A speaker of 20 clips and one of 3.
    let rows: String = (0..23).map(|n| format!("c{n}|{}\n", if n < 20 { "anna" } else { "ben" })).collect();
    std::fs::write(dir.path().join("speakers.csv"), rows).expect("writable");
    let corpus = Arc::new(Corpus::open(dir.path(), CorpusSettings::default()).expect("a corpus"));
    let balanced = |static_shapes: bool| {
        let plan = PlanSettings {
            batch_size: 5,
            seed: 11,
            static_shapes,
            balance: Balance::Speaker,
            ..PlanSettings::default()
        };
        let settings = LoadSettings { plan, ..LoadSettings::default() };
        Loader::new(corpus.clone(), (0..23).collect(), settings, corpus.cache(CacheMode::Ram, 1 << 30))
            .expect("valid settings")
    };
    for static_shapes in [false, true] {
        let loader = balanced(static_shapes);
        let reference = run(&loader, Cursor::START, 0, 0, usize::MAX);
        for epoch in 0..3 {
            let clips: Vec<u32> = loader.plan(epoch).into_iter().flat_map(|batch| batch.clips.to_vec()).collect();
            let of_ben = clips.iter().filter(|&&clip| clip >= 20).count();
            assert!(clips.len() == 23 && (11..=12).contains(&of_ben), "{of_ben} of {}", clips.len());
        }
        for (workers, depth) in [(1, 1), (7, 50)] {
            assert_eq!(run(&loader, Cursor::START, workers, depth, usize::MAX), reference, "{workers} {depth}");
            for at in [1, 4, reference.len() - 2] {
                let again = balanced(static_shapes);
                assert_eq!(run(&again, reference[at].0, workers, depth, usize::MAX), reference[at..], "from {at}");
            }
        }
    }
    assert_ne!(
        run(&balanced(false), Cursor::START, 0, 0, usize::MAX),
        run(&loader(&corpus, CacheMode::Off, false), Cursor::START, 0, 0, usize::MAX)
    );
}

#[test]
fn lengths_are_true_and_padding_is_zero() {
    let dir = tempfile::tempdir().expect("a folder");
    let corpus = corpus(dir.path(), 13);
    for static_shapes in [false, true] {
        let loader = loader(&corpus, CacheMode::Off, static_shapes);
        let mut log_mel = LogMel::new(&corpus.settings().mel).expect("valid");
        // Three times, so that buffers are used again with other content.
        for planned in (0..3).flat_map(|epoch| loader.plan(epoch)) {
            let batch = loader.load(&planned);
            assert_eq!(batch.audio.len(), batch.rows * batch.n_mels * batch.frames);
            for row in 0..batch.rows {
                let (frames, tokens) = (batch.mel_lengths[row], batch.id_lengths[row]);
                let ids = &batch.ids[row * batch.tokens..(row + 1) * batch.tokens];
                assert!(ids[..tokens].iter().all(|&id| id > 0) && ids[tokens..].iter().all(|&id| id == 0));
                let expected = batch.clips.get(row).map(|&clip| {
                    let quantised: Vec<f32> =
                        sound(clip as usize).iter().map(|x| (x * 32_767.0).round() / 32_768.0).collect();
                    log_mel.compute(&quantised)
                });
                assert_eq!(expected.as_ref().map_or(0, Vec::len), frames * batch.n_mels);
                for mel in 0..batch.n_mels {
                    let at = (row * batch.n_mels + mel) * batch.frames;
                    let values = &batch.audio[at..at + batch.frames];
                    if let Some(expected) = &expected {
                        assert_eq!(values[..frames], expected[mel * frames..(mel + 1) * frames]);
                    }
                    assert!(values[frames..].iter().all(|&value| value == 0.0));
                }
            }
        }
    }
}

#[test]
fn memory_is_bounded_by_the_budget_and_not_by_the_workers() {
    let dir = tempfile::tempdir().expect("a folder");
    let corpus = corpus(dir.path(), 60);
    let loader = loader(&corpus, CacheMode::Off, false);
    let largest = loader.plan(0).iter().map(|batch| loader.batch_bytes(batch)).max().expect("batches");
    for workers in [1, 2, 16, 64] {
        let budget = Budget::new(Place::Host, 3 * largest, Oversize::Alone);
        let flow = loader.flow(
            &Context::default(),
            Cursor::START,
            2,
            &Knob::fixed("workers", workers),
            &Knob::fixed("depth", 50),
            &budget,
        );
        assert!(flow.map(|item| item.expect("fine").value.clips.len()).sum::<usize>() == 120);
        assert!(budget.high_water_bytes() <= 3 * largest, "{workers}");
    }
}

#[test]
fn the_split_is_nine_to_one_and_does_not_change() {
    let (train, validation) = tandem_data::split(100, 1);
    assert_eq!((train.len(), validation.len()), (90, 10));
    assert_eq!(tandem_data::split(100, 1), (train.clone(), validation.clone()));
    assert_ne!(tandem_data::split(100, 2).1, validation);
    let mut all = [train, validation].concat();
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
    assert_eq!(tandem_data::split(1, 1), (vec![0], vec![0]));
}

/// SPEC M10: samples are kept as well as features, each under its own name; the second epoch decodes nothing.
#[test]
fn samples_are_cached_apart_from_features() {
    let dir = tempfile::tempdir().expect("a folder");
    let corpus = corpus(dir.path(), 9);
    let plan = PlanSettings { batch_size: 3, seed: 1, plain_order: true, ..PlanSettings::default() };
    let make = |as_signal: bool| {
        let cache = corpus.cache(CacheMode::Disk, 1 << 30);
        let settings = LoadSettings { plan: plan.clone(), as_signal, ..LoadSettings::default() };
        Loader::new(corpus.clone(), (0..corpus.len() as u32).collect(), settings, cache).expect("valid settings")
    };
    let epoch = |loader: &Loader| -> Vec<u64> { loader.plan(0).iter().map(|b| digest(&loader.load(b))).collect() };
    let (mels, signals) = (make(false), make(true));
    let first = (epoch(&mels), epoch(&signals));
    assert_ne!(first.0, first.1);
    assert_eq!((mels.counters().decoded, signals.counters().decoded), (9, 9), "neither takes the other's for its own");
    let (mels, signals) = (make(false), make(true));
    assert_eq!((epoch(&mels), epoch(&signals)), first);
    assert_eq!((mels.counters().decoded, signals.counters().decoded), (0, 0));
    // What a row says is what was recorded, mirrored at both ends as its frames need it.
    let mel = &corpus.settings().mel;
    let batch = signals.load(&signals.plan(0)[0]);
    let (stride, padding) = (batch.form.columns(batch.frames), mel.padding_samples());
    for (row, &clip) in batch.clips.iter().enumerate() {
        let kept = &batch.audio[row * stride + padding..][..2000];
        let recorded = sound(clip as usize);
        let off = kept.iter().zip(&recorded).map(|(a, b)| (a - b).abs()).max_by(f32::total_cmp);
        let off = off.expect("samples");
        assert!(off < 1e-4, "clip {clip}: {off}");
        assert_eq!(batch.audio[row * stride + padding - 7], batch.audio[row * stride + padding + 7], "a mirror");
    }
}

/// What is tried before a run is at least as large as anything that comes in it.
#[test]
fn the_largest_batch_bounds_those_of_every_epoch() {
    let dir = tempfile::tempdir().expect("a folder");
    let corpus = corpus(dir.path(), 23);
    for static_shapes in [false, true] {
        let loader = loader(&corpus, CacheMode::Off, static_shapes);
        let largest = loader.largest().expect("there are clips");
        for batch in (0..20).flat_map(|epoch| loader.plan(epoch)) {
            assert!(batch.rows <= largest.rows && batch.frames <= largest.frames && batch.tokens <= largest.tokens);
        }
        let longest = (0..23).max_by_key(|&clip| corpus.sizes()[clip as usize].frames).expect("a clip");
        assert!(largest.clips.contains(&longest), "the longest clip is in it");
        assert_eq!(largest.clips.len(), 5);
    }
}

#[test]
fn workers_write_what_the_device_takes() {
    let dir = tempfile::tempdir().expect("a folder");
    let corpus = corpus(dir.path(), 11);
    let n_mels = corpus.settings().mel.n_mels;
    let stats = MelStats {
        mean: (0..n_mels).map(|n| n as f32 * 0.1 - 5.0).collect(),
        std: (0..n_mels).map(|n| 1.0 + n as f32 * 0.01).collect(),
    };
    for mode in [CacheMode::Off, CacheMode::Ram, CacheMode::Disk] {
        let raw = loader(&corpus, mode, false);
        let plan = PlanSettings { batch_size: 5, seed: 11, ..PlanSettings::default() };
        let normalize = Some(Arc::new(stats.clone()));
        let settings = LoadSettings { plan, normalize, group: 2, noise: true, ..LoadSettings::default() };
        let normalized = raw.view((0..corpus.len() as u32).collect(), settings);
        for planned in raw.plan(0) {
            let (raw, made) = (raw.load(&planned), normalized.load(&planned));
            assert_eq!(made.frames, raw.frames.next_multiple_of(2));
            let size = made.frames * n_mels;
            let noise = made.noise.as_ref().expect("asked for");
            for row in 0..raw.rows {
                let mut wanted = vec![0.0; size];
                let from = &raw.audio[row * n_mels * raw.frames..(row + 1) * n_mels * raw.frames];
                stats.normalize(from, raw.frames, raw.mel_lengths[row], &mut wanted);
                assert_eq!(&made.audio[row * size..(row + 1) * size], &wanted[..], "{mode:?}");
                let own = raw.mel_lengths[row] * n_mels;
                let mut wanted = vec![0.0; size];
                Random::at(&[11, 0, u64::from(raw.clips[row]), 2]).fill_normal(&mut wanted[..own]);
                assert_eq!(&noise[row * size..(row + 1) * size], &wanted[..]);
            }
        }
        // One cache for both: what one view has stored, the other finds.
        let stats = raw.cache().stats();
        assert_eq!(stats.stored, if mode == CacheMode::Off { 0 } else { corpus.len() as u64 });
        assert_eq!(stats.hits, if mode == CacheMode::Off { 0 } else { corpus.len() as u64 });
    }
}

/// Also where only the mel is in the cache, or samples instead of mels.
#[test]
fn the_pitch_of_each_frame_comes_with_the_batch_and_is_tracked_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let corpus = corpus(dir.path(), 11);
    for (mode, as_signal) in [
        (CacheMode::Off, false),
        (CacheMode::Ram, false),
        (CacheMode::Disk, false),
        (CacheMode::Ram, true),
        (CacheMode::Disk, true),
    ] {
        let plan = PlanSettings { batch_size: 5, seed: 11, ..PlanSettings::default() };
        let settings = LoadSettings { plan, as_signal, ..LoadSettings::default() };
        let clips: Vec<u32> = (0..corpus.len() as u32).collect();
        let without = Loader::new(corpus.clone(), clips.clone(), settings.clone(), corpus.cache(mode, 1 << 30));
        let without = without.expect("valid settings");
        let with = without.view(clips, LoadSettings { pitch: true, ..settings });
        let load = |loader: &Arc<Loader>| without.plan(0).iter().map(|batch| loader.load(batch)).collect::<Vec<_>>();
        assert!(load(&without).iter().all(|batch| batch.pitch.is_none()));
        let first = load(&with);
        let decoded = without.counters().decoded;
        let again = load(&with);
        assert_eq!(without.counters().decoded - decoded, if mode == CacheMode::Off { 11 } else { 0 }, "{mode:?}");
        let mut voiced = 0;
        for (batch, again) in first.iter().zip(&again) {
            let pitch = batch.pitch.as_ref().expect("asked for");
            assert_eq!((pitch, &batch.audio[..]), (again.pitch.as_ref().expect("asked for"), &again.audio[..]));
            for (row, &clip) in batch.clips.iter().enumerate() {
                let (length, row) = (batch.mel_lengths[row], &pitch[row * batch.frames..(row + 1) * batch.frames]);
                // As it is in the file: 16 bits.
                let samples: Vec<f32> =
                    sound(clip as usize).iter().map(|x| (x * 32_767.0).round() / 32_768.0).collect();
                let wanted = PitchTracker::new(22_050, 256).track(&samples, length);
                let close = |(a, b): (&f32, &f32)| (a - b).abs() < 0.5;
                assert!(row[..length].iter().zip(&wanted).all(close), "{mode:?} {clip}");
                assert!(row[length..].iter().all(|&hz| hz == 0.0));
                voiced += row.iter().filter(|&&hz| hz > 0.0).count();
            }
        }
        assert!(voiced > 100, "these clips are tones: {voiced}");
    }
}

/// Clips that lie in memory.
#[derive(Debug)]
struct InMemory(Vec<Vec<u8>>);

impl Source for InMemory {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn record(&self, clip: u32) -> Result<Record, ClipFault> {
        Ok(Record { id: format!("c{clip}"), text: format!("clip number {clip}"), speaker: 0, language: None })
    }

    fn audio(&self, clip: u32) -> Result<Box<dyn AudioBytes + '_>, ClipFault> {
        Ok(Box::new(std::io::Cursor::new(&self.0[clip as usize][..])))
    }

    fn identity(&self, clip: u32) -> Result<u64, ClipFault> {
        Ok(xxh3_64(&self.0[clip as usize]))
    }

    fn key(&self) -> String {
        "in memory".to_owned()
    }
}

#[test]
fn a_source_that_is_no_directory_is_a_corpus_too() {
    let wav = |n: usize| {
        let mut bytes = Vec::new();
        write_wav(&sound(n), 22_050, &mut bytes).expect("memory");
        bytes
    };
    let work = tempfile::tempdir().expect("a folder");
    let source = Arc::new(InMemory((0..7).map(wav).chain([b"no sound".to_vec()]).collect()));
    let open = || Corpus::from_source(source.clone(), CorpusSettings::default(), work.path()).expect("a corpus");
    let corpus = Arc::new(open());
    assert_eq!((corpus.len(), corpus.rows(), corpus.measured()), (7, 8, 8));
    assert_eq!(corpus.fault_reports()[0].kind, "not-audio");
    assert_eq!(open().measured(), 1, "the index is kept, but for the clip that is no audio");
    let loader = loader(&corpus, CacheMode::Ram, false);
    let clips: usize = loader.plan(0).iter().map(|planned| loader.load(planned).clips.len()).sum();
    assert_eq!(clips, 7);
}

/// However few clips a corpus has: when most of them are gone, that is an error and not the end of the data.
#[test]
fn clips_that_vanish_after_the_start_are_too_many_when_most_have() {
    let folder = tempfile::tempdir().expect("a folder");
    let corpus = corpus(folder.path(), 9);
    let loader = loader(&corpus, CacheMode::Off, false);
    let (context, budget) = (Context::default(), Budget::new(Place::Host, 1 << 30, Oversize::Alone));
    let (workers, depth) = (Knob::fixed("workers", 2), Knob::fixed("depth", 0));
    let flow = loader.flow(&context, Cursor::START, 1000, &workers, &depth, &budget);
    let wavs = folder.path().join("wavs");
    let mut flow = flow.inspect(|_| std::fs::remove_dir_all(&wavs).unwrap_or_default());
    assert!(flow.next().is_some_and(|batch| batch.is_ok()), "at first they are there");
    let error = flow.find_map(Result::err).expect("not the end of a thousand epochs").to_string();
    assert!(error.contains(" of 9 clips cannot be used, more than is tolerated"), "{error}");
    assert!(error.contains("no audio file of this name"), "{error}");
}

/// Clips with a second of silence at both ends, each of another loudness; one of another rate.
fn clips_with_silence(dir: &Path, clips: usize) -> Vec<(Vec<f32>, u32)> {
    std::fs::create_dir_all(dir.join("wavs")).expect("writable");
    let (mut rows, mut made) = (String::new(), Vec::new());
    for n in 0..clips {
        let rate = if n == 1 { 16_000 } else { 22_050 };
        let loud = 0.8 / (n + 1) as f32;
        let tone = (0..rate * 3 / 2).map(|at| loud * ((at as usize * (n + 3)) as f32 * 0.01).sin());
        let silence = || std::iter::repeat_n(0.0, rate as usize);
        let samples: Vec<f32> = silence().chain(tone).chain(silence()).collect();
        let mut file = std::fs::File::create(dir.join(format!("wavs/c{n}.wav"))).expect("writable");
        write_wav(&samples, rate, &mut file).expect("writable");
        rows += &format!("c{n}|clip number {n} of the corpus\n");
        made.push((samples, rate));
    }
    std::fs::write(dir.join("metadata.csv"), rows).expect("writable");
    made
}

fn open_processed(dir: &Path, processing: Processing) -> Arc<Corpus> {
    let settings = CorpusSettings { processing, ..CorpusSettings::default() };
    Arc::new(Corpus::open(dir, settings).expect("a corpus"))
}

/// One clip after the other as the loader makes it, in the order of the corpus.
fn one_by_one(corpus: &Arc<Corpus>, mode: CacheMode, as_signal: bool) -> (Arc<Loader>, Vec<Batch>) {
    let plan = PlanSettings { batch_size: 1, seed: 1, plain_order: true, ..PlanSettings::default() };
    let settings = LoadSettings { plan, as_signal, pitch: true, ..LoadSettings::default() };
    let clips = (0..corpus.len() as u32).collect();
    let loader = Loader::new(corpus.clone(), clips, settings, corpus.cache(mode, 1 << 30)).expect("valid settings");
    let mut batches: Vec<Batch> = loader.plan(0).iter().map(|planned| loader.load(planned)).collect();
    batches.sort_by_key(|batch| batch.clips[0]);
    (loader, batches)
}

#[test]
fn trimmed_clips_are_shorter_in_index_plan_loader_cache_and_doctor() {
    let dir = tempfile::tempdir().expect("a folder");
    clips_with_silence(dir.path(), 4);
    let whole = open_processed(dir.path(), Processing::default());
    let (_, whole_batches) = one_by_one(&whole, CacheMode::Disk, false);
    let trimming = Processing { trim_silence: true, ..Processing::default() };
    let trimmed = open_processed(dir.path(), trimming);
    assert_eq!(trimmed.measured(), 4, "other lengths, another index");
    assert_eq!(open_processed(dir.path(), trimming).measured(), 0, "which is kept");
    assert_eq!(open_processed(dir.path(), Processing::default()).measured(), 0, "beside the other");
    // 0.9 s at each end, to the hundredth of a second that silence is looked for in.
    let frames = 2.0 * 0.9 * 22_050.0 / 256.0;
    for (clip, (long, short)) in whole.sizes().into_iter().zip(trimmed.sizes()).enumerate() {
        let shorter = f64::from(long.frames - short.frames);
        assert!((shorter - frames).abs() <= 3.0, "clip {clip}: {shorter} frames shorter, not {frames}");
        assert_eq!(long.tokens, short.tokens);
        let entry = trimmed.entry(clip as u32);
        let cut = f64::from(entry.start) / f64::from(entry.rate);
        assert!((cut - 0.9).abs() < 0.011, "{cut} s are cut before clip {clip}");
        assert_eq!(whole.entry(clip as u32).start, 0);
        let times = trimmed.frame_times(clip as u32).expect("it is still there");
        assert_eq!((times.start_seconds, times.seconds), (cut, 3.5));
    }
    let found = examine(&trimmed, |_, _| {}, &std::sync::atomic::AtomicBool::new(false)).expect("not stopped");
    assert_eq!(found.errors(), 0, "{:?}", found.findings);
    assert!((found.seconds - trimmed.seconds()).abs() < 1e-6 && (found.seconds - 4.0 * 1.7).abs() < 0.1);
    for mode in [CacheMode::Off, CacheMode::Ram, CacheMode::Disk] {
        // Twice: the second time from the cache on disk.
        for time in 0..2 {
            let (loader, batches) = one_by_one(&trimmed, mode, false);
            let decoded = if mode == CacheMode::Disk && time == 1 { 0 } else { 4 };
            assert_eq!(loader.counters().decoded, decoded, "{mode:?} {time}");
            for (batch, whole_batch) in batches.iter().zip(&whole_batches) {
                let (clip, length) = (batch.clips[0], batch.mel_lengths[0]);
                assert_eq!(length, trimmed.sizes()[clip as usize].frames as usize);
                assert!((batch.seconds - 1.7).abs() < 0.03, "{}", batch.seconds);
                // In the middle the frames are those of the whole clip, but for the grid that begins elsewhere.
                let middle = |batch: &Batch| {
                    let bands = batch.audio.chunks(batch.frames).map(|band| band[batch.frames / 2]);
                    bands.max_by(f32::total_cmp).expect("bands")
                };
                assert!((middle(batch) - middle(whole_batch)).abs() < 0.2, "clip {clip}");
                let pitch = batch.pitch.as_ref().expect("asked for");
                assert_eq!(pitch.len(), batch.frames);
            }
        }
    }
}

#[test]
fn the_loudness_of_what_the_loader_gives_is_the_target_and_another_target_is_another_cache() {
    let dir = tempfile::tempdir().expect("a folder");
    clips_with_silence(dir.path(), 4);
    let mut lengths = Vec::new();
    for (target, trim_silence) in [(-23.0, false), (-23.0, true), (-30.0, true), (-30.0, false)] {
        let corpus = open_processed(dir.path(), Processing { loudness_db: Some(target), trim_silence });
        for time in 0..2 {
            let (loader, batches) = one_by_one(&corpus, CacheMode::Disk, true);
            assert_eq!(loader.counters().decoded, if time == 0 { 4 } else { 0 }, "{target} {trim_silence}");
            for batch in &batches {
                let level = Levels::of(&batch.audio, 22_050).speech_db;
                assert!((level - target).abs() < 0.3, "clip {}: {level} dB instead of {target}", batch.clips[0]);
            }
            lengths.push(batches.iter().map(|batch| batch.frames).sum::<usize>());
        }
    }
    assert!(
        lengths[0] == lengths[1] && lengths[0] == lengths[6] && lengths[2] == lengths[4] && lengths[2] < lengths[0]
    );
    // Without it they are as loud as they were recorded.
    let (_, batches) = one_by_one(&open_processed(dir.path(), Processing::default()), CacheMode::Off, true);
    let levels: Vec<f64> = batches.iter().map(|batch| Levels::of(&batch.audio, 22_050).speech_db).collect();
    assert!(levels[0] - levels[3] > 10.0, "{levels:?}");
}
