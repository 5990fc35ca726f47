//! Mixed precision: matmuls in f16, where most of a step is spent. Parameters, sums, norms, losses and the optimizer stay
//! in f32; the operands of a matmul are rounded, its result comes back in f32.

use std::cell::Cell;

use burn::tensor::{FloatDType, Tensor};

thread_local!(static HALF: Cell<bool> = const { Cell::new(false) });

/// Runs `work` with matmuls in half precision, or not. Gradients of what it computes follow.
pub fn with_half_matmuls<T>(half: bool, work: impl FnOnce() -> T) -> T {
    /// Also when `work` panics: out of memory is caught and tried again.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            HALF.set(self.0);
        }
    }
    let _restore = Restore(HALF.replace(half));
    work()
}

/// Whether matmuls are in half precision now.
pub(crate) fn half_matmuls() -> bool {
    HALF.get()
}

/// Matmul in the precision that is switched on.
pub(crate) fn matmul<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
    if !half_matmuls() {
        return a.matmul(b);
    }
    a.cast(FloatDType::F16).matmul(b.cast(FloatDType::F16)).cast(FloatDType::F32)
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;

    #[test]
    fn matmuls_are_rounded_only_inside() {
        let tensor =
            |values: [f32; 2], shape| Tensor::<2>::from_data(TensorData::new(values.to_vec(), shape), &Device::flex());
        let value = || {
            let one = matmul(tensor([1.0, 0.0001], [1, 2]), tensor([1.0, 1.0], [2, 1]));
            one.into_data().try_into_vec::<f32>().expect("single precision")[0]
        };
        assert_eq!(value(), 1.0001);
        assert_eq!(with_half_matmuls(true, value), 1.0, "half precision has three digits");
        let caught = std::panic::catch_unwind(|| with_half_matmuls(true, || panic!("out of memory")));
        assert!(caught.is_err() && !half_matmuls());
    }
}
