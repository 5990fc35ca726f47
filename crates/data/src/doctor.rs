//! Everything that is odd about a corpus, before a single step: what clips sound like (`sound.rs`), and what is far from usual.

mod sound;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use serde::Serialize;
use tandem_audio::Decoder;
use tandem_text::{Language, Units};
use xxhash_rust::xxh3::xxh3_64;

use crate::corpus::Corpus;
use crate::fault::{ClipFault, FaultReport};
use crate::sources::Reading;
use sound::{SILENT, Sound, listen};

/// Runs of full scale per second from which a clip counts as clipped.
const CLIPPED_PER_SECOND: f64 = 0.5;
/// The share of samples in runs at a clip's own peak from which it counts as clipped, even if it was made quieter later. A sine
/// of 20 Hz has 1.3 %.
const FLAT_SHARE: f64 = 0.05;
/// Longer silence at an end teaches a model to wait.
const LONG_PAUSE_S: f64 = 1.0;
/// Robust deviations from the median from which a value is odd.
const ODD: f64 = 6.0;
/// Tokens a second below which a text is too short for its clip, whatever other clips have: slow speech has 8 letters.
const LEAST_RATE: f64 = 1.5;
/// The same in a share of the median.
const LEAST_SHARE: f64 = 0.2;
/// Shorter clips may be a word and a pause.
const LEAST_RATE_S: f64 = 3.0;
/// Clips from which a corpus has a median.
const ENOUGH: usize = 8;
/// Decibels from the median that are no news, for loudness and for noise: within a good corpus they vary by a few.
const USUAL_DB: (f64, f64) = (9.0, 15.0);
/// Speech that is not so many decibels above its pauses is hard to hear, however much the noise of other clips varies. Of 1,061 clean
/// clips of one speaker the least have 9: those without a pause.
const DROWNED_DB: f64 = 6.0;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The clip is used, but look at it.
    Warning,
    /// The clip is skipped because of a limit that the user set.
    Limit,
    /// The clip is skipped.
    Error,
}

/// Something odd about one clip.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClipFinding {
    /// How bad it is.
    pub severity: Severity,
    /// A short name that does not change.
    pub kind: &'static str,
    /// The clip.
    pub id: String,
    /// Its file.
    pub path: Option<PathBuf>,
    /// In words.
    pub reason: String,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Examination {
    /// Rows of the metadata.
    pub rows: usize,
    /// Clips that can be used.
    pub usable: usize,
    /// Seconds of audio in them.
    pub seconds: f64,
    /// Sample rates and how many clips have them, the commonest first.
    pub rates: Vec<(u32, usize)>,
    /// Which format the corpus was read in, and why.
    pub reading: Option<Reading>,
    /// Speakers; one when nobody is named.
    pub speakers: usize,
    /// Usable clips and seconds of each speaker, if they are named.
    pub by_speaker: Vec<SpeakerShare>,
    /// What texts were read as.
    pub units: Units,
    /// How many texts are in which language.
    pub languages: Vec<(Language, usize)>,
    /// Durations of usable clips in seconds.
    #[serde(skip)]
    pub durations: Vec<f32>,
    /// Tokens per second of usable clips.
    #[serde(skip)]
    pub speaking_rates: Vec<f32>,
    /// Everything odd, errors first, in the order of the metadata.
    pub findings: Vec<ClipFinding>,
}

/// What a corpus has of a speaker.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpeakerShare {
    /// The name.
    pub name: String,
    /// Usable clips.
    pub clips: usize,
    /// Seconds of audio in them.
    pub seconds: f64,
}

impl Examination {
    /// How often each kind of finding occurs, the worst and commonest first.
    pub fn counts(&self) -> Vec<(Severity, &'static str, usize)> {
        let mut counts: HashMap<(Severity, &'static str), usize> = HashMap::new();
        for finding in &self.findings {
            *counts.entry((finding.severity, finding.kind)).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().map(|((severity, kind), count)| (severity, kind, count)).collect();
        counts.sort_by_key(|&(severity, kind, count)| (std::cmp::Reverse(severity), std::cmp::Reverse(count), kind));
        counts
    }

    /// Adds what was found in another part of the corpus, its validation clips say.
    pub fn add(&mut self, other: Examination) {
        self.rows += other.rows;
        self.usable += other.usable;
        self.seconds += other.seconds;
        for (rate, count) in other.rates {
            match self.rates.iter_mut().find(|(known, _)| *known == rate) {
                Some((_, known)) => *known += count,
                None => self.rates.push((rate, count)),
            }
        }
        for share in other.by_speaker {
            match self.by_speaker.iter_mut().find(|known| known.name == share.name) {
                Some(known) => {
                    (known.clips, known.seconds) = (known.clips + share.clips, known.seconds + share.seconds)
                }
                None => self.by_speaker.push(share),
            }
        }
        for (language, count) in other.languages {
            match self.languages.iter_mut().find(|(known, _)| *known == language) {
                Some((_, known)) => *known += count,
                None => self.languages.push((language, count)),
            }
        }
        self.durations.extend(other.durations);
        self.speaking_rates.extend(other.speaking_rates);
        // What is said of the speakers is said once.
        let news = other.findings.into_iter().filter(|finding| !self.findings.contains(finding)).collect::<Vec<_>>();
        self.findings.extend(news);
    }

    /// How many clips are skipped because something is wrong with them.
    pub fn errors(&self) -> usize {
        self.findings.iter().filter(|finding| finding.severity == Severity::Error).count()
    }
}

/// Decodes every clip and looks at it; `progress(done, all)` hears how far it is. `None` when `stop` was set meanwhile.
pub fn examine(corpus: &Corpus, progress: impl Fn(u32, u32) + Sync, stop: &AtomicBool) -> Option<Examination> {
    let clips = corpus.len() as u32;
    let results: Mutex<Vec<(u32, Result<Sound, ClipFault>)>> = Mutex::default();
    let (next, done) = (AtomicU32::new(0), AtomicU32::new(0));
    let work = || {
        let (mut decoder, mut samples) = (Decoder::new(), Vec::new());
        loop {
            let clip = next.fetch_add(1, Ordering::Relaxed);
            if clip >= clips || stop.load(Ordering::Relaxed) {
                return;
            }
            let sound = listen(corpus, clip, &mut decoder, &mut samples);
            results.lock().unwrap_or_else(|e| e.into_inner()).push((clip, sound));
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, clips);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
        work();
    });
    if stop.load(Ordering::Relaxed) {
        return None;
    }
    let mut results = results.into_inner().unwrap_or_else(|e| e.into_inner());
    results.sort_by_key(|(clip, _)| *clip);
    Some(conclude(corpus, results))
}

fn conclude(corpus: &Corpus, results: Vec<(u32, Result<Sound, ClipFault>)>) -> Examination {
    let mut findings: Vec<ClipFinding> = (corpus.fault_reports().into_iter())
        .map(|FaultReport { id, path, kind, reason, limit }| {
            let severity = if limit { Severity::Limit } else { Severity::Error };
            // Names of an index are those of this program.
            let kind = if let Cow::Borrowed(kind) = kind { kind } else { "skipped" };
            ClipFinding { severity, kind, id, path, reason }
        })
        .collect();
    let usual_rate = corpus.rates().first().map_or(0, |&(rate, _)| rate);
    let mut examination = Examination {
        rows: corpus.rows(),
        rates: corpus.rates(),
        reading: corpus.reading().cloned(),
        speakers: corpus.speakers().len().max(1),
        units: corpus.frontend().units,
        languages: corpus.languages().into_iter().map(|(language, count, _)| (language, count)).collect(),
        ..Examination::default()
    };
    let (mut by_sound, mut by_text) = (HashMap::new(), HashMap::new());
    let (mut spoken, mut loudness, mut noise) = (Vec::new(), Vec::new(), Vec::new());
    let mut shares = vec![(0, 0.0); corpus.speakers().len()];
    let mut warnings: Vec<(u32, &'static str, String)> = Vec::new();
    for (clip, sound) in results {
        let sound = match sound {
            Ok(sound) if sound.unequal => Err(ClipFault::Changed),
            other => other,
        };
        let sound = match sound {
            Ok(sound) => sound,
            Err(fault) => {
                let (id, path) = corpus.name(clip);
                findings.push(ClipFinding {
                    severity: Severity::Error,
                    kind: fault.kind(),
                    id,
                    path,
                    reason: fault.to_string(),
                });
                continue;
            }
        };
        examination.usable += 1;
        examination.seconds += sound.seconds;
        examination.durations.push(sound.seconds as f32);
        let entry = corpus.entry(clip);
        let rate = f64::from(entry.tokens) / sound.seconds;
        examination.speaking_rates.push(rate as f32);
        spoken.push((clip, rate, sound.seconds));
        if let Some(share) = shares.get_mut(usize::from(entry.speaker)) {
            *share = (share.0 + 1, share.1 + sound.seconds);
        }
        let mut warn = |kind, reason| warnings.push((clip, kind, reason));
        if entry.rate != usual_rate {
            warn("rate", format!("{} Hz, most clips have {usual_rate}", entry.rate));
        }
        if entry.channels() > 1 {
            warn("channels", format!("{} channels, they are averaged", entry.channels()));
        }
        if sound.peak < SILENT {
            warn("silent", format!("silent throughout (peak {:.5})", sound.peak));
        } else {
            loudness.push((clip, sound.loudness_db));
            noise.push((clip, sound.noise_db, sound.loudness_db));
            if sound.flat_share > FLAT_SHARE {
                warn("clipped", format!("{:.0} % of its samples are clipped", 100.0 * sound.flat_share));
            } else if sound.clipped_runs as f64 > CLIPPED_PER_SECOND * sound.seconds {
                warn("clipped", format!("clipped in {} places", sound.clipped_runs));
            }
            for (kind, silence) in [("silence-before", sound.leading_s), ("silence-after", sound.trailing_s)] {
                if silence > LONG_PAUSE_S {
                    let place = if kind == "silence-before" { "before" } else { "after" };
                    warn(kind, format!("{silence:.1} s of silence {place} the speech"));
                }
            }
        }
        if let Some(&first) = by_sound.get(&sound.content) {
            warn("duplicate-sound", format!("the same sound as {}", corpus.name(first).0));
        } else {
            by_sound.insert(sound.content, clip);
        }
        let unknown = corpus.unknown(clip);
        if !unknown.is_empty() {
            let characters = unknown.into_iter().collect::<Vec<_>>().concat();
            warn("unknown-letters", format!("characters that are not said: {characters}"));
        }
        let text = corpus.text(clip).unwrap_or_default();
        let text_hash = xxh3_64(text.trim().as_bytes());
        if let Some(&first) = by_text.get(&text_hash) {
            warn("duplicate-text", format!("the same text as {}", corpus.name(first).0));
        } else {
            by_text.insert(text_hash, clip);
        }
    }
    let rates: Vec<f64> = spoken.iter().map(|&(_, rate, _)| rate).collect();
    // At least a tenth of the median: a corpus that is very even has no odd ones.
    let usual = usual(&rates).map(|(median, deviation)| (median, ODD * deviation.max(0.1 * median)));
    for (clip, rate, seconds) in spoken {
        let (median, most_off) = usual.unwrap_or((0.0, f64::INFINITY));
        let little = rate < LEAST_RATE.max(LEAST_SHARE * median) && seconds > LEAST_RATE_S;
        let kind = match (rate > median + most_off, little || rate < median - most_off) {
            (true, _) => "too-much-text",
            (_, true) => "too-little-text",
            _ => continue,
        };
        warnings.push(match usual {
            Some(_) => (
                clip,
                kind,
                format!("{rate:.1} letters per second, usual are {median:.1}: does the text belong to it?"),
            ),
            None => (clip, kind, format!("{rate:.1} letters per second: does the text belong to it?")),
        });
    }
    for (clip, level, median) in far(&loudness, USUAL_DB.0) {
        let off = (level - median).abs();
        warnings.push(match level > median {
            true => (clip, "loudness", format!("{off:.0} dB louder than most clips")),
            false => (clip, "loudness", format!("{off:.0} dB quieter than most clips")),
        });
    }
    for (clip, level, median) in noisy(&noise) {
        warnings.push((
            clip,
            "noise",
            format!("its pauses are {:.0} dB louder than those of most clips", level - median),
        ));
    }
    warnings.sort_by_key(|(clip, ..)| *clip);
    findings.extend(warnings.into_iter().map(|(clip, kind, reason)| {
        let (id, path) = corpus.name(clip);
        ClipFinding { severity: Severity::Warning, kind, id, path, reason }
    }));
    findings.extend(spellings(corpus.speakers()));
    examination.findings = findings;
    examination.by_speaker = (corpus.speakers().iter().zip(shares))
        .map(|(name, (clips, seconds))| SpeakerShare { name: name.clone(), clips, seconds })
        .collect();
    examination
}

/// Names that differ in case, blanks or signs alone: they may be one speaker, who would become several voices.
fn spellings(names: &[String]) -> Vec<ClipFinding> {
    let mut alike: BTreeMap<String, Vec<&String>> = BTreeMap::new();
    for name in names {
        let letters = name.to_lowercase().replace('ي', "ی").replace('ك', "ک");
        let key: String = letters.chars().filter(|letter| letter.is_alphanumeric()).collect();
        alike.entry(key).or_default().push(name);
    }
    let several = alike.into_values().filter(|names| names.len() > 1);
    let warn = |name: &str, reason: String| ClipFinding {
        severity: Severity::Warning,
        kind: "speaker-names",
        id: name.to_owned(),
        path: None,
        reason,
    };
    several
        .map(|names| {
            let list: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            warn(names[0], format!("may be one speaker in several spellings: {}", list.join(", ")))
        })
        .collect()
}

/// Clips (number, noise, speech) with far louder pauses than most, with the level of the pauses and the median.
fn noisy(clips: &[(u32, f64, f64)]) -> Vec<(u32, f64, f64)> {
    let levels: Vec<(u32, f64)> = clips.iter().map(|&(clip, noise, _)| (clip, noise)).collect();
    let values: Vec<f64> = clips.iter().map(|&(_, noise, _)| noise).collect();
    let Some((median, _)) = usual(&values) else { return Vec::new() };
    let is_far: HashSet<u32> = far(&levels, USUAL_DB.1).into_iter().map(|(clip, ..)| clip).collect();
    let is_drowned = |noise: f64, speech: f64| noise > median + USUAL_DB.1 && speech < noise + DROWNED_DB;
    let odd = |&&(clip, noise, speech): &&(u32, f64, f64)| {
        noise > median && (is_far.contains(&clip) || is_drowned(noise, speech))
    };
    clips.iter().filter(odd).map(|&(clip, noise, _)| (clip, noise, median)).collect()
}

/// Clips whose level is far from the median: by more decibels than usual, and by more than the corpus varies.
fn far(levels: &[(u32, f64)], usual_db: f64) -> Vec<(u32, f64, f64)> {
    let values: Vec<f64> = levels.iter().map(|&(_, level)| level).collect();
    let Some((median, deviation)) = usual(&values) else { return Vec::new() };
    let most_off = usual_db.max(ODD * deviation);
    let odd = levels.iter().filter(|(_, level)| (level - median).abs() > most_off);
    odd.map(|&(clip, level)| (clip, level, median)).collect()
}

/// The median and the deviation from it (as a standard deviation, but few outliers do not move it), if there are enough values.
fn usual(values: &[f64]) -> Option<(f64, f64)> {
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    let middle = median(values.to_vec());
    let deviation = median(values.iter().map(|value| (value - middle).abs()).collect());
    (values.len() >= ENOUGH).then_some((middle, 1.4826 * deviation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_that_drowns_speech_is_odd_even_where_noise_varies() {
        // As of 24 recordings of one speaker: pauses from -61 to -46 dB.
        let mut clips: Vec<(u32, f64, f64)> = (0..23).map(|n| (n, -61.0 + 15.0 * f64::from(n) / 22.0, -25.0)).collect();
        assert_eq!(noisy(&clips), []);
        clips.push((23, -26.0, -23.0));
        assert_eq!(noisy(&clips).iter().map(|odd| odd.0).collect::<Vec<u32>>(), [23]);
        // As loud, but speech is far above it: within what the corpus varies by.
        clips[23] = (23, -26.0, -6.0);
        assert_eq!(noisy(&clips), []);
        clips[23] = (23, -5.0, 20.0);
        assert_eq!(noisy(&clips).len(), 1, "far beyond that");
    }

    #[test]
    fn names_that_differ_in_case_or_signs_alone_are_one_speaker() {
        let names = ["Bob", "p225", "bob ", "p226", "B.O.B.", "علي", "علی"].map(str::to_owned);
        let found: Vec<String> = spellings(&names).into_iter().map(|finding| finding.reason).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].ends_with("`Bob`, `bob `, `B.O.B.`"), "{found:?}");
    }
}
