//! Clips out of a recording, in one pass; each file is there whole or not at all.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tandem_audio::{AudioError, Recording, open_audio, probe, write_flac, write_wav};

use super::error::SegmentError;
use super::record::OutDir;
use super::{ClipAudio, SegmentStage, SegmentedClip};
use crate::files::{make_readable, sync_dir};

/// Files that are flushed at once.
const FLUSHED_AT_ONCE: usize = 16;

/// Writes the clips that are missing; how many those were.
pub(super) fn clips(
    dir: &OutDir,
    clips: &[SegmentedClip],
    audio: ClipAudio,
    progress: &dyn Fn(SegmentStage, f64, f64),
    stop: &AtomicBool,
) -> Result<usize, SegmentError> {
    let all: f64 = clips.iter().map(|clip| clip.cut.seconds()).sum();
    let (mut written, mut done) = (0, 0.0);
    for own in clips.chunk_by(|clip, next| clip.recording == next.recording) {
        let (there, missing): (Vec<&SegmentedClip>, Vec<&SegmentedClip>) =
            own.iter().partition(|clip| is_whole(&dir.clip(&clip.id, audio)));
        done += there.iter().map(|clip| clip.cut.seconds()).sum::<f64>();
        let clip_done = |clip: &SegmentedClip| {
            done += clip.cut.seconds();
            written += 1;
            progress(SegmentStage::Writing, done, all);
        };
        cut_out(dir, &own[0].recording, &missing, audio, clip_done, stop)?;
    }
    flush(dir, clips, audio)?;
    Ok(written)
}

/// Whether a clip was written earlier. A kill leaves none that is not whole; a power cut may leave an empty one.
fn is_whole(path: &Path) -> bool {
    open_audio(path).is_ok_and(|mut file| probe(&mut file).is_ok())
}

/// Waits until all clips are on the disk, before a list says that they are there. One after the other that would take longer than
/// everything else: a disk takes many at once.
fn flush(dir: &OutDir, clips: &[SegmentedClip], audio: ClipAudio) -> Result<(), SegmentError> {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(clip) = clips.get(next.fetch_add(1, Ordering::Relaxed)) {
            let path = dir.clip(&clip.id, audio);
            File::open(&path).and_then(|file| file.sync_all()).map_err(|error| SegmentError::Io(path, error))?;
        }
        Ok(())
    };
    let flushed: Result<(), SegmentError> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..FLUSHED_AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("it does not panic"))
    });
    flushed?;
    let wavs = dir.path().join("wavs");
    sync_dir(&wavs).map_err(|error| SegmentError::Io(wavs, error))
}

/// Reads a recording up to the last of some clips, which follow each other, and writes them.
fn cut_out(
    dir: &OutDir,
    path: &Path,
    clips: &[&SegmentedClip],
    audio: ClipAudio,
    mut clip_done: impl FnMut(&SegmentedClip),
    stop: &AtomicBool,
) -> Result<(), SegmentError> {
    if clips.is_empty() {
        return Ok(());
    }
    let fail = |error| SegmentError::Recording(path.to_owned(), error);
    let mut recording = Recording::open(path).map_err(fail)?;
    let rate = f64::from(recording.rate());
    let sample = |seconds: f64| (seconds * rate).round() as u64;
    let (mut block, mut before, mut samples) = (Vec::new(), 0u64, Vec::new());
    for clip in clips {
        let (start, end) = (sample(clip.cut.start), sample(clip.cut.end));
        samples.clear();
        loop {
            // What the block has of the clip; the next clip may begin in the same block.
            let inside = |sample: u64| sample.saturating_sub(before).min(block.len() as u64) as usize;
            samples.extend_from_slice(&block[inside(start)..inside(end)]);
            if before + block.len() as u64 >= end {
                break;
            }
            if stop.load(Ordering::Relaxed) {
                return Err(SegmentError::Stopped);
            }
            before += block.len() as u64;
            recording.read(&mut block).map_err(fail)?;
            if block.is_empty() {
                break;
            }
        }
        // The last frame of the levels may be longer than what is left of the recording.
        if samples.is_empty() {
            return Err(fail(AudioError::Truncated { missing: None }));
        }
        write_clip(&dir.clip(&clip.id, audio), &samples, recording.rate(), audio)?;
        clip_done(clip);
    }
    Ok(())
}

fn write_clip(path: &Path, samples: &[f32], rate: u32, audio: ClipAudio) -> Result<(), SegmentError> {
    let mut bytes = Vec::new();
    let encoded = match audio {
        ClipAudio::Wav => write_wav(samples, rate, &mut bytes),
        ClipAudio::Flac => write_flac(samples, rate, &mut bytes),
    };
    encoded.and_then(|()| put(path, &bytes)).map_err(|error| SegmentError::Io(path.to_owned(), error))
}

/// A file that is there whole or not at all, but not flushed yet.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let wavs = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".tmp").tempfile_in(wavs)?;
    file.as_file_mut().write_all(bytes)?;
    make_readable(file.path(), 0o644)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
