//! Decodes a file and writes its samples and its log-mel, for comparison with other implementations:
//!
//!     cargo run --release -p tandem-audio --example features -- IN RATE SAMPLES.f32 MEL.f32
//!
//! RATE is the rate to resample to, or 0 for the file's own. Both outputs are raw little-endian `f32`; the first line
//! of standard output says rate, channels, samples and frames.

use std::path::Path;

use tandem_audio::{Decoder, LogMel, MelSettings, Resampler};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [input, rate, samples_out, mel_out] = arguments.as_slice() else {
        return Err("usage: features IN RATE SAMPLES.f32 MEL.f32".into());
    };
    let mut samples = Vec::new();
    let shape = Decoder::new().decode(Path::new(input), &mut samples)?;
    let rate = match rate.parse()? {
        0 => shape.rate,
        rate => rate,
    };
    if rate != shape.rate {
        Resampler::new(shape.rate, rate).ok_or("no ratio")?.resample(&mut samples, 0);
    }
    let settings = MelSettings { sample_rate: rate, fmax: 8000f32.min(rate as f32 / 2.0), ..MelSettings::default() };
    let mel = LogMel::new(&settings)?.compute(&samples);
    println!("{rate} {} {} {}", shape.channels, samples.len(), settings.frames(samples.len()));
    let write = |path: &str, values: &[f32]| {
        std::fs::write(path, values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
    };
    write(samples_out, &samples)?;
    write(mel_out, &mel)?;
    Ok(())
}
