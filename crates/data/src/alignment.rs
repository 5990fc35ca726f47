//! When each token of a recording is said, for others to read and to correct: Praat's TextGrid, which Praat, ELAN, MFA and the
//! Python libraries `praatio` and `textgrid` open. Written in the long text format; read in the long and the short one, in
//! UTF-8 or UTF-16, as Praat saves them.

use std::fmt::{self, Write};

/// The tier that has an interval for each token.
const TIER: &str = "tokens";

/// A token and when it is said, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct AlignedToken {
    /// The token.
    pub symbol: String,
    /// When it starts.
    pub start: f64,
    /// When it ends: where the next one starts.
    pub end: f64,
}

/// The tokens of a recording, without gaps.
#[derive(Clone, Debug, PartialEq)]
pub struct Alignment {
    /// What is said.
    pub text: String,
    /// Length of the recording.
    pub seconds: f64,
    /// Its tokens, the first at 0, the last to the end.
    pub tokens: Vec<AlignedToken>,
}

/// Where the frames of a clip lie in its recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrameTimes {
    /// Seconds from one frame to the next.
    pub hop_seconds: f64,
    /// Seconds of the recording before the first frame: silence that was trimmed.
    pub start_seconds: f64,
    /// Seconds of the whole recording.
    pub seconds: f64,
}

impl FrameTimes {
    /// Where the first of so many frames ends and the next one begins. Frame `n` is centered at `n * hop_seconds`, so a boundary
    /// lies half a hop before a frame.
    fn boundary(&self, frames: u32) -> f64 {
        (self.start_seconds + (f64::from(frames) - 0.5) * self.hop_seconds).min(self.seconds)
    }

    /// Frames before a time.
    fn frames_before(&self, seconds: f64) -> u32 {
        // What is negative or too large for the type is clamped by the conversion.
        ((seconds - self.start_seconds) / self.hop_seconds + 0.5).round() as u32
    }
}

/// Why a TextGrid gives no durations of a clip.
#[derive(Clone, Debug, PartialEq)]
pub enum TextGridError {
    /// Not a TextGrid in one of Praat's text formats.
    NotATextGrid,
    /// A TextGrid without an interval tier of tokens.
    NoTier,
    /// The intervals of the tier leave a gap or overlap, first at this one.
    Gap(usize),
    /// Another number of tokens than the text has.
    Count {
        /// In the TextGrid.
        found: usize,
        /// In the text of the clip.
        expected: usize,
    },
    /// Another token than the text has.
    Symbol {
        /// Which one, from 1.
        number: usize,
        /// In the TextGrid.
        found: String,
        /// In the text of the clip.
        expected: String,
    },
    /// Of a recording of another length.
    Length {
        /// Seconds of the TextGrid.
        found: f64,
        /// Seconds of the recording.
        expected: f64,
    },
}

impl fmt::Display for TextGridError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextGridError::NotATextGrid => write!(f, "not a TextGrid in a text format"),
            TextGridError::NoTier => write!(f, "it has no interval tier `{TIER}`"),
            TextGridError::Gap(number) => write!(f, "interval {number} does not begin where the one before ends"),
            TextGridError::Count { found, expected } => {
                write!(f, "it has {found} tokens, the text of the clip has {expected}")
            }
            TextGridError::Symbol { number, found, expected } => {
                write!(f, "its token {number} is `{found}`, that of the text is `{expected}`")
            }
            TextGridError::Length { found, expected } => {
                write!(f, "it is {found:.2} s long, the recording {expected:.2} s")
            }
        }
    }
}

impl std::error::Error for TextGridError {}

impl Alignment {
    /// Of the frames that each token has. What was trimmed of the recording belongs to its first and its last token.
    pub fn new<'a>(
        text: String,
        symbols: impl IntoIterator<Item = &'a str>,
        durations: &[u32],
        times: &FrameTimes,
    ) -> Alignment {
        let (mut frames, mut start, last) = (0, 0.0, durations.len().saturating_sub(1));
        let token = |(n, (symbol, &duration)): (usize, (&str, &u32))| {
            frames += duration;
            let end = if n == last { times.seconds } else { times.boundary(frames) };
            let token = AlignedToken { symbol: symbol.to_owned(), start, end };
            start = end;
            token
        };
        let tokens = symbols.into_iter().zip(durations).enumerate().map(token).collect();
        Alignment { text, seconds: times.seconds, tokens }
    }

    /// The frames that each token has, of a clip with these tokens and so many frames: at least one each if there are enough.
    ///
    /// # Errors
    ///
    /// [`TextGridError`] if it is not an alignment of this clip.
    pub fn durations(&self, symbols: &[&str], times: &FrameTimes, frames: u32) -> Result<Vec<u32>, TextGridError> {
        let (found, expected) = (self.tokens.len(), symbols.len());
        if found != expected {
            return Err(TextGridError::Count { found, expected });
        }
        let other = self.tokens.iter().zip(symbols).position(|(token, symbol)| token.symbol != *symbol);
        if let Some(at) = other {
            let (found, expected) = (self.tokens[at].symbol.clone(), symbols[at].to_owned());
            return Err(TextGridError::Symbol { number: at + 1, found, expected });
        }
        if (self.seconds - times.seconds).abs() > times.hop_seconds {
            return Err(TextGridError::Length { found: self.seconds, expected: times.seconds });
        }
        let (mut durations, mut before) = (Vec::with_capacity(expected), 0);
        for (n, token) in self.tokens.iter().enumerate() {
            // Every token after needs a frame too.
            let most = (frames.saturating_sub(expected as u32) + n as u32 + 1).min(frames);
            let wanted = if n + 1 == expected { frames } else { times.frames_before(token.end) };
            let end = wanted.max(before + 1).min(most).max(before);
            durations.push(end - before);
            before = end;
        }
        Ok(durations)
    }

    /// As the text of a TextGrid with two tiers, `text` and `tokens`.
    pub fn to_text_grid(&self) -> String {
        let end = self.seconds;
        let mut grid = format!(
            "File type = \"ooTextFile\"\nObject class = \"TextGrid\"\n\nxmin = 0\nxmax = {end}\ntiers? <exists>\n\
             size = 2\nitem []:\n"
        );
        let whole = AlignedToken { symbol: self.text.clone(), start: 0.0, end };
        for (n, (name, intervals)) in [("text", &[whole][..]), ("tokens", &self.tokens)].into_iter().enumerate() {
            let (item, size) = (n + 1, intervals.len());
            let _ = write!(
                grid,
                "    item [{item}]:\n        class = \"IntervalTier\"\n        name = \"{name}\"\n        xmin = 0\n\
                 \x20       xmax = {end}\n        intervals: size = {size}\n"
            );
            for (n, AlignedToken { symbol, start, end }) in intervals.iter().enumerate() {
                let (number, quoted) = (n + 1, symbol.replace('"', "\"\""));
                let _ = write!(
                    grid,
                    "        intervals [{number}]:\n            xmin = {start}\n            xmax = {end}\n\
                     \x20           text = \"{quoted}\"\n"
                );
            }
        }
        grid
    }

    /// Reads a TextGrid; the text is that of a tier `text`, if there is one.
    ///
    /// # Errors
    ///
    /// [`TextGridError`] if it has no tier of tokens without gaps.
    pub fn from_text_grid(bytes: &[u8]) -> Result<Alignment, TextGridError> {
        let text = decode(bytes).ok_or(TextGridError::NotATextGrid)?;
        let tiers = text_grid_tiers(&text).ok_or(TextGridError::NotATextGrid)?;
        let named = |name: &str| tiers.iter().find(|tier| tier.name == name).map(|tier| &tier.intervals);
        let tokens = named(TIER).filter(|tokens| !tokens.is_empty()).ok_or(TextGridError::NoTier)?.clone();
        let gap = |pair: &[AlignedToken]| (pair[0].end - pair[1].start).abs() > 1e-6 || pair[1].end < pair[1].start;
        if let Some(at) = tokens.windows(2).position(gap) {
            return Err(TextGridError::Gap(at + 2));
        }
        let said = named("text").map_or_else(String::new, |intervals| {
            intervals.iter().map(|interval| interval.symbol.as_str()).collect::<Vec<_>>().join(" ")
        });
        Ok(Alignment { text: said, seconds: tokens.last().map_or(0.0, |token| token.end), tokens })
    }
}

/// UTF-8 or, with a byte order mark, UTF-16.
pub(crate) fn decode(bytes: &[u8]) -> Option<String> {
    let wide = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes.chunks_exact(2).map(|two| unit([two[0], two[1]])).collect();
        String::from_utf16(&units).ok()
    };
    match bytes {
        [0xFF, 0xFE, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => wide(rest, u16::from_be_bytes),
        [0xEF, 0xBB, 0xBF, rest @ ..] => String::from_utf8(rest.to_vec()).ok(),
        _ => String::from_utf8(bytes.to_vec()).ok(),
    }
}

/// The tiers of a TextGrid, if it is one.
pub(crate) fn text_grid_tiers(text: &str) -> Option<Vec<Tier>> {
    Values(text).tiers()
}

/// A tier of a TextGrid.
pub(crate) struct Tier {
    pub(crate) name: String,
    /// None for a tier of points.
    pub(crate) intervals: Vec<AlignedToken>,
}

/// The values of a Praat text file: strings in quotes, numbers and flags that stand by themselves. Everything else is there for
/// people to read, and missing in the short format.
struct Values<'a>(&'a str);

enum Value {
    Text(String),
    Number(f64),
    Flag,
}

impl Values<'_> {
    fn next(&mut self) -> Option<Value> {
        loop {
            self.0 = self.0.trim_start();
            match self.0.chars().next()? {
                '"' => return self.text(),
                _ => {
                    let end = self.0.find(char::is_whitespace).unwrap_or(self.0.len());
                    let (word, rest) = self.0.split_at(end);
                    self.0 = rest;
                    if word.starts_with('<') {
                        return Some(Value::Flag);
                    }
                    // Not `inf` and `nan`, which are words here.
                    let is_number = word.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
                    if let Some(number) = word.parse().ok().filter(|number: &f64| is_number && number.is_finite()) {
                        return Some(Value::Number(number));
                    }
                }
            }
        }
    }

    /// A quote within is doubled.
    fn text(&mut self) -> Option<Value> {
        let mut text = String::new();
        let mut chars = self.0.char_indices().skip(1).peekable();
        while let Some((at, c)) = chars.next() {
            if c != '"' {
                text.push(c);
            } else if chars.next_if(|(_, next)| *next == '"').is_some() {
                text.push('"');
            } else {
                self.0 = &self.0[at + 1..];
                return Some(Value::Text(text));
            }
        }
        None
    }

    fn string(&mut self) -> Option<String> {
        if let Value::Text(text) = self.next()? { Some(text) } else { None }
    }

    fn number(&mut self) -> Option<f64> {
        if let Value::Number(number) = self.next()? { Some(number) } else { None }
    }

    fn count(&mut self) -> Option<usize> {
        self.number().filter(|count| *count >= 0.0).map(|count| count as usize)
    }

    fn tiers(&mut self) -> Option<Vec<Tier>> {
        if (self.string()?.as_str(), self.string()?.as_str()) != ("ooTextFile", "TextGrid") {
            return None;
        }
        let _times = (self.number()?, self.number()?);
        let Value::Flag = self.next()? else { return None };
        (0..self.count()?).map(|_| self.tier()).collect()
    }

    fn tier(&mut self) -> Option<Tier> {
        let (class, name) = (self.string()?, self.string()?);
        let _times = (self.number()?, self.number()?);
        let mut intervals = Vec::new();
        for _ in 0..self.count()? {
            let start = self.number()?;
            if class == "IntervalTier" {
                let (end, symbol) = (self.number()?, self.string()?);
                intervals.push(AlignedToken { symbol, start, end });
            } else {
                self.string()?;
            }
        }
        Some(Tier { name, intervals })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: FrameTimes = FrameTimes { hop_seconds: 0.1, start_seconds: 0.0, seconds: 0.93 };

    fn made() -> Alignment {
        Alignment::new("a \"b\"".to_owned(), ["<sil>", "a", "\""], &[2, 3, 4], &TIMES)
    }

    #[test]
    fn tokens_fill_the_recording_without_gaps() {
        let made = made();
        let times: Vec<(f64, f64)> = made.tokens.iter().map(|token| (token.start, token.end)).collect();
        assert_eq!(times[0].0, 0.0);
        assert!((times[0].1 - 0.15).abs() < 1e-12 && (times[1].1 - 0.45).abs() < 1e-12, "{times:?}");
        assert_eq!(times[2].1, 0.93);
        assert!(times.windows(2).all(|pair| pair[0].1 == pair[1].0), "{times:?}");
        let grid = made.to_text_grid();
        assert!(grid.contains("text = \"a \"\"b\"\"\"") && grid.contains("text = \"\"\"\""), "{grid}");
        assert!(grid.contains("intervals: size = 3\n        intervals [1]:\n            xmin = 0\n"), "{grid}");
    }

    /// Whatever was trimmed, and in any of Praat's encodings.
    #[test]
    fn what_is_written_is_read_and_gives_the_same_durations() {
        let symbols = ["<sil>", "ɐ", "\"", "b", "<sil>"];
        for durations in [[2, 3, 4, 1, 7], [1, 1, 1, 1, 1], [30, 1, 2, 2, 1]] {
            for start_seconds in [0.0, 0.417] {
                let frames: u32 = durations.iter().sum();
                let hop_seconds = 256.0 / 22_050.0;
                let seconds = start_seconds + f64::from(frames) * hop_seconds + start_seconds;
                let times = FrameTimes { hop_seconds, start_seconds, seconds };
                let made = Alignment::new("ɐ b".to_owned(), symbols, &durations, &times);
                let grid = made.to_text_grid();
                let utf16: Vec<u8> = format!("\u{feff}{grid}").encode_utf16().flat_map(u16::to_be_bytes).collect();
                for bytes in [grid.as_bytes(), &utf16, grid.replace('\n', "\r\n").as_bytes()] {
                    let read = Alignment::from_text_grid(bytes).expect("whole");
                    assert_eq!(read, made);
                    assert_eq!(read.durations(&symbols, &times, frames), Ok(durations.to_vec()), "{start_seconds}");
                }
            }
        }
    }

    #[test]
    fn the_short_format_is_read_and_points_are_not_intervals() {
        let grid = "File type = \"ooTextFile\"\nObject class = \"TextGrid\"\n\n0\n0.93\n<exists>\n2\n\"TextTier\"\n\"tones\"\n0\n0.93\n1\n\
                    0.4\n\"H*\"\n\"IntervalTier\"\n\"tokens\"\n0\n0.93\n2\n0\n0.15\n\"<sil>\"\n0.15\n0.93\n\"a\"\n";
        let read = Alignment::from_text_grid(grid.as_bytes()).expect("whole");
        assert_eq!(read.durations(&["<sil>", "a"], &TIMES, 10), Ok(vec![2, 8]));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let read = |grid: String| Alignment::from_text_grid(grid.as_bytes());
        let grid = made().to_text_grid();
        assert_eq!(read("no grid".to_owned()), Err(TextGridError::NotATextGrid));
        assert_eq!(Alignment::from_text_grid(&[0xFF, 0x00]), Err(TextGridError::NotATextGrid));
        assert_eq!(read(grid.replace("\"tokens\"", "\"phones\"")), Err(TextGridError::NoTier));
        assert_eq!(read(grid.replacen("xmax = 0.4", "xmax = 0.5", 1)), Err(TextGridError::Gap(3)));
        // Cut anywhere it is an error, not a panic.
        for at in (0..grid.len() - 20).filter(|&at| grid.is_char_boundary(at)) {
            assert!(read(grid[..at].to_owned()).is_err(), "cut at {at}");
        }
        let (made, symbols) = (made(), ["<sil>", "a", "\""]);
        for (symbols, seconds, error) in [
            (&symbols[..2], 0.93, "it has 3 tokens, the text of the clip has 2"),
            (&["<sil>", "b", "\""], 0.93, "its token 2 is `a`, that of the text is `b`"),
            (&symbols, 1.5, "it is 0.93 s long, the recording 1.50 s"),
        ] {
            let found = made.durations(symbols, &FrameTimes { seconds, ..TIMES }, 9);
            assert_eq!(found.map_err(|error| error.to_string()), Err(error.to_owned()));
        }
    }

    #[test]
    fn every_token_has_a_frame_if_there_are_enough() {
        let token = |symbol: &str, start: f64, end: f64| AlignedToken { symbol: symbol.to_owned(), start, end };
        let tokens =
            vec![token("a", 0.0, 0.01), token("b", 0.01, 0.02), token("c", 0.02, 0.91), token("d", 0.91, 0.93)];
        let made = Alignment { text: String::new(), seconds: 0.93, tokens };
        let symbols = ["a", "b", "c", "d"];
        assert_eq!(made.durations(&symbols, &TIMES, 10), Ok(vec![1, 1, 7, 1]));
        assert_eq!(made.durations(&symbols, &TIMES, 4), Ok(vec![1; 4]));
        assert_eq!(made.durations(&symbols, &TIMES, 2), Ok(vec![1, 1, 0, 0]));
    }
}
