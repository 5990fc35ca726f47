//! How good a voice is on held-out clips: mel, duration and boundary errors, losses.

mod measures;

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;
use tandem_audio::MelStats;
use tandem_data::{Corpus, IndexEntry, Shard};
use tandem_model::{HostInputs, LossTerms, Losses, Totals};
use tandem_text::unstressed;

use crate::sampler::{SynthesisSettings, sample_mel, sample_mel_as_recorded};
use crate::synthesizer::Synthesizer;
use crate::validation::validation_losses;

pub use measures::{
    ClipFigures, ClipMeasures, Distance, MeasureError, Measures, SpokenClip, read_recording, speak_batch,
};

/// Clips that are not trained on, as the model takes them.
#[derive(Clone, Debug)]
pub struct HeldOutBatch {
    /// Which clips of the corpus.
    pub clips: Vec<u32>,
    /// Their texts and mels.
    pub inputs: HostInputs,
}

/// What an evaluation says. Lengths are in frames of the features, times in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Evaluation {
    /// Held-out clips.
    pub clips: usize,
    /// Steps that the model has learned.
    pub step: u64,
    /// Median distance between where a sound ends and where the model says so; none without known times.
    pub boundary_error_ms_median: Option<f64>,
    /// The same when all sounds are taken to be equally long.
    pub boundary_error_ms_uniform: Option<f64>,
    /// Boundaries that were compared.
    pub boundaries: usize,
    /// Mean of |predicted - true| / true length of a clip.
    pub length_error: f64,
    /// Mean distance of the spoken log-mel from the true one, with the true timing.
    pub mel_l1: f64,
    /// The same for a spectrogram that is the mean everywhere.
    pub mel_l1_baseline: f64,
    /// `mel_l1 / mel_l1_baseline`.
    pub mel_l1_ratio: f64,
    /// Held-out loss.
    pub loss: f64,
    /// Its terms, in the order of [`Losses::NAMES`].
    pub loss_terms: LossTerms,
    /// Held-out loss with the reference of another speaker; none when there is one.
    pub loss_wrong_speaker: Option<f64>,
    /// Why something is none.
    pub notes: Vec<String>,
    /// Each clip, the worst alignment first.
    pub worst: Vec<ClipScore>,
}

/// How well one clip is aligned.
#[derive(Clone, Debug, Serialize)]
pub struct ClipScore {
    /// Its id.
    pub id: String,
    /// Mean squared distance of its frames from what its text predicts, in standard deviations.
    pub misfit: f64,
}

/// Evaluates a voice on prepared clips of `corpus`. `keep_going` hears after each clip how many are done; None when it says no.
pub fn evaluate(
    synthesizer: &Synthesizer,
    step: u64,
    corpus: &Corpus,
    batches: &[HeldOutBatch],
    keep_going: &mut dyn FnMut(usize) -> bool,
) -> Option<Evaluation> {
    let (stats, mel_settings) = (&synthesizer.bundle().stats, &synthesizer.bundle().mel);
    let (model, shape, device) = (synthesizer.model(), synthesizer.input_shape(), synthesizer.device());
    let hop_ms = 1000.0 * mel_settings.hop_length as f64 / f64::from(mel_settings.sample_rate);
    let (mut errors, mut uniform) = (Vec::new(), Vec::new());
    let (mut length_errors, mut distances, mut baselines) = (Vec::new(), (0.0, 0usize), 0.0);
    let mut worst = Vec::new();
    let mut unknown_times = 0;
    let mut clips = 0;
    for batch in batches {
        let inputs = batch.inputs.clone().upload(&shape, device);
        let durations = model.alignment(&inputs);
        let settings = SynthesisSettings::default();
        let forced = sample_mel_as_recorded(model, &inputs, durations.clone(), settings);
        let free = sample_mel(model, &inputs.text, inputs.reference.as_ref(), None, settings);
        for (row, &clip) in batch.clips.iter().enumerate() {
            let frames = batch.inputs.mel_lengths[row];
            let (id, _) = corpus.name(clip);
            let durations = &durations[row];
            let symbols = corpus.token_ids(clip).unwrap_or_default();
            let symbols: Vec<&str> = corpus.frontend().vocabulary.decode(&symbols).collect();
            match known_times(corpus.dir(), &id, &corpus.entry(clip), &symbols, durations) {
                Some((ends, durations)) => compare_ends(&ends, &durations, frames, hop_ms, &mut errors, &mut uniform),
                None => unknown_times += 1,
            }
            let predicted: u32 = free.durations[row].iter().sum();
            length_errors.push((f64::from(predicted) - frames as f64).abs() / frames as f64);
            let n_mels = batch.inputs.n_mels;
            let truth = &batch.inputs.mel[row * batch.inputs.frames * n_mels..][..frames * n_mels];
            let spoken = &forced.mel[row * forced.frames * n_mels..][..frames * n_mels];
            distances.0 += distance(truth, spoken, stats);
            baselines += distance(truth, &vec![0.0; frames * n_mels], stats);
            distances.1 += frames * n_mels;
            let fit = single_losses(synthesizer, &batch.inputs.rows(row..row + 1))[0];
            worst.push(ClipScore { id, misfit: fit });
            clips += 1;
            if !keep_going(clips) {
                return None;
            }
        }
    }
    worst.sort_by(|a, b| b.misfit.total_cmp(&a.misfit));
    worst.truncate(10);
    let mut notes = Vec::new();
    if clips > 0 && unknown_times == clips {
        notes.push("no clip has known times (timings/ID.csv): boundary errors are not known".to_owned());
    } else if unknown_times > 0 {
        notes.push(format!(
            "{unknown_times} of {clips} clips have no known times (timings/ID.csv): boundary errors are of the others"
        ));
    }
    let losses = |batches: &[HeldOutBatch]| {
        let inputs: Vec<&HostInputs> = batches.iter().map(|batch| &batch.inputs).collect();
        validation_losses(model, &shape, &inputs, device, usize::MAX, 2, Shard::default())
    };
    let terms = losses(batches);
    let loss_wrong_speaker = wrong_speaker(batches, corpus).map(|batches| losses(&batches).iter().sum());
    if loss_wrong_speaker.is_none() {
        notes.push("one speaker: there is no wrong reference to compare with".to_owned());
    }
    let (mel_l1, mel_l1_baseline) = (distances.0 / distances.1 as f64, baselines / distances.1 as f64);
    Some(Evaluation {
        clips,
        step,
        boundaries: errors.len(),
        boundary_error_ms_median: median(&mut errors),
        boundary_error_ms_uniform: median(&mut uniform),
        length_error: length_errors.iter().sum::<f64>() / length_errors.len().max(1) as f64,
        mel_l1,
        mel_l1_baseline,
        mel_l1_ratio: mel_l1 / mel_l1_baseline,
        loss: terms.iter().sum(),
        loss_terms: terms,
        loss_wrong_speaker,
        notes,
        worst,
    })
}

fn single_losses(synthesizer: &Synthesizer, inputs: &HostInputs) -> LossTerms {
    let totals = Totals::new(&inputs.mel_lengths, &inputs.id_lengths);
    let inputs = inputs.clone().upload(&synthesizer.input_shape(), synthesizer.device());
    let (losses, _) = synthesizer.model().losses(&inputs, totals, 0.0, false);
    let values = Losses::values(&losses).into_data().try_into_vec::<f32>().expect("losses are single precision");
    std::array::from_fn(|n| f64::from(values[n]))
}

/// In log-mel, not in standard deviations.
fn distance(a: &[f32], b: &[f32], stats: &MelStats) -> f64 {
    let bands = stats.std.len();
    (a.iter().zip(b).enumerate()).map(|(n, (a, b))| f64::from((a - b).abs() * stats.std[n % bands])).sum()
}

fn compare_ends(
    ends: &[f64],
    durations: &[u32],
    frames: usize,
    hop_ms: f64,
    errors: &mut Vec<f64>,
    uniform: &mut Vec<f64>,
) {
    let mut frame = 0.0;
    let total_ms = ends.last().copied().unwrap_or(0.0) * 1000.0;
    // The last boundary is the end of the clip, which nobody has to find.
    for (n, (end, &duration)) in ends.iter().zip(durations).enumerate().take(ends.len().saturating_sub(1)) {
        frame += f64::from(duration);
        // Frame n is centred on sample n * hop: a boundary before it lies half a hop earlier.
        let found = ((frame - 0.5) * hop_ms).min(frames as f64 * hop_ms);
        errors.push((found - 1000.0 * end).abs());
        uniform.push((total_ms * (n + 1) as f64 / ends.len() as f64 - 1000.0 * end).abs());
    }
}

/// Where times of sounds are kept, and those of words for voices that read letters.
const TIMES: [&str; 2] = ["timings", "words"];

/// When each sound ends, in seconds, and how long the model says it is: from `timings/ID.csv` (`symbol,start,end`, in samples
/// of the whole audio file), else from `words/ID.csv`. A symbol of the file may be several tokens: `aɪ`, or a word and the blank
/// behind it.
fn known_times(
    dir: &Path,
    id: &str,
    entry: &IndexEntry,
    symbols: &[&str],
    durations: &[u32],
) -> Option<(Vec<f64>, Vec<u32>)> {
    TIMES.iter().find_map(|kind| {
        let text = std::fs::read_to_string(dir.join(kind).join(format!("{id}.csv"))).ok()?;
        let (times, start) = (parse_times(&text, entry.rate)?, f64::from(entry.start) / f64::from(entry.rate));
        let ends = times.iter().map(|(_, end)| in_clip(*end, start, entry.seconds())).collect();
        fitted(&times, symbols, durations).map(|durations| (ends, durations))
    })
}

/// A time of the whole file, as one of the `length` seconds from `start` on that are used of it.
fn in_clip(seconds: f64, start: f64, length: f64) -> f64 {
    (seconds - start).clamp(0.0, length)
}

fn parse_times(text: &str, rate: u32) -> Option<Vec<(String, f64)>> {
    let line = |line: &str| {
        let mut columns = line.rsplitn(3, ',');
        let end = columns.next()?.parse::<f64>().ok()? / f64::from(rate);
        Some((columns.nth(1)?.to_owned(), end))
    };
    text.lines().map(line).collect()
}

/// The durations of what has known times.
fn fitted(times: &[(String, f64)], symbols: &[&str], durations: &[u32]) -> Option<Vec<u32>> {
    if times.len() == durations.len() {
        return Some(durations.to_vec());
    }
    // Times of the sounds alone: the silences at both ends belong to the first and the last of them.
    if times.len() >= 2 && times.len() + 2 == durations.len() {
        let mut sounds = durations[1..durations.len() - 1].to_vec();
        sounds[0] += durations[0];
        *sounds.last_mut()? += durations[durations.len() - 1];
        return Some(sounds);
    }
    let mut tokens = symbols.iter().zip(durations);
    let mut fitted = Vec::with_capacity(times.len());
    for (symbol, _) in times {
        let (mut rest, mut length) = (symbol.as_str(), 0);
        while !rest.is_empty() {
            let (token, duration) = tokens.next()?;
            rest = rest.strip_prefix(unstressed(token))?;
            length += duration;
        }
        fitted.push(length);
    }
    (symbols.len() == durations.len() && tokens.next().is_none()).then_some(fitted)
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    (!values.is_empty()).then(|| values[values.len() / 2])
}

/// The same clips, each with the reference of a clip of another speaker.
fn wrong_speaker(batches: &[HeldOutBatch], corpus: &Corpus) -> Option<Vec<HeldOutBatch>> {
    let mut references: HashMap<u16, (Vec<f32>, usize)> = HashMap::new();
    for batch in batches {
        let reference = batch.inputs.reference.as_ref()?;
        let size = reference.frames * batch.inputs.n_mels;
        for (row, &clip) in batch.clips.iter().enumerate() {
            let mel = reference.mel[row * size..(row + 1) * size].to_vec();
            references.entry(corpus.entry(clip).speaker).or_insert((mel, reference.lengths[row]));
        }
    }
    let mut speakers: Vec<u16> = references.keys().copied().collect();
    speakers.sort_unstable();
    if speakers.len() < 2 {
        return None;
    }
    let wrong = |batch: &HeldOutBatch| {
        let mut inputs = batch.inputs.clone();
        if let Some(reference) = &mut inputs.reference {
            let size = reference.frames * inputs.n_mels;
            for (row, &clip) in batch.clips.iter().enumerate() {
                let speaker = corpus.entry(clip).speaker;
                let at = speakers.iter().position(|other| *other == speaker).unwrap_or(0);
                let (mel, length) = &references[&speakers[(at + 1) % speakers.len()]];
                reference.mel[row * size..(row + 1) * size].copy_from_slice(mel);
                reference.lengths[row] = *length;
            }
        }
        HeldOutBatch { clips: batch.clips.clone(), inputs }
    };
    Some(batches.iter().map(wrong).collect())
}

/// The durations of one row as the aligner finds them.
pub fn alignment_of(synthesizer: &Synthesizer, inputs: &HostInputs, row: usize) -> Vec<u32> {
    let one = inputs.rows(row..row + 1).upload(&synthesizer.input_shape(), synthesizer.device());
    synthesizer.model().alignment(&one).into_iter().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_sounds_and_words_are_those_of_their_tokens() {
        let times = |symbols: &[&str]| symbols.iter().map(|symbol| ((*symbol).to_owned(), 0.0)).collect::<Vec<_>>();
        let (symbols, durations) = (["<sil>", "h", "ˈa", "ɪ", "<sil>"], [3, 1, 2, 4, 5]);
        let fit = |of: &[&str]| fitted(&times(of), &symbols, &durations);
        assert_eq!(fit(&["<sil>", "h", "aɪ", "<sil>"]), Some(vec![3, 1, 6, 5]));
        assert_eq!(fit(&["<sil>", "haɪ", "<sil>", "x"]), None, "too many");
        assert_eq!(fit(&["<sil>", "hu", "<sil>", "x"]), None, "another sound");
        assert_eq!(fit(&["<sil>haɪ", "<sil>"]), Some(vec![10, 5]));
        assert_eq!(fit(&["h", "a", "ɪ"]), Some(vec![4, 2, 9]), "silences belong to their neighbors");
        let text = "<sil>,0,100\nh,100,200\n,,200,350\n";
        assert_eq!(parse_times(text, 100), Some(vec![("<sil>".into(), 1.0), ("h".into(), 2.0), (",".into(), 3.5)]));
        assert_eq!(parse_times("no times", 100), None);
        // Of three seconds the first half and the last quarter of a second are trimmed.
        assert_eq!([0.2, 0.5, 1.0, 2.75, 3.0].map(|end| in_clip(end, 0.5, 2.25)), [0.0, 0.0, 0.5, 2.25, 2.25]);
    }
}
