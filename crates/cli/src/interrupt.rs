//! Ctrl-C: the first asks the work to end and keep what is done, the second ends the program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tandem_flow::Stop;

use crate::failure::INTERRUPTED;
use crate::ui::dashboard;

/// What the first Ctrl-C sets.
#[derive(Clone, Default)]
pub(crate) struct Interrupt {
    /// For a flow.
    pub(crate) stop: Stop,
    /// For work that looks at it now and then.
    pub(crate) flag: Arc<AtomicBool>,
    /// What to say then, if anything.
    pub(crate) notice: Arc<OnceLock<String>>,
}

impl Interrupt {
    /// What Ctrl-C does, by whatever way it comes.
    pub(crate) fn ask(&self) {
        if self.flag.swap(true, Ordering::SeqCst) {
            dashboard::restore();
            std::process::exit(INTERRUPTED.into());
        }
        if let Some(text) = self.notice.get().filter(|_| !dashboard::has_terminal()) {
            eprintln!("{text}");
        }
        self.stop.request("interrupted");
    }
}

/// Catches Ctrl-C from now on.
pub(crate) fn catch() -> Interrupt {
    let interrupt = Interrupt::default();
    let asked = interrupt.clone();
    // An error means that a handler exists already; then that one is in charge.
    let _ = ctrlc::set_handler(move || asked.ask());
    interrupt
}
