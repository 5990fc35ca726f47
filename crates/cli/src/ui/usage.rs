//! What is shown instead of running a command: help, the version, or what is wrong with the arguments.

use std::io::{IsTerminal, stderr, stdout};

use clap::error::ErrorKind;

use crate::config_file::File;
use crate::failure::{Failure, USAGE};
use crate::messages::{Lang, Messages};
use crate::texts;
use crate::ui::output::print;

/// Prints help; wrong arguments are a failure. `file` is the file of settings, where the mistake may be.
pub(crate) fn show(error: &clap::Error, file: Option<&File>, messages: &Messages) -> Result<(), Failure> {
    let page = error.render();
    let colored = |terminal: bool| terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let text = page.to_string();
        let text = match messages.lang() {
            Lang::En => text.trim_start_matches("error: ").trim_end().to_owned(),
            Lang::Fa => texts::usage_error(&text),
        };
        let place = file.map_or(String::new(), |file| format!("{}: ", file.path.display()));
        return Err(Failure::usage(place + &text));
    }
    let terminal = if error.use_stderr() { stderr().is_terminal() } else { stdout().is_terminal() };
    let page = if colored(terminal) { page.ansi().to_string() } else { page.to_string() };
    let page = match messages.lang() {
        Lang::En => page,
        Lang::Fa => texts::help_page(&page),
    };
    if error.use_stderr() {
        // Nothing was requested.
        eprint!("{page}");
        std::process::exit(USAGE.into());
    }
    print(&page)
}
