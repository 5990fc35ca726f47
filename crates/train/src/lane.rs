//! The data lane's device: samples in, normalized log-mel out, a batch at a time. For a vocoder, segments in, features and spectra
//! out (`lane/segments.rs`).

mod segments;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use burn::tensor::{Tensor, TensorData};
use tandem_audio::{MelSettings, MelStats, hann_window, mel_filters};
use tandem_model::{Device, DeviceMel};

use crate::features::Prepared;
use segments::SourceOnDevice;

pub use segments::RawSegments;

/// What the windows of one piece may take on the device, unless something else is requested.
const PIECE_BYTES: usize = 256_000_000;

/// What a device says when it fails.
type DeviceError = Box<dyn Error + Send + Sync>;

/// Why the data lane's device cannot compute features.
#[derive(Debug)]
pub enum LaneError {
    /// It only has transforms whose length is a power of two; this is `n_fft`.
    NotAPowerOfTwo(usize),
    /// The device failed.
    Device(DeviceError),
}

impl fmt::Display for LaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaneError::NotAPowerOfTwo(n_fft) => {
                write!(f, "features on the data lane need a transform of a power of two, n_fft is {n_fft}")
            }
            LaneError::Device(error) => write!(f, "{error}"),
        }
    }
}

impl Error for LaneError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            LaneError::NotAPowerOfTwo(_) => None,
            LaneError::Device(error) => Some(&**error),
        }
    }
}

/// Computes features on a device. Its tables live there as long as it does.
#[derive(Debug)]
pub struct DataLane {
    device: Device,
    settings: MelSettings,
    /// `[1, 1, n_fft]`.
    window: Tensor<3>,
    /// `[1, bins, n_mels]`.
    filters: Tensor<3>,
    /// `[1, 1, n_mels]`.
    mean: Tensor<3>,
    /// One over the std, `[1, 1, n_mels]`.
    scale: Tensor<3>,
    /// For a vocoder.
    source: Option<SourceOnDevice>,
    piece_bytes: usize,
    gauge: Arc<Gauge>,
}

/// What the allocator of a device holds, for other threads to read without waiting for the device.
#[derive(Debug, Default)]
pub struct Gauge {
    in_use: AtomicU64,
    reserved: AtomicU64,
}

impl Gauge {
    fn read(&self, device: &Device) {
        if let Some(pool) = device.memory_pool_usage() {
            self.in_use.store(pool.bytes_in_use, Ordering::Relaxed);
            self.reserved.store(pool.bytes_reserved, Ordering::Relaxed);
        }
    }

    /// Bytes in use and bytes reserved; none if the device does not say.
    pub fn get(&self) -> Option<(u64, u64)> {
        let reserved = self.reserved.load(Ordering::Relaxed);
        (reserved > 0).then(|| (self.in_use.load(Ordering::Relaxed), reserved))
    }
}

impl DataLane {
    /// For these settings; an error when the device has no transform of that length.
    pub fn new(settings: &MelSettings, stats: &MelStats, device: &Device) -> Result<DataLane, LaneError> {
        let (n_fft, n_mels) = (settings.n_fft, settings.n_mels);
        if !n_fft.is_power_of_two() {
            return Err(LaneError::NotAPowerOfTwo(n_fft));
        }
        let bins = n_fft / 2 + 1;
        let mut filters = vec![0.0; bins * n_mels];
        for (mel, (first, weights)) in mel_filters(settings).into_iter().enumerate() {
            for (bin, weight) in weights.into_iter().enumerate() {
                filters[(first + bin) * n_mels + mel] = weight;
            }
        }
        let tensor = |values: Vec<f32>, shape: [usize; 3]| Tensor::from_data(TensorData::new(values, shape), device);
        Ok(DataLane {
            device: device.clone(),
            window: tensor(hann_window(settings), [1, 1, n_fft]),
            filters: tensor(filters, [1, bins, n_mels]),
            mean: tensor(stats.mean.clone(), [1, 1, n_mels]),
            scale: tensor(stats.std.iter().map(|std| 1.0 / std).collect(), [1, 1, n_mels]),
            settings: settings.clone(),
            source: None,
            piece_bytes: PIECE_BYTES,
            gauge: Arc::default(),
        })
    }

    /// Works in pieces of at most so many bytes, if that is less than usual.
    pub fn piece_bytes(mut self, bytes: usize) -> DataLane {
        self.piece_bytes = self.piece_bytes.min(bytes);
        self
    }

    /// What the allocator of its device holds, as it was after the last batch.
    pub fn gauge(&self) -> Arc<Gauge> {
        self.gauge.clone()
    }

    /// Bytes that the work on a row of so many frames takes: its samples, windows, spectra and results.
    pub fn row_bytes(&self, frames: usize) -> usize {
        let bins = self.settings.n_fft / 2 + 1;
        let values = self.settings.signal_samples(frames) + frames * (3 * self.settings.n_fft + 4 * bins);
        // The allocator of a device was seen to hold five times as much, for the two threads that use it.
        4 * values * 5
    }

    /// Bytes that a batch takes here at once: its results, and the piece that is at work.
    pub fn batch_bytes(&self, rows: usize, frames: usize, reference: usize) -> usize {
        let longest = frames.max(reference);
        let results = 4 * rows * (frames + reference) * self.settings.n_mels;
        results + self.rows_at_once(longest, rows) * self.row_bytes(longest)
    }

    fn rows_at_once(&self, frames: usize, rows: usize) -> usize {
        (self.piece_bytes / self.row_bytes(frames).max(1)).clamp(1, rows.max(1))
    }

    /// The features of a batch, none if it has them already. Waits until the device is done, so that the time is seen.
    pub fn features(&self, prepared: &mut Prepared) -> Result<Option<DeviceMel>, LaneError> {
        let Some(signal) = prepared.signal.take() else { return Ok(None) };
        let inputs = &prepared.inputs;
        let mel = self.rows(&signal.samples, &inputs.mel_lengths, inputs.frames);
        let reference = (inputs.reference.as_ref().zip(signal.reference.as_ref()))
            .map(|(reference, samples)| self.rows(samples, &reference.lengths, reference.frames));
        self.device.sync().map_err(|error| LaneError::Device(error.into()))?;
        // Asked for here: who asks a device waits for it.
        self.gauge.read(&self.device);
        Ok(Some(DeviceMel { mel, reference }))
    }

    /// Rows of samples to `[rows, frames, n_mels]`, 0 beyond each row's length.
    fn rows(&self, samples: &[f32], lengths: &[usize], frames: usize) -> Tensor<3> {
        let stride = samples.len() / lengths.len();
        let at_once = self.rows_at_once(frames, lengths.len());
        let pieces: Vec<Tensor<3>> = samples
            .chunks(at_once * stride)
            .zip(lengths.chunks(at_once))
            .map(|(samples, lengths)| self.piece(samples.to_vec(), lengths, frames))
            .collect();
        if pieces.len() == 1 { pieces.into_iter().next().expect("one") } else { Tensor::cat(pieces, 0) }
    }

    /// Rows of samples to log-mel, not normalized.
    fn log_mel(&self, samples: Vec<f32>, rows: usize) -> Tensor<3> {
        let (real, imaginary) = self.transform(samples, rows);
        let power = real.powi_scalar(2) + imaginary.powi_scalar(2);
        let size = if self.settings.power { power } else { power.sqrt() };
        size.matmul(self.filters.clone()).clamp_min(self.settings.floor).log()
    }

    fn piece(&self, samples: Vec<f32>, lengths: &[usize], frames: usize) -> Tensor<3> {
        let (n_mels, rows) = (self.settings.n_mels, lengths.len());
        let mel = (self.log_mel(samples, rows) - self.mean.clone()) * self.scale.clone();
        let made = mel.dims()[1];
        let mut mask = vec![0.0; rows * made];
        for (row, &length) in mask.chunks_mut(made).zip(lengths) {
            row[..length].fill(1.0);
        }
        let mel = mel * Tensor::from_data(TensorData::new(mask, [rows, made, 1]), &self.device);
        match frames - made {
            0 => mel,
            // The model wants a multiple of its group.
            more => Tensor::cat(vec![mel, Tensor::zeros([rows, more, n_mels], &self.device)], 1),
        }
    }
}
