//! Gradients as a few large vectors and back: a message for each of hundreds of parameters would be latency and nothing else, and
//! one message for all of them could not be under way while the rest is copied from the device.

use std::ops::Range;

use burn::tensor::{Tensor, TensorData};
use tandem_model::Device;

use crate::optim::Grads;

/// Values of a bucket, at least.
const BUCKET: usize = tandem_observe::BUCKET_BYTES as usize / size_of::<f32>();
/// A parameter of so many values is not copied beside others where its gradient is in the host's memory anyway. Each is a message of its
/// own, so that smaller ones cost more than their copy.
const LARGE: usize = 1 << 16;

/// How loss terms, gradients and what is known about them lie in buckets. The same on every rank.
///
/// The first bucket begins with the loss terms and, for each parameter, whether this rank has a gradient: summed, that says which
/// parameters have one anywhere.
#[derive(Debug)]
pub(crate) struct Layout<'a> {
    terms: usize,
    shapes: &'a [Option<[usize; 2]>],
    buckets: Vec<Bucket>,
}

/// Parameters that are added up together.
#[derive(Debug, Default)]
struct Bucket {
    parameters: Range<usize>,
    /// The same in runs: a large one by itself, small ones together.
    runs: Vec<Range<usize>>,
}

fn length(shape: &Option<[usize; 2]>) -> usize {
    shape.map_or(0, |[rows, columns]| rows * columns)
}

impl<'a> Layout<'a> {
    /// For so many loss terms and these parameters; those without a shape do not learn.
    pub(crate) fn new(terms: usize, shapes: &'a [Option<[usize; 2]>]) -> Layout<'a> {
        let (mut buckets, mut bucket, mut values, mut joins) = (Vec::new(), Bucket::default(), 0, false);
        for (index, shape) in shapes.iter().enumerate() {
            let is_small = length(shape) < LARGE;
            match bucket.runs.last_mut() {
                Some(run) if joins && is_small => run.end = index + 1,
                _ => bucket.runs.push(index..index + 1),
            }
            (joins, values, bucket.parameters.end) = (is_small, values + length(shape), index + 1);
            if values >= BUCKET {
                let next = Bucket { parameters: index + 1..index + 1, runs: Vec::new() };
                buckets.push(std::mem::replace(&mut bucket, next));
                (values, joins) = (0, false);
            }
        }
        if !bucket.parameters.is_empty() || buckets.is_empty() {
            buckets.push(bucket);
        }
        Layout { terms, shapes, buckets }
    }

    /// Buckets.
    pub(crate) fn len(&self) -> usize {
        self.buckets.len()
    }

    /// Where messages about a bucket are cut: at the end of what is known about gradients, and of each run.
    pub(crate) fn cuts(&self, bucket: usize) -> Vec<usize> {
        let head = if bucket == 0 { self.terms + self.shapes.len() } else { 0 };
        let runs = self.buckets[bucket].runs.iter().map(|run| self.shapes[run.clone()].iter().map(length).sum());
        let ends = [head].into_iter().chain(runs).filter(|length| *length > 0).scan(0, |end, length: usize| {
            *end += length;
            Some(*end)
        });
        ends.collect()
    }

    /// One bucket on the host. What this rank lacks is zeros. Gradients are taken: those that lie in the host's memory are not copied.
    pub(crate) fn pack(&self, bucket: usize, terms: &Tensor<1>, grads: &mut [Option<Tensor<2>>]) -> Vec<Vec<f32>> {
        let device = terms.device();
        let mut runs: Vec<Vec<Tensor<1>>> = Vec::new();
        if bucket == 0 {
            let present: Vec<f32> = grads.iter().map(|grad| f32::from(u8::from(grad.is_some()))).collect();
            let count = present.len();
            runs.push(vec![terms.clone(), Tensor::from_data(TensorData::new(present, [count]), &device)]);
        }
        for run in &self.buckets[bucket].runs {
            let vector = |index: usize| {
                let [rows, columns] = self.shapes[index]?;
                Some(match grads[index].take() {
                    Some(grad) => grad.reshape([rows * columns]),
                    None => Tensor::zeros([rows * columns], &device),
                })
            };
            runs.push(run.clone().filter_map(vector).collect());
        }
        runs.retain(|run| !run.is_empty());
        // Nothing of it learns, or it is in the host's memory already.
        if runs.is_empty() || device.clone().inner() == Device::flex() {
            runs.into_iter().map(to_host).collect()
        } else {
            // One copy from the device, however many parameters there are.
            vec![to_host(runs.into_iter().flatten().collect())]
        }
    }

    /// Where the summed buckets go, one after the other.
    pub(crate) fn unpacking(&'a self, device: &'a Device) -> Unpacking<'a> {
        let grads = Vec::with_capacity(self.shapes.len());
        Unpacking { layout: self, device, next: self.buckets.iter(), terms: None, present: Vec::new(), grads }
    }
}

fn to_host(mut vectors: Vec<Tensor<1>>) -> Vec<f32> {
    let vector = match vectors.len() {
        1 => vectors.remove(0),
        _ => Tensor::cat(vectors, 0),
    };
    vector.into_data().try_into_vec::<f32>().expect("gradients are single precision")
}

/// Loss terms and gradients on their way back to the device: those of a bucket are copied while later ones are still being added up.
pub(crate) struct Unpacking<'a> {
    layout: &'a Layout<'a>,
    device: &'a Device,
    next: std::slice::Iter<'a, Bucket>,
    terms: Option<Tensor<1>>,
    /// Whether any rank has a gradient of each parameter.
    present: Vec<bool>,
    grads: Vec<Option<Tensor<2>>>,
}

impl Unpacking<'_> {
    /// The next bucket.
    pub(crate) fn add(&mut self, segments: Vec<Vec<f32>>) {
        let Layout { terms, shapes, .. } = self.layout;
        let mut segments = Segments { rest: segments.into_iter(), current: Vec::new(), at: 0 };
        if self.terms.is_none() {
            let mut head = segments.take(terms + shapes.len());
            self.present = head.split_off(*terms).into_iter().map(|ranks| ranks > 0.0).collect();
            self.terms = Some(Tensor::from_data(TensorData::new(head, [*terms]), self.device));
        }
        for index in self.next.next().expect("as many buckets as there are").parameters.clone() {
            let Some([rows, columns]) = shapes[index] else {
                self.grads.push(None);
                continue;
            };
            let values = segments.take(rows * columns);
            let copy = || Tensor::from_data(TensorData::new(values, [rows, columns]), self.device);
            self.grads.push(self.present[index].then(copy));
        }
    }

    /// After the last one.
    pub(crate) fn finish(self) -> (Tensor<1>, Grads) {
        (self.terms.expect("there is a bucket"), Grads::of(self.grads))
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

    #[test]
    fn gradients_of_two_ranks_are_added_and_what_one_lacks_is_that_of_the_other() {
        let shapes =
            [Some([2, 3]), None, Some([1, 4]), Some([BUCKET, 1]), Some([2, 2]), Some([LARGE, 1]), Some([1, 1])];
        let layout = Layout::new(2, &shapes);
        assert_eq!(layout.len(), 2, "the large one ends a bucket");
        // Terms and what is known of seven parameters; two small ones; the large one.
        assert_eq!(layout.cuts(0), [9, 19, 19 + BUCKET]);
        assert_eq!(layout.cuts(1), [4, 4 + LARGE, 4 + LARGE + 1]);
        let terms = |values: [f32; 2]| Tensor::<1>::from_data(TensorData::new(values.to_vec(), [2]), &Device::flex());
        let large = || matrix([BUCKET, 1], 0.0);
        let mut first =
            vec![Some(matrix([2, 3], 1.0)), None, None, Some(large()), None, None, Some(matrix([1, 1], 3.0))];
        let mut second =
            vec![Some(matrix([2, 3], 10.0)), None, Some(matrix([1, 4], 5.0)), Some(large()), None, None, None];
        let device = Device::flex();
        let mut unpacking = layout.unpacking(&device);
        for bucket in 0..layout.len() {
            let mine = layout.pack(bucket, &terms([0.5, 1.0]), &mut first);
            let theirs = layout.pack(bucket, &terms([0.25, 2.0]), &mut second);
            let ends: Vec<usize> = mine
                .iter()
                .scan(0, |end, one| {
                    *end += one.len();
                    Some(*end)
                })
                .collect();
            assert_eq!(ends, layout.cuts(bucket), "each run is a segment of its own");
            let sum = |(a, b): (&Vec<f32>, &Vec<f32>)| a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<f32>>();
            let summed: Vec<Vec<f32>> = mine.iter().zip(&theirs).map(sum).collect();
            // A device's bucket is one segment; nothing else differs.
            unpacking.add(if bucket == 0 { vec![summed.concat()] } else { summed });
        }
        let (values, grads) = unpacking.finish();
        assert_eq!(values.into_data().try_into_vec::<f32>().expect("single precision"), [0.75, 3.0]);
        let grads = numbers(grads);
        assert_eq!(grads[0].as_deref(), Some(&[11.0, 13.0, 15.0, 17.0, 19.0, 21.0][..]));
        assert_eq!((&grads[1], grads[2].as_deref()), (&None, Some(&[5.0, 6.0, 7.0, 8.0][..])));
        assert_eq!(grads[3].as_ref().map(|grad| grad[7]), Some(14.0));
        assert_eq!((&grads[4], &grads[5]), (&None, &None), "no rank has one: the parameter stays as it is");
        assert_eq!(grads[6].as_deref(), Some(&[3.0][..]));
    }
}
