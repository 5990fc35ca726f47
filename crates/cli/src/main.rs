//! The `tandem` program: `main` → `Command::run` (`commands/mod.rs`) → one function per command.

mod args;
mod commands;
mod config_file;
mod errors;
mod failure;
mod interrupt;
mod listeners;
mod messages;
mod open_lanes;
mod ranks;
mod run_facts;
mod texts;
mod ui;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::FromArgMatches;

use crate::args::Args;
use crate::commands::Command;
use crate::failure::Failure;
use crate::messages::{Lang, Messages};

/// So that `--enable-memory-isolation` knows what a step on the CPU takes.
#[global_allocator]
static ALLOCATOR: tandem_train::memory::Counting = tandem_train::memory::Counting;

fn main() -> ExitCode {
    tandem_train::memory::keep_freed_blocks();
    // Mesa's layer that reorders GPUs for desktops looks for a window system and complains that there is none.
    // SAFETY: no other thread is running yet.
    unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    let typed: Vec<OsString> = std::env::args_os().collect();
    let messages = Messages::for_user(Lang::typed(&typed));
    let args = match parse(typed, &messages) {
        Ok(Some(args)) => args,
        Ok(None) => return ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{}", failure.render(&messages, std::io::stderr().is_terminal()));
            return ExitCode::from(failure.code);
        }
    };
    let json = args.command.streams_json();
    match args.command.run(&messages) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if json {
                // The last line that a script reads; whoever closed the pipe does not want it.
                let _ = writeln!(std::io::stdout(), "{}", failure.json());
            }
            eprintln!("{}", failure.render(&messages, std::io::stderr().is_terminal()));
            ExitCode::from(failure.code)
        }
    }
}

/// What was typed, after what `--config` says; none when all that was requested was help.
fn parse(typed: Vec<OsString>, messages: &Messages) -> Result<Option<Args>, Failure> {
    let (all, file) = config_file::expand(typed.clone()).map_err(|error| commands::config::wrong(&error))?;
    let command = match messages.lang() {
        Lang::En => config_file::command(),
        Lang::Fa => texts::localized(config_file::command()),
    };
    let parsed = command.try_get_matches_from(all).and_then(|matches| Args::from_arg_matches(&matches));
    let mut args = match parsed {
        Ok(args) => args,
        Err(error) => {
            // Wrong without the file, too: then it was typed.
            let is_typed = |alone: clap::Error| alone.to_string() == error.to_string();
            let typed_wrong = config_file::command().try_get_matches_from(&typed).is_err_and(is_typed);
            return ui::usage::show(&error, file.as_ref().filter(|_| !typed_wrong), messages).map(|()| None);
        }
    };
    for note in file.iter().flat_map(|file| &file.notes) {
        eprintln!("{}", messages.with("config-note", &[("note", note)]));
    }
    if let (Command::Train(train), Some(file)) = (&mut args.command, &file) {
        config_file::note_sources(&mut train.requested, &typed, file);
    }
    Ok(Some(args))
}
