//! Who may ask: a token where one is needed, and never a page of another site. Every response says what a browser may do with it.

use std::net::IpAddr;

use hyper::HeaderMap;
use hyper::header::{self, HeaderValue};

use crate::errors::ApiError;
use crate::http::{self, Request, Response};

/// Nothing from elsewhere, no script but the one that is served, no frame around it.
const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self' blob:; \
                   connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Where browsers keep the token.
pub(crate) const COOKIE: &str = "tandem_token";

/// What a server asks of those who come.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Asked for below these paths.
    pub(crate) token: Option<String>,
    /// Paths that need no token.
    pub(crate) open: fn(&str) -> bool,
    /// There is a page, `/enter`, that asks for the token.
    pub(crate) form: bool,
    /// Only reachable from this machine: then its names are the only ones it has.
    pub(crate) loopback: bool,
}

impl Guard {
    /// Why a request is not answered, if it is not.
    pub(crate) fn refusal(&self, request: &Request) -> Option<Response> {
        let path = request.uri().path();
        let error = self.refuses(path, request.headers())?;
        // A browser is asked for the token where there is a form for it.
        let ask = error.status == 401 && self.form && path == "/";
        Some(if ask { http::redirect("/enter") } else { error.response() })
    }

    fn refuses(&self, path: &str, headers: &HeaderMap) -> Option<ApiError> {
        let text = |name: header::HeaderName| http::header(headers, name);
        let host = text(header::HOST).unwrap_or_default();
        // A name of somebody else that leads here (DNS rebinding) is not one of ours.
        if self.loopback && !host.is_empty() && !is_local(host) {
            return Some(ApiError::new(
                403,
                "wrong_host",
                format!("`{}` is not a name of this server", host.escape_debug()),
            ));
        }
        if let Some(origin) = text(header::ORIGIN).filter(|origin| *origin != "null")
            && origin.split_once("://").map(|(_, host)| host) != Some(host)
        {
            return Some(ApiError::new(403, "wrong_origin", "pages of other sites may not ask"));
        }
        let token = self.token.as_ref()?;
        if (self.open)(path) {
            return None;
        }
        let bearer = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned);
        let of_cookie = |pair: &str| Some(http::decoded(pair.trim().strip_prefix(COOKIE)?.strip_prefix('=')?));
        let cookie = || text(header::COOKIE).and_then(|all| all.split(';').find_map(of_cookie));
        let given = bearer.or_else(cookie).unwrap_or_default();
        (!same(given.as_bytes(), token.as_bytes()))
            .then(|| ApiError::new(401, "wrong_token", "this server needs a token: `Authorization: Bearer TOKEN`"))
    }
}

/// What every response says to browsers.
pub(crate) fn dress(response: &mut Response) {
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", CSP),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// In a time that does not tell how much of it was right.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |odd, (a, b)| odd | (a ^ b)) == 0
}

/// Whether a `Host` names this machine, whatever the port.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(token: Option<&str>, loopback: bool) -> Guard {
        Guard { token: token.map(str::to_owned), open: |path| path == "/healthz", form: false, loopback }
    }

    fn refused(guard: &Guard, path: &str, headers: &[(header::HeaderName, &str)]) -> Option<u16> {
        let all = headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).expect("valid")));
        guard.refuses(path, &all.collect()).map(|error| error.status)
    }

    #[test]
    fn only_names_of_this_machine_are_its_own() {
        for good in ["localhost", "LOCALHOST:7860", "127.0.0.1:7860", "[::1]:7860", "127.8.9.1"] {
            assert!(is_local(good), "{good}");
        }
        for bad in ["evil.example", "evil.example:7860", "localhost.evil.example", "10.0.0.1:80", "[2001:db8::1]:1", ""]
        {
            assert!(!is_local(bad), "{bad}");
        }
    }

    #[test]
    fn table() {
        let (host, origin, token) = (header::HOST, header::ORIGIN, header::AUTHORIZATION);
        let local = guard(None, true);
        assert_eq!(refused(&local, "/v1/models", &[(host.clone(), "127.0.0.1:1")]), None);
        assert_eq!(refused(&local, "/v1/models", &[(host.clone(), "evil.example")]), Some(403));
        assert_eq!(
            refused(&local, "/", &[(host.clone(), "localhost:1"), (origin.clone(), "http://localhost:1")]),
            None
        );
        assert_eq!(
            refused(&local, "/", &[(host.clone(), "localhost:1"), (origin.clone(), "http://evil.example")]),
            Some(403)
        );
        assert_eq!(refused(&local, "/", &[(host.clone(), "localhost:1"), (origin, "http://localhost:2")]), Some(403));
        let open = guard(Some("secret"), false);
        assert_eq!(refused(&open, "/healthz", &[]), None);
        assert_eq!(refused(&open, "/v1/models", &[(host.clone(), "voice.example")]), Some(401));
        for (given, wanted) in
            [("Bearer secret", None), ("Bearer secre", Some(401)), ("Bearer secret2", Some(401)), ("secret", Some(401))]
        {
            assert_eq!(
                refused(&open, "/v1/models", &[(host.clone(), "voice.example"), (token.clone(), given)]),
                wanted,
                "{given}"
            );
        }
        for (given, wanted) in
            [("a=b; tandem_token=secret", None), ("tandem_token=sec%72et", None), ("tandem_token=x", Some(401))]
        {
            assert_eq!(refused(&open, "/v1/models", &[(header::COOKIE, given)]), wanted, "{given}");
        }
    }
}
