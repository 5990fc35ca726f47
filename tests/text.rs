//! Promises about texts: which units and which language, chosen once and said with the reason (SPEC V3, S3).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::corpus::{Corpus, tone, wav};
use crate::support::{espeak, last_json, stderr, stdout, tandem};

const ENGLISH: [&str; 4] = [
    "The old teacher opened the box near the river.",
    "A quiet student counted seven boats, and the mayor was late!",
    "My neighbor lifted the heavy clock before sunrise.",
    "The judge quickly mixed a dozen jars of vinegar with zest.",
];
const SPANISH: [&str; 4] = [
    "El niño comió una manzana en la casa.",
    "¿Qué pasó con los perros de mi abuela?",
    "Mañana iremos a la montaña con una mochila grande.",
    "La señora González vive en el pueblo y trabaja por la tarde.",
];

/// A corpus with these texts, over and over.
fn corpus(clips: usize, texts: &[&str]) -> Corpus {
    let mut corpus = Corpus::new(0);
    for n in 0..clips {
        let samples: Vec<f32> = tone(n).into_iter().cycle().take(60_000).collect();
        corpus.add(&format!("c{n:03}"), texts[n % texts.len()], Some(&wav(&samples)));
    }
    corpus
}

/// The program as a machine without espeak-ng runs it.
fn without_espeak() -> Command {
    let mut command = tandem();
    command.env("PATH", "/nowhere");
    command
}

/// An espeak-ng that writes down each call and then does `work`, where `$REAL` is the installed one.
struct Wrapped {
    dir: TempDir,
    real: PathBuf,
}

impl Wrapped {
    fn new(work: &str) -> Option<Wrapped> {
        let wrapped = Wrapped { dir: TempDir::new().expect("a folder"), real: espeak()? };
        let script = format!("#!/bin/sh\necho \"$*\" >> \"{}\"\n{work}\n", wrapped.log().display());
        // By another process: one that this one starts meanwhile would hold the file open for writing, and nobody could
        // run it.
        let mut writer = Command::new("sh")
            .args(["-c", "cat > espeak-ng; chmod +x espeak-ng"])
            .current_dir(wrapped.dir.path())
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell");
        std::io::Write::write_all(&mut writer.stdin.take().expect("piped"), script.as_bytes()).expect("written");
        assert!(writer.wait().expect("it ends").success());
        Some(wrapped)
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("calls")
    }

    fn tandem(&self) -> Command {
        let mut command = tandem();
        command.env("PATH", format!("{}:/usr/bin:/bin", self.dir.path().display())).env("REAL", &self.real);
        command
    }

    /// The calls since the last time.
    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.log()).unwrap_or_default();
        let _ = fs::remove_file(self.log());
        calls.lines().map(str::to_owned).collect()
    }
}

fn done(command: &mut Command, arguments: &str) -> Output {
    command.args(arguments.split_whitespace()).output().expect("it starts")
}

/// A run of two steps in `run` beside the corpus.
fn training(corpus: &Path, more: &str) -> String {
    format!(
        "train --train-data {} --checkpoint-dir {}/run --model-size smoke --batch-size 2 --backend cpu --sample-every 0 \
         --max-steps 2 {more}",
        corpus.display(),
        corpus.display()
    )
}

fn said(mut command: Command, corpus: &Path, text: &str) -> Output {
    let run = corpus.join("run");
    let arguments = ["synth", text, "--checkpoint"];
    command.args(arguments).arg(&run).arg("-o").arg(run.join("out.wav")).output().expect("it starts")
}

#[test]
fn without_espeak_texts_are_characters_and_it_is_said() {
    let corpus = corpus(8, &ENGLISH);
    let output = done(&mut without_espeak(), &training(corpus.path(), ""));
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("text as characters") && text.contains("espeak-ng, which makes phonemes, is not"), "{text}");
    assert!(text.contains("language: en (guessed: 8 of 8 texts have the"), "{text}");
    let manifest = fs::read_to_string(corpus.path().join("run/manifest.json")).expect("a manifest");
    assert!(manifest.contains("espeak-ng is not installed"), "{manifest}");
    // It stays so, whatever is installed later.
    let output = done(&mut tandem(), &training(corpus.path(), "--max-steps 3").replace("--max-steps 2 ", ""));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("text as characters"), "{}", stdout(&output));
}

#[test]
fn phonemes_without_espeak_are_an_error_before_anything_is_written() {
    let corpus = corpus(8, &ENGLISH);
    for command in
        [training(corpus.path(), "--units phonemes"), format!("load {} --units phonemes", corpus.path().display())]
    {
        let output = done(&mut without_espeak(), &command);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let text = stderr(&output);
        assert!(text.contains("install the package espeak-ng") && text.contains("--units characters"), "{text}");
    }
    assert!(!corpus.path().join("run").exists() && !corpus.path().join(".tandem").exists());
}

#[test]
fn with_espeak_texts_are_phonemes_and_a_run_keeps_them() {
    if espeak().is_none() {
        return;
    }
    let corpus = corpus(8, &ENGLISH);
    let output = done(&mut tandem(), &training(corpus.path(), ""));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("espeak-ng is installed and knows the language"), "{}", stdout(&output));
    let more = training(corpus.path(), "").replace("--max-steps 2", "--max-steps 3");
    let output = done(&mut without_espeak(), &more);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("install the package espeak-ng"), "{}", stderr(&output));
    let other = done(&mut tandem(), &format!("{more} --units characters"));
    assert_eq!(other.status.code(), Some(2), "other units are another run: {}", stderr(&other));
    let output = done(&mut tandem(), &format!("{more} --units auto"));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("text as phonemes"), "{}", stdout(&output));
}

/// Silent failure: a voice that never saw a letter said it anyway.
#[test]
fn a_voice_refuses_letters_that_it_never_saw_by_name() {
    let corpus = corpus(8, &ENGLISH);
    let run = corpus.path().join("run");
    let mut all: Vec<(&str, fn() -> Command)> = vec![("characters", without_espeak)];
    if espeak().is_some() {
        all.push(("phonemes", tandem));
    }
    for (units, program) in all {
        let output = done(&mut program(), &training(corpus.path(), &format!("--units {units} --reset-training")));
        assert!(output.status.success(), "{}", stderr(&output));
        let good = said(program(), corpus.path(), "The teacher opened the box.");
        assert!(good.status.success(), "{units}: {}", stderr(&good));
        fs::remove_file(run.join("out.wav")).expect("written");
        let persian = said(program(), corpus.path(), "سلام دنیا");
        assert_eq!(persian.status.code(), Some(2), "{units}: {}", stderr(&persian));
        assert!(
            stderr(&persian).contains("never trained on") && stderr(&persian).contains('س'),
            "{}",
            stderr(&persian)
        );
        let smile = said(program(), corpus.path(), "The box 😀");
        assert_eq!((smile.status.code(), stderr(&smile).contains('😀')), (Some(2), true), "{}", stderr(&smile));
        assert!(!run.join("out.wav").exists(), "nothing is said");
    }
}

/// Silent failure: Spanish was read as English, its accents removed.
#[test]
fn a_spanish_corpus_is_spanish() {
    let corpus = corpus(8, &SPANISH);
    let doctor = done(&mut without_espeak(), &format!("doctor {}", corpus.path().display()));
    assert!(stdout(&doctor).contains("language: es (guessed: 8 of 8 texts have"), "{}", stdout(&doctor));
    let output = done(&mut without_espeak(), &training(corpus.path(), ""));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("language: es (guessed"), "{}", stdout(&output));
    let spoken = said(without_espeak(), corpus.path(), "el niño pasó");
    assert!(spoken.status.success(), "{}", stderr(&spoken));
    if espeak().is_some() {
        let doctor = done(&mut tandem(), &format!("doctor {} --json", corpus.path().display()));
        let found = last_json(&doctor);
        assert_eq!((&found["units"], &found["languages"][0][0]), (&"phonemes".into(), &"es".into()), "{found}");
    }
    // What is given wins, and then nobody guesses.
    let given = done(&mut without_espeak(), &format!("doctor {} --language en", corpus.path().display()));
    assert!(!stdout(&given).contains("guessed"), "{}", stdout(&given));
}

#[test]
fn a_language_that_does_not_exist_is_answered_with_those_that_do() {
    if espeak().is_none() {
        return;
    }
    let corpus = corpus(4, &ENGLISH);
    for units in ["auto", "phonemes", "characters"] {
        let output = done(&mut tandem(), &training(corpus.path(), &format!("--units {units} --language jp")));
        assert_eq!(output.status.code(), Some(2), "{units}: {}", stderr(&output));
        let text = stderr(&output);
        assert!(text.contains("does not know the language `jp`") && text.contains("ja (Japanese)"), "{text}");
    }
    let name = done(&mut tandem(), &training(corpus.path(), "--language spanish"));
    assert_eq!(name.status.code(), Some(2), "{}", stderr(&name));
    assert!(!corpus.path().join("run").exists() && !corpus.path().join(".tandem").exists(), "nothing is written");
}

#[test]
fn all_texts_take_few_calls_and_the_second_start_none() {
    let Some(wrapped) = Wrapped::new("exec \"$REAL\" \"$@\"") else { return };
    let mut corpus = corpus(300, &ENGLISH);
    // Clauses that are not one line for espeak-ng, and texts that try to be flags or more than one.
    for (n, text) in ["-x --help", "one. Two! ~ — three", "😀 hello", "a [[tˈændəm]] b"].iter().enumerate() {
        corpus.add(&format!("odd{n}"), text, Some(&wav(&tone(n))));
    }
    let load = format!("load {} --json", corpus.path().display());
    let first = done(&mut wrapped.tandem(), &load);
    assert!(first.status.success(), "{}", stderr(&first));
    let calls = wrapped.calls();
    assert!((1..=8).contains(&calls.len()), "{calls:#?}");
    let second = done(&mut wrapped.tandem(), &load);
    assert!(second.status.success(), "{}", stderr(&second));
    assert_eq!(wrapped.calls(), Vec::<String>::new());
    // One text more is one call more, and what is asked before it.
    corpus.add("more", "Another sentence for the voice.", Some(&wav(&tone(9))));
    assert!(done(&mut wrapped.tandem(), &load).status.success());
    let calls = wrapped.calls();
    assert!((1..=3).contains(&calls.len()), "{calls:#?}");
}

#[test]
fn an_espeak_that_crashes_is_an_error_and_nothing_of_it_is_kept() {
    let voices = "case \"$1\" in --voices) exec \"$REAL\" \"$@\";; esac";
    let Some(crashing) = Wrapped::new(&format!("{voices}\nkill -SEGV $$")) else { return };
    let corpus = corpus(4, &ENGLISH);
    let load = format!("load {} --json", corpus.path().display());
    let output = done(&mut crashing.tandem(), &load);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("`espeak-ng` failed: signal: 11"), "{}", stderr(&output));
    // One that cannot even list its voices is as good as none, and the reason is said.
    let Some(broken) = Wrapped::new("echo out of order >&2; exit 1") else { return };
    let output = done(&mut broken.tandem(), &format!("load {}", corpus.path().display()));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("text as characters"), "{}", stdout(&output));
    assert!(stdout(&output).contains("`espeak-ng` failed: out of order"), "{}", stdout(&output));
    let wanted = done(&mut broken.tandem(), &format!("load {} --units phonemes", corpus.path().display()));
    assert_eq!(wanted.status.code(), Some(2), "{}", stderr(&wanted));
}

#[test]
fn a_lexicon_that_is_not_right_is_named_with_its_line() {
    let corpus = corpus(4, &ENGLISH);
    let lexicon = corpus.path().join("lexicon.txt");
    for (content, error) in [
        ("# nothing\n\n", "has no words"),
        ("moss mɒs\nalone\n", "line 2 of lexicon"),
        ("moss mɒs\n\ntandem T AE1 N D AH0 M\n", "line 3 of lexicon"),
    ] {
        fs::write(&lexicon, content).expect("written");
        let output = done(&mut tandem(), &training(corpus.path(), &format!("--lexicon {}", lexicon.display())));
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(error) && stderr(&output).contains("lexicon.txt"), "{}", stderr(&output));
    }
    assert!(!corpus.path().join("run").exists() && !corpus.path().join(".tandem").exists());
    fs::write(&lexicon, "teacher tˈiːtʃə\n").expect("written");
    let output =
        done(&mut tandem(), &training(corpus.path(), &format!("--units characters --lexicon {}", lexicon.display())));
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("a lexicon is for phonemes"), "{}", stderr(&output));
    if espeak().is_some() {
        let output = done(&mut tandem(), &training(corpus.path(), &format!("--lexicon {}", lexicon.display())));
        assert!(output.status.success(), "{}", stderr(&output));
    }
}

/// Numbers of other languages are left to espeak-ng; as characters they are learned as they are written, and it is said.
#[test]
fn digits_of_other_languages_are_reported_when_nobody_reads_them() {
    let corpus = corpus(4, &["El 3 de enero comió 7 manzanas en la casa."]);
    let load = format!("load {} --units", corpus.path().display());
    let output = done(&mut without_espeak(), &format!("{load} characters"));
    assert!(stdout(&output).contains("digits (3, 7) are read as characters"), "{}", stdout(&output));
    if espeak().is_some() {
        let output = done(&mut tandem(), &format!("{load} phonemes"));
        assert!(output.status.success() && !stdout(&output).contains("digits"), "{}", stdout(&output));
    }
}
