//! Devices and what connects them.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `inventory.rs` | what devices there are; looking opens nothing |
//! | `placement.rs` | which device has which job: a pure function, with a table of tests |
//! | `open.rs`, `adapters.rs`, `cuda.rs` | from a placement to open devices, each once (feature `open`) |
//! | `self_test.rs` | whether a device computes what the CPU computes (feature `open`) |
//! | `wrong_result.rs` | what such a test finds |
//! | `reading.rs` | a figure with its source, or why there is none |
//! | `topology.rs` | what lies between two devices |
//! | `probes/` | memory, load and heat, from NVML and sysfs |
//! | `memory/` | limits, leaks, what would fit: pure functions |
//! | `simulated.rs` | devices with a speed, a memory, a link and faults, on a real or a virtual clock; always labeled |
//! | `cores.rs` | cores that several simulated lanes share |
//! | `cost.rs` | how long a piece of simulated work takes: mean, spread and a seed, the same on every run |
//!
//! ```
//! use std::time::Duration;
//! use tandem_device::{Cost, SimulatedDevice};
//! use tandem_flow::{Clock, Context};
//!
//! let context = Context::new(Clock::virtual_time());
//! let gpu = SimulatedDevice::new(&context, "gpu").speed(2.0);
//! gpu.work("train", 0, &Cost::fixed(Duration::from_millis(100)))?;
//! assert_eq!(context.clock.now(), Duration::from_millis(50));
//! # Ok::<(), tandem_device::SimulatedFault>(())
//! ```

#[cfg(feature = "wgpu")]
mod adapters;
mod cores;
mod cost;
#[cfg(feature = "cuda")]
mod cuda;
mod inventory;
pub mod memory;
#[cfg(feature = "open")]
mod open;
mod placement;
pub mod probes;
mod reading;
#[cfg(feature = "open")]
mod self_test;
mod simulated;
pub mod topology;
mod wrong_result;

pub use cores::SharedCores;
pub use cost::{Cost, CostError};
pub use inventory::{Backend, DeviceInfo, Inventory, Kind, Simulation};
#[cfg(feature = "open")]
pub use open::{DriverError, Lanes, OpenError};
pub use placement::{
    Fallback, FeaturesOn, LaneDevice, Mode, Placement, PlacementError, Request, Selector, Warning, resolve,
};
pub use reading::Reading;
#[cfg(feature = "open")]
pub use self_test::{SelfTestError, half_test, self_test, self_test_apart};
pub use simulated::{FaultKind, FaultPlan, FaultPlanError, SimulatedDevice, SimulatedFault, SimulatedLink};
pub use wrong_result::WrongResult;
