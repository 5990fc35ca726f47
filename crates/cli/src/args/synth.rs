//! Arguments of synthesis and alignment.

use std::path::PathBuf;

use tandem_text::Language;

use super::DeviceArgs;
use super::train::parse_temperature;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A text of any length is spoken sentence by sentence. A file or standard input has a text on each line: text, or id|text.
With --output all of them become one WAV file. With --out-dir each becomes one, and a text that cannot be spoken is skipped.
Ctrl-C keeps what is finished; with --out-dir the same command makes what is missing.

Exit code: 0 done, 1 some texts of --out-dir could not be spoken, 2 wrong arguments or texts, 130 interrupted.

Examples:
  tandem synth \"A metal basket.\" --checkpoint runs/my-voice -o garden.wav
  tandem synth \"سلام دنیا.\" --checkpoint runs/my-voice --speaker sara --speed 0.9 -o salam.wav
  tandem synth \"Hello.\" --checkpoint runs/my-voice --speaker someone.wav -o hello.wav
  tandem synth --file texts.txt --checkpoint runs/my-voice --pause 0.5 -o book.wav
  tandem synth --file texts.txt --checkpoint runs/my-voice --out-dir spoken"
)]
pub(crate) struct SynthArgs {
    /// What to say; `-` reads texts from standard input, one a line
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    pub(crate) text: Option<String>,
    /// File of texts, one a line: `text` or `id|text`
    #[arg(long, value_name = "FILE", help_heading = "Text")]
    pub(crate) file: Option<PathBuf>,
    /// Language of the text; without it, that of the voice, or guessed
    #[arg(long, value_name = "CODE", help_heading = "Text")]
    pub(crate) language: Option<Language>,
    /// Run (its last checkpoint) or checkpoint, such as RUN/checkpoints/best
    #[arg(long, value_name = "RUN", help_heading = "Voice")]
    pub(crate) checkpoint: PathBuf,
    /// Whose voice: the name of a speaker of the corpus, or an audio file of at least a second; without it, the first speaker
    #[arg(long, value_name = "NAME|FILE", help_heading = "Voice")]
    pub(crate) speaker: Option<String>,
    /// What makes sound of the mel: a run of `train --part vocoder` (or a checkpoint), or `griffin-lim`; without it, RUN-vocoder if there is one, else Griffin-Lim
    #[arg(long, value_name = "RUN|griffin-lim", help_heading = "Voice")]
    pub(crate) vocoder: Option<String>,
    /// Speed of speech: 2 is twice as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_speed, help_heading = "Voice")]
    pub(crate) speed: f64,
    /// Silence between two sentences, in seconds
    #[arg(long, value_name = "S", default_value_t = 0.2, allow_negative_numbers = true, value_parser = parse_pause, help_heading = "Voice")]
    pub(crate) pause: f64,
    /// Solver steps from noise to mel: more is finer and slower
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000), help_heading = "Voice")]
    pub(crate) steps: u64,
    /// How lively: 0 is flat, 1 as varied as the corpus
    #[arg(long, value_name = "T", default_value_t = 0.0, value_parser = parse_temperature, help_heading = "Voice")]
    pub(crate) temperature: f64,
    /// Seed of the noise: another one gives another take
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Voice")]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Sentences that are synthesized at once, at most; what they sound like does not depend on it
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1024), help_heading = "Device")]
    pub(crate) batch_size: u64,
    /// WAV file to write
    #[arg(short, long, value_name = "FILE", default_value = "speech.wav", help_heading = "Output")]
    pub(crate) output: PathBuf,
    /// Folder for many: a WAV file for each text, and manifest.jsonl
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "image"], help_heading = "Output")]
    pub(crate) out_dir: Option<PathBuf>,
    /// Make files of --out-dir again that are there already
    #[arg(long, requires = "out_dir", help_heading = "Output")]
    pub(crate) overwrite: bool,
    /// Draw the spectrogram, with lines between the characters (PNG); of the first sentence
    #[arg(long = "picture", value_name = "FILE", help_heading = "Output")]
    pub(crate) image: Option<PathBuf>,
    /// Print one JSON object instead of the report; with --out-dir one for each text
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Each clip gets DIR/ID.TextGrid with two tiers, text and tokens (characters or phonemes); Praat, ELAN and others open it.

Exit code: 0 done, 2 wrong arguments, no run or no corpus, 130 interrupted (what is finished is kept).

Examples:
  tandem align runs/my-voice --out alignments
  tandem align runs/my-voice --data my-other-voice --out alignments --json"
)]
pub(crate) struct AlignArgs {
    /// Run (its last checkpoint) or checkpoint, such as RUN/checkpoints/best
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Corpus to align; without it, that of the run
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Folder for the TextGrids
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Make files again that are there already
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Print one JSON object instead of the report
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_positive(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err("it must be greater than 0".to_owned()) }
}

fn parse_speed(text: &str) -> Result<f64, String> {
    parse_positive(text).and_then(|speed| {
        if (0.1..=10.0).contains(&speed) { Ok(speed) } else { Err("it must be from 0.1 to 10".to_owned()) }
    })
}

fn parse_pause(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=60.0).contains(&seconds) { Ok(seconds) } else { Err("it must be from 0 to 60".to_owned()) }
}
