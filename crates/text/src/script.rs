//! Scripts: which letters a language is written with.

/// A writing system, as far as it tells languages apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Script {
    Latin,
    Greek,
    Cyrillic,
    Armenian,
    Hebrew,
    Arabic,
    Devanagari,
    Bengali,
    Gurmukhi,
    Gujarati,
    Oriya,
    Tamil,
    Telugu,
    Kannada,
    Malayalam,
    Sinhala,
    Thai,
    Myanmar,
    Georgian,
    Ethiopic,
    Cherokee,
    Hangul,
    Kana,
    Han,
}

use Script::{
    Arabic, Armenian, Bengali, Cherokee, Cyrillic, Devanagari, Ethiopic, Georgian, Greek, Gujarati, Gurmukhi, Han,
    Hangul, Hebrew, Kana, Kannada, Latin, Malayalam, Myanmar, Oriya, Sinhala, Tamil, Telugu, Thai,
};

/// Where the letters of each are.
const RANGES: [(u32, u32, Script); 39] = [
    (0x0041, 0x024F, Latin),
    (0x0250, 0x02AF, Latin),
    (0x0370, 0x03FF, Greek),
    (0x0400, 0x052F, Cyrillic),
    (0x0531, 0x058F, Armenian),
    (0x0590, 0x05FF, Hebrew),
    (0x0600, 0x06FF, Arabic),
    (0x0750, 0x077F, Arabic),
    (0x08A0, 0x08FF, Arabic),
    (0x0900, 0x097F, Devanagari),
    (0x0980, 0x09FF, Bengali),
    (0x0A00, 0x0A7F, Gurmukhi),
    (0x0A80, 0x0AFF, Gujarati),
    (0x0B00, 0x0B7F, Oriya),
    (0x0B80, 0x0BFF, Tamil),
    (0x0C00, 0x0C7F, Telugu),
    (0x0C80, 0x0CFF, Kannada),
    (0x0D00, 0x0D7F, Malayalam),
    (0x0D80, 0x0DFF, Sinhala),
    (0x0E00, 0x0E7F, Thai),
    (0x1000, 0x109F, Myanmar),
    (0x10A0, 0x10FF, Georgian),
    (0x1C90, 0x1CBF, Georgian),
    (0x1100, 0x11FF, Hangul),
    (0x1200, 0x139F, Ethiopic),
    (0x13A0, 0x13FF, Cherokee),
    (0xAB70, 0xABBF, Cherokee),
    (0x1E00, 0x1EFF, Latin),
    (0x1F00, 0x1FFF, Greek),
    (0x3040, 0x30FF, Kana),
    (0x3130, 0x318F, Hangul),
    (0x3400, 0x4DBF, Han),
    (0x4E00, 0x9FFF, Han),
    (0xAC00, 0xD7AF, Hangul),
    (0xF900, 0xFAFF, Han),
    (0xFB50, 0xFDFF, Arabic),
    (0xFE70, 0xFEFC, Arabic),
    (0xFF21, 0xFF5A, Latin),
    (0x20000, 0x2FA1F, Han),
];

/// Languages that are not written with Latin letters alone, by their codes without region.
const WRITTEN_WITH: [(&[Script], &[&str]); 22] = [
    (&[Greek], &["el", "grc"]),
    (&[Cyrillic], &["ru", "uk", "bg", "be", "mk", "kk", "ky", "tt", "ba", "cv"]),
    (&[Armenian], &["hy", "hyw"]),
    (&[Hebrew], &["he"]),
    (&[Arabic], &["fa", "ar", "ur", "sd", "ug"]),
    (&[Devanagari], &["hi", "mr", "ne", "kok"]),
    (&[Bengali], &["bn", "as", "bpy"]),
    (&[Gurmukhi], &["pa"]),
    (&[Gujarati], &["gu"]),
    (&[Oriya], &["or"]),
    (&[Tamil], &["ta"]),
    (&[Telugu], &["te"]),
    (&[Kannada], &["kn"]),
    (&[Malayalam], &["ml"]),
    (&[Sinhala], &["si"]),
    (&[Thai], &["th"]),
    (&[Myanmar], &["my", "shn"]),
    (&[Georgian], &["ka"]),
    (&[Ethiopic], &["am"]),
    (&[Cherokee], &["chr"]),
    (&[Hangul, Han], &["ko"]),
    (&[Kana, Han], &["ja"]),
];

/// Languages that are written with Latin letters and nothing else.
const LATIN: [&str; 32] = [
    "en", "es", "pt", "fr", "it", "de", "nl", "sv", "da", "nb", "no", "fi", "pl", "cs", "sk", "hu", "tr", "ro", "ca",
    "id", "vi", "eo", "et", "lv", "lt", "hr", "sl", "af", "ga", "cy", "is", "sw",
];

impl Script {
    /// The script of a letter; none of what is not a letter, or of a script that no language here has.
    pub(crate) fn of(c: char) -> Option<Script> {
        let code = u32::from(c);
        let inside = |&&(first, last, _): &&(u32, u32, Script)| (first..=last).contains(&code);
        RANGES.iter().find(inside).map(|&(_, _, script)| script).filter(|_| c.is_alphabetic())
    }

    /// Whether texts of a language, by its code without region, are written with this letter. Latin letters are read in
    /// every language (names, English words); of a language that is not listed nothing is known, and all are.
    pub(crate) fn is_read_in(primary: &str, letter: char) -> bool {
        let Some(script) = Script::of(letter) else { return true };
        if script == Latin {
            return true;
        }
        if LATIN.contains(&primary) {
            return false;
        }
        let own = WRITTEN_WITH.iter().find(|(_, codes)| codes.contains(&primary));
        own.is_none_or(|(scripts, _)| scripts.contains(&script))
    }

    /// The language that a text in this script most likely is in, if nothing else tells.
    pub(crate) fn usual_language(self) -> &'static str {
        match self {
            Latin => "en",
            Cyrillic => "ru",
            Han => "cmn",
            Hangul => "ko",
            Kana => "ja",
            other => WRITTEN_WITH
                .iter()
                .find(|(scripts, _)| scripts.contains(&other))
                .and_then(|(_, codes)| codes.first())
                .unwrap_or(&"en"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_have_their_script_and_languages_their_letters() {
        for (letter, script) in
            [('e', Latin), ('ñ', Latin), ('ж', Cyrillic), ('س', Arabic), ('ω', Greek), ('の', Kana), ('한', Hangul)]
        {
            assert_eq!(Script::of(letter), Some(script), "{letter}");
        }
        assert_eq!(['3', '،', '☃', '×'].map(Script::of), [None; 4]);
        for (code, letter, is_read) in [
            ("en", 'س', false),
            ("en", 'é', true),
            ("fa", 'س', true),
            ("fa", 'x', true),
            ("fa", 'ж', false),
            ("es", 'ж', false),
            ("ja", '日', true),
            ("xyz", 'ж', true),
        ] {
            assert_eq!(Script::is_read_in(code, letter), is_read, "{code} {letter}");
        }
        assert_eq!([Arabic, Cyrillic, Greek, Han].map(Script::usual_language), ["fa", "ru", "el", "cmn"]);
    }
}
