//! Talks to other ranks: starts sums, drives them, sends signs of life, and ends everything when a rank is missing. All calls of the library are
//! made here, by two threads that take turns: one that does nothing else, while the trainer computes, and the trainer while it waits. To wake the other one up and
//! be woken up by it would take a good part of the time of a sum.

use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::exchange::{Exchange, Values};
use super::here::Here;
use super::library::{Library, Request};
use super::pulse::{BYTES, EVERY, Pulse, Watch};
use crate::reduce::ReduceError;

/// Between two looks for somebody who is missing.
const LOOK: Duration = Duration::from_millis(100);
/// While nothing is under way, messages are looked for so often.
const IDLE: Duration = Duration::from_millis(50);
/// While something is under way that the trainer waits for: first again and again, as long as it takes when all ranks are there, then with pauses, so
/// that others have the cores while this one waits for a rank that is late. With pauses as well while the trainer computes.
const EAGER: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_micros(50);
/// For the last words of rank 0 to arrive before it ends the job.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// The same when rank 0 itself is stuck: another rank has to say so.
const LAST_WORDS_OF_OTHERS: Duration = Duration::from_secs(2);
/// Sums whose messages cannot be confused: far more than are ever under way, and fewer than there are tags (two for each).
const TAGS: u16 = 8_192;
/// Exit code of a rank whose training thread does not move: that of a failure.
const STUCK_CODE: u8 = 1;
/// How long a rank that failed waits for rank 0, which saves what was learned and then ends the job.
const LAST_WAIT: Duration = Duration::from_secs(120);

/// What the trainer asks for.
pub(super) enum Command {
    /// Equally many bytes of every rank.
    Gather(Vec<u8>, Reply<Vec<u8>>),
    /// Sums over all ranks.
    Sum(Vec<Sum>),
    /// This rank failed: tell all, and end the job.
    Fail(String, u8),
    /// The run is over.
    Leave(Reply<()>),
}

/// A vector that is to be added up.
pub(super) struct Sum {
    pub(super) values: Values,
    /// Those of the same vector have the same on all ranks.
    pub(super) tag: u16,
    pub(super) reply: Reply<Vec<Vec<f32>>>,
}

type Reply<T> = Sender<Result<T, ReduceError>>;

/// What is under way.
enum Work {
    Gather { request: Request, own: Vec<u8>, all: Vec<u8>, reply: Reply<Vec<u8>> },
    Sum { exchange: Exchange, reply: Reply<Vec<Vec<f32>>> },
    Leave { request: Request, own: Vec<u8>, all: Vec<u8>, reply: Reply<()> },
}

impl Work {
    /// Drives it; whether it is done.
    fn is_done(&mut self, library: &Library, rooms: &mut Vec<Vec<f32>>) -> Result<bool, ReduceError> {
        match self {
            Work::Gather { request, .. } | Work::Leave { request, .. } => library.is_done(request),
            Work::Sum { exchange, .. } => exchange.go_on(library, rooms),
        }
    }

    /// Hands the result over. The trainer may have given up; then nobody hears it.
    fn finish(self) {
        match self {
            Work::Gather { all, reply, .. } => drop(reply.send(Ok(all))),
            Work::Leave { reply, .. } => drop(reply.send(Ok(()))),
            Work::Sum { exchange, reply } => drop(reply.send(Ok(exchange.finish()))),
        }
    }

    /// The library may still look at what it was given: that is leaked.
    fn fail(self, error: ReduceError) {
        match self {
            Work::Gather { own, all, reply, .. } => {
                std::mem::forget((own, all));
                drop(reply.send(Err(error)));
            }
            Work::Sum { exchange, reply } => {
                std::mem::forget(exchange);
                drop(reply.send(Err(error)));
            }
            Work::Leave { own, all, reply, .. } => {
                std::mem::forget((own, all));
                drop(reply.send(Err(error)));
            }
        }
    }
}

/// What a thread does after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing is under way.
    Idle,
    /// Again, at once.
    Spin,
    /// Again, when others have had the core.
    Yield,
    /// Again, soon.
    Pause,
    /// This rank has left.
    Over,
}

impl Next {
    /// Until the next turn of the trainer, which waits for something.
    pub(super) fn rest(self) {
        match self {
            Next::Spin => std::hint::spin_loop(),
            Next::Yield => std::thread::yield_now(),
            Next::Idle | Next::Pause | Next::Over => std::thread::sleep(PAUSE),
        }
    }
}

/// The thread that does nothing else. Who gives it something to do unparks it.
pub(super) fn run(worker: &Mutex<Worker>, here: &Here) {
    loop {
        let next = match worker.try_lock() {
            Ok(mut worker) => worker.turn(),
            Err(TryLockError::Poisoned(worker)) => worker.into_inner().turn(),
            Err(TryLockError::WouldBlock) => Next::Idle,
        };
        match next {
            Next::Over => return,
            Next::Idle => std::thread::park_timeout(IDLE),
            // It is the trainer's turn, as long as that takes.
            _ if here.is_waiting() => std::thread::park_timeout(IDLE),
            _ => std::thread::sleep(PAUSE),
        }
    }
}

/// A turn of the trainer, which waits for something.
pub(super) fn turn(worker: &Mutex<Worker>) -> Next {
    worker.lock().unwrap_or_else(PoisonError::into_inner).turn()
}

pub(super) struct Worker {
    library: Library,
    commands: Receiver<Command>,
    here: Arc<Here>,
    watch: Watch,
    /// This host has more ranks than cores: who spins keeps another one from its work.
    is_crowded: bool,
    /// In the order in which they were begun.
    under_way: Vec<Work>,
    /// What parts of sums were received into, for the next ones: pages that are new in every step would take longer than the sum.
    rooms: Vec<Vec<f32>>,
    /// When something was begun or done last.
    went_on: Instant,
    has_left: bool,
    /// Messages that are being sent, with their receivers.
    sending: Vec<(usize, Request, Vec<u8>)>,
    receiving: Vec<(usize, Request, Vec<u8>)>,
    said: Instant,
    looked: Instant,
    /// Why ranks cannot continue together.
    ended: Option<ReduceError>,
    /// When the job is ended, and with what code.
    ending: Option<(Instant, u8)>,
}

impl Worker {
    pub(super) fn new(
        library: Library,
        commands: Receiver<Command>,
        here: Arc<Here>,
        peers: Vec<(String, Option<u32>)>,
    ) -> Result<Worker, ReduceError> {
        let now = Instant::now();
        let here_are = peers.iter().filter(|(host, _)| *host == peers[library.rank].0).count();
        let is_crowded = here_are > std::thread::available_parallelism().map_or(1, usize::from);
        let watch = Watch::new(library.rank, peers, now);
        let mut worker = Worker {
            library,
            commands,
            here,
            watch,
            is_crowded,
            under_way: Vec::new(),
            rooms: Vec::new(),
            went_on: now,
            has_left: false,
            sending: Vec::new(),
            receiving: Vec::new(),
            said: now,
            looked: now,
            ended: None,
            ending: None,
        };
        for rank in worker.watch.listens_to() {
            worker.receive(rank)?;
        }
        Ok(worker)
    }

    /// Does what can be done now.
    fn turn(&mut self) -> Next {
        if self.has_left {
            return Next::Over;
        }
        let now = Instant::now();
        loop {
            match self.commands.try_recv() {
                Ok(command) => {
                    self.went_on = now;
                    self.take(command);
                }
                // The run ended without a word, as by a panic.
                Err(TryRecvError::Disconnected) if self.under_way.is_empty() => self.library.abort(1),
                Err(_) => break,
            }
        }
        let before = self.under_way.len();
        self.go_on(now);
        if self.under_way.len() < before {
            self.went_on = now;
        }
        if let Some(Work::Leave { .. }) = self.under_way.first()
            && self.ended.is_none()
            && self.all_left()
        {
            self.has_left = true;
            return Next::Over;
        }
        if let Some((at, code)) = self.ending
            && now >= at
        {
            self.library.abort(code);
        }
        match self.under_way.is_empty() {
            true => Next::Idle,
            false if now.saturating_duration_since(self.went_on) >= EAGER => Next::Pause,
            false if self.is_crowded => Next::Yield,
            false => Next::Spin,
        }
    }

    fn take(&mut self, command: Command) {
        let (work, begun) = match command {
            Command::Fail(text, code) => return self.fail(text, code),
            // Nothing is begun any more.
            Command::Gather(_, reply) if self.ended.is_some() => return self.refuse(reply),
            Command::Sum(sums) => return sums.into_iter().for_each(|sum| self.take_sum(sum)),
            Command::Leave(reply) if self.ended.is_some() => return self.refuse(reply),
            Command::Gather(own, reply) => {
                let (all, begun) = self.start_gather(&own);
                let (request, begun) = (*begun.as_ref().unwrap_or(&0), begun.map(|_| ()));
                (Work::Gather { request, own, all, reply }, begun)
            }
            Command::Leave(reply) => {
                let own = vec![0];
                let (all, begun) = self.start_gather(&own);
                let (request, begun) = (*begun.as_ref().unwrap_or(&0), begun.map(|_| ()));
                (Work::Leave { request, own, all, reply }, begun)
            }
        };
        self.begin(work, begun);
    }

    fn take_sum(&mut self, Sum { values, tag, reply }: Sum) {
        if self.ended.is_some() {
            return self.refuse(reply);
        }
        let (exchange, begun) = Exchange::start(values, tag % TAGS, &self.library);
        self.begin(Work::Sum { exchange, reply }, begun);
    }

    fn begin(&mut self, work: Work, begun: Result<(), ReduceError>) {
        match begun {
            Ok(()) => self.under_way.push(work),
            Err(error) => {
                work.fail(error.clone());
                self.end(error);
            }
        }
    }

    fn refuse<T>(&self, reply: Reply<T>) {
        let error = self.ended.clone().unwrap_or_else(|| ReduceError::Library("it has ended".to_owned()));
        let _ = reply.send(Err(error));
    }

    fn start_gather(&self, own: &[u8]) -> (Vec<u8>, Result<Request, ReduceError>) {
        let mut all = vec![0; own.len() * self.library.world];
        // SAFETY: both are kept where they are until that is done; on failure they are leaked.
        let request = unsafe { self.library.start_gather(own, &mut all) };
        (all, request)
    }

    /// This rank failed.
    fn fail(&mut self, text: String, code: u8) {
        let now = Instant::now();
        // What others failed of they know.
        if self.ended.is_none() {
            let pulse = Pulse { failure: Some((text, code)), ..self.pulse() };
            self.tell(&pulse);
            let (rank, now) = (self.library.rank, Instant::now());
            if let Some(error) = self.watch.hear(rank, pulse, now) {
                self.end(error);
            }
        }
        let wait = if self.library.rank == 0 { LAST_WORDS } else { LAST_WAIT };
        self.ending = Some((now + wait, code));
    }

    /// The training thread of this rank does not move any more: nobody but this thread can say so.
    fn fail_stuck(&mut self, still: Duration) {
        if self.ended.is_some() {
            return;
        }
        let text = format!("its training thread has not moved for {} s", still.as_secs());
        self.fail(text, STUCK_CODE);
        if self.library.rank == 0 {
            self.ending = Some((Instant::now() + LAST_WORDS_OF_OTHERS, STUCK_CODE));
        }
    }

    fn pulse(&self) -> Pulse {
        let (activity, step) = self.here.place();
        Pulse { rank: self.library.rank as u32, step, activity, failure: None }
    }

    /// Sends a message to whom this rank talks to: from rank 0 to all, from others to rank 0.
    fn tell(&mut self, pulse: &Pulse) {
        for to in self.watch.listens_to() {
            let bytes = pulse.to_bytes();
            // SAFETY: the bytes are kept until they are sent.
            if let Ok(request) = unsafe { self.library.start_send(&bytes, to) } {
                self.sending.push((to, request, bytes));
            }
        }
    }

    fn receive(&mut self, from: usize) -> Result<(), ReduceError> {
        let mut bytes = vec![0; BYTES];
        // SAFETY: the bytes are kept until they are there, or leaked.
        let request = unsafe { self.library.start_receive(&mut bytes, from) }?;
        self.receiving.push((from, request, bytes));
        Ok(())
    }

    /// Everything that is under way, once. An error of the library ends the run, but not the looking for who is missing.
    fn go_on(&mut self, now: Instant) {
        let looks = now - self.looked >= LOOK;
        let mut at = 0;
        while at < self.under_way.len() {
            let is_leave = matches!(self.under_way[at], Work::Leave { .. });
            match if is_leave { Ok(false) } else { self.under_way[at].is_done(&self.library, &mut self.rooms) } {
                Ok(false) => at += 1,
                Ok(true) => self.under_way.remove(at).finish(),
                Err(error) => self.end(error),
            }
        }
        // Any call drives everything; these need not be asked as often as a sum that is waited for.
        if looks || self.under_way.is_empty() {
            self.pass_messages(now);
        }
        if now - self.said >= EVERY {
            self.said = now;
            // To somebody who does not listen no more than a few messages are kept.
            if self.sending.len() < 4 * self.library.world {
                let pulse = self.pulse();
                self.tell(&pulse);
            }
        }
        if looks {
            self.looked = now;
            if let Some(still) = self.here.stuck(now) {
                self.fail_stuck(still);
            }
            if let Some(error) = self.watch.missing(now, is_alive) {
                self.missing(error);
            }
        }
    }

    /// Messages that have left, and those that came.
    fn pass_messages(&mut self, now: Instant) {
        for at in (0..self.sending.len()).rev() {
            match self.library.is_done(&mut self.sending[at].1) {
                Ok(false) => {}
                Ok(true) => drop(self.sending.swap_remove(at)),
                Err(error) => {
                    // The library may still look at the bytes.
                    std::mem::forget(self.sending.swap_remove(at));
                    self.end(error);
                }
            }
        }
        for at in (0..self.receiving.len()).rev() {
            let done = self.library.is_done(&mut self.receiving[at].1);
            if matches!(done, Ok(false)) {
                continue;
            }
            let (from, _, bytes) = self.receiving.swap_remove(at);
            if let Err(error) = done {
                // That rank is not heard of any more: it will be missed.
                std::mem::forget(bytes);
                self.end(error);
                continue;
            }
            let pulse = Pulse::from_bytes(&bytes);
            let failure = self.watch.hear(from, pulse.clone(), now);
            if let Err(error) = self.receive(from) {
                self.end(error);
            }
            if let Some(error) = failure {
                if self.library.rank == 0 && self.ended.is_none() {
                    self.tell(&pulse);
                }
                self.end(error);
            }
        }
    }

    fn missing(&mut self, error: ReduceError) {
        if self.ended.is_none() {
            if self.library.rank == 0
                && let ReduceError::Gone(who) | ReduceError::Silent(who, _) = &error
            {
                // Others hear why everything ends.
                let (rank, step, activity) = (who.rank as u32, who.step, who.activity);
                let failure = Some((error.to_string(), 1));
                self.tell(&Pulse { rank, step, activity, failure });
            }
            self.end(error);
        } else if let (true, Some((at, _))) = (self.library.rank != 0, &mut self.ending) {
            // Rank 0 cannot end the job any more.
            *at = Instant::now();
        }
    }

    fn end(&mut self, error: ReduceError) {
        let error = self.ended.get_or_insert(error).clone();
        for work in self.under_way.drain(..) {
            work.fail(error.clone());
        }
    }

    /// Whether all ranks have come to the end; then MPI is over.
    fn all_left(&mut self) -> bool {
        let Some(leave) = self.under_way.first_mut() else { return false };
        match leave.is_done(&self.library, &mut self.rooms) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(error) => {
                self.end(error);
                return false;
            }
        }
        for (_, request, bytes) in self.receiving.drain(..).chain(self.sending.drain(..)) {
            self.library.give_up(request);
            std::mem::forget(bytes);
        }
        self.library.finish();
        self.under_way.drain(..).for_each(Work::finish);
        true
    }
}

/// Whether a process of this host is there.
fn is_alive(process: u32) -> bool {
    // SAFETY: signal 0 is not sent; it only asks.
    let code = unsafe { libc::kill(process as libc::pid_t, 0) };
    code == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}
