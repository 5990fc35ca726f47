//! Samples to a 16-bit WAV file.

use std::io::{self, Write};

/// Writes mono samples as 16-bit PCM; values beyond ±1 are clipped, and what is not a number is silence.
///
/// # Errors
///
/// If `out` cannot be written, or if there are more samples than a WAV file can hold (2³¹, a day at 22 050 Hz).
pub fn write_wav(samples: &[f32], rate: u32, out: &mut impl Write) -> io::Result<()> {
    let chunk = u32::try_from(36 + samples.len() * 2).map_err(|_| io::Error::other("too long for a WAV file"))?;
    let bytes = chunk - 36;
    out.write_all(b"RIFF")?;
    out.write_all(&chunk.to_le_bytes())?;
    out.write_all(b"WAVEfmt ")?;
    out.write_all(&16u32.to_le_bytes())?;
    out.write_all(&1u16.to_le_bytes())?; // PCM
    out.write_all(&1u16.to_le_bytes())?; // mono
    out.write_all(&rate.to_le_bytes())?;
    out.write_all(&rate.saturating_mul(2).to_le_bytes())?;
    out.write_all(&2u16.to_le_bytes())?;
    out.write_all(&16u16.to_le_bytes())?;
    out.write_all(b"data")?;
    out.write_all(&bytes.to_le_bytes())?;
    let mut pcm = Vec::with_capacity(samples.len() * 2);
    for sample in samples {
        pcm.extend_from_slice(&((sample.clamp(-1.0, 1.0) * 32_767.0).round() as i16).to_le_bytes());
    }
    out.write_all(&pcm)
}
