//! SPEC G5: the longest batch before the first step, so that too little memory shows now and not at hour nine. One clip,
//! two, four: each shows whether twice as many would still fit, so that the device never runs out on the way.

use std::time::Instant;

use tandem_device::memory::{Footprint, ladder};

use crate::events::{Preflight, TrainError};
use crate::features::Ready;
use crate::guard::Guard;
use crate::memory;
use crate::step::Learner;
use crate::task::SpeechTask;

/// What trials of more and more clips took.
#[derive(Debug, Default)]
struct Trials(Vec<(usize, u64)>);

impl Trials {
    fn add(&mut self, rows: usize, bytes: u64) {
        // More clips never take less: what looks like it is noise.
        let before = self.most();
        self.0.push((rows, bytes.max(before)));
    }

    /// What the largest took.
    fn most(&self) -> u64 {
        self.0.last().map_or(0, |(_, bytes)| *bytes)
    }

    /// Clips of the largest.
    fn rows(&self) -> usize {
        self.0.last().map_or(0, |(rows, _)| *rows)
    }

    /// What one clip more takes, by the last two trials.
    fn row_bytes(&self) -> u64 {
        match self.0[..] {
            [] => 0,
            [(rows, bytes)] => bytes.div_ceil(rows as u64),
            [.., (few, less), (many, more)] => (more - less).div_ceil((many - few) as u64),
        }
    }

    /// What so many clips would take.
    fn predict(&self, rows: usize) -> u64 {
        self.most() + self.row_bytes() * rows.saturating_sub(self.rows()) as u64
    }

    /// What a step takes however few clips it has.
    fn base_bytes(&self) -> u64 {
        self.most().saturating_sub(self.row_bytes() * self.rows() as u64)
    }
}

/// Tries the longest batch. Batches are split when less than a whole one fits; that changes nothing but speed.
pub(crate) fn preflight<T: SpeechTask>(
    longest: &Ready<T::Inputs>,
    learner: &mut Learner<T>,
    guard: &mut Guard,
) -> Result<(Preflight, Footprint), TrainError> {
    let started = Instant::now();
    let (inputs, limit) = (&longest.inputs, guard.limit());
    let (rows, batch_bytes) = (T::rows(inputs), learner.task().input_bytes(inputs));
    let (frames, tokens) = T::extent(inputs);
    let mut wanted = rows.div_ceil(learner.own_micro_batches());
    let fixed = guard.held_bytes() + batch_bytes;
    learner.allocate();
    let before = guard.held_now();
    let mut trials = Trials::default();
    let mut next = if limit.is_some() { 1 } else { wanted };
    while trials.rows() < wanted {
        // With several micro-batches the gradients of those before are kept.
        let more = if next < rows { guard.gradient_bytes() } else { 0 };
        let fits = guard.check_against(fixed, trials.predict(next) + more, "the longest batch").and_then(|()| {
            let part = T::micro_batch(inputs, 0..next);
            let mut ran_out = false;
            let took = guard.trial(before, || ran_out |= !learner.dry_run(&part, 1));
            guard.check_against(fixed, took + more, "the longest batch").map(|()| (took, ran_out))
        });
        match fits {
            Ok((took, false)) => trials.add(next, took),
            _ if trials.rows() > 0 => break,
            // Nobody told how much there is (Metal, DX12): half as many, until they fit.
            Ok((_, true)) if next > 1 => {
                wanted = next / 2;
                next = wanted;
                continue;
            }
            // Not even one clip.
            Ok((_, true)) => return Err(TrainError::OutOfMemory { rows: next, frames }),
            Err(error) => return Err(TrainError::Memory(error, Vec::new())),
        }
        next = (2 * next).min(wanted);
    }
    let footprint = Footprint {
        fixed_bytes: guard.held_bytes() + trials.base_bytes(),
        row_bytes: trials.row_bytes(),
        row_bytes_checkpointing: None,
        batch_bytes_per_row: batch_bytes.div_ceil(rows as u64),
        rows,
        queued: 1,
    };
    let mut needed = trials.most();
    if trials.rows() < rows {
        learner.split(rows.div_ceil(trials.rows()).next_power_of_two());
        needed += guard.gradient_bytes();
    }
    guard.provide_for_steps(needed);
    confirm(inputs, learner, guard)?;
    let preflight = Preflight {
        rows,
        frames,
        tokens,
        seconds: started.elapsed().as_secs_f64(),
        peak_bytes: memory::peak_bytes(),
        ladder: limit.map_or(Vec::new(), |limit| ladder(&footprint, limit)),
        limit_bytes: limit,
    };
    Ok((preflight, footprint))
}

/// The whole batch as it will go through the device, twice: an allocator on a device holds pages of many sizes, which no
/// sum of needs foretells. Splits further if that is what it takes.
fn confirm<T: SpeechTask>(inputs: &T::Inputs, learner: &mut Learner<T>, guard: &Guard) -> Result<(), TrainError> {
    if guard.limit().is_none() || guard.shares_host() {
        return Ok(());
    }
    loop {
        guard.give_back();
        let ran = (0..2).all(|_| learner.dry_run(inputs, learner.own_micro_batches()));
        let held = guard.check_now("the longest batch");
        match held {
            Ok(()) if ran => return Ok(()),
            _ if learner.own_micro_batches() < T::rows(inputs) => learner.split(2 * learner.own_micro_batches()),
            Err(error) => return Err(TrainError::Memory(error, Vec::new())),
            Ok(()) => return Err(TrainError::OutOfMemory { rows: 1, frames: T::extent(inputs).0 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_say_what_more_would_take() {
        let mut trials = Trials::default();
        assert_eq!(trials.predict(1), 0, "nothing is known yet: one clip is tried");
        trials.add(1, 130);
        assert_eq!(trials.predict(2), 260, "by one trial alone: in proportion");
        trials.add(2, 160);
        assert_eq!((trials.row_bytes(), trials.base_bytes(), trials.predict(4)), (30, 100, 220));
        trials.add(4, 150);
        assert_eq!((trials.row_bytes(), trials.predict(8)), (0, 160), "noise does not make memory grow back");
    }
}
