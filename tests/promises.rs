//! What Tandem promises its users: one module per promise, run on the real program.

mod config;
mod corpus;
mod data;
mod devices;
mod documents;
mod lanes;
mod licences;
mod memory;
mod profile;
mod report;
mod simulate;
mod support;
mod train;
