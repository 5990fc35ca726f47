//! One module per command.

pub(crate) mod advise;
pub(crate) mod config;
pub(crate) mod corpus;
pub(crate) mod demo;
pub(crate) mod devices;
pub(crate) mod doctor;
pub(crate) mod evaluate;
pub(crate) mod inspect;
pub(crate) mod load;
pub(crate) mod prepare;
pub(crate) mod profile;
pub(crate) mod reference;
pub(crate) mod report;
pub(crate) mod simulate;
pub(crate) mod synth;
pub(crate) mod train;
