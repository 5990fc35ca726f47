//! From the text of `config.yaml` to settings: keys of ours and of the earlier system, each with its line. Without Burn and
//! the command line, so that the fuzz targets can read files as the program does.

use std::fmt;
use std::path::{Path, PathBuf};

use saphyr::{LoadableYamlNode, MarkedYaml, YamlData};
use tandem_train::{Kind, SETTINGS, Scope, Setting, TrainConfig, Value, find_setting};

/// The settings that are keys, in the order of the help.
pub(crate) fn keys() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(|setting| !setting.hidden)
}

/// What a switch is without anything else.
pub(crate) fn switch_default(setting: &Setting) -> bool {
    setting.value(&TrainConfig::default()) == Some(Value::Switch(true))
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
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) setting: &'static Setting,
    /// As it would be typed; a switch is `true` or `false`.
    pub(crate) value: String,
    pub(crate) line: usize,
}

impl Entry {
    /// As a flag; none for a switch that is off without one.
    pub(crate) fn flag(&self) -> Option<String> {
        match (self.setting.kind.is_switch(), self.value.as_str()) {
            (false, value) => Some(format!("{}={value}", self.setting.name())),
            (true, "true") => Some(self.setting.name()),
            (true, _) => self.setting.off().map(|(off, _)| format!("--{off}")),
        }
    }
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
    /// Reads a file for `train`; keys beyond `scope` are skipped.
    pub(crate) fn read(path: &Path, scope: Scope) -> Result<File, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|why| ConfigError {
            path: path.to_owned(),
            line: None,
            text: format!("cannot be read: {why}"),
            hint: None,
        })?;
        File::parse(path, &text, scope)
    }

    /// The same of a text, as if it were in that file.
    pub(crate) fn parse(path: &Path, text: &str, scope: Scope) -> Result<File, ConfigError> {
        let error = |line, text: String| ConfigError { path: path.to_owned(), line, text, hint: None };
        let documents =
            MarkedYaml::load_from_str(text).map_err(|why| error(Some(why.marker().line()), why.info().to_owned()))?;
        let mut file = File { path: path.to_owned(), ..File::default() };
        for document in &documents {
            for (name, value, line) in
                pairs(document).map_err(|line| error(Some(line), "KEY: VALUE is expected here".to_owned()))?
            {
                match pairs_of(&value) {
                    Some(inner) => {
                        for (inner_name, inner_value, line) in
                            inner.map_err(|line| error(Some(line), "KEY: VALUE is expected here".to_owned()))?
                        {
                            file.add(&format!("{name}.{inner_name}"), &inner_value, line, scope)?;
                        }
                    }
                    // A section in which everything is a remark.
                    None if is_nothing(&value) && keys().any(|key| key.section() == name) => {}
                    None => file.add(&name, &value, line, scope)?,
                }
            }
        }
        Ok(file)
    }

    fn add(&mut self, path: &str, value: &MarkedYaml<'_>, line: usize, scope: Scope) -> Result<(), ConfigError> {
        let error = |text: String, hint| ConfigError { path: self.path.clone(), line: Some(line), text, hint };
        let text = scalar(value).ok_or_else(|| error(format!("`{path}` is not a single value"), None))?;
        // Here and in the earlier system the same name may be in two sections; ours comes first.
        let find = |path: &str| find_setting(path).filter(|(setting, _)| !setting.hidden && !path.contains('-'));
        let (found, text) = match (find(path), EARLIER.iter().find(|(name, _)| *name == path)) {
            (Some(found), _) => (found, text),
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
                let near = nearest(path, keys().map(Setting::path));
                return Err(error(
                    format!("there is no key `{path}`"),
                    near.map(|near| format!("did you mean `{near}`?")),
                ));
            }
        };
        let (setting, turns_off) = found;
        if text.is_empty() || text == "null" || text == "~" || setting.scope > scope {
            return Ok(());
        }
        let value = match setting.kind {
            Kind::Switch(_) => match setting.kind.parse(&text) {
                Ok(on) => (on == Value::Switch(!turns_off)).to_string(),
                Err(_) => return Err(error(format!("`{path}` is true or false, not `{text}`"), None)),
            },
            _ => text,
        };
        self.entries.push(Entry { setting, value, line });
        Ok(())
    }
}

fn is_true(text: &str) -> bool {
    matches!(text.to_lowercase().as_str(), "true" | "yes" | "on")
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
