//! The URL of a collector of traces, which may hold a token.

use super::values::{self, Endpoint, InvalidValue, invalid};
use http::{HeaderValue, Uri, uri::PathAndQuery};
use std::{fmt, sync::Arc};

/// The URL of a collector.
#[derive(Clone, PartialEq, Eq)]
pub struct CollectorEndpoint {
    /// A name or an address, IPv6 without brackets.
    pub host: Arc<str>,
    /// Its port.
    pub port: u16,
    /// Whether it begins with `https`.
    pub is_tls: bool,
    /// The host and the port as they are written.
    pub authority: HeaderValue,
    /// The path, with a query if there is one; not to be shown, as it may hold a token.
    pub target: PathAndQuery,
}

impl fmt::Debug for CollectorEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for CollectorEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority.to_str().unwrap_or_default())
    }
}

impl CollectorEndpoint {
    /// Reads the URL of a collector of traces: with `/v1/traces` if it has no path.
    pub(in crate::config) fn parse(text: &str) -> Result<Self, InvalidValue> {
        const HELP: &str = "write `http://HOST:4318`, or `https://HOST/PATH`";
        // Without the text, which may hold a password or a token.
        let wrong = |why: &str| invalid(format!("the collector's URL {why}"), HELP);

        let Ok(uri) = text.parse::<Uri>() else { return wrong("is not a URL") };
        let is_tls = uri.scheme_str() == Some("https");
        let has_scheme = is_tls || uri.scheme_str() == Some("http");
        let Some(authority) = uri.authority().filter(|_| has_scheme) else {
            return wrong("begins with neither `http://` nor `https://`");
        };

        if authority.as_str().contains('@') {
            return invalid(
                "the collector's URL holds a user name",
                "write `headers: { authorization: … }` instead",
            );
        }

        let scheme = if is_tls { "https" } else { "http" };
        let Endpoint { host, port, .. } = values::url(&format!("{scheme}://{authority}"))?;
        let target = uri.path_and_query().filter(|target| target.as_str() != "/");
        let target = target.cloned().unwrap_or(PathAndQuery::from_static("/v1/traces"));
        let Ok(authority) = HeaderValue::from_str(authority.as_str()) else {
            return wrong("has no host");
        };

        Ok(Self { host, port, is_tls, authority, target })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_path_means_the_usual_one() {
        for (text, host, port, is_tls, target) in [
            ("http://127.0.0.1:4318", "127.0.0.1", 4318, false, "/v1/traces"),
            ("http://Collector/", "collector", 80, false, "/v1/traces"),
            ("https://[::1]/otlp/v1/traces?a=b", "::1", 443, true, "/otlp/v1/traces?a=b"),
        ] {
            let read = CollectorEndpoint::parse(text).unwrap();
            assert_eq!((&*read.host, read.port, read.is_tls), (host, port, is_tls));
            assert_eq!(read.target, target);
        }
        let read = CollectorEndpoint::parse("https://a:4318/hidden?token=hidden").unwrap();
        assert_eq!(format!("{read} {read:?}"), "https://a:4318 https://a:4318");
    }

    #[test]
    fn what_is_no_url_is_rejected_without_being_shown() {
        for text in ["collector:4318", "grpc://a", "http://", "http://me:hidden@a", "a b/hidden"] {
            let invalid = CollectorEndpoint::parse(text).unwrap_err();
            assert!(!invalid.message.contains("hidden"), "{}", invalid.message);
        }
    }
}
