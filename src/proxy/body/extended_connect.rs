//! `WebSocket` over HTTP/2 (RFC 8441): a CONNECT that names a protocol.
//!
//! It is served as the GET with `Upgrade` that it would be in HTTP/1.1: routes, rules and upstreams
//! see no difference. Once the server has agreed, the stream is the tunnel.

use super::{client_body::ClientBody, upload_buffer::UploadBuffer};
use base64::{Engine, prelude::BASE64_STANDARD};
use core::{
    pin::Pin,
    task::{Context, Poll, ready},
};
use http::{
    HeaderValue, Method, Request,
    header::{CONNECTION, SEC_WEBSOCKET_KEY, UPGRADE},
};
use hyper::{ext::Protocol, upgrade::OnUpgrade};
use std::{io, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The client's side of a request that is to become a tunnel; an extension of the request.
#[derive(Clone, Debug)]
pub(crate) struct ExtendedConnect(pub(crate) OnUpgrade);

/// Makes a CONNECT that names a protocol the GET that it stands for. Others stay as they are.
pub(crate) fn translate(request: &mut Request<ClientBody>) {
    if request.method() != Method::CONNECT {
        return;
    }
    let named = request.extensions_mut().remove::<Protocol>();
    let Some(token) = named.and_then(|name| HeaderValue::from_str(name.as_str()).ok()) else {
        return;
    };
    let client = hyper::upgrade::on(&mut *request);
    *request.method_mut() = Method::GET;
    *request.body_mut() = ClientBody::Empty;
    let is_websocket = token.as_bytes().eq_ignore_ascii_case(b"websocket");
    let headers = request.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, token);
    // HTTP/2 has none. It protects from answers of caches, and keeps no secret.
    let key = BASE64_STANDARD.encode(fastrand::u128(..).to_be_bytes());
    if is_websocket && let Ok(key) = HeaderValue::try_from(key) {
        headers.insert(SEC_WEBSOCKET_KEY, key);
    }
    request.extensions_mut().insert(ExtendedConnect(client));
}

/// The client's side of a tunnel, of which what is read counts no longer as held.
#[derive(Debug)]
pub(crate) struct Counted<T> {
    pub(crate) io: T,
    pub(crate) buffer: Option<Arc<UploadBuffer>>,
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(context, buffer))?;
        if let Some(held) = &self.buffer {
            held.on_passed((buffer.filled().len() - before) as u64);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
