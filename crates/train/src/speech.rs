//! A trained voice that speaks.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use tandem_audio::{AudioError, Decoder, GriffinLim, LogMel, MelSettings, Resampler, SettingsError, write_wav};
use tandem_model::weights::{self, WeightsError};
use tandem_model::{
    Device, HostInputs, HostReference, ModelConfig, REFERENCE_FRAMES, SpeakSettings, TextInputs, Voice,
};
use tandem_text::{Language, Normaliser, Tokenizer};

use crate::checkpoint::{self, CheckpointError, State};
use crate::features::MelStats;

/// Rounds of Griffin-Lim.
const ITERATIONS: usize = 60;
/// A reference must have at least this many seconds.
const LEAST_REFERENCE: f64 = 1.0;

/// A voice on a device.
pub struct Speech {
    model: Voice,
    config: ModelConfig,
    mel: MelSettings,
    stats: MelStats,
    device: Device,
}

/// What was said.
#[derive(Clone, Debug)]
pub struct Said {
    /// Samples of sound.
    pub samples: Vec<f32>,
    /// Per second.
    pub rate: u32,
    /// Log-mel, `[bands][frames]`.
    pub mel: Vec<f32>,
    /// Frames.
    pub frames: usize,
    /// Frames of each token.
    pub durations: Vec<u32>,
}

impl Said {
    /// Writes a WAV file, whole or not at all.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut bytes = Vec::new();
        write_wav(&self.samples, self.rate, &mut bytes)?;
        checkpoint::write_atomically(path, &bytes)
    }
}

/// Why nothing can be said.
#[derive(Debug)]
pub enum SpeechError {
    /// The checkpoint.
    Checkpoint(CheckpointError),
    /// The weights do not fit.
    Weights(WeightsError),
    /// The settings of the features.
    Settings(SettingsError),
    /// No text.
    Empty,
    /// Nothing that could be said is left of the text.
    NothingToSay,
    /// Characters that the voice never learned.
    Unknown(BTreeSet<char>),
    /// The reference cannot be read.
    Reference(PathBuf, AudioError),
    /// The reference is too short: so many seconds.
    ShortReference(PathBuf, f64),
    /// The voice has many speakers, and none was given.
    NoReference,
    /// No speaker of this name; these there are.
    NoSpeaker(String, Vec<String>),
    /// The voice has one speaker and does not listen to others.
    OneVoice,
}

impl fmt::Display for SpeechError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpeechError::Checkpoint(error) => write!(f, "{error}"),
            SpeechError::Weights(error) => write!(f, "{error}"),
            SpeechError::Settings(error) => write!(f, "{error}"),
            SpeechError::Empty => write!(f, "the text is empty"),
            SpeechError::NothingToSay => write!(f, "the text has no words"),
            SpeechError::Unknown(characters) => {
                write!(f, "the voice does not know these characters:")?;
                characters.iter().try_for_each(|c| write!(f, " `{c}` (U+{:04X})", *c as u32))
            }
            SpeechError::Reference(path, error) => write!(f, "{}: {error}", path.display()),
            SpeechError::ShortReference(path, seconds) => {
                write!(
                    f,
                    "{}: {seconds:.2} s of reference are too few; at least {LEAST_REFERENCE:.0} s, better 3 s or more",
                    path.display()
                )
            }
            SpeechError::NoReference => {
                write!(f, "this voice has many speakers: say which one with --speaker FILE.wav")
            }
            SpeechError::NoSpeaker(name, known) if known.is_empty() => {
                write!(f, "no speaker `{name}`: neither a file nor a name that the run knows")
            }
            SpeechError::NoSpeaker(name, known) => {
                write!(f, "no speaker `{name}`: neither a file nor one of {}", known.join(", "))
            }
            SpeechError::OneVoice => write!(f, "this voice has one speaker; it cannot imitate another (--speaker)"),
        }
    }
}

impl std::error::Error for SpeechError {}

impl Speech {
    /// A voice.
    pub fn new(model: Voice, config: &ModelConfig, mel: &MelSettings, stats: &MelStats, device: &Device) -> Speech {
        Speech { model, config: config.clone(), mel: mel.clone(), stats: stats.clone(), device: device.clone() }
    }

    /// The voice of a checkpoint folder.
    pub fn open(folder: &Path, device: &Device) -> Result<(Speech, State), SpeechError> {
        let (state, tensors) = checkpoint::read_weights(folder).map_err(SpeechError::Checkpoint)?;
        let model = weights::import(Voice::new(&state.model, 0, device), &tensors).map_err(SpeechError::Weights)?;
        Ok((Speech::new(model, &state.model, &state.mel, &state.stats, device), state))
    }

    /// The model.
    pub fn model(&self) -> &Voice {
        &self.model
    }

    /// The ids of a text, or which of its characters the voice does not know.
    pub fn encode(tokenizer: &Tokenizer, text: &str, language: Option<Language>) -> Result<Vec<i32>, SpeechError> {
        if text.trim().is_empty() {
            return Err(SpeechError::Empty);
        }
        let language = language.or_else(|| Language::guess(text)).unwrap_or(Language::English);
        let encoded = tokenizer.encode(&Normaliser::new(language).normalise(text));
        if !encoded.unknown.is_empty() {
            return Err(SpeechError::Unknown(encoded.unknown));
        }
        if !tokenizer.decode(&encoded.ids).chars().any(char::is_alphanumeric) {
            return Err(SpeechError::NothingToSay);
        }
        Ok(encoded.ids.into_iter().map(|id| id as i32).collect())
    }

    /// Reads reference audio. Of a long one, a stretch in the middle.
    pub fn reference(&self, path: &Path) -> Result<HostReference, SpeechError> {
        let failed = |error| SpeechError::Reference(path.to_owned(), error);
        let mut samples = Vec::new();
        let shape = Decoder::new().decode(path, &mut samples).map_err(failed)?;
        let seconds = samples.len() as f64 / f64::from(shape.rate);
        if seconds < LEAST_REFERENCE {
            return Err(SpeechError::ShortReference(path.to_owned(), seconds));
        }
        if shape.rate != self.mel.sample_rate {
            Resampler::new(shape.rate, self.mel.sample_rate).map_err(failed)?.resample(&mut samples, 0);
        }
        let mut log_mel = LogMel::new(&self.mel).map_err(SpeechError::Settings)?;
        let mel = log_mel.compute(&samples);
        let frames = self.mel.frames(samples.len());
        let kept = frames.min(REFERENCE_FRAMES);
        let first = (frames - kept) / 2;
        let crop: Vec<f32> = mel.chunks(frames).flat_map(|band| band[first..first + kept].iter().copied()).collect();
        let mut out = vec![0.0; kept * self.mel.n_mels];
        self.stats.normalise(&crop, kept, kept, &mut out);
        Ok(HostReference { frames: kept, mel: out, lengths: vec![kept] })
    }

    /// A speaker of the corpus, from the run's file of voices; without a name, the first. Returns the name too.
    pub fn named(&self, voices: &Path, name: Option<&str>) -> Result<(String, HostReference), SpeechError> {
        let missing = |known: Vec<String>| SpeechError::NoSpeaker(name.unwrap_or_default().to_owned(), known);
        let bytes = std::fs::read(voices).map_err(|_| missing(Vec::new()))?;
        let tensors = weights::from_bytes(&bytes).map_err(SpeechError::Weights)?;
        let found = match name {
            Some(name) => tensors.get_key_value(name),
            None => tensors.iter().next(),
        };
        let (name, tensor) = found.ok_or_else(|| missing(tensors.keys().cloned().collect()))?;
        let frames = tensor.shape[0];
        Ok((name.clone(), HostReference { frames, mel: tensor.values.clone(), lengths: vec![frames] }))
    }

    /// Whether it speaks with the voice of a reference.
    pub fn has_speakers(&self) -> bool {
        self.config.reference
    }

    /// Says ids in the voice of a reference.
    pub fn say(
        &self,
        ids: &[i32],
        reference: Option<&HostReference>,
        settings: SpeakSettings,
    ) -> Result<Said, SpeechError> {
        match (self.config.reference, reference) {
            (true, None) => return Err(SpeechError::NoReference),
            (false, Some(_)) => return Err(SpeechError::OneVoice),
            _ => {}
        }
        let text = TextInputs::new(ids.to_vec(), vec![ids.len()], 1, ids.len(), &self.device);
        let reference = reference.map(|reference| reference.clone().upload(1, self.mel.n_mels, &self.device));
        let spoken = self.model.speak(&text, reference.as_ref(), None, settings);
        let durations = spoken.durations.into_iter().next().unwrap_or_default();
        let frames = durations.iter().sum::<u32>() as usize;
        let mel = self.stats.restore(&spoken.mel, frames);
        self.vocode(mel, frames, durations)
    }

    /// Says the text of a row of a batch.
    pub fn say_row(&self, inputs: &HostInputs, row: usize) -> Result<Said, SpeechError> {
        let one = inputs.rows(row..row + 1);
        self.say(&one.ids[..one.id_lengths[0]], one.reference.as_ref(), SpeakSettings::default())
    }

    /// Makes sound of a spectrogram.
    pub fn vocode(&self, mel: Vec<f32>, frames: usize, durations: Vec<u32>) -> Result<Said, SpeechError> {
        let vocoder = GriffinLim::new(&self.mel).map_err(SpeechError::Settings)?;
        let mut samples = vocoder.invert(&mel, frames, ITERATIONS);
        let peak = samples.iter().fold(0.0f32, |peak, x| peak.max(x.abs()));
        if peak > 0.99 {
            samples.iter_mut().for_each(|x| *x *= 0.99 / peak);
        }
        Ok(Said { samples, rate: self.mel.sample_rate, mel, frames, durations })
    }
}
