//! What Tandem promises its users: one module per promise, run on the real program.

mod commands;
mod comparisons;
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
mod segment;
mod serve;
mod simulate;
mod support;
mod synthesis;
mod text;
mod train;
mod unsafe_code;
mod warm_start;
mod words;
