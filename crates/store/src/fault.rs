//! What is wrong with a request. Errors of clients quote addresses with signatures, and answers of servers quote keys and what was
//! signed: nothing is taken from them but a status, a code of letters, and what the system says.

use std::error::Error;
use std::io;

use tandem_data::RemoteFault;

/// Where clients ask for credentials when the environment has none.
const METADATA_HOSTS: [&str; 3] = ["169.254.169.254", "169.254.170.2", "metadata.google.internal"];

/// The reason of a failure.
pub(crate) fn reason(error: &object_store::Error) -> RemoteFault {
    // To be searched, never to be shown.
    let text = error.to_string();
    if METADATA_HOSTS.iter().any(|host| text.contains(host)) {
        return RemoteFault::NoCredentials;
    }
    if let Some(status) = status(&text) {
        return of_status(status, code(&text));
    }
    match error {
        object_store::Error::NotFound { .. } => return RemoteFault::NotFound,
        object_store::Error::PermissionDenied { .. } => return RemoteFault::Refused(403, String::new()),
        object_store::Error::Unauthenticated { .. } => return RemoteFault::Refused(401, String::new()),
        _ => {}
    }
    let (mut next, mut deepest) = (error.source(), None);
    while let Some(error) = next {
        deepest = error.downcast_ref::<io::Error>().or(deepest);
        next = error.source();
    }
    if let Some(error) = deepest {
        return of_system(error);
    }
    let text = text.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|words| text.contains(words));
    match () {
        () if has(&["dns error", "lookup address"]) => RemoteFault::NoHost,
        () if has(&["timed out", "timeout"]) => RemoteFault::TimedOut,
        () if has(&["connection", "incomplete", "body", "sending request"]) => RemoteFault::Broken,
        () => RemoteFault::Other,
    }
}

/// Whether the same request may succeed a moment later.
pub(crate) fn is_passing(reason: &RemoteFault) -> bool {
    match reason {
        RemoteFault::NoCredentials | RemoteFault::Refused(..) | RemoteFault::NoBucket => false,
        RemoteFault::NotFound | RemoteFault::Address => false,
        _ => true,
    }
}

fn of_status(status: u16, code: String) -> RemoteFault {
    match (status, code.as_str()) {
        (404, "NoSuchBucket" | "ContainerNotFound") => RemoteFault::NoBucket,
        (404 | 410, _) => RemoteFault::NotFound,
        (408 | 429 | 500.., _) => RemoteFault::Server(status),
        _ => RemoteFault::Refused(status, code),
    }
}

fn of_system(error: &io::Error) -> RemoteFault {
    let text = error.to_string();
    match error.kind() {
        io::ErrorKind::TimedOut => RemoteFault::TimedOut,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => RemoteFault::Broken,
        _ if text.contains("lookup address") || text.contains("dns") => RemoteFault::NoHost,
        // With a number it is the system's own text.
        _ if error.raw_os_error().is_some() => RemoteFault::NoConnection(text),
        _ => RemoteFault::Broken,
    }
}

/// The number behind `status code: `.
fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// What stands between `<Code>` and `</Code>`, if it is a name.
fn code(text: &str) -> String {
    let inside = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    let name = inside.map(|(name, _)| name).filter(|name| name.len() <= 40);
    name.filter(|name| name.bytes().all(|byte| byte.is_ascii_alphabetic())).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> RemoteFault {
        reason(&object_store::Error::Generic { store: "S3", source: text.into() })
    }

    #[test]
    fn answers_become_reasons_without_a_word_of_theirs() {
        let secret = "<AWSAccessKeyId>AKIAHUNTER2</AWSAccessKeyId><StringToSign>hunter2</StringToSign>";
        let answer = |status: &str, code: &str| {
            of(&format!("Server returned non-2xx status code: {status}: <Error><Code>{code}</Code>{secret}</Error>"))
        };
        for (found, wanted, passing) in [
            (answer("403 Forbidden", "AccessDenied"), RemoteFault::Refused(403, "AccessDenied".into()), false),
            (answer("403 Forbidden", "hunter2 is wrong"), RemoteFault::Refused(403, String::new()), false),
            (answer("404 Not Found", "NoSuchBucket"), RemoteFault::NoBucket, false),
            (answer("404 Not Found", "NoSuchKey"), RemoteFault::NotFound, false),
            (answer("503 Service Unavailable", "SlowDown"), RemoteFault::Server(503), true),
            (answer("429 Too Many", ""), RemoteFault::Server(429), true),
            (of("Error performing PUT http://169.254.169.254/latest/api/token"), RemoteFault::NoCredentials, false),
            (of("client error (Connect): dns error: hunter2"), RemoteFault::NoHost, true),
            (of("operation timed out, hunter2"), RemoteFault::TimedOut, true),
            (of("error decoding response body hunter2"), RemoteFault::Broken, true),
            (of("hunter2"), RemoteFault::Other, true),
        ] {
            assert_eq!(found, wanted);
            assert_eq!(is_passing(&found), passing, "{found:?}");
            assert!(!found.to_string().to_lowercase().contains("hunter2"), "{found}");
        }
    }

    #[test]
    fn the_system_says_why_there_is_no_connection() {
        let of = |error: io::Error| reason(&object_store::Error::Generic { store: "S3", source: Box::new(error) });
        assert!(matches!(of(io::Error::from_raw_os_error(111)), RemoteFault::NoConnection(_)));
        assert_eq!(of(io::ErrorKind::ConnectionReset.into()), RemoteFault::Broken);
        assert_eq!(of(io::Error::other("failed to lookup address information")), RemoteFault::NoHost);
        assert_eq!(of(io::Error::other("hunter2")), RemoteFault::Broken, "a text of nobody knows whom is not shown");
    }
}
