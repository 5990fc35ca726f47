//! Noise that is always the same: what is synthesized must not depend on anything but what is given.

/// Values from -1 to 1.
pub(super) struct Noise(u64);

impl Default for Noise {
    fn default() -> Self {
        Noise(0x2545_F491_4F6C_DD1D)
    }
}

impl Noise {
    /// Those of a seed.
    pub(super) fn seeded(seed: u64) -> Noise {
        let mut noise = Noise(Noise::default().0 ^ seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        // Neighboring seeds differ in few bits; after some steps they do not.
        (0..8).for_each(|_| {
            noise.next();
        });
        noise
    }

    pub(super) fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}
