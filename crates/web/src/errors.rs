//! Errors as clients of OpenAI's interface expect them: a status and a JSON object with message, type, field and code.

use hyper::header::{ALLOW, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use serde_json::{Value, json};

use crate::http::{self, Response};
use crate::request::RequestError;

/// What a client did wrong, or what went wrong here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) param: Option<&'static str>,
    pub(crate) retry_after_s: Option<u64>,
    /// The methods that there are, if another one was used.
    pub(crate) allow: Option<&'static str>,
    /// What would be valid.
    pub(crate) known: Vec<String>,
}

impl ApiError {
    pub(crate) fn new(status: u16, code: &'static str, message: impl Into<String>) -> ApiError {
        let (message, known) = (message.into(), Vec::new());
        ApiError { status, code, message, param: None, retry_after_s: None, allow: None, known }
    }

    pub(crate) fn about(self, param: &'static str) -> ApiError {
        ApiError { param: Some(param), ..self }
    }

    pub(crate) fn retry_after(self, seconds: u64) -> ApiError {
        ApiError { retry_after_s: Some(seconds), ..self }
    }

    /// The path has these methods only.
    pub(crate) fn wrong_method(methods: &'static str) -> ApiError {
        ApiError { allow: Some(methods), ..ApiError::new(405, "wrong_method", format!("only {methods}")) }
    }

    /// A name that nobody has, and those there are.
    pub(crate) fn unknown(what: &'static str, name: &str, known: &[String]) -> ApiError {
        let code = match what {
            "model" => "unknown_model",
            "run" => "unknown_run",
            _ => "unknown_voice",
        };
        let list =
            if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) };
        let error = ApiError::new(404, code, format!("no {what} `{}`; {list}", name.escape_debug())).about(what);
        ApiError { known: known.to_vec(), ..error }
    }

    pub(crate) fn json(&self) -> Value {
        let kind = match self.status {
            401 | 403 => "authentication_error",
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        };
        let mut error = json!({"message": self.message, "type": kind, "param": self.param, "code": self.code});
        if !self.known.is_empty() {
            error["known"] = json!(self.known);
        }
        json!({"error": error})
    }
}

impl ApiError {
    pub(crate) fn response(&self) -> Response {
        let mut response = http::json(self.status, &self.json());
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(methods) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(methods));
        }
        if self.status == 401 {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> ApiError {
        ApiError { param: error.param, ..ApiError::new(400, error.code, error.message) }
    }
}
