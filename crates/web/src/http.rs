//! Requests, responses and bodies: the little that is needed on top of hyper.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Method;
use hyper::body::{Bytes, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderName, LOCATION};
use serde_json::Value;

use crate::body::RequestBody;

/// What a client sends.
pub(crate) type Request = hyper::Request<RequestBody>;
/// What it gets.
pub(crate) type Response = hyper::Response<Body>;
/// A response that is being made.
pub(crate) type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;
/// Answers requests.
pub(crate) type Handler = Arc<dyn Fn(Request) -> Answer + Send + Sync>;

/// The body of a response: there already, or made while it is sent.
pub(crate) enum Body {
    Whole(Option<Bytes>),
    Made(Pin<Box<dyn hyper::body::Body<Data = Bytes, Error = io::Error> + Send>>),
}

impl Body {
    pub(crate) fn made(body: impl hyper::body::Body<Data = Bytes, Error = io::Error> + Send + 'static) -> Body {
        Body::Made(Box::pin(body))
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Body {
        Body::Whole(Some(bytes.into()))
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Body::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Body::Made(body) => body.as_mut().poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Body::Made(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Body::Made(body) => body.size_hint(),
        }
    }
}

/// A response of this kind.
pub(crate) fn respond(status: u16, content_type: &'static str, body: impl Into<Body>) -> Response {
    let response = hyper::Response::builder().status(status).header(CONTENT_TYPE, content_type);
    response.body(body.into()).expect("a valid response")
}

/// A JSON object.
pub(crate) fn json(status: u16, value: &Value) -> Response {
    respond(status, "application/json", value.to_string())
}

/// Leads a browser to another page of the same server.
pub(crate) fn redirect(to: &str) -> Response {
    let response = hyper::Response::builder().status(303).header(LOCATION, to);
    response.body(Body::Whole(None)).expect("a valid response")
}

/// The method; what would be sent to `GET` is what `HEAD` wants to know, and hyper sends no body then.
pub(crate) fn method(request: &Request) -> Method {
    match request.method() {
        &Method::HEAD => Method::GET,
        method => method.clone(),
    }
}

/// The part that a `Range` asks for, of so many bytes; none if it is not one simple range.
pub(crate) fn range(asked: &str, length: usize) -> Option<Range<usize>> {
    let (first, last) = asked.strip_prefix("bytes=")?.split_once('-')?;
    let part = match (first, last) {
        ("", last) => length.saturating_sub(last.parse().ok()?)..length,
        (first, "") => first.parse().ok()?..length,
        (first, last) => first.parse().ok()?..last.parse::<usize>().ok()?.saturating_add(1).min(length),
    };
    (part.start < part.end).then_some(part)
}

/// A header as text.
pub(crate) fn header(headers: &hyper::HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The words of an address: `run=…` may be there several times, others count once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) runs: Vec<String>,
    pub(crate) others: BTreeMap<String, String>,
}

impl Query {
    /// Of at most so many runs.
    pub(crate) fn of(query: Option<&str>, most_runs: usize) -> Query {
        let mut asked = Query::default();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "run" if asked.runs.len() < most_runs => asked.runs.push(decoded(value)),
                "run" => {}
                name => {
                    asked.others.insert(name.to_owned(), decoded(value));
                }
            }
        }
        asked
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.others.get(name).map(String::as_str)
    }
}

/// A value of an address. What is not UTF-8 becomes `�`, and names nothing.
pub(crate) fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let hex = |at: usize| after.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        rest = match (first, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((16 * high + low) as u8);
                &after[2..]
            }
            _ => {
                bytes.push(if first == b'+' { b' ' } else { first });
                after
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A value as it stands in an address.
pub(crate) fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let asked = Query::of(Some("run=a%2Fb&run=%D8%B3&lang=fa&x&=&run=c+d%"), 8);
        assert_eq!(asked.runs, ["a/b", "س", "c d%"]);
        assert_eq!((asked.get("lang"), asked.get("x")), (Some("fa"), Some("")));
        assert_eq!(encoded("a/b س"), "a%2Fb%20%D8%B3");
        assert_eq!(decoded(&encoded("a/b & سلام?")), "a/b & سلام?");
        assert_eq!(Query::of(Some(&"run=a&".repeat(50)), 8).runs.len(), 8);
        assert_eq!(Query::of(None, 8), Query::default());
        assert_eq!(decoded("%ff%"), "\u{fffd}%");
    }

    #[test]
    fn ranges_are_within_what_there_is() {
        for (asked, wanted) in [
            ("bytes=0-", Some(0..100)),
            ("bytes=10-19", Some(10..20)),
            ("bytes=90-1000", Some(90..100)),
            ("bytes=-10", Some(90..100)),
            ("bytes=-1000", Some(0..100)),
            ("bytes=100-", None),
            ("bytes=20-10", None),
            ("bytes=0-18446744073709551615", Some(0..100)),
            ("bytes=1-2,4-5", None),
            ("lines=1-2", None),
        ] {
            assert_eq!(range(asked, 100), wanted, "{asked}");
        }
    }
}
