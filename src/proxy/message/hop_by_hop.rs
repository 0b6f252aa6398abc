//! Fields that are between two neighbours only, and those that no trailer may have.

use super::{grpc::is_grpc, request_id::X_REQUEST_ID};
use crate::{
    config::{HeaderEdits, Route, Snapshot},
    http1::{FieldKind, FieldList, FieldSet, folded_name},
    traces::{TRACEPARENT, TRACESTATE},
};
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, FORWARDED, HOST, PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    },
};
use std::sync::Arc;

pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(crate) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The fields that say where a request comes from, in lower case.
pub(crate) const FORWARDED_FIELDS: [&str; 3] =
    ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"];

/// Fields that `Connection` may not name: a client could take them away from the
/// upstream, which relies on them (RFC 9110, 7.6.1: "intended for all recipients").
const PROTECTED: [HeaderName; 10] = [
    HOST,
    CONTENT_LENGTH,
    COOKIE,
    X_FORWARDED_FOR,
    X_FORWARDED_HOST,
    X_FORWARDED_PROTO,
    FORWARDED,
    X_REQUEST_ID,
    TRACEPARENT,
    TRACESTATE,
];

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Fields that mean something between two neighbours only (RFC 9110, 7.6.1; RFC 7540,
/// 3.2.1), and the framing, which is made anew on each side.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HTTP2_SETTINGS,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Removes what was meant for this gateway only. `fields` is what `headers` has.
pub(crate) fn strip_hop_by_hop(headers: &mut FieldList, fields: FieldSet) {
    if !fields.has_hop_by_hop() {
        return;
    }
    if fields.has_options() {
        for name in named_by_connection(headers.all(FieldKind::Connection)) {
            headers.remove(&name);
        }
    }
    headers.remove_kinds(FieldKind::is_hop_by_hop);
}

/// Returns the fields that values of `Connection` name, and may.
fn named_by_connection<'a>(lists: impl Iterator<Item = &'a [u8]>) -> Vec<HeaderName> {
    let options = lists.flat_map(|list| list.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let names = options.filter(|option| !is_plain_option(option));
    let names = names.filter_map(|name| HeaderName::from_bytes(name).ok());
    names.filter(|name| !PROTECTED.contains(name)).collect()
}

/// Returns whether the client takes trailers (RFC 9110, 10.1.4).
#[inline(never)]
pub(crate) fn accepts_trailers(headers: &FieldList) -> bool {
    let mut codings = headers.get_all(&TE).flat_map(|line| line.split(|byte| *byte == b','));
    codings.any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// Returns the trailers that a head with these fields announces.
pub(crate) fn announced(headers: &FieldList) -> Vec<HeaderName> {
    if !headers.set().has(FieldKind::Trailer) {
        return Vec::new();
    }
    let names = headers.get_all(&TRAILER).flat_map(|line| line.split(|byte| *byte == b','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
}

/// Removes from trailers what their head could not have said either, `written` by the gateway
/// itself among it: whoever merges the two would take it for the gateway's word.
pub(crate) fn strip_trailers(
    trailers: &mut HeaderMap,
    edits: &HeaderEdits,
    written: &[HeaderName],
) {
    let named = named_by_connection(trailers.get_all(CONNECTION).iter().map(HeaderValue::as_bytes));
    let set = edits.set.iter().map(|(name, _)| name);
    for name in named
        .iter()
        .chain(&HOP_BY_HOP)
        .chain(&PROTECTED)
        .chain(written)
        .chain(&edits.remove)
        .chain(set)
    {
        trailers.remove(name);
    }
}

fn is_plain_option(option: &[u8]) -> bool {
    const PLAIN: [&[u8]; 4] = [b"close", b"keep-alive", b"upgrade", b"te"];
    PLAIN.iter().any(|plain| option.eq_ignore_ascii_case(plain))
}

/// Fields that name the client, what it requests, and how to handle that.
const HANDLING: &[&str] = &[
    "age",
    "authorization",
    "cache-control",
    "connection",
    "cookie",
    "cookie2",
    "date",
    "depth",
    "destination",
    "expect",
    "forwarded",
    "from",
    "host",
    "keep-alive",
    "max-forwards",
    "origin",
    "overwrite",
    "pragma",
    "range",
    "referer",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "true-client-ip",
    "upgrade",
    "user-agent",
    "via",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-real-ip",
    "x-request-id",
];

/// The beginnings of the names of others.
const HANDLING_PREFIXES: &[&str] = &[
    "accept",
    "access-control-",
    "cf-connecting-",
    "content-",
    "if-",
    "proxy-",
    "sec-",
    "x-forwarded",
    "x-http-method",
    "x-method",
    "x-original",
    "x-rewrite",
];

/// The trailers of a request that may have some.
#[derive(Debug)]
pub(crate) struct RequestTrailers {
    /// The fields that decide about requests.
    deciding: Arc<[Box<str>]>,
    /// The fields that the head announces.
    announced: Vec<HeaderName>,
    route: Arc<Route>,
}

impl RequestTrailers {
    /// Returns what filters the trailers of a request with these `headers`, or `None` if they are
    /// all dropped: they mean something to gRPC, or where the route says so.
    pub(crate) fn of(headers: &FieldList, snapshot: &Snapshot, route: &Arc<Route>) -> Option<Self> {
        let is_of_grpc = || headers.get(&CONTENT_TYPE).is_some_and(is_grpc);
        (route.options.request_trailers || is_of_grpc()).then(|| Self {
            deciding: Arc::clone(&snapshot.deciding_headers),
            announced: announced(headers),
            route: Arc::clone(route),
        })
    }

    /// Returns whether they may go to a server of HTTP/2: nginx ends the connection, with all its requests, at
    /// the trailers of one. No client of gRPC sends any.
    pub(crate) fn pass_in_http2(&self) -> bool {
        self.route.options.request_trailers
    }

    /// Removes what the upstream may not receive.
    pub(crate) fn filter(&self, trailers: &mut HeaderMap) {
        strip_trailers(trailers, &self.route.options.request_headers, &[]);
        // HTTP/2 lets a `"` pass, which no server of HTTP/1.1 takes in a name.
        let unfit = |name: &&HeaderName| {
            name.as_str().contains('"')
                || !self.announced.contains(name)
                || !self.passes(name.as_str())
        };
        let unfit: Vec<HeaderName> = trailers.keys().filter(unfit).cloned().collect();
        for name in unfit {
            trailers.remove(name);
        }
    }

    fn passes(&self, name: &str) -> bool {
        let name = folded_name(name);
        let edits = &self.route.options.request_headers;
        let mut edited = edits.remove.iter().chain(edits.set.iter().map(|(name, _)| name));
        let decides = self.deciding.binary_search_by(|known| (**known).cmp(&name)).is_ok();
        !decides
            && !HANDLING.contains(&name.as_str())
            && !HANDLING_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            && !edited.any(|edited| folded_name(edited.as_str()) == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_are_accepted_in_any_line_of_te() {
        for (lines, expected) in [
            (&["trailers"][..], true),
            (&["gzip", "trailers"], true),
            (&["gzip;q=0.5, Trailers"], true),
            (&["gzip", "deflate"], false),
            (&["trailers;q=1"], false),
        ] {
            let fields = lines.iter().map(|line| (TE, HeaderValue::from_static(line)));
            assert_eq!(accepts_trailers(&fields.collect()), expected, "{lines:?}");
        }
    }
}
