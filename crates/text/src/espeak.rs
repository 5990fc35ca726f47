//! The `espeak-ng` program: where it is, which languages it has, and running it. It runs as a process of its own: it is
//! GPL and is never linked.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use crate::language::Language;
use crate::phonemes::Phonemizer;

const PROGRAM: &str = "espeak-ng";
/// It writes thousands of clauses a second; if nothing comes for so long, nothing will.
const PATIENCE: Duration = Duration::from_secs(60);
/// Languages that are named to someone who gave a code that does not exist.
const NEAR: usize = 6;

/// Why there are no phonemes.
#[derive(Debug)]
#[non_exhaustive]
pub enum PhonemeError {
    /// The program is not installed or does not start.
    Missing(io::Error),
    /// The program failed, with these words.
    Failed(String),
    /// The program wrote nothing for so many seconds, and was ended.
    Hung(u64),
    /// The program has no voice for this language; it has these, whose codes or names are like it.
    Language(Language, Vec<String>),
}

impl fmt::Display for PhonemeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PhonemeError::Missing(error) => write!(
                f,
                "phonemes need the program `espeak-ng`, which does not start ({error}): install the package espeak-ng, \
                 or train on characters"
            ),
            PhonemeError::Failed(words) => write!(f, "`espeak-ng` failed: {words}"),
            PhonemeError::Hung(seconds) => {
                write!(f, "`espeak-ng` wrote nothing for {seconds} s and was ended: does it work by itself?")
            }
            PhonemeError::Language(language, near) if near.is_empty() => write!(
                f,
                "`espeak-ng` does not know the language `{language}`: `espeak-ng --voices` lists those that it knows"
            ),
            PhonemeError::Language(language, near) => write!(
                f,
                "`espeak-ng` does not know the language `{language}`, perhaps one of these: {} (`espeak-ng --voices` \
                 lists all)",
                near.join(", ")
            ),
        }
    }
}

impl std::error::Error for PhonemeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PhonemeError::Missing(error) => Some(error),
            PhonemeError::Failed(_) | PhonemeError::Hung(_) | PhonemeError::Language(..) => None,
        }
    }
}

/// The installed program and the languages that it has.
#[derive(Clone, Debug)]
pub struct Espeak {
    program: PathBuf,
    voices: Vec<Voice>,
}

/// A line of `espeak-ng --voices`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Voice {
    code: String,
    name: String,
    /// Other codes that it goes by.
    others: Vec<String>,
}

impl Espeak {
    /// Finds the program on the `PATH` and asks it for its languages: once, as long as it is the same program.
    ///
    /// # Errors
    ///
    /// [`PhonemeError`] if it is not there, fails or hangs.
    pub fn find() -> Result<Espeak, PhonemeError> {
        Espeak::known(&on_path()?)
    }

    fn known(program: &Path) -> Result<Espeak, PhonemeError> {
        static KNOWN: Mutex<Option<(String, Espeak)>> = Mutex::new(None);
        let lock = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let identity = identity(program)?;
        if let Some((_, espeak)) = lock().as_ref().filter(|(known, _)| *known == identity) {
            return Ok(espeak.clone());
        }
        let espeak = Espeak::at(program)?;
        *lock() = Some((identity, espeak.clone()));
        Ok(espeak)
    }

    /// The same with a program of another name.
    ///
    /// # Errors
    ///
    /// As [`Espeak::find`].
    pub fn at(program: &Path) -> Result<Espeak, PhonemeError> {
        let listed = output(program, &["--voices"], "", PATIENCE)?;
        Ok(Espeak { program: program.to_owned(), voices: listed.lines().skip(1).filter_map(voice).collect() })
    }

    /// What tells the installed program from another one, which may give other phonemes: its place, size and date. Nothing
    /// is started.
    ///
    /// # Errors
    ///
    /// [`PhonemeError::Missing`] if it is not there.
    pub fn identity() -> Result<String, PhonemeError> {
        identity(&on_path()?)
    }

    /// What makes phonemes of a language.
    ///
    /// # Errors
    ///
    /// [`PhonemeError::Language`] if the program does not have it.
    pub fn phonemizer(&self, language: &Language) -> Result<Phonemizer, PhonemeError> {
        let wanted = if language.code() == "en" { "en-us" } else { language.code() };
        let find = |wanted: &str| {
            let codes = self.voices.iter().flat_map(|voice| std::iter::once(&voice.code).chain(&voice.others));
            codes.into_iter().find(|code| code.eq_ignore_ascii_case(wanted))
        };
        match find(wanted).or_else(|| find(language.primary())) {
            Some(voice) => Ok(Phonemizer::new(&self.program, voice)),
            None => Err(PhonemeError::Language(language.clone(), self.near(language))),
        }
    }

    /// Languages whose code is nearly this one, or whose name begins with it.
    fn near(&self, language: &Language) -> Vec<String> {
        let wanted = language.primary();
        let distance = |voice: &&Voice| match voice.name.to_lowercase().starts_with(wanted) {
            true => 0,
            false => edit_distance(voice.code.split('-').next().unwrap_or_default(), wanted),
        };
        let mut near: Vec<&Voice> = self.voices.iter().filter(|voice| distance(voice) < 2).collect();
        let other_start = |voice: &&Voice| voice.code.chars().next() != wanted.chars().next();
        near.sort_by_key(|voice| (distance(voice), other_start(voice)));
        near.iter().take(NEAR).map(|voice| format!("{} ({})", voice.code, voice.name)).collect()
    }
}

fn identity(program: &Path) -> Result<String, PhonemeError> {
    let about = program.metadata().map_err(PhonemeError::Missing)?;
    let modified = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Ok(format!("{} {} {}", program.display(), about.len(), modified.map_or(0, |time| time.as_nanos())))
}

/// The code is the second column, the name the fourth; other codes of a voice are in brackets at the end: `(fa-latn 3)`.
fn voice(line: &str) -> Option<Voice> {
    let mut columns = line.split_whitespace().skip(1);
    let code = columns.next()?.to_owned();
    let name = columns.nth(1).unwrap_or_default().replace('_', " ");
    let bracket = |part: &str| Some(part.split_once(' ')?.0.to_owned());
    // A name may have brackets too, but no blank in them.
    let others = line.split('(').skip(1).filter_map(bracket).filter(|code| !code.contains(')')).collect();
    Some(Voice { code, name, others })
}

/// Letters to change, insert or leave out to make one of the other.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (n, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = n + 1;
        for (m, other) in b.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[m + 1];
            row[m + 1] = changed.min(row[m] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn on_path() -> Result<PathBuf, PhonemeError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let name = format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX);
    let found = std::env::split_paths(&path).map(|dir| dir.join(&name)).find(|file| file.is_file());
    // As the system would say it: no such file.
    found.ok_or_else(|| PhonemeError::Missing(io::Error::from_raw_os_error(2)))
}

/// Runs it on all of this input.
pub(crate) fn run(program: &Path, args: &[&str], input: &str) -> Result<String, PhonemeError> {
    output(program, args, input, PATIENCE)
}

/// What a program writes when it reads this; an error if it writes nothing for longer than `patience`.
fn output(program: &Path, args: &[&str], input: &str, patience: Duration) -> Result<String, PhonemeError> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(PhonemeError::Missing)?;
    // Threads of their own, and nobody waits for them: pipes hold little, and a process that hangs may have others that
    // keep them open.
    if let Some(mut stdin) = child.stdin.take() {
        let input = input.to_owned();
        // A program that does not read says so by its exit code.
        std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    }
    let written = pieces_of(child.stdout.take());
    let complaints = pieces_of(child.stderr.take());
    let text = match gather(&written, patience) {
        Some(text) => text,
        None => return Err(hung(child, patience)),
    };
    let status = child.wait().map_err(PhonemeError::Missing)?;
    if !status.success() {
        let words = gather(&complaints, patience).unwrap_or_default();
        let words = words.trim();
        return Err(PhonemeError::Failed(if words.is_empty() { status.to_string() } else { words.to_owned() }));
    }
    Ok(text)
}

fn hung(mut child: Child, patience: Duration) -> PhonemeError {
    // Gone already is as good as ended.
    let _ = child.kill();
    let _ = child.wait();
    PhonemeError::Hung(patience.as_secs())
}

fn pieces_of(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    if let Some(mut pipe) = pipe {
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(length @ 1..) = pipe.read(&mut buffer) {
                if send.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
    }
    receive
}

/// Everything until the pipe is closed; none if nothing came for too long.
fn gather(pieces: &mpsc::Receiver<Vec<u8>>, patience: Duration) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        match pieces.recv_timeout(patience) {
            Ok(piece) => bytes.extend(piece),
            Err(RecvTimeoutError::Disconnected) => return Some(String::from_utf8_lossy(&bytes).into_owned()),
            Err(RecvTimeoutError::Timeout) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_what_to_do() {
        let error = Espeak::at(Path::new("no-such-espeak")).expect_err("missing");
        assert!(error.to_string().contains("install the package espeak-ng"), "{error}");
        assert!(std::error::Error::source(&error).is_some_and(|source| source.is::<io::Error>()));
    }

    #[test]
    fn voices_have_a_code_a_name_and_other_codes() {
        let line = " 5  cmn             --/M      Chinese_(Mandarin,_latin_as_English) sit/cmn  (zh-cmn 5)(zh 5)";
        let found = voice(line).expect("a voice");
        assert_eq!((found.code.as_str(), found.name.as_str()), ("cmn", "Chinese (Mandarin, latin as English)"));
        assert_eq!(found.others, ["zh-cmn", "zh"]);
        assert_eq!(voice(""), None);
    }

    #[test]
    fn a_language_that_it_does_not_have_is_answered_with_those_that_are_like_it() {
        let voice = |code: &str, name: &str| Voice { code: code.into(), name: name.into(), others: vec![] };
        let voices = vec![
            voice("de", "German"),
            voice("es", "Spanish (Spain)"),
            voice("fa", "Persian"),
            voice("ja", "Japanese"),
        ];
        let espeak = Espeak { program: PathBuf::new(), voices };
        for (given, near) in [("jp", "ja (Japanese)"), ("ge", "de (German)"), ("spa", "es (Spanish (Spain))")] {
            let error = espeak.phonemizer(&given.parse().expect("a code")).expect_err("not there").to_string();
            assert!(error.contains(&format!("`{given}`")) && error.contains(near), "{error}");
        }
        let error = espeak.phonemizer(&"tlhx".parse().expect("a code")).expect_err("not there").to_string();
        assert!(error.ends_with("lists those that it knows"), "{error}");
        assert!(espeak.phonemizer(&"fa-IR".parse().expect("a code")).is_ok(), "the region is not known");
    }

    #[cfg(unix)]
    #[test]
    fn a_program_is_asked_for_its_languages_once_until_it_is_another_one() {
        use std::os::unix::fs::PermissionsExt;
        let dir = std::env::temp_dir().join(format!("tandem-languages-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        let (program, asked) = (dir.join("espeak-ng"), dir.join("asked"));
        let install = |name: &str| {
            let script =
                format!("#!/bin/sh\necho asked >> {}\necho head\necho ' 5 fa --/M {name} x'\n", asked.display());
            std::fs::write(&program, script).expect("written");
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("allowed");
        };
        let times = || std::fs::read_to_string(&asked).unwrap_or_default().lines().count();
        install("Persian");
        for _ in 0..3 {
            assert_eq!(Espeak::known(&program).expect("it answers").voices[0].name, "Persian");
        }
        assert_eq!(times(), 1);
        install("Persian_Updated");
        assert_eq!(Espeak::known(&program).expect("it answers").voices[0].name, "Persian Updated");
        assert_eq!(times(), 2);
        std::fs::remove_dir_all(&dir).expect("ours");
    }

    #[cfg(unix)]
    #[test]
    fn a_program_that_fails_crashes_or_hangs_is_an_error() {
        let shell = |script: &str| output(Path::new("sh"), &["-c", script], "x\n", Duration::from_millis(300));
        assert_eq!(shell("cat").expect("it reads"), "x\n");
        let failed = shell("echo no voice >&2; exit 3").expect_err("it fails").to_string();
        assert_eq!(failed, "`espeak-ng` failed: no voice");
        let crashed = shell("kill -SEGV $$").expect_err("it crashes").to_string();
        assert!(crashed.starts_with("`espeak-ng` failed: signal: 11"), "{crashed}");
        assert!(matches!(shell("sleep 100"), Err(PhonemeError::Hung(_))));
        assert!(matches!(shell("sleep 100 & sleep 100"), Err(PhonemeError::Hung(_))), "with a process of its own");
        // More than pipes hold, in both directions.
        let long = "a line of some length\n".repeat(20_000);
        assert_eq!(output(Path::new("cat"), &[], &long, Duration::from_secs(60)).expect("it runs"), long);
        assert_eq!(output(Path::new("true"), &[], &long, Duration::from_secs(60)).expect("it does not read"), "");
    }
}
