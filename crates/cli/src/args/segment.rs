//! Arguments of `tandem segment`.

use std::path::PathBuf;

use clap::ValueEnum;
use tandem_data::{ClipAudio, CutSettings, SegmentSettings};

/// What clips are written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClipAudioArg {
    /// 16-bit WAV
    Wav,
    /// 16-bit FLAC, about half as large
    Flac,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "With captions (SRT, VTT, Whisper JSON, TextGrid, labels of Audacity) clips have their texts; speakers that captions name are
written to speakers.csv. Without, recordings are cut at their pauses, and metadata.csv waits for your texts. Nothing is
overwritten; Ctrl-C or a kill keeps what is done, and the same command resumes from there.
Exit code: 0 done, 1 the disk is full or the like, 2 wrong arguments or input, 130 interrupted.

Examples:
  tandem segment lecture.mp3 new-voice                       with lecture.srt beside it
  tandem segment lecture.mp3 --dry-run --html cuts.html      look and listen before anything is cut
  tandem segment recordings new-voice --max-seconds 10 --audio flac"
)]
pub(crate) struct SegmentArgs {
    /// Long recording (WAV, FLAC, MP3, OGG), or a folder of them
    #[arg(value_name = "RECORDING")]
    pub(crate) recording: PathBuf,
    /// Folder of the corpus; it must not be there, be empty, or have been begun by the same command
    #[arg(value_name = "OUT", required_unless_present = "dry_run")]
    pub(crate) out: Option<PathBuf>,
    /// Captions of the recording; without it, a file beside it that has its name
    #[arg(long, value_name = "FILE", help_heading = "Texts")]
    pub(crate) captions: Option<PathBuf>,
    /// Texts of the clips of recordings without captions, a line for each
    #[arg(long, value_name = "FILE", help_heading = "Texts")]
    pub(crate) texts: Option<PathBuf>,
    /// Shortest clip; what is shorter joins a neighbor or is skipped
    #[arg(long, value_name = "S", default_value_t = CutSettings::default().min_seconds, value_parser = seconds, help_heading = "Cuts")]
    pub(crate) min_seconds: f64,
    /// Longest clip; what is longer is split at a pause or skipped
    #[arg(long, value_name = "S", default_value_t = CutSettings::default().max_seconds, value_parser = seconds, help_heading = "Cuts")]
    pub(crate) max_seconds: f64,
    /// Silence that is kept before and after the speech of a clip
    #[arg(long, value_name = "S", default_value_t = CutSettings::default().keep_seconds, value_parser = seconds, help_heading = "Cuts")]
    pub(crate) keep_seconds: f64,
    /// How far the edge of a caption may be moved to a pause
    #[arg(long, value_name = "S", default_value_t = CutSettings::default().reach_seconds, value_parser = seconds, help_heading = "Cuts")]
    pub(crate) reach_seconds: f64,
    /// Shortest pause that ends a clip without captions
    #[arg(long, value_name = "S", default_value_t = CutSettings::default().pause_seconds, value_parser = seconds, help_heading = "Cuts")]
    pub(crate) pause_seconds: f64,
    /// What clips are written as
    #[arg(long, value_enum, value_name = "KIND", default_value_t = ClipAudioArg::Wav, help_heading = "Output")]
    pub(crate) audio: ClipAudioArg,
    /// Print the cuts and write no clip
    #[arg(long, help_heading = "Output")]
    pub(crate) dry_run: bool,
    /// Write a page to look at and listen to the cuts, the oddest first
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) html: Option<PathBuf>,
    /// Print one JSON object instead of the report
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

impl SegmentArgs {
    pub(crate) fn settings(&self) -> SegmentSettings {
        SegmentSettings {
            cuts: CutSettings {
                min_seconds: self.min_seconds,
                max_seconds: self.max_seconds,
                keep_seconds: self.keep_seconds,
                reach_seconds: self.reach_seconds,
                pause_seconds: self.pause_seconds,
            },
            audio: match self.audio {
                ClipAudioArg::Wav => ClipAudio::Wav,
                ClipAudioArg::Flac => ClipAudio::Flac,
            },
            captions: self.captions.clone(),
            texts: self.texts.clone(),
        }
    }
}

/// The longest that a clip may be: what is longer is no clip for any command.
const MOST_SECONDS: f64 = 600.0;

fn seconds(text: &str) -> Result<f64, String> {
    let inside = |seconds: &f64| (0.0..=MOST_SECONDS).contains(seconds);
    text.parse().ok().filter(inside).ok_or_else(|| "write seconds from 0 to 600, for example 0.5".to_owned())
}
