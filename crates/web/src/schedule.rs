//! Which sentences are synthesized next: a pure function of who waits. Whoever was served longest ago comes first (who has just
//! come counts as served just now), then who has had less; everybody gets one before anybody gets another one, and a batch is
//! filled up with what follows.

/// A request as the choice sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Which voice: a batch has one.
    pub(crate) voice: usize,
    /// Sentences to be made.
    pub(crate) pending: usize,
    /// Sentences that it may get before its client has read some.
    pub(crate) room: usize,
    /// Sentences of it that one batch may have: 1, 2, 4, …, so that there is something to hear soon.
    pub(crate) quota: usize,
    /// The batch that it was in last, or that was the last when it came.
    pub(crate) served: u64,
}

/// How many sentences of each request the next batch has, of at most `most`; `waiting` is in order of arrival.
pub(crate) fn choose(waiting: &[Waiting], most: usize) -> Vec<usize> {
    let mut taken = vec![0; waiting.len()];
    let able = |one: &Waiting| one.pending.min(one.room).min(one.quota);
    let mut order: Vec<usize> = (0..waiting.len()).filter(|&at| able(&waiting[at]) > 0).collect();
    order.sort_by_key(|&at| (waiting[at].served, waiting[at].quota, at));
    let Some(&first) = order.first() else { return taken };
    order.retain(|&at| waiting[at].voice == waiting[first].voice);
    let mut left = most.max(1);
    // One each, then the rest, the one that waits longest first.
    for &at in order.iter().take(left) {
        taken[at] = 1;
    }
    left -= order.len().min(left);
    for &at in &order {
        let more = (able(&waiting[at]) - taken[at].min(able(&waiting[at]))).min(left);
        taken[at] += more;
        left -= more;
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(pending: usize, quota: usize, served: u64) -> Waiting {
        Waiting { voice: 0, pending, room: 8, quota, served }
    }

    #[test]
    fn table() {
        let new = |pending| one(pending, 1, 0);
        let table: &[(&str, Vec<Waiting>, Vec<usize>)] = &[
            ("nobody", vec![], vec![]),
            ("the first sentence of a text is alone", vec![new(20)], vec![1]),
            ("then two", vec![one(19, 2, 1)], vec![2]),
            ("never more than there are", vec![one(3, 8, 4)], vec![3]),
            ("one of each newcomer", vec![new(5), new(1), new(9)], vec![1, 1, 1]),
            ("a newcomer shares the batch of a long text", vec![one(19, 8, 1), new(5)], vec![3, 1]),
            (
                "more than fit: those served longest ago",
                vec![one(9, 8, 3), one(9, 8, 1), one(9, 8, 2), new(1), new(1)],
                vec![0, 1, 1, 1, 1],
            ),
            (
                "who has just come goes before who has just been served, and after who waits longer",
                vec![one(9, 8, 3), one(9, 8, 2), one(1, 1, 3), one(1, 1, 3), one(1, 1, 3)],
                vec![0, 1, 1, 1, 1],
            ),
            ("who does not read gets nothing", vec![Waiting { room: 0, ..one(9, 8, 1) }, one(9, 2, 2)], vec![0, 2]),
            (
                "one voice a batch, the one that waits longest",
                vec![one(9, 4, 2), Waiting { voice: 1, ..one(9, 4, 1) }],
                vec![0, 4],
            ),
        ];
        for (what, waiting, wanted) in table {
            assert_eq!(&choose(waiting, 4), wanted, "{what}");
        }
    }

    #[test]
    fn newcomers_do_not_starve_a_long_text() {
        // One newcomer for each place of every batch.
        let mut waiting = vec![one(10, 4, 0)];
        let mut turns = 0;
        for batch in 1..=20 {
            let taken = choose(&waiting, 4);
            for (one, taken) in waiting.iter_mut().zip(&taken).filter(|(_, taken)| **taken > 0) {
                one.pending -= taken;
                one.served = batch;
            }
            turns += usize::from(taken[0] > 0);
            waiting.retain(|one| one.quota > 1 || one.pending > 0);
            waiting.extend([one(1, 1, batch); 4]);
        }
        assert!(turns >= 6, "{turns} turns in 20 batches");
    }

    #[test]
    fn everybody_is_served_however_many_there_are() {
        let mut waiting: Vec<Waiting> = (0..13).map(|at| Waiting { voice: at % 3, ..one(7, 1, 0) }).collect();
        let mut batches = 0;
        while waiting.iter().any(|one| one.pending > 0) {
            batches += 1;
            let taken = choose(&waiting, 4);
            assert!((1..=4).contains(&taken.iter().sum::<usize>()), "{taken:?}");
            for (one, taken) in waiting.iter_mut().zip(taken).filter(|(_, taken)| *taken > 0) {
                one.pending -= taken;
                (one.served, one.quota) = (batches, 2 * one.quota);
            }
            let behind = waiting.iter().filter(|one| one.pending > 0).map(|one| one.served).min().unwrap_or(batches);
            assert!(batches - behind <= 6, "somebody waits since batch {behind}, it is {batches}");
        }
        assert!(batches < 13 * 7, "{batches}");
    }
}
