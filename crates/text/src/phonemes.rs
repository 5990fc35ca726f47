//! Phonemes by the `espeak-ng` program, if it is installed. It runs as a process of its own: it is GPL and is never
//! linked.

use std::fmt;
use std::io::{self, Write};
use std::process::{Command, Stdio};

use crate::normalise::Language;

/// Turns text into phonemes of the International Phonetic Alphabet.
#[derive(Clone, Debug)]
pub struct Phonemiser {
    program: String,
    voice: &'static str,
}

/// Why there are no phonemes.
#[derive(Debug)]
#[non_exhaustive]
pub enum PhonemeError {
    /// The program is not installed or does not start.
    Missing(io::Error),
    /// The program failed, with these words.
    Failed(String),
}

impl fmt::Display for PhonemeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PhonemeError::Missing(error) => {
                write!(f, "phonemes need the program `espeak-ng`, which does not start: {error}")
            }
            PhonemeError::Failed(words) => write!(f, "`espeak-ng` failed: {words}"),
        }
    }
}

impl std::error::Error for PhonemeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PhonemeError::Missing(error) => Some(error),
            PhonemeError::Failed(_) => None,
        }
    }
}

impl Phonemiser {
    /// Finds out whether the program can be used.
    ///
    /// # Errors
    ///
    /// [`PhonemeError::Missing`] if it does not start.
    pub fn new(language: Language) -> Result<Phonemiser, PhonemeError> {
        Phonemiser::with_program("espeak-ng", language)
    }

    /// The same with a program of another name.
    ///
    /// # Errors
    ///
    /// As [`Phonemiser::new`].
    pub fn with_program(program: &str, language: Language) -> Result<Phonemiser, PhonemeError> {
        let voice = match language {
            Language::English => "en-us",
            Language::Persian => "fa",
        };
        let status = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.map_err(PhonemeError::Missing)?;
        Ok(Phonemiser { program: program.to_owned(), voice })
    }

    /// The phonemes of one text, words separated by blanks, clauses by ` | `.
    ///
    /// # Errors
    ///
    /// [`PhonemeError`] if the program does not start or does not succeed.
    pub fn phonemes(&self, text: &str) -> Result<String, PhonemeError> {
        let mut child = Command::new(&self.program)
            .args(["-q", "--ipa", "-v", self.voice, "--stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(PhonemeError::Missing)?;
        // The text is far smaller than a pipe's buffer or is read before anything is written: no deadlock.
        let mut input = child.stdin.take().expect("piped");
        input.write_all(text.replace('\n', " ").as_bytes()).map_err(PhonemeError::Missing)?;
        drop(input);
        let output = child.wait_with_output().map_err(PhonemeError::Missing)?;
        if !output.status.success() {
            return Err(PhonemeError::Failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let clauses = String::from_utf8_lossy(&output.stdout);
        // Remarks such as (en) mark a change of language, not a sound.
        let clauses: Vec<String> = (clauses.lines().map(str::trim).filter(|line| !line.is_empty()))
            .map(|line| {
                let mut depth = 0;
                let kept = line.chars().filter(|c| {
                    depth += i32::from(*c == '(');
                    let keep = depth == 0;
                    depth -= i32::from(*c == ')');
                    keep
                });
                kept.collect()
            })
            .collect();
        Ok(clauses.join(" | "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named() {
        let error = Phonemiser::with_program("no-such-espeak", Language::English).expect_err("missing");
        assert!(error.to_string().contains("espeak-ng"), "{error}");
    }

    #[test]
    fn an_error_of_the_system_is_the_source() {
        let error = Phonemiser::with_program("no-such-espeak", Language::English).expect_err("missing");
        assert!(std::error::Error::source(&error).is_some_and(|source| source.is::<io::Error>()));
    }

    #[test]
    fn english_and_persian_have_phonemes() {
        for (language, text, some) in [(Language::English, "hello world", 'l'), (Language::Persian, "سلام دنیا", 's')]
        {
            match Phonemiser::new(language) {
                Err(error) => eprintln!("skipped: {error}"),
                Ok(phonemiser) => {
                    let phonemes = phonemiser.phonemes(text).expect("it runs");
                    assert!(phonemes.contains(some) && phonemes.contains(' '), "{phonemes}");
                }
            }
        }
    }
}
