//! When each token of a recording is said, for others to read: Praat's TextGrid (long text format), which Praat, ELAN, MFA
//! and the Python libraries `praatio` and `textgrid` open.

use std::fmt::Write;

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

impl Alignment {
    /// Of the frames that each token has. Frame `n` is centered at `n * hop_seconds`, so a boundary lies half a hop before
    /// the first frame of a token.
    pub fn new<'a>(
        text: String,
        symbols: impl IntoIterator<Item = &'a str>,
        durations: &[u32],
        hop_seconds: f64,
        seconds: f64,
    ) -> Alignment {
        let (mut frames, mut start, last) = (0, 0.0, durations.len().saturating_sub(1));
        let token = |(n, (symbol, &duration)): (usize, (&str, &u32))| {
            frames += duration;
            let end = if n == last { seconds } else { ((f64::from(frames) - 0.5) * hop_seconds).min(seconds) };
            let token = AlignedToken { symbol: symbol.to_owned(), start, end };
            start = end;
            token
        };
        let tokens = symbols.into_iter().zip(durations).enumerate().map(token).collect();
        Alignment { text, seconds, tokens }
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_fill_the_recording_without_gaps() {
        let made = Alignment::new("a \"b\"".to_owned(), ["<sil>", "a", "\""], &[2, 3, 4], 0.1, 0.93);
        let times: Vec<(f64, f64)> = made.tokens.iter().map(|token| (token.start, token.end)).collect();
        assert_eq!(times[0].0, 0.0);
        assert!((times[0].1 - 0.15).abs() < 1e-12 && (times[1].1 - 0.45).abs() < 1e-12, "{times:?}");
        assert_eq!(times[2].1, 0.93);
        assert!(times.windows(2).all(|pair| pair[0].1 == pair[1].0), "{times:?}");
        let grid = made.to_text_grid();
        assert!(grid.contains("text = \"a \"\"b\"\"\"") && grid.contains("text = \"\"\"\""), "{grid}");
        assert!(grid.contains("intervals: size = 3\n        intervals [1]:\n            xmin = 0\n"), "{grid}");
    }
}
