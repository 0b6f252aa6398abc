//! `WebSocket` over HTTP/2 (RFC 8441): a CONNECT that names a protocol.
//!
//! It is served as the GET with `Upgrade` that it would be in HTTP/1.1: routes, rules and upstreams
//! see no difference. Once the server has agreed, the stream is the tunnel.

use super::client_body::ClientBody;
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{
    HeaderValue, Method, Request,
    header::{CONNECTION, SEC_WEBSOCKET_KEY, UPGRADE},
};
use hyper::{ext::Protocol, upgrade::OnUpgrade};

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
