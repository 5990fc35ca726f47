//! [`kind_of`]: what the columns of rows separated by `|` are.
//!
//! `id|text|normalized text` and `id|speaker|text` look alike. What tells them apart: a normalized text resembles its text and
//! follows from it, so that equal texts have equal normalized ones; a speaker's name is short and stands before many texts.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::fields::{is_audio_extension, split_piped, utf8};
use super::listed::NAMED;
use super::metadata::Metadata;

/// Rows that are looked at, evenly spread over the list: lists are often sorted by speaker.
const LOOKED_AT: usize = 400;
/// Rows whose audio files are looked for.
const LOOKED_FOR: usize = 40;
/// A name has at most so many words and characters.
const NAME: (usize, usize) = (3, 80);

/// What the columns are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An id and a text.
    Columns,
    /// An id, a text, and the text as it is spoken.
    Normalized,
    /// An id, a speaker and a text.
    SpeakerThenText { speakers: usize, rows: usize },
    /// A path, a text, and perhaps a speaker.
    Path,
    /// The second column may be a text or a speaker.
    TextOrSpeaker,
    /// The first column may be a path or an id, or behind a path may be a speaker or a normalized text.
    PathOrId,
}

/// Looks at some rows and at whether their audio is there.
pub(super) fn kind_of(metadata: &Metadata, dir: &Path, audio_dir: &str) -> Kind {
    let (rows, mut buffer) = (metadata.len(), Vec::new());
    let looked_at = rows.min(LOOKED_AT);
    let mut sample: Vec<Vec<String>> = Vec::with_capacity(looked_at);
    for n in 0..looked_at {
        let row = metadata.read((n * rows / looked_at) as u32, &mut buffer).ok().and_then(|row| utf8(row).ok());
        sample.extend(row.map(|row| split_piped(row, 3).iter().map(|field| field.trim().to_owned()).collect()));
    }
    let exists = |path: &Path| path.symlink_metadata().is_ok();
    let (mut paths, mut ids, mut look_like_paths) = (0, 0, 0);
    let step = sample.len().div_ceil(LOOKED_FOR).max(1);
    for first in sample.iter().step_by(step).filter_map(|row| row.first()) {
        let extension = first.rsplit_once('.').is_some_and(|(_, extension)| is_audio_extension(extension));
        look_like_paths += usize::from(first.contains('/') && extension);
        // Nothing outside of the directory is looked for.
        if super::fields::check_path(first, true).is_ok() {
            paths += usize::from((first.contains('/') || extension) && exists(&dir.join(first)));
            let named = |end: &&str| exists(&dir.join(audio_dir).join(format!("{first}{end}")));
            ids += usize::from(!first.contains('/') && NAMED.iter().any(named));
        }
    }
    let wide: Vec<&Vec<String>> = sample.iter().filter(|row| row.len() == 3).collect();
    let three = wide.len() * 2 > sample.len();
    let pairs = |a: usize, b: usize| wide.iter().map(move |row| (row[a].as_str(), row[b].as_str())).collect::<Vec<_>>();
    if paths > 0 && ids > 0 {
        return Kind::PathOrId;
    }
    if paths > 0 || (ids == 0 && look_like_paths > 0) {
        let normalized = three && Pairs::of(&pairs(1, 2)).second_is_normalized();
        return if normalized { Kind::PathOrId } else { Kind::Path };
    }
    if !three {
        return Kind::Columns;
    }
    let found = Pairs::of(&pairs(1, 2));
    match (found.first_is_speaker(), found.second_is_normalized() || found.first_is_text()) {
        (false, true) => Kind::Normalized,
        (true, false) => Kind::SpeakerThenText { speakers: found.distinct, rows: found.rows },
        _ => Kind::TextOrSpeaker,
    }
}

/// How two columns relate.
#[derive(Debug)]
struct Pairs {
    rows: usize,
    /// Different values of the first.
    distinct: usize,
    /// Rows whose first stood before another second earlier.
    contradictions: usize,
    /// Rows whose first stood before the same second earlier.
    repetitions: usize,
    /// Rows whose second resembles the first, or is empty.
    alike: usize,
    /// Rows whose first may be a name.
    names: usize,
}

impl Pairs {
    fn of(pairs: &[(&str, &str)]) -> Pairs {
        let mut seen: HashMap<&str, &str> = HashMap::new();
        let mut found = Pairs { rows: pairs.len(), distinct: 0, contradictions: 0, repetitions: 0, alike: 0, names: 0 };
        for &(first, second) in pairs {
            match seen.get(first) {
                Some(&earlier) if earlier == second => found.repetitions += 1,
                Some(_) => found.contradictions += 1,
                None => {
                    seen.insert(first, second);
                }
            }
            found.alike += usize::from(second.is_empty() || alike(first, second));
            let is_name = first.split_whitespace().count() <= NAME.0 && first.chars().count() <= NAME.1;
            found.names += usize::from(is_name);
        }
        found.distinct = seen.len();
        found
    }

    /// Names stand before many texts.
    fn first_is_speaker(&self) -> bool {
        self.contradictions * 4 >= self.rows && self.names * 10 >= self.rows * 9
    }

    /// Resembles what stands before it, or at least follows from it.
    fn second_is_normalized(&self) -> bool {
        self.alike * 2 >= self.rows || (self.contradictions == 0 && self.repetitions * 4 >= self.rows)
    }

    /// Sentences, and nearly every row another one.
    fn first_is_text(&self) -> bool {
        self.names * 2 < self.rows && self.contradictions * 4 < self.rows
    }
}

/// Whether two texts have most pairs of neighboring letters in common: words of any script do, a name and a text do not.
fn alike(a: &str, b: &str) -> bool {
    let letters = |text: &str| -> Vec<char> { text.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect() };
    let (a, b) = (letters(a), letters(b));
    if a == b {
        return true;
    }
    let pairs =
        |letters: &[char]| -> HashSet<(char, char)> { letters.windows(2).map(|two| (two[0], two[1])).collect() };
    let (a, b) = (pairs(&a), pairs(&b));
    2 * a.intersection(&b).count() * 2 >= a.len() + b.len() && !a.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(rows: &str) -> Kind {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("metadata.csv");
        std::fs::write(&path, rows).expect("writable");
        kind_of(&Metadata::open_file(&path).expect("rows"), dir.path(), "wavs")
    }

    #[test]
    fn columns_are_told_apart_by_what_they_hold() {
        let speakers = "a|bob|Hello there.\nb|bob|How are you?\nc|eve|I am fine.\nd|bob|Good.\ne|eve|Bye now.\n";
        assert_eq!(kind(speakers), Kind::SpeakerThenText { speakers: 2, rows: 5 });
        let one = "a|bob|Hello there.\nb|bob|How are you?\nc|bob|I am fine.\n";
        assert_eq!(kind(one), Kind::SpeakerThenText { speakers: 1, rows: 3 });
        assert_eq!(kind("a|Hello 2 you.|hello two you.\nb|Dr. Who is in.|doctor who is in.\n"), Kind::Normalized);
        assert_eq!(kind("a|سلام دنیا ۲|سلام دنیا دو\nb|کتاب خوب|کتاب خوب\n"), Kind::Normalized);
        assert_eq!(kind("a|Hello there my friend.|\nb|Once more I say it.|\n"), Kind::Normalized);
        let numbers = "a|1|one\nb|2|two\nc|1|one\nd|2|two\ne|1|one\nf|2|two\n";
        assert_eq!(kind(numbers), Kind::Normalized, "equal texts have equal normalized ones");
        let phonemes =
            "a|This is a longer text.|ðɪs ɪz ə lɒŋə tɛkst\nb|And here is another one.|ənd hɪər ɪz ənʌðə wʌn\n";
        assert_eq!(kind(phonemes), Kind::Normalized, "sentences are no names");
        assert_eq!(kind("a|Hello\nb|there\n"), Kind::Columns);
        assert_eq!(kind("wavs/a.wav|Hello there\nwavs/b.wav|you\n"), Kind::Path);
        assert_eq!(kind("wavs/a.wav|Hello there|bob\nwavs/b.wav|you|bob\n"), Kind::Path);
    }

    #[test]
    fn what_may_be_either_is_not_guessed() {
        assert_eq!(kind("a|bob|Hello there.\n"), Kind::TextOrSpeaker);
        assert_eq!(kind("a|bob|Hello there.\nb|eve|How are you?\nc|joe|I am fine.\n"), Kind::TextOrSpeaker);
        assert_eq!(kind("a|1|one\nb|2|two\nc|3|three\n"), Kind::TextOrSpeaker);
        assert_eq!(kind("wavs/a.wav|Hello 2 you|hello two you\nwavs/b.wav|So it is|so it is\n"), Kind::PathOrId);
    }
}
