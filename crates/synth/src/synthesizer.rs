//! Tokens to waveform: the acoustic model, the sampler and a vocoder as one value, on any device.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rayon::prelude::*;
use tandem_audio::{
    AudioError, Decoder, LogMel, MelSettings, MelStats, Processing, Resampler, SettingsError, Vocoder, WaveformStream,
    open_audio, open_vocoder, write_wav,
};
use tandem_data::files::write_atomically;
use tandem_model::weights::{self, Tensors, WeightsError};
use tandem_model::{
    Device, HostInputs, HostReference, InputShape, Inputs, ModelConfig, REFERENCE_FRAMES, TextInputs, Voice,
};
use tandem_text::{Frontend, FrontendError, Language, is_word};

use crate::sampler::{SampledMel, SynthesisSettings, Take, sample_mel, sample_mel_as_recorded, sample_takes};
use crate::speaking::LONGEST_SENTENCE;

/// A reference must have at least this many seconds.
const MIN_REFERENCE_SECONDS: f64 = 1.0;

/// Everything that synthesis needs besides weights.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// Shapes of the model.
    pub config: ModelConfig,
    /// What a frame is.
    pub mel: MelSettings,
    /// What is done to samples before.
    pub processing: Processing,
    /// How frames are normalized.
    pub stats: MelStats,
}

/// A trained voice on a device.
#[derive(Debug)]
pub struct Synthesizer {
    voice: Voice,
    bundle: Bundle,
    device: Device,
    /// Opened once, when something is to be heard.
    vocoder: OnceLock<Box<dyn Vocoder>>,
}

/// A row of a batch whose texts have speakers, speeds and seeds of their own.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Its tokens.
    pub ids: &'a [i32],
    /// Whose voice: one row of reference audio, if the voice has many speakers.
    pub reference: Option<&'a HostReference>,
    /// Its speed and seed.
    pub take: Take,
}

/// What was synthesized.
#[derive(Clone, Debug)]
pub struct Speech {
    /// The waveform.
    pub samples: Vec<f32>,
    /// Samples per second.
    pub sample_rate: u32,
    /// Log-mel, `[bands][frames]`.
    pub mel: Vec<f32>,
    /// Frames.
    pub frames: usize,
    /// Frames of each token.
    pub durations: Vec<u32>,
    /// Pitch of each frame in Hz, 0 where there is none.
    pub pitch: Vec<f32>,
}

impl Speech {
    /// Writes a WAV file, whole or not at all.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut bytes = Vec::new();
        write_wav(&self.samples, self.sample_rate, &mut bytes)?;
        write_atomically(path, &bytes)
    }

    /// Its length.
    pub fn seconds(&self) -> f64 {
        self.samples.len() as f64 / f64::from(self.sample_rate)
    }
}

/// Why nothing can be synthesized.
#[derive(Debug)]
pub enum SynthesisError {
    /// The weights do not fit.
    Weights(WeightsError),
    /// The settings of the features.
    Settings(SettingsError),
    /// No text.
    Empty,
    /// Nothing that could be spoken is left of the text.
    NothingToSay,
    /// The text cannot be turned into symbols.
    Frontend(FrontendError),
    /// Characters or phonemes that no text of the training data has.
    Unknown(BTreeSet<String>),
    /// A pronunciation in `[[…]]` of so many tokens: it cannot be cut, and is too long for one sentence.
    Uncuttable(usize),
    /// The reference cannot be read.
    Reference(PathBuf, AudioError),
    /// The reference is too short: so many seconds.
    ShortReference(PathBuf, f64),
    /// The voice has many speakers, and none was given.
    NoReference,
    /// No speaker of this name; these there are.
    NoSpeaker(String, Vec<String>),
    /// The voice has one speaker and cannot imitate others.
    OneSpeaker,
    /// A temperature above 0 needs the flow-matching decoder, which the voice does not have.
    NoFlow,
}

impl fmt::Display for SynthesisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SynthesisError::Weights(error) => write!(f, "{error}"),
            SynthesisError::Settings(error) => write!(f, "{error}"),
            SynthesisError::Empty => write!(f, "the text is empty"),
            SynthesisError::NothingToSay => write!(f, "the text has no words"),
            SynthesisError::Frontend(error) => write!(f, "{error}"),
            SynthesisError::Unknown(symbols) => {
                write!(f, "the voice was never trained on these symbols:")?;
                symbols.iter().try_for_each(|symbol| {
                    let codes: Vec<String> = symbol.chars().map(|c| format!("U+{:04X}", c as u32)).collect();
                    write!(f, " `{symbol}` ({})", codes.join(" "))
                })
            }
            SynthesisError::Uncuttable(tokens) => {
                write!(
                    f,
                    "a pronunciation in [[…]] has {tokens} tokens, at most {LONGEST_SENTENCE} can be said at once"
                )
            }
            SynthesisError::Reference(path, error) => write!(f, "{}: {error}", path.display()),
            SynthesisError::ShortReference(path, seconds) => {
                write!(
                    f,
                    "{}: {seconds:.2} s of reference are too few; at least {MIN_REFERENCE_SECONDS:.0} s, better 3 s or more",
                    path.display()
                )
            }
            SynthesisError::NoReference => write!(f, "this voice has many speakers, and none was given"),
            SynthesisError::NoSpeaker(name, known) if known.is_empty() => {
                write!(f, "no speaker `{name}`: neither a file nor a name that the run knows")
            }
            SynthesisError::NoSpeaker(name, known) => {
                write!(f, "no speaker `{name}`: neither a file nor one of {}", known.join(", "))
            }
            SynthesisError::OneSpeaker => write!(f, "this voice has one speaker; it cannot imitate another"),
            SynthesisError::NoFlow => write!(f, "this voice has no flow-matching decoder, which a temperature needs"),
        }
    }
}

impl std::error::Error for SynthesisError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SynthesisError::Weights(error) => Some(error),
            SynthesisError::Settings(error) => Some(error),
            SynthesisError::Frontend(error) => Some(error),
            SynthesisError::Reference(_, error) => Some(error),
            _ => None,
        }
    }
}

impl Synthesizer {
    /// A voice that is on `device`.
    pub fn new(voice: Voice, bundle: Bundle, device: &Device) -> Synthesizer {
        Synthesizer { voice, bundle, device: device.clone(), vocoder: OnceLock::new() }
    }

    /// The same with another vocoder than Griffin-Lim; its frames must be those of the voice.
    pub fn with_vocoder(mut self, vocoder: Box<dyn Vocoder>) -> Synthesizer {
        debug_assert_eq!(vocoder.mel(), &self.bundle.mel);
        self.vocoder = OnceLock::from(vocoder);
        self
    }

    /// Puts weights on a device.
    pub fn from_weights(bundle: Bundle, tensors: &Tensors, device: &Device) -> Result<Synthesizer, SynthesisError> {
        let values = tensors.values().map(|tensor| tensor.values.len()).sum();
        if !bundle.config.can_have(values) {
            return Err(SynthesisError::Weights(WeightsError::Different(Vec::new())));
        }
        let voice = weights::import(Voice::new(&bundle.config, 0, device), tensors).map_err(SynthesisError::Weights)?;
        Ok(Synthesizer::new(voice, bundle, device))
    }

    /// The model.
    pub fn model(&self) -> &Voice {
        &self.voice
    }

    /// What it knows besides weights.
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// Where it is.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What its inputs look like.
    pub fn input_shape(&self) -> InputShape {
        InputShape::new(&self.bundle.config)
    }

    /// The ids of a text, or which of its symbols the voice does not know.
    pub fn encode(frontend: &Frontend, text: &str, language: Option<&Language>) -> Result<Vec<i32>, SynthesisError> {
        if text.trim().is_empty() {
            return Err(SynthesisError::Empty);
        }
        let encoded = frontend.encode(text, language).map_err(SynthesisError::Frontend)?;
        if !encoded.unknown.is_empty() {
            return Err(SynthesisError::Unknown(encoded.unknown));
        }
        if !frontend.vocabulary.decode(&encoded.ids).any(is_word) {
            return Err(SynthesisError::NothingToSay);
        }
        Ok(encoded.ids.into_iter().map(|id| id as i32).collect())
    }

    /// Reads reference audio, processed as the clips of the corpus were. Of a long one, a crop from the middle.
    pub fn reference(&self, path: &Path) -> Result<HostReference, SynthesisError> {
        let file = open_audio(path).map_err(|error| SynthesisError::Reference(path.to_owned(), error))?;
        self.reference_from(path, file, Decoder::new())
    }

    /// The same from audio that is read from its beginning, within the limits of `decoder`; errors call it `path`.
    pub fn reference_from(
        &self,
        path: &Path,
        mut audio: impl Read + Seek,
        mut decoder: Decoder,
    ) -> Result<HostReference, SynthesisError> {
        let failed = |error| SynthesisError::Reference(path.to_owned(), error);
        let mel_settings = &self.bundle.mel;
        let mut samples = Vec::new();
        let shape = decoder.decode(&mut audio, &mut samples).map_err(failed)?;
        self.bundle.processing.apply(&mut samples, 0, shape.rate);
        let seconds = samples.len() as f64 / f64::from(shape.rate);
        if seconds < MIN_REFERENCE_SECONDS {
            return Err(SynthesisError::ShortReference(path.to_owned(), seconds));
        }
        if shape.rate != mel_settings.sample_rate {
            Resampler::new(shape.rate, mel_settings.sample_rate).map_err(failed)?.resample(&mut samples, 0);
        }
        let mut log_mel = LogMel::new(mel_settings).map_err(SynthesisError::Settings)?;
        let mel = log_mel.compute(&samples);
        let frames = mel_settings.frames(samples.len());
        let kept = frames.min(REFERENCE_FRAMES);
        let first = (frames - kept) / 2;
        let crop: Vec<f32> = mel.chunks(frames).flat_map(|band| band[first..first + kept].iter().copied()).collect();
        let mut out = vec![0.0; kept * mel_settings.n_mels];
        self.bundle.stats.normalize(&crop, kept, kept, &mut out);
        Ok(HostReference { frames: kept, mel: out, lengths: vec![kept] })
    }

    /// A speaker of the corpus, from the run's file of speakers; without a name, the first. Returns the name too.
    pub fn named(&self, speakers: &Path, name: Option<&str>) -> Result<(String, HostReference), SynthesisError> {
        let missing = |known: Vec<String>| SynthesisError::NoSpeaker(name.unwrap_or_default().to_owned(), known);
        let bytes = std::fs::read(speakers).map_err(|_| missing(Vec::new()))?;
        let tensors = weights::from_bytes(&bytes).map_err(SynthesisError::Weights)?;
        let found = match name {
            Some(name) => tensors.get_key_value(name),
            None => tensors.iter().next(),
        };
        let (name, tensor) = found.ok_or_else(|| missing(tensors.keys().cloned().collect()))?;
        let frames = tensor.shape[0];
        Ok((name.clone(), HostReference { frames, mel: tensor.values.clone(), lengths: vec![frames] }))
    }

    /// All speakers of the corpus, from the run's file of speakers, by name.
    pub fn all_named(&self, speakers: &Path) -> Result<Vec<(String, HostReference)>, SynthesisError> {
        let bytes = std::fs::read(speakers).map_err(|_| SynthesisError::NoSpeaker(String::new(), Vec::new()))?;
        let tensors = weights::from_bytes(&bytes).map_err(SynthesisError::Weights)?;
        let reference = |(name, tensor): (String, weights::HostTensor)| {
            let frames = tensor.shape[0];
            (name, HostReference { frames, mel: tensor.values, lengths: vec![frames] })
        };
        Ok(tensors.into_iter().map(reference).collect())
    }

    /// Whether it speaks with the voice of a reference.
    pub fn has_speakers(&self) -> bool {
        self.bundle.config.reference
    }

    /// Synthesizes tokens in the voice of a reference.
    pub fn synthesize(
        &self,
        ids: &[i32],
        reference: Option<&HostReference>,
        settings: SynthesisSettings,
    ) -> Result<Speech, SynthesisError> {
        let mut all = self.synthesize_batch(&[ids.to_vec()], reference, settings)?;
        Ok(all.pop().expect("as many as texts"))
    }

    /// A voice of many speakers needs a reference, a voice of one takes none.
    pub(crate) fn check_reference(&self, reference: Option<&HostReference>) -> Result<(), SynthesisError> {
        match (self.bundle.config.reference, reference) {
            (true, None) => Err(SynthesisError::NoReference),
            (false, Some(_)) => Err(SynthesisError::OneSpeaker),
            _ => Ok(()),
        }
    }

    /// Whether the voice can be synthesized so.
    ///
    /// # Errors
    ///
    /// [`SynthesisError::NoFlow`].
    pub fn check_settings(&self, settings: SynthesisSettings) -> Result<(), SynthesisError> {
        if settings.temperature > 0.0 && !self.bundle.config.has_flow() { Err(SynthesisError::NoFlow) } else { Ok(()) }
    }

    /// Synthesizes several texts at once, all in the voice of one reference.
    pub fn synthesize_batch(
        &self,
        texts: &[Vec<i32>],
        reference: Option<&HostReference>,
        settings: SynthesisSettings,
    ) -> Result<Vec<Speech>, SynthesisError> {
        self.check_reference(reference)?;
        self.check_settings(settings)?;
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let (rows, n_mels, shape) = (texts.len(), self.bundle.mel.n_mels, self.input_shape());
        let text = self.upload_texts(&texts.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let reference = reference.map(|reference| {
            let all = HostReference {
                frames: reference.frames,
                mel: reference.mel.repeat(rows),
                lengths: reference.lengths.repeat(rows),
            };
            all.upload(rows, n_mels, &shape, &self.device)
        });
        self.vocode_batch(sample_mel(&self.voice, &text, reference.as_ref(), None, settings))
    }

    /// Synthesizes several texts at once, each in the voice of its own reference, at its own speed, with its own seed: those
    /// of `settings` do not count. What a row sounds like does not depend on the others.
    pub fn synthesize_rows(
        &self,
        rows: &[Row<'_>],
        settings: SynthesisSettings,
    ) -> Result<Vec<Speech>, SynthesisError> {
        rows.iter().try_for_each(|row| self.check_reference(row.reference))?;
        self.check_settings(settings)?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let (n_mels, shape) = (self.bundle.mel.n_mels, self.input_shape());
        let text = self.upload_texts(&rows.iter().map(|row| row.ids).collect::<Vec<_>>());
        let references: Vec<&HostReference> = rows.iter().filter_map(|row| row.reference).collect();
        let reference = (!references.is_empty()).then(|| {
            let frames = references.iter().map(|reference| reference.frames).max().unwrap_or(0);
            let mut all = HostReference { frames, mel: vec![0.0; rows.len() * frames * n_mels], lengths: Vec::new() };
            for (mel, reference) in all.mel.chunks_mut(frames * n_mels).zip(&references) {
                mel[..reference.mel.len()].copy_from_slice(&reference.mel);
                all.lengths.extend(&reference.lengths);
            }
            all.upload(rows.len(), n_mels, &shape, &self.device)
        });
        let takes: Vec<Take> = rows.iter().map(|row| row.take).collect();
        self.vocode_batch(sample_takes(&self.voice, &text, reference.as_ref(), &takes, settings))
    }

    fn upload_texts(&self, texts: &[&[i32]]) -> TextInputs {
        let (rows, lengths) = (texts.len(), texts.iter().map(|text| text.len()).collect::<Vec<usize>>());
        let tokens = lengths.iter().copied().max().unwrap_or(0);
        let mut ids = vec![0; rows * tokens];
        for (row, text) in ids.chunks_mut(tokens.max(1)).zip(texts) {
            row[..text.len()].copy_from_slice(text);
        }
        TextInputs::new(ids, lengths, rows, tokens, &self.input_shape(), &self.device)
    }

    /// Synthesizes the texts of clips; with `durations`, each token lasts as long as given and the pitch is that of the
    /// recordings, which tells errors of prosody from errors of sound.
    pub fn synthesize_clips(
        &self,
        inputs: &Inputs,
        durations: Option<Vec<Vec<u32>>>,
        settings: SynthesisSettings,
    ) -> Result<Vec<Speech>, SynthesisError> {
        self.vocode_batch(match durations {
            Some(durations) => sample_mel_as_recorded(&self.voice, inputs, durations, settings),
            None => sample_mel(&self.voice, &inputs.text, inputs.reference.as_ref(), None, settings),
        })
    }

    /// The mels of clips as the voice says them with the prosody of their recordings: durations as its aligner finds them, the pitch
    /// of the clips. They are aligned with the recordings, frame by frame.
    pub fn mels_as_recorded(&self, inputs: &Inputs) -> SampledMel {
        let durations = self.voice.alignment(inputs);
        sample_mel_as_recorded(&self.voice, inputs, durations, SynthesisSettings::default())
    }

    /// The waveforms of mels, in parallel.
    pub fn vocode_batch(&self, sampled: SampledMel) -> Result<Vec<Speech>, SynthesisError> {
        let size = sampled.frames * self.bundle.mel.n_mels;
        let rows = sampled.mel.par_chunks(size).zip(sampled.pitch.par_chunks(sampled.frames));
        (sampled.durations.into_par_iter().zip(rows))
            .map(|(durations, (mel, pitch))| {
                let frames = durations.iter().sum::<u32>() as usize;
                self.vocode(self.bundle.stats.restore(mel, frames), frames, durations, pitch[..frames].to_vec())
            })
            .collect()
    }

    /// Synthesizes the text of a row of a batch.
    pub fn synthesize_row(&self, inputs: &HostInputs, row: usize) -> Result<Speech, SynthesisError> {
        let one = inputs.rows(row..row + 1);
        self.synthesize(&one.ids[..one.id_lengths[0]], one.reference.as_ref(), SynthesisSettings::default())
    }

    /// The waveform of a predicted log-mel, `[bands][frames]`, whose frames have this pitch.
    fn vocode(
        &self,
        mel: Vec<f32>,
        frames: usize,
        durations: Vec<u32>,
        pitch: Vec<f32>,
    ) -> Result<Speech, SynthesisError> {
        let samples = self.vocoder()?.synthesize(&mel, frames, Some(&pitch));
        Ok(self.speech(samples, mel, frames, durations, pitch))
    }

    /// The same of the log-mel of a recording (copy-synthesis).
    pub fn resynthesize(
        &self,
        mel: Vec<f32>,
        frames: usize,
        durations: Vec<u32>,
        pitch: Vec<f32>,
    ) -> Result<Speech, SynthesisError> {
        let samples = self.vocoder()?.resynthesize(&mel, frames, Some(&pitch));
        Ok(self.speech(samples, mel, frames, durations, pitch))
    }

    /// Samples with what they were made of, and no louder than can be written.
    fn speech(
        &self,
        mut samples: Vec<f32>,
        mel: Vec<f32>,
        frames: usize,
        durations: Vec<u32>,
        pitch: Vec<f32>,
    ) -> Speech {
        let peak = samples.iter().fold(0.0f32, |peak, x| peak.max(x.abs()));
        if peak > 0.99 {
            samples.iter_mut().for_each(|x| *x *= 0.99 / peak);
        }
        Speech { samples, sample_rate: self.bundle.mel.sample_rate, mel, frames, durations, pitch }
    }

    /// A waveform that is made while its log-mel frames arrive, at least `chunk` frames at a time: for those who play it before all of
    /// it is there. Nothing is made quieter that is too loud, as [`Synthesizer::synthesize`] does with what it knows as a whole.
    ///
    /// # Errors
    ///
    /// If the settings of the features contradict themselves.
    pub fn stream(&self, chunk: usize) -> Result<Box<dyn WaveformStream + '_>, SynthesisError> {
        Ok(self.vocoder()?.stream(chunk))
    }

    fn vocoder(&self) -> Result<&dyn Vocoder, SynthesisError> {
        if let Some(vocoder) = self.vocoder.get() {
            return Ok(&**vocoder);
        }
        let vocoder = open_vocoder(&self.bundle.mel).map_err(SynthesisError::Settings)?;
        Ok(&**self.vocoder.get_or_init(|| vocoder))
    }
}
