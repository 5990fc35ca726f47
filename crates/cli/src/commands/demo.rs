//! `tandem demo`: with nothing but this program, a corpus, a voice, and what it says.

use std::path::Path;

use serde_json::json;
use tandem_data::DemoCorpus;
use tandem_data::files::write_atomically;
use tandem_model::Losses;
use tandem_observe::{Curve, alignment_png, curves_svg, spectrogram_png};
use tandem_synth::{Evaluation, Speech, Synthesizer, alignment_of};
use tandem_train::{
    Facts, Injection, Requested, RunDir, SettingsError, Start, State, checkpoint, corpus_settings, read_log, resolve,
};

use crate::args::DemoArgs;
use crate::commands::{evaluate, synth, train};
use crate::failure::{FAILED, Failure};
use crate::interrupt;
use crate::listeners::Listeners;
use crate::messages::{Lang, Messages};
use crate::open_lanes;
use crate::run_facts;
use crate::ui::output::print;
use crate::ui::training::{Screen, final_report};

pub(crate) fn run(args: &DemoArgs, messages: &Messages) -> Result<(), Failure> {
    let dir = &args.dir;
    // Before anything is written: a device that cannot be had is an error.
    let lanes = open_lanes::open_one(&args.device, messages)?;
    let device = lanes.model.clone();
    let failed = |error: &dyn std::fmt::Display| {
        Failure::usage(messages.with("cannot-write", &[("path", &dir.display()), ("reason", error)]))
    };
    let (corpus, run) = (dir.join("corpus"), RunDir::new(dir.join("run")));
    let say = |text: String| if args.json { Ok(()) } else { print(&format!("{text}\n")) };
    if corpus.join("metadata.csv").exists() {
        say(messages.with("demo-corpus-there", &[("folder", &corpus.display())]))?;
    } else {
        let made = DemoCorpus { clips: args.clips as usize, speakers: args.speakers as usize, seed: 1 }
            .write(&corpus)
            .map_err(|error| failed(&error))?;
        let minutes = format!("{:.1}", made.seconds / 60.0);
        say(messages.with(
            "demo-corpus",
            &[
                ("clips", &made.clips),
                ("minutes", &minutes),
                ("speakers", &args.speakers),
                ("folder", &corpus.display()),
            ],
        ))?;
    }
    let interrupt = interrupt::catch();
    let last = run.checkpoints().steps().last().map(|&step| run.checkpoints().path(step));
    let start = last
        .map(|path| checkpoint::read(&path).map(|checkpoint| Start { checkpoint, path }))
        .transpose()
        .map_err(|error| Failure::usage(error.to_string()))?;
    let state = start.as_ref().map(|start| &start.checkpoint.state);
    let saved = state.map(|state| &state.settings);
    let path = start.as_ref().map(|start| start.path.as_path());
    let wrong = |error| run_facts::failure(error, path, messages);
    let (requested, lanes) = (requested(args).map_err(wrong)?, lanes);
    let read = corpus_settings(&requested, state).map_err(|error| run_facts::corpus_failure(error, path, messages))?;
    let data = train::open_data(&corpus, None, read, &interrupt, messages)?;
    let facts = Facts::new(data.clips.len(), &lanes.placement).with_texts(&data.corpus);
    let (config, resolved) = resolve(&requested, saved, &facts).map_err(wrong)?;
    let session = train::Session {
        data,
        config,
        resolved,
        run: run.clone(),
        from_scratch: false,
        start,
        lanes,
        injection: Injection::default(),
        lane_fault: None,
        trace: None,
        listeners: Listeners::default(),
        dashboard: false,
    };
    let report = session.train(Screen::new(args.json, messages), &interrupt, messages)?;
    if report.outcome == tandem_train::Outcome::Stopped {
        return Ok(());
    }
    let last = run.checkpoints().steps().last().copied().unwrap_or_default();
    let (synthesizer, state) = checkpoint::open_voice(&run.checkpoints().path(last), &device)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let held_out = evaluate::HeldOut::open(&state, None, 64, messages)?;
    let evaluation = held_out.evaluate(&synthesizer, &state, messages);
    let made = Shown::make(&synthesizer, &state, &held_out, &run, messages)?;
    made.write(dir, &evaluation, held_out.corpus.rows(), messages).map_err(|error| failed(&error))?;
    if args.json {
        let object = json!({"event": "demo", "folder": dir, "evaluation": evaluation, "sentence": made.sentence,
            "report": report});
        return print(&format!("{object}\n"));
    }
    print(&final_report(&report, messages))?;
    print(&evaluate::report(&evaluation, messages))?;
    let line = messages.with(
        "demo-done",
        &[
            ("page", &dir.join("index.html").display()),
            ("wav", &dir.join("speech.wav").display()),
            ("sentence", &made.sentence),
        ],
    );
    // By itself and as it is typed: to be copied.
    let speaker = held_out.corpus.speakers().last().map_or(String::new(), |name| format!(" --speaker {name}"));
    print(&format!(
        "{line}\n  tandem synth \"tomato salad.\" --checkpoint {}{speaker} -o salad.wav\n",
        train::quoted(run.path())
    ))
}

/// What suits a small corpus and a few minutes: a learning rate that falls to the end.
fn requested(args: &DemoArgs) -> Result<Requested, SettingsError> {
    let mut requested = Requested::new();
    let steps = args.steps;
    for (name, text) in [
        // The times of its sounds are known letter by letter.
        ("units", "characters".to_owned()),
        ("model-size", "smoke".to_owned()),
        ("batch-size", "16".to_owned()),
        ("lr", "2e-3".to_owned()),
        ("warmup", "50".to_owned()),
        // A step more than there are: on the last one it would restart.
        ("schedule", format!("cosine:{}:1", steps.saturating_sub(49).max(1))),
        ("epochs", "1000000".to_owned()),
        ("max-steps", steps.to_string()),
        ("validate-every", (steps / 8).max(1).to_string()),
        ("checkpoint-every", "200".to_owned()),
        ("sample-every", "0".to_owned()),
        ("keep", "2".to_owned()),
    ] {
        requested.set(name, &text, "demo")?;
    }
    Ok(requested)
}

/// What the demo shows.
struct Shown {
    sentence: String,
    spoken: Speech,
    truth: Vec<f32>,
    truth_frames: usize,
    alignment: Vec<u32>,
    curves: Vec<Curve>,
}

impl Shown {
    fn make(
        synthesizer: &Synthesizer,
        state: &State,
        held_out: &evaluate::HeldOut,
        run: &RunDir,
        messages: &Messages,
    ) -> Result<Shown, Failure> {
        // The longest sentence has the most to show.
        let longest = held_out.batches.iter().max_by_key(|batch| batch.inputs.mel_lengths.iter().max().copied());
        let batch = longest.expect("there are validation clips");
        let inputs = &batch.inputs;
        let row = (0..batch.clips.len()).max_by_key(|&row| inputs.mel_lengths[row]).unwrap_or(0);
        let sentence = held_out.corpus.text(batch.clips[row]).unwrap_or_default();
        let spoken = synthesizer.synthesize_row(inputs, row).map_err(|error| synth::failure(&error, messages))?;
        let alignment = alignment_of(synthesizer, inputs, row);
        let frames = inputs.mel_lengths[row];
        let truth = state.stats.restore(&inputs.mel[row * inputs.frames * inputs.n_mels..], frames);
        let log = read_log(&run.log_path()).map_err(|error| Failure::new(FAILED, error.to_string()))?;
        let curve = |name: &str, key: &str, validation: bool| Curve {
            name: name.to_owned(),
            points: (log.iter())
                .filter(|line| line["validation"].is_number() == validation)
                .filter_map(|line| Some((line["step"].as_f64()?, line[key].as_f64()?)))
                .collect(),
        };
        let mut curves = vec![curve("loss", "loss", false)];
        curves.extend(Losses::NAMES.map(|term| curve(term, term, false)));
        curves.push(curve("validation", "validation", true));
        // A term that the model does not have is in no line.
        curves.retain(|curve| !curve.points.is_empty());
        Ok(Shown { sentence, spoken, truth, truth_frames: frames, alignment, curves })
    }

    fn write(&self, dir: &Path, evaluation: &Evaluation, clips: usize, messages: &Messages) -> std::io::Result<()> {
        let put = |name: &str, bytes: &[u8]| write_atomically(&dir.join(name), bytes);
        self.spoken.write(&dir.join("speech.wav"))?;
        put("curves.svg", curves_svg(&messages.get("demo-curves"), &self.curves).as_bytes())?;
        put("alignment.png", &alignment_png(&self.alignment, 4))?;
        put("mel-spoken.png", &synth::draw(&self.spoken))?;
        put("mel-true.png", &spectrogram_png(&self.truth, self.truth_frames, &synth::starts(&self.alignment), 4))?;
        put("index.html", self.page(evaluation, clips, messages).as_bytes())
    }

    fn page(&self, evaluation: &Evaluation, clips: usize, messages: &Messages) -> String {
        let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
        let get = |id: &str| escape(&messages.get(id));
        let direction = messages.get("direction");
        let lang = if messages.lang() == Lang::Fa { "fa" } else { "en" };
        let figures = escape(&evaluate::report(evaluation, messages));
        let steps = escape(&messages.with("demo-steps", &[("steps", &evaluation.step), ("clips", &clips)]));
        format!(
            "<!doctype html>\n<html lang=\"{lang}\" dir=\"{direction}\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\">\n<title>Tandem</title>\n<style>\n:root {{ color-scheme: light \
             dark; }}\nbody {{ font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; \
             }}\nimg {{ max-width: 100%; height: auto; border-radius: 4px; background: #fff; }}\nimg.data {{ width: 100%; \
             height: 16rem; image-rendering: pixelated; }}\naudio {{ width: 100%; }}\npre {{ white-space: pre-wrap; padding: 1rem; border: \
             1px solid #8884; border-radius: 4px; }}\n</style>\n<h1>Tandem</h1>\n<p>{steps}</p>\n<h2>{}</h2>\n<p \
             dir=\"auto\"><b>{}</b></p>\n<audio controls src=\"speech.wav\"></audio>\n<p>{}</p>\n<h2>{}</h2>\n\
             <pre>{figures}</pre>\n<h2>{}</h2>\n<img src=\"curves.svg\" alt=\"\">\n<h2>{}</h2>\n<img class=\"data\" \
             src=\"mel-spoken.png\" alt=\"\">\n<h2>{}</h2>\n<img class=\"data\" src=\"mel-true.png\" alt=\"\">\n\
             <h2>{}</h2>\n<img class=\"data\" src=\"alignment.png\" alt=\"\">\n</html>\n",
            get("demo-says"),
            escape(&self.sentence),
            get("demo-metallic"),
            get("demo-figures"),
            get("demo-curves"),
            get("demo-mel-spoken"),
            get("demo-mel-true"),
            get("demo-alignment"),
        )
    }
}
