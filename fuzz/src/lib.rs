//! What reads files and needs no Burn, compiled from the crates' own sources: with Burn a fuzz target would take half an hour
//! to build. A file that begins to need it is taken out of here, or split.
#![allow(dead_code, unused_imports)]

// The files say `tandem_model` and `tandem_train`; here both are this crate.
extern crate self as tandem_model;
extern crate self as tandem_train;

#[path = "../../crates/model/src/config.rs"]
mod config;
mod kernels;
mod optim;
mod settings;
#[path = "../../crates/train/src/checkpoint/state.rs"]
mod state;
mod task;
#[path = "../../crates/model/src/tensors.rs"]
mod tensors;
#[path = "../../crates/model/src/vocoder/config.rs"]
mod vocoder_config;
#[path = "../../crates/cli/src/config_file/yaml.rs"]
mod yaml;

use std::path::Path;

use tandem_device::Inventory;

pub use config::{ModelConfig, Size};
pub use settings::{Kind, Requested, SETTINGS, Scope, Setting, TrainConfig, Value, find_setting};
pub use state::{FORMAT, State};
pub use tensors::{HostTensor, Tensors};
pub use vocoder_config::VocoderConfig;

/// The state of a checkpoint; none if it is refused.
pub fn state(bytes: &[u8]) -> Option<State> {
    State::parse(bytes).ok()
}

/// The tensors of a checkpoint; none if they are refused.
pub fn tensors(bytes: &[u8]) -> Option<Tensors> {
    tensors::from_bytes(bytes).ok()
}

/// The bytes of tensors.
pub fn to_bytes(tensors: &Tensors) -> Vec<u8> {
    tensors::to_bytes(tensors).expect("shapes that fit")
}

/// What `tandem config check` and `tandem train --config` do with a file, up to the devices. None: it is refused in words.
pub fn config(text: &str) -> Option<TrainConfig> {
    let file = match yaml::File::parse(Path::new("config.yaml"), text, Scope::Train) {
        Ok(file) => file,
        Err(error) => {
            assert!(error.to_string().starts_with("config.yaml"), "{error}");
            return None;
        }
    };
    let mut requested = Requested::new();
    for entry in &file.entries {
        requested.set(entry.setting.flag, &entry.value, "config.yaml").ok()?;
    }
    let corpus = settings::resolve_corpus(&requested, None);
    let placements = ["1", "2x8GB"].map(|text| {
        let inventory = Inventory::simulated(text.parse().expect("a simulation"));
        tandem_device::resolve(&tandem_device::Request::default(), &inventory.gpus, &inventory.cpu)
    });
    let mut last = None;
    for placement in placements.into_iter().flatten() {
        let facts = settings::Facts { half_precision: settings::HalfPrecision::Works, ..settings::Facts::new(400, &placement) };
        let resolved = settings::resolve(&requested, None, &facts);
        if let Ok((config, _)) = &resolved {
            assert!(corpus.is_ok(), "what the first look refuses is refused");
            // A run is resumed with what it saved, without saying any of it again.
            let (again, _) = settings::resolve(&Requested::new(), Some(config), &facts).expect("its own settings");
            assert_eq!(again.model, config.model);
        }
        last = resolved.ok().map(|(config, _)| config);
    }
    last
}
