//! Any bytes as a cache entry or an index: refused, unless every byte is as it was written. Checksums would stop the
//! fuzzer at the door, so it is let in: the same bytes with right checksums must not crash either.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_64;

fn look(bytes: &[u8]) {
    if let Some((rows, frames, body)) = tandem_data::read_cache_entry(bytes, None) {
        assert_eq!(4 * rows * frames, body.len());
    }
    for settings in [0, 42] {
        if let Ok(index) = tandem_data::Index::parse(bytes, settings) {
            assert!(index.entries.len() <= bytes.len() / 48);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    look(bytes);
    if bytes.len() >= 64 {
        let mut entry = bytes.to_vec();
        entry[..8].copy_from_slice(b"TNDMMEL1");
        let body = xxh3_64(&entry[48..]);
        entry[32..40].copy_from_slice(&body.to_le_bytes());
        let header = xxh3_64(&entry[..40]);
        entry[40..48].copy_from_slice(&header.to_le_bytes());
        look(&entry);
        let mut index = bytes.to_vec();
        index[..8].copy_from_slice(b"TNDMIDX3");
        index[8..16].copy_from_slice(&42u64.to_le_bytes());
        let body = xxh3_64(&index[64..]);
        index[48..56].copy_from_slice(&body.to_le_bytes());
        let header = xxh3_64(&index[..56]);
        index[56..64].copy_from_slice(&header.to_le_bytes());
        look(&index);
    }
});
