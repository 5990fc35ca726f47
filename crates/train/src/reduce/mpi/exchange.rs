//! A sum over all ranks, in place, made of messages of our own: every rank gets one part of the vector of all others, adds it up, and sends the sum
//! to all others. Each sends and receives `2 (W - 1) / W` of the vector, whatever W is, and waits twice.
//!
//! A part is added up in the order of the ranks, wherever it lies: the sum of W ranks is that of W micro-batches in one process, bit for bit. In a
//! ring, which sends as much, each part would begin with another rank, and ranks would wait for each other `2 (W - 1)` times: with more ranks than cores
//! that took twice as long (`benches/results/ranks.md`).
//!
//! `MPI_Iallreduce` would do it in one call; Open MPI 4.1 takes 2.3 times as long for it as for `MPI_Allreduce`, which blocks, and a thread that
//! blocks sends no signs of life.

use std::ops::Range;

use super::library::{Library, Request};
use crate::reduce::ReduceError;

/// Values that are added up before the next ones are: all ranks' fit into a core's nearest memory.
const BLOCK: usize = 1024;

/// A vector that lies in segments, and how messages are cut.
pub(super) struct Values {
    pub(super) segments: Vec<Vec<f32>>,
    /// Ends of the pieces that are never sent in one message with others. All ranks have the same; segments end there or span several.
    pub(super) cuts: Vec<usize>,
}

impl Values {
    fn len(&self) -> usize {
        self.segments.iter().map(Vec::len).sum()
    }

    /// Values that lie in one segment.
    fn slice(&mut self, range: Range<usize>) -> &mut [f32] {
        let mut first = 0;
        for segment in &mut self.segments {
            if range.start < first + segment.len() {
                return &mut segment[range.start - first..range.end - first];
            }
            first += segment.len();
        }
        &mut []
    }
}

/// A sum that is under way.
pub(super) struct Exchange {
    values: Values,
    rank: usize,
    world: usize,
    tag: u16,
    /// Sums are known to those who added them up, and go to all others.
    is_added: bool,
    /// This rank's part of all others, by rank.
    received: Vec<f32>,
    pending: Vec<Request>,
}

impl Exchange {
    /// Begins one. All ranks give the same tag to the same vector. `received` is a vector that an earlier one left, or a new one.
    pub(super) fn start(
        values: Values,
        tag: u16,
        mut received: Vec<f32>,
        library: &Library,
    ) -> (Exchange, Result<(), ReduceError>) {
        let (rank, world) = (library.rank, library.world);
        // Longer than needed is as well.
        let needed = (world - 1) * part(values.len(), rank, world).len();
        received.resize(needed.max(received.len()), 0.0);
        let mut exchange = Exchange { values, rank, world, tag, is_added: false, received, pending: Vec::new() };
        let begun = exchange.send_parts(library);
        (exchange, begun)
    }

    /// Does what can be done now; whether that was all.
    pub(super) fn go_on(&mut self, library: &Library) -> Result<bool, ReduceError> {
        loop {
            // To ask for one drives all of them.
            while let Some(last) = self.pending.last_mut() {
                if !library.is_done(last)? {
                    return Ok(false);
                }
                self.pending.pop();
            }
            if self.is_added {
                return Ok(true);
            }
            self.add();
            self.is_added = true;
            self.send_sums(library)?;
        }
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, world) = (self.rank, self.world);
        // Not all to the same one first.
        (1..world).map(move |step| (rank + step) % world)
    }

    fn part(&self, rank: usize) -> Range<usize> {
        part(self.values.len(), rank, self.world)
    }

    fn send_parts(&mut self, library: &Library) -> Result<(), ReduceError> {
        let own = self.part(self.rank);
        for from in self.others() {
            let first = place(from, self.rank) * own.len();
            for piece in pieces(own.clone(), &self.values.cuts) {
                let room = &mut self.received[first + piece.start - own.start..first + piece.end - own.start];
                // SAFETY: the room is left alone until all is there; if that never comes, the exchange is leaked.
                self.pending.push(unsafe { library.start_receive_values(room, from, self.tag) }?);
            }
        }
        for to in self.others() {
            for piece in pieces(self.part(to), &self.values.cuts) {
                // SAFETY: as above; nothing is received there before it is sent.
                self.pending.push(unsafe { library.start_send_values(self.values.slice(piece), to, self.tag) }?);
            }
        }
        Ok(())
    }

    fn send_sums(&mut self, library: &Library) -> Result<(), ReduceError> {
        for from in self.others() {
            for piece in pieces(self.part(from), &self.values.cuts) {
                // SAFETY: as above; what was to be sent from there has been.
                self.pending.push(unsafe { library.start_receive_values(self.values.slice(piece), from, self.tag) }?);
            }
        }
        for to in self.others() {
            for piece in pieces(self.part(self.rank), &self.values.cuts) {
                // SAFETY: as above; nothing is received there.
                self.pending.push(unsafe { library.start_send_values(self.values.slice(piece), to, self.tag) }?);
            }
        }
        Ok(())
    }

    /// Adds this rank's part of all ranks.
    fn add(&mut self) {
        let own = self.part(self.rank);
        for piece in pieces(own.clone(), &self.values.cuts) {
            let in_part = piece.start - own.start..piece.end - own.start;
            let of = |rank: usize| {
                let first = place(rank, self.rank) * own.len();
                &self.received[first + in_part.start..first + in_part.end]
            };
            add_by_rank(self.values.slice(piece), self.rank, self.world, of);
        }
    }

    /// The sums, when it is done, and a vector for another one.
    pub(super) fn finish(self) -> (Vec<Vec<f32>>, Vec<f32>) {
        (self.values.segments, self.received)
    }
}

/// Where a rank is among those who are not `own`.
fn place(rank: usize, own: usize) -> usize {
    if rank < own { rank } else { rank - 1 }
}

/// The part of a vector that a rank adds up.
fn part(length: usize, rank: usize, world: usize) -> Range<usize> {
    let each = length.div_ceil(world);
    (rank * each).min(length)..((rank + 1) * each).min(length)
}

/// Adds the values of all other ranks to those of `own`, in the order of the ranks.
fn add_by_rank<'a>(values: &mut [f32], own: usize, world: usize, of: impl Fn(usize) -> &'a [f32]) {
    let add = |sums: &mut [f32], values: &[f32]| sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    let mut before = [0.0; BLOCK];
    for (number, values) in values.chunks_mut(BLOCK).enumerate() {
        let length = values.len();
        let of = |rank| &of(rank)[number * BLOCK..][..length];
        if own > 0 {
            let before = &mut before[..length];
            before.copy_from_slice(of(0));
            (1..own).for_each(|rank| add(before, of(rank)));
            add(values, before);
        }
        (own + 1..world).for_each(|rank| add(values, of(rank)));
    }
}

/// A range cut where messages are cut; nothing that is empty.
fn pieces(range: Range<usize>, cuts: &[usize]) -> Vec<Range<usize>> {
    let inside = cuts.iter().copied().filter(|cut| range.start < *cut && *cut < range.end);
    let ends: Vec<usize> = inside.chain([range.end]).collect();
    let starts = [range.start].into_iter().chain(ends.iter().copied());
    starts.zip(ends.iter().copied()).map(|(start, end)| start..end).filter(|piece| !piece.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_of_a_vector_each_once() {
        for world in 2..=7 {
            for length in [0, 1, 2, 3, 10, 64, 101] {
                let all: Vec<usize> = (0..world).flat_map(|rank| part(length, rank, world)).collect();
                assert_eq!(all, (0..length).collect::<Vec<usize>>(), "{length} values, {world} ranks");
            }
        }
    }

    #[test]
    fn sums_are_those_of_the_ranks_one_after_the_other_to_the_bit() {
        let length = 2 * BLOCK + 17;
        for world in 2..=7usize {
            let ranks: Vec<Vec<f32>> = (0..world)
                .map(|rank| {
                    (0..length).map(|at| ((7 * at + 13 * rank) % 101) as f32 / 7.0f32.powi(rank as i32)).collect()
                })
                .collect();
            let mut expected = ranks[0].clone();
            for rank in &ranks[1..] {
                expected.iter_mut().zip(rank).for_each(|(sum, value)| *sum += value);
            }
            for own in 0..world {
                let mut sums = ranks[own].clone();
                add_by_rank(&mut sums, own, world, |rank| &ranks[rank]);
                assert_eq!(sums, expected, "by rank {own} of {world}");
            }
        }
    }

    #[test]
    fn messages_are_cut_at_cuts_and_lie_in_one_segment() {
        assert_eq!(pieces(2..9, &[2, 4, 9, 12]), [2..4, 4..9]);
        assert_eq!(pieces(4..4, &[4]), Vec::<Range<usize>>::new());
        assert_eq!(pieces(0..3, &[]).first(), Some(&(0..3)));
        let mut values = Values { segments: vec![vec![0.0, 1.0], vec![2.0, 3.0, 4.0], vec![5.0]], cuts: vec![2, 5, 6] };
        assert_eq!(values.len(), 6);
        for (range, expected) in [(0..2, &[0.0, 1.0][..]), (3..5, &[3.0, 4.0]), (5..6, &[5.0])] {
            assert_eq!(values.slice(range), expected);
        }
    }
}
