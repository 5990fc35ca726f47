//! The transform behind [`LogMel`](crate::LogMel): eight neighboring frames at a time.
//!
//! Every step is written once for any vector of eight ([`Vector`]) and compiled for plain arrays and, on x86, for AVX2 with
//! FMA, chosen when the program runs (`pulp`). All of it must be inlined into the function that names those features, or the
//! compiler falls back to calls per value (seen: 25 times slower); hence `#[inline(always)]` throughout and no
//! closures on the way. Arrays alone, left to the compiler, were half as fast (measured).
//!
//! A real transform of length N is a complex one of length N/2 over pairs of samples (Stockham, radix 8, so that a
//! length of 1024 takes three passes), then one step that untangles it.

// Counted loops over small arrays: iterators with closures would not be compiled for the machine's vector unit.
#![allow(clippy::needless_range_loop)]

mod vector;

use std::f64::consts::TAU;

#[cfg(target_arch = "x86_64")]
use self::vector::avx2::Avx2;
use self::vector::{Eight, Plain, Vector, WIDTH, vector};

/// Frames whose samples are rearranged at a time: the rearranged samples stay in the second-level cache.
const CHUNK: usize = 64;

/// A complex number of eight frames, in memory.
#[derive(Clone, Copy, Default)]
struct Pair {
    re: Eight,
    im: Eight,
}

/// A complex number of eight frames, in registers.
#[derive(Clone, Copy)]
struct Z<L> {
    re: L,
    im: L,
}

impl<L: Vector> Z<L> {
    #[inline(always)]
    fn load(token: L::Token, pair: &Pair) -> Z<L> {
        Z { re: L::load(token, &pair.re.0), im: L::load(token, &pair.im.0) }
    }

    #[inline(always)]
    fn store(self, pair: &mut Pair) {
        self.re.store(&mut pair.re.0);
        self.im.store(&mut pair.im.0);
    }

    #[inline(always)]
    fn add(self, other: Z<L>) -> Z<L> {
        Z { re: self.re.add(other.re), im: self.im.add(other.im) }
    }

    #[inline(always)]
    fn sub(self, other: Z<L>) -> Z<L> {
        Z { re: self.re.sub(other.re), im: self.im.sub(other.im) }
    }

    /// Times -i.
    #[inline(always)]
    fn turn(self) -> Z<L> {
        Z { re: self.im, im: L::splat(self.re.token(), 0.0).sub(self.re) }
    }

    /// Times cos + i sin.
    #[inline(always)]
    fn rotate(self, (cos, sin): (f32, f32)) -> Z<L> {
        let token = self.re.token();
        let (cos, sin, minus_sin) = (L::splat(token, cos), L::splat(token, sin), L::splat(token, -sin));
        Z { re: self.im.fma(minus_sin, self.re.mul(cos)), im: self.im.fma(cos, self.re.mul(sin)) }
    }
}

#[inline(always)]
fn dft4<L: Vector>([a, b, c, d]: [Z<L>; 4]) -> [Z<L>; 4] {
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
fn dft8<L: Vector>(a: [Z<L>; 8]) -> [Z<L>; 8] {
    let even = dft4([a[0].add(a[4]), a[1].add(a[5]), a[2].add(a[6]), a[3].add(a[7])]);
    let d = [a[0].sub(a[4]), a[1].sub(a[5]), a[2].sub(a[6]), a[3].sub(a[7])];
    // Times the eighth roots of unity 1, (1-i)/√2, -i, (-1-i)/√2.
    let token = a[0].re.token();
    let root = L::splat(token, std::f32::consts::FRAC_1_SQRT_2);
    let minus_root = L::splat(token, -std::f32::consts::FRAC_1_SQRT_2);
    let first = Z { re: d[1].re.add(d[1].im).mul(root), im: d[1].im.sub(d[1].re).mul(root) };
    let third = Z { re: d[3].im.sub(d[3].re).mul(root), im: d[3].re.add(d[3].im).mul(minus_root) };
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
    /// Where sample `n` of a chunk's first frame is among the rearranged samples.
    places: Vec<usize>,
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
    /// There is one where the processor has AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    avx2: Option<pulp::x86::V3>,
}

/// What a transform works in; one for each thread.
pub(crate) struct Scratch {
    phases: Vec<f32>,
    a: Vec<Pair>,
    b: Vec<Pair>,
    magnitude: Vec<Eight>,
    /// Frames of the last run with a value so far below the frame's peak that single precision is not enough.
    pub(crate) doubtful: Vec<usize>,
}

/// A mel value below this share of the frame's largest magnitude drowns in the rounding errors of single precision: its
/// logarithm is off by more than 4e-4 (measured against librosa, which computes in double precision).
const DOUBT: f32 = 6e-7;

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
        let columns = columns(n_fft, hop);
        Wide {
            n_fft,
            hop,
            window,
            places: (0..n_fft).map(|n| (n % hop) * columns + n / hop).collect(),
            passes,
            rest: length,
            untangle: (0..n_fft / 2).map(|k| unit(k, n_fft)).collect(),
            filters,
            bins,
            power,
            floor,
            #[cfg(target_arch = "x86_64")]
            avx2: pulp::x86::V3::try_new(),
        }
    }

    pub(crate) fn scratch(&self) -> Scratch {
        Scratch {
            phases: vec![0.0; self.hop * columns(self.n_fft, self.hop)],
            a: vec![Pair::default(); self.n_fft / 2],
            b: vec![Pair::default(); self.n_fft / 2],
            magnitude: vec![Eight::default(); self.n_fft / 2 + 1],
            doubtful: Vec::new(),
        }
    }

    /// Log-mel of `frames` frames of `signal`; filter `m` of frame `t` goes to `out[m * stride + t]`.
    pub(crate) fn run(&self, signal: &[f32], frames: usize, out: &mut [f32], stride: usize, scratch: &mut Scratch) {
        assert!(signal.len() >= (frames.saturating_sub(1)) * self.hop + self.n_fft);
        scratch.doubtful.clear();
        let job = Job { wide: self, signal, frames, out, stride, scratch };
        #[cfg(target_arch = "x86_64")]
        if let Some(token) = self.avx2 {
            return token.vectorize(OnAvx2(token, job));
        }
        job.run::<Plain>(());
    }

    #[inline(always)]
    fn run_inlined<L: Vector>(
        &self,
        token: L::Token,
        (signal, frames): (&[f32], usize),
        (out, stride): (&mut [f32], usize),
        scratch: &mut Scratch,
    ) {
        for chunk in (0..frames).step_by(CHUNK) {
            let chunk_frames = CHUNK.min(frames - chunk);
            self.rearrange(&signal[chunk * self.hop..], &mut scratch.phases);
            for first in (0..chunk_frames).step_by(WIDTH) {
                self.transform::<L>(token, first, scratch);
                let mut peaks = [0.0; WIDTH];
                self.magnitudes::<L>(token, scratch).store(&mut peaks);
                let limits = vector!(lane => peaks[lane] * DOUBT);
                let mut doubts = [false; WIDTH];
                let count = WIDTH.min(chunk_frames - first);
                let at = chunk + first;
                for (filter, (bin, weights)) in self.filters.iter().enumerate() {
                    let mut sum = L::splat(token, 0.0);
                    for (magnitude, &weight) in scratch.magnitude[*bin..*bin + weights.len()].iter().zip(weights) {
                        sum = L::load(token, &magnitude.0).fma(L::splat(token, weight), sum);
                    }
                    let mut values = [0.0; WIDTH];
                    sum.store(&mut values);
                    let mut lane = 0;
                    while lane < WIDTH {
                        // What is well below the floor stays there, however wrong it is.
                        doubts[lane] |= values[lane] < limits[lane] && values[lane] > 0.5 * self.floor;
                        lane += 1;
                    }
                    let logs = vector!(lane => ln(values[lane].max(self.floor)));
                    let to = &mut out[filter * stride + at..filter * stride + at + count];
                    // A copy of known length is an instruction, one of any length a call.
                    match <&mut [f32; WIDTH]>::try_from(&mut *to) {
                        Ok(to) => *to = logs,
                        Err(_) => to.copy_from_slice(&logs[..count]),
                    }
                }
                let doubtful = doubts[..count].iter().enumerate().filter(|(_, doubt)| **doubt);
                scratch.doubtful.extend(doubtful.map(|(lane, _)| at + lane));
            }
        }
    }

    /// `phases[i][c] = signal[c * hop + i]`: the same sample of neighboring frames becomes neighbors in memory.
    #[inline(always)]
    fn rearrange(&self, signal: &[f32], phases: &mut [f32]) {
        let (hop, columns) = (self.hop, columns(self.n_fft, self.hop));
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
                    let turned = vector!(c => block[c][i]);
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
    fn transform<L: Vector>(&self, token: L::Token, first: usize, scratch: &mut Scratch) {
        let half = self.n_fft / 2;
        let zero = Z { re: L::splat(token, 0.0), im: L::splat(token, 0.0) };
        let phases = &scratch.phases[first..];
        let (a, b) = (&mut scratch.a[..half], &mut scratch.b[..half]);
        // The first pass reads pairs of samples.
        let span = half / 8;
        for p in 0..span {
            let mut input = [zero; 8];
            for k in 0..8 {
                let n = 2 * (p + span * k);
                input[k] = Z { re: self.sample(token, phases, n), im: self.sample(token, phases, n + 1) };
            }
            let output = dft8(input);
            let to = &mut a[8 * p..8 * p + 8];
            output[0].store(&mut to[0]);
            match self.passes[0].get(p) {
                Some(rotations) => {
                    for r in 1..8 {
                        output[r].rotate(rotations[r]).store(&mut to[r]);
                    }
                }
                None => {
                    for r in 1..8 {
                        output[r].store(&mut to[r]);
                    }
                }
            }
        }
        let (mut from, mut to) = (a, b);
        let mut stride = 8;
        for rotations in &self.passes[1..] {
            let span = half / stride / 8;
            for p in 0..span {
                let rotations = rotations.get(p);
                for q in 0..stride {
                    let mut input = [zero; 8];
                    for k in 0..8 {
                        input[k] = Z::load(token, &from[q + stride * (p + span * k)]);
                    }
                    let output = dft8(input);
                    let at = q + stride * 8 * p;
                    output[0].store(&mut to[at]);
                    match rotations {
                        Some(rotations) => {
                            for r in 1..8 {
                                output[r].rotate(rotations[r]).store(&mut to[at + stride * r]);
                            }
                        }
                        None => {
                            for r in 1..8 {
                                output[r].store(&mut to[at + stride * r]);
                            }
                        }
                    }
                }
            }
            std::mem::swap(&mut from, &mut to);
            stride *= 8;
        }
        if self.rest > 1 {
            for q in 0..stride {
                let at = |k: usize| q + stride * k;
                if self.rest == 4 {
                    let input = [
                        Z::load(token, &from[at(0)]),
                        Z::load(token, &from[at(1)]),
                        Z::load(token, &from[at(2)]),
                        Z::load(token, &from[at(3)]),
                    ];
                    let output: [Z<L>; 4] = dft4(input);
                    for r in 0..4 {
                        output[r].store(&mut to[at(r)]);
                    }
                } else {
                    let (x, y): (Z<L>, Z<L>) = (Z::load(token, &from[at(0)]), Z::load(token, &from[at(1)]));
                    x.add(y).store(&mut to[at(0)]);
                    x.sub(y).store(&mut to[at(1)]);
                }
            }
        }
        // Each pass after the first, and the rest, moved the result to the other buffer.
        let moves = self.passes.len() - 1 + usize::from(self.rest > 1);
        if moves % 2 == 1 {
            std::mem::swap(&mut scratch.a, &mut scratch.b);
        }
    }

    /// Sample `n` of eight frames, windowed.
    #[inline(always)]
    fn sample<L: Vector>(&self, token: L::Token, phases: &[f32], n: usize) -> L {
        let at = self.places[n];
        let values: &[f32; WIDTH] = phases[at..at + WIDTH].try_into().expect("eight values");
        L::load(token, values).mul(L::splat(token, self.window[n]))
    }

    /// From the packed transform to the magnitudes (or powers) of the bins that filters use; returns the largest.
    #[inline(always)]
    fn magnitudes<L: Vector>(&self, token: L::Token, scratch: &mut Scratch) -> L {
        let half = self.n_fft / 2;
        let (z, magnitude) = (&scratch.a, &mut scratch.magnitude);
        let (zero, one_half) = (L::splat(token, 0.0), L::splat(token, 0.5));
        let edge: Z<L> = Z::load(token, &z[0]);
        let mut peak = size(edge.re.add(edge.im), zero, self.power);
        peak.store(&mut magnitude[0].0);
        for k in 1..self.bins.min(half) {
            let (x, y): (Z<L>, Z<L>) = (Z::load(token, &z[k]), Z::load(token, &z[half - k]));
            let even = Z { re: x.re.add(y.re).mul(one_half), im: x.im.sub(y.im).mul(one_half) };
            let odd = Z { re: x.im.add(y.im).mul(one_half), im: y.re.sub(x.re).mul(one_half) };
            let turned = odd.rotate(self.untangle[k]);
            let size = size(even.re.add(turned.re), even.im.add(turned.im), self.power);
            size.store(&mut magnitude[k].0);
            peak = peak.max(size);
        }
        if self.bins > half {
            size(edge.re.sub(edge.im), zero, self.power).store(&mut magnitude[half].0);
        }
        peak
    }
}

/// What [`Wide::run`] was asked for.
struct Job<'a> {
    wide: &'a Wide,
    signal: &'a [f32],
    frames: usize,
    out: &'a mut [f32],
    stride: usize,
    scratch: &'a mut Scratch,
}

impl Job<'_> {
    #[inline(always)]
    fn run<L: Vector>(self, token: L::Token) {
        self.wide.run_inlined::<L>(token, (self.signal, self.frames), (self.out, self.stride), self.scratch);
    }
}

/// It, where there is AVX2.
#[cfg(target_arch = "x86_64")]
struct OnAvx2<'a>(pulp::x86::V3, Job<'a>);

#[cfg(target_arch = "x86_64")]
impl pulp::NullaryFnOnce for OnAvx2<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.1.run::<Avx2>(self.0);
    }
}

/// Frame starts that a chunk of frames touches.
fn columns(n_fft: usize, hop: usize) -> usize {
    CHUNK + n_fft.div_ceil(hop) + WIDTH
}

/// The magnitude of a complex number, or its square.
#[inline(always)]
fn size<L: Vector>(re: L, im: L, power: bool) -> L {
    let square = re.fma(re, im.mul(im));
    if power { square } else { square.sqrt() }
}

/// The natural logarithm of a positive, normal number, to a few units in the last place: the range reduction and the
/// polynomial of Cephes' `logf`. The library's function cannot be vectorised.
#[inline(always)]
fn ln(x: f32) -> f32 {
    let bits = x.to_bits();
    let mantissa = f32::from_bits(bits & 0x007F_FFFF | 0x3F00_0000); // in [0.5, 1)
    let small = mantissa < std::f32::consts::FRAC_1_SQRT_2;
    let exponent = ((bits >> 23) as i32 - 126) as f32 - if small { 1.0 } else { 0.0 };
    let m = if small { mantissa + mantissa } else { mantissa } - 1.0;
    const POLYNOMIAL: [f32; 9] = [
        7.037_683_6e-2,
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ];
    let mut p = POLYNOMIAL[0];
    let mut n = 1;
    while n < POLYNOMIAL.len() {
        p = p * m + POLYNOMIAL[n];
        n += 1;
    }
    let square = m * m;
    let tail = m * square * p + exponent * -2.121_944_4e-4 + square * -0.5;
    exponent * 0.693_359_4 + (m + tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_exact_to_a_few_units_in_the_last_place() {
        let mut x = 1e-5f32;
        while x < 1e6 {
            let exact = f64::from(x).ln();
            assert!((f64::from(ln(x)) - exact).abs() <= 3e-7 * exact.abs().max(1.0), "ln({x}) = {}, {exact}", ln(x));
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
            let window: Vec<f32> = (0..n_fft).map(|n| (n as f32 / n_fft as f32 * 3.0).sin()).collect();
            let frames = 13;
            let signal: Vec<f32> = (0..(frames - 1) * hop + n_fft)
                .map(|n| ((n * 7919 % 1009) as f32 / 1009.0 - 0.5) + (n as f32 * 0.3).sin())
                .collect();
            // One filter for each bin, so that the output is the logarithm of the power spectrum itself.
            let filters = (0..=n_fft / 2).map(|bin| (bin, vec![1.0])).collect();
            let mut wide = Wide::new(n_fft, hop, window.clone(), filters, true, 1e-12);
            for portable in [false, true] {
                #[cfg(target_arch = "x86_64")]
                if portable {
                    wide.avx2 = None;
                }
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
