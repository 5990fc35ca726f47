//! Which device has which job. Decided once, by a pure function of what was requested and what there is, before any
//! tensor exists.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use tandem_flow::Lane;

use crate::inventory::{Backend, DeviceInfo, Kind};
use crate::topology::PciAddress;

/// A device as the user names it: by its index in `tandem devices`, or by (a part of) its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// By index.
    Index(usize),
    /// By name.
    Name(String),
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Selector, String> {
        let text = text.trim();
        if text.is_empty() || text.starts_with('-') {
            return Err("write the index of a device, or a part of its name (see `tandem devices`)".to_owned());
        }
        Ok(text.parse().map_or_else(|_| Selector::Name(text.to_owned()), Selector::Index))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Index(index) => write!(f, "{index}"),
            Selector::Name(name) => write!(f, "{name}"),
        }
    }
}

/// Where features (log-mel spectrograms) are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FeaturesOn {
    /// By the workers that read the files.
    Cpu,
    /// On the data lane's device, a batch at a time.
    Data,
}

/// What was requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The data lane's device.
    pub data: Option<Selector>,
    /// The model lane's device.
    pub model: Option<Selector>,
    /// The back end that devices are reached by; none: any.
    pub backend: Option<Backend>,
    /// Where features are computed; none: as the mode has it.
    pub features: Option<FeaturesOn>,
    /// Whether something else may be used when this is not to be had.
    pub allow_fallback: bool,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on =
            |lane: Lane, selector: &Option<Selector>| selector.as_ref().map(|device| format!("{lane} on {device}"));
        let backend = self.backend.map(|backend| format!("back end {backend}"));
        let parts = [on(Lane::Data, &self.data), on(Lane::Model, &self.model), backend];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// How the lanes are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Mode {
    /// The host prepares, one device trains.
    #[serde(rename = "single-gpu-buffered")]
    SingleBuffered,
    /// One GPU prepares, another trains.
    #[serde(rename = "multi-gpu")]
    MultiGpu,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::SingleBuffered => "Single-GPU Buffered Mode",
            Mode::MultiGpu => "Multi-GPU Mode",
        })
    }
}

/// The device of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaneDevice {
    /// Its index in `tandem devices`; none is the CPU.
    pub physical: Option<usize>,
    /// What the run calls it: `/GPU:0`, `/GPU:1`, `/CPU:0`.
    pub logical: String,
    /// Its name.
    pub name: String,
    /// How it is reached.
    pub backend: Backend,
    /// What it is.
    pub kind: Kind,
    /// Its memory, where it is known.
    pub memory_bytes: Option<u64>,
    /// Where it is plugged in.
    pub pci: Option<PciAddress>,
    /// Who made it (PCI vendor id).
    pub vendor: Option<u32>,
}

impl LaneDevice {
    fn new(device: &DeviceInfo, logical: usize) -> LaneDevice {
        let what = if device.index.is_some() { "GPU" } else { "CPU" };
        LaneDevice {
            physical: device.index,
            logical: format!("/{what}:{logical}"),
            name: device.name.clone(),
            backend: device.backend,
            kind: device.kind,
            memory_bytes: device.memory.value().copied(),
            pci: device.pci.clone(),
            vendor: device.vendor,
        }
    }

    /// `GPU 3` or `CPU`.
    pub fn label(&self) -> String {
        self.physical.map_or("CPU".to_owned(), |index| format!("GPU {index}"))
    }
}

/// A request that could not be met and was replaced, because the user allowed that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fallback {
    /// What was requested.
    #[serde(rename = "asked")]
    pub requested: String,
    /// What it became.
    #[serde(rename = "got")]
    pub value: String,
    /// Why.
    #[serde(rename = "why")]
    pub reason: String,
}

/// Something to think about before a long run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Warning {
    /// The model lane has the slower kind of device.
    ModelLaneSlower,
    /// The model lane has less memory than the data lane.
    ModelLaneSmaller,
    /// A device is emulated by the CPU.
    Software,
}

/// Which device has which job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// The mode.
    pub mode: Mode,
    /// Prepares batches.
    pub data: LaneDevice,
    /// Trains.
    pub model: LaneDevice,
    /// Where features are computed.
    pub features: FeaturesOn,
    /// What was requested and not given.
    pub fallbacks: Vec<Fallback>,
    /// What to think about.
    pub warnings: Vec<Warning>,
}

impl Placement {
    /// The host prepares, this device trains.
    pub fn single(model: &DeviceInfo, cpu: &DeviceInfo, features: FeaturesOn) -> Placement {
        let warnings = if model.kind == Kind::Software { vec![Warning::Software] } else { Vec::new() };
        Placement {
            mode: Mode::SingleBuffered,
            data: LaneDevice::new(cpu, 0),
            model: LaneDevice::new(model, 0),
            features,
            fallbacks: Vec::new(),
            warnings,
        }
    }
}

/// Why a request cannot be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementError {
    /// One lane has a device and this one has none.
    MissingLane(Lane),
    /// Two lanes need two GPUs.
    Insufficient(usize),
    /// No device has the index that this lane is to have; so many there are.
    NoSuchIndex(Lane, usize, usize),
    /// No device has the name that this lane is to have.
    NoSuchName(Lane, String),
    /// Several have it: their indices.
    Ambiguous(Lane, String, Vec<usize>),
    /// Both lanes on one device.
    SameDevice(usize),
    /// This program does not have the back end.
    NotBuiltIn(Backend),
    /// The back end has no device here.
    NoDevice(Backend),
    /// A lane's device is reached by another back end than the requested one.
    OtherBackend(Lane, usize, Backend, Backend),
}

impl PlacementError {
    /// Whether something else could be used instead. A request that contradicts itself is an error in any case.
    pub fn can_fall_back(&self) -> bool {
        !matches!(self, PlacementError::MissingLane(_) | PlacementError::SameDevice(_))
    }
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlacementError::MissingLane(lane) => {
                write!(f, "the {lane} has no device: Multi-GPU mode needs one for each of the two lanes")
            }
            PlacementError::Insufficient(found) => {
                let found = match found {
                    0 => "no GPU was found".to_owned(),
                    1 => "one GPU was found".to_owned(),
                    n => format!("{n} GPUs were found"),
                };
                write!(f, "Insufficient GPUs for Multi-GPU Mode: two are needed, {found}")
            }
            PlacementError::NoSuchIndex(lane, index, found) => {
                let last = found.saturating_sub(1);
                write!(f, "the {lane} cannot be on device {index}: valid are 0 to {last}")
            }
            PlacementError::NoSuchName(lane, name) => {
                write!(f, "the {lane} cannot be on `{name}`: no device has this name")
            }
            PlacementError::Ambiguous(lane, name, found) => {
                let found: Vec<String> = found.iter().map(usize::to_string).collect();
                write!(f, "the {lane} cannot be on `{name}`, several devices have this name: {}", found.join(", "))
            }
            PlacementError::SameDevice(index) => {
                write!(f, "both lanes are to be on device {index}: two lanes need two devices")
            }
            PlacementError::NotBuiltIn(backend) => {
                let built: Vec<String> = Backend::built_in().iter().map(Backend::to_string).collect();
                write!(f, "the back end {backend} is not built in, this program has {}", built.join(", "))
            }
            PlacementError::NoDevice(backend) => write!(f, "there is no {backend} device here"),
            PlacementError::OtherBackend(lane, index, is, requested) => {
                write!(f, "the {lane} cannot be on device {index}: it is a {is} device, and {requested} was requested")
            }
        }
    }
}

impl std::error::Error for PlacementError {}

/// Decides the mode and the devices.
///
/// | data lane | model lane | |
/// |---|---|---|
/// | - | - | Single-GPU Buffered: the host prepares; the best real GPU trains, without one the CPU |
/// | given | given | Multi-GPU |
/// | `cpu` | given | Single-GPU Buffered on that GPU |
/// | one of them | | an error that names the other |
pub fn resolve(request: &Request, gpus: &[DeviceInfo], cpu: &DeviceInfo) -> Result<Placement, PlacementError> {
    match decide(request, gpus, cpu) {
        Err(error) if request.allow_fallback && error.can_fall_back() => {
            let mut placement = next_best(request, gpus, cpu)?;
            let value = format!("{} on {} ({})", placement.mode, placement.model.label(), placement.model.name);
            let (requested, reason) = (request.to_string(), error.to_string());
            placement.fallbacks.push(Fallback { requested, value, reason });
            Ok(placement)
        }
        result => result,
    }
}

/// The GPU that was requested for the model lane, if there is one; else what there is without a request.
fn next_best(request: &Request, gpus: &[DeviceInfo], cpu: &DeviceInfo) -> Result<Placement, PlacementError> {
    let trainer = request.model.as_ref().and_then(|model| find(Lane::Model, model, request.backend, gpus).ok());
    match trainer {
        Some(model) => Ok(Placement::single(model, cpu, request.features.unwrap_or(FeaturesOn::Cpu))),
        None => decide(&Request { features: request.features, ..Request::default() }, gpus, cpu),
    }
}

fn decide(request: &Request, gpus: &[DeviceInfo], cpu: &DeviceInfo) -> Result<Placement, PlacementError> {
    let simulated = gpus.iter().any(|gpu| gpu.backend == Backend::Simulated);
    if let Some(backend) = request.backend
        && !Backend::built_in().contains(&backend)
        && !(simulated && backend == Backend::Simulated)
    {
        return Err(PlacementError::NotBuiltIn(backend));
    }
    let (data, model) = match (&request.data, &request.model) {
        (None, None) => return single(request, gpus, cpu),
        (Some(_), None) => return Err(PlacementError::MissingLane(Lane::Model)),
        (None, Some(_)) => return Err(PlacementError::MissingLane(Lane::Data)),
        (Some(data), Some(model)) => (data, model),
    };
    // The host as the data lane: one device, the one that was named.
    if matches!(data, Selector::Name(name) if name.eq_ignore_ascii_case("cpu")) {
        let model = find(Lane::Model, model, request.backend, gpus)?;
        return Ok(Placement::single(model, cpu, request.features.unwrap_or(FeaturesOn::Cpu)));
    }
    if gpus.len() < 2 {
        return Err(PlacementError::Insufficient(gpus.len()));
    }
    let data = find(Lane::Data, data, request.backend, gpus)?;
    let model = find(Lane::Model, model, request.backend, gpus)?;
    // One card that two back ends reach is one device.
    if data.index == model.index || (data.pci.is_some() && data.pci == model.pci) {
        return Err(PlacementError::SameDevice(data.index.unwrap_or_default()));
    }
    let mut warnings = Vec::new();
    if model.kind > data.kind {
        warnings.push(Warning::ModelLaneSlower);
    }
    if let (Some(data), Some(model)) = (data.memory.value(), model.memory.value())
        && model < data
    {
        warnings.push(Warning::ModelLaneSmaller);
    }
    if data.kind == Kind::Software || model.kind == Kind::Software {
        warnings.push(Warning::Software);
    }
    Ok(Placement {
        mode: Mode::MultiGpu,
        data: LaneDevice::new(data, 0),
        model: LaneDevice::new(model, 1),
        features: request.features.unwrap_or(FeaturesOn::Data),
        fallbacks: Vec::new(),
        warnings,
    })
}

fn single(request: &Request, gpus: &[DeviceInfo], cpu: &DeviceInfo) -> Result<Placement, PlacementError> {
    let best = |gpus: &mut dyn Iterator<Item = &DeviceInfo>| {
        // The first of the best kind: indices are ordered by kind.
        gpus.min_by_key(|gpu| gpu.kind).cloned()
    };
    let model = match request.backend {
        Some(Backend::Cpu) => cpu.clone(),
        // Requested by name, a software device will do.
        Some(backend) => {
            best(&mut gpus.iter().filter(|gpu| gpu.backend == backend)).ok_or(PlacementError::NoDevice(backend))?
        }
        None => best(&mut gpus.iter().filter(|gpu| gpu.is_real())).unwrap_or_else(|| cpu.clone()),
    };
    Ok(Placement::single(&model, cpu, request.features.unwrap_or(FeaturesOn::Cpu)))
}

fn find<'a>(
    lane: Lane,
    selector: &Selector,
    backend: Option<Backend>,
    gpus: &'a [DeviceInfo],
) -> Result<&'a DeviceInfo, PlacementError> {
    let found = match selector {
        Selector::Index(index) => gpus.get(*index).ok_or(PlacementError::NoSuchIndex(lane, *index, gpus.len()))?,
        Selector::Name(name) => {
            let has_name = |gpu: &&DeviceInfo| gpu.name.to_lowercase().contains(&name.to_lowercase());
            let found: Vec<&DeviceInfo> = gpus.iter().filter(has_name).collect();
            match found[..] {
                [] => return Err(PlacementError::NoSuchName(lane, name.clone())),
                [one] => one,
                _ => {
                    let indices = found.iter().filter_map(|gpu| gpu.index).collect();
                    return Err(PlacementError::Ambiguous(lane, name.clone(), indices));
                }
            }
        }
    };
    match backend {
        Some(backend) if backend != found.backend => {
            Err(PlacementError::OtherBackend(lane, found.index.unwrap_or_default(), found.backend, backend))
        }
        _ => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading;

    fn gpu(index: usize, kind: Kind, name: &str, gigabytes: u64) -> DeviceInfo {
        DeviceInfo {
            index: Some(index),
            backend: Backend::Simulated,
            kind,
            name: name.to_owned(),
            driver: String::new(),
            memory: Reading::known(gigabytes << 30, "test"),
            pci: None,
            vendor: None,
        }
    }

    fn cpu() -> DeviceInfo {
        DeviceInfo { index: None, backend: Backend::Cpu, kind: Kind::Cpu, ..gpu(0, Kind::Cpu, "processor", 32) }
    }

    fn gpus(count: usize) -> Vec<DeviceInfo> {
        (0..count).map(|index| gpu(index, Kind::Discrete, &format!("card {index}"), 24)).collect()
    }

    fn ask(data: Option<usize>, model: Option<usize>) -> Request {
        Request { data: data.map(Selector::Index), model: model.map(Selector::Index), ..Request::default() }
    }

    /// SPEC M1: every combination of the two flags with 0 to 4 devices.
    #[test]
    fn the_mode_by_flags_and_devices() {
        use PlacementError::{Insufficient, MissingLane, NoSuchIndex};
        for count in 0..=4 {
            let gpus = gpus(count);
            let single = resolve(&ask(None, None), &gpus, &cpu()).expect("always possible");
            assert_eq!((single.mode, single.features), (Mode::SingleBuffered, FeaturesOn::Cpu));
            assert_eq!(single.model.physical, (count > 0).then_some(0), "{count} devices");
            assert_eq!(single.model.logical, if count > 0 { "/GPU:0" } else { "/CPU:0" });
            assert_eq!(single.data.logical, "/CPU:0");
            assert_eq!(resolve(&ask(Some(0), None), &gpus, &cpu()), Err(MissingLane(Lane::Model)));
            assert_eq!(resolve(&ask(None, Some(0)), &gpus, &cpu()), Err(MissingLane(Lane::Data)));
            let multi = resolve(&ask(Some(0), Some(1)), &gpus, &cpu());
            match count {
                0 | 1 => assert_eq!(multi, Err(Insufficient(count))),
                _ => {
                    let multi = multi.expect("two devices");
                    assert_eq!((multi.mode, multi.features), (Mode::MultiGpu, FeaturesOn::Data));
                    assert_eq!((multi.data.physical, multi.model.physical), (Some(0), Some(1)));
                }
            }
            let high = resolve(&ask(Some(2), Some(3)), &gpus, &cpu());
            match count {
                0 | 1 => assert_eq!(high, Err(Insufficient(count))),
                2 => assert_eq!(high, Err(NoSuchIndex(Lane::Data, 2, 2))),
                3 => assert_eq!(high, Err(NoSuchIndex(Lane::Model, 3, 3))),
                _ => assert!(high.is_ok()),
            }
        }
    }

    /// SPEC D3.
    #[test]
    fn any_pair_is_mapped_to_the_first_two() {
        for (data, model) in [(0, 1), (2, 3), (1, 3), (3, 1)] {
            let placement = resolve(&ask(Some(data), Some(model)), &gpus(4), &cpu()).expect("there are four");
            assert_eq!((placement.data.physical, placement.model.physical), (Some(data), Some(model)));
            assert_eq!((&placement.data.logical[..], &placement.model.logical[..]), ("/GPU:0", "/GPU:1"));
            assert_eq!(placement.model.name, format!("card {model}"));
        }
    }

    #[test]
    fn names_are_accepted_if_they_are_clear() {
        let by = |data: &str, model: &str| {
            let request = Request {
                data: Some(data.parse().expect("a selector")),
                model: Some(model.parse().expect("a selector")),
                ..Request::default()
            };
            resolve(&request, &gpus(3), &cpu())
        };
        let placement = by("CARD 2", "card 0").expect("both are clear");
        assert_eq!((placement.data.physical, placement.model.physical), (Some(2), Some(0)));
        assert_eq!(by("card", "0"), Err(PlacementError::Ambiguous(Lane::Data, "card".to_owned(), vec![0, 1, 2])));
        assert_eq!(by("0", "tesla"), Err(PlacementError::NoSuchName(Lane::Model, "tesla".to_owned())));
        assert!("".parse::<Selector>().is_err() && "-1".parse::<Selector>().is_err());
    }

    /// SPEC D7, M13.
    #[test]
    fn contradictions_are_errors_even_when_falling_back_is_allowed() {
        for allow_fallback in [false, true] {
            let ask = |data, model| Request { allow_fallback, ..ask(data, model) };
            assert_eq!(resolve(&ask(Some(1), Some(1)), &gpus(2), &cpu()), Err(PlacementError::SameDevice(1)));
            assert!(resolve(&ask(Some(1), None), &gpus(2), &cpu()).is_err());
        }
    }

    /// SPEC M13: what cannot be is an error; with leave to fall back it is reported.
    #[test]
    fn a_fallback_is_reported() {
        let impossible = [
            (ask(Some(0), Some(1)), gpus(1)),
            (ask(Some(0), Some(7)), gpus(2)),
            (Request { backend: Some(Backend::Cuda), ..Request::default() }, gpus(0)),
            (
                Request { data: Some(Selector::Name("no".into())), model: Some(Selector::Index(0)), ..ask(None, None) },
                gpus(2),
            ),
        ];
        for (request, gpus) in impossible {
            let error = resolve(&request, &gpus, &cpu()).expect_err("impossible");
            let placement =
                resolve(&Request { allow_fallback: true, ..request.clone() }, &gpus, &cpu()).expect("falls back");
            assert_eq!(placement.mode, Mode::SingleBuffered);
            // The half of a wish that can be met is met.
            let trainer = matches!(request.model, Some(Selector::Index(index)) if index < gpus.len());
            assert!(!trainer || placement.model.physical.map(Selector::Index) == request.model, "{placement:?}");
            let [fallback] = &placement.fallbacks[..] else { panic!("one line: {placement:?}") };
            assert_eq!(fallback.reason, error.to_string());
            assert_eq!(fallback.requested, request.to_string());
            assert_ne!(fallback.requested, fallback.value);
        }
        let fine = resolve(&Request { allow_fallback: true, ..ask(Some(0), Some(1)) }, &gpus(2), &cpu());
        assert_eq!(fine.map(|placement| placement.fallbacks), Ok(Vec::new()), "nothing to report");
    }

    #[test]
    fn the_host_can_be_named_as_the_data_lane() {
        let on = |model: usize, count: usize| {
            let data = Some(Selector::Name("CPU".to_owned()));
            resolve(&Request { data, ..ask(None, Some(model)) }, &gpus(count), &cpu())
        };
        let placement = on(1, 2).expect("there are two");
        assert_eq!((placement.mode, placement.model.physical), (Mode::SingleBuffered, Some(1)));
        assert_eq!((placement.model.logical.as_str(), placement.data.physical), ("/GPU:0", None));
        assert_eq!(on(0, 1).map(|placement| placement.model.physical), Ok(Some(0)), "one is enough");
        assert_eq!(on(1, 1), Err(PlacementError::NoSuchIndex(Lane::Model, 1, 1)));
    }

    #[test]
    fn one_card_under_two_back_ends_is_one_device() {
        let at = |index, pci: &str| DeviceInfo { pci: pci.parse().ok(), ..gpu(index, Kind::Discrete, "card", 24) };
        let devices = [at(0, "0000:03:00.0"), at(1, "0000:03:00.0"), at(2, "0000:04:00.0")];
        assert_eq!(resolve(&ask(Some(0), Some(1)), &devices, &cpu()), Err(PlacementError::SameDevice(0)));
        assert!(resolve(&ask(Some(0), Some(2)), &devices, &cpu()).is_ok());
    }

    #[test]
    fn software_devices_are_used_only_when_requested() {
        let software: Vec<DeviceInfo> = (0..2).map(|index| gpu(index, Kind::Software, "llvmpipe", 8)).collect();
        let single = resolve(&ask(None, None), &software, &cpu()).expect("the CPU");
        assert_eq!(single.model.physical, None);
        let asked_for = Request { backend: Some(Backend::Simulated), ..Request::default() };
        let single = resolve(&asked_for, &software, &cpu()).expect("by name");
        assert_eq!((single.model.physical, single.warnings), (Some(0), vec![Warning::Software]));
        let multi = resolve(&ask(Some(1), Some(0)), &software, &cpu()).expect("by index");
        assert_eq!(multi.warnings, [Warning::Software]);
        let cpu_only = Request { backend: Some(Backend::Cpu), ..Request::default() };
        assert_eq!(resolve(&cpu_only, &gpus(2), &cpu()).expect("the CPU").model.physical, None);
        assert_eq!(
            resolve(&Request { backend: Some(Backend::Cpu), ..ask(Some(0), Some(1)) }, &gpus(2), &cpu()),
            Err(PlacementError::OtherBackend(Lane::Data, 0, Backend::Simulated, Backend::Cpu))
        );
    }

    /// SPEC M15.
    #[test]
    fn a_weaker_model_lane_is_warned_about() {
        let devices = [gpu(0, Kind::Discrete, "big", 24), gpu(1, Kind::Integrated, "small", 8)];
        let warnings = |data, model| resolve(&ask(Some(data), Some(model)), &devices, &cpu()).expect("two").warnings;
        assert_eq!(warnings(0, 1), [Warning::ModelLaneSlower, Warning::ModelLaneSmaller]);
        assert_eq!(warnings(1, 0), []);
    }
}
