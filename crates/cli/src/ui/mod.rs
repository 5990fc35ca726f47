//! What a person sees: tables, progress.

pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod table;
