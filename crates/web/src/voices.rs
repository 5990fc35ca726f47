//! The voices that are served: runs by name, their speakers, and uploaded references. A run that is loaded again replaces what
//! was there; requests under way keep what they began with.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tandem_audio::{AudioError, Decoder};
use tandem_model::HostReference;
use tandem_synth::{SynthesisError, Synthesizer};
use tandem_text::Frontend;

use crate::errors::ApiError;

/// Uploaded voices that are kept, at most: they are in memory.
const MOST_UPLOADS: usize = 64;
/// Seconds of an uploaded recording, at most: a few are used.
const MOST_UPLOAD_SECONDS: u32 = 60;
/// Its samples a second, at most.
const MOST_UPLOAD_RATE: u32 = 192_000;
/// The name of the only speaker of a voice.
pub(crate) const ONLY: &str = "default";

/// A voice, ready to speak.
pub struct LoadedVoice {
    /// Model and vocoder.
    pub synthesizer: Synthesizer,
    /// How text becomes ids.
    pub frontend: Frontend,
    /// Steps that it was trained for.
    pub step: u64,
    /// The checkpoint that it was loaded from.
    pub checkpoint: PathBuf,
    /// Speakers of the corpus by name; none if the voice has one.
    pub speakers: BTreeMap<String, Arc<HostReference>>,
}

impl fmt::Debug for LoadedVoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedVoice")
            .field("step", &self.step)
            .field("checkpoint", &self.checkpoint)
            .finish_non_exhaustive()
    }
}

/// Loads the voice of a checkpoint.
pub type LoadVoice = Arc<dyn Fn(&Path) -> Result<LoadedVoice, String> + Send + Sync>;

/// What a request speaks with.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) voice: Arc<LoadedVoice>,
    pub(crate) reference: Option<Arc<HostReference>>,
}

struct Entry {
    name: String,
    /// The run, where later checkpoints appear.
    run: PathBuf,
    voice: Arc<LoadedVoice>,
    uploads: BTreeMap<String, Arc<HostReference>>,
}

/// All voices, in the order in which they were given.
pub(crate) struct Voices {
    entries: Mutex<Vec<Entry>>,
}

/// Names that differ: `run`, `run-2`, `run-3`, …
fn names(runs: &[PathBuf]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for run in runs {
        let full = run.canonicalize().unwrap_or_else(|_| run.clone());
        let base = full.file_name().map_or_else(|| "voice".to_owned(), |name| name.to_string_lossy().into_owned());
        let numbered = (2..).map(|n| format!("{base}-{n}"));
        let free = std::iter::once(base.clone()).chain(numbered).find(|name| !names.contains(name));
        names.push(free.expect("numbers do not end"));
    }
    names
}

impl Voices {
    pub(crate) fn new(voices: Vec<(PathBuf, LoadedVoice)>) -> Voices {
        let runs: Vec<PathBuf> = voices.iter().map(|(run, _)| run.clone()).collect();
        let entries = names(&runs).into_iter().zip(voices).map(|(name, (run, voice))| Entry {
            name,
            run,
            voice: Arc::new(voice),
            uploads: BTreeMap::new(),
        });
        Voices { entries: Mutex::new(entries.collect()) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs, and the checkpoints that are loaded of them.
    pub(crate) fn loaded(&self) -> Vec<(String, PathBuf, PathBuf)> {
        let entries = self.lock();
        entries.iter().map(|entry| (entry.name.clone(), entry.run.clone(), entry.voice.checkpoint.clone())).collect()
    }

    /// Puts another checkpoint in the place of what was loaded of a run. Uploaded references stay if their frames are of the
    /// same kind.
    pub(crate) fn replace(&self, name: &str, voice: LoadedVoice) {
        let voice = Arc::new(voice);
        // What is replaced is dropped outside of the lock.
        let _old = self.lock().iter_mut().find(|entry| entry.name == name).map(|entry| {
            let (old, new) = (entry.voice.synthesizer.bundle(), voice.synthesizer.bundle());
            let uploads = if old.mel == new.mel && old.stats == new.stats {
                BTreeMap::new()
            } else {
                std::mem::take(&mut entry.uploads)
            };
            (std::mem::replace(&mut entry.voice, voice), uploads)
        });
    }

    /// The voice of a request.
    pub(crate) fn choose(&self, model: Option<&str>, voice: Option<&str>) -> Result<Chosen, ApiError> {
        let entries = self.lock();
        let entry = find(&entries, model)?;
        let known = || known(entry).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        let loaded = entry.voice.clone();
        if !loaded.synthesizer.has_speakers() {
            return match voice {
                None | Some(ONLY) => Ok(Chosen { voice: loaded, reference: None }),
                Some(name) => Err(ApiError::unknown("voice", name, &known())),
            };
        }
        let named = |name: &str| entry.uploads.get(name).or_else(|| loaded.speakers.get(name));
        let first = || loaded.speakers.values().next().or_else(|| entry.uploads.values().next());
        // Clients that must say something say `default`.
        let found = match voice {
            Some(ONLY) => named(ONLY).or_else(first).cloned(),
            Some(name) => named(name).cloned(),
            None => first().cloned(),
        };
        match found {
            Some(reference) => Ok(Chosen { voice: loaded, reference: Some(reference) }),
            None => Err(ApiError::unknown("voice", voice.unwrap_or_default(), &known())),
        }
    }

    /// Adds a reference recording under a name.
    pub(crate) fn upload(&self, model: Option<&str>, name: &str, audio: Vec<u8>) -> Result<Value, ApiError> {
        let (model, voice) = {
            let entries = self.lock();
            let entry = find(&entries, model)?;
            room(entry, name)?;
            (entry.name.clone(), entry.voice.clone())
        };
        // Decoding takes its time; nobody waits for it.
        let reference = read_reference(&voice.synthesizer, name, audio)?;
        let mut entries = self.lock();
        let entry = entries
            .iter_mut()
            .find(|entry| entry.name == model)
            .ok_or_else(|| ApiError::unknown("model", &model, &[]))?;
        room(entry, name)?;
        entry.uploads.insert(name.to_owned(), Arc::new(reference));
        Ok(voice_object(name, &model, "upload"))
    }

    /// Forgets an uploaded voice.
    pub(crate) fn forget(&self, model: Option<&str>, name: &str) -> Result<Value, ApiError> {
        let mut entries = self.lock();
        let model = find(&entries, model)?.name.clone();
        let entry = entries
            .iter_mut()
            .find(|entry| entry.name == model)
            .ok_or_else(|| ApiError::unknown("model", &model, &[]))?;
        match entry.uploads.remove(name) {
            Some(_) => Ok(json!({"id": name, "object": "voice", "deleted": true})),
            None => Err(ApiError::unknown("voice", name, &entry.uploads.keys().cloned().collect::<Vec<_>>())),
        }
    }

    /// `GET /v1/models`.
    pub(crate) fn models(&self) -> Value {
        let entries = self.lock();
        let model = |entry: &Entry| {
            let voice = &entry.voice;
            json!({
                "id": entry.name, "object": "model", "created": 0, "owned_by": "tandem", "step": voice.step,
                "sample_rate": voice.synthesizer.bundle().mel.sample_rate,
                "hop_length": voice.synthesizer.bundle().mel.hop_length,
                "speakers": voice.synthesizer.has_speakers(),
                "symbols": voice.frontend.vocabulary.size() - 1,
            })
        };
        json!({"object": "list", "data": entries.iter().map(model).collect::<Vec<_>>()})
    }

    /// `GET /v1/voices`.
    pub(crate) fn voices(&self) -> Value {
        let entries = self.lock();
        let all = entries.iter().flat_map(|entry| {
            known(entry).into_iter().map(|(name, kind)| voice_object(&name, &entry.name, kind)).collect::<Vec<_>>()
        });
        json!({"object": "list", "data": all.collect::<Vec<_>>()})
    }
}

fn voice_object(name: &str, model: &str, kind: &str) -> Value {
    json!({"id": name, "object": "voice", "model": model, "kind": kind})
}

fn find<'a>(entries: &'a [Entry], model: Option<&str>) -> Result<&'a Entry, ApiError> {
    let found = match model {
        None => entries.first(),
        Some(model) => entries.iter().find(|entry| entry.name == model),
    };
    let known = || entries.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>();
    found.ok_or_else(|| ApiError::unknown("model", model.unwrap_or_default(), &known()))
}

/// Names and kinds of the voices of a run.
fn known(entry: &Entry) -> Vec<(String, &'static str)> {
    if !entry.voice.synthesizer.has_speakers() {
        return vec![(ONLY.to_owned(), "only")];
    }
    let corpus = entry.voice.speakers.keys().map(|name| (name.clone(), "corpus"));
    corpus.chain(entry.uploads.keys().map(|name| (name.clone(), "upload"))).collect()
}

/// Whether a voice of this name can be added.
fn room(entry: &Entry, name: &str) -> Result<(), ApiError> {
    let conflict = |code, message: String| Err(ApiError::new(409, code, message).about("name"));
    if !entry.voice.synthesizer.has_speakers() {
        return conflict("one_speaker", format!("`{}` has one speaker; it cannot imitate another", entry.name));
    }
    if entry.voice.speakers.contains_key(name) {
        return conflict("name_taken", format!("`{name}` is a speaker of `{}`", entry.name));
    }
    if entry.uploads.len() >= MOST_UPLOADS && !entry.uploads.contains_key(name) {
        return conflict("too_many_voices", format!("{MOST_UPLOADS} voices were uploaded; delete one first"));
    }
    Ok(())
}

fn read_reference(synthesizer: &Synthesizer, name: &str, audio: Vec<u8>) -> Result<HostReference, ApiError> {
    let decoder = Decoder::new().at_most(MOST_UPLOAD_SECONDS, MOST_UPLOAD_RATE);
    synthesizer.reference_from(Path::new(name), Cursor::new(audio), decoder).map_err(|error| {
        let code = match error {
            SynthesisError::ShortReference(..) => "recording_too_short",
            SynthesisError::Reference(_, AudioError::TooLong) => {
                let message = format!("longer than {MOST_UPLOAD_SECONDS} s");
                return ApiError::new(400, "recording_too_long", message).about("body");
            }
            SynthesisError::Reference(..) => "not_audio",
            _ => "invalid_recording",
        };
        ApiError::new(400, code, error.to_string()).about("body")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_name_are_told_apart() {
        let runs = ["/a/run", "/b/run", "/c/voice", "/d/run"].map(PathBuf::from);
        assert_eq!(names(&runs), ["run", "run-2", "voice", "run-3"]);
    }
}
