//! The gradients of a batch: in micro-batches, in as few as the device's memory allows, and on their way to other ranks while the backward
//! pass still runs.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Instant;

use burn::module::ParamId;
use burn::tensor::Tensor;
use tandem_data::Shard;
use tandem_model::kernels::{with_early_gradients, with_half_matmuls};

use super::Learner;
use crate::optim::{self, Grads};
use crate::reduce::Summing;
use crate::task::Task;

/// Gradients that leave for other ranks while the backward pass runs.
pub(super) struct Early {
    pub(super) summing: RefCell<Box<dyn Summing>>,
    /// The place of each parameter in the model.
    pub(super) index_of: HashMap<ParamId, usize>,
    /// Those that have left, in their order.
    pub(super) heard: RefCell<Vec<usize>>,
}

impl Early {
    pub(super) fn new(summing: Box<dyn Summing>, index_of: HashMap<ParamId, usize>) -> Early {
        Early { summing: RefCell::new(summing), index_of, heard: RefCell::default() }
    }
}

impl<T: Task> Learner<T> {
    /// Loss terms and gradients of a batch that goes through the device in micro-batches: the same as if it went at once.
    pub fn gradients(&self, inputs: &T::Inputs, micro_batches: usize) -> (Tensor<1>, Grads) {
        self.gradients_of(inputs, T::totals(T::counts(inputs)), micro_batches, None)
    }

    /// The same for some rows of a batch that has these totals. Gradients that are complete before the others go to `early`, and are not among those
    /// that are returned.
    fn gradients_of(
        &self,
        inputs: &T::Inputs,
        totals: T::Totals,
        micro_batches: usize,
        early: Option<&Rc<Early>>,
    ) -> (Tensor<1>, Grads) {
        let mut sum: Option<(Tensor<1>, Grads)> = None;
        let shard = |rank| Shard { rank, world: micro_batches.max(1) }.rows(T::rows(inputs));
        let mut parts = (0..micro_batches.max(1)).map(shard).filter(|rows| !rows.is_empty()).peekable();
        while let Some(rows) = parts.next() {
            // With the last one gradients are those of all rows.
            let early = early.filter(|_| parts.peek().is_none());
            sum = Some(match (sum, early) {
                (before, Some(early)) => self.last_gradients(inputs, totals, rows, before, early),
                (None, None) => self.gradients_of_rows(inputs, totals, rows),
                (Some((terms, before)), None) => {
                    let (more, grads) = self.gradients_of_rows(inputs, totals, rows);
                    (terms + more, before.plus(grads))
                }
            });
        }
        sum.expect("a batch has rows")
    }

    /// One micro-batch.
    fn gradients_of_rows(&self, inputs: &T::Inputs, totals: T::Totals, rows: Range<usize>) -> (Tensor<1>, Grads) {
        let micro_batch = T::micro_batch(inputs, rows);
        self.inject_out_of_memory(T::rows(&micro_batch));
        let half = self.scale.is_some();
        let loss = with_half_matmuls(half, || self.task.loss(self.model(), &micro_batch, totals, self.step));
        let total = match &self.scale {
            Some(scale) => loss.total * Tensor::from_inner(scale.factor()),
            None => loss.total,
        };
        let grads = Grads::new(total.backward(), self.model());
        (loss.terms, self.scale.iter().fold(grads, |grads, scale| grads.divided_by(&scale.factor())))
    }

    /// The last micro-batch, and what those before it gave.
    fn last_gradients(
        &self,
        inputs: &T::Inputs,
        totals: T::Totals,
        rows: Range<usize>,
        before: Option<(Tensor<1>, Grads)>,
        early: &Rc<Early>,
    ) -> (Tensor<1>, Grads) {
        let (terms, before) = before.unzip();
        let before = before.map_or_else(|| early.index_of.iter().map(|_| None).collect(), Grads::into_inner);
        let before = Rc::new(RefCell::new(before));
        let share = self.scale.as_ref().map(|scale| optim::reciprocal(&scale.factor()));
        let complete = {
            let (early, before) = (early.clone(), before.clone());
            move |id: ParamId, grad: Tensor<2>| {
                let Some(&index) = early.index_of.get(&id) else { return };
                let grad = share.iter().fold(grad, |grad, share| grad * share.clone());
                // As it is done with all of them.
                let grad = match before.borrow_mut()[index].take() {
                    Some(before) => before + grad,
                    None => grad,
                };
                early.heard.borrow_mut().push(index);
                early.summing.borrow_mut().add(index, grad);
            }
        };
        let (more, late) = with_early_gradients(complete, || self.gradients_of_rows(inputs, totals, rows));
        let late = late.into_inner();
        let heard = early.heard.borrow();
        assert!(heard.iter().all(|index| late[*index].is_none()), "a parameter is used with and without a tap");
        (
            terms.map_or_else(|| more.clone(), |terms| terms + more.clone()),
            Grads::of(before.take()).plus(Grads::of(late)),
        )
    }

    /// When the gradient of each parameter is complete, by its place in the model, in shares of a forward and a backward pass.
    pub fn gradient_times(&self, inputs: &T::Inputs) -> Vec<(usize, f64)> {
        let index_of = optim::places(self.model());
        let times: Rc<RefCell<Vec<(usize, Instant)>>> = Rc::default();
        let notes = times.clone();
        let (places, began) = (index_of.clone(), Instant::now());
        let complete = move |id: ParamId, _: Tensor<2>| {
            notes.borrow_mut().extend(places.get(&id).map(|index| (*index, Instant::now())));
        };
        let totals = T::totals(T::counts(inputs));
        with_early_gradients(complete, || self.gradients_of_rows(inputs, totals, 0..T::rows(inputs)));
        let (all, mut times) = (began.elapsed().as_secs_f64(), times.take());
        let last = Instant::now();
        let early: HashSet<usize> = times.iter().map(|(index, _)| *index).collect();
        times.extend((0..index_of.len()).filter(|index| !early.contains(index)).map(|index| (index, last)));
        times.into_iter().map(|(index, at)| (index, ((at - began).as_secs_f64() / all).min(1.0))).collect()
    }

    /// The same, in as few micro-batches as the device's memory allows, beginning with what was enough before.
    pub fn gradients_that_fit(&mut self, inputs: &T::Inputs) -> (Tensor<1>, Grads) {
        self.gradients_that_fit_of(inputs, T::totals(T::counts(inputs)), None)
    }

    pub(super) fn gradients_that_fit_of(
        &mut self,
        inputs: &T::Inputs,
        totals: T::Totals,
        early: Option<&Rc<Early>>,
    ) -> (Tensor<1>, Grads) {
        loop {
            match self.try_gradients_of(inputs, totals, self.own_micro_batches(), early) {
                Some(result) => return result,
                None if self.own_micro_batches() < T::rows(inputs) => self.micro_batches *= 2,
                None => panic!("out of memory: not even one clip at a time fits"),
            }
        }
    }

    /// The same in so many micro-batches; none if that is too much for the device's memory.
    pub fn try_gradients(&self, inputs: &T::Inputs, micro_batches: usize) -> Option<(Tensor<1>, Grads)> {
        self.try_gradients_of(inputs, T::totals(T::counts(inputs)), micro_batches, None)
    }

    fn try_gradients_of(
        &self,
        inputs: &T::Inputs,
        totals: T::Totals,
        micro_batches: usize,
        early: Option<&Rc<Early>>,
    ) -> Option<(Tensor<1>, Grads)> {
        match catch_unwind(AssertUnwindSafe(|| self.gradients_of(inputs, totals, micro_batches, early))) {
            Ok(result) => Some(result),
            Err(panic) if is_out_of_memory(&*panic) => None,
            Err(panic) => resume_unwind(panic),
        }
    }

    fn inject_out_of_memory(&self, rows: usize) {
        if let Some((step, most)) = self.injection.out_of_memory
            && self.step + 1 >= step
            && rows > most
        {
            panic!("out of memory (injected): {rows} clips, {most} fit");
        }
    }
}

/// Drivers and allocators word it differently; none of them has a type for it that reaches us.
fn is_out_of_memory(panic: &(dyn std::any::Any + Send)) -> bool {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or_default().to_lowercase();
    ["out of memory", "outofmemory", "memory allocation", "not enough memory", "allocation failed"]
        .iter()
        .any(|words| text.contains(words))
}
