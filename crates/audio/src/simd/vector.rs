//! Eight values at once, for any machine and for x86 with AVX2 and FMA. See `mod.rs` for why it is written like this.

/// How many.
pub(crate) const WIDTH: usize = 8;

/// The same value of eight frames, in memory.
#[derive(Clone, Copy, Default)]
#[repr(align(32))]
pub(crate) struct Eight(pub(crate) [f32; WIDTH]);

/// The same value of eight frames, in a register.
pub(crate) trait Vector: Copy {
    fn load(values: &[f32; WIDTH]) -> Self;
    fn store(self, values: &mut [f32; WIDTH]);
    fn splat(value: f32) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// `self * factor + other`
    fn fma(self, factor: Self, other: Self) -> Self;
    fn sqrt(self) -> Self;
    fn max(self, other: Self) -> Self;
}

/// For any machine.
#[derive(Clone, Copy)]
pub(crate) struct Plain([f32; WIDTH]);

/// Eight values from an expression of the lane.
macro_rules! vector {
    ($lane:ident => $value:expr) => {{
        let mut values = [0.0f32; WIDTH];
        let mut $lane = 0;
        while $lane < WIDTH {
            values[$lane] = $value;
            $lane += 1;
        }
        values
    }};
}

pub(crate) use vector;

impl Vector for Plain {
    #[inline(always)]
    fn load(values: &[f32; WIDTH]) -> Self {
        Plain(*values)
    }
    #[inline(always)]
    fn store(self, values: &mut [f32; WIDTH]) {
        *values = self.0;
    }
    #[inline(always)]
    fn splat(value: f32) -> Self {
        Plain([value; WIDTH])
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Plain(vector!(lane => self.0[lane] + other.0[lane]))
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Plain(vector!(lane => self.0[lane] - other.0[lane]))
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Plain(vector!(lane => self.0[lane] * other.0[lane]))
    }
    #[inline(always)]
    fn fma(self, factor: Self, other: Self) -> Self {
        // Not `mul_add`: without the instruction that is a library call for each value.
        Plain(vector!(lane => self.0[lane] * factor.0[lane] + other.0[lane]))
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        Plain(vector!(lane => self.0[lane].sqrt()))
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Plain(vector!(lane => if self.0[lane] > other.0[lane] { self.0[lane] } else { other.0[lane] }))
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2 {
    use std::arch::x86_64::*;

    use super::{Vector, WIDTH};

    /// For x86 with AVX2 and FMA. Only `Wide::run_avx2`, which is compiled for them and called only where they exist,
    /// names this type: that is what makes the calls below sound.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(__m256);

    impl Vector for Avx2 {
        #[inline(always)]
        fn load(values: &[f32; WIDTH]) -> Self {
            // SAFETY: the features exist (see above); the array has eight values, of any alignment.
            Avx2(unsafe { _mm256_loadu_ps(values.as_ptr()) })
        }
        #[inline(always)]
        fn store(self, values: &mut [f32; WIDTH]) {
            // SAFETY: as for `load`.
            unsafe { _mm256_storeu_ps(values.as_mut_ptr(), self.0) }
        }
        #[inline(always)]
        fn splat(value: f32) -> Self {
            // SAFETY: the features exist.
            Avx2(unsafe { _mm256_set1_ps(value) })
        }
        #[inline(always)]
        fn add(self, other: Self) -> Self {
            // SAFETY: the features exist.
            Avx2(unsafe { _mm256_add_ps(self.0, other.0) })
        }
        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            // SAFETY: the features exist.
            Avx2(unsafe { _mm256_sub_ps(self.0, other.0) })
        }
        #[inline(always)]
        fn mul(self, other: Self) -> Self {
            // SAFETY: the features exist.
            Avx2(unsafe { _mm256_mul_ps(self.0, other.0) })
        }
        #[inline(always)]
        fn fma(self, factor: Self, other: Self) -> Self {
            // SAFETY: the features exist.
            Avx2(unsafe { _mm256_fmadd_ps(self.0, factor.0, other.0) })
        }
        #[inline(always)]
        fn sqrt(self) -> Self {
            // SAFETY: the features exist.
            Avx2(unsafe { _mm256_sqrt_ps(self.0) })
        }
        #[inline(always)]
        fn max(self, other: Self) -> Self {
            // SAFETY: the features exist.
            Avx2(unsafe { _mm256_max_ps(self.0, other.0) })
        }
    }
}
