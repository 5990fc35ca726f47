//! `config.yaml`: every flag of `tandem train` as a key, from the flags' own definition.
//!
//! A file becomes flags that stand before those that were typed, so that one parser reads both, and what is typed wins.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory};
use saphyr::{LoadableYamlNode, MarkedYaml, YamlData};
use tandem_train::Choice;

use crate::args::Args;
use crate::messages::Messages;

/// Flags that are about one start and not about the run, and so are no keys.
const NOT_KEYS: [&str; 4] = ["config", "print-config", "help", "version"];

/// One setting.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    /// The section: the heading of the flag in `--help`, in small letters.
    pub(crate) section: String,
    /// The name: that of the flag, with `_`.
    pub(crate) name: String,
    /// `--flag`.
    pub(crate) flag: String,
    /// What it is for.
    pub(crate) help: String,
    /// What its value is called; a switch has none.
    pub(crate) value: Option<String>,
    /// The values there are, if they are few.
    pub(crate) choices: Vec<String>,
    /// The default, if it does not depend on anything.
    pub(crate) default: Option<String>,
}

impl Key {
    fn of(arg: &Arg) -> Option<Key> {
        let long = arg.get_long().filter(|long| !NOT_KEYS.contains(long))?;
        if arg.is_hide_set() || arg.is_global_set() {
            return None;
        }
        let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
        let value = takes_value
            .then(|| arg.get_value_names().and_then(|names| names.first()).map_or("VALUE".into(), ToString::to_string));
        let choices: Vec<String> = if takes_value {
            arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect()
        } else {
            Vec::new()
        };
        let default = arg.get_default_values().first().filter(|_| takes_value);
        Some(Key {
            section: arg.get_help_heading().unwrap_or("run").to_lowercase().replace(' ', "_"),
            name: long.replace('-', "_"),
            flag: format!("--{long}"),
            help: arg.get_help().map(ToString::to_string).unwrap_or_default(),
            value,
            choices,
            default: default.map(|value| value.to_string_lossy().into_owned()),
        })
    }

    /// `section.name`.
    pub(crate) fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }
}

/// The keys of a command, in the order of its help.
pub(crate) fn keys(command: &str) -> Vec<Key> {
    let args = Args::command();
    let found = args.find_subcommand(command).expect("a command of ours");
    found.get_arguments().filter_map(Key::of).collect()
}

/// Keys of the earlier system, and what they are here: a key, or words that say what became of it.
pub(crate) const EARLIER: [(&str, Earlier); 13] = [
    ("data.batch_size", Earlier::Is("learning.batch_size")),
    ("data.num_workers", Earlier::Is("pipeline.num_workers")),
    ("data.prefetch_buffer_size", Earlier::Is("pipeline.prefetch_buffer_size")),
    ("data.pipeline_buffer_size", Earlier::Is("pipeline.buffer_size")),
    ("data.model_start_delay", Earlier::Is("pipeline.model_start_delay")),
    ("data.data_gpu", Earlier::Is("devices.data_gpu")),
    ("data.model_gpu", Earlier::Is("devices.model_gpu")),
    ("model.enable_gradient_checkpointing", Earlier::Is("model.enable_gradient_checkpointing")),
    ("data.enable_caching", Earlier::Switch("pipeline.cache", "ram", "off")),
    ("data.prefetch_to_gpu", Earlier::Always("batches are always copied to the model's device ahead of its steps")),
    ("data.use_tf_native_loading", Earlier::Always("there is one loader, in Rust")),
    (
        "data.enable_parallel_batch",
        Earlier::Always("batches are made in parallel; pipeline.num_workers says how many at once"),
    ),
    (
        "data.enable_map_fusion",
        Earlier::Always("there is nothing to fuse: reading, decoding and features are one stage"),
    ),
];

/// What became of a key of the earlier system.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Earlier {
    /// Another name.
    Is(&'static str),
    /// This key, with one value for true and one for false.
    Switch(&'static str, &'static str, &'static str),
    /// It is always so.
    Always(&'static str),
}

/// A value in a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) flag: String,
    /// None for a switch that is on.
    pub(crate) value: Option<String>,
    pub(crate) line: usize,
}

/// What a file says.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) entries: Vec<Entry>,
    /// What became of keys of the earlier system.
    pub(crate) notes: Vec<String>,
}

/// What is wrong with a file.
#[derive(Clone, Debug)]
pub(crate) struct ConfigError {
    path: PathBuf,
    line: Option<usize>,
    text: String,
    hint: Option<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.text)
    }
}

impl ConfigError {
    /// What to do about it.
    pub(crate) fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl File {
    /// Reads a file for `train`; keys that `command` does not have are left out.
    pub(crate) fn read(path: &Path, command: &str) -> Result<File, ConfigError> {
        let error = |line, text: String| ConfigError { path: path.to_owned(), line, text, hint: None };
        let text = std::fs::read_to_string(path).map_err(|why| error(None, format!("cannot be read: {why}")))?;
        let documents =
            MarkedYaml::load_from_str(&text).map_err(|why| error(Some(why.marker().line()), why.info().to_owned()))?;
        let mut file = File { path: path.to_owned(), ..File::default() };
        let (known, wanted) = (keys("train"), keys(command));
        for document in &documents {
            for (name, value, line) in
                pairs(document).map_err(|line| error(Some(line), "KEY: VALUE is expected here".to_owned()))?
            {
                match pairs_of(&value) {
                    Some(inner) => {
                        for (inner_name, inner_value, line) in
                            inner.map_err(|line| error(Some(line), "KEY: VALUE is expected here".to_owned()))?
                        {
                            file.add(&format!("{name}.{inner_name}"), &inner_value, line, &known, &wanted)?;
                        }
                    }
                    // A section in which everything is a remark.
                    None if is_nothing(&value) && known.iter().any(|key| key.section == name) => {}
                    None => file.add(&name, &value, line, &known, &wanted)?,
                }
            }
        }
        Ok(file)
    }

    fn add(
        &mut self,
        path: &str,
        value: &MarkedYaml<'_>,
        line: usize,
        known: &[Key],
        wanted: &[Key],
    ) -> Result<(), ConfigError> {
        let error = |text: String, hint| ConfigError { path: self.path.clone(), line: Some(line), text, hint };
        let text = scalar(value).ok_or_else(|| error(format!("`{path}` is not a single value"), None))?;
        // Here and in the earlier system the same name may be in two sections; ours comes first.
        let find = |path: &str| known.iter().find(|key| key.path() == path || key.name == path);
        let (key, text) = match (find(path), EARLIER.iter().find(|(name, _)| *name == path)) {
            (Some(key), _) => (key, text),
            (None, Some((_, Earlier::Is(now)))) => {
                self.notes.push(format!("`{path}` is `{now}` here"));
                (find(now).expect("one of ours"), text)
            }
            (None, Some((_, Earlier::Switch(now, on, off)))) => {
                let chosen = if is_true(&text) { on } else { off };
                self.notes.push(format!("`{path}: {text}` is `{now}: {chosen}` here"));
                (find(now).expect("one of ours"), (*chosen).to_owned())
            }
            (None, Some((_, Earlier::Always(why)))) => {
                self.notes.push(format!("`{path}` does nothing here: {why}"));
                return Ok(());
            }
            (None, None) => {
                let near = nearest(path, known.iter().map(Key::path));
                return Err(error(
                    format!("there is no key `{path}`"),
                    near.map(|near| format!("did you mean `{near}`?")),
                ));
            }
        };
        if text.is_empty() || text == "null" || text == "~" || !wanted.iter().any(|other| other.flag == key.flag) {
            return Ok(());
        }
        match &key.value {
            Some(_) => self.entries.push(Entry { flag: key.flag.clone(), value: Some(text), line }),
            None if is_true(&text) => self.entries.push(Entry { flag: key.flag.clone(), value: None, line }),
            None if is_false(&text) => {}
            None => return Err(error(format!("`{path}` is true or false, not `{text}`"), None)),
        }
        Ok(())
    }

    /// As flags.
    fn flags(&self) -> Vec<OsString> {
        let flags = self.entries.iter().map(|entry| match &entry.value {
            Some(value) => format!("{}={value}", entry.flag),
            None => entry.flag.clone(),
        });
        flags.map(OsString::from).collect()
    }
}

fn is_true(text: &str) -> bool {
    matches!(text.to_lowercase().as_str(), "true" | "yes" | "on")
}

fn is_false(text: &str) -> bool {
    matches!(text.to_lowercase().as_str(), "false" | "no" | "off")
}

type Pair<'a> = (String, MarkedYaml<'a>, usize);

/// The pairs of a mapping; the line of what is none.
fn pairs<'a>(node: &MarkedYaml<'a>) -> Result<Vec<Pair<'a>>, usize> {
    match pairs_of(node) {
        Some(pairs) => pairs,
        // An empty document, or nothing but remarks.
        None if is_nothing(node) => Ok(Vec::new()),
        None => Err(node.span.start.line()),
    }
}

fn pairs_of<'a>(node: &MarkedYaml<'a>) -> Option<Result<Vec<Pair<'a>>, usize>> {
    let YamlData::Mapping(mapping) = &node.data else { return None };
    let pair = |(key, value): (&MarkedYaml<'a>, &MarkedYaml<'a>)| {
        let line = key.span.start.line();
        scalar(key).map(|name| (name, value.clone(), line)).ok_or(line)
    };
    Some(mapping.iter().map(pair).collect())
}

fn is_nothing(node: &MarkedYaml<'_>) -> bool {
    scalar(node).is_some_and(|text| matches!(text.as_str(), "" | "~" | "null"))
}

/// A value as it would be typed.
fn scalar(node: &MarkedYaml<'_>) -> Option<String> {
    use saphyr::Scalar;
    match &node.data {
        YamlData::Representation(text, ..) => Some(text.to_string()),
        YamlData::Value(Scalar::Null) => Some(String::new()),
        YamlData::Value(Scalar::Boolean(value)) => Some(value.to_string()),
        YamlData::Value(Scalar::Integer(value)) => Some(value.to_string()),
        YamlData::Value(Scalar::FloatingPoint(value)) => Some(value.to_string()),
        YamlData::Value(Scalar::String(text)) => Some(text.to_string()),
        _ => None,
    }
}

/// The name that takes the fewest changes, if they are few.
pub(crate) fn nearest(name: &str, names: impl Iterator<Item = String>) -> Option<String> {
    let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    let distance = |other: &String| changes(name, other).min(changes(&last(name), &last(other)));
    let (near, changes) = names.map(|other| (other.clone(), distance(&other))).min_by_key(|(_, changes)| *changes)?;
    (changes <= 1 + name.len() / 4).then_some(near)
}

/// Letters to put in, leave out or replace to make one word of another.
fn changes(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Puts the flags of `--config FILE` before those that were typed.
pub(crate) fn expand(typed: Vec<OsString>) -> Result<(Vec<OsString>, Option<File>), ConfigError> {
    let words: Vec<String> = typed.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let command = words.iter().enumerate().skip(1).find(|(_, word)| matches!(word.as_str(), "train" | "profile"));
    let Some((at, command)) = command else { return Ok((typed, None)) };
    let apart = words.iter().position(|word| word == "--config").and_then(|at| words.get(at + 1)).cloned();
    let given = apart.or_else(|| words.iter().find_map(|word| word.strip_prefix("--config=").map(str::to_owned)));
    let Some(path) = given else { return Ok((typed, None)) };
    let file = File::read(Path::new(&path), command)?;
    let (before, after) = typed.split_at(at + 1);
    let all = before.iter().cloned().chain(file.flags()).chain(after.iter().cloned()).collect();
    Ok((all, Some(file)))
}

/// What was given, and where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    /// `flag`, or the file and the line, by flag.
    origins: BTreeMap<String, String>,
    /// As it was typed, by flag.
    values: BTreeMap<String, String>,
}

impl Given {
    pub(crate) fn new(typed: &[OsString], file: Option<&File>, matches: Option<&ArgMatches>) -> Given {
        let mut given = Given::default();
        if let Some(file) = file {
            for entry in &file.entries {
                given.origins.insert(entry.flag.clone(), format!("{}:{}", file.path.display(), entry.line));
            }
        }
        for word in typed {
            let word = word.to_string_lossy();
            if let Some(flag) = word.strip_prefix("--") {
                let name = flag.split('=').next().unwrap_or_default();
                given.origins.insert(format!("--{name}"), "flag".to_owned());
            }
        }
        for key in matches.iter().flat_map(|_| keys("train")) {
            let id = key.name.as_str();
            let raw = matches.filter(|matches| matches.try_contains_id(id).unwrap_or(false));
            let text = raw
                .and_then(|matches| matches.try_get_raw(id).ok().flatten())
                .map(|values| values.map(|value| value.to_string_lossy().into_owned()).collect::<Vec<_>>().join(","));
            if let Some(text) = text {
                given.values.insert(key.flag, text);
            }
        }
        given
    }

    /// Where a flag's value was given, if it was.
    pub(crate) fn origin(&self, flag: &str) -> Option<&str> {
        self.origins.get(flag).map(String::as_str)
    }

    /// Every key, its value and where that comes from, as a file that can be read again.
    pub(crate) fn print(&self, choices: &[Choice], messages: &Messages) -> String {
        let mut text = String::new();
        let keys = keys("train");
        let mut section = "";
        // In the order of the help, section by section.
        let mut sorted: Vec<&Key> = keys.iter().collect();
        let first = |name: &str| keys.iter().position(|key| key.section == name).unwrap_or(usize::MAX);
        sorted.sort_by_key(|key| first(&key.section));
        for key in sorted {
            if key.section != section {
                section = &key.section;
                text += &format!("{section}:\n");
            }
            let chosen = choices.iter().find(|choice| choice.name == key.flag);
            let typed = self.values.get(&key.flag).cloned();
            let value = chosen.map(|choice| as_typed(&choice.got)).or(typed).or_else(|| key.default.clone());
            let why = match (self.origin(&key.flag), chosen) {
                (Some(origin), _) => origin.to_owned(),
                (None, Some(choice)) => choice.why.clone(),
                (None, None) => "default".to_owned(),
            };
            let why = messages.text(why);
            let value = value.filter(|value| value != "none").unwrap_or_default();
            // Devices that were chosen may be others elsewhere: they are told, not set.
            let told = key.section == "devices" && self.origin(&key.flag).is_none();
            let (value, why) = if told { (String::new(), format!("{why}: {value}")) } else { (value, why) };
            let line = format!("  {}: {value}", key.name);
            text += &format!("{line:<44} # {why}\n");
        }
        text
    }
}

/// A value of the manifest as it would be typed: `Some(7)` is `7`, `Off` is `off`, `Noam { … }` is `noam`.
pub(crate) fn as_typed(got: &str) -> String {
    let inner = got.strip_prefix("Some(").and_then(|rest| rest.strip_suffix(')')).unwrap_or(got);
    let inner = inner.split(" {").next().unwrap_or_default();
    if inner.chars().all(|c| c.is_ascii_alphabetic()) { inner.to_lowercase() } else { inner.to_owned() }
}

/// The command line, on which what comes later wins: a file's flags come first.
pub(crate) fn command() -> Command {
    let mut command = Args::command();
    for name in ["train", "profile"] {
        command = command.mut_subcommand(name, |command| command.args_override_self(true));
    }
    command
}
