//! `tandem config`, `tandem completions`: what is made from the table of settings.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use clap::FromArgMatches;
use serde_json::{Map, Value, json};
use tandem_train::{Kind, OnResume, Scope, Setting, find_setting, resolve_corpus};

use crate::args::{Args, CompletionsArgs, ConfigAction, ConfigArgs};
use crate::commands::Command;
use crate::commands::reference;
use crate::config_file::{self, ConfigError, EARLIER, Earlier, File, keys, nearest, switch_default};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::run_facts;
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
    let file = File::read(path, Scope::Train).map_err(|error| wrong(&error))?;
    for note in &file.notes {
        eprintln!("{}", messages.with("config-note", &[("note", note)]));
    }
    // What the flags themselves say about the values; what is missing may still be typed.
    let mut all = vec!["tandem".to_owned(), "train".to_owned(), "--train-data=somewhere".to_owned()];
    for entry in &file.entries {
        let Some(flag) = entry.flag() else { continue };
        let words = ["tandem", "train", "--train-data=somewhere", &flag];
        all.push(flag.clone());
        if let Err(error) = config_file::command().try_get_matches_from(words) {
            let place = format!("{}, line {}", path.display(), entry.line);
            return Err(Failure::usage(format!("{place}: {}", first_lines(&error))));
        }
    }
    // And what they say together.
    let together = |error: clap::Error| Failure::usage(format!("{}: {}", path.display(), first_lines(&error)));
    let matches = config_file::command().try_get_matches_from(all).map_err(together)?;
    if let Command::Train(args) = Args::from_arg_matches(&matches).map_err(together)?.command {
        resolve_corpus(&args.requested, None)
            .map_err(|error| run_facts::failure(error, None, messages).at(&path.display()))?;
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
    let mut section = String::new();
    for setting in keys() {
        if setting.section() != section {
            section = setting.section();
            let _ = write!(text, "\n{section}:\n");
        }
        let value = match setting.kind.is_switch() {
            true => switch_default(setting).to_string(),
            false => setting.default_text().unwrap_or_default().to_owned(),
        };
        let words = setting.kind.names();
        let words = if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) };
        let _ = writeln!(text, "  # {}{words}", messages.help(setting.help));
        let _ = writeln!(text, "  # {}: {value}", setting.key());
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

fn explain(requested: &str, messages: &Messages) -> Result<(), Failure> {
    let name = requested.trim_start_matches("--").replace('-', "_");
    let mut text = String::new();
    if let Some((setting, _)) = find_setting(&name).filter(|(setting, _)| !setting.hidden) {
        let _ = writeln!(text, "{} ({} {})", setting.path(), setting.name(), setting.value_name);
        let _ = writeln!(text, "  {}", messages.help(setting.help));
        let words = setting.kind.names();
        if !words.is_empty() {
            let _ = writeln!(text, "  {}", words.join(", "));
        }
        if let Some(default) = setting.default_text() {
            let _ = writeln!(text, "  {}", messages.help(&format!("[default: {default}]")));
        }
        if let Some((off, help)) = setting.off() {
            let _ = writeln!(text, "  --{off}: {}", messages.help(help));
        }
        let _ = writeln!(text, "  {}", messages.get(on_resume(setting)));
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
        let failure = Failure::usage(messages.with("config-no-key", &[("key", &requested)]));
        let near = nearest(&name, keys().map(Setting::path));
        return Err(match near {
            Some(near) => failure.hint(messages.with("config-near", &[("key", &near)])),
            None => failure.hint(messages.get("config-hint-init")),
        });
    }
    print(&text)
}

/// The message that says what happens to a setting when a run is resumed.
pub(crate) fn on_resume(setting: &Setting) -> &'static str {
    match setting.on_resume {
        OnResume::Kept | OnResume::KeptAs(..) => "setting-kept",
        OnResume::MayChange => "setting-may-change",
        OnResume::PerStart => "setting-per-start",
    }
}

/// A JSON schema of the file.
pub(crate) fn schema(messages: &Messages) -> Value {
    let mut sections: Map<String, Value> = Map::new();
    for setting in keys() {
        let words = setting.kind.names();
        let mut about = match setting.kind {
            Kind::Switch(_) => json!({"type": "boolean", "default": switch_default(setting)}),
            Kind::Choice(_) => json!({"enum": words}),
            Kind::Schedule(_) | Kind::Size => json!({"type": ["string", "null"], "examples": words}),
            Kind::Number(least, u64::MAX) => json!({"type": ["integer", "null"], "minimum": least}),
            Kind::Number(least, most) => json!({"type": ["integer", "null"], "minimum": least, "maximum": most}),
            Kind::Positive => json!({"type": ["number", "null"], "exclusiveMinimum": 0}),
            Kind::Fraction => json!({"type": ["number", "null"], "minimum": 0, "exclusiveMaximum": 1}),
            Kind::Real => json!({"type": ["number", "null"]}),
            // Units, words and numbers in one: `8GB`, `2s`, `off`, `0`, `9100`.
            Kind::Decibels | Kind::Seconds | Kind::Megabytes(_) | Kind::DeviceMegabytes => {
                json!({"type": ["number", "string", "null"]})
            }
            Kind::Device | Kind::Simulation | Kind::Address => json!({"type": ["integer", "string", "null"]}),
            Kind::Language | Kind::Path | Kind::Text => json!({"type": ["string", "null"]}),
        };
        about["description"] = json!(messages.help(setting.help));
        if let Some(default) = setting.default_text() {
            // A number as a number.
            about["default"] = serde_json::from_str(default).unwrap_or_else(|_| json!(default));
        }
        let section = sections
            .entry(setting.section())
            .or_insert_with(|| json!({"type": "object", "additionalProperties": false, "properties": {}}));
        section["properties"][setting.key()] = about;
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
