//! `tandem synth`: say texts with a trained voice.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `texts.rs` | the texts of the command line, a file or standard input |
//! | `one_file.rs` | all of them in one WAV file |
//! | `many_files.rs` | a WAV file for each of them, resumable |
//! | `manifest.rs` | `manifest.jsonl`: what is finished, and how it was made |

mod manifest;
mod many_files;
mod one_file;
mod texts;

use std::collections::BTreeSet;
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tandem_model::{Device, HostReference};
use tandem_observe::spectrogram_png;
use tandem_synth::{Sentences, Solver, Speaking, Speech, SynthesisError, SynthesisSettings, Synthesizer};
use tandem_train::{CheckpointError, Checkpoints, RunDir, State, VoiceError, checkpoint};

use crate::args::SynthArgs;
use crate::commands::corpus;
use crate::failure::{FAILED, Failure, INTERRUPTED, USAGE};
use crate::messages::Messages;
use crate::open_lanes;
use crate::ui::progress;
use texts::Line;

pub(crate) fn run(args: &SynthArgs, messages: &Messages) -> Result<(), Failure> {
    let lines = texts::read(args, messages)?;
    match &args.out_dir {
        Some(dir) => many_files::run(args, dir, &lines, messages),
        None => one_file::run(args, &lines, messages),
    }
}

/// The vocoder that needs no training.
const GRIFFIN_LIM: &str = "griffin-lim";

/// The trained vocoder that is to be used: the one that was requested, else that of the run, if it has one.
pub(crate) fn choose_vocoder(requested: Option<&str>, checkpoint: &Path) -> Option<PathBuf> {
    match requested {
        Some(GRIFFIN_LIM) => None,
        Some(path) => Some(PathBuf::from(path)),
        None => vocoder_of_run(checkpoint),
    }
}

/// `runs/NAME-vocoder` of a checkpoint of `runs/NAME`: where `train --part vocoder` puts the vocoder of the same corpus.
fn vocoder_of_run(checkpoint: &Path) -> Option<PathBuf> {
    let checkpoint = checkpoint.canonicalize().ok()?;
    let run = checkpoint.parent()?.parent()?;
    let mut name = run.file_name()?.to_owned();
    name.push("-vocoder");
    Some(run.with_file_name(name)).filter(|vocoder| checkpoint::find(vocoder).is_ok())
}

/// A voice, ready to speak.
struct Voice {
    synthesizer: Synthesizer,
    state: State,
    /// The folder of its checkpoint.
    checkpoint: PathBuf,
    /// Its vocoder, if that was trained.
    vocoder: Option<PathBuf>,
    reference: Option<HostReference>,
    settings: SynthesisSettings,
}

/// The sentences of lines, each with the index of its line.
type SpokenLines<'a> = Speaking<'a, usize, Sentences<'a, usize>>;

impl Voice {
    fn open(args: &SynthArgs, messages: &Messages) -> Result<Voice, Failure> {
        let device = open_lanes::open_one(&args.device, messages)?.model;
        let (synthesizer, state, checkpoint) = open(&args.checkpoint, &device, messages)?;
        let (synthesizer, vocoder) = with_vocoder(synthesizer, &checkpoint, args.vocoder.as_deref(), messages)?;
        let reference = find_speaker(&synthesizer, &checkpoint, args.speaker.as_deref(), messages)?;
        let settings = SynthesisSettings {
            steps: args.steps as usize,
            solver: Solver::Euler,
            temperature: args.temperature as f32,
            speed: args.speed as f32,
            seed: args.seed,
        };
        Ok(Voice { synthesizer, state, checkpoint, vocoder, reference, settings })
    }

    fn sample_rate(&self) -> u32 {
        self.state.mel.sample_rate
    }

    fn sentences<'a>(&'a self, args: &SynthArgs, lines: &'a [&'a Line]) -> Sentences<'a, usize> {
        let texts = lines.iter().enumerate().map(|(n, line)| (n, line.text.as_str()));
        Sentences::new(&self.state.frontend, texts, args.language.as_ref())
    }

    /// Reads all lines once without speaking: how many tokens each has, or why it cannot be said.
    fn measure(
        &self,
        args: &SynthArgs,
        lines: &[&Line],
        stop: &AtomicBool,
        messages: &Messages,
    ) -> Result<Vec<Result<usize, SynthesisError>>, Failure> {
        let mut all: Vec<Result<usize, SynthesisError>> = lines.iter().map(|_| Ok(0)).collect();
        let bar = progress::bar(lines.len() as u64, stderr().is_terminal());
        bar.set_message(messages.get("synth-reading"));
        for (n, sentence) in self.sentences(args, lines) {
            bar.set_position(n as u64);
            if stop.load(Ordering::Relaxed) {
                bar.finish_and_clear();
                return Err(Failure::new(INTERRUPTED, messages.get("advise-stopped")));
            }
            match (&mut all[n], sentence) {
                (Ok(tokens), Ok(sentence)) => *tokens += sentence.ids.len(),
                (Err(SynthesisError::Unknown(known)), Err(SynthesisError::Unknown(more))) => known.extend(more),
                (place @ Ok(_), Err(error)) => *place = Err(error),
                _ => {}
            }
        }
        bar.finish_and_clear();
        Ok(all)
    }

    fn speak<'a>(
        &'a self,
        args: &SynthArgs,
        lines: &'a [&'a Line],
        messages: &Messages,
    ) -> Result<SpokenLines<'a>, Failure> {
        let (sentences, batch) = (self.sentences(args, lines), args.batch_size as usize);
        let spoken = self.synthesizer.speak(sentences, self.reference.as_ref(), self.settings, batch);
        spoken.map_err(|error| failure(&error, messages))
    }
}

/// Why a line cannot be spoken.
fn line_failure(error: &SynthesisError, line: &Line, messages: &Messages) -> Failure {
    let failure = match error {
        SynthesisError::Frontend(error) => corpus::frontend_failure(error, messages),
        _ => failure(error, messages),
    };
    match &line.place {
        Some(place) => failure.at(place),
        None => failure,
    }
}

fn cannot_write(path: &Path, error: &dyn std::fmt::Display, messages: &Messages) -> Failure {
    Failure::new(FAILED, messages.with("cannot-write", &[("path", &path.display()), ("reason", error)]))
}

/// The voice of a run or a checkpoint, on a device, and the checkpoint's folder. Of a run, says which one that is.
pub(crate) fn open(
    path: &Path,
    device: &Device,
    messages: &Messages,
) -> Result<(Synthesizer, State, PathBuf), Failure> {
    let dir = checkpoint::find(path).map_err(|error| Failure::of(USAGE, &error))?;
    if let Some(checkpoints) = dir.parent().filter(|_| dir != path).map(|dir| Checkpoints::new(dir.to_owned())) {
        eprintln!("{}", which(&checkpoints, &dir, messages));
    }
    let (synthesizer, state) = checkpoint::open_voice(&dir, device).map_err(|error| Failure::of(USAGE, &error))?;
    Ok((synthesizer, state, dir))
}

/// The voice with its vocoder, and where that is if it was trained: the one that was requested or that of the run, else Griffin-Lim.
/// One that the run has and nobody requested is named. SPEC N3.
pub(crate) fn with_vocoder(
    synthesizer: Synthesizer,
    checkpoint: &Path,
    requested: Option<&str>,
    messages: &Messages,
) -> Result<(Synthesizer, Option<PathBuf>), Failure> {
    let Some(path) = choose_vocoder(requested, checkpoint) else { return Ok((synthesizer, None)) };
    let (mel, device) = (synthesizer.bundle().mel.clone(), synthesizer.device().clone());
    let vocoder = checkpoint::open_trained_vocoder(&path, &mel, &device).map_err(|error| {
        let failure = Failure::of(USAGE, &error);
        let other =
            matches!(error, VoiceError::Checkpoint(CheckpointError::None(_) | CheckpointError::OtherPart { .. }));
        if other || requested.is_none() { failure.hint(messages.get("synth-hint-vocoder")) } else { failure }
    })?;
    if requested.is_none() {
        eprintln!("{}", messages.with("synth-vocoder-of-run", &[("path", &path.display())]));
    }
    Ok((synthesizer.with_vocoder(Box::new(vocoder)), Some(path)))
}

/// Which checkpoint of a run is used, and where the other one is that could be.
fn which(checkpoints: &Checkpoints, dir: &Path, messages: &Messages) -> String {
    let steps: BTreeSet<u64> = checkpoints.steps().into_iter().collect();
    let used = steps.iter().copied().find(|step| checkpoints.path(*step) == dir).unwrap_or_default();
    let best = checkpoints.best().filter(|best| steps.contains(best));
    let other = dir.with_file_name("best");
    match best {
        Some(best) if best == used && steps.last() != Some(&used) => messages.with("synth-best", &[("step", &used)]),
        Some(best) if best != used => {
            messages.with("synth-last-not-best", &[("step", &used), ("best", &best), ("path", &other.display())])
        }
        _ => messages.with("synth-last", &[("step", &used)]),
    }
}

pub(crate) fn failure(error: &SynthesisError, messages: &Messages) -> Failure {
    let failure = Failure::of(USAGE, error);
    match error {
        SynthesisError::NoReference => failure.hint(messages.get("synth-hint-speaker")),
        SynthesisError::OneSpeaker => failure.hint(messages.get("synth-hint-one-speaker")),
        SynthesisError::NoFlow => failure.hint(messages.get("synth-hint-no-flow")),
        _ => failure,
    }
}

/// The run that a checkpoint belongs to.
pub(crate) fn run_of(checkpoint: &Path) -> RunDir {
    let full = checkpoint.canonicalize().unwrap_or_else(|_| checkpoint.to_owned());
    RunDir::new(full.parent().and_then(Path::parent).unwrap_or(Path::new(".")).to_owned())
}

/// A file is listened to; anything else is the name of a speaker.
fn find_speaker(
    synthesizer: &Synthesizer,
    checkpoint: &Path,
    requested: Option<&str>,
    messages: &Messages,
) -> Result<Option<HostReference>, Failure> {
    match requested {
        Some(_) if !synthesizer.has_speakers() => Err(failure(&SynthesisError::OneSpeaker, messages)),
        None if !synthesizer.has_speakers() => Ok(None),
        Some(file) if Path::new(file).exists() || looks_like_a_file(file) => {
            synthesizer.reference(Path::new(file)).map(Some).map_err(|error| failure(&error, messages))
        }
        name => {
            let voices = run_of(checkpoint).voices_path();
            let (found, reference) = synthesizer.named(&voices, name).map_err(|error| failure(&error, messages))?;
            if name.is_none() {
                eprintln!("{}", messages.with("synth-first-speaker", &[("name", &found)]));
            }
            Ok(Some(reference))
        }
    }
}

fn looks_like_a_file(name: &str) -> bool {
    let extensions = [".wav", ".flac", ".mp3", ".ogg"];
    name.contains(std::path::MAIN_SEPARATOR)
        || extensions.iter().any(|extension| name.to_lowercase().ends_with(extension))
}

/// The spectrogram, with lines between the characters.
pub(crate) fn draw(speech: &Speech) -> Vec<u8> {
    spectrogram_png(&speech.mel, speech.frames, &starts(&speech.durations), 4)
}

/// The frames at which characters start.
pub(crate) fn starts(durations: &[u32]) -> Vec<usize> {
    let ends = durations.iter().scan(0usize, |sum, &frames| {
        *sum += frames as usize;
        Some(*sum)
    });
    ends.collect()
}
