//! The one small message of each step (SPEC K5): where every rank is, what its rows add to the totals of the batch, and
//! whether it wants to stop. What follows from all of them is a pure function, so that every rank decides the same.

use tandem_flow::Cursor;

use super::ReduceError;

/// What a rank says before each step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vote {
    /// Steps done.
    pub step: u64,
    /// The batch that it has.
    pub cursor: Cursor,
    /// It was asked to stop.
    pub stop: bool,
    /// Validation did not get better any more.
    pub early_stop: bool,
    /// Clips of its rows.
    pub clips: u64,
    /// Seconds of audio in them.
    pub seconds: f64,
    /// What its rows add to the totals that losses are divided by.
    pub counts: [u64; 3],
    /// Micro-batches that the whole batch goes through devices in.
    pub micro_batches: u64,
    /// Clips that it found to be bad and that the others have not heard of.
    pub new_faults: u64,
}

/// What all ranks do next.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreed {
    /// One was asked to stop.
    pub stop: bool,
    /// The first rank, which validates and saves, saw no progress any more.
    pub early_stop: bool,
    /// Clips of the batch.
    pub clips: u64,
    /// Seconds of audio in them.
    pub seconds: f64,
    /// The totals of the batch.
    pub counts: [u64; 3],
    /// Micro-batches that are small enough for every rank.
    pub micro_batches: u64,
    /// Bad clips that not all ranks know of; if there are any, all say which.
    pub new_faults: u64,
}

impl Agreed {
    /// What follows from the votes of all ranks.
    ///
    /// # Errors
    ///
    /// [`ReduceError::Apart`] if they are not about the same step and batch.
    pub fn of(votes: &[Vote]) -> Result<Agreed, ReduceError> {
        let place = |rank: usize, vote: &Vote| {
            let Cursor { epoch, batch } = vote.cursor;
            format!("rank {rank} has done {} steps and has batch {batch} of epoch {epoch}", vote.step)
        };
        if let Some(other) = votes.iter().position(|vote| (vote.step, vote.cursor) != (votes[0].step, votes[0].cursor))
        {
            return Err(ReduceError::Apart(place(0, &votes[0]), place(other, &votes[other])));
        }
        let mut counts = [0; 3];
        votes.iter().for_each(|vote| counts.iter_mut().zip(vote.counts).for_each(|(sum, count)| *sum += count));
        Ok(Agreed {
            stop: votes.iter().any(|vote| vote.stop),
            early_stop: votes.first().is_some_and(|vote| vote.early_stop),
            clips: votes.iter().map(|vote| vote.clips).sum(),
            seconds: votes.iter().map(|vote| vote.seconds).sum(),
            counts,
            micro_batches: votes.iter().map(|vote| vote.micro_batches).max().unwrap_or(1),
            new_faults: votes.iter().map(|vote| vote.new_faults).sum(),
        })
    }
}

impl Vote {
    const NUMBERS: usize = 11;
    /// Bytes of a vote.
    pub(crate) const BYTES: usize = 8 * Vote::NUMBERS;

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let flags = u64::from(self.stop) | u64::from(self.early_stop) << 1;
        let Cursor { epoch, batch } = self.cursor;
        let [a, b, c] = self.counts;
        let (seconds, micro_batches) = (self.seconds.to_bits(), self.micro_batches);
        let numbers: [u64; Vote::NUMBERS] =
            [self.step, epoch, batch, flags, self.clips, seconds, a, b, c, micro_batches, self.new_faults];
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Vote {
        let mut numbers = [0; Vote::NUMBERS];
        for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        let [step, epoch, batch, flags, clips, seconds, a, b, c, micro_batches, new_faults] = numbers;
        Vote {
            step,
            cursor: Cursor { epoch, batch },
            stop: flags & 1 != 0,
            early_stop: flags & 2 != 0,
            clips,
            seconds: f64::from_bits(seconds),
            counts: [a, b, c],
            micro_batches,
            new_faults,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vote(clips: u64) -> Vote {
        Vote {
            step: 7,
            cursor: Cursor { epoch: 1, batch: 3 },
            clips,
            seconds: 1.5 * clips as f64,
            counts: [100 * clips, 10 * clips, clips],
            micro_batches: 1,
            ..Vote::default()
        }
    }

    #[test]
    fn totals_are_those_of_all_ranks_and_one_wish_to_stop_is_enough() {
        let votes = [vote(4), Vote { stop: true, micro_batches: 4, new_faults: 2, ..vote(3) }, vote(0)];
        let agreed = Agreed::of(&votes).expect("the same place");
        assert_eq!(agreed.new_faults, 2, "all hear of those that one found");
        assert_eq!((agreed.clips, agreed.counts, agreed.micro_batches), (7, [700, 70, 7], 4));
        assert!(agreed.stop && !agreed.early_stop && (agreed.seconds - 10.5).abs() < 1e-9);
    }

    #[test]
    fn only_the_first_rank_says_that_nothing_gets_better() {
        let early = |vote: Vote| Vote { early_stop: true, ..vote };
        assert!(Agreed::of(&[early(vote(1)), vote(1)]).expect("the same place").early_stop);
        assert!(!Agreed::of(&[vote(1), early(vote(1))]).expect("the same place").early_stop);
    }

    #[test]
    fn ranks_at_different_places_are_named() {
        for other in [Vote { step: 8, ..vote(1) }, Vote { cursor: Cursor { epoch: 1, batch: 4 }, ..vote(1) }] {
            let error = Agreed::of(&[vote(1), vote(1), other]).expect_err("not the same place").to_string();
            assert!(error.contains("rank 0 has done 7 steps") && error.contains("rank 2 has done"), "{error}");
        }
    }

    #[test]
    fn a_vote_arrives_as_it_was_sent() {
        let sent = Vote { stop: true, early_stop: true, seconds: 0.1, new_faults: 3, ..vote(5) };
        assert_eq!(sent.to_bytes().len(), Vote::BYTES);
        assert_eq!(Vote::from_bytes(&sent.to_bytes()), sent);
    }
}
