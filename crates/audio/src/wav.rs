//! WAV: a header parser of our own and the fast way from PCM to `f32`.
//!
//! Written by hand because it is most of the cost of a short clip: a general reader that converts sample by sample
//! takes twice as long as the whole transform (measured in `benches/`). Damage is named, never repaired silently: a
//! header that promises more than the file holds is an error.

use crate::decode::{AudioError, Shape, check_finite, check_length, check_rate};

/// How samples are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    U8,
    I16,
    I24,
    I32,
    F32,
    F64,
}

impl Encoding {
    fn bytes(self) -> usize {
        match self {
            Encoding::U8 => 1,
            Encoding::I16 => 2,
            Encoding::I24 => 3,
            Encoding::I32 | Encoding::F32 => 4,
            Encoding::F64 => 8,
        }
    }
}

/// A WAV file's header, and where its samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) rate: u32,
    pub(crate) channels: u16,
    pub(crate) encoding: Encoding,
    pub(crate) data_start: usize,
    pub(crate) data_len: usize,
}

impl Header {
    /// Bytes of a sample of all channels.
    pub(crate) fn frame_bytes(&self) -> usize {
        self.encoding.bytes() * usize::from(self.channels)
    }

    pub(crate) fn shape(&self) -> Shape {
        let samples = (self.data_len / self.frame_bytes()) as u64;
        Shape { rate: self.rate, channels: self.channels, samples }
    }
}

/// Reads the header of a clip of `file_len` bytes from its beginning, or from the whole of it.
pub(crate) fn header(bytes: &[u8], file_len: usize) -> Result<Header, AudioError> {
    let header = recording_header(bytes, file_len)?;
    check_length(header.shape().samples, header.rate)?;
    Ok(header)
}

/// The same for a recording of any length.
pub(crate) fn recording_header(bytes: &[u8], file_len: usize) -> Result<Header, AudioError> {
    if bytes.len() < 12 || &bytes[..4] != b"RIFF" || &bytes[8..12] != b"WAVE" {
        return Err(AudioError::NotAudio);
    }
    let mut format = None;
    let mut at = 12usize;
    while at + 8 <= bytes.len() {
        let name = &bytes[at..at + 4];
        let len = u32_at(bytes, at + 4) as usize;
        let body = at + 8;
        match name {
            b"fmt " => {
                let chunk = bytes.get(body..body + len.min(40)).ok_or(AudioError::Truncated { missing: None })?;
                format = Some(parse_format(chunk)?);
            }
            b"data" => {
                let (rate, channels, encoding) = format.ok_or(AudioError::Malformed("no fmt chunk before the data"))?;
                if len == 0 {
                    return Err(AudioError::Empty);
                }
                let there = file_len.saturating_sub(body);
                if there < len {
                    return Err(AudioError::Truncated { missing: Some((len - there) as u64) });
                }
                if len < encoding.bytes() * usize::from(channels) {
                    return Err(AudioError::Empty);
                }
                return Ok(Header { rate, channels, encoding, data_start: body, data_len: len });
            }
            _ => {}
        }
        // Chunks are padded to even lengths.
        at = body.saturating_add(len).saturating_add(len & 1);
    }
    Err(if at >= file_len { AudioError::Malformed("no data chunk") } else { AudioError::HeaderTooLong })
}

fn parse_format(chunk: &[u8]) -> Result<(u32, u16, Encoding), AudioError> {
    if chunk.len() < 16 {
        return Err(AudioError::Malformed("short fmt chunk"));
    }
    let channels = u16_at(chunk, 2);
    let rate = u32_at(chunk, 4);
    let bits = u16_at(chunk, 14);
    // Extensible: the real tag is the first field of the sub-format.
    let tag = match u16_at(chunk, 0) {
        0xFFFE if chunk.len() >= 26 => u16_at(chunk, 24),
        tag => tag,
    };
    if channels == 0 {
        return Err(AudioError::Malformed("no channels"));
    }
    check_rate(rate)?;
    let encoding = match (tag, bits) {
        (1, 8) => Encoding::U8,
        (1, 16) => Encoding::I16,
        (1, 24) => Encoding::I24,
        (1, 32) => Encoding::I32,
        (3, 32) => Encoding::F32,
        (3, 64) => Encoding::F64,
        _ => return Err(AudioError::Encoding { tag, bits }),
    };
    // 24 bits in four bytes, say, would decode to noise.
    if usize::from(u16_at(chunk, 12)) != encoding.bytes() * usize::from(channels) {
        return Err(AudioError::Malformed("the length of a frame does not match its samples"));
    }
    Ok((rate, channels, encoding))
}

/// Decodes a whole WAV file to mono samples, appended to `out`. Public for the fuzzer and for what is in memory already;
/// for files use [`Decoder`](crate::Decoder).
///
/// # Errors
///
/// [`AudioError`] if the bytes are no WAV file, or a damaged one; `out` may have got some samples by then.
pub fn parse_wav(bytes: &[u8], out: &mut Vec<f32>) -> Result<Shape, AudioError> {
    let header = header(bytes, bytes.len())?;
    decode_frames(&header, &bytes[header.data_start..header.data_start + header.data_len], out)?;
    Ok(header.shape())
}

/// Decodes whole frames of a file with this header to mono samples, appended to `out`.
pub(crate) fn decode_frames(header: &Header, data: &[u8], out: &mut Vec<f32>) -> Result<(), AudioError> {
    let channels = usize::from(header.channels);
    let start = out.len();
    match header.encoding {
        Encoding::U8 => mono(data, channels, out, |[byte]| (f32::from(byte) - 128.0) / 128.0),
        Encoding::I16 => mono(data, channels, out, |bytes| f32::from(i16::from_le_bytes(bytes)) / 32_768.0),
        Encoding::I24 => {
            mono(data, channels, out, |[a, b, c]| i32::from_le_bytes([0, a, b, c]) as f32 / 2_147_483_648.0)
        }
        Encoding::I32 => mono(data, channels, out, |bytes| i32::from_le_bytes(bytes) as f32 / 2_147_483_648.0),
        Encoding::F32 => mono(data, channels, out, f32::from_le_bytes),
        Encoding::F64 => mono(data, channels, out, |bytes| f64::from_le_bytes(bytes) as f32),
    }
    if matches!(header.encoding, Encoding::F32 | Encoding::F64) {
        check_finite(&out[start..])?;
    }
    Ok(())
}

/// Averages the channels of each frame.
fn mono<const N: usize>(data: &[u8], channels: usize, out: &mut Vec<f32>, sample: impl Fn([u8; N]) -> f32) {
    let read = |bytes: &[u8]| sample(bytes.try_into().expect("a chunk of this length"));
    if channels == 1 {
        out.extend(data.chunks_exact(N).map(read));
    } else {
        let scale = 1.0 / channels as f32;
        out.extend(data.chunks_exact(N * channels).map(|frame| frame.chunks_exact(N).map(read).sum::<f32>() * scale));
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::write_wav;

    #[test]
    fn a_cut_at_any_byte_is_an_error_and_the_whole_is_not() {
        let mut bytes = Vec::new();
        write_wav(&[0.5, -0.25, 0.0, 1.0], 22_050, &mut bytes).expect("memory");
        let mut samples = Vec::new();
        let shape = parse_wav(&bytes, &mut samples).expect("whole");
        assert_eq!((shape.rate, shape.channels, shape.samples, samples.len()), (22_050, 1, 4, 4));
        for cut in 0..bytes.len() {
            assert!(parse_wav(&bytes[..cut], &mut Vec::new()).is_err(), "cut at {cut}");
        }
        let cut = parse_wav(&bytes[..bytes.len() - 3], &mut Vec::new());
        assert!(matches!(cut, Err(AudioError::Truncated { missing: Some(3) })));
    }

    #[test]
    fn frames_that_do_not_match_their_samples_are_refused() {
        let mut bytes = Vec::new();
        write_wav(&[0.5; 8], 22_050, &mut bytes).expect("memory");
        bytes[32] = 4; // a frame of four bytes for one sample of two
        assert!(matches!(parse_wav(&bytes, &mut Vec::new()), Err(AudioError::Malformed(_))));
    }
}
