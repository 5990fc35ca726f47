//! Long texts in pieces: sentences by the rules of Unicode (UAX 29), corrected for abbreviations, and sentences that are
//! too long cut at a clause, else between words.
//!
//! Invariant: the pieces in order are the text, but for white space and marks that stand alone.

use unicode_segmentation::UnicodeSegmentation;

/// Sentences of more characters are cut: what a voice was trained on is rarely longer than 15 seconds.
pub(crate) const MOST_CHARACTERS: usize = 220;

/// Titles and the like, which a name follows: their full stop never ends a sentence.
const TITLES: [&str; 14] =
    ["mr", "mrs", "ms", "dr", "prof", "st", "mt", "messrs", "gen", "col", "capt", "lt", "sgt", "rev"];
/// What their full stop does not end a sentence before, wherever they stand.
const BEFORE_ANYTHING: [&str; 3] = ["vs", "e.g", "i.e"];
/// These only before a number: `no.` is a word too.
const BEFORE_NUMBERS: [&str; 7] = ["no", "nos", "vol", "fig", "p", "pp", "ch"];

/// The sentences of a text in order, none of them without a letter or digit, none of more than 220 characters unless it is
/// one pronunciation in `[[…]]`. A line break ends a sentence.
pub fn sentences(text: &str) -> impl Iterator<Item = &str> {
    whole_sentences(text).flat_map(bounded).filter(|piece| piece.chars().any(char::is_alphanumeric))
}

fn whole_sentences(text: &str) -> impl Iterator<Item = &str> {
    // Unicode does not end a sentence at an ellipsis.
    let mut bounds = text.split_sentence_bounds().flat_map(|segment| segment.split_inclusive("… ")).peekable();
    let mut end = 0;
    std::iter::from_fn(move || {
        let start = end;
        while let Some(segment) = bounds.next() {
            end += segment.len();
            if bounds.peek().is_none() || ends_here(&text[start..end], &text[end..]) {
                return Some(text[start..end].trim());
            }
        }
        None
    })
}

/// Whether a sentence really ends where Unicode says so.
fn ends_here(sentence: &str, rest: &str) -> bool {
    if sentence.ends_with(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']) {
        return true;
    }
    let opens = sentence.rfind("[[").is_some_and(|at| !sentence[at..].contains("]]"));
    let next = rest.trim_start().chars().next();
    // `"Stop!" he said.`
    let goes_on = next.is_some_and(char::is_lowercase);
    !(goes_on || is_abbreviation(sentence.trim_end(), next) || opens && rest.contains("]]"))
}

/// A last word such as `Dr.`, `J.`, `U.S.` or `م.` does not end a sentence.
fn is_abbreviation(sentence: &str, next: Option<char>) -> bool {
    let Some(sentence) = sentence.strip_suffix('.') else { return false };
    let word = sentence.rsplit(|c: char| c.is_whitespace() || "([\"'«".contains(c)).next().unwrap_or_default();
    let lower = word.to_lowercase();
    // Not `I`: it ends sentences more often than it begins names.
    let initials = word != "I"
        && word.split('.').all(|part| {
            let mut letters = part.chars();
            letters.next().is_some_and(|c| c.is_alphabetic() && !c.is_lowercase()) && letters.next().is_none()
        });
    initials
        || TITLES.contains(&lower.as_str())
        || BEFORE_ANYTHING.contains(&lower.as_str())
        || (BEFORE_NUMBERS.contains(&lower.as_str()) && next.is_some_and(char::is_numeric))
}

/// A sentence in pieces of at most [`MOST_CHARACTERS`].
fn bounded(sentence: &str) -> Vec<&str> {
    let (mut pieces, mut rest) = (Vec::new(), sentence);
    while rest.chars().nth(MOST_CHARACTERS).is_some() {
        let Some(at) = cut(rest, MOST_CHARACTERS) else { break };
        pieces.push(rest[..at].trim());
        rest = rest[at..].trim();
    }
    pieces.push(rest);
    pieces
}

/// Where to cut a text so that its first part has at most `limit` characters, neither part being empty: after the last
/// mark of a clause unless that is near the start, else at the last blank, at a ZWNJ, or between two characters. Not
/// within `[[…]]`: then after it, or not at all.
pub(crate) fn cut(text: &str, limit: usize) -> Option<usize> {
    let end = text.char_indices().nth(limit.max(1)).map_or(text.len(), |(at, _)| at);
    let (mut clause, mut word, mut joint, mut anywhere) = (None, None, None, None);
    let mut inside = 0;
    for (start, cluster) in text.grapheme_indices(true) {
        let at = start + cluster.len();
        if text[start..].starts_with("[[") && start >= inside {
            inside = text[start..].find("]]").map_or(0, |length| start + length + 2);
        }
        if at < inside || at >= text.len() {
            continue;
        }
        if at > end {
            // Past the limit only if nothing else was possible: after a pronunciation or a long cluster.
            return clause.or(word).or(joint).or(anywhere).or(Some(at));
        }
        let next = text[at..].chars().next();
        let number = |c: Option<char>| c.is_some_and(char::is_numeric);
        let mark = cluster.chars().next().unwrap_or_default();
        let ends_clause = match mark {
            // Full stops too: a text without capitals has no sentences by the rules of Unicode.
            ',' | ';' | ':' | '.' | '!' | '?' | '…' => next.is_some_and(char::is_whitespace),
            '،' | '؛' | '、' | '，' | '；' => !number(next),
            '–' | '—' => true,
            _ => false,
        };
        if ends_clause && 3 * at >= end {
            clause = Some(at);
        }
        if cluster.chars().all(char::is_whitespace) && start > 0 {
            word = Some(at);
        }
        if cluster.ends_with('\u{200C}') {
            joint = Some(at);
        }
        anywhere = Some(at);
    }
    clause.or(word).or(joint).or(anywhere)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<&str> {
        sentences(text).collect()
    }

    #[test]
    fn texts_are_split_at_sentences() {
        for (text, wanted) in [
            ("Dr. Who paid 3.14 pounds. Really?  Yes!", &["Dr. Who paid 3.14 pounds.", "Really?", "Yes!"][..]),
            (
                "J. R. Smith left the U.S. Army. So did I. Why?",
                &["J. R. Smith left the U.S. Army.", "So did I.", "Why?"],
            ),
            ("Buy apples, e.g. Boskoop. Or not, vs. Gala.", &["Buy apples, e.g. Boskoop.", "Or not, vs. Gala."]),
            ("See fig. 3. He said no. Then he left.", &["See fig. 3.", "He said no.", "Then he left."]),
            (
                "\"Stop!\" he said. (Why?) It was late…  Very late",
                &["\"Stop!\" he said.", "(Why?)", "It was late…", "Very late"],
            ),
            ("wait… what? 100 % of it.", &["wait… what?", "100 % of it."]),
            ("سلام دنیا؟ خوبم؛ ممنون، ۳.۱۴ کیلو. می‌روم!", &["سلام دنیا؟", "خوبم؛ ممنون، ۳.۱۴ کیلو.", "می‌روم!"]),
            ("آقای م. رضایی آمد. رفت۔ بعد", &["آقای م. رضایی آمد.", "رفت۔", "بعد"]),
            ("A heading\nA line. Another one\r\nThe end", &["A heading", "A line.", "Another one", "The end"]),
            ("Say [[tˈæn. Dəm]] twice. Now", &["Say [[tˈæn. Dəm]] twice.", "Now"]),
            ("你好。我是。", &["你好。", "我是。"]),
            (" ... \n !\n— — ", &[]),
            ("", &[]),
        ] {
            assert_eq!(split(text), wanted, "{text}");
        }
    }

    /// Everything but white space is in the pieces, in order.
    fn assert_complete(text: &str, pieces: &[&str]) {
        let bare = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        assert_eq!(bare(&pieces.concat()), bare(text));
    }

    #[test]
    fn long_sentences_are_cut_at_clauses_then_words_then_anywhere_and_nothing_is_lost() {
        let words = (0..400).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" ");
        let clauses = words.replace("5 ", "5, ");
        let persian = "می‌روم و برمی‌گردم، ".repeat(60);
        let one_word = "ab".repeat(800);
        let joined = "می\u{200C}".repeat(300);
        for text in [&words, &clauses, &persian, &one_word, &joined] {
            let pieces = split(text);
            assert!(
                pieces.len() > 3 && pieces.iter().all(|piece| piece.chars().count() <= MOST_CHARACTERS),
                "{pieces:?}"
            );
            assert_complete(text, &pieces);
        }
        assert!(split(&clauses).iter().rev().skip(1).all(|piece| piece.ends_with(',')), "{:?}", split(&clauses));
        assert!(split(&persian).iter().all(|piece| piece.ends_with('،')), "{:?}", split(&persian));
        assert!(split(&words).iter().all(|piece| piece.starts_with("word")), "{:?}", split(&words));
        let small = "banana piano tomato. ".repeat(40);
        assert!(split(&small).iter().all(|piece| piece.ends_with('.')), "{:?}", split(&small));
        // A number is not cut at its comma.
        let numbers = "1,234,567 and ".repeat(40);
        assert!(split(&numbers).iter().all(|piece| !piece.ends_with(',')), "{:?}", split(&numbers));
    }

    #[test]
    fn a_pronunciation_is_never_cut() {
        let ipa = format!("[[{}]]", "tændəm ".repeat(60));
        let text = format!("Some words before {ipa} and some words after it");
        let pieces = split(&text);
        assert!(pieces.iter().any(|piece| piece.ends_with(&ipa)), "{pieces:?}");
        assert_complete(&text, &pieces);
        assert_eq!(split(&ipa), [&ipa[..]]);
    }

    #[test]
    fn halves_are_never_empty() {
        assert_eq!(cut("a", 1), None);
        for text in ["ab", "a b", " a", "a ", "e\u{301}x"] {
            let at = cut(text, 1).unwrap_or_else(|| panic!("{text:?}"));
            assert!(at > 0 && at < text.len(), "{text:?} {at}");
        }
    }
}
