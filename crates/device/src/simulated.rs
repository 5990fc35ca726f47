//! Simulated devices: for scheduling, faults and what-if. Everything they produce is labeled `simulated`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tandem_flow::{Budget, Clock, Context, Lease, OverLimit, Oversize, Stop};

use crate::cost::Cost;

/// A device that takes time and memory and does nothing else. Clones are the same device.
#[derive(Clone, Debug)]
pub struct SimulatedDevice {
    name: Arc<str>,
    clock: Clock,
    stop: Stop,
    seed: u64,
    speed: f64,
    /// How many pieces of work it does at once: one for a GPU, its cores for a host.
    slots: Option<Budget>,
    memory: Budget,
    faults: Vec<FaultPlan>,
}

impl SimulatedDevice {
    /// A device of speed 1 with unlimited memory that does any number of things at once.
    pub fn new(context: &Context, name: &str) -> SimulatedDevice {
        SimulatedDevice {
            name: name.into(),
            clock: context.clock.clone(),
            stop: context.stop.clone(),
            seed: 0,
            speed: 1.0,
            slots: None,
            memory: Budget::new(name, usize::MAX, Oversize::Refuse),
            faults: Vec::new(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Twice the speed halves every duration.
    pub fn speed(mut self, speed: f64) -> SimulatedDevice {
        self.speed = speed;
        self
    }

    /// Another seed gives other jitter.
    pub fn seed(mut self, seed: u64) -> SimulatedDevice {
        self.seed = seed;
        self
    }

    /// Does at most this much at once; the rest waits its turn.
    pub fn slots(mut self, slots: usize) -> SimulatedDevice {
        self.slots = Some(Budget::new(&self.name, slots.max(1), Oversize::Refuse));
        self
    }

    /// Has this much memory.
    pub fn memory(mut self, bytes: usize) -> SimulatedDevice {
        self.memory = Budget::new(&self.name, bytes, Oversize::Refuse);
        self
    }

    /// Will misbehave as planned.
    pub fn faults(mut self, faults: impl IntoIterator<Item = FaultPlan>) -> SimulatedDevice {
        self.faults.extend(faults);
        self
    }

    /// Takes memory, or says that there is none left.
    pub fn allocate(&self, bytes: usize) -> Result<Lease, SimulatedFault> {
        self.memory.try_lease(bytes).map_err(|over| self.fault(SimulatedFaultKind::OutOfMemory(Some(over))))
    }

    /// Its memory, for a flow to lease from.
    pub fn memory_budget(&self) -> &Budget {
        &self.memory
    }

    /// Does piece `number` of the work called `name`.
    pub fn work(&self, name: &str, number: u64, cost: &Cost) -> Result<(), SimulatedFault> {
        let _slot = self.slots.as_ref().map(|slots| slots.lease(&self.clock, 1).expect("one slot always fits"));
        let mut duration = cost.draw(self.seed, name, number).div_f64(self.speed);
        for fault in self.faults.iter().filter(|fault| fault.stage == name && number >= fault.at) {
            if number > fault.at && !matches!(fault.kind, FaultKind::Slow(_)) {
                continue;
            }
            match fault.kind {
                FaultKind::Slow(factor) => duration = duration.mul_f64(factor),
                FaultKind::Error => return Err(self.fault(SimulatedFaultKind::Error)),
                FaultKind::Panic => panic!("simulated panic of {} in {name}", self.name),
                FaultKind::Hang => {
                    self.stop.wait(&self.clock);
                    return Err(self.fault(SimulatedFaultKind::Hang));
                }
                FaultKind::OutOfMemory => return Err(self.fault(SimulatedFaultKind::OutOfMemory(None))),
            }
        }
        self.clock.sleep(duration);
        Ok(())
    }

    fn fault(&self, kind: SimulatedFaultKind) -> SimulatedFault {
        SimulatedFault { device: self.name.clone(), kind }
    }
}

/// A link between two devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedLink {
    /// Bytes per second.
    pub bandwidth: f64,
    /// Before the first byte arrives.
    pub latency: Duration,
}

impl SimulatedLink {
    /// How long it takes to copy `bytes`.
    pub fn time(&self, bytes: usize) -> Duration {
        self.latency + Duration::from_secs_f64(bytes as f64 / self.bandwidth)
    }
}

/// A fault to come: `preprocess:hang@17` makes the stage hang at its 17th piece of work (counted from zero).
#[derive(Clone, Debug, PartialEq)]
pub struct FaultPlan {
    /// The work that is hit.
    pub stage: String,
    /// At which piece.
    pub at: u64,
    /// How.
    pub kind: FaultKind,
}

/// How a device misbehaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// From then on this many times slower.
    Slow(f64),
    /// The work fails.
    Error,
    /// The work panics.
    Panic,
    /// The work never returns (until the run is given up).
    Hang,
    /// The work finds no memory.
    OutOfMemory,
}

/// Why a text is not a [`FaultPlan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultPlanError(String);

impl fmt::Display for FaultPlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a fault, write STAGE:KIND@BATCH, for example `preprocess:hang@17`; \
             KIND is error, panic, hang, oom or slowFACTOR",
            self.0
        )
    }
}

impl std::error::Error for FaultPlanError {}

impl FromStr for FaultPlan {
    type Err = FaultPlanError;

    fn from_str(text: &str) -> Result<FaultPlan, FaultPlanError> {
        let parse = || {
            let (stage, rest) = text.split_once(':')?;
            let (kind, at) = rest.split_once('@')?;
            let kind = match kind {
                "error" => FaultKind::Error,
                "panic" => FaultKind::Panic,
                "hang" => FaultKind::Hang,
                "oom" => FaultKind::OutOfMemory,
                _ => {
                    let factor: f64 = kind.strip_prefix("slow")?.parse().ok()?;
                    FaultKind::Slow((factor.is_finite() && factor > 0.0).then_some(factor)?)
                }
            };
            Some(FaultPlan { stage: stage.to_owned(), at: at.parse().ok()?, kind })
        };
        parse().ok_or_else(|| FaultPlanError(text.to_owned()))
    }
}

/// What a simulated device reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedFault {
    device: Arc<str>,
    kind: SimulatedFaultKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SimulatedFaultKind {
    Error,
    Hang,
    OutOfMemory(Option<OverLimit>),
}

impl SimulatedFault {
    /// Whether the device had no memory left.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self.kind, SimulatedFaultKind::OutOfMemory(_))
    }
}

impl fmt::Display for SimulatedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = &self.device;
        match &self.kind {
            SimulatedFaultKind::Error => write!(f, "simulated error of device `{device}`"),
            SimulatedFaultKind::Hang => write!(f, "simulated hang of device `{device}`"),
            SimulatedFaultKind::OutOfMemory(None) => write!(f, "simulated out of memory on device `{device}`"),
            SimulatedFaultKind::OutOfMemory(Some(over)) => {
                write!(f, "simulated out of memory on device `{device}`: {over}")
            }
        }
    }
}

impl std::error::Error for SimulatedFault {}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn speed_divides_and_slots_queue() {
        let context = Context::new(Clock::virtual_time());
        let host = SimulatedDevice::new(&context, "host").slots(2).speed(2.0);
        let threads: Vec<_> = (0..4)
            .map(|n| {
                let host = host.clone();
                context.clock.spawn(&format!("t{n}"), move || host.work("w", n, &Cost::fixed(100 * MS)).expect("fine"))
            })
            .collect();
        for thread in threads {
            assert!(thread.join(None));
        }
        assert_eq!(context.clock.now(), 100 * MS, "four pieces of 50 ms on two slots");
    }

    #[test]
    fn memory_ends_and_comes_back() {
        let device = SimulatedDevice::new(&Context::new(Clock::virtual_time()), "gpu").memory(100);
        let held = device.allocate(60).expect("fits");
        let refused = device.allocate(60).expect_err("does not fit");
        assert!(refused.is_out_of_memory());
        assert!(refused.to_string().contains("limit 100 bytes, used 60, asked 60"), "{refused}");
        drop(held);
        assert!(device.allocate(60).is_ok());
    }

    #[test]
    fn a_link_takes_its_latency_and_its_bandwidth() {
        let link = SimulatedLink { bandwidth: 1e9, latency: MS };
        assert_eq!(link.time(5_000_000), 6 * MS);
    }

    #[test]
    fn faults_are_injected_where_they_are_planned() {
        let context = Context::new(Clock::virtual_time());
        let plan = |text: &str| text.parse::<FaultPlan>().expect("valid");
        let device = SimulatedDevice::new(&context, "gpu").faults([
            plan("train:slow3@2"),
            plan("train:error@4"),
            plan("train:oom@5"),
            plan("copy:panic@0"),
        ]);
        let cost = Cost::fixed(10 * MS);
        let took = |number| {
            let before = context.clock.now();
            device.work("train", number, &cost).map(|()| context.clock.now() - before)
        };
        assert_eq!((took(1), took(2), took(3)), (Ok(10 * MS), Ok(30 * MS), Ok(30 * MS)));
        assert!(took(4).is_err_and(|fault| !fault.is_out_of_memory()));
        assert!(took(5).is_err_and(|fault| fault.is_out_of_memory()));
        assert_eq!(took(6), Ok(30 * MS));
        assert!(std::panic::catch_unwind(|| device.work("copy", 0, &cost)).is_err());
    }

    #[test]
    fn a_malformed_fault_is_refused() {
        for text in ["", "train", "train:error", "train:burn@3", "train:slow@3", "train:slow-1@3", "train:error@x"] {
            assert!(text.parse::<FaultPlan>().is_err(), "{text}");
        }
    }
}
