//! The `tandem` program: `main` → `run` → one function per command.

mod args;
mod commands;
mod config;
mod failure;
mod interrupt;
mod lanes;
mod listeners;
mod messages;
mod settings;
mod ui;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::FromArgMatches;

use crate::args::{Args, Command};
use crate::config::Given;
use crate::failure::Failure;
use crate::messages::Messages;

/// So that `--enable-memory-isolation` knows what a step on the CPU takes.
#[global_allocator]
static ALLOCATOR: tandem_train::memory::Counting = tandem_train::memory::Counting;

fn main() -> ExitCode {
    tandem_train::memory::keep_freed_blocks();
    // Mesa's layer that reorders GPUs for desktops looks for a window system and complains that there is none.
    // SAFETY: no other thread is running yet.
    unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    let args = match parse(std::env::args_os().collect()) {
        Ok(args) => args,
        Err(failure) => {
            eprintln!("{}", failure.render(&Messages::for_user(None), std::io::stderr().is_terminal()));
            return ExitCode::from(failure.code);
        }
    };
    let messages = Messages::for_user(args.lang);
    let json = args.command.streams_json();
    match run(args, &messages) {
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

/// What was typed, after what `--config` says.
fn parse(typed: Vec<OsString>) -> Result<Args, Failure> {
    let (all, file) = config::expand(typed.clone()).map_err(|error| commands::config::wrong(&error))?;
    let matches = config::command().try_get_matches_from(all).unwrap_or_else(|error| {
        if let Some(file) = file.as_ref().filter(|_| error.use_stderr()) {
            eprintln!("{}:", file.path.display());
        }
        error.exit()
    });
    let mut args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    for note in file.iter().flat_map(|file| &file.notes) {
        eprintln!("{}", Messages::for_user(args.lang).with("config-note", &[("note", note)]));
    }
    if let Command::Train(train) = &mut args.command {
        train.given = Given::new(&typed, file.as_ref(), matches.subcommand_matches("train"));
    }
    Ok(args)
}

fn run(args: Args, messages: &Messages) -> Result<(), Failure> {
    match args.command {
        Command::Demo(args) => commands::demo::run(&args, messages),
        Command::Train(args) => commands::train::run(&args, messages),
        Command::Synth(args) => commands::synth::run(&args, messages),
        Command::Evaluate(args) => commands::evaluate::run(&args, messages),
        Command::Inspect(args) => commands::inspect::run(&args, messages),
        Command::Devices(args) => commands::devices::run(&args, messages),
        Command::Advise(args) => commands::advise::run(&args, messages),
        Command::Profile(args) => commands::profile::run(&args, messages),
        Command::Report(args) => commands::report::run(&args, messages),
        Command::Doctor(args) => commands::doctor::run(args, messages),
        Command::Prepare(args) => commands::prepare::run(args, messages),
        Command::Load(args) => commands::load::run(args, messages),
        Command::Config(args) => commands::config::run(&args, messages),
        Command::Completions(args) => commands::config::completions(&args),
        Command::Man(args) => commands::config::man(&args, messages),
        Command::Simulate(args) => commands::simulate::run(args, messages),
    }
}
