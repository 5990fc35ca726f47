//! [`WrongResult`]: what a device computed that the CPU computes otherwise.

use std::error::Error;
use std::fmt;

/// A result that is further from the CPU's than rounding explains.
#[derive(Clone, Debug, PartialEq)]
pub struct WrongResult {
    /// What was computed.
    pub operation: &'static str,
    /// The largest difference, relative to the largest value.
    pub error: f32,
}

impl fmt::Display for WrongResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is wrong by {:.1} % of the largest value", self.operation, 100.0 * self.error)
    }
}

impl Error for WrongResult {}
