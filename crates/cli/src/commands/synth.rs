//! `tandem synth`: say a text with a trained voice.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::json;
use tandem_model::{Device, HostReference};
use tandem_observe::spectrogram_png;
use tandem_synth::{Solver, Speech, SynthesisError, SynthesisSettings, Synthesizer};
use tandem_text::Language;
use tandem_train::{Checkpoints, RunDir, State, checkpoint};

use crate::args::SynthArgs;
use crate::commands::corpus;
use crate::failure::{FAILED, Failure, USAGE};
use crate::messages::Messages;
use crate::ui::output::{Output, print};

pub(crate) fn run(args: &SynthArgs, messages: &Messages) -> Result<(), Failure> {
    let wav = args.output.extension().is_none_or(|extension| extension.eq_ignore_ascii_case("wav"));
    if !wav || args.output.as_os_str() == "-" {
        return Err(Failure::usage(messages.with("synth-not-wav", &[("path", &args.output.display())])));
    }
    // Paths that cannot be written are found before the work.
    let mut output = Output::create_for(&args.output, messages)?;
    let image = args.image.as_deref().map(|path| Output::create_for(path, messages)).transpose()?;
    let (synthesizer, state, dir) = open(&args.checkpoint, messages)?;
    let ids = encode(&state, &args.text, args.language.as_ref(), messages)?;
    let reference = find_speaker(&synthesizer, &dir, args.speaker.as_deref(), messages)?;
    let settings = SynthesisSettings {
        steps: args.steps as usize,
        solver: Solver::Euler,
        temperature: args.temperature as f32,
        speed: args.speed as f32,
        seed: args.seed,
    };
    let speech =
        synthesizer.synthesize(&ids, reference.as_ref(), settings).map_err(|error| failure(&error, messages))?;
    let failed = |path: &Path, error: std::io::Error| {
        Failure::new(FAILED, messages.with("cannot-write", &[("path", &path.display()), ("reason", &error)]))
    };
    let written = tandem_audio::write_wav(&speech.samples, speech.sample_rate, output.writer());
    let path = written.and_then(|()| output.finish()).map_err(|error| failed(&args.output, error))?;
    if let (Some(mut image), Some(to)) = (image, &args.image) {
        let written = image.writer().write_all(&draw(&speech));
        written.and_then(|()| image.finish()).map_err(|error| failed(to, error))?;
    }
    let seconds = speech.seconds();
    if args.json {
        let object = json!({"path": path, "seconds": seconds, "frames": speech.frames, "durations": speech.durations,
            "step": state.step, "checkpoint": dir});
        return print(&format!("{object}\n"));
    }
    let line = messages
        .with("synth-done", &[("path", &path.display()), ("seconds", &format!("{seconds:.2}")), ("step", &state.step)]);
    print(&format!("{line}\n"))
}

/// The voice of a run or a checkpoint, and the checkpoint's folder.
pub(crate) fn open(path: &Path, messages: &Messages) -> Result<(Synthesizer, State, PathBuf), Failure> {
    let dir = checkpoint::find(path).map_err(|error| Failure::of(USAGE, &error))?;
    let beside = dir.parent().map(|dir| Checkpoints::new(dir.to_owned()).steps()).unwrap_or_default();
    if let Some(&last) = beside.last()
        && dir != path
        && !dir.ends_with(format!("step-{last:08}"))
    {
        let best = dir.file_name().unwrap_or_default().to_string_lossy().replace("step-", "");
        let best = best.trim_start_matches('0');
        eprintln!("{}", messages.with("synth-best", &[("best", &best), ("last", &last)]));
    }
    let (synthesizer, state) =
        checkpoint::open_voice(&dir, &Device::flex()).map_err(|error| Failure::of(USAGE, &error))?;
    Ok((synthesizer, state, dir))
}

pub(crate) fn failure(error: &SynthesisError, messages: &Messages) -> Failure {
    let failure = Failure::of(USAGE, error);
    match error {
        SynthesisError::NoReference => failure.hint(messages.get("synth-hint-speaker")),
        SynthesisError::OneSpeaker => failure.hint(messages.get("synth-hint-one-speaker")),
        _ => failure,
    }
}

pub(crate) fn encode(
    state: &State,
    text: &str,
    language: Option<&Language>,
    messages: &Messages,
) -> Result<Vec<i32>, Failure> {
    Synthesizer::encode(&state.frontend, text, language).map_err(|error| match &error {
        SynthesisError::Frontend(error) => corpus::frontend_failure(error, messages),
        _ => failure(&error, messages),
    })
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
