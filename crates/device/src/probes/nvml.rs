//! NVIDIA's own library, loaded when the program runs: a machine without it only has no readings.

use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::DeviceReadings;
use crate::reading::Reading;
use crate::topology::PciAddress;

const SOURCE: &str = "NVML";

/// NVML, or why there is none.
pub(super) struct Library(Result<Nvml, String>);

impl Library {
    pub(super) fn load() -> Library {
        Library(Nvml::init().map_err(|error| why(&error)))
    }

    pub(super) fn none(why: &str) -> Library {
        Library(Err(why.to_owned()))
    }

    pub(super) fn read(&self, pci: &PciAddress) -> DeviceReadings {
        let device = match self.device(pci) {
            Ok(device) => device,
            Err(why) => return DeviceReadings::unavailable(&why),
        };
        let memory = reading(device.memory_info());
        DeviceReadings {
            memory_total: memory.clone().map(|memory| memory.total),
            memory_used: memory.clone().map(|memory| memory.used),
            memory_free: memory.map(|memory| memory.free),
            utilization: reading(device.utilization_rates()).map(|rates| rates.gpu.into()),
            temperature: reading(device.temperature(TemperatureSensor::Gpu)).map(f64::from),
        }
    }

    pub(super) fn number(&self, pci: &PciAddress) -> Reading<u32> {
        self.device(pci).map_or_else(Reading::unavailable, |device| reading(device.index()))
    }

    pub(super) fn card(&self, number: u32) -> Result<(String, PciAddress), String> {
        let nvml = self.0.as_ref().map_err(Clone::clone)?;
        let device = nvml.device_by_index(number).map_err(|error| why(&error))?;
        let place = device.pci_info().map_err(|error| why(&error))?.bus_id;
        let address = place.parse().map_err(|_| format!("{SOURCE}: `{place}` is not an address"))?;
        Ok((device.name().map_err(|error| why(&error))?, address))
    }

    fn device(&self, pci: &PciAddress) -> Result<Device<'_>, String> {
        let nvml = self.0.as_ref().map_err(Clone::clone)?;
        // As NVML itself writes it; it lists function 0 only.
        let name = format!("{:08X}:{:02X}:{:02X}.0", pci.domain, pci.bus, pci.device);
        nvml.device_by_pci_bus_id(name).map_err(|error| format!("{} ({pci})", why(&error)))
    }
}

fn reading<T>(result: Result<T, NvmlError>) -> Reading<T> {
    result.map_or_else(|error| Reading::unavailable(why(&error)), |value| Reading::known(value, SOURCE))
}

fn why(error: &NvmlError) -> String {
    format!("{SOURCE}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_or_device_is_a_reason_and_no_panic() {
        let pci: PciAddress = "ffff:ff:1f.0".parse().expect("valid");
        for (library, says) in [(Library::none("not loaded"), "not loaded"), (Library::load(), SOURCE)] {
            let readings = library.read(&pci);
            assert!(readings.memory_free.reason().expect("no such device").contains(says), "{readings:?}");
            assert!(library.number(&pci).reason().is_some());
            assert!(library.card(99).is_err());
        }
    }
}
