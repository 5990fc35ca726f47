//! The neural vocoder as a task: mel and pitch of a segment to its waveform.
//!
//! Stage 1 alone: spectral losses, no discriminators. Features and source are made on the host, whatever the data lane is.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use burn::tensor::Tensor;
use tandem_audio::{LogMel, MelSettings, MelStats, SourceFilter, mel_filters};
use tandem_data::{Batch, Corpus, CorpusSettings, LoadSettings};
use tandem_flow::{Cursor, Fault, Random};
use tandem_model::kernels::Stft;
use tandem_model::{Device, HostVocoderInputs, MelLoss, NeuralVocoder, VocoderConfig, VocoderInputs, VocoderLosses};
use tandem_synth::{Speech, vocoder_row};

use super::{PartConfig, SpeechTask, Task, TaskLoss, TrainedPart};
use crate::data::DataError;
use crate::features::Ready;
use crate::lane::DataLane;
use crate::settings::TrainConfig;

/// Frames of a segment that is trained on (0.7 s).
const SEGMENT: usize = 64;
/// Frames of a segment that is validated on and listened to (3 s).
const HELD_OUT: usize = 256;

/// Trains a [`NeuralVocoder`].
#[derive(Clone, Debug)]
pub struct Vocoder {
    config: VocoderConfig,
    source: Arc<SourceFilter>,
    log_mel: Arc<LogMel>,
    mel_loss: Arc<MelLoss>,
}

/// Segments of a batch's clips on the host.
#[derive(Debug)]
pub struct Segments {
    cursor: Cursor,
    clips: Vec<u32>,
    seconds: f64,
    inputs: HostVocoderInputs,
}

impl Vocoder {
    /// A vocoder of these shapes, for frames of these settings.
    ///
    /// # Errors
    ///
    /// [`DataError::Features`] if they contradict themselves.
    pub fn of(config: VocoderConfig, mel: &MelSettings) -> Result<Vocoder, DataError> {
        let source = SourceFilter::new(mel).map_err(DataError::Features)?;
        let log_mel = LogMel::new(mel).map_err(DataError::Features)?;
        let mut filters = vec![0.0; source.bins() * mel.n_mels];
        for (band, (first, weights)) in mel_filters(mel).into_iter().enumerate() {
            for (bin, weight) in weights.into_iter().enumerate() {
                filters[(first + bin) * mel.n_mels + band] = weight;
            }
        }
        let mel_loss = MelLoss { filters, floor: mel.floor, power: mel.power };
        Ok(Vocoder { config, source: Arc::new(source), log_mel: Arc::new(log_mel), mel_loss: Arc::new(mel_loss) })
    }

    /// A segment of each clip of a batch of samples: where it begins and its noise depend on seed, epoch and clip alone. A clip
    /// that is shorter is padded.
    fn segments(&self, batch: &Batch, stats: &MelStats, seed: u64, frames: usize) -> HostVocoderInputs {
        let mel = self.source.mel();
        let (rows, width, bins) = (batch.rows, stats.mean.len() + 2, self.source.bins());
        let samples = mel.signal_samples(frames);
        let mut inputs = HostVocoderInputs {
            rows,
            frames,
            lengths: vec![0; rows],
            features: vec![0.0; rows * frames * width],
            harmonic: vec![0.0; rows * frames * 2 * bins],
            noise: vec![0.0; rows * frames * 2 * bins],
            waveform: vec![0.0; rows * samples],
        };
        let mut log_mel = self.log_mel.another();
        let stride = batch.form.row_values(batch.frames);
        let silent = Vec::new();
        let pitch = batch.pitch.as_ref().unwrap_or(&silent);
        for (row, &clip) in batch.clips.iter().enumerate() {
            let mut random = Random::at(&[seed, batch.cursor.epoch, u64::from(clip), 5]);
            let kept = batch.mel_lengths[row].min(frames);
            let first = random.below(batch.mel_lengths[row] - kept + 1);
            let signal = &batch.audio[row * stride + first * mel.hop_length..][..mel.signal_samples(kept)];
            let mut bands = vec![0.0; stats.mean.len() * kept];
            log_mel.compute_padded(signal, kept, &mut bands, kept);
            let pitch = pitch.get(row * batch.frames + first..).map_or(vec![0.0; kept], |pitch| pitch[..kept].to_vec());
            let one = vocoder_row(&self.source, stats, &bands, &pitch, random.next());
            inputs.lengths[row] = kept;
            inputs.features[row * frames * width..][..one.features.len()].copy_from_slice(&one.features);
            inputs.harmonic[row * frames * 2 * bins..][..one.harmonic.len()].copy_from_slice(&one.harmonic);
            inputs.noise[row * frames * 2 * bins..][..one.noise.len()].copy_from_slice(&one.noise);
            inputs.waveform[row * samples..][..signal.len()].copy_from_slice(signal);
        }
        inputs
    }
}

impl Task for Vocoder {
    type Model = NeuralVocoder;
    type Inputs = VocoderInputs;
    /// Clips.
    type Totals = usize;

    const TERMS: &'static [&'static str] = &VocoderLosses::NAMES;

    fn build(&self, seed: u64, device: &Device) -> NeuralVocoder {
        NeuralVocoder::new(&self.config, seed, device)
    }

    fn rows(inputs: &VocoderInputs) -> usize {
        inputs.rows()
    }

    fn micro_batch(inputs: &VocoderInputs, rows: Range<usize>) -> VocoderInputs {
        inputs.micro_batch(rows)
    }

    fn totals(inputs: &VocoderInputs) -> usize {
        inputs.clips()
    }

    fn devices(inputs: &VocoderInputs) -> Vec<Device> {
        inputs.devices()
    }

    fn poison(mut inputs: VocoderInputs) -> VocoderInputs {
        inputs.features = inputs.features * f32::NAN;
        inputs
    }

    fn loss(&self, model: &NeuralVocoder, inputs: &VocoderInputs, clips: usize, _: u64) -> TaskLoss {
        let losses = model.losses(inputs, &self.mel_loss, clips);
        TaskLoss { total: losses.total(), terms: Tensor::inner(losses.values()) }
    }
}

impl SpeechTask for Vocoder {
    type Prepared = Segments;
    type HeldOut = HostVocoderInputs;

    const PART: TrainedPart = TrainedPart::Vocoder;
    const OF_SAMPLES: bool = true;

    fn new(settings: &TrainConfig, corpus: &Corpus) -> Result<Vocoder, DataError> {
        let mel = &corpus.settings().mel;
        let stft = Stft { n_fft: mel.n_fft, hop: mel.hop_length, win_length: mel.win_length };
        Vocoder::of(VocoderConfig::new(settings.model.size, mel.n_mels, stft), mel)
    }

    fn config(&self) -> PartConfig {
        PartConfig::Vocoder(self.config.clone())
    }

    fn reference_frames(&self) -> Option<usize> {
        None
    }

    fn load_settings(&self, plain: LoadSettings, _: &Arc<MelStats>, _: bool) -> LoadSettings {
        LoadSettings { as_signal: true, durations: Arc::default(), ..plain }
    }

    fn prepare(&self, batch: Batch, stats: &MelStats, seed: u64, _: Option<&DataLane>) -> Result<Segments, Fault> {
        let inputs = self.segments(&batch, stats, seed, SEGMENT);
        let mel = self.source.mel();
        let frame_seconds = mel.hop_length as f64 / f64::from(mel.sample_rate);
        let seconds = frame_seconds * inputs.lengths.iter().sum::<usize>() as f64;
        Ok(Segments { cursor: batch.cursor, clips: batch.clips, seconds, inputs })
    }

    fn prepared_bytes(&self, prepared: &Segments) -> usize {
        prepared.inputs.bytes()
    }

    fn upload(&self, prepared: Segments, device: &Device) -> Ready<VocoderInputs> {
        let Segments { cursor, clips, seconds, inputs } = prepared;
        Ready { cursor, clips, seconds, inputs: inputs.upload(device) }
    }

    fn input_bytes(&self, inputs: &VocoderInputs) -> u64 {
        inputs.bytes()
    }

    fn extent(inputs: &VocoderInputs) -> (usize, usize) {
        (inputs.features.dims()[1], 0)
    }

    fn held_out(&self, batch: Batch, stats: &MelStats) -> HostVocoderInputs {
        self.segments(&batch, stats, 0, HELD_OUT)
    }

    fn validate(
        &self,
        model: &NeuralVocoder,
        batches: &[HostVocoderInputs],
        device: &Device,
        rows: usize,
        prefetch: usize,
    ) -> Vec<f64> {
        let clips = batches.iter().flat_map(|batch| &batch.lengths).filter(|length| **length > 0).count();
        // Segments to validate on are longer than those of a step.
        let rows = (rows * SEGMENT / HELD_OUT).max(1);
        let micro_batches = batches.iter().flat_map(|batch| {
            (0..batch.rows).step_by(rows).map(move |first| batch.rows(first..(first + rows).min(batch.rows)))
        });
        let mut uploads = micro_batches.map(|inputs| inputs.upload(device));
        let mut waiting: VecDeque<VocoderInputs> = uploads.by_ref().take(prefetch.max(1)).collect();
        let mut sums = vec![0.0; Self::TERMS.len()];
        while let Some(inputs) = waiting.pop_front() {
            let losses = model.losses(&inputs, &self.mel_loss, clips);
            waiting.extend(uploads.next());
            let values = losses.values().into_data().try_into_vec::<f32>().expect("losses are single precision");
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(value));
        }
        sums
    }

    fn sample(
        &self,
        model: NeuralVocoder,
        batch: &HostVocoderInputs,
        (corpus, _): (&CorpusSettings, &MelStats),
        device: &Device,
    ) -> Result<Speech, String> {
        let mel = &corpus.mel;
        let waveform = model.synthesize(&batch.rows(0..1).upload(device));
        let samples = waveform.into_data().try_into_vec::<f32>().map_err(|error| format!("{error:?}"))?;
        let (first, length) = (mel.padding_samples(), batch.lengths[0].saturating_sub(1) * mel.hop_length);
        let samples = samples[first..first + length].to_vec();
        let bands = self.log_mel.another().compute(&samples);
        let frames = mel.frames(samples.len());
        Ok(Speech {
            samples,
            sample_rate: mel.sample_rate,
            mel: bands,
            frames,
            durations: Vec::new(),
            pitch: Vec::new(),
        })
    }
}
