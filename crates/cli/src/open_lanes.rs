//! From flags to open devices: parse → inventory → validate → mode → self-test → open, in that order, before any tensor
//! exists (SPEC D1).

use std::time::Duration;

use tandem_device::probes::Probes;
use tandem_device::topology::{Link, link_from_sysfs, nvidia_smi_topology};
use tandem_device::{
    Backend, DeviceInfo, Fallback, FeaturesOn, Inventory, Lanes, Mode, Placement, PlacementError, Reading, Request,
    SelfTestError, Warning, resolve, self_test_apart,
};
use tandem_flow::Lane;
use tandem_model::Device;
use tandem_model::kernels::{ThreadPoolBuildError, compute_here};

use crate::args::{DeviceArgs, LaneArgs};
use crate::errors::Explain;
use crate::failure::{FAILED, Failure};
use crate::messages::Messages;

/// A driver that compiles its kernels slowly may take a while.
const SELF_TEST_PATIENCE: Duration = Duration::from_secs(180);

/// The devices, those that are there or those that are pretended.
pub(crate) fn inventory(args: &LaneArgs) -> Inventory {
    // Who wants the CPU only is not to be stopped by a driver that crashes when it is asked for its devices.
    let cpu_only = args.backend.as_deref() == Some("cpu") && args.data_gpu.is_none() && args.model_gpu.is_none();
    match args.simulate_devices {
        Some(simulation) => Inventory::simulated(simulation),
        None if cpu_only => Inventory::scan_cpu(),
        None => Inventory::scan(),
    }
}

/// Who does what; nothing is opened.
pub(crate) fn place(args: &LaneArgs, inventory: &Inventory, messages: &Messages) -> Result<Placement, Failure> {
    let mut placement = resolve(&args.request(), &inventory.gpus, &inventory.cpu)
        .map_err(|error| failure(&error, inventory, messages))?;
    for fallback in &mut placement.fallbacks {
        fallback.requested = args.as_typed();
        report_fallback(fallback, messages);
    }
    for warning in &placement.warnings {
        let id = match warning {
            Warning::ModelLaneSlower => "lanes-slower",
            Warning::ModelLaneSmaller => "lanes-smaller",
            Warning::Software => "lanes-software",
        };
        eprintln!("{}", messages.get(id));
    }
    let idle = inventory.gpus.first().filter(|_| placement.model.physical.is_none() && args.backend.is_none());
    if let Some(gpu) = idle {
        eprintln!("{}", messages.with("lanes-unused", &[("device", &gpu.label()), ("name", &gpu.name)]));
    }
    if placement.mode == Mode::MultiGpu {
        if placement.features == FeaturesOn::Cpu {
            eprintln!("{}", messages.get("lanes-idle"));
        }
        let (data, model) = (inventory.device(placement.data.physical), inventory.device(placement.model.physical));
        if let Some(link) = link(&Probes::new(), data, model).value().filter(|link| link.is_far()) {
            eprintln!("{}", messages.with("lanes-far", &[("link", link), ("meaning", &link.meaning())]));
        }
    }
    Ok(placement)
}

pub(crate) fn report_fallback(fallback: &Fallback, messages: &Messages) {
    let Fallback { requested, value, reason } = fallback;
    let values: &[(&str, &dyn std::fmt::Display)] = &[("requested", requested), ("value", value), ("reason", reason)];
    eprintln!("{}", messages.with("lanes-fallback", values));
}

/// Opens the devices of a placement, after each of them has shown that it computes what the CPU computes.
pub(crate) fn open(
    inventory: &Inventory,
    placement: Placement,
    allow_fallback: bool,
    messages: &Messages,
) -> Result<Lanes, Failure> {
    let placement = trusted(inventory, placement, allow_fallback, messages)?;
    computing(Lanes::open(inventory, placement).map_err(|error| Failure::of(FAILED, &error))?, messages)
}

/// With the calling thread among those that compute, if the CPU does.
fn computing(lanes: Lanes, messages: &Messages) -> Result<Lanes, Failure> {
    if lanes.model == Device::flex() {
        let failed = |error: ThreadPoolBuildError| messages.with("lanes-no-threads", &[("reason", &error)]);
        compute_here().map_err(|error| Failure::new(FAILED, failed(error)))?;
    }
    Ok(lanes)
}

/// Opens the one device of a command that has no lanes; without a request that is the CPU. Never another one than was
/// asked for.
pub(crate) fn open_one(args: &DeviceArgs, messages: &Messages) -> Result<Lanes, Failure> {
    let args = args.lanes();
    let inventory = inventory(&args);
    let placement = resolve(&args.request(), &inventory.gpus, &inventory.cpu).map_err(|error| {
        let failure = Failure::usage(explain(&error, |_| "--device", messages)).hint(found(&inventory, messages));
        failure.hint(messages.get("place-hint-devices"))
    })?;
    let device = inventory.device(placement.model.physical);
    if placement.warnings.contains(&Warning::Software) {
        eprintln!("{}", messages.get("lanes-software"));
    }
    trust(device, messages).map_err(|error| refused(device, &error, messages))?;
    computing(Lanes::open(&inventory, placement).map_err(|error| Failure::of(FAILED, &error))?, messages)
}

/// The same beside those that are open, to measure what they would give.
pub(crate) fn open_also(inventory: &Inventory, placement: Placement, messages: &Messages) -> Result<Lanes, Failure> {
    let placement = trusted(inventory, placement, false, messages)?;
    Lanes::open_also(inventory, placement).map_err(|error| Failure::of(FAILED, &error))
}

/// The placement, or the CPU when one of its devices computes something else than the CPU and that is allowed.
fn trusted(
    inventory: &Inventory,
    mut placement: Placement,
    allow_fallback: bool,
    messages: &Messages,
) -> Result<Placement, Failure> {
    for lane in [placement.data.physical, placement.model.physical] {
        let device = inventory.device(lane);
        let Err(error) = trust(device, messages) else { continue };
        if !allow_fallback {
            return Err(refused(device, &error, messages).hint(messages.get("place-hint-fallback")));
        }
        let text = refused_text(device, &error, messages);
        let cpu_only = Request { backend: Some(Backend::Cpu), ..Request::default() };
        let requested = format!("{} on {} and {}", placement.mode, placement.data.label(), placement.model.label());
        let before = placement.fallbacks;
        placement = resolve(&cpu_only, &[], &inventory.cpu).expect("the CPU is always there");
        let fallback = Fallback { requested, value: format!("{} on the CPU", placement.mode), reason: text };
        report_fallback(&fallback, messages);
        placement.fallbacks = before.into_iter().chain([fallback]).collect();
        break;
    }
    Ok(placement)
}

/// A device that computes something else than the CPU.
fn refused(device: &DeviceInfo, error: &SelfTestError, messages: &Messages) -> Failure {
    Failure::new(FAILED, refused_text(device, error, messages)).hint(messages.get("place-hint-devices"))
}

fn refused_text(device: &DeviceInfo, error: &SelfTestError, messages: &Messages) -> String {
    let reason = error.text().render(messages);
    let values: &[(&str, &dyn std::fmt::Display)] =
        &[("device", &device.label()), ("name", &device.name), ("reason", &reason)];
    messages.with("lanes-refused", values)
}

/// Whether a device passes the self-test.
pub(crate) fn trust(device: &DeviceInfo, messages: &Messages) -> Result<(), SelfTestError> {
    if matches!(device.backend, Backend::Cpu | Backend::Simulated) {
        return Ok(());
    }
    eprintln!("{}", messages.with("lanes-testing", &[("device", &device.label())]));
    self_test(device)
}

/// Compares a device with the CPU in a process of its own.
pub(crate) fn self_test(device: &DeviceInfo) -> Result<(), SelfTestError> {
    if device.backend == Backend::Simulated {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(SelfTestError::Start)?;
    let index = device.index.map_or(String::new(), |index| index.to_string());
    let arguments = ["devices".to_owned(), "--self-test-here".to_owned(), index];
    self_test_apart(&program, &arguments, SELF_TEST_PATIENCE)
}

/// What lies between two devices, by the best source there is.
pub(crate) fn link(probes: &Probes, a: &DeviceInfo, b: &DeviceInfo) -> Reading<Link> {
    let (Some(first), Some(second)) = (&a.pci, &b.pci) else {
        return Reading::unavailable("not on a PCI bus");
    };
    let by_driver = || {
        let numbers = (probes.nvidia_number(first), probes.nvidia_number(second));
        let (Some(&first), Some(&second)) = (numbers.0.value(), numbers.1.value()) else {
            return Reading::unavailable("not known to NVML");
        };
        match nvidia_smi_topology() {
            Reading::Known { value, source } => match value.link(first, second) {
                Some(link) => Reading::known(link, source),
                None => Reading::unavailable("nvidia-smi does not list the pair"),
            },
            Reading::Unavailable { unavailable } => Reading::unavailable(unavailable),
        }
    };
    by_driver().or(|| link_from_sysfs("/sys".as_ref(), first, second))
}

/// What a user names the device of a lane with.
fn flag(lane: Lane) -> &'static str {
    match lane {
        Lane::Data => "--data-gpu",
        Lane::Model => "--model-gpu",
    }
}

pub(crate) fn failure(error: &PlacementError, inventory: &Inventory, messages: &Messages) -> Failure {
    let failure = Failure::usage(explain(error, flag, messages)).hint(found(inventory, messages));
    match error {
        PlacementError::SameDevice(_) => failure.hint(messages.get("place-hint-single")),
        PlacementError::MissingLane(Lane::Data) => failure.hint(messages.get("place-hint-one")),
        PlacementError::MissingLane(_) => failure.hint(messages.get("place-hint-single")),
        _ => failure.hint(messages.get("place-hint-devices")).hint(messages.get("place-hint-fallback")),
    }
}

/// The devices there are, for a hint.
fn found(inventory: &Inventory, messages: &Messages) -> String {
    let listed: Vec<String> =
        inventory.gpus.iter().map(|gpu| format!("{} {} ({})", gpu.label(), gpu.name, gpu.kind)).collect();
    let listed = if listed.is_empty() { messages.get("place-none") } else { listed.join(", ") };
    messages.with("place-found", &[("devices", &listed)])
}

/// What is wrong with a request, with the flags that it was made by.
fn explain(error: &PlacementError, flag: impl Fn(Lane) -> &'static str, messages: &Messages) -> String {
    match error {
        PlacementError::MissingLane(lane) => messages.with("place-missing", &[("flag", &flag(*lane))]),
        PlacementError::Insufficient(found) => messages.with("place-insufficient", &[("found", found)]),
        PlacementError::NoSuchIndex(lane, index, found) => {
            let last = found.saturating_sub(1);
            messages.with("place-index", &[("flag", &flag(*lane)), ("index", index), ("last", &last)])
        }
        PlacementError::NoSuchName(lane, name) => {
            messages.with("place-name", &[("flag", &flag(*lane)), ("name", name)])
        }
        PlacementError::Ambiguous(lane, name, found) => {
            let found: Vec<String> = found.iter().map(usize::to_string).collect();
            messages.with("place-ambiguous", &[("flag", &flag(*lane)), ("name", name), ("found", &found.join(", "))])
        }
        PlacementError::SameDevice(index) => messages.with("place-same", &[("index", index)]),
        PlacementError::NotBuiltIn(backend) => {
            let built: Vec<String> = Backend::built_in().iter().map(Backend::to_string).collect();
            messages.with("place-not-built", &[("backend", backend), ("built", &built.join(", "))])
        }
        PlacementError::NoDevice(backend) => messages.with("place-no-device", &[("backend", backend)]),
        PlacementError::OtherBackend(lane, index, is, requested) => messages
            .with("place-other", &[("flag", &flag(*lane)), ("index", index), ("is", is), ("requested", requested)]),
    }
}
