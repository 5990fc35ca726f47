//! [`Choice`]: the language and the units of a corpus' texts, chosen when nobody says them, with the reason.

use tandem_text::{Espeak, Frontend, FrontendError, Guess, Language, PhonemeError, Units};

use crate::sources::Source;

/// Texts that a language is guessed from, evenly spread.
const TEXTS: usize = 500;

/// What of a front end is to be chosen. Nothing, unless it is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// The languages, by the texts; not if one is given.
    pub languages: bool,
    /// The units: phonemes if `espeak-ng` can make them, else characters.
    pub units: bool,
}

/// What was chosen, and why.
#[derive(Debug, Default)]
pub struct Choice {
    /// None: it was given, or taken from a run.
    pub languages: Option<LanguageChoice>,
    /// None: they were given, or taken from a run.
    pub units: Option<UnitsChoice>,
}

/// Where the languages of texts come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LanguageChoice {
    /// Languages that clips say themselves.
    pub listed: Vec<Language>,
    /// What the other texts look like; without texts if there are none.
    pub guess: Guess,
}

/// Why units are what they are.
#[derive(Debug)]
pub struct UnitsChoice {
    /// What was chosen.
    pub units: Units,
    /// Why it is not phonemes.
    pub why_not: Option<PhonemeError>,
}

impl Open {
    /// Finds out what cannot work with what is given, before anything is written.
    pub(crate) fn check(self, frontend: &Frontend) -> Result<(), FrontendError> {
        let units = match (self.units, frontend.lexicon.is_empty()) {
            (false, _) => frontend.units,
            (true, true) => Units::Characters,
            (true, false) => Units::Phonemes,
        };
        Frontend { units, ..frontend.clone() }.check()
    }

    /// Chooses, and changes the front end accordingly. `is_known` says whether texts were read with a front end before.
    pub(crate) fn choose(
        self,
        source: &dyn Source,
        frontend: &mut Frontend,
        is_known: impl Fn(&Frontend) -> bool,
    ) -> Result<Choice, FrontendError> {
        let mut choice = Choice::default();
        if self.languages && frontend.language.is_none() {
            let languages = LanguageChoice::of(source);
            frontend.languages = languages.all();
            choice.languages = Some(languages);
        }
        if self.units {
            frontend.units = Units::Phonemes;
            let why_not = if is_known(frontend) { None } else { espeak_lacks(frontend).err() };
            match why_not {
                // A lexicon is for phonemes: whoever gives one wants them.
                Some(error) if !frontend.lexicon.is_empty() => return Err(error.into()),
                // A language that nobody has is a mistake, not a reason.
                Some(error @ PhonemeError::Language(..)) if frontend.language.is_some() => return Err(error.into()),
                Some(_) => frontend.units = Units::Characters,
                None => {}
            }
            choice.units = Some(UnitsChoice { units: frontend.units, why_not });
        }
        Ok(choice)
    }
}

/// An error unless phonemes can be made for all languages of the texts.
fn espeak_lacks(frontend: &Frontend) -> Result<(), PhonemeError> {
    let espeak = Espeak::find()?;
    for language in frontend.language.iter().chain(&frontend.languages) {
        espeak.phonemizer(language)?;
    }
    Ok(())
}

impl LanguageChoice {
    /// Looks at texts of a source.
    fn of(source: &dyn Source) -> LanguageChoice {
        let rows = source.len();
        let count = rows.min(TEXTS);
        let (mut listed, mut texts) = (Vec::new(), Vec::new());
        for n in 0..count {
            // What cannot be read is found again, and named, when it is measured.
            let Ok(record) = source.record((n * rows / count) as u32) else { continue };
            match record.language {
                Some(language) => listed.push(language),
                None => texts.push(record.text),
            }
        }
        listed.sort_unstable();
        listed.dedup();
        LanguageChoice { listed, guess: Guess::of(texts.iter().map(String::as_str)) }
    }

    /// All of them, in the order of their codes.
    fn all(&self) -> Vec<Language> {
        let guessed = self.guess.languages.iter().map(|(language, _)| language);
        let mut all: Vec<Language> = self.listed.iter().chain(guessed).cloned().collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}
