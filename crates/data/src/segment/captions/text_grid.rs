//! Praat's TextGrid: a tier of utterances; several are several speakers. Tiers of words are used when there is no other.

use super::{Caption, CaptionKind, CaptionPlace, Captions, CaptionsError};
use crate::alignment::{Tier, text_grid_tiers};

/// Tiers of parts that are shorter than a word.
const PARTS: [&str; 5] = ["phones", "phonemes", "tokens", "syllables", "segments"];

pub(super) fn parse(text: &str) -> Result<Captions, CaptionsError> {
    let tiers = text_grid_tiers(text).ok_or(CaptionsError::TextGrid)?;
    // Aligners write `anna - words`.
    let is = |tier: &Tier, names: &[&str]| {
        let name = tier.name.to_lowercase();
        names.iter().any(|other| name.strip_suffix(other).is_some_and(|rest| !rest.ends_with(char::is_alphanumeric)))
    };
    let labeled = |tier: &&Tier| tier.intervals.iter().any(|interval| !interval.symbol.trim().is_empty());
    let usable: Vec<&Tier> = tiers.iter().filter(labeled).filter(|tier| !is(tier, &PARTS)).collect();
    let utterances: Vec<&Tier> = usable.iter().copied().filter(|tier| !is(tier, &["words", "word"])).collect();
    let chosen = if utterances.is_empty() { usable } else { utterances };
    let several = chosen.len() > 1;
    let mut found = Captions::new(CaptionKind::TextGrid);
    for tier in &chosen {
        let name = tier.name.to_lowercase();
        let words = name.rfind("words").filter(|_| name.len() == tier.name.len());
        let stem = words.and_then(|at| tier.name.get(..at)).unwrap_or(&tier.name);
        let stem = stem.trim_end_matches([' ', '-', '_']).trim();
        let speaker = (several && !stem.is_empty()).then(|| stem.to_owned());
        for (number, interval) in (1..).zip(&tier.intervals) {
            // Pauses are intervals too.
            if interval.symbol.trim().is_empty() {
                continue;
            }
            found.add(Caption {
                place: CaptionPlace::Interval(number),
                start: interval.start,
                end: interval.end,
                text: interval.symbol.clone(),
                speaker: speaker.clone(),
                words: Vec::new(),
            });
        }
    }
    Ok(found)
}
