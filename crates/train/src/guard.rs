//! What each lane takes of its device, and that it stays below its limit. Burn has no hard limit of its own: ours is
//! admission control. Batches lease their memory before work on them starts, the longest batch is tried row by row
//! before the first step, and the allocator's own counters are looked at after every step.

use burn::tensor::Device;
use tandem_device::memory::{Lane, LaneMemory, Leak, LeakDetector, MemoryLimitExceeded};
use tandem_device::probes::Probes;
use tandem_device::topology::PciAddress;
use tandem_device::{Backend, LaneDevice};
use tandem_flow::Budget;

use crate::memory;

/// Watches the memory of one lane.
pub(crate) struct Guard {
    lane: Lane,
    device: Device,
    label: String,
    backend: Backend,
    limit: Option<u64>,
    total: Option<u64>,
    budget: Budget,
    leak: LeakDetector,
    parameters: u64,
    /// What the largest step needs besides: activations and gradients, as the longest batch showed it.
    activations: u64,
    /// What the driver tells about the device, if it is on a bus.
    probe: Option<(Probes, PciAddress, Option<u32>)>,
}

impl Guard {
    pub(crate) fn new(lane: Lane, device: &Device, at: &LaneDevice, limit: Option<u64>, budget: &Budget) -> Guard {
        let threshold = match lane {
            Lane::Data => tandem_device::memory::LEAK_DATA_LANE,
            Lane::Model => tandem_device::memory::LEAK_MODEL_LANE,
        };
        if let Some(limit) = limit {
            budget.set_limit(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        Guard {
            lane,
            device: device.clone(),
            label: at.label(),
            backend: at.backend,
            limit,
            total: at.memory_bytes,
            budget: budget.clone(),
            leak: LeakDetector::new(threshold),
            parameters: 0,
            activations: 0,
            probe: at.pci.clone().map(|pci| (Probes::new(), pci, at.vendor)),
        }
    }

    /// The limit, if there is one.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// The model is to live here: an error when it alone is too large. Nothing is on the device yet.
    pub(crate) fn admit_model(&mut self, parameters: usize) -> Result<(), MemoryLimitExceeded> {
        self.parameters = 4 * parameters as u64;
        self.check_against(0, 4 * self.parameters, "parameters, gradients and the optimiser")
    }

    /// Until it is known what a step takes, one batch may wait here, of at most this size.
    pub(crate) fn one_batch(&self, bytes: usize) {
        if self.limit.is_some() {
            self.budget.set_limit(bytes);
        }
    }

    /// What is there all the time: parameters and the optimiser's memory of them.
    pub(crate) fn held_bytes(&self) -> u64 {
        3 * self.parameters
    }

    /// What is left for batches that wait here, once the largest step is provided for.
    pub(crate) fn provide_for_steps(&mut self, activations: u64) {
        self.activations = activations;
        if let Some(limit) = self.limit {
            let left = limit.saturating_sub(self.held_bytes() + activations);
            self.budget.set_limit(usize::try_from(left).unwrap_or(usize::MAX));
        }
    }

    /// The lane's device, as users know it.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// Whether its device has its memory in common with the host.
    pub(crate) fn shares_host(&self) -> bool {
        self.device.memory_pool_usage().is_none()
    }

    /// How much more than before the lane takes at most during `work`. Where its memory is the host's, the data lane may
    /// be at work in it too: of two times the lesser counts.
    pub(crate) fn trial(&self, before: u64, mut work: impl FnMut()) -> u64 {
        if self.shares_host() {
            let times = if self.limit.is_some() { 2 } else { 1 };
            return (0..times).map(|_| memory::most_used_during(&mut work).1).min().unwrap_or(0);
        }
        work();
        // The allocator keeps its pages, so that what it holds afterwards is the most that it held.
        self.pool_bytes().saturating_sub(before)
    }

    /// What the allocator holds of the device.
    pub(crate) fn pool_bytes(&self) -> u64 {
        self.device.memory_pool_usage().map_or(0, |pool| pool.bytes_reserved)
    }

    /// After a step or a batch: what the lane takes, and whether that grows and grows. An error when it takes more than it
    /// may, even after unused pages were given back.
    pub(crate) fn look(&mut self, step: u64) -> Result<(LaneMemory, Option<Leak>), MemoryLimitExceeded> {
        let mut reading = self.reading();
        if let Some(limit) = self.limit
            && reading.used_bytes() > limit
        {
            self.device.memory_cleanup();
            reading = self.reading();
            let used = reading.used_bytes();
            self.check_against(used.min(limit), used.saturating_sub(limit), "a step")?;
        }
        let leak = self.leak.observe(step, reading.used_bytes());
        Ok((reading, leak))
    }

    /// An error when `asked` more would be too much.
    pub(crate) fn check_against(&self, used: u64, asked: u64, what: &str) -> Result<(), MemoryLimitExceeded> {
        match self.limit {
            Some(limit) if used.saturating_add(asked) > limit => Err(MemoryLimitExceeded {
                lane: self.lane,
                limit_bytes: limit,
                used_bytes: used,
                asked_bytes: asked,
                what: what.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// All figures, each with its source.
    pub(crate) fn reading(&self) -> LaneMemory {
        let pool = self.device.memory_pool_usage();
        let probe = self.probe.as_ref().map(|(probes, pci, vendor)| probes.read(Some(pci), *vendor));
        let is_cpu = self.backend == Backend::Cpu;
        let mut source = match (&pool, is_cpu) {
            (Some(_), _) => "the allocator's counters",
            (None, true) => "memory of the process",
            (None, false) => "counted by us",
        }
        .to_owned();
        let (device_used, device_total) = match &probe {
            Some(readings) => {
                if let Some(from) = readings.memory_used.source() {
                    source = format!("{source}, {from}");
                }
                (readings.memory_used.value().copied(), readings.memory_total.value().copied())
            }
            None if is_cpu => (memory::resident_bytes(), None),
            None => (None, None),
        };
        let optimiser = 2 * self.parameters;
        let counted = self.budget.used_bytes() as u64 + self.held_bytes() + self.activations;
        LaneMemory {
            lane: self.lane,
            device: self.label.clone(),
            limit_bytes: self.limit,
            batches_bytes: self.budget.used_bytes() as u64,
            parameters_bytes: self.parameters,
            optimiser_bytes: optimiser,
            // They come and go with a step, and are among its activations.
            gradients_bytes: 0,
            pool_in_use_bytes: pool.as_ref().map(|pool| pool.bytes_in_use),
            // Where there is no pool, the process's memory or the sum of what we know stands for it.
            pool_reserved_bytes: match &pool {
                Some(pool) => Some(pool.bytes_reserved),
                None if is_cpu && self.lane == Lane::Model => memory::resident_bytes(),
                None => Some(counted),
            },
            device_used_bytes: device_used,
            device_total_bytes: device_total.or(self.total),
            device_load_percent: probe.as_ref().and_then(|readings| readings.utilisation.value().copied()),
            source,
        }
    }
}
