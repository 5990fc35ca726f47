//! What each lane takes of its device, and that it stays below its limit. Burn has no hard limit of its own: ours is
//! admission control. Batches lease their memory before work on them starts, the longest batch is tried row by row
//! before the first step, and the allocator's own counters are looked at after every step.

use std::sync::Arc;

use burn::tensor::Device;
use tandem_device::memory::{Lane, LaneMemory, Leak, LeakDetector, MemoryLimitExceeded};
use tandem_device::probes::{DeviceReadings, Probes};
use tandem_device::topology::PciAddress;
use tandem_device::{Backend, LaneDevice, Lanes};
use tandem_flow::{Budget, OverLimit};

use crate::feed::{Budgets, Feed};
use crate::lane::Gauge;
use crate::memory;
use crate::settings::TrainConfig;
use crate::task::SpeechTask;

/// What an allocator on a device takes more than it was seen to take, in pages.
const PAGES: u64 = 2 << 20;
/// Steps between two questions to the driver.
const PROBE_EVERY: u64 = 100;

/// Where a lane's figures come from.
pub(crate) enum Source {
    /// The allocator of the device, asked by the trainer, whose device it is.
    Pool(Device),
    /// The same of another thread's device: that thread asks, so that nobody waits for a device that is not his.
    Gauge(Arc<Gauge>),
    /// The memory of the process, less what the host holds for the data lane.
    Process(Box<dyn Fn() -> u64>),
    /// No counter: what is counted one by one.
    Counted,
}

impl Source {
    /// In use (where the two are distinguished) and held.
    fn read(&self) -> Option<(Option<u64>, u64)> {
        match self {
            Source::Pool(device) => {
                device.memory_pool_usage().map(|pool| (Some(pool.bytes_in_use), pool.bytes_reserved))
            }
            Source::Gauge(gauge) => gauge.get().map(|(in_use, reserved)| (Some(in_use), reserved)),
            Source::Process(host) => Some((None, memory::used_bytes().saturating_sub(host()))),
            Source::Counted => None,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Source::Pool(_) | Source::Gauge(_) => "the allocator's counters",
            Source::Process(_) => "memory of the process, less batches and features on the host",
            Source::Counted => "counted by us",
        }
    }
}

/// Watches the memory of one lane.
pub(crate) struct Guard {
    lane: Lane,
    source: Source,
    label: String,
    limit: Option<u64>,
    total: Option<u64>,
    budget: Budget,
    leak: LeakDetector,
    parameters: u64,
    /// What the largest step needs besides: activations and gradients, as the longest batch showed it.
    activations: u64,
    /// What it took at the last reading.
    before: u64,
    /// What the driver reports about the device, if it is on a bus; asked now and then.
    probe: Option<(Probes, PciAddress, Option<u32>)>,
    readings: Option<DeviceReadings>,
}

impl Guard {
    pub(crate) fn new(lane: Lane, source: Source, at: &LaneDevice, limit: Option<u64>, budget: &Budget) -> Guard {
        let threshold = match lane {
            Lane::Data => tandem_device::memory::LEAK_DATA_LANE,
            Lane::Model => tandem_device::memory::LEAK_MODEL_LANE,
        };
        Guard {
            lane,
            source,
            label: at.label(),
            limit,
            total: at.memory_bytes,
            budget: budget.clone(),
            leak: LeakDetector::new(threshold),
            parameters: 0,
            activations: 0,
            before: 0,
            probe: at.pci.clone().map(|pci| (Probes::new(), pci, at.vendor)),
            readings: None,
        }
    }

    /// The limit, if there is one.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// The lane's device, as users know it.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// The model is to live here: an error when it alone is too large. Nothing is on the device yet.
    pub(crate) fn admit_model(&mut self, parameters: usize) -> Result<(), MemoryLimitExceeded> {
        self.parameters = 4 * parameters as u64;
        self.check_against(0, 5 * self.parameters, "parameters, their average, gradients and the optimizer state")?;
        self.provide_for_steps(0);
        Ok(())
    }

    /// What is there all the time: parameters, their average and the optimizer state.
    pub(crate) fn held_bytes(&self) -> u64 {
        4 * self.parameters
    }

    /// One set of gradients.
    pub(crate) fn gradient_bytes(&self) -> u64 {
        self.parameters
    }

    /// What is left for batches that wait here, once the largest step is provided for.
    pub(crate) fn provide_for_steps(&mut self, activations: u64) {
        self.activations = activations;
        self.before = self.held_now();
        if let Some(limit) = self.limit {
            let left = limit.saturating_sub(self.held_bytes() + activations);
            self.budget.set_limit(usize::try_from(left).unwrap_or(usize::MAX));
        }
    }

    /// Whether its device has its memory in common with the host.
    pub(crate) fn shares_host(&self) -> bool {
        !matches!(self.source, Source::Pool(_))
    }

    /// How much more than before the lane takes at most during `work`. Where its memory is the host's, the data lane may
    /// be at work in it too: of three times the middle one counts.
    pub(crate) fn trial(&self, before: u64, mut work: impl FnMut()) -> u64 {
        if self.shares_host() {
            let times = if self.limit.is_some() { 3 } else { 1 };
            let mut took: Vec<u64> = (0..times).map(|_| memory::most_used_during(&mut work).1).collect();
            took.sort_unstable();
            return took[took.len() / 2];
        }
        work();
        // The allocator keeps its pages, so that what it holds afterwards is the most that it held. It grows by whole
        // pages and finds other gaps every time: some room is left for that.
        let grown = self.held_now().saturating_sub(before);
        grown + grown / 8 + PAGES
    }

    /// What the allocator holds of the device.
    pub(crate) fn held_now(&self) -> u64 {
        self.source.read().map_or(0, |(_, held)| held)
    }

    /// After a step or a batch: what the lane takes, and whether that grows and grows. An error when it takes more than it
    /// may, even after unused pages were given back.
    pub(crate) fn read(&mut self, step: u64) -> Result<(LaneMemory, Option<Leak>), MemoryLimitExceeded> {
        if step.is_multiple_of(PROBE_EVERY) || self.readings.is_none() {
            self.readings = self.probe.as_ref().map(|(probes, pci, vendor)| probes.read(Some(pci), *vendor));
        }
        let mut reading = self.reading();
        if let Some(limit) = self.limit
            && reading.used_bytes() > limit
        {
            self.give_back();
            reading = self.reading();
            let before = self.before.min(limit);
            self.check_against(before, reading.used_bytes().saturating_sub(before), "a step")?;
        }
        self.before = reading.used_bytes();
        let leak = self.leak.observe(step, reading.used_bytes());
        Ok((reading, leak))
    }

    /// An error when `requested` more would be too much.
    pub(crate) fn check_against(&self, used: u64, requested: u64, what: &str) -> Result<(), MemoryLimitExceeded> {
        match self.limit {
            Some(limit) if used.saturating_add(requested) > limit => Err(self.exceeded(limit, used, requested, what)),
            _ => Ok(()),
        }
    }

    fn exceeded(&self, limit: u64, used: u64, requested: u64, what: &str) -> MemoryLimitExceeded {
        let what = what.to_owned();
        MemoryLimitExceeded { lane: self.lane, limit_bytes: limit, used_bytes: used, requested_bytes: requested, what }
    }

    /// A batch that its budget refused, in the lane's own figures.
    pub(crate) fn refused(&self, over: &OverLimit) -> MemoryLimitExceeded {
        let rest = self.held_bytes() + self.activations;
        let limit = self.limit.unwrap_or(over.limit_bytes as u64);
        self.exceeded(limit, rest + over.used_bytes as u64, over.requested_bytes as u64, "a batch")
    }

    /// Lets the allocator give back what it does not use.
    pub(crate) fn give_back(&self) {
        if let Source::Pool(device) = &self.source {
            device.memory_cleanup();
        }
    }

    /// An error when the lane holds more than it may before the first step.
    pub(crate) fn check_now(&self, what: &str) -> Result<(), MemoryLimitExceeded> {
        let (held, known) = (self.held_now(), self.held_bytes());
        self.check_against(known.min(held), held.saturating_sub(known), what)
    }

    /// All figures, and where they are from.
    fn reading(&self) -> LaneMemory {
        let pool = self.source.read();
        let batches = self.budget.used_bytes() as u64;
        let counted = batches + self.held_bytes() + self.activations;
        let readings = self.readings.as_ref();
        let mut source = self.source.name().to_owned();
        if let Some(from) = readings.and_then(|readings| readings.memory_used.source()) {
            source = format!("{source}; {from}");
        }
        LaneMemory {
            lane: self.lane,
            device: self.label.clone(),
            limit_bytes: self.limit,
            batches_bytes: batches,
            parameters_bytes: self.parameters,
            optimizer_bytes: 2 * self.parameters,
            // They come and go with a step, and are among its activations.
            gradients_bytes: 0,
            pool_in_use_bytes: pool.and_then(|(in_use, _)| in_use),
            pool_reserved_bytes: Some(pool.map_or(counted, |(_, held)| held)),
            device_used_bytes: readings.and_then(|readings| readings.memory_used.value().copied()),
            device_total_bytes: readings.and_then(|readings| readings.memory_total.value().copied()).or(self.total),
            device_load_percent: readings.and_then(|readings| readings.utilization.value().copied()),
            source,
        }
    }
}

/// What watches the memory of the data lane and of the model lane.
pub(crate) fn guards<T: SpeechTask>(
    feed: &Feed<T>,
    settings: &TrainConfig,
    lanes: &Lanes,
    budgets: &Budgets,
) -> (Guard, Guard) {
    let Lanes { placement, model, .. } = lanes;
    let data_source = feed.lane_gauge().map_or(Source::Counted, Source::Gauge);
    let model_source = if model.memory_pool_usage().is_some() {
        Source::Pool(model.clone())
    } else if placement.model.backend == Backend::Cpu {
        Source::Process(feed.host_meter())
    } else {
        Source::Counted
    };
    (
        Guard::new(Lane::Data, data_source, &placement.data, settings.memory.data_limit, &budgets.data),
        Guard::new(Lane::Model, model_source, &placement.model, settings.memory.model_limit, &budgets.model),
    )
}
