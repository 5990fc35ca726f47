//! From spoken sentences to the bytes of an answer: joined, encoded, in events if they are wanted. On the synthesis thread: the
//! network's thread only sends.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tandem_synth::{Joiner, Sentence, Speech};

use crate::encode::Encoder;
use crate::request::SpeechRequest;
use crate::voices::LoadedVoice;

/// The answer to a request, as far as it is made.
pub(crate) struct Writer {
    joiner: Joiner,
    encoder: Encoder,
    voice: Arc<LoadedVoice>,
    events: bool,
    details: bool,
    tokens: usize,
    frames: usize,
    samples: u64,
}

impl Writer {
    pub(crate) fn new(request: &SpeechRequest, voice: Arc<LoadedVoice>) -> Result<Writer, String> {
        let rate = voice.synthesizer.bundle().mel.sample_rate;
        Ok(Writer {
            joiner: Joiner::new(request.pause, rate),
            encoder: Encoder::new(request.format, rate)?,
            voice,
            events: request.events,
            details: request.details,
            tokens: 0,
            frames: 0,
            samples: 0,
        })
    }

    /// The bytes of the next sentence.
    pub(crate) fn write(&mut self, sentence: &Sentence, speech: &Speech) -> Result<Vec<u8>, String> {
        let joined = self.joiner.join(&speech.samples);
        self.tokens += sentence.ids.len();
        self.frames += speech.frames;
        self.samples = joined.end;
        let audio = self.encoder.push(&joined.samples)?;
        if !self.events {
            return Ok(audio);
        }
        let mut delta = json!({"type": "speech.audio.delta", "audio": BASE64_STANDARD.encode(audio)});
        if self.details {
            delta["details"] = details(sentence, speech, joined.start, &self.voice);
        }
        Ok(event(&delta))
    }

    /// How long it is so far.
    pub(crate) fn seconds(&self) -> f64 {
        self.samples as f64 / f64::from(self.voice.synthesizer.bundle().mel.sample_rate)
    }

    /// What comes after the last sentence.
    pub(crate) fn end(&mut self) -> Result<Vec<u8>, String> {
        let rest = self.encoder.finish()?;
        if !self.events {
            return Ok(rest);
        }
        let mut bytes = Vec::new();
        if !rest.is_empty() {
            bytes = event(&json!({"type": "speech.audio.delta", "audio": BASE64_STANDARD.encode(rest)}));
        }
        let (input, output) = (self.tokens, self.frames);
        let usage = json!({"input_tokens": input, "output_tokens": output, "total_tokens": input + output});
        bytes.extend(event(&json!({"type": "speech.audio.done", "usage": usage})));
        Ok(bytes)
    }

    /// Puts the true lengths into an answer that is whole.
    pub(crate) fn complete(&mut self, bytes: &mut [u8]) -> Result<(), String> {
        self.encoder.complete(bytes)
    }
}

fn event(value: &Value) -> Vec<u8> {
    format!("data: {value}\n\n").into_bytes()
}

/// What the page draws: the mel in shades from 0 to 255, band by band, and where tokens are.
fn details(sentence: &Sentence, speech: &Speech, start: u64, voice: &LoadedVoice) -> Value {
    let mut values: Vec<f32> = speech.mel.iter().copied().filter(|value| value.is_finite()).collect();
    let last = values.len().saturating_sub(1);
    let mut at = |share: f64| match values.is_empty() {
        true => 0.0,
        false => *values.select_nth_unstable_by((share * last as f64) as usize, f32::total_cmp).1,
    };
    let (low, high) = (at(0.02), at(0.995));
    let shade = |value: &f32| (255.0 * (value - low) / (high - low).max(1e-3)).clamp(0.0, 255.0) as u8;
    let mel: Vec<u8> = speech.mel.iter().map(shade).collect();
    let symbols = voice.frontend.vocabulary.symbols();
    let token = |id: &i32| symbols.get((*id as usize).wrapping_sub(1)).map_or("", String::as_str);
    json!({
        "sentence": sentence.text,
        "start": start,
        "sample_rate": speech.sample_rate,
        "hop_length": voice.synthesizer.bundle().mel.hop_length,
        "frames": speech.frames,
        "bands": speech.mel.len() / speech.frames.max(1),
        "mel": BASE64_STANDARD.encode(mel),
        "tokens": sentence.ids.iter().map(token).collect::<Vec<_>>(),
        "durations": speech.durations,
    })
}
