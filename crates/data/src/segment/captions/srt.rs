//! SubRip: a number, a line of times, lines of text, a blank line.

use super::{Caption, CaptionFault, CaptionKind, CaptionPlace, Captions, has_two_speakers, times, without_markup};

pub(super) fn parse(text: &str) -> Captions {
    let mut found = Captions::new(CaptionKind::Srt);
    let lines: Vec<&str> = text.lines().collect();
    let mut at = 0;
    while at < lines.len() {
        if lines[at].trim().is_empty() {
            at += 1;
            continue;
        }
        // Only the line of times is needed; what stands before it is its number.
        let is_time = |line: usize| lines.get(line).is_some_and(|line| line.contains("-->"));
        let time = match (is_time(at), is_time(at + 1)) {
            (true, _) => at,
            (_, true) => {
                let number = lines[at].trim();
                if number.parse::<u64>().is_err() {
                    found.faults.push((CaptionPlace::Line(at + 1), CaptionFault::Number(number.to_owned())));
                }
                at + 1
            }
            _ => {
                let stray = CaptionFault::Stray(lines[at].trim().to_owned());
                found.faults.push((CaptionPlace::Line(at + 1), stray));
                at += 1;
                continue;
            }
        };
        // The text ends with a blank line, or where the next caption begins without one.
        let begins = |line: usize| lines[line].trim().parse::<u64>().is_ok() && is_time(line + 1);
        let end = (time + 1..lines.len()).find(|&line| lines[line].trim().is_empty() || is_time(line) || begins(line));
        let end = end.unwrap_or(lines.len());
        let place = CaptionPlace::Line(time + 1);
        match times::range(lines[time]) {
            Err(wrong) => found.faults.push((place, CaptionFault::Time(wrong))),
            Ok(_) if has_two_speakers(&lines[time + 1..end]) => found.faults.push((place, CaptionFault::TwoSpeakers)),
            Ok((start, stop)) => {
                let text = without_markup(&lines[time + 1..end].join("\n"));
                found.add(Caption { place, start, end: stop, text, speaker: None, words: Vec::new() });
            }
        }
        at = end;
    }
    found
}
