//! JSON of transcripts: OpenAI's Whisper, faster-whisper and WhisperX (`segments`), whisper.cpp (`transcription`) and the pipelines
//! of Hugging Face (`chunks`).

use serde_json::Value;

use super::{Caption, CaptionFault, CaptionKind, CaptionPlace, Captions, CaptionsError, TimedWord};

pub(super) fn parse(text: &str) -> Result<Captions, CaptionsError> {
    let json: Value = serde_json::from_str(text).map_err(CaptionsError::Json)?;
    let lists = ["segments", "transcription", "chunks"].iter().find_map(|name| json.get(*name)).unwrap_or(&json);
    let segments =
        lists.as_array().filter(|list| list.iter().all(Value::is_object)).ok_or(CaptionsError::NoSegments)?;
    let mut found = Captions::new(CaptionKind::Whisper);
    for (number, segment) in (1..).zip(segments) {
        let place = CaptionPlace::Segment(number);
        let text = segment.get("text").and_then(Value::as_str).unwrap_or("").to_owned();
        let Some((start, end)) = range(segment) else {
            found.faults.push((place, CaptionFault::Time(short(segment))));
            continue;
        };
        let speaker = segment.get("speaker").and_then(Value::as_str).map(str::trim).filter(|name| !name.is_empty());
        let words = words(segment, &text, start, end);
        found.add(Caption { place, start, end, text, speaker: speaker.map(str::to_owned), words });
    }
    Ok(found)
}

fn range(segment: &Value) -> Option<(f64, f64)> {
    let pair = |start: &Value, end: &Value, unit: f64| Some((start.as_f64()? * unit, end.as_f64()? * unit));
    let at = |name: &str, key: &str| segment.get(name).and_then(|value| value.get(key));
    match (segment.get("start"), segment.get("end"), segment.get("timestamp")) {
        (Some(start), Some(end), _) => pair(start, end, 1.0),
        (_, _, Some(both)) => pair(both.get(0)?, both.get(1)?, 1.0),
        _ => pair(at("offsets", "from")?, at("offsets", "to")?, 1e-3),
    }
}

/// The words, if all have times, in order, and say what the text says.
fn words(segment: &Value, text: &str, start: f64, end: f64) -> Vec<TimedWord> {
    let list = segment.get("words").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let word = |value: &Value| {
        let text = value.get("word").or_else(|| value.get("text"))?.as_str()?.trim().to_owned();
        let (from, to) = range(value)?;
        let inside = start - 1.0 <= from && from <= to && to <= end + 1.0;
        inside.then_some(TimedWord { text, start: from, end: to })
    };
    let words: Vec<TimedWord> = list.iter().map_while(word).collect();
    let letters = |text: &str| text.chars().filter(|letter| !letter.is_whitespace()).collect::<String>();
    let said: String = words.iter().map(|word| letters(&word.text)).collect();
    let ordered = words.windows(2).all(|pair| pair[0].end <= pair[1].start + 1e-6);
    if words.len() == list.len() && ordered && said == letters(text) { words } else { Vec::new() }
}

/// The beginning of a value, for an error.
fn short(value: &Value) -> String {
    value.to_string().chars().take(60).collect()
}
