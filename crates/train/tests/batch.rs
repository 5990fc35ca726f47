//! A batch walks once: what `preprocess` costs, and how many batch-sized buffers a batch allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use tandem_audio::MelStats;
use tandem_data::{CacheMode, Corpus, CorpusSettings, DemoCorpus, LoadSettings, Loader, PlanSettings};
use tandem_train::{measure_mel_stats, prepare};

/// A buffer of a batch below has more bytes than this, everything else that is allocated less.
const BATCH_SIZED: usize = 400_000;

thread_local!(static LARGE: Cell<usize> = const { Cell::new(0) });

struct Counting;

fn count(size: usize) {
    if size >= BATCH_SIZED {
        LARGE.with(|large| large.set(large.get() + 1));
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
        // SAFETY: the caller promises the same to us.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller promises the same to us.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Batch-sized allocations of each batch, and milliseconds of the fastest `prepare`, over an epoch from a warm cache. (The fastest: beside
/// other work any one of them may wait for a core.)
fn measure(loader: &Loader, stats: &MelStats) -> (f64, f64, f64) {
    let (mut loading, mut preparing, mut seconds) = (0, 0, f64::INFINITY);
    let planned = loader.plan(1);
    for planned in &planned {
        LARGE.set(0);
        let batch = loader.load(planned);
        loading += LARGE.take();
        let started = Instant::now();
        let prepared = prepare(batch, stats, 1, 2, true);
        seconds = seconds.min(started.elapsed().as_secs_f64());
        preparing += LARGE.take();
        drop(prepared);
    }
    let each = planned.len() as f64;
    (loading as f64 / each, preparing as f64 / each, 1000.0 * seconds)
}

#[test]
fn preprocess_allocates_nothing_of_the_size_of_a_batch() {
    let dir = tempfile::tempdir().expect("a folder");
    DemoCorpus { clips: 96, speakers: 2, seed: 5 }.write(dir.path()).expect("written");
    let corpus = Arc::new(Corpus::open(dir.path(), CorpusSettings::default()).expect("a corpus"));
    let plan = PlanSettings { batch_size: 16, seed: 1, ..PlanSettings::default() };
    let settings = LoadSettings { plan, reference_frames: Some(128), ..LoadSettings::default() };
    let clips: Vec<u32> = (0..corpus.len() as u32).collect();
    let cache = corpus.cache(CacheMode::Ram, 1 << 30);
    let raw = Loader::new(corpus, clips.clone(), settings.clone(), cache).expect("valid settings");
    let stats = measure_mel_stats(&raw).expect("clips");
    let decoded = raw.counters().decoded;
    assert_eq!(decoded, 96, "measured through the cache");
    let walked =
        raw.view(clips, LoadSettings { normalize: Some(Arc::new(stats.clone())), group: 2, noise: true, ..settings });
    let (before, after) = (measure(&raw, &stats), measure(&walked, &stats));
    println!("batch-sized allocations while loading and in preprocess, ms of preprocess:");
    println!("  log-mel, normalized afterwards   {before:?}");
    println!("  workers write what is uploaded   {after:?}");
    assert_eq!(raw.counters().decoded, decoded, "nothing is decoded twice, whoever asks");
    assert_eq!(after.1, 0.0, "preprocess moves buffers");
    assert!(after.0 + after.1 <= 3.0, "mel, noise, reference: {after:?}");
    assert!(before.1 >= 2.0 && after.2 < 0.2 * before.2, "{before:?} {after:?}");
}
