//! Labels of Audacity: start, end and text between tabs; a line that begins with `\` has frequencies of the one above.

use super::{Caption, CaptionFault, CaptionKind, CaptionPlace, Captions};

pub(super) fn parse(text: &str) -> Captions {
    let mut found = Captions::new(CaptionKind::Audacity);
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.starts_with('\\') {
            continue;
        }
        let place = CaptionPlace::Line(number);
        let mut fields = line.splitn(3, '\t');
        let (start, end) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        match (seconds(start), seconds(end)) {
            (Some(start), Some(end)) => {
                let text = fields.next().unwrap_or("").to_owned();
                found.add(Caption { place, start, end, text, speaker: None, words: Vec::new() });
            }
            (None, _) => found.faults.push((place, CaptionFault::Time(start.trim().to_owned()))),
            (_, None) => found.faults.push((place, CaptionFault::Time(end.trim().to_owned()))),
        }
    }
    found
}

/// Whether a line could be a label.
pub(super) fn is_label(line: &str) -> bool {
    let mut fields = line.split('\t');
    let mut time = || fields.next().and_then(seconds).is_some();
    time() && time()
}

/// With a point, or a comma where the language has it so.
fn seconds(text: &str) -> Option<f64> {
    text.trim().replace(',', ".").parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0)
}
