//! Opening a corpus as the user asked for it: shared by the commands that read one.

use std::fmt::Display;
use std::io::{IsTerminal, stderr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tandem_data::{Corpus, CorpusError, CorpusSettings, MetadataError, Part, RemoteError, RemoteFault, Tolerance};
use tandem_text::{FrontendError, PhonemeError, Units};
use tandem_train::{Requested, corpus_settings};

use crate::failure::{FAILED, Failure, INTERRUPTED, USAGE};
use crate::messages::Messages;
use crate::ui::progress;

/// A megabyte, as it is written on the package.
pub(crate) const MB: u64 = 1_000_000;

/// More than one text in so many with letters of another language: the guess may be wrong.
const FOREIGN_SHARE: usize = 10;

/// What was typed, checked.
pub(crate) fn settings(requested: &Requested) -> Result<CorpusSettings, Failure> {
    corpus_settings(requested, None).map_err(|error| Failure::usage(error.to_string()))
}

/// Opens the corpus, with progress while its index is made.
pub(crate) fn open(
    dir: &Path,
    settings: CorpusSettings,
    stop: &AtomicBool,
    messages: &Messages,
) -> Result<Arc<Corpus>, Failure> {
    let corpus = open_part(dir, Part::All, settings, stop, messages)?;
    Ok(corpus.expect("a directory lists clips, or is an error"))
}

/// The same for some of its clips; none if it lists no clips for validation.
pub(crate) fn open_part(
    dir: &Path,
    part: Part,
    settings: CorpusSettings,
    stop: &AtomicBool,
    messages: &Messages,
) -> Result<Option<Arc<Corpus>>, Failure> {
    let settings = with_extensions(settings);
    let bar = progress::bar(0, stderr().is_terminal());
    let trimmed = settings.processing.trim_silence;
    bar.set_message(messages.get(if trimmed { "data-indexing-trim" } else { "data-indexing" }));
    let progress = |done, all| {
        bar.set_length(u64::from(all));
        bar.set_position(u64::from(done));
    };
    let corpus = Corpus::open_part(dir, part, settings, progress, stop);
    bar.finish_and_clear();
    corpus.map(|corpus| corpus.map(Arc::new)).map_err(|error| match error {
        CorpusError::Stopped => Failure::new(INTERRUPTED, messages.get("data-stopped")),
        CorpusError::NothingUsable(_) | CorpusError::TooMany { .. } => {
            let hint = messages.with("data-hint-doctor", &[("folder", &dir.display())]);
            Failure::of(USAGE, &error).hint(hint)
        }
        CorpusError::Metadata(error) => list_failure(&error, messages),
        CorpusError::Remote(error) => list_failure(&MetadataError::Remote(error), messages),
        CorpusError::Frontend(frontend) => frontend_failure(&frontend, messages),
    })
}

/// The same settings with what reads buckets and parquet files; settings of a corpus that is open have it.
pub(crate) fn with_extensions(mut settings: CorpusSettings) -> CorpusSettings {
    if settings.extensions.0.is_none() {
        settings.extensions = tandem_store::extensions();
    }
    settings
}

/// Why a folder is not a corpus, and what to do.
pub(crate) fn list_failure(error: &MetadataError, messages: &Messages) -> Failure {
    let failure = Failure::of(USAGE, error);
    match error {
        MetadataError::NoMetadata(_) | MetadataError::Empty(_) => failure.hint(messages.get("data-hint-layout")),
        MetadataError::TwoFormats(found) => {
            let [first, second] = found.previews.each_ref().map(|preview| preview.format);
            failure.hint(messages.with("data-hint-format", &[("first", &first), ("second", &second)]))
        }
        MetadataError::NotBuilt(_, feature) => {
            failure.hint(messages.with("data-hint-feature", &[("feature", feature)]))
        }
        MetadataError::Remote(RemoteError { url, reason, .. }) => match reason {
            RemoteFault::NoCredentials | RemoteFault::Refused(..) if url.starts_with("s3:") => {
                failure.hint(messages.get("data-hint-credentials-s3"))
            }
            RemoteFault::NoCredentials | RemoteFault::Refused(..) if url.starts_with("gs:") => {
                failure.hint(messages.get("data-hint-credentials-gs"))
            }
            RemoteFault::NoCredentials | RemoteFault::Refused(..) if url.starts_with("az:") => {
                failure.hint(messages.get("data-hint-credentials-az"))
            }
            RemoteFault::NoHost | RemoteFault::NoConnection(_) => failure.hint(messages.get("data-hint-endpoint")),
            _ => failure,
        },
        _ => failure,
    }
}

/// Why texts cannot be turned into symbols, and what to do.
pub(crate) fn frontend_failure(error: &FrontendError, messages: &Messages) -> Failure {
    let failure = Failure::usage(error.to_string());
    match error {
        FrontendError::Phonemes(PhonemeError::Missing(_)) => failure.hint(messages.get("data-hint-espeak")),
        FrontendError::LexiconOfCharacters => failure.hint(messages.get("data-hint-lexicon")),
        _ => failure,
    }
}

/// SPEC S4: a corpus of which too much is broken is refused, with the list.
pub(crate) fn check(corpus: &Corpus, messages: &Messages) -> Result<(), Failure> {
    corpus.check(Tolerance::default()).map_err(|error| {
        let hint = messages.with("data-hint-doctor", &[("folder", &corpus.dir().display())]);
        Failure::of(FAILED, &error).hint(hint)
    })
}

/// One line about a corpus, and what is remarkable about it.
pub(crate) fn describe(corpus: &Corpus, messages: &Messages) -> String {
    let seconds = corpus.seconds();
    let mut text = messages.with(
        "data-corpus",
        &[
            ("clips", &corpus.len()),
            ("rows", &corpus.rows()),
            ("hours", &format!("{:.2}", seconds / 3600.0)),
            ("speakers", &corpus.speakers().len().max(1)),
            ("measured", &corpus.measured()),
        ],
    );
    text.push('\n');
    let wanted = corpus.settings().mel.sample_rate;
    for (rate, count) in corpus.rates().into_iter().filter(|&(rate, _)| rate != wanted) {
        text += &messages.with("data-resampled", &[("count", &count), ("rate", &rate), ("wanted", &wanted)]);
        text.push('\n');
    }
    let processing = corpus.settings().processing;
    if processing.trim_silence {
        text += &format!("{}\n", messages.get("data-trimmed"));
    }
    if let Some(level) = processing.loudness_db {
        text += &format!("{}\n", messages.with("data-loudness", &[("level", &level)]));
    }
    text += &texts(corpus, messages);
    let skipped = corpus.rows() - corpus.len();
    if skipped > 0 {
        let hint: &dyn std::fmt::Display = &corpus.dir().display();
        text += &messages.with("data-left-out", &[("count", &skipped), ("folder", hint)]);
        text.push('\n');
    }
    text
}

/// How the texts of a corpus are read, and why: a line each for units and languages, and what is remarkable.
pub(crate) fn texts(corpus: &Corpus, messages: &Messages) -> String {
    let (frontend, choice) = (corpus.frontend(), corpus.choice());
    let symbols: (&str, &dyn Display) = ("symbols", &(frontend.vocabulary.size() - 1));
    let mut lines = vec![match choice.units.as_ref().map(|choice| &choice.why_not) {
        None if frontend.units == Units::Characters => messages.with("data-units-characters", &[symbols]),
        None => messages.with("data-units-phonemes", &[symbols]),
        Some(None) => messages.with("data-units-phonemes-auto", &[symbols]),
        Some(Some(PhonemeError::Missing(_))) => messages.with("data-units-no-espeak", &[symbols]),
        Some(Some(error)) => messages.with("data-units-characters-auto", &[symbols, ("reason", error)]),
    }];
    let found = corpus.languages();
    if frontend.language.is_none() && !found.is_empty() {
        let counts: Vec<String> = found.iter().map(|(language, count, _)| format!("{language} {count}")).collect();
        let counts = messages.list(&counts);
        let guess = choice.languages.as_ref().map(|choice| &choice.guess).filter(|guess| guess.texts > 0);
        lines.push(match guess {
            None => messages.with("data-languages", &[("counts", &counts)]),
            Some(guess) if found.len() > 1 || guess.languages.len() > 1 => {
                messages.with("data-languages-guessed", &[("counts", &counts), ("texts", &guess.texts)])
            }
            Some(guess) => {
                let (language, texts) = (&found[0].0, &guess.texts);
                let values: &[(&str, &dyn Display)] = &[
                    ("language", language),
                    ("texts", texts),
                    ("count", &guess.evident),
                    ("evidence", &messages.list(&guess.evidence)),
                ];
                let id = if guess.evident > 0 { "data-language-guessed" } else { "data-language-unclear" };
                messages.with(id, values)
            }
        });
        for (other, count) in guess.into_iter().flat_map(|guess| &guess.others) {
            lines.push(messages.with("data-language-others", &[("count", count), ("language", other)]));
        }
        for (language, count, other_letters) in &found {
            if guess.is_some() && other_letters * FOREIGN_SHARE > *count {
                let values: &[(&str, &dyn Display)] =
                    &[("foreign", other_letters), ("count", count), ("language", language)];
                lines.push(messages.with("data-foreign", values));
            }
        }
    }
    // Only English and Persian numbers are turned into words here.
    let digits: Vec<String> =
        frontend.vocabulary.symbols().iter().filter(|symbol| symbol.chars().all(char::is_numeric)).cloned().collect();
    if frontend.units == Units::Characters && !frontend.raw && !digits.is_empty() {
        lines.push(messages.with("data-digits", &[("digits", &messages.list(&digits))]));
    }
    lines.join("\n") + "\n"
}
