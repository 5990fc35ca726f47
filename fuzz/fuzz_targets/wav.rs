//! Any bytes as a WAV file: an error or samples that match what the shape says, never a crash or a blow-up.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut samples = Vec::new();
    if let Ok(shape) = tandem_audio::parse_wav(bytes, &mut samples) {
        assert_eq!(samples.len() as u64, shape.samples);
        assert!(shape.samples <= bytes.len() as u64 && shape.channels > 0);
        assert!(samples.iter().all(|sample| sample.is_finite()));
    }
});
