//! Which clips form batch *n* of an epoch: a pure function of seed, epoch and sizes.
//!
//! All clips are shuffled; in pools of some dozen batches they are sorted by a slightly blurred length and cut into
//! batches; the batches are shuffled. So clips of a batch have nearly the same length, yet other company each epoch.
//!
//! With [`Balance::Speaker`] an epoch is as long as without it, but every speaker has the same share of it ([`balanced`]).

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tandem_flow::{Cursor, Random};

/// Batches whose clips are sorted together. More means less padding and less mixing.
const POOL_BATCHES: usize = 32;
/// Lengths are blurred by up to this share before sorting, so that neighbors differ from epoch to epoch.
const BLUR: f64 = 0.04;
/// The most shapes that static batches come in.
const SHAPES: usize = 8;
/// Tells the draws of speakers from all others.
const BALANCE: u64 = 0x6261_6C61_6E63_6564;

/// The size of a clip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClipSize {
    /// Mel frames.
    pub frames: u32,
    /// Tokens of its text.
    pub tokens: u32,
}

/// Whose clips an epoch has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Balance {
    /// Every clip once.
    #[default]
    Off,
    /// As many clips of each speaker: those of rare speakers more than once, of common ones some.
    Speaker,
}

/// How batches are formed. The defaults are those of `tandem load`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanSettings {
    /// Clips in a batch; 0 counts as 1.
    pub batch_size: usize,
    /// The same seed gives the same batches.
    pub seed: u64,
    /// Pads every batch to one of a few shapes that never change, instead of its own longest clip.
    pub static_shapes: bool,
    /// Shuffles and cuts, nothing else: the order that the benchmark of other loaders prescribes.
    pub plain_order: bool,
    /// Whose clips an epoch has.
    #[serde(default)]
    pub balance: Balance,
}

impl Default for PlanSettings {
    fn default() -> Self {
        PlanSettings { batch_size: 32, seed: 1, static_shapes: false, plain_order: false, balance: Balance::Off }
    }
}

/// The clips of a batch: some of those of the epoch, which all its batches share. So the plan of an epoch of ten million clips is two blocks of
/// memory, and not a million.
#[derive(Clone)]
pub struct PlannedClips {
    epoch: Arc<Vec<u32>>,
    from: u32,
    to: u32,
}

impl PlannedClips {
    fn of(epoch: &Arc<Vec<u32>>, part: Range<usize>) -> PlannedClips {
        PlannedClips { epoch: epoch.clone(), from: part.start as u32, to: part.end as u32 }
    }
}

impl Deref for PlannedClips {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.epoch[self.from as usize..self.to as usize]
    }
}

impl From<Vec<u32>> for PlannedClips {
    fn from(clips: Vec<u32>) -> PlannedClips {
        let to = clips.len() as u32;
        PlannedClips { epoch: Arc::new(clips), from: 0, to }
    }
}

impl PartialEq for PlannedClips {
    fn eq(&self, other: &PlannedClips) -> bool {
        **self == **other
    }
}

impl Eq for PlannedClips {}

impl fmt::Debug for PlannedClips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// One batch: which clips, and the shape they are padded to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedBatch {
    /// Its place in the run.
    pub cursor: Cursor,
    /// The clips, by number.
    pub clips: PlannedClips,
    /// Rows of the batch; with static shapes it may have rows without a clip.
    pub rows: usize,
    /// Frames of each row.
    pub frames: usize,
    /// Tokens of each row.
    pub tokens: usize,
}

/// Which rows of every batch a process of a run takes. The batch is split, not the data: whatever the number of processes,
/// batch *n* has the same clips and the same shape.
///
/// Rows are padded to the batch's shape, so that as many rows are as much work; and they lie in the order of their
/// lengths, so that neighbors have nearly as many frames. The parts are those that gradient accumulation makes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// This process, from 0.
    pub rank: usize,
    /// Processes of the run.
    pub world: usize,
}

impl Default for Shard {
    /// All rows.
    fn default() -> Self {
        Shard { rank: 0, world: 1 }
    }
}

impl Shard {
    /// Its rows of a batch that has so many: those of all ranks follow each other, and the last ranks may have none.
    pub fn rows(self, rows: usize) -> Range<usize> {
        let each = rows.div_ceil(self.world.max(1));
        let first = (self.rank * each).min(rows);
        first..(first + each).min(rows)
    }
}

/// The numbers 0 to `count - 1` in an order that depends on `seed` alone.
pub(crate) fn order(count: usize, seed: u64) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count as u32).collect();
    Random::new(seed).shuffle(&mut numbers);
    numbers
}

/// The clips of an epoch in which every speaker has the same share: as many as `subset` has, drawn from it. `speaker(clip)` says
/// whose a clip is.
///
/// The clips of a speaker lie in passes, each of which has all of them in another order, by seed, speaker and pass; an epoch takes
/// the next ones. So after any number of epochs two clips of a speaker were taken equally often, or one of them once more; the
/// places of an epoch that cannot be shared out evenly go round; and nothing needs to be remembered to resume.
pub fn balanced(seed: u64, epoch: u64, subset: &[u32], speaker: impl Fn(u32) -> u16) -> Vec<u32> {
    let mut by_speaker: BTreeMap<u16, Vec<u32>> = BTreeMap::new();
    for &clip in subset {
        by_speaker.entry(speaker(clip)).or_default().push(clip);
    }
    let (places, speakers) = (subset.len() as u128, by_speaker.len().max(1) as u128);
    let mut drawn = Vec::with_capacity(subset.len());
    for (number, (speaker, clips)) in by_speaker.iter().enumerate() {
        // Places of this speaker before an epoch. Over all speakers they add up to all places (Hermite's identity).
        let before = |epoch: u64| (u128::from(epoch) * places + number as u128) / speakers;
        let (mut pass, mut order) = (None, Vec::new());
        for place in before(epoch)..before(epoch + 1) {
            let (of, at) = ((place / clips.len() as u128) as u64, (place % clips.len() as u128) as usize);
            if pass.replace(of) != Some(of) {
                order.clone_from(clips);
                Random::at(&[seed, BALANCE, u64::from(*speaker), of]).shuffle(&mut order);
            }
            drawn.push(order[at]);
        }
    }
    drawn
}

/// The batches of an epoch over the clips `subset` (numbers into `sizes`); none without a clip.
///
/// # Panics
///
/// If a number of `subset` is not one of `sizes`.
pub fn plan(settings: &PlanSettings, epoch: u64, sizes: &[ClipSize], subset: &[u32]) -> Vec<PlannedBatch> {
    plan_drawn(settings, epoch, sizes, subset, subset)
}

/// The same of the clips `drawn`, which are some of `subset`, and may be in it more than once. Shapes are those of `subset`: they
/// do not change from epoch to epoch.
///
/// # Panics
///
/// If a number of `drawn` or `subset` is not one of `sizes`.
pub fn plan_drawn(
    settings: &PlanSettings,
    epoch: u64,
    sizes: &[ClipSize],
    subset: &[u32],
    drawn: &[u32],
) -> Vec<PlannedBatch> {
    let batch_size = settings.batch_size.max(1);
    // Epochs of one seed and seeds of one epoch must not be shifted copies of each other.
    let mut random = Random::new(Random::new(settings.seed).next() ^ epoch.wrapping_mul(0xD6E8_FEB8_6659_FD93));
    let mut clips = drawn.to_vec();
    if settings.plain_order {
        Random::new(settings.seed.wrapping_add(epoch)).shuffle(&mut clips);
        return numbered(padded_to_longest(clips, batch_size, sizes), epoch);
    }
    random.shuffle(&mut clips);
    let mut batches = if settings.static_shapes {
        padded_to_shapes(&clips, batch_size, sizes, &bucket_shapes(sizes, subset))
    } else {
        for pool in clips.chunks_mut(batch_size * POOL_BATCHES) {
            let mut keyed: Vec<(f64, u32)> = (pool.iter())
                .map(|&clip| (f64::from(sizes[clip as usize].frames) * (1.0 + BLUR * random.signed()), clip))
                .collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            pool.iter_mut().zip(keyed).for_each(|(place, (_, clip))| *place = clip);
        }
        // Pools are whole batches but for the last: they are cut where the batches of each would be.
        padded_to_longest(clips, batch_size, sizes)
    };
    random.shuffle(&mut batches);
    numbered(batches, epoch)
}

fn numbered(mut batches: Vec<PlannedBatch>, epoch: u64) -> Vec<PlannedBatch> {
    for (batch, planned) in (0..).zip(&mut batches) {
        planned.cursor = Cursor { epoch, batch };
    }
    batches
}

/// The clips in their order, so many at a time, each batch padded to its longest clip.
fn padded_to_longest(clips: Vec<u32>, batch_size: usize, sizes: &[ClipSize]) -> Vec<PlannedBatch> {
    let mut batches = Vec::with_capacity(clips.len().div_ceil(batch_size));
    let clips = Arc::new(clips);
    for start in (0..clips.len()).step_by(batch_size) {
        let clips = PlannedClips::of(&clips, start..clips.len().min(start + batch_size));
        let longest = |size: fn(&ClipSize) -> u32| {
            clips.iter().map(|&clip| size(&sizes[clip as usize])).max().unwrap_or(0) as usize
        };
        let (rows, frames, tokens) = (clips.len(), longest(|s| s.frames), longest(|s| s.tokens));
        batches.push(PlannedBatch { cursor: Cursor::START, clips, rows, frames, tokens });
    }
    batches
}

/// The clips of each shape (frames, tokens) in their order, so many at a time.
fn padded_to_shapes(
    clips: &[u32],
    batch_size: usize,
    sizes: &[ClipSize],
    shapes: &[(usize, usize)],
) -> Vec<PlannedBatch> {
    let (mut sorted, mut ends) = (Vec::with_capacity(clips.len()), Vec::new());
    for &(frames, _) in shapes {
        let lower = shapes.iter().map(|&(other, _)| other).filter(|&other| other < frames).max().unwrap_or(0);
        let fits = |clip: &&u32| (lower + 1..=frames).contains(&(sizes[**clip as usize].frames as usize));
        sorted.extend(clips.iter().filter(fits));
        ends.push(sorted.len());
    }
    let (sorted, mut batches, mut begin) = (Arc::new(sorted), Vec::new(), 0);
    for (&end, &(frames, tokens)) in ends.iter().zip(shapes) {
        batches.extend((begin..end).step_by(batch_size).map(|start| PlannedBatch {
            cursor: Cursor::START,
            clips: PlannedClips::of(&sorted, start..end.min(start + batch_size)),
            rows: batch_size,
            frames,
            tokens,
        }));
        begin = end;
    }
    batches
}

/// SPEC F10: the shapes (frames, tokens) of static batches: at most eight, the same in every epoch, chosen so that
/// each holds about as many clips as the others.
fn bucket_shapes(sizes: &[ClipSize], subset: &[u32]) -> Vec<(usize, usize)> {
    let mut frames: Vec<u32> = subset.iter().map(|&clip| sizes[clip as usize].frames).collect();
    frames.sort_unstable();
    let mut bounds: Vec<usize> = (1..=SHAPES)
        .filter_map(|part| frames.get((frames.len() * part / SHAPES).saturating_sub(1)))
        // Multiples of eight suit every device; the last bound still holds the longest clip.
        .map(|&frames| (frames as usize).next_multiple_of(8))
        .collect();
    bounds.dedup();
    (bounds.iter().enumerate())
        .map(|(at, &bound)| {
            let lower = if at == 0 { 0 } else { bounds[at - 1] };
            let inside = subset
                .iter()
                .map(|&clip| sizes[clip as usize])
                .filter(|size| (lower + 1..=bound).contains(&(size.frames as usize)));
            let tokens = inside.map(|size| size.tokens as usize).max().unwrap_or(1);
            (bound, tokens.next_multiple_of(8))
        })
        .collect()
}

/// How much of the batches is padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Padding {
    /// Frames of clips.
    pub frames: u64,
    /// Frames of rows, padding included.
    pub padded_frames: u64,
    /// Different shapes (rows, frames, tokens) among the batches.
    pub distinct_shapes: usize,
}

impl Padding {
    /// The share that is padding, 0 to 1.
    pub fn share(&self) -> f64 {
        if self.padded_frames == 0 { 0.0 } else { 1.0 - self.frames as f64 / self.padded_frames as f64 }
    }
}

/// Measures the padding of a plan over clips of these sizes.
///
/// # Panics
///
/// If a clip of the plan is not one of `sizes`.
pub fn padding(batches: &[PlannedBatch], sizes: &[ClipSize]) -> Padding {
    let mut shapes: Vec<_> = batches.iter().map(|batch| (batch.rows, batch.frames, batch.tokens)).collect();
    shapes.sort_unstable();
    shapes.dedup();
    Padding {
        frames: batches
            .iter()
            .flat_map(|batch| batch.clips.iter())
            .map(|&clip| u64::from(sizes[clip as usize].frames))
            .sum(),
        padded_frames: batches.iter().map(|batch| (batch.rows * batch.frames) as u64).sum(),
        distinct_shapes: shapes.len(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;
    use proptest::prelude::*;

    fn settings(static_shapes: bool) -> PlanSettings {
        PlanSettings { batch_size: 32, seed: 7, static_shapes, ..PlanSettings::default() }
    }

    /// Durations like LJSpeech's: 1.1 to 10.1 s, mean 6.6 s, skewed to the long end.
    fn ljspeech(count: usize) -> Vec<ClipSize> {
        let mut random = Random::new(3);
        (0..count)
            .map(|_| {
                let seconds = 1.1 + 9.0 * (random.signed() * 0.5 + 0.5).powf(0.6);
                ClipSize { frames: (seconds * 86.13) as u32, tokens: (seconds * 15.0) as u32 }
            })
            .collect()
    }

    #[test]
    fn padding_is_little_and_the_clips_still_mix() {
        let sizes = ljspeech(13_100);
        let mean = sizes.iter().map(|size| f64::from(size.frames)).sum::<f64>() / sizes.len() as f64 / 86.13;
        assert!((6.0..7.2).contains(&mean), "{mean}");
        let all: Vec<u32> = (0..sizes.len() as u32).collect();
        let epochs: Vec<_> = (0..2).map(|epoch| plan(&settings(false), epoch, &sizes, &all)).collect();
        for batches in &epochs {
            let share = padding(batches, &sizes).share();
            assert!(share <= 0.05, "{share}");
        }
        // Mixing: of the pairs that share a batch in one epoch, how many share one again in the next. Chance alone
        // gives 31/13099 = 0.24 %; batches of a corpus that is merely sorted give 100 %.
        let pairs = |batches: &[PlannedBatch]| -> HashSet<(u32, u32)> {
            let mut pairs = HashSet::new();
            for batch in batches {
                for (at, &a) in batch.clips.iter().enumerate() {
                    pairs.extend(batch.clips[at + 1..].iter().map(|&b| (a.min(b), a.max(b))));
                }
            }
            pairs
        };
        let (first, second) = (pairs(&epochs[0]), pairs(&epochs[1]));
        let again = first.intersection(&second).count() as f64 / first.len() as f64;
        println!("padding {:.2} %, mates again {:.2} %", 100.0 * padding(&epochs[0], &sizes).share(), 100.0 * again);
        assert!(again < 0.05, "{again}");
        // And batches come in no order of length: neighbors are as different as strangers.
        let lengths: Vec<f64> = epochs[0].iter().map(|batch| batch.frames as f64).collect();
        let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
        let variance: f64 = lengths.iter().map(|x| (x - mean).powi(2)).sum();
        let lagged: f64 = lengths.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
        assert!((lagged / variance).abs() < 0.15, "{}", lagged / variance);
    }

    #[test]
    fn static_batches_come_in_few_shapes_that_never_change() {
        let sizes = ljspeech(2000);
        let all: Vec<u32> = (0..2000).collect();
        let shapes = |epoch| {
            let batches = plan(&settings(true), epoch, &sizes, &all);
            assert!(padding(&batches, &sizes).distinct_shapes <= SHAPES);
            batches.iter().map(|batch| (batch.rows, batch.frames, batch.tokens)).collect::<HashSet<_>>()
        };
        assert_eq!(shapes(0), shapes(1));
        assert!(shapes(0).len() > 2);
    }

    #[test]
    fn shards_are_all_rows_in_order_and_none_has_more_than_its_share() {
        for (rows, world, lengths) in [
            (8, 1, vec![8]),
            (8, 2, vec![4, 4]),
            (7, 2, vec![4, 3]),
            (8, 3, vec![3, 3, 2]),
            (5, 4, vec![2, 2, 1, 0]),
            (1, 3, vec![1, 0, 0]),
            (0, 2, vec![0, 0]),
        ] {
            let shards: Vec<_> = (0..world).map(|rank| Shard { rank, world }.rows(rows)).collect();
            assert_eq!(shards.iter().map(ExactSizeIterator::len).collect::<Vec<_>>(), lengths, "{rows} over {world}");
            assert_eq!(shards.into_iter().flatten().collect::<Vec<_>>(), (0..rows).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_plain_order_is_that_of_the_benchmark() {
        // order(5, epoch 1) of shared/bench/peers/common.py
        assert_eq!(order(5, 1234), plain(5, 0));
        fn plain(count: usize, epoch: u64) -> Vec<u32> {
            let sizes = vec![ClipSize { frames: 1, tokens: 1 }; count];
            let settings = PlanSettings { batch_size: 2, seed: 1234, plain_order: true, ..PlanSettings::default() };
            let all: Vec<u32> = (0..count as u32).collect();
            plan(&settings, epoch, &sizes, &all).into_iter().flat_map(|batch| batch.clips.to_vec()).collect()
        }
    }

    proptest! {
        #[test]
        fn every_clip_is_in_one_batch_of_every_epoch_and_fits(
            lengths in prop::collection::vec((1u32..900, 1u32..200), 1..300),
            batch_size in 1usize..40,
            seed in any::<u64>(),
            epoch in 0u64..5,
            static_shapes in any::<bool>(),
        ) {
            let sizes: Vec<ClipSize> = lengths.iter().map(|&(frames, tokens)| ClipSize { frames, tokens }).collect();
            let subset: Vec<u32> = (0..sizes.len() as u32).filter(|n| n % 3 != 1).collect();
            let settings = PlanSettings { batch_size, seed, static_shapes, ..PlanSettings::default() };
            let batches = plan(&settings, epoch, &sizes, &subset);
            prop_assert_eq!(&batches, &plan(&settings, epoch, &sizes, &subset));
            let mut seen: Vec<u32> = batches.iter().flat_map(|batch| batch.clips.to_vec()).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, subset);
            for (number, batch) in (0..).zip(&batches) {
                prop_assert_eq!(batch.cursor, Cursor { epoch, batch: number });
                prop_assert!(!batch.clips.is_empty() && batch.clips.len() <= batch.rows && batch.rows <= batch_size);
                for &clip in batch.clips.iter() {
                    let size = sizes[clip as usize];
                    prop_assert!(size.frames as usize <= batch.frames && size.tokens as usize <= batch.tokens);
                }
            }
        }

        #[test]
        fn balanced_epochs_give_every_speaker_the_same_share(
            counts in prop::collection::vec(1usize..40, 1..12),
            seed in any::<u64>(),
            first in 0u64..1000,
            batch_size in 1usize..20,
            static_shapes in any::<bool>(),
        ) {
            let speakers: Vec<u16> =
                counts.iter().enumerate().flat_map(|(speaker, &count)| vec![speaker as u16; count]).collect();
            // In any order, and not all of them.
            let mut subset = order(speakers.len(), seed ^ 1);
            subset.truncate(speakers.len().div_ceil(2));
            let of = |clip: u32| speakers[clip as usize];
            let named: HashSet<u16> = subset.iter().map(|&clip| of(clip)).collect();
            let (mut shares, mut uses) = (HashMap::new(), HashMap::new());
            for epoch in 0..6 {
                let drawn = balanced(seed, epoch, &subset, of);
                prop_assert_eq!(drawn.len(), subset.len(), "an epoch is as long as without balance");
                for &speaker in &named {
                    let share = drawn.iter().filter(|&&clip| of(clip) == speaker).count();
                    let even = subset.len() / named.len();
                    prop_assert!((even..=even + 1).contains(&share), "{} of {}", share, even);
                    *shares.entry(speaker).or_insert(0usize) += share;
                }
                for clip in drawn {
                    prop_assert!(subset.contains(&clip));
                    *uses.entry(clip).or_insert(0usize) += 1;
                }
            }
            // What cannot be shared out in an epoch goes round, and so do the clips of a speaker.
            let (least, most) = (shares.values().min().unwrap_or(&0), shares.values().max().unwrap_or(&0));
            prop_assert!(most - least <= 1, "{:?}", shares);
            for &speaker in &named {
                let of_speaker = subset.iter().filter(|&&clip| of(clip) == speaker).map(|clip| uses.get(clip).copied().unwrap_or(0));
                let (least, most) = of_speaker.fold((usize::MAX, 0), |(least, most), n| (least.min(n), most.max(n)));
                prop_assert!(most - least <= 1, "speaker {}: {} to {}", speaker, least, most);
            }
            // A late epoch needs none of those before it, and its batches are its own.
            let drawn = balanced(seed, first, &subset, of);
            prop_assert_eq!(&drawn, &balanced(seed, first, &subset, of));
            let sizes: Vec<ClipSize> = (0..speakers.len() as u32).map(|n| ClipSize { frames: 1 + n % 90, tokens: 1 + n % 7 }).collect();
            let settings = PlanSettings { batch_size, seed, static_shapes, ..PlanSettings::default() };
            let batches = plan_drawn(&settings, first, &sizes, &subset, &drawn);
            let sorted = |mut clips: Vec<u32>| {
                clips.sort_unstable();
                clips
            };
            let seen: Vec<u32> = batches.iter().flat_map(|batch| batch.clips.to_vec()).collect();
            prop_assert_eq!(sorted(seen), sorted(drawn));
            for batch in &batches {
                let fits = |&clip: &u32| sizes[clip as usize].frames as usize <= batch.frames && sizes[clip as usize].tokens as usize <= batch.tokens;
                prop_assert!(batch.clips.iter().all(fits));
            }
        }
    }

    #[test]
    fn a_rare_speaker_is_heard_as_often_as_a_common_one_in_new_orders() {
        let speakers = [vec![0u16; 90], vec![1; 10]].concat();
        let all: Vec<u32> = (0..100).collect();
        let of = |clip: u32| speakers[clip as usize];
        let epochs: Vec<Vec<u32>> = (0..9).map(|epoch| balanced(3, epoch, &all, of)).collect();
        assert!(epochs.iter().all(|drawn| drawn.iter().filter(|&&clip| of(clip) == 1).count() == 50));
        let common = |drawn: &[u32]| drawn.iter().copied().filter(|&clip| of(clip) == 0).collect::<Vec<u32>>();
        assert_ne!(common(&epochs[0]), common(&epochs[1]));
        let all_of_nine: HashSet<u32> = epochs.iter().flat_map(|drawn| common(drawn)).collect();
        assert_eq!(all_of_nine.len(), 90, "450 places hold every clip of the common speaker five times");
        assert_ne!(balanced(3, 0, &all, of), balanced(4, 0, &all, of), "another seed");
        // One speaker: every clip once, as without balance.
        let mut one = balanced(3, 5, &all, |_| 7);
        one.sort_unstable();
        assert_eq!(one, all);
        assert_eq!(balanced(3, 0, &[], |_| 0), Vec::<u32>::new());
    }
}
