//! `tandem demo`: with nothing but this program, a corpus, a voice, its vocoder, and what it says.

use std::path::Path;

use serde_json::json;
use tandem_audio::{LogMel, Vocoder, open_vocoder};
use tandem_data::DemoCorpus;
use tandem_device::Lanes;
use tandem_model::{Device, Losses};
use tandem_observe::Curve;
use tandem_synth::{Speech, Synthesizer, alignment_of, read_recording};
use tandem_train::task::TrainedPart;
use tandem_train::{
    Facts, Injection, Outcome, Report, Requested, RunDir, SettingsError, Start, State, checkpoint, corpus_settings,
    read_log, resolve,
};

use crate::args::DemoArgs;
use crate::commands::{evaluate, synth, train};
use crate::failure::{FAILED, Failure, USAGE};
use crate::interrupt;
use crate::listeners::Listeners;
use crate::messages::Messages;
use crate::open_lanes;
use crate::ranks::Ranks;
use crate::run_facts;
use crate::ui::demo_page::{Heard, Shown};
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
    // The vocoder lies where synthesis looks for that of a run.
    let (corpus, run, vocoder_run) =
        (dir.join("corpus"), RunDir::new(dir.join("run")), RunDir::new(dir.join("run-vocoder")));
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
    let wrong = |error| run_facts::failure(error, None, messages);
    let interrupt = interrupt::catch();
    let _ = interrupt.notice.set(messages.get("interrupted-first"));
    let report = train_part(voice_settings(args.steps).map_err(wrong)?, &corpus, &run, &lanes, args.json, messages)?;
    if interrupt.stop.reason().is_some() {
        return stopped(&report, args.json, messages);
    }
    let mut vocoder_report = None;
    if args.vocoder_steps > 0 {
        if !args.json {
            print(&final_report(&report, messages))?;
            print(&format!("\n{}\n", messages.get("demo-vocoder")))?;
        }
        let requested = vocoder_settings(args.vocoder_steps, run.path()).map_err(wrong)?;
        let report = train_part(requested, &corpus, &vocoder_run, &lanes, args.json, messages)?;
        if interrupt.stop.reason().is_some() {
            return stopped(&report, args.json, messages);
        }
        vocoder_report = Some(report);
    }
    let last = run.checkpoints().steps().last().copied().unwrap_or_default();
    let (synthesizer, state) = checkpoint::open_voice(&run.checkpoints().path(last), &device)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let held_out = evaluate::HeldOut::open(&state, None, 64, messages)?;
    let last_part = vocoder_report.as_ref().unwrap_or(&report);
    let evaluation = held_out.evaluate(&synthesizer, &state, messages);
    if interrupt.stop.reason().is_some() {
        return stopped(last_part, args.json, messages);
    }
    let evaluation = evaluation?;
    let trained = vocoder_report.as_ref().map(|_| vocoder_run.path());
    let made = make(&synthesizer, &state, &held_out, (&run, trained), &device, messages)?;
    made.write(dir, &evaluation, held_out.corpus.rows(), messages).map_err(|error| failed(&error))?;
    if args.json {
        let object = json!({"event": "demo", "folder": dir, "evaluation": evaluation, "sentence": made.sentence,
            "report": report, "vocoder_report": vocoder_report});
        return print(&format!("{object}\n"));
    }
    print(&final_report(vocoder_report.as_ref().unwrap_or(&report), messages))?;
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

/// Says that there is more to do. A part that was stopped has said so itself; one that ended just then has not.
fn stopped(report: &Report, json: bool, messages: &Messages) -> Result<(), Failure> {
    if json {
        return print(&format!("{}\n", json!({"event": "stopped", "report": report})));
    }
    if report.outcome == Outcome::Stopped { Ok(()) } else { print(&format!("{}\n", messages.get("demo-stopped"))) }
}

/// Trains one part of the voice, from scratch or from where it was interrupted.
fn train_part(
    requested: Requested,
    corpus: &Path,
    run: &RunDir,
    lanes: &Lanes,
    json: bool,
    messages: &Messages,
) -> Result<Report, Failure> {
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
    let read = corpus_settings(&requested, state).map_err(|error| run_facts::corpus_failure(error, path, messages))?;
    let data = train::open_data(corpus, None, read, &interrupt, messages)?;
    let facts = Facts::new(data.clips.len(), &lanes.placement).with_texts(&data.corpus);
    let (config, resolved) = resolve(&requested, saved, &facts).map_err(wrong)?;
    let session = train::Session {
        data,
        config,
        resolved,
        run: run.clone(),
        from_scratch: false,
        start,
        lanes: lanes.clone(),
        injection: Injection::default(),
        lane_fault: None,
        trace: None,
        listeners: Listeners::default(),
        dashboard: false,
    };
    session.train(Screen::new(json, messages), &interrupt, &Ranks::default(), messages)
}

/// What suits a small corpus and a few minutes: a learning rate that falls to the end.
fn voice_settings(steps: u64) -> Result<Requested, SettingsError> {
    let mut requested = Requested::new();
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

/// The same for its vocoder, which is for that voice.
fn vocoder_settings(steps: u64, voice: &Path) -> Result<Requested, SettingsError> {
    let mut requested = voice_settings(steps)?;
    for (name, text) in [
        ("part", TrainedPart::Vocoder.name().to_owned()),
        ("for", voice.display().to_string()),
        ("lr", "1e-3".to_owned()),
    ] {
        requested.set(name, &text, "demo")?;
    }
    Ok(requested)
}

/// A sentence that was not trained on, as it was recorded and as it is said.
fn make(
    synthesizer: &Synthesizer,
    state: &State,
    held_out: &evaluate::HeldOut,
    (run, vocoder): (&RunDir, Option<&Path>),
    device: &Device,
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

    let mel = &synthesizer.bundle().mel;
    let broken = |error: &dyn std::fmt::Display| Failure::new(FAILED, error.to_string());
    let mut vocoders: Vec<(&'static str, Box<dyn Vocoder>)> =
        vec![("griffin-lim", open_vocoder(mel).map_err(|error| broken(&error))?)];
    if let Some(path) = vocoder {
        let trained =
            checkpoint::open_trained_vocoder(path, mel, device).map_err(|error| Failure::of(USAGE, &error))?;
        vocoders.push(("neural", Box::new(trained)));
    }
    let recorded = read_recording(&held_out.corpus, batch.clips[row], mel).map_err(|error| broken(&error))?;
    let mut log_mel = LogMel::new(mel).map_err(|error| broken(&error))?;
    let mut heard = |name: &'static str, samples: Vec<f32>| {
        let (mel_again, frames) = (log_mel.compute(&samples), mel.frames(samples.len()));
        let durations = Vec::new();
        let speech =
            Speech { samples, sample_rate: mel.sample_rate, mel: mel_again, frames, durations, pitch: Vec::new() };
        Heard { name, speech }
    };
    let mut all = vec![heard("recording", recorded)];
    for (name, vocoder) in vocoders {
        let mut samples = vocoder.synthesize(&spoken.mel, spoken.frames, Some(&spoken.pitch));
        let peak = samples.iter().fold(0.0f32, |peak, sample| peak.max(sample.abs()));
        if peak > 0.99 {
            samples.iter_mut().for_each(|sample| *sample *= 0.99 / peak);
        }
        all.push(heard(name, samples));
    }
    Ok(Shown { sentence, spoken, heard: all, truth, truth_frames: frames, alignment, curves })
}
