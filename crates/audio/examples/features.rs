//! A WAV file to samples, to another rate, to log-mel frames, and back to samples:
//!
//!     cargo run --release -p tandem-audio --example features
//!
//! With arguments, the samples, the log-mel and the pitch of a file are written, for comparison with other implementations:
//!
//!     cargo run --release -p tandem-audio --example features -- IN RATE SAMPLES.f32 MEL.f32 PITCH.f32
//!
//! RATE is the rate to resample to, or 0 for the file's own. The outputs are raw little-endian `f32`; the first line
//! of standard output says rate, channels, samples and frames, the second the milliseconds of the log-mel and of the pitch.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use tandem_audio::{
    Decoder, GriffinLim, LogMel, MelSettings, PitchTracker, Resampler, Vocoder, mel_filters, open_audio, parse_wav,
    write_wav,
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => tone(),
        [input, rate, outputs @ ..] if outputs.len() == 3 => compare(Path::new(input), rate.parse()?, outputs),
        _ => Err("usage: features [IN RATE SAMPLES.f32 MEL.f32 PITCH.f32]".into()),
    }
}

/// A second of 1000 Hz, as a file in memory.
fn tone() -> Result<(), Box<dyn Error>> {
    let step = std::f32::consts::TAU * 1000.0 / 44_100.0;
    let tone: Vec<f32> = (0..44_100).map(|n| 0.5 * (n as f32 * step).sin()).collect();
    let mut file = Vec::new();
    write_wav(&tone, 44_100, &mut file)?;

    let mut samples = Vec::new();
    let shape = parse_wav(&file, &mut samples)?; // a file on disk: Decoder::new().decode(&mut open_audio(path)?, &mut samples)?
    let settings = MelSettings::default();
    Resampler::new(shape.rate, settings.sample_rate)?.resample(&mut samples, 0);
    let frames = settings.frames(samples.len());
    let mel = LogMel::new(&settings)?.compute(&samples);
    println!("{:.1} s at {} Hz, {} values in each of {frames} frames", shape.seconds(), shape.rate, settings.n_mels);

    // Time is last: the values of filter `m` are `mel[m * frames..][..frames]`.
    let middle = |filter: &usize| mel[filter * frames + frames / 2];
    let loudest = (0..settings.n_mels).max_by(|a, b| middle(a).total_cmp(&middle(b))).unwrap_or(0);
    let (first, weights) = &mel_filters(&settings)[loudest];
    let hertz = |bin: usize| bin as f32 * settings.sample_rate as f32 / settings.n_fft as f32;
    let (low, high) = (hertz(*first), hertz(first + weights.len() - 1));
    println!("loudest in the middle: filter {loudest}, {low:.0} to {high:.0} Hz");
    assert!(low <= 1000.0 && 1000.0 <= high, "the tone is where it belongs");

    let again = GriffinLim::new(&settings)?.iterations(32).synthesize(&mel, frames, None);
    println!("{} samples, and {} again of the log-mel", samples.len(), again.len());
    Ok(())
}

fn compare(input: &Path, rate: u32, outputs: &[String]) -> Result<(), Box<dyn Error>> {
    let mut samples = Vec::new();
    let shape = Decoder::new().decode(&mut open_audio(input)?, &mut samples)?;
    let rate = if rate == 0 { shape.rate } else { rate };
    if rate != shape.rate {
        Resampler::new(shape.rate, rate)?.resample(&mut samples, 0);
    }
    let settings = MelSettings { sample_rate: rate, fmax: 8000f32.min(rate as f32 / 2.0), ..MelSettings::default() };
    let frames = settings.frames(samples.len());
    let (mut log_mel, mut tracker) = (LogMel::new(&settings)?, PitchTracker::new(rate, settings.hop_length));
    let start = Instant::now();
    let mel = log_mel.compute(&samples);
    let between = Instant::now();
    let pitch = tracker.track(&samples, frames);
    println!("{rate} {} {} {frames}", shape.channels, samples.len());
    println!("{:.3} {:.3}", (between - start).as_secs_f64() * 1e3, between.elapsed().as_secs_f64() * 1e3);
    for (path, values) in outputs.iter().zip([&samples, &mel, &pitch]) {
        std::fs::write(path, values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())?;
    }
    Ok(())
}
