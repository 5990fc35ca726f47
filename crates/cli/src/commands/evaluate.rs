//! `tandem evaluate`: how well a voice has learned.

use std::io::{IsTerminal, Write, stderr};
use std::path::{Path, PathBuf};

use tandem_data::files::write_atomically;
use tandem_data::{Corpus, CorpusSettings};
use tandem_synth::{
    Distance, Evaluation, HeldOutBatch, MeasureError, Measures, SpokenClip, SynthesisSettings, Synthesizer, evaluate,
    speak_batch,
};
use tandem_train::{Data, State, validation_batches};

use crate::args::EvaluateArgs;
use crate::commands::{corpus, synth, train};
use crate::failure::{FAILED, Failure, INTERRUPTED};
use crate::interrupt::{self, Interrupt};
use crate::messages::Messages;
use crate::open_lanes;
use crate::ui::{
    evaluation_page::Page,
    output::{Output, print},
    progress,
    table::Table,
};

pub(crate) fn run(args: &EvaluateArgs, messages: &Messages) -> Result<(), Failure> {
    // Paths that cannot be written are found before the work.
    let html = args.html.as_deref().map(|path| Output::create_for(path, messages)).transpose()?;
    let mut export = args.export.as_deref().map(|dir| Export::create(dir, messages)).transpose()?;
    let device = open_lanes::open_one(&args.device, messages)?.model;
    let (synthesizer, state, checkpoint) = synth::open(&args.run, &device, messages)?;
    let (synthesizer, _) = synth::with_vocoder(synthesizer, &checkpoint, args.vocoder.as_deref(), messages)?;
    let held_out = HeldOut::open(&state, args.data.as_deref(), args.clips as usize, messages)?;
    let mut evaluation = held_out.evaluate(&synthesizer, &state, messages)?;
    if let Some(dir) = &args.data {
        evaluation.notes.push(messages.with("evaluate-given", &[("folder", &dir.display())]));
    }
    let settings = SynthesisSettings {
        steps: args.steps as usize,
        temperature: args.temperature as f32,
        ..SynthesisSettings::default()
    };
    synthesizer.check_settings(settings).map_err(|error| synth::failure(&error, messages))?;
    let mut page = Page::default();
    let measures = held_out.measure(&synthesizer, settings, messages, |spoken, batch| {
        if let Some(export) = &mut export {
            export.write(&synthesizer, &held_out.corpus, spoken, batch, settings)?;
        }
        if args.html.is_some() {
            spoken.iter().for_each(|clip| page.add(clip, held_out.corpus.text(clip.clip).unwrap_or_default()));
        }
        Ok(())
    })?;
    if let Some(export) = export {
        export.finish()?;
    }
    if let (Some(mut output), Some(path)) = (html, &args.html) {
        let title = messages.with("evaluate-title", &[("clips", &evaluation.clips), ("step", &evaluation.step)]);
        let written = output.writer().write_all(page.render(&title, &measures, messages).as_bytes());
        written.and_then(|()| output.finish()).map_err(|error| cannot_write(path, &error, messages))?;
        eprintln!("{}", messages.with("evaluate-html-done", &[("count", &page.len()), ("path", &path.display())]));
    }
    if args.json {
        let mut object = serde_json::to_value(&evaluation).expect("plain data");
        object["measures"] = serde_json::to_value(&measures).expect("plain data");
        return print(&format!("{object}\n"));
    }
    print(&format!("{}\n{}", report(&evaluation, messages), table(&measures, messages)))
}

fn cannot_write(path: &Path, error: &dyn std::fmt::Display, messages: &Messages) -> Failure {
    Failure::usage(messages.with("cannot-write", &[("path", &path.display()), ("reason", error)]))
}

/// Clips that the voice has not seen.
pub(crate) struct HeldOut {
    pub(crate) corpus: std::sync::Arc<Corpus>,
    pub(crate) batches: Vec<HeldOutBatch>,
    interrupt: Interrupt,
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
            format: state.settings.data.format.filter(|_| other.is_none()),
            speakers: if other.is_none() { state.settings.data.speaker_names() } else { Vec::new() },
            max_frames: state.settings.data.max_frames,
            max_tokens: state.settings.data.max_tokens,
            ..state.corpus_settings()
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
        let (group, reference) = state.batch_shape();
        let batches = validation_batches(&data, &state.settings, &state.stats, group, reference, clips)
            .map_err(|error| Failure::of(FAILED, &error))?;
        Ok(HeldOut { corpus: data.validation, batches, interrupt })
    }

    /// Whether the user said stop.
    fn go_on(&self, messages: &Messages) -> Result<(), Failure> {
        match self.interrupt.stop.reason() {
            None => Ok(()),
            Some(_) => Err(Failure::new(INTERRUPTED, messages.get("evaluate-stopped"))),
        }
    }

    pub(crate) fn evaluate(
        &self,
        synthesizer: &Synthesizer,
        state: &State,
        messages: &Messages,
    ) -> Result<Evaluation, Failure> {
        let clips = self.batches.iter().map(|batch| batch.clips.len()).sum::<usize>();
        let bar = progress::bar(clips as u64, stderr().is_terminal());
        bar.set_message(messages.get("evaluate-clips"));
        let found = evaluate(synthesizer, state.step, &self.corpus, &self.batches, &mut |done| {
            bar.set_position(done as u64);
            self.interrupt.stop.reason().is_none()
        });
        bar.finish_and_clear();
        self.go_on(messages)?;
        Ok(found.expect("only the user ends it"))
    }

    /// Synthesizes the clips and compares them with their recordings; `on_batch` gets what was said.
    fn measure(
        &self,
        synthesizer: &Synthesizer,
        settings: SynthesisSettings,
        messages: &Messages,
        mut on_batch: impl FnMut(&[SpokenClip], &HeldOutBatch) -> Result<(), Failure>,
    ) -> Result<Measures, Failure> {
        let clips = self.batches.iter().map(|batch| batch.clips.len()).sum::<usize>();
        let bar = progress::bar(clips as u64, stderr().is_terminal());
        bar.set_message(messages.get("evaluate-speaking"));
        let mut figures = Vec::with_capacity(clips);
        for batch in &self.batches {
            let spoken = speak_batch(synthesizer, &self.corpus, batch, settings, &|| bar.inc(1));
            let spoken = spoken.map_err(|error| match &error {
                MeasureError::Synthesis(error) => synth::failure(error, messages),
                MeasureError::Recording(id, fault) => {
                    Failure::new(FAILED, messages.with("evaluate-unreadable", &[("id", id), ("reason", fault)]))
                }
            })?;
            on_batch(&spoken, batch)?;
            self.go_on(messages)?;
            figures.extend(spoken.into_iter().map(SpokenClip::into_figures));
        }
        bar.finish_and_clear();
        Ok(Measures::of(figures))
    }
}

/// What [`Export`] writes: the voice, the voice with the timing of the recordings, and the true mels through the same
/// vocoder. Each is a corpus in the LJSpeech layout, so that any judge can read it, with an image of every mel.
const EXPORTED: [&str; 3] = ["synthesis", "true-durations", "copy-synthesis"];

/// Texts and WAVs for other judges.
struct Export<'a> {
    dir: &'a Path,
    texts: String,
    messages: &'a Messages,
}

impl<'a> Export<'a> {
    fn create(dir: &'a Path, messages: &'a Messages) -> Result<Export<'a>, Failure> {
        for name in EXPORTED {
            for kind in ["wavs", "mels"] {
                std::fs::create_dir_all(dir.join(name).join(kind))
                    .map_err(|error| cannot_write(dir, &error, messages))?;
            }
        }
        Ok(Export { dir, texts: String::new(), messages })
    }

    fn write(
        &mut self,
        synthesizer: &Synthesizer,
        corpus: &Corpus,
        spoken: &[SpokenClip],
        batch: &HeldOutBatch,
        settings: SynthesisSettings,
    ) -> Result<(), Failure> {
        let inputs = batch.inputs.clone().upload(&synthesizer.input_shape(), synthesizer.device());
        let durations = spoken.iter().map(|clip| clip.recording.durations.clone()).collect();
        let timed = synthesizer.synthesize_clips(&inputs, Some(durations), settings);
        let timed = timed.map_err(|error| synth::failure(&error, self.messages))?;
        for (clip, timed) in spoken.iter().zip(&timed) {
            for (name, speech) in EXPORTED.into_iter().zip([&clip.synthesis, timed, &clip.copy_synthesis]) {
                let at = |kind: &str, extension: &str| {
                    self.dir.join(name).join(kind).join(format!("{}.{extension}", clip.id))
                };
                let written = speech.write(&at("wavs", "wav"));
                let written = written.and_then(|()| write_atomically(&at("mels", "png"), &synth::draw(speech)));
                written.map_err(|error| cannot_write(self.dir, &error, self.messages))?;
            }
            self.texts += &format!("{}|{}\n", clip.id, corpus.text(clip.clip).unwrap_or_default());
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Failure> {
        for name in EXPORTED {
            let written = std::fs::write(self.dir.join(name).join("metadata.csv"), &self.texts);
            written.map_err(|error| cannot_write(self.dir, &error, self.messages))?;
        }
        Ok(())
    }
}

/// How far synthesis and copy-synthesis are from the recordings, side by side.
pub(crate) fn table(measures: &Measures, messages: &Messages) -> String {
    let heading = ["evaluate-measure", "evaluate-synthesis", "evaluate-copy"].map(|id| messages.get(id));
    let mut table = Table::new(heading);
    for (id, synthesis, copy) in rows(&measures.synthesis, &measures.copy_synthesis) {
        table.row([messages.get(id), synthesis, copy]);
    }
    let token = format!("{:.1}", measures.token_duration_error_ms);
    table.row([messages.get("evaluate-token"), token, "–".to_owned()]);
    table.row([messages.get("evaluate-clip-length"), format!("{:.1}", 100.0 * measures.length_error), "–".to_owned()]);
    let other = measures.spectrum_cosine_of_other_speakers.map_or_else(String::new, |cosine| {
        format!("  {}\n", messages.with("evaluate-other-speakers", &[("cosine", &format!("{cosine:.3}"))]))
    });
    table.render() + &other
}

/// Label, synthesis and copy-synthesis of each measure that both have.
pub(crate) fn rows(synthesis: &Distance, copy: &Distance) -> [(&'static str, String, String); 5] {
    let shown = |value: Option<f64>, factor: f64, decimals: usize| {
        value.map_or_else(|| "–".to_owned(), |value| format!("{:.decimals$}", factor * value))
    };
    let row = |id, of: fn(&Distance) -> Option<f64>, factor, decimals| {
        (id, shown(of(synthesis), factor, decimals), shown(of(copy), factor, decimals))
    };
    [
        row("evaluate-mcd", |distance| distance.mcd_db, 1.0, 2),
        row("evaluate-f0-median", |distance| distance.f0_cents_median, 1.0, 0),
        row("evaluate-f0-rmse", |distance| distance.f0_cents_rmse, 1.0, 0),
        row("evaluate-voiced", |distance| distance.voiced_f1, 100.0, 1),
        row("evaluate-spectrum", |distance| distance.spectrum_cosine, 1.0, 3),
    ]
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
