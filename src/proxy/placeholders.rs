//! What placeholders stand for, and how they are written into headers, redirects and bodies.

use crate::proxy::{
    message::{Request, request_id::RequestId},
    peer::{Authority, Peer},
};
use crate::{
    config::{
        Body, HeaderEdits, HeaderText, Piece, Placeholder, Redirect, Syntax, Template,
        TemplateText as Text, UrlPart,
    },
    geo::{Country, Place},
    http1::FieldList,
    route::ClientCertificate,
};
use bytes::Bytes;
use core::net::IpAddr;
use http::{HeaderName, HeaderValue, Method, header};
use std::{fmt::Write, sync::Arc};

const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What is known of a request, kept for a route that asks for it.
#[derive(Clone, Debug)]
pub(super) struct Values {
    certificate: Option<Arc<ClientCertificate>>,
    client: IpAddr,
    place: Place,
    host: Arc<str>,
    scheme: &'static str,
    port: u16,
    method: Method,
    /// As the client wrote it.
    path: Box<str>,
    query: Option<Box<str>>,
    id: Option<RequestId>,
}

/// What a rejection knows besides.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfRejection<'a> {
    pub(super) rule: &'a str,
    /// In seconds; `None`: never.
    pub(super) retry_after: Option<u64>,
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    /// What stands in a body.
    Body(Syntax),
    /// In a header: as it is. A value that no header can have leaves the field out.
    Header,
    /// In a URL.
    Url,
}

impl Values {
    /// Keeps what a route may ask for of a request.
    #[inline(never)]
    pub(super) fn of<B>(
        request: &Request<B>,
        asked: Asked<'_>,
        id: Option<&RequestId>,
        client: IpAddr,
        place: Place,
        peer: &Peer,
    ) -> Self {
        let Asked { scheme, port, host } = asked;
        let uri = request.uri();
        Self {
            certificate: peer.certificate().cloned(),
            client,
            place,
            host: Arc::clone(host),
            scheme,
            port,
            method: request.method().clone(),
            path: if uri.path().starts_with('/') { uri.path() } else { "/" }.into(),
            query: uri.query().map(Box::from),
            id: id.cloned(),
        }
    }

    /// Returns them with the path and the query of `target`.
    pub(super) fn with_target(&self, target: &str) -> Self {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.into())),
            None => (target, None),
        };
        Self { path: path.into(), query, ..self.clone() }
    }

    /// Returns where a redirect leads; `None` if that needs a host and the request has none.
    pub(super) fn location(&self, redirect: &Redirect) -> Option<HeaderValue> {
        if self.lacks_host(&redirect.to) {
            return None;
        }
        let mut url = self.url(redirect);
        // A browser takes what follows two slashes for a host: only the file may name one.
        let first = redirect.to.0.first();
        let names_host = matches!(first, Some(Piece::Text(text)) if text.starts_with("//"));
        let is_path = url.starts_with('/') || matches!(first, Some(Piece::Group(_)));
        if is_path && !names_host {
            let path = url.trim_start_matches(['/', '\\']);
            url = format!("/{path}");
        }
        if redirect.keeps_query {
            self.write(Placeholder::Query, None, Escape::Url, &mut url);
        }
        HeaderValue::try_from(url).ok()
    }

    /// True if a template needs a host and the request has none.
    fn lacks_host(&self, template: &Template) -> bool {
        let names_host =
            |piece: &Piece| matches!(piece, Piece::Value(Placeholder::Host | Placeholder::Url));
        self.host.is_empty() && template.0.iter().any(names_host)
    }

    /// Writes where a redirect leads, with the groups of the path that it names.
    fn url(&self, redirect: &Redirect) -> String {
        let groups = redirect.groups.as_ref().and_then(|groups| groups.find(&self.path));
        let mut url = String::with_capacity(128);
        for piece in &redirect.to.0 {
            match piece {
                Piece::Text(text) => url.push_str(text),
                Piece::Value(value) => self.write(*value, None, Escape::Url, &mut url),
                Piece::Group(piece) => {
                    let text = groups.as_ref().map(|groups| groups.get(&piece.group));
                    write_group(text.unwrap_or_default(), piece.place, &mut url);
                }
            }
        }
        url
    }

    fn written(&self, template: &Template, of: Option<OfRejection<'_>>, escape: Escape) -> String {
        let mut text = String::with_capacity(128);
        for piece in &template.0 {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Value(value) => self.write(*value, of, escape, &mut text),
                // Only redirects have groups.
                Piece::Group(_) => {}
            }
        }
        text
    }

    fn write(
        &self,
        value: Placeholder,
        of: Option<OfRejection<'_>>,
        escape: Escape,
        out: &mut String,
    ) {
        let certificate = self.certificate.as_deref();
        // Writing to a String does not fail.
        _ = match value {
            Placeholder::ClientCertFingerprint => {
                out.write_str(certificate.map_or("", |shown| &shown.fingerprint))
            }
            Placeholder::ClientCertSubject => {
                escape.write(certificate.map_or("", |shown| &shown.subject), out)
            }
            Placeholder::Country => {
                out.write_str(self.place.country.as_ref().map_or("", Country::as_str))
            }
            Placeholder::Asn => self.place.asn.map_or(Ok(()), |asn| write!(out, "{asn}")),
            Placeholder::ClientIp => write!(out, "{}", self.client),
            Placeholder::RetryAfter => match of.and_then(|of| of.retry_after) {
                Some(seconds) => write!(out, "{seconds}"),
                None => {
                    out.write_str(if escape == Escape::Body(Syntax::Json) { "null" } else { "" })
                }
            },
            Placeholder::Rule => out.write_str(of.map_or("", |of| of.rule)),
            Placeholder::RequestId => {
                escape.write(self.id.as_ref().map_or("", RequestId::as_str), out)
            }
            Placeholder::Scheme => out.write_str(self.scheme),
            Placeholder::Port => write!(out, "{}", self.port),
            Placeholder::Host => escape.write(&self.host, out),
            Placeholder::Method => escape.write(self.method.as_str(), out),
            Placeholder::Path => escape.write(&self.path, out),
            // Who follows a parameter takes what follows two slashes for a host.
            Placeholder::Uri if escape == Escape::Url => {
                let uri = self.uri();
                let path = uri.trim_start_matches(['/', '\\']);
                escape.write_value(&format!("/{path}"), out)
            }
            Placeholder::Uri => escape.write(&self.uri(), out),
            Placeholder::Url => escape.write_value(&self.whole(), out),
            Placeholder::Query => match &self.query {
                Some(query) => out.write_char('?').and_then(|()| escape.write(query, out)),
                None => Ok(()),
            },
        };
    }

    /// Returns the path with the query.
    fn uri(&self) -> String {
        let mut uri = self.path.to_string();
        if let Some(query) = &self.query {
            uri.extend(["?", query]);
        }
        uri
    }

    /// Returns the whole URL.
    fn whole(&self) -> String {
        let Self { scheme, host, port, .. } = self;
        let uri = self.uri();
        if *port == usual_port(scheme) {
            format!("{scheme}://{host}{uri}")
        } else {
            format!("{scheme}://{host}:{port}{uri}")
        }
    }
}

/// Returns the port that URLs of a scheme leave out.
fn usual_port(scheme: &str) -> u16 {
    if scheme == "https" { 443 } else { 80 }
}

/// The way in which a client asks for a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    scheme: &'static str,
    port: u16,
    host: &'a Arc<str>,
}

impl<'a> Asked<'a> {
    /// Returns it for a request with these fields. A trusted proxy knows better.
    pub(super) fn of(
        headers: &FieldList,
        peer: &Peer,
        authority: &'a Authority,
        is_trusted: bool,
    ) -> Self {
        let scheme = scheme(headers, peer, is_trusted);
        let read = |text: &[u8]| -> Option<u16> { str::from_utf8(text).ok()?.trim().parse().ok() };
        let said = headers.get(&X_FORWARDED_PORT).filter(|_| is_trusted).and_then(read);
        let value = authority.value.as_bytes();
        // Behind the colons of an IPv6 address, which stands in brackets.
        let own = || {
            let at = value.iter().rposition(|byte| matches!(byte, b':' | b']'))?;
            (value.get(at) == Some(&b':')).then(|| read(value.get(at + 1..)?)).flatten()
        };
        let port = said.or_else(own).unwrap_or_else(|| usual_port(scheme));
        Self { scheme, port, host: &authority.host }
    }
}

/// Returns the scheme that a client uses: a trusted proxy knows better.
pub(super) fn scheme(headers: &FieldList, peer: &Peer, is_trusted: bool) -> &'static str {
    let said = headers.get(&X_FORWARDED_PROTO).filter(|_| is_trusted);
    let scheme = said.unwrap_or(peer.scheme.as_bytes());
    if scheme.eq_ignore_ascii_case(b"https") { "https" } else { "http" }
}

impl Escape {
    fn write(self, text: &str, out: &mut String) -> core::fmt::Result {
        match self {
            Self::Header | Self::Body(Syntax::Plain) => out.write_str(text),
            Self::Body(Syntax::Json) => text.chars().try_for_each(|c| match c {
                '"' | '\\' => write!(out, "\\{c}"),
                // These could end a script that JSON stands in, or a string of JavaScript.
                c if c.is_control()
                    || matches!(
                        c,
                        '<' | '>' | '&' | '\'' | '`' | '$' | '\u{2028}' | '\u{2029}'
                    ) =>
                {
                    write!(out, "\\u{:04x}", u32::from(c))
                }
                c => out.write_char(c),
            }),
            Self::Body(Syntax::Markup) => text.chars().try_for_each(|c| match c {
                '&' | '<' | '>' | '"' | '\'' => write!(out, "&#{};", u32::from(c)),
                c => out.write_char(c),
            }),
            Self::Url => text.bytes().try_for_each(|byte| match byte {
                byte if is_url_byte(byte) => out.write_char(char::from(byte)),
                byte => write!(out, "%{byte:02X}"),
            }),
        }
    }

    /// Writes a URL: in another URL, as the value of a parameter.
    fn write_value(self, text: &str, out: &mut String) -> core::fmt::Result {
        if self != Self::Url {
            return self.write(text, out);
        }
        // All but what RFC 3986, 2.3, never reserves: who reads the parameter decodes it once.
        text.bytes().try_for_each(|byte| match byte {
            b'-' | b'.' | b'_' | b'~' => out.write_char(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => out.write_char(char::from(byte)),
            byte => write!(out, "%{byte:02X}"),
        })
    }
}

/// Returns a field's value, or `None` if what it asks for is not allowed in a header.
pub(super) fn header(text: &HeaderText, values: Option<&Values>) -> Option<HeaderValue> {
    match text {
        Text::Plain(value) => Some(value.clone()),
        Text::Template(template) => {
            let written = values?.written(template, None, Escape::Header);
            HeaderValue::from_maybe_shared(Bytes::from(written)).ok()
        }
    }
}

/// Returns a body.
pub(super) fn body(body: &Body, values: Option<&Values>, of: Option<OfRejection<'_>>) -> Bytes {
    match (&body.text, values) {
        (Text::Plain(bytes), _) => bytes.clone(),
        (Text::Template(template), Some(values)) => {
            values.written(template, of, Escape::Body(body.syntax)).into()
        }
        (Text::Template(_), None) => Bytes::new(),
    }
}

/// The fields of a request that the gateway writes itself, and whose names have more than one spelling.
/// Only an edit of exactly such a name changes one.
const OF_GATEWAY: [&str; 6] = [
    "content-length",
    "transfer-encoding",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-request-id",
];

/// Applies what a route says about the fields of a request: of those that servers read alike, only the one
/// that the route sets is left.
pub(super) fn edit_request(headers: &mut FieldList, edits: &HeaderEdits, values: Option<&Values>) {
    if !edits.remove.is_empty() || !edits.set.is_empty() {
        apply_to_request(headers, edits, values);
    }
}

#[inline(never)]
fn apply_to_request(headers: &mut FieldList, edits: &HeaderEdits, values: Option<&Values>) {
    // All are removed before any is written: two that are set may be alike.
    for name in edits.remove.iter().chain(edits.set.iter().map(|(name, _)| name)) {
        headers.remove_alike(name, &OF_GATEWAY);
    }
    for (name, text) in &edits.set {
        if let Some(value) = header(text, values) {
            headers.append(name, value);
        }
    }
}

/// Applies what a route says about the fields of a response on its way through.
pub(super) fn edit(headers: &mut FieldList, edits: &HeaderEdits, values: Option<&Values>) {
    if !edits.remove.is_empty() || !edits.set.is_empty() {
        apply(headers, edits, values);
    }
}

#[inline(never)]
fn apply(headers: &mut FieldList, edits: &HeaderEdits, values: Option<&Values>) {
    for name in &edits.remove {
        headers.remove(name);
    }
    for (name, text) in &edits.set {
        match header(text, values) {
            Some(value) => headers.insert(name, value),
            None => headers.remove(name),
        }
    }
}

/// Writes fields in place of all that servers read alike. Returns false if one of them cannot be written:
/// it needs a host and the request has none, or no field can have its value.
pub(super) fn replace(
    headers: &mut FieldList,
    fields: &[(HeaderName, HeaderText)],
    values: Option<&Values>,
) -> bool {
    fields.iter().all(|(name, text)| {
        headers.remove_alike(name, &[]);
        let lacks_host = match text {
            Text::Plain(_) => false,
            Text::Template(template) => values.is_some_and(|values| values.lacks_host(template)),
        };
        let value = header(text, values).filter(|_| !lacks_host);
        value.map(|value| headers.append(name, value)).is_some()
    })
}

/// Fields that describe the upstream's content. An error of the gateway's own must not be taken
/// for that, nor kept by a cache.
const OF_CONTENT: [HeaderName; 8] = [
    header::CACHE_CONTROL,
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_TYPE,
    header::ETAG,
    header::EXPIRES,
    header::LAST_MODIFIED,
];

/// Adds to a response of the gateway's own what the route sets in all responses. Fields that the response
/// has already stay as they are.
pub(super) fn add_to_own(
    is_error: bool,
    headers: &mut FieldList,
    edits: &HeaderEdits,
    values: Option<&Values>,
) {
    for (name, text) in &edits.set {
        if headers.contains_key(name) || (is_error && OF_CONTENT.contains(name)) {
            continue;
        }
        if let Some(value) = header(text, values) {
            headers.insert(name, value);
        }
    }
}

/// Writes the text of a group into the part `place` of a URL.
fn write_group(text: &[u8], place: UrlPart, out: &mut String) {
    if place == UrlPart::AfterHost && !text.starts_with(b"/") {
        out.push('/');
    }
    for byte in text {
        if is_kept(*byte, place) {
            out.push(char::from(*byte));
        } else {
            // Writing to a String does not fail.
            _ = write!(out, "%{byte:02X}");
        }
    }
}

/// Returns whether a byte has no other meaning in this part of a URL. A `%` begins an escape of the
/// client's.
fn is_kept(byte: u8, place: UrlPart) -> bool {
    let is_separator = match byte {
        b'?' | b'#' => true,
        b'&' | b'+' | b';' => place == UrlPart::Query,
        _ => false,
    };
    is_url_byte(byte) && !is_separator
}

/// Returns whether a byte may stand in a URL as it is.
const fn is_url_byte(byte: u8) -> bool {
    let is_odd = matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}');
    byte.is_ascii_graphic() && !is_odd
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(text: &[u8], place: UrlPart) -> String {
        let mut out = String::new();
        write_group(text, place, &mut out);
        out
    }

    #[test]
    fn what_would_end_a_part_of_the_url_is_escaped() {
        use UrlPart::{AfterHost, Path, Query};
        for (text, place, expected) in [
            ("a/b", Path, "a/b"),
            ("a?b#c&d", Path, "a%3Fb%23c&d"),
            ("a%0d%0Ab", Path, "a%0d%0Ab"),
            ("a\r\nb \"\\", Path, "a%0D%0Ab%20%22%5C"),
            ("a&b=c+d;e%26", Query, "a%26b=c%2Bd%3Be%26"),
            ("", AfterHost, "/"),
            (".evil.example", AfterHost, "/.evil.example"),
            ("@evil.example", AfterHost, "/@evil.example"),
            ("/a", AfterHost, "/a"),
        ] {
            assert_eq!(written(text.as_bytes(), place), expected, "{text:?} {place:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_changes_the_host_or_begins_another_part(text: Vec<u8>) {
            for place in [UrlPart::AfterHost, UrlPart::Path, UrlPart::Query] {
                let written = written(&text, place);
                prop_assert!(written.bytes().all(|byte| byte.is_ascii_graphic()));
                prop_assert!(!written.contains(['?', '#', '\\']));
            }
            prop_assert!(written(&text, UrlPart::AfterHost).starts_with('/'));
            prop_assert!(!written(&text, UrlPart::Query).contains(['&', '+', ';']));
        }
    }
}
