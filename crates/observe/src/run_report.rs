//! Everything that a report shows, as plain data: text, JSON and HTML are made from it.

use serde::{Deserialize, Serialize};
use tandem_flow::{Span, Stage, Trace, TraceEvent};

use crate::stage_profile::{Profile, last_steps};
use crate::verdict::{Knobs, Verdict};

/// A piece of work on the timeline of a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelineSpan {
    /// The stage.
    pub stage: Stage,
    /// When it began, in milliseconds after the first one.
    pub start_ms: f64,
    /// When it ended.
    pub end_ms: f64,
}

/// Who worked when in the last steps of `spans`, from the start of the first of them on.
pub fn timeline(spans: &[Span], steps: usize) -> Vec<TimelineSpan> {
    let of_steps = last_steps(spans, steps);
    let began = of_steps.iter().filter(|span| span.is(Stage::Train)).map(|span| span.start - span.waited).min();
    let Some(began) = began else { return Vec::new() };
    let ended = of_steps.iter().map(|span| span.end).max().unwrap_or(began);
    let ms = |at: std::time::Duration| (1e5 * at.saturating_sub(began).as_secs_f64()).round() / 100.0;
    // What was prepared meanwhile belongs to later batches, most of it.
    let meanwhile = spans.iter().filter(|span| span.end > began && span.start < ended);
    meanwhile
        .filter_map(|span| {
            let stage = Stage::named(&span.stage).filter(|stage| Stage::TIMED.contains(stage))?;
            Some(TimelineSpan { stage, start_ms: ms(span.start), end_ms: ms(span.end.min(ended)) })
        })
        .collect()
}

/// A named line in a plot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// What it shows.
    pub name: String,
    /// What it cannot exceed, if there is such a thing.
    pub limit: Option<f64>,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// How full the queues of a traced run were, over its seconds.
pub fn queue_lines(trace: &Trace, capacities: &[(String, usize)]) -> Vec<Line> {
    let mut lines: Vec<Line> = (capacities.iter())
        .map(|(name, capacity)| Line { name: name.clone(), limit: Some(*capacity as f64), points: Vec::new() })
        .collect();
    for event in trace.events() {
        if let TraceEvent::Fill { queue, at, items, .. } = event
            && let Some(line) = lines.iter_mut().find(|line| line.name == *queue)
        {
            line.points.push((at.as_secs_f64(), items as f64));
        }
    }
    lines.retain(|line| !line.points.is_empty());
    lines
}

/// What was predicted for a change, and the outcome if it was tried. Steps per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The change, as flags.
    pub change: String,
    /// Before it.
    pub now: f64,
    /// With it, most likely.
    pub predicted: f64,
    /// Hardly less.
    pub low: f64,
    /// Hardly more.
    pub high: f64,
    /// Times as many clips in a step.
    pub work: f64,
    /// What it was when it was tried.
    pub measured: Option<f64>,
}

impl Prediction {
    /// Times as many clips per second.
    pub fn gain(&self) -> f64 {
        self.work * self.predicted / self.now.max(f64::MIN_POSITIVE)
    }

    /// The same, as it was when it was tried.
    pub fn measured_gain(&self) -> Option<f64> {
        self.measured.map(|measured| self.work * measured / self.now.max(f64::MIN_POSITIVE))
    }

    /// By how much the prediction missed, if it was tried.
    pub fn error(&self) -> Option<f64> {
        self.measured.map(|measured| self.predicted / measured.max(f64::MIN_POSITIVE) - 1.0)
    }
}

/// One side of a comparison, or the only one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// What it is called.
    pub name: String,
    /// What it was run with, as flags and values.
    pub settings: Vec<(String, String)>,
    /// What the stages did.
    pub profile: Profile,
    /// What limits it.
    pub verdict: Verdict,
    /// The settings that a verdict depends on.
    pub knobs: Option<Knobs>,
    /// What infinitely fast data would give.
    pub headroom: Option<f64>,
    /// A few steps of who worked when; empty when that is not known.
    pub lanes: Vec<TimelineSpan>,
    /// Milliseconds of each step.
    pub step_ms: Vec<f64>,
    /// Seconds and batches.
    pub queues: Vec<Line>,
    /// Seconds and megabytes.
    pub memory: Vec<Line>,
    /// Steps and losses; empty for a profile.
    pub losses: Vec<Line>,
    /// Steps and learning rates; empty for a profile.
    #[serde(default)]
    pub rates: Vec<Line>,
    /// Facts in words.
    pub facts: Vec<(String, String)>,
    /// The devices are simulated.
    pub simulated: bool,
}

/// Everything that a report shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// What it is about.
    pub title: String,
    /// Version of the program.
    pub version: String,
    /// One side, or two to compare.
    pub sides: Vec<Side>,
    /// What was predicted.
    pub predictions: Vec<Prediction>,
    /// What a reader must know.
    pub notes: Vec<String>,
}
