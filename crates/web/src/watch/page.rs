//! The table of runs and the page of one or several runs, as HTML. Plots, verdict and figures are those of the static report.
//! Everything that comes from a run is escaped.

use std::sync::Arc;

use tandem_observe::{Direction, Document, Label, Side, escape, losses_section, sections};
use tandem_train::ResolvedSetting;

use super::Texts;
use super::runs::Reading;
use crate::http::encoded;

/// Samples that are shown of a run.
const SAMPLES: usize = 12;

/// Parts of a page by their ids; a live page replaces those that change.
pub(crate) type Parts = Vec<(String, String)>;

/// The names of the parts of a report that a live page shows, in its order.
const OF_REPORT: [&str; 4] = ["html-verdict", "html-figures", "html-plots", "html-timing"];

/// A page around its parts.
pub(crate) fn page(title: &str, parts: &Parts, direction: Direction, texts: &dyn Texts, query: &str) -> String {
    let (lang, dir) = (direction.lang(), direction.dir());
    let body: String =
        parts.iter().map(|(id, part)| format!("<div id=\"{id}\" class=\"part\">{part}</div>\n")).collect();
    let text = |id: &str| escape(&texts.text(direction, id, &[]));
    let other = match direction {
        Direction::LeftToRight => ("fa", "فارسی"),
        Direction::RightToLeft => ("en", "English"),
    };
    let query = escape(query);
    format!(
        "<!doctype html>\n<html lang=\"{lang}\" dir=\"{dir}\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n\
         <link rel=\"stylesheet\" href=\"/report.css\">\n<link rel=\"stylesheet\" href=\"/watch.css\">\n\
         <script src=\"/watch.js\" defer></script>\n<main data-query=\"{query}\" data-lost=\"{lost}\">\n<nav>\
         <a href=\"/?lang={lang}\">{runs}</a><span id=\"live\" role=\"status\" class=\"quiet\"></span>\
         <a class=\"end\" lang=\"{other_lang}\" href=\"?{query}{and}lang={other_lang}\">{other_name}</a></nav>\n\
         <header><h1 dir=\"auto\">{title}</h1></header>\n{body}</main>\n</html>\n",
        title = escape(title),
        lost = text("watch-lost"),
        runs = text("watch-runs"),
        other_lang = other.0,
        other_name = other.1,
        and = if query.is_empty() { "" } else { "&amp;" },
    )
}

/// The table of all runs.
pub(crate) fn table(runs: &[Arc<Reading>], direction: Direction, texts: &dyn Texts) -> Parts {
    let text = |id: &str| escape(&texts.text(direction, id, &[]));
    if runs.is_empty() {
        return vec![("runs".to_owned(), format!("<p class=\"card\">{}</p>", text("watch-none")))];
    }
    let heads = [
        "watch-run",
        "report-state",
        "html-axis-step",
        "html-axis-loss",
        "watch-rate",
        "watch-starved",
        "watch-verdict",
    ];
    let heads: String = heads.iter().map(|id| format!("<th scope=\"col\">{}</th>", text(id))).collect();
    let row = |run: &Arc<Reading>| {
        let Figures { step, loss, rate, starved, verdict } = figures(run, direction, texts);
        let id = escape(&run.id);
        let lang = direction.lang();
        format!(
            "<tr data-run=\"{id}\"><td><label><input type=\"checkbox\" name=\"run\" value=\"{id}\"> </label>\
             <a href=\"/run?run={link}&amp;lang={lang}\"><bdi>{id}</bdi></a></td><td>{state}</td><td>{step}</td><td>{loss}</td>\
             <td>{rate}</td><td>{starved}</td><td dir=\"auto\">{verdict}</td></tr>\n",
            link = encoded(&run.id),
            state = badge(run, direction, texts),
        )
    };
    let rows: String = runs.iter().map(row).collect();
    let table = format!(
        "<form action=\"/run\" method=\"get\" class=\"card\"><input type=\"hidden\" name=\"lang\" value=\"{}\"><div class=\"scroll\">\
         <table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n<p class=\"table\"><button>{}</button></p></form>",
        direction.lang(),
        text("watch-overlay"),
    );
    vec![("runs".to_owned(), table)]
}

/// What the table shows of a run, escaped.
struct Figures {
    step: String,
    loss: String,
    rate: String,
    starved: String,
    verdict: String,
}

fn figures(run: &Reading, direction: Direction, texts: &dyn Texts) -> Figures {
    let dash = || "–".to_owned();
    let record = match &run.record {
        Ok(record) => record,
        Err(why) => {
            return Figures { step: dash(), loss: dash(), rate: dash(), starved: dash(), verdict: escape(why) };
        }
    };
    let logged = record.log.iter().rev().find_map(|line| Some((line["step"].as_u64()?, line["loss"].as_f64()?)));
    let Some(last) = record.snapshots.last() else {
        let step = logged.map_or_else(dash, |(step, _)| step.to_string());
        let loss = logged.map_or_else(dash, |(_, loss)| format!("{loss:.4}"));
        return Figures { step, loss, rate: dash(), starved: dash(), verdict: dash() };
    };
    let number = |text: String| format!("<span class=\"n\" dir=\"ltr\">{text}</span>");
    // The log is ahead of the snapshots.
    let (step, loss) =
        logged.filter(|(step, _)| *step > last.progress.step).unwrap_or((last.progress.step, last.progress.loss));
    let verdict = if last.verdict.healthy {
        escape(&texts.text(direction, "html-healthy", &[]))
    } else {
        let stage = texts.text(direction, &format!("stage-{}", last.verdict.bottleneck), &[]);
        let starved = format!("{:.1}\u{a0}%", 100.0 * last.profile.starved);
        let limited = escape(&texts.text(direction, "html-limited", &[("stage", &stage), ("starved", &starved)]));
        let flag = last.verdict.recommendations.first();
        let flag =
            flag.map(|advice| format!(" <code dir=\"ltr\">{} {}</code>", escape(&advice.flag), escape(&advice.to)));
        limited + &flag.unwrap_or_default()
    };
    Figures {
        step: number(format!("{step} / {}", last.progress.steps)),
        loss: number(format!("{loss:.4}")),
        rate: number(format!("{:.2}", last.progress.steps_per_s)),
        starved: number(format!("{:.1}\u{a0}%", 100.0 * last.profile.starved)),
        verdict,
    }
}

/// The state of a run, and whether it was resumed.
fn badge(run: &Reading, direction: Direction, texts: &dyn Texts) -> String {
    let word = run.state.word();
    let state = escape(&texts.text(direction, &format!("watch-state-{word}"), &[]));
    let starts = run.record.as_ref().map_or(0, |record| record.starts);
    let resumed = (starts > 1).then(|| escape(&texts.text(direction, "watch-resumed", &[("times", &(starts - 1))])));
    let resumed = resumed.map(|text| format!(" <small>{text}</small>")).unwrap_or_default();
    format!("<span class=\"state {word}\">{state}</span>{resumed}")
}

/// The page of one run, or of several that are compared.
pub(crate) fn runs(runs: &[Arc<Reading>], direction: Direction, texts: &dyn Texts) -> Parts {
    let label: Label = &|id, values| texts.text(direction, id, values);
    let text = |id: &str| escape(&label(id, &[]));
    let mut parts: Parts = vec![("overview".to_owned(), overview(runs, direction, texts))];
    let notes: String = (runs.iter())
        .filter_map(|run| Some((run, run.record.as_ref().ok()?)))
        .flat_map(|(run, record)| record.damaged.iter().map(move |damaged| (run, damaged)))
        .map(|(_, (path, lines))| {
            let text = label("report-damaged", &[("path", &path.display()), ("lines", lines)]);
            format!("<p class=\"warning\">{}</p>", escape(&text))
        })
        .collect();
    parts.push(("notes".to_owned(), notes));
    let sides: Vec<Side> = (runs.iter())
        .filter_map(|run| Some((run, run.record.as_ref().ok().filter(|record| !record.snapshots.is_empty())?)))
        .map(|(run, record)| texts.side(direction, &run.id, record))
        .collect();
    if sides.is_empty() {
        let lines: Vec<_> = (runs.iter())
            .filter_map(|run| run.record.as_ref().ok())
            .flat_map(|record| super::losses(&record.log))
            .collect();
        parts.push(("html-plots".to_owned(), losses_section(&lines, label)));
    } else {
        let document = Document {
            title: String::new(),
            version: String::new(),
            sides,
            predictions: Vec::new(),
            notes: Vec::new(),
        };
        let mut of_report = sections(&document, label);
        for name in OF_REPORT {
            let at = of_report.iter().position(|(id, _)| *id == name);
            parts.push((name.to_owned(), at.map(|at| of_report.swap_remove(at).1).unwrap_or_default()));
        }
    }
    parts.push(("samples".to_owned(), samples(runs, direction, texts)));
    parts.push((
        "settings".to_owned(),
        format!("<section><h2>{}</h2>{}</section>", text("html-settings"), settings(runs, direction, texts)),
    ));
    parts
}

fn overview(runs: &[Arc<Reading>], direction: Direction, texts: &dyn Texts) -> String {
    let text = |id: &str| escape(&texts.text(direction, id, &[]));
    let card = |run: &Arc<Reading>| {
        let figures = figures(run, direction, texts);
        let tile = |id: &str, value: &str| format!("<div><dt>{}</dt><dd>{value}</dd></div>", text(id));
        let error = run.record.as_ref().ok().and_then(|record| record.report.as_ref()?["error"].as_str().map(escape));
        let why = run.record.as_ref().err().map(|why| escape(why));
        let error = error.or(why).map(|error| format!("<p class=\"bad\" dir=\"auto\">{error}</p>")).unwrap_or_default();
        format!(
            "<div class=\"card\"><h3><bdi>{}</bdi> {}</h3>{error}<dl class=\"tiles\">{}{}{}{}</dl><p class=\"quiet\"><bdi>{}</bdi></p></div>",
            escape(&run.id),
            badge(run, direction, texts),
            tile("html-axis-step", &figures.step),
            tile("html-axis-loss", &figures.loss),
            tile("watch-rate", &figures.rate),
            tile("watch-starved", &figures.starved),
            escape(&run.path.display().to_string()),
        )
    };
    if runs.is_empty() {
        return format!("<p class=\"card\">{}</p>", text("watch-none"));
    }
    format!("<div class=\"sides\">{}</div>", runs.iter().map(card).collect::<String>())
}

/// What can be heard and seen of each run, the last steps first.
fn samples(runs: &[Arc<Reading>], direction: Direction, texts: &dyn Texts) -> String {
    let text = |id: &str| escape(&texts.text(direction, id, &[]));
    let card = |run: &Arc<Reading>| {
        let sounds = run.samples.iter().filter(|name| name.ends_with(".wav")).take(SAMPLES);
        let one = |name: &String| {
            let stem = name.trim_end_matches(".wav");
            let step = stem.trim_start_matches("step-").trim_start_matches('0');
            let link = |file: &str| format!("/sample?run={}&amp;file={}", encoded(&run.id), encoded(file));
            let image = format!("{stem}.png");
            let image = run.samples.contains(&image).then(|| {
                let alt = escape(&texts.text(direction, "watch-mel", &[("step", &step)]));
                format!("<img loading=\"lazy\" alt=\"{alt}\" src=\"{}\">", link(&image))
            });
            let step = escape(&texts.text(direction, "watch-step", &[("step", &step)]));
            format!(
                "<li><b>{step}</b><audio controls preload=\"none\" src=\"{}\"></audio>{}</li>",
                link(name),
                image.unwrap_or_default()
            )
        };
        let list: String = sounds.map(one).collect();
        let heading = if runs.len() > 1 { format!("<h3><bdi>{}</bdi></h3>", escape(&run.id)) } else { String::new() };
        if list.is_empty() {
            list
        } else {
            format!("<div class=\"card\">{heading}<ul class=\"samples\">{list}</ul></div>")
        }
    };
    let cards: String = runs.iter().map(card).collect();
    if cards.is_empty() {
        return cards;
    }
    format!("<section><h2>{}</h2><div class=\"sides\">{cards}</div></section>", text("watch-samples"))
}

/// Settings with their sources; of several runs, first those that differ.
fn settings(runs: &[Arc<Reading>], direction: Direction, texts: &dyn Texts) -> String {
    let text = |id: &str| escape(&texts.text(direction, id, &[]));
    let of = |run: &Arc<Reading>| run.record.as_ref().map(|record| record.settings.clone()).unwrap_or_default();
    let all: Vec<Vec<ResolvedSetting>> = runs.iter().map(of).collect();
    let mut names: Vec<&str> = Vec::new();
    for setting in all.iter().flatten() {
        if !names.contains(&setting.name.as_str()) {
            names.push(&setting.name);
        }
    }
    let find = |run: &'_ Vec<ResolvedSetting>, name: &str| run.iter().find(|one| one.name == name).cloned();
    let differs = |name: &str| {
        let value = |run: &Vec<ResolvedSetting>| find(run, name).map(|one| one.value);
        all.windows(2).any(|pair| value(&pair[0]) != value(&pair[1]))
    };
    let row = |name: &str| {
        let cell = |run: &Vec<ResolvedSetting>| match find(run, name) {
            Some(one) => format!(
                "<td><bdi>{}</bdi><small dir=\"auto\">{}</small></td>",
                escape(&one.value),
                escape(&texts.sentence(direction, &one.source))
            ),
            None => "<td>–</td>".to_owned(),
        };
        let cells: String = all.iter().map(cell).collect();
        format!("<tr><th scope=\"row\"><code dir=\"ltr\">{}</code></th>{cells}</tr>\n", escape(name))
    };
    let table = |rows: String| {
        let heads: String =
            runs.iter().map(|run| format!("<th scope=\"col\"><bdi>{}</bdi></th>", escape(&run.id))).collect();
        format!(
            "<div class=\"scroll\"><table class=\"pairs\"><thead><tr><td></td>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
        )
    };
    let (different, same): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| differs(name));
    let mut html = String::new();
    if runs.len() > 1 {
        let body = if different.is_empty() {
            format!("<p>{}</p>", text("watch-no-difference"))
        } else {
            table(different.into_iter().map(row).collect())
        };
        html += &format!("<div class=\"card\"><h3>{}</h3>{body}</div>", text("watch-different"));
    }
    let heading = if runs.len() > 1 { text("watch-same") } else { text("watch-all-settings") };
    html += &format!(
        "<details class=\"card\"><summary>{heading}</summary>{}</details>",
        table(same.into_iter().map(row).collect())
    );
    html
}

/// Texts that pages need besides those of the report.
#[cfg(test)]
pub(crate) fn labels() -> Vec<String> {
    let fixed = [
        "watch-lost",
        "watch-runs",
        "watch-none",
        "watch-run",
        "watch-rate",
        "watch-starved",
        "watch-verdict",
        "watch-overlay",
        "watch-resumed",
        "watch-samples",
        "watch-mel",
        "watch-step",
        "watch-different",
        "watch-no-difference",
        "watch-same",
        "watch-all-settings",
        "watch-title",
        "watch-token",
        "watch-enter",
    ];
    let states = super::runs::RunState::ALL.map(|state| format!("watch-state-{}", state.word()));
    fixed.map(str::to_owned).into_iter().chain(states).collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Display;

    use tandem_train::RunRecord;

    use super::super::runs::RunState;
    use super::*;

    struct Keys;

    impl Texts for Keys {
        fn text(&self, _: Direction, id: &str, _: &[(&str, &dyn Display)]) -> String {
            id.to_owned()
        }

        fn sentence(&self, _: Direction, english: &str) -> String {
            english.to_owned()
        }

        fn side(&self, _: Direction, _: &str, _: &RunRecord) -> Side {
            unreachable!("no snapshots here")
        }
    }

    const NASTY: &str = "<script>\"a\" & 'b'</script>";

    fn reading(settings: &[(&str, &str)]) -> Arc<Reading> {
        let setting = |(name, value): &(&str, &str)| ResolvedSetting {
            name: (*name).to_owned(),
            requested: None,
            value: (*value).to_owned(),
            source: NASTY.to_owned(),
        };
        let record = RunRecord {
            version: NASTY.to_owned(),
            settings: settings.iter().map(setting).collect(),
            facts: serde_json::Value::Null,
            snapshots: Vec::new(),
            log: vec![serde_json::json!({"step": 3, "loss": 1.5})],
            timeline: Vec::new(),
            report: Some(serde_json::json!({"ending": "failed", "error": NASTY})),
            starts: 2,
            running: false,
            damaged: vec![(NASTY.into(), 1)],
        };
        let samples = vec!["step-00000010.wav".to_owned(), "step-00000010.png".to_owned(), format!("{NASTY}.wav")];
        Arc::new(Reading {
            id: NASTY.to_owned(),
            path: NASTY.into(),
            state: RunState::Failed,
            record: Ok(record),
            samples,
        })
    }

    #[test]
    fn everything_from_a_run_is_escaped() {
        let all = [reading(&[(NASTY, NASTY)]), reading(&[(NASTY, "1")])];
        for parts in [table(&all, Direction::LeftToRight, &Keys), runs(&all, Direction::RightToLeft, &Keys)] {
            let page = page(NASTY, &parts, Direction::LeftToRight, &Keys, NASTY);
            let own = page.replacen("<script src=\"/watch.js\" defer></script>", "", 1);
            assert!(!own.contains("<script") && !own.contains("\"a\"") && !own.contains("'b'"), "{own}");
            assert!(!own.contains(" style="), "the policy forbids it");
        }
    }

    #[test]
    fn settings_that_differ_come_first() {
        let all = [reading(&[("--same", "1"), ("--other", "2")]), reading(&[("--same", "1"), ("--other", "3")])];
        let parts = runs(&all, Direction::LeftToRight, &Keys);
        let settings = &parts.iter().find(|(id, _)| id == "settings").expect("there").1;
        let at = |text: &str| settings.find(text).unwrap_or_else(|| panic!("{text} in {settings}"));
        assert!(
            at("watch-different") < at("--other")
                && at("--other") < at("watch-same")
                && at("watch-same") < at("--same")
        );
    }

    #[test]
    fn a_resumed_run_says_so() {
        let parts = table(&[reading(&[])], Direction::LeftToRight, &Keys);
        assert!(parts[0].1.contains("watch-resumed") && parts[0].1.contains("watch-state-failed"));
    }

    #[test]
    fn every_text_is_in_both_catalogs() {
        for catalog in [include_str!("../../../cli/messages/en.ftl"), include_str!("../../../cli/messages/fa.ftl")] {
            for label in labels() {
                assert!(catalog.lines().any(|line| line.starts_with(&format!("{label} = "))), "{label}");
            }
        }
    }
}
