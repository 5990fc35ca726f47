//! English: abbreviations, money, ordinals, years, symbols.

use crate::numbers::{english, english_digits, english_ordinal, english_year};

/// Without their full stop; what follows tells a title from the end of a sentence no better than this list.
const ABBREVIATIONS: [(&str, &str); 22] = [
    ("mr", "mister"),
    ("mrs", "misess"),
    ("ms", "miz"),
    ("dr", "doctor"),
    ("prof", "professor"),
    ("rev", "reverend"),
    ("hon", "honorable"),
    ("gen", "general"),
    ("col", "colonel"),
    ("maj", "major"),
    ("capt", "captain"),
    ("lt", "lieutenant"),
    ("sgt", "sergeant"),
    ("jr", "junior"),
    ("sr", "senior"),
    ("co", "company"),
    ("ltd", "limited"),
    ("inc", "incorporated"),
    ("etc", "et cetera"),
    ("vs", "versus"),
    ("approx", "approximately"),
    ("dept", "department"),
];

/// Unit after a number without a blank or with one.
const UNITS: [(&str, &str); 13] = [
    ("km", "kilometers"),
    ("kg", "kilograms"),
    ("cm", "centimeters"),
    ("mm", "millimeters"),
    ("hz", "hertz"),
    ("khz", "kilohertz"),
    ("mhz", "megahertz"),
    ("ghz", "gigahertz"),
    ("mb", "megabytes"),
    ("gb", "gigabytes"),
    ("ms", "milliseconds"),
    ("mph", "miles per hour"),
    ("ft", "feet"),
];
/// After an amount of money.
const SCALES: [&str; 4] = ["thousand", "million", "billion", "trillion"];

/// Everything that is not said as it is written, in words.
pub(crate) fn expand(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len() * 2);
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        if let Some((currency, amount)) = money(&chars, at) {
            let (value, end) = read_number(&chars, amount);
            let scale = next_word(&chars, end).filter(|(word, _)| SCALES.contains(&word.as_str()));
            at = scale.as_ref().map_or(end, |(_, end)| *end);
            say_money(&mut out, currency, &value, scale.map(|(word, _)| word).as_deref());
        } else if c.is_numeric() && c.to_digit(10).is_none() {
            at += 1; // a numeral of another script that nobody would read aloud from
        } else if c.is_ascii_digit() {
            let (value, end) = read_number(&chars, at);
            at = say_number(&mut out, &chars, &value, end);
        } else if c.is_ascii_alphabetic() {
            let end = (at..chars.len()).find(|&n| !chars[n].is_ascii_alphabetic()).unwrap_or(chars.len());
            let word: String = chars[at..end].iter().collect();
            at = say_word(&mut out, &chars, &word, end);
        } else {
            match c {
                '%' => word(&mut out, "percent"),
                '&' => word(&mut out, "and"),
                '+' => word(&mut out, "plus"),
                '=' => word(&mut out, "equals"),
                '@' => word(&mut out, "at"),
                '#' => word(&mut out, "number"),
                '°' => word(&mut out, "degrees"),
                '$' => word(&mut out, "dollars"),
                '£' => word(&mut out, "pounds"),
                '€' => word(&mut out, "euros"),
                '/' | '\\' | '_' | '|' | '~' | '^' | '*' | '<' | '>' | '\u{2044}' => out.push(' '),
                c => out.push(c),
            }
            at += 1;
        }
    }
    out
}

/// Appends a word, apart from what is before and after it.
fn word(out: &mut String, text: &str) {
    if out.chars().last().is_some_and(|c| c.is_alphanumeric()) {
        out.push(' ');
    }
    out.push_str(text);
    out.push(' ');
}

/// The word after one blank, in lower case, and where it ends.
fn next_word(chars: &[char], at: usize) -> Option<(String, usize)> {
    let start = at + usize::from(chars.get(at) == Some(&' '));
    let word: String = chars[start..].iter().take_while(|c| c.is_ascii_alphabetic()).collect();
    (!word.is_empty()).then(|| (word.to_ascii_lowercase(), start + word.len()))
}

fn say_word(out: &mut String, chars: &[char], text: &str, end: usize) -> usize {
    let lower = text.to_ascii_lowercase();
    if lower == "st" && chars.get(end) == Some(&'.') {
        // Before a name it is a saint, elsewhere a street.
        let name = chars.get(end + 2).is_some_and(|c| c.is_uppercase()) && chars.get(end + 1) == Some(&' ');
        let after_name = out.trim_end().chars().last().is_some_and(|c| c.is_alphanumeric()) && out.ends_with(' ');
        let last_word = out.split_whitespace().last().unwrap_or("");
        let street = !name || after_name && last_word.starts_with(char::is_uppercase) && last_word.len() > 3;
        out.push_str(if street { "street" } else { "saint" });
        return if chars[end + 1..].iter().all(|c| c.is_whitespace()) { end } else { end + 1 };
    }
    if chars.get(end) == Some(&'.')
        && let Some((_, full)) = ABBREVIATIONS.iter().find(|(short, _)| *short == lower)
    {
        out.push_str(full);
        // At the end of a text the full stop closes the sentence too.
        return if chars[end + 1..].iter().all(|c| c.is_whitespace()) { end } else { end + 1 };
    }
    out.push_str(text);
    end
}

/// A number as it is written: `1,234.50`.
struct Written {
    whole: String,
    fraction: String,
    grouped: bool,
}

fn read_number(chars: &[char], start: usize) -> (Written, usize) {
    let digits = |from: usize| (from..chars.len()).take_while(|&n| chars[n].is_ascii_digit()).count();
    let mut end = start + digits(start);
    let mut whole: String = chars[start..end].iter().collect();
    let mut grouped = false;
    // Groups of exactly three: 1,234 but not 1,23 nor 12,3456.
    while whole.len() <= 18 && chars.get(end) == Some(&',') && digits(end + 1) == 3 && (grouped || end - start <= 3) {
        whole.extend(&chars[end + 1..end + 4]);
        end += 4;
        grouped = true;
    }
    let mut fraction = String::new();
    if chars.get(end) == Some(&'.') && digits(end + 1) > 0 {
        let length = digits(end + 1);
        fraction.extend(&chars[end + 1..end + 1 + length]);
        end += 1 + length;
    }
    (Written { whole, fraction, grouped }, end)
}

impl Written {
    /// `None` when it is too long to be a quantity (or starts like a code, 007): then digits are read one by one.
    fn value(&self) -> Option<u64> {
        let code = self.whole.len() > 1 && self.whole.starts_with('0');
        if code || self.whole.len() > 18 { None } else { self.whole.parse().ok() }
    }

    fn cardinal(&self) -> String {
        self.value().map_or_else(|| english_digits(&self.whole), english)
    }
}

fn say_number(out: &mut String, chars: &[char], value: &Written, end: usize) -> usize {
    if out.chars().last().is_some_and(|c| c.is_alphanumeric()) {
        out.push(' ');
    }
    let letters: String = chars[end..].iter().take_while(|c| c.is_ascii_alphabetic()).collect();
    let suffix = letters.to_ascii_lowercase();
    if value.fraction.is_empty()
        && let Some(number) = value.value()
    {
        if matches!(suffix.as_str(), "st" | "nd" | "rd" | "th") {
            out.push_str(&english_ordinal(number));
            return end + 2;
        }
        if suffix == "s" && number % 10 == 0 && (10..3000).contains(&number) {
            // 1990s, 80s
            let said = if number >= 1000 { english_year(number) } else { english(number) };
            out.push_str(said.strip_suffix('y').map_or(format!("{said}s"), |stem| format!("{stem}ies")).as_str());
            return end + 1;
        }
        if let Some(minutes) = clock(chars, end).filter(|_| number < 24) {
            out.push_str(&english(number));
            let half_of_day =
                next_word(chars, end + 3).is_some_and(|(word, _)| matches!(word.as_str(), "a" | "p" | "am" | "pm"));
            match minutes {
                0 if half_of_day => {}
                0 if (1..=12).contains(&number) => out.push_str(" o'clock"),
                0 => out.push_str(" hundred hours"),
                1..=9 => out.push_str(&format!(" oh {}", english(minutes))),
                _ => out.push_str(&format!(" {}", english(minutes))),
            }
            out.push(' ');
            return end + 3;
        }
    }
    // Four digits without a comma, of a year that people talk about.
    let year = value.fraction.is_empty() && !value.grouped && value.whole.len() == 4 && suffix.is_empty();
    match value.value() {
        Some(number) if year && (1100..2100).contains(&number) => out.push_str(&english_year(number)),
        _ => out.push_str(&value.cardinal()),
    }
    if !value.fraction.is_empty() {
        out.push_str(&format!(" point {}", english_digits(&value.fraction)));
    }
    let blank = usize::from(suffix.is_empty() && chars.get(end) == Some(&' '));
    let letters: String = chars[end + blank..].iter().take_while(|c| c.is_ascii_alphabetic()).collect();
    if let Some((_, unit)) = UNITS.iter().find(|(short, _)| short.eq_ignore_ascii_case(&letters)) {
        let one = value.value() == Some(1) && value.fraction.is_empty();
        let unit = match (*unit, one) {
            ("feet", true) => "foot",
            ("miles per hour", true) => "mile per hour",
            (unit, true) if unit != "hertz" && !unit.ends_with("hertz") => unit.trim_end_matches('s'),
            (unit, _) => unit,
        };
        out.push_str(&format!(" {unit}"));
        return end + blank + letters.len();
    }
    if chars.get(end).is_some_and(|c| c.is_alphanumeric()) {
        out.push(' ');
    }
    end
}

/// The minutes after `:MM`.
fn clock(chars: &[char], at: usize) -> Option<u64> {
    let minutes: String = chars.get(at..at + 3)?.iter().collect();
    let after = chars.get(at + 3);
    let minutes: u64 = minutes.strip_prefix(':')?.parse().ok()?;
    (minutes < 60 && !after.is_some_and(|c| c.is_ascii_digit() || *c == ':')).then_some(minutes)
}

/// A currency sign before a number: the names of the coins and where the number starts.
fn money(chars: &[char], at: usize) -> Option<([&'static str; 4], usize)> {
    let names = match chars[at] {
        '$' => ["dollar", "dollars", "cent", "cents"],
        '£' => ["pound", "pounds", "penny", "pence"],
        '€' => ["euro", "euros", "cent", "cents"],
        _ => return None,
    };
    chars.get(at + 1).filter(|c| c.is_ascii_digit()).map(|_| (names, at + 1))
}

fn say_money(out: &mut String, [one, many, cent, cents]: [&str; 4], value: &Written, scale: Option<&str>) {
    if out.chars().last().is_some_and(|c| c.is_alphanumeric()) {
        out.push(' ');
    }
    if let Some(scale) = scale {
        // $1.5 million
        out.push_str(&value.cardinal());
        if !value.fraction.is_empty() {
            out.push_str(&format!(" point {}", english_digits(&value.fraction)));
        }
        out.push_str(&format!(" {scale} {many} "));
        return;
    }
    let whole = value.value();
    let name =
        |number: Option<u64>, one: &str, many: &str| if number == Some(1) { one.to_owned() } else { many.to_owned() };
    let hundredths: Option<u64> = (value.fraction.len() == 2).then(|| value.fraction.parse().ok()).flatten();
    match (whole, hundredths) {
        (Some(0), Some(part)) if part > 0 => {
            out.push_str(&format!("{} {}", english(part), name(Some(part), cent, cents)));
        }
        (_, Some(part)) => {
            out.push_str(&format!("{} {}", value.cardinal(), name(whole, one, many)));
            if part > 0 {
                out.push_str(&format!(" and {} {}", english(part), name(Some(part), cent, cents)));
            }
        }
        (_, None) if value.fraction.is_empty() => {
            out.push_str(&format!("{} {}", value.cardinal(), name(whole, one, many)));
        }
        (_, None) => {
            out.push_str(&format!("{} point {} {many}", value.cardinal(), english_digits(&value.fraction)));
        }
    }
    out.push(' ');
}

#[cfg(test)]
mod tests {
    use crate::{Language, Normalizer};

    #[test]
    fn what_is_written_is_what_is_said() {
        let normalizer = Normalizer::new(&Language::ENGLISH);
        for (written, said) in [
            ("Mr. and Mrs. Hale met Dr. Moss.", "mister and misess hale met doctor moss."),
            ("He bought apples, pears, etc.", "he bought apples, pears, et cetera."),
            (
                "In 1984 and 2006, not 1905 or 1,905.",
                "in nineteen eighty-four and two thousand six, not nineteen oh five or one thousand nine hundred five.",
            ),
            ("the 1st, 2nd, 3rd, 12th and 20th", "the first, second, third, twelfth and twentieth"),
            (
                "$1, $1.01, $0.50, £2.30 and €1,000",
                "one dollar, one dollar and one cent, fifty cents, two pounds and thirty pence and one thousand euros",
            ),
            ("It is 3.14, or 50% of 6.28.", "it is three point one four, or fifty percent of six point two eight."),
            ("at 4:05, 12:00 and 16:30", "at four oh five, twelve o'clock and sixteen thirty"),
            ("room 007", "room zero zero seven"),
            ("the 1990s and the 80s", "the nineteen nineties and the eighties"),
            ("10 km at 5kg & 3 MHz", "ten kilometers at five kilograms and three megahertz"),
            (
                "9,007,199,254,740,993",
                "nine quadrillion seven trillion one hundred ninety-nine billion two hundred fifty-four million seven hundred forty thousand nine hundred ninety-three",
            ),
            ("A4 paper", "a four paper"),
            ("$5 million and $1.5 billion", "five million dollars and one point five billion dollars"),
            ("1 km, 6 ft tall, 1 ft", "one kilometer, six feet tall, one foot"),
            ("St. Paul lives on Main St.", "saint paul lives on main street."),
            ("at 9:00 a.m., 9:00 and 13:00", "at nine a.m., nine o'clock and thirteen hundred hours"),
            ("3½ pounds, 10² and it´s naïve café", "three and a half pounds, ten squared and it's naive cafe"),
            (
                "12345678901234567890123",
                "one two three four five six seven eight nine zero one two three four five six seven eight nine zero one two three",
            ),
        ] {
            assert_eq!(normalizer.normalize(written), said, "{written}");
        }
    }
}
