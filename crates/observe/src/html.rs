//! A report as one HTML file that needs nothing else: no network, no script, no other files.

mod plots;
#[cfg(test)]
mod tests;

use std::fmt::Display;

use crate::metrics::{Metric, Sample, report_figures};
use crate::run_report::{Document, Line, Prediction, Side};
use crate::stage_profile::{Profile, StageProfile};
use crate::verdict::{Recommendation, STAGE_TEXTS, Verdict};

use self::plots::{Plot, ROWS};

/// The style of reports, and of pages that show the same.
pub const STYLE: &str = include_str!("html/html.css");

/// Looks up a text of the catalog, with its variables.
pub type Label<'a> = &'a dyn Fn(&str, &[(&str, &dyn Display)]) -> String;

/// The direction of the text, and with it the language. Numbers and plots run from left to right in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// English.
    LeftToRight,
    /// Persian.
    RightToLeft,
}

impl Direction {
    /// The tag of the language.
    pub fn lang(self) -> &'static str {
        match self {
            Direction::LeftToRight => "en",
            Direction::RightToLeft => "fa",
        }
    }

    /// The value of `dir`.
    pub fn dir(self) -> &'static str {
        match self {
            Direction::LeftToRight => "ltr",
            Direction::RightToLeft => "rtl",
        }
    }
}

/// The report as an HTML file. `label` gives the texts of the catalog (`html-…`), unescaped.
pub fn html(document: &Document, direction: Direction, label: Label) -> String {
    let sections: String = sections(document, label).into_iter().map(|(_, section)| section).collect();
    format!("{}{sections}</main>\n</html>\n", head(document, direction, label))
}

/// The parts of a report, each with its name, in their order; one that has nothing to show is empty. What a file and a live page
/// have in common.
pub fn sections(document: &Document, label: Label) -> Vec<(&'static str, String)> {
    let sides = &document.sides;
    let section = |id: &'static str, body: String| (id, section(&label(id, &[]), &body));
    vec![
        section("html-verdict", cards(sides, label, |side| verdict(side, label))),
        section("html-figures", cards(sides, label, |side| figures(&side.profile, label))),
        section("html-timing", cards(sides, label, |side| timing(&side.profile, label))),
        section("html-plots", plots_of(sides, label)),
        section("html-predictions", predictions(&document.predictions, label)),
        section("html-settings", cards(sides, label, |side| settings(side, sides))),
        section("html-facts", cards(sides, label, |side| pairs(side.facts.iter().map(|fact| (fact, false))))),
    ]
}

/// Losses over steps alone, for a run that has no snapshot yet.
pub fn losses_section(losses: &[Line], label: Label) -> String {
    let plot = plots::loss_lines(losses, label);
    let figure = plot.map(|plot| figure("plot-losses", &escape(&label("html-plot-losses", &[])), &plot));
    section(&label("html-plots", &[]), &figure.unwrap_or_default())
}

/// Text for HTML and for attributes in quotes.
pub fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

/// Whether a number can be shown: neither NaN, nor infinite, nor absurd.
pub(crate) fn sane(value: f64) -> bool {
    value.abs() < 1e15
}

/// With so many decimals, or a dash.
pub(crate) fn number(value: f64, decimals: usize) -> String {
    if sane(value) { format!("{value:.decimals$}") } else { "–".to_owned() }
}

/// The name of a stage in the reader's language.
pub(crate) fn stage(name: &str, label: Label) -> String {
    if STAGE_TEXTS.contains(&name) { label(&format!("stage-{name}"), &[]) } else { name.to_owned() }
}

fn percent(share: f64) -> String {
    if sane(share) { format!("{:.1}\u{a0}%", 100.0 * share) } else { number(share, 0) }
}

fn change(share: f64, decimals: usize) -> String {
    if sane(share) { format!("{:+.decimals$}\u{a0}%", 100.0 * share) } else { number(share, 0) }
}

fn head(document: &Document, direction: Direction, label: Label) -> String {
    let (lang, dir, title) = (direction.lang(), direction.dir(), escape(&document.title));
    let version = escape(&label("html-version", &[("version", &document.version)]));
    let simulated = document.sides.iter().filter(|side| side.simulated).map(|side| side.name.as_str());
    let banner = match simulated.collect::<Vec<_>>().join(", ") {
        sides if sides.is_empty() => sides,
        sides => {
            let text = label("html-simulated", &[("sides", &sides)]);
            format!("<p class=\"simulated\" role=\"note\">{}</p>\n", escape(&text))
        }
    };
    let notes: String = document.notes.iter().map(|note| format!("<li dir=\"auto\">{}</li>", escape(note))).collect();
    let notes = match notes.as_str() {
        "" => notes,
        _ => format!("<aside class=\"warning\"><b>{}</b><ul>{notes}</ul></aside>\n", escape(&label("html-notes", &[]))),
    };
    format!(
        "<!doctype html>\n<html lang=\"{lang}\" dir=\"{dir}\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n<link rel=\"icon\" \
         href=\"data:,\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n<main>\n<header>\
         <h1 dir=\"auto\">{title}</h1><p class=\"quiet\">{version}</p></header>\n{banner}{notes}"
    )
}

/// A heading and what is below it, or nothing if there is nothing.
fn section(heading: &str, body: &str) -> String {
    if body.is_empty() {
        return String::new();
    }
    format!("<section>\n<h2>{}</h2>\n{body}</section>\n", escape(heading))
}

/// A card for each side that has something to say, with its name if there are two.
fn cards(sides: &[Side], label: Label, body: impl Fn(&Side) -> String) -> String {
    let card = |side: &Side| {
        let body = body(side);
        let heading = if sides.len() > 1 { format!("<h3>{}</h3>\n", name(side, label)) } else { String::new() };
        if body.is_empty() { body } else { format!("<div class=\"card\">\n{heading}{body}</div>\n") }
    };
    let cards: String = sides.iter().map(card).collect();
    if cards.is_empty() { cards } else { format!("<div class=\"sides\">\n{cards}</div>\n") }
}

fn name(side: &Side, label: Label) -> String {
    let badge = format!(" <span class=\"badge\">{}</span>", escape(&label("html-simulated-side", &[])));
    format!("<bdi>{}</bdi>{}", escape(&side.name), if side.simulated { &badge } else { "" })
}

fn verdict(side: &Side, label: Label) -> String {
    let Verdict { healthy, bottleneck, recommendations, .. } = &side.verdict;
    let starved = percent(side.profile.starved);
    let (class, sentence) = if *healthy {
        ("good", label("html-healthy", &[]))
    } else {
        let limit = stage(&bottleneck.to_string(), label);
        ("bad", label("html-limited", &[("stage", &limit), ("starved", &starved)]))
    };
    let headroom = side.headroom.map(|gain| label("html-headroom", &[("gain", &change(gain, 0))]));
    let headroom = headroom.map(|text| format!("<p>{}</p>\n", escape(&text))).unwrap_or_default();
    let rows: Vec<String> = recommendations.iter().map(recommendation).collect();
    let heads = ["html-flag", "html-change", "html-gain", "html-why"];
    let advice = match rows.as_slice() {
        [] => String::new(),
        _ => {
            format!("<p class=\"table\">{}</p>\n", escape(&label("html-recommendations", &[])))
                + &table(&heads, &rows, label)
        }
    };
    format!("<p class=\"verdict {class}\">{}</p>\n{headroom}{advice}", escape(&sentence))
}

fn recommendation(advice: &Recommendation) -> String {
    let values = format!("<span class=\"to\" dir=\"ltr\">{} → {}</span>", escape(&advice.now), escape(&advice.to));
    let why = format!("<div class=\"why\" dir=\"auto\">{}</div>", escape(&advice.why));
    row(&[code(&advice.flag), values, digits(&change(advice.gain - 1.0, 0)), why])
}

fn figures(profile: &Profile, label: Label) -> String {
    let with = profile.varies_with.filter(|_| sane(profile.variation));
    let with = with.map(|with| label("html-varies-with", &[("stage", &stage(with.name(), label))])).unwrap_or_default();
    let tile = |(metric, sample): &(&Metric, Sample)| {
        let (scale, decimals, suffix) = metric.unit.format();
        let value = match number(scale * sample.value, decimals) {
            shown if sane(scale * sample.value) && !suffix.is_empty() => format!("{shown}\u{a0}{suffix}"),
            shown => shown,
        };
        let more = if metric.name == "variation_ratio" { with.as_str() } else { "" };
        let small = if more.is_empty() { String::new() } else { format!("<small>{}</small>", escape(more)) };
        let name = escape(&label(&metric.text_key(sample), &[]));
        format!("<div><dt>{name}</dt><dd><span dir=\"ltr\">{value}</span>{small}</dd></div>\n")
    };
    format!("<dl class=\"tiles\">\n{}</dl>\n", report_figures(profile).iter().map(tile).collect::<String>())
}

fn timing(profile: &Profile, label: Label) -> String {
    let counted = label("html-timing-steps", &[("steps", &profile.steps), ("warmup", &profile.warm_up)]);
    let line = |(part, share): (&StageProfile, String)| {
        let ink = ROWS.iter().position(|name| *name == part.name).unwrap_or(ROWS.len());
        let width = if sane(part.share) { (100.0 * part.share).clamp(0.0, 100.0) } else { 0.0 };
        let share = if sane(part.share) { format!("{share}\u{a0}%") } else { number(part.share, 0) };
        let bar = format!(
            "<div class=\"share i{ink}\" dir=\"ltr\"><svg><rect width=\"{width:.1}%\" height=\"100%\"/></svg></div>"
        );
        let mean = format!("{} ± {}", number(part.mean_ms, 1), number(part.std_ms, 1));
        row(&[escape(&stage(&part.name, label)), digits(&mean), digits(&share), bar])
    };
    let rows: Vec<String> = profile.stages.iter().zip(profile.percentages()).map(line).collect();
    let heads = ["html-stage", "html-mean", "html-share", ""];
    format!("<p class=\"quiet\">{}</p>\n{}", escape(&counted), table(&heads, &rows, label))
}

fn plots_of(sides: &[Side], label: Label) -> String {
    let both = |id: &str, plots: Vec<Option<Plot>>| {
        let two = sides.len() > 1;
        let one = |(at, plot): (usize, Option<Plot>)| {
            let side = if two { format!(": {}", name(&sides[at], label)) } else { String::new() };
            let own = if two { format!("{id}-{at}") } else { id.to_owned() };
            plot.map(|plot| figure(&own, &(escape(&label(&format!("html-{id}"), &[])) + &side), &plot))
        };
        let figures: String = plots.into_iter().enumerate().filter_map(one).collect();
        if figures.is_empty() { figures } else { format!("<div class=\"stack\">\n{figures}</div>\n") }
    };
    let compare = plots::compare(sides, label).map(|plot| {
        format!(
            "<div class=\"stack\">\n{}</div>\n",
            figure("plot-compare", &escape(&label("html-plot-compare", &[])), &plot)
        )
    });
    let grid = both("plot-steps", plots::steps(sides, label))
        + &both("plot-queues", plots::queues(sides, label))
        + &both("plot-memory", plots::memory(sides, label))
        + &both("plot-losses", plots::losses(sides, label))
        + &both("plot-rates", plots::rates(sides, label))
        + &compare.unwrap_or_default();
    let grid = if grid.is_empty() { grid } else { format!("<div class=\"plots\">\n{grid}</div>\n") };
    let overlay = plots::overlay(sides, label).map(|plot| {
        let figure = figure("plot-overlay", &escape(&label("html-plot-overlay", &[])), &plot);
        format!("<div class=\"stack\">\n{figure}</div>\n")
    });
    overlay.unwrap_or_default() + &both("plot-lanes", plots::lanes(sides, label)) + &grid
}

fn figure(id: &str, caption: &str, plot: &Plot) -> String {
    let key = |(ink, name): &(usize, String)| format!("<span class=\"key i{ink}\"><bdi>{}</bdi></span> ", escape(name));
    let keys: String = plot.legend.iter().map(key).collect();
    let keys = if keys.is_empty() { keys } else { format!("<div>{keys}</div>") };
    let note =
        plot.note.as_ref().map(|note| format!("<div class=\"quiet\">{}</div>", escape(note))).unwrap_or_default();
    let svg = &plot.svg;
    format!(
        "<figure class=\"card\" id=\"{id}\">\n<figcaption><b>{caption}</b>{keys}{note}</figcaption>\n{svg}\n</figure>\n"
    )
}

fn predictions(predictions: &[Prediction], label: Label) -> String {
    let line = |made: &Prediction| {
        let range = format!("{} ({} – {})", number(made.predicted, 2), number(made.low, 2), number(made.high, 2));
        let measured = made.measured.unwrap_or(f64::NAN);
        let error = change(made.predicted / measured - 1.0, 1);
        let rest = [number(made.now, 2), range, number(measured, 2), error];
        row(&[[code(&made.change)].as_slice(), &rest.map(|text| digits(&text))].concat())
    };
    let rows: Vec<String> = predictions.iter().map(line).collect();
    let heads = ["html-change", "html-now", "html-predicted", "html-measured", "html-error"];
    if rows.is_empty() {
        String::new()
    } else {
        format!("<div class=\"card\">\n{}</div>\n", table(&heads, &rows, label))
    }
}

/// The settings of a side; those that are not the same everywhere stand out.
fn settings(side: &Side, sides: &[Side]) -> String {
    pairs(side.settings.iter().map(|setting| (setting, !sides.iter().all(|other| other.settings.contains(setting)))))
}

fn pairs<'a>(pairs: impl Iterator<Item = (&'a (String, String), bool)>) -> String {
    let line = |((name, value), stands_out): (&(String, String), bool)| {
        let class = if stands_out { " class=\"differs\"" } else { "" };
        let name = if name.starts_with('-') { code(name) } else { auto(name) };
        format!("<tr{class}><th scope=\"row\">{name}</th><td>{}</td></tr>\n", auto(value))
    };
    let rows: String = pairs.map(line).collect();
    if rows.is_empty() {
        rows
    } else {
        format!("<div class=\"scroll\"><table class=\"pairs\">\n{rows}</table></div>\n")
    }
}

fn table(heads: &[&str], rows: &[String], label: Label) -> String {
    let head = |id: &&str| match *id {
        "" => "<td></td>".to_owned(),
        id => format!("<th scope=\"col\">{}</th>", escape(&label(id, &[]))),
    };
    let heads: String = heads.iter().map(head).collect();
    format!(
        "<div class=\"scroll\"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{}</tbody></table></div>\n",
        rows.concat()
    )
}

fn row(cells: &[String]) -> String {
    format!("<tr>{}</tr>\n", cells.iter().map(|cell| format!("<td>{cell}</td>")).collect::<String>())
}

/// Digits and signs, which a right-to-left text around them must not reorder.
fn digits(text: &str) -> String {
    format!("<span class=\"n\" dir=\"ltr\">{}</span>", escape(text))
}

fn code(text: &str) -> String {
    format!("<code dir=\"ltr\">{}</code>", escape(text))
}

/// Text in whatever direction it has itself.
fn auto(text: &str) -> String {
    format!("<bdi>{}</bdi>", escape(text))
}
