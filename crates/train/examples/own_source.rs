//! Trains some steps of a voice from a corpus that is not on disk: its clips are generated when they are asked for.
//!
//!     cargo run --release -p tandem-train --example own_source

use std::io::Cursor;
use std::sync::Arc;

use tandem_audio::formant::{FormantVoice, speak};
use tandem_audio::write_wav;
use tandem_data::{AudioBytes, ClipFault, Corpus, CorpusSettings, Record, Source};
use tandem_device::Lanes;
use tandem_flow::{Context, Random};
use tandem_model::Size;
use tandem_train::{Data, Event, RunDir, TrainConfig, Trainer};

const WORDS: [&str; 8] = ["banana", "radio", "lemon", "tomato", "silver", "planet", "melody", "orbit"];
const RATE: u32 = 22_050;

/// Sixty sentences of three words.
#[derive(Debug)]
struct Generated;

impl Generated {
    fn text(clip: u32) -> String {
        let mut random = Random::at(&[1, u64::from(clip)]);
        (0..3).map(|_| WORDS[random.below(WORDS.len())]).collect::<Vec<_>>().join(" ")
    }
}

impl Source for Generated {
    fn len(&self) -> usize {
        60
    }

    fn record(&self, clip: u32) -> Result<Record, ClipFault> {
        Ok(Record { id: format!("clip-{clip}"), text: Generated::text(clip), speaker: 0, language: None })
    }

    fn audio(&self, clip: u32) -> Result<Box<dyn AudioBytes + '_>, ClipFault> {
        let mut random = Random::at(&[2, u64::from(clip)]);
        let voice = FormantVoice { pitch: 130.0, formant_scale: 1.0, breath: 0.2, speed: 1.3 };
        let (samples, _) = speak(&Generated::text(clip), &voice, RATE, || random.unit());
        let mut wav = Vec::new();
        write_wav(&samples, RATE, &mut wav).map_err(|error| ClipFault::Audio(error.into()))?;
        Ok(Box::new(Cursor::new(wav)))
    }

    fn identity(&self, clip: u32) -> Result<u64, ClipFault> {
        Ok(u64::from(clip)) // the same audio every time
    }

    fn key(&self) -> String {
        "generated sentences".to_owned()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let work = tempfile::tempdir()?;
    let corpus = Corpus::from_source(Arc::new(Generated), CorpusSettings::default(), &work.path().join("index"))?;
    let mut config = TrainConfig::default();
    config.model.size = Size::Smoke;
    config.data.batch_size = 8;
    config.run.max_steps = Some(30);
    let run = RunDir::new(work.path().join("run"));
    run.create()?;
    let mut trainer = Trainer::new(Data::new(Arc::new(corpus), None)?, config, run, Lanes::cpu(), None)?;
    let mut losses = Vec::new();
    trainer.run(&Context::default(), &mut |event| {
        if let Event::Progress(progress) = event {
            println!("step {}: loss {:.3}", progress.step, progress.loss);
            losses.push(progress.loss);
        }
    })?;
    assert!(losses.len() > 1 && losses.last() < losses.first(), "the loss falls: {losses:?}");
    Ok(())
}
