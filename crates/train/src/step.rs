//! One step: losses, gradients, update. Whatever it does depends on the batch and the state alone.

mod gradients;

use std::rc::Rc;
use std::time::{Duration, Instant};

use burn::tensor::Tensor;
use tandem_flow::Cursor;
use tandem_model::weights::{self, Tensors, WeightsError};
use tandem_model::{Device, InputShape, ModelConfig};

use self::gradients::Early;
use crate::checkpoint::Checkpoint;
use crate::features::Ready;
use crate::optim::{self, Ema, Grads, LossScale, Optimizer};
use crate::reduce::{Activity, Agreed, Reduce, ReduceError, SingleProcess, Summed, Vote};
use crate::settings::TrainConfig;
use crate::task::{Acoustic, PartConfig, Task};

/// Fault injection, for tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injection {
    /// At this step the batch is not finite.
    pub nan_at: Option<u64>,
    /// From this step on, more than this many clips at once are too many for the memory.
    pub out_of_memory: Option<(u64, usize)>,
    /// Every step leaks so many bytes.
    pub leak: Option<usize>,
    /// This step never ends: a driver that does not return.
    pub hang_at: Option<u64>,
}

/// A model in training: weights, their average, optimizer.
#[derive(Debug)]
pub struct Learner<T: Task = Acoustic> {
    task: T,
    model: Option<T::Model>,
    ema: Ema<T::Model>,
    optimizer: Box<dyn Optimizer>,
    reduce: Box<dyn Reduce>,
    device: Device,
    settings: TrainConfig,
    step: u64,
    next: Cursor,
    micro_batches: usize,
    scale: Option<LossScale>,
    /// Whether each parameter stays as it is, in the model's order; empty: none does.
    frozen: Vec<bool>,
    /// The order in which gradients come, as agreed with other ranks.
    order: Vec<usize>,
    /// Steps with them.
    steps_together: u64,
    /// Bad clips that not all ranks know of, as agreed with the last batch.
    new_faults: u64,
    leaked: Vec<Vec<u8>>,
    /// Faults on purpose.
    pub injection: Injection,
}

/// What became of a batch, on every rank of a run the same.
#[derive(Debug)]
pub enum Stepped {
    /// A step.
    Done(Box<StepRecord>),
    /// Nothing: no rank has a clip of it that can be used.
    Skipped,
    /// Nothing: a rank was asked to stop.
    Stopped,
    /// Nothing: validation does not get better any more.
    EarlyStopped,
}

/// What a step did. Its numbers are still on the device: reading them waits for it.
#[derive(Debug)]
pub struct StepRecord {
    /// Which step, counted from 1.
    pub step: u64,
    /// The batch's place in the run.
    pub cursor: Cursor,
    /// Its clips, those of this rank.
    pub clips: Vec<u32>,
    /// Clips of all ranks.
    pub all_clips: u64,
    /// Their seconds of audio.
    pub seconds: f64,
    /// When this rank waited for the others, from and to; empty without others.
    pub waits: Vec<(Instant, Instant)>,
    /// Micro-batches that it was split into.
    pub micro_batches: usize,
    /// The learning rate.
    pub lr: f64,
    /// The terms of the loss ([`Task::TERMS`]), then the norm of the gradients.
    values: Tensor<1>,
}

/// The numbers of a step.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct StepValues {
    /// The sum of the terms.
    pub loss: f64,
    /// The terms, in the order of [`Task::TERMS`].
    pub terms: Vec<f64>,
    /// The norm of the gradients before clipping.
    pub norm: f64,
}

impl StepValues {
    /// Whether the step could be done.
    pub fn is_finite(&self) -> bool {
        self.loss.is_finite() && self.norm.is_finite()
    }
}

impl StepRecord {
    /// Reads the numbers of several steps, with one wait for all of them.
    pub fn read(records: &[StepRecord]) -> Vec<StepValues> {
        let Some(first) = records.first() else { return Vec::new() };
        let count = first.values.dims()[0];
        let all = Tensor::cat(records.iter().map(|record| record.values.clone()).collect(), 0);
        let all = all.into_data().try_into_vec::<f32>().expect("losses are single precision");
        all.chunks(count)
            .map(|values| {
                let terms: Vec<f64> = values[..count - 1].iter().map(|&value| f64::from(value)).collect();
                StepValues { loss: terms.iter().sum(), terms, norm: f64::from(values[count - 1]) }
            })
            .collect()
    }
}

impl Learner<Acoustic> {
    /// An untrained acoustic model.
    pub fn new(config: &ModelConfig, settings: &TrainConfig, device: &Device) -> Learner {
        let task = Acoustic { config: config.clone(), prior_steps: settings.model.prior_steps };
        Learner::with_task(task, settings, device)
    }

    /// Resumes from a checkpoint.
    pub fn resume(checkpoint: &Checkpoint, settings: &TrainConfig, device: &Device) -> Result<Learner, WeightsError> {
        let PartConfig::Acoustic(config) = &checkpoint.state.model else {
            return Err(WeightsError::Different(Vec::new()));
        };
        let mut learner = Learner::new(config, settings, device);
        learner.restore(checkpoint)?;
        Ok(learner)
    }

    /// What its batches look like.
    pub fn input_shape(&self) -> InputShape {
        InputShape::new(&self.task.config)
    }
}

impl<T: Task> Learner<T> {
    /// An untrained model.
    pub fn with_task(task: T, settings: &TrainConfig, device: &Device) -> Learner<T> {
        let plain = device.clone().inner();
        let device = learning_device(device, settings);
        let model = task.build(settings.run.seed, &device);
        Learner {
            ema: Ema::new(&model, settings.optimizer.ema_decay),
            task,
            model: Some(model),
            optimizer: settings.optimizer.kind.build(settings.optimizer.adam),
            reduce: Box::new(SingleProcess),
            device,
            settings: settings.clone(),
            step: 0,
            next: Cursor::START,
            micro_batches: settings.optimizer.grad_accum.max(1),
            frozen: Vec::new(),
            order: Vec::new(),
            steps_together: 0,
            new_faults: 0,
            leaked: Vec::new(),
            scale: settings.model.mixed_precision.then(|| LossScale::new(None, &plain)),
            injection: Injection::default(),
        }
    }

    /// Becomes what it was when the checkpoint was written.
    pub(crate) fn restore(&mut self, checkpoint: &Checkpoint) -> Result<(), WeightsError> {
        let plain = self.device.clone().inner();
        let model = weights::import(self.take(), &checkpoint.weights)?;
        optim::import_state(&mut *self.optimizer, &model, &checkpoint.optimizer, &plain)?;
        self.ema = Ema::import(&model, self.settings.optimizer.ema_decay, &checkpoint.ema)?;
        self.model = Some(model);
        if let Some(scale) = &mut self.scale {
            *scale = LossScale::new(checkpoint.state.loss_scale, &plain);
        }
        (self.step, self.next) = (checkpoint.state.step, checkpoint.state.next.into());
        // Micro-batches do not change the step but for rounding; with those of the run not even that.
        if self.settings.optimizer.grad_accum == checkpoint.state.settings.optimizer.grad_accum {
            self.micro_batches = checkpoint.state.micro_batches;
        }
        Ok(())
    }

    /// Starts with these weights instead of random ones (warm start).
    pub fn warm_start(&mut self, tensors: &Tensors) -> Result<(), WeightsError> {
        let model = weights::import(self.take(), tensors)?;
        self.ema = Ema::new(&model, self.settings.optimizer.ema_decay);
        self.model = Some(model);
        Ok(())
    }

    /// Parameters whose name begins with one of these parts do not change any more.
    pub fn freeze(&mut self, parts: &[&str]) {
        let is_frozen = |name: &str| parts.iter().any(|part| name.split('.').next() == Some(part));
        self.frozen = weights::parameters(self.model()).iter().map(|info| is_frozen(&info.name)).collect();
        // A checkpoint has the optimizer state of all parameters.
        self.allocate();
    }

    fn take(&mut self) -> T::Model {
        self.model.take().expect("absent only inside a step")
    }

    /// What it trains.
    pub fn task(&self) -> &T {
        &self.task
    }

    /// The averaged model: what validation, samples and synthesis use.
    pub fn ema(&self) -> &Ema<T::Model> {
        &self.ema
    }

    /// The model.
    pub fn model(&self) -> &T::Model {
        self.model.as_ref().expect("absent only inside a step")
    }

    /// The loss scale of mixed precision, for a checkpoint.
    pub fn loss_scale(&self) -> Option<[f32; 2]> {
        self.scale.as_ref().map(LossScale::save)
    }

    /// Where it trains; batches have to be there.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The optimizer state by name, for a checkpoint.
    pub fn optimizer_state(&self) -> weights::Tensors {
        optim::export_state(&*self.optimizer, self.model())
    }

    /// Steps done.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// The next batch.
    pub fn next(&self) -> Cursor {
        self.next
    }

    /// Trains as one of several ranks: batches are this one's rows, gradients are those of all.
    pub(crate) fn join(&mut self, reduce: Box<dyn Reduce>) {
        self.reduce = reduce;
    }

    /// Ranks that train together.
    pub(crate) fn world(&self) -> usize {
        self.reduce.world()
    }

    /// Numbers of all ranks, added by rank.
    pub(crate) fn add_up(&mut self, own: &[f64]) -> Result<Vec<f64>, ReduceError> {
        let bytes: Vec<u8> = own.iter().flat_map(|number| number.to_le_bytes()).collect();
        let mut sums = vec![0.0; own.len()];
        for numbers in self.reduce.gather(&bytes)? {
            for (sum, number) in sums.iter_mut().zip(numbers.chunks_exact(8)) {
                *sum += f64::from_le_bytes(number.try_into().expect("eight bytes"));
            }
        }
        Ok(sums)
    }

    /// What every rank has to say, by rank; if any rank has found bad clips that others do not know of. All ranks agree whether that is so.
    pub(crate) fn share_faults(&mut self, own: impl FnOnce() -> Vec<u8>) -> Result<Vec<Vec<u8>>, ReduceError> {
        if std::mem::take(&mut self.new_faults) == 0 { Ok(Vec::new()) } else { self.reduce.gather(&own()) }
    }

    /// See [`Reduce::set_stall_timeout`].
    pub(crate) fn set_stall_timeout(&self, timeout: Option<Duration>) {
        self.reduce.set_stall_timeout(timeout);
    }

    /// Notes where this rank is.
    pub(crate) fn note(&self, activity: Activity) {
        self.reduce.note(activity, self.step);
    }

    /// Allocates everything that is kept from step to step.
    pub fn allocate(&mut self) {
        let model = self.take();
        optim::allocate(&mut *self.optimizer, &model);
        self.model = Some(model);
    }

    /// A dry run: everything that a step does, with gradients that are not finite, so that it changes nothing. False if
    /// that is too much for the device's memory.
    pub fn dry_run(&mut self, inputs: &T::Inputs, micro_batches: usize) -> bool {
        let Some((values, grads)) = self.try_gradients(inputs, micro_batches) else { return false };
        let zero = Tensor::zeros([1], &self.device.clone().inner());
        let norm = self.apply(grads.divided_by(&zero), self.step + 1, 0.0);
        let _ = Tensor::cat(vec![values, norm], 0).into_data();
        true
    }

    /// Updates the weights; returns the norm of the gradients.
    fn apply(&mut self, grads: Grads, step: u64, lr: f64) -> Tensor<1> {
        let model = self.take();
        let max_grad_norm = self.settings.optimizer.max_grad_norm;
        let (model, norm) = optim::step(&mut *self.optimizer, model, grads, step, lr, max_grad_norm);
        self.model = Some(model);
        norm
    }

    /// Whether there is a model: not after a step that failed while it changed it.
    pub fn is_whole(&self) -> bool {
        self.model.is_some()
    }

    /// This rank's rows go through the device in at least so many micro-batches.
    pub fn split(&mut self, micro_batches: usize) {
        self.micro_batches = self.micro_batches.max(micro_batches * self.reduce.world());
    }

    /// Parameters and optimizer state that are not on the learner's device (SPEC D4); there should be none.
    pub fn misplaced(&self) -> Vec<String> {
        self.not_on(&self.device)
    }

    /// Parameters and optimizer state that are not on a device.
    pub fn not_on(&self, device: &Device) -> Vec<String> {
        let home = device.clone().inner();
        let mut names = Vec::new();
        weights::walk(self.model(), |parameter| {
            if parameter.device != home {
                names.push(parameter.name);
            }
        });
        if self.ema.devices().iter().any(|device| *device != home) {
            names.push("the averaged weights".to_owned());
        }
        let parameters = weights::parameters(self.model()).len();
        if optim::state_devices(&*self.optimizer, parameters).iter().any(|device| *device != home) {
            names.push("the optimizer state".to_owned());
        }
        names
    }

    /// Micro-batches that batches go through devices in, those of all ranks together.
    pub fn micro_batches(&self) -> usize {
        self.micro_batches
    }

    /// Those of this rank.
    pub fn own_micro_batches(&self) -> usize {
        self.micro_batches.div_ceil(self.reduce.world())
    }

    /// Trains on a batch. When it is too large for the device, it is split, and the step is the same.
    ///
    /// # Panics
    ///
    /// If there are other ranks: one that is missing, or wants to stop, is seen by [`Learner::step_together`].
    pub fn step(&mut self, ready: Ready<T::Inputs>) -> StepRecord {
        match self.step_together(ready, Vote::default()) {
            Ok(Stepped::Done(record)) => *record,
            other => panic!("{other:?}"),
        }
    }

    /// Trains on this rank's rows of a batch, together with the ranks that have the others. `wishes` says whether to stop.
    ///
    /// # Errors
    ///
    /// [`ReduceError`] if a rank is missing; then nothing has changed.
    pub fn step_together(&mut self, mut ready: Ready<T::Inputs>, wishes: Vote) -> Result<Stepped, ReduceError> {
        if self.injection.nan_at == Some(self.step + 1) {
            ready.inputs = T::poison(ready.inputs);
        }
        self.leaked.extend(self.injection.leak.map(|bytes| vec![1; bytes]));
        let home = self.device.clone().inner();
        // SPEC D5: copies are made in the transfer stage, never on the way.
        assert!(
            T::devices(&ready.inputs).iter().all(|device| *device == home),
            "a batch that is not on the model's device"
        );
        let vote = Vote {
            step: self.step,
            cursor: ready.cursor,
            clips: ready.clips.len() as u64,
            seconds: ready.seconds,
            counts: T::counts(&ready.inputs),
            micro_batches: self.micro_batches as u64,
            ..wishes
        };
        self.note(Activity::Reduce);
        let asked = Instant::now();
        let agreed = Agreed::of(&self.reduce.agree(&vote)?)?;
        let vote_wait = (asked, Instant::now());
        self.new_faults = agreed.new_faults;
        if agreed.early_stop || agreed.stop {
            return Ok(if agreed.early_stop { Stepped::EarlyStopped } else { Stepped::Stopped });
        }
        let alone = self.reduce.world() == 1;
        if agreed.clips == 0 && !alone {
            // A run that resumes finds that out again: what comes next is said by steps alone.
            return Ok(Stepped::Skipped);
        }
        self.micro_batches = agreed.micro_batches as usize;
        self.note(Activity::Train);
        self.inject_hang();
        let totals = T::totals(agreed.counts);
        let (Summed { values, grads, since }, heard) = if alone {
            let (values, grads) = self.gradients_that_fit_of(&ready.inputs, totals, None);
            (Summed { values, grads: grads.without(&self.frozen), since: Instant::now() }, Vec::new())
        } else {
            let shapes = optim::shapes(self.model(), &self.frozen);
            let summing = self.reduce.begin(T::TERMS.len(), shapes, &self.order, &home);
            let early = Rc::new(Early::new(summing, optim::places(self.model())));
            let (values, rest) = match ready.clips.is_empty() {
                false => self.gradients_that_fit_of(&ready.inputs, totals, Some(&early)),
                // This rank adds nothing.
                true => {
                    let none = early.index_of.iter().map(|_| None).collect();
                    (Tensor::zeros([T::TERMS.len()], &home), Grads::of(none))
                }
            };
            self.note(Activity::Reduce);
            let Early { summing, heard, .. } = Rc::into_inner(early).expect("nobody listens any more");
            (summing.into_inner().finish(values, rest.without(&self.frozen))?, heard.take())
        };
        let sum_wait = (since, Instant::now());
        self.agree_on_order(&heard)?;
        self.note(Activity::Train);
        debug_assert!(grads.devices().all(|device| device == home), "gradients that are not on the model's device");
        self.step += 1;
        let lr = self.settings.optimizer.lr.at(self.step);
        let norm = self.apply(grads, self.step, lr);
        self.ema.update(self.model.as_ref().expect("just put back"), self.step);
        if let Some(scale) = &mut self.scale {
            scale.update(&norm);
        }
        self.next = ready.cursor.next();
        Ok(Stepped::Done(Box::new(StepRecord {
            step: self.step,
            cursor: ready.cursor,
            clips: ready.clips,
            all_clips: agreed.clips,
            seconds: agreed.seconds,
            waits: if alone { Vec::new() } else { vec![vote_wait, sum_wait] },
            micro_batches: self.micro_batches,
            lr,
            values: Tensor::cat(vec![values, norm], 0),
        })))
    }

    /// Now and then: the order in which gradients come, that of the first rank that has any. A loss may get more terms after some steps.
    fn agree_on_order(&mut self, heard: &[usize]) -> Result<(), ReduceError> {
        self.steps_together += 1;
        if self.reduce.world() == 1 || !self.steps_together.is_power_of_two() {
            return Ok(());
        }
        let bytes: Vec<u8> = heard.iter().flat_map(|index| (*index as u32).to_le_bytes()).collect();
        let orders = self.reduce.gather(&bytes)?;
        if let Some(order) = orders.iter().find(|order| !order.is_empty()) {
            let index = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize;
            self.order = order.chunks_exact(4).map(index).collect();
        }
        Ok(())
    }

    fn inject_hang(&self) {
        while self.injection.hang_at == Some(self.step + 1) {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
}

/// A device as a model learns on it.
pub(crate) fn learning_device(device: &Device, settings: &TrainConfig) -> Device {
    let device = device.clone().autodiff();
    if settings.model.gradient_checkpointing { device.gradient_checkpointing() } else { device }
}

#[cfg(test)]
mod tests;
