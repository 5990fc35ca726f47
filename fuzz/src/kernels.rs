//! As in the crate, what needs no Burn.

#[path = "../../crates/model/src/kernels/stft.rs"]
mod stft;

pub use stft::Stft;
