//! `tandem demo`: with nothing but this program, a corpus, a voice, and what it says.

use std::path::Path;

use serde_json::json;
use tandem_data::{CorpusSettings, DemoCorpus};
use tandem_device::Lanes;
use tandem_model::{Device, Size};
use tandem_observe::{Curve, alignment_png, curves_svg, spectrogram_png};
use tandem_train::{
    Choice, Evaluation, Injection, LearningRate, RunFolder, Said, Schedule, Speech, Start, State, TrainSettings,
    alignment_of, checkpoint, read_log,
};

use crate::args::DemoArgs;
use crate::commands::{evaluate, synth, train};
use crate::failure::{FAILED, Failure};
use crate::interrupt;
use crate::listeners::Listeners;
use crate::messages::{Lang, Messages};
use crate::ui::output::print;
use crate::ui::training::{Screen, final_report};

pub(crate) fn run(args: &DemoArgs, messages: &Messages) -> Result<(), Failure> {
    let folder = &args.folder;
    let failed = |error: &dyn std::fmt::Display| {
        Failure::usage(messages.with("cannot-write", &[("path", &folder.display()), ("reason", error)]))
    };
    let (corpus, run) = (folder.join("corpus"), RunFolder::new(folder.join("run")));
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
    let data = train::open_data(&corpus, None, CorpusSettings::default(), &interrupt, messages)?;
    run.create().map_err(|error| failed(&error))?;
    let last = run.checkpoints().steps().last().map(|&step| run.checkpoints().path(step));
    let start = last
        .map(|path| checkpoint::read(&path).map(|checkpoint| Start { checkpoint, path }))
        .transpose()
        .map_err(|error| Failure::usage(error.to_string()))?;
    let settings = settings(args);
    let choices = vec![Choice {
        name: "--steps".to_owned(),
        asked: Some(args.steps.to_string()),
        got: args.steps.to_string(),
        why: "demo".to_owned(),
    }];
    let session = train::Session {
        data,
        settings,
        choices,
        run: run.clone(),
        start,
        lanes: Lanes::cpu(),
        injection: Injection::default(),
        lane_fault: None,
        trace: None,
        listeners: Listeners::default(),
        dashboard: false,
    };
    let report = session.train(Screen::new(args.json, messages), &interrupt, messages)?;
    if report.ending == tandem_train::Ending::Stopped {
        return Ok(());
    }
    let last = run.checkpoints().steps().last().copied().unwrap_or_default();
    let (speech, state) =
        Speech::open(&run.checkpoints().path(last), &Device::flex()).map_err(|error| synth::usage(&error))?;
    let held_out = evaluate::HeldOut::open(&state, None, 64, messages)?;
    let evaluation = held_out.evaluate(&speech, &state, messages);
    let made = Shown::make(&speech, &state, &held_out, &run)?;
    made.write(folder, &evaluation, held_out.corpus.rows(), messages).map_err(|error| failed(&error))?;
    if args.json {
        let object = json!({"event": "demo", "folder": folder, "evaluation": evaluation, "sentence": made.sentence,
            "report": report});
        return print(&format!("{object}\n"));
    }
    print(&final_report(&report, messages))?;
    print(&evaluate::report(&evaluation, messages))?;
    let line = messages.with(
        "demo-done",
        &[
            ("page", &folder.join("index.html").display()),
            ("wav", &folder.join("speech.wav").display()),
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

/// What suits a small corpus and a few minutes: a rate that falls to the end.
fn settings(args: &DemoArgs) -> TrainSettings {
    TrainSettings {
        size: Size::Smoke,
        batch_size: 16,
        rate: LearningRate {
            peak: 2e-3,
            warmup: 50,
            // A step more than there are: on the last one it would begin anew.
            schedule: Schedule::Cosine { period: args.steps.saturating_sub(49).max(1), growth: 1 },
        },
        epochs: 1_000_000,
        max_steps: Some(args.steps),
        validate_every: Some((args.steps / 8).max(1)),
        checkpoint_every: 200,
        sample_every: 0,
        keep: 2,
        ..TrainSettings::default()
    }
}

/// What the demo shows.
struct Shown {
    sentence: String,
    spoken: Said,
    truth: Vec<f32>,
    truth_frames: usize,
    alignment: Vec<u32>,
    curves: Vec<Curve>,
}

impl Shown {
    fn make(speech: &Speech, state: &State, held_out: &evaluate::HeldOut, run: &RunFolder) -> Result<Shown, Failure> {
        // The longest sentence has the most to show.
        let longest = held_out.batches.iter().max_by_key(|batch| batch.inputs.mel_lengths.iter().max().copied());
        let batch = longest.expect("there are validation clips");
        let inputs = &batch.inputs;
        let row = (0..batch.clips.len()).max_by_key(|&row| inputs.mel_lengths[row]).unwrap_or(0);
        let sentence = held_out.corpus.text(batch.clips[row]).unwrap_or_default();
        let spoken = speech.say_row(inputs, row).map_err(|error| synth::usage(&error))?;
        let alignment = alignment_of(speech, inputs, row, &Device::flex());
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
        let curves = vec![
            curve("loss", "loss", false),
            curve("prior", "prior", false),
            curve("duration", "duration", false),
            curve("flow", "flow", false),
            curve("validation", "validation", true),
        ];
        Ok(Shown { sentence, spoken, truth, truth_frames: frames, alignment, curves })
    }

    fn write(&self, folder: &Path, evaluation: &Evaluation, clips: usize, messages: &Messages) -> std::io::Result<()> {
        let put = |name: &str, bytes: &[u8]| checkpoint::write_atomically(&folder.join(name), bytes);
        self.spoken.write(&folder.join("speech.wav"))?;
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
