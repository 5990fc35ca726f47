//! `tandem man`: man pages, or the pages of docs/reference, from the definition of the flags.

use std::fmt::Write;
use std::fs;

use clap::{Arg, Command, CommandFactory};

use crate::args::{Args, ManArgs};
use crate::commands::config::{on_resume, schema};
use crate::config_file::{EARLIER, Earlier, keys, switch_default};
use crate::failure::{CODES, FAILED, Failure};
use crate::messages::{Lang, Messages};
use crate::texts;

pub(crate) fn run(args: &ManArgs, messages: &Messages) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(FAILED, messages.with("cannot-write", &[("path", &args.dir.display()), ("reason", &error)]))
    };
    fs::create_dir_all(&args.dir).map_err(failed)?;
    if !args.markdown {
        return clap_mangen::generate_to(command(messages), &args.dir).map_err(failed);
    }
    let pages = [
        ("commands.md", directed(commands(messages), messages)),
        ("settings.md", directed(settings(messages), messages)),
        ("config.schema.json", format!("{:#}\n", schema(messages))),
    ];
    for (name, page) in pages {
        fs::write(args.dir.join(name), page).map_err(failed)?;
    }
    Ok(())
}

/// The command line in the language of the user.
pub(crate) fn command(messages: &Messages) -> Command {
    match messages.lang() {
        Lang::En => Args::command(),
        Lang::Fa => texts::localized(Args::command()),
    }
}

/// A page that is read from right to left, where that is so.
fn directed(page: String, messages: &Messages) -> String {
    match messages.lang() {
        Lang::En => page,
        Lang::Fa => format!("<div dir=\"rtl\">\n\n{page}\n</div>\n"),
    }
}

/// A cell of a table: no bar that would end it, no line break.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn commands(messages: &Messages) -> String {
    let mut page = format!("# {}\n\n{}\n", messages.get("reference-commands"), messages.get("reference-made"));
    let _ = write!(page, "\n## {}\n\n", messages.get("reference-codes"));
    let _ = write!(page, "| {} | {} |\n|---|---|\n", messages.get("reference-code"), messages.get("reference-meaning"));
    for (code, id) in CODES {
        let _ = writeln!(page, "| {code} | {} |", cell(&messages.get(id)));
    }
    let mut command = command(messages);
    command.build();
    describe(&command, "tandem", messages, &mut page);
    page
}

/// One command, and those below it.
fn describe(command: &Command, name: &str, messages: &Messages, page: &mut String) {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let _ = write!(page, "\n## `{name}`\n\n{about}\n");
    // What every command has is listed once.
    let is_told = |arg: &&Arg| arg.is_global_set() && name != "tandem";
    let shown =
        |arg: &&Arg| !arg.is_hide_set() && !is_told(arg) && !matches!(arg.get_id().as_str(), "help" | "version");
    let arguments: Vec<&Arg> = command.get_arguments().filter(shown).collect();
    // As they stand in the help: the headings in the order in which they first come.
    let mut headings: Vec<Option<&str>> = Vec::new();
    for arg in &arguments {
        if !headings.contains(&arg.get_help_heading()) {
            headings.push(arg.get_help_heading());
        }
    }
    for heading in headings {
        let (flag, meaning) = (messages.get("reference-flag"), messages.get("reference-meaning"));
        let title = heading.map_or_else(|| flag.clone(), |heading| format!("{heading}: {flag}"));
        let _ = write!(page, "\n| {title} | {meaning} | {} |\n|---|---|---|\n", messages.get("reference-default"));
        for arg in arguments.iter().filter(|arg| arg.get_help_heading() == heading) {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let choices: Vec<String> = (arg.get_possible_values().iter())
                .filter(|_| arg.get_action().takes_values())
                .map(|value| format!("`{}`", value.get_name()))
                .collect();
            let choices = if choices.is_empty() { String::new() } else { format!(": {}", choices.join(", ")) };
            let defaults: Vec<String> = (arg.get_default_values().iter())
                .filter(|_| arg.get_action().takes_values())
                .map(|value| format!("`{}`", value.to_string_lossy()))
                .collect();
            let written = arg.to_string();
            let _ = writeln!(page, "| `{}` | {}{choices} | {} |", cell(&written), cell(&help), defaults.join(", "));
        }
    }
    if let Some(after) = command.get_after_help() {
        let _ = write!(page, "\n```\n{after}\n```\n");
    }
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        describe(below, &format!("{name} {}", below.get_name()), messages, page);
    }
}

fn settings(messages: &Messages) -> String {
    let mut page = format!("# {}\n\n{}\n", messages.get("reference-settings"), messages.get("reference-made"));
    let ids = ["reference-key", "reference-flag", "reference-default", "reference-meaning", "reference-on-resume"];
    let titles = ids.map(|id| messages.get(id));
    let mut section = String::new();
    for setting in keys() {
        if setting.section() != section {
            section = setting.section();
            let _ = write!(page, "\n## `{section}`\n\n| {} |\n|---|---|---|---|---|\n", titles.join(" | "));
        }
        let flag = match (setting.off(), setting.value_name) {
            (Some((off, _)), _) => format!("{}`, `--{off}", setting.name()),
            (None, "") => setting.name(),
            (None, value) => format!("{} {value}", setting.name()),
        };
        let default = match setting.kind.is_switch() {
            true => format!("`{}`", switch_default(setting)),
            false => setting.default_text().map(|default| format!("`{default}`")).unwrap_or_default(),
        };
        let words = setting.kind.names();
        let words = if words.is_empty() { String::new() } else { format!(": `{}`", words.join("`, `")) };
        let (help, resumed) = (messages.help(setting.help), messages.get(on_resume(setting)));
        let (key, flag, help) = (setting.key(), cell(&flag), cell(&help));
        let _ = writeln!(page, "| `{key}` | `{flag}` | {default} | {help}{words} | {resumed} |");
    }
    let _ = write!(page, "\n## {}\n\n", messages.get("reference-earlier"));
    let _ = write!(page, "| {} | {} |\n|---|---|\n", titles[0], messages.get("reference-became"));
    for (key, now) in EARLIER {
        let became = match now {
            Earlier::Is(now) => format!("`{now}`"),
            Earlier::Switch(now, on, off) => format!("`{now}`: `{on}` / `{off}`"),
            Earlier::Always(why) => messages.text(why.to_owned()),
        };
        let _ = writeln!(page, "| `{key}` | {became} |");
    }
    page
}
