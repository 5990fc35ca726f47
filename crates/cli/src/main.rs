//! The `tandem` program: `main` → `run` → one function per command.

mod args;
mod commands;
mod failure;
mod interrupt;
mod lanes;
mod listeners;
mod messages;
mod settings;
mod ui;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};
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
    let args = Args::parse();
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
        Command::Simulate(args) => commands::simulate::run(args, messages),
    }
}
