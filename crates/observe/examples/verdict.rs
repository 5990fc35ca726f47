//! What limits a run, and what more workers would give. The lanes are simulated, on a clock that does not wait; the
//! pipeline is the real one. With the spans of a real run everything after `simulate` is the same.
//!
//!     cargo run --release -p tandem-observe --example verdict

use std::error::Error;

use tandem_flow::{Clock, Stop};
use tandem_observe::{Alone, Knobs, Pressure, Profile, Simulation, predict, simulate, verdict};

fn main() -> Result<(), Box<dyn Error>> {
    // load, preprocess, transfer, train: two workers give a batch every 90 ms to a model that takes 60.
    let costs = ["180ms±20", "10ms±2", "8ms±1", "60ms±3"].map(|cost| cost.parse().expect("a duration"));
    let slow = Simulation { costs, steps: 120, workers: 2, cores: 8, buffer: 16, ..Simulation::default() };
    let run = simulate(&slow, Clock::virtual_time(), Stop::new(), |_| {});
    let profile = Profile::new(&run.trace.spans(), 20).ok_or("too few steps")?;
    println!("simulated: {:.1} steps/s, starved {:.0} %", profile.steps_per_s, 100.0 * profile.starved);
    for (stage, percent) in profile.stages.iter().zip(profile.percentages()) {
        println!("    {:10} {:6.1} ± {:4.1} ms {percent:>6} %", stage.name, stage.mean_ms, stage.std_ms);
    }

    let knobs = Knobs {
        workers: slow.workers,
        cores: slow.cores,
        load_cpu_percent: 100,
        buffer: slow.buffer,
        device_queue: slow.device_queue,
        depth: slow.depth,
        batch_size: 16,
        features_on_data: false,
        cached: true,
        memory_limit_mb: (slow.memory_limit >> 20) as u64,
    };
    let memory = run.outcome.memory_high_water_bytes as f64 / slow.memory_limit as f64;
    let verdict = verdict(&profile, &knobs, &Pressure::new(&run.outcome.queues, memory));
    println!("bottleneck: {}, findings {:?}", verdict.bottleneck, verdict.findings);
    for change in &verdict.recommendations {
        println!("    {} {} -> {}: up to {:.2} x, {}", change.flag, change.now, change.to, change.gain, change.why);
    }

    // Predictions are made from what batches take with nothing beside them, so from a synchronous run.
    let synchronous = simulate(&slow.clone().serial(), Clock::virtual_time(), Stop::new(), |_| {});
    let alone = Alone::new(&synchronous.trace.spans(), 2).ok_or("no batches")?;
    for workers in [1, 3, 4] {
        let after = Simulation { workers, ..slow.clone() };
        let rate = predict(profile.steps_per_s, 0.02, (&alone, &slow), (&alone, &after));
        println!("{workers} workers: {:.1} steps/s ({:.1} to {:.1})", rate.steps_per_s, rate.low, rate.high);
    }
    Ok(())
}
