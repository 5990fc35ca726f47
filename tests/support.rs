//! Running the program as a user does.

use std::process::{Command, Output};

/// The program, in English and without colour, whatever the machine's locale.
pub(crate) fn tandem() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
    command.env("LC_ALL", "C.UTF-8").env("NO_COLOR", "1").env_remove("LC_MESSAGES").env_remove("LANG");
    command
}

/// Runs it with arguments separated by blanks.
pub(crate) fn run(arguments: &str) -> Output {
    tandem().args(arguments.split_whitespace()).output().expect("the program starts")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// The JSON object on the last line.
pub(crate) fn last_json(output: &Output) -> serde_json::Value {
    let text = stdout(output);
    let line = text.lines().last().unwrap_or_else(|| panic!("no output; stderr: {}", stderr(output)));
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}
