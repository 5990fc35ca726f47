//! A corpus packed into WebDataset shards, with the index that reads them at random. Shards are written in parallel, each whole
//! or not at all; what was interrupted resumes with the shards that are missing.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use xxhash_rust::xxh3::Xxh3;

use crate::convert::{ConvertError, file_name, ids_of, is_kept, report};
use crate::fault::{ClipFault, FaultReport};
use crate::files::{make_readable, sync_dir, write_atomically};
use crate::sources::shards::{Header, Shard, ShardRow, checksum, header, index_name, write_line};
use crate::sources::{Record, Source};

/// Clips of a shard, unless something else is asked for: some hundred megabytes of speech.
pub const SHARD_CLIPS: u32 = 1000;
/// Where the rows of finished shards are until all are finished.
const UNDER_WAY: &str = ".pack";
/// What the names of shards that are being written begin with.
const BEGUN_SHARD: &str = ".shard-";
/// Tar files consist of blocks of so many bytes.
const BLOCK: u64 = 512;

/// What was packed.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Packed {
    /// Clips in the shards.
    pub clips: usize,
    /// Shards.
    pub shards: usize,
    /// Shards that were written now; the others were there.
    pub written: usize,
    /// Bytes of all shards.
    pub bytes: u64,
    /// Clips that were not packed, with their reasons.
    pub skipped: Vec<FaultReport>,
}

/// One tar file to be written.
struct Job<'a> {
    source: &'a dyn Source,
    held_out: bool,
    name: String,
    clips: std::ops::Range<u32>,
}

/// Packs the clips of `training`, and those of `validation` apart, into shards of `shard_clips` clips in `out`, which must not
/// be there, be empty, or have been begun from the same clips. `progress(done, all)` hears how many clips are done.
///
/// # Errors
///
/// [`ConvertError`]; after [`ConvertError::Stopped`] or a kill the same call resumes.
pub fn pack(
    training: &dyn Source,
    validation: Option<&dyn Source>,
    out: &Path,
    shard_clips: u32,
    progress: impl Fn(usize, usize) + Sync,
    stop: &AtomicBool,
) -> Result<Packed, ConvertError> {
    let fail = |error| ConvertError::Io(out.to_owned(), error);
    let plan = plan_of(training, validation, shard_clips);
    let under_way = out.join(UNDER_WAY);
    let begun = || fs::read_to_string(under_way.join("plan")).is_ok_and(|begun| begun == plan);
    let done = || header(&out.join(index_name(false))).is_some_and(|header| header.plan.as_deref() == Some(&plan));
    if !is_untouched(out) && !begun() && !done() {
        return Err(ConvertError::NotEmpty(out.to_owned()));
    }
    let jobs = jobs(training, validation, shard_clips.max(1));
    if is_done(out, &plan, false) && (validation.is_none() || is_done(out, &plan, true)) {
        return finish(out, &jobs, None, 0).map_err(fail);
    }
    fs::create_dir_all(&under_way).map_err(fail)?;
    write_atomically(&under_way.join("plan"), plan.as_bytes()).map_err(fail)?;
    let kept = ids_of(validation);
    let all = jobs.iter().map(|job| job.clips.len()).sum();
    let (next, finished, written) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let failed: Mutex<Option<ConvertError>> = Mutex::default();
    let failure = || failed.lock().unwrap_or_else(|e| e.into_inner());
    let work = || {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let clip_done = || progress(finished.fetch_add(1, Ordering::Relaxed) + 1, all);
            let is_there = is_whole(out, job);
            if is_there {
                job.clips.clone().for_each(|_| clip_done());
            } else if let Err(error) = write_shard(out, job, &kept, &clip_done, stop) {
                failure().get_or_insert(error);
            } else {
                written.fetch_add(1, Ordering::Relaxed);
            }
            if failure().is_some() {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len()) {
            scope.spawn(work);
        }
        work();
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
        return Err(error);
    }
    let packed = finish(out, &jobs, Some(&plan), written.into_inner()).map_err(fail)?;
    if packed.clips == 0 {
        return Err(ConvertError::NothingUsable(packed.skipped.into_iter().take(10).collect()));
    }
    Ok(packed)
}

/// Whether there is nothing yet: a kill before the plan is there leaves nothing but the folder for it.
fn is_untouched(out: &Path) -> bool {
    let Ok(mut entries) = fs::read_dir(out) else { return out.symlink_metadata().is_err() };
    let only_folder = entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == UNDER_WAY));
    only_folder && !out.join(UNDER_WAY).join("plan").exists()
}

/// Changes with everything that is packed.
fn plan_of(training: &dyn Source, validation: Option<&dyn Source>, shard_clips: u32) -> String {
    let mut hash = Xxh3::new();
    hash.update(&shard_clips.to_le_bytes());
    for source in [Some(training), validation].into_iter().flatten() {
        hash.update(&(source.len() as u64).to_le_bytes());
        for clip in 0..source.len() as u32 {
            if let (Ok(record), Ok(identity)) = (source.record(clip), source.identity(clip)) {
                hash.update(format!("{record:?}").as_bytes());
                hash.update(&identity.to_le_bytes());
            }
        }
    }
    format!("{:016x}", hash.digest())
}

fn jobs<'a>(training: &'a dyn Source, validation: Option<&'a dyn Source>, shard_clips: u32) -> Vec<Job<'a>> {
    let first = if validation.is_some() { "train" } else { "shard" };
    let parts = [(Some(training), false, first), (validation, true, "validation")];
    let mut jobs = Vec::new();
    for (source, held_out, name) in parts.into_iter().filter_map(|(source, held, name)| Some((source?, held, name))) {
        let clips = source.len() as u32;
        jobs.extend((0..clips.div_ceil(shard_clips)).map(|number| Job {
            source,
            held_out,
            name: format!("{name}-{number:06}.tar"),
            clips: number * shard_clips..clips.min((number + 1).saturating_mul(shard_clips)),
        }));
    }
    jobs
}

fn rows_path(out: &Path, job: &Job<'_>) -> PathBuf {
    out.join(UNDER_WAY).join(format!("{}.jsonl", job.name))
}

/// Whether a shard was finished earlier: its rows are written after it.
fn is_whole(out: &Path, job: &Job<'_>) -> bool {
    let known = header(&rows_path(out, job)).and_then(|header| Some(header.shards.first()?.bytes));
    fs::metadata(out.join(&job.name)).is_ok_and(|metadata| known == Some(metadata.len()))
}

/// Whether everything is packed: the indexes are there, of this plan, and so are all shards.
fn is_done(out: &Path, plan: &str, held_out: bool) -> bool {
    let there = |shard: &Shard| fs::metadata(out.join(&shard.name)).is_ok_and(|file| file.len() == shard.bytes);
    let header = header(&out.join(index_name(held_out))).filter(|header| header.plan.as_deref() == Some(plan));
    header.is_some_and(|header| header.shards.iter().all(there))
}

/// Counts what is written.
struct Counted<W> {
    inner: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn write_shard(
    out: &Path,
    job: &Job<'_>,
    kept: &HashSet<u64>,
    clip_done: &dyn Fn(),
    stop: &AtomicBool,
) -> Result<(), ConvertError> {
    let target = out.join(&job.name);
    let fail = |error| ConvertError::Io(target.clone(), error);
    let file = tempfile::Builder::new().prefix(BEGUN_SHARD).tempfile_in(out).map_err(fail)?;
    let mut tar = tar::Builder::new(Counted { inner: BufWriter::new(file), bytes: 0 });
    let mut rows = Vec::new();
    for clip in job.clips.clone() {
        if stop.load(Ordering::Relaxed) {
            return Err(ConvertError::Stopped);
        }
        match read_clip(job.source, clip) {
            _ if !job.held_out && is_kept(kept, job.source, clip) => {}
            Ok((record, audio)) => {
                let row = append(&mut tar, job, record, clip, &audio).map_err(fail)?;
                write_line(&mut rows, &row).map_err(fail)?;
            }
            Err(ClipFault::Unreachable(error)) => return Err(fail(io::Error::other(error))),
            Err(fault) => write_line(&mut rows, &json!({"skipped": report(job.source, clip, &fault)})).map_err(fail)?,
        }
        clip_done();
    }
    let Counted { inner, bytes } = tar.into_inner().map_err(fail)?;
    let file = inner.into_inner().map_err(|error| fail(error.into_error()))?;
    make_readable(file.path(), 0o644).map_err(fail)?;
    file.as_file().sync_all().map_err(fail)?;
    file.persist(&target).map_err(|error| fail(error.error))?;
    sync_dir(out).map_err(fail)?;
    // After the shard: a shard without rows is written again.
    let mut list = Vec::new();
    let shard = Shard { name: job.name.clone(), bytes, date: None };
    write_line(&mut list, &Header::new(None, vec![shard])).map_err(fail)?;
    list.extend(rows);
    write_atomically(&rows_path(out, job), &list).map_err(fail)
}

fn read_clip(source: &dyn Source, clip: u32) -> Result<(Record, Vec<u8>), ClipFault> {
    let record = source.record(clip)?;
    let mut audio = Vec::new();
    source.audio(clip)?.read_to_end(&mut audio).map_err(|error| ClipFault::Audio(error.into()))?;
    if audio.is_empty() {
        return Err(ClipFault::Audio(tandem_audio::AudioError::ZeroBytes));
    }
    Ok((record, audio))
}

/// Appends the members of a clip; its row in the index.
fn append(
    tar: &mut tar::Builder<Counted<BufWriter<tempfile::NamedTempFile>>>,
    job: &Job<'_>,
    record: Record,
    clip: u32,
    audio: &[u8],
) -> io::Result<ShardRow> {
    // WebDataset's keys end at the first dot.
    let key = file_name(&record.id).replace('.', "_");
    let extension = job.source.extension(clip).unwrap_or_else(|| "wav".to_owned()).to_lowercase();
    let mut member = |extension: &str, bytes: &[u8]| -> io::Result<u64> {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        tar.append_data(&mut header, format!("{key}.{extension}"), bytes)?;
        Ok(tar.get_ref().bytes - (bytes.len() as u64).next_multiple_of(BLOCK))
    };
    let at = member(&extension, audio)?;
    member("txt", record.text.as_bytes())?;
    let speaker = job.source.speakers().get(usize::from(record.speaker)).cloned();
    let language = record.language.map(|language| language.code().to_owned());
    if speaker.is_some() || language.is_some() {
        let object = json!({"text": record.text, "speaker": speaker, "language": language});
        member("json", object.to_string().as_bytes())?;
    }
    let (shard, bytes, xxh3) = (job.name.clone(), audio.len() as u64, Some(checksum(audio)));
    Ok(ShardRow { key, shard, extension, at, bytes, xxh3, text: Some(record.text), speaker, language, fault: None })
}

/// Puts the rows of all shards into the indexes, unless they are there, and counts.
fn finish(out: &Path, jobs: &[Job<'_>], plan: Option<&str>, written: usize) -> io::Result<Packed> {
    let mut packed = Packed { shards: jobs.len(), written, ..Packed::default() };
    for held_out in [true, false] {
        let mine: Vec<&Job<'_>> = jobs.iter().filter(|job| job.held_out == held_out).collect();
        let path = out.join(index_name(held_out));
        if mine.is_empty() {
            continue;
        }
        if let Some(plan) = plan {
            let shard = |job: &&Job<'_>| {
                let bytes = fs::metadata(out.join(&job.name))?.len();
                Ok(Shard { name: job.name.clone(), bytes, date: None })
            };
            let shards = mine.iter().map(shard).collect::<io::Result<Vec<Shard>>>()?;
            let mut file = tempfile::NamedTempFile::new_in(out)?;
            let mut index = BufWriter::new(file.as_file_mut());
            write_line(&mut index, &Header::new(Some(plan.to_owned()), shards))?;
            for job in &mine {
                let rows = fs::read(rows_path(out, job))?;
                let rows = rows.split_inclusive(|&byte| byte == b'\n').skip(1);
                rows.filter(|row| !row.starts_with(b"{\"skipped\"")).try_for_each(|row| index.write_all(row))?;
            }
            index.flush()?;
            drop(index);
            make_readable(file.path(), 0o644)?;
            file.as_file().sync_all()?;
            file.persist(&path).map_err(|error| error.error)?;
        }
        for job in &mine {
            packed.bytes += fs::metadata(out.join(&job.name))?.len();
            for row in fs::read(rows_path(out, job)).unwrap_or_default().split(|&byte| byte == b'\n') {
                let row: serde_json::Value = serde_json::from_slice(row).unwrap_or_default();
                packed.skipped.extend(skipped(&row["skipped"]));
            }
        }
        let lines = io::BufRead::split(io::BufReader::new(File::open(&path)?), b'\n').count();
        packed.clips += lines.saturating_sub(1);
    }
    sync_dir(out)?;
    // What a kill left: every shard is there.
    for entry in fs::read_dir(out)?.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(BEGUN_SHARD.as_bytes()) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_dir_all(out.join(UNDER_WAY));
    Ok(packed)
}

/// A clip that was skipped, as it was written down.
fn skipped(row: &serde_json::Value) -> Option<FaultReport> {
    let text = |key: &str| row[key].as_str().map(str::to_owned);
    Some(FaultReport {
        id: text("id")?,
        path: text("path").map(PathBuf::from),
        kind: "skipped".into(),
        reason: text("reason")?,
        limit: false,
    })
}
