//! What a person sees: tables, progress, pictures.

pub(crate) mod dashboard;
pub(crate) mod histogram;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod table;
pub(crate) mod training;
pub(crate) mod usage;
