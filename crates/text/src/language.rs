//! The language of a text, by its code.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::script::Script;

/// A language by its code, such as `en`, `en-gb`, `fa` or `es`: lower case, parts joined by `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Language(Cow<'static, str>);

/// Whose numbers, abbreviations and symbols are written out as words here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rules {
    /// English.
    English,
    /// Persian.
    Persian,
    /// None: only Unicode, spaces and quotes are brought into one form.
    Plain,
}

/// Why a text is not a language code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanguageError(String);

impl fmt::Display for LanguageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a language code such as en, fa or es", self.0)
    }
}

impl std::error::Error for LanguageError {}

impl Language {
    /// English.
    pub const ENGLISH: Language = Language(Cow::Borrowed("en"));
    /// Persian.
    pub const PERSIAN: Language = Language(Cow::Borrowed("fa"));

    /// A code that is one.
    pub(crate) const fn known(code: &'static str) -> Language {
        Language(Cow::Borrowed(code))
    }

    /// Whether its texts are written with this letter; what is not a letter belongs to all of them.
    pub fn reads(&self, letter: char) -> bool {
        Script::is_read_in(self.primary(), letter)
    }

    /// Its code.
    pub fn code(&self) -> &str {
        &self.0
    }

    /// The code without its region: `en` of `en-gb`.
    pub fn primary(&self) -> &str {
        self.0.split('-').next().unwrap_or(&self.0)
    }

    /// How its texts are normalized.
    pub fn rules(&self) -> Rules {
        match self.primary() {
            "en" => Rules::English,
            "fa" => Rules::Persian,
            _ => Rules::Plain,
        }
    }

    /// English or Persian, whichever most letters belong to, Persian when it is even; `None` without letters of
    /// either. [`Guess`](crate::Guess) knows more languages and needs more text.
    pub fn guess(text: &str) -> Option<Language> {
        let persian = text.chars().filter(|c| ('\u{0600}'..='\u{06FF}').contains(c) && c.is_alphanumeric()).count();
        let latin = text.chars().filter(char::is_ascii_alphabetic).count();
        match (persian, latin) {
            (0, 0) => None,
            _ if persian >= latin => Some(Language::PERSIAN),
            _ => Some(Language::ENGLISH),
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Language {
    type Err = LanguageError;

    fn from_str(text: &str) -> Result<Language, LanguageError> {
        let code = text.trim().to_ascii_lowercase().replace('_', "-");
        let part = |part: &str| (1..=8).contains(&part.len()) && part.chars().all(|c| c.is_ascii_alphanumeric());
        let first = code.split('-').next().unwrap_or_default();
        let named = (2..=4).contains(&first.len()) && first.chars().all(|c| c.is_ascii_alphabetic());
        if named && code.split('-').all(part) {
            Ok(Language(Cow::Owned(code)))
        } else {
            Err(LanguageError(text.to_owned()))
        }
    }
}

impl TryFrom<String> for Language {
    type Error = LanguageError;

    fn try_from(text: String) -> Result<Language, LanguageError> {
        text.parse()
    }
}

impl From<Language> for String {
    fn from(language: Language) -> String {
        language.0.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guess_is_the_language_of_most_letters() {
        assert_eq!(Language::guess("سلام world سلام"), Some(Language::PERSIAN));
        assert_eq!(Language::guess("hello سلام world"), Some(Language::ENGLISH));
        assert_eq!(Language::guess("123 !?"), None);
        assert_eq!(Language::guess("۱۳۵۷"), Some(Language::PERSIAN));
    }

    #[test]
    fn codes_are_read_in_any_spelling_and_nonsense_is_refused() {
        let language: Language = "fa_IR".parse().expect("a code");
        assert_eq!((language.code(), language.rules()), ("fa-ir", Rules::Persian));
        assert_eq!("en-GB".parse::<Language>().map(|language| language.rules()), Ok(Rules::English));
        assert_eq!("es".parse::<Language>().map(|language| language.rules()), Ok(Rules::Plain));
        for nonsense in ["", "e", "english please", "12", "en--us", "-"] {
            assert!(nonsense.parse::<Language>().is_err(), "{nonsense}");
        }
    }
}
