//! How two devices are connected: as `nvidia-smi topo -m` says, or read off the PCI tree in sysfs for every vendor.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};

use crate::reading::Reading;

/// A working driver answers in well under a second, one that hangs may never answer.
const NVIDIA_SMI_LIMIT: Duration = Duration::from_secs(5);
/// Sixteen GPUs with their network cards take 4 kB.
const NVIDIA_SMI_BYTES: u64 = 1 << 20;

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

/// The links between the GPUs of a machine, by their `nvidia-smi` numbers. Symmetric, with `X` only on the diagonal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Matrix {
    gpus: Vec<u32>,
    /// Row by row, in the order of `gpus`.
    links: Vec<Vec<Link>>,
}

impl Matrix {
    /// The numbers of the GPUs.
    pub fn gpus(&self) -> &[u32] {
        &self.gpus
    }

    /// How two GPUs are connected, if both exist.
    pub fn link(&self, a: u32, b: u32) -> Option<Link> {
        let place = |gpu| self.gpus.iter().position(|&other| other == gpu);
        Some(self.links[place(a)?][place(b)?])
    }
}

/// Why a text is not a [`Matrix`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologyError {
    /// No line begins with the name of a GPU.
    NoHeader,
    /// A line says what cannot be.
    Damaged {
        /// Which line, counted from one.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
}

impl TopologyError {
    fn damaged<T>(line: usize, what: String) -> Result<T, TopologyError> {
        Err(TopologyError::Damaged { line, what })
    }
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopologyError::NoHeader => write!(f, "no topology matrix, no line begins with `GPU0`"),
            TopologyError::Damaged { line, what } => write!(f, "line {line}: {what}"),
        }
    }
}

impl std::error::Error for TopologyError {}

/// Reads what `nvidia-smi topo -m` prints. Network cards, affinities and the legend are skipped.
pub fn parse_nvidia_topology(text: &str) -> Result<Matrix, TopologyError> {
    let text = without_escapes(text);
    let mut lines = (1..).zip(text.lines()).filter_map(|(line, text)| {
        let mut words = text.split_whitespace();
        Some((line, gpu_number(words.next()?)?, words))
    });
    let (header, first, words) = lines.next().ok_or(TopologyError::NoHeader)?;
    // Network cards have names of all kinds. `CPU Affinity`, `NUMA Affinity` and `GPU NUMA ID` come last.
    let devices = words.take_while(|word| !["CPU", "NUMA", "GPU"].contains(word)).map(gpu_number);
    let mut columns = BTreeMap::new();
    for (place, gpu) in std::iter::once(Some(first)).chain(devices).enumerate() {
        if let Some(gpu) = gpu
            && columns.insert(gpu, place).is_some()
        {
            return TopologyError::damaged(header, format!("`GPU{gpu}` has two columns"));
        }
    }

    let mut rows = BTreeMap::new();
    for (line, gpu, words) in lines {
        if !columns.contains_key(&gpu) {
            return TopologyError::damaged(line, format!("`GPU{gpu}` has a row but no column"));
        }
        let words: Vec<&str> = words.collect();
        let cell = |(&other, &place): (&u32, &usize)| {
            let found = words.get(place).copied().unwrap_or_default();
            match found.parse() {
                Ok(link) if (link == Link::Same) == (gpu == other) => Ok(link),
                _ => TopologyError::damaged(line, format!("`{found}` is no link between GPU{gpu} and GPU{other}")),
            }
        };
        let links: Vec<Link> = columns.iter().map(cell).collect::<Result<_, _>>()?;
        if rows.insert(gpu, (line, links)).is_some() {
            return TopologyError::damaged(line, format!("`GPU{gpu}` has two rows"));
        }
    }
    if let Some(&gpu) = columns.keys().find(|gpu| !rows.contains_key(gpu)) {
        return TopologyError::damaged(header, format!("`GPU{gpu}` has a column but no row"));
    }

    let gpus: Vec<u32> = columns.into_keys().collect();
    let (places, links): (Vec<usize>, Vec<Vec<Link>>) = rows.into_values().unzip();
    for a in 0..gpus.len() {
        for b in 0..a {
            let (there, back) = (links[a][b], links[b][a]);
            if there != back {
                let what = format!("GPU{} to GPU{} is `{there}`, but back it is `{back}`", gpus[a], gpus[b]);
                return TopologyError::damaged(places[a], what);
            }
        }
    }
    Ok(Matrix { gpus, links })
}

fn gpu_number(word: &str) -> Option<u32> {
    let digits = word.strip_prefix("GPU")?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// `nvidia-smi` underlines the header.
fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        if next != '\x1b' {
            plain.push(next);
        } else if rest.as_str().starts_with('[') {
            // `ESC [`, numbers, one last character.
            rest.next();
            rest.find(|last| ('@'..='~').contains(last));
        }
    }
    plain
}

/// Asks `nvidia-smi`, for five seconds at most.
pub fn nvidia_smi_topology() -> Reading<Matrix> {
    let mut command = Command::new("nvidia-smi");
    command.args(["topo", "-m"]);
    match output_within(command, NVIDIA_SMI_LIMIT) {
        Ok(text) => match parse_nvidia_topology(&text) {
            Ok(matrix) => Reading::known(matrix, "nvidia-smi topo -m"),
            Err(error) => Reading::unavailable(format!("nvidia-smi topo -m: {error}")),
        },
        Err(why) => Reading::unavailable(why),
    }
}

fn output_within(mut command: Command, limit: Duration) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let deadline = Instant::now() + limit;
    let mut child = match command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(format!("{name} is not installed")),
        Err(error) => return Err(format!("{name} does not start: {error}")),
    };
    let stdout = child.stdout.take().expect("was asked for");
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = stdout.take(NVIDIA_SMI_BYTES).read_to_end(&mut bytes);
        // Nobody listens any more after the time limit.
        let _ = sender.send(read.map(|_| bytes));
    });
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                // Killed or not: a process inside a hung driver does not end, so nobody waits for it here.
                let _ = child.kill();
                thread::spawn(move || child.wait());
                return Err(format!("{name} did not answer within {limit:?}"));
            }
            Err(error) => return Err(format!("{name} is lost: {error}")),
        }
    };
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(100));
    let bytes = match receiver.recv_timeout(left) {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => return Err(format!("{name}: {error}")),
        Err(_) => return Err(format!("{name} did not end its answer within {limit:?}")),
    };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if status.success() {
        Ok(text)
    } else {
        Err(format!("{name} failed ({status}): {}", text.trim().lines().next().unwrap_or("no message")))
    }
}

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

    const LEGEND: &str = "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP \
        interconnect between NUMA nodes (e.g., QPI/UPI)\n  NV#  = Connection traversing a bonded set of # NVLinks\n\n\
        NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n";

    fn desktop() -> String {
        let rows = "\t\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n\
             GPU0\t X \tPHB\t0-63\t0\t\tN/A\nGPU1\tPHB\t X \t0-63\t0\t\tN/A\n";
        rows.to_owned() + LEGEND
    }

    fn dgx() -> String {
        let mut text = "\t".to_owned();
        (0..8).for_each(|gpu| text += &format!("GPU{gpu}\t"));
        text += "NIC0\tNIC1\tmlx5_2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n";
        for row in 0..8 {
            text += &format!("GPU{row}\t");
            (0..8).for_each(|column| text += if row == column { " X \t" } else { "NV18\t" });
            text += "PXB\tNODE\tSYS\t0-55,112-167\t0\t\tN/A\n";
        }
        text += "NIC0\tPXB\tPXB\tNODE\tNODE\tSYS\tSYS\tSYS\tSYS\t X \tNODE\tSYS\t\t\t\t\n";
        text + LEGEND
    }

    fn two_sockets() -> String {
        let rows = "        GPU0    GPU1    GPU2    GPU3    mlx4_0  CPU Affinity\n\
             GPU0     X      PIX     NODE    SYS     PHB     0-9,20-29\n\
             GPU1    PIX      X      NODE    SYS     PHB     0-9,20-29  \n\
             GPU2    NODE    NODE     X      SOC     PHB     0-9,20-29\n\
             GPU3    SYS     SYS     SYS      X      SYS     10-19,30-39\n\
             mlx4_0  PHB     PHB     PHB     SYS      X \n";
        rows.to_owned() + LEGEND
    }

    #[test]
    fn the_matrices_of_real_machines_are_read() {
        let desktop = parse_nvidia_topology(&desktop()).expect("fine");
        assert_eq!((desktop.gpus(), desktop.link(0, 1)), (&[0, 1][..], Some(Link::Phb)));
        assert_eq!((desktop.link(1, 1), desktop.link(0, 2)), (Some(Link::Same), None));
        let dgx = parse_nvidia_topology(&dgx()).expect("fine");
        assert_eq!((dgx.gpus().len(), dgx.link(7, 0)), (8, Some(Link::NvLink(18))));
        let sockets = parse_nvidia_topology(&two_sockets().replace('\n', "\r\n")).expect("fine");
        let links = [(0, 1), (2, 0), (2, 3)].map(|(a, b)| sockets.link(a, b).expect("there").to_string());
        assert_eq!(links, ["PIX", "NODE", "SYS"]);
        assert_eq!(parse_nvidia_topology("\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n").expect("one").gpus(), [0]);
    }

    #[test]
    fn a_damaged_matrix_is_refused_with_its_line() {
        let error = |text: &str| parse_nvidia_topology(text).expect_err("damaged").to_string();
        assert!(error("NVIDIA-SMI has failed because it couldn't communicate").contains("no topology matrix"));
        let sample = two_sockets();
        for (old, new, says) in [
            ("PIX      X ", "PXB      X ", "line 3: GPU1 to GPU0 is `PXB`, but back it is `PIX`"),
            ("GPU2    NODE    NODE", "GPU2    NODE    ERR!", "line 4: `ERR!` is no link between GPU2 and GPU1"),
            ("GPU0     X ", "GPU0     PIX", "line 2: `PIX` is no link between GPU0 and GPU0"),
            (
                "SYS     SYS     SYS      X      SYS     10-19,30-39",
                "SYS",
                "line 5: `` is no link between GPU3 and GPU1",
            ),
            ("GPU3    SYS", "GPU9    SYS", "line 5: `GPU9` has a row but no column"),
            ("GPU3    SYS", "GPU2    SYS", "line 5: `SYS` is no link between GPU2 and GPU2"),
            ("GPU2    NODE", "mlx4_1  NODE", "line 1: `GPU2` has a column but no row"),
            ("GPU0    GPU1    GPU2", "GPU0    GPU1    GPU1", "line 1: `GPU1` has two columns"),
        ] {
            assert!(sample.contains(old), "{old}");
            assert_eq!(error(&sample.replace(old, new)), says);
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic_or_break_symmetry() {
        let check = |text: &str| {
            if let Ok(matrix) = parse_nvidia_topology(text) {
                for &a in matrix.gpus() {
                    matrix.gpus().iter().for_each(|&b| assert_eq!(matrix.link(a, b), matrix.link(b, a)));
                }
            }
        };
        for sample in [desktop(), dgx(), two_sockets()] {
            for end in 0..sample.len() {
                let (head, tail) = sample.split_at(end);
                check(head);
                check(tail);
                for other in ["", "\x1b", "\x1b[", "\n", "\t", "GPU", "GPU99999999999", "X", "NV+1", "é", "\0"] {
                    check(&format!("{head}{other}{}", &tail[1..]));
                }
            }
        }
    }

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

    #[cfg(unix)]
    #[test]
    fn a_command_that_hangs_fails_or_is_missing_is_reported() {
        let shell = |script: &str, limit| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            output_within(command, limit)
        };
        let long = Duration::from_secs(60);
        assert_eq!(shell("echo GPU0", long), Ok("GPU0\n".to_owned()));
        assert_eq!(shell("echo no driver; exit 9", long), Err("sh failed (exit status: 9): no driver".to_owned()));
        let start = Instant::now();
        assert_eq!(shell("exec sleep 50", Duration::ZERO), Err("sh did not answer within 0ns".to_owned()));
        assert!(start.elapsed() < Duration::from_secs(40));
        let missing = output_within(Command::new("no-such-command-here"), long);
        assert_eq!(missing, Err("no-such-command-here is not installed".to_owned()));
    }

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
