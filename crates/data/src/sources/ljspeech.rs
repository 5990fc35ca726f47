//! The LJSpeech layout: `metadata.csv` with rows `id|text` or `id|text|normalized text`, `wavs/ID.wav` (or .flac, .mp3,
//! .ogg), and `speakers.csv` if there are several.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

use tandem_audio::{AudioError, open_audio};

use super::metadata::{Metadata, MetadataError, Speakers, parse_row};
use super::{AudioBytes, Part, Record, Source};
use crate::fault::ClipFault;
use crate::index::{file_identity, hash_parts};

/// Extensions tried for a clip, in this order; the last means that the id has its extension itself.
const EXTENSIONS: [&str; 9] = [".wav", ".flac", ".mp3", ".ogg", ".WAV", ".FLAC", ".MP3", ".OGG", ""];
/// Not looked for yet.
const UNKNOWN: u8 = u8::MAX;

/// A directory in the LJSpeech layout.
#[derive(Debug)]
pub struct LjSpeech {
    dir: PathBuf,
    audio_dir: String,
    metadata: Metadata,
    speakers: Speakers,
    /// Which of the extensions the file of each clip has.
    extensions: Vec<AtomicU8>,
}

impl LjSpeech {
    /// Opens a directory whose audio files are in `audio_dir` below it.
    ///
    /// # Errors
    ///
    /// [`MetadataError`] if it is no corpus.
    pub fn open(dir: &Path, audio_dir: &str) -> Result<LjSpeech, MetadataError> {
        LjSpeech::with_metadata(dir, audio_dir, Metadata::open(dir)?)
    }

    /// Some of its clips, if it lists them; the directory of the audio files must exist if `needs_audio`.
    pub(super) fn open_part(
        dir: &Path,
        part: Part,
        audio_dir: &str,
        needs_audio: bool,
    ) -> Result<Option<LjSpeech>, MetadataError> {
        let metadata = match part {
            Part::All => Metadata::open(dir)?,
            Part::Training => Metadata::open_training(dir)?,
            Part::Validation => match Metadata::open_validation(dir) {
                Some(metadata) => metadata?,
                None => return Ok(None),
            },
        };
        let audio = dir.join(audio_dir);
        if needs_audio && !audio.is_dir() {
            return Err(MetadataError::NoAudioDir(audio));
        }
        LjSpeech::with_metadata(dir, audio_dir, metadata).map(Some)
    }

    /// The same for a metadata file of one's own choice.
    ///
    /// # Errors
    ///
    /// [`MetadataError`] if its `speakers.csv` cannot be used.
    pub fn with_metadata(dir: &Path, audio_dir: &str, metadata: Metadata) -> Result<LjSpeech, MetadataError> {
        let speakers = Speakers::open(dir)?;
        let extensions = (0..metadata.len()).map(|_| AtomicU8::new(UNKNOWN)).collect();
        Ok(LjSpeech { dir: dir.to_owned(), audio_dir: audio_dir.to_owned(), metadata, speakers, extensions })
    }

    /// The file of a clip: looked for once, then its extension is known.
    fn file(&self, clip: u32) -> Result<PathBuf, ClipFault> {
        let id = self.read_id(clip)?;
        let at = |extension: &str| self.dir.join(&self.audio_dir).join(format!("{id}{extension}"));
        let known = self.extensions[clip as usize].load(Ordering::Relaxed);
        if let Some(extension) = EXTENSIONS.get(usize::from(known)) {
            return Ok(at(extension));
        }
        for (number, extension) in EXTENSIONS.iter().enumerate() {
            let path = at(extension);
            match path.symlink_metadata() {
                Ok(_) => {
                    self.extensions[clip as usize].store(number as u8, Ordering::Relaxed);
                    return Ok(path);
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(ClipFault::Audio(error.into())),
            }
        }
        Err(ClipFault::Missing)
    }

    fn read_id(&self, clip: u32) -> Result<String, ClipFault> {
        let mut buffer = Vec::new();
        Ok(parse_row(self.metadata.read(clip, &mut buffer)?)?.id.into_owned())
    }
}

impl Source for LjSpeech {
    fn len(&self) -> usize {
        self.metadata.len()
    }

    fn record(&self, clip: u32) -> Result<Record, ClipFault> {
        let mut buffer = Vec::new();
        let row = parse_row(self.metadata.read(clip, &mut buffer)?)?;
        let (speaker, code) = self.speakers.of(&row.id)?;
        let language = code.and_then(|code| code.parse().ok());
        Ok(Record { id: row.id.into_owned(), text: row.text.into_owned(), speaker, language })
    }

    fn audio(&self, clip: u32) -> Result<Box<dyn AudioBytes + '_>, ClipFault> {
        Ok(Box::new(open_audio(&self.file(clip)?)?))
    }

    fn identity(&self, clip: u32) -> Result<u64, ClipFault> {
        let path = self.file(clip)?;
        let (size, date) = file_identity(&path).map_err(|error| ClipFault::from(AudioError::Io(error)))?;
        // The names alone: the corpus may be reached by another path next time.
        Ok(hash_parts(&[
            path.file_name().unwrap_or_default().as_encoded_bytes(),
            self.audio_dir.as_bytes(),
            &size.to_le_bytes(),
            &date.to_le_bytes(),
        ]))
    }

    fn speakers(&self) -> &[String] {
        &self.speakers.names
    }

    fn id(&self, clip: u32) -> Option<String> {
        self.read_id(clip).ok()
    }

    fn line(&self, clip: u32) -> u64 {
        self.metadata.line(clip)
    }

    fn path(&self, clip: u32) -> Option<PathBuf> {
        let file = self.file(clip).ok();
        file.or_else(|| Some(self.dir.join(&self.audio_dir).join(format!("{}.wav", self.read_id(clip).ok()?))))
    }

    fn dir(&self) -> Option<&Path> {
        Some(&self.dir)
    }

    fn key(&self) -> String {
        let file = self.metadata.path().file_name().unwrap_or_default().to_string_lossy();
        format!("ljspeech {file} {}", self.audio_dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clip_stays_itself_by_any_path_until_its_audio_changes() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("wavs")).expect("writable");
        std::fs::write(dir.path().join("metadata.csv"), "a|one\nb|two\n").expect("writable");
        std::fs::write(dir.path().join("wavs/a.flac"), b"sound").expect("writable");
        let identity = |dir: &Path| LjSpeech::open(dir, "wavs").expect("a corpus").identity(0).expect("there");
        let before = identity(dir.path());
        assert_eq!(identity(&dir.path().join("wavs/..")), before);
        std::fs::write(dir.path().join("wavs/a.flac"), b"another sound").expect("writable");
        assert_ne!(identity(dir.path()), before);
        let source = LjSpeech::open(dir.path(), "wavs").expect("a corpus");
        assert!(source.path(0).is_some_and(|path| path.ends_with("wavs/a.flac")));
        assert!(matches!(source.audio(1), Err(ClipFault::Missing)));
        assert_eq!((source.id(1), source.line(1)), (Some("b".to_owned()), 2));
    }
}
