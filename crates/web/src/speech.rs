//! `POST /v1/audio/speech`: admitted, understood, chosen, encoded, then spoken sentence by sentence. Everything that can be
//! wrong with a request is said before its first byte.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use hyper::body::{Bytes, Frame};
use tandem_synth::{Sentence, Sentences, SynthesisError, Take};
use tandem_text::Language;

use crate::body;
use crate::engine::{Chunk, Order, Speech};
use crate::errors::ApiError;
use crate::http::{Body, Request, Response};
use crate::request::SpeechRequest;
use crate::serve::Shared;
use crate::workers::Client;
use crate::writer::Writer;

/// Bytes of a request, at most.
pub(crate) const MOST_BYTES: usize = 1 << 20;

/// The handler.
pub(crate) async fn speak(shared: Arc<Shared>, request: Request) -> Result<Response, ApiError> {
    let began = Instant::now();
    body::expect_type(&request, |kind| kind == "application/json", "application/json")?;
    // Before anything is read: who has no place costs nothing.
    let place = shared.engine.admit().map_err(|full| {
        let message = "all places are taken; try again later";
        ApiError::new(429, "too_many_requests", message).retry_after(full.retry_after_s)
    })?;
    let bytes = body::read(request.body(), MOST_BYTES, shared.limits.body_timeout).await?;
    let request = SpeechRequest::parse(&bytes, shared.limits.most_characters)?;
    let chosen = shared.voices.choose(request.model.as_deref(), request.voice.as_deref())?;
    let language = request
        .language
        .as_deref()
        .map(str::parse::<Language>)
        .transpose()
        .map_err(|error| ApiError::new(400, "invalid_value", format!("`language`: {error}")).about("language"))?;
    let (voice, text) = (chosen.voice.clone(), request.input.clone());
    let encode = move |client: &Client| {
        let all = Sentences::new(&voice.frontend, [((), text.as_str())], language.as_ref());
        encoded(all.map(|((), sentence)| sentence), || client.has_left())
    };
    // Phonemes take a process.
    let sentences = shared.workers.run(encode).await??;
    let most_seconds = (!request.stream).then_some(shared.limits.most_seconds as f64);
    let pauses = request.pause * sentences.len().saturating_sub(1) as f64;
    check_length(pauses, most_seconds)?;
    let writer = Writer::new(&request, chosen.voice.clone()).map_err(failed)?;
    let take = Take { speed: request.speed, seed: request.seed };
    let rate = chosen.voice.synthesizer.bundle().mel.sample_rate;
    let order = Order { voice: chosen.voice, reference: chosen.reference, take, sentences, writer };
    let mut speech = shared.engine.submit(place, order);
    // A failure of the first sentence has a status of its own, whether the others are waited for or not.
    let first = speech.next().await.transpose().map_err(failed)?;
    shared.counters.first_byte(began.elapsed().as_secs_f64());
    let body = match most_seconds {
        Some(most) => Body::from(collected(speech, first, most).await?),
        None => Body::made(Streamed { speech, first, over: false }),
    };
    let content_type = if request.events { "text/event-stream" } else { request.format.content_type() };
    let response = hyper::Response::builder()
        .header(hyper::header::CONTENT_TYPE, content_type)
        .header("x-sample-rate", rate)
        // A proxy that collects the stream takes away what it is for.
        .header("x-accel-buffering", "no");
    Ok(response.body(body).expect("a valid response"))
}

fn failed(message: String) -> ApiError {
    ApiError::new(500, "synthesis_failed", message)
}

/// Refuses an answer that is too long to be kept until it is whole.
fn check_length(seconds: f64, most: Option<f64>) -> Result<(), ApiError> {
    match most {
        Some(most) if seconds > most => {
            let message = format!("more than {most} s of speech at once; ask for it with `stream`");
            Err(ApiError::new(400, "too_long_use_stream", message).about("stream"))
        }
        _ => Ok(()),
    }
}

/// All sentences of a text, or everything that is wrong with it; nothing more is looked at when `left` says so.
fn encoded(
    all: impl Iterator<Item = Result<Sentence, SynthesisError>>,
    left: impl Fn() -> bool,
) -> Result<Vec<Sentence>, ApiError> {
    let mut unknown = BTreeSet::new();
    let mut sentences = Vec::new();
    for sentence in all {
        if left() {
            return Err(ApiError::new(499, "client_left", "nobody waits for it"));
        }
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

/// All of an answer, with its length in its header.
async fn collected(mut speech: Speech, first: Option<Chunk>, most_seconds: f64) -> Result<Vec<u8>, ApiError> {
    let (mut bytes, mut next) = (Vec::new(), first);
    while let Some(chunk) = next {
        check_length(chunk.seconds, Some(most_seconds))?;
        bytes.extend(chunk.bytes);
        next = speech.next().await.transpose().map_err(failed)?;
    }
    let mut writer = speech.writer();
    bytes.extend(writer.end().map_err(failed)?);
    writer.complete(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// A response that is made while it is sent.
struct Streamed {
    speech: Speech,
    first: Option<Chunk>,
    over: bool,
}

impl hyper::body::Body for Streamed {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        while !this.over {
            let next = match this.first.take() {
                Some(chunk) => Some(Ok(chunk)),
                None => match this.speech.poll_next(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(next) => next,
                },
            };
            this.over = next.is_none();
            let bytes = match next {
                Some(chunk) => chunk.map(|chunk| chunk.bytes),
                None => this.speech.writer().end(),
            };
            match bytes {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => return Poll::Ready(Some(Ok(Frame::data(Bytes::from(bytes))))),
                // It ends the connection: the client sees that it does not have all of it.
                Err(message) => return Poll::Ready(Some(Err(std::io::Error::other(message)))),
            }
        }
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_client_that_left_is_not_read_to_its_end() {
        let looked = std::cell::Cell::new(0);
        let all = (0..1000).map(|_| {
            looked.set(looked.get() + 1);
            Ok(Sentence { text: "A lamp.".to_owned(), ids: vec![1] })
        });
        let error = encoded(all, || looked.get() > 3).expect_err("it left");
        assert_eq!((error.code, looked.get()), ("client_left", 4));
    }
}
