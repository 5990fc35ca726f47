//! A vocoder is trained as a voice is: it learns, resumes exactly, stands alone and is not mistaken for a voice.

use std::path::Path;
use std::sync::Arc;

use tandem_audio::{LogMel, MelSettings, Vocoder, parse_wav};
use tandem_data::CacheMode;
use tandem_data::{Corpus, CorpusSettings, DemoCorpus};
use tandem_device::Lanes;
use tandem_flow::Context;
use tandem_model::{Device, Size};
use tandem_train::checkpoint::{self, CheckpointError};
use tandem_train::task::TrainedPart;
use tandem_train::{Data, Event, RunDir, Start, TrainConfig, TrainError, Trainer, VoiceError, read_log};

fn data(dir: &Path) -> Data {
    corpus(dir, 1)
}

fn corpus(dir: &Path, speakers: usize) -> Data {
    DemoCorpus { clips: 12, speakers, seed: 3 }.write(dir).expect("written");
    let corpus = Corpus::open(dir, CorpusSettings::default()).expect("a corpus");
    Data::new(Arc::new(corpus), None).expect("data")
}

fn settings(steps: u64) -> TrainConfig {
    let mut settings = TrainConfig::default();
    settings.model.part = TrainedPart::Vocoder;
    settings.model.size = Size::Smoke;
    settings.data.batch_size = 4;
    (settings.run.max_steps, settings.run.sample_every, settings.run.checkpoint_every) = (Some(steps), 4, 4);
    (settings.run.validate_every, settings.run.log_every) = (Some(4), 1);
    (settings.optimizer.lr.peak, settings.optimizer.lr.warmup, settings.optimizer.ema_decay) = (1e-3, 2, 0.5);
    settings.pipeline.workers = 1;
    settings
}

/// Trains, and returns the validation losses.
fn train(data: &Data, settings: TrainConfig, run: &Path, start: Option<Start>) -> Vec<f64> {
    let mut trainer = Trainer::new(data.clone(), settings, RunDir::new(run), Lanes::cpu(), start).expect("a run");
    let mut losses = Vec::new();
    let report = trainer.run(&Context::default(), &mut |event| {
        if let Event::Validation { loss, names, .. } = event {
            assert_eq!(names[0], "mel");
            losses.push(loss);
        }
    });
    let report = report.expect("trained");
    assert!(report.skipped.is_empty(), "{:?}", report.skipped);
    losses
}

/// The loss of each step.
fn log(run: &Path) -> Vec<(u64, f64)> {
    let lines = read_log(&run.join("log.jsonl")).expect("a log");
    lines.iter().filter_map(|line| Some((line["step"].as_u64()?, line["loss"].as_f64()?))).collect()
}

fn start(run: &Path, step: u64) -> Start {
    let path = RunDir::new(run).checkpoints().path(step);
    Start { checkpoint: checkpoint::read(&path).expect("whole"), path }
}

fn weights(run: &Path, step: u64) -> tandem_model::weights::Tensors {
    start(run, step).checkpoint.weights
}

#[test]
fn a_vocoder_learns_resumes_exactly_and_stands_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = data(&dir.path().join("corpus"));
    let (whole, parts) = (dir.path().join("whole"), dir.path().join("parts"));
    let losses = train(&data, settings(12), &whole, None);
    assert_eq!(losses.len(), 3);
    assert!(losses[2] < losses[0], "it learns: {losses:?}");
    assert!(whole.join("samples/step-00000004.wav").is_file(), "it is heard");

    train(&data, settings(8), &parts, None);
    train(&data, settings(12), &parts, Some(start(&parts, 8)));
    assert_eq!(log(&whole), log(&parts), "bit for bit");
    assert_eq!(weights(&whole, 12), weights(&parts, 12));

    // Used without anything of the run but its checkpoint.
    let mel = MelSettings::default();
    let vocoder = checkpoint::open_trained_vocoder(&whole, &mel, &Device::flex()).expect("a vocoder");
    let sample = std::fs::read(whole.join("samples/step-00000004.wav")).expect("there");
    let mut samples = Vec::new();
    parse_wav(&sample, &mut samples).expect("a WAV file");
    let frames = mel.frames(samples.len());
    let bands = LogMel::new(&mel).expect("valid").compute(&samples);
    let again = vocoder.synthesize(&bands, frames, Some(&vec![120.0; frames]));
    assert_eq!(again.len(), (frames - 1) * mel.hop_length);
    assert!(again.iter().all(|sample| sample.is_finite()));
    assert_eq!(again, vocoder.synthesize(&bands, frames, Some(&vec![120.0; frames])), "always the same");

    // Other frames, and other parts of a voice, are refused by name.
    let other = MelSettings { n_mels: 60, fmax: 7000.0, ..mel.clone() };
    match checkpoint::open_trained_vocoder(&whole, &other, &Device::flex()) {
        Err(VoiceError::Checkpoint(CheckpointError::OtherMel(_, lines))) => {
            assert_eq!(lines.len(), 2);
            assert!(lines.contains(&"fmax: 7000.0 here, 8000.0 there".to_owned()), "{lines:?}");
            assert!(lines.contains(&"n_mels: 60 here, 80 there".to_owned()), "{lines:?}");
        }
        other => panic!("{other:?}"),
    }
    let last = checkpoint::find(&whole).expect("a checkpoint");
    match checkpoint::open_voice(&last, &Device::flex()) {
        Err(VoiceError::Checkpoint(CheckpointError::OtherPart { found, needed, .. })) => {
            assert_eq!((found, needed), (TrainedPart::Vocoder, TrainedPart::Acoustic));
        }
        other => panic!("{:?}", other.map(|_| ())),
    }
}

#[test]
fn a_run_of_the_one_part_does_not_resume_as_the_other() {
    let dir = tempfile::tempdir().expect("a folder");
    let (data, run) = (data(&dir.path().join("corpus")), dir.path().join("run"));
    train(&data, settings(2), &run, None);
    let start = start(&run, 2);
    let mut settings = settings(4);
    settings.model.part = TrainedPart::Acoustic;
    let refused = Trainer::new(data, settings, RunDir::new(&run), Lanes::cpu(), Some(start)).err();
    let text = refused.expect("refused").to_string();
    assert!(text.contains("--part: acoustic here, vocoder in the checkpoint"), "{text}");
}

/// SPEC N4, stage 2: correct, of unproven quality.
#[test]
fn discriminators_learn_beside_a_vocoder_and_resume_exactly() {
    let dir = tempfile::tempdir().expect("a folder");
    let (data, run) = (data(&dir.path().join("corpus")), |name: &str| dir.path().join(name));
    train(&data, settings(4), &run("first"), None);
    let adversarial = |steps: u64| {
        let mut settings = settings(steps);
        (settings.model.adversarial, settings.model.init_from) = (true, Some(run("first")));
        settings.optimizer.lr.peak = 2e-3;
        settings
    };
    train(&data, adversarial(8), &run("whole"), None);
    let lines = read_log(&run("whole").join("log.jsonl")).expect("a log");
    let steps: Vec<_> = lines.iter().filter(|line| line["loss"].is_number()).collect();
    assert_eq!(steps.len(), 8);
    let term = |name: &str| steps.iter().map(|line| line[name].as_f64().expect("finite")).collect::<Vec<f64>>();
    for name in ["mel", "adversarial", "matching", "discriminator"] {
        assert!(term(name).iter().all(|value| value.is_finite() && *value > 0.0), "{name}: {:?}", term(name));
    }
    // The discriminators learn to tell the two apart, on average of the first and the last steps.
    let told = term("discriminator");
    assert!(told[5..].iter().sum::<f64>() < told[..3].iter().sum::<f64>(), "{told:?}");
    let weights_of = |run: &Path, step: u64, part: &str| {
        let mut weights = weights(run, step);
        weights.retain(|name, _| name.starts_with(part));
        weights
    };
    for part in ["output", "discriminators"] {
        assert_ne!(weights_of(&run("whole"), 4, part), weights_of(&run("whole"), 8, part), "{part} learns");
    }

    train(&data, adversarial(4), &run("parts"), None);
    train(&data, adversarial(8), &run("parts"), Some(start(&run("parts"), 4)));
    assert_eq!(log(&run("whole")), log(&run("parts")), "bit for bit");
    assert_eq!(weights(&run("whole"), 8), weights(&run("parts"), 8));
    let optimizer = |name: &str| start(&run(name), 8).checkpoint.optimizer;
    assert_eq!(optimizer("whole"), optimizer("parts"));
    assert!(optimizer("whole").contains_key("mean.discriminators.periods.0.layers.0.weight"));

    // Synthesis has no use for them, and no run of the one stage is resumed as the other.
    let mel = MelSettings::default();
    let vocoder = checkpoint::open_trained_vocoder(&run("whole"), &mel, &Device::flex()).expect("a vocoder");
    assert_eq!(vocoder.synthesize(&vec![-3.0; 80 * 20], 20, None).len(), 19 * mel.hop_length);
    let refused =
        Trainer::new(data, settings(9), RunDir::new(run("whole")), Lanes::cpu(), Some(start(&run("whole"), 8)));
    let text = refused.err().expect("refused").to_string();
    assert!(text.contains("--adversarial: false here, true in the checkpoint"), "{text}");
}

/// Silent clips, clips shorter than a segment and clips of another rate are learned from; nothing becomes infinite.
#[test]
fn silent_short_and_odd_clips_are_learned_from() {
    let dir = tempfile::tempdir().expect("a folder");
    let (corpus, kept) = (dir.path().join("corpus"), dir.path().join("kept"));
    DemoCorpus { clips: 10, speakers: 1, seed: 3 }.write(&corpus).expect("written");
    DemoCorpus { clips: 10, speakers: 1, seed: 4 }.write(&kept).expect("written");
    let rows = std::fs::read_to_string(corpus.join("metadata.csv")).expect("there");
    let mut rows: Vec<String> = rows.lines().map(str::to_owned).collect();
    let mut put = |row: usize, rate: u32, samples: Vec<f32>| {
        let id = rows[row].split('|').next().expect("an id").to_owned();
        // As short as the sound: otherwise nobody could say it in that time.
        rows[row] = format!("{id}|no");
        let mut bytes = Vec::new();
        tandem_audio::write_wav(&samples, rate, &mut bytes).expect("written");
        std::fs::write(corpus.join("wavs").join(format!("{id}.wav")), bytes).expect("written");
    };
    let tone =
        |rate: usize, samples: usize| (0..samples).map(|n| 0.3 * (n as f32 * 900.0 / rate as f32).sin()).collect();
    put(0, 22_050, vec![0.0; 30_000]);
    put(1, 22_050, tone(22_050, 4_000));
    put(2, 48_000, tone(48_000, 60_000));
    put(3, 8_000, tone(8_000, 12_000));
    std::fs::write(corpus.join("metadata.csv"), rows.join("\n") + "\n").expect("written");
    let open = |dir: &Path| Arc::new(Corpus::open(dir, CorpusSettings::default()).expect("a corpus"));
    let data = Data::new(open(&corpus), Some(open(&kept))).expect("data");
    assert_eq!((data.clips.len(), data.too_fast.len()), (10, 0), "all of them");
    for adversarial in [false, true] {
        let run = dir.path().join(if adversarial { "second" } else { "first" });
        let mut settings = settings(5);
        settings.model.adversarial = adversarial;
        // Fewer than there are clips: each epoch has a batch of two.
        settings.data.batch_size = 8;
        let losses = train(&data, settings, &run, None);
        assert!(losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
        let steps = log(&run);
        assert!(steps.len() == 5 && steps.iter().all(|(_, loss)| loss.is_finite()), "{steps:?}");
    }
}

/// A vocoder whose file is torn, or has other shapes than it says, is named; a run resumes from an older checkpoint.
#[test]
fn a_torn_vocoder_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let (data, run) = (data(&dir.path().join("corpus")), dir.path().join("run"));
    train(&data, settings(8), &run, None);
    let (mel, last) = (MelSettings::default(), RunDir::new(&run).checkpoints().path(8));
    let open = |path: &Path| checkpoint::open_trained_vocoder(path, &mel, &Device::flex());
    let file = last.join("ema.safetensors");
    let bytes = std::fs::read(&file).expect("there");
    std::fs::write(&file, &bytes[..bytes.len() / 2]).expect("written");
    let text = open(&run).expect_err("torn").to_string();
    assert!(text.contains("step-00000008 is damaged: ema.safetensors is not what was written"), "{text}");
    assert!(checkpoint::read(&last).is_err(), "nor is it resumed from");
    open(&RunDir::new(&run).checkpoints().path(4)).expect("the one before is whole");

    // With checksums of its own, but a tensor of another shape.
    let mut other = start(&run, 4).checkpoint;
    other.state.step = 9;
    other.ema.get_mut("output.bias").expect("a tensor").values.pop();
    other.ema.get_mut("output.bias").expect("a tensor").shape = vec![1025];
    let path = RunDir::new(&run).checkpoints().write(&other).expect("written");
    let text = open(&path).expect_err("another shape").to_string();
    assert!(text.contains("output.bias is [1025], not [1026]"), "{text}");

    // Another sample rate is another kind of frame.
    let other = MelSettings { sample_rate: 16_000, ..mel.clone() };
    let four = RunDir::new(&run).checkpoints().path(4);
    let text = checkpoint::open_trained_vocoder(&four, &other, &Device::flex()).expect_err("refused").to_string();
    assert!(text.contains("sample_rate: 16000 here, 22050 there"), "{text}");
    let settings = CorpusSettings { mel: MelSettings { fmax: 8000.0, ..other }, ..CorpusSettings::default() };
    let other_rate = Corpus::open(&dir.path().join("corpus"), settings).expect("a corpus");
    let other_rate = Data::new(Arc::new(other_rate), None).expect("data");
    let mut config = self::settings(12);
    config.data.mel.sample_rate = 16_000;
    let refused = Trainer::new(other_rate, config, RunDir::new(&run), Lanes::cpu(), Some(start(&run, 4)));
    let text = refused.err().expect("refused").to_string();
    assert!(text.contains("--sample-rate: 16000 here, 22050 in the checkpoint"), "{text}");
}

/// An acoustic model of a few steps.
fn train_voice(data: &Data, run: &Path) {
    let mut settings = settings(4);
    (settings.model.part, settings.model.prior_steps) = (TrainedPart::Acoustic, 2);
    let mut trainer = Trainer::new(data.clone(), settings, RunDir::new(run), Lanes::cpu(), None).expect("a run");
    trainer.run(&Context::default(), &mut |_| {}).expect("trained");
}

/// SPEC N5.
#[test]
fn the_end_of_training_sees_what_an_acoustic_run_predicts() {
    let dir = tempfile::tempdir().expect("a folder");
    // Of several speakers: then a clip is its own reference.
    for speakers in [1, 2] {
        let dir = dir.path().join(speakers.to_string());
        let data = corpus(&dir.join("corpus"), speakers);
        let run = |name: &str| dir.join(name);
        train_voice(&data, &run("voice"));
        let predicted = |steps: u64| {
            let mut settings = settings(steps);
            (settings.model.predicted_by, settings.model.predictions_from) = (Some(run("voice")), 6);
            settings
        };
        train(&data, settings(12), &run("plain"), None);
        train(&data, predicted(12), &run("whole"), None);
        let (plain, whole) = (log(&run("plain")), log(&run("whole")));
        assert_eq!(plain[..6], whole[..6], "until then it sees recordings alone");
        assert!(plain[6..].iter().zip(&whole[6..]).filter(|(a, b)| a != b).count() >= 4, "{plain:?} {whole:?}");
        let state = start(&run("whole"), 12).checkpoint.state;
        assert_eq!(
            state.predictor.as_ref().map(|predictor| predictor.step),
            Some(4),
            "which weights predicted is known"
        );

        // Interrupted before, in, and after it began; and with predictions that are made again each time.
        train(&data, predicted(4), &run("parts"), None);
        train(&data, predicted(8), &run("parts"), Some(start(&run("parts"), 4)));
        let mut uncached = predicted(12);
        uncached.pipeline.cache = CacheMode::Off;
        train(&data, uncached, &run("parts"), Some(start(&run("parts"), 8)));
        assert_eq!(whole, log(&run("parts")), "bit for bit");
        assert_eq!(weights(&run("whole"), 12), weights(&run("parts"), 12));

        // The voice learns on: what the vocoder began with still predicts.
        let again = {
            let mut settings = settings(8);
            (settings.model.part, settings.model.prior_steps) = (TrainedPart::Acoustic, 2);
            Trainer::new(data.clone(), settings, RunDir::new(run("voice")), Lanes::cpu(), Some(start(&run("voice"), 4)))
        };
        again.expect("resumed").run(&Context::default(), &mut |_| {}).expect("trained");
        train(&data, predicted(4), &run("later"), None);
        assert_eq!(start(&run("later"), 4).checkpoint.state.predictor.map(|predictor| predictor.step), Some(8));
        train(&data, predicted(13), &run("parts"), Some(start(&run("parts"), 12)));
        // Until it is gone.
        std::fs::remove_dir_all(RunDir::new(run("voice")).checkpoints().path(4)).expect("there");
        let refused = Trainer::new(
            data.clone(),
            predicted(14),
            RunDir::new(run("parts")),
            Lanes::cpu(),
            Some(start(&run("parts"), 13)),
        );
        let text = refused.err().expect("refused").to_string();
        assert!(text.contains("weights: step 8 (") && text.contains("here, step 4 ("), "{text}");
    }
}

/// Nothing that is not aligned with the recordings is learned from.
#[test]
fn a_run_of_other_features_clips_or_parts_predicts_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let (here, voice) = (data(&dir.path().join("corpus")), dir.path().join("voice"));
    train_voice(&here, &voice);
    train(&here, settings(1), &dir.path().join("vocoder"), None);
    let refused = |data: &Data, by: &Path| {
        let mut settings = settings(2);
        settings.model.predicted_by = Some(by.to_owned());
        let trainer = Trainer::new(data.clone(), settings, RunDir::new(dir.path().join("run")), Lanes::cpu(), None);
        trainer.err().expect("refused")
    };
    let mel = MelSettings { fmax: 7000.0, ..MelSettings::default() };
    let other_mel = Corpus::open(&dir.path().join("corpus"), CorpusSettings { mel, ..CorpusSettings::default() });
    let other_mel = Data::new(Arc::new(other_mel.expect("a corpus")), None).expect("data");
    match refused(&other_mel, &voice) {
        TrainError::OtherClips(path, lines) => {
            assert_eq!((path, lines), (voice.clone(), vec!["fmax: 7000.0 here, 8000.0 there".to_owned()]))
        }
        other => panic!("{other}"),
    }
    let elsewhere = dir.path().join("elsewhere");
    DemoCorpus { clips: 14, speakers: 1, seed: 3 }.write(&elsewhere).expect("written");
    let other_clips = Corpus::open(&elsewhere, CorpusSettings::default()).expect("a corpus");
    let other_clips = Data::new(Arc::new(other_clips), None).expect("data");
    match refused(&other_clips, &voice) {
        TrainError::OtherClips(_, lines) => {
            assert!(
                lines.iter().any(|line| line.starts_with("training clips: ") && line.ends_with(" there")),
                "{lines:?}"
            );
        }
        other => panic!("{other}"),
    }
    match refused(&here, &dir.path().join("vocoder")) {
        TrainError::Checkpoint(CheckpointError::OtherPart { found, .. }) => assert_eq!(found, TrainedPart::Vocoder),
        other => panic!("{other}"),
    }
    assert!(refused(&here, &dir.path().join("nothing")).to_string().contains("does not exist"));
    assert!(!dir.path().join("run").exists(), "nothing was written");
}
