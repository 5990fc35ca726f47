//! What a whole run promises to those who use the library.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use tandem_data::{Corpus, CorpusSettings, DemoCorpus};
use tandem_device::Lanes;
use tandem_flow::Context;
use tandem_model::Size;
use tandem_train::{Checkpoints, Data, Event, Outcome, Report, RunDir, TrainConfig, TrainError, Trainer};

fn data(folder: &Path) -> Data {
    DemoCorpus { clips: 14, speakers: 1, seed: 3 }.write(folder).expect("written");
    let corpus = Corpus::open(folder, CorpusSettings::default()).expect("a corpus");
    Data::new(Arc::new(corpus), None).expect("data")
}

fn settings(steps: u64) -> TrainConfig {
    let mut settings = TrainConfig::default();
    settings.model.size = Size::Smoke;
    settings.data.batch_size = 4;
    settings.run.max_steps = Some(steps);
    settings.run.sample_every = 0;
    settings.pipeline.workers = 1;
    settings
}

fn train(
    data: &Data,
    settings: TrainConfig,
    run: &Path,
    on_event: &mut dyn FnMut(Event<'_>),
) -> Result<Report, TrainError> {
    let mut trainer = Trainer::new(data.clone(), settings, RunDir::new(run), Lanes::cpu(), None)?;
    trainer.run(&Context::default(), on_event)
}

/// One checkpoint that cannot be written, of the best step, must not cost the best one that there is.
#[test]
fn the_best_checkpoint_stays_until_a_better_one_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, run) = (data(&folder.path().join("corpus")), folder.path().join("run"));
    let checkpoints = Checkpoints::new(run.join("checkpoints"));
    let mut settings = settings(10);
    (settings.run.validate_every, settings.run.checkpoint_every, settings.run.keep) = (Some(4), 1, 1);
    settings.optimizer.lr.peak = 2e-3;
    settings.optimizer.lr.warmup = 1;
    // In the place where step 8 is to be written: what cannot be moved out of the way.
    let obstacle = [checkpoints.path(8), run.join("checkpoints/.replaced-00000008")];
    let seen = RefCell::new(Vec::new());
    let report = train(&data, settings, &run, &mut |event| match event {
        Event::Validation { step, best, .. } => {
            assert!(best || step == 10, "the loss falls, or this test tests nothing");
            if step == 8 {
                fs::write(&obstacle[0], "in the way").expect("written");
                fs::create_dir_all(obstacle[1].join("in the way")).expect("made");
            }
        }
        Event::CheckpointFailed { step, .. } => {
            assert_eq!(step, 8);
            fs::remove_file(&obstacle[0]).expect("there");
            fs::remove_dir_all(&obstacle[1]).expect("there");
            seen.borrow_mut().push((step, checkpoints.best(), checkpoints.steps()));
        }
        Event::Checkpoint { step, .. } => seen.borrow_mut().push((step, checkpoints.best(), checkpoints.steps())),
        _ => {}
    });
    let report = report.expect("one failed write does not end a run");
    let seen = seen.into_inner();
    assert!(seen.contains(&(4, Some(4), vec![4])), "{seen:?}");
    assert!(seen.contains(&(8, Some(4), vec![4, 7])), "the failed write: {seen:?}");
    // Step 9 is not validated: the best one is still that of step 4, and still there.
    assert!(seen.contains(&(9, Some(4), vec![4, 9])), "the next one: {seen:?}");
    let best = checkpoints.best().expect("a best one");
    assert!(checkpoints.steps().contains(&best), "{best} of {:?}", checkpoints.steps());
    assert_eq!(report.best.map(|(_, step)| step), Some(best));
    let (_, noted, steps) = seen.last().expect("step 10");
    assert!(noted.is_some_and(|noted| steps.contains(&noted)), "{seen:?}");
    // What a later start believes.
    let last = checkpoints.read(10).expect("whole");
    assert!(last.state.best.is_some_and(|(_, step)| steps.contains(&step)), "{:?}", last.state.best);
}

/// The library takes what the command line does not offer: queues of no depth are none.
#[test]
fn a_run_without_queues_trains() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = data(&folder.path().join("corpus"));
    let mut settings = settings(3);
    // A stall would be an error soon.
    settings.pipeline.stall_timeout = 20.0;
    settings.pipeline.model_start_delay = 0.0;
    settings.pipeline.prefetch_buffer_size = 0;
    for (buffer_size, autotune) in [(4, true), (0, true), (0, false)] {
        (settings.pipeline.buffer_size, settings.pipeline.autotune) = (buffer_size, autotune);
        let run = folder.path().join(format!("{buffer_size}-{autotune}"));
        let report = train(&data, settings.clone(), &run, &mut |_| {}).expect("it trains");
        assert_eq!((report.outcome, report.step), (Outcome::Finished, 3), "{buffer_size} {autotune}");
    }
}
