//! Where there is speech, by levels against a noise floor that adapts: a pure function of [`Levels`].
//!
//! Within twenty seconds around a frame, the floor is what a twentieth of the frames stay below and the speech what a twentieth
//! exceed. What is some decibels above the floor is a sound. A neural detector (`earshot`) was measured beside it
//! (`benches/results/segment.md`).

use std::ops::Range;

use super::levels::{Levels, difference};

/// Frames on either side that the noise floor is measured in: there is a pause in twenty seconds of speech.
const AROUND: usize = 1000;
/// Frames between two measurements of the floor.
const EVERY: usize = 10;
/// Shares of the frames below the floor and below the speech.
const FLOOR_SHARE: f64 = 0.05;
const SPEECH_SHARE: f64 = 0.95;
/// The threshold is so far from the floor to the speech, at least and at most so many decibels above the floor: the levels of
/// steady noise vary by two, and speech in a quiet room ends softly.
const BETWEEN: f64 = 0.25;
const ABOVE_FLOOR_DB: (f64, f64) = (4.0, 12.0);
/// From its threshold on a sound reaches outward as long as it is so many decibels above the floor...
const RELEASE_DB: f64 = 5.0;
/// ...for at most so many frames.
const RELEASE: usize = 4;
/// Frames of quiet within a word: the closure of a stop is no pause.
const CLOSURE: usize = 12;
/// Frames of a click, which is no speech.
const CLICK: usize = 6;

/// Where there is speech.
#[derive(Clone, Debug, PartialEq)]
pub struct Activity {
    frames: usize,
    /// Stretches without speech of at least [`CLOSURE`] frames, in order; also at the beginning and the end.
    pub(super) pauses: Vec<Range<usize>>,
    /// Steps above which there is a sound, every [`EVERY`] frames.
    thresholds: Vec<f32>,
}

impl Activity {
    /// Of a recording.
    pub fn of(levels: &Levels) -> Activity {
        let floors = floors(levels.steps());
        let thresholds: Vec<f32> = floors.iter().map(|&(floor, speech)| threshold(floor, speech)).collect();
        let smooth = smoothed(levels.steps());
        let loud = |frame: usize| smooth(frame) > thresholds[frame / EVERY];
        let released = |frame: usize| smooth(frame) > (floors[frame / EVERY].0 + difference(RELEASE_DB)) as f32;
        let mut sounds = runs(levels.len(), loud);
        join(&mut sounds, CLOSURE);
        sounds.retain(|sound| sound.len() >= CLICK);
        for sound in &mut sounds {
            sound.start = (sound.start.saturating_sub(RELEASE)..sound.start)
                .rev()
                .take_while(|&at| released(at))
                .last()
                .unwrap_or(sound.start);
            let most = (sound.end + RELEASE).min(levels.len());
            sound.end = (sound.end..most).take_while(|&at| released(at)).last().map_or(sound.end, |last| last + 1);
        }
        join(&mut sounds, CLOSURE);
        let starts = std::iter::once(0).chain(sounds.iter().map(|sound| sound.end));
        let ends = sounds.iter().map(|sound| sound.start).chain([levels.len()]);
        let pauses = starts.zip(ends).map(|(start, end)| start..end).filter(|pause| !pause.is_empty()).collect();
        Activity { frames: levels.len(), pauses, thresholds }
    }

    /// Frames of the recording.
    pub(super) fn frames(&self) -> usize {
        self.frames
    }

    /// Stretches of speech between pauses.
    pub fn speech(&self) -> Vec<Range<usize>> {
        let starts = std::iter::once(0).chain(self.pauses.iter().map(|pause| pause.end));
        let ends = self.pauses.iter().map(|pause| pause.start).chain([self.frames]);
        starts.zip(ends).map(|(start, end)| start..end).filter(|speech| !speech.is_empty()).collect()
    }

    /// Frames of speech within some frames.
    pub(super) fn spoken(&self, within: &Range<usize>) -> usize {
        let quiet: usize =
            self.pauses_in(within).map(|pause| pause.end.min(within.end) - pause.start.max(within.start)).sum();
        within.len() - quiet
    }

    /// Pauses that some of these frames are in.
    pub(super) fn pauses_in<'a>(&'a self, within: &Range<usize>) -> impl Iterator<Item = &'a Range<usize>> + use<'a> {
        let Range { start, end } = *within;
        let first = self.pauses.partition_point(|pause| pause.end <= start);
        self.pauses[first..].iter().take_while(move |pause| pause.start < end)
    }

    /// Steps by which a frame is louder than the threshold.
    pub(super) fn excess(&self, levels: &Levels, frame: usize) -> f64 {
        let at = frame.min(self.frames.saturating_sub(1));
        let threshold = self.thresholds.get(at / EVERY).copied().unwrap_or(0.0);
        levels.steps().get(at).map_or(0.0, |&level| f64::from(level)) - f64::from(threshold)
    }
}

fn threshold(floor: f64, speech: f64) -> f32 {
    let above = (BETWEEN * (speech - floor)).clamp(difference(ABOVE_FLOOR_DB.0), difference(ABOVE_FLOOR_DB.1));
    (floor + above) as f32
}

/// The noise floor and the level of speech, every [`EVERY`] frames.
fn floors(steps: &[u8]) -> Vec<(f64, f64)> {
    let mut histogram = [0u32; 256];
    let mut inside = 0..0;
    let mut floors = Vec::with_capacity(steps.len() / EVERY + 1);
    for center in (0..steps.len()).step_by(EVERY) {
        let window = center.saturating_sub(AROUND)..(center + AROUND).min(steps.len());
        steps[inside.end..window.end].iter().for_each(|&level| histogram[usize::from(level)] += 1);
        steps[inside.start..window.start].iter().for_each(|&level| histogram[usize::from(level)] -= 1);
        inside = window;
        // Digital silence between speech says nothing of the noise within it, but is a pause.
        let share = |share: f64| {
            let wanted = (share * inside.len() as f64) as u32;
            let mut below = 0;
            let level = histogram.iter().position(|&count| {
                below += count;
                below > wanted
            });
            level.unwrap_or(255) as f64
        };
        floors.push((share(FLOOR_SHARE), share(SPEECH_SHARE)));
    }
    floors
}

/// The mean of a frame and its neighbors.
fn smoothed(steps: &[u8]) -> impl Fn(usize) -> f32 + '_ {
    move |frame| {
        let around = &steps[frame.saturating_sub(1)..(frame + 2).min(steps.len())];
        around.iter().map(|&level| f32::from(level)).sum::<f32>() / around.len() as f32
    }
}

/// Stretches of frames that are something.
fn runs(frames: usize, is: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for frame in (0..frames).filter(|&frame| is(frame)) {
        match runs.last_mut() {
            Some(run) if run.end == frame => run.end = frame + 1,
            _ => runs.push(frame..frame + 1),
        }
    }
    runs
}

/// Joins stretches with fewer frames than this between them.
fn join(runs: &mut Vec<Range<usize>>, gap: usize) {
    runs.dedup_by(|next, run| {
        let near = next.start < run.end + gap;
        if near {
            run.end = run.end.max(next.end);
        }
        near
    });
}

#[cfg(test)]
mod tests {
    use tandem_flow::Random;

    use super::*;
    use crate::segment::levels::steps_of;

    /// Speech of -20 dB in noise, which varies by two decibels.
    fn levels(noise_db: impl Fn(usize) -> f64, speech: &[Range<usize>], frames: usize) -> Levels {
        let mut random = Random::new(5);
        let level = |frame: usize, random: &mut Random| {
            let noise = noise_db(frame) + random.signed();
            // Syllables.
            let voice = -20.0 - 8.0 * (frame as f64 * 0.3).sin().abs();
            let there = speech.iter().any(|stretch| stretch.contains(&frame));
            let power = 10f64.powf(noise / 10.0) + if there { 10f64.powf(voice / 10.0) } else { 0.0 };
            10.0 * power.log10()
        };
        Levels::from_steps((0..frames).map(|frame| steps_of(level(frame, &mut random))).collect())
    }

    #[test]
    fn the_floor_follows_the_noise() {
        let speech: Vec<Range<usize>> = (0..30).map(|n| 300 * n + 50..300 * n + 250).collect();
        for (name, noise) in [
            ("quiet", (|_| -75.0) as fn(usize) -> f64),
            ("loud", |_| -34.0),
            ("rising", |frame| -70.0 + frame as f64 / 250.0),
            ("a fan that starts", |frame| if frame < 4500 { -65.0 } else { -38.0 }),
        ] {
            let found = Activity::of(&levels(noise, &speech, 9000)).speech();
            let near =
                |a: &Range<usize>, b: &Range<usize>| a.start.abs_diff(b.start) <= 4 && a.end.abs_diff(b.end) <= 4;
            let there = speech.iter().filter(|stretch| found.iter().any(|other| near(stretch, other))).count();
            // Where noise begins all at once, its first seconds are taken for speech.
            let least = if name == "a fan that starts" { 26 } else { 29 };
            assert!(there >= least && found.len() <= 31, "{name}: {there} of 30, {} found", found.len());
        }
    }

    #[test]
    fn noise_alone_is_no_speech() {
        for noise in [-90.0, -60.0, -20.0] {
            assert_eq!(Activity::of(&levels(|_| noise, &[], 5000)).speech(), [], "{noise}");
        }
        assert_eq!(Activity::of(&Levels::default()).speech(), []);
    }

    #[test]
    fn a_click_is_no_speech_and_a_closure_no_pause() {
        let found = Activity::of(&levels(|_| -70.0, &[100..103, 300..340, 348..400], 1000)).speech();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].start.abs_diff(300) <= 2 && found[0].end.abs_diff(400) <= 2, "{found:?}");
    }
}
