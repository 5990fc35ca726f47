//! What is written becomes what is said.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;

use crate::language::{Language, Rules};
use crate::{english, persian};

/// Changes whenever the same text may give another result: what was derived from texts is then made again.
pub const NORMALIZER_VERSION: u32 = 4;

/// The most passes over a text after the first.
const PASSES: usize = 8;

/// Normalizes text of one language. The same text always gives the same result, and so does a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Normalizer {
    rules: Rules,
    /// `I` is not the capital of `i`.
    dotless: bool,
    keeps_case: bool,
    keeps_diacritics: bool,
}

impl Normalizer {
    /// For texts in this language.
    pub fn new(language: &Language) -> Normalizer {
        let dotless = ["tr", "az"].contains(&language.primary());
        Normalizer { rules: language.rules(), dotless, keeps_case: false, keeps_diacritics: false }
    }

    /// The same with the short vowels of Persian that are written: they say how a word sounds, but few texts have them.
    pub fn with_diacritics(self) -> Normalizer {
        Normalizer { keeps_diacritics: true, ..self }
    }

    /// The same for a program that reads the result: it knows what short vowels are, and capitals in languages whose
    /// abbreviations are left to it.
    pub fn for_espeak(self) -> Normalizer {
        Normalizer { keeps_case: self.rules == Rules::Plain, ..self.with_diacritics() }
    }

    /// The words to be said, in lower case, with the punctuation that changes how they are said. Any text will do; one
    /// without words may become empty.
    pub fn normalize(&self, text: &str) -> String {
        // What one pass leaves may be something to expand: a blank less makes `dr .` an abbreviation. Repeated until
        // nothing changes, so that a normalized text stays as it is; nothing was ever seen to need a fourth pass.
        let mut said = self.pass(text);
        for _ in 0..PASSES {
            let again = self.pass(&said);
            if again == said {
                break;
            }
            said = again;
        }
        said
    }

    fn pass(&self, text: &str) -> String {
        let mut composed = String::with_capacity(text.len());
        if text.is_ascii() {
            composed.extend(text.chars().filter_map(plain));
        } else {
            // Compatibility composition: presentation forms, ligatures and full-width letters become plain ones; but
            // it would join a fraction or a power to the number before it, and split an accent off its quote.
            let mut prepared = String::with_capacity(text.len());
            for c in text.chars() {
                prepared += &before_composition(c, self.rules);
            }
            match self.rules {
                // Other languages only get one form of each letter: № is a word of theirs that nobody here knows.
                Rules::Plain => composed.extend(prepared.nfc().filter_map(plain)),
                Rules::English | Rules::Persian => composed.extend(prepared.nfkc().filter_map(plain)),
            }
            if self.rules == Rules::English {
                // Accents of borrowed words: nobody says «caf».
                composed = composed.nfd().filter(|c| !('\u{0300}'..='\u{036F}').contains(c)).nfc().collect();
            }
        }
        let said = match self.rules {
            Rules::English => english::expand(&composed),
            Rules::Persian => persian::expand(&composed, self.keeps_diacritics),
            Rules::Plain => composed,
        };
        if self.keeps_case {
            return collapse(&said);
        }
        let said = if self.dotless { said.replace('I', "ı").replace('İ', "i") } else { said };
        collapse(&said.to_lowercase())
    }
}

/// Characters that compatibility composition would misread, in words of the language.
fn before_composition(c: char, rules: Rules) -> Cow<'static, str> {
    let english = match rules {
        Rules::English => true,
        Rules::Persian => false,
        Rules::Plain => return Cow::Owned(shape(c)),
    };
    Cow::Borrowed(match (c, english) {
        ('\u{00B4}' | '\u{02BC}', _) => "'",
        ('½', true) => " and a half ",
        ('½', false) => " و نیم ",
        ('¼', true) => " and a quarter ",
        ('¼', false) => " و یک چهارم ",
        ('¾', true) => " and three quarters ",
        ('¾', false) => " و سه چهارم ",
        ('²', true) => " squared ",
        ('²', false) => " به توان دو ",
        ('³', true) => " cubed ",
        ('³', false) => " به توان سه ",
        _ => return Cow::Owned(c.to_string()),
    })
}

/// A letter in another shape (ligature, full width, presentation form) as the plain one; anything else as it is.
fn shape(c: char) -> String {
    match c {
        '\u{FB00}'..='\u{FB4F}' | '\u{FB50}'..='\u{FDFF}' | '\u{FE70}'..='\u{FEFC}' | '\u{FF01}'..='\u{FFDC}' => {
            std::iter::once(c).nfkc().collect()
        }
        c => c.to_string(),
    }
}

/// Quotes, dashes and blanks in one form; invisible marks go, except the zero-width non-joiner, which is spelling.
fn plain(c: char) -> Option<char> {
    match c {
        '\u{2018}' | '\u{2019}' | '\u{201A}' | '\u{2032}' | '\u{00B4}' | '`' => Some('\''),
        '\u{201C}' | '\u{201D}' | '\u{201E}' | '\u{2033}' => Some('"'),
        '\u{2010}'..='\u{2015}' | '\u{2212}' => Some('-'),
        '\u{200C}' => Some(c),
        '\u{00AD}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}' => None,
        c if c.is_whitespace() || c.is_control() => Some(' '),
        c => Some(c),
    }
}

/// Single blanks, none at the ends, none before a mark that closes.
fn collapse(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for c in text.chars() {
        let closes = matches!(c, '.' | ',' | ';' | ':' | '!' | '?' | '؟' | '،' | '؛' | ')');
        if c.is_whitespace() {
            if !result.is_empty() && !result.ends_with(' ') {
                result.push(' ');
            }
            continue;
        }
        if closes && result.ends_with(' ') {
            result.pop();
        }
        result.push(c);
    }
    result.truncate(result.trim_end().len());
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blanks_quotes_and_invisible_marks_have_one_form() {
        let normalizer = Normalizer::new(&Language::ENGLISH);
        assert_eq!(
            normalizer.normalize("  “It\u{2019}s\u{00A0}\u{00AD} me” — he\tsaid …\n"),
            "\"it's me\" - he said..."
        );
        assert_eq!(normalizer.normalize("ﬁne ＡＢＣ"), "fine abc");
        assert_eq!(normalizer.normalize("a\0\0b"), "a b", "found by the fuzzer");
        assert_eq!(normalizer.normalize(" \u{200F}\u{FEFF} "), "");
    }

    #[test]
    fn other_languages_keep_their_accents_and_numbers() {
        let spanish = Normalizer::new(&"es".parse().expect("a code"));
        assert_eq!(spanish.normalize("¿Qué  pasó el 3 de ENERO?"), "¿qué pasó el 3 de enero?");
        assert_eq!(spanish.normalize("nin\u{0303}o ﬁn № 5 ½"), "niño fin № 5 ½", "composed, and nothing else");
        let turkish = Normalizer::new(&"tr".parse().expect("a code"));
        assert_eq!(turkish.normalize("ISPARTA İzmir"), "ısparta izmir");
        let german = Normalizer::new(&"de".parse().expect("a code"));
        assert_eq!(german.for_espeak().normalize("Der LKW,  ja"), "Der LKW, ja", "espeak-ng spells capitals");
    }

    #[test]
    fn short_vowels_stay_where_somebody_reads_them() {
        let persian = Normalizer::new(&Language::PERSIAN);
        assert_eq!(persian.normalize("گِلِ سُرخ"), "گل سرخ");
        assert_eq!(persian.with_diacritics().normalize("گِلِ سُرخ، ۲"), "گِلِ سُرخ، دو");
        assert_eq!(persian.for_espeak().normalize("مُرد"), "مُرد");
    }

    proptest! {
        #[test]
        fn what_other_languages_and_espeak_get_is_stable_too(text in "\\PC{0,80}", code in "(es|tr|fa|en)") {
            let normalizer = Normalizer::new(&code.parse().expect("a code"));
            for normalizer in [normalizer, normalizer.with_diacritics(), normalizer.for_espeak()] {
                let once = normalizer.normalize(&text);
                prop_assert_eq!(normalizer.normalize(&once), once);
            }
        }

        #[test]
        fn any_text_is_normalized_without_a_panic_and_twice_is_once(text in "\\PC{0,80}", persian in any::<bool>()) {
            let language = if persian { Language::PERSIAN } else { Language::ENGLISH };
            let normalizer = Normalizer::new(&language);
            let once = normalizer.normalize(&text);
            prop_assert!(!once.contains("  "));
            prop_assert!(!once.chars().any(|c| c.is_ascii_digit()), "{once}");
            prop_assert_eq!(normalizer.normalize(&once), once);
        }

        #[test]
        fn texts_of_numbers_and_symbols_survive(text in "[0-9$£€%.,:/a-z۰-۹٪ #&+-]{0,40}") {
            for language in [Language::ENGLISH, Language::PERSIAN] {
                let normalizer = Normalizer::new(&language);
                let once = normalizer.normalize(&text);
                prop_assert!(!once.chars().any(|c| c.is_ascii_digit()), "{text} -> {once}");
                prop_assert_eq!(normalizer.normalize(&once), once);
            }
        }
    }
}
