//! Ctrl-C: the first asks the work to end and keep what is done, another one two seconds later ends the program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tandem_flow::Stop;

use crate::failure::INTERRUPTED;
use crate::ui::dashboard;

/// A second Ctrl-C before that is the same request again: a key that repeats, or a program that sends two signals. It must
/// not cost what was learned since the last checkpoint.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// What the first Ctrl-C sets.
#[derive(Clone, Default)]
pub(crate) struct Interrupt {
    /// For a flow.
    pub(crate) stop: Stop,
    /// For work that looks at it now and then.
    pub(crate) flag: Arc<AtomicBool>,
    /// What to say then, if anything.
    pub(crate) notice: Arc<OnceLock<String>>,
    /// When it came.
    first: Arc<OnceLock<Instant>>,
}

impl Interrupt {
    /// What Ctrl-C does, by whatever way it comes.
    pub(crate) fn ask(&self) {
        let now = Instant::now();
        let since_first = now - *self.first.get_or_init(|| now);
        if self.flag.swap(true, Ordering::SeqCst) {
            if !is_meant(since_first) {
                return;
            }
            dashboard::restore();
            std::process::exit(INTERRUPTED.into());
        }
        self.stop.request("interrupted");
        // Said when it is so: who reads it knows that the next step is not begun.
        if let Some(text) = self.notice.get().filter(|_| !dashboard::has_terminal()) {
            eprintln!("{text}");
        }
    }
}

/// Whether another Ctrl-C, so long after the first, asks to end at once.
fn is_meant(since_first: Duration) -> bool {
    since_first >= AGAIN_AFTER
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

/// Catches Ctrl-C from now on. There is one for the whole program, however often this is called: what was asked of work that had just
/// ended is asked of what comes after it.
pub(crate) fn catch() -> Interrupt {
    static CAUGHT: OnceLock<Interrupt> = OnceLock::new();
    let catch = || {
        let interrupt = Interrupt::default();
        let asked = interrupt.clone();
        let hang_up = HangUp::seen();
        // It fails only where signals cannot be caught at all.
        let _ = ctrlc::set_handler(move || asked.ask());
        hang_up.respect();
        interrupt
    };
    CAUGHT.get_or_init(catch).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_request_ends_the_program_only_after_two_seconds() {
        for (ms, meant) in [(0, false), (1999, false), (2000, true), (60_000, true)] {
            assert_eq!(is_meant(Duration::from_millis(ms)), meant, "{ms} ms");
        }
    }
}
