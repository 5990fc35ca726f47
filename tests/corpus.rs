//! Small corpora for tests, made on the spot: tones of different lengths with matching texts.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A corpus in a folder of its own, gone with the value.
pub(crate) struct Corpus {
    dir: TempDir,
    rows: Vec<String>,
}

/// Sixteen bits, mono, 22,050 Hz.
pub(crate) fn wav(samples: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    tandem_audio::write_wav(samples, 22_050, &mut bytes).expect("memory");
    bytes
}

/// A WAV of any format: tag 1 is PCM, 3 is float.
pub(crate) fn wav_of(tag: u16, channels: u16, bits: u16, rate: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + data.len() as u32).to_le_bytes());
    bytes.extend(b"WAVEfmt ");
    bytes.extend(16u32.to_le_bytes());
    bytes.extend(tag.to_le_bytes());
    bytes.extend(channels.to_le_bytes());
    bytes.extend(rate.to_le_bytes());
    let frame = u32::from(channels) * u32::from(bits) / 8;
    bytes.extend((rate * frame).to_le_bytes());
    bytes.extend((frame as u16).to_le_bytes());
    bytes.extend(bits.to_le_bytes());
    bytes.extend(b"data");
    bytes.extend((data.len() as u32).to_le_bytes());
    bytes.extend(data);
    bytes
}

/// A tone with overtones; clip `n` has its own pitch and length.
pub(crate) fn tone(n: usize) -> Vec<f32> {
    let (length, pitch) = (11_025 + n * 977 % 22_050, 110.0 + (n * 37 % 200) as f32);
    (0..length)
        .map(|at| {
            let phase = std::f32::consts::TAU * pitch * at as f32 / 22_050.0;
            0.2 * (phase.sin() + 0.5 * (2.0 * phase).sin() + 0.1 * ((at * 7919 % 1009) as f32 / 1009.0 - 0.5))
        })
        .collect()
}

impl Corpus {
    /// `clips` good clips, `c000` to `c…`.
    pub(crate) fn new(clips: usize) -> Corpus {
        let mut corpus = Corpus { dir: tempfile::tempdir().expect("a folder"), rows: Vec::new() };
        fs::create_dir(corpus.wavs()).expect("writable");
        for n in 0..clips {
            let samples = tone(n);
            // About fifteen letters a second, as people speak; no two texts alike.
            let text: String = "the quick brown fox jumps over a lazy dog and runs away again "
                .chars()
                .cycle()
                .skip(n % 60)
                .take(15 * samples.len() / 22_050)
                .collect();
            corpus.add(&format!("c{n:03}"), &format!("{text} {}", words(n)), Some(&wav(&samples)));
        }
        corpus
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn wavs(&self) -> PathBuf {
        self.path().join("wavs")
    }

    /// Adds a row, and its file if there is one.
    pub(crate) fn add(&mut self, id: &str, text: &str, bytes: Option<&[u8]>) {
        if let Some(bytes) = bytes {
            fs::write(self.wavs().join(format!("{id}.wav")), bytes).expect("writable");
        }
        self.add_row(&format!("{id}|{text}|{text}"));
    }

    /// Adds a row as it is.
    pub(crate) fn add_row(&mut self, row: &str) {
        self.rows.push(row.to_owned());
        self.write_metadata("\n");
    }

    pub(crate) fn write_metadata(&self, line_end: &str) {
        fs::write(self.path().join("metadata.csv"), self.rows.join(line_end) + line_end).expect("writable");
    }
}

fn words(n: usize) -> String {
    const NAMES: [&str; 10] = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    n.to_string().bytes().map(|digit| NAMES[usize::from(digit - b'0')]).collect::<Vec<_>>().join(" ")
}
