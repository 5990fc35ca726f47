//! One module per command.

pub(crate) mod corpus;
pub(crate) mod doctor;
pub(crate) mod load;
pub(crate) mod prepare;
pub(crate) mod simulate;
