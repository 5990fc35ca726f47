//! What is trained: a model, its batches, and the loss of a micro-batch ([`Task`]). The step, the optimizer, checkpoints and
//! resume know nothing else of it. A task that the trainer takes from a corpus to a report says besides how its batches are
//! made of clips ([`SpeechTask`]).
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `part.rs` | [`TrainedPart`], [`PartConfig`]: which part of a voice, and its shapes |
//! | `acoustic.rs` | [`Acoustic`]: text to mel |
//! | `vocoder.rs` | [`Vocoder`]: mel and pitch to waveform, in two stages |
//! | `predictor.rs` | mels that an acoustic run predicts, for a vocoder to learn from |

mod acoustic;
mod part;
mod predictor;
mod vocoder;

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Tensor;
use tandem_audio::MelStats;
use tandem_data::{Batch, CorpusSettings, LoadSettings, Shard};
use tandem_flow::Fault;
use tandem_model::Device;
use tandem_synth::Speech;

use crate::checkpoint::State;
use crate::data::Data;
use crate::events::TrainError;
use crate::features::Ready;
use crate::lane::DataLane;
use crate::settings::TrainConfig;

pub use acoustic::Acoustic;
pub use part::{PartConfig, PredictorIdentity, TrainedPart};
pub(crate) use predictor::shared_cache;
pub use vocoder::{Adversarial, Regression, Stage, Vocoder};

/// The loss of a micro-batch, on the device.
#[derive(Clone, Debug)]
pub struct TaskLoss {
    /// What is minimized.
    pub total: Tensor<1>,
    /// Its terms side by side, without autodiff history, in the order of [`Task::TERMS`].
    pub terms: Tensor<1>,
}

/// A model that can be trained.
pub trait Task: Clone + Debug + Send + 'static {
    /// The model.
    type Model: Module;
    /// A batch on the model's device.
    type Inputs: Clone + Debug + Send;
    /// What the sums of a loss are divided by: totals of the whole batch.
    type Totals: Copy + Debug + Send;

    /// The names of the loss terms.
    const TERMS: &'static [&'static str];

    /// Those of them that this model has: the first ones.
    fn terms(&self) -> &'static [&'static str] {
        Self::TERMS
    }

    /// An untrained model. The same seed gives the same values on every device.
    fn build(&self, seed: u64, device: &Device) -> Self::Model;

    /// Rows of a batch.
    fn rows(inputs: &Self::Inputs) -> usize;

    /// Some rows of a batch, with no more padding than before.
    fn micro_batch(inputs: &Self::Inputs, rows: Range<usize>) -> Self::Inputs;

    /// What is counted of a batch's rows. The counts of all ranks are added.
    fn counts(inputs: &Self::Inputs) -> [u64; 3];

    /// The totals of a batch with these counts.
    fn totals(counts: [u64; 3]) -> Self::Totals;

    /// The devices that a batch's tensors are on.
    fn devices(inputs: &Self::Inputs) -> Vec<Device>;

    /// Makes a batch not finite, for fault injection.
    fn poison(inputs: Self::Inputs) -> Self::Inputs;

    /// The loss of some rows while training, in step `step` (counted from 0).
    fn loss(&self, model: &Self::Model, inputs: &Self::Inputs, totals: Self::Totals, step: u64) -> TaskLoss;
}

/// A task that a run trains on a corpus of speech.
pub trait SpeechTask: Task + Sync {
    /// A batch on the host, ready to be uploaded.
    type Prepared: Send + 'static;
    /// Clips that are not trained on, in the form that they are validated in.
    type HeldOut: Debug;

    /// Which part of a voice it is.
    const PART: TrainedPart;
    /// Whether its batches are made of samples, wherever features are computed.
    const OF_SAMPLES: bool;

    /// For these clips; with the state of a run that is resumed.
    ///
    /// # Errors
    ///
    /// If the settings of the features contradict themselves, or another run that it needs does not fit.
    fn new(settings: &TrainConfig, data: &Data, state: Option<&State>) -> Result<Self, TrainError>;

    /// The shapes of its model.
    fn config(&self) -> PartConfig;

    /// Frames of reference audio beside each clip, if it takes any.
    fn reference_frames(&self) -> Option<usize>;

    /// How its clips are loaded; with a data lane, features are still to be made.
    fn load_settings(&self, plain: LoadSettings, stats: &Arc<MelStats>, on_data_lane: bool) -> LoadSettings;

    /// Which weights predict what it learns from, if any do.
    fn predictor(&self) -> Option<&PredictorIdentity> {
        None
    }

    /// Bytes of host memory that it keeps from batch to batch.
    fn kept_bytes(&self) -> u64 {
        0
    }

    /// Gives the data lane what this task wants of it besides log-mels.
    fn equip(&self, lane: DataLane) -> DataLane {
        lane
    }

    /// Bytes that a batch of clips takes on the data lane at once.
    fn lane_bytes(&self, lane: &DataLane, rows: usize, frames: usize) -> usize {
        lane.batch_bytes(rows, frames, self.reference_frames().unwrap_or(0))
    }

    /// Makes a batch of clips, the one at this place among all batches of the run. What is random about it depends on seed, epoch
    /// and clip alone.
    fn prepare(
        &self,
        batch: Batch,
        place: u64,
        stats: &MelStats,
        seed: u64,
        lane: Option<&DataLane>,
    ) -> Result<Self::Prepared, Fault>;

    /// Bytes that it will take on the model's device.
    fn prepared_bytes(&self, prepared: &Self::Prepared) -> usize;

    /// Puts it on the model's device.
    fn upload(&self, prepared: Self::Prepared, device: &Device) -> Ready<Self::Inputs>;

    /// Bytes that a batch takes on its device.
    fn input_bytes(&self, inputs: &Self::Inputs) -> u64;

    /// Frames and tokens of each row of a batch, padding included.
    fn extent(inputs: &Self::Inputs) -> (usize, usize);

    /// Makes a batch to validate on: the same at every validation.
    fn held_out(&self, batch: Batch, stats: &MelStats) -> Self::HeldOut;

    /// The terms of the loss on clips that are not trained on, as far as they are the share of `shard`: those of all ranks are added.
    /// At most so many clips go through the device at once, and so many such micro-batches wait there.
    fn validate(
        &self,
        model: &Self::Model,
        batches: &[Self::HeldOut],
        device: &Device,
        rows_and_prefetch: (usize, usize),
        shard: Shard,
    ) -> Vec<f64>;

    /// What the model makes of a clip that is not trained on.
    ///
    /// # Errors
    ///
    /// Why it makes nothing.
    fn sample(
        &self,
        model: Self::Model,
        batch: &Self::HeldOut,
        features: (&CorpusSettings, &MelStats),
        device: &Device,
    ) -> Result<Speech, String>;
}
