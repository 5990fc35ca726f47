//! Where a recording is cut: [`cut_captions`] and [`cut_pauses`], pure functions of levels, captions and settings.
//!
//! An edge of a caption is moved into the best pause near it: a long one, and not far. What lies between two captions is decided
//! once, so that clips never overlap. A clip begins where the pause before it ends and keeps a little of it.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::captions::{Caption, CaptionFault, CaptionPlace, TimedWord};
use super::levels::{Levels, difference, frame, time};
use super::vad::Activity;

/// Seconds of a pause beyond which it is not better than another one.
const LONG_ENOUGH_S: f64 = 0.6;
/// A pause may be so many seconds shorter for each second that it is nearer.
const PER_SECOND: f64 = 0.5;
/// Steps that a frame may be louder for each frame that it is nearer, where there is no pause at all: 10 dB a second.
const PER_FRAME: f64 = difference(10.0) / 100.0;
/// Captions with more seconds between them are not joined.
const FARTHEST_S: f64 = 1.0;
/// How far the share of the text and the share of the speech before a break may be apart for them to be the same break.
const SAME_SHARE: f64 = 0.06;
/// A pause in the middle of a caption that a break of its text may lie in, in seconds.
const BREAK_S: f64 = 0.15;

/// How clips are cut.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CutSettings {
    /// The shortest clip, in seconds.
    pub min_seconds: f64,
    /// The longest clip.
    pub max_seconds: f64,
    /// Silence that is kept at both ends, as far as there is any.
    pub keep_seconds: f64,
    /// How far the edge of a caption may be moved.
    pub reach_seconds: f64,
    /// The shortest pause that ends a clip without captions, and in the middle of a sentence.
    pub pause_seconds: f64,
}

impl Default for CutSettings {
    fn default() -> Self {
        CutSettings { min_seconds: 1.0, max_seconds: 15.0, keep_seconds: 0.1, reach_seconds: 0.5, pause_seconds: 0.3 }
    }
}

/// A clip to be cut out of a recording. Times are seconds of the recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cut {
    /// Where the clip begins.
    pub start: f64,
    /// Where it ends.
    pub end: f64,
    /// Where the speech in it begins.
    pub speech_start: f64,
    /// Where the speech ends.
    pub speech_end: f64,
    /// What is said; empty when nobody knows.
    pub text: String,
    /// Who says it, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speaker: Option<String>,
    /// When its captions begin and end, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captions: Option<(f64, f64)>,
    /// Decibels by which the sound at each edge is louder than a pause; 0 in a pause.
    pub edge_db: (f64, f64),
}

impl Cut {
    /// Its length.
    pub fn seconds(&self) -> f64 {
        self.end - self.start
    }

    /// Characters of its text for each second of speech.
    pub fn speech_rate(&self) -> f64 {
        let letters = self.text.chars().filter(|letter| letter.is_alphanumeric()).count();
        letters as f64 / (self.speech_end - self.speech_start).max(0.01)
    }
}

/// The cuts of a recording, in order, and the captions that are in none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cuts {
    /// They do not overlap.
    pub cuts: Vec<Cut>,
    /// Why captions are skipped.
    pub skipped: Vec<(CaptionPlace, CaptionFault)>,
    /// Stretches of speech without captions that are too short for a clip, in seconds.
    pub too_short: Vec<(f64, f64)>,
}

/// Where speech begins or ends, and how much silence there is beyond it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Edge {
    frame: usize,
    /// Frames of silence outside that belong to this clip.
    room: usize,
    /// Steps by which the frame is louder than a pause.
    excess: f64,
}

/// The end of one caption and the start of the next.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Boundary {
    end: Edge,
    start: Edge,
    /// Frames of silence between them; none where speech is cut.
    pause: usize,
}

/// A caption or a part of one.
#[derive(Clone, Debug)]
struct Piece {
    place: CaptionPlace,
    start: f64,
    end: f64,
    text: String,
    speaker: Option<String>,
}

/// Pieces that become one clip.
struct Group {
    pieces: Vec<Piece>,
    start: Edge,
    end: Edge,
}

/// Cuts a recording by captions.
pub fn cut_captions(levels: &Levels, captions: &[Caption], settings: &CutSettings) -> Cuts {
    let activity = Activity::of(levels);
    let mut cuts = Cuts::default();
    let sound = in_order(captions, levels.seconds(), settings, &mut cuts.skipped);
    let mut pieces: Vec<Piece> = Vec::with_capacity(sound.len());
    for caption in sound {
        match parts(caption, &activity, settings) {
            Some(parts) => pieces.extend(parts),
            None => cuts.skipped.push((caption.place, CaptionFault::TooLong(caption.end - caption.start))),
        }
    }
    let inside = |piece: &Piece| activity.spoken(&(frame(piece.start)..frame(piece.end).min(activity.frames()))) > 0;
    let (pieces, silent): (Vec<Piece>, Vec<Piece>) = pieces.into_iter().partition(inside);
    cuts.skipped.extend(silent.into_iter().map(|piece| (piece.place, CaptionFault::Silent)));
    for group in groups(levels, &activity, pieces, settings) {
        match group.cut(settings) {
            Ok(cut) => cuts.cuts.push(cut),
            Err(fault) => cuts.skipped.extend(group.pieces.iter().map(|piece| (piece.place, fault.clone()))),
        }
    }
    cuts
}

/// The captions by their times, without those that overlap or are not in the recording.
fn in_order<'a>(
    captions: &'a [Caption],
    recording: f64,
    settings: &CutSettings,
    skipped: &mut Vec<(CaptionPlace, CaptionFault)>,
) -> Vec<&'a Caption> {
    let mut sorted: Vec<&Caption> = captions.iter().collect();
    sorted.sort_by(|a, b| a.start.total_cmp(&b.start).then(a.end.total_cmp(&b.end)));
    sorted.retain(|caption| {
        // A file of captions may be rounded up at its end.
        let is_in = caption.start < recording && caption.end <= recording + settings.reach_seconds;
        if !is_in {
            skipped.push((caption.place, CaptionFault::BeyondEnd { end: caption.end, recording }));
        }
        is_in
    });
    let mut other: Vec<Option<(CaptionPlace, f64)>> = vec![None; sorted.len()];
    // The one that reaches furthest so far: a long one may overlap many.
    let mut furthest = 0;
    for next in 1..sorted.len() {
        let seconds = sorted[furthest].end.min(sorted[next].end) - sorted[next].start;
        // A little is how captions are made, and less than the shorter of the two.
        let short = (sorted[next].end - sorted[next].start).min(sorted[furthest].end - sorted[furthest].start);
        if seconds > settings.reach_seconds.min(short / 2.0) {
            other[next].get_or_insert((sorted[furthest].place, seconds));
            other[furthest].get_or_insert((sorted[next].place, seconds));
        }
        if sorted[next].end > sorted[furthest].end {
            furthest = next;
        }
    }
    let mut kept = Vec::with_capacity(sorted.len());
    for (caption, overlap) in sorted.into_iter().zip(other) {
        match overlap {
            Some((other, seconds)) => skipped.push((caption.place, CaptionFault::Overlap { other, seconds })),
            None => kept.push(caption),
        }
    }
    kept
}

/// A caption as pieces that are not too long, or none if that cannot be.
fn parts(caption: &Caption, activity: &Activity, settings: &CutSettings) -> Option<Vec<Piece>> {
    let piece = |start: f64, end: f64, text: String| {
        let (place, speaker) = (caption.place, caption.speaker.clone());
        Piece { place, start, end, text, speaker }
    };
    if caption.end - caption.start <= settings.max_seconds {
        return Some(vec![piece(caption.start, caption.end, caption.text.clone())]);
    }
    if caption.words.len() > 1 {
        let mut parts = Vec::new();
        split_words(&caption.words, settings, &mut parts)?;
        let joined = |words: &[TimedWord]| words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
        let part = |words: &[TimedWord]| Some(piece(words.first()?.start, words.last()?.end, joined(words)));
        return parts.into_iter().map(part).collect();
    }
    let mut parts = Vec::new();
    split_text(
        &caption.text,
        frame(caption.start)..frame(caption.end).min(activity.frames()),
        activity,
        settings,
        &mut parts,
    )?;
    Some(parts.into_iter().map(|(text, range)| piece(time(range.start), time(range.end), text)).collect())
}

/// Splits at the longest gap between words, again and again, until everything is short enough.
fn split_words<'a>(words: &'a [TimedWord], settings: &CutSettings, parts: &mut Vec<&'a [TimedWord]>) -> Option<()> {
    let (first, last) = (words.first()?, words.last()?);
    if last.end - first.start <= settings.max_seconds {
        parts.push(words);
        return Some(());
    }
    let gap = |at: usize| {
        let ends_sentence = if ends_sentence(&words[at - 1].text) { LONG_ENOUGH_S } else { 0.0 };
        // Not near an end: what is too short for a clip is no part.
        let room = (words[at - 1].end - first.start).min(last.end - words[at].start);
        words[at].start - words[at - 1].end + ends_sentence + room.min(settings.min_seconds)
    };
    let at = (1..words.len()).max_by(|&a, &b| gap(a).total_cmp(&gap(b)))?;
    split_words(&words[..at], settings, parts)?;
    split_words(&words[at..], settings, parts)
}

/// Splits where a break of the text and a pause of the speech have the same share before them.
fn split_text(
    text: &str,
    range: Range<usize>,
    activity: &Activity,
    settings: &CutSettings,
    parts: &mut Vec<(String, Range<usize>)>,
) -> Option<()> {
    if time(range.len()) <= settings.max_seconds {
        parts.push((text.trim().to_owned(), range));
        return Some(());
    }
    let letters = |text: &str| text.chars().filter(|letter| letter.is_alphanumeric()).count() as f64;
    let all_letters = letters(text).max(1.0);
    let spoken = activity.spoken(&range).max(1) as f64;
    let breaks = text.match_indices(char::is_whitespace).map(|(at, _)| at);
    let breaks: Vec<usize> = breaks.filter(|&at| text[..at].trim_end().ends_with(is_break)).collect();
    let mut best: Option<(f64, usize, usize)> = None;
    for pause in activity.pauses_in(&range).filter(|pause| time(pause.len()) >= BREAK_S) {
        let middle = (pause.start + pause.end) / 2;
        if pause.start <= range.start || pause.end >= range.end {
            continue;
        }
        let speech_share = activity.spoken(&(range.start..middle)) as f64 / spoken;
        for &at in &breaks {
            let off = (letters(&text[..at]) / all_letters - speech_share).abs();
            // A long pause after a sentence is worth more than an exact share.
            let bonus = if ends_sentence(&text[..at]) { 0.02 } else { 0.0 } + 0.02 * time(pause.len()).min(1.0);
            if off <= SAME_SHARE && best.is_none_or(|(least, ..)| off - bonus < least) {
                best = Some((off - bonus, at, middle));
            }
        }
    }
    let (_, at, middle) = best?;
    split_text(&text[..at], range.start..middle, activity, settings, parts)?;
    split_text(&text[at..], middle..range.end, activity, settings, parts)
}

/// A mark at which people pause.
fn is_break(letter: char) -> bool {
    ".?!…:;,،؛؟。".contains(letter)
}

/// Whether a sentence ends with this text, closing quotes apart.
fn ends_sentence(text: &str) -> bool {
    text.trim_end_matches(|c: char| c.is_whitespace() || "\"'”’»)]".contains(c))
        .ends_with(['.', '?', '!', '…', '؟', '。'])
}

/// Joins pieces that are too short, or that no pause parts.
fn groups(levels: &Levels, activity: &Activity, pieces: Vec<Piece>, settings: &CutSettings) -> Vec<Group> {
    let boundaries: Vec<Boundary> =
        pieces.windows(2).map(|pair| boundary(levels, activity, &pair[0], &pair[1], settings)).collect();
    let Some((first, last)) = pieces.first().zip(pieces.last()) else { return Vec::new() };
    let first_start = lone_edge(levels, activity, first, true, settings);
    let last_end = lone_edge(levels, activity, last, false, settings);
    let starts = std::iter::once(first_start).chain(boundaries.iter().map(|boundary| boundary.start));
    let ends: Vec<Edge> = boundaries.iter().map(|boundary| boundary.end).chain([last_end]).collect();
    let mut groups: Vec<Group> = Vec::new();
    for (n, (piece, start)) in pieces.into_iter().zip(starts).enumerate() {
        let end = ends[n];
        let seconds = |from: Edge, to: Edge| time(to.frame.saturating_sub(from.frame));
        let joins = |group: &Group| {
            let (before, boundary) = (group.pieces.last().expect("a group has pieces"), &boundaries[n - 1]);
            let fits = seconds(group.start, end) + 2.0 * settings.keep_seconds <= settings.max_seconds;
            let near = piece.start - before.end <= FARTHEST_S && time(boundary.pause) <= FARTHEST_S;
            let too_short = seconds(group.start, group.end).min(seconds(start, end)) < settings.min_seconds;
            let within_sentence = time(boundary.pause) < settings.pause_seconds && !ends_sentence(&before.text);
            before.speaker == piece.speaker && fits && near && (boundary.pause == 0 || too_short || within_sentence)
        };
        match groups.last_mut() {
            Some(group) if joins(group) => {
                group.pieces.push(piece);
                group.end = end;
            }
            _ => groups.push(Group { pieces: vec![piece], start, end }),
        }
    }
    groups
}

impl Group {
    fn cut(&self, settings: &CutSettings) -> Result<Cut, CaptionFault> {
        let text = self.pieces.iter().map(|piece| piece.text.as_str()).collect::<Vec<_>>().join(" ");
        let captions = self.pieces.first().zip(self.pieces.last()).map(|(first, last)| (first.start, last.end));
        let speaker = self.pieces.first().and_then(|piece| piece.speaker.clone());
        let cut = cut_between(self.start, self.end, settings);
        match time(self.end.frame.saturating_sub(self.start.frame)) {
            seconds if seconds < settings.min_seconds => Err(CaptionFault::TooShort(seconds)),
            _ if cut.seconds() > settings.max_seconds => Err(CaptionFault::TooLong(cut.seconds())),
            _ => Ok(Cut { text, speaker, captions, ..cut }),
        }
    }
}

fn cut_between(start: Edge, end: Edge, settings: &CutSettings) -> Cut {
    let kept = |edge: Edge| time(edge.room.min(frame(settings.keep_seconds)));
    // Less silence is kept where a clip would be too long.
    let spare = (settings.max_seconds - time(end.frame.saturating_sub(start.frame))).max(0.0) / 2.0;
    let db = |edge: Edge| ((edge.excess / difference(1.0)).max(0.0) * 10.0).round() / 10.0;
    // Milliseconds: what is kept in a file is read as it was.
    let exact = |seconds: f64| (1000.0 * seconds).round() / 1000.0;
    Cut {
        start: exact(time(start.frame) - kept(start).min(spare)),
        end: exact(time(end.frame) + kept(end).min(spare)),
        speech_start: time(start.frame),
        speech_end: time(end.frame),
        text: String::new(),
        speaker: None,
        captions: None,
        edge_db: (db(start), db(end)),
    }
}

/// Where one caption ends and the next begins.
fn boundary(levels: &Levels, activity: &Activity, before: &Piece, after: &Piece, settings: &CutSettings) -> Boundary {
    if after.start - before.end > 2.0 * settings.reach_seconds {
        let end = lone_edge(levels, activity, before, false, settings);
        let start = lone_edge(levels, activity, after, true, settings);
        // Both may have found the same pause.
        if start.frame >= end.frame {
            let pause = start.frame - end.frame;
            let share = |edge: Edge| Edge { room: edge.room.min(pause / 2), ..edge };
            let quiet = end.excess <= 0.0 && start.excess <= 0.0;
            return Boundary { end: share(end), start: share(start), pause: if quiet { pause.max(1) } else { 0 } };
        }
    }
    let gap = before.end.min(after.start)..before.end.max(after.start);
    let reach = settings.reach_seconds;
    let middle = |piece: &Piece| (piece.start + piece.end) / 2.0;
    let window = (gap.start - reach).max(middle(before))..(gap.end + reach).min(middle(after));
    match best_pause(activity, &gap, &window) {
        Some(pause) => {
            // Not before the one began, nor after the other ends.
            let end = pause.start.max(frame(before.start) + 1);
            let start = pause.end.min(frame(after.end).saturating_sub(1)).max(end);
            let room = (start - end) / 2;
            let edge = |frame: usize| Edge { frame, room, excess: 0.0 };
            Boundary { end: edge(end), start: edge(start), pause: (start - end).max(1) }
        }
        None => {
            let at = quietest(levels, &gap, &window);
            let edge = Edge { frame: at, room: 0, excess: activity.excess(levels, at) };
            Boundary { end: edge, start: edge, pause: 0 }
        }
    }
}

/// The start or the end of a caption that has no neighbor there.
fn lone_edge(levels: &Levels, activity: &Activity, piece: &Piece, is_start: bool, settings: &CutSettings) -> Edge {
    let at = if is_start { piece.start } else { piece.end.min(levels.seconds()) };
    let (reach, middle) = (settings.reach_seconds, (piece.start + piece.end) / 2.0);
    let window = match is_start {
        true => (at - reach).max(0.0)..(at + reach).min(middle),
        false => (at - reach).max(middle)..(at + reach).min(levels.seconds()),
    };
    match best_pause(activity, &(at..at), &window) {
        Some(pause) => {
            let frame = if is_start { pause.end } else { pause.start };
            Edge { frame, room: pause.len(), excess: 0.0 }
        }
        // The recording begins or ends with speech.
        None if is_start && window.start <= 0.0 => Edge { frame: 0, room: 0, excess: activity.excess(levels, 0) },
        None if !is_start && window.end >= levels.seconds() => {
            Edge { frame: levels.len(), room: 0, excess: activity.excess(levels, levels.len()) }
        }
        None => {
            let at = quietest(levels, &(at..at), &window);
            Edge { frame: at, room: 0, excess: activity.excess(levels, at) }
        }
    }
}

/// The pause that is longest and nearest to a gap between captions.
fn best_pause(activity: &Activity, gap: &Range<f64>, window: &Range<f64>) -> Option<Range<usize>> {
    let score = |pause: &Range<usize>| {
        let (start, end) = (time(pause.start), time(pause.end));
        let distance = (start - gap.end).max(gap.start - end).max(0.0);
        (end - start).min(LONG_ENOUGH_S) - PER_SECOND * distance
    };
    let frames = frame(window.start)..frame(window.end) + 1;
    activity.pauses_in(&frames).max_by(|a, b| score(a).total_cmp(&score(b))).cloned()
}

/// The quietest place near a gap between captions, where there is no pause.
fn quietest(levels: &Levels, gap: &Range<f64>, window: &Range<f64>) -> usize {
    let steps = levels.steps();
    let gap = frame(gap.start)..frame(gap.end);
    let cost = |at: usize| {
        let around = &steps[at.saturating_sub(2)..(at + 2).min(steps.len())];
        let level: f64 = around.iter().map(|&level| f64::from(level)).sum::<f64>() / around.len().max(1) as f64;
        let distance = at.saturating_sub(gap.end).max(gap.start.saturating_sub(at));
        level + PER_FRAME * distance as f64
    };
    let within = frame(window.start).min(steps.len())..(frame(window.end) + 1).min(steps.len());
    let fallback = gap.start.min(steps.len());
    within.min_by(|&a, &b| cost(a).total_cmp(&cost(b))).unwrap_or(fallback)
}

/// Cuts a recording at its pauses, without knowing what is said.
pub fn cut_pauses(levels: &Levels, settings: &CutSettings) -> Cuts {
    let activity = Activity::of(levels);
    let mut cuts = Cuts::default();
    // Pauses of the least length part the speech...
    let mut stretches: Vec<Range<usize>> = Vec::new();
    for speech in activity.speech() {
        match stretches.last_mut() {
            Some(last) if time(speech.start - last.end) < settings.pause_seconds => last.end = speech.end,
            _ => stretches.push(speech),
        }
    }
    // ...shorter ones what is still too long...
    let mut clips = Vec::with_capacity(stretches.len());
    for stretch in stretches {
        split_stretch(levels, &activity, stretch, settings, &mut clips);
    }
    // ...and what is too short joins its nearer neighbor.
    let clips = joined(clips, settings);
    for (n, clip) in clips.iter().enumerate() {
        let before = if n == 0 { 0 } else { clips[n - 1].end };
        let after = clips.get(n + 1).map_or(levels.len(), |next| next.start);
        let room = |gap: usize, at_end: bool| if at_end { gap } else { gap / 2 };
        let edge = |frame: usize, room: usize| {
            let excess = if room == 0 { activity.excess(levels, frame) } else { 0.0 };
            Edge { frame, room, excess }
        };
        let start = edge(clip.start, room(clip.start - before, n == 0));
        let end = edge(clip.end, room(after - clip.end, n + 1 == clips.len()));
        match time(clip.len()) < settings.min_seconds {
            true => cuts.too_short.push((time(clip.start), time(clip.end))),
            false => cuts.cuts.push(cut_between(start, end, settings)),
        }
    }
    cuts
}

/// Splits at the longest pause, or where it is quietest, until everything is short enough.
fn split_stretch(
    levels: &Levels,
    activity: &Activity,
    stretch: Range<usize>,
    settings: &CutSettings,
    clips: &mut Vec<Range<usize>>,
) {
    // A stretch that is barely too long loses some of the silence that is kept, not a word.
    if time(stretch.len()) <= settings.max_seconds || stretch.len() < 4 {
        clips.push(stretch);
        return;
    }
    let least = frame(settings.min_seconds).clamp(1, stretch.len() / 2);
    let inner = stretch.start + least..stretch.end - least;
    let longest = (activity.pauses_in(&inner).filter(|pause| pause.start >= inner.start && pause.end <= inner.end))
        .max_by_key(|pause| pause.len());
    let pause = longest.cloned().unwrap_or_else(|| {
        let half = frame(settings.max_seconds / 2.0);
        let window = time(stretch.start + half)..time((stretch.start + 2 * half).min(inner.end));
        let at = quietest(levels, &window, &window).clamp(inner.start, inner.end);
        at..at
    });
    split_stretch(levels, activity, stretch.start..pause.start, settings, clips);
    split_stretch(levels, activity, pause.end..stretch.end, settings, clips);
}

fn joined(clips: Vec<Range<usize>>, settings: &CutSettings) -> Vec<Range<usize>> {
    let is_short = |clip: &Range<usize>| time(clip.len()) < settings.min_seconds;
    let gap = |a: &Range<usize>, b: &Range<usize>| time(b.start - a.end);
    let fits = |a: &Range<usize>, b: &Range<usize>| {
        gap(a, b) <= FARTHEST_S && time(b.end - a.start) + 2.0 * settings.keep_seconds <= settings.max_seconds
    };
    let mut joined: Vec<Range<usize>> = Vec::with_capacity(clips.len());
    let mut clips = clips.into_iter().peekable();
    while let Some(mut clip) = clips.next() {
        while is_short(&clip) {
            let back = joined.last().filter(|before| fits(before, &clip)).map(|before| gap(before, &clip));
            let ahead = clips.peek().filter(|next| fits(&clip, next)).map(|next| gap(&clip, next));
            match (back, ahead) {
                (Some(back), Some(ahead)) if back <= ahead => clip.start = joined.pop().expect("it was there").start,
                (_, Some(_)) => clip.end = clips.next().expect("it was there").end,
                (Some(_), None) => clip.start = joined.pop().expect("it was there").start,
                (None, None) => break,
            }
        }
        joined.push(clip);
    }
    joined
}

#[cfg(test)]
mod tests;
