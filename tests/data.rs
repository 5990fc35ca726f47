//! `tandem doctor`, `tandem prepare` and `tandem load` (SPEC S1, S4-S6, M10, F1, F8, F10).

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::corpus::{Corpus, tone, wav, wav_of};
use crate::support::{Workplace, last_json, run, stderr, stdout, tandem};

/// The findings of `doctor --json`: id → kinds.
fn findings(corpus: &Corpus) -> BTreeMap<String, Vec<String>> {
    let output = run(&format!("doctor {} --json", corpus.path().display()));
    let mut kinds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for finding in last_json(&output)["findings"].as_array().unwrap_or_else(|| panic!("{}", stderr(&output))) {
        let text = |key: &str| finding[key].as_str().expect("a text").to_owned();
        kinds.entry(text("id")).or_default().push(text("kind"));
    }
    kinds
}

fn load(corpus: &Corpus, flags: &str) -> Value {
    let output = run(&format!("load {} --json {flags}", corpus.path().display()));
    assert!(output.status.success(), "{}", stderr(&output));
    last_json(&output)
}

fn bytes_of<const N: usize>(samples: &[f32], convert: impl Fn(f32) -> [u8; N]) -> Vec<u8> {
    samples.iter().flat_map(|&sample| convert(sample)).collect()
}

/// A corpus with everything that was ever seen to be wrong, and what doctor calls it.
fn broken_corpus() -> (Corpus, Vec<(&'static str, &'static str)>) {
    let mut corpus = Corpus::new(30);
    let good = wav(&tone(3));
    let garbage: Vec<u8> = (0..5000u32).map(|n| (n * 37 % 256) as u8).collect();
    let mut no_data = good[..44].to_vec();
    no_data[40..44].fill(0);
    let loud: Vec<f32> = tone(8).iter().map(|sample| (sample * 40.0).clamp(-1.0, 1.0)).collect();
    let mut broken_float = bytes_of(&tone(9), f32::to_le_bytes);
    broken_float[400..404].copy_from_slice(&f32::NAN.to_le_bytes());
    let text = "some words that are said here";
    corpus.add("garbage", text, Some(&garbage));
    corpus.add("truncated", text, Some(&good[..good.len() / 2]));
    corpus.add("header-only", text, Some(&no_data));
    corpus.add("zero-bytes", text, Some(&[]));
    corpus.add("missing", text, None);
    corpus.add("no-text", "", Some(&good));
    corpus.add("blank-text", "   ", Some(&good));
    corpus.add("punctuation", "... !?", Some(&good));
    corpus.add("nan", text, Some(&wav_of(3, 1, 32, 22_050, &broken_float)));
    corpus.add("one-sample", text, Some(&wav(&[0.5])));
    corpus.add("adpcm", text, Some(&wav_of(2, 1, 4, 22_050, &[7; 5000])));
    corpus.add("silence", text, Some(&wav(&vec![0.0; 30_000])));
    corpus.add("loud", text, Some(&wav(&loud)));
    corpus.add(
        "slow",
        text,
        Some(&wav_of(1, 1, 16, 8000, &bytes_of(&tone(4), |x| ((x * 32_767.0) as i16).to_le_bytes()))),
    );
    corpus.add("babble", &"far too many words for so short a sound ".repeat(9), Some(&wav(&tone(0))));
    corpus.add("copy", "another text for a sound that is there", Some(&wav(&tone(5))));
    corpus.add("accents", "some letters ж that nobody taught it", Some(&wav(&tone(41))));
    corpus.add("c001", "the same id again", None);
    corpus.add("../escape", text, None);
    corpus.add_row("only-an-id");
    corpus.add_row("five|columns|of|text|here");
    fs::create_dir(corpus.wavs().join("folder.wav")).expect("writable");
    corpus.add("folder", text, None);
    let pipe = Command::new("mkfifo").arg(corpus.wavs().join("pipe.wav")).status();
    assert!(pipe.is_ok_and(|status| status.success()), "mkfifo is part of every Unix");
    corpus.add("pipe", text, None);
    let expected = vec![
        ("garbage", "not-audio"),
        ("truncated", "truncated"),
        ("header-only", "no-samples"),
        ("zero-bytes", "zero-bytes"),
        ("missing", "missing"),
        ("no-text", "empty-text"),
        ("blank-text", "empty-text"),
        ("punctuation", "no-words"),
        ("nan", "not-finite"),
        ("one-sample", "too-short"),
        ("adpcm", "encoding"),
        ("silence", "silent"),
        ("loud", "clipped"),
        ("slow", "rate"),
        ("babble", "too-much-text"),
        ("copy", "duplicate-sound"),
        ("c001", "duplicate-id"),
        ("folder", "not-a-file"),
        ("pipe", "not-a-file"),
    ];
    (corpus, expected)
}

#[test]
fn doctor_names_every_bad_clip_with_its_reason() {
    let (corpus, expected) = broken_corpus();
    let found = findings(&corpus);
    for (id, kind) in expected {
        let kinds = found.get(id).unwrap_or_else(|| panic!("{id} was not found: {found:#?}"));
        assert!(kinds.iter().any(|found| found == kind), "{id}: {kinds:?} instead of {kind}");
    }
    assert_eq!(found.get("accents").map(Vec::as_slice), Some(&["unknown-letters".to_owned()][..]));
    // Rows without a usable id are named by their line.
    let lines: Vec<&String> = found.keys().filter(|id| id.starts_with("line ")).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    // And no good clip is blamed.
    let blamed: Vec<&String> =
        found.keys().filter(|id| id.starts_with('c') && !["c001", "copy"].contains(&id.as_str())).collect();
    assert!(blamed.is_empty(), "{blamed:?}");
}

#[test]
fn doctor_writes_a_list_and_an_image_and_says_so_with_its_exit_code() {
    let (corpus, _) = broken_corpus();
    let (list, image) = (corpus.path().join("bad.txt"), corpus.path().join("lengths.svg"));
    let arguments =
        format!("doctor {} --quarantine {} --plot {}", corpus.path().display(), list.display(), image.display());
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let listed = fs::read_to_string(&list).expect("written");
    assert!(listed.contains("garbage|not-audio|not a WAV, FLAC, OGG or MP3 file"), "{listed}");
    assert!(!listed.contains("silence"), "clips that are used are not quarantined");
    assert!(fs::read_to_string(&image).expect("written").matches("<rect").count() > 40);
    assert!(stdout(&output).contains("truncated.wav: truncated, "), "{}", stdout(&output));

    let clean = Corpus::new(12);
    let output = run(&format!("doctor {}", clean.path().display()));
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).contains("nothing odd"), "{}", stdout(&output));
}

#[test]
fn every_wav_format_line_end_and_quoting_is_read() {
    let mut corpus = Corpus::new(3);
    let samples = tone(6);
    let add = |corpus: &mut Corpus, id: &str, bytes: Vec<u8>| corpus.add(id, &format!("words of {id}"), Some(&bytes));
    add(&mut corpus, "u8", wav_of(1, 1, 8, 22_050, &bytes_of(&samples, |x| [(x * 127.0 + 128.0) as u8])));
    add(
        &mut corpus,
        "s24",
        wav_of(
            1,
            1,
            24,
            22_050,
            &bytes_of(&samples, |x| {
                let [a, b, c, _] = ((x * 8_388_607.0) as i32).to_le_bytes();
                [a, b, c]
            }),
        ),
    );
    add(
        &mut corpus,
        "s32",
        wav_of(1, 1, 32, 22_050, &bytes_of(&samples, |x| ((f64::from(x) * 2_147_483_647.0) as i32).to_le_bytes())),
    );
    add(&mut corpus, "f32", wav_of(3, 1, 32, 22_050, &bytes_of(&samples, f32::to_le_bytes)));
    add(&mut corpus, "f64", wav_of(3, 1, 64, 22_050, &bytes_of(&samples, |x| f64::from(x).to_le_bytes())));
    let five: Vec<u8> = samples.iter().flat_map(|x| ((x * 32_767.0) as i16).to_le_bytes().repeat(5)).collect();
    add(&mut corpus, "five", wav_of(1, 5, 16, 22_050, &five));
    corpus.add_row("quoted|\"one | two\"|\"one or \"\"two\"\"\"");
    fs::write(corpus.wavs().join("quoted.wav"), wav(&tone(2))).expect("writable");
    corpus.write_metadata("\r\n");
    let metadata = corpus.path().join("metadata.csv");
    let text = fs::read_to_string(&metadata).expect("there");
    fs::write(&metadata, format!("\u{FEFF}{text}")).expect("writable");
    let json = load(&corpus, "");
    assert_eq!((&json["clips"], json["left_out"].as_array().map(Vec::len)), (&Value::from(10), Some(0)), "{json}");
}

#[test]
fn a_corpus_that_is_mostly_broken_is_refused_with_the_list_and_doctor_still_works() {
    let mut corpus = Corpus::new(5);
    for n in 0..25 {
        corpus.add(&format!("gone{n}"), "words", None);
    }
    for command in ["load", "prepare"] {
        let output = run(&format!("{command} {}", corpus.path().display()));
        assert_eq!(output.status.code(), Some(1), "{command}: {}", stderr(&output));
        assert!(
            stderr(&output).contains("25 of 30 clips cannot be used, more than is tolerated\n  gone0: "),
            "{}",
            stderr(&output)
        );
    }
    fs::remove_dir_all(corpus.wavs()).expect("writable");
    let output = run(&format!("doctor {}", corpus.path().display()));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).contains("0 of 30 clips can be used"), "{}", stdout(&output));
}

#[test]
fn a_speaker_added_to_the_list_changes_the_clips_of_that_list() {
    let corpus = Corpus::new(4);
    let speakers = |text: &str| {
        fs::write(corpus.path().join("speakers.csv"), text).expect("writable");
        load(&corpus, "")
    };
    assert_eq!(speakers("c000|ann\nc001|ann\nc002|bob\nc003|bob\n")["clips"], 4);
    let json = speakers("id|speaker\nc000|cyd\nc001|ann\nc002|bob\n");
    assert_eq!((&json["clips"], &json["left_out"][0]["kind"]), (&Value::from(3), &Value::from("no-speaker")), "{json}");
}

#[test]
fn one_bad_clip_does_not_end_a_run_and_too_many_do() {
    let mut corpus = Corpus::new(40);
    // Fine when it was indexed, damaged afterwards without a trace in its size or date: found only while loading.
    load(&corpus, "");
    let spoil = |corpus: &Corpus, id: &str| {
        let path = corpus.wavs().join(format!("{id}.wav"));
        let before = fs::metadata(&path).expect("there");
        let mut bytes = fs::read(&path).expect("there");
        bytes[..4].copy_from_slice(b"XXXX");
        fs::write(&path, bytes).expect("writable");
        let file = fs::File::options().append(true).open(&path).expect("there");
        file.set_modified(before.modified().expect("a date")).expect("writable");
    };
    spoil(&corpus, "c007");
    let output = run(&format!("load {} --epochs 2", corpus.path().display()));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("skipped: c007: not a WAV"), "{}", stderr(&output));
    assert_eq!(stderr(&output).matches("c007").count(), 1, "named once, not in every epoch");
    assert!(stdout(&output).contains("epoch 1: 39 clips"), "{}", stdout(&output));
    for n in 10..31 {
        spoil(&corpus, &format!("c{n:03}"));
    }
    // The same end for any number of workers: bad clips are counted in the order of the batches.
    let ends: Vec<String> = [0, 1, 3, 8]
        .map(|workers| {
            let output = run(&format!("load {} --batch-size 4 --workers {workers}", corpus.path().display()));
            assert_eq!(output.status.code(), Some(1));
            stderr(&output)
        })
        .into();
    assert!(ends[0].contains("21 of 40 clips cannot be used, more than is tolerated"), "{}", ends[0]);
    assert!(ends[0].matches("not a WAV").count() >= 10, "with the list");
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:#?}");
    corpus.add("last", "words", None);
}

#[test]
fn from_the_cache_no_file_is_decoded_and_what_does_not_match_is_made_anew() {
    let corpus = Corpus::new(25);
    for cache in ["disk", "ram"] {
        let json = load(&corpus, &format!("--epochs 2 --cache {cache}"));
        let decoded: Vec<u64> =
            (0..2).map(|epoch| json["epochs"][epoch]["decoded"].as_u64().expect("a number")).collect();
        assert_eq!(decoded, [25, 0], "{cache}");
    }
    let decoded = |flags: &str| load(&corpus, flags)["epochs"][0]["decoded"].as_u64().expect("a number");
    assert_eq!(decoded("--cache disk"), 0, "the disk keeps it for the next run");
    assert_eq!(decoded("--cache disk --n-mels 64"), 25, "other settings");
    assert_eq!(decoded("--cache disk"), 0);
    // One entry damaged, one cut, one file changed.
    let mut entries = Vec::new();
    for settings in fs::read_dir(corpus.path().join(".tandem/mel")).expect("there").flatten() {
        for part in fs::read_dir(settings.path()).expect("there").flatten() {
            entries.extend(fs::read_dir(part.path()).expect("there").flatten().map(|entry| entry.path()));
        }
    }
    entries.sort();
    let of_80: Vec<_> = entries.iter().filter(|path| fs::read(path).is_ok_and(|bytes| bytes[24] == 80)).collect();
    assert_eq!(of_80.len(), 25);
    let mut bytes = fs::read(of_80[0]).expect("there");
    bytes[1000] ^= 1;
    fs::write(of_80[0], &bytes).expect("writable");
    fs::write(of_80[1], &bytes[..500]).expect("writable");
    fs::write(corpus.wavs().join("c003.wav"), wav(&tone(11))).expect("writable");
    let json = load(&corpus, "--cache disk");
    assert!(matches!(json["epochs"][0]["decoded"].as_u64(), Some(2..=3)), "{json}");
    assert!(json["cache"]["rebuilt"].as_u64() >= Some(1), "{json}");
    assert_eq!(decoded("--cache disk"), 0);
}

#[test]
fn a_second_start_measures_nothing_and_a_new_clip_only_itself() {
    let mut corpus = Corpus::new(20);
    let measured = |corpus: &Corpus| {
        let output = run(&format!("load {}", corpus.path().display()));
        let line = stdout(&output).lines().next().expect("a line").to_owned();
        line.split("; ").nth(1).and_then(|part| part.split(' ').next()?.parse::<usize>().ok()).expect("a number")
    };
    assert_eq!(measured(&corpus), 20);
    assert_eq!(measured(&corpus), 0);
    corpus.add("new", "a new clip", Some(&wav(&tone(1))));
    assert_eq!(measured(&corpus), 1);
    fs::write(corpus.path().join(".tandem").join("index-0"), b"junk").expect("writable");
    for entry in fs::read_dir(corpus.path().join(".tandem")).expect("there").flatten() {
        if entry.file_name().to_string_lossy().starts_with("index-") {
            fs::write(entry.path(), b"damaged").expect("writable");
        }
    }
    assert_eq!(measured(&corpus), 21, "a damaged index is made again");
}

#[cfg(target_os = "linux")]
#[test]
fn preparing_can_be_interrupted_and_goes_on_from_there() {
    let corpus = Corpus::new(300);
    load(&corpus, ""); // the index first, so that the interruption falls into the features
    let arguments =
        ["prepare".into(), corpus.path().display().to_string(), "--json".into(), "--n-fft".into(), "16384".into()];
    let child =
        tandem().args(&arguments).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn();
    let mut child = child.expect("it starts");
    let mel = corpus.path().join(".tandem/mel");
    let parts = || fs::read_dir(&mel).ok()?.flatten().next().and_then(|settings| fs::read_dir(settings.path()).ok());
    let started = || parts().is_some_and(|parts| parts.count() > 2);
    while !started() && child.try_wait().expect("a child").is_none() {
        std::thread::yield_now();
    }
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    let first = child.wait_with_output().expect("it ends");
    let (interrupted, first) = (first.status.code() == Some(130), last_json(&first));
    let second = last_json(&tandem().args(&arguments).output().expect("it starts"));
    assert!(interrupted || first["ready"] == 300, "{first}");
    assert_eq!(second["ready"], 300);
    assert_eq!(
        first["made"].as_u64().expect("a number") + second["made"].as_u64().expect("a number"),
        300,
        "nothing twice"
    );
    let third = last_json(&tandem().args(&arguments).output().expect("it starts"));
    assert_eq!(third["made"], 0);
}

#[test]
fn a_full_cache_only_costs_time() {
    let corpus = Corpus::new(60);
    let output = run(&format!("prepare {} --cache-limit 1", corpus.path().display()));
    assert!(output.status.success() && stderr(&output).contains("did not fit"), "{}", stderr(&output));
    let json = load(&corpus, "--cache disk --cache-limit 1 --epochs 2");
    assert!(json["cache"]["bytes"].as_u64() <= Some(1_000_000), "{json}");
    assert_eq!(json["epochs"][1]["clips"], 60);
}

#[test]
fn bad_input_is_an_error_that_says_what_to_do() {
    let corpus = Corpus::new(2);
    let here = corpus.path().display();
    let empty = tempfile::tempdir().expect("a folder");
    for (arguments, words) in [
        ("load /no/such/folder".to_owned(), "`/no/such/folder` is not a folder"),
        (format!("doctor {}", empty.path().display()), "neither metadata.csv nor metadata_train.csv"),
        (format!("load {here} --batch-size 0"), "0 is not in 1.."),
        (format!("load {here} --fmax 20000"), "fmax <= sample_rate / 2"),
        (format!("load {here} --hop-length 0"), "0 is not in 1.."),
        (format!("load {here} --audio-folder flacs"), "where the audio should be, is not a folder"),
        (format!("doctor {here} --quarantine {here}/metadata.csv"), "is not overwritten"),
        (format!("load {here} --max-mel-frames 3"), "none of the clips can be used"),
        (format!("doctor {here} --plot /no/such/x.svg"), "cannot write"),
        (format!("load {here} --variant wav"), "--bench"),
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {}", stderr(&output));
        assert!(stderr(&output).contains(words), "{arguments}: {}", stderr(&output));
    }
}

#[test]
fn changing_the_settings_of_a_full_cache_keeps_its_size_in_bounds() {
    let corpus = Corpus::new(40);
    for n_mels in [80, 100, 64, 80] {
        let output = run(&format!("prepare {} --n-mels {n_mels} --cache-limit 1 --json", corpus.path().display()));
        let bytes = last_json(&output)["cache"]["bytes"].as_u64().expect("a number");
        assert!((1..=1_000_000).contains(&bytes), "{n_mels}: {bytes}");
    }
}

#[test]
fn validation_clips_are_examined_too() {
    let corpus = Corpus::new(4);
    fs::write(corpus.path().join("metadata_eval.csv"), "v1|some words\n").expect("writable");
    assert_eq!(findings(&corpus).get("v1").map(Vec::as_slice), Some(&["missing".to_owned()][..]));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let corpus = Corpus::new(3);
    for command in ["doctor", "load", "prepare"] {
        let mut child = tandem();
        child.arg(command).arg(corpus.path()).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = child.spawn().expect("it starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{command}");
    }
}

#[test]
fn over_long_clips_are_skipped_and_counted_never_cut() {
    let corpus = Corpus::new(20);
    let all = load(&corpus, "");
    let some = load(&corpus, "--max-mel-frames 100");
    let skipped = some["left_out"].as_array().expect("a list");
    assert!(!skipped.is_empty() && skipped.iter().all(|clip| clip["kind"] == "too-long"), "{some}");
    assert_eq!(some["clips"].as_u64().expect("a number") as usize + skipped.len(), 20);
    assert!(some["audio_s"].as_f64() < all["audio_s"].as_f64());
}

#[test]
fn static_shapes_are_few() {
    let corpus = Corpus::new(120);
    let shapes = |flags: &str| load(&corpus, flags)["epochs"][0]["distinct_shapes"].as_u64().expect("a number");
    assert!(shapes("--batch-size 4 --enable-static-shapes") <= 8);
    assert!(shapes("--batch-size 4") > 8);
}

#[test]
fn the_benchmark_line_has_what_the_benchmark_reads() {
    let corpus = Corpus::new(10);
    let output = run(&format!("load {} --bench --epochs 2", corpus.path().display()));
    let line = stdout(&output);
    let json: Value = serde_json::from_str(line.strip_prefix("RESULT ").expect("a RESULT line")).expect("JSON");
    for key in ["peer", "clips", "audio_s", "first_batch_s", "frames", "ids_sum", "mel_sum", "versions"] {
        assert!(!json[key].is_null(), "{key}: {json}");
    }
    assert_eq!(json["epoch_s"].as_array().map(Vec::len), Some(2));
}

/// One mistake behind all rows is named as one mistake.
#[test]
fn a_mistake_that_spoils_every_row_is_named_once_with_what_to_do() {
    let work = Workplace::new(6, 1);
    let corpus = work.path("corpus");
    let metadata = fs::read_to_string(corpus.join("metadata.csv")).expect("there");
    fs::write(corpus.join("metadata.csv"), metadata.replace('|', ",")).expect("written");
    let doctor = |more: &str| run(&format!("doctor {} {more}", corpus.display()));
    let output = doctor("");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("hint: no line has the form id|text"), "{}", stderr(&output));
    fs::write(corpus.join("metadata.csv"), metadata).expect("written");
    for file in fs::read_dir(corpus.join("wavs")).expect("a folder").flatten() {
        fs::rename(file.path(), corpus.join(file.file_name())).expect("moved");
    }
    let output = doctor("");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("hint: not one audio file was found: --audio-folder"), "{}", stderr(&output));
    let output = doctor("--audio-folder .");
    assert!(output.status.success(), "{}", stderr(&output));
}

/// SPEC I1: three columns are read as what they are, or refused with both readings; never as one voice in silence.
#[test]
fn a_corpus_of_several_speakers_is_read_as_such_or_refused() {
    let corpus = Corpus::new(12);
    let rows = |speaker: fn(usize) -> String| {
        let metadata = fs::read_to_string(corpus.path().join("metadata.csv")).expect("there");
        let row = |(n, line): (usize, &str)| {
            let mut fields = line.split('|');
            let (id, text) = (fields.next().expect("an id"), fields.next_back().expect("a text"));
            format!("{id}|{}|{text}\n", speaker(n))
        };
        metadata.lines().enumerate().map(row).collect::<String>()
    };
    let metadata = corpus.path().join("metadata.csv");
    fs::write(&metadata, rows(|n| ["Anna", "anna", "ben"][n % 3].to_owned())).expect("written");
    let doctor = |more: &str| run(&format!("doctor {} {more}", corpus.path().display()));
    let output = doctor("");
    let said = stdout(&output);
    assert!(output.status.success(), "{said}{}", stderr(&output));
    assert!(said.contains("layout piper: the second column has 3 different values in 12 rows"), "{said}");
    assert!(said.contains("clips of each speaker: Anna 4 ("), "{said}");
    assert!(said.contains("one speaker in several spellings: `Anna`, `anna`"), "{said}");
    let json = last_json(&doctor("--speakers ben --json"));
    assert_eq!(
        (&json["rows"], &json["speakers"], &json["by_speaker"][0]["name"]),
        (&4.into(), &1.into(), &"ben".into())
    );
    let output = doctor("--speakers bob");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("has no speaker `bob`, there are: Anna, anna, ben"), "{}", stderr(&output));

    fs::write(&metadata, rows(|n| format!("name{n}"))).expect("written");
    let output = doctor("");
    assert_eq!(output.status.code(), Some(2));
    for words in ["can be read in two ways", "ljspeech: c000, one speaker: ", "piper: c001, speaker `name1`: "] {
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
    assert!(stderr(&output).contains("hint: --format ljspeech or --format piper"), "{}", stderr(&output));
    for (format, speakers) in [("ljspeech", 1), ("piper", 12)] {
        assert_eq!(last_json(&doctor(&format!("--format {format} --json")))["speakers"], speakers);
    }
}

/// SPEC I1, I3: a corpus in another layout, and in tar files, is the same corpus; nothing is overwritten.
#[test]
fn converting_and_packing_keep_every_clip() {
    let corpus = Corpus::new(9);
    let (here, out) = (corpus.path().display(), tempfile::tempdir().expect("a folder"));
    let sums = |dir: &str| {
        let output = run(&format!("load {dir} --bench --epochs 1"));
        let line = stdout(&output);
        let json: Value =
            serde_json::from_str(line.strip_prefix("RESULT ").unwrap_or_else(|| panic!("{}", stderr(&output))))
                .expect("JSON");
        (json["clips"].clone(), json["ids_sum"].clone(), json["mel_sum"].clone())
    };
    let wanted = sums(&here.to_string());
    let to = |name: &str| out.path().join(name).display().to_string();
    for format in ["piper", "coqui", "common-voice", "jsonl", "audiofolder"] {
        let output = run(&format!("convert {here} --to {format} {}", to(format)));
        assert!(stdout(&output).contains("9 clips in "), "{format}: {}", stderr(&output));
        let doctor = run(&format!("doctor {} --json", to(format)));
        assert_eq!(last_json(&doctor)["usable"], 9, "{format}");
        assert_eq!(sums(&to(format)), wanted, "{format}");
    }
    let again = run(&format!("convert {here} --to piper {}", to("piper")));
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains("is there already and not empty"), "{}", stderr(&again));
    let pack = || last_json(&run(&format!("pack {here} --shards {} --shard-clips 4 --json", to("shards"))));
    let (first, second) = (pack(), pack());
    assert_eq!((&first["clips"], &first["shards"], &first["written"]), (&9.into(), &3.into(), &3.into()));
    assert_eq!(second["written"], 0);
    assert_eq!(sums(&to("shards")), wanted);
}

/// What was seen and not reported: too little text, a square wave, and clips unlike the others.
#[test]
fn doctor_finds_what_is_unlike_the_rest() {
    let mut corpus = Corpus::new(20);
    let long: Vec<f32> = tone(3).into_iter().cycle().take(40 * 22_050).collect();
    corpus.add("short-text", "hi", Some(&wav(&long)));
    let square: Vec<f32> = tone(7).iter().map(|sample| sample.signum()).collect();
    corpus.add("square", "a square wave that is quite loud", Some(&wav(&square)));
    let half: Vec<f32> = tone(8).iter().map(|sample| 0.4 * sample.signum()).collect();
    corpus.add("half-square", "a square wave that was made quieter", Some(&wav(&half)));
    let quiet: Vec<f32> = tone(9).iter().map(|sample| 0.05 * sample).collect();
    corpus.add("quiet", "some words that are hardly heard", Some(&wav(&quiet)));
    let found = findings(&corpus);
    for (id, kind) in
        [("short-text", "too-little-text"), ("square", "clipped"), ("half-square", "clipped"), ("quiet", "loudness")]
    {
        assert!(found.get(id).is_some_and(|kinds| kinds.iter().any(|found| found == kind)), "{id}: {found:#?}");
    }
    let blamed: Vec<&String> = found.keys().filter(|id| id.starts_with("c0")).collect();
    assert!(blamed.is_empty(), "{blamed:?}");
    // Also where there are too few clips to compare with.
    let mut few = Corpus::new(2);
    few.add("short-text", "hi", Some(&wav(&long)));
    assert_eq!(findings(&few).get("short-text").map(Vec::as_slice), Some(&["too-little-text".to_owned()][..]));
}
