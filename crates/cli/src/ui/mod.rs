//! What a person sees: tables, progress, images.

pub(crate) mod dashboard;
pub(crate) mod demo_page;
pub(crate) mod evaluation_page;
pub(crate) mod histogram;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod segment_page;
pub(crate) mod table;
pub(crate) mod timing_report;
pub(crate) mod training;
pub(crate) mod usage;
