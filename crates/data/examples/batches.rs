//! A corpus, from a folder to padded batches: one is made in a temporary folder, opened, and loaded for an epoch.
//!
//!     cargo run --release -p tandem-data --example batches

use std::error::Error;
use std::sync::Arc;

use tandem_data::{
    CacheMode, Corpus, CorpusSettings, DemoCorpus, LoadSettings, Loader, PlanSettings, Tolerance, padding,
};
use tandem_flow::{Budget, Context, Cursor, Knob, Oversize, Place};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    DemoCorpus { clips: 60, speakers: 2, seed: 1 }.write(dir.path())?;
    let corpus = Corpus::open(dir.path(), CorpusSettings::default())?;
    corpus.check(Tolerance::default())?;
    let corpus = Arc::new(corpus);
    println!("{} clips, {:.0} s, speakers {:?}", corpus.len(), corpus.seconds(), corpus.speakers());

    let plan = PlanSettings { batch_size: 8, ..PlanSettings::default() };
    let settings = LoadSettings { plan, ..LoadSettings::default() };
    let cache = corpus.cache(CacheMode::Ram, 100_000_000);
    let all = (0..corpus.len() as u32).collect();
    let loader = Loader::new(corpus.clone(), all, settings, cache)?;

    let context = Context::default();
    let budget = Budget::new(Place::Host, 32_000_000, Oversize::Alone);
    let (workers, depth) = (Knob::fixed("workers", 2), Knob::fixed("depth", 4));
    let mut seen = 0;
    for batch in loader.flow(&context, Cursor::START, 1, &workers, &depth, &budget) {
        let batch = batch?.value;
        let (rows, bands, frames, tokens) = (batch.rows, batch.n_mels, batch.frames, batch.tokens);
        // Time is last: `batch.audio` is `rows * bands * frames` values, 0 beyond a row's true length.
        let true_frames: usize = batch.mel_lengths.iter().sum();
        let padding = 100.0 * (1.0 - true_frames as f64 / (rows * frames) as f64);
        println!("{}: sound [{rows}, {bands}, {frames}], text [{rows}, {tokens}], {padding:.1} %", batch.cursor);
        println!("    clips {:?}, {:.1} s", batch.clips, batch.seconds);
        seen += batch.clips.len();
    }
    assert_eq!(seen, corpus.len(), "an epoch has every clip once");
    let epoch = padding(&loader.plan(0), &corpus.sizes());
    println!("padding of the epoch: {:.1} % in {} shapes", 100.0 * epoch.share(), epoch.distinct_shapes);
    println!("{:?}", loader.counters());
    println!("at most {} bytes of batches at once", budget.high_water_bytes());
    Ok(())
}
