//! The pipeline of a run, without a model.

use std::sync::Arc;

use tandem_audio::MelStats;
use tandem_data::{CacheMode, Corpus, CorpusSettings, DemoCorpus};
use tandem_device::Lanes;
use tandem_flow::{Context, Cursor};
use tandem_model::{Device, ModelConfig, Size};
use tandem_train::task::Acoustic;
use tandem_train::{Budgets, Data, Feed, TrainConfig};

/// SPEC M11: a model that is always waiting gets more workers; that the names of stages and queues are right is what
/// this is about.
#[test]
fn a_starved_model_gets_more_workers() {
    let dir = tempfile::tempdir().expect("a folder");
    DemoCorpus { clips: 24, speakers: 1, seed: 3 }.write(dir.path()).expect("written");
    let corpus = Corpus::open(dir.path(), CorpusSettings::default());
    let data = Data::new(Arc::new(corpus.expect("a corpus")), None).expect("data");
    let moves = |autotune: bool| {
        let mut settings = TrainConfig::default();
        settings.data.batch_size = 4;
        let pipeline = &mut settings.pipeline;
        (pipeline.workers, pipeline.max_workers) = (1, 4);
        (pipeline.autotune, pipeline.cache) = (autotune, CacheMode::Off);
        let n_mels = data.corpus.settings().mel.n_mels;
        let stats = MelStats { mean: vec![0.0; n_mels], std: vec![1.0; n_mels] };
        let budgets = Budgets::new(512_000_000, None, None);
        let lanes = Lanes::cpu();
        let task = Acoustic { config: ModelConfig::new(Size::Smoke, 10, n_mels, false), prior_steps: 0 };
        let feed = Feed::new(&data, &settings, &stats, task, &lanes, &Device::flex(), &budgets).expect("a feed");
        let context = Context::default();
        let mut tuner = feed.autotune(&context);
        let mut moves = Vec::new();
        for step in feed.flow(&context, Cursor::START, 1000).stage("train", |_| Ok(())).take(400) {
            step.expect("no clip is bad");
            moves.extend(
                tuner.step().filter(|decision| decision.is_move()).map(|decision| (decision.knob, decision.to)),
            );
        }
        moves
    };
    let tuned = moves(true);
    assert!(tuned.iter().any(|(knob, to)| knob == "load" && *to > 1), "{tuned:?}");
    assert_eq!(moves(false), [], "--no-autotune");
}
