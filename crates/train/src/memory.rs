//! The memory of this process, where the system says.

fn status(key: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kilobytes: u64 = line.trim_start_matches(':').split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// What it takes now.
pub fn resident_bytes() -> Option<u64> {
    status("VmRSS")
}

/// The most it ever took.
pub fn peak_bytes() -> Option<u64> {
    status("VmHWM")
}

/// What the machine has.
pub fn total_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}
