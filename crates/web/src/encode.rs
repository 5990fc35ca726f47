//! Waveforms as bytes, sentence by sentence: PCM, WAV and FLAC. What is encoded piece by piece is what is encoded at once, but
//! for the lengths in the header, which a stream does not know.

use flacenc::component::{BitRepr, StreamInfo};
use flacenc::config;
use flacenc::error::{Verified, Verify};
use flacenc::source::{Fill, FrameBuf};
use tandem_audio::write_wav;

use crate::request::AudioFormat;

/// Samples of a FLAC frame; the last one has fewer.
const BLOCK: usize = 4096;

/// Encodes a stream of samples.
pub(crate) struct Encoder {
    kind: Kind,
    rate: u32,
    started: bool,
}

enum Kind {
    Pcm,
    Wav,
    Flac(Box<Flac>),
}

struct Flac {
    config: Verified<config::Encoder>,
    info: StreamInfo,
    /// What does not fill a frame yet.
    rest: Vec<i32>,
    frames: usize,
}

impl Encoder {
    pub(crate) fn new(format: AudioFormat, rate: u32) -> Result<Encoder, String> {
        let kind = match format {
            AudioFormat::Pcm => Kind::Pcm,
            AudioFormat::Wav => Kind::Wav,
            AudioFormat::Flac => Kind::Flac(Box::new(Flac::new(rate)?)),
        };
        Ok(Encoder { kind, rate, started: false })
    }

    /// The bytes of the next samples, after those of the header if they are the first.
    pub(crate) fn push(&mut self, samples: &[f32]) -> Result<Vec<u8>, String> {
        let first = !std::mem::replace(&mut self.started, true);
        match &mut self.kind {
            Kind::Pcm => Ok(pcm(samples)),
            Kind::Wav => {
                let mut bytes = if first { endless_header(self.rate) } else { Vec::new() };
                bytes.extend(pcm(samples));
                Ok(bytes)
            }
            Kind::Flac(flac) => {
                let mut bytes = if first { flac.header()? } else { Vec::new() };
                flac.rest.extend(samples.iter().map(|&sample| i32::from(quantized(sample))));
                flac.frames_of(BLOCK, &mut bytes)?;
                Ok(bytes)
            }
        }
    }

    /// What is left at the end.
    pub(crate) fn finish(&mut self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        if let Kind::Flac(flac) = &mut self.kind
            && !flac.rest.is_empty()
        {
            let length = flac.rest.len();
            flac.frames_of(length, &mut bytes)?;
        }
        Ok(bytes)
    }
}

/// All of it at once, with the true lengths in the header.
pub(crate) fn encode(format: AudioFormat, samples: &[f32], rate: u32) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    match format {
        AudioFormat::Pcm => return Ok(pcm(samples)),
        AudioFormat::Wav => write_wav(samples, rate, &mut bytes).map_err(|error| error.to_string())?,
        AudioFormat::Flac => {
            let mut flac = Flac::new(rate)?;
            let mut body = Vec::new();
            flac.rest.extend(samples.iter().map(|&sample| i32::from(quantized(sample))));
            flac.info.set_total_samples(samples.len());
            bytes = flac.header()?;
            flac.frames_of(BLOCK, &mut body)?;
            let last = flac.rest.len();
            if last > 0 {
                flac.frames_of(last, &mut body)?;
            }
            bytes.extend(body);
        }
    }
    Ok(bytes)
}

impl Flac {
    fn new(rate: u32) -> Result<Flac, String> {
        let config = config::Encoder::default().into_verified().map_err(|(_, error)| error.to_string())?;
        let mut info = StreamInfo::new(rate as usize, 1, 16).map_err(|error| error.to_string())?;
        info.set_block_sizes(BLOCK, BLOCK).map_err(|error| error.to_string())?;
        Ok(Flac { config, info, rest: Vec::new(), frames: 0 })
    }

    /// `fLaC`, and the description of the stream as the only block of metadata.
    fn header(&self) -> Result<Vec<u8>, String> {
        let mut sink = flacenc::bitsink::ByteSink::new();
        self.info.write(&mut sink).map_err(|error| error.to_string())?;
        let info = sink.as_slice();
        // The block's head: the last one, of kind 0, and its length.
        let mut bytes = b"fLaC\x80".to_vec();
        bytes.extend_from_slice(&(info.len() as u32).to_be_bytes()[1..]);
        bytes.extend_from_slice(info);
        Ok(bytes)
    }

    /// As many whole frames of so many samples as there are.
    fn frames_of(&mut self, length: usize, bytes: &mut Vec<u8>) -> Result<(), String> {
        let whole = self.rest.len() / length * length;
        for block in self.rest[..whole].chunks(length) {
            // The buffer has a least size; a last frame may be shorter.
            let mut buffer = FrameBuf::with_size(1, BLOCK).map_err(|error| error.to_string())?;
            buffer.fill_interleaved(block).map_err(|error| error.to_string())?;
            let frame = flacenc::encode_fixed_size_frame(&self.config, &buffer, self.frames, &self.info)
                .map_err(|error| error.to_string())?;
            self.frames += 1;
            let mut sink = flacenc::bitsink::ByteSink::new();
            frame.write(&mut sink).map_err(|error| error.to_string())?;
            bytes.extend_from_slice(sink.as_slice());
        }
        self.rest.drain(..whole);
        Ok(())
    }
}

fn quantized(sample: f32) -> i16 {
    // As `write_wav`: what is not a number is silence.
    (sample.clamp(-1.0, 1.0) * 32767.0).round() as i16
}

fn pcm(samples: &[f32]) -> Vec<u8> {
    samples.iter().flat_map(|&sample| quantized(sample).to_le_bytes()).collect()
}

/// A header whose lengths say "until it ends", as other servers have it.
fn endless_header(rate: u32) -> Vec<u8> {
    let mut header = Vec::new();
    write_wav(&[], rate, &mut header).expect("memory is written to");
    header[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    header[40..44].copy_from_slice(&u32::MAX.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use tandem_audio::Decoder;

    use super::*;

    fn wave(count: usize) -> Vec<f32> {
        (0..count).map(|n| 0.6 * (n as f32 * 0.05).sin() * (n as f32 * 0.0003).cos()).collect()
    }

    fn decoded(bytes: Vec<u8>) -> (u32, Vec<f32>) {
        let mut out = Vec::new();
        let shape = Decoder::new().decode(&mut Cursor::new(bytes), &mut out).expect("decodes");
        (shape.rate, out)
    }

    #[test]
    fn flac_is_lossless_at_once_and_in_pieces_of_any_size() {
        for count in [1, 100, BLOCK, BLOCK + 1, 3 * BLOCK - 7] {
            let samples = wave(count);
            let mut wav = Vec::new();
            write_wav(&samples, 22_050, &mut wav).expect("written");
            let wanted = decoded(wav);
            assert_eq!(
                decoded(encode(AudioFormat::Flac, &samples, 22_050).expect("encodes")),
                wanted,
                "{count} at once"
            );
            for piece in [1000, 4096, 9000] {
                let mut encoder = Encoder::new(AudioFormat::Flac, 22_050).expect("a rate");
                let mut bytes: Vec<u8> = Vec::new();
                for part in samples.chunks(piece) {
                    bytes.extend(encoder.push(part).expect("encodes"));
                }
                bytes.extend(encoder.finish().expect("encodes"));
                assert_eq!(decoded(bytes), wanted, "{count} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn flac_is_smaller_than_wav() {
        let samples = wave(50_000);
        let flac = encode(AudioFormat::Flac, &samples, 22_050).expect("encodes").len();
        assert!(flac < 60_000, "{flac} bytes of 100,000");
    }

    #[test]
    fn wav_and_pcm_have_the_same_samples() {
        let samples = [wave(5000), vec![2.0, -2.0, f32::NAN]].concat();
        let pcm = encode(AudioFormat::Pcm, &samples, 8000).expect("encodes");
        let wav = encode(AudioFormat::Wav, &samples, 8000).expect("encodes");
        assert_eq!(wav[44..], pcm);
        let mut encoder = Encoder::new(AudioFormat::Wav, 8000).expect("a rate");
        let streamed: Vec<u8> = samples.chunks(999).flat_map(|part| encoder.push(part).expect("encodes")).collect();
        assert_eq!((&streamed[..4], &streamed[4..8], &streamed[44..]), (&b"RIFF"[..], &[255; 4][..], &pcm[..]));
    }
}
