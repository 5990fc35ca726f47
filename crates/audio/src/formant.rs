//! A small formant synthesizer: speech that is made, not recorded, so that it is known to the sample when each sound
//! starts and ends. It sounds like a machine of 1980 and is meant for tests and the demo.
//!
//! Each letter is one sound. A source (pulses of the vocal folds, noise, or both) goes through resonators whose
//! frequencies glide from sound to sound.

use std::f64::consts::{PI, TAU};

/// A speaker of the synthesizer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FormantVoice {
    /// Pulses per second, on average.
    pub pitch: f64,
    /// Length of the vocal tract: 1 is a man's, higher is shorter.
    pub formant_scale: f64,
    /// Noise in the voice, 0 to 1.
    pub breath: f64,
    /// 1 is normal, 2 is twice as fast; must be above 0.
    pub speed: f64,
}

/// A sound and when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedSound {
    /// The letter.
    pub symbol: char,
    /// Its first sample.
    pub start: usize,
    /// The sample after its last.
    pub end: usize,
}

/// How a sound is made.
#[derive(Clone, Copy, Debug)]
struct Sound {
    /// Resonances in Hz.
    formants: [f64; 3],
    /// Loudness of the pulses.
    voice: f64,
    /// Loudness of the noise.
    noise: f64,
    /// Where the noise is, in Hz.
    color: f64,
    /// Typical length in milliseconds.
    length: f64,
    /// Share at its start that is closed (stops).
    closed: f64,
}

const fn sound(formants: [f64; 3], voice: f64, noise: f64, color: f64, length: f64, closed: f64) -> Sound {
    Sound { formants, voice, noise, color, length, closed }
}

const fn vowel(formants: [f64; 3], length: f64) -> Sound {
    sound(formants, 1.0, 0.0, 1000.0, length, 0.0)
}

/// The sound of a letter; what is not a letter is a pause.
fn sound_of(letter: char) -> Sound {
    match letter {
        'a' | 'ا' => vowel([730.0, 1090.0, 2440.0], 115.0),
        'آ' => vowel([620.0, 950.0, 2500.0], 150.0),
        'e' => vowel([530.0, 1840.0, 2480.0], 100.0),
        'i' | 'ی' => vowel([270.0, 2290.0, 3010.0], 110.0),
        'o' => vowel([570.0, 840.0, 2410.0], 120.0),
        'u' | 'و' => vowel([300.0, 870.0, 2240.0], 115.0),
        'ع' | 'ء' | 'ئ' => sound([600.0, 1300.0, 2500.0], 0.5, 0.02, 1000.0, 55.0, 0.3),
        'm' | 'م' => sound([250.0, 1000.0, 2200.0], 0.55, 0.0, 1000.0, 75.0, 0.0),
        'n' | 'ن' => sound([260.0, 1500.0, 2500.0], 0.55, 0.0, 1000.0, 70.0, 0.0),
        'l' | 'ل' => sound([360.0, 1300.0, 2700.0], 0.7, 0.0, 1000.0, 65.0, 0.0),
        'r' | 'ر' => sound([420.0, 1300.0, 1600.0], 0.6, 0.03, 1500.0, 60.0, 0.0),
        'w' => sound([300.0, 610.0, 2200.0], 0.6, 0.0, 1000.0, 60.0, 0.0),
        'y' => sound([280.0, 2200.0, 2900.0], 0.6, 0.0, 1000.0, 55.0, 0.0),
        'b' | 'ب' => sound([220.0, 900.0, 2200.0], 0.35, 0.25, 900.0, 70.0, 0.65),
        'd' | 'د' => sound([220.0, 1700.0, 2600.0], 0.35, 0.3, 3200.0, 65.0, 0.65),
        'g' | 'گ' | 'غ' | 'ق' => sound([220.0, 2000.0, 2300.0], 0.35, 0.3, 1900.0, 75.0, 0.6),
        'p' | 'پ' => sound([300.0, 900.0, 2200.0], 0.0, 0.35, 1000.0, 85.0, 0.7),
        't' | 'ت' | 'ط' => sound([300.0, 1700.0, 2600.0], 0.0, 0.5, 4200.0, 80.0, 0.65),
        'k' | 'ک' | 'c' | 'q' => sound([300.0, 2000.0, 2400.0], 0.0, 0.45, 2000.0, 85.0, 0.65),
        'f' | 'ف' => sound([400.0, 1200.0, 2400.0], 0.0, 0.22, 5500.0, 95.0, 0.0),
        's' | 'س' | 'ص' | 'ث' | 'x' => sound([400.0, 1700.0, 2600.0], 0.0, 0.5, 5800.0, 105.0, 0.0),
        'ش' | 'چ' => sound([400.0, 1800.0, 2500.0], 0.0, 0.5, 3000.0, 105.0, 0.0),
        'h' | 'ه' | 'ح' | 'خ' => sound([500.0, 1500.0, 2500.0], 0.0, 0.3, 1600.0, 70.0, 0.0),
        'v' => sound([350.0, 1100.0, 2400.0], 0.45, 0.12, 5200.0, 70.0, 0.0),
        'z' | 'ز' | 'ذ' | 'ض' | 'ظ' => sound([350.0, 1700.0, 2600.0], 0.45, 0.3, 5600.0, 85.0, 0.0),
        'j' | 'ج' | 'ژ' => sound([350.0, 1800.0, 2500.0], 0.4, 0.3, 2800.0, 80.0, 0.0),
        '.' | '!' | '?' | '؟' => sound([500.0, 1500.0, 2500.0], 0.0, 0.0, 1000.0, 140.0, 0.0),
        _ => sound([500.0, 1500.0, 2500.0], 0.0, 0.0, 1000.0, 70.0, 0.0),
    }
}

/// A second-order resonance.
#[derive(Clone, Copy, Default)]
struct Resonator {
    gain: f64,
    first: f64,
    second: f64,
    before: [f64; 2],
}

impl Resonator {
    fn tune(&mut self, frequency: f64, bandwidth: f64, rate: f64) {
        self.second = -(-TAU * bandwidth / rate).exp();
        self.first = 2.0 * (-PI * bandwidth / rate).exp() * (TAU * frequency / rate).cos();
        self.gain = 1.0 - self.first - self.second;
    }

    fn step(&mut self, x: f64) -> f64 {
        let y = self.gain * x + self.first * self.before[0] + self.second * self.before[1];
        self.before = [y, self.before[0]];
        y
    }
}

/// Samples whose resonances are the same.
const STEP: usize = 32;
/// Seconds that a glide from sound to sound takes.
const GLIDE: f64 = 0.025;

/// Says a text, one sound for each of its letters; `random` gives numbers from 0 to 1 and decides lengths, pitch and
/// noise. Returns the samples and when each letter is said.
///
/// # Panics
///
/// If the voice's speed is not above 0: it would never end.
pub fn speak(
    text: &str,
    voice: &FormantVoice,
    sample_rate: u32,
    mut random: impl FnMut() -> f64,
) -> (Vec<f32>, Vec<TimedSound>) {
    assert!(voice.speed > 0.0, "a speed of {} never ends", voice.speed);
    let rate = f64::from(sample_rate);
    let mut timing = Vec::new();
    let mut at = 0usize;
    for symbol in text.chars() {
        let length = sound_of(symbol).length / voice.speed * (0.7 + 0.6 * random());
        let end = at + (length / 1000.0 * rate) as usize;
        timing.push(TimedSound { symbol, start: at, end });
        at = end;
    }
    let sounds: Vec<Sound> = timing.iter().map(|timed| sound_of(timed.symbol)).collect();
    let glide = (GLIDE * rate) as usize;
    let mut formants = [Resonator::default(); 3];
    let mut color = Resonator::default();
    let mut samples = Vec::with_capacity(at);
    let (mut phase, mut tilt, drift) = (0.0f64, 0.0f64, random());
    let (mut loud_voice, mut loud_noise) = (0.0f64, 0.0f64);
    let mut now = 0;
    for n in 0..at {
        while n >= timing[now].end {
            now += 1;
        }
        let (timed, this) = (timing[now], sounds[now]);
        let inside = (n - timed.start) as f64 / (timed.end - timed.start).max(1) as f64;
        if n % STEP == 0 {
            // Half of a glide lies on each side of a boundary.
            let mix = |from: usize, to: usize, share: f64, of: fn(&Sound) -> [f64; 3]| -> [f64; 3] {
                let (a, b) = (of(&sounds[from]), of(&sounds[to]));
                std::array::from_fn(|k| a[k] + (b[k] - a[k]) * share)
            };
            let (into, left) = (n - timed.start, timed.end - n);
            let target = if into < glide / 2 && now > 0 {
                mix(now - 1, now, 0.5 + into as f64 / glide as f64, |sound| sound.formants)
            } else if left < glide / 2 && now + 1 < sounds.len() {
                mix(now, now + 1, 0.5 - left as f64 / glide as f64, |sound| sound.formants)
            } else {
                this.formants
            };
            for (k, resonator) in formants.iter_mut().enumerate() {
                let frequency = (target[k] * voice.formant_scale).min(0.45 * rate);
                resonator.tune(frequency, 60.0 + 0.05 * frequency, rate);
            }
            color.tune((this.color * voice.formant_scale.sqrt()).min(0.45 * rate), 0.25 * this.color + 200.0, rate);
        }
        let closed = inside < this.closed;
        // Loudness follows within a few milliseconds.
        loud_voice += 0.006 * (if closed { 0.25 * this.voice } else { this.voice } - loud_voice);
        loud_noise += 0.02 * (if closed { 0.0 } else { this.noise } - loud_noise);
        let melody = 1.0 + 0.12 * (TAU * (n as f64 / at as f64 * 1.3 + drift)).sin() - 0.15 * n as f64 / at as f64;
        phase += voice.pitch * melody / rate;
        phase -= phase.floor();
        // Folds open slowly and close fast.
        let pulse = if phase < 0.6 { (PI * phase / 0.6).sin().powi(2) } else { 0.0 };
        let white = 2.0 * random() - 1.0;
        let edge = pulse - tilt;
        tilt = pulse;
        let source = loud_voice * (6.0 * edge + voice.breath * 0.05 * white);
        let voiced = formants.iter_mut().fold(source, |x, resonator| resonator.step(x));
        let hiss = color.step(loud_noise * white);
        samples.push((voiced + 0.9 * hiss) as f32);
    }
    let peak = samples.iter().fold(1e-9f32, |peak, x| peak.max(x.abs()));
    samples.iter_mut().for_each(|x| *x *= 0.7 / peak);
    (samples, timing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers() -> impl FnMut() -> f64 {
        let mut state = 1u64;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    const VOICE: FormantVoice = FormantVoice { pitch: 120.0, formant_scale: 1.0, breath: 0.2, speed: 1.0 };

    #[test]
    fn every_letter_has_its_time_and_the_times_join() {
        let text = "banana سلام.";
        let (samples, timing) = speak(text, &VOICE, 22_050, numbers());
        assert_eq!(timing.iter().map(|timed| timed.symbol).collect::<String>(), text);
        assert_eq!(timing[0].start, 0);
        assert!(timing.windows(2).all(|pair| pair[0].end == pair[1].start && pair[0].end > pair[0].start));
        assert_eq!(timing.last().map(|timed| timed.end), Some(samples.len()));
        assert!(samples.iter().all(|x| x.is_finite() && x.abs() <= 0.71));
    }

    #[test]
    fn a_vowel_has_its_resonance_and_a_pause_is_quiet() {
        let (samples, timing) = speak("iiii aaaa", &VOICE, 22_050, numbers());
        // Energy around a frequency, by correlation.
        let energy = |from: usize, to: usize, low: f64, high: f64| -> f64 {
            (0..40)
                .map(|k| low + (high - low) * f64::from(k) / 40.0)
                .map(|frequency| {
                    let (mut re, mut im) = (0.0, 0.0);
                    for (n, x) in samples[from..to].iter().enumerate() {
                        let angle = TAU * frequency * n as f64 / 22_050.0;
                        re += f64::from(*x) * angle.cos();
                        im += f64::from(*x) * angle.sin();
                    }
                    re * re + im * im
                })
                .sum()
        };
        let (i, a) = ((timing[0].start, timing[3].end), (timing[5].start, timing[8].end));
        let ratio = |at: (usize, usize)| energy(at.0, at.1, 600.0, 1200.0) / energy(at.0, at.1, 2000.0, 2600.0);
        assert!(ratio(a) > 10.0 * ratio(i), "{} {}", ratio(a), ratio(i));
        let loud = |from: usize, to: usize| samples[from..to].iter().map(|x| x * x).sum::<f32>() / (to - from) as f32;
        let pause = timing[4];
        let middle = (pause.start + pause.end) / 2;
        assert!(loud(middle, pause.end) < 0.05 * loud(i.0, i.1));
    }
}
