//! What devices there are, by every back end that is built in. Looking opens nothing: a device costs memory only once
//! a lane uses it.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::reading::Reading;
use crate::topology::PciAddress;

/// How a device is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// This machine's CPU.
    Cpu,
    /// CUDA.
    Cuda,
    /// Vulkan.
    Vulkan,
    /// Metal.
    Metal,
    /// Direct3D 12.
    Dx12,
    /// Nothing real: for tests, plans and what-if.
    Simulated,
}

impl Backend {
    /// Those that this program was built with.
    pub fn built_in() -> Vec<Backend> {
        let mut all = vec![Backend::Cpu];
        if cfg!(feature = "cuda") {
            all.push(Backend::Cuda);
        }
        if cfg!(feature = "wgpu") {
            all.push(if cfg!(target_os = "macos") { Backend::Metal } else { Backend::Vulkan });
            if cfg!(windows) {
                all.push(Backend::Dx12);
            }
        }
        all
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Cpu => "cpu",
            Backend::Cuda => "cuda",
            Backend::Vulkan => "vulkan",
            Backend::Metal => "metal",
            Backend::Dx12 => "dx12",
            Backend::Simulated => "simulated",
        })
    }
}

/// What kind of device it is, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A card of its own.
    Discrete,
    /// Shares the CPU's memory.
    Integrated,
    /// Handed in by a hypervisor.
    Virtual,
    /// Simulated.
    Simulated,
    /// A GPU emulated by the CPU: for tests, far slower than the CPU backend.
    Software,
    /// The CPU.
    Cpu,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Discrete => "discrete",
            Kind::Integrated => "integrated",
            Kind::Virtual => "virtual",
            Kind::Simulated => "simulated",
            Kind::Software => "software",
            Kind::Cpu => "cpu",
        })
    }
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceInfo {
    /// What `--data-gpu` and `--model-gpu` call it; the CPU has none.
    pub index: Option<usize>,
    /// How it is reached.
    pub backend: Backend,
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: String,
    /// Its memory in bytes.
    pub memory: Reading<u64>,
    /// Where it is plugged in.
    pub pci: Option<PciAddress>,
    /// Who made it (PCI vendor id).
    pub vendor: Option<u32>,
}

impl DeviceInfo {
    /// `GPU 1` or `CPU`.
    pub fn label(&self) -> String {
        self.index.map_or("CPU".to_owned(), |index| format!("GPU {index}"))
    }

    /// Whether it is worth using when nobody asked for it by name.
    pub fn is_real(&self) -> bool {
        !matches!(self.kind, Kind::Software | Kind::Cpu)
    }
}

/// All devices.
#[derive(Debug)]
pub struct Inventory {
    /// The GPUs, in the order of their indices.
    pub gpus: Vec<DeviceInfo>,
    /// The CPU.
    pub cpu: DeviceInfo,
    /// What could not be read, and why.
    pub notes: Vec<String>,
    /// How each GPU is opened, in the same order; simulated ones are not.
    #[cfg(feature = "open")]
    pub(crate) handles: Vec<Handle>,
}

/// What a GPU is opened by.
#[cfg(feature = "open")]
#[derive(Debug)]
pub(crate) enum Handle {
    #[cfg(feature = "wgpu")]
    Adapter(crate::adapters::Adapter),
    #[cfg(feature = "cuda")]
    Cuda(burn::tensor::Device),
}

/// Simulated devices: how many, and how much memory each has. Written `4` or `2x24GB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simulation {
    /// How many.
    pub devices: usize,
    /// Bytes of memory of each.
    pub memory: u64,
}

impl FromStr for Simulation {
    type Err = String;

    fn from_str(text: &str) -> Result<Simulation, String> {
        let wrong = || format!("`{text}` is not a number of devices, write for example `4` or `2x24GB`");
        let (count, memory) = text.split_once('x').map_or((text, None), |(count, memory)| (count, Some(memory)));
        let devices: usize = count.trim().parse().ok().filter(|&count| count <= 64).ok_or_else(wrong)?;
        let gigabytes: u64 = match memory {
            None => 24,
            Some(memory) => memory.trim().trim_end_matches("GB").trim().parse().map_err(|_| wrong())?,
        };
        let memory = gigabytes.checked_mul(1 << 30).filter(|&bytes| bytes > 0).ok_or_else(wrong)?;
        Ok(Simulation { devices, memory })
    }
}

impl Inventory {
    /// Reads what the machine has.
    pub fn scan() -> Inventory {
        let mut inventory = Inventory::scan_cpu();
        #[cfg(feature = "cuda")]
        inventory.look_at_cuda();
        #[cfg(feature = "wgpu")]
        inventory.look_at_adapters();
        #[cfg(not(feature = "wgpu"))]
        inventory.notes.push("built without GPU support (the feature `wgpu`)".to_owned());
        inventory
    }

    /// Devices that are not there. The CPU is real: it does their work.
    pub fn simulated(simulation: Simulation) -> Inventory {
        let gpus = (0..simulation.devices).map(|index| DeviceInfo {
            index: Some(index),
            backend: Backend::Simulated,
            kind: Kind::Simulated,
            name: format!("simulated GPU {index}"),
            driver: "simulated".to_owned(),
            memory: Reading::known(simulation.memory, "simulated"),
            pci: None,
            vendor: None,
        });
        Inventory {
            gpus: gpus.collect(),
            notes: vec!["simulated devices: the work is done by the CPU".to_owned()],
            ..Inventory::scan_cpu()
        }
    }

    /// Only the CPU.
    pub fn scan_cpu() -> Inventory {
        let cpu = DeviceInfo {
            index: None,
            backend: Backend::Cpu,
            kind: Kind::Cpu,
            name: cpu_name(),
            driver: format!("{} threads", std::thread::available_parallelism().map_or(1, usize::from)),
            memory: crate::probes::host_memory().0,
            pci: None,
            vendor: None,
        };
        Inventory {
            gpus: Vec::new(),
            cpu,
            notes: Vec::new(),
            #[cfg(feature = "open")]
            handles: Vec::new(),
        }
    }

    /// A device by its index; the CPU without one.
    pub fn device(&self, index: Option<usize>) -> &DeviceInfo {
        index.map_or(&self.cpu, |index| &self.gpus[index])
    }
}

fn cpu_name() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulations_are_read() {
        let two = Simulation { devices: 2, memory: 24 << 30 };
        assert_eq!("2".parse(), Ok(two));
        assert_eq!("2x24GB".parse(), Ok(two));
        assert_eq!("2x24".parse(), Ok(two));
        for text in ["", "x", "2x", "2x0", "-1", "2y4", "1000", "2x99999999999999"] {
            assert!(text.parse::<Simulation>().is_err(), "{text}");
        }
    }

    #[test]
    fn there_is_always_a_cpu() {
        let inventory = Inventory::scan();
        assert_eq!(inventory.device(None).kind, Kind::Cpu);
        assert!(!inventory.cpu.name.is_empty());
        for (at, gpu) in inventory.gpus.iter().enumerate() {
            assert_eq!(gpu.index, Some(at));
        }
    }
}
