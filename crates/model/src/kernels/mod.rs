//! The operations where most of a step is spent. On the CPU they are done in one piece (`cpu.rs`, made known to Burn in
//! `fused.rs`, `fused/gradients.rs`); on other devices they are put together from what Burn has (`composed.rs`). Both give the
//! same, up to rounding.

mod attention;
mod composed;
mod cpu;
mod fused;
mod precision;
mod stft;
mod taps;
mod threads;
mod unfold;
mod unwritten;

use burn::backend::{Dispatch, DispatchDevice, Flex};
use burn::tensor::{Device, Int, Tensor};

use fused::FusedOps;
pub use precision::with_half_matmuls;
pub(crate) use precision::{half_matmuls, matmul};
/// Why threads could not be started.
pub use rayon::ThreadPoolBuildError;
pub use stft::Stft;
pub(crate) use taps::tapped;
pub use taps::with_early_gradients;
pub use threads::compute_here;
pub(crate) use unfold::Unfold;

/// The vector units that the CPU's operations use on this machine, if it has any of those they know.
pub fn cpu_vectors() -> Option<&'static str> {
    cpu::vectors()
}

fn is_cpu(device: &Device) -> bool {
    matches!(device.clone().inner().as_dispatch(), DispatchDevice::Flex(_))
}

/// `y = x Wᵀ + b` with `W` `[out, in]`.
pub(crate) fn linear<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Tensor<1>) -> Tensor<D> {
    if is_cpu(&x.device()) && !half_matmuls() {
        let y = Dispatch::fused_dense(x.into_dispatch(), weight.into_dispatch(), bias.into_dispatch());
        return Tensor::from_dispatch(y);
    }
    composed::linear(x, weight, bias)
}

/// `residual + x Wᵀ + b`.
pub(crate) fn linear_add<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Tensor<1>,
    residual: Tensor<D>,
) -> Tensor<D> {
    if is_cpu(&x.device()) && !half_matmuls() {
        return Tensor::from_dispatch(Dispatch::fused_dense_add(
            x.into_dispatch(),
            weight.into_dispatch(),
            bias.into_dispatch(),
            residual.into_dispatch(),
        ));
    }
    residual + composed::linear(x, weight, bias)
}

/// GELU, tanh approximation.
pub(crate) fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    if is_cpu(&x.device()) {
        return Tensor::from_dispatch(Dispatch::fused_gelu(x.into_dispatch()));
    }
    composed::gelu(x)
}

/// Normalises over the last dimension.
pub(crate) fn layer_norm<const D: usize>(x: Tensor<D>, weight: Tensor<1>, bias: Tensor<1>) -> Tensor<D> {
    if is_cpu(&x.device()) {
        let y = Dispatch::fused_norm(x.into_dispatch(), weight.into_dispatch(), bias.into_dispatch());
        return Tensor::from_dispatch(y);
    }
    composed::layer_norm(x, weight, bias)
}

/// Normalises the last dimension of `[batch, time, channels]`, then `y (1 + scale) + shift` with `[batch, channels]`.
pub(crate) fn modulated_norm(
    x: Tensor<3>,
    weight: Tensor<1>,
    bias: Tensor<1>,
    scale: Tensor<2>,
    shift: Tensor<2>,
) -> Tensor<3> {
    if is_cpu(&x.device()) {
        return Tensor::from_dispatch(Dispatch::fused_modulated_norm(
            x.into_dispatch(),
            weight.into_dispatch(),
            bias.into_dispatch(),
            scale.into_dispatch(),
            shift.into_dispatch(),
        ));
    }
    composed::modulated_norm(x, weight, bias, scale, shift)
}

/// Each channel by itself over time, `[batch, time, channels]`; weights are `[kernel_size, channels]`. What is beyond a row's
/// length counts as 0; `mask` `[batch, time, 1]` says the same as `lengths`.
pub(crate) fn depthwise_conv(
    x: Tensor<3>,
    weight: Tensor<2>,
    bias: Tensor<1>,
    dilation: usize,
    lengths: &[usize],
    mask: &Tensor<3>,
) -> Tensor<3> {
    if is_cpu(&x.device()) {
        return Tensor::from_dispatch(Dispatch::fused_depthwise(
            x.into_dispatch(),
            weight.into_dispatch(),
            bias.into_dispatch(),
            dilation,
            lengths.to_vec(),
        ));
    }
    composed::depthwise_conv(x, weight, bias, dilation, mask)
}

/// The neighbors of each position side by side, `[batch, length, taps * channels]`: a convolution is then a matmul.
pub(crate) fn unfold(x: Tensor<3>, shape: Unfold) -> Tensor<3> {
    if is_cpu(&x.device()) {
        return Tensor::from_dispatch(Dispatch::fused_unfold(x.into_dispatch(), shape));
    }
    composed::unfold(x, shape)
}

/// Rotary position embedding of `[batch, time, heads * channels]` with tables `[1, 1, time, channels]`.
pub(crate) fn rotate(x: Tensor<3>, cos: Tensor<4>, sin: Tensor<4>, heads: usize) -> Tensor<3> {
    if is_cpu(&x.device()) {
        let y = Dispatch::fused_rotate(x.into_dispatch(), cos.into_dispatch(), sin.into_dispatch(), heads);
        return Tensor::from_dispatch(y);
    }
    composed::rotate(x, cos, sin, heads)
}

/// `softmax(q kᵀ / sqrt(channels) + bias) v` of each head; all are `[batch, time, heads * channels]`, `bias` is `[batch, 1, 1, keys]`.
pub(crate) fn attention(
    query: Tensor<3>,
    key: Tensor<3>,
    value: Tensor<3>,
    bias: Tensor<4>,
    heads: usize,
) -> Tensor<3> {
    if is_cpu(&query.device()) && !half_matmuls() {
        return Tensor::from_dispatch(Dispatch::fused_attention(
            query.into_dispatch(),
            key.into_dispatch(),
            value.into_dispatch(),
            bias.into_dispatch(),
            heads,
        ));
    }
    composed::attention(query, key, value, bias, heads)
}

/// The rows of `weight` that `ids` names, `[batch, time, channels]`.
pub(crate) fn embedding(weight: Tensor<2>, ids: Tensor<2, Int>) -> Tensor<3> {
    let [batch, time] = ids.dims();
    let channels = weight.dims()[1];
    weight.select(0, ids.reshape([batch * time])).reshape([batch, time, channels])
}

/// Magnitudes `[rows, frames, bins]` of the short-time Fourier transform of waveforms `[rows, samples]`; a little above 0 in
/// silence.
pub(crate) fn stft_magnitudes(x: Tensor<2>, shape: Stft) -> Tensor<3> {
    if is_cpu(&x.device()) {
        return Tensor::from_dispatch(Dispatch::fused_stft_magnitudes(x.into_dispatch(), shape));
    }
    composed::stft_magnitudes(x, shape)
}

/// Waveforms `[rows, samples]` of spectra `[rows, frames, 2 bins]`, real parts before imaginary ones: windowed frames added
/// where they overlap, divided by the sum of the squared windows.
pub(crate) fn inverse_stft(spectra: Tensor<3>, shape: Stft) -> Tensor<2> {
    if is_cpu(&spectra.device()) {
        return Tensor::from_dispatch(Dispatch::fused_inverse_stft(spectra.into_dispatch(), shape));
    }
    composed::inverse_stft(spectra, shape)
}

/// Hyperparameters of one AdamW step.
#[derive(Clone, Copy, Debug)]
pub struct Adam {
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Keeps divisions finite.
    pub epsilon: f32,
    /// Learning rate.
    pub lr: f32,
    /// Learning rate times weight decay.
    pub weight_decay: f32,
    /// `1 - beta1^step`.
    pub bias_correction1: f32,
    /// `1 - beta2^step`.
    pub bias_correction2: f32,
    /// Gradients are clipped to this global norm.
    pub max_grad_norm: f32,
}

/// The sum of squares. The order of additions does not depend on threads.
pub fn square_sum(x: Tensor<2>) -> Tensor<1> {
    if is_cpu(&x.device())
        && let Ok(x) = x.clone().try_into_primitive::<Flex>()
    {
        return Tensor::from_primitive::<Flex>(fused::square_sum(&x));
    }
    composed::square_sum(x)
}

/// One AdamW step of a parameter: its new value, mean and mean square. When `norm`, that of all gradients, is not
/// finite, nothing changes.
pub fn adam_update(
    value: Tensor<2>,
    grad: Tensor<2>,
    mean: Tensor<2>,
    square: Tensor<2>,
    norm: Tensor<1>,
    adam: Adam,
) -> (Tensor<2>, Tensor<2>, Tensor<2>) {
    if is_cpu(&value.device()) {
        let plain = |tensor: Tensor<2>| tensor.try_into_primitive::<Flex>().expect("on the CPU, without history");
        let norm = norm.try_into_primitive::<Flex>().expect("on the CPU, without history");
        let (value, mean, square) = fused::adam(plain(value), &plain(grad), plain(mean), plain(square), &norm, &adam);
        return (
            Tensor::from_primitive::<Flex>(value),
            Tensor::from_primitive::<Flex>(mean),
            Tensor::from_primitive::<Flex>(square),
        );
    }
    composed::adam_update(value, grad, mean, square, norm, adam)
}

/// One step of an exponential moving average: `decay * average + (1 - decay) * value`.
pub fn ema_update(average: Tensor<2>, value: Tensor<2>, decay: f64) -> Tensor<2> {
    if is_cpu(&average.device()) {
        let plain = |tensor: Tensor<2>| tensor.try_into_primitive::<Flex>().expect("on the CPU, without history");
        return Tensor::from_primitive::<Flex>(fused::ema(plain(average), &plain(value), decay));
    }
    composed::ema_update(average, value, decay)
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;
    use tandem_flow::Random;

    use super::*;

    fn random<const D: usize>(seed: u64, shape: [usize; D]) -> Tensor<D> {
        let mut values = vec![0.0; shape.iter().product()];
        Random::new(seed).fill_normal(&mut values);
        Tensor::from_data(TensorData::new(values, shape), &Device::flex().autodiff()).require_grad()
    }

    fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().try_into_vec().expect("single precision")
    }

    fn assert_close(a: &[f32], b: &[f32], what: &str) {
        assert_eq!(a.len(), b.len(), "{what}");
        let size = b.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
        for (a, b) in a.iter().zip(b) {
            assert!((a - b).abs() <= 2e-5 * size + 1e-6, "{what}: {a} {b} (largest {size})");
        }
    }

    /// Results and gradients of both forms, for a loss that weighs every element differently.
    fn compare<const D: usize>(
        fused: Tensor<D>,
        composed: Tensor<D>,
        inputs: &dyn Fn(&burn::tensor::Gradients) -> Vec<Vec<f32>>,
        what: &str,
    ) {
        assert_close(&values(fused.clone().inner()), &values(composed.clone().inner()), what);
        let weights = random(99, fused.dims()).detach();
        let a = inputs(&(fused * weights.clone()).sum().backward());
        let b = inputs(&(composed * weights).sum().backward());
        for (n, (a, b)) in a.iter().zip(&b).enumerate() {
            assert_close(a, b, &format!("{what}, gradient of input {n}"));
        }
    }

    macro_rules! grads {
        ($($tensor:ident),*) => {
            &|grads: &burn::tensor::Gradients| vec![$(values($tensor.grad(grads).expect("a gradient"))),*]
        };
    }

    #[test]
    fn fused_and_composed_operations_give_the_same() {
        // Sizes that are no multiples of anything, and enough rows for several blocks.
        let (x, w, b, r) = (random(1, [3, 101, 37]), random(2, [29, 37]), random(3, [29]), random(4, [3, 101, 29]));
        compare(
            linear(x.clone(), w.clone(), b.clone()),
            composed::linear(x.clone(), w.clone(), b.clone()),
            grads!(x, w, b),
            "linear",
        );
        let added = r.clone() + composed::linear(x.clone(), w.clone(), b.clone());
        compare(linear_add(x.clone(), w.clone(), b.clone(), r.clone()), added, grads!(x, w, b, r), "linear_add");
        compare(gelu(x.clone()), composed::gelu(x.clone()), grads!(x), "gelu");
        let (w, b) = (random(5, [37]), random(6, [37]));
        compare(
            layer_norm(x.clone(), w.clone(), b.clone()),
            composed::layer_norm(x.clone(), w.clone(), b.clone()),
            grads!(x, w, b),
            "norm",
        );
        let (scale, shift) = (random(7, [3, 37]), random(8, [3, 37]));
        compare(
            modulated_norm(x.clone(), w.clone(), b.clone(), scale.clone(), shift.clone()),
            composed::modulated_norm(x.clone(), w.clone(), b.clone(), scale.clone(), shift.clone()),
            grads!(x, w, b, scale, shift),
            "modulated norm",
        );
        let kernel = random(9, [7, 37]);
        for dilation in [1, 2, 4] {
            let lengths = [101, 60, 1];
            let mask = crate::inputs::mask(&lengths, 101, &x.device());
            compare(
                depthwise_conv(x.clone(), kernel.clone(), b.clone(), dilation, &lengths, &mask),
                composed::depthwise_conv(x.clone(), kernel.clone(), b.clone(), dilation, &mask),
                grads!(x, kernel, b),
                "depthwise",
            );
        }
    }

    #[test]
    fn fused_and_composed_convolutions_and_attention_give_the_same() {
        let x = random(1, [3, 101, 12]);
        for (kernel_size, first, taps, stride) in [(3, 0, 3, 1), (5, 0, 5, 1), (5, 0, 3, 1), (5, 2, 1, 1), (3, 0, 3, 2)]
        {
            let shape = Unfold { kernel_size, first, taps, stride };
            compare(unfold(x.clone(), shape), composed::unfold(x.clone(), shape), grads!(x), &format!("{shape:?}"));
        }
        let even = random(2, [2, 8, 5]);
        let shape = Unfold { kernel_size: 3, first: 0, taps: 3, stride: 2 };
        compare(unfold(even.clone(), shape), composed::unfold(even.clone(), shape), grads!(even), "an even length");
        let heads = 2;
        let [cos, sin] = [3, 4].map(|seed| random(seed, [1, 1, 101, 6]).detach());
        compare(
            rotate(x.clone(), cos.clone(), sin.clone(), heads),
            composed::rotate(x.clone(), cos, sin, heads),
            grads!(x),
            "rotate",
        );
        let (query, key, value) = (random(5, [3, 33, 12]), random(6, [3, 101, 12]), random(7, [3, 101, 12]));
        // A row with all keys, one with some, one with a single one.
        let bias = (0..3 * 101).map(|n| if n % 101 < [101, 40, 1][n / 101] { 0.0 } else { -1e4 }).collect::<Vec<f32>>();
        let bias = Tensor::<4>::from_data(TensorData::new(bias, [3, 1, 1, 101]), &x.device());
        compare(
            attention(query.clone(), key.clone(), value.clone(), bias.clone(), heads),
            composed::attention(query.clone(), key.clone(), value.clone(), bias, heads),
            grads!(query, key, value),
            "attention",
        );
    }

    #[test]
    fn fused_and_composed_transforms_give_the_same() {
        // A hop that divides the frame, one that does not, and a window shorter than the frame.
        for (n_fft, hop, win_length) in [(64, 16, 64), (60, 25, 60), (64, 20, 48)] {
            let shape = Stft { n_fft, hop, win_length };
            let x = random(1, [3, n_fft + 7 * hop + 5]);
            compare(
                stft_magnitudes(x.clone(), shape),
                composed::stft_magnitudes(x.clone(), shape),
                grads!(x),
                "magnitudes",
            );
            let spectra = random(2, [3, 7, 2 * shape.bins()]);
            compare(
                inverse_stft(spectra.clone(), shape),
                composed::inverse_stft(spectra.clone(), shape),
                grads!(spectra),
                "inverse",
            );
        }
    }

    #[test]
    fn gradients_of_transforms_are_those_of_finite_differences() {
        let shape = Stft { n_fft: 16, hop: 4, win_length: 16 };
        let plain = |values: &[f32], dims: [usize; 2]| {
            Tensor::<2>::from_data(TensorData::new(values.to_vec(), dims), &Device::flex())
        };
        let x = values(random(1, [1, 40]).inner());
        let weights = random(7, [1, 7, 9]).inner();
        let loss = |x: &[f32]| values((stft_magnitudes(plain(x, [1, 40]), shape) * weights.clone()).sum())[0];
        let tracked = random(1, [1, 40]);
        let by_adjoint = values(
            tracked
                .grad(&(stft_magnitudes(tracked.clone(), shape) * Tensor::from_inner(weights.clone())).sum().backward())
                .expect("a gradient"),
        );
        for n in [0, 3, 17, 39] {
            let at = |by: f32| {
                let mut x = x.clone();
                x[n] += by;
                loss(&x)
            };
            let difference = (at(1e-2) - at(-1e-2)) / 2e-2;
            assert!((difference - by_adjoint[n]).abs() < 2e-2, "{n}: {difference} {}", by_adjoint[n]);
        }
    }

    #[test]
    fn the_inverse_of_a_transform_is_the_waveform() {
        use burn::tensor::TensorData;
        let shape = Stft { n_fft: 64, hop: 16, win_length: 64 };
        let (x, frames) = (values(random(1, [1, shape.samples(12)]).inner()), 12);
        let mut fft = realfft::RealFftPlanner::<f32>::new();
        let (fft, window) = (fft.plan_fft_forward(64), shape.window());
        let mut spectra = Vec::new();
        for frame in 0..frames {
            let mut samples: Vec<f32> = x[frame * 16..].iter().zip(&window).map(|(x, w)| x * w).collect();
            let mut spectrum = fft.make_output_vec();
            fft.process(&mut samples, &mut spectrum).expect("of the planned length");
            spectra.extend(spectrum.iter().map(|z| z.re).chain(spectrum.iter().map(|z| z.im)));
        }
        let spectra = Tensor::<3>::from_data(TensorData::new(spectra, [1, frames, 2 * shape.bins()]), &Device::flex());
        let again = values(inverse_stft(spectra, shape));
        // At the ends windows do not overlap enough.
        assert_close(&again[32..x.len() - 32], &x[32..x.len() - 32], "waveform");
    }

    #[test]
    fn fused_and_composed_adam_give_the_same_and_leave_everything_when_a_gradient_is_not_finite() {
        let [value, grad, mean] = [1, 2, 3].map(|seed| random(seed, [5, 33]).inner());
        let square = random(4, [5, 33]).inner().square();
        let adam = Adam {
            beta1: 0.9,
            beta2: 0.98,
            epsilon: 1e-8,
            lr: 1e-2,
            weight_decay: 1e-3,
            bias_correction1: 0.3,
            bias_correction2: 0.1,
            max_grad_norm: 1.0,
        };
        let device = Device::flex();
        for norm in [0.5, 7.0, f32::NAN, f32::INFINITY] {
            let norm_tensor = || Tensor::<1>::from_data(TensorData::new(vec![norm], [1]), &device);
            let inputs = || (value.clone(), grad.clone(), mean.clone(), square.clone());
            let (a, b, c, d) = inputs();
            let fused = adam_update(a, b, c, d, norm_tensor(), adam);
            let (a, b, c, d) = inputs();
            let composed = composed::adam_update(a, b, c, d, norm_tensor(), adam);
            assert_close(&values(fused.0.clone()), &values(composed.0), "value");
            assert_close(&values(fused.1.clone()), &values(composed.1), "mean");
            assert_close(&values(fused.2), &values(composed.2), "square");
            let unchanged = values(fused.0) == values(value.clone()) && values(fused.1) == values(mean.clone());
            assert_eq!(unchanged, !norm.is_finite(), "norm {norm}");
        }
        assert_close(&values(square_sum(value.clone())), &values(composed::square_sum(value)), "square sum");
    }

    #[test]
    fn fused_and_composed_averages_are_the_same_to_the_bit_and_leave_the_old_one() {
        let [average, value] = [1, 2].map(|seed| random(seed, [5, 33]).inner());
        let before = values(average.clone());
        let fused = values(ema_update(average.clone(), value.clone(), 0.99));
        assert_eq!(fused, values(composed::ema_update(average.clone(), value, 0.99)));
        assert_eq!(values(average), before, "somebody else holds it");
        assert_ne!(fused, before);
    }
}
