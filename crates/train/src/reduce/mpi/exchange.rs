//! A sum over all ranks, in place, made of messages of our own: every rank gets one part of the vector of all others, adds it up, and sends the sum
//! to all others. Each sends and receives `2 (W - 1) / W` of the vector, whatever W is, and waits twice.
//!
//! A part is added up in the order of the ranks, wherever it lies: the sum of W ranks is that of W micro-batches in one process, bit for bit. In a
//! ring, which sends as much, each part would begin with another rank, and ranks would wait for each other `2 (W - 1)` times: with more ranks than cores
//! that took twice as long (`benches/results/ranks.md`).
//!
//! `MPI_Iallreduce` would do it in one call; Open MPI 4.1 takes 2.3 times as long for it as for `MPI_Allreduce`, which blocks, and a thread that
//! blocks sends no signs of life.

use std::collections::VecDeque;
use std::ops::Range;

use super::library::{Library, Request};
use crate::reduce::ReduceError;

/// Values that are added up before the next ones are: all ranks' fit into a core's nearest memory.
const BLOCK: usize = 1024;

/// Values of the largest message: a piece is added up while it is still in a core's memory, and sums leave while the next one comes.
const PIECE: usize = 1 << 17;
/// Pieces that are received at a time: one comes while another one is added up.
const WINDOW: usize = 2;

/// Messages begin at multiples of so many values, where they can: copies between two processes whose addresses differ by a few bytes only, but for whole pages, take
/// four times as long on some processors.
const ALIGNED: usize = 16;

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
    /// Pieces of each rank's part, by rank.
    pieces: Vec<Vec<Range<usize>>>,
    /// Pieces of this rank's part that are on their way to it, in order, from the one that is added up next.
    arriving: VecDeque<Arriving>,
    /// Pieces of this rank's part that are added up.
    added: usize,
    /// Pieces of others' parts that are on their way to them, by rank, in order. Sums come back to where they lie.
    leaving: Vec<VecDeque<Request>>,
    /// Sums, there and back.
    sums: Vec<Request>,
}

/// A piece of all other ranks.
struct Arriving {
    requests: Vec<Request>,
    /// By rank, [`room_of`] apart.
    values: Vec<f32>,
}

impl Exchange {
    /// Begins one. All ranks give the same tag to the same vector.
    pub(super) fn start(values: Values, tag: u16, library: &Library) -> (Exchange, Result<(), ReduceError>) {
        let (rank, world) = (library.rank, library.world);
        let all = (0..world).map(|rank| pieces(part(values.len(), rank, world), &values.cuts)).collect();
        let leaving = (0..world).map(|_| VecDeque::new()).collect();
        let (arriving, sums) = (VecDeque::new(), Vec::new());
        let mut exchange = Exchange { values, rank, world, tag, pieces: all, arriving, added: 0, leaving, sums };
        let begun = exchange.send_parts(library);
        (exchange, begun)
    }

    /// Does what can be done now; whether that was all. `rooms` are vectors to receive into that others left.
    pub(super) fn go_on(&mut self, library: &Library, rooms: &mut Vec<Vec<f32>>) -> Result<bool, ReduceError> {
        loop {
            self.receive_parts(library, rooms)?;
            let Some(first) = self.arriving.front_mut() else { break };
            if !are_done(&mut first.requests, library)? {
                break;
            }
            let values = std::mem::take(&mut first.values);
            self.arriving.pop_front();
            self.add(&values);
            rooms.push(values);
            self.send_sum(library)?;
            self.added += 1;
        }
        for from in self.others() {
            self.receive_sums(from, library)?;
        }
        let is_sent = self.leaving.iter().all(VecDeque::is_empty);
        Ok(are_done(&mut self.sums, library)? && is_sent && self.added == self.pieces[self.rank].len())
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, world) = (self.rank, self.world);
        // Not all to the same one first.
        (1..world).map(move |step| (rank + step) % world)
    }

    fn send_parts(&mut self, library: &Library) -> Result<(), ReduceError> {
        for to in self.others() {
            for piece in &self.pieces[to] {
                let values = self.values.slice(piece.clone());
                // SAFETY: nothing is received there before it is sent; if that never comes, the exchange is leaked.
                self.leaving[to].push_back(unsafe { library.start_send_values(values, to, part_tag(self.tag)) }?);
            }
        }
        Ok(())
    }

    /// The next pieces of this rank's part, as many as there may be at a time.
    fn receive_parts(&mut self, library: &Library, rooms: &mut Vec<Vec<f32>>) -> Result<(), ReduceError> {
        while self.arriving.len() < WINDOW {
            let Some(piece) = self.pieces[self.rank].get(self.added + self.arriving.len()) else { break };
            let (length, apart) = (piece.len(), room_of(piece));
            let mut values = rooms.pop().unwrap_or_default();
            // Longer than needed is as well.
            values.resize(((self.world - 1) * apart).max(values.len()), 0.0);
            let mut requests = Vec::with_capacity(self.world - 1);
            let mut begun = Ok(());
            for from in self.others() {
                let room = &mut values[place(from, self.rank) * apart..][..length];
                // SAFETY: the room is left alone until all is there; if that never comes, the exchange is leaked.
                match unsafe { library.start_receive_values(room, from, part_tag(self.tag)) } {
                    Ok(request) => requests.push(request),
                    Err(error) => begun = Err(error),
                }
            }
            self.arriving.push_back(Arriving { requests, values });
            begun?;
        }
        Ok(())
    }

    /// Sums of another rank's part, where that has been sent.
    fn receive_sums(&mut self, from: usize, library: &Library) -> Result<(), ReduceError> {
        while let Some(first) = self.leaving[from].front_mut() {
            if !library.is_done(first)? {
                break;
            }
            let piece = self.pieces[from].len() - self.leaving[from].len();
            self.leaving[from].pop_front();
            let values = self.values.slice(self.pieces[from][piece].clone());
            // SAFETY: as above.
            self.sums.push(unsafe { library.start_receive_values(values, from, sum_tag(self.tag)) }?);
        }
        Ok(())
    }

    fn own_piece(&self) -> Range<usize> {
        self.pieces[self.rank][self.added].clone()
    }

    /// Adds the next piece of this rank's part of all ranks.
    fn add(&mut self, others: &[f32]) {
        let piece = self.own_piece();
        let of = |rank: usize| &others[place(rank, self.rank) * room_of(&piece)..][..piece.len()];
        add_by_rank(self.values.slice(piece.clone()), self.rank, self.world, of);
    }

    fn send_sum(&mut self, library: &Library) -> Result<(), ReduceError> {
        for to in self.others() {
            let values = self.values.slice(self.own_piece());
            // SAFETY: as above; nothing is received there.
            self.sums.push(unsafe { library.start_send_values(values, to, sum_tag(self.tag)) }?);
        }
        Ok(())
    }

    /// The sums, when it is done.
    pub(super) fn finish(self) -> Vec<Vec<f32>> {
        self.values.segments
    }
}

/// Whether all of these are done; those that are not are left. To ask for one drives all of them.
fn are_done(requests: &mut Vec<Request>, library: &Library) -> Result<bool, ReduceError> {
    while let Some(last) = requests.last_mut() {
        if !library.is_done(last)? {
            return Ok(false);
        }
        requests.pop();
    }
    Ok(true)
}

/// Parts and sums are on their way at the same time.
fn part_tag(tag: u16) -> u16 {
    2 * tag
}

fn sum_tag(tag: u16) -> u16 {
    2 * tag + 1
}

/// Where a rank is among those who are not `own`.
fn place(rank: usize, own: usize) -> usize {
    if rank < own { rank } else { rank - 1 }
}

/// Room for a piece of one rank.
fn room_of(piece: &Range<usize>) -> usize {
    piece.len().next_multiple_of(ALIGNED)
}

/// The part of a vector that a rank adds up.
fn part(length: usize, rank: usize, world: usize) -> Range<usize> {
    let each = length.div_ceil(world).next_multiple_of(ALIGNED);
    (rank * each).min(length)..((rank + 1) * each).min(length)
}

/// Adds the values of all other ranks to those of `own`, in the order of the ranks.
fn add_by_rank<'a>(values: &mut [f32], own: usize, world: usize, of: impl Fn(usize) -> &'a [f32]) {
    let add = |sums: &mut [f32], values: &[f32]| sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    let mut before = [0.0; BLOCK];
    for (number, values) in values.chunks_mut(BLOCK).enumerate() {
        let length = values.len();
        let of = |rank| &of(rank)[number * BLOCK..][..length];
        match own {
            0 => {}
            // The sum of two is the same in either order.
            1 => add(values, of(0)),
            _ => {
                let before = &mut before[..length];
                before.copy_from_slice(of(0));
                (1..own).for_each(|rank| add(before, of(rank)));
                add(values, before);
            }
        }
        (own + 1..world).for_each(|rank| add(values, of(rank)));
    }
}

/// A range cut where messages are cut, and where they would be too large; nothing that is empty.
fn pieces(range: Range<usize>, cuts: &[usize]) -> Vec<Range<usize>> {
    let inside = cuts.iter().copied().filter(|cut| range.start < *cut && *cut < range.end);
    let mut pieces = Vec::new();
    let mut start = range.start;
    for end in inside.chain([range.end]) {
        while start < end {
            let next = end.min(start + PIECE);
            pieces.push(start..next);
            start = next;
        }
    }
    pieces
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
        assert_eq!(pieces(1..PIECE + 9, &[4]), [1..4, 4..PIECE + 4, PIECE + 4..PIECE + 9], "none is too large");
        let mut values = Values { segments: vec![vec![0.0, 1.0], vec![2.0, 3.0, 4.0], vec![5.0]], cuts: vec![2, 5, 6] };
        assert_eq!(values.len(), 6);
        for (range, expected) in [(0..2, &[0.0, 1.0][..]), (3..5, &[3.0, 4.0]), (5..6, &[5.0])] {
            assert_eq!(values.slice(range), expected);
        }
    }
}
