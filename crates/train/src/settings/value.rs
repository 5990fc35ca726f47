//! [`Kind`], [`Value`]: what a setting may be, how it is read and how it is shown.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tandem_data::{Balance, CacheMode, Format};
use tandem_device::{Selector, Simulation};
use tandem_model::Size;
use tandem_text::{Language, Units};

use super::train_config::NanPolicy;
use crate::optim::{OptimizationLevel, Schedule};
use crate::task::TrainedPart;

/// No level.
const OFF: &str = "off";

/// A word that a setting may be, and what it means.
pub type Word = (&'static str, &'static str);

/// What a setting may be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number, from the first to the second.
    Number(u64, u64),
    /// A number greater than 0.
    Positive,
    /// A number from 0 to below 1.
    Fraction,
    /// Any finite number.
    Real,
    /// A level in dBFS, from -60 to 0, or `off`.
    Decibels,
    /// Seconds: `2`, `2s`, `1500ms`, `5m`.
    Seconds,
    /// Host memory and files in MB of 10^6 bytes, from the first number on: `512`, `512MB`, `8GB`.
    Megabytes(u64),
    /// Device memory in MB of 2^20 bytes: `8192`, `8192MB`, `8GB`.
    DeviceMegabytes,
    /// On or off.
    Switch(Off),
    /// One of a few words.
    Choice(&'static [Word]),
    /// One of a few words, with or without numbers behind it: `cosine`, `cosine:500:1`.
    Schedule(&'static [Word]),
    /// A size of the model.
    Size,
    /// The code of a language.
    Language,
    /// A device by index or name.
    Device,
    /// Simulated devices: `4`, `2x24GB`.
    Simulation,
    /// A port or an address.
    Address,
    /// A file or a directory.
    Path,
    /// Any text.
    Text,
}

/// How a switch is turned off.
#[derive(Clone, Copy, Debug)]
pub enum Off {
    /// By this flag, which means this: needed wherever a file or a resumed run may have turned it on.
    Flag(&'static str, &'static str),
    /// By not giving it.
    NotGiven,
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Number(u64),
    /// A number.
    Real(f64),
    /// On or off.
    Switch(bool),
    /// A word or another text.
    Word(String),
    /// A file or a directory.
    Path(PathBuf),
}

/// As it would be typed.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Real(number) => write!(f, "{number:?}"),
            Value::Switch(on) => write!(f, "{on}"),
            Value::Word(word) => f.write_str(word),
            Value::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Kind {
    /// Whether it is on or off.
    pub fn is_switch(&self) -> bool {
        matches!(self, Kind::Switch(_))
    }

    /// The words that it may be, if they are few.
    pub fn words(&self) -> &'static [Word] {
        match self {
            Kind::Choice(words) | Kind::Schedule(words) => words,
            _ => &[],
        }
    }

    /// The names of the values that it may be, if they are few.
    pub fn names(&self) -> Vec<&'static str> {
        match self {
            Kind::Size => Size::ALL.map(Size::name).to_vec(),
            _ => self.words().iter().map(|(name, _)| *name).collect(),
        }
    }

    /// Reads a value as it is typed; the error says what would be valid.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        let word = |valid: bool, why: &str| if valid { Ok(Value::Word(text.to_owned())) } else { Err(why.to_owned()) };
        match self {
            Kind::Number(least, most) => number(text, *least, *most).map(Value::Number),
            Kind::Positive => positive(text).map(Value::Real),
            Kind::Fraction => fraction(text).map(Value::Real),
            Kind::Real => real(text).map(Value::Real),
            Kind::Decibels if text == OFF => Ok(Value::Word(OFF.to_owned())),
            Kind::Decibels => decibels(text).map(Value::Real),
            Kind::Seconds => seconds(text).map(Value::Real),
            Kind::Megabytes(least) => megabytes(text, 1000, *least, 1_000_000_000)
                .ok_or_else(|| match least {
                    0 => "write a number of MB, or for example 8GB".to_owned(),
                    _ => "write a number of MB that is not 0, or for example 8GB".to_owned(),
                })
                .map(Value::Number),
            Kind::DeviceMegabytes => megabytes(text, 1024, 1, 10_000_000)
                .ok_or_else(|| "write a number of MB, or for example 8GB".to_owned())
                .map(Value::Number),
            Kind::Switch(_) => match text.to_lowercase().as_str() {
                "true" | "yes" | "on" => Ok(Value::Switch(true)),
                "false" | "no" | "off" => Ok(Value::Switch(false)),
                _ => Err("true or false".to_owned()),
            },
            Kind::Choice(words) => match words.iter().any(|(name, _)| *name == text) {
                true => Ok(Value::Word(text.to_owned())),
                false => Err(words.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")),
            },
            Kind::Schedule(_) => text.parse::<Schedule>().map(|schedule| Value::Word(schedule.to_string())),
            Kind::Size => match text.parse::<Size>() {
                Ok(size) => Ok(Value::Word(size.to_string())),
                Err(_) => Err(Size::ALL.map(Size::name).join(", ")),
            },
            Kind::Language => match text.parse::<Language>() {
                Ok(language) => Ok(Value::Word(language.to_string())),
                Err(error) => Err(error.to_string()),
            },
            Kind::Device => text.parse::<Selector>().map(|selector| Value::Word(selector.to_string())),
            Kind::Simulation => text.parse::<Simulation>().map(|_| Value::Word(text.to_owned())),
            Kind::Address => address(text).map(|address| Value::Word(address.to_string())),
            Kind::Path => Ok(Value::Path(PathBuf::from(text))),
            Kind::Text => word(!text.is_empty(), "it is empty"),
        }
    }
}

fn number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let number: u64 = text.parse().map_err(|error: std::num::ParseIntError| error.to_string())?;
    match (least..=most).contains(&number) {
        true => Ok(number),
        false if most == u64::MAX => Err(format!("{number} is not in {least}..")),
        false => Err(format!("{number} is not in {least}..={most}")),
    }
}

fn real(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if value.is_finite() { Ok(value) } else { Err("not a number".to_owned()) }
}

fn positive(text: &str) -> Result<f64, String> {
    real(text).and_then(|value| if value > 0.0 { Ok(value) } else { Err("it must be greater than 0".to_owned()) })
}

fn fraction(text: &str) -> Result<f64, String> {
    let inside = |value: &f64| (0.0..1.0).contains(value);
    real(text).and_then(|value| Some(value).filter(inside).ok_or_else(|| "it must be from 0 to below 1".to_owned()))
}

fn decibels(text: &str) -> Result<f64, String> {
    let inside = |level: &f64| (-60.0..=0.0).contains(level);
    real(text).ok().filter(inside).ok_or_else(|| "write a level from -60 to 0, for example -23, or off".to_owned())
}

/// `512`, `512MB` or `8GB`, with so many MB in a GB.
fn megabytes(text: &str, in_a_gigabyte: u64, least: u64, most: u64) -> Option<u64> {
    let text = text.trim();
    let (number, factor) = match text.strip_suffix("GB") {
        Some(number) => (number, in_a_gigabyte),
        None => (text.strip_suffix("MB").unwrap_or(text), 1),
    };
    let megabytes = number.trim().parse::<u64>().ok()?.checked_mul(factor)?;
    (least..=most).contains(&megabytes).then_some(megabytes)
}

/// `2`, `2s`, `1500ms` or `5m`, in seconds.
fn seconds(text: &str) -> Result<f64, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("", 1.0)];
    let read = |(unit, factor): (&str, f64)| Some(text.trim().strip_suffix(unit)?.trim().parse::<f64>().ok()? * factor);
    let seconds =
        units.into_iter().find_map(read).ok_or_else(|| "not a number of seconds, such as 2 or 2s".to_owned())?;
    if (0.0..=1e6).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("it must be 0 or more, and at most 1000000".to_owned())
    }
}

/// A port alone is one of this machine.
fn address(text: &str) -> Result<SocketAddr, String> {
    let whole =
        if text.bytes().all(|byte| byte.is_ascii_digit()) { format!("127.0.0.1:{text}") } else { text.to_owned() };
    whole
        .replace("localhost:", "127.0.0.1:")
        .parse()
        .map_err(|_| format!("`{text}` is not an address, write for example 9100, 127.0.0.1:9100 or 0.0.0.0:9100"))
}

/// What a field of [`super::TrainConfig`] is as a [`Value`]. The table pairs kinds and fields, so that a value always
/// fits its field; what would not fit leaves the field as it is.
pub(super) trait Plain {
    fn show(&self) -> Option<Value>;
    fn assign(&mut self, value: Option<&Value>);
}

macro_rules! numbers {
    ($($type:ty),+) => { $(
        impl Plain for $type {
            fn show(&self) -> Option<Value> {
                Some(Value::Number(*self as u64))
            }
            fn assign(&mut self, value: Option<&Value>) {
                if let Some(Value::Number(number)) = value {
                    *self = *number as $type;
                }
            }
        }
    )+ };
}
numbers!(u64, usize, u32);

impl Plain for Option<u64> {
    fn show(&self) -> Option<Value> {
        self.map(Value::Number)
    }
    fn assign(&mut self, value: Option<&Value>) {
        *self = match value {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        };
    }
}

impl Plain for f64 {
    fn show(&self) -> Option<Value> {
        Some(Value::Real(*self))
    }
    fn assign(&mut self, value: Option<&Value>) {
        if let Some(Value::Real(number)) = value {
            *self = *number;
        }
    }
}

impl Plain for f32 {
    fn show(&self) -> Option<Value> {
        // By its shortest text: 0.1 is 0.1 in both precisions.
        Some(Value::Real(self.to_string().parse().unwrap_or(f64::from(*self))))
    }
    fn assign(&mut self, value: Option<&Value>) {
        if let Some(Value::Real(number)) = value {
            *self = *number as f32;
        }
    }
}

/// A level, or `off`.
impl Plain for Option<f64> {
    fn show(&self) -> Option<Value> {
        Some(self.map_or_else(|| Value::Word(OFF.to_owned()), Value::Real))
    }
    fn assign(&mut self, value: Option<&Value>) {
        *self = match value {
            Some(Value::Real(number)) => Some(*number),
            _ => None,
        };
    }
}

impl Plain for bool {
    fn show(&self) -> Option<Value> {
        Some(Value::Switch(*self))
    }
    fn assign(&mut self, value: Option<&Value>) {
        if let Some(Value::Switch(on)) = value {
            *self = *on;
        }
    }
}

impl Plain for Option<PathBuf> {
    fn show(&self) -> Option<Value> {
        self.clone().map(Value::Path)
    }
    fn assign(&mut self, value: Option<&Value>) {
        *self = match value {
            Some(Value::Path(path)) => Some(path.clone()),
            _ => None,
        };
    }
}

impl Plain for Option<String> {
    fn show(&self) -> Option<Value> {
        self.clone().map(Value::Word)
    }
    fn assign(&mut self, value: Option<&Value>) {
        *self = match value {
            Some(Value::Word(word)) => Some(word.clone()),
            _ => None,
        };
    }
}

impl Plain for String {
    fn show(&self) -> Option<Value> {
        Some(Value::Word(self.clone()))
    }
    fn assign(&mut self, value: Option<&Value>) {
        if let Some(Value::Word(word)) = value {
            self.clone_from(word);
        }
    }
}

/// Types that are one of a few words.
macro_rules! words {
    ($($type:ty: $($word:literal => $value:expr),+;)+) => { $(
        impl Plain for $type {
            fn show(&self) -> Option<Value> {
                [$(($word, $value)),+].iter().find(|(_, value)| value == self).map(|(word, _)| Value::Word((*word).to_owned()))
            }
            fn assign(&mut self, value: Option<&Value>) {
                if let Some(Value::Word(word)) = value {
                    match word.as_str() {
                        $($word => *self = $value,)+
                        _ => {}
                    }
                }
            }
        }
    )+ };
}
words! {
    Balance: "off" => Balance::Off, "speaker" => Balance::Speaker;
    CacheMode: "ram" => CacheMode::Ram, "disk" => CacheMode::Disk, "off" => CacheMode::Off;
    Units: "characters" => Units::Characters, "phonemes" => Units::Phonemes;
    Option<Format>: "auto" => None, "ljspeech" => Some(Format::LjSpeech), "piper" => Some(Format::Piper),
        "coqui" => Some(Format::Coqui), "vctk" => Some(Format::Vctk), "common-voice" => Some(Format::CommonVoice),
        "jsonl" => Some(Format::JsonLines), "audiofolder" => Some(Format::AudioFolder),
        "shards" => Some(Format::Shards);
    TrainedPart: "acoustic" => TrainedPart::Acoustic, "vocoder" => TrainedPart::Vocoder;
    NanPolicy: "stop" => NanPolicy::Stop, "skip" => NanPolicy::Skip;
    OptimizationLevel: "basic" => OptimizationLevel::Basic, "enhanced" => OptimizationLevel::Enhanced,
        "plateau_breaker" => OptimizationLevel::PlateauBreaker;
}

/// Types that are read from and shown as text.
macro_rules! texts {
    ($($type:ty),+) => { $(
        impl Plain for $type {
            fn show(&self) -> Option<Value> {
                Some(Value::Word(self.to_string()))
            }
            fn assign(&mut self, value: Option<&Value>) {
                if let Some(Value::Word(word)) = value {
                    *self = word.parse().unwrap_or(*self);
                }
            }
        }
    )+ };
}
texts!(Size, Schedule);

impl Plain for Option<Language> {
    fn show(&self) -> Option<Value> {
        self.as_ref().map(|language| Value::Word(language.to_string()))
    }
    fn assign(&mut self, value: Option<&Value>) {
        *self = match value {
            Some(Value::Word(code)) => code.parse().ok(),
            _ => None,
        };
    }
}

impl Value {
    /// The whole number, if it is one.
    pub fn number(&self) -> Option<u64> {
        if let Value::Number(number) = self { Some(*number) } else { None }
    }

    /// The text, if it is one.
    pub fn word(&self) -> Option<&str> {
        if let Value::Word(word) = self { Some(word) } else { None }
    }

    /// The path, if it is one.
    pub fn path(&self) -> Option<&Path> {
        if let Value::Path(path) = self { Some(path) } else { None }
    }

    /// Whether it is on, if it is a switch.
    pub fn switch(&self) -> Option<bool> {
        if let Value::Switch(on) = self { Some(*on) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each kind reads what it shows, and says what is wrong with the rest.
    #[test]
    fn values_are_read_as_they_are_shown() {
        let words: Kind = Kind::Choice(&[("ram", ""), ("off", "")]);
        for (kind, text, shown) in [
            (Kind::Number(1, 10), "7", Ok("7")),
            (Kind::Number(1, 10), "11", Err("11 is not in 1..=10")),
            (Kind::Number(1, u64::MAX), "0", Err("0 is not in 1..")),
            (Kind::Number(1, 10), "many", Err("invalid digit found in string")),
            (Kind::Positive, "1e-4", Ok("0.0001")),
            (Kind::Positive, "0", Err("it must be greater than 0")),
            (Kind::Fraction, "0.999", Ok("0.999")),
            (Kind::Fraction, "1", Err("it must be from 0 to below 1")),
            (Kind::Decibels, "-23", Ok("-23.0")),
            (Kind::Decibels, "off", Ok("off")),
            (Kind::Decibels, "3", Err("write a level from -60 to 0, for example -23, or off")),
            (Kind::Decibels, "loud", Err("write a level from -60 to 0, for example -23, or off")),
            (Kind::Seconds, "1500ms", Ok("1.5")),
            (Kind::Seconds, "-1", Err("it must be 0 or more, and at most 1000000")),
            (Kind::Megabytes(1), "8GB", Ok("8000")),
            (Kind::Megabytes(1), "0", Err("write a number of MB that is not 0, or for example 8GB")),
            (Kind::Megabytes(0), "0", Ok("0")),
            (Kind::DeviceMegabytes, "8GB", Ok("8192")),
            (Kind::Switch(Off::NotGiven), "yes", Ok("true")),
            (words, "ram", Ok("ram")),
            (words, "tape", Err("ram, off")),
            (Kind::Schedule(&[]), "cosine", Ok("cosine")),
            (Kind::Schedule(&[]), "cosine:4000:2", Ok("cosine")),
            (Kind::Schedule(&[]), "cosine:500:1", Ok("cosine:500:1")),
            (Kind::Size, "base", Ok("normal")),
            (Kind::Size, "huge", Err("smoke, tiny, small, normal, big")),
            (Kind::Address, "9100", Ok("127.0.0.1:9100")),
        ] {
            let read = kind.parse(text).map(|value| value.to_string());
            assert_eq!(read.as_deref().map_err(String::as_str), shown, "{kind:?} {text}");
            if let Ok(text) = read {
                assert_eq!(kind.parse(&text).map(|value| value.to_string()), Ok(text), "read again");
            }
        }
    }
}
