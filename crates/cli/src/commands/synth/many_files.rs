//! A WAV file for each text, and a manifest of what is finished: the same command makes what is missing.

use std::io::{IsTerminal, stderr};
use std::path::Path;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tandem_audio::WavWriter;
use tandem_synth::{Joiner, Utterance};

use super::manifest::{Found, Manifest, entry};
use super::texts::Line;
use super::{Voice, cannot_write, line_failure};
use crate::args::SynthArgs;
use crate::failure::{FAILED, Failure, INTERRUPTED};
use crate::interrupt;
use crate::messages::Messages;
use crate::ui::output::{Output, print};
use crate::ui::progress;

pub(super) fn run(args: &SynthArgs, dir: &Path, lines: &[Line], messages: &Messages) -> Result<(), Failure> {
    let interrupt = interrupt::catch();
    let voice = Voice::open(args, messages)?;
    let how = how(args, &voice);
    let mut manifest = Manifest::read(dir).map_err(|(line, reason)| {
        let path = Manifest::path(dir);
        let values: &[(&str, &dyn std::fmt::Display)] =
            &[("path", &path.display()), ("line", &line), ("reason", &reason)];
        Failure::usage(messages.with("synth-manifest", values))
    })?;
    let missing = missing(args, &mut manifest, lines, dir, &how, messages)?;
    let there = lines.len() - missing.len();

    // Texts that cannot be spoken are known before the first is: the others are not kept waiting for the reader.
    let (mut speakable, mut tokens, mut unspeakable) = (Vec::new(), 0, 0);
    for (found, line) in voice.measure(args, &missing, &interrupt.flag, messages)?.into_iter().zip(&missing) {
        match found {
            Ok(count) => {
                tokens += count;
                speakable.push(*line);
            }
            Err(error) => {
                unspeakable += 1;
                let failure = line_failure(&error, line, messages);
                if speakable.is_empty() && unspeakable == lines.len() {
                    return Err(failure);
                }
                eprintln!("{}", failure.render(messages, false));
            }
        }
    }
    let failed = |error: std::io::Error| cannot_write(dir, &error, messages);
    std::fs::create_dir_all(dir).and_then(|()| manifest.write()).map_err(failed)?;
    let bar = progress::share(tokens as u64, stderr().is_terminal());
    bar.set_message(messages.get("evaluate-speaking"));

    let (mut made, mut seconds, mut stopped) = (0, 0.0, false);
    let mut open: Option<(usize, Recording)> = None;
    let mut finish = |line: &Line, recording: Recording| -> Result<(), Failure> {
        let (entry, length) = recording.finish(line, &how, &manifest).map_err(failed)?;
        made += 1;
        seconds += length;
        if args.json {
            let mut event = json!({"event": "text"});
            event.as_object_mut().expect("an object").extend(entry.as_object().cloned().unwrap_or_default());
            print(&format!("{event}\n"))?;
        }
        Ok(())
    };
    for (n, spoken) in voice.speak(args, &speakable, messages)? {
        let spoken = spoken.map_err(|error| line_failure(&error, speakable[n], messages))?;
        if let Some((before, recording)) = open.take_if(|(open, _)| *open != n) {
            finish(speakable[before], recording)?;
            stopped = interrupt.flag.load(Ordering::SeqCst);
            if stopped {
                break;
            }
        }
        let (_, recording) = match &mut open {
            Some(open) => open,
            None => {
                let path = Manifest::wav(dir, &speakable[n].id);
                open.insert((n, Recording::start(&path, args.pause, voice.sample_rate()).map_err(failed)?))
            }
        };
        bar.inc(spoken.speech.durations.len() as u64);
        recording.append(spoken).map_err(failed)?;
        // In the middle of a long text: what is finished stays, this one is made again.
        stopped = interrupt.flag.load(Ordering::SeqCst) && bar.position() < tokens as u64;
        if stopped {
            open = None;
            break;
        }
    }
    if let Some((n, recording)) = open.filter(|_| !stopped) {
        finish(speakable[n], recording)?;
    }
    bar.finish_and_clear();
    report(args, dir, lines.len(), Counts { made, there, unspeakable, seconds, stopped }, messages)
}

/// How it ended.
struct Counts {
    made: usize,
    there: usize,
    unspeakable: usize,
    seconds: f64,
    stopped: bool,
}

fn report(args: &SynthArgs, dir: &Path, all: usize, counts: Counts, messages: &Messages) -> Result<(), Failure> {
    let Counts { made, there, unspeakable, seconds, stopped } = counts;
    let (shown, folder) = (format!("{seconds:.1}"), dir.display());
    let values: &[(&str, &dyn std::fmt::Display)] = &[
        ("made", &made),
        ("seconds", &shown),
        ("folder", &folder),
        ("there", &there),
        ("failed", &unspeakable),
        ("finished", &(made + there)),
        ("all", &all),
    ];
    if args.json {
        let object = json!({"event": "end", "made": made, "there": there, "failed": unspeakable, "seconds": seconds,
            "stopped": stopped, "manifest": Manifest::path(dir)});
        print(&format!("{object}\n"))?;
    } else if !stopped {
        print(&format!("{}\n", messages.with("synth-many-done", values)))?;
    }
    if stopped {
        return Err(Failure::new(INTERRUPTED, messages.with("synth-many-stopped", values)));
    }
    match unspeakable {
        0 => Ok(()),
        _ => Err(Failure::new(FAILED, messages.with("synth-many-failed", values))),
    }
}

/// What decides how a text sounds, for the manifest.
fn how(args: &SynthArgs, voice: &Voice) -> Value {
    let full = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut how = json!({
        "checkpoint": full(&voice.checkpoint),
        "speaker": args.speaker,
        "speed": args.speed,
        "pause": args.pause,
        "steps": args.steps,
        "temperature": args.temperature,
        "seed": args.seed,
        "language": args.language.as_ref().map(ToString::to_string),
    });
    // Only where there is one: folders of earlier versions do not name it.
    if let Some(vocoder) = &voice.vocoder {
        how["vocoder"] = json!(full(vocoder));
    }
    how
}

/// The lines whose files are not there. A file that is something else is never overwritten without a word.
fn missing<'a>(
    args: &SynthArgs,
    manifest: &mut Manifest,
    lines: &'a [Line],
    dir: &Path,
    how: &Value,
    messages: &Messages,
) -> Result<Vec<&'a Line>, Failure> {
    if args.overwrite {
        lines.iter().for_each(|line| manifest.forget(&line.id));
        return Ok(lines.iter().collect());
    }
    let mut missing = Vec::new();
    for line in lines {
        let path = Manifest::wav(dir, &line.id);
        let about = |key: &str, difference: &str| {
            let text = messages.with(key, &[("path", &path.display()), ("difference", &difference)]);
            Err(Failure::usage(text).hint(messages.get("synth-hint-overwrite")))
        };
        match manifest.find(&line.id, &line.text, how) {
            Found::Same => {}
            Found::Missing => missing.push(line),
            Found::OtherText => return about("synth-other-text", ""),
            Found::OtherVoice(differences) => return about("synth-other-voice", &differences.join("; ")),
            Found::Foreign => return about("synth-exists", ""),
        }
    }
    Ok(missing)
}

/// A text on its way to its file.
struct Recording {
    wav: WavWriter<Output>,
    joiner: Joiner,
    rate: u32,
    sentences: Vec<Value>,
}

impl Recording {
    fn start(path: &Path, pause: f64, rate: u32) -> std::io::Result<Recording> {
        let wav = WavWriter::new(Output::create(path)?, rate)?;
        Ok(Recording { wav, joiner: Joiner::new(pause, rate), rate, sentences: Vec::new() })
    }

    fn append(&mut self, utterance: Utterance) -> std::io::Result<()> {
        let joined = self.joiner.join(&utterance.speech.samples);
        let seconds = |sample: u64| sample as f64 / f64::from(self.rate);
        self.sentences
            .push(json!({"text": utterance.text, "start": seconds(joined.start), "end": seconds(joined.end)}));
        self.wav.append(&joined.samples)
    }

    /// Notes the file and lets it appear, in this order: a line without its file is made again, a file without its line
    /// would be in the way.
    fn finish(self, line: &Line, how: &Value, manifest: &Manifest) -> std::io::Result<(Value, f64)> {
        let seconds = self.wav.samples() as f64 / f64::from(self.rate);
        let output = self.wav.finish()?;
        let entry = entry(&line.id, &line.text, seconds, self.sentences, how);
        manifest.note(&entry)?;
        output.finish()?;
        Ok((entry, seconds))
    }
}
