//! Signs of life: every rank tells rank 0 several times a second where it is, and rank 0 tells all. So a rank that is stopped or cut
//! off is noticed by its silence, and a rank that fails can say why, while others wait in the middle of a sum.

use std::time::{Duration, Instant};

use crate::reduce::{Activity, LastHeard, ReduceError};

/// Between two signs of life.
pub(super) const EVERY: Duration = Duration::from_millis(250);
/// A rank that says nothing for so long is stopped or cut off: its thread for this does nothing else.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// A message.
pub(super) const BYTES: usize = 2048;
const HEAD: usize = 4 + 8 + 1 + 1 + 1 + 2;

/// What a rank says about itself, or rank 0 about another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pulse {
    pub(super) rank: u32,
    pub(super) step: u64,
    pub(super) activity: Activity,
    /// It failed: why, and its exit code.
    pub(super) failure: Option<(String, u8)>,
}

impl Pulse {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let (text, code) = self.failure.clone().unwrap_or_default();
        let mut length = text.len().min(BYTES - HEAD);
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend(self.rank.to_le_bytes());
        bytes.extend(self.step.to_le_bytes());
        bytes.extend([self.activity.number(), u8::from(self.failure.is_some()), code]);
        bytes.extend((length as u16).to_le_bytes());
        bytes.extend(&text.as_bytes()[..length]);
        bytes.resize(BYTES, 0);
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Pulse {
        let at = |from: usize, to: usize| bytes.get(from..to).unwrap_or_default();
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
        let length = number(at(15, 17)) as usize;
        let text = String::from_utf8_lossy(at(HEAD, HEAD + length)).into_owned();
        Pulse {
            rank: number(at(0, 4)) as u32,
            step: number(at(4, 12)),
            activity: Activity::numbered(number(at(12, 13)) as u8),
            failure: (number(at(13, 14)) != 0).then(|| (text, number(at(14, 15)) as u8)),
        }
    }
}

/// A process of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) host: String,
    /// Its process id, if it can be looked at from here.
    pub(super) process: Option<u32>,
    last: Pulse,
    heard: Instant,
}

/// Who was heard of when.
#[derive(Debug)]
pub(super) struct Watch {
    peers: Vec<Peer>,
    own: usize,
    looked: Instant,
}

impl Watch {
    /// Over processes of these hosts, by rank; with the process ids of those that can be looked at.
    pub(super) fn new(own: usize, peers: Vec<(String, Option<u32>)>, now: Instant) -> Watch {
        let peer = |(rank, (host, process)): (usize, (String, Option<u32>))| {
            let last = Pulse { rank: rank as u32, step: 0, activity: Activity::Start, failure: None };
            Peer { host, process, last, heard: now }
        };
        Watch { peers: peers.into_iter().enumerate().map(peer).collect(), own, looked: now }
    }

    /// Whom this rank listens to.
    pub(super) fn listens_to(&self) -> Vec<usize> {
        if self.own == 0 { (1..self.peers.len()).collect() } else { vec![0] }
    }

    /// A message came from a rank. Rank 0 passes failures on; then it is about another one.
    pub(super) fn hear(&mut self, from: usize, pulse: Pulse, now: Instant) -> Option<ReduceError> {
        self.peers[from].heard = now;
        let about = (pulse.rank as usize).min(self.peers.len() - 1);
        let failure = pulse.failure.clone();
        self.peers[about].last = pulse;
        failure.map(|(text, code)| ReduceError::Failed(self.last_heard(about), text, code))
    }

    /// Whether somebody is missing. `is_alive` looks at a process of this host.
    pub(super) fn missing(&mut self, now: Instant, is_alive: impl Fn(u32) -> bool) -> Option<ReduceError> {
        // Who did not look for long was stopped itself, and cannot say who was silent meanwhile.
        if now - self.looked > PATIENCE / 2 {
            self.peers.iter_mut().for_each(|peer| peer.heard = now);
        }
        self.looked = now;
        let mut watched = self.listens_to().into_iter();
        let gone = watched.clone().find(|&rank| self.peers[rank].process.is_some_and(|process| !is_alive(process)));
        if let Some(rank) = gone {
            return Some(ReduceError::Gone(self.last_heard(rank)));
        }
        let silent = watched.find(|&rank| now - self.peers[rank].heard > PATIENCE)?;
        Some(ReduceError::Silent(self.last_heard(silent), (now - self.peers[silent].heard).as_secs()))
    }

    /// A rank as it was last heard of.
    pub(super) fn last_heard(&self, rank: usize) -> LastHeard {
        let Peer { host, last, .. } = &self.peers[rank];
        LastHeard { rank, host: host.clone(), activity: last.activity, step: last.step }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pulse(rank: u32, failure: Option<(String, u8)>) -> Pulse {
        Pulse { rank, step: 12, activity: Activity::Train, failure }
    }

    #[test]
    fn a_message_arrives_as_it_was_sent_however_long_its_text_is() {
        for text in ["", "out of memory", "حافظهٔ کافی نیست"] {
            for failure in [None, Some((text.to_owned(), 2))] {
                let sent = pulse(3, failure.clone());
                assert_eq!(sent.to_bytes().len(), BYTES);
                assert_eq!(Pulse::from_bytes(&sent.to_bytes()), sent);
            }
        }
        let long = pulse(1, Some(("ی".repeat(BYTES), 1)));
        let (text, _) = Pulse::from_bytes(&long.to_bytes()).failure.expect("it failed");
        assert!(text.chars().all(|c| c == 'ی') && text.len() > BYTES - HEAD - 2, "cut between characters");
    }

    #[test]
    fn a_rank_that_is_silent_or_gone_is_named_with_where_it_was() {
        let start = Instant::now();
        let peers = |process| vec![("a".to_owned(), None), ("b".to_owned(), process), ("c".to_owned(), None)];
        let mut watch = Watch::new(0, peers(Some(77)), start);
        let alive = |_: u32| true;
        let mut now = start;
        for _ in 0..60 {
            now += EVERY;
            assert_eq!(watch.missing(now, alive), None);
            assert_eq!(watch.hear(1, pulse(1, None), now), None);
            watch.hear(2, pulse(2, None), now);
        }
        while now - start < Duration::from_secs(30) {
            now += EVERY;
            watch.hear(1, pulse(1, None), now);
            if let Some(error) = watch.missing(now, alive) {
                let text = error.to_string();
                assert!(matches!(error, ReduceError::Silent(_, 10)), "{text}");
                assert!(text.contains("rank 2 on c (stage `train`, after step 12)"), "{text}");
                break;
            }
        }
        assert!(now - start < Duration::from_secs(30), "it was noticed");
        let gone = watch.missing(now, |process| process != 77).expect("noticed at once");
        assert!(matches!(&gone, ReduceError::Gone(who) if who.rank == 1 && who.host == "b"), "{gone}");
    }

    #[test]
    fn who_was_stopped_itself_blames_nobody() {
        let start = Instant::now();
        let mut watch = Watch::new(1, vec![("a".to_owned(), None), ("b".to_owned(), None)], start);
        assert_eq!(watch.listens_to(), [0]);
        let later = start + Duration::from_secs(3600);
        assert_eq!(watch.missing(later, |_| true), None);
    }

    #[test]
    fn a_failure_that_rank_0_passes_on_is_about_the_rank_that_failed() {
        let start = Instant::now();
        let hosts = ["a", "b", "c"].map(|host| (host.to_owned(), None));
        let mut watch = Watch::new(1, hosts.to_vec(), start);
        let error = watch.hear(0, pulse(2, Some(("no such file".to_owned(), 2))), start).expect("a failure");
        assert!(matches!(&error, ReduceError::Failed(who, text, 2) if who.host == "c" && text == "no such file"));
    }
}
