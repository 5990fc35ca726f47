//! Any bytes as an uploaded recording, in whatever format they claim to be: an error or finite samples, never a crash, a hang or a blow-up.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;

// Other people's decoders may panic as long as ours makes an error of it; the fuzzer's own hook would end at once. A panic that
// nobody catches still ends the run.
fuzz_target!(init: std::panic::set_hook(Box::new(|_| {})), |bytes: &[u8]| {
    let mut samples = Vec::new();
    if let Ok(shape) = tandem_audio::Decoder::new().decode(&mut Cursor::new(bytes), &mut samples) {
        assert_eq!(samples.len() as u64, shape.samples);
        assert!(shape.rate > 0 && shape.channels > 0 && samples.iter().all(|sample| sample.is_finite()));
    }
});
