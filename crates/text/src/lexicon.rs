//! Pronunciations of words that the user knows better than any rule.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use crate::persian;
use crate::phonemes::tokenize_ipa;

/// Letters of the IPA outside its own blocks of Unicode.
const IPA: &str = "æçðøħŋœβθχλǀǁǂǃʘ ";

/// Words and their phonemes (IPA). They win over `espeak-ng`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lexicon {
    words: BTreeMap<String, String>,
}

/// What is wrong with the text of a lexicon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LexiconFault {
    /// Not one word in it.
    Empty,
    /// This line is not a word and its phonemes.
    Line(usize),
    /// The phonemes of this line have a character that IPA does not have.
    Symbol(usize, char),
}

/// Why a file is not a lexicon.
#[derive(Debug)]
#[non_exhaustive]
pub enum LexiconError {
    /// It cannot be read.
    Io(PathBuf, io::Error),
    /// Not one word in it.
    Empty(PathBuf),
    /// A line that is not a word and its phonemes.
    Line(PathBuf, usize),
    /// A line whose phonemes have a character that IPA does not have.
    Symbol(PathBuf, usize, char),
}

impl fmt::Display for LexiconError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LexiconError::Io(path, error) => write!(f, "cannot read lexicon `{}`: {error}", path.display()),
            LexiconError::Empty(path) => write!(f, "lexicon `{}` has no words", path.display()),
            LexiconError::Line(path, line) => {
                write!(f, "line {line} of lexicon `{}` is not a word and its phonemes in IPA", path.display())
            }
            LexiconError::Symbol(path, line, symbol) => {
                write!(f, "line {line} of lexicon `{}`: `{symbol}` is not a symbol of the IPA", path.display())
            }
        }
    }
}

impl std::error::Error for LexiconError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LexiconError::Io(_, error) => Some(error),
            _ => None,
        }
    }
}

impl Lexicon {
    /// Reads a file of lines `word<TAB or space>phonemes`; empty lines and what follows `#` are skipped.
    ///
    /// # Errors
    ///
    /// [`LexiconError`] if it cannot be read, has no word, or a line has a word without phonemes or something else than
    /// IPA behind it.
    pub fn read(path: &Path) -> Result<Lexicon, LexiconError> {
        let text = std::fs::read_to_string(path).map_err(|error| LexiconError::Io(path.to_owned(), error))?;
        Lexicon::parse(&text).map_err(|fault| match fault {
            LexiconFault::Empty => LexiconError::Empty(path.to_owned()),
            LexiconFault::Line(line) => LexiconError::Line(path.to_owned(), line),
            LexiconFault::Symbol(line, symbol) => LexiconError::Symbol(path.to_owned(), line, symbol),
        })
    }

    /// The same from memory.
    ///
    /// # Errors
    ///
    /// [`LexiconFault`], with the number of the line.
    pub fn parse(text: &str) -> Result<Lexicon, LexiconFault> {
        let mut words = BTreeMap::new();
        let mut spellings = Vec::new();
        for (number, line) in (1..).zip(text.trim_start_matches('\u{FEFF}').lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let (word, ipa) = line.split_once(char::is_whitespace).ok_or(LexiconFault::Line(number))?;
            let phonemes = tokenize_ipa(ipa);
            if !word.chars().any(char::is_alphanumeric) || phonemes.iter().all(|symbol| symbol == " ") {
                return Err(LexiconFault::Line(number));
            }
            if let Some(other) = phonemes.iter().flat_map(|symbol| symbol.chars()).find(|c| !is_ipa(*c)) {
                return Err(LexiconFault::Symbol(number, other));
            }
            let (word, ipa) = (word.nfkc().collect::<String>().to_lowercase(), ipa.trim().to_owned());
            spellings.push((word.clone(), ipa.clone()));
            words.insert(word, ipa);
        }
        // Texts are looked up as they are normalized: without accents in English, with Persian letters in Persian. What is
        // spelled so in the file wins.
        for (word, ipa) in spellings {
            let bare: String = word.nfd().filter(|c| !('\u{0300}'..='\u{036F}').contains(c)).nfc().collect();
            let persian = persian::characters(&bare);
            let has_digits = bare.chars().any(char::is_numeric);
            for other in [bare, persian].into_iter().filter(|other| !other.is_empty() && !has_digits) {
                words.entry(other).or_insert_with(|| ipa.clone());
            }
        }
        if words.is_empty() { Err(LexiconFault::Empty) } else { Ok(Lexicon { words }) }
    }

    /// The phonemes of a word in lower case.
    pub fn get(&self, word: &str) -> Option<&str> {
        self.words.get(word).map(String::as_str)
    }

    /// Whether it has no words.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// How many words it has, in all their spellings.
    pub fn len(&self) -> usize {
        self.words.len()
    }
}

/// Whether the phonetic alphabet has a character, a tone as a digit included.
fn is_ipa(c: char) -> bool {
    let blocks = matches!(c, '\u{0250}'..='\u{02FF}' | '\u{1D00}'..='\u{1DBF}' | '\u{2190}'..='\u{2199}' | '\u{A700}'..='\u{A71F}');
    c.is_ascii_lowercase() || c.is_ascii_digit() || IPA.contains(c) || blocks || is_combining_mark(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_bad_lines_are_named() {
        let lexicon = Lexicon::parse("# names\nTandem\ttˈændəm\n\nNguyen wɪn # as she says it\n").expect("two words");
        assert_eq!((lexicon.len(), lexicon.get("tandem"), lexicon.get("nguyen")), (2, Some("tˈændəm"), Some("wɪn")));
        assert_eq!(Lexicon::parse("a ə\nalone\n"), Err(LexiconFault::Line(2)));
        assert_eq!(Lexicon::parse("a ˈ\n"), Err(LexiconFault::Line(1)), "a stress mark is no sound");
        assert_eq!(Lexicon::parse("# nothing\n"), Err(LexiconFault::Empty));
        assert_eq!(Lexicon::parse("a ə\ntandem T AE1 N\n"), Err(LexiconFault::Symbol(2, 'T')), "not IPA");
        assert_eq!(Lexicon::parse("moss mɒs?\n"), Err(LexiconFault::Symbol(1, '?')));
        let lexicon = Lexicon::parse("Cafe\u{301} kafe\nكِتاب ketɒːb\n").expect("two words");
        assert_eq!(
            (lexicon.get("café"), lexicon.get("cafe"), lexicon.get("کتاب")),
            (Some("kafe"), Some("kafe"), Some("ketɒːb"))
        );
        let error = Lexicon::read(Path::new("no-such-lexicon.txt")).expect_err("missing");
        assert!(error.to_string().contains("no-such-lexicon.txt"), "{error}");
    }
}
