//! The links between NVIDIA's GPUs, as `nvidia-smi topo -m` prints them.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Link;
use crate::reading::Reading;

/// A working driver answers in well under a second, one that hangs may never answer.
const NVIDIA_SMI_LIMIT: Duration = Duration::from_secs(5);
/// Sixteen GPUs with their network cards take 4 kB.
const NVIDIA_SMI_BYTES: u64 = 1 << 20;

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

#[cfg(test)]
mod tests {
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
}
