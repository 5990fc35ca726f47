//! DIO (Morise et al. 2009) and StoneMask (Morise et al. 2010): the pitch that envelopes are adapted to. For pitch as such,
//! [`crate::PitchTracker`] is better and faster; this is here because the definition of the distortion has it.

use std::f64::consts::TAU;

use realfft::RealFftPlanner;
use realfft::num_complex::Complex64;

use super::envelope::nuttall;
use super::{PERIOD_MS, time};

/// Lowest and highest pitch, in Hz.
const RANGE_HZ: [f64; 2] = [71.0, 800.0];
/// Bands of an octave.
const BANDS_PER_OCTAVE: f64 = 2.0;
/// What is below counts as an offset, in Hz.
const CUT_OFF_HZ: f64 = 50.0;
/// How much the pitch may change from frame to frame.
const ALLOWED_CHANGE: f64 = 0.1;
/// Score of a frame of a band that has no pitch.
const NO_SCORE: f64 = 1e17;

/// DIO: the pitch of every 5 ms, 0.0 where unvoiced. A band is filtered out below each of a number of frequencies; in the band whose
/// upper end is just above the pitch, zero crossings, peaks and dips come at equal intervals.
pub(super) fn estimate(samples: &[f64], rate: f64) -> Vec<f64> {
    let frames = (1000.0 * samples.len() as f64 / rate / PERIOD_MS) as usize + 1;
    let bands = 1 + ((RANGE_HZ[1] / RANGE_HZ[0]).log2() * BANDS_PER_OCTAVE) as usize;
    let upper = |band: usize| RANGE_HZ[0] * 2f64.powf((band + 1) as f64 / BANDS_PER_OCTAVE);
    let (length, cut) = (samples.len() + 1, (rate / CUT_OFF_HZ).round() as usize);
    let needed = length + 2 * cut + 1 + 4 * (1.0 + rate / upper(0) / 2.0) as usize;
    let size = (needed + 1).next_power_of_two();
    let mut planner = RealFftPlanner::<f64>::new();
    let (forward, inverse) = (planner.plan_fft_forward(size), planner.plan_fft_inverse(size));
    let transform = |values: &mut dyn Iterator<Item = (usize, f64)>| {
        let (mut block, mut spectrum) = (forward.make_input_vec(), forward.make_output_vec());
        values.for_each(|(n, value)| block[n % size] += value);
        forward.process(&mut block, &mut spectrum).expect("buffers of the planned length");
        spectrum
    };

    let mean = samples.iter().sum::<f64>() / length as f64;
    let mut clip = transform(&mut (0..length).map(|n| (n, samples.get(n).unwrap_or(&0.0) - mean)));
    // One minus a Hann window around zero.
    let hann: Vec<f64> = (1..=2 * cut + 1).map(|n| 0.5 - 0.5 * (TAU * n as f64 / (2 * cut + 2) as f64).cos()).collect();
    let sum: f64 = hann.iter().sum();
    let high_pass =
        transform(&mut hann.iter().enumerate().map(|(n, value)| (n + size - cut, -value / sum)).chain([(0, 1.0)]));
    clip.iter_mut().zip(&high_pass).for_each(|(value, filter)| *value *= filter);

    let mut filtered = inverse.make_output_vec();
    let candidates: Vec<Vec<(f64, f64)>> = (0..bands)
        .map(|band| {
            let half = (rate / upper(band) / 2.0).round() as usize;
            let mut spectrum = transform(&mut nuttall(4 * half).enumerate());
            spectrum.iter_mut().zip(&clip).for_each(|(value, clip)| *value *= clip);
            // The inverse of a real signal has none, but rounding leaves some.
            (spectrum[0].im, spectrum[size / 2].im) = (0.0, 0.0);
            inverse.process(&mut spectrum, &mut filtered).expect("buffers of the planned length");
            candidates_of_band(&filtered[2 * half..2 * half + length], rate, upper(band), frames)
        })
        .collect();
    let best = |frame: usize| {
        let first = candidates[0][frame];
        candidates[1..].iter().map(|band| band[frame]).fold(first, |a, b| if b.1 < a.1 { b } else { a }).0
    };
    fix_contour((0..frames).map(best).collect(), &candidates)
}

/// Pitch and score of each frame in a band: the mean of what four kinds of events say, and how much they differ.
fn candidates_of_band(signal: &[f64], rate: f64, upper: f64, frames: usize) -> Vec<(f64, f64)> {
    let negated: Vec<f64> = signal.iter().map(|x| -x).collect();
    let rises: Vec<f64> = signal.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let falls: Vec<f64> = rises.iter().map(|x| -x).collect();
    let events = [signal, &negated, &rises, &falls].map(|signal| crossings(signal, rate));
    if events.iter().any(|event| event.len() <= 2) {
        return vec![(0.0, NO_SCORE); frames];
    }
    let contours = events.map(|event| interpolate(&event, frames));
    let at = |frame: usize| {
        let values = contours.each_ref().map(|contour| contour[frame]);
        let mean = values.iter().sum::<f64>() / 4.0;
        let spread = (values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 3.0).sqrt();
        let inside = (upper / 2.0..=upper).contains(&mean) && (RANGE_HZ[0]..=RANGE_HZ[1]).contains(&mean);
        if inside { (mean, spread / (mean + 1e-12)) } else { (0.0, NO_SCORE) }
    };
    (0..frames).map(at).collect()
}

/// Times between two falls through zero, and what pitch that would be.
fn crossings(signal: &[f64], rate: f64) -> Vec<(f64, f64)> {
    // Counted from one, as in the original.
    let edges: Vec<f64> = (signal.windows(2).enumerate())
        .filter(|(_, pair)| 0.0 < pair[0] && pair[1] <= 0.0)
        .map(|(n, pair)| (n + 1) as f64 - pair[0] / (pair[1] - pair[0]))
        .collect();
    edges.windows(2).map(|pair| ((pair[0] + pair[1]) / 2.0 / rate, rate / (pair[1] - pair[0]))).collect()
}

/// Values at every 5 ms, on the lines through the points, also before the first and after the last.
fn interpolate(points: &[(f64, f64)], frames: usize) -> Vec<f64> {
    let mut next = 1;
    (0..frames)
        .map(|frame| {
            let time = time(frame);
            while next + 1 < points.len() && time >= points[next].0 {
                next += 1;
            }
            let (from, to) = (points[next - 1], points[next]);
            from.1 + (time - from.0) / (to.0 - from.0) * (to.1 - from.1)
        })
        .collect()
}

/// Takes out what jumps and what is too short, then extends what is left in both directions as long as candidates go on.
fn fix_contour(best: Vec<f64>, candidates: &[Vec<(f64, f64)>]) -> Vec<f64> {
    let frames = best.len();
    let around = (0.5 + 1000.0 / PERIOD_MS / RANGE_HZ[0]) as usize;
    let shortest = 2 * around + 1;
    if frames <= shortest {
        return vec![0.0; frames];
    }
    let inner = |n: usize| if n >= shortest && n + shortest < frames { best[n] } else { 0.0 };
    let steady = |n: usize| {
        let value = inner(n);
        let change = n.checked_sub(1).map_or(1.0, |before| ((value - inner(before)) / (1e-12 + value)).abs());
        if n >= shortest && change < ALLOWED_CHANGE { value } else { 0.0 }
    };
    let steady: Vec<f64> = (0..frames).map(steady).collect();
    let long = |n: usize| {
        let whole = n < around || n + around >= frames || steady[n - around..=n + around].iter().all(|&x| x != 0.0);
        if whole { steady[n] } else { 0.0 }
    };
    let mut contour: Vec<f64> = (0..frames).map(long).collect();
    let changes = |rise: bool| -> Vec<usize> {
        let is = |n: &usize| {
            let (before, now) = (contour[n - 1] != 0.0, contour[*n] != 0.0);
            if rise { !before && now } else { before && !now }
        };
        (1..frames).filter(is).map(|n| if rise { n } else { n - 1 }).collect()
    };
    let (starts, ends) = (changes(true), changes(false));
    let extend = |now: f64, before: f64, frame: usize| {
        let expected = (3.0 * now - before) / 2.0;
        let first = candidates[0][frame].0;
        let nearer = |a: f64, b: f64| if (expected - b).abs() < (expected - a).abs() { b } else { a };
        let found = candidates[1..].iter().map(|band| band[frame].0).fold(first, nearer);
        if (1.0 - found / expected).abs() > ALLOWED_CHANGE { 0.0 } else { found }
    };
    for (n, &end) in ends.iter().enumerate() {
        let limit = ends.get(n + 1).copied().unwrap_or(frames - 1);
        for frame in end..limit {
            contour[frame + 1] = extend(contour[frame], contour[frame - 1], frame + 1);
            if contour[frame + 1] == 0.0 {
                break;
            }
        }
    }
    for (n, &start) in starts.iter().enumerate().rev() {
        let limit = if n == 0 { 1 } else { starts[n - 1] };
        for frame in (limit + 1..=start).rev() {
            contour[frame - 1] = extend(contour[frame], contour[frame + 1], frame - 1);
            if contour[frame - 1] == 0.0 {
                break;
            }
        }
    }
    contour
}

/// StoneMask: each pitch corrected by the instantaneous frequency of its harmonics.
pub(super) fn refine(samples: &[f64], rate: f64, pitch: &[f64]) -> Vec<f64> {
    let mut planner = RealFftPlanner::<f64>::new();
    let mut refine_one = |seconds: f64, hz: f64| {
        if hz <= 40.0 || hz > rate / 12.0 {
            return 0.0;
        }
        let half = (1.5 * rate / hz + 1.0) as isize;
        let length = (2 * half + 1) as usize;
        let size = 4 << length.ilog2();
        let place = |n: isize| round((seconds + n as f64 / rate) * rate) - 1;
        let window: Vec<f64> = (-half..=half)
            .map(|n| {
                let phase = TAU * (place(n) as f64 / rate - seconds) * rate / length as f64;
                0.42 + 0.5 * phase.cos() + 0.08 * (2.0 * phase).cos()
            })
            .collect();
        let slope = |n: usize| {
            let after = if n + 1 < length { window[n + 1] } else { 0.0 };
            let before = if n > 0 { window[n - 1] } else { 0.0 };
            (before - after) / 2.0
        };
        let forward = planner.plan_fft_forward(size);
        let spectrum = |shape: &dyn Fn(usize) -> f64| {
            let (mut block, mut spectrum) = (forward.make_input_vec(), forward.make_output_vec());
            for (n, value) in block[..length].iter_mut().enumerate() {
                let at = place(n as isize - half).clamp(0, samples.len() as isize - 1);
                *value = samples[at as usize] * shape(n);
            }
            forward.process(&mut block, &mut spectrum).expect("buffers of the planned length");
            spectrum
        };
        let (plain, sloped) = (spectrum(&|n| window[n]), spectrum(&slope));
        let frequency = |bin: usize| {
            let (a, b): (Complex64, Complex64) = (plain[bin], sloped[bin]);
            let power = a.norm_sqr();
            let instantaneous = bin as f64 * rate / size as f64 + (a.re * b.im - a.im * b.re) / power * rate / TAU;
            (power.sqrt(), if power == 0.0 { 0.0 } else { instantaneous })
        };
        let mean = |hz: f64, harmonics: usize| {
            let (mut sum, mut weight) = (0.0, 1e-12);
            for harmonic in 1..=harmonics {
                let bin = (round(hz * size as f64 / rate * harmonic as f64).max(0) as usize).min(size / 2);
                let (amplitude, frequency) = frequency(bin);
                sum += amplitude * frequency;
                weight += amplitude * harmonic as f64;
            }
            sum / weight
        };
        let rough = mean(hz, 2);
        let fine = if rough <= 0.0 || rough > 2.0 * hz { 0.0 } else { mean(rough, 6) };
        if (fine - hz).abs() > 0.2 * hz { hz } else { fine }
    };
    pitch.iter().enumerate().map(|(frame, &hz)| refine_one(time(frame), hz)).collect()
}

/// As the original rounds: frames lie at half samples, so that it matters how.
fn round(x: f64) -> isize {
    (if x > 0.0 { x + 0.5 } else { x - 0.5 }) as isize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_voice_has_its_pitch() {
        for hz in [90.0, 213.0, 400.0] {
            let voice =
                |n: usize| (1..6).map(|k| (TAU * hz * f64::from(k) * n as f64 / 22_050.0).sin() / f64::from(k)).sum();
            let samples: Vec<f64> = (0..15_000).map(voice).collect();
            let pitch = refine(&samples, 22_050.0, &estimate(&samples, 22_050.0));
            assert!(pitch[20..110].iter().all(|found| (found / hz - 1.0).abs() < 0.005), "{hz} Hz: {pitch:?}");
        }
        assert!(estimate(&[0.0; 5000], 22_050.0).iter().all(|&hz| hz == 0.0));
    }
}
