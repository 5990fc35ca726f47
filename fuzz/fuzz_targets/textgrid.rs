//! Any bytes as a TextGrid: refused, or durations that add up to the frames of the clip; what we write we read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tandem_data::{Alignment, FrameTimes};

fuzz_target!(|bytes: &[u8]| {
    let Ok(alignment) = Alignment::from_text_grid(bytes) else { return };
    let symbols: Vec<&str> = alignment.tokens.iter().map(|token| token.symbol.as_str()).collect();
    for (start_seconds, frames) in [(0.0, 1), (0.0, 200), (0.3, 64)] {
        let times = FrameTimes { hop_seconds: 0.0116, start_seconds, seconds: alignment.seconds };
        if let Ok(durations) = alignment.durations(&symbols, &times, frames) {
            assert_eq!(durations.len(), symbols.len());
            assert_eq!(durations.iter().map(|&frames| u64::from(frames)).sum::<u64>(), u64::from(frames));
        }
    }
    let again = Alignment::from_text_grid(alignment.to_text_grid().as_bytes());
    let symbols = |alignment: &Alignment| -> Vec<String> {
        alignment.tokens.iter().map(|token| token.symbol.clone()).collect()
    };
    // Times are rounded when they are written; intervals of no length may then leave a gap.
    if let Ok(again) = again {
        assert_eq!(symbols(&again), symbols(&alignment));
    }
});
