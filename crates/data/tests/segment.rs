//! SPEC I4: clips are cut out of long recordings within 50 ms of where the speech begins and ends, with captions and without, in
//! noise; whatever is wrong with a recording or its captions is named; a stop loses nothing and nothing is overwritten.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tandem_audio::formant::{FormantVoice, speak};
use tandem_audio::{Decoder, write_flac, write_wav};
use tandem_data::{
    ClipAudio, CutSettings, SegmentError, SegmentSettings, Segmented, find_recordings, parse_captions, segment,
};
use tandem_flow::Random;

const RATE: u32 = 22_050;

/// A long recording, and where each sentence in it is said.
struct Joined {
    samples: Vec<f32>,
    truth: Vec<(f64, f64)>,
    texts: Vec<String>,
}

/// Sentences with pauses of 0.45 to 1.2 s between them, in noise of this level.
fn joined(sentences: usize, noise_db: f64, seed: u64) -> Joined {
    let words = [
        "banana", "radio", "lemon", "garden", "melody", "tiger", "island", "river", "sunset", "velvet", "open",
        "number",
    ];
    let mut random = Random::new(seed);
    let mut made = Joined { samples: vec![0.0; RATE as usize / 2], truth: Vec::new(), texts: Vec::new() };
    for n in 0..sentences {
        let count = 3 + random.below(5);
        let text: Vec<&str> = (0..count).map(|_| words[random.below(words.len())]).collect();
        let voice = FormantVoice { pitch: 110.0 + 20.0 * (n % 4) as f64, formant_scale: 1.0, breath: 0.3, speed: 1.0 };
        let (samples, _) = speak(&text.join(" "), &voice, RATE, || random.unit());
        // What can be heard of it, by its own loudness.
        let loudest = samples.iter().fold(0f32, |most, sample| most.max(sample.abs()));
        let loud = |sample: &&f32| sample.abs() > 0.02 * loudest;
        let first = samples.iter().position(|sample| loud(&sample)).expect("speech");
        let last = samples.iter().rposition(|sample| loud(&sample)).expect("speech");
        let at = |sample: usize| (made.samples.len() + sample - first) as f64 / f64::from(RATE);
        made.truth.push((at(first), at(last)));
        made.texts.push(format!("{}.", text.join(" ")));
        let gain = 0.5 / loudest;
        made.samples.extend(samples[first..=last].iter().map(|sample| sample * gain));
        let pause = 0.45 + 0.75 * random.unit();
        made.samples.extend(std::iter::repeat_n(0.0, (pause * f64::from(RATE)) as usize));
    }
    let level = 10f64.powf(noise_db / 20.0);
    for pair in made.samples.chunks_mut(2) {
        let (a, b) = random.normals();
        pair.iter_mut().zip([a, b]).for_each(|(sample, noise)| *sample += (level * noise) as f32);
    }
    made
}

fn time(seconds: f64) -> String {
    let ms = (seconds * 1000.0).round() as u64;
    format!("{:02}:{:02}:{:02},{:03}", ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000)
}

/// Captions whose times are off by up to so many seconds.
fn srt(made: &Joined, jitter: f64) -> String {
    let mut random = Random::new(77);
    let mut before: f64 = 0.0;
    let caption = |(n, (&(start, end), text)): (usize, (&(f64, f64), &String))| {
        let start = (start + jitter * random.signed()).max(before);
        let end = end + jitter * random.signed();
        before = end;
        format!("{}\n{} --> {}\n{text}\n\n", n + 1, time(start), time(end))
    };
    made.truth.iter().zip(&made.texts).enumerate().map(caption).collect()
}

fn wav(path: &Path, samples: &[f32]) {
    write_wav(samples, RATE, &mut fs::File::create(path).expect("writable")).expect("written");
}

fn run(recordings: &[PathBuf], out: Option<&Path>, settings: &SegmentSettings) -> Result<Segmented, SegmentError> {
    segment(recordings, out, settings, &|_, _, _| {}, &AtomicBool::new(false))
}

/// How many edges of the truth are within 50 ms of one that was found, and how many there are.
fn near(made: &Joined, found: &Segmented) -> (usize, usize) {
    let close = |a: f64, b: f64| (a - b).abs() <= 0.05;
    let start = |at: f64| found.clips.iter().any(|clip| close(clip.cut.speech_start, at));
    let end = |at: f64| found.clips.iter().any(|clip| close(clip.cut.speech_end, at));
    let hits = made.truth.iter().map(|&(from, to)| usize::from(start(from)) + usize::from(end(to))).sum();
    (hits, 2 * made.truth.len())
}

#[test]
fn cuts_are_within_50_ms_of_the_truth_with_captions_and_without_in_noise() {
    let work = tempfile::tempdir().expect("a directory");
    let talk = work.path().join("talk.wav");
    for (noise_db, least) in [(-75.0, 1.0), (-45.0, 0.95), (-35.0, 0.8)] {
        let made = joined(60, noise_db, 3);
        wav(&talk, &made.samples);
        let captions = work.path().join("talk.srt");
        fs::write(&captions, srt(&made, 0.2)).expect("writable");
        let with = run(std::slice::from_ref(&talk), None, &SegmentSettings::default()).expect("cut");
        // In loud noise a soft sentence may be joined to its neighbor or not be heard at all.
        let whole = made.texts.iter().filter(|&text| with.clips.iter().any(|clip| clip.cut.text == *text)).count();
        let sentences = if noise_db > -40.0 { 51 } else { 60 };
        assert!(whole >= sentences, "{whole} of 60 sentences in noise of {noise_db} dB");
        fs::remove_file(&captions).expect("there");
        let without = run(std::slice::from_ref(&talk), None, &SegmentSettings::default()).expect("cut");
        for (name, found) in [("captions", &with), ("pauses", &without)] {
            let (hits, edges) = near(&made, found);
            println!("{name}, noise of {noise_db} dB: {hits} of {edges} within 50 ms");
            assert!(hits as f64 >= least * edges as f64, "{name}, noise of {noise_db} dB: {hits} of {edges}");
        }
        let (few, many) = if noise_db > -40.0 { (51, 69) } else { (60, 60) };
        assert!((few..=many).contains(&without.clips.len()), "{} clips in noise of {noise_db} dB", without.clips.len());
    }
}

#[test]
fn a_corpus_is_written_that_holds_the_samples_of_the_recording() {
    let work = tempfile::tempdir().expect("a directory");
    let made = joined(8, -70.0, 5);
    let (talk, other) = (work.path().join("a talk.wav"), work.path().join("b.flac"));
    wav(&talk, &made.samples);
    write_flac(&made.samples, RATE, &mut fs::File::create(&other).expect("writable")).expect("written");
    let voices: String = (made.truth.iter().zip(&made.texts).enumerate())
        .map(|(n, (&(start, end), text))| {
            let name = if n % 2 == 0 { "Anna" } else { "Ben | Co" };
            format!("{} --> {}\n<v {name}>{text}\n\n", time(start), time(end)).replace(',', ".")
        })
        .collect();
    fs::write(work.path().join("a talk.vtt"), format!("WEBVTT\n\n{voices}")).expect("writable");
    let recordings = find_recordings(work.path()).expect("two");
    assert_eq!(recordings, [talk, other]);
    for audio in [ClipAudio::Wav, ClipAudio::Flac] {
        let out = work.path().join(audio.extension());
        let settings = SegmentSettings { audio, ..SegmentSettings::default() };
        let found = run(&recordings, Some(&out), &settings).expect("cut");
        assert_eq!((found.clips.len(), found.written, found.captioned), (16, 16, 1));
        assert_eq!((found.without_text, found.without_speaker, found.speakers), (8, 8, 2));
        let list = fs::read_to_string(out.join("metadata.csv")).expect("a list");
        let rows: Vec<&str> = list.lines().collect();
        assert_eq!(rows[0], format!("a talk-0001|{}", made.texts[0]));
        assert_eq!(rows[8], "b-0001|");
        let speakers = fs::read_to_string(out.join("speakers.csv")).expect("a list");
        assert!(speakers.starts_with("a talk-0001|Anna\na talk-0002|Ben   Co\n"), "{speakers}");
        for clip in &found.clips {
            let mut file =
                fs::File::open(out.join("wavs").join(format!("{}.{}", clip.id, audio.extension()))).expect("a clip");
            let mut samples = Vec::new();
            Decoder::new().decode(&mut file, &mut samples).expect("whole");
            let start = (clip.cut.start * f64::from(RATE)).round() as usize;
            let expected = &made.samples[start..start + samples.len()];
            assert!((samples.len() as f64 / f64::from(RATE) - clip.cut.seconds()).abs() < 0.001, "{}", clip.id);
            let off = samples.iter().zip(expected).map(|(a, b)| (a - b).abs()).max_by(f32::total_cmp);
            assert!(off.is_some_and(|off| off < 1e-4), "{}: {off:?}", clip.id);
        }
    }
}

#[test]
fn a_stop_anywhere_loses_nothing_and_the_same_call_resumes() {
    let work = tempfile::tempdir().expect("a directory");
    for name in ["a.wav", "b.wav"] {
        wav(&work.path().join(name), &joined(4, -70.0, u64::from(name.as_bytes()[0])).samples);
    }
    let (recordings, settings) = (find_recordings(work.path()).expect("two"), SegmentSettings::default());
    let whole = work.path().join("whole");
    let expected = run(&recordings, Some(&whole), &settings).expect("cut");
    let listing = |dir: &Path| {
        let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(dir.join("wavs"))
            .expect("there")
            .map(|entry| entry.expect("readable"))
            .map(|entry| (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).expect("readable")))
            .collect();
        files.sort();
        (files, fs::read(dir.join("metadata.csv")).expect("a list"))
    };
    let mut stops = 0;
    for after in (1..).step_by(2) {
        let out = work.path().join(format!("out-{after}"));
        let (stop, calls) = (AtomicBool::new(false), Cell::new(0));
        let progress = |_, _, _| {
            calls.set(calls.get() + 1);
            stop.store(calls.get() >= after, Ordering::Relaxed);
        };
        match segment(&recordings, Some(&out), &settings, &progress, &stop) {
            Ok(_) => break,
            Err(SegmentError::Stopped) => stops += 1,
            Err(other) => panic!("{other}"),
        }
        assert!(!out.join("metadata.csv").exists(), "no corpus before it is whole");
        let resumed = run(&recordings, Some(&out), &settings).expect("resumed");
        assert_eq!(resumed.clips, expected.clips);
        assert_eq!(listing(&out), listing(&whole), "after {after} calls");
        let again = run(&recordings, Some(&out), &settings).expect("done already");
        assert_eq!((again.written, again.clips.len()), (0, expected.clips.len()));
    }
    assert!(stops > 8, "{stops} stops");
}

#[test]
fn nothing_is_overwritten() {
    let work = tempfile::tempdir().expect("a directory");
    let talk = work.path().join("talk.wav");
    wav(&talk, &joined(4, -70.0, 1).samples);
    let (recordings, settings) = ([talk.clone()], SegmentSettings::default());
    let out = work.path().join("out");
    run(&recordings, Some(&out), &settings).expect("cut");
    fs::write(out.join("metadata.csv"), "talk-0001|what was said\n").expect("writable");
    let refused = |result: Result<Segmented, SegmentError>| matches!(result, Err(SegmentError::NotEmpty(_)));
    assert_eq!(run(&recordings, Some(&out), &settings).expect("nothing to do").written, 0);
    let other =
        SegmentSettings { cuts: CutSettings { pause_seconds: 0.2, ..CutSettings::default() }, ..settings.clone() };
    assert!(refused(run(&recordings, Some(&out), &other)));
    wav(&talk, &joined(5, -70.0, 2).samples);
    assert!(refused(run(&recordings, Some(&out), &settings)), "another recording of that name");
    assert_eq!(fs::read_to_string(out.join("metadata.csv")).expect("there"), "talk-0001|what was said\n");
    let mine = work.path().join("mine");
    fs::create_dir(&mine).expect("made");
    fs::write(mine.join("diary.txt"), "x").expect("writable");
    assert!(refused(run(&recordings, Some(&mine), &settings)));
}

#[test]
fn texts_fit_by_number_or_not_at_all() {
    let work = tempfile::tempdir().expect("a directory");
    let (talk, lines) = (work.path().join("talk.wav"), work.path().join("lines.txt"));
    let made = joined(5, -70.0, 9);
    wav(&talk, &made.samples);
    let settings = SegmentSettings { texts: Some(lines.clone()), ..SegmentSettings::default() };
    fs::write(&lines, format!("\u{feff}{}\r\n\r\n", made.texts.join("\r\n"))).expect("writable");
    let found = run(std::slice::from_ref(&talk), None, &settings).expect("as many");
    assert_eq!(found.clips.iter().map(|clip| clip.cut.text.as_str()).collect::<Vec<_>>(), made.texts);
    fs::write(&lines, "one\ntwo\n").expect("writable");
    let out = work.path().join("out");
    let error = run(&[talk], Some(&out), &settings).expect_err("too few");
    assert!(matches!(error, SegmentError::TextCount { texts: 2, clips: 5, .. }), "{error}");
    assert!(!out.join("metadata.csv").exists());
}

#[test]
fn bad_input_is_named_with_its_file_before_anything_is_written() {
    let work = tempfile::tempdir().expect("a directory");
    let path = |name: &str| work.path().join(name);
    let made = joined(3, -70.0, 4);
    wav(&path("talk.wav"), &made.samples);
    let whole = fs::read(path("talk.wav")).expect("there");
    fs::write(path("cut.wav"), &whole[..whole.len() / 2]).expect("writable");
    fs::write(path("text.wav"), "not audio").expect("writable");
    fs::write(path("latin.srt"), b"1\n00:00:01,000 --> 00:00:02,000\ncaf\xe9\n").expect("writable");
    fs::write(path("story.txt"), "once upon a time").expect("writable");
    let out = path("out");
    let error = |recording: &str, captions: Option<&str>| {
        let settings = SegmentSettings { captions: captions.map(&path), ..SegmentSettings::default() };
        let error = run(&[path(recording)], Some(&out), &settings).expect_err("bad input").to_string();
        error.replace(&format!("{}/", work.path().display()), "")
    };
    assert!(error("cut.wav", None).starts_with("cut.wav: truncated, "));
    assert_eq!(error("text.wav", None), "text.wav: not a WAV, FLAC, OGG or MP3 file");
    assert!(error("none.wav", None).starts_with("none.wav: No such file"));
    assert_eq!(error("talk.wav", Some("latin.srt")), "latin.srt: line 3 is neither UTF-8 nor UTF-16");
    assert!(error("talk.wav", Some("story.txt")).starts_with("story.txt: neither SRT, "));
    fs::write(path("talk.srt"), srt(&made, 0.0)).expect("writable");
    fs::write(path("talk.vtt"), "WEBVTT\n\n00:01.000 --> 00:02.000\nx\n").expect("writable");
    assert!(
        error("talk.wav", None).contains("several files could be the captions of `talk.wav`\n  talk.srt\n  talk.vtt")
    );
    let both = run(
        &[path("talk.wav"), path("cut.wav")],
        None,
        &SegmentSettings { captions: Some(path("talk.srt")), ..SegmentSettings::default() },
    );
    assert!(matches!(both, Err(SegmentError::OneCaptions(_, 2))));
    assert!(!path("out").join("metadata.csv").exists());
    assert!(parse_captions(&fs::read(path("talk.srt")).expect("there")).is_ok());
}

#[test]
fn captions_beyond_the_end_overlapping_or_reversed_are_named_with_their_line() {
    let work = tempfile::tempdir().expect("a directory");
    let (talk, captions) = (work.path().join("talk.wav"), work.path().join("talk.srt"));
    let made = joined(4, -70.0, 6);
    wav(&talk, &made.samples);
    let [a, b, c, _] = made.truth[..] else { panic!("four") };
    let row = |n: usize, from: f64, to: f64| format!("{n}\n{} --> {}\nText {n}.\n\n", time(from), time(to));
    let text =
        row(1, a.0, a.1) + &row(2, b.0, c.0 + 0.8) + &row(3, c.0, c.1) + &row(4, 9.0, 8.0) + &row(5, 500.0, 501.0);
    fs::write(&captions, text).expect("writable");
    let found = run(&[talk], None, &SegmentSettings::default()).expect("one is good");
    assert_eq!(found.clips.len(), 1);
    let named: Vec<(&str, &str)> = found.skipped.iter().map(|it| (it.place.as_str(), it.kind.as_str())).collect();
    assert_eq!(
        named,
        [("line 6", "overlap"), ("line 10", "overlap"), ("line 14", "reversed"), ("line 18", "beyond-end")]
    );
    assert!(found.skipped.iter().all(|it| it.path == captions));
}
