//! Promises about what stands in a terminal: help, exit codes, color, two languages.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::support::{Workplace, interrupt, run, stderr, stdout, tandem};

/// What a page of help lists as commands.
fn listed(page: &str) -> Vec<String> {
    let after = page.split("Commands:\n").nth(1).unwrap_or_default();
    // What is further to the right continues the line before.
    let begins = after.lines().take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    let names = begins.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Every command there is, with those below it.
fn commands() -> Vec<String> {
    let mut all = vec![String::new()];
    for name in listed(&stdout(&run("--help"))) {
        let below = listed(&stdout(&run(&format!("{name} --help"))));
        all.push(name.clone());
        all.extend(below.into_iter().map(|below| format!("{name} {below}")));
    }
    assert!(all.len() > 20, "{all:?}");
    all
}

#[test]
fn every_help_is_as_it_was_looked_at() {
    for command in commands() {
        let page = stdout(&run(&format!("{command} --help")));
        let name = if command.is_empty() { "tandem".to_owned() } else { command.replace(' ', "-") };
        // Those below another one are in its examples.
        assert!(page.contains("Example") || command.contains(' '), "{command}: no example\n{page}");
        insta::assert_snapshot!(format!("help-{name}"), page);
    }
}

/// SPEC T10: no line of help is left in English, and columns begin where they begin.
#[test]
fn every_help_is_there_in_persian() {
    let is_persian = |c: char| ('\u{0600}'..='\u{06FF}').contains(&c);
    for command in commands() {
        let (english, persian) =
            (stdout(&run(&format!("{command} --help"))), stdout(&run(&format!("{command} --help --lang fa"))));
        let lines = |page: &str| -> BTreeSet<String> { page.lines().map(|line| line.trim().to_owned()).collect() };
        // The same line in both: only flags, values and commands, not a sentence.
        let sentence = |line: &&String| {
            let words = line.split(' ').filter(|word| word.len() > 1 && word.chars().all(|c| c.is_ascii_lowercase()));
            !line.starts_with("tandem") && words.count() > 2
        };
        let (english, persian_lines) = (lines(&english), lines(&persian));
        let left: Vec<&String> = english.intersection(&persian_lines).filter(sentence).collect();
        assert!(left.is_empty(), "{command}: {left:#?}");
        assert!(persian.chars().any(is_persian), "{command}: {persian}");
        assert!(!persian.contains("Usage:") && !persian.contains("Options:"), "{command}: {persian}");
    }
    insta::assert_snapshot!("help-fa-tandem", stdout(&run("--help --lang fa")));
    insta::assert_snapshot!("help-fa-synth", stdout(&run("synth --help --lang fa")));
}

#[test]
fn wrong_arguments_are_explained_in_both_languages() {
    let wrong = [
        "train --train-data x --batch-sise 8",
        "train --train-data x --batch-size none",
        "train --train-data x --batch-size",
        "train --cache nowhere",
        "trane",
        "profile --synthetic --train-data x",
        "simulate --load 5parsecs",
        "synth hello",
        "doctor /nowhere/at/all",
        "inspect /nowhere/at/all",
        "config check /nowhere/config.yaml",
        "config explain batch_sise",
        "train --train-data x --simulate-devices 2 --data-gpu 0",
        "devices --data-gpu",
    ];
    let mut all = String::new();
    for line in wrong {
        for lang in ["en", "fa"] {
            let output = run(&format!("{line} --lang {lang}"));
            assert_eq!(output.status.code(), Some(2), "{line}: {}", stderr(&output));
            assert_eq!(stdout(&output), "", "{line}");
            all += &format!("$ tandem {line}\n{}\n", stderr(&output));
        }
    }
    insta::assert_snapshot!("wrong-arguments", all);
}

/// Every exit code of `docs/reference/commands.md`, each seen once.
#[cfg(target_os = "linux")]
#[test]
fn exit_codes_are_as_documented() {
    let page =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/commands.md")).expect("the page");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse::<i32>().ok());
    let documented: BTreeSet<i32> = rows.collect();
    let work = Workplace::new(4, 1);
    let corpus = work.path("corpus");
    fs::write(corpus.join("wavs/bad.wav"), "no sound").expect("written");
    let metadata = fs::read_to_string(corpus.join("metadata.csv")).expect("there");
    fs::write(corpus.join("metadata.csv"), format!("{metadata}bad|a broken clip|a broken clip\n")).expect("written");
    let mut simulation = tandem();
    let mut child =
        simulation.args(["simulate", "--steps", "100000"]).stdout(Stdio::null()).spawn().expect("it starts");
    interrupt(&child);
    let interrupted = child.wait().expect("it ends").code();
    let seen = [
        run("simulate --clock virtual").status.code(),
        run(&format!("doctor {}", corpus.display())).status.code(),
        run("simulate --fault preprocess:error@3 --clock virtual").status.code(),
        run("simulate --workers").status.code(),
        interrupted,
    ];
    assert_eq!(seen, [Some(0), Some(1), Some(1), Some(2), Some(130)]);
    assert_eq!(documented, BTreeSet::from([0, 1, 2, 130]));
}

/// What is not a terminal gets text and nothing else; what is one has color unless `NO_COLOR` is set.
#[test]
fn control_characters_are_for_terminals_only() {
    let work = Workplace::new(8, 1);
    let (corpus, dir) = (work.path("corpus"), work.path("run"));
    let (corpus, dir) = (corpus.display(), dir.display());
    let plain = |output: &Output, what: &str| {
        for text in [stdout(output), stderr(output)] {
            let odd = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t'));
            assert_eq!(odd, None, "{what}: {text}");
        }
    };
    let train = format!(
        "train --train-data {corpus} --checkpoint-dir {dir} --model-size smoke --batch-size 2 --backend cpu --max-steps 3"
    );
    for line in [
        "--help".to_owned(),
        "devices".to_owned(),
        "simulate --clock virtual".to_owned(),
        "config init".to_owned(),
        "doctor /nowhere".to_owned(),
        "train --wrong".to_owned(),
        train.clone(),
        format!("{train} --tui"),
        format!("report {dir}"),
        format!("inspect {dir}"),
        format!("evaluate {dir}"),
        format!("doctor {corpus}"),
        format!("prepare {corpus}"),
        format!("load {corpus} --epochs 1"),
        format!(
            "profile --train-data {corpus} --model-size smoke --batch-size 2 --num-steps 2 --warmup 1 --backend cpu"
        ),
        format!("synth hello --checkpoint {dir} -o {dir}/hello.wav"),
    ] {
        for lang in ["en", "fa"] {
            // As a user's machine has it: nothing asks for plain text.
            let output = tandem()
                .env_remove("NO_COLOR")
                .args(line.split(' '))
                .args(["--lang", lang])
                .output()
                .expect("it starts");
            plain(&output, &line);
        }
    }
    let in_terminal = |no_color: &str| {
        let program = env!("CARGO_BIN_EXE_tandem");
        let script = Command::new("script")
            .env("NO_COLOR", no_color)
            .env("TERM", "xterm-256color")
            .args([
                "-qec",
                &format!("{program} inspect /nowhere; {program} train --wrong; {program} --help"),
                "/dev/null",
            ])
            .output();
        script.ok().map(|output| stdout(&output))
    };
    let Some(colored) = in_terminal("") else {
        assert!(std::env::var_os("CI").is_none(), "`script` is missing, and this machine must have it");
        eprintln!("skipped: no program `script`, so no terminal to look at colors");
        return;
    };
    assert!(colored.contains("\u{1b}["), "{colored}");
    let without = in_terminal("1").expect("as before");
    assert!(!without.contains('\u{1b}'), "{without}");
}

/// A live line is for those who have the terminal to themselves: what `tee` writes there would end up on the same line.
#[test]
fn a_live_line_never_shares_its_line_with_a_message() {
    let work = Workplace::new(8, 1);
    let in_terminal = |name: &str, pipe: &str| {
        let arguments: Vec<String> =
            (work.arguments(name, "--batch-size 2 --backend cpu --max-steps 3 --lang en").into_iter())
                .filter(|argument| argument != "--json")
                .collect();
        let command = format!("{} {} {pipe}", env!("CARGO_BIN_EXE_tandem"), arguments.join(" "));
        let script =
            Command::new("script").env("TERM", "xterm-256color").args(["-qec", &command, "/dev/null"]).output();
        script.ok().map(|output| stdout(&output))
    };
    let Some(alone) = in_terminal("alone", "") else {
        assert!(std::env::var_os("CI").is_none(), "`script` is missing, and this machine must have it");
        eprintln!("skipped: no program `script`, so no terminal to look at");
        return;
    };
    let live = "the first batches";
    assert!(alone.contains(live), "{alone}");
    let piped = in_terminal("piped", "| cat").expect("as before");
    assert!(piped.contains("batches that wait on the host") && !piped.contains(live), "{piped}");
    // Whatever follows the live line takes it away first.
    for text in [&alone, &piped] {
        for after in text.split(live).skip(1) {
            let next = after.trim_start_matches(' ');
            assert!(next.starts_with('\r') || next.starts_with('\u{1b}'), "{next}");
        }
    }
}

/// docs/reference is what the program makes.
#[test]
fn the_reference_is_made_from_the_program() {
    let dir = TempDir::new().expect("a folder");
    for (lang, pages) in [("en", "docs/reference"), ("fa", "docs/fa/reference")] {
        let made = dir.path().join(lang);
        let output = run(&format!("man --markdown {} --lang {lang}", made.display()));
        assert!(output.status.success(), "{}", stderr(&output));
        let mut names: Vec<_> =
            fs::read_dir(&made).expect("a folder").flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        assert_eq!(names, ["commands.md", "config.schema.json", "settings.md"]);
        for name in names {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(pages).join(&name);
            let (is, should) =
                (fs::read_to_string(&path).unwrap_or_default(), fs::read_to_string(made.join(&name)).expect("made"));
            assert!(is == should, "{} is old: tandem man --markdown {pages} --lang {lang}", path.display());
        }
    }
}
