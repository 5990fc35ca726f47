//! Every error that is converted says in English what the library says, and says it in Persian, too.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use tandem_data::{AlignmentsError, Ambiguity, CaptionsError, FaultReport, Preview, TextGridError};

use super::*;
use crate::messages::Lang;

fn samples() -> Vec<Box<dyn Explain>> {
    let path = || PathBuf::from("/nowhere/run");
    // Something that is there.
    let there = || PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let io = || io::Error::new(io::ErrorKind::PermissionDenied, "no leave");
    let report = || FaultReport {
        id: "c1".to_owned(),
        path: None,
        kind: "missing".into(),
        reason: "empty text".to_owned(),
        limit: false,
    };
    vec![
        Box::new(MetadataError::NotADir(path())),
        Box::new(MetadataError::NoMetadata(path())),
        Box::new(MetadataError::Io(path(), io())),
        Box::new(MetadataError::Empty(path())),
        Box::new(MetadataError::TooManySpeakers(path())),
        Box::new(MetadataError::SpeakerRow(path(), 7)),
        Box::new(MetadataError::NoAudioDir(path())),
        Box::new(MetadataError::CompressedShard(path())),
        Box::new(MetadataError::NotInFormat(path(), Format::Vctk)),
        Box::new(MetadataError::TwoFormats(Box::new(Ambiguity {
            path: path(),
            previews: [Format::LjSpeech, Format::Piper].map(|format| {
                let clip = |speaker: Option<&str>| PreviewClip {
                    audio: "a".to_owned(),
                    speaker: speaker.map(str::to_owned),
                    text: "hello".to_owned(),
                };
                Preview { format, clips: vec![clip(None), clip(Some("bob"))] }
            }),
        }))),
        Box::new(MetadataError::NoColumn(path(), "text", vec!["a".to_owned(), "b".to_owned()])),
        Box::new(MetadataError::NoSuchSpeaker(path(), "bob".to_owned(), Vec::new())),
        Box::new(MetadataError::NoSuchSpeaker(path(), "bob".to_owned(), vec!["eve".to_owned()])),
        Box::new(ConvertError::NotEmpty(path())),
        Box::new(ConvertError::Io(path(), io())),
        Box::new(ConvertError::NothingUsable(vec![report()])),
        Box::new(SegmentError::NoRecordings(path())),
        Box::new(SegmentError::Recording(path(), tandem_audio::AudioError::NotAudio)),
        Box::new(SegmentError::SameName(path(), there())),
        Box::new(SegmentError::Captions(path(), CaptionsError::NotCaptions)),
        Box::new(SegmentError::Captions(path(), CaptionsError::NotUtf8(3))),
        Box::new(SegmentError::SeveralCaptions(path(), vec![there()])),
        Box::new(SegmentError::OneCaptions(path(), 2)),
        Box::new(SegmentError::TextCount { path: path(), texts: 3, clips: 4 }),
        Box::new(SegmentError::TextEncoding(path(), 5)),
        Box::new(SegmentError::Lengths(2.0, 3.0)),
        Box::new(SegmentError::NothingToCut(vec![SkippedSpeech {
            path: path(),
            place: "line 5".to_owned(),
            kind: "silent".to_owned(),
            reason: "there is nothing to be heard".to_owned(),
        }])),
        Box::new(SegmentError::NotEmpty(path())),
        Box::new(SegmentError::Locked(path())),
        Box::new(SegmentError::Io(path(), io())),
        Box::new(CorpusError::Metadata(MetadataError::Empty(path()))),
        Box::new(CorpusError::NothingUsable(vec![report(), report()])),
        Box::new(CorpusError::TooMany { faults: 3, rows: 9, first: vec![report()] }),
        Box::new(CheckpointError::None(path())),
        Box::new(CheckpointError::None(there())),
        Box::new(CheckpointError::Damaged(path(), "x".to_owned())),
        Box::new(CheckpointError::Mismatch(path(), vec!["a: 1 here, 2 there".to_owned()])),
        Box::new(SynthesisError::Empty),
        Box::new(SynthesisError::NothingToSay),
        Box::new(SynthesisError::Unknown(BTreeSet::from(["ß".to_owned(), "ж".to_owned()]))),
        Box::new(SynthesisError::Uncuttable(1200)),
        Box::new(SynthesisError::ShortReference(path(), 0.25)),
        Box::new(SynthesisError::NoReference),
        Box::new(SynthesisError::NoSpeaker("ada".to_owned(), Vec::new())),
        Box::new(SynthesisError::NoSpeaker("ada".to_owned(), vec!["bob".to_owned(), "eve".to_owned()])),
        Box::new(SynthesisError::OneSpeaker),
        Box::new(SynthesisError::NoFlow),
        Box::new(VoiceError::Synthesis(SynthesisError::Empty)),
        Box::new(RecordError::NotARun(path())),
        Box::new(RecordError::Damaged(path(), "cut off".to_owned())),
        Box::new(RecordError::OtherVersion { path: path(), version: "9.9.9".to_owned() }),
        Box::new(RecordError::NoSnapshots(path())),
        Box::new(CheckpointError::OtherPart {
            path: path(),
            found: TrainedPart::Vocoder,
            needed: TrainedPart::Acoustic,
        }),
        Box::new(CheckpointError::OtherPart {
            path: path(),
            found: TrainedPart::Acoustic,
            needed: TrainedPart::Vocoder,
        }),
        Box::new(CheckpointError::OtherMel(path(), vec!["n_mels: 100 here, 80 there".to_owned()])),
        Box::new(CheckpointError::Format(path(), Some(1))),
        Box::new(CheckpointError::Format(path(), None)),
        Box::new(CheckpointError::State(path(), serde_json::from_str::<u32>("x").expect_err("no number"))),
        Box::new(OpenError::Refused("GPU 0".to_owned(), "no memory".into())),
        Box::new(OpenError::NotBuiltIn("GPU 0".to_owned())),
        Box::new(OpenError::AlreadyConfigured),
        Box::new(WrongResult { operation: "matmul", error: 0.125 }),
        Box::new(WrongResult { operation: "half precision", error: 0.125 }),
        Box::new(SelfTestError::Start(io())),
        Box::new(SelfTestError::Wait(io())),
        Box::new(SelfTestError::TimedOut(std::time::Duration::from_secs(180))),
        Box::new(LaneError::NotAPowerOfTwo(1000)),
        Box::new(DataError::OneClip),
        Box::new(DataError::AllForValidation),
        Box::new(DataError::AllTooFast(Purpose::Training)),
        Box::new(DataError::AllTooFast(Purpose::Validation)),
        Box::new(DataError::NoStatistics),
        Box::new(DataError::NoValidation),
        Box::new(DataError::NoLongestBatch),
        Box::new(DataError::Lane(LaneError::NotAPowerOfTwo(1000))),
        Box::new(DataError::Alignments(AlignmentsError::NoneThere(path()))),
        Box::new(DataError::Alignments(AlignmentsError::Io(path(), io()))),
        Box::new(DataError::Alignments(AlignmentsError::Misfit {
            path: path(),
            error: TextGridError::Count { found: 3, expected: 4 },
            wrong: 2,
            found: 9,
        })),
        Box::new(RunError::Train(TrainError::Data(DataError::OneClip))),
        Box::new(TrainError::Open(OpenError::AlreadyConfigured)),
        Box::new(TrainError::Checkpoint(CheckpointError::None(path()))),
        Box::new(TrainError::Locked(path())),
        Box::new(TrainError::OtherFeatures(path(), vec!["n_mels: 100 here, 80 there".to_owned()])),
        Box::new(TrainError::OtherClips(path(), vec!["training clips: 9 here, 8 there".to_owned()])),
        Box::new(TrainError::OutOfMemory { rows: 4, frames: 99 }),
        Box::new(TrainError::Misplaced(vec!["a".to_owned()])),
        Box::new(TrainError::NotFinite(3, vec!["c1".to_owned(), "c2".to_owned()])),
    ]
}

#[test]
fn both_languages_come_from_the_same_key_and_values() {
    let (english, persian) = (Messages::for_user(Some(Lang::En)), Messages::for_user(Some(Lang::Fa)));
    let is_persian = |c: char| ('\u{0600}'..='\u{06FF}').contains(&c);
    for error in samples() {
        let (own, text) = (error.to_string(), error.text());
        assert!(!own.contains("--"), "a library names no flags: {own}");
        assert_eq!(text.render(&english), own);
        let in_persian = text.render(&persian);
        assert!(in_persian.chars().any(is_persian), "{own}: {in_persian}");
        if own.contains("/nowhere/run") {
            assert!(in_persian.contains("/nowhere/run"), "{in_persian}");
        }
    }
}
