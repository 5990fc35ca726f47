//! As in the crate, what needs no Burn.

#[path = "../../crates/train/src/settings/requested.rs"]
mod requested;
#[path = "../../crates/train/src/settings/resolve.rs"]
mod resolve;
#[path = "../../crates/train/src/settings/setting.rs"]
mod setting;
#[path = "../../crates/train/src/settings/table.rs"]
mod table;
#[path = "../../crates/train/src/settings/train_config.rs"]
mod train_config;
#[path = "../../crates/train/src/settings/value.rs"]
mod value;

pub use requested::Requested;
pub use resolve::{Facts, HalfPrecision, resolve, resolve_corpus};
pub use setting::{Scope, Setting};
pub use table::{SETTINGS, find as find_setting};
pub use train_config::TrainConfig;
pub use value::{Kind, Value};
