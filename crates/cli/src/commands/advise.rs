//! `tandem advise`.
use crate::args::AdviseArgs;
use crate::failure::Failure;
use crate::messages::Messages;
pub(crate) fn run(_args: &AdviseArgs, _messages: &Messages) -> Result<(), Failure> {
    Ok(())
}
