//! What a request is for, read in one way only: the authority that decides the
//! route is the one that decides the limit and the `Host` that is sent on.

use super::Request;
use crate::{
    config::{Limits, is_served, rejected_path},
    http1::{self, FieldKind, FieldList, FieldSet},
    meter::HttpRejection,
    route::canonical_host,
};
use http::{
    HeaderValue, Method, Version,
    header::{CONTENT_LENGTH, COOKIE},
};
use std::{borrow::Cow, sync::Arc};

/// Why a request cannot be served, whatever the routes say: it could be
/// understood in more than one way, or asks for what a gateway does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
    pub(crate) kind: HttpRejection,
    pub(crate) why: &'static str,
}

const METHOD: Invalid =
    Invalid { kind: HttpRejection::Method, why: "this method is not served here" };

const TARGET: Invalid = Invalid {
    kind: HttpRejection::Malformed,
    why: "the target is not in a form that this method has",
};

const TOO_LARGE: Invalid = Invalid {
    kind: HttpRejection::TooLarge,
    why: "the header is larger than `limits.header_bytes` allows",
};

const SCHEME: Invalid =
    Invalid { kind: HttpRejection::Malformed, why: "only http and https are served here" };

const UNDERSCORE: Invalid = Invalid {
    kind: HttpRejection::Malformed,
    why: "some servers take Content_Length and Transfer_Encoding for the fields with a hyphen",
};

const LENGTH: Invalid = Invalid { kind: HttpRejection::Malformed, why: "Content-Length is empty" };

/// Why a redirect cannot say where to.
pub(crate) const NO_HOST: Invalid =
    Invalid { kind: HttpRejection::Host, why: "Host is missing or empty" };

const NAME: Invalid = Invalid {
    kind: HttpRejection::Malformed,
    why: "a header name has a character that names cannot have",
};

const TOO_MANY_FIELDS: Invalid = Invalid {
    kind: HttpRejection::TooLarge,
    why: "the request has more header fields than `limits.headers` allows",
};

impl Invalid {
    /// Of a path that servers read differently: for what it has.
    pub(crate) const fn path(why: &'static str) -> Self {
        Self { kind: HttpRejection::Path, why }
    }

    /// Says what was rejected, and which setting changes it.
    pub(crate) fn detail(self) -> Cow<'static, str> {
        match self.kind {
            HttpRejection::Path => rejected_path(self.why).into(),
            HttpRejection::Connections
            | HttpRejection::Malformed
            | HttpRejection::TooLarge
            | HttpRejection::HeaderTimeout
            | HttpRejection::Host
            | HttpRejection::Method
            | HttpRejection::NoRoute
            | HttpRejection::Access
            | HttpRejection::Auth
            | HttpRejection::ConnectionsPerClient
            | HttpRejection::ProxyProtocol => self.why.into(),
        }
    }
}

fn invalid_host(why: &'static str) -> Invalid {
    Invalid { kind: HttpRejection::Host, why }
}

/// Checks what the parsers accept: `http1`, and h2 for HTTP/2. Returns the authority as it came, with
/// its port; empty if there is none. `fields` is what the request has. `limits` hold for its header:
/// `http1` has applied them, h2 has not.
///
/// # Errors
///
/// The request cannot be served, whatever its route is.
pub(crate) fn inspect<'a, B>(
    request: &'a Request<B>,
    fields: FieldSet,
    limits: &Limits,
) -> Result<&'a [u8], Invalid> {
    if request.headers().len() > limits.headers && field_count(request, fields) > limits.headers {
        return Err(TOO_MANY_FIELDS);
    }

    if request.version() == Version::HTTP_2 && list_size(request) > limits.header_bytes {
        return Err(TOO_LARGE);
    }
    if request.version() == Version::HTTP_2 && has_quoted_name(request.headers()) {
        return Err(NAME);
    }

    if !is_served(request.method()) {
        return Err(METHOD);
    }
    if !has_form_of_method(request) {
        return Err(TARGET);
    }
    if !has_scheme_of_web(request) {
        return Err(SCHEME);
    }

    if fields.has(FieldKind::UnderscoreFraming) {
        return Err(UNDERSCORE);
    }
    if fields.has(FieldKind::ContentLength) && has_empty_length(request.headers()) {
        return Err(LENGTH);
    }
    if fields.repeats(FieldKind::Host) {
        return Err(invalid_host("Host is given more than once"));
    }
    authority(request)
}

/// Returns how many fields a request has. All cookies of HTTP/2 are one: browsers send each as a field
/// (RFC 9113, 8.2.3), and they are joined.
#[cold]
fn field_count<B>(request: &Request<B>, fields: FieldSet) -> usize {
    let count = request.headers().len();
    if request.version() != Version::HTTP_2 || !fields.repeats(FieldKind::Cookie) {
        return count;
    }
    count + 1 - request.headers().get_all(&COOKIE).count()
}

/// Reports whether a field's name has a `"`: the one character that the `http` crate takes in names
/// of HTTP/2 and that is in no token (RFC 9110, 5.6.2). A server that rejects it closes the
/// connection, which would look like its own failure.
fn has_quoted_name(headers: &FieldList) -> bool {
    headers.iter().any(|field| field.name.contains(&b'"'))
}

/// Returns an authority as a field, and in the form that routes are found by: lower-case, without
/// port and trailing dot.
///
/// # Errors
///
/// The authority is not one, or has characters that a host cannot have.
pub(crate) fn canonical(authority: &[u8]) -> Result<(HeaderValue, Arc<str>), Invalid> {
    let no_text = || invalid_host("Host has characters that a host cannot have");
    let field = HeaderValue::from_bytes(authority).map_err(|_| no_text())?;
    let host = match field.to_str().map_err(|_| no_text())? {
        "" => Arc::from(""),
        text => canonical_host(text)
            .map(|host| Arc::from(&*host))
            .map_err(|_| invalid_host("Host is not a host name"))?,
    };
    Ok((field, host))
}

/// Returns the size of a request's header as HTTP/2 counts it (RFC 9113, 6.5.2).
fn list_size<B>(request: &Request<B>) -> usize {
    const OVERHEAD: usize = 32;
    let field = |field: http1::Field<'_>| field.name.len() + field.value.len() + OVERHEAD;
    let uri = request.uri();
    let method = request.method().as_str();
    let target = uri.path().len() + uri.query().map_or(0, str::len);
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    let fields: usize = request.headers().iter().map(field).sum();
    // The names of these four are 34 bytes together, and the scheme five or less.
    target + authority + method.len() + 4 * OVERHEAD + 39 + fields
}

/// Reports whether a length is given as nothing, which HTTP/2's parser takes for 0.
fn has_empty_length(headers: &FieldList) -> bool {
    headers.get_all(&CONTENT_LENGTH).any(|length| length.trim_ascii().is_empty())
}

/// Reports whether the target is in a form that its method may have (RFC 9112, 3.2): a
/// host alone is for CONNECT, which is not served, and `*` for OPTIONS.
fn has_form_of_method<B>(request: &Request<B>) -> bool {
    let uri = request.uri();
    let is_host =
        request.version() < Version::HTTP_2 && uri.scheme().is_none() && uri.authority().is_some();
    !is_host && (uri.path() != "*" || request.method() == Method::OPTIONS)
}

/// Reports whether a target that names a scheme, as every one of HTTP/2 does, names `http` or
/// `https`: another one is a proxy's to translate.
fn has_scheme_of_web<B>(request: &Request<B>) -> bool {
    let is = |scheme: &str, name| scheme.eq_ignore_ascii_case(name);
    request.uri().scheme_str().is_none_or(|scheme| is(scheme, "http") || is(scheme, "https"))
}

fn authority<B>(request: &Request<B>) -> Result<&[u8], Invalid> {
    let version = request.version();
    let host = request.headers().first(FieldKind::Host);
    let Some(target) = request.uri().authority() else { return host_field(host, version) };
    let target = target.as_str().as_bytes();
    let is_same = host.is_some_and(|host| host.eq_ignore_ascii_case(target));
    match version {
        _ if is_same => {}
        Version::HTTP_2 if host.is_none() => {}
        Version::HTTP_2 => return Err(invalid_host(":authority and Host differ")),
        // In HTTP/1.1 the target has precedence, but Host must be valid (RFC 9112, 3.2).
        _ => drop(canonical(host_field(host, version)?)?),
    }
    Ok(target)
}

/// Returns what `Host` says. Only HTTP/1.0 may leave it out.
fn host_field(host: Option<&[u8]>, version: Version) -> Result<&[u8], Invalid> {
    match host {
        Some(host) if !host.is_empty() => Ok(host),
        _ if version == Version::HTTP_10 => Ok(b""),
        _ => Err(NO_HOST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        header_bytes: 1000,
        headers: 3,
        body: 0,
        min_body_rate: None,
        connections: 0,
        connections_per_client: None,
        upload_buffers: 0,
        peek_body: 0,
    };

    fn request(version: Version, uri: &str, fields: &[(&'static str, &str)]) -> Request<()> {
        let mut request = http::Request::builder().version(version).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a valid request").into()
    }

    fn host(request: &Request<()>) -> Result<String, Invalid> {
        let authority = inspect(request, request.headers().set(), &LIMITS)?;
        canonical(authority).map(|(_, host)| (*host).to_owned())
    }

    #[test]
    fn one_authority_is_found_wherever_it_stands() {
        for (request, expected) in [
            (
                request(Version::HTTP_11, "/", &[("host", "Shop.Example.com:8080")]),
                "shop.example.com",
            ),
            (
                request(Version::HTTP_11, "http://a.example/x", &[("host", "b.example")]),
                "a.example",
            ),
            (request(Version::HTTP_10, "http://a.example/x", &[]), "a.example"),
            (request(Version::HTTP_10, "http://a.example/x", &[("host", "")]), "a.example"),
            (request(Version::HTTP_2, "https://a.example./x", &[]), "a.example"),
            (
                request(Version::HTTP_2, "https://a.example/x", &[("host", "A.example")]),
                "a.example",
            ),
            (request(Version::HTTP_2, "/x", &[("host", "a.example")]), "a.example"),
            (request(Version::HTTP_10, "/", &[]), ""),
            (request(Version::HTTP_10, "/", &[("host", "")]), ""),
        ] {
            assert_eq!(host(&request).as_deref(), Ok(expected), "{request:?}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_rejected() {
        for request in [
            request(Version::HTTP_11, "/", &[]),
            request(Version::HTTP_11, "/", &[("host", "")]),
            request(Version::HTTP_2, "/", &[("host", "")]),
            request(Version::HTTP_11, "/", &[("host", "a"), ("host", "a")]),
            request(Version::HTTP_2, "https://a.example/", &[("host", "b.example")]),
            request(Version::HTTP_11, "/", &[("host", "a b")]),
            request(Version::HTTP_11, "/", &[("host", "user@a.example")]),
            request(Version::HTTP_11, "http://a.example/", &[]),
            request(Version::HTTP_11, "http://a.example/", &[("host", "")]),
            request(Version::HTTP_11, "http://a.example/", &[("host", "a b")]),
            request(Version::HTTP_11, "http://a.example/", &[("host", "a/b")]),
            request(Version::HTTP_10, "http://a.example/", &[("host", "a/b")]),
            request(Version::HTTP_11, "x", &[("host", "a")]),
            request(Version::HTTP_11, "*", &[("host", "a")]),
            request(Version::HTTP_11, "/", &[("host", "a"), ("Content_Length", "3")]),
            request(Version::HTTP_2, "/", &[("host", "a"), ("transfer_encoding", "chunked")]),
            request(Version::HTTP_2, "/", &[("host", "a"), ("content-length", "")]),
            request(Version::HTTP_2, "/", &[("host", "a"), ("content-length", "\t")]),
        ] {
            assert!(host(&request).is_err_and(|invalid| invalid != METHOD), "{request:?}");
        }
    }

    #[test]
    fn connect_and_trace_are_not_served() {
        for method in [Method::CONNECT, Method::TRACE] {
            let mut request = request(Version::HTTP_11, "/", &[("host", "a")]);
            request.head_mut().method = method;
            assert_eq!(host(&request).err(), Some(METHOD));
        }
    }

    #[test]
    fn a_star_is_the_target_of_options_alone() {
        let mut request = request(Version::HTTP_11, "*", &[("host", "a")]);
        assert_eq!(host(&request).err(), Some(TARGET));
        request.head_mut().method = Method::OPTIONS;
        assert_eq!(host(&request).as_deref(), Ok("a"));
    }

    #[test]
    fn only_http_and_https_are_served() {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            for uri in ["http://a/", "HTTPS://a/"] {
                assert_eq!(host(&request(version, uri, &[("host", "a")])).as_deref(), Ok("a"));
            }
            for uri in ["ftp://a/", "ws://a/", "httpx://a/"] {
                assert_eq!(host(&request(version, uri, &[("host", "a")])).err(), Some(SCHEME));
            }
        }
    }

    #[test]
    fn a_header_of_http_2_is_as_large_as_all_its_fields() {
        let long = "x".repeat(800);
        let large = |fields: &[(&'static str, &str)]| {
            let request = request(Version::HTTP_2, "https://a.example/", fields);
            host(&request).err() == Some(TOO_LARGE)
        };
        assert!(!large(&[("x", &long[..700])]));
        assert!(large(&[("x", &long)]) && large(&[("x", &long[..400]), ("y", &long[..400])]));
    }

    #[test]
    fn fields_are_counted_by_line_in_either_version() {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut fields = vec![("host", "a"), ("x", "1"), ("x", "1")];
            assert_eq!(host(&request(version, "/", &fields)).as_deref(), Ok("a"));
            fields.push(("x", "1"));
            assert_eq!(host(&request(version, "/", &fields)).err(), Some(TOO_MANY_FIELDS));
        }
    }

    #[test]
    fn all_cookies_of_http_2_count_as_one_field() {
        for (version, others, expected) in [
            (Version::HTTP_2, 2, None),
            (Version::HTTP_2, 3, Some(TOO_MANY_FIELDS)),
            (Version::HTTP_11, 2, Some(TOO_MANY_FIELDS)),
        ] {
            let others = [("host", "a"), ("x", "1"), ("y", "2")].into_iter().take(others);
            let fields: Vec<_> = others.chain([("cookie", "a=b"); 9]).collect();
            assert_eq!(host(&request(version, "/", &fields)).err(), expected, "{version:?}");
        }
    }
}
