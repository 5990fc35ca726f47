//! Discriminators: what tells waveforms that a vocoder makes from recordings, in stage 2 of its training (SPEC N4). One kind looks at
//! every n-th sample (HiFi-GAN's periods), the other at magnitudes of transforms of several resolutions (UnivNet).

use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};

use crate::kernels::{Stft, linear, stft_magnitudes};
use crate::nn::Init;
use crate::vocoder::DiscriminatorConfig;

/// Periods that samples are folded by.
const PERIODS: [usize; 5] = [2, 3, 5, 7, 11];
/// Transforms whose magnitudes are looked at.
const RESOLUTIONS: [Stft; 3] = [
    Stft { n_fft: 512, hop: 128, win_length: 512 },
    Stft { n_fft: 1024, hop: 256, win_length: 1024 },
    Stft { n_fft: 2048, hop: 512, win_length: 2048 },
];
/// Weight of the discriminators of magnitudes beside those of periods.
const RESOLUTION_WEIGHT: f64 = 0.1;
/// Slope of the activation below 0.
const SLOPE: f64 = 0.1;

/// Conv over two dimensions of `[rows, height, width, channels]`.
#[derive(Module, Debug)]
pub struct Conv2d {
    /// `[out, in, kernel height, kernel width]`.
    pub weight: Param<Tensor<4>>,
    /// `[out]`.
    pub bias: Param<Tensor<1>>,
    stride: [usize; 2],
}

impl Conv2d {
    fn new(init: Init<'_>, [input, output]: [usize; 2], [high, wide]: [usize; 2], stride: [usize; 2]) -> Conv2d {
        let bound = (3.0 / (input * high * wide) as f64).sqrt();
        let weight = init.at("weight").uniform([output, input, high, wide], bound);
        Conv2d { weight, bias: init.constant([output], 0.0), stride }
    }

    /// Zeros beyond the edges, so that a stride of 1 keeps the size.
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let [output, input, high, wide] = self.weight.dims();
        let columns = taps(x, 1, high, self.stride[0])
            .into_iter()
            .flat_map(|row| taps(row, 2, wide, self.stride[1]))
            .collect::<Vec<_>>();
        let weight = self.weight.val().permute([0, 2, 3, 1]).reshape([output, high * wide * input]);
        linear(Tensor::cat(columns, 3), weight, self.bias.val())
    }
}

/// What each tap of a kernel sees along a dimension: every `stride`-th position, beginning where the tap is.
fn taps(x: Tensor<4>, dim: usize, kernel_size: usize, stride: usize) -> Vec<Tensor<4>> {
    if kernel_size == 1 && stride == 1 {
        return vec![x];
    }
    let (reach, shape) = (kernel_size / 2, x.dims());
    let count = shape[dim].div_ceil(stride);
    // As much as the last tap of the last position needs, in whole strides.
    let length = kernel_size - 1 + count * stride;
    let zeros = |size: usize| {
        let mut shape = shape;
        shape[dim] = size;
        Tensor::<4>::zeros(shape, &x.device())
    };
    let after = length - reach - shape[dim];
    let padded = Tensor::cat(vec![zeros(reach), x.clone(), zeros(after)], dim);
    (0..kernel_size)
        .map(|tap| {
            let part = padded.clone().narrow(dim, tap, count * stride);
            if stride == 1 {
                return part;
            }
            let [rows, high, wide, channels] = part.dims();
            match dim {
                1 => part.reshape([rows, count, stride * wide, channels]).narrow(2, 0, wide),
                _ => part.reshape([rows, high, count, stride * channels]).narrow(3, 0, channels),
            }
        })
        .collect()
}

/// A stack of convs; the last one judges.
#[derive(Module, Debug)]
pub struct Judge {
    /// Layers, each followed by an activation.
    pub layers: Vec<Conv2d>,
    /// To one value.
    pub output: Conv2d,
}

/// What a judge says of waveforms: its verdict, and what its layers saw.
struct Verdict {
    values: Tensor<4>,
    features: Vec<Tensor<4>>,
}

impl Judge {
    fn of_period(init: Init<'_>, width: usize) -> Judge {
        let channels = [1, width, 4 * width, 16 * width, 32 * width, 32 * width];
        let layer = |n: usize| {
            let stride = if n < 4 { 3 } else { 1 };
            Conv2d::new(init.at(format_args!("layers.{n}")), [channels[n], channels[n + 1]], [5, 1], [stride, 1])
        };
        let output = Conv2d::new(init.at("output"), [channels[5], 1], [3, 1], [1, 1]);
        Judge { layers: (0..5).map(layer).collect(), output }
    }

    fn of_resolution(init: Init<'_>, width: usize) -> Judge {
        let layer = |n: usize| {
            let (kernel, stride) = if n < 4 { ([3, 9], [1, if n == 0 { 1 } else { 2 }]) } else { ([3, 3], [1, 1]) };
            let input = if n == 0 { 1 } else { width };
            Conv2d::new(init.at(format_args!("layers.{n}")), [input, width], kernel, stride)
        };
        let output = Conv2d::new(init.at("output"), [width, 1], [3, 3], [1, 1]);
        Judge { layers: (0..5).map(layer).collect(), output }
    }

    fn forward(&self, x: Tensor<4>) -> Verdict {
        let mut features = Vec::with_capacity(self.layers.len());
        let x = self.layers.iter().fold(x, |x, layer| {
            let x = activation::leaky_relu(layer.forward(x), SLOPE);
            features.push(x.clone());
            x
        });
        Verdict { values: self.output.forward(x), features }
    }
}

/// All of them.
#[derive(Module, Debug)]
pub struct Discriminators {
    /// One for each period.
    pub periods: Vec<Judge>,
    /// One for each transform.
    pub resolutions: Vec<Judge>,
}

/// What the discriminators make of a vocoder's waveforms beside recordings; sums over rows.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// How little the vocoder's waveforms pass for recordings (hinge): what the vocoder minimizes.
    pub adversarial: Tensor<1>,
    /// How different layers see the two: the vocoder minimizes that too.
    pub matching: Tensor<1>,
    /// How badly the two are told apart (hinge): what the discriminators minimize.
    pub discriminator: Tensor<1>,
}

impl Discriminators {
    pub(crate) fn new(init: Init<'_>, config: DiscriminatorConfig) -> Discriminators {
        let at = |kind: &str, n: usize| init.at(format_args!("{kind}.{n}"));
        Discriminators {
            periods: (0..PERIODS.len()).map(|n| Judge::of_period(at("periods", n), config.width)).collect(),
            resolutions: (0..RESOLUTIONS.len())
                .map(|n| Judge::of_resolution(at("resolutions", n), config.width))
                .collect(),
        }
    }

    /// What each sees of waveforms `[rows, samples]`, with the weight that it has.
    fn verdicts(&self, x: &Tensor<2>) -> Vec<(Verdict, f64)> {
        let [rows, samples] = x.dims();
        let of_period = |(judge, period): (&Judge, usize)| {
            let folds = samples / period;
            let folded = x.clone().narrow(1, 0, folds * period).reshape([rows, folds, period, 1]);
            (judge.forward(folded), 1.0)
        };
        let of_resolution = |(judge, shape): (&Judge, Stft)| {
            (judge.forward(stft_magnitudes(x.clone(), shape).unsqueeze_dim::<4>(3)), RESOLUTION_WEIGHT)
        };
        let heard = RESOLUTIONS.into_iter().filter(|shape| shape.frames(samples) > 0);
        let periods = self.periods.iter().zip(PERIODS).map(of_period);
        periods.chain(self.resolutions.iter().zip(heard).map(of_resolution)).collect()
    }

    /// Compares waveforms that a vocoder made with recordings. The vocoder's terms do not change the discriminators, and theirs not the
    /// vocoder: one backward pass has the gradients of both.
    pub fn judge(&self, made: &Tensor<2>, truth: &Tensor<2>) -> Judgement {
        let (of_truth, of_copy) = (self.verdicts(truth), self.verdicts(&made.clone().detach()));
        let of_made = self.clone().no_grad().verdicts(made);
        let mut sums: [Vec<Tensor<1>>; 3] = Default::default();
        for (((truth, weight), (copy, _)), (made, _)) in of_truth.into_iter().zip(of_copy).zip(of_made) {
            let hinge = |values: Tensor<4>, sign: f64| {
                row_means(activation::relu(values.mul_scalar(sign) + 1.0)).mul_scalar(weight)
            };
            sums[0].push(hinge(made.values, -1.0));
            let layers = truth.features.len() as f64;
            for (truth, made) in truth.features.into_iter().zip(made.features) {
                sums[1].push(row_means((made - truth.detach()).abs()).mul_scalar(weight / layers));
            }
            sums[2].push(hinge(truth.values, -1.0) + hinge(copy.values, 1.0));
        }
        let [adversarial, matching, discriminator] = sums.map(|terms| Tensor::cat(terms, 0).sum());
        Judgement { adversarial, matching, discriminator }
    }
}

/// The mean of each row, summed over rows.
fn row_means(x: Tensor<4>) -> Tensor<1> {
    let [rows, high, wide, channels] = x.dims();
    let values = high * wide * channels;
    x.reshape([rows, values]).sum_dim(1).sum().div_scalar(values.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};
    use tandem_flow::Random;

    use super::*;
    use crate::config::Size;

    fn random<const D: usize>(seed: u64, shape: [usize; D], device: &Device) -> Tensor<D> {
        let mut values = vec![0.0; shape.iter().product()];
        Random::new(seed).fill_normal(&mut values);
        Tensor::from_data(TensorData::new(values, shape), device)
    }

    fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().try_into_vec().expect("single precision")
    }

    /// Against Burn's own, whatever the stride.
    #[test]
    fn a_conv_is_that_of_burn() {
        let device = Device::flex();
        let init = Init::new(&device, 1);
        for (kernel, stride) in [([5, 1], [3, 1]), ([3, 9], [1, 2]), ([3, 3], [1, 1])] {
            let conv = Conv2d::new(init.clone(), [3, 4], kernel, stride);
            let x = random(2, [2, 14, 11, 3], &device);
            let found = conv.forward(x.clone());
            let options = burn::tensor::ops::ConvOptions::new(stride, kernel.map(|size| size / 2), [1, 1], 1);
            let wanted = burn::tensor::module::conv2d(
                x.permute([0, 3, 1, 2]),
                conv.weight.val(),
                Some(conv.bias.val()),
                options,
            );
            let wanted = wanted.permute([0, 2, 3, 1]);
            assert_eq!(found.dims(), wanted.dims(), "{kernel:?} {stride:?}");
            let off = values((found - wanted).abs().max())[0];
            assert!(off < 1e-5, "{kernel:?} {stride:?}: {off}");
        }
    }

    /// What the one side minimizes does not reach the other.
    #[test]
    fn each_side_has_the_gradients_of_its_own_terms() {
        let device = Device::flex().autodiff();
        let judges = Discriminators::new(Init::new(&device, 1), DiscriminatorConfig::new(Size::Smoke));
        let made = random(1, [2, 4096], &device).require_grad();
        let truth = random(2, [2, 4096], &device).mul_scalar(0.3);
        let weight = |judgement: Tensor<1>| {
            let grads = judgement.backward();
            let of_judges = judges.periods[0].layers[0].weight.val().grad(&grads).is_some();
            (made.grad(&grads).is_some(), of_judges)
        };
        let judgement = || judges.judge(&made, &truth);
        assert_eq!(weight(judgement().adversarial), (true, false));
        assert_eq!(weight(judgement().matching), (true, false));
        assert_eq!(weight(judgement().discriminator), (false, true));
        // Rows by themselves have the sums of both.
        let row = |n: usize, x: &Tensor<2>| x.clone().narrow(0, n, 1);
        let parts = [0, 1].map(|n| judges.judge(&row(n, &made), &row(n, &truth)));
        let all = judgement();
        for (whole, parts) in [
            (all.adversarial, parts.clone().map(|part| part.adversarial)),
            (all.matching, parts.clone().map(|part| part.matching)),
            (all.discriminator, parts.map(|part| part.discriminator)),
        ] {
            let [a, b] = parts.map(|part| values(part.inner())[0]);
            let whole = values(whole.inner())[0];
            assert!((whole - a - b).abs() < 1e-4 * whole.abs(), "{whole} {a} {b}");
        }
    }
}
