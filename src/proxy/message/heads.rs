//! Requests and responses on their way through, whichever version of HTTP their neighbours speak, and the
//! memory that their heads leave for the next ones.

use crate::{http1::FieldList, proxy::timeouts::streams::Part, traces::TraceContext};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use h2::{RecvStream, SendStream};
use http::{Method, StatusCode, Uri, Version, uri::PathAndQuery};
use hyper::ext::ReasonPhrase;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// A request with a body. Its head is in a box because it is large, and moved often.
#[derive(Debug)]
pub(crate) struct Request<B> {
    head: Box<RequestHead>,
    body: B,
}

/// The head of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    /// The client's.
    pub(crate) uri: Uri,
    /// The target that is sent, if it is not the client's.
    pub(crate) sent_target: Option<PathAndQuery>,
    pub(crate) version: Version,
    pub(crate) headers: FieldList,
    /// The client's side of a tunnel over HTTP/2.
    pub(crate) extended: Option<ExtendedConnect>,
    /// The trace that its server is to receive, which is not among the headers.
    pub(crate) trace: Option<TraceContext>,
}

impl<B> Request<B> {
    pub(crate) fn from_parts(head: Box<RequestHead>, body: B) -> Self {
        Self { head, body }
    }

    pub(crate) fn into_parts(self) -> (Box<RequestHead>, B) {
        (self.head, self.body)
    }

    pub(crate) fn head(&self) -> &RequestHead {
        &self.head
    }

    pub(crate) fn head_mut(&mut self) -> &mut RequestHead {
        &mut self.head
    }

    pub(crate) fn method(&self) -> &Method {
        &self.head.method
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.head.uri
    }

    /// Returns the target that is sent to the server.
    pub(crate) fn target(&self) -> Option<&PathAndQuery> {
        self.head.sent_target.as_ref().or_else(|| self.head.uri.path_and_query())
    }

    pub(crate) fn version(&self) -> Version {
        self.head.version
    }

    pub(crate) fn headers(&self) -> &FieldList {
        &self.head.headers
    }

    pub(crate) fn headers_mut(&mut self) -> &mut FieldList {
        &mut self.head.headers
    }

    pub(crate) fn body(&self) -> &B {
        &self.body
    }

    pub(crate) fn body_mut(&mut self) -> &mut B {
        &mut self.body
    }

    pub(crate) fn map<C>(self, change: impl FnOnce(B) -> C) -> Request<C> {
        Request { head: self.head, body: change(self.body) }
    }
}

impl<B> From<http::Request<B>> for Request<B> {
    fn from(request: http::Request<B>) -> Self {
        let (mut head, body) = request.into_parts();
        let extended = head.extensions.remove();
        let method = head.method;
        let uri = head.uri;
        let version = head.version;
        let headers = head.headers.into();
        let head =
            RequestHead { method, uri, sent_target: None, version, headers, extended, trace: None };
        Self { head: Box::new(head), body }
    }
}

/// The client's side of a request that is to become a tunnel; an extension of the request.
#[derive(Clone, Debug)]
pub(crate) struct ExtendedConnect(Arc<Mutex<Option<PendingTunnel>>>);

/// A stream of HTTP/2 that becomes a tunnel once its response has begun.
#[derive(Debug)]
struct PendingTunnel {
    from_client: RecvStream,
    to_client: oneshot::Receiver<SendStream<Part>>,
}

impl ExtendedConnect {
    /// Keeps the client's direction of a stream. Returns also where the other one is sent once the response
    /// has begun.
    pub(crate) fn new(from_client: RecvStream) -> (Self, oneshot::Sender<SendStream<Part>>) {
        let (sender, to_client) = oneshot::channel();
        let pending = PendingTunnel { from_client, to_client };
        (Self(Arc::new(Mutex::new(Some(pending)))), sender)
    }

    /// Waits until the response has begun, and returns both directions of the stream. Returns `None` if
    /// the client has left before, or the stream was taken already.
    pub(crate) async fn accepted(self) -> Option<(RecvStream, SendStream<Part>)> {
        let pending = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let PendingTunnel { from_client, to_client } = pending?;
        Some((from_client, to_client.await.ok()?))
    }
}

/// A response with a body. Its head is in a box because it is large, and moved often.
#[derive(Debug)]
pub(crate) struct Response<B> {
    head: Box<ResponseHead>,
    body: B,
}

/// The head of a response.
#[derive(Debug, Default)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    /// Another than the usual one.
    pub(crate) reason: Option<ReasonPhrase>,
    pub(crate) headers: FieldList,
}

impl<B> Response<B> {
    pub(crate) fn from_parts(head: Box<ResponseHead>, body: B) -> Self {
        Self { head, body }
    }

    pub(crate) fn into_parts(self) -> (Box<ResponseHead>, B) {
        (self.head, self.body)
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.head.status
    }

    pub(crate) fn status_mut(&mut self) -> &mut StatusCode {
        &mut self.head.status
    }

    pub(crate) fn headers(&self) -> &FieldList {
        &self.head.headers
    }

    pub(crate) fn headers_mut(&mut self) -> &mut FieldList {
        &mut self.head.headers
    }

    pub(crate) fn body(&self) -> &B {
        &self.body
    }

    pub(crate) fn map<C>(self, change: impl FnOnce(B) -> C) -> Response<C> {
        Response { head: self.head, body: change(self.body) }
    }

    /// Returns the response as HTTP/2 has it.
    pub(crate) fn into_http(self) -> http::Response<B> {
        let mut response = http::Response::new(self.body);
        *response.status_mut() = self.head.status;
        *response.headers_mut() = self.head.headers.into_map();
        response
    }
}

impl<B> From<http::Response<B>> for Response<B> {
    fn from(response: http::Response<B>) -> Self {
        let (head, body) = response.into_parts();
        let headers = head.headers.into();
        let head = ResponseHead { status: head.status, reason: None, headers };
        Self { head: Box::new(head), body }
    }
}

/// The largest list of fields that is kept, by the bytes of its memory.
const KEPT_BYTES: usize = 4 * 1024;

/// Empty heads: of a request and of its response.
#[derive(Debug, Default)]
pub(crate) struct SpareHeads {
    request: Spare<RequestHead>,
    response: Spare<ResponseHead>,
}

impl SpareHeads {
    /// Takes a head without fields, which may have memory for them.
    pub(crate) fn request(&self) -> Box<RequestHead> {
        self.request.take().unwrap_or_else(|| {
            let headers = FieldList::with_spare();
            Box::new(RequestHead { headers, ..RequestHead::default() })
        })
    }

    /// The same for a response.
    pub(crate) fn response(&self) -> Box<ResponseHead> {
        self.response.take().unwrap_or_else(|| {
            let headers = FieldList::with_spare();
            Box::new(ResponseHead { headers, ..ResponseHead::default() })
        })
    }

    /// Keeps the memory of `head`.
    pub(crate) fn give_request(&self, mut head: Box<RequestHead>) {
        if head.headers.capacity() <= KEPT_BYTES {
            head.headers.clear();
            // It may be long.
            head.method = Method::default();
            // It shares the buffer that it was read into.
            head.uri = Uri::default();
            head.sent_target = None;
            head.extended = None;
            head.trace = None;
            self.request.give(head);
        }
    }

    /// The same for a response.
    pub(crate) fn give_response(&self, mut head: Box<ResponseHead>) {
        if head.headers.capacity() <= KEPT_BYTES {
            head.headers.clear();
            head.reason = None;
            self.response.give(head);
        }
    }

    /// Gives all of it up.
    pub(crate) fn forget(&self) {
        self.request.forget();
        self.response.forget();
    }
}

/// A head, or none.
#[derive(Debug)]
struct Spare<T>(Mutex<Option<Box<T>>>);

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Spare<T> {
    fn take(&self) -> Option<Box<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn give(&self, head: Box<T>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(head);
    }

    fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Those that have yet to be written. The connection's task takes them when it has polled the
/// request.
#[derive(Debug, Default)]
pub(crate) struct Interim {
    waiting: Mutex<Vec<Response<()>>>,
    /// True if there are any. One task uses this, which needs no lock to find out.
    is_there: AtomicBool,
}

impl Interim {
    pub(crate) fn push(&self, response: Response<()>) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(response);
        self.is_there.store(true, Relaxed);
    }

    pub(crate) fn take(&self) -> Option<Vec<Response<()>>> {
        if !self.is_there.load(Relaxed) {
            return None;
        }
        self.is_there.store(false, Relaxed);
        Some(core::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{COOKIE, HeaderValue};

    #[test]
    fn a_kept_head_has_nothing_of_its_message() {
        let spare = SpareHeads::default();
        let mut head = spare.request();
        head.method = Method::from_bytes(&[b'M'; 5000]).unwrap();
        head.uri = "/a?b".parse().unwrap();
        head.sent_target = Some(PathAndQuery::from_static("/c"));
        head.headers.append(COOKIE, HeaderValue::from_static("c=d"));
        spare.give_request(head);
        let head = spare.request();
        assert_eq!((&head.method, head.uri.path(), head.uri.query()), (&Method::GET, "/", None));
        assert_eq!(head.sent_target, None);
        assert!(head.headers.is_empty() && head.headers.capacity() > 0);
        let mut head = spare.response();
        head.headers.append(COOKIE, HeaderValue::from_static("c=d"));
        spare.give_response(head);
        assert!(spare.response().headers.is_empty());
    }
}
