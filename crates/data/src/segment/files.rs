//! Recordings, and the captions that lie beside them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use tandem_audio::{AudioError, Recording};

use super::captions::{Captions, CaptionsError, parse_captions, read_text};
use super::error::SegmentError;
use crate::convert::file_name;

/// What recordings are called.
const RECORDINGS: [&str; 5] = ["wav", "flac", "mp3", "ogg", "oga"];
/// What captions are called. A text file may have labels, or anything.
const CAPTIONS: [&str; 5] = ["srt", "vtt", "json", "textgrid", "txt"];

/// Captions and where they are from.
#[derive(Clone, Debug)]
pub(super) struct CaptionFile {
    pub(super) path: PathBuf,
    pub(super) captions: Captions,
    /// Of the file.
    pub(super) hash: u64,
}

/// A recording, or those of a directory by name.
///
/// # Errors
///
/// [`SegmentError`] if there is none.
pub fn find_recordings(path: &Path) -> Result<Vec<PathBuf>, SegmentError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let fail = |error| SegmentError::Recording(path.to_owned(), AudioError::Io(error));
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if RECORDINGS.contains(&extension(&path).as_str()) && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    if found.is_empty() { Err(SegmentError::NoRecordings(path.to_owned())) } else { Ok(found) }
}

fn extension(path: &Path) -> String {
    path.extension().map(|extension| extension.to_string_lossy().to_lowercase()).unwrap_or_default()
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

/// What the clips of each recording are called, but for their number.
pub(super) fn names(recordings: &[PathBuf]) -> Result<Vec<String>, SegmentError> {
    let mut known: HashMap<String, PathBuf> = HashMap::new();
    let mut name = |path: &PathBuf| {
        // File systems that do not know case would take two for one.
        let name = file_name(&stem(path));
        match known.insert(name.to_lowercase(), path.clone()) {
            Some(first) => Err(SegmentError::SameName(first, path.clone())),
            None => Ok(name),
        }
    };
    recordings.iter().map(&mut name).collect()
}

/// Seconds that a recording seems to have; one that cannot be read is found before the work.
pub(super) fn expected_seconds(path: &Path) -> Result<f64, SegmentError> {
    let recording = Recording::open(path).map_err(|error| SegmentError::Recording(path.to_owned(), error))?;
    Ok(recording.expected_seconds())
}

/// The captions of each recording: those that are given, or those beside it.
pub(super) fn captions(recordings: &[PathBuf], given: Option<&Path>) -> Result<Vec<Option<CaptionFile>>, SegmentError> {
    match (given, recordings) {
        (Some(path), [_]) => Ok(vec![Some(read(path)?)]),
        (Some(path), _) => Err(SegmentError::OneCaptions(path.to_owned(), recordings.len())),
        (None, _) => recordings.iter().map(|path| beside(path)).collect(),
    }
}

fn read(path: &Path) -> Result<CaptionFile, SegmentError> {
    let bytes = fs::read(path).map_err(|error| SegmentError::Recording(path.to_owned(), error.into()))?;
    let captions = parse_captions(&bytes).map_err(|error| SegmentError::Captions(path.to_owned(), error))?;
    Ok(CaptionFile { path: path.to_owned(), captions, hash: xxhash_rust::xxh3::xxh3_64(&bytes) })
}

/// The only file beside a recording that has its name and captions in it.
fn beside(recording: &Path) -> Result<Option<CaptionFile>, SegmentError> {
    let dir = recording.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found: Vec<CaptionFile> = Vec::new();
    let mut candidates: Vec<PathBuf> = fs::read_dir(dir).into_iter().flatten().flatten().map(|it| it.path()).collect();
    candidates.sort();
    for path in candidates.into_iter().filter(|path| is_named_after(path, recording)) {
        // As it was given: without `./`.
        let path = if dir == Path::new(".") && !recording.starts_with(".") {
            PathBuf::from(path.file_name().unwrap_or_default())
        } else {
            path
        };
        match (read(&path), extension(&path).as_str()) {
            (Ok(captions), _) => found.push(captions),
            // These may be anything.
            (Err(SegmentError::Captions(_, CaptionsError::NotCaptions)), "txt") => {}
            (Err(SegmentError::Captions(_, CaptionsError::NoSegments)), "json") => {}
            (Err(error), _) => return Err(error),
        }
    }
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => {
            let paths = found.into_iter().map(|file| file.path).collect();
            Err(SegmentError::SeveralCaptions(recording.to_owned(), paths))
        }
    }
}

/// `talk.srt`, `talk.mp3.srt` and `talk.en.srt` belong to `talk.mp3`.
fn is_named_after(path: &Path, recording: &Path) -> bool {
    if !CAPTIONS.contains(&extension(path).as_str()) || !path.is_file() {
        return false;
    }
    let (own, of) = (stem(path), stem(recording));
    let Some(rest) = own.strip_prefix(&of) else { return false };
    let is_language = |code: &str| {
        let first = code.split(['-', '_']).next().unwrap_or("");
        (2..=3).contains(&first.len()) && code.len() <= 8 && first.bytes().all(|byte| byte.is_ascii_alphabetic())
    };
    match rest.strip_prefix('.') {
        None => rest.is_empty(),
        Some(part) => part.to_lowercase() == extension(recording) || is_language(part),
    }
}

/// The lines of a file that say something.
pub(super) fn texts(path: &Path) -> Result<Vec<String>, SegmentError> {
    let bytes = fs::read(path).map_err(|error| SegmentError::Recording(path.to_owned(), error.into()))?;
    let text = read_text(&bytes).map_err(|line| SegmentError::TextEncoding(path.to_owned(), line))?;
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    Ok(lines.filter(|line| !line.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captions_are_found_by_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = |name: &str| {
            let path = dir.path().join(name);
            fs::write(&path, "x").expect("written");
            path
        };
        let talk = file("talk.mp3");
        for (name, belongs) in [
            ("talk.srt", true),
            ("talk.VTT", true),
            ("talk.mp3.json", true),
            ("talk.en.srt", true),
            ("talk.pt-BR.srt", true),
            ("talk.TextGrid", true),
            ("talk2.srt", false),
            ("talk.part.two.srt", false),
            ("talk.wav", false),
            ("other.srt", false),
        ] {
            assert_eq!(is_named_after(&file(name), &talk), belongs, "{name}");
        }
    }
}
