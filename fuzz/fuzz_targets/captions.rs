//! Any bytes as captions of any kind, and the cuts that they make of a recording.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tandem_data::{CutSettings, Levels, cut_captions, parse_captions};

fuzz_target!(|bytes: &[u8]| {
    let Ok(found) = parse_captions(bytes) else { return };
    for caption in &found.captions {
        assert!(caption.start.is_finite() && caption.start < caption.end && caption.end.is_finite(), "{caption:?}");
        assert!(!caption.text.is_empty() && !caption.text.contains(['\n', '\r']), "{caption:?}");
    }
    found.faults.iter().for_each(|(place, fault)| assert!(!format!("{place} {fault}").is_empty()));
    // A minute of syllables and pauses that the bytes decide.
    let level = |frame: usize| if bytes[(frame / 25) % bytes.len()] & 1 == 0 { 40 } else { 150 + (frame % 16) as u8 };
    let levels = Levels::from_steps((0..6000).map(level).collect());
    let settings = CutSettings::default();
    let cuts = cut_captions(&levels, &found.captions, &settings);
    let mut before = 0.0;
    for cut in &cuts.cuts {
        assert!(before <= cut.start + 1e-9 && cut.start < cut.end && cut.end <= 60.0 + 1e-9, "{cut:?}");
        assert!(cut.seconds() <= settings.max_seconds + 0.02, "{cut:?}");
        before = cut.end;
    }
});
