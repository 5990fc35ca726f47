//! What a client may ask for, and what is wrong with it: pure, and fuzzed (`fuzz/fuzz_targets/request.rs`). Depends on nothing
//! of the crate, so that the fuzzer does not have to build Burn.

use std::fmt;

use serde::Deserialize;

/// Names of voices and models are no longer than this.
const LONGEST_NAME: usize = 128;

/// How audio is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AudioFormat {
    /// RIFF WAVE, 16 bit.
    Wav,
    /// 16 bit, little endian, mono, without a header.
    Pcm,
    /// FLAC, 16 bit.
    Flac,
}

impl AudioFormat {
    /// All of them, by name.
    pub const ALL: [(&'static str, AudioFormat); 3] =
        [("wav", AudioFormat::Wav), ("pcm", AudioFormat::Pcm), ("flac", AudioFormat::Flac)];

    /// The type of the response.
    pub fn content_type(self) -> &'static str {
        match self {
            AudioFormat::Wav => "audio/wav",
            AudioFormat::Pcm => "audio/pcm",
            AudioFormat::Flac => "audio/flac",
        }
    }
}

/// A request for speech, as `POST /v1/audio/speech` takes it. OpenAI's names; `seed`, `language`, `pause` and `details` are ours.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeechRequest {
    /// The run; without it, the first.
    pub model: Option<String>,
    /// The speaker or an uploaded reference; without it, the first.
    pub voice: Option<String>,
    /// What to say.
    pub input: String,
    /// How audio is written.
    pub format: AudioFormat,
    /// 2 is twice as fast.
    pub speed: f32,
    /// Another seed gives another take.
    pub seed: u64,
    /// The language of the text, else that of the voice or guessed.
    pub language: Option<String>,
    /// Seconds between two sentences.
    pub pause: f64,
    /// Sent as it is made.
    pub stream: bool,
    /// As server-sent events, in OpenAI's form.
    pub events: bool,
    /// Events also carry text, mel and tokens of their sentence.
    pub details: bool,
}

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    /// The field, if it is one.
    pub param: Option<&'static str>,
    /// For programs.
    pub code: &'static str,
    /// For people.
    pub message: String,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RequestError {}

/// As it arrives. Fields that nobody here knows are ignored: other servers have more of them.
#[derive(Deserialize)]
struct Body {
    model: Option<String>,
    voice: Option<String>,
    input: Option<String>,
    response_format: Option<String>,
    speed: Option<f64>,
    seed: Option<u64>,
    language: Option<String>,
    pause: Option<f64>,
    stream: Option<bool>,
    stream_format: Option<String>,
    details: Option<bool>,
}

fn wrong(param: &'static str, code: &'static str, message: impl Into<String>) -> RequestError {
    RequestError { param: Some(param), code, message: message.into() }
}

/// A name that can be shown in one line, or none.
fn name(param: &'static str, given: Option<String>) -> Result<Option<String>, RequestError> {
    match given {
        Some(name) if name.chars().count() > LONGEST_NAME || name.chars().any(char::is_control) => Err(wrong(
            param,
            "invalid_value",
            format!("`{param}` is not a name: at most {LONGEST_NAME} characters in one line"),
        )),
        given => Ok(given.filter(|name| !name.is_empty())),
    }
}

impl SpeechRequest {
    /// Reads a request whose text has at most so many characters.
    ///
    /// # Errors
    ///
    /// [`RequestError`] that names the field.
    pub fn parse(bytes: &[u8], most_characters: usize) -> Result<SpeechRequest, RequestError> {
        let body: Body = serde_json::from_slice(bytes).map_err(|error| RequestError {
            param: None,
            code: "invalid_json",
            message: format!("the body is not the JSON object that is expected: {error}"),
        })?;
        let input = body.input.ok_or_else(|| wrong("input", "missing", "`input`, the text, is missing"))?;
        let characters = input.chars().count();
        if characters > most_characters {
            let message = format!("`input` has {characters} characters, at most {most_characters} are taken at once");
            return Err(wrong("input", "text_too_long", message));
        }
        if input.trim().is_empty() {
            return Err(wrong("input", "empty_text", "`input` is empty"));
        }
        let format = match body.response_format.as_deref() {
            None => AudioFormat::Wav,
            Some(word) => {
                let found = AudioFormat::ALL.iter().find(|(name, _)| *name == word);
                let message = || {
                    format!(
                        "no `response_format` `{}`: wav, pcm or flac",
                        word.escape_debug().take(40).collect::<String>()
                    )
                };
                found.map(|found| found.1).ok_or_else(|| wrong("response_format", "invalid_value", message()))?
            }
        };
        let speed = body.speed.unwrap_or(1.0);
        if !(0.25..=4.0).contains(&speed) {
            return Err(wrong("speed", "invalid_value", format!("`speed` is {speed}; it must be from 0.25 to 4")));
        }
        let pause = body.pause.unwrap_or(0.2);
        if !(0.0..=10.0).contains(&pause) {
            return Err(wrong(
                "pause",
                "invalid_value",
                format!("`pause` is {pause}; it must be from 0 to 10 seconds"),
            ));
        }
        let events = match body.stream_format.as_deref() {
            None | Some("audio") => false,
            Some("sse") => true,
            Some(_) => return Err(wrong("stream_format", "invalid_value", "`stream_format` is `audio` or `sse`")),
        };
        Ok(SpeechRequest {
            model: name("model", body.model)?,
            voice: name("voice", body.voice)?,
            language: name("language", body.language)?,
            // What has no header with a length loses nothing by being sent at once.
            stream: events || body.stream.unwrap_or(format == AudioFormat::Pcm),
            seed: body.seed.unwrap_or(1),
            details: body.details.unwrap_or(false),
            speed: speed as f32,
            input,
            format,
            pause,
            events,
        })
    }
}

/// The name that an uploaded voice gets.
///
/// # Errors
///
/// [`RequestError`] if it cannot be one: it stands in addresses and in lists.
pub fn voice_name(given: &str) -> Result<String, RequestError> {
    let fits = |c: char| c.is_alphanumeric() || "-_. ".contains(c);
    let name = given.trim();
    if name.is_empty() || name.chars().count() > 64 || !name.chars().all(fits) {
        let message = "`name` has 1 to 64 letters, digits, blanks, `-`, `_` or `.`";
        return Err(wrong("name", "invalid_value", message));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &str) -> Result<SpeechRequest, RequestError> {
        SpeechRequest::parse(body.as_bytes(), 100)
    }

    #[test]
    fn what_is_not_given_is_as_documented() {
        let least = parse(r#"{"input": "Hello.", "instructions": "of another server", "voice": null}"#).expect("valid");
        assert_eq!((least.model, least.voice, least.language), (None, None, None));
        assert_eq!((least.format, least.speed, least.seed, least.pause), (AudioFormat::Wav, 1.0, 1, 0.2));
        assert!(!least.stream && !least.events && !least.details);
        assert!(parse(r#"{"input": "a", "response_format": "pcm"}"#).expect("valid").stream);
        assert!(!parse(r#"{"input": "a", "response_format": "pcm", "stream": false}"#).expect("valid").stream);
        let events = parse(r#"{"input": "a", "stream_format": "sse", "stream": false}"#).expect("valid");
        assert!(events.stream && events.events);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let long = format!(r#"{{"input": "{}"}}"#, "x".repeat(101));
        let table: &[(&str, Option<&str>, &str)] = &[
            ("", None, "invalid_json"),
            ("[]", None, "invalid_json"),
            (r#"{"input": 7}"#, None, "invalid_json"),
            ("{}", Some("input"), "missing"),
            (r#"{"input": " \n"}"#, Some("input"), "empty_text"),
            (&long, Some("input"), "text_too_long"),
            (r#"{"input": "a", "response_format": "mp3"}"#, Some("response_format"), "invalid_value"),
            (r#"{"input": "a", "speed": 0.2}"#, Some("speed"), "invalid_value"),
            (r#"{"input": "a", "speed": 1e300}"#, Some("speed"), "invalid_value"),
            (r#"{"input": "a", "pause": -1}"#, Some("pause"), "invalid_value"),
            (r#"{"input": "a", "stream_format": "x"}"#, Some("stream_format"), "invalid_value"),
            ("{\"input\": \"a\", \"voice\": \"b\\n\"}", Some("voice"), "invalid_value"),
        ];
        for (body, param, code) in table {
            let error = parse(body).expect_err(body);
            assert_eq!((error.param, error.code), (*param, *code), "{body}: {error}");
        }
    }

    #[test]
    fn nested_json_crashes_nothing() {
        let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let error = parse(&format!("{{\"input\": {nested}}}")).expect_err("no text");
        assert_eq!(error.code, "invalid_json");
        // In a field that nobody knows it is ignored like any other.
        assert!(parse(&format!("{{\"input\": \"a\", \"x\": {nested}}}")).is_ok());
    }

    #[test]
    fn names_of_voices_have_nothing_of_a_path() {
        for good in ["sara", "سارا", "take 2", "a.b-c_d"] {
            assert_eq!(voice_name(good).expect(good), good);
        }
        for bad in ["", " ", "a/b", "..\\x", "a\nb", "<b>", &"x".repeat(65)] {
            assert!(voice_name(bad).is_err(), "{bad}");
        }
    }
}
