//! Batches for a vocoder: on the host, and on its device.

use burn::tensor::{Device, Tensor};

use crate::inputs::{bring, mask, to_device};

/// A batch for a vocoder on the host; what is beyond a row's length is 0.
#[derive(Clone, Debug, Default)]
pub struct HostVocoderInputs {
    /// Rows.
    pub rows: usize,
    /// Frames of each row, padding included.
    pub frames: usize,
    /// True numbers of frames.
    pub lengths: Vec<usize>,
    /// Normalized log-mel and [`pitch_features`](crate::pitch_features), `rows * frames * (n_mels + 2)`.
    pub features: Vec<f32>,
    /// Spectra of the harmonics, `rows * frames * 2 bins`.
    pub harmonic: Vec<f32>,
    /// Spectra of the noise, likewise.
    pub noise: Vec<f32>,
    /// The waveforms to learn, with the padding of the frames, `rows * samples`; empty for synthesis.
    pub waveform: Vec<f32>,
}

/// Features and spectra of a batch that were computed on another device, in the shapes of [`VocoderInputs`].
#[derive(Clone, Debug)]
pub struct DeviceSpectra {
    /// `[rows, frames, n_mels + 2]`.
    pub features: Tensor<3>,
    /// `[rows, frames, 2 bins]`.
    pub harmonic: Tensor<3>,
    /// `[rows, frames, 2 bins]`.
    pub noise: Tensor<3>,
}

impl DeviceSpectra {
    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        let size = |tensor: &Tensor<3>| 4 * tensor.dims().iter().product::<usize>();
        [&self.features, &self.harmonic, &self.noise].map(size).iter().sum()
    }
}

/// A batch for a vocoder on its device.
#[derive(Clone, Debug)]
pub struct VocoderInputs {
    /// `[rows, frames, n_mels + 2]`.
    pub features: Tensor<3>,
    /// `[rows, frames, 2 bins]`.
    pub harmonic: Tensor<3>,
    /// `[rows, frames, 2 bins]`.
    pub noise: Tensor<3>,
    /// `[rows, samples]`.
    pub waveform: Tensor<2>,
    /// True numbers of frames.
    pub lengths: Vec<usize>,
    /// The same as a mask, `[rows, frames, 1]`.
    pub mask: Tensor<3>,
}

impl HostVocoderInputs {
    /// Bytes that it takes on a device.
    pub fn bytes(&self) -> usize {
        4 * (self.features.len()
            + self.harmonic.len()
            + self.noise.len()
            + self.waveform.len()
            + self.rows * self.frames)
    }

    /// Uploads it.
    pub fn upload(self, device: &Device) -> VocoderInputs {
        self.upload_with(None, device)
    }

    /// Uploads it, with features and spectra that were computed on another device if there are any.
    pub fn upload_with(self, computed: Option<DeviceSpectra>, device: &Device) -> VocoderInputs {
        let (rows, frames) = (self.rows, self.frames);
        let spectra = |values: Vec<f32>| {
            let width = values.len() / (rows * frames).max(1);
            to_device(values, [rows, frames, width], device)
        };
        let samples = self.waveform.len() / rows.max(1);
        let [features, harmonic, noise] = match computed {
            Some(made) => [made.features, made.harmonic, made.noise].map(|tensor| bring(tensor, device)),
            None => [self.features, self.harmonic, self.noise].map(spectra),
        };
        VocoderInputs {
            features,
            harmonic,
            noise,
            waveform: to_device(self.waveform, [rows, samples], device),
            mask: mask(&self.lengths, frames, device),
            lengths: self.lengths,
        }
    }

    /// Some of the rows.
    pub fn rows(&self, rows: std::ops::Range<usize>) -> HostVocoderInputs {
        let cut = |values: &[f32]| {
            let row = values.len() / self.rows.max(1);
            values[rows.start * row..rows.end * row].to_vec()
        };
        HostVocoderInputs {
            rows: rows.len(),
            frames: self.frames,
            lengths: self.lengths[rows.clone()].to_vec(),
            features: cut(&self.features),
            harmonic: cut(&self.harmonic),
            noise: cut(&self.noise),
            waveform: cut(&self.waveform),
        }
    }
}

impl VocoderInputs {
    /// Rows.
    pub fn rows(&self) -> usize {
        self.lengths.len()
    }

    /// Rows that have a clip.
    pub fn clips(&self) -> usize {
        self.lengths.iter().filter(|length| **length > 0).count()
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        let size = |tensor: &Tensor<3>| tensor.dims().iter().product::<usize>();
        let values = [&self.features, &self.harmonic, &self.noise, &self.mask].map(size).iter().sum::<usize>();
        4 * (values + self.waveform.dims().iter().product::<usize>()) as u64
    }

    /// A micro-batch: some of the rows.
    pub fn micro_batch(&self, rows: std::ops::Range<usize>) -> VocoderInputs {
        if rows == (0..self.rows()) {
            return self.clone();
        }
        let cut = |tensor: &Tensor<3>| tensor.clone().slice([rows.clone()]);
        VocoderInputs {
            features: cut(&self.features),
            harmonic: cut(&self.harmonic),
            noise: cut(&self.noise),
            waveform: self.waveform.clone().slice([rows.clone()]),
            mask: cut(&self.mask),
            lengths: self.lengths[rows].to_vec(),
        }
    }

    /// The devices that its tensors are on, which should all be one.
    pub fn devices(&self) -> Vec<Device> {
        let spectra = [&self.features, &self.harmonic, &self.noise, &self.mask].map(Tensor::device);
        spectra.into_iter().chain([self.waveform.device()]).map(Device::inner).collect()
    }
}
