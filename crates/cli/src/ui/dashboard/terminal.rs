//! The dashboard in a real terminal, on a thread of its own: the trainer has something to say only now and then.

use std::io::{self, IsTerminal, Stdout, stdin, stdout};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use ratatui::crossterm::{cursor, execute};

use tandem_observe::Snapshot;

use super::Dashboard;

/// A text by its id, on any thread.
pub(crate) type Label = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Called on another thread each time the user asks to stop.
pub(crate) type OnStop = Box<dyn Fn() + Send>;

const REDRAW: Duration = Duration::from_millis(200);
/// How soon a key, a new size or the end is noticed.
const GLANCE: Duration = Duration::from_millis(40);
/// A letter that comes again this soon is a key held down, not a second thought.
const HELD: Duration = Duration::from_millis(700);

/// The terminal is ours: raw, and on its alternate screen.
static OURS: AtomicBool = AtomicBool::new(false);
/// Held while a frame is written.
static PAINTING: Mutex<()> = Mutex::new(());
static HOOK: Once = Once::new();

/// Gives the terminal back as it was, if a dashboard has it. For any thread, any number of times; needed before the
/// process ends without running destructors.
pub(crate) fn restore() {
    if !OURS.swap(false, Ordering::SeqCst) {
        return;
    }
    // A frame under way would land on the user's screen. Not for ever: it may be the painter itself that panics.
    let since = Instant::now();
    let mut frame = PAINTING.try_lock();
    while frame.is_err() && since.elapsed() < REDRAW {
        thread::sleep(Duration::from_millis(2));
        frame = PAINTING.try_lock();
    }
    let _ = execute!(stdout(), LeaveAlternateScreen, cursor::Show);
    let _ = disable_raw_mode();
}

/// Whether a dashboard has the terminal.
pub(crate) fn has_terminal() -> bool {
    OURS.load(Ordering::SeqCst)
}

fn take_over() -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    if !(stdin().is_terminal() && stdout().is_terminal()) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "standard input and output are not a terminal"));
    }
    let terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
    if OURS.swap(true, Ordering::SeqCst) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a dashboard has the terminal already"));
    }
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            previous(panic);
        }));
    });
    enable_raw_mode()
        .and_then(|()| execute!(stdout(), EnterAlternateScreen, cursor::Hide))
        .inspect_err(|_| restore())
        .map(|()| terminal)
}

/// A dashboard that is on the screen from `new` until `finish` or until it is dropped.
pub(crate) struct LiveDashboard {
    shared: Arc<Shared>,
    painter: Option<JoinHandle<()>>,
}

struct Shared {
    board: Mutex<Dashboard>,
    stopping: AtomicBool,
    presses: AtomicUsize,
}

impl Shared {
    fn board(&self) -> MutexGuard<'_, Dashboard> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveDashboard {
    /// Takes the terminal over. An error means that it cannot be had, and that it is as before.
    pub(crate) fn new(board: Dashboard, label: Label, on_stop: OnStop) -> io::Result<LiveDashboard> {
        let terminal = take_over()?;
        let shared = Arc::new(Shared {
            board: Mutex::new(board),
            stopping: AtomicBool::new(false),
            presses: AtomicUsize::new(0),
        });
        let mut painter = Painter { shared: Arc::clone(&shared), terminal, label, on_stop, pressed: None };
        let thread = thread::Builder::new().name("dashboard".to_owned()).spawn(move || {
            // The terminal may be gone, and with it whoever sees it; the run continues.
            let _ = painter.run();
            restore();
        });
        Ok(LiveDashboard { shared, painter: Some(thread.inspect_err(|_| restore())?) })
    }

    /// Shows a snapshot of the run.
    pub(crate) fn update(&self, snapshot: Snapshot) {
        self.shared.board().update(snapshot);
    }

    /// Shows what the plain screen would print.
    pub(crate) fn message(&self, text: &str) {
        self.shared.board().message(text);
    }

    /// False once the terminal was given back (a panic somewhere, a terminal that is gone): print plain lines then.
    pub(crate) fn is_shown(&self) -> bool {
        OURS.load(Ordering::SeqCst)
    }

    /// Gives the terminal back; returns the last messages, to be printed where they stay.
    pub(crate) fn finish(mut self) -> Vec<String> {
        self.close();
        self.shared.board().messages.drain(..).collect()
    }

    fn close(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        if let Some(painter) = self.painter.take() {
            // A terminal that takes no more text blocks the painter; the run must end all the same.
            let since = Instant::now();
            while !painter.is_finished() && since.elapsed() < 5 * REDRAW {
                thread::sleep(Duration::from_millis(2));
            }
        }
        restore();
    }
}

impl Drop for LiveDashboard {
    fn drop(&mut self) {
        self.close();
    }
}

struct Painter {
    shared: Arc<Shared>,
    terminal: Terminal<CrosstermBackend<Stdout>>,
    label: Label,
    on_stop: OnStop,
    /// When a stop key was last down.
    pressed: Option<Instant>,
}

impl Painter {
    fn run(&mut self) -> io::Result<()> {
        while !self.shared.stopping.load(Ordering::SeqCst) {
            // Before the frame is drawn: a size that changes meanwhile is seen too.
            let before = size()?;
            {
                let _frame = PAINTING.lock();
                if !OURS.load(Ordering::SeqCst) {
                    return Ok(());
                }
                let (shared, label) = (&self.shared, &self.label);
                self.terminal.draw(|frame| shared.board().draw(frame, &**label))?;
            }
            let drawn = Instant::now();
            while drawn.elapsed() < REDRAW && size()? == before && !self.shared.stopping.load(Ordering::SeqCst) {
                if let Some(wish) = keys::within(GLANCE)? {
                    self.obey(wish)?;
                    break;
                }
            }
        }
        Ok(())
    }

    fn obey(&mut self, wish: Wish) -> io::Result<()> {
        match wish {
            Wish::Repaint => self.terminal.clear()?,
            Wish::Stop { held } => {
                let again = self.pressed.replace(Instant::now()).is_some_and(|before| before.elapsed() < HELD);
                if !(held && again) {
                    self.stop();
                }
            }
        }
        Ok(())
    }

    fn stop(&self) {
        self.shared.board().stopping = true;
        // The second time the callback may end the process, and no destructor runs then.
        if self.shared.presses.fetch_add(1, Ordering::SeqCst) > 0 {
            restore();
        }
        (self.on_stop)();
    }
}

#[derive(Debug, PartialEq)]
pub(super) enum Wish {
    /// `held`: may come from a key that is held down. Ctrl-C counts each time, as it does everywhere.
    Stop { held: bool },
    /// Something else has written on the screen.
    Repaint,
}

/// Keys, read without crossterm's events: those never return, and take a whole core, once the terminal is gone
/// (crossterm issue 793).
#[cfg(unix)]
pub(super) mod keys {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    pub(super) fn within(time: Duration) -> io::Result<Option<Wish>> {
        if !ready(time)? {
            return Ok(None);
        }
        let mut typed = [0; 256];
        let mut count = rustix::io::read(stdin(), &mut typed)?;
        // The rest of an arrow key may be late; Escape alone has no rest.
        if typed[..count] == [0x1b] && ready(GLANCE)? {
            count += rustix::io::read(stdin(), &mut typed[1..])?;
        }
        if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(wish(&typed[..count])) }
    }

    fn ready(time: Duration) -> io::Result<bool> {
        let timeout = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        let stdin = stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
            Ok(_) if fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) => {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Ok(ready) => Ok(ready > 0),
        }
    }

    /// What bytes of a raw terminal ask for; other keys send sequences that begin with an escape.
    pub(crate) fn wish(typed: &[u8]) -> Option<Wish> {
        match typed {
            [0x1b] => Some(Wish::Stop { held: true }),
            [0x1b, ..] => None,
            _ => typed.iter().find_map(|key| match key {
                0x03 => Some(Wish::Stop { held: false }),
                b'q' | b'Q' => Some(Wish::Stop { held: true }),
                0x0c => Some(Wish::Repaint),
                _ => None,
            }),
        }
    }
}

#[cfg(not(unix))]
mod keys {
    use super::*;
    use ratatui::crossterm::event::{self, KeyCode, KeyEventKind, KeyModifiers};

    pub(super) fn within(time: Duration) -> io::Result<Option<Wish>> {
        if !event::poll(time)? {
            return Ok(None);
        }
        let event = event::read()?;
        let key = event.as_key_event().filter(|key| key.kind != KeyEventKind::Release);
        Ok(key.and_then(|key| match (key.code, key.modifiers.contains(KeyModifiers::CONTROL)) {
            (KeyCode::Char('c' | 'C'), true) => Some(Wish::Stop { held: false }),
            (KeyCode::Char('q' | 'Q') | KeyCode::Esc, false) => Some(Wish::Stop { held: true }),
            (KeyCode::Char('l' | 'L'), true) => Some(Wish::Repaint),
            _ => None,
        }))
    }
}
