//! [`Format`]: the layouts that speech corpora come in.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The layout of a corpus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Format {
    /// `metadata.csv` with `id|text` or `id|text|normalized text`, `wavs/ID.wav`; `speakers.csv` if there are several.
    #[serde(rename = "ljspeech")]
    LjSpeech,
    /// The same with `id|text` or `id|speaker|text`.
    Piper,
    /// `metadata.csv` with `wavs/x.wav|text` or `wavs/x.wav|text|speaker`, with or without a header: Coqui, XTTS.
    Coqui,
    /// `txt/SPEAKER/ID.txt` and `wav48/SPEAKER/ID.wav`.
    Vctk,
    /// `train.tsv` with a header and `clips/`.
    CommonVoice,
    /// A JSON object a line, as NeMo's manifests: `audio_filepath`, `text`, `speaker`.
    #[serde(rename = "jsonl")]
    JsonLines,
    /// `metadata.csv` or `metadata.jsonl` with `file_name`: Hugging Face's audiofolder.
    #[serde(rename = "audiofolder")]
    AudioFolder,
    /// Tar files with `KEY.wav`, `KEY.txt` and `KEY.json`: WebDataset.
    Shards,
    /// Parquet files with `audio` (`bytes`, `path`) and `text`: Hugging Face.
    Parquet,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 9] = [
        Format::LjSpeech,
        Format::Piper,
        Format::Coqui,
        Format::Vctk,
        Format::CommonVoice,
        Format::JsonLines,
        Format::AudioFolder,
        Format::Shards,
        Format::Parquet,
    ];

    /// Those that [`convert`](crate::convert) and [`pack`](crate::pack) write.
    pub const WRITTEN: [Format; 8] = [
        Format::LjSpeech,
        Format::Piper,
        Format::Coqui,
        Format::Vctk,
        Format::CommonVoice,
        Format::JsonLines,
        Format::AudioFolder,
        Format::Shards,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Format::LjSpeech => "ljspeech",
            Format::Piper => "piper",
            Format::Coqui => "coqui",
            Format::Vctk => "vctk",
            Format::CommonVoice => "common-voice",
            Format::JsonLines => "jsonl",
            Format::AudioFolder => "audiofolder",
            Format::Shards => "shards",
            Format::Parquet => "parquet",
        }
    }

    /// The files that a directory of it has.
    pub fn files(self) -> &'static str {
        match self {
            Format::LjSpeech => "metadata.csv (id|text or id|text|normalized text) and wavs/",
            Format::Piper => "metadata.csv (id|text or id|speaker|text) and wavs/",
            Format::Coqui => "metadata.csv or metadata_train.csv (wavs/x.wav|text|speaker)",
            Format::Vctk => "txt/SPEAKER/ID.txt and wav48/SPEAKER/ID.wav",
            Format::CommonVoice => "train.tsv or validated.tsv (with path and sentence) and clips/",
            Format::JsonLines => "manifest.jsonl or train.jsonl (audio_filepath, text)",
            Format::AudioFolder => "metadata.csv or metadata.jsonl (file_name, text)",
            Format::Shards => "tar files with KEY.wav and KEY.txt",
            Format::Parquet => "parquet files (audio, text), beside each other or in data/",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    /// The error lists the names.
    fn from_str(text: &str) -> Result<Format, String> {
        let found = Format::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| Format::ALL.map(Format::name).join(", "))
    }
}
