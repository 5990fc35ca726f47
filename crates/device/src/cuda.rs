//! Devices that CUDA reaches. Checked by the compiler only: no machine with CUDA has built or run it yet.

use burn::tensor::{Device, DeviceType};

use crate::inventory::{Backend, DeviceInfo, Handle, Inventory, Kind};

/// NVIDIA's PCI vendor id.
const NVIDIA: u32 = 0x10de;

impl Inventory {
    /// Adds what CUDA sees. A card that Vulkan sees too is listed twice, and refused for both lanes at once.
    pub(crate) fn look_at_cuda(&mut self) {
        let probes = crate::probes::Probes::new();
        for (number, device) in Device::enumerate(DeviceType::Cuda).into_iter().enumerate() {
            let card = probes.nvidia_card(number as u32);
            self.gpus.push(DeviceInfo {
                index: Some(self.gpus.len()),
                backend: Backend::Cuda,
                kind: Kind::Discrete,
                name: card.as_ref().map_or_else(|_| format!("CUDA device {number}"), |card| card.0.clone()),
                driver: "CUDA".to_owned(),
                memory: probes.read(card.as_ref().ok().map(|card| &card.1), Some(NVIDIA)).memory_total,
                pci: card.ok().map(|card| card.1),
                vendor: Some(NVIDIA),
            });
            self.handles.push(Handle::Cuda(device));
        }
    }
}
