//! From a placement to open devices. Only the lanes' devices are opened, each once in the life of the process.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use burn::tensor::Device;

use crate::inventory::{Backend, DeviceInfo, Inventory};
use crate::placement::Placement;

/// What is open, by index, and what the process is laid out for.
static OPEN: Mutex<State> = Mutex::new(State { devices: BTreeMap::new(), lanes: None });

struct State {
    devices: BTreeMap<usize, Device>,
    lanes: Option<(Option<usize>, Option<usize>)>,
}

/// What a driver says when it refuses.
pub type DriverError = Box<dyn Error + Send + Sync>;

/// Why a device cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The driver of this device refused.
    Refused(String, DriverError),
    /// This device belongs to a back end that is not built in.
    NotBuiltIn(String),
    /// The process is laid out already, for other devices.
    AlreadyConfigured,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Refused(device, error) => write!(f, "{device} cannot be opened: {error}"),
            OpenError::NotBuiltIn(device) => {
                write!(f, "{device} cannot be opened: its back end is not built into this program")
            }
            OpenError::AlreadyConfigured => {
                write!(f, "the lanes of this process are laid out already, for other devices")
            }
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            OpenError::Refused(_, error) => Some(&**error),
            _ => None,
        }
    }
}

/// The devices of a run, open.
#[derive(Clone, Debug)]
pub struct Lanes {
    /// Who does what.
    pub placement: Placement,
    /// Prepares batches.
    pub data: Device,
    /// Trains.
    pub model: Device,
}

impl Lanes {
    /// Opens the devices of a placement. A process has one layout: asking for it again gives the same devices,
    /// asking for another is an error.
    pub fn open(inventory: &Inventory, placement: Placement) -> Result<Lanes, OpenError> {
        let wanted = (placement.data.physical, placement.model.physical);
        {
            let mut state = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
            if *state.lanes.get_or_insert(wanted) != wanted {
                return Err(OpenError::AlreadyConfigured);
            }
        }
        Lanes::open_also(inventory, placement)
    }

    /// Opens the devices of another layout beside the first: to measure what it would give, not to train.
    pub fn open_also(inventory: &Inventory, placement: Placement) -> Result<Lanes, OpenError> {
        let data = inventory.open(inventory.device(placement.data.physical))?;
        let model = inventory.open(inventory.device(placement.model.physical))?;
        Ok(Lanes { placement, data, model })
    }

    /// Both lanes on the CPU, for tests and tools.
    pub fn cpu() -> Lanes {
        let inventory = Inventory::scan_cpu();
        let placement = crate::placement::resolve(&crate::placement::Request::default(), &[], &inventory.cpu)
            .expect("the CPU is always there");
        Lanes { placement, data: Device::flex(), model: Device::flex() }
    }
}

impl Inventory {
    /// Opens a device, or hands out the one that is open.
    pub fn open(&self, device: &DeviceInfo) -> Result<Device, OpenError> {
        let Some(index) = device.index.filter(|_| device.backend != Backend::Simulated) else {
            return Ok(Device::flex());
        };
        let mut state = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = state.devices.get(&index) {
            return Ok(device.clone());
        }
        let opened = self.open_new(index, device)?;
        state.devices.insert(index, opened.clone());
        Ok(opened)
    }

    fn open_new(&self, index: usize, device: &DeviceInfo) -> Result<Device, OpenError> {
        match self.handles.get(index) {
            #[cfg(feature = "wgpu")]
            Some(crate::inventory::Handle::Adapter(adapter)) => {
                crate::adapters::open(adapter).map_err(|error| OpenError::Refused(device.label(), error))
            }
            #[cfg(feature = "cuda")]
            Some(crate::inventory::Handle::Cuda(device)) => Ok(device.clone()),
            _ => Err(OpenError::NotBuiltIn(device.label())),
        }
    }

    /// The indices of the devices that this process has open.
    pub fn opened() -> Vec<usize> {
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).devices.keys().copied().collect()
    }
}
