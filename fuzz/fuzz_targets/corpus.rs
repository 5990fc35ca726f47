//! Any bytes as the list or the archive of a corpus, in every layout: the layout is found or refused, every row is a clip or a
//! fault, and no clip lies outside of the folder.
//!
//! The first byte says which file they are; the rest is its content.
#![no_main]

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use tandem_data::{CorpusSettings, Format, Part, open_source};

/// Names of lists and archives that some layout has.
const FILES: [&str; 9] = [
    "metadata.csv", "metadata_train.csv", "metadata.jsonl", "manifest.jsonl", "train.jsonl", "train.tsv", "validated.tsv",
    "txt/p1/a.txt", "shard-0.tar",
];

fn dir() -> &'static Path {
    static DIR: OnceLock<tempfile::TempDir> = OnceLock::new();
    DIR.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let at = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let dir = tempfile::Builder::new().prefix("tandem-fuzz-").tempdir_in(at).expect("a folder");
        for (folder, name) in [("wavs", "a.wav"), ("clips", "a.wav"), ("wav48/p1", "a.wav"), ("txt/p1", "b.txt")] {
            fs::create_dir_all(dir.path().join(folder)).expect("a folder");
            fs::write(dir.path().join(folder).join(name), b"RIFF").expect("written");
        }
        dir
    })
    .path()
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, content)) = bytes.split_first() else { return };
    let (dir, name) = (dir(), FILES[usize::from(first) % FILES.len()]);
    fs::write(dir.join(name), content).expect("written");
    let outside = fs::canonicalize(dir).expect("there");
    for format in [None].into_iter().chain(Format::ALL.map(Some)) {
        for part in [Part::Training, Part::Validation] {
            let settings = CorpusSettings { format, ..CorpusSettings::default() };
            let Ok(Some(source)) = open_source(dir, part, &settings) else { continue };
            assert!(source.len() <= bytes.len() + 2, "{} clips of {} bytes", source.len(), bytes.len());
            for clip in 0..source.len().min(50) as u32 {
                let _ = (source.record(clip), source.identity(clip), source.id(clip));
                if let Ok(mut audio) = source.audio(clip) {
                    let _ = audio.by_ref().take(4096).read_to_end(&mut Vec::new());
                    let path = source.path(clip).and_then(|path| fs::canonicalize(path).ok());
                    assert!(path.is_none_or(|path| path.starts_with(&outside)), "{:?}", source.path(clip));
                }
            }
        }
    }
    let _ = (fs::remove_file(dir.join(name)), fs::remove_dir_all(dir.join(".tandem")));
});
