//! Characters to ids. The vocabulary is saved with the model: the same id always means the same character.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::normalise::Language;

const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz";
const PERSIAN_LETTERS: &str = "آابپتثجچحخدذرزژسشصضطظعغفقکگلمنوهیئء";
const MARKS: &str = " !\"'(),-.:;?";
const PERSIAN_MARKS: &str = "؟،؛«»\u{200C}\u{0654}";

/// A vocabulary of characters. Id 0 pads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokenizer {
    symbols: Vec<char>,
    ids: BTreeMap<char, u32>,
}

/// The ids of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// One id for each character that the vocabulary knows.
    pub ids: Vec<u32>,
    /// Characters that it does not know; they are left out.
    pub unknown: BTreeSet<char>,
}

/// Why a vocabulary is not one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VocabularyError {
    /// A character twice.
    Duplicate(char),
    /// Not the JSON of a vocabulary.
    Format(String),
}

impl fmt::Display for VocabularyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VocabularyError::Duplicate(c) => write!(f, "character `{c}` (U+{:04X}) twice in the vocabulary", *c as u32),
            VocabularyError::Format(message) => write!(f, "not a vocabulary: {message}"),
        }
    }
}

impl std::error::Error for VocabularyError {}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    format: String,
    symbols: Vec<char>,
}

impl Tokenizer {
    /// The characters that normalised text of a language consists of. Both languages know Latin letters.
    pub fn for_language(language: Language) -> Tokenizer {
        let symbols = match language {
            Language::English => format!("{MARKS}{LETTERS}"),
            Language::Persian => format!("{MARKS}{LETTERS}{PERSIAN_LETTERS}{PERSIAN_MARKS}"),
        };
        Tokenizer::new(symbols.chars()).expect("no character twice")
    }

    /// These characters get the ids 1, 2, … in this order.
    ///
    /// # Errors
    ///
    /// [`VocabularyError::Duplicate`] if one of them comes twice.
    pub fn new(symbols: impl IntoIterator<Item = char>) -> Result<Tokenizer, VocabularyError> {
        let symbols: Vec<char> = symbols.into_iter().collect();
        let mut ids = BTreeMap::new();
        for (id, &symbol) in (1..).zip(&symbols) {
            if ids.insert(symbol, id).is_some() {
                return Err(VocabularyError::Duplicate(symbol));
            }
        }
        Ok(Tokenizer { symbols, ids })
    }

    /// Number of ids, the padding included.
    pub fn size(&self) -> usize {
        self.symbols.len() + 1
    }

    /// The ids of a text, which should be normalised: see [`Normaliser`](crate::Normaliser).
    pub fn encode(&self, text: &str) -> Encoded {
        let mut encoded = Encoded { ids: Vec::with_capacity(text.len()), unknown: BTreeSet::new() };
        for c in text.chars() {
            match self.ids.get(&c) {
                Some(&id) => encoded.ids.push(id),
                None => {
                    encoded.unknown.insert(c);
                }
            }
        }
        encoded
    }

    /// The text of ids; the padding and ids out of range are left out.
    pub fn decode(&self, ids: &[u32]) -> String {
        ids.iter().filter_map(|&id| self.symbols.get((id as usize).checked_sub(1)?)).collect()
    }

    /// As JSON, for [`Tokenizer::from_json`].
    pub fn to_json(&self) -> String {
        let saved = Saved { format: "tandem-vocabulary-1".to_owned(), symbols: self.symbols.clone() };
        serde_json::to_string(&saved).expect("plain data")
    }

    /// From JSON.
    ///
    /// # Errors
    ///
    /// [`VocabularyError`] if it is not what [`Tokenizer::to_json`] gives, or has a character twice.
    pub fn from_json(json: &str) -> Result<Tokenizer, VocabularyError> {
        let saved: Saved = serde_json::from_str(json).map_err(|error| VocabularyError::Format(error.to_string()))?;
        if saved.format != "tandem-vocabulary-1" {
            return Err(VocabularyError::Format(format!("unknown format `{}`", saved.format)));
        }
        Tokenizer::new(saved.symbols)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_the_unknown_is_named() {
        let tokenizer = Tokenizer::for_language(Language::Persian);
        let text = "می\u{200C}روم، خوب است؟ ok.";
        let encoded = tokenizer.encode(text);
        assert_eq!(tokenizer.decode(&encoded.ids), text);
        assert!(encoded.unknown.is_empty() && !encoded.ids.contains(&0));
        let odd = Tokenizer::for_language(Language::English).encode("naïve ☃ naïve");
        assert_eq!(odd.unknown.into_iter().collect::<String>(), "ï☃");
    }

    #[test]
    fn a_vocabulary_survives_saving_and_a_damaged_one_is_refused() {
        let tokenizer = Tokenizer::for_language(Language::Persian);
        assert_eq!(Tokenizer::from_json(&tokenizer.to_json()), Ok(tokenizer));
        assert!(matches!(Tokenizer::from_json("{}"), Err(VocabularyError::Format(_))));
        let twice = r#"{"format":"tandem-vocabulary-1","symbols":["a","a"]}"#;
        assert_eq!(Tokenizer::from_json(twice), Err(VocabularyError::Duplicate('a')));
        let other = r#"{"format":"tandem-vocabulary-9","symbols":["a"]}"#;
        assert!(Tokenizer::from_json(other).is_err());
    }
}
