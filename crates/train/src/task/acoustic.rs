//! The acoustic model as a task: text to mel.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::Tensor;
use tandem_audio::MelStats;
use tandem_data::{Batch, CorpusSettings, LoadSettings, Shard};
use tandem_flow::Fault;
use tandem_model::{
    Device, DeviceMel, HostInputs, InputShape, Inputs, Losses, ModelConfig, REFERENCE_FRAMES, Totals, Voice,
};
use tandem_synth::{Bundle, HeldOutBatch, Speech, Synthesizer, validation_losses};

use super::{PartConfig, SpeechTask, Task, TaskLoss, TrainedPart};
use crate::checkpoint::State;
use crate::data::Data;
use crate::events::TrainError;
use crate::features::{Prepared, Ready, prepare};
use crate::lane::DataLane;
use crate::settings::TrainConfig;

/// Trains a [`Voice`].
#[derive(Clone, Debug)]
pub struct Acoustic {
    /// Shapes of the model.
    pub config: ModelConfig,
    /// Steps over which the diagonal prior of the alignment fades.
    pub prior_steps: u64,
}

impl Task for Acoustic {
    type Model = Voice;
    type Inputs = Inputs;
    type Totals = Totals;

    const TERMS: &'static [&'static str] = &Losses::NAMES;

    /// The last one is that of the flow-matching decoder.
    fn terms(&self) -> &'static [&'static str] {
        let flow = usize::from(self.config.has_flow());
        &Self::TERMS[..Self::TERMS.len() - 1 + flow]
    }

    fn build(&self, seed: u64, device: &Device) -> Voice {
        Voice::new(&self.config, seed, device)
    }

    fn rows(inputs: &Inputs) -> usize {
        inputs.rows()
    }

    fn micro_batch(inputs: &Inputs, rows: Range<usize>) -> Inputs {
        inputs.micro_batch(rows)
    }

    fn counts(inputs: &Inputs) -> [u64; 3] {
        let (frames, tokens) = (&inputs.mel.lengths, &inputs.text.lengths);
        let clips = tokens.iter().filter(|&&length| length > 0).count();
        [frames.iter().sum::<usize>() as u64, tokens.iter().sum::<usize>() as u64, clips as u64]
    }

    fn totals(counts: [u64; 3]) -> Totals {
        let [frames, tokens, clips] = counts.map(|count| (count as usize).max(1));
        Totals { frames, tokens, clips }
    }

    fn devices(inputs: &Inputs) -> Vec<Device> {
        inputs.devices()
    }

    fn poison(mut inputs: Inputs) -> Inputs {
        inputs.mel.values = inputs.mel.values * f32::NAN;
        inputs
    }

    fn loss(&self, model: &Voice, inputs: &Inputs, totals: Totals, step: u64) -> TaskLoss {
        let prior = 1.0 - step as f32 / self.prior_steps.max(1) as f32;
        let (losses, _) = model.losses(inputs, totals, prior.max(0.0), true);
        TaskLoss { total: losses.total(), terms: Tensor::inner(losses.values()) }
    }
}

impl Acoustic {
    fn shape(&self) -> InputShape {
        InputShape::new(&self.config)
    }
}

impl SpeechTask for Acoustic {
    /// With the mel that the data lane made of it, if there is any.
    type Prepared = (Prepared, Option<DeviceMel>);
    type HeldOut = HeldOutBatch;

    const PART: TrainedPart = TrainedPart::Acoustic;
    const OF_SAMPLES: bool = false;

    fn new(settings: &TrainConfig, data: &Data, _: Option<&State>) -> Result<Acoustic, TrainError> {
        let corpus = &data.corpus;
        let (size, reference) = (settings.model.size, corpus.speakers().len() > 1);
        let (vocabulary, n_mels) = (corpus.frontend().vocabulary.size(), corpus.settings().mel.n_mels);
        let config = ModelConfig::new(size, vocabulary, n_mels, reference);
        let config = if settings.model.flow { config } else { config.without_flow() };
        Ok(Acoustic { config, prior_steps: settings.model.prior_steps })
    }

    fn config(&self) -> PartConfig {
        PartConfig::Acoustic(self.config.clone())
    }

    fn reference_frames(&self) -> Option<usize> {
        self.config.reference.then_some(REFERENCE_FRAMES)
    }

    fn load_settings(&self, plain: LoadSettings, stats: &Arc<MelStats>, on_data_lane: bool) -> LoadSettings {
        LoadSettings {
            reference_frames: self.reference_frames(),
            as_signal: on_data_lane,
            normalize: (!on_data_lane).then(|| stats.clone()),
            group: self.config.decoder.group,
            noise: self.config.has_flow(),
            ..plain
        }
    }

    fn prepare(
        &self,
        batch: Batch,
        _: u64,
        stats: &MelStats,
        seed: u64,
        lane: Option<&DataLane>,
    ) -> Result<Self::Prepared, Fault> {
        let mut prepared = prepare(batch, stats, seed, self.config.decoder.group, self.config.has_flow());
        let audio = match lane {
            None => None,
            Some(lane) => lane.features(&mut prepared).map_err(|error| Fault::new(error.to_string()).fatal())?,
        };
        Ok((prepared, audio))
    }

    fn prepared_bytes(&self, (prepared, _): &Self::Prepared) -> usize {
        prepared.inputs.device_bytes(&self.shape())
    }

    fn upload(&self, (prepared, audio): Self::Prepared, device: &Device) -> Ready<Inputs> {
        prepared.upload(audio, &self.shape(), device)
    }

    fn input_bytes(&self, inputs: &Inputs) -> u64 {
        inputs.bytes(&self.shape())
    }

    fn extent(inputs: &Inputs) -> (usize, usize) {
        (inputs.mel.values.dims()[1], inputs.text.ids.dims()[1])
    }

    fn held_out(&self, batch: Batch, stats: &MelStats) -> HeldOutBatch {
        let prepared = prepare(batch, stats, 0, self.config.decoder.group, self.config.has_flow());
        HeldOutBatch { clips: prepared.clips, inputs: prepared.inputs }
    }

    fn validate(
        &self,
        model: &Voice,
        batches: &[HeldOutBatch],
        device: &Device,
        (rows, prefetch): (usize, usize),
        shard: Shard,
    ) -> Vec<f64> {
        let inputs: Vec<&HostInputs> = batches.iter().map(|batch| &batch.inputs).collect();
        validation_losses(model, &self.shape(), &inputs, device, rows, prefetch, shard).to_vec()
    }

    fn sample(
        &self,
        model: Voice,
        batch: &HeldOutBatch,
        (corpus, stats): (&CorpusSettings, &MelStats),
        device: &Device,
    ) -> Result<Speech, String> {
        let (config, mel) = (self.config.clone(), corpus.mel.clone());
        let bundle = Bundle { config, mel, processing: corpus.processing, stats: stats.clone() };
        let synthesizer = Synthesizer::new(model, bundle, device);
        synthesizer.synthesize_row(&batch.inputs, 0).map_err(|error| error.to_string())
    }
}
