//! Persian: ی and ک, digits, diacritics, the zero-width non-joiner, punctuation, numbers in words.

use crate::numbers::{persian, persian_digits, persian_ordinal};

const ZWNJ: char = '\u{200C}';

/// Short vowels, their doubled forms, the doubling of a letter, no vowel, and the superscript alef.
pub(crate) const DIACRITICS: &str = "\u{064B}\u{064C}\u{064D}\u{064E}\u{064F}\u{0650}\u{0651}\u{0652}\u{0670}";

/// Letters, digits and marks in the form Persian uses, nothing else changed: ي→ی, ك→ک, Arabic and Latin digits to
/// Persian ones, diacritics and the tatweel gone, blanks around the zero-width non-joiner repaired.
pub fn characters(text: &str) -> String {
    letters(text, false)
}

fn letters(text: &str, diacritics: bool) -> String {
    let mut out = String::with_capacity(text.len());
    // «ۀ» is written as two characters everywhere, like «هٔ» on most keyboards.
    let split = text.chars().flat_map(|c| [Some(if c == 'ۀ' { 'ه' } else { c }), (c == 'ۀ').then_some('\u{0654}')]);
    for c in split.flatten() {
        match if diacritics && DIACRITICS.contains(c) { Some(c) } else { letter(c) } {
            Some(ZWNJ) if out.chars().last().is_some_and(joins) => out.push(ZWNJ),
            Some(ZWNJ) | None => {}
            Some(c) => {
                if out.ends_with(ZWNJ) && !joins(c) {
                    out.pop();
                }
                out.push(c);
            }
        }
    }
    if out.ends_with(ZWNJ) {
        out.pop();
    }
    out
}

/// Whether a zero-width non-joiner next to it means anything.
fn joins(c: char) -> bool {
    c.is_alphabetic() || c.is_numeric()
}

fn letter(c: char) -> Option<char> {
    Some(match c {
        'ي' | 'ى' | 'ې' | 'ۍ' => 'ی',
        'ك' | 'ڪ' => 'ک',
        'ة' | 'ە' | 'ھ' | 'ہ' => 'ه',
        'ٱ' | 'أ' | 'إ' => 'ا',
        'ؤ' => 'و',
        // Diacritics, the superscript alef, Quranic marks and the tatweel; but not the hamza of «هٔ», which is heard.
        '\u{064B}'..='\u{0653}' | '\u{0655}'..='\u{065F}' | '\u{0670}' | '\u{06D6}'..='\u{06ED}' | 'ـ' => return None,
        '٠'..='٩' => shifted(c, '٠'),
        '0'..='9' => shifted(c, '0'),
        c => c,
    })
}

fn shifted(c: char, zero: char) -> char {
    char::from_u32('۰' as u32 + (c as u32 - zero as u32)).expect("a Persian digit")
}

/// Everything that is not said as it is written, in words.
pub(crate) fn expand(text: &str, diacritics: bool) -> String {
    let chars: Vec<char> = letters(text, diacritics).chars().collect();
    let mut out = String::with_capacity(text.len() * 2);
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        if digit(c).is_some() {
            at = say_number(&mut out, &chars, at);
            continue;
        }
        // A sign before a number is said behind it: $۵ is «پنج دلار».
        if let (Some(sign), true) = (sign(c), chars.get(at + 1).is_some_and(|&next| digit(next).is_some())) {
            at = say_number(&mut out, &chars, at + 1);
            word(&mut out, sign);
            continue;
        }
        match c {
            c if c.is_numeric() => {} // a numeral of another script
            '?' => out.push('؟'),
            ',' | '٬' => out.push('،'),
            ';' => out.push('؛'),
            c if sign(c).is_some() => word(&mut out, sign(c).unwrap_or_default()),
            '&' | '+' => word(&mut out, if c == '&' { "و" } else { "به علاوه" }),
            '=' => word(&mut out, "مساوی"),
            '@' => word(&mut out, "ات"),
            '#' => word(&mut out, "شماره"),
            '°' => word(&mut out, "درجه"),
            '/' | '\\' | '_' | '|' | '~' | '^' | '*' | '<' | '>' | '\u{2044}' => out.push(' '),
            c => out.push(c),
        }
        at += 1;
    }
    out
}

/// Signs that stand for a word beside a number.
fn sign(c: char) -> Option<&'static str> {
    Some(match c {
        '%' | '٪' => "درصد",
        '$' => "دلار",
        '€' => "یورو",
        '£' => "پوند",
        '﷼' => "ریال",
        _ => return None,
    })
}

fn digit(c: char) -> Option<u32> {
    ('۰'..='۹').contains(&c).then(|| c as u32 - '۰' as u32)
}

fn word(out: &mut String, text: &str) {
    if out.chars().last().is_some_and(|c| c.is_alphanumeric()) {
        out.push(' ');
    }
    out.push_str(text);
    out.push(' ');
}

fn say_number(out: &mut String, chars: &[char], start: usize) -> usize {
    let digits = |from: usize| (from..chars.len()).map_while(|n| digit(chars[n])).count();
    let ascii = |from: usize, to: usize| -> String {
        chars[from..to].iter().filter_map(|&c| digit(c)).filter_map(|d| char::from_digit(d, 10)).collect()
    };
    let mut end = start + digits(start);
    let mut whole = ascii(start, end);
    if let Some(after) = say_date_or_time(out, chars, start, end) {
        return after;
    }
    let mut grouped = false;
    while whole.len() <= 18
        && matches!(chars.get(end), Some(',' | '٬' | '،'))
        && digits(end + 1) == 3
        && (grouped || end - start <= 3)
    {
        whole += &ascii(end + 1, end + 4);
        end += 4;
        grouped = true;
    }
    let mut fraction = String::new();
    if matches!(chars.get(end), Some('.' | '٫' | '/')) && digits(end + 1) > 0 {
        let length = digits(end + 1);
        fraction = ascii(end + 1, end + 1 + length);
        end += 1 + length;
    }
    let code = whole.len() > 1 && whole.starts_with('0');
    let value: Option<u64> = if code || whole.len() > 18 { None } else { whole.parse().ok() };

    if out.chars().last().is_some_and(|c| c.is_alphanumeric()) {
        out.push(' ');
    }
    // ۳ام, ۳‌ام and ۲۱م are ordinals.
    if let Some(number) = value.filter(|_| fraction.is_empty())
        && let Some(length) = ordinal_suffix(&chars[end..])
    {
        // ۲۰۲۰م is a year of the Gregorian calendar.
        let year = whole.len() == 4 && chars[end..end + length].iter().collect::<String>() == "م";
        out.push_str(&if year { format!("{} میلادی", persian(number)) } else { persian_ordinal(number) });
        return end + length;
    }
    out.push_str(&value.map_or_else(|| persian_digits(&whole), persian));
    if !fraction.is_empty() {
        // As people say it: «سه ممیز چهارده».
        let short: Option<u64> =
            (fraction.len() <= 3 && !fraction.starts_with('0')).then(|| fraction.parse().ok()).flatten();
        out.push_str(" ممیز ");
        out.push_str(&short.map_or_else(|| persian_digits(&fraction), persian));
    }
    if chars.get(end).is_some_and(|c| c.is_alphanumeric()) {
        out.push(' ');
    } else if chars.get(end) == Some(&ZWNJ) {
        out.push(' ');
        end += 1;
    }
    end
}

/// ۱۴۰۲/۰۳/۱۵ number by number, ۱۲:۳۰ as «دوازده و سی دقیقه». Returns where it ends.
fn say_date_or_time(out: &mut String, chars: &[char], start: usize, end: usize) -> Option<usize> {
    let number = |from: usize| {
        let length = (from..chars.len()).map_while(|n| digit(chars[n])).count();
        let value = chars[from..from + length]
            .iter()
            .filter_map(|&c| digit(c))
            .fold(0u64, |value, d| value.saturating_mul(10).saturating_add(d.into()));
        (length > 0).then_some((value, from + length))
    };
    let (first, _) = number(start)?;
    let separator = *chars.get(end)?;
    let (second, after) = number(end + 1)?;
    let words = match separator {
        ':' if first < 24 && second < 60 && after == end + 3 && chars.get(after) != Some(&':') => match second {
            0 => persian(first),
            _ => format!("{} و {} دقیقه", persian(first), persian(second)),
        },
        '/' if chars.get(after) == Some(&'/') && end - start <= 4 && after - end <= 3 => {
            let (third, last) = number(after + 1)?;
            if chars.get(last) == Some(&'/') || last - after > 5 {
                return None;
            }
            say(out, &format!("{}، {}، {}", persian(first), persian(second), persian(third)));
            return Some(last);
        }
        _ => return None,
    };
    say(out, &words);
    Some(after)
}

/// Appends words, apart from a word before them.
fn say(out: &mut String, words: &str) {
    if out.chars().last().is_some_and(|c| c.is_alphanumeric()) {
        out.push(' ');
    }
    out.push_str(words);
}

/// The length of an ordinal ending that is a word of its own.
fn ordinal_suffix(rest: &[char]) -> Option<usize> {
    let skip = usize::from(rest.first() == Some(&ZWNJ));
    let letters: String = rest[skip..].iter().take_while(|c| c.is_alphabetic()).collect();
    match letters.as_str() {
        "ام" => Some(skip + 2),
        "م" => Some(skip + 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Language, Normalizer};

    #[test]
    fn characters_have_their_persian_form() {
        for (written, expected) in [
            ("كتاب علي", "کتاب علی"),
            ("٠١٢٣٤٥٦٧٨٩ 0123456789", "۰۱۲۳۴۵۶۷۸۹ ۰۱۲۳۴۵۶۷۸۹"),
            ("سَلامٌ عَلَيْكُم", "سلام علیکم"),
            ("ســـلام", "سلام"),
            ("نامۀ نامهٔ", "نامهٔ نامهٔ"),
            ("می\u{200C}\u{200C}روم", "می\u{200C}روم"),
            ("می\u{200C} روم \u{200C}خانه\u{200C}", "می روم خانه"),
        ] {
            assert_eq!(characters(written), expected);
        }
    }

    #[test]
    fn what_is_written_is_what_is_said() {
        let normalizer = Normalizer::new(&Language::PERSIAN);
        for (written, said) in [
            ("كتاب ۲۳ صفحه دارد?", "کتاب بیست و سه صفحه دارد؟"),
            ("قیمت ۱٬۲۵۰ تومان, نه ١٠٪", "قیمت هزار و دویست و پنجاه تومان، نه ده درصد"),
            ("روز ۳ام، ۲۱م و ۳۰\u{200C}ام", "روز سوم، بیست و یکم و سی\u{200C}ام"),
            ("عدد ۳٫۱۴", "عدد سه ممیز چهارده"),
            ("سال ۱۴۰۳", "سال هزار و چهارصد و سه"),
            ("تلفن 0912", "تلفن صفر نه یک دو"),
            ("می\u{200C}روم؛ خوب است!", "می\u{200C}روم؛ خوب است!"),
            ("۵$ یا $۵", "پنج دلار یا پنج دلار"),
            ("٪۵۰", "پنجاه درصد"),
            ("تاریخ ۱۴۰۲/۰۳/۱۵ ساعت ۱۲:۳۰ و ۹:۰۰", "تاریخ هزار و چهارصد و دو، سه، پانزده ساعت دوازده و سی دقیقه و نه"),
            ("سال ۲۰۲۰م", "سال دو هزار و بیست میلادی"),
            ("ھمه", "همه"),
            ("ﻛﺘﺎﺏ", "کتاب"),
            ("۲۰۰۰۰۰۰۰۰۱", "دو میلیارد و یک"),
        ] {
            assert_eq!(normalizer.normalize(written), said, "{written}");
        }
    }
}
