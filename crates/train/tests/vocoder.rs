//! A vocoder is trained as a voice is: it learns, resumes exactly, stands alone and is not mistaken for a voice.

use std::path::Path;
use std::sync::Arc;

use tandem_audio::{LogMel, MelSettings, Vocoder, parse_wav};
use tandem_data::{Corpus, CorpusSettings, DemoCorpus};
use tandem_device::Lanes;
use tandem_flow::Context;
use tandem_model::{Device, Size};
use tandem_train::checkpoint::{self, CheckpointError};
use tandem_train::task::TrainedPart;
use tandem_train::{Data, Event, RunDir, Start, TrainConfig, Trainer, VoiceError, read_log};

fn data(dir: &Path) -> Data {
    DemoCorpus { clips: 12, speakers: 1, seed: 3 }.write(dir).expect("written");
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
            assert_eq!(names, ["mel", "convergence", "magnitude"]);
            losses.push(loss);
        }
    });
    report.expect("trained");
    losses
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
    let path = RunDir::new(&parts).checkpoints().path(8);
    let start = Start { checkpoint: checkpoint::read(&path).expect("whole"), path };
    train(&data, settings(12), &parts, Some(start));
    let log = |run: &Path| -> Vec<(u64, f64)> {
        let lines = read_log(&run.join("log.jsonl")).expect("a log");
        lines.iter().filter_map(|line| Some((line["step"].as_u64()?, line["loss"].as_f64()?))).collect()
    };
    assert_eq!(log(&whole), log(&parts), "bit for bit");
    let weights = |run: &Path| checkpoint::read(&RunDir::new(run).checkpoints().path(12)).expect("whole").weights;
    assert_eq!(weights(&whole), weights(&parts));

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
    let path = RunDir::new(&run).checkpoints().path(2);
    let start = Start { checkpoint: checkpoint::read(&path).expect("whole"), path };
    let mut settings = settings(4);
    settings.model.part = TrainedPart::Acoustic;
    let refused = Trainer::new(data, settings, RunDir::new(&run), Lanes::cpu(), Some(start)).err();
    let text = refused.expect("refused").to_string();
    assert!(text.contains("--part: acoustic here, vocoder in the checkpoint"), "{text}");
}
