//! SPEC I1: one corpus in every layout is the same corpus; layouts as people have them are read; what fits two is refused.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tandem_audio::write_wav;
use tandem_data::{
    CacheMode, Corpus, CorpusError, CorpusSettings, Format, LoadSettings, Loader, MetadataError, Part, PlanSettings,
    convert, open_source,
};
use xxhash_rust::xxh3::xxh3_64;

fn wav(n: usize) -> Vec<u8> {
    let length = 5_000 + n * 1_709 % 9_000;
    let samples: Vec<f32> = (0..length).map(|at| ((at * (n + 3)) as f32 * 0.01).sin() * 0.3).collect();
    let mut bytes = Vec::new();
    write_wav(&samples, 22_050, &mut bytes).expect("memory");
    bytes
}

fn put(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
    fs::create_dir_all(path.as_ref().parent().expect("a directory")).expect("writable");
    fs::write(path, bytes).expect("writable");
}

/// Texts with everything that separates columns somewhere.
const TEXTS: [&str; 6] = [
    "plain words of a clip",
    "a text with | a bar, and \"quotes\" in it",
    "\"quoted from end to end\"",
    "\"6 inches\" is 6\" long",
    "سلام، دنیا",
    "semicolons; commas, and it's all",
];

/// A corpus in LJSpeech's layout, sorted as VCTK sorts.
fn write_ljspeech(dir: &Path, speakers: &[&str], clips: std::ops::Range<usize>) {
    let (mut rows, mut table, mut n) = (String::new(), String::new(), 0);
    for speaker in speakers {
        for clip in clips.clone() {
            let id = format!("{speaker}_{clip:02}");
            put(dir.join(format!("wavs/{id}.wav")), wav(n));
            let text = TEXTS[n % TEXTS.len()];
            let text = match text.contains('|') {
                true => format!("\"{}\"", text.replace('"', "\"\"")),
                false => format!(" {text}"),
            };
            rows += &format!("{id}|{text}\n");
            table += &format!("{id}|{speaker}|{}\n", if n % TEXTS.len() == 4 { "fa" } else { "en" });
            n += 1;
        }
    }
    put(dir.join("metadata.csv"), rows);
    put(dir.join("speakers.csv"), table);
}

fn open(dir: &Path, format: Option<Format>) -> Corpus {
    Corpus::open(dir, CorpusSettings { format, ..CorpusSettings::default() }).expect("a corpus")
}

/// Every clip (id, text, speaker), and every batch as a hash.
fn content(corpus: Corpus) -> (Vec<(String, String, String)>, Vec<u64>) {
    let corpus = Arc::new(corpus);
    let clips: Vec<_> = (0..corpus.len() as u32)
        .map(|clip| {
            let text = corpus.text(clip).expect("there").trim().to_owned();
            let speaker = corpus.speakers().get(usize::from(corpus.entry(clip).speaker)).cloned().unwrap_or_default();
            (corpus.name(clip).0, text, speaker)
        })
        .collect();
    let plan = PlanSettings { batch_size: 4, seed: 9, ..PlanSettings::default() };
    let settings = LoadSettings { plan, ..LoadSettings::default() };
    let all = (0..corpus.len() as u32).collect();
    let loader = Loader::new(corpus.clone(), all, settings, corpus.cache(CacheMode::Off, 0)).expect("valid");
    let digest = |planned: &_| {
        let batch = loader.load(planned);
        let mut bytes: Vec<u8> = batch.audio.iter().flat_map(|value| value.to_le_bytes()).collect();
        bytes.extend(batch.clips.iter().flat_map(|clip| clip.to_le_bytes()));
        bytes.extend(batch.ids.iter().flat_map(|id| id.to_le_bytes()));
        xxh3_64(&bytes)
    };
    (clips, loader.plan(0).iter().chain(&loader.plan(1)).map(digest).collect())
}

#[test]
fn one_corpus_in_every_layout_gives_equal_clips_and_batches() {
    let work = tempfile::tempdir().expect("a directory");
    let first = work.path().join("ljspeech");
    write_ljspeech(&first, &["ali", "omid", "sara"], 0..6);
    let wanted = content(open(&first, None));
    assert_eq!((wanted.0.len(), wanted.0[4].1.as_str()), (18, TEXTS[4]));
    for format in Format::WRITTEN {
        let out = work.path().join(format!("as-{format}"));
        let source = open_source(&first, Part::All, &CorpusSettings::default()).expect("a corpus").expect("clips");
        let made = convert(&*source, None, format, &out, |_, _| {}, &AtomicBool::new(false)).expect("written");
        assert_eq!((made.clips, made.linked + made.copied, made.skipped.len()), (18, 18, 0), "{format}");
        let corpus = open(&out, None);
        let reading = corpus.reading().expect("a directory").clone();
        assert_eq!(reading.format, format, "found out by itself: {:?}", reading.why);
        assert_eq!(corpus.speakers(), ["ali", "omid", "sara"], "{format}");
        let languages: Vec<_> = corpus.languages().iter().map(|(_, count, _)| *count).collect();
        assert_eq!(languages, [15, 3], "{format}");
        assert_eq!(content(corpus), wanted, "{format}");
        assert_eq!(content(open(&out, Some(format))), wanted, "{format}, given");
        // And back again.
        let back = work.path().join(format!("back-{format}"));
        let settings = CorpusSettings { format: Some(format), ..CorpusSettings::default() };
        let source = open_source(&out, Part::All, &settings).expect("a corpus").expect("clips");
        convert(&*source, None, Format::LjSpeech, &back, |_, _| {}, &AtomicBool::new(false)).expect("written");
        assert_eq!(content(open(&back, None)), wanted, "back from {format}");
    }
}

#[test]
fn splits_stay_apart_and_speakers_keep_their_numbers() {
    let work = tempfile::tempdir().expect("a directory");
    let (first, held_out) = (work.path().join("a"), work.path().join("b"));
    write_ljspeech(&first, &["ali", "sara"], 0..3);
    write_ljspeech(&held_out, &["sara"], 3..5);
    let source = |dir: &Path| open_source(dir, Part::All, &CorpusSettings::default()).expect("fine").expect("clips");
    for format in Format::WRITTEN.into_iter().filter(|&format| format != Format::Vctk) {
        let out = work.path().join(format.name());
        let stop = AtomicBool::new(false);
        let made = convert(&*source(&first), Some(&*source(&held_out)), format, &out, |_, _| {}, &stop);
        assert_eq!(made.expect("written").clips, 8, "{format}");
        let part = |part| open_source(&out, part, &CorpusSettings::default()).expect("fine").expect("clips");
        let (training, validation) = (part(Part::Training), part(Part::Validation));
        assert_eq!((training.len(), validation.len()), (6, 2), "{format}");
        let name = |source: &dyn tandem_data::Source, clip| {
            let record = source.record(clip).expect("fine");
            (record.speaker, source.speakers()[usize::from(record.speaker)].clone())
        };
        assert_eq!(name(&*training, 5), (1, "sara".to_owned()), "{format}");
        assert_eq!(name(&*validation, 0), (1, "sara".to_owned()), "{format}");
    }
}

/// Lists as other programs write them, each with what must be read of clip 1: id, text, speaker.
#[test]
fn layouts_as_people_have_them() {
    let nemo = r#"{"audio_filepath": "audio/one.wav", "text": "Hello there.", "duration": 1.5, "speaker": 17}
{"audio_filepath": "ABSOLUTE/two.wav", "text": "How are you?", "duration": 0.7, "speaker": 4}
"#;
    let hash = "0fe2f5ae7e1b0c7c3b1b2c11d8a2f2f8ce4af0e9";
    let voice = format!(
        "client_id\tpath\tsentence\tup_votes\tdown_votes\tage\tgender\taccents\tlocale\tsegment\n\
         {hash}\tcommon_voice_en_1.wav\t\"Hello there.\"\t2\t0\t\t\t\ten\t\n\
         other\tcommon_voice_en_2.wav\t\"How\" are you?\t2\t0\t\t\t\ten\t\n"
    );
    type Files = Vec<(&'static str, String)>;
    let cases: Vec<(&str, Format, Files, Vec<&str>, [&str; 3])> = vec![
        (
            "piper, single speaker, in wav/",
            Format::LjSpeech,
            vec![("metadata.csv", "one|Hello there.\ntwo|How are you?\n".into())],
            vec!["wav/one.wav", "wav/two.wav"],
            ["two", "How are you?", ""],
        ),
        (
            "piper, several speakers",
            Format::Piper,
            vec![("metadata.csv", "one|bob|Hello there.\ntwo|eve|How are you?\nthree|bob|Fine.\nfour|eve|Me too.\n".into())],
            vec!["wav/one.wav", "wav/two.wav", "wav/three.wav", "wav/four.wav"],
            ["two", "How are you?", "eve"],
        ),
        (
            "the XTTS demo, with its header",
            Format::Coqui,
            vec![
                ("metadata_train.csv", "audio_file|text|speaker_name\nwavs/one.wav|Hello there.|coqui\nwavs/two.wav|How are you?|coqui\n".into()),
                ("metadata_eval.csv", "audio_file|text|speaker_name\nwavs/one.wav|Hello there.|coqui\n".into()),
                ("lang.txt", "en\n".into()),
            ],
            vec!["wavs/one.wav", "wavs/two.wav"],
            ["two", "How are you?", "coqui"],
        ),
        (
            "coqui without a header",
            Format::Coqui,
            vec![("metadata.csv", "wavs/one.wav|Hello there.|ann\nwavs/two.wav|How are you?|ben\n".into())],
            vec!["wavs/one.wav", "wavs/two.wav"],
            ["two", "How are you?", "ben"],
        ),
        (
            "VCTK 0.92",
            Format::Vctk,
            vec![("txt/p225/p225_001.txt", "Please call Stella.\n".into()), ("txt/p226/p226_001.txt", "How are you?\n".into())],
            vec![
                "wav48_silence_trimmed/p225/p225_001_mic1.flac",
                "wav48_silence_trimmed/p225/p225_001_mic2.flac",
                "wav48_silence_trimmed/p226/p226_001_mic1.flac",
            ],
            ["p226_001", "How are you?", "p226"],
        ),
        (
            "Common Voice",
            Format::CommonVoice,
            vec![("train.tsv", voice)],
            vec!["clips/common_voice_en_1.wav", "clips/common_voice_en_2.wav"],
            ["common_voice_en_2", "\"How\" are you?", "other"],
        ),
        (
            "NeMo, with an absolute path",
            Format::JsonLines,
            vec![("train_manifest.json", nemo.into())],
            vec!["audio/one.wav", "two.wav"],
            ["two", "How are you?", "4"],
        ),
        (
            "audiofolder with a split and a text over two lines",
            Format::AudioFolder,
            vec![("train/metadata.csv", "file_name,transcription,speaker_id\none.wav,\"Hello, \"\"there\"\"\",7\ndata/two.wav,\"How\nare you?\",9\n".into())],
            vec!["train/one.wav", "train/data/two.wav"],
            ["data/two", "How\nare you?", "9"],
        ),
        (
            "audiofolder in JSON",
            Format::AudioFolder,
            vec![("metadata.jsonl", "{\"file_name\": \"one.wav\", \"text\": \"Hello\"}\n{\"file_name\": \"two.wav\", \"text\": \"you\"}\n".into())],
            vec!["one.wav", "two.wav"],
            ["two", "you", ""],
        ),
    ];
    for (name, format, files, audio, [id, text, speaker]) in cases {
        let dir = tempfile::tempdir().expect("a directory");
        for (path, content) in files {
            put(dir.path().join(path), content.replace("ABSOLUTE", &dir.path().display().to_string()));
        }
        for (n, path) in audio.into_iter().enumerate() {
            put(dir.path().join(path), wav(n));
        }
        let corpus = open(dir.path(), None);
        assert_eq!(corpus.reading().map(|reading| reading.format), Some(format), "{name}");
        assert_eq!(corpus.faults(), 0, "{name}: {:?}", corpus.fault_reports());
        assert_eq!(corpus.name(1).0, id, "{name}");
        assert_eq!(corpus.text(1).as_deref(), Some(text), "{name}");
        let number = usize::from(corpus.entry(1).speaker);
        assert_eq!(corpus.speakers().get(number).map_or("", String::as_str), speaker, "{name}");
    }
}

#[test]
fn what_fits_two_layouts_is_refused_with_both_readings() {
    let fails = |files: &[(&str, &str)]| {
        let dir = tempfile::tempdir().expect("a directory");
        for (path, content) in files {
            put(dir.path().join(path), content);
        }
        put(dir.path().join("wavs/a.wav"), wav(1));
        put(dir.path().join("clips/a.wav"), wav(1));
        let error = Corpus::open(dir.path(), CorpusSettings::default()).expect_err("two readings");
        let CorpusError::Metadata(MetadataError::TwoFormats(found)) = error else { panic!("{error}") };
        let [first, second] = found.previews.clone();
        assert!(!first.clips.is_empty() && !second.clips.is_empty(), "{found:?}");
        // Each of them can be chosen.
        for format in [first.format, second.format] {
            let settings = CorpusSettings { format: Some(format), allow_empty: true, ..CorpusSettings::default() };
            assert!(Corpus::open(dir.path(), settings).is_ok(), "{format}");
        }
        (first, second)
    };
    let (first, second) = fails(&[("metadata.csv", "a|bob|Hello there.\nb|eve|How are you?\nc|joe|I am fine.\n")]);
    assert_eq!((first.format, second.format), (Format::LjSpeech, Format::Piper));
    assert_eq!((first.clips[0].text.as_str(), first.clips[0].speaker.as_deref()), ("Hello there.", None));
    assert_eq!((second.clips[1].text.as_str(), second.clips[1].speaker.as_deref()), ("How are you?", Some("eve")));
    let list = "client_id\tpath\tsentence\nx\ta.wav\tHello\n";
    let (first, second) = fails(&[("metadata.csv", "a|Hello there.\n"), ("train.tsv", list)]);
    assert_eq!((first.format, second.format), (Format::CommonVoice, Format::LjSpeech));
}

#[test]
fn bad_rows_of_every_layout_are_named_and_the_others_are_read() {
    let cases: [(&str, &str, Format, &[(u64, &str)]); 4] = [
        (
            "manifest.jsonl",
            "{\"audio_filepath\": \"wavs/a.wav\", \"text\": \"good one\"}\nno json\n{\"text\": \"no audio\"}\n\
             {\"audio_filepath\": \"wavs/a.wav\"}\n{\"audio_filepath\": \"../a.wav\", \"text\": \"x\"}\n\
             {\"audio_filepath\": \"wavs/a.wav\", \"text\": \"x\", \"offset\": 2.5}\n\
             {\"audio_filepath\": \"wavs/none.wav\", \"text\": \"x\"}\n",
            Format::JsonLines,
            &[(2, "not-json"), (3, "no-field"), (4, "no-field"), (5, "outside"), (6, "segment"), (7, "missing")],
        ),
        (
            "metadata.csv",
            "file_name,text\nwavs/a.wav,good one\nwavs/a.wav,too,many\n/etc/passwd,x\nwavs/../../a.wav,x\n,x\nwavs/b.wav,\"open\n",
            Format::AudioFolder,
            &[(3, "columns"), (4, "outside"), (5, "outside"), (6, "bad-path"), (7, "open-quote")],
        ),
        (
            "train.tsv",
            "client_id\tpath\tsentence\nx\t../wavs/a.wav\tx\nx\n\nx\t\tx\nx\ta.wav\t\"good one\n",
            Format::CommonVoice,
            &[(2, "outside"), (3, "columns"), (5, "bad-path")],
        ),
        (
            "metadata.csv",
            "wavs/a.wav|good one|x\n../a.wav|x|x\nwavs/c.wav|a|b|c\n",
            Format::Coqui,
            &[(2, "outside"), (3, "columns")],
        ),
    ];
    for (file, list, format, faults) in cases {
        let dir = tempfile::tempdir().expect("a directory");
        let inside = dir.path().join("corpus");
        put(inside.join(file), list);
        put(dir.path().join("a.wav"), wav(1));
        put(inside.join("wavs/a.wav"), wav(1));
        put(inside.join("clips/a.wav"), wav(1));
        let settings = CorpusSettings { format: Some(format), ..CorpusSettings::default() };
        let corpus = Corpus::open(&inside, settings.clone()).expect("one is good");
        assert_eq!((corpus.len(), corpus.text(0).map(|text| text.contains("good one"))), (1, Some(true)), "{format}");
        let source = open_source(&inside, Part::All, &settings).expect("a corpus").expect("clips");
        let found: Vec<(u64, &str)> = (0..source.len() as u32)
            .filter_map(|row| {
                let fault = source.record(row).and_then(|_| source.audio(row).map(|_| ())).err()?;
                Some((source.line(row), fault.kind()))
            })
            .collect();
        assert_eq!(found, faults, "{format}");
    }
}

#[test]
fn a_given_format_that_it_is_not_says_what_is_missing() {
    let dir = tempfile::tempdir().expect("a directory");
    write_ljspeech(dir.path(), &["ali"], 0..2);
    for format in [Format::Vctk, Format::CommonVoice, Format::JsonLines, Format::AudioFolder] {
        let settings = CorpusSettings { format: Some(format), ..CorpusSettings::default() };
        let error = Corpus::open(dir.path(), settings).expect_err("another format").to_string();
        assert!(error.contains(format.name()) && error.contains(format.files()), "{error}");
    }
}

#[test]
fn converting_never_overwrites_and_leaves_nothing_behind() {
    let work = tempfile::tempdir().expect("a directory");
    let first = work.path().join("a");
    write_ljspeech(&first, &["ali"], 0..2);
    fs::remove_file(first.join("wavs/ali_01.wav")).expect("there");
    let source = open_source(&first, Part::All, &CorpusSettings::default()).expect("a corpus").expect("clips");
    let run = |out: &str, stop: bool| {
        convert(&*source, None, Format::Piper, &work.path().join(out), |_, _| {}, &AtomicBool::new(stop))
    };
    let error = run("a", false).expect_err("it is there").to_string();
    assert!(error.contains("is there already and not empty"), "{error}");
    assert!(run("b", true).is_err());
    let names = || fs::read_dir(work.path()).expect("there").count();
    assert_eq!(names(), 1, "what was stopped leaves nothing");
    let made = run("b", false).expect("written");
    assert_eq!((made.clips, &*made.skipped[0].kind, names()), (1, "missing", 2));
}

/// A row costs eight bytes for its place, one for the extension, and three if speakers and languages are named.
#[test]
fn rows_stay_in_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let row = |n: usize| {
        format!(
            "{{\"audio_filepath\": \"wavs/{n}.wav\", \"text\": \"{}\", \"speaker\": \"s{}\"}}\n",
            "x".repeat(100),
            n % 7
        )
    };
    let rows = 20_000;
    put(dir.path().join("manifest.jsonl"), (0..rows).map(row).collect::<String>());
    let metadata = tandem_data::Metadata::open_file(&dir.path().join("manifest.jsonl")).expect("rows");
    assert_eq!(metadata.len(), rows);
    assert!(metadata.memory_bytes() <= 8 * (rows + 1), "{}", metadata.memory_bytes());
}

#[test]
fn some_speakers_alone_are_a_corpus_of_their_own() {
    let dir = tempfile::tempdir().expect("a directory");
    write_ljspeech(dir.path(), &["ali", "omid", "sara"], 0..3);
    let open = |names: &[&str]| {
        let speakers = names.iter().map(|name| (*name).to_owned()).collect();
        Corpus::open(dir.path(), CorpusSettings { speakers, ..CorpusSettings::default() })
    };
    let corpus = open(&["sara", "ali"]).expect("a corpus");
    assert_eq!((corpus.len(), corpus.speakers()), (6, &["sara".to_owned(), "ali".to_owned()][..]));
    let numbers: Vec<u16> = (0..6).map(|clip| corpus.entry(clip).speaker).collect();
    assert_eq!(numbers, [1, 1, 1, 0, 0, 0]);
    assert_eq!(corpus.name(3).0, "sara_00");
    assert_eq!(open(&["omid"]).expect("a corpus").len(), 3, "not the index of the others");
    let error = open(&["bob"]).expect_err("nobody").to_string();
    assert!(error.contains("no speaker `bob`, there are: ali, omid, sara"), "{error}");
}
