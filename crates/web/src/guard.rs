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
    /// Pages: there is another one, `/enter`, that asks for the token.
    pub(crate) pages: &'static [&'static str],
    /// Only reachable from this machine: then its names are the only ones it has, and those of a proxy.
    pub(crate) loopback: bool,
    /// Names that a proxy has.
    pub(crate) hosts: Vec<String>,
}

impl Guard {
    /// Why a request is not answered, if it is not.
    pub(crate) fn refusal(&self, request: &Request) -> Option<Response> {
        let path = request.uri().path();
        let error = self.refuses(path, request.headers())?;
        // A browser is asked for the token where there is a form for it.
        let ask = error.status == 401 && self.pages.contains(&path);
        Some(if ask { http::redirect("/enter") } else { error.response() })
    }

    fn refuses(&self, path: &str, headers: &HeaderMap) -> Option<ApiError> {
        let text = |name: header::HeaderName| http::header(headers, name);
        let host = text(header::HOST).unwrap_or_default();
        // A name of somebody else that leads here (DNS rebinding) is not one of ours.
        if self.loopback && !host.is_empty() && !is_local(host) && !self.is_ours(host) {
            return Some(ApiError::new(
                403,
                "wrong_host",
                format!("`{}` is not a name of this server; --host adds one", host.escape_debug()),
            ));
        }
        // `null` is what a page says that does not tell where it comes from.
        if let Some(origin) = text(header::ORIGIN) {
            let from = origin.split_once("://").map_or("", |(_, from)| from);
            if from.is_empty() || from != host && !self.is_ours(from) {
                return Some(ApiError::new(403, "wrong_origin", "pages of other sites may not ask"));
            }
        }
        let token = self.token.as_ref()?;
        if (self.open)(path) {
            return None;
        }
        let bearer = |value: &str| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
        };
        let bearer = text(header::AUTHORIZATION).and_then(bearer);
        let of_cookie = |pair: &str| Some(http::decoded(pair.trim().strip_prefix(COOKIE)?.strip_prefix('=')?));
        let cookie = || text(header::COOKIE).and_then(|all| all.split(';').find_map(of_cookie));
        let given = bearer.or_else(cookie).unwrap_or_default();
        (!same(given.as_bytes(), token.as_bytes()))
            .then(|| ApiError::new(401, "wrong_token", "this server needs a token: `Authorization: Bearer TOKEN`"))
    }

    /// Whether a `Host` names a proxy that leads here, whatever the port.
    fn is_ours(&self, host: &str) -> bool {
        self.hosts.iter().any(|ours| ours.eq_ignore_ascii_case(name(host)))
    }
}

/// What every response says to browsers.
pub(crate) fn dress(response: &mut Response) {
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", CSP),
        ("x-content-type-options", "nosniff"),
        // Not `no-referrer`: then a form of our own would come from `null`.
        ("referrer-policy", "same-origin"),
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

/// A `Host` without its port.
fn name(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

/// Whether a `Host` names this machine, whatever the port.
fn is_local(host: &str) -> bool {
    let name = name(host);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(token: Option<&str>, loopback: bool) -> Guard {
        let token = token.map(str::to_owned);
        Guard { token, open: |path| path == "/healthz", pages: &[], loopback, hosts: Vec::new() }
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
            [("Bearer secret", None), ("bearer secret", None), ("Bearer secre", Some(401)), ("secret", Some(401))]
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

    #[test]
    fn a_proxy_has_names_of_its_own() {
        let (host, origin) = (header::HOST, header::ORIGIN);
        let behind = Guard { hosts: vec!["voice.example".to_owned()], ..guard(None, true) };
        for (to, from, wanted) in [
            // A proxy that keeps the name, and one that does not.
            ("voice.example", "https://voice.example", None),
            ("127.0.0.1:7860", "https://Voice.Example", None),
            ("127.0.0.1:7860", "https://voice.example:8443", None),
            ("evil.example", "https://evil.example", Some(403)),
            ("voice.example", "https://evil.example", Some(403)),
            ("voice.example", "null", Some(403)),
            ("127.0.0.1:7860", "null", Some(403)),
        ] {
            assert_eq!(refused(&behind, "/", &[(host.clone(), to), (origin.clone(), from)]), wanted, "{to} {from}");
        }
        assert_eq!(refused(&guard(None, true), "/", &[(host, "voice.example")]), Some(403), "none by default");
    }
}
