//! Long texts in pieces: split at sentences, joined with pauses and without clicks, so that nothing but the waveform grows
//! with the length of the text.

/// Longer sentences are split at a comma or a word near this many characters.
const MOST_CHARACTERS: usize = 220;
/// Milliseconds over which the ends of a piece fade.
const FADE_MS: f64 = 5.0;

/// The sentences of a text, none empty, in order. Very long ones are split at a comma, else between words.
pub fn sentences(text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    for paragraph in text.lines() {
        let mut sentence = String::new();
        let mut characters = paragraph.chars().peekable();
        while let Some(c) = characters.next() {
            sentence.push(c);
            let closes = matches!(c, '.' | '!' | '?' | '؟' | '…' | '。' | '！' | '？' | '۔');
            // `3.14` and `e.g.` continue without a space or with a small letter.
            let ends = closes && characters.peek().is_none_or(|next| next.is_whitespace());
            if ends && !is_abbreviation(&sentence) {
                push(&mut pieces, &sentence);
                sentence.clear();
            }
        }
        push(&mut pieces, &sentence);
    }
    pieces
}

/// A last word such as `Dr.`, `e.g.` or `J.` does not end a sentence.
fn is_abbreviation(sentence: &str) -> bool {
    let word = sentence.trim_end_matches('.').rsplit(char::is_whitespace).next().unwrap_or_default();
    let known = ["mr", "mrs", "ms", "dr", "prof", "st", "vs", "etc", "e.g", "i.e", "no", "vol", "jr", "sr"];
    sentence.ends_with('.')
        && (known.contains(&word.to_lowercase().as_str())
            || (word.chars().count() == 1 && word.chars().all(char::is_uppercase)))
}

fn push(pieces: &mut Vec<String>, sentence: &str) {
    let mut rest = sentence.trim();
    while rest.chars().count() > MOST_CHARACTERS {
        let limit = rest.char_indices().nth(MOST_CHARACTERS).map_or(rest.len(), |(at, _)| at);
        let head = &rest[..limit];
        let marks = |c: char| matches!(c, ',' | ';' | ':' | '،' | '؛');
        let Some(at) = head.rfind(marks).or_else(|| head.rfind(char::is_whitespace)).filter(|&at| at > 0) else {
            break;
        };
        let end = at + head[at..].chars().next().map_or(1, char::len_utf8);
        let piece = rest[..end].trim();
        if !piece.is_empty() {
            pieces.push(piece.to_owned());
        }
        rest = rest[end..].trim_start();
    }
    if rest.chars().any(char::is_alphanumeric) {
        pieces.push(rest.to_owned());
    }
}

/// Appends the waveform of a piece, after `pause` seconds of silence unless it is the first; its ends fade in and out.
pub fn join(whole: &mut Vec<f32>, mut piece: Vec<f32>, pause: f64, sample_rate: u32) {
    let fade = ((FADE_MS / 1000.0 * f64::from(sample_rate)) as usize).min(piece.len() / 2);
    let count = piece.len();
    for n in 0..fade {
        let gain = (n as f32 + 0.5) / fade as f32;
        piece[n] *= gain;
        piece[count - 1 - n] *= gain;
    }
    if !whole.is_empty() {
        whole.resize(whole.len() + (pause.max(0.0) * f64::from(sample_rate)) as usize, 0.0);
    }
    whole.append(&mut piece);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_split_at_sentences() {
        let text = "Dr. Who paid 3.14 pounds. Really?  Yes!\nسلام دنیا؟ خوبم. J. Smith left";
        let wanted = ["Dr. Who paid 3.14 pounds.", "Really?", "Yes!", "سلام دنیا؟", "خوبم.", "J. Smith left"];
        assert_eq!(sentences(text), wanted);
        assert!(sentences(" ... \n !").is_empty());
    }

    #[test]
    fn long_sentences_are_split_between_words_and_nothing_is_lost() {
        let text = (0..400).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" ");
        let pieces = sentences(&text);
        assert!(pieces.len() > 5 && pieces.iter().all(|piece| piece.chars().count() <= MOST_CHARACTERS));
        assert_eq!(pieces.join(" "), text);
    }

    #[test]
    fn joints_do_not_click() {
        let mut whole = Vec::new();
        for _ in 0..3 {
            join(&mut whole, vec![0.9; 2205], 0.1, 22_050);
        }
        assert_eq!(whole.len(), 3 * 2205 + 2 * 2205);
        let steepest = whole.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(0.0f32, f32::max);
        assert!(steepest < 0.02, "{steepest}");
    }
}
