//! Any text as `config.yaml`: an error that names the file, or settings that a run can be resumed with.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = tandem_fuzz::config(text);
    }
});
