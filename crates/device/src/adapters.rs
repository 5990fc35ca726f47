//! Devices that wgpu reaches: Vulkan, Metal, DX12.

use burn::tensor::Device;
use burn::tensor::wgpu::wgpu;
use burn::tensor::wgpu::{WgpuSetup, wgpu::DeviceType};

use crate::inventory::{Backend, DeviceInfo, Handle, Inventory, Kind};
use crate::open::DriverError;
use crate::reading::Reading;
use crate::topology::PciAddress;

/// An adapter that was seen, not yet opened.
#[derive(Debug)]
pub(crate) struct Adapter {
    instance: wgpu::Instance,
    adapter: wgpu::Adapter,
}

impl Inventory {
    /// Adds what wgpu sees: real devices first, software devices last, otherwise in the order of the drivers.
    pub(crate) fn look_at_adapters(&mut self) {
        let backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = backends;
        // Validation layers, if any are installed, are for debugging drivers.
        descriptor.flags = wgpu::InstanceFlags::empty();
        let instance = wgpu::Instance::new(descriptor);
        let mut found: Vec<(DeviceInfo, Adapter)> = wait(instance.enumerate_adapters(backends))
            .into_iter()
            .filter_map(|adapter| {
                let info = describe(&adapter)?;
                Some((info, Adapter { instance: instance.clone(), adapter }))
            })
            .collect();
        found.sort_by_key(|(info, _)| info.kind);
        // One card under two back ends is one device.
        let mut seen: Vec<PciAddress> = Vec::new();
        for (mut info, adapter) in found {
            if let Some(pci) = &info.pci {
                if seen.contains(pci) {
                    continue;
                }
                seen.push(pci.clone());
            }
            info.index = Some(self.gpus.len());
            self.gpus.push(info);
            self.handles.push(Handle::Adapter(adapter));
        }
        if self.gpus.is_empty() {
            self.notes.push("no Vulkan, Metal or DX12 device was found (is a driver installed?)".to_owned());
        }
    }
}

fn describe(adapter: &wgpu::Adapter) -> Option<DeviceInfo> {
    let info = adapter.get_info();
    let backend = match info.backend {
        wgpu::Backend::Vulkan => Backend::Vulkan,
        wgpu::Backend::Metal => Backend::Metal,
        wgpu::Backend::Dx12 => Backend::Dx12,
        _ => return None,
    };
    let kind = match info.device_type {
        DeviceType::DiscreteGpu => Kind::Discrete,
        DeviceType::IntegratedGpu => Kind::Integrated,
        DeviceType::VirtualGpu | DeviceType::Other => Kind::Virtual,
        DeviceType::Cpu => Kind::Software,
    };
    Some(DeviceInfo {
        index: None,
        backend,
        kind,
        name: info.name,
        driver: [info.driver, info.driver_info].join(" ").trim().to_owned(),
        memory: memory(adapter),
        pci: info.device_pci_bus_id.parse().ok(),
        vendor: (info.vendor != 0).then_some(info.vendor),
    })
}

/// The device's own memory, as Vulkan's heaps say it.
#[cfg(not(target_os = "macos"))]
fn memory(adapter: &wgpu::Adapter) -> Reading<u64> {
    // SAFETY: the handle is only read from, and not kept.
    let Some(adapter) = (unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }) else {
        return Reading::unavailable("this back end does not report it");
    };
    // SAFETY: instance and physical device are alive as long as the adapter is.
    let properties = unsafe {
        adapter.shared_instance().raw_instance().get_physical_device_memory_properties(adapter.raw_physical_device())
    };
    let heaps = properties.memory_heaps.iter().take(properties.memory_heap_count as usize);
    // Bit 0 of a heap's flags is DEVICE_LOCAL.
    let local: u64 = heaps.filter(|heap| heap.flags.as_raw() & 1 != 0).map(|heap| heap.size).sum();
    if local > 0 { Reading::known(local, "Vulkan heaps") } else { Reading::unavailable("Vulkan lists no device heap") }
}

#[cfg(target_os = "macos")]
fn memory(_: &wgpu::Adapter) -> Reading<u64> {
    Reading::unavailable("Metal shares the memory of the host")
}

/// Opens an adapter and registers it with Burn.
pub(crate) fn open(adapter: &Adapter) -> Result<Device, DriverError> {
    let Adapter { instance, adapter } = adapter;
    let unwanted = wgpu::Features::MAPPABLE_PRIMARY_BUFFERS | wgpu::Features::all_experimental_mask();
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("tandem"),
        required_features: adapter.features().difference(unwanted),
        required_limits: adapter.limits(),
        memory_hints: wgpu::MemoryHints::MemoryUsage,
        ..wgpu::DeviceDescriptor::default()
    };
    let (device, queue) = wait(adapter.request_device(&descriptor))?;
    let setup = WgpuSetup {
        instance: instance.clone(),
        adapter: adapter.clone(),
        device,
        queue,
        backend: adapter.get_info().backend,
    };
    Ok(Device::wgpu_options().setup(setup).init()?)
}

/// Outside of a browser wgpu's futures are ready at once, or after a callback of the driver.
fn wait<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::yield_now(),
        }
    }
}
