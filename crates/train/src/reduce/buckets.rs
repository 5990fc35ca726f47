//! Gradients as a few large vectors and back: a message for each of hundreds of parameters would be latency and nothing else, and
//! one message for all of them could not be under way while the rest is copied from the device.

use burn::tensor::{Tensor, TensorData};
use tandem_model::Device;

use crate::optim::Grads;

/// Values of a bucket, at least (4 MB): large enough for a link's full speed, small enough that several are under way.
const BUCKET: usize = 1 << 20;

/// How loss terms, gradients and what is known about them lie in buckets. The same on every rank.
///
/// The first bucket begins with the loss terms and, for each parameter, whether this rank has a gradient: summed, that says which
/// parameters have one anywhere.
#[derive(Debug)]
pub(crate) struct Layout<'a> {
    terms: usize,
    shapes: &'a [Option<[usize; 2]>],
    /// Parameters of each bucket.
    buckets: Vec<std::ops::Range<usize>>,
}

fn length(shape: &Option<[usize; 2]>) -> usize {
    shape.map_or(0, |[rows, columns]| rows * columns)
}

impl<'a> Layout<'a> {
    /// For so many loss terms and these parameters; those without a shape do not learn.
    pub(crate) fn new(terms: usize, shapes: &'a [Option<[usize; 2]>]) -> Layout<'a> {
        let (mut buckets, mut first, mut values) = (Vec::new(), 0, 0);
        for (index, shape) in shapes.iter().enumerate() {
            values += length(shape);
            if values >= BUCKET {
                buckets.push(first..index + 1);
                (first, values) = (index + 1, 0);
            }
        }
        if first < shapes.len() || buckets.is_empty() {
            buckets.push(first..shapes.len());
        }
        Layout { terms, shapes, buckets }
    }

    /// Buckets.
    pub(crate) fn len(&self) -> usize {
        self.buckets.len()
    }

    /// One bucket on the host. What this rank lacks is zeros.
    pub(crate) fn pack(&self, bucket: usize, terms: &Tensor<1>, grads: &[Option<Tensor<2>>]) -> Vec<f32> {
        let device = terms.device();
        let mut parts = Vec::new();
        if bucket == 0 {
            let present: Vec<f32> = grads.iter().map(|grad| f32::from(u8::from(grad.is_some()))).collect();
            let count = present.len();
            parts.push(terms.clone());
            parts.push(Tensor::from_data(TensorData::new(present, [count]), &device));
        }
        for index in self.buckets[bucket].clone() {
            let Some([rows, columns]) = self.shapes[index] else { continue };
            parts.push(match &grads[index] {
                Some(grad) => grad.clone().reshape([rows * columns]),
                None => Tensor::zeros([rows * columns], &device),
            });
        }
        // One copy from the device, however many parameters there are.
        Tensor::cat(parts, 0).into_data().try_into_vec::<f32>().expect("gradients are single precision")
    }

    /// Loss terms and gradients of the summed buckets.
    pub(crate) fn unpack(&self, buckets: Vec<Vec<f32>>, device: &Device) -> (Tensor<1>, Grads) {
        let (mut terms, mut present) = (None, Vec::new());
        let mut grads = Vec::with_capacity(self.shapes.len());
        for (bucket, values) in self.buckets.iter().zip(buckets) {
            let mut at = 0;
            if terms.is_none() {
                at = self.terms + self.shapes.len();
                present = values[self.terms..at].iter().map(|&ranks| ranks > 0.0).collect();
                let values = values[..self.terms].to_vec();
                terms = Some(Tensor::from_data(TensorData::new(values, [self.terms]), device));
            }
            for index in bucket.clone() {
                let Some([rows, columns]) = self.shapes[index] else {
                    grads.push(None);
                    continue;
                };
                let own = at..at + rows * columns;
                at = own.end;
                grads.push(
                    present[index]
                        .then(|| Tensor::from_data(TensorData::new(values[own].to_vec(), [rows, columns]), device)),
                );
            }
        }
        (terms.expect("there is a bucket"), Grads::of(grads))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(shape: [usize; 2], first: f32) -> Tensor<2> {
        let values: Vec<f32> = (0..shape[0] * shape[1]).map(|n| first + n as f32).collect();
        Tensor::from_data(TensorData::new(values, shape), &Device::flex())
    }

    fn numbers(grads: Grads) -> Vec<Option<Vec<f32>>> {
        let vector = |grad: Tensor<2>| grad.into_data().try_into_vec::<f32>().expect("single precision");
        grads.into_inner().into_iter().map(|grad| grad.map(vector)).collect()
    }

    #[test]
    fn gradients_of_two_ranks_are_added_and_what_one_lacks_is_that_of_the_other() {
        let shapes = [Some([2, 3]), None, Some([1, 4]), Some([BUCKET, 1]), Some([2, 2])];
        let layout = Layout::new(2, &shapes);
        assert_eq!(layout.len(), 2, "the large one ends a bucket");
        let terms = |values: [f32; 2]| Tensor::<1>::from_data(TensorData::new(values.to_vec(), [2]), &Device::flex());
        let large = || matrix([BUCKET, 1], 0.0);
        let first = [Some(matrix([2, 3], 1.0)), None, None, Some(large()), None];
        let second = [Some(matrix([2, 3], 10.0)), None, Some(matrix([1, 4], 5.0)), Some(large()), None];
        let buckets = (0..layout.len()).map(|bucket| {
            let mine = layout.pack(bucket, &terms([0.5, 1.0]), &first);
            let theirs = layout.pack(bucket, &terms([0.25, 2.0]), &second);
            mine.iter().zip(theirs).map(|(a, b)| a + b).collect()
        });
        let (values, grads) = layout.unpack(buckets.collect(), &Device::flex());
        assert_eq!(values.into_data().try_into_vec::<f32>().expect("single precision"), [0.75, 3.0]);
        let grads = numbers(grads);
        assert_eq!(grads[0].as_deref(), Some(&[11.0, 13.0, 15.0, 17.0, 19.0, 21.0][..]));
        assert_eq!((&grads[1], grads[2].as_deref()), (&None, Some(&[5.0, 6.0, 7.0, 8.0][..])));
        assert_eq!(grads[3].as_ref().map(|grad| grad[7]), Some(14.0));
        assert_eq!(grads[4], None, "no rank has one: the parameter stays as it is");
    }
}
