//! What a run did with its time, computed from the records of `tandem-flow`; there is no second set of timers.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `advise.rs` | one device or two: a pure function of what was measured |
//! | `lanes.rs` | pure functions of spans: how busy a lane was, whether two lanes overlapped |
//! | `profile.rs` | what the stages did with their time, warm-up left out |
//! | `verdict.rs` | what limits a run, and what to change |
//! | `monitor.rs` | one look at a run while it goes on, and what is worth telling |
//! | `whatif.rs` | what another setup would give |
//! | `report.rs` | everything that a report shows, as plain data |
//! | `metrics.rs` | figures for Prometheus |
//! | `tensorboard.rs` | event files for TensorBoard |
//! | `html.rs` | a report as one page with plots |
//! | `trace.rs` | spans as a file for Perfetto and chrome://tracing |
//! | `pictures.rs` | spectrograms, alignments and curves as pictures |
//! | `simulate.rs` | the real engine on simulated lanes, and what came of it |

mod advise;
mod html;
mod lanes;
mod metrics;
mod monitor;
mod pictures;
mod profile;
mod report;
mod simulate;
mod tensorboard;
mod trace;
mod verdict;
mod whatif;

pub use advise::{Advice, Paces, Rule, Situation, advise};
pub use html::{Direction, Label, html};
pub use lanes::{Interval, busy, overlapped_steps, strip, union};
pub use metrics::{Metrics, exposition};
pub use monitor::{MemoryUse, Notice, Notices, QueueFill, Snapshot, WINDOW, headroom, look};
pub use pictures::{Curve, alignment_png, curves_svg, spectrogram_png};
pub use profile::{GAPS, Profile, StageProfile, last_steps, step_times};
pub use report::{Document, Line, Prediction, Side, Stretch, queue_lines, stretches};
pub use simulate::{Outcome, Run, STAGES, Simulation, StageReport, simulate};
pub use tensorboard::EventFile;
pub use trace::write_chrome_trace;
pub use verdict::{
    Bottleneck, Finding, Knobs, Pressure, Reason, Recommendation, Training, Verdict, thresholds, verdict,
};
pub use whatif::{Alone, Predicted, predict, rate};
