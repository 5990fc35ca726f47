//! Speech corpora for training: from a folder of clips and transcripts to padded batches, in an order that depends
//! on nothing but the seed.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `sources/` | [`Source`]: where clips come from, a file for each [`Format`] |
//! | `fault.rs` | [`ClipFault`]: why a clip is skipped; [`Ledger`]: how many may be |
//! | `index/` | [`Index`]: the length of every clip, the tokens of its text and what is wrong with it, kept on disk |
//! | `choice.rs` | [`Choice`]: language and units of the texts, chosen when nobody says them |
//! | `corpus/` | [`Corpus`]: a source and its index together; the split into training and validation |
//! | `alignment.rs` | [`Alignment`]: when each token of a recording is said; Praat's TextGrid, written and read |
//! | `durations.rs` | [`Durations`]: frames of each token, from the TextGrids of a directory |
//! | `plan.rs` | [`plan`]: which clips form batch *n* of an epoch; pure |
//! | `cache.rs` | [`Cache`]: finished features in memory or on disk, checked before use |
//! | `batch.rs` | [`Batch`]: padded, with true lengths |
//! | `load/` | [`Loader`]: the stages of a [`Flow`](tandem_flow::Flow) that make batches |
//! | `demo.rs` | [`DemoCorpus`]: a talking corpus that is made, with known times |
//! | `remote.rs` | [`Remote`], [`Extension`]: buckets, and whatever else is read by code that is not here |
//! | `files.rs` | files that are there whole or not at all; where a corpus keeps its own |
//! | `convert.rs` | [`convert`]: a corpus written in another format |
//! | `pack.rs` | [`pack`]: a corpus packed into tar shards |
//! | `segment/` | [`segment`](segment()): long recordings and their captions to a corpus of clips |
//! | `doctor.rs` | [`examine`]: everything that is odd about a corpus, before a single step |
//!
//! ```
//! use std::sync::Arc;
//! use tandem_data::{CacheMode, Corpus, CorpusSettings, DemoCorpus, LoadSettings, Loader, PlanSettings};
//! use tandem_flow::{Budget, Context, Cursor, Knob, Oversize, Place};
//!
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! DemoCorpus { clips: 10, speakers: 1, seed: 1 }.write(folder)?;
//! let corpus = Arc::new(Corpus::open(folder, CorpusSettings::default())?);
//! let plan = PlanSettings { batch_size: 4, ..PlanSettings::default() };
//! let settings = LoadSettings { plan, ..LoadSettings::default() };
//! let clips = (0..corpus.len() as u32).collect();
//! let loader = Loader::new(corpus.clone(), clips, settings, corpus.cache(CacheMode::Off, 0))?;
//!
//! let (workers, depth) = (Knob::fixed("workers", 2), Knob::fixed("depth", 4));
//! let host = Budget::new(Place::Host, 64_000_000, Oversize::Alone);
//! let mut clips = 0;
//! for batch in loader.flow(&Context::default(), Cursor::START, 1, &workers, &depth, &host) {
//!     clips += batch?.value.clips.len();
//! }
//! assert_eq!(clips, 10);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod alignment;
mod batch;
mod cache;
mod choice;
mod convert;
mod corpus;
mod demo;
mod doctor;
mod durations;
mod fault;
pub mod files;
mod index;
mod load;
mod pack;
mod plan;
mod remote;
mod segment;
mod sources;

pub use alignment::{AlignedToken, Alignment, FrameTimes, TextGridError};
pub use batch::{Batch, Buffer, Form, Layout, Reference};
pub use cache::{Cache, CacheMode, CacheStats, read_cache_entry};
pub use choice::{Choice, LanguageChoice, Open, UnitsChoice};
pub use convert::{Conversion, ConvertError, convert};
pub use corpus::{Corpus, CorpusError, CorpusSettings, split};
pub use demo::{DemoCorpus, DemoMade};
pub use doctor::{ClipFinding, Examination, Severity, SpeakerShare, examine};
pub use durations::{AlignmentsError, Durations, text_grid_path};
pub use fault::{ClipFault, FaultReport, FoundFault, Ledger, Tolerance};
pub use index::{Index, IndexEntry, IndexError, IndexFile};
pub use load::{LoadCounters, LoadSettings, Loader};
pub use pack::{Packed, SHARD_CLIPS, pack};
pub use plan::{
    Balance, ClipSize, Padding, PlanSettings, PlannedBatch, PlannedClips, Shard, balanced, padding, plan, plan_drawn,
};
pub use remote::{Extension, Extensions, Files, Piece, Remote, RemoteError, RemoteFault, user_cache};
pub use segment::{
    Activity, Caption, CaptionFault, CaptionKind, CaptionPlace, Captions, CaptionsError, ClipAudio, Cut, CutSettings,
    Cuts, LevelMeter, Levels, Oddity, STRIP_AROUND_S, SegmentError, SegmentSettings, SegmentStage, Segmented,
    SegmentedClip, SkippedSpeech, TimedWord, cut_captions, cut_pauses, find_recordings, odd_clips, parse_captions,
    segment, strip_heights,
};
pub use sources::{
    Ambiguity, AudioBytes, Evidence, Fields, Format, Metadata, MetadataError, ParquetColumns, ParquetFile, ParquetRow,
    Part, Preview, PreviewClip, Reading, Record, Source, open_source, parse_row,
};
