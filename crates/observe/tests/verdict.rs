//! The verdict on simulated lanes whose bottleneck is known, and its thresholds.

use std::time::Duration;

use tandem_device::Cost;
use tandem_flow::{Clock, Random, Stage, Stop};
use tandem_observe::{
    Bottleneck, Finding, GAPS, Knobs, Pressure, Profile, Simulation, StageProfile, Training, Verdict, simulate, verdict,
};

/// Runs a simulation on the virtual clock and judges it.
fn judge(simulation: &Simulation) -> (Profile, Verdict) {
    let run = simulate(simulation, Clock::virtual_time(), Stop::new(), |_| {});
    assert!(run.error.is_none(), "{:?}", run.error);
    let profile = Profile::new(&run.trace.spans(), 20).expect("enough steps");
    let pressure = Pressure {
        memory: run.outcome.memory_high_water_bytes as f64 / simulation.memory_limit as f64,
        ..Pressure::default()
    };
    let verdict = verdict(&profile, &knobs(simulation), &pressure);
    (profile, verdict)
}

fn knobs(simulation: &Simulation) -> Knobs {
    Knobs {
        workers: simulation.workers,
        cores: simulation.cores,
        load_cpu_percent: 100,
        buffer: simulation.buffer,
        device_queue: simulation.depth,
        depth: 2,
        batch_size: 16,
        features_on_data: true,
        cached: true,
        memory_limit_mb: (simulation.memory_limit >> 20) as u64,
    }
}

/// A run whose stages take these milliseconds, each with this share of spread.
fn simulation(ms: [f64; 4], spread: f64, seed: u64) -> Simulation {
    let of = |ms: f64| Duration::from_nanos((1e6 * ms) as u64);
    Simulation {
        costs: ms.map(|ms| Cost { mean: of(ms), spread: of(spread * ms) }),
        steps: 120,
        buffer: 16,
        seed,
        stall_timeout: Duration::from_secs(600),
        ..Simulation::default()
    }
}

/// Seeded cases, and what sets the pace in each of them.
fn case(seed: u64) -> (Simulation, Bottleneck) {
    let mut random = Random::at(&[77, seed]);
    let step = 20.0 + 180.0 * random.unit();
    let mut small = || step * (0.1 + 0.4 * random.unit());
    let quick = [2.0 * small(), small(), small(), step];
    let slow = step * (1.3 + random.unit());
    let spread = 0.15 * random.unit();
    let with = |at: usize, ms: f64| {
        let mut costs = quick;
        costs[at] = ms;
        simulation(costs, spread, seed)
    };
    match seed % 7 {
        0 => (with(0, 2.0 * slow), Bottleneck::Load),
        1 => (with(1, slow), Bottleneck::Preprocess),
        2 => (with(2, slow), Bottleneck::Transfer),
        3 => (simulation(quick, spread, seed), Bottleneck::Train),
        // Balanced: everything takes nearly as long as the step, nothing longer.
        4 => (simulation([1.7 * step, 0.85 * step, 0.8 * step, step], 0.05 * random.unit(), seed), Bottleneck::Train),
        // Steps that vary, with hardly a queue: the engine evens that out, and the variation is named all the same.
        5 => {
            let mut jittery = simulation([0.3 * step, 0.5 * step, 1.0, step], 0.0, seed);
            jittery.costs[3].spread = jittery.costs[3].mean;
            (Simulation { workers: 1, buffer: 1, depth: 1, device_queue: 1, ..jittery }, Bottleneck::Train)
        }
        // Memory for one batch on the host: it is loaded, prepared and copied before the next one may begin.
        _ => {
            let even = simulation([0.7 * step, 0.5 * step, 0.4 * step, step], 0.02, seed);
            (Simulation { memory_limit: 1 << 20, ..even }, Bottleneck::Memory)
        }
    }
}

#[test]
fn the_verdict_names_the_known_bottleneck_in_every_case() {
    for seed in 0..210 {
        let (simulation, wanted) = case(seed);
        let (profile, verdict) = judge(&simulation);
        assert_eq!(verdict.bottleneck, wanted, "case {seed}: {profile:#?}");
        assert_eq!(verdict.healthy, wanted == Bottleneck::Train);
        assert!(verdict.healthy || !verdict.recommendations.is_empty(), "case {seed}: what to do");
        let jitters = seed % 7 == 5;
        assert!(!jitters || verdict.findings.contains(&Finding::Variation), "case {seed}: {profile:#?}");
        assert!(!jitters || profile.varies_with == Some(Stage::Train), "case {seed}: {profile:#?}");
    }
}

/// Of the changes that can be simulated, the one that is recommended helps most.
#[test]
fn the_recommended_change_helps_most() {
    let (mut cases, mut right) = (0, 0);
    for seed in 0..210 {
        let (simulation, wanted) = case(seed);
        if !matches!(wanted, Bottleneck::Load | Bottleneck::Memory) {
            continue;
        }
        let (before, verdict) = judge(&simulation);
        let best = verdict.recommendations.first().expect("something to do");
        let to: usize = best.to.parse().unwrap_or_else(|_| panic!("a number: {best:?}"));
        let changes: [(&str, Simulation); 3] = [
            ("--num-workers", Simulation { workers: to.min(8), max_workers: to.min(8), ..simulation.clone() }),
            ("--buffer-size", Simulation { buffer: 50, depth: 4, device_queue: 4, ..simulation.clone() }),
            ("--memory-limit", Simulation { memory_limit: 64 << 20, ..simulation.clone() }),
        ];
        let rates = changes.each_ref().map(|(flag, changed)| (*flag, judge(changed).0.steps_per_s));
        let most = rates.iter().map(|(_, rate)| *rate).max_by(f64::total_cmp).expect("rates");
        let flag = if best.flag == "--prefetch-buffer-size" { "--buffer-size" } else { best.flag.as_str() };
        let ours = rates.iter().find(|(name, _)| *name == flag).map_or(0.0, |(_, rate)| *rate);
        cases += 1;
        right += u32::from(ours >= 0.98 * most && ours > before.steps_per_s);
    }
    assert!(cases >= 60, "{cases}");
    assert!(10 * right >= 9 * cases, "{right} of {cases}");
}

/// A profile with these shares of a batch of 100 ms.
fn shares(load: f64, preprocess: f64, transfer: f64, train: f64) -> Profile {
    let stage = |name: &str, share: f64| StageProfile {
        name: name.to_owned(),
        mean_ms: 100.0 * share,
        std_ms: 0.0,
        jitter_ms: 0.0,
        share,
    };
    let gaps = 1.0 - load - preprocess - transfer - train;
    let all =
        Stage::TIMED.into_iter().zip([load, preprocess, transfer, train]).map(|(of, share)| stage(of.name(), share));
    Profile {
        steps: 100,
        warm_up: 10,
        period_ms: 100.0 * train,
        steps_per_s: 10.0,
        stages: all.chain([stage(GAPS, gaps)]).collect(),
        data_busy: 0.5,
        model_busy: 0.9,
        starved: 0.0,
        variation: 0.1,
        varies_with: None,
    }
}

/// SPEC R5, each on both sides.
#[test]
fn thresholds_hold_on_both_sides() {
    let knobs = knobs(&simulation([1.0; 4], 0.0, 1));
    let (free, full) = (Pressure::default(), Pressure { memory: 1.0, ..Pressure::default() });
    let found = |profile: &Profile, finding| verdict(profile, &knobs, &free).findings.contains(&finding);
    let base = shares(0.1, 0.05, 0.05, 0.8);
    assert!(verdict(&base, &knobs, &free).findings.is_empty(), "{:?}", verdict(&base, &knobs, &free));
    let data_busy = |data_busy| Profile { data_busy, ..base.clone() };
    let model_busy = |model_busy| Profile { model_busy, ..base.clone() };
    let variation = |variation| Profile { variation, ..base.clone() };
    for (finding, below, above) in [
        (Finding::LoadShare, shares(0.199, 0.0, 0.0, 0.8), shares(0.201, 0.0, 0.0, 0.799)),
        (Finding::TransferShare, shares(0.0, 0.0, 0.149, 0.8), shares(0.0, 0.0, 0.151, 0.8)),
        (Finding::TrainingLow, shares(0.1, 0.3, 0.099, 0.501), shares(0.1, 0.3, 0.101, 0.499)),
        (Finding::DataLaneBusy, data_busy(0.799), data_busy(0.801)),
        (Finding::ModelLaneIdle, model_busy(0.701), model_busy(0.699)),
        (Finding::Variation, variation(0.299), variation(0.301)),
    ] {
        assert!(!found(&below, finding), "{finding:?} below");
        assert!(found(&above, finding), "{finding:?} above");
    }
    for (train, level) in
        [(0.499, Training::UnderUsed), (0.501, Training::Fair), (0.699, Training::Fair), (0.701, Training::Healthy)]
    {
        assert_eq!(shares(0.1, 0.05, 0.05, train).training(), level, "{train}");
    }
    assert!(verdict(&Profile { starved: 0.049, ..base.clone() }, &knobs, &free).healthy);
    // Starved, and no stage is slow: the memory that they wait for is named, else what varies, else the queue that is empty.
    let starved = Profile { starved: 0.051, period_ms: 200.0, ..base };
    assert_eq!(verdict(&starved, &knobs, &full).bottleneck, Bottleneck::Memory);
    // Without workers the threads that fill the queues still work ahead; without queues nobody does, and the stages add up.
    let ahead = Knobs { workers: 0, ..knobs };
    assert_eq!(verdict(&starved, &ahead, &full).bottleneck, Bottleneck::Memory);
    let synchronous = Knobs { buffer: 0, device_queue: 0, depth: 1, ..ahead };
    assert_eq!(verdict(&starved, &synchronous, &full).bottleneck, Bottleneck::Load);
    // Batches of other lengths take other times in a stage, and are no bottleneck; what varies at equal work is one.
    let mut mixed = starved.clone();
    mixed.stages[1].std_ms = mixed.stages[1].mean_ms;
    assert_eq!(verdict(&mixed, &knobs, &free).bottleneck, verdict(&starved, &knobs, &free).bottleneck);
    let mut jittery = starved;
    jittery.stages[1].jitter_ms = jittery.stages[1].mean_ms;
    assert_eq!(verdict(&jittery, &knobs, &free).bottleneck, Bottleneck::Variation);
    let even = Profile { starved: 0.051, period_ms: 200.0, ..shares(0.1, 0.05, 0.05, 0.8) };
    for (fills, slow) in [
        ([0.2, 0.1, 0.1], Bottleneck::Load),
        ([0.9, 0.1, 0.1], Bottleneck::Preprocess),
        ([0.9, 0.8, 0.1], Bottleneck::Transfer),
    ] {
        let queues = ["host", "data", "model"].map(str::to_owned).into_iter().zip(fills).collect();
        let found = verdict(&even, &knobs, &Pressure { queues, memory: 0.1 }).bottleneck;
        assert_eq!(found, slow, "the first queue that is mostly empty: {fills:?}");
    }
}

/// SPEC T8, R4: the example's shares.
#[test]
fn the_shares_of_the_example() {
    let example = simulation([12.3, 5.1, 8.7, 123.4], 0.0, 1);
    let (profile, verdict) = judge(&Simulation { workers: 4, ..example });
    assert_eq!(profile.percentages(), ["8.2", "3.4", "5.8", "82.6", "0.0"], "they add up to 100.0");
    assert!(verdict.healthy && profile.starved < 1e-9);
}

#[test]
fn warm_up_does_not_count_and_too_few_steps_are_none() {
    let run = simulate(&simulation([10.0, 1.0, 1.0, 5.0], 0.0, 1), Clock::virtual_time(), Stop::new(), |_| {});
    let spans = run.trace.spans();
    let profile = Profile::new(&spans, 20).expect("enough");
    assert_eq!((profile.steps, profile.warm_up), (100, 20));
    for warm_up in [119, 500] {
        assert!(Profile::new(&spans, warm_up).is_none());
    }
    assert!(Profile::new(&[], 0).is_none());
}
