//! From written text to the ids that a model is given: the one encoder that training data and synthesis share. It is
//! saved in every checkpoint.
//!
//! ```text
//! "Dr. Moss, 23"  ──normalize──►  "doctor moss, twenty-three"
//!     characters  ──►  <sil> d o c t o r ␣ m o s s , ␣ t w e … <sil>
//!     phonemes    ──►  <sil> d ˈɑː k t ɚ m ˈɔ s <sil> t w ˈɛ n t i θ ɹ ˈiː <sil>
//! ```
//!
//! Invariant: the same text, front end and `espeak-ng` always give the same ids, and ids are below the vocabulary's
//! size.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use unicode_normalization::char::is_combining_mark;

use crate::clauses::{Piece, Pieces};
use crate::espeak::{Espeak, PhonemeError};
use crate::guess::Guess;
use crate::language::{Language, Rules};
use crate::lexicon::{Lexicon, LexiconError};
use crate::normalize::{NORMALIZER_VERSION, Normalizer};
use crate::persian::DIACRITICS;
use crate::phonemes::tokenize_ipa;
use crate::vocabulary::{Encoded, SILENCE, Vocabulary};

/// Changes whenever the same normalized text may give other symbols: what was derived from texts is then made again.
pub const FRONTEND_VERSION: u32 = 3;

/// Marks that characters keep as symbols of their own.
const MARKS: &str = " !\"'(),-.:;?؟،؛«»¿¡\u{200C}\u{0654}";
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzآابپتثجچحخدذرزژسشصضطظعغفقکگلمنوهیئء";

/// What a model reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Units {
    /// The characters of the normalized text.
    #[default]
    Characters,
    /// Phonemes (IPA) by `espeak-ng`.
    Phonemes,
}

impl fmt::Display for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Units::Characters => "characters",
            Units::Phonemes => "phonemes",
        })
    }
}

/// How text becomes ids. Complete once it has a vocabulary, which a corpus makes ([`Frontend::with_vocabulary`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frontend {
    /// What the symbols are.
    pub units: Units,
    /// The language of all texts, whatever else is known of them.
    pub language: Option<Language>,
    /// Without [`Frontend::language`]: those that texts are in. A text whose own language is not known is in the one of
    /// them that it looks like. None: each is guessed to be English or Persian.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub languages: Vec<Language>,
    /// Pronunciations that win over `espeak-ng`; for phonemes only.
    pub lexicon: Lexicon,
    /// Phonemes have a symbol, a blank, between two words. Off: it would take at least one frame where speech has none.
    pub word_boundary: bool,
    /// Short vowels of Persian that are written are characters of their own. Phonemes always hear them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub diacritics: bool,
    /// Characters are taken as they are written: neither normalized nor between silences.
    pub raw: bool,
    /// The symbols that have ids: those of the training texts. Empty until a corpus was read.
    pub vocabulary: Vocabulary,
}

/// The symbols of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// In the order in which they are said.
    pub symbols: Vec<String>,
    /// Characters that have no sound in the text's language; they are skipped.
    pub skipped: BTreeSet<char>,
}

impl Symbols {
    /// Whether there is anything to say: a letter, a digit, a phoneme.
    pub fn has_words(&self) -> bool {
        self.symbols.iter().any(|symbol| is_word(symbol))
    }
}

/// Whether a symbol stands for a sound, not for silence or a mark.
pub fn is_word(symbol: &str) -> bool {
    symbol != SILENCE && symbol.chars().any(char::is_alphanumeric)
}

/// Why a text has no ids.
#[derive(Debug)]
#[non_exhaustive]
pub enum FrontendError {
    /// There are no phonemes.
    Phonemes(PhonemeError),
    /// The lexicon.
    Lexicon(LexiconError),
    /// A lexicon was given, but the units are characters.
    LexiconOfCharacters,
    /// Not the JSON of a front end.
    Format(String),
}

impl fmt::Display for FrontendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrontendError::Phonemes(error) => write!(f, "{error}"),
            FrontendError::Lexicon(error) => write!(f, "{error}"),
            FrontendError::LexiconOfCharacters => write!(f, "a lexicon is for phonemes, the units are characters"),
            FrontendError::Format(message) => write!(f, "not a text front end: {message}"),
        }
    }
}

impl std::error::Error for FrontendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            FrontendError::Phonemes(error) => Some(error),
            FrontendError::Lexicon(error) => Some(error),
            FrontendError::LexiconOfCharacters | FrontendError::Format(_) => None,
        }
    }
}

impl From<PhonemeError> for FrontendError {
    fn from(error: PhonemeError) -> Self {
        FrontendError::Phonemes(error)
    }
}

impl From<LexiconError> for FrontendError {
    fn from(error: LexiconError) -> Self {
        FrontendError::Lexicon(error)
    }
}

impl Frontend {
    /// Characters as they are written, with the ids 1, 2, … in this order; others are skipped.
    pub fn raw(vocabulary: Vocabulary) -> Frontend {
        Frontend { raw: true, vocabulary, ..Frontend::default() }
    }

    /// The same front end with the symbols of some texts as its vocabulary.
    pub fn with_vocabulary(&self, vocabulary: Vocabulary) -> Frontend {
        Frontend { vocabulary, ..self.clone() }
    }

    /// What turns many texts into symbols, and asks `espeak-ng` only once what it can do.
    pub fn encoder(&self) -> Encoder<'_> {
        Encoder { frontend: self, espeak: Mutex::default() }
    }

    /// Whether it can work here: `espeak-ng` is there and knows the languages if phonemes are wanted, and a language
    /// that was given exists as far as that can be known.
    ///
    /// # Errors
    ///
    /// [`FrontendError`] saying what is missing.
    pub fn check(&self) -> Result<(), FrontendError> {
        self.encoder().check()
    }

    /// Everything that decides which symbols a text has, the vocabulary aside: what is kept of texts holds as long as
    /// this stays the same. Starts no program.
    ///
    /// # Errors
    ///
    /// [`FrontendError`] if `espeak-ng` is needed and not there.
    pub fn key(&self) -> Result<String, FrontendError> {
        let espeak = match self.units {
            Units::Characters => String::new(),
            Units::Phonemes => Espeak::identity()?,
        };
        let bare = self.with_vocabulary(Vocabulary::default());
        Ok(format!("{} {FRONTEND_VERSION} {NORMALIZER_VERSION} {espeak}", bare.to_json()))
    }

    /// The language of a text: that of the front end, else the one that is given with it, else guessed.
    pub fn language_of(&self, text: &str, given: Option<&Language>) -> Language {
        let known = self.language.as_ref().or(given).cloned();
        let among = || Guess::among(text, &self.languages);
        known.or_else(among).or_else(|| Language::guess(text)).unwrap_or(Language::ENGLISH)
    }

    /// The symbols of texts, each with its language if one is given. Phonemes of all of them are made in a few calls.
    ///
    /// # Errors
    ///
    /// [`FrontendError`] if phonemes are wanted and `espeak-ng` cannot make them.
    pub fn symbols(&self, texts: &[(&str, Option<&Language>)]) -> Result<Vec<Symbols>, FrontendError> {
        self.encoder().symbols(texts)
    }

    /// Characters of a text that have no sound in its language. Starts no program.
    pub fn skipped(&self, text: &str, language: Option<&Language>) -> BTreeSet<char> {
        match self.units {
            Units::Characters => self.characters(text, language).skipped,
            Units::Phonemes => Pieces::of(text, &self.language_of(text, language), &self.lexicon).skipped,
        }
    }

    /// The ids of one text, which may be in another language than the front end's.
    ///
    /// # Errors
    ///
    /// As [`Frontend::symbols`].
    pub fn encode(&self, text: &str, language: Option<&Language>) -> Result<Encoded, FrontendError> {
        let other = language.map(|language| Frontend { language: Some(language.clone()), ..self.clone() });
        let symbols = other.as_ref().unwrap_or(self).symbols(&[(text, None)])?.pop().unwrap_or_default();
        let mut encoded = self.vocabulary.encode(symbols.symbols.iter().map(String::as_str));
        encoded.unknown.extend(symbols.skipped.iter().map(char::to_string));
        Ok(encoded)
    }

    fn characters(&self, text: &str, language: Option<&Language>) -> Symbols {
        let language = self.language_of(text, language);
        let mut result = Symbols::default();
        if self.raw {
            result.symbols.extend(text.chars().map(String::from));
            return result;
        }
        result.symbols.push(SILENCE.to_owned());
        let normalizer = Normalizer::new(&language);
        let normalizer = if self.diacritics { normalizer.with_diacritics() } else { normalizer };
        for c in normalizer.normalize(text).chars() {
            let other = language.rules() == Rules::Plain && (c.is_alphanumeric() || is_combining_mark(c));
            let other = other || self.diacritics && DIACRITICS.contains(c);
            if LETTERS.contains(c) || MARKS.contains(c) || other {
                result.symbols.push(c.to_string());
            } else {
                result.skipped.insert(c);
            }
        }
        result.symbols.push(SILENCE.to_owned());
        result
    }

    /// As JSON, for [`Frontend::from_json`].
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }

    /// From JSON.
    ///
    /// # Errors
    ///
    /// [`FrontendError::Format`] if it is not what [`Frontend::to_json`] gives.
    pub fn from_json(json: &str) -> Result<Frontend, FrontendError> {
        serde_json::from_str(json).map_err(|error| FrontendError::Format(error.to_string()))
    }
}

/// A front end at work on many texts: `espeak-ng` is found and asked for its languages once.
#[derive(Debug)]
pub struct Encoder<'a> {
    frontend: &'a Frontend,
    espeak: Mutex<Option<Arc<Espeak>>>,
}

impl Encoder<'_> {
    /// As [`Frontend::check`].
    ///
    /// # Errors
    ///
    /// [`FrontendError`] saying what is missing.
    pub fn check(&self) -> Result<(), FrontendError> {
        let frontend = self.frontend;
        if !frontend.lexicon.is_empty() && frontend.units == Units::Characters {
            return Err(FrontendError::LexiconOfCharacters);
        }
        if frontend.units == Units::Phonemes {
            let espeak = self.espeak()?;
            let several = if frontend.language.is_some() { &[] } else { frontend.languages.as_slice() };
            frontend.language.iter().chain(several).try_for_each(|language| espeak.phonemizer(language).map(drop))?;
            return Ok(());
        }
        // Characters need no program; but nobody else knows which codes there are.
        let given = frontend.language.iter().filter(|language| language.rules() == Rules::Plain);
        for language in given {
            if let Err(error @ PhonemeError::Language(..)) =
                self.espeak().and_then(|espeak| espeak.phonemizer(language))
            {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// As [`Frontend::symbols`].
    ///
    /// # Errors
    ///
    /// [`FrontendError`] if phonemes are wanted and `espeak-ng` cannot make them.
    pub fn symbols(&self, texts: &[(&str, Option<&Language>)]) -> Result<Vec<Symbols>, FrontendError> {
        match self.frontend.units {
            Units::Characters => {
                Ok(texts.iter().map(|(text, language)| self.frontend.characters(text, *language)).collect())
            }
            Units::Phonemes => self.phonemes(texts),
        }
    }

    /// The program, found once.
    fn espeak(&self) -> Result<Arc<Espeak>, PhonemeError> {
        let mut known = self.espeak.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(espeak) = &*known {
            return Ok(espeak.clone());
        }
        let found = Arc::new(Espeak::find()?);
        *known = Some(found.clone());
        Ok(found)
    }

    fn phonemes(&self, texts: &[(&str, Option<&Language>)]) -> Result<Vec<Symbols>, FrontendError> {
        let pieces: Vec<(Language, Pieces)> = (texts.iter())
            .map(|(text, language)| {
                let language = self.frontend.language_of(text, *language);
                let pieces = Pieces::of(text, &language, &self.frontend.lexicon);
                (language, pieces)
            })
            .collect();
        let mut clauses: BTreeMap<&Language, BTreeMap<&str, String>> = BTreeMap::new();
        for (language, pieces) in &pieces {
            let of_language = clauses.entry(language).or_default();
            for piece in &pieces.pieces {
                if let Piece::Clause(clause) = piece {
                    of_language.insert(clause, String::new());
                }
            }
        }
        for (language, clauses) in &mut clauses {
            if clauses.is_empty() {
                continue;
            }
            let texts: Vec<&str> = clauses.keys().copied().collect();
            let said = self.espeak()?.phonemizer(language)?.phonemes(&texts)?;
            clauses.values_mut().zip(said).for_each(|(place, said)| *place = said);
        }
        let word_boundary = self.frontend.word_boundary;
        let join = |(language, pieces): (Language, Pieces)| {
            let mut symbols = vec![SILENCE.to_owned()];
            for piece in &pieces.pieces {
                let ipa = match piece {
                    Piece::Pause => {
                        silence(&mut symbols);
                        continue;
                    }
                    Piece::Ipa(ipa) => ipa,
                    Piece::Clause(clause) => &clauses[&language][clause.as_str()],
                };
                let phonemes = tokenize_ipa(ipa);
                if word_boundary && !phonemes.is_empty() && symbols.last().is_some_and(|last| last != SILENCE) {
                    symbols.push(" ".to_owned());
                }
                symbols.extend(phonemes.into_iter().filter(|symbol| word_boundary || symbol != " "));
            }
            silence(&mut symbols);
            Symbols { symbols, skipped: pieces.skipped }
        };
        Ok(pieces.iter().cloned().map(join).collect())
    }
}

/// One silence, however many marks ask for it; a text without a sound is one silence.
fn silence(symbols: &mut Vec<String>) {
    if symbols.last().is_some_and(|last| last != SILENCE) {
        symbols.push(SILENCE.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn phonemes() -> Frontend {
        Frontend { units: Units::Phonemes, ..Frontend::default() }
    }

    /// The symbols of a text; none, and a loud remark, without `espeak-ng`.
    fn symbols_of(frontend: &Frontend, text: &str) -> Option<String> {
        match frontend.symbols(&[(text, None)]) {
            Ok(mut symbols) => Some(symbols.remove(0).symbols.join(" ")),
            Err(FrontendError::Phonemes(PhonemeError::Missing(error))) => {
                eprintln!("SKIPPED: espeak-ng is not installed: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn characters_are_between_silences_and_marks_stay() {
        let frontend = Frontend::default();
        let symbols =
            frontend.symbols(&[("Dr. No, 2!", None), ("سلام؟", None), ("snow ☃ ж", None)]).expect("no program");
        assert_eq!(symbols[0].symbols.concat(), "<sil>doctor no, two!<sil>");
        assert_eq!(symbols[1].symbols.concat(), "<sil>سلام؟<sil>");
        assert_eq!(symbols[2].skipped, BTreeSet::from(['☃', 'ж']));
        assert!(symbols[2].has_words() && !frontend.symbols(&[("... !?", None)]).expect("characters")[0].has_words());
        let russian = Frontend { language: Some("ru".parse().expect("a code")), ..Frontend::default() };
        assert_eq!(russian.symbols(&[("Жук №5", None)]).expect("characters")[0].symbols.concat(), "<sil>жук 5<sil>");
    }

    #[test]
    fn phonemes_pause_at_marks_and_vowels_have_their_stress() {
        let Some(symbols) = symbols_of(&phonemes(), "Hello, world! It's 9:30 a.m. now - really.") else { return };
        assert!(symbols.starts_with("<sil> h ə l ˈo ʊ <sil> w ˈɜː l d <sil> ɪ t s n ˈa ɪ n"), "{symbols}");
        assert!(symbols.ends_with("ɹ iə l i <sil>") || symbols.ends_with("i <sil>"), "{symbols}");
        assert_eq!(symbols.matches(SILENCE).count(), 5, "{symbols}");
        assert!(!symbols.contains("ˈ ") && !symbols.contains("  "), "{symbols}");
    }

    #[test]
    fn persian_and_spanish_have_phonemes() {
        if let Some(symbols) = symbols_of(&phonemes(), "سلام، ۲۳ کتاب دارم؟") {
            assert!(symbols.starts_with("<sil> s a l ˈɑ m <sil> b"), "{symbols}");
            assert_eq!(symbols.matches(SILENCE).count(), 3, "{symbols}");
        }
        let spanish = Frontend { language: Some("es".parse().expect("a code")), ..phonemes() };
        if let Some(symbols) = symbols_of(&spanish, "¿Qué pasó el 3 de enero?") {
            assert!(
                symbols.starts_with("<sil> k ˈe p a s ˈo e l t ɾ ˈe s") && symbols.ends_with("o <sil>"),
                "{symbols}"
            );
        }
    }

    #[test]
    fn a_lexicon_and_phonemes_in_the_text_are_taken_as_they_are() {
        let frontend = Frontend { lexicon: Lexicon::parse("moss mˈɑːs").expect("a word"), ..phonemes() };
        if let Some(symbols) = symbols_of(&frontend, "moss") {
            assert_eq!(symbols, "<sil> m ˈɑː s <sil>");
        }
        let words = Frontend { word_boundary: true, ..frontend };
        if let Some(symbols) = symbols_of(&words, "[[ab c]] moss.") {
            assert_eq!(symbols, "<sil> a b   c   m ˈɑː s <sil>");
        }
    }

    #[test]
    fn texts_are_in_the_languages_that_there_are() {
        let codes = |codes: &[&str]| codes.iter().map(|code| code.parse().expect("a code")).collect::<Vec<Language>>();
        let spanish = Frontend { languages: codes(&["es"]), ..Frontend::default() };
        assert_eq!(spanish.language_of("hello", None).code(), "es");
        assert_eq!(spanish.language_of("hello", Some(&Language::ENGLISH)), Language::ENGLISH, "it says so itself");
        assert_eq!(spanish.symbols(&[("Ñu 2", None)]).expect("characters")[0].symbols.concat(), "<sil>ñu 2<sil>");
        let both = Frontend { languages: codes(&["en", "fa"]), ..Frontend::default() };
        assert_eq!(
            ["hello", "سلام", "12"].map(|text| both.language_of(text, None).code().to_owned()),
            ["en", "fa", "en"]
        );
        let given = Frontend { language: Some(Language::PERSIAN), ..both };
        assert_eq!(given.language_of("hello", Some(&Language::ENGLISH)), Language::PERSIAN);
    }

    /// The voice of an English corpus: what it never saw is named, also where the program would read out names of letters.
    #[test]
    fn an_english_voice_does_not_know_persian() {
        let text = "the quick brown fox jumps over the lazy dog";
        for units in [Units::Characters, Units::Phonemes] {
            let english = Frontend { units, languages: vec![Language::ENGLISH], ..Frontend::default() };
            if symbols_of(&english, text).is_none() {
                continue;
            }
            let symbols = english.symbols(&[(text, None)]).expect("symbols").remove(0).symbols;
            let voice = english.with_vocabulary(Vocabulary::of(symbols.into_iter().collect()));
            let encoded = voice.encode("سلام دنیا", None).expect("symbols");
            assert!(encoded.unknown.contains("س") && encoded.unknown.contains("م"), "{units}: {encoded:?}");
            assert!(voice.encode("the fox", None).expect("symbols").unknown.is_empty(), "{units}");
        }
    }

    #[test]
    fn short_vowels_are_heard_and_are_characters_when_they_are_wanted() {
        let persian = Frontend { language: Some(Language::PERSIAN), ..Frontend::default() };
        let concat = |frontend: &Frontend| frontend.symbols(&[("گِل", None)]).expect("no program")[0].symbols.concat();
        assert_eq!(concat(&persian), "<sil>گل<sil>");
        assert_eq!(concat(&Frontend { diacritics: true, ..persian.clone() }), "<sil>گِل<sil>");
        let heard = Frontend { units: Units::Phonemes, ..persian };
        if let (Some(clay), Some(flower)) = (symbols_of(&heard, "گِل"), symbols_of(&heard, "گُل")) {
            assert_eq!((clay.as_str(), flower.as_str()), ("<sil> ɡ ˈe l <sil>", "<sil> ɡ ˈo l <sil>"));
        }
    }

    #[test]
    fn any_text_goes_through_the_program() {
        let long = "word ".repeat(2_000);
        let texts = ["-x --help", "one\ntwo\r\nthree", "a\0b", "😀", "[[ ]] [[", &long, "end."];
        if symbols_of(&phonemes(), "x").is_none() {
            return;
        }
        let inputs: Vec<_> = texts.iter().map(|text| (*text, None)).collect();
        let symbols = phonemes().symbols(&inputs).expect("symbols");
        assert_eq!(symbols[6].symbols.join(" "), "<sil> ˈɛ n d <sil>");
        assert_eq!((symbols[3].symbols.len(), symbols[3].skipped.len()), (1, 1));
        assert!(symbols[5].symbols.len() > 6_000 && symbols[1].symbols.len() > 8, "{}", symbols[5].symbols.len());
    }

    #[test]
    fn a_frontend_survives_saving_and_a_damaged_one_is_refused() {
        let vocabulary = Vocabulary::of(["a", "ɑː"].map(str::to_owned).into());
        let lexicon = Lexicon::parse("moss mɑːs").expect("a word");
        let frontend = Frontend { language: Some(Language::PERSIAN), vocabulary, lexicon, ..phonemes() };
        assert_eq!(Frontend::from_json(&frontend.to_json()).expect("the same"), frontend);
        assert!(Frontend::from_json("{}").is_err());
        let error = Frontend { units: Units::Characters, ..frontend }.check().expect_err("a lexicon of characters");
        assert!(matches!(error, FrontendError::LexiconOfCharacters));
    }

    #[test]
    fn raw_text_is_looked_up_as_it_is() {
        let frontend = Frontend::raw(Vocabulary::new(["a", "B", " "]).expect("no symbol twice"));
        let encoded = frontend.encode("a Bb", None).expect("characters");
        assert_eq!(
            (encoded.ids, encoded.unknown.into_iter().collect::<Vec<_>>()),
            (vec![1, 3, 2], vec!["b".to_owned()])
        );
    }

    proptest! {
        #[test]
        fn encoding_is_stable_and_every_id_is_known(text in "\\PC{0,60}", other in "[a-zآ-ی ,.!?]{1,40}") {
            let frontend = Frontend::default();
            let symbols = frontend.symbols(&[(&text, None), (&other, None)]).expect("characters need no program");
            let seen: BTreeSet<String> = symbols.iter().flat_map(|symbols| symbols.symbols.clone()).collect();
            let frontend = frontend.with_vocabulary(Vocabulary::of(seen));
            for text in [&text, &other] {
                let encoded = frontend.encode(text, None).expect("characters");
                prop_assert_eq!(&encoded, &frontend.encode(text, None).expect("characters"));
                prop_assert!(encoded.ids.iter().all(|&id| id > 0 && (id as usize) < frontend.vocabulary.size()));
                let skipped = encoded.unknown.iter().all(|unknown| !frontend.vocabulary.symbols().contains(unknown));
                prop_assert!(skipped);
            }
        }
    }
}
