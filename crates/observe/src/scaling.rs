//! What more ranks would give (SPEC K9): the cost of adding gradients up, and the real engine with steps that are longer by it.
//!
//! The model is that of `train/src/reduce` and nothing better: ranks vote before a step; gradients become available evenly over the last part of it (the backward
//! pass) and are copied from the device in buckets, each is added up over all ranks as soon as it is copied (every rank sends and receives
//! `2 (W - 1) / W` of it, in two rounds), and copied back when the step is over, while later ones are added up. Ranks of a host that has fewer cores
//! than ranks take turns.

use std::time::Duration;

use serde::Serialize;
use tandem_device::{Cost, SimulatedLink};
use tandem_flow::{Clock, Stage, Stop};

use crate::simulate::{Simulation, simulate};

/// Bytes of gradients that are added up at once: large enough for a link's full speed, small enough that several are under way.
pub const BUCKET_BYTES: u64 = 4 << 20;
/// Those that come last: nothing is left that could hide them.
const LAST_BUCKET_BYTES: u64 = 1 << 19;

/// Bytes of buckets, at least, from the last one back: each twice as large as the one after it, up to the largest.
pub fn bucket_bytes_from_the_last(largest: u64) -> impl Iterator<Item = u64> {
    let last = LAST_BUCKET_BYTES.min(largest).max(1);
    std::iter::successors(Some(last), move |bytes| Some((2 * bytes).min(largest.max(1))))
}
/// The share of a step, at its end, over which gradients become available: measured on the CPU with the tiny model (`benches/results/ranks.md`).
pub const BACKWARD: f64 = 0.6;
/// Bytes of a vote.
const VOTE_BYTES: f64 = 100.0;
/// Draws of the steps of all ranks, for the mean of the slowest.
const DRAWS: u64 = 2000;

/// What ranks have between them, and what they send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Communication {
    /// Between any two ranks.
    pub link: SimulatedLink,
    /// Bytes of all gradients.
    pub gradient_bytes: u64,
    /// Bytes of the largest buckets.
    pub bucket_bytes: u64,
    /// Speed of copies between a device and the host's memory, and of adding there, in bytes per second.
    pub copy_speed: f64,
    /// The share of a step, at its end, over which gradients become available; 0: all of them when it is over.
    pub backward: f64,
    /// Ranks of a host, at most.
    pub ranks_per_host: usize,
    /// Its cores.
    pub cores: usize,
}

impl Communication {
    /// Seconds that a step of `world` ranks is longer by than these, when all of them arrive at the same time.
    pub fn reduce_seconds(&self, world: usize, step: f64) -> f64 {
        if world < 2 {
            return 0.0;
        }
        let backward = self.backward * step;
        // When each bucket is on the host, added up, and back on the device, from the end of the step on.
        let (mut copied, mut summed, mut back, mut bytes_before) = (-backward, -backward, 0.0f64, 0.0);
        for bytes in self.buckets() {
            let copy = bytes / self.copy_speed;
            bytes_before += bytes;
            let is_there = backward * (bytes_before / self.gradient_bytes as f64 - 1.0);
            copied = is_there.max(copied) + copy;
            summed = copied.max(summed) + self.exchange_seconds(world, bytes);
            back = back.max(summed) + copy;
        }
        self.vote_seconds(world) + back
    }

    /// How many ranks a core has to serve: what they do for others is work of the host.
    fn crowding(&self, world: usize) -> f64 {
        (self.ranks_per_host.min(world) as f64 / self.cores.max(1) as f64).max(1.0)
    }

    fn buckets(&self) -> Vec<f64> {
        let (mut left, mut buckets) = (self.gradient_bytes, Vec::new());
        let mut sizes = bucket_bytes_from_the_last(self.bucket_bytes);
        while left > 0 {
            let bytes = sizes.next().unwrap_or(left).min(left);
            buckets.push(bytes as f64);
            left -= bytes;
        }
        buckets.reverse();
        buckets
    }

    /// Each part goes to who adds it up, and its sum to all.
    fn exchange_seconds(&self, world: usize, bytes: f64) -> f64 {
        let others = (world as f64 - 1.0) * bytes / world as f64;
        let SimulatedLink { bandwidth, latency } = self.link;
        let alone = 2.0 * (latency.as_secs_f64() + others / bandwidth) + others / self.copy_speed;
        self.crowding(world) * alone
    }

    /// All ranks hear all votes: messages of twice the size to ranks twice as far, again and again.
    fn vote_seconds(&self, world: usize) -> f64 {
        let rounds = f64::from(usize::BITS - (world - 1).leading_zeros());
        let alone = rounds * self.link.latency.as_secs_f64() + (world as f64 - 1.0) * VOTE_BYTES / self.link.bandwidth;
        self.crowding(world) * alone
    }
}

/// How much longer the steps of each of `world` ranks are than those of one alone: until all votes and gradients are there, and the slowest has done
/// its step, if steps of equal work vary by this much.
pub fn step_is_longer_by(communication: &Communication, world: usize, step: &Cost) -> Duration {
    let slowest = slowest_of(world, step, 1).mean.saturating_sub(step.mean);
    slowest + Duration::from_secs_f64(communication.reduce_seconds(world, step.mean.as_secs_f64()))
}

/// What stays the same when there are more ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScalingKind {
    /// The clips of a rank: the batch grows.
    Weak,
    /// The batch: a rank has fewer clips of it.
    Strong,
}

/// What so many ranks would give.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scaled {
    /// Ranks.
    pub world: usize,
    /// Milliseconds from step to step.
    pub period_ms: f64,
    /// Milliseconds of them in which a rank waits for others: for their sums, and for the slowest.
    pub reduce_ms: f64,
    /// The same as a share of the time.
    pub exposed: f64,
    /// Share of the time in which the model had no batch.
    pub starved: f64,
    /// Steps per second.
    pub steps_per_s: f64,
    /// Clips per second, as many times those of one rank.
    pub speedup: f64,
    /// The same divided by the ranks.
    pub efficiency: f64,
}

/// What each of these numbers of ranks would give. `setup` is one rank: its stages, queues and workers.
///
/// Stage times are taken to be proportional to the clips of a rank. A step begins when the slowest rank has done the last one.
pub fn scaling(setup: &Simulation, communication: &Communication, worlds: &[usize], kind: ScalingKind) -> Vec<Scaled> {
    let clips_of_a_step = |world: usize| if kind == ScalingKind::Weak { world as f64 } else { 1.0 };
    let one = run(setup, communication, 1, kind);
    (worlds.iter())
        .map(|&world| {
            let (period, reduce, starved) = run(setup, communication, world, kind);
            let speedup = clips_of_a_step(world) * one.0 / period;
            Scaled {
                world,
                period_ms: 1e3 * period,
                reduce_ms: 1e3 * reduce,
                exposed: reduce / period,
                starved,
                steps_per_s: 1.0 / period,
                speedup,
                efficiency: speedup / world as f64,
            }
        })
        .collect()
}

/// 1, 2, 4, … and the last one.
pub fn worlds_up_to(world: usize) -> Vec<usize> {
    let mut worlds: Vec<usize> =
        std::iter::successors(Some(1usize), |world| world.checked_mul(2)).take_while(|one| *one < world).collect();
    worlds.push(world.max(1));
    worlds
}

/// Seconds from step to step, those of them that a rank waits for others, and the share of the time without a batch.
fn run(setup: &Simulation, communication: &Communication, world: usize, kind: ScalingKind) -> (f64, f64, f64) {
    let share = if kind == ScalingKind::Weak { 1.0 } else { 1.0 / world as f64 };
    let mut costs = setup.costs.map(|cost| Cost { mean: cost.mean.mul_f64(share), spread: cost.spread.mul_f64(share) });
    let own = costs[TRAIN].mean.as_secs_f64();
    let slowest = slowest_of(world, &costs[TRAIN], setup.seed);
    let reduce = slowest.mean.as_secs_f64() - own + communication.reduce_seconds(world, own);
    costs[TRAIN] = Cost { mean: Duration::from_secs_f64(own + reduce), spread: slowest.spread };
    let simulation = Simulation { costs, autotune: false, faults: Vec::new(), ..setup.clone() };
    let outcome = simulate(&simulation, Clock::virtual_time(), Stop::new(), |_| {}).outcome;
    let period = (outcome.wall_s - outcome.fill_s) / outcome.steps.max(1) as f64;
    (period, reduce, outcome.starved)
}

/// Where the steps are among [`Stage::TIMED`].
const TRAIN: usize = Stage::TIMED.len() - 1;

/// The step of the slowest of so many ranks whose steps vary independently.
fn slowest_of(world: usize, cost: &Cost, seed: u64) -> Cost {
    if world < 2 || cost.spread.is_zero() {
        return *cost;
    }
    // As many draws for each number of ranks would take long for thousands of them; their mean is then known well enough.
    let steps = (DRAWS * 8 / world as u64).clamp(100, DRAWS);
    let of_rank = |rank: u64, step: u64| cost.draw(seed.wrapping_add(rank), "rank", step).as_secs_f64();
    let slowest: Vec<f64> =
        (0..steps).map(|step| (0..world as u64).map(|rank| of_rank(rank, step)).fold(0.0, f64::max)).collect();
    let mean = slowest.iter().sum::<f64>() / steps as f64;
    let variance = slowest.iter().map(|seconds| (seconds - mean).powi(2)).sum::<f64>() / steps as f64;
    Cost { mean: Duration::from_secs_f64(mean), spread: Duration::from_secs_f64(variance.sqrt()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn communication(bytes: u64) -> Communication {
        Communication {
            link: SimulatedLink { bandwidth: 1e9, latency: Duration::from_micros(20) },
            gradient_bytes: bytes,
            bucket_bytes: MB / 2,
            copy_speed: f64::INFINITY,
            backward: 0.0,
            ranks_per_host: 1,
            cores: 1,
        }
    }

    fn setup(train_ms: f64, spread_ms: f64) -> Simulation {
        let cost = |ms: f64, spread: f64| Cost {
            mean: Duration::from_secs_f64(ms / 1e3),
            spread: Duration::from_secs_f64(spread / 1e3),
        };
        Simulation {
            costs: [cost(10.0, 0.0), cost(1.0, 0.0), cost(1.0, 0.0), cost(train_ms, spread_ms)],
            ..Simulation::default()
        }
    }

    fn near(value: f64, wanted: f64, off: f64) {
        assert!((value / wanted - 1.0).abs() < off, "{value} instead of {wanted}");
    }

    #[test]
    fn adding_up_costs_two_times_the_share_of_the_others_on_the_link_and_two_latencies_for_each_bucket() {
        // (ranks, MB, milliseconds without copies): votes, then per bucket two latencies and 2 (W - 1) / W of its bytes.
        for (world, megabytes, expected) in [
            (1, 16, 0.0),
            (2, 4, 0.02 + 8.0 * 0.04 + 4.0),
            (2, 16, 0.02 + 32.0 * 0.04 + 16.0),
            (4, 16, 2.0 * 0.02 + 32.0 * 0.04 + 24.0),
            (64, 16, 6.0 * 0.02 + 32.0 * 0.04 + 16.0 * 2.0 * 63.0 / 64.0),
            (4, 6, 2.0 * 0.02 + 12.0 * 0.04 + 9.0),
        ] {
            let ms = 1e3 * communication(megabytes * MB).reduce_seconds(world, 0.05);
            assert!((ms - expected).abs() < 0.01, "{world} ranks, {megabytes} MB: {ms} ms instead of {expected}");
        }
    }

    #[test]
    fn copies_are_hidden_behind_the_link_but_for_the_first_and_the_last() {
        // A copy takes as long as half of the link's share; adding a quarter of it on top.
        let slow = Communication { copy_speed: 2e9, ..communication(16 * MB) };
        let (vote, sum, copy) = (0.02, 0.54 + 0.125, 0.25);
        let ms = 1e3 * slow.reduce_seconds(2, 0.05);
        assert!((ms - (vote + copy + 32.0 * sum + copy)).abs() < 0.01, "{ms}");
        // Copies that are slower than the link set the pace.
        let slower = Communication { copy_speed: 0.5e9, ..communication(16 * MB) };
        assert!(1e3 * slower.reduce_seconds(2, 0.05) > 32.0 + 1.0);
    }

    #[test]
    fn a_backward_pass_that_is_long_enough_hides_all_but_the_last_bucket() {
        let hidden = |backward, step: f64| Communication { backward, ..communication(16 * MB) }.reduce_seconds(2, step);
        let (vote, bucket) = (0.02, 0.54);
        // Buckets come every 1.25 ms, and each takes 0.5.
        assert!((1e3 * hidden(0.8, 0.05) - vote - bucket).abs() < 0.01, "{}", hidden(0.8, 0.05));
        // They come every 0.25 ms: the first one 7.75 ms before the end, then one after the other.
        assert!((1e3 * hidden(0.8, 0.01) - vote - (32.0 * bucket - 7.75)).abs() < 0.01, "{}", hidden(0.8, 0.01));
        assert_eq!(hidden(0.0, 0.05), communication(16 * MB).reduce_seconds(2, 0.01));
    }

    #[test]
    fn the_last_buckets_are_small() {
        let sizes = |bytes| Communication { bucket_bytes: 4 << 20, ..communication(bytes) }.buckets();
        let mib = |sizes: &[f64]| sizes.iter().map(|bytes| bytes * f64::from(1 << 20)).collect::<Vec<f64>>();
        assert_eq!(sizes(12 << 20), mib(&[0.5, 4.0, 4.0, 2.0, 1.0, 0.5]));
        assert_eq!((sizes(1 << 18), sizes(0)), (mib(&[0.25]), Vec::new()));
    }

    #[test]
    fn ranks_that_share_cores_take_turns() {
        let of = |ranks_per_host, cores, world| {
            Communication { ranks_per_host, cores, ..communication(16 * MB) }.reduce_seconds(world, 0.05)
        };
        near(of(4, 2, 4), 2.0 * of(1, 2, 4), 1e-6);
        near(of(4, 2, 2), of(1, 2, 2), 1e-6);
        near(of(4, 8, 4), of(1, 8, 4), 1e-6);
    }

    #[test]
    fn weak_scaling_loses_what_is_exposed_and_strong_scaling_more_and_more() {
        let (setup, communication) = (setup(50.0, 0.0), communication(10 * MB));
        let weak = scaling(&setup, &communication, &[1, 2, 4, 8], ScalingKind::Weak);
        near(weak[0].period_ms, 50.0, 1e-3);
        assert_eq!((weak[0].speedup, weak[0].exposed), (1.0, 0.0));
        near(weak[1].period_ms, 50.0 + weak[1].reduce_ms, 1e-3);
        near(weak[1].speedup, 2.0 * 50.0 / (50.0 + 10.82), 0.01);
        assert!(weak.windows(2).all(|pair| pair[1].efficiency < pair[0].efficiency));
        let strong = scaling(&setup, &communication, &[1, 2, 4, 8], ScalingKind::Strong);
        // A quarter of the step, all of the gradients.
        near(strong[2].period_ms, 12.5 + strong[2].reduce_ms, 1e-3);
        assert!(strong[3].efficiency < weak[3].efficiency, "{strong:?}");
    }

    #[test]
    fn a_slow_data_lane_stays_the_limit_and_hides_what_ranks_wait_for() {
        let slow = Simulation { workers: 1, ..setup(5.0, 0.0) };
        let two = &scaling(&slow, &communication(2 * MB), &[2], ScalingKind::Weak)[0];
        near(two.period_ms, 10.0, 0.05);
        near(two.speedup, 2.0, 0.05);
        assert!(two.starved > 0.2, "{two:?}");
    }

    #[test]
    fn all_wait_for_the_slowest() {
        let none = Communication { gradient_bytes: 0, ..communication(0) };
        let rows = scaling(&setup(50.0, 5.0), &none, &[1, 2, 8, 64], ScalingKind::Weak);
        // The mean of the largest of 2, 8 and 64 normal draws: 0.56, 1.42 and 2.39 standard deviations.
        for (row, sigmas) in rows[1..].iter().zip([0.56, 1.42, 2.39]) {
            near(row.reduce_ms, 5.0 * sigmas, 0.1);
        }
        let steady = scaling(&setup(50.0, 0.0), &none, &[64], ScalingKind::Weak);
        assert!(steady[0].reduce_ms < 0.2, "only the vote: {steady:?}");
    }

    #[test]
    fn a_table_goes_by_powers_of_two_to_the_last() {
        for (world, expected) in
            [(1, vec![1]), (2, vec![1, 2]), (6, vec![1, 2, 4, 6]), (64, vec![1, 2, 4, 8, 16, 32, 64])]
        {
            assert_eq!(worlds_up_to(world), expected);
        }
    }
}
