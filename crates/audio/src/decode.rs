//! Any audio file to mono samples, and its length without decoding it where the format allows.

use std::fmt;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use symphonia::core::codecs::audio::{AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error as SymphoniaError;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::{MediaSource, MediaSourceStream};
use symphonia::core::meta::MetadataOptions;

use crate::wav;

/// Enough for every header seen in the wild; WAV files with more before the data are read whole.
pub(crate) const HEADER_BYTES: usize = 4096;
/// Speech clips are short; a file or a clip beyond these is a mistake that should not fill the memory.
const LARGEST_FILE: u64 = 1 << 30;
/// See [`LARGEST_FILE`].
const LONGEST_S: u64 = 600;
/// No recording has more samples a second.
const HIGHEST_RATE: u32 = 768_000;

/// What is known about a clip without its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Samples per second.
    pub rate: u32,
    /// Channels in the file (they are averaged to one).
    pub channels: u16,
    /// Samples per channel.
    pub samples: u64,
}

impl Shape {
    /// Its duration in seconds.
    pub fn seconds(&self) -> f64 {
        self.samples as f64 / f64::from(self.rate)
    }
}

/// What a file really is, whatever its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Container {
    /// RIFF WAVE.
    Wav,
    /// FLAC.
    Flac,
    /// Ogg (Vorbis).
    Ogg,
    /// MPEG audio.
    Mp3,
}

impl Container {
    /// From the first bytes.
    pub(crate) fn of(bytes: &[u8]) -> Option<Container> {
        match bytes {
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => Some(Container::Wav),
            [b'f', b'L', b'a', b'C', ..] => Some(Container::Flac),
            [b'O', b'g', b'g', b'S', ..] => Some(Container::Ogg),
            [b'I', b'D', b'3', ..] => Some(Container::Mp3),
            [0xFF, b, ..] if b & 0xE0 == 0xE0 && b & 0x06 != 0 => Some(Container::Mp3),
            _ => None,
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Container::Wav => "wav",
            Container::Flac => "flac",
            Container::Ogg => "ogg",
            Container::Mp3 => "mp3",
        }
    }
}

/// Why a file gives no usable samples.
#[derive(Debug)]
#[non_exhaustive]
pub enum AudioError {
    /// It cannot be opened or read.
    Io(io::Error),
    /// It is a folder, a pipe or a device.
    NotAFile,
    /// Zero bytes.
    ZeroBytes,
    /// Larger than a clip can be.
    TooLarge(u64),
    /// Longer than a clip can be.
    TooLong,
    /// Neither WAV, FLAC, OGG nor MP3.
    NotAudio,
    /// A header, but no samples.
    Empty,
    /// The header promises more than the file holds.
    Truncated {
        /// How many bytes are missing, if the header says it.
        missing: Option<u64>,
    },
    /// The file contradicts its format.
    Malformed(&'static str),
    /// The header is longer than what was read.
    HeaderTooLong,
    /// A sample rate that is none.
    Rate(u32),
    /// A WAV encoding that is not supported.
    Encoding {
        /// The format tag.
        tag: u16,
        /// Bits per sample.
        bits: u16,
    },
    /// The decoder's own words.
    Decoder(String),
    /// The samples are unusable.
    Samples(SampleFault),
}

/// What makes samples unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SampleFault {
    /// NaN or infinite, first at this sample.
    NotFinite(usize),
}

impl fmt::Display for AudioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AudioError::Io(error) => write!(f, "{error}"),
            AudioError::NotAFile => write!(f, "not a regular file"),
            AudioError::ZeroBytes => write!(f, "zero bytes"),
            AudioError::TooLarge(bytes) => write!(f, "{bytes} bytes, too large for a clip"),
            AudioError::TooLong => write!(f, "longer than {} minutes; cut it into sentences", LONGEST_S / 60),
            AudioError::NotAudio => write!(f, "not a WAV, FLAC, OGG or MP3 file"),
            AudioError::Empty => write!(f, "no samples"),
            AudioError::Truncated { missing: Some(bytes) } => write!(f, "truncated, {bytes} bytes are missing"),
            AudioError::Truncated { missing: None } => write!(f, "truncated"),
            AudioError::Malformed(what) => write!(f, "malformed: {what}"),
            AudioError::HeaderTooLong => write!(f, "malformed: no data chunk in sight"),
            AudioError::Rate(rate) => write!(f, "impossible sample rate {rate}"),
            AudioError::Encoding { tag, bits } => {
                write!(f, "unsupported WAV encoding (format tag {tag}, {bits} bits)")
            }
            AudioError::Decoder(message) => write!(f, "{message}"),
            AudioError::Samples(SampleFault::NotFinite(at)) => write!(f, "sample {at} is not a finite number"),
        }
    }
}

impl std::error::Error for AudioError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AudioError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for AudioError {
    fn from(error: io::Error) -> Self {
        AudioError::Io(error)
    }
}

/// Opens an audio file, for [`probe`] and [`Decoder::decode`]. A pipe would block and a directory would give a confusing
/// error, so both are refused first.
///
/// # Errors
///
/// [`AudioError`] if it is no regular file or cannot be opened.
pub fn open_audio(path: &Path) -> Result<File, AudioError> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(AudioError::NotAFile);
    }
    Ok(File::open(path)?)
}

/// How many bytes there are; none and far too many are refused.
fn length(bytes: &mut (impl Seek + ?Sized)) -> Result<u64, AudioError> {
    let length = bytes.seek(SeekFrom::End(0))?;
    bytes.seek(SeekFrom::Start(0))?;
    match length {
        0 => Err(AudioError::ZeroBytes),
        length if length > LARGEST_FILE => Err(AudioError::TooLarge(length)),
        length => Ok(length),
    }
}

/// A clip's shape. WAV and most FLAC files say it in their headers; what does not is decoded.
///
/// # Errors
///
/// [`AudioError`] if it is no audio file, or one that is damaged as far as its header tells.
pub fn probe(bytes: &mut (impl Read + Seek + ?Sized)) -> Result<Shape, AudioError> {
    let len = length(bytes)?;
    let mut head = vec![0; HEADER_BYTES.min(len as usize)];
    bytes.read_exact(&mut head)?;
    match Container::of(&head).ok_or(AudioError::NotAudio)? {
        Container::Wav => match wav::header(&head, len as usize) {
            Ok(header) => Ok(header.shape()),
            Err(AudioError::HeaderTooLong | AudioError::Truncated { missing: None }) if len > HEADER_BYTES as u64 => {
                bytes.read_to_end(&mut head)?;
                Ok(wav::header(&head, len as usize)?.shape())
            }
            Err(error) => Err(error),
        },
        Container::Flac => match flac_shape(&head) {
            Some(shape) => {
                check_rate(shape.rate)?;
                check_length(shape.samples, shape.rate)?;
                Ok(shape)
            }
            None => Decoder::new().decode(bytes, &mut Vec::new()),
        },
        // Their headers count encoder padding or are missing: only decoding tells the true length.
        Container::Ogg | Container::Mp3 => Decoder::new().decode(bytes, &mut Vec::new()),
    }
}

/// From the STREAMINFO block, which is always first.
pub(crate) fn flac_shape(head: &[u8]) -> Option<Shape> {
    let info = head.get(8..42)?;
    if head[4] & 0x7F != 0 {
        return None;
    }
    let packed = u64::from_be_bytes(info[10..18].try_into().ok()?);
    let (rate, samples) = ((packed >> 44) as u32, packed & 0xF_FFFF_FFFF);
    let channels = ((packed >> 41) & 7) as u16 + 1;
    (rate > 0 && samples > 0).then_some(Shape { rate, channels, samples })
}

/// Decodes files; keeps its buffers for the next one.
#[derive(Debug)]
pub struct Decoder {
    bytes: Vec<u8>,
    interleaved: Vec<f32>,
    longest_s: u64,
    highest_rate: u32,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder { bytes: Vec::new(), interleaved: Vec::new(), longest_s: LONGEST_S, highest_rate: HIGHEST_RATE }
    }
}

impl Decoder {
    /// With empty buffers.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// The same for files of at most so many seconds and samples a second: what a stranger sends may be small and unfold to
    /// gigabytes.
    #[must_use]
    pub fn at_most(self, seconds: u32, rate: u32) -> Decoder {
        Decoder { longest_s: LONGEST_S.min(seconds.into()), highest_rate: HIGHEST_RATE.min(rate), ..self }
    }

    fn check(&self, samples: u64, rate: u32) -> Result<(), AudioError> {
        check_rate(rate)?;
        match rate {
            rate if rate > self.highest_rate => Err(AudioError::Rate(rate)),
            rate if samples > self.longest_s * u64::from(rate) => Err(AudioError::TooLong),
            _ => Ok(()),
        }
    }

    /// Appends the mono samples of an audio file, read from its beginning, to `out`, at the file's own sample rate. What
    /// it is, its content says, not its name. [`open_audio`] opens one on disk.
    ///
    /// # Errors
    ///
    /// [`AudioError`] if it is no audio file, or a damaged one; `out` may have got some samples by then.
    pub fn decode(&mut self, bytes: &mut (impl Read + Seek + ?Sized), out: &mut Vec<f32>) -> Result<Shape, AudioError> {
        let len = length(bytes)?;
        self.bytes.clear();
        self.bytes.reserve(len as usize + 1);
        bytes.read_to_end(&mut self.bytes)?;
        let shape = match Container::of(&self.bytes).ok_or(AudioError::NotAudio)? {
            Container::Wav => wav::parse_wav(&self.bytes, out)?,
            // Other people's decoders meet files nobody foresaw; a panic of theirs is that file's fault, not ours.
            container => catch_unwind(AssertUnwindSafe(|| self.with_symphonia(container, out)))
                .unwrap_or_else(|_| Err(AudioError::Decoder("the decoder panicked".to_owned())))?,
        };
        self.check(shape.samples, shape.rate)?;
        Ok(shape)
    }

    fn with_symphonia(&mut self, container: Container, out: &mut Vec<f32>) -> Result<Shape, AudioError> {
        let flac = if container == Container::Flac { flac_shape(&self.bytes) } else { None };
        let source = Box::new(Cursor::new(std::mem::take(&mut self.bytes)));
        let mut packets = Packets::open(container, source, std::mem::take(&mut self.interleaved))?;
        let start = out.len();
        while packets.append(out)? {
            let rate = packets.spec.map_or(0, |(rate, _)| rate);
            self.check((out.len() - start) as u64, rate)?;
        }
        let samples = (out.len() - start) as u64;
        check_finite(&out[start..])?;
        let (rate, channels) = packets.finish(samples, flac.map(|shape| shape.samples))?;
        self.interleaved = packets.interleaved;
        Ok(Shape { rate, channels, samples })
    }
}

/// The packets of an audio file, one after the other, by symphonia.
pub(crate) struct Packets {
    container: Container,
    format: Box<dyn FormatReader>,
    decoder: Box<dyn AudioDecoder>,
    track: u32,
    /// Samples that the track says it has, if that can be believed.
    promised: Option<u64>,
    /// The same, true or estimated.
    pub(crate) estimated: Option<u64>,
    /// Rate and channels, from the first packet on.
    pub(crate) spec: Option<(u32, u16)>,
    interleaved: Vec<f32>,
}

impl Packets {
    pub(crate) fn open(
        container: Container,
        source: Box<dyn MediaSource>,
        interleaved: Vec<f32>,
    ) -> Result<Packets, AudioError> {
        let stream = MediaSourceStream::new(source, Default::default());
        let mut hint = Hint::new();
        hint.with_extension(container.extension());
        let format = symphonia::default::get_probe()
            .probe(&hint, stream, FormatOptions::default(), MetadataOptions::default())
            .map_err(decoder_error)?;
        let no_track = || AudioError::Decoder("no audio track".to_owned());
        let track = format.default_track(TrackType::Audio).ok_or_else(no_track)?;
        let id = track.id;
        // An MP3 without a length in its tag gets one estimated from its beginning; trimming to that loses speech.
        let exact = container != Container::Mp3 || track.delay.is_some();
        let estimated = track.num_frames;
        let promised = estimated.filter(|_| exact);
        let options = AudioDecoderOptions::default().gapless(exact);
        let parameters = track.codec_params.as_ref().and_then(|params| params.audio()).ok_or_else(no_track)?;
        let decoder =
            symphonia::default::get_codecs().make_audio_decoder(parameters, &options).map_err(decoder_error)?;
        Ok(Packets { container, format, decoder, track: id, promised, estimated, spec: None, interleaved })
    }

    /// Appends the mono samples of the next packet; whether there was one.
    pub(crate) fn append(&mut self, out: &mut Vec<f32>) -> Result<bool, AudioError> {
        loop {
            let packet = match self.format.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => return Ok(false),
                Err(SymphoniaError::IoError(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(AudioError::Truncated { missing: None });
                }
                Err(error) => return Err(decoder_error(error)),
            };
            if packet.track_id != self.track {
                continue;
            }
            let decoded = self.decoder.decode(&packet).map_err(decoder_error)?;
            let (rate, channels) = (decoded.spec().rate(), decoded.spec().channels().count());
            if *self.spec.get_or_insert((rate, channels as u16)) != (rate, channels as u16) || channels == 0 {
                return Err(AudioError::Malformed("the rate or the channels change within the file"));
            }
            decoded.copy_to_vec_interleaved(&mut self.interleaved);
            if channels == 1 {
                out.extend_from_slice(&self.interleaved);
            } else {
                let scale = 1.0 / channels as f32;
                out.extend(self.interleaved.chunks_exact(channels).map(|frame| frame.iter().sum::<f32>() * scale));
            }
            return Ok(true);
        }
    }

    /// Rate and channels, when so many samples are all there were and FLAC's header promises so many.
    pub(crate) fn finish(&self, samples: u64, flac: Option<u64>) -> Result<(u32, u16), AudioError> {
        let cut = self.container == Container::Mp3 && self.promised.is_some_and(|promised| samples < promised);
        match flac {
            _ if cut && self.spec.is_some() => Err(AudioError::Truncated { missing: None }),
            _ if samples == 0 => Err(AudioError::Empty),
            // The stream's own count tells of a cut that the last whole frame hides.
            Some(promised) if samples < promised => Err(AudioError::Truncated { missing: None }),
            _ => self.spec.ok_or(AudioError::Empty),
        }
    }
}

/// The rates that recordings have.
pub(crate) fn check_rate(rate: u32) -> Result<(), AudioError> {
    if (1000..=HIGHEST_RATE).contains(&rate) { Ok(()) } else { Err(AudioError::Rate(rate)) }
}

pub(crate) fn check_length(samples: u64, rate: u32) -> Result<(), AudioError> {
    if samples <= LONGEST_S * u64::from(rate) { Ok(()) } else { Err(AudioError::TooLong) }
}

/// Whole numbers are always finite; formats with floats, and decoders that compute with them, may not be.
pub(crate) fn check_finite(samples: &[f32]) -> Result<(), AudioError> {
    const INFINITY: u32 = 0x7F80_0000;
    // The largest bit pattern without its sign: one pass that the compiler vectorises.
    let largest = samples.iter().fold(0, |largest, sample| largest.max(sample.to_bits() & 0x7FFF_FFFF));
    if largest < INFINITY {
        return Ok(());
    }
    let at = samples.iter().position(|sample| !sample.is_finite()).unwrap_or(0);
    Err(AudioError::Samples(SampleFault::NotFinite(at)))
}

fn decoder_error(error: SymphoniaError) -> AudioError {
    match error {
        SymphoniaError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            AudioError::Truncated { missing: None }
        }
        error => AudioError::Decoder(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As audio books have one: symphonia reads over a tag only if it is built with what reads tags, and searches a megabyte otherwise.
    #[test]
    fn an_mp3_with_a_cover_of_two_megabytes_is_read_like_one_without() {
        // Frames of silence: MPEG 1, layer III, 128 kbit/s, 44.1 kHz, mono; 417 bytes each.
        let frames: Vec<u8> = (0..40).flat_map(|_| [0xFF, 0xFB, 0x90, 0xC4].into_iter().chain([0; 413])).collect();
        // A picture that looks like the beginning of frames.
        let mut picture = b"\0image/jpeg\0\x03\0".to_vec();
        picture.extend([0xFF, 0xFB, 0x90, 0xC4].repeat(500_000));
        let mut tag = b"APIC".to_vec();
        tag.extend((picture.len() as u32).to_be_bytes());
        tag.extend([0, 0]);
        tag.extend(picture);
        let size = tag.len() as u32;
        let mut file = b"ID3\x03\0\0".to_vec();
        file.extend([21, 14, 7, 0].map(|shift| (size >> shift) as u8 & 0x7F));
        file.extend(tag);
        file.extend(&frames);
        let decoded = |bytes: &[u8]| {
            let mut samples = Vec::new();
            let shape = Decoder::new().decode(&mut Cursor::new(bytes), &mut samples).map_err(|error| error.to_string());
            (shape, samples)
        };
        let (shape, samples) = decoded(&frames);
        assert_eq!(shape.as_ref().map(|shape| (shape.rate, shape.channels)), Ok((44_100, 1)));
        assert!(samples.len() > 30 * 1152, "{}", samples.len());
        assert_eq!(decoded(&file), (shape, samples));
    }
}
