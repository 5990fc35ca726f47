//! What is said when, from files of many programs. The kind of a file is known by its content, not by its name. A caption that is
//! wrong is a fault with its place; only what is no caption file at all is an error.

mod audacity;
mod srt;
mod text_grid;
mod times;
mod vtt;
mod whisper;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::alignment::decode;

/// What a file of captions is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaptionKind {
    /// SubRip.
    Srt,
    /// WebVTT.
    Vtt,
    /// JSON of Whisper and of programs that write like it.
    Whisper,
    /// Praat's TextGrid.
    TextGrid,
    /// Labels of Audacity.
    Audacity,
}

impl fmt::Display for CaptionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CaptionKind::Srt => "SRT",
            CaptionKind::Vtt => "VTT",
            CaptionKind::Whisper => "Whisper JSON",
            CaptionKind::TextGrid => "TextGrid",
            CaptionKind::Audacity => "Audacity labels",
        })
    }
}

/// Where in a file a caption stands, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaptionPlace {
    /// A line.
    Line(usize),
    /// A segment of JSON, which has no lines that mean anything.
    Segment(usize),
    /// An interval of a tier.
    Interval(usize),
}

impl fmt::Display for CaptionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaptionPlace::Line(number) => write!(f, "line {number}"),
            CaptionPlace::Segment(number) => write!(f, "segment {number}"),
            CaptionPlace::Interval(number) => write!(f, "interval {number}"),
        }
    }
}

/// A word with its times, where a program found them.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedWord {
    /// The word, without blanks around it.
    pub text: String,
    /// When it begins, in seconds.
    pub start: f64,
    /// When it ends.
    pub end: f64,
}

/// What is said from one time to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Caption {
    /// Where it stands.
    pub place: CaptionPlace,
    /// When it begins, in seconds.
    pub start: f64,
    /// When it ends.
    pub end: f64,
    /// What is said, in one line.
    pub text: String,
    /// Who says it, if the file tells.
    pub speaker: Option<String>,
    /// Its words, if the file has their times.
    pub words: Vec<TimedWord>,
}

/// Why a caption is skipped, or looked at twice.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CaptionFault {
    /// The number of a caption is none; the caption is used.
    Number(String),
    /// What should be a time is none.
    Time(String),
    /// It ends before it begins, or when it begins.
    Reversed {
        /// In seconds.
        start: f64,
        /// In seconds.
        end: f64,
    },
    /// Nothing is said: no text, or a remark in brackets.
    NothingSaid(String),
    /// Two people in one caption.
    TwoSpeakers,
    /// Text that belongs to no caption.
    Stray(String),
    /// It is said at the same time as another one.
    Overlap {
        /// The other one.
        other: CaptionPlace,
        /// For so long.
        seconds: f64,
    },
    /// It is later than the recording is long.
    BeyondEnd {
        /// When it should end.
        end: f64,
        /// The end of the recording.
        recording: f64,
    },
    /// Longer than a clip may be, and nowhere a pause that fits a break of the text.
    TooLong(f64),
    /// Shorter than a clip may be, and no neighbor to join.
    TooShort(f64),
    /// There is no sound that could be speech.
    Silent,
}

impl CaptionFault {
    /// A short name that does not change.
    pub fn kind(&self) -> &'static str {
        match self {
            CaptionFault::Number(_) => "number",
            CaptionFault::Time(_) => "time",
            CaptionFault::Reversed { .. } => "reversed",
            CaptionFault::NothingSaid(_) => "nothing-said",
            CaptionFault::TwoSpeakers => "two-speakers",
            CaptionFault::Stray(_) => "stray-text",
            CaptionFault::Overlap { .. } => "overlap",
            CaptionFault::BeyondEnd { .. } => "beyond-end",
            CaptionFault::TooLong(_) => "too-long",
            CaptionFault::TooShort(_) => "too-short",
            CaptionFault::Silent => "silent",
        }
    }
}

impl fmt::Display for CaptionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaptionFault::Number(text) => write!(f, "`{text}` is not the number of a caption; the caption is used"),
            CaptionFault::Time(text) => write!(f, "`{text}` is not a time"),
            CaptionFault::Reversed { start, end } => write!(f, "it begins at {start:.3} s and ends at {end:.3} s"),
            CaptionFault::NothingSaid(text) if text.is_empty() => write!(f, "the caption has no text"),
            CaptionFault::NothingSaid(text) => write!(f, "nothing is said: `{text}`"),
            CaptionFault::TwoSpeakers => write!(f, "two speakers in one caption"),
            CaptionFault::Stray(text) => write!(f, "text that belongs to no caption: `{text}`"),
            CaptionFault::Overlap { other, seconds } => write!(f, "{seconds:.2} s at the same time as {other}"),
            CaptionFault::BeyondEnd { end, recording } => {
                write!(f, "it ends at {end:.2} s, the recording at {recording:.2} s")
            }
            CaptionFault::TooLong(seconds) => {
                write!(f, "{seconds:.1} s are too long for a clip, and no pause in it fits a break of the text")
            }
            CaptionFault::TooShort(seconds) => {
                write!(f, "{seconds:.2} s are too short for a clip, and there is no neighbor to join")
            }
            CaptionFault::Silent => write!(f, "there is nothing to be heard"),
        }
    }
}

/// Why a file has no captions.
#[derive(Debug)]
#[non_exhaustive]
pub enum CaptionsError {
    /// Neither UTF-8 nor UTF-16, first in this line.
    NotUtf8(usize),
    /// None of the kinds that are known.
    NotCaptions,
    /// Not whole JSON.
    Json(serde_json::Error),
    /// JSON without segments of a transcript.
    NoSegments,
    /// Not a whole TextGrid.
    TextGrid,
    /// Not one caption is in it.
    Empty(CaptionKind),
}

impl fmt::Display for CaptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaptionsError::NotUtf8(line) => write!(f, "line {line} is neither UTF-8 nor UTF-16"),
            CaptionsError::NotCaptions => {
                write!(f, "neither SRT, VTT, Whisper JSON, a TextGrid nor labels of Audacity")
            }
            CaptionsError::Json(error) => write!(f, "not whole JSON: {error}"),
            CaptionsError::NoSegments => write!(f, "JSON without `segments` of a transcript"),
            CaptionsError::TextGrid => write!(f, "not a whole TextGrid in a text format"),
            CaptionsError::Empty(kind) => write!(f, "{kind} without a caption"),
        }
    }
}

impl std::error::Error for CaptionsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CaptionsError::Json(error) => Some(error),
            _ => None,
        }
    }
}

/// The captions of a file, in its order, and what is wrong with others.
#[derive(Clone, Debug, PartialEq)]
pub struct Captions {
    /// What the file is.
    pub kind: CaptionKind,
    /// Those that say something in a time that is one.
    pub captions: Vec<Caption>,
    /// The rest.
    pub faults: Vec<(CaptionPlace, CaptionFault)>,
}

impl Captions {
    fn new(kind: CaptionKind) -> Captions {
        Captions { kind, captions: Vec::new(), faults: Vec::new() }
    }

    /// Adds a caption if nothing is wrong with it by itself.
    fn add(&mut self, caption: Caption) {
        let Caption { place, start, end, .. } = caption;
        let text = one_line(&caption.text);
        let fault = match () {
            () if !(start.is_finite() && end.is_finite()) => CaptionFault::Time(format!("{start} --> {end}")),
            () if end <= start => CaptionFault::Reversed { start, end },
            () if is_remark(&text) => CaptionFault::NothingSaid(text),
            () => return self.captions.push(Caption { text, ..caption }),
        };
        self.faults.push((place, fault));
    }
}

/// Reads captions of any kind.
///
/// # Errors
///
/// [`CaptionsError`] if the bytes are no captions.
pub fn parse_captions(bytes: &[u8]) -> Result<Captions, CaptionsError> {
    let text = read_text(bytes).map_err(CaptionsError::NotUtf8)?;
    let found = match kind_of(&text).ok_or(CaptionsError::NotCaptions)? {
        CaptionKind::Srt => srt::parse(&text),
        CaptionKind::Vtt => vtt::parse(&text),
        CaptionKind::Whisper => whisper::parse(&text)?,
        CaptionKind::TextGrid => text_grid::parse(&text)?,
        CaptionKind::Audacity => audacity::parse(&text),
    };
    if found.captions.is_empty() && found.faults.is_empty() {
        return Err(CaptionsError::Empty(found.kind));
    }
    Ok(found)
}

/// A file as text, or the first line that is none.
pub(super) fn read_text(bytes: &[u8]) -> Result<String, usize> {
    decode(bytes).map(|text| text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)).ok_or_else(|| {
        let valid = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
        1 + bytes[..valid].iter().filter(|&&byte| byte == b'\n').count()
    })
}

/// By the first line that says something.
fn kind_of(text: &str) -> Option<CaptionKind> {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    match first {
        _ if first.starts_with("WEBVTT") => Some(CaptionKind::Vtt),
        _ if first.starts_with(['{', '[']) => Some(CaptionKind::Whisper),
        _ if first.contains("ooTextFile") => Some(CaptionKind::TextGrid),
        _ if text.lines().take(1000).any(|line| line.contains("-->")) => Some(CaptionKind::Srt),
        _ if audacity::is_label(first) => Some(CaptionKind::Audacity),
        _ => None,
    }
}

/// Blanks and line ends become one blank each.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a text is none, or only says what is heard besides speech: `[music]`, `(laughs)`, `♪ la la ♪`.
fn is_remark(text: &str) -> bool {
    let enclosed = |open: char, close: char| {
        let inner = text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
        inner.is_some_and(|inner| !inner.contains([open, close]))
    };
    enclosed('[', ']') || enclosed('(', ')') || text.contains(['♪', '♫']) || !text.chars().any(char::is_alphanumeric)
}

/// Without tags (`<i>`) and positions (`{\an8}`).
fn without_markup(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['<', '{']) {
        plain.push_str(&rest[..at]);
        let opened = &rest[at..];
        let begins = |c: char| c.is_ascii_alphabetic() || c.is_ascii_digit() || c == '/';
        let is_tag = opened.starts_with("{\\") || opened.strip_prefix('<').is_some_and(|rest| rest.starts_with(begins));
        let close = if opened.starts_with('<') { '>' } else { '}' };
        match opened.find(close).filter(|_| is_tag) {
            Some(end) => rest = &opened[end + 1..],
            None => {
                plain.push_str(&opened[..1]);
                rest = &opened[1..];
            }
        }
    }
    plain.push_str(rest);
    plain
}

/// Whether two people speak: two lines that begin with a dash.
fn has_two_speakers(lines: &[&str]) -> bool {
    lines.iter().filter(|line| without_markup(line).trim_start().starts_with(['-', '–', '—'])).count() > 1
}

#[cfg(test)]
mod tests;
