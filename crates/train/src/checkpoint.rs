//! Everything needed to resume a run exactly, in a directory that is there whole or not at all.
//!
//! ```text
//! checkpoints/step-00001200/
//!     model.safetensors       weights, names and layouts as in PyTorch
//!     ema.safetensors         their exponential moving average: what synthesis uses
//!     optimizer.safetensors   mean.NAME and square.NAME of each weight
//!     state.json              step, place in the data, settings, text front end, what the features mean
//!     checksums.json          XXH3 of the four
//! ```
//! What `state.json` says is in `checkpoint/state.rs`. A checkpoint is written to a temporary folder beside it, flushed to the
//! disk, and then renamed.

mod state;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tandem_audio::MelSettings;
use tandem_data::CorpusSettings;
use tandem_data::files::{make_readable, remove_leftovers, sync_dir, write_atomically};
use tandem_model::weights::{self, Tensors};
use tandem_model::{Device, ModelConfig, REFERENCE_FRAMES};
use tandem_synth::{Bundle, SynthesisError, Synthesizer, TrainedVocoder};
use tandem_text::Frontend;
use xxhash_rust::xxh3::xxh3_128;

use crate::task::TrainedPart;

use state::StateError;

pub use state::{CursorState, DataIdentity, FORMAT, State};

const MODEL: &str = "model.safetensors";
const EMA: &str = "ema.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const STATE: &str = "state.json";
const CHECKSUMS: &str = "checksums.json";
/// Notes which checkpoint has the best validation loss.
const BEST: &str = "best";
const REPLACED: &str = ".replaced-";

impl State {
    /// What synthesis needs of it, if it is an acoustic model's.
    pub fn bundle(&self) -> Option<Bundle> {
        Some(Bundle {
            config: self.model.acoustic()?.clone(),
            mel: self.mel.clone(),
            processing: self.settings.data.processing(),
            stats: self.stats.clone(),
        })
    }

    /// What batches for its acoustic model look like: frames of a decoder position, and frames of reference audio.
    pub fn batch_shape(&self) -> (usize, Option<usize>) {
        let shape = |config: &ModelConfig| (config.decoder.group, config.reference.then_some(REFERENCE_FRAMES));
        self.model.acoustic().map_or((1, None), shape)
    }

    /// Whether it is of the part of a voice that is needed.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::OtherPart`] if it is not.
    pub fn check_part(&self, path: &Path, needed: TrainedPart) -> Result<(), CheckpointError> {
        match self.model.part() {
            found if found == needed => Ok(()),
            found => Err(CheckpointError::OtherPart { path: path.to_owned(), found, needed }),
        }
    }

    /// How a corpus is read as the voice reads it.
    pub fn corpus_settings(&self) -> CorpusSettings {
        CorpusSettings {
            mel: self.mel.clone(),
            processing: self.settings.data.processing(),
            audio_dir: self.data.audio_dir.clone(),
            frontend: self.frontend.clone(),
            ..CorpusSettings::default()
        }
    }
}

/// A checkpoint in memory.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Everything but tensors.
    pub state: State,
    /// The weights.
    pub weights: Tensors,
    /// Their moving average.
    pub ema: Tensors,
    /// The optimizer state.
    pub optimizer: Tensors,
}

/// Why a checkpoint cannot be used.
#[derive(Debug)]
pub enum CheckpointError {
    /// There is none.
    None(PathBuf),
    /// It cannot be read or written.
    Io(PathBuf, io::Error),
    /// A file is missing, cut short or changed.
    Damaged(PathBuf, String),
    /// Written in another format than [`FORMAT`]; none: it does not say which.
    Format(PathBuf, Option<u64>),
    /// The format is known, and what is in it is not.
    State(PathBuf, serde_json::Error),
    /// It belongs to another model, vocabulary, data or setting: what differs, one line each.
    Mismatch(PathBuf, Vec<String>),
    /// It is of another part of a voice than the one that is needed.
    OtherPart {
        /// The checkpoint or run.
        path: PathBuf,
        /// What it is.
        found: TrainedPart,
        /// What it should be.
        needed: TrainedPart,
    },
    /// A vocoder whose frames are not those of the voice: what differs, one line each.
    OtherMel(PathBuf, Vec<String>),
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointError::None(path) if !path.exists() => write!(f, "`{}` does not exist", path.display()),
            CheckpointError::None(path) => write!(f, "no checkpoint in {}", path.display()),
            CheckpointError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            CheckpointError::Damaged(path, what) => write!(f, "{} is damaged: {what}", path.display()),
            CheckpointError::Format(path, Some(found)) => write!(
                f,
                "{} has format {found}, this version of Tandem reads format {FORMAT}: train from scratch, or use the version that wrote it",
                path.display()
            ),
            CheckpointError::Format(path, None) => write!(
                f,
                "{} has no known format, this version of Tandem reads format {FORMAT}: train from scratch, or use the version that wrote it",
                path.display()
            ),
            CheckpointError::State(path, error) => {
                write!(f, "{}: {STATE} is of another version: {error}", path.display())
            }
            CheckpointError::Mismatch(path, lines) => {
                write!(f, "{} belongs to another run", path.display())?;
                lines.iter().try_for_each(|line| write!(f, "\n  {line}"))
            }
            CheckpointError::OtherPart { path, found: TrainedPart::Vocoder, .. } => {
                write!(f, "{} is a vocoder, not a voice: it has no text and no speakers", path.display())
            }
            CheckpointError::OtherPart { path, .. } => {
                write!(f, "{} is a voice (an acoustic model), not a vocoder", path.display())
            }
            CheckpointError::OtherMel(path, lines) => {
                write!(f, "{} is a vocoder for other mels than those of the voice", path.display())?;
                lines.iter().try_for_each(|line| write!(f, "\n  {line}"))
            }
        }
    }
}

impl std::error::Error for CheckpointError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CheckpointError::Io(_, error) => Some(error),
            CheckpointError::State(_, error) => Some(error),
            _ => None,
        }
    }
}

/// The checkpoints of a run.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    dir: PathBuf,
}

impl Checkpoints {
    /// Those in a folder, which need not exist.
    pub fn new(dir: PathBuf) -> Checkpoints {
        Checkpoints { dir }
    }

    /// The folder of a step.
    pub fn path(&self, step: u64) -> PathBuf {
        self.dir.join(format!("step-{step:08}"))
    }

    /// The steps there are, the first first. Folders that were not finished do not count.
    pub fn steps(&self) -> Vec<u64> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mut steps: Vec<u64> =
            entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("step-")?.parse().ok()).collect();
        steps.sort_unstable();
        steps
    }

    /// The step with the best validation loss, as noted by [`Checkpoints::note_best`].
    pub fn best(&self) -> Option<u64> {
        let text = fs::read_to_string(self.dir.join(BEST)).ok()?;
        text.trim().strip_prefix("step-")?.parse().ok()
    }

    /// Makes what is noted agree with the state of a run: a kill may have come in between.
    pub fn correct_best(&self, best: Option<u64>) -> Result<(), CheckpointError> {
        let (steps, noted) = (self.steps(), self.best());
        match best.filter(|best| steps.contains(best)) {
            Some(best) if noted == Some(best) => Ok(()),
            Some(best) => self.note_best(best),
            // The best of all was never written or was taken away: what is noted is the best of what there is.
            None if best.is_some() && noted.is_some_and(|noted| steps.contains(&noted)) => Ok(()),
            None => {
                let _ = fs::remove_file(self.dir.join(BEST));
                Ok(())
            }
        }
    }

    /// Moves a checkpoint out of the way, to a name that is free.
    pub fn archive(&self, step: u64) -> Result<PathBuf, CheckpointError> {
        let from = self.path(step);
        let name = |n: u64| self.dir.join(format!("set-aside-{n}-step-{step:08}"));
        let to = (1..).map(name).find(|path| !path.exists()).expect("numbers do not end");
        fs::rename(&from, &to).map_err(|error| CheckpointError::Io(from, error))?;
        Ok(to)
    }

    /// Notes which one is the best.
    pub fn note_best(&self, step: u64) -> Result<(), CheckpointError> {
        let path = self.dir.join(BEST);
        write_atomically(&path, format!("step-{step:08}\n").as_bytes())
            .map_err(|error| CheckpointError::Io(path, error))
    }

    /// Writes one. When it returns, it is on the disk; when it fails, everything is as it was.
    pub fn write(&self, checkpoint: &Checkpoint) -> Result<PathBuf, CheckpointError> {
        let target = self.path(checkpoint.state.step);
        let io = |error| CheckpointError::Io(target.clone(), error);
        fs::create_dir_all(&self.dir).map_err(io)?;
        // Dropped on failure, and then it takes itself away.
        let temporary = tempfile::Builder::new().prefix(".writing-").tempdir_in(&self.dir).map_err(io)?;
        let damaged = |error: weights::WeightsError| CheckpointError::Damaged(target.clone(), error.to_string());
        let files = [
            (MODEL, weights::to_bytes(&checkpoint.weights).map_err(damaged)?),
            (EMA, weights::to_bytes(&checkpoint.ema).map_err(damaged)?),
            (OPTIMIZER, weights::to_bytes(&checkpoint.optimizer).map_err(damaged)?),
            (STATE, serde_json::to_vec_pretty(&checkpoint.state).expect("plain data")),
        ];
        let sums: BTreeMap<&str, String> =
            files.iter().map(|(name, bytes)| (*name, format!("{:032x}", xxh3_128(bytes)))).collect();
        let sums = serde_json::to_vec_pretty(&sums).expect("plain data");
        for (name, bytes) in files.iter().map(|(name, bytes)| (*name, &bytes[..])).chain([(CHECKSUMS, &sums[..])]) {
            let mut file = fs::File::create(temporary.path().join(name)).map_err(io)?;
            file.write_all(bytes).and_then(|()| file.sync_all()).map_err(io)?;
        }
        make_readable(temporary.path(), 0o755).map_err(io)?;
        sync_dir(temporary.path()).map_err(io)?;
        // The same step again: the old one is kept until the new one is there. `sweep` brings it back after a kill.
        let replaced = self.dir.join(format!("{REPLACED}{:08}", checkpoint.state.step));
        if target.exists() {
            fs::rename(&target, &replaced).map_err(io)?;
        }
        if let Err(error) = fs::rename(temporary.path(), &target) {
            let _ = fs::rename(&replaced, &target);
            return Err(io(error));
        }
        let _ = temporary.keep();
        let _ = fs::remove_dir_all(&replaced);
        sync_dir(&self.dir).map_err(io)?;
        Ok(target)
    }

    /// Reads and checks one.
    pub fn read(&self, step: u64) -> Result<Checkpoint, CheckpointError> {
        read(&self.path(step))
    }

    /// Deletes all but the newest `keep`, the best, and what is unfinished.
    pub fn prune(&self, keep: usize) {
        let (steps, best) = (self.steps(), self.best());
        let old = steps.len().saturating_sub(keep.max(1));
        for step in steps[..old].iter().filter(|step| Some(**step) != best) {
            // First out of sight, then away: a half-deleted one must not look like a checkpoint.
            let hidden = self.dir.join(format!(".old-{step:08}"));
            if fs::rename(self.path(*step), &hidden).is_ok() {
                let _ = fs::remove_dir_all(hidden);
            }
        }
        self.sweep();
    }

    /// Takes away what a killed run left half-written, and brings back what it was about to replace.
    pub fn sweep(&self) {
        remove_leftovers(&self.dir, Duration::ZERO);
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(step) = name.strip_prefix(REPLACED).and_then(|step| step.parse().ok()) {
                let target = self.path(step);
                let _ =
                    if target.exists() { fs::remove_dir_all(entry.path()) } else { fs::rename(entry.path(), target) };
            }
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(".writing-") || name.starts_with(".old-"))
            {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// The checkpoint that a path means: itself, the last of a run, or the one that `checkpoints/best` of a run notes. The last
/// and not the best: words become clearer long after the validation loss has reached its minimum
/// (`benches/results/quality.md`).
pub fn find(path: &Path) -> Result<PathBuf, CheckpointError> {
    if path.join(STATE).is_file() || path.join(CHECKSUMS).is_file() {
        return Ok(path.to_owned());
    }
    if path.file_name().is_some_and(|name| name == BEST) {
        let checkpoints = Checkpoints::new(path.parent().map(Path::to_owned).unwrap_or_default());
        let best = checkpoints.best().filter(|best| checkpoints.path(*best).is_dir());
        return best.map(|best| checkpoints.path(best)).ok_or_else(|| CheckpointError::None(path.to_owned()));
    }
    for dir in [path.join("checkpoints"), path.to_owned(), path.join("run/checkpoints")] {
        let checkpoints = Checkpoints::new(dir);
        if let Some(&last) = checkpoints.steps().last() {
            return Ok(checkpoints.path(last));
        }
    }
    Err(CheckpointError::None(path.to_owned()))
}

/// Reads the state of the checkpoint in a folder, without its tensors; its checksum is checked.
pub fn read_state(dir: &Path) -> Result<State, CheckpointError> {
    let sums = read_sums(dir)?;
    parse_state(dir, &read_file(dir, STATE, &sums)?)
}

/// Reads and checks the checkpoint in a folder.
pub fn read(dir: &Path) -> Result<Checkpoint, CheckpointError> {
    let sums = read_sums(dir)?;
    let state = parse_state(dir, &read_file(dir, STATE, &sums)?)?;
    let tensors = |name: &str| -> Result<Tensors, CheckpointError> {
        weights::from_bytes(&read_file(dir, name, &sums)?)
            .map_err(|error| CheckpointError::Damaged(dir.to_owned(), format!("{name}: {error}")))
    };
    Ok(Checkpoint { weights: tensors(MODEL)?, ema: tensors(EMA)?, optimizer: tensors(OPTIMIZER)?, state })
}

/// Reads state and averaged weights: what synthesis needs.
pub fn read_averaged(dir: &Path) -> Result<(State, Tensors), CheckpointError> {
    let sums = read_sums(dir)?;
    let state = parse_state(dir, &read_file(dir, STATE, &sums)?)?;
    let weights = weights::from_bytes(&read_file(dir, EMA, &sums)?)
        .map_err(|error| CheckpointError::Damaged(dir.to_owned(), format!("{EMA}: {error}")))?;
    Ok((state, weights))
}

/// The checksum of its averaged weights: which weights they are.
pub(crate) fn averaged_sum(dir: &Path) -> Result<String, CheckpointError> {
    let missing = || CheckpointError::Damaged(dir.to_owned(), format!("{EMA} has no checksum"));
    read_sums(dir)?.remove(EMA).ok_or_else(missing)
}

fn read_sums(dir: &Path) -> Result<BTreeMap<String, String>, CheckpointError> {
    if !dir.is_dir() || dir.join("checkpoints").is_dir() {
        return Err(CheckpointError::None(dir.to_owned()));
    }
    let damaged = |what: String| CheckpointError::Damaged(dir.to_owned(), what);
    let bytes = fs::read(dir.join(CHECKSUMS)).map_err(|error| damaged(format!("{CHECKSUMS}: {error}")))?;
    serde_json::from_slice(&bytes).map_err(|error| damaged(format!("{CHECKSUMS}: {error}")))
}

fn read_file(dir: &Path, name: &str, sums: &BTreeMap<String, String>) -> Result<Vec<u8>, CheckpointError> {
    let damaged = |what: String| CheckpointError::Damaged(dir.to_owned(), what);
    let bytes = fs::read(dir.join(name)).map_err(|error| damaged(format!("{name}: {error}")))?;
    match sums.get(name) {
        Some(sum) if *sum == format!("{:032x}", xxh3_128(&bytes)) => Ok(bytes),
        Some(_) => Err(damaged(format!("{name} is not what was written ({} bytes)", bytes.len()))),
        None => Err(damaged(format!("{name} has no checksum"))),
    }
}

fn parse_state(dir: &Path, bytes: &[u8]) -> Result<State, CheckpointError> {
    State::parse(bytes).map_err(|error| match error {
        StateError::Format(found) => CheckpointError::Format(dir.to_owned(), found),
        StateError::Json(error) => CheckpointError::State(dir.to_owned(), error),
        StateError::Impossible(what) => CheckpointError::Damaged(dir.to_owned(), format!("{STATE}: {what}")),
    })
}

/// The voice of a checkpoint, on a device, with its averaged weights.
pub fn open_voice(dir: &Path, device: &Device) -> Result<(Synthesizer, State), VoiceError> {
    let (state, tensors) = read_averaged(dir).map_err(VoiceError::Checkpoint)?;
    state.check_part(dir, TrainedPart::Acoustic).map_err(VoiceError::Checkpoint)?;
    let bundle = state.bundle().expect("of an acoustic model");
    let synthesizer = Synthesizer::from_weights(bundle, &tensors, device).map_err(VoiceError::Synthesis)?;
    Ok((synthesizer, state))
}

/// The vocoder of a run or a checkpoint, on a device, with its averaged weights; for frames of these settings.
///
/// # Errors
///
/// [`CheckpointError::OtherPart`] if it is no vocoder, [`CheckpointError::OtherMel`] if its frames are others.
pub fn open_trained_vocoder(path: &Path, mel: &MelSettings, device: &Device) -> Result<TrainedVocoder, VoiceError> {
    let dir = find(path).map_err(VoiceError::Checkpoint)?;
    let (state, tensors) = read_averaged(&dir).map_err(VoiceError::Checkpoint)?;
    state.check_part(path, TrainedPart::Vocoder).map_err(VoiceError::Checkpoint)?;
    let differences = mel_differences(mel, &state.mel);
    if !differences.is_empty() {
        return Err(VoiceError::Checkpoint(CheckpointError::OtherMel(path.to_owned(), differences)));
    }
    let config = state.model.vocoder().expect("just checked");
    TrainedVocoder::from_weights(config, mel, state.stats.clone(), &tensors, device).map_err(VoiceError::Synthesis)
}

/// What differs between two kinds of frames; one line each.
pub(crate) fn mel_differences(here: &MelSettings, there: &MelSettings) -> Vec<String> {
    let fields = |mel: &MelSettings| match serde_json::to_value(mel) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (mine, theirs) = (fields(here), fields(there));
    let differ = mine.iter().filter(|(name, value)| theirs.get(*name) != Some(value));
    let none = serde_json::Value::Null;
    differ.map(|(name, value)| format!("{name}: {value} here, {} there", theirs.get(name).unwrap_or(&none))).collect()
}

/// What differs between two text front ends, one line each.
pub(crate) fn frontend_differences(here: &Frontend, saved: &Frontend) -> Vec<String> {
    let mut lines = Vec::new();
    if here.units != saved.units {
        lines.push(format!("text units: {} here, {} in the checkpoint", here.units, saved.units));
    }
    // An earlier version did not keep which languages there are.
    let languages = if saved.languages.is_empty() { &saved.languages } else { &here.languages };
    let here = &Frontend { languages: languages.clone(), ..here.clone() };
    if (&here.language, languages) != (&saved.language, &saved.languages) {
        let name = |frontend: &Frontend| {
            let found = || frontend.languages.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let guessed = if frontend.languages.is_empty() { "guessed".to_owned() } else { found() };
            frontend.language.as_ref().map_or(guessed, ToString::to_string)
        };
        lines.push(format!("language: {} here, {} in the checkpoint", name(here), name(saved)));
    }
    if here.lexicon != saved.lexicon {
        lines.push("lexicon: other words here than in the checkpoint".to_owned());
    }
    if lines.is_empty() && here != saved {
        lines.push("vocabulary: other symbols here than in the checkpoint".to_owned());
    }
    lines
}

/// Why the voice of a checkpoint cannot be used.
#[derive(Debug)]
pub enum VoiceError {
    /// The checkpoint cannot be read.
    Checkpoint(CheckpointError),
    /// Its weights cannot be used.
    Synthesis(SynthesisError),
}

impl fmt::Display for VoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VoiceError::Checkpoint(error) => write!(f, "{error}"),
            VoiceError::Synthesis(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for VoiceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            VoiceError::Checkpoint(error) => Some(error),
            VoiceError::Synthesis(error) => Some(error),
        }
    }
}
