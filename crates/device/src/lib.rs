//! Devices and what connects them.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `simulated.rs` | devices with a speed, a memory, a link and faults, on a real or a virtual clock; always labelled |
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

mod cost;
mod simulated;

pub use cost::{Cost, CostError};
pub use simulated::{FaultKind, FaultPlan, FaultPlanError, SimulatedDevice, SimulatedFault, SimulatedLink};
