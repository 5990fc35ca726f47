//! Gradients of one step on their way to other ranks: a bucket leaves as soon as its last gradient is there, while the backward pass runs.
//!
//! Gradients in the host's memory are moved, not copied. Those on another device are read by a thread of their own: a read waits for the device, and who enqueues the
//! rest of the backward pass must not.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Thread;
use std::time::Instant;

use burn::tensor::Tensor;
use tandem_model::Device;

use super::Session;
use super::exchange::Values;
use super::worker::{Command, Sum};
use crate::optim::Grads;
use crate::reduce::buckets::{Layout, joined, to_host};
use crate::reduce::{ReduceError, Summed, Summing};

type Segments = Vec<Vec<f32>>;

/// A bucket that is still on a device.
pub(super) struct Copy {
    vector: Tensor<1>,
    cuts: Vec<usize>,
    tag: u16,
    reply: Sender<Result<Segments, ReduceError>>,
    /// When it was copied, or why it could not be.
    copied: Sender<Result<Instant, String>>,
}

/// Copies buckets to the host and passes them on, until nobody has any more.
pub(super) fn copy_all(copies: &Receiver<Copy>, commands: &Sender<Command>, thread: &Thread) {
    for Copy { vector, cuts, tag, reply, copied } in copies {
        let values = match catch_unwind(AssertUnwindSafe(|| to_host(vector))) {
            Ok(values) => values,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
                // Who does not wait for it any more has failed of something else.
                let _ = copied.send(Err(text.unwrap_or("gradients could not be read").to_owned()));
                continue;
            }
        };
        let _ = copied.send(Ok(Instant::now()));
        let _ = commands.send(Command::Sum(vec![Sum { values: Values { segments: vec![values], cuts }, tag, reply }]));
        thread.unpark();
    }
}

pub(super) struct Stream {
    session: Session,
    layout: Layout,
    device: Device,
    is_on_host: bool,
    /// That of the first bucket; each has its own, so that buckets may leave in another order on other ranks.
    tag: u16,
    grads: Vec<Option<Tensor<2>>>,
    present: Vec<bool>,
    /// Gradients that each bucket still waits for.
    missing: Vec<usize>,
    /// Sums of buckets that have left.
    sums: Vec<Option<Receiver<Result<Segments, ReduceError>>>>,
    copies: Vec<Receiver<Result<Instant, String>>>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.sums.iter().flatten().count();
        write!(f, "Stream({left} of {} buckets have left)", self.sums.len())
    }
}

impl Stream {
    pub(super) fn new(session: Session, layout: Layout, parameters: usize, device: Device) -> Stream {
        let buckets = layout.len();
        Stream {
            // And one for the tail.
            tag: session.tags(buckets as u16 + 1),
            session,
            is_on_host: device.clone().inner() == Device::flex(),
            device,
            grads: (0..parameters).map(|_| None).collect(),
            present: vec![false; parameters],
            missing: (0..buckets).map(|bucket| layout.parameters(bucket)).collect(),
            sums: (0..buckets).map(|_| None).collect(),
            copies: Vec::new(),
            layout,
        }
    }

    /// Takes a gradient; the bucket that is whole with it.
    fn take(&mut self, index: usize, grad: Tensor<2>) -> Option<usize> {
        let bucket = self.layout.bucket_of(index).filter(|bucket| self.sums[*bucket].is_none())?;
        let is_new = self.grads[index].replace(grad).is_none();
        self.present[index] = true;
        self.missing[bucket] -= usize::from(is_new);
        (self.missing[bucket] == 0).then_some(bucket)
    }

    /// A bucket leaves: what is to be added up, or nothing if it has to be copied first.
    fn leave(&mut self, bucket: usize) -> Option<Sum> {
        let (reply, summed) = channel();
        self.sums[bucket] = Some(summed);
        let (cuts, tag) = (self.layout.cuts(bucket), self.tag.wrapping_add(bucket as u16));
        if self.is_on_host {
            let segments = self.layout.segments(bucket, &mut self.grads);
            return Some(Sum { values: Values { segments, cuts }, tag, reply });
        }
        let (copied, is_copied) = channel();
        self.copies.push(is_copied);
        let runs = self.layout.runs(bucket, &mut self.grads, &self.device);
        self.session.copy(Copy { vector: joined(runs), cuts, tag, reply, copied });
        None
    }
}

impl Summing for Stream {
    fn add(&mut self, index: usize, grad: Tensor<2>) {
        if let Some(bucket) = self.take(index, grad)
            && let Some(sum) = self.leave(bucket)
        {
            self.session.ask_thread(Command::Sum(vec![sum]));
        }
    }

    fn finish(mut self: Box<Self>, terms: Tensor<1>, rest: Grads) -> Result<Summed, ReduceError> {
        for (index, grad) in rest.into_inner().into_iter().enumerate() {
            if let Some(grad) = grad {
                self.take(index, grad);
            }
        }
        let late: Vec<usize> = (0..self.layout.len()).filter(|bucket| self.sums[*bucket].is_none()).collect();
        let mut sums: Vec<Sum> = late.into_iter().filter_map(|bucket| self.leave(bucket)).collect();
        let (reply, tail) = channel();
        let values = self.layout.tail(terms, &self.present);
        let (cuts, tag) = (vec![values.len()], self.tag.wrapping_add(self.layout.len() as u16));
        sums.push(Sum { values: Values { segments: vec![values], cuts }, tag, reply });
        let mut since = Instant::now();
        self.session.ask(Command::Sum(sums));
        // A device that does not answer is this rank's own trouble: it does not wait for others.
        for copied in std::mem::take(&mut self.copies) {
            match copied.recv() {
                Ok(Ok(at)) => since = at,
                Ok(Err(text)) => panic!("{text}"),
                Err(_) => panic!("the thread that copies gradients ended"),
            }
        }
        let mut unpacking = self.layout.unpacking(&self.device);
        let mut sums: Vec<_> = std::mem::take(&mut self.sums).into_iter().flatten().enumerate().collect();
        if self.is_on_host {
            // Nothing is copied: one who wakes up for each bucket would only take the core of the one that sends.
            sums.reverse();
        }
        for (bucket, summed) in sums {
            unpacking.add(bucket, self.session.wait(&summed)?);
        }
        let (values, grads) = unpacking.finish(self.session.wait(&tail)?.concat());
        Ok(Summed { values, grads, since })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU16;
    use std::sync::{Arc, Mutex, OnceLock};

    use burn::tensor::TensorData;

    use super::super::Shared;
    use super::super::here::Here;
    use super::super::worker::Next;
    use super::*;
    use crate::reduce::Reduce;

    /// Another rank, with the same gradients as this one.
    struct Other(Mutex<Receiver<Command>>);

    impl Other {
        /// Takes what has left and answers; how much that was.
        fn answer(&self) -> usize {
            let commands = self.0.lock().expect("no panic");
            let sums = commands.try_iter().flat_map(|command| match command {
                Command::Sum(sums) => sums,
                _ => panic!("only sums are asked for"),
            });
            let answer = |Sum { mut values, reply, .. }: Sum| {
                values.segments.iter_mut().flatten().for_each(|value| *value *= 2.0);
                reply.send(Ok(values.segments)).expect("somebody waits");
            };
            sums.map(answer).count()
        }
    }

    fn session() -> (Session, Arc<Other>) {
        let (commands, taken) = channel();
        let other = Arc::new(Other(Mutex::new(taken)));
        let answering = other.clone();
        let turn = Box::new(move || {
            answering.answer();
            Next::Idle
        });
        let shared = Shared {
            rank: 0,
            hosts: vec!["a".to_owned(), "b".to_owned()],
            version: String::new(),
            here: Arc::new(Here::default()),
            commands,
            turn,
            thread: std::thread::current(),
            tags: AtomicU16::new(0),
            copies: OnceLock::new(),
        };
        (Session(Arc::new(shared)), other)
    }

    #[test]
    fn a_bucket_leaves_with_its_last_gradient_and_not_at_the_end_of_the_step() {
        const PARAMETERS: usize = 16;
        const VALUES: usize = 1 << 17;
        let (mut session, other) = session();
        let device = Device::flex();
        let gradient =
            |index: usize| Tensor::<2>::from_data(TensorData::new(vec![index as f32; VALUES], [VALUES, 1]), &device);
        let order: Vec<usize> = (0..PARAMETERS).rev().collect();
        let mut summing = session.begin(1, vec![Some([VALUES, 1]); PARAMETERS], &order, &device);
        let mut left = Vec::new();
        for &index in &order[..PARAMETERS - 1] {
            summing.add(index, gradient(index));
            left.push(other.answer());
        }
        // Buckets of 1, 8, 4, 2 and 1 parameters; the last one is whole at the end of the step.
        assert_eq!(left, [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1]);
        let rest = (0..PARAMETERS).map(|index| (index == 0).then(|| gradient(index))).collect();
        let summed = summing.finish(Tensor::zeros([1], &device), Grads::of(rest)).expect("nobody is missing");
        let sums = summed.grads.into_inner().into_iter().map(|grad| to_host(grad.expect("a gradient"))[VALUES - 1]);
        assert_eq!(sums.collect::<Vec<f32>>(), (0..PARAMETERS).map(|index| 2.0 * index as f32).collect::<Vec<f32>>());
    }
}
