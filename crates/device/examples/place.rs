//! Which device has which job: a pure function of what was requested and what there is. Nothing is opened.
//!
//!     cargo run --release -p tandem-device --example place -- --data-gpu 0 --model-gpu 1
//!
//! Without a GPU in this machine (or in this build: add `--features wgpu`), two simulated ones take their place.

use std::error::Error;

use tandem_device::{Inventory, LaneDevice, Request, Selector, resolve};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| -> Result<Option<Selector>, String> {
        let Some(at) = arguments.iter().position(|argument| argument == name) else { return Ok(None) };
        arguments.get(at + 1).ok_or(format!("{name} needs a device"))?.parse().map(Some)
    };
    let request = Request { data: flag("--data-gpu")?, model: flag("--model-gpu")?, ..Request::default() };

    let mut inventory = Inventory::scan();
    if inventory.gpus.is_empty() {
        inventory = Inventory::simulated("2x24GB".parse()?);
    }
    for device in inventory.gpus.iter().chain([&inventory.cpu]) {
        let memory = match device.memory.value() {
            Some(&bytes) => format!("{:.1} GB", bytes as f64 / 1e9),
            None => format!("memory unknown: {}", device.memory.reason().unwrap_or_default()),
        };
        println!("{:6} {} ({} by {}), {memory}", device.label(), device.name, device.kind, device.backend);
    }
    inventory.notes.iter().for_each(|note| println!("note: {note}"));

    match resolve(&request, &inventory.gpus, &inventory.cpu) {
        Ok(placement) => {
            let lane = |device: &LaneDevice| format!("{}, {}, called {}", device.label(), device.name, device.logical);
            println!("\n{}", placement.mode);
            println!("data lane:  {}", lane(&placement.data));
            println!("model lane: {}", lane(&placement.model));
            println!("features are computed on: {:?}", placement.features);
            placement.warnings.iter().for_each(|warning| println!("warning: {warning:?}"));
        }
        Err(error) => println!("\nerror: {error}"),
    }
    Ok(())
}
