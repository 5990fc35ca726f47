//! The neural vocoder: log-mel and pitch to waveform. A ConvNeXt trunk at the rate of frames says how much louder or quieter
//! harmonics and noise are in each bin than a source-filter prior has them (`tandem_audio::SourceFilter`, made on the host);
//! the inverse transform makes a waveform of their sum. Its last layer begins with zeros, so that the untrained network is
//! the prior itself, which is a vocoder already.

mod config;
mod inputs;

use burn::module::Module;
use burn::tensor::{Device, Tensor};

use crate::config::BlocksConfig;
use crate::discriminator::{Discriminators, Judgement};
use crate::inputs::to_device;
use crate::kernels::{Stft, inverse_stft, matmul, stft_magnitudes};
use crate::nn::{Conv1d, DepthwiseConv1d, Init, LayerNorm, Linear, Mlp};

use config::KERNEL_SIZE;

pub use config::{DiscriminatorConfig, VocoderConfig};
pub use inputs::{DeviceSpectra, HostVocoderInputs, VocoderInputs};

/// Features of a frame besides its mel: logarithm of the pitch, and whether there is one.
const PITCH_FEATURES: usize = 2;
/// The pitch whose logarithm counts as 0, in Hz.
const MIDDLE_HZ: f32 = 200.0;
/// The most that a gain is changed by, as a logarithm.
const MOST_GAIN: f32 = 9.0;

/// Transforms whose magnitudes are compared: short ones hear when something happens, long ones at which pitch.
const RESOLUTIONS: [Stft; 3] = [
    Stft { n_fft: 512, hop: 128, win_length: 512 },
    Stft { n_fft: 1024, hop: 256, win_length: 1024 },
    Stft { n_fft: 2048, hop: 512, win_length: 2048 },
];
/// Weight of the mel's term beside those of the spectra.
const MEL_WEIGHT: f64 = 4.0;
/// The same beside the terms of discriminators.
const ADVERSARIAL_MEL_WEIGHT: f64 = 45.0;

/// The vocoder.
#[derive(Module, Debug)]
pub struct NeuralVocoder {
    /// Mel and pitch to the trunk's width.
    pub input: Conv1d,
    /// ConvNeXt blocks.
    pub blocks: Vec<VocoderBlock>,
    /// Final norm.
    pub norm: LayerNorm,
    /// To the logarithms of the gains of harmonics and noise in each bin.
    pub output: Linear,
    /// What tells its waveforms from recordings, in stage 2; synthesis has no use for them.
    pub discriminators: Option<Discriminators>,
    n_fft: usize,
    hop_length: usize,
    win_length: usize,
}

/// Depthwise conv, LayerNorm, MLP, residual.
#[derive(Module, Debug)]
pub struct VocoderBlock {
    /// Depthwise conv over time.
    pub conv: DepthwiseConv1d,
    /// Norm.
    pub norm: LayerNorm,
    /// MLP of each frame.
    pub mlp: Mlp,
}

/// What the network knows of a frame's pitch (Hz, 0 where there is none).
pub fn pitch_features(hz: f32) -> [f32; PITCH_FEATURES] {
    if hz > 0.0 { [2.0 * (hz / MIDDLE_HZ).ln(), 1.0] } else { [0.0, 0.0] }
}

/// The mel that a loss compares.
#[derive(Clone, Debug, PartialEq)]
pub struct MelLoss {
    /// The filters, `[bins][n_mels]`.
    pub filters: Vec<f32>,
    /// Values below this count as this.
    pub floor: f32,
    /// Magnitudes are squared before the filters.
    pub power: bool,
}

/// The terms of a vocoder's loss, weighted.
#[derive(Clone, Debug)]
pub struct VocoderLosses {
    /// Absolute error of the log-mel.
    pub mel: Tensor<1>,
    /// Spectral convergence: error of the magnitudes as a share of them.
    pub convergence: Tensor<1>,
    /// Absolute error of the logarithms of the magnitudes.
    pub magnitude: Tensor<1>,
}

impl VocoderLosses {
    /// The names of the terms, in the order of [`VocoderLosses::values`].
    pub const NAMES: [&'static str; 3] = ["mel", "convergence", "magnitude"];

    /// The terms.
    pub fn terms(&self) -> Vec<Tensor<1>> {
        [&self.mel, &self.convergence, &self.magnitude].map(Clone::clone).to_vec()
    }

    /// What is minimized.
    pub fn total(&self) -> Tensor<1> {
        self.mel.clone() + self.convergence.clone() + self.magnitude.clone()
    }

    /// The terms side by side, without autodiff history.
    pub fn values(&self) -> Tensor<1> {
        Tensor::cat(self.terms().into_iter().map(Tensor::detach).collect(), 0)
    }
}

/// The terms of the loss of stage 2, weighted.
#[derive(Clone, Debug)]
pub struct AdversarialLosses {
    /// Absolute error of the log-mel.
    pub mel: Tensor<1>,
    /// How little its waveforms pass for recordings.
    pub adversarial: Tensor<1>,
    /// How different the discriminators' layers see the two.
    pub matching: Tensor<1>,
    /// How badly the discriminators tell the two apart: theirs alone.
    pub discriminator: Tensor<1>,
}

impl AdversarialLosses {
    /// The names of the terms, in the order of [`AdversarialLosses::terms`].
    pub const NAMES: [&'static str; 4] = ["mel", "adversarial", "matching", "discriminator"];

    /// The terms.
    pub fn terms(&self) -> Vec<Tensor<1>> {
        [&self.mel, &self.adversarial, &self.matching, &self.discriminator].map(Clone::clone).to_vec()
    }
}

impl NeuralVocoder {
    /// An untrained vocoder on a device.
    pub fn new(config: &VocoderConfig, seed: u64, device: &Device) -> NeuralVocoder {
        let (init, bins) = (Init::new(device, seed), config.stft().bins());
        let BlocksConfig { width, blocks, hidden } = config.trunk;
        let block = |n: usize| {
            let init = init.at(format_args!("blocks.{n}"));
            VocoderBlock {
                conv: DepthwiseConv1d::new(init.at("conv"), width, KERNEL_SIZE),
                norm: LayerNorm::new(init.at("norm"), width),
                mlp: Mlp::new(init.at("mlp"), width, hidden),
            }
        };
        NeuralVocoder {
            input: Conv1d::new(init.at("input"), config.n_mels + PITCH_FEATURES, width, KERNEL_SIZE),
            blocks: (0..blocks).map(block).collect(),
            norm: LayerNorm::new(init.at("norm"), width),
            output: Linear::scaled(init.at("output"), width, 2 * bins, 0.0),
            discriminators: config.discriminators.map(|config| Discriminators::new(init.at("discriminators"), config)),
            n_fft: config.n_fft,
            hop_length: config.hop_length,
            win_length: config.win_length,
        }
    }

    /// Frames on both sides of one that what is made of it depends on.
    pub fn reach(&self) -> usize {
        (KERNEL_SIZE / 2) * (self.blocks.len() + 1)
    }

    fn stft(&self) -> Stft {
        Stft { n_fft: self.n_fft, hop: self.hop_length, win_length: self.win_length }
    }

    /// Waveforms `[rows, samples]`, with the padding of the frames: half a frame at both ends.
    pub fn synthesize(&self, inputs: &VocoderInputs) -> Tensor<2> {
        let bins = self.stft().bins();
        let x = self.input.forward(inputs.features.clone());
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x, &inputs.lengths, &inputs.mask));
        let gains = self.output.forward(self.norm.forward(x)).clamp(-MOST_GAIN, MOST_GAIN).exp();
        let both = |first: usize| {
            let gains = gains.clone().narrow(2, first, bins);
            // One gain for the real and the imaginary part.
            Tensor::cat(vec![gains.clone(), gains], 2)
        };
        let spectra = inputs.harmonic.clone() * both(0) + inputs.noise.clone() * both(bins);
        inverse_stft(spectra, self.stft())
    }

    /// Waveforms that it makes, and those that it should have made, without the padding of the frames.
    fn waveforms(&self, inputs: &VocoderInputs) -> [Tensor<2>; 2] {
        let padding = self.n_fft / 2;
        [self.synthesize(inputs), inputs.waveform.clone()].map(|waveform| {
            let samples = waveform.dims()[1];
            waveform.narrow(1, padding, samples - 2 * padding)
        })
    }

    /// The loss of stage 2: that of the vocoder, and that of its discriminators.
    ///
    /// # Panics
    ///
    /// If it has none.
    pub fn adversarial_losses(&self, inputs: &VocoderInputs, mel: &MelLoss, clips: usize) -> AdversarialLosses {
        let [made, truth] = self.waveforms(inputs);
        let judges = self.discriminators.as_ref().expect("stage 2 has discriminators");
        let Judgement { adversarial, matching, discriminator } = judges.judge(&made, &truth);
        let clips = clips.max(1) as f64;
        AdversarialLosses {
            mel: self.mel_error(made, truth, mel).mul_scalar(ADVERSARIAL_MEL_WEIGHT / clips),
            adversarial: adversarial.div_scalar(clips),
            matching: matching.div_scalar(clips),
            discriminator: discriminator.div_scalar(clips),
        }
    }

    /// The loss of some rows of a batch that has `clips` clips in all.
    pub fn losses(&self, inputs: &VocoderInputs, mel: &MelLoss, clips: usize) -> VocoderLosses {
        let clips = clips.max(1) as f64;
        let [made, truth] = self.waveforms(inputs);
        let (mut convergence, mut magnitude) = (Vec::new(), Vec::new());
        // Of a segment that is shorter than a frame nothing is heard.
        let samples = made.dims()[1];
        for shape in RESOLUTIONS.into_iter().filter(|shape| shape.frames(samples) > 0) {
            let (made, truth) = (stft_magnitudes(made.clone(), shape), stft_magnitudes(truth.clone(), shape));
            let [rows, frames, bins] = made.dims();
            let values = (frames * bins).max(1);
            let flat = |x: Tensor<3>| x.reshape([rows, values]);
            let error = flat(made.clone() - truth.clone()).square().sum_dim(1).add_scalar(1e-12).sqrt();
            let size = flat(truth.clone()).square().sum_dim(1).sqrt();
            convergence.push((error / size).sum());
            magnitude.push(flat((made.log() - truth.log()).abs()).sum_dim(1).sum().div_scalar(values as f64));
        }
        let mean = |terms: Vec<Tensor<1>>| {
            let count = terms.len().max(1) as f64;
            let none = || Tensor::zeros([1], &made.device());
            terms.into_iter().reduce(|sum, term| sum + term).unwrap_or_else(none).div_scalar(count * clips)
        };
        let (convergence, magnitude) = (mean(convergence), mean(magnitude));
        VocoderLosses { mel: self.mel_error(made, truth, mel).mul_scalar(MEL_WEIGHT / clips), convergence, magnitude }
    }

    /// Mean absolute error of the log-mel, summed over rows.
    fn mel_error(&self, made: Tensor<2>, truth: Tensor<2>, mel: &MelLoss) -> Tensor<1> {
        let bins = self.stft().bins();
        let n_mels = mel.filters.len() / bins;
        let filters = to_device(mel.filters.clone(), [bins, n_mels], &made.device());
        let log_mel = |waveform: Tensor<2>| {
            let magnitudes = stft_magnitudes(waveform, self.stft());
            let [rows, frames, _] = magnitudes.dims();
            let magnitudes = if mel.power { magnitudes.square() } else { magnitudes };
            let bands = matmul(magnitudes.reshape([rows * frames, bins]), filters.clone());
            bands.clamp_min(mel.floor).log().reshape([rows, frames * n_mels])
        };
        let (made, truth) = (log_mel(made), log_mel(truth));
        let values = made.dims()[1].max(1);
        (made - truth).abs().sum_dim(1).sum().div_scalar(values as f64)
    }
}

impl VocoderBlock {
    fn forward(&self, x: Tensor<3>, lengths: &[usize], mask: &Tensor<3>) -> Tensor<3> {
        let y = self.conv.forward(x.clone(), 1, lengths, mask);
        self.mlp.forward_add(self.norm.forward(y), x)
    }
}

#[cfg(test)]
mod tests {
    use tandem_flow::Random;

    use super::*;
    use crate::config::Size;

    const STFT: Stft = Stft { n_fft: 256, hop: 64, win_length: 256 };

    fn random(seed: u64, count: usize) -> Vec<f32> {
        let mut values = vec![0.0; count];
        Random::new(seed).fill_normal(&mut values);
        values
    }

    /// Two segments, the second one shorter than the first.
    fn inputs(frames: usize) -> HostVocoderInputs {
        let lengths = vec![frames, frames / 2];
        let padded = |seed: u64, width: usize| {
            let mut values = random(seed, 2 * frames * width);
            values[(frames + frames / 2) * width..].fill(0.0);
            values
        };
        HostVocoderInputs {
            rows: 2,
            frames,
            features: padded(1, 12),
            harmonic: padded(2, 2 * STFT.bins()),
            noise: padded(3, 2 * STFT.bins()),
            waveform: random(4, 2 * STFT.samples(frames)),
            lengths,
        }
    }

    fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().try_into_vec().expect("single precision")
    }

    fn mel_loss() -> MelLoss {
        MelLoss { filters: random(5, STFT.bins() * 10).into_iter().map(f32::abs).collect(), floor: 1e-5, power: false }
    }

    #[test]
    fn an_untrained_vocoder_is_its_prior() {
        let config = VocoderConfig::new(Size::Smoke, 10, STFT);
        let model = NeuralVocoder::new(&config, 1, &Device::flex());
        let inputs = inputs(20).upload(&Device::flex());
        let prior = inverse_stft(inputs.harmonic.clone() + inputs.noise.clone(), STFT);
        assert_eq!(values(model.synthesize(&inputs)), values(prior));
    }

    #[test]
    fn the_loss_of_micro_batches_is_that_of_the_batch_and_reaches_every_part() {
        let config = VocoderConfig::new(Size::Smoke, 10, STFT);
        let device = Device::flex().autodiff();
        let model = NeuralVocoder::new(&config, 1, &device);
        // Long enough for the longest of the resolutions.
        let inputs = inputs(60).upload(&device);
        let whole = model.losses(&inputs, &mel_loss(), 2);
        let halves = [0..1, 1..2].map(|rows| values(model.losses(&inputs.micro_batch(rows), &mel_loss(), 2).values()));
        for (n, value) in values(whole.values()).into_iter().enumerate() {
            let sum = halves[0][n] + halves[1][n];
            assert!((value - sum).abs() < 1e-4 * value.abs(), "{}: {value} {sum}", VocoderLosses::NAMES[n]);
        }
        let grads = whole.total().backward();
        let grad = model.output.weight.val().grad(&grads).expect("a gradient");
        assert!(values(grad.abs().sum())[0] > 0.0);
    }

    #[test]
    fn every_size_is_believed_and_shapes_that_no_file_can_fill_are_not() {
        for size in Size::ALL {
            assert_eq!(VocoderConfig::new(size, 80, STFT).check(), Ok(()), "{size}");
        }
        let mut config = VocoderConfig::new(Size::Smoke, 80, STFT);
        let tensors = crate::weights::export(&NeuralVocoder::new(&config, 1, &Device::flex()));
        let count = tensors.values().map(|tensor| tensor.values.len()).sum();
        assert!(config.can_have(count));
        config.trunk.hidden = 1 << 19;
        assert!(!config.can_have(count));
        config.hop_length = 0;
        assert_eq!(config.check(), Err("no vocoder has hop_length = 0".to_owned()));
    }
}
