//! A small talking corpus that is made, not recorded: for the demo and for tests. The times of all its sounds are known.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use tandem_audio::formant::{FormantVoice, speak};
use tandem_audio::write_wav;
use tandem_flow::Random;
use tandem_text::SILENCE;

/// How much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemoCorpus {
    /// Clips.
    pub clips: usize,
    /// Speakers, from 1 to [`DemoCorpus::MOST_SPEAKERS`]; what is beyond counts as the nearest.
    pub speakers: usize,
    /// Another seed says other things.
    pub seed: u64,
}

/// What was made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DemoMade {
    /// Clips.
    pub clips: usize,
    /// Seconds.
    pub seconds: f64,
}

const RATE: u32 = 22_050;
/// Milliseconds of silence before and after speech, as in any recording: at least, and so many more at most.
const SILENCE_MS: (f64, f64) = (60.0, 90.0);

const SPEAKERS: [(&str, FormantVoice); 4] = [
    ("ali", FormantVoice { pitch: 112.0, formant_scale: 1.0, breath: 0.2, speed: 1.0 }),
    ("sara", FormantVoice { pitch: 205.0, formant_scale: 1.17, breath: 0.4, speed: 1.05 }),
    ("omid", FormantVoice { pitch: 138.0, formant_scale: 1.07, breath: 0.3, speed: 0.92 }),
    ("mina", FormantVoice { pitch: 172.0, formant_scale: 1.12, breath: 0.5, speed: 1.1 }),
];

/// Words that sound as they are written, more or less.
const ENGLISH: &[&str] = &[
    "banana", "piano", "radio", "hotel", "lemon", "river", "sunset", "tomato", "winter", "garden", "market", "silver",
    "planet", "velvet", "pilot", "carbon", "melody", "orbit", "panda", "salad", "tiger", "video", "zebra", "domino",
    "metal", "basket", "dinner", "forest", "gold", "happy", "island", "kitten", "lantern", "number", "open", "pepper",
];
const PERSIAN: &[&str] = &[
    "سلام",
    "باران",
    "کتاب",
    "آسمان",
    "دریا",
    "بازار",
    "خانه",
    "زیبا",
    "آرام",
    "ایران",
    "باغ",
    "گلاب",
    "ماهی",
    "نارنج",
    "پرواز",
    "شیراز",
    "تابستان",
    "زمان",
    "ساز",
    "کوه",
    "دیوار",
    "روباه",
    "مادر",
    "پدر",
    "دوست",
    "آواز",
    "بیدار",
    "قالی",
];

impl DemoCorpus {
    /// Speakers that there are.
    pub const MOST_SPEAKERS: usize = SPEAKERS.len();

    /// Writes the corpus: `metadata.csv`, `speakers.csv` if there are several, `wavs/`, and `timings/ID.csv` with
    /// `symbol,start,end` of each sound in samples, the silences at both ends included. Folders that exist are written into.
    ///
    /// # Errors
    ///
    /// If a folder or a file cannot be written.
    pub fn write(&self, dir: &Path) -> io::Result<DemoMade> {
        fs::create_dir_all(dir.join("wavs"))?;
        fs::create_dir_all(dir.join("timings"))?;
        let (mut metadata, mut speakers, mut samples_made) = (String::new(), String::new(), 0);
        for clip in 0..self.clips {
            let mut random = Random::at(&[self.seed, clip as u64]);
            let (name, voice) = SPEAKERS[clip % self.speakers.clamp(1, SPEAKERS.len())];
            // Speakers speak both languages, or the voice would give the language away.
            let persian = random.unit() < 0.4;
            let words = if persian { PERSIAN } else { ENGLISH };
            let count = 2 + random.below(3);
            let text = (0..count).map(|_| words[random.below(words.len())]).collect::<Vec<_>>().join(" ") + ".";
            let (spoken, timing) = speak(&text, &voice, RATE, || random.unit());
            let mut silence = || ((SILENCE_MS.0 + SILENCE_MS.1 * random.unit()) / 1000.0 * f64::from(RATE)) as usize;
            let (before, after) = (silence(), silence());
            let mut samples = vec![0.0; before];
            samples.extend_from_slice(&spoken);
            samples.resize(before + spoken.len() + after, 0.0);
            let id = format!("demo_{clip:04}");
            let mut wav = io::BufWriter::new(fs::File::create(dir.join("wavs").join(format!("{id}.wav")))?);
            write_wav(&samples, RATE, &mut wav)?;
            wav.flush()?;
            let mut lines = format!("{SILENCE},0,{before}\n");
            for sound in &timing {
                lines += &format!("{},{},{}\n", sound.symbol, before + sound.start, before + sound.end);
            }
            lines += &format!("{SILENCE},{},{}\n", before + spoken.len(), samples.len());
            fs::write(dir.join("timings").join(format!("{id}.csv")), lines)?;
            metadata += &format!("{id}|{text}|{text}\n");
            speakers += &format!("{id}|{name}|{}\n", if persian { "fa" } else { "en" });
            samples_made += samples.len();
        }
        if self.speakers > 1 {
            fs::write(dir.join("speakers.csv"), speakers)?;
        }
        // Last: a folder with metadata is a corpus, one without is not yet.
        fs::write(dir.join("metadata.csv"), metadata)?;
        Ok(DemoMade { clips: self.clips, seconds: samples_made as f64 / f64::from(RATE) })
    }
}

#[cfg(test)]
mod tests {
    use tandem_text::{Frontend, Language};

    use super::*;

    #[test]
    fn every_character_of_its_words_is_one_token() {
        for (language, words) in [(Language::ENGLISH, ENGLISH), (Language::PERSIAN, PERSIAN)] {
            let text = words.join(" ") + ".";
            let symbols = Frontend::default().symbols(&[(&text, Some(&language))]).expect("characters").remove(0);
            assert_eq!(symbols.symbols.concat(), format!("{SILENCE}{text}{SILENCE}"));
            assert!(symbols.skipped.is_empty());
        }
    }
}
