//! Arguments about devices.

use tandem_device::{Backend, FeaturesOn, Request, Selector, Simulation};
use tandem_train::Requested;

use super::{ADVISE, SettingArgs, backend};

/// Which devices work.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaneArgs {
    pub(crate) data_gpu: Option<Selector>,
    pub(crate) model_gpu: Option<Selector>,
    /// A kind of device was named, be it `auto`.
    pub(crate) backend: Option<String>,
    pub(crate) features_on: Option<FeaturesOn>,
    pub(crate) allow_fallback: bool,
    pub(crate) simulate_devices: Option<Simulation>,
}

impl LaneArgs {
    pub(crate) fn of(requested: &Requested) -> LaneArgs {
        LaneArgs {
            data_gpu: requested.word("data-gpu").and_then(|word| word.parse().ok()),
            model_gpu: requested.word("model-gpu").and_then(|word| word.parse().ok()),
            backend: requested.word("backend").map(str::to_owned),
            features_on: requested.word("features-on").map(|word| match word {
                "data" => FeaturesOn::Data,
                _ => FeaturesOn::Cpu,
            }),
            allow_fallback: requested.is_on("allow-fallback"),
            simulate_devices: requested.word("simulate-devices").and_then(|word| word.parse().ok()),
        }
    }

    pub(crate) fn request(&self) -> Request {
        Request {
            data: self.data_gpu.clone(),
            model: self.model_gpu.clone(),
            backend: self.backend.as_deref().and_then(|backend| match backend {
                "cuda" => Some(Backend::Cuda),
                "vulkan" => Some(Backend::Vulkan),
                "metal" => Some(Backend::Metal),
                "dx12" => Some(Backend::Dx12),
                "cpu" => Some(Backend::Cpu),
                _ => None,
            }),
            features: self.features_on,
            allow_fallback: self.allow_fallback,
        }
    }

    /// Those of a rank, at this place among the `ranks` of its host: of a list of devices the one at its place.
    ///
    /// # Errors
    ///
    /// A flag that has fewer devices than there are ranks, and what was given to it.
    pub(crate) fn of_rank(mut self, place: usize, ranks: usize) -> Result<LaneArgs, (&'static str, String)> {
        for (flag, device) in [("--data-gpu", &mut self.data_gpu), ("--model-gpu", &mut self.model_gpu)] {
            let Some(list) = device.as_ref().map(Selector::to_string).filter(|list| list.contains(',')) else {
                continue;
            };
            let devices: Vec<&str> = list.split(',').map(str::trim).filter(|one| !one.is_empty()).collect();
            let own = devices.get(place).filter(|_| devices.len() >= ranks).and_then(|one| one.parse().ok());
            *device = Some(own.ok_or((flag, list.clone()))?);
        }
        Ok(self)
    }

    /// Devices for a rank that named none: of `gpus` real ones a pair for each rank of its host, or one, if there are enough.
    pub(crate) fn paired(mut self, gpus: usize, place: usize, ranks: usize) -> LaneArgs {
        let is_named = self.data_gpu.is_some() || self.model_gpu.is_some();
        if is_named || self.backend.as_deref() == Some("cpu") || gpus < ranks {
            return self;
        }
        let device = |index: usize| Some(Selector::Index(index));
        (self.data_gpu, self.model_gpu) = match gpus >= 2 * ranks {
            true => (device(2 * place), device(2 * place + 1)),
            false => (Some(Selector::Name("cpu".to_owned())), device(place)),
        };
        self
    }

    /// The flags that say which devices are wanted.
    pub(crate) fn as_typed(&self) -> String {
        let device = |flag: &str, device: &Option<Selector>| device.as_ref().map(|device| format!("{flag} {device}"));
        let backend = self.backend.as_ref().map(|backend| format!("--backend {backend}"));
        let flags = [device("--data-gpu", &self.data_gpu), device("--model-gpu", &self.model_gpu), backend];
        flags.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

/// The one device of a command that does not train with two lanes.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DeviceArgs {
    /// Kind of device to compute on; without it and --device, the CPU
    #[arg(long, value_name = "BACKEND", value_parser = backend(), help_heading = "Device")]
    pub(crate) backend: Option<String>,
    /// Device to compute on: its index in `tandem devices`, or a part of its name
    #[arg(long, value_name = "DEVICE", help_heading = "Device")]
    pub(crate) device: Option<Selector>,
}

impl DeviceArgs {
    /// As lanes: the host prepares, the device computes.
    pub(crate) fn lanes(&self) -> LaneArgs {
        let cpu = Selector::Name("cpu".to_owned());
        let is_cpu = |device: &Selector| device.to_string().eq_ignore_ascii_case("cpu");
        let on_cpu = match (self.backend.as_deref(), &self.device) {
            (backend, Some(device)) => is_cpu(device) && matches!(backend, None | Some("auto" | "cpu")),
            (backend, None) => matches!(backend, None | Some("cpu")),
        };
        if on_cpu {
            return LaneArgs { backend: Some("cpu".to_owned()), ..LaneArgs::default() };
        }
        let (device, backend) = (self.device.clone(), self.backend.clone());
        LaneArgs { data_gpu: device.is_some().then_some(cpu), model_gpu: device, backend, ..LaneArgs::default() }
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
    #[command(flatten)]
    pub(crate) requested: SettingArgs<ADVISE>,
    /// Steps to measure, after one that warms up
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..=1000))]
    pub(crate) steps: u64,
    /// Print one JSON object instead of the report
    #[arg(long)]
    pub(crate) json: bool,
}
