//! The memory of this process: what it takes, and that it is kept from step to step.

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

/// Forgets the most it ever took, so that [`peak_bytes`] tells about what comes. False where that cannot be done.
pub fn reset_peak() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// What the machine has.
pub fn total_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Tells the allocator to keep large blocks that are freed: a step asks for the same ones as the step before. By default
/// each goes back to the system and comes back page by page, cleared: a tenth to a fifth of a step on a CPU. A program
/// that trains calls this first.
pub fn keep_freed_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets three numbers of the allocator; values that it does not accept are ignored.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 30);
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        // Blocks of many threads in many heaps fragment: two heaps keep a long run flat.
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}
