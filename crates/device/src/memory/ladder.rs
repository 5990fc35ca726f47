//! Before the run: what the batch asked for needs, and what would fit instead.

use std::iter;

use serde::{Deserialize, Serialize};

/// What a run takes on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// Parameters, gradients and optimizer.
    pub fixed_bytes: u64,
    /// Activations of one row of the longest batch.
    pub row_bytes: u64,
    /// The same with gradient checkpointing, if the model can do it.
    pub row_bytes_checkpointing: Option<u64>,
    /// One row of a batch in the queue.
    pub batch_bytes_per_row: u64,
    /// Rows of a batch.
    pub rows: usize,
    /// Batches on the device, the one in work included.
    pub queued: usize,
}

impl Footprint {
    /// What it takes with the batch in so many micro-batches and so many batches on the device.
    pub fn bytes(&self, micro_batches: usize, checkpointing: bool, queued: usize) -> u64 {
        predict(self, self.rows, micro_batches, checkpointing, queued)
    }
}

/// What a batch of `batch` rows takes: the fixed part, the activations of one part of the batch and all batches on the
/// device. Without a figure for gradient checkpointing it saves nothing.
pub fn predict(footprint: &Footprint, batch: usize, micro_batches: usize, checkpointing: bool, queued: usize) -> u64 {
    let row = match footprint.row_bytes_checkpointing {
        Some(bytes) if checkpointing => bytes,
        _ => footprint.row_bytes,
    };
    let activations = row.saturating_mul(batch.div_ceil(micro_batches.max(1)) as u64);
    let batches = footprint.batch_bytes_per_row.saturating_mul(batch as u64).saturating_mul(queued as u64);
    footprint.fixed_bytes.saturating_add(activations).saturating_add(batches)
}

/// One way to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rung {
    /// Rows of a batch.
    pub batch: usize,
    /// Micro-batches that a batch is split into (gradient accumulation).
    #[serde(rename = "parts")]
    pub micro_batches: usize,
    /// With gradient checkpointing.
    pub checkpointing: bool,
    /// Batches on the device.
    pub queued: usize,
    /// What it takes.
    pub bytes: u64,
    /// Whether that is within the limit.
    pub fits: bool,
}

impl Rung {
    /// Whether nothing about `other` is better for the user.
    fn at_least_as_good_as(&self, other: &Rung) -> bool {
        self.batch >= other.batch
            && self.micro_batches <= other.micro_batches
            && self.checkpointing <= other.checkpointing
            && self.queued >= other.queued
    }
}

/// The configuration asked for, and if it does not fit, what would, in the order of what it costs the user: the same
/// batch in micro-batches, with gradient checkpointing, with fewer batches on the device, and smaller batches. Of each kind
/// the first that fits, with as little of the kinds before as it takes, and only if it spares the user something that
/// the rungs before it do not. Only the first rung, when nothing fits.
pub fn ladder(footprint: &Footprint, limit_bytes: u64) -> Vec<Rung> {
    let rung = |batch, micro_batches, checkpointing, queued| {
        let bytes = predict(footprint, batch, micro_batches, checkpointing, queued);
        Rung { batch, micro_batches, checkpointing, queued, bytes, fits: bytes <= limit_bytes }
    };
    let Footprint { rows, queued, .. } = *footprint;
    let mut rungs = vec![rung(rows, 1, false, queued)];
    if rungs[0].fits {
        return rungs;
    }
    let checkpointing = footprint.row_bytes_checkpointing.is_some();
    let modes = || iter::once(false).chain(checkpointing.then_some(true));
    let shallower = || (1..queued).rev();

    let in_micro_batches =
        powers(rows).map(|micro_batches| rung(rows, micro_batches, false, queued)).find(|rung| rung.fits);
    let checkpointed = powers(rows)
        .filter(|_| checkpointing)
        .map(|micro_batches| rung(rows, micro_batches, true, queued))
        .find(|rung| rung.fits);
    let queue = modes().flat_map(|mode| powers(rows).map(move |micro_batches| (mode, micro_batches))).find_map(
        |(mode, micro_batches)| {
            shallower().map(|queued| rung(rows, micro_batches, mode, queued)).find(|rung| rung.fits)
        },
    );
    let smaller = iter::once(queued)
        .chain((queued > 1).then_some(1))
        .flat_map(|queued| modes().map(move |mode| (mode, queued)))
        .find_map(|(mode, queued)| halves(rows).map(|batch| rung(batch, 1, mode, queued)).find(|rung| rung.fits));

    for found in [in_micro_batches, checkpointed, queue, smaller].into_iter().flatten() {
        if !rungs.iter().any(|rung| rung.fits && rung.at_least_as_good_as(&found)) {
            rungs.push(found);
        }
    }
    rungs
}

/// The least number of micro-batches (a power of two, at most one for each row) with which the batch fits as requested
/// otherwise.
pub fn micro_batches_that_fit(footprint: &Footprint, limit_bytes: u64) -> Option<usize> {
    powers(footprint.rows).find(|&micro_batches| footprint.bytes(micro_batches, false, footprint.queued) <= limit_bytes)
}

/// 1, 2, 4 and so on, up to `rows`.
fn powers(rows: usize) -> impl Iterator<Item = usize> {
    iter::successors(Some(1usize), |micro_batches| micro_batches.checked_mul(2))
        .take_while(move |&micro_batches| micro_batches <= rows.max(1))
}

/// Half of `rows`, a quarter and so on, down to 1.
fn halves(rows: usize) -> impl Iterator<Item = usize> {
    iter::successors(Some(rows / 2), |batch| Some(batch / 2)).take_while(|&batch| batch > 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FOOTPRINT: Footprint = Footprint {
        fixed_bytes: 1_000,
        row_bytes: 100,
        row_bytes_checkpointing: Some(25),
        batch_bytes_per_row: 10,
        rows: 32,
        queued: 4,
    };

    fn rung(batch: usize, micro_batches: usize, checkpointing: bool, queued: usize, bytes: u64) -> Rung {
        Rung { batch, micro_batches, checkpointing, queued, bytes, fits: true }
    }

    #[test]
    fn what_fits_is_left_alone() {
        assert_eq!(FOOTPRINT.bytes(1, false, 4), 1_000 + 3_200 + 1_280);
        assert_eq!(ladder(&FOOTPRINT, 5_480), [rung(32, 1, false, 4, 5_480)]);
        assert_eq!(micro_batches_that_fit(&FOOTPRINT, 5_480), Some(1));
    }

    #[test]
    fn one_rung_of_each_kind() {
        let rungs = ladder(&FOOTPRINT, 5_000);
        assert_eq!(
            rungs,
            [
                Rung { fits: false, ..rung(32, 1, false, 4, 5_480) },
                rung(32, 2, false, 4, 3_880),
                rung(32, 1, true, 4, 3_080),
                rung(32, 1, false, 2, 4_840),
                rung(16, 1, false, 4, 3_240),
            ]
        );
        assert_eq!(micro_batches_that_fit(&FOOTPRINT, 5_000), Some(2));
    }

    #[test]
    fn kinds_are_combined_when_one_is_not_enough() {
        // Parts alone need 2,380 at least, with checkpointing 2,305, with one batch on the device 1,420.
        let rungs = ladder(&FOOTPRINT, 1_400);
        assert_eq!(
            rungs[1..],
            [rung(32, 16, true, 1, 1_370), rung(2, 1, false, 4, 1_280)],
            "the batch of 32 needs all three"
        );
    }

    #[test]
    fn useless_rungs_are_skipped() {
        let no_saving = Footprint { row_bytes_checkpointing: None, queued: 1, ..FOOTPRINT };
        let rungs = ladder(&no_saving, 4_000);
        assert_eq!(rungs[1..], [rung(32, 2, false, 1, 2_920), rung(16, 1, false, 1, 2_760)]);
        let same = Footprint { row_bytes_checkpointing: Some(100), ..FOOTPRINT };
        assert!(ladder(&same, 4_000).iter().all(|rung| !rung.checkpointing), "it saves nothing");
    }

    #[test]
    fn nothing_fits() {
        let rungs = ladder(&FOOTPRINT, 999);
        assert_eq!((rungs.len(), rungs[0].fits), (1, false));
        assert_eq!(micro_batches_that_fit(&FOOTPRINT, 999), None);
    }

    #[test]
    fn extremes_do_not_overflow() {
        let huge = Footprint {
            fixed_bytes: u64::MAX,
            row_bytes: u64::MAX,
            row_bytes_checkpointing: Some(u64::MAX),
            batch_bytes_per_row: u64::MAX,
            rows: usize::MAX,
            queued: 2,
        };
        assert_eq!(ladder(&huge, 1).len(), 1);
        let none = Footprint { rows: 0, queued: 0, ..FOOTPRINT };
        assert_eq!(ladder(&none, 1_000), [rung(0, 1, false, 0, 1_000)]);
    }

    fn footprints() -> impl Strategy<Value = Footprint> {
        (0u64..10_000, 0u64..1_000, prop::option::of(0u64..1_000), 0u64..200, 0usize..300, 0usize..10).prop_map(
            |(fixed_bytes, row_bytes, row_bytes_checkpointing, batch_bytes_per_row, rows, queued)| Footprint {
                fixed_bytes,
                row_bytes,
                row_bytes_checkpointing,
                batch_bytes_per_row,
                rows,
                queued,
            },
        )
    }

    proptest! {
        #[test]
        fn every_rung_is_true_and_useful(footprint in footprints(), limit in 0u64..400_000) {
            let rungs = ladder(&footprint, limit);
            for (at, rung) in rungs.iter().enumerate() {
                let bytes = predict(&footprint, rung.batch, rung.micro_batches, rung.checkpointing, rung.queued);
                prop_assert_eq!((rung.bytes, rung.fits), (bytes, bytes <= limit));
                prop_assert!(at == 0 || rung.fits);
                prop_assert!(rungs[..at].iter().all(|before| !before.fits || !before.at_least_as_good_as(rung)));
            }
            let asked = (rungs[0].batch, rungs[0].micro_batches, rungs[0].checkpointing, rungs[0].queued);
            prop_assert_eq!(asked, (footprint.rows, 1, false, footprint.queued));
            prop_assert!(rungs.len() <= 5 && (rungs.len() == 1 || !rungs[0].fits));
        }

        #[test]
        fn micro_batches_are_the_least_that_fit(footprint in footprints(), limit in 0u64..400_000, less in 0u64..100_000) {
            let micro_batches = micro_batches_that_fit(&footprint, limit);
            let tighter = micro_batches_that_fit(&footprint, limit.saturating_sub(less));
            prop_assert!(tighter.unwrap_or(usize::MAX) >= micro_batches.unwrap_or(usize::MAX));
            if let Some(micro_batches) = micro_batches {
                prop_assert!(micro_batches.is_power_of_two() && micro_batches <= footprint.rows.max(1));
                prop_assert!(footprint.bytes(micro_batches, false, footprint.queued) <= limit);
                prop_assert!(micro_batches == 1 || footprint.bytes(micro_batches / 2, false, footprint.queued) > limit);
            }
            for micro_batches in 1..20 {
                let more = footprint.bytes(micro_batches + 1, false, footprint.queued);
                prop_assert!(more <= footprint.bytes(micro_batches, false, footprint.queued));
            }
        }
    }
}
