//! The links between devices of any vendor, read off the PCI tree.

use std::path::{Path, PathBuf};

use super::{Link, PciAddress, PciAddressError};
use crate::reading::Reading;

/// Reads off the PCI tree below `root` (`/sys`) how two devices are connected, for any vendor.
///
/// A device's real path is `.../pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:08.0/0000:3d:00.0`: host bridge, root
/// port, the upstream and a downstream port of a switch, the device. What two paths share decides:
///
/// | shared | link |
/// |---|---|
/// | everything | `X` |
/// | all but the device, or all but the device and one port before it: one switch or one root port | `PIX` |
/// | at least the root port: several switches | `PXB` |
/// | the host bridge only | `PHB` |
/// | not the host bridge, but the NUMA node (or there is only one) | `NODE` |
/// | nothing | `SYS` |
///
/// NCCL drew the same lines from the same paths in 2019 (`pciDistance`). NVLink is not in the PCI tree, so never seen.
pub fn link_from_sysfs(root: &Path, a: &PciAddress, b: &PciAddress) -> Reading<Link> {
    sysfs_link(root, a, b).map_or_else(Reading::unavailable, |link| Reading::known(link, "sysfs"))
}

fn sysfs_link(root: &Path, a: &PciAddress, b: &PciAddress) -> Result<Link, String> {
    let (path_a, path_b) = (real_path(root, a)?, real_path(root, b)?);
    let ((host_a, chain_a), (host_b, chain_b)) = (pci_chain(&path_a)?, pci_chain(&path_b)?);
    if host_a == host_b {
        let shared = chain_a.iter().zip(&chain_b).take_while(|(a, b)| a == b).count();
        let own = chain_a.len().max(chain_b.len()) - shared;
        return Ok(match (shared, own) {
            (_, 0) => Link::Same,
            (0, _) => Link::Phb,
            (_, 1 | 2) => Link::Pix,
            _ => Link::Pxb,
        });
    }
    match (numa_node(&path_a), numa_node(&path_b)) {
        (Some(a), Some(b)) if a == b => Ok(Link::Node),
        (Some(_), Some(_)) => Ok(Link::Sys),
        _ if numa_nodes(root) <= 1 => Ok(Link::Node),
        _ => Err(format!("the kernel does not know the NUMA nodes of {a} and {b}")),
    }
}

fn real_path(root: &Path, address: &PciAddress) -> Result<PathBuf, String> {
    let path = root.join("bus/pci/devices").join(address.to_string());
    path.canonicalize().map_err(|error| format!("cannot read `{}`: {error}", path.display()))
}

/// The path of the host bridge (`pciDDDD:BB`) and the addresses below it, the device last.
fn pci_chain(path: &Path) -> Result<(&Path, Vec<PciAddress>), String> {
    let is_host = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("pci"));
        name.is_some_and(|name| name.contains(':'))
    };
    let host = path.ancestors().find(|path| is_host(path));
    let host = host.ok_or_else(|| format!("`{}` is not below a PCI host bridge", path.display()))?;
    let below = path.strip_prefix(host).expect("an ancestor of it");
    let chain =
        below.iter().map(|name| name.to_string_lossy().parse().map_err(|error: PciAddressError| error.to_string()));
    Ok((host, chain.collect::<Result<_, _>>()?))
}

/// -1 is what the kernel says when the firmware told it nothing.
fn numa_node(device: &Path) -> Option<u32> {
    std::fs::read_to_string(device.join("numa_node")).ok()?.trim().parse().ok()
}

fn numa_nodes(root: &Path) -> usize {
    let is_node = |name: &str| name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok());
    let entries = std::fs::read_dir(root.join("devices/system/node")).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_str().is_some_and(is_node)).count()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A sysfs with one device at the end of each path, on that NUMA node.
    #[cfg(unix)]
    fn sysfs(devices: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary folder");
        let bus = root.path().join("bus/pci/devices");
        fs::create_dir_all(&bus).expect("made");
        for (path, node) in devices {
            let real = root.path().join("devices").join(path);
            fs::create_dir_all(&real).expect("made");
            fs::write(real.join("numa_node"), format!("{node}\n")).expect("written");
            let name = real.file_name().expect("a device");
            std::os::unix::fs::symlink(&real, bus.join(name)).expect("linked");
        }
        root
    }

    #[cfg(unix)]
    #[test]
    fn the_pci_tree_gives_every_class() {
        let root = sysfs(&[
            // One switch with two devices, and a second switch behind it.
            ("pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:08.0/0000:3d:00.0", "0"),
            ("pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:10.0/0000:3e:00.0", "0"),
            ("pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:14.0/0000:3f:00.0/0000:40:00.0/0000:41:00.0", "0"),
            // Two functions of one card, another root port, another host bridge, another node, no node.
            ("pci0000:3a/0000:3a:02.0/0000:50:00.0", "0"),
            ("pci0000:3a/0000:3a:02.0/0000:50:00.1", "0"),
            ("pci0000:5d/0000:5d:00.0/0000:5e:00.0", "0"),
            ("pci0000:ae/0000:ae:00.0/0000:af:00.0", "1"),
            ("pci0000:c0/0000:c0:00.0/0000:c1:00.0", "-1"),
            ("virtual/0000:d0:00.0", "0"),
        ]);
        let link = |a: &str, b: &str| {
            let [a, b] = [a, b].map(|text| text.parse::<PciAddress>().expect("valid"));
            let (there, back) = (link_from_sysfs(root.path(), &a, &b), link_from_sysfs(root.path(), &b, &a));
            assert_eq!(there.value(), back.value());
            there
        };
        for (a, b, expected) in [
            ("3d:00.0", "3d:00.0", Link::Same),
            ("3d:00.0", "3e:00.0", Link::Pix),
            ("50:00.0", "50:00.1", Link::Pix),
            ("3d:00.0", "41:00.0", Link::Pxb),
            ("3d:00.0", "50:00.0", Link::Phb),
            ("3d:00.0", "5e:00.0", Link::Node),
            ("3d:00.0", "af:00.0", Link::Sys),
            // No node is known and the machine has one at most.
            ("3d:00.0", "c1:00.0", Link::Node),
        ] {
            assert_eq!(link(a, b), Reading::known(expected, "sysfs"), "{a} {b}");
        }
        let why = |reading: Reading<Link>| reading.reason().expect("unavailable").to_owned();
        assert!(why(link("3d:00.0", "99:00.0")).starts_with("cannot read `"));
        assert!(why(link("3d:00.0", "d0:00.0")).contains("is not below a PCI host bridge"));
        for node in ["node0", "node1", "power"] {
            fs::create_dir_all(root.path().join("devices/system/node").join(node)).expect("made");
        }
        assert!(why(link("3d:00.0", "c1:00.0")).contains("does not know the NUMA nodes"));
    }
}
