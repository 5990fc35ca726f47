//! What a run did with its time, computed from the records of `tandem-flow`; there is no second set of timers.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `advise.rs` | one device or two: a pure function of what was measured |
//! | `lanes.rs` | pure functions of spans: how busy a lane was, whether two lanes overlapped |
//! | `profile.rs` | what the stages did with their time, warm-up left out |
//! | `verdict.rs` | what limits a run, and what to change |
//! | `trace.rs` | spans as a file for Perfetto and chrome://tracing |
//! | `pictures.rs` | spectrograms, alignments and curves as pictures |
//! | `simulate.rs` | the real engine on simulated lanes, and what came of it |

mod advise;
mod lanes;
mod pictures;
mod profile;
mod simulate;
mod trace;
mod verdict;

pub use advise::{Advice, Paces, Rule, Situation, advise};
pub use lanes::{Interval, busy, overlapped_steps, strip, union};
pub use pictures::{Curve, alignment_png, curves_svg, spectrogram_png};
pub use profile::{GAPS, Profile, StageProfile};
pub use simulate::{Outcome, Run, STAGES, Simulation, StageReport, simulate};
pub use trace::write_chrome_trace;
pub use verdict::{Bottleneck, Finding, Knobs, Recommendation, Verdict, thresholds, verdict};
