//! Made voices whose pitch is known.

use super::*;
use crate::formant::{FormantVoice, speak};

const RATE: u32 = 22_050;
const HOP: usize = 256;

/// Numbers from -1 to 1 without order.
fn noise() -> impl FnMut() -> f32 {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// Two seconds of harmonics `from` to `to` of a pitch that rises and falls; the samples and the pitch of each frame.
fn glide(low: f64, high: f64, harmonics: std::ops::RangeInclusive<u32>) -> (Vec<f32>, Vec<f32>) {
    let at = |n: usize| low + (high - low) * (0.5 - 0.5 * (n as f64 / 22_050.0 * std::f64::consts::PI).cos());
    let mut phase = 0.0f64;
    let samples: Vec<f32> = (0..2 * RATE as usize)
        .map(|n| {
            phase += at(n) / f64::from(RATE) * std::f64::consts::TAU;
            0.1 * harmonics.clone().map(|k| (phase * f64::from(k)).sin() / f64::from(k).sqrt()).sum::<f64>() as f32
        })
        .collect();
    let expected = (0..=samples.len() / HOP).map(|frame| at(frame * HOP) as f32).collect();
    (samples, expected)
}

fn track(samples: &[f32]) -> Vec<f32> {
    PitchTracker::new(RATE, HOP).track(samples, samples.len() / HOP + 1)
}

/// Share of the frames, two at each end left aside, whose pitch is off by more than this share.
fn wrong(actual: &[f32], expected: &[f32], tolerance: f32) -> f32 {
    assert_eq!(actual.len(), expected.len());
    let inner = 2..actual.len() - 2;
    let off = inner.clone().filter(|&n| (actual[n] / expected[n] - 1.0).abs() > tolerance).count();
    off as f32 / inner.len() as f32
}

#[test]
fn a_gliding_voice_is_followed_within_one_percent() {
    for (low, high) in [(80.0, 160.0), (150.0, 320.0), (300.0, 480.0)] {
        let (samples, expected) = glide(low, high, 1..=12);
        assert_eq!(wrong(&track(&samples), &expected, 0.01), 0.0, "{low} to {high} Hz");
    }
}

#[test]
fn the_fundamental_may_be_missing() {
    let (samples, expected) = glide(110.0, 200.0, 3..=10);
    assert_eq!(wrong(&track(&samples), &expected, 0.01), 0.0);
}

#[test]
fn silence_and_noise_are_unvoiced() {
    let mut random = noise();
    let white: Vec<f32> = (0..3 * RATE).map(|_| 0.3 * random()).collect();
    let voiced = track(&white).iter().filter(|&&hz| hz > 0.0).count();
    assert!(voiced <= 5, "{voiced} of 259 frames of noise are voiced");
    for constant in [0.0, 0.7, -1.0] {
        assert!(track(&vec![constant; 30_000]).iter().all(|&hz| hz == 0.0), "constant {constant}");
    }
    // A tone, and rounding noise of 16 bits after it.
    let (mut samples, _) = glide(150.0, 150.0, 1..=8);
    samples.extend((0..2 * RATE).map(|_| random() * 1e-5));
    let pitch = track(&samples);
    assert!(pitch[..168].iter().all(|&hz| hz > 0.0));
    assert!(pitch[178..].iter().all(|&hz| hz == 0.0));
}

#[test]
fn the_synthesizers_speech_is_voiced_where_it_says_so_without_octave_errors() {
    for (pitch, scale) in [(100.0, 1.0), (210.0, 1.17)] {
        let voice = FormantVoice { pitch, formant_scale: scale, breath: 0.3, speed: 1.0 };
        let mut random = noise();
        let text = "a long road leads over many hills to a small village. ";
        let (samples, _) = speak(&text.repeat(3), &voice, RATE, || f64::from(random()) * 0.5 + 0.5);
        let found = track(&samples);
        let voiced: Vec<f32> = found.into_iter().filter(|&hz| hz > 0.0).collect();
        // Its melody lies within 0.73 to 1.12 of the pitch.
        let off = voiced.iter().filter(|&&hz| !(0.7..1.15).contains(&(hz / pitch as f32))).count();
        assert!(voiced.len() > 300, "{} frames are voiced", voiced.len());
        assert!(off * 50 <= voiced.len(), "{off} of {} are in another octave", voiced.len());
    }
}

#[test]
fn loudness_offset_clipping_and_other_rates_change_little() {
    let (samples, expected) = glide(120.0, 240.0, 1..=10);
    let quiet: Vec<f32> = samples.iter().map(|x| x * 1e-3).collect();
    let offset: Vec<f32> = samples.iter().map(|x| x + 0.5).collect();
    let clipped: Vec<f32> = samples.iter().map(|x| (x * 8.0).clamp(-1.0, 1.0)).collect();
    let mut random = noise();
    let noisy: Vec<f32> = samples.iter().map(|x| x + 0.05 * random()).collect();
    for changed in [quiet, offset, clipped, noisy] {
        assert_eq!(wrong(&track(&changed), &expected, 0.01), 0.0);
    }
    for rate in [8000, 16_000, 24_000, 44_100, 48_000] {
        let mut resampled = samples.clone();
        crate::Resampler::new(RATE, rate).expect("a ratio").resample(&mut resampled, 0);
        let pitch = PitchTracker::new(rate, rate as usize / 100).track(&resampled, 200);
        let at = |frame: usize| 120.0 + 120.0 * (0.5 - 0.5 * (frame as f32 / 100.0 * PI).cos());
        assert_eq!(wrong(&pitch, &(0..200).map(at).collect::<Vec<_>>(), 0.01), 0.0, "{rate} Hz");
    }
}

#[test]
fn any_length_any_value_and_any_rate_give_numbers_and_the_same_ones_again() {
    let mut random = noise();
    let mut tracker = PitchTracker::new(RATE, HOP);
    for length in [0, 1, 2, 17, 255, 256, 1000, 1023, 20_000] {
        let mut samples: Vec<f32> = (0..length).map(|_| random()).collect();
        for (n, value) in [(3, f32::NAN), (5, f32::INFINITY), (7, f32::MAX), (11, f32::MIN)] {
            samples.get_mut(n * 10).into_iter().for_each(|sample| *sample = value);
        }
        for frames in [0, 1, length / HOP + 1, length / HOP + 50] {
            let pitch = tracker.track(&samples, frames);
            assert_eq!(pitch.len(), frames);
            assert!(pitch.iter().all(|&hz| hz == 0.0 || (65.0..=500.0).contains(&hz)));
            assert_eq!(pitch, PitchTracker::new(RATE, HOP).track(&samples, frames));
        }
    }
    let (samples, _) = glide(120.0, 240.0, 1..=10);
    for (rate, hop) in [(0, 0), (1, 1), (100, 10), (1000, 7), (4000, 40), (192_000, 1)] {
        let pitch = PitchTracker::new(rate, hop).track(&samples, 100);
        assert!(pitch.iter().all(|hz| hz.is_finite()), "{rate} Hz");
    }
}
