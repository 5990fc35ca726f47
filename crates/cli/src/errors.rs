//! The errors of the libraries as texts of the catalog: a key and its arguments, so that English and Persian are made from
//! the same values.
//!
//! The libraries know nothing of languages or flags; each of their errors that a user meets is a `match` here. What is not
//! converted yet is [`Text::Verbatim`], whose Persian is found by its English (`texts.rs`).

use std::path::Path;

use tandem_data::{
    ConvertError, CorpusError, FaultReport, Format, MetadataError, PreviewClip, SegmentError, SkippedSpeech,
};
use tandem_device::{OpenError, SelfTestError, WrongResult};
use tandem_synth::SynthesisError;
use tandem_train::checkpoint::FORMAT;
use tandem_train::reduce::{LastHeard, RanksError, ReduceError};
use tandem_train::task::TrainedPart;
use tandem_train::{CheckpointError, DataError, LaneError, Purpose, RecordError, RunError, TrainError, VoiceError};

use crate::messages::Messages;

/// A text before it is said in a language.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Text {
    /// A message of the catalog with its arguments.
    Message(&'static str, Vec<(&'static str, Text)>),
    /// A text and lines below it.
    List(Box<Text>, Vec<Text>),
    /// A name or a path, or the English of something that is not converted yet.
    Verbatim(String),
}

impl Text {
    /// In the language of the catalog.
    pub(crate) fn render(&self, messages: &Messages) -> String {
        match self {
            Text::Verbatim(text) => messages.text(text.clone()),
            Text::List(head, lines) => {
                let lines = lines.iter().map(|line| format!("\n  {}", line.render(messages)));
                head.render(messages) + &lines.collect::<String>()
            }
            Text::Message(key, arguments) => {
                let rendered: Vec<(&str, String)> =
                    arguments.iter().map(|(name, text)| (*name, text.render(messages))).collect();
                let values: Vec<(&str, &dyn std::fmt::Display)> =
                    rendered.iter().map(|(name, text)| (*name, text as &dyn std::fmt::Display)).collect();
                messages.with(key, &values)
            }
        }
    }
}

impl From<&Path> for Text {
    fn from(path: &Path) -> Text {
        Text::Verbatim(path.display().to_string())
    }
}

/// The text of anything that can be shown and needs no translation of ours.
pub(crate) fn shown(value: impl std::fmt::Display) -> Text {
    Text::Verbatim(value.to_string())
}

/// `PLACE: what is wrong`.
fn at(path: &Path, error: &dyn std::fmt::Display) -> Text {
    Text::Message("error-at", vec![("path", path.into()), ("reason", shown(error))])
}

/// A library's error as a text of the catalog.
pub(crate) trait Explain: std::fmt::Display {
    /// The key and the arguments.
    fn text(&self) -> Text;
}

impl Explain for MetadataError {
    fn text(&self) -> Text {
        let about = |key, path: &Path| Text::Message(key, vec![("path", path.into())]);
        match self {
            MetadataError::NotADir(path) => about("error-not-a-folder", path),
            MetadataError::NoMetadata(path) => about("error-no-metadata", path),
            MetadataError::Io(path, error) => {
                Text::Message("error-cannot-read", vec![("path", path.as_path().into()), ("reason", shown(error))])
            }
            MetadataError::Empty(path) => about("error-no-rows", path),
            MetadataError::TooManySpeakers(path) => {
                let most = ("most", shown(u16::MAX));
                Text::Message("error-too-many-speakers", vec![("path", path.as_path().into()), most])
            }
            MetadataError::SpeakerRow(path, line) => {
                Text::Message("error-speaker-row", vec![("line", shown(line)), ("path", path.as_path().into())])
            }
            MetadataError::NoAudioDir(path) => about("error-no-audio-folder", path),
            MetadataError::CompressedShard(path) => about("error-compressed-shard", path),
            MetadataError::NotInFormat(path, format) => {
                let (format, files) = (("format", shown(format)), ("files", shown(format.files())));
                Text::Message("error-not-in-format", vec![("path", path.as_path().into()), format, files])
            }
            MetadataError::TwoFormats(found) => {
                let line = |format: Format, clip: &PreviewClip| {
                    let mut values =
                        vec![("format", shown(format)), ("audio", shown(&clip.audio)), ("text", shown(&clip.text))];
                    match &clip.speaker {
                        Some(speaker) => {
                            values.push(("speaker", shown(speaker)));
                            Text::Message("error-reading-speaker", values)
                        }
                        None => Text::Message("error-reading", values),
                    }
                };
                let clips = found
                    .previews
                    .iter()
                    .flat_map(|preview| preview.clips.iter().map(move |clip| (preview.format, clip)));
                let lines = clips.map(|(format, clip)| line(format, clip)).collect();
                Text::List(Box::new(about("error-two-formats", &found.path)), lines)
            }
            MetadataError::NoColumn(path, kind, columns) => {
                let (kind, columns) = (("kind", shown(kind)), ("columns", shown(columns.join(", "))));
                Text::Message("error-no-column", vec![("path", path.as_path().into()), kind, columns])
            }
            MetadataError::NoSuchSpeaker(path, name, known) => {
                let mut values = vec![("path", path.as_path().into()), ("name", shown(name))];
                match known.is_empty() {
                    true => Text::Message("error-names-no-speakers", values),
                    false => {
                        values.push(("known", shown(known.join(", "))));
                        Text::Message("error-no-such-speaker", values)
                    }
                }
            }
            other => shown(other),
        }
    }
}

/// A text and the clips below it.
fn list(head: Text, reports: &[FaultReport]) -> Text {
    let lines = reports.iter().map(|report| shown(format!("{}: {}", report.id, report.reason)));
    Text::List(Box::new(head), lines.collect())
}

impl Explain for ConvertError {
    fn text(&self) -> Text {
        match self {
            ConvertError::NotEmpty(path) => Text::Message("error-not-empty", vec![("path", path.as_path().into())]),
            ConvertError::Io(path, error) => {
                Text::Message("cannot-write", vec![("path", path.as_path().into()), ("reason", shown(error))])
            }
            ConvertError::NothingUsable(first) => list(Text::Message("error-nothing-usable", Vec::new()), first),
            other => shown(other),
        }
    }
}

impl Explain for SegmentError {
    fn text(&self) -> Text {
        let about = |key, path: &Path| Text::Message(key, vec![("path", path.into())]);
        match self {
            SegmentError::NoRecordings(path) => about("error-no-recordings", path),
            SegmentError::Recording(path, error) => at(path, error),
            SegmentError::SameName(first, second) => {
                let values = vec![("first", first.as_path().into()), ("second", second.as_path().into())];
                Text::Message("error-same-clip-names", values)
            }
            SegmentError::Captions(path, error) => at(path, error),
            SegmentError::SeveralCaptions(path, found) => {
                let lines = found.iter().map(|path| path.as_path().into()).collect();
                Text::List(Box::new(about("error-several-captions", path)), lines)
            }
            SegmentError::OneCaptions(path, recordings) => Text::Message(
                "error-one-captions",
                vec![("path", path.as_path().into()), ("recordings", shown(recordings))],
            ),
            SegmentError::TextCount { path, texts, clips } => {
                let counts = [("texts", shown(texts)), ("clips", shown(clips))];
                Text::Message("error-text-count", [("path", path.as_path().into())].into_iter().chain(counts).collect())
            }
            SegmentError::TextEncoding(path, line) => {
                Text::Message("error-text-encoding", vec![("path", path.as_path().into()), ("line", shown(line))])
            }
            SegmentError::Lengths(least, most) => {
                Text::Message("error-clip-lengths", vec![("least", shown(least)), ("most", shown(most))])
            }
            SegmentError::NothingToCut(first) => {
                let line = |it: &SkippedSpeech| shown(format!("{}, {}: {}", it.path.display(), it.place, it.reason));
                Text::List(
                    Box::new(Text::Message("error-nothing-to-cut", Vec::new())),
                    first.iter().map(line).collect(),
                )
            }
            SegmentError::NotEmpty(path) => about("error-not-begun", path),
            SegmentError::Locked(path) => about("error-other-writer", path),
            SegmentError::Io(path, error) => {
                Text::Message("cannot-write", vec![("path", path.as_path().into()), ("reason", shown(error))])
            }
            other => shown(other),
        }
    }
}

impl Explain for CorpusError {
    fn text(&self) -> Text {
        match self {
            CorpusError::Metadata(error) => error.text(),
            CorpusError::Frontend(error) => shown(error),
            CorpusError::NothingUsable(first) => list(Text::Message("error-nothing-usable", Vec::new()), first),
            CorpusError::TooMany { faults, rows, first } => {
                let counts = vec![("faults", shown(faults)), ("rows", shown(rows))];
                list(Text::Message("error-too-many-faults", counts), first)
            }
            CorpusError::Stopped => Text::Message("data-stopped", Vec::new()),
        }
    }
}

impl Explain for CheckpointError {
    fn text(&self) -> Text {
        let about = |key, path: &Path| Text::Message(key, vec![("path", path.into())]);
        match self {
            CheckpointError::None(path) if !path.exists() => about("error-does-not-exist", path),
            CheckpointError::None(path) => about("error-no-checkpoint", path),
            CheckpointError::Io(path, error) => at(path, error),
            CheckpointError::Damaged(path, what) => {
                Text::Message("error-damaged", vec![("path", path.as_path().into()), ("reason", shown(what))])
            }
            CheckpointError::Format(path, Some(found)) => {
                let formats = vec![("path", path.as_path().into()), ("found", shown(found)), ("reads", shown(FORMAT))];
                Text::Message("error-checkpoint-format", formats)
            }
            CheckpointError::Format(path, None) => Text::Message(
                "error-checkpoint-unknown",
                vec![("path", path.as_path().into()), ("reads", shown(FORMAT))],
            ),
            CheckpointError::State(path, error) => Text::Message(
                "error-checkpoint-version",
                vec![("path", path.as_path().into()), ("reason", shown(error))],
            ),
            CheckpointError::Mismatch(path, lines) => {
                Text::List(Box::new(about("error-other-run", path)), lines.iter().map(shown).collect())
            }
            CheckpointError::OtherPart { path, found: TrainedPart::Vocoder, .. } => about("error-is-a-vocoder", path),
            CheckpointError::OtherPart { path, .. } => about("error-not-a-vocoder", path),
            CheckpointError::OtherMel(path, lines) => {
                Text::List(Box::new(about("error-vocoder-mel", path)), lines.iter().map(shown).collect())
            }
        }
    }
}

impl Explain for SynthesisError {
    fn text(&self) -> Text {
        let plain = |key| Text::Message(key, Vec::new());
        match self {
            SynthesisError::Weights(error) => shown(error),
            SynthesisError::Settings(error) => shown(error),
            SynthesisError::Frontend(error) => shown(error),
            SynthesisError::Empty => plain("error-empty-text"),
            SynthesisError::NothingToSay => plain("error-no-words"),
            SynthesisError::Unknown(symbols) => {
                let codes = |symbol: &str| {
                    let codes: Vec<String> = symbol.chars().map(|c| format!("U+{:04X}", c as u32)).collect();
                    format!("`{symbol}` ({})", codes.join(" "))
                };
                let named: Vec<String> = symbols.iter().map(|symbol| codes(symbol)).collect();
                Text::Message("error-unknown-symbols", vec![("symbols", shown(named.join(" ")))])
            }
            SynthesisError::Uncuttable(tokens) => Text::Message("error-uncuttable", vec![("tokens", shown(tokens))]),
            SynthesisError::Reference(path, error) => at(path, error),
            SynthesisError::ShortReference(path, seconds) => {
                let seconds = ("seconds", shown(format!("{seconds:.2}")));
                Text::Message("error-short-reference", vec![("path", path.as_path().into()), seconds])
            }
            SynthesisError::NoReference => plain("error-no-reference"),
            SynthesisError::NoSpeaker(name, known) if known.is_empty() => {
                Text::Message("error-unknown-speaker", vec![("name", shown(name))])
            }
            SynthesisError::NoSpeaker(name, known) => {
                Text::Message("error-no-speaker", vec![("name", shown(name)), ("known", shown(known.join(", ")))])
            }
            SynthesisError::OneSpeaker => plain("error-one-speaker"),
            SynthesisError::NoFlow => plain("error-no-flow"),
        }
    }
}

impl Explain for VoiceError {
    fn text(&self) -> Text {
        match self {
            VoiceError::Checkpoint(error) => error.text(),
            VoiceError::Synthesis(error) => error.text(),
        }
    }
}

impl Explain for RecordError {
    fn text(&self) -> Text {
        let about = |key, path: &Path| Text::Message(key, vec![("path", path.into())]);
        match self {
            RecordError::NotARun(path) => about("error-not-a-run", path),
            RecordError::Damaged(path, why) => {
                Text::Message("error-unreadable", vec![("path", path.as_path().into()), ("reason", shown(why))])
            }
            RecordError::OtherVersion { path, version } => {
                let here = ("here", shown(env!("CARGO_PKG_VERSION")));
                let version = ("version", shown(version));
                Text::Message("error-other-version", vec![("path", path.as_path().into()), version, here])
            }
            RecordError::NoSnapshots(path) => about("error-too-few-steps", path),
        }
    }
}

impl Explain for OpenError {
    fn text(&self) -> Text {
        match self {
            OpenError::Refused(device, error) => {
                Text::Message("error-open-refused", vec![("device", shown(device)), ("reason", shown(error))])
            }
            OpenError::NotBuiltIn(device) => Text::Message("error-open-not-built-in", vec![("device", shown(device))]),
            OpenError::AlreadyConfigured => Text::Message("error-open-configured", Vec::new()),
        }
    }
}

impl Explain for WrongResult {
    fn text(&self) -> Text {
        let percent = ("percent", shown(format!("{:.1}", 100.0 * self.error)));
        Text::Message("error-wrong-result", vec![("operation", shown(self.operation)), percent])
    }
}

impl Explain for SelfTestError {
    fn text(&self) -> Text {
        match self {
            SelfTestError::Start(error) => Text::Message("error-test-start", vec![("reason", shown(error))]),
            SelfTestError::Wait(error) => Text::Message("error-test-wait", vec![("reason", shown(error))]),
            // What the other process said, in the language of the program.
            SelfTestError::Failed(words) => shown(words),
            SelfTestError::Crashed(status) => Text::Message("error-test-crashed", vec![("status", shown(status))]),
            SelfTestError::TimedOut(patience) => {
                Text::Message("error-test-timed-out", vec![("seconds", shown(patience.as_secs()))])
            }
        }
    }
}

impl Explain for LaneError {
    fn text(&self) -> Text {
        match self {
            LaneError::NotAPowerOfTwo(n_fft) => Text::Message("error-power-of-two", vec![("n_fft", shown(n_fft))]),
            LaneError::Device(error) => shown(error),
        }
    }
}

impl Explain for DataError {
    fn text(&self) -> Text {
        let plain = |key| Text::Message(key, Vec::new());
        match self {
            DataError::OneClip => plain("error-one-clip"),
            DataError::AllForValidation => plain("error-all-for-validation"),
            DataError::AllTooFast(Purpose::Training) => plain("error-too-fast-training"),
            DataError::AllTooFast(Purpose::Validation) => plain("error-too-fast-validation"),
            DataError::NoStatistics => plain("error-no-statistics"),
            DataError::NoValidation => plain("error-no-validation"),
            DataError::NoLongestBatch => plain("error-no-longest-batch"),
            DataError::Features(error) => shown(error),
            DataError::Alignments(error) => shown(error),
            DataError::Lane(error) => error.text(),
        }
    }
}

impl Explain for RanksError {
    fn text(&self) -> Text {
        match self {
            RanksError::TooMany { world, batch_size } => {
                Text::Message("error-ranks-too-many", vec![("world", shown(world)), ("batch", shown(batch_size))])
            }
            RanksError::Differ(lines) => {
                Text::List(Box::new(Text::Message("error-ranks-differ", Vec::new())), lines.iter().map(shown).collect())
            }
            RanksError::SameDevice { ranks: [first, second], host, gpu } => {
                let ranks = vec![("first", shown(first)), ("second", shown(second))];
                let place = vec![("host", shown(host)), ("gpu", shown(gpu))];
                Text::Message("error-ranks-same-device", ranks.into_iter().chain(place).collect())
            }
        }
    }
}

impl Explain for ReduceError {
    fn text(&self) -> Text {
        let about = |key, who: &LastHeard, more: Vec<(&'static str, Text)>| {
            let LastHeard { rank, host, activity, step } = who;
            let place =
                vec![("rank", shown(rank)), ("host", shown(host)), ("stage", shown(activity)), ("step", shown(step))];
            Text::Message(key, place.into_iter().chain(more).collect())
        };
        match self {
            ReduceError::Gone(who) => about("error-rank-gone", who, Vec::new()),
            ReduceError::Silent(who, seconds) => about("error-rank-silent", who, vec![("seconds", shown(seconds))]),
            ReduceError::Failed(who, why, _) => about("error-rank-failed", who, vec![("reason", shown(why))]),
            other => shown(other),
        }
    }
}

impl Explain for RunError {
    fn text(&self) -> Text {
        match self {
            RunError::Settings(error) => shown(error),
            RunError::Lexicon(error) => shown(error),
            RunError::Corpus(error) => error.text(),
            RunError::Train(error) => error.text(),
        }
    }
}

impl Explain for TrainError {
    fn text(&self) -> Text {
        match self {
            TrainError::Data(error) => error.text(),
            TrainError::Open(error) => error.text(),
            TrainError::Checkpoint(error) => error.text(),
            TrainError::Io(path, error) => at(path, error),
            TrainError::OtherFeatures(path, lines) => Text::List(
                Box::new(Text::Message("error-other-features", vec![("path", path.as_path().into())])),
                lines.iter().cloned().map(Text::Verbatim).collect(),
            ),
            TrainError::OtherClips(path, lines) => Text::List(
                Box::new(Text::Message("error-other-clips", vec![("path", path.as_path().into())])),
                lines.iter().cloned().map(Text::Verbatim).collect(),
            ),
            TrainError::Locked(path) => Text::Message("error-locked", vec![("path", path.as_path().into())]),
            TrainError::OutOfMemory { rows, frames } => {
                Text::Message("error-out-of-memory", vec![("rows", shown(rows)), ("frames", shown(frames))])
            }
            TrainError::Misplaced(names) => Text::Message("error-misplaced", vec![("names", shown(names.join(", ")))]),
            TrainError::NotFinite(step, clips) => {
                Text::Message("error-not-finite", vec![("step", shown(step)), ("clips", shown(clips.join(", ")))])
            }
            TrainError::Ranks(error) => error.text(),
            TrainError::Reduce(error) => error.text(),
            // A stage's cause is still an English text.
            other => shown(other),
        }
    }
}

#[cfg(test)]
mod tests;
