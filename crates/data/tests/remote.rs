//! SPEC I2: a corpus that lies elsewhere gives the same batches, waits for the clips of a batch together, and what cannot be reached ends
//! a run instead of changing it. The bucket here is a directory; a real one is in `scripts/oracles/buckets.py`.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tandem_audio::write_wav;
use tandem_data::{
    CacheMode, Corpus, CorpusError, CorpusSettings, Extension, Extensions, Files, LoadSettings, Loader, MetadataError,
    ParquetFile, Part, Piece, PlanSettings, Remote, RemoteError, RemoteFault, open_source, pack,
};
use tandem_flow::{Budget, Context, Cursor, Knob, Oversize, Place};

/// A directory that is asked as a bucket is.
#[derive(Debug, Default)]
struct Elsewhere {
    there: PathBuf,
    /// Names of which the bytes cannot be had, and why.
    broken: Mutex<Vec<(String, RemoteFault)>>,
    /// How often several were asked for at once, and how many pieces came in all.
    calls: AtomicUsize,
    pieces: AtomicUsize,
}

impl Remote for Elsewhere {
    fn url(&self) -> &str {
        "s3://bucket/voice"
    }

    fn read(&self, piece: &Piece) -> Result<Vec<u8>, RemoteError> {
        self.read_all(std::slice::from_ref(piece)).remove(0)
    }

    fn read_all(&self, pieces: &[Piece]) -> Vec<Result<Vec<u8>, RemoteError>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.pieces.fetch_add(pieces.len(), Ordering::Relaxed);
        let broken = self.broken.lock().expect("whole");
        let read = |(name, range): &Piece| {
            if let Some((_, reason)) = broken.iter().find(|(broken, _)| broken == name) {
                let url = format!("{}/{name}", self.url());
                return Err(RemoteError { url, attempts: 6, reason: reason.clone() });
            }
            let bytes = fs::read(self.there.join(name)).expect("there");
            let range = range.clone().unwrap_or(0..bytes.len() as u64);
            Ok(bytes[range.start as usize..range.end as usize].to_vec())
        };
        pieces.iter().map(read).collect()
    }
}

#[derive(Debug)]
struct Elsewheres {
    remote: Arc<Elsewhere>,
    work: PathBuf,
}

impl Extension for Elsewheres {
    fn open_url(&self, url: &str) -> Result<Files, MetadataError> {
        assert_eq!(url, "s3://bucket/voice");
        Ok(Files::remote(self.work.join("files"), self.work.join("kept"), self.remote.clone()))
    }

    fn open_parquet(&self, files: &Files, _: &Path) -> Result<Arc<dyn ParquetFile>, MetadataError> {
        Err(MetadataError::NotBuilt(files.name().display().to_string(), "parquet"))
    }
}

/// Stand-ins: lists are copied, everything else is as large as it is, and empty.
fn stand_in(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("writable");
    for entry in fs::read_dir(from).expect("there").flatten().filter(|entry| entry.file_name() != ".tandem") {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            stand_in(&path, &to);
        } else if path.extension().is_some_and(|extension| extension == "wav" || extension == "tar") {
            fs::File::create(&to).expect("writable").set_len(entry.metadata().expect("there").len()).expect("sparse");
        } else {
            fs::copy(&path, &to).expect("copied");
        }
    }
}

struct Bench {
    work: tempfile::TempDir,
    remote: Arc<Elsewhere>,
    settings: CorpusSettings,
}

/// A corpus of twelve clips, packed or not, here and elsewhere.
fn bench(packed: bool) -> (Bench, PathBuf) {
    let work = tempfile::tempdir().expect("a directory");
    let dir = work.path().join("corpus");
    fs::create_dir_all(dir.join("wavs")).expect("writable");
    let mut rows = String::new();
    for n in 0..12usize {
        let samples: Vec<f32> = (0..5_000 + n * 937).map(|at| ((at * (n + 3)) as f32 * 0.01).sin() * 0.3).collect();
        let mut bytes = Vec::new();
        write_wav(&samples, 22_050, &mut bytes).expect("memory");
        fs::write(dir.join(format!("wavs/c{n:03}.wav")), bytes).expect("writable");
        rows += &format!("c{n:03}|clip number {n}\n");
    }
    fs::write(dir.join("metadata.csv"), rows).expect("writable");
    let mut there = dir.clone();
    if packed {
        there = work.path().join("shards");
        let source = open_source(&dir, Part::All, &CorpusSettings::default()).expect("a corpus").expect("clips");
        pack(&*source, None, &there, 5, |_, _| {}, &false.into()).expect("packed");
    }
    stand_in(&there, &work.path().join("files"));
    let remote = Arc::new(Elsewhere { there, ..Elsewhere::default() });
    let extension = Elsewheres { remote: remote.clone(), work: work.path().to_owned() };
    let settings = CorpusSettings { extensions: Extensions(Some(Arc::new(extension))), ..CorpusSettings::default() };
    (Bench { work, remote, settings }, dir)
}

fn loader(corpus: Corpus) -> Arc<Loader> {
    let corpus = Arc::new(corpus);
    let plan = PlanSettings { batch_size: 4, seed: 9, ..PlanSettings::default() };
    let settings = LoadSettings { plan, ..LoadSettings::default() };
    let all = (0..corpus.len() as u32).collect();
    Loader::new(corpus.clone(), all, settings, corpus.cache(CacheMode::Off, 0)).expect("valid")
}

fn digests(loader: &Loader) -> Vec<u64> {
    loader.plan(0).iter().chain(&loader.plan(1)).map(|planned| loader.load(planned).digest()).collect()
}

#[test]
fn a_corpus_that_lies_elsewhere_gives_the_same_batches_and_waits_for_a_batch_at_once() {
    for packed in [false, true] {
        let (bench, dir) = bench(packed);
        let wanted = digests(&loader(Corpus::open(&dir, CorpusSettings::default()).expect("a corpus")));
        let corpus = Corpus::open(Path::new("s3://bucket/voice/"), bench.settings.clone()).expect("a corpus");
        assert_eq!((corpus.len(), corpus.dir()), (12, Path::new("s3://bucket/voice")));
        assert!(corpus.name(3).1.expect("a file").starts_with("s3:/bucket/voice"), "{:?}", corpus.name(3));
        assert!(corpus.work_dir().starts_with(bench.work.path()), "nothing is kept in a folder called s3:");
        assert_eq!(bench.remote.calls.swap(0, Ordering::Relaxed), 1, "measured at once");
        let loader = loader(corpus);
        bench.remote.pieces.store(0, Ordering::Relaxed);
        assert_eq!(digests(&loader), wanted, "packed {packed}");
        let (calls, pieces) = (bench.remote.calls.load(Ordering::Relaxed), bench.remote.pieces.load(Ordering::Relaxed));
        assert_eq!((calls, pieces), (6, 24), "a call for each of three batches of two epochs");
        // What is known needs no bytes.
        let again = Corpus::open(Path::new("s3://bucket/voice"), bench.settings.clone()).expect("a corpus");
        assert_eq!((again.measured(), bench.remote.calls.load(Ordering::Relaxed)), (0, 6));
    }
}

#[test]
fn a_clip_that_is_gone_is_skipped_and_a_bucket_that_is_gone_ends_the_run() {
    let (bench, _) = bench(false);
    let corpus = Corpus::open(Path::new("s3://bucket/voice"), bench.settings.clone()).expect("a corpus");
    let loader = loader(corpus);
    let run = || {
        let (workers, depth) = (Knob::fixed("workers", 2), Knob::fixed("depth", 2));
        let host = Budget::new(Place::Host, 64_000_000, Oversize::Alone);
        let flow = loader.flow(&Context::default(), Cursor::START, 1, &workers, &depth, &host);
        flow.collect::<Result<Vec<_>, _>>()
    };
    let break_with = |reason| *bench.remote.broken.lock().expect("whole") = vec![("wavs/c004.wav".to_owned(), reason)];
    break_with(RemoteFault::NoConnection("Connection refused".to_owned()));
    let error = run().expect_err("the run ends").to_string();
    for word in ["s3://bucket/voice/wavs/c004.wav", "attempts: 6", "no connection: Connection refused"] {
        assert!(error.contains(word), "{error}");
    }
    assert!(loader.ledger().reports().is_empty(), "no clip is to blame");
    break_with(RemoteFault::NotFound);
    let batches = run().expect("the run goes on");
    assert_eq!(batches.iter().map(|batch| batch.value.clips.len()).sum::<usize>(), 11);
    let reports = loader.ledger().reports();
    assert_eq!(
        reports.iter().map(|report| (report.id.as_str(), &*report.kind)).collect::<Vec<_>>(),
        [("c004", "missing")]
    );
}

#[test]
fn a_bucket_that_cannot_be_read_while_it_is_measured_is_an_error_and_no_clip_is_lost() {
    let (bench, _) = bench(true);
    let shards: HashSet<String> = (0..3).map(|n| format!("shard-{n:06}.tar")).collect();
    *bench.remote.broken.lock().expect("whole") =
        shards.iter().map(|name| (name.clone(), RemoteFault::Refused(403, "AccessDenied".to_owned()))).collect();
    let open = || Corpus::open(Path::new("s3://bucket/voice"), bench.settings.clone());
    match open().expect_err("refused") {
        CorpusError::Remote(error) => assert!(error.to_string().contains("403 AccessDenied"), "{error}"),
        other => panic!("{other}"),
    }
    bench.remote.broken.lock().expect("whole").clear();
    assert_eq!(open().expect("again").len(), 12);
}

#[test]
fn a_list_in_a_bucket_names_no_file_of_this_machine() {
    let (bench, dir) = bench(false);
    let files = bench.work.path().join("files");
    fs::remove_file(files.join("metadata.csv")).expect("there");
    let local = dir.join("wavs/c001.wav");
    let rows = format!(
        "{{\"audio_filepath\": \"wavs/c000.wav\", \"text\": \"one\"}}\n{{\"audio_filepath\": \"{}\", \"text\": \"two\"}}\n",
        local.display()
    );
    fs::write(files.join("manifest.jsonl"), rows).expect("writable");
    let corpus = Corpus::open(Path::new("s3://bucket/voice"), bench.settings.clone()).expect("one is good");
    let reports = corpus.fault_reports();
    let kinds: Vec<&str> = reports.iter().map(|report| &*report.kind).collect();
    assert_eq!((corpus.len(), kinds), (1, vec!["outside"]));
}
