//! Any bytes as an uploaded recording, in whatever format they claim to be: an error or finite samples, never a crash, a hang or a blow-up.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut samples = Vec::new();
    if let Ok(shape) = tandem_audio::Decoder::new().decode(&mut Cursor::new(bytes), &mut samples) {
        assert_eq!(samples.len() as u64, shape.samples);
        assert!(shape.rate > 0 && shape.channels > 0 && samples.iter().all(|sample| sample.is_finite()));
    }
});
