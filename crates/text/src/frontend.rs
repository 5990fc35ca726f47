//! From written text to the ids that a model is given: the one encoder that training data and synthesis share. It is
//! saved in every checkpoint.
//!
//! ```text
//! "Dr. Moss, 23"  ──normalize──►  "doctor moss, twenty-three"
//!     characters  ──►  <sil> d o c t o r ␣ m o s s , ␣ t w e … <sil>
//!     phonemes    ──►  <sil> d ɑː k t ɚ m ɔ s <sil> t w ɛ n t i θ ɹ iː <sil>
//! ```
//!
//! Invariant: the same text, front end and `espeak-ng` always give the same ids, and ids are below the vocabulary's
//! size.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use unicode_normalization::char::is_combining_mark;

use crate::language::{Language, Rules};
use crate::lexicon::{Lexicon, LexiconError};
use crate::normalize::{NORMALIZER_VERSION, Normalizer};
use crate::phonemes::{PhonemeError, Phonemizer, tokenize_ipa};
use crate::vocabulary::{Encoded, SILENCE, Vocabulary};

/// Changes whenever the same normalized text may give other symbols: what was derived from texts is then made again.
pub const FRONTEND_VERSION: u32 = 1;

/// Marks that characters keep as symbols of their own.
const MARKS: &str = " !\"'(),-.:;?؟،؛«»¿¡\u{200C}\u{0654}";
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzآابپتثجچحخدذرزژسشصضطظعغفقکگلمنوهیئء";
/// Marks at which a speaker pauses, wherever they stand in a word.
const PAUSES: &str = ";?!…؟؛،。、।॥";
/// Marks at which a speaker pauses unless they stand inside a number or an abbreviation.
const PAUSES_AT_END: &str = ".,:";
/// espeak-ng reads clauses into a buffer of 800 bytes; a clause of more characters than this goes in pieces.
const LONGEST_CLAUSE: usize = 300;

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
    /// The language of the texts; guessed for each text (English or Persian) when not given.
    pub language: Option<Language>,
    /// Pronunciations that win over `espeak-ng`; for phonemes only.
    pub lexicon: Lexicon,
    /// Phonemes have a symbol, a blank, between two words. Off: it would take at least one frame where speech has none.
    pub word_boundary: bool,
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

/// A part of a text on its way to phonemes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// Words without punctuation between them, for `espeak-ng`.
    Clause(String),
    /// Phonemes, from the lexicon or from `[[…]]` in the text.
    Ipa(String),
    Pause,
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

    /// Whether it can work here: `espeak-ng` is there and knows the language if phonemes are wanted, and a language
    /// that was given exists as far as that can be known.
    ///
    /// # Errors
    ///
    /// [`FrontendError`] saying what is missing.
    pub fn check(&self) -> Result<(), FrontendError> {
        if !self.lexicon.is_empty() && self.units == Units::Characters {
            return Err(FrontendError::LexiconOfCharacters);
        }
        let language = self.language.as_ref().unwrap_or(&Language::ENGLISH);
        match (self.units, Phonemizer::new(language)) {
            (_, Ok(_)) => Ok(()),
            // Nobody else knows all languages; characters need no program.
            (Units::Characters, Err(PhonemeError::Missing(_) | PhonemeError::Failed(_))) => Ok(()),
            (Units::Characters, Err(_)) if language.rules() != Rules::Plain => Ok(()),
            (_, Err(error)) => Err(error.into()),
        }
    }

    /// Everything that decides which symbols a text has, the vocabulary aside: what is kept of texts holds as long as
    /// this stays the same.
    ///
    /// # Errors
    ///
    /// [`FrontendError`] if `espeak-ng` is needed and does not start.
    pub fn key(&self) -> Result<String, FrontendError> {
        let espeak = match self.units {
            Units::Characters => String::new(),
            Units::Phonemes => Phonemizer::version()?,
        };
        let bare = self.with_vocabulary(Vocabulary::default());
        Ok(format!("{} {FRONTEND_VERSION} {NORMALIZER_VERSION} {espeak}", bare.to_json()))
    }

    /// The language of a text: that of the front end, else the one that is given with it, else guessed.
    pub fn language_of(&self, text: &str, given: Option<&Language>) -> Language {
        let known = self.language.as_ref().or(given).cloned();
        known.or_else(|| Language::guess(text)).unwrap_or(Language::ENGLISH)
    }

    /// The symbols of texts, each with its language if one is given. Phonemes of all of them are made in a few calls.
    ///
    /// # Errors
    ///
    /// [`FrontendError`] if phonemes are wanted and `espeak-ng` cannot make them.
    pub fn symbols(&self, texts: &[(&str, Option<&Language>)]) -> Result<Vec<Symbols>, FrontendError> {
        match self.units {
            Units::Characters => Ok(texts.iter().map(|(text, language)| self.characters(text, *language)).collect()),
            Units::Phonemes => self.phonemes(texts),
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
        for c in Normalizer::new(&language).normalize(text).chars() {
            let other = language.rules() == Rules::Plain && (c.is_alphanumeric() || is_combining_mark(c));
            if LETTERS.contains(c) || MARKS.contains(c) || other {
                result.symbols.push(c.to_string());
            } else {
                result.skipped.insert(c);
            }
        }
        result.symbols.push(SILENCE.to_owned());
        result
    }

    fn phonemes(&self, texts: &[(&str, Option<&Language>)]) -> Result<Vec<Symbols>, FrontendError> {
        let pieces: Vec<(Language, Vec<Piece>)> = (texts.iter())
            .map(|(text, language)| {
                let language = self.language_of(text, *language);
                let pieces = self.pieces(text, &language);
                (language, pieces)
            })
            .collect();
        let mut clauses: BTreeMap<&Language, BTreeMap<&str, String>> = BTreeMap::new();
        for (language, pieces) in &pieces {
            let of_language = clauses.entry(language).or_default();
            for piece in pieces {
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
            let said = Phonemizer::new(language)?.phonemes(&texts)?;
            clauses.values_mut().zip(said).for_each(|(place, said)| *place = said);
        }
        let join = |(language, pieces): &(Language, Vec<Piece>)| {
            let mut symbols = vec![SILENCE.to_owned()];
            for piece in pieces {
                let ipa = match piece {
                    Piece::Pause => {
                        self.silence(&mut symbols);
                        continue;
                    }
                    Piece::Ipa(ipa) => ipa,
                    Piece::Clause(clause) => &clauses[language][clause.as_str()],
                };
                let phonemes = tokenize_ipa(ipa);
                if self.word_boundary && !phonemes.is_empty() && symbols.last().is_some_and(|last| last != SILENCE) {
                    symbols.push(" ".to_owned());
                }
                symbols.extend(phonemes.into_iter().filter(|symbol| self.word_boundary || symbol != " "));
            }
            self.silence(&mut symbols);
            Symbols { symbols, skipped: BTreeSet::new() }
        };
        Ok(pieces.iter().map(join).collect())
    }

    /// One silence, however many marks ask for it; a text without a sound is one silence.
    fn silence(&self, symbols: &mut Vec<String>) {
        if symbols.last().is_some_and(|last| last != SILENCE) {
            symbols.push(SILENCE.to_owned());
        }
    }

    /// What `espeak-ng` is to say, what is known, and where the pauses are.
    fn pieces(&self, text: &str, language: &Language) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("[[") {
            let Some((ipa, after)) = after.split_once("]]") else { break };
            self.words(before, language, &mut pieces);
            pieces.push(Piece::Ipa(ipa.trim_matches('/').to_owned()));
            rest = after;
        }
        self.words(rest, language, &mut pieces);
        pieces
    }

    fn words(&self, text: &str, language: &Language, pieces: &mut Vec<Piece>) {
        let said = Normalizer::new(language).normalize(text);
        let mut clause = String::new();
        let mut words = said.split(' ').peekable();
        while let Some(word) = words.next() {
            let (parts, mut pause_after) = split_at_pauses(word);
            // The full stop of `a.m.` in the middle of a sentence ends nothing.
            let abbreviation = parts.len() == 1 && parts[0].contains('.') && word.ends_with('.');
            pause_after &= !(abbreviation && words.peek().is_some());
            let count = parts.len();
            for (n, part) in parts.into_iter().enumerate() {
                if let Some(ipa) = self.lexicon.get(part) {
                    flush(&mut clause, pieces);
                    pieces.push(Piece::Ipa(ipa.to_owned()));
                } else if part.chars().any(char::is_alphanumeric) {
                    if clause.chars().count() + part.chars().count() > LONGEST_CLAUSE {
                        flush(&mut clause, pieces);
                    }
                    clause.push_str(if clause.is_empty() { "" } else { " " });
                    clause.push_str(part);
                }
                if n + 1 < count {
                    flush(&mut clause, pieces);
                    pieces.push(Piece::Pause);
                }
            }
            if pause_after {
                flush(&mut clause, pieces);
                pieces.push(Piece::Pause);
            }
        }
        flush(&mut clause, pieces);
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

fn flush(clause: &mut String, pieces: &mut Vec<Piece>) {
    if !clause.is_empty() {
        pieces.push(Piece::Clause(std::mem::take(clause)));
    }
}

/// The parts of a written word between pauses, without the marks around them, and whether a pause follows.
fn split_at_pauses(word: &str) -> (Vec<&str>, bool) {
    let is_mark = |c: char| !c.is_alphanumeric() && !is_combining_mark(c) && c != '\'' && c != '\u{200C}';
    let trimmed = word.trim_end_matches(is_mark);
    let marks = &word[trimmed.len()..];
    let ends = |c: char| PAUSES.contains(c) || PAUSES_AT_END.contains(c);
    // A dash by itself or behind a word is a pause; a hyphen inside one is not.
    let pause = marks.contains(ends) || marks.contains('-');
    let inner = trimmed.trim_start_matches(|c| is_mark(c) || c == '\'');
    let mut parts = Vec::new();
    let mut start = 0;
    let chars: Vec<(usize, char)> = inner.char_indices().collect();
    for (n, &(at, c)) in chars.iter().enumerate() {
        let digit = |at: Option<usize>| at.and_then(|at| chars.get(at)).is_some_and(|(_, c)| c.is_numeric());
        let number = digit(n.checked_sub(1)) && digit(Some(n + 1));
        let twice = |c: char| chars.get(n + 1).is_some_and(|next| next.1 == c);
        let splits = PAUSES.contains(c) || (matches!(c, ',' | ':') && !number) || (matches!(c, '.' | '-') && twice(c));
        if splits {
            parts.push(inner[start..at].trim_matches(is_mark));
            start = at + c.len_utf8();
        }
    }
    parts.push(inner[start..].trim_matches(is_mark));
    parts.retain(|part| !part.is_empty());
    (parts, pause)
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
        assert_eq!(russian.symbols(&[("Жук №5", None)]).expect("characters")[0].symbols.concat(), "<sil>жук no5<sil>");
    }

    #[test]
    fn phonemes_pause_at_marks_and_take_no_stress() {
        let Some(symbols) = symbols_of(&phonemes(), "Hello, world! It's 9:30 a.m. now - really.") else { return };
        assert!(symbols.starts_with("<sil> h ə l o ʊ <sil> w ɜː l d <sil> ɪ t s n a ɪ n"), "{symbols}");
        assert!(symbols.ends_with("ɹ iə l i <sil>") || symbols.ends_with("i <sil>"), "{symbols}");
        assert_eq!(symbols.matches(SILENCE).count(), 5, "{symbols}");
        assert!(!symbols.contains('ˈ') && !symbols.contains("  "), "{symbols}");
    }

    #[test]
    fn persian_and_spanish_have_phonemes() {
        if let Some(symbols) = symbols_of(&phonemes(), "سلام، ۲۳ کتاب دارم؟") {
            assert!(symbols.starts_with("<sil> s a l ɑ m <sil> b"), "{symbols}");
            assert_eq!(symbols.matches(SILENCE).count(), 3, "{symbols}");
        }
        let spanish = Frontend { language: Some("es".parse().expect("a code")), ..phonemes() };
        if let Some(symbols) = symbols_of(&spanish, "¿Qué pasó el 3 de enero?") {
            assert!(symbols.starts_with("<sil> k e p a s o e l t ɾ e s") && symbols.ends_with("o <sil>"), "{symbols}");
        }
    }

    #[test]
    fn a_lexicon_and_phonemes_in_the_text_win() {
        let frontend = Frontend { lexicon: Lexicon::parse("moss mˈɑːs").expect("a word"), ..phonemes() };
        let pieces = frontend.pieces("Dr. Moss said [[tˈændəm]], twice.", &Language::ENGLISH);
        let clause = |text: &str| Piece::Clause(text.to_owned());
        let ipa = |text: &str| Piece::Ipa(text.to_owned());
        let expected = [
            clause("doctor"),
            ipa("mˈɑːs"),
            clause("said"),
            ipa("tˈændəm"),
            Piece::Pause,
            clause("twice"),
            Piece::Pause,
        ];
        assert_eq!(pieces, expected);
        if let Some(symbols) = symbols_of(&frontend, "moss") {
            assert_eq!(symbols, "<sil> m ɑː s <sil>");
        }
        let words = Frontend { word_boundary: true, ..frontend };
        if let Some(symbols) = symbols_of(&words, "[[ab c]] moss.") {
            assert_eq!(symbols, "<sil> a b   c   m ɑː s <sil>");
        }
    }

    #[test]
    fn pauses_are_found_where_speakers_make_them() {
        let split = |word: &'static str| split_at_pauses(word);
        assert_eq!(split("\"hello,\""), (vec!["hello"], true));
        assert_eq!(split("3,5"), (vec!["3,5"], false));
        assert_eq!(split("a.m."), (vec!["a.m"], true));
        assert_eq!(split("well-known"), (vec!["well-known"], false));
        assert_eq!(split("wait...what?"), (vec!["wait", "what"], true));
        assert_eq!(split("-"), (vec![], true));
        assert_eq!(split("(so)"), (vec!["so"], false));
        assert_eq!(split("¿qué?!"), (vec!["qué"], true));
        assert_eq!(split("بله،نه"), (vec!["بله", "نه"], false));
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

        #[test]
        fn any_text_has_pieces_without_marks_in_their_clauses(text in "\\PC{0,60}", persian in any::<bool>()) {
            let language = if persian { Language::PERSIAN } else { Language::ENGLISH };
            for piece in phonemes().pieces(&text, &language) {
                if let Piece::Clause(clause) = piece {
                    prop_assert!(clause.chars().any(char::is_alphanumeric));
                    prop_assert!(!clause.contains(|c| PAUSES.contains(c)), "{clause}");
                }
            }
        }
    }
}
