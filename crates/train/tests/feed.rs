//! The pipeline of a run, without a model.

use std::sync::Arc;

use tandem_data::{Corpus, CorpusSettings, DemoCorpus};
use tandem_device::Lanes;
use tandem_flow::{Context, Cursor};
use tandem_model::Device;
use tandem_train::{Budgets, CachePlace, Data, Feed, MelStats, TrainSettings};

/// SPEC M11: a model that is always waiting gets more workers; that the names of stages and queues are right is what
/// this is about.
#[test]
fn a_starved_model_gets_more_workers() {
    let folder = tempfile::tempdir().expect("a folder");
    DemoCorpus { clips: 24, speakers: 1, seed: 3 }.write(folder.path()).expect("written");
    let corpus = Corpus::open(folder.path(), CorpusSettings::default());
    let data = Data::new(Arc::new(corpus.expect("a corpus")), None).expect("data");
    let moves = |autotune: bool| {
        let settings = TrainSettings {
            batch_size: 4,
            workers: 1,
            most_workers: 4,
            autotune,
            cache: CachePlace::Off,
            ..TrainSettings::default()
        };
        let n_mels = data.corpus.settings().mel.n_mels;
        let stats = MelStats { mean: vec![0.0; n_mels], deviation: vec![1.0; n_mels] };
        let budgets = Budgets::new(512_000_000, None, None);
        let lanes = Lanes::cpu();
        let feed = Feed::new(&data, &settings, &stats, (2, None), &lanes, &Device::flex(), &budgets).expect("a feed");
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
