//! `config.yaml`: every setting as a key, from the table of settings.
//!
//! A file becomes flags that stand before those that were typed, so that one parser reads both, and what is typed wins.

mod yaml;

use std::ffi::OsString;
use std::path::Path;

use clap::{Command, CommandFactory};
use tandem_train::{Requested, ResolvedSetting, Scope, Setting, find_setting};

use crate::args::Args;
use crate::messages::Messages;

pub(crate) use yaml::{ConfigError, EARLIER, Earlier, Entry, File, keys, nearest, switch_default};

/// Puts the flags of `--config FILE` before those that were typed.
pub(crate) fn expand(typed: Vec<OsString>) -> Result<(Vec<OsString>, Option<File>), ConfigError> {
    let words: Vec<String> = typed.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let scope = |word: &String| match word.as_str() {
        "train" => Some(Scope::Train),
        "profile" => Some(Scope::Profile),
        _ => None,
    };
    let command = words.iter().enumerate().skip(1).find_map(|(at, word)| Some((at, scope(word)?)));
    let Some((at, scope)) = command else { return Ok((typed, None)) };
    let apart = words.iter().position(|word| word == "--config").and_then(|at| words.get(at + 1)).cloned();
    let given = apart.or_else(|| words.iter().find_map(|word| word.strip_prefix("--config=").map(str::to_owned)));
    let Some(path) = given else { return Ok((typed, None)) };
    let file = File::read(Path::new(&path), scope)?;
    let flags = file.entries.iter().filter_map(Entry::flag).map(OsString::from);
    let (before, after) = typed.split_at(at + 1);
    let all = before.iter().cloned().chain(flags).chain(after.iter().cloned()).collect();
    Ok((all, Some(file)))
}

/// Notes which settings a file gave: those that were not typed as well.
pub(crate) fn note_sources(requested: &mut Requested, typed: &[OsString], file: &File) {
    let typed: Vec<&Setting> = typed
        .iter()
        .filter_map(|word| {
            let word = word.to_string_lossy();
            let flag = word.strip_prefix("--")?.split('=').next()?.to_owned();
            find_setting(&flag).map(|(setting, _)| setting)
        })
        .collect();
    for Entry { setting, line, .. } in &file.entries {
        if !typed.iter().any(|other| other.flag == setting.flag) {
            requested.came_from(setting.flag, &format!("{}:{line}", file.path.display()));
        }
    }
}

/// Every key, its value and where that comes from, as a file that can be read again.
pub(crate) fn print(requested: &Requested, resolved: &[ResolvedSetting], messages: &Messages) -> String {
    let mut text = String::new();
    let mut section = String::new();
    for setting in keys() {
        if setting.section() != section {
            section = setting.section();
            text += &format!("{section}:\n");
        }
        let one = resolved.iter().find(|one| one.name == setting.name());
        let given = requested.get(setting.flag).map(ToString::to_string);
        let value = one.map(|one| one.value.clone()).or(given).or(setting.default_text().map(str::to_owned));
        let source = one.map(|one| one.source.as_str()).or(requested.source(setting.flag)).unwrap_or("default");
        let source = messages.text(source.to_owned());
        let value = value.filter(|value| value != "none").unwrap_or_default();
        // Devices that were chosen may be others elsewhere: they are shown, not set.
        let only_shown = section == "devices" && requested.source(setting.flag).is_none();
        let (value, source) = if only_shown { (String::new(), format!("{source}: {value}")) } else { (value, source) };
        let line = format!("  {}: {value}", setting.key());
        text += &format!("{line:<44} # {source}\n");
    }
    text
}

/// The command line, on which what comes later wins: a file's flags come first.
pub(crate) fn command() -> Command {
    let mut command = Args::command();
    for name in ["train", "profile"] {
        command = command.mut_subcommand(name, |command| command.args_override_self(true));
    }
    command
}
