//! Phonemes by the `espeak-ng` program, if it is installed. It runs as a process of its own: it is GPL and is never
//! linked.

use std::fmt;
use std::io::{self, Write};
use std::process::{Command, Stdio};

use unicode_normalization::char::is_combining_mark;

use crate::language::Language;

/// Turns clauses of one language into phonemes of the International Phonetic Alphabet.
#[derive(Clone, Debug)]
pub struct Phonemizer {
    program: String,
    voice: String,
}

/// Why there are no phonemes.
#[derive(Debug)]
#[non_exhaustive]
pub enum PhonemeError {
    /// The program is not installed or does not start.
    Missing(io::Error),
    /// The program failed, with these words.
    Failed(String),
    /// The program has no voice for this language.
    Language(Language),
}

impl fmt::Display for PhonemeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PhonemeError::Missing(error) => write!(
                f,
                "phonemes need the program `espeak-ng`, which does not start ({error}): install the package espeak-ng, \
                 or train on characters"
            ),
            PhonemeError::Failed(words) => write!(f, "`espeak-ng` failed: {words}"),
            PhonemeError::Language(language) => write!(
                f,
                "`espeak-ng` does not know the language `{language}`: `espeak-ng --voices` lists those that it knows"
            ),
        }
    }
}

impl std::error::Error for PhonemeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PhonemeError::Missing(error) => Some(error),
            PhonemeError::Failed(_) | PhonemeError::Language(_) => None,
        }
    }
}

const PROGRAM: &str = "espeak-ng";

impl Phonemizer {
    /// For texts of this language; finds out whether the program can be used and has a voice for it.
    ///
    /// # Errors
    ///
    /// [`PhonemeError`] if it does not start, or does not know the language.
    pub fn new(language: &Language) -> Result<Phonemizer, PhonemeError> {
        Phonemizer::with_program(PROGRAM, language)
    }

    /// The same with a program of another name.
    ///
    /// # Errors
    ///
    /// As [`Phonemizer::new`].
    pub fn with_program(program: &str, language: &Language) -> Result<Phonemizer, PhonemeError> {
        let listed = output(program, &["--voices"], "")?;
        // The second column is the code; others that a voice speaks are in brackets: `(fa-latn 3)`.
        let codes: Vec<&str> = (listed.lines().skip(1))
            .flat_map(|line| {
                let others = line.split('(').skip(1).filter_map(|other| other.split_whitespace().next());
                line.split_whitespace().nth(1).into_iter().chain(others)
            })
            .collect();
        let wanted = if language.code() == "en" { "en-us" } else { language.code() };
        let find = |wanted: &str| codes.iter().find(|code| code.eq_ignore_ascii_case(wanted));
        let voice = find(wanted).or_else(|| find(language.primary()));
        let voice = voice.ok_or_else(|| PhonemeError::Language(language.clone()))?;
        Ok(Phonemizer { program: program.to_owned(), voice: (*voice).to_owned() })
    }

    /// The version of the program: another one may give other phonemes.
    ///
    /// # Errors
    ///
    /// [`PhonemeError`] if it does not start.
    pub fn version() -> Result<String, PhonemeError> {
        let text = output(PROGRAM, &["--version"], "")?;
        Ok(text.split("Data at").next().unwrap_or_default().trim().to_owned())
    }

    /// The phonemes of each clause, words separated by blanks. A clause is words without punctuation between them; all of
    /// them go through one process.
    ///
    /// # Errors
    ///
    /// [`PhonemeError`] if the program does not start or does not succeed.
    pub fn phonemes(&self, clauses: &[&str]) -> Result<Vec<String>, PhonemeError> {
        if clauses.is_empty() {
            return Ok(Vec::new());
        }
        // An empty line ends a clause for espeak-ng, and every clause comes out on a line of its own.
        let input: String = clauses.iter().map(|clause| format!("{}\n\n", clause.replace('\n', " "))).collect();
        let text = output(&self.program, &["-q", "--ipa", "-b", "1", "-v", &self.voice, "--stdin"], &input)?;
        let lines: Vec<String> =
            text.lines().map(without_remarks).map(|line| line.trim().to_owned()).filter(|l| !l.is_empty()).collect();
        if lines.len() == clauses.len() {
            return Ok(lines);
        }
        if clauses.len() == 1 {
            return Ok(vec![lines.join(" ")]);
        }
        // It saw a clause too many or too few: halves are tried until each has as many lines as clauses.
        let (first, second) = clauses.split_at(clauses.len() / 2);
        let mut phonemes = self.phonemes(first)?;
        phonemes.extend(self.phonemes(second)?);
        Ok(phonemes)
    }
}

/// What the program writes when it reads this.
fn output(program: &str, args: &[&str], input: &str) -> Result<String, PhonemeError> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(PhonemeError::Missing)?;
    let mut stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        // Written from another thread: a pipe holds little, and both sides would wait for each other.
        scope.spawn(move || {
            let written = stdin.as_mut().map(|stdin| stdin.write_all(input.as_bytes()));
            drop((stdin, written)); // a program that does not read says so by its exit code
        });
        child.wait_with_output()
    });
    let output = output.map_err(PhonemeError::Missing)?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(PhonemeError::Failed(if words.is_empty() { output.status.to_string() } else { words }));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
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

/// Phonemes of IPA text. Stress marks are dropped; length, diacritics, ties and tones belong to the phoneme that they
/// change; words are separated by one `" "`.
pub fn tokenize_ipa(ipa: &str) -> Vec<String> {
    let mut symbols: Vec<String> = Vec::new();
    let mut tied = false;
    for c in ipa.chars() {
        match c {
            // Primary and secondary stress, and what stands for them in plain text.
            'ˈ' | 'ˌ' | '\'' | '’' | '.' | '‿' | '-' | '_' | '|' | '‖' | '\u{200D}' | '\u{200B}' => {}
            c if c.is_whitespace() => {
                if symbols.last().is_some_and(|last| last != " ") {
                    symbols.push(" ".to_owned());
                }
                tied = false;
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
            c => symbols.push(c.to_string()),
        }
    }
    if symbols.last().is_some_and(|last| last == " ") {
        symbols.pop();
    }
    symbols
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The phonemizer of a language; none, and a loud remark, without the program.
    fn phonemizer(code: &str) -> Option<Phonemizer> {
        match Phonemizer::new(&code.parse().expect("a code")) {
            Ok(phonemizer) => Some(phonemizer),
            Err(PhonemeError::Missing(error)) => {
                eprintln!("SKIPPED: espeak-ng is not installed: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_missing_program_is_named_with_what_to_do() {
        let error = Phonemizer::with_program("no-such-espeak", &Language::ENGLISH).expect_err("missing");
        assert!(error.to_string().contains("install the package espeak-ng"), "{error}");
        assert!(std::error::Error::source(&error).is_some_and(|source| source.is::<io::Error>()));
    }

    #[test]
    fn a_language_that_it_does_not_know_is_named() {
        if phonemizer("en").is_some() {
            let error = Phonemizer::new(&"tlh-x".parse().expect("a code")).expect_err("not there");
            assert!(matches!(error, PhonemeError::Language(_)), "{error}");
            assert_eq!(Phonemizer::new(&"fa-IR".parse().expect("a code")).expect("Persian").voice, "fa");
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
    fn stress_takes_no_token_and_length_belongs_to_its_vowel() {
        assert_eq!(tokenize_ipa("hˈaʊ ɑːɹ jˌuː"), ["h", "a", "ʊ", " ", "ɑː", "ɹ", " ", "j", "uː"]);
        assert_eq!(tokenize_ipa("t͡ʃˈɐ̃"), ["t͡ʃ", "ɐ̃"]);
        assert_eq!(tokenize_ipa("tʰi5 "), ["tʰ", "i5"]);
        assert_eq!(tokenize_ipa(" ˈ "), Vec::<String>::new());
    }
}
