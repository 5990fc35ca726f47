//! What the kernel says in `/sys` and `/proc`.
//!
//! | driver | memory | in use | busy | temperature |
//! |---|---|---|---|---|
//! | `amdgpu` | yes (of an APU only its reserved part) | yes | yes | edge, or junction where there is no edge sensor |
//! | `i915` | with Intel's own build of the driver | no | no | package, Linux 6.12 or later, cards only |
//! | `xe` | with a driver that has the file per tile | no | no | package, Linux 6.15 or later, cards only |
//!
//! The kernel counts the memory and the time of Intel devices per process (`fdinfo`), not per device.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use super::DeviceReadings;
use crate::reading::Reading;
use crate::topology::PciAddress;

/// The folder of one device.
pub(super) struct Device(PathBuf);

impl Device {
    pub(super) fn at(root: &Path, pci: &PciAddress) -> Device {
        Device(root.join("bus/pci/devices").join(pci.to_string()))
    }

    pub(super) fn vendor(&self) -> Reading<u32> {
        let path = self.0.join("vendor");
        let number = |text: &str| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        parse_file(&path, "sysfs", number)
    }

    pub(super) fn amd(&self) -> DeviceReadings {
        const SOURCE: &str = "sysfs amdgpu";
        let memory_total: Reading<u64> = number(&self.0.join("mem_info_vram_total"), SOURCE);
        let memory_used: Reading<u64> = number(&self.0.join("mem_info_vram_used"), SOURCE);
        let memory_free = match (memory_total.value(), &memory_used) {
            (Some(total), Reading::Known { value: used, .. }) => Reading::known(total.saturating_sub(*used), SOURCE),
            (None, _) => memory_total.clone(),
            _ => memory_used.clone(),
        };
        DeviceReadings {
            memory_total,
            memory_used,
            memory_free,
            utilization: number(&self.0.join("gpu_busy_percent"), SOURCE),
            // Accelerators have no edge sensor.
            temperature: self.temperature(1, SOURCE).or(|| self.temperature(2, "sysfs amdgpu, junction")),
        }
    }

    pub(super) fn intel(&self) -> DeviceReadings {
        let driver = fs::read_link(self.0.join("driver")).ok();
        let driver = driver.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        let (memory_total, temperature) = match driver {
            Some("xe") => (self.xe_memory(), self.temperature(2, "sysfs xe")),
            Some("i915") => (self.i915_memory(), self.temperature(1, "sysfs i915")),
            Some(other) => return DeviceReadings::unavailable(&format!("no way to read the driver `{other}`")),
            None => return DeviceReadings::unavailable(&format!("no driver for `{}`", self.0.display())),
        };
        let per_process = "the drivers of Intel devices count this per process only (fdinfo)";
        DeviceReadings { memory_total, temperature, ..DeviceReadings::unavailable(per_process) }
    }

    /// Physical memory of all tiles, a little more than can be had.
    fn xe_memory(&self) -> Reading<u64> {
        let file = "physical_vram_size_bytes";
        let tiles = entries(&self.0, "tile").into_iter().map(|tile| number(&tile.join(file), "sysfs xe"));
        let sum = |a: Reading<u64>, b: Reading<u64>| both(a, &b, u64::saturating_add);
        tiles.reduce(sum).unwrap_or_else(|| Reading::unavailable(format!("no tile in `{}`", self.0.display())))
    }

    fn i915_memory(&self) -> Reading<u64> {
        match entries(&self.0.join("drm"), "card").first() {
            Some(card) => number(&card.join("lmem_total_bytes"), "sysfs i915"),
            None => Reading::unavailable(format!("no card in `{}`", self.0.join("drm").display())),
        }
    }

    /// Sensor `channel` of the first monitor, in degrees.
    pub(super) fn temperature(&self, channel: u32, source: &str) -> Reading<f64> {
        let dir = self.0.join("hwmon");
        match entries(&dir, "hwmon").first() {
            Some(monitor) => {
                number::<i64>(&monitor.join(format!("temp{channel}_input")), source).map(|milli| milli as f64 / 1e3)
            }
            None => Reading::unavailable(format!("no sensor in `{}`", dir.display())),
        }
    }
}

/// What begins with `prefix` and a number, in order.
fn entries(dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix(prefix)?.parse::<u32>().ok();
    let found = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = found.filter(|path| number(path).is_some()).collect();
    found.sort_by_key(number);
    found
}

fn number<T: FromStr>(path: &Path, source: &str) -> Reading<T> {
    parse_file(path, source, |text| text.parse().ok())
}

fn parse_file<T>(path: &Path, source: &str, parse: impl FnOnce(&str) -> Option<T>) -> Reading<T> {
    match fs::read_to_string(path) {
        Ok(text) => match parse(text.trim()) {
            Some(value) => Reading::known(value, source),
            None => Reading::unavailable(format!("cannot understand `{}`", path.display())),
        },
        Err(error) => Reading::unavailable(format!("cannot read `{}`: {error}", path.display())),
    }
}

/// Bytes of memory of the machine and bytes available for new work. The limit of a container is not in there.
pub fn host_memory() -> (Reading<u64>, Reading<u64>) {
    host_memory_at(Path::new("/proc"))
}

/// The same, with the files at `root` instead of `/proc`.
pub fn host_memory_at(root: &Path) -> (Reading<u64>, Reading<u64>) {
    let field = |name: &str| {
        parse_file(&root.join("meminfo"), "/proc/meminfo", |text| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
        })
    };
    (field("MemTotal"), field("MemAvailable"))
}

/// How busy the CPUs were between two calls, in per cent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuUse {
    /// By this process: 100 is one core.
    pub process: Reading<f64>,
    /// By everybody: 100 is all cores.
    pub machine: Reading<f64>,
}

/// Measures [`CpuUse`] from one call to the next.
#[derive(Clone, Debug)]
pub struct CpuMeter {
    root: PathBuf,
    machine: Reading<MachineTicks>,
    process: Reading<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct MachineTicks {
    all: u64,
    idle: u64,
    cores: u64,
}

impl Default for CpuMeter {
    fn default() -> CpuMeter {
        CpuMeter::new()
    }
}

impl CpuMeter {
    /// Begins now.
    pub fn new() -> CpuMeter {
        CpuMeter::with_root("/proc")
    }

    /// Begins now, with the files at `root` instead of `/proc`.
    pub fn with_root(root: impl Into<PathBuf>) -> CpuMeter {
        let root = root.into();
        CpuMeter { machine: machine_ticks(&root), process: process_ticks(&root), root }
    }

    /// Since the last call, or since the beginning.
    pub fn read(&mut self) -> CpuUse {
        let machine = std::mem::replace(&mut self.machine, machine_ticks(&self.root));
        let process = std::mem::replace(&mut self.process, process_ticks(&self.root));
        // Both files count in the same ticks and in every state of a core, so no clock is needed.
        let passed = both(machine, &self.machine, |before, now| {
            (now.all.saturating_sub(before.all), now.idle.saturating_sub(before.idle), now.cores)
        });
        let passed = match passed {
            Reading::Known { value: (0, ..), .. } => Reading::unavailable("no time has passed since the last reading"),
            passed => passed,
        };
        let own = both(process, &self.process, |before, now| now.saturating_sub(before));
        let share = |part: u64, all: u64| 100.0 * part as f64 / all as f64;
        let process = match &passed {
            Reading::Known { value: (all, _, cores), .. } => own.map(|ticks| share(ticks, *all) * *cores as f64),
            Reading::Unavailable { unavailable } => Reading::unavailable(unavailable),
        };
        CpuUse { process, machine: passed.map(|(all, idle, _)| share(all.saturating_sub(idle), all)) }
    }
}

fn both<T: Copy, U>(before: Reading<T>, now: &Reading<T>, change: impl FnOnce(T, T) -> U) -> Reading<U> {
    match (before, now) {
        (Reading::Known { value: before, source }, Reading::Known { value: now, .. }) => {
            Reading::known(change(before, *now), source)
        }
        (Reading::Unavailable { unavailable }, _) => Reading::unavailable(unavailable),
        (_, Reading::Unavailable { unavailable }) => Reading::unavailable(unavailable),
    }
}

/// User, nice, system, idle, waiting for input and output, interrupts (two kinds), stolen. What follows (guests) is
/// part of user.
fn machine_ticks(root: &Path) -> Reading<MachineTicks> {
    parse_file(&root.join("stat"), "/proc/stat", |text| {
        let mut lines = text.lines();
        let ticks = lines.next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
        let ticks: Vec<u64> = ticks.map(|ticks| ticks.parse().ok()).collect::<Option<_>>()?;
        let idle = ticks.get(3)?.saturating_add(*ticks.get(4)?);
        let cores = lines.take_while(|line| line.starts_with("cpu")).count().max(1) as u64;
        Some(MachineTicks { all: ticks.iter().fold(0, |sum, ticks| sum.saturating_add(*ticks)), idle, cores })
    })
}

/// The 14th and 15th field. The second, the name of the program, may have blanks and brackets in it.
fn process_ticks(root: &Path) -> Reading<u64> {
    parse_file(&root.join("self/stat"), "/proc/self/stat", |text| {
        let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
        let mut next = || fields.next()?.parse::<u64>().ok();
        next()?.checked_add(next()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_memory_is_read_in_bytes() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let (total, _) = host_memory_at(root.path());
        assert!(total.reason().expect("no file").starts_with("cannot read `"));
        let text = "MemTotal:       24682416 kB\nMemFree:        17939744 kB\nMemAvailable:   lots kB\n";
        fs::write(root.path().join("meminfo"), text).expect("written");
        let (total, available) = host_memory_at(root.path());
        assert_eq!(total, Reading::known(24_682_416 * 1024, "/proc/meminfo"));
        assert!(available.reason().expect("not a number").starts_with("cannot understand `"));
    }

    #[test]
    fn the_meter_divides_by_what_has_passed() {
        let root = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(root.path().join("self")).expect("made");
        let write = |busy: u64, idle: u64, own: u64| {
            let cores = "cpu0 1 1\ncpu1 1 1\nintr 5\n";
            let stat = format!("cpu  {busy} 0 0 {idle} 0 0 0 0 {busy} 0\n{cores}");
            let own = format!("42 (a) (b c) R 1 42 42 0 -1 4194304 101 0 0 0 {own} 7 3 4 20 0 1 0 2237082\n");
            fs::write(root.path().join("stat"), stat).expect("written");
            fs::write(root.path().join("self/stat"), own).expect("written");
        };
        write(1000, 5000, 10);
        let mut meter = CpuMeter::with_root(root.path());
        assert!(meter.read().process.reason().expect("no ticks yet").contains("no time has passed"));
        // 300 ticks of two cores are 150 of time, the process had 120 of them.
        write(1225, 5075, 130);
        let used = meter.read();
        assert_eq!(used.machine, Reading::known(75.0, "/proc/stat"));
        assert_eq!(used.process, Reading::known(80.0, "/proc/self/stat"));
        fs::remove_file(root.path().join("stat")).expect("removed");
        assert_eq!(meter.read().machine.value(), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_answers() {
        let (total, available) = host_memory();
        assert!(total.value() >= available.value() && available.value().is_some());
        assert!(machine_ticks(Path::new("/proc")).value().is_some_and(|ticks| ticks.all >= ticks.idle));
        assert!(process_ticks(Path::new("/proc")).value().is_some());
    }
}
