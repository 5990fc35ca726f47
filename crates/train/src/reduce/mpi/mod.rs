//! The ranks of an MPI job.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `mod.rs` | [`Session`]: what the rest of the program sees |
//! | `worker.rs` | what is said to other ranks, and by which thread |
//! | `pulse.rs` | signs of life, and who is missing |
//! | `here.rs` | where this rank's training thread is, and whether it still moves |
//! | `stream.rs` | the gradients of a step, which leave while others are computed |
//! | `exchange.rs` | a sum over all ranks, made of messages |
//! | `library.rs` | the MPI library, opened at run time |

mod exchange;
mod here;
mod library;
mod pulse;
mod stream;
mod worker;

use std::fmt;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use tandem_model::Device;

use self::here::Here;
use self::library::Library;
use self::stream::{Copy, Stream, copy_all};
use self::worker::{Command, Next, Worker, run, turn};
use super::buckets::Layout;
use super::{Activity, Launched, Reduce, ReduceError, Summing, Vote};
use crate::memory;

pub use library::LibraryError;

/// This process as one of an MPI job. Clones are the same one.
#[derive(Clone)]
pub struct Session(Arc<Shared>);

struct Shared {
    rank: usize,
    hosts: Vec<String>,
    version: String,
    here: Arc<Here>,
    commands: Sender<Command>,
    /// Drives what is under way.
    turn: Box<dyn Fn() -> Next + Send + Sync>,
    /// The thread that talks to other ranks while this one computes.
    thread: Thread,
    /// Tags that are taken; all ranks count the same.
    tags: AtomicU16,
    /// The thread that copies gradients from a device, from the first one on.
    copies: OnceLock<Sender<Copy>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session(rank {} of {})", self.0.rank, self.0.hosts.len())
    }
}

impl Session {
    /// Joins the job that this process was started for.
    ///
    /// # Errors
    ///
    /// [`LibraryError`] if there is no MPI library, or not that of the launcher.
    pub fn start(launched: Launched) -> Result<Session, LibraryError> {
        memory::use_huge_pages();
        let (ready, started) = channel();
        let (commands, taken) = channel();
        let here = Arc::new(Here::default());
        let shared = here.clone();
        let body = move || {
            let joined = Library::start(launched.launcher, launched.world).and_then(|library| {
                let records = library.gather(&Record::own().to_bytes());
                let records = records.map_err(|error| LibraryError::Start(error.to_string()))?;
                let records: Vec<Record> = records.chunks_exact(Record::BYTES).map(Record::from_bytes).collect();
                let hosts: Vec<String> = records.iter().map(|record| record.host.clone()).collect();
                let (rank, version) = (library.rank, library.version.clone());
                let peers = Record::peers(records, rank);
                let worker = Worker::new(library, taken, shared.clone(), peers);
                let worker = worker.map_err(|error| LibraryError::Start(error.to_string()))?;
                Ok((Arc::new(Mutex::new(worker)), rank, hosts, version))
            });
            match joined {
                Err(error) => drop(ready.send(Err(error))),
                Ok((worker, rank, hosts, version)) => {
                    drop(ready.send(Ok((worker.clone(), rank, hosts, version))));
                    run(&worker, &shared);
                }
            }
        };
        let spawned = std::thread::Builder::new().name("reduce".to_owned()).spawn(body);
        let spawned = spawned.map_err(|error| LibraryError::Start(error.to_string()))?;
        let thread = spawned.thread().clone();
        let gone = || LibraryError::Start("its thread ended".to_owned());
        let (worker, rank, hosts, version) = started.recv().map_err(|_| gone())??;
        let (turn, tags, copies) = (Box::new(move || turn(&worker)), AtomicU16::new(0), OnceLock::new());
        Ok(Session(Arc::new(Shared { rank, hosts, version, here, commands, turn, thread, tags, copies })))
    }

    /// The library that is at work.
    pub fn version(&self) -> &str {
        &self.0.version
    }

    /// Hosts by rank.
    pub fn hosts(&self) -> &[String] {
        &self.0.hosts
    }

    /// The host of this rank.
    pub fn host(&self) -> &str {
        &self.0.hosts[self.0.rank]
    }

    /// This rank among those of its host, from 0.
    pub fn local_rank(&self) -> usize {
        local_rank(&self.0.hosts, self.0.rank)
    }

    /// Waits until every rank is here.
    ///
    /// # Errors
    ///
    /// [`ReduceError`] if a rank is missing.
    pub fn meet(&self) -> Result<(), ReduceError> {
        self.gather_equal(vec![0]).map(|_| ())
    }

    /// Tells all ranks that this one failed and ends the job, once rank 0 has saved what was learned. Does not return.
    pub fn fail(&self, text: &str, code: u8) -> ! {
        if self.0.commands.send(Command::Fail(text.to_owned(), code)).is_err() {
            // The thread that would tell them is gone: they hear nothing of this rank any more, and end by that.
            std::process::exit(code.into());
        }
        self.0.thread.unpark();
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }

    /// Leaves the job in good order, together with all others.
    ///
    /// # Errors
    ///
    /// [`ReduceError`] if a rank is missing.
    pub fn leave(&self) -> Result<(), ReduceError> {
        self.0.here.note(Activity::End, 0);
        let (reply, done) = channel();
        self.ask_thread(Command::Leave(reply));
        // By the thread that started MPI: none but that one may end it.
        done.recv().unwrap_or_else(|_| Err(ended()))
    }

    /// Waits for others: as long as it takes. What is under way is driven by this thread meanwhile.
    fn wait<T>(&self, reply: &Receiver<Result<T, ReduceError>>) -> Result<T, ReduceError> {
        self.0.here.waits(true);
        let mut next = None;
        let result = loop {
            match reply.try_recv() {
                Ok(result) => break result,
                Err(TryRecvError::Empty) if next != Some(Next::Over) => {}
                Err(_) => break Err(ended()),
            }
            if let Some(next) = next {
                Next::rest(next);
            }
            next = Some((self.0.turn)());
        };
        self.0.here.waits(false);
        result
    }

    /// Asks for something. Either the answer is waited for, or the thread is unparked.
    fn ask(&self, command: Command) {
        // If nobody takes it, nobody answers, which is an error where the answer is waited for.
        let _ = self.0.commands.send(command);
    }

    /// Has something done while this thread computes.
    fn ask_thread(&self, command: Command) {
        self.ask(command);
        self.0.thread.unpark();
    }

    /// So many tags, one after the other, that no sum of this step and of the last ones has.
    fn tags(&self, count: u16) -> u16 {
        self.0.tags.fetch_add(count, Ordering::Relaxed)
    }

    /// Has a bucket copied, and then added up.
    fn copy(&self, copy: Copy) {
        let copies = self.0.copies.get_or_init(|| {
            let (copies, taken) = channel();
            let (commands, thread) = (self.0.commands.clone(), self.0.thread.clone());
            let body = move || copy_all(&taken, &commands, &thread);
            std::thread::Builder::new().name("gradients".to_owned()).spawn(body).expect("a thread starts");
            copies
        });
        // Without the thread nobody says that it is copied, which is an error where that is waited for.
        let _ = copies.send(copy);
    }

    fn gather_equal(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, ReduceError> {
        let length = own.len();
        let (reply, gathered) = channel();
        self.ask(Command::Gather(own, reply));
        let all = self.wait(&gathered)?;
        Ok(all.chunks_exact(length.max(1)).map(<[u8]>::to_vec).collect())
    }
}

fn ended() -> ReduceError {
    ReduceError::Library("its thread ended".to_owned())
}

fn local_rank(hosts: &[String], rank: usize) -> usize {
    hosts[..rank].iter().filter(|host| **host == hosts[rank]).count()
}

impl Reduce for Session {
    fn world(&self) -> usize {
        self.0.hosts.len()
    }

    fn rank(&self) -> usize {
        self.0.rank
    }

    fn agree(&mut self, own: &Vote) -> Result<Vec<Vote>, ReduceError> {
        let votes = self.gather_equal(own.to_bytes())?;
        debug_assert!(votes.iter().all(|vote| vote.len() == Vote::BYTES));
        Ok(votes.iter().map(|vote| Vote::from_bytes(vote)).collect())
    }

    fn gather(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, ReduceError> {
        let lengths = self.gather_equal((own.len() as u64).to_le_bytes().to_vec())?;
        let lengths = lengths.iter().map(|bytes| bytes.iter().rev().fold(0, |all, &byte| all << 8 | usize::from(byte)));
        let lengths: Vec<usize> = lengths.collect();
        let mut padded = own.to_vec();
        padded.resize(lengths.iter().copied().max().unwrap_or(0).max(1), 0);
        let all = self.gather_equal(padded)?;
        Ok(all.into_iter().zip(lengths).map(|(bytes, length)| bytes[..length].to_vec()).collect())
    }

    fn begin(
        &mut self,
        terms: usize,
        shapes: Vec<Option<[usize; 2]>>,
        order: &[usize],
        device: &Device,
    ) -> Box<dyn Summing> {
        let parameters = shapes.len();
        Box::new(Stream::new(self.clone(), Layout::new(terms, shapes, order), parameters, device.clone().inner()))
    }

    fn note(&self, activity: Activity, step: u64) {
        self.0.here.note(activity, step);
    }

    fn set_stall_timeout(&self, timeout: Option<Duration>) {
        self.0.here.set_stall_timeout(timeout);
    }
}

/// What a process says about itself when it joins.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    host: String,
    /// Processes with the same one can look at each other.
    namespace: String,
    process: u32,
}

impl Record {
    const BYTES: usize = 512;

    fn own() -> Record {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let namespace = std::fs::read_link("/proc/self/ns/pid").map(|path| path.display().to_string());
        // Without a namespace, as on other systems than Linux, nobody looks.
        let namespace = namespace.map_or(String::new(), |one| one + &read("/proc/sys/kernel/random/boot_id"));
        Record { host: host_name(), namespace, process: std::process::id() }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let host: String = self.host.chars().take(64).collect();
        let mut bytes = format!("{host}\n{}\n{}", self.namespace, self.process).into_bytes();
        bytes.resize(Record::BYTES, 0);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Record {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.trim_end_matches('\0').split('\n').map(str::to_owned);
        let mut next = || lines.next().unwrap_or_default();
        Record { host: next(), namespace: next(), process: next().parse().unwrap_or(0) }
    }

    /// Hosts by rank, with the processes that the one of `rank` can look at.
    fn peers(records: Vec<Record>, rank: usize) -> Vec<(String, Option<u32>)> {
        let own = records[rank].namespace.clone();
        let is_near = |record: &Record| !own.is_empty() && record.namespace == own && record.process != 0;
        records.into_iter().map(|record| (record.host.clone(), is_near(&record).then_some(record.process))).collect()
    }
}

fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is as long as is said; its last byte stays zero.
    let code = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(0);
    let text = String::from_utf8_lossy(&name[..end]).into_owned();
    if code == 0 && !text.is_empty() { text } else { "localhost".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_counted_on_each_host() {
        let hosts = ["a", "a", "b", "a", "b"].map(str::to_owned);
        let local: Vec<usize> = (0..hosts.len()).map(|rank| local_rank(&hosts, rank)).collect();
        assert_eq!(local, [0, 1, 0, 2, 1]);
    }

    #[test]
    fn only_processes_of_the_same_namespace_are_looked_at() {
        let record =
            |namespace: &str, process| Record { host: "h".to_owned(), namespace: namespace.to_owned(), process };
        let sent = record("pid:[1]", 42);
        assert_eq!(Record::from_bytes(&sent.to_bytes()), sent);
        let records = vec![record("pid:[1]", 42), record("pid:[2]", 43), record("pid:[1]", 44)];
        let seen: Vec<Option<u32>> = Record::peers(records, 0).into_iter().map(|(_, process)| process).collect();
        assert_eq!(seen, [Some(42), None, Some(44)]);
        assert_eq!(Record::peers(vec![record("", 1)], 0)[0].1, None);
    }
}
