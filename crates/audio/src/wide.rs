//! The transform behind [`LogMel`](crate::LogMel): eight neighbouring frames at a time, one lane each.
//!
//! Every step is written for eight lanes as plain arrays and compiled twice: for any machine, and for x86 with AVX2 and
//! FMA, chosen when the program runs. All of it must be inlined into the function that names those features, or the
//! compiler falls back to calls per value (seen: 25 times slower); hence `#[inline(always)]` throughout.
//!
//! A real transform of length N is a complex one of length N/2 over pairs of samples (Stockham, radix 8, so that a
//! length of 1024 takes three passes), then one step that untangles it.

use std::f64::consts::TAU;

const LANES: usize = 8;
/// Frames whose samples are rearranged at a time: the rearranged samples stay in the second-level cache.
const CHUNK: usize = 64;

/// The same value of eight frames.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct V([f32; LANES]);

impl V {
    const ZERO: V = V([0.0; LANES]);

    #[inline(always)]
    fn each(self, f: impl Fn(f32) -> f32) -> V {
        V(self.0.map(f))
    }

    #[inline(always)]
    fn with(self, other: V, f: impl Fn(f32, f32) -> f32) -> V {
        V(std::array::from_fn(|lane| f(self.0[lane], other.0[lane])))
    }

    #[inline(always)]
    fn add(self, other: V) -> V {
        self.with(other, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, other: V) -> V {
        self.with(other, |a, b| a - b)
    }

    #[inline(always)]
    fn scale(self, factor: f32) -> V {
        self.each(|a| a * factor)
    }

    /// `self * factor + other`
    #[inline(always)]
    fn fma<const FMA: bool>(self, factor: f32, other: V) -> V {
        self.with(other, |a, b| fused::<FMA>(a, factor, b))
    }
}

/// A fused multiply-add where the machine has one; elsewhere that would be a library call for each value.
#[inline(always)]
fn fused<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

#[derive(Clone, Copy)]
struct Z {
    re: V,
    im: V,
}

impl Z {
    const ZERO: Z = Z { re: V::ZERO, im: V::ZERO };

    #[inline(always)]
    fn add(self, other: Z) -> Z {
        Z { re: self.re.add(other.re), im: self.im.add(other.im) }
    }

    #[inline(always)]
    fn sub(self, other: Z) -> Z {
        Z { re: self.re.sub(other.re), im: self.im.sub(other.im) }
    }

    /// Times -i.
    #[inline(always)]
    fn turn(self) -> Z {
        Z { re: self.im, im: self.re.scale(-1.0) }
    }

    /// Times cos + i sin.
    #[inline(always)]
    fn rotate<const FMA: bool>(self, (cos, sin): (f32, f32)) -> Z {
        Z { re: self.im.fma::<FMA>(-sin, self.re.scale(cos)), im: self.im.fma::<FMA>(cos, self.re.scale(sin)) }
    }
}

#[inline(always)]
fn dft4([a, b, c, d]: [Z; 4]) -> [Z; 4] {
    let (even_sum, even_difference) = (a.add(c), a.sub(c));
    let (odd_sum, odd_difference) = (b.add(d), b.sub(d).turn());
    [
        even_sum.add(odd_sum),
        even_difference.add(odd_difference),
        even_sum.sub(odd_sum),
        even_difference.sub(odd_difference),
    ]
}

#[inline(always)]
fn dft8(a: [Z; 8]) -> [Z; 8] {
    const HALF_TURN: f32 = std::f32::consts::FRAC_1_SQRT_2;
    let even = dft4([a[0].add(a[4]), a[1].add(a[5]), a[2].add(a[6]), a[3].add(a[7])]);
    let d = [a[0].sub(a[4]), a[1].sub(a[5]), a[2].sub(a[6]), a[3].sub(a[7])];
    // Times the eighth roots of unity 1, (1-i)/√2, -i, (-1-i)/√2.
    let first = Z { re: d[1].re.add(d[1].im).scale(HALF_TURN), im: d[1].im.sub(d[1].re).scale(HALF_TURN) };
    let third = Z { re: d[3].im.sub(d[3].re).scale(HALF_TURN), im: d[3].re.add(d[3].im).scale(-HALF_TURN) };
    let odd = dft4([d[0], first, d[2].turn(), third]);
    [even[0], odd[0], even[1], odd[1], even[2], odd[2], even[3], odd[3]]
}

/// The rotations after a butterfly of radix 8.
type Rotations = [(f32, f32); 8];

/// A transform of one length with its window and filters.
pub(crate) struct Wide {
    n_fft: usize,
    hop: usize,
    window: Vec<f32>,
    /// For each pass of radix 8, the rotations by position; empty for a last pass, which needs none.
    passes: Vec<Vec<Rotations>>,
    /// What is left after the passes of radix 8: 1, 2 or 4.
    rest: usize,
    untangle: Vec<(f32, f32)>,
    /// First bin and weights of each filter.
    filters: Vec<(usize, Vec<f32>)>,
    /// Bins that some filter uses.
    bins: usize,
    power: bool,
    floor: f32,
    has_avx2: bool,
}

/// What a transform works in; one for each thread.
pub(crate) struct Scratch {
    phases: Vec<f32>,
    a: Vec<Z>,
    b: Vec<Z>,
    magnitude: Vec<V>,
}

impl Wide {
    /// `n_fft` must be a power of two of at least 32.
    pub(crate) fn new(
        n_fft: usize,
        hop: usize,
        window: Vec<f32>,
        filters: Vec<(usize, Vec<f32>)>,
        power: bool,
        floor: f32,
    ) -> Wide {
        assert!(n_fft.is_power_of_two() && n_fft >= 32 && window.len() == n_fft);
        let unit = |k: usize, n: usize| {
            let angle = -TAU * k as f64 / n as f64;
            (angle.cos() as f32, angle.sin() as f32)
        };
        let (mut length, mut passes) = (n_fft / 2, Vec::new());
        while length >= 8 {
            let rotations = |p: usize| std::array::from_fn(|r| unit(p * r, length));
            passes.push(if length == 8 { Vec::new() } else { (0..length / 8).map(rotations).collect() });
            length /= 8;
        }
        let bins = filters.iter().map(|(first, weights)| first + weights.len()).max().unwrap_or(1);
        #[cfg(target_arch = "x86_64")]
        let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        #[cfg(not(target_arch = "x86_64"))]
        let has_avx2 = false;
        Wide {
            n_fft,
            hop,
            window,
            passes,
            rest: length,
            untangle: (0..n_fft / 2).map(|k| unit(k, n_fft)).collect(),
            filters,
            bins,
            power,
            floor,
            has_avx2,
        }
    }

    pub(crate) fn scratch(&self) -> Scratch {
        Scratch {
            phases: vec![0.0; self.hop * self.columns()],
            a: vec![Z::ZERO; self.n_fft / 2],
            b: vec![Z::ZERO; self.n_fft / 2],
            magnitude: vec![V::ZERO; self.n_fft / 2 + 1],
        }
    }

    /// Frame starts that a chunk of frames touches.
    fn columns(&self) -> usize {
        CHUNK + self.n_fft.div_ceil(self.hop) + LANES
    }

    /// Log-mel of `frames` frames of `signal`; filter `m` of frame `t` goes to `out[m * stride + t]`.
    pub(crate) fn run(&self, signal: &[f32], frames: usize, out: &mut [f32], stride: usize, scratch: &mut Scratch) {
        assert!(signal.len() >= (frames.saturating_sub(1)) * self.hop + self.n_fft);
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2 {
            // SAFETY: `has_avx2` says that this machine has the features the function is compiled for.
            unsafe { self.run_avx2(signal, frames, out, stride, scratch) };
            return;
        }
        // On aarch64 a fused multiply-add belongs to every machine.
        self.run_inlined::<{ cfg!(target_arch = "aarch64") }>(signal, frames, out, stride, scratch);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn run_avx2(&self, signal: &[f32], frames: usize, out: &mut [f32], stride: usize, scratch: &mut Scratch) {
        self.run_inlined::<true>(signal, frames, out, stride, scratch);
    }

    #[inline(always)]
    fn run_inlined<const FMA: bool>(
        &self,
        signal: &[f32],
        frames: usize,
        out: &mut [f32],
        stride: usize,
        scratch: &mut Scratch,
    ) {
        for chunk in (0..frames).step_by(CHUNK) {
            let chunk_frames = CHUNK.min(frames - chunk);
            self.rearrange(&signal[chunk * self.hop..], &mut scratch.phases);
            for first in (0..chunk_frames).step_by(LANES) {
                self.transform::<FMA>(first, scratch);
                self.magnitudes::<FMA>(scratch);
                let count = LANES.min(chunk_frames - first);
                let at = chunk + first;
                for (filter, (bin, weights)) in self.filters.iter().enumerate() {
                    let mut sum = V::ZERO;
                    for (magnitude, &weight) in scratch.magnitude[*bin..*bin + weights.len()].iter().zip(weights) {
                        sum = magnitude.fma::<FMA>(weight, sum);
                    }
                    let logs = sum.each(|x| ln::<FMA>(x.max(self.floor)));
                    out[filter * stride + at..filter * stride + at + count].copy_from_slice(&logs.0[..count]);
                }
            }
        }
    }

    /// `phases[i][c] = signal[c * hop + i]`: the same sample of neighbouring frames becomes neighbours in memory.
    #[inline(always)]
    fn rearrange(&self, signal: &[f32], phases: &mut [f32]) {
        let (hop, columns) = (self.hop, self.columns());
        let whole = (signal.len() / hop).min(columns) / 8 * 8;
        let (blocks, tail) = (whole, hop / 8 * 8);
        for column in (0..blocks).step_by(8) {
            for phase in (0..tail).step_by(8) {
                let mut block = [[0.0f32; 8]; 8];
                for (c, row) in block.iter_mut().enumerate() {
                    let from = (column + c) * hop + phase;
                    row.copy_from_slice(&signal[from..from + 8]);
                }
                for i in 0..8 {
                    let to = (phase + i) * columns + column;
                    let turned: [f32; 8] = std::array::from_fn(|c| block[c][i]);
                    phases[to..to + 8].copy_from_slice(&turned);
                }
            }
            for phase in tail..hop {
                for c in column..column + 8 {
                    phases[phase * columns + c] = signal[c * hop + phase];
                }
            }
        }
        for column in blocks..columns {
            for phase in 0..hop {
                phases[phase * columns + column] = signal.get(column * hop + phase).copied().unwrap_or(0.0);
            }
        }
    }

    /// The complex transform of eight frames, beginning with frame `first` of the chunk. The result is in `a`.
    #[inline(always)]
    fn transform<const FMA: bool>(&self, first: usize, scratch: &mut Scratch) {
        let columns = self.columns();
        let (hop, phases, window) = (self.hop, &scratch.phases, &self.window);
        let sample = |n: usize| -> V {
            let at = (n % hop) * columns + first + n / hop;
            let lanes: [f32; LANES] = phases[at..at + LANES].try_into().expect("eight values");
            V(lanes).scale(window[n])
        };
        let half = self.n_fft / 2;
        let (a, b) = (&mut scratch.a[..half], &mut scratch.b[..half]);
        // The first pass reads pairs of samples.
        let span = half / 8;
        for p in 0..span {
            let input: [Z; 8] = std::array::from_fn(|k| {
                let n = 2 * (p + span * k);
                Z { re: sample(n), im: sample(n + 1) }
            });
            let output = dft8(input);
            let to = &mut a[8 * p..8 * p + 8];
            match self.passes[0].get(p) {
                Some(rotations) => rotated::<FMA>(output, rotations, |r, z| to[r] = z),
                None => to.copy_from_slice(&output),
            }
        }
        let (mut from, mut to) = (a, b);
        let mut stride = 8;
        for rotations in &self.passes[1..] {
            let span = half / stride / 8;
            for p in 0..span {
                for q in 0..stride {
                    let input: [Z; 8] = std::array::from_fn(|k| from[q + stride * (p + span * k)]);
                    let output = dft8(input);
                    match rotations.get(p) {
                        Some(rotations) => {
                            rotated::<FMA>(output, rotations, |r, z| to[q + stride * (8 * p + r)] = z);
                        }
                        None => (0..8).for_each(|r| to[q + stride * (8 * p + r)] = output[r]),
                    }
                }
            }
            std::mem::swap(&mut from, &mut to);
            stride *= 8;
        }
        if self.rest > 1 {
            for q in 0..stride {
                if self.rest == 4 {
                    let output = dft4(std::array::from_fn(|k| from[q + stride * k]));
                    (0..4).for_each(|r| to[q + stride * r] = output[r]);
                } else {
                    let (x, y) = (from[q], from[q + stride]);
                    (to[q], to[q + stride]) = (x.add(y), x.sub(y));
                }
            }
        }
        // Each pass after the first, and the rest, moved the result to the other buffer.
        let moves = self.passes.len() - 1 + usize::from(self.rest > 1);
        if moves % 2 == 1 {
            std::mem::swap(&mut scratch.a, &mut scratch.b);
        }
    }

    /// From the packed transform to the magnitudes (or powers) of the bins that filters use.
    #[inline(always)]
    fn magnitudes<const FMA: bool>(&self, scratch: &mut Scratch) {
        let half = self.n_fft / 2;
        let (z, magnitude) = (&scratch.a, &mut scratch.magnitude);
        let size = |re: V, im: V| {
            let square = V(std::array::from_fn(|lane| fused::<FMA>(re.0[lane], re.0[lane], im.0[lane] * im.0[lane])));
            if self.power { square } else { square.each(f32::sqrt) }
        };
        magnitude[0] = size(z[0].re.add(z[0].im), V::ZERO);
        for k in 1..self.bins.min(half) {
            let (x, y) = (z[k], z[half - k]);
            let even = Z { re: x.re.add(y.re).scale(0.5), im: x.im.sub(y.im).scale(0.5) };
            let odd = Z { re: x.im.add(y.im).scale(0.5), im: y.re.sub(x.re).scale(0.5) };
            let turned = odd.rotate::<FMA>(self.untangle[k]);
            magnitude[k] = size(even.re.add(turned.re), even.im.add(turned.im));
        }
        if self.bins > half {
            magnitude[half] = size(z[0].re.sub(z[0].im), V::ZERO);
        }
    }
}

#[inline(always)]
fn rotated<const FMA: bool>(values: [Z; 8], rotations: &Rotations, mut put: impl FnMut(usize, Z)) {
    put(0, values[0]);
    for r in 1..8 {
        put(r, values[r].rotate::<FMA>(rotations[r]));
    }
}

/// The natural logarithm of a positive, normal number, to about one unit in the last place: the range reduction and
/// the polynomial of Cephes' `logf`. The library's function cannot be vectorised.
#[inline(always)]
fn ln<const FMA: bool>(x: f32) -> f32 {
    let bits = x.to_bits();
    let mantissa = f32::from_bits(bits & 0x007F_FFFF | 0x3F00_0000); // in [0.5, 1)
    let small = mantissa < std::f32::consts::FRAC_1_SQRT_2;
    let exponent = ((bits >> 23) as i32 - 126) as f32 - if small { 1.0 } else { 0.0 };
    let m = if small { mantissa + mantissa } else { mantissa } - 1.0;
    const POLYNOMIAL: [f32; 9] = [
        7.037_683_6e-2,
        -1.151_461_03e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        3.333_333_1e-1,
    ];
    let mut p = POLYNOMIAL[0];
    for coefficient in &POLYNOMIAL[1..] {
        p = fused::<FMA>(p, m, *coefficient);
    }
    let square = m * m;
    let mut tail = m * square * p;
    tail = fused::<FMA>(exponent, -2.121_944_4e-4, tail);
    tail = fused::<FMA>(square, -0.5, tail);
    fused::<FMA>(exponent, 0.693_359_4, m + tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_exact_to_a_few_units_in_the_last_place() {
        let mut x = 1e-5f32;
        while x < 1e6 {
            let exact = f64::from(x).ln();
            for value in [ln::<false>(x), ln::<true>(x)] {
                assert!((f64::from(value) - exact).abs() <= 3e-7 * exact.abs().max(1.0), "ln({x}) = {value}, {exact}");
            }
            x *= 1.000_37;
        }
    }

    /// Against the definition, in double precision.
    fn slow_power(signal: &[f32], window: &[f32], bin: usize) -> f64 {
        let n = window.len();
        let (mut re, mut im) = (0.0, 0.0);
        for (i, (&s, &w)) in signal.iter().zip(window).enumerate() {
            let angle = -TAU * (bin * i % n) as f64 / n as f64;
            let value = f64::from(s) * f64::from(w);
            (re, im) = (re + value * angle.cos(), im + value * angle.sin());
        }
        re * re + im * im
    }

    #[test]
    fn every_power_of_two_and_any_hop_match_the_definition() {
        for (n_fft, hop) in [(32, 7), (64, 16), (128, 32), (256, 100), (512, 128), (1024, 256), (2048, 300)] {
            let window: Vec<f32> = (0..n_fft).map(|n| (n as f32 / n_fft as f32 * 3.14).sin()).collect();
            let frames = 13;
            let signal: Vec<f32> = (0..(frames - 1) * hop + n_fft)
                .map(|n| ((n * 7919 % 1009) as f32 / 1009.0 - 0.5) + (n as f32 * 0.3).sin())
                .collect();
            // One filter for each bin, so that the output is the logarithm of the power spectrum itself.
            let filters = (0..=n_fft / 2).map(|bin| (bin, vec![1.0])).collect();
            let mut wide = Wide::new(n_fft, hop, window.clone(), filters, true, 1e-12);
            for portable in [false, true] {
                wide.has_avx2 &= !portable;
                let mut out = vec![0.0; (n_fft / 2 + 1) * frames];
                let mut scratch = wide.scratch();
                wide.run(&signal, frames, &mut out, frames, &mut scratch);
                for frame in [0, 5, 8, 12] {
                    for bin in [0, 1, 2, n_fft / 8, n_fft / 4 + 1, n_fft / 2 - 1, n_fft / 2] {
                        let exact = slow_power(&signal[frame * hop..], &window, bin);
                        let got = f64::from(out[bin * frames + frame]).exp();
                        let scale = n_fft as f64;
                        assert!(
                            (got - exact).abs() < 1e-4 * exact + 1e-5 * scale,
                            "{n_fft}/{hop} {frame} {bin}: {got} {exact}"
                        );
                    }
                }
            }
        }
    }
}
