//! Which format a directory is in, by evidence: names of files, headers, whether the first column is a path that exists,
//! how often a column repeats. What fits two formats is an error that shows both readings.

use std::path::{Path, PathBuf};

use super::error::{Ambiguity, MetadataError, Preview, PreviewClip};
use super::evidence::{Kind, kind_of};
use super::metadata::Metadata;
use super::{Format, audio_folder, common_voice, coqui, json_lines, open_list, shards, vctk};

/// Clips that an error shows in each reading.
const SHOWN: u32 = 3;
/// Characters of a text that an error shows.
const SHOWN_TEXT: usize = 60;
/// What people call the clips that are not trained on; a test set is used where there is no other.
pub(super) const HELD_OUT: [&str; 6] = ["validation", "valid", "val", "dev", "eval", "test"];

/// Which format a directory was read in, and why.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Reading {
    /// The format.
    pub format: Format,
    /// The evidence.
    pub why: Evidence,
}

/// What a format was recognized by.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// It was not: it was given.
    Given,
    /// This list has a column `file_name`.
    FileName(String),
    /// This list has the columns `path` and `sentence`.
    PathAndSentence(String),
    /// The lines of this list are objects with audio and text.
    Objects(String),
    /// Directories of texts and of audio files.
    Directories,
    /// The header names audio and text.
    Header,
    /// The columns are an id and a text.
    IdAndText,
    /// The third column is the second as it is spoken.
    Normalized,
    /// The second column repeats, the third is the text.
    Repeats {
        /// Different values that were seen in it.
        speakers: usize,
        /// Rows that were looked at.
        rows: usize,
    },
    /// The first column is a path.
    Path,
    /// There are tar files and no list.
    OnlyTar,
    /// There are parquet files and no list.
    OnlyParquet,
}

/// The lists of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lists {
    pub(super) all: PathBuf,
    pub(super) training: PathBuf,
    pub(super) validation: Option<PathBuf>,
}

/// What a directory was found to be.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) reading: Reading,
    pub(super) lists: Lists,
}

/// Finds out what a directory is, or takes the format that is given.
pub(super) fn detect(dir: &Path, given: Option<Format>, audio_dir: &str) -> Result<Found, MetadataError> {
    if !dir.is_dir() {
        return Err(MetadataError::NotADir(dir.to_owned()));
    }
    if let Some(format) = given {
        let lists = lists(dir, format, false).ok_or_else(|| MetadataError::NotInFormat(dir.to_owned(), format))?;
        return Ok(Found { reading: Reading { format, why: Evidence::Given }, lists });
    }
    let mut found = Vec::new();
    for format in [Format::AudioFolder, Format::CommonVoice, Format::JsonLines, Format::Vctk] {
        let why = |lists: &Lists| {
            let file = lists.all.strip_prefix(dir).unwrap_or(&lists.all).display().to_string();
            match format {
                Format::AudioFolder => Evidence::FileName(file),
                Format::CommonVoice => Evidence::PathAndSentence(file),
                Format::JsonLines => Evidence::Objects(file),
                _ => Evidence::Directories,
            }
        };
        if let Some(lists) = lists(dir, format, true) {
            found.push(Found { reading: Reading { format, why: why(&lists) }, lists });
        }
    }
    let piped = lists(dir, Format::LjSpeech, true).filter(|lists| !audio_folder::is_list(&lists.all));
    if let Some(lists) = piped {
        found.push(piped_format(dir, lists, audio_dir)?);
    }
    // An archive beside a list is an archive; alone, it is a shard.
    if found.is_empty()
        && let Some(lists) = lists(dir, Format::Shards, true)
    {
        let reading = Reading { format: Format::Shards, why: Evidence::OnlyTar };
        return Ok(Found { reading, lists });
    }
    if found.is_empty()
        && let Some(lists) = lists(dir, Format::Parquet, true)
    {
        let reading = Reading { format: Format::Parquet, why: Evidence::OnlyParquet };
        return Ok(Found { reading, lists });
    }
    match found.len() {
        0 => Err(MetadataError::NoMetadata(dir.to_owned())),
        1 => Ok(found.remove(0)),
        _ => Err(two_formats(
            dir,
            dir,
            [&found[0], &found[1]].map(|found| (found.reading.format, &found.lists)),
            audio_dir,
        )),
    }
}

/// The lists that a directory has in a format; `sure`: only what cannot be anything else.
fn lists(dir: &Path, format: Format, sure: bool) -> Option<Lists> {
    let file = |name: &str| Some(dir.join(name)).filter(|path| path.is_file());
    let first = |names: &[&str]| names.iter().find_map(|name| file(name));
    let same = |all: PathBuf, validation| Lists { training: all.clone(), all, validation };
    match format {
        Format::LjSpeech | Format::Piper | Format::Coqui => {
            let all = first(&["metadata.csv", "metadata_train.csv"])?;
            let validation = first(&["metadata_eval.csv", "metadata_val.csv"]);
            // With validation rows of its own, none of them must be among those to train on.
            let training = validation.as_ref().and(file("metadata_train.csv")).unwrap_or_else(|| all.clone());
            Some(Lists { all, training, validation })
        }
        Format::CommonVoice => {
            let all = first(&["train.tsv", "validated.tsv"])?;
            if sure {
                let header = common_voice::header(&Metadata::open_file(&all).ok()?);
                let has = |wanted: &str| header.iter().any(|name| name == wanted);
                (has("path") && has("sentence")).then_some(())?;
            }
            Some(same(all, HELD_OUT.iter().find_map(|name| file(&format!("{name}.tsv")))))
        }
        Format::JsonLines => {
            let named = |stem: &str| {
                let both = ["jsonl", "json"]
                    .map(|extension| [format!("{stem}.{extension}"), format!("{stem}_manifest.{extension}")]);
                both.concat().iter().find_map(|name| file(name)).filter(|path| !sure || json_lines::is_list(path))
            };
            let all = ["manifest", "train", "metadata"].iter().find_map(|stem| named(stem))?;
            (!sure || !audio_folder::is_list(&all)).then_some(())?;
            Some(same(all, HELD_OUT.iter().find_map(|stem| named(stem))))
        }
        Format::AudioFolder => {
            let list = |below: &str| {
                let paths = ["metadata.csv", "metadata.jsonl"].map(|name| dir.join(below).join(name));
                paths.into_iter().find(|path| path.is_file() && audio_folder::is_list(path))
            };
            let all = list("train").or_else(|| list(""))?;
            Some(same(all, HELD_OUT.iter().find_map(|below| list(below))))
        }
        Format::Shards => {
            // What cannot be used is an error of its own when they are opened.
            let there = shards::names(dir, false).map_or(true, |names| !names.is_empty());
            there.then(|| same(dir.to_owned(), None))
        }
        Format::Parquet => {
            let there = !parquet_files(dir, false).is_empty() || !parquet_files(dir, true).is_empty();
            there.then(|| same(dir.to_owned(), None))
        }
        Format::Vctk => {
            let texts = dir.join("txt");
            (texts.is_dir() && vctk::audio_dir(dir).is_some()).then(|| same(texts, None))
        }
    }
}

/// The parquet files of a directory, by name, there or in `data/` as in repositories of Hugging Face's: those for validation are
/// called so (`validation-00000-of-00001.parquet`), or lie in a directory that is.
pub(super) fn parquet_files(dir: &Path, held_out: bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut look = |dir: &Path, of: Option<bool>| {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let first = name.split(['-', '_', '.']).next().unwrap_or_default();
            let held = of.unwrap_or_else(|| HELD_OUT.contains(&first));
            if name.ends_with(".parquet") && !name.starts_with('.') && held == held_out {
                found.push(entry.path());
            }
        }
    };
    look(dir, None);
    look(&dir.join("data"), None);
    look(&dir.join("train"), Some(false));
    for name in HELD_OUT {
        look(&dir.join(name), Some(true));
    }
    found.sort_unstable();
    found
}

/// LJSpeech, Piper or Coqui: all have rows separated by `|`.
fn piped_format(dir: &Path, lists: Lists, audio_dir: &str) -> Result<Found, MetadataError> {
    let metadata = Metadata::open_file(&lists.all)?;
    let found = |format: Format, why: Evidence| Found { reading: Reading { format, why }, lists: lists.clone() };
    if coqui::header(&metadata).is_some() {
        return Ok(found(Format::Coqui, Evidence::Header));
    }
    let formats = match kind_of(&metadata, dir, audio_dir) {
        Kind::Columns => return Ok(found(Format::LjSpeech, Evidence::IdAndText)),
        Kind::Normalized => return Ok(found(Format::LjSpeech, Evidence::Normalized)),
        Kind::SpeakerThenText { speakers, rows } => {
            return Ok(found(Format::Piper, Evidence::Repeats { speakers, rows }));
        }
        Kind::Path => return Ok(found(Format::Coqui, Evidence::Path)),
        Kind::TextOrSpeaker => [Format::LjSpeech, Format::Piper],
        Kind::PathOrId => [Format::LjSpeech, Format::Coqui],
    };
    Err(two_formats(dir, &lists.all, formats.map(|format| (format, &lists)), audio_dir))
}

/// The error that shows the first clips in both readings.
fn two_formats(dir: &Path, path: &Path, readings: [(Format, &Lists); 2], audio_dir: &str) -> MetadataError {
    let previews = readings.map(|(format, lists)| Preview {
        format,
        clips: open_list(format, dir, &lists.all, audio_dir).map(|list| first_clips(&list)).unwrap_or_default(),
    });
    MetadataError::TwoFormats(Box::new(Ambiguity { path: path.to_owned(), previews }))
}

fn first_clips(list: &super::listed::List) -> Vec<PreviewClip> {
    let mut buffer = Vec::new();
    let mut clips = Vec::new();
    for row in 0..SHOWN.min(list.metadata.len() as u32) {
        let fields = list.metadata.read(row, &mut buffer).and_then(|row| list.rows.fields(row));
        clips.extend(fields.ok().map(|fields| PreviewClip {
            audio: fields.audio.to_string(),
            speaker: fields.speaker.as_deref().map(str::to_owned),
            text: shortened(&list.rows.text(fields).unwrap_or_default()),
        }));
    }
    clips
}

fn shortened(text: &str) -> String {
    let line = text.replace(['\n', '\r'], " ");
    match line.char_indices().nth(SHOWN_TEXT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
