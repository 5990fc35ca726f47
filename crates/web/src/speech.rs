//! `POST /v1/audio/speech`: admitted, understood, chosen, encoded, then spoken sentence by sentence. Everything that can be
//! wrong with a request is said before its first byte.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tandem_synth::{Joiner, Sentence, Sentences, SynthesisError, Take};
use tandem_text::Language;

use crate::body;
use crate::encode::{Encoder, encode};
use crate::engine::{Order, Speech, Spoken};
use crate::errors::ApiError;
use crate::http::{Body, Request, Response};
use crate::request::SpeechRequest;
use crate::serve::Shared;
use crate::voices::LoadedVoice;

/// Bytes of a request, at most.
pub(crate) const MOST_BYTES: usize = 1 << 20;

/// The handler.
pub(crate) async fn speak(shared: Arc<Shared>, request: Request) -> Result<Response, ApiError> {
    let began = Instant::now();
    body::expect_type(&request, |kind| kind == "application/json", "application/json")?;
    // Before anything is read: who has no place costs nothing.
    let seat = shared.engine.admit().map_err(|full| {
        let message = "all places are taken; try again later";
        ApiError::new(429, "too_many_requests", message).retry_after(full.retry_after_s)
    })?;
    let bytes = body::read(request.into_body(), MOST_BYTES, shared.limits.body_timeout).await?;
    let request = SpeechRequest::parse(&bytes, shared.limits.most_characters)?;
    let chosen = shared.voices.choose(request.model.as_deref(), request.voice.as_deref())?;
    let language = request
        .language
        .as_deref()
        .map(str::parse::<Language>)
        .transpose()
        .map_err(|error| ApiError::new(400, "invalid_value", format!("`language`: {error}")).about("language"))?;
    let (voice, text) = (chosen.voice.clone(), request.input.clone());
    let sentences = encode_text(&shared, voice, text, language).await?;
    let tokens = sentences.iter().map(|sentence| sentence.ids.len()).sum();
    let take = Take { speed: request.speed, seed: request.seed };
    let rate = chosen.voice.synthesizer.bundle().mel.sample_rate;
    let order = Order { voice: chosen.voice.clone(), reference: chosen.reference, take, sentences };
    let speech = shared.engine.submit(seat, order);
    let mut speaker = Speaker {
        shared,
        speech,
        joiner: Joiner::new(request.pause, rate),
        voice: chosen.voice,
        began,
        tokens,
        frames: 0,
        heard: false,
    };
    let failed = |message: String| ApiError::new(500, "synthesis_failed", message);
    let content_type = if request.events { "text/event-stream" } else { request.format.content_type() };
    let response = hyper::Response::builder()
        .header(hyper::header::CONTENT_TYPE, content_type)
        .header("x-sample-rate", rate)
        // A proxy that collects the stream takes away what it is for.
        .header("x-accel-buffering", "no");
    let body = if request.stream {
        // A failure of the first sentence still has a status of its own.
        let first = speaker.next().await.transpose().map_err(failed)?;
        let encoder = Encoder::new(request.format, rate).map_err(failed)?;
        let details = request.details;
        Body::made(Streamed { speaker, encoder, first, events: request.events, details, over: false })
    } else {
        let mut samples = Vec::new();
        while let Some(spoken) = speaker.next().await {
            samples.extend(spoken.map_err(failed)?.samples);
        }
        let format = request.format;
        let encoded = tokio::task::spawn_blocking(move || encode(format, &samples, rate)).await;
        Body::from(encoded.map_err(|error| failed(error.to_string()))?.map_err(failed)?)
    };
    Ok(response.body(body).expect("a valid response"))
}

/// Sentences as ids, away from the network's thread: phonemes take a process.
async fn encode_text(
    shared: &Shared,
    voice: Arc<LoadedVoice>,
    text: String,
    language: Option<Language>,
) -> Result<Vec<Sentence>, ApiError> {
    let _permit = shared.text_workers.acquire().await;
    let encoded = tokio::task::spawn_blocking(move || encode_all(&voice, &text, language.as_ref())).await;
    encoded.map_err(|error| ApiError::new(500, "text_failed", error.to_string()))?
}

/// All sentences of a text, or everything that is wrong with it.
fn encode_all(voice: &LoadedVoice, text: &str, language: Option<&Language>) -> Result<Vec<Sentence>, ApiError> {
    let mut unknown = std::collections::BTreeSet::new();
    let mut sentences = Vec::new();
    for ((), sentence) in Sentences::new(&voice.frontend, [((), text)], language) {
        match sentence {
            Ok(sentence) => sentences.push(sentence),
            Err(SynthesisError::Unknown(symbols)) => unknown.extend(symbols),
            // A piece without a word between others is silence.
            Err(SynthesisError::NothingToSay | SynthesisError::Empty) => {}
            Err(error) => return Err(ApiError::new(400, "text_not_readable", error.to_string()).about("input")),
        }
    }
    if !unknown.is_empty() {
        let known = unknown.iter().cloned().collect();
        let message = SynthesisError::Unknown(unknown).to_string();
        // Not what would be valid, but what is not: programs show it to their users.
        let error = ApiError::new(400, "unknown_characters", message).about("input");
        return Err(ApiError { known, ..error });
    }
    if sentences.is_empty() {
        return Err(ApiError::new(400, "empty_text", SynthesisError::NothingToSay.to_string()).about("input"));
    }
    Ok(sentences)
}

/// A sentence of the stream.
struct Said {
    samples: Vec<f32>,
    /// The sample of the whole at which the sentence begins.
    start: u64,
    spoken: Spoken,
}

/// Joins what the engine makes.
struct Speaker {
    shared: Arc<Shared>,
    speech: Speech,
    joiner: Joiner,
    voice: Arc<LoadedVoice>,
    began: Instant,
    tokens: usize,
    frames: usize,
    heard: bool,
}

impl Speaker {
    async fn next(&mut self) -> Option<Result<Said, String>> {
        let answer = self.speech.next().await;
        self.joined(answer)
    }

    fn joined(&mut self, answer: Option<Result<Spoken, String>>) -> Option<Result<Said, String>> {
        let spoken = match answer? {
            Ok(spoken) => spoken,
            Err(message) => return Some(Err(message)),
        };
        if !std::mem::replace(&mut self.heard, true) {
            self.shared.counters.first_byte(self.began.elapsed().as_secs_f64());
        }
        self.frames += spoken.utterance.speech.frames;
        let joined = self.joiner.join(&spoken.utterance.speech.samples);
        Some(Ok(Said { samples: joined.samples, start: joined.start, spoken }))
    }
}

/// A response that is made while it is sent.
struct Streamed {
    speaker: Speaker,
    encoder: Encoder,
    first: Option<Said>,
    events: bool,
    details: bool,
    over: bool,
}

impl Streamed {
    fn bytes(&mut self, said: &Said) -> Result<Vec<u8>, String> {
        let audio = self.encoder.push(&said.samples)?;
        if !self.events {
            return Ok(audio);
        }
        let mut delta = json!({"type": "speech.audio.delta", "audio": BASE64_STANDARD.encode(audio)});
        if self.details {
            delta["details"] = details(said, &self.speaker.voice);
        }
        Ok(event(&delta))
    }

    fn end(&mut self) -> Result<Vec<u8>, String> {
        let rest = self.encoder.finish()?;
        if !self.events {
            return Ok(rest);
        }
        let mut bytes = Vec::new();
        if !rest.is_empty() {
            bytes = event(&json!({"type": "speech.audio.delta", "audio": BASE64_STANDARD.encode(rest)}));
        }
        let (input, output) = (self.speaker.tokens, self.speaker.frames);
        let usage = json!({"input_tokens": input, "output_tokens": output, "total_tokens": input + output});
        bytes.extend(event(&json!({"type": "speech.audio.done", "usage": usage})));
        Ok(bytes)
    }
}

fn event(value: &Value) -> Vec<u8> {
    format!("data: {value}\n\n").into_bytes()
}

/// What the page draws: the mel in shades from 0 to 255, band by band, and where tokens are.
fn details(said: &Said, voice: &LoadedVoice) -> Value {
    let speech = &said.spoken.utterance.speech;
    let mut sorted: Vec<f32> = speech.mel.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f32::total_cmp);
    let at = |share: f64| sorted.get((share * sorted.len().saturating_sub(1) as f64) as usize).copied().unwrap_or(0.0);
    let (low, high) = (at(0.02), at(0.995));
    let shade = |value: &f32| (255.0 * (value - low) / (high - low).max(1e-3)).clamp(0.0, 255.0) as u8;
    let mel: Vec<u8> = speech.mel.iter().map(shade).collect();
    let symbols = voice.frontend.vocabulary.symbols();
    let token = |id: &i32| symbols.get((*id as usize).wrapping_sub(1)).map_or("", String::as_str);
    json!({
        "sentence": said.spoken.utterance.text,
        "start": said.start,
        "sample_rate": speech.sample_rate,
        "hop_length": voice.synthesizer.bundle().mel.hop_length,
        "frames": speech.frames,
        "bands": speech.mel.len() / speech.frames.max(1),
        "mel": BASE64_STANDARD.encode(mel),
        "tokens": said.spoken.ids.iter().map(token).collect::<Vec<_>>(),
        "durations": speech.durations,
    })
}

impl hyper::body::Body for Streamed {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        // An error here ends the connection: the client sees that it does not have all of it.
        let failed = |message: String| Poll::Ready(Some(Err(std::io::Error::other(message))));
        loop {
            if this.over {
                return Poll::Ready(None);
            }
            let said = match this.first.take() {
                Some(said) => Some(said),
                None => match this.speaker.speech.poll_next(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(answer) => match this.speaker.joined(answer) {
                        Some(Ok(said)) => Some(said),
                        Some(Err(message)) => return failed(message),
                        None => None,
                    },
                },
            };
            let bytes = match &said {
                Some(said) => this.bytes(said),
                None => {
                    this.over = true;
                    this.end()
                }
            };
            match bytes {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => return Poll::Ready(Some(Ok(Frame::data(Bytes::from(bytes))))),
                Err(message) => return failed(message),
            }
        }
    }
}
