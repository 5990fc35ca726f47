//! `manifest.jsonl`: a line for each finished file of a folder, with what it was made from and how. A file counts as
//! finished when its line and the file itself are there; whatever kind of end a run came to, the next one makes the rest.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tandem_data::files::write_atomically;

/// The manifest of a folder.
#[derive(Debug)]
pub(super) struct Manifest {
    dir: PathBuf,
    /// By id.
    finished: BTreeMap<String, Value>,
}

/// What a file of the folder is to a text that is to become it.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// Not there.
    Missing,
    /// Made from the same text in the same way.
    Same,
    /// Made from another text.
    OtherText,
    /// Made in another way: what differs, as `speed: 1.0 → 0.9`.
    OtherVoice(Vec<String>),
    /// There, and not in the manifest.
    Foreign,
}

impl Manifest {
    /// Where it is.
    pub(super) fn path(dir: &Path) -> PathBuf {
        dir.join("manifest.jsonl")
    }

    /// The file of an id.
    pub(super) fn wav(dir: &Path, id: &str) -> PathBuf {
        dir.join(format!("{id}.wav"))
    }

    /// Reads what there is. A last line that was cut off by a kill does not count; another that is no JSON is an error, with
    /// its number.
    pub(super) fn read(dir: &Path) -> Result<Manifest, (usize, String)> {
        let mut manifest = Manifest { dir: dir.to_owned(), finished: BTreeMap::new() };
        let text = match std::fs::read_to_string(Manifest::path(dir)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(manifest),
            Err(error) => return Err((0, error.to_string())),
        };
        for (number, line) in (1..).zip(text.split_inclusive('\n')) {
            let entry: Result<Value, _> = serde_json::from_str(line);
            let id = entry.as_ref().ok().and_then(|entry| entry["id"].as_str().map(str::to_owned));
            match (entry, id) {
                (Ok(entry), Some(id)) => drop(manifest.finished.insert(id, entry)),
                _ if !line.ends_with('\n') => {}
                (Err(error), _) => return Err((number, error.to_string())),
                (Ok(_), None) => return Err((number, "it has no `id`".to_owned())),
            }
        }
        // A line is written before its file appears.
        manifest.finished.retain(|id, _| Manifest::wav(dir, id).is_file());
        Ok(manifest)
    }

    /// What there is for a text that is to be spoken in this way.
    pub(super) fn find(&self, id: &str, text: &str, voice: &Value) -> Found {
        match self.finished.get(id) {
            None if Manifest::wav(&self.dir, id).exists() => Found::Foreign,
            None => Found::Missing,
            Some(entry) if entry["text"] != text => Found::OtherText,
            Some(entry) if entry["voice"] != *voice => {
                let there = &entry["voice"];
                let keys = voice.as_object().into_iter().flat_map(|voice| voice.keys());
                let differs = keys.filter(|key| there[key.as_str()] != voice[key.as_str()]);
                let name = |key: &String| format!("{key}: {} → {}", there[key.as_str()], voice[key.as_str()]);
                Found::OtherVoice(differs.map(name).collect())
            }
            Some(_) => Found::Same,
        }
    }

    /// Forgets a file that is to be made again.
    pub(super) fn forget(&mut self, id: &str) {
        self.finished.remove(id);
    }

    /// Makes the file say what is finished, and nothing else.
    pub(super) fn write(&self) -> io::Result<()> {
        let path = Manifest::path(&self.dir);
        let lines: String = self.finished.values().map(|entry| format!("{entry}\n")).collect();
        if std::fs::read_to_string(&path).map_or(true, |there| there != lines) {
            write_atomically(&path, lines.as_bytes())?;
        }
        Ok(())
    }

    /// Notes a file that is about to appear.
    pub(super) fn note(&self, entry: &Value) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).open(Manifest::path(&self.dir))?;
        // In one call: a kill leaves a whole line or a part of the last one.
        file.write_all(format!("{entry}\n").as_bytes())
    }
}

/// The line of a file.
pub(super) fn entry(id: &str, text: &str, seconds: f64, sentences: Vec<Value>, voice: &Value) -> Value {
    json!({"id": id, "text": text, "file": format!("{id}.wav"), "seconds": seconds, "sentences": sentences,
        "voice": voice})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(dir: &Path, ids: &[&str]) -> Manifest {
        let manifest = Manifest::read(dir).expect("readable");
        manifest.write().expect("writable");
        for id in ids {
            manifest.note(&entry(id, "a text", 1.0, Vec::new(), &json!({"speed": 1.0}))).expect("written");
            std::fs::write(Manifest::wav(dir, id), "sound").expect("written");
        }
        Manifest::read(dir).expect("readable")
    }

    #[test]
    fn what_is_finished_is_known_and_what_differs_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let manifest = noted(dir.path(), &["a"]);
        std::fs::write(dir.path().join("c.wav"), "mine").expect("written");
        let voice = json!({"speed": 1.0});
        assert_eq!(manifest.find("a", "a text", &voice), Found::Same);
        assert_eq!(manifest.find("b", "a text", &voice), Found::Missing);
        assert_eq!(manifest.find("c", "a text", &voice), Found::Foreign);
        assert_eq!(manifest.find("a", "another", &voice), Found::OtherText);
        let other = manifest.find("a", "a text", &json!({"speed": 2.0}));
        assert_eq!(other, Found::OtherVoice(vec!["speed: 1.0 → 2.0".to_owned()]));
    }

    #[test]
    fn a_kill_at_any_byte_leaves_a_manifest_that_can_be_continued() {
        let dir = tempfile::tempdir().expect("a folder");
        noted(dir.path(), &["a", "b"]);
        let path = Manifest::path(dir.path());
        let whole = std::fs::read(&path).expect("there");
        let first = whole.iter().position(|&byte| byte == b'\n').expect("a line") + 1;
        for kept in 0..=whole.len() {
            std::fs::write(&path, &whole[..kept]).expect("written");
            let manifest = Manifest::read(dir.path()).expect("readable");
            let finished: Vec<String> = manifest.finished.keys().cloned().collect();
            // The newline alone may be missing: the line is whole.
            let wanted = usize::from(kept + 1 >= first) + usize::from(kept + 1 >= whole.len());
            assert_eq!(finished.len(), wanted, "{kept} bytes: {finished:?}");
            manifest.write().expect("writable");
            let text = std::fs::read_to_string(&path).expect("there");
            assert!(text.is_empty() || text.ends_with('\n'), "{text}");
        }
        // A line whose file never appeared is not finished.
        std::fs::write(&path, &whole).expect("written");
        std::fs::remove_file(Manifest::wav(dir.path(), "a")).expect("there");
        assert_eq!(Manifest::read(dir.path()).expect("readable").finished.keys().collect::<Vec<_>>(), ["b"]);
        std::fs::write(&path, "{}\n").expect("written");
        assert_eq!(Manifest::read(dir.path()).expect_err("no id").0, 1);
    }
}
