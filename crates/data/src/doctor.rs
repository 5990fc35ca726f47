//! Everything that is odd about a corpus, before a single step.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use serde::Serialize;
use tandem_audio::Decoder;
use tandem_text::{Language, Units};
use xxhash_rust::xxh3::xxh3_64;

use crate::corpus::Corpus;
use crate::fault::{ClipFault, FaultReport};

/// Louder than this counts as full scale.
const FULL_SCALE: f32 = 0.999;
/// So many full-scale samples in a row are clipping and not a peak.
const CLIPPED_RUN: usize = 3;
/// Runs of full scale per second from which a clip counts as clipped.
const CLIPPED_PER_SECOND: f64 = 0.5;
/// Quieter than this (-60 dB) all along is silence.
const SILENT: f32 = 1e-3;
/// Longer silence at an end teaches a model to wait.
const LONG_PAUSE_S: f64 = 1.0;
/// Robust deviations from the median from which a speaking rate is odd.
const ODD: f64 = 6.0;

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
    /// Speakers; one when nobody is named.
    pub speakers: usize,
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
        for (language, count) in other.languages {
            match self.languages.iter_mut().find(|(known, _)| *known == language) {
                Some((_, known)) => *known += count,
                None => self.languages.push((language, count)),
            }
        }
        self.durations.extend(other.durations);
        self.speaking_rates.extend(other.speaking_rates);
        self.findings.extend(other.findings);
    }

    /// How many clips are skipped because something is wrong with them.
    pub fn errors(&self) -> usize {
        self.findings.iter().filter(|finding| finding.severity == Severity::Error).count()
    }
}

/// What one clip sounds like.
#[derive(Clone, Copy, Default)]
struct Sound {
    content: u64,
    peak: f32,
    clipped_runs: usize,
    leading_s: f64,
    trailing_s: f64,
    seconds: f64,
    unequal: bool,
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

fn listen(corpus: &Corpus, clip: u32, decoder: &mut Decoder, samples: &mut Vec<f32>) -> Result<Sound, ClipFault> {
    samples.clear();
    let shape = decoder.decode(&mut *corpus.audio(clip)?, samples)?;
    let rate = f64::from(shape.rate);
    let quiet = |sample: &&f32| sample.abs() < SILENT;
    let mut runs = 0;
    let mut run = 0;
    for sample in samples.iter() {
        run = if sample.abs() >= FULL_SCALE { run + 1 } else { 0 };
        runs += usize::from(run == CLIPPED_RUN);
    }
    let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    Ok(Sound {
        content: xxh3_64(&bytes),
        peak: samples.iter().fold(0.0, |peak, sample| sample.abs().max(peak)),
        clipped_runs: runs,
        leading_s: samples.iter().take_while(quiet).count() as f64 / rate,
        trailing_s: samples.iter().rev().take_while(quiet).count() as f64 / rate,
        seconds: samples.len() as f64 / rate,
        unequal: samples.len() as u64 != corpus.entry(clip).samples,
    })
}

fn conclude(corpus: &Corpus, results: Vec<(u32, Result<Sound, ClipFault>)>) -> Examination {
    let mut findings: Vec<ClipFinding> = (corpus.fault_reports().into_iter())
        .map(|FaultReport { id, path, kind, reason, limit }| {
            let severity = if limit { Severity::Limit } else { Severity::Error };
            ClipFinding { severity, kind, id, path, reason }
        })
        .collect();
    let usual_rate = corpus.rates().first().map_or(0, |&(rate, _)| rate);
    let mut examination = Examination {
        rows: corpus.rows(),
        rates: corpus.rates(),
        speakers: corpus.speakers().len().max(1),
        units: corpus.frontend().units,
        languages: corpus.languages().into_iter().map(|(language, count, _)| (language, count)).collect(),
        ..Examination::default()
    };
    let (mut by_sound, mut by_text) = (HashMap::new(), HashMap::new());
    let mut spoken: Vec<(u32, f64)> = Vec::new();
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
        spoken.push((clip, rate));
        let mut warn = |kind, reason| warnings.push((clip, kind, reason));
        if entry.rate != usual_rate {
            warn("rate", format!("{} Hz, most clips have {usual_rate}", entry.rate));
        }
        if entry.channels > 1 {
            warn("channels", format!("{} channels, they are averaged", entry.channels));
        }
        if sound.peak < SILENT {
            warn("silent", format!("silent throughout (peak {:.5})", sound.peak));
        } else {
            if sound.clipped_runs as f64 > CLIPPED_PER_SECOND * sound.seconds {
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
    for (clip, rate, median) in odd_ones(&spoken) {
        let kind = if rate > median { "too-much-text" } else { "too-little-text" };
        warnings.push((
            clip,
            kind,
            format!("{rate:.1} letters per second, usual are {median:.1}: does the text belong to it?"),
        ));
    }
    warnings.sort_by_key(|(clip, ..)| *clip);
    findings.extend(warnings.into_iter().map(|(clip, kind, reason)| {
        let (id, path) = corpus.name(clip);
        ClipFinding { severity: Severity::Warning, kind, id, path, reason }
    }));
    examination.findings = findings;
    examination
}

/// Values far from the median, measured in median deviations (few outliers do not move those).
fn odd_ones(values: &[(u32, f64)]) -> Vec<(u32, f64, f64)> {
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    let middle = median(values.iter().map(|&(_, value)| value).collect());
    let deviation = median(values.iter().map(|&(_, value)| (value - middle).abs()).collect());
    // At least a tenth of the median: a corpus that is very even has no odd ones.
    let unit = (1.4826 * deviation).max(0.1 * middle);
    if values.len() < 8 {
        return Vec::new();
    }
    values
        .iter()
        .filter(|(_, value)| (value - middle).abs() > ODD * unit)
        .map(|&(clip, value)| (clip, value, middle))
        .collect()
}
