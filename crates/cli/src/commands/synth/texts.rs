//! The texts that are to be spoken.

use std::collections::HashMap;
use std::io::Read;

use crate::args::SynthArgs;
use crate::failure::Failure;
use crate::messages::Messages;

/// What an id may not have: it becomes the name of a file, on any system.
const NOT_IN_NAMES: [char; 9] = ['/', '\\', ':', '*', '?', '"', '<', '>', '|'];
/// Bytes of an id: file systems take 255, and an extension follows.
const LONGEST_ID: usize = 200;

/// A text and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// File and line; none for a text of the command line.
    pub(super) place: Option<String>,
    /// Its own id, or the number of its line.
    pub(super) id: String,
    pub(super) text: String,
}

/// The texts of the command line, of a file or of standard input.
pub(super) fn read(args: &SynthArgs, messages: &Messages) -> Result<Vec<Line>, Failure> {
    let cannot_read = |name: &str, error: &dyn std::fmt::Display| {
        Failure::usage(messages.with("synth-cannot-read", &[("path", &name), ("reason", error)]))
    };
    let (name, bytes) = match (&args.file, &args.text) {
        (Some(file), _) if file.as_os_str() != "-" => {
            let name = file.display().to_string();
            let bytes = std::fs::read(file).map_err(|error| cannot_read(&name, &error))?;
            (name, bytes)
        }
        (None, Some(text)) if text != "-" => {
            return Ok(vec![Line { place: None, id: "0001".to_owned(), text: text.clone() }]);
        }
        _ => {
            let (name, mut bytes) = (messages.get("synth-stdin"), Vec::new());
            std::io::stdin().lock().read_to_end(&mut bytes).map_err(|error| cannot_read(&name, &error))?;
            (name, bytes)
        }
    };
    parse(&name, &bytes).map_err(|wrong| {
        let Wrong { line, key, value } = wrong;
        Failure::usage(messages.with(key, &[("path", &name), ("line", &line), ("value", &value)]))
    })
}

/// What is wrong with a line.
#[derive(Debug, PartialEq, Eq)]
struct Wrong {
    line: usize,
    /// Of the message that says it.
    key: &'static str,
    value: String,
}

/// The texts of a file: `text` or `id|text` on each line that is not blank.
fn parse(name: &str, bytes: &[u8]) -> Result<Vec<Line>, Wrong> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
        Wrong { line, key: "synth-not-text", value: String::new() }
    })?;
    let mut lines = Vec::new();
    let mut taken: HashMap<String, usize> = HashMap::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |key, value: &str| Wrong { line: number, key, value: value.to_owned() };
        let (id, text) = match line.split_once('|') {
            Some((_, text)) if text.contains('|') => return Err(wrong("synth-columns", "")),
            Some((id, text)) => (id.trim().to_owned(), text),
            None => (format!("{number:04}"), line),
        };
        let is_name = !id.is_empty() && id.len() <= LONGEST_ID && !id.starts_with('.') && !id.ends_with('.');
        if !is_name || id.contains(NOT_IN_NAMES) || id.contains(char::is_control) {
            return Err(wrong("synth-no-name", &id));
        }
        // Some file systems take `A.wav` and `a.wav` for the same file.
        if taken.insert(id.to_lowercase(), number).is_some() {
            return Err(wrong("synth-id-twice", &id));
        }
        lines.push(Line { place: Some(format!("{name}:{number}")), id, text: text.trim().to_owned() });
    }
    if lines.is_empty() {
        return Err(Wrong { line: 0, key: "synth-no-texts", value: String::new() });
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_text_or_has_an_id() {
        let lines = parse("t", "\u{FEFF}Hello.\r\n\n a1 | Second one. \nسلام".as_bytes()).expect("three texts");
        let found: Vec<(&str, &str, &str)> =
            lines.iter().map(|l| (l.place.as_deref().unwrap_or(""), &l.id[..], &l.text[..])).collect();
        assert_eq!(found, [("t:1", "0001", "Hello."), ("t:3", "a1", "Second one."), ("t:4", "0004", "سلام")]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (bytes, line, key) in [
            (&b"a|b|c"[..], 1, "synth-columns"),
            (b"ok\n../a|text", 2, "synth-no-name"),
            (b"|text", 1, "synth-no-name"),
            (b".hidden|text", 1, "synth-no-name"),
            (b"a\0b|text", 1, "synth-no-name"),
            (b"a|x\nb|x\nA|y", 3, "synth-id-twice"),
            (b"0002|x\nplain", 2, "synth-id-twice"),
            (b"fine\n\xff\xfe", 2, "synth-not-text"),
            (b" \n\n", 0, "synth-no-texts"),
        ] {
            let wrong = parse("t", bytes).expect_err("refused");
            assert_eq!((wrong.line, wrong.key), (line, key), "{bytes:?}");
        }
    }
}
