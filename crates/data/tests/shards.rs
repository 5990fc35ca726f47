//! SPEC I1, I3: tar shards are packed, resumed, read at random, and whatever is wrong with one is named.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tandem_audio::write_wav;
use tandem_data::{Corpus, CorpusSettings, Part, Source, open_source, pack};

fn wav(n: usize) -> Vec<u8> {
    let samples: Vec<f32> = (0..5_000 + n * 37).map(|at| ((at * (n + 3)) as f32 * 0.01).sin() * 0.3).collect();
    let mut bytes = Vec::new();
    write_wav(&samples, 22_050, &mut bytes).expect("memory");
    bytes
}

fn corpus(dir: &Path, clips: usize) {
    fs::create_dir_all(dir.join("wavs")).expect("writable");
    let mut rows = String::new();
    for n in 0..clips {
        fs::write(dir.join(format!("wavs/c{n:03}.wav")), wav(n)).expect("writable");
        rows += &format!("c{n:03}|clip number {n}\n");
    }
    fs::write(dir.join("metadata.csv"), rows).expect("writable");
}

fn source(dir: &Path) -> std::sync::Arc<dyn Source> {
    open_source(dir, Part::All, &CorpusSettings::default()).expect("a corpus").expect("clips")
}

fn go() -> AtomicBool {
    AtomicBool::new(false)
}

/// A tar file as other programs write it.
fn tar(path: &Path, members: &[(&str, &[u8])]) {
    let mut tar = tar::Builder::new(fs::File::create(path).expect("writable"));
    for (name, bytes) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, *bytes).expect("written");
    }
    tar.finish().expect("written");
}

/// Lines and kinds of what is wrong.
fn faults(dir: &Path) -> Vec<(String, &'static str)> {
    let source = source(dir);
    (0..source.len() as u32)
        .filter_map(|clip| {
            let fault = source.record(clip).and_then(|_| source.audio(clip).map(|_| ())).err()?;
            Some((source.id(clip)?, fault.kind()))
        })
        .collect()
}

#[test]
fn packing_resumes_where_it_was_stopped_and_never_overwrites() {
    let work = tempfile::tempdir().expect("a directory");
    let (dir, out) = (work.path().join("corpus"), work.path().join("shards"));
    corpus(&dir, 25);
    // Killed before the plan was there.
    fs::create_dir_all(out.join(".pack")).expect("writable");
    fs::write(out.join(".pack/.tmpAbc"), "half a plan").expect("writable");
    let (stop, seen) = (go(), AtomicUsize::new(0));
    let stopping = |_, _| stop.store(seen.fetch_add(1, Ordering::Relaxed) >= 12, Ordering::Relaxed);
    assert!(pack(&*source(&dir), None, &out, 4, stopping, &stop).is_err(), "stopped");
    let tars = || tandem_tars(&out);
    let before = tars().len();
    assert!((1..7).contains(&before) && !out.join("index.jsonl").exists(), "{before}");
    // A kill in the middle of a shard leaves what was written of it.
    fs::write(out.join(".shard-Abc"), "half a shard").expect("writable");
    let made = pack(&*source(&dir), None, &out, 4, |_, _| {}, &go()).expect("packed");
    assert_eq!((made.clips, made.shards, made.written, tars().len()), (25, 7, 7 - before, 7));
    let left: Vec<_> = fs::read_dir(&out).expect("there").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 8, "shards and the index: {left:?}");
    let again = pack(&*source(&dir), None, &out, 4, |_, _| {}, &go()).expect("nothing to do");
    assert_eq!((again.clips, again.written), (25, 0));
    fs::write(dir.join("wavs/c003.wav"), wav(99)).expect("writable");
    let error = pack(&*source(&dir), None, &out, 4, |_, _| {}, &go()).expect_err("another corpus").to_string();
    assert!(error.contains("is there already"), "{error}");

    let packed = Corpus::open(&out, CorpusSettings::default()).expect("a corpus");
    assert_eq!((packed.len(), packed.faults(), packed.text(24)), (25, 0, Some("clip number 24".to_owned())));
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut packed.audio(17).expect("there"), &mut bytes).expect("memory");
    assert_eq!(bytes, wav(17));
}

fn tandem_tars(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).expect("there").flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.ends_with(".tar")).collect()
}

#[test]
fn damaged_shards_are_named() {
    let work = tempfile::tempdir().expect("a directory");
    let (dir, out) = (work.path().join("corpus"), work.path().join("shards"));
    corpus(&dir, 8);
    pack(&*source(&dir), None, &out, 4, |_, _| {}, &go()).expect("packed");
    assert_eq!(faults(&out), []);
    let shard = out.join("shard-000000.tar");
    let mut bytes = fs::read(&shard).expect("there");
    let second = bytes.windows(4).enumerate().filter(|(_, four)| four == b"RIFF").nth(1).expect("a WAV").0;
    bytes[second + 900] ^= 1;
    fs::write(&shard, &bytes).expect("writable");
    assert_eq!(faults(&out), [("c001".to_owned(), "checksum")]);
    let cut = fs::read(out.join("shard-000001.tar")).expect("there");
    fs::write(out.join("shard-000001.tar"), &cut[..cut.len() / 2]).expect("writable");
    let found = faults(&out);
    assert!(found.len() >= 3 && found[1..].iter().all(|(_, kind)| *kind == "truncated-shard"), "{found:?}");
    let opened = Corpus::open(&out, CorpusSettings::default()).expect("some are good");
    assert_eq!(opened.len(), 8 - (found.len() - 1), "only headers are read when it is opened");
    let examined = tandem_data::examine(&opened, |_, _| {}, &go()).expect("not stopped");
    assert!(examined.findings.iter().any(|finding| (finding.id.as_str(), finding.kind) == ("c001", "checksum")));
}

#[test]
fn shards_of_others_are_read_and_what_is_wrong_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let (a, b) = (wav(1), wav(2));
    tar(
        &dir.path().join("train-0000.tar"),
        &[
            ("x/one.wav", &a),
            ("x/one.json", br#"{"text": "hello one", "speaker": "ann"}"#),
            ("two.flac.wav", b"another extension"),
            ("two.txt", b"no audio of a known kind"),
            ("three.wav", &b),
            ("four.wav", &b),
            ("four.txt", b"hello four\n"),
            ("four.json", br#"{"speaker": "ben", "language": "en"}"#),
            ("five.wav", &b),
            ("five.wav", &a),
            ("five.txt", b"twice"),
        ],
    );
    tar(&dir.path().join("val-0000.tar"), &[("six.wav", &a), ("six.json", br#"{"text": "six", "speaker": "ben"}"#)]);
    let training = source(dir.path());
    assert_eq!(training.len(), 5);
    let found = faults(dir.path());
    let wanted = [("two", "no-partner"), ("three", "no-partner"), ("five", "duplicate-member")];
    assert_eq!(found, wanted.map(|(id, kind)| (id.to_owned(), kind)));
    let record = training.record(3).expect("good");
    assert_eq!((record.id.as_str(), record.text.as_str(), record.speaker), ("four", "hello four", 1));
    let validation =
        open_source(dir.path(), Part::Validation, &CorpusSettings::default()).expect("fine").expect("clips");
    assert_eq!((validation.len(), validation.record(0).expect("good").speaker), (1, 1), "ben has one number");

    // The same key in another shard, and one that was cut.
    tar(
        &dir.path().join("train-0001.tar"),
        &[("four.wav", &a), ("four.json", br#"{"text": "again", "speaker": "ann"}"#)],
    );
    let corpus = Corpus::open(dir.path(), CorpusSettings::default()).expect("a corpus");
    assert!(corpus.fault_reports().iter().any(|report| report.id == "four" && report.kind == "duplicate-id"));
    let whole = fs::read(dir.path().join("train-0000.tar")).expect("there");
    fs::write(dir.path().join("train-0000.tar"), &whole[..whole.len() * 3 / 5]).expect("writable");
    let found = faults(dir.path());
    assert!(found.iter().any(|(_, kind)| *kind == "truncated-shard"), "{found:?}");

    fs::write(dir.path().join("train-0002.tar.gz"), b"x").expect("writable");
    let error = Corpus::open(dir.path(), CorpusSettings::default()).expect_err("compressed").to_string();
    assert!(error.contains("train-0002.tar.gz` is compressed"), "{error}");
}
