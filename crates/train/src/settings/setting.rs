//! [`Setting`]: what a row of the table says about a setting.

use super::resolve::Facts;
use super::train_config::TrainConfig;
use super::value::{Kind, Off, Value};
use crate::optim::LearningRate;

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its flag, without `--`.
    pub flag: &'static str,
    /// Other names of the flag.
    pub aliases: &'static [&'static str],
    /// The heading that it stands under; in small letters the section of `config.yaml`.
    pub heading: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// What its value is called in the help; empty for a switch.
    pub value_name: &'static str,
    /// What it is for.
    pub help: &'static str,
    /// What it is when it is not requested and there is no run to resume.
    pub default: DefaultValue,
    /// What happens to it when a run is resumed.
    pub on_resume: OnResume,
    /// Which commands have it.
    pub scope: Scope,
    /// Flags that it cannot stand beside.
    pub conflicts: &'static [&'static str],
    /// `train` does not start without it.
    pub required: bool,
    /// For tests and experiments: in no help, and no key of `config.yaml`.
    pub hidden: bool,
    /// Where it is in [`TrainConfig`]; none: it is about one start, not about the run.
    pub field: Option<Field>,
}

/// What a setting is when nothing else says it.
#[derive(Clone, Copy, Debug)]
pub enum DefaultValue {
    /// This, as it would be typed.
    Is(&'static str),
    /// What the preset (`--optimization-level`) says.
    Preset(fn(&LearningRate, f64) -> Value),
    /// Computed from what else is set.
    Derived(fn(&TrainConfig) -> Value),
    /// Computed from what else is set and from what there is; with the reason.
    Rule(fn(&TrainConfig, &Facts) -> (Value, String)),
    /// Nothing, or what [`TrainConfig::default`] says.
    Nothing,
}

/// What happens to a setting when a run is resumed.
#[derive(Clone, Copy, Debug)]
pub enum OnResume {
    /// It is that of the run, and must be the same when it is given: it decides what is learned.
    Kept,
    /// The same, but what is compared is this (named so) and not the setting alone.
    KeptAs(&'static str, fn(&TrainConfig) -> Value),
    /// It is that of the run, unless another value is given.
    MayChange,
    /// It is not taken from the run: given again at each start, or chosen again.
    PerStart,
}

/// Which commands have a setting; each has those of the scopes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Every command that reads a corpus.
    Corpus,
    /// `advise`, `profile` and `train`.
    Advise,
    /// `profile` and `train`.
    Profile,
    /// Only `train`.
    Train,
}

/// A place in [`TrainConfig`].
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub(super) get: fn(&TrainConfig) -> Option<Value>,
    pub(super) set: fn(&mut TrainConfig, Option<&Value>),
}

impl Setting {
    /// `--flag`.
    pub fn name(&self) -> String {
        format!("--{}", self.flag)
    }

    /// The section of `config.yaml`.
    pub fn section(&self) -> String {
        self.heading.to_lowercase().replace(' ', "_")
    }

    /// The key of `config.yaml`, without its section.
    pub fn key(&self) -> String {
        self.flag.replace('-', "_")
    }

    /// The key of `config.yaml` with its section: `learning.lr`.
    pub fn path(&self) -> String {
        format!("{}.{}", self.section(), self.key())
    }

    /// The flag that turns it off, and what that means.
    pub fn off(&self) -> Option<(&'static str, &'static str)> {
        match self.kind {
            Kind::Switch(Off::Flag(flag, help)) => Some((flag, help)),
            _ => None,
        }
    }

    /// The default as it would be typed, if it does not depend on anything.
    pub fn default_text(&self) -> Option<&'static str> {
        match self.default {
            DefaultValue::Is(text) => Some(text),
            _ => None,
        }
    }

    /// What it is in a run.
    pub fn value(&self, config: &TrainConfig) -> Option<Value> {
        self.field.and_then(|field| (field.get)(config))
    }

    pub(super) const fn or(mut self, aliases: &'static [&'static str]) -> Setting {
        self.aliases = aliases;
        self
    }

    pub(super) const fn is(mut self, default: &'static str) -> Setting {
        self.default = DefaultValue::Is(default);
        self
    }

    pub(super) const fn by(mut self, rule: fn(&TrainConfig, &Facts) -> (Value, String)) -> Setting {
        self.default = DefaultValue::Rule(rule);
        self
    }

    pub(super) const fn from(mut self, derive: fn(&TrainConfig) -> Value) -> Setting {
        self.default = DefaultValue::Derived(derive);
        self
    }

    pub(super) const fn preset(mut self, preset: fn(&LearningRate, f64) -> Value) -> Setting {
        self.default = DefaultValue::Preset(preset);
        self
    }

    pub(super) const fn on_resume(mut self, on_resume: OnResume) -> Setting {
        self.on_resume = on_resume;
        self
    }

    pub(super) const fn scope(mut self, scope: Scope) -> Setting {
        self.scope = scope;
        self
    }

    pub(super) const fn not_with(mut self, conflicts: &'static [&'static str]) -> Setting {
        self.conflicts = conflicts;
        self
    }

    pub(super) const fn at(mut self, field: Field) -> Setting {
        self.field = Some(field);
        if matches!(self.on_resume, OnResume::PerStart) {
            self.on_resume = OnResume::MayChange;
        }
        self
    }

    pub(super) const fn hide(mut self) -> Setting {
        self.hidden = true;
        self
    }
}

/// A row: flag, heading, kind, name of the value, help.
pub(super) const fn row(
    flag: &'static str,
    heading: &'static str,
    kind: Kind,
    value_name: &'static str,
    help: &'static str,
) -> Setting {
    Setting {
        flag,
        aliases: &[],
        heading,
        kind,
        value_name,
        help,
        default: DefaultValue::Nothing,
        on_resume: OnResume::PerStart,
        scope: Scope::Train,
        conflicts: &[],
        required: false,
        hidden: false,
        field: None,
    }
}
