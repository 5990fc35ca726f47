//! Samples to 16-bit mono FLAC, at once or piece by piece.

use std::io::{self, Write};

use flacenc::component::{BitRepr, StreamInfo};
use flacenc::config;
use flacenc::error::{Verified, Verify};
use flacenc::source::{Fill, FrameBuf};

use crate::write::quantized;

/// Samples of a FLAC frame; the last one has fewer.
const BLOCK: usize = 4096;

/// Writes mono samples as 16-bit FLAC, quantized as [`write_wav`](crate::write_wav) does it.
///
/// # Errors
///
/// If `out` cannot be written, or FLAC has no such rate.
pub fn write_flac(samples: &[f32], rate: u32, out: &mut impl Write) -> io::Result<()> {
    let mut encoder = FlacEncoder::new(rate)?;
    let mut frames = encoder.push(samples)?;
    frames.extend(encoder.finish()?);
    out.write_all(&encoder.header(Some(samples.len() as u64))?)?;
    out.write_all(&frames)
}

/// Encodes a stream of samples; a header before its frames makes it a file.
pub struct FlacEncoder {
    config: Verified<config::Encoder>,
    info: StreamInfo,
    /// What does not fill a frame yet.
    rest: Vec<i32>,
    frames: usize,
}

impl std::fmt::Debug for FlacEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlacEncoder").field("frames", &self.frames).finish_non_exhaustive()
    }
}

impl FlacEncoder {
    /// Of so many samples a second.
    ///
    /// # Errors
    ///
    /// If FLAC has no such rate.
    pub fn new(rate: u32) -> io::Result<FlacEncoder> {
        let config = config::Encoder::default().into_verified().map_err(|(_, error)| other(error))?;
        let mut info = StreamInfo::new(rate as usize, 1, 16).map_err(other)?;
        info.set_block_sizes(BLOCK, BLOCK).map_err(other)?;
        Ok(FlacEncoder { config, info, rest: Vec::new(), frames: 0 })
    }

    /// `fLaC`, and the description of the stream as the only block of metadata; it has the same length whether the number of samples
    /// is known or not.
    ///
    /// # Errors
    ///
    /// Of the encoder.
    pub fn header(&mut self, samples: Option<u64>) -> io::Result<Vec<u8>> {
        self.info.set_total_samples(samples.unwrap_or(0) as usize);
        let mut sink = flacenc::bitsink::ByteSink::new();
        self.info.write(&mut sink).map_err(other)?;
        let info = sink.as_slice();
        // The block's head: the last one, of kind 0, and its length.
        let mut bytes = b"fLaC\x80".to_vec();
        bytes.extend_from_slice(&(info.len() as u32).to_be_bytes()[1..]);
        bytes.extend_from_slice(info);
        Ok(bytes)
    }

    /// The frames that these samples fill.
    ///
    /// # Errors
    ///
    /// Of the encoder.
    pub fn push(&mut self, samples: &[f32]) -> io::Result<Vec<u8>> {
        self.rest.extend(samples.iter().map(|&sample| i32::from(quantized(sample))));
        self.frames_of(BLOCK)
    }

    /// The last frame, if samples are left.
    ///
    /// # Errors
    ///
    /// Of the encoder.
    pub fn finish(&mut self) -> io::Result<Vec<u8>> {
        let length = self.rest.len();
        if length == 0 { Ok(Vec::new()) } else { self.frames_of(length) }
    }

    /// As many whole frames of so many samples as there are.
    fn frames_of(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let whole = self.rest.len() / length * length;
        for block in self.rest[..whole].chunks(length) {
            // The buffer has a least size; a last frame may be shorter.
            let mut buffer = FrameBuf::with_size(1, BLOCK).map_err(other)?;
            buffer.fill_interleaved(block).map_err(other)?;
            let frame =
                flacenc::encode_fixed_size_frame(&self.config, &buffer, self.frames, &self.info).map_err(other)?;
            self.frames += 1;
            let mut sink = flacenc::bitsink::ByteSink::new();
            frame.write(&mut sink).map_err(other)?;
            bytes.extend_from_slice(sink.as_slice());
        }
        self.rest.drain(..whole);
        Ok(bytes)
    }
}

fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Decoder;

    #[test]
    fn what_is_written_is_read_to_the_sample() {
        for count in [1, 15, 4096, 10_000] {
            let samples: Vec<f32> = (0..count).map(|n| (n as f32 * 0.37).sin() * 1.1).collect();
            let mut bytes = Vec::new();
            write_flac(&samples, 22_050, &mut bytes).expect("memory");
            let mut read = Vec::new();
            let shape = Decoder::new().decode(&mut io::Cursor::new(bytes), &mut read).expect("whole");
            assert_eq!((shape.rate, shape.samples), (22_050, count as u64));
            let same = samples.iter().zip(&read).all(|(&a, &b)| (f32::from(quantized(a)) / 32_768.0 - b).abs() < 1e-6);
            assert!(same, "{count} samples");
        }
    }
}
