//! Event files for TensorBoard: scalars, images, audio and text of a run.
//!
//! Scalars, images and audio are written as `simple_value`, `image` and `audio` (as PyTorch does): TensorBoard turns
//! them into its newer tensors while reading, and other readers know these best. Text exists as a tensor only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const PREFIX: &str = "events.out.tfevents.";
/// Bytes that may wait for a flush before another record is taken.
const BUFFER: usize = 64 * 1024;

/// One event file, open for writing. What waits in memory is written by [`EventFile::flush`] and when it is dropped.
#[derive(Debug)]
pub struct EventFile {
    path: PathBuf,
    file: File,
    pending: Vec<u8>,
    clock: fn() -> f64,
}

impl EventFile {
    /// Starts a run in `dir`, which is made if need be. Values of older files there are dropped by TensorBoard.
    pub fn create(dir: &Path) -> io::Result<EventFile> {
        EventFile::resume(dir, 0)
    }

    /// Resumes a run in a new file. `step` is the first step that is done (again): TensorBoard drops what older
    /// files say of it and of later ones.
    pub fn resume(dir: &Path, step: u64) -> io::Result<EventFile> {
        EventFile::open(dir, step, now)
    }

    /// Like [`EventFile::resume`], with a clock that gives the seconds since 1970.
    pub fn open(dir: &Path, step: u64, clock: fn() -> f64) -> io::Result<EventFile> {
        fs::create_dir_all(dir)?;
        let (path, file) = new_file(dir, clock() as u64)?;
        let mut events = EventFile { path, file, pending: Vec::new(), clock };
        events.event(0, Message::default().bytes(3, b"brain.Event:2"))?;
        // In every file, the first one too: TensorBoard purges from the second START of a run on.
        let start = Message::default().int(1, 1);
        events.event(step, Message::default().message(7, start))?;
        events.flush()?;
        Ok(events)
    }

    /// Where it is written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a point to the curve `tag`. TensorBoard keeps 32 bits of it.
    pub fn scalar(&mut self, step: u64, tag: &str, value: f64) -> io::Result<()> {
        self.value(step, tag, Message::default().fixed(2, &(value as f32).to_le_bytes()))
    }

    /// Adds a PNG of this size to the images `tag`.
    pub fn image(&mut self, step: u64, tag: &str, png: &[u8], width: u32, height: u32) -> io::Result<()> {
        let image = Message::default().int(1, height.into()).int(2, width.into()).int(3, 3).bytes(4, png);
        self.value(step, tag, Message::default().message(4, image))
    }

    /// Adds a mono WAV file to the audio `tag`.
    pub fn audio(&mut self, step: u64, tag: &str, wav: &[u8], sample_rate: u32, frames: u64) -> io::Result<()> {
        let rate = (sample_rate as f32).to_le_bytes();
        let audio = Message::default().fixed(1, &rate).int(2, 1).int(3, frames).bytes(4, wav).bytes(5, b"audio/wav");
        // TensorBoard's fast reader does not look at the type in `audio`: 11 is WAV.
        let metadata = metadata("audio", Message::default().int(2, 11), 3);
        self.value(step, tag, Message::default().message(6, audio).message(9, metadata))
    }

    /// Adds text in Markdown to the texts `tag`.
    pub fn text(&mut self, step: u64, tag: &str, markdown: &str) -> io::Result<()> {
        let tensor = Message::default().int(1, 7).message(2, Message::default()).bytes(8, markdown.as_bytes());
        let metadata = metadata("text", Message::default(), 2);
        self.value(step, tag, Message::default().message(8, tensor).message(9, metadata))
    }

    /// Hands all that waits to the operating system. After an error, the rest waits for the next try.
    pub fn flush(&mut self) -> io::Result<()> {
        while !self.pending.is_empty() {
            match self.file.write(&self.pending) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => drop(self.pending.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn value(&mut self, step: u64, tag: &str, value: Message) -> io::Result<()> {
        let summary = Message::default().message(1, value.bytes(1, tag.as_bytes()));
        self.event(step, Message::default().message(5, summary))
    }

    fn event(&mut self, step: u64, what: Message) -> io::Result<()> {
        // Before the record is added: on a full disk records are lost whole, and memory does not fill up.
        if self.pending.len() >= BUFFER {
            self.flush()?;
        }
        let event = what.fixed(1, &(self.clock)().to_le_bytes()).int(2, step);
        frame(&event.0, &mut self.pending);
        Ok(())
    }
}

impl Drop for EventFile {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// A file whose name sorts after all older ones, because TensorBoard reads them in that order.
fn new_file(dir: &Path, seconds: u64) -> io::Result<(PathBuf, File)> {
    let names = fs::read_dir(dir)?.filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.to_owned()));
    let newest = names.filter_map(|name| name.strip_prefix(PREFIX)?.split('.').next()?.parse::<u64>().ok()).max();
    let seconds = seconds.max(newest.map_or(0, |newest| newest.saturating_add(1)));
    let mut number = 0;
    loop {
        let path = dir.join(format!("{PREFIX}{seconds}.{}.{}.{number}", host(), std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            file => return Ok((path, file?)),
        }
    }
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    let name = name.or_else(|_| std::env::var("COMPUTERNAME")).unwrap_or("localhost".to_owned());
    name.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-').collect()
}

/// A protobuf message in the making.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn int(mut self, field: u64, value: u64) -> Message {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    /// A float or a double.
    fn fixed(mut self, field: u64, bytes: &[u8]) -> Message {
        self.varint(field << 3 | if bytes.len() == 8 { 1 } else { 5 });
        self.0.extend(bytes);
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Message {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn message(self, field: u64, message: Message) -> Message {
        self.bytes(field, &message.0)
    }
}

/// Which tab shows a value, and what its data are: 2 is a tensor, 3 are blobs.
fn metadata(plugin: &str, content: Message, class: u64) -> Message {
    let plugin = Message::default().bytes(1, plugin.as_bytes()).message(2, content);
    Message::default().message(1, plugin).int(4, class)
}

/// A TFRecord: the length, its checksum, the data, its checksum.
fn frame(data: &[u8], out: &mut Vec<u8>) {
    let masked = |bytes| crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let length = (data.len() as u64).to_le_bytes();
    out.extend([&length, &masked(&length)[..], data, &masked(data)].concat());
}

/// Bit by bit: audio of 500 kB takes about 10 ms, and is written rarely.
fn crc32c(data: &[u8]) -> u32 {
    let bit = |crc: u32, _| (crc >> 1) ^ ((crc & 1) * 0x82f6_3b78);
    !data.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many whole records there are.
    fn records(bytes: &[u8]) -> usize {
        let Some((length, rest)) = bytes.split_first_chunk() else { return 0 };
        rest.get(u64::from_le_bytes(*length) as usize + 8..).map_or(0, |rest| 1 + records(rest))
    }

    fn dir(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("tandem-events-{}-{name}", std::process::id()))
    }

    #[test]
    fn checksums_frames_and_varints() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa, "vectors of RFC 3720");
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let mut framed = Vec::new();
        frame(b"", &mut framed);
        assert_eq!(framed, [0, 0, 0, 0, 0, 0, 0, 0, 0x29, 0x03, 0x98, 0x07, 0xd8, 0xea, 0x82, 0xa2]);

        let bytes = |value| Message::default().int(1, value).0[1..].to_vec();
        assert_eq!((bytes(0), bytes(127), bytes(300)), (vec![0], vec![127], vec![0xac, 2]));
        assert_eq!(bytes(u64::MAX), [[0xff; 9].as_slice(), &[1]].concat());
    }

    #[test]
    fn a_cut_off_file_keeps_its_whole_records() -> io::Result<()> {
        let mut events = EventFile::open(&dir("cut"), 0, || 1.5)?;
        let path = events.path().to_owned();
        events.scalar(3, "loss", 0.5)?;
        let start = fs::read(&path)?;
        assert_eq!(records(&start), 2, "the start is there at once");
        assert_eq!(&start[12..36], b"\x1a\x0dbrain.Event:2\x09\0\0\0\0\0\0\xf8\x3f");
        drop(events);
        let whole = fs::read(&path)?;
        assert_eq!(records(&whole), 3);
        assert!((start.len()..whole.len()).all(|end| records(&whole[..end]) == 2));
        fs::remove_dir_all(dir("cut"))
    }

    #[test]
    fn each_file_sorts_after_the_older_ones() -> io::Result<()> {
        let paths = (0..12).map(|step| Ok(EventFile::open(&dir("two"), step, || 1e9)?.path().to_owned()));
        let paths = paths.collect::<io::Result<Vec<_>>>()?;
        assert!(paths.is_sorted());
        assert!(paths[0].to_string_lossy().contains("events.out.tfevents.1000000000."));
        assert_eq!(fs::read_dir(dir("two"))?.count(), 12);
        fs::remove_dir_all(dir("two"))
    }
}
