//! WebVTT: cues with or without a name, `<v Name>` says who speaks.

use super::{Caption, CaptionFault, CaptionKind, CaptionPlace, Captions, has_two_speakers, times, without_markup};

pub(super) fn parse(text: &str) -> Captions {
    let mut found = Captions::new(CaptionKind::Vtt);
    let lines: Vec<&str> = text.lines().collect();
    let mut at = lines.iter().position(|line| line.trim().is_empty()).unwrap_or(lines.len());
    while at < lines.len() {
        if lines[at].trim().is_empty() {
            at += 1;
            continue;
        }
        let end = (at..lines.len()).find(|&line| lines[line].trim().is_empty()).unwrap_or(lines.len());
        let block = &lines[at..end];
        let is_cue = !["NOTE", "STYLE", "REGION"].iter().any(|word| block[0].trim().split(' ').next() == Some(word));
        // A cue may have a name of one line.
        match block.iter().take(2).position(|line| line.contains("-->")) {
            Some(time) if is_cue => add_cue(&mut found, at + time, block[time], &block[time + 1..]),
            None if is_cue => {
                let stray = CaptionFault::Stray(block[0].trim().to_owned());
                found.faults.push((CaptionPlace::Line(at + 1), stray));
            }
            _ => {}
        }
        at = end;
    }
    found
}

fn add_cue(found: &mut Captions, line: usize, time: &str, payload: &[&str]) {
    let place = CaptionPlace::Line(line + 1);
    let names = speakers(&payload.join("\n"));
    match (times::range(time), names.as_slice()) {
        (Err(wrong), _) => found.faults.push((place, CaptionFault::Time(wrong))),
        (_, [_, _, ..]) => found.faults.push((place, CaptionFault::TwoSpeakers)),
        _ if has_two_speakers(payload) => found.faults.push((place, CaptionFault::TwoSpeakers)),
        (Ok((start, end)), names) => {
            let text = unescaped(&without_markup(&payload.join("\n")));
            found.add(Caption { place, start, end, text, speaker: names.first().cloned(), words: Vec::new() });
        }
    }
}

/// The different names of `<v Name>` and `<v.loud Name>`.
fn speakers(payload: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for tag in payload.split('<').skip(1).filter_map(|rest| rest.split_once('>').map(|(tag, _)| tag)) {
        let Some(rest) = tag.strip_prefix('v').filter(|rest| rest.starts_with(['.', ' ', '\t', '\n'])) else {
            continue;
        };
        let name = rest.split_once([' ', '\t', '\n']).map_or("", |(_, name)| name);
        let name = unescaped(name).split_whitespace().collect::<Vec<_>>().join(" ");
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// `&amp;` and the few others that WebVTT has.
fn unescaped(text: &str) -> String {
    let table =
        [("&lt;", "<"), ("&gt;", ">"), ("&nbsp;", " "), ("&lrm;", "\u{200e}"), ("&rlm;", "\u{200f}"), ("&amp;", "&")];
    table.iter().fold(text.to_owned(), |text, (name, sign)| text.replace(name, sign))
}
