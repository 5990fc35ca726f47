//! Mel-cepstral distortion of two clips in dB, as `pymcd` computes it:
//!
//!     cargo run --release -p tandem-audio --example distortion -- RECORDING SYNTHESIS
//!
//! Without arguments, of two clips of the formant synthesizer.

use std::error::Error;
use std::path::Path;

use tandem_audio::formant::{FormantVoice, speak};
use tandem_audio::{Decoder, distortion, mel_cepstra, open_audio, warp_cepstra};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let cepstra = match arguments.as_slice() {
        [] => [1.0, 1.2].map(|scale| {
            let voice = FormantVoice { pitch: 120.0, formant_scale: scale, breath: 0.1, speed: scale };
            mel_cepstra(&speak("a small example", &voice, 22_050, || 0.5).0, 22_050)
        }),
        [a, b] => [read(Path::new(a))?, read(Path::new(b))?].map(|(samples, rate)| mel_cepstra(&samples, rate)),
        _ => return Err("usage: distortion [RECORDING SYNTHESIS]".into()),
    };
    let [a, b] = cepstra;
    let (a, b) = (a?, b?);
    println!("{:.9}", distortion(&a, &b, &warp_cepstra(&a, &b)).ok_or("an empty clip")?);
    Ok(())
}

fn read(path: &Path) -> Result<(Vec<f32>, u32), Box<dyn Error>> {
    let mut samples = Vec::new();
    let shape = Decoder::new().decode(&mut open_audio(path)?, &mut samples)?;
    Ok((samples, shape.rate))
}
