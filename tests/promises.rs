//! What Tandem promises its users: one module per promise, run on the real program.

mod config;
mod corpus;
mod data;
mod documents;
mod lanes;
mod licences;
mod profile;
mod report;
mod simulate;
mod support;
mod train;
