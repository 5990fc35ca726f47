//! Numbers from a seed. Whatever is random in a run is drawn from here, by place and not by time, so that it can be
//! drawn again: by another thread, on another device, after a kill.

/// A sequence of numbers that depends on its seed alone (splitmix64: easy to repeat in any language).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The sequence of a place, such as `[seed, epoch, clip]`: places that differ in anything share nothing.
    pub fn at(place: &[u64]) -> Random {
        Random(place.iter().fold(0, |state, &part| mix(state ^ mix(part))))
    }

    /// The sequence of a named thing.
    pub fn named(seed: u64, name: &str) -> Random {
        Random(name.bytes().fold(mix(seed), |state, byte| mix(state ^ u64::from(byte))))
    }

    /// 64 random bits.
    #[allow(clippy::should_implement_trait)] // it never ends, and is not an iterator
    pub fn next(&mut self) -> u64 {
        let bits = mix(self.0);
        self.0 = self.0.wrapping_add(GOLDEN);
        bits
    }

    /// From 0 (possible) to 1 (never reached).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From -1 to 1.
    pub fn signed(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// One of the numbers below `bound`.
    ///
    /// # Panics
    ///
    /// If `bound` is 0: there is no such number.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "no number is below 0");
        (self.next() % bound as u64) as usize
    }

    /// Two independent values of the normal distribution (Box-Muller).
    pub fn normals(&mut self) -> (f64, f64) {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let (sin, cos) = (std::f64::consts::TAU * self.unit()).sin_cos();
        (radius * cos, radius * sin)
    }

    /// Fills a slice with values of the normal distribution.
    pub fn fill_normal(&mut self, values: &mut [f32]) {
        for pair in values.chunks_mut(2) {
            // Single precision is what the values are kept in, and twice as fast.
            let bits = self.next();
            let radius = (-2.0 * (((bits >> 40) as f32 + 0.5) / (1u32 << 24) as f32).ln()).sqrt();
            let (sin, cos) = (std::f32::consts::TAU * (bits as u32 >> 8) as f32 / (1u32 << 24) as f32).sin_cos();
            pair[0] = radius * cos;
            if let Some(second) = pair.get_mut(1) {
                *second = radius * sin;
            }
        }
    }

    /// Puts items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// One step of splitmix64: every bit of the input moves half of the output's.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_splitmix64() {
        // Reference values of the original C program, seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn places_differ_and_repeat() {
        let first = |place: &[u64]| Random::at(place).next();
        assert_eq!(first(&[1, 2, 3]), first(&[1, 2, 3]));
        assert_ne!(first(&[1, 2, 3]), first(&[1, 3, 2]));
        assert_ne!(first(&[0, 1]), first(&[1, 0]));
        assert_ne!(Random::named(1, "ab").next(), Random::named(1, "ba").next());
    }

    #[test]
    fn normals_are_normal() {
        let mut values = vec![0.0f32; 100_001];
        Random::new(5).fill_normal(&mut values);
        let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / values.len() as f64;
        let fourth = values.iter().map(|&x| f64::from(x).powi(4)).sum::<f64>() / values.len() as f64;
        assert!(
            mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02 && (fourth - 3.0).abs() < 0.1,
            "{mean} {variance} {fourth}"
        );
        let lagged = values.windows(2).map(|w| f64::from(w[0] * w[1])).sum::<f64>() / values.len() as f64;
        assert!(lagged.abs() < 0.02, "{lagged}");
    }
}
