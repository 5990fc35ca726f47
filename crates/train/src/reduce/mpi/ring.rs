//! A sum over all ranks, in place, made of messages of our own: every rank adds up one part of the vector while parts go round, and then all
//! parts go round once more. Each rank sends and receives `2 (W - 1) / W` of it, whatever W is.
//!
//! `MPI_Iallreduce` would do it in one call; Open MPI 4.1 takes 2.3 times as long for it as for `MPI_Allreduce`, which blocks, and a thread that
//! blocks sends no signs of life (`benches/results/ranks.md`).

use std::ops::Range;

use super::library::{Library, Request};
use crate::reduce::ReduceError;

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
pub(super) struct Ring {
    values: Values,
    rank: usize,
    world: usize,
    tag: u16,
    round: usize,
    /// What came of the part that is being added up.
    received: Vec<f32>,
    pending: Vec<Request>,
}

impl Ring {
    /// Begins one. Calls on all ranks have the same order and the same tags. `received` is a vector that an earlier one left, or a new one.
    pub(super) fn start(
        values: Values,
        tag: u16,
        mut received: Vec<f32>,
        library: &Library,
    ) -> (Ring, Result<(), ReduceError>) {
        let (rank, world) = (library.rank, library.world);
        received.resize(values.len().div_ceil(world), 0.0);
        let mut ring = Ring { values, rank, world, tag, round: 0, received, pending: Vec::new() };
        let begun = ring.begin_round(library);
        (ring, begun)
    }

    /// Does what can be done now; whether that was all.
    pub(super) fn go_on(&mut self, library: &Library) -> Result<bool, ReduceError> {
        loop {
            for at in (0..self.pending.len()).rev() {
                if library.is_done(&mut self.pending[at])? {
                    self.pending.swap_remove(at);
                }
            }
            if !self.pending.is_empty() {
                return Ok(false);
            }
            self.add_received();
            self.round += 1;
            if self.round == rounds(self.world) {
                return Ok(true);
            }
            self.begin_round(library)?;
        }
    }

    fn begin_round(&mut self, library: &Library) -> Result<(), ReduceError> {
        let Parts { sent, received } = parts(self.values.len(), self.rank, self.world, self.round);
        let (next, previous) = ((self.rank + 1) % self.world, (self.rank + self.world - 1) % self.world);
        let adds = self.round < self.world - 1;
        for piece in pieces(received.clone(), &self.values.cuts) {
            let room = match adds {
                true => &mut self.received[piece.start - received.start..piece.end - received.start],
                false => self.values.slice(piece),
            };
            // SAFETY: the room is left alone until the round is over; if that never comes, the ring is leaked.
            self.pending.push(unsafe { library.start_receive_values(room, previous, self.tag) }?);
        }
        for piece in pieces(sent, &self.values.cuts) {
            // SAFETY: as above; what is sent and what is received are different parts.
            self.pending.push(unsafe { library.start_send_values(self.values.slice(piece), next, self.tag) }?);
        }
        Ok(())
    }

    /// Adds what came in this round, if it is one in which parts are added up.
    fn add_received(&mut self) {
        if self.round >= self.world - 1 {
            return;
        }
        let Parts { received, .. } = parts(self.values.len(), self.rank, self.world, self.round);
        for piece in pieces(received.clone(), &self.values.cuts) {
            let came = &self.received[piece.start - received.start..piece.end - received.start];
            self.values.slice(piece).iter_mut().zip(came).for_each(|(value, came)| *value += came);
        }
    }

    /// The sums, when it is done, and a vector for another one.
    pub(super) fn finish(self) -> (Vec<Vec<f32>>, Vec<f32>) {
        (self.values.segments, self.received)
    }
}

/// Rounds until all ranks have all sums.
fn rounds(world: usize) -> usize {
    2 * (world - 1)
}

/// What a rank sends and what it receives in a round.
#[derive(Debug, PartialEq, Eq)]
struct Parts {
    sent: Range<usize>,
    received: Range<usize>,
}

/// In the first `world - 1` rounds a rank passes on what it has added up, in the others what is known to be whole.
fn parts(length: usize, rank: usize, world: usize, round: usize) -> Parts {
    let each = length.div_ceil(world);
    let part = |number: usize| {
        let number = number % world;
        (number * each).min(length)..((number + 1) * each).min(length)
    };
    // The part that this rank has added up last, or was the last to hear of, one further back in each round.
    let sent = rank + 2 * world - round;
    Parts { sent: part(sent), received: part(sent - 1) }
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

    /// All ranks of a ring in one place: messages are copies.
    fn ring_of(world: usize, length: usize, cuts: &[usize]) -> Vec<Vec<f32>> {
        let mut ranks: Vec<Vec<f32>> =
            (0..world).map(|rank| (0..length).map(|at| (1000 * rank + at) as f32).collect()).collect();
        for round in 0..rounds(world) {
            let before = ranks.clone();
            for (rank, values) in ranks.iter_mut().enumerate() {
                let previous = (rank + world - 1) % world;
                let received = parts(length, rank, world, round).received;
                assert_eq!(received, parts(length, previous, world, round).sent, "what is sent is what is awaited");
                let all = pieces(received.clone(), cuts);
                assert_eq!(all.iter().map(Range::len).sum::<usize>(), received.len());
                for at in all.into_iter().flatten() {
                    let came = before[previous][at];
                    values[at] = if round < world - 1 { values[at] + came } else { came };
                }
            }
        }
        ranks
    }

    #[test]
    fn all_ranks_have_all_sums_whatever_their_number_and_the_length() {
        for world in 2..=7 {
            for length in [1, 2, 3, 10, 64, 101] {
                let expected: Vec<f32> =
                    (0..length).map(|at| (0..world).map(|rank| (1000 * rank + at) as f32).sum()).collect();
                for (rank, sums) in ring_of(world, length, &[1, 5, 64]).into_iter().enumerate() {
                    assert_eq!(sums, expected, "rank {rank} of {world}, {length} values");
                }
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
