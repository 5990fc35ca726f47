//! Progress on stderr, only in a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar with a message, drawn at most ten times a second; nothing when stderr is not a terminal.
pub(crate) fn bar(total: u64, visible: bool) -> ProgressBar {
    let target = if visible { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(total), target);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {eta}").expect("a valid template");
    bar.set_style(style.progress_chars("━╸ "));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// A bar for work whose parts are not worth counting: its share and the time left.
pub(crate) fn share(total: u64, visible: bool) -> ProgressBar {
    let bar = bar(total, visible);
    let style = ProgressStyle::with_template("{bar:30} {percent} % {msg} {eta}").expect("a valid template");
    bar.set_style(style.progress_chars("━╸ "));
    bar
}

/// A bar for training: the message says everything that matters.
pub(crate) fn training(visible: bool) -> ProgressBar {
    // Empty until the first steps are done.
    let bar = bar(1, visible);
    bar.set_style(ProgressStyle::with_template("{bar:10} {wide_msg}").expect("a valid template").progress_chars("━╸ "));
    bar
}
