//! How busy a model is that takes so many milliseconds for a batch, when its clips come from anywhere:
//! `busy s3://bucket/shards 100`. The model is simulated (it sleeps), everything before it is real. Without arguments: a corpus that is
//! made, and no pause.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tandem_data::{CacheMode, Corpus, CorpusSettings, DemoCorpus, LoadSettings, Loader, PlanSettings};
use tandem_flow::{Budget, Context, Cursor, Knob, Oversize, Place};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (made, corpus) = (tempfile::tempdir()?, arguments.next().map(PathBuf::from));
    let mut number = |otherwise: usize| arguments.next().map_or(Ok(otherwise), |word| word.parse());
    let (step_ms, batch_size, workers, batches) = (number(0)?, number(16)?, number(2)?, number(usize::MAX)?);
    if corpus.is_none() {
        DemoCorpus { clips: 20, speakers: 1, seed: 1 }.write(made.path())?;
    }
    let settings = CorpusSettings { extensions: tandem_store::extensions(), ..CorpusSettings::default() };
    let corpus = Arc::new(Corpus::open(&corpus.unwrap_or(made.path().to_owned()), settings)?);
    let plan = PlanSettings { batch_size, seed: 1, ..PlanSettings::default() };
    let settings = LoadSettings { plan, ..LoadSettings::default() };
    let clips = (0..corpus.len() as u32).collect();
    let loader = Loader::new(corpus.clone(), clips, settings, corpus.cache(CacheMode::Off, 0))?;
    let (workers, depth) = (Knob::fixed("workers", workers), Knob::fixed("depth", 4));
    let host = Budget::new(Place::Host, 1_000_000_000, Oversize::Alone);
    let mut flow = loader.flow(&Context::default(), Cursor::START, 1, &workers, &depth, &host);
    // A model starts when there is a batch; from then on it should not wait.
    let (mut steps, mut busy, mut waited) = (0u32, Duration::ZERO, Duration::ZERO);
    let mut asked = Instant::now();
    for item in flow.by_ref().take(batches) {
        item?;
        waited += if steps > 0 { asked.elapsed() } else { Duration::ZERO };
        let started = Instant::now();
        std::thread::sleep(Duration::from_millis(step_ms as u64));
        busy += started.elapsed();
        steps += 1;
        asked = Instant::now();
    }
    let share = 100.0 * busy.as_secs_f64() / (busy + waited).as_secs_f64().max(1e-9);
    println!(
        "{steps} steps, {:.2} s busy, {:.3} s waited: {share:.2} % busy (simulated)",
        busy.as_secs_f64(),
        waited.as_secs_f64()
    );
    Ok(())
}
