//! Arguments made from the table of settings: one flag for each row, two for a switch that can be turned off.

use std::ffi::OsStr;
use std::ops::{Deref, DerefMut};

use clap::builder::{PathBufValueParser, PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, ValueHint};
use tandem_data::CacheMode;
use tandem_model::Size;
use tandem_train::{Kind, Requested, SETTINGS, Scope, Setting, Value, find_setting};

/// Settings of every command that reads a corpus.
pub(crate) const CORPUS: u8 = Scope::Corpus as u8;
/// Settings of `advise`.
pub(crate) const ADVISE: u8 = Scope::Advise as u8;
/// Settings of `profile`.
pub(crate) const PROFILE: u8 = Scope::Profile as u8;
/// Settings of `train`: all of them.
pub(crate) const TRAIN: u8 = Scope::Train as u8;

/// The settings that were given to a command, of those whose scope it has.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SettingArgs<const SCOPE: u8>(Requested);

impl<const SCOPE: u8> Deref for SettingArgs<SCOPE> {
    type Target = Requested;

    fn deref(&self) -> &Requested {
        &self.0
    }
}

impl<const SCOPE: u8> DerefMut for SettingArgs<SCOPE> {
    fn deref_mut(&mut self) -> &mut Requested {
        &mut self.0
    }
}

fn of_scope(scope: u8) -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(move |setting| setting.scope as u8 <= scope)
}

impl<const SCOPE: u8> clap::Args for SettingArgs<SCOPE> {
    fn augment_args(mut command: Command) -> Command {
        for setting in of_scope(SCOPE) {
            // `profile` can also make a corpus up.
            command = command.arg(argument(setting).required(setting.required && SCOPE != PROFILE));
            if let Some((off, help)) = setting.off() {
                let other = Arg::new(off).long(off).help(help).help_heading(setting.heading);
                command = command.arg(other.action(ArgAction::SetTrue).overrides_with(setting.flag));
            }
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const SCOPE: u8> FromArgMatches for SettingArgs<SCOPE> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut requested = Requested::new();
        let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        for setting in of_scope(SCOPE) {
            let value = if setting.kind.is_switch() {
                let off = setting.off().is_some_and(|(off, _)| is_given(off));
                if off { Some(false) } else { is_given(setting.flag).then_some(true) }.map(Value::Switch)
            } else {
                is_given(setting.flag).then(|| matches.get_one::<Value>(setting.flag).cloned()).flatten()
            };
            if let Some(value) = value {
                requested.give(setting, value, "flag");
            }
        }
        Ok(SettingArgs(requested))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn argument(setting: &'static Setting) -> Arg {
    let mut arg = Arg::new(setting.flag)
        .long(setting.flag)
        .visible_aliases(setting.aliases)
        .help(setting.help)
        .help_heading(setting.heading)
        .conflicts_with_all(setting.conflicts)
        .hide(setting.hidden);
    if setting.kind.is_switch() {
        arg = arg.action(ArgAction::SetTrue);
        return match setting.off() {
            Some((off, _)) => arg.overrides_with(off),
            None => arg,
        };
    }
    if let Some(default) = setting.default_text() {
        arg = arg.default_value(default);
    }
    let kind = setting.kind;
    let parsed = move |text: String| kind.parse(&text);
    arg = arg.value_name(setting.value_name);
    match kind {
        Kind::Path => arg.value_hint(ValueHint::AnyPath).value_parser(PathBufValueParser::new().map(Value::Path)),
        Kind::Choice(_) => arg.value_parser(PossibleValuesParser::new(possible(kind)).try_map(parsed)),
        Kind::Schedule(_) | Kind::Size => arg.value_parser(Listed(kind)),
        // What begins with a hyphen gets an answer of its own.
        Kind::Device | Kind::Seconds | Kind::DeviceMegabytes | Kind::Decibels => {
            arg.allow_hyphen_values(true).value_parser(StringValueParser::new().try_map(parsed))
        }
        _ => arg.value_parser(StringValueParser::new().try_map(parsed)),
    }
}

fn possible(kind: Kind) -> Vec<PossibleValue> {
    if matches!(kind, Kind::Size) {
        return Size::ALL.map(|size| PossibleValue::new(size.name())).to_vec();
    }
    kind.words().iter().map(|(name, help)| PossibleValue::new(*name).help(*help)).collect()
}

/// Reads where features are kept, for a command whose `--cache` has another default.
pub(crate) fn cache_mode() -> impl TypedValueParser<Value = CacheMode> {
    let words = find_setting("cache").map(|(setting, _)| possible(setting.kind)).unwrap_or_default();
    PossibleValuesParser::new(words).map(|word| match word.as_str() {
        "ram" => CacheMode::Ram,
        "disk" => CacheMode::Disk,
        _ => CacheMode::Off,
    })
}

/// Reads a kind of device, for a command without lanes.
pub(crate) fn backend() -> PossibleValuesParser {
    PossibleValuesParser::new(find_setting("backend").map(|(setting, _)| possible(setting.kind)).unwrap_or_default())
}

/// Lists the words there are, and takes more than the words.
#[derive(Clone)]
struct Listed(Kind);

impl TypedValueParser for Listed {
    type Value = Value;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Value, clap::Error> {
        let kind = self.0;
        let text = StringValueParser::new().try_map(move |text| kind.parse(&text));
        text.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(possible(self.0).into_iter()))
    }
}
