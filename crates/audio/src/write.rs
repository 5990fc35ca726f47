//! Samples to a 16-bit WAV file, at once or piece by piece.

use std::io::{self, Seek, SeekFrom, Write};

/// Bytes before the samples.
const HEADER: u64 = 44;

/// Writes mono samples as 16-bit PCM; values beyond ±1 are clipped, and what is not a number is silence.
///
/// # Errors
///
/// If `out` cannot be written, or if there are more samples than a WAV file can hold (2³¹, a day at 22 050 Hz).
pub fn write_wav(samples: &[f32], rate: u32, out: &mut impl Write) -> io::Result<()> {
    out.write_all(&header(samples.len() as u64, rate)?)?;
    out.write_all(&pcm(samples))
}

/// A WAV file that grows: nothing of what was written is kept in memory.
#[derive(Debug)]
pub struct WavWriter<W: Write + Seek> {
    out: W,
    rate: u32,
    samples: u64,
}

impl<W: Write + Seek> WavWriter<W> {
    /// Starts a file at the beginning of `out`. Until [`WavWriter::finish`] its header says that it is empty.
    ///
    /// # Errors
    ///
    /// If `out` cannot be written.
    pub fn new(mut out: W, rate: u32) -> io::Result<WavWriter<W>> {
        out.write_all(&header(0, rate)?)?;
        Ok(WavWriter { out, rate, samples: 0 })
    }

    /// Appends mono samples, as [`write_wav`] does.
    ///
    /// # Errors
    ///
    /// As [`write_wav`].
    pub fn append(&mut self, samples: &[f32]) -> io::Result<()> {
        self.samples += samples.len() as u64;
        header(self.samples, self.rate)?;
        self.out.write_all(&pcm(samples))
    }

    /// Samples so far.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Writes the true lengths into the header and hands back what was written to, at its end.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&header(self.samples, self.rate)?)?;
        self.out.seek(SeekFrom::End(0))?;
        Ok(self.out)
    }
}

fn header(samples: u64, rate: u32) -> io::Result<Vec<u8>> {
    let bytes = samples.saturating_mul(2);
    let chunk =
        u32::try_from(bytes.saturating_add(HEADER - 8)).map_err(|_| io::Error::other("too long for a WAV file"))?;
    let mut header = Vec::with_capacity(HEADER as usize);
    header.extend_from_slice(b"RIFF");
    header.extend_from_slice(&chunk.to_le_bytes());
    header.extend_from_slice(b"WAVEfmt ");
    header.extend_from_slice(&16u32.to_le_bytes());
    header.extend_from_slice(&1u16.to_le_bytes()); // PCM
    header.extend_from_slice(&1u16.to_le_bytes()); // mono
    header.extend_from_slice(&rate.to_le_bytes());
    header.extend_from_slice(&rate.saturating_mul(2).to_le_bytes());
    header.extend_from_slice(&2u16.to_le_bytes());
    header.extend_from_slice(&16u16.to_le_bytes());
    header.extend_from_slice(b"data");
    header.extend_from_slice(&(bytes as u32).to_le_bytes());
    Ok(header)
}

/// A sample as 16 bits: beyond ±1 it is clipped, and what is not a number is silence.
pub(crate) fn quantized(sample: f32) -> i16 {
    (sample.clamp(-1.0, 1.0) * 32_767.0).round() as i16
}

fn pcm(samples: &[f32]) -> Vec<u8> {
    samples.iter().flat_map(|&sample| quantized(sample).to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_grows_is_the_file_that_is_written_at_once() {
        let samples: Vec<f32> = (0..1000).map(|n| (n as f32 * 0.37).sin() * 1.1).collect();
        let mut whole = Vec::new();
        write_wav(&samples, 22_050, &mut whole).expect("memory");
        let mut writer = WavWriter::new(io::Cursor::new(Vec::new()), 22_050).expect("memory");
        for piece in samples.chunks(170) {
            writer.append(piece).expect("memory");
        }
        assert_eq!(writer.samples(), 1000);
        let out = writer.finish().expect("memory");
        assert_eq!(out.position(), whole.len() as u64);
        assert_eq!(out.into_inner(), whole);
    }

    #[test]
    fn more_than_a_file_holds_is_an_error() {
        assert!(header(u64::from(u32::MAX / 2) - 18, 22_050).is_ok());
        assert!(header(u64::from(u32::MAX / 2), 22_050).is_err());
        assert!(header(u64::MAX, 22_050).is_err());
    }
}
