//! Everything that can be printed as an error is there in Persian and in the guide.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tandem_flow::{Place, Stage};

use super::{TEXTS, pairs};

const CATALOGUE: &str = include_str!("../../messages/en.ftl");

const LIBRARIES: [&str; 9] = ["flow", "audio", "text", "data", "device", "model", "observe", "synth", "train"];

/// Types whose `Display` is an error, by a part of the name; errors insert a lane and a cursor.
const ERRORS: [&str; 7] = ["Error", "Fault", "Exceeded", "Limit", "Lane", "Cursor", "WrongResult"];

/// What says an error, or why something could not be done: the texts are among the arguments.
#[rustfmt::skip]
const SAYS: [&str; 28] = [
    "Err(", "ok_or(", "ok_or_else(", "map_err(", "Fault::new(", "Error::other(", "Malformed(", "Decoder(", "Data(",
    "Panicked(", "damaged(", "fail(", "panic!(", "wrong = || format!(", "what = format!(", "text = format!(",
    "format.map_or(", "lines.push(", "lines.extend(", "notes.push(", "names.push(", "compare(", "unavailable(",
    "check_now(", "check_against(", "stop.request(", "warn(", "warnings.push(",
];

/// What is not there as it is found.
const PIECES: [(&str, &str); 16] = [
    (", sample `{}`", "a part of a line, which is there as a whole"),
    (", file `{}`", "a part of a line, which is there as a whole"),
    (", line {}", "a part of a line, which is there as a whole"),
    ("the voice was never trained on these symbols:", "the characters follow in the same line"),
    ("{} s of silence {} the speech", "there with `before` and with `after`"),
    ("the data lane {} (on purpose)", "there with each fault"),
    ("--batch-size x --grad-accum", "flags"),
    ("a refused item stays", "said to programmers"),
    ("begins with `en `: {}", "said to programmers"),
    ("begins with `fa `: {}", "said to programmers"),
    ("the built-in catalogue is valid: {}", "said to programmers"),
    ("message `{}` is in the catalogue", "said to programmers"),
    ("tandem train ({})", "the name of a trace"),
    ("tandem profile ({})", "the name of a trace"),
    ("standard input and output are not a terminal", "`--tui needs a terminal` is shown instead"),
    ("a dashboard has the terminal already", "`--tui needs a terminal` is shown instead"),
];

/// Said by the libraries, but not found by the scan: put together from pieces, single words, or kept in a name.
#[rustfmt::skip]
const BY_HAND: [&str; 25] = [
    "{}, epoch {} batch {}: {}", "{}, epoch {} batch {}, sample `{}`: {}", "{}, epoch {} batch {}, file `{}`: {}",
    "{}, epoch {} batch {}, sample `{}`, file `{}`: {}", "{} s of silence before the speech",
    "{} s of silence after the speech", "{} MB", "{} KB",
    "the drivers of Intel devices count this per process only (fdinfo)", "the same device", "at most one PCIe switch",
    "several PCIe switches, without the host bridge", "the PCIe host bridge (the CPU)",
    "several host bridges of one NUMA node", "the connection between NUMA nodes (between CPU sockets)",
    "data lane: {}", "model lane: {}", "speakers", "none",
    "of an unknown version", "the voice was never trained on these symbols: {}", "the data lane failed (on purpose)",
    "the data lane is out of memory (on purpose)", "the data lane hung (on purpose)", "half precision",
];

/// Messages that become a failure under another name.
const ELSEWHERE: [&str; 4] = ["doctor-too-many", "lanes-refused", "lanes-too-much", "train-no-mixed-precision"];

/// What no user of the program can get, and why.
const NOT_FOR_USERS: [(&str, &str); 6] = [
    ("no solver `{}`: euler or midpoint", "no command takes the name of a solver"),
    ("the plan has no batch for this epoch", "the program's plans have one"),
    ("the index is damaged", "the clips are measured again"),
    ("the index was made with other settings", "the clips are measured again"),
    ("no model size `{}`", "the flag lists the sizes instead"),
    ("a model of many speakers needs reference audio", "the program asks for --speaker before"),
];

/// Rust without comments and tests: the code with its literals blanked, and the literals with their places.
struct Source {
    code: String,
    literals: Vec<(usize, String)>,
}

fn read(text: &str) -> Source {
    let (mut code, mut literals) = (String::new(), Vec::new());
    while let Some(first) = text[code.len()..].chars().next() {
        let rest = &text[code.len()..];
        let length = match (first, rest.chars().nth(1), rest.chars().nth(2)) {
            ('/', Some('/'), _) => rest.find('\n').unwrap_or(rest.len()),
            ('"', ..) => 2 + closing(&rest[1..], '"'),
            ('r', Some('#'), Some('"')) => 5 + rest[3..].find("\"#").expect("a literal ends"),
            ('\'', Some('\\'), _) => 2 + closing(&rest[1..], '\''),
            // A lifetime has no second quote.
            ('\'', Some(character), Some('\'')) => 2 + character.len_utf8(),
            _ => 0,
        };
        if first == '"' {
            literals.push((code.len(), unescaped(&rest[1..length - 1])));
        }
        match length {
            0 if first.is_ascii() => code.push(first),
            0 => code += &" ".repeat(first.len_utf8()),
            _ => code += &" ".repeat(length),
        }
    }
    while let Some(at) = code.find("#[cfg(test)]") {
        let open = at + code[at..].find(['{', ';']).expect("something is only for tests");
        let end = 1 + if code[open..].starts_with('{') { end(&code, open + 1) } else { open };
        code.replace_range(at..end, &" ".repeat(end - at));
        literals.retain(|(place, _)| !(at..end).contains(place));
    }
    Source { code, literals }
}

/// Where the quote is that ends a literal.
fn closing(text: &str, quote: char) -> usize {
    let mut escaped = false;
    let closes = |c| {
        let closes = c == quote && !escaped;
        escaped = c == '\\' && !escaped;
        closes
    };
    text.find(closes).expect("a literal ends")
}

/// Where the bracket is that closes around this place.
fn end(code: &str, from: usize) -> usize {
    let mut depth = 0;
    let closes = |c| {
        depth += i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
        depth < 0
    };
    from + code[from..].find(closes).expect("every bracket is closed")
}

fn unescaped(literal: &str) -> String {
    let (mut text, mut rest) = (String::new(), literal);
    while let Some((before, after)) = rest.split_once('\\') {
        let (meant, length) = match after.as_bytes() {
            // The line continues in the next one.
            [b'\n', ..] => ("", after.len() - after.trim_start().len()),
            [b'n', ..] => ("\n", 1),
            _ => (&after[..1], 1),
        };
        text += before;
        text += meant;
        rest = &after[length..];
    }
    text + rest
}

/// Texts of a literal with `{}` for what is inserted, a line each; none without a word.
fn templates_of(literal: &str) -> Vec<String> {
    let literal = literal.replace("{{", "\u{1}").replace("}}", "\u{2}");
    let mut template = String::new();
    for (n, part) in literal.split('{').enumerate() {
        let kept = if n == 0 { part } else { part.split_once('}').map_or(part, |(_, after)| after) };
        template += if n == 0 { "" } else { "{}" };
        template += kept;
    }
    let template = template.replace('\u{1}', "{").replace('\u{2}', "}");
    let has_word = |line: &&str| line.as_bytes().windows(2).any(|two| two.iter().all(u8::is_ascii_lowercase));
    template.lines().map(str::trim).filter(has_word).map(str::to_owned).collect()
}

/// The places after these words, up to the bracket that closes there.
fn after(code: &str, words: &str) -> Vec<Range<usize>> {
    code.match_indices(words).map(|(at, _)| at + words.len()).map(|at| at..end(code, at)).collect()
}

/// The bodies of what displays an error.
fn displays(code: &str) -> Vec<Range<usize>> {
    let is_error = |at: &usize| {
        let name = code[*at..].split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        ERRORS.iter().any(|part| name.contains(part))
    };
    let names = code.match_indices("Display for ").map(|(at, words)| at + words.len()).filter(is_error);
    names.map(|at| at + 1 + code[at..].find('{').expect("a body")).map(|at| at..end(code, at)).collect()
}

fn root() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).to_owned()
}

fn sources(dir: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a folder of code").flatten() {
        let path = entry.path();
        match path.extension() {
            _ if path.file_stem().is_some_and(|name| name == "tests") => {}
            _ if path.is_dir() => found.extend(sources(&path)),
            Some(extension) if extension == "rs" => found.push(read(&fs::read_to_string(&path).expect("UTF-8"))),
            _ => {}
        }
    }
    found
}

fn literals<'s>(source: &'s Source, places: &[Range<usize>]) -> Vec<&'s str> {
    let inside = source.literals.iter().filter(|(at, _)| places.iter().any(|place| place.contains(at)));
    inside.map(|(_, literal)| literal.as_str()).collect()
}

/// What a crate says; a single word is a text only where an error is displayed, elsewhere it is a name.
fn texts(name: &str) -> BTreeSet<String> {
    let of = |source: &Source| {
        let said: Vec<Range<usize>> = SAYS.iter().flat_map(|words| after(&source.code, words)).collect();
        let said = literals(source, &said).into_iter().flat_map(templates_of).filter(|text| text.contains(' '));
        let displayed = literals(source, &displays(&source.code)).into_iter().flat_map(templates_of);
        said.chain(displayed).collect::<Vec<_>>()
    };
    sources(&root().join("crates").join(name).join("src")).iter().flat_map(of).collect()
}

fn libraries() -> BTreeSet<String> {
    LIBRARIES.iter().flat_map(|name| texts(name)).collect()
}

/// The English texts of a section of the file.
fn section(name: &str) -> Vec<&'static str> {
    let is_heading = |line: &&str| ["# libraries", "# program", "# clap", "# system"].contains(line);
    let lines = TEXTS.lines().skip_while(|line| *line != name).skip(1).take_while(|line| !is_heading(line));
    lines.filter_map(|line| line.strip_prefix("en ")).collect()
}

/// Messages of the catalog with which the program fails, or that say what to do then.
fn failures() -> Vec<(&'static str, &'static str)> {
    let words = ["Failure::new(", "Failure::usage(", ".hint(", "-> Failure {"];
    let mut ids: BTreeSet<String> = ELSEWHERE.iter().map(|id| (*id).to_owned()).collect();
    for source in sources(&root().join("crates/cli/src")) {
        let places: Vec<Range<usize>> = words.iter().flat_map(|words| after(&source.code, words)).collect();
        ids.extend(literals(&source, &places).into_iter().map(str::to_owned));
    }
    CATALOGUE.lines().filter_map(|line| line.split_once(" = ")).filter(|(id, _)| ids.contains(*id)).collect()
}

/// The longest piece of a text that is always the same, if it is long enough to be looked for.
fn longest_piece(text: &str) -> Option<String> {
    let pieces = text.split('{').map(|part| part.split_once('}').map_or(part, |(_, after)| after));
    let longest = pieces.map(plain).max_by_key(String::len)?;
    (longest.len() >= 12).then_some(longest)
}

fn plain(text: &str) -> String {
    text.replace('`', "").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn missing(found: &BTreeSet<String>) -> Vec<&String> {
    let there: BTreeSet<&str> = pairs(TEXTS).map(|(english, _)| english).collect();
    let excepted = |text: &str| PIECES.iter().any(|(piece, _)| *piece == text);
    found.iter().filter(|text| !there.contains(text.as_str()) && !excepted(text)).collect()
}

#[test]
fn every_text_of_the_libraries_has_a_persian_one() {
    // Those of the program, too.
    for (found, least) in [(libraries(), 170), (texts("cli"), 36)] {
        assert!(found.len() >= least, "the scan finds only {}", found.len());
        assert_eq!(missing(&found), Vec::<&String>::new(), "not in messages/texts.fa.txt");
    }
}

#[test]
fn no_text_is_there_for_nothing() {
    let found = libraries();
    let in_file = section("# libraries");
    let idle: Vec<_> = in_file.iter().filter(|text| !found.contains(**text) && !BY_HAND.contains(text)).collect();
    assert_eq!(idle, Vec::<&&str>::new(), "no library says this any more");
    let gone: Vec<_> = BY_HAND.iter().filter(|text| !in_file.contains(text) || found.contains(**text)).collect();
    assert_eq!(gone, Vec::<&&str>::new(), "need not be listed");
}

#[test]
fn what_is_inserted_is_inserted_in_both_languages() {
    let mut seen = BTreeSet::new();
    for (english, persian) in pairs(TEXTS) {
        let gaps = english.matches("{}").count();
        let numbers: BTreeSet<usize> =
            persian.split('{').skip(1).filter_map(|part| part.split_once('}')?.0.parse().ok()).collect();
        assert_eq!(numbers, (1..=gaps).collect(), "{english}");
        assert!(persian.chars().any(|c| ('\u{600}'..='\u{6ff}').contains(&c)), "{persian}");
        assert!(seen.insert(english), "twice: {english}");
    }
}

#[test]
fn troubleshooting_covers_every_error() {
    let guide = plain(&fs::read_to_string(root().join("docs/guide/troubleshooting.md")).expect("the guide"));
    let failures = failures();
    assert!(failures.len() >= 50, "the scan finds only {}", failures.len());
    let said = ["# libraries", "# program"].into_iter().flat_map(section);
    let texts = said.chain(failures.into_iter().map(|(_, text)| text));
    let wanted = texts.filter(|text| !NOT_FOR_USERS.iter().any(|(known, _)| known == text));
    let absent: Vec<&str> =
        wanted.filter(|text| longest_piece(text).is_some_and(|piece| !guide.contains(&piece))).collect();
    assert_eq!(absent, Vec::<&str>::new(), "not in docs/guide/troubleshooting.md");
}

/// `tandem_flow::Stage`, `Place` and `Lane` are where these names are written.
#[test]
fn no_stage_place_or_lane_is_named_by_a_literal() {
    let names = Stage::ALL.map(Stage::name).into_iter().chain(Place::ALL.map(Place::name));
    let names: BTreeSet<&str> = names.collect();
    // Where such a name is wanted; elsewhere `train` is a command and `data` a variable of a text.
    let wanted = ["stage(", "prefetch(", "recent(", "workers(", "depth(", "Budget::new(", "=="];
    // What means nothing else.
    let unmistakable = [Stage::Preprocess, Stage::Transfer].map(Stage::name);
    let mut found = Vec::new();
    for name in LIBRARIES.iter().chain(&["cli"]) {
        for source in sources(&root().join("crates").join(name).join("src")) {
            for (at, literal) in source.literals.iter().filter(|(_, literal)| names.contains(literal.as_str())) {
                let before = source.code[..*at].trim_end();
                let is_definition = before.ends_with("=>") && source.code.contains("pub enum Stage");
                let names_one =
                    unmistakable.contains(&literal.as_str()) || wanted.iter().any(|end| before.ends_with(end));
                if names_one && !is_definition {
                    found
                        .push(format!("{name}: {} {literal:?}", before.lines().next_back().unwrap_or_default().trim()));
                }
            }
        }
    }
    assert_eq!(found, Vec::<String>::new());
}
