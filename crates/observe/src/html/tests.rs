//! What every page must be, whatever it shows.

use std::cell::RefCell;
use std::collections::BTreeSet;

use tandem_flow::Stage;

use super::plots;
use crate::{
    Bottleneck, Direction, Document, Line, Prediction, Profile, Reason, Recommendation, Side, StageProfile,
    TimelineSpan, Verdict, html,
};

const NASTY: &str = "<script>\"a\" & 'b'</script>";

fn side(name: &str) -> Side {
    let stage = |name: &str| StageProfile { name: name.into(), mean_ms: 10.0, std_ms: 1.0, jitter_ms: 1.0, share: 0.2 };
    let line = |name: &str, limit| vec![Line { name: name.into(), limit, points: vec![(0.0, 1.0), (1.0, 2.0)] }];
    let advice = Recommendation {
        flag: name.into(),
        now: name.into(),
        to: name.into(),
        gain: 1.44,
        reason: Reason::Decoding,
        why: name.into(),
    };
    Side {
        name: name.into(),
        settings: vec![(name.into(), name.into())],
        profile: Profile {
            steps: 100,
            warm_up: 20,
            period_ms: 50.0,
            steps_per_s: 20.0,
            stages: plots::ROWS.map(stage).into(),
            data_busy: 0.4,
            model_busy: 0.69,
            starved: 0.31,
            variation: 0.1,
            varies_with: Some(Stage::Load),
        },
        verdict: Verdict {
            healthy: false,
            bottleneck: Bottleneck::Load,
            findings: Vec::new(),
            recommendations: vec![advice],
        },
        knobs: None,
        headroom: Some(0.44),
        lanes: vec![TimelineSpan { stage: Stage::Load, start_ms: 0.0, end_ms: 10.0 }],
        step_ms: [[10.0, 11.0, 12.0].repeat(100), vec![900.0]].concat(),
        queues: line(name, Some(4.0)),
        memory: line(name, Some(4.0)),
        losses: line(name, None),
        rates: line(name, None),
        facts: vec![(name.into(), name.into())],
        simulated: true,
    }
}

fn document(sides: Vec<Side>) -> Document {
    let prediction = Prediction {
        change: NASTY.into(),
        now: 1.0,
        predicted: 2.0,
        low: 1.5,
        high: 2.5,
        work: 1.0,
        measured: Some(1.6),
    };
    let (title, version, notes) = (NASTY.into(), NASTY.into(), vec![NASTY.into()]);
    Document { title, version, sides, predictions: vec![prediction], notes }
}

fn render(document: &Document) -> String {
    html(document, Direction::LeftToRight, &|id, values| {
        values.iter().fold(id.to_owned(), |text, (_, value)| format!("{text} {value}"))
    })
}

#[test]
fn text_is_escaped_everywhere() {
    let page = render(&document(vec![side(NASTY), side(NASTY)]));
    assert!(!page.contains("<script") && !page.contains("\"a\"") && !page.contains("'b'"));
    assert!(page.matches("&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;").count() > 20);
}

#[test]
fn every_plot_is_there_once_for_each_side() {
    let one = render(&document(vec![side("a")]));
    let two = render(&document(vec![side("a"), side("b")]));
    for plot in ["lanes", "steps", "queues", "memory", "losses", "rates"] {
        assert_eq!(one.matches(&format!("id=\"plot-{plot}\"")).count(), 1, "{plot}");
        for at in 0..2 {
            assert_eq!(two.matches(&format!("id=\"plot-{plot}-{at}\"")).count(), 1, "{plot}");
        }
    }
    assert!(two.contains("id=\"plot-overlay\"") && !one.contains("id=\"plot-overlay\""));
    assert!(two.contains("id=\"plot-compare\"") && !one.contains("id=\"plot-compare\""));
    assert!(one.contains("html-limited stage-load 31.0\u{a0}%") && one.contains("html-headroom +44\u{a0}%"));
    assert!(one.contains("+25.0\u{a0}%"), "2.0 was predicted, 1.6 measured");
}

#[test]
fn what_has_no_data_is_skipped() {
    let mut bare = side("a");
    (bare.lanes, bare.step_ms, bare.settings, bare.facts) = (vec![], vec![], vec![], vec![]);
    (bare.queues, bare.memory, bare.losses, bare.rates) = (vec![], vec![], vec![], vec![]);
    bare.simulated = false;
    let mut document = document(vec![bare.clone()]);
    (document.predictions, document.notes) = (vec![], vec![]);
    let page = render(&document);
    for absent in
        ["<figure", "<svg class=\"w", "html-plots", "html-predictions", "html-settings", "html-facts", "html-notes"]
    {
        assert!(!page.contains(absent), "{absent}");
    }
    document.sides = vec![bare, side("b")];
    let page = render(&document);
    assert!(!page.contains("plot-lanes-0") && page.contains("plot-lanes-1"));
    document.sides = vec![];
    assert!(render(&document).ends_with("</html>\n"));
}

#[test]
fn what_is_not_a_number_breaks_nothing() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -0.0] {
        let mut broken = side("a");
        let profile = &mut broken.profile;
        (profile.period_ms, profile.steps_per_s, profile.starved, profile.variation) = (bad, bad, bad, bad);
        (profile.data_busy, profile.model_busy, broken.headroom) = (bad, bad, Some(bad));
        for stage in &mut profile.stages {
            (stage.mean_ms, stage.std_ms, stage.share) = (bad, bad, bad);
        }
        broken.lanes.push(TimelineSpan { stage: Stage::Train, start_ms: bad, end_ms: bad });
        broken.step_ms.push(bad);
        broken.verdict.recommendations[0].gain = bad;
        for line in [&mut broken.queues, &mut broken.memory, &mut broken.losses].into_iter().flatten() {
            line.points.extend([(bad, 1.0), (2.0, bad), (3.0, 1.0)]);
            line.limit = Some(bad);
        }
        let mut document = document(vec![broken, side("b")]);
        document.predictions[0].measured = Some(0.0);
        let page = render(&document);
        assert!(!page.contains("NaN") && !page.contains("inf"), "{bad}");
        assert!(page.len() < 100_000, "{bad}: {}", page.len());
    }
}

#[test]
fn ten_thousand_spans_stay_small() {
    let mut long = side("a");
    let span = |n: usize| {
        let start_ms = n as f64 * 7.3;
        TimelineSpan { stage: Stage::TIMED[n % 4], start_ms, end_ms: start_ms + (n % 40) as f64 }
    };
    long.lanes = (0..10_000).map(span).collect();
    long.step_ms = (0..100_000).map(|n| f64::from(n % 97)).collect();
    let points: Vec<_> = (0..100_000).map(|n| (f64::from(n), f64::from(n % 89))).collect();
    for line in [&mut long.queues, &mut long.memory, &mut long.losses].into_iter().flatten() {
        line.points = points.clone();
    }
    let page = render(&document(vec![long.clone(), long]));
    assert!(page.len() < 300_000, "{}", page.len());
}

#[test]
fn every_label_is_in_both_catalogues_and_none_is_left_over() {
    let used = RefCell::new(BTreeSet::new());
    let label = |id: &str, values: &[(&str, &dyn std::fmt::Display)]| {
        let variables: BTreeSet<String> = values.iter().map(|(name, _)| name.to_string()).collect();
        used.borrow_mut().insert((id.to_owned(), variables));
        id.to_owned()
    };
    let with = |bottleneck, healthy| {
        let mut side = side("a");
        (side.verdict.bottleneck, side.verdict.healthy) = (bottleneck, healthy);
        side.queues[0].limit = (!healthy).then_some(4.0);
        side
    };
    for bottleneck in Bottleneck::ALL {
        html(&document(vec![with(bottleneck, false); 2]), Direction::RightToLeft, &label);
    }
    // As one of several ranks has it.
    let mut of_ranks = with(Bottleneck::Train, true);
    let waits =
        StageProfile { name: Stage::Reduce.name().to_owned(), mean_ms: 1.0, std_ms: 0.0, jitter_ms: 0.0, share: 0.1 };
    of_ranks.profile.stages.push(waits);
    html(&document(vec![of_ranks]), Direction::RightToLeft, &label);
    let (metrics, used): (BTreeSet<_>, BTreeSet<_>) =
        used.into_inner().into_iter().partition(|(id, _)| id.starts_with("metric-"));
    assert!(metrics.len() >= 6, "{metrics:?}");
    for catalog in [include_str!("../../../cli/messages/en.ftl"), include_str!("../../../cli/messages/fa.ftl")] {
        let entry = |line: &str| {
            let (id, text) = line.split_once(" = ").expect("a message");
            let variables = text.split("{$").skip(1).filter_map(|part| part.split('}').next()).map(str::to_owned);
            (id.to_owned(), variables.collect())
        };
        for (id, _) in &metrics {
            assert!(catalog.lines().any(|line| line.starts_with(&format!("{id} = "))), "{id}");
        }
        let lines = catalog.lines().filter(|line| ["html-", "stage-"].iter().any(|of| line.starts_with(of)));
        assert_eq!(used, lines.map(entry).collect::<BTreeSet<(String, BTreeSet<String>)>>());
    }
}
