//! All texts in one WAV file, one sentence after the other.

use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::Ordering;

use serde_json::json;
use tandem_audio::WavWriter;
use tandem_synth::{Joiner, Utterance};

use super::texts::Line;
use super::{Voice, cannot_write, draw, line_failure};
use crate::args::SynthArgs;
use crate::failure::{Failure, INTERRUPTED};
use crate::interrupt;
use crate::messages::Messages;
use crate::ui::output::{Output, print};
use crate::ui::progress;

pub(super) fn run(args: &SynthArgs, lines: &[Line], messages: &Messages) -> Result<(), Failure> {
    let wav = args.output.extension().is_none_or(|extension| extension.eq_ignore_ascii_case("wav"));
    if !wav || args.output.as_os_str() == "-" {
        return Err(Failure::usage(messages.with("synth-not-wav", &[("path", &args.output.display())])));
    }
    // Paths that cannot be written are found before the work.
    let output = Output::create_for(&args.output, messages)?;
    let mut image = args.image.as_deref().map(|path| Output::create_for(path, messages)).transpose()?;
    let interrupt = interrupt::catch();
    let voice = Voice::open(args, messages)?;
    let lines: Vec<&Line> = lines.iter().collect();
    let mut tokens = 0;
    for (found, line) in voice.measure(args, &lines, &interrupt.flag, messages)?.into_iter().zip(&lines) {
        tokens += found.map_err(|error| line_failure(&error, line, messages))?;
    }
    let failed = |error: std::io::Error| cannot_write(&args.output, &error, messages);
    let rate = voice.sample_rate();
    let mut wav = WavWriter::new(output, rate).map_err(failed)?;
    let mut joiner = Joiner::new(args.pause, rate);
    let bar = progress::share(tokens as u64, stderr().is_terminal());
    bar.set_message(messages.get("evaluate-speaking"));
    let (mut frames, mut durations, mut sentences) = (0, Vec::new(), Vec::new());
    let mut stopped = false;
    for (n, spoken) in voice.speak(args, &lines, messages)? {
        let Utterance { text, speech } = spoken.map_err(|error| line_failure(&error, lines[n], messages))?;
        let joined = joiner.join(&speech.samples);
        wav.append(&joined.samples).map_err(failed)?;
        bar.inc(speech.durations.len() as u64);
        if let (Some(mut output), Some(path)) = (image.take(), &args.image) {
            let written = output.writer().write_all(&draw(&speech)).and_then(|()| output.finish());
            written.map_err(|error| cannot_write(path, &error, messages))?;
        }
        if args.json {
            frames += speech.frames;
            durations.extend(speech.durations);
            let seconds = |sample: u64| sample as f64 / f64::from(rate);
            sentences.push(json!({"text": text, "start": seconds(joined.start), "end": seconds(joined.end)}));
        }
        stopped = interrupt.flag.load(Ordering::SeqCst) && bar.position() < tokens as u64;
        if stopped {
            break;
        }
    }
    bar.finish_and_clear();
    let seconds = wav.samples() as f64 / f64::from(rate);
    let path = wav.finish().and_then(Output::finish).map_err(failed)?;
    if args.json {
        let object = json!({"path": path, "seconds": seconds, "frames": frames, "durations": durations,
            "sentences": sentences, "step": voice.state.step, "checkpoint": voice.checkpoint, "stopped": stopped});
        print(&format!("{object}\n"))?;
    }
    let shown = format!("{seconds:.2}");
    if stopped {
        let text = messages.with("synth-stopped", &[("path", &path.display()), ("seconds", &shown)]);
        return Err(Failure::new(INTERRUPTED, text));
    }
    if args.json {
        return Ok(());
    }
    let values: &[(&str, &dyn std::fmt::Display)] =
        &[("path", &path.display()), ("seconds", &shown), ("step", &voice.state.step)];
    let done = if voice.vocoder.is_some() { "synth-done-vocoder" } else { "synth-done" };
    print(&format!("{}\n", messages.with(done, values)))
}
