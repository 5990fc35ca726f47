//! What a run did with its time, computed from the records of `tandem-flow`; there is no second set of timers.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `metrics.rs` | [`METRICS`]: every figure that is shown anywhere, one row each; [`Progress`]: how far a run is; read this first |
//! | `snapshot.rs` | [`Snapshot`]: a run as it is now |
//! | `notices.rs` | [`Notices`]: what is worth reporting while it trains |
//! | `intervals.rs` | pure functions of spans: how busy a lane was, whether two lanes overlapped |
//! | `stage_profile.rs` | [`Profile`]: what the stages did with their time, without the warm-up |
//! | `verdict.rs` | [`verdict`]: what limits a run, and what to change |
//! | `advise.rs` | [`advise`]: one device or two, a pure function of what was measured |
//! | `whatif.rs` | [`predict`]: what another setup would give |
//! | `simulate.rs` | [`simulate`]: the real engine on simulated lanes, and its outcome |
//! | `scaling.rs` | [`scaling`]: what more ranks would give |
//! | `run_report.rs` | [`Document`]: everything that a report shows, as plain data |
//! | `html.rs` | [`html`]: a report as one page with plots |
//! | `prometheus.rs` | [`exposition`]: the metrics for Prometheus, and a small server for them |
//! | `tensorboard.rs` | [`EventFile`]: event files for TensorBoard |
//! | `chrome_trace.rs` | [`write_chrome_trace`]: spans as a file for Perfetto and chrome://tracing |
//! | `images.rs` | spectrograms, alignments and curves as images |

#![forbid(unsafe_code)]

mod advise;
mod chrome_trace;
mod html;
mod images;
mod intervals;
mod metrics;
mod notices;
mod prometheus;
mod run_report;
mod scaling;
mod simulate;
mod snapshot;
mod stage_profile;
mod tensorboard;
mod verdict;
mod whatif;

pub use advise::{Advice, Paces, Rule, Situation, advise};
pub use chrome_trace::write_chrome_trace;
pub use html::{Direction, Label, STYLE, escape, html, losses_section, sections};
pub use images::{Curve, alignment_png, curves_svg, spectrogram_png};
pub use intervals::{Interval, busy, overlapped_steps, strip, union};
pub use metrics::{Kind, METRICS, Metric, Progress, Read, Sample, Surface, Unit, report_figures, shown_on};
pub use notices::{Notice, Notices};
pub use prometheus::{MetricsServer, exposition};
pub use run_report::{Document, Line, Prediction, Side, TimelineSpan, queue_lines, timeline};
pub use scaling::{
    BACKWARD, BUCKET_BYTES, Communication, Scaled, ScalingKind, bucket_bytes_from_the_last, scaling, step_is_longer_by,
    worlds_up_to,
};
pub use simulate::{Run, Simulation, SimulationReport, StageReport, WORKS_IN, simulate};
pub use snapshot::{MemoryUse, QueueFill, Snapshot, WINDOW, headroom, recent_profile};
pub use stage_profile::{GAPS, Profile, StageProfile, last_steps, step_times};
pub use tensorboard::EventFile;
pub use verdict::{
    Bottleneck, Finding, Knobs, Pressure, Reason, Recommendation, STAGE_TEXTS, Training, Verdict, thresholds, verdict,
};
pub use whatif::{Alone, Predicted, predict, rate};
