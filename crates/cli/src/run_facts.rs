//! What the table of settings means to the user of the program: facts about the devices, and errors in their words.

use std::fmt::Display;
use std::path::Path;

use tandem_device::{Backend, Fallback, Lanes, half_test};
use tandem_model::burn::tensor::FloatDType;
use tandem_train::{
    CheckpointError, Data, Facts, HalfPrecision, Requested, ResolvedSetting, RunError, SettingsError, TrainConfig,
};

use crate::commands::train;
use crate::errors::Explain;
use crate::failure::{Failure, USAGE};
use crate::messages::Messages;
use crate::open_lanes;

/// Cores that this program may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What is known about devices and clips before a run; half precision is tried if it is wanted.
pub(crate) fn facts(data: &Data, lanes: &Lanes, requested: &Requested, saved: Option<&TrainConfig>) -> Facts {
    let was_half = saved.is_some_and(|saved| saved.model.mixed_precision);
    let mut facts = Facts::new(data.clips.len(), &lanes.placement).with_texts(&data.corpus);
    if requested.switch("mixed-precision").unwrap_or(was_half) {
        facts.half_precision = half_precision(lanes);
    }
    facts
}

/// SPEC F12: whether the model's device computes in half precision.
fn half_precision(lanes: &Lanes) -> HalfPrecision {
    // The CPU could, but its kernels are made for single precision: it would only be slower.
    let can = lanes.placement.model.backend != Backend::Cpu && lanes.model.supports_dtype(FloatDType::F16);
    match if can { half_test(&lanes.model) } else { return HalfPrecision::Missing } {
        Ok(()) => HalfPrecision::Works,
        Err(wrong) => HalfPrecision::Wrong(wrong),
    }
}

/// Reports which settings were replaced because that was allowed, and notes it with the devices.
pub(crate) fn report_fallbacks(resolved: &[ResolvedSetting], facts: &Facts, lanes: &mut Lanes, messages: &Messages) {
    for one in resolved.iter().filter(|one| one.is_fallback()) {
        let lane = match one.name.as_str() {
            "--data-gpu-memory" => &facts.placement.data,
            "--mixed-precision" | "--model-gpu-memory" => &facts.placement.model,
            // Devices were reported when they were placed.
            _ => continue,
        };
        let device = lane.label();
        let fallback = if one.name == "--mixed-precision" {
            let wrong = match &facts.half_precision {
                HalfPrecision::Wrong(wrong) => Some(wrong.clone()),
                _ => None,
            };
            let error =
                SettingsError::NoHalfPrecision { device, name: lane.name.clone(), backend: lane.backend, wrong };
            Fallback {
                requested: one.name.clone(),
                value: "single precision".to_owned(),
                reason: text(&error, messages),
            }
        } else {
            let requested_mb = one.requested.as_ref().and_then(|number| number.parse().ok()).unwrap_or_default();
            let has_mb = one.value.parse().unwrap_or_default();
            let error = SettingsError::TooMuchMemory { name: one.name.clone(), requested_mb, device, has_mb };
            let requested = format!("{} {requested_mb}", one.name);
            Fallback { requested, value: format!("{has_mb} MB"), reason: text(&error, messages) }
        };
        open_lanes::report_fallback(&fallback, messages);
        lanes.placement.fallbacks.push(fallback);
    }
}

/// What is wrong with settings, in the words of the program.
fn text(error: &SettingsError, messages: &Messages) -> String {
    match error {
        SettingsError::NotIsolated => messages.get("lanes-needs-isolation"),
        SettingsError::TooMuchMemory { name, requested_mb, device, has_mb } => {
            let values: &[(&str, &dyn Display)] =
                &[("flag", name), ("requested", requested_mb), ("device", device), ("has", has_mb)];
            messages.with("lanes-too-much", values)
        }
        SettingsError::NoHalfPrecision { device, name, backend, wrong: None } => {
            messages.with("train-no-mixed-precision", &[("device", device), ("name", name), ("backend", backend)])
        }
        SettingsError::NoHalfPrecision { device, name, wrong: Some(wrong), .. } => messages.with(
            "error-half-precision",
            &[("device", device), ("name", name), ("reason", &wrong.text().render(messages))],
        ),
        other => other.to_string(),
    }
}

/// The same while the corpus of the run is looked for.
pub(crate) fn corpus_failure(error: RunError, checkpoint: Option<&Path>, messages: &Messages) -> Failure {
    match error {
        RunError::Settings(error) => failure(error, checkpoint, messages),
        other => Failure::of(USAGE, &other),
    }
}

/// Settings that cannot be used, for the run that is resumed from `checkpoint`.
pub(crate) fn failure(error: SettingsError, checkpoint: Option<&Path>, messages: &Messages) -> Failure {
    match (error, checkpoint) {
        (SettingsError::Mismatch(lines), Some(path)) => {
            train::failure(&CheckpointError::Mismatch(path.to_owned(), lines).into(), messages)
        }
        (error @ (SettingsError::TooMuchMemory { .. } | SettingsError::NoHalfPrecision { .. }), _) => {
            Failure::usage(text(&error, messages)).hint(messages.get("place-hint-fallback"))
        }
        (error, _) => Failure::usage(text(&error, messages)),
    }
}
