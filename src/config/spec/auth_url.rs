//! The URL of an auth service.

use super::values::{self, Endpoint, InvalidValue, invalid};
use crate::config::diagnostics::quoted;
use http::{HeaderValue, Uri, uri::PathAndQuery};

/// The URL of an auth service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct AuthEndpoint {
    pub endpoint: Endpoint,
    /// The host and the port as they are written.
    pub authority: HeaderValue,
    /// The path, with a query if there is one.
    pub target: PathAndQuery,
}

impl AuthEndpoint {
    /// Reads `http://HOST:PORT/PATH`. A service with TLS, on a Unix socket or with several servers is
    /// an upstream.
    pub(in crate::config) fn parse(text: &str) -> Result<Self, InvalidValue> {
        const HELP: &str = "write `url: http://HOST:PORT/PATH`, as in `http://127.0.0.1:9091/api/authz/forward-auth`";
        const UPSTREAM: &str = "write `upstream: NAME` with `path: /PATH` in its place: upstreams have TLS, sockets, several servers and health checks";
        let wrong = |why: &str, help: &str| invalid(format!("{} {why}", quoted(text)), help);

        if text.starts_with("https://") {
            return wrong("has TLS", UPSTREAM);
        }
        if text.starts_with("unix:") || text.starts_with("http://unix:") {
            return wrong("is a Unix socket", UPSTREAM);
        }

        let Ok(uri) = text.parse::<Uri>() else { return wrong("is not a URL", HELP) };
        let has_scheme = uri.scheme_str() == Some("http");
        let Some(authority) = uri.authority().filter(|_| has_scheme) else {
            return wrong("is not an http:// URL", HELP);
        };
        let Endpoint { host, port, is_tls } = values::url(&format!("http://{authority}"))?;
        let Ok(value) = HeaderValue::from_str(authority.as_str()) else {
            return wrong("has no host", HELP);
        };
        if text.contains('#') {
            return wrong(
                "has a fragment, which no server receives",
                "remove the `#` and what follows it",
            );
        }

        let target = uri.path_and_query().cloned();
        let target = target.unwrap_or_else(|| PathAndQuery::from_static("/"));
        Ok(Self { endpoint: Endpoint { host, port, is_tls }, authority: value, target })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_host_and_what_the_service_is_asked_for() {
        for (text, host, port, authority, target) in [
            (
                "http://authelia:9091/api/authz/forward-auth",
                "authelia",
                9091,
                "authelia:9091",
                "/api/authz/forward-auth",
            ),
            ("http://127.0.0.1", "127.0.0.1", 80, "127.0.0.1", "/"),
            (
                "http://[::1]:4180/oauth2/auth?allowed_groups=a",
                "::1",
                4180,
                "[::1]:4180",
                "/oauth2/auth?allowed_groups=a",
            ),
        ] {
            let read = AuthEndpoint::parse(text).unwrap();
            assert_eq!((&*read.endpoint.host, read.endpoint.port), (host, port), "{text}");
            assert_eq!(
                (read.authority.to_str().unwrap(), read.target.as_str()),
                (authority, target)
            );
        }
    }

    #[test]
    fn what_needs_an_upstream_is_said_to() {
        for (text, help) in [
            ("https://auth.example.com/check", "`upstream: NAME` with `path: /PATH`"),
            ("unix:/run/auth.sock", "`upstream: NAME` with `path: /PATH`"),
            ("http://unix:/run/auth.sock:/check", "`upstream: NAME` with `path: /PATH`"),
            ("authelia:9091", "http://HOST:PORT/PATH"),
            ("ftp://a/b", "http://HOST:PORT/PATH"),
            ("http://a/b#c", "remove the `#`"),
            ("http://a:0/b", "http://HOST:PORT"),
            ("http://me:secret@a/b", "http://HOST:PORT"),
            ("", "http://HOST:PORT/PATH"),
        ] {
            let invalid = AuthEndpoint::parse(text).unwrap_err();
            assert!(invalid.help.contains(help), "{text}: {}", invalid.help);
        }
    }
}
