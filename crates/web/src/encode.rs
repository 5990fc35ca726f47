//! Waveforms as bytes, sentence by sentence: PCM, WAV and FLAC. A stream does not know its length; what is collected gets the
//! true one into its header at the end.

use tandem_audio::{FlacEncoder, write_wav};

use crate::request::AudioFormat;

/// Encodes a stream of samples.
pub(crate) struct Encoder {
    kind: Kind,
    rate: u32,
    /// None before the header.
    samples: Option<u64>,
}

enum Kind {
    Pcm,
    Wav,
    Flac(Box<FlacEncoder>),
}

impl Encoder {
    pub(crate) fn new(format: AudioFormat, rate: u32) -> Result<Encoder, String> {
        let kind = match format {
            AudioFormat::Pcm => Kind::Pcm,
            AudioFormat::Wav => Kind::Wav,
            AudioFormat::Flac => Kind::Flac(Box::new(FlacEncoder::new(rate).map_err(text)?)),
        };
        Ok(Encoder { kind, rate, samples: None })
    }

    /// The bytes of the next samples, after those of the header if they are the first.
    pub(crate) fn push(&mut self, samples: &[f32]) -> Result<Vec<u8>, String> {
        let first = self.samples.is_none();
        self.samples = Some(self.samples.unwrap_or(0) + samples.len() as u64);
        match &mut self.kind {
            Kind::Pcm => Ok(pcm(samples)),
            Kind::Wav => {
                let mut bytes = if first { wav_header(self.rate, None) } else { Vec::new() };
                bytes.extend(pcm(samples));
                Ok(bytes)
            }
            Kind::Flac(flac) => {
                let mut bytes = if first { flac.header(None).map_err(text)? } else { Vec::new() };
                bytes.extend(flac.push(samples).map_err(text)?);
                Ok(bytes)
            }
        }
    }

    /// What is left at the end.
    pub(crate) fn finish(&mut self) -> Result<Vec<u8>, String> {
        match &mut self.kind {
            Kind::Flac(flac) => flac.finish().map_err(text),
            Kind::Pcm | Kind::Wav => Ok(Vec::new()),
        }
    }

    /// Puts the lengths into the header of a stream of which all bytes are there.
    pub(crate) fn complete(&mut self, bytes: &mut [u8]) -> Result<(), String> {
        let samples = self.samples.unwrap_or(0);
        let header = match &mut self.kind {
            Kind::Pcm => Vec::new(),
            Kind::Wav => wav_header(self.rate, Some(samples)),
            Kind::Flac(flac) => flac.header(Some(samples)).map_err(text)?,
        };
        if let Some(place) = bytes.get_mut(..header.len()) {
            place.copy_from_slice(&header);
        }
        Ok(())
    }
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}

fn quantized(sample: f32) -> i16 {
    // As `write_wav`: what is not a number is silence.
    (sample.clamp(-1.0, 1.0) * 32767.0).round() as i16
}

fn pcm(samples: &[f32]) -> Vec<u8> {
    samples.iter().flat_map(|&sample| quantized(sample).to_le_bytes()).collect()
}

/// A header of so many samples; of a stream, whose lengths say "until it ends", as other servers have it.
fn wav_header(rate: u32, samples: Option<u64>) -> Vec<u8> {
    let mut header = Vec::new();
    write_wav(&[], rate, &mut header).expect("memory is written to");
    let bytes = samples.and_then(|samples| u32::try_from(2 * samples).ok()).unwrap_or(u32::MAX);
    header[4..8].copy_from_slice(&bytes.saturating_add(36).to_le_bytes());
    header[40..44].copy_from_slice(&bytes.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use tandem_audio::Decoder;

    use super::*;

    /// Samples of a FLAC frame.
    const BLOCK: usize = 4096;

    fn wave(count: usize) -> Vec<f32> {
        (0..count).map(|n| 0.6 * (n as f32 * 0.05).sin() * (n as f32 * 0.0003).cos()).collect()
    }

    fn decoded(bytes: Vec<u8>) -> (u32, Vec<f32>) {
        let mut out = Vec::new();
        let shape = Decoder::new().decode(&mut Cursor::new(bytes), &mut out).expect("decodes");
        (shape.rate, out)
    }

    /// Piece by piece, as it is sent and as it is collected.
    fn encoded(format: AudioFormat, samples: &[f32], rate: u32, piece: usize) -> (Vec<u8>, Vec<u8>) {
        let mut encoder = Encoder::new(format, rate).expect("a rate");
        let mut bytes: Vec<u8> = Vec::new();
        for part in samples.chunks(piece) {
            bytes.extend(encoder.push(part).expect("encodes"));
        }
        bytes.extend(encoder.finish().expect("encodes"));
        let mut whole = bytes.clone();
        encoder.complete(&mut whole).expect("a header");
        (bytes, whole)
    }

    #[test]
    fn flac_is_lossless_in_pieces_of_any_size() {
        for count in [1, 100, BLOCK, BLOCK + 1, 3 * BLOCK - 7] {
            let samples = wave(count);
            let mut wav = Vec::new();
            write_wav(&samples, 22_050, &mut wav).expect("written");
            let wanted = decoded(wav);
            for piece in [1000, 4096, 9000] {
                let (stream, whole) = encoded(AudioFormat::Flac, &samples, 22_050, piece);
                // The header says how many there are: 36 bits from the 21st byte on.
                let said = u64::from_be_bytes(whole[18..26].try_into().expect("eight")) & 0xF_FFFF_FFFF;
                assert_eq!(said, count as u64);
                assert_eq!(decoded(stream), wanted, "{count} in pieces of {piece}");
                assert_eq!(decoded(whole), wanted, "{count} in pieces of {piece}, complete");
            }
        }
    }

    #[test]
    fn flac_is_smaller_than_wav() {
        let flac = encoded(AudioFormat::Flac, &wave(50_000), 22_050, 50_000).0.len();
        assert!(flac < 60_000, "{flac} bytes of 100,000");
    }

    #[test]
    fn wav_and_pcm_have_the_same_samples() {
        let samples = [wave(5000), vec![2.0, -2.0, f32::NAN]].concat();
        let (pcm, _) = encoded(AudioFormat::Pcm, &samples, 8000, 999);
        let (stream, whole) = encoded(AudioFormat::Wav, &samples, 8000, 999);
        assert_eq!((&stream[..4], &stream[4..8], &stream[44..]), (&b"RIFF"[..], &[255; 4][..], &pcm[..]));
        let mut at_once = Vec::new();
        write_wav(&samples, 8000, &mut at_once).expect("written");
        assert_eq!(whole, at_once);
    }
}
