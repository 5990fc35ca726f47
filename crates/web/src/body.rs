//! Bodies of requests, read within limits of size and time.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::body::{Body as _, Bytes, Frame, Incoming};
use hyper::header::CONTENT_TYPE;

use crate::errors::ApiError;
use crate::http::{Request, header};

/// Bytes of a body that is too large which are read and forgotten.
const MOST_SKIPPED: usize = 32 << 20;

/// How long what nobody wanted to read is read.
const SKIPPING: Duration = Duration::from_secs(1);

/// The body of a request, until somebody takes it.
#[derive(Clone, Debug)]
pub(crate) struct RequestBody(Arc<Mutex<Option<Incoming>>>);

impl RequestBody {
    pub(crate) fn new(body: Incoming) -> RequestBody {
        RequestBody(Arc::new(Mutex::new(Some(body))))
    }

    fn take(&self) -> Option<Incoming> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Reads what was not taken, within reason: who is still sending does not read the answer, and a connection that is closed
    /// before it was read takes the answer away.
    pub(crate) async fn skip(&self) {
        let Some(mut body) = self.take() else { return };
        let skipping = async {
            let mut skipped = 0;
            while let Some(Ok(frame)) = next(&mut body).await
                && skipped < MOST_SKIPPED
            {
                skipped += frame.into_data().map_or(0, |data| data.len());
            }
        };
        let _ = tokio::time::timeout(SKIPPING, skipping).await;
    }
}

async fn next(body: &mut Incoming) -> Option<hyper::Result<Frame<Bytes>>> {
    std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await
}

/// Refuses a body of another kind. Pages of other sites can send texts and forms to this address without asking; JSON and audio
/// they cannot.
pub(crate) fn expect_type(request: &Request, fits: impl Fn(&str) -> bool, wanted: &str) -> Result<(), ApiError> {
    let kind = header(request.headers(), CONTENT_TYPE).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if fits(&kind) {
        Ok(())
    } else {
        Err(ApiError::new(415, "wrong_content_type", format!("`Content-Type` must be {wanted}")))
    }
}

/// All of a body.
pub(crate) async fn read(body: &RequestBody, most: usize, timeout: Duration) -> Result<Vec<u8>, ApiError> {
    let Some(mut body) = body.take() else { return Ok(Vec::new()) };
    let reading = async {
        let (mut bytes, mut skipped) = (Vec::new(), 0);
        loop {
            let data = match next(&mut body).await {
                None if skipped == 0 => return Ok(bytes),
                None => return Err(too_large(most)),
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Err(ApiError::new(400, "body_cut_off", error.to_string())),
            };
            if skipped > 0 || bytes.len() + data.len() > most {
                // Read to its end, within reason: who is still sending does not read the answer, and may never see it.
                skipped += data.len();
                bytes = Vec::new();
                if skipped > MOST_SKIPPED {
                    return Err(too_large(most));
                }
            } else {
                bytes.extend_from_slice(&data);
            }
        }
    };
    match tokio::time::timeout(timeout, reading).await {
        Ok(read) => read,
        Err(_) => {
            Err(ApiError::new(408, "body_too_slow", format!("the body took longer than {} s", timeout.as_secs())))
        }
    }
}

fn too_large(most: usize) -> ApiError {
    ApiError::new(413, "body_too_large", format!("more than {most} bytes"))
}
