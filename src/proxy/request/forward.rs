//! The head of a request as its server gets it: without fields that are between two neighbours, and with
//! those that a proxy adds.

use super::{attempt::UpstreamRequest, mirror::Mirroring};
use crate::proxy::{
    body::RequestBody,
    message::{
        Request, RequestHead,
        hop_by_hop::{
            FORWARDED_FIELDS, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO,
            accepts_trailers, strip_hop_by_hop,
        },
    },
    peer::{Authority, Peer},
    placeholders,
    upstream::proxy_header::Proxied,
};
use crate::{
    config::Server,
    http1::{FieldKind, FieldList, FieldSet},
    route::NO_ADDRESS,
    traces::TRACEPARENT,
};
use core::net::IpAddr;
use http::{
    HeaderName, HeaderValue, Method, StatusCode, Uri, Version,
    header::{
        CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, TE, TRAILER, UPGRADE, VIA,
    },
    uri::PathAndQuery,
};
use std::sync::Arc;

/// What a request is forwarded with. It is moved often: rare parts are in boxes, so that it is small.
pub(crate) struct Forward {
    /// The authority that the route was found by, with its port: it becomes
    /// `Host`, wherever it came from.
    pub(crate) authority: Arc<Authority>,
    /// What decides about its server, if the upstream assigns keys to servers.
    pub(crate) key: Option<u64>,
    /// The header of the PROXY protocol about its client, if the server gets one.
    pub(crate) proxied: Option<Box<Option<Proxied>>>,
    /// There if the request is copied for a mirror.
    pub(crate) mirror: Option<Box<Mirroring>>,
    /// The protocol that the request may change to.
    pub(crate) upgrade: Option<Box<HeaderValue>>,
    /// True if the peer is one of `trusted_proxies`.
    pub(crate) trusted: bool,
    /// What the request has.
    pub(crate) fields: FieldSet,
    /// The target, if another one than the client's is sent.
    pub(crate) target: Option<Box<PathAndQuery>>,
    /// True if trailers may be passed on.
    pub(crate) trailers: bool,
    /// What is added as `Via`.
    pub(crate) via: Option<Arc<HeaderValue>>,
}

/// Rewrites a request's target and fields for an HTTP/1.1 upstream. `host` is another `Host` to send.
pub(crate) fn prepare<B>(
    request: &mut Request<B>,
    peer: &Peer,
    forward: &Forward,
    host: Option<&HeaderValue>,
) {
    let &Forward { ref authority, ref upgrade, trusted, fields, .. } = forward;
    let full = request.uri().authority().is_some();
    let version = request.version();
    let RequestHead { headers, uri, sent_target, version: sent_as, .. } = request.head_mut();
    let wants_trailers = !fields.are_plain() && clean(headers, forward, version);

    // An authority in the target goes before a Host beside it.
    if !fields.has(FieldKind::Host) || full {
        headers.insert(HOST, &authority.value);
    }
    if trusted {
        append_forwarded(headers, peer, authority);
    } else {
        replace_forwarded(headers, authority);
    }

    if let Some(host) = host {
        headers.insert(HOST, host);
    }
    if let Some(via) = &forward.via {
        headers.append(VIA, &**via);
    }
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    if let Some(token) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, &**token);
    }

    if full || forward.target.is_some() || uri.path().is_empty() {
        *sent_target = Some(target(uri, forward));
    }
    *sent_as = Version::HTTP_11;
}

/// Removes and rewrites the fields that the upstream may not receive as they came. Returns whether
/// the client takes trailers.
#[inline(never)]
fn clean(headers: &mut FieldList, forward: &Forward, version: Version) -> bool {
    let &Forward { ref upgrade, trusted, fields, .. } = forward;
    let wants_trailers =
        fields.has(FieldKind::Te) && upgrade.is_none() && accepts_trailers(headers);
    strip_hop_by_hop(headers, fields);

    if fields.has(FieldKind::Expect) {
        headers.remove(&EXPECT);
    }
    if fields.repeats(FieldKind::Cookie) && version == Version::HTTP_2 {
        join_cookies(headers);
    }
    if fields.repeats(FieldKind::ContentLength) {
        single_content_length(headers);
    }
    if fields.has(FieldKind::Trailer) && !forward.trailers {
        headers.remove(&TRAILER);
    }

    if fields.have_blanks() {
        headers.trim();
    }
    if fields.has(FieldKind::Forwarded) && !trusted {
        headers.remove(&FORWARDED);
    }
    wants_trailers
}

/// Returns the target that is sent in place of `uri`.
#[inline(never)]
fn target(uri: &Uri, forward: &Forward) -> PathAndQuery {
    if let Some(target) = &forward.target {
        return PathAndQuery::clone(target);
    }
    // One that was a fragment only says that it is `/`, and is sent as nothing.
    let target = uri.path_and_query().filter(|target| target.as_str() != "/");
    let target = match target {
        Some(query) if query.as_str().starts_with('?') => {
            format!("/{}", query.as_str()).try_into().ok()
        }
        target => target.cloned(),
    };
    target.unwrap_or_else(|| PathAndQuery::from_static("/"))
}

/// HTTP/2 may send a cookie in pieces; HTTP/1.1 may not (RFC 9113, 8.2.3).
#[inline(never)]
pub(super) fn join_cookies(headers: &mut FieldList) {
    let pieces: Vec<&[u8]> = headers.get_all(&COOKIE).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&pieces.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

/// Says the length of a response once, and not where there can be none: a client of HTTP/2 takes
/// either for an error (RFC 9110, 8.6). `fields` is what `headers` has.
pub(crate) fn frame_response(status: StatusCode, headers: &mut FieldList, fields: FieldSet) {
    if status == StatusCode::NO_CONTENT {
        headers.remove(&CONTENT_LENGTH);
    } else if fields.repeats(FieldKind::ContentLength) {
        single_content_length(headers);
    }
}

/// Equal lengths, in several lines or in a list, are valid (RFC 9110, 8.6). Only one is forwarded.
#[inline(never)]
fn single_content_length(headers: &mut FieldList) {
    let first = headers.get(&CONTENT_LENGTH).and_then(|lengths| {
        let first = lengths.split(|byte| *byte == b',').next()?;
        HeaderValue::from_bytes(first.trim_ascii()).ok()
    });
    if let Some(length) = first {
        headers.insert(CONTENT_LENGTH, length);
    }
}

/// Names to the upstream the client of the request, beside what a trusted peer says about that. Such a
/// peer writes the usual names: other spellings are its client's.
#[inline(never)]
pub(super) fn append_forwarded(headers: &mut FieldList, peer: &Peer, authority: &Authority) {
    headers.remove_other_spellings(&FORWARDED_FIELDS);
    if peer.address != NO_ADDRESS {
        headers.append(X_FORWARDED_FOR, &peer.address_value);
    }
    if !headers.contains_key(&X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, &peer.scheme);
    }
    if !headers.contains_key(&X_FORWARDED_HOST) && !authority.value.is_empty() {
        headers.insert(X_FORWARDED_HOST, &authority.value);
    }
}

/// Has `headers` name in `X-Forwarded-For` the `client` that a trusted proxy has named in the field
/// `header`. Other addresses there are removed, because the client may have written them. The field of
/// a peer that is not trusted is removed, in every spelling that servers may read alike.
#[inline(never)]
pub(super) fn name_client(
    headers: &mut FieldList,
    header: &HeaderName,
    is_proxied: bool,
    peer: &Peer,
    client: IpAddr,
) {
    if !is_proxied {
        headers.remove_alike(header, &[]);
        return;
    }

    headers.remove_other_spellings(&[header.as_str()]);
    headers.remove(&X_FORWARDED_FOR);
    if client != peer.address
        && let Ok(address) = HeaderValue::try_from(client.to_string())
    {
        headers.append(X_FORWARDED_FOR, address);
    }
}

/// Names to the upstream the client of the request, in place of what that says about it, in every
/// spelling that servers read alike.
pub(super) fn replace_forwarded(headers: &mut FieldList, authority: &Authority) {
    for name in [&X_FORWARDED_FOR, &X_FORWARDED_PROTO, &X_FORWARDED_HOST] {
        headers.remove_alike(name, &[]);
    }
    headers.append_all(&authority.forwarded);
}

/// Returns the protocol that a request asks to change to, if it asks in form. Only WebSocket needs a
/// GET (RFC 6455, 4.1).
pub(crate) fn upgrade_token<B>(request: &Request<B>, fields: FieldSet) -> Option<HeaderValue> {
    let in_form = fields.has(FieldKind::Upgrade)
        && fields.has(FieldKind::Connection)
        && !fields.repeats(FieldKind::Upgrade)
        && (request.version() == Version::HTTP_11 || request.head().extended.is_some());
    if !in_form {
        return None;
    }
    let headers = request.headers();
    let lists = headers.get_all(&CONNECTION);
    let mut options = lists.flat_map(|list| list.split(|byte| *byte == b','));
    let asks = options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"upgrade"));
    let token = headers.value(&UPGRADE)?;
    let is_method = request.method() == Method::GET || !is_protocol(token.as_bytes(), "websocket");
    (asks && is_method).then_some(token)
}

/// Returns whether `token` names the protocol that is `listed`, in any version if the list names none
/// (RFC 9110, 7.8).
pub(crate) fn is_protocol(token: &[u8], listed: &str) -> bool {
    let Some((name, rest)) = token.split_at_checked(listed.len()) else { return false };
    name.eq_ignore_ascii_case(listed.as_bytes())
        && match rest {
            [] => true,
            [b'/', version @ ..] => {
                !listed.contains('/') && HeaderName::from_bytes(version).is_ok()
            }
            _ => false,
        }
}

impl UpstreamRequest<'_> {
    /// Makes the client's request the upstream's. Returns whether it does no harm to send it again.
    pub(super) fn prepare(&self, request: &mut Request<RequestBody>) -> bool {
        if self.forward.fields.has(FieldKind::Expect)
            && let Some(stream) = self.stream
        {
            request.body_mut().expect(stream);
        }

        let is_repeatable = matches!(request.body(), RequestBody::Empty)
            && self.forward.upgrade.is_none()
            && match &self.route.options.retry {
                None => is_safe(request.method()),
                Some(policy) => policy.methods.contains(request.method()),
            };

        let rewrite = self.route.options.rewrite.as_ref();
        let host = rewrite.and_then(|rewrite| rewrite.host.as_ref());
        prepare(request, self.peer, self.forward, host);

        let edits = &self.route.options.request_headers;
        let RequestHead { headers, trace, .. } = request.head_mut();
        if trace.is_some()
            && edits.names(&TRACEPARENT)
            && let Some(trace) = trace.take()
        {
            headers.insert(&TRACEPARENT, trace.header());
        }
        placeholders::edit_request(headers, edits, self.values);
        is_repeatable
    }

    /// Notes the server before it is asked, as the client may leave at any time.
    pub(super) fn begin_attempt(
        &mut self,
        server: &Arc<Server>,
        request: &mut Request<RequestBody>,
    ) {
        self.attempts += 1;
        self.timeout = None;
        if self.forward.authority.value.is_empty() {
            self.name_host(server, request);
        }
        self.observers.note_attempt(&self.peer.worker, server, self.attempts, request);
    }

    /// Gives a request of HTTP/1.0 that names no host the server's address as its `Host`, unless the
    /// route sets another.
    #[cold]
    fn name_host(&self, server: &Server, request: &mut Request<RequestBody>) {
        let rewrite = self.route.options.rewrite.as_ref();
        if rewrite.is_none_or(|rewrite| rewrite.host.is_none())
            && let Ok(host) = HeaderValue::try_from(server.host_field())
        {
            request.headers_mut().insert(HOST, host);
        }
    }
}

/// Safe methods (RFC 9110, 9.2.1) that the gateway serves.
fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}
