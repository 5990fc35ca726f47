//! Ctrl-C: the first asks the work to end and keep what is done, the second ends the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tandem_flow::Stop;

use crate::failure::INTERRUPTED;

/// Runs `first` at the first Ctrl-C.
fn on_interrupt(first: impl Fn() + Send + 'static) {
    let asked = AtomicBool::new(false);
    // An error means that a handler exists already; then that one is in charge.
    let _ = ctrlc::set_handler(move || {
        if asked.swap(true, Ordering::SeqCst) {
            std::process::exit(INTERRUPTED.into());
        }
        first();
    });
}

/// A flow's stop.
pub(crate) fn stop_flow() -> Stop {
    let stop = Stop::new();
    let asked = stop.clone();
    on_interrupt(move || asked.request("interrupted"));
    stop
}

/// A flag for work that looks at it now and then.
pub(crate) fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    on_interrupt(move || asked.store(true, Ordering::Relaxed));
    stop
}
