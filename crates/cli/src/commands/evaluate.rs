//! `tandem evaluate`: how well a voice has learned.

use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};

use tandem_data::files::write_atomically;
use tandem_data::{Corpus, CorpusSettings};
use tandem_model::REFERENCE_FRAMES;
use tandem_synth::{Evaluation, HeldOutBatch, SynthesisSettings, Synthesizer, evaluate};
use tandem_train::{Data, State, validation_batches};

use crate::args::EvaluateArgs;
use crate::commands::{corpus, synth, train};
use crate::failure::{FAILED, Failure};
use crate::interrupt;
use crate::messages::Messages;
use crate::open_lanes;
use crate::ui::{output::print, progress};

pub(crate) fn run(args: &EvaluateArgs, messages: &Messages) -> Result<(), Failure> {
    let device = open_lanes::open_one(&args.device, messages)?.model;
    let (synthesizer, state, _) = synth::open(&args.run, &device, messages)?;
    let held_out = HeldOut::open(&state, args.data.as_deref(), args.clips as usize, messages)?;
    let mut evaluation = held_out.evaluate(&synthesizer, &state, messages);
    if let Some(dir) = &args.data {
        evaluation.notes.push(messages.with("evaluate-given", &[("folder", &dir.display())]));
    }
    if let Some(dir) = &args.export {
        let (steps, temperature) = (args.steps as usize, args.temperature as f32);
        let settings = SynthesisSettings { steps, temperature, ..SynthesisSettings::default() };
        export(&synthesizer, &held_out, &state, dir, settings, messages)?;
    }
    if args.json {
        let object = serde_json::to_value(&evaluation).expect("plain data");
        return print(&format!("{object}\n"));
    }
    print(&report(&evaluation, messages))
}

/// Clips that the voice has not seen.
pub(crate) struct HeldOut {
    pub(crate) corpus: std::sync::Arc<Corpus>,
    pub(crate) batches: Vec<HeldOutBatch>,
}

impl HeldOut {
    /// The validation clips of a run, or all clips of another corpus.
    pub(crate) fn open(
        state: &State,
        other: Option<&Path>,
        clips: usize,
        messages: &Messages,
    ) -> Result<HeldOut, Failure> {
        let interrupt = interrupt::catch();
        let settings = CorpusSettings {
            mel: state.mel.clone(),
            format: state.settings.data.format.filter(|_| other.is_none()),
            speakers: if other.is_none() { state.settings.data.speaker_names() } else { Vec::new() },
            audio_dir: state.data.audio_dir.clone(),
            frontend: state.frontend.clone(),
            max_frames: state.settings.data.max_frames,
            max_tokens: state.settings.data.max_tokens,
            ..CorpusSettings::default()
        };
        let data = match other {
            Some(dir) => {
                let corpus = corpus::open(dir, settings, &interrupt.flag, messages)?;
                Data::new(corpus.clone(), Some(corpus)).map_err(|error| train::data_failure(&error, messages))?
            }
            None => {
                let validation = state.data.validation_dir.as_ref().map(PathBuf::from);
                let dir = Path::new(&state.data.dir);
                let data = train::open_data(dir, validation.as_deref(), settings, &interrupt, messages)
                    .map_err(|failure| failure.hint(messages.get("evaluate-hint-data")))?;
                let differences = data.identity().differences(&state.data);
                if !differences.is_empty() {
                    let lines = differences.join("\n  ");
                    let failure = Failure::usage(messages.with("evaluate-other-data", &[("lines", &lines)]));
                    return Err(failure.hint(messages.get("evaluate-hint-data")));
                }
                data
            }
        };
        let reference = state.model.reference.then_some(REFERENCE_FRAMES);
        let group = state.model.decoder.group;
        let batches = validation_batches(&data, &state.settings, &state.stats, group, reference, clips)
            .map_err(|error| Failure::of(FAILED, &error))?;
        Ok(HeldOut { corpus: data.validation, batches })
    }

    pub(crate) fn evaluate(&self, synthesizer: &Synthesizer, state: &State, messages: &Messages) -> Evaluation {
        let clips = self.batches.iter().map(|batch| batch.clips.len()).sum::<usize>();
        let bar = progress::bar(clips as u64, stderr().is_terminal());
        bar.set_message(messages.get("evaluate-clips"));
        let found = evaluate(synthesizer, state.step, &self.corpus, &self.batches, &mut |done| {
            bar.set_position(done as u64);
        });
        bar.finish_and_clear();
        found
    }
}

/// What [`export`] writes: the voice, the voice with the timing of the recordings, and the true mels through the same
/// vocoder. Each is a corpus in the LJSpeech layout, so that any judge can read it, with an image of every mel.
const EXPORTED: [&str; 3] = ["synthesis", "true-durations", "copy-synthesis"];

fn export(
    synthesizer: &Synthesizer,
    held_out: &HeldOut,
    state: &State,
    dir: &Path,
    settings: SynthesisSettings,
    messages: &Messages,
) -> Result<(), Failure> {
    let cannot = |error: &dyn std::fmt::Display| {
        Failure::usage(messages.with("cannot-write", &[("path", &dir.display()), ("reason", error)]))
    };
    for name in EXPORTED {
        for kind in ["wavs", "mels"] {
            std::fs::create_dir_all(dir.join(name).join(kind)).map_err(|error| cannot(&error))?;
        }
    }
    let clips = held_out.batches.iter().map(|batch| batch.clips.len()).sum::<usize>();
    let bar = progress::bar(clips as u64, stderr().is_terminal());
    bar.set_message(messages.get("evaluate-speaking"));
    let mut texts = String::new();
    for batch in &held_out.batches {
        let (host, n_mels) = (&batch.inputs, batch.inputs.n_mels);
        let inputs = host.clone().upload(&synthesizer.input_shape(), synthesizer.device());
        let durations = synthesizer.model().alignment(&inputs);
        let failed = |error| synth::failure(&error, messages);
        let free = synthesizer.synthesize_clips(&inputs, None, settings).map_err(failed)?;
        let timed = synthesizer.synthesize_clips(&inputs, Some(durations.clone()), settings).map_err(failed)?;
        for (row, &clip) in batch.clips.iter().enumerate() {
            let (id, _) = held_out.corpus.name(clip);
            let (frames, size) = (host.mel_lengths[row], host.frames * n_mels);
            let truth = state.stats.restore(&host.mel[row * size..(row + 1) * size], frames);
            let pitch = host.pitch[row * host.frames..][..frames].to_vec();
            let truth = synthesizer.vocode(truth, frames, durations[row].clone(), pitch).map_err(failed)?;
            for (name, speech) in EXPORTED.into_iter().zip([&free[row], &timed[row], &truth]) {
                let at = |kind: &str, extension: &str| dir.join(name).join(kind).join(format!("{id}.{extension}"));
                speech.write(&at("wavs", "wav")).map_err(|error| cannot(&error))?;
                write_atomically(&at("mels", "png"), &synth::draw(speech)).map_err(|error| cannot(&error))?;
            }
            texts += &format!("{id}|{}\n", held_out.corpus.text(clip).unwrap_or_default());
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    for name in EXPORTED {
        std::fs::write(dir.join(name).join("metadata.csv"), &texts).map_err(|error| cannot(&error))?;
    }
    Ok(())
}

pub(crate) fn report(evaluation: &Evaluation, messages: &Messages) -> String {
    let mut text = messages.with("evaluate-title", &[("clips", &evaluation.clips), ("step", &evaluation.step)]);
    text.push('\n');
    let mut line = |id: &str, values: &[(&str, &dyn std::fmt::Display)]| {
        text += &format!("  {}\n", messages.with(id, values));
    };
    if let (Some(found), Some(uniform)) = (evaluation.boundary_error_ms_median, evaluation.boundary_error_ms_uniform) {
        line(
            "evaluate-boundaries",
            &[
                ("found", &format!("{found:.1}")),
                ("uniform", &format!("{uniform:.1}")),
                ("count", &evaluation.boundaries),
            ],
        );
    }
    line("evaluate-length", &[("error", &format!("{:.1}", 100.0 * evaluation.length_error))]);
    line(
        "evaluate-mel",
        &[
            ("mel", &format!("{:.3}", evaluation.mel_l1)),
            ("baseline", &format!("{:.3}", evaluation.mel_l1_baseline)),
            ("share", &format!("{:.1}", 100.0 * evaluation.mel_l1_ratio)),
        ],
    );
    line("evaluate-loss", &[("loss", &format!("{:.4}", evaluation.loss))]);
    if let Some(wrong) = evaluation.loss_wrong_speaker {
        line("evaluate-wrong", &[("loss", &format!("{wrong:.4}"))]);
    }
    for note in &evaluation.notes {
        line("evaluate-note", &[("note", note)]);
    }
    let worst: Vec<&str> = evaluation.worst.iter().take(5).map(|clip| clip.id.as_str()).collect();
    line("evaluate-worst", &[("clips", &worst.join(", "))]);
    text
}
