//! `tandem config`, `tandem completions`: what is made from the definition of the flags.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use clap::FromArgMatches;
use serde_json::{Map, Value, json};

use crate::args::{Args, Command, CompletionsArgs, ConfigAction, ConfigArgs};
use crate::commands::reference;
use crate::config::{self, ConfigError, EARLIER, Earlier, File, Key, keys, nearest};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::settings::limits_are_asked_for;
use crate::ui::output::print;

pub(crate) fn run(args: &ConfigArgs, messages: &Messages) -> Result<(), Failure> {
    match &args.action {
        ConfigAction::Check { file } => check(file, messages),
        ConfigAction::Init { file: None, .. } => print(&template(messages)),
        ConfigAction::Init { file: Some(file), force } => init(file, *force, messages),
        ConfigAction::Explain { key } => explain(key, messages),
        ConfigAction::Schema => print(&format!("{:#}\n", schema(messages))),
    }
}

/// An error in a file, for the user.
pub(crate) fn wrong(error: &ConfigError) -> Failure {
    let failure = Failure::usage(error.to_string());
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn check(path: &Path, messages: &Messages) -> Result<(), Failure> {
    let file = File::read(path, "train").map_err(|error| wrong(&error))?;
    for note in &file.notes {
        eprintln!("{}", messages.with("config-note", &[("note", note)]));
    }
    // What the flags themselves say about the values; what is missing may still be typed.
    let mut all = vec!["tandem".to_owned(), "train".to_owned(), "--train-data=somewhere".to_owned()];
    for entry in &file.entries {
        let flag = match &entry.value {
            Some(value) => format!("{}={value}", entry.flag),
            None => entry.flag.clone(),
        };
        let words = ["tandem", "train", "--train-data=somewhere", &flag];
        all.push(flag.clone());
        if let Err(error) = config::command().try_get_matches_from(words) {
            let place = format!("{}, line {}", path.display(), entry.line);
            return Err(Failure::usage(format!("{place}: {}", first_lines(&error))));
        }
    }
    // And what they say together.
    let together = |error: clap::Error| Failure::usage(format!("{}: {}", path.display(), first_lines(&error)));
    let matches = config::command().try_get_matches_from(all).map_err(together)?;
    if let Command::Train(args) = Args::from_arg_matches(&matches).map_err(together)?.command {
        limits_are_asked_for(&args, args.enable_memory_isolation, messages)
            .map_err(|failure| failure.at(&path.display()))?;
    }
    let count = file.entries.len();
    print(&format!("{}\n", messages.with("config-good", &[("path", &path.display()), ("count", &count)])))
}

/// What the parser says, without its advice about flags.
fn first_lines(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines: Vec<&str> = text.trim_start_matches("error: ").lines().take_while(|line| !line.is_empty()).collect();
    lines.join("\n")
}

/// Every key, as a remark: what is not set is chosen by the program.
fn template(messages: &Messages) -> String {
    let mut text = format!("# {}\n# {}\n", messages.get("config-head"), messages.get("config-head-remarks"));
    let keys = keys("train");
    let mut sections: Vec<&str> = Vec::new();
    for key in &keys {
        if !sections.contains(&key.section.as_str()) {
            sections.push(&key.section);
        }
    }
    for section in sections {
        let _ = write!(text, "\n{section}:\n");
        for key in keys.iter().filter(|key| key.section == section) {
            let value = match (&key.default, &key.value) {
                (Some(default), _) => default.clone(),
                (None, Some(_)) => String::new(),
                (None, None) => "false".to_owned(),
            };
            let choices = if key.choices.is_empty() { String::new() } else { format!(" ({})", key.choices.join(", ")) };
            let _ = writeln!(text, "  # {}{choices}", messages.help(&key.help));
            let _ = writeln!(text, "  # {}: {value}", key.name);
        }
    }
    text
}

fn init(path: &Path, force: bool, messages: &Messages) -> Result<(), Failure> {
    if path.exists() && !force {
        return Err(Failure::usage(messages.with("config-exists", &[("path", &path.display())])));
    }
    fs::write(path, template(messages)).map_err(|error| {
        Failure::usage(messages.with("cannot-write", &[("path", &path.display()), ("reason", &error)]))
    })?;
    print(&format!("{}\n", messages.with("config-written", &[("path", &path.display())])))
}

fn explain(asked: &str, messages: &Messages) -> Result<(), Failure> {
    let name = asked.trim_start_matches("--").replace('-', "_");
    let keys = keys("train");
    let found: Vec<&Key> = keys.iter().filter(|key| key.path() == name || key.name == name).collect();
    let mut text = String::new();
    for key in &found {
        let _ = writeln!(text, "{} ({} {})", key.path(), key.flag, key.value.as_deref().unwrap_or_default());
        let _ = writeln!(text, "  {}", messages.help(&key.help));
        if !key.choices.is_empty() {
            let _ = writeln!(text, "  {}", key.choices.join(", "));
        }
        if let Some(default) = &key.default {
            let _ = writeln!(text, "  {}", messages.help(&format!("[default: {default}]")));
        }
    }
    for (earlier, now) in
        EARLIER.iter().filter(|(earlier, _)| *earlier == name || earlier.ends_with(&format!(".{name}")))
    {
        let became = match now {
            Earlier::Is(now) => (*now).to_owned(),
            Earlier::Switch(now, on, off) => format!("{now}: {on} / {off}"),
            Earlier::Always(why) => (*why).to_owned(),
        };
        let _ = writeln!(text, "{}", messages.with("config-earlier", &[("key", earlier), ("became", &became)]));
    }
    if text.is_empty() {
        let failure = Failure::usage(messages.with("config-no-key", &[("key", &asked)]));
        let near = nearest(&name, keys.iter().map(Key::path));
        return Err(match near {
            Some(near) => failure.hint(messages.with("config-near", &[("key", &near)])),
            None => failure.hint(messages.get("config-hint-init")),
        });
    }
    print(&text)
}

/// A JSON schema of the file.
pub(crate) fn schema(messages: &Messages) -> Value {
    let mut sections: Map<String, Value> = Map::new();
    for key in keys("train") {
        let mut about = json!({"description": messages.help(&key.help)});
        match (&key.value, key.choices.is_empty()) {
            (None, _) => about["type"] = json!("boolean"),
            (Some(_), false) => about["enum"] = json!(key.choices),
            // Units and numbers in one: `8GB`, `2s`, `1e-4`.
            (Some(_), true) => about["type"] = json!(["number", "string", "null"]),
        }
        if let Some(default) = &key.default {
            about["default"] = json!(default);
        }
        let section = sections
            .entry(key.section.clone())
            .or_insert_with(|| json!({"type": "object", "additionalProperties": false, "properties": {}}));
        section["properties"][&key.name] = about;
    }
    // Keys of the earlier system are read too; editors need not offer them.
    json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Tandem", "type": "object",
        "properties": sections, "additionalProperties": false})
}

pub(crate) fn completions(args: &CompletionsArgs, messages: &Messages) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut reference::command(messages), "tandem", &mut script);
    print(&String::from_utf8_lossy(&script))
}
