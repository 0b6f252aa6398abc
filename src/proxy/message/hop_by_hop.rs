//! Fields that are between two neighbours only, and those that no trailer may have.

use super::{
    fields::{Fields, HOP_BY_HOP},
    request_id::X_REQUEST_ID,
};
use crate::{
    config::HeaderEdits,
    traces::{TRACEPARENT, TRACESTATE},
};
use http::{
    HeaderMap, HeaderName,
    header::{CONNECTION, CONTENT_LENGTH, COOKIE, FORWARDED, HOST},
};

pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(crate) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

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

/// Removes what was meant for this gateway only. `fields` is what `headers` has.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap, fields: Fields) {
    if !fields.has_hop_by_hop() {
        return;
    }
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .filter(|name| !is_plain_option(name.trim()))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .filter(|name| !PROTECTED.contains(name))
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Removes from trailers what their head could not have said either, `written` by the gateway
/// itself among it: whoever merges the two would take it for the gateway's word.
pub(crate) fn strip_trailers(
    trailers: &mut HeaderMap,
    edits: &HeaderEdits,
    written: &[HeaderName],
) {
    strip_hop_by_hop(trailers, Fields::of(trailers));
    let set = edits.set.iter().map(|(name, _)| name);
    for name in PROTECTED.iter().chain(written).chain(&edits.remove).chain(set) {
        trailers.remove(name);
    }
}

fn is_plain_option(option: &str) -> bool {
    ["close", "keep-alive", "upgrade", "te"].iter().any(|plain| option.eq_ignore_ascii_case(plain))
}
