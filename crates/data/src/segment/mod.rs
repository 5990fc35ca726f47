//! Long recordings to a corpus of clips: an LJSpeech directory that every other command reads.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `captions/` | [`parse_captions`]: what is said when, from SRT, VTT, Whisper's JSON, TextGrids and Audacity's labels |
//! | `levels.rs` | [`Levels`]: how loud a recording is, ten milliseconds at a time |
//! | `vad.rs` | [`Activity`]: where there is speech, against a noise floor that adapts |
//! | `cuts.rs` | [`cut_captions`], [`cut_pauses`]: where it is cut; pure |
//! | `odd.rs` | [`odd_clips`]: which clips to look at first |
//! | `files.rs` | recordings, and the captions that lie beside them |
//! | `record.rs` | what is known of a recording, kept so that a kill loses nothing |
//! | `write.rs` | clips out of a recording, each there whole or not at all |
//! | `error.rs` | [`SegmentError`] |
//!
//! A recording is decoded twice, block by block: once for its levels, once for its clips. So memory does not grow with its length,
//! but for a byte each ten milliseconds and its captions.

mod captions;
mod cuts;
mod error;
mod files;
mod levels;
mod odd;
mod record;
mod vad;
mod write;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use tandem_audio::Recording;

pub use captions::{
    Caption, CaptionFault, CaptionKind, CaptionPlace, Captions, CaptionsError, TimedWord, parse_captions,
};
pub use cuts::{Cut, CutSettings, Cuts, cut_captions, cut_pauses};
pub use error::SegmentError;
pub use files::find_recordings;
pub use levels::{LevelMeter, Levels};
pub use odd::{Oddity, odd_clips};
pub use vad::Activity;

use crate::files::write_atomically;
use record::{Known, OutDir};

/// What clips are written as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClipAudio {
    /// 16-bit WAV.
    #[default]
    Wav,
    /// 16-bit FLAC, half as large.
    Flac,
}

impl ClipAudio {
    /// Of its files.
    pub fn extension(self) -> &'static str {
        match self {
            ClipAudio::Wav => "wav",
            ClipAudio::Flac => "flac",
        }
    }
}

/// How recordings become clips.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SegmentSettings {
    /// Where they are cut.
    pub cuts: CutSettings,
    /// What clips are written as.
    pub audio: ClipAudio,
    /// The captions of the only recording; else those that lie beside each.
    pub captions: Option<PathBuf>,
    /// A line for each clip that has no captions.
    pub texts: Option<PathBuf>,
}

/// A clip of a corpus that was, or would be, made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SegmentedClip {
    /// Its id in `metadata.csv` and the name of its file.
    pub id: String,
    /// The recording that it is a part of.
    pub recording: PathBuf,
    /// Where it lies in the recording.
    #[serde(flatten)]
    pub cut: Cut,
    /// How loud it and half a second on either side are, for drawing: a letter for each part, `0` to `9` and `A` to `Z`.
    pub strip: String,
}

/// A caption, or speech without one, that is in no clip.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedSpeech {
    /// The file that names it: captions, or the recording.
    pub path: PathBuf,
    /// Where in the file.
    pub place: String,
    /// A short name that does not change.
    pub kind: String,
    /// In words.
    pub reason: String,
}

/// What was made of recordings.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Segmented {
    /// Recordings.
    pub recordings: usize,
    /// Those with captions.
    pub captioned: usize,
    /// Seconds of the recordings.
    pub recorded_seconds: f64,
    /// Seconds of the clips.
    pub seconds: f64,
    /// Clips whose files were written now.
    pub written: usize,
    /// Clips without a text, for somebody to write.
    pub without_text: usize,
    /// Speakers that are named.
    pub speakers: usize,
    /// Clips without a speaker although others have one.
    pub without_speaker: usize,
    /// The clips, in order.
    pub clips: Vec<SegmentedClip>,
    /// What is in no clip.
    pub skipped: Vec<SkippedSpeech>,
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentStage {
    /// A recording is listened to.
    Listening,
    /// Clips are written.
    Writing,
}

/// Cuts recordings into clips and writes them to `out` as an LJSpeech corpus; without `out` it only says where it would cut. `out` must
/// not be there, be empty, or have been begun with the same settings: nothing is overwritten, and what a kill interrupted
/// resumes. `progress(stage, seconds, of)` hears how far it is.
///
/// # Errors
///
/// [`SegmentError`]; after [`SegmentError::Stopped`] or a kill the same call resumes.
pub fn segment(
    recordings: &[PathBuf],
    out: Option<&Path>,
    settings: &SegmentSettings,
    progress: &dyn Fn(SegmentStage, f64, f64),
    stop: &AtomicBool,
) -> Result<Segmented, SegmentError> {
    let CutSettings { min_seconds, max_seconds, .. } = settings.cuts;
    if 2.0 * min_seconds > max_seconds {
        return Err(SegmentError::Lengths(min_seconds, max_seconds));
    }
    let names = files::names(recordings)?;
    let captions = files::captions(recordings, settings.captions.as_deref())?;
    let texts = settings.texts.as_deref().map(files::texts).transpose()?;
    let dir = out.map(|out| OutDir::begin(out, settings)).transpose()?;
    let known = listen_to_all(recordings, &names, &captions, dir.as_ref(), settings, progress, stop)?;
    let mut segmented = collect(recordings, &known, &names, &captions);
    fill_in(&mut segmented.clips, texts, settings)?;
    segmented.without_text = segmented.clips.iter().filter(|clip| clip.cut.text.is_empty()).count();
    if segmented.clips.is_empty() {
        return Err(SegmentError::NothingToCut(segmented.skipped.into_iter().take(10).collect()));
    }
    if let Some(dir) = dir {
        let identity = record::identity_of_all(&known, settings)?;
        if !dir.is_done(&identity)? {
            segmented.written = write::clips(&dir, &segmented.clips, settings.audio, progress, stop)?;
            write_lists(&dir, &segmented.clips, &identity)?;
        }
    }
    Ok(segmented)
}

/// The cuts of every recording: remembered, or found by listening.
fn listen_to_all(
    recordings: &[PathBuf],
    names: &[String],
    captions: &[Option<files::CaptionFile>],
    dir: Option<&OutDir>,
    settings: &SegmentSettings,
    progress: &dyn Fn(SegmentStage, f64, f64),
    stop: &AtomicBool,
) -> Result<Vec<Known>, SegmentError> {
    let opened: Result<Vec<f64>, SegmentError> = recordings.iter().map(|path| files::expected_seconds(path)).collect();
    let (expected, mut done) = (opened?, 0.0);
    let all: f64 = expected.iter().sum();
    let mut known = Vec::with_capacity(recordings.len());
    for (n, path) in recordings.iter().enumerate() {
        let identity = record::identity(path, captions[n].as_ref(), settings)?;
        let remembered = dir.and_then(|dir| dir.remembered(&names[n], &identity));
        let found = match remembered {
            Some(remembered) => remembered,
            // Texts of that corpus may have been written by hand.
            None if dir.is_some_and(OutDir::has_lists) => {
                return Err(SegmentError::NotEmpty(dir.map(|dir| dir.path().to_owned()).unwrap_or_default()));
            }
            None => {
                let hear = |seconds: f64| progress(SegmentStage::Listening, done + seconds, all);
                let found = listen(path, identity, captions[n].as_ref(), settings, &hear, stop)?;
                if let Some(dir) = dir {
                    dir.remember(&names[n], &found)?;
                }
                found
            }
        };
        done += expected[n];
        progress(SegmentStage::Listening, done, all);
        known.push(found);
    }
    Ok(known)
}

/// Decides where a recording is cut.
fn listen(
    path: &Path,
    identity: String,
    captions: Option<&files::CaptionFile>,
    settings: &SegmentSettings,
    hear: &dyn Fn(f64),
    stop: &AtomicBool,
) -> Result<Known, SegmentError> {
    let levels = measure(path, hear, stop)?;
    let skip = |path: &Path, place: String, kind: &str, reason: String| SkippedSpeech {
        path: path.to_owned(),
        place,
        kind: kind.to_owned(),
        reason,
    };
    let (cuts, skipped) = match captions {
        Some(file) => {
            let Cuts { cuts, skipped, .. } = cut_captions(&levels, &file.captions.captions, &settings.cuts);
            let mut faults: Vec<_> = file.captions.faults.iter().chain(&skipped).collect();
            faults.sort_by_key(|(place, _)| match *place {
                CaptionPlace::Line(n) | CaptionPlace::Segment(n) | CaptionPlace::Interval(n) => n,
            });
            let of = |(place, fault): &(CaptionPlace, CaptionFault)| {
                skip(&file.path, place.to_string(), fault.kind(), fault.to_string())
            };
            (cuts, faults.into_iter().map(of).collect())
        }
        None => {
            let Cuts { cuts, too_short, .. } = cut_pauses(&levels, &settings.cuts);
            let of = |(start, end): (f64, f64)| {
                let fault = CaptionFault::TooShort(end - start);
                skip(path, format!("at {start:.2} s"), fault.kind(), fault.to_string())
            };
            (cuts, too_short.into_iter().map(of).collect())
        }
    };
    let strips = cuts.iter().map(|cut| strip(&levels, cut)).collect();
    Ok(Known { identity, seconds: levels.seconds(), cuts, strips, skipped })
}

/// The levels of a recording, block by block.
fn measure(path: &Path, hear: &dyn Fn(f64), stop: &AtomicBool) -> Result<Levels, SegmentError> {
    let fail = |error| SegmentError::Recording(path.to_owned(), error);
    let mut recording = Recording::open(path).map_err(fail)?;
    let mut meter = LevelMeter::new(recording.rate());
    let mut block = Vec::new();
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(SegmentError::Stopped);
        }
        recording.read(&mut block).map_err(fail)?;
        if block.is_empty() {
            return Ok(meter.finish());
        }
        meter.push(&block);
        hear(recording.samples() as f64 / f64::from(recording.rate()));
    }
}

/// Letters of a strip, the quietest first.
const LETTERS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// The most letters of a strip.
const STRIP: usize = 240;
/// Seconds of a strip before and after the clip.
pub const STRIP_AROUND_S: f64 = 0.5;

/// How loud a clip is, for drawing.
fn strip(levels: &Levels, cut: &Cut) -> String {
    let (from, to) = (cut.start - STRIP_AROUND_S, cut.end + STRIP_AROUND_S);
    let count = ((to - from) * levels::FRAMES_PER_SECOND).min(STRIP as f64) as usize;
    let letter = |n: usize| {
        let at = |n: usize| from + (to - from) * n as f64 / count as f64;
        // Nothing is heard before the beginning and after the end.
        let frames = levels::frame(at(n))..levels::frame(at(n + 1)).max(levels::frame(at(n)) + 1);
        let inside = frames.start.min(levels.len())..frames.end.min(levels.len());
        let loudest = if at(n) < 0.0 { None } else { levels.steps()[inside].iter().max() };
        // From -75 dBFS to -5.
        let share = loudest.map_or(0.0, |&steps| (levels::db_of(f64::from(steps)) + 75.0) / 70.0);
        char::from(LETTERS[((share * 36.0).max(0.0) as usize).min(35)])
    };
    (0..count).map(letter).collect()
}

/// The heights of a strip, from 0 to 1.
pub fn strip_heights(strip: &str) -> impl Iterator<Item = f64> + '_ {
    strip.bytes().map(|letter| LETTERS.iter().position(|&other| other == letter).unwrap_or(0) as f64 / 35.0)
}

fn collect(
    recordings: &[PathBuf],
    known: &[Known],
    names: &[String],
    captions: &[Option<files::CaptionFile>],
) -> Segmented {
    let mut segmented = Segmented {
        recordings: known.len(),
        captioned: captions.iter().flatten().count(),
        recorded_seconds: known.iter().map(|known| known.seconds).sum(),
        ..Segmented::default()
    };
    for ((known, name), recording) in known.iter().zip(names).zip(recordings) {
        for (number, (cut, strip)) in (1..).zip(known.cuts.iter().zip(&known.strips)) {
            segmented.seconds += cut.seconds();
            let id = clip_id(name, number);
            let recording = recording.clone();
            segmented.clips.push(SegmentedClip { id, recording, cut: cut.clone(), strip: strip.clone() });
        }
        segmented.skipped.extend(known.skipped.iter().cloned());
    }
    let names: BTreeSet<&str> = segmented.clips.iter().filter_map(|clip| clip.cut.speaker.as_deref()).collect();
    segmented.speakers = names.len();
    if !names.is_empty() {
        segmented.without_speaker = segmented.clips.iter().filter(|clip| clip.cut.speaker.is_none()).count();
    }
    segmented
}

/// What a clip of a recording is called.
fn clip_id(recording: &str, number: usize) -> String {
    format!("{recording}-{number:04}")
}

/// Puts the lines of a file of texts to the clips without captions, if there are as many.
fn fill_in(
    clips: &mut [SegmentedClip],
    texts: Option<Vec<String>>,
    settings: &SegmentSettings,
) -> Result<(), SegmentError> {
    let (Some(texts), Some(path)) = (texts, settings.texts.clone()) else { return Ok(()) };
    let mut silent: Vec<&mut SegmentedClip> = clips.iter_mut().filter(|clip| clip.cut.captions.is_none()).collect();
    if silent.len() != texts.len() {
        return Err(SegmentError::TextCount { path, texts: texts.len(), clips: silent.len() });
    }
    for (clip, text) in silent.iter_mut().zip(texts) {
        clip.cut.text = text;
    }
    Ok(())
}

/// `speakers.csv` if somebody is named, and `metadata.csv` last: with it the corpus is there.
fn write_lists(dir: &OutDir, clips: &[SegmentedClip], identity: &str) -> Result<(), SegmentError> {
    let write = |name: &str, rows: String| {
        let path = dir.path().join(name);
        write_atomically(&path, rows.as_bytes()).map_err(|error| SegmentError::Io(path, error))
    };
    let named = clips.iter().filter_map(|clip| Some((&clip.id, clip.cut.speaker.as_deref()?)));
    let speakers: String = named.map(|(id, name)| format!("{id}|{}\n", name.replace('|', " "))).collect();
    if !speakers.is_empty() {
        write("speakers.csv", speakers)?;
    }
    dir.note(identity)?;
    let row = |clip: &SegmentedClip| format!("{}|{}\n", clip.id, crate::convert::piped(&clip.cut.text));
    write("metadata.csv", clips.iter().map(row).collect())
}
