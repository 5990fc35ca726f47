//! An ordered, bounded, measurable pipeline of batches.
//!
//! A [`Flow`] is a fallible iterator of [`Envelope`]s. Batches come out in the order of the plan, whatever the
//! number of workers, the depth of the queues or the mode; every wait and every piece of work is measured in one
//! place; memory is leased before work starts; an error or a panic arrives at its place in the order.
//! The crate knows nothing of audio, tensors or devices, and needs no async runtime.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `stage.rs` | [`Stage`], [`Place`], [`Lane`]: the names of Tandem's own pipeline, each written once |
//! | `flow.rs` | [`Flow`]: the source, the adapters, the one place where a consumer waits |
//! | `pool.rs` | the workers behind [`Flow::par_stage`], which keep the order |
//! | `prefetch.rs` | the thread and queue behind [`Flow::prefetch`] |
//! | `envelope.rs` | [`Envelope`], [`Cursor`]: what flows and where in the data it is |
//! | `queue.rs` | [`Queue`]: bounded in items and bytes, resizable, closable |
//! | `budget.rs` | [`Budget`], [`Lease`]: memory admitted before work starts |
//! | `knob.rs` | [`Knob`]: a number that may change while the flow runs |
//! | `tune.rs` | pure rules that turn measurements into knob moves, each a [`Decision`] with its reason |
//! | `autotune.rs` | [`Autotune`]: reads the meters, asks those rules, turns the knobs |
//! | `stats.rs` | [`Summary`] of measurements, stage and queue records |
//! | `trace.rs` | [`Span`]s: who worked on which batch from when to when |
//! | `clock.rs` | [`Clock`]: real time, or virtual time on which a 150 ms pipeline is tested in microseconds |
//! | `random.rs` | [`Random`]: numbers from a seed and a place |
//! | `stop.rs` | [`Stop`]: ask a run to end, and wake whoever waits |
//! | `error.rs` | [`Error`]: stage, cursor, sample, path and cause |
//!
//! ```
//! use tandem_flow::{Context, Cursor, Flow, Knob};
//!
//! let context = Context::default();
//! let workers = Knob::new("workers", 4, 0..=16);
//! let depth = Knob::new("depth", 2, 0..=8);
//!
//! // Two epochs of ten batches; each worker squares, the "model" adds up.
//! let flow = Flow::source(&context, "plan", Cursor::START, 2, |_epoch| 0..10u64)
//!     .par_stage("load", &workers, |n| Ok(n * n))
//!     .prefetch("ready", &depth)
//!     .stage("train", |n| Ok(n + 1));
//!
//! let mut seen = Vec::new();
//! for batch in flow {
//!     seen.push(batch?.value);
//! }
//! assert_eq!(seen.len(), 20);
//! assert_eq!(seen[..4], [1, 2, 5, 10]);
//! assert_eq!(context.stage("train").expect("it ran").items, 20);
//! # Ok::<(), tandem_flow::Error>(())
//! ```

#![forbid(unsafe_code)]

mod autotune;
mod budget;
mod clock;
mod context;
mod envelope;
mod error;
mod flow;
mod knob;
mod pool;
mod prefetch;
mod queue;
mod random;
mod stage;
mod stats;
mod stop;
mod sync;
mod trace;
mod tune;
mod virtual_time;
mod wait;

pub use autotune::Autotune;
pub use budget::{Budget, Lease, OverLimit, Oversize};
pub use clock::{Clock, Thread};
pub use context::Context;
pub use envelope::{Cursor, Envelope};
pub use error::{Error, ErrorDetails, ErrorKind, Fault};
pub use flow::Flow;
pub use knob::Knob;
pub use queue::{Closed, Queue, QueueLimits};
pub use random::Random;
pub use stage::{Lane, Place, Stage};
pub use stats::{QueueStats, StageStats, Summary};
pub use stop::Stop;
pub use trace::{Span, Trace, TraceEvent};
pub use tune::Decision;
