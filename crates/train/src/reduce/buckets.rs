//! Gradients as a few large vectors and back: a message for each of hundreds of parameters would be latency and nothing else, and
//! one message for all of them could not be under way while the rest is computed or copied from the device.

use burn::tensor::{Tensor, TensorData};
use tandem_model::Device;

use crate::optim::Grads;

/// A parameter of so many values is not copied beside others where its gradient is in the host's memory anyway. Each is a message of its
/// own, so that smaller ones cost more than their copy.
const LARGE: usize = 1 << 14;

/// How gradients lie in buckets. The same on every rank.
///
/// Besides there is a tail: the loss terms and, for each parameter, whether this rank has a gradient; summed, that says which parameters have one
/// anywhere. It is known when all gradients are.
#[derive(Debug)]
pub(crate) struct Layout {
    terms: usize,
    shapes: Vec<Option<[usize; 2]>>,
    buckets: Vec<Bucket>,
    /// The bucket of each parameter that learns.
    bucket_of: Vec<Option<usize>>,
}

/// Parameters that are added up together, in runs: each large one by itself, all small ones together.
type Bucket = Vec<Vec<usize>>;

impl Layout {
    /// For so many loss terms and these parameters; those without a shape do not learn. Buckets are filled in an order that all ranks know: that in which
    /// gradients are expected; parameters that are not part of it come last.
    pub(crate) fn new(terms: usize, shapes: Vec<Option<[usize; 2]>>, order: &[usize]) -> Layout {
        let length = |index: usize| shapes.get(index).copied().flatten().map(|[rows, columns]| rows * columns);
        let mut is_known = vec![false; shapes.len()];
        let is_new = |index: &usize| length(*index).is_some() && !std::mem::replace(&mut is_known[*index], true);
        let mut expected: Vec<usize> = order.iter().copied().chain(0..shapes.len()).filter(is_new).collect();
        // From the last one back, because that one is to be small.
        let mut sizes = tandem_observe::bucket_bytes_from_the_last(tandem_observe::BUCKET_BYTES);
        let (mut buckets, mut bucket_of) = (Vec::new(), vec![None; shapes.len()]);
        while !expected.is_empty() {
            let (values, mut sum, mut first) = (values_of(sizes.next().unwrap_or(u64::MAX)), 0, expected.len());
            while first > 0 && sum < values {
                first -= 1;
                sum += length(expected[first]).unwrap_or(0);
            }
            buckets.push(runs_of(expected.split_off(first), |index| length(index).unwrap_or(0) < LARGE));
        }
        buckets.reverse();
        for (number, bucket) in buckets.iter().enumerate() {
            bucket.iter().flatten().for_each(|index| bucket_of[*index] = Some(number));
        }
        Layout { terms, shapes, buckets, bucket_of }
    }

    /// Buckets.
    pub(crate) fn len(&self) -> usize {
        self.buckets.len()
    }

    /// The bucket of a parameter; none if it does not learn.
    pub(crate) fn bucket_of(&self, index: usize) -> Option<usize> {
        self.bucket_of.get(index).copied().flatten()
    }

    /// Parameters of a bucket.
    pub(crate) fn parameters(&self, bucket: usize) -> usize {
        self.buckets[bucket].iter().map(Vec::len).sum()
    }

    fn length(&self, index: usize) -> usize {
        self.shapes[index].map_or(0, |[rows, columns]| rows * columns)
    }

    /// Where messages about a bucket are cut: at the end of each run.
    pub(crate) fn cuts(&self, bucket: usize) -> Vec<usize> {
        let ends = self.buckets[bucket].iter().scan(0, |end, run| {
            *end += run.iter().map(|index| self.length(*index)).sum::<usize>();
            Some(*end)
        });
        ends.collect()
    }

    /// A bucket, run by run. What this rank lacks is zeros.
    pub(crate) fn runs(&self, bucket: usize, grads: &mut [Option<Tensor<2>>], device: &Device) -> Vec<Tensor<1>> {
        let mut vector = |index: usize| {
            let length = self.length(index);
            match grads[index].take() {
                Some(grad) => grad.reshape([length]),
                None => Tensor::zeros([length], device),
            }
        };
        self.buckets[bucket].iter().map(|run| joined(run.iter().map(|index| vector(*index)).collect())).collect()
    }

    /// The same for gradients in the host's memory. Those of a run of their own are not copied.
    pub(crate) fn segments(&self, bucket: usize, grads: &mut [Option<Tensor<2>>]) -> Vec<Vec<f32>> {
        let mut values = |index: usize| match grads[index].take() {
            Some(grad) => to_host(grad),
            None => vec![0.0; self.length(index)],
        };
        let mut segment = |run: &Vec<usize>| match run[..] {
            [index] => values(index),
            _ => {
                let mut all = Vec::with_capacity(run.iter().map(|index| self.length(*index)).sum());
                run.iter().for_each(|index| all.extend_from_slice(&values(*index)));
                all
            }
        };
        self.buckets[bucket].iter().map(&mut segment).collect()
    }

    /// The tail.
    pub(crate) fn tail(&self, terms: Tensor<1>, present: &[bool]) -> Vec<f32> {
        let mut tail = to_host(terms);
        debug_assert_eq!((tail.len(), present.len()), (self.terms, self.shapes.len()));
        tail.extend(present.iter().map(|present| f32::from(u8::from(*present))));
        tail
    }

    /// Where the sums go.
    pub(crate) fn unpacking<'a>(&'a self, device: &'a Device) -> Unpacking<'a> {
        Unpacking { layout: self, device, grads: self.shapes.iter().map(|_| None).collect() }
    }
}

fn values_of(bytes: u64) -> usize {
    (bytes / size_of::<f32>() as u64) as usize
}

/// Parameters in runs, the small ones last.
fn runs_of(parameters: Vec<usize>, is_small: impl Fn(usize) -> bool) -> Bucket {
    let (small, large): (Vec<usize>, Vec<usize>) = parameters.into_iter().partition(|index| is_small(*index));
    let small = (!small.is_empty()).then_some(small);
    large.into_iter().map(|index| vec![index]).chain(small).collect()
}

/// Vectors one after the other.
pub(crate) fn joined(mut vectors: Vec<Tensor<1>>) -> Tensor<1> {
    match vectors.len() {
        1 => vectors.remove(0),
        _ => Tensor::cat(vectors, 0),
    }
}

pub(crate) fn to_host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec::<f32>().expect("gradients are single precision")
}

/// Sums on their way back to the device: those of a bucket are copied while later ones are still being added up.
pub(crate) struct Unpacking<'a> {
    layout: &'a Layout,
    device: &'a Device,
    grads: Vec<Option<Tensor<2>>>,
}

impl Unpacking<'_> {
    /// A bucket.
    pub(crate) fn add(&mut self, bucket: usize, segments: Vec<Vec<f32>>) {
        let mut segments = Segments { rest: segments.into_iter(), current: Vec::new(), at: 0 };
        for index in self.layout.buckets[bucket].iter().flatten().copied() {
            let Some([rows, columns]) = self.layout.shapes[index] else { continue };
            let values = TensorData::new(segments.take(rows * columns), [rows, columns]);
            self.grads[index] = Some(Tensor::from_data(values, self.device));
        }
    }

    /// The tail, after all buckets.
    pub(crate) fn finish(mut self, mut tail: Vec<f32>) -> (Tensor<1>, Grads) {
        let present = tail.split_off(self.layout.terms);
        for (grad, ranks) in self.grads.iter_mut().zip(present) {
            if ranks == 0.0 {
                *grad = None;
            }
        }
        (Tensor::from_data(TensorData::new(tail, [self.layout.terms]), self.device), Grads::of(self.grads))
    }
}

/// Values that lie one after the other in segments.
struct Segments {
    rest: std::vec::IntoIter<Vec<f32>>,
    current: Vec<f32>,
    at: usize,
}

impl Segments {
    /// The next ones. What is a whole segment is not copied.
    fn take(&mut self, length: usize) -> Vec<f32> {
        if self.at == self.current.len() && length > 0 {
            (self.current, self.at) = (self.rest.next().unwrap_or_default(), 0);
        }
        if self.at == 0 && self.current.len() == length {
            return std::mem::take(&mut self.current);
        }
        self.at += length;
        self.current[self.at - length..self.at].to_vec()
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

    /// Values of the last bucket.
    const BUCKET: usize = 1 << 17;

    fn shapes() -> Vec<Option<[usize; 2]>> {
        vec![Some([2, 3]), None, Some([1, 4]), Some([BUCKET, 1]), Some([2, 2]), Some([LARGE, 1]), Some([1, 1])]
    }

    #[test]
    fn buckets_are_filled_in_the_order_in_which_gradients_come() {
        let layout = Layout::new(2, shapes(), &[]);
        assert_eq!(layout.len(), 2, "with the large one the last bucket is large enough");
        assert_eq!(layout.cuts(0), [10], "two small ones");
        assert_eq!(layout.cuts(1), [BUCKET, BUCKET + LARGE, BUCKET + LARGE + 5], "small ones come last, together");
        // What is not expected, or said twice, or not there, comes last or counts once.
        let layout = Layout::new(2, shapes(), &[6, 4, 3, 6, 1, 99]);
        assert_eq!((layout.cuts(0), layout.cuts(1)), (vec![5], vec![BUCKET, BUCKET + LARGE, BUCKET + LARGE + 10]));
        assert_eq!([0, 1, 3, 6, 99].map(|index| layout.bucket_of(index)), [Some(1), None, Some(1), Some(0), None]);
        assert_eq!((layout.parameters(0), layout.parameters(1)), (2, 4));
        let even = Layout::new(1, vec![Some([BUCKET, 1]); 16], &[]);
        let sizes: Vec<usize> = (0..even.len()).map(|bucket| even.parameters(bucket)).collect();
        assert_eq!(sizes, [1, 8, 4, 2, 1], "small at the end");
    }

    #[test]
    fn gradients_of_two_ranks_are_added_and_what_one_lacks_is_that_of_the_other() {
        let device = Device::flex();
        let terms = |values: [f32; 2]| Tensor::<1>::from_data(TensorData::new(values.to_vec(), [2]), &device);
        let large = || Some(matrix([BUCKET, 1], 0.0));
        for order in [&[][..], &[6, 3, 0]] {
            let layout = Layout::new(2, shapes(), order);
            let mut first = vec![Some(matrix([2, 3], 1.0)), None, None, large(), None, None, Some(matrix([1, 1], 3.0))];
            let mut second =
                vec![Some(matrix([2, 3], 10.0)), None, Some(matrix([1, 4], 5.0)), large(), None, None, None];
            let present = [&first, &second].map(|grads| grads.iter().map(|grad| grad.is_some()).collect::<Vec<bool>>());
            let sum = |a: Vec<f32>, b: Vec<f32>| a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<f32>>();
            let mut unpacking = layout.unpacking(&device);
            for bucket in (0..layout.len()).rev() {
                let mine = layout.segments(bucket, &mut first);
                let theirs = layout.runs(bucket, &mut second, &device);
                let lengths: Vec<usize> = mine.iter().map(Vec::len).collect();
                let ends = (1..=lengths.len()).map(|runs| lengths[..runs].iter().sum::<usize>());
                assert_eq!(ends.collect::<Vec<usize>>(), layout.cuts(bucket), "each run is a segment of its own");
                unpacking.add(
                    bucket,
                    mine.into_iter().zip(theirs.into_iter().map(to_host)).map(|(a, b)| sum(a, b)).collect(),
                );
            }
            let [a, b] = [(&present[0], [0.5, 1.0]), (&present[1], [0.25, 2.0])]
                .map(|(present, values)| layout.tail(terms(values), present));
            let (values, grads) = unpacking.finish(sum(a, b));
            assert_eq!(to_host(values), [0.75, 3.0]);
            let grads = numbers(grads);
            assert_eq!(grads[0].as_deref(), Some(&[11.0, 13.0, 15.0, 17.0, 19.0, 21.0][..]));
            assert_eq!((&grads[1], grads[2].as_deref()), (&None, Some(&[5.0, 6.0, 7.0, 8.0][..])));
            assert_eq!(grads[3].as_ref().map(|grad| grad[7]), Some(14.0));
            assert_eq!((&grads[4], &grads[5]), (&None, &None), "no rank has one: the parameter stays as it is");
            assert_eq!(grads[6].as_deref(), Some(&[3.0][..]));
        }
    }
}
