//! Arguments of `tandem convert` and `tandem pack`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use tandem_data::{CorpusSettings, Format, SHARD_CLIPS};

/// A corpus of which only the lists and the files matter.
#[derive(Debug, clap::Args)]
pub(crate) struct SourceArgs {
    /// Corpus: a folder of speech in any layout that --format lists
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Layout of DIR; without it, it is found out
    #[arg(long, value_name = "FORMAT", value_parser = format(&Format::ALL), help_heading = "Corpus")]
    pub(crate) format: Option<Format>,
    /// Use only the clips of these speakers, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Corpus")]
    pub(crate) speakers: Vec<String>,
    /// Folder of the audio files below DIR
    #[arg(long, value_name = "NAME", default_value = "wavs", help_heading = "Corpus")]
    pub(crate) audio_folder: String,
}

impl SourceArgs {
    pub(crate) fn settings(&self) -> CorpusSettings {
        CorpusSettings {
            format: self.format,
            speakers: self.speakers.clone(),
            audio_dir: self.audio_folder.clone(),
            ..CorpusSettings::default()
        }
    }
}

fn format(formats: &[Format]) -> impl TypedValueParser<Value = Format> + use<> {
    PossibleValuesParser::new(formats.iter().map(|format| format.name())).try_map(|name| name.parse::<Format>())
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Only the lists are written anew: audio files are linked, or copied when OUT is on another disk. OUT is there whole or not
at all, and nothing is overwritten.
Exit code: 0 done, 2 wrong arguments or no corpus, 130 interrupted.

Examples:
  tandem convert my-voice --to piper piper-voice
  tandem convert my-voice --to jsonl nemo-voice"
)]
pub(crate) struct ConvertArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Folder to be written; it must not be there, or be empty
    #[arg(value_name = "OUT")]
    pub(crate) out: PathBuf,
    /// Layout to write
    #[arg(long, value_name = "FORMAT", value_parser = format(&Format::WRITTEN))]
    pub(crate) to: Format,
    /// Print one JSON object instead of the report
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Writes tar files as WebDataset reads them, and index.jsonl with the place and the checksum of every clip. Ctrl-C keeps the
shards that are whole; the same command resumes from there.
Exit code: 0 done, 2 wrong arguments or no corpus, 130 interrupted.

Examples:
  tandem pack my-voice --shards my-shards
  tandem train --train-data my-shards"
)]
pub(crate) struct PackArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Folder of the shards; it must not be there, be empty, or have been begun by the same command
    #[arg(long, value_name = "OUT")]
    pub(crate) shards: PathBuf,
    /// Clips in a shard
    #[arg(long, value_name = "N", default_value_t = SHARD_CLIPS, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) shard_clips: u32,
    /// Print one JSON object instead of the report
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}
