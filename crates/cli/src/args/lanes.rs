//! Arguments about devices.

use std::path::PathBuf;

use clap::ValueEnum;
use tandem_device::{Backend, FeaturesOn, Request, Selector, Simulation};

use super::ReadArgs;

/// Back ends that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendKind {
    /// The best that there is; software devices only when they are named
    Auto,
    /// NVIDIA's CUDA (if built in)
    Cuda,
    /// Vulkan
    Vulkan,
    /// Metal
    Metal,
    /// Direct3D 12
    Dx12,
    /// The processor
    Cpu,
}

/// Where features are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FeaturesKind {
    /// By the workers that read the files
    Cpu,
    /// On the data lane's device
    Data,
}

/// Which devices work.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct LaneArgs {
    /// GPU that prepares batches: an index or a part of a name, see `tandem devices`, or `cpu`; needs --model-gpu
    #[arg(long, value_name = "GPU", allow_hyphen_values = true, help_heading = "Devices")]
    pub(crate) data_gpu: Option<Selector>,
    /// GPU that trains: an index or a part of a name; needs --data-gpu
    #[arg(long, value_name = "GPU", allow_hyphen_values = true, help_heading = "Devices")]
    pub(crate) model_gpu: Option<Selector>,
    /// Kind of device [default: auto]
    #[arg(long, value_enum, value_name = "BACKEND", help_heading = "Devices")]
    pub(crate) backend: Option<BackendKind>,
    /// Where features are computed [default: data with two GPUs, else cpu]
    #[arg(long, value_enum, value_name = "WHERE", help_heading = "Devices")]
    pub(crate) features_on: Option<FeaturesKind>,
    /// Use something else, and say so, when a device that was asked for cannot be had
    #[arg(long, help_heading = "Devices")]
    pub(crate) allow_fallback: bool,
    /// Pretend that there are so many GPUs (4, or 2x24GB); the CPU does their work
    #[arg(long, value_name = "DEVICES", help_heading = "Devices")]
    pub(crate) simulate_devices: Option<Simulation>,
}

impl LaneArgs {
    pub(crate) fn request(&self) -> Request {
        Request {
            data: self.data_gpu.clone(),
            model: self.model_gpu.clone(),
            backend: self.backend.and_then(|backend| match backend {
                BackendKind::Auto => None,
                BackendKind::Cuda => Some(Backend::Cuda),
                BackendKind::Vulkan => Some(Backend::Vulkan),
                BackendKind::Metal => Some(Backend::Metal),
                BackendKind::Dx12 => Some(Backend::Dx12),
                BackendKind::Cpu => Some(Backend::Cpu),
            }),
            features: self.features_on.map(|features| match features {
                FeaturesKind::Cpu => FeaturesOn::Cpu,
                FeaturesKind::Data => FeaturesOn::Data,
            }),
            allow_fallback: self.allow_fallback,
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The index is what --data-gpu and --model-gpu take. Looking opens no device; --bench and --self-test do.

Examples:
  tandem devices
  tandem devices --bench          how fast data is copied between each pair
  tandem devices --json"
)]
pub(crate) struct DevicesArgs {
    /// Measure copies between each pair of devices
    #[arg(long)]
    pub(crate) bench: bool,
    /// Compare every device with the CPU, each in a process of its own
    #[arg(long)]
    pub(crate) self_test: bool,
    /// Compare this device with the CPU, in this process
    #[arg(long, value_name = "INDEX", hide = true)]
    pub(crate) self_test_here: Option<usize>,
    /// Pretend that there are so many GPUs (4, or 2x24GB)
    #[arg(long, value_name = "DEVICES")]
    pub(crate) simulate_devices: Option<Simulation>,
    /// Print one JSON object instead of the report
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Measures a few batches and steps of your data on your devices, then says whether a second device is worth it.

Examples:
  tandem advise --train-data my-voice
  tandem advise --train-data my-voice --data-gpu 0 --model-gpu 1 --model-size small --json"
)]
pub(crate) struct AdviseArgs {
    /// Corpus in the LJSpeech layout
    #[arg(long, value_name = "DIR", help_heading = "Data")]
    pub(crate) train_data: PathBuf,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
    #[command(flatten)]
    pub(crate) lanes: LaneArgs,
    /// Size of the model: smoke, tiny, small, normal (= base) or big
    #[arg(long, value_name = "SIZE", value_parser = super::parse_size, default_value = "tiny", help_heading = "Model")]
    pub(crate) model_size: tandem_model::Size,
    /// Clips in a batch; without it, by the memory of the device
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65_536), help_heading = "Model")]
    pub(crate) batch_size: Option<u64>,
    /// Steps to measure, after one that warms up
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..=1000))]
    pub(crate) steps: u64,
    /// Print one JSON object instead of the report
    #[arg(long)]
    pub(crate) json: bool,
}
