//! Tells a leak from an allocator that grows and lets go.

use serde::{Deserialize, Serialize};

use super::limits::MB;

/// Growth that counts as a leak for users of the API.
pub const LEAK_API: u64 = 100 * MB;
/// Growth that counts as a leak in the data lane.
pub const LEAK_DATA_LANE: u64 = 200 * MB;
/// Growth that counts as a leak in the model lane.
pub const LEAK_MODEL_LANE: u64 = 500 * MB;

/// Observations in the shortest block.
const BLOCK: u32 = 42;
/// Block minima that must rise in a row: with the first, seven blocks or 294 observations.
const RISES: u32 = 6;
/// How many times more or less than the mean of the rises before one rise may be.
const STEADY: u64 = 3;
/// Block lengths, each twice the one before: the longest is over a million observations.
const SCALES: usize = 16;

/// A leak that was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leak {
    /// By how much the least use has grown.
    pub grown_bytes: u64,
    /// In how many steps.
    pub steps: u64,
    /// The growth per step.
    pub bytes_per_step: f64,
}

/// Watches the memory used after each step and reports when it keeps growing.
///
/// It looks at the minimum of each block of steps, because what an allocator lets go shows there. A leak is a row of at
/// least six rises of these minima, each of about the size of the others (within a factor of three, so one jump is not
/// a trend) and together at least the threshold. Blocks of 42 observations find a fast leak within 294 of them;
/// blocks of 84, 168 and so on see through more noise and find slow leaks. After a report everything starts from scratch, so
/// the next one needs the same growth again. Memory is fixed: a few numbers for each block length.
///
/// What cannot be distinguished: memory that rises for 300 steps and would be let go later looks exactly like a leak. So
/// not reported (with noise: not in any of hundreds of thousands of simulated runs) is
/// - a sawtooth with a period of up to 252 observations, or with random drops at most 160 apart, whatever its height,
///   as long as its lowest points differ by less than half of the threshold;
/// - a longer sawtooth that rises by less than the threshold, noise included;
/// - growth that ends within 200 observations from the first, or within 160 later in the run;
/// - a jump that stays.
///
/// A longer and higher sawtooth is reported while it rises.
#[derive(Clone, Debug)]
pub struct LeakDetector {
    threshold_bytes: u64,
    /// The unfinished shortest block and its observations.
    block: Option<Block>,
    observations: u32,
    last_step: u64,
    scales: [Scale; SCALES],
}

/// The least use in a row of steps.
#[derive(Clone, Copy, Debug)]
struct Block {
    first_step: u64,
    min_bytes: u64,
}

/// The blocks of one length.
#[derive(Clone, Copy, Debug, Default)]
struct Scale {
    /// The first half of the next block of twice the length.
    half: Option<Block>,
    last: Option<Block>,
    /// The block from which on the minima rise, and how often they did.
    start: Option<Block>,
    rises: u32,
}

impl Scale {
    /// Takes a finished block, returns the growth in the row of rises that it ends.
    fn push(&mut self, block: Block) -> Option<Leak> {
        let (Some(start), Some(last)) = (self.start, self.last) else {
            (self.start, self.last) = (Some(block), Some(block));
            return None;
        };
        self.last = Some(block);
        let rise = block.min_bytes.saturating_sub(last.min_bytes);
        if rise == 0 {
            (self.start, self.rises) = (Some(block), 0);
            return None;
        }
        let mean = last.min_bytes.saturating_sub(start.min_bytes) / u64::from(self.rises.max(1));
        if self.rises > 0 && (rise < mean / STEADY || rise > mean.saturating_mul(STEADY)) {
            (self.start, self.rises) = (Some(last), 1);
            return None;
        }
        self.rises += 1;
        if self.rises < RISES {
            return None;
        }
        let grown_bytes = block.min_bytes - start.min_bytes;
        let steps = block.first_step - start.first_step;
        Some(Leak { grown_bytes, steps, bytes_per_step: grown_bytes as f64 / steps.max(1) as f64 })
    }
}

impl LeakDetector {
    /// Reports growth of at least this much.
    pub fn new(threshold_bytes: u64) -> LeakDetector {
        LeakDetector {
            threshold_bytes: threshold_bytes.max(1),
            block: None,
            observations: 0,
            last_step: 0,
            scales: [Scale::default(); SCALES],
        }
    }

    /// Takes what is used after a step; steps that go back start from scratch.
    pub fn observe(&mut self, step: u64, used_bytes: u64) -> Option<Leak> {
        if step < self.last_step {
            *self = LeakDetector::new(self.threshold_bytes);
        }
        self.last_step = step;
        let block = self.block.get_or_insert(Block { first_step: step, min_bytes: used_bytes });
        block.min_bytes = block.min_bytes.min(used_bytes);
        self.observations += 1;
        if self.observations < BLOCK {
            return None;
        }
        self.observations = 0;
        let leak = self.block.take().and_then(|block| self.finish(block))?;
        *self = LeakDetector { last_step: step, ..LeakDetector::new(self.threshold_bytes) };
        Some(leak)
    }

    /// Hands a block to its scale, and with every second block the two as one to the next scale.
    fn finish(&mut self, mut block: Block) -> Option<Leak> {
        for scale in &mut self.scales {
            if let Some(leak) = scale.push(block).filter(|leak| leak.grown_bytes >= self.threshold_bytes) {
                return Some(leak);
            }
            let Some(half) = scale.half.take() else {
                scale.half = Some(block);
                return None;
            };
            block = Block { first_step: half.first_step, min_bytes: half.min_bytes.min(block.min_bytes) };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Steady pseudo random numbers in 0..1 (splitmix64).
    fn random(seed: u64, number: u64) -> f64 {
        let mut z = (seed << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Between minus and plus one.
    fn noise(seed: u64, number: u64) -> f64 {
        2.0 * random(seed, number) - 1.0
    }

    /// The reports over that many steps of a use given in MB above 3 GB.
    fn run(threshold: u64, steps: u64, mut use_mb: impl FnMut(u64) -> f64) -> Vec<(u64, Leak)> {
        let mut detector = LeakDetector::new(threshold);
        let mut observe = |step| Some((step, detector.observe(step, ((3000.0 + use_mb(step)) * MB as f64) as u64)?));
        (0..steps).filter_map(&mut observe).collect()
    }

    fn saw(step: u64, period: u64, mb: f64) -> f64 {
        (step % period) as f64 / period as f64 * mb
    }

    #[test]
    fn a_leak_of_1_mb_a_step_is_found_within_300_steps() {
        let found = run(LEAK_API, 300, |step| step as f64);
        assert_eq!(found.len(), 1);
        let leak = found[0].1;
        assert_eq!((leak.grown_bytes, leak.steps, leak.bytes_per_step), (252 * MB, 252, MB as f64));
        for seed in 0..50 {
            let noisy = run(LEAK_API, 300, |step| step as f64 + 20.0 * noise(seed, step));
            assert_eq!(noisy.len(), 1, "seed {seed}");
            assert!((0.8..1.2).contains(&(noisy[0].1.bytes_per_step / MB as f64)), "{noisy:?}");
        }
        for phase in 0..37 {
            let sawtooth = run(LEAK_API, 300, |step| step as f64 + saw(step + phase, 37, 200.0));
            assert_eq!(sawtooth.len(), 1, "phase {phase}");
            assert!((0.8..1.2).contains(&(sawtooth[0].1.bytes_per_step / MB as f64)), "{sawtooth:?}");
        }
    }

    #[test]
    fn sawtooth_and_noise_together_take_longer() {
        for seed in 0..50 {
            let found = run(LEAK_API, 700, |step| step as f64 + saw(step + seed, 37, 200.0) + 20.0 * noise(seed, step));
            assert!(!found.is_empty(), "seed {seed}");
        }
    }

    #[test]
    fn the_lanes_wait_for_their_thresholds() {
        for (threshold, within) in [(LEAK_DATA_LANE, 300), (LEAK_MODEL_LANE, 600)] {
            let found = run(threshold, within, |step| step as f64);
            assert_eq!(found.len(), 1);
            assert!(found[0].1.grown_bytes >= threshold);
        }
    }

    #[test]
    fn a_slow_leak_is_found_in_a_long_run() {
        let slow = 10.0 / 1024.0;
        for seed in 0..5 {
            let quiet = run(LEAK_API, 15_000, |step| slow * step as f64);
            let noisy = run(LEAK_API, 15_000, |step| slow * step as f64 + 20.0 * noise(seed, step));
            let busy = run(LEAK_API, 15_000, |step| {
                slow * step as f64 + 20.0 * noise(seed, step) + saw(step + seed, 37, 200.0)
            });
            assert_eq!((quiet.len(), noisy.len(), busy.len()), (1, 1, 1), "seed {seed}");
            assert!(quiet[0].0 < 10_500, "{quiet:?}");
        }
    }

    #[test]
    fn a_leak_that_starts_late_or_comes_in_bursts_is_found() {
        let late = run(LEAK_API, 5_340, |step| step.saturating_sub(5_000) as f64);
        assert_eq!(late.len(), 1);
        let bursts = run(LEAK_API, 4_000, |step| (step / 130 * 20) as f64);
        assert!(!bursts.is_empty(), "20 MB every 130 steps");
    }

    #[test]
    fn reports_again_after_the_same_growth() {
        let found = run(LEAK_API, 3_000, |step| 0.2 * step as f64);
        assert_eq!(found.len(), 5, "{found:?}");
        for pair in found.windows(2) {
            assert!(pair[1].0 - pair[0].0 >= 500, "100 MB are 500 steps");
        }
        let stopped = run(LEAK_API, 9_000, |step| step.min(300) as f64);
        assert_eq!(stopped.len(), 1, "a leak that stopped is reported once");
    }

    #[test]
    fn a_jump_that_stays_is_not_a_leak() {
        for at in 0..400 {
            let quiet = run(LEAK_API, 10_000, |step| if step < at { 0.0 } else { 1024.0 });
            let drift = run(LEAK_API, 3_000, |step| 0.001 * step as f64 + if step < at + 600 { 0.0 } else { 1024.0 });
            let noisy = run(LEAK_API, 3_000, |step| 20.0 * noise(at, step) + if step < at { 0.0 } else { 1024.0 });
            assert!(quiet.is_empty() && drift.is_empty() && noisy.is_empty(), "jump at {at}");
        }
    }

    #[test]
    fn a_plateau_is_not_a_leak() {
        assert!(run(LEAK_API, 100_000, |_| 0.0).is_empty());
        for seed in 0..10 {
            assert!(run(LEAK_API, 50_000, |step| 20.0 * noise(seed, step)).is_empty());
        }
    }

    #[test]
    fn steps_that_go_back_start_anew() {
        let mut detector = LeakDetector::new(LEAK_API);
        for step in (0..200).chain(0..200) {
            assert_eq!(detector.observe(step, step * MB), None);
        }
        let mut end = LeakDetector::new(0);
        assert_eq!(end.observe(u64::MAX, u64::MAX), None);
        assert_eq!(end.observe(u64::MAX, 0), None);
    }

    proptest! {
        #[test]
        fn a_sawtooth_is_not_a_leak(
            period in 2u64..=252, mb in 1.0..2048.0, noise_mb in 0.0..20.0, phase in 0u64..400, seed in 0u64..1 << 30,
        ) {
            let found = run(LEAK_API, 10_000, |step| saw(step + phase, period, mb) + noise_mb * noise(seed, step));
            prop_assert!(found.is_empty(), "{:?}", found);
        }

        #[test]
        fn a_long_and_low_sawtooth_is_not_a_leak(
            period in 2u64..=5_000, mb in 1.0..60.0, noise_mb in 0.0..20.0, phase in 0u64..5_000, seed in 0u64..1 << 30,
        ) {
            let found = run(LEAK_API, 10_000, |step| saw(step + phase, period, mb) + noise_mb * noise(seed, step));
            prop_assert!(found.is_empty(), "{:?}", found);
        }

        #[test]
        fn random_drops_are_not_a_leak(
            longest in 2u64..=160, mb_a_step in 0.01..20.0, noise_mb in 0.0..20.0, seed in 0u64..1 << 30,
        ) {
            let (mut used, mut left, mut teeth) = (0.0, 0, 0);
            let found = run(LEAK_API, 10_000, |step| {
                if left == 0 {
                    teeth += 1;
                    left = 1 + (random(seed + 1, teeth) * longest as f64) as u64;
                    used = 0.0;
                }
                left -= 1;
                used += mb_a_step * 2.0 * random(seed + 2, step);
                used + noise_mb * noise(seed, step)
            });
            prop_assert!(found.is_empty(), "{:?}", found);
        }

        #[test]
        fn warming_up_is_not_a_leak(
            jumps in prop::collection::vec((0u64..=200, 1.0..300.0), 1..20),
            noise_mb in 0.0..10.0,
            seed in 0u64..1 << 30,
        ) {
            let found = run(LEAK_API, 10_000, |step| {
                let reached = jumps.iter().filter(|jump| jump.0 <= step);
                reached.map(|jump| jump.1).sum::<f64>() + noise_mb * noise(seed, step)
            });
            prop_assert!(found.is_empty(), "{:?}", found);
        }

        #[test]
        fn growth_of_160_steps_is_not_a_leak(at in 0u64..2_000, mb_a_step in 0.1..20.0) {
            let found = run(LEAK_API, 10_000, |step| mb_a_step * step.saturating_sub(at).min(160) as f64);
            prop_assert!(found.is_empty(), "{:?}", found);
        }
    }
}
