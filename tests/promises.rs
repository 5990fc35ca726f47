//! What Tandem promises its users: one module per promise, run on the real program.

mod commands;
mod config;
mod corpus;
mod data;
mod dependencies;
mod devices;
mod documents;
mod lanes;
mod licenses;
mod memory;
mod profile;
mod report;
mod scripts;
mod simulate;
mod support;
mod text;
mod train;
mod warm_start;
mod words;
