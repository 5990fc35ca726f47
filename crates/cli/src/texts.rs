//! Persian for texts whose English is in the code: errors of the libraries, the parser's own words, `--help`.
//!
//! They are looked up by their English, as gettext does it, so that the libraries know nothing of languages. `{}` in an
//! English text stands for anything; what stood there is looked up in turn, so that an error inside another one is
//! found too.

use std::sync::LazyLock;

use clap::Command;

/// Pairs of lines, `en ENGLISH` and `fa PERSIAN`.
const TEXTS: &str = include_str!("../messages/texts.fa.txt");
/// The same for `--help`, nothing inserted.
const HELP: &str = include_str!("../messages/help.fa.txt");

/// Inserted texts keep their own direction.
pub(crate) const ISOLATE: (char, char) = ('\u{2068}', '\u{2069}');

/// The parser's own words in a help page, longer ones before those that they begin with.
const WORDS: [&str; 15] = [
    "Print this message or the help of the given subcommand(s)",
    "Print help for the subcommand(s)",
    "Print help (see a summary with '-h')",
    "Print help (see more with '--help')",
    "Print help",
    "Print version",
    "Usage:",
    "Options:",
    "Commands:",
    "Arguments:",
    "Possible values:",
    "[default: {}]",
    "[possible values: {}]",
    "[aliases: {}]",
    "[alias: {}]",
];

struct Template {
    /// What stands around the gaps: one piece more than gaps.
    pieces: Vec<&'static str>,
    persian: &'static str,
    /// Characters that are not gaps: the more, the better it fits.
    weight: usize,
}

static ERRORS: LazyLock<Vec<Template>> = LazyLock::new(|| catalog(TEXTS));
/// Apart from the errors: a folder that is called `Data` is not a heading.
static PAGES: LazyLock<Vec<Template>> = LazyLock::new(|| catalog(HELP));

fn catalog(source: &'static str) -> Vec<Template> {
    let template = |(english, persian): (&'static str, &'static str)| {
        let pieces: Vec<&str> = english.split("{}").collect();
        Template { weight: pieces.iter().map(|piece| piece.len()).sum(), pieces, persian }
    };
    let mut all: Vec<Template> = pairs(source).map(template).collect();
    // What begins with a gap fits nearly anything.
    all.sort_by_key(|template| (template.pieces[0].is_empty(), std::cmp::Reverse(template.weight)));
    all
}

fn pairs(source: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut lines = source.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    std::iter::from_fn(move || {
        let (english, persian) = (lines.next()?, lines.next().unwrap_or_default());
        Some((
            english.strip_prefix("en ").unwrap_or_else(|| panic!("begins with `en `: {english}")),
            persian.strip_prefix("fa ").unwrap_or_else(|| panic!("begins with `fa `: {persian}")),
        ))
    })
}

/// What was inserted into a template that matches all of the text.
fn gaps<'t>(pieces: &[&str], text: &'t str) -> Option<Vec<&'t str>> {
    let (first, rest) = pieces.split_first()?;
    let mut left = text.strip_prefix(first)?;
    let Some((last, middle)) = rest.split_last() else { return left.is_empty().then(Vec::new) };
    let mut found = Vec::new();
    for piece in middle {
        let (gap, after) = left.split_once(piece)?;
        found.push(gap);
        left = after;
    }
    found.push(left.strip_suffix(last)?);
    Some(found)
}

/// The Persian of a line, or none.
fn line(catalog: &[Template], text: &str) -> Option<String> {
    let isolated = |text: &str| format!("{}{text}{}", ISOLATE.0, ISOLATE.1);
    let fitting = catalog.iter().find_map(|template| Some((template, gaps(&template.pieces, text)?)));
    let Some((template, found)) = fitting else {
        // `FILE: what is wrong`.
        let (place, rest) = text.split_once(": ")?;
        return line(catalog, rest).map(|rest| format!("{}: {rest}", isolated(place)));
    };
    let mut persian = template.persian.to_owned();
    for (n, gap) in found.iter().enumerate().rev() {
        // One word is a name or a value.
        let inserted = Some(gap).filter(|gap| gap.contains(' ')).and_then(|gap| line(catalog, gap));
        let inserted = inserted.unwrap_or_else(|| (*gap).to_owned());
        persian = persian.replace(&format!("{{{}}}", n + 1), &isolated(&inserted));
    }
    Some(persian)
}

/// The Persian of each line; lines that nothing is known about stay.
fn lines(catalog: &[Template], text: &str) -> String {
    let translated = text.split('\n').map(|whole| {
        let trimmed = whole.trim_start();
        let indent = &whole[..whole.len() - trimmed.len()];
        // An example: the command stays, the remark behind it does not. A value: its name stays.
        let remark = match (trimmed.starts_with("tandem "), trimmed.strip_prefix("- ")) {
            (true, _) => trimmed.split_once("  ").map(|(_, remark)| remark.trim_start()),
            (_, Some(value)) => value.split_once(": ").map(|(_, meaning)| meaning.trim_start()),
            _ => None,
        };
        let (kept, words) = trimmed.split_at(trimmed.len() - remark.unwrap_or(trimmed).len());
        match line(catalog, words) {
            Some(persian) => format!("{indent}{kept}{persian}"),
            None => whole.to_owned(),
        }
    });
    translated.collect::<Vec<_>>().join("\n")
}

/// The Persian of an error or another text of the libraries.
pub(crate) fn persian(text: &str) -> String {
    lines(&ERRORS, text)
}

/// The Persian of a text of the help.
pub(crate) fn help(text: &str) -> String {
    lines(&PAGES, text)
}

/// A command line that explains itself in Persian.
pub(crate) fn localized(command: Command) -> Command {
    let text = |text: &clap::builder::StyledStr| help(&text.to_string());
    let mut command = command.mut_args(|mut arg| {
        if let Some(help) = arg.get_help().map(text) {
            arg = arg.help(help);
        }
        if let Some(long) = arg.get_long_help().map(text) {
            arg = arg.long_help(long);
        }
        let heading = arg.get_help_heading();
        let heading = heading.and_then(|is| pairs(HELP).find(|(english, _)| *english == is));
        match heading {
            Some((_, persian)) => arg.help_heading(persian),
            None => arg,
        }
    });
    for (is, set) in [
        (command.get_about().map(text), Command::about as fn(Command, String) -> Command),
        (command.get_long_about().map(text), Command::long_about),
        (command.get_after_help().map(text), Command::after_help),
        (command.get_after_long_help().map(text), Command::after_long_help),
    ] {
        if let Some(persian) = is {
            command = set(command, persian);
        }
    }
    command.mut_subcommands(localized)
}

/// A help page of a localized command line, with the parser's own words and the values there are.
pub(crate) fn help_page(page: &str) -> String {
    let mut page = help(page);
    for word in WORDS {
        let (Some(persian), english) = (line(&PAGES, word), word.split("{}").next().unwrap_or(word)) else { continue };
        // Of a word with a gap, what stands before the gap.
        let persian = persian.split(ISOLATE.0).next().unwrap_or_default();
        page = page.replace(english, persian);
    }
    page
}

/// What the parser says about wrong arguments.
pub(crate) fn usage_error(text: &str) -> String {
    help_page(&persian(text.trim_start_matches("error: "))).trim_end().to_owned()
}

#[cfg(test)]
mod tests;
