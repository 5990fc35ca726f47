//! What Tandem promises its users: one module per promise, run on the real program.

mod licences;
mod simulate;
mod support;
