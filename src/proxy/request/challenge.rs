//! HTTP-01 (RFC 8555, section 8.3): an authority of certificates asks for a text that this gateway, or
//! another one with the same folder, has placed. It comes before routes, redirects and rules.

use super::{
    Decided,
    received::{Received, written},
};
use crate::proxy::{
    body::ClientBody,
    message::{Request, Response},
    record::Completion,
    response::own_response::finish,
};
use crate::{
    acme,
    config::{Acme, Snapshot},
};
use core::time::Duration;
use http::{HeaderValue, Method, StatusCode, header::CONTENT_TYPE};
use http_body::Body as _;
use std::sync::Arc;

/// The longest time that the disk may take. Then the request is like any other.
const READ_LIMIT: Duration = Duration::from_secs(5);

const TEXT: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// A request that an authority may have sent.
pub(crate) struct Challenged {
    acme: Arc<Acme>,
    token: String,
    snapshot: Arc<Snapshot>,
    request: Request<ClientBody>,
    completion: Box<Completion>,
}

/// Returns the authority and the token, if an authority may have sent the request.
pub(super) fn asked(
    snapshot: &Snapshot,
    request: &Request<ClientBody>,
) -> Option<(Arc<Acme>, String)> {
    let acme = snapshot.settings.acme.as_ref()?;
    let token = acme::token(written(request))?;
    let is_question = matches!(*request.method(), Method::GET | Method::HEAD);
    let is_whole = request.body().is_end_stream();
    (is_question && is_whole).then(|| (Arc::clone(acme), token.to_owned()))
}

impl Challenged {
    pub(super) fn new(
        question: (Arc<Acme>, String),
        snapshot: Arc<Snapshot>,
        request: Request<ClientBody>,
        completion: Box<Completion>,
    ) -> Self {
        let (acme, token) = question;
        Self { acme, token, snapshot, request, completion }
    }

    /// Responds with what was placed; or lets the routes decide, if nothing was. A server behind the
    /// gateway may get certificates of its own.
    pub(super) async fn respond(self) -> Decided {
        let Self { acme, token, snapshot, request, completion } = self;
        let worker = Arc::clone(&completion.peer.worker);
        let reading = worker.challenges.key_authorization(&acme.folder, &token);
        let read = worker.clock.timeout(READ_LIMIT, reading).await;

        let Some(text) = read.ok().flatten() else {
            let now = completion.peer.read_clock();
            return Received::after_auth(&snapshot, request, None, now, completion).decide_routed();
        };
        drop(request);
        let mut head = completion.peer.spare_heads.response();
        head.status = StatusCode::OK;
        head.headers.extend([(CONTENT_TYPE, TEXT)]);
        Decided::Responded(finish(Response::from_parts(head, ()), text, completion))
    }
}
