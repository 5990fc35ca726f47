//! Numbers in words.

const EN_ONES: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const EN_TENS: [&str; 10] = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
const EN_POWERS: [&str; 7] = ["", "thousand", "million", "billion", "trillion", "quadrillion", "quintillion"];

/// An English cardinal: `twenty-one thousand three`.
pub fn english(number: u64) -> String {
    if number < 20 {
        return EN_ONES[number as usize].to_owned();
    }
    let mut parts = Vec::new();
    let mut rest = number;
    for power in (0..EN_POWERS.len() as u32).rev() {
        let group = rest / 1000u64.pow(power);
        rest %= 1000u64.pow(power);
        if group > 0 {
            parts.push(english_below_thousand(group as usize));
            if power > 0 {
                parts.push(EN_POWERS[power as usize].to_owned());
            }
        }
    }
    parts.join(" ")
}

fn english_below_thousand(number: usize) -> String {
    let mut parts = Vec::new();
    if number >= 100 {
        parts.push(format!("{} hundred", EN_ONES[number / 100]));
    }
    match number % 100 {
        0 => {}
        n if n < 20 => parts.push(EN_ONES[n].to_owned()),
        n if n % 10 == 0 => parts.push(EN_TENS[n / 10].to_owned()),
        n => parts.push(format!("{}-{}", EN_TENS[n / 10], EN_ONES[n % 10])),
    }
    parts.join(" ")
}

/// An English ordinal: `twenty-first`.
pub fn english_ordinal(number: u64) -> String {
    let cardinal = english(number);
    let split = cardinal.rfind([' ', '-']).map_or(0, |at| at + 1);
    let (head, last) = cardinal.split_at(split);
    let last = match last {
        "one" => "first".to_owned(),
        "two" => "second".to_owned(),
        "three" => "third".to_owned(),
        "five" => "fifth".to_owned(),
        "eight" => "eighth".to_owned(),
        "nine" => "ninth".to_owned(),
        "twelve" => "twelfth".to_owned(),
        word if word.ends_with('y') => format!("{}ieth", &word[..word.len() - 1]),
        word => format!("{word}th"),
    };
    format!("{head}{last}")
}

/// A year as it is said: `nineteen eighty-four`, `two thousand six`, `nineteen oh five`.
pub fn english_year(year: u64) -> String {
    let (century, rest) = (year / 100, year % 100);
    match (year, rest) {
        (1000..=9999, _) if century % 10 == 0 && rest < 10 => english(year),
        (1000..=9999, 0) => format!("{} hundred", english(century)),
        (1000..=9999, 1..=9) => format!("{} oh {}", english(century), english(rest)),
        (1000..=9999, _) => format!("{} {}", english(century), english(rest)),
        _ => english(year),
    }
}

/// Digit by digit: `one two zero`. What is not a digit from 0 to 9 is skipped.
pub fn english_digits(digits: &str) -> String {
    spelled(digits, |digit| EN_ONES[digit])
}

const FA_ONES: [&str; 20] = [
    "صفر",
    "یک",
    "دو",
    "سه",
    "چهار",
    "پنج",
    "شش",
    "هفت",
    "هشت",
    "نه",
    "ده",
    "یازده",
    "دوازده",
    "سیزده",
    "چهارده",
    "پانزده",
    "شانزده",
    "هفده",
    "هجده",
    "نوزده",
];
const FA_TENS: [&str; 10] = ["", "", "بیست", "سی", "چهل", "پنجاه", "شصت", "هفتاد", "هشتاد", "نود"];
const FA_HUNDREDS: [&str; 10] = ["", "صد", "دویست", "سیصد", "چهارصد", "پانصد", "ششصد", "هفتصد", "هشتصد", "نهصد"];
const FA_POWERS: [&str; 7] = ["", "هزار", "میلیون", "میلیارد", "تریلیون", "کوادریلیون", "کوینتیلیون"];

/// A Persian cardinal: `بیست و یک هزار و سه`.
pub fn persian(number: u64) -> String {
    if number == 0 {
        return FA_ONES[0].to_owned();
    }
    let mut parts = Vec::new();
    let mut rest = number;
    for power in (0..FA_POWERS.len() as u32).rev() {
        let group = rest / 1000u64.pow(power);
        rest %= 1000u64.pow(power);
        match (group, power) {
            (0, _) => {}
            (1, 1) => parts.push(FA_POWERS[1].to_owned()), // «هزار», not «یک هزار»
            (_, 0) => parts.push(persian_below_thousand(group as usize)),
            (_, _) => parts.push(format!("{} {}", persian_below_thousand(group as usize), FA_POWERS[power as usize])),
        }
    }
    parts.join(" و ")
}

fn persian_below_thousand(number: usize) -> String {
    let mut parts = Vec::new();
    if number >= 100 {
        parts.push(FA_HUNDREDS[number / 100]);
    }
    match number % 100 {
        0 => {}
        n if n < 20 => parts.push(FA_ONES[n]),
        n => {
            parts.push(FA_TENS[n / 10]);
            if n % 10 > 0 {
                parts.push(FA_ONES[n % 10]);
            }
        }
    }
    parts.join(" و ")
}

/// A Persian ordinal: `بیست و یکم`, `سوم`, `سی‌ام`.
pub fn persian_ordinal(number: u64) -> String {
    let cardinal = persian(number);
    if let Some(head) = cardinal.strip_suffix("سه") {
        format!("{head}سوم")
    } else if cardinal.ends_with('ی') {
        format!("{cardinal}\u{200C}ام")
    } else {
        format!("{cardinal}م")
    }
}

/// Digit by digit: `یک دو صفر`. What is not a digit from 0 to 9 is skipped.
pub fn persian_digits(digits: &str) -> String {
    spelled(digits, |digit| FA_ONES[digit])
}

fn spelled(digits: &str, word: impl Fn(usize) -> &'static str) -> String {
    let words: Vec<&str> = digits.chars().filter_map(|c| c.to_digit(10)).map(|digit| word(digit as usize)).collect();
    words.join(" ")
}
