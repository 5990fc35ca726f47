//! How a run is set up: what may be requested, and what a run then has.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `table.rs` | [`SETTINGS`]: one row for each setting, from which arguments, keys, schema and reference are made |
//! | `setting.rs` | [`Setting`]: what a row says |
//! | `value.rs` | [`Kind`], [`Value`]: what a setting may be, how it is read and shown |
//! | `requested.rs` | [`Requested`]: the settings that were given |
//! | `resolve.rs` | [`resolve`]: from requested, saved and facts to a [`TrainConfig`]; pure |
//! | `train_config.rs` | [`TrainConfig`]: every setting of a run, in groups; saved in each checkpoint |

mod requested;
mod resolve;
mod setting;
mod table;
mod train_config;
mod value;

pub use requested::Requested;
pub use resolve::{
    Facts, HalfPrecision, ResolvedSetting, SettingsError, limits_need_isolation, resolve, resolve_corpus,
};
pub use setting::{DefaultValue, Field, OnResume, Scope, Setting};
pub use table::{SETTINGS, find as find_setting};
pub(crate) use train_config::validation_queue;
pub use train_config::{
    DataSettings, MemorySettings, ModelSettings, NanPolicy, OptimizerSettings, PipelineSettings, RunSettings,
    TrainConfig, prefetch_buffer_size,
};
pub use value::{Kind, Off, Value, Word};
