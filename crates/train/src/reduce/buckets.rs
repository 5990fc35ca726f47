//! Gradients as a few large vectors and back: a message for each of hundreds of parameters would be latency and nothing else, and
//! one message for all of them could not be under way while the rest is copied from the device.

use burn::tensor::{Tensor, TensorData};
use tandem_model::Device;

use crate::optim::Grads;

/// Values of a bucket, at least.
const BUCKET: usize = tandem_observe::BUCKET_BYTES as usize / size_of::<f32>();

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

    /// Where the summed buckets go, one after the other.
    pub(crate) fn unpacking(&'a self, device: &'a Device) -> Unpacking<'a> {
        let grads = Vec::with_capacity(self.shapes.len());
        Unpacking { layout: self, device, next: self.buckets.iter(), terms: None, present: Vec::new(), grads }
    }
}

/// Loss terms and gradients on their way back to the device: those of a bucket are copied while later ones are still being added up.
pub(crate) struct Unpacking<'a> {
    layout: &'a Layout<'a>,
    device: &'a Device,
    next: std::slice::Iter<'a, std::ops::Range<usize>>,
    terms: Option<Tensor<1>>,
    /// Whether any rank has a gradient of each parameter.
    present: Vec<bool>,
    grads: Vec<Option<Tensor<2>>>,
}

impl Unpacking<'_> {
    /// The next bucket.
    pub(crate) fn add(&mut self, values: &[f32]) {
        let Layout { terms, shapes, .. } = self.layout;
        let mut at = 0;
        if self.terms.is_none() {
            at = terms + shapes.len();
            self.present = values[*terms..at].iter().map(|&ranks| ranks > 0.0).collect();
            let values = values[..*terms].to_vec();
            self.terms = Some(Tensor::from_data(TensorData::new(values, [*terms]), self.device));
        }
        for index in self.next.next().expect("as many buckets as there are").clone() {
            let Some([rows, columns]) = shapes[index] else {
                self.grads.push(None);
                continue;
            };
            let own = at..at + rows * columns;
            at = own.end;
            let copy = || Tensor::from_data(TensorData::new(values[own].to_vec(), [rows, columns]), self.device);
            self.grads.push(self.present[index].then(copy));
        }
    }

    /// After the last one.
    pub(crate) fn finish(self) -> (Tensor<1>, Grads) {
        (self.terms.expect("there is a bucket"), Grads::of(self.grads))
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
        let device = Device::flex();
        let mut unpacking = layout.unpacking(&device);
        for bucket in 0..layout.len() {
            let mine = layout.pack(bucket, &terms([0.5, 1.0]), &first);
            let theirs = layout.pack(bucket, &terms([0.25, 2.0]), &second);
            let summed: Vec<f32> = mine.iter().zip(theirs).map(|(a, b)| a + b).collect();
            unpacking.add(&summed);
        }
        let (values, grads) = unpacking.finish();
        assert_eq!(values.into_data().try_into_vec::<f32>().expect("single precision"), [0.75, 3.0]);
        let grads = numbers(grads);
        assert_eq!(grads[0].as_deref(), Some(&[11.0, 13.0, 15.0, 17.0, 19.0, 21.0][..]));
        assert_eq!((&grads[1], grads[2].as_deref()), (&None, Some(&[5.0, 6.0, 7.0, 8.0][..])));
        assert_eq!(grads[3].as_ref().map(|grad| grad[7]), Some(14.0));
        assert_eq!(grads[4], None, "no rank has one: the parameter stays as it is");
    }
}
