//! Any bytes as a request for speech, and any text as the name of a voice: an error that can be shown, or values within their limits.
#![no_main]

use libfuzzer_sys::fuzz_target;

// The file alone: the crate around it needs Burn.
#[allow(dead_code)]
#[path = "../../crates/web/src/request.rs"]
mod request;

fuzz_target!(|bytes: &[u8]| {
    match request::SpeechRequest::parse(bytes, 500) {
        Ok(request) => {
            assert!(!request.input.trim().is_empty() && request.input.chars().count() <= 500);
            assert!((0.25..=4.0).contains(&request.speed) && (0.0..=10.0).contains(&request.pause));
            assert!(!request.events || request.stream);
        }
        Err(error) => assert!(!error.message.is_empty() && !error.code.is_empty()),
    }
    if let Ok(name) = request::voice_name(&String::from_utf8_lossy(bytes)) {
        assert!(!name.is_empty() && name.chars().count() <= 64 && !name.contains(['/', '\\', '\0', '\n', '<']));
    }
});
