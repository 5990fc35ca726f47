//! Loss scaling for half precision: gradients are kept large enough for sixteen bits, and brought back before the
//! optimizer sees them. Everything happens on the device: a step does not wait to learn whether it overflowed.

use burn::tensor::{Device, Tensor};

/// What a run begins with.
const FIRST: f32 = 1024.0;
const LEAST: f32 = 1.0;
const MOST: f32 = 16_777_216.0;
/// Steps without an overflow until a larger scale is tried.
const PATIENCE: f32 = 1000.0;

/// The factor of the loss: halves after an overflow, doubles after many good steps.
#[derive(Clone, Debug)]
pub struct LossScale {
    scale: Tensor<1>,
    good: Tensor<1>,
}

impl LossScale {
    /// As it begins, or as a checkpoint has it.
    pub fn new(saved: Option<[f32; 2]>, device: &Device) -> LossScale {
        let [scale, good] = saved.unwrap_or([FIRST, 0.0]);
        LossScale { scale: Tensor::from_floats([scale], device), good: Tensor::from_floats([good], device) }
    }

    /// The factor, one value on the device.
    pub fn factor(&self) -> Tensor<1> {
        self.scale.clone()
    }

    /// Learns from the norm of a step's gradients: not finite means that the step overflowed (and was not done).
    pub fn update(&mut self, norm: &Tensor<1>) {
        let fine = norm.clone().is_finite().float();
        let good = (self.good.clone() + 1.0) * fine.clone();
        let grow = good.clone().greater_equal_elem(PATIENCE).float();
        // Fine: once or twice as large. Not fine: half.
        let factor = fine.clone() * (grow.clone() + 1.0) + (fine * -1.0 + 1.0) * 0.5;
        self.scale = (self.scale.clone() * factor).clamp(LEAST, MOST);
        self.good = good * (grow * -1.0 + 1.0);
    }

    /// For a checkpoint; waits for the device.
    pub fn save(&self) -> [f32; 2] {
        let both = Tensor::cat(vec![self.scale.clone(), self.good.clone()], 0);
        let values = both.into_data().try_into_vec::<f32>().expect("single precision");
        [values[0], values[1]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_halves_after_an_overflow_and_doubles_after_a_while() {
        let device = Device::flex();
        let norm = |value: f32| Tensor::<1>::from_floats([value], &device);
        let mut scale = LossScale::new(None, &device);
        scale.update(&norm(f32::INFINITY));
        assert_eq!(scale.save(), [512.0, 0.0]);
        scale.update(&norm(f32::NAN));
        assert_eq!(scale.save(), [256.0, 0.0]);
        for _ in 0..999 {
            scale.update(&norm(3.0));
        }
        assert_eq!(scale.save(), [256.0, 999.0]);
        let mut again = LossScale::new(Some(scale.save()), &device);
        again.update(&norm(3.0));
        assert_eq!(again.save(), [512.0, 0.0], "resumes where it was");
        for _ in 0..20 {
            again.update(&norm(f32::INFINITY));
        }
        assert_eq!(again.save(), [1.0, 0.0], "never below one");
    }
}
