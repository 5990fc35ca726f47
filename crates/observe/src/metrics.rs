//! Every figure of a run that is shown anywhere, one row each: what it is called, how it is read and where it appears.
//!
//! Prometheus, TensorBoard, the line in the terminal, the dashboard, the text report, the comparison and the HTML page
//! loop over [`METRICS`]; JSON is the [`Snapshot`] itself. A new metric is a field of [`Progress`], which is filled where it is
//! measured (`train/src/window.rs`), a row here and, if people see it, its name in both languages (`metric-NAME`, and `line-NAME` for the line in the terminal).

use serde::{Deserialize, Serialize};
use tandem_flow::Lane;

use crate::snapshot::Snapshot;
use crate::stage_profile::Profile;
use crate::verdict::Bottleneck;

/// How far a run is, since the last report of its progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Steps done, from the very start.
    pub step: u64,
    /// Steps there will be.
    pub steps: u64,
    /// Epoch, counted from 0.
    pub epoch: u64,
    /// Mean loss since the last report.
    pub loss: f64,
    /// Its terms.
    pub terms: Vec<(String, f64)>,
    /// Learning rate.
    #[serde(alias = "rate")]
    pub lr: f64,
    /// Norm of the last gradient.
    #[serde(alias = "norm")]
    pub grad_norm: f64,
    /// Steps per second since the last report.
    pub steps_per_s: f64,
    /// Clips per second since the last report.
    pub clips_per_s: f64,
    /// Seconds of audio per second since the last report.
    pub audio_per_s: f64,
    /// Share of the time since the last report that the model waited for data.
    #[serde(default)]
    pub starved: f64,
    /// Share of the time of its steps that a rank waited for sums with the others; none for one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduce: Option<f64>,
    /// Seconds until the end.
    pub eta_s: f64,
    /// Memory of the process, in bytes, where it is known.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name in Prometheus (after `tandem_`) and in text keys.
    pub name: &'static str,
    /// How its values are written for people.
    pub unit: Unit,
    /// Whether it only grows.
    pub kind: Kind,
    /// What it is, in one English sentence.
    pub help: &'static str,
    /// Its curve in TensorBoard, with `{}` for the first label, and what values are multiplied with there.
    pub curve: Option<(&'static str, f64)>,
    /// Where people see it, with its rank there.
    pub shown: &'static [(Surface, u8)],
    /// Where its values come from.
    pub read: Read,
}

/// How values are written for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A whole number.
    Count,
    /// A number of any size.
    Number,
    /// How many per second.
    PerSecond,
    /// Seconds of audio per second.
    AudioPerSecond,
    /// Seconds, shown as milliseconds.
    Milliseconds,
    /// Seconds, shown as hours, minutes and seconds.
    Duration,
    /// A share of one, shown in percent.
    Ratio,
    /// Bytes.
    Bytes,
    /// 0 or 1.
    Flag,
}

impl Unit {
    /// What a value is multiplied with, its decimals and what stands behind it.
    pub const fn format(self) -> (f64, usize, &'static str) {
        match self {
            Unit::Count | Unit::Bytes | Unit::Flag => (1.0, 0, ""),
            Unit::Number => (1.0, 3, ""),
            Unit::PerSecond => (1.0, 2, ""),
            Unit::AudioPerSecond => (1.0, 0, "s/s"),
            Unit::Milliseconds => (1e3, 1, "ms"),
            Unit::Duration => (1.0, 0, "s"),
            Unit::Ratio => (100.0, 1, "%"),
        }
    }
}

/// Prometheus' two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only grows, also over several starts of a run.
    Counter,
}

/// Where people see a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// The line in the terminal.
    Line,
    /// The figures at the top of the dashboard, as far as there is room.
    Dashboard,
    /// The details of a large dashboard.
    Details,
    /// The text report, the comparison of two runs and the HTML page.
    Report,
}

/// Where the values of a metric come from.
#[derive(Clone, Copy, Debug)]
pub enum Read {
    /// Known from the first report on.
    Progress(fn(&Progress) -> Vec<Sample>),
    /// Known of every run that was traced, `tandem profile` included.
    Profile(fn(&Profile) -> Vec<Sample>),
    /// Known once a run has done enough steps.
    Snapshot(fn(&Snapshot) -> Vec<Sample>),
}

/// One value, with what distinguishes it from the others of its metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Names and values, as Prometheus has them.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: f64,
}

impl Metric {
    const fn gauge(name: &'static str, unit: Unit, help: &'static str, read: Read) -> Metric {
        Metric { name, unit, kind: Kind::Gauge, help, curve: None, shown: &[], read }
    }

    const fn counter(name: &'static str, unit: Unit, help: &'static str, read: Read) -> Metric {
        Metric { kind: Kind::Counter, ..Metric::gauge(name, unit, help, read) }
    }

    const fn curve(self, tag: &'static str) -> Metric {
        Metric { curve: Some((tag, 1.0)), ..self }
    }

    const fn on(self, shown: &'static [(Surface, u8)]) -> Metric {
        Metric { shown, ..self }
    }

    /// Its values in a snapshot.
    pub fn samples(&self, snapshot: &Snapshot) -> Vec<Sample> {
        match self.read {
            Read::Progress(read) => read(&snapshot.progress),
            Read::Profile(read) => read(&snapshot.profile),
            Read::Snapshot(read) => read(snapshot),
        }
    }

    /// The key of the text that names this value; the first label belongs to it.
    pub fn text_key(&self, sample: &Sample) -> String {
        let label = sample.labels.first().map(|(_, value)| format!("-{value}")).unwrap_or_default();
        format!("metric-{}{label}", self.name)
    }

    /// The curve and the value that TensorBoard shows.
    pub fn point(&self, sample: &Sample) -> Option<(String, f64)> {
        let (tag, scale) = self.curve?;
        let label = sample.labels.first().map_or("", |(_, value)| value);
        Some((tag.replace("{}", label), scale * sample.value))
    }
}

/// The metrics that are shown there, in their order.
pub fn shown_on(surface: Surface) -> Vec<&'static Metric> {
    let rank = |metric: &Metric| metric.shown.iter().find(|(on, _)| *on == surface).map(|(_, rank)| *rank);
    let mut shown: Vec<_> = METRICS.iter().filter_map(|metric| Some((rank(metric)?, metric))).collect();
    shown.sort_by_key(|(rank, _)| *rank);
    shown.into_iter().map(|(_, metric)| metric).collect()
}

/// What the text report, the comparison and the page show of a profile, in their order.
pub fn report_figures(profile: &Profile) -> Vec<(&'static Metric, Sample)> {
    let of = |metric: &'static Metric| match metric.read {
        Read::Profile(read) => read(profile).into_iter().map(|sample| (metric, sample)).collect(),
        Read::Progress(_) | Read::Snapshot(_) => Vec::new(),
    };
    shown_on(Surface::Report).into_iter().flat_map(of).collect()
}

fn one(value: f64) -> Vec<Sample> {
    vec![Sample { labels: Vec::new(), value }]
}

fn some(value: Option<f64>) -> Vec<Sample> {
    value.map(one).unwrap_or_default()
}

fn each<N: ToString>(label: &'static str, values: impl IntoIterator<Item = (N, f64)>) -> Vec<Sample> {
    let sample = |(name, value): (N, f64)| Sample { labels: vec![(label, name.to_string())], value };
    values.into_iter().map(sample).collect()
}

/// Every metric.
pub static METRICS: &[Metric] = &[
    Metric::gauge("step", Unit::Count, "Step the run is at.", Read::Progress(|p| one(p.step as f64))),
    Metric::gauge(
        "steps_planned",
        Unit::Count,
        "Steps after which the run ends.",
        Read::Progress(|p| one(p.steps as f64)),
    ),
    Metric::counter(
        "steps_total",
        Unit::Count,
        "Steps done since the very start of the run.",
        Read::Progress(|p| one(p.step as f64)),
    ),
    Metric::counter(
        "clips_total",
        Unit::Count,
        "Clips trained on since the very start of the run.",
        Read::Snapshot(|s| one(s.total_clips as f64)),
    ),
    Metric::counter(
        "audio_seconds_total",
        Unit::Duration,
        "Audio trained on since the very start of the run.",
        Read::Snapshot(|s| one(s.total_audio_s)),
    ),
    Metric::counter(
        "run_seconds_total",
        Unit::Duration,
        "Time trained since the very start of the run.",
        Read::Snapshot(|s| one(s.total_s)),
    ),
    Metric::gauge("epoch", Unit::Count, "Epoch the run is in.", Read::Progress(|p| one(p.epoch as f64)))
        .on(&[(Surface::Dashboard, 6)]),
    Metric::gauge("loss", Unit::Number, "Loss of the last steps.", Read::Progress(|p| one(p.loss)))
        .curve("loss/train")
        .on(&[(Surface::Line, 1), (Surface::Dashboard, 1)]),
    Metric::gauge(
        "loss_term",
        Unit::Number,
        "Terms of the loss.",
        Read::Progress(|p| each("term", p.terms.iter().map(|(name, value)| (name, *value)))),
    )
    .curve("loss/{}")
    .on(&[(Surface::Details, 4)]),
    Metric::gauge(
        "validation_loss",
        Unit::Number,
        "Loss on clips not trained on.",
        Read::Snapshot(|s| some(s.validation)),
    )
    .on(&[(Surface::Dashboard, 3)]),
    Metric::gauge("learning_rate", Unit::Number, "Learning rate.", Read::Progress(|p| one(p.lr)))
        .curve("optimizer/lr")
        .on(&[(Surface::Details, 1)]),
    Metric::gauge("gradient_norm", Unit::Number, "Norm of the gradients.", Read::Progress(|p| one(p.grad_norm)))
        .curve("optimizer/grad_norm")
        .on(&[(Surface::Details, 2)]),
    Metric::gauge("steps_per_second", Unit::PerSecond, "Steps per second.", Read::Progress(|p| one(p.steps_per_s)))
        .curve("speed/steps_per_s")
        .on(&[(Surface::Line, 2), (Surface::Dashboard, 4)]),
    Metric::gauge("clips_per_second", Unit::PerSecond, "Clips per second.", Read::Progress(|p| one(p.clips_per_s)))
        .curve("speed/clips_per_s"),
    Metric::gauge(
        "audio_seconds_per_second",
        Unit::AudioPerSecond,
        "Seconds of audio trained on per second.",
        Read::Progress(|p| one(p.audio_per_s)),
    )
    .curve("speed/audio_per_s")
    .on(&[(Surface::Line, 5), (Surface::Dashboard, 5)]),
    Metric::gauge("eta_seconds", Unit::Duration, "Time until the run ends.", Read::Progress(|p| one(p.eta_s)))
        .on(&[(Surface::Line, 3), (Surface::Dashboard, 2)]),
    Metric::gauge(
        "interval_starved_ratio",
        Unit::Ratio,
        "Share of the time since the last report in which the model waited for data.",
        Read::Progress(|p| one(p.starved)),
    )
    .curve("lanes/starved")
    .on(&[(Surface::Line, 4)]),
    Metric::gauge(
        "reduce_ratio",
        Unit::Ratio,
        "Share of the steps since the last report in which the model waited for other ranks.",
        Read::Progress(|p| some(p.reduce)),
    )
    .curve("lanes/reduce")
    .on(&[(Surface::Line, 6), (Surface::Details, 5)]),
    Metric::gauge(
        "recent_steps_per_second",
        Unit::PerSecond,
        "Steps per second of the last hundred steps.",
        Read::Profile(|p| one(p.steps_per_s)),
    )
    .on(&[(Surface::Report, 1)]),
    Metric::gauge(
        "step_period_seconds",
        Unit::Milliseconds,
        "Time of a step and of waiting for its batch, mean.",
        Read::Profile(|p| one(p.period_ms / 1e3)),
    )
    .on(&[(Surface::Report, 2)]),
    Metric::gauge(
        "lane_busy_ratio",
        Unit::Ratio,
        "Share of the time in which a lane worked.",
        Read::Profile(|p| each("lane", [(Lane::Model.name(), p.model_busy), (Lane::Data.name(), p.data_busy)])),
    )
    .curve("lanes/{}_busy")
    .on(&[(Surface::Report, 3)]),
    Metric::gauge(
        "starved_ratio",
        Unit::Ratio,
        "Share of the time in which the model waited for data.",
        Read::Profile(|p| one(p.starved)),
    )
    .on(&[(Surface::Report, 4)]),
    Metric::gauge(
        "variation_ratio",
        Unit::Ratio,
        "Standard deviation of the time from step to step, over its mean.",
        Read::Profile(|p| one(p.variation)),
    )
    .on(&[(Surface::Report, 5)]),
    Metric {
        curve: Some(("stages/{}_ms", 1e3)),
        ..Metric::gauge(
            "stage_mean_seconds",
            Unit::Milliseconds,
            "Time of a stage, mean.",
            Read::Profile(|p| each("stage", p.stages.iter().map(|row| (&row.name, row.mean_ms / 1e3)))),
        )
    },
    Metric::gauge(
        "stage_std_seconds",
        Unit::Milliseconds,
        "Time of a stage, standard deviation.",
        Read::Profile(|p| each("stage", p.stages.iter().map(|row| (&row.name, row.std_ms / 1e3)))),
    ),
    Metric::gauge(
        "headroom_ratio",
        Unit::Ratio,
        "What infinitely fast data would add to the speed: 0.44 is 44 % more.",
        Read::Snapshot(|s| one(s.headroom)),
    ),
    Metric::gauge(
        "bottleneck",
        Unit::Flag,
        "1 for what limits the speed; train is healthy.",
        Read::Snapshot(|s| {
            each("stage", Bottleneck::ALL.map(|limit| (limit, f64::from(limit == s.verdict.bottleneck))))
        }),
    ),
    Metric::gauge(
        "cpu_ratio",
        Unit::Ratio,
        "Use of the CPU.",
        Read::Snapshot(|s| some(s.cpu_percent.map(|percent| percent / 100.0))),
    )
    .on(&[(Surface::Details, 3)]),
    Metric::gauge(
        "queue_items",
        Unit::Count,
        "Batches in a queue.",
        Read::Snapshot(|s| each("queue", s.queues.iter().map(|queue| (&queue.name, queue.items as f64)))),
    )
    .curve("queues/{}"),
    Metric::gauge(
        "queue_capacity",
        Unit::Count,
        "Batches a queue can hold.",
        Read::Snapshot(|s| each("queue", s.queues.iter().map(|queue| (&queue.name, queue.capacity as f64)))),
    ),
    Metric::gauge(
        "memory_used_bytes",
        Unit::Bytes,
        "Memory in use.",
        Read::Snapshot(|s| memory(s, |memory| Some(memory.used_bytes))),
    )
    .curve("memory/{}_bytes"),
    Metric::gauge(
        "memory_limit_bytes",
        Unit::Bytes,
        "Memory that may be used.",
        Read::Snapshot(|s| memory(s, |memory| memory.limit_bytes)),
    ),
    Metric::gauge(
        "simulated",
        Unit::Flag,
        "1 if the devices are simulated.",
        Read::Snapshot(|s| one(f64::from(s.simulated))),
    ),
];

fn memory(snapshot: &Snapshot, bytes: fn(&crate::MemoryUse) -> Option<u64>) -> Vec<Sample> {
    let sample = |memory: &crate::MemoryUse| {
        let labels = vec![("name", memory.name.clone()), ("device", memory.device.clone())];
        Some(Sample { labels, value: bytes(memory)? as f64 })
    };
    snapshot.memory.iter().filter_map(sample).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_curves_and_ranks_are_there_once() {
        let names: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
        let curves: Vec<&str> = METRICS.iter().filter_map(|metric| Some(metric.curve?.0)).collect();
        assert_eq!(curves.iter().collect::<BTreeSet<_>>().len(), curves.len());
        for surface in [Surface::Line, Surface::Dashboard, Surface::Details, Surface::Report] {
            let of = METRICS.iter().flat_map(|metric| metric.shown).filter(|(on, _)| *on == surface);
            let ranks: Vec<u8> = of.map(|(_, rank)| *rank).collect();
            assert_eq!(ranks.iter().collect::<BTreeSet<_>>().len(), ranks.len(), "{surface:?}");
            assert!(shown_on(surface).len() >= 4, "{surface:?}");
        }
        for metric in METRICS {
            assert_eq!(metric.kind == Kind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
        }
    }
}
