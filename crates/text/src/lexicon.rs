//! Pronunciations of words that the user knows better than any rule.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Words and their phonemes (IPA). They win over `espeak-ng`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lexicon {
    words: BTreeMap<String, String>,
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
}

impl fmt::Display for LexiconError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LexiconError::Io(path, error) => write!(f, "cannot read lexicon `{}`: {error}", path.display()),
            LexiconError::Empty(path) => write!(f, "lexicon `{}` has no words", path.display()),
            LexiconError::Line(path, line) => {
                write!(f, "line {line} of lexicon `{}` is not a word and its phonemes in IPA", path.display())
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
    /// [`LexiconError`] if it cannot be read, has no word, or a line has a word without phonemes.
    pub fn read(path: &Path) -> Result<Lexicon, LexiconError> {
        let text = std::fs::read_to_string(path).map_err(|error| LexiconError::Io(path.to_owned(), error))?;
        Lexicon::parse(&text).map_err(|line| match line {
            Some(line) => LexiconError::Line(path.to_owned(), line),
            None => LexiconError::Empty(path.to_owned()),
        })
    }

    /// The same from memory; the error is the number of the bad line, `None` when there is no word at all.
    pub fn parse(text: &str) -> Result<Lexicon, Option<usize>> {
        let mut words = BTreeMap::new();
        for (number, line) in (1..).zip(text.trim_start_matches('\u{FEFF}').lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let (word, ipa) = line.split_once(char::is_whitespace).ok_or(Some(number))?;
            let has_sound = crate::phonemes::tokenize_ipa(ipa).iter().any(|symbol| symbol != " ");
            if !word.chars().any(char::is_alphanumeric) || !has_sound {
                return Err(Some(number));
            }
            words.insert(word.to_lowercase(), ipa.trim().to_owned());
        }
        if words.is_empty() { Err(None) } else { Ok(Lexicon { words }) }
    }

    /// The phonemes of a word in lower case.
    pub fn get(&self, word: &str) -> Option<&str> {
        self.words.get(word).map(String::as_str)
    }

    /// Whether it has no words.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// How many words it has.
    pub fn len(&self) -> usize {
        self.words.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_bad_lines_are_named() {
        let lexicon = Lexicon::parse("# names\nTandem\ttˈændəm\n\nNguyen wɪn # as she says it\n").expect("two words");
        assert_eq!((lexicon.len(), lexicon.get("tandem"), lexicon.get("nguyen")), (2, Some("tˈændəm"), Some("wɪn")));
        assert_eq!(Lexicon::parse("a ə\nalone\n"), Err(Some(2)));
        assert_eq!(Lexicon::parse("a ˈ\n"), Err(Some(1)), "a stress mark is no sound");
        assert_eq!(Lexicon::parse("# nothing\n"), Err(None));
        let error = Lexicon::read(Path::new("no-such-lexicon.txt")).expect_err("missing");
        assert!(error.to_string().contains("no-such-lexicon.txt"), "{error}");
    }
}
