//! The memory of this process: what it takes, and that it is kept from step to step.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Blocks below this are not tensors and are not counted: counting costs nothing that way.
const LEAST_COUNTED: usize = 4096;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with a count of what is in use. A program that wants to know what a step on the CPU takes
/// makes it its `#[global_allocator]`; without it the figures of the system are used, which move by whole pages and
/// keep what was freed.
#[derive(Debug)]
pub struct Counting;

fn count(size: usize) {
    if size >= LEAST_COUNTED {
        let now = NOW.fetch_add(size, Relaxed) + size;
        if now > MOST.load(Relaxed) {
            MOST.fetch_max(now, Relaxed);
        }
    }
}

fn discount(size: usize) {
    if size >= LEAST_COUNTED {
        NOW.fetch_sub(size, Relaxed);
    }
}

// SAFETY: everything is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller promises the same to us.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller promises the same to us.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        discount(layout.size());
        // SAFETY: the caller promises the same to us.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        discount(layout.size());
        count(size);
        // SAFETY: the caller promises the same to us.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// What is in use now, counted if the program counts.
pub fn used_bytes() -> u64 {
    match NOW.load(Relaxed) {
        0 => resident_bytes().unwrap_or(0),
        counted => counted as u64,
    }
}

/// Runs `work` and returns how much more than before was in use at most.
pub fn most_used_during<T>(work: impl FnOnce() -> T) -> (T, u64) {
    if NOW.load(Relaxed) == 0 {
        reset_peak();
        let before = resident_bytes().unwrap_or(0);
        let result = work();
        return (result, peak_bytes().unwrap_or(0).saturating_sub(before));
    }
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    let result = work();
    (result, MOST.load(Relaxed).saturating_sub(before) as u64)
}

fn kilobytes_in(path: &str, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim_start_matches(':').split_whitespace().next()?.parse().ok()
}

fn status(key: &str) -> Option<u64> {
    Some(1024 * kilobytes_in("/proc/self/status", key)?)
}

/// What it takes now.
pub fn resident_bytes() -> Option<u64> {
    status("VmRSS")
}

/// The most it ever took.
pub fn peak_bytes() -> Option<u64> {
    status("VmHWM")
}

/// Forgets the most it ever took, so that [`peak_bytes`] is about what comes, where that can be done.
fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Processor time that all threads of this process took so far; zero where that is not known.
pub fn cpu_time() -> std::time::Duration {
    #[cfg(unix)]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the clock exists and `time` is a place for its answer.
        if unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) } == 0 {
            return std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
        }
    }
    std::time::Duration::ZERO
}

/// What the machine has.
pub fn total_bytes() -> Option<u64> {
    Some(1024 * kilobytes_in("/proc/meminfo", "MemTotal")?)
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

/// Asks for huge pages where the allocator takes its next blocks from. Other ranks of this host read gradients there through the kernel, which handles one page
/// after the other: with huge pages a sum took 1.9 ms instead of 3.2 (`benches/results/ranks.md`). A rank calls this when it starts, on its first thread:
/// blocks of other threads may lie elsewhere.
pub(crate) fn use_huge_pages() {
    #[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
    {
        const HUGE: usize = 2 << 20;
        /// More than was freed so far, so that the heap grows.
        const BLOCK: usize = 64 << 20;
        /// Grows by so much more: addresses, not memory, of which nothing is taken before it is written to.
        const AHEAD: libc::c_int = 1 << 30;
        const USUAL: libc::c_int = 128 << 10;
        // SAFETY: sets a number of the allocator, and advises about addresses of its heap, from a block that it gave to the heap's end. Advice changes nothing
        // of what memory holds; where it is not taken, pages are small.
        unsafe {
            libc::mallopt(libc::M_TOP_PAD, AHEAD);
            let block = libc::malloc(BLOCK);
            libc::mallopt(libc::M_TOP_PAD, USUAL);
            let (start, end) = ((block as usize).next_multiple_of(HUGE), libc::sbrk(0) as usize);
            if !block.is_null() && start < end {
                libc::madvise(std::ptr::without_provenance_mut(start), end - start, libc::MADV_HUGEPAGE);
            }
            libc::free(block);
        }
    }
}

/// What of this process lies in huge pages.
pub fn huge_bytes() -> Option<u64> {
    Some(1024 * kilobytes_in("/proc/self/smaps_rollup", "AnonHugePages")?)
}
