//! Answers of the admin listener: texts, JSON, and streams.

use super::context::Admin;
use crate::small_http::{self, Endless};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use serde::Serialize;
use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// The body of an answer.
pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// An answer.
pub(super) type Reply = Response<Body>;

/// Returns a text.
pub(super) fn plain(status: StatusCode, text: impl Into<Bytes>) -> Reply {
    page(status, "text/plain; charset=utf-8", text.into())
}

/// Returns a page that no browser or proxy keeps.
pub(super) fn page(status: StatusCode, content_type: &'static str, text: Bytes) -> Reply {
    let body = Full::new(text).boxed_unsync();
    let mut response = small_http::response(status, content_type, body);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Returns `value` as indented JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Reply {
    match serde_json::to_vec_pretty(value) {
        Ok(mut text) => {
            text.push(b'\n');
            page(status, "application/json", text.into())
        }
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "the page cannot be written\n"),
    }
}

/// Returns a large page, unless too many are in flight.
pub(super) fn large(
    admin: &Admin,
    content_type: &'static str,
    write: impl FnOnce() -> Option<Vec<u8>>,
) -> Reply {
    let Ok(permit) = Arc::clone(&admin.pages).try_acquire_owned() else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "too many pages are being read\n");
    };
    let Some(text) = write() else {
        return plain(StatusCode::INTERNAL_SERVER_ERROR, "the page cannot be written\n");
    };
    page(StatusCode::OK, content_type, Bytes::from_owner(PageBody { text, permit }))
}

/// Returns an answer that sends what `pieces` receives until its senders are gone, unless too many
/// are open. The senders notice that the client has left by `Sender::closed`.
pub(super) fn stream(
    admin: &Admin,
    content_type: &'static str,
    pieces: mpsc::Receiver<Bytes>,
) -> Reply {
    let Ok(permit) = Arc::clone(&admin.streams).try_acquire_owned() else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "too many streams are open\n");
    };
    let body = Pieces { pieces, permit }.boxed_unsync();
    let mut response = small_http::response(StatusCode::OK, content_type, body);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.extensions_mut().insert(Endless);
    response
}

/// A large page, which counts as in flight until its last byte is sent or the connection has ended.
struct PageBody {
    text: Vec<u8>,
    #[expect(dead_code, reason = "held, not read")]
    permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for PageBody {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// A body in pieces that come one after the other.
struct Pieces {
    pieces: mpsc::Receiver<Bytes>,
    #[expect(dead_code, reason = "held, not read")]
    permit: OwnedSemaphorePermit,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.pieces.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
