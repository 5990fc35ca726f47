//! One step: losses, gradients, update. Whatever it does depends on the batch and the state alone.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use tandem_flow::Cursor;
use tandem_model::kernels::with_half_products;
use tandem_model::weights::{self, WeightsError};
use tandem_model::{Device, Inputs, Losses, ModelConfig, Totals, Voice};

use crate::checkpoint::Checkpoint;
use crate::features::Ready;
use crate::optimiser::{AdamW, Grads};
use crate::scale::LossScale;
use crate::settings::TrainSettings;

/// Faults on purpose, for tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injection {
    /// At this step the sound of the batch is not a number.
    pub nan_at: Option<u64>,
    /// From this step on, more than this many clips at once are too many for the memory.
    pub out_of_memory: Option<(u64, usize)>,
    /// Every step keeps so many bytes for good.
    pub leak: Option<usize>,
}

/// A model that learns.
pub struct Learner {
    model: Option<Voice>,
    optimiser: AdamW,
    device: Device,
    settings: TrainSettings,
    step: u64,
    next: Cursor,
    parts: usize,
    scale: Option<LossScale>,
    leaked: Vec<Vec<u8>>,
    /// Faults on purpose.
    pub injection: Injection,
}

/// What a step did. Its numbers are still on the device: reading them waits for it.
#[derive(Debug)]
pub struct StepRecord {
    /// Which step, counted from 1.
    pub step: u64,
    /// The batch's place in the run.
    pub cursor: Cursor,
    /// Its clips.
    pub clips: Vec<u32>,
    /// Its seconds of audio.
    pub seconds: f64,
    /// Parts that it was split into.
    pub parts: usize,
    /// The learning rate.
    pub rate: f64,
    /// The terms of the loss ([`Losses::NAMES`]), then the norm of the gradients.
    values: Tensor<1>,
}

/// The numbers of a step.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct StepValues {
    /// The sum of the terms.
    pub loss: f64,
    /// The terms, in the order of [`Losses::NAMES`].
    pub terms: [f64; 3],
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
        if records.is_empty() {
            return Vec::new();
        }
        let all = Tensor::cat(records.iter().map(|record| record.values.clone()).collect(), 0);
        let all = all.into_data().try_into_vec::<f32>().expect("losses are single precision");
        all.chunks(4)
            .map(|values| {
                let terms: [f64; 3] = std::array::from_fn(|n| f64::from(values[n]));
                StepValues { loss: terms.iter().sum(), terms, norm: f64::from(values[3]) }
            })
            .collect()
    }
}

impl Learner {
    /// A model that has learned nothing yet.
    pub fn new(config: &ModelConfig, settings: &TrainSettings, device: &Device) -> Learner {
        let plain = device.clone().inner();
        let device = learning_device(device, settings);
        Learner {
            model: Some(Voice::new(config, settings.seed, &device)),
            optimiser: AdamW::new(settings.adam),
            device,
            settings: settings.clone(),
            step: 0,
            next: Cursor::START,
            parts: settings.accumulate.max(1),
            leaked: Vec::new(),
            scale: settings.mixed_precision.then(|| LossScale::new(None, &plain)),
            injection: Injection::default(),
        }
    }

    /// Goes on from a checkpoint.
    pub fn resume(checkpoint: &Checkpoint, settings: &TrainSettings, device: &Device) -> Result<Learner, WeightsError> {
        let mut learner = Learner::new(&checkpoint.state.model, settings, device);
        let model = weights::import(learner.model.take().expect("just made"), &checkpoint.weights)?;
        learner.optimiser = AdamW::import(settings.adam, &model, &checkpoint.optimiser, &device.clone().inner())?;
        learner.model = Some(model);
        if let Some(scale) = &mut learner.scale {
            *scale = LossScale::new(checkpoint.state.loss_scale, &device.clone().inner());
        }
        (learner.step, learner.next) = (checkpoint.state.step, checkpoint.state.next.into());
        // Parts do not change the step but for rounding; with those of the run not even that.
        if settings.accumulate == checkpoint.state.settings.accumulate {
            learner.parts = checkpoint.state.parts;
        }
        Ok(learner)
    }

    /// The model.
    pub fn model(&self) -> &Voice {
        self.model.as_ref().expect("absent only inside a step")
    }

    /// The loss scale of half precision, for a checkpoint.
    pub fn loss_scale(&self) -> Option<[f32; 2]> {
        self.scale.as_ref().map(LossScale::save)
    }

    /// Where it learns; batches have to be there.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The optimiser.
    pub fn optimiser(&self) -> &AdamW {
        &self.optimiser
    }

    /// Steps done.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// The next batch.
    pub fn next(&self) -> Cursor {
        self.next
    }

    /// Losses and gradients of a batch that goes through the device in `parts`, one after the other: the same as if
    /// it went at once.
    pub fn gradients(&self, inputs: &Inputs, parts: usize) -> (Tensor<1>, Grads) {
        let all = inputs.rows();
        let totals = Totals::new(&inputs.sound.lengths, &inputs.text.lengths);
        let prior = 1.0 - self.step as f32 / self.settings.prior_steps.max(1) as f32;
        let rows = all.div_ceil(parts.max(1)).max(1);
        let mut sum: Option<(Tensor<1>, Grads)> = None;
        for first in (0..all).step_by(rows) {
            let part = inputs.part(first..(first + rows).min(all));
            self.fail_on_purpose(part.rows());
            let half = self.scale.is_some();
            let (losses, _) = with_half_products(half, || self.model().losses(&part, totals, prior.max(0.0), true));
            let total = match &self.scale {
                Some(scale) => losses.total() * Tensor::from_inner(scale.factor()),
                None => losses.total(),
            };
            let grads = Grads::new(GradientsParams::from_grads(total.backward(), self.model()), self.model());
            let grads = self.scale.iter().fold(grads, |grads, scale| grads.divided_by(&scale.factor()));
            let values = Losses::values(&losses).inner();
            sum = Some(match sum {
                None => (values, grads),
                Some((values_before, before)) => (values_before + values, before.plus(grads)),
            });
        }
        sum.expect("a batch has rows")
    }

    /// The same, in as few parts as the device's memory allows, beginning with what was enough before.
    pub fn gradients_that_fit(&mut self, inputs: &Inputs) -> (Tensor<1>, Grads) {
        loop {
            match self.try_gradients(inputs, self.parts) {
                Some(result) => return result,
                None if self.parts < inputs.rows() => self.parts *= 2,
                None => panic!("out of memory: not even one clip at a time fits"),
            }
        }
    }

    /// The same in so many parts; none if that is too much for the device's memory.
    pub fn try_gradients(&self, inputs: &Inputs, parts: usize) -> Option<(Tensor<1>, Grads)> {
        match catch_unwind(AssertUnwindSafe(|| self.gradients(inputs, parts))) {
            Ok(result) => Some(result),
            Err(panic) if is_out_of_memory(&*panic) => None,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Makes room for everything that is kept from step to step.
    pub fn make_room(&mut self) {
        let model = self.model.take().expect("absent only inside a step");
        self.optimiser.prepare(&model);
        self.model = Some(model);
    }

    /// Everything that a step does, with gradients that are not finite, so that it changes nothing: to see what it
    /// takes. False if that is too much for the device's memory.
    pub fn rehearse(&mut self, inputs: &Inputs, parts: usize) -> bool {
        let Some((values, grads)) = self.try_gradients(inputs, parts) else { return false };
        let zero = Tensor::zeros([1], &self.device.clone().inner());
        let model = self.model.take().expect("absent only inside a step");
        let grads = grads.divided_by(&zero);
        let (model, norm) = self.optimiser.step(model, grads, self.step + 1, 0.0, self.settings.clip);
        self.model = Some(model);
        let _ = Tensor::cat(vec![values, norm], 0).into_data();
        true
    }

    /// Whether there is a model: not after a step that failed while it changed it.
    pub fn is_whole(&self) -> bool {
        self.model.is_some()
    }

    /// Batches go through the device in at least so many parts.
    pub fn split(&mut self, parts: usize) {
        self.parts = self.parts.max(parts);
    }

    /// Parameters and memories of the optimiser that are not on the learner's device (SPEC D4); there should be none.
    pub fn misplaced(&self) -> Vec<String> {
        self.not_on(&self.device)
    }

    /// Parameters and memories of the optimiser that are not on a device.
    pub fn not_on(&self, device: &Device) -> Vec<String> {
        let home = device.clone().inner();
        let mut names = Vec::new();
        weights::walk(self.model(), |parameter| {
            if parameter.device != home {
                names.push(parameter.name);
            }
        });
        if self.optimiser.devices().any(|device| device != home) {
            names.push("the optimiser's memory".to_owned());
        }
        names
    }

    /// Parts that batches go through the device in.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// Learns from a batch. When it is too large for the device, it is split, and the step is the same.
    pub fn step(&mut self, mut ready: Ready) -> StepRecord {
        if self.injection.nan_at == Some(self.step + 1) {
            ready.inputs.sound.mel = ready.inputs.sound.mel * f32::NAN;
        }
        self.leaked.extend(self.injection.leak.map(|bytes| vec![1; bytes]));
        let home = self.device.clone().inner();
        // SPEC D5: copies are made in the transfer stage, never on the way.
        assert!(
            ready.inputs.devices().iter().all(|device| *device == home),
            "a batch that is not on the model's device"
        );
        let (values, grads) = self.gradients_that_fit(&ready.inputs);
        debug_assert!(grads.devices().all(|device| device == home), "gradients that are not on the model's device");
        self.step += 1;
        let rate = self.settings.rate.at(self.step);
        let model = self.model.take().expect("absent only inside a step");
        let (model, norm) = self.optimiser.step(model, grads, self.step, rate, self.settings.clip);
        self.model = Some(model);
        if let Some(scale) = &mut self.scale {
            scale.update(&norm);
        }
        self.next = Cursor { epoch: ready.cursor.epoch, batch: ready.cursor.batch + 1 };
        StepRecord {
            step: self.step,
            cursor: ready.cursor,
            clips: ready.clips,
            seconds: ready.seconds,
            parts: self.parts,
            rate,
            values: Tensor::cat(vec![values, norm], 0),
        }
    }

    fn fail_on_purpose(&self, rows: usize) {
        if let Some((step, most)) = self.injection.out_of_memory
            && self.step + 1 >= step
            && rows > most
        {
            panic!("out of memory (injected): {rows} clips, {most} fit");
        }
    }
}

/// A device as a model learns on it.
pub(crate) fn learning_device(device: &Device, settings: &TrainSettings) -> Device {
    let device = device.clone().autodiff();
    if settings.gradient_checkpointing { device.gradient_checkpointing() } else { device }
}

/// Drivers and allocators word it differently; none of them has a type for it that reaches us.
fn is_out_of_memory(panic: &(dyn std::any::Any + Send)) -> bool {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or_default().to_lowercase();
    ["out of memory", "outofmemory", "memory allocation", "not enough memory", "allocation failed"]
        .iter()
        .any(|words| text.contains(words))
}
