//! What a device and the host say about themselves: NVML for NVIDIA, sysfs for the others, `/proc` for the host.
//! Nothing here fails: what cannot be read is [`Reading::Unavailable`] with the reason.

mod nvml;
mod sysfs;

use std::path::PathBuf;

use serde::Serialize;

use crate::reading::Reading;
use crate::topology::PciAddress;

pub use sysfs::{CpuMeter, CpuUse, host_memory, host_memory_at};

const NVIDIA: u32 = 0x10de;
const AMD: u32 = 0x1002;
const INTEL: u32 = 0x8086;

/// What a device says about itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceReadings {
    /// Bytes of its own memory.
    pub memory_total: Reading<u64>,
    /// Bytes in use, by anybody.
    pub memory_used: Reading<u64>,
    /// Bytes free.
    pub memory_free: Reading<u64>,
    /// Per cent of the last moments in which it was busy at all: a full figure does not mean fully used.
    #[serde(rename = "utilisation")]
    pub utilization: Reading<f64>,
    /// Degrees Celsius.
    pub temperature: Reading<f64>,
}

impl DeviceReadings {
    /// Nothing is known.
    pub fn unavailable(why: &str) -> DeviceReadings {
        DeviceReadings {
            memory_total: Reading::unavailable(why),
            memory_used: Reading::unavailable(why),
            memory_free: Reading::unavailable(why),
            utilization: Reading::unavailable(why),
            temperature: Reading::unavailable(why),
        }
    }
}

/// Reads the devices. Made once, because loading NVML takes a while.
pub struct Probes {
    sysfs: PathBuf,
    nvml: nvml::Library,
}

impl Default for Probes {
    fn default() -> Probes {
        Probes::new()
    }
}

impl Probes {
    /// Of this machine.
    pub fn new() -> Probes {
        Probes { sysfs: PathBuf::from("/sys"), nvml: nvml::Library::load() }
    }

    /// Of the sysfs at `root` instead of `/sys`, without NVML.
    pub fn with_root(root: impl Into<PathBuf>) -> Probes {
        Probes { sysfs: root.into(), nvml: nvml::Library::none("NVML is not in use") }
    }

    /// What the device at `pci` says. Without a vendor (as a PCI number) sysfs is asked for it.
    pub fn read(&self, pci: Option<&PciAddress>, vendor: Option<u32>) -> DeviceReadings {
        let Some(pci) = pci else { return DeviceReadings::unavailable("a software device") };
        let device = sysfs::Device::at(&self.sysfs, pci);
        let vendor = match vendor {
            Some(vendor) => Reading::known(vendor, "the caller"),
            None => device.vendor(),
        };
        match vendor {
            Reading::Known { value: NVIDIA, .. } => {
                let readings = self.nvml.read(pci);
                // The open driver of the kernel has no NVML, but a sensor.
                let temperature = readings.temperature.or(|| device.temperature(1, "sysfs nouveau"));
                DeviceReadings { temperature, ..readings }
            }
            Reading::Known { value: AMD, .. } => device.amd(),
            Reading::Known { value: INTEL, .. } => device.intel(),
            Reading::Known { value, .. } => {
                DeviceReadings::unavailable(&format!("no way to read devices of vendor {value:#06x}"))
            }
            Reading::Unavailable { unavailable } => DeviceReadings::unavailable(&unavailable),
        }
    }

    /// Name and place of the NVIDIA card with this number.
    pub fn nvidia_card(&self, number: u32) -> Result<(String, PciAddress), String> {
        self.nvml.card(number)
    }

    /// The number `nvidia-smi` gives this device, for [`Matrix::link`](crate::topology::Matrix::link).
    pub fn nvidia_number(&self, pci: &PciAddress) -> Reading<u32> {
        self.nvml.number(pci)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// What a device in a sysfs with these files says. `drivers/NAME` makes NAME its driver.
    fn read(vendor: Option<u32>, files: &[(&str, &str)]) -> DeviceReadings {
        let root = tempfile::tempdir().expect("a temporary folder");
        let device = root.path().join("bus/pci/devices/0000:03:00.0");
        fs::create_dir_all(&device).expect("made");
        for (name, text) in files {
            let path = device.join(name);
            if let Some(driver) = name.strip_prefix("drivers/") {
                symlink(root.path().join(driver), device.join("driver")).expect("linked");
                continue;
            }
            fs::create_dir_all(path.parent().expect("has a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        Probes::with_root(root.path()).read(Some(&"03:00.0".parse().expect("valid")), vendor)
    }

    const VRAM: [(&str, &str); 2] = [("mem_info_vram_total", "17163091968\n"), ("mem_info_vram_used", "1000000\n")];

    #[test]
    fn amd_devices_are_read_from_sysfs() {
        let sensors = [("gpu_busy_percent", "37\n"), ("hwmon/hwmon4/temp1_input", "45500\n"), ("vendor", "0x1002\n")];
        for vendor in [Some(AMD), None] {
            let readings = read(vendor, &[&VRAM[..], &sensors[..]].concat());
            let source = "sysfs amdgpu";
            assert_eq!(readings.memory_total, Reading::known(17_163_091_968, source));
            assert_eq!(readings.memory_used, Reading::known(1_000_000, source));
            assert_eq!(readings.memory_free, Reading::known(17_162_091_968, source));
            assert_eq!(readings.utilization, Reading::known(37.0, source));
            assert_eq!(readings.temperature, Reading::known(45.5, source));
        }
    }

    #[test]
    fn what_is_missing_or_damaged_is_said_and_the_rest_is_read() {
        let readings = read(Some(AMD), &[VRAM[0], ("gpu_busy_percent", "?"), ("hwmon/hwmon10/temp2_input", "61000")]);
        assert_eq!(readings.memory_total.value(), Some(&17_163_091_968));
        assert!(readings.memory_free.reason().expect("not known").contains("mem_info_vram_used"));
        assert!(readings.utilization.reason().expect("damaged").starts_with("cannot understand `"));
        assert_eq!(readings.temperature, Reading::known(61.0, "sysfs amdgpu, junction"));
    }

    #[test]
    fn intel_devices_say_what_they_publish() {
        let xe = read(
            Some(INTEL),
            &[
                ("drivers/xe", ""),
                ("tile0/physical_vram_size_bytes", "8000\n"),
                ("tile1/physical_vram_size_bytes", "500\n"),
                ("hwmon/hwmon3/temp2_input", "50000\n"),
            ],
        );
        assert_eq!(xe.memory_total, Reading::known(8500, "sysfs xe"));
        assert_eq!(xe.temperature, Reading::known(50.0, "sysfs xe"));
        assert!(xe.memory_used.reason().expect("not published").contains("per process"));
        let i915 = read(Some(INTEL), &[("drivers/i915", ""), ("drm/card1/lmem_total_bytes", "9000\n")]);
        assert_eq!(i915.memory_total, Reading::known(9000, "sysfs i915"));
        assert!(i915.temperature.reason().expect("integrated").starts_with("no sensor in `"));
        let bare = read(Some(INTEL), &[("drivers/xe", ""), ("tile0/gt0/freq0/cur_freq", "300\n")]);
        assert!(bare.memory_total.reason().expect("not published").contains("tile0/physical_vram_size_bytes"));
        let other = read(Some(INTEL), &[("drivers/vfio-pci", "")]);
        assert!(other.memory_total.reason().expect("not ours").contains("`vfio-pci`"));
    }

    #[test]
    fn without_nvml_the_sensor_of_the_open_driver_is_left() {
        let readings = read(Some(NVIDIA), &[("hwmon/hwmon1/temp1_input", "40000\n")]);
        assert_eq!(readings.memory_total, Reading::unavailable("NVML is not in use"));
        assert_eq!(readings.temperature, Reading::known(40.0, "sysfs nouveau"));
        let none = read(Some(NVIDIA), &[]).temperature;
        assert!(none.reason().expect("nothing there").starts_with("NVML is not in use; no sensor in `"));
    }

    #[test]
    fn other_and_unknown_devices_are_named() {
        let software = Probes::with_root("/nowhere").read(None, Some(0x10005));
        assert_eq!(software, DeviceReadings::unavailable("a software device"));
        assert!(read(Some(0x1af4), &[]).utilization.reason().expect("virtio").contains("0x1af4"));
        assert!(read(None, &[]).utilization.reason().expect("no vendor").contains("vendor"));
    }
}
