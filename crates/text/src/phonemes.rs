//! Phonemes of clauses by `espeak-ng`, and the symbols of IPA text.

use std::path::{Path, PathBuf};

use unicode_normalization::char::is_combining_mark;

use crate::espeak::{self, PhonemeError};

/// A clause that no text has and every language can say.
const BETWEEN: &str = "7 3 7 1 9 7 7";

/// Turns clauses of one language into phonemes of the International Phonetic Alphabet.
#[derive(Clone, Debug)]
pub struct Phonemizer {
    program: PathBuf,
    voice: String,
}

impl Phonemizer {
    pub(crate) fn new(program: &Path, voice: &str) -> Phonemizer {
        Phonemizer { program: program.to_owned(), voice: voice.to_owned() }
    }

    /// The phonemes of each clause, words separated by blanks. A clause is words without punctuation between them; all of
    /// them go through one process, or two.
    ///
    /// # Errors
    ///
    /// [`PhonemeError`] if the program does not start or does not succeed.
    pub fn phonemes(&self, clauses: &[&str]) -> Result<Vec<String>, PhonemeError> {
        if clauses.is_empty() {
            return Ok(Vec::new());
        }
        let lines = self.lines(clauses.iter().copied())?;
        if lines.len() == clauses.len() {
            return Ok(lines);
        }
        if clauses.len() == 1 {
            return Ok(vec![lines.join(" ")]);
        }
        // It made two clauses of one, or none: with a clause between them that is known, the lines can be told apart.
        let marked = clauses.iter().flat_map(|clause| [*clause, BETWEEN]);
        let lines = self.lines(std::iter::once(BETWEEN).chain(marked))?;
        let mut parts = lines.split(|line| Some(line) == lines.first()).skip(1);
        let phonemes: Vec<String> = parts.by_ref().take(clauses.len()).map(|lines| lines.join(" ")).collect();
        if phonemes.len() == clauses.len() && parts.next().is_some_and(<[String]>::is_empty) && parts.next().is_none() {
            return Ok(phonemes);
        }
        // Even so: halves are tried until each has as many lines as clauses.
        let (first, second) = clauses.split_at(clauses.len() / 2);
        let mut phonemes = self.phonemes(first)?;
        phonemes.extend(self.phonemes(second)?);
        Ok(phonemes)
    }

    /// What the program makes of clauses: usually a line each.
    fn lines<'a>(&self, clauses: impl Iterator<Item = &'a str>) -> Result<Vec<String>, PhonemeError> {
        // An empty line ends a clause for espeak-ng; brackets would begin phonemes in a notation of its own.
        let input: String = clauses.map(|clause| clause.replace(['\n', '[', ']'], " ") + "\n\n").collect();
        let text = espeak::run(&self.program, &["-q", "--ipa", "-b", "1", "-v", &self.voice, "--stdin"], &input)?;
        let lines = text.lines().map(without_remarks).map(|line| line.trim().to_owned());
        Ok(lines.filter(|line| !line.is_empty()).collect())
    }
}

/// Remarks such as `(en)` mark a change of language, not a sound.
fn without_remarks(line: &str) -> String {
    let mut depth = 0;
    let kept = line.chars().filter(|c| {
        depth += i32::from(*c == '(');
        let keep = depth == 0;
        depth -= i32::from(*c == ')');
        keep
    });
    kept.collect()
}

/// The mark of primary stress, which begins the symbol of a stressed vowel.
pub(crate) const STRESS: char = 'ˈ';

/// Vowels of the IPA: what carries the stress of its syllable.
const VOWELS: &str = "iyɨʉɯuɪʏʊeøɘɵɤoəɛœɜɞʌɔæɐaɶɑɒɚɝᵻᵊ";

/// Phonemes of IPA text. Primary stress belongs to the next vowel of its word, wherever the mark stands before it (espeak-ng writes it
/// before the vowel, dictionaries before the syllable); secondary stress is dropped; length, diacritics, ties and tones belong to the
/// phoneme that they change; words are separated by one `" "`.
pub fn tokenize_ipa(ipa: &str) -> Vec<String> {
    let mut symbols: Vec<String> = Vec::new();
    let (mut tied, mut stressed) = (false, false);
    for c in ipa.chars() {
        match c {
            // An apostrophe stands for it in plain text.
            STRESS | '\'' | '’' => stressed = true,
            'ˌ' | '.' | '‿' | '-' | '_' | '|' | '‖' | '\u{200D}' | '\u{200B}' => {}
            c if c.is_whitespace() => {
                if symbols.last().is_some_and(|last| last != " ") {
                    symbols.push(" ".to_owned());
                }
                (tied, stressed) = (false, false);
            }
            // U+02B0 to U+02FF: length, aspiration, palatalization, rhoticity, tone letters; digits are tones.
            c if tied || is_combining_mark(c) || ('\u{02B0}'..='\u{02FF}').contains(&c) || c.is_ascii_digit() => {
                tied = matches!(c, '\u{0361}' | '\u{035C}');
                match symbols.last_mut().filter(|last| *last != " ") {
                    Some(last) => last.push(c),
                    None if is_combining_mark(c) => {}
                    None => symbols.push(c.to_string()),
                }
            }
            c if stressed && VOWELS.contains(c) => {
                symbols.push(format!("{STRESS}{c}"));
                stressed = false;
            }
            c => symbols.push(c.to_string()),
        }
    }
    if symbols.last().is_some_and(|last| last == " ") {
        symbols.pop();
    }
    symbols
}

/// A symbol without its stress.
pub fn unstressed(symbol: &str) -> &str {
    symbol.strip_prefix(STRESS).unwrap_or(symbol)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::espeak::Espeak;

    /// The phonemizer of a language; none, and a loud remark, without the program.
    fn phonemizer(code: &str) -> Option<Phonemizer> {
        match Espeak::find().and_then(|espeak| espeak.phonemizer(&code.parse().expect("a code"))) {
            Ok(phonemizer) => Some(phonemizer),
            Err(PhonemeError::Missing(error)) => {
                eprintln!("SKIPPED: espeak-ng is not installed: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_region_that_it_does_not_know_is_the_language() {
        if let Some(persian) = phonemizer("fa-IR") {
            assert_eq!(persian.voice, "fa");
        }
    }

    #[test]
    fn every_clause_has_its_own_phonemes_however_many_there_are() {
        let Some(english) = phonemizer("en") else { return };
        let words = ["hello world", "one", "dr. who", "a.m.", "e.g. this", "well known", "x", "the u.s. team", "x y z"];
        let clauses: Vec<&str> = (0..500).map(|n| words[n % words.len()]).collect();
        let all = english.phonemes(&clauses).expect("it runs");
        assert_eq!(all.len(), clauses.len());
        for (clause, phonemes) in clauses.iter().zip(&all).take(words.len()) {
            assert_eq!(english.phonemes(&[clause]).expect("it runs").concat(), *phonemes, "{clause}");
        }
        // Some that it makes two lines of, and some that it says nothing of.
        let odd = ["one. Two", "hello", "~", "", "a\nb", "three! Four", "-x --help", "[[x", "end"];
        let all = english.phonemes(&odd).expect("it runs");
        assert_eq!((all[1].as_str(), all[8].as_str()), ("həlˈoʊ", "ˈɛnd"));
        assert!(all[0].contains(' ') && all[5].contains(' ') && all[3].is_empty(), "{all:?}");
    }

    #[test]
    fn languages_have_their_phonemes_and_remarks_are_no_sounds() {
        for (code, text, some) in [("en", "hello world", "l"), ("fa", "سلام دنیا", "s"), ("es", "el niño", "ɲ")]
        {
            let Some(phonemizer) = phonemizer(code) else { return };
            let phonemes = phonemizer.phonemes(&[text]).expect("it runs").remove(0);
            assert!(phonemes.contains(some) && phonemes.contains(' '), "{phonemes}");
        }
        let mixed = phonemizer("fa").map(|persian| persian.phonemes(&["سلام hello"]).expect("it runs").remove(0));
        assert!(mixed.is_none_or(|mixed| !mixed.contains('(') && !mixed.contains(')')));
    }

    #[test]
    fn stress_and_length_belong_to_their_vowel() {
        assert_eq!(tokenize_ipa("hˈaʊ ɑːɹ jˌuː"), ["h", "ˈa", "ʊ", " ", "ɑː", "ɹ", " ", "j", "uː"]);
        assert_eq!(tokenize_ipa("t͡ʃˈɐ̃ sˈiː"), ["t͡ʃ", "ˈɐ̃", " ", "s", "ˈiː"]);
        // As a dictionary writes it; and a word without a vowel has no stress.
        assert_eq!(tokenize_ipa("həˈstɹoʊ"), ["h", "ə", "s", "t", "ɹ", "ˈo", "ʊ"]);
        assert_eq!(tokenize_ipa("ˈpst a"), ["p", "s", "t", " ", "a"]);
        assert_eq!(tokenize_ipa("tʰi5 "), ["tʰ", "i5"]);
        assert_eq!(tokenize_ipa(" ˈ "), Vec::<String>::new());
    }
}
