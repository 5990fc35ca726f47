//! One thread that synthesizes, for all requests: sentences of whoever waits share batches. A request is admitted or refused
//! before any work is done for it; what its client does not read is not made; a client that has left costs nothing more.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSliceMut;
use tandem_model::HostReference;
use tandem_synth::{Row, Sentence, SynthesisSettings, Take};
use tokio::sync::mpsc;

use crate::counters::Counters;
use crate::schedule::{Waiting, choose};
use crate::voices::LoadedVoice;
use crate::writer::Writer;

/// Sentences that wait for a client to read them, at most.
const UNREAD: usize = 8;

/// What one batch consists of: the numbers of the requests that its sentences belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchPlan {
    /// Counted from 1.
    pub number: u64,
    /// The request of each sentence.
    pub requests: Vec<u64>,
}

/// Called on the synthesis thread before each batch.
pub type BatchHook = Arc<dyn Fn(&BatchPlan) + Send + Sync>;

/// What is to be spoken, and how.
pub(crate) struct Order {
    pub(crate) voice: Arc<LoadedVoice>,
    pub(crate) reference: Option<Arc<HostReference>>,
    pub(crate) take: Take,
    pub(crate) sentences: Vec<Sentence>,
    pub(crate) writer: Writer,
}

/// A sentence as it is sent.
pub(crate) struct Chunk {
    pub(crate) bytes: Vec<u8>,
    /// How long the answer is with it.
    pub(crate) seconds: f64,
}

type Sent = Result<Chunk, String>;

/// All requests are taken: come back later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// Seconds until there may be room.
    pub(crate) retry_after_s: u64,
}

struct Job {
    number: u64,
    voice: Arc<LoadedVoice>,
    reference: Option<Arc<HostReference>>,
    take: Take,
    writer: Arc<Mutex<Writer>>,
    pending: VecDeque<Sentence>,
    quota: usize,
    served: u64,
    out: mpsc::Sender<Sent>,
    _place: Place,
}

struct State {
    jobs: Vec<Job>,
    places: usize,
    numbers: u64,
    batches: u64,
    stopping: bool,
}

/// The synthesis thread, as requests see it.
pub(crate) struct Engine {
    state: Mutex<State>,
    changed: Condvar,
    counters: Arc<Counters>,
    most_requests: usize,
    batch_size: usize,
    settings: SynthesisSettings,
    hook: Option<BatchHook>,
}

/// A place among the requests that are admitted, free again when this value is gone.
pub(crate) struct Place {
    engine: Arc<Engine>,
    pub(crate) number: u64,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Never while the state is locked: jobs are dropped outside.
        self.engine.lock().places -= 1;
    }
}

/// Sentences of a request as they are made.
pub(crate) struct Speech {
    engine: Arc<Engine>,
    number: u64,
    receiver: mpsc::Receiver<Sent>,
    writer: Arc<Mutex<Writer>>,
}

impl Speech {
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Sent>> {
        let answer = self.receiver.poll_recv(context);
        if answer.is_ready() {
            // There is room for another sentence.
            self.engine.wake();
        }
        answer
    }

    pub(crate) async fn next(&mut self) -> Option<Sent> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// The writer of an answer whose sentences are all there.
    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Speech {
    fn drop(&mut self) {
        self.receiver.close();
        self.engine.forget(self.number);
    }
}

impl Engine {
    /// Starts the thread; it ends when [`Engine::stop`] was called and nothing is left to do.
    pub(crate) fn start(
        most_requests: usize,
        batch_size: usize,
        settings: SynthesisSettings,
        hook: Option<BatchHook>,
        counters: Arc<Counters>,
    ) -> (Arc<Engine>, std::thread::JoinHandle<()>) {
        let state = State { jobs: Vec::new(), places: 0, numbers: 0, batches: 0, stopping: false };
        let engine = Arc::new(Engine {
            state: Mutex::new(state),
            changed: Condvar::new(),
            counters,
            most_requests,
            batch_size,
            settings,
            hook,
        });
        let worker = engine.clone();
        let thread = std::thread::Builder::new().name("synthesis".to_owned()).spawn(move || worker.run());
        (engine, thread.expect("a thread can be made"))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the thread look again. Through the lock: it either has not looked yet or waits already.
    fn wake(&self) {
        drop(self.lock());
        self.changed.notify_one();
    }

    /// Drops what is left of a request whose client has left, and gives its place to others, also during a long batch.
    fn forget(&self, number: u64) {
        let mut state = self.lock();
        let (gone, kept): (Vec<Job>, Vec<Job>) = state.jobs.drain(..).partition(|job| job.number == number);
        state.jobs = kept;
        drop(state);
        self.counters.abandoned_sentences(gone.iter().map(|job| job.pending.len()).sum());
        // Places are given back outside of the lock.
        drop(gone);
        self.changed.notify_one();
    }

    /// A place for a request, before anything is done for it.
    pub(crate) fn admit(self: &Arc<Engine>) -> Result<Place, Full> {
        let mut state = self.lock();
        if state.places >= self.most_requests {
            let pending: usize = state.jobs.iter().map(|job| job.pending.len()).sum();
            let seconds = self.counters.seconds_for(pending);
            return Err(Full { retry_after_s: seconds.ceil().clamp(1.0, 120.0) as u64 });
        }
        state.places += 1;
        state.numbers += 1;
        Ok(Place { engine: self.clone(), number: state.numbers })
    }

    /// Queues the sentences of a request.
    pub(crate) fn submit(self: &Arc<Engine>, place: Place, order: Order) -> Speech {
        let (out, receiver) = mpsc::channel(UNREAD);
        let Order { voice, reference, take, sentences, writer } = order;
        let (number, writer) = (place.number, Arc::new(Mutex::new(writer)));
        let mut state = self.lock();
        // As if it had just had its turn: whoever waits longer goes first.
        let served = state.batches;
        state.jobs.push(Job {
            number,
            voice,
            reference,
            take,
            writer: writer.clone(),
            pending: sentences.into(),
            quota: 1,
            served,
            out,
            _place: place,
        });
        drop(state);
        self.changed.notify_one();
        Speech { engine: self.clone(), number, receiver, writer }
    }

    /// Requests that are admitted, and sentences that wait.
    pub(crate) fn load(&self) -> (usize, usize) {
        let state = self.lock();
        (state.places, state.jobs.iter().map(|job| job.pending.len()).sum())
    }

    /// Lets the thread end once nothing is left to do.
    pub(crate) fn stop(&self) {
        self.lock().stopping = true;
        self.changed.notify_one();
    }

    fn run(&self) {
        while let Some((plan, batch)) = self.next_batch() {
            if let Some(hook) = &self.hook {
                hook(&plan);
            }
            self.synthesize(batch);
        }
    }

    /// Waits for sentences; none when it is over. Those of clients that left are dropped here.
    fn next_batch(&self) -> Option<(BatchPlan, Vec<Piece>)> {
        loop {
            let mut state = self.lock();
            let (kept, over): (Vec<Job>, Vec<Job>) =
                state.jobs.drain(..).partition(|job| !job.out.is_closed() && !job.pending.is_empty());
            state.jobs = kept;
            if !over.is_empty() {
                drop(state);
                let left: usize = over.iter().map(|job| job.pending.len()).sum();
                self.counters.abandoned_sentences(left);
                // Places are given back outside of the lock.
                drop(over);
                continue;
            }
            let waiting: Vec<Waiting> = (state.jobs.iter())
                .map(|job| Waiting {
                    voice: Arc::as_ptr(&job.voice) as usize,
                    pending: job.pending.len(),
                    room: job.out.capacity(),
                    quota: job.quota,
                    served: job.served,
                })
                .collect();
            let taken = choose(&waiting, self.batch_size);
            if taken.iter().all(|&taken| taken == 0) {
                if state.stopping && state.jobs.is_empty() {
                    return None;
                }
                // Woken by a new request, by a client that read something, or by one that left.
                drop(self.changed.wait(state).unwrap_or_else(PoisonError::into_inner));
                continue;
            }
            state.batches += 1;
            let number = state.batches;
            let most = self.batch_size;
            let mut batch = Vec::new();
            for (job, taken) in state.jobs.iter_mut().zip(taken).filter(|(_, taken)| *taken > 0) {
                (job.served, job.quota) = (number, (2 * job.quota).min(most));
                for sentence in job.pending.drain(..taken) {
                    batch.push(Piece {
                        request: job.number,
                        sentence,
                        voice: job.voice.clone(),
                        reference: job.reference.clone(),
                        take: job.take,
                        writer: job.writer.clone(),
                        out: job.out.clone(),
                    });
                }
            }
            let requests = batch.iter().map(|piece| piece.request).collect();
            return Some((BatchPlan { number, requests }, batch));
        }
    }

    fn synthesize(&self, mut batch: Vec<Piece>) {
        // A client may have left while the batch was planned or held.
        let planned = batch.len();
        batch.retain(|piece| !piece.out.is_closed());
        self.counters.abandoned_sentences(planned - batch.len());
        if batch.is_empty() {
            return;
        }
        let began = Instant::now();
        let made = match self.speak(&batch) {
            Ok(made) => made.into_iter().map(Ok).collect(),
            Err(message) => {
                self.counters.failed_batch();
                // What is wrong with one of them is not the fault of the others.
                let alone = |piece| self.speak(std::slice::from_ref(piece)).map(|mut made| made.remove(0));
                if batch.len() == 1 { vec![Err(message)] } else { batch.iter().map(alone).collect() }
            }
        };
        let audio_s: f64 = made.iter().flatten().map(tandem_synth::Speech::seconds).sum();
        self.counters.batch(batch.len(), audio_s, began.elapsed().as_secs_f64());
        let mut all: Vec<(Piece, Result<tandem_synth::Speech, String>)> = batch.into_iter().zip(made).collect();
        // Sentences of a request are beside each other, in their order.
        all.par_chunk_by_mut(|(a, _), (b, _)| a.request == b.request).for_each(|of_one| {
            for (piece, speech) in of_one {
                // There is room: no more is taken than fits. An error means that the client has left.
                let _ = piece.out.try_send(piece.write(speech));
            }
        });
    }

    /// The sentences of a batch, at once. A kernel that panics must not end the service of everybody else.
    fn speak(&self, batch: &[Piece]) -> Result<Vec<tandem_synth::Speech>, String> {
        let Some(first) = batch.first() else { return Ok(Vec::new()) };
        let rows: Vec<Row<'_>> = (batch.iter())
            .map(|piece| Row { ids: &piece.sentence.ids, reference: piece.reference.as_deref(), take: piece.take })
            .collect();
        let speak = || first.voice.synthesizer.synthesize_rows(&rows, self.settings);
        match catch_unwind(AssertUnwindSafe(speak)) {
            Ok(made) => made.map_err(|error| error.to_string()),
            Err(_) => Err("synthesis panicked".to_owned()),
        }
    }
}

struct Piece {
    request: u64,
    sentence: Sentence,
    voice: Arc<LoadedVoice>,
    reference: Option<Arc<HostReference>>,
    take: Take,
    writer: Arc<Mutex<Writer>>,
    out: mpsc::Sender<Sent>,
}

impl Piece {
    fn write(&self, speech: &Result<tandem_synth::Speech, String>) -> Sent {
        let speech = speech.as_ref().map_err(Clone::clone)?;
        let write = || {
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let bytes = writer.write(&self.sentence, speech)?;
            Ok(Chunk { bytes, seconds: writer.seconds() })
        };
        catch_unwind(AssertUnwindSafe(write)).unwrap_or_else(|_| Err("encoding panicked".to_owned()))
    }
}
