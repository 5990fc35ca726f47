//! Clips out of a recording, in one pass; each file is there whole or not at all.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use tandem_audio::{AudioError, Recording, write_flac, write_wav};

use super::error::SegmentError;
use super::record::OutDir;
use super::{ClipAudio, SegmentStage, SegmentedClip};
use crate::files::write_atomically;

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
            own.iter().partition(|clip| dir.clip(&clip.id, audio).exists());
        done += there.iter().map(|clip| clip.cut.seconds()).sum::<f64>();
        let clip_done = |clip: &SegmentedClip| {
            done += clip.cut.seconds();
            written += 1;
            progress(SegmentStage::Writing, done, all);
        };
        cut_out(dir, &own[0].recording, &missing, audio, clip_done, stop)?;
    }
    Ok(written)
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
    encoded.and_then(|()| write_atomically(path, &bytes)).map_err(|error| SegmentError::Io(path.to_owned(), error))
}
