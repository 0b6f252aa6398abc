//! Fields that are between two neighbours only, and those that no trailer may have.

use super::{
    fields::{Fields, HOP_BY_HOP},
    request_id::X_REQUEST_ID,
};
use crate::http1::{self, FieldList};
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
pub(crate) fn strip_hop_by_hop(headers: &mut FieldList, fields: Fields) {
    if !fields.has_hop_by_hop() {
        return;
    }
    for name in named_by_connection((&*headers).into()).iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Returns the fields that `Connection` names, and may.
fn named_by_connection(fields: http1::Fields<'_>) -> Vec<HeaderName> {
    let lists = fields.get_all(CONNECTION.as_str());
    let options = lists.flat_map(|list| list.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let names = options.filter(|option| !is_plain_option(option));
    let names = names.filter_map(|name| HeaderName::from_bytes(name).ok());
    names.filter(|name| !PROTECTED.contains(name)).collect()
}

/// Removes from trailers what their head could not have said either, `written` by the gateway
/// itself among it: whoever merges the two would take it for the gateway's word.
pub(crate) fn strip_trailers(
    trailers: &mut HeaderMap,
    edits: &HeaderEdits,
    written: &[HeaderName],
) {
    let named = named_by_connection((&*trailers).into());
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
