//! Device memory as plain numbers: what each lane may take, whether it leaks, what would fit and what to show.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `limits.rs` | the best limits of the two lanes on given devices, and the error when one is exceeded |
//! | `leak.rs` | distinguishes a leak from an allocator that grows and lets go |
//! | `ladder.rs` | before the run: what the batch asked for needs, and what would fit instead |
//! | `account.rs` | the memory statistics of a lane and the line that shows them |

mod account;
mod ladder;
mod leak;
mod limits;

pub use account::LaneMemory;
pub use ladder::{Footprint, Rung, ladder, micro_batches_that_fit, predict};
pub use leak::{LEAK_API, LEAK_DATA_LANE, LEAK_MODEL_LANE, Leak, LeakDetector};
pub use limits::{DeviceMemory, Limits, MB, MemoryLimitExceeded, optimal_limits};
pub use tandem_flow::Lane;
