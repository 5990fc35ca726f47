//! [`Fields`]: what a row says; splitting rows, names of columns, and which paths a row may name.

use std::borrow::Cow;
use std::path::{Component, Path};

use crate::fault::ClipFault;

/// Names of the column with the audio file, the likeliest first.
pub(super) const AUDIO: &[&str] =
    &["audio_filepath", "file_name", "audio_file", "audio_path", "audio", "wav", "path", "file"];
/// Of the text: the one that is written as it is spoken wins.
pub(super) const TEXT: &[&str] = &["normalized_text", "text", "transcription", "transcript", "sentence", "raw_text"];
/// Of the speaker.
pub(super) const SPEAKER: &[&str] = &["speaker", "speaker_name", "speaker_id", "client_id"];
/// Of the language.
pub(super) const LANGUAGE: &[&str] = &["language", "lang", "locale"];

/// Extensions of audio files that are not part of a clip's id.
const AUDIO_EXTENSIONS: [&str; 4] = ["wav", "flac", "mp3", "ogg"];

/// What a row says about its clip.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields<'a> {
    /// The clip's id.
    pub id: Cow<'a, str>,
    /// Its audio file, perhaps without the extension.
    pub audio: Cow<'a, str>,
    /// What is said.
    pub text: Cow<'a, str>,
    /// Who speaks.
    pub speaker: Option<Cow<'a, str>>,
    /// The code of the language.
    pub language: Option<Cow<'a, str>>,
}

/// A row as text, without a byte order mark.
pub(super) fn utf8(row: &[u8]) -> Result<&str, ClipFault> {
    let row = row.strip_suffix(b"\n").unwrap_or(row);
    let row = row.strip_suffix(b"\r").unwrap_or(row);
    let row = row.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(row);
    std::str::from_utf8(row).map_err(|_| ClipFault::NotUtf8)
}

/// Fields separated by `|`. Quotes are ordinary characters (as in LJSpeech itself), unless only they can explain that
/// there are more than `most` columns.
pub(super) fn split_piped(line: &str, most: usize) -> Vec<Cow<'_, str>> {
    let fields: Vec<Cow<'_, str>> = line.split('|').map(Cow::Borrowed).collect();
    let opens = |field: &Cow<'_, str>| field.starts_with('"') && field.matches('"').count() % 2 == 1;
    if fields.len() > most || fields.iter().any(opens) {
        // A lone quote, as in `6" pipe`, closes nowhere; then it is an ordinary character after all.
        return split_quoted(line, '|').unwrap_or(fields);
    }
    fields
}

/// Fields of which some are in double quotes (doubled inside); `None` if a quote stays open.
pub(super) fn split_quoted(line: &str, separator: char) -> Option<Vec<Cow<'_, str>>> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut field = String::new();
            let mut chars = quoted.char_indices().peekable();
            let mut after = None;
            while let Some((at, c)) = chars.next() {
                if c != '"' {
                    field.push(c);
                } else if chars.peek().is_some_and(|&(_, next)| next == '"') {
                    chars.next();
                    field.push('"');
                } else {
                    after = Some(at + 1);
                    break;
                }
            }
            fields.push(Cow::Owned(field));
            match quoted[after?..].split_once(separator) {
                Some((_, next)) => rest = next,
                None => return Some(fields),
            }
        } else {
            match rest.split_once(separator) {
                Some((field, next)) => {
                    fields.push(Cow::Borrowed(field));
                    rest = next;
                }
                None => {
                    fields.push(Cow::Borrowed(rest));
                    return Some(fields);
                }
            }
        }
    }
}

/// Which column is what, from a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) count: usize,
    pub(super) audio: usize,
    pub(super) text: usize,
    speaker: Option<usize>,
    language: Option<usize>,
}

impl Columns {
    /// By the names of a header; the error is the kind that is missing.
    pub(super) fn of(header: &[impl AsRef<str>]) -> Result<Columns, &'static str> {
        let find = |names: &[&str]| {
            let is = |name: &str| header.iter().position(|column| column.as_ref().trim().eq_ignore_ascii_case(name));
            names.iter().find_map(|name| is(name))
        };
        Ok(Columns {
            count: header.len(),
            audio: find(AUDIO).ok_or("audio")?,
            text: find(TEXT).ok_or("text")?,
            speaker: find(SPEAKER),
            language: find(LANGUAGE),
        })
    }

    /// Whether a column says who speaks, or in which language.
    pub(super) fn name_speakers(&self) -> bool {
        self.speaker.is_some() || self.language.is_some()
    }

    /// The fields of a row; its id is still empty.
    pub(super) fn fields<'a>(&self, mut row: Vec<Cow<'a, str>>) -> Result<Fields<'a>, ClipFault> {
        // Columns at the end may be left out.
        let needed = self.audio.max(self.text) + 1;
        if row.len() > self.count || row.len() < needed {
            return Err(ClipFault::OtherColumns { found: row.len(), header: self.count });
        }
        let mut take = |at: usize| row.get_mut(at).map(std::mem::take);
        let given = |field: Option<Cow<'a, str>>| field.map(trimmed).filter(|field| !field.is_empty());
        Ok(Fields {
            id: Cow::default(),
            audio: take(self.audio).map(trimmed).unwrap_or_default(),
            text: take(self.text).unwrap_or_default(),
            speaker: given(self.speaker.and_then(&mut take)),
            language: given(self.language.and_then(&mut take)),
        })
    }
}

/// Without blanks at both ends.
pub(super) fn trimmed(field: Cow<'_, str>) -> Cow<'_, str> {
    match field {
        Cow::Borrowed(field) => Cow::Borrowed(field.trim()),
        Cow::Owned(field) => Cow::Owned(field.trim().to_owned()),
    }
}

/// No path, no reference to another directory, nothing that a file system refuses.
pub(super) fn is_file_name(id: &str) -> bool {
    !id.is_empty() && id.len() <= 240 && id != "." && id != ".." && !id.contains(['/', '\\', '\0'])
}

/// A path as a list names it: inside the directory, or absolute where that is allowed; never through `..`.
pub(super) fn check_path(path: &str, absolute: bool) -> Result<(), ClipFault> {
    if path.is_empty() || path.contains('\0') {
        return Err(ClipFault::BadPath);
    }
    let allowed = |component: Component<'_>| match component {
        Component::Normal(_) | Component::CurDir => true,
        Component::RootDir | Component::Prefix(_) => absolute,
        Component::ParentDir => false,
    };
    match Path::new(path).components().all(allowed) {
        true => Ok(()),
        false => Err(ClipFault::Outside),
    }
}

/// The id of a clip whose file is `path`: below the directory of audio files, without the extension.
pub(super) fn id_of_path(path: &str, dir: &Path, audio_dir: &str) -> String {
    let inside = Path::new(path).strip_prefix(dir).ok().and_then(Path::to_str).unwrap_or(path);
    let inside = inside.trim_start_matches("./").trim_start_matches('/');
    let inside = inside.strip_prefix(audio_dir).and_then(|rest| rest.strip_prefix('/')).unwrap_or(inside);
    without_extension(inside).to_owned()
}

/// A name without the extension of an audio file.
pub(super) fn without_extension(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((stem, extension)) if is_audio_extension(extension) && !stem.is_empty() => stem,
        _ => name,
    }
}

/// Whether files with this extension are audio.
pub(super) fn is_audio_extension(extension: &str) -> bool {
    AUDIO_EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside_unless_absolute_ones_are_meant() {
        for (path, relative, absolute) in [
            ("wavs/a.wav", true, true),
            ("./a.wav", true, true),
            ("/data/a.wav", false, true),
            ("../a.wav", false, false),
            ("wavs/../../a.wav", false, false),
            ("/data/../etc/passwd", false, false),
            ("", false, false),
            ("a\0b", false, false),
        ] {
            assert_eq!(check_path(path, false).is_ok(), relative, "{path}");
            assert_eq!(check_path(path, true).is_ok(), absolute, "{path}");
        }
    }

    #[test]
    fn the_id_is_the_path_below_the_audio() {
        for (path, id) in [
            ("wavs/a.wav", "a"),
            ("./wavs/a.b.FLAC", "a.b"),
            ("/corpus/wavs/p1/a.mp3", "p1/a"),
            ("/other/a.wav", "other/a"),
            ("audio/a", "audio/a"),
        ] {
            assert_eq!(id_of_path(path, Path::new("/corpus"), "wavs"), id, "{path}");
        }
    }
}
