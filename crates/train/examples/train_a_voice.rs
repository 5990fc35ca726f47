//! Trains a voice from a directory of clips, without the command line.
//!
//!     cargo run --release -p tandem-train --no-default-features --example train_a_voice [CORPUS [RUN]]
//!
//! Without a corpus it makes a small one and does a few steps of the smallest model.

use std::path::PathBuf;

use tandem_data::DemoCorpus;
use tandem_train::{Event, Run};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (made, mut args) = (tempfile::tempdir()?, std::env::args().skip(1));
    let corpus = match args.next() {
        Some(corpus) => PathBuf::from(corpus),
        None => DemoCorpus { clips: 24, speakers: 1, seed: 1 }.write(made.path()).map(|_| made.path().to_owned())?,
    };
    let dir = args.next().map_or_else(|| made.path().join("run"), PathBuf::from);
    let run = Run::new(corpus, dir).with("model-size", "smoke")?.with("batch-size", "4")?.with("max-steps", "8")?;
    tandem_model::kernels::compute_here()?;
    let report = run.with("sample-every", "0")?.with("log-every", "2")?.train(&mut |event| {
        if let Event::Progress(progress) = event {
            println!("step {}: loss {:.3}", progress.step, progress.loss);
        }
    })?;
    println!("{} steps in {:.1} s; the best checkpoint: {:?}", report.steps, report.seconds, report.best);
    Ok(())
}
