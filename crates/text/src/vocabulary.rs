//! Symbols to ids. The vocabulary is saved with the model: the same id always means the same symbol.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::phonemes::{STRESS, unstressed};

/// The symbol of silence: before and after every text and, in phonemes, at punctuation.
pub const SILENCE: &str = "<sil>";

/// The symbols that a model knows. Id 0 is padding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Vocabulary {
    symbols: Vec<String>,
    ids: BTreeMap<String, u32>,
}

/// The ids of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// One id for each symbol that the vocabulary has.
    pub ids: Vec<u32>,
    /// Symbols that it does not have; they are skipped.
    pub unknown: BTreeSet<String>,
}

/// Why symbols do not make a vocabulary: this one comes twice, or is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VocabularyError(String);

impl fmt::Display for VocabularyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_str() {
            "" => write!(f, "an empty symbol in the vocabulary"),
            symbol => write!(f, "symbol `{symbol}` twice in the vocabulary"),
        }
    }
}

impl std::error::Error for VocabularyError {}

impl Vocabulary {
    /// These symbols get the ids 1, 2, … in this order.
    ///
    /// # Errors
    ///
    /// [`VocabularyError`] if a symbol comes twice or is empty.
    pub fn new(symbols: impl IntoIterator<Item = impl Into<String>>) -> Result<Vocabulary, VocabularyError> {
        let symbols: Vec<String> = symbols.into_iter().map(Into::into).collect();
        let mut ids = BTreeMap::new();
        for (id, symbol) in (1..).zip(&symbols) {
            if symbol.is_empty() || ids.insert(symbol.clone(), id).is_some() {
                return Err(VocabularyError(symbol.clone()));
            }
        }
        Ok(Vocabulary { symbols, ids })
    }

    /// The symbols that occur in some texts: silence first, the others sorted, so that the same texts in any order give
    /// the same ids.
    pub fn of(symbols: BTreeSet<String>) -> Vocabulary {
        let others = symbols.into_iter().filter(|symbol| !symbol.is_empty() && symbol != SILENCE);
        let symbols = std::iter::once(SILENCE.to_owned()).chain(others);
        Vocabulary::new(symbols).expect("a set has nothing twice")
    }

    /// Whether it has no symbol: it is still to be made from a corpus.
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// Number of ids, the padding included.
    pub fn size(&self) -> usize {
        self.symbols.len() + 1
    }

    /// The symbols; the first has id 1.
    pub fn symbols(&self) -> &[String] {
        &self.symbols
    }

    /// The id of a symbol.
    pub fn id(&self, symbol: &str) -> Option<u32> {
        self.ids.get(symbol).copied()
    }

    /// The id of a symbol or, for one that no training text has, of the same vowel with or without stress: the nearest sound there is.
    pub fn nearest(&self, symbol: &str) -> Option<u32> {
        let bare = unstressed(symbol);
        self.id(symbol).or_else(|| self.id(bare)).or_else(|| self.id(&format!("{STRESS}{bare}")))
    }

    /// The ids of symbols.
    pub fn encode<'a>(&self, symbols: impl IntoIterator<Item = &'a str>) -> Encoded {
        let mut encoded = Encoded::default();
        for symbol in symbols {
            match self.nearest(symbol) {
                Some(id) => encoded.ids.push(id),
                None => {
                    encoded.unknown.insert(symbol.to_owned());
                }
            }
        }
        encoded
    }

    /// The symbols of ids; padding and ids out of range are skipped.
    pub fn decode<'a>(&'a self, ids: &'a [u32]) -> impl Iterator<Item = &'a str> {
        ids.iter().filter_map(|&id| self.symbols.get((id as usize).checked_sub(1)?)).map(String::as_str)
    }
}

impl TryFrom<Vec<String>> for Vocabulary {
    type Error = VocabularyError;

    fn try_from(symbols: Vec<String>) -> Result<Vocabulary, VocabularyError> {
        Vocabulary::new(symbols)
    }
}

impl From<Vocabulary> for Vec<String> {
    fn from(vocabulary: Vocabulary) -> Vec<String> {
        vocabulary.symbols
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_the_unknown_is_named() {
        let vocabulary = Vocabulary::of(["b", "iː", "a"].map(str::to_owned).into());
        assert_eq!(vocabulary.symbols(), [SILENCE, "a", "b", "iː"]);
        let encoded = vocabulary.encode([SILENCE, "iː", "ж", "a"]);
        assert_eq!((encoded.ids.clone(), encoded.unknown), (vec![1, 4, 2], BTreeSet::from(["ж".to_owned()])));
        assert_eq!(vocabulary.decode(&encoded.ids).collect::<Vec<_>>(), [SILENCE, "iː", "a"]);
        assert_eq!(vocabulary.size(), 5);
    }

    #[test]
    fn a_vowel_is_the_same_with_or_without_stress_when_texts_had_only_one_of_them() {
        let vocabulary = Vocabulary::of(["ˈa", "o", "ˈi", "i"].map(str::to_owned).into());
        let id = |symbol: &str| vocabulary.id(symbol).expect("known");
        let encoded = vocabulary.encode(["a", "ˈo", "i", "ˈi", "ˈu"]);
        assert_eq!(encoded.ids, [id("ˈa"), id("o"), id("i"), id("ˈi")]);
        assert_eq!(encoded.unknown, BTreeSet::from(["ˈu".to_owned()]));
    }

    #[test]
    fn a_vocabulary_survives_saving_and_a_damaged_one_is_refused() {
        let vocabulary = Vocabulary::of(["x", "ɑː"].map(str::to_owned).into());
        let json = serde_json::to_string(&vocabulary).expect("plain data");
        assert_eq!(serde_json::from_str::<Vocabulary>(&json).expect("the same"), vocabulary);
        assert!(serde_json::from_str::<Vocabulary>(r#"["a","a"]"#).is_err());
        assert!(serde_json::from_str::<Vocabulary>(r#"["a",""]"#).is_err());
    }
}
