//! One request of a connection of HTTP/2: a task serves it, sends the response, and resets the stream
//! if either cannot be.
//!
//! A CONNECT that names a protocol (RFC 8441), such as `WebSocket`, is served as the GET with `Upgrade`
//! that it would be in HTTP/1.1: routes, rules and upstreams see no difference. Once the server has
//! agreed, the stream is the tunnel.

use crate::proxy::{
    message::{ExtendedConnect, Response, hop_by_hop::strip_hop_by_hop},
    peer::Peer,
    request::Decided,
    response::response_body::{ResponseBody, ResponseCut},
    timeouts::streams::{Part, Stream},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::{Buf, Bytes};
use core::{
    error::Error,
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};
use h2::{Reason, RecvStream, SendStream, ext::Protocol, server::SendResponse};
use http::{
    HeaderValue, Method, Request,
    header::{CONNECTION, CONTENT_LENGTH, DATE, SEC_WEBSOCKET_KEY, UPGRADE},
};
use http_body::{Body, Frame};
use std::sync::Arc;
use tokio::sync::oneshot;

/// A request whose stream is open.
pub(super) struct StreamTask {
    pub(super) begun: Decided,
    pub(super) peer: Arc<Peer>,
    pub(super) stream: Option<Arc<Stream>>,
    pub(super) reply: SendResponse<Part>,
    /// Gets the stream once the client may use it as a tunnel, if it has asked for one.
    pub(super) tunnel: Option<oneshot::Sender<SendStream<Part>>>,
}

impl StreamTask {
    /// Serves the request and sends its response. To drop the future resets the stream.
    pub(super) async fn run(self) {
        let Self { begun, peer, stream, mut reply, tunnel } = self;
        let Some(response) = serve(begun, &mut reply, stream.as_deref()).await else { return };

        if response.body().is_without_response() {
            // As nginx does.
            reply.send_reset(Reason::INTERNAL_ERROR);
            return;
        }
        let is_tunnel = tunnel.is_some() && response.status().is_success();
        let is_last = !is_tunnel && response.body().is_end_stream();
        let (head, body) = into_head(response, &peer, is_last || is_tunnel).into_parts();

        let Ok(sender) = reply.send_response(http::Response::from_parts(head, ()), is_last) else {
            return;
        };
        match tunnel {
            // A receiver that is gone resets the stream.
            Some(tunnel) if is_tunnel => drop(tunnel.send(sender)),
            _ if is_last => {}
            _ => {
                let mut sender = ResponseSender { body, sender, waiting: None };
                poll_fn(|context| sender.poll(context)).await;
            }
        }
    }
}

/// Polls a request until its response begins, and sends interim responses. Returns `None` if the client
/// resets the stream meanwhile.
async fn serve(
    begun: Decided,
    reply: &mut SendResponse<Part>,
    stream: Option<&Stream>,
) -> Option<Response<ResponseBody>> {
    let mut serving = pin!(begun.serve());
    poll_fn(|context| {
        let polled = serving.as_mut().poll(context);
        for response in stream.map(Stream::take_interim).unwrap_or_default() {
            // An error says that the stream is over, which the next call reports too.
            drop(reply.send_informational(response));
        }

        if let Poll::Ready(response) = polled {
            return Poll::Ready(Some(response));
        }
        reply.poll_reset(context).map(|_| None)
    })
    .await
}

/// Returns the response as HTTP/2 has it: without what only HTTP/1.1 has, with a date and, if a body
/// follows, with its length.
fn into_head(
    mut response: Response<ResponseBody>,
    peer: &Peer,
    is_without_body: bool,
) -> http::Response<ResponseBody> {
    let headers = response.headers_mut();
    let fields = headers.set();
    if !fields.are_plain() {
        strip_hop_by_hop(headers, fields);
    }

    if !headers.contains_key(&DATE) {
        headers.append(DATE, peer.date());
    }
    let length = response.body().size_hint().exact().filter(|_| !is_without_body);
    let mut response = response.into_http();
    if let Some(length) = length {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    response
}

/// Sends the body of a response as fast as its client takes it.
struct ResponseSender {
    body: ResponseBody,
    sender: SendStream<Part>,
    /// A part that waits for the client to take more, and whether it is the last one.
    waiting: Option<(Part, bool)>,
}

impl ResponseSender {
    /// Polls until all of the body was sent, or the stream is over.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            // A client may reset the stream while the body is silent.
            if self.sender.poll_reset(context).is_ready() {
                return Poll::Ready(());
            }
            if let Some((part, is_last)) = self.waiting.take() {
                if self.poll_room(context).is_pending() {
                    self.waiting = Some((part, is_last));
                    return Poll::Pending;
                }
                if self.send(part, is_last) {
                    return Poll::Ready(());
                }
            }

            let is_over = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => self.take(frame),
                Some(Err(cut)) => {
                    self.sender.send_reset(reason_of(&cut));
                    true
                }
                None => self.send(Part::new(Bytes::new(), None), true),
            };
            if is_over {
                return Poll::Ready(());
            }
        }
    }

    /// Polls until the client takes a part. Room is reserved only for a part that is there: a byte of the
    /// connection's window that a silent body holds could keep all others waiting.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.sender.capacity() == 0 {
            // Without capacity to come the stream is over, which the next call reports too.
            if !matches!(ready!(self.sender.poll_capacity(context)), Some(Ok(_))) {
                break;
            }
        }
        Poll::Ready(())
    }

    /// Takes the next frame of the body. What is empty, and trailers, need no room. Returns whether nothing
    /// may follow.
    fn take(&mut self, frame: Frame<Part>) -> bool {
        match frame.into_data() {
            Ok(part) => {
                let is_last = self.body.is_end_stream();
                if !part.has_remaining() {
                    return self.send(part, is_last);
                }
                // The window has a byte of each stream that waits, and h2 asks for the rest itself.
                self.sender.reserve_capacity(1);
                self.waiting = Some((part, is_last));
                false
            }
            Err(frame) => {
                // What was reserved is for others from here on. An error says that the stream is over.
                self.sender.reserve_capacity(0);
                drop(self.sender.send_trailers(frame.into_trailers().unwrap_or_default()));
                true
            }
        }
    }

    /// Sends a part. Returns whether nothing may follow.
    fn send(&mut self, part: Part, is_last: bool) -> bool {
        self.sender.send_data(part, is_last).is_err() || is_last
    }
}

/// Returns the reason for which a stream is reset whose response breaks off: the server's, if it has given
/// one.
#[cold]
fn reason_of(cut: &ResponseCut) -> Reason {
    let mut error: Option<&(dyn Error + 'static)> = Some(cut);
    while let Some(current) = error {
        if let Some(reason) = current.downcast_ref::<h2::Error>().and_then(h2::Error::reason) {
            return reason;
        }
        error = current.source();
    }
    Reason::INTERNAL_ERROR
}

/// Makes a CONNECT that names a protocol the GET that it stands for. Others stay as they are. Returns the
/// request, without a body if it is a CONNECT, and where the stream is sent once its response has begun.
pub(super) fn translate(
    request: Request<RecvStream>,
) -> (Request<Option<RecvStream>>, Option<oneshot::Sender<SendStream<Part>>>) {
    if request.method() != Method::CONNECT {
        return (request.map(Some), None);
    }
    let (mut head, from_client) = request.into_parts();
    let named = head.extensions.remove::<Protocol>();
    let Some(token) = named.and_then(|name| HeaderValue::from_str(name.as_str()).ok()) else {
        return (Request::from_parts(head, None), None);
    };

    head.method = Method::GET;
    let is_websocket = token.as_bytes().eq_ignore_ascii_case(b"websocket");
    head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    head.headers.insert(UPGRADE, token);
    // HTTP/2 has none. It protects from responses of caches, and keeps no secret.
    let key = BASE64_STANDARD.encode(fastrand::u128(..).to_be_bytes());
    if is_websocket && let Ok(key) = HeaderValue::try_from(key) {
        head.headers.insert(SEC_WEBSOCKET_KEY, key);
    }

    let (extended, to_client) = ExtendedConnect::new(from_client);
    head.extensions.insert(extended);
    (Request::from_parts(head, None), Some(to_client))
}
