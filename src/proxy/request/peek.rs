//! A request whose rules look at its JSON body: its beginning is held back until the members are known.
//!
//! A body that is no JSON object is given up at the first byte that shows that, and a body that is longer than
//! `limits.peek_body` at that length. Such a request is as one without the members. Its body is passed on.

use super::{
    Decided,
    received::{Found, Received},
};
use crate::proxy::{
    body::{ClientBody, Peek},
    gateway_error::{Failure, GatewayError},
    message::{Request, grpc},
    record::Completion,
    timeouts::timeout::Timeout,
};
use crate::{
    config::Snapshot,
    http1::FieldKind,
    route::{Identity, MemberPaths},
};
use core::future::poll_fn;
use http::header::CONTENT_ENCODING;
use http_body::Body;
use std::sync::Arc;

/// A request that waits until its body is there.
pub(crate) struct Peeking {
    found: Found,
    snapshot: Arc<Snapshot>,
    /// Without its body.
    request: Request<ClientBody>,
    peek: Peek,
    identity: Option<Identity>,
    completion: Box<Completion>,
}

/// Returns whether a body may have members for keys: there is one of a length that is held back, as it is
/// written, and not that of a call of gRPC, which may wait for a response. Its content type says nothing
/// more, because servers may not look at that.
pub(super) fn may_have_members(request: &Request<ClientBody>, most: usize) -> bool {
    let body = request.body();
    if matches!(body, ClientBody::Empty | ClientBody::Peeked(_)) {
        return false;
    }
    let headers = request.headers();
    let mut encodings = headers.get_all(&CONTENT_ENCODING);
    body.size_hint().lower() <= most as u64
        && encodings.all(|encoding| encoding.trim_ascii().eq_ignore_ascii_case(b"identity"))
        && !headers.first(FieldKind::ContentType).is_some_and(grpc::is_grpc)
}

impl Peeking {
    /// Begins to hold back the body of a request, whose rules look at `paths`.
    pub(super) fn new(
        found: Found,
        paths: Arc<MemberPaths>,
        snapshot: Arc<Snapshot>,
        mut request: Request<ClientBody>,
        identity: Option<Identity>,
        completion: Box<Completion>,
    ) -> Self {
        let body = core::mem::replace(request.body_mut(), ClientBody::Empty);
        let expects = request.headers().set().has(FieldKind::Expect);
        let expectation = completion.arrival.stream.clone().filter(|_| expects);
        let peek = Peek::new(body, paths, snapshot.settings.limits.peek_body, expectation);
        Self { found, snapshot, request, peek, identity, completion }
    }

    /// Reads the body, and has the rules decide.
    ///
    /// Dropping the future drops the body with the request.
    pub(super) async fn read(self) -> Decided {
        let Self { found, snapshot, mut request, mut peek, identity, mut completion } = self;
        let peer = Arc::clone(&completion.peer);
        let clock = &peer.worker.clock;
        let began = clock.now();
        let header_read = snapshot.settings.timeouts.header_read;
        let whole = found.route.options.timeouts.request;
        let whole = whole.map(|limit| (completion.arrival.at + limit).since(began));
        let limit = whole.map_or(header_read, |whole| whole.min(header_read));
        let read = clock.timeout(limit, poll_fn(|context| peek.poll(context))).await;

        let (body, members) = peek.finish();
        *request.body_mut() = body;
        if read.is_err() {
            let is_short = limit < header_read;
            let setting = if is_short { Timeout::Request } else { Timeout::HeaderRead };
            completion.upstream.timeout = Some(setting);
        }
        let now = clock.now();
        let received = Received::after_auth(&snapshot, request, identity, now, completion);
        match read {
            Ok(Ok(())) => received.with_members(members).decide_known(found),
            Ok(Err(_)) => received.respond(GatewayError::Upstream(Failure::ClientBroken)),
            Err(_) => received.respond(GatewayError::Upstream(Failure::ClientStalled)),
        }
    }
}
