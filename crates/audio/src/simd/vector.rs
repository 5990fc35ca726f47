//! Eight values at once, for any machine and for x86 with AVX2 and FMA. See `mod.rs` for why it is written like this.

/// How many.
pub(crate) const WIDTH: usize = 8;

/// The same value of eight frames, in memory.
#[derive(Clone, Copy, Default)]
#[repr(align(32))]
pub(crate) struct Eight(pub(crate) [f32; WIDTH]);

/// The same value of eight frames, in a register.
pub(crate) trait Vector: Copy {
    /// Proof that this machine has the instructions: only who has one can make a vector.
    type Token: Copy;
    fn load(token: Self::Token, values: &[f32; WIDTH]) -> Self;
    fn store(self, values: &mut [f32; WIDTH]);
    fn splat(token: Self::Token, value: f32) -> Self;
    /// The proof that this one was made with.
    fn token(self) -> Self::Token;
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
    type Token = ();

    #[inline(always)]
    fn load((): (), values: &[f32; WIDTH]) -> Self {
        Plain(*values)
    }
    #[inline(always)]
    fn store(self, values: &mut [f32; WIDTH]) {
        *values = self.0;
    }
    #[inline(always)]
    fn splat((): (), value: f32) -> Self {
        Plain([value; WIDTH])
    }
    #[inline(always)]
    fn token(self) {}
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
    use std::arch::x86_64::__m256;

    use pulp::cast;
    use pulp::x86::V3;

    use super::{Vector, WIDTH};

    /// For x86 with AVX2 and FMA. The token, which takes no room, exists only where they do: that makes every call below
    /// safe. Only what runs inside of [`V3::vectorize`] is fast.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2 {
        values: __m256,
        token: V3,
    }

    impl Vector for Avx2 {
        type Token = V3;

        #[inline(always)]
        fn load(token: V3, values: &[f32; WIDTH]) -> Self {
            Avx2 { values: cast(*values), token }
        }
        #[inline(always)]
        fn store(self, values: &mut [f32; WIDTH]) {
            *values = cast(self.values);
        }
        #[inline(always)]
        fn splat(token: V3, value: f32) -> Self {
            Avx2 { values: token.avx._mm256_set1_ps(value), token }
        }
        #[inline(always)]
        fn token(self) -> V3 {
            self.token
        }
        #[inline(always)]
        fn add(self, other: Self) -> Self {
            Avx2 { values: self.token.avx._mm256_add_ps(self.values, other.values), ..self }
        }
        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            Avx2 { values: self.token.avx._mm256_sub_ps(self.values, other.values), ..self }
        }
        #[inline(always)]
        fn mul(self, other: Self) -> Self {
            Avx2 { values: self.token.avx._mm256_mul_ps(self.values, other.values), ..self }
        }
        #[inline(always)]
        fn fma(self, factor: Self, other: Self) -> Self {
            Avx2 { values: self.token.fma._mm256_fmadd_ps(self.values, factor.values, other.values), ..self }
        }
        #[inline(always)]
        fn sqrt(self) -> Self {
            Avx2 { values: self.token.avx._mm256_sqrt_ps(self.values), ..self }
        }
        #[inline(always)]
        fn max(self, other: Self) -> Self {
            Avx2 { values: self.token.avx._mm256_max_ps(self.values, other.values), ..self }
        }
    }
}
