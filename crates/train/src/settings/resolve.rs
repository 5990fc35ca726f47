//! [`resolve`]: from what was requested, what a resumed run had and what there is to the settings of a run.
//!
//! A pure function. The first that there is wins: what was requested (flag over file), the resumed run, the preset,
//! the default. Settings that decide what is learned must be those of the resumed run.

use std::fmt;

use serde::{Deserialize, Serialize};
use tandem_audio::{LogMel, MelSettings, SettingsError as MelError};
use tandem_data::{Corpus, CorpusSettings};
use tandem_device::memory::{self, DeviceMemory, Limits, optimal_limits};
use tandem_device::{Backend, Kind as DeviceKind, LaneDevice, Placement, WrongResult};
use tandem_model::{ModelConfig, VocoderConfig};
use tandem_text::{Frontend, Language, PhonemeError, Units};

use super::requested::Requested;
use super::setting::{DefaultValue, OnResume, Setting};
use super::table::SETTINGS;
use super::train_config::{TrainConfig, prefetch_buffer_size};
use super::value::{Plain, Value};
use crate::optim::OptimizationLevel;
use crate::task::TrainedPart;

/// More clips at once only make a step of a CPU longer.
const MOST_ON_CPU: usize = 16;

/// What the machine and the data are.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Cores that this process may use.
    pub cores: usize,
    /// Clips to train on.
    pub clips: usize,
    /// The devices of the lanes.
    pub placement: Placement,
    /// Whether the model's device computes in half precision; only looked at when that is wanted.
    pub half_precision: HalfPrecision,
    /// What the texts are read as, and why.
    pub units: (Units, String),
    /// Languages that were found in the texts.
    pub languages: Vec<Language>,
}

/// Whether a device computes in half precision.
#[derive(Clone, Debug, PartialEq)]
pub enum HalfPrecision {
    /// It does.
    Works,
    /// It has no 16-bit floats, or was not looked at.
    Missing,
    /// It computes something else than it should.
    Wrong(WrongResult),
}

impl Facts {
    /// For so many clips on these devices, on this machine; half precision was not looked at.
    pub fn new(clips: usize, placement: &Placement) -> Facts {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Facts {
            cores,
            clips,
            placement: placement.clone(),
            half_precision: HalfPrecision::Missing,
            units: (Units::default(), "default".to_owned()),
            languages: Vec::new(),
        }
    }

    /// The same with how the texts of a corpus are read.
    pub fn with_texts(self, corpus: &Corpus) -> Facts {
        let why = match corpus.choice().units.as_ref().map(|choice| &choice.why_not) {
            None => "default".to_owned(),
            Some(None) => "espeak-ng knows the language".to_owned(),
            Some(Some(PhonemeError::Missing(_))) => "espeak-ng is not installed".to_owned(),
            Some(Some(error)) => error.to_string(),
        };
        let Frontend { units, languages, .. } = corpus.frontend();
        Facts { units: (*units, why), languages: languages.clone(), ..self }
    }
}

/// One setting of a run: what was requested, what it is, and where that comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedSetting {
    /// Its flag.
    pub name: String,
    /// What was requested, if anything.
    pub requested: Option<String>,
    /// What it is.
    pub value: String,
    /// Where that comes from: `flag`, `FILE:LINE`, the resumed run, a preset, a rule, or `FALLBACK: …`.
    pub source: String,
}

impl ResolvedSetting {
    /// Something else than what was requested, because that could not be had.
    pub fn is_fallback(&self) -> bool {
        self.source.starts_with(FALLBACK)
    }
}

/// What the source of a replaced setting begins with.
const FALLBACK: &str = "FALLBACK: ";
/// The source of a value that a resumed run had.
const RESUMED: &str = "the resumed run";

/// Why settings cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingsError {
    /// There is no setting of this name.
    Unknown(String),
    /// A value is not one that the setting may be.
    Invalid {
        /// The setting.
        name: String,
        /// The value.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// The settings of the features do not fit together.
    Features(MelError),
    /// They differ from those of the resumed run, which decide what is learned: one line each.
    Mismatch(Vec<String>),
    /// A limit of a lane's memory was requested without memory isolation.
    NotIsolated,
    /// A lane's limit is more than its device has.
    TooMuchMemory {
        /// The setting.
        name: String,
        /// What was requested, in MB.
        requested_mb: u64,
        /// The device.
        device: String,
        /// What it has, in MB.
        has_mb: u64,
    },
    /// Half precision was requested, and the model's device cannot.
    NoHalfPrecision {
        /// The device.
        device: String,
        /// What it is called.
        name: String,
        /// How it is reached.
        backend: Backend,
        /// What it computed wrongly; none: it has no 16-bit floats.
        wrong: Option<WrongResult>,
    },
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsError::Unknown(name) => write!(f, "there is no setting `{name}`"),
            SettingsError::Invalid { name, value, why } => write!(f, "invalid value `{value}` for `{name}`: {why}"),
            SettingsError::Features(error) => write!(f, "{error}"),
            SettingsError::Mismatch(lines) => {
                f.write_str("the settings are those of another run")?;
                lines.iter().try_for_each(|line| write!(f, "\n  {line}"))
            }
            SettingsError::NotIsolated => f.write_str("a memory limit of a lane needs memory isolation"),
            SettingsError::TooMuchMemory { name, requested_mb, device, has_mb } => {
                write!(f, "`{name}` is {requested_mb} MB, and {device} has {has_mb} MB")
            }
            SettingsError::NoHalfPrecision { device, name, backend, wrong: None } => {
                write!(f, "{device} ({name}, {backend}) has no half precision")
            }
            SettingsError::NoHalfPrecision { device, name, wrong: Some(wrong), .. } => {
                write!(f, "half precision on {device} ({name}): {wrong}")
            }
        }
    }
}

impl std::error::Error for SettingsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SettingsError::Features(error) => Some(error),
            SettingsError::NoHalfPrecision { wrong: Some(wrong), .. } => Some(wrong),
            _ => None,
        }
    }
}

/// The settings of a run, and for each where it comes from.
pub fn resolve(
    requested: &Requested,
    saved: Option<&TrainConfig>,
    facts: &Facts,
) -> Result<(TrainConfig, Vec<ResolvedSetting>), SettingsError> {
    limits_need_isolation(requested, saved)?;
    let mut resolver = Resolver::new(requested, saved);
    resolver.table(Some(facts));
    known_parts(&resolver.config)?;
    only_for_vocoders(&resolver.config)?;
    resolver.half_precision(facts)?;
    resolver.limits(facts)?;
    resolver.placement(&facts.placement);
    let Resolver { mut config, mut resolved, .. } = resolver;
    // A number of workers that was requested stays; one that was chosen may be tuned.
    config.pipeline.max_workers = requested.number("num-workers").map_or((2 * facts.cores).min(16), |n| n as usize);
    check_features(&config.data.mel)?;
    must_match(&config, saved)?;
    let place = |name: &str| SETTINGS.iter().position(|setting| setting.name() == name);
    resolved.sort_by_key(|one| place(&one.name));
    Ok((config, resolved))
}

/// How the corpus of a run is read: the part of [`resolve`] that is needed before clips can be counted and devices be
/// opened. What it refuses, [`resolve`] would refuse too.
pub fn resolve_corpus(requested: &Requested, saved: Option<&TrainConfig>) -> Result<CorpusSettings, SettingsError> {
    limits_need_isolation(requested, saved)?;
    let mut resolver = Resolver::new(requested, saved);
    resolver.table(None);
    check_features(&resolver.config.data.mel)?;
    must_match(&resolver.config, saved)?;
    Ok(resolver.config.data.corpus())
}

/// Parts that the model does not have cannot be frozen.
fn known_parts(config: &TrainConfig) -> Result<(), SettingsError> {
    let parts: &[&str] = match config.model.part {
        TrainedPart::Acoustic => &ModelConfig::PARTS,
        TrainedPart::Vocoder => &VocoderConfig::PARTS,
    };
    match config.model.frozen().into_iter().find(|part| !parts.contains(part)) {
        None => Ok(()),
        Some(unknown) => Err(SettingsError::Invalid {
            name: "--freeze".to_owned(),
            value: unknown.to_owned(),
            why: parts.join(", "),
        }),
    }
}

/// A voice learns from recordings alone, by regression.
fn only_for_vocoders(config: &TrainConfig) -> Result<(), SettingsError> {
    let model = &config.model;
    let given = [
        ("--for", model.predicted_by.as_ref().map(|path| path.display().to_string())),
        ("--adversarial", model.adversarial.then(|| true.to_string())),
    ];
    let acoustic = given.into_iter().filter(|_| model.part == TrainedPart::Acoustic);
    match acoustic.filter_map(|(name, value)| Some((name, value?))).next() {
        Some((name, value)) => {
            let why = "this is for vocoders (--part vocoder)".to_owned();
            Err(SettingsError::Invalid { name: name.to_owned(), value, why })
        }
        None => Ok(()),
    }
}

/// A limit without isolation would do nothing.
pub fn limits_need_isolation(requested: &Requested, saved: Option<&TrainConfig>) -> Result<(), SettingsError> {
    let was_isolated = saved.is_some_and(|saved| saved.memory.isolated);
    let isolated = requested.switch("enable-memory-isolation").unwrap_or(was_isolated);
    let limited = ["data-gpu-memory", "model-gpu-memory"].iter().any(|flag| requested.get(flag).is_some());
    if limited && !isolated { Err(SettingsError::NotIsolated) } else { Ok(()) }
}

fn check_features(mel: &MelSettings) -> Result<(), SettingsError> {
    LogMel::new(mel).map(|_| ()).map_err(SettingsError::Features)
}

fn must_match(config: &TrainConfig, saved: Option<&TrainConfig>) -> Result<(), SettingsError> {
    let lines = saved.map(|saved| config.differences(saved)).unwrap_or_default();
    if lines.is_empty() { Ok(()) } else { Err(SettingsError::Mismatch(lines)) }
}

/// The config as far as it is known, and what was resolved so far.
struct Resolver<'a> {
    requested: &'a Requested,
    saved: Option<&'a TrainConfig>,
    level: OptimizationLevel,
    config: TrainConfig,
    resolved: Vec<ResolvedSetting>,
}

impl<'a> Resolver<'a> {
    fn new(requested: &'a Requested, saved: Option<&'a TrainConfig>) -> Resolver<'a> {
        let mut level = OptimizationLevel::Basic;
        level.assign(requested.get("optimization-level"));
        // What is not touched below is that of the run.
        let config = saved.cloned().unwrap_or_default();
        Resolver { requested, saved, level, config, resolved: Vec::new() }
    }

    /// Every row; what depends on facts stays open without them.
    fn table(&mut self, facts: Option<&Facts>) {
        // Rules look at what is given or fixed, so that comes first.
        let (rules, fixed): (Vec<_>, Vec<_>) = SETTINGS
            .iter()
            .partition(|setting| matches!(setting.default, DefaultValue::Rule(_) | DefaultValue::Derived(_)));
        for setting in fixed.into_iter().chain(rules) {
            self.row(setting, facts);
        }
    }

    fn row(&mut self, setting: &'static Setting, facts: Option<&Facts>) {
        // Of a device, `auto` is a value; here it is as if nothing were given.
        let given =
            self.requested.get(setting.flag).filter(|_| setting.flag != "units" || self.requested.names("units"));
        let source = self.requested.source(setting.flag).unwrap_or_default().to_owned();
        let Some(field) = setting.field else {
            if setting.flag == "optimization-level" {
                let source = if given.is_some() { source } else { "default".to_owned() };
                let value = self.level.show();
                self.note(setting, value, source);
            }
            return;
        };
        // A preset that is requested wins over the run, a flag over both.
        let is_preset = matches!(setting.default, DefaultValue::Preset(_));
        let kept = match setting.on_resume {
            OnResume::PerStart => None,
            _ if is_preset && self.requested.get("optimization-level").is_some() => None,
            // As it is with what was resolved before: a micro-batch is another part of the same batch.
            _ => self.saved.and_then(|_| (field.get)(&self.config)),
        };
        let (value, source) = match (given, kept) {
            (Some(given), _) => (Some(given.clone()), source),
            // The config began as the run's.
            (None, Some(kept)) => {
                self.note(setting, Some(kept), RESUMED.to_owned());
                return;
            }
            (None, None) => match setting.default {
                DefaultValue::Is(text) => (setting.kind.parse(text).ok(), "default".to_owned()),
                DefaultValue::Preset(preset) => {
                    let (model, steps) = (&self.config.model, self.config.run.max_steps);
                    let (lr, max_grad_norm) = self.level.values(model.part, model.size, steps);
                    (Some(preset(&lr, max_grad_norm)), format!("preset {:?}", self.level))
                }
                DefaultValue::Derived(derive) => (Some(derive(&self.config)), "default".to_owned()),
                DefaultValue::Rule(rule) => {
                    let Some(facts) = facts else { return };
                    let (value, why) = rule(&self.config, facts);
                    (Some(value), why)
                }
                DefaultValue::Nothing => {
                    let value = (field.get)(&TrainConfig::default());
                    let codes = |facts: &Facts| facts.languages.iter().map(Language::to_string).collect::<Vec<_>>();
                    let none = match setting.flag {
                        "max-steps" => "default: all epochs".to_owned(),
                        "language" => match facts.map(codes).unwrap_or_default().as_slice() {
                            [] => "default".to_owned(),
                            codes => format!("by the texts: {}", codes.join(", ")),
                        },
                        _ => "default".to_owned(),
                    };
                    (value, none)
                }
            },
        };
        (field.set)(&mut self.config, value.as_ref());
        self.note(setting, value, source);
    }

    fn note(&mut self, setting: &Setting, value: Option<Value>, source: String) {
        let requested = self.requested.get(setting.flag).map(ToString::to_string);
        let value = value.map_or("none".to_owned(), |value| value.to_string());
        self.resolved.push(ResolvedSetting { name: setting.name(), requested, value, source });
    }

    fn find(&mut self, name: &str) -> Option<&mut ResolvedSetting> {
        self.resolved.iter_mut().find(|resolved| resolved.name == name)
    }

    /// SPEC F12: half precision if it is wanted and the model's device can.
    fn half_precision(&mut self, facts: &Facts) -> Result<(), SettingsError> {
        let wrong = match &facts.half_precision {
            _ if !self.config.model.mixed_precision => return Ok(()),
            HalfPrecision::Works => return Ok(()),
            HalfPrecision::Missing => None,
            HalfPrecision::Wrong(wrong) => Some(wrong.clone()),
        };
        if !self.requested.is_on("allow-fallback") {
            let LaneDevice { name, backend, .. } = &facts.placement.model;
            let (device, name) = (facts.placement.model.label(), name.clone());
            return Err(SettingsError::NoHalfPrecision { device, name, backend: *backend, wrong });
        }
        self.config.model.mixed_precision = false;
        if let Some(resolved) = self.find("--mixed-precision") {
            resolved.requested = Some(true.to_string());
            (resolved.value, resolved.source) = (false.to_string(), format!("{FALLBACK}no 16-bit floats"));
        }
        Ok(())
    }

    /// SPEC F14 to F16, G4: hard limits when they are requested; else the memory that a GPU has.
    fn limits(&mut self, facts: &Facts) -> Result<(), SettingsError> {
        let Placement { data, model, .. } = &facts.placement;
        if !self.config.memory.isolated {
            let of_gpu = |lane: &LaneDevice| lane.memory_bytes.filter(|_| lane.physical.is_some());
            (self.config.memory.data_limit, self.config.memory.model_limit) = (of_gpu(data), of_gpu(model));
            self.resolved.retain(|one| !["--data-gpu-memory", "--model-gpu-memory"].contains(&one.name.as_str()));
            return Ok(());
        }
        let (best, was_isolated) =
            (best_limits(&facts.placement), self.saved.is_some_and(|saved| saved.memory.isolated));
        for (flag, lane, best_bytes) in
            [("data-gpu-memory", data, best.data_bytes), ("model-gpu-memory", model, best.model_bytes)]
        {
            let name = format!("--{flag}");
            let limit = |config: &mut TrainConfig, bytes| match flag {
                "data-gpu-memory" => config.memory.data_limit = Some(bytes),
                _ => config.memory.model_limit = Some(bytes),
            };
            let has_mb = lane.memory_bytes.map(|bytes| bytes / memory::MB);
            let is_given = self.requested.get(flag).is_some();
            let Some(resolved) = self.find(&name) else { continue };
            let megabytes: u64 = resolved.value.parse().unwrap_or(u64::MAX);
            let fits = has_mb.is_none_or(|has| megabytes <= has);
            // What the run had without isolation, or on another device with more memory, is no limit for this one.
            if !is_given && resolved.source == RESUMED && !(fits && was_isolated) {
                resolved.value = (best_bytes / memory::MB).to_string();
                resolved.source.clone_from(&best.why);
                limit(&mut self.config, best_bytes / memory::MB * memory::MB);
                continue;
            }
            // More than there is cannot be given.
            let Some(has_mb) = has_mb.filter(|_| !fits) else { continue };
            (resolved.value, resolved.source) = (has_mb.to_string(), format!("{FALLBACK}all that the device has"));
            limit(&mut self.config, has_mb * memory::MB);
            if !self.requested.is_on("allow-fallback") {
                let device = lane.label();
                return Err(SettingsError::TooMuchMemory { name, requested_mb: megabytes, device, has_mb });
            }
        }
        Ok(())
    }

    /// Which devices were requested, and which work.
    fn placement(&mut self, placement: &Placement) {
        let fallback = placement.fallbacks.first().map(|fallback| format!("{FALLBACK}{}", fallback.reason));
        let index = |lane: &LaneDevice| lane.physical.map_or("CPU".to_owned(), |index| index.to_string());
        let features = format!("{:?}", placement.features).to_lowercase();
        for (flag, value, lane) in [
            ("data-gpu", index(&placement.data), Some(&placement.data)),
            ("model-gpu", index(&placement.model), Some(&placement.model)),
            ("backend", placement.model.backend.to_string(), None),
            ("features-on", features, None),
            ("allow-fallback", self.requested.is_on("allow-fallback").to_string(), None),
        ] {
            let requested = self.requested.get(flag).map(ToString::to_string);
            let given = self.requested.source(flag).map(str::to_owned);
            let is_met = lane.is_none() && requested.as_ref().is_none_or(|is| *is == value || is == "auto");
            let by_backend = self.requested.get("backend").is_some()
                && lane.is_some_and(|lane| lane.physical.is_some() || flag == "model-gpu");
            let source = match (given, &fallback) {
                (_, Some(fallback)) if !is_met => fallback.clone(),
                (Some(given), _) => given,
                (None, _) if by_backend => "--backend".to_owned(),
                (None, _) => "default".to_owned(),
            };
            self.resolved.push(ResolvedSetting { name: format!("--{flag}"), requested, value, source });
        }
    }
}

pub(super) fn batch_size(_: &TrainConfig, facts: &Facts) -> (Value, String) {
    let (batch_size, why) = batch_by_memory(&facts.placement.model, facts.clips);
    (Value::Number(batch_size as u64), why)
}

pub(super) fn units(_: &TrainConfig, facts: &Facts) -> (Value, String) {
    (Value::Word(facts.units.0.to_string()), facts.units.1.clone())
}

pub(super) fn workers(_: &TrainConfig, facts: &Facts) -> (Value, String) {
    (Value::Number(facts.cores.min(4) as u64), format!("{} cores", facts.cores))
}

pub(super) fn model_queue(config: &TrainConfig) -> Value {
    let micro_batch = config.data.batch_size.div_ceil(config.optimizer.grad_accum.max(1));
    Value::Number(prefetch_buffer_size(micro_batch) as u64)
}

pub(super) fn validate_every(config: &TrainConfig, facts: &Facts) -> (Value, String) {
    let batches = facts.clips.div_ceil(config.data.batch_size.max(1)) as u64;
    (Value::Number(batches.max(100)), "every epoch, but at least 100 steps".to_owned())
}

/// SPEC N5: the last fifth.
pub(super) fn predictions_from(config: &TrainConfig, facts: &Facts) -> (Value, String) {
    if config.model.predicted_by.is_none() {
        return (Value::Number(0), "nothing is predicted".to_owned());
    }
    let batches = facts.clips.div_ceil(config.data.batch_size.max(1)) as u64;
    let all = config.run.epochs.saturating_mul(batches);
    let steps = config.run.max_steps.map_or(all, |most| most.min(all));
    (Value::Number(steps / 5 * 4 + steps % 5 * 4 / 5), "the last fifth of the steps".to_owned())
}

pub(super) fn data_limit(_: &TrainConfig, facts: &Facts) -> (Value, String) {
    let best = best_limits(&facts.placement);
    (Value::Number(best.data_bytes / memory::MB), best.why)
}

pub(super) fn model_limit(_: &TrainConfig, facts: &Facts) -> (Value, String) {
    let best = best_limits(&facts.placement);
    (Value::Number(best.model_bytes / memory::MB), best.why)
}

fn best_limits(placement: &Placement) -> Limits {
    fn device(lane: &LaneDevice) -> DeviceMemory<'_> {
        DeviceMemory { name: &lane.name, total_bytes: lane.memory_bytes }
    }
    optimal_limits(device(&placement.data), device(&placement.model))
}

/// SPEC F7, and no more than the data and a CPU make sense of.
fn batch_by_memory(device: &LaneDevice, clips: usize) -> (usize, String) {
    let Some(bytes) = device.memory_bytes else { return (8, "the memory of the device is not known".to_owned()) };
    let gigabytes = bytes as f64 / 1e9;
    let by_memory = match gigabytes {
        20.0.. => 48,
        12.0..20.0 => 32,
        8.0..12.0 => 16,
        _ => 8,
    };
    let on_cpu = matches!(device.kind, DeviceKind::Cpu | DeviceKind::Software);
    let most = if on_cpu { MOST_ON_CPU } else { by_memory };
    let at_most = if on_cpu { format!("at most {MOST_ON_CPU} on a CPU and") } else { "at most".to_owned() };
    let why = format!("{by_memory} by {gigabytes:.0} GB of memory, {at_most} a quarter of the clips");
    (by_memory.min(most).min((clips / 4).max(1)), why)
}

#[cfg(test)]
mod tests;
