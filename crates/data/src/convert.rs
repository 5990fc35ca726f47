//! A corpus written in another format: its metadata, and its audio files by hard link or copy, never decoded.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tandem_audio::probe;
use tandem_text::Language;
use xxhash_rust::xxh3::xxh3_64;

use crate::fault::{ClipFault, FaultReport};
use crate::files::{make_readable, sync_dir};
use crate::pack::{Packed, SHARD_CLIPS, pack};
use crate::sources::{Format, Record, Source};

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Conversion {
    /// Clips.
    pub clips: usize,
    /// Audio files that are links to those of the corpus.
    pub linked: usize,
    /// Audio files that are copies.
    pub copied: usize,
    /// Clips that could not be written, with their reasons.
    pub skipped: Vec<FaultReport>,
}

/// Why a corpus is not written in another format.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConvertError {
    /// There is something already.
    NotEmpty(PathBuf),
    /// It cannot be written.
    Io(PathBuf, io::Error),
    /// Not one clip can be written; the first reasons.
    NothingUsable(Vec<FaultReport>),
    /// Stopped by the user; nothing is left behind.
    Stopped,
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConvertError::NotEmpty(path) => write!(f, "`{}` is there already and not empty", path.display()),
            ConvertError::Io(path, error) => write!(f, "cannot write `{}`: {error}", path.display()),
            ConvertError::NothingUsable(first) => {
                write!(f, "none of the clips can be used")?;
                first.iter().try_for_each(|report| write!(f, "\n  {}: {}", report.id, report.reason))
            }
            ConvertError::Stopped => write!(f, "stopped"),
        }
    }
}

impl std::error::Error for ConvertError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConvertError::Io(_, error) => Some(error),
            _ => None,
        }
    }
}

/// Writes the clips of `training`, and those of `validation` apart, in a format; `out` must not be there, or be empty, and is
/// there whole or not at all. `progress(done, all)` hears how far it is.
///
/// # Errors
///
/// [`ConvertError`]; also for a format that is not [written](Format::WRITTEN).
pub fn convert(
    training: &dyn Source,
    validation: Option<&dyn Source>,
    to: Format,
    out: &Path,
    progress: impl Fn(usize, usize) + Sync,
    stop: &AtomicBool,
) -> Result<Conversion, ConvertError> {
    if to == Format::Shards {
        let Packed { clips, skipped, .. } = pack(training, validation, out, SHARD_CLIPS, progress, stop)?;
        return Ok(Conversion { clips, linked: 0, copied: clips, skipped });
    }
    let fail = |error| ConvertError::Io(out.to_owned(), error);
    if !Format::WRITTEN.contains(&to) {
        return Err(fail(io::ErrorKind::Unsupported.into()));
    }
    if fs::read_dir(out).map_or(out.symlink_metadata().is_ok(), |mut entries| entries.next().is_some()) {
        return Err(ConvertError::NotEmpty(out.to_owned()));
    }
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(fail)?;
    let made = tempfile::Builder::new().prefix(".tandem-convert-").tempdir_in(parent).map_err(fail)?;
    let all = training.len() + validation.map_or(0, Source::len);
    let mut done = Conversion::default();
    let kept = ids_of(validation);
    for (source, held_out) in [(Some(training), false), (validation, true)] {
        let Some(source) = source else { continue };
        let mut list = List::create(made.path(), to, source, held_out, validation.is_some()).map_err(fail)?;
        for clip in 0..source.len() as u32 {
            if stop.load(Ordering::Relaxed) {
                return Err(ConvertError::Stopped);
            }
            if !held_out && is_kept(&kept, source, clip) {
                continue;
            }
            match list.add(source, clip) {
                Ok(linked) => {
                    done.clips += 1;
                    *(if linked { &mut done.linked } else { &mut done.copied }) += 1;
                }
                Err(NotAdded::Clip(ClipFault::Unreachable(error))) => return Err(fail(io::Error::other(error))),
                Err(NotAdded::Clip(fault)) => done.skipped.push(report(source, clip, &fault)),
                Err(NotAdded::Io(error)) => return Err(fail(error)),
            }
            progress(done.clips + done.skipped.len(), all);
        }
        list.finish().map_err(fail)?;
    }
    if done.clips == 0 {
        done.skipped.truncate(10);
        return Err(ConvertError::NothingUsable(done.skipped));
    }
    make_readable(made.path(), 0o755).map_err(fail)?;
    let _ = fs::remove_dir(out); // an empty one
    fs::rename(made.path(), out).map_err(fail)?;
    let _ = made.keep();
    sync_dir(parent).map_err(fail)?;
    Ok(done)
}

/// Hashes of the ids for validation: rows that are in both lists are not trained on.
pub(crate) fn ids_of(validation: Option<&dyn Source>) -> HashSet<u64> {
    let ids = validation.map(|source| (0..source.len() as u32).filter_map(|clip| source.id(clip)));
    ids.into_iter().flatten().map(|id| xxh3_64(id.as_bytes())).collect()
}

/// Whether a clip is one of those for validation.
pub(crate) fn is_kept(kept: &HashSet<u64>, source: &dyn Source, clip: u32) -> bool {
    !kept.is_empty() && source.id(clip).is_some_and(|id| kept.contains(&xxh3_64(id.as_bytes())))
}

/// A clip that is not written, and why.
pub(crate) fn report(source: &dyn Source, clip: u32, fault: &ClipFault) -> FaultReport {
    FaultReport {
        id: source.id(clip).unwrap_or_else(|| format!("line {}", source.line(clip))),
        path: source.path(clip),
        kind: fault.kind().into(),
        reason: fault.to_string(),
        limit: false,
    }
}

enum NotAdded {
    Clip(ClipFault),
    Io(io::Error),
}

impl From<io::Error> for NotAdded {
    fn from(error: io::Error) -> Self {
        NotAdded::Io(error)
    }
}

impl From<ClipFault> for NotAdded {
    fn from(fault: ClipFault) -> Self {
        NotAdded::Clip(fault)
    }
}

/// The list of a part of the corpus while it is written.
struct List {
    format: Format,
    /// Audio files are named from here.
    dir: PathBuf,
    rows: BufWriter<File>,
    /// Beside an LJSpeech list.
    speakers: Option<BufWriter<File>>,
    named: bool,
    with_language: bool,
    names: HashSet<String>,
    made_dirs: BTreeSet<PathBuf>,
}

impl List {
    fn create(out: &Path, format: Format, source: &dyn Source, held_out: bool, split: bool) -> io::Result<List> {
        let name = match (format, split, held_out) {
            (Format::LjSpeech | Format::Piper | Format::Coqui, false, _) => "metadata.csv",
            (Format::LjSpeech | Format::Piper | Format::Coqui, true, false) => "metadata_train.csv",
            (Format::LjSpeech | Format::Piper | Format::Coqui, true, true) => "metadata_eval.csv",
            (Format::CommonVoice, _, false) => "train.tsv",
            (Format::CommonVoice, _, true) => "dev.tsv",
            (Format::JsonLines, false, _) => "manifest.jsonl",
            (Format::JsonLines, true, false) => "train.jsonl",
            (Format::JsonLines, true, true) => "validation.jsonl",
            (Format::AudioFolder, false, _) => "metadata.csv",
            (Format::AudioFolder, true, false) => "train/metadata.csv",
            (Format::AudioFolder, true, true) => "validation/metadata.csv",
            // There is no list; what is written is a note for people.
            (Format::Vctk | Format::Shards | Format::Parquet, ..) => "log.txt",
        };
        let list = out.join(name);
        let dir = match format {
            Format::AudioFolder => list.parent().unwrap_or(out).to_owned(),
            _ => out.to_owned(),
        };
        fs::create_dir_all(&dir)?;
        let append = |path: &Path| File::options().create(true).append(true).open(path).map(BufWriter::new);
        let named = !source.speakers().is_empty();
        let speakers = (format == Format::LjSpeech && named).then(|| append(&out.join("speakers.csv"))).transpose()?;
        let mut rows = append(&list)?;
        let with_language = (0..source.len().min(100) as u32)
            .any(|clip| source.record(clip).is_ok_and(|record| record.language.is_some()));
        let column = |on: bool, name: &'static str| if on { name } else { "" };
        match format {
            Format::Coqui => {
                let (speaker, language) = (column(named, "|speaker_name"), column(with_language, "|language"));
                writeln!(rows, "audio_file|text{speaker}{language}")?;
            }
            Format::CommonVoice => writeln!(rows, "client_id\tpath\tsentence\tlocale")?,
            Format::AudioFolder => {
                let (speaker, language) = (column(named, ",speaker"), column(with_language, ",language"));
                writeln!(rows, "file_name,text{speaker}{language}")?;
            }
            _ => {}
        }
        let (names, made_dirs) = (HashSet::new(), BTreeSet::new());
        Ok(List { format, dir, rows, speakers, named, with_language, names, made_dirs })
    }

    /// Writes a clip; whether its audio is a link.
    fn add(&mut self, source: &dyn Source, clip: u32) -> Result<bool, NotAdded> {
        let Record { id, text, speaker, language } = source.record(clip)?;
        let extension = source.extension(clip).unwrap_or_else(|| "wav".to_owned());
        let speaker = source.speakers().get(usize::from(speaker)).map_or("", String::as_str);
        let id = self.unused_name(&id);
        let file = match self.format {
            Format::CommonVoice => format!("clips/{id}.{extension}"),
            Format::Vctk => {
                let speaker = file_name(if speaker.is_empty() { "speaker" } else { speaker });
                format!("wav48/{speaker}/{id}.{extension}")
            }
            _ => format!("wavs/{id}.{extension}"),
        };
        let target = self.dir.join(&file);
        if let Some(parent) = target.parent()
            && self.made_dirs.insert(parent.to_owned())
        {
            fs::create_dir_all(parent)?;
        }
        let linked = put_audio(source, clip, &target)?;
        let duration = || -> Result<f64, ClipFault> {
            let shape = probe(&mut *source.audio(clip)?)?;
            Ok(shape.samples as f64 / f64::from(shape.rate.max(1)))
        };
        // A row is a line; nothing else of a text is changed.
        let line = text.replace(['\n', '\r', '\t'], " ");
        let code = language.as_ref().map_or("", Language::code);
        match self.format {
            Format::LjSpeech => {
                writeln!(self.rows, "{id}|{}", piped(&line))?;
                if let Some(speakers) = &mut self.speakers {
                    let code = if code.is_empty() { String::new() } else { format!("|{code}") };
                    writeln!(speakers, "{id}|{}{code}", speaker.replace('|', " "))?;
                }
            }
            Format::Piper if self.named => writeln!(self.rows, "{id}|{}|{}", piped(speaker), piped(&line))?,
            Format::Piper => writeln!(self.rows, "{id}|{}", piped(&line))?,
            Format::Coqui => {
                let speaker = if self.named { format!("|{}", piped(speaker)) } else { String::new() };
                let code = if self.with_language { format!("|{code}") } else { String::new() };
                writeln!(self.rows, "{file}|{}{speaker}{code}", piped(&line))?;
            }
            Format::CommonVoice => {
                let name = file.trim_start_matches("clips/");
                writeln!(self.rows, "{}\t{name}\t{}\t{code}", speaker.replace('\t', " "), tabbed(&line))?;
            }
            Format::JsonLines => {
                let mut object = json!({"audio_filepath": file, "text": text, "duration": duration()?});
                if self.named {
                    object["speaker"] = json!(speaker);
                }
                if !code.is_empty() {
                    object["lang"] = json!(code);
                }
                writeln!(self.rows, "{object}")?;
            }
            Format::AudioFolder => {
                let speaker = if self.named { format!(",{}", quoted(speaker)) } else { String::new() };
                let code = if self.with_language { format!(",{code}") } else { String::new() };
                writeln!(self.rows, "{},{}{speaker}{code}", quoted(&file), quoted(&text))?;
            }
            Format::Shards | Format::Parquet => {}
            Format::Vctk => {
                let text_file = self.dir.join(file.replacen("wav48", "txt", 1)).with_extension("txt");
                if let Some(parent) = text_file.parent() {
                    fs::create_dir_all(parent)?;
                }
                fs::write(&text_file, format!("{line}\n"))?;
                writeln!(self.rows, "{file}")?;
            }
        }
        Ok(linked)
    }

    /// An id as the name of a file that no other clip has.
    fn unused_name(&mut self, id: &str) -> String {
        let name = file_name(id);
        let others = (2..).map(|n| format!("{name}_{n}"));
        let unused = std::iter::once(name.clone()).chain(others).find(|name| !self.names.contains(name));
        let name = unused.unwrap_or(name);
        self.names.insert(name.clone());
        name
    }

    fn finish(mut self) -> io::Result<()> {
        self.rows.flush()?;
        self.rows.get_ref().sync_all()?;
        match self.speakers {
            Some(mut speakers) => speakers.flush(),
            None => Ok(()),
        }
    }
}

/// A link to the audio file of a clip, or a copy of it; whether it is a link.
fn put_audio(source: &dyn Source, clip: u32, target: &Path) -> Result<bool, NotAdded> {
    let mut audio = source.audio(clip)?;
    // A link to a link would end with the link.
    let file = source.path(clip).and_then(|path| path.canonicalize().ok());
    if file.is_some_and(|file| source.extension(clip).is_some() && fs::hard_link(file, target).is_ok()) {
        return Ok(true);
    }
    io::copy(&mut audio, &mut File::create_new(target)?)?;
    Ok(false)
}

/// What may be the name of a file, and of a column.
pub(crate) fn file_name(id: &str) -> String {
    let name: String = id.chars().map(|c| if c.is_control() || "/\\|\"\t".contains(c) { '_' } else { c }).collect();
    match name.as_str() {
        "" | "." | ".." => "_".to_owned(),
        _ => name,
    }
}

/// A field between `|`, in quotes if only they keep it together.
pub(crate) fn piped(field: &str) -> String {
    let opens = field.starts_with('"') && field.matches('"').count() % 2 == 1;
    match (field.contains('|'), opens) {
        (true, _) => quoted(field),
        // Quotes are ordinary characters there, unless one stands first and closes nowhere.
        (false, true) => format!(" {field}"),
        _ => field.to_owned(),
    }
}

/// A field between tabs.
fn tabbed(field: &str) -> String {
    if field.len() > 1 && field.starts_with('"') && field.ends_with('"') {
        return format!("\"{}\"", field.replace('"', "\"\""));
    }
    field.to_owned()
}

/// A field of a CSV file, in quotes if it needs them.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r', '|']) {
        return format!("\"{}\"", field.replace('"', "\"\""));
    }
    field.to_owned()
}
