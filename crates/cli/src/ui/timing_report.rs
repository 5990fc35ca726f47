//! Where the time of a run went, what limits it and what to change: in a terminal, and as a page.

use std::fmt::Display;
use std::io::Write;

use tandem_flow::Stage;
use tandem_observe::{
    Document, Finding, Metric, Prediction, Profile, Reason, STAGE_TEXTS, Sample, Side, Unit, Verdict, report_figures,
};

use crate::failure::{FAILED, Failure};
use crate::messages::Messages;
use crate::ui::output::Output;
use crate::ui::table::Table;
use crate::ui::training::duration;

/// A value of a metric as it is written for people.
pub(crate) fn shown(unit: Unit, value: f64) -> String {
    if unit == Unit::Duration {
        return duration(value);
    }
    let (scale, decimals, suffix) = unit.format();
    let space = if suffix.is_empty() { "" } else { " " };
    format!("{:.decimals$}{space}{suffix}", scale * value)
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

/// `+44 %`, as a number with its sign.
fn gain(times: f64) -> String {
    let percent = 100.0 * (times - 1.0);
    if percent.abs() < 0.5 { "+0".to_owned() } else { format!("{percent:+.0}") }
}

/// The reasons of the recommendations in the user's language.
pub(crate) fn localize(verdict: &mut Verdict, messages: &Messages) {
    for change in &mut verdict.recommendations {
        change.why = why(&change.reason, messages);
    }
}

fn why(reason: &Reason, messages: &Messages) -> String {
    let id = match reason {
        Reason::SlowLoad { load_ms, step_ms } => {
            let (load, step) = (format!("{load_ms:.1}"), format!("{step_ms:.1}"));
            return messages.with("why-slow-load", &[("load", &load), ("step", &step)]);
        }
        Reason::Decoding => "why-decoding",
        Reason::NoMoreCores => "why-no-more-cores",
        Reason::SlowDevice => "why-slow-device",
        Reason::OtherDevice => "why-other-device",
        Reason::TakeTurns => "why-take-turns",
        Reason::SlowLink => "why-slow-link",
        Reason::EmptyQueues => "why-empty-queues",
        Reason::NoMemory => "why-no-memory",
    };
    messages.get(id)
}

/// SPEC T7: that steps vary, with what, and what to change.
pub(crate) fn variation(variation: f64, stage: Option<Stage>, messages: &Messages) -> String {
    let advice = messages.get(match stage {
        Some(Stage::Train | Stage::Reduce) => "variation-train",
        Some(Stage::Plan | Stage::Load | Stage::Count) => "variation-load",
        Some(Stage::Preprocess | Stage::Transfer) => "variation-data",
        None => "variation-other",
    });
    let values: &[(&str, &dyn Display)] =
        &[("variation", &percent(variation)), ("stage", &stage.map_or("-", Stage::name)), ("advice", &advice)];
    messages.with("profile-variation", values)
}

/// One line that names the limit.
pub(crate) fn limit(verdict: &Verdict, starved: f64, headroom: f64, messages: &Messages) -> String {
    if verdict.healthy {
        return messages.get("limit-none");
    }
    let (starved, headroom) = (format!("{:.0}", 100.0 * starved), format!("{:.0}", 100.0 * headroom));
    let mut text =
        messages.with("limit-line", &[("stage", &verdict.bottleneck), ("starved", &starved), ("headroom", &headroom)]);
    if let Some(change) = verdict.recommendations.first() {
        text += &messages.with("limit-try", &[("flag", &change.flag), ("to", &change.to)]);
    }
    text
}

/// Where the time of one side went, what limits it, and what to change (SPEC R4).
pub(crate) fn side(side: &Side, messages: &Messages) -> String {
    let Side { profile, verdict, .. } = side;
    let mut text = String::new();
    let mut line = |of: String| text += &(of + "\n");
    let warm_up: &dyn Display = &profile.warm_up;
    line(match profile.warm_up {
        0 => messages.with("profile-title-last", &[("steps", &profile.steps)]),
        _ => messages.with("profile-title", &[("steps", &profile.steps), ("warmup", warm_up)]),
    });
    let shares = profile.percentages();
    line(breakdown(profile, &shares, messages));
    line(messages.get("profile-utilization"));
    let figure = |(metric, sample): &(&Metric, Sample)| {
        format!("{} {}", messages.get(&metric.text_key(sample)), shown(metric.unit, sample.value))
    };
    let figures: Vec<String> = report_figures(profile).iter().map(figure).collect();
    line(messages.list(&figures));
    for (name, value) in &side.facts {
        line(format!("{name}: {value}"));
    }
    if side.simulated {
        line(messages.get("lanes-simulated"));
    }
    line(String::new());
    if verdict.healthy {
        line(messages.get("profile-healthy"));
        line(messages.get("profile-balanced"));
        let train = profile.stages.iter().position(|row| *row.name == Stage::Train).unwrap_or_default();
        line(messages.with("profile-training", &[("share", &shares[train])]));
    } else {
        let starved = percent(profile.starved);
        line(messages.with("profile-limited", &[("stage", &verdict.bottleneck), ("starved", &starved)]));
    }
    if verdict.findings.contains(&Finding::Variation) {
        line(variation(profile.variation, profile.varies_with, messages));
    }
    if verdict.findings.contains(&Finding::Communication) {
        line(messages.with("profile-communication", &[("share", &percent(profile.exposed()))]));
    }
    if let Some(headroom) = side.headroom {
        line(messages.with("profile-headroom", &[("gain", &format!("{:.0}", 100.0 * headroom))]));
    }
    if !verdict.recommendations.is_empty() {
        line(messages.get("profile-recommendations"));
    }
    for change in &verdict.recommendations {
        let values: &[(&str, &dyn Display)] = &[
            ("flag", &change.flag),
            ("now", &change.now),
            ("to", &change.to),
            ("gain", &gain(change.gain)),
            ("why", &change.why),
        ];
        line(format!("  {}", messages.with("profile-change", values)));
    }
    text
}

fn breakdown(profile: &Profile, shares: &[String], messages: &Messages) -> String {
    let mut table = Table::new(["stage", "mean", "std", "share"].map(|id| messages.get(&format!("profile-{id}"))));
    for (stage, share) in profile.stages.iter().zip(shares) {
        table.row([
            stage_name(&stage.name, messages),
            format!("{:.1} ms", stage.mean_ms),
            format!("± {:.1} ms", stage.std_ms),
            format!("{share} %"),
        ]);
    }
    table.render()
}

/// What was predicted, and the outcome.
pub(crate) fn predictions(all: &[Prediction], messages: &Messages) -> String {
    if all.is_empty() {
        return String::new();
    }
    let heading = ["change", "now", "predicted", "interval", "gain", "measured", "measured-gain", "error"];
    let mut table = Table::new(heading.map(|id| messages.get(&format!("predict-{id}"))));
    let rate = |rate: f64| format!("{rate:.2}");
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    for one in all {
        table.row([
            one.change.clone(),
            rate(one.now),
            rate(one.predicted),
            format!("{} – {}", rate(one.low), rate(one.high)),
            format!("{} %", gain(one.gain())),
            or_none(one.measured.map(rate)),
            or_none(one.measured_gain().map(|times| format!("{} %", gain(times)))),
            or_none(one.error().map(|error| format!("{:+.1} %", 100.0 * error))),
        ]);
    }
    format!("\n{}\n{}", messages.get("predict-title"), table.render())
}

/// Two sides, figure by figure.
pub(crate) fn comparison(a: &Side, b: &Side, messages: &Messages) -> String {
    let mut table =
        Table::new([messages.get("compare-figure"), a.name.clone(), b.name.clone(), messages.get("compare-change")]);
    let mut row = |name: String, unit: Unit, before: f64, after: f64| {
        let change = if before > 0.0 { format!("{} %", gain(after / before)) } else { "–".to_owned() };
        table.row([name, shown(unit, before), shown(unit, after), change]);
    };
    for ((metric, before), (_, after)) in report_figures(&a.profile).iter().zip(report_figures(&b.profile)) {
        row(messages.get(&metric.text_key(before)), metric.unit, before.value, after.value);
    }
    for stage in &a.profile.stages {
        let after = b.profile.row(&stage.name).map_or(0.0, |row| row.mean_ms);
        row(stage_name(&stage.name, messages), Unit::Milliseconds, stage.mean_ms / 1e3, after / 1e3);
    }
    format!("{}\n{}", messages.get("compare-title"), table.render())
}

/// The settings that differ.
pub(crate) fn differences(a: &Side, b: &Side) -> String {
    let value = |side: &Side, flag: &str| {
        side.settings.iter().find(|(name, _)| name == flag).map_or("–".to_owned(), |(_, value)| value.clone())
    };
    let mut flags: Vec<&String> = a.settings.iter().chain(&b.settings).map(|(flag, _)| flag).collect();
    flags.sort();
    flags.dedup();
    let differing = flags.into_iter().map(|flag| (flag, value(a, flag), value(b, flag))).filter(|(_, a, b)| a != b);
    differing.map(|(flag, a, b)| format!("  {flag}: {a} → {b}\n")).collect()
}

/// Writes the page.
pub(crate) fn write_html(document: &Document, mut output: Output, messages: &Messages) -> Result<(), Failure> {
    let page = tandem_observe::html(document, messages.direction(), &|id, values| messages.with(id, values));
    let wrote = output.writer().write_all(page.as_bytes());
    let written = wrote.and_then(|()| output.finish());
    let path = written.map_err(|error| Failure::new(FAILED, format!("the report was not written: {error}")))?;
    eprintln!("{}", messages.with("report-written", &[("path", &path.display())]));
    Ok(())
}

/// What a stage is called in the language of the user.
pub(crate) fn stage_name(name: &str, messages: &Messages) -> String {
    if STAGE_TEXTS.contains(&name) { messages.get(&format!("stage-{name}")) } else { name.to_owned() }
}
