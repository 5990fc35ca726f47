//! Any bytes as what a run's directory says (snapshots, a report): refused, or shown in every form without a crash.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tandem_observe::{Direction, Document, METRICS, Snapshot};

fuzz_target!(|bytes: &[u8]| {
    for line in bytes.split(|&byte| byte == b'\n') {
        if let Ok(snapshot) = serde_json::from_slice::<Snapshot>(line) {
            let text = tandem_observe::exposition(&snapshot);
            assert!(!text.is_empty() && METRICS.len() < text.len());
        }
    }
    if let Ok(document) = serde_json::from_slice::<Document>(bytes) {
        let label = |name: &str, _: &[(&str, &dyn std::fmt::Display)]| name.to_owned();
        for direction in [Direction::LeftToRight, Direction::RightToLeft] {
            let page = tandem_observe::html(&document, direction, &label);
            assert!(!page.contains("<script>alert"), "what a file says is text, not markup");
        }
    }
});
