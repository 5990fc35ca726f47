//! The neural vocoder as a task: mel and pitch of a segment to its waveform.
//!
//! Stage 1 compares spectra; stage 2 ([`Adversarial`]) has discriminators beside the vocoder. Features and spectra of the source are made on the data lane's
//! device if it is one; excitation, pitch and predictions of an acoustic run are the host's.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use burn::tensor::Tensor;
use tandem_audio::{LogMel, MelSettings, MelStats, SourceFilter, mel_filters};
use tandem_data::{Batch, CorpusSettings, LoadSettings, Shard};
use tandem_flow::{Cursor, Fault, Random};
use tandem_model::kernels::Stft;
use tandem_model::{
    AdversarialLosses, Device, DeviceSpectra, DiscriminatorConfig, HostVocoderInputs, MelLoss, NeuralVocoder, Size,
    VocoderConfig, VocoderInputs, VocoderLosses,
};
use tandem_synth::{Speech, vocoder_row};

use super::predictor::{Clip, Predictor};
use super::{PartConfig, PredictorIdentity, SpeechTask, Task, TaskLoss, TrainedPart};
use crate::checkpoint::State;
use crate::data::{Data, DataError};
use crate::events::TrainError;
use crate::features::Ready;
use crate::lane::{DataLane, RawSegments};
use crate::settings::TrainConfig;

/// Frames of a segment that is validated on and listened to (3 s).
const HELD_OUT: usize = 256;

/// What is minimized.
pub trait Stage: Clone + Debug + Send + Sync + 'static {
    /// The names of the loss terms.
    const TERMS: &'static [&'static str];
    /// Frames of a segment that is trained on.
    const SEGMENT: usize;

    /// The discriminators beside a vocoder of this size.
    fn discriminators(size: Size) -> Option<DiscriminatorConfig>;

    /// The loss terms of some rows of a batch that has `clips` clips in all.
    fn losses(model: &NeuralVocoder, inputs: &VocoderInputs, mel: &MelLoss, clips: usize) -> Vec<Tensor<1>>;
}

/// Stage 1: spectra of several resolutions.
#[derive(Clone, Debug)]
pub struct Regression;

impl Stage for Regression {
    const TERMS: &'static [&'static str] = &VocoderLosses::NAMES;
    // 0.7 s.
    const SEGMENT: usize = 64;

    fn discriminators(_: Size) -> Option<DiscriminatorConfig> {
        None
    }

    fn losses(model: &NeuralVocoder, inputs: &VocoderInputs, mel: &MelLoss, clips: usize) -> Vec<Tensor<1>> {
        model.losses(inputs, mel, clips).terms()
    }
}

/// Stage 2: a vocoder and discriminators, each learning from the other; the mel keeps the vocoder where it was.
#[derive(Clone, Debug)]
pub struct Adversarial;

impl Stage for Adversarial {
    const TERMS: &'static [&'static str] = &AdversarialLosses::NAMES;
    // 8,192 samples: discriminators cost much more than the vocoder.
    const SEGMENT: usize = 32;

    fn discriminators(size: Size) -> Option<DiscriminatorConfig> {
        Some(DiscriminatorConfig::new(size))
    }

    fn losses(model: &NeuralVocoder, inputs: &VocoderInputs, mel: &MelLoss, clips: usize) -> Vec<Tensor<1>> {
        model.adversarial_losses(inputs, mel, clips).terms()
    }
}

/// Trains a [`NeuralVocoder`].
#[derive(Clone, Debug)]
pub struct Vocoder<S: Stage = Regression> {
    config: VocoderConfig,
    source: Arc<SourceFilter>,
    log_mel: Arc<LogMel>,
    mel_loss: Arc<MelLoss>,
    /// Predicts mels, from this batch on.
    predictions: Option<(Arc<Predictor>, u64)>,
    stage: PhantomData<S>,
}

/// Segments of a batch's clips.
#[derive(Debug)]
pub struct Segments {
    cursor: Cursor,
    clips: Vec<u32>,
    seconds: f64,
    /// On the host; waveforms alone when the data lane made the rest.
    inputs: HostVocoderInputs,
    /// Made by the data lane.
    computed: Option<DeviceSpectra>,
}

/// Which part of a clip is learned from.
struct Segment {
    /// Its first frame.
    first: usize,
    /// Frames.
    length: usize,
    noise_seed: u64,
    /// Whether its mel is that of an acoustic run, if there is one.
    may_be_predicted: bool,
}

impl Segment {
    fn frames(&self) -> Range<usize> {
        self.first..self.first + self.length
    }
}

impl<S: Stage> Vocoder<S> {
    /// A vocoder of these shapes, for frames of these settings.
    ///
    /// # Errors
    ///
    /// [`DataError::Features`] if they contradict themselves.
    pub fn of(config: VocoderConfig, mel: &MelSettings) -> Result<Vocoder<S>, DataError> {
        let source = SourceFilter::new(mel).map_err(DataError::Features)?;
        let log_mel = LogMel::new(mel).map_err(DataError::Features)?;
        let mut filters = vec![0.0; source.bins() * mel.n_mels];
        for (band, (first, weights)) in mel_filters(mel).into_iter().enumerate() {
            for (bin, weight) in weights.into_iter().enumerate() {
                filters[(first + bin) * mel.n_mels + band] = weight;
            }
        }
        let mel_loss = MelLoss { filters, floor: mel.floor, power: mel.power };
        Ok(Vocoder {
            config,
            source: Arc::new(source),
            log_mel: Arc::new(log_mel),
            mel_loss: Arc::new(mel_loss),
            predictions: None,
            stage: PhantomData,
        })
    }

    /// A segment of each clip of a batch of samples: where it begins, its noise and whether its mel is predicted depend on seed, epoch
    /// and clip alone. A clip that is shorter is padded.
    fn choose(batch: &Batch, seed: u64, frames: usize) -> Vec<Segment> {
        let choose = |(row, &clip): (usize, &u32)| {
            let mut random = Random::at(&[seed, batch.cursor.epoch, u64::from(clip), 5]);
            let length = batch.mel_lengths[row].min(frames);
            let first = random.below(batch.mel_lengths[row] - length + 1);
            let noise_seed = random.next();
            Segment { first, length, noise_seed, may_be_predicted: random.next().is_multiple_of(2) }
        };
        batch.clips.iter().enumerate().map(choose).collect()
    }

    /// The samples of a segment, with the padding of its frames.
    fn samples<'a>(&self, batch: &'a Batch, row: usize, segment: &Segment) -> &'a [f32] {
        let (mel, stride) = (self.source.mel(), batch.form.row_values(batch.frames));
        &batch.audio[row * stride + segment.first * mel.hop_length..][..mel.signal_samples(segment.length)]
    }

    /// The tracked pitch of a segment.
    fn pitch(batch: &Batch, row: usize, segment: &Segment) -> Vec<f32> {
        let tracked = batch.pitch.as_ref().and_then(|pitch| pitch.get(row * batch.frames + segment.first..));
        tracked.map_or(vec![0.0; segment.length], |pitch| pitch[..segment.length].to_vec())
    }

    /// Segments with features that the host makes.
    fn segments(
        &self,
        batch: &Batch,
        stats: &MelStats,
        seed: u64,
        frames: usize,
        predictor: Option<&Predictor>,
    ) -> HostVocoderInputs {
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
        for (row, segment) in Self::choose(batch, seed, frames).iter().enumerate() {
            let (signal, kept) = (self.samples(batch, row, segment), segment.length);
            let (bands, pitch) = match predictor.filter(|_| segment.may_be_predicted) {
                Some(predictor) => self.predicted(predictor, batch, row, segment.frames(), &mut log_mel),
                None => {
                    let mut bands = vec![0.0; stats.mean.len() * kept];
                    log_mel.compute_padded(signal, kept, &mut bands, kept);
                    (bands, Self::pitch(batch, row, segment))
                }
            };
            let one = vocoder_row(&self.source, stats, &bands, &pitch, segment.noise_seed);
            inputs.lengths[row] = kept;
            inputs.features[row * frames * width..][..one.features.len()].copy_from_slice(&one.features);
            inputs.harmonic[row * frames * 2 * bins..][..one.harmonic.len()].copy_from_slice(&one.harmonic);
            inputs.noise[row * frames * 2 * bins..][..one.noise.len()].copy_from_slice(&one.noise);
            inputs.waveform[row * samples..][..signal.len()].copy_from_slice(signal);
        }
        inputs
    }

    /// The same segments, as far as the host makes them when features are made on the data lane's device.
    fn raw_segments(&self, batch: &Batch, seed: u64, frames: usize, predictor: Option<&Predictor>) -> RawSegments {
        let (rows, samples) = (batch.rows, self.source.mel().signal_samples(frames));
        let mut raw = RawSegments {
            frames,
            lengths: vec![0; rows],
            waveform: vec![0.0; rows * samples],
            harmonics: vec![0.0; rows * samples],
            noise: vec![0.0; rows * samples],
            pitch: vec![0.0; rows * frames],
            predicted: vec![None; rows],
        };
        let mut log_mel = self.log_mel.another();
        for (row, segment) in Self::choose(batch, seed, frames).iter().enumerate() {
            let signal = self.samples(batch, row, segment);
            let pitch = match predictor.filter(|_| segment.may_be_predicted) {
                Some(predictor) => {
                    let (bands, pitch) = self.predicted(predictor, batch, row, segment.frames(), &mut log_mel);
                    let frame = |frame: usize| bands.chunks(segment.length).map(move |band| band[frame]);
                    raw.predicted[row] = Some((0..segment.length).flat_map(frame).collect());
                    pitch
                }
                None => Self::pitch(batch, row, segment),
            };
            let (harmonics, noise) = self.source.excitation(&pitch, segment.noise_seed);
            raw.lengths[row] = segment.length;
            raw.pitch[row * frames..][..pitch.len()].copy_from_slice(&pitch);
            for (to, from) in [(&mut raw.waveform, signal), (&mut raw.harmonics, &harmonics), (&mut raw.noise, &noise)]
            {
                to[row * samples..][..from.len()].copy_from_slice(from);
            }
        }
        raw
    }

    /// Mel and pitch of some frames of a clip as an acoustic run predicts them.
    fn predicted(
        &self,
        predictor: &Predictor,
        batch: &Batch,
        row: usize,
        frames: Range<usize>,
        log_mel: &mut LogMel,
    ) -> (Vec<f32>, Vec<f32>) {
        let (mel, length) = (self.source.mel(), batch.mel_lengths[row]);
        let signal = &batch.audio[row * batch.form.row_values(batch.frames)..][..mel.signal_samples(length)];
        let mut bands = vec![0.0; mel.n_mels * length];
        log_mel.compute_padded(signal, length, &mut bands, length);
        let pitch =
            batch.pitch.as_ref().map_or(vec![0.0; length], |pitch| pitch[row * batch.frames..][..length].to_vec());
        let ids = &batch.ids[row * batch.tokens..][..batch.id_lengths[row]];
        let predicted = predictor.predict(Clip { clip: batch.clips[row], ids, mel: &bands, pitch: &pitch });
        let bands = predicted.mel.chunks(length).flat_map(|band| band[frames.clone()].iter().copied()).collect();
        (bands, predicted.pitch[frames].to_vec())
    }
}

impl<S: Stage> Task for Vocoder<S> {
    type Model = NeuralVocoder;
    type Inputs = VocoderInputs;
    /// Clips.
    type Totals = usize;

    const TERMS: &'static [&'static str] = S::TERMS;

    fn build(&self, seed: u64, device: &Device) -> NeuralVocoder {
        NeuralVocoder::new(&self.config, seed, device)
    }

    fn rows(inputs: &VocoderInputs) -> usize {
        inputs.rows()
    }

    fn micro_batch(inputs: &VocoderInputs, rows: Range<usize>) -> VocoderInputs {
        inputs.micro_batch(rows)
    }

    fn counts(inputs: &VocoderInputs) -> [u64; 3] {
        [inputs.clips() as u64, 0, 0]
    }

    fn totals([clips, ..]: [u64; 3]) -> usize {
        clips as usize
    }

    fn devices(inputs: &VocoderInputs) -> Vec<Device> {
        inputs.devices()
    }

    fn poison(mut inputs: VocoderInputs) -> VocoderInputs {
        inputs.features = inputs.features * f32::NAN;
        inputs
    }

    fn loss(&self, model: &NeuralVocoder, inputs: &VocoderInputs, clips: usize, _: u64) -> TaskLoss {
        let terms = S::losses(model, inputs, &self.mel_loss, clips);
        let values = Tensor::cat(terms.iter().map(|term| term.clone().detach().inner()).collect(), 0);
        let total = terms.into_iter().reduce(|sum, term| sum + term).expect("a loss has terms");
        TaskLoss { total, terms: values }
    }
}

impl<S: Stage> SpeechTask for Vocoder<S> {
    type Prepared = Segments;
    type HeldOut = HostVocoderInputs;

    const PART: TrainedPart = TrainedPart::Vocoder;
    const OF_SAMPLES: bool = true;

    fn new(settings: &TrainConfig, data: &Data, state: Option<&State>) -> Result<Vocoder<S>, TrainError> {
        let mel = &data.corpus.settings().mel;
        let stft = Stft { n_fft: mel.n_fft, hop: mel.hop_length, win_length: mel.win_length };
        let (size, n_mels) = (settings.model.size, mel.n_mels);
        let config =
            VocoderConfig { discriminators: S::discriminators(size), ..VocoderConfig::new(size, n_mels, stft) };
        let mut vocoder = Vocoder::of(config, mel)?;
        if let Some(path) = &settings.model.predicted_by {
            let known = state.and_then(|state| state.predictor.as_ref());
            let predictor = Predictor::open(path, known, data, settings)?;
            vocoder.predictions = Some((Arc::new(predictor), settings.model.predictions_from));
        }
        Ok(vocoder)
    }

    fn predictor(&self) -> Option<&PredictorIdentity> {
        self.predictions.as_ref().map(|(predictor, _)| predictor.identity())
    }

    fn kept_bytes(&self) -> u64 {
        self.predictions.as_ref().map_or(0, |(predictor, _)| predictor.kept_bytes())
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

    fn equip(&self, lane: DataLane) -> DataLane {
        lane.with_source(&self.source)
    }

    fn lane_bytes(&self, lane: &DataLane, rows: usize, _: usize) -> usize {
        lane.segments_bytes(rows, S::SEGMENT)
    }

    fn prepare(
        &self,
        batch: Batch,
        place: u64,
        stats: &MelStats,
        seed: u64,
        lane: Option<&DataLane>,
    ) -> Result<Segments, Fault> {
        let predictor = self.predictions.as_ref().filter(|(_, from)| place >= *from).map(|(predictor, _)| &**predictor);
        let (inputs, computed) = match lane {
            None => (self.segments(&batch, stats, seed, S::SEGMENT, predictor), None),
            Some(lane) => {
                let raw = self.raw_segments(&batch, seed, S::SEGMENT, predictor);
                let computed = lane.spectra(&raw, &self.source);
                let computed = computed.map_err(|error| Fault::new(error.to_string()).fatal())?;
                let RawSegments { frames, lengths, waveform, .. } = raw;
                let (rows, none) = (batch.rows, HostVocoderInputs::default());
                (HostVocoderInputs { rows, frames, lengths, waveform, ..none }, Some(computed))
            }
        };
        let mel = self.source.mel();
        let frame_seconds = mel.hop_length as f64 / f64::from(mel.sample_rate);
        let seconds = frame_seconds * inputs.lengths.iter().sum::<usize>() as f64;
        Ok(Segments { cursor: batch.cursor, clips: batch.clips, seconds, inputs, computed })
    }

    fn prepared_bytes(&self, prepared: &Segments) -> usize {
        prepared.inputs.bytes() + prepared.computed.as_ref().map_or(0, DeviceSpectra::bytes)
    }

    fn upload(&self, prepared: Segments, device: &Device) -> Ready<VocoderInputs> {
        let Segments { cursor, clips, seconds, inputs, computed } = prepared;
        Ready { cursor, clips, seconds, inputs: inputs.upload_with(computed, device) }
    }

    fn input_bytes(&self, inputs: &VocoderInputs) -> u64 {
        inputs.bytes()
    }

    fn extent(inputs: &VocoderInputs) -> (usize, usize) {
        (inputs.features.dims()[1], 0)
    }

    fn held_out(&self, batch: Batch, stats: &MelStats) -> HostVocoderInputs {
        self.segments(&batch, stats, 0, HELD_OUT, None)
    }

    fn validate(
        &self,
        model: &NeuralVocoder,
        batches: &[HostVocoderInputs],
        device: &Device,
        (rows, prefetch): (usize, usize),
        shard: Shard,
    ) -> Vec<f64> {
        let clips = batches.iter().flat_map(|batch| &batch.lengths).filter(|length| **length > 0).count();
        // Segments to validate on are longer than those of a step.
        let rows = (rows * S::SEGMENT / HELD_OUT).max(1);
        let micro_batches = batches.iter().flat_map(|batch| {
            (0..batch.rows).step_by(rows).map(move |first| batch.rows(first..(first + rows).min(batch.rows)))
        });
        let own = micro_batches.skip(shard.rank).step_by(shard.world.max(1));
        let mut uploads = own.map(|inputs| inputs.upload(device));
        let mut waiting: VecDeque<VocoderInputs> = uploads.by_ref().take(prefetch.max(1)).collect();
        let mut sums = vec![0.0; Self::TERMS.len()];
        while let Some(inputs) = waiting.pop_front() {
            let terms = S::losses(model, &inputs, &self.mel_loss, clips);
            waiting.extend(uploads.next());
            let values = Tensor::cat(terms, 0).into_data().try_into_vec::<f32>().expect("losses are single precision");
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
