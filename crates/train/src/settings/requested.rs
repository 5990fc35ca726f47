//! [`Requested`]: the settings that were given, each with where it was given.

use std::collections::BTreeMap;
use std::path::Path;

use super::resolve::SettingsError;
use super::setting::Setting;
use super::table;
use super::value::Value;

/// Leaves the choice to [`super::resolve`].
pub(super) const AUTO: &str = "auto";

/// The settings that were given, by flag. What is not here is chosen by [`super::resolve`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requested {
    values: BTreeMap<&'static str, Given>,
}

/// A value, and where it was given.
#[derive(Clone, Debug, PartialEq)]
struct Given {
    value: Value,
    source: String,
}

impl Requested {
    /// Nothing is given.
    pub fn new() -> Requested {
        Requested::default()
    }

    /// The same with a setting, by a name and a text as on the command line or in `config.yaml`:
    ///
    /// ```
    /// # use tandem_train::Requested;
    /// let requested = Requested::new().with("max-steps", "2000")?.with("learning.lr", "1e-3")?;
    /// # Ok::<(), tandem_train::SettingsError>(())
    /// ```
    pub fn with(mut self, name: &str, text: &str) -> Result<Requested, SettingsError> {
        self.set(name, text, "program")?;
        Ok(self)
    }

    /// Gives a setting, by a name and a text as on the command line or in `config.yaml`.
    pub fn set(&mut self, name: &str, text: &str, source: &str) -> Result<(), SettingsError> {
        let (setting, off) = table::find(name).ok_or_else(|| SettingsError::Unknown(name.to_owned()))?;
        let value = setting.kind.parse(text).map_err(|why| SettingsError::Invalid {
            name: setting.name(),
            value: text.to_owned(),
            why,
        })?;
        let value = match value {
            Value::Switch(on) => Value::Switch(on != off),
            other => other,
        };
        self.give(setting, value, source);
        Ok(())
    }

    /// Gives a setting a value of its kind.
    pub fn give(&mut self, setting: &'static Setting, value: Value, source: &str) {
        self.values.insert(setting.flag, Given { value, source: source.to_owned() });
    }

    /// Changes where a setting was given, if it was.
    pub fn came_from(&mut self, flag: &str, source: &str) {
        if let Some(given) = self.values.get_mut(flag) {
            source.clone_into(&mut given.source);
        }
    }

    /// The value of a setting, by its flag.
    pub fn get(&self, flag: &str) -> Option<&Value> {
        debug_assert!(table::find(flag).is_some_and(|(setting, _)| setting.flag == flag), "no setting `{flag}`");
        self.values.get(flag).map(|given| &given.value)
    }

    /// Whether a setting is given something else than `auto`, which is as if it were not given.
    pub fn names(&self, flag: &str) -> bool {
        self.get(flag).is_some_and(|value| value.word() != Some(AUTO))
    }

    /// Where a setting was given, if it was.
    pub fn source(&self, flag: &str) -> Option<&str> {
        self.values.get(flag).map(|given| given.source.as_str())
    }

    /// Whether a switch is on; none when it was not given.
    pub fn switch(&self, flag: &str) -> Option<bool> {
        self.get(flag).and_then(Value::switch)
    }

    /// Whether a switch was turned on.
    pub fn is_on(&self, flag: &str) -> bool {
        self.switch(flag) == Some(true)
    }

    /// A text that was given.
    pub fn word(&self, flag: &str) -> Option<&str> {
        self.get(flag).and_then(Value::word)
    }

    /// A path that was given.
    pub fn path(&self, flag: &str) -> Option<&Path> {
        self.get(flag).and_then(Value::path)
    }

    /// A whole number that was given.
    pub fn number(&self, flag: &str) -> Option<u64> {
        self.get(flag).and_then(Value::number)
    }
}
