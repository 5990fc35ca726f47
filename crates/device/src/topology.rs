//! How two devices are connected: as `nvidia-smi topo -m` says, or read off the PCI tree in sysfs for every vendor.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | here | [`PciAddress`], [`Link`]: what is asked for, and the answer |
//! | `nvidia.rs` | the matrix of `nvidia-smi` |
//! | `sysfs.rs` | the PCI tree |

mod nvidia;
mod sysfs;

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

pub use nvidia::{Matrix, TopologyError, nvidia_smi_topology, parse_nvidia_topology};
pub use sysfs::link_from_sysfs;

/// Where a device is on the PCI bus, written as in sysfs: `0000:3b:00.0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Domain (segment).
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, at most 31.
    pub device: u8,
    /// Function, at most 7.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl Serialize for PciAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Why a text is not a [`PciAddress`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciAddressError(String);

impl fmt::Display for PciAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a PCI address, write for example `0000:3b:00.0`", self.0)
    }
}

impl std::error::Error for PciAddressError {}

impl FromStr for PciAddress {
    type Err = PciAddressError;

    /// NVML's eight-digit domain and upper case are fine, no domain is domain 0.
    fn from_str(text: &str) -> Result<PciAddress, PciAddressError> {
        let hex = |digits: &str, longest: usize, most: u32| {
            let plain = digits.len() <= longest && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            plain.then(|| u32::from_str_radix(digits, 16).ok())?.filter(|&number| number <= most)
        };
        let parse = || {
            let (rest, function) = text.trim().rsplit_once('.')?;
            let (rest, device) = rest.rsplit_once(':')?;
            let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
            Some(PciAddress {
                domain: hex(domain, 8, u32::MAX)?,
                bus: hex(bus, 2, 0xff)? as u8,
                device: hex(device, 2, 0x1f)? as u8,
                function: hex(function, 1, 7)? as u8,
            })
        };
        parse().ok_or_else(|| PciAddressError(text.to_owned()))
    }
}

/// What data between two devices passes, nearest first. Names and meanings are those of `nvidia-smi topo -m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// `X`: the same device.
    Same,
    /// `NV#`: this many bonded NVLinks.
    NvLink(u32),
    /// `PIX`: at most a single PCIe bridge (one switch).
    Pix,
    /// `PXB`: several PCIe bridges, but not the host bridge.
    Pxb,
    /// `PHB`: a PCIe host bridge, usually the CPU.
    Phb,
    /// `NODE`: the connection between host bridges of one NUMA node.
    Node,
    /// `SYS`: the connection between NUMA nodes.
    Sys,
}

impl Link {
    /// Whether it leaves the host bridge and so earns a warning.
    pub fn is_far(self) -> bool {
        matches!(self, Link::Node | Link::Sys)
    }

    /// What it means, in one line.
    pub fn meaning(self) -> &'static str {
        match self {
            Link::Same => "the same device",
            Link::NvLink(_) => "NVLink",
            Link::Pix => "at most one PCIe switch",
            Link::Pxb => "several PCIe switches, without the host bridge",
            Link::Phb => "the PCIe host bridge (the CPU)",
            Link::Node => "several host bridges of one NUMA node",
            Link::Sys => "the connection between NUMA nodes (between CPU sockets)",
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Link::Same => f.pad("X"),
            Link::NvLink(links) => f.pad(&format!("NV{links}")),
            Link::Pix => f.pad("PIX"),
            Link::Pxb => f.pad("PXB"),
            Link::Phb => f.pad("PHB"),
            Link::Node => f.pad("NODE"),
            Link::Sys => f.pad("SYS"),
        }
    }
}

impl Serialize for Link {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Why a text is not a [`Link`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkError(String);

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a link, valid are X, NV#, PIX, PXB, PHB, NODE, SYS", self.0)
    }
}

impl std::error::Error for LinkError {}

impl FromStr for Link {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Link, LinkError> {
        let bonded = |digits: &str| {
            let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| digits.parse().ok())?.filter(|&links| links > 0)
        };
        Ok(match text {
            "X" => Link::Same,
            "PIX" => Link::Pix,
            "PXB" => Link::Pxb,
            "PHB" => Link::Phb,
            "NODE" => Link::Node,
            // What drivers before 2017 wrote for SYS.
            "SYS" | "SOC" => Link::Sys,
            _ => Link::NvLink(text.strip_prefix("NV").and_then(bonded).ok_or_else(|| LinkError(text.to_owned()))?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_addresses_are_written_as_they_are_read() {
        let all = [Link::Same, Link::NvLink(4), Link::Pix, Link::Pxb, Link::Phb, Link::Node, Link::Sys];
        assert_eq!(all.map(|link| link.to_string()), ["X", "NV4", "PIX", "PXB", "PHB", "NODE", "SYS"]);
        assert_eq!(all.map(|link| link.to_string().parse()), all.map(Ok));
        assert_eq!(all.map(Link::is_far), [false, false, false, false, false, true, true]);
        assert!(["", "NV", "NV0", "NV+4", "pix", "N/A"].iter().all(|text| text.parse::<Link>().is_err()));

        for text in ["0000:3b:00.0", "00000000:3B:00.0", "3b:00.0", " 0:3b:0.0\n"] {
            assert_eq!(text.parse::<PciAddress>().expect("valid").to_string(), "0000:3b:00.0");
        }
        assert_eq!("10000:e1:1f.7".parse::<PciAddress>().expect("valid").to_string(), "10000:e1:1f.7");
        for text in
            ["", "3b", "3b:00", "3b:20.0", "3b:00.8", "100:00.0", "+b:00.0", "1:2:3:4.0", "000000000:3b:00.0", "::."]
        {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }
}
