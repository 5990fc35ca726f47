//! What is done to the samples of a clip before anything is made of them: long silence at both ends cut, loudness normalized.
//!
//! Index, loader, doctor, evaluation and speaker references all call [`Processing::apply`] on decoded samples at the file's own
//! rate, so that a clip has one length and one loudness wherever it is read.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Seconds of the frames that levels are measured in.
const LEVEL_S: f64 = 0.05;
/// Seconds of the frames that silence is looked for in.
const SILENCE_S: f64 = 0.01;
/// Silence that is kept at each end, in seconds: onsets and releases that are softer than the threshold are in it.
const MARGIN_S: f64 = 0.1;
/// So far below the level of the speech is silence, as a ratio of powers (40 dB). Weak fricatives are 30 to 35 dB below vowels.
const SILENCE: f64 = 1e-4;
/// Frames up to so far below the loudest one are speech, as a ratio of powers (30 dB).
const GATE: f64 = 1e-3;
/// A clip that is quieter than this throughout has no speech that could be trimmed to or made louder.
const SILENT_DB: f64 = -60.0;
/// The highest peak that a clip is amplified to: resampling may overshoot a little.
const CEILING: f32 = 0.98;

/// How decoded clips are changed. By default not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Processing {
    /// Cuts silence beyond 0.1 s at both ends.
    pub trim_silence: bool,
    /// Brings speech to this level, in dBFS; less where it would clip.
    pub loudness_db: Option<f64>,
}

impl Processing {
    /// Whether clips stay as they are.
    pub fn is_off(&self) -> bool {
        *self == Processing::default()
    }

    /// Processes the clip that begins at sample `from` of a buffer. Returns how many samples were cut before it.
    pub fn apply(&self, samples: &mut Vec<f32>, from: usize, rate: u32) -> usize {
        let mut cut = 0;
        if self.trim_silence {
            let kept = speech_range(&samples[from..], rate);
            samples.truncate(from + kept.end);
            samples.drain(from..from + kept.start);
            cut = kept.start;
        }
        if let Some(target_db) = self.loudness_db {
            let gain = loudness_gain(&samples[from..], rate, target_db);
            samples[from..].iter_mut().for_each(|sample| *sample *= gain);
        }
        cut
    }
}

/// How loud a clip is, in dBFS (power of a full-scale square wave).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Levels {
    /// Of speech: the mean power of frames that are at most 30 dB below the loudest.
    pub speech_db: f64,
    /// Of pauses: the level that a tenth of the frames are below.
    pub noise_db: f64,
}

impl Levels {
    /// Of a clip.
    pub fn of(samples: &[f32], rate: u32) -> Levels {
        let mut powers: Vec<f64> = samples.chunks(frame_samples(rate, LEVEL_S)).map(power).collect();
        powers.sort_by(f64::total_cmp);
        let gate = GATE * powers.last().copied().unwrap_or(0.0);
        let speech = &powers[powers.partition_point(|&power| power < gate)..];
        let mean = speech.iter().sum::<f64>() / speech.len().max(1) as f64;
        let noise = powers.get(powers.len() / 10).copied().unwrap_or(0.0);
        Levels { speech_db: decibels(mean), noise_db: decibels(noise) }
    }
}

/// The part of a clip from 0.1 s before the first sound to 0.1 s after the last one. What counts as a sound depends on how loud
/// the clip is; one without speech is kept whole.
pub fn speech_range(samples: &[f32], rate: u32) -> Range<usize> {
    let speech_db = Levels::of(samples, rate).speech_db;
    if speech_db < SILENT_DB {
        return 0..samples.len();
    }
    let threshold = SILENCE * 10f64.powf(speech_db / 10.0);
    let (frame, margin) = (frame_samples(rate, SILENCE_S), frame_samples(rate, MARGIN_S));
    let is_sound = |samples: &[f32]| power(samples) >= threshold;
    let first = samples.chunks(frame).position(is_sound).unwrap_or(0);
    let last = samples.chunks(frame).rposition(is_sound).unwrap_or(0);
    (first * frame).saturating_sub(margin)..((last + 1) * frame + margin).min(samples.len())
}

/// What samples are multiplied by to bring speech to a level; as much as is possible without clipping. 1 without speech: noise
/// is not made loud.
pub fn loudness_gain(samples: &[f32], rate: u32, target_db: f64) -> f32 {
    let speech_db = Levels::of(samples, rate).speech_db;
    if speech_db < SILENT_DB {
        return 1.0;
    }
    let peak = samples.iter().fold(0.0, |peak: f32, sample| sample.abs().max(peak));
    let gain = 10f64.powf((target_db - speech_db) / 20.0) as f32;
    gain.min(CEILING / peak)
}

fn frame_samples(rate: u32, seconds: f64) -> usize {
    ((f64::from(rate) * seconds) as usize).max(1)
}

fn power(frame: &[f32]) -> f64 {
    frame.iter().map(|&sample| f64::from(sample) * f64::from(sample)).sum::<f64>() / frame.len().max(1) as f64
}

fn decibels(power: f64) -> f64 {
    10.0 * power.max(1e-10).log10()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u32 = 22_050;

    /// Seconds of a sine of this amplitude; with 0, silence.
    fn tone(seconds: f64, amplitude: f32) -> Vec<f32> {
        (0..(seconds * f64::from(RATE)) as usize).map(|n| amplitude * (n as f32 * 0.1).sin()).collect()
    }

    fn clip(parts: &[(f64, f32)]) -> Vec<f32> {
        parts.iter().flat_map(|&(seconds, amplitude)| tone(seconds, amplitude)).collect()
    }

    #[test]
    fn silence_beyond_a_tenth_of_a_second_is_cut_at_both_ends() {
        let (speech, hiss, faint) = (0.3, 0.001, 0.01);
        // Parts of a clip, and what is cut before and after it, in seconds.
        for (name, parts, before, after) in [
            ("digital silence", vec![(1.0, 0.0), (2.0, speech), (0.5, 0.0)], 0.9, 0.4),
            ("hiss is silence", vec![(1.0, hiss), (2.0, speech), (1.0, hiss)], 0.9, 0.9),
            ("short silence stays", vec![(0.08, 0.0), (2.0, speech), (0.1, 0.0)], 0.0, 0.0),
            ("no silence", vec![(2.0, speech)], 0.0, 0.0),
            ("a pause inside stays", vec![(0.5, 0.0), (1.0, speech), (3.0, 0.0), (1.0, speech)], 0.4, 0.0),
            ("a soft sound at an end is speech", vec![(0.5, 0.0), (0.3, faint), (2.0, speech)], 0.4, 0.0),
            ("quiet speech is speech", vec![(1.0, 0.0), (2.0, 0.01), (1.0, 0.0)], 0.9, 0.9),
            ("hiss beside quiet speech is a sound", vec![(1.0, hiss), (2.0, 0.01), (1.0, hiss)], 0.0, 0.0),
            ("silent throughout", vec![(2.0, 0.0)], 0.0, 0.0),
            ("as good as silent", vec![(1.0, 0.0), (1.0, 0.0005)], 0.0, 0.0),
            ("nothing", vec![], 0.0, 0.0),
        ] {
            let samples = clip(&parts);
            let kept = speech_range(&samples, RATE);
            let seconds = |samples: usize| samples as f64 / f64::from(RATE);
            let cut = (seconds(kept.start), seconds(samples.len() - kept.end));
            let near = |a: f64, b: f64| (a - b).abs() <= SILENCE_S + 1e-3;
            assert!(near(cut.0, before) && near(cut.1, after), "{name}: {cut:?}");
            // Twice is as once, but for the grid of frames.
            let again = speech_range(&samples[kept.clone()], RATE);
            assert!(kept.len() - again.len() <= 2 * frame_samples(RATE, SILENCE_S), "{name}: {kept:?} {again:?}");
        }
    }

    #[test]
    fn speech_gets_the_level_and_nothing_clips() {
        for (name, parts, target_db, reached_db) in [
            ("louder", vec![(1.0, 0.0), (2.0, 0.02)], -23.0, -23.0),
            ("quieter", vec![(2.0, 0.9), (1.0, 0.0)], -23.0, -23.0),
            ("pauses do not count", vec![(5.0, 0.0001), (1.0, 0.02)], -20.0, -20.0),
            // A sine is 3 dB below its peak, which stays below full scale.
            ("limited", vec![(2.0, 0.1)], 0.0, -3.19),
            ("silence stays silent", vec![(2.0, 0.0001)], -23.0, -83.0),
            ("no sample", vec![], -23.0, -100.0),
        ] {
            let mut samples = clip(&parts);
            Processing { loudness_db: Some(target_db), ..Processing::default() }.apply(&mut samples, 0, RATE);
            let reached = Levels::of(&samples, RATE).speech_db;
            assert!((reached - reached_db).abs() < 0.1, "{name}: {reached}");
            assert!(samples.iter().all(|sample| sample.abs() <= CEILING), "{name}");
        }
    }

    #[test]
    fn what_is_before_the_clip_stays() {
        let mut samples = vec![9.0; 7];
        samples.extend(clip(&[(1.0, 0.0), (1.0, 0.3), (1.0, 0.0)]));
        let whole = samples.len();
        let cut = Processing { trim_silence: true, loudness_db: Some(-26.0) }.apply(&mut samples, 7, RATE);
        assert_eq!(samples[..7], [9.0; 7]);
        assert!(cut.abs_diff(19_845) <= 221 && samples.len().abs_diff(whole - 2 * 19_845) <= 2 * 221, "{cut}");
        assert!(Processing::default().is_off() && Processing::default().apply(&mut samples, 7, RATE) == 0);
    }

    #[test]
    fn pauses_are_noise_and_speech_is_loudness() {
        let mut samples = vec![0.001; 22_050];
        samples.extend((0..22_050).map(|n| 0.1 * (n as f32 * 0.1).sin()));
        let Levels { speech_db, noise_db } = Levels::of(&samples, RATE);
        assert!((speech_db + 23.0).abs() < 0.2 && (noise_db + 60.0).abs() < 0.2, "{speech_db} {noise_db}");
    }
}
