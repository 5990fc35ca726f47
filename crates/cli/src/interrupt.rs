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

/// Whether the terminal may close without ending the program, as under `nohup`: a handler would undo that.
struct HangUp {
    ignored: bool,
}

#[cfg(unix)]
impl HangUp {
    fn seen() -> HangUp {
        // SAFETY: only asks for what is set, and sets it again.
        let ignored = unsafe {
            let before = libc::signal(libc::SIGHUP, libc::SIG_IGN);
            libc::signal(libc::SIGHUP, before);
            before == libc::SIG_IGN
        };
        HangUp { ignored }
    }

    fn respect(&self) {
        if self.ignored {
            // SAFETY: as it was before.
            unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
        }
    }
}

#[cfg(not(unix))]
impl HangUp {
    fn seen() -> HangUp {
        HangUp { ignored: false }
    }

    fn respect(&self) {
        let _ = self.ignored;
    }
}

/// Catches Ctrl-C from now on.
pub(crate) fn catch() -> Interrupt {
    let interrupt = Interrupt::default();
    let asked = interrupt.clone();
    // An error means that a handler exists already; then that one is in charge.
    let hang_up = HangUp::seen();
    let _ = ctrlc::set_handler(move || asked.ask());
    hang_up.respect();
    interrupt
}
