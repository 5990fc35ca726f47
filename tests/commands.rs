//! Every command of every page runs, on the demo corpus.
//!
//! Each runs by itself in a new folder. In it is what the command, or the output that the page shows below it, names: a
//! corpus (`my-voice`; `my-piper` and so on is the same one in that layout), a trained run, the page's own `config.yaml`, a
//! damaged file ([`furnish`]). [`shortened`] makes it quick:
//!
//! | command | becomes |
//! |---|---|
//! | `train` | `--model-size smoke --batch-size 2`, two steps; or two more than the run in the folder has |
//! | `demo` | `--steps 2 --vocoder-steps 2 --clips 10` |
//! | `profile` | `--model-size smoke --batch-size 2 --num-steps 2`, clips of at most 110 frames |
//! | `advise` | `--model-size smoke --batch-size 2 --steps 2` |
//! | `simulate` | `--clock virtual`: nobody waits |
//! | with `--data-gpu` or `--model-gpu` | `--simulate-devices 2`, or 1 if the page shows an error that found 1 |
//! | `--model-gpu-memory 22` | 21: a clip takes less on a simulated device than on the page's software Vulkan |
//! | `--metrics PORT` | port 0, any that is free, unless the page shows that it is taken |
//! | `--web PORT` | port 0 |
//! | `serve`, `watch` | `--listen 127.0.0.1:0`, and Ctrl-C once it listens |
//! | `DIR`, `RUN`, … | see [`NAMES`] |
//! | a name alone within a text (`tandem report`) | `--help`: there is such a command |
//! | with `my-parquet`, or an address as `s3://` | the error that names the feature: this program is built without. `scripts/oracles/buckets.py` runs the same lines of the guide with the program that has the features |
//!
//! A command ends with 0; with 2 if the page shows an `error:`, whose words have to come; or as a remark above its block
//! says: `<!-- exits 1 -->`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::AtomicBool;

use tandem_data::{CorpusSettings, Format, Part, convert, open_source};

use crate::support::{SoftwareGpus, Workplace, interrupt, stderr, tandem};

/// What is not run, and why.
const NOT_RUN: [(&str, &str); 4] = [
    ("scripts/test", "it runs this test"),
    ("tandem profile --json", "a title; with data to profile it is run"),
    ("tandem of an unknown version", "a message"),
    ("tandem load data --bench --epochs 2 --variant flac", "needs the FLAC files of the benchmark"),
];

/// What pages write for something of the reader's, and what it is here.
const NAMES: [(&str, &str); 9] = [
    ("scripts/tandem", "tandem"),
    ("DIR", "my-voice"),
    ("RUN", "runs/my-voice"),
    ("$run", "runs/my-voice"),
    ("[OTHER]", "runs/other"),
    ("TEXT", "Hello."),
    ("COMMAND", "train"),
    ("N", "2"),
    ("/tmp/demo", "demo"),
];

/// Flags that are set, for each command.
const SHORT: [(&str, &[(&str, &str)]); 5] = [
    ("train", &[("--model-size", "smoke"), ("--batch-size", "2")]),
    ("demo", &[("--steps", "2"), ("--vocoder-steps", "2"), ("--clips", "10")]),
    ("profile", &[("--model-size", "smoke"), ("--batch-size", "2"), ("--num-steps", "2"), ("--max-mel-frames", "125")]),
    ("advise", &[("--model-size", "smoke"), ("--batch-size", "2"), ("--steps", "2")]),
    ("simulate", &[("--clock", "virtual")]),
];

/// Of the run that commands find. There is also a checkpoint of step 30, which a page goes back to.
const LAST_STEP: u64 = 32;

/// A command as it stands in a page.
#[derive(Default)]
struct Written {
    /// Page and line.
    place: String,
    /// As it is written, but for remarks.
    line: String,
    /// `NAME=value` before it.
    environment: Vec<String>,
    /// With [`NAMES`] put in.
    words: Vec<String>,
    /// What the page shows below it.
    output: String,
    exits: Option<i32>,
}

impl Written {
    fn has(&self, word: &str) -> bool {
        self.words.iter().any(|other| other == word)
    }

    /// The error that the page shows.
    fn error(&self) -> Option<&str> {
        self.output.lines().find(|line| line.starts_with("error: "))
    }

    /// The feature that it needs and this program does not have.
    fn feature(&self) -> Option<&'static str> {
        let is_bucket = |word: &String| word.contains("://");
        match self {
            _ if !cfg!(feature = "cloud") && self.words.iter().any(is_bucket) => Some("--features cloud"),
            _ if !cfg!(feature = "parquet") && self.has("my-parquet") => Some("--features parquet"),
            _ => None,
        }
    }

    /// How it may end.
    fn codes(&self) -> Vec<i32> {
        if self.feature().is_some() {
            return vec![2];
        }
        let shown = self.exits.or(self.error().map(|_| 2)).or(self.has("--fault").then_some(1));
        // A machine that has other work to do may starve the model.
        let unless_shown = if self.has("--assert-healthy") { vec![0, 1] } else { vec![0] };
        shown.map_or(unless_shown, |code| vec![code])
    }

    /// The folders of runs that it or its output names.
    fn runs(&self) -> BTreeSet<String> {
        let text = self.words.join(" ") + " " + &self.output;
        let paths = text.split(|letter: char| !(letter.is_alphanumeric() || "-_/".contains(letter)));
        let runs = paths.filter(|path| path.starts_with("runs/") || *path == "tandem-demo/run");
        runs.map(|path| path.split('/').take(2).collect::<Vec<_>>().join("/")).collect()
    }
}

/// The words of a line as a shell sees them, up to a remark, a pipe or the like, or two blanks (then help has a remark).
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for (at, letter) in line.char_indices() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '"' | '\'') => (quote, word) = (Some(letter), Some(word.unwrap_or_default())),
            (None, '#' | '|' | '>' | '<' | '&' | ';') if word.is_none() => break,
            (None, ' ') if line[at..].starts_with("  ") => break,
            (None, ' ') => words.extend(word.take()),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// The command of a line, if it is one: `tandem …`, `$ tandem …`, `scripts/…`.
fn command(line: &str) -> Option<Written> {
    let mut words = words(line.trim().trim_start_matches("$ "));
    let program = words.iter().position(|word| !word.contains('='))?;
    let environment = words.drain(..program).collect();
    let line = words.join(" ");
    for word in &mut words {
        if let Some((_, here)) = NAMES.iter().find(|(name, _)| name == word) {
            *word = (*here).to_owned();
        }
    }
    let is_command = words[0] == "tandem" && words.len() > 1 || words[0].starts_with("scripts/");
    is_command.then_some(Written { line, environment, words, ..Written::default() })
}

/// A command within a text. What has `…` is not whole, and what needs more than its name is only mentioned.
fn mentioned(code: &str) -> Option<Written> {
    let code = code.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = command(&code).filter(|found| found.words[0] == "tandem" && !code.contains(['…', '<']))?;
    let names = if found.has("config") { 3 } else { 2 };
    let is_whole = ["demo", "simulate", "devices", "--version"].iter().any(|name| found.has(name));
    if found.words.len() <= names && !is_whole {
        found.words.push("--help".to_owned());
    }
    Some(found)
}

/// The commands of a page: lines in blocks of code, and code within the text.
fn commands(page: &str, text: &str) -> Vec<Written> {
    let text = &text.replace("<code dir=\"ltr\">", "`").replace("</code>", "`");
    let line_of = |part: &str| text[..part.as_ptr().addr() - text.as_ptr().addr()].matches('\n').count() + 1;
    let place = |part: &str| format!("{page}:{}", line_of(part));
    let (mut found, mut exits) = (Vec::<Written>::new(), None);
    for (number, part) in text.split("```").enumerate() {
        if number % 2 == 0 {
            // Code may continue in the next line, but not beyond a paragraph, a row or an item.
            let rows = part.split("\n\n").flat_map(|text| text.split("\n|")).flat_map(|text| text.split("\n- "));
            let code = rows.flat_map(|text| text.split('`').skip(1).step_by(2));
            found.extend(code.filter_map(|code| Some(Written { place: place(code), ..mentioned(code)? })));
            let remark = part.trim_end().rsplit_once("<!-- exits ").and_then(|(_, rest)| rest.strip_suffix(" -->"));
            exits = remark.map(|code| code.parse().unwrap_or_else(|error| panic!("{}: {error}", place(code))));
            continue;
        }
        let (start, mut lines) = (found.len(), part.lines().skip(1));
        while let Some(line) = lines.next() {
            let mut whole = line.to_owned();
            while let Some(begun) = whole.strip_suffix('\\') {
                whole = begun.to_owned() + lines.next().unwrap_or_default().trim_start();
            }
            match (command(&whole), found[start..].last_mut()) {
                (Some(command), _) => found.push(Written { place: place(line), exits, ..command }),
                (None, Some(last)) => last.output += &format!("{line}\n"),
                (None, None) => {}
            }
        }
    }
    found
}

/// All pages and their text.
fn pages() -> Vec<(String, String)> {
    // Asked for when it runs: the folder may have moved since it was built.
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("run by cargo")).join("../..");
    let names = ["README.md", "README.fa.md", "CONTRIBUTING.md", "benches/README.md", "docs"];
    let (mut left, mut pages) = (names.map(|name| root.join(name)).to_vec(), Vec::new());
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(&path).expect("a folder").flatten().map(|entry| entry.path()));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let name = path.strip_prefix(&root).expect("below it").display().to_string();
            pages.push((name, fs::read_to_string(&path).expect("UTF-8")));
        }
    }
    pages.sort_by_key(|(name, _)| (name.contains("fa"), name.clone()));
    pages
}

/// A flag gets a value, whether it is there or not.
fn set(words: &mut Vec<String>, flag: &str, value: &str) {
    match words.iter().position(|word| word == flag) {
        Some(at) if at + 1 < words.len() => words[at + 1] = value.to_owned(),
        _ => words.extend([flag.to_owned(), value.to_owned()]),
    }
}

/// The arguments with which a command is run: see the table at the top.
fn shortened(written: &Written) -> Vec<String> {
    let mut words = written.words[1..].to_vec();
    for (flag, value) in SHORT.iter().filter(|(name, _)| written.words[1] == *name).flat_map(|(_, flags)| *flags) {
        set(&mut words, flag, value);
    }
    if words[0] == "train" {
        let steps = if written.runs().is_empty() { 2 } else { LAST_STEP + 2 };
        set(&mut words, "--max-steps", &steps.to_string());
    }
    if (written.has("--data-gpu") || written.has("--model-gpu")) && !written.has("--simulate-devices") {
        set(&mut words, "--simulate-devices", if written.output.contains("found 1") { "1" } else { "2" });
    }
    // The voice of the pages is trained on characters.
    if written.has("--for") {
        set(&mut words, "--units", "characters");
    }
    if written.line.contains("--model-gpu-memory 22") {
        set(&mut words, "--model-gpu-memory", "21");
    }
    if written.has("--metrics") && written.error().is_none() {
        set(&mut words, "--metrics", "0");
    }
    if written.has("--web") {
        set(&mut words, "--web", "0");
    }
    if serves(written) {
        set(&mut words, "--listen", "127.0.0.1:0");
    }
    words
}

/// Whether it goes on until it is told to end.
fn serves(written: &Written) -> bool {
    ["serve", "watch"].contains(&written.words[1].as_str()) && !written.has("--help") && written.error().is_none()
}

/// The output of a program that listens, which is interrupted as soon as it does.
fn until_it_listens(program: &mut Command) -> Output {
    let mut child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let (mut lines, mut said) = (BufReader::new(child.stderr.take().expect("piped")), String::new());
    while !said.contains("http://") && lines.read_line(&mut said).expect("output") > 0 {}
    if said.contains("http://") {
        interrupt(&child);
    }
    lines.read_to_string(&mut said).expect("output");
    let output = child.wait_with_output().expect("it ends");
    Output { stderr: said.into_bytes(), ..output }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() { copy(&from, &to) } else { fs::copy(&from, &to).map(drop).expect("copied") }
    }
}

/// Fills the folder in which a command runs. The lock or the port that it meets is taken as long as the value lives.
fn furnish(here: &Path, work: &Workplace, config: &str, written: &Written) -> (Option<File>, Option<TcpListener>) {
    let (corpus, error) = (work.path("corpus"), written.error().unwrap_or_default());
    ["my-voice", "my-voice-held-out", "my-other-voice"].iter().for_each(|name| copy(&corpus, &here.join(name)));
    // The corpus in the layout that its name says: `my-piper`.
    let reads = !["convert", "pack"].contains(&written.words[1].as_str());
    if written.has("my-parquet") {
        fs::create_dir_all(here.join("my-parquet")).expect("a folder");
        fs::write(here.join("my-parquet/train.parquet"), "not looked at").expect("written");
    }
    for format in Format::WRITTEN.into_iter().filter(|format| reads && written.has(&format!("my-{format}"))) {
        let source = open_source(&corpus, Part::All, &CorpusSettings::default()).expect("a corpus").expect("clips");
        let out = here.join(format!("my-{format}"));
        convert(&*source, None, format, &out, |_, _| {}, &AtomicBool::new(false)).expect("written");
    }
    fs::create_dir_all(here.join("recordings")).expect("a folder");
    if error.contains("two ways") {
        let rows = "a1|anna|Good morning.\na2|ben|How are you?\n";
        fs::write(here.join("recordings/metadata.csv"), rows).expect("written");
    }
    if written.words[1] == "segment" {
        lecture(&corpus, &here.join("lecture.mp3"), Some(&here.join("lecture.srt")));
        let lines = lecture(&corpus, &here.join("recordings/evening.flac"), None);
        fs::write(here.join("lines.txt"), lines.join("\n")).expect("written");
    }
    fs::copy(corpus.join("wavs/demo_0000.wav"), here.join("someone.wav")).expect("copied");
    fs::write(here.join("texts.txt"), "Banana piano. Tomato.\nhello|Hello.\n").expect("written");
    if !written.has("init") {
        fs::write(here.join("config.yaml"), config).expect("written");
    }
    if written.words[1] == "watch" {
        fs::create_dir_all(here.join("runs")).expect("a folder");
    }
    // A run whose name says so is a vocoder.
    let kind = |run: &str| if run.ends_with("-vocoder") { "trained-vocoder" } else { "trained" };
    written.runs().iter().for_each(|run| copy(&work.path(kind(run)), &here.join(run)));
    // What `watch` looks into.
    if serves(written) {
        copy(&work.path("trained"), &here.join("runs/trained"));
    }
    if written.has("--alignments") {
        let (run, out) = (work.path("trained"), here.join("alignments"));
        let aligned = tandem().arg("align").arg(run).arg("--out").arg(out).output().expect("the program starts");
        assert!(aligned.status.success(), "{}", stderr(&aligned));
    }
    if written.has("profile.json") {
        let short = "profile --synthetic --model-size smoke --batch-size 2 --num-steps 2 --max-mel-frames 125 --json";
        let profile = tandem().args(short.split(' ')).output().expect("the program starts");
        fs::write(here.join("profile.json"), profile.stdout).expect("written");
    }
    let weights = format!("runs/my-voice/checkpoints/step-{LAST_STEP:08}/model.safetensors");
    let broken = [(": truncated", "my-voice/wavs/demo_0000.wav"), (": model.safetensors is not", &weights)];
    for (_, file) in broken.iter().filter(|(words, _)| written.output.contains(words)) {
        File::options().write(true).open(here.join(file)).and_then(|file| file.set_len(1000)).expect("cut off");
    }
    let lock = error.contains("another process").then(|| File::create(here.join("runs/my-voice/lock")).expect("made"));
    lock.iter().for_each(|lock| lock.lock().expect("nobody has it"));
    let address = error.split(": ").find_map(|part| part.strip_prefix("cannot serve metrics on "));
    // If it cannot be had, somebody else has it, which will do.
    (lock, address.and_then(|address| TcpListener::bind(address).ok()))
}

/// The clips of a corpus with pauses between them, as one recording (what it is, its content says), and its captions; the texts.
fn lecture(corpus: &Path, recording: &Path, captions: Option<&Path>) -> Vec<String> {
    let list = fs::read_to_string(corpus.join("metadata.csv")).expect("a list");
    let (mut samples, mut srt, mut texts) = (vec![0.0; 11_025], String::new(), Vec::new());
    for (number, row) in (1..).zip(list.lines()) {
        let fields: Vec<&str> = row.split('|').collect();
        let start = samples.len();
        let mut file = File::open(corpus.join(format!("wavs/{}.wav", fields[0]))).expect("a clip");
        tandem_audio::Decoder::new().decode(&mut file, &mut samples).expect("whole");
        let time = |sample: usize| {
            let ms = sample * 1000 / 22_050;
            format!("00:{:02}:{:02},{:03}", ms / 60_000, ms / 1000 % 60, ms % 1000)
        };
        srt += &format!("{number}\n{} --> {}\n{}\n\n", time(start), time(samples.len()), fields[1]);
        texts.push(fields[1].to_owned());
        samples.resize(samples.len() + 15_000, 0.0);
    }
    tandem_audio::write_wav(&samples, 22_050, &mut File::create(recording).expect("made")).expect("written");
    if let Some(path) = captions {
        fs::write(path, srt).expect("written");
    }
    texts
}

#[cfg(target_os = "linux")]
#[test]
fn every_command_of_every_page_runs() {
    let pages = pages();
    let yaml = |(_, text): &(String, String)| Some(text.split_once("```yaml\n")?.1.split_once("```")?.0.to_owned());
    let config = pages.iter().find_map(yaml).expect("a page shows a file of settings");
    let all: Vec<Written> = pages.iter().flat_map(|(page, text)| commands(page, text)).collect();
    for (line, _) in NOT_RUN {
        assert!(all.iter().any(|written| written.line == line), "`{line}` is in no page any more");
    }
    let (work, gpus) = (Workplace::new(10, 2), SoftwareGpus::find());
    work.trained("trained", &format!("--batch-size 2 --max-steps {LAST_STEP} --checkpoint-every 30"));
    work.trained("trained-vocoder", "--part vocoder --batch-size 2 --max-steps 1");
    let (mut seen, mut failures, here) = (BTreeSet::new(), Vec::new(), work.path("here"));
    for written in all.iter().filter(|written| NOT_RUN.iter().all(|(line, _)| written.line != *line)) {
        let Written { place, line, words, output: shown, environment, .. } = written;
        assert_eq!(words[0], "tandem", "{place}: neither run nor in NOT_RUN");
        // What is in two pages, or in their mirrors, is run once.
        if !seen.insert((words, shown)) {
            continue;
        }
        let taken = furnish(&here, &work, &config, written);
        // Software devices are slow: they are looked at, but do not work.
        let real = gpus.as_ref().filter(|_| written.has("devices")).and_then(|gpus| gpus.tandem(2, false));
        let (mut program, arguments, codes) = (real.unwrap_or_else(tandem), shortened(written), written.codes());
        if !written.has("devices") {
            program.env("VK_ICD_FILENAMES", "/none");
        }
        program.envs(environment.iter().filter_map(|pair| pair.split_once('='))).current_dir(&here).args(&arguments);
        let output = if serves(written) {
            until_it_listens(&mut program)
        } else {
            program.output().expect("the program starts")
        };
        drop(taken);
        let (said, code, error) = (stderr(&output), output.status.code().unwrap_or(-1), written.error().unwrap_or(""));
        let error = written.feature().unwrap_or(error);
        let words = |text: &str| text.replace(|letter: char| letter.is_ascii_digit(), "");
        if !codes.contains(&code) || !words(&said).contains(&words(error)) {
            let (run, wanted) = (arguments.join(" "), format!("{codes:?} {error}"));
            failures.push(format!("{place}: {line}\nrun as: {run}\nended with {code}, expected {wanted}\n{said}"));
        }
        fs::remove_dir_all(&here).expect("removed");
    }
    let (all, different) = (all.len(), seen.len());
    eprintln!("{all} commands in {} pages, {different} different ones run; not run: {NOT_RUN:?}", pages.len());
    assert!(different >= 60, "only {different} commands were found");
    assert!(failures.is_empty(), "{} commands of the pages fail\n\n{}", failures.len(), failures.join("\n"));
}
