//! A text on its way to phonemes: what `espeak-ng` is to say, what is known already, and where the pauses are.

use std::collections::BTreeSet;

use unicode_normalization::char::is_combining_mark;

use crate::language::{Language, Rules};
use crate::lexicon::Lexicon;
use crate::normalize::Normalizer;
use crate::persian;

/// Marks at which a speaker pauses, wherever they stand in a word.
const PAUSES: &str = ";?!…؟؛،。、।॥";
/// Marks at which a speaker pauses unless they stand inside a number or an abbreviation.
const PAUSES_AT_END: &str = ".,:";
/// espeak-ng reads clauses into a buffer of 800 bytes; a clause of more characters than this goes in pieces.
const LONGEST_CLAUSE: usize = 300;

/// A part of a text on its way to phonemes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Words without punctuation between them, for `espeak-ng`.
    Clause(String),
    /// Phonemes, from the lexicon or from `[[…]]` in the text.
    Ipa(String),
    /// A pause.
    Pause,
}

/// The pieces of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pieces {
    pub(crate) pieces: Vec<Piece>,
    /// Letters of another script and symbols (emoji, arrows): `espeak-ng` would read out their names.
    pub(crate) skipped: BTreeSet<char>,
    clause: String,
}

impl Pieces {
    /// Of a text in a language.
    pub(crate) fn of(text: &str, language: &Language, lexicon: &Lexicon) -> Pieces {
        let mut pieces = Pieces::default();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("[[") {
            let Some((ipa, after)) = after.split_once("]]") else { break };
            pieces.words(before, language, lexicon);
            pieces.pieces.push(Piece::Ipa(ipa.trim_matches('/').to_owned()));
            rest = after;
        }
        pieces.words(rest, language, lexicon);
        pieces
    }

    fn words(&mut self, text: &str, language: &Language, lexicon: &Lexicon) {
        let said = Normalizer::new(language).for_espeak().normalize(text);
        let mut heard = String::with_capacity(said.len());
        for c in said.chars() {
            match is_symbol(c) || !language.reads(c) {
                true => drop(self.skipped.insert(c)),
                false => heard.push(c),
            }
        }
        let mut words = heard.split(' ').peekable();
        while let Some(word) = words.next() {
            let (parts, mut pause_after) = split_at_pauses(word);
            // The full stop of `a.m.` in the middle of a sentence ends nothing.
            let abbreviation = parts.len() == 1 && parts[0].contains('.') && word.ends_with('.');
            pause_after &= !(abbreviation && words.peek().is_some());
            let count = parts.len();
            for (n, part) in parts.into_iter().enumerate() {
                if let Some(ipa) = look_up(lexicon, part, language) {
                    self.flush();
                    self.pieces.push(Piece::Ipa(ipa.to_owned()));
                } else if part.chars().any(char::is_alphanumeric) {
                    self.add(part);
                }
                if n + 1 < count {
                    self.pause();
                }
            }
            if pause_after {
                self.pause();
            }
        }
        self.flush();
    }

    /// Adds a word to the clause, in pieces if it is very long: some scripts have no blanks.
    fn add(&mut self, word: &str) {
        let letters: Vec<char> = word.chars().collect();
        for part in letters.chunks(LONGEST_CLAUSE) {
            if self.clause.chars().count() + part.len() > LONGEST_CLAUSE {
                self.flush();
            }
            self.clause.push_str(if self.clause.is_empty() { "" } else { " " });
            self.clause.extend(part);
        }
    }

    fn pause(&mut self) {
        self.flush();
        self.pieces.push(Piece::Pause);
    }

    fn flush(&mut self) {
        let clause = std::mem::take(&mut self.clause);
        if clause.chars().any(char::is_alphanumeric) {
            self.pieces.push(Piece::Clause(clause));
        }
    }
}

fn look_up<'a>(lexicon: &'a Lexicon, word: &str, language: &Language) -> Option<&'a str> {
    if lexicon.is_empty() {
        return None;
    }
    let lower = word.to_lowercase();
    let without_vowels = || match language.rules() {
        Rules::Persian => lexicon.get(&persian::characters(&lower)),
        Rules::English | Rules::Plain => None,
    };
    lexicon.get(&lower).or_else(without_vowels)
}

/// Arrows, dingbats, emoji and what modifies them.
fn is_symbol(c: char) -> bool {
    matches!(u32::from(c), 0x2190..=0x2BFF | 0x1F000..=0x1FAFF | 0xFE00..=0xFE0F | 0x20E3 | 0xE0000..=0xE007F)
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

    fn clauses_of(text: &str, code: &str) -> Pieces {
        Pieces::of(text, &code.parse().expect("a code"), &Lexicon::default())
    }

    #[test]
    fn a_lexicon_and_phonemes_in_the_text_win() {
        let lexicon = Lexicon::parse("moss mˈɑːs").expect("a word");
        let found = Pieces::of("Dr. Moss said [[tˈændəm]], twice.", &Language::ENGLISH, &lexicon);
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
        assert_eq!(found.pieces, expected);
        let german = Pieces::of("Das MOSS.", &"de".parse().expect("a code"), &lexicon);
        assert_eq!(german.pieces, [clause("Das"), ipa("mˈɑːs"), Piece::Pause], "capitals stay, and do not matter here");
    }

    #[test]
    fn letters_of_another_script_and_symbols_are_named_not_read_out() {
        let found = clauses_of("hello سلام 😀 world→ café", "en");
        assert_eq!(found.pieces, [Piece::Clause("hello world cafe".to_owned())]);
        assert_eq!(found.skipped, BTreeSet::from(['س', 'ل', 'ا', 'م', '😀', '→']));
        let persian = clauses_of("سلام hello", "fa");
        assert!(persian.skipped.is_empty() && persian.pieces.len() == 1, "{persian:?}");
        assert_eq!(clauses_of("سلام", "en").pieces, []);
    }

    #[test]
    fn no_clause_is_too_long_for_the_program() {
        let text = format!("{} {}", "x".repeat(10_000), "word ".repeat(2_000));
        let found = clauses_of(&text, "en");
        let lengths = found.pieces.iter().map(|piece| match piece {
            Piece::Clause(clause) => clause.chars().count(),
            _ => 0,
        });
        assert!(lengths.clone().all(|length| length <= LONGEST_CLAUSE + 1) && lengths.sum::<usize>() > 19_000);
        let odd = clauses_of("-x --help\nsecond\0line\r\n", "en");
        assert_eq!(odd.pieces, [Piece::Clause("x help second line".to_owned())]);
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

    proptest! {
        #[test]
        fn any_text_has_pieces_without_marks_in_their_clauses(text in "\\PC{0,60}", code in "(en|fa|es)") {
            for piece in clauses_of(&text, &code).pieces {
                if let Piece::Clause(clause) = piece {
                    prop_assert!(clause.chars().any(char::is_alphanumeric));
                    prop_assert!(!clause.contains(|c| PAUSES.contains(c)), "{clause}");
                }
            }
        }
    }
}
