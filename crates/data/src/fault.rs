//! Why a clip is skipped, and how many may be.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tandem_audio::AudioError;

use crate::remote::RemoteError;

/// The kind of a fault that is not the clip's: a run ends with it instead of going on without the clip.
pub(crate) const UNREACHABLE: &str = "unreachable";

/// Why a clip cannot be trained on.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClipFault {
    /// The row is not UTF-8.
    NotUtf8,
    /// The row has this many columns instead of two or three.
    Columns(usize),
    /// The id is empty or not a plain file name.
    BadId,
    /// The same id was in this earlier line.
    DuplicateId(u64),
    /// There is no audio file of that name.
    Missing,
    /// The audio file gives no usable samples.
    Audio(AudioError),
    /// The transcript is empty.
    EmptyText,
    /// The transcript has no letter and no number.
    NoWords,
    /// Shorter than one frame.
    TooShort(u64),
    /// More frames than allowed.
    TooLong {
        /// Its frames.
        frames: u64,
        /// The limit.
        limit: u64,
    },
    /// A longer transcript than allowed.
    TextTooLong {
        /// Its tokens.
        tokens: u64,
        /// The limit.
        limit: u64,
    },
    /// The row of the metadata is longer than a transcript can be.
    RowTooLong(u32),
    /// Other clips have a speaker, this one has none.
    NoSpeaker,
    /// The row has another number of columns than its header.
    OtherColumns {
        /// Of the row.
        found: usize,
        /// Of the header.
        header: usize,
    },
    /// A quote of the row stays open.
    OpenQuote,
    /// The row is no JSON object; why.
    NotJson(String),
    /// The object of the row does not have this.
    NoField(&'static str),
    /// The row names no file.
    BadPath,
    /// The row names a file outside the directory of the corpus.
    Outside,
    /// The row is a part of a longer recording.
    Segment {
        /// Where it begins.
        start_ms: u64,
    },
    /// A clip of a shard without this: `audio` or `text`.
    NoPartner(&'static str),
    /// A member of a shard that is there twice.
    DuplicateMember,
    /// A shard that ends too early.
    TruncatedShard,
    /// Bytes of a shard that are not those that were packed.
    Checksum,
    /// The file or its text has changed since it was indexed, and its length with it.
    Changed,
    /// The bucket that it lies in cannot be reached: nothing is wrong with the clip.
    Unreachable(RemoteError),
    /// A row of a parquet file cannot be decoded; why.
    Parquet(String),
}

impl ClipFault {
    /// A short name that does not change, for scripts.
    pub fn kind(&self) -> &'static str {
        match self {
            ClipFault::NotUtf8 => "not-utf8",
            ClipFault::Columns(_) => "columns",
            ClipFault::BadId => "bad-id",
            ClipFault::DuplicateId(_) => "duplicate-id",
            ClipFault::Missing => "missing",
            ClipFault::EmptyText => "empty-text",
            ClipFault::NoWords => "no-words",
            ClipFault::TooShort(_) => "too-short",
            ClipFault::TooLong { .. } => "too-long",
            ClipFault::TextTooLong { .. } => "text-too-long",
            ClipFault::RowTooLong(_) => "row-too-long",
            ClipFault::NoSpeaker => "no-speaker",
            ClipFault::OtherColumns { .. } => "columns",
            ClipFault::OpenQuote => "open-quote",
            ClipFault::NotJson(_) => "not-json",
            ClipFault::NoField(_) => "no-field",
            ClipFault::BadPath => "bad-path",
            ClipFault::Outside => "outside",
            ClipFault::Segment { .. } => "segment",
            ClipFault::NoPartner(_) => "no-partner",
            ClipFault::DuplicateMember => "duplicate-member",
            ClipFault::TruncatedShard => "truncated-shard",
            ClipFault::Checksum => "checksum",
            ClipFault::Changed => "changed",
            ClipFault::Unreachable(_) => UNREACHABLE,
            ClipFault::Parquet(_) => "parquet",
            ClipFault::Audio(error) => match error {
                AudioError::Io(_) => "unreadable",
                AudioError::NotAFile => "not-a-file",
                AudioError::ZeroBytes => "zero-bytes",
                AudioError::NotAudio => "not-audio",
                AudioError::Empty => "no-samples",
                AudioError::Truncated { .. } => "truncated",
                AudioError::Encoding { .. } => "encoding",
                AudioError::Samples(_) => "not-finite",
                AudioError::TooLong | AudioError::TooLarge(_) => "much-too-long",
                _ => "malformed",
            },
        }
    }

    /// Whether it is a limit the user set rather than something wrong with the clip.
    pub fn is_limit(&self) -> bool {
        matches!(self, ClipFault::TooLong { .. } | ClipFault::TextTooLong { .. })
    }
}

impl fmt::Display for ClipFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClipFault::NotUtf8 => write!(f, "the row is not UTF-8"),
            ClipFault::Columns(n) => {
                write!(f, "{n} columns instead of 2 or 3 (they are separated by |; a text with | must be in quotes)")
            }
            ClipFault::BadId => write!(f, "the id is not a file name: write `clip`, not `wavs/clip.wav`"),
            ClipFault::DuplicateId(line) => write!(f, "the same id as in line {line}"),
            ClipFault::Missing => write!(f, "no audio file of this name"),
            ClipFault::Audio(error) => write!(f, "{error}"),
            ClipFault::EmptyText => write!(f, "empty text"),
            ClipFault::NoWords => write!(f, "the text has no words"),
            ClipFault::TooShort(samples) => write!(f, "shorter than one frame ({samples} samples)"),
            ClipFault::TooLong { frames, limit } => write!(f, "{frames} frames, the limit is {limit}"),
            ClipFault::TextTooLong { tokens, limit } => write!(f, "{tokens} tokens of text, the limit is {limit}"),
            ClipFault::RowTooLong(bytes) => write!(f, "the row has {bytes} bytes"),
            ClipFault::NoSpeaker => write!(f, "other clips have a speaker, this one has none"),
            ClipFault::OtherColumns { found, header } => write!(f, "{found} columns, the header has {header}"),
            ClipFault::OpenQuote => write!(f, "a quote is opened and not closed"),
            ClipFault::NotJson(why) => write!(f, "not a JSON object: {why}"),
            ClipFault::NoField(field) => write!(f, "the object has no `{field}`"),
            ClipFault::BadPath => write!(f, "the row names no audio file"),
            ClipFault::Outside => write!(f, "the audio file is outside the folder of the corpus"),
            ClipFault::Segment { start_ms } => {
                write!(f, "begins {start_ms} ms into a longer recording: cut it into a file of its own")
            }
            ClipFault::NoPartner(what) => write!(f, "the shard has no {what} of this key"),
            ClipFault::DuplicateMember => write!(f, "the shard has two audio files of this key"),
            ClipFault::TruncatedShard => write!(f, "the shard ends too early: copy it again"),
            ClipFault::Checksum => write!(f, "wrong checksum: the shard is damaged, copy it again"),
            ClipFault::Changed => write!(f, "the file has changed since it was indexed"),
            ClipFault::Unreachable(error) => write!(f, "{error}"),
            ClipFault::Parquet(why) => write!(f, "the row of the parquet file cannot be decoded: {why}"),
        }
    }
}

impl std::error::Error for ClipFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ClipFault::Audio(error) => Some(error),
            ClipFault::Unreachable(error) => Some(error),
            _ => None,
        }
    }
}

impl From<AudioError> for ClipFault {
    fn from(error: AudioError) -> Self {
        match error {
            AudioError::Io(error) if error.kind() == std::io::ErrorKind::NotFound => ClipFault::Missing,
            error => ClipFault::Audio(error),
        }
    }
}

/// How many clips may be skipped before it is an error: more than `share` of them, and more than `count` or more than half.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tolerance {
    /// The share of all clips.
    pub share: f64,
    /// In a small corpus a few are fine, whatever their share.
    pub count: u64,
}

impl Default for Tolerance {
    fn default() -> Self {
        Tolerance { share: 0.05, count: 20 }
    }
}

impl Tolerance {
    /// Whether so many of so many are too many.
    pub fn is_exceeded(&self, faults: u64, clips: u64) -> bool {
        // A corpus most of which cannot be used is not a small one with a few bad clips.
        let few = self.count.min(clips / 2);
        faults > few && faults as f64 > self.share * clips as f64
    }
}

/// A clip that is skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FaultReport {
    /// Its id, or the line where an id should be.
    pub id: String,
    /// Its file, as far as one is known.
    pub path: Option<PathBuf>,
    /// The short name of the reason.
    pub kind: Cow<'static, str>,
    /// The reason.
    pub reason: String,
    /// Left out because of a limit that the user set.
    pub limit: bool,
}

/// The clips skipped so far. Each is counted once, however often it comes up.
#[derive(Debug)]
pub struct Ledger {
    tolerance: Tolerance,
    clips: u64,
    /// Clips that were skipped before loading began.
    before: u64,
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    faults: BTreeMap<u32, FaultReport>,
    /// Those that no other process was told of.
    untold: Vec<u32>,
}

/// A bad clip as one process of a run tells the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundFault {
    /// The clip.
    pub clip: u32,
    /// The short name of the reason.
    pub kind: String,
    /// The reason.
    pub reason: String,
}

impl Ledger {
    /// For a corpus of so many clips, of which `before` were skipped already.
    pub(crate) fn new(tolerance: Tolerance, clips: u64, before: u64) -> Ledger {
        Ledger { tolerance, clips, before, noted: Mutex::default() }
    }

    /// Notes a clip. Returns whether there are too many now.
    pub(crate) fn note(&self, clip: u32, report: FaultReport) -> bool {
        let mut noted = self.lock();
        if noted.faults.insert(clip, report).is_none() {
            noted.untold.push(clip);
        }
        self.is_exceeded(&noted)
    }

    /// Notes a clip that another process found to be bad. Returns whether there are too many now.
    pub(crate) fn note_told(&self, clip: u32, report: FaultReport) -> bool {
        let mut noted = self.lock();
        noted.faults.entry(clip).or_insert(report);
        self.is_exceeded(&noted)
    }

    fn is_exceeded(&self, noted: &Noted) -> bool {
        self.tolerance.is_exceeded(self.before + noted.faults.len() as u64, self.clips)
    }

    /// How many were found here and not told to other processes.
    pub fn untold(&self) -> usize {
        self.lock().untold.len()
    }

    /// Those, which count as told from now on.
    pub fn tell(&self) -> Vec<FoundFault> {
        let mut noted = self.lock();
        let untold = std::mem::take(&mut noted.untold);
        let found = untold.iter().filter_map(|clip| Some((*clip, noted.faults.get(clip)?)));
        found
            .map(|(clip, report)| FoundFault { clip, kind: report.kind.to_string(), reason: report.reason.clone() })
            .collect()
    }

    /// Whether this clip is known to be bad.
    pub fn contains(&self, clip: u32) -> bool {
        self.lock().faults.contains_key(&clip)
    }

    /// All of them, in the order of the corpus.
    pub fn reports(&self) -> Vec<FaultReport> {
        self.lock().faults.values().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CorpusError, MetadataError};

    #[test]
    fn what_an_error_wraps_is_its_source() {
        let worn = || std::io::Error::other("worn out");
        let clip = ClipFault::Audio(AudioError::Io(worn()));
        let corpus = CorpusError::from(MetadataError::Io("metadata.csv".into(), worn()));
        let errors: [&dyn std::error::Error; 2] = [&clip, &corpus];
        for error in errors {
            let sources: Vec<_> = std::iter::successors(error.source(), |error| error.source()).collect();
            assert!(sources.len() == 2 && sources[1].is::<std::io::Error>(), "{sources:?}");
        }
        assert_eq!(clip.to_string(), "worn out");
        assert_eq!(corpus.to_string(), "cannot read `metadata.csv`: worn out");
    }

    #[test]
    fn what_processes_tell_each_other_is_counted_once_by_all() {
        let report = |id: &str| FaultReport {
            id: id.to_owned(),
            path: None,
            kind: "missing".into(),
            reason: "no such file".to_owned(),
            limit: false,
        };
        let ledger = || Ledger::new(Tolerance { share: 0.0, count: 3 }, 100, 1);
        let (one, other) = (ledger(), ledger());
        assert!(!one.note(4, report("a")) && !one.note(4, report("a")) && !other.note(9, report("b")));
        let share = |from: &Ledger, to: &Ledger| {
            let told = from.tell();
            let exceeded = told.iter().map(|fault| to.note_told(fault.clip, report("of another"))).collect::<Vec<_>>();
            (told.iter().map(|fault| fault.clip).collect::<Vec<_>>(), exceeded)
        };
        assert_eq!(share(&one, &other), (vec![4], vec![false]));
        assert_eq!(share(&other, &one), (vec![9], vec![false]));
        assert_eq!((one.untold(), other.untold(), one.reports().len()), (0, 0, 2), "each is told once");
        assert!(one.contains(9) && other.contains(4) && one.reports()[0].id == "a", "what was found here stays");
        // Both find the third; with the one before they are four: more than three.
        assert!(one.note(7, report("c")) && other.note(7, report("c")));
        assert_eq!(share(&one, &other), (vec![7], vec![true]));
    }

    #[test]
    fn too_many_is_more_than_the_share_and_more_than_the_count() {
        let tolerance = Tolerance::default();
        for (faults, clips, exceeded) in [
            (20, 40, false),
            (21, 40, true),
            (21, 1000, false),
            (50, 1000, false),
            (51, 1000, true),
            // More than half of a small one.
            (15, 30, false),
            (16, 30, true),
            (1, 3, false),
            (2, 3, true),
            (0, 0, false),
        ] {
            assert_eq!(tolerance.is_exceeded(faults, clips), exceeded, "{faults} of {clips}");
        }
    }
}
