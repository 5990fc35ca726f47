//! What a vocoder learns from on the data lane's device: features of segments, and the spectra of source and filter. The same as
//! [`SourceFilter`] makes on the host, for a whole batch at once; the excitation itself is made there sample by sample, because a phase
//! depends on all before it.

use burn::tensor::{Tensor, TensorData};
use burn_signal::rfft;
use tandem_audio::{MOST_LOG_MEL, SourceFilter};
use tandem_model::{DeviceSpectra, pitch_features};

use super::{DataLane, LaneError};

/// Tables of source and filter on the lane's device.
#[derive(Debug)]
pub(super) struct SourceOnDevice {
    /// `[1, n_mels, bins]`.
    interpolation: Tensor<3>,
    /// `[1, 1, n_mels]`.
    areas: Tensor<3>,
    /// `[1, 1, bins]`.
    noise_share: Tensor<3>,
    /// `[1, 1, bins]`.
    harmonic_share: Tensor<3>,
    bins: usize,
}

/// Segments of a batch's clips before features are made of them; what is beyond a row's length is 0.
#[derive(Debug, Default)]
pub struct RawSegments {
    /// Frames of each row, padding included.
    pub frames: usize,
    /// True numbers of frames.
    pub lengths: Vec<usize>,
    /// Waveforms with the padding of the frames, `rows * samples`.
    pub waveform: Vec<f32>,
    /// What excites the harmonics, likewise.
    pub harmonics: Vec<f32>,
    /// What excites the noise, likewise.
    pub noise: Vec<f32>,
    /// Hz of each frame, 0 where there is none, `rows * frames`.
    pub pitch: Vec<f32>,
    /// Log-mels of the rows whose mel is that of an acoustic run, `[frames][n_mels]` each.
    pub predicted: Vec<Option<Vec<f32>>>,
}

impl RawSegments {
    /// Some of the rows.
    fn rows(&self, rows: std::ops::Range<usize>) -> RawSegments {
        let cut = |values: &[f32]| {
            let row = values.len() / self.lengths.len().max(1);
            values[rows.start * row..rows.end * row].to_vec()
        };
        RawSegments {
            frames: self.frames,
            lengths: self.lengths[rows.clone()].to_vec(),
            waveform: cut(&self.waveform),
            harmonics: cut(&self.harmonics),
            noise: cut(&self.noise),
            pitch: cut(&self.pitch),
            predicted: self.predicted[rows].to_vec(),
        }
    }
}

impl DataLane {
    /// Can make [`DataLane::spectra`], too.
    pub fn with_source(mut self, source: &SourceFilter) -> DataLane {
        let (tables, bins, n_mels) = (source.tables(), source.bins(), self.settings.n_mels);
        let tensor =
            |values: Vec<f32>, shape: [usize; 3]| Tensor::from_data(TensorData::new(values, shape), &self.device);
        self.source = Some(SourceOnDevice {
            interpolation: tensor(tables.interpolation, [1, n_mels, bins]),
            areas: tensor(tables.areas, [1, 1, n_mels]),
            noise_share: tensor(tables.noise_share, [1, 1, bins]),
            harmonic_share: tensor(tables.harmonic_share, [1, 1, bins]),
            bins,
        });
        self
    }

    /// Bytes that the work on a segment of so many frames takes: three transforms, the envelope, and results.
    fn segment_bytes(&self, frames: usize) -> usize {
        let bins = self.settings.n_fft / 2 + 1;
        3 * self.row_bytes(frames) + 4 * frames * bins * 8
    }

    /// Bytes that segments take here at once: their results, and the piece that is at work.
    pub fn segments_bytes(&self, rows: usize, frames: usize) -> usize {
        let bins = self.settings.n_fft / 2 + 1;
        let results = 4 * rows * frames * (self.settings.n_mels + 2 + 4 * bins);
        let row = self.segment_bytes(frames);
        results + (self.piece_bytes / row.max(1)).clamp(1, rows.max(1)) * row
    }

    /// Features and spectra of segments. Waits until the device is done, so that the time is seen.
    ///
    /// # Errors
    ///
    /// [`LaneError::Device`] if the device fails.
    ///
    /// # Panics
    ///
    /// Without [`DataLane::with_source`].
    pub fn spectra(&self, segments: &RawSegments, source: &SourceFilter) -> Result<DeviceSpectra, LaneError> {
        let rows = segments.lengths.len();
        let at_once = (self.piece_bytes / self.segment_bytes(segments.frames).max(1)).clamp(1, rows.max(1));
        let pieces: Vec<[Tensor<3>; 3]> = (0..rows)
            .step_by(at_once)
            .map(|first| self.spectra_piece(&segments.rows(first..(first + at_once).min(rows)), source))
            .collect();
        let joined = |n: usize| match &pieces[..] {
            [one] => one[n].clone(),
            many => Tensor::cat(many.iter().map(|piece| piece[n].clone()).collect(), 0),
        };
        let made = DeviceSpectra { features: joined(0), harmonic: joined(1), noise: joined(2) };
        self.device.sync().map_err(|error| LaneError::Device(error.into()))?;
        self.gauge.read(&self.device);
        Ok(made)
    }

    fn spectra_piece(&self, segments: &RawSegments, source: &SourceFilter) -> [Tensor<3>; 3] {
        let tables = self.source.as_ref().expect("a lane for segments has the tables of source and filter");
        let (rows, frames, n_mels) = (segments.lengths.len(), segments.frames, self.settings.n_mels);
        let tensor = |values: Vec<f32>, width: usize| {
            Tensor::<3>::from_data(TensorData::new(values, [rows, frames, width]), &self.device)
        };
        let mut mask = vec![0.0; rows * frames];
        for (row, &length) in mask.chunks_mut(frames).zip(&segments.lengths) {
            row[..length].fill(1.0);
        }
        let mask = tensor(mask, 1);
        let mut log_mel = self.log_mel(segments.waveform.clone(), rows);
        if segments.predicted.iter().any(Option::is_some) {
            let (mut values, mut is_predicted) = (vec![0.0; rows * frames * n_mels], vec![0.0; rows * frames]);
            for (row, mel) in segments.predicted.iter().enumerate() {
                if let Some(mel) = mel {
                    values[row * frames * n_mels..][..mel.len()].copy_from_slice(mel);
                    is_predicted[row * frames..][..frames].fill(1.0);
                }
            }
            let is_predicted = tensor(is_predicted, 1);
            log_mel = log_mel * (1.0 - is_predicted.clone()) + tensor(values, n_mels) * is_predicted;
        }
        let pitch = tensor(segments.pitch.iter().flat_map(|hz| pitch_features(*hz)).collect(), 2);
        let normalized = (log_mel.clone() - self.mean.clone()) * self.scale.clone();
        let features = Tensor::cat(vec![normalized, pitch], 2) * mask.clone();

        let envelope = self.envelope(log_mel, segments, source, tables) * mask;
        let voiced = tensor(segments.pitch.iter().map(|hz| f32::from(*hz > 0.0)).collect(), 1);
        let noise_share = tables.noise_share.clone() * voiced.clone() + (1.0 - voiced);
        let spectra = |samples: &[f32], gain: Tensor<3>| {
            let (real, imaginary) = self.transform(samples.to_vec(), rows);
            Tensor::cat(vec![real * gain.clone(), imaginary * gain], 2)
        };
        let harmonic = spectra(&segments.harmonics, envelope.clone() * tables.harmonic_share.clone());
        [features, harmonic, spectra(&segments.noise, envelope * noise_share)]
    }

    /// The mean magnitude around each bin, averaged over a period of the harmonics: `[rows, frames, bins]`.
    fn envelope(
        &self,
        log_mel: Tensor<3>,
        segments: &RawSegments,
        source: &SourceFilter,
        tables: &SourceOnDevice,
    ) -> Tensor<3> {
        let (rows, frames, bins) = (segments.lengths.len(), segments.frames, tables.bins);
        let scale = if self.settings.power { 0.5 } else { 1.0 };
        let bands = (log_mel.clamp_max(MOST_LOG_MEL) - tables.areas.clone()) * scale;
        let envelope = bands.matmul(tables.interpolation.clone()).exp();
        let reaches: Vec<usize> = segments.pitch.iter().map(|hz| source.reach(*hz)).collect();
        let most = reaches.iter().copied().max().unwrap_or(0);
        // Shifted by each distance in turn: sums over all bins, and their differences, would lose what is quiet beside what is loud.
        let padded = |values: Tensor<3>| {
            let [rows, frames, _] = values.dims();
            let beside = Tensor::zeros([rows, frames, most], &self.device);
            Tensor::cat(vec![beside.clone(), values, beside], 2)
        };
        let ones = padded(Tensor::ones([1, 1, bins], &self.device));
        let around = padded(envelope.clone());
        let (mut sum, mut count) = (envelope, Tensor::ones([1, 1, bins], &self.device));
        for distance in 1..=most {
            let within = reaches.iter().map(|reach| f32::from(*reach >= distance)).collect::<Vec<f32>>();
            let within = Tensor::<3>::from_data(TensorData::new(within, [rows, frames, 1]), &self.device);
            for first in [most - distance, most + distance] {
                sum = sum + around.clone().slice([0..rows, 0..frames, first..first + bins]) * within.clone();
                count = count + ones.clone().slice([0..1, 0..1, first..first + bins]) * within.clone();
            }
        }
        sum / count
    }

    /// Windows of rows of samples, transformed: real and imaginary parts, `[rows, frames, bins]`.
    pub(super) fn transform(&self, samples: Vec<f32>, rows: usize) -> (Tensor<3>, Tensor<3>) {
        let stride = samples.len() / rows;
        let signal = Tensor::<2>::from_data(TensorData::new(samples, [rows, stride]), &self.device);
        let windows: Tensor<3> = signal.unfold(1, self.settings.n_fft, self.settings.hop_length);
        rfft(windows * self.window.clone(), 2, None)
    }
}
