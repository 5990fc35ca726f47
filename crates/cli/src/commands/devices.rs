//! `tandem devices`: what there is, what connects it, and what could not be read.

use std::time::Instant;

use serde_json::{Value, json};
use tandem_device::probes::{DeviceReadings, Probes};
use tandem_device::{DeviceInfo, Inventory, Reading, SelfTestError, self_test};
use tandem_model::burn::tensor::{Tensor, TensorData};
use tandem_model::{Device, kernels};

use crate::args::DevicesArgs;
use crate::errors::Explain;
use crate::failure::{FAILED, Failure};
use crate::messages::Messages;
use crate::open_lanes;
use crate::ui::output::print;
use crate::ui::table::Table;
use tandem_device::memory::MB;

/// What the CPU is called.
const CPU: &str = "CPU";
/// What is copied to measure a link.
const COPY_MB: usize = 16;
/// Makes the self-test fail, for tests.
const FAIL_SELF_TEST: &str = "TANDEM_FAIL_SELF_TEST";
/// How often.
const ROUNDS: usize = 3;

pub(crate) fn run(args: &DevicesArgs, messages: &Messages) -> Result<(), Failure> {
    let inventory = args.simulate_devices.map_or_else(Inventory::scan, Inventory::simulated);
    if let Some(index) = args.self_test_here {
        return test_here(&inventory, index);
    }
    let probes = Probes::new();
    let readings: Vec<DeviceReadings> =
        inventory.gpus.iter().map(|gpu| probes.read(gpu.pci.as_ref(), gpu.vendor)).collect();
    let pairs: Vec<(usize, usize)> =
        (0..inventory.gpus.len()).flat_map(|a| (a + 1..inventory.gpus.len()).map(move |b| (a, b))).collect();
    let links: Vec<_> =
        pairs.iter().map(|&(a, b)| (a, b, open_lanes::link(&probes, &inventory.gpus[a], &inventory.gpus[b]))).collect();
    let tests: Vec<(usize, Result<(), SelfTestError>)> = match args.self_test {
        true => (0..inventory.gpus.len()).map(|at| (at, open_lanes::self_test(&inventory.gpus[at]))).collect(),
        false => Vec::new(),
    };
    // Pretended devices copy nothing.
    let copies = if args.bench && args.simulate_devices.is_none() { bench(&inventory)? } else { Vec::new() };
    if args.json {
        let devices: Vec<Value> = inventory
            .gpus
            .iter()
            .zip(&readings)
            .map(|(gpu, readings)| json!({"device": gpu, "readings": readings}))
            .collect();
        let links: Vec<Value> = links
            .iter()
            .map(|(a, b, link)| json!({"a": a, "b": b, "link": link, "far": link.value().map(|link| link.is_far())}))
            .collect();
        let tests: Vec<Value> = tests
            .iter()
            .map(|(at, result)| json!({"device": at, "passed": result.is_ok(), "why": result.as_ref().err().map(ToString::to_string)}))
            .collect();
        return print(&format!(
            "{}\n",
            json!({"gpus": devices, "cpu": inventory.cpu, "cpu_vectors": kernels::cpu_vectors(), "links": links, "copies": copies, "self_tests": tests,
                "notes": inventory.notes})
        ));
    }
    print(&report(&inventory, &readings, messages))?;
    let mut text = String::new();
    if !links.is_empty() {
        text += &(messages.get("devices-links") + "\n");
    }
    for (a, b, link) in &links {
        let line = match link {
            Reading::Known { value, source } => messages.with(
                "devices-link",
                &[("a", a), ("b", b), ("link", value), ("meaning", &value.meaning()), ("source", source)],
            ),
            Reading::Unavailable { unavailable } => {
                messages.with("devices-link-unknown", &[("a", a), ("b", b), ("why", unavailable)])
            }
        };
        text += &format!("  {line}\n");
    }
    if links.iter().any(|(_, _, link)| link.value().is_some_and(|link| link.is_far())) {
        text += &(messages.get("devices-far") + "\n");
    }
    if !copies.is_empty() {
        text += &(messages.with("devices-copies", &[("size", &COPY_MB), ("rounds", &ROUNDS)]) + "\n");
    }
    for copy in &copies {
        let number = |key: &str| copy[key].as_f64().unwrap_or(0.0);
        let name = |key: &str| copy[key].as_str().unwrap_or("").to_owned();
        let (rate, ms) = (format!("{:.0}", number("mb_per_s")), format!("{:.1}", number("ms")));
        let line = messages
            .with("devices-copy", &[("from", &name("from")), ("to", &name("to")), ("rate", &rate), ("ms", &ms)]);
        text += &format!("  {line}\n");
    }
    for (at, result) in &tests {
        let device = inventory.gpus[*at].label();
        text += &match result {
            Ok(()) if args.simulate_devices.is_some() => messages.with("devices-pretended", &[("device", &device)]),
            Ok(()) => messages.with("devices-passed", &[("device", &device)]),
            Err(error) => {
                let reason = error.text().render(messages);
                messages.with("devices-failed", &[("device", &device), ("reason", &reason)])
            }
        };
        text.push('\n');
    }
    for note in &inventory.notes {
        text += &format!("{}\n", messages.text(note.clone()));
    }
    print(&text)?;
    match tests.iter().any(|(_, result)| result.is_err()) {
        true => Err(Failure::new(FAILED, messages.get("devices-some-failed"))),
        false => Ok(()),
    }
}

fn test_here(inventory: &Inventory, index: usize) -> Result<(), Failure> {
    let failed = |why: String| Failure::new(FAILED, why);
    let device = inventory.gpus.get(index).ok_or_else(|| failed(format!("there is no device {index}")))?;
    let device = inventory.open(device).map_err(|error| Failure::of(FAILED, &error))?;
    if std::env::var_os(FAIL_SELF_TEST).is_some() {
        return Err(failed("matmul is wrong (on purpose)".to_owned()));
    }
    self_test(&device).map_err(|error| Failure::of(FAILED, &error))
}

fn report(inventory: &Inventory, readings: &[DeviceReadings], messages: &Messages) -> String {
    let megabytes =
        |reading: &Reading<u64>| reading.value().map_or("-".to_owned(), |bytes| format!("{} MB", bytes / MB));
    let mut text = String::new();
    if inventory.gpus.is_empty() {
        text += &(messages.get("devices-none") + "\n");
    } else {
        let heading = ["index", "name", "kind", "backend", "memory", "used", "load"]
            .map(|column| messages.get(&format!("devices-heading-{column}")));
        let mut table = Table::new(heading);
        for (gpu, readings) in inventory.gpus.iter().zip(readings) {
            let load = readings.utilization.value().map_or("-".to_owned(), |percent| format!("{percent:.0} %"));
            table.row([
                gpu.index.unwrap_or_default().to_string(),
                gpu.name.clone(),
                gpu.kind.to_string(),
                gpu.backend.to_string(),
                megabytes(&total(gpu, readings)),
                megabytes(&readings.memory_used),
                load,
            ]);
        }
        text += &table.render();
        for (gpu, readings) in inventory.gpus.iter().zip(readings) {
            let index = gpu.index.unwrap_or_default();
            text += &(messages.with("devices-driver", &[("index", &index), ("driver", &gpu.driver)]) + "\n");
            let unread = [
                ("memory", total(gpu, readings).reason().map(str::to_owned)),
                ("memory used", readings.memory_used.reason().map(str::to_owned)),
                ("load", readings.utilization.reason().map(str::to_owned)),
            ];
            // Several figures are often missing for one reason.
            let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
            for (what, why) in unread.into_iter().filter_map(|(what, why)| Some((what, why?))) {
                match reasons.iter_mut().find(|(known, _)| *known == why) {
                    Some((_, names)) => names.push(what),
                    None => reasons.push((why, vec![what])),
                }
            }
            for (why, names) in reasons {
                let what = names.join(", ");
                let line = messages.with("devices-unread", &[("index", &index), ("what", &what), ("why", &why)]);
                text += &format!("  {line}\n");
            }
        }
    }
    let cpu = &inventory.cpu;
    let memory = cpu.memory.value().map_or("?".to_owned(), |bytes| (bytes / MB).to_string());
    text += &messages.with("devices-cpu", &[("name", &cpu.name), ("driver", &cpu.driver), ("memory", &memory)]);
    text.push('\n');
    text += &match kernels::cpu_vectors() {
        Some(vectors) => messages.with("devices-vectors", &[("vectors", &vectors)]),
        None => messages.get("devices-no-vectors"),
    };
    text.push('\n');
    text
}

/// What the driver's tool says, else what the back end says.
fn total(gpu: &DeviceInfo, readings: &DeviceReadings) -> Reading<u64> {
    readings.memory_total.clone().or(|| gpu.memory.clone())
}

/// Opens every device and copies between each pair, the CPU among them.
fn bench(inventory: &Inventory) -> Result<Vec<Value>, Failure> {
    let all: Vec<&DeviceInfo> = std::iter::once(&inventory.cpu).chain(&inventory.gpus).collect();
    let failed = |text: String| Failure::new(FAILED, text);
    let mut open: Vec<(String, Device)> = Vec::new();
    for device in all {
        open.push((device.label(), inventory.open(device).map_err(|error| Failure::of(FAILED, &error))?));
    }
    let mut copies = Vec::new();
    for (from_name, from) in &open {
        for (to_name, to) in open.iter().filter(|(name, _)| name != from_name) {
            let values = vec![1.0f32; COPY_MB * MB as usize / 4];
            let tensor = Tensor::<1>::from_data(TensorData::new(values, [COPY_MB * MB as usize / 4]), from);
            let mut best = f64::INFINITY;
            for round in 0..ROUNDS {
                // New values each time: a copy that is known already would cost nothing.
                let fresh = tensor.clone() + round as f32;
                from.sync().map_err(|error| failed(error.to_string()))?;
                let started = Instant::now();
                let copy = fresh.to_device(to);
                // A copy to the host may stay where it is until it is read.
                let seen = if to_name == CPU {
                    copy.into_data().bytes().iter().step_by(4096).map(|&byte| u64::from(byte)).sum()
                } else {
                    0u64
                };
                std::hint::black_box(seen);
                to.sync().map_err(|error| failed(error.to_string()))?;
                best = best.min(started.elapsed().as_secs_f64());
            }
            copies.push(json!({"from": from_name, "to": to_name, "bytes": COPY_MB * MB as usize,
                "ms": 1e3 * best, "mb_per_s": COPY_MB as f64 / best, "source": "measured"}));
        }
    }
    Ok(copies)
}
