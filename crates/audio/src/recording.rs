//! A recording of any length, decoded block by block: memory does not depend on how long it is.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::decode::{AudioError, Container, HEADER_BYTES, Packets, check_finite, check_rate, flac_shape, open_audio};
use crate::wav::{self, Header};

/// Frames of a WAV file that are read at once.
const BLOCK_FRAMES: usize = 16_384;
/// Of compressed speech that does not say how long it is.
const USUAL_BYTES_PER_SECOND: f64 = 12_000.0;
/// A file whose header is longer than this is none: pictures in tags are before the samples, and large.
const LONGEST_HEADER: u64 = 64 << 20;

/// An audio file that is read from its beginning to its end. Unlike a clip it may have any length.
pub struct Recording {
    kind: Kind,
    rate: u32,
    /// Mono samples so far.
    samples: u64,
    /// Samples that the header promises, if it does.
    promised: Option<u64>,
    /// Bytes of the file.
    bytes: u64,
    /// Decoded to find the rate, and not handed out yet.
    first: Vec<f32>,
}

enum Kind {
    Wav { file: BufReader<File>, header: Header, left: usize, buffer: Vec<u8> },
    Packets(Box<Packets>),
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording").field("rate", &self.rate).field("samples", &self.samples).finish_non_exhaustive()
    }
}

impl Recording {
    /// Opens a WAV, FLAC, MP3 or OGG file; what it is, its content says.
    ///
    /// # Errors
    ///
    /// [`AudioError`] if it is no audio file, or one that is damaged as far as its beginning tells.
    pub fn open(path: &Path) -> Result<Recording, AudioError> {
        let mut file = open_audio(path)?;
        let bytes = file.metadata()?.len();
        if bytes == 0 {
            return Err(AudioError::ZeroBytes);
        }
        let mut head = Vec::with_capacity(HEADER_BYTES);
        (&mut file).take(HEADER_BYTES as u64).read_to_end(&mut head)?;
        let container = Container::of(&head).ok_or(AudioError::NotAudio)?;
        if container == Container::Wav {
            return Recording::wav(file, head, bytes);
        }
        let flac = if container == Container::Flac { flac_shape(&head) } else { None };
        file.seek(SeekFrom::Start(0))?;
        let mut packets = guarded(|| Packets::open(container, Box::new(file), Vec::new()))?;
        // The first packet says what the header may leave open.
        let mut first = Vec::new();
        while first.is_empty() && guarded(|| packets.append(&mut first))? {}
        check_finite(&first)?;
        let (rate, _) = packets.spec.ok_or(AudioError::Empty)?;
        check_rate(rate)?;
        let promised = flac.map(|shape| shape.samples);
        Ok(Recording { kind: Kind::Packets(Box::new(packets)), rate, samples: 0, promised, bytes, first })
    }

    fn wav(mut file: File, mut head: Vec<u8>, bytes: u64) -> Result<Recording, AudioError> {
        let length = usize::try_from(bytes).map_err(|_| AudioError::TooLarge(bytes))?;
        let header = match wav::recording_header(&head, length) {
            Err(AudioError::HeaderTooLong | AudioError::Truncated { missing: None }) if bytes > head.len() as u64 => {
                (&mut file).take(LONGEST_HEADER).read_to_end(&mut head)?;
                wav::recording_header(&head, length)?
            }
            header => header?,
        };
        file.seek(SeekFrom::Start(header.data_start as u64))?;
        let shape = header.shape();
        let left = shape.samples as usize * header.frame_bytes();
        let kind = Kind::Wav { file: BufReader::new(file), header, left, buffer: Vec::new() };
        Ok(Recording { kind, rate: shape.rate, samples: 0, promised: Some(shape.samples), bytes, first: Vec::new() })
    }

    /// Samples per second.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// Samples that were handed out.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Seconds that there are, true or estimated: for showing how far one is.
    pub fn expected_seconds(&self) -> f64 {
        let of_packets = || match &self.kind {
            Kind::Packets(packets) => packets.estimated,
            Kind::Wav { .. } => None,
        };
        match self.promised.or_else(of_packets) {
            Some(samples) => samples as f64 / f64::from(self.rate),
            None => self.bytes as f64 / USUAL_BYTES_PER_SECOND,
        }
    }

    /// Puts the next mono samples into `block`, in place of what was there; none at the end.
    ///
    /// # Errors
    ///
    /// [`AudioError`] if the file is damaged there or ends before it should.
    pub fn read(&mut self, block: &mut Vec<f32>) -> Result<(), AudioError> {
        block.clear();
        if !self.first.is_empty() {
            std::mem::swap(block, &mut self.first);
            self.samples += block.len() as u64;
            return Ok(());
        }
        match &mut self.kind {
            Kind::Wav { file, header, left, buffer } => {
                buffer.resize((*left).min(BLOCK_FRAMES * header.frame_bytes()), 0);
                file.read_exact(buffer)?;
                *left -= buffer.len();
                wav::decode_frames(header, buffer, block)?;
            }
            Kind::Packets(packets) => {
                // A packet may have no samples, at the beginning of an MP3 say.
                while block.is_empty() && guarded(|| packets.append(block))? {}
                check_finite(block)?;
                if block.is_empty() {
                    packets.finish(self.samples, self.promised)?;
                }
            }
        }
        self.samples += block.len() as u64;
        Ok(())
    }
}

/// Other people's decoders meet files nobody foresaw; a panic of theirs is that file's fault, not ours.
fn guarded<T>(work: impl FnOnce() -> Result<T, AudioError>) -> Result<T, AudioError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(AudioError::Decoder("the decoder panicked".to_owned())))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::{Decoder, write_flac, write_wav};

    fn samples() -> Vec<f32> {
        (0..50_000).map(|n| (n as f32 * 0.05).sin() * 0.7).collect()
    }

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(bytes).expect("written");
        file
    }

    fn read(bytes: &[u8]) -> Result<(u32, Vec<f32>), AudioError> {
        let file = file(bytes);
        let mut recording = Recording::open(file.path())?;
        let (mut all, mut block) = (Vec::new(), Vec::new());
        loop {
            recording.read(&mut block)?;
            if block.is_empty() {
                return Ok((recording.rate(), all));
            }
            all.extend_from_slice(&block);
        }
    }

    #[test]
    fn block_by_block_it_is_the_same_as_at_once() {
        let (mut wav, mut flac) = (Vec::new(), Vec::new());
        write_wav(&samples(), 22_050, &mut wav).expect("memory");
        write_flac(&samples(), 22_050, &mut flac).expect("memory");
        for bytes in [&wav, &flac] {
            let mut whole = Vec::new();
            let shape = Decoder::new().decode(&mut std::io::Cursor::new(bytes), &mut whole).expect("whole");
            assert_eq!(read(bytes).expect("whole"), (shape.rate, whole));
        }
    }

    #[test]
    fn a_recording_that_was_cut_off_is_an_error() {
        let (mut wav, mut flac) = (Vec::new(), Vec::new());
        write_wav(&samples(), 22_050, &mut wav).expect("memory");
        write_flac(&samples(), 22_050, &mut flac).expect("memory");
        assert!(matches!(read(&wav[..wav.len() / 2]), Err(AudioError::Truncated { missing: Some(_) })));
        assert!(matches!(read(&flac[..flac.len() / 2]), Err(AudioError::Truncated { .. } | AudioError::Decoder(_))));
        assert!(matches!(read(b""), Err(AudioError::ZeroBytes)));
        assert!(matches!(read(b"1\n00:00:00,000 --> 00:00:01,000\nhi\n"), Err(AudioError::NotAudio)));
    }
}
